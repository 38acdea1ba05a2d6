# SPDX-License-Identifier: Apache-2.0
# Every exported function and every command has a man page, and the pages are well formed. Headers in detail/ promise
# nothing, and have none.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need nm
need python3
man=$BUILD_DIR/man
missing=0
for name in $(nm -D --defined-only "$BUILD_DIR/lib/libvarve.so" | awk '$3 ~ /^varve_/ { sub(/@.*/, "", $3); print $3 }'); do
    [ -e "$man/man3/$name.3" ] || { echo "no $name.3"; missing=1; }
done
for name in $(grep -Eoh '^VARVE_D_(FN|COLD) .*\bvarve_g[a-z]\w*\(' include/varve/*.h | grep -Eo 'varve_g\w+'); do
    [ -e "$man/man3/$name.3" ] || { echo "no $name.3"; missing=1; }
done
for name in $("$VARVE_BIN" --help | awk '/^  [a-z]/ { print $1 }'); do
    [ -e "man/varve-$name.1" ] || { echo "no man/varve-$name.1"; missing=1; }
    grep -q "^.BR $name " man/varve.1 || { echo "man/varve.1 does not list $name"; missing=1; }
done
[ -e man/varve.1 ] || missing=1
[ $missing -eq 0 ] || fail "man pages are missing"
# Each page is read alone: it must not refer to text "above", and its first line begins as a name is written.
! grep -En '(^|[^.]) as above' "$man"/man3/varve_*.3 || fail "pages that refer to another part of their header"
! grep -hA1 '^\.SH NAME' "$man"/man[37]/* | grep -E ' \\- [a-z][A-Z]' || fail "a name in the first line has lost its capital"
# Without a Python there are no pages of functions, and no folder for them.
mkdir "$dir/bin"
for tool in bash dirname mktemp cp rm mkdir find; do ln -s "$(command -v $tool)" "$dir/bin/$tool"; done
PATH=$dir/bin scripts/man "$BUILD_DIR/bin/varve-docgen" "$dir/man" || fail "scripts/man without python3"
[ -z "$(find "$dir/man" -type d -empty)" ] && [ -e "$dir/man/man1/varve.1" ] || { find "$dir/man"; fail "an empty folder"; }
need mandoc
# Pages that link to another one are checked there.
grep -L '^\.so ' "$man"/man?/* | xargs -r mandoc -T lint -W warning || fail "malformed man pages"
