/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partner copies over MPI, on four processes or more, each with a folder as the disk of its node and no
 * shared folder. Run as
 *
 *     partner FOLDER LEVEL PART [LIFE]
 *
 * LEVEL is the thread level of MPI to ask for. The script around it takes disks away between parts.
 */
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <varve/mpi.h>

enum { N = 300000, VERSIONS = 4 };

static int rank, size, life;
static const char *folder;
static struct varve_ctx *ctx;
static struct varve_history *h;
static int data[N];

#define CHECK(cond)                                                       \
    do {                                                                  \
        if (!(cond)) {                                                    \
            fprintf(stderr, "[%d] line %d: %s\n", rank, __LINE__, #cond); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                 \
        }                                                                 \
    } while (0)
#define EQ(expr, want)                                                                        \
    do {                                                                                      \
        long long got_ = (long long)(expr);                                                   \
        if (got_ != (long long)(want)) {                                                      \
            struct varve_error e_ = {.error_size = sizeof(e_)};                               \
            (void)!varve_last_error(ctx, &e_);                                                \
            fprintf(stderr, "[%d] line %d: %s is %lld, not %s (%s)\n", rank, __LINE__, #expr, \
                    got_, #want, e_.text);                                                    \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                     \
        }                                                                                     \
    } while (0)

static void settings(struct varve_opts *opts)
{
    EQ(varve_opts_init(opts, sizeof(*opts)), 0);
    opts->level = VARVE_LEVEL_LOCAL;
    opts->host_cache = 16 << 20;
    const char *parity = getenv("PARITY"); /* instead of copies */
    opts->partner = !parity;
    snprintf(opts->parity, sizeof(opts->parity), "%s", parity ? parity : "off");
    snprintf(opts->local, sizeof(opts->local), "%s/disk%d", folder, rank);
    snprintf(opts->node, sizeof(opts->node), "node%d", rank);
}

static void begin(int timeout_ms)
{
    struct varve_opts opts;
    struct varve_history_opts hopts;
    settings(&opts);
    if (timeout_ms)
        opts.partner_timeout_ms = timeout_ms;
    EQ(varve_open_mpi(MPI_COMM_WORLD, &opts, &ctx), 0);
    EQ(varve_history_opts_init(&hopts, sizeof(hopts)), 0);
    hopts.overwrite = 1;
    EQ(varve_history_open_with(ctx, "h", &hopts, &h), 0);
    EQ(varve_protect(h, 0, data, sizeof(data)), 0);
}

static void end(void)
{
    EQ(varve_close_mpi(MPI_COMM_WORLD, ctx), 0);
    ctx = NULL;
}

static int value(uint64_t version, int of_life, int i)
{
    return (int)version * 1000 + of_life * 100 + rank + 7 * i;
}

static void put(uint64_t version)
{
    for (int i = 0; i < N; i++)
        data[i] = value(version, life, i);
    EQ(varve_checkpoint(h, version), 0);
}

static void holds(uint64_t version, int of_life)
{
    memset(data, 0, sizeof(data));
    EQ(varve_restore_mpi(MPI_COMM_WORLD, h, version), 0);
    for (int i = 0; i < N; i++)
        CHECK(data[i] == value(version, of_life, i));
}

static void latest_is(uint64_t want)
{
    uint64_t v = 999;
    EQ(varve_latest_mpi(MPI_COMM_WORLD, h, &v), 0);
    EQ(v, want);
}

/* Versions of this run; a barrier after each, in which no process makes copies. */
static void write_part(void)
{
    begin(0);
    for (uint64_t v = 1; v <= VERSIONS; v++) {
        put(v);
        EQ(varve_wait(h, v, VARVE_LEVEL_LOCAL, 60000), 0);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    end();
}

static void read_part(void)
{
    begin(0);
    latest_is(VERSIONS);
    for (uint64_t v = 1; v <= VERSIONS; v++)
        holds(v, life);
    end();
}

/* The newest version of one process is only a damaged copy: the one before it is taken. */
static void older_part(void)
{
    begin(0);
    latest_is(VERSIONS - 1);
    for (uint64_t v = 1; v < VERSIONS; v++)
        holds(v, life);
    end();
}

/* The disks of a node and of its partner are gone: no version is there for all. */
static void none_part(void)
{
    uint64_t v = 77;
    begin(0);
    EQ(varve_latest_mpi(MPI_COMM_WORLD, h, &v), -ENOENT);
    EQ(varve_restore_mpi(MPI_COMM_WORLD, h, 1), -ENOENT);
    end();
}

/* Versions 1 and 2 are overwritten; in the middle of 3 one process is killed, and MPI ends the
 * others. */
static void kill_part(void)
{
    begin(0);
    for (uint64_t v = 1; v <= 2; v++) {
        put(v);
        EQ(varve_wait(h, v, VARVE_LEVEL_LOCAL, 60000), 0);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("ok\n");
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    put(3);
    if (rank == 1)
        raise(SIGKILL);
    (void)!varve_wait(h, 3, VARVE_LEVEL_LOCAL, 2000);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Versions of the killed run: 3 is of that run on some ranks, and of the previous one on others, or of
 * one run on all. The agreed version is of one run. */
static void mixed_part(void)
{
    uint64_t v = 0, run = 0, least = 0, most = 0;
    begin(0);
    EQ(varve_latest_mpi(MPI_COMM_WORLD, h, &v), 0);
    CHECK(v >= 2 && v <= VERSIONS);
    EQ(varve_version_run(h, v, &run), 0);
    MPI_Allreduce(&run, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&run, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    CHECK(least == most);
    holds(1, life);
    holds(2, life);
    end();
}

/* One process makes no calls: processes that need it get an error in time, and later calls succeed. */
static void slow_part(void)
{
    begin(300);
    put(1);
    if (rank == 1) {
        const struct timespec long_time = {1, 500000000};
        nanosleep(&long_time, NULL);
    }
    int rc = varve_wait(h, 1, VARVE_LEVEL_LOCAL, -1);
    CHECK(rc == 0 || rc == -ETIMEDOUT);
    MPI_Barrier(MPI_COMM_WORLD);
    /* A busy machine is slow as well. A process that has its copy makes more calls until all have theirs: it may be
     * the one that another waits for, and answers inside of calls, or as long as it does not close. */
    do
        rc = varve_flush(h, 60000);
    while (rc == -ETIMEDOUT);
    EQ(rc, 0);
    MPI_Request all;
    int over = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &all);
    while (!over) {
        EQ(varve_flush(h, 60000), 0);
        MPI_Test(&all, &over, MPI_STATUS_IGNORE);
    }
    EQ(varve_wait(h, 1, VARVE_LEVEL_LOCAL, 60000), 0);
    end();
}

/* All are on this machine, or say nothing about it; or not all want copies. */
static void errors_part(void)
{
    struct varve_opts opts;
    settings(&opts);
    opts.node[0] = 0;
    EQ(varve_open_mpi(MPI_COMM_WORLD, &opts, &ctx), -EINVAL);
    settings(&opts);
    opts.partner = rank != 2;
    EQ(varve_open_mpi(MPI_COMM_WORLD, &opts, &ctx), -EINVAL);
    CHECK(!ctx);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = {{"single", MPI_THREAD_SINGLE},
                  {"funneled", MPI_THREAD_FUNNELED},
                  {"serialized", MPI_THREAD_SERIALIZED},
                  {"multiple", MPI_THREAD_MULTIPLE}};
    static const struct {
        const char *name;
        void (*fn)(void);
    } parts[] = {{"write", write_part}, {"read", read_part},    {"none", none_part},
                 {"older", older_part}, {"kill", kill_part},    {"mixed", mixed_part},
                 {"slow", slow_part},   {"errors", errors_part}};
    int want = MPI_THREAD_SINGLE, provided = 0;
    for (size_t i = 0; argc >= 4 && i < sizeof(levels) / sizeof(levels[0]); i++)
        if (strcmp(argv[2], levels[i].name) == 0)
            want = levels[i].level;
    MPI_Init_thread(&argc, &argv, want, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(argc >= 4 && size >= 4);
    folder = argv[1];
    life = argc > 4 ? atoi(argv[4]) : 1;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(argv[3], parts[i].name) == 0) {
            parts[i].fn();
            if (rank == 0)
                printf("ok\n");
        }
    MPI_Finalize();
    return provided < want ? 77 : 0;
}
