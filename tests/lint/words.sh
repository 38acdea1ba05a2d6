# SPDX-License-Identifier: Apache-2.0
# Words and paths that do not belong in the project, plain language, licence lines, and the length of files.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
bad=0
complain() { echo "$*" >&2; bad=1; }

# Unfinished work is not committed. The words are taken apart here so that this file passes.
if sources | xargs -r grep -nwE 'TO''DO|FIX''ME|XX''X|HA''CK' /dev/null; then
    complain "unfinished work"
fi

# A path that exists on one machine only. The list of text files: the files under version control, or all sources.
{ git ls-files 2>/dev/null || true; sources; } | sort -u | while read -r f; do
    [ -f "$f" ] && grep -Iq . "$f" && echo "$f"
done >"$dir/files" || true
if xargs -r grep -nE '(^|[^A-Za-z0-9_.])/(wo''rk|ro''ot|ho''me)/' /dev/null <"$dir/files"; then
    complain "absolute paths of one machine"
fi

# Plain language: metaphors and relative heads that make a reader stop. The words are taken apart here so that this file
# passes. The budget leaves room for places where a word is right; comments in C begin with a subject instead.
words_limit=50 openings_limit=0
words='who''ever|an''ew|no''body|some''body|to''ld|of wh''ich|man''ieth|me''nd(s|ed)?|do''ors?|cre''ws?|lo''ans?|na''ps?|your''self|makes no se''nse'
openings='(What|Whether|Who|Whose|Of) '
# Exceptions, at most ten lines: names of files, and text of others.
allowed='by-who''ever-waits
LICENSE:'
grep -E '(\.(c|h|cpp|hpp|cu|cuh|inc|py|sh|f90|F90|md|js|css|cmake|txt|patch|[1-8]|in)|/[A-Za-z-]+)$' "$dir/files" >"$dir/prose" || true
{
    xargs -r grep -nIwiE "$words" /dev/null <"$dir/prose" || true
    grep -v '\.md$' "$dir/prose" | xargs -r grep -nIE "(/\*+|^ +\*|//|#) *$openings" /dev/null || true
} | grep -vE "$allowed" | sort -u >"$dir/odd" || true
grep -E '^[^:]*\.(c|h|cpp|hpp|cu|cuh|inc):[0-9]+:(.*/\*+| +\*|.*//) *'"$openings" "$dir/odd" >"$dir/odd-openings" || true
if [ "$(wc -l <"$dir/odd")" -ge $words_limit ]; then
    cat "$dir/odd"
    complain "$(wc -l <"$dir/odd") lines are not in plain words, expected fewer than $words_limit: use the usual terms, subject and verb first"
fi
if [ "$(wc -l <"$dir/odd-openings")" -gt $openings_limit ]; then
    cat "$dir/odd-openings"
    complain "$(wc -l <"$dir/odd-openings") comments begin with a relative head, expected $openings_limit: begin with the subject ('True if ...')"
fi

sources | while read -r f; do
    head -3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$f"
done >"$dir/unlicensed"
[ ! -s "$dir/unlicensed" ] || { cat "$dir/unlicensed"; complain "no licence line"; }

sources | xargs -r wc -l | awk '$2 != "total" && $1 > 1200 { print; n++ } END { exit n > 0 }' ||
    complain "longer than 1200 lines"
exit $bad
