/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables: options, opening and closing, and the memory of caches.
 *
 * A cache is one piece of device memory. Before a run it is divided: tables come first; then a slot for each launch
 * that may be under way, for its data beside tables, as large as a dry run finds; then, for flat tables, room through
 * which tables move by less than their own length. A run that needs larger slots than the last one divides the cache
 * again and finds it empty.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "ckpt/face.h"
#include "ooc/tables_private.h"

/* Tables are read and copied in pieces up to this size, so that several readers take part. */
#define PIECE_BYTES (UINT64_C(4) << 20)
/* In host memory, behind the data for the device: the count that comes back. */
#define BACK_BYTES 64

static const struct varve_tables_opts defaults = {
    .opts_size = sizeof(defaults),
    .batch_items = 1024,
    .depth = 2,
    .lanes = 12,
    .readers = 4,
    .staging_bytes = UINT64_C(64) << 20,
};

int varve_tables_opts_init(struct varve_tables_opts *opts, size_t opts_size)
{
    int rc = vvi_ooc_opts_init(&defaults, sizeof(defaults), opts, opts_size);

    return rc ? vvi_ooc_bad("tables_opts_init", VVI_OOC_OPTS) : 0;
}

/* ---- small things ---- */

int vvi_tables_wait(struct vvi_cache *c, struct vv_event *event)
{
    return vvi_ooc_wait(c->device, event);
}

int vvi_tables_fail(struct vvi_cache *c, int rc, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    atomic_store_explicit(&c->t->reported, true, memory_order_relaxed);
    return vv_ckpt_fail_ctx(c->t->ctx, "tables_run", rc, true, "%s", text);
}

static const char *why_not(const struct varve_tables_opts *o)
{
    if (!!o->memory + !!o->path + !!o->read + !!o->history != 1)
        return "one of memory, path, read and history says where the tables are";
    if (o->nr_more > 0 && !o->more)
        return "more names the contexts of further devices";
    return NULL;
}

/* ---- the memory of a cache ---- */

static void host_free(struct vvi_cache *c)
{
    if (c->host) {
        (void)vv_device_host_unregister(c->device, c->host);
        (void)munmap(c->host, c->host_bytes);
    }
    c->host = NULL;
}

static void launches_free(struct vvi_cache *c)
{
    for (uint32_t i = 0; c->launches && i < VVI_LAUNCHES; i++) {
        vvi_step_fini(&c->launches[i].step);
        vv_device_event_free(c->device, c->launches[i].ready);
        vv_device_event_free(c->device, c->launches[i].done);
    }
    free(c->launches);
    c->launches = NULL;
}

/* Makes all events that do not depend on the order of work before the first run: the driver needs as long for them as
 * a plan takes. */
static int launches_init(struct vvi_cache *c)
{
    int rc = 0;

    c->launches = calloc(VVI_LAUNCHES, sizeof(*c->launches));
    if (!c->launches)
        return -ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < VVI_LAUNCHES; i++) {
        rc = vv_device_event_new(c->device, &c->launches[i].ready);
        if (rc == 0)
            rc = vv_device_event_new(c->device, &c->launches[i].done);
    }
    return rc;
}

static int host_init(struct vvi_cache *c, const struct vvi_split *split)
{
    size_t each = split->limits.meta_bytes + BACK_BYTES,
           bytes = vv_align_up(each * split->most, 4096);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc;

    if (p == MAP_FAILED)
        return -ENOMEM;
    memset(p, 0, bytes);
    rc = vv_device_host_register(c->device, p, bytes);
    if (rc) {
        (void)munmap(p, bytes);
        return rc;
    }
    c->host = p;
    c->host_bytes = bytes;
    for (uint32_t i = 0; i < split->most; i++) {
        struct vvi_launch *l = &c->launches[i];

        l->host = c->host + i * each;
        l->outside = (uint32_t *)(void *)(l->host + split->limits.meta_bytes);
        l->dev = c->meta + i * split->limits.meta_bytes;
    }
    return 0;
}

void vvi_tables_forget(struct vvi_cache *c)
{
    struct vvi_space *s = &c->t->plans[c->which].space;

    vvi_space_empty(s, s->capacity);
}

static int divide(struct vvi_cache *c, const struct vvi_split *split)
{
    host_free(c);
    vvi_space_empty(&c->t->plans[c->which].space, split->capacity);
    c->meta = c->memory + split->capacity;
    c->scratch = c->meta + split->meta_bytes;
    c->scratch_bytes = split->scratch_bytes;
    return host_init(c, split);
}

