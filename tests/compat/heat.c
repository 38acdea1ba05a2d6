/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heat spreading over a plate, one strip of rows to each process, written for VELOC's documented
 * interface and nothing else. It is compiled once and run in all ways of the tests.
 *
 *     heat CONFIG mem|file STEPS EVERY LIFE [STEP RANK]
 *
 * A checkpoint every EVERY steps; its version is the step. With STEP and RANK, that process kills
 * itself there. LIFE is a number that every checkpoint stores: after a restart all processes must
 * have the same one, otherwise they continue with a state that never existed.
 *
 * Prints "restart V life L" or "fresh", and at the end "sum S", which does not depend on how often it
 * was killed. Exit status 3: a mixture was restored; 2: something failed.
 */
#include <math.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <veloc.h>

enum { WIDTH = 96, ROWS = 40 };

static int rank, size, step, life, use_file;
static const char *config;
static double now[ROWS + 2][WIDTH], next[ROWS + 2][WIDTH];

static void check(int rc, const char *what)
{
    if (rc == VELOC_SUCCESS)
        return;
    fprintf(stderr, "[%d] %s failed at step %d\n", rank, what, step);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static void exchange(void)
{
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;

    MPI_Sendrecv(now[1], WIDTH, MPI_DOUBLE, up, 1, now[ROWS + 1], WIDTH, MPI_DOUBLE, down, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(now[ROWS], WIDTH, MPI_DOUBLE, down, 2, now[0], WIDTH, MPI_DOUBLE, up, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void advance(void)
{
    exchange();
    for (int i = 1; i <= ROWS; i++)
        for (int j = 0; j < WIDTH; j++) {
            double left = now[i][j > 0 ? j - 1 : j], right = now[i][j < WIDTH - 1 ? j + 1 : j];
            next[i][j] =
                now[i][j] + 0.1 * (left + right + now[i - 1][j] + now[i + 1][j] - 4 * now[i][j]);
        }
    memcpy(now[1], next[1], sizeof(double) * ROWS * WIDTH);
    if (rank == 0)
        for (int j = WIDTH / 4; j < WIDTH / 2; j++)
            now[1][j] = 100;
}

static int transfer(FILE *f, int writes)
{
    size_t n = ROWS * WIDTH;

    if (!f)
        return 0;
    int ok =
        writes ? fwrite(&step, sizeof(step), 1, f) == 1 && fwrite(&life, sizeof(life), 1, f) == 1 &&
                     fwrite(now[1], sizeof(double), n, f) == n
               : fread(&step, sizeof(step), 1, f) == 1 && fread(&life, sizeof(life), 1, f) == 1 &&
                     fread(now[1], sizeof(double), n, f) == n;
    return fclose(f) == 0 && ok;
}

static void save(void)
{
    char path[VELOC_MAX_NAME], original[VELOC_MAX_NAME];

    if (!use_file) {
        check(VELOC_Checkpoint("heat", step), "checkpoint");
        return;
    }
    check(VELOC_Checkpoint_wait(), "wait");
    check(VELOC_Checkpoint_begin("heat", step), "begin");
    snprintf(original, sizeof(original), "%s.state-%d", config, rank);
    check(VELOC_Route_file(original, path), "route");
    int ok = transfer(fopen(path, "wb"), 1);
    check(VELOC_Checkpoint_end(ok), "end");
}

static void load(int version)
{
    char path[VELOC_MAX_NAME], original[VELOC_MAX_NAME];

    if (!use_file) {
        check(VELOC_Restart("heat", version), "restart");
        return;
    }
    check(VELOC_Restart_begin("heat", version), "restart begin");
    snprintf(original, sizeof(original), "%s.state-%d", config, rank);
    check(VELOC_Route_file(original, path), "route");
    int ok = transfer(fopen(path, "rb"), 0);
    check(VELOC_Restart_end(ok), "restart end");
    if (!ok)
        MPI_Abort(MPI_COMM_WORLD, 2);
}

static void restart(void)
{
    int version = VELOC_Restart_test("heat", 0), mine[4], least[4];

    if (version <= 0) {
        if (rank == 0)
            printf("fresh\n");
        return;
    }
    load(version);
    mine[0] = step;
    mine[1] = -step;
    mine[2] = life;
    mine[3] = -life;
    MPI_Allreduce(mine, least, 4, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (least[0] != version || least[1] != -version || least[2] != -least[3]) {
        fprintf(stderr, "[%d] version %d holds step %d of life %d\n", rank, version, step, life);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    if (rank == 0)
        printf("restart %d life %d\n", version, life);
}

int main(int argc, char **argv)
{
    double sum = 0, total = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 6)
        MPI_Abort(MPI_COMM_WORLD, 2);
    config = argv[1];
    use_file = strcmp(argv[2], "file") == 0;
    int steps = atoi(argv[3]), every = atoi(argv[4]);
    int die_step = argc > 7 ? atoi(argv[6]) : -1, die_rank = argc > 7 ? atoi(argv[7]) : -1;

    for (int i = 1; i <= ROWS; i++)
        for (int j = 0; j < WIDTH; j++)
            now[i][j] = (rank * ROWS + i) * 31 % 17 + j * 7 % 13;
    check(VELOC_Init(MPI_COMM_WORLD, argv[1]), "init");
    check(VELOC_Mem_protect(0, &step, 1, sizeof(step)), "protect");
    check(VELOC_Mem_protect(1, &life, 1, sizeof(life)), "protect");
    check(VELOC_Mem_protect(2, now[1], ROWS * WIDTH, sizeof(double)), "protect");
    restart();
    fflush(stdout);
    life = atoi(argv[5]);
    while (step < steps) {
        advance();
        step++;
        if (step == die_step && rank == die_rank)
            raise(SIGKILL);
        if (step % every == 0)
            save();
    }
    for (int i = 1; i <= ROWS; i++)
        for (int j = 0; j < WIDTH; j++)
            sum += now[i][j] * (1 + (rank * ROWS + i) % 7 + j % 5);
    MPI_Reduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum %.17g\n", total);
    check(VELOC_Finalize(1), "finalize");
    MPI_Finalize();
    return 0;
}
