/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a GPU file system: options, and the memory that kernels and servers share
 * (described in varve/detail/gpufile_layout.h).
 *
 * Invariant: device memory is written from here only while no kernel uses the file system: at opening and in
 * varve_gpufs_drop. Everything that changes under running kernels is in host memory.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "ckpt/face.h"
#include "gpufile/gpufile_hooks.h"
#include "gpufile/gpufile_private.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (KIB * MIB)

/* Largest request: its size has 22 bits. A larger page takes several. */
#define SPLIT_MAX (2 * MIB)

/* Windows of one page have a place of their own if a page is no larger than this. */
#define ONE_PAGE_MAX (16 * KIB)

/* Waiting for a copy is cut into pieces, so that a lost device is noticed. */
#define COPY_WAIT_NS INT64_C(1000000000)

static const struct vv_os *hook_os;

void vv_gpufile_set_os(const struct vv_os *os)
{
    hook_os = os;
}

/* ---- options ---- */

/* Limit of the descriptors that servers open for themselves: a quarter of the process's limit. */
static uint32_t own_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    return (uint32_t)VV_MIN(limit.rlim_cur / 4, (rlim_t)1 << 20);
}

static uint32_t default_servers(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n <= 3 ? 1 : n >= 16 ? 14 : (uint32_t)n - 2;
}

static const struct varve_gpufs_opts defaults = {
    .opts_size = sizeof(defaults),
    .cache_bytes = GIB,
    .window_bytes = 256 * MIB,
    .page_bytes = 4 * KIB,
    .streams = 264,
    .files = 64,
    .timeout_ms = 10000,
};

int varve_gpufs_opts_init(struct varve_gpufs_opts *opts, size_t opts_size)
{
    if (!opts || opts_size < sizeof(size_t) || opts_size > 4096)
        return -EINVAL;
    memset(opts, 0, opts_size);
    memcpy(opts, &defaults, VV_MIN(opts_size, sizeof(defaults)));
    opts->opts_size = opts_size;
    return 0;
}

/* Derives the options that the caller left out from the others. */
static void fill_in(struct varve_gpufs_opts *o)
{
    if (!o->servers)
        o->servers = default_servers();
    if (!o->map_limit)
        o->map_limit = vv_memory_available() / 2;
    if (!o->readahead_bytes)
        o->readahead_bytes = (uint32_t)VV_MAX(
            (o->readahead == VARVE_GREADAHEAD_OFF ? 64 : 512) * KIB, (uint64_t)o->page_bytes);
    if (!o->split_bytes)
        o->split_bytes = (uint32_t)VV_MIN(
            VV_MAX(VV_MIN(128 * KIB, o->readahead_bytes), (uint64_t)o->page_bytes), SPLIT_MAX);
    if (o->readahead_bytes > 8 * (uint64_t)o->split_bytes)
        o->split_bytes = (uint32_t)VV_MIN(
            vv_align_up(vv_div_up(o->readahead_bytes, 8), (uint64_t)o->page_bytes), SPLIT_MAX);
}

static const char *why_not(const struct varve_gpufs_opts *o, bool paper)
{
    if (!vv_is_pow2(o->page_bytes) || o->page_bytes < 4 * KIB || o->page_bytes > 4 * MIB)
        return "page_bytes is a power of two from 4 KiB to 4 MiB";
    if (o->streams == 0 || o->streams > VARVE_G_STREAMS_MAX)
        return "streams are 1 to 16384";
    if (o->cache_bytes / o->page_bytes < 2 * (uint64_t)o->streams ||
        o->cache_bytes / o->page_bytes >= UINT32_MAX / 4)
        return "cache_bytes holds two pages for each stream at least, and a billion at most";
    if (!vv_is_pow2(o->window_bytes) || o->window_bytes < 2 * MIB || o->window_bytes > 64 * GIB)
        return "window_bytes is a power of two from 2 MiB to 64 GiB";
    if (o->window_bytes < o->page_bytes)
        return "window_bytes is page_bytes at least";
    if (o->files == 0 || o->files > VARVE_G_FILES_MAX)
        return "files are 1 to 4096";
    if (o->servers > VVI_GPUFILE_SERVERS_MAX)
        return "servers are 64 at most";
    if (o->readahead_bytes % o->page_bytes || o->readahead_bytes > 8 * MIB)
        return "readahead_bytes is a multiple of page_bytes, 8 MiB at most";
    if (o->split_bytes % VV_MIN(o->page_bytes, SPLIT_MAX) || o->split_bytes > SPLIT_MAX ||
        o->split_bytes > o->readahead_bytes)
        return "split_bytes is a multiple of page_bytes, 2 MiB and readahead_bytes at most";
    if (o->timeout_ms == 0)
        return "timeout_ms is 1 at least";
    if (o->io < VARVE_GIO_AUTO || o->io > VARVE_GIO_URING)
        return "io is auto, pread or uring";
    if (o->readahead != VARVE_GREADAHEAD_ADAPTIVE && o->readahead != VARVE_GREADAHEAD_OFF &&
        !(paper && o->readahead == VV_GREADAHEAD_FIXED))
        return "readahead is adaptive or off";
    if (o->replace != VARVE_GREPLACE_OWN && !(paper && o->replace == VV_GREPLACE_GLOBAL))
        return "replace is VARVE_GREPLACE_OWN";
    if (o->queue != VARVE_GQUEUE_TICKETS && !(paper && o->queue == VV_GQUEUE_SLOTS))
        return "queue is VARVE_GQUEUE_TICKETS";
    if (o->bypass < VARVE_GBYPASS_AUTO || o->bypass > VARVE_GBYPASS_NEVER)
        return "bypass is auto or never";
    return NULL;
}

