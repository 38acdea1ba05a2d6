/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs: several launches at a time, while the tables of the next ones travel.
 *
 * Each cache has a thread, which plans a batch, moves and brings its tables, launches it, and releases it when it has
 * ended; the caller's thread is that of the first cache. One more thread does the processor's items, if there is
 * `host`.
 *
 * Order. Everything that writes to a cache goes through its stream `moves`, in the order in which it was planned.
 * Launches take lanes in turn: streams of ours, which begin after the earlier work on the application's stream. A
 * launch begins after its work on `moves` and after the launch before in its lane, and waits for nothing else. A
 * place is given to another table only when every launch that used the old one has ended, and the host has seen that;
 * so no copy waits for a kernel, and no kernel sees a table change.
 *
 * Pace. The link has work as long as the tables of a few launches are on their way (`depth`); further launches would
 * only hold tables. Launches whose tables have arrived compute, as many as there are lanes. So the thread waits for
 * the next tables to arrive, or, without a free lane or room, for the oldest launch.
 *
 * Errors. A copy that fails later is reported by the first event after it, which is queried before the launch counts as
 * ended. After an error the run waits for everything under way, and its caches count as empty.
 *
 * `lock` covers plans; it is not held while tables are read or waited for, nor while the application's
 * functions are called.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "ckpt/face.h"
#include "ooc/tables_private.h"

void vvi_tables_account_locked(struct varve_tables *t, uint64_t now)
{
    uint64_t used = 0;
    bool queued = false;

    if (!t->running || now <= t->seen_ns) /* another thread has accounted a later time */
        return;
    for (uint32_t i = 0; i < t->nr; i++) {
        queued = queued || t->plans[i].from < t->plans[i].to;
        used += t->plans[i].space.used_bytes;
    }
    if (queued) {
        t->stats.queued_ns += now - t->seen_ns;
        t->used_ns += (double)(now - t->seen_ns) * (double)used;
    }
    t->seen_ns = now;
}

/* Keeps the first error of the run. */
static void note_error_locked(struct vvi_tables_run *r, int rc)
{
    if (rc && !r->error)
        r->error = rc;
    vv_cond_broadcast(&r->t->changed);
}

/* ---- one launch ---- */

/* Moves a table down, piece by piece: through the scratch memory if it moves by less than its length. */
static int move_table(struct vvi_cache *c, const struct vvi_move *m, uint64_t bytes)
{
    uint64_t far = m->from - m->to, at = 0;
    bool direct = far >= c->scratch_bytes;
    uint64_t step = direct ? far : c->scratch_bytes;
    int rc = 0;

    while (rc == 0 && at < bytes) {
        uint64_t len = VV_MIN(step, bytes - at);
        struct vv_copy_seg one = {c->memory + m->to + at, c->memory + m->from + at, len};

        if (direct) {
            rc = vv_device_copy_async(c->device, c->moves, &one, 1);
        } else {
            struct vv_copy_seg out = {c->scratch, one.src, len}, in = {one.dst, c->scratch, len};

            rc = vv_device_copy_async(c->device, c->moves, &out, 1);
            if (rc == 0)
                rc = vv_device_copy_async(c->device, c->moves, &in, 1);
        }
        at += len;
    }
    return rc;
}

static int bring(struct vvi_cache *c, const struct vvi_step *step)
{
    uint64_t table = VVI_NO_ID;
    size_t n = 0;
    int rc = 0;

    for (uint32_t i = 0; i < step->nr_fills; i++) {
        size_t more = vvi_tables_pieces(c, step->fills[i], c->pieces + n, c->nr_pieces - n);

        if (n + more > c->nr_pieces) {
            size_t room = 2 * (n + more);
            struct vvi_piece *p = realloc(c->pieces, room * sizeof(*p));

            if (!p)
                return -ENOMEM;
            c->pieces = p;
            c->nr_pieces = room;
            (void)vvi_tables_pieces(c, step->fills[i], c->pieces + n, room - n);
        }
        n += more;
    }
    if (n > 0)
        rc = vvi_source_fill(&c->source, c->moves, c->pieces, n, &table);
    if (rc && table != VVI_NO_ID)
        return vvi_tables_fail(c, rc, "table %llu cannot be read: %s", (unsigned long long)table,
                               vv_strerror(rc));
    return rc ? vvi_tables_fail(c, rc, "the tables of item %u cannot be brought to the device: %s",
                                step->batch.from, vv_strerror(rc))
              : 0;
}

