#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How often the shared file system is asked about files that are cached.
set -euo pipefail
exec python3 "$SOURCE_DIR/tests/dataset/alone.py"
