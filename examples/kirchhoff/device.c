/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The migration with caches on a device, real or emulated. Everything here is the host's part and is the
 * same for both; who launches kernels is a struct kir_launcher.
 *
 * Rays. A wavefront is the rays of some stations, neighbours; each of its time steps is a run of blocks, with a
 * ray for an item. Which velocities a ray needs is known when it gets there. A ray
 * is read from one list and written to another, so that one that had to give up begins again as it was.
 */
#include <errno.h>
#include <stdlib.h>

#include "kirchhoff.h"
#include "rtm.h"

struct device {
    const struct kir_params *params;
    struct kir_survey *s;
    struct varve_ctx *ctx;
    const struct kir_launcher *launcher;
    struct kir_rays_args rays;
};

static int fail(struct device *d, int rc, const char *what)
{
    return rtm_error_varve(d->ctx, rc, what);
}

static int open_device(struct device *d)
{
    struct varve_opts o;
    int rc = varve_opts_init(&o, sizeof(o));

    d->launcher = d->params->device == KIR_CUDA ? &kir_cuda : &kir_emulated;
    if (!d->launcher->rays)
        return rtm_error(-ENOTSUP,
                         "this program was built without nvcc and has no kernels for a GPU: leave "
                         "out --device cuda, or build it where CUDA is installed");
    if (d->launcher->check && d->launcher->check())
        return rtm_error(-ENODEV, "no GPU can be used here: leave out --device cuda");
    o.device = d->launcher->varve_device;
    o.device_cache = o.host_cache = 0;
    if (rc == 0)
        rc = varve_open(&o, &d->ctx);
    return rc ? fail(d, rc, "the device cannot be used (--device cpu does without)") : 0;
}

/* Device memory with a copy of it. */
static int put(struct device *d, const void *from, size_t bytes, void **ret_ptr)
{
    void *p;
    int rc = varve_device_alloc(d->ctx, bytes, &p);

    if (rc)
        return fail(d, rc, "memory on the device");
    rc = from ? varve_device_copy(d->ctx, p, from, bytes) : 0;
    if (rc) {
        varve_device_free(d->ctx, p);
        return fail(d, rc, "a copy to the device");
    }
    *ret_ptr = p;
    return 0;
}

/* ---- rays ---- */

static int open_blocks(struct device *d, void **ret_packed, struct kir_summary *sum,
                       struct varve_blocks **ret_blocks)
{
    const struct kir_params *p = d->params;
    struct varve_blocks_opts o;
    uint64_t bytes;
    int rc = varve_blocks_opts_init(&o, sizeof(o));

    for (int i = 0; i < KIR_AXES; i++) {
        o.cells[i] = (uint64_t)d->s->grid.n[i];
        o.edge[i] = d->s->grid.n[i] > 1 ? (uint32_t)p->edge : 1;
    }
    o.policy = p->policy == KIR_POLICY_PAPER ? VARVE_BLOCKS_PAPER : VARVE_BLOCKS_CLOCK;
    o.rounds = 1 << 20; /* what does not fit is an error, not read from afar */
    if (rc == 0)
        rc = varve_blocks_bytes(&o, &bytes);
    if (rc)
        return fail(d, rc, "blocks of the model");
    *ret_packed = malloc(bytes);
    if (!*ret_packed)
        return rtm_error(-ENOMEM, "no memory for the model in blocks");
    rc = varve_blocks_pack(&o, d->s->velocity, *ret_packed);
    o.memory = *ret_packed;
    o.cache_bytes = p->model_cache ? p->model_cache : bytes / 4;
    sum->model_bytes = bytes;
    sum->model_cache = o.cache_bytes;
    if (rc == 0)
        rc = varve_blocks_open(d->ctx, &o, ret_blocks);
    return rc ? fail(d, rc, "blocks of the model (--model-cache, --edge)") : 0;
}

static int launch_rays(void *arg, const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    struct device *d = arg;

    return d->launcher->rays(d->ctx, &d->rays, view, stream);
}

static int propagate(struct device *d, struct varve_blocks *b, uint32_t stations,
                     struct kir_ray *lists[2])
{
    for (int step = 0; step < d->s->steps; step++) {
        int rc;

        d->rays.from = lists[step % 2];
        d->rays.to = lists[(step + 1) % 2];
        d->rays.time = (float)(step + 1) * d->s->grid.dt;
        rc = varve_blocks_run(b, (uint64_t)stations * d->s->rays, launch_rays, d, NULL);
        if (rc)
            return fail(d, rc, "a step of the rays (--model-cache)");
    }
    return 0;
}

static int trace_stations(struct device *d, struct varve_blocks *b, uint32_t first, uint32_t count)
{
    struct kir_survey *s = d->s;
    size_t words_bytes = kir_words_of(s, first, count) * sizeof(uint64_t),
           rays_bytes = (size_t)count * s->rays * sizeof(struct kir_ray);
    uint64_t *words = malloc(words_bytes);
    struct kir_ray *rays = malloc(rays_bytes);
    void *on[3] = {NULL, NULL, NULL};
    int rc = words && rays ? 0 : rtm_error(-ENOMEM, "no memory for rays");

    if (rc == 0) {
        kir_words_init(s, first, count, words);
        kir_rays_init(s, first, count, rays);
        rc = put(d, words, words_bytes, &on[0]);
    }
    if (rc == 0)
        rc = put(d, rays, rays_bytes, &on[1]);
    if (rc == 0)
        rc = put(d, NULL, rays_bytes, &on[2]);
    if (rc == 0) {
        struct kir_ray *lists[2] = {on[1], on[2]};

        d->rays.words = on[0];
        d->rays.first_node = s->tables[first].offset;
        rc = propagate(d, b, count, lists);
    }
    if (rc == 0) {
        rc = varve_device_copy(d->ctx, words, on[0], words_bytes);
        if (rc)
            rc = fail(d, rc, "tables from the device");
        else
            kir_words_done(s, first, count, words);
    }
    for (int i = 0; i < 3; i++)
        varve_device_free(d->ctx, on[i]);
    free(words);
    free(rays);
    return rc;
}

int kir_device_rays(const struct kir_params *params, struct kir_survey *s,
                    struct kir_summary *summary)
{
    struct device d = {.params = params, .s = s};
    struct varve_blocks *b = NULL;
    void *packed = NULL, *tables = NULL;
    int rc = open_device(&d);

    if (rc == 0)
        rc = open_blocks(&d, &packed, summary, &b);
    if (rc == 0)
        rc = put(&d, s->tables, s->stations * sizeof(*s->tables), &tables);
    d.rays.grid = s->grid;
    d.rays.tables = tables;
    for (uint32_t first = 0, n; rc == 0 && first < s->stations; first += n) {
        n = s->stations - first;
        n = n < (uint32_t)params->together ? n : (uint32_t)params->together;
        rc = trace_stations(&d, b, first, n);
    }
    summary->blocks.stats_size = b ? sizeof(summary->blocks) : 0;
    if (rc == 0)
        rc = varve_blocks_stats(b, &summary->blocks);
    varve_blocks_close(b);
    if (d.ctx) {
        varve_device_free(d.ctx, tables);
        varve_close(d.ctx);
    }
    free(packed);
    return rc;
}
