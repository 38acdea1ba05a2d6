/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU files on a real GPU, one figure at a time: the link, hits in the page cache, reading a file once
 * from its mapping and from servers, random records, and what page size, replacement and readahead
 * change. Every byte is checked. Where only bandwidth is timed, a second run that is not timed reads in
 * the same way and compares.
 *
 * The file is written first and stays in the page cache, so that disks do not matter. Times are taken
 * around the launch and the end of the kernel. C is the limit: the rate at which warps pull over the link or,
 * if that is less and servers bring the bytes, the rate at which as many threads read with pread.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <varve/gpufile.h>
#include <varve/gpufile_device.h>

#include "base/pattern.h"

extern "C" {
#include "cli/common/options.h"
#include "gpufile/gpufile_hooks.h"
}

enum { THREADS = 256, SEED = 7 };
#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

static struct micro_opts {
    const char *folder, *only;
    uint64_t bytes;
    uint32_t servers;
} opt = {"/tmp", "", 4 * GIB, 0};

static struct varve_ctx *ctx;
static int processors;
static char path[4096];
static double link_gbps, pread_gbps, pread4_gbps;
static bool bad_seen;

static void must(int rc, const char *what)
{
    struct varve_error e = {};

    if (rc >= 0)
        return;
    e.error_size = sizeof(e);
    if (varve_last_error(ctx, &e) == 0 && e.err == rc)
        fprintf(stderr, "gpufile_micro: %s: %s (%s)\n", what, varve_strerror(rc), e.text);
    else
        fprintf(stderr, "gpufile_micro: %s: %s\n", what, varve_strerror(rc));
    exit(!ctx && (rc == -ENODEV || rc == -ENOTSUP) ? 77 : 1);
}