static int take_opts(struct varve_gpufs *fs, const struct varve_gpufs_opts *opts, bool paper)
{
    const char *why;

    fs->opts = defaults;
    if (opts) {
        if (opts->opts_size < sizeof(size_t) || opts->opts_size > 4096)
            return vv_ckpt_fail_ctx(fs->ctx, "gpufs_open", -EINVAL, false,
                                    "absurd size of options");
        memcpy(&fs->opts, opts, VV_MIN(opts->opts_size, sizeof(fs->opts)));
    }
    fill_in(&fs->opts);
    why = why_not(&fs->opts, paper);
    return why ? vv_ckpt_fail_ctx(fs->ctx, "gpufs_open", -EINVAL, false, "%s", why) : 0;
}

/* ---- memory ---- */

int vvi_gpufile_copy(struct varve_gpufs *fs, void *dst, const void *src, size_t bytes)
{
    struct vv_copy_seg seg = {dst, src, bytes};
    int rc = vv_device_copy_async(fs->device, fs->stream, &seg, 1);

    if (rc == 0)
        rc = vv_device_event_record(fs->device, fs->event, fs->stream);
    if (rc == 0)
        do
            rc = vv_device_event_wait(fs->device, fs->event, COPY_WAIT_NS);
        while (rc == -ETIMEDOUT);
    return rc;
}

static int memory_init(struct varve_gpufs *fs, size_t bytes, struct vvi_gpufile_memory *ret)
{
    size_t all = vv_align_up(bytes, 2 * MIB);
    void *dev;
    void *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc;

    if (p == MAP_FAILED)
        return -ENOMEM;
    (void)madvise(p, all, MADV_HUGEPAGE);
    *ret = (struct vvi_gpufile_memory){.ptr = p, .bytes = all};
    memset(p, 0, all);
    rc = vv_device_host_share(fs->device, p, all, false, &dev);
    if (rc)
        return rc;
    ret->dev = dev;
    ret->mapped = true;
    return 0;
}

static void memory_fini(struct varve_gpufs *fs, struct vvi_gpufile_memory *m)
{
    if (m->mapped)
        (void)vv_device_host_unregister(fs->device, m->ptr);
    if (m->ptr)
        (void)munmap(m->ptr, m->bytes);
}

/* Takes the next piece of a region, on cache lines of its own. */
static size_t piece(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at = vv_align_up(*at + bytes, 256);
    return here;
}

