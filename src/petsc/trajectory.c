/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trajectory type `varve` for PETSc's time steppers (TSTrajectory): a history instead of a file for each step. PETSc
 * opens this library (-dll_append) and calls its register function; then -ts_trajectory_type varve selects it.
 *
 * Invariants: each TSTrajectory has its own history; step n is version n, with the regions HEADER, the solution, and the
 * stages from t(n-1) to t(n). Storing a step again first removes that step and all later ones, so that the second solve
 * of a loop never reads a step of the first. Loading fails if a step does not match: the sizes and number of vectors are
 * in the header and are compared. An application can read the steps that the previous one kept, until it stores its own.
 *
 * Trajectories with the same options share a context, so that several in one program stay within one host
 * cache. A context is closed with its last trajectory, or in PetscFinalize if a trajectory was left alive:
 * later PETSc may close this library, whose code must not run any more.
 *
 * Threads: PETSc's, one at a time. An error of one process ends the job, like all errors of PETSc.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <petsc/private/tsimpl.h>
#include <petscdevice.h>

#include <varve/ckpt.h>

/*
 * The type of the last argument of `setfromoptions`: a pointer to PetscOptionItems, or PetscOptionItems itself
 * if that is a pointer, as in newer releases of PETSc (a release between 3.18 and 3.25 changed it).
 */
enum { CLASS_OF_POINTERS = 5 };
#define OPTION_ITEMS                                                                       \
    __typeof__(__builtin_choose_expr(__builtin_classify_type(*(PetscOptionItems *)NULL) == \
                                         CLASS_OF_POINTERS,                                \
                                     *(PetscOptionItems *)NULL, (PetscOptionItems *)NULL))

enum { HEADER, SOLUTION, STAGES };

struct context {
    struct varve_opts opts;
    struct varve_ctx *ctx;
    int users;
    struct context *next;
};

static struct context *contexts;

/* The levels that -ts_trajectory_varve_level takes, in the order of enum varve_level. */
static const char *const levels[] = {"cached", "local", "remote"};
enum { LEVELS = 3 };

/* The name under which a TS keeps its method's view. */
static const char view_name[] = "TSTrajectoryVarveView_C";

struct header {
    PetscReal time, previous; /* the end of the step and its beginning */
    uint64_t vectors;
    uint64_t scalar_bytes;
    uint64_t local; /* number of a vector's elements in this process */
    uint64_t run;   /* the same in all processes; 0: not kept */
};

struct trajectory {
    struct varve_opts opts;
    struct context *context;
    struct varve_history *history;
    char keep[PETSC_MAX_PATH_LEN]; /* name of a kept history; empty: it is not kept */
    PetscInt next;                 /* only steps below it may exist */
    PetscInt mine; /* steps from it on are of this run, those below of earlier runs */
    uint64_t run;
    PetscBool monitor;
    /* Scratch of one call; `room` is the largest number of vectors so far. */
    PetscInt room;
    struct varve_region *regions;
    Vec *vectors;
    PetscLogDouble stored_bytes;
    PetscInt stored, loaded;
};

/* Converts an error of Varve to PETSc's. The text is that of the call that has just failed. */
static PetscErrorCode fail(int rc, struct varve_ctx *ctx, const char *what)
{
    PetscErrorCode code = rc == -ENOMEM   ? PETSC_ERR_MEM
                          : rc == -EINVAL ? PETSC_ERR_USER_INPUT
                                          : PETSC_ERR_LIB;
    const char *text = varve_error(ctx);
    /* Varve's texts name settings; add their options of PETSc. */
    const char *more = strstr(text, "set `") || strstr(text, "host_cache")
                           ? " (-ts_trajectory_varve_host_cache and _local, or VARVE_HOST_CACHE, "
                             "VARVE_LOCAL, VARVE_REMOTE in the environment)"
                           : "";
    SETERRQ(PETSC_COMM_SELF, code, "%s: %s%s", what, text, more);
}

