/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of several processes in one file, and back; in a folder that is the only argument. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/mpi.h>
#include <varve/vector.h>

#define CHECK(cond)                                                    \
    do {                                                               \
        if (!(cond)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
            MPI_Abort(MPI_COMM_WORLD, 1);                              \
        }                                                              \
    } while (0)

static int rank, ranks;

/* Element i of the whole file. */
static double value(uint64_t i)
{
    return (double)i * 1.5 + 7;
}

/* Process r has r * 1000 + 3 elements; the second one has none. */
static size_t count_of(int r)
{
    return r == 1 ? 0 : (size_t)r * 1000 + 3;
}

static uint64_t before(void)
{
    uint64_t n = 0;
    for (int r = 0; r < rank; r++)
        n += count_of(r);
    return n;
}

static void check_file(const char *path)
{
    uint64_t total = 0;
    for (int r = 0; r < ranks; r++)
        total += count_of(r);
    FILE *f = fopen(path, "rb");
    CHECK(f);
    for (uint64_t i = 0; i < total; i++) {
        double x;
        CHECK(fread(&x, sizeof(x), 1, f) == 1 && x == value(i));
    }
    CHECK(fgetc(f) == EOF);
    fclose(f);
}

int main(int argc, char **argv)
{
    struct varve_opts o;
    struct varve_ctx *ctx;
    struct varve_history *h;
    struct varve_vector *v, *back;
    char path[1024], none[1024];
    struct stat st;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(argc == 2 && varve_opts_init(&o, sizeof(o)) == 0);
    o.host_cache = 4 << 20;
    o.device = VARVE_DEVICE_NONE;
    CHECK(varve_open_mpi(MPI_COMM_WORLD, &o, &ctx) == 0);
    CHECK(varve_history_open(ctx, "v", &h) == 0);
    CHECK(varve_vector_new(h, sizeof(double), count_of(rank), &v) == 0);
    for (size_t i = 0; i < v->size; i++)
        VARVE_AT(v, double, i) = value(before() + i);
    snprintf(path, sizeof(path), "%s/all", argv[1]);
    snprintf(none, sizeof(none), "%s/nowhere/all", argv[1]);
    /* The second time over what is there. */
    for (int i = 0; i < 2; i++) {
        CHECK(varve_vector_export_mpi(MPI_COMM_WORLD, v, path) == 0);
        if (rank == 0)
            check_file(path);
    }
    CHECK(varve_vector_new(h, sizeof(double), count_of(rank), &back) == 0);
    CHECK(varve_vector_import_mpi(MPI_COMM_WORLD, back, path) == 0);
    CHECK(back->size == 0 || memcmp(back->data, v->data, v->size * sizeof(double)) == 0);
    /* A wrong argument of one process is the same error on all. */
    CHECK(varve_vector_export_mpi(MPI_COMM_WORLD, rank == ranks - 1 ? NULL : v, path) == -EINVAL);
    CHECK(varve_vector_import_mpi(MPI_COMM_WORLD, back, rank == 0 ? NULL : path) == -EINVAL);
    CHECK(varve_vector_export_mpi(MPI_COMM_WORLD, v, none) < 0);
    CHECK(varve_vector_import_mpi(MPI_COMM_WORLD, back, none) == -ENOENT);
    CHECK(varve_vector_resize(back, count_of(rank) + (rank == 0)) == 0);
    CHECK(varve_vector_import_mpi(MPI_COMM_WORLD, back, path) == -EMSGSIZE);
    MPI_Barrier(MPI_COMM_WORLD);
    strcat(path, ".part");
    CHECK(stat(path, &st) < 0);
    varve_vector_free(back);
    varve_vector_free(v);
    CHECK(varve_close_mpi(MPI_COMM_WORLD, ctx) == 0);
    MPI_Finalize();
    if (rank == 0)
        puts("ok");
    return 0;
}
