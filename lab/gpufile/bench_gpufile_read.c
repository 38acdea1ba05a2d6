/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting files into the memory of the GPU, in every way that is compared, and checking the result. Buffers and
 * file systems of a way are made before the clock starts; all work for an input counts, mapping included.
 *
 * All ways are given the same number of threads, except `cpu`, which has one by definition, and the paper's ways,
 * which have four as in the paper; its best is also run with as many as varve.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <varve/gpufile_device.h>

#include "base/clock.h"
#include "base/thread.h"
#include "gpufile/gpufile_hooks.h"
#include "lab/gpufile/bench_gpufile.h"
#include "lab/gpufile/gf_kernels.h"

#define KIB 1024u
#define MIB (1024u * KIB)

/* Threads of the host that serve kernels, in the paper. */
#define PAPER_SERVERS 4u

/* Bytes per read(2), which takes 2 GiB at most. */
#define READ_BYTES ((size_t)1 << 30)

double gfb_now_s(void)
{
    return (double)vv_now_ns() * 1e-9;
}

uint64_t gfb_input_bytes(const struct gfb_input *in)
{
    uint64_t bytes = 0;

    for (unsigned k = 0; k < in->n; k++)
        bytes += in->bytes[k];
    return bytes;
}

int gfb_input_new(struct gfb *b, const struct gf_shape *s, struct gfb_input *ret_input)
{
    struct gfb_input in = {.n = gf_apps[s->app].n_files, .seed = s->seed, .cols = s->cols};
    int rc = 0;

    for (unsigned k = 0; k < 3; k++)
        in.fd[k] = -1;
    for (unsigned k = 0; rc == 0 && k < in.n; k++) {
        snprintf(in.path[k], sizeof(in.path[k]), "%s/varve-gpufile.XXXXXX", b->o.folder);
        in.fd[k] = mkostemp(in.path[k], O_CLOEXEC);
        in.bytes[k] = s->bytes[k];
        in.content[k] = s->content[k];
        rc = in.fd[k] < 0 ? -errno : gf_shape_write(s, k, in.fd[k], b->o.servers);
        if (rc)
            (void)gfb_fail(b, rc, "%s: %s", in.path[k], strerror(-rc));
    }
    if (rc)
        gfb_input_fini(&in);
    else
        *ret_input = in;
    return rc;
}

void gfb_input_fini(struct gfb_input *in)
{
    for (unsigned k = 0; k < in->n; k++)
        if (in->fd[k] >= 0) {
            (void)close(in->fd[k]);
            (void)unlink(in->path[k]);
        }
    in->n = 0;
}

void gfb_input_drop(const struct gfb_input *in)
{
    for (unsigned k = 0; k < in->n; k++) {
        /* Pages that are not on the disk yet cannot be dropped. */
        (void)fdatasync(in->fd[k]);
        (void)posix_fadvise(in->fd[k], 0, 0, POSIX_FADV_DONTNEED);
    }
}

int gfb_copy(struct gfb *b, void *dst, const void *src, size_t bytes)
{
    struct vv_copy_seg seg = {dst, src, bytes};
    int rc = vv_device_copy_async(b->device, b->stream, &seg, 1);

    if (rc == 0)
        rc = vv_device_event_record(b->device, b->event, b->stream);
    return rc ? rc : vv_device_event_wait(b->device, b->event, -1);
}

int gfb_result_clear(struct gfb *b)
{
    static const struct gf_result none;

    return gfb_copy(b, b->result, &none, sizeof(none));
}

int gfb_result_get(struct gfb *b, struct gf_result *ret_result)
{
    struct gf_result r;
    int rc = gf_gpu_sync(b->gpu);

    if (rc)
        return gfb_fail(b, rc, "a kernel has failed");
    rc = gfb_copy(b, &r, b->result, sizeof(r));
    if (rc == 0 && r.failed) {
        rc = -(int)r.failed;
        return gfb_fail(b, rc, "in the kernel: %s", varve_strerror(rc));
    }
    if (rc == 0)
        *ret_result = r;
    return rc;
}

/* ---- file systems ---- */

uint32_t gfb_servers(const struct gfb *b, const struct gfb_way *w)
{
    bool paper = gfb_is_paper(w->mode) && w->mode != GFB_PREFETCH_MANY;

    return w->servers ? w->servers : paper ? VV_MIN(PAPER_SERVERS, b->o.servers) : b->o.servers;
}

