# SPDX-License-Identifier: Apache-2.0
# varve/vector.hpp: runs as C++11, and compiles as later C++ and with the other compiler.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
need "${CXX:-g++}"
mkdir "$dir/folder"
"${CXX:-g++}" -std=c++11 -pedantic "${flags[@]}" "$SOURCE_DIR/tests/compat/vector.cpp" "${link[@]}" -lvarve -o "$dir/vector" ||
    fail "vector.cpp does not compile"
ldd "$dir/vector" | grep -q libmpi && fail "it needs MPI"
"$dir/vector" "$dir/folder" | grep -q '^ok$' || fail "the program fails"
if [ -z "${VARVE_SANITIZE:-}" ]; then
    for cxx in "${CXX:-g++} -std=c++20" "clang++ -std=c++11"; do
        ! command -v "${cxx% *}" >/dev/null || ${cxx% *} "${cxx#* }" "${flags[@]}" -fsyntax-only "$SOURCE_DIR/tests/compat/vector.cpp" || fail "$cxx"
    done
fi
# A type that is not trivially copyable does not compile.
printf '#include <string>\n#include <varve/vector.hpp>\nvarve::vector<std::string> v;\n' >"$dir/bad.cpp"
"${CXX:-g++}" -std=c++11 "-I$include" -fsyntax-only "$dir/bad.cpp" 2>"$dir/err" && fail "a vector of strings compiles"
grep -q 'T must be trivially copyable' "$dir/err" || { cat "$dir/err"; fail "a vector of strings: why not"; }
echo ok
