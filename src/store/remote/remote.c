/* SPDX-License-Identifier: Apache-2.0 */
/* The remote folder: contexts, and the state of every version there.
 *
 * Each version that the engine has committed, now or in an earlier life, has an entry, which says if the version is
 * in the local folder, in the shared one, marked and complete, and which error occurred. Entries are ordered by
 * generation, the order of writing. One lock protects all of them; it is never held across a system call.
 *
 * Two threads: the worker (remote_work.c) copies, marks, polls, removes and repairs; the reader
 * (remote_store.c) owns a store on the shared folder for reads. The movers of the engine call the
 * wrapped stores. Application threads wait here.
 *
 * Invariants:
 *   - a version counts as stored once its file is durable in the shared folder, never before; later as marked, once
 *     its marker is durable; and then as complete, once the group record is durable;
 *   - a removal deletes marker and record first, then the shared file, then the local one: a record never names a file
 *     that was removed on purpose;
 *   - generations grow from life to life, on whichever node a life runs. They are drawn from the life file in the
 *     shared folder, so that a node that was away cannot have used the same ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "store/remote/remote_private.h"

/* ---- contexts ---- */

static int threads_start(struct vv_remote *r)
{
    int rc = r->opts.direct ? 0 : vv_aio_new(r->opts.store.os, r->opts.store.backend, 1, &r->aio);
    if (rc == 0)
        rc = vv_thread_start(&r->worker, vvi_remote_worker, r);
    r->has_worker = rc == 0;
    if (rc == 0 && !r->opts.direct) {
        rc = vv_folder_store(r->folder, &r->read_store);
        if (rc == 0)
            rc = vv_thread_start(&r->reader, vvi_remote_reader, r);
        r->has_reader = rc == 0;
    }
    return rc;
}

int vv_remote_new(const struct vv_remote_opts *opts, char *err, size_t err_bytes,
                  struct vv_remote **ret_remote)
{
    struct vv_remote *r = calloc(1, sizeof(*r));
    if (!r)
        return vvi_error(-ENOMEM, err, err_bytes, "out of memory");
    r->opts = *opts;
    r->run_id = opts->run_id != 0 ? opts->run_id : vv_files_draw_id();
    r->removals_tail = &r->removals;
    r->reads_tail = &r->reads;
    vv_mutex_init(&r->lock, "remote", VV_RANK_STORE);
    vv_cond_init(&r->work);
    vv_cond_init(&r->changed);
    vv_cond_init(&r->idle);
    vv_cond_init(&r->reads_come);
    int rc = vv_folder_new(opts->path, &opts->store, err, err_bytes, &r->folder);
    if (rc == 0)
        rc = vv_budget_new(opts->path, VV_BUDGET_FOLDER, NULL, &r->budget);
    if (rc == 0) {
        rc = threads_start(r);
        if (rc < 0)
            vvi_error(rc, err, err_bytes, "cannot start a thread for the remote folder: %s",
                      strerror(-rc));
    }
    if (rc < 0) {
        vv_remote_free(r);
        return rc;
    }
    *ret_remote = r;
    return 0;
}

