/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvarve-mpi: agreement among the processes of a job.
 *
 * Invariant: MPI is called only inside the functions of varve/mpi.h and of the table in mpi_group.h, which all processes
 * call together, on the application's threads. A branch that changes the number of collective operations depends only
 * on reduced values, so that all processes take the same branch.
 *
 * Agreement on a version. Each process names its newest version not above a bound, and the run of that version. If all
 * name the same, it is the result. Otherwise the new bound is the least version named or, if only the runs differ, one
 * less. The bound falls in every round, so there are at most as many rounds as versions. In practice there are two or
 * three: ranks differ only in the newest versions, which were being written when the job died.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <varve/mpi.h>
#include <varve/transport.h>

#include "base/cpus.h"
#include "mpi/mpi_group.h"
#include "mpi/transport.h"

enum { TEXT = 256 };

#define EXPORTED __attribute__((visibility("default")))

struct vv_group {
    MPI_Comm comm; /* duplicate, owned */
    int rank, size;
};

/* The errno of a failed MPI call, if the communicator's error handler lets the call return. */
static int of_mpi(int code)
{
    return code == MPI_SUCCESS ? 0 : -ECOMM;
}

/* ---- reductions ---- */

/* MPI_MIN over unsigned numbers; `in` and the result may not overlap. */
static int least(MPI_Comm comm, const uint64_t *in, uint64_t *out, int n)
{
    return of_mpi(MPI_Allreduce(in, out, n, MPI_UINT64_T, MPI_MIN, comm));
}

/* The least (most negative) of all results. */
static int all_of(MPI_Comm comm, int rc)
{
    int worst = 0, mpi = of_mpi(MPI_Allreduce(&rc, &worst, 1, MPI_INT, MPI_MIN, comm));
    return mpi ? mpi : worst;
}

enum { HAVE, VERSION, NOT_VERSION, RUN, NOT_RUN, NUMBERS };

static int agree(MPI_Comm comm, vv_group_newest_fn *newest, void *arg, uint64_t max,
                 uint64_t *ret_version)
{
    for (uint64_t bound = max;;) {
        uint64_t version = 0, run = 0, got[NUMBERS];
        int rc = newest(arg, bound, &version, &run);
        int bad = all_of(comm, rc == -ENOENT ? 0 : rc);
        if (bad)
            return bad;
        /* The greatest of x is the complement of the least of ~x. */
        uint64_t mine[NUMBERS] = {rc == 0, version, ~version, run, ~run};
        bad = least(comm, mine, got, NUMBERS);
        if (bad)
            return bad;
        if (!got[HAVE])
            return -ENOENT;
        bool same = got[VERSION] == ~got[NOT_VERSION];
        if (same && got[RUN] == ~got[NOT_RUN]) {
            *ret_version = got[VERSION];
            return 0;
        }
        if (same && got[VERSION] == 0)
            return -ENOENT;
        bound = got[VERSION] - same;
    }
}

/* ---- cores ---- */

/* The union of sets of processors. */
static int any_of(MPI_Comm comm, const cpu_set_t *mine, cpu_set_t *ret_all)
{
    return of_mpi(MPI_Allreduce(mine, ret_all, (int)(sizeof(*mine) / sizeof(uint64_t)),
                                MPI_UINT64_T, MPI_BOR, comm));
}

/* Processors that processes of the node are bound to. A process that may run on all processors of these processes
 * counts as not bound. */
static int bound_cores(MPI_Comm comm, char *ret_list, size_t size)
{
    cpu_set_t mine, all, bound;
    MPI_Comm node;
    int rc = of_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    if (rc)
        return rc;
    CPU_ZERO(&bound);
    if (sched_getaffinity(getpid(), sizeof(mine), &mine) != 0)
        CPU_ZERO(&mine);
    rc = any_of(node, &mine, &all);
    if (CPU_EQUAL(&mine, &all))
        CPU_ZERO(&mine);
    if (rc == 0)
        rc = any_of(node, &mine, &bound);
    MPI_Comm_free(&node);
    /* A list that was cut would lack some processors. */
    if (rc == 0 && strstr(vv_cpus_format(&bound, ret_list, size), "..."))
        ret_list[0] = 0;
    return rc;
}

/* ---- the table ---- */

