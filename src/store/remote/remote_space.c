/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of local disk, if there is a shared folder behind it.
 *
 * A version that is in the shared folder needs no local copy: it can be read from there. So a limit on local disk
 * does not end a history; old copies are removed instead. The engine does not know the limit; a write that would
 * exceed it is held back here until there is room, as if the disk were slow:
 *
 *   - every local file counts from its first write until it is removed (`used`);
 *   - a write that begins a file is admitted if the file fits, and held otherwise;
 *   - while a write is held, the worker removes local files: leftovers of earlier lives first, then the oldest that
 *     the shared folder has intact, as far as known;
 *   - if no local file can be removed now or later, the write fails with -ENOSPC. A version on its way to the shared
 *     folder is a file that can be removed later. Files that the engine is about to commit or remove may be, too, but
 *     only the engine knows if it will do so: a failed file may wait for its caller, and one removal for another. So
 *     the engine calls `alone` when it has nothing in flight but held writes.
 *
 * Later reads go to the shared folder; reads that have begun keep the file they opened. */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "store/remote/remote_private.h"

/* Expected size of a file's tables, before its regions are known. */
enum { REGIONS_EXPECTED = 64 };

static struct vvi_radmitted **find_admitted(struct vv_remote *r, const struct vv_remote_hist *h,
                                            uint64_t version, uint64_t generation)
{
    struct vvi_radmitted **at = &r->admitted;
    while (*at &&
           ((*at)->hist != h || (*at)->version != version || (*at)->generation != generation))
        at = &(*at)->next;
    return at;
}

bool vvi_space_admit(struct vvi_rstore *s, struct vv_store_io *io, int *ret_error)
{
    struct vv_remote *r = s->remote;
    struct vv_remote_hist *h = io->key.history->remote;
    uint64_t bytes = vv_files_bytes(io->size, REGIONS_EXPECTED, r->opts.store.page_bytes);
    struct vvi_radmitted *fresh = malloc(sizeof(*fresh));
    bool in = false;
    *ret_error = fresh ? 0 : -ENOMEM;
    vv_mutex_lock(&r->lock);
    r->alone = false;
    if (*find_admitted(r, h, io->key.version, io->key.generation)) {
        in = true;
    } else if (fresh && r->used + bytes <= r->opts.local_bytes) {
        *fresh = (struct vvi_radmitted){r->admitted,        h,     io->key.version,
                                        io->key.generation, bytes, false};
        r->admitted = fresh;
        fresh = NULL;
        r->used += bytes;
        in = true;
    } else if (fresh) {
        *s->held_tail = io;
        s->held_tail = &io->next;
        io->next = NULL;
        atomic_fetch_add_explicit(&s->nheld, 1, memory_order_relaxed);
        r->wanted = bytes;
        vvi_space_wake_locked(r);
    }
    vv_mutex_unlock(&r->lock);
    free(fresh);
    return in;
}

uint64_t vvi_space_committed_locked(struct vv_remote_hist *h, uint64_t version, uint64_t generation,
                                    uint64_t bytes)
{
    struct vv_remote *r = h->remote;
    struct vvi_radmitted **at = find_admitted(r, h, version, generation), *a = *at;
    if (!a)
        return 0;
    *at = a->next;
    bytes = VV_MAX(bytes, 1);
    r->used += bytes - a->bytes;
    free(a);
    vvi_space_wake_locked(r);
    return bytes;
}

void vvi_space_removed_locked(struct vv_remote_hist *h, uint64_t version, uint64_t generation,
                              bool gone)
{
    struct vv_remote *r = h->remote;
    struct vvi_radmitted **at = &r->admitted;
    while (*at) {
        struct vvi_radmitted *a = *at;
        bool it = a->hist == h && a->version == version && a->generation == generation;
        /* Removing a file also removes earlier ones of its version whose removal has failed. */
        bool before =
            a->hist == h && a->version == version && a->generation < generation && a->stuck;
        a->stuck |= it && !gone;
        if (!gone || (!it && !before)) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        r->used -= a->bytes;
        free(a);
    }
    vvi_space_wake_locked(r);
}

void vvi_space_forget_locked(struct vv_remote_hist *h)
{
    struct vv_remote *r = h->remote;
    for (struct vvi_radmitted **at = &r->admitted; *at;) {
        struct vvi_radmitted *a = *at;
        if (a->hist != h) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        r->used -= a->bytes;
        free(a);
    }
    for (size_t i = 0; i < h->n; i++)
        r->used -= h->entry[i].local_bytes;
    for (size_t i = 0; i < h->nleft; i++)
        r->used -= h->left[i].local_bytes;
}

void vvi_space_wake_locked(struct vv_remote *r)
{
    if (r->wanted == 0)
        return;
    r->space_due = true;
    vv_cond_signal(&r->work);
}

void vvi_space_alone(struct vv_store *store)
{
    struct vv_remote *r = ((struct vvi_rstore *)store)->remote;
    vv_mutex_lock(&r->lock);
    r->alone = true;
    vvi_space_wake_locked(r);
    vv_mutex_unlock(&r->lock);
}

