#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forward and backward of blocks of Linear W -> 4 W, GELU, Linear 4 W -> W in bfloat16, with activations in other places.

    python_offload.py [--width 8192] [--blocks 10] [--tokens 8192] [--steps 8] [WAY...]

Ways: none, pool (a pinned pool by hand, two tensors ahead), cpu (PyTorch's save_on_cpu, pinned), varve (device cache 4 GiB, host
cache 40 GiB), keep (device cache 3 GiB, 1 GiB stays). Gradients of every step are compared bit for bit
with those of the first way.
"""
import argparse
import time

import torch
from torch import nn

import varve.torch


class Pool:
    """Copies down and up on streams of their own."""

    def __init__(self):
        self.down, self.up, self.free, self.tape = torch.cuda.Stream(), torch.cuda.Stream(), {}, []

    def pack(self, t):
        if isinstance(t, nn.Parameter) or t._base is not None or t.numel() < 1 << 20:
            return t
        buffers = self.free.setdefault(t.numel(), [])
        host = buffers.pop() if buffers else torch.empty(t.numel(), dtype=t.dtype, pin_memory=True)
        self.down.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.down):
            host.view(t.shape).copy_(t.detach(), non_blocking=True)
            t.record_stream(self.down)
        self.tape.append([host, t.shape, None, self.down.record_event()])
        return len(self.tape) - 1

    def fetch(self, i):
        if i < 0 or self.tape[i][0] is None or self.tape[i][2] is not None:
            return
        host, shape, _, event = self.tape[i]
        self.up.wait_event(event)
        with torch.cuda.stream(self.up):
            self.tape[i][2] = (host.to("cuda", non_blocking=True).view(shape), self.up.record_event())

    def unpack(self, p):
        if not isinstance(p, int):
            return p
        for i in (p, p - 1, p - 2):
            self.fetch(i)
        tensor, event = self.tape[p][2]
        torch.cuda.current_stream().wait_event(event)
        tensor.record_stream(torch.cuda.current_stream())
        self.free[tensor.numel()].append(self.tape[p][0])
        self.tape[p] = [None] * 4
        return tensor

    def __enter__(self):
        self.tape = []
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)
        self.hooks.__enter__()

    def __exit__(self, *exception):
        self.hooks.__exit__(*exception)


class Hooks:
    """PyTorch's context managers are made again for each step."""

    def __init__(self, make):
        self.make = make

    def __enter__(self):
        self.hooks = self.make()
        self.hooks.__enter__()

    def __exit__(self, *exception):
        self.hooks.__exit__(*exception)


def offload(**settings):
    return varve.torch.offload(**{"device_cache": "4G", "host_cache": "40G", **settings})


WAYS = {
    "none": lambda: Hooks(torch.enable_grad),
    "pool": Pool,
    "cpu": lambda: Hooks(lambda: torch.autograd.graph.save_on_cpu(pin_memory=True)),
    "varve": offload,
    "keep": lambda: offload(device_cache="3G", keep="1G"),
}


def context_of(way):
    return next(iter(way._stores.values())).context


def run(name, model, x, steps, reference):
    """Median and best of the steps behind four that warm up; gradients that all others must have."""
    way, times, same = WAYS[name](), [], True
    torch.cuda.reset_peak_memory_stats()
    for i in range(4 + steps):
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with way:
            loss = model(x).float().square().mean()
        loss.backward()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        del loss
        found = [p.grad for p in model.parameters()]
        same = same and (reference is None or all(torch.equal(a, b) for a, b in zip(reference, found)))
        if i == 0 and isinstance(way, varve.torch.Offload):
            while (s := context_of(way).stats())["host_ready_bytes"] < s["tier_bytes"][1]:
                time.sleep(0.05)
        if i == 3:
            before = context_of(way).stats() if isinstance(way, varve.torch.Offload) else None
    times = sorted(times[4:])
    held = sum(g.numel() * g.element_size() for g in reference or [])
    line = f"{name:6s} median {times[len(times) // 2] * 1e3:7.1f}  best {times[0] * 1e3:7.1f} ms  " \
           f"peak {(torch.cuda.max_memory_allocated() - held) / 2**30:6.2f} GiB  {'same bits' if same else 'DIFFERENT'}"
    if before:
        after = context_of(way).stats()
        down, up = ((after["moved_bytes"][hop] - before["moved_bytes"][hop]) / steps / 1e9 for hop in (2, 3))
        line += f"  down {down:.2f}, up {up:.2f} GB a step"
    print(line, flush=True)
    if reference is None:
        reference = [g.clone() for g in found]
    if before:
        way.close()
    return reference


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option, default in (("--width", 8192), ("--blocks", 10), ("--tokens", 8192), ("--steps", 8)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("ways", nargs="*", default=list(WAYS), metavar="WAY", help=", ".join(WAYS))
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    w = args.width
    with torch.device("cuda"):
        model = nn.Sequential(*[nn.Sequential(nn.Linear(w, 4 * w, bias=False), nn.GELU(), nn.Linear(4 * w, w, bias=False))
                                for _ in range(args.blocks)])
        x = torch.randn(args.tokens, w)
    reference = None
    for name in args.ways:
        reference = run(name, model, x, args.steps, reference)


if __name__ == "__main__":
    main()
