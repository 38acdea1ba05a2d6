# SPDX-License-Identifier: Apache-2.0
# Vectors of several processes in one file, by MPI-IO.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
case ${VARVE_SANITIZE:-} in *thread*) skip "MPI does not start under ThreadSanitizer" ;; esac
mpi_setup
"$mpicc" -std=c99 -D_POSIX_C_SOURCE=200809L "${flags[@]}" "$SOURCE_DIR/tests/compat/vector_file.c" "${link[@]}" -lvarve-mpi -lvarve -o "$dir/vector_file" ||
    fail "vector_file.c does not compile"
for n in 1 3; do
    mkdir "$dir/folder$n"
    mpi $n "$dir/vector_file" "$dir/folder$n" >"$dir/out" 2>"$dir/err" </dev/null || { cat "$dir/out" "$dir/err"; fail "$n processes"; }
    grep -q '^ok$' "$dir/out" || fail "$n processes did nothing"
done
echo ok
