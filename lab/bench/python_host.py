#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time of Python for an offloaded tensor: pack, unpack and discard, with the library's calls and with empty ones."""
import time

import torch

import varve.torch
from varve.torch import _offload

TENSORS, ROUNDS = 2000, 5


def measure(offload, x):
    tensors = [(x * 2).exp() for _ in range(TENSORS)]
    with offload:
        tape = offload._local.stack[-1]
        begin = time.perf_counter()
        packed = [tape.pack(t) for t in tensors]
        middle = time.perf_counter()
    del tensors
    again = time.perf_counter()
    while packed:
        _offload._unpack(packed.pop())
    return middle - begin, time.perf_counter() - again


def report(what, offload, x):
    pack, unpack = (sorted(t)[ROUNDS // 2] / TENSORS * 1e6 for t in zip(*(measure(offload, x) for _ in range(ROUNDS))))
    print(f"{what:18s} pack {pack:5.1f} us, unpack and discard {unpack:5.1f} us, together {pack + unpack:5.1f} us a tensor")


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(64, 64, device=device, requires_grad=True)
    offload = varve.torch.offload("256M", "512M", minimum=1)
    report("with the library", offload, x)

    def put(store, version, pointer, nbytes):
        _offload._byref(_offload._region(0, pointer, nbytes))
        if store.index >= 0:
            _offload._stream_of(store.index)
        return 0 * store.pointer

    def get(store, version, pointer, nbytes, stream):
        _offload._byref(_offload._region(0, pointer, nbytes))

    _offload._Store.put, _offload._Store.get = put, get
    _offload._Saved.__del__.__defaults__ = (lambda history, version: 0,)
    report("Python alone", offload, x)


if __name__ == "__main__":
    main()
