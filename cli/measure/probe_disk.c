/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops on one file. Blocks are taken one after the other from a shared position, from the start again after the
 * last. A thread that meets an error stores it and ends. The file is written once before any clock starts, so that
 * no loop pays for allocating blocks and no read finds a hole. It has no name, so no file stays behind, however
 * the process ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/measure/probe.h"
#include "cli/measure/probe_private.h"
#include "cli/measure/samples.h"

#define ALIGN 4096

struct probe_disk {
    int fd;
    uint32_t block_bytes;
    uint64_t nr_blocks;
    unsigned threads;
    unsigned char *bufs; /* a block for each thread */
    struct probe_worker workers[PROBE_THREADS_MAX];
    /* State of the running loop; set before its threads start. */
    unsigned writers; /* so many threads write, the others read */
    uint64_t deadline_ns;
    uint64_t limit; /* blocks to move in all */
    /* Synchronization: relaxed; each thread only has to get a different number. */
    _Atomic uint64_t next_write;
    _Atomic uint64_t next_read;
};

static int move_block(const struct probe_disk *d, bool writes, unsigned char *buf, uint64_t block)
{
    size_t done = 0;

    while (done < d->block_bytes) {
        off_t at = (off_t)(block * d->block_bytes + done);
        ssize_t n = writes ? pwrite(d->fd, buf + done, d->block_bytes - done, at)
                           : pread(d->fd, buf + done, d->block_bytes - done, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (size_t)n;
    }
    return 0;
}

static void *disk_body(void *arg)
{
    struct probe_worker *w = arg;
    struct probe_disk *d = w->job;
    bool writes = w->index < d->writers;
    _Atomic uint64_t *next = writes ? &d->next_write : &d->next_read;
    unsigned char *buf = d->bufs + (size_t)w->index * d->block_bytes;

    do {
        uint64_t n = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);

        if (n >= d->limit)
            break;
        /* If both run, reads stay half a file away from the writes. */
        if (!writes)
            n += d->nr_blocks / 2;
        w->rc = move_block(d, writes, buf, n % d->nr_blocks);
        if (w->rc == 0)
            w->bytes += d->block_bytes;
    } while (w->rc == 0 && vv_now_ns() < d->deadline_ns);
    return NULL;
}

int probe_disk_loop(struct probe_disk *d, enum probe_disk_op op, unsigned depth, double seconds,
                    double *ret_bps)
{
    unsigned threads = op == PROBE_BOTH ? VV_MAX(depth, 2U) : depth;
    double best = 0, bps = 0;
    int rc = 0;

    if (depth == 0 || threads > d->threads || !(seconds >= 0 && seconds <= 3600))
        return -EINVAL;
    d->writers = op == PROBE_WRITE ? threads : op == PROBE_READ ? 0 : (depth + 1) / 2;
    d->limit = UINT64_MAX;
    for (int round = 0; rc == 0 && round < PROBE_ROUNDS; round++) {
        d->deadline_ns = probe_round_deadline_ns(seconds);
        rc = probe_workers_run(d->workers, threads, disk_body, &bps);
        best = fmax(best, bps);
    }
    if (rc == 0)
        *ret_bps = best;
    return rc;
}

int probe_disk_pass(struct probe_disk *d, enum probe_disk_op op, unsigned depth, double *ret_bps)
{
    uint64_t start;
    double bps;
    int rc;

    if (depth == 0 || depth > d->threads || op == PROBE_BOTH)
        return -EINVAL;
    if (op == PROBE_READ) {
        /* Pages are dropped only when they are clean. */
        if (fdatasync(d->fd) < 0)
            return -errno;
        rc = -posix_fadvise(d->fd, 0, 0, POSIX_FADV_DONTNEED);
        if (rc < 0)
            return rc;
    }
    d->writers = op == PROBE_WRITE ? depth : 0;
    d->limit = d->nr_blocks;
    d->deadline_ns = VV_NEVER_NS;
    atomic_store_explicit(&d->next_write, 0, memory_order_relaxed);
    atomic_store_explicit(&d->next_read, 0, memory_order_relaxed);
    start = vv_now_ns();
    rc = probe_workers_run(d->workers, depth, disk_body, &bps);
    if (rc == 0 && op == PROBE_WRITE && fdatasync(d->fd) < 0)
        rc = -errno;
    if (rc == 0)
        *ret_bps = (double)probe_disk_file_bytes(d) * 1e9 /
                   (double)VV_MAX(vv_now_ns() - start, UINT64_C(1));
    return rc;
}

