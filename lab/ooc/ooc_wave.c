/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wave through a volume, in all ways.
 *
 *   resident     everything is in the cache already: the limit of computing
 *   blocks       a cache of a share of the volume
 *   none ahead   the same, without bringing blocks before they are asked for
 *   paper        the same cache, by the policy of the paper
 *   zero copy    cells stay in host memory and kernels read them there
 *   uvm          managed memory that fits the device: the driver brings pages at the first touch
 *
 * Double buffering is not among them, because the blocks of a step are known only when it runs.
 *
 * One thread runs everything. Samples are taken after each step, for the time up to it.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "ckpt/face.h"
#include "cli/common/parallel.h"
#include "lab/ooc/ooc.h"
#include "ooc/ooc_hooks.h"

enum way { RESIDENT, BLOCKS, NONE_AHEAD, PAPER, ZERO_COPY, UVM, WAYS };

static const char *const way_names[WAYS] = {"resident", "blocks",    "none ahead",
                                            "paper",    "zero copy", "uvm"};

struct wave {
    const struct ooc_wave_opts *o;
    const struct ooc_launcher *launcher;
    struct varve_ctx *ctx;
    struct varve_blocks_opts blocks;
    uint64_t cells, block_bytes;
    unsigned char *volume;
    struct ooc_direction *points;
    float *expected, *got;
    struct ooc_wave_args args;
    void *dev_points, *dev_sums;
    struct ooc_touches touches;
    double taken; /* of the device's memory, before the cache of the present way */
    uint64_t cache_bytes;
    char *err;
};

static int fail(struct wave *w, int rc, const char *what)
{
    struct varve_error e = {.error_size = sizeof(e)};

    if (w->ctx && varve_last_error(w->ctx, &e) == 0 && e.err == rc && e.text[0])
        snprintf(w->err, OOC_TEXT, "%s: %s", what, e.text);
    else
        snprintf(w->err, OOC_TEXT, "%s: %s", what, varve_strerror(rc));
    return rc;
}

/* ---- what is there before ---- */

static void fill(void *arg, size_t i)
{
    struct wave *w = arg;
    uint64_t words = w->block_bytes / 4;
    float *to = (float *)(void *)(w->volume + i * w->block_bytes);

    for (uint64_t k = 0; k < words; k++)
        to[k] =
            (float)(uint32_t)((i * words + k + w->o->seed) * UINT64_C(0x9e3779b97f4a7c15) >> 40);
}

static float place(const struct wave *w, uint32_t point, int axis, float radius)
{
    float at = radius * w->points[point].d[axis], most = (float)w->cells - 2.0f;

    return at < most ? at : most;
}

static float radius_of(const struct wave *w, uint32_t step)
{
    return (float)(step + 1) / (float)w->o->steps * 1.7f * (float)w->cells;
}

static void touch(void *arg, size_t step)
{
    struct wave *w = arg;
    uint64_t *bits = w->touches.bits + step * w->touches.words,
             nr = (w->cells + w->o->edge - 1) / w->o->edge;

    for (uint32_t i = 0; i < w->o->points; i++) {
        uint64_t low[3], high[3];

        for (int d = 0; d < 3; d++) {
            uint64_t cell = (uint64_t)place(w, i, d, radius_of(w, (uint32_t)step));

            low[d] = cell / w->o->edge;
            high[d] = (cell + 1) / w->o->edge;
        }
        for (uint64_t z = low[2]; z <= high[2]; z++)
            for (uint64_t y = low[1]; y <= high[1]; y++)
                for (uint64_t x = low[0]; x <= high[0]; x++) {
                    uint64_t block = (z * nr + y) * nr + x;

                    bits[block / 64] |= UINT64_C(1) << block % 64;
                }
    }
}

