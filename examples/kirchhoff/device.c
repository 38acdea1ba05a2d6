/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The migration with caches on a device, real or emulated. Everything here is the host's part and is the
 * same for both; a struct kir_launcher launches kernels.
 *
 * Rays. A wavefront is the rays of some neighbouring stations; each of its time steps is a run of blocks, with a
 * ray for an item. The velocities that a ray needs are known only when it gets there. A ray
 * is read from one list and written to another, so that a ray that was left undone starts again unchanged.
 *
 * Migration. The tables of an item are known beforehand, so the whole work order is passed at once; each
 * batch of items is a launch. Items add integers to the image, so that neither their order nor the processor
 * or device that does them matters.
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
    struct kir_migrate_args migrate;
    int64_t *host_image; /* of items that the processor does */
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

/* Allocates device memory with a copy of `from`; NULL: without contents. */
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
    uint64_t bytes, least = 1;
    int rc = varve_blocks_opts_init(&o, sizeof(o));

    for (int i = 0; i < KIR_AXES; i++) {
        o.cells[i] = (uint64_t)d->s->grid.n[i];
        o.edge[i] = d->s->grid.n[i] > 1 ? (uint32_t)p->edge : 1;
        least *= o.edge[i];
    }
    o.rounds =
        1 << 20; /* blocks that do not fit are an error; they are not read from host memory */
    if (rc == 0)
        rc = varve_blocks_bytes(&o, &bytes);
    if (rc)
        return fail(d, rc, "blocks of the model");
    *ret_packed = malloc(bytes);
    if (!*ret_packed)
        return rtm_error(-ENOMEM, "no memory for the model in blocks");
    rc = varve_blocks_pack(&o, d->s->velocity, *ret_packed);
    o.memory = *ret_packed;
    least *= 27 * sizeof(float); /* a block and its neighbours: a smaller cache makes no progress */
    o.cache_bytes = p->model_cache ? p->model_cache : bytes / 4 > least ? bytes / 4 : least;
    sum->model_bytes = bytes;
    sum->model_cache = o.cache_bytes < bytes ? o.cache_bytes : bytes; /* it takes no more */
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

/* ---- migration ---- */

static int launch_migrate(void *arg, const struct varve_tables_view *view, uint32_t device,
                          struct CUstream_st *stream)
{
    struct device *d = arg;

    (void)device;
    return d->launcher->migrate(d->ctx, &d->migrate, view, stream);
}

static int on_processor(void *arg, uint64_t item, const void *const *tables)
{
    struct device *d = arg;

    kir_cpu_item(d->s, &d->s->items[item], (const float *const *)tables, d->host_image);
    return 0;
}

/* Lists the tables of each item: the source's, then the receivers', trace by trace. */
static int list_uses(const struct kir_survey *s, struct varve_tables_work *work)
{
    uint64_t *first = malloc((s->nitems + 1) * sizeof(*first)), at = 0;
    uint32_t *uses = malloc(((size_t)s->nitems + s->ntraces) * sizeof(*uses));

    work->first = first;
    work->uses = uses;
    if (!first || !uses)
        return rtm_error(-ENOMEM, "no memory for items");
    for (uint32_t i = 0; i < s->nitems; i++) {
        first[i] = at;
        uses[at++] = s->items[i].source;
        for (uint32_t k = 0; k < s->items[i].traces; k++)
            uses[at++] = s->receiver[s->items[i].first + k];
    }
    first[s->nitems] = at;
    return 0;
}

/* A quarter of all tables, or more if the tables of an item do not fit that together: a plan finds out, without a
 * device. */
static uint64_t quarter_cache(const struct kir_survey *s, struct varve_tables_opts o,
                              const struct varve_tables_work *work)
{
    struct varve_tables_speeds speeds = {.speeds_size = sizeof(speeds), .link_bytes = 1e9};
    struct varve_tables_stats stats = {.stats_size = sizeof(stats)};
    uint64_t quarter = s->nodes * sizeof(float) / 4, step = quarter / 8 + 4096;

    o.cache_bytes = quarter;
    while (varve_tables_plan(&o, work, &speeds, &stats) == -EFBIG)
        o.cache_bytes += step;
    return o.cache_bytes;
}

/* All tables, each at the start of a unit, with what launches need beside them. More is of no use, and takes long to
 * make. */
static uint64_t whole_cache(const struct varve_tables_opts *o)
{
    uint64_t unit = o->layout == VARVE_TABLES_CHUNKED ? 65536 : 256, sum = 0;

    for (uint32_t i = 0; i < o->tables; i++)
        sum += (o->bytes[i] + unit - 1) / unit * unit;
    return sum + sum / 16 + (16 << 20);
}

