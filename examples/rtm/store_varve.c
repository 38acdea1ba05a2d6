/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots in a history of Varve. This is the only file of the program that uses the library.
 *
 * The order of restores is known before the first snapshot is written, so all hints are
 * given then. A snapshot is needed once: the history consumes restored versions.
 *
 * `copy` checkpoints a buffer that the propagator has filled, and restores into it. `lend` lets the
 * propagator write directly into the cache, and read there. Writing there costs only room;
 * a snapshot must be gathered before it is read there, unless it is contiguous, so on
 * processors, whose caches are small and whose copies are slow, a restore is equally fast. With the
 * emulated device snapshots are first copied into its memory, because a program with a device would have
 * them there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rtm.h"

struct varve_store {
    struct rtm_store store;
    struct rtm_prop *prop;
    struct varve_ctx *ctx;
    struct varve_history *history;
    size_t max_bytes;
    enum rtm_hints hints;
    bool prefetch, consume, in_own;
    bool lend_put, lend_get; /* snapshots are written, are read in the cache */
    void *buffer;            /* the propagator's, or host memory */
    void *staged;            /* in the emulated device; NULL: none */
    size_t *sizes;           /* of the versions, as they were put */
    uint64_t base,
        count;     /* versions of this shot: base to base + count - 1. Numbers are not reused,
                             because a version that a stream consumed may be removed later */
    bool reserved; /* the current version is being written in place */
    bool acquired; /* the current version is being read in place */
    uint64_t version;
};

static struct varve_store *store_of(struct rtm_store *s)
{
    return (struct varve_store *)s;
}

static int failed(struct varve_store *s, int rc, const char *what)
{
    return rtm_error_varve(s->ctx, rc, what);
}

/* ---- a shot ---- */

static int give_hints(struct varve_store *s)
{
    int rc = 0;

    for (uint64_t v = s->count; v-- > 0 && rc == 0;)
        rc = varve_hint(s->history, s->base + v);
    return rc ? failed(s, rc, "hint") : 0;
}

static int varve_shot(struct rtm_store *store, uint64_t count)
{
    struct varve_store *s = store_of(store);

    for (uint64_t v = 0; v < s->count && !s->consume; v++)
        (void)varve_discard(s->history, s->base + v);
    varve_hint_clear(s->history);
    s->base += s->count;
    s->count = count;
    return s->hints == RTM_HINTS_FIRST ? give_hints(s) : 0;
}

static int varve_turn(struct rtm_store *store, uint64_t count)
{
    struct varve_store *s = store_of(store);
    int rc = 0;

    (void)count;
    if (s->hints == RTM_HINTS_TURN)
        rc = give_hints(s);
    if (rc == 0 && s->prefetch) {
        rc = varve_prefetch_start(s->history);
        rc = rc ? failed(s, rc, "start of prefetching") : 0;
    }
    return rc;
}

/* ---- snapshots ---- */

static int varve_put_begin(struct rtm_store *store, uint64_t version, void **ret_ptr)
{
    struct varve_store *s = store_of(store);
    int rc;

    if (!s->lend_put) {
        *ret_ptr = s->buffer;
        return 0;
    }
    rc = varve_reserve(s->history, s->base + version, 0, s->max_bytes, s->prop->stream, ret_ptr);
    if (rc)
        return failed(s, rc, "reserving a snapshot");
    s->reserved = true;
    s->version = s->base + version;
    return 0;
}

static int varve_put_end(struct rtm_store *store, uint64_t version, size_t bytes)
{
    struct varve_store *s = store_of(store);
    int rc = 0;

    if (s->lend_put) {
        rc = varve_commit(s->history, s->base + version, s->prop->stream);
        s->reserved = rc != 0;
        return rc ? failed(s, rc, "committing a snapshot") : 0;
    }
    s->sizes[version] = bytes;
    if (s->staged)
        rc = varve_device_copy(s->ctx, s->staged, s->buffer, bytes);
    if (rc == 0)
        rc = varve_protect(s->history, 0, s->staged ? s->staged : s->buffer, bytes);
    if (rc == 0)
        rc = varve_checkpoint_on(s->history, s->base + version, s->prop->stream);
    return rc ? failed(s, rc, "checkpoint") : 0;
}

