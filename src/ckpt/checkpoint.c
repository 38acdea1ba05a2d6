/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoint and restore, and the small calls around them.
 *
 * An object is the bytes of its regions, by ascending number, one after the other. A checkpoint
 * takes a copy of the list of regions and hands the engine their pieces. A restore looks the
 * version up, matches the regions protected now with the stored ones, and hands the engine pieces
 * in the stored order, with a hole for every stored region that nobody wants.
 *
 * Between looking a version up and getting it another thread may discard it and write it anew with
 * other regions; the engine compares generations, and we look again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt_private.h"
#include "core/clock.h"
#include "core/error.h"

/* The pieces of one request, on the stack unless there are many. */
struct pieces {
    struct vv_engine_piece few[VVI_PIECES_INLINE];
    struct vv_engine_piece *v;
    size_t n;
    bool device;
};

static int pieces_alloc(struct pieces *p, size_t n)
{
    p->v = n <= VVI_PIECES_INLINE ? p->few : calloc(n, sizeof(*p->v));
    p->n = n;
    p->device = false;
    return p->v ? 0 : -ENOMEM;
}

static void pieces_free(struct pieces *p)
{
    if (p->v != p->few)
        free(p->v);
}

/* A copy of the protected regions, so that no lock is held while data moves. */
struct regions {
    struct vvi_region few[VVI_PIECES_INLINE];
    struct vvi_region *v;
    size_t n;
};

static int regions_copy(struct varve_history *h, struct regions *r)
{
    int rc = 0;
    vv_mutex_lock(&h->lock);
    r->n = h->nregions;
    r->v = r->n <= VVI_PIECES_INLINE ? r->few : malloc(r->n * sizeof(*r->v));
    if (!r->v)
        rc = -ENOMEM;
    else if (r->n == 0)
        rc = -ENODATA;
    else
        memcpy(r->v, h->regions, r->n * sizeof(*r->v));
    vv_mutex_unlock(&h->lock);
    return rc;
}

static void regions_free(struct regions *r)
{
    if (r->v != r->few)
        free(r->v);
}

/* What failed after its call had returned, told once. */
static int late_error(struct varve_history *h, const char *operation)
{
    uint64_t version = 0;
    int tier = -1, rc;
    while ((rc = vv_engine_take_error(h->ctx->engine, h->hist, &version, &tier)) != 0) {
        vv_mutex_lock(&h->lock);
        bool told = h->told && h->told_version == version;
        h->told = h->told && !told;
        vv_mutex_unlock(&h->lock);
        if (told)
            continue;
        struct vv_object_info info;
        if (vv_engine_lookup(h->ctx->engine, h->hist, version, &info) == 0) {
            vvi_layout_release(NULL, info.user);
            return vvi_fail_flush(h, operation, version, tier, rc);
        }
        struct vvi_where here = {operation, version, -1, tier};
        return vvi_fail(h->ctx, &here, rc,
                        "the file of discarded version %llu could not be removed from %.80s: %s",
                        (unsigned long long)version, h->ctx->opts.local, vv_strerror(rc));
    }
    return 0;
}

static int say(struct varve_history *h, const char *operation, uint64_t version, int rc)
{
    struct vvi_where here = {operation, version, -1, -1};
    return vvi_fail(h->ctx, &here, rc, "version %llu: %s", (unsigned long long)version,
                    rc == -ENODATA ? "no region is protected" : vv_strerror(rc));
}

/* ---- checkpoint ---- */

static int layout_of(const struct regions *r, struct pieces *p, uint64_t *ret_size,
                     uint64_t *ret_user)
{
    struct vv_store_region few[VVI_PIECES_INLINE];
    struct vv_store_region *list = r->n <= VVI_PIECES_INLINE ? few : malloc(r->n * sizeof(*list));
    uint64_t size = 0;
    if (!list)
        return -ENOMEM;
    int rc = pieces_alloc(p, r->n);
    for (size_t i = 0; i < r->n && rc == 0; i++) {
        const struct vvi_region *g = &r->v[i];
        if (size + g->bytes > INT64_MAX)
            rc = -EFBIG;
        size += g->bytes;
        list[i] = (struct vv_store_region){.id = g->id, .bytes = g->bytes};
        p->v[i] = (struct vv_engine_piece){g->ptr, g->bytes, g->kind};
        p->device |= g->kind == VV_MEM_DEVICE;
    }
    if (rc == 0)
        rc = vvi_layout_new(list, (uint32_t)r->n, ret_user);
    if (rc == 0)
        *ret_size = size;
    if (list != few)
        free(list);
    return rc;
}

