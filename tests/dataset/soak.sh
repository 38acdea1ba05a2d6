#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Many programs at once, for a while: no leaks.
set -euo pipefail
exec python3 "$SOURCE_DIR/tests/dataset/soak.py"
