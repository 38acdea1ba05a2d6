/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies within a device, whole and scattered, one batch at a time with a wait for its end, like a checkpoint into
 * the device cache. The rates are medians; `host` is the processor time of submitting. Scattered copies should be
 * nearly as fast as whole ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
#include "device/cuda/cuda.h"
#include "device/host/host.h"

#define MIB      ((size_t)1 << 20)
#define KIB      ((size_t)1 << 10)
#define REPEATS  201
#define MAX_SEGS 4096

struct bench {
    struct vv_device *d;
    struct vv_stream *s;
    struct vv_event *ev;
    char *src, *dst;
    size_t bytes;
};

/* The pieces of one side in another order, so that no two are neighbours on both. `shift` spoils
 * the alignment of one side. */
static size_t scatter(const struct bench *b, size_t seg_bytes, size_t shift,
                      struct vv_copy_seg *segs)
{
    size_t n = b->bytes / seg_bytes;

    for (size_t i = 0; i < n; i++) {
        size_t j = (i * 7 + 3) % n; /* 7 divides no power of two */

        segs[i] =
            (struct vv_copy_seg){b->dst + i * seg_bytes, b->src + j * seg_bytes + shift, seg_bytes};
    }
    return n;
}

static int measure(const struct bench *b, const char *name, size_t seg_bytes, size_t shift)
{
    static struct vv_copy_seg segs[MAX_SEGS];
    static uint64_t all_ns[REPEATS], host_ns[REPEATS];
    size_t n;
    int rc = 0;

    if (b->bytes / seg_bytes > MAX_SEGS || b->bytes < seg_bytes)
        return 0;
    n = scatter(b, seg_bytes, shift, segs);
    for (int i = 0; rc == 0 && i < REPEATS; i++) {
        uint64_t start = vv_now_ns(), submitted;

        rc = vv_device_copy_async(b->d, b->s, segs, n);
        if (rc == 0)
            rc = vv_device_event_record(b->d, b->ev, b->s);
        submitted = vv_now_ns();
        if (rc == 0)
            rc = vv_device_event_wait(b->d, b->ev, -1);
        all_ns[i] = vv_now_ns() - start;
        host_ns[i] = submitted - start;
    }
    if (rc)
        return rc;
    samples_sort_ns(all_ns, REPEATS);
    samples_sort_ns(host_ns, REPEATS);
    printf("%-28s %6zu %10.1f %10.1f %8.1f\n", name, n,
           (double)(n * seg_bytes) / (double)all_ns[REPEATS / 2], (double)all_ns[REPEATS / 2] / 1e3,
           (double)host_ns[REPEATS / 2] / 1e3);
    return 0;
}

static int run(struct bench *b)
{
    void *src, *dst;
    int rc = vv_device_mem_alloc(b->d, b->bytes + 4096, &src);

    if (rc == 0)
        rc = vv_device_mem_alloc(b->d, b->bytes + 4096, &dst);
    if (rc == 0)
        rc = vv_device_stream_new(b->d, &b->s);
    if (rc == 0)
        rc = vv_device_event_new(b->d, &b->ev);
    if (rc)
        return rc;
    b->src = src;
    b->dst = dst;
    printf("%-28s %6s %10s %10s %8s\n", "copy", "pieces", "GB/s", "us", "host us");
    rc = measure(b, "whole", b->bytes, 0);
    if (rc == 0)
        rc = measure(b, "2 MiB pieces", 2 * MIB, 0);
    if (rc == 0)
        rc = measure(b, "256 KiB pieces", 256 * KIB, 0);
    if (rc == 0)
        rc = measure(b, "64 KiB pieces", 64 * KIB, 0);
    if (rc == 0)
        rc = measure(b, "256 KiB, 8 bytes askew", 256 * KIB, 8);
    if (rc == 0)
        rc = measure(b, "256 KiB, 1 byte askew", 256 * KIB, 1);
    return rc;
}

struct copy_opts {
    int cuda;
    uint32_t mib;
};

static const struct opt options[] = {
    {OPT_WORD, .arg = "cuda|host", .optional = true, .words = "host|cuda",
     .at = offsetof(struct copy_opts, cuda), .help = "the device (host)"},
    {OPT_U32, .arg = "MIB", .optional = true, .at = offsetof(struct copy_opts, mib), .least = 1,
     .help = "to copy (128)"},
};

static const struct opts command = {
    .command = "bench_device_copy",
    .usage = "[cuda|host] [MIB]",
    .about = "Copies within a device, whole and scattered.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    struct copy_opts opts = {.mib = 128};
    int rc, status = opts_parse(&command, argc, argv, &opts, NULL);
    struct bench b = {.bytes = opts.mib * MIB};
    char err[256] = "";

    if (status >= 0)
        return status;
    if (opts.cuda) {
        rc = vv_device_open_cuda(NULL, err, sizeof(err), &b.d);
    } else {
        struct vv_device_host_opts o;

        vv_device_host_opts_init(&o);
        o.capacity_bytes = 4 * b.bytes + MIB;
        rc = vv_device_open_host(&o, &b.d);
    }
    if (rc == 0)
        rc = run(&b);
    if (rc)
        fprintf(stderr, "bench_device_copy: %s\n", err[0] ? err : strerror(-rc));
    vv_device_close(b.d);
    return rc ? 1 : 0;
}
