/* SPDX-License-Identifier: Apache-2.0 */
/* varve bench gpufile: shared by its files. lab/gpufile/bench_gpufile.c explains their parts. */
#ifndef LAB_GPUFILE_BENCH_GPUFILE_H
#define LAB_GPUFILE_BENCH_GPUFILE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <varve/gpufile.h>

#include "base/util.h"
#include "cli/common/progress.h"
#include "device/device.h"
#include "lab/gpufile/gf_apps.h"
#include "lab/gpufile/gf_launch.h"

#define GFB_COMMAND "varve bench gpufile"

/* GPUfs mode with pages of the figure's size. */
#define GFB_ANY_PAGES "gpufs"

enum { GFB_TEXT = 256, GFB_PATH = 1024, GFB_NAME = 24, GFB_SERVERS_MAX = 64 };

/* Experiments, one bit each. */
enum gfb_part {
    GFB_PAGES,  /* Figure 2: page sizes */
    GFB_AHEAD,  /* Figure 9: readahead with small pages */
    GFB_LARGE,  /* Figure 10: files larger than the cache */
    GFB_MOSAIC, /* random records */
    GFB_HITS,   /* of the cache */
    GFB_APPS,   /* Figures 11 and 12: the fourteen programs */
    GFB_HALF,   /* Figures 13 and 14: with a cache of half their input */
    GFB_COLD,   /* nothing in the page cache */
    GFB_PART_NR
};

/* Ways to get a file into the memory of the GPU. */
enum gfb_mode {
    GFB_CPU,             /* one thread: read, then a copy */
    GFB_DOUBLE,          /* many threads, two pinned buffers each */
    GFB_GPUFS_4K,        /* one page a request, slots, one queue of pages */
    GFB_GPUFS_64K,       /* the same with larger pages */
    GFB_PREFETCH_GLOBAL, /* and the paper's readahead, with small pages */
    GFB_PREFETCH,        /* and its replacement policy */
    GFB_PREFETCH_MANY,   /* with as many threads as varve has */
    GFB_VARVE_KEPT,      /* varve, pages kept in the cache */
    GFB_VARVE,           /* varve, for a program that reads once */
    GFB_VARVE_MAPPED,    /* varve, the file mapped before; mapping counts */
    GFB_MODE_NR
};

const char *gfb_mode_name(enum gfb_mode mode);
const char *gfb_mode_title(enum gfb_mode mode);
const char *gfb_part_name(enum gfb_part part);
bool gfb_is_ours(enum gfb_mode mode);
/* A mode of the paper: slots, waiting, its replacement or GPUfs's. */
bool gfb_is_paper(enum gfb_mode mode);

struct gfb_opts {
    const char *out, *folder, *device;
    double scale;           /* of the programs' inputs, 1: the paper's */
    uint64_t bytes;         /* of the file that is read on and on */
    uint64_t mosaic_bytes;  /* of the file with records, */
    uint64_t records_bytes; /* the part of it that is read */
    uint32_t servers, blocks, threads, runs;
    unsigned parts, apps, modes; /* bits */
    double time_limit_s;         /* 0: none; no run is started after it */
    uint64_t seed;
    bool cold, is_short, resume, list, json;
};

struct gfb_row {
    char part[GFB_NAME], group[GFB_NAME], mode[GFB_NAME];
    bool cold;
    bool kept;           /* of an earlier run (--resume) */
    double x;            /* the x value of a figure over numbers; 0: none */
    uint64_t bytes;      /* read */
    double io_s;         /* until the bytes were in the memory of the GPU */
    double total_s;      /* with computing; programs only */
    double predicted_s;  /* of io_s, for the baselines; NAN: none */
    uint64_t wrong;      /* wrong words, and results */
    char text[GFB_TEXT]; /* the reason of a failure; "": none */
};

struct gfb_rows {
    struct gfb_row *row;
    size_t nr, cap;
};

/* Rates that are measured first, in bytes per second. */
struct gfb_rates {
    double pull, copy, pageable, read_one, pread; /* the last by all threads */
    double buffers;                               /* the same, a buffer of theirs at a time */
    double start_s; /* time until all threads have started, and ended */
};

struct gfb {
    struct gfb_opts o;
    struct varve_ctx *ctx;
    struct vv_device *device;
    struct gf_gpu *gpu;
    bool emulated;
    char device_name[64];
    struct gfb_rates rates;
    struct gfb_rows rows;
    struct progress progress;
    unsigned steps, steps_done; /* experiments, or programs of one */
    double started_s;
    char error[GFB_TEXT]; /* of the last error */
    char command[1024], date[32];
    unsigned char *pinned; /* two buffers for each thread */
    void *pinned_dev;      /* the same, by the device's addresses */
    size_t pinned_bytes, buffer_bytes;
    struct gf_result *result; /* on the device */
    struct vv_stream *stream;
    struct vv_event *event;
    bool bad; /* a run failed, or had wrong words */
};

/* Set by the signal that ends the command. */
extern volatile sig_atomic_t gfb_interrupted;

double gfb_now_s(void);
/* No more runs: interrupted, or out of time. */
bool gfb_over(const struct gfb *b);
/* Stores the reason, and returns rc. */
int gfb_fail(struct gfb *b, int rc, const char *fmt, ...) VV_PRINTF(3, 4);

/* The row with these names, or a new one. NULL: no memory. */
struct gfb_row *gfb_row(struct gfb *b, const char *part, const char *group, const char *mode);
const struct gfb_row *gfb_find(const struct gfb *b, const char *part, const char *group,
                               const char *mode);

/* ---- bench_gpufile_read.c: getting files into memory ---- */

/* Files, and their contents. */
struct gfb_input {
    unsigned n;
    char path[3][GFB_PATH];
    int fd[3];
    uint64_t bytes[3], seed, cols;
    uint32_t content[3];
};

