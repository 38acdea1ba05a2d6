#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Links that break between halves of a job, with edits on both sides.
set -euo pipefail
exec python3 "$SOURCE_DIR/tests/dataset/split.py" "$@"
