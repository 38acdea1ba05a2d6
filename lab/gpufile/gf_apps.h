/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourteen programs that read their input from files and compute on a GPU: our own programs, after the list of
 * benchmarks in the readahead paper (its Table 1), with files of the same number and sizes. They compute similar
 * results in whole numbers (lab/gpufile/gf_kernels.h).
 */
#ifndef LAB_GPUFILE_GF_APPS_H
#define LAB_GPUFILE_GF_APPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "lab/gpufile/gf_launch.h"

enum gf_app_id {
    GF_HOTSPOT,
    GF_LUD,
    GF_BACKPROP,
    GF_BFS,
    GF_DWT2D,
    GF_NW,
    GF_PATHFINDER,
    GF_STENCIL,
    GF_2DCONV,
    GF_3DCONV,
    GF_GESUMMV,
    GF_MVT,
    GF_BICG,
    GF_ATAX,
    GF_APP_NR
};

struct gf_app {
    const char *name;
    unsigned n_files;
    double mib[3];   /* of the paper's files */
    unsigned blocks; /* of its I/O kernel; 512 threads each */
};

extern const struct gf_app gf_apps[GF_APP_NR];

/* The shape of a program's input. */
struct gf_shape {
    enum gf_app_id app;
    uint64_t seed;
    uint64_t rows, cols, planes;
    uint64_t bytes[3];   /* of each file, multiples of 4 */
    uint64_t out_words;  /* of the result */
    uint64_t tmp_words;  /* of other memory on the device */
    uint32_t content[3]; /* enum gf_content of each file */
};

/* The input `scale` times as large as the paper's, or the next smaller one with a valid shape. */
void gf_shape_init(enum gf_app_id app, double scale, uint64_t seed, struct gf_shape *ret_shape);

/* Writes file k of the input to an open, empty file, with so many threads. Negative errno. */
VV_WARN_UNUSED int gf_shape_write(const struct gf_shape *shape, unsigned k, int fd,
                                  unsigned threads);

/* Memory on the device for a program. */
struct gf_memory {
    uint32_t *in[3], *out, *tmp;
    struct gf_result *result;
};

/* Starts the computation of the program, once its input is in memory. With bfs, waits for the device. */
VV_WARN_UNUSED int gf_app_compute(struct gf_gpu *gpu, struct vv_device *device,
                                  const struct gf_shape *shape, const struct gf_memory *memory);

/* The expected sum over the result, computed by so many threads from the files' bytes. 0 for lud, which takes too
 * long: gf_lud_right checks its result. -ENOMEM. */
VV_WARN_UNUSED int gf_app_expect(const struct gf_shape *shape, const uint32_t *const files[3],
                                 unsigned threads, uint64_t *ret_sum);

/* Checks that L times U is the matrix: both are multiplied with four random vectors, modulo 2^32. A wrong
 * word passes each of them with a chance of one half at most, and nearly always far less. -ENOMEM. */
VV_WARN_UNUSED int gf_lud_right(const struct gf_shape *shape, const uint32_t *matrix,
                                const uint32_t *result, unsigned threads, bool *ret_right);

/* Runs fn for parts of [0, n) in so many threads. -EAGAIN, -ENOMEM. */
VV_WARN_UNUSED int gf_parallel(uint64_t n, unsigned threads,
                               void (*fn)(void *arg, uint64_t first, uint64_t last), void *arg);

/* The blocks and threads of a kernel that computes. */
void gf_app_grid(const struct gf_gpu *gpu, unsigned *ret_blocks, unsigned *ret_threads);

#endif