#define CALL(rc, ctx, what)                  \
    do {                                     \
        int rc_ = (rc);                      \
        if (rc_)                             \
            PetscCall(fail(rc_, ctx, what)); \
    } while (0)

static PetscErrorCode share_context(const struct varve_opts *opts, struct context **ret_context)
{
    PetscFunctionBegin;
    for (struct context *c = contexts; c; c = c->next)
        if (memcmp(&c->opts, opts, sizeof(*opts)) == 0) {
            c->users++;
            *ret_context = c;
            PetscFunctionReturn(0);
        }
    struct context *c;
    struct varve_ctx *ctx;
    CALL(varve_open(opts, &ctx), NULL, "opening Varve for a trajectory");
    PetscCall(PetscNew(&c));
    *c = (struct context){.opts = *opts, .ctx = ctx, .users = 1, .next = contexts};
    contexts = c;
    *ret_context = c;
    PetscFunctionReturn(0);
}

static PetscErrorCode release_context(struct context *c)
{
    PetscFunctionBegin;
    if (--c->users > 0)
        PetscFunctionReturn(0);
    for (struct context **at = &contexts; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    struct varve_ctx *ctx = c->ctx;
    PetscCall(PetscFree(c));
    CALL(varve_close(ctx), NULL, "closing Varve");
    PetscFunctionReturn(0);
}

static PetscErrorCode trajectory_reset(TSTrajectory tj)
{
    struct trajectory *t = tj->data;

    PetscFunctionBegin;
    if (t->history) {
        struct varve_ctx *ctx = t->context->ctx;
        struct varve_history *h = t->history;
        if (t->monitor) {
            struct varve_stats s = {.stats_size = sizeof(s)};
            CALL(varve_stats(ctx, &s), ctx, "figures of a trajectory");
            PetscCall(PetscPrintf(PetscObjectComm((PetscObject)tj),
                                  "varve: stored %" PetscInt_FMT
                                  " steps, %.0f bytes in the first process; loaded %" PetscInt_FMT
                                  ", of %" PRIu64 " restores %" PRIu64 " from memory\n",
                                  t->stored, t->stored_bytes, t->loaded, s.restores,
                                  s.restore_hits));
        }
        t->history = NULL;
        CALL(varve_history_close(h), ctx, "closing a trajectory");
    }
    if (t->context) {
        struct context *c = t->context;
        t->context = NULL;
        PetscCall(release_context(c));
    }
    PetscCall(PetscFree2(t->regions, t->vectors));
    t->room = t->next = t->stored = t->loaded = 0;
    t->stored_bytes = 0;
    /* PETSc then sets up again, also a type that replaces this one. */
    tj->setupcalled = PETSC_FALSE;
    PetscFunctionReturn(0);
}

static PetscErrorCode trajectory_destroy(TSTrajectory tj)
{
    PetscFunctionBegin;
    PetscCall(trajectory_reset(tj));
    PetscCall(PetscFree(tj->data));
    /* PETSc is about to remove the folder of -ts_trajectory_dirname, which may be ours. If the object is only changed
     * to another type, that type removes its own folder. */
    if (((PetscObject)tj)->refct <= 0)
        tj->keepfiles = PETSC_TRUE;
    PetscFunctionReturn(0);
}

/* Finds the steps that an earlier run has kept, which can be read until this run stores them again. */
static PetscErrorCode find_kept(struct trajectory *t)
{
    struct varve_ctx *ctx = t->context->ctx;
    uint64_t *versions;
    size_t n;

    PetscFunctionBegin;
    CALL(varve_versions(t->history, NULL, 0, &n), ctx, "steps of a kept trajectory");
    PetscCall(PetscMalloc1(n, &versions));
    CALL(varve_versions(t->history, versions, n, &n), ctx, "steps of a kept trajectory");
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        int rc = varve_region_size(t->history, versions[i], HEADER, &bytes);
        PetscCheck(
            rc == 0 && bytes == sizeof(struct header) && versions[i] < (uint64_t)PETSC_MAX_INT,
            PETSC_COMM_SELF, PETSC_ERR_FILE_UNEXPECTED,
            "'%s' holds other checkpoints than steps of a trajectory of this PETSc, which would "
            "remove them: give -ts_trajectory_varve_keep another name",
            t->keep);
        t->next = PetscMax(t->next, (PetscInt)versions[i] + 1);
    }
    PetscCall(PetscFree(versions));
    PetscFunctionReturn(0);
}

