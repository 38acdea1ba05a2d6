/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources of blocks and tables.
 *
 * Host memory is registered whole, unless it is already, and copied from; kernels can read it, too. If that is
 * impossible, because the memory is registered already in other pieces or cannot be registered, and for files and
 * functions, data is first read into staging memory: readers fill one half of it while the other is copied from. One
 * fill uses it at a time.
 *
 * A kernel that reads memory which is no longer registered loses the device. So memory that a source has registered
 * stays registered until the last source of that device that uses it is closed, and sources of other devices do not
 * read it. The application is responsible for memory that it has registered.
 *
 * Invariants: a half is written only after the copies from it have ended; when a fill fails, none of its copies is
 * still under way.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/error.h"
#include "base/thread.h"
#include "ckpt/face.h"
#include "ooc/ooc_private.h"

/* ---- readers ---- */

/* A few threads that read the pieces of one list; the caller takes part. */
struct vvi_readers {
    struct vvi_source *src;
    struct vv_mutex lock;
    struct vv_cond changed;
    /* Synchronization: lock. */
    const struct vvi_piece *pieces;
    unsigned char *to;
    size_t n, next, next_at, ended;
    int error;
    uint64_t error_id; /* the piece that failed */
    bool stop;
    unsigned threads;
    pthread_t id[];
};

static int read_file(const struct vvi_source *src, const struct vvi_piece *p, unsigned char *buf)
{
    size_t at = 0;

    while (at < p->bytes) {
        ssize_t n = pread(src->fd, buf + at, p->bytes - at, (off_t)(src->offset + p->offset + at));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        at += (size_t)n;
    }
    return 0;
}

int vvi_source_read(const struct vvi_source *src, const struct vvi_piece *p, void *buf)
{
    if (src->memory) {
        memcpy(buf, src->memory + p->offset, p->bytes);
        return 0;
    }
    return src->read ? src->read(src->read_arg, p, buf) : read_file(src, p, buf);
}

/* Pieces in staging memory begin at multiples of 16. */
static size_t staged_bytes(const struct vvi_piece *p)
{
    return vv_align_up(p->bytes, 16);
}

