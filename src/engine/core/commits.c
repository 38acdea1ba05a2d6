/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a version: committed when all of it is written, taken back when a write to it or its
 * commit has failed, removed.
 */
#include <errno.h>

#include "engine/core/core_private.h"

void vvi_file_clean(struct vv_core *core, struct vv_object *obj)
{
    struct vv_copy *copy = obj->copy[core->disk];

    if (!obj->spoiled || obj->dead || obj->writing)
        return;
    if (copy && (copy->nfilling > 0 || copy->commit_issued))
        return;
    if (core->filing == obj)
        core->filing = NULL;
    vvi_sched_remove_file(core, obj);
    if (copy) {
        for (uint32_t c = 0; c < obj->nchunks; c++)
            if (copy->page[c] != VV_PAGE_NONE)
                vvi_chunk_drop(core, copy, c);
        vvi_copy_free(core, copy);
    }
    if (++obj->file_generation % GENERATION_STEP == obj->generation % GENERATION_STEP) {
        obj->file_generation = vvi_hist(core, obj->hist)->next_generation;
        vvi_hist(core, obj->hist)->next_generation += GENERATION_STEP;
    }
    obj->spoiled = false;
    vvi_core_reclass(core, obj, 0, obj->nchunks);
}

/* No flush creates the file of an object without chunks. */
static bool begins_with_commit(const struct vv_core *core, const struct vv_object *obj)
{
    return core->disk >= 0 && obj->nchunks == 0 && obj->written && !obj->dead && !obj->durable &&
           !obj->flush_err && core->tier[core->disk].kind == VV_TIER_FILES;
}

/* There is no memory for it, and no other order will end with a commit: waiting for the version tries
 * again. */
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
        !(obj->written || obj->filled) || obj->flush_err || copy->nvalid < obj->nchunks)
        return;
    o = vvi_order_for(core, VV_ORDER_COMMIT, obj);
    if (!o) {
        no_commit(core, obj);
        return;
    }
    o->hop = VV_HOP_H2F;
    o->dst_tier = core->disk;
    copy->commit_issued = true;
    vvi_order_issue(core, o);
}

void vvi_sched_remove_file(struct vv_core *core, struct vv_object *obj)
{
    struct vv_order *o = vvi_order_for(core, VV_ORDER_REMOVE, obj);

    if (!o) {
        vvi_removal_failed(core, obj, obj->file_generation, -ENOMEM);
        return;
    }
    o->hop = VV_HOP_H2F;
    o->dst_tier = core->disk;
    vvi_order_issue(core, o);
}