/* Draws a number for the steps that all processes store from now on. */
static PetscErrorCode draw_run(MPI_Comm comm, uint64_t *ret_run)
{
    uint64_t run = 0;

    PetscFunctionBegin;
    PetscCheck(getrandom(&run, sizeof(run), 0) == sizeof(run), PETSC_COMM_SELF, PETSC_ERR_SYS,
               "getrandom: %s", strerror(errno));
    PetscCallMPI(MPI_Bcast(&run, 1, MPI_UINT64_T, 0, comm));
    *ret_run = run;
    PetscFunctionReturn(0);
}

/* Checks that all processes have a step from the same run. A killed run may have stored its last steps in some processes
 * only, while others still have those of an earlier run; together these are not one state. Collective. */
static PetscErrorCode check_run(MPI_Comm comm, PetscInt step, uint64_t run)
{
    uint64_t ours[2] = {run, ~run}, most[2];

    PetscFunctionBegin;
    PetscCallMPI(MPI_Allreduce(ours, most, 2, MPI_UINT64_T, MPI_MAX, comm));
    PetscCheck(most[0] == ~most[1], comm, PETSC_ERR_FILE_UNEXPECTED,
               "Step %" PetscInt_FMT
               " of the kept trajectory is of different runs in different processes: load an "
               "earlier step, or begin again",
               step);
    PetscFunctionReturn(0);
}

/* -ts_view shows no trajectory by itself: show this one after the method's view. */
static PetscErrorCode view_with_trajectory(TS ts, PetscViewer viewer)
{
    PetscErrorCode (*view)(TS, PetscViewer) = NULL;
    PetscBool ours = PETSC_FALSE;

    PetscFunctionBegin;
    PetscCall(PetscObjectQueryFunction((PetscObject)ts, view_name, &view));
    if (!view && ts->trajectory)
        PetscCall(PetscObjectQueryFunction((PetscObject)ts->trajectory, view_name, &view));
    if (view)
        PetscCall((*view)(ts, viewer));
    if (ts->trajectory)
        PetscCall(PetscObjectTypeCompare((PetscObject)ts->trajectory, "varve", &ours));
    if (ours)
        PetscCall(TSTrajectoryView(ts->trajectory, viewer));
    PetscFunctionReturn(0);
}

/* Hooks into the view of a TS. Each TS has its own table of functions. TSSetType fills the table again; TSClone
 * copies it, but not the objects composed with the TS. */
static PetscErrorCode join_view(TSTrajectory tj, TS ts)
{
    PetscFunctionBegin;
    if (ts->ops->view != view_with_trajectory) {
        PetscCall(PetscObjectComposeFunction((PetscObject)ts, view_name, ts->ops->view));
        PetscCall(PetscObjectComposeFunction((PetscObject)tj, view_name, ts->ops->view));
        ts->ops->view = view_with_trajectory;
    }
    PetscFunctionReturn(0);
}

/* The history's name is unique among running jobs, which may use one folder. The declared order is that of the adjoint,
 * which reads from the last step to the first; without an adjoint the library detects the order. */
