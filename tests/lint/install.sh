# SPDX-License-Identifier: Apache-2.0
# The installed files can be used from C and C++, through pkg-config and CMake, and after they were moved.
. "$SOURCE_DIR/tests/lint/common.sh.inc"
need pkg-config
need cmake
[ -d include/varve ] || skip "no public header yet"
CC=${CC:-cc}
CXX=${CXX:-g++}

cmake --install "$BUILD_DIR" --prefix "$dir/first" >"$dir/log" || { cat "$dir/log"; fail "install"; }
mv "$dir/first" "$dir/moved"
prefix=$dir/moved
pc=$(find "$prefix" -name varve.pc)
[ -n "$pc" ] || fail "no varve.pc"
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
libdir=$(dirname "$PKG_CONFIG_PATH")
[ -x "$prefix/bin/varve" ] || fail "no tool"
[ -e "$prefix/share/man/man1/varve.1" ] && [ -e "$prefix/share/man/man3/varve_open.3" ] || fail "no man pages"
"$prefix/bin/varve" --version >/dev/null
(cd "$dir" && "$prefix/bin/varve" bench paper --device host --short --list >/dev/null) || fail "bench paper finds no sizes"
# Commands of varve-lab: --help, arguments and the exit status pass through; without the program the message names it.
"$prefix/bin/varve" bench shot --help | grep '^usage: varve bench shot' >/dev/null || fail "help of a command of varve-lab"
rc=0
"$prefix/bin/varve" sim shot --order sideways 2>"$dir/log" || rc=$?
[ $rc -eq 2 ] && grep '^varve sim shot: ' "$dir/log" >/dev/null || { cat "$dir/log"; fail "exit status $rc of varve-lab"; }
mv "$prefix/libexec/varve/varve-lab" "$dir/varve-lab"
rc=0
"$prefix/bin/varve" model --help 2>"$dir/log" || rc=$?
[ $rc -eq 1 ] && grep 'varve-lab, which is not installed' "$dir/log" >/dev/null || { cat "$dir/log"; fail "varve-lab is not missed"; }
mv "$dir/varve-lab" "$prefix/libexec/varve/varve-lab"
if [ -e "$BUILD_DIR/bin/ooc_gpu" ]; then # it is found where it is installed, and finds no GPU
    rc=0
    CUDA_VISIBLE_DEVICES='' "$prefix/bin/varve" bench blocks --device cuda 2>"$dir/log" || rc=$?
    [ $rc -eq 77 ] || { cat "$dir/log"; fail "bench blocks finds no kernels: $rc"; }
fi
for f in epochs.py kubernetes.yaml slurm-prolog.sh slurm-epilog.sh varve-cached.service; do
    [ -e "$prefix/share/varve/examples/$f" ] || fail "no examples/$f"
done
[ -x "$prefix/share/varve/examples/slurm-prolog.sh" ] || fail "the prolog cannot be run"
[ "varve $(pkg-config --modversion varve)" = "$("$prefix/bin/varve" --version)" ] || fail "version"

# The package for Python finds the library that it was installed with.
if command -v python3 >/dev/null && [ -z "${VARVE_SANITIZE:-}" ]; then
    package=$(find "$prefix" -type d -path '*-packages/varve')
    [ "$(env -u VARVE_LIBRARY PYTHONPATH="${package%/varve}" python3 -c 'import varve; print(varve._lib.lib._name)')" = "$libdir/libvarve.so.0" ] ||
        fail "the package for Python does not find its library"
fi

cat >"$dir/user.c" <<'EOF'
#include <stdio.h>
#include <string.h>
#include <varve/ckpt.h>
#include <varve/varve.h>

int main(void)
{
    struct varve_opts opts;

    if (varve_opts_init(&opts, sizeof(opts)) != 0)
        return 1;
    printf("%s %s\n", varve_version(), varve_strerror(-22));
    return strlen(varve_strerror(-22)) == 0;
}
EOF
cp "$dir/user.c" "$dir/user.cpp"
flags=$(pkg-config --cflags --libs varve)
$CC -std=c99 -Wall -Wextra -Werror "$dir/user.c" $flags -o "$dir/c" || fail "C, pkg-config"
LD_LIBRARY_PATH=$libdir "$dir/c" || fail "the C program"
if command -v "$CXX" >/dev/null; then
    $CXX -std=c++11 -Wall -Wextra -Werror "$dir/user.cpp" $flags -o "$dir/cpp" || fail "C++, pkg-config"
    LD_LIBRARY_PATH=$libdir "$dir/cpp" || fail "the C++ program"
fi
# VELOC's interface, by the line with which programs are linked with VELOC.
echo '#include <veloc.h>
int main(void) { return VELOC_Finalize(0) != VELOC_FAILURE; }' >"$dir/veloc.c"
$CC -std=c99 -Wall -Wextra -Werror "$dir/veloc.c" "-I$prefix/include" "-L$libdir" -lveloc-client -o "$dir/veloc" || fail "veloc.h"
LD_LIBRARY_PATH=$libdir "$dir/veloc" 2>/dev/null || fail "the program with VELOC's interface"
$CC -std=c99 "$dir/veloc.c" $(pkg-config --cflags --libs veloc-client) -o "$dir/veloc" || fail "veloc-client.pc"
[ -e "$prefix/include/veloc/cereal.hpp" ] || fail "veloc/cereal.hpp is not installed"
if command -v "$CXX" >/dev/null; then
    echo '#include <veloc.hpp>
#include <veloc/defs.h>
int main(int argc, char **) { return argc > 1 && veloc::get_client(1u, "none") != nullptr; }' >"$dir/veloc.cpp"
    $CXX -std=c++11 -Wall -Wextra -Werror "$dir/veloc.cpp" $(pkg-config --cflags --libs veloc-client) -o "$dir/veloc" || fail "veloc.hpp"
