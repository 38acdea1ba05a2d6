/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: pieces of files mapped read-only and registered with the driver, so that the GPU reads the
 * page cache itself.
 *
 * Invariants: a window that kernels may have seen stays until no kernel runs; its address is published after it is
 * registered. No thread calls the device with `lock` held, and servers never call it: they put windows that are read
 * often on a list, and the control thread maps them. Registering works while kernels run, though it delays other
 * calls of the driver; unregistering waits for kernels.
 */
#include <errno.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/thread.h"
#include "gpufile/gpufile_private.h"

#ifndef MAP_POPULATE
#define MAP_POPULATE 0
#endif

/* A window that is about to be mapped. */
struct plan {
    struct vvi_gpufile_file *file; /* stays valid as long as map_lock is held */
    uint64_t slot, offset;
    size_t bytes;
    int fd;
};

/* 0: it has to be mapped; -EALREADY: it is mapped. */
static int plan_locked(struct varve_gpufs *fs, uint32_t id, uint64_t window, struct plan *ret)
{
    struct vvi_gpufile_file *f = vvi_gpufile_file_locked(fs, id);
    uint64_t left, now;
    int rc;

    if (!f || window >= f->n_windows)
        return -EINVAL;
    if (!f->windows)
        return -ENOSPC;
    ret->file = f;
    ret->slot = f->windows - 1 + window;
    ret->offset = window * fs->opts.window_bytes;
    left = f->bytes - ret->offset;
    ret->bytes = VV_MIN(left, fs->opts.window_bytes);
    ret->fd = atomic_load_explicit(&f->fd, memory_order_acquire);
    if (fs->windows[ret->slot].ptr)
        return -EALREADY;
    if (fs->window_bytes + ret->bytes > fs->opts.map_limit)
        return -ENOSPC;
    rc = fs->os->file_bytes(fs->os, ret->fd, &now);
    if (rc)
        return rc;
    /* If no window of the file is mapped, no kernel can have read wrong bytes from one. */
    if (now < f->bytes && f->mapped)
        f->shorter = true;
    return now < f->bytes || f->shorter ? -ENODATA : 0;
}

/* The caller holds map_lock. */
static int map_window(struct varve_gpufs *fs, const struct plan *p)
{
    void *dev;
    void *ptr = mmap(NULL, p->bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, p->fd, (off_t)p->offset);
    int rc;

    if (ptr == MAP_FAILED)
        return -errno;
    rc = vv_device_host_share(fs->device, ptr, p->bytes, true, &dev);
    if (rc) {
        (void)munmap(ptr, p->bytes);
        return rc == -EINVAL ? -ENOTSUP : rc;
    }
    vv_mutex_lock(&fs->lock);
    fs->windows[p->slot].ptr = ptr;
    fs->windows[p->slot].bytes = p->bytes;
    p->file->mapped++;
    fs->window_count++;
    fs->window_bytes += p->bytes;
    vv_mutex_unlock(&fs->lock);
    __atomic_store_n(&fs->host_windows[p->slot], (uint64_t)(uintptr_t)dev, __ATOMIC_RELEASE);
    /* Every answer and every open of a file carries this number from now on; kernels that see a new one look for the
     * window. map_lock serializes this. */
    __atomic_store_n(&fs->host->maps, (fs->host->maps + 1) & VARVE_G_MAPS_MASK, __ATOMIC_RELEASE);
    return 0;
}

int vvi_gpufile_map_windows(struct varve_gpufs *fs, uint32_t id, uint64_t first, uint64_t last,
                            uint64_t *ret_bytes)
{
    uint64_t mapped = 0;
    int rc = 0;

    vv_mutex_lock(&fs->map_lock);
    for (uint64_t w = first; rc == 0 && w <= last; w++) {
        struct plan p = {0};

        vv_mutex_lock(&fs->lock);
        rc = plan_locked(fs, id, w, &p);
        vv_mutex_unlock(&fs->lock);
        if (rc == 0)
            rc = map_window(fs, &p);
        if (rc == -EALREADY)
            rc = 0;
        if (rc == 0)
            mapped += p.bytes;
    }
    vv_mutex_unlock(&fs->map_lock);
    *ret_bytes = mapped;
    return rc;
}

void vvi_gpufile_unmap_file(struct varve_gpufs *fs, uint32_t id)
{
    static const uint64_t zero;
    uint64_t first, n;
    int rc;

    vv_mutex_lock(&fs->map_lock);
    vv_mutex_lock(&fs->lock);
    /* Another thread may have closed the file; then its windows may be another file's. */
    first = fs->files[id].windows;
    n = first ? fs->files[id].n_windows : 0;
    vv_mutex_unlock(&fs->lock);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t slot = first - 1 + i;
        struct vvi_gpufile_window w;

        vv_mutex_lock(&fs->lock);
        w = fs->windows[slot];
        fs->windows[slot].ptr = NULL;
        if (w.ptr) {
            fs->files[id].mapped--;
            fs->window_count--;
            fs->window_bytes -= w.bytes;
        }
        vv_mutex_unlock(&fs->lock);
        atomic_store_explicit(&fs->heat[slot], 0, memory_order_relaxed);
        if (!w.ptr)
            continue;
        __atomic_store_n(&fs->host_windows[slot], 0, __ATOMIC_RELEASE);
        /* Kernels keep copies of windows, but none runs now. This fails only on a lost device, which runs no kernel
         * any more. */
        rc = vvi_gpufile_copy(fs, &fs->view.windows[slot], &zero, sizeof(zero));
        (void)rc;
        (void)vv_device_host_unregister(fs->device, w.ptr);
        (void)munmap(w.ptr, w.bytes);
    }
    vv_mutex_unlock(&fs->map_lock);
}

