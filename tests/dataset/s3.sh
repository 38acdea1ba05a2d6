#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The dataset cache over an object store: it sends every byte once, and failures of the store cause no wrong byte.
set -euo pipefail
exec python3 "$SOURCE_DIR/tests/dataset/s3.py"
