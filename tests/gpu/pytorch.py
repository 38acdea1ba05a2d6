#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Varve inside a PyTorch process: beside its caching allocator, its streams, its kernels and its graphs.

    pytorch.py LIBVARVE [native|expandable]

Tensors on the GPU are protected, checkpointed, changed and restored, while another thread keeps the GPU and the
allocator busy, and compared with copies that PyTorch made. Exit status 77: no PyTorch, or no GPU in it.
"""
import ctypes
import os
import sys
import threading

LIMIT_MS = 60000
VERSIONS = 12


def skip(why):
    print("skipped:", why)
    sys.exit(77)


if len(sys.argv) < 2:
    sys.exit(__doc__)
if len(sys.argv) > 2 and sys.argv[2] == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
try:
    import torch
except ImportError as e:
    skip(e)
if not torch.cuda.is_available():
    skip("PyTorch sees no GPU")

# PyTorch has not used CUDA yet; Varve has to find it in use and take the same context.
torch.zeros(1, device="cuda")
os.environ.update(VARVE_DEVICE="auto", VARVE_DEVICE_CACHE="256M", VARVE_HOST_CACHE="1G")

varve = ctypes.CDLL(sys.argv[1])
cuda = ctypes.CDLL("libcuda.so.1")
u64, ptr = ctypes.c_uint64, ctypes.c_void_p
for name, *args in [
    ("varve_open", ptr, ptr), ("varve_close", ptr), ("varve_history_open", ptr, ctypes.c_char_p, ptr),
    ("varve_history_close", ptr), ("varve_protect", ptr, ctypes.c_int, ptr, ctypes.c_size_t),
    ("varve_unprotect", ptr, ctypes.c_int), ("varve_hint", ptr, u64),
    ("varve_checkpoint_for", ptr, u64, ctypes.c_int), ("varve_restore_for", ptr, u64, ctypes.c_int),
    ("varve_checkpoint_on_for", ptr, u64, ptr, ctypes.c_int), ("varve_restore_on_for", ptr, u64, ptr, ctypes.c_int),
    ("varve_wait", ptr, u64, ctypes.c_int, ctypes.c_int), ("varve_discard", ptr, u64),
    ("varve_last_error", ptr, ptr),
]:
    fn = getattr(varve, name)
    fn.argtypes, fn.restype = args, ctypes.c_int


class Error(ctypes.Structure):
    _fields_ = [("error_size", ctypes.c_size_t), ("err", ctypes.c_int), ("scope", ctypes.c_int),
                ("tier", ctypes.c_int), ("region", ctypes.c_int), ("code", ctypes.c_int), ("version", u64),
                ("operation", ctypes.c_char * 32), ("domain", ctypes.c_char * 16), ("text", ctypes.c_char * 256)]


ctx = ptr()


def current():
    """The thread's CUDA context, from the driver."""
    c = ptr()
    assert cuda.cuCtxGetCurrent(ctypes.byref(c)) == 0
    return c.value


def call(name, *args):
    """Calls Varve; checks that the context of the thread is unchanged; an error ends the test."""
    before = current()
    rc = getattr(varve, name)(*args)
    assert current() == before, name + " left another context"
    if rc != 0:
        e = Error(error_size=ctypes.sizeof(Error))
        varve.varve_last_error(ctx, ctypes.byref(e))
        raise AssertionError(f"{name}: {rc}: {e.operation.decode()}: {e.text.decode()}")


def history(name):
    h = ptr()
    call("varve_history_open", ctx, name.encode(), ctypes.byref(h))
    return h


def protect(h, tensors):
    for i, t in enumerate(tensors):
        assert t.is_contiguous()
        call("varve_protect", h, i, t.data_ptr(), t.numel() * t.element_size())


def fresh_tensors():
    """Small and large tensors, several types, and parts of a larger one, from PyTorch's allocator."""
    whole = torch.randn(9 << 20, device="cuda")
    return [torch.randn(1000, 1000, device="cuda"), torch.arange(12345, device="cuda"),
            torch.randn(7, device="cuda", dtype=torch.float64), whole[12345:2000000], whole[4 << 20:],
            (torch.randn(3 << 20, device="cuda")).half(), torch.zeros(1, device="cuda", dtype=torch.uint8)]


def mutate(tensors, v):
    for t in tensors:
        if t.is_floating_point():
            t.mul_(0.9).add_(v + 1)
        else:
            t.add_(v + 1)


def same(tensors, copies, what):
    for i, (t, c) in enumerate(zip(tensors, copies)):
        assert torch.equal(t, c), f"{what}, tensor {i}: wrong bytes"


def wipe(tensors):
    for t in tensors:
        t.zero_()


