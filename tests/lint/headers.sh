# SPDX-License-Identifier: Apache-2.0
# Each installed header compiles alone, as C99 and as C++, with every compiler of the machine; headers for kernels also as strict
# C17 for the emulated device.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
[ -d include/varve ] || skip "no public header yet"
count=0
mpi=()
if command -v mpicc >/dev/null; then
    # Open MPI and MPICH have different names for the flags.
    read -r -a mpi <<<"$(mpicc -showme:compile 2>/dev/null || mpicc -show 2>/dev/null | tr ' ' '\n' | grep '^-I' | tr '\n' ' ')"
fi
# A header may need a library that is missing here.
stands_on() { sed -n 's/^#include <\(cereal\|boost\|bitsery\)\(\/[^>]*\)>.*/\1\2/p' "$1" | head -1; }
for header in include/*.h include/*.hpp include/veloc/*.h include/veloc/*.hpp include/varve/*.h include/varve/detail/*.h include/varve/*.hpp; do
    more=()
    library=$(stands_on "$header")
    if [ -n "$library" ] && ! echo "#include <$library>" | g++ -fsyntax-only -x c++ - 2>/dev/null; then
        echo "not compiled: $header, no $library"
        continue
    fi
    if [[ $header == include/varve/mpi.* ]]; then
        [ ${#mpi[@]} -gt 0 ] || continue
        # Warnings in its own headers do not count.
        more=("${mpi[@]/#-I/-isystem}")
    fi
    printf "#include <%s>\nextern int behind_it;\n" "${header#include/}" >"$dir/one.c" # not an empty file, which ISO C forbids
    cp "$dir/one.c" "$dir/one.cpp"
    for cc in gcc clang; do
        [[ $header != *.hpp ]] || continue # C++ alone
        command -v $cc >/dev/null || continue
        $cc -std=c99 -pedantic -Wall -Wextra -Werror -Iinclude "${more[@]}" -fsyntax-only "$dir/one.c" || fail "$header: $cc"
        $cc -std=c17 -pedantic -Wall -Wextra -Werror -DVARVE_EMULATE=1 -Iinclude "${more[@]}" -fsyntax-only "$dir/one.c" ||
            fail "$header: $cc, emulated"
        count=$((count + 2))
    done
    for cc in g++ clang++; do
        command -v $cc >/dev/null || continue
        $cc -std=c++11 -pedantic -Wall -Wextra -Werror -Iinclude "${more[@]}" -fsyntax-only "$dir/one.cpp" || fail "$header: $cc"
        count=$((count + 1))
    done
done
[ $count -gt 0 ] || skip "no compiler by a name that is known here"
echo "ok, $count compilations"