/* Writes the place of each table of the batch. */
static void write_refs(const struct vvi_cache *c, const struct vvi_batch *b, unsigned char *host)
{
    const struct vvi_space *s = &c->t->plans[c->which].space;
    struct varve_tables_ref *refs = (void *)(host + b->meta.refs);
    uint32_t *chunks = (void *)(host + b->meta.chunks), n = 0;

    for (uint32_t i = 0; i < b->nr; i++) {
        uint32_t t = b->tables[i], nr = s->chunked ? vvi_space_nr_chunks(s, t) : 0;

        refs[i] = (struct varve_tables_ref){
            .bytes = s->bytes[t], .at = s->chunked ? n : s->held[t].at, .table = t};
        if (nr > 0)
            memcpy(chunks + n, vvi_space_chunks(s, t), nr * sizeof(*chunks));
        n += nr;
    }
}

static void write_meta(struct vvi_tables_run *r, const struct vvi_cache *c,
                       const struct vvi_launch *l)
{
    const struct varve_tables_work *w = &r->order.work;
    const struct vvi_batch *b = &l->step.batch;
    uint32_t *item = (void *)(l->host + b->meta.item), *first = (void *)(l->host + b->meta.first);
    uint32_t items = b->to - b->from;

    *(uint32_t *)(void *)(l->host + b->meta.outside) = 0;
    for (uint32_t i = 0; i < items; i++) {
        item[i] = b->from + i;
        first[i] = (uint32_t)(w->first[b->from + i] - w->first[b->from]);
    }
    first[items] = (uint32_t)b->uses;
    if (b->uses > 0)
        memcpy(l->host + b->meta.uses, vvi_order_locals(&r->order, w->first[b->from]),
               b->uses * sizeof(uint32_t));
    write_refs(c, b, l->host);
    if (r->order.item_bytes > 0)
        memcpy(l->host + b->meta.meta,
               (const unsigned char *)w->meta + (uint64_t)b->from * r->order.item_bytes,
               (size_t)items * r->order.item_bytes);
}

static int call_launch(struct vvi_tables_run *r, struct vvi_cache *c, struct vvi_launch *l)
{
    const struct varve_tables_work *w = &r->order.work;
    const struct vvi_batch *b = &l->step.batch;
    const unsigned char *dev = l->dev;
    struct varve_tables_view v = {
        .items = b->to - b->from,
        .item_bytes = r->order.item_bytes,
        .cache = c->memory,
        .item = (const void *)(dev + b->meta.item),
        .first = (const void *)(dev + b->meta.first),
        .uses = (const void *)(dev + b->meta.uses),
        .refs = (const void *)(dev + b->meta.refs),
        .chunks = r->order.chunked ? (const void *)(dev + b->meta.chunks) : NULL,
        .meta = dev + b->meta.meta,
        .outside = (void *)(l->dev + b->meta.outside),
    };
    int rc = vv_device_enter(c->device);

    if (rc)
        return rc;
    rc = w->launch(w->arg, &v, c->which, vv_device_stream_native(c->device, l->lane));
    vv_device_leave(c->device);
    return rc ? vvi_tables_fail(c, rc < 0 ? rc : -EINVAL, "launch returned %d for item %u", rc,
                                b->from)
              : 0;
}

