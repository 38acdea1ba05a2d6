#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A file of another node, as the standard input of a program that another program started.
set -euo pipefail
exec python3 "$SOURCE_DIR/tests/dataset/inherit.py"
