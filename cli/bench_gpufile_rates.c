/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What limits the ways that ours is compared with. A baseline counts when its time is explained: from rates
 * that are measured apart from it, its time is worked out and told beside what was measured.
 *
 *   one thread          reads into fresh memory, and then copies from pageable memory: the times add up
 *   double buffers      the slower of the threads' preads and the copies from pinned memory
 *   the papers' ways    as many times what one block gets alone as there are blocks, but no more than the
 *                       servers can do, and than the link carries. What servers can do: as many times what
 *                       one does that is never idle, less what threads lose when they read at once, and
 *                       the busiest of them has more than its share of the slots. With one queue of
 *                       pages for all, which a lock protects, no more than a page for each time that the
 *                       lock is held: the difference that evicting makes to a block alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <varve/gpufile_device.h>

#include "cli/bench_gpufile.h"
#include "sim/gf_kernels.h"
#include "tier/aio.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

enum { DEPTH_MAX = 64 };

/* How much is moved to measure a rate. */
static uint64_t sample_bytes(const struct gfb *b)
{
    return b->emulated ? 256 * KIB : 256 * MIB;
}

/* ---- the link ---- */

static int measure_copy(struct gfb *b, unsigned char *device, double *ret_rate)
{
    struct vv_copy_seg seg = {device, b->pinned, VV_MIN(b->pinned_bytes, sample_bytes(b))};
    uint64_t done = 0, all = (b->emulated ? 4 : 64) * seg.bytes;
    double start = gfb_now_s();
    int rc = 0;

    for (; rc == 0 && done < all; done += seg.bytes)
        rc = vv_device_copy_async(b->device, b->stream, &seg, 1);
    if (rc == 0)
        rc = vv_device_event_record(b->device, b->event, b->stream);
    if (rc == 0)
        rc = vv_device_event_wait(b->device, b->event, -1);
    *ret_rate = (double)done / (gfb_now_s() - start);
    return rc;
}

static int measure_pageable(struct gfb *b, unsigned char *device, double *ret_rate)
{
    uint64_t bytes = sample_bytes(b);
    char *p = malloc(bytes);
    double start, s = 0;
    int rc = p ? 0 : -ENOMEM;

    for (int run = 0; rc == 0 && run < 2; run++) {
        memset(p, 1, bytes);
        start = gfb_now_s();
        rc = gfb_copy(b, device, p, bytes);
        s = gfb_now_s() - start;
    }
    free(p);
    *ret_rate = (double)bytes / s;
    return rc;
}

