#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files of the cache that the kernel checks, where it can.
set -euo pipefail
exec python3 "$SOURCE_DIR/tests/dataset/verity.py"