static PetscErrorCode trajectory_setup(TSTrajectory tj, TS ts)
{
    static int count;
    struct trajectory *t = tj->data;
    struct varve_history_opts opts;
    char name[64];

    PetscFunctionBegin;
    PetscCall(trajectory_reset(tj)); /* clean up after a set-up that failed */
    if (ts)
        PetscCall(join_view(tj, ts));
    if (t->keep[0] && t->opts.level == VARVE_LEVEL_CACHED)
        t->opts.level = VARVE_LEVEL_LOCAL;
    PetscCheck(t->opts.level < LEVELS, PetscObjectComm((PetscObject)tj), PETSC_ERR_USER_INPUT,
               "A trajectory is kept at level local or remote: set -ts_trajectory_varve_level, or "
               "VARVE_LEVEL in the environment");
    PetscCheck(
        t->keep[0] || t->opts.level == VARVE_LEVEL_CACHED, PetscObjectComm((PetscObject)tj),
        PETSC_ERR_USER_INPUT,
        "A trajectory above level cached is kept: name it with -ts_trajectory_varve_keep, or use "
        "-ts_trajectory_varve_level cached");
    PetscCall(share_context(&t->opts, &t->context));
    CALL(varve_history_opts_init(&opts, sizeof(opts)), NULL, "options of a history");
    opts.order = tj->adjoint_solve_mode ? VARVE_ORDER_LIFO : VARVE_ORDER_HINTS;
    snprintf(name, sizeof(name), "petsc-%ld-%d", (long)getpid(), count++);
    CALL(varve_history_open_with(t->context->ctx, t->keep[0] ? t->keep : name, &opts, &t->history),
         t->context->ctx, "opening a trajectory (one that is kept is of one run at a time)");
    PetscCall(find_kept(t));
    t->mine = PETSC_MAX_INT;
    if (t->keep[0])
        PetscCall(draw_run(PetscObjectComm((PetscObject)tj), &t->run));
    PetscFunctionReturn(0);
}

/* Sets one option, if it is given. PETSc's option overrides the environment. */
static PetscErrorCode set_option(struct trajectory *t, PetscBool given, const char *key,
                                 const char *value)
{
    PetscFunctionBegin;
    if (!given)
        PetscFunctionReturn(0);
    PetscCheck(value[0], PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
               "-ts_trajectory_varve_%s needs a value", key);
    if (strcmp(key, "keep") == 0)
        PetscCall(PetscStrncpy(t->keep, value, sizeof(t->keep)));
    else
        CALL(varve_opts_set(&t->opts, key, value), NULL, "-ts_trajectory_varve_*");
    PetscFunctionReturn(0);
}

static PetscErrorCode trajectory_setfromoptions(TSTrajectory tj, OPTION_ITEMS PetscOptionsObject)
{
    struct trajectory *t = tj->data;
    char value[PETSC_MAX_PATH_LEN], now[32];
    PetscInt level;
    PetscBool set;

    PetscFunctionBegin;
    PetscOptionsHeadBegin(PetscOptionsObject, "TS trajectory options for Varve");
    snprintf(now, sizeof(now), "%" PRIu64, t->opts.host_cache);
    PetscCall(PetscOptionsString("-ts_trajectory_varve_host_cache", "Host memory for steps (512M)",
                                 "None", now, value, sizeof(value), &set));
    PetscCall(set_option(t, set, "host_cache", value));
    PetscCall(PetscOptionsString("-ts_trajectory_varve_local",
                                 "Folder on a local disk for steps that do not fit there", "None",
                                 t->opts.local, value, sizeof(value), &set));
    PetscCall(set_option(t, set, "local", value));
    level = t->opts.level;
    PetscCall(PetscOptionsEList("-ts_trajectory_varve_level", "Level that each step is to reach",
                                "None", levels, LEVELS, levels[PetscMin(level, LEVELS - 1)], &level,
                                NULL));
    t->opts.level = level;
    PetscCall(PetscOptionsString("-ts_trajectory_varve_keep",
                                 "Keep the trajectory in the folder under this name", "None",
                                 t->keep, value, sizeof(value), &set));
    PetscCall(set_option(t, set, "keep", value));
    PetscCall(PetscOptionsBool("-ts_trajectory_varve_monitor", "Print counts of steps at the end",
                               "None", t->monitor, &t->monitor, NULL));
    PetscOptionsHeadEnd();
    PetscFunctionReturn(0);
}

