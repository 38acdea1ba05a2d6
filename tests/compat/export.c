/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that go to VELOC's files and come back: export write CONFIG makes three versions, of regions and of a
 * file, and prints what is in them; export read CONFIG restores the newest and prints that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <veloc.h>

#define CHECK(cond)                                                    \
    do {                                                               \
        if (!(cond)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
            exit(1);                                                   \
        }                                                              \
    } while (0)

enum { N = 100003 };
static double field[N];
static int step[3];
static char nothing;

static void save(int version)
{
    char path[VELOC_MAX_NAME];
    for (int i = 0; i < N; i++)
        field[i] = version * 1e6 + i;
    for (int i = 0; i < 3; i++)
        step[i] = version + i;
    CHECK(VELOC_Checkpoint("heat", version) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_begin("own", version) == VELOC_SUCCESS);
    CHECK(VELOC_Route_file("own.txt", path) == VELOC_SUCCESS);
    FILE *f = fopen(path, "w");
    CHECK(f && fprintf(f, "the application's own, version %d\n", version) > 0 && fclose(f) == 0);
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
}

static void load(void)
{
    char path[VELOC_MAX_NAME], line[80] = "";
    int version = VELOC_Restart_test("heat", 0);
    CHECK(VELOC_Restart("heat", version) == VELOC_SUCCESS);
    for (int i = 0; i < N; i++)
        CHECK(field[i] == version * 1e6 + i);
    for (int i = 0; i < 3; i++)
        CHECK(step[i] == version + i);
    CHECK(VELOC_Restart_begin("own", version) == VELOC_SUCCESS);
    CHECK(VELOC_Route_file("own.txt", path) == VELOC_SUCCESS);
    FILE *f = fopen(path, "r");
    CHECK(f && fgets(line, sizeof(line), f) && fclose(f) == 0);
    CHECK(VELOC_Restart_end(1) == VELOC_SUCCESS);
    printf("version %d: %s", version, line);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    CHECK(VELOC_Init_single(5, argv[2]) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(9, step, 3, sizeof(int)) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(2, field, N, sizeof(double)) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(4, &nothing, 0, 1) == VELOC_SUCCESS);
    if (strcmp(argv[1], "write") == 0)
        for (int v = 3; v <= 5; v++)
            save(v);
    else
        load();
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    return 0;
}
