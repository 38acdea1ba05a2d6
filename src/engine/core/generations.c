/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generations of each version, driven through the table of policy/generation.h. Each generation
 * is an object. One generation of a version is in the table of its history: restores get that one.
 * Beside it there may be:
 *
 *   vvi_gen_replacement()   a put under way that will replace it; not in the table until it is written
 *   obj->old                the generation that obj replaced, kept until obj is safe (HELD)
 *
 * Files have generations too, and the highest counts when a history is opened: after a kill at any
 * instant the next opening finds the old version whole or the new one whole.
 *
 * Invariants between two calls into the core:
 *  - written, writing and dead follow from the state: only vvi_gen_step() sets them;
 *  - an object beside the table is being written, and another one of its version is in the table;
 *  - a HELD object is committed. It is the `old` of the one in the table, or further back in that
 *    chain: there are several until the one in the table has a file, or is confirmed. It lives without
 *    a reference; all others end with their last one;
 *  - an object without a file does not outlive its replacement: only a committed one becomes SAFE.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/core/core_private.h"

void vvi_gen_step(struct vv_core *core, struct vv_object *obj, enum vv_gen_event event)
{
    struct hist *h = vvi_hist(core, obj->hist);
    enum vv_gen_state to = VV_GEN_NONE;
    bool can = vv_gen_next((enum vv_gen_state)obj->gen, event, &to);

    vv_assert(can);
    h->nsafe -= vvi_gen_counts(obj);
    obj->gen = (uint8_t)to;
    obj->writing = to == VV_GEN_WRITING;
    obj->written = to == VV_GEN_CURRENT || to == VV_GEN_SAFE;
    obj->dead = to == VV_GEN_HELD || to == VV_GEN_ENDED;
    h->nsafe += vvi_gen_counts(obj);
    if (to == VV_GEN_ENDED)
        vvi_removal_due(core, obj, event == VV_GEN_DROPPED);
}

/* ---- an old generation ends or returns ---- */

static void end_old(struct vv_core *core, struct vv_object *obj, enum vv_gen_event event)
{
    struct vv_object *old, *next = obj->old;

    obj->old = NULL;
    while ((old = next)) {
        next = old->old;
        old->old = NULL;
        vvi_gen_step(core, old, event);
        old->refs++;
        vvi_object_unref(core, old); /* the last reader removes the file */
    }
}

/* The old generation replaces `obj`, which is about to leave, in the table and among the hints. */
static void return_old(struct vv_core *core, struct vv_object *obj)
{
    struct vv_object *old = obj->old;

    obj->old = NULL;
    vvi_object_leave(core, obj, old);
    vvi_gen_step(core, old, VV_GEN_RETURNED);
    vvi_core_reclass(core, old, 0, old->nchunks);
    vvi_object_enter(core, old);
    vvi_gen_durable(core, old);
}

/* ---- a generation ends ---- */

static void move_waits(struct vv_core *core, struct vv_object *from, struct vv_object *to)
{
    struct vv_req *list[] = {core->waits, core->stream_waits};

    for (unsigned i = 0; i < VV_ARRAY_SIZE(list); i++)
        for (struct vv_req *req = list[i]; req; req = req->next)
            if (req->kind == VV_REQ_WAIT && req->obj == from) {
                req->obj = to;
                to->refs++;
                from->refs--;
            }
}

/* True if the generation is kept when it is replaced: it must be committed, and not provisional. */
static bool stays(const struct vv_object *obj)
{
    return obj->durable && !obj->provisional;
}

static void hand_over(struct vv_core *core, struct vv_object *obj, struct vv_object *successor)
{
    bool held = stays(obj);

    vvi_fail_gets_of(core, obj, -ESTALE); /* restores under way start again and get the new one */
    move_waits(core, obj, successor);
    successor->old = held ? obj : obj->old;
    if (!held)
        obj->old = NULL;
    vvi_object_leave(core, obj, successor);
    vvi_gen_step(core, obj, held ? VV_GEN_REPLACED : VV_GEN_DROPPED);
}

