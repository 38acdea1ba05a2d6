/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of threads runs one body each until a deadline and is joined; the rate is the bytes of
 * all over the time from the first start to the last end. Loops are cut into rounds of which the
 * fastest counts: the bound wants what the machine can do, and a neighbour's burst must not lower
 * it.
 *
 * Memory: each thread copies its own slice again and again. Disk: blocks are taken one after the
 * other from a shared position and wrapped around; a thread that meets an error stores it and ends.
 * The file is written once before the clock starts, so that no loop pays for allocating blocks and
 * no read finds a hole; it has no name, so nothing stays behind whatever happens.
 */
#include "sim/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/clock.h"

#define MAX_THREADS 256
#define ALIGN       4096
#define ROUNDS      4

/* Part of the loop that one thread runs. Synchronization: the thread's own until it is joined. */
struct worker {
    pthread_t thread;
    void *job;
    unsigned index;
    bool writes;        /* disk */
    unsigned char *buf; /* disk: one block */
    uint64_t bytes;     /* moved */
    int rc;
};

/* Runs the body once per worker; bytes per second of all together. */
static int run_round(struct worker *w, unsigned n, void *(*body)(void *), double *ret_bps)
{
    uint64_t start = vv_now_ns(), bytes = 0, ns;
    unsigned started = 0;
    int rc = 0;

    while (started < n && rc == 0) {
        w[started].bytes = 0;
        w[started].rc = 0;
        rc = -pthread_create(&w[started].thread, NULL, body, &w[started]);
        if (rc == 0)
            started++;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(w[i].thread, NULL);
        bytes += w[i].bytes;
        if (rc == 0)
            rc = w[i].rc;
    }
    ns = VV_MAX(vv_now_ns() - start, UINT64_C(1));
    if (rc == 0)
        *ret_bps = (double)bytes * 1e9 / (double)ns;
    return rc;
}

static uint64_t round_deadline_ns(double seconds)
{
    return vv_now_ns() + (uint64_t)(seconds / ROUNDS * 1e9);
}

struct memory_job {
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
    unsigned threads;
    uint64_t deadline_ns;
};

static void *copy_body(void *arg)
{
    struct worker *w = arg;
    const struct memory_job *job = w->job;
    size_t slice = job->bytes / job->threads;
    size_t begin = slice * w->index;
    size_t n = w->index + 1 == job->threads ? job->bytes - begin : slice;

    do {
        memcpy(job->dst + begin, job->src + begin, n);
        w->bytes += n;
    } while (vv_now_ns() < job->deadline_ns);
    return NULL;
}

int probe_memcpy(size_t bytes, unsigned threads, double seconds, double *ret_bps)
{
    struct memory_job job = {.bytes = bytes, .threads = threads};
    struct worker w[MAX_THREADS] = {0};
    unsigned char *buf;
    double best = 0, bps = 0;
    int rc = 0;

    if (threads == 0 || threads > MAX_THREADS || bytes < threads || bytes > SIZE_MAX / 2 ||
        !(seconds >= 0 && seconds <= 3600))
        return -EINVAL;
    buf = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buf == MAP_FAILED)
        return -errno;
    memset(buf, 1, 2 * bytes); /* fault every page in */
    job.dst = buf;
    job.src = buf + bytes;
    for (unsigned i = 0; i < threads; i++) {
        w[i].job = &job;
        w[i].index = i;
    }
    for (int round = 0; rc == 0 && round < ROUNDS; round++) {
        job.deadline_ns = round_deadline_ns(seconds);
        rc = run_round(w, threads, copy_body, &bps);
        best = fmax(best, bps);
    }
    munmap(buf, 2 * bytes);
    if (rc == 0)
        *ret_bps = best;
    return rc;
}

struct disk_job {
    int fd;
    uint64_t nr_blocks;
    uint32_t block_bytes;
    uint64_t deadline_ns;
    /* Synchronization: relaxed; only that no two threads take the same number matters. */
    _Atomic uint64_t next_write;
    _Atomic uint64_t next_read;
};

static int move_block(const struct disk_job *job, struct worker *w, uint64_t block)
{
    size_t done = 0;

    while (done < job->block_bytes) {
        off_t at = (off_t)(block * job->block_bytes + done);
        ssize_t n = w->writes ? pwrite(job->fd, w->buf + done, job->block_bytes - done, at)
                              : pread(job->fd, w->buf + done, job->block_bytes - done, at);

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
    struct worker *w = arg;
    struct disk_job *job = w->job;
    _Atomic uint64_t *next = w->writes ? &job->next_write : &job->next_read;

    do {
        uint64_t n = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);

        /* When both run, reads keep half a file of distance from the writes. */
        if (!w->writes)
            n += job->nr_blocks / 2;
        w->rc = move_block(job, w, n % job->nr_blocks);
        if (w->rc == 0)
            w->bytes += job->block_bytes;
    } while (w->rc == 0 && vv_now_ns() < job->deadline_ns);
    return NULL;
}

