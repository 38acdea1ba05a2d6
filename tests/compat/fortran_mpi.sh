# SPDX-License-Identifier: Apache-2.0
# The Fortran module varve_mpi on four processes, across several runs of a job, and with both kinds of Fortran's
# communicators.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
case ${VARVE_SANITIZE:-} in ?*) skip "mpi.sh runs the same code" ;; esac
mpi_setup
[ -e "$lib/libvarve-fortran-mpi.so" ] || skip "built without Fortran"
[ -n "$mpifort" ] || skip "no mpifort"
fortran=("$mpifort" -O1 -g -Wall -Wextra -Werror -std=f2018 "-J$dir" "-I$BUILD_DIR/fortran")
libraries=("${link[@]}" -lvarve-fortran-mpi -lvarve-fortran)
for module in mpi mpi_f08; do
    printf 'program p\nuse %s\nend program\n' $module >"$dir/$module.f90"
    "$mpifort" "-J$dir" -c "$dir/$module.f90" -o "$dir/$module.o" 2>"$dir/log" || { cat "$dir/log"; skip "no module $module for this compiler"; }
done
"${fortran[@]}" "$SOURCE_DIR/tests/compat/fortran_mpi.f90" "${libraries[@]}" -o "$dir/test" || fail "fortran_mpi.f90 does not compile"
mkdir "$dir/folder"
for life in first second third errors complete again empty; do
    mpi 4 "$dir/test" "$dir/folder" $life >"$dir/out" 2>&1 </dev/null || { cat "$dir/out"; fail "$life"; }
    grep -q '^ok$' "$dir/out" || { cat "$dir/out"; fail "$life did nothing"; }
done
cat >"$dir/old.f90" <<'END'
program old
    use mpi
    use varve
    use varve_mpi
    type(varve_context) :: ctx
    integer :: ierr
    call MPI_Init(ierr)
    call varve_open_mpi(MPI_COMM_WORLD, ctx)
    call varve_close_mpi(MPI_COMM_WORLD, ctx)
    call varve_open_mpi(MPI_COMM_WORLD, ctx)
    call varve_open_mpi(MPI_COMM_WORLD, ctx) ! an error without stat
    call MPI_Finalize(ierr)
end program
END
"${fortran[@]}" "$dir/old.f90" "${libraries[@]}" -o "$dir/old" || fail "use mpi does not compile"
rc=0; mpi 2 "$dir/old" >"$dir/out" 2>&1 </dev/null || rc=$?
[ $rc -ne 0 ] && grep -q 'varve: open: ' "$dir/out" || { cat "$dir/out"; fail "an error without stat: status $rc"; }
# A program without MPI needs none.
readelf -d "$lib/libvarve-fortran.so" >"$dir/dynamic"
! grep -q 'NEEDED.*mpi' "$dir/dynamic" || fail "libvarve-fortran needs MPI"
echo ok