void vvi_gen_end(struct vv_core *core, struct vv_object *obj, enum vv_gen_event event)
{
    vv_assert(!obj->dead);
    obj->refs++;
    if (event == VV_GEN_REPLACED) {
        hand_over(core, obj, vvi_gen_replacement(core, obj));
    } else if (event == VV_GEN_DROPPED && obj->old) {
        return_old(core, obj);
        vvi_gen_step(core, obj, event);
    } else {
        end_old(core, obj, VV_GEN_DISCARDED);
        vvi_object_leave(core, obj, vvi_gen_replacement(core, obj));
        vvi_gen_step(core, obj, event);
    }
    vvi_object_drop_pages(core, obj);
    core->stats.discarded++;
    vvi_object_unref(core, obj);
}

/* Ends its waits with the error that ended it. False: there are none. */
static bool fail_waits_of(struct vv_core *core, const struct vv_object *obj, int status)
{
    struct vv_req *list[] = {core->waits, core->stream_waits};
    bool any = false;

    for (unsigned i = 0; i < VV_ARRAY_SIZE(list); i++)
        for (struct vv_req *req = list[i]; req; req = req->next)
            if (req->kind == VV_REQ_WAIT && req->obj == obj) {
                req->error = status;
                any = true;
            }
    return any;
}

/* True if its file may be committed, now or by an order under way. */
static bool may_be_committed(const struct vv_core *core, const struct vv_object *obj)
{
    const struct vv_copy *file = core->disk >= 0 ? obj->copy[core->disk] : NULL;

    return obj->durable || (file && file->commit_issued);
}

bool vvi_put_failed(struct vv_core *core, struct vv_object *obj, int status)
{
    bool notified = fail_waits_of(core, obj, status);

    /* While its file exists, the next write of the version must get another edition. If there is no
     * memory to record that, it may get the same one. */
    if (may_be_committed(core, obj))
        (void)!vvi_edition_ends(core, obj);
    vvi_gen_end(core, obj, VV_GEN_DROPPED);
    return notified;
}

void vvi_gen_close(struct vv_core *core, struct vv_object *obj)
{
    for (struct vv_object *each = obj; each; each = each->old) {
        each->keep_file = true;
        /* Its file stays, and may be adopted before the last reader of its pages has gone. */
        if (each->durable)
            vvi_object_file_gone(core, each);
    }
    vvi_gen_end(core, obj, VV_GEN_DISCARDED);
}

/* ---- a generation begins ---- */

bool vvi_gen_refuses(const struct vv_core *core, uint32_t hist, uint64_t version, bool replace)
{
    const struct vv_object *obj = vvi_object_find(core, hist, version);
    const struct vv_object *writing = obj && !obj->writing ? vvi_gen_replacement(core, obj) : obj;

    if (writing && !(writing->ordered && replace))
        return true;
    return obj && obj->written && !replace && !obj->unfinished;
}

struct vv_object *vvi_gen_begin(struct vv_core *core, uint32_t hist, uint64_t version)
{
    bool files = core->disk >= 0 && core->tier[core->disk].kind == VV_TIER_FILES;
    struct vv_object *obj = vvi_gen_last(core, hist, version);

    if (obj && obj->writing) {
        vvi_put_failed(core, obj, -ECANCELED);
        obj = vvi_object_find(core, hist, version);
    }
    if (obj && obj->written && files)
        return vvi_object_beside(core, hist, version);
    if (obj && obj->written) {
        vvi_gen_end(core, obj, VV_GEN_DISCARDED);
        obj = vvi_object_find(core, hist, version);
    }
    return obj ? obj : vvi_object_new(core, hist, version);
}

/* ---- editions ---- */

/* The highest edition that has ended is kept as long as the history is open, even when the files
 * are gone: each process removes its own at its own time, and all must find the same number for the
 * next put. */
uint32_t vvi_edition_next(const struct vv_core *core, const struct vv_object *obj)
{
    const struct hist *h = vvi_hist(core, obj->hist);
    const struct vv_object *there = vvi_object_find(core, obj->hist, obj->version);
    const struct edition *ended = vv_table_find(&h->editions, obj->version);

    if (!h->cfg.editions)
        return 1;
    return VV_MAX(ended ? ended->edition : 0, there ? there->edition : 0) + 1;
}

