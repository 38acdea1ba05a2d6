/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ways to keep snapshots without Varve, for comparison. `memory` has room for all of them where
 * the propagator works. `file` writes each with one call when it is made and reads it with one call
 * when it is needed, past the page cache where the file system allows it; the file has no name, so
 * that nothing is left of it however the program ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rtm.h"

enum { BLOCK = 4096 };

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static int nothing(struct rtm_store *s, uint64_t count)
{
    (void)s;
    (void)count;
    return 0;
}

static void no_stats(struct rtm_store *s, struct varve_stats *ret_stats)
{
    (void)s;
    memset(ret_stats, 0, sizeof(*ret_stats));
}

/* ---- memory ---- */

struct memory {
    struct rtm_store store;
    struct rtm_prop *prop;
    uint64_t slots;
    size_t max_bytes;
    bool in_own, fixed;
    char *all;  /* slots of max_bytes each, if all have the same size */
    void **one; /* otherwise, one for each */
    size_t *sizes;
    void *buffer; /* memory for the next snapshot */
};

static int memory_close(struct rtm_store *s)
{
    struct memory *m = (struct memory *)s;

    if (m->all && m->in_own)
        m->prop->ops->own_free(m->prop, m->all);
    else if (m->all)
        m->prop->ops->host_free(m->prop, m->all);
    for (uint64_t v = 0; m->one && v < m->slots; v++)
        free(m->one[v]);
    free(m->one);
    free(m->sizes);
    free(m->buffer);
    free(m);
    return 0;
}

static int memory_put_begin(struct rtm_store *s, uint64_t version, void **ret_ptr)
{
    struct memory *m = (struct memory *)s;

    *ret_ptr = m->fixed ? m->all + version * m->max_bytes : m->buffer;
    return 0;
}

static int memory_put_end(struct rtm_store *s, uint64_t version, size_t bytes)
{
    struct memory *m = (struct memory *)s;

    if (!m->fixed) {
        m->one[version] = malloc(bytes);
        if (!m->one[version])
            return rtm_error(-ENOMEM,
                             "no memory for snapshot %llu: this is what Varve is for "
                             "(--store varve)",
                             (unsigned long long)version);
        memcpy(m->one[version], m->buffer, bytes);
    }
    m->sizes[version] = bytes;
    m->store.live_bytes += bytes;
    return 0;
}

static int memory_get_begin(struct rtm_store *s, uint64_t version, void **ret_ptr)
{
    struct memory *m = (struct memory *)s;

    *ret_ptr = m->fixed ? m->all + version * m->max_bytes : m->one[version];
    return 0;
}

static int memory_get_end(struct rtm_store *s, uint64_t version)
{
    struct memory *m = (struct memory *)s;

    if (!m->fixed) {
        free(m->one[version]);
        m->one[version] = NULL;
    }
    m->store.live_bytes -= m->sizes[version];
    return 0;
}

static const struct rtm_store_ops memory_ops = {
    .name = "memory",
    .close = memory_close,
    .shot = nothing,
    .turn = nothing,
    .put_begin = memory_put_begin,
    .put_end = memory_put_end,
    .get_begin = memory_get_begin,
    .get_end = memory_get_end,
    .stats = no_stats,
};

static int memory_open(const struct rtm_store_opts *opts, struct rtm_store **ret_store)
{
    struct memory *m = calloc(1, sizeof(*m));
    bool ok;

    if (!m)
        return rtm_error(-ENOMEM, "out of memory");
    m->store.ops = &memory_ops;
    m->prop = opts->prop;
    m->slots = opts->snapshots;
    m->max_bytes = opts->max_bytes;
    m->in_own = opts->in_own;
    m->fixed = opts->fixed;
    m->sizes = calloc(m->slots, sizeof(*m->sizes));
    ok = m->sizes != NULL;
    if (m->fixed) {
        size_t bytes = m->slots * m->max_bytes;

        m->all = m->in_own ? m->prop->ops->own_alloc(m->prop, bytes)
                           : m->prop->ops->host_alloc(m->prop, bytes);
        m->store.cache_bytes = bytes;
        ok = ok && m->all;
    } else {
        m->one = calloc(m->slots, sizeof(*m->one));
        m->buffer = malloc(m->max_bytes);
        ok = ok && m->one && m->buffer;
    }
    if (!ok) {
        memory_close(&m->store);
        return rtm_error(
            -ENOMEM,
            "the history of a shot, %llu snapshots of %s, does not fit memory: this is "
            "what Varve is for (--store varve --memory SIZE)",
            (unsigned long long)opts->snapshots, rtm_bytes(opts->max_bytes));
    }
    *ret_store = &m->store;
    return 0;
}

