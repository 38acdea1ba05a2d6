#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Python, and the parts of data loaders: open, mmap, sendfile, processes that are forked and spawned, numpy, h5py; with
# VARVE_TEST_LONG a PyTorch DataLoader too. Modules that are not installed are left out, with a message.
set -euo pipefail
if [ -n "${VARVE_SANITIZE:-}" ] && [ -z "${VARVE_TEST_LONG:-}" ]; then
    echo "neither these programs nor the library are built with a sanitizer"
    exit 77
fi
. "$SOURCE_DIR/tests/preload/common.sh.inc"

python=/usr/bin/python3
[ -x $python ] || python=$(command -v python3) || {
    echo "no python3"
    exit 77
}
make_files
mkdir "$root/set"
"$python" - "$root/set" <<'END'
import random, sys
random.seed(7)
for i in range(60):
    open(f"{sys.argv[1]}/{i}.bin", "wb").write(random.randbytes(random.randrange(1, 60000)))
END
start_daemon

export PYTHONDONTWRITEBYTECODE=1
have() { "$python" -c "import $1" 2>/dev/null; }
run() { # run NAME [long]
    same_cached "$python" "$SOURCE_DIR/tests/preload/$1" "$root"
    echo "$1: same, from the cache"
}
run files.py
if have numpy; then run arrays.py; else echo "no numpy"; fi
if have h5py; then
    "$python" - "$root/set.h5" <<'END'
import sys, h5py
with h5py.File(sys.argv[1], "w") as f:
    for i in range(20):
        f.create_dataset(f"g/{i}", data=[i * j for j in range(1000)], chunks=(100,), compression="gzip")
END
    run hdf5.py
else
    echo "no h5py"
fi
if [ -n "${VARVE_TEST_LONG:-}" ]; then
    if have torch; then run loader.py; else echo "no torch"; fi
fi
kill_daemon TERM