static void group_close(struct vv_group *g)
{
    int over = 1;
    if (!g)
        return;
    if (MPI_Finalized(&over) == MPI_SUCCESS && !over)
        MPI_Comm_free(&g->comm);
    free(g);
}

/* Processes vote by splitting the communicator: one that cannot take part leaves itself out, even without this library
 * (veloc/init_mpi.c), and all others see it. */
static int group_open(const void *comm, struct vv_group **ret_group)
{
    int ready = 0, over = 0, rank = 0, size = 0;
    if (MPI_Initialized(&ready) != MPI_SUCCESS || MPI_Finalized(&over) != MPI_SUCCESS || !ready ||
        over)
        return -EPERM;
    struct vv_group *g = calloc(1, sizeof(*g));
    MPI_Comm all = *(const MPI_Comm *)comm, ours = MPI_COMM_NULL;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    int rc = of_mpi(MPI_Comm_split(all, g ? 0 : MPI_UNDEFINED, rank, &ours));
    if (!g)
        return -ENOMEM;
    if (rc) {
        free(g);
        return rc;
    }
    g->comm = ours;
    MPI_Comm_rank(g->comm, &g->rank);
    MPI_Comm_size(g->comm, &g->size);
    if (g->size < size) {
        group_close(g);
        return -ELIBACC;
    }
    *ret_group = g;
    return 0;
}

static int group_rank(const struct vv_group *g)
{
    return g->rank;
}

static int group_size(const struct vv_group *g)
{
    return g->size;
}

static int group_broadcast(struct vv_group *g, void *data, int bytes)
{
    return of_mpi(MPI_Bcast(data, bytes, MPI_BYTE, 0, g->comm));
}

static int group_all(struct vv_group *g, int rc)
{
    return all_of(g->comm, rc);
}

static int group_cores(struct vv_group *g, char *ret_list, size_t size)
{
    return bound_cores(g->comm, ret_list, size);
}

static int group_agree(struct vv_group *g, vv_group_newest_fn *newest, void *arg, uint64_t max,
                       uint64_t *ret_version)
{
    return agree(g->comm, newest, arg, max, ret_version);
}

extern const struct vv_group_ops varve_group_ops_mpi;
EXPORTED const struct vv_group_ops varve_group_ops_mpi = {
    .format = VV_GROUP_FORMAT,
    .open = group_open,
    .close = group_close,
    .rank = group_rank,
    .size = group_size,
    .broadcast = group_broadcast,
    .all = group_all,
    .agree = group_agree,
    .cores = group_cores,
};

/* ---- texts of failures ---- */

/* Stores the text of this process's failure, for share_error(). */
static void keep_text(struct varve_ctx *ctx, int rc, char text[TEXT])
{
    struct varve_error e = {.error_size = sizeof(e)};
    bool has_text = rc && varve_last_error(ctx, &e) == 0 && e.err == rc && e.text[0];
    snprintf(text, TEXT, "%s", has_text ? e.text : varve_strerror(rc));
}

/* Called when a call has failed with `all` in the group, and with `rc` here: processes without a failure get the text of
 * the first process that failed. Collective. Returns `all`. */
static int share_error(MPI_Comm comm, struct varve_ctx *ctx, const char *operation, int rc,
                       const char text[TEXT], int all)
{
    char theirs[TEXT] = "", line[TEXT + 32];
    int rank = 0, mine, who = INT_MAX;
    MPI_Comm_rank(comm, &rank);
    mine = rc == all ? rank : INT_MAX;
    if (MPI_Allreduce(&mine, &who, 1, MPI_INT, MPI_MIN, comm) != MPI_SUCCESS || who == INT_MAX)
        return all; /* MPI has failed: the text cannot be sent */
    if (rank == who)
        memcpy(theirs, text, TEXT);
    if (MPI_Bcast(theirs, TEXT, MPI_CHAR, who, comm) != MPI_SUCCESS || rc)
        return all;
    snprintf(line, sizeof(line), "process %d: %s", who, theirs);
    return varve_set_error(ctx, operation, all, line);
}

/* ---- varve/mpi.h ---- */

