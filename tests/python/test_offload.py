# SPDX-License-Identifier: Apache-2.0
"""Gradients are equal to those without offload, bit for bit, in all uses of autograd; and misuse raises."""
import gc
import os
import random
import threading
import time
import types
import unittest
import unittest.mock

import common

torch = common.need("torch")
import varve  # noqa: E402
import varve.torch  # noqa: E402
from varve.torch import _offload  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
# On the processor all tests run a second time, with the emulated device above host memory.
WAYS = [{}] if CUDA else [{}, {"device": "host", "device_cache": "2M"}]
TORCH2 = int(torch.__version__.split(".")[0]) >= 2


def model(seed=0, width=64, blocks=4):
    torch.manual_seed(seed)
    layers = [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width), nn.LayerNorm(width))
              for _ in range(blocks)]
    return nn.Sequential(*layers).to(DEVICE)


def batch(seed=1, width=64, rows=128):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


class Offloading(common.Case):
    def each(self, **more):
        for way in WAYS:
            off = varve.torch.offload(**{"host_cache": "64M", "device_cache": "8M", "minimum": 4096, **way, **more})
            with self.subTest(**way):
                try:
                    yield off
                finally:
                    gc.collect()
                    off.close()

    @staticmethod
    def gradients(m, run):
        m.zero_grad(set_to_none=True)
        torch.manual_seed(5)
        run()
        return [p.grad.clone() for p in m.parameters()]

    def equal(self, a, b):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertTrue(torch.equal(x, y))

    def test_steps(self):
        m, x = model(), batch()

        def plain():
            m(x).square().sum().backward()

        want = self.gradients(m, plain)
        for off in self.each():
            def step():
                with off:
                    loss = m(x).square().sum()
                loss.backward()

            for _ in range(4):
                self.equal(want, self.gradients(m, step))
            s = off.stats()
            self.assertEqual(s["live"], 0)
            s = s["cuda:0" if CUDA else "cpu"]
            self.assertGreaterEqual(s["checkpoints"], 4 * 12)
            self.assertGreater(s["hints"], 0)

    def test_what_stays(self):
        m = model(blocks=1)
        for off in self.each(minimum=1 << 20):
            with off:
                loss = m(batch()).sum()
            self.assertEqual(off.stats()["live"], 0)
            loss.backward()
        w = torch.randn(200, 200, device=DEVICE, requires_grad=True)
        frozen = nn.Parameter(torch.randn(200, 200, device=DEVICE), requires_grad=False)
        x = torch.randn(200, 200, device=DEVICE)
        for off in self.each():
            with off:
                y = nn.functional.linear(torch.relu(x @ w), frozen)
            names = sorted(saved.nbytes for saved in off._live.values())
            self.assertLessEqual(len(names), 2, "the input and the result of relu")
            y.sum().backward()
            with off:
                y = nn.functional.linear(torch.relu(x @ w), frozen)
            self.assertLessEqual(len(off._live), 1, "the input was still there, and stays")
        m = model()
        want = self.gradients(m, lambda: m(batch()).square().sum().backward())
        for off in self.each(keep=300 << 10):
            def step():
                with off:
                    loss = m(batch()).square().sum()
                live.append(sum(saved.nbytes for saved in off._live.values()))
                loss.backward()

            live = []
            for _ in range(3):
                self.equal(want, self.gradients(m, step))
            self.assertLess(live[1], live[0] - (100 << 10))
            self.assertGreaterEqual(live[1], live[0] - (300 << 10))
            self.assertEqual(live[1], live[2])
        for off in self.each(wanted=lambda t: False):
            with off:
                (torch.relu(x @ w)).sum().backward()
            self.assertEqual(off.stats(), {"live": 0})

    def test_bytes_are_written_once(self):
        for off in self.each():
            w = torch.randn(64, 64, device=DEVICE, requires_grad=True)

            def f():
                h = w @ w
                a, b, c = (h * k for k in (h.t(), h.view(32, 128).view(64, 64), h))
                q, k, v = torch.cat([h, h, h], 1).view(64, 3, 64).unbind(1)
                return (q * k * v).sum() + (a + b + c).sum()

            with off:
                z = f()
            written = next(iter(off._stores.values())).context.stats()["checkpoint_bytes"]
            self.assertLessEqual(written, 64 * 64 * 4 * (1 + 3 + 1))
            self.assertTrue(torch.equal(torch.autograd.grad(z, w)[0], torch.autograd.grad(f(), w)[0]))

    def test_values_that_memory_does_not_hold(self):
        """Views that are read as the conjugate or the negative of their memory."""
        x = torch.randn(100, 100, dtype=torch.complex64, generator=torch.Generator().manual_seed(2)).to(DEVICE).requires_grad_()
        for f in (lambda: ((x * 1).conj() * (x * 2)).real.sum(), lambda: ((x * 1).conj().imag * (x * 2).real).sum()):
            want = torch.autograd.grad(f(), x)[0]
            for off in self.each():
                with off:
                    loss = f()
                self.assertTrue(torch.equal(torch.autograd.grad(loss, x)[0], want))

    def test_memory_of_another_tape(self):
        """A dropped graph has bytes of memory that was written since, without the version counter."""
        for off in self.each():
            w = torch.randn(64, 64, device=DEVICE, requires_grad=True)
            x = torch.ones(64, 64, device=DEVICE)
            with off:
                left = (x @ w).sum()
            x.data.mul_(3)
            with off:
                loss = (x @ w).sum()
            want = x.t() @ torch.ones(64, 64, device=DEVICE)
            del x
            self.assertTrue(torch.equal(torch.autograd.grad(loss, w)[0], want))
            del left, loss

    def test_nested(self):
        m = nn.Linear(64, 64).to(DEVICE)
        for off in self.each(minimum=1):
            x = torch.nested.nested_tensor([torch.randn(30, 64), torch.randn(50, 64)]).to(DEVICE)
            with off:
                m(x).to_padded_tensor(0).sum().backward()

    def test_gaps_of_the_size_of_what_repeats(self):
        """A view with gaps and repeats that has as many elements as its storage, and reaches less far."""
        x = torch.randn(2, 1 << 20, device=DEVICE, requires_grad=True)

        def f():
            y = (x * 1.5)[:, :1 << 19].expand(2, 2, 1 << 19)
            return (y * y).sum()

        want = torch.autograd.grad(f(), x)[0]
        for off in self.each():
            for _ in range(3):
                with off:
                    loss = f()
                self.assertTrue(torch.equal(torch.autograd.grad(loss, x)[0], want))

    def test_tapes_in_several_threads(self):
        """Threads that pack onto one tape, as those of autograd do in a backward pass within the `with`."""
        for off in self.each():
            with off:
                tape = off._local.stack[-1]
                store, versions = off._store, []

                def slow(tensor, store=store):
                    time.sleep(0.001)
                    return store(tensor)

                def work(tape=tape, versions=versions):
                    for _ in range(10):
                        packed = tape.pack(torch.ones(64, 64, device=DEVICE))
                        versions.append(packed[0].version)

                off._store = slow
                threads = [threading.Thread(target=work) for _ in range(4)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
                del off._store
            self.assertEqual(len(set(versions)), 40)

    def test_retain_graph_and_double_backward(self):
        for off in self.each():
            x = torch.randn(100, 100, device=DEVICE, dtype=torch.float64, requires_grad=True)

            def f():
                return (torch.tanh(x @ x) * x).sin().sum()

            with off:
                y = f()
            first = torch.autograd.grad(y, x, retain_graph=True)[0]
            again = torch.autograd.grad(y, x, create_graph=True)[0]
            self.assertTrue(torch.equal(first, again))
            second = torch.autograd.grad(again.square().sum(), x)[0]
            g = torch.autograd.grad(f(), x, create_graph=True)[0]
            self.assertTrue(torch.equal(second, torch.autograd.grad(g.square().sum(), x)[0]))

    def test_in_place(self):
        """Modifications that PyTorch detects are detected, in offloaded tensors and in those that stayed."""
        for minimum in (1, 1 << 30):
            for off in self.each(minimum=minimum):
                for change in (lambda y: y.add_(1), lambda y: y[0].zero_(), lambda y: y.view(-1).mul_(2)):
                    x = torch.randn(64, 64, device=DEVICE, requires_grad=True)
                    with off:
                        y = x.exp()
                        z = y.sum() * 1
                        with torch.no_grad():
                            change(y)
                    with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                        z.backward()
                        y.sum().backward()
                x = torch.randn(64, 64, device=DEVICE, requires_grad=True)
                with off:
                    y = (x * 2).relu_()
                    z = y.square().sum()
                z.backward()
                self.assertTrue(torch.equal(x.grad, (x * 2).relu() * 2 * (x > 0) * 2))

    def test_exception_between(self):
        m, x = model(), batch()
        want = self.gradients(m, lambda: m(x).square().sum().backward())
        for off in self.each():
            def step():
                with off:
                    loss = m(x).square().sum()
                loss.backward()

            for i in range(3):
                with self.assertRaises(ZeroDivisionError):
                    with off:
                        loss = m(x)
                        1 / 0
                if i == 1:
                    del loss
                self.equal(want, self.gradients(m, step))
            loss = None
            gc.collect()
            self.assertEqual(off.stats()["live"], 0)

    def test_several_models_and_orders(self):
        a, b, x = model(0), model(1, blocks=2), batch()
        wants = [self.gradients(m, lambda m=m: m(x).square().sum().backward()) for m in (a, b)]
        for off in self.each():
            rng = random.Random(3)
            for _ in range(6):
                losses = []
                order = [(0, a), (1, b)]
                rng.shuffle(order)
                for m in (a, b):
                    m.zero_grad(set_to_none=True)
                for i, m in order:
                    torch.manual_seed(5)
                    with off:
                        losses.append((i, m, m(x).square().sum()))
                rng.shuffle(losses)
                for i, m, loss in losses:
                    loss.backward()
                    self.equal(wants[i], [p.grad for p in m.parameters()])

    def test_threads(self):
        models = [model(i, blocks=2) for i in range(3)]
        for m in models:
            m.eval()
        x = batch()
        wants = [self.gradients(m, lambda m=m: m(x).square().sum().backward()) for m in models]
        for off in self.each():
            bad = []

            def work(m, want, off=off, bad=bad):
                for _ in range(5):
                    m.zero_grad(set_to_none=True)
                    with off:
                        loss = m(x).square().sum()
                    loss.backward()
                    if not all(torch.equal(p.grad, w) for p, w in zip(m.parameters(), want)):
                        bad.append(m)

            threads = [threading.Thread(target=work, args=pair) for pair in zip(models, wants)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(bad, [])

    def test_checkpoint_and_autocast(self):
        m, x = model(), batch().requires_grad_()
        for m_ in m:
            m_[2].p = 0.0
        for reentrant in (False, True):
            def run():
                y = x
                for block in m:
                    y = checkpoint(block, y, use_reentrant=reentrant)
                return y.square().sum()

            want = self.gradients(m, lambda: run().backward())
            for off in self.each():
                def step():
                    with off:
                        loss = run()
                    loss.backward()

                for _ in range(3):
                    self.equal(want, self.gradients(m, step))

        m = nn.Sequential(*[nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4)]).to(DEVICE)

        def cast():
            with torch.autocast(DEVICE, torch.bfloat16):
                return m(x).float().square().sum()

        want = self.gradients(m, lambda: cast().backward())
        for off in self.each():
            def step2():
                with off:
                    loss = cast()
                loss.backward()

            for _ in range(3):
                self.equal(want, self.gradients(m, step2))

    def test_spills(self):
        """Tensors that fit no cache go to disk; without a disk they stay, with a warning."""
        m, x = model(blocks=6), batch(rows=512)
        want = self.gradients(m, lambda: m(x).square().sum().backward())

        def step(off):
            with off:
                loss = m(x).square().sum()
            loss.backward()

        for off in self.each(host_cache="2M", device_cache="2M", local=self.path("spill")):
            for _ in range(3):
                self.equal(want, self.gradients(m, lambda off=off: step(off)))
            self.assertGreater(next(iter(off._stores.values())).context.stats()["moved_bytes"][4], 0)
        for off in self.each(host_cache="2M", device_cache="2M"):
            with self.assertWarnsRegex(UserWarning, "stay where they are"):
                self.equal(want, self.gradients(m, lambda off=off: step(off)))
            self.equal(want, self.gradients(m, lambda off=off: step(off)))

    def test_settings(self):
        """An unknown setting raises when the object is made, with its name."""
        for name, value in ("hostcache", "1G"), ("host_cache", "1X"), ("minimum", "1X"), ("keep", "much"):
            with self.assertRaisesRegex(varve.InvalidError, name):
                varve.torch.offload(**{name: value})

    def test_closed(self):
        m, x = model(), batch()
        off = varve.torch.offload(host_cache="64M", device_cache="8M", minimum=4096)
        with off:
            loss = m(x).square().sum()
        off.close()
        with self.assertRaises((varve.ClosedError, RuntimeError)):
            loss.backward()
        with self.assertRaises(varve.ClosedError):
            with off:
                pass
        del loss
        with self.assertRaises(ValueError):
            varve.torch.offload(tensors="tpu")
        with self.assertRaises(varve.InvalidError):
            varve.torch.offload(minimum="much")
        with self.assertRaisesRegex((varve.InvalidError, RuntimeError), "no_such"):
            with varve.torch.offload(no_such=1, minimum=0):
                m(x)

    def test_exit_and_fork(self):
        program = """
import os, sys, torch, varve.torch
from torch.utils.data import DataLoader
m = torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(4)])
off = varve.torch.offload(host_cache="64M", minimum=4096, tensors="cpu")
for x in DataLoader(torch.randn(64, 300), batch_size=16, num_workers=2):
    with off:
        loss = m(x).relu().sum()
    for again in DataLoader(torch.randn(64, 300), batch_size=16, num_workers=2): pass
    loss.backward()
with off:
    loss = m(x).sigmoid().sum()
class Ring: pass
ring = Ring(); ring.me, ring.loss, ring.off = ring, loss, off
print("ok")
"""
        status, out, err = common.child(program)
        self.assertEqual((status, out, err), (0, "ok\n", ""))

    def test_leaks(self):
        m, x = model(blocks=1, width=16), batch(width=16, rows=64)
        for off in self.each():
            def step():
                with off:
                    loss = m(x).square().sum()
                if random.random() < 0.9:
                    loss.backward()

            self.flat(step, 1000, 8 << 20)
            loss = None
            self.assertLessEqual(len(off._futile) + len(off._live), 8)
            self.assertLessEqual(len(off._finished), 17)
            self.assertIsNone(loss)

    @unittest.skipUnless(CUDA and TORCH2, "a GPU and PyTorch 2")
    def test_compile_and_capture(self):
        m, x = model().eval(), batch()
        compiled = torch.compile(m)
        want = self.gradients(m, lambda: compiled(x).square().sum().backward())
        for off in self.each():
            def step():
                with off:
                    loss = compiled(x).square().sum()
                loss.backward()

            for _ in range(3):
                self.equal(want, self.gradients(m, step))
            graph = torch.cuda.CUDAGraph()
            with self.assertRaises(Exception):
                with torch.cuda.graph(graph):
                    with off:
                        m(x).square().sum()
            torch.cuda.synchronize()

    def test_what_a_budget_lets_stay(self):
        """The peak of a step is elsewhere, or tensors stay at the peak: it never exceeds the budget, and comes close to it. With
        times of the forward pass, tensors stay from all of it, with every place of the peak."""
        GB = 10**9
        cache, always = GB, 5 * GB
        for elsewhere, budget, sizes in ((12 * GB, 15 * GB, [GB] * 20), (8 * GB, 15 * GB, [GB] * 20), (8 * GB, 15 * GB, [5 * GB] * 4),
                                         (12 * GB, 15 * GB, [GB] * 3), (20 * GB, 15 * GB, [GB] * 20), (8 * GB, 15 * GB, [GB, GB // 8] * 30)):
            times = [(i + 1.0) / len(sizes) for i in range(len(sizes))] + [1.0]
            for clocks in (), (types.SimpleNamespace(usable=True, seconds=lambda times=times: times),):
                with self.subTest(elsewhere=elsewhere, sizes=sizes, clocks=len(clocks)):
                    off = _offload.Offload({}, "cuda", 0, 0, budget, None)
                    off._stores = {0: types.SimpleNamespace(index=0, context=types.SimpleNamespace(stats=lambda: {"tier_bytes": [cache]}))}
                    stayed, peaks, since_reset, before = 0, [], 0, set()
                    for step in range(30):
                        learned = _offload._Learned(tuple(sizes), (0,) * len(sizes), (), stayed, clocks)
                        since_reset = peak = max(elsewhere, always + stayed)
                        peaks.append(peak + cache)
                        with unittest.mock.patch("torch.cuda.max_memory_allocated", lambda index: since_reset):
                            off._look()
                            since_reset = 0  # as programs do between steps
                            stays = off._stays(learned)
                        self.assertFalse(clocks and before - stays)
                        stayed, before = sum(sizes[i] for i in stays), stays
                    if elsewhere + cache < budget:
                        self.assertLessEqual(max(peaks), budget)
                        self.assertGreater(stayed + 2 * max(sizes), min(sum(sizes), budget - cache - always))
                    else:
                        self.assertEqual(stayed, 0)
                    for i in range(len(sizes)) if clocks else ():
                        written = sum(size for k, size in enumerate(sizes[:i + 1]) if k not in stays)
                        self.assertLessEqual(abs(written - (sum(sizes) - stayed) * times[i]), cache + 3 * max(sizes))

    def test_a_budget_waits_for_the_first_pass(self):
        """Until its times are known nothing stays: a different later choice could exceed the budget."""
        off = _offload.Offload({}, "cuda", 0, 0, 5 << 19, None)
        clock = types.SimpleNamespace(usable=True, seconds=lambda: None)
        learned = _offload._Learned((1 << 20,) * 4, (0,) * 4, (), 0, (clock,))
        self.assertEqual(off._stays(learned), set())
        clock.usable = False  # two GPUs: their times do not add up
        self.assertEqual(off._stays(learned), {2, 3})

    def test_what_the_link_lets_stay(self):
        """Writes never wait for the link, and the link is busy as long as tensors are packed."""
        GB = 10**9
        for cache, seconds, sizes in ((2 * GB, 0.16, [GB // 4] * 80), (GB, 0.5, [GB // 4, GB // 8] * 40), (4 * GB, 1.0, [GB] * 20)):
            with self.subTest(cache=cache, seconds=seconds):
                off = _offload.Offload({}, "cuda", 0, None, None, None)
                store = types.SimpleNamespace(link=lambda: 50 * GB, context=types.SimpleNamespace(stats=lambda: {"tier_bytes": [cache]}))
                off._stores = {0: store}
                times = [seconds * (i + 1) / len(sizes) for i in range(len(sizes))] + [seconds]
                clocks = (types.SimpleNamespace(seconds=lambda: [3 * t for t in times]), types.SimpleNamespace(seconds=lambda: None),
                          types.SimpleNamespace(seconds=lambda: times))
                stays = off._stays(_offload._Learned(tuple(sizes), (0,) * len(sizes), (), 0, clocks))
                written, down = 0, 0.0
                for i, size in enumerate(sizes):
                    down = min(written, down + 50 * GB * (times[i] - (times[i - 1] if i else 0)))
                    if i not in stays:
                        written += size
                        self.assertLessEqual(written - down, cache)
                carried = min(sum(sizes), cache + 50 * GB * seconds)
                self.assertGreaterEqual(written, 0.85 * carried - 2 * max(sizes))

    @unittest.skipUnless(CUDA, "a GPU")
    def test_as_much_as_the_link_carries(self):
        m, x = model(width=512), batch(width=512, rows=4096)
        want = self.gradients(m, lambda: m(x).square().sum().backward())
        for off in self.each(device_cache="32M", host_cache="1G", keep="auto"):
            def step():
                with off:
                    loss = m(x).square().sum()
                loss.backward()

            for _ in range(6):
                self.equal(want, self.gradients(m, step))
            torch.cuda.synchronize()
            self.assertEqual(len(off._latest.clocks), 3)
            for clock in off._latest.clocks:
                times = clock.seconds()
                self.assertEqual(len(times), len(off._latest.sizes) + 1)
                self.assertEqual(times, sorted(times))
        with self.assertRaisesRegex(ValueError, "auto"):
            varve.torch.offload(keep="auto", budget="1G")

    @unittest.skipUnless(CUDA, "a GPU")
    def test_streams_and_budget(self):
        m, x = model(width=512), batch(width=512, rows=4096)
        want = self.gradients(m, lambda: m(x).square().sum().backward())
        side = torch.cuda.Stream()
        for off in self.each(device_cache="32M", host_cache="1G"):
            def step():
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    with off:
                        loss = m(x).square().sum()
                    loss.backward()
                torch.cuda.current_stream().wait_stream(side)

            for _ in range(4):
                self.equal(want, self.gradients(m, step))
        torch.cuda.reset_peak_memory_stats()
        self.gradients(m, lambda: m(x).square().sum().backward())
        without = torch.cuda.max_memory_allocated()
        budget = int(0.8 * without) + (32 << 20)
        torch.cuda.reset_peak_memory_stats()
        for off in self.each(device_cache="32M", host_cache="1G", budget=budget):
            def step2():
                with off:
                    loss = m(x).square().sum()
                loss.backward()

            for _ in range(5):
                self.equal(want, self.gradients(m, step2))
            self.assertLessEqual(torch.cuda.max_memory_allocated() + (32 << 20), budget)

    @unittest.skipUnless(CUDA and torch.cuda.mem_get_info()[1] > 30 << 30, "a GPU with 30 GiB")
    def test_out_of_memory(self):
        """A batch that is too large for the GPU, and for both caches, trains over the disk."""
        width, blocks, rows = 4096, 8, 8192
        m = nn.Sequential(*[nn.Sequential(nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False))
                            for _ in range(blocks)]).to(DEVICE, torch.bfloat16)
        x = batch(width=width, rows=rows).to(torch.bfloat16)

        def plain():
            m(x).float().square().mean().backward()

        want = self.gradients(m, plain)
        m.zero_grad(set_to_none=True)
        gc.collect()
        torch.cuda.empty_cache()
        saved = blocks * rows * 9 * width * 2
        limit = torch.cuda.memory_allocated() + 2 * 8 * blocks * width * width + saved // 2
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
        try:
            with self.assertRaises(torch.cuda.OutOfMemoryError):
                plain()
            m.zero_grad(set_to_none=True)
            gc.collect()
            torch.cuda.empty_cache()
            for off in self.each(device_cache="512M", host_cache="1G", local=self.path("spill"), minimum="1M"):
                def step():
                    with off:
                        loss = m(x).float().square().mean()
                    loss.backward()

                for _ in range(2):
                    self.equal(want, self.gradients(m, step))
                self.assertGreater(next(iter(off._stores.values())).context.stats()["moved_bytes"][4], saved // 4)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)


if __name__ == "__main__":
    assert os
    common.main()