/* The text for an error of mapping, except errors of arguments. */
static const char *why_unmapped(int rc)
{
    switch (rc) {
    case -ENOSPC:
        return "map_limit is reached, or files have 65536 windows already";
    case -ENODATA:
        return "the file has become shorter than it was";
    case -ENOTSUP:
        return "the device cannot read mapped files";
    default:
        return vv_strerror(rc);
    }
}

int vvi_gpufile_map(struct varve_gpufs *fs, uint32_t id, uint64_t offset, uint64_t bytes,
                    uint64_t *ret_bytes, const char **ret_why)
{
    struct vvi_gpufile_file *f;
    uint64_t size = 0, mapped = 0;
    const char *why = NULL;
    int rc = 0;

    vv_mutex_lock(&fs->lock);
    f = vvi_gpufile_file_locked(fs, id);
    if (!f)
        why = "no file has this number";
    else if (f->flags & VARVE_GFILE_WRITE)
        why = "files for writing are not mapped";
    else if (offset > f->bytes)
        why = "the offset is beyond the file's end";
    else
        size = f->bytes;
    vv_mutex_unlock(&fs->lock);
    if (why)
        rc = -EINVAL;
    if (rc == 0 && size > offset) {
        if (bytes == 0 || bytes > size - offset)
            bytes = size - offset;
        rc = vvi_gpufile_map_windows(fs, id, offset / fs->opts.window_bytes,
                                     (offset + bytes - 1) / fs->opts.window_bytes, &mapped);
    }
    if (ret_bytes && (rc == 0 || rc == -ENOSPC))
        *ret_bytes = mapped;
    if (rc)
        *ret_why = why ? why : why_unmapped(rc);
    return rc;
}

int varve_gpufs_map(struct varve_gpufs *fs, uint32_t id, uint64_t offset, uint64_t bytes,
                    uint64_t *ret_bytes)
{
    const char *why = "no file system";
    int rc = fs ? vvi_gpufile_map(fs, id, offset, bytes, ret_bytes, &why) : -EINVAL;

    return rc ? vvi_gpufile_fail(fs, "gpufs_map", rc, "file %u, from %llu on: %s", id,
                                 (unsigned long long)offset, why)
              : 0;
}

int varve_gpufs_unmap(struct varve_gpufs *fs, uint32_t id)
{
    struct vvi_gpufile_file *f;
    int rc = 0;

    if (!fs)
        return vvi_gpufile_fail(fs, "gpufs_unmap", -EINVAL, "no file system");
    vv_mutex_lock(&fs->lock);
    f = vvi_gpufile_file_locked(fs, id);
    if (f)
        rc = vvi_gpufile_check_locked(fs, f);
    vv_mutex_unlock(&fs->lock);
    if (!f)
        return vvi_gpufile_fail(fs, "gpufs_unmap", -EINVAL, "file %u: no file has this number", id);
    vvi_gpufile_unmap_file(fs, id);
    return rc ? vvi_gpufile_fail(fs, "gpufs_unmap", rc, "file %u: %s", id, why_unmapped(rc)) : 0;
}

/* ---- windows that are read often ---- */

void vvi_gpufile_warm(struct varve_gpufs *fs, uint32_t id, uint64_t offset, uint32_t bytes)
{
    uint64_t first = fs->table[id].windows, window = offset / fs->opts.window_bytes, own;
    uint32_t hot, before, more = (uint32_t)vv_div_up(bytes, 1024);

    if (!fs->control_runs || !first || offset >= fs->table[id].bytes)
        return;
    own = fs->table[id].bytes - window * fs->opts.window_bytes;
    hot = (uint32_t)(2 * vv_div_up(VV_MIN(own, fs->opts.window_bytes), 1024));
    before = atomic_fetch_add_explicit(&fs->heat[first - 1 + window], more, memory_order_relaxed);
    if (before >= hot || before + more < hot)
        return;
    vv_mutex_lock(&fs->lock);
    if (fs->n_hot < VVI_GPUFILE_HOT) {
        fs->hot[fs->n_hot++] = (uint64_t)id << 32 | window;
        vv_cond_signal(&fs->control_wake);
    }
    vv_mutex_unlock(&fs->lock);
}

static void *control_main(void *arg)
{
    struct varve_gpufs *fs = arg;

    vv_mutex_lock(&fs->lock);
    for (;;) {
        uint64_t one, bytes;
        int rc;

        while (!fs->control_stop && fs->n_hot == 0)
            vv_cond_wait(&fs->control_wake, &fs->lock);
        if (fs->control_stop)
            break;
        one = fs->hot[--fs->n_hot];
        vv_mutex_unlock(&fs->lock);
        /* A window that cannot be mapped is still served by requests. */
        rc = vvi_gpufile_map_windows(fs, (uint32_t)(one >> 32), (uint32_t)one, (uint32_t)one,
                                     &bytes);
        (void)rc;
        vv_mutex_lock(&fs->lock);
    }
    vv_mutex_unlock(&fs->lock);
    return NULL;
}

int vvi_gpufile_control_start(struct varve_gpufs *fs)
{
    int rc = vv_thread_start(&fs->control, control_main, fs);

    fs->control_runs = rc == 0;
    return rc;
}

void vvi_gpufile_control_stop(struct varve_gpufs *fs)
{
    if (!fs->control_runs)
        return;
    vv_mutex_lock(&fs->lock);
    fs->control_stop = true;
    vv_cond_signal(&fs->control_wake);
    vv_mutex_unlock(&fs->lock);
    pthread_join(fs->control, NULL);
    fs->control_runs = false;
}