static void must_cuda(cudaError_t rc, const char *what)
{
    int has = 0, needs = 0;

    if (rc == cudaSuccess)
        return;
    fprintf(stderr, "gpufile_micro: %s: %s\n", what, cudaGetErrorString(rc));
    if (rc == cudaErrorInsufficientDriver && cudaDriverGetVersion(&has) == cudaSuccess &&
        cudaRuntimeGetVersion(&needs) == cudaSuccess)
        fprintf(stderr, "gpufile_micro: the driver has CUDA %d.%d, and this was made with %d.%d\n",
                has / 1000, has % 1000 / 10, needs / 1000, needs % 1000 / 10);
    exit(rc == cudaErrorNoDevice || rc == cudaErrorInsufficientDriver ? 77 : 1);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- kernels ---- */

struct result {
    unsigned long long bytes, wrong;
    int error;
};

/* How many of the bytes at p differ from those of the file at `off`; both multiples of 8. */
__device__ static void check_bytes(const unsigned char *p, uint64_t off, uint64_t bytes,
                                   unsigned rank, unsigned size, struct result *r)
{
    unsigned long long wrong = 0;

    for (uint64_t i = rank; i < bytes / 8; i += size)
        wrong += ((const uint64_t *)p)[i] != vv_pattern_word(SEED, 0, off / 8 + i);
    for (uint64_t i = bytes / 8 * 8 + rank; i < bytes; i += size)
        wrong +=
            p[i] != (unsigned char)(vv_pattern_word(SEED, 0, (off + i) / 8) >> 8 * ((off + i) % 8));
    if (wrong)
        atomicAdd(&r->wrong, wrong);
}

/* Pulls pinned memory with loads of 16 bytes, as varve_gread does. */
__global__ void __launch_bounds__(THREADS)
    pull(const unsigned char *src, unsigned char *dst, uint64_t bytes, uint64_t piece)
{
    uint64_t warp = (uint64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32,
             warps = (uint64_t)gridDim.x * (THREADS / 32);

    for (uint64_t at = warp * piece; at < bytes; at += warps * piece)
        varve_g_pull(threadIdx.x % 32, 32, dst + warp * piece, NULL, 0, 0, src + at,
                     (uint32_t)(piece / 16));
}

/* Each group reads its own stretch of the file in pieces, `laps` times, into its own buffer. */
template <enum varve_gscope SCOPE>
__global__ void __launch_bounds__(THREADS, 3)
    stretch(const __grid_constant__ struct varve_gfs fs, uint32_t id, uint64_t bytes,
            uint64_t piece, int laps, int advice, int check, unsigned char *buffers,
            struct result *r)
{
    unsigned groups = SCOPE == VARVE_GBLOCK ? gridDim.x : gridDim.x * (THREADS / 32);
    unsigned group =
        SCOPE == VARVE_GBLOCK ? blockIdx.x : blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    uint64_t pieces = (bytes + piece - 1) / piece, first = pieces * group / groups,
             last = pieces * (group + 1) / groups;
    unsigned char *p = buffers + group * piece;
    unsigned long long got = 0;
    struct varve_gfile f;
    int rc = varve_gopen(&fs, id, SCOPE, &f);

    if (rc == 0 && advice)
        rc = varve_gadvise(&f, advice, 0, 0);
    for (int lap = 0; rc == 0 && lap < laps; lap++)
        for (uint64_t i = first; rc == 0 && i < last; i++) {
            uint64_t off = i * piece;
            int64_t n = varve_gread(&f, off, p, piece);

            if (n < 0)
                rc = (int)n;
            else
                got += n;
            if (check && n > 0)
                check_bytes(p, off, n, f.rank, f.size, r);
            if (check)
                SCOPE == VARVE_GBLOCK ? __syncthreads() : __syncwarp();
        }
    if (rc == 0)
        rc = varve_gclose(&f);
    if (f.rank == 0)
        atomicAdd(&r->bytes, got);
    if (rc)
        r->error = rc;
}

/* Each warp reads records at random. */
__global__ void __launch_bounds__(THREADS, 3)
    records(const __grid_constant__ struct varve_gfs fs, uint32_t id, uint64_t bytes,
            uint32_t record, unsigned count, int check, unsigned char *buffers, struct result *r)
{
    unsigned group = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    unsigned char *p = buffers + (uint64_t)group * record;
    unsigned long long got = 0;
    struct varve_gfile f;
    int rc = varve_gopen(&fs, id, VARVE_GWARP, &f);

    for (unsigned i = 0; rc == 0 && i < count; i++) {
        uint64_t at = vv_pattern_mix((uint64_t)group << 32 | i) % (bytes / record);
        int64_t n = varve_gread(&f, at * record, p, record);

        if (n != record)
            rc = n < 0 ? (int)n : -EIO;
        else
            got += n;
        if (check && n > 0)
            check_bytes(p, at * record, n, f.rank, f.size, r);
        if (check)
            __syncwarp();
    }
    if (rc == 0)
        rc = varve_gclose(&f);
    if (f.rank == 0)
        atomicAdd(&r->bytes, got);
    if (rc)
        r->error = rc;
}

/* Looks at pages where they are in the cache. */
__global__ void __launch_bounds__(THREADS, 3)
    mapped_pages(const __grid_constant__ struct varve_gfs fs, uint32_t id, uint64_t bytes, int laps,
                 unsigned long long *sum, struct result *r)
{
    unsigned groups = gridDim.x * (THREADS / 32),
             group = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    uint64_t page = 1ull << fs.page_shift, pages = bytes / page;
    unsigned long long got = 0, total = 0;
    struct varve_gfile f;
    int rc = varve_gopen(&fs, id, VARVE_GWARP, &f);

    for (int lap = 0; rc == 0 && lap < laps; lap++)
        for (uint64_t i = pages * group / groups; rc == 0 && i < pages * (group + 1) / groups;
             i++) {
            const void *ptr;
            uint64_t n;

            rc = varve_gmap(&f, i * page, &ptr, &n);
            if (rc)
                break;
            for (uint64_t k = f.rank; k < n / 16; k += 32) {
                varve_d_v16 v = varve_d_load16((const unsigned char *)ptr + 16 * k);

                total += v.x + v.y;
            }
            varve_gunmap(&f, ptr);
            got += n;
        }
    if (rc == 0)
        rc = varve_gclose(&f);
    atomicAdd(sum, total);
    if (f.rank == 0)
        atomicAdd(&r->bytes, got);
    if (rc)
        r->error = rc;
}

/* ---- the host's side ---- */

static unsigned char *buffers;
static uint64_t buffer_bytes;
static struct result *result;

static void need_buffers(uint64_t bytes)
{
    if (bytes <= buffer_bytes)
        return;
    must_cuda(cudaFree(buffers), "cudaFree");
    must_cuda(cudaMalloc(&buffers, bytes), "buffers");
    buffer_bytes = bytes;
}

static void *write_part(void *arg)
{
    uint64_t part = (uint64_t)(uintptr_t)arg, parts = 16, each = opt.bytes / parts / MIB * MIB,
             at = part * each, end = part == parts - 1 ? opt.bytes : at + each;
    uint64_t *buf = (uint64_t *)malloc(MIB);
    int fd = open(path, O_RDWR);

    for (; fd >= 0 && buf && at < end; at += MIB) {
        for (uint64_t i = 0; i < MIB / 8; i++)
            buf[i] = vv_pattern_word(SEED, 0, at / 8 + i);
        if (pwrite(fd, buf, end - at < MIB ? end - at : MIB, (off_t)at) < 0)
            must(-errno, path);
    }
    close(fd);
    free(buf);
    return NULL;
}

static void write_file(void)
{
    pthread_t t[16];
    int fd;

    snprintf(path, sizeof(path), "%s/gpufile_micro.XXXXXX", opt.folder);
    fd = mkstemp(path);
    if (fd < 0)
        must(-errno, path);
    close(fd);
    for (uintptr_t i = 0; i < 16; i++)
        pthread_create(&t[i], NULL, write_part, (void *)i);
    for (int i = 0; i < 16; i++)
        pthread_join(t[i], NULL);
}

struct reader {
    uint64_t first, last, piece;
    bool anywhere; /* as many reads, at random in the whole file */
    int fd;        /* of all threads; -1: each opens the file */
};

static void *read_part(void *arg)
{
    struct reader *r = (struct reader *)arg;
    char *buf = (char *)aligned_alloc(4096, r->piece);
    int fd = r->fd < 0 ? open(path, O_RDONLY) : r->fd;

    memset(buf, 1, r->piece);
    for (uint64_t at = r->first; at < r->last; at += r->piece) {
        uint64_t from = r->anywhere ? vv_pattern_mix(at) % (opt.bytes / r->piece) * r->piece : at;

        if (pread(fd, buf, r->piece, (off_t)from) < 0)
            must(-errno, path);
    }
    if (r->fd < 0)
        close(fd);
    free(buf);
    return NULL;
}

static double measure_pread(uint64_t piece, bool anywhere, bool one_file, uint64_t bytes)
{
    struct reader r[64];
    pthread_t t[64];
    int fd = one_file ? open(path, O_RDONLY) : -1;
    double start = now_s(), gbps;

    for (uint32_t i = 0; i < opt.servers; i++) {
        r[i].first = bytes / opt.servers / MIB * MIB * i;
        r[i].last = bytes / opt.servers / MIB * MIB * (i + 1);
        r[i].piece = piece;
        r[i].anywhere = anywhere;
        r[i].fd = fd;
        pthread_create(&t[i], NULL, read_part, &r[i]);
    }
    for (uint32_t i = 0; i < opt.servers; i++)
        pthread_join(t[i], NULL);
    gbps = (double)(bytes / opt.servers / MIB * MIB * opt.servers) / (now_s() - start) * 1e-9;
    if (fd >= 0)
        close(fd);
    return gbps;
}

static void row(const char *name, double gbps, double of, const char *note)
{
    if (of > 0)
        printf("| %-58s | %8.1f | %5.2f | %s |\n", name, gbps, gbps / of, note);
    else
        printf("| %-58s | %8.1f | %5s | %s |\n", name, gbps, "", note);
    fflush(stdout);
}

static void measure_link(void)
{
    uint64_t bytes = GIB, piece = 4 * KIB;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double best = 0;
    char name[80];

    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    must_cuda(cudaHostRegister(p, bytes, cudaHostRegisterMapped), "cudaHostRegister");
    need_buffers((uint64_t)8 * processors * THREADS / 32 * piece);
    for (int blocks = 8; blocks <= 8 * processors; blocks *= 8) {
        double start, gbps;

        pull<<<blocks, THREADS>>>((const unsigned char *)p, buffers, bytes, piece);
        must_cuda(cudaDeviceSynchronize(), "pull");
        start = now_s();
        pull<<<blocks, THREADS>>>((const unsigned char *)p, buffers, bytes, piece);
        must_cuda(cudaDeviceSynchronize(), "pull");
        gbps = (double)bytes / (now_s() - start) * 1e-9;
        if (gbps > best)
            best = gbps;
        snprintf(name, sizeof(name), "link: warps pull 4 KiB each, %d blocks", blocks);
        row(name, gbps, 0, "");
    }
    link_gbps = best;
    must_cuda(cudaHostUnregister(p), "cudaHostUnregister");
    munmap(p, bytes);
}

/* A file system with what differs from the defaults. */
struct setup {
    uint64_t cache, bytes;
    uint32_t page, streams, ahead, split, servers;
    int map, readahead, replace, bypass, queue;
};

static struct varve_gpufs *open_fs(const struct setup *s, uint32_t *ret_id, double *ret_map_s)
{
    struct varve_gpufs_opts o;
    struct varve_gpufs *fs;
    double start;

    must(varve_gpufs_opts_init(&o, sizeof(o)), "options");
    o.cache_bytes = s->cache ? s->cache : opt.bytes + opt.bytes / 8;
    o.page_bytes = s->page ? s->page : 4 * KIB;
    o.streams = s->streams ? s->streams : 3 * (uint32_t)processors;
    o.readahead_bytes = s->ahead;
    o.split_bytes = s->split;
    o.servers = s->servers ? s->servers : opt.servers;
    o.readahead = s->readahead;
    o.replace = s->replace;
    o.bypass = s->bypass;
    o.queue = s->queue;
    o.map_limit = 1024 * GIB;
    must(vv_gpufile_open(ctx, &o, &fs), "vv_gpufile_open");
    start = now_s();
    must(varve_gpufs_register(fs, path, VARVE_GFILE_READ | (s->map ? VARVE_GFILE_MAP : 0), ret_id),
         "varve_gpufs_register");
    *ret_map_s = now_s() - start;
    return fs;
}

static double end_run(double start, uint64_t want)
{
    double s;

    must_cuda(cudaDeviceSynchronize(), "kernel");
    s = now_s() - start;
    if (result->error)
        must(result->error, "in the kernel");
    if (result->wrong || result->bytes != want) {
        fprintf(stderr, "gpufile_micro: %llu wrong words, %llu bytes of %llu\n", result->wrong,
                result->bytes, (unsigned long long)want);
        bad_seen = true;
    }
    return (double)result->bytes / s * 1e-9;
}

static void start_run(void)
{
    memset(result, 0, sizeof(*result));
}

/* The file once, in stretches: its rate, and checked in a second run with an empty cache. */
static void sequential(const char *name, const struct setup *s, enum varve_gscope scope, int blocks,
                       uint64_t piece, double of)
{
    struct varve_gfs handle;
    struct varve_gpufs_stats st = {};
    struct varve_gpufs *fs;
    uint64_t bytes = s->bytes ? s->bytes : opt.bytes;
    double start, gbps[3], map_s;
    char note[128];
    uint32_t id;

    if (!strstr(name, opt.only))
        return;
    fs = open_fs(s, &id, &map_s);
    must(varve_gpufs_handle(fs, &handle), "handle");
    need_buffers((uint64_t)blocks * (scope == VARVE_GWARP ? THREADS / 32 : 1) * piece);
    for (int run = 0; run < 3; run++) {
        int check = run == 2;

        must(varve_gpufs_drop(fs), "drop");
        start_run();
        start = now_s();
        if (scope == VARVE_GBLOCK)
            stretch<VARVE_GBLOCK>
                <<<blocks, THREADS>>>(handle, id, bytes, piece, 1, 0, check, buffers, result);
        else
            stretch<VARVE_GWARP>
                <<<blocks, THREADS>>>(handle, id, bytes, piece, 1, 0, check, buffers, result);
        gbps[run] = end_run(start, bytes);
    }
    st.stats_size = sizeof(st);
    must(varve_gpufs_stats(fs, &st), "stats");
    snprintf(note, sizeof(note), "first %.1f, checked %.1f%s%.1f; by-passed %.0f%%, %.1f req/MiB",
             gbps[0], gbps[2], s->map ? ", mapping " : "",
             s->map ? (double)bytes / map_s * 1e-9 : 0,
             100.0 * (double)st.bypassed_bytes / (3.0 * (double)bytes),
             (double)st.requests / (3.0 * (double)bytes / MIB));
    row(name, gbps[1], of, note);
    must(varve_gpufs_close(fs), "close");
}

/* Everything is in the cache before the clock starts. */
static void hits(uint64_t piece, enum varve_gscope scope, int per_processor)
{
    struct setup s = {};
    struct varve_gfs handle;
    struct varve_gpufs_stats st = {};
    struct varve_gpufs *fs;
    uint64_t bytes = opt.bytes < 2 * GIB ? opt.bytes : 2 * GIB;
    int blocks = per_processor * processors, laps = 16;
    double start, gbps = 0, checked = 0, map_s;
    char name[96], note[64];
    uint32_t id;

    snprintf(name, sizeof(name), "hits by %s, reads of %llu KiB, %d blocks per processor",
             scope == VARVE_GBLOCK ? "block" : "warp", (unsigned long long)(piece / KIB),
             per_processor);
    if (!strstr(name, opt.only))
        return;
    s.cache = bytes + bytes / 4;
    s.map = 1;
    s.bypass = VARVE_GBYPASS_NEVER;
    s.streams = (uint32_t)blocks * (scope == VARVE_GWARP ? THREADS / 32 : 1);
    s.ahead = 64 * KIB;
    fs = open_fs(&s, &id, &map_s);
    must(varve_gpufs_handle(fs, &handle), "handle");
    need_buffers((uint64_t)blocks * (scope == VARVE_GWARP ? THREADS / 32 : 1) * piece);
    for (int run = 0; run < 3; run++) {
        int n = run == 1 ? laps : 1, check = run == 2;
        double g;

        start_run();
        start = now_s();
        if (scope == VARVE_GBLOCK)
            stretch<VARVE_GBLOCK>
                <<<blocks, THREADS>>>(handle, id, bytes, piece, n, 0, check, buffers, result);
        else
            stretch<VARVE_GWARP>
                <<<blocks, THREADS>>>(handle, id, bytes, piece, n, 0, check, buffers, result);
        g = end_run(start, (uint64_t)n * bytes);
        if (run == 1)
            gbps = g;
        else
            checked = g;
    }
    st.stats_size = sizeof(st);
    must(varve_gpufs_stats(fs, &st), "stats");
    snprintf(note, sizeof(note), "checked %.1f; %.1f%% hits", checked,
             100.0 * (double)st.hits / (double)(st.hits + st.misses));
    row(name, gbps, 1000, note);
    must(varve_gpufs_close(fs), "close");
}

static void hits_in_place(void)
{
    struct setup s = {};
    struct varve_gfs handle;
    struct varve_gpufs *fs;
    uint64_t bytes = opt.bytes < 2 * GIB ? opt.bytes : 2 * GIB;
    int blocks = 3 * processors;
    unsigned long long *sum = (unsigned long long *)(result + 1);
    double start, gbps = 0, map_s;
    uint32_t id;

    if (!strstr("hits in place (gmap) by warp, 4 KiB", opt.only))
        return;
    s.cache = bytes + bytes / 4;
    s.map = 1;
    s.streams = (uint32_t)blocks * (THREADS / 32);
    s.ahead = 64 * KIB;
    fs = open_fs(&s, &id, &map_s);
    must(varve_gpufs_handle(fs, &handle), "handle");
    for (int run = 0; run < 2; run++) {
        start_run();
        start = now_s();
        mapped_pages<<<blocks, THREADS>>>(handle, id, bytes, run ? 8 : 1, sum, result);
        gbps = end_run(start, (run ? 8 : 1) * bytes);
    }
    row("hits in place (gmap) by warp, 4 KiB", gbps, 1000, "");
    must(varve_gpufs_close(fs), "close");
}

/* Where the time of requests goes, from before a run until after it. */
struct spent {
    struct vv_gpufile_times server;
    struct varve_gpufs_stats st;
};

static struct spent spent_so_far(struct varve_gpufs *fs)
{
    struct spent s = {};

    vv_gpufile_server_times(fs, &s.server);
    s.st.stats_size = sizeof(s.st);
    must(varve_gpufs_stats(fs, &s.st), "stats");
    return s;
}

/* The time of a server for each request: in all; reading; idle, without a request; and the rest, which it takes to
 * accept and answer the request. Also the time that a group waits for its answer. */
static void tell_spent(const struct spent *from, const struct spent *to, double server_s, char *buf,
                       size_t size)
{
    double n = (double)(to->server.answered - from->server.answered),
           timed = (double)(to->server.timed - from->server.timed),
           asked = (double)(to->st.requests - from->st.requests), all, read, idle;

    buf[0] = '\0';
    if (n == 0 || timed == 0 || asked == 0)
        return;
    all = server_s / n * 1e6;
    read = (double)(to->server.timed_ns - from->server.timed_ns) / timed * 1e-3;
    idle = (double)(to->server.idle_ns - from->server.idle_ns) / n * 1e-3;
    snprintf(
        buf, size,
        "; %.2f M/s, %.2f us of a server each: reading %.2f, idle %.2f, else %.2f; waits %.0f us",
        n / server_s * 1e-6 * to->st.servers, all, read, idle, all - read - idle,
        (double)(to->st.waits_ns - from->st.waits_ns) / asked * 1e-3);
}

static void random_records(const char *name, const struct setup *s, int per_processor, double of)
{
    struct varve_gfs handle;
    struct varve_gpufs *fs;
    int blocks = per_processor * processors;
    uint32_t groups = (uint32_t)blocks * (THREADS / 32), id;
    unsigned count = s->map ? 400 : 200;
    double start, gbps[3], map_s;
    char note[256], spent[160] = "";
    struct setup with = *s;
    struct spent before, after;

    if (!strstr(name, opt.only))
        return;
    with.streams = groups;
    if (!with.ahead)
        with.ahead = 64 * KIB;
    with.cache = with.cache ? with.cache : GIB;
    fs = open_fs(&with, &id, &map_s);
    must(varve_gpufs_handle(fs, &handle), "handle");
    need_buffers((uint64_t)groups * 4 * KIB);
    for (int run = 0; run < 3; run++) {
        must(varve_gpufs_drop(fs), "drop");
        before = spent_so_far(fs);
        start_run();
        start = now_s();
        records<<<blocks, THREADS>>>(handle, id, opt.bytes, 4 * KIB, count, run == 2, buffers,
                                     result);
        gbps[run] = end_run(start, (uint64_t)groups * count * 4 * KIB);
        after = spent_so_far(fs);
        if (run == 1)
            tell_spent(&before, &after,
                       (double)groups * count * 4 * KIB * 1e-9 / gbps[1] * after.st.servers, spent,
                       sizeof(spent));
    }
    snprintf(note, sizeof(note), "first %.1f, checked %.1f%s", gbps[0], gbps[2], spent);
    row(name, gbps[1], of, note);
    must(varve_gpufs_close(fs), "close");
}

/* Measures and prints the limits. Returns the one for bytes that servers bring: the slower of pread and link. */
static double limits(void)
{
    printf("| %-58s | %8s | %5s | |\n| --- | --- | --- | --- |\n", "what", "GB/s", "of C");
    measure_link();
    pread_gbps = measure_pread(MIB, false, false, opt.bytes);
    row("pread of 1 MiB by as many threads as servers", pread_gbps, 0, "");
    pread4_gbps = measure_pread(4 * KIB, true, false, opt.bytes);
    row("pread of 4 KiB at random by as many threads as servers", pread4_gbps, 0, "");
    row("the same, with one open file for all of them",
        measure_pread(4 * KIB, true, true, opt.bytes), 0, "");
    return pread_gbps < link_gbps ? pread_gbps : link_gbps;
}

static void all_hits(void)
{
    hits(4 * KIB, VARVE_GWARP, 3);
    hits(64 * KIB, VARVE_GWARP, 3);
    hits(4 * KIB, VARVE_GBLOCK, 3);
    hits(64 * KIB, VARVE_GBLOCK, 3);
    hits_in_place();
}

static void page_sizes(double served)
{
    static const uint64_t pages[] = {4 * KIB, 64 * KIB, 2 * MIB};
    struct setup by_warp = {};
    char name[96];

    for (unsigned i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        struct setup s = {};

        s.page = (uint32_t)pages[i];
        s.map = 1;
        snprintf(name, sizeof(name), "mapped, in cache, pages of %llu KiB, by block",
                 (unsigned long long)(pages[i] / KIB));
        sequential(name, &s, VARVE_GBLOCK, processors * 2, 256 * KIB, link_gbps);
        s.map = 0;
        snprintf(name, sizeof(name), "served, in cache, pages of %llu KiB, by block",
                 (unsigned long long)(pages[i] / KIB));
        sequential(name, &s, VARVE_GBLOCK, processors, 256 * KIB, served);
    }
    by_warp.map = 1;
    by_warp.streams = (uint32_t)processors * 2 * (THREADS / 32);
    by_warp.ahead = 64 * KIB;
    sequential("mapped, in cache, 4 KiB pages and reads, by warp", &by_warp, VARVE_GWARP,
               processors * 2, 4 * KIB, link_gbps);
}

static void larger_files(double served)
{
    static const char *const names[] = {"by-passed", "own queue", "global queue"};
    char name[96];

    for (int times = 2; times <= 8; times *= 4)
        for (int how = 0; how < 6; how++) {
            struct setup s = {};

            s.map = how < 3;
            /* One queue for all is slow: a part of the file tells enough. */
            s.bytes = how % 3 == 2 ? opt.bytes / 16 : 0;
            s.cache = (s.bytes ? s.bytes : opt.bytes) / (uint64_t)times;
            s.bypass = how % 3 == 0 ? VARVE_GBYPASS_AUTO : VARVE_GBYPASS_NEVER;
            s.replace = how % 3 == 2 ? (int)VV_GREPLACE_GLOBAL : VARVE_GREPLACE_OWN;
            snprintf(name, sizeof(name), "%s, file %d x cache, 4 KiB pages, %s",
                     s.map ? "mapped" : "served", times, names[how % 3]);
            sequential(name, &s, VARVE_GBLOCK, processors, 256 * KIB, s.map ? link_gbps : served);
        }
}

static void readaheads(double served)
{
    struct setup s = {};
    char name[96];

    s.readahead = VV_GREADAHEAD_FIXED;
    s.ahead = 64 * KIB;
    sequential("served, fixed readahead of 64 KiB", &s, VARVE_GBLOCK, processors, 64 * KIB, served);
    s.queue = VV_GQUEUE_SLOTS;
    sequential("served, fixed readahead of 64 KiB, slots (paper mode)", &s, VARVE_GBLOCK,
               processors, 64 * KIB, served);
    s.queue = VARVE_GQUEUE_TICKETS;
    s.readahead = VARVE_GREADAHEAD_OFF;
    sequential("served, no readahead, reads of 4 KiB", &s, VARVE_GBLOCK, processors, 4 * KIB,
               served);
    s.readahead = VARVE_GREADAHEAD_ADAPTIVE;
    for (uint64_t ahead = 128 * KIB; ahead <= 512 * KIB; ahead *= 2) {
        s.ahead = (uint32_t)ahead;
        s.split = (uint32_t)(ahead / 4);
        snprintf(name, sizeof(name), "served, windows of %llu KiB in 4 parts",
                 (unsigned long long)(ahead / KIB));
        sequential(name, &s, VARVE_GBLOCK, processors, 128 * KIB, served);
    }
}

static void all_random(void)
{
    double served = pread4_gbps < link_gbps ? pread4_gbps : link_gbps;
    struct setup s = {};
    char name[96];

    s.map = 1;
    random_records("random 4 KiB, mapped, 1 block per processor", &s, 1, link_gbps);
    random_records("random 4 KiB, mapped, 3 blocks per processor", &s, 3, link_gbps);
    s.readahead = VARVE_GREADAHEAD_OFF;
    random_records("random 4 KiB, mapped, 3 blocks, readahead off", &s, 3, link_gbps);
    s.map = 0;
    s.readahead = VARVE_GREADAHEAD_ADAPTIVE;
    random_records("random 4 KiB, served, 1 block per processor", &s, 1, served);
    random_records("random 4 KiB, served, 3 blocks per processor", &s, 3, served);
    for (s.servers = 2; s.servers < opt.servers; s.servers *= 2) {
        snprintf(name, sizeof(name), "random 4 KiB, served, 3 blocks, %u servers", s.servers);
        random_records(name, &s, 3, 0);
    }
    s.servers = 0;
    s.queue = VV_GQUEUE_SLOTS;
    random_records("random 4 KiB, served, 3 blocks, slots", &s, 3, served);
}

static void tables(void)
{
    double served = limits();

    all_hits();
    page_sizes(served);
    larger_files(served);
    readaheads(served);
    all_random();
}

#define AT(field) offsetof(struct micro_opts, field)

static const struct opt options[] = {
    {.kind = OPT_TEXT,
     .name = "folder",
     .arg = "FOLDER",
     .help = "for the file (/tmp)",
     .at = AT(folder)},
    {.kind = OPT_BYTES,
     .name = "bytes",
     .arg = "SIZE",
     .help = "of the file, in steps of 16M (4G)",
     .at = AT(bytes),
     .least = 64 * MIB},
    {.kind = OPT_U32,
     .name = "servers",
     .arg = "N",
     .help = "threads (all processors but two)",
     .at = AT(servers),
     .most = 64},
    {.kind = OPT_TEXT,
     .name = "only",
     .arg = "WORD",
     .help = "rows with it in their names",
     .at = AT(only)},
};

static const struct opts command = {.command = "gpufile_micro",
                                    .usage = "[OPTION]...",
                                    .about =
                                        "Measures GPU files on a real GPU, one figure at a time.",
                                    OPT_LIST(options)};

int main(int argc, char **argv)
{
    struct varve_opts o;
    cudaDeviceProp prop;
    int status = opts_parse(&command, argc, argv, &opt, NULL);

    if (status >= 0)
        return status;
    opt.bytes = opt.bytes / (16 * MIB) * (16 * MIB);
    if (!opt.servers) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);

        opt.servers = n > 16 ? 14 : n > 3 ? (uint32_t)n - 2 : 1;
    }
    /* First: where no GPU can be used, the library says why. */
    must(varve_opts_init(&o, sizeof(o)), "options");
    o.device = VARVE_DEVICE_CUDA;
    o.device_cache = o.host_cache = 0;
    must(varve_open(&o, &ctx), "varve_open");
    must_cuda(cudaGetDeviceProperties(&prop, 0), "device");
    processors = prop.multiProcessorCount;
    must_cuda(cudaMallocManaged(&result, 4096), "result");
    write_file();
    printf("%s, %d processors, file of %llu MiB in the page cache, %u servers\n\n", prop.name,
           processors, (unsigned long long)(opt.bytes / MIB), opt.servers);
    tables();
    unlink(path);
    must(varve_close(ctx), "varve_close");
    return bad_seen ? 1 : 0;
}
