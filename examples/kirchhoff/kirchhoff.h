/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kirchhoff migration: declarations shared by the program's files. See README.md.
 *
 * Functions return 0 or a negative errno; rtm_error_text then has what went wrong and what to change.
 * All of this runs on one thread; the CPU's loops have OpenMP threads inside.
 */
#ifndef KIRCHHOFF_H
#define KIRCHHOFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <varve/blocks.h>
#include <varve/tables.h>

#include "numerics.h"

#ifdef __cplusplus
extern "C" { /* cuda.cu */
#endif

/* Before a loop whose iterations are independent and take unequal time. */
#ifdef _OPENMP
#define KIR_PARALLEL _Pragma("omp parallel for schedule(dynamic)")
#else
#define KIR_PARALLEL
#endif

enum { KIR_PATH = 1024, KIR_RECEIVERS = 8 /* of an item, at most */ };

enum kir_device { KIR_CPU, KIR_EMULATED, KIR_CUDA };
enum kir_layout { KIR_FLAT, KIR_CHUNKED };

struct kir_params {
    /* the ground */
    int dims;
    int n[KIR_AXES];
    double spacing; /* m */
    char model[KIR_PATH];
    double smooth; /* m; negative: choose */

    /* the survey */
    double frequency; /* Hz, of the Ricker wavelet's peak */
    int stations[2];  /* along x and y; 0: choose */
    double offset;    /* m, between source and receiver at most; 0: choose */
    double aperture;  /* m, largest distance from a station to imaged points; 0: choose */
    double time;      /* s, of a trace; 0: choose */
    int table_step;   /* cells between nodes of a table */

    /* how it runs */
    int device; /* enum kir_device */
    int threads;
    uint64_t model_cache; /* bytes on the device; 0: a quarter of the model, or 27 blocks */
    int edge;             /* of a block of the model, cells */
    int together;         /* stations whose rays are traced at once */
    uint64_t table_cache; /* bytes on the device; 0: a quarter of the tables, or an item's */
    int layout;           /* enum kir_layout, of tables */
    bool fallback;        /* the processor takes items, too */
    bool quiet, json;
    char out[KIR_PATH]; /* folder; empty: write nothing */
};

/* A source and some of its receivers: what is migrated at once, and what tables it needs. */
struct kir_item {
    uint32_t source, first, traces; /* traces first .. first + traces - 1 */
};

struct kir_station {
    float at[KIR_AXES];
};

/* Data for migrating an item besides the tables: that of the survey, or copies on a device. */
struct kir_shots {
    struct kir_grid grid;
    const struct kir_table *tables;
    const struct kir_station *stations;
    const uint32_t *receiver;
    const float *samples;
};

/* The model, the survey and the results. Arrays of the model have n[z] * n[x] * n[y] values. */
struct kir_survey {
    struct kir_grid grid;
    int dims;
    float *model;    /* true velocity, m/s */
    float *smooth;   /* velocity for rays, m/s */
    float *velocity; /* the same, cells/s */

    uint32_t stations, rays; /* rays of a station */
    struct kir_station *station;
    float (*direction)[KIR_AXES]; /* of each ray at the start */
    int steps;                    /* of rays */
    struct kir_table *tables;     /* of each station */
    uint64_t nodes;               /* of all tables */
    float *times;                 /* of every node */

    struct kir_item *items;
    uint32_t nitems, ntraces;
    uint32_t *receiver; /* of each trace */
    float *samples;     /* trace after trace */

    int64_t *image;
};

/* Figures for the report. */
struct kir_summary {
    double model_s, rays_s, traces_s, migrate_s;
    uint64_t model_bytes, model_cache;
    uint64_t table_cache;
    struct varve_blocks_stats blocks; /* stats_size 0: none */
    struct varve_tables_stats tables;
    double never; /* share of nodes without a ray nearby */
};

/* ---- args.c ---- */

void kir_params_init(struct kir_params *ret_params);
/* Returns 1 if the help was printed to `out`. */
int kir_args(int argc, char **argv, FILE *out, struct kir_params *ret_params);

/* ---- survey.c ---- */

/* init does everything before the times of the tables; kir_survey_traces makes the traces. kir_survey_fini accepts partial surveys. */
int kir_survey_init(const struct kir_params *params, struct kir_survey *ret_survey);
int kir_survey_traces(const struct kir_params *params, struct kir_survey *s);
void kir_survey_fini(struct kir_survey *s);
struct kir_shots kir_shots_of(const struct kir_survey *s);
/* Initialises the words of the tables from `first` on, before any ray has started: times next to stations are known. */
void kir_words_init(const struct kir_survey *s, uint32_t first, uint32_t stations,
                    uint64_t *ret_words);
/* Converts words of stations to times. */
void kir_words_done(struct kir_survey *s, uint32_t first, uint32_t stations, const uint64_t *words);
void kir_rays_init(const struct kir_survey *s, uint32_t first, uint32_t stations,
                   struct kir_ray *ret_rays);
/* Number of nodes of tables first .. first + stations - 1. */
uint64_t kir_words_of(const struct kir_survey *s, uint32_t first, uint32_t stations);
static inline long kir_cells(const struct kir_survey *s)
{
    return (long)s->grid.n[KIR_Z] * s->grid.n[KIR_X] * s->grid.n[KIR_Y];
}

/* ---- cpu.c ---- */

int kir_cpu_rays(struct kir_survey *s);
void kir_cpu_migrate(struct kir_survey *s);
/* Adds one item to an image; `tables`: the source's, then the receivers'. */
void kir_cpu_item(const struct kir_survey *s, const struct kir_item *item,
                  const float *const *tables, int64_t *image);
/* The time from a station to a cell. */
float kir_cpu_time(const struct kir_survey *s, uint32_t station, const int cell[KIR_AXES]);

/* ---- device.c: the same with caches on a device ---- */

/* Arguments of the kernel of rays besides the view; pointers are the device's. */
struct kir_rays_args {
    struct kir_grid grid;
    const struct kir_table *tables;
    const struct kir_ray *from;
    struct kir_ray *to;
    uint64_t *words;
    uint64_t first_node; /* of the first word */
    float time;          /* time at the end of the step */
};

struct kir_migrate_args {
    struct kir_shots shots;
    int64_t *image;
};

/* Launches kernels on a device. */
struct kir_launcher {
    int varve_device;   /* enum varve_device_kind */
    int (*check)(void); /* -ENODEV: there is no device; NULL: there always is one */
    int (*rays)(struct varve_ctx *ctx, struct kir_rays_args *args,
                const struct varve_blocks_view *view, struct CUstream_st *stream);
    int (*migrate)(struct varve_ctx *ctx, const struct kir_migrate_args *args,
                   const struct varve_tables_view *view, struct CUstream_st *stream);
};

int kir_device_rays(const struct kir_params *params, struct kir_survey *s,
                    struct kir_summary *summary);
int kir_device_migrate(const struct kir_params *params, struct kir_survey *s,
                       struct kir_summary *summary);

extern const struct kir_launcher kir_emulated; /* emulated.c */
extern const struct kir_launcher kir_cuda;     /* cuda.cu; without nvcc, no_cuda.c */

/* ---- program.c ---- */

int kir_run(const struct kir_params *params, struct kir_survey *ret_survey,
            struct kir_summary *ret_summary);
int kir_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