static void make_points(struct wave *w)
{
    const double pi = 3.14159265358979323846;
    uint64_t state = w->o->seed;

    for (uint32_t i = 0; i < w->o->points; i++) {
        double up = sim_random_real(&state), angle = sim_random_real(&state) * pi / 2;
        double flat = sqrt(1 - up * up);

        w->points[i] = (struct ooc_direction){
            {(float)(flat * cos(angle)), (float)(flat * sin(angle)), (float)up}};
    }
}

static int make_layout(struct wave *w, uint64_t *ret_bytes)
{
    const struct ooc_wave_opts *o = w->o;
    int rc = varve_blocks_opts_init(&w->blocks, sizeof(w->blocks));

    w->cells = (uint64_t)cbrt((double)o->volume_bytes / 4 + 0.5);
    w->block_bytes = (uint64_t)o->edge * o->edge * o->edge * 4;
    for (int d = 0; d < 3; d++) {
        w->blocks.cells[d] = w->cells;
        w->blocks.edge[d] = o->edge;
    }
    w->blocks.ahead = o->ahead;
    if (rc == 0)
        rc = varve_blocks_bytes(&w->blocks, ret_bytes);
    if (rc)
        return fail(w, rc, "the volume");
    if (w->cells < 4 || 1.7 * (double)w->cells / o->steps > o->edge) {
        snprintf(w->err, OOC_TEXT,
                 "in %u steps the wave would pass more than a block at a time: %llu cells across "
                 "need %.0f steps",
                 o->steps, (unsigned long long)w->cells, ceil(1.7 * (double)w->cells / o->edge));
        return -EINVAL;
    }
    return 0;
}

static int make_data(struct wave *w, uint64_t bytes)
{
    uint64_t blocks = bytes / w->block_bytes;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return fail(w, -ENOMEM, "the volume");
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    w->volume = p;
    w->touches =
        (struct ooc_touches){.blocks = blocks, .words = (blocks + 63) / 64, .steps = w->o->steps};
    w->touches.bits = calloc(w->touches.words * w->o->steps, sizeof(uint64_t));
    w->points = malloc(w->o->points * sizeof(*w->points));
    w->expected = malloc(w->o->points * sizeof(float));
    w->got = malloc(w->o->points * sizeof(float));
    if (!w->touches.bits || !w->points || !w->expected || !w->got)
        return fail(w, -ENOMEM, "points");
    sim_parallel(w->o->jobs, blocks, fill, w, NULL);
    make_points(w);
    sim_parallel(w->o->jobs, w->o->steps, touch, w, NULL);
    w->blocks.memory = w->volume;
    return 0;
}

static int open_context(struct wave *w)
{
    struct varve_opts o;
    int rc = varve_opts_init(&o, sizeof(o));

    o.device = w->launcher->device;
    o.device_cache = o.host_cache = 0;
    if (rc == 0)
        rc = varve_open(&o, &w->ctx);
    if (rc)
        return fail(w, rc, "the device");
    rc = varve_device_alloc(w->ctx, w->o->points * sizeof(*w->points), &w->dev_points);
    if (rc == 0)
        rc = varve_device_alloc(w->ctx, w->o->points * sizeof(float), &w->dev_sums);
    if (rc == 0)
        rc = varve_device_copy(w->ctx, w->dev_points, w->points, w->o->points * sizeof(*w->points));
    w->args.cells = (float)w->cells;
    w->args.points = w->dev_points;
    w->args.sums = w->dev_sums;
    return rc ? fail(w, rc, "points on the device") : 0;
}

/* ---- a pass ---- */

static int launch(void *arg, const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    struct wave *w = arg;

    return w->launcher->wave(w->ctx, &w->args, view, stream);
}

/* Its memory is queried once: nothing is allocated from the second step on, and a query takes about as long as a
 * step. */
static int take_sample(struct wave *w, struct varve_blocks *b, uint64_t start_ns,
                       struct ooc_way *way)
{
    struct varve_blocks_stats st = {.stats_size = sizeof(st)};
    double memory;
    int rc = varve_blocks_stats(b, &st);