/* Submits all work of a launch. After an error some of it may have been submitted. */
static int submit(struct vvi_tables_run *r, struct vvi_cache *c, struct vvi_launch *l)
{
    struct vv_copy_seg to = {l->dev, l->host, l->step.batch.meta.bytes};
    struct vv_copy_seg back = {l->outside, l->dev + l->step.batch.meta.outside, sizeof(uint32_t)};
    const struct vvi_plan *p = &c->t->plans[c->which];
    int rc = 0, ended;

    for (uint32_t i = 0; rc == 0 && i < l->step.nr_moves; i++)
        rc = move_table(c, &l->step.moves[i], p->space.bytes[l->step.moves[i].table]);
    if (rc == 0)
        rc = bring(c, &l->step);
    if (rc == 0)
        rc = vv_device_copy_async(c->device, c->moves, &to, 1);
    if (rc == 0)
        rc = vv_device_event_record(c->device, l->ready, c->moves);
    if (rc == 0)
        rc = vv_device_stream_wait_event(c->device, l->lane, l->ready);
    if (rc)
        return rc;
    rc = call_launch(r, c, l);
    if (rc == 0)
        rc = vv_device_copy_async(c->device, l->lane, &back, 1);
    ended = vv_device_event_record(c->device, l->done, l->lane);
    l->recorded = ended == 0;
    return rc ? rc : ended;
}

/* ---- the processor's items ---- */

static int host_push_locked(struct vvi_tables_run *r, uint32_t item)
{
    if (r->host_nr == r->host_room) {
        uint32_t room = VV_MAX(2 * r->host_room, 64), *list;

        list = realloc(r->host_items, room * sizeof(*list));
        if (!list)
            return -ENOMEM;
        r->host_items = list;
        r->host_room = room;
    }
    r->host_items[r->host_nr++] = item;
    vv_cond_broadcast(&r->t->changed);
    return 0;
}

/* Returns the item's tables in host memory: `own` if they had to be read. */
static int host_tables(struct vvi_tables_run *r, uint32_t item, const void **ret_tables, void **own)
{
    const struct varve_tables_work *w = &r->order.work;
    const struct vvi_source *src = &r->t->caches[0].source;

    for (uint64_t u = w->first[item], k = 0; u < w->first[item + 1]; u++, k++) {
        uint32_t table = w->uses[u];
        struct vvi_piece piece = {
            .offset = r->t->offsets[table], .bytes = r->t->bytes[table], .id = table};
        int rc;

        if (src->memory) {
            ret_tables[k] = src->memory + piece.offset;
            continue;
        }
        own[k] = malloc(piece.bytes);
        if (!own[k])
            return -ENOMEM;
        rc = vvi_source_read(src, &piece, own[k]);
        if (rc)
            return rc < 0 ? rc : -EIO;
        ret_tables[k] = own[k];
    }
    return 0;
}

static int host_item(struct vvi_tables_run *r, uint32_t item)
{
    const struct varve_tables_work *w = &r->order.work;
    size_t n = w->first[item + 1] - w->first[item];
    const void **tables = calloc(n + 1, sizeof(*tables));
    void **own = calloc(n + 1, sizeof(*own));
    int rc = tables && own ? host_tables(r, item, tables, own) : -ENOMEM;

    if (rc == 0)
        rc = w->host(w->arg, item, tables);
    for (size_t i = 0; own && i < n; i++)
        free(own[i]);
    free(own);
    free(tables);
    return rc ? vvi_tables_fail(&r->t->caches[0], rc < 0 ? rc : -EINVAL,
                                "item %u, by the processor: %s", item,
                                vv_strerror(rc < 0 ? rc : -EINVAL))
              : 0;
}