static int checkpoint(struct varve_history *h, uint64_t version, uint64_t deadline_ns)
{
    struct varve_ctx *ctx = h->ctx;
    struct regions r = {.n = 0};
    struct pieces p = {.n = 0};
    uint64_t size = 0, user = 0;
    int rc = regions_copy(h, &r);
    if (rc == 0)
        rc = layout_of(&r, &p, &size, &user);
    if (rc == 0) {
        struct vv_engine_app app = {p.v, p.n, p.device};
        rc = vv_engine_put(ctx->engine, h->hist, version, size, user, &app, deadline_ns);
    }
    if (rc == 0) {
        ctx->checkpoint_bytes += size;
        vv_mutex_lock(&h->lock);
        h->told = h->told && h->told_version != version;
        vv_mutex_unlock(&h->lock);
    }
    pieces_free(&p);
    regions_free(&r);
    if (rc == -ENOSPC || (rc == -EFBIG && size <= INT64_MAX))
        return vvi_fail_put(h, version, size, rc);
    return rc ? say(h, "checkpoint", version, rc) : 0;
}

int varve_checkpoint_for(struct varve_history *h, uint64_t version, int timeout_ms)
{
    uint64_t start_ns = vv_now_ns();
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = late_error(h, "checkpoint");
    if (rc == 0)
        rc = vvi_damage_check(h, "checkpoint", version, -EEXIST);
    if (rc == 0)
        rc = checkpoint(h, version, vv_deadline_ns(timeout_ms));
    h->ctx->checkpoint_blocked_ns += vv_now_ns() - start_ns;
    vvi_history_leave(h);
    return rc;
}

int varve_checkpoint(struct varve_history *h, uint64_t version)
{
    return varve_checkpoint_for(h, version, -1);
}

/* ---- restore ---- */

static int match_fail(struct varve_history *h, uint64_t version, const struct vvi_region *g, int rc,
                      uint64_t stored)
{
    struct vvi_where here = {"restore", version, g->id, -1};
    unsigned long long v = version, bytes = stored;
    if (rc == -ESRCH)
        return vvi_fail(h->ctx, &here, rc, "version %llu has no region %d", v, g->id);
    return vvi_fail(h->ctx, &here, rc,
                    "region %d of version %llu has %llu bytes, the buffer only %zu", g->id, v,
                    bytes, g->bytes);
}

/* Both lists go by ascending number, so that one pass matches them. */
static int match(struct varve_history *h, const struct vv_object_info *info,
                 const struct regions *r, struct pieces *p)
{
    uint32_t nstored = vvi_layout_count(info->user);
    size_t at = 0;
    int rc = pieces_alloc(p, nstored);
    if (rc)
        return say(h, "restore", info->version, rc);
    for (uint32_t i = 0; i < nstored; i++) {
        struct vv_store_region s = vvi_layout_region(info->user, info->size, i);
        p->v[i] = (struct vv_engine_piece){NULL, s.bytes, VV_MEM_HOST};
        if (at < r->n && r->v[at].id < s.id)
            break;
        if (at == r->n || r->v[at].id != s.id)
            continue;
        const struct vvi_region *g = &r->v[at++];
        if (g->bytes < s.bytes)
            return match_fail(h, info->version, g, -ENOBUFS, s.bytes);
        p->v[i].ptr = g->ptr;
        p->v[i].kind = g->kind;
        p->device |= g->kind == VV_MEM_DEVICE;
    }
    return at == r->n ? 0 : match_fail(h, info->version, &r->v[at], -ESRCH, 0);
}

/* Says where the bytes are that did not verify. A chunk may hold the end of one region and others
 * behind it: the first is named, as the smallest unit that has a checksum is the chunk. */