static uint64_t draw_id(void)
{
    uint64_t id = 0;
    while (id == 0)
        if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id)) {
            struct timespec ts;
            clock_gettime(CLOCK_REALTIME, &ts);
            id = (uint64_t)ts.tv_sec << 32 ^ (uint64_t)ts.tv_nsec ^ (uint64_t)getpid() << 48;
        }
    return id;
}

/* Sets rank, run and other values of a process in a job in its options. */
static int opts_of(MPI_Comm comm, const struct varve_opts *opts, struct varve_opts *ret_opts)
{
    int rank = 0, size = 1, rc = varve_opts_init(ret_opts, sizeof(*ret_opts));
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (rc == 0 && opts) {
        size_t bytes = opts->opts_size < sizeof(*ret_opts) ? opts->opts_size : sizeof(*ret_opts);
        if (bytes < sizeof(size_t))
            rc = -EINVAL; /* maybe only here: continue, because the others wait for us below */
        else
            memcpy(ret_opts, opts, bytes);
        ret_opts->opts_size = sizeof(*ret_opts);
    }
    /* varve_open turns `run` into a number on every process: either all processes have it or none. */
    uint64_t run = rc == 0 && ret_opts->run_id ? ret_opts->run_id : draw_id();
    if (rc == 0 && ret_opts->run[0] && !ret_opts->run_id)
        run = 0;
    int bad = of_mpi(MPI_Bcast(&run, 1, MPI_UINT64_T, 0, comm));
    char cores[VARVE_CORES_BYTES] = "";
    bad = bad ? bad : bound_cores(comm, cores, sizeof(cores));
    if (!ret_opts->rank_cores[0])
        memcpy(ret_opts->rank_cores, cores, sizeof(cores));
    ret_opts->run_id = run;
    ret_opts->rank = rank;
    ret_opts->ranks = size;
    return rc ? rc : bad;
}

/* True if the options need a transport between the processes. */
static int together(const struct varve_opts *o)
{
    return o->partner || (o->parity[0] && strcmp(o->parity, "off") != 0);
}

/* Opens a context with partner copies or parity: all processes have them or none does. */
static int open_partners(MPI_Comm comm, const struct varve_opts *o, struct varve_ctx **ret_ctx)
{
    struct varve_transport t;
    int all = all_of(comm, together(o) ? 0 : -EINVAL);
    if (all)
        return all;
    int rc = vvi_mpi_transport(comm, &t);
    all = all_of(comm, rc);
    if (all == 0) {
        all = varve_open_with(o, &t, ret_ctx);
        if (all == 0)
            return 0;
    }
    if (rc == 0)
        t.close(t.arg);
    return all;
}

/* MPI ends a program that calls it too early or too late: an error says more. */
static int running(const char *operation)
{
    int ready = 0, over = 0;
    MPI_Initialized(&ready);
    MPI_Finalized(&over);
    if (ready && !over)
        return 0;
    return varve_set_error(NULL, operation, -EPERM,
                           ready ? "MPI has ended: call this before MPI_Finalize"
                                 : "MPI is not running: call MPI_Init first");
}

int varve_open_mpi(MPI_Comm comm, const struct varve_opts *opts, struct varve_ctx **ret_ctx)
{
    struct varve_opts o;
    struct varve_ctx *ctx = NULL;
    char text[TEXT];
    int rc = running("open");
    if (rc)
        return rc;
    rc = opts_of(comm, opts, &o);
    if (rc == 0 && !ret_ctx)
        rc = varve_set_error(NULL, "open", -EINVAL, "ret_ctx is NULL");
    keep_text(NULL, rc, text);
    int all = all_of(comm, rc), partners = all_of(comm, rc == 0 && together(&o) ? -1 : 0);
    if (all)
        return share_error(comm, NULL, "open", rc, text, all);
    if (partners)
        return open_partners(comm, &o, ret_ctx);
    rc = varve_open(&o, &ctx);
    keep_text(NULL, rc, text);
    all = all_of(comm, rc);
    if (all == 0) {
        *ret_ctx = ctx;
        return 0;
    }
    /* If the context was opened here but not elsewhere, close it: an error of closing must not hide theirs. */
    if (rc == 0)
        varve_close(ctx);
    return share_error(comm, NULL, "open", rc, text, all);
}

