/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two lanes, one per direction: a stream and two events each, so that the next batch is submitted
 * while the one before is under way. The lanes share no buffer, so both can run at once, a thread
 * each. Copies on the device use the first lane.
 *
 * Risk: host memory must not be freed under a copy. Every loop waits for its copies, also after an error. Copies
 * of a lost device cannot be waited for, and do not touch memory any more (device.h). Buffers are unregistered
 * before they are unmapped.
 */
#include "cli/measure/probe_device.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "cli/measure/probe_private.h"
#include "cli/measure/samples.h"

#define UNIT            ((size_t)2 << 20)
#define BATCH_BYTES     ((size_t)16 << 20)
#define IN_FLIGHT       2
#define SEGS_MAX        256
#define SAMPLES_MAX     65536
#define STREAM_DEPTH    8
#define APART_COPIES    50
#define APART_MOST_NS   (20 * VV_NS_PER_MS)
#define PIN_THREADS_MAX 64

struct lane {
    struct probe_device *probe;
    bool down;
    void *dev;
    unsigned char *host;
    struct vv_stream *stream;
    struct vv_event *event[IN_FLIGHT];
    /* State of the running loop. */
    size_t seg_bytes;
    uint64_t deadline_ns;
};

struct probe_device {
    struct vv_device *device;
    size_t bytes;
    unsigned char *pageable;
    struct lane down, up;
    uint64_t *samples;
};

static unsigned char *map_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static int lane_init(struct probe_device *p, struct lane *l, bool down)
{
    int rc = vv_device_mem_alloc(p->device, p->bytes, &l->dev);
    unsigned char *host;

    l->probe = p;
    l->down = down;
    if (rc == 0)
        rc = vv_device_stream_new(p->device, &l->stream);
    for (int i = 0; rc == 0 && i < IN_FLIGHT; i++)
        rc = vv_device_event_new(p->device, &l->event[i]);
    if (rc < 0)
        return rc;
    host = map_memory(p->bytes);
    if (!host)
        return -ENOMEM;
    memset(host, 1, p->bytes);
    rc = vv_device_host_register(p->device, host, p->bytes);
    if (rc < 0)
        munmap(host, p->bytes);
    else
        l->host = host; /* from here on it has to be unregistered */
    return rc;
}

static void lane_fini(struct probe_device *p, struct lane *l)
{
    for (int i = 0; i < IN_FLIGHT; i++)
        if (l->event[i])
            vv_device_event_free(p->device, l->event[i]);
    if (l->stream)
        vv_device_stream_free(p->device, l->stream);
    if (l->host) {
        (void)vv_device_host_unregister(p->device, l->host);
        munmap(l->host, p->bytes);
    }
    if (l->dev)
        (void)vv_device_mem_free(p->device, l->dev);
}

int probe_device_new(struct vv_device *device, size_t bytes, struct probe_device **ret_probe)
{
    struct probe_device *p;
    int rc;

    if (bytes == 0 || bytes % UNIT != 0)
        return -EINVAL;
    p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->device = device;
    p->bytes = bytes;
    p->samples = calloc(SAMPLES_MAX, sizeof(*p->samples));
    p->pageable = map_memory(bytes);
    rc = p->samples && p->pageable ? 0 : -ENOMEM;
    if (rc == 0) {
        memset(p->pageable, 1, bytes);
        rc = lane_init(p, &p->down, true);
    }
    if (rc == 0)
        rc = lane_init(p, &p->up, false);
    if (rc < 0)
        probe_device_free(p);
    else
        *ret_probe = p;
    return rc;
}

void probe_device_free(struct probe_device *p)
{
    if (!p)
        return;
    lane_fini(p, &p->down);
    lane_fini(p, &p->up);
    if (p->pageable)
        munmap(p->pageable, p->bytes);
    free(p->samples);
    free(p);
}

/* ---- copies on the device ---- */