/* Collects the solution and the stages of `step`, in the same order for `set` and `get`; no stages without a
 * TS. The last stage of a stiffly accurate method is the solution. */
static PetscErrorCode collect(TSTrajectory tj, TS ts, PetscInt step, Vec x, PetscInt *ret_n)
{
    struct trajectory *t = tj->data;
    PetscInt stages = 0;
    Vec *y = NULL;

    PetscFunctionBegin;
    if (ts && step > 0 && !tj->solution_only) {
        PetscCall(TSGetStages(ts, &stages, &y));
        PetscCheck(stages == 0 || y, PetscObjectComm((PetscObject)tj), PETSC_ERR_ORDER,
                   "Step %" PetscInt_FMT
                   " has stages, and its TS has no room for them: call TSSetUp first",
                   step);
        if (ts->stifflyaccurate && stages > 0)
            stages--;
    }
    if (1 + stages > t->room) {
        PetscCall(PetscFree2(t->regions, t->vectors));
        PetscCall(PetscMalloc2(2 + stages, &t->regions, 1 + stages, &t->vectors));
        t->room = 1 + stages;
    }
    t->vectors[0] = x;
    for (PetscInt i = 0; i < stages; i++)
        t->vectors[1 + i] = y[i];
    *ret_n = 1 + stages;
    PetscFunctionReturn(0);
}

/* Gets the addresses of the vectors, on the host or on a device, for reading or writing. PETSc's work on a device has
 * then ended, on all streams. */
static PetscErrorCode borrow(struct trajectory *t, struct header *header, PetscInt n,
                             PetscBool to_write)
{
    PetscFunctionBegin;
    t->regions[HEADER] = (struct varve_region){HEADER, header, sizeof(*header)};
    for (PetscInt i = 0; i < n; i++) {
        PetscInt local;
        PetscScalar *array;
        PetscMemType kind;
        PetscCall(VecGetLocalSize(t->vectors[i], &local));
        if (to_write)
            PetscCall(VecGetArrayWriteAndMemType(t->vectors[i], &array, &kind));
        else
            PetscCall(
                VecGetArrayReadAndMemType(t->vectors[i], (const PetscScalar **)&array, &kind));
        if (!PetscMemTypeHost(kind)) {
            PetscDeviceContext device;
            PetscCheck(PetscMemTypeCUDA(kind), PETSC_COMM_SELF, PETSC_ERR_SUP,
                       "A trajectory of type varve takes vectors in memory of the host or of CUDA, "
                       "not of another device: use -ts_trajectory_type basic or memory");
            PetscCall(PetscDeviceContextGetCurrentContext(&device));
            PetscCall(PetscDeviceContextSynchronize(device));
        }
        t->regions[SOLUTION + i] =
            (struct varve_region){(int)(SOLUTION + i), array, (size_t)local * sizeof(PetscScalar)};
    }
    PetscFunctionReturn(0);
}

static PetscErrorCode give_back(struct trajectory *t, PetscInt n, PetscBool written)
{
    PetscFunctionBegin;
    for (PetscInt i = 0; i < n; i++) {
        PetscScalar *array = t->regions[SOLUTION + i].ptr;
        if (written)
            PetscCall(VecRestoreArrayWriteAndMemType(t->vectors[i], &array));
        else
            PetscCall(VecRestoreArrayReadAndMemType(t->vectors[i], (const PetscScalar **)&array));
    }
    PetscFunctionReturn(0);
}

/* Refuses second-order adjoints: their sensitivities would be stale when they are read back. */
static PetscErrorCode refuse_second_order(TSTrajectory tj, TS ts)
{
    PetscFunctionBegin;
    PetscCheck(!ts || !ts->forward_solve, PetscObjectComm((PetscObject)tj), PETSC_ERR_SUP,
               "A trajectory of type varve stores no forward sensitivities, which second-order "
               "adjoints need: use "
               "-ts_trajectory_type basic or memory");
    PetscFunctionReturn(0);
}

