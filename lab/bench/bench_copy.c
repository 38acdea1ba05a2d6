/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies in host memory as the engine makes them (base/copy.h) against memcpy: every size from 4 KiB
 * to 1 GiB, by 1 thread to as many as there are. Printed is the ratio of speeds: 1.5 is half as fast
 * again as one memcpy of the same bytes.
 *
 * Both sides copy between the same two buffers, touched before, and take turns in each round; which
 * one is first alternates, so that both see the same machine and the same caches. Small copies are
 * repeated until a round takes a while. The median of the rounds' ratios counts: the ratio of two
 * times of one round does not depend on what the machine does in the next.
 *
 *     bench_copy [--max SIZE] [--threads N] [--rounds N] [--gate] [--json]
 *
 * --gate: exit status 1 if a median is too low. With 8 threads or more and copies larger than the last level cache the
 * limit is 1.5. Otherwise it is 0.99, less the noise: how far rounds of memcpy against memcpy are below 1.0 here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/copy_kernels.h"
#include "base/topo.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"

enum { ROUNDS_MAX = 101, THREADS_MAX = 64 };
#define ROUND_NS UINT64_C(3000000)

static char *from, *to;
static int rounds = 31;

static void *touched(size_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    return p;
}

/* Nanoseconds of one copy, on the average of `repeat`; pool NULL: memcpy. */
static double copy_ns(struct vv_copy_pool *pool, size_t bytes, unsigned repeat)
{
    struct vv_copy_seg seg = {to, from, bytes};
    uint64_t start_ns = vv_now_ns();
    for (unsigned i = 0; i < repeat; i++) {
        if (pool)
            vv_copy_parallel(pool, &seg, 1);
        else
            memcpy(to, from, bytes);
        __asm__ volatile("" : : "r"(to) : "memory");
    }
    return (double)(vv_now_ns() - start_ns) / repeat;
}

struct figure {
    double ratio; /* median */
    double gbps;  /* of the copies, median */
    double noise; /* of memcpy against memcpy: how far a quarter of the rounds are below 1 */
};

static struct figure measure(struct vv_copy_pool *pool, size_t bytes)
{
    double ratio[ROUNDS_MAX], speed[ROUNDS_MAX], same[ROUNDS_MAX];
    unsigned repeat = 1;
    while (repeat < 1u << 20 && copy_ns(NULL, bytes, repeat) * repeat < (double)ROUND_NS)
        repeat *= 2;
    copy_ns(pool, bytes, repeat); /* wakes the pool's threads, which touch their stacks */
    for (int i = 0; i < rounds; i++) {
        double ours, theirs, again;
        if (i % 2) {
            ours = copy_ns(pool, bytes, repeat);
            theirs = copy_ns(NULL, bytes, repeat);
        } else {
            theirs = copy_ns(NULL, bytes, repeat);
            ours = copy_ns(pool, bytes, repeat);
        }
        again = copy_ns(NULL, bytes, repeat);
        ratio[i] = theirs / ours;
        same[i] = theirs / again;
        speed[i] = (double)bytes / ours;
    }
    samples_sort(ratio, (size_t)rounds);
    samples_sort(speed, (size_t)rounds);
    samples_sort(same, (size_t)rounds);
    struct figure f = {ratio[rounds / 2], speed[rounds / 2], 1 - same[rounds / 4]};
    f.noise = f.noise > 0 ? f.noise : 0;
    return f;
}

struct options {
    uint64_t max;
    unsigned threads;
    int rounds;
    bool gate, json;
};

#define AT(field) offsetof(struct options, field)

