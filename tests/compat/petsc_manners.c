/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses of a trajectory besides solving forward and back: it prints numbers that are the same
 * for each type of trajectory. Three elements on the first process, and none on the others.
 *
 *   -later    what PETSc's own types end in errors at, or show differently
 *   -leave    the TS and a clone of it stay alive when PETSc ends, and it begins again
 */
#include <petscts.h>

enum { STEPS = 40 };
static PetscMPIInt rank;

static PetscErrorCode rhs(TS ts, PetscReal t, Vec x, Vec f, void *ctx)
{
    PetscFunctionBeginUser;
    (void)ts, (void)t, (void)ctx;
    PetscCall(VecPointwiseMult(f, x, x));
    PetscCall(VecAYPX(f, -0.5, x));
    PetscFunctionReturn(0);
}

static PetscErrorCode jacobian(TS ts, PetscReal t, Vec x, Mat a, Mat b, void *ctx)
{
    Vec d;

    PetscFunctionBeginUser;
    (void)ts, (void)t, (void)a, (void)ctx;
    PetscCall(VecDuplicate(x, &d));
    PetscCall(VecCopy(x, d));
    PetscCall(VecScale(d, -1));
    PetscCall(VecShift(d, 1));
    PetscCall(MatDiagonalSet(b, d, INSERT_VALUES));
    PetscCall(VecDestroy(&d));
    PetscFunctionReturn(0);
}

/* One step is changed after it was taken, another one is rolled back and taken again. */
static PetscErrorCode after_step(TS ts)
{
    static PetscBool rolled;
    PetscInt step;
    Vec x;

    PetscFunctionBeginUser;
    PetscCall(TSGetStepNumber(ts, &step));
    PetscCall(TSGetSolution(ts, &x));
    if (step == 7) {
        PetscCall(VecScale(x, 1.01));
        PetscCall(TSRestartStep(ts));
    }
    if (step == 12 && !rolled) {
        rolled = PETSC_TRUE;
        PetscCall(TSRollBack(ts));
    }
    PetscFunctionReturn(0);
}