/* Variants of a way. 0 means the library's default. */
struct gfb_way {
    enum gfb_mode mode;
    uint64_t cache_bytes;
    uint64_t piece;       /* of a read; 0: 128 KiB, or a page */
    uint32_t page, ahead; /* instead of that of the mode */
    uint32_t blocks, threads;
    uint32_t servers; /* 0: the default of the mode */
    uint64_t fetched; /* bytes to read; 0: those of the files */
    bool cold;
    bool anywhere; /* `blocks` warps read records at random */
    bool own;      /* each stream replaces its own pages, instead of the policy of the mode */
};

uint64_t gfb_input_bytes(const struct gfb_input *in);
/* The number of threads that serve in that way. */
uint32_t gfb_servers(const struct gfb *b, const struct gfb_way *way);
/* Writes the files into the folder, and leaves them in the page cache. */
VV_WARN_UNUSED int gfb_input_new(struct gfb *b, const struct gf_shape *shape,
                                 struct gfb_input *ret_input);
void gfb_input_fini(struct gfb_input *in);
/* Drops them from the page cache. */
void gfb_input_drop(const struct gfb_input *in);

/* A file system for the way, with its files registered. `ret_map_s`: the time of mapping. */
VV_WARN_UNUSED int gfb_fs_open(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                               uint32_t streams, struct varve_gpufs **ret_fs, uint32_t ret_ids[3],
                               double *ret_map_s);

/* An input that may be read several times in the same way. */
struct gfb_reader;
VV_WARN_UNUSED int gfb_reader_new(struct gfb *b, const struct gfb_way *way,
                                  const struct gfb_input *in, struct gfb_reader **ret_reader);
void gfb_reader_free(struct gfb_reader *r);
/* Reads all files to dst, in device memory. Returns the time. */
VV_WARN_UNUSED int gfb_reader_read(struct gfb_reader *r, unsigned char *const dst[3],
                                   double *ret_s);
/* Time for mapping, to be added once. */
double gfb_reader_map_s(const struct gfb_reader *r);

/* The number of wrong words in the device's memory. */
VV_WARN_UNUSED int gfb_check(struct gfb *b, const struct gfb_input *in, unsigned char *const dst[3],
                             uint64_t *ret_wrong);
/* Copies, with a wait for the end. */
VV_WARN_UNUSED int gfb_copy(struct gfb *b, void *dst, const void *src, size_t bytes);
VV_WARN_UNUSED int gfb_result_clear(struct gfb *b);
/* Called after the kernels were launched. -EIO and other errors: those of the kernels. */
VV_WARN_UNUSED int gfb_result_get(struct gfb *b, struct gf_result *ret_result);

/* ---- bench_gpufile_rates.c: what limits them ---- */

VV_WARN_UNUSED int gfb_rates_measure(struct gfb *b);
/* Adds rows for the references of the next experiment. */
VV_WARN_UNUSED int gfb_rates_of(struct gfb *b, enum gfb_part part);
/* Adds rows for rates measured since the last call. The caller holds no row: rows may move. */
VV_WARN_UNUSED int gfb_rates_keep(struct gfb *b);
/* Parameters of threads that read a file, to measure their speed. */
struct gfb_preads {
    uint64_t piece;
    uint32_t threads; /* 0: the number of servers */
    int runs;         /* the number of tries, the best counts; 0: two */
    uint64_t span;    /* total memory that they read into; 0: a piece each */
    bool anywhere;    /* at random */
    bool direct;      /* past the page cache */
};
VV_WARN_UNUSED int gfb_pread_rate(struct gfb *b, const struct gfb_input *in,
                                  const struct gfb_preads *how, double *ret_rate);
/* The disk rate of our own reader with `depth` reads in flight. */
VV_WARN_UNUSED int gfb_disk_rate(struct gfb *b, const struct gfb_input *in, unsigned depth,
                                 double *ret_rate);
/* The expected time of reading, from separate measurements. NAN: for varve, which has no model. */
VV_WARN_UNUSED int gfb_predict(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                               double *ret_s);
/* Measures again after the run the rates that change from minute to minute, and takes the mean of both. */
VV_WARN_UNUSED int gfb_predict_after(struct gfb *b, const struct gfb_way *way,
                                     const struct gfb_input *in, double *predicted_s);

/* ---- bench_gpufile_parts.c: the experiments ---- */

VV_WARN_UNUSED int gfb_run(struct gfb *b);

/* ---- bench_gpufile_goals.c: what was to be reached ---- */

struct gfb_goal {
    char name[96];
    double value, bar; /* at least */
};

enum { GFB_GOALS_MAX = 32 };

/* The goals that have rows. Returns their number. */
size_t gfb_goals(const struct gfb *b, struct gfb_goal *ret_goals);

/* Bytes over io_s, in GB/s; NAN: it failed, or the row does not exist. */
double gfb_gbps(const struct gfb_row *r);
/* Measured over predicted: 1 is explained. NAN: no prediction. */
double gfb_explained(const struct gfb_row *r);

/* The geometric mean over the programs of the factor by which a mode is faster than the other, and the least
 * factor. */
struct gfb_mean {
    double mean, least;
    size_t n;
};
struct gfb_mean gfb_mean(const struct gfb *b, const char *part, const char *mode,
                         const char *other_part, const char *other_mode);

/* ---- bench_gpufile_page.c: what becomes of them ---- */

VV_WARN_UNUSED int gfb_write(const struct gfb *b, char *err, size_t err_bytes);
/* Rows of an earlier run. */
VV_WARN_UNUSED int gfb_load(struct gfb *b);
void gfb_print(const struct gfb *b);
void gfb_print_json(const struct gfb *b);

#endif