int vvi_tables_divide(struct varve_tables *t, const struct vvi_split *split)
{
    struct vvi_split s = *split;
    uint64_t room = t->plans[0].space.capacity, largest = s.largest.bytes;
    int rc = 0;

    /* Divide again if an item has no room otherwise: an earlier run may have needed more beside tables. */
    if (t->divided && s.limits.meta_bytes <= t->split.limits.meta_bytes &&
        (largest <= room || largest > s.capacity)) {
        t->split.limits.items = s.limits.items;
        t->split.limits.bytes = s.limits.bytes;
        return 0;
    }
    vv_mutex_lock(&t->lock);
    for (uint32_t i = 0; rc == 0 && i < t->nr; i++)
        rc = divide(&t->caches[i], &s);
    t->split = s;
    t->divided = rc == 0;
    vv_mutex_unlock(&t->lock);
    return rc;
}

/* ---- pieces ---- */

/* Splits a table into consecutive pieces. */
static size_t cut(const struct vvi_cache *c, uint32_t table, uint64_t within, uint64_t at,
                  uint64_t bytes, struct vvi_piece *ret, size_t room)
{
    size_t n = 0;

    while (bytes > 0) {
        uint64_t len = VV_MIN(bytes, PIECE_BYTES);

        if (n < room)
            ret[n] = (struct vvi_piece){.offset = c->t->offsets[table] + within,
                                        .bytes = len,
                                        .to = c->memory + at,
                                        .id = table,
                                        .within = within};
        n++;
        within += len;
        at += len;
        bytes -= len;
    }
    return n;
}

size_t vvi_tables_pieces(const struct vvi_cache *c, uint32_t table, struct vvi_piece *ret,
                         size_t room)
{
    const struct vvi_space *s = &c->t->plans[c->which].space;
    uint64_t bytes = s->bytes[table], within = 0;
    const uint32_t *list;
    uint32_t nr;
    size_t n = 0;

    if (!s->chunked)
        return cut(c, table, 0, s->held[table].at, bytes, ret, room);
    list = vvi_space_chunks(s, table);
    nr = vvi_space_nr_chunks(s, table);
    for (uint32_t i = 0, run; i < nr; i += run) {
        uint64_t len;

        run = vvi_chunks_run(list + i, nr - i);
        len = VV_MIN(run * VVI_CHUNK_BYTES, bytes - within);
        n += cut(c, table, within, list[i] * VVI_CHUNK_BYTES, len, ret + VV_MIN(n, room),
                 room - VV_MIN(n, room));
        within += len;
    }
    return n;
}

/* ---- opening and closing ---- */

static void cache_fini(struct vvi_cache *c)
{
    if (!c->device)
        return;
    host_free(c);
    launches_free(c);
    vvi_source_fini(&c->source);
    for (uint32_t i = 0; i < c->nr_lanes; i++)
        vv_device_stream_free(c->device, c->lanes[i]);
    free(c->lanes);
    if (c->moved)
        vv_device_event_free(c->device, c->moved);
    if (c->moves)
        vv_device_stream_free(c->device, c->moves);
    (void)vv_device_mem_free(c->device, c->memory);
    free(c->pieces);
}

static void tables_free(struct varve_tables *t)
{
    /* The first cache owns the source that the others use. */
    for (uint32_t i = t->nr; i-- > 0;) {
        cache_fini(&t->caches[i]);
        vvi_plan_fini(&t->plans[i]);
        if (t->caches[i].ctx)
            vv_ckpt_leave(t->caches[i].ctx);
    }
    free(t->caches);
    free(t->plans);
    free(t->bytes);
    free(t->offsets);
    vv_cond_fini(&t->changed);
    vv_mutex_fini(&t->lock);
    free(t);
}

static int read_table(void *arg, const struct vvi_piece *p, void *buf)
{
    const struct varve_tables_opts *o = arg;

    return o->read(o->read_arg, (uint32_t)p->id, p->within, buf, p->bytes);
}

