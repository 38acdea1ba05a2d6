# SPDX-License-Identifier: Apache-2.0
# One palette: colours of reports, timelines and the drawings of the documentation are those of cli/common/palette.h, and code of the
# tool takes them from there. Charts of experiments in lab/ have series of their own.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
bad=0
complain() { echo "$*" >&2; bad=1; }
colours() { grep -HoniE '#([0-9a-f]{6}|[0-9a-f]{3})\b' "$@" | grep -vE ':#(if|def|end)'; }
palette=cli/common/palette.h
sed -nE 's/^#define COLOUR_.* "(#[0-9a-f]{6})".*/\1/p' $palette | sort >"$dir/palette"
[ "$(wc -l <"$dir/palette")" -gt 20 ] || fail "$palette cannot be read"
colours cli/common/page.css cli/report/trace_page.js docs/img/*.svg | grep -vwFf "$dir/palette" | sort -u >"$dir/other" || true
[ ! -s "$dir/other" ] || { head -20 "$dir/other" >&2; complain "these colours are not in $palette"; }
colours cli/*.[ch] cli/*/*.[ch] | grep -v "^$palette:" >"$dir/own" || true
[ ! -s "$dir/own" ] || { cat "$dir/own" >&2; complain "these colours belong in $palette"; }
exit $bad
