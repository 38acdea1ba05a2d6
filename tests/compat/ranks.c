/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program written for VELOC that comes back with another number of processes: ranks CONFIG WHAT.
 *
 *   write     begins afresh, and leaves versions 1 to 3
 *   refused   finds nothing, and cannot write either
 *   other     finds nothing, but can write
 *   cleanup   finds nothing, cleans up, and then begins afresh
 *   restart   restarts from version 3
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <veloc.h>

static int rank, data[1000];

#define CHECK(cond)                                                           \
    do {                                                                      \
        if (!(cond)) {                                                        \
            fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #cond); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                     \
        }                                                                     \
    } while (0)

static void write_versions(int want)
{
    for (int v = 1; v <= 3; v++) {
        data[0] = v * 100 + rank;
        CHECK((VELOC_Checkpoint("state", v) == VELOC_SUCCESS) == want);
    }
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
}

static void restart(void)
{
    CHECK(VELOC_Restart_test("state", 0) == 3);
    data[0] = 0;
    CHECK(VELOC_Restart("state", 3) == VELOC_SUCCESS);
    CHECK(data[0] == 300 + rank);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CHECK(argc == 3);
    const char *what = argv[2];
    CHECK(VELOC_Init(MPI_COMM_WORLD, argv[1]) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, data, 1000, sizeof(int)) == VELOC_SUCCESS);
    if (strcmp(what, "restart") == 0) {
        restart();
    } else {
        CHECK(VELOC_Restart_test("state", 0) == -1);
        CHECK(VELOC_Restart_test("state", 0) == -1);
        if (strcmp(what, "cleanup") == 0)
            CHECK(VELOC_Cleanup("state") == VELOC_SUCCESS);
        write_versions(strcmp(what, "refused") != 0);
        MPI_Barrier(MPI_COMM_WORLD);
        if (strcmp(what, "refused") != 0)
            restart();
    }
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    if (rank == 0)
        printf("ok\n");
    MPI_Finalize();
    return 0;
}
