# SPDX-License-Identifier: Apache-2.0
# VELOC's interface from C++ without MPI: no header, no library, and VELOC_Init not declared.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
CXX=${CXX:-g++}
need "$CXX"
"$CXX" -std=c++11 "${flags[@]}" "$SOURCE_DIR/tests/compat/cxx.cpp" "${link[@]}" -lveloc-client -o "$dir/cxx" || fail "cxx.cpp does not compile"
ldd "$dir/cxx" | grep -q libmpi && fail "it needs MPI"
config "$dir/ini" "$dir" async
"$dir/cxx" "$dir/ini" | grep -q '^ok$' || fail "the program fails"
# Again: now there are versions to find and to overwrite.
"$dir/cxx" "$dir/ini" | grep -q '^ok$' || fail "the program fails in its second life"
echo '#include <veloc.h>
int main(void) { return VELOC_Init(0, ""); }' >"$dir/without.c"
"${CC:-cc}" -std=c99 -DVELOC_NO_MPI -Werror "-I$include" -fsyntax-only "$dir/without.c" 2>"$dir/err" && fail "VELOC_Init is declared without MPI"
echo ok