    if (rc)
        return rc;
    if (way->nr_samples == 0)
        memory = (ooc_memory_taken(vv_ckpt_device(w->ctx)) - w->taken) / (double)w->cache_bytes;
    else
        memory = way->samples[0].memory;
    way->samples[way->nr_samples++] = (struct ooc_sample){
        .s = (double)(vv_now_ns() - start_ns) * 1e-9,
        .memory = memory,
        .used = (double)st.used_slots / (double)st.slots,
        .missed = st.missed,
        .ahead = st.ahead,
        .evicted = st.evicted,
        .rounds = st.rounds,
        .bytes = st.bytes,
        .management_s = (double)st.management_ns * 1e-9,
        .moving_s = (double)st.moving_ns * 1e-9,
        .launching_s = (double)st.launching_ns * 1e-9,
        .waiting_s = (double)st.waiting_ns * 1e-9,
    };
    way->undone = st.undone;
    way->from_host = st.from_host;
    way->slots = st.slots;
    return 0;
}

static void sum_up(struct ooc_way *way, const struct ooc_sample *before)
{
    const struct ooc_sample *last = &way->samples[way->nr_samples - 1];
    double at = 0, used = 0;

    for (size_t i = 0; i < way->nr_samples; i++) {
        used += way->samples[i].used * (way->samples[i].s - at);
        at = way->samples[i].s;
    }
    way->seconds = last->s;
    way->utilisation = at > 0 ? used / at : 0;
    way->bytes = last->bytes - before->bytes;
    way->missed = last->missed - before->missed;
    way->ahead = last->ahead - before->ahead;
    way->evicted = last->evicted - before->evicted;
    way->rounds = last->rounds - before->rounds;
    way->management_s = last->management_s - before->management_s;
    way->moving_s = last->moving_s - before->moving_s;
    way->launching_s = last->launching_s - before->launching_s;
    way->waiting_s = last->waiting_s - before->waiting_s;
}

/* The whole run of the wave. `before`: the statistics of the cache at the start. */
static int pass(struct wave *w, struct varve_blocks *b, struct ooc_way *way)
{
    struct ooc_sample before = {0};
    uint64_t start;
    int rc;

    memset(w->got, 0, w->o->points * sizeof(float));
    rc = varve_device_copy(w->ctx, w->dev_sums, w->got, w->o->points * sizeof(float));
    if (rc)
        return fail(w, rc, "sums");
    if (way->nr_samples) {
        before = way->samples[way->nr_samples - 1];
        way->nr_samples = 0;
    }
    start = vv_now_ns();
    for (uint32_t step = 0; rc == 0 && step < w->o->steps; step++) {
        w->args.radius = radius_of(w, step);
        rc = varve_blocks_run(b, w->o->points, launch, w, NULL);
        if (rc == 0)
            rc = take_sample(w, b, start, way);
    }
    if (rc)
        return fail(w, rc, way->name);
    sum_up(way, &before);
    rc = varve_device_copy(w->ctx, w->got, w->dev_sums, w->o->points * sizeof(float));
    way->same = memcmp(w->got, w->expected, w->o->points * sizeof(float)) == 0;
    return rc ? fail(w, rc, "sums") : 0;
}

static int use_managed(struct wave *w, uint64_t bytes, struct ooc_way *way, void **ret_managed)
{
    int rc = w->launcher->managed_new ? w->launcher->managed_new(w->volume, bytes, ret_managed)
                                      : -ENOTSUP;

    if (rc == -ENOTSUP)
        snprintf(way->skipped, OOC_TEXT, "the device has no managed memory");
    else if (rc == -ENOSPC)
        snprintf(way->skipped, OOC_TEXT, "a copy does not fit the memory of device and host");
    else if (rc)
        return fail(w, rc, "managed memory");
    return 0;
}