int probe_disk_sync(struct probe_disk *d, unsigned times, uint64_t *ret_ns)
{
    uint64_t ns[64];
    int rc = 0;

    if (times == 0 || times > VV_ARRAY_SIZE(ns))
        return -EINVAL;
    for (unsigned i = 0; i < times; i++) {
        rc = move_block(d, true, d->bufs, i % d->nr_blocks);
        if (rc < 0)
            return rc;
        ns[i] = vv_now_ns();
        if (fsync(d->fd) < 0)
            return -errno;
        ns[i] = vv_now_ns() - ns[i];
    }
    samples_sort_ns(ns, times);
    *ret_ns = ns[times / 2];
    return rc;
}

/* A file that has a name for a moment only. No signal may end the process meanwhile. */
static int open_named(const char *dir, int flags)
{
    char path[4096];
    sigset_t all, old;
    int fd, rc;

    if (snprintf(path, sizeof(path), "%s/.varve-probe-XXXXXX", dir) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    fd = mkostemp(path, flags & ~O_RDWR);
    rc = fd < 0 ? -errno : fd;
    /* A refused O_DIRECT may leave the file behind. */
    unlink(path);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

static int open_file(const struct probe_disk_opts *opts)
{
    int flags = O_RDWR | O_CLOEXEC | (opts->direct ? O_DIRECT : 0);
    int fd = open(opts->dir, flags | O_TMPFILE, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL))
        return fd >= 0 ? fd : -errno;
    /* No nameless files here, or no direct ones; the second attempt shows which. */
    return open_named(opts->dir, flags);
}

/* Writes the file once. After four times `seconds` the file ends, but after two blocks at the earliest. */
static int fill_file(struct probe_disk *d, double seconds)
{
    uint64_t start = vv_now_ns();
    int rc = 0;

    for (uint64_t b = 0; rc == 0 && b < d->nr_blocks; b++) {
        rc = move_block(d, true, d->bufs, b);
        if (rc == 0 && seconds > 0 && b >= 1 && (double)(vv_now_ns() - start) > 4e9 * seconds)
            d->nr_blocks = b + 1;
    }
    if (rc == 0 && fdatasync(d->fd) < 0)
        rc = -errno;
    return rc;
}

int probe_disk_open(const struct probe_disk_opts *opts, struct probe_disk **ret_disk)
{
    struct probe_disk *d;
    /* The loop in both directions needs two threads at least. */
    unsigned threads = VV_MAX(opts->threads, 2U);
    int rc;

    if (!opts->dir || opts->threads == 0 || threads > PROBE_THREADS_MAX || opts->block_bytes == 0 ||
        opts->block_bytes % ALIGN != 0 || opts->file_bytes == 0 ||
        !(opts->seconds >= 0 && opts->seconds <= 3600))
        return -EINVAL;
    d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->block_bytes = opts->block_bytes;
    d->threads = threads;
    /* Two blocks at least, so that a read and a write can stay apart. */
    d->nr_blocks = VV_MAX(vv_div_up(opts->file_bytes, opts->block_bytes), UINT64_C(2));
    d->fd = rc = open_file(opts);
    if (rc >= 0)
        rc = -posix_memalign((void **)&d->bufs, ALIGN, (size_t)threads * opts->block_bytes);
    if (rc >= 0) {
        memset(d->bufs, 0x5a, (size_t)threads * opts->block_bytes);
        probe_workers_init(d->workers, threads, d);
        rc = fill_file(d, opts->seconds);
    }
    if (rc < 0)
        probe_disk_close(d);
    else
        *ret_disk = d;
    return rc;
}

void probe_disk_close(struct probe_disk *d)
{
    if (!d)
        return;
    if (d->fd >= 0)
        close(d->fd);
    free(d->bufs);
    free(d);
}

uint64_t probe_disk_file_bytes(const struct probe_disk *d)
{
    return d->nr_blocks * d->block_bytes;
}

int probe_disk(const struct probe_disk_opts *opts, struct probe_disk_rates *ret_rates)
{
    struct probe_disk_opts whole = *opts;
    struct probe_disk_rates r = {0};
    struct probe_disk *d;
    int rc;

    if (!(opts->seconds >= 0 && opts->seconds <= 3600))
        return -EINVAL;
    whole.seconds = 0; /* for the loops below; the file has its final size */
    rc = probe_disk_open(&whole, &d);
    if (rc < 0)
        return rc;
    rc = probe_disk_loop(d, PROBE_WRITE, opts->threads, opts->seconds, &r.write_bps);
    if (rc == 0)
        rc = probe_disk_loop(d, PROBE_READ, opts->threads, opts->seconds, &r.read_bps);
    if (rc == 0)
        rc = probe_disk_loop(d, PROBE_BOTH, opts->threads, opts->seconds, &r.both_bps);
    probe_disk_close(d);
    if (rc == 0)
        *ret_rates = r;
    return rc;
}