static void *host_main(void *arg)
{
    struct vvi_tables_run *r = arg;
    struct varve_tables *t = r->t;
    uint32_t at = 0;

    vv_mutex_lock(&t->lock);
    while (!r->error) {
        uint64_t start;
        uint32_t item;
        int rc;

        if (at == r->host_nr) {
            if (r->host_stop)
                break;
            vv_cond_wait(&t->changed, &t->lock);
            continue;
        }
        item = r->host_items[at++];
        r->host_busy = true;
        vv_mutex_unlock(&t->lock);
        start = vv_now_ns();
        rc = host_item(r, item);
        vv_mutex_lock(&t->lock);
        r->host_busy = at < r->host_nr;
        r->host_pace.cost += vvi_order_cost(&r->order, item, item + 1);
        r->host_pace.ns += (double)(vv_now_ns() - start);
        t->stats.host_items += rc == 0;
        t->stats.items += rc == 0;
        note_error_locked(r, rc);
    }
    vv_mutex_unlock(&t->lock);
    return NULL;
}

/* The first remaining item has no room now, or never. Returns true if the processor takes it. */
static bool host_takes_locked(struct vvi_tables_run *r, struct vvi_cache *c, bool never)
{
    struct vvi_plan *p = &r->t->plans[c->which];

    if (!r->order.work.host)
        return false;
    if (never)
        return true;
    if (r->host_busy)
        return false;
    return p->paper ||
           vvi_pace_host_first(&r->host_pace, &c->pace,
                               vvi_order_cost(&r->order, p->from, p->from + 1), c->ahead);
}

/* ---- the thread of a cache ---- */

/* The i-th launch under way. */
static struct vvi_launch *launch_at(struct vvi_cache *c, uint32_t i)
{
    return &c->launches[(c->first + i) % c->t->split.most];
}

/* Notes which tables have arrived. An error of their copies is reported here, and not by later events. */
static int see_arrivals(struct vvi_cache *c)
{
    int rc = 0;

    while (c->ready < c->nr) {
        rc = vv_device_event_query(c->device, launch_at(c, c->ready)->ready);
        if (rc)
            break;
        c->ready++;
    }
    return rc == -EBUSY ? 0 : rc;
}

/* Ends the oldest launch, and checks its results. */
static int end_launch(struct vvi_tables_run *r, struct vvi_cache *c)
{
    struct varve_tables *t = r->t;
    struct vvi_launch *l = &c->launches[c->first];
    uint64_t start;
    int rc = vvi_tables_wait(c, l->done), moved = 0;

    if (c->ready == 0) { /* the launch began after this event */
        moved = vvi_tables_wait(c, l->ready);
        c->ready++;
    }
    if (moved == 0)
        moved = vvi_source_check(&c->source);
    start = vv_now_ns();
    rc = rc ? rc : moved;
    if (rc == 0 && *l->outside)
        rc = vvi_tables_fail(c, -EINVAL,
                             "a kernel read beyond the end of a table, or of a list of them, for "
                             "one of the items %u to %u",
                             l->step.batch.from, l->step.batch.to - 1);
    if (rc)
        return rc;
    vv_mutex_lock(&t->lock);
    vvi_tables_account_locked(t, start);
    t->stats.items += l->step.batch.to - l->step.batch.from;
    vvi_plan_done(&t->plans[c->which], &l->step, false);
    l->planned = l->recorded = false;
    c->first = (c->first + 1) % t->split.most;
    c->nr--;
    c->ready--;
    c->ahead -= l->cost;
    c->pace.cost += l->cost;
    c->pace.ns += (double)(start - c->busy_since);
    c->busy_since = start;
    vv_mutex_unlock(&t->lock);
    c->spent_ns += vv_now_ns() - start;
    return 0;
}

/* Ends launches that are done already, the oldest first. */
static int end_launches(struct vvi_tables_run *r, struct vvi_cache *c)
{
    int rc = 0;

    while (rc == 0 && c->nr > 0) {
        rc = vv_device_event_query(c->device, c->launches[c->first].done);
        if (rc == 0)
            rc = end_launch(r, c);
    }
    return rc == -EBUSY ? 0 : rc;
}