static int run_way(struct wave *w, enum way kind, struct ooc_report *r, struct ooc_way *way)
{
    struct varve_blocks_opts o = w->blocks;
    struct varve_blocks *b = NULL;
    void *managed = NULL;
    int rc = 0;

    way->name = way_names[kind];
    way->samples = calloc(w->o->steps, sizeof(*way->samples));
    if (!way->samples)
        return fail(w, -ENOMEM, "samples");
    o.cache_bytes = kind == RESIDENT ? r->data_bytes : r->cache_bytes;
    if (kind != BLOCKS)
        o.ahead = 0;
    if (kind == PAPER)
        o.policy = VV_BLOCKS_PAPER;
    if (kind == ZERO_COPY || kind == UVM) {
        o.rounds = 0;
        way->no_cache = true;
        o.cache_bytes = 2 * w->block_bytes;
    }
    if (kind == UVM)
        rc = use_managed(w, r->data_bytes, way, &managed);
    if (rc || way->skipped[0])
        return rc;
    w->args.memory = managed;
    w->taken = ooc_memory_taken(vv_ckpt_device(w->ctx));
    w->cache_bytes = o.cache_bytes;
    rc = vv_blocks_open(w->ctx, &o, &b);
    if (rc)
        rc = fail(w, rc, way->name);
    if (rc == 0)
        rc = pass(w, b, way);
    if (rc == 0 && kind == RESIDENT) { /* the first pass brought all blocks */
        memcpy(w->expected, w->got, w->o->points * sizeof(float));
        rc = pass(w, b, way);
    }
    varve_blocks_close(b);
    w->args.memory = NULL;
    if (managed)
        w->launcher->managed_free(managed);
    return rc;
}

static int find_bound(struct wave *w, struct ooc_report *r)
{
    uint64_t brought, touched;
    int rc = ooc_farthest(&w->touches, r->cache_bytes / w->block_bytes, &brought, &touched);

    if (rc)
        return fail(w, rc, "the bound");
    r->least_bytes = brought * w->block_bytes;
    r->touched_bytes = touched * w->block_bytes;
    r->bound_s = fmax(r->ways[0].seconds, (double)r->least_bytes / r->link_bps);
    return 0;
}

static void free_all(struct wave *w, uint64_t bytes)
{
    if (w->ctx) {
        varve_device_free(w->ctx, w->dev_points);
        varve_device_free(w->ctx, w->dev_sums);
        varve_close(w->ctx);
    }
    if (w->volume)
        munmap(w->volume, bytes);
    free(w->touches.bits);
    free(w->points);
    free(w->expected);
    free(w->got);
}

int ooc_wave(const struct ooc_wave_opts *opts, const struct ooc_launcher *launcher,
             ooc_progress progress, void *arg, char err[OOC_TEXT], struct ooc_report *ret_report)
{
    struct wave w = {.o = opts, .launcher = launcher, .err = err};
    struct ooc_report *r = ret_report;
    uint64_t bytes = 0;
    int rc;

    memset(r, 0, sizeof(*r));
    rc = make_layout(&w, &bytes);
    if (rc == 0)
        rc = make_data(&w, bytes);
    if (rc == 0)
        rc = open_context(&w);
    r->data_bytes = bytes;
    if (rc == 0) {
        rc = ooc_link(vv_ckpt_device(w.ctx), r);
        if (rc)
            rc = fail(&w, rc, "measuring the link");
    }
    r->cache_bytes =
        opts->cache_bytes ? opts->cache_bytes : (uint64_t)((double)bytes * opts->share);
    for (int kind = RESIDENT; kind < WAYS && rc == 0; kind++) {
        if (!ooc_wanted(opts->ways, way_names[kind]))
            continue;
        if (progress)
            progress(arg, way_names[kind], (double)kind / WAYS);
        rc = run_way(&w, (enum way)kind, r, &r->ways[r->nr_ways++]);
    }
    if (rc == 0)
        rc = find_bound(&w, r);
    free_all(&w, bytes);
    if (rc)
        ooc_report_fini(r);
    return rc;
}

const char *const *ooc_wave_ways(size_t *ret_nr)
{
    *ret_nr = WAYS;
    return way_names;
}
