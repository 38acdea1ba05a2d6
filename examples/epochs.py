#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A data loader: reads every file of a folder, each epoch in another order, with several processes.

  epochs.py FOLDER [EPOCHS [WORKERS]]

Prints for each epoch its time and a checksum of all bytes, which is the same in every epoch, with the cache
and without it. With PyTorch the function `read` is the dataset's __getitem__; nothing else changes.
"""
import multiprocessing
import pathlib
import random
import sys
import time
import zlib


def read(path):
    data = path.read_bytes()
    return zlib.crc32(data), len(data)


def main():
    folder = pathlib.Path(sys.argv[1])
    epochs, workers = (int(v) for v in (sys.argv[2:] + ["3", "2"][len(sys.argv) - 2:])[:2])
    paths = sorted(p for p in folder.iterdir() if p.is_file())
    with multiprocessing.Pool(workers) as pool:
        for epoch in range(epochs):
            random.Random(epoch).shuffle(paths)
            begin, total, check = time.monotonic(), 0, 0
            for crc, size in pool.imap_unordered(read, paths, chunksize=8):
                check ^= crc
                total += size
            print(f"epoch {epoch}: {len(paths)} files, {total >> 20} MiB, checksum {check:08x}, "
                  f"{time.monotonic() - begin:.2f} s", flush=True)


if __name__ == "__main__":
    main()