/* ---- file ---- */

struct file {
    struct rtm_store store;
    struct rtm_prop *prop;
    size_t max_bytes;
    bool in_own;
    int fd;
    char *buffer; /* aligned host memory */
    void *own;    /* on a device: memory for snapshots */
    uint64_t *offsets, end;
    size_t *sizes;
};

/* A file without a name. */
static int open_nameless(const char *folder, bool *ret_direct)
{
    static const int flags[] = {O_TMPFILE | O_RDWR | O_DIRECT, O_TMPFILE | O_RDWR};
    char path[RTM_PATH + 32];
    int fd;

    for (int i = 0; i < 2; i++) {
        fd = open(folder, flags[i] | O_CLOEXEC, 0600);
        if (fd >= 0) {
            *ret_direct = i == 0;
            return fd;
        }
    }
    snprintf(path, sizeof(path), "%s/.rtm-%ld", folder, (long)getpid());
    for (int i = 0; i < 2; i++) {
        fd = open(path, (i == 0 ? O_DIRECT : 0) | O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0) {
            unlink(path);
            *ret_direct = i == 0;
            return fd;
        }
        /* Some file systems make the file before they refuse the flag. */
        if (errno == EINVAL)
            unlink(path);
    }
    return rtm_error(-errno, "no file can be made in %s: %s; name another folder with --local",
                     folder, strerror(errno));
}