/* Reads the remaining pieces of the list. */
static void take_part_locked(struct vvi_readers *rd)
{
    while (rd->next < rd->n) {
        const struct vvi_piece *piece = &rd->pieces[rd->next++];
        unsigned char *to = rd->to + rd->next_at;
        int rc;

        rd->next_at += staged_bytes(piece);
        vv_mutex_unlock(&rd->lock);
        rc = vvi_source_read(rd->src, piece, to);
        vv_mutex_lock(&rd->lock);
        if (rc && !rd->error) {
            rd->error = rc < 0 ? rc : -EIO;
            rd->error_id = piece->id;
        }
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

static int readers_read(struct vvi_readers *rd, const struct vvi_piece *pieces, size_t n,
                        unsigned char *to, uint64_t *ret_id)
{
    int rc;

    vv_mutex_lock(&rd->lock);
    rd->pieces = pieces;
    rd->to = to;
    rd->next = rd->next_at = rd->ended = 0;
    rd->n = n;
    rd->error = 0;
    vv_cond_broadcast(&rd->changed);
    take_part_locked(rd);
    while (rd->ended < rd->n)
        vv_cond_wait(&rd->changed, &rd->lock);
    rc = rd->error;
    if (rc)
        *ret_id = rd->error_id;
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
    vv_mutex_init(&rd->lock, "readers of a source", VV_RANK_AIO);
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

enum { SEGS = 256 }; /* per call */

/* Submits copies of the pieces, from staging memory or, if there is none, directly. */
static int copy_pieces(struct vvi_source *src, struct vv_stream *stream,
                       const struct vvi_piece *pieces, size_t n, const unsigned char *staged)
{
    struct vv_copy_seg segs[SEGS];
    size_t at = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n;) {
        size_t k = 0;

        for (; k < SEGS && i < n; k++, i++) {
            segs[k] = (struct vv_copy_seg){pieces[i].to,
                                           staged ? staged + at : src->memory + pieces[i].offset,
                                           pieces[i].bytes};
            at += staged_bytes(&pieces[i]);
        }
        rc = vv_device_copy_async(src->device, stream, segs, k);
    }
    return rc;
}

int vvi_source_fill_slots(struct vvi_source *src, struct vv_stream *stream,
                          const struct vvi_fill *fills, size_t n, unsigned char *to, size_t bytes)
{
    const unsigned char *memory = src->memory;
    struct vv_copy_seg segs[SEGS];
    int rc = 0;

    for (size_t k; rc == 0 && n > 0; fills += k, n -= k) {
        k = VV_MIN(n, SEGS);
        for (size_t i = 0; i < k; i++)
            segs[i] = (struct vv_copy_seg){to + fills[i].slot * bytes,
                                           memory + fills[i].block * bytes, bytes};
        rc = vv_device_copy_async(src->device, stream, segs, k);
    }
    return rc;
}

/* Waits for the copies from one half. Their error is kept: the thread that reads next may not be the one that needs
 * them. */
static int half_ended_locked(struct vvi_source *src, unsigned half)
{
    int rc = vvi_ooc_wait(src->device, src->staged[half]);

    if (rc)
        atomic_store_explicit(&src->failed, rc, memory_order_release);
    return rc;
}

static int fill_staged_locked(struct vvi_source *src, struct vv_stream *stream,
                              const struct vvi_piece *pieces, size_t n, uint64_t *ret_id)
{
    unsigned char *to = src->staging + src->half * src->half_bytes;
    struct vv_event *event = src->staged[src->half];
    int rc = half_ended_locked(src, src->half), copied;

    if (rc == 0)
        rc = readers_read(src->readers, pieces, n, to, ret_id);
    if (rc == 0) {
        rc = copy_pieces(src, stream, pieces, n, to);
        /* Also after an error: some copies may have been submitted. */
        copied = vv_device_event_record(src->device, event, stream);
        rc = rc ? rc : copied;
    }
    src->half = !src->half;
    return rc;
}

/* The number of pieces that fit in one half. */
static size_t half_full(const struct vvi_source *src, const struct vvi_piece *pieces, size_t n)
{
    size_t i = 0, bytes = 0;

    while (i < n && (i == 0 || bytes + staged_bytes(&pieces[i]) <= src->half_bytes))
        bytes += staged_bytes(&pieces[i++]);
    return i;
}

int vvi_source_fill(struct vvi_source *src, struct vv_stream *stream,
                    const struct vvi_piece *pieces, size_t n, uint64_t *ret_id)
{
    int rc = 0;

    *ret_id = VVI_NO_ID;
    if (src->registered)
        return copy_pieces(src, stream, pieces, n, NULL);
    vv_mutex_lock(&src->lock);
    for (size_t at = 0, k; rc == 0 && at < n; at += k) {
        k = half_full(src, pieces + at, n - at);
        rc = fill_staged_locked(src, stream, pieces + at, k, ret_id);
    }
    if (rc) {
        (void)half_ended_locked(src, 0);
        (void)half_ended_locked(src, 1);
    }
    vv_mutex_unlock(&src->lock);
    return rc;
}

int vvi_source_check(struct vvi_source *src)
{
    int rc = 0;

    for (int i = 0; rc == 0 && src->staging && i < 2; i++) {
        rc = vv_device_event_query(src->device, src->staged[i]);
        if (rc == -EBUSY)
            rc = 0;
    }
    /* If an event has been recorded again since, it was queried before it was recorded again. Pairs with
     * half_ended_locked. */
    return rc ? rc : atomic_load_explicit(&src->failed, memory_order_acquire);
}

void vvi_source_settle(struct vvi_source *src, struct vv_stream *stream)
{
    if (!src->staging)
        return;
    vv_mutex_lock(&src->lock);
    for (int i = 0; i < 2; i++)
        if (vv_device_event_record(src->device, src->staged[i], stream) == 0)
            (void)vvi_ooc_wait(src->device, src->staged[i]);
    atomic_store_explicit(&src->failed, 0, memory_order_release);
    vv_mutex_unlock(&src->lock);
}

/* ---- opening ---- */

static int fail(struct vvi_source *src, int rc, const char *what, const char *name)
{
    return vv_ckpt_fail_ctx(src->ctx, src->operation, rc, false, "%s%s%s: %s", what,
                            name ? " " : "", name ? name : "",
                            strerror(-rc)); /* the system's: no version is missing */
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
        return vv_ckpt_fail_ctx(src->ctx, src->operation, -ENODATA, false,
                                "%s has %lld bytes; %llu are needed from %llu on", path,
                                (long long)st.st_size, (unsigned long long)bytes,
                                (unsigned long long)offset);
    return 0;
}

/* Reads the region into host memory of this source. If the application has protected it, it stays unchanged and
 * protected. */
static int read_region(struct vvi_source *src, const struct vvi_source_opts *o, uint64_t bytes)
{
    size_t have;
    int rc = varve_region_size(o->history, o->version, o->region, &have);
    void *p;

    if (rc)
        return rc;
    if (have < bytes)
        return vv_ckpt_fail_ctx(src->ctx, src->operation, -ENODATA, false,
                                "region %d of version %llu has %zu bytes; %llu are needed",
                                o->region, (unsigned long long)o->version, have,
                                (unsigned long long)bytes);
    p = mmap(NULL, have, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return fail(src, -ENOMEM, "memory for a region", NULL);
    (void)madvise(p, have, MADV_HUGEPAGE);
    src->own = p;
    src->own_bytes = have;
    src->memory = src->own;
    return vv_ckpt_read_region(o->history, o->version, o->region, p, have);
}

static int staging_init(struct vvi_source *src, int readers)
{
    size_t bytes = 2 * src->half_bytes;
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

/* Memory that sources of any context in the process have registered. */
struct vvi_shared {
    struct vvi_shared *next;
    struct vv_device *device;
    const unsigned char *memory, *dev_memory;
    uint64_t bytes;
    unsigned users;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct vv_mutex shared_lock;
static struct vvi_shared *all_shared; /* Synchronization: shared_lock, also for its members */

static void shared_init(void)
{
    vv_mutex_init(&shared_lock, "registered memory of sources", VV_RANK_OOC_STAGE);
}

/* True if the application, or another cache, has registered it. */
static bool is_registered(struct vv_device *device, const void *memory, uint64_t bytes)
{
    enum vv_mem_kind kind;
    size_t left;

    return vv_device_ptr_kind(device, memory, &kind, &left) == 0 && kind == VV_MEM_HOST &&
           left != SIZE_MAX && left >= bytes;
}

/* The memory, if a source of this device has registered it. *ret_foreign: a source of another device has registered
 * some of it. */
static struct vvi_shared *find_shared_locked(const struct vvi_source *src, uint64_t bytes,
                                             bool *ret_foreign)
{
    const unsigned char *end = src->memory + bytes;
    struct vvi_shared *found = NULL;

    *ret_foreign = false;
    for (struct vvi_shared *s = all_shared; s; s = s->next) {
        if (s->device != src->device)
            *ret_foreign |= src->memory < s->memory + s->bytes && s->memory < end;
        else if (s->memory <= src->memory && end <= s->memory + s->bytes)
            found = s;
    }
    return found;
}

static int register_locked(struct vvi_source *src, uint64_t bytes)
{
    struct vvi_shared *s = malloc(sizeof(*s));
    void *dev;
    int rc;

    if (!s)
        return -ENOMEM;
    /* The bytes are only read, but drivers accept only writable memory. */
    rc = vv_device_host_share(src->device, (void *)(uintptr_t)src->memory, bytes, false, &dev);
    if (rc) {
        free(s);
        return rc;
    }
    *s = (struct vvi_shared){all_shared, src->device, src->memory, dev, bytes, 0};
    all_shared = src->shared = s;
    return 0;
}

static void share_memory(struct vvi_source *src, uint64_t bytes)
{
    bool foreign;
    void *dev;

    (void)pthread_once(&once, shared_init);
    vv_mutex_lock(&shared_lock);
    src->shared = find_shared_locked(src, bytes, &foreign);
    if (!src->shared && is_registered(src->device, src->memory, bytes)) {
        src->registered = true;
        if (foreign)
            src->apart = "another context has registered it";
        else if (vv_device_host_address(src->device, src->memory, &dev) == 0)
            src->dev_memory = dev;
        else
            src->apart = "it was registered without mapping it";
    } else if (src->shared || register_locked(src, bytes) == 0) {
        src->registered = true;
        src->shared->users++;
        src->dev_memory = src->shared->dev_memory + (src->memory - src->shared->memory);
    } else {
        src->apart = "it cannot be registered, or is in part";
    }
    vv_mutex_unlock(&shared_lock);
}

static void share_no_more(struct vvi_source *src)
{
    struct vvi_shared *s = src->shared, **at = &all_shared;

    if (!s)
        return;
    vv_mutex_lock(&shared_lock);
    if (--s->users == 0) {
        while (*at != s)
            at = &(*at)->next;
        *at = s->next;
        (void)vv_device_host_unregister(s->device, (void *)(uintptr_t)s->memory);
        free(s);
    }
    vv_mutex_unlock(&shared_lock);
}

int vvi_source_init(struct vvi_source *src, struct varve_ctx *ctx, struct vv_device *device,
                    const struct vvi_source_opts *o)
{
    int rc = 0;

    *src = (struct vvi_source){.ctx = ctx,
                               .device = device,
                               .operation = o->operation,
                               .half_bytes = o->half_bytes,
                               .read = o->read,
                               .read_arg = o->read_arg,
                               .fd = -1};
    vv_mutex_init(&src->lock, "staging of a source", VV_RANK_OOC_STAGE);
    if (o->history)
        rc = read_region(src, o, o->bytes);
    else if (o->memory)
        src->memory = o->memory;
    else if (o->path)
        rc = open_file(src, o->path, o->path_offset, o->bytes);
    if (rc == 0 && src->memory)
        share_memory(src, o->bytes);
    if (rc == 0 && !src->registered) {
        rc = staging_init(src, o->readers);
        if (rc)
            rc = fail(src, rc, "memory to read into", NULL);
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
        (void)munmap(src->staging, 2 * src->half_bytes);
    share_no_more(src);
    if (src->own)
        (void)munmap(src->own, src->own_bytes);
    if (src->fd >= 0)
        (void)close(src->fd);
    if (src->device)
        vv_mutex_fini(&src->lock);
}
