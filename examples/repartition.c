/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job continues from checkpoints that another number of processes has written.
 *
 *     mpicc repartition.c $(pkg-config --cflags --libs varve-mpi) -o repartition
 *     mpirun -n 4 ./repartition /local/me /shared/me four 100         # steps 1 to 100, by 4 processes
 *     mpirun -n 3 ./repartition /local/me /shared/me three 200 four   # steps 101 to 200, by 3
 *     mpirun -n 7 ./repartition /local/me /shared/me seven 200 four   # the same by 7: the same sum
 *
 * The cells of a field are divided among the processes. Each version has the first cell and the number of cells of its
 * process (region 0) and the cells (region 1), so a reader needs no other information about the job that wrote it. A
 * new process opens the parts of all old ones, and takes the cells that are now its own.
 */
#include <errno.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <varve/mpi.h>

enum { CELLS = 1000003, EVERY = 20 };

static struct varve_ctx *ctx;
static struct {
    uint64_t first, n;
} mine;
static uint64_t *cells;

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "repartition: %s: %s\n", what, varve_error(ctx));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The newest version that the old job has completed. Only one process determines it, so that all use the same. */
static uint64_t version_of(const char *name, int rank)
{
    struct varve_history *part;
    uint64_t version = 0;
    if (rank == 0) {
        must(varve_part_open(ctx, name, 0, &part), "the old job");
        must(varve_latest(part, &version), "the old job");
        must(varve_history_close(part), "close");
    }
    MPI_Bcast(&version, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    return version;
}

/* Copies this process's cells from the part of an old process. */
static void take(struct varve_history *part, uint64_t version)
{
    uint64_t old[2];
    must(varve_restore_to(part, version, &(struct varve_region){0, old, sizeof(old)}, 1, -1),
         "bounds");
    uint64_t from = old[0] > mine.first ? old[0] : mine.first, to = old[0] + old[1];
    to = to < mine.first + mine.n ? to : mine.first + mine.n;
    if (from >= to)
        return;
    uint64_t *all = malloc(old[1] * sizeof(*all));
    must(all ? 0 : -ENOMEM, "memory");
    must(varve_restore_to(part, version, &(struct varve_region){1, all, old[1] * sizeof(*all)}, 1,
                          -1),
         "cells");
    memcpy(cells + (from - mine.first), all + (from - old[0]), (to - from) * sizeof(*all));
    free(all);
}

static void restart(const char *name, uint64_t version)
{
    int parts;
    must(varve_parts(ctx, name, &parts), "the old job");
    for (int p = 0; p < parts; p++) {
        struct varve_history *part;
        must(varve_part_open(ctx, name, p, &part), "a part");
        take(part, version);
        must(varve_history_close(part), "close");
    }
}

int main(int argc, char **argv)
{
    struct varve_opts opts;
    struct varve_history *h;
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 5) {
        fprintf(stderr, "usage: repartition LOCAL SHARED NAME STEPS [OLD NAME]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    must(varve_opts_init(&opts, sizeof(opts)), "options");
    opts.level = VARVE_LEVEL_COMPLETE;
    snprintf(opts.local, sizeof(opts.local), "%s", argv[1]);
    snprintf(opts.remote, sizeof(opts.remote), "%s", argv[2]);
    must(varve_open_mpi(MPI_COMM_WORLD, &opts, &ctx), "open");

    mine.first = (uint64_t)CELLS * (uint64_t)rank / (uint64_t)ranks;
    mine.n = (uint64_t)CELLS * (uint64_t)(rank + 1) / (uint64_t)ranks - mine.first;
    cells = calloc(mine.n, sizeof(*cells));
    must(cells ? 0 : -ENOMEM, "memory");
    uint64_t step = argc > 5 ? version_of(argv[5], rank) : 0;
    if (argc > 5)
        restart(argv[5], step);
    if (rank == 0)
        printf("%d processes from step %llu on\n", ranks, (unsigned long long)step);

    must(varve_history_open(ctx, argv[3], &h), "history");
    must(varve_protect(h, 0, &mine, sizeof(mine)), "protect");
    must(varve_protect(h, 1, cells, mine.n * sizeof(*cells)), "protect");
    for (uint64_t end = strtoull(argv[4], NULL, 10); step < end;) {
        step++;
        for (uint64_t i = 0; i < mine.n; i++)
            cells[i] = cells[i] * 1664525 + (mine.first + i) * step + 1;
        if (step % EVERY == 0)
            must(varve_checkpoint(h, step), "checkpoint");
    }
    uint64_t sum = 0, all = 0;
    for (uint64_t i = 0; i < mine.n; i++)
        sum += cells[i] * (2 * (mine.first + i) + 1);
    MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("after step %llu: %016llx\n", (unsigned long long)step, (unsigned long long)all);
    must(varve_close_mpi(MPI_COMM_WORLD, ctx), "close");
    free(cells);
    MPI_Finalize();
    return 0;
}