static void way_opts(const struct gfb *b, const struct gfb_way *w, struct varve_gpufs_opts *o)
{
    bool paper = gfb_is_paper(w->mode), own = w->own || w->mode >= GFB_PREFETCH;

    o->page_bytes = w->page ? w->page : w->mode == GFB_GPUFS_64K ? 64 * KIB : 4 * KIB;
    if (paper) {
        o->queue = VV_GQUEUE_SLOTS;
        o->replace = own ? VARVE_GREPLACE_OWN : VV_GREPLACE_GLOBAL;
        o->bypass = VARVE_GBYPASS_NEVER;
    }
    if (w->mode == GFB_GPUFS_4K || w->mode == GFB_GPUFS_64K) {
        o->readahead = VARVE_GREADAHEAD_OFF;
        o->readahead_bytes = o->page_bytes;
        o->split_bytes = VV_MIN(o->page_bytes, 2 * MIB);
    } else if (paper) {
        o->readahead = VV_GREADAHEAD_FIXED;
        o->readahead_bytes = VV_MAX(w->ahead ? w->ahead : 64 * KIB, o->page_bytes);
        o->split_bytes = VV_MIN(o->readahead_bytes, 2 * MIB);
    } else {
        o->readahead_bytes = w->ahead;
        if (w->mode == GFB_VARVE_KEPT)
            o->bypass = VARVE_GBYPASS_NEVER;
        if (w->cold && w->mode != GFB_VARVE_MAPPED) {
            o->direct = 1;
            o->io = VARVE_GIO_URING;
        }
    }
    o->servers = gfb_servers(b, w);
    o->map_limit = UINT64_C(1) << 44;
    o->timeout_ms = b->emulated ? 60000 : 20000; /* threads may have to wait for a processor */
}

int gfb_fs_open(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                uint32_t streams, struct varve_gpufs **ret_fs, uint32_t ret_ids[3],
                double *ret_map_s)
{
    struct varve_error e = {.error_size = sizeof(e)};
    struct varve_gpufs_opts o;
    struct varve_gpufs *fs;
    double start;
    int rc = varve_gpufs_opts_init(&o, sizeof(o));

    if (rc)
        return rc;
    way_opts(b, way, &o);
    o.streams = streams;
    o.cache_bytes = VV_MAX(way->cache_bytes, 3 * (uint64_t)streams * o.page_bytes);
    rc = vv_gpufile_open(b->ctx, &o, &fs);
    if (rc == -ENOTSUP && o.io == VARVE_GIO_URING) {
        o.io = VARVE_GIO_PREAD;
        rc = vv_gpufile_open(b->ctx, &o, &fs);
    }
    if (rc)
        return gfb_fail(b, rc, "opening: %s",
                        varve_last_error(b->ctx, &e) == 0 ? e.text : varve_strerror(rc));
    start = gfb_now_s();
    for (unsigned k = 0; rc == 0 && k < in->n; k++)
        rc = varve_gpufs_register(
            fs, in->path[k],
            VARVE_GFILE_READ | (way->mode == GFB_VARVE_MAPPED ? VARVE_GFILE_MAP : 0), &ret_ids[k]);
    *ret_map_s = way->mode == GFB_VARVE_MAPPED ? gfb_now_s() - start : 0;
    if (rc) {
        (void)varve_gpufs_close(fs);
        return gfb_fail(b, rc, "registering: %s", varve_strerror(rc));
    }
    *ret_fs = fs;
    return 0;
}

/* ---- readers ---- */

struct gfb_reader {
    struct gfb *b;
    struct gfb_way way;
    const struct gfb_input *in;
    struct varve_gpufs *fs; /* NULL: none is needed */
    struct gf_args args;
    double map_s;

    /* Arguments of many threads. */
    unsigned char *const *dst;
    _Atomic uint64_t next; /* piece */
    _Atomic int rc;
};