/* Plans the next launch, or gives an item to the processor. 0: *ret_launch has it; or it is NULL, and another try may
 * succeed. -EAGAIN: impossible before a launch has ended; -ENODATA: no items are left to plan. */
static int plan_locked(struct vvi_tables_run *r, struct vvi_cache *c, uint64_t now,
                       struct vvi_launch **ret_launch)
{
    struct varve_tables *t = r->t;
    struct vvi_plan *p = &t->plans[c->which];
    struct vvi_launch *l = launch_at(c, c->nr);
    bool more = vvi_split_enough(&t->split, c->nr, c->nr - c->ready);
    int rc;

    *ret_launch = NULL;
    if (c->nr == t->split.most)
        return -EAGAIN;
    vvi_tables_account_locked(t, now);
    rc = vvi_plan_next(p, more, &l->step);
    if (rc == 0) {
        l->planned = true;
        l->cost = vvi_order_cost(&r->order, l->step.batch.from, l->step.batch.to);
        if (c->nr++ == 0)
            c->busy_since = now;
        l->lane = c->nr_lanes > 0 ? c->lanes[c->lane++ % c->nr_lanes] : c->stream;
        c->ahead += l->cost;
        *ret_launch = l;
        return 0;
    }
    if (rc == -ENODATA)
        return vvi_plan_share(t->plans, t->nr, c->which) ? 0 : rc;
    if (rc == -EAGAIN && more && !p->paper)
        return rc;
    if ((rc == -EAGAIN || rc == -EFBIG) && host_takes_locked(r, c, rc == -EFBIG)) {
        rc = host_push_locked(r, p->from);
        if (rc == 0)
            r->host_busy = true;
        vvi_plan_skip(p);
        return rc;
    }
    return rc;
}

/* Waits for an event, when no launch can be planned before one. */
static int wait_some(struct vvi_tables_run *r, struct vvi_cache *c)
{
    const struct vvi_split *s = &r->t->split;
    bool paper = r->t->opts.policy == VV_TABLES_PAPER;

    vv_assert(c->nr > 0); /* without launches there would be room */
    if (c->nr == 0)
        return -EFBIG;
    if (!paper && c->nr < s->most && c->nr - c->ready >= s->depth)
        return vvi_tables_wait(c, launch_at(c, c->ready)->ready);
    return end_launch(r, c);
}

static int cache_loop(struct vvi_tables_run *r, struct vvi_cache *c)
{
    struct varve_tables *t = r->t;
    bool stop = false;
    int rc = 0;

    while (rc == 0 && !stop) {
        struct vvi_launch *l;
        uint64_t start;

        rc = see_arrivals(c);
        if (rc == 0)
            rc = end_launches(r, c);
        if (rc)
            break;
        start = vv_now_ns();
        vv_mutex_lock(&t->lock);
        stop = r->error != 0;
        rc = stop ? 0 : plan_locked(r, c, start, &l);
        vv_mutex_unlock(&t->lock);
        if (stop)
            break;
        if (rc == 0 && l)
            write_meta(r, c, l);
        c->spent_ns += vv_now_ns() - start;
        if (rc == 0 && l) {
            rc = submit(r, c, l);
        } else if (rc == -ENODATA && c->nr == 0) {
            rc = 0;
            break;
        } else if (rc == -EAGAIN || rc == -ENODATA) {
            rc = wait_some(r, c);
        }
    }
    return rc;
}

