#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Reads of the shared file system after the loss of a host, over TCP.
set -euo pipefail
exec python3 "$SOURCE_DIR/tests/dataset/lost.py" tcp
