/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heat in a rod, on the processes of an MPI job that continues after a kill.
 *
 *     mpicc heat_mpi.c $(pkg-config --cflags --libs varve-mpi) -o heat_mpi
 *     mpirun -n 4 ./heat_mpi /local/me /shared/me 700   # the last process kills itself at step 700
 *     mpirun -n 4 ./heat_mpi /local/me /shared/me       # finds the latest checkpoint, and finishes
 *
 * Level `complete`: every checkpoint is written to local disk and from there to the shared folder, in
 * the background. It counts when the parts of all processes are there. The step number is the version.
 */
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <varve/mpi.h>

enum { STEPS = 2000, EVERY = 50, CELLS = 1000 };

static struct varve_ctx *ctx;
static struct varve_history *h;
static double now[CELLS + 2], next[CELLS + 2]; /* own cells, and one cell of each neighbour */
static int rank, ranks;

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "heat_mpi: process %d: %s: %s\n", rank, what, varve_error(ctx));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void open_history(const char *local, const char *shared)
{
    struct varve_opts opts;
    struct varve_history_opts hopts;

    must(varve_opts_init(&opts, sizeof(opts)), "options");
    opts.level = VARVE_LEVEL_COMPLETE;
    snprintf(opts.local, sizeof(opts.local), "%s", local);
    snprintf(opts.remote, sizeof(opts.remote), "%s", shared);
    must(varve_open_mpi(MPI_COMM_WORLD, &opts, &ctx), "open");
    must(varve_history_opts_init(&hopts, sizeof(hopts)), "options");
    hopts.keep = 2; /* counts complete versions; those not complete yet are kept, too */
    must(varve_history_open_with(ctx, "rod", &hopts, &h), "history");
    must(varve_protect(h, 0, now, sizeof(now)), "protect");
}

static void step(void)
{
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL,
        right = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;

    MPI_Sendrecv(&now[1], 1, MPI_DOUBLE, left, 0, &now[CELLS + 1], 1, MPI_DOUBLE, right, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&now[CELLS], 1, MPI_DOUBLE, right, 0, &now[0], 1, MPI_DOUBLE, left, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 1; i <= CELLS; i++)
        next[i] = now[i] + 0.4 * (now[i - 1] - 2 * now[i] + now[i + 1]);
    for (int i = 1; i <= CELLS; i++)
        now[i] = next[i];
}

int main(int argc, char **argv)
{
    uint64_t at = 0;
    double mine = 0, heat = 0;
    int rc;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3) {
        if (rank == 0)
            fprintf(stderr, "usage: heat_mpi LOCAL SHARED [STEP]\n");
        MPI_Finalize();
        return 2;
    }
    open_history(argv[1], argv[2]);
    now[0] = rank == 0 ? 100 : 0; /* the heated end */

    rc = varve_latest_mpi(MPI_COMM_WORLD, h, &at); /* the same on all processes */
    if (rc != -ENOENT) {
        must(rc, "latest");
        must(varve_restore_mpi(MPI_COMM_WORLD, h, at), "restore");
    }
    if (rank == 0)
        printf("from step %llu on\n", (unsigned long long)at), fflush(stdout);
    while (at < STEPS) {
        step();
        at++;
        if (argc > 3 && rank == ranks - 1 && at == strtoull(argv[3], NULL, 10))
            raise(SIGKILL);
        if (at % EVERY == 0) /* not collective; returns when `now` may be changed again */
            must(varve_checkpoint(h, at), "checkpoint");
    }
    rc = varve_close_mpi(MPI_COMM_WORLD, ctx); /* finishes pending flushes */
    ctx = NULL;
    must(rc, "close");

    for (int i = 1; i <= CELLS; i++)
        mine += now[i];
    MPI_Reduce(&mine, &heat, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("after step %llu there is heat of %.6f\n", (unsigned long long)at, heat);
    MPI_Finalize();
    return 0;
}
