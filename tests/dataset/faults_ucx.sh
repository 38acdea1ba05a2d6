#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults among hosts in network namespaces, over UCX.
set -euo pipefail
exec python3 "$SOURCE_DIR/tests/dataset/faults.py" ucx "$@"
