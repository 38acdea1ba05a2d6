#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""async_save of a state on the GPU: how long training is blocked, by the call and on its stream; every byte is compared.

    python_async_save.py FOLDER [--gigabytes 20] [--saves 2]
"""
import argparse
import time

import torch
import torch.distributed.checkpoint as dcp

from varve.torch.checkpoint import AsyncStager, StorageReader, StorageWriter


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--saves", type=int, default=2)
    args = parser.parse_args()
    n = 40
    weights = {f"w{i}": torch.randn(int(args.gigabytes * 1e9 / 2 / n), device="cuda", dtype=torch.bfloat16) for i in range(n)}
    state = {"model": weights, "step": 1}
    total = sum(t.numel() * t.element_size() for t in weights.values())
    writer = StorageWriter(args.folder, host_cache=int(1.15 * total), keep=1)
    stager = AsyncStager(writer)
    for save in range(args.saves):
        for t in weights.values():
            t.add_(1)
        torch.cuda.synchronize()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin = time.perf_counter()
        first.record()
        saved = dcp.async_save(state, checkpoint_id=str(save), storage_writer=writer, async_stager=stager)
        call = time.perf_counter() - begin
        last.record()
        torch.cuda.synchronize()
        saved.result()
        print(f"save {save}: {total / 1e9:.1f} GB, the call {call:.3f} s, the stream {first.elapsed_time(last) / 1e3:.3f} s; a copy at "
              f"50 GB/s {total / 50e9:.3f} s; on disk after {time.perf_counter() - begin:.1f} s", flush=True)
    kept = {name: t.to("cpu") for name, t in weights.items()}
    for t in weights.values():
        t.zero_()
    begin = time.perf_counter()
    reader = StorageReader(args.folder)
    dcp.load(state, checkpoint_id=str(args.saves - 1), storage_reader=reader)
    torch.cuda.synchronize()
    took = time.perf_counter() - begin
    same = all(torch.equal(kept[name].view(torch.int16), t.cpu().view(torch.int16)) for name, t in weights.items())
    print(f"load {took:.1f} s, {'same bits' if same else 'DIFFERENT'}")
    reader.close()
    writer.close()


if __name__ == "__main__":
    main()
