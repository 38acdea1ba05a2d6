/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of generations that have ended, from then on until they are gone.
 *
 * Those of a version go one after the other, the oldest first. Wherever that stops, by an error or by a
 * kill, the next opening finds what it would have found before, or nothing, but never older bytes. One
 * that was dropped does not wait: it is itself what no opening should find.
 *
 * Each history has a table of such objects by version (hist->ending). An object in it has left the table of
 * live ones, and may be without a reference. Its removal begins when no order uses its file any more; one that fails is tried
 * again by the next wait for everything, and meanwhile keeps those behind it.
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

/* A write that failed may have left something, however little of it is known here. */
static bool on_disk(const struct vv_core *core, const struct vv_object *obj)
{
    return obj->durable || obj->spoiled || obj->copy[core->disk];
}

static bool has_older(const struct vv_core *core, const struct vv_object *obj)
{
    const struct vv_object *each = vv_table_find(&vvi_hist(core, obj->hist)->ending, obj->version);

    while (each && (each->file_generation >= obj->file_generation || !on_disk(core, each)))
        each = vv_table_same(each);
    return each != NULL;
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

/* Frees it, if only its file has kept it. */
static void let_go(struct vv_core *core, struct vv_object *obj)
{
    obj->refs++;
    vvi_object_unref(core, obj);
}

/* One of a version in the table; NULL: none. `first`: the oldest that has a file. */
static struct vv_object *one_of(struct vv_core *core, uint32_t hist, uint64_t version, bool first)
{
    struct vv_object *obj = vv_table_find(&vvi_hist(core, hist)->ending, version);

    while (obj && first && (!on_disk(core, obj) || has_older(core, obj)))
        obj = vv_table_same(obj);
    return obj;
}

/* Its file stays, and with it those of newer generations. */
static void give_up(struct vv_core *core, struct vv_object *obj)
{
    uint64_t version = obj->version;
    uint32_t hist = obj->hist;

    leave(core, obj);
    while ((obj = one_of(core, hist, version, false))) {
        leave(core, obj);
        let_go(core, obj);
    }
}

bool vvi_removal_begin(struct vv_core *core, struct vv_object *obj)
{
    if (obj->removal == REMOVAL_NONE)
        return false;
    if (!on_disk(core, obj)) {
        leave(core, obj);
        return false;
    }
    if (obj->removal == REMOVAL_DUE && (obj->dropped || !has_older(core, obj))) {
        obj->removal = REMOVAL_ASKED;
        vvi_sched_remove_file(core, obj); /* takes a reference */
    }
    return true;
}

void vvi_removal_done(struct vv_core *core, struct vv_object *obj)
{
    struct vv_object *next;

    leave(core, obj);
    next = one_of(core, obj->hist, obj->version, true);
    if (next && next->refs == next->lent)
        let_go(core, next); /* which begins its removal */
}

void vvi_removal_failed(struct vv_core *core, struct vv_object *obj, uint64_t file_generation,
                        int status)
{
    struct hist *h = vvi_hist(core, obj->hist);
    const struct vv_object *there = vvi_object_find(core, obj->hist, obj->version);

    /* A version that should be gone counts more than an old generation of one that is there, or a flush,
     * whose error the version itself has. */
    if (!h->late_err || !there || !there->written) {
        h->late_err = status;
        h->late_tier = core->disk;
        h->late_version = obj->version;
    }
    vv_trace5(VV_TRACE_ERROR, vvi_trace_history(core, obj->hist), obj->version,
              (uint64_t)core->disk, 0, (uint64_t)(int64_t)status);
    if (obj->removal == REMOVAL_NONE || file_generation != obj->file_generation)
        return;
    if (!h->used) {
        give_up(core, obj); /* the next opening finds it */
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
