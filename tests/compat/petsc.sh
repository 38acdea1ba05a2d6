# SPDX-License-Identifier: Apache-2.0
# The trajectory type `varve` in PETSc's own tutorials, as they are installed: the same adjoint as with `basic` and
# `memory`, bit for bit; and PETSc's errors, without a hang, where it cannot do what it should.
. "$SOURCE_DIR/tests/compat/common.sh.inc"
plugin=$lib/libvarve-petsc.so
[ -e "$plugin" ] || skip "built without PETSc"
case ${VARVE_SANITIZE:-} in ?*) skip "programs without a sanitizer cannot open a library with one" ;; esac
need pkg-config
mpi_setup
tutorials=$(pkg-config --variable=prefix PETSc)
tutorials=$(find "/usr/share/petsc" "$tutorials" -path '*/ts/tutorials/ex20adj.c' -print -quit 2>/dev/null || true)
[ -n "$tutorials" ] || skip "PETSc's tutorials are not installed (Debian: libpetsc3.18-dev-examples)"
tutorials=${tutorials%/ex20adj.c}
cd "$dir"

build() { # SOURCE ...: a program of the first one's name
    local name=${1##*/}
    # shellcheck disable=SC2046 # several flags
    "$mpicc" -O1 -w "${@/#/$tutorials/}" $(pkg-config --cflags --libs PETSc) -lm -o "${name%.c}" >log 2>&1 ||
        { cat log; fail "$1 does not compile"; }
}
build ex20adj.c
build ex20opt_ic.c
build power_grid/ex9adj.c
build advection-diffusion-reaction/ex5adj.c advection-diffusion-reaction/reaction_diffusion.c

run() { # RANKS TYPE PROGRAM OPTION ...: output in $2.out, the adjoint in $2.bin
    local ranks=$1 type=$2 program=$3
    shift 3
    rm -rf "$type.bin" TS-data-* SA-data
    mpi "$ranks" "./$program" "$@" -dll_append "$plugin" -ts_trajectory_type "$type" -ts_adjoint_view_solution "binary:$type.bin" \
        -viewer_binary_skip_info >"$type.out" 2>&1 </dev/null
}
cases=0
same() { # RANKS PROGRAM OPTION ...
    local type
    for type in basic memory varve; do
        run "$1" $type "${@:2}" || { cat $type.out; fail "$type: $*"; }
        [ -s $type.bin ] || { cat $type.out; fail "$type computed no adjoint: $*"; }
    done
    # The adjoint that the program views, and the gradient that it prints.
    cmp basic.bin varve.bin && cmp memory.bin varve.bin || fail "another adjoint: $*"
    diff basic.out varve.out >log || { cat log; fail "another output: $*"; }
    cases=$((cases + 1))
}
refused() { # TEXT COMMAND ...: PETSc's error with this text, in time
    local text=$1 rc=0
    shift
    "$@" || rc=$?
    [ $rc -ne 0 ] && [ $rc -ne 124 ] && [ $rc -ne 137 ] || { cat varve.out; fail "status $rc: $*"; }
    grep -q 'PETSC ERROR' varve.out && grep -q "$text" varve.out || { cat varve.out; fail "not the error '$text': $*"; }
}

grid=(-da_grid_x 20 -da_grid_y 20 -ts_max_steps 8 -ts_dt 0.5)
for ranks in 1 2; do
    same $ranks ex5adj "${grid[@]}" -implicitform 0 -ts_type rk -ts_rk_type 4
    same $ranks ex5adj "${grid[@]}" -ts_type cn
done
same 4 ex5adj "${grid[@]}" -implicitform 0 -ts_type rk -ts_rk_type 4
# Steps of different length; methods of one stage and of none; the solution as the last stage.
same 2 ex5adj "${grid[@]}" -implicitform 0 -ts_type rk -ts_rk_type 5dp -ts_adapt_type basic
same 1 ex5adj "${grid[@]}" -ts_type beuler
same 1 ex5adj "${grid[@]}" -ts_type theta -ts_theta_theta 0.7
for method in cn beuler theta "rk -implicitform 0"; do
    # shellcheck disable=SC2086 # several options
    same 1 ex20adj -ts_max_steps 15 -ts_dt 0.001 -ts_type $method
done
same 1 ex9adj
# Many solves, each of which overwrites the one before.
same 1 ex20opt_ic -ts_type cn -mu 1000 -ts_dt 0.03125

# Most of it on the disk: 41 steps of five vectors of 32 KiB, and a cache of 1 MiB.
spill=(ex5adj -da_grid_x 64 -da_grid_y 32 -ts_max_steps 40 -ts_dt 0.5 -implicitform 0 -ts_type rk -ts_rk_type 4)
mkdir folder
same 2 "${spill[@]}" -ts_trajectory_varve_host_cache 1M -ts_trajectory_varve_local "$dir/folder"
[ -z "$(find folder -name '*petsc-*' -print -quit)" ] || { find folder; fail "a trajectory was left behind"; }

# A trajectory that is kept: a later program reads it.
cat >kept.c <<'END'
#include <petscts.h>
int main(int argc, char **argv)
{
    TS ts;
    Vec x;
    TSTrajectory tj;
    PetscReal time;
    PetscInt step = 0;
    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-step", &step, NULL));
    PetscCall(VecCreateSeq(PETSC_COMM_SELF, 2, &x));
    PetscCall(TSCreate(PETSC_COMM_SELF, &ts));
    PetscCall(TSSetSolution(ts, x));
    PetscCall(TSSetSaveTrajectory(ts));
    PetscCall(TSSetFromOptions(ts));
    PetscCall(TSGetTrajectory(ts, &tj));
    PetscCall(TSTrajectorySetSolutionOnly(tj, PETSC_TRUE));
    PetscCall(TSTrajectorySetUp(tj, ts));
    PetscCall(TSTrajectoryGet(tj, ts, step, &time));
    PetscCall(PetscPrintf(PETSC_COMM_SELF, "time %g\n", (double)time));
    PetscCall(VecView(x, PETSC_VIEWER_STDOUT_SELF));
    PetscCall(TSDestroy(&ts));
    PetscCall(VecDestroy(&x));
    return PetscFinalize();
}
END
tutorials=$dir build kept.c
keep=(-ts_trajectory_varve_local "$dir/folder" -ts_trajectory_varve_keep orbit)
same 1 ex20adj -ts_max_steps 15 -ts_dt 0.001 -ts_type cn "${keep[@]}"
run 1 varve kept -step 15 "${keep[@]}"
grep -qx 'time 0.015' varve.out || { cat varve.out; fail "the kept trajectory cannot be read"; }
refused 'no such version\|does not exist\|loading a step' run 1 varve kept -step 16 "${keep[@]}"
refused 'is kept: name it' run 1 varve ex20adj -ts_trajectory_varve_level local -ts_trajectory_varve_local "$dir/folder"

run 1 varve ex20adj -ts_view -ts_trajectory_view -ts_trajectory_varve_monitor -help
for text in -ts_trajectory_varve_host_cache -ts_trajectory_varve_local 'level cached, host cache of' 'varve: stored 501 steps'; do
    grep -q -e "$text" varve.out || { cat varve.out; fail "nothing of '$text'"; }
done

refused 'varve_host_cache' run 2 varve "${spill[@]}" -ts_trajectory_varve_host_cache 1M
touch file
refused 'opening Varve' run 2 varve "${spill[@]}" -ts_trajectory_varve_local "$dir/file/folder"
VARVE_LOCAL_CACHE=1M refused 'storing a step' run 2 varve "${spill[@]}" -ts_trajectory_varve_host_cache 1M -ts_trajectory_varve_local "$dir/folder"
refused 'a lot' run 1 varve ex20adj -ts_trajectory_varve_host_cache 'a lot'
refused 'forward sensitivities' run 1 varve ex20opt_ic -ts_type beuler -mu 100 -ts_dt 0.01 -tao_type bntr -tao_bnk_pc_type none
refused 'solution_only leaves out' run 1 varve ex20adj -ts_type cn -ts_dt 0.001 -ts_max_steps 15 -ts_trajectory_solution_only
echo "ok, $cases cases"
