# SPDX-License-Identifier: Apache-2.0
# Every fault of tests/mutants has its header and applies to the sources as they are. scripts/mutants tries them.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need git
scripts/mutants --check
