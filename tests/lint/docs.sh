# SPDX-License-Identifier: Apache-2.0
# Generated documentation is what the generators print now; 'make docs' writes it.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
scripts/docs "$BUILD_DIR/bin/varve-docgen" "$dir/new"
cd "$dir/new"
find . -type f | while read -r f; do
    cmp -s "$f" "$SOURCE_DIR/$f" || echo "$f"
done >"$dir/stale"
[ ! -s "$dir/stale" ] || { cat "$dir/stale"; fail "not up to date; run 'make docs'"; }
echo "ok, $(find . -type f | wc -l) files"