static PetscErrorCode trajectory_set(TSTrajectory tj, TS ts, PetscInt step, PetscReal time, Vec x)
{
    struct trajectory *t = tj->data;
    PetscInt n, local;
    PetscReal previous = time;

    PetscFunctionBegin;
    PetscCall(refuse_second_order(tj, ts));
    /* Steps in between may be missing. A step with a damaged file is not listed, so always try this step. */
    for (PetscInt v = step; v < PetscMax(t->next, step + 1); v++)
        (void)varve_discard(t->history, (uint64_t)v);
    PetscCall(collect(tj, ts, step, x, &n));
    if (ts && step > 0)
        PetscCall(TSGetPrevTime(ts, &previous));
    PetscCall(VecGetLocalSize(x, &local));
    struct header header = {time,  previous, (uint64_t)n, sizeof(PetscScalar), (uint64_t)local,
                            t->run};
    PetscCall(borrow(t, &header, n, PETSC_FALSE));
    int rc = varve_checkpoint_of(t->history, (uint64_t)step, t->regions, (size_t)n + 1, -1);
    PetscCall(give_back(t, n, PETSC_FALSE));
    CALL(rc, t->context->ctx, "storing a step of a trajectory");
    t->next = step + 1;
    t->mine = PetscMin(t->mine, step);
    t->stored++;
    t->stored_bytes += (double)n * (double)local * sizeof(PetscScalar);
    PetscFunctionReturn(0);
}

static PetscErrorCode trajectory_get(TSTrajectory tj, TS ts, PetscInt step, PetscReal *ret_time)
{
    struct trajectory *t = tj->data;
    struct header header = {0};
    PetscInt n, local;
    Vec x;

    PetscFunctionBegin;
    PetscCall(refuse_second_order(tj, ts));
    PetscCheck(!(step > 0 && tj->solution_only && tj->adjoint_solve_mode && ts->adjointsetupcalled),
               PetscObjectComm((PetscObject)tj), PETSC_ERR_SUP,
               "An adjoint needs the stages, which -ts_trajectory_solution_only leaves out: leave "
               "that option out, or use "
               "-ts_trajectory_type memory, which computes them again");
    PetscCall(TSGetSolution(ts, &x));
    PetscCall(collect(tj, ts, step, x, &n));
    PetscCall(borrow(t, &header, n, PETSC_TRUE));
    int rc = varve_restore_to(t->history, (uint64_t)step, t->regions, (size_t)n + 1, -1);
    PetscCall(give_back(t, n, PETSC_TRUE));
    CALL(rc, t->context->ctx, "loading a step of a trajectory");
    PetscCall(VecGetLocalSize(x, &local));
    PetscCheck(header.vectors >= (uint64_t)n && header.scalar_bytes == sizeof(PetscScalar) &&
                   header.local == (uint64_t)local,
               PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
               "Step %" PetscInt_FMT " was stored with %" PRIu64 " vectors of %" PRIu64
               " elements, and is loaded into %" PetscInt_FMT " of %" PetscInt_FMT,
               step, header.vectors, header.local, n, local);
    if (t->keep[0] && step < t->mine)
        PetscCall(check_run(PetscObjectComm((PetscObject)tj), step, header.run));
    *ret_time = header.time;
    if (step > 0 && tj->adjoint_solve_mode && !tj->solution_only)
        PetscCall(TSSetTimeStep(ts, header.previous - header.time));
    t->loaded++;
    PetscFunctionReturn(0);
}

static PetscErrorCode trajectory_view(TSTrajectory tj, PetscViewer viewer)
{
    struct trajectory *t = tj->data;

    PetscFunctionBegin;
    PetscCall(PetscViewerASCIIPrintf(
        viewer, "Varve %s: level %s, host cache of %" PRIu64 " bytes, local folder %s\n",
        varve_version(), levels[PetscMin(t->opts.level, LEVELS - 1)], t->opts.host_cache,
        t->opts.local[0] ? t->opts.local : "(none)"));
    if (t->keep[0])
        PetscCall(PetscViewerASCIIPrintf(viewer, "kept as %s\n", t->keep));
    PetscCall(PetscViewerASCIIPrintf(
        viewer, "stored steps = %" PetscInt_FMT ", loaded steps = %" PetscInt_FMT "\n", t->stored,
        t->loaded));
    PetscFunctionReturn(0);
}

