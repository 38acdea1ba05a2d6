/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of requests that wait: a wait for a level ends when the level has been reached or cannot be,
 * and any request when nothing is under way and nothing can be started, since it would wait for
 * ever.
 */
#include <errno.h>

#include "engine/core/core_private.h"

/* Another call may have returned the late error meanwhile. */
static int first_error(const struct hist *h)
{
    struct vv_object *obj = h->nfailed ? h->oldest : NULL;

    while (obj && !obj->flush_err)
        obj = obj->newer;
    if (obj)
        obj->reported = true;
    return obj ? obj->flush_err : h->late_err;
}

/* True if a stream of the application has still to write versions of the history. */
static bool writes_to_come(const struct vv_core *core, uint32_t hist)
{
    for (const struct vv_req *req = core->ordered; req; req = req->next)
        if (req->kind == VV_REQ_PUT && req->hist == hist)
            return true;
    return false;
}

void vvi_end_waits(struct vv_core *core)
{
    struct vv_req *next;

    for (struct vv_req *req = core->stream_waits; req; req = next) {
        next = req->next;
        if (req->error)
            vvi_req_end(core, req, req->error);
        else if (req->obj->written || req->obj->dead)
            vvi_req_end(core, req, req->obj->dead ? -ENOENT : 0);
    }
    for (struct vv_req *req = core->waits; req; req = next) {
        struct hist *h = vvi_hist(core, req->hist);
        struct vv_object *obj = req->obj;
        next = req->next;
        if (req->kind == VV_REQ_WAIT_ALL) {
            if (h->ndown == h->nwritten && !writes_to_come(core, req->hist))
                vvi_req_end(core, req, first_error(h));
        } else if (req->error) {
            vvi_req_end(core, req, req->error);
        } else if (obj->dead) {
            vvi_req_end(core, req, obj->flush_err ? obj->flush_err : -ENOENT);
        } else if (obj->durable) {
            vvi_req_end(core, req, 0);
        } else if (obj->flush_err) {
            obj->reported = true;
            vvi_req_end(core, req, obj->flush_err);
        }
    }
}

/* For a put that memory should have held until its file is committed, but cannot: some chunks
 * passed a full host tier, so they are in the file and on the device, where the put needs their
 * pages. From now on the file keeps these chunks. */
static bool stream_stuck(struct vv_core *core, struct vv_object *obj)
{
    const struct vv_copy *file = obj->copy[core->disk];

    if (obj->streams || !file || file->nvalid == 0 || obj->spoiled || obj->file_bytes == 0)
        return false;
    obj->streams = true;
    vvi_core_reclass(core, obj, 0, obj->nchunks);
    return true;
}

/* Lent pages may leave no room for a put, or under the contiguous policies no window large enough.
 * Then the put goes around that tier: to the host, or through it. */
static bool go_around_lent(struct vv_core *core, struct vv_req *put)
{
    struct vv_object *obj = put->obj;
    bool large = put->obj->nchunks > core->tier[core->host].arena.npromised;

    if (!core->lends || put->kind != VV_REQ_PUT || put->lent || (put->scan > 0 && !core->paged))
        return false;
    if (obj->home == core->device && !core->paged && (core->disk >= 0 || !large)) {
        obj->home = (uint8_t)core->host;
        obj->pass_through = large;
    } else if (obj->home == core->host && core->disk >= 0 && !obj->pass_through) {
        obj->pass_through = true;
    } else {
        return false;
    }
    obj->streams |= obj->pass_through && core->tier[core->disk].kind == VV_TIER_FILES;
    vvi_core_reclass(core, obj, 0, obj->nchunks);
    return true;
}

bool vvi_fail_stuck(struct vv_core *core)
{
    struct vv_req *put = core->puts;

    /* One that has failed already waits for its own copies to end. */
    if (put && put->inflight == 0 && !put->error && !vvi_room_may_come(core)) {
        uint64_t all = 0;
        bool files = core->disk >= 0 && core->tier[core->disk].kind == VV_TIER_FILES;
        if (files && put->kind == VV_REQ_PUT && stream_stuck(core, put->obj))
            return true;
        if (go_around_lent(core, put))
            return true;
        for (unsigned t = 0; t < core->ntiers; t++)
            all += core->tier[t].is_arena ? core->tier[t].arena.npromised : 0;
        files |= put->kind == VV_REQ_LEASE; /* only a part of a tier may be lent */
        vvi_req_end(core, put, !files && put->obj->nchunks > all ? -EFBIG : -ENOSPC);
        return true;
    }
    if (core->inflight > 0 || vvi_growing(core))
        return false;
    if (core->gets) {
        vvi_req_end(core, core->gets, -EIO);
        return true;
    }
    if (core->waits) {
        vvi_req_end(core, core->waits, -ENOSPC);
        return true;
    }
    return false;
}
