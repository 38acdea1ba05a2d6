/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where blocks come from.
 *
 * Host memory is registered whole and copied from; kernels can read it too. Where that is not to be
 * had, because the memory is registered already in other pieces or cannot be, and for files and
 * functions, blocks are first read into staging memory: readers fill one half of it while the other
 * is copied from. One fill uses it at a time.
 *
 * What stays true: a half is written only after the copies from it have ended; a fill that fails has
 * nothing under way any more when it returns.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "ckpt/face.h"
#include "core/error.h"
#include "core/thread.h"
#include "ooc/ooc_private.h"

/* ---- readers ---- */

/* A few threads that read the blocks of one list; the caller takes part. */
struct vvi_readers {
    struct vvi_source *src;
    struct vv_mutex lock;
    struct vv_cond changed;
    /* Synchronization: lock. */
    const struct vvi_fill *fills;
    unsigned char *to;
    size_t n, next, ended;
    int error;
    bool stop;
    unsigned threads;
    pthread_t id[];
};

static int read_file(const struct vvi_source *src, uint64_t block, unsigned char *buf)
{
    size_t at = 0;

    while (at < src->block_bytes) {
        ssize_t n = pread(src->fd, buf + at, src->block_bytes - at,
                          (off_t)(src->offset + block * src->block_bytes + at));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        at += (size_t)n;
    }
    return 0;
}

static int read_block(const struct vvi_source *src, uint64_t block, unsigned char *buf)
{
    if (src->memory) {
        memcpy(buf, src->memory + block * src->block_bytes, src->block_bytes);
        return 0;
    }
    if (src->read)
        return src->read(src->read_arg, block, buf, src->block_bytes);
    return read_file(src, block, buf);
}

/* Reads what is left of the list. */
static void take_part_locked(struct vvi_readers *rd)
{
    while (rd->next < rd->n) {
        size_t i = rd->next++;
        const struct vvi_fill *fill = &rd->fills[i];
        unsigned char *to = rd->to + i * rd->src->block_bytes;
        int rc;

        vv_mutex_unlock(&rd->lock);
        rc = read_block(rd->src, fill->block, to);
        vv_mutex_lock(&rd->lock);
        if (rc && !rd->error)
            rd->error = rc < 0 ? rc : -EIO;
        if (++rd->ended == rd->n)
            vv_cond_broadcast(&rd->changed);
    }
}

static void *reader_main(void *arg)
{
    struct vvi_readers *rd = arg;

    vv_mutex_lock(&rd->lock);
    while (!rd->stop) {
        take_part_locked(rd);
        if (!rd->stop)
            vv_cond_wait(&rd->changed, &rd->lock);
    }
    vv_mutex_unlock(&rd->lock);
    return NULL;
}

static int readers_read(struct vvi_readers *rd, const struct vvi_fill *fills, size_t n,
                        unsigned char *to)
{
    int rc;

    vv_mutex_lock(&rd->lock);
    rd->fills = fills;
    rd->to = to;
    rd->next = rd->ended = 0;
    rd->n = n;
    rd->error = 0;
    vv_cond_broadcast(&rd->changed);
    take_part_locked(rd);
    while (rd->ended < rd->n)
        vv_cond_wait(&rd->changed, &rd->lock);
    rc = rd->error;
    vv_mutex_unlock(&rd->lock);
    return rc;
}

static void readers_free(struct vvi_readers *rd)
{
    if (!rd)
        return;
    vv_mutex_lock(&rd->lock);
    rd->stop = true;
    vv_cond_broadcast(&rd->changed);
    vv_mutex_unlock(&rd->lock);
    for (unsigned i = 0; i < rd->threads; i++)
        pthread_join(rd->id[i], NULL);
    vv_cond_fini(&rd->changed);
    vv_mutex_fini(&rd->lock);
    free(rd);
}

static int readers_new(struct vvi_source *src, unsigned threads, struct vvi_readers **ret_readers)
{
    struct vvi_readers *rd = calloc(1, sizeof(*rd) + threads * sizeof(rd->id[0]));
    int rc = 0;

    if (!rd)
        return -ENOMEM;
    rd->src = src;
    vv_mutex_init(&rd->lock, "readers of blocks", VV_RANK_AIO);
    vv_cond_init(&rd->changed);
    while (rc == 0 && rd->threads < threads) {
        rc = vv_thread_start(&rd->id[rd->threads], reader_main, rd);
        rd->threads += rc == 0;
    }
    if (rc)
        readers_free(rd);
    else
        *ret_readers = rd;
    return rc;
}

/* ---- filling ---- */

static int copy_to_slots(struct vvi_source *src, struct vv_stream *stream, unsigned char *slots,
                         const struct vvi_fill *fills, size_t n, const unsigned char *staged)
{
    struct vv_copy_seg *segs = malloc(n * sizeof(*segs));
    int rc;

    if (!segs)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        segs[i] = (struct vv_copy_seg){
            slots + fills[i].slot * src->block_bytes,
            staged ? staged + i * src->block_bytes
                   : src->memory + fills[i].block * src->block_bytes,
            src->block_bytes,
        };
    rc = vv_device_copy_async(src->device, stream, segs, n);
    free(segs);
    return rc;
}

static int wait_for(struct vvi_source *src, struct vv_event *event)
{
    int rc;

    do
        rc = vv_device_event_wait(src->device, event, VVI_OOC_WAIT_NS);
    while (rc == -ETIMEDOUT);
    return rc;
}