int varve_close_mpi(MPI_Comm comm, struct varve_ctx *ctx)
{
    char text[TEXT];
    int rc = varve_close(ctx);
    keep_text(NULL, rc, text);
    int late = running("close");
    if (late)
        return rc ? varve_set_error(NULL, "close", rc, text) : late;
    int all = all_of(comm, rc);
    return all ? share_error(comm, NULL, "close", rc, text, all) : 0;
}

struct own {
    struct varve_history *h;
    enum varve_level level;
};

static int newest_own(void *arg, uint64_t max, uint64_t *ret_version, uint64_t *ret_run)
{
    struct own *own = arg;
    uint64_t *list = NULL;
    size_t n = 0, room = 0;
    int rc = varve_versions(own->h, NULL, 0, &n);
    while (rc == 0 && n > room) {
        free(list);
        room = n + 16;
        list = calloc(room, sizeof(*list));
        rc = list ? varve_versions(own->h, list, room, &n) : -ENOMEM;
    }
    bool any = false;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        uint64_t run;
        enum varve_level level;
        if (list[i] > max || (any && list[i] < *ret_version) ||
            varve_version_level(own->h, list[i], &level) != 0 || level < own->level ||
            varve_version_run(own->h, list[i], &run) != 0)
            continue;
        *ret_version = list[i];
        *ret_run = run;
        any = true;
    }
    free(list);
    return rc ? rc : any ? 0 : -ENOENT;
}

int varve_latest_mpi(MPI_Comm comm, struct varve_history *h, uint64_t *ret_version)
{
    struct own own = {h, VARVE_LEVEL_COMPLETE};
    uint64_t version;
    int rc = h && ret_version ? 0 : -EINVAL;
    int all = all_of(comm, rc);
    if (all)
        return all;
    /* Find the level of the context: the highest that may be waited for. */
    while (own.level > VARVE_LEVEL_CACHED && varve_wait(h, 0, own.level, 0) == -EINVAL)
        own.level = (enum varve_level)(own.level - 1);
    rc = agree(comm, newest_own, &own, UINT64_MAX, &version);
    /* No version comes after the greatest number. */
    if ((rc == 0 && version < UINT64_MAX) || rc == -ENOENT) {
        int resumed = all_of(comm, varve_resume(h, rc == 0 ? version + 1 : 0));
        rc = resumed ? resumed : rc;
    }
    if (rc == 0)
        *ret_version = version;
    return rc;
}

int varve_restore_mpi(MPI_Comm comm, struct varve_history *h, uint64_t version)
{
    struct varve_ctx *ctx = varve_history_ctx(h);
    char text[TEXT];
    int rc = varve_restore(h, version), all = all_of(comm, rc);
    keep_text(ctx, rc, text);
    /* With partner copies, repair damaged or missing files once. */
    int damaged = rc == -EBADMSG || rc == -EIO || rc == -ENOENT;
    if (all == 0)
        return 0;
    if (all_of(comm, rc == 0 || damaged ? 0 : rc) != 0)
        return share_error(comm, ctx, "restore", rc, text, all);
    int repaired = varve_history_repair(h, version, damaged);
    if (all_of(comm, repaired))
        return share_error(comm, ctx, "restore", rc, text, all);
    rc = damaged ? varve_restore(h, version) : 0;
    keep_text(ctx, rc, text);
    all = all_of(comm, rc);
    return all ? share_error(comm, ctx, "restore", rc, text, all) : 0;
}

/* ---- Fortran's communicators ---- */

int varve_open_mpi_f(MPI_Fint comm, const struct varve_opts *opts, struct varve_ctx **ret_ctx)
{
    int rc = running("open");
    return rc ? rc : varve_open_mpi(MPI_Comm_f2c(comm), opts, ret_ctx);
}

int varve_close_mpi_f(MPI_Fint comm, struct varve_ctx *ctx)
{
    return varve_close_mpi(running("close") ? MPI_COMM_NULL : MPI_Comm_f2c(comm), ctx);
}

int varve_latest_mpi_f(MPI_Fint comm, struct varve_history *h, uint64_t *ret_version)
{
    return varve_latest_mpi(MPI_Comm_f2c(comm), h, ret_version);
}

int varve_restore_mpi_f(MPI_Fint comm, struct varve_history *h, uint64_t version)
{
    return varve_restore_mpi(MPI_Comm_f2c(comm), h, version);
}
