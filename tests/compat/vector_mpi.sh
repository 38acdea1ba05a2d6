# SPDX-License-Identifier: Apache-2.0
# Vectors reduced among three processes.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
case ${VARVE_SANITIZE:-} in *thread*) skip "MPI does not start under ThreadSanitizer" ;; esac
need "${CXX:-g++}"
mpi_setup
# The headers of MPI are C here; what it says of C++ is not used.
read -r -a words <<<"$("$mpicc" -showme:compile 2>/dev/null || "$mpicc" -show | cut -d' ' -f2-)"
read -r -a libs <<<"$("$mpicc" -showme:link 2>/dev/null || "$mpicc" -show | cut -d' ' -f2-)"
"${CXX:-g++}" -std=c++11 "${flags[@]}" -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX "${words[@]/#-I/-isystem}" "$SOURCE_DIR/tests/compat/vector_mpi.cpp" \
    "${link[@]}" -lvarve-mpi -lvarve "${libs[@]}" -o "$dir/vector_mpi" || fail "vector_mpi.cpp does not compile"
for n in 1 3; do
    mpi $n "$dir/vector_mpi" >"$dir/out" 2>"$dir/err" </dev/null || { cat "$dir/out" "$dir/err"; fail "$n processes"; }
    grep -q '^ok$' "$dir/out" || fail "$n processes did nothing"
done
echo ok