static int fill_staged_locked(struct vvi_source *src, struct vv_stream *stream,
                              unsigned char *slots, const struct vvi_fill *fills, size_t n)
{
    unsigned char *to = src->staging + src->half * VVI_STAGED * src->block_bytes;
    struct vv_event *event = src->staged[src->half];
    int rc = wait_for(src, event);

    if (rc == 0)
        rc = readers_read(src->readers, fills, n, to);
    if (rc == 0)
        rc = copy_to_slots(src, stream, slots, fills, n, to);
    if (rc == 0)
        rc = vv_device_event_record(src->device, event, stream);
    src->half = !src->half;
    return rc;
}

int vvi_source_fill(struct vvi_source *src, struct vv_stream *stream, unsigned char *slots,
                    const struct vvi_fill *fills, size_t n)
{
    int rc = 0;

    if (src->registered)
        return copy_to_slots(src, stream, slots, fills, n, NULL);
    vv_mutex_lock(&src->lock);
    for (size_t at = 0; rc == 0 && at < n; at += VVI_STAGED)
        rc = fill_staged_locked(src, stream, slots, fills + at, VV_MIN(n - at, VVI_STAGED));
    if (rc) {
        (void)wait_for(src, src->staged[0]);
        (void)wait_for(src, src->staged[1]);
    }
    vv_mutex_unlock(&src->lock);
    return rc;
}

/* ---- opening ---- */

static int fail(struct vvi_source *src, int rc, const char *what, const char *name)
{
    return vv_ckpt_fail_ctx(src->ctx, "blocks_open", rc, false, "%s%s%s: %s", what, name ? " " : "",
                            name ? name : "", vv_strerror(rc));
}

static int open_file(struct vvi_source *src, const char *path, uint64_t offset, uint64_t bytes)
{
    struct stat st;

    src->offset = offset;
    src->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (src->fd < 0 || fstat(src->fd, &st) < 0)
        return fail(src, -errno, "cannot open", path);
    if (S_ISDIR(st.st_mode))
        return fail(src, -EISDIR, "cannot read", path);
    if (S_ISREG(st.st_mode) &&
        ((uint64_t)st.st_size < offset || (uint64_t)st.st_size - offset < bytes))
        return vv_ckpt_fail_ctx(src->ctx, "blocks_open", -ENODATA, false,
                                "%s has %lld bytes; the array needs %llu from %llu on", path,
                                (long long)st.st_size, (unsigned long long)bytes,
                                (unsigned long long)offset);
    return 0;
}

/* The region becomes host memory of ours. */
static int read_region(struct vvi_source *src, const struct varve_blocks_opts *o, uint64_t bytes)
{
    size_t have;
    int rc = varve_region_size(o->history, o->version, o->region, &have);
    void *p;

    if (rc)
        return rc;
    if (have < bytes)
        return vv_ckpt_fail_ctx(src->ctx, "blocks_open", -ENODATA, false,
                                "region %d of version %llu has %zu bytes; the array needs %llu",
                                o->region, (unsigned long long)o->version, have,
                                (unsigned long long)bytes);
    p = mmap(NULL, have, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return fail(src, -ENOMEM, "memory for a region", NULL);
    (void)madvise(p, have, MADV_HUGEPAGE);
    src->own = p;
    src->own_bytes = have;
    src->memory = src->own;
    rc = varve_protect(o->history, o->region, p, have);
    if (rc == 0) {
        rc = varve_restore(o->history, o->version);
        if (varve_unprotect(o->history, o->region) && rc == 0)
            rc = -EIO;
    }
    return rc;
}

static int staging_init(struct vvi_source *src, int readers)
{
    size_t bytes = 2 * VVI_STAGED * src->block_bytes;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc;

    if (p == MAP_FAILED)
        return -ENOMEM;
    src->staging = p;
    rc = vv_device_host_register(src->device, p, bytes);
    src->staging_registered = rc == 0;
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = vv_device_event_new(src->device, &src->staged[i]);
    return rc ? rc : readers_new(src, (unsigned)readers - 1, &src->readers);
}

int vvi_source_init(struct vvi_source *src, struct varve_ctx *ctx, struct vv_device *device,
                    const struct varve_blocks_opts *opts, uint64_t bytes, size_t block_bytes)
{
    int rc = 0;

    *src = (struct vvi_source){.ctx = ctx, .device = device, .block_bytes = block_bytes, .fd = -1};
    vv_mutex_init(&src->lock, "staging of blocks", VV_RANK_OOC_STAGE);
    if (opts->history)
        rc = read_region(src, opts, bytes);
    else if (opts->memory)
        src->memory = opts->memory;
    else if (opts->path)
        rc = open_file(src, opts->path, opts->path_offset, bytes);
    src->read = opts->read;
    src->read_arg = opts->read_arg;
    if (rc == 0 && src->memory) {
        void *dev = NULL;

        /* The bytes are only read, but drivers take memory that can be written, too. */
        if (vv_device_host_share(device, (void *)(uintptr_t)src->memory, bytes, false, &dev) == 0) {
            src->registered = true;
            src->dev_memory = dev;
        }
    }
    if (rc == 0 && !src->registered) {
        rc = staging_init(src, opts->readers);
        if (rc)
            rc = fail(src, rc, "memory to read blocks into", NULL);
    }
    return rc;
}

void vvi_source_fini(struct vvi_source *src)
{
    readers_free(src->readers);
    for (int i = 0; i < 2; i++)
        if (src->staged[i])
            vv_device_event_free(src->device, src->staged[i]);
    if (src->staging_registered)
        (void)vv_device_host_unregister(src->device, src->staging);
    if (src->staging)
        (void)munmap(src->staging, 2 * VVI_STAGED * src->block_bytes);
    if (src->registered)
        (void)vv_device_host_unregister(src->device, (void *)(uintptr_t)src->memory);
    if (src->own)
        (void)munmap(src->own, src->own_bytes);
    if (src->fd >= 0)
        (void)close(src->fd);
    if (src->device)
        vv_mutex_fini(&src->lock);
}
