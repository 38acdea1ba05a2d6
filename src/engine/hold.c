/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions that are written anew. Discarding one first would leave nothing if the process were killed
 * before the new one is committed. So the old one is superseded: dead to everybody, its pages given up
 * like those of any discarded object, but its committed file stays, and is counted, until the new one
 * is safe. Files have generations, of which the highest counts when a history is opened: at any
 * instant a restart finds the old version whole or the new one whole.
 *
 * Holds true between two calls into the core:
 *  - a superseded object is dead and committed; it is held (in hist->held) exactly when nothing refers
 *    to it any more;
 *  - hist->nsuperseded counts the held ones and those that orders, requests or leases still refer to.
 *
 * A held object goes when its successor is committed, or, in a history that says so (`hold`), when it
 * is told to; when its successor is discarded; and, leaving its file, when the history is dropped. A
 * successor that was never written leaves it, to be revived or to be found by the next life.
 */
#include <errno.h>

#include "engine/core_private.h"

int vv_core_supersede(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t now_ns)
{
    struct vv_object *obj = vvi_object_find(core, hist, version);

    if (!obj || !(obj->written || (obj->writing && obj->ordered)))
        return -ENOENT;
    vvi_core_enter(core, now_ns);
    obj->anew = true;
    if (obj->durable) {
        obj->superseded = true;
        vvi_hist(core, hist)->nsuperseded++;
    }
    vvi_object_gone(core, obj);
    vvi_core_leave(core);
    return 0;
}

void vvi_hold(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);

    vv_assert(obj->dead && obj->durable && obj->refs == 0);
    obj->newer = h->held;
    h->held = obj;
}

/* From here on like any discarded object: whoever has the last reference removes the file, unless
 * keep_file is set. */
static void let_go(struct vv_core *core, struct vv_object *obj)
{
    vv_assert(obj->superseded);
    obj->superseded = false;
    vvi_hist(core, obj->hist)->nsuperseded--;
}

/* Takes an object off the list; NULL: none of this version is held. */
static struct vv_object *unhold(struct hist *h, uint64_t version)
{
    for (struct vv_object **at = &h->held; *at; at = &(*at)->newer)
        if ((*at)->version == version) {
            struct vv_object *obj = *at;
            *at = obj->newer;
            obj->newer = NULL;
            return obj;
        }
    return NULL;
}

/* Superseded objects that something still refers to. */
static void each_busy(struct vv_core *core, uint32_t hist,
                      void (*fn)(struct vv_core *core, struct vv_object *obj, const void *arg),
                      const void *arg)
{
    struct vv_req *lists[] = {core->puts, core->gets, core->waits, core->ordered};

    for (struct vv_order *o = core->orders; o; o = o->all_next)
        if (o->obj->superseded && o->obj->hist == hist)
            fn(core, o->obj, arg);
    for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (struct vv_req *req = lists[i]; req; req = req->next)
            if (req->obj && req->obj->superseded && req->obj->hist == hist)
                fn(core, req->obj, arg);
    for (struct vv_lend *l = core->lends; l; l = l->next)
        if (l->obj->superseded && l->obj->hist == hist)
            fn(core, l->obj, arg);
}

static void release_busy(struct vv_core *core, struct vv_object *obj, const void *arg)
{
    if (obj->version == *(const uint64_t *)arg)
        let_go(core, obj);
}

void vvi_release(struct vv_core *core, uint32_t hist, uint64_t version)
{
    struct hist *h = vvi_hist(core, hist);
    struct vv_object *obj;

    if (h->nsuperseded == 0)
        return;
    each_busy(core, hist, release_busy, &version);
    while ((obj = unhold(h, version))) {
        let_go(core, obj);
        obj->refs++;
        vvi_object_unref(core, obj);
    }
}

void vv_core_release(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t now_ns)
{
    vvi_core_enter(core, now_ns);
    vvi_release(core, hist, version);
    vvi_core_leave(core);
}

static void drop_busy(struct vv_core *core, struct vv_object *obj, const void *arg)
{
    (void)arg;
    obj->keep_file = true;
    /* Its file may be adopted before its last reader has gone. */
    vvi_object_file_gone(core, obj);
    let_go(core, obj);
}

void vvi_hold_drop(struct vv_core *core, uint32_t hist)
{
    struct hist *h = vvi_hist(core, hist);

    if (h->nsuperseded == 0)
        return;
    each_busy(core, hist, drop_busy, NULL);
    while (h->held) {
        struct vv_object *obj = unhold(h, h->held->version);
        obj->keep_file = true;
        let_go(core, obj);
        obj->refs++;
        vvi_object_unref(core, obj);
    }
    vv_assert(h->nsuperseded == 0);
}

/* Whoever waits for the version is told why it never came. */
static void fail_waits_of(struct vv_core *core, const struct vv_object *obj, int status)
{
    struct vv_req *list[] = {core->waits, core->ordered};

    for (unsigned i = 0; i < VV_ARRAY_SIZE(list); i++)
        for (struct vv_req *req = list[i]; req; req = req->next)
            if (req->kind == VV_REQ_WAIT && req->obj == obj)
                req->error = status;
}

/* A put has come to nothing. What it was to replace stays: whoever asked for it may want that back, and
 * so may the next life. */
void vvi_put_failed(struct vv_core *core, struct vv_object *obj, int status)
{
    fail_waits_of(core, obj, status);
    obj->anew = true;
    vvi_object_gone(core, obj);
}

int vv_core_revive(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t now_ns)
{
    struct vv_object *old = unhold(vvi_hist(core, hist), version);
    uint64_t file_generation;
    int rc;

    if (!old)
        return -ENOENT;
    vvi_core_enter(core, now_ns);
    file_generation = old->file_generation;
    /* The new object counts the file and has the reference on `user`. */
    rc = vv_core_adopt(core, hist, version, old->generation, old->size, old->user);
    vv_assert(rc != 0 || core->tier[core->disk].used_bytes >= old->file_bytes);
    if (rc) {
        vvi_hold(core, old);
    } else {
        vvi_object_find(core, hist, version)->file_generation = file_generation;
        old->user = 0;
        old->keep_file = true;
        let_go(core, old);
        old->refs++;
        vvi_object_unref(core, old);
    }
    vvi_core_leave(core);
    return rc;
}

int vv_core_superseding(const struct vv_core *core, uint32_t hist, uint64_t from,
                        uint64_t *ret_version, uint64_t *ret_file_generation)
{
    const struct vv_object *best = NULL, *now;

    for (const struct vv_object *obj = vvi_hist(core, hist)->held; obj; obj = obj->newer)
        if (obj->version >= from && (!best || obj->version < best->version))
            best = obj;
    if (!best)
        return -ENOENT;
    now = vvi_object_find(core, hist, best->version);
    *ret_version = best->version;
    *ret_file_generation = now && now->written && now->durable ? now->file_generation : 0;
    return 0;
}
