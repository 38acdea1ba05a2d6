# SPDX-License-Identifier: Apache-2.0
"""h5py, which locks files that it reads; run with and without the library."""
import sys

import h5py

path = sys.argv[1] + "/set.h5"
with h5py.File(path, "r") as f:
    for i in range(20):
        print(i, f[f"g/{i}"][:].sum(), f[f"g/{i}"][500:510].tolist(), f[f"g/{i}"].chunks)
    with h5py.File(path, "r") as again:  # the same file, by device and inode
        print(again["g/3"][17])
with h5py.File(path, "r", swmr=False, driver="stdio") as f:
    print(list(f["g"].keys()))