fi
if [ -e "$libdir/libvarve-mpi.so" ] && command -v mpicc >/dev/null; then
    echo '#include <varve/mpi.h>
int main(void) { return varve_close(NULL) + 0 * (varve_close_mpi == NULL); }' >"$dir/mpi.c"
    OMPI_CC=$CC MPICH_CC=$CC mpicc -std=c99 "$dir/mpi.c" $(pkg-config --cflags --libs varve-mpi) -o "$dir/mpi" || fail "varve/mpi.h"
    LD_LIBRARY_PATH=$libdir:${LD_LIBRARY_PATH:-} "$dir/mpi" || fail "the program with varve/mpi.h"
fi
if [ -e "$libdir/libvarve-fortran.so" ] && command -v gfortran >/dev/null; then
    printf 'program p\nuse varve\nprint *, varve_library_version()\nend program\n' >"$dir/user.f90"
    gfortran "-J$dir" "$dir/user.f90" $(pkg-config --cflags --libs varve-fortran) -o "$dir/fortran" || fail "varve-fortran.pc"
    [ -n "${VARVE_SANITIZE:-}" ] || LD_LIBRARY_PATH=$libdir:${LD_LIBRARY_PATH:-} "$dir/fortran" || fail "the Fortran program"
fi
if [ -e "$libdir/libvarve-fortran-mpi.so" ] && command -v mpifort >/dev/null; then
    printf 'program p\nuse varve\nuse varve_mpi\ntype(varve_context) :: ctx\nif (.false.) call varve_open_mpi(0, ctx)\nend program\n' >"$dir/user.f90"
    mpifort "-J$dir" "$dir/user.f90" $(pkg-config --cflags --libs varve-fortran-mpi) -o "$dir/fortran" || fail "varve-fortran-mpi.pc"
    [ -n "${VARVE_SANITIZE:-}" ] || LD_LIBRARY_PATH=$libdir:${LD_LIBRARY_PATH:-} "$dir/fortran" || fail "the Fortran program with MPI"
fi
mkdir "$dir/static"
cp "$libdir/libvarve.a" "$dir/static"
$CC -std=c99 "$dir/user.c" $(pkg-config --cflags varve) -L"$dir/static" \
    $(pkg-config --static --libs-only-l varve) -pthread -o "$dir/static/c" || fail "C, static"
"$dir/static/c" || fail "the static C program"

# Through CMake: one project for each component, which names its own target alone.
# project COMPONENT LANGUAGE SOURCE: builds and runs it. configure COMPONENT LANGUAGE [SOURCE]: to $dir/log.
configure() {
    rm -rf "$dir/cm"
    mkdir "$dir/cm"
    cat >"$dir/cm/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(user $2)
find_package(varve 0.1 REQUIRED COMPONENTS $1)
add_executable(user ${3:-})
target_link_libraries(user varve::$1)
EOF
    cmake -G Ninja -S "$dir/cm" -B "$dir/cm/build" -DCMAKE_C_COMPILER="$CC" -DCMAKE_PREFIX_PATH="$prefix" \
        --no-warn-unused-cli >"$dir/log" 2>&1
}
project() {
    configure "$@" && cmake --build "$dir/cm/build" >"$dir/log" 2>&1 || { cat "$dir/log"; fail "CMake: $1, $2"; }
    case $1 in
    *fortran*) [ -n "${VARVE_SANITIZE:-}" ] || "$dir/cm/build/user" >"$dir/log" 2>&1 || { cat "$dir/log"; fail "the program: $1, $2"; } ;;
    *) "$dir/cm/build/user" >"$dir/log" 2>&1 || { cat "$dir/log"; fail "the program: $1, $2"; } ;;
    esac
}
# refused COMPONENT LANGUAGE TEXT: the reason is there.
refused() {
    ! configure "$1" "$2" "$dir/user.c" || fail "CMake: $1 is found"
    tr '\n' ' ' <"$dir/log" | tr -s ' ' | grep -qF "$3" || { cat "$dir/log"; fail "CMake: no reason for $1"; }
}
project varve C "$dir/user.c"
project veloc-client C "$dir/veloc.c"
refused nothing C 'component nothing: there is no such component; there are varve, veloc-client, mpi'
if [ -e "$dir/mpi.c" ]; then
    project mpi C "$dir/mpi.c"
    cp "$dir/mpi.c" "$dir/mpi.cpp"
    ! command -v "$CXX" >/dev/null || project mpi CXX "$dir/mpi.cpp"
fi
if [ -e "$dir/user.f90" ]; then
    printf 'program p\nuse varve\nprint *, varve_library_version()\nend program\n' >"$dir/user.f90"
    project fortran Fortran "$dir/user.f90"
fi
if [ -e "$libdir/libvarve-fortran-mpi.so" ] && command -v mpifort >/dev/null; then
    printf 'program p\nuse mpi\nuse varve\nuse varve_mpi\ntype(varve_context) :: ctx\nif (.false.) call varve_open_mpi(MPI_COMM_WORLD, ctx)\nend program\n' >"$dir/user.f90"
    project fortran-mpi Fortran "$dir/user.f90"
    refused fortran-mpi C 'component fortran-mpi: it needs one of the languages Fortran: name one in project()'
fi
# Without a component that was not built, the reason says what to install.
rm -f "$libdir"/cmake/varve/varve-mpi-targets*.cmake
refused mpi C 'component mpi: this varve was built without an MPI (Debian: libopenmpi-dev or libmpich-dev)'