static void sizes_init(struct varve_gpufs *fs)
{
    const struct varve_gpufs_opts *o = &fs->opts;
    struct varve_gfs *v = &fs->view;
    uint64_t frames = o->cache_bytes / o->page_bytes;

    v->page_shift = (uint32_t)__builtin_ctzll(o->page_bytes);
    v->window_shift = (uint32_t)__builtin_ctzll(o->window_bytes);
    v->n_streams = o->streams;
    v->extent_frames = (uint32_t)VV_MAX(VV_MIN(frames / o->streams / 4, 32), 1);
    v->n_extents = (uint32_t)(frames / v->extent_frames);
    v->n_frames = v->n_extents * v->extent_frames;
    v->n_buckets = 1024;
    while (v->n_buckets < 2 * (uint64_t)v->n_frames)
        v->n_buckets *= 2;
    v->n_ring = 1024;
    while (v->n_ring < 2 * VARVE_G_PARTS * o->streams)
        v->n_ring *= 2;
    v->n_files = VARVE_G_FILES_MAX;
    v->cache_bytes = (uint64_t)v->n_frames * o->page_bytes;
    v->readahead_bytes = o->readahead_bytes;
    v->split_bytes = o->split_bytes;
    v->readahead = (uint32_t)o->readahead;
    v->replace = (uint32_t)o->replace;
    v->bypass = (uint32_t)o->bypass;
    v->queue = (uint32_t)o->queue;
    v->timeout_ns = o->timeout_ms * UINT64_C(1000000);
}

static int host_memory_init(struct varve_gpufs *fs)
{
    struct varve_gfs *v = &fs->view;
    size_t bytes = 0, ring = piece(&bytes, v->n_ring * sizeof(*fs->ring));
    size_t boxes = piece(&bytes, (size_t)v->n_streams * VARVE_G_PARTS * sizeof(uint64_t));
    size_t table = piece(&bytes, VARVE_G_FILES_MAX * sizeof(*fs->table));
    size_t windows = piece(&bytes, VVI_GPUFILE_WINDOWS * sizeof(uint64_t));
    size_t host = piece(&bytes, sizeof(*fs->host));
    size_t windows_bytes = (size_t)v->n_streams * 2 * v->readahead_bytes, pages_bytes = 0;
    int rc = memory_init(fs, bytes, &fs->shared);

    if (fs->opts.page_bytes <= ONE_PAGE_MAX && fs->opts.page_bytes < v->readahead_bytes)
        pages_bytes = (size_t)v->n_streams * 2 * fs->opts.page_bytes;
    if (rc == 0)
        rc = memory_init(fs, windows_bytes + pages_bytes, &fs->staging);
    if (rc)
        return rc;
    fs->ring = (struct varve_g_entry *)(fs->shared.ptr + ring);
    fs->mailboxes = (uint64_t *)(fs->shared.ptr + boxes);
    fs->table = (struct varve_g_file *)(fs->shared.ptr + table);
    fs->host_windows = (uint64_t *)(fs->shared.ptr + windows);
    fs->host = (struct varve_g_host *)(fs->shared.ptr + host);
    v->ring = (struct varve_g_entry *)(fs->shared.dev + ring);
    v->mailboxes = (uint64_t *)(fs->shared.dev + boxes);
    v->files = (const struct varve_g_file *)(fs->shared.dev + table);
    v->host_windows = (const uint64_t *)(fs->shared.dev + windows);
    v->host = (const struct varve_g_host *)(fs->shared.dev + host);
    v->staging = fs->staging.dev;
    if (pages_bytes) {
        fs->page_staging = fs->staging.ptr + windows_bytes;
        v->page_staging = fs->staging.dev + windows_bytes;
    }
    return 0;
}

/* Resets the cache to empty. Streams keep the numbers of their requests. */
static void meta_reset(const struct varve_gfs *v, struct varve_g_frame *frames,
                       struct varve_g_bucket *buckets, struct varve_g_stream *streams)
{
    for (uint32_t i = 0; i < v->n_frames; i++)
        frames[i] = (struct varve_g_frame){
            .file = VARVE_G_NONE, .next = VARVE_G_NONE, .word = VARVE_G_VALID};
    for (uint32_t i = 0; i < v->n_buckets; i++)
        buckets[i] = (struct varve_g_bucket){0, VARVE_G_NONE};
    for (uint32_t i = 0; i < v->n_streams; i++) {
        streams[i].cursor = (uint64_t)VARVE_G_NONE << 32;
        streams[i].extents = 0;
    }
}