int gfb_reader_new(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                   struct gfb_reader **ret_reader)
{
    struct gfb_reader *r = calloc(1, sizeof(*r));
    uint32_t page = way->page ? way->page : 0;
    int rc = 0;

    if (!r)
        return gfb_fail(b, -ENOMEM, "out of memory");
    r->b = b;
    r->way = *way;
    r->in = in;
    if (way->mode > GFB_DOUBLE) {
        rc = gfb_fs_open(b, way, in, way->blocks, &r->fs, r->args.file, &r->map_s);
        if (rc == 0)
            rc = varve_gpufs_handle(r->fs, &r->args.fs);
        r->args.n_files = in->n;
        r->args.laps = 1;
        r->args.piece = way->piece ? way->piece : VV_MAX(128 * KIB, page);
        r->args.result = b->result;
        /* Advice of a program that reads its input once. */
        if (way->mode == GFB_VARVE)
            r->args.advice = VARVE_GADV_NOREUSE;
        memcpy(r->args.bytes, in->bytes, sizeof(in->bytes));
    }
    if (rc) {
        gfb_reader_free(r);
        return rc;
    }
    *ret_reader = r;
    return 0;
}

void gfb_reader_free(struct gfb_reader *r)
{
    if (r && r->fs)
        (void)varve_gpufs_close(r->fs);
    free(r);
}

double gfb_reader_map_s(const struct gfb_reader *r)
{
    return r->map_s;
}

/* As a program without this library: the whole file into memory, and a copy. */
static int read_one(struct gfb_reader *r, unsigned char *const dst[3])
{
    for (unsigned k = 0; k < r->in->n; k++) {
        size_t bytes = r->in->bytes[k], done = 0;
        char *buf = malloc(bytes);
        int rc = buf && lseek(r->in->fd[k], 0, SEEK_SET) == 0 ? 0 : -ENOMEM;

        while (rc == 0 && done < bytes) {
            ssize_t n = read(r->in->fd[k], buf + done, VV_MIN(bytes - done, READ_BYTES));

            if (n < 0 && errno != EINTR)
                rc = -errno;
            else if (n == 0)
                rc = -ENODATA;
            else if (n > 0)
                done += (size_t)n;
        }
        if (rc == 0)
            rc = gfb_copy(r->b, dst[k], buf, bytes);
        free(buf);
        if (rc)
            return gfb_fail(r->b, rc, "%s: %s", r->in->path[k], strerror(-rc));
    }
    return 0;
}

/* One piece after another, into two buffers in turn; a buffer is filled again when its copy has
 * ended. */
static int double_loop(struct gfb_reader *r, unsigned char *buffers, struct vv_stream *stream,
                       struct vv_event *const events[2])
{
    struct vv_device *d = r->b->device;
    size_t size = r->b->buffer_bytes;
    int rc = 0;

    for (unsigned turn = 0; rc == 0; turn++) {
        unsigned char *buf = buffers + turn % 2 * size;
        uint64_t at = atomic_fetch_add(&r->next, 1) * size;
        struct vv_copy_seg seg = {.src = buf};
        unsigned k = 0;
        size_t done = 0;

        /* Pieces of the first file, then of the next. */
        for (; k < r->in->n && at >= vv_align_up(r->in->bytes[k], size); k++)
            at -= vv_align_up(r->in->bytes[k], size);
        if (k == r->in->n)
            break;
        seg.dst = r->dst[k] + at;
        seg.bytes = VV_MIN(size, r->in->bytes[k] - at);
        rc = vv_device_event_wait(d, events[turn % 2], -1);
        while (rc == 0 && done < seg.bytes) {
            ssize_t n = pread(r->in->fd[k], buf + done, seg.bytes - done, (off_t)(at + done));

            if (n < 0 && errno != EINTR)
                rc = -errno;
            else if (n == 0)
                rc = -ENODATA;
            else if (n > 0)
                done += (size_t)n;
        }
        if (rc == 0)
            rc = vv_device_copy_async(d, stream, &seg, 1);
        if (rc == 0)
            rc = vv_device_event_record(d, events[turn % 2], stream);
    }
    for (int i = 0; i < 2; i++) {
        int one = vv_device_event_wait(d, events[i], -1);

        rc = rc ? rc : one;
    }
    return rc;
}

struct double_thread {
    struct gfb_reader *r;
    unsigned index;
    pthread_t id;
    struct vv_stream *stream;
    struct vv_event *events[2];
};

static void *double_main(void *arg)
{
    struct double_thread *t = arg;
    int rc = double_loop(t->r, t->r->b->pinned + 2 * t->index * t->r->b->buffer_bytes, t->stream,
                         t->events);

    if (rc)
        atomic_store(&t->r->rc, rc);
    return NULL;
}