/* One copy from one buffer to the other, with a wait for its end. */
static int copy_once(struct probe_device *p, uint64_t *ret_ns)
{
    struct vv_copy_seg seg = {.dst = p->up.dev, .src = p->down.dev, .bytes = p->bytes};
    struct lane *l = &p->down;
    uint64_t start = vv_now_ns();
    int rc = vv_device_copy_async(p->device, l->stream, &seg, 1);

    if (rc == 0)
        rc = vv_device_event_record(p->device, l->event[0], l->stream);
    if (rc == 0)
        rc = vv_device_event_wait(p->device, l->event[0], -1);
    if (rc == 0)
        *ret_ns = VV_MAX(vv_now_ns() - start, UINT64_C(1));
    return rc;
}

static void spend(uint64_t ns)
{
    uint64_t until_ns = vv_now_ns() + ns;

    while (vv_now_ns() < until_ns)
        ;
}

int probe_device_copy(struct probe_device *p, double seconds, uint64_t interval_ns,
                      struct probe_copies *ret_copies)
{
    uint64_t deadline, ns = 0;
    size_t n = 0, least = interval_ns > 0 ? APART_COPIES : 1;
    int rc;

    if (!(seconds >= 0 && seconds <= 3600))
        return -EINVAL;
    rc = copy_once(p, &ns); /* the first one warms up */
    deadline = vv_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        spend(VV_MIN(interval_ns, APART_MOST_NS));
        if (rc == 0)
            rc = copy_once(p, &ns);
        if (rc < 0)
            return rc;
        p->samples[n++] = ns;
    } while (n < SAMPLES_MAX && (n < least || vv_now_ns() < deadline));
    samples_sort_ns(p->samples, n);
    *ret_copies = (struct probe_copies){
        .bps = (double)p->bytes * 1e9 / (double)p->samples[n / 2],
        .median_ns = p->samples[n / 2],
        .worst_ns = p->samples[n - 1],
    };
    return 0;
}

int probe_device_copy_stream(struct probe_device *p, double seconds, double *ret_bps)
{
    struct vv_copy_seg seg = {.dst = p->up.dev, .src = p->down.dev, .bytes = p->bytes};
    struct lane *l = &p->down;
    uint64_t deadline, start;
    double best = 0;
    int rc = 0;

    if (!(seconds >= 0 && seconds <= 3600))
        return -EINVAL;
    deadline = vv_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        start = vv_now_ns();
        for (int i = 0; rc == 0 && i < STREAM_DEPTH; i++)
            rc = vv_device_copy_async(p->device, l->stream, &seg, 1);
        if (rc == 0)
            rc = vv_device_event_record(p->device, l->event[0], l->stream);
        if (rc == 0)
            rc = vv_device_event_wait(p->device, l->event[0], -1);
        best = fmax(best, (double)p->bytes * STREAM_DEPTH * 1e9 /
                              (double)VV_MAX(vv_now_ns() - start, UINT64_C(1)));
    } while (rc == 0 && vv_now_ns() < deadline);
    if (rc == 0)
        *ret_bps = best;
    return rc;
}

/* ---- the link ---- */

/* Segments in opposite order on the two sides, so that they cannot be joined into one copy. */
static size_t fill_batch(const struct lane *l, size_t at, size_t bytes, struct vv_copy_seg *segs)
{
    size_t n = bytes / l->seg_bytes;

    for (size_t i = 0; i < n; i++) {
        unsigned char *dev = (unsigned char *)l->dev + at + i * l->seg_bytes;
        unsigned char *host = l->host + at + (n - 1 - i) * l->seg_bytes;

        segs[i] = (struct vv_copy_seg){
            .dst = l->down ? host : dev, .src = l->down ? dev : host, .bytes = l->seg_bytes};
    }
    return n;
}