def test_default_stream():
    h, tensors, copies = history("default"), fresh_tensors(), []
    protect(h, tensors)
    for v in range(VERSIONS):
        call("varve_hint", h, VERSIONS - 1 - v)
    for v in range(VERSIONS):
        mutate(tensors, v)  # on the default stream, not waited for
        call("varve_checkpoint_for", h, v, LIMIT_MS)
        copies.append([t.clone() for t in tensors])
    for v in reversed(range(VERSIONS)):
        wipe(tensors)
        call("varve_restore_for", h, v, LIMIT_MS)
        same(tensors, copies[v], f"version {v}")
    call("varve_history_close", h)


def test_own_stream():
    h, tensors, copies = history("own"), fresh_tensors(), []
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    protect(h, tensors)
    a = torch.randn(2048, 2048, device="cuda")
    with torch.cuda.stream(s):
        for v in range(VERSIONS):
            for _ in range(4):
                a = torch.tanh(a @ a)  # keeps the stream behind the host
            mutate(tensors, v)
            copies.append([t.clone() for t in tensors])
            call("varve_checkpoint_on_for", h, v, s.cuda_stream, LIMIT_MS)
            mutate(tensors, 100)  # behind the copies, ordered by the stream alone
        for v in reversed(range(VERSIONS)):
            wipe(tensors)
            call("varve_restore_on_for", h, v, s.cuda_stream, LIMIT_MS)
            same(tensors, copies[v], f"version {v} on a stream")
    s.synchronize()
    for v in range(VERSIONS):
        call("varve_wait", h, v, 0, LIMIT_MS)
    call("varve_history_close", h)


def test_moved_tensors():
    """Restored into other tensors than the written ones, after the allocator released memory."""
    h, tensors = history("moved"), fresh_tensors()
    protect(h, tensors)
    mutate(tensors, 5)
    call("varve_checkpoint_for", h, 1, LIMIT_MS)
    copies = [t.cpu() for t in tensors]
    for i in range(len(tensors)):
        call("varve_unprotect", h, i)
    del tensors
    torch.cuda.empty_cache()
    others = [torch.empty_like(c, device="cuda") for c in copies]
    protect(h, others)
    call("varve_restore_for", h, 1, LIMIT_MS)
    same([t.cpu() for t in others], copies, "other tensors")
    pinned = [torch.empty_like(c).pin_memory() for c in copies]
    protect(h, pinned)
    call("varve_restore_for", h, 1, LIMIT_MS)
    same(pinned, copies, "pinned host tensors")
    call("varve_history_close", h)


def test_graph_capture():
    """A capture is not disturbed while another thread checkpoints, and the graph runs."""
    h, tensors = history("graph"), fresh_tensors()
    protect(h, tensors)
    x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):  # PyTorch requires a run before the capture
        y.copy_(x * 3)
    torch.cuda.synchronize()
    y.zero_()
    torch.cuda.synchronize()
    errors, inside = [], threading.Event()

    def checkpoints():
        try:
            inside.wait(60)
            torch.cuda.set_device(0)
            for v in range(VERSIONS):
                call("varve_checkpoint_for", h, v, LIMIT_MS)
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=checkpoints)
    thread.start()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inside.set()
        y.copy_(x * 3)
        thread.join()
    assert not errors, errors
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, x * 3)
    call("varve_history_close", h)


class Load(threading.Thread):
    """Kernels on another stream, and many allocations."""

    def __init__(self):
        super().__init__()
        self.stop, self.pause, self.paused, self.error, self.rounds = False, False, threading.Event(), None, 0

    def run(self):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                a = torch.randn(1024, 1024, device="cuda")
                while not self.stop:
                    a = torch.tanh(a @ a)
                    junk = [torch.empty(n << 12, device="cuda") for n in (1, 70, 300)]
                    del junk
                    self.rounds += 1
                    if self.rounds % 50 == 0:
                        torch.cuda.current_stream().synchronize()
                assert bool(torch.isfinite(a).all())
        except BaseException as e:
            self.error = e


before = current()
call("varve_open", None, ctypes.byref(ctx))
load = Load()
load.start()
try:
    for test in (test_default_stream, test_own_stream, test_moved_tensors):
        print(test.__name__, flush=True)
        test()
finally:
    load.stop = True
    load.join()
assert load.error is None, load.error
assert load.rounds > 0
print(test_graph_capture.__name__, flush=True)
test_graph_capture()  # PyTorch allows no other thread to allocate during a capture
call("varve_close", ctx)
assert current() == before
torch.cuda.synchronize()
assert float((torch.ones(10, device="cuda") * 2).sum()) == 20.0
print("ok")