int vvi_edition_ends(struct vv_core *core, const struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);
    struct edition *e;

    if (!h->cfg.editions || !obj->edition)
        return 0;
    e = vv_table_find(&h->editions, obj->version);
    if (!e) {
        e = calloc(1, sizeof(*e));
        if (!e)
            return -ENOMEM;
        e->version = obj->version;
        vv_table_add(&h->editions, e);
    }
    e->edition = VV_MAX(e->edition, obj->edition);
    return 0;
}

/* ---- the level ---- */

/* Releases generations that `obj` has replaced. Once obj is safe, all of them. When it is only
 * committed, all but two: the one that it replaced itself, which returns if obj is dropped, and the
 * oldest, which may be the only safe one. */
static void release_old(struct vv_core *core, struct vv_object *obj)
{
    struct vv_object *last = obj->old;

    if (obj->provisional)
        return;
    if (obj->gen == VV_GEN_SAFE)
        end_old(core, obj, VV_GEN_RELEASED);
    while (obj->durable && obj->old && last->old && last->old->old) {
        struct vv_object *between = last->old;
        last->old = between->old;
        between->old = NULL;
        vvi_gen_step(core, between, VV_GEN_RELEASED);
        between->refs++;
        vvi_object_unref(core, between);
    }
}

void vvi_gen_durable(struct vv_core *core, struct vv_object *obj)
{
    const struct hist *h = vvi_hist(core, obj->hist);

    if (obj->gen != VV_GEN_CURRENT || !obj->durable)
        return;
    if (h->cfg.level == VV_CORE_DURABLE && (!h->cfg.hold || obj->reached))
        vvi_gen_step(core, obj, VV_GEN_REACHED);
    release_old(core, obj);
}

/* True if its copy has failed and retention may end it. */
static bool missed(const struct vv_object *obj)
{
    return obj->missed && obj->gen == VV_GEN_CURRENT && !obj->provisional;
}

void vvi_gen_expire(struct vv_core *core, struct vv_object *obj)
{
    if (vvi_edition_ends(core, obj) == 0)
        vvi_gen_end(core, obj, VV_GEN_DISCARDED);
}

/* A safe version ends when enough newer ones are safe. So does a version that will never be safe,
 * because its copy has failed. Multiples of keep_every that are no longer among the newest leave the
 * list `expires_first`, because every completion looks at it. */
void vvi_gen_retain(struct vv_core *core, struct hist *h)
{
    struct vv_object *next;
    bool durable = h->cfg.level == VV_CORE_DURABLE;

    if (!h->cfg.keep || (durable ? h->nsafe : h->nwritten) - h->nexempt < h->cfg.keep)
        return;
    for (struct vv_object *obj = h->expires_first; obj; obj = next) {
        bool counts = durable ? vvi_gen_counts(obj) : obj->written;
        uint64_t newer = (durable ? h->nsafe : h->nwritten) - h->nexempt - counts;
        next = obj->expires_after;
        if (durable && obj->gen != VV_GEN_SAFE && !missed(obj))
            continue;
        if (newer < h->cfg.keep)
            return;
        if (vv_gen_expires(obj->version, newer, h->cfg.keep, h->cfg.keep_every)) {
            vvi_gen_expire(core, obj);
        } else if (counts) {
            vvi_object_exempt(core, obj);
        }
    }
}

/* True if a generation that `obj` has replaced has reached the level: then the version has. */
static bool safe_behind(const struct hist *h, const struct vv_object *obj)
{
    const struct vv_object *old = obj->old;

    while (old && h->cfg.hold && !old->reached)
        old = old->old;
    return old != NULL;
}

/* When copies fail, no version becomes safe, and versions without a copy would stay for ever. Such
 * a version ends when enough newer ones are committed. The newest that are safe stay, as above. */
static void retain_missed(struct vv_core *core, struct hist *h)
{
    struct vv_object *obj = h->cfg.keep ? h->newest : NULL, *older;
    uint64_t newer = 0;

    for (; obj; obj = older) {
        older = obj->older;
        if (missed(obj) && !safe_behind(h, obj) &&
            vv_gen_expires(obj->version, newer, h->cfg.keep, h->cfg.keep_every))
            vvi_gen_expire(core, obj);
        else
            newer += obj->written && obj->durable && !obj->provisional;
    }
}

