# SPDX-License-Identifier: Apache-2.0
# Generated documentation is what the generators print now; 'make docs' writes it.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need python3
scripts/docs "$BUILD_DIR/bin/varve-docgen" "$dir/new"
cd "$dir/new"
find . -type f | while read -r f; do
    cmp -s "$f" "$SOURCE_DIR/$f" || echo "$f"
done >"$dir/stale"
[ ! -s "$dir/stale" ] || { cat "$dir/stale"; fail "not up to date; run 'make docs'"; }
# Pages of functions that are gone.
if [ -d "$SOURCE_DIR/include/varve" ]; then
    for f in "$SOURCE_DIR"/man/*.3; do
        [ -e "man/$(basename "$f")" ] || fail "man/$(basename "$f") describes no function of the headers"
    done
fi
echo "ok, $(find . -type f | wc -l) files"
