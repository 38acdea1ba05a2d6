/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of the baselines. A baseline counts only if its time is explained: its time is predicted from rates that
 * are measured apart from it, and printed beside the measured one.
 *
 * - One thread: it reads into fresh memory, and then copies from pageable memory. The times add up. Both are taken from
 *   a part of the same file, before the run and after it, since the cost of fresh memory changes from minute to minute.
 * - Double buffers: the slower of the threads' preads and the copies from pinned memory, and the parts that cannot
 *   overlap: starting the threads, and the first buffers or the last copies.
 * - The papers' ways: every block makes rounds. In a round it asks, its server reads, it pulls the bytes, and it handles
 *   pages. The round of a single block is measured, and the parts of it that the server and the link take. With many
 *   blocks there are queues in front of the servers, of the link and, if all pages are in one queue, of its lock. The
 *   lengths of these queues follow from the time for which each is held (mean value analysis of a closed network, after
 *   Schweitzer). For a server that is the time of a request on a server that is never idle, times what threads lose when
 *   as many of them read at once into as much memory. For the lock it is measured with groups that do nothing else; it
 *   is longer where pages have to be evicted than where free ones are left. The server with the most slots ends last.
 *
 * Rates are those of threads that have begun: buffers are touched before, and the best of some runs counts.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <varve/gpufile_device.h>

#include "lab/gpufile/bench_gpufile.h"
#include "lab/gpufile/gf_kernels.h"
#include "store/aio/aio.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

enum { DEPTH_MAX = 64, RUNS = 3 };

/* Memory of this size does not fit the caches of a processor. */
#define SPAN_MAX (512 * MIB)

/* Bytes to move to measure a rate. */
static uint64_t sample_bytes(const struct gfb *b)
{
    return b->emulated ? 256 * KIB : 256 * MIB;
}

/* ---- the link ---- */

static int measure_copy(struct gfb *b, unsigned char *device, double *ret_rate)
{
    struct vv_copy_seg seg = {device, b->pinned, VV_MIN(b->pinned_bytes, sample_bytes(b))};
    uint64_t all = (b->emulated ? 4 : 64) * seg.bytes;
    int rc = 0;

    *ret_rate = 0;
    for (int run = 0; rc == 0 && run < RUNS; run++) {
        double start = gfb_now_s();
        uint64_t done = 0;

        for (; rc == 0 && done < all; done += seg.bytes)
            rc = vv_device_copy_async(b->device, b->stream, &seg, 1);
        if (rc == 0)
            rc = vv_device_event_record(b->device, b->event, b->stream);
        if (rc == 0)
            rc = vv_device_event_wait(b->device, b->event, -1);
        *ret_rate = fmax(*ret_rate, (double)done / (gfb_now_s() - start));
    }
    return rc;
}

static int measure_pageable(struct gfb *b, unsigned char *device, double *ret_rate)
{
    uint64_t bytes = sample_bytes(b);
    char *p = malloc(bytes);
    double start, s = INFINITY;
    int rc = p ? 0 : -ENOMEM;

    for (int run = 0; rc == 0 && run < RUNS; run++) {
        memset(p, 1, bytes);
        start = gfb_now_s();
        rc = gfb_copy(b, device, p, bytes);
        s = fmin(s, gfb_now_s() - start);
    }
    free(p);
    *ret_rate = (double)bytes / s;
    return rc;
}

static int measure_pull(struct gfb *b, unsigned char *device, double *ret_rate)
{
    unsigned threads = b->emulated ? 4 : 256, warps = threads / (b->emulated ? 2 : 32);
    uint64_t piece = 4 * KIB;
    /* Each warp has its own place to pull to. */
    unsigned blocks = (unsigned)VV_MIN(b->o.blocks, sample_bytes(b) / (warps * piece));
    struct gf_args a = {.dst = {device}, .piece = piece};
    uint64_t bytes = VV_MIN(b->pinned_bytes, sample_bytes(b)) / piece * piece;
    int rc = 0, laps = b->emulated ? 1 : 64;
    double best = 0;

    a.in[0] = b->pinned_dev;
    a.bytes[0] = bytes;
    for (int run = 0; rc == 0 && run < RUNS; run++) {
        double start = gfb_now_s();

        for (int i = 0; rc == 0 && i < laps; i++)
            rc = gf_gpu_launch(b->gpu, GF_K_pull, blocks, threads, &a);
        if (rc == 0)
            rc = gf_gpu_sync(b->gpu);
        best = fmax(best, (double)bytes * laps / (gfb_now_s() - start));
    }
    *ret_rate = best;
    return rc;
}

