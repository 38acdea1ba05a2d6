/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experiments of `varve bench blocks`: paper 004's, on synthetic data. Only the launch of kernels differs
 * between the emulated device and a GPU; a struct ooc_launcher does it.
 *
 * The wave: a shell of points passes through a volume that is larger than its cache; each point reads the
 * eight cells around it at every step and adds what it interpolates to a sum of its own. Directions of
 * points are made once, so that every way and the bound see the same places.
 *
 * The survey: items of work in a 2D order use the tables next to them; the cache does not hold all tables
 * (lab/ooc/survey.h). Each item adds up elements of its tables, as integers.
 *
 * Ways give the same sums, bit for bit: each is compared with the resident run.
 */
#ifndef LAB_OOC_OOC_H
#define LAB_OOC_OOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <varve/blocks.h>
#include <varve/tables.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { OOC_WAYS_MAX = 8, OOC_TEXT = 160 };

/* ---- what kernels are given; pointers are the device's ---- */

struct ooc_direction {
    float d[3];
};

struct ooc_wave_args {
    float cells, radius;
    const struct ooc_direction *points;
    float *sums;
    const unsigned char *memory; /* not NULL: read the blocks only here */
};

struct ooc_survey_args {
    uint64_t *sums;    /* of each item */
    uint32_t reads;    /* elements of each table that an item reads */
    uint32_t from, to; /* without a view: items, their tables, and the places of those */
    const uint64_t *first, *bytes, *offsets;
    const uint32_t *uses;
    const unsigned char *memory;
};

struct ooc_launcher {
    int device; /* enum varve_device_kind */
    /* True if the device exists. NULL: it always does. -ENODEV. */
    int (*check)(void);
    int (*wave)(struct varve_ctx *ctx, const struct ooc_wave_args *args,
                const struct varve_blocks_view *view, struct CUstream_st *stream);
    int (*survey)(struct varve_ctx *ctx, const struct ooc_survey_args *args,
                  const struct varve_tables_view *view, struct CUstream_st *stream);
    /* The same for items from .. to, with all of their tables present. */
    int (*plain)(struct varve_ctx *ctx, const struct ooc_survey_args *args,
                 struct CUstream_st *stream);
    /* Managed memory with a copy of `from`, advised as read-mostly; NULL: there is none. -ENOSPC: it would not fit
     * the device or, before that, the host's memory. */
    int (*managed_new)(const void *from, uint64_t bytes, void **ret_ptr);
    void (*managed_free)(void *ptr);
};

extern const struct ooc_launcher ooc_emulated;

/* ---- results ---- */

/* A sample after each step of the wave, or every few milliseconds; counted from the start. */
struct ooc_sample {
    double s; /* seconds */
    /* In multiples of the cache's size: the memory that the way has taken from the device, and the used part. */
    double memory, used;
    uint64_t missed, ahead, evicted, rounds, bytes;
    double management_s, moving_s, launching_s, waiting_s; /* the last three of blocks only */
};

struct ooc_way {
    const char *name;
    char skipped[OOC_TEXT]; /* the reason why it was not run; empty: it was */
    double seconds;
    uint64_t bytes, missed, ahead, evicted, rounds, undone, from_host, slots;
    uint64_t host_items, moved_bytes;                      /* of tables */
    double management_s, moving_s, launching_s, waiting_s; /* see struct varve_blocks_stats */
    double utilisation; /* of the cache, averaged over the time */
    bool same;          /* sums equal those of the resident run */
    bool no_cache;      /* everything is read from its source */
    struct ooc_sample *samples;
    size_t nr_samples;
};

struct ooc_report {
    char device[64];
    double link_bps;
    uint64_t data_bytes, cache_bytes, touched_bytes;
    uint64_t tables, items; /* of a survey; 0: it was a wave */
    uint64_t least_bytes;   /* bytes by the policy of farthest next use over the same trace */
    double bound_s;         /* the larger of the resident time and those bytes over the link */
    struct ooc_way ways[OOC_WAYS_MAX];
    size_t nr_ways;
};

void ooc_report_fini(struct ooc_report *r);

/* ---- the wave ---- */

struct ooc_wave_opts {
    uint64_t seed;
    uint64_t volume_bytes;
    uint64_t cache_bytes; /* 0: `share` of the volume */
    double share;
    uint32_t points, steps, edge, ahead;
    unsigned jobs;    /* threads that prepare */
    const char *ways; /* see ooc_wanted */
};

struct ooc_survey_opts {
    uint64_t seed;
    uint64_t tables_bytes;
    uint64_t least_bytes, most_bytes; /* of a table */
    uint64_t cache_bytes;             /* 0: `share` of the tables */
    double share;
    uint32_t reads;
    bool fallback; /* the processor may do items, too */
    unsigned jobs;
    const char *ways;
};

/* Called before each way, with its name. */
typedef void (*ooc_progress)(void *arg, const char *way, double share);

/* `err` gets the reason. -EINVAL, -ENODEV, -ENOMEM, and the errors of blocks. */
int ooc_wave(const struct ooc_wave_opts *opts, const struct ooc_launcher *launcher,
             ooc_progress progress, void *arg, char err[OOC_TEXT], struct ooc_report *ret_report);

int ooc_survey(const struct ooc_survey_opts *opts, const struct ooc_launcher *launcher,
               ooc_progress progress, void *arg, char err[OOC_TEXT], struct ooc_report *ret_report);

/* The element that an item reads of its k-th table, as number e of them. */
#define OOC_ELEMENT(item, k, e, elements) \
    ((((uint64_t)(item)*16 + (k)) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(e)*7919) % (elements))

/* The names of all ways. */
const char *const *ooc_wave_ways(size_t *ret_nr);
const char *const *ooc_survey_ways(size_t *ret_nr);

/* True if a way is in a list, names with commas between them and '-' for blanks. NULL: every way is. Resident
 * always is: the others are compared with it. */
bool ooc_wanted(const char *ways, const char *name);
/* -EINVAL: the list has an unknown name. */
int ooc_ways_check(const char *ways, const char *const *names, size_t nr);

/* Shared by the experiments. */
struct vv_device;
double ooc_memory_taken(struct vv_device *d); /* bytes; NAN: not known */
int ooc_link(struct vv_device *d, struct ooc_report *r);

/* Blocks that steps touch, a bit each: step after step. */
struct ooc_touches {
    uint64_t *bits;
    uint64_t blocks, words; /* words of a step */
    uint32_t steps;
};

/* The number of blocks that are brought if the one that is needed last is evicted, with so many slots. -ENOMEM. */
int ooc_farthest(const struct ooc_touches *t, uint64_t slots, uint64_t *ret_brought,
                 uint64_t *ret_touched);

#ifdef __cplusplus
}
#endif

#endif
