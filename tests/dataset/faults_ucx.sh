#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults among hosts in network namespaces, over UCX.
set -euo pipefail
# UCX 1.13 ends a process, now and then, when many of its connections come and go (decision 0057): not for a gate.
[ -n "${VARVE_TEST_LONG:-}" ] || { echo "skipped: set VARVE_TEST_LONG"; exit 77; }
exec python3 "$SOURCE_DIR/tests/dataset/faults.py" ucx "$@"