/* One thread reads a file of the page cache into memory that it has not used before; all threads read it into
 * memory that they have used. */
static int measure_reads(struct gfb *b, struct gfb_rates *r)
{
    struct gf_shape s = {.app = GF_2DCONV, .seed = b->o.seed, .rows = 1, .cols = 1};
    struct gfb_preads mib = {.piece = b->emulated ? 64 * KIB : MIB, .runs = RUNS},
                      buffer = {.piece = b->buffer_bytes, .runs = RUNS};
    uint64_t one = sample_bytes(b);
    struct gfb_input in;
    int rc;

    s.bytes[0] = 8 * one; /* more than the processor's caches hold */
    rc = gfb_input_new(b, &s, &in);
    if (rc)
        return rc;
    r->read_one = 0;
    for (int run = 0; rc == 0 && run < RUNS; run++) {
        char *p = malloc(one);
        double start = gfb_now_s();
        ssize_t n = p ? pread(in.fd[0], p, one, (off_t)(run * one)) : -1;

        r->read_one = fmax(r->read_one, (double)one / (gfb_now_s() - start));
        free(p);
        rc = n == (ssize_t)one ? 0 : -EIO;
    }
    if (rc == 0)
        rc = gfb_pread_rate(b, &in, &mib, &r->pread);
    if (rc == 0)
        rc = gfb_pread_rate(b, &in, &buffer, &r->buffers);
    gfb_input_fini(&in);
    return rc;
}

static void nothing(void *arg, uint64_t first, uint64_t last)
{
    (void)arg;
    (void)first;
    (void)last;
}

static int measure_start(struct gfb *b, double *ret_s)
{
    int rc = 0;

    *ret_s = INFINITY;
    for (int run = 0; rc == 0 && run < RUNS; run++) {
        double start = gfb_now_s();

        rc = gf_parallel(b->o.servers, b->o.servers, nothing, NULL);
        *ret_s = fmin(*ret_s, gfb_now_s() - start);
    }
    return rc;
}

/* Adds a rate as a row, so that it is kept with the results. */
static int rate_row(struct gfb *b, const char *name, double rate)
{
    struct gfb_row *row = gfb_row(b, "rates", "alone", name);

    if (!row)
        return -ENOMEM;
    row->bytes = sample_bytes(b);
    row->io_s = (double)row->bytes / rate;
    return 0;
}

/* The reference of an experiment. With --resume, results of several runs come together, and each is compared with
 * the reference of its own run. */
int gfb_rates_of(struct gfb *b, enum gfb_part part)
{
    static const char *const names[] = {"pull", "pread"};

    for (size_t i = 0; i < VV_ARRAY_SIZE(names); i++) {
        struct gfb_row *row = gfb_row(b, "rates", gfb_part_name(part), names[i]);

        if (!row)
            return -ENOMEM;
        row->bytes = sample_bytes(b);
        row->io_s = (double)row->bytes / (i ? b->rates.pread : b->rates.pull);
    }
    return 0;
}

int gfb_rates_measure(struct gfb *b)
{
    struct gfb_rates *r = &b->rates;
    void *device = NULL;
    int rc = vv_device_mem_alloc(b->device, sample_bytes(b), &device);

    if (rc == 0)
        rc = measure_copy(b, device, &r->copy);
    if (rc == 0)
        rc = measure_pageable(b, device, &r->pageable);
    if (rc == 0)
        rc = measure_pull(b, device, &r->pull);
    (void)vv_device_mem_free(b->device, device);
    if (rc == 0)
        rc = measure_reads(b, r);
    if (rc == 0)
        rc = measure_start(b, &r->start_s);
    if (rc == 0)
        rc = rate_row(b, "pull", r->pull);
    if (rc == 0)
        rc = rate_row(b, "copy", r->copy);
    if (rc == 0)
        rc = rate_row(b, "pageable", r->pageable);
    if (rc == 0)
        rc = rate_row(b, "read-one", r->read_one);
    if (rc == 0)
        rc = rate_row(b, "pread", r->pread);
    return rc ? gfb_fail(b, rc, "measuring the link: %s", strerror(-rc)) : 0;
}