static void *lane_body(void *arg)
{
    struct probe_worker *w = arg;
    struct lane *l = w->job;
    struct vv_device *d = l->probe->device;
    size_t bytes = l->probe->bytes, batch = VV_MIN(bytes, VV_MAX(BATCH_BYTES, l->seg_bytes));
    struct vv_copy_seg segs[SEGS_MAX];
    size_t in_flight[IN_FLIGHT] = {0}, at = 0;
    unsigned slot = 0;

    do {
        size_t part = VV_MIN(batch, bytes - at);

        if (in_flight[slot])
            w->rc = vv_device_event_wait(d, l->event[slot], -1);
        w->bytes += in_flight[slot];
        in_flight[slot] = 0;
        if (w->rc == 0)
            w->rc = vv_device_copy_async(d, l->stream, segs, fill_batch(l, at, part, segs));
        if (w->rc == 0)
            w->rc = vv_device_event_record(d, l->event[slot], l->stream);
        if (w->rc == 0)
            in_flight[slot] = part;
        at = at + part == bytes ? 0 : at + part;
        slot = (slot + 1) % IN_FLIGHT;
    } while (w->rc == 0 && vv_now_ns() < l->deadline_ns);
    for (unsigned i = 0; i < IN_FLIGHT; i++, slot = (slot + 1) % IN_FLIGHT) {
        int rc = in_flight[slot] ? vv_device_event_wait(d, l->event[slot], -1) : 0;

        w->bytes += in_flight[slot];
        if (w->rc == 0)
            w->rc = rc;
    }
    return NULL;
}

int probe_device_link(struct probe_device *p, const struct probe_link_opts *opts, double *ret_bps)
{
    struct lane *lanes[2];
    struct probe_worker w[2];
    unsigned n = 0;
    double best = 0, bps = 0;
    int rc = 0;

    if ((!opts->down && !opts->up) || opts->seg_bytes == 0 || p->bytes % opts->seg_bytes != 0 ||
        VV_MAX(BATCH_BYTES, opts->seg_bytes) / opts->seg_bytes > SEGS_MAX ||
        (opts->seg_bytes < BATCH_BYTES && BATCH_BYTES % opts->seg_bytes != 0) ||
        !(opts->seconds >= 0 && opts->seconds <= 3600))
        return -EINVAL;
    if (opts->down)
        lanes[n++] = &p->down;
    if (opts->up)
        lanes[n++] = &p->up;
    for (int round = 0; rc == 0 && round < PROBE_ROUNDS; round++) {
        for (unsigned i = 0; i < n; i++) {
            probe_workers_init(&w[i], 1, lanes[i]);
            lanes[i]->seg_bytes = opts->seg_bytes;
            lanes[i]->deadline_ns = probe_round_deadline_ns(opts->seconds);
        }
        rc = probe_workers_run(w, n, lane_body, &bps);
        best = fmax(best, bps);
    }
    if (rc == 0)
        *ret_bps = best;
    return rc;
}

int probe_device_pageable(struct probe_device *p, bool down, double seconds, double *ret_bps)
{
    struct lane *l = down ? &p->down : &p->up;
    struct vv_copy_seg seg = {
        .dst = down ? p->pageable : l->dev, .src = down ? l->dev : p->pageable, .bytes = p->bytes};
    uint64_t deadline, start;
    double best = 0;
    int rc;

    if (!(seconds >= 0 && seconds <= 3600))
        return -EINVAL;
    deadline = vv_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        start = vv_now_ns();
        rc = vv_device_copy_async(p->device, l->stream, &seg, 1);
        best =
            fmax(best, (double)p->bytes * 1e9 / (double)VV_MAX(vv_now_ns() - start, UINT64_C(1)));
        /* The next event of the stream reports an error of the copy itself. */
        if (rc == 0)
            rc = vv_device_event_record(p->device, l->event[0], l->stream);
        if (rc == 0)
            rc = vv_device_event_wait(p->device, l->event[0], -1);
    } while (rc == 0 && vv_now_ns() < deadline);
    if (rc == 0)
        *ret_bps = best;
    return rc;
}

/* ---- pinning ---- */

struct beside {
    struct probe_device *probe;
    uint64_t worst_ns; /* owned by the thread until it is joined */
    _Atomic bool stop; /* relaxed: the join orders the result */
};

static void *beside_body(void *arg)
{
    struct probe_worker *w = arg;
    struct beside *b = w->job;
    uint64_t ns = 0;

    do {
        w->rc = copy_once(b->probe, &ns);
        if (w->rc == 0)
            b->worst_ns = VV_MAX(b->worst_ns, ns);
    } while (w->rc == 0 && !atomic_load_explicit(&b->stop, memory_order_relaxed));
    return NULL;
}