static int open_tables(struct device *d, const struct varve_tables_work *work,
                       struct kir_summary *sum, struct varve_tables **ret_tables)
{
    const struct kir_params *p = d->params;
    struct kir_survey *s = d->s;
    struct varve_tables_opts o;
    uint64_t *bytes = malloc(s->stations * sizeof(*bytes));
    int rc = varve_tables_opts_init(&o, sizeof(o));

    if (!bytes)
        return rtm_error(-ENOMEM, "no memory for tables");
    for (uint32_t i = 0; i < s->stations; i++)
        bytes[i] = kir_words_of(s, i, 1) * sizeof(float);
    o.tables = s->stations;
    o.bytes = bytes;
    o.memory = s->times;
    o.layout = p->layout == KIR_CHUNKED ? VARVE_TABLES_CHUNKED : VARVE_TABLES_FLAT;
    o.item_bytes = sizeof(struct kir_item);
    o.cache_bytes = p->table_cache ? p->table_cache : quarter_cache(s, o, work);
    if (o.cache_bytes > whole_cache(&o))
        o.cache_bytes = whole_cache(&o);
    sum->table_cache = o.cache_bytes;
    if (rc == 0)
        rc = varve_tables_open(d->ctx, &o, ret_tables);
    free(bytes);
    return rc ? fail(d, rc, "tables of times (--table-cache)") : 0;
}

/* Copies of what migrating an item needs besides the tables, and an empty image. */
static int put_shots(struct device *d, void *on[5])
{
    struct kir_survey *s = d->s;
    const size_t bytes[] = {s->stations * sizeof(*s->tables), s->stations * sizeof(*s->station),
                            s->ntraces * sizeof(*s->receiver),
                            (size_t)s->ntraces * (size_t)s->grid.samples * sizeof(float),
                            (size_t)kir_cells(s) * sizeof(*s->image)};
    const void *from[] = {s->tables, s->station, s->receiver, s->samples, s->image};
    int rc = 0;

    for (int i = 0; i < 5 && rc == 0; i++)
        rc = put(d, from[i], bytes[i], &on[i]);
    d->migrate.shots = (struct kir_shots){s->grid, on[0], on[1], on[2], on[3]};
    d->migrate.image = on[4];
    return rc;
}

static int run_items(struct device *d, struct varve_tables *t, const struct varve_tables_work *work,
                     struct kir_summary *sum)
{
    struct kir_survey *s = d->s;
    size_t image_bytes = (size_t)kir_cells(s) * sizeof(*s->image);
    int rc = 0;

    d->host_image = calloc(1, image_bytes);
    if (!d->host_image)
        rc = rtm_error(-ENOMEM, "no memory for the image");
    if (rc == 0) {
        rc = varve_tables_run(t, work);
        if (rc)
            rc = fail(d, rc, "migration (--table-cache)");
    }
    if (rc == 0) {
        rc = varve_device_copy(d->ctx, s->image, d->migrate.image, image_bytes);
        for (long i = 0; i < kir_cells(s); i++)
            s->image[i] += d->host_image[i];
        sum->tables.stats_size = sizeof(sum->tables);
        if (rc == 0)
            rc = varve_tables_stats(t, &sum->tables);
        if (rc)
            rc = fail(d, rc, "the image from the device");
    }
    free(d->host_image);
    return rc;
}

int kir_device_migrate(const struct kir_params *params, struct kir_survey *s,
                       struct kir_summary *summary)
{
    struct device d = {.params = params, .s = s};
    struct varve_tables_work work = {.work_size = sizeof(work),
                                     .items = s->nitems,
                                     .meta = s->items,
                                     .launch = launch_migrate,
                                     .host = params->fallback ? on_processor : NULL,
                                     .arg = &d};
    struct varve_tables *t = NULL;
    void *on[5] = {NULL};
    int rc = open_device(&d);

    if (rc == 0)
        rc = list_uses(s, &work);

    if (rc == 0)
        rc = put_shots(&d, on);
    if (rc == 0)
        rc = open_tables(&d, &work, summary, &t);
    if (rc == 0)
        rc = run_items(&d, t, &work, summary);
    varve_tables_close(t);
    free((void *)(uintptr_t)work.first);
    free((void *)(uintptr_t)work.uses);
    if (d.ctx) {
        for (int i = 0; i < 5; i++)
            varve_device_free(d.ctx, on[i]);
        varve_close(d.ctx);
    }
    return rc;
}
