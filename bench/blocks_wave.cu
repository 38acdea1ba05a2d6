/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks on a real GPU: a wavefront that passes through a volume larger than its cache.
 *
 *     blocks_wave [--cells N] [--points N] [--steps N] [--share PERCENT] [--ahead N]
 *
 * The volume has N^3 floats (1448: 12.1 GB), in blocks of 32^3. A shell of points grows from a corner to the opposite
 * one in so many steps, by less than a block each; every point reads the eight cells around it and adds what it
 * interpolates to a sum of its own. All ways give the same sums, bit for bit: each is compared with the resident run.
 *
 * resident     everything in the cache already: the limit of computing
 * blocks       a cache of that share of the volume
 * paper        the same cache, with the policy of the paper: blocks one by one, between the rounds
 * zero copy    the cells stay in host memory and kernels read them there
 *
 * The bound is the larger of the resident time and the bytes that any replacement has to bring, over the link. The
 * shell does not come back, so those are the blocks that it touches, once each.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <varve/blocks.h>
#include <varve/blocks_device.h>

enum { THREADS = 256, EDGE = 32, FILLERS = 16 };

static struct {
    uint64_t cells;
    uint32_t points, steps, share, ahead;
} opt = {1448, 1000000, 200, 25, 1};

static struct varve_ctx *ctx;
static float *volume;
static uint64_t volume_bytes;

static void must(int rc, const char *what)
{
    struct varve_error e = {};

    if (rc >= 0)
        return;
    e.error_size = sizeof(e);
    if (ctx && varve_last_error(ctx, &e) == 0 && e.err == rc)
        fprintf(stderr, "blocks_wave: %s: %s (%s)\n", what, varve_strerror(rc), e.text);
    else
        fprintf(stderr, "blocks_wave: %s: %s\n", what, varve_strerror(rc));
    exit(1);
}

static void must_cuda(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return;
    fprintf(stderr, "blocks_wave: %s: %s\n", what, cudaGetErrorString(rc));
    exit(rc == cudaErrorNoDevice || rc == cudaErrorInsufficientDriver ? 77 : 1);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the volume, block after block ---- */

static void *fill(void *arg)
{
    uint64_t me = (uint64_t)(uintptr_t)arg, words = volume_bytes / 4;

    for (uint64_t i = words / FILLERS * me; i < words / FILLERS * (me + 1); i++)
        volume[i] = (float)(uint32_t)(i * UINT64_C(0x9e3779b97f4a7c15) >> 40);
    return NULL;
}

static void make_volume(struct varve_blocks_opts *o)
{
    pthread_t id[FILLERS];
    void *p;

    must(varve_blocks_bytes(o, &volume_bytes), "layout");
    p = mmap(NULL, volume_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        must(-ENOMEM, "the volume");
    (void)madvise(p, volume_bytes, MADV_HUGEPAGE);
    volume = (float *)p;
    for (uintptr_t i = 0; i < FILLERS; i++)
        must(-pthread_create(&id[i], NULL, fill, (void *)i), "threads");
    for (int i = 0; i < FILLERS; i++)
        pthread_join(id[i], NULL);
    o->memory = volume;
}

/* ---- the wave ---- */

struct wave {
    float cells, radius;
    float *sum;
    unsigned blocks;
};

/* Where a point is: its direction follows from its number. */
__device__ static void point_at(const struct wave &w, uint32_t item, float at[3])
{
    uint64_t h = (item + 1) * 0x9e3779b97f4a7c15ull;
    float u = (float)(h >> 40) / 16777216.0f, v = (float)(h << 24 >> 40) / 16777216.0f;
    float s = sqrtf(1.0f - u * u), d[3] = {s * cospif(v / 2), s * sinpif(v / 2), u};

    for (int i = 0; i < 3; i++)
        at[i] = fminf(w.radius * d[i], w.cells - 2.001f);
}

__global__ void propagate(struct varve_blocks_view v, struct wave w)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < v.items;
         i += gridDim.x * blockDim.x) {
        struct varve_blocks_cursor c = varve_blocks_cursor();
        uint32_t item = varve_blocks_item(&v, i);
        float at[3], sum = 0;
        int here = 1;

        point_at(w, item, at);
        for (int k = 0; k < 8; k++) {
            uint32_t x = (uint32_t)at[0] + (k & 1), y = (uint32_t)at[1] + (k >> 1 & 1),
                     z = (uint32_t)at[2] + (k >> 2);
            float fx = at[0] - floorf(at[0]), fy = at[1] - floorf(at[1]),
                  fz = at[2] - floorf(at[2]), cell;

            here &= varve_blocks_f32(&v, &c, x, y, z, &cell);
            sum +=
                cell * (k & 1 ? fx : 1 - fx) * (k >> 1 & 1 ? fy : 1 - fy) * (k >> 2 ? fz : 1 - fz);
        }
        if (here)
            w.sum[item] += sum;
        else
            varve_blocks_again(&v, item);
    }
}

