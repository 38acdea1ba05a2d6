# SPDX-License-Identifier: Apache-2.0
# Each installed header compiles alone, as C99 and as C++, with every compiler that is there.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
[ -d include/varve ] || skip "no public header yet"
count=0
for header in include/varve/*.h; do
    echo "#include <varve/$(basename "$header")>" >"$dir/one.c"
    cp "$dir/one.c" "$dir/one.cpp"
    for cc in gcc clang; do
        command -v $cc >/dev/null || continue
        $cc -std=c99 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only "$dir/one.c" || fail "$header: $cc"
        count=$((count + 1))
    done
    for cc in g++ clang++; do
        command -v $cc >/dev/null || continue
        $cc -std=c++11 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only "$dir/one.cpp" || fail "$header: $cc"
        count=$((count + 1))
    done
done
[ $count -gt 0 ] || skip "no compiler by a name that is known here"
echo "ok, $count compilations"