static int device_memory_init(struct varve_gpufs *fs)
{
    struct varve_gfs *v = &fs->view;
    size_t bytes = 0, shared = piece(&bytes, sizeof(*v->shared));
    size_t frames = piece(&bytes, v->n_frames * sizeof(*v->frames));
    size_t buckets = piece(&bytes, v->n_buckets * sizeof(*v->buckets));
    size_t streams = piece(&bytes, v->n_streams * sizeof(*v->streams));
    size_t next = piece(&bytes, v->n_extents * sizeof(uint32_t));
    size_t done = piece(&bytes, v->n_ring * sizeof(uint64_t));
    size_t versions = piece(&bytes, VARVE_G_VERSIONS * sizeof(uint64_t));
    size_t grown = piece(&bytes, VARVE_G_FILES_MAX * sizeof(uint64_t));
    size_t windows = piece(&bytes, VVI_GPUFILE_WINDOWS * sizeof(uint64_t));
    unsigned char *image = NULL;
    void *p;
    /* Allocate the largest first, because it is most likely to fail. */
    int rc = vv_device_mem_alloc(fs->device, v->cache_bytes, &p);

    if (rc == 0) {
        v->data = fs->data = p;
        rc = vv_device_mem_alloc(fs->device, bytes, &p);
    }
    if (rc == 0) {
        fs->meta = p;
        image = calloc(1, bytes);
        rc = image ? 0 : -ENOMEM;
    }
    if (rc == 0) {
        fs->meta_bytes = bytes;
        v->shared = (struct varve_g_shared *)(fs->meta + shared);
        v->frames = (struct varve_g_frame *)(fs->meta + frames);
        v->buckets = (struct varve_g_bucket *)(fs->meta + buckets);
        v->streams = (struct varve_g_stream *)(fs->meta + streams);
        v->extent_next = (uint32_t *)(fs->meta + next);
        v->ring_done = (uint64_t *)(fs->meta + done);
        v->versions = (uint64_t *)(fs->meta + versions);
        v->grown = (uint64_t *)(fs->meta + grown);
        v->windows = (uint64_t *)(fs->meta + windows);
        meta_reset(v, (struct varve_g_frame *)(image + frames),
                   (struct varve_g_bucket *)(image + buckets),
                   (struct varve_g_stream *)(image + streams));
        rc = vvi_gpufile_copy(fs, fs->meta, image, bytes);
    }
    free(image);
    return rc;
}

/* Frees streams that a kernel ended without closing. Their requests may still be answered. */
static void free_streams(struct varve_gpufs *fs, struct varve_g_stream *streams)
{
    for (uint32_t i = 0; i < fs->view.n_streams; i++) {
        struct varve_g_stream *s = &streams[i];

        for (uint32_t part = 0; s->taken && part < VARVE_G_PARTS; part++)
            if (VARVE_G_ANSWER_NUMBER(__atomic_load_n(&fs->mailboxes[i * VARVE_G_PARTS + part],
                                                      __ATOMIC_ACQUIRE)) != s->number[part])
                s->stuck |= 1u << part;
        s->taken = s->lock = 0;
    }
}

static int drop_locked(struct varve_gpufs *fs)
{
    struct varve_gfs *v = &fs->view;
    unsigned char *image = malloc(fs->meta_bytes);
    struct varve_g_frame *frames;
    struct varve_g_stream *streams;
    struct varve_g_shared *shared;
    int rc = image ? vvi_gpufile_copy(fs, image, fs->meta, fs->meta_bytes) : -ENOMEM;

    if (rc == 0) {
        frames = (struct varve_g_frame *)(image + ((unsigned char *)v->frames - fs->meta));
        shared = (struct varve_g_shared *)(image + ((unsigned char *)v->shared - fs->meta));
        streams = (struct varve_g_stream *)(image + ((unsigned char *)v->streams - fs->meta));
        /* Pinned pages and held locks are left from kernels that ended without releasing them. */
        meta_reset(v, frames,
                   (struct varve_g_bucket *)(image + ((unsigned char *)v->buckets - fs->meta)),
                   streams);
        free_streams(fs, streams);
        shared->extents = shared->queue_next = shared->queue_lock = shared->active = 0;
        rc = vvi_gpufile_copy(fs, fs->meta, image, fs->meta_bytes);
    }
    free(image);
    return rc;
}

int vvi_gpufile_drop(struct varve_gpufs *fs)
{
    int rc;

    vv_mutex_lock(&fs->map_lock);
    rc = drop_locked(fs);
    vv_mutex_unlock(&fs->map_lock);
    return rc;
}

/* ---- opening and closing ---- */

int vvi_gpufile_fail(struct varve_gpufs *fs, const char *operation, int err, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    /* Without a context there is no device that could be lost. */
    return vv_ckpt_fail_ctx(fs ? fs->ctx : NULL, operation, err, fs && err == -ENODEV, "%s", text);
}