/* Reads or writes all bytes at the offset; -ENODATA: the file ends before. */
static int move(int fd, bool is_write, char *buffer, uint64_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        ssize_t n = is_write ? pwrite(fd, buffer, bytes, (off_t)offset)
                             : pread(fd, buffer, bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        buffer += n;
        bytes -= (uint64_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

static int transfer(int fd, bool is_write, char *buffer, uint64_t bytes, uint64_t offset)
{
    int rc = move(fd, is_write, buffer, bytes, offset);

    if (rc == 0)
        return 0;
    return rtm_error(rc, "the history cannot be %s: %s", is_write ? "written" : "read",
                     rc == -ENODATA ? "it ends early" : strerror(-rc));
}

static int file_close(struct rtm_store *s)
{
    struct file *f = (struct file *)s;

    if (f->fd >= 0)
        close(f->fd);
    if (f->own)
        f->prop->ops->own_free(f->prop, f->own);
    if (f->buffer)
        f->prop->ops->host_free(f->prop, f->buffer);
    free(f->offsets);
    free(f->sizes);
    free(f);
    return 0;
}

static int file_shot(struct rtm_store *s, uint64_t count)
{
    (void)count;
    ((struct file *)s)->end = 0;
    return 0;
}

static int file_put_begin(struct rtm_store *s, uint64_t version, void **ret_ptr)
{
    struct file *f = (struct file *)s;

    (void)version;
    *ret_ptr = f->own ? f->own : f->buffer;
    return 0;
}

static int file_put_end(struct rtm_store *s, uint64_t version, size_t bytes)
{
    struct file *f = (struct file *)s;
    int rc = f->own ? f->prop->ops->copy(f->prop, f->buffer, f->own, bytes) : 0;

    if (rc)
        return rc;
    f->offsets[version] = f->end;
    f->sizes[version] = bytes;
    rc = transfer(f->fd, true, f->buffer, round_up(bytes), f->end);
    f->end += round_up(bytes);
    f->store.live_bytes += bytes;
    return rc;
}

static int file_get_begin(struct rtm_store *s, uint64_t version, void **ret_ptr)
{
    struct file *f = (struct file *)s;
    int rc = transfer(f->fd, false, f->buffer, round_up(f->sizes[version]), f->offsets[version]);

    if (rc == 0 && f->own)
        rc = f->prop->ops->copy(f->prop, f->own, f->buffer, f->sizes[version]);
    *ret_ptr = f->own ? f->own : f->buffer;
    return rc;
}

static int file_get_end(struct rtm_store *s, uint64_t version)
{
    struct file *f = (struct file *)s;

    f->store.live_bytes -= f->sizes[version];
    return 0;
}

static const struct rtm_store_ops file_ops = {
    .name = "file",
    .close = file_close,
    .shot = file_shot,
    .turn = nothing,
    .put_begin = file_put_begin,
    .put_end = file_put_end,
    .get_begin = file_get_begin,
    .get_end = file_get_end,
    .stats = no_stats,
};

static int file_open(const struct rtm_store_opts *opts, struct rtm_store **ret_store)
{
    struct file *f = calloc(1, sizeof(*f));

    if (!f)
        return rtm_error(-ENOMEM, "out of memory");
    f->store.ops = &file_ops;
    f->prop = opts->prop;
    f->max_bytes = opts->max_bytes;
    f->fd = open_nameless(opts->folder, &f->store.direct);
    if (f->fd < 0) {
        int rc = f->fd;

        free(f);
        return rc;
    }
    f->buffer = f->prop->ops->host_alloc(f->prop, round_up(opts->max_bytes));
    if (opts->in_own && f->prop->ops->on_device)
        f->own = f->prop->ops->own_alloc(f->prop, opts->max_bytes);
    f->offsets = calloc(opts->snapshots, sizeof(*f->offsets));
    f->sizes = calloc(opts->snapshots, sizeof(*f->sizes));
    if (!f->buffer || !f->offsets || !f->sizes ||
        (opts->in_own && f->prop->ops->on_device && !f->own)) {
        file_close(&f->store);
        return rtm_error(-ENOMEM, "no memory for a snapshot of %s: make the grid smaller (--grid)",
                         rtm_bytes(opts->max_bytes));
    }
    f->store.cache_bytes = round_up(opts->max_bytes);
    *ret_store = &f->store;
    return 0;
}

int rtm_store_open(const struct rtm_store_opts *opts, struct rtm_store **ret_store)
{
    switch (opts->params->store) {
    case RTM_STORE_MEMORY:
        return memory_open(opts, ret_store);
    case RTM_STORE_FILE:
        return file_open(opts, ret_store);
    default:
        return rtm_store_varve_open(opts, ret_store);
    }
}

/* ---- bandwidth of the disk ---- */

enum { MEASURE_THREADS = 4, MEASURE_BLOCK = 4 << 20 };

struct measure {
    int fd, index, rc;
    bool is_write;
    uint64_t blocks;
    char *buffer;
};

static void *measure_thread(void *arg)
{
    struct measure *m = arg;

    for (uint64_t b = (uint64_t)m->index; b < m->blocks && m->rc == 0; b += MEASURE_THREADS)
        m->rc = move(m->fd, m->is_write, m->buffer, MEASURE_BLOCK, b * MEASURE_BLOCK);
    return NULL;
}

static int measure_pass(int fd, bool is_write, uint64_t blocks, char *buffers, double *ret_bps)
{
    struct measure m[MEASURE_THREADS];
    pthread_t threads[MEASURE_THREADS];
    double from = rtm_now();
    int started = 0, rc = 0;

    for (int i = 0; i < MEASURE_THREADS; i++) {
        m[i] = (struct measure){.fd = fd, .index = i, .is_write = is_write, .blocks = blocks};
        m[i].buffer = buffers + (size_t)i * MEASURE_BLOCK;
        rc = -pthread_create(&threads[i], NULL, measure_thread, &m[i]);
        if (rc)
            break;
        started++;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        rc = m[i].rc ? m[i].rc : rc;
    }
    if (rc == 0 && is_write && fdatasync(fd) != 0)
        rc = -errno;
    if (rc == 0)
        *ret_bps = (double)(blocks * MEASURE_BLOCK) / (rtm_now() - from);
    return rc ? rtm_error(rc, "the disk cannot be measured: %s", strerror(-rc)) : 0;
}

int rtm_measure_disk(const char *folder, uint64_t bytes, double *ret_write, double *ret_read)
{
    uint64_t blocks = bytes / MEASURE_BLOCK < 16 ? 16 : bytes / MEASURE_BLOCK;
    char *buffers = aligned_alloc(BLOCK, (size_t)MEASURE_THREADS * MEASURE_BLOCK);
    bool direct = false;
    int fd = open_nameless(folder, &direct), rc = fd < 0 ? fd : 0;
    double write_bps = 0, read_bps = 0;

    if (!buffers)
        rc = rtm_error(-ENOMEM, "out of memory");
    if (rc == 0) {
        for (size_t i = 0; i < (size_t)MEASURE_THREADS * MEASURE_BLOCK; i++)
            buffers[i] = (char)(i * 2654435761u >> 13);
        /* Allocate the blocks before the clock starts, so that the disk itself is measured. Varve
         * allocates the fresh blocks of a history ahead, too. */
        (void)posix_fallocate(fd, 0, (off_t)(blocks * MEASURE_BLOCK));
        rc = measure_pass(fd, true, blocks, buffers, &write_bps);
    }
    if (rc == 0)
        rc = measure_pass(fd, false, blocks, buffers, &read_bps);
    if (fd >= 0)
        close(fd);
    free(buffers);
    if (rc == 0) {
        *ret_write = write_bps;
        *ret_read = read_bps;
    }
    return rc;
}
