# SPDX-License-Identifier: Apache-2.0
# The shared library exports exactly the functions that the public headers declare, and has a SONAME.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need nm
[ -d include/varve ] || skip "no public header yet"
# exports LIBRARY: its exported functions. declares HEADER ...: their functions.
exports() { nm -D --defined-only "$BUILD_DIR/lib/$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u; }
declares() {
    cat "$@" | gcc -fpreprocessed -dD -E - 2>/dev/null | tr '\n' ' ' |
        grep -oE '(VARVE|VELOC)_API[^;]*;' | grep -oE '(varve|VELOC)_[A-Za-z0-9_]+ ?\(' | tr -d ' (' | sort -u
}
count=0
# agree LIBRARY HEADER ...
agree() {
    exports "$1" >"$dir/exported"
    declares "${@:2}" >"$dir/declared"
    [ -s "$dir/declared" ] || fail "no declaration found for $1"
    diff "$dir/declared" "$dir/exported" >"$dir/diff" ||
        { cat "$dir/diff"; fail "$1: declared (<) and exported (>) differ"; }
    count=$((count + $(wc -l <"$dir/exported")))
}
headers=()
for header in include/varve/*.h; do
    [ "$header" = include/varve/mpi.h ] || headers+=("$header")
done
agree libvarve.so "${headers[@]}"
if grep -v '^varve_' "$dir/exported"; then
    fail "exported, but not ours"
fi
readelf -d "$BUILD_DIR/lib/libvarve.so" | grep -E 'SONAME.*libvarve\.so\.[0-9]+\]' >/dev/null || fail "no SONAME"
nm -D --defined-only "$BUILD_DIR/lib/libvarve.so" | grep '@@VARVE_' >/dev/null || fail "no symbol version"
# A table of functions for libveloc-client is the only symbol without a header.
if [ -e "$BUILD_DIR/lib/libvarve-mpi.so" ]; then
    printf 'VARVE_API int varve_group_ops_mpi(void);\n' >"$dir/table.h"
    agree libvarve-mpi.so include/varve/mpi.h "$dir/table.h"
    agree libveloc-client.so include/veloc.h
else
    sed 's/.*VELOC_Init(.*//' include/veloc.h >"$dir/veloc.h"
    agree libveloc-client.so "$dir/veloc.h"
fi
readelf -d "$BUILD_DIR/lib/libveloc-client.so" >"$dir/dynamic"
grep -q 'NEEDED.*libmpi' "$dir/dynamic" && fail "libveloc-client needs MPI"
# Programs linked with VELOC's own library look for this name.
grep -q 'SONAME.*\[libveloc-client\.so\]' "$dir/dynamic" || fail "libveloc-client: SONAME"
echo "ok, $count symbols"