static void fs_free(struct varve_gpufs *fs)
{
    memory_fini(fs, &fs->staging);
    memory_fini(fs, &fs->shared);
    (void)vv_device_mem_free(fs->device, fs->data);
    (void)vv_device_mem_free(fs->device, fs->meta);
    if (fs->event)
        vv_device_event_free(fs->device, fs->event);
    if (fs->stream)
        vv_device_stream_free(fs->device, fs->stream);
    vv_cond_fini(&fs->control_wake);
    vv_mutex_fini(&fs->map_lock);
    vv_mutex_fini(&fs->lock);
    free(fs->slot_laps);
    free(fs->heat);
    free(fs->windows);
    free(fs->files);
    vv_ckpt_leave(fs->ctx);
    free(fs);
}

static int fs_new(struct varve_ctx *ctx, struct varve_gpufs **ret_fs)
{
    struct varve_gpufs *fs = calloc(1, sizeof(*fs));

    if (!fs)
        return -ENOMEM;
    fs->ctx = ctx;
    fs->device = vv_ckpt_device(ctx);
    fs->os = hook_os ? hook_os : vv_os_posix();
    fs->own_limit = own_limit();
    vv_mutex_init(&fs->lock, "gpu files", VV_RANK_GPUFILE);
    vv_mutex_init(&fs->map_lock, "gpu file windows", VV_RANK_GPUFILE_MAP);
    vv_cond_init(&fs->control_wake);
    fs->files = calloc(VARVE_G_FILES_MAX, sizeof(*fs->files));
    fs->windows = calloc(VVI_GPUFILE_WINDOWS, sizeof(*fs->windows));
    fs->heat = calloc(VVI_GPUFILE_WINDOWS, sizeof(*fs->heat));
    *ret_fs = fs;
    if (!fs->files || !fs->windows || !fs->heat)
        return -ENOMEM;
    for (uint32_t i = 0; i < VARVE_G_FILES_MAX; i++) {
        atomic_init(&fs->files[i].fd, -1);
        atomic_init(&fs->files[i].direct_fd, -1);
    }
    return 0;
}

static int gpufs_open(struct varve_ctx *ctx, const struct varve_gpufs_opts *opts, bool paper,
                      struct varve_gpufs **ret_fs)
{
    struct varve_gpufs *fs = NULL;
    int rc = ret_fs ? vv_ckpt_enter(ctx) : -EINVAL;

    if (rc)
        return vv_ckpt_fail_ctx(NULL, "gpufs_open", rc, false, "%s",
                                rc == -EINVAL ? "no context, or nowhere to put the file system"
                                              : vv_strerror(rc));
    if (!vv_ckpt_device(ctx))
        rc = vv_ckpt_fail_ctx(ctx, "gpufs_open", -ENODEV, false, "the context has no device");
    else
        rc = fs_new(ctx, &fs);
    if (rc == -ENOMEM)
        vv_ckpt_fail_ctx(ctx, "gpufs_open", rc, false, "memory for the tables of files");
    if (!fs) {
        vv_ckpt_leave(ctx);
        return rc;
    }
    if (rc == 0)
        rc = take_opts(fs, opts, paper);
    if (rc == 0) {
        sizes_init(fs);
        rc = vv_device_stream_new(fs->device, &fs->stream);
        if (rc == 0)
            rc = vv_device_event_new(fs->device, &fs->event);
        if (rc == 0)
            rc = device_memory_init(fs);
        if (rc == 0)
            rc = host_memory_init(fs);
        if (rc == 0) {
            fs->slot_laps = calloc((size_t)fs->view.n_streams * VARVE_G_PARTS, 1);
            rc = fs->slot_laps ? 0 : -ENOMEM;
        }
        if (rc)
            vv_ckpt_fail_ctx(ctx, "gpufs_open", rc, true,
                             "memory for the page cache of %llu bytes, or to pass through: %s",
                             (unsigned long long)fs->opts.cache_bytes, vv_strerror(rc));
    }
    if (rc == 0) {
        rc = vvi_gpufile_servers_start(fs, fs->opts.servers);
        if (rc == 0 && fs->opts.map_hot)
            rc = vvi_gpufile_control_start(fs);
        if (rc) {
            vv_ckpt_fail_ctx(ctx, "gpufs_open", rc, false, "servers: %s", vv_strerror(rc));
            vvi_gpufile_servers_stop(fs);
        }
    }
    if (rc) {
        fs_free(fs);
        return rc;
    }
    *ret_fs = fs;
    return 0;
}

