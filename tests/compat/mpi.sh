# SPDX-License-Identifier: Apache-2.0
# varve/mpi.h on four processes: they agree on a version to restart from, across several runs of a job.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
case ${VARVE_SANITIZE:-} in *thread*) skip "MPI does not start under ThreadSanitizer" ;; esac
mpi_setup
"$mpicc" -std=c99 -D_POSIX_C_SOURCE=200809L "${flags[@]}" "$SOURCE_DIR/tests/compat/mpi.c" "${link[@]}" -lvarve-mpi -lvarve -o "$dir/mpi" ||
    fail "mpi.c does not compile"
mkdir "$dir/folder"
for part in first second third fourth errors complete again still empty; do
    rc=0
    mpi 4 "$dir/mpi" "$dir/folder" $part >"$dir/out" 2>"$dir/err" </dev/null || rc=$?
    # One of them ends by a kill.
    [ $rc -eq 0 ] || [ $part = again ] || { cat "$dir/out" "$dir/err"; fail "$part"; }
    grep -q '^ok$' "$dir/out" || fail "$part did nothing"
done
echo ok