static void damage_fail(struct varve_history *h, const struct vv_object_info *info)
{
    struct vvi_where here = {"restore", info->version, -1, -1};
    unsigned long long v = info->version;
    uint64_t from = 0, to = 0, at = 0;
    if (vv_engine_damage(h->ctx->engine, h->hist, info->version, info->generation, &here.tier,
                         &from, &to)) {
        say(h, "restore", info->version, -EBADMSG);
        return;
    }
    for (uint32_t i = 0; i < vvi_layout_count(info->user); i++) {
        struct vv_store_region s = vvi_layout_region(info->user, info->size, i);
        at += s.bytes;
        if (at > from) {
            here.region = s.id;
            break;
        }
    }
    to = VV_MIN(to, info->size);
    vvi_fail(h->ctx, &here, -EBADMSG,
             "version %llu, region %d: its bytes in %s are damaged (within %llu to %llu of the "
             "version)",
             v, here.region, vvi_tier_name(h->ctx, here.tier), (unsigned long long)from,
             (unsigned long long)to);
}

static int restore(struct varve_history *h, uint64_t version, uint64_t deadline_ns)
{
    struct varve_ctx *ctx = h->ctx;
    struct regions r = {.n = 0};
    uint32_t distance = 0;
    int rc = regions_copy(h, &r);
    if (rc)
        say(h, "restore", version, rc);
    while (rc == 0) {
        struct vv_object_info info;
        struct pieces p = {.n = 0};
        rc = vv_engine_lookup(ctx->engine, h->hist, version, &info);
        if (rc) {
            say(h, "restore", version, rc);
            break;
        }
        rc = match(h, &info, &r, &p);
        if (rc == 0) {
            struct vv_engine_app app = {p.v, p.n, p.device};
            rc = vv_engine_get(ctx->engine, h->hist, version, info.generation, &app, deadline_ns,
                               &distance);
            if (rc == -EBADMSG)
                damage_fail(h, &info);
            else if (rc && rc != -ESTALE)
                say(h, "restore", version, rc);
        }
        pieces_free(&p);
        vvi_layout_release(NULL, info.user);
        if (rc == 0) {
            ctx->restore_bytes += info.size;
            ctx->last_distance = distance;
            break;
        }
        if (rc == -ESTALE)
            rc = 0;
    }
    regions_free(&r);
    return rc;
}

int varve_restore_for(struct varve_history *h, uint64_t version, int timeout_ms)
{
    uint64_t start_ns = vv_now_ns();
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = late_error(h, "restore");
    if (rc == 0)
        rc = vvi_damage_check(h, "restore", version, 0);
    if (rc == 0)
        rc = restore(h, version, vv_deadline_ns(timeout_ms));
    uint64_t blocked_ns = vv_now_ns() - start_ns;
    h->ctx->restore_blocked_ns += blocked_ns;
    h->ctx->last_blocked_ns = blocked_ns;
    vvi_history_leave(h);
    return rc;
}

int varve_restore(struct varve_history *h, uint64_t version)
{
    return varve_restore_for(h, version, -1);
}

int varve_region_size(struct varve_history *h, uint64_t version, int region, size_t *ret_bytes)
{
    struct vv_object_info info;
    struct vvi_where here = {"region_size", version, region, -1};
    if (!ret_bytes)
        return -EINVAL;
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = vvi_damage_check(h, "region_size", version, 0);
    if (rc) {
        vvi_history_leave(h);
        return rc;
    }
    rc = vv_engine_lookup(h->ctx->engine, h->hist, version, &info);
    if (rc) {
        say(h, "region_size", version, rc);
    } else {
        uint32_t n = vvi_layout_count(info.user);
        rc = -ESRCH;
        for (uint32_t i = 0; i < n && rc; i++) {
            struct vv_store_region s = vvi_layout_region(info.user, info.size, i);
            if (s.id != region)
                continue;
            *ret_bytes = s.bytes;
            rc = 0;
        }
        vvi_layout_release(NULL, info.user);
        if (rc)
            vvi_fail(h->ctx, &here, rc, "version %llu has no region %d",
                     (unsigned long long)version, region);
    }
    vvi_history_leave(h);
    return rc;
}