static int measure_pull(struct gfb *b, unsigned char *device, double *ret_rate)
{
    unsigned blocks = b->o.blocks, threads = b->emulated ? 4 : 256;
    uint64_t warps = (uint64_t)blocks * (threads / (b->emulated ? 2 : 32)), piece = 4 * KIB;
    struct gf_args a = {.dst = {device}, .piece = piece};
    uint64_t bytes = VV_MIN(b->pinned_bytes, sample_bytes(b)) / piece * piece;
    int rc = 0, laps = b->emulated ? 1 : 8;
    double best = 0;

    if (warps * piece > sample_bytes(b))
        return -EINVAL;
    a.in[0] = b->pinned_dev;
    a.bytes[0] = bytes;
    for (int run = 0; rc == 0 && run < 3; run++) {
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

/* One thread reads a file of the page cache into memory that it has not used before; all of them read
 * it into memory that they have. */
static int measure_reads(struct gfb *b, double *ret_one, double *ret_all)
{
    struct gf_shape s = {.app = GF_2DCONV, .seed = b->o.seed, .rows = 1, .cols = 1};
    struct gfb_input in;
    char *p;
    double start;
    ssize_t n;
    int rc;

    s.bytes[0] = sample_bytes(b);
    rc = gfb_input_new(b, &s, &in);
    if (rc)
        return rc;
    p = malloc(s.bytes[0]);
    start = gfb_now_s();
    n = p ? pread(in.fd[0], p, s.bytes[0], 0) : -1;
    *ret_one = (double)s.bytes[0] / (gfb_now_s() - start);
    free(p);
    rc = n == (ssize_t)s.bytes[0] ? 0 : -EIO;
    if (rc == 0)
        rc = gfb_pread_rate(b, &in, &(struct gfb_preads){.piece = b->emulated ? 64 * KIB : MIB},
                            ret_all);
    gfb_input_fini(&in);
    return rc;
}

/* Among the rows, so that they are kept with them. */
static int rate_row(struct gfb *b, const char *name, double rate)
{
    struct gfb_row *row = gfb_row(b, "rates", "alone", name);

    if (!row)
        return -ENOMEM;
    row->bytes = sample_bytes(b);
    row->io_s = (double)row->bytes / rate;
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
        rc = measure_reads(b, &r->read_one, &r->pread);
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
    uint64_t bytes, piece;
    uint64_t among; /* anywhere among so many pieces; 0: on and on */
    int rc;         /* Synchronization: atomic, relaxed */
};

/* With a file of its own, as servers have: small reads of one open file hold each other up. */
static void pread_part(void *arg, uint64_t first, uint64_t last)
{
    struct preads *p = arg;
    char *buf = aligned_alloc(4096, vv_align_up(p->piece, UINT64_C(4096)));
    int fd = open(p->path, p->flags), rc = fd < 0 ? -errno : buf ? 0 : -ENOMEM;

    if (buf)
        memset(buf, 1, p->piece);
    for (uint64_t i = first; rc == 0 && i < last; i++) {
        uint64_t at = p->among ? vv_pattern_mix(i) % p->among : i;

        if (pread(fd, buf, p->piece, (off_t)(at * p->piece)) < 0)
            rc = -errno;
    }
    if (rc)
        __atomic_store_n(&p->rc, rc, __ATOMIC_RELAXED);
    if (fd >= 0)
        (void)close(fd);
    free(buf);
}

/* Whether the file can be read past the page cache. */
static bool has_direct(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

int gfb_pread_rate(struct gfb *b, const struct gfb_input *in, const struct gfb_preads *how,
                   double *ret_rate)
{
    struct preads p = {.path = in->path[0],
                       .flags = O_RDONLY | O_CLOEXEC,
                       .piece = how->piece,
                       .among = how->anywhere ? in->bytes[0] / how->piece : 0};
    uint32_t threads = how->threads ? how->threads : b->o.servers;
    uint64_t most = b->emulated ? MIB : 256 * MIB * threads;
    double start;
    int rc;

    /* Small pieces are slow, and a part of the file tells as much. */
    p.bytes = VV_MIN(in->bytes[0], p.piece < 64 * KIB ? most / 4 : most);
    if (how->direct && has_direct(p.path))
        p.flags |= O_DIRECT;
    start = gfb_now_s();
    rc = gf_parallel(vv_div_up(p.bytes, p.piece), threads, pread_part, &p);
    *ret_rate = (double)p.bytes / (gfb_now_s() - start);
    rc = rc ? rc : p.rc;
    return rc ? gfb_fail(b, rc, "%s: %s", in->path[0], strerror(-rc)) : 0;
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
    /* After an error, too, until nothing is under way: the requests are on this stack. */
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

/* Reads a small file in that way, with so many blocks and servers; seconds for each byte. `evict`: the
 * cache is full all the time. */
static int alone(struct gfb *b, const struct gfb_way *way, uint32_t blocks, uint32_t servers,
                 bool evict, uint64_t request, double *ret_s)
{
    uint64_t requests = blocks > 1 ? blocks * (b->emulated ? 4 : 64) : b->emulated ? 16 : 1024;
    struct gf_shape s = {.app = GF_2DCONV, .seed = b->o.seed, .rows = 1, .cols = 1};
    struct gfb_way one = *way;
    unsigned char *dst[3] = {NULL};
    struct gfb_reader *r = NULL;
    struct gfb_input in;
    void *p = NULL;
    double best = INFINITY, t;
    int rc;

    s.bytes[0] = VV_MIN(requests * request, b->emulated ? MIB : 512 * MIB) / request * request;
    s.bytes[0] = VV_MAX(s.bytes[0], VV_MAX(4, blocks) * request);
    one.blocks = blocks;
    one.servers = servers;
    one.cold = false;
    one.cache_bytes = evict ? 8 * page_of(way) : s.bytes[0] + 8 * page_of(way);
    rc = gfb_input_new(b, &s, &in);
    if (rc)
        return rc;
    rc = vv_device_mem_alloc(b->device, s.bytes[0], &p);
    dst[0] = p;
    if (rc == 0)
        rc = gfb_reader_new(b, &one, &in, &r);
    for (int run = 0; rc == 0 && run < 2; run++) {
        rc = gfb_reader_read(r, dst, &t);
        best = fmin(best, t);
    }
    gfb_reader_free(r);
    (void)vv_device_mem_free(b->device, p);
    gfb_input_fini(&in);
    if (rc == 0)
        *ret_s = best / (double)s.bytes[0];
    return rc;
}

/* What all servers can do, in bytes per second. */
static int all_servers(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                       uint64_t request, double *ret_rate)
{
    double s, together, by_one;
    int rc = alone(b, way, way->blocks, 1, false, request, &s);

    if (rc == 0)
        rc = gfb_pread_rate(b, in, &(struct gfb_preads){.piece = request}, &together);
    if (rc == 0)
        rc = gfb_pread_rate(b, in, &(struct gfb_preads){.piece = request, .threads = 1}, &by_one);
    if (rc == 0)
        *ret_rate = 1 / s * together / by_one;
    return rc;
}

/* The same question is asked again and again. */
struct known {
    enum gfb_mode mode;
    uint32_t page, ahead;
    bool evict;
    double s;       /* for a byte, of one block */
    double servers; /* bytes per second */
};

static struct known known[64];
static size_t nr_known;

static int ask(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in, bool evict,
               uint64_t request, struct known *ret)
{
    struct known k = {.mode = way->mode, .page = way->page, .ahead = way->ahead, .evict = evict};
    int rc;

    for (size_t i = 0; i < nr_known; i++)
        if (known[i].mode == k.mode && known[i].page == k.page && known[i].ahead == k.ahead &&
            known[i].evict == evict) {
            *ret = known[i];
            return 0;
        }
    rc = alone(b, way, 1, 0, evict, request, &k.s);
    if (rc == 0 && !evict)
        rc = all_servers(b, way, in, request, &k.servers);
    if (rc)
        return rc;
    if (nr_known < VV_ARRAY_SIZE(known))
        known[nr_known++] = k;
    *ret = k;
    return 0;
}

static int predict_paper(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                         double *ret_s)
{
    uint64_t page = page_of(way);
    bool ahead = way->mode == GFB_PREFETCH || way->mode == GFB_PREFETCH_GLOBAL;
    uint64_t request = ahead ? VV_MAX(way->ahead ? way->ahead : 64 * KIB, page) : page;
    uint64_t bytes = gfb_input_bytes(in);
    bool evict = bytes > way->cache_bytes, global = way->mode != GFB_PREFETCH;
    double share = (double)way->blocks / b->o.servers, rate;
    struct known k, full;
    int rc = ask(b, way, in, false, request, &k);

    if (rc)
        return rc;
    rate = fmin(way->blocks / k.s, fmin(k.servers * share / ceil(share), b->rates.pull));
    if (evict && global) {
        rc = ask(b, way, in, true, request, &full);
        if (rc)
            return rc;
        if (full.s > k.s)
            rate = fmin(rate, 1 / (full.s - k.s));
    }
    *ret_s = (double)bytes / rate;
    return 0;
}

int gfb_predict(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in, double *ret_s)
{
    double bytes = (double)gfb_input_bytes(in), rate;
    int rc;

    if (gfb_is_ours(way->mode) || way->cold) {
        *ret_s = NAN;
        return 0;
    }
    if (way->mode == GFB_CPU) {
        *ret_s = bytes / b->rates.read_one + bytes / b->rates.pageable;
        return 0;
    }
    if (way->mode != GFB_DOUBLE)
        return predict_paper(b, way, in, ret_s);
    rc = gfb_pread_rate(b, in, &(struct gfb_preads){.piece = b->buffer_bytes}, &rate);
    *ret_s = bytes / fmin(rate, b->rates.copy);
    return rc;
}
