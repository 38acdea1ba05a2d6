#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A file of another node, handed to a program that somebody else started.
set -euo pipefail
exec python3 "$SOURCE_DIR/tests/dataset/inherit.py"