static PetscErrorCode trajectory_create(TSTrajectory tj, TS ts)
{
    struct trajectory *t;
    PetscMPIInt rank, ranks;

    PetscFunctionBegin;
    (void)ts;
    PetscCall(PetscNew(&t));
    tj->data = t;
    tj->setupcalled = PETSC_FALSE; /* another type may have been set up before */
    tj->ops->set = trajectory_set;
    tj->ops->get = trajectory_get;
    tj->ops->setup = trajectory_setup;
    tj->ops->setfromoptions = trajectory_setfromoptions;
    tj->ops->reset = trajectory_reset;
    tj->ops->destroy = trajectory_destroy;
    tj->ops->view = trajectory_view;
    CALL(varve_opts_init(&t->opts, sizeof(t->opts)), NULL, "options of Varve");
    /* Use the rank in the job, because trajectories of several communicators may use one folder. */
    PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
    PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &ranks));
    t->opts.rank = rank;
    t->opts.ranks = ranks;
    PetscFunctionReturn(0);
}

/*
 * PETSc's private structures and the size of its numbers are compiled in: a PETSc other than that of the build is
 * refused, because it might store only half of each vector.
 */
static PetscErrorCode check_petsc(void)
{
    /* The running PETSc's PetscInt may be wider than ours. */
    union {
        PetscInt value;
        int64_t room;
    } major = {.room = 0}, minor = {.room = 0};
    PetscDataType type;
    size_t scalar = 0, integer = 0;
    PetscBool found;

    PetscFunctionBegin;
    PetscCall(PetscGetVersionNumber(&major.value, &minor.value, NULL, NULL));
    PetscCall(PetscDataTypeFromString("scalar", &type, &found));
    if (found)
        PetscCall(PetscDataTypeGetSize(type, &scalar));
    PetscCall(PetscDataTypeGetSize(PETSC_INT, &integer));
    PetscCheck(major.value == PETSC_VERSION_MAJOR && minor.value == PETSC_VERSION_MINOR &&
                   scalar == sizeof(PetscScalar) && integer == sizeof(PetscInt),
               PETSC_COMM_SELF, PETSC_ERR_SUP,
               "libvarve-petsc.so was built for PETSc %d.%d with scalars of %d and integers of %d "
               "bytes, and this is %" PetscInt_FMT ".%" PetscInt_FMT
               " with %d and %d: build Varve with this PETSc's folder in PKG_CONFIG_PATH",
               PETSC_VERSION_MAJOR, PETSC_VERSION_MINOR, (int)sizeof(PetscScalar),
               (int)sizeof(PetscInt), major.value, minor.value, (int)scalar, (int)integer);
    PetscFunctionReturn(0);
}

/* Called by PetscFinalize, for a program that leaves a TS alive: its kept trajectories must then be on the disk. */
static PetscErrorCode close_contexts(void)
{
    PetscFunctionBegin;
    while (contexts) {
        contexts->users = 1;
        PetscCall(release_context(contexts));
    }
    PetscFunctionReturn(0);
}

/* PETSc derives this name from the file's: libvarve-petsc.so. */
PETSC_EXTERN VARVE_API PetscErrorCode PetscDLLibraryRegister_varve_petsc(void);

PetscErrorCode PetscDLLibraryRegister_varve_petsc(void)
{
    PetscFunctionBegin;
    PetscCall(check_petsc());
    PetscCall(TSTrajectoryRegister("varve", trajectory_create));
    PetscCall(PetscRegisterFinalize(close_contexts));
    PetscFunctionReturn(0);
}
