# SPDX-License-Identifier: Apache-2.0
# Generated documentation equals the present output of the generators; 'make docs' writes it.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
scripts/docs "$BUILD_DIR/bin/varve-docgen" "$dir/new"
cd "$dir/new"
find . -type f | while read -r f; do
    cmp -s "$f" "$SOURCE_DIR/$f" || echo "$f"
done >"$dir/stale"
[ ! -s "$dir/stale" ] || { cat "$dir/stale"; fail "not up to date; run 'make docs'"; }
echo "ok, $(find . -type f | wc -l) files"

# Tables of files in the modules' README.md, and names in docs/architecture.md; and the check finds a removed name, and a file without a row.
need python3
cd "$SOURCE_DIR"
python3 tests/lint/readmes.py
mkdir -p "$dir/tree/src/base" "$dir/tree/docs"
touch "$dir/tree/src/base/"{there.h,left_out.c}
echo 'int vv_there(void);' >"$dir/tree/src/base/there.c"
echo '`base/there.c: vv_there`, `there.[ch]`; `base/there.c: vv_not_there`, `lost.c`, `vv_lost`' >"$dir/tree/docs/architecture.md"
printf '%s\n' '| `there.[ch]` | is there |' '| `gone.[ch]` | is not |' >"$dir/tree/src/base/README.md"
if (cd "$dir/tree" && python3 "$SOURCE_DIR/tests/lint/readmes.py" >"$dir/out"); then
    fail "the check of README.md sees nothing"
fi
grep -q 'src/base/README.md:2: there is no gone.\[ch\]' "$dir/out" || fail "a file that is gone is not seen"
grep -q 'no row for src/base/left_out.c' "$dir/out" || fail "a file without a row is not seen"
for name in 'no vv_not_there in base/there.c' 'there is no lost.c' 'there is no vv_lost'; do
    grep -q "docs/architecture.md:1: $name\$" "$dir/out" || fail "$name: not seen"
done
[ "$(wc -l <"$dir/out")" -eq 5 ] || fail "the check of README.md sees too much"
