/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trajectory of PETSc's time steppers (TSTrajectory) of type `varve`: a history in place of a file
 * for each step. PETSc opens this library (-dll_append) and calls its register function; from then on
 * -ts_trajectory_type varve names it.
 *
 * Holds true: each TSTrajectory has a history of its own; step n is version n, with the regions
 * HEADER, the solution, and the stages from t(n-1) to t(n). A step that is stored again takes it and
 * all later ones away first, so that the second solve of a loop never reads a step of the first. The
 * call fails if a step does not have all that is read: sizes and the number of vectors are in the header
 * and are compared. What an application kept can be read by the next one, before it stores its own.
 *
 * Contexts are shared by trajectories with the same options, so that several in one program stay
 * within one host cache. They are closed with their last trajectory, which PETSc destroys before
 * PetscFinalize: after that, this library may be closed and its code must not run.
 *
 * Threads: PETSc's, one at a time. Errors of one process end the job, as PETSc's errors do.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <petsc/private/tsimpl.h>
#include <petscdevice.h>

#include <varve/ckpt.h>

/*
 * The last argument of `setfromoptions`. PETSc made PetscOptionItems a pointer between 3.18 and 3.25.
 */
struct _n_PetscOptionItems;
#define OPTION_ITEMS \
    __typeof__(_Generic((PetscOptionItems *)NULL, struct _n_PetscOptionItems * *                   \
                        : (struct _n_PetscOptionItems *)NULL, default                              \
                        : (PetscOptionItems *)NULL))

enum { HEADER, SOLUTION, STAGES };

struct context {
    struct varve_opts opts;
    struct varve_ctx *ctx;
    int users;
    struct context *next;
};

static struct context *contexts;

struct header {
    PetscReal time, previous; /* the end of the step and its beginning */
    uint64_t vectors;
    uint64_t scalar_bytes;
    uint64_t local; /* elements of a vector in this process */
};

struct trajectory {
    struct varve_opts opts;
    struct context *context;
    struct varve_history *history;
    char keep[200]; /* the history's name, if it is to stay */
    PetscInt next;  /* steps below it may exist, others do not */
    PetscBool monitor;
    /* Of one call; as many as there were vectors at most. */
    PetscInt room;
    struct varve_region *regions;
    Vec *vectors;
    PetscLogDouble stored_bytes;
    PetscInt stored, loaded;
};

/* PETSc's error for ours. The text is that of the call that has just failed. */
static PetscErrorCode fail(int rc, struct varve_ctx *ctx, const char *what)
{
    PetscErrorCode code = rc == -ENOMEM ? PETSC_ERR_MEM : PETSC_ERR_LIB;
    const char *more =
        rc == -ENOSPC || rc == -EFBIG
            ? " (-ts_trajectory_varve_local names a folder for what does not fit into "
              "-ts_trajectory_varve_host_cache)"
            : "";
    SETERRQ(PETSC_COMM_SELF, code, "%s: %s%s", what, varve_error(ctx), more);
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
    PetscFunctionReturn(0);
}

static PetscErrorCode trajectory_destroy(TSTrajectory tj)
{
    PetscFunctionBegin;
    PetscCall(trajectory_reset(tj));
    PetscCall(PetscFree(tj->data));
    PetscFunctionReturn(0);
}

/* The steps that an earlier run has kept can be read until this one stores them again. */
static PetscErrorCode find_kept(struct trajectory *t)
{
    struct varve_ctx *ctx = t->context->ctx;
    uint64_t *versions;
    size_t n;

    PetscFunctionBegin;
    CALL(varve_versions(t->history, NULL, 0, &n), ctx, "steps of a kept trajectory");
    PetscCall(PetscMalloc1(n, &versions));
    CALL(varve_versions(t->history, versions, n, &n), ctx, "steps of a kept trajectory");
    for (size_t i = 0; i < n; i++)
        t->next = PetscMax(t->next, (PetscInt)versions[i] + 1);
    PetscCall(PetscFree(versions));
    PetscFunctionReturn(0);
}

