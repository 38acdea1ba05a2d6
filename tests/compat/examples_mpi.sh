# SPDX-License-Identifier: Apache-2.0
# examples/heat_mpi in C and Fortran: killed, started again, and with the result of a run without kills. Each continues
# from the other's checkpoints.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
case ${VARVE_SANITIZE:-} in ?*) skip "mpi.sh runs the same code" ;; esac
mpi_setup
"$mpicc" -std=c99 -D_POSIX_C_SOURCE=200809L "${flags[@]}" "$SOURCE_DIR/examples/heat_mpi.c" "${link[@]}" -lvarve-mpi -lvarve -o "$dir/heat_c" ||
    fail "heat_mpi.c does not compile"
programs=(heat_c)
if [ -e "$lib/libvarve-fortran-mpi.so" ] && [ -n "$mpifort" ]; then
    "$mpifort" -O1 -g -Wall -Wextra -Wno-unused-variable -Werror -std=f2018 "-J$dir" "-I$BUILD_DIR/fortran" "$SOURCE_DIR/examples/heat_mpi.f90" \
        "${link[@]}" -lvarve-fortran-mpi -lvarve-fortran -lvarve-mpi -lvarve -o "$dir/heat_f" || fail "heat_mpi.f90 does not compile"
    programs+=(heat_f)
fi
last=heat_c
mpi 4 "$dir/heat_c" "$dir/local" "$dir/shared" >"$dir/out" 2>&1 </dev/null || { cat "$dir/out"; fail "heat_mpi"; }
grep -q '^from step 0 on$' "$dir/out" || { cat "$dir/out"; fail "heat_mpi found something"; }
want=$(grep '^after step 2000' "$dir/out") || { cat "$dir/out"; fail "heat_mpi has no result"; }
rm -rf "$dir/local" "$dir/shared"
# Killed once by each program; the last complete checkpoint is not known, but each run continues from one.
at=0
for program in "${programs[@]}"; do
    at=$((at + 900))
    rc=0; mpi 4 "$dir/$program" "$dir/local" "$dir/shared" $at >"$dir/out" 2>&1 </dev/null || rc=$?
    [ $rc -ne 0 ] && ! grep -q '^after step' "$dir/out" || { cat "$dir/out"; fail "$program was to be killed: $rc"; }
    grep -qE '^from step [0-9]+ on$' "$dir/out" || { cat "$dir/out"; fail "$program did not begin"; }
    last=$program
done
mpi 4 "$dir/$last" "$dir/local" "$dir/shared" >"$dir/out" 2>&1 </dev/null || { cat "$dir/out"; fail "$last after a kill"; }
[ "$(grep '^after step' "$dir/out")" = "$want" ] || { cat "$dir/out"; fail "another result after a kill: $want"; }
mpi 4 "$dir/heat_c" "$dir/local" "$dir/shared" >"$dir/out" 2>&1 </dev/null || { cat "$dir/out"; fail "what had finished"; }
grep -q '^from step 2000 on$' "$dir/out" || { cat "$dir/out"; fail "what had finished is not found"; }
[ "$(grep '^after step' "$dir/out")" = "$want" ] || { cat "$dir/out"; fail "what had finished: another result"; }
echo ok