/* The generation of a version that has this file, or NULL. */
static struct vv_object *with_file(const struct vv_core *core, uint32_t hist, uint64_t version,
                                   uint64_t file_generation)
{
    struct vv_object *obj = vvi_object_find(core, hist, version);
    struct vv_object *next = obj ? vvi_gen_replacement(core, obj) : NULL;

    if (next && next->file_generation == file_generation)
        return next;
    while (obj && obj->file_generation != file_generation)
        obj = obj->old;
    return obj;
}

void vv_core_reached(struct vv_core *core, uint32_t hist, uint64_t version,
                     uint64_t file_generation, uint64_t now_ns)
{
    struct vv_object *obj = with_file(core, hist, version, file_generation);

    if (!obj)
        return; /* it has ended meanwhile */
    vvi_core_enter(core, now_ns);
    obj->reached = true;
    obj->missed = false;
    vvi_gen_durable(core, obj);
    vvi_gen_retain(core, vvi_hist(core, hist));
    vvi_core_leave(core);
}

void vv_core_missed(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t file_generation,
                    uint64_t now_ns)
{
    struct vv_object *obj = with_file(core, hist, version, file_generation);

    if (!obj || obj->reached)
        return;
    vvi_core_enter(core, now_ns);
    obj->missed = true;
    retain_missed(core, vvi_hist(core, hist));
    vvi_gen_retain(core, vvi_hist(core, hist));
    vvi_core_leave(core);
}

int vv_core_confirm(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t now_ns)
{
    struct hist *h = vvi_hist(core, hist);
    struct vv_object *obj = vvi_gen_last(core, hist, version);

    if (!obj || !vvi_gen_known(obj))
        return -ENOENT;
    vvi_core_enter(core, now_ns);
    h->nsafe -= vvi_gen_counts(obj);
    obj->provisional = false;
    h->nsafe += vvi_gen_counts(obj);
    release_old(core, obj);
    vvi_gen_retain(core, h);
    vvi_core_leave(core);
    return 0;
}

int vv_core_take_back(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t now_ns)
{
    bool durable = vvi_hist(core, hist)->cfg.level == VV_CORE_DURABLE;
    struct vv_object *obj = vvi_gen_last(core, hist, version);

    if (!obj || !vvi_gen_known(obj))
        return -ENOENT;
    /* Level cached is reached with the put, and the replaced generation has ended. */
    if ((durable ? obj->gen == VV_GEN_SAFE : obj->written) && !obj->provisional)
        return -EALREADY;
    if (vvi_edition_ends(core, obj) < 0)
        return -ENOMEM;
    vvi_core_enter(core, now_ns);
    vvi_put_failed(core, obj, -ECANCELED);
    vvi_core_leave(core);
    return 0;
}

static void acknowledge(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);

    if (!obj->unfinished || obj->gen != VV_GEN_SAFE)
        return;
    obj->unfinished = false;
    h->nsafe += vvi_gen_counts(obj);
}

/* True if the version has a generation at the level. One without a copy yet counts. */
static bool at_level(const struct hist *h, const struct vv_object *obj)
{
    return h->cfg.level == VV_CORE_CACHED || obj->gen == VV_GEN_SAFE || safe_behind(h, obj) ||
           (h->cfg.copies && (obj->durable || obj->old));
}

int vv_core_latest(struct vv_core *core, uint32_t hist, uint64_t *ret_version)
{
    const struct hist *h = vvi_hist(core, hist);
    struct vv_object *obj = h->newest;

    while (obj && !at_level(h, obj))
        obj = obj->older;
    if (!obj)
        return -ENOENT;
    acknowledge(core, obj);
    *ret_version = obj->version;
    return 0;
}

void vv_core_acknowledge(struct vv_core *core, uint32_t hist, const uint64_t *version,
                         uint64_t now_ns)
{
    struct vv_object *obj = version ? vvi_object_find(core, hist, *version) : NULL;

    vvi_core_enter(core, now_ns);
    if (obj)
        acknowledge(core, obj);
    for (obj = version ? NULL : vvi_hist(core, hist)->oldest; obj; obj = obj->newer)
        acknowledge(core, obj);
    vvi_gen_retain(core, vvi_hist(core, hist));
    vvi_core_leave(core);
}