static int varve_get_begin(struct rtm_store *store, uint64_t version, void **ret_ptr)
{
    struct varve_store *s = store_of(store);
    size_t bytes = 0;
    int rc;

    if (s->lend_get) {
        rc = varve_acquire(s->history, s->base + version, 0, s->prop->stream, ret_ptr, &bytes);
        if (rc)
            return failed(s, rc, "acquiring a snapshot");
        s->acquired = true;
        s->version = s->base + version;
        return 0;
    }
    rc = varve_protect(s->history, 0, s->staged ? s->staged : s->buffer, s->max_bytes);
    if (rc == 0)
        rc = varve_restore_on(s->history, s->base + version, s->prop->stream);
    if (rc == 0 && s->staged)
        rc = varve_device_copy(s->ctx, s->buffer, s->staged, s->sizes[version]);
    if (rc)
        return failed(s, rc, "restore");
    *ret_ptr = s->buffer;
    return 0;
}

static int varve_get_end(struct rtm_store *store, uint64_t version)
{
    struct varve_store *s = store_of(store);
    int rc = 0;

    if (s->lend_get) {
        rc = varve_release(s->history, s->base + version, 0, s->prop->stream);
        s->acquired = false;
    }
    return rc ? failed(s, rc, "releasing a snapshot") : 0;
}

static void varve_store_stats(struct rtm_store *store, struct varve_stats *ret_stats)
{
    memset(ret_stats, 0, sizeof(*ret_stats));
    ret_stats->stats_size = sizeof(*ret_stats);
    if (varve_stats(store_of(store)->ctx, ret_stats) != 0)
        ret_stats->stats_size = 0;
}

/* ---- opening and closing ---- */

static int varve_store_close(struct rtm_store *store)
{
    struct varve_store *s = store_of(store);
    int rc = 0;

    /* Left open after an error or a signal. */
    if (s->reserved || s->acquired)
        (void)s->prop->ops->sync(s->prop);
    if (s->reserved)
        (void)varve_abort(s->history, s->version);
    if (s->acquired)
        (void)varve_release(s->history, s->version, 0, s->prop->stream);
    if (s->ctx && s->staged)
        (void)varve_device_free(s->ctx, s->staged);
    if (s->ctx) {
        struct varve_error e = {.error_size = sizeof(e)};

        rc = varve_close(s->ctx);
        rc = rc ? rtm_error_varve(NULL, rc, "closing") : 0;
        /* The image is more important than its trace. */
        if (rc && varve_last_error(NULL, &e) == 0 && strcmp(e.operation, "trace") == 0) {
            rtm_warn("%s", e.text);
            rc = 0;
        }
    }
    if (s->buffer && s->in_own)
        s->prop->ops->own_free(s->prop, s->buffer);
    else if (s->buffer)
        s->prop->ops->host_free(s->prop, s->buffer);
    free(s->sizes);
    free(s);
    return rc;
}

static const struct rtm_store_ops varve_ops = {
    .name = "varve",
    .close = varve_store_close,
    .shot = varve_shot,
    .turn = varve_turn,
    .put_begin = varve_put_begin,
    .put_end = varve_put_end,
    .get_begin = varve_get_begin,
    .get_end = varve_get_end,
    .stats = varve_store_stats,
};

/* The options of the context, in full. */
static int choose(const struct rtm_store_opts *opts, struct varve_opts *o)
{
    const struct rtm_params *p = opts->params;
    bool device;
    uint64_t fastest;

    *o = p->varve;
    if (opts->prop->ops->on_device || o->device != VARVE_DEVICE_HOST)
        o->device = opts->prop->varve_device;
    device = o->device != VARVE_DEVICE_NONE && o->device_cache > 0;
    fastest = device ? o->device_cache : o->host_cache;
    if (fastest < opts->max_bytes)
        return rtm_error(
            -ENOSPC,
            "a snapshot takes %s, and the %s cache has %s: give it more (--%s-cache, or "
            "--memory %lluK), or make the grid smaller (--grid)",
            rtm_bytes(opts->max_bytes), device ? "device" : "host", rtm_bytes(fastest),
            device ? "device" : "host",
            (unsigned long long)(4 * ((opts->max_bytes + 1023) / 1024)));
    if (p->no_local)
        o->local[0] = 0;
    else if (!o->local[0])
        snprintf(o->local, sizeof(o->local), "%s", opts->folder);
    /* The page for `varve top` goes to the output folder, so that a killed run leaves nothing elsewhere. */
    if (p->out[0] && strcmp(o->stats, "auto") == 0)
        snprintf(o->stats, sizeof(o->stats), "%s", p->out);
    return 0;
}

