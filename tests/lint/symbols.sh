# SPDX-License-Identifier: Apache-2.0
# The shared library exports exactly the functions that the public headers declare, and has a SONAME.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need nm
[ -d include/varve ] || skip "no public header yet"
nm -D --defined-only "$BUILD_DIR/lib/libvarve.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u >"$dir/exported"
cat include/varve/*.h | gcc -fpreprocessed -dD -E - 2>/dev/null | tr '\n' ' ' |
    grep -oE 'VARVE_API[^;]*;' | grep -oE 'varve_[a-z0-9_]+ ?\(' | tr -d ' (' | sort -u >"$dir/declared"
[ -s "$dir/declared" ] || fail "no declaration found"
if grep -v '^varve_' "$dir/exported"; then
    fail "exported, but not ours"
fi
diff "$dir/declared" "$dir/exported" >"$dir/diff" ||
    { cat "$dir/diff"; fail "declared (<) and exported (>) differ"; }
readelf -d "$BUILD_DIR/lib/libvarve.so" | grep -qE 'SONAME.*libvarve\.so\.[0-9]+\]' || fail "no SONAME"
nm -D --defined-only "$BUILD_DIR/lib/libvarve.so" | grep -q '@@VARVE_' || fail "no symbol version"
echo "ok, $(wc -l <"$dir/exported") symbols"