static int source_init(struct varve_tables *t, struct vvi_cache *c, uint64_t bytes)
{
    const struct varve_tables_opts *o = &t->opts;
    const struct vvi_cache *first = &t->caches[0];
    struct vvi_source_opts so = {
        .operation = "tables_open",
        .bytes = bytes,
        .half_bytes = VV_MAX(vv_align_down(o->staging_bytes / 2, 4096), PIECE_BYTES),
        VVI_SOURCE_OF(o),
        .read = o->read ? read_table : NULL,
        .read_arg = &t->opts,
    };

    if (c != first && first->source.memory) {
        so.memory = first->source.memory;
        so.history = NULL;
    }
    return vvi_source_init(&c->source, t->ctx, c->device, &so);
}

static int lanes_init(struct vvi_cache *c, uint32_t nr)
{
    int rc = 0;

    if (nr == 1)
        return 0; /* the application's stream */
    c->lanes = calloc(nr, sizeof(struct vv_stream *));
    if (!c->lanes)
        return -ENOMEM;
    while (rc == 0 && c->nr_lanes < nr) {
        rc = vv_device_stream_new(c->device, &c->lanes[c->nr_lanes]);
        c->nr_lanes += rc == 0;
    }
    return rc;
}

static int cache_init(struct varve_tables *t, uint32_t i, uint64_t bytes)
{
    struct vvi_cache *c = &t->caches[i];
    char room[VVI_OOC_ROOM];
    void *p;
    int rc = vv_device_mem_alloc(c->device, t->opts.cache_bytes, &p);

    if (rc == 0)
        c->memory = p;
    if (rc == 0)
        rc = vv_device_stream_new(c->device, &c->moves);
    if (rc == 0)
        rc = vv_device_event_new(c->device, &c->moved);
    if (rc == 0)
        rc = lanes_init(c, t->opts.lanes);
    if (rc == 0)
        rc = launches_init(c);
    if (rc == 0)
        rc = vvi_plan_init(&t->plans[i], &t->opts, t->opts.cache_bytes);
    if (rc)
        return vv_ckpt_fail_ctx(t->ctx, "tables_open", rc, true, "a cache of %llu bytes: %s%s",
                                (unsigned long long)t->opts.cache_bytes, vv_strerror(rc),
                                vvi_ooc_room(c->device, rc, room, sizeof(room)));
    return source_init(t, c, bytes);
}

/* Copies the caller's arrays. *ret_bytes: the least size of the source. */
static int take_tables(struct varve_tables *t, uint64_t *ret_bytes)
{
    const struct varve_tables_opts *o = &t->opts;
    uint64_t unit = o->layout == VARVE_TABLES_CHUNKED ? VVI_CHUNK_BYTES : VVI_FLAT_ALIGN;
    uint64_t at = 0, bytes = 0, cache = vv_align_down(o->cache_bytes, unit);

    t->bytes = malloc(o->tables * sizeof(*t->bytes));
    t->offsets = malloc(o->tables * sizeof(*t->offsets));
    if (!t->bytes || !t->offsets)
        return -ENOMEM;
    for (uint32_t i = 0; i < o->tables; i++) {
        t->bytes[i] = o->bytes[i];
        t->offsets[i] = o->offsets ? o->offsets[i] : at;
        at = t->offsets[i] + t->bytes[i];
        if (at < t->bytes[i] || at > UINT64_C(1) << 62)
            return vv_ckpt_fail_ctx(t->ctx, "tables_open", -EINVAL, false,
                                    "table %u begins at %llu", i,
                                    (unsigned long long)t->offsets[i]);
        bytes = VV_MAX(bytes, at);
        if (vv_align_up(t->bytes[i], unit) > cache)
            return vv_ckpt_fail_ctx(
                t->ctx, "tables_open", -EFBIG, false,
                "table %u takes %llu bytes%s, and a cache of %llu has room for %llu", i,
                (unsigned long long)vv_align_up(t->bytes[i], unit),
                unit == VVI_CHUNK_BYTES ? " in chunks of 64 KiB" : "",
                (unsigned long long)o->cache_bytes, (unsigned long long)cache);
    }
    t->opts.bytes = t->bytes;
    t->opts.offsets = t->offsets;
    *ret_bytes = bytes;
    return 0;
}

/* Enters all contexts: they stay open from here on. */
static int enter_all(struct varve_tables *t)
{
    for (uint32_t i = 0; i < t->nr; i++) {
        struct varve_ctx *ctx = i ? t->opts.more[i - 1] : t->ctx;
        int rc = vv_ckpt_enter(ctx);

        if (rc)
            return vv_ckpt_fail_ctx(t->ctx, "tables_open", rc, false, "context %u: %s", i,
                                    vv_strerror(rc));
        t->caches[i] = (struct vvi_cache){
            .t = t, .ctx = ctx, .device = vv_ckpt_device(ctx), .which = i, .source = {.fd = -1}};
        if (!t->caches[i].device)
            return vv_ckpt_fail_ctx(t->ctx, "tables_open", -ENODEV, false, "%s%s",
                                    i ? "one of more: " : "", VVI_OOC_NO_DEVICE);
    }
    return 0;
}

