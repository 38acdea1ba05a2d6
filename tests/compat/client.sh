# SPDX-License-Identifier: Apache-2.0
# VELOC's classes, veloc.hpp: a program by itself and as three processes, in modes sync and async, whose runs may end without
# deleting their client; with cereal and Boost where they are. VARVE_TEST_INCLUDE: another folder to look for these in.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
CXX=${CXX:-g++}
# Runs that do not delete their client leak it.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
need "$CXX"
cd "$dir" # the program's own files
more=()
[ -z "${VARVE_TEST_INCLUDE:-}" ] || more=(-isystem "$VARVE_TEST_INCLUDE")
has() { echo "#include <$1>" | "$CXX" "${more[@]}" -fsyntax-only -x c++ - 2>/dev/null; }
compile() { # COMPILER OUTPUT FLAG...
    local cxx=$1 out=$2
    shift 2
    "$cxx" "${flags[@]}" "${more[@]}" "$@" "$SOURCE_DIR/tests/compat/client.cpp" "${link[@]}" -lveloc-client "${libs[@]}" -o "$out" || fail "client.cpp does not compile: $*"
}
libs=()
with=()
if has cereal/archives/binary.hpp; then with+=(-DWITH_CEREAL); else echo "without cereal: no cereal/archives/binary.hpp (libcereal-dev)"; fi
if has boost/archive/binary_oarchive.hpp && echo 'int main() { return 0; }' | "$CXX" -x c++ - -lboost_serialization -o "$dir/b" 2>/dev/null; then
    with+=(-DWITH_BOOST) libs=(-lboost_serialization)
else
    echo "without Boost: no boost/archive/binary_oarchive.hpp or no library (libboost-serialization-dev)"
fi
for std in c++11 c++17; do
    compile "$CXX" "$dir/client" -std=$std "${with[@]}"
    ldd "$dir/client" | grep -q libmpi && fail "it needs MPI"
    for mode in sync async; do
        config "$dir/ini" "$dir/$std-$mode" $mode
        for what in all leave find; do
            "$dir/client" "$dir/ini" $what >"$dir/out" 2>"$dir/err" && grep -qx ok "$dir/out" || { cat "$dir/out" "$dir/err"; fail "$std, $mode: $what"; }
        done
        # Each failure has a message.
        "$dir/client" "$dir/ini" all >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; fail "$std, $mode: a second time"; }
        for text in 'region 2 could not be serialized' 'region 2 could not be deserialized' 'target_rank 1: .*varve_part_open'; do
            grep -q "^veloc: $text" "$dir/err" || { cat "$dir/err"; fail "nothing is said: $text"; }
        done
    done
done
[ ! -e "$lib/libvarve-mpi.so" ] && { echo "ok, without MPI"; exit 0; }
case ${VARVE_SANITIZE:-} in *thread*) echo "ok, without MPI, which does not start under ThreadSanitizer"; exit 0 ;; esac
mpi_setup
mpicxx=$(command -v "${mpicc%cc*}cxx${mpicc##*cc}" || command -v mpicxx || true)
[ -n "$mpicxx" ] || { echo "ok, without MPI: no mpicxx"; exit 0; }
export OMPI_CXX=$CXX MPICH_CXX=$CXX
libs=()
compile "$mpicxx" "$dir/client_mpi" -std=c++17 -DWITH_MPI -Wno-cast-function-type -Wno-unused-parameter
for mode in sync async; do
    config "$dir/ini" "$dir/mpi-$mode" $mode
    for what in leave find; do
        mpi 3 "$dir/client_mpi" "$dir/ini" $what >"$dir/out" 2>"$dir/err" </dev/null || { cat "$dir/out" "$dir/err"; fail "MPI, $mode: $what"; }
        [ "$(grep -cx ok "$dir/out")" = 3 ] || { cat "$dir/out"; fail "MPI, $mode: $what"; }
    done
done
echo ok
