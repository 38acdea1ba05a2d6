/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve/mpi.h on several processes, at the lowest thread level of MPI. Run as
 *
 *     mpi FOLDER PART
 *
 * once for each part, in the order of this file: each is a run of the job that finds the checkpoints of
 * earlier ones. Processes share FOLDER; their number is 3 or more.
 */
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <varve/mpi.h>

static int rank, size;
static const char *folder;
static struct varve_ctx *ctx;
static struct varve_history *h;
static int data[5000];

#define CHECK(cond)                                                       \
    do {                                                                  \
        if (!(cond)) {                                                    \
            fprintf(stderr, "[%d] line %d: %s\n", rank, __LINE__, #cond); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                 \
        }                                                                 \
    } while (0)
#define EQ(expr, want)                                                                         \
    do {                                                                                       \
        long long got_ = (long long)(expr);                                                    \
        if (got_ != (long long)(want)) {                                                       \
            fprintf(stderr, "[%d] line %d: %s is %lld, not %s\n", rank, __LINE__, #expr, got_, \
                    #want);                                                                    \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                      \
        }                                                                                      \
    } while (0)

static void settings(struct varve_opts *opts, int level)
{
    EQ(varve_opts_init(opts, sizeof(*opts)), 0);
    opts->level = level;
    opts->host_cache = 8 << 20;
    snprintf(opts->local, sizeof(opts->local), "%s/local-%d", folder, level);
    if (level == VARVE_LEVEL_COMPLETE)
        snprintf(opts->remote, sizeof(opts->remote), "%s/remote", folder);
}

static void begin(int level)
{
    struct varve_opts opts;
    struct varve_history_opts hopts;
    settings(&opts, level);
    EQ(varve_open_mpi(MPI_COMM_WORLD, &opts, &ctx), 0);
    EQ(varve_history_opts_init(&hopts, sizeof(hopts)), 0);
    hopts.overwrite = level == VARVE_LEVEL_COMPLETE;
    EQ(varve_history_open_with(ctx, "h", &hopts, &h), 0);
    EQ(varve_protect(h, 0, data, sizeof(data)), 0);
}

static void end(void)
{
    EQ(varve_close_mpi(MPI_COMM_WORLD, ctx), 0);
}

static void write_version(uint64_t version, int life)
{
    for (int i = 0; i < 5000; i++)
        data[i] = (int)version * 1000 + life * 100 + rank + i;
    EQ(varve_checkpoint(h, version), 0);
    EQ(varve_wait(h, version, VARVE_LEVEL_LOCAL, -1), 0);
}

static void latest_is(uint64_t want)
{
    uint64_t v = 999;
    EQ(varve_latest_mpi(MPI_COMM_WORLD, h, &v), 0);
    EQ(v, want);
}

static void holds(uint64_t version, int life)
{
    memset(data, 0, sizeof(data));
    EQ(varve_restore_mpi(MPI_COMM_WORLD, h, version), 0);
    for (int i = 0; i < 5000; i++)
        CHECK(data[i] == (int)version * 1000 + life * 100 + rank + i);
}

/* Ranks that disagree. */
static void first(void)
{
    uint64_t v, run = 0, least = 0, most = 0;
    begin(VARVE_LEVEL_LOCAL);
    v = 77;
    EQ(varve_latest_mpi(MPI_COMM_WORLD, h, &v), -ENOENT);
    EQ(v, 77); /* written on success only */
    for (v = 1; v <= 10; v++)
        write_version(v, 1);
    EQ(varve_version_run(h, 1, &run), 0);
    MPI_Allreduce(&run, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&run, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    CHECK(run != 0 && least == most);
    latest_is(10);
    if (rank == 1)
        EQ(varve_discard(h, 10), 0);
    latest_is(9);
    if (rank == 2)
        for (v = 7; v <= 9; v++)
            EQ(varve_discard(h, v), 0);
    if (rank == 0)
        EQ(varve_discard(h, 6), 0);
    latest_is(5);
    holds(5, 1);
    EQ(varve_restore_mpi(MPI_COMM_WORLD, h, 6), -ENOENT); /* everywhere, though some have it */
    end();
}

/* The next run writes 6 and 7 again, but does not get equally far on every rank. */
static void second(void)
{
    begin(VARVE_LEVEL_LOCAL);
    latest_is(5);
    write_version(6, 2); /* some have it */
    if (rank == 0)
        write_version(7, 2);
    EQ(varve_checkpoint(h, 6), -EEXIST); /* of this life */
    EQ(varve_checkpoint(h, 5), -EEXIST); /* gone on from */
    latest_is(6);
    end();
}

/* 7 is there on rank 0 of the second life, and nowhere else; 8 and 9 on some, of the first. */
static void third(void)
{
    begin(VARVE_LEVEL_LOCAL);
    latest_is(6);
    holds(6, 2);
    /* The same number from two runs: every rank has 20, but these are not one state of the job. */
    if (rank != 0)
        write_version(20, 3);
    end();
}

static void fourth(void)
{
    begin(VARVE_LEVEL_LOCAL);
    if (rank == 0)
        write_version(20, 4);
    latest_is(6);
    uint64_t v;
    EQ(varve_latest(h, &v), 0);
    EQ(v, 20); /* what each rank alone would have said */
    end();
}

/* All processes get the text of one process. */
static void says(struct varve_ctx *whose, int err, int who, const char *what)
{
    struct varve_error e;
    char prefix[32];
    e.error_size = sizeof(e);
    EQ(varve_last_error(whose, &e), 0);
    EQ(e.err, err);
    CHECK(strstr(e.text, what) != NULL);
    snprintf(prefix, sizeof(prefix), "process %d: ", who);
    EQ(strncmp(e.text, prefix, strlen(prefix)) == 0, rank != who);
}

/* If one process fails, all fail. */
static void errors(void)
{
    struct varve_opts opts;
    struct varve_ctx *none = NULL;
    settings(&opts, VARVE_LEVEL_LOCAL);
    if (rank == 1)
        opts.local[0] = 0; /* level local without a folder */
    EQ(varve_open_mpi(MPI_COMM_WORLD, &opts, &none), -EINVAL);
    CHECK(!none);
    says(NULL, -EINVAL, 1, "folder");
    EQ(varve_latest_mpi(MPI_COMM_WORLD, NULL, NULL), -EINVAL);
    begin(VARVE_LEVEL_LOCAL);
    if (rank == 2)
        EQ(varve_protect(h, 0, data, 8), 0); /* too small */
    EQ(varve_restore_mpi(MPI_COMM_WORLD, h, 6), -ENOBUFS);
    says(ctx, -ENOBUFS, 2, "region 0");
    EQ(varve_history_ctx(h) == ctx && !varve_history_ctx(NULL), 1);
    end();
}

/* Level complete: waiting for a version that one rank did not write times
 * out. */
static void complete(void)
{
    begin(VARVE_LEVEL_COMPLETE);
    write_version(1, 1);
    EQ(varve_wait(h, 1, VARVE_LEVEL_COMPLETE, 60000), 0);
    if (rank != 1) {
        write_version(2, 1);
        EQ(varve_wait(h, 2, VARVE_LEVEL_COMPLETE, 300), -ETIMEDOUT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    latest_is(1);
    end();
    begin(VARVE_LEVEL_COMPLETE);
    latest_is(1);
    holds(1, 1);
    write_version(2, 2); /* begun in an earlier life, and not completed */
    EQ(varve_wait(h, 2, VARVE_LEVEL_COMPLETE, 60000), 0);
    latest_is(2);
    holds(2, 2);
    end();
}

/* A complete version is being overwritten, in the same run and by all ranks but one, when the job is
 * killed: the old one is there, whole. */
static void again(void)
{
    begin(VARVE_LEVEL_COMPLETE);
    write_version(3, 3);
    EQ(varve_wait(h, 3, VARVE_LEVEL_COMPLETE, 60000), 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 1) {
        write_version(3, 4);
        EQ(varve_wait(h, 3, VARVE_LEVEL_REMOTE, 60000), 0);
        EQ(varve_wait(h, 3, VARVE_LEVEL_COMPLETE, 300), -ETIMEDOUT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("ok\n");
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    raise(SIGKILL);
}

/* The same from another run, and then by all. */
static void still(void)
{
    begin(VARVE_LEVEL_COMPLETE);
    latest_is(3);
    holds(3, 3);
    if (rank == 0) {
        write_version(3, 5);
        EQ(varve_wait(h, 3, VARVE_LEVEL_REMOTE, 60000), 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    end();
    begin(VARVE_LEVEL_COMPLETE);
    latest_is(3);
    holds(3, 3);
    write_version(3, 6);
    EQ(varve_wait(h, 3, VARVE_LEVEL_COMPLETE, 60000), 0);
    end();
    begin(VARVE_LEVEL_COMPLETE);
    latest_is(3);
    holds(3, 6);
    end();
}

/* Some ranks have nothing: as many elements as their number modulo 3, at both levels, and in two lives. */
static void empty(void)
{
    static const int levels[] = {VARVE_LEVEL_LOCAL, VARVE_LEVEL_COMPLETE};
    struct varve_opts opts;
    size_t bytes, n = (size_t)(rank % 3);
    for (int life = 0; life < 2; life++)
        for (int l = 0; l < 2; l++) {
            settings(&opts, levels[l]);
            EQ(varve_open_mpi(MPI_COMM_WORLD, &opts, &ctx), 0);
            EQ(varve_history_open(ctx, "particles", &h), 0);
            EQ(varve_protect(h, 0, n ? data : NULL, n * sizeof(int)), 0);
            for (uint64_t v = 1; v < 4 && life == 0; v++) {
                data[0] = data[1] = (int)v;
                EQ(varve_checkpoint(h, v), 0);
                EQ(varve_wait(h, v, (enum varve_level)levels[l], 60000), 0);
            }
            latest_is(3);
            for (uint64_t v = 1; v < 4; v++) {
                data[0] = data[1] = 0;
                EQ(varve_restore_mpi(MPI_COMM_WORLD, h, v), 0);
                CHECK(data[0] == (n > 0 ? (int)v : 0) && data[1] == (n > 1 ? (int)v : 0));
                EQ(varve_region_size(h, v, 0, &bytes), 0);
                EQ(bytes, n * sizeof(int));
            }
            end();
        }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*fn)(void);
    } parts[] = {{"first", first},   {"second", second}, {"third", third},
                 {"fourth", fourth}, {"errors", errors}, {"complete", complete},
                 {"again", again},   {"still", still},   {"empty", empty}};
    CHECK(argc == 3);
    /* MPI itself would end the program. */
    EQ(varve_open_mpi(MPI_COMM_WORLD, NULL, &ctx), -EPERM);
    CHECK(strstr(varve_error(NULL), "MPI_Init first"));
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size >= 3);
    folder = argv[1];
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(argv[2], parts[i].name) == 0) {
            parts[i].fn();
            if (rank == 0)
                printf("ok\n");
        }
    MPI_Finalize();
    EQ(varve_open_mpi(MPI_COMM_WORLD, NULL, &ctx), -EPERM);
    EQ(varve_open(NULL, &ctx), 0);
    EQ(varve_close_mpi(MPI_COMM_WORLD, ctx), -EPERM);
    CHECK(strstr(varve_error(NULL), "before MPI_Finalize"));
    return 0;
}
