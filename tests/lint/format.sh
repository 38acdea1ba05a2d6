# SPDX-License-Identifier: Apache-2.0
# Every source file is formatted as .clang-format says; 'make format' does it.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need clang-format
sources | xargs -r clang-format --dry-run -Werror 2>"$dir/err" ||
    { grep -oE '^[^ :]+:[0-9]+:[0-9]+: error' "$dir/err" | cut -d: -f1 | sort | uniq -c; fail "not formatted; run 'make format'"; }