int varve_gpufs_open(struct varve_ctx *ctx, const struct varve_gpufs_opts *opts,
                     struct varve_gpufs **ret_fs)
{
    return gpufs_open(ctx, opts, false, ret_fs);
}

int vv_gpufile_open(struct varve_ctx *ctx, const struct varve_gpufs_opts *opts,
                    struct varve_gpufs **ret_fs)
{
    return gpufs_open(ctx, opts, true, ret_fs);
}

int varve_gpufs_close(struct varve_gpufs *fs)
{
    int rc;

    if (!fs)
        return 0;
    vvi_gpufile_control_stop(fs);
    vvi_gpufile_servers_stop(fs);
    rc = vvi_gpufile_files_fini(fs);
    if (rc)
        vvi_gpufile_fail(fs, "gpufs_close", rc,
                         "a file that was mapped has become shorter than it was then");
    fs_free(fs);
    return rc;
}

int varve_gpufs_drop(struct varve_gpufs *fs)
{
    int rc = fs ? vvi_gpufile_drop(fs) : -EINVAL;

    return rc ? vvi_gpufile_fail(fs, "gpufs_drop", rc, "%s",
                                 fs ? vv_strerror(rc) : "no file system")
              : 0;
}

int varve_gpufs_handle(struct varve_gpufs *fs, struct varve_gfs *ret_handle)
{
    if (!fs || !ret_handle)
        return vvi_gpufile_fail(fs, "gpufs_handle", -EINVAL,
                                "no file system, or nowhere to put its handle");
    *ret_handle = fs->view;
    return 0;
}

int varve_gpufs_stats(struct varve_gpufs *fs, struct varve_gpufs_stats *ret_stats)
{
    struct varve_gpufs_stats s = {0};
    struct varve_g_stream *streams;
    size_t bytes;
    int rc;

    if (!fs || !ret_stats || ret_stats->stats_size < sizeof(size_t))
        return vvi_gpufile_fail(fs, "gpufs_stats", -EINVAL,
                                "no file system, or figures without their size");
    streams = calloc(fs->view.n_streams, sizeof(*streams));
    if (!streams)
        return vvi_gpufile_fail(fs, "gpufs_stats", -ENOMEM, "memory for figures of the streams");
    vv_mutex_lock(&fs->map_lock);
    rc = vvi_gpufile_copy(fs, streams, fs->view.streams, fs->view.n_streams * sizeof(*streams));
    vv_mutex_unlock(&fs->map_lock);
    for (uint32_t i = 0; rc == 0 && i < fs->view.n_streams; i++) {
        s.hits += streams[i].hits;
        s.misses += streams[i].misses;
        s.mapped_bytes += streams[i].mapped_bytes;
        s.served_bytes += streams[i].served_bytes;
        s.bypassed_bytes += streams[i].bypassed_bytes;
        s.requests += streams[i].requests;
        s.requested_bytes += streams[i].requested_bytes;
        s.waits_ns += streams[i].waits_ns;
    }
    free(streams);
    if (rc)
        return vvi_gpufile_fail(fs, "gpufs_stats", rc, "figures of kernels: %s", vv_strerror(rc));
    vv_mutex_lock(&fs->lock);
    s.windows = fs->window_count;
    s.window_bytes = fs->window_bytes;
    s.files = fs->n_files;
    s.servers = fs->n_servers;
    s.answered = fs->past[0];
    s.failed = fs->past[1];
    s.read_bytes = fs->past[2];
    s.written_bytes = fs->past[3];
    for (uint32_t i = 0; i < fs->n_servers; i++) {
        s.answered += atomic_load_explicit(&fs->servers[i].answered, memory_order_relaxed);
        s.failed += atomic_load_explicit(&fs->servers[i].failed, memory_order_relaxed);
        s.read_bytes += atomic_load_explicit(&fs->servers[i].read_bytes, memory_order_relaxed);
        s.written_bytes +=
            atomic_load_explicit(&fs->servers[i].written_bytes, memory_order_relaxed);
    }
    vv_mutex_unlock(&fs->lock);
    bytes = VV_MIN(ret_stats->stats_size, sizeof(s));
    s.stats_size = bytes;
    memcpy(ret_stats, &s, bytes);
    return 0;
}