/* A name that is unique among what runs, as several jobs may use one folder. The order is that of the
 * adjoint, which reads from the last step to the first; without one, the library finds the order out. */
static PetscErrorCode trajectory_setup(TSTrajectory tj, TS ts)
{
    static int count;
    struct trajectory *t = tj->data;
    struct varve_history_opts opts;
    char name[64];

    PetscFunctionBegin;
    (void)ts;
    if (t->keep[0] && t->opts.level == VARVE_LEVEL_CACHED)
        t->opts.level = VARVE_LEVEL_LOCAL;
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
         t->context->ctx, "opening a trajectory");
    PetscCall(find_kept(t));
    PetscFunctionReturn(0);
}

/* One option, if it is given. PETSc's option comes before the environment. */
static PetscErrorCode set_option(struct trajectory *t, PetscBool given, const char *key,
                                 const char *value)
{
    PetscFunctionBegin;
    if (given)
        CALL(varve_opts_set(&t->opts, key, value), NULL, "-ts_trajectory_varve");
    PetscFunctionReturn(0);
}

static PetscErrorCode trajectory_setfromoptions(TSTrajectory tj, OPTION_ITEMS PetscOptionsObject)
{
    struct trajectory *t = tj->data;
    char value[PETSC_MAX_PATH_LEN], now[32];
    PetscBool set;

    PetscFunctionBegin;
    PetscOptionsHeadBegin(PetscOptionsObject, "TS trajectory options for Varve");
    snprintf(now, sizeof(now), "%" PRIu64, t->opts.host_cache);
    PetscCall(PetscOptionsString("-ts_trajectory_varve_host_cache",
                                 "Host memory that holds steps (512M)", "None", now, value,
                                 sizeof(value), &set));
    PetscCall(set_option(t, set, "host_cache", value));
    PetscCall(PetscOptionsString("-ts_trajectory_varve_local",
                                 "Folder on a local disk for what does not fit there", "None",
                                 t->opts.local, value, sizeof(value), &set));
    PetscCall(set_option(t, set, "local", value));
    PetscCall(PetscOptionsString("-ts_trajectory_varve_level",
                                 "How far each step shall come: cached, local or remote", "None",
                                 "cached", value, sizeof(value), &set));
    PetscCall(set_option(t, set, "level", value));
    PetscCall(PetscOptionsString("-ts_trajectory_varve_keep",
                                 "Keep the trajectory in the folder under this name", "None",
                                 t->keep, t->keep, sizeof(t->keep), NULL));
    PetscCall(PetscOptionsBool("-ts_trajectory_varve_monitor", "Print what was stored and loaded",
                               "None", t->monitor, &t->monitor, NULL));
    PetscOptionsHeadEnd();
    PetscFunctionReturn(0);
}

/* The solution and, in an order that `set` and `get` have in common, the stages that belong to `step`.
 * The last stage of a stiffly accurate method is the solution. */