void vv_remote_free(struct vv_remote *r)
{
    if (!r)
        return;
    vv_mutex_lock(&r->lock);
    vv_assert(!r->hists);
    r->stopping = true;
    vv_cond_signal(&r->work);
    vv_cond_signal(&r->reads_come);
    vv_mutex_unlock(&r->lock);
    if (r->has_worker)
        pthread_join(r->worker, NULL);
    vv_aio_free(r->aio);
    if (r->has_reader)
        pthread_join(r->reader, NULL);
    if (r->read_store)
        r->read_store->ops->close(r->read_store);
    vv_folder_free(r->folder);
    vv_budget_free(r->budget);
    for (struct vvi_opened *o = r->opened, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    vv_cond_fini(&r->work);
    vv_cond_fini(&r->changed);
    vv_cond_fini(&r->idle);
    vv_cond_fini(&r->reads_come);
    vv_mutex_fini(&r->lock);
    free(r);
}

struct vv_folder *vv_remote_folder(struct vv_remote *r)
{
    return r->folder;
}

void vv_remote_get_stats(struct vv_remote *r, struct vv_remote_stats *ret_stats)
{
    *ret_stats = (struct vv_remote_stats){
        .written_bytes = atomic_load_explicit(&r->written_bytes, memory_order_relaxed),
        .read_bytes = atomic_load_explicit(&r->read_bytes, memory_order_relaxed),
        .healed_chunks = atomic_load_explicit(&r->healed_chunks, memory_order_relaxed),
        .repaired_chunks = atomic_load_explicit(&r->repaired_chunks, memory_order_relaxed),
    };
    vv_mutex_lock(&r->lock);
    ret_stats->local_bytes = r->used;
    vv_mutex_unlock(&r->lock);
}

/* ---- entries ---- */

/* Index of the first entry with this generation or a higher one. */
static size_t lower_bound(const struct vv_remote_hist *h, uint64_t generation)
{
    size_t lo = 0, hi = h->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (h->entry[mid].generation < generation)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct vvi_rentry *vvi_remote_find(struct vv_remote_hist *h, uint64_t version, uint64_t generation)
{
    for (size_t i = lower_bound(h, generation); i < h->n && h->entry[i].generation == generation;
         i++)
        if (h->entry[i].version == version)
            return &h->entry[i];
    return NULL;
}

int vvi_remote_reserve(struct vv_remote_hist *h, size_t n)
{
    if (h->n + n <= h->room)
        return 0;
    size_t room = VV_MAX(VV_MAX(2 * h->room, h->n + n), (size_t)64);
    struct vvi_rentry *more = realloc(h->entry, room * sizeof(*more));
    if (!more)
        return -ENOMEM;
    h->entry = more;
    h->room = room;
    return 0;
}

struct vvi_rentry *vvi_remote_add(struct vv_remote_hist *h, const struct vvi_rentry *entry)
{
    if (vvi_remote_reserve(h, 1) < 0)
        return NULL;
    size_t at = lower_bound(h, entry->generation);
    memmove(h->entry + at + 1, h->entry + at, (h->n - at) * sizeof(*h->entry));
    h->entry[at] = *entry;
    h->n++;
    h->low = VV_MIN(h->low, at);
    return &h->entry[at];
}

void vvi_remote_erase(struct vv_remote_hist *h, uint64_t version, uint64_t generation)
{
    struct vvi_rentry *e = vvi_remote_find(h, version, generation);
    if (!e)
        return;
    size_t at = (size_t)(e - h->entry);
    h->n--;
    memmove(e, e + 1, (h->n - at) * sizeof(*e));
    if (at < h->low)
        h->low--;
    if (at < h->report_from)
        h->report_from--;
}

void vvi_remote_wake_locked(struct vv_remote_hist *h, size_t index)
{
    h->low = VV_MIN(h->low, index);
    vv_cond_signal(&h->remote->work);
}

/* The version's last generation. Searches from the end, because most requests are for new versions. */
static struct vvi_rentry *current_locked(struct vv_remote_hist *h, uint64_t version)
{
    for (size_t i = h->n; i-- > 0;)
        if (h->entry[i].version == version && !h->entry[i].removing)
            return &h->entry[i];
    return NULL;
}

bool vvi_remote_passed_locked(const struct vv_remote_hist *h, const struct vvi_rentry *e)
{
    for (size_t i = lower_bound(h, e->generation); i < h->n; i++) {
        const struct vvi_rentry *later = &h->entry[i];
        if (later->version == e->version && later->generation > e->generation && !later->removing &&
            vvi_remote_reached(h, later))
            return true;
    }
    return false;
}

/* ---- queries and waiting ---- */

bool vv_remote_has_reached(struct vv_remote_hist *h, uint64_t version, uint64_t generation)
{
    vv_mutex_lock(&h->remote->lock);
    const struct vvi_rentry *e = vvi_remote_find(h, version, generation);
    bool reached = e && !e->removing && vvi_remote_reached(h, e);
    vv_mutex_unlock(&h->remote->lock);
    return reached;
}

int vv_remote_take_error(struct vv_remote_hist *h, uint64_t *ret_version)
{
    int err = 0;
    vv_mutex_lock(&h->remote->lock);
    for (size_t i = 0; i < h->n && err == 0; i++) {
        struct vvi_rentry *e = &h->entry[i];
        if (e->err == 0 || e->err_reported || e->removing)
            continue;
        e->err_reported = true;
        err = e->err;
        *ret_version = e->version;
    }
    vv_mutex_unlock(&h->remote->lock);
    return err;
}

static bool passing(int err)
{
    return err != -ECANCELED;
}

/* A thread waits for it again: clears an error that may have passed. */
static void again_locked(struct vv_remote_hist *h, struct vvi_rentry *e)
{
    if (e->err == 0 || !passing(e->err))
        return;
    e->err = 0;
    e->err_reported = false;
    e->misses = 0;
    e->poll_ns = 0;
    vvi_remote_wake_locked(h, (size_t)(e - h->entry));
}

/* Levels above the context's are never requested; that level counts once the engine is notified. */
static bool has_level(const struct vv_remote_hist *h, const struct vvi_rentry *e,
                      enum vv_remote_level level)
{
    if (vvi_remote_reached(h, e))
        return e->reported;
    return level == VV_REMOTE_STORED && e->stored;
}

int vv_remote_wait(struct vv_remote_hist *h, uint64_t version, enum vv_remote_level level,
                   uint64_t deadline_ns)
{
    struct vv_remote *r = h->remote;
    int rc = 0;
    vv_mutex_lock(&r->lock);
    struct vvi_rentry *e = current_locked(h, version);
    if (e && !has_level(h, e, level)) {
        again_locked(h, e);
        e->poll_ns = 0;
        h->waiters++;
        vvi_remote_wake_locked(h, (size_t)(e - h->entry));
        while (rc == 0 && (e = current_locked(h, version)) && !has_level(h, e, level)) {
            if (e->err != 0) {
                rc = e->err;
                e->err_reported = true;
            } else if (vv_cond_wait_until(&r->changed, &r->lock, deadline_ns) == -ETIMEDOUT) {
                e = current_locked(h, version);
                rc = !e ? 0 : has_level(h, e, level) ? 0 : e->err != 0 ? e->err : -ETIMEDOUT;
                break;
            }
        }
        h->waiters--;
    }
    if (rc == 0 && !e)
        rc = -ENOENT;
    vv_mutex_unlock(&r->lock);
    return rc;
}

/* True if it has reached the requested stage. */
static bool far_enough(const struct vv_remote_hist *h, const struct vvi_rentry *e, bool marked)
{
    if (vvi_remote_settled(h, e) || e->removing)
        return true;
    if (marked && h->remote->opts.complete && e->marked)
        return true;
    return e->err == 0 && vvi_remote_passed_locked(h, e);
}

int vv_remote_wait_all(struct vv_remote_hist *h, bool marked, uint64_t deadline_ns,
                       uint64_t *ret_version)
{
    struct vv_remote *r = h->remote;
    int rc = 0;
    bool late = false;
    vv_mutex_lock(&r->lock);
    for (size_t i = 0; i < h->n; i++)
        again_locked(h, &h->entry[i]);
    h->waiters += !marked;
    for (;;) {
        size_t open = h->n;
        rc = 0;
        for (size_t i = 0; i < h->n; i++) {
            struct vvi_rentry *e = &h->entry[i];
            if (far_enough(h, e, marked))
                continue;
            if (e->err == 0) {
                open = i;
                break;
            }
            if (rc == 0) {
                rc = e->err;
                *ret_version = e->version;
            }
            e->err_reported = true;
        }
        if (open == h->n)
            break;
        if (late) {
            rc = -ETIMEDOUT;
            *ret_version = h->entry[open].version;
            break;
        }
        late = vv_cond_wait_until(&r->changed, &r->lock, deadline_ns) == -ETIMEDOUT;
    }
    h->waiters -= !marked;
    vv_mutex_unlock(&r->lock);
    return rc;
}
