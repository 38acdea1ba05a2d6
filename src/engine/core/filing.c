/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of versions that are being written: commits, and recovery from a write or commit that
 * failed.
 *
 * A file that failed cannot be committed. Chunks in memory are written to another file; chunks that
 * only the failed file has are copied from it, read back and verified (SALVAGE). Until another file
 * is committed the old one stays, and memory keeps what it has: so there is never more than one old
 * file.
 */
#include <errno.h>

#include "engine/core/core_private.h"

/* ---- a file that failed ---- */

/* True if the chunk is in a page of a memory tier, transit pages excluded, or an order on a lane
 * brings it there: in that case its page on the device may have been given away. */
static bool in_memory(const struct vv_core *core, const struct vv_object *obj, uint32_t c)
{
    for (unsigned t = 0; t < core->ntiers && core->tier[t].memory; t++) {
        enum vv_page_state state = vvi_chunk_state(core, obj, t, c);
        const struct stamp *st =
            state == VV_PAGE_FILLING ? vvi_stamp(core, t, obj->copy[t]->page[c]) : NULL;
        if ((state == VV_PAGE_VALID || (st && st->planned)) &&
            !vvi_chunk_in_transit(core, obj, t, c))
            return true;
    }
    return false;
}

/* Chunks in memory are written again; the others are read from the file that has them. That is
 * always the first file that failed: for later ones memory keeps what it had (vvi_file_keeps), and
 * the other chunks were copied from the first. True if the file has chunks that memory does not
 * have. */
static bool take_back(struct vv_core *core, struct vv_object *obj, struct vv_copy *copy)
{
    copy->nold = 0;
    for (uint32_t c = 0; c < obj->nchunks; c++) {
        if (copy->page[c] == VV_PAGE_NONE)
            continue;
        if (in_memory(core, obj, c)) {
            vvi_chunk_drop(core, copy, c);
        } else {
            copy->page[c] = FILE_CHUNK_OLD;
            copy->nold++;
        }
    }
    return copy->nold > 0;
}

void vvi_file_clean(struct vv_core *core, struct vv_object *obj)
{
    struct vv_copy *copy = obj->copy[core->disk];
    bool needed;

    if (!obj->spoiled || obj->dead || obj->writing)
        return;
    if (copy &&
        (copy->nfilling > 0 || copy->commit_issued || copy->salvaging || copy->nreading > 0))
        return;
    if (core->filing == obj)
        core->filing = NULL;
    needed = copy && take_back(core, obj, copy);
    if (!needed || copy->old_generation)
        vvi_sched_remove_file(core, obj, obj->file_generation);
    else
        copy->old_generation = obj->file_generation;
    if (copy && !needed) {
        if (copy->old_generation)
            vvi_sched_remove_file(core, obj, copy->old_generation);
        vvi_copy_free(core, copy);
    }
    if (++obj->file_generation % GENERATION_STEP == obj->generation % GENERATION_STEP) {
        obj->file_generation = vvi_hist(core, obj->hist)->next_generation;
        vvi_hist(core, obj->hist)->next_generation += GENERATION_STEP;
    }
    obj->spoiled = false;
    vvi_core_reclass(core, obj, 0, obj->nchunks);
    vvi_sched_salvage(core, obj); /* a wait may have requested it before it could begin */
}

/* No flush creates the file of an object without chunks. */
static bool begins_with_commit(const struct vv_core *core, const struct vv_object *obj)
{
    return core->disk >= 0 && obj->nchunks == 0 && obj->written && !obj->dead && !obj->durable &&
           !obj->flush_err && core->tier[core->disk].kind == VV_TIER_FILES;
}

/* There is no memory for the order, and no other order will end with a commit: a wait for the
 * version tries again. */
static void no_commit(struct vv_core *core, struct vv_object *obj)
{
    vvi_flush_failed(core, obj, core->disk, -ENOMEM);
    vvi_core_reclass(core, obj, 0, obj->nchunks);
    vvi_object_settle(core, obj);
}