/* ---- threads that read ---- */

struct preads {
    const char *path;
    int flags;
    uint32_t threads;
    uint64_t pieces, piece;
    bool anywhere;  /* at random */
    uint64_t slots; /* pieces of memory that each thread reads into in turn */
    double seconds;
    _Atomic uint32_t ready;
    /* Sum over all threads. Synchronization: lock */
    uint64_t read;
    double first_s, last_s;
    int rc;
    pthread_mutex_t lock;
};

/* Each thread opens the file for itself, as servers do, because small reads of one open file block
 * each other. It reads its own stretch again and again until its time is up. */
static void pread_part(void *arg, uint64_t first, uint64_t last)
{
    struct preads *p = arg;
    char *buf = aligned_alloc(4096, vv_align_up(p->slots * p->piece, UINT64_C(4096)));
    int fd = open(p->path, p->flags), rc = fd < 0 ? -errno : buf ? 0 : -ENOMEM;
    uint64_t from = p->pieces * first / p->threads, n = p->pieces * last / p->threads - from;
    uint64_t bytes = 0;
    double start, s = 0;

    if (buf)
        memset(buf, 1, p->slots * p->piece);
    n = VV_MAX(n, UINT64_C(1));
    /* Threads start together, but wait for the others for a second at most. */
    atomic_fetch_add(&p->ready, 1);
    for (start = gfb_now_s(); atomic_load(&p->ready) < p->threads && gfb_now_s() - start < 1;)
        sched_yield();
    start = gfb_now_s();
    for (uint64_t i = 0; rc == 0 && (s < p->seconds || i == 0); i++) {
        uint64_t at =
            p->anywhere ? vv_pattern_mix(first << 40 | i) % p->pieces : (from + i % n) % p->pieces;

        ssize_t got = pread(fd, buf + i % p->slots * p->piece, p->piece, (off_t)(at * p->piece));

        if (got < 0)
            rc = -errno;
        else
            bytes += (uint64_t)got;
        s = gfb_now_s() - start;
    }
    pthread_mutex_lock(&p->lock);
    p->read += bytes;
    p->first_s = fmin(p->first_s, start);
    p->last_s = fmax(p->last_s, start + s);
    p->rc = p->rc ? p->rc : rc;
    pthread_mutex_unlock(&p->lock);
    if (fd >= 0)
        (void)close(fd);
    free(buf);
}