static int open_all(struct varve_tables *t)
{
    uint64_t bytes = 0;
    int rc = enter_all(t);

    if (rc == 0)
        rc = take_tables(t, &bytes);
    for (uint32_t i = 0; rc == 0 && i < t->nr; i++)
        rc = cache_init(t, i, bytes);
    return rc;
}

static int tables_open(struct varve_ctx *ctx, const struct varve_tables_opts *opts, bool paper,
                       struct varve_tables **ret_tables)
{
    struct varve_tables *t;
    const char *why;
    int rc;

    if (!ret_tables)
        return vvi_ooc_bad("tables_open", "ret_tables is NULL");
    rc = vvi_ooc_enter(ctx, "tables_open");
    if (rc)
        return rc;
    t = calloc(1, sizeof(*t));
    if (!t) {
        vv_ckpt_leave(ctx);
        return -ENOMEM;
    }
    t->ctx = ctx;
    vv_mutex_init(&t->lock, "tables", VV_RANK_OOC);
    vv_cond_init(&t->changed);
    why = vvi_tables_take_opts(opts, paper, &t->opts);
    if (!why)
        why = why_not(&t->opts);
    if (why) {
        rc = vv_ckpt_fail_ctx(ctx, "tables_open", -EINVAL, false, "%s", why);
    } else {
        t->nr = 1 + t->opts.nr_more;
        t->caches = calloc(t->nr, sizeof(*t->caches));
        t->plans = calloc(t->nr, sizeof(*t->plans));
        rc = t->caches && t->plans ? open_all(t) : -ENOMEM;
        if (!t->caches || !t->plans)
            t->nr = 0;
    }
    if (rc)
        tables_free(t);
    else
        *ret_tables = t;
    vv_ckpt_leave(ctx); /* every cache has entered its own */
    return rc;
}

int varve_tables_open(struct varve_ctx *ctx, const struct varve_tables_opts *opts,
                      struct varve_tables **ret_tables)
{
    return tables_open(ctx, opts, false, ret_tables);
}

int vv_tables_open(struct varve_ctx *ctx, const struct varve_tables_opts *opts,
                   struct varve_tables **ret_tables)
{
    return tables_open(ctx, opts, true, ret_tables);
}

int varve_tables_close(struct varve_tables *t)
{
    bool busy;

    if (!t)
        return 0;
    vv_mutex_lock(&t->lock);
    busy = t->running;
    vv_mutex_unlock(&t->lock);
    if (busy)
        return -EBUSY;
    tables_free(t);
    return 0;
}

int varve_tables_stats(struct varve_tables *t, struct varve_tables_stats *ret_stats)
{
    struct varve_tables_stats s;

    if (!t || !ret_stats || ret_stats->stats_size < sizeof(size_t))
        return vvi_ooc_bad("tables_stats", !t ? "tables is NULL" : VVI_OOC_STATS);
    vv_mutex_lock(&t->lock);
    vvi_tables_account_locked(t, vv_now_ns());
    s = t->stats;
    for (uint32_t i = 0; i < t->nr; i++) {
        const struct vvi_plan *p = &t->plans[i];

        s.capacity_bytes += t->divided ? p->space.capacity : t->opts.cache_bytes;
        s.meta_bytes += t->divided ? t->split.meta_bytes : 0;
        s.used_bytes += p->space.used_bytes;
        s.launches += p->stats.launches;
        s.found += p->stats.found;
        s.missed += p->stats.missed;
        s.evicted += p->space.evicted;
        s.bytes += p->stats.bytes;
        s.moved += p->stats.moved;
        s.moved_bytes += p->stats.moved_bytes;
    }
    if (s.queued_ns > 0)
        s.utilisation = t->used_ns / (double)s.queued_ns / (double)s.capacity_bytes;
    vv_mutex_unlock(&t->lock);
    s.stats_size = VV_MIN(ret_stats->stats_size, sizeof(s));
    memcpy(ret_stats, &s, s.stats_size);
    return 0;
}
