/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: memory of the host cache lent to a vector.
 *
 * Unlike a reserved region (region_lease.c), a lease has no version until it is written, and may be written, read into
 * and given back any number of times. The history counts its leases, and is not closed while there are any; memory
 * is given back before the count decreases.
 *
 * A version made from a lease, or read into one, has one region, number 0: varve_restore can restore it, and a vector
 * can read region 0 of varve_checkpoint. The size of an element is stored with it, so that a vector with other
 * elements does not read it.
 */
#include "ckpt/lease.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "ckpt/ckpt_private.h"

enum { REGION = 0 };

static int no_lease(struct varve_history *h, size_t bytes, int rc)
{
    struct vvi_where here = {"lease", 0, -1, 0};
    struct vv_core_stats stats;
    char want[VV_BYTES_TEXT], half[VV_BYTES_TEXT], need[VV_BYTES_TEXT];
    if (rc == -ENOTSUP)
        return vvi_fail(h->ctx, &here, rc,
                        "vectors are in host memory, and the first cache of "
                        "this context is on the device: set device to none, or "
                        "device_cache to 0");
    if (rc != -ENOSPC)
        return vvi_fail(h->ctx, &here, rc, "no %s for a vector: %s",
                        vv_bytes_human(bytes, want, sizeof(want)), vv_strerror(rc));
    vv_engine_get_stats(h->ctx->engine, &stats);
    uint64_t page = h->ctx->opts.page_bytes, most = stats.tier_pages[0] / 2 * page;
    /* Written as in a configuration file, because the human-readable form is rounded. */
    uint64_t cache = vv_engine_host_cache(h->ctx->engine, 2 * vv_align_up(bytes, page));
    snprintf(need, sizeof(need), "%lluK", (unsigned long long)vv_div_up(cache, 1024));
    return vvi_fail(
        h->ctx, &here, rc,
        "the host cache has no contiguous %s for a vector; at most half of it (%s) is "
        "lent at a time; %s%s",
        vv_bytes_human(bytes, want, sizeof(want)), vv_bytes_human(most, half, sizeof(half)),
        bytes > most ? "set host_cache = " : "free or shrink vectors, or set host_cache higher",
        bytes > most ? need : "");
}

int vv_ckpt_lease(struct varve_history *h, size_t bytes, uint64_t deadline_ns,
                  struct vv_lease *ret_lease)
{
    struct vv_lease lease = {0};
    void *ptr = NULL;
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    uint64_t start_ns = vv_now_ns();
    vvi_trace_call(h, VV_TRACE_CALL_RESERVE, 0);
    if (vv_engine_tier_kind(h->ctx->engine, 0) != VV_TIER_HOST)
        rc = -ENOTSUP;
    else if (bytes > INT64_MAX)
        rc = -ENOSPC;
    if (rc == 0)
        rc = vv_engine_reserve(h->ctx->engine, h->hist, bytes, deadline_ns, &lease.lend, &ptr);
    if (rc) {
        no_lease(h, bytes, rc);
    } else {
        lease.ptr = ptr;
        lease.bytes = vv_div_up(bytes, h->ctx->opts.page_bytes) * h->ctx->opts.page_bytes;
        *ret_lease = lease;
        h->leases++;
    }
    vvi_call_ended(h->ctx, VVI_CALL_WRITE, start_ns);
    vvi_trace_call_end(h, VV_TRACE_CALL_RESERVE, 0, bytes, rc);
    vvi_history_leave(h);
    return rc;
}

void vv_ckpt_unlease(struct varve_history *h, struct vv_lease *lease)
{
    struct vv_lease old = *lease;
    *lease = (struct vv_lease){0};
    /* In a forked child the engine, and so the memory, is the parent's. */
    if (!old.lend || vvi_history_enter(h))
        return;
    vv_engine_unlend(h->ctx->engine, old.lend);
    h->leases--;
    vvi_history_leave(h);
}