static int open_history(struct varve_store *s)
{
    struct varve_history_opts h;
    int rc = varve_history_opts_init(&h, sizeof(h));

    h.consume = s->consume ? VARVE_CONSUME_ONCE : VARVE_CONSUME_KEEP;
    if (rc == 0)
        rc = varve_history_open_with(s->ctx, "source", &h, &s->history);
    return rc ? failed(s, rc, "opening the history") : 0;
}

static int make_buffers(struct varve_store *s, const struct varve_opts *o, uint64_t snapshots)
{
    int rc = 0;

    if (s->lend_put && s->lend_get)
        return 0;
    s->sizes = calloc(snapshots, sizeof(*s->sizes));
    s->buffer = s->in_own ? s->prop->ops->own_alloc(s->prop, s->max_bytes)
                          : s->prop->ops->host_alloc(s->prop, s->max_bytes);
    if (!s->buffer || !s->sizes)
        return rtm_error(-ENOMEM, "no memory for a snapshot of %s: make the grid smaller (--grid)",
                         rtm_bytes(s->max_bytes));
    if (o->device == VARVE_DEVICE_HOST)
        rc = varve_device_alloc(s->ctx, s->max_bytes, &s->staged);
    return rc ? failed(s, rc, "memory of the emulated device") : 0;
}

/* At most half of a cache may be lent, each snapshot contiguous: with small caches copies are better. */
static void choose_access(struct varve_store *s, enum rtm_access access, uint64_t lendable_bytes,
                          bool on_device)
{
    uint64_t snapshots = lendable_bytes / s->max_bytes;

    s->lend_put = access == RTM_ACCESS_LEND || (access == RTM_ACCESS_AUTO && snapshots >= 4);
    s->lend_get =
        access == RTM_ACCESS_LEND || (access == RTM_ACCESS_AUTO && on_device && snapshots >= 6);
}

int rtm_store_varve_open(const struct rtm_store_opts *opts, struct rtm_store **ret_store)
{
    const struct rtm_params *p = opts->params;
    struct varve_opts o;
    struct varve_store *s;
    int rc = choose(opts, &o);
    bool has_device = o.device != VARVE_DEVICE_NONE && o.device_cache > 0;
    uint64_t fastest = has_device ? o.device_cache : o.host_cache;
    bool can_lend = opts->fixed && opts->in_own &&
                    (has_device ? o.device == VARVE_DEVICE_CUDA : o.device == VARVE_DEVICE_NONE);

    if (rc)
        return rc;
    s = calloc(1, sizeof(*s));
    if (!s)
        return rtm_error(-ENOMEM, "out of memory");
    s->store.ops = &varve_ops;
    s->prop = opts->prop;
    s->max_bytes = opts->max_bytes;
    s->hints = p->hints;
    s->prefetch = p->prefetch;
    s->consume = p->consume;
    s->in_own = opts->in_own;
    s->store.cache_bytes = (has_device ? o.device_cache : 0) + o.host_cache;
    choose_access(s, p->access, can_lend ? fastest : 0, has_device);
    if (p->access == RTM_ACCESS_LEND && !can_lend)
        rc = rtm_error(-EINVAL, "snapshots cannot be lent when they are compressed, or with the "
                                "emulated device: leave out --access lend");
    if (rc == 0) {
        rc = varve_open(&o, &s->ctx);
        rc = rc ? rtm_error_varve(NULL, rc, "opening Varve") : 0;
    }
    if (rc == 0)
        rc = open_history(s);
    if (rc == 0)
        rc = make_buffers(s, &o, opts->snapshots);
    if (rc == 0)
        *ret_store = &s->store;
    else
        (void)varve_store_close(&s->store);
    return rc;
}