/* The first `writers` of the threads write, the others read. */
static int disk_loop(struct disk_job *job, struct worker *w, const struct probe_disk_opts *opts,
                     unsigned threads, unsigned writers, double *ret_bps)
{
    double best = 0, bps = 0;
    int rc = 0;

    for (unsigned i = 0; i < threads; i++)
        w[i].writes = i < writers;
    for (int round = 0; rc == 0 && round < ROUNDS; round++) {
        job->deadline_ns = round_deadline_ns(opts->seconds);
        rc = run_round(w, threads, disk_body, &bps);
        best = fmax(best, bps);
    }
    if (rc == 0)
        *ret_bps = best;
    return rc;
}

static int open_file(const struct probe_disk_opts *opts)
{
    int flags = O_RDWR | O_CLOEXEC | (opts->direct ? O_DIRECT : 0);
    int fd = open(opts->dir, flags | O_TMPFILE, 0600);
    char path[4096];

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL))
        return fd >= 0 ? fd : -errno;
    /* No nameless files here, or no direct ones, which the second attempt tells. */
    if (snprintf(path, sizeof(path), "%s/.varve-probe-XXXXXX", opts->dir) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    fd = mkostemp(path, flags & ~O_RDWR);
    if (fd < 0)
        return -errno;
    unlink(path);
    return fd;
}

/* Writes the whole file once. */
static int fill_file(struct disk_job *job, struct worker *w)
{
    int rc = 0;

    w->writes = true;
    for (uint64_t b = 0; rc == 0 && b < job->nr_blocks; b++)
        rc = move_block(job, w, b);
    if (rc == 0 && fdatasync(job->fd) < 0)
        rc = -errno;
    return rc;
}

static int disk_loops(struct disk_job *job, struct worker *w, const struct probe_disk_opts *opts,
                      struct probe_disk_rates *ret_rates)
{
    struct probe_disk_rates r = {0};
    unsigned n = opts->threads;
    int rc = fill_file(job, w);

    if (rc == 0)
        rc = disk_loop(job, w, opts, n, n, &r.write_bps);
    if (rc == 0)
        rc = disk_loop(job, w, opts, n, 0, &r.read_bps);
    if (rc == 0)
        rc = disk_loop(job, w, opts, VV_MAX(n, 2U), (n + 1) / 2, &r.both_bps);
    if (rc == 0)
        *ret_rates = r;
    return rc;
}

int probe_disk(const struct probe_disk_opts *opts, struct probe_disk_rates *ret_rates)
{
    struct disk_job job = {.block_bytes = opts->block_bytes};
    struct worker w[MAX_THREADS] = {0};
    unsigned char *buf = NULL;
    /* The loop in both directions needs two threads at least. */
    unsigned threads = VV_MAX(opts->threads, 2U);
    int rc;

    if (!opts->dir || opts->threads == 0 || threads > MAX_THREADS || opts->block_bytes == 0 ||
        opts->block_bytes % ALIGN != 0 || opts->file_bytes == 0 ||
        !(opts->seconds >= 0 && opts->seconds <= 3600))
        return -EINVAL;
    /* Two blocks at least, so that a read and a write can keep apart. */
    job.nr_blocks = VV_MAX(vv_div_up(opts->file_bytes, opts->block_bytes), UINT64_C(2));
    job.fd = open_file(opts);
    if (job.fd < 0)
        return job.fd;
    rc = -posix_memalign((void **)&buf, ALIGN, (size_t)threads * opts->block_bytes);
    if (rc == 0) {
        memset(buf, 0x5a, (size_t)threads * opts->block_bytes);
        for (unsigned i = 0; i < threads; i++) {
            w[i].job = &job;
            w[i].index = i;
            w[i].buf = buf + (size_t)i * opts->block_bytes;
        }
        rc = disk_loops(&job, w, opts, ret_rates);
    }
    free(buf);
    close(job.fd);
    return rc;
}

bool probe_differs(double a, double b, double tolerance)
{
    return fabs(a - b) > tolerance * fmin(a, b);
}