void vvi_sched_commit(struct vv_core *core, struct vv_object *obj)
{
    struct vv_copy *copy = core->disk >= 0 ? obj->copy[core->disk] : NULL;
    struct vv_order *o;

    if (!copy && begins_with_commit(core, obj)) {
        copy = vvi_copy_get(core, obj, (unsigned)core->disk, VV_COPY_WRITE_IN_PROGRESS);
        if (!copy)
            no_commit(core, obj);
    }
    if (!copy || core->tier[core->disk].kind != VV_TIER_FILES || copy->commit_issued || obj->dead ||
        !(obj->written || obj->filled) || vvi_flush_stopped(obj) || copy->nvalid < obj->nchunks ||
        copy->nold > 0 || (copy->old_generation && copy->nreading > 0))
        return;
    o = vvi_order_for(core, VV_ORDER_COMMIT, obj);
    if (!o) {
        no_commit(core, obj);
        return;
    }
    o->hop = VV_HOP_H2F;
    o->dst_tier = core->disk;
    copy->commit_issued = true;
    vvi_core_push(core, o);
}

void vvi_sched_salvage(struct vv_core *core, struct vv_object *obj)
{
    struct vv_copy *copy = core->disk >= 0 ? obj->copy[core->disk] : NULL;
    uint32_t c = 0, n = 1, most = core->hop[VV_HOP_H2F].batch;
    struct vv_order *o;

    if (!copy || copy->nold == 0 || copy->salvaging || obj->dead || vvi_flush_stopped(obj))
        return;
    while (copy->page[c] != FILE_CHUNK_OLD)
        c++;
    while (n < most && c + n < obj->nchunks && copy->page[c + n] == FILE_CHUNK_OLD)
        n++;
    o = vvi_order_for(core, VV_ORDER_SALVAGE, obj);
    if (!o) {
        no_commit(core, obj);
        return;
    }
    o->hop = VV_HOP_H2F;
    o->from_generation = copy->old_generation;
    o->chunk0 = c;
    o->nchunks = n;
    copy->salvaging = true;
    vvi_core_push(core, o);
}

void vvi_sched_remove_file(struct vv_core *core, struct vv_object *obj, uint64_t file_generation)
{
    struct vv_order *o = vvi_order_for(core, VV_ORDER_REMOVE, obj);

    if (!o) {
        vvi_removal_failed(core, obj, file_generation, -ENOMEM);
        return;
    }
    o->file_generation = file_generation;
    o->hop = VV_HOP_H2F;
    o->dst_tier = core->disk;
    vvi_core_push(core, o);
}

/* ---- ends of orders ---- */

static void commit_failed(struct vv_core *core, struct vv_object *obj, int status)
{
    /* The kernel may have dropped pages that it could not write: another sync would report
     * success. */
    obj->spoiled = true;
    vvi_flush_failed(core, obj, core->disk, status);
    vvi_core_reclass(core, obj, 0, obj->nchunks);
    vvi_file_clean(core, obj);
    vvi_object_settle(core, obj);
}

void vvi_commit_done(struct vv_core *core, struct vv_object *obj, int status)
{
    struct vv_copy *copy = obj->copy[core->disk];
    struct vv_req *put = obj->filled ? vvi_put_of(core, obj) : NULL;

    copy->commit_issued = false;
    if (obj->dead)
        return;
    if (status < 0) {
        commit_failed(core, obj, status);
        return;
    }
    obj->durable = true;
    vvi_hist(core, obj->hist)->ndurable += obj->written;
    if (copy->old_generation)
        vvi_sched_remove_file(core, obj, copy->old_generation);
    vvi_copy_free(core, copy);
    vvi_core_reclass(core, obj, 0, obj->nchunks);
    if (put)
        vvi_req_end(core, put, 0);
    vvi_object_settle(core, obj);
    vvi_gen_durable(core, obj);
}

void vvi_salvage_done(struct vv_core *core, const struct vv_order *o, int status)
{
    struct vv_object *obj = o->obj;
    struct vv_copy *copy = obj->copy[core->disk];

    copy->salvaging = false;
    if (obj->dead)
        return;
    for (uint32_t c = o->chunk0; status == 0 && c < o->chunk0 + o->nchunks; c++) {
        copy->page[c] = FILE_CHUNK_VALID;
        copy->nold--;
    }
    if (status < 0) {
        obj->spoiled = true;
        vvi_flush_failed(core, obj, core->disk, status);
    }
    vvi_core_reclass(core, obj, 0, obj->nchunks);
    vvi_file_clean(core, obj);
    vvi_object_settle(core, obj);
    vvi_sched_salvage(core, obj);
    vvi_sched_commit(core, obj);
}
