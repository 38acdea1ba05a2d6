# SPDX-License-Identifier: Apache-2.0
# Words and paths that do not belong in the project, licence lines, and the length of files.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
bad=0
complain() { echo "$*" >&2; bad=1; }

# Unfinished work is not committed. The words are taken apart here so that this file passes.
if sources | xargs -r grep -nwE 'TO''DO|FIX''ME|XX''X|HA''CK' /dev/null; then
    complain "unfinished work"
fi

# A path that exists on one machine only. The list of text files: what git knows of, or all sources.
{ git ls-files 2>/dev/null || true; sources; } | sort -u | while read -r f; do
    [ -f "$f" ] && grep -Iq . "$f" && echo "$f"
done >"$dir/files" || true
if xargs -r grep -nE '(^|[^A-Za-z0-9_.])/(wo''rk|ro''ot|ho''me)/' /dev/null <"$dir/files"; then
    complain "absolute paths of one machine"
fi

sources | while read -r f; do
    head -3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$f"
done >"$dir/unlicensed"
[ ! -s "$dir/unlicensed" ] || { cat "$dir/unlicensed"; complain "no licence line"; }

sources | xargs -r wc -l | awk '$2 != "total" && $1 > 1200 { print; n++ } END { exit n > 0 }' ||
    complain "longer than 1200 lines"
exit $bad
