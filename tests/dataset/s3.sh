#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The dataset cache over an object store: every byte leaves it once, and a store that fails costs no wrong one.
set -euo pipefail
exec python3 "$SOURCE_DIR/tests/dataset/s3.py"
