# SPDX-License-Identifier: Apache-2.0
"""A PyTorch DataLoader with workers, two epochs; run with and without the library."""
import hashlib
import pathlib
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, root):
        self.paths = sorted(pathlib.Path(root, "set").glob("*.bin"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        data = self.paths[i].read_bytes()
        mapped = torch.from_file(str(self.paths[i]), size=len(data), dtype=torch.uint8)
        return i, hashlib.md5(data).hexdigest(), int(mapped.to(torch.int64).sum())


def main():
    torch.manual_seed(3)
    for workers, context in ((0, None), (3, "fork"), (2, "spawn")):
        loader = DataLoader(Files(sys.argv[1]), batch_size=7, shuffle=True, num_workers=workers,
                            multiprocessing_context=context, generator=torch.Generator().manual_seed(5))
        for epoch in range(2):
            for i, digests, sums in loader:
                print(workers, epoch, i.tolist(), list(digests), sums.tolist())


# Spawned workers import this file.
if __name__ == "__main__":
    main()
