/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of generations that have ended, until they are removed.
 *
 * Those of a version are removed one after the other, the oldest first. Wherever that stops, by an
 * error or by a kill, the next opening finds what it would have found before, or nothing, but never
 * older bytes. No opening may find a dropped generation, so its file does not wait for others.
 *
 * Each history has a table of such objects by version (hist->ending). An object in it has left the
 * table of live ones, and may have no reference. Its removal begins when no order uses its file any
 * more. A removal that fails holds up those behind it; it is tried again when another one joins
 * them, and by the next wait for all versions.
 */
#include "engine/core/core_private.h"

void vvi_removal_due(struct vv_core *core, struct vv_object *obj, bool dropped)
{
    struct hist *h = vvi_hist(core, obj->hist);

    if (core->disk < 0 || core->tier[core->disk].kind != VV_TIER_FILES ||
        (obj->keep_file && obj->durable))
        return;
    vv_table_add(&h->ending, obj);
    obj->removal = REMOVAL_DUE;
    obj->dropped = dropped;
}

/* True if the object may have a file. (A failed write may have left one that is not recorded here.)
 * This stays true while the object is in the table: the removals behind it wait for its own. */
static bool on_disk(const struct vv_core *core, const struct vv_object *obj)
{
    return obj->durable || obj->spoiled || obj->left || obj->copy[core->disk];
}

/* The oldest generation of a version that has a file, among those in the table. */
static struct vv_object *oldest(const struct vv_core *core, uint32_t hist, uint64_t version)
{
    struct vv_object *obj = vv_table_find(&vvi_hist(core, hist)->ending, version), *first = NULL;

    for (; obj; obj = vv_table_same(obj))
        if (on_disk(core, obj) && (!first || obj->file_generation < first->file_generation))
            first = obj;
    return first;
}

static void leave(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);
    bool there = vv_table_remove(&h->ending, obj);

    vv_assert(there);
    h->nunremoved -= obj->removal == REMOVAL_FAILED;
    obj->removal = REMOVAL_NONE;
    vvi_object_file_gone(core, obj);
}

/* Frees the object if nothing but its file has kept it. */
static void let_go(struct vv_core *core, struct vv_object *obj)
{
    obj->refs++;
    vvi_object_unref(core, obj);
}

/* The file stays, and so do those of newer generations, except dropped ones, which no opening may
 * find. */
static void give_up(struct vv_core *core, struct vv_object *obj)
{
    const struct hist *h = vvi_hist(core, obj->hist);
    uint64_t version = obj->version;
    struct vv_object *next;

    leave(core, obj);
    for (obj = vv_table_find(&h->ending, version); obj; obj = next) {
        next = vv_table_same(obj);
        if (obj->dropped && obj->removal != REMOVAL_FAILED)
            continue;
        leave(core, obj);
        let_go(core, obj);
    }
}

static void ask(struct vv_core *core, struct vv_object *obj)
{
    struct vv_copy *file = obj->copy[core->disk];

    vvi_hist(core, obj->hist)->nunremoved -= obj->removal == REMOVAL_FAILED;
    obj->removal = REMOVAL_ASKED;
    /* Each of the two orders holds a reference. */
    if (file && file->old_generation)
        vvi_sched_remove_file(core, obj, file->old_generation);
    vvi_sched_remove_file(core, obj, obj->file_generation);
}

bool vvi_removal_begin(struct vv_core *core, struct vv_object *obj)
{
    struct vv_object *first;

    if (obj->removal == REMOVAL_NONE)
        return false;
    if (!on_disk(core, obj)) {
        leave(core, obj);
        return false;
    }
    if (obj->removal == REMOVAL_DUE) {
        first = obj->dropped ? obj : oldest(core, obj->hist, obj->version);
        /* A failed removal is tried again whenever another one joins the queue behind it: a single
         * error must not keep the files of all later generations. */
        if (first == obj || first->removal == REMOVAL_FAILED)
            ask(core, first);
    }
    return obj->removal != REMOVAL_NONE; /* given up if there was no memory for the order */
}

void vvi_removal_done(struct vv_core *core, struct vv_object *obj)
{
    struct vv_object *next;

    leave(core, obj);
    next = oldest(core, obj->hist, obj->version);
    if (next && next->refs == next->lent)
        let_go(core, next); /* begins its removal */
}

void vvi_removal_failed(struct vv_core *core, struct vv_object *obj, uint64_t file_generation,
                        int status)
{
    struct hist *h = vvi_hist(core, obj->hist);
    const struct vv_object *there = vvi_object_find(core, obj->hist, obj->version);

    /* Overwrites an earlier error if a version that should be gone is still on disk. That matters
     * more than an old generation of an existing version, and more than a failed flush, whose error
     * the version itself has. */
    if (!h->late_err || !there || !there->written) {
        h->late_err = status;
        h->late_tier = core->disk;
        h->late_version = obj->version;
    }
    vv_trace5(VV_TRACE_ERROR, vvi_trace_history(core, obj->hist), obj->version,
              (uint64_t)core->disk, 0, (uint64_t)(int64_t)status);
    /* The store removes it with the next file of the object. */
    obj->left |= file_generation != obj->file_generation;
    if (obj->removal == REMOVAL_NONE || file_generation != obj->file_generation)
        return;
    if (!h->used) {
        give_up(core, obj); /* the next opening finds the file */
        return;
    }
    obj->removal = REMOVAL_FAILED;
    h->nunremoved++;
}

static struct vv_object *next_unremoved(const struct hist *h, struct vv_object *obj)
{
    while (obj && obj->removal != REMOVAL_FAILED)
        obj = vv_table_next(&h->ending, obj);
    return obj;
}

void vvi_removals_retry(struct vv_core *core, struct hist *h)
{
    struct vv_object *obj = h->nunremoved ? vv_table_first(&h->ending) : NULL, *next;

    for (; (obj = next_unremoved(h, obj)); obj = next) {
        next = vv_table_next(&h->ending, obj);
        h->nunremoved--;
        obj->removal = REMOVAL_DUE;
        (void)vvi_removal_begin(core, obj);
    }
}

void vvi_removals_forget(struct vv_core *core, struct hist *h)
{
    struct vv_object *obj = h->nunremoved ? vv_table_first(&h->ending) : NULL, *next;

    for (; (obj = next_unremoved(h, obj)); obj = next) {
        /* Giving one up takes the others of its version out of the table as well. */
        next = vv_table_next(&h->ending, obj);
        while (next && next->version == obj->version)
            next = vv_table_next(&h->ending, next);
        give_up(core, obj);
        let_go(core, obj);
    }
}