static PetscErrorCode make(MPI_Comm comm, PetscInt local, TS *ts, Vec *x, Vec *lambda)
{
    PetscInt low, high;
    Mat a;

    PetscFunctionBeginUser;
    PetscCall(VecCreateMPI(comm, local, PETSC_DETERMINE, x));
    PetscCall(VecDuplicate(*x, lambda));
    PetscCall(
        MatCreateAIJ(comm, local, local, PETSC_DETERMINE, PETSC_DETERMINE, 1, NULL, 0, NULL, &a));
    PetscCall(MatGetOwnershipRange(a, &low, &high));
    for (PetscInt i = low; i < high; i++)
        PetscCall(MatSetValue(a, i, i, 0, INSERT_VALUES));
    PetscCall(MatAssemblyBegin(a, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(a, MAT_FINAL_ASSEMBLY));
    PetscCall(TSCreate(comm, ts));
    PetscCall(TSSetType(*ts, TSRK));
    PetscCall(TSSetRHSFunction(*ts, NULL, rhs, NULL));
    PetscCall(TSSetRHSJacobian(*ts, a, a, jacobian, NULL));
    PetscCall(MatDestroy(&a));
    PetscCall(TSSetMaxTime(*ts, 100));
    PetscCall(TSSetExactFinalTime(*ts, TS_EXACTFINALTIME_STEPOVER));
    PetscCall(TSSetSaveTrajectory(*ts));
    PetscCall(TSSetFromOptions(*ts));
    PetscFunctionReturn(0);
}

static PetscErrorCode solve(TS ts, Vec x, PetscInt steps)
{
    PetscInt low, high;

    PetscFunctionBeginUser;
    PetscCall(VecGetOwnershipRange(x, &low, &high));
    for (PetscInt i = low; i < high; i++)
        PetscCall(VecSetValue(x, i, 0.1 + 0.01 * (PetscReal)i, INSERT_VALUES));
    PetscCall(VecAssemblyBegin(x));
    PetscCall(VecAssemblyEnd(x));
    PetscCall(TSSetMaxSteps(ts, steps));
    PetscCall(TSSetStepNumber(ts, 0));
    PetscCall(TSSetTime(ts, 0));
    PetscCall(TSSetTimeStep(ts, 0.05));
    PetscCall(TSSolve(ts, x));
    PetscFunctionReturn(0);
}

static PetscErrorCode print(const char *what, Vec v)
{
    PetscReal norm;

    PetscFunctionBeginUser;
    PetscCall(VecNorm(v, NORM_1, &norm));
    PetscCall(PetscPrintf(PetscObjectComm((PetscObject)v), "%s %a\n", what, (double)norm));
    PetscFunctionReturn(0);
}

static PetscErrorCode adjoint(TS ts, Vec lambda, PetscInt from, PetscInt parts, PetscInt steps)
{
    PetscFunctionBeginUser;
    PetscCall(VecSet(lambda, 1));
    PetscCall(TSSetCostGradients(ts, 1, &lambda, NULL));
    PetscCall(TSSetStepNumber(ts, from));
    for (PetscInt i = 0; i < parts; i++) {
        PetscCall(TSAdjointSetSteps(ts, steps));
        PetscCall(TSAdjointSolve(ts));
        PetscCall(print("adjoint", lambda));
    }
    PetscFunctionReturn(0);
}

/* Times between the steps, for which PETSc loads some of them; a step by its number, without the TS. */
static PetscErrorCode interpolate(TS ts, Vec x)
{
    TSTrajectory tj;
    PetscReal time;
    Vec u, rate;

    PetscFunctionBeginUser;
    PetscCall(TSGetTrajectory(ts, &tj));
    PetscCall(VecDuplicate(x, &u));
    PetscCall(VecDuplicate(x, &rate));
    for (int i = 8; i > 0; i--) {
        time = 0.07 * i;
        PetscCall(TSTrajectoryGetVecs(tj, ts, PETSC_DECIDE, &time, u, rate));
        PetscCall(print("between steps", u));
        PetscCall(print("rate", rate));
    }
    PetscCall(TSTrajectoryGetVecs(tj, NULL, 11, &time, u, NULL));
    PetscCall(print("by number", u));
    PetscCall(VecDestroy(&u));
    PetscCall(VecDestroy(&rate));
    PetscFunctionReturn(0);
}

static PetscErrorCode same_for_all(TS ts, Vec x, Vec lambda)
{
    TSTrajectoryType type;
    TSTrajectory tj;
    char own[32];
    TS alone;
    Vec y, mu;

    PetscFunctionBeginUser;
    PetscCall(make(PETSC_COMM_SELF, 2 + rank, &alone, &y, &mu));
    PetscCall(solve(ts, x, STEPS));
    PetscCall(solve(alone, y, STEPS / 2 + rank)); /* both are alive */
    PetscCall(interpolate(ts, x));
    PetscCall(adjoint(ts, lambda, STEPS, 4, STEPS / 4));
    if (rank == 0)
        PetscCall(adjoint(alone, mu, STEPS / 2, 1, 0));
    PetscCall(adjoint(ts, lambda, STEPS, 1, 0)); /* again, after one solve */
    PetscCall(TSSetPostStep(ts, after_step));
    PetscCall(solve(ts, x, STEPS / 2));
    PetscCall(adjoint(ts, lambda, STEPS / 2, 1, 0));
    /* Another type than the one that was set up, and back. */
    PetscCall(TSGetTrajectory(ts, &tj));
    PetscCall(TSTrajectoryGetType(tj, ts, &type));
    PetscCall(PetscStrncpy(own, type, sizeof(own)));
    for (int i = 0; i < 2; i++) {
        PetscCall(TSTrajectorySetType(tj, ts, i == 0 ? TSTRAJECTORYBASIC : own));
        PetscCall(solve(ts, x, STEPS));
        PetscCall(adjoint(ts, lambda, STEPS, 1, 0));
    }
    PetscCall(TSDestroy(&alone));
    PetscCall(VecDestroy(&y));
    PetscCall(VecDestroy(&mu));
    PetscFunctionReturn(0);
}

static PetscErrorCode later(TS ts, Vec x, Vec lambda)
{
    TSTrajectory tj;
    PetscReal time;
    Vec u;

    PetscFunctionBeginUser;
    PetscCall(solve(ts, x, STEPS));
    PetscCall(adjoint(ts, lambda, STEPS, 1, 0));
    /* Set up again. */
    PetscCall(TSGetTrajectory(ts, &tj));
    PetscCall(TSTrajectoryReset(tj));
    PetscCall(solve(ts, x, STEPS));
    PetscCall(adjoint(ts, lambda, STEPS, 1, 0));
    /* A trajectory may outlive its TS. */
    PetscCall(PetscObjectReference((PetscObject)tj));
    PetscCall(TSRemoveTrajectory(ts));
    PetscCall(VecDuplicate(x, &u));
    PetscCall(TSTrajectoryGetVecs(tj, NULL, 5, &time, u, NULL));
    /* Steps of a program that has no TS. */
    for (PetscInt step = 0; step < 3; step++)
        PetscCall(TSTrajectorySet(tj, NULL, step, 0.5 * (PetscReal)step, u));
    PetscCall(TSTrajectoryGetVecs(tj, NULL, 1, &time, x, NULL));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "time %g\n", (double)time));
    PetscCall(VecDestroy(&u));
    PetscCall(TSTrajectoryDestroy(&tj));
    PetscFunctionReturn(0);
}

static PetscErrorCode program(int argc, char **argv, PetscBool *ret_leave)
{
    PetscBool leave = PETSC_FALSE, more = PETSC_FALSE;
    Vec x, lambda;
    TS ts, copy;

    PetscFunctionBeginUser;
    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(PetscOptionsGetBool(NULL, NULL, "-leave", &leave, NULL));
    PetscCall(PetscOptionsGetBool(NULL, NULL, "-later", &more, NULL));
    PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
    PetscCall(make(PETSC_COMM_WORLD, rank == 0 ? 3 : 0, &ts, &x, &lambda));
    if (leave) {
        PetscCall(solve(ts, x, STEPS));
        PetscCall(TSClone(ts, &copy));
        PetscCall(TSView(copy, PETSC_VIEWER_STDOUT_WORLD));
    } else if (more) {
        PetscCall(later(ts, x, lambda));
    } else {
        PetscCall(same_for_all(ts, x, lambda));
    }
    if (!leave)
        PetscCall(TSDestroy(&ts));
    PetscCall(VecDestroy(&x));
    PetscCall(VecDestroy(&lambda));
    *ret_leave = leave;
    return PetscFinalize();
}

int main(int argc, char **argv)
{
    PetscBool leave;

    if (MPI_Init(&argc, &argv))
        return 1;
    PetscCall(program(argc, argv, &leave));
    if (leave) /* PETSc again, with the trajectory that it left alive */
        PetscCall(program(argc, argv, &leave));
    return MPI_Finalize();
}
