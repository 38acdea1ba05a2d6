# SPDX-License-Identifier: Apache-2.0
"""numpy: fromfile, memmap, load; run with and without the library."""
import sys

import numpy as np

root = sys.argv[1]
print(np.fromfile(root + "/big", dtype=np.uint8).astype(np.uint64).sum())
print(np.fromfile(root + "/big", dtype=np.uint16, count=1000, offset=77).tolist()[:20])
m = np.memmap(root + "/big", dtype=np.uint8, mode="r")
print(m.shape, m[12345], int(m[1000:200000].astype(np.int64).sum()))
c = np.memmap(root + "/big", dtype=np.uint8, mode="c", offset=4096, shape=(1000,))
c[:] = 7
print(c.sum(), m[4096])
with open(root + "/big", "rb") as f:
    f.seek(100)
    print(np.fromfile(f, dtype=np.uint8, count=10), f.tell())
np.save(root + "/array.npy", np.arange(5000).reshape(50, 100))
a = np.load(root + "/array.npy", mmap_mode="r")
print(a.shape, int(a.sum()), np.load(root + "/array.npy")[7].tolist() == a[7].tolist())
np.savez(root + "/arrays.npz", x=np.ones(10), y=np.zeros(3))
z = np.load(root + "/arrays.npz")
print(sorted(z.files), z["x"].sum())