static const struct opt options[] = {
    {OPT_BYTES, .name = "max", .arg = "SIZE", .at = AT(max), .least = 4096,
     .help = "the largest copy (1G)", .takes = "a size from 4K on"},
    {OPT_U32, .name = "threads", .arg = "N", .at = AT(threads), .least = 1, .most = THREADS_MAX,
     .help = "at most (a core each)"},
    {OPT_INT, .name = "rounds", .arg = "N", .at = AT(rounds), .least = 3, .most = ROUNDS_MAX,
     .help = "of each size (31)"},
    {OPT_FLAG, .name = "gate", .help = "exit 1 if a copy is slower than it should be",
     .at = AT(gate)},
    {OPT_FLAG, .name = "json", .help = "print a JSON object for each size", .at = AT(json)},
};

static const struct opts command = {
    .command = "bench_copy",
    .usage = "[OPTION]...",
    .about = "Compares copies by several threads with memcpy.",
    OPT_LIST(options),
};

/* 1, 2, 4, ... and all. */
static unsigned next_threads(unsigned n, unsigned all)
{
    return n == all ? all + 1 : VV_MIN(2 * n, all);
}

static void print_figure(struct json *out, unsigned threads, const struct figure *f)
{
    char name[16];
    snprintf(name, sizeof(name), "%u", threads);
    json_object(out, name);
    json_number(out, "ratio", "%.3f", f->ratio);
    json_number(out, "gbps", "%.2f", f->gbps);
    json_number(out, "noise", "%.3f", f->noise);
    json_close(out);
}

static int run_size(const struct options *o, size_t bytes, struct vv_copy_pool **pools)
{
    struct json out = json_begin(stdout, JSON_SPACED);
    char text[VV_BYTES_TEXT];
    int bad = 0;
    vv_bytes_format(bytes, text, sizeof(text));
    if (o->json) {
        json_object(&out, NULL);
        json_uint(&out, "bytes", bytes);
        json_object(&out, "ratios");
    } else {
        printf("%8s", text);
    }
    for (unsigned n = 1; n <= o->threads; n = next_threads(n, o->threads)) {
        struct figure f = measure(pools[n - 1], bytes);
        double least = n >= 8 && bytes > vv_topo_cache_bytes() ? 1.5 : 1.0 - f.noise - 0.01;
        bad |= f.ratio < least;
        if (o->json)
            print_figure(&out, n, &f);
        else
            printf("  %5.2f %6.1f GB/s%c", f.ratio, f.gbps, f.ratio < least ? '!' : ' ');
        fflush(stdout);
    }
    if (o->json) {
        json_close(&out);
        json_close(&out);
    }
    json_end(&out);
    return bad;
}

int main(int argc, char **argv)
{
    struct options o = {.max = UINT64_C(1) << 30,
                        .threads = VV_MIN(vv_topo_threads(), THREADS_MAX),
                        .rounds = rounds};
    struct vv_copy_pool *pools[THREADS_MAX] = {NULL};
    char cache[VV_BYTES_TEXT], min[VV_BYTES_TEXT];
    int bad = 0;
    int first, status = opts_parse(&command, argc, argv, &o, &first);
    if (status >= 0)
        return status;
    rounds = o.rounds;
    from = touched(o.max);
    to = touched(o.max);
    for (unsigned n = 1; n <= o.threads; n = next_threads(n, o.threads))
        if (vv_copy_pool_new(n - 1, &pools[n - 1])) {
            fprintf(stderr, "no threads\n");
            return 1;
        }
    if (!o.json) {
        printf("streaming stores: %s, from %s on; last level cache %s\n",
               vv_copy_kernel_name(vv_copy_kernel_best()),
               vv_bytes_human(vv_copy_stream_min(), min, sizeof(min)),
               vv_bytes_human(vv_topo_cache_bytes(), cache, sizeof(cache)));
        printf("%8s", "threads");
        for (unsigned n = 1; n <= o.threads; n = next_threads(n, o.threads))
            printf("  %5u %12s", n, "");
        printf("\n");
    }
    for (size_t bytes = 4096; bytes <= o.max; bytes *= 2)
        bad |= run_size(&o, bytes, pools);
    for (unsigned n = 0; n < THREADS_MAX; n++)
        vv_copy_pool_free(pools[n]);
    return o.gate && bad;
}
