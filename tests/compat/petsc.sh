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
shows() { # TEXT ...
    local text
    for text; do
        grep -q -e "$text" varve.out || { cat varve.out; fail "nothing of '$text'"; }
    done
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
# Derivatives by ADOL-C, where that is installed (Debian: libadolc-dev).
# shellcheck disable=SC2046 # several flags
if "${mpicc/mpicc/mpicxx}" -w "$tutorials/autodiff/ex16adj.cxx" $(pkg-config --cflags --libs PETSc) -ladolc -lm -o ex16adj >log 2>&1; then
    same 1 ex16adj -ts_max_steps 10 -mu 5
elif [ -e /usr/include/adolc/adolc.h ]; then
    cat log
    fail "ex16adj.cxx does not compile"
fi
# Many solves, each of which overwrites the one before.
same 1 ex20opt_ic -ts_type cn -mu 1000 -ts_dt 0.03125

# Most data is on the disk: 41 steps of five vectors of 32 KiB, and a cache of 1 MiB.
spill=(ex5adj -da_grid_x 64 -da_grid_y 32 -ts_max_steps 40 -ts_dt 0.5 -implicitform 0 -ts_type rk -ts_rk_type 4)
mkdir folder
same 2 "${spill[@]}" -ts_trajectory_varve_host_cache 1M -ts_trajectory_varve_local "$dir/folder"
[ -z "$(find folder -name '*petsc-*' -print -quit)" ] || { find folder; fail "a trajectory was left behind"; }

# Several at once, and what the adjoint of no method reads: both are solved before either is read.
cat >several.c <<'END'
#include <petscts.h>
#include <stdio.h>
#include <unistd.h>
enum { STEPS = 30 };
static Vec kept[2][STEPS + 1];
static PetscInt stop = -1;
static PetscErrorCode rhs(TS ts, PetscReal t, Vec x, Vec f, void *ctx)
{
    const PetscScalar *u;
    PetscScalar *v;
    PetscFunctionBeginUser;
    PetscCall(VecGetArrayRead(x, &u));
    PetscCall(VecGetArrayWrite(f, &v));
    v[0] = u[1];
    v[1] = *(PetscReal *)ctx * (1 - u[0] * u[0]) * u[1] - u[0];
    PetscCall(VecRestoreArrayRead(x, &u));
    PetscCall(VecRestoreArrayWrite(f, &v));
    PetscFunctionReturn(0);
}
static PetscErrorCode jacobian(TS ts, PetscReal t, Vec x, Mat a, Mat b, void *ctx)
{
    const PetscScalar *u;
    PetscInt at[] = {0, 1};
    PetscReal mu = *(PetscReal *)ctx;
    PetscFunctionBeginUser;
    PetscCall(VecGetArrayRead(x, &u));
    PetscScalar j[] = {0, 1, -2 * mu * u[0] * u[1] - 1, mu * (1 - u[0] * u[0])};
    PetscCall(VecRestoreArrayRead(x, &u));
    PetscCall(MatSetValues(b, 2, at, 2, at, j, INSERT_VALUES));
    PetscCall(MatAssemblyBegin(b, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(b, MAT_FINAL_ASSEMBLY));
    PetscFunctionReturn(0);
}
static PetscErrorCode monitor(TS ts, PetscInt step, PetscReal time, Vec x, void *ctx)
{
    PetscFunctionBeginUser;
    if (step < 0 || step > STEPS)
        PetscFunctionReturn(0);
    if (!((Vec *)ctx)[step])
        PetscCall(VecDuplicate(x, &((Vec *)ctx)[step]));
    PetscCall(VecCopy(x, ((Vec *)ctx)[step]));
    if (step == stop) {
        printf("stopped %ld\n", (long)getpid());
        fflush(stdout);
        for (;;)
            pause();
    }
    PetscFunctionReturn(0);
}
int main(int argc, char **argv)
{
    TS ts[2];
    Mat a[2];
    Vec x[2], lambda[2];
    PetscReal mu[2] = {1, 3};
    PetscInt count = 2, from = -1;
    PetscBool loads = PETSC_FALSE;
    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-stop", &stop, NULL));
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-count", &count, NULL));
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-from", &from, NULL));
    PetscCall(PetscOptionsGetBool(NULL, NULL, "-loads", &loads, NULL));
    for (PetscInt i = 0; i < count; i++) {
        PetscCall(VecCreateSeq(PETSC_COMM_SELF, 2, &x[i]));
        PetscCall(VecSetFromOptions(x[i]));
        PetscCall(VecSet(x[i], 1.5 + i));
        PetscCall(VecDuplicate(x[i], &lambda[i]));
        PetscCall(VecSet(lambda[i], 1));
        PetscCall(MatCreateSeqDense(PETSC_COMM_SELF, 2, 2, NULL, &a[i]));
        PetscCall(TSCreate(PETSC_COMM_SELF, &ts[i]));
        PetscCall(TSSetType(ts[i], TSRK));
        PetscCall(TSSetRHSFunction(ts[i], NULL, rhs, &mu[i]));
        PetscCall(TSSetRHSJacobian(ts[i], a[i], a[i], jacobian, &mu[i]));
        PetscCall(TSMonitorSet(ts[i], monitor, kept[i], NULL));
        PetscCall(TSSetTimeStep(ts[i], 0.01));
        PetscCall(TSSetMaxSteps(ts[i], STEPS));
        PetscCall(TSSetMaxTime(ts[i], 100));
        PetscCall(TSSetExactFinalTime(ts[i], TS_EXACTFINALTIME_STEPOVER));
        PetscCall(TSSetSaveTrajectory(ts[i]));
        PetscCall(TSSetFromOptions(ts[i]));
        PetscCall(TSSetCostGradients(ts[i], 1, &lambda[i], NULL));
    }
    for (PetscInt i = 0; i < count && from >= 0; i++) {
        TSTrajectory tj;
        PetscReal time;
        PetscCall(TSSetSolution(ts[i], x[i]));
        PetscCall(TSSetUp(ts[i]));
        PetscCall(TSGetTrajectory(ts[i], &tj));
        PetscCall(TSTrajectorySetUp(tj, ts[i]));
        PetscCall(TSTrajectoryGet(tj, ts[i], from, &time));
        PetscCall(TSSetStepNumber(ts[i], from));
        PetscCall(TSSetTime(ts[i], time));
        PetscCall(TSSetTimeStep(ts[i], 0.01));
    }
    for (PetscInt i = 0; i < count; i++)
        PetscCall(TSSolve(ts[i], x[i]));
    for (PetscInt step = STEPS; loads && step >= 0; step--)
        for (PetscInt i = 0; i < count; i++) {
            TSTrajectory tj;
            PetscReal time;
            PetscBool same;
            PetscCall(TSGetTrajectory(ts[i], &tj));
            PetscCall(TSTrajectoryGet(tj, ts[i], step, &time));
            PetscCall(VecEqual(x[i], kept[i][step], &same));
            PetscCheck(same, PETSC_COMM_SELF, PETSC_ERR_PLIB, "step %d of %d differs", (int)step, (int)i);
        }
    for (PetscInt i = 0; i < count; i++) {
        const PetscScalar *g;
        if (!loads)
            PetscCall(TSAdjointSolve(ts[i]));
        PetscCall(VecGetArrayRead(lambda[i], &g));
        printf("%a %a\n", g[0], g[1]);
        PetscCall(VecRestoreArrayRead(lambda[i], &g));
    }
    for (PetscInt i = 0; i < count; i++) {
        for (int s = 0; s <= STEPS; s++)
            PetscCall(VecDestroy(&kept[i][s]));
        PetscCall(TSDestroy(&ts[i]));
        PetscCall(MatDestroy(&a[i]));
        PetscCall(VecDestroy(&x[i]));
        PetscCall(VecDestroy(&lambda[i]));
    }
    return PetscFinalize();
}
END
tutorials=$dir build several.c
for method in cn "rk -ts_adapt_type basic"; do
    # shellcheck disable=SC2086 # several options
    same 1 several -ts_type $method
done
for method in rk cn beuler arkimex "arkimex -ts_trajectory_adjointmode 0"; do
    # shellcheck disable=SC2086 # several options
    run 1 varve several -loads -ts_type $method || { cat varve.out; fail "loading the steps of $method"; }
done

# Vectors on a device, of which the processor can read nothing.
if [ -e "$BUILD_DIR/fake/libcuda.so.1" ]; then
    # shellcheck disable=SC2046 # several flags
    "$mpicc" -O1 -w -shared -fPIC "$SOURCE_DIR/tests/compat/petsc_device.c" $(pkg-config --cflags --libs PETSc) -o libdevice.so
    (
        export LD_LIBRARY_PATH=$BUILD_DIR/fake
        plugin=$plugin,$dir/libdevice.so
        same 1 several -ts_type rk -vec_type device
        [ "$(cat taken)" -gt 600 ] || fail "no memory of the device was taken: $(cat taken)"
        DEVICE_OTHER=1 refused 'not of another device' run 1 varve several -vec_type device
    )
fi

# Parts of an adjoint, adjoints again, times between steps, changed and repeated steps, other types in between: as with `basic`
# (`memory` loads each step once only).
tutorials=$SOURCE_DIR/tests/compat build petsc_manners.c
for type in basic varve; do
    run 2 $type petsc_manners || { cat $type.out; fail "manners: $type"; }
done
diff basic.out varve.out || fail "another output of what programs do"
run 2 varve petsc_manners -later || { cat varve.out; fail "manners: later"; }
shows '^time 0.5'
# PetscFinalize ends what the program left alive. A clone shows its method, too.
run 2 varve petsc_manners -leave -ts_trajectory_varve_local "$dir/folder" -ts_trajectory_varve_keep left || { cat varve.out; fail "left alive"; }
shows 'RK type' 'kept as left'
[ "$("$VARVE_BIN" ls --local folder left | grep -c '^left ')" = 82 ] || fail "steps of a trajectory that was left alive are not kept"

# A trajectory that is kept: a later program reads it.
cat >kept.c <<'END'
#include <petscts.h>
int main(int argc, char **argv)
{
    TS ts;
    Vec x;
    TSTrajectory tj;
    PetscReal time, length;
    PetscInt step = 0, elements = 2;
    PetscBool only = PETSC_TRUE, world = PETSC_FALSE;
    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-step", &step, NULL));
    PetscCall(PetscOptionsGetBool(NULL, NULL, "-only", &only, NULL));
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-elements", &elements, &world));
    PetscCall(VecCreateMPI(world ? PETSC_COMM_WORLD : PETSC_COMM_SELF, elements, PETSC_DETERMINE, &x));
    PetscCall(TSCreate(world ? PETSC_COMM_WORLD : PETSC_COMM_SELF, &ts));
    PetscCall(TSSetSolution(ts, x));
    PetscCall(TSSetSaveTrajectory(ts));
    PetscCall(TSSetFromOptions(ts));
    PetscCall(TSGetTrajectory(ts, &tj));
    PetscCall(TSTrajectorySetSolutionOnly(tj, only));
    PetscCall(TSTrajectorySetUp(tj, ts));
    PetscCall(TSTrajectoryGet(tj, ts, step, &time));
    PetscCall(TSGetTimeStep(ts, &length));
    PetscCheck(length > 0, PETSC_COMM_SELF, PETSC_ERR_PLIB, "a time step of %g", (double)length);
    PetscCall(PetscPrintf(PETSC_COMM_SELF, "time %g\n", (double)time));
    if (!world)
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
refused 'call TSSetUp first' run 1 varve kept -step 5 -only 0 -ts_type rk "${keep[@]}"
# A damaged file is replaced when the step is stored again.
damaged=$(find folder/orbit -name 'r0.v15.*')
: >"$damaged"
run 1 varve ex20adj -ts_max_steps 15 -ts_dt 0.001 -ts_type cn "${keep[@]}" || { cat varve.out; fail "a damaged step stays"; }
# PETSc removes the folder that another type would have its files in.
run 1 varve ex20adj -ts_max_steps 15 -ts_dt 0.001 -ts_type cn "${keep[@]}" -ts_trajectory_dirname "$dir/folder"
run 1 varve kept -step 15 "${keep[@]}" || { cat varve.out; fail "the kept trajectory went with PETSc's folder"; }
# Checkpoints of another program.
cat >other.c <<'END'
#include <varve/ckpt.h>
int main(void)
{
    double model[64] = {1};
    struct varve_ctx *ctx;
    struct varve_history *h;
    return varve_open(NULL, &ctx) || varve_history_open(ctx, "model", &h) || varve_protect(h, 0, model, sizeof(model)) ||
           varve_checkpoint(h, UINT64_C(1) << 40) || varve_close(ctx);
}
END
"${CC:-cc}" "${flags[@]}" other.c "${link[@]}" -lvarve -o other
VARVE_LEVEL=local VARVE_LOCAL=$dir/folder ./other
refused 'holds other checkpoints' run 1 varve ex20adj -ts_trajectory_varve_local "$dir/folder" -ts_trajectory_varve_keep model

# Killed in the middle: the job ends, and what was on the disk by then can be read.
run 2 varve several -count 1 -stop 20 -ts_type rk -ts_adapt_type none -ts_trajectory_varve_local "$dir/folder" -ts_trajectory_varve_keep cut &
job=$!
until [ "$(grep -c ^stopped varve.out)" = 2 ] && [ "$("$VARVE_BIN" ls --local folder cut | grep -c '^cut ')" = 42 ]; do
    kill -0 $job 2>/dev/null || { cat varve.out; fail "ended before it was killed"; }
    sleep 0.1
done
kill -9 "$(sed -n 's/^stopped //p' varve.out | head -1)"
rc=0
wait $job || rc=$?
[ $rc -ne 0 ] && [ $rc -ne 124 ] || { cat varve.out; fail "status $rc of a job that was killed"; }
run 2 varve kept -step 20 -ts_trajectory_varve_local "$dir/folder" -ts_trajectory_varve_keep cut || { cat varve.out; fail "a trajectory that was cut off"; }
shows '^time 0.2'
# It continues from there, and the adjoint is that of a run without a kill.
cut=(-count 1 -ts_type rk -ts_adapt_type none)
run 2 varve several "${cut[@]}" || { cat varve.out; fail "a run that is not killed"; }
sort varve.out >whole
run 2 varve several "${cut[@]}" -from 20 -ts_trajectory_varve_local "$dir/folder" -ts_trajectory_varve_keep cut ||
    { cat varve.out; fail "a run that goes on"; }
sort varve.out | diff whole - || fail "another adjoint after going on"
# A run that was killed when one process had stored its steps and the other had not: steps of two runs.
again=(-ts_trajectory_varve_local "$dir/folder" -ts_trajectory_varve_keep again)
solve=(ex5adj -da_grid_x 8 -da_grid_y 8 -ts_max_steps 6 -implicitform 0 -ts_type rk "${again[@]}")
load=(kept -step 3 -elements 64 "${again[@]}")
run 2 varve "${solve[@]}" || { cat varve.out; fail "a kept run"; }
run 2 varve "${load[@]}" || { cat varve.out; fail "a step of a kept run"; }
mkdir earlier && mv folder/again/r1.* earlier
run 2 varve "${solve[@]}" || { cat varve.out; fail "a kept run, again"; }
rm folder/again/r1.* folder/again/index.*
mv earlier/* folder/again
refused 'of different runs' run 2 varve "${load[@]}"
refused 'Unknown option complete' run 1 varve ex20adj -ts_trajectory_varve_level complete
VARVE_LEVEL=complete refused 'is kept at level local or remote' run 1 varve ex20adj
refused 'is kept: name it' run 1 varve ex20adj -ts_trajectory_varve_level local -ts_trajectory_varve_local "$dir/folder"

run 1 varve ex20adj -ts_view -ts_trajectory_varve_monitor -help -log_view
shows -ts_trajectory_varve_{host_cache,local,level,keep,monitor} 'level cached, host cache of' 'stored steps = 501' \
    'varve: stored 501 steps' '^TSTrajectorySet  *501 ' '^TSTrajectoryGet  *501 '
run 1 varve ex20adj -ts_trajectory_view
shows 'level cached, host cache of'

# Methods without an adjoint in PETSc end with PETSc's message, with every trajectory type.
for type in basic memory varve; do
    ! run 1 $type ex20adj -ts_max_steps 15 -ts_dt 0.001 -ts_type arkimex || fail "PETSc has an adjoint of ARKIMEX by now: compare it"
    grep -q 'No method adjointstep for TS of type arkimex' $type.out || { cat $type.out; fail "$type: arkimex"; }
done

refused 'varve_host_cache' run 2 varve "${spill[@]}" -ts_trajectory_varve_host_cache 1M
touch file
refused 'opening Varve' run 2 varve "${spill[@]}" -ts_trajectory_varve_local "$dir/file/folder"
VARVE_LOCAL_CACHE=1M refused 'storing a step' run 2 varve "${spill[@]}" -ts_trajectory_varve_host_cache 1M -ts_trajectory_varve_local "$dir/folder"
# A disk that is full, where a small one can be mounted.
if unshare -m true 2>/dev/null; then
    mkdir full
    real=$mpirun
    printf '#!/bin/sh\nexec unshare -m sh -c "mount -t tmpfs -o size=3m none %s && exec \\"\\$@\\"" sh %s "$@"\n' "$dir/full" "$real" >small
    chmod +x small
    mpirun=$dir/small
    refused 'no space is left\|no room' run 2 varve "${spill[@]}" -ts_trajectory_varve_host_cache 1M -ts_trajectory_varve_local "$dir/full"
    mpirun=$real
fi
refused 'varve_keep needs a value' run 1 varve ex20adj -ts_trajectory_varve_local "$dir/folder" -ts_trajectory_varve_keep
refused '1 to 200 bytes' run 1 varve ex20adj -ts_trajectory_varve_local "$dir/folder" -ts_trajectory_varve_keep "$(printf 'a%.0s' {1..230})"
refused 'a lot' run 1 varve ex20adj -ts_trajectory_varve_host_cache 'a lot'
refused 'forward sensitivities' run 1 varve ex20opt_ic -ts_type beuler -mu 100 -ts_dt 0.01 -tao_type bntr -tao_bnk_pc_type none
refused 'solution_only leaves out' run 1 varve ex20adj -ts_type cn -ts_dt 0.001 -ts_max_steps 15 -ts_trajectory_solution_only

# The library compiles where PetscOptionItems is a pointer, as in later versions of PETSc.
cp -rL "$(pkg-config --variable=includedir PETSc)" later
grep -rl --include='*.h' PetscOptionItems later | xargs sed -i -e 's/PetscOptionItems \*/PetscOptionItems /g' -e 's/^} PetscOptionItems;/};/' \
    -e 's/^typedef \(struct [_a-zA-Z]*PetscOptionItems\) {/typedef \1 *PetscOptionItems;\n\1 {/' \
    -e 's/PetscOptionItems  PetscOptionsObjectBase/struct _p_PetscOptionItems PetscOptionsObjectBase/'
"$mpicc" -std=gnu17 -fsyntax-only -Wall -Wextra -Werror -Ilater "-I$include" "$SOURCE_DIR/src/petsc/trajectory.c" >log 2>&1 ||
    { cat log; fail "the library does not compile where PetscOptionItems is a pointer"; }
echo "ok, $cases cases"
