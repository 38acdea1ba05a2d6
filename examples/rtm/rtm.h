/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reverse time migration: declarations shared by the program's files. See README.md.
 *
 * Functions return 0 or a negative errno; rtm_error_text then has what went wrong and what to
 * change. All of this runs on one thread; the CPU's kernels have OpenMP threads inside.
 */
#ifndef RTM_H
#define RTM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <varve/ckpt.h>

#include "numerics.h"

#ifdef __cplusplus
extern "C" { /* prop_cuda.cu */
#endif

/* Before a loop whose iterations are independent. */
#ifdef _OPENMP
#define RTM_PARALLEL _Pragma("omp parallel for schedule(static)")
#else
#define RTM_PARALLEL
#endif

enum { RTM_PATH = 1024 };

enum rtm_device { RTM_CPU, RTM_CUDA };
enum rtm_store_kind { RTM_STORE_VARVE, RTM_STORE_FILE, RTM_STORE_MEMORY };
enum rtm_hints { RTM_HINTS_FIRST, RTM_HINTS_TURN, RTM_HINTS_NONE };
enum rtm_access { RTM_ACCESS_AUTO, RTM_ACCESS_COPY, RTM_ACCESS_LEND };

struct rtm_params {
    /* the ground */
    int dims;
    int n[RTM_AXES]; /* cells: z, x, y */
    double spacing;  /* m */
    char model[RTM_PATH];
    char migration_model[RTM_PATH]; /* empty: the model, smoothed */
    double smooth;                  /* m; negative: choose */

    /* the survey */
    double frequency; /* Hz, of the Ricker wavelet's peak */
    double dt;        /* s; 0: choose */
    double time;      /* s; 0: choose */
    int steps;        /* 0: from time */
    int every;        /* steps between two snapshots; 0: choose */
    int shots;
    int receiver_step; /* cells between receivers; 0: choose */
    int border;
    char data[RTM_PATH];       /* observed data; empty: modelled */
    char write_data[RTM_PATH]; /* where to write them; empty: nowhere */

    /* how it runs */
    int device;  /* enum rtm_device */
    int threads; /* 0: OpenMP's default */
    int store;   /* enum rtm_store_kind */
    int hints;   /* enum rtm_hints */
    int access;  /* enum rtm_access */
    double zfp;  /* tolerance, as a share of the largest amplitude of the snapshot; 0: off */
    uint64_t memory;
    bool prefetch;
    bool consume;
    bool measure_disk;
    bool no_local; /* Varve has no disk tier */
    bool quiet, json;
    char out[RTM_PATH]; /* folder; empty: write nothing */
    struct varve_opts varve;
};

struct rtm_summary {
    struct rtm_grid grid;
    double dt, spacing, frequency;
    int steps, every, shots, receivers;
    uint64_t snapshots;      /* of one shot */
    uint64_t snapshot_bytes; /* before compression */
    uint64_t history_bytes;  /* of the largest shot, as stored */
    uint64_t cache_bytes;    /* memory that the store keeps snapshots in */
    uint64_t bytes_put, bytes_got;
    double open_s, model_s, forward_s, backward_s, close_s;
    double wall_s; /* forward and backward, all shots */
    double blocked_put_s, blocked_get_s;
    double compute_s; /* wall time minus blocked time */
    double call_s;    /* on a GPU: host time inside calls of the store, overlapped or not */
    double cells_per_s;
    double disk_write_bps, disk_read_bps; /* 0: not measured */
    uint64_t peak_rss_bytes, device_bytes;
    bool direct;              /* the plain file went past the page cache */
    struct varve_stats stats; /* Varve only; stats_size 0: none */
};

/* Results of a migration: arrays of n[z] * n[x] * n[y] floats, z fastest. */
struct rtm_result {
    struct rtm_summary summary;
    float *image;     /* filtered */
    float *raw;       /* correlated and divided by the illumination */
    float *model;     /* true velocity */
    float *migration; /* velocity used to migrate */
};

void rtm_result_fini(struct rtm_result *result);

/* Set by a signal: the program ends at the next step, with -EINTR. */
extern volatile sig_atomic_t rtm_interrupted;

/* ---- error.c ---- */

/* Keeps the text, and returns err. */
int rtm_error(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *rtm_error_text(void);
/* The same with the library's error text. `ctx` may be NULL. */
int rtm_error_varve(struct varve_ctx *ctx, int err, const char *what);
void rtm_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
double rtm_now(void);
/* 1536 -> "1.50 KiB"; the text is valid until the eighth following call. */
const char *rtm_bytes(uint64_t bytes);
/* "512M" in powers of 1024; -EINVAL. */
int rtm_parse_bytes(const char *text, uint64_t *ret_bytes);

/* ---- args.c ---- */

void rtm_params_init(struct rtm_params *ret_params);
/* Reads the command line. Returns 1 if it asks for help, which is printed to `out` unless that is NULL. */
int rtm_args(int argc, char **argv, FILE *out, struct rtm_params *ret_params);

/* ---- grid.c ---- */

void rtm_grid_init(struct rtm_grid *g, int dims, const int n[RTM_AXES], int border);
long rtm_grid_cell(const struct rtm_grid *g, int z, int x, int y); /* of the model, in a field */
long rtm_grid_points(const struct rtm_grid *g);                    /* cells of the model */
/* The stretching along one axis: `a` and `b` have 2 * slab floats. */
void rtm_grid_stretch(const struct rtm_grid *g, int d, double velocity_dt, double frequency_dt,
                      float *a, float *b);
double rtm_grid_dt_max(int dims, double spacing, double velocity);

/* ---- model.c ---- */

/* The velocity in m/s of a built-in model or a file. */
int rtm_model_new(const char *name, int dims, const int n[RTM_AXES], float **ret_velocity);
int rtm_model_smooth(const int n[RTM_AXES], double cells, float *velocity);
void rtm_model_range(const float *velocity, long points, float *ret_min, float *ret_max);

/* ---- prop_cpu.c, prop_cuda.cu: propagators ---- */

struct rtm_setup {
    struct rtm_grid grid;
    int steps;
    long receivers;
    const long *receiver_cells;        /* in a field */
    const float *stretch[RTM_AXES][2]; /* a, b */
    int threads;
    int device_id; /* -1: the first */
};

enum rtm_pause { RTM_PAUSE_PUT, RTM_PAUSE_GET, RTM_PAUSES };

struct rtm_prop;

/* Memory named "own" is where the propagator works: device memory on a GPU. */
struct rtm_prop_ops {
    const char *name;
    bool on_device;
    void (*free)(struct rtm_prop *p);
    /* (c dt / h)^2 of every cell of a field, in host memory. */
    int (*set_model)(struct rtm_prop *p, const float *v2);
    int (*reset)(struct rtm_prop *p); /* all is quiet */
    int (*step)(struct rtm_prop *p);
    int (*inject)(struct rtm_prop *p, long cell, float amplitude);
    int (*record)(struct rtm_prop *p, int it);           /* at the receivers */
    int (*get_records)(struct rtm_prop *p, float *data); /* steps * receivers, host memory */
    int (*set_data)(struct rtm_prop *p, const float *data);
    int (*inject_data)(struct rtm_prop *p, int it);
    int (*snapshot)(struct rtm_prop *p, float *own);
    int (*correlate)(struct rtm_prop *p, const float *own);
    int (*snapshot_to_host)(struct rtm_prop *p, float *host); /* waits */
    int (*correlate_host)(struct rtm_prop *p, const float *host);
    int (*clear_image)(struct rtm_prop *p);
    int (*get_image)(struct rtm_prop *p, float *image, float *light);
    /* Between these two calls the computation waits for the store. */
    int (*pause_begin)(struct rtm_prop *p, enum rtm_pause kind);
    int (*pause_end)(struct rtm_prop *p, enum rtm_pause kind);
    /* Waits for all work, and returns how long the computation waited since the last reset of
     * the sums; resets them. */
    int (*pauses)(struct rtm_prop *p, double ret_s[RTM_PAUSES]);
    int (*sync)(struct rtm_prop *p);
    void *(*own_alloc)(struct rtm_prop *p, size_t bytes);
    void (*own_free)(struct rtm_prop *p, void *own);
    void *(*host_alloc)(struct rtm_prop *p, size_t bytes); /* aligned to a page, pinned on a GPU */
    void (*host_free)(struct rtm_prop *p, void *host);
    int (*copy)(struct rtm_prop *p, void *dst, const void *src,
                size_t bytes); /* any to any; waits */
};

struct rtm_prop {
    const struct rtm_prop_ops *ops;
    struct CUstream_st *stream; /* NULL on the CPU */
    int varve_device;           /* enum varve_device_kind: whose memory it works in */
    uint64_t device_bytes;
};

int rtm_prop_cpu_new(const struct rtm_setup *setup, struct rtm_prop **ret_prop);
/* -ENOTSUP: built without nvcc; -ENODEV: no GPU. */
int rtm_prop_cuda_new(const struct rtm_setup *setup, struct rtm_prop **ret_prop);

/* ---- store.c, store_varve.c: storage of snapshots ---- */

struct rtm_store;

struct rtm_store_ops {
    const char *name;
    int (*close)(struct rtm_store *s); /* always frees */
    /* Called before versions 0 to count - 1 of a shot are put, and again before they are read. */
    int (*shot)(struct rtm_store *s, uint64_t count);
    int (*turn)(struct rtm_store *s, uint64_t count);
    /* put_begin returns the memory for a snapshot; after put_end the snapshot is there, with `bytes` bytes. */
    int (*put_begin)(struct rtm_store *s, uint64_t version, void **ret_ptr);
    int (*put_end)(struct rtm_store *s, uint64_t version, size_t bytes);
    int (*get_begin)(struct rtm_store *s, uint64_t version, void **ret_ptr);
    int (*get_end)(struct rtm_store *s, uint64_t version);
    void (*stats)(struct rtm_store *s, struct varve_stats *ret_stats);
};

struct rtm_store {
    const struct rtm_store_ops *ops;
    uint64_t cache_bytes;
    uint64_t live_bytes; /* that stores other than Varve hold now */
    bool direct;
};

struct rtm_store_opts {
    const struct rtm_params *params;
    struct rtm_prop *prop;
    size_t max_bytes;   /* of a snapshot as it is stored */
    uint64_t snapshots; /* of a shot */
    bool in_own;        /* snapshots are in memory of the propagator; else in host memory */
    bool fixed;         /* all have max_bytes */
    const char *folder; /* for files */
};

int rtm_store_open(const struct rtm_store_opts *opts, struct rtm_store **ret_store);
int rtm_store_varve_open(const struct rtm_store_opts *opts, struct rtm_store **ret_store);
/* Bytes/s of the disk under `folder`, past the page cache where that is allowed. */
int rtm_measure_disk(const char *folder, uint64_t bytes, double *ret_write, double *ret_read);

/* ---- pack.c: compression ---- */

struct rtm_pack;

bool rtm_pack_built(void);
/* -ENOTSUP: built without zfp. */
int rtm_pack_new(const struct rtm_grid *grid, double tolerance, struct rtm_pack **ret_pack);
void rtm_pack_free(struct rtm_pack *pack);
size_t rtm_pack_max_bytes(const struct rtm_pack *pack);
int rtm_pack(struct rtm_pack *pack, const float *snapshot, void *buffer, size_t *ret_bytes);
int rtm_unpack(struct rtm_pack *pack, const void *buffer, float *snapshot);

/* ---- image.c, png.c ---- */

/* Divides by the illumination, and removes slow variations. */
void rtm_image_finish(const struct rtm_grid *g, const float *image, const float *light,
                      double spacing, int mute, float *ret_raw, float *ret_filtered);
/* A picture of the image, which the caller frees. */
int rtm_image_png(const struct rtm_grid *g, const float *values, bool is_model, uint8_t **ret_png,
                  size_t *ret_bytes);
int rtm_png(int width, int height, const uint8_t *pixels, const uint8_t palette[256][3],
            uint8_t **ret_png, size_t *ret_bytes);

/* ---- shots.c ---- */

/* A part of a job: shots first, first + stride, ... of all, and how their images are summed. */
struct rtm_part {
    int rank, ranks;
    /* Adds the image and illumination of shot `shot`, computed by rank shot % ranks, to the sums,
     * which only rank 0 has. All ranks call it for all shots in the same order. NULL: one rank. */
    int (*sum)(int shot, long points, float *image, float *light, float *sum_image,
               float *sum_light);
};

int rtm_run(const struct rtm_params *params, const struct rtm_part *part,
            struct rtm_result *ret_result);

/* ---- program.c ---- */

/* The whole program, and its exit status. */
int rtm_main(int argc, char **argv, const struct rtm_part *part);

/* ---- report.c ---- */

struct rtm_progress {
    bool on, tty;
    double next_s, started_s, phase_s;
    int last_percent;
    const char *phase;
};

void rtm_progress_init(struct rtm_progress *pr, const struct rtm_params *params);
/* Cheap: draws only from time to time. `store` may be NULL. */
void rtm_progress_show(struct rtm_progress *pr, const struct rtm_params *params, const char *phase,
                       int shot, int step, int steps, double blocked_s, struct rtm_store *store);
void rtm_progress_clear(struct rtm_progress *pr);
/* Adds the results for a report to the trace, if there is one. */
void rtm_trace_result(const struct rtm_params *params, const struct rtm_result *result);
void rtm_report_table(FILE *f, const struct rtm_params *params, const struct rtm_summary *s);
void rtm_report_json(FILE *f, const struct rtm_params *params, const struct rtm_summary *s);
int rtm_write_outputs(const struct rtm_params *params, const struct rtm_result *result);

#ifdef __cplusplus
}
#endif

#endif