static int launch(void *arg, const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    const struct wave *w = (const struct wave *)arg;

    propagate<<<w->blocks, THREADS, 0, stream>>>(*view, *w);
    return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

static double pass(struct varve_blocks *b, float *sum)
{
    struct wave w = {(float)opt.cells, 0, sum, (opt.points + THREADS - 1) / THREADS};
    double start;

    must_cuda(cudaMemset(sum, 0, opt.points * sizeof(float)), "sums");
    must_cuda(cudaDeviceSynchronize(), "sums");
    start = now_s();
    for (uint32_t step = 1; step <= opt.steps; step++) {
        w.radius = (float)step / (float)opt.steps * 1.7f * (float)opt.cells;
        must(varve_blocks_run(b, opt.points, launch, &w, NULL), "a step");
    }
    return now_s() - start;
}

/* ---- measuring ---- */

static double link_bps(void)
{
    size_t bytes = (size_t)256 << 20;
    void *host, *dev;
    double best = 0;

    must_cuda(cudaMallocHost(&host, bytes), "pinned memory");
    must_cuda(cudaMalloc(&dev, bytes), "device memory");
    memset(host, 1, bytes);
    for (int i = 0; i < 8; i++) {
        double start = now_s();

        must_cuda(cudaMemcpy(dev, host, bytes, cudaMemcpyHostToDevice), "copy");
        best = fmax(best, (double)bytes / (now_s() - start));
    }
    cudaFree(dev);
    cudaFreeHost(host);
    return best;
}

static float *sums, *expected, *got;
static double link_rate, resident_s, bound_s;

static const char *verdict(void)
{
    must_cuda(cudaMemcpy(got, sums, opt.points * sizeof(float), cudaMemcpyDeviceToHost), "sums");
    return memcmp(got, expected, opt.points * sizeof(float)) == 0 ? "same" : "WRONG";
}

static void row(const char *name, double s, const struct varve_blocks_stats *st, uint64_t bytes)
{
    printf("| %-28s | %8.3f | %6.2f | %7.2f | %9llu | %9llu | %7.2f%% | %s |\n", name, s,
           s / bound_s, (double)bytes / 1e9, (unsigned long long)st->missed,
           (unsigned long long)st->evicted, 100 * (double)st->management_ns * 1e-9 / s, verdict());
    fflush(stdout);
}

static struct varve_blocks_stats stats_of(struct varve_blocks *b)
{
    struct varve_blocks_stats st = {};

    st.stats_size = sizeof(st);
    must(varve_blocks_stats(b, &st), "figures");
    return st;
}

static void measure(const char *name, struct varve_blocks_opts o)
{
    struct varve_blocks *b;
    struct varve_blocks_stats st;
    double s;

    must(varve_blocks_open(ctx, &o, &b), name);
    s = pass(b, sums);
    st = stats_of(b);
    row(name, s, &st, st.bytes);
    must(varve_blocks_close(b), name);
}

static void measure_resident(struct varve_blocks_opts o)
{
    struct varve_blocks *b;
    struct varve_blocks_stats st;
    double first;

    o.cache_bytes = volume_bytes;
    o.ahead = 0;
    must(varve_blocks_open(ctx, &o, &b), "resident");
    first = pass(b, sums);
    st = stats_of(b);
    resident_s = pass(b, sums);
    must_cuda(cudaMemcpy(expected, sums, opt.points * sizeof(float), cudaMemcpyDeviceToHost),
              "sums");
    bound_s = fmax(resident_s, (double)st.bytes / link_rate);
    printf("link %.1f GB/s, %.2f GB touched, bound %.3f s (resident %.3f s, the link %.3f s)\n\n",
           link_rate / 1e9, (double)st.bytes / 1e9, bound_s, resident_s,
           (double)st.bytes / link_rate);
    printf("| %-28s | seconds  | bound  | GB      | missed    | evicted   | managing | sums |\n",
           "what");
    printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    row("all fits, first pass", first, &st, st.bytes);
    row("resident", resident_s, &st, 0);
    must(varve_blocks_close(b), "resident");
}

int main(int argc, char **argv)
{
    struct varve_blocks_opts o;
    struct varve_opts vo;

    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t n = strtoull(argv[i + 1], NULL, 10);

        if (strcmp(argv[i], "--cells") == 0)
            opt.cells = n;
        else if (strcmp(argv[i], "--points") == 0)
            opt.points = (uint32_t)n;
        else if (strcmp(argv[i], "--steps") == 0)
            opt.steps = (uint32_t)n;
        else if (strcmp(argv[i], "--share") == 0)
            opt.share = (uint32_t)n;
        else if (strcmp(argv[i], "--ahead") == 0)
            opt.ahead = (uint32_t)n;
    }
    must_cuda(cudaFree(NULL), "the GPU");
    must(varve_opts_init(&vo, sizeof(vo)), "options");
    vo.device = VARVE_DEVICE_CUDA;
    vo.device_cache = 16 << 20;
    vo.host_cache = 16 << 20;
    must(varve_open(&vo, &ctx), "context");
    must(varve_blocks_opts_init(&o, sizeof(o)), "options");
    o.cells[0] = o.cells[1] = o.cells[2] = opt.cells;
    o.edge[0] = o.edge[1] = o.edge[2] = EDGE;
    o.ahead = opt.ahead;
    make_volume(&o);
    expected = (float *)malloc(opt.points * sizeof(float));
    got = (float *)malloc(opt.points * sizeof(float));
    must_cuda(cudaMalloc((void **)&sums, opt.points * sizeof(float)), "sums");
    link_rate = link_bps();
    measure_resident(o);
    o.cache_bytes = volume_bytes / 100 * opt.share;
    measure("blocks", o);
    o.ahead = 0;
    measure("blocks, none ahead", o);
    o.policy = VARVE_BLOCKS_PAPER;
    measure("paper", o);
    o.policy = VARVE_BLOCKS_CLOCK;
    o.rounds = 0;
    o.cache_bytes = (uint64_t)2 * EDGE * EDGE * EDGE * 4;
    measure("zero copy", o);
    must(varve_close(ctx), "close");
    return 0;
}