/* ---- on the worker's thread ---- */

/* Picks the next local file to remove; false: there is none. */
static bool pick_victim_locked(struct vv_remote *r, struct vv_remote_hist **ret_hist,
                               struct vvi_rleft *ret)
{
    struct vv_remote_hist *best = NULL;
    for (struct vv_remote_hist *h = r->hists; h; h = h->next) {
        for (size_t i = 0; i < h->nleft; i++)
            if (h->left[i].local && h->left[i].local_bytes > 0) {
                *ret_hist = h;
                *ret = h->left[i];
                return true;
            }
        for (size_t i = 0; !best && i < h->n; i++) {
            const struct vvi_rentry *e = &h->entry[i];
            if (!e->local || !e->stored || e->lacking || e->removing || e->local_bytes == 0)
                continue;
            best = h;
            *ret = (struct vvi_rleft){.version = e->version, .generation = e->generation};
        }
    }
    *ret_hist = best;
    return best;
}

/* True if its local file is being removed, or a good copy is on its way to the shared folder. */
static bool will_go_locked(const struct vv_remote_hist *h, const struct vvi_rentry *e)
{
    const struct vv_remote *r = h->remote;
    if (e->removing)
        return e->local_bytes > 0 && !e->stuck && !r->alone;
    if (!e->local || h->stopped)
        return false;
    if (e->lacking)
        return h->repairs || (r->active.on && r->active.hist == h);
    return !e->stored && e->err == 0;
}

/* True if a local copy will become superfluous without any further request. */
static bool room_may_come_locked(const struct vv_remote *r)
{
    if (r->removals)
        return true;
    /* Files being written will be committed and copied, or removed. */
    for (const struct vvi_radmitted *a = r->admitted; a && !r->alone; a = a->next)
        if (!a->hist->stopped && !a->stuck)
            return true;
    for (const struct vv_remote_hist *h = r->hists; h; h = h->next)
        for (size_t i = 0; i < h->n; i++)
            if (will_go_locked(h, &h->entry[i]))
                return true;
    return false;
}

/* Sets if reads use the local file. Set to false before the file is removed. */
static void set_local_locked(struct vv_remote_hist *h, const struct vvi_rleft *v, bool local)
{
    struct vvi_rentry *e = vvi_remote_find(h, v->version, v->generation);
    if (e)
        e->local = local;
    for (size_t i = 0; i < h->nleft; i++)
        if (h->left[i].version == v->version && h->left[i].generation == v->generation)
            h->left[i].local = local;
}

static void give_back_locked(struct vv_remote_hist *h, const struct vvi_rleft *v)
{
    struct vv_remote *r = h->remote;
    struct vvi_rentry *e = vvi_remote_find(h, v->version, v->generation);
    if (e) {
        r->used -= e->local_bytes;
        e->local_bytes = 0;
    }
    for (size_t i = 0; i < h->nleft; i++)
        if (h->left[i].version == v->version && h->left[i].generation == v->generation) {
            r->used -= h->left[i].local_bytes;
            h->left[i].local_bytes = 0;
        }
    vvi_space_wake_locked(r);
}

/* Returns held writes to their movers, to be tried again or to fail. */
static void release_held_locked(struct vv_remote *r, int status)
{
    r->wanted = 0;
    for (struct vvi_rstore *s = r->stores; s; s = s->next) {
        if (!s->held)
            continue;
        s->retry = true;
        s->retry_status = status;
        s->inner->ops->kick(s->inner);
    }
}

void vvi_space_make(struct vv_remote *r)
{
    struct vv_remote_hist *h;
    struct vvi_rleft victim;
    vv_mutex_lock(&r->lock);
    bool fits = r->used + r->wanted <= r->opts.local_bytes;
    bool any = !fits && pick_victim_locked(r, &h, &victim);
    if (fits || (!any && !room_may_come_locked(r)))
        release_held_locked(r, fits ? 0 : -ENOSPC);
    if (any) {
        set_local_locked(h, &victim, false);
        h->busy++;
    }
    vv_mutex_unlock(&r->lock);
    if (!any)
        return;
    struct vv_store_key key = {h->local, victim.version, victim.generation};
    bool sync;
    int rc = vvi_obj_remove(h->local, &key, &sync);
    if (rc == 0) {
        struct vv_files_entry gone = {.version = victim.version, .generation = victim.generation};
        vvi_index_add(&h->local->index, VVI_RECORD_REMOVE, &gone);
        vvi_index_flush(&h->local->index);
    }
    vv_mutex_lock(&r->lock);
    if (rc == 0) {
        give_back_locked(h, &victim);
    } else {
        set_local_locked(h, &victim, true);
        release_held_locked(r, rc);
    }
    h->busy--;
    vv_cond_broadcast(&r->idle);
    vv_mutex_unlock(&r->lock);
}