/* ---- hints ---- */

int varve_hint(struct varve_history *h, uint64_t version)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = vv_engine_hint(h->ctx->engine, h->hist, version);
    if (rc)
        say(h, "hint", version, rc);
    vvi_history_leave(h);
    return rc;
}

int varve_hint_clear(struct varve_history *h)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    vv_engine_hint_clear(h->ctx->engine, h->hist);
    vvi_history_leave(h);
    return 0;
}

int varve_prefetch_start(struct varve_history *h)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = late_error(h, "prefetch_start");
    if (rc == 0)
        vv_engine_prefetch_start(h->ctx->engine, h->hist);
    vvi_history_leave(h);
    return rc;
}

/* ---- waiting ---- */

static int level_fail(struct varve_history *h, uint64_t version, int level)
{
    static const char *const names[] = {"cached", "local", "remote", "complete"};
    struct vvi_where here = {"wait", version, -1, -1};
    if (level < VARVE_LEVEL_CACHED || level > VARVE_LEVEL_COMPLETE)
        return vvi_fail(h->ctx, &here, -EINVAL, "there is no level %d", level);
    return vvi_fail(h->ctx, &here, -EINVAL, "level %s is above this context's level, %s",
                    names[level], names[h->ctx->opts.level]);
}

int varve_wait(struct varve_history *h, uint64_t version, enum varve_level level, int timeout_ms)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    if ((int)level < VARVE_LEVEL_CACHED || (int)level > h->ctx->opts.level) {
        rc = level_fail(h, version, (int)level);
    } else if ((rc = vvi_damage_check(h, "wait", version, 0)) == 0) {
        rc = vv_engine_wait(h->ctx->engine, h->hist, version,
                            level == VARVE_LEVEL_CACHED ? VV_CORE_CACHED : VV_CORE_DURABLE,
                            vv_deadline_ns(timeout_ms));
        if (rc == -ETIMEDOUT || rc == -ENOENT) {
            say(h, "wait", version, rc);
        } else if (rc) {
            vvi_fail_flush(h, "wait", version, -1, rc);
            vv_mutex_lock(&h->lock);
            h->told = true;
            h->told_version = version;
            vv_mutex_unlock(&h->lock);
        }
    }
    vvi_history_leave(h);
    return rc;
}

int varve_flush(struct varve_history *h, int timeout_ms)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = late_error(h, "flush");
    if (rc == 0) {
        rc = vv_engine_wait_all(h->ctx->engine, h->hist, vv_deadline_ns(timeout_ms));
        if (rc)
            vvi_fail_flush_all(h, rc);
        else
            rc = late_error(h, "flush"); /* of a removal that ended meanwhile */
    }
    vvi_history_leave(h);
    return rc;
}

/* ---- versions ---- */

int varve_discard(struct varve_history *h, uint64_t version)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = vv_engine_discard(h->ctx->engine, h->hist, version);
    if (rc == -ENOENT)
        rc = vvi_damage_discard(h, version);
    if (rc)
        say(h, "discard", version, rc);
    vvi_history_leave(h);
    return rc;
}

int varve_latest(struct varve_history *h, uint64_t *ret_version)
{
    struct vvi_where here = {"latest", 0, -1, -1};
    if (!ret_version)
        return -EINVAL;
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = vv_engine_latest(h->ctx->engine, h->hist, ret_version);
    if (rc)
        vvi_fail(h->ctx, &here, rc, "no version has reached the level");
    vvi_history_leave(h);
    return rc;
}

struct version_list {
    uint64_t *versions;
    size_t max, n;
};

static void version_add(void *arg, const struct vv_object_info *info)
{
    struct version_list *list = arg;
    if (list->n < list->max)
        list->versions[list->n] = info->version;
    list->n++;
}

int varve_versions(struct varve_history *h, uint64_t *ret_versions, size_t max, size_t *ret_count)
{
    if (!ret_count || (max > 0 && !ret_versions))
        return -EINVAL;
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    struct version_list list = {ret_versions, max, 0};
    vv_engine_each(h->ctx->engine, h->hist, version_add, &list);
    *ret_count = list.n;
    vvi_history_leave(h);
    return 0;
}