void vv_ckpt_copy(struct varve_history *h, void *dst, const void *src, size_t bytes)
{
    vv_engine_copy(h->ctx->engine, dst, src, bytes);
}

static void trim(struct varve_history *h, struct vv_lease *lease, size_t bytes)
{
    vv_engine_lease_trim(h->ctx->engine, lease->lend, bytes);
    lease->bytes = vv_div_up(bytes, h->ctx->opts.page_bytes) * h->ctx->opts.page_bytes;
}

void vv_ckpt_trim(struct varve_history *h, struct vv_lease *lease, size_t bytes)
{
    if (vvi_history_enter(h))
        return;
    trim(h, lease, bytes);
    vvi_history_leave(h);
}

/* The element size as stored. 0: not known, also for elements of 4 GiB and more. */
static uint32_t elem_bytes(size_t unit)
{
    return unit <= UINT32_MAX ? (uint32_t)unit : 0;
}

int vv_ckpt_write(struct varve_history *h, uint64_t version, char *ptr, size_t bytes, size_t unit,
                  uint64_t deadline_ns)
{
    struct vvi_region region = {.id = REGION,
                                .kind = VV_MEM_HOST,
                                .ptr = ptr,
                                .bytes = bytes,
                                .elem_bytes = elem_bytes(unit)};
    return vvi_checkpoint_of(h, version, &region, deadline_ns);
}

/* The part of vv_ckpt_write_lease inside vvi_history_enter. */
static int write_lease(struct varve_history *h, uint64_t version, struct vv_lease *lease,
                       size_t bytes, size_t unit, uint64_t deadline_ns)
{
    struct vv_store_region region = {.id = REGION, .elem_bytes = elem_bytes(unit), .bytes = bytes};
    uint64_t size = bytes, user = 0;
    bool kept = true;
    int rc = vvi_history_late_error(h, "write_move");
    if (rc == 0)
        rc = vvi_damage_check(h, "write_move", version, -EEXIST);
    if (rc)
        return rc;
    if (!vvi_shared_fits(h->ctx, bytes))
        return vvi_fail_put(h, version, bytes, -EFBIG);
    /* Check before trimming: after an error the caller keeps all of its memory. */
    if (vv_engine_exists(h->ctx->engine, h->hist, version))
        return vvi_history_say(h, "write_move", version, -EEXIST);
    trim(h, lease, bytes);
    rc = vvi_layout_new(&region, 1, &user);
    if (rc == 0)
        rc = vv_engine_commit(h->ctx->engine, h->hist, version, user, &lease->lend, &size, 1, NULL,
                              deadline_ns, &kept);
    if (rc == 0)
        h->ctx->checkpoint_bytes += bytes;
    if (rc == 0 || !kept) {
        *lease = (struct vv_lease){0};
        h->leases--;
    }
    if (rc == -ENOSPC || rc == -EFBIG)
        return vvi_fail_put(h, version, bytes, rc);
    return rc ? vvi_history_say(h, "write_move", version, rc) : 0;
}

int vv_ckpt_write_lease(struct varve_history *h, uint64_t version, struct vv_lease *lease,
                        size_t bytes, size_t unit, uint64_t deadline_ns)
{
    uint64_t start_ns = vv_now_ns();
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    if (vvi_replaces(h, version) && vv_engine_exists(h->ctx->engine, h->hist, version)) {
        /* Copy for an overwrite: if it fails, the caller still has its bytes. A transfer of memory could not be
         * undone. */
        vvi_history_leave(h);
        rc = vv_ckpt_write(h, version, lease->ptr, bytes, unit, deadline_ns);
        if (rc == 0)
            vv_ckpt_unlease(h, lease);
        return rc;
    }
    vvi_trace_call(h, VV_TRACE_CALL_COMMIT, version);
    rc = write_lease(h, version, lease, bytes, unit, deadline_ns);
    vvi_call_ended(h->ctx, VVI_CALL_WRITE, start_ns);
    vvi_trace_call_end(h, VV_TRACE_CALL_COMMIT, version, bytes, rc);
    vvi_history_leave(h);
    return rc;
}

