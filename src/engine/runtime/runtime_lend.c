/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the first tier lent to the application.
 *
 * A lease or lent range has users: the application until it gives the memory back, copies that a
 * stream has still to make from or to it, and the event of its return. The last user gives the
 * pages back to the core, under the engine lock, on any thread. So a copy into a lease may still be
 * queued on one stream when the application gives the lease back on another.
 *
 * The memory is the device's if the first tier is, otherwise the host's. Copies within a device go
 * on the application's stream. Copies within host memory are made by the caller, which then waits
 * for the stream where it must.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/runtime/runtime_private.h"

enum { PARTS_INLINE = 8 };

static bool on_device(const struct vv_engine *e)
{
    return e->kind[0] == VV_TIER_DEVICE;
}

static char *lend_ptr(const struct vv_engine *e, const struct vv_engine_lend *lend)
{
    return vvi_engine_page(e, 0, lend->lend.first_page);
}

void vvi_lend_unuse_locked(struct vv_engine *e, struct vv_engine_lend *lend)
{
    vv_assert(lend->uses > 0);
    if (--lend->uses > 0)
        return;
    vv_core_unlend(e->core, &lend->lend, vv_now_ns());
    if (lend->consume)
        vv_core_consume(e->core, lend->hist, lend->version, lend->generation, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    free(lend);
}

void vv_engine_unlend(struct vv_engine *e, struct vv_engine_lend *lend)
{
    vvi_engine_lock(e);
    vvi_lend_unuse_locked(e, lend);
    vvi_engine_unlock(e);
}

static struct vv_engine_lend *lend_new(uint32_t hist)
{
    struct vv_engine_lend *lend = calloc(1, sizeof(*lend));
    if (lend) {
        lend->hist = hist;
        lend->uses = 1;
    }
    return lend;
}

int vv_engine_reserve(struct vv_engine *e, uint32_t hist, uint64_t bytes, uint64_t deadline_ns,
                      struct vv_engine_lend **ret_lend, void **ret_ptr)
{
    uint64_t pages = vv_div_up(bytes, e->cfg.page_bytes);
    struct vv_engine_lend *lend = lend_new(hist);
    if (!lend)
        return -ENOMEM;
    vvi_engine_lock(e);
    struct vvi_req *r = pages <= UINT32_MAX ? vvi_req_new_locked(e, NULL, 0) : NULL;
    int rc = pages > UINT32_MAX ? -ENOSPC : -ENOMEM;
    if (r)
        rc = vv_core_lease(e->core, hist, (uint32_t)pages, vv_now_ns(), &r->req, &lend->lend);
    rc = vvi_request_finish(e, r, rc, deadline_ns ? deadline_ns : vv_now_ns());
    if (rc) {
        free(lend);
        return rc == -ETIMEDOUT && deadline_ns == 0 ? -EAGAIN : rc;
    }
    *ret_lend = lend;
    *ret_ptr = lend_ptr(e, lend);
    return 0;
}

void vv_engine_lease_trim(struct vv_engine *e, struct vv_engine_lend *lend, uint64_t bytes)
{
    uint32_t pages = (uint32_t)vv_div_up(bytes, e->cfg.page_bytes);
    vvi_engine_lock(e);
    if (pages < lend->lend.npages) {
        vv_core_lease_trim(e->core, &lend->lend, pages, vv_now_ns());
        vvi_engine_dispatch_locked(e);
    }
    vvi_engine_unlock(e);
}

void vv_engine_copy(struct vv_engine *e, void *dst, const void *src, size_t bytes)
{
    struct vv_copy_seg seg = {dst, src, bytes};
    vv_copy_parallel(vvi_copy_pool(e, bytes), &seg, 1);
}

/* ---- reading ---- */

int vv_engine_swap(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                   struct vv_engine_lend **lend, void **ret_ptr)
{
    struct vv_engine_lend *old = *lend, *fresh = lend_new(hist);
    if (!fresh)
        return -ENOMEM;
    vvi_engine_lock(e);
    int rc = -EAGAIN;
    if (!old || old->uses == 1)
        rc = vv_core_swap(e->core, hist, version, generation, old ? &old->lend : NULL, vv_now_ns(),
                          &fresh->lend);
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
    if (rc) {
        free(fresh);
        return rc;
    }
    free(old);
    *lend = fresh;
    *ret_ptr = lend_ptr(e, fresh);
    return 0;
}

static int lend_in_place(struct vv_engine *e, struct vv_engine_lend *lend, uint64_t from,
                         uint64_t bytes, bool again)
{
    uint32_t chunk0 = bytes ? (uint32_t)(from / e->cfg.page_bytes) : 0;
    uint32_t n = bytes ? (uint32_t)(vv_div_up(from + bytes, e->cfg.page_bytes) - chunk0) : 0;
    vvi_engine_lock(e);
    int rc = vv_core_lend(e->core, lend->hist, lend->version, lend->generation, chunk0, n, !again,
                          vv_now_ns(), &lend->lend);
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
    return rc;
}

/* Restores the part of the version into a lease. */
static int fill(struct vv_engine *e, struct vv_engine_lend *lend, uint64_t from, uint64_t bytes,
                uint64_t size, bool again, void *native, uint64_t deadline_ns)
{
    struct vv_engine_piece pieces[3];
    struct vv_engine_app app = {
        .pieces = pieces, .device = on_device(e), .keep = true, .again = again};
    enum vv_mem_kind kind = on_device(e) ? VV_MEM_DEVICE : VV_MEM_HOST;
    uint32_t distance;
    if (from > 0)
        pieces[app.npieces++] = (struct vv_engine_piece){NULL, from, kind};
    pieces[app.npieces++] = (struct vv_engine_piece){lend_ptr(e, lend), bytes, kind};
    if (from + bytes < size)
        pieces[app.npieces++] = (struct vv_engine_piece){NULL, size - from - bytes, kind};
    if (!on_device(e)) {
        int rc = vv_engine_get(e, lend->hist, lend->version, lend->generation, &app,
                               deadline_ns ? deadline_ns : vv_now_ns(), &distance);
        return rc == -ETIMEDOUT && deadline_ns == 0 ? -EAGAIN : rc;
    }
    struct vvi_on_args args = {.kind = VV_REQ_GET,
                               .hist = lend->hist,
                               .version = lend->version,
                               .generation = lend->generation,
                               .app = &app,
                               .lends = &lend,
                               .nlends = 1,
                               .native = native,
                               .deadline_ns = deadline_ns};
    bool accepted;
    return vvi_on_call(e, &args, &accepted, &distance);
}

static int lend_copy(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                     uint64_t from, uint64_t bytes, bool again, void *native, uint64_t deadline_ns,
                     struct vv_engine_lend **ret_lend, void **ret_ptr)
{
    struct vv_object_info info;
    struct vv_engine_lend *lend;
    void *ptr;
    int rc = vv_engine_reserve(e, hist, bytes, deadline_ns, &lend, &ptr);
    if (rc)
        return rc;
    lend->version = version;
    lend->generation = generation;
    vvi_engine_lock(e);
    rc = vv_core_lookup(e->core, hist, version, &info);
    vvi_engine_unlock(e);
    if (rc == 0)
        rc = fill(e, lend, from, bytes, info.size, again, native, deadline_ns);
    if (rc) {
        vv_engine_unlend(e, lend);
        return rc;
    }
    *ret_lend = lend;
    *ret_ptr = ptr;
    return 0;
}

int vv_engine_acquire(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                      uint64_t from, uint64_t bytes, bool again, void *native, uint64_t deadline_ns,
                      struct vv_engine_lend **ret_lend, void **ret_ptr)
{
    int rc = vv_engine_stream_check(e, native);
    if (rc)
        return rc;
    if (bytes == 0 || from % VV_LEND_ALIGN == 0) {
        struct vv_engine_lend *lend = lend_new(hist);
        if (!lend)
            return -ENOMEM;
        lend->version = version;
        lend->generation = generation;
        rc = lend_in_place(e, lend, from, bytes, again);
        if (rc == 0) {
            *ret_lend = lend;
            *ret_ptr = bytes ? lend_ptr(e, lend) + from % e->cfg.page_bytes : NULL;
            return 0;
        }
        free(lend);
        if (rc != -EAGAIN)
            return rc;
    }
    return lend_copy(e, hist, version, generation, from, bytes, again, native, deadline_ns,
                     ret_lend, ret_ptr);
}

int vv_engine_release(struct vv_engine *e, struct vv_engine_lend *lend, bool consume, void *native,
                      bool *ret_back)
{
    int rc = 0;
    lend->consume = consume;
    *ret_back = true;
    if (e->cfg.device) {
        rc = vvi_on_release(e, lend, native);
        if (rc == 0)
            return 0;
    }
    if (rc == -EBUSY || rc == -EINVAL || rc == -EXDEV || rc == -ENOMEM) {
        lend->consume = *ret_back = false;
        return rc;
    }
    /* When a device fails, the application must still be able to give the memory back. */
    if (rc == -ENODEV)
        atomic_store_explicit(&e->device_lost, true, memory_order_relaxed);
    else if (rc)
        vvi_device_drain(e);
    vv_engine_unlend(e, lend);
    return rc;
}

/* ---- writing ---- */

static int commit_join(struct vv_engine *e, struct vvi_on_args *args, bool *ret_kept)
{
    bool accepted;
    int rc = vvi_on_call(e, args, &accepted, NULL);
    /* The pages belong to the version, or have gone with it. */
    for (size_t i = 0; accepted && i < args->nlends; i++)
        free(args->lends[i]);
    *ret_kept = !accepted;
    return rc;
}

/* Ends the application's use of the leases. Copies on a stream may still use them; the last of these
 * copies then gives the pages back. */
static void leave_to_copies(struct vv_engine *e, struct vv_engine_lend *const *lends, size_t n)
{
    vvi_engine_lock(e);
    for (size_t i = 0; i < n; i++) {
        if (lends[i]->uses > 1)
            vv_core_lend_ends(e->core, &lends[i]->lend);
        vvi_lend_unuse_locked(e, lends[i]);
    }
    vvi_engine_unlock(e);
}

static int commit_copy(struct vv_engine *e, struct vvi_on_args *args, const uint64_t *bytes)
{
    struct vv_engine_piece few[PARTS_INLINE], *pieces = few;
    enum vv_mem_kind kind = on_device(e) ? VV_MEM_DEVICE : VV_MEM_HOST;
    bool accepted;
    int rc = 0;
    if (args->nlends > PARTS_INLINE)
        pieces = malloc(args->nlends * sizeof(*pieces));
    if (!pieces)
        rc = -ENOMEM;
    for (size_t i = 0; rc == 0 && i < args->nlends; i++)
        pieces[i] = (struct vv_engine_piece){lend_ptr(e, args->lends[i]), bytes[i], kind};
    struct vv_engine_app app = {.pieces = pieces, .npieces = args->nlends, .device = on_device(e)};
    args->app = &app;
    if (rc == 0 && !on_device(e) && e->cfg.device)
        rc = vv_engine_stream_wait(e, args->native, args->deadline_ns);
    if (rc) {
        if (e->cfg.release_user)
            e->cfg.release_user(e->cfg.user_arg, args->user);
    } else if (on_device(e)) {
        rc = vvi_on_call(e, args, &accepted, NULL);
    } else {
        rc = vv_engine_put(e, args->hist, args->version, args->size, args->user, &app,
                           args->deadline_ns ? args->deadline_ns : vv_now_ns());
    }
    if (rc == 0)
        leave_to_copies(e, args->lends, args->nlends);
    if (pieces != few)
        free(pieces);
    return rc == -ETIMEDOUT && args->deadline_ns == 0 ? -EAGAIN : rc;
}

int vv_engine_commit(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t user,
                     struct vv_engine_lend *const *lends, const uint64_t *bytes, size_t n,
                     void *native, uint64_t deadline_ns, bool *ret_kept)
{
    struct vvi_on_args args = {.kind = VV_REQ_PUT,
                               .hist = hist,
                               .version = version,
                               .user = user,
                               .lends = lends,
                               .nlends = n,
                               .native = native,
                               .deadline_ns = deadline_ns};
    for (size_t i = 0; i < n; i++)
        args.size += bytes[i];
    args.lent = vv_core_lends_join(e->core, bytes, n);
    *ret_kept = true;
    return args.lent ? commit_join(e, &args, ret_kept) : commit_copy(e, &args, bytes);
}

bool vv_engine_exists(struct vv_engine *e, uint32_t hist, uint64_t version)
{
    vvi_engine_lock(e);
    bool exists = vv_core_exists(e->core, hist, version);
    vvi_engine_unlock(e);
    return exists;
}