static int read_double(struct gfb_reader *r, unsigned char *const dst[3], double *ret_s)
{
    struct double_thread t[GFB_SERVERS_MAX] = {0};
    struct vv_device *d = r->b->device;
    unsigned n = r->b->o.servers, started = 0;
    double start;
    int rc = 0;

    r->dst = dst;
    atomic_store(&r->next, 0);
    atomic_store(&r->rc, 0);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        t[i].r = r;
        t[i].index = i;
        rc = vv_device_stream_new(d, &t[i].stream);
        for (int e = 0; rc == 0 && e < 2; e++)
            rc = vv_device_event_new(d, &t[i].events[e]);
    }
    start = gfb_now_s();
    for (; rc == 0 && started < n; started += rc == 0)
        rc = vv_thread_start(&t[started].id, double_main, &t[started]);
    for (unsigned i = 0; i < started; i++)
        pthread_join(t[i].id, NULL);
    *ret_s = gfb_now_s() - start;
    for (unsigned i = 0; i < n; i++) {
        for (int e = 0; e < 2; e++)
            vv_device_event_free(d, t[i].events[e]);
        vv_device_stream_free(d, t[i].stream);
    }
    if (rc == 0)
        rc = atomic_load(&r->rc);
    return rc ? gfb_fail(r->b, rc, "double buffers: %s", strerror(-rc)) : 0;
}

/* Adds the numbers of requests and answers to the error: they tell a request that no server saw from an answer that the
 * kernel did not see. */
static void tell_waiting(struct gfb_reader *r)
{
    struct varve_gpufs_stats st = {.stats_size = sizeof(st)};
    char why[GFB_TEXT / 2];

    snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, r->b->error);
    if (varve_gpufs_stats(r->fs, &st) == 0)
        (void)gfb_fail(r->b, 0, "%s; %llu requests, %llu answers", why,
                       (unsigned long long)st.requests, (unsigned long long)st.answered);
}

static int read_files(struct gfb_reader *r, unsigned char *const dst[3], double *ret_s)
{
    struct gf_result result;
    double start;
    int rc = varve_gpufs_drop(r->fs);

    if (rc == 0)
        rc = gfb_result_clear(r->b);
    if (rc)
        return gfb_fail(r->b, rc, "dropping pages: %s", varve_strerror(rc));
    for (unsigned k = 0; k < 3; k++)
        r->args.dst[k] = dst[k];
    start = gfb_now_s();
    rc = gf_gpu_launch(r->b->gpu, GF_K_read, r->way.blocks, r->way.threads, &r->args);
    if (rc == 0)
        rc = gf_gpu_sync(r->b->gpu);
    *ret_s = gfb_now_s() - start;
    if (rc)
        return gfb_fail(r->b, rc, "the kernel that reads has failed");
    rc = gfb_result_get(r->b, &result);
    if (rc == -ETIMEDOUT)
        tell_waiting(r);
    if (rc == 0 && result.bytes != gfb_input_bytes(r->in))
        rc = gfb_fail(r->b, -EIO, "read %llu bytes of %llu", (unsigned long long)result.bytes,
                      (unsigned long long)gfb_input_bytes(r->in));
    return rc;
}

int gfb_reader_read(struct gfb_reader *r, unsigned char *const dst[3], double *ret_s)
{
    double start, s = 0;
    int rc;

    if (r->way.cold)
        gfb_input_drop(r->in);
    start = gfb_now_s();
    if (r->way.mode == GFB_CPU) {
        rc = read_one(r, dst);
        s = gfb_now_s() - start;
    } else if (r->way.mode == GFB_DOUBLE) {
        rc = read_double(r, dst, &s);
    } else {
        rc = read_files(r, dst, &s);
    }
    if (rc == 0)
        *ret_s = s;
    return rc;
}

int gfb_check(struct gfb *b, const struct gfb_input *in, unsigned char *const dst[3],
              uint64_t *ret_wrong)
{
    struct gf_result result;
    unsigned blocks, threads;
    int rc = gfb_result_clear(b);

    gf_app_grid(b->gpu, &blocks, &threads);
    for (unsigned k = 0; rc == 0 && k < in->n; k++) {
        struct gf_args a = {.in = {(const uint32_t *)(const void *)dst[k]},
                            .words = in->bytes[k] / 4,
                            .seed = in->seed,
                            .tag = k,
                            .cols = in->cols,
                            .content = in->content[k],
                            .result = b->result};

        rc = gf_gpu_launch(b->gpu, GF_K_check, blocks, threads, &a);
    }
    if (rc == 0)
        rc = gfb_result_get(b, &result);
    if (rc == 0)
        *ret_wrong = result.wrong;
    return rc;
}