/* True if the region may be read as elements of `unit` bytes. Regions that no vector wrote, or an earlier version of
 * the library, have no element size. */
static bool made_of(const struct vv_store_region *stored, size_t unit)
{
    return stored->elem_bytes ? stored->elem_bytes == unit : stored->bytes % unit == 0;
}

int vv_ckpt_size(struct varve_history *h, uint64_t version, size_t unit, size_t *ret_bytes)
{
    struct vv_store_region stored;
    int rc = vvi_region_stored(h, version, REGION, &stored);
    if (rc)
        return rc;
    if (stored.elem_bytes && !made_of(&stored, unit))
        return vv_ckpt_fail(h, "read", version, -EINVAL,
                            "record %llu has elements of %u bytes, those of the vector have %zu",
                            (unsigned long long)version, stored.elem_bytes, unit);
    if (!made_of(&stored, unit))
        return vv_ckpt_fail(h, "read", version, -EINVAL,
                            "record %llu has %llu bytes, not a multiple of the element size %zu",
                            (unsigned long long)version, (unsigned long long)stored.bytes, unit);
    *ret_bytes = stored.bytes;
    return 0;
}

static int swap(struct varve_history *h, uint64_t version, size_t unit, struct vv_lease *lease,
                size_t *ret_bytes)
{
    struct vv_object_info info;
    void *ptr = NULL;
    int rc = vv_engine_lookup(h->ctx->engine, h->hist, version, &info);
    if (rc)
        return rc;
    struct vv_store_region stored = vvi_layout_region(info.user, info.size, 0);
    bool one = vvi_layout_count(info.user) == 1 && stored.id == REGION && stored.bytes > 0 &&
               made_of(&stored, unit);
    vvi_layout_release(NULL, info.user);
    if (!one)
        return -EAGAIN;
    bool had = lease->lend != NULL;
    rc = vv_engine_swap(h->ctx->engine, h->hist, version, info.generation, &lease->lend, &ptr);
    if (rc)
        return rc;
    h->leases += !had;
    lease->ptr = ptr;
    lease->bytes = vv_div_up(info.size, h->ctx->opts.page_bytes) * h->ctx->opts.page_bytes;
    *ret_bytes = info.size;
    return 0;
}

int vv_ckpt_swap(struct varve_history *h, uint64_t version, size_t unit, struct vv_lease *lease,
                 size_t *ret_bytes)
{
    uint64_t start_ns = vv_now_ns();
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = vvi_history_late_error(h, "read");
    if (rc == 0)
        rc = vvi_damage_check(h, "read", version, 0);
    if (rc == 0) {
        rc = swap(h, version, unit, lease, ret_bytes);
        /* The calls that read by a copy report all other errors. */
        if (rc)
            rc = -EAGAIN;
    }
    if (rc == 0) {
        vvi_trace_call(h, VV_TRACE_CALL_RESTORE, version);
        vvi_restored(h, version, *ret_bytes, start_ns);
    }
    vvi_history_leave(h);
    return rc;
}

int vv_ckpt_read(struct varve_history *h, uint64_t version, char *ptr, size_t bytes,
                 uint64_t deadline_ns)
{
    struct vvi_region region = {.id = REGION, .kind = VV_MEM_HOST, .ptr = ptr, .bytes = bytes};
    return vvi_restore_to(h, version, &region, deadline_ns);
}

int vv_ckpt_usable(struct varve_history *h)
{
    int rc = vvi_history_enter(h);
    if (rc == 0)
        vvi_history_leave(h);
    return rc;
}

int vv_ckpt_fail(struct varve_history *h, const char *operation, uint64_t version, int err,
                 const char *fmt, ...)
{
    struct vvi_where here = {operation, version, -1, -1};
    char text[256];
    va_list args;
    int rc = vvi_history_enter(h);
    if (rc)
        return err;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    vvi_fail(h->ctx, &here, err, "%s", text);
    vvi_history_leave(h);
    return err;
}
