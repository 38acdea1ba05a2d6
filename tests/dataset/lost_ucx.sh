#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What losing a host costs the shared file system, over UCX.
set -euo pipefail
exec python3 "$SOURCE_DIR/tests/dataset/lost.py" ucx