/* Waits until no work of the run is under way on this device, and empties the cache. */
static void settle(struct vvi_tables_run *r, struct vvi_cache *c)
{
    struct varve_tables *t = r->t;

    for (; c->nr > 0; c->nr--, c->first = (c->first + 1) % t->split.most) {
        struct vvi_launch *l = &c->launches[c->first];

        if (l->recorded)
            (void)vvi_tables_wait(c, l->done);
        l->planned = l->recorded = false;
    }
    c->ready = 0;
    for (uint32_t i = 0; i < c->nr_lanes; i++)
        if (vv_device_event_record(c->device, c->moved, c->lanes[i]) == 0)
            (void)vvi_tables_wait(c, c->moved);
    if (vv_device_event_record(c->device, c->moved, c->stream) == 0)
        (void)vvi_tables_wait(c, c->moved);
    if (vv_device_event_record(c->device, c->moved, c->moves) == 0)
        (void)vvi_tables_wait(c, c->moved);
    vvi_source_settle(&c->source, c->moves);
}

/* Makes launches begin after the earlier work on the application's stream. */
static int begin_lanes(struct vvi_cache *c)
{
    int rc = c->nr_lanes > 0 ? vv_device_event_record(c->device, c->moved, c->stream) : 0;

    for (uint32_t i = 0; rc == 0 && i < c->nr_lanes; i++)
        rc = vv_device_stream_wait_event(c->device, c->lanes[i], c->moved);
    return rc;
}

static void cache_run(struct vvi_tables_run *r, struct vvi_cache *c)
{
    const struct varve_tables_work *w = &r->order.work;
    struct varve_tables *t = r->t;
    int rc;

    c->first = c->nr = c->ready = c->lane = 0;
    c->ahead = 0;
    c->spent_ns = 0;
    c->pace = (struct vvi_pace){0, 0};
    rc = vv_device_stream_adopt(c->device, w->streams ? w->streams[c->which] : NULL, &c->stream);
    if (rc == 0) {
        rc = begin_lanes(c);
        if (rc == 0)
            rc = cache_loop(r, c);
        vv_mutex_lock(&t->lock);
        note_error_locked(r, rc);
        rc = r->error;
        vv_mutex_unlock(&t->lock);
        if (rc)
            settle(r, c);
        vv_device_stream_free(c->device, c->stream);
    }
    vv_mutex_lock(&t->lock);
    note_error_locked(r, rc);
    t->stats.management_ns += c->spent_ns;
    vv_mutex_unlock(&t->lock);
}

struct cache_thread {
    struct vvi_tables_run *r;
    struct vvi_cache *c;
    pthread_t id;
};

static void *cache_main(void *arg)
{
    struct cache_thread *ct = arg;

    cache_run(ct->r, ct->c);
    return NULL;
}

/* ---- runs ---- */

/* Starts threads for all caches except the first, and one for the processor. */
static int run_threads(struct vvi_tables_run *r)
{
    struct varve_tables *t = r->t;
    struct cache_thread *threads = calloc(t->nr, sizeof(*threads));
    uint32_t started = 0;
    pthread_t host;
    bool has_host = false;
    int rc = threads ? 0 : -ENOMEM;

    if (rc == 0 && r->order.work.host) {
        rc = vv_thread_start(&host, host_main, r);
        has_host = rc == 0;
    }
    for (uint32_t i = 1; rc == 0 && i < t->nr; i++) {
        threads[i] = (struct cache_thread){.r = r, .c = &t->caches[i]};
        rc = vv_thread_start(&threads[i].id, cache_main, &threads[i]);
        started += rc == 0;
    }
    if (rc) {
        vv_mutex_lock(&t->lock);
        note_error_locked(r, rc);
        vv_mutex_unlock(&t->lock);
    } else {
        cache_run(r, &t->caches[0]);
    }
    for (uint32_t i = 1; i <= started; i++)
        pthread_join(threads[i].id, NULL);
    vv_mutex_lock(&t->lock);
    r->host_stop = true;
    vv_cond_broadcast(&t->changed);
    vv_mutex_unlock(&t->lock);
    if (has_host)
        pthread_join(host, NULL);
    free(threads);
    return r->error;
}