struct fault_job {
    unsigned char *mem;
    size_t bytes;
    unsigned threads;
};

static void *fault_body(void *arg)
{
    struct probe_worker *w = arg;
    const struct fault_job *job = w->job;
    size_t part = job->bytes / job->threads, begin = part * w->index;

    memset(job->mem + begin, 1, w->index + 1 == job->threads ? job->bytes - begin : part);
    return NULL;
}

static int fault_in(unsigned char *mem, const struct probe_pin_opts *opts)
{
    struct fault_job job = {.mem = mem, .bytes = opts->bytes, .threads = opts->threads};
    struct probe_worker w[PIN_THREADS_MAX];
    double bps;

    probe_workers_init(w, opts->threads, &job);
    return probe_workers_run(w, opts->threads, fault_body, &bps);
}

/* Slice by slice. `ret_done` is set also after an error: that many bytes have to be unregistered. */
static int pin_slices(struct vv_device *d, unsigned char *mem, const struct probe_pin_opts *opts,
                      size_t *ret_done)
{
    size_t done = 0;
    int rc = 0;

    while (rc == 0 && done < opts->bytes) {
        size_t n = VV_MIN(opts->slice_bytes, opts->bytes - done);

        if (done > 0 && opts->pause_ns > 0)
            vv_sleep_until_ns(vv_now_ns() + opts->pause_ns);
        rc = vv_device_host_register(d, mem + done, n);
        if (rc == 0)
            done += n;
    }
    *ret_done = done;
    return rc;
}

static int unpin_slices(struct vv_device *d, unsigned char *mem, const struct probe_pin_opts *opts,
                        size_t done)
{
    int rc = 0;

    for (size_t at = 0; at < done; at += opts->slice_bytes) {
        int slice_rc = vv_device_host_unregister(d, mem + at);

        if (rc == 0)
            rc = slice_rc;
    }
    return rc;
}

static double rate_since(size_t bytes, uint64_t start_ns)
{
    return (double)bytes * 1e9 / (double)VV_MAX(vv_now_ns() - start_ns, UINT64_C(1));
}

/* Copies run while slices are registered, and end before they are unregistered, because that waits for them. */
static int pin_beside(struct probe_device *p, unsigned char *mem, const struct probe_pin_opts *opts,
                      struct probe_pin *pin)
{
    struct beside beside = {.probe = p};
    struct probe_worker w;
    size_t done = 0;
    uint64_t start;
    int rc, unpin_rc;

    probe_workers_init(&w, 1, &beside);
    rc = -pthread_create(&w.thread, NULL, beside_body, &w);
    if (rc < 0)
        return rc;
    start = vv_now_ns();
    rc = pin_slices(p->device, mem, opts, &done);
    pin->pin_bps = rate_since(done, start);
    atomic_store_explicit(&beside.stop, true, memory_order_relaxed);
    pthread_join(w.thread, NULL);
    pin->worst_copy_ns = beside.worst_ns;
    start = vv_now_ns();
    unpin_rc = unpin_slices(p->device, mem, opts, done);
    pin->unpin_bps = rate_since(done, start);
    return rc < 0 ? rc : w.rc < 0 ? w.rc : unpin_rc;
}

int probe_device_pin(struct probe_device *p, const struct probe_pin_opts *opts,
                     struct probe_pin *ret_pin)
{
    struct probe_pin pin = {0};
    unsigned char *mem;
    int rc;

    if (opts->bytes == 0 || opts->slice_bytes == 0 || opts->threads == 0 ||
        opts->threads > PIN_THREADS_MAX)
        return -EINVAL;
    mem = map_memory(opts->bytes);
    if (!mem)
        return -ENOMEM;
    rc = fault_in(mem, opts);
    if (rc == 0)
        rc = pin_beside(p, mem, opts, &pin);
    munmap(mem, opts->bytes);
    if (rc == 0)
        *ret_pin = pin;
    return rc;
}