/* True if the file can be read past the page cache. */
static bool has_direct(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

/* The largest of the files. */
static unsigned largest(const struct gfb_input *in)
{
    unsigned k = 0;

    for (unsigned i = 1; i < in->n; i++)
        k = in->bytes[i] > in->bytes[k] ? i : k;
    return k;
}

int gfb_pread_rate(struct gfb *b, const struct gfb_input *in, const struct gfb_preads *how,
                   double *ret_rate)
{
    unsigned k = largest(in);
    struct preads p = {.path = in->path[k],
                       .flags = O_RDONLY | O_CLOEXEC,
                       .threads = how->threads ? how->threads : b->o.servers,
                       .piece = how->piece,
                       .pieces = VV_MAX(in->bytes[k] / how->piece, UINT64_C(1)),
                       .anywhere = how->anywhere,
                       .seconds = b->emulated ? 0.001
                                  : how->span ? 0.06
                                              : 0.15,
                       .lock = PTHREAD_MUTEX_INITIALIZER};
    double best = 0;
    int rc = 0;

    p.slots = VV_MAX(how->span / p.threads / p.piece, UINT64_C(1));
    if (how->direct && has_direct(p.path))
        p.flags |= O_DIRECT;
    for (int run = 0; rc == 0 && run < (b->emulated ? 1 : how->runs ? how->runs : 2); run++) {
        p.read = 0;
        atomic_store(&p.ready, 0);
        p.first_s = INFINITY;
        p.last_s = 0;
        rc = gf_parallel(p.threads, p.threads, pread_part, &p);
        rc = rc ? rc : p.rc;
        best = fmax(best, (double)p.read / (p.last_s - p.first_s));
    }
    *ret_rate = best;
    return rc ? gfb_fail(b, rc, "%s: %s", p.path, strerror(-rc)) : 0;
}

/* ---- the disk ---- */

static int disk_loop(struct vv_aio *aio, int fd, uint64_t bytes, uint64_t piece, unsigned depth,
                     unsigned char *buf)
{
    struct vv_aio_req req[DEPTH_MAX], *done[DEPTH_MAX];
    struct iovec iov[DEPTH_MAX];
    unsigned idle[DEPTH_MAX], n_idle = 0;
    uint64_t at = 0;
    int rc = 0;

    while (n_idle < depth) {
        idle[n_idle] = n_idle;
        n_idle++;
    }
    /* Waits until no request is under way, also after an error: they are on this stack. */
    while (at < bytes || n_idle < depth) {
        int n;

        for (; at < bytes && n_idle; at += piece) {
            unsigned i = idle[--n_idle];

            iov[i] = (struct iovec){buf + i * piece, piece};
            req[i] = (struct vv_aio_req){
                .op = VV_AIO_READ, .fd = fd, .offset = at, .iov = &iov[i], .niov = 1};
            vv_aio_submit(aio, &req[i]);
        }
        n = vv_aio_wait(aio, done, DEPTH_MAX, -1);
        for (int i = 0; i < n; i++) {
            idle[n_idle++] = (unsigned)(done[i] - req);
            rc = done[i]->result < 0 ? done[i]->result : rc;
        }
        if (n < 0)
            return n;
        if (rc)
            at = bytes;
    }
    return rc;
}

int gfb_disk_rate(struct gfb *b, const struct gfb_input *in, unsigned depth, double *ret_rate)
{
    uint64_t piece = b->emulated ? 64 * KIB : MIB, bytes = in->bytes[0] / piece * piece;
    unsigned char *buf = aligned_alloc(4096, DEPTH_MAX * piece);
    int fd = open(in->path[0], O_RDONLY | O_DIRECT | O_CLOEXEC), rc;
    struct vv_aio *aio = NULL;
    double start;

    depth = VV_MIN(depth, (unsigned)DEPTH_MAX);
    /* A file system that has no direct I/O: the page cache is empty at least. */
    if (fd < 0)
        fd = open(in->path[0], O_RDONLY | O_CLOEXEC);
    rc = !buf ? -ENOMEM : fd < 0 ? -errno : vv_aio_new(vv_os_posix(), VV_AIO_AUTO, depth, &aio);
    gfb_input_drop(in);
    start = gfb_now_s();
    if (rc == 0)
        rc = disk_loop(aio, fd, bytes, piece, depth, buf);
    *ret_rate = (double)bytes / (gfb_now_s() - start);
    vv_aio_free(aio);
    if (fd >= 0)
        (void)close(fd);
    free(buf);
    return rc ? gfb_fail(b, rc, "%s: %s", in->path[0], strerror(-rc)) : 0;
}

/* ---- what one block gets alone, and what one server does ---- */

static uint64_t page_of(const struct gfb_way *way)
{
    return way->page ? way->page : way->mode == GFB_GPUFS_64K ? 64 * KIB : 4 * KIB;
}

/* A part of the input: up to `bytes` of its largest file, in whole requests. */
static void part_of(const struct gfb_input *in, uint64_t bytes, uint64_t request,
                    struct gfb_input *ret)
{
    unsigned k = largest(in);

    *ret = (struct gfb_input){.n = 1, .fd = {in->fd[k], -1, -1}, .seed = in->seed};
    memcpy(ret->path[0], in->path[k], sizeof(ret->path[0]));
    ret->bytes[0] = VV_MIN(bytes, in->bytes[k]);
    if (ret->bytes[0] > request)
        ret->bytes[0] = ret->bytes[0] / request * request;
}

/* The way for a part of the input: the cache holds the same share of the part as of the whole
 * input, and each group replaces its own pages. */
static struct gfb_way way_alone(const struct gfb_way *way, uint64_t bytes, uint64_t part,
                                uint32_t blocks, uint32_t servers)
{
    struct gfb_way one = *way;

    one.blocks = blocks;
    one.servers = servers;
    one.cold = false;
    one.own = true;
    one.cache_bytes = way->cache_bytes < bytes
                          ? (uint64_t)((double)part * (double)way->cache_bytes / (double)bytes)
                          : part + part / 4 + 8 * page_of(way);
    return one;
}

/* Reads a part of the input in that way, with so many blocks and servers. Returns seconds per byte. */
static int alone(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                 uint32_t blocks, uint32_t servers, uint64_t request, double *ret_s)
{
    uint64_t least = b->emulated  ? 16 * request
                     : blocks > 1 ? 256 * MIB
                                  : 16 * MIB,
             requests = blocks > 1    ? blocks * (b->emulated ? 4 : 16)
                        : b->emulated ? 16
                                      : 512;
    unsigned char *dst[3] = {NULL};
    struct gfb_reader *r = NULL;
    struct gfb_input part;
    struct gfb_way one;
    void *p = NULL;
    double best = INFINITY, t;
    int rc;

    part_of(in, VV_MIN(VV_MAX(requests * request, least), b->emulated ? MIB : 512 * MIB), request,
            &part);
    one = way_alone(way, gfb_input_bytes(in), part.bytes[0], blocks, servers);
    rc = vv_device_mem_alloc(b->device, part.bytes[0], &p);
    dst[0] = p;
    if (rc == 0)
        rc = gfb_reader_new(b, &one, &part, &r);
    for (int run = 0; rc == 0 && run < (b->emulated ? 1 : 2); run++) {
        rc = gfb_reader_read(r, dst, &t);
        best = fmin(best, t);
    }
    gfb_reader_free(r);
    (void)vv_device_mem_free(b->device, p);
    if (rc == 0)
        *ret_s = best / (double)part.bytes[0];
    return rc;
}

/* The same for warps that read records at random; each record brings a whole request. */
static int alone_anywhere(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                          uint32_t groups, uint32_t servers, uint64_t request, double *ret_s)
{
    uint32_t warp = b->emulated ? 2 : 32, warps = groups > 1 ? b->emulated ? 2 : 8 : 1;
    struct gf_args a = {.piece = 4 * KIB, .seed = b->o.seed + 77, .result = b->result};
    struct gfb_way one = way_alone(way, 1, 1, groups, servers);
    struct gf_result result = {0};
    struct varve_gpufs *fs = NULL;
    double best = INFINITY, start;
    void *p = NULL;
    int rc;

    a.count = groups > 1 ? 2 : b->emulated ? 16 : 512;
    a.bytes[0] = in->bytes[0];
    one.cache_bytes = way->cache_bytes;
    rc = vv_device_mem_alloc(b->device, groups * a.count * a.piece, &p);
    a.dst[0] = p;
    if (rc == 0)
        rc = gfb_fs_open(b, &one, in, groups, &fs, a.file, &start);
    if (rc == 0)
        rc = varve_gpufs_handle(fs, &a.fs);
    for (int run = 0; rc == 0 && run < (b->emulated ? 1 : 2); run++) {
        rc = varve_gpufs_drop(fs);
        if (rc == 0)
            rc = gfb_result_clear(b);
        start = gfb_now_s();
        if (rc == 0)
            rc = gf_gpu_launch(b->gpu, GF_K_records, groups / warps, warps * warp, &a);
        if (rc == 0)
            rc = gf_gpu_sync(b->gpu);
        best = fmin(best, gfb_now_s() - start);
        if (rc == 0)
            rc = gfb_result_get(b, &result);
    }
    (void)varve_gpufs_close(fs);
    (void)vv_device_mem_free(b->device, p);
    *ret_s = best / ((double)result.bytes / (double)a.piece * (double)request);
    return rc;
}

static int alone_of(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                    uint32_t blocks, uint32_t servers, uint64_t request, double *ret_s)
{
    return (way->anywhere ? alone_anywhere : alone)(b, way, in, blocks, servers, request, ret_s);
}

/* ---- waiting in line ---- */

/* A station that one block at a time can use. */
struct station {
    double held_s;    /* in each round of each customer */
    double customers; /* blocks that come to this station */
};

/* The time of a round. Some of it is spent at stations, and the rest without waiting for others. A
 * block that comes to a station finds the mean queue of a network with one block fewer. */
static double round_s(double rest, const struct station *st, size_t n)
{
    double line[4] = {0}, at[4], all = 0;

    for (int turn = 0; turn < 1000; turn++) {
        all = rest;
        for (size_t i = 0; i < n; i++) {
            at[i] = st[i].held_s *
                    (1 + line[i] * fmax(st[i].customers - 1, 0) / fmax(st[i].customers, 1));
            all += at[i];
        }
        for (size_t i = 0; i < n; i++)
            line[i] = all > 0 ? st[i].customers * at[i] / all : 0;
    }
    return all;
}

/* The work of one block's round, and the seconds that a server is busy with each request. */
struct round {
    double alone, read_alone, server;
};

/* Measured beside the run that it explains. Servers read into all windows of all streams, so these are in the same
 * caches as in the run. */
static int measure_round(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                         uint64_t request, struct round *ret)
{
    uint64_t piece = VV_MIN(request, 2 * MIB), span = 2 * request * way->blocks;
    struct gfb_preads many = {.piece = piece,
                              .threads = gfb_servers(b, way),
                              .anywhere = way->anywhere,
                              .span = VV_MIN(span, b->emulated ? MIB : SPAN_MAX)},
                      one = many, near = many;
    double alone_s, busy_s, together, by_one, by_near;
    int rc = alone_of(b, way, in, 1, 1, request, &alone_s);

    one.threads = near.threads = 1;
    near.span = 2 * request;
    if (rc == 0)
        rc = alone_of(b, way, in, way->anywhere ? way->blocks : VV_MIN(way->blocks, 256u), 1,
                      request, &busy_s);
    if (rc == 0)
        rc = gfb_pread_rate(b, in, &many, &together);
    if (rc == 0)
        rc = gfb_pread_rate(b, in, &one, &by_one);
    if (rc == 0)
        rc = gfb_pread_rate(b, in, &near, &by_near);
    if (rc)
        return rc;
    ret->alone = alone_s * (double)request;
    ret->read_alone = (double)request / by_near;
    ret->server = busy_s * (double)request * many.threads * by_one / together;
    return 0;
}

/* ---- the lock of the one queue of pages ---- */

/* The number of pages that so many groups take in a second without other work. The size of pages makes no
 * difference. `evict`: each group has pages that have to be evicted first. */
static int lock_measure(struct gfb *b, const struct gfb_input *in, uint32_t groups, bool evict,
                        double *ret_rate)
{
    uint64_t count = VV_MAX((b->emulated ? 256u : 65536u) / groups, 1u);
    struct gfb_way way = {.mode = GFB_GPUFS_4K, .servers = 1};
    struct gf_args a = {.count = count, .result = b->result};
    struct gf_result result = {0};
    struct varve_gpufs *fs = NULL;
    double start, s = 0;
    int rc;

    way.cache_bytes = (evict ? 4096 : groups * count + groups) * 4 * KIB;
    rc = gfb_fs_open(b, &way, in, groups, &fs, a.file, &start);
    if (rc == 0)
        rc = varve_gpufs_handle(fs, &a.fs);
    /* The first run warms up and, if pages are evicted, fills the cache. */
    for (int run = 0; rc == 0 && run < 2; run++) {
        if (!evict)
            rc = varve_gpufs_drop(fs);
        if (rc == 0)
            rc = gfb_result_clear(b);
        a.step = (uint64_t)run;
        start = gfb_now_s();
        if (rc == 0)
            rc = gf_gpu_launch(b->gpu, GF_K_takes, groups, b->emulated ? 2 : 32, &a);
        if (rc == 0)
            rc = gf_gpu_sync(b->gpu);
        s = gfb_now_s() - start;
        if (rc == 0)
            rc = gfb_result_get(b, &result);
    }
    (void)varve_gpufs_close(fs);
    *ret_rate = (double)result.sum / s;
    return rc;
}

static struct {
    uint32_t groups;
    bool evict;
    double rate;
} locks[32];
static size_t nr_locks;

static int lock_rate(struct gfb *b, const struct gfb_input *in, uint32_t groups, bool evict,
                     double *ret_rate)
{
    int rc;

    for (size_t i = 0; i < nr_locks; i++)
        if (locks[i].groups == groups && locks[i].evict == evict) {
            *ret_rate = locks[i].rate;
            return 0;
        }
    rc = lock_measure(b, in, groups, evict, ret_rate);
    if (rc == 0 && nr_locks < VV_ARRAY_SIZE(locks)) {
        locks[nr_locks].groups = groups;
        locks[nr_locks].evict = evict;
        locks[nr_locks++].rate = *ret_rate;
    }
    return rc;
}

int gfb_rates_keep(struct gfb *b)
{
    for (size_t i = 0; i < nr_locks; i++) {
        char name[GFB_NAME];
        struct gfb_row *row;

        snprintf(name, sizeof(name), "lock-%u%s", locks[i].groups, locks[i].evict ? "-evict" : "");
        row = gfb_row(b, "rates", "pages", name);
        if (!row)
            return -ENOMEM;
        /* Pages of 4 KiB: the unit of all rows. */
        row->bytes = 4 * KIB;
        row->io_s = 1 / locks[i].rate;
    }
    return 0;
}

/* The time to get a page from the one queue: free pages first, then evicted ones. */
static int lock_s(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                  double fetched, double *ret_s)
{
    double cache = (double)way->cache_bytes, free_rate, evict_rate = INFINITY, evicts;
    int rc = lock_rate(b, in, way->blocks, false, &free_rate);

    evicts = fmax(1 - cache / fetched, 0);
    if (rc == 0 && evicts > 0)
        rc = lock_rate(b, in, way->blocks, true, &evict_rate);
    *ret_s = (1 - evicts) / free_rate + evicts / evict_rate;
    return rc;
}

static int predict_paper(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                         double *ret_s)
{
    uint64_t page = page_of(way);
    bool ahead = way->mode >= GFB_PREFETCH_GLOBAL, global = way->mode < GFB_PREFETCH;
    uint64_t request = ahead ? VV_MAX(way->ahead ? way->ahead : 64 * KIB, page) : page;
    uint64_t bytes = gfb_input_bytes(in), fetched = way->fetched ? way->fetched : bytes;
    double share = ceil((double)way->blocks / gfb_servers(b, way)), lock = 0, link;
    struct round r = {0};
    int rc = measure_round(b, way, in, request, &r);

    if (rc == 0 && global)
        rc = lock_s(b, way, in, (double)fetched, &lock);
    if (rc)
        return rc;
    link = (double)request / b->rates.pull;
    *ret_s = (double)bytes / ((double)request * way->blocks) *
             round_s(fmax(r.alone - r.read_alone - link, 0),
                     (struct station[]){{r.server, share},
                                        {link, way->blocks},
                                        {lock * (double)request / (double)page, way->blocks}},
                     3);
    return 0;
}

/* The seconds of one thread for a part of the input, scaled to all of it: fresh memory for the whole, reading,
 * copying, and freeing the memory. */
static int predict_one(struct gfb *b, const struct gfb_input *in, double *ret_s)
{
    unsigned k = largest(in);
    uint64_t part = VV_MIN(in->bytes[k], VV_MAX(in->bytes[k] / 8, 4 * sample_bytes(b))), done = 0;
    void *device = NULL;
    int rc = vv_device_mem_alloc(b->device, part, &device);
    double start = gfb_now_s();
    char *buf = rc ? NULL : malloc(in->bytes[k]);

    if (rc == 0 && !buf)
        rc = -ENOMEM;
    while (rc == 0 && done < part) {
        ssize_t n = pread(in->fd[k], buf + done, part - done, (off_t)done);

        if (n <= 0)
            rc = n ? -errno : -ENODATA;
        else
            done += (uint64_t)n;
    }
    if (rc == 0)
        rc = gfb_copy(b, device, buf, part);
    free(buf);
    *ret_s = (gfb_now_s() - start) / (double)part * (double)gfb_input_bytes(in);
    (void)vv_device_mem_free(b->device, device);
    return rc ? gfb_fail(b, rc, "%s: %s", in->path[k], strerror(-rc)) : 0;
}

/* Threads that read, and copies that follow. The slower of the two runs all the time, but copies begin when the
 * first buffers are full, and the last copies come after the last reads. */
static double predict_double(const struct gfb *b, double bytes)
{
    double some = fmin((double)b->o.servers * (double)b->buffer_bytes, bytes);
    double read = b->rates.buffers, copy = b->rates.copy;

    return b->rates.start_s + fmax(bytes / read + some / copy, bytes / copy + some / read);
}

int gfb_predict(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in, double *ret_s)
{
    *ret_s = NAN;
    if (gfb_is_ours(way->mode) || way->cold)
        return 0;
    if (way->mode == GFB_CPU)
        return predict_one(b, in, ret_s);
    if (way->mode == GFB_DOUBLE)
        *ret_s = predict_double(b, (double)gfb_input_bytes(in));
    else
        return predict_paper(b, way, in, ret_s);
    return 0;
}

int gfb_predict_after(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                      double *predicted_s)
{
    double after;
    int rc;

    if (way->mode != GFB_CPU || way->cold)
        return 0;
    rc = predict_one(b, in, &after);
    *predicted_s = (*predicted_s + after) / 2;
    return rc;
}