static PetscErrorCode collect(TSTrajectory tj, TS ts, PetscInt step, Vec x, PetscInt *ret_n)
{
    struct trajectory *t = tj->data;
    PetscInt stages = 0;
    Vec *y = NULL;

    PetscFunctionBegin;
    if (step > 0 && !tj->solution_only) {
        PetscCall(TSGetStages(ts, &stages, &y));
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

/* Where the vectors are, on the host or on a device: to read from, or to write to. PETSc's work on a
 * device has ended then, whatever stream it was on. */
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

/* Sensitivities of a second-order adjoint would be stale when they are read back. */
static PetscErrorCode refuse_second_order(TSTrajectory tj, TS ts)
{
    PetscFunctionBegin;
    PetscCheck(!ts->forward_solve, PetscObjectComm((PetscObject)tj), PETSC_ERR_SUP,
               "A trajectory of type varve holds no forward sensitivities, which second-order "
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
    for (PetscInt v = step; v < t->next; v++)
        (void)varve_discard(t->history, (uint64_t)v); /* steps in between may be missing */
    PetscCall(collect(tj, ts, step, x, &n));
    if (step > 0)
        PetscCall(TSGetPrevTime(ts, &previous));
    PetscCall(VecGetLocalSize(x, &local));
    struct header header = {time, previous, (uint64_t)n, sizeof(PetscScalar), (uint64_t)local};
    PetscCall(borrow(t, &header, n, PETSC_FALSE));
    int rc = varve_checkpoint_of(t->history, (uint64_t)step, t->regions, (size_t)n + 1, -1);
    PetscCall(give_back(t, n, PETSC_FALSE));
    CALL(rc, t->context->ctx, "storing a step of a trajectory");
    t->next = step + 1;
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
    *ret_time = header.time;
    if (step > 0 && tj->adjoint_solve_mode)
        PetscCall(TSSetTimeStep(ts, header.previous - header.time));
    t->loaded++;
    PetscFunctionReturn(0);
}

static PetscErrorCode trajectory_view(TSTrajectory tj, PetscViewer viewer)
{
    static const char *const levels[] = {"cached", "local", "remote", "complete"};
    struct trajectory *t = tj->data;

    PetscFunctionBegin;
    PetscCall(PetscViewerASCIIPrintf(
        viewer, "Varve %s: level %s, host cache of %" PRIu64 " bytes, local folder %s\n",
        varve_version(), levels[t->opts.level], t->opts.host_cache,
        t->opts.local[0] ? t->opts.local : "(none)"));
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
    tj->ops->set = trajectory_set;
    tj->ops->get = trajectory_get;
    tj->ops->setup = trajectory_setup;
    tj->ops->setfromoptions = trajectory_setfromoptions;
    tj->ops->reset = trajectory_reset;
    tj->ops->destroy = trajectory_destroy;
    tj->ops->view = trajectory_view;
    CALL(varve_opts_init(&t->opts, sizeof(t->opts)), NULL, "options of Varve");
    /* Not the rank in the trajectory's communicator: several of those may use one folder. */
    PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
    PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &ranks));
    t->opts.rank = rank;
    t->opts.ranks = ranks;
    PetscFunctionReturn(0);
}

/*
 * PETSc's private structures and the size of its numbers are compiled in: another PETSc than that of
 * the build is refused, instead of storing half of each vector.
 */
static PetscErrorCode check_petsc(void)
{
    PetscInt major, minor;
    PetscDataType type;
    size_t scalar = 0, integer = 0;
    PetscBool found;

    PetscFunctionBegin;
    PetscCall(PetscGetVersionNumber(&major, &minor, NULL, NULL));
    PetscCall(PetscDataTypeFromString("scalar", &type, &found));
    if (found)
        PetscCall(PetscDataTypeGetSize(type, &scalar));
    PetscCall(PetscDataTypeGetSize(PETSC_INT, &integer));
    PetscCheck(major == PETSC_VERSION_MAJOR && minor == PETSC_VERSION_MINOR &&
                   scalar == sizeof(PetscScalar) && integer == sizeof(PetscInt),
               PETSC_COMM_SELF, PETSC_ERR_SUP,
               "libvarve-petsc.so was built for PETSc %d.%d with scalars of %d and integers of %d "
               "bytes, and this is %" PetscInt_FMT ".%" PetscInt_FMT
               " with %d and %d: build Varve with this PETSc's folder in PKG_CONFIG_PATH",
               PETSC_VERSION_MAJOR, PETSC_VERSION_MINOR, (int)sizeof(PetscScalar),
               (int)sizeof(PetscInt), major, minor, (int)scalar, (int)integer);
    PetscFunctionReturn(0);
}

/* PETSc derives this name from the file's: libvarve-petsc.so. */
PETSC_EXTERN VARVE_API PetscErrorCode PetscDLLibraryRegister_varve_petsc(void);

PetscErrorCode PetscDLLibraryRegister_varve_petsc(void)
{
    PetscFunctionBegin;
    PetscCall(check_petsc());
    PetscCall(TSTrajectoryRegister("varve", trajectory_create));
    PetscFunctionReturn(0);
}