/* Records an error that names the item. */
static int never_fits(struct vvi_cache *c, const struct vvi_largest *l)
{
    const struct varve_tables *t = c->t;

    return vvi_tables_fail(c, -EFBIG,
                           "the tables of item %u take %llu bytes together%s, and a cache of %llu "
                           "has room for %llu",
                           l->item, (unsigned long long)l->bytes,
                           t->plans[c->which].space.chunked ? " in chunks of 64 KiB" : "",
                           (unsigned long long)t->opts.cache_bytes,
                           (unsigned long long)t->plans[c->which].space.capacity);
}

static int run(struct vvi_tables_run *r, uint64_t start)
{
    struct varve_tables *t = r->t;
    struct vvi_split split;
    int rc = vvi_plan_split(&t->opts, &r->order, &split);

    if (rc == -EFBIG)
        return vvi_tables_fail(&t->caches[0], rc,
                               "item %u needs %llu bytes beside its tables, for which a cache of "
                               "%llu has no room",
                               split.largest.meta_item, (unsigned long long)split.meta_bytes,
                               (unsigned long long)t->opts.cache_bytes);
    if (rc == 0)
        rc = vvi_tables_divide(t, &split);
    if (rc)
        return vvi_tables_fail(&t->caches[0], rc, "what launches need beside their tables: %s",
                               vv_strerror(rc));
    /* Check now, and not when it is the item's turn: that may be hours away. */
    if (!r->order.work.host && split.largest.bytes > t->plans[0].space.capacity)
        return never_fits(&t->caches[0], &split.largest);
    vv_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < t->nr; i++)
        vvi_plan_begin(&t->plans[i], &r->order, &t->split.limits,
                       vvi_plan_part(&r->order, t->nr, i), vvi_plan_part(&r->order, t->nr, i + 1));
    t->seen_ns = vv_now_ns();
    t->stats.management_ns += vv_now_ns() - start;
    vv_mutex_unlock(&t->lock);
    rc = run_threads(r);
    vv_mutex_lock(&t->lock);
    vvi_tables_account_locked(t, vv_now_ns());
    for (uint32_t i = 0; i < t->nr; i++) {
        t->plans[i].from = t->plans[i].to = 0;
        if (rc)
            vvi_tables_forget(&t->caches[i]);
    }
    vv_mutex_unlock(&t->lock);
    return rc;
}

int varve_tables_run(struct varve_tables *t, const struct varve_tables_work *work)
{
    struct vvi_tables_run r = {.t = t};
    const char *why = NULL;
    uint64_t start = vv_now_ns();
    bool busy;
    int rc;

    if (!t)
        return vvi_ooc_bad("tables_run", "tables is NULL");
    vv_mutex_lock(&t->lock);
    busy = t->running;
    t->running = true;
    vv_mutex_unlock(&t->lock);
    if (busy)
        return vv_ckpt_fail_ctx(t->ctx, "tables_run", -EBUSY, false, "a run is under way");
    atomic_store_explicit(&t->reported, false, memory_order_relaxed);
    rc = vvi_order_init(&r.order, &t->opts, work, &why);
    if (rc == 0 && r.order.work.items > 0 && !r.order.work.launch) {
        why = "launch starts the kernels";
        rc = -EINVAL;
    }
    if (why)
        rc = vv_ckpt_fail_ctx(t->ctx, "tables_run", -EINVAL, false, "%s", why);
    if (rc == 0 && r.order.work.items > 0)
        rc = run(&r, start);
    if (rc && !why && !atomic_load_explicit(&t->reported, memory_order_relaxed))
        rc = vvi_tables_fail(&t->caches[0], rc, "a run on the device: %s", vv_strerror(rc));
    vvi_order_fini(&r.order);
    free(r.host_items);
    vv_mutex_lock(&t->lock);
    t->running = false;
    t->stats.runs += rc == 0;
    vv_mutex_unlock(&t->lock);
    return rc;
}
