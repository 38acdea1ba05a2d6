/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU files on a real GPU: every way to read gives the right bytes, writes are seen and kept, and every bad input is
 * an error code in the kernel, without hangs. Rare orders of events of the protocol are tested in tests/unit/gpufile,
 * where threads emulate the GPU.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <varve/gpufile.h>
#include <varve/gpufile_device.h>

extern "C" {
#include "gpufile/gpufile_hooks.h"
#include "t.h"
}

#include "base/pattern.h"

enum { THREADS = 256, SEED = 7, BLOCKS = 60 };
static const uint64_t KIB = 1024, MIB = 1024 * KIB;
static const uint64_t BYTES = 40 * MIB + 12345;

static struct varve_ctx *ctx;
static struct varve_gpufs *fs;
static struct varve_gfs handle;
static char path[4200];

struct outcome {
    unsigned long long right, wrong;
    int error, opened, closed;
    long long got;
    char path[4096];
};
static struct outcome *out; /* managed */
static unsigned char *buffers;

#define CUDA(call)                                                                \
    do {                                                                          \
        cudaError_t rc_ = (call);                                                 \
        if (rc_ != cudaSuccess)                                                   \
            t_fail(__FILE__, __LINE__, "%s: %s", #call, cudaGetErrorString(rc_)); \
    } while (0)

__device__ static unsigned char byte_at(uint64_t at)
{
    return (unsigned char)(vv_pattern_word(SEED, 0, at / 8) >> 8 * (at % 8));
}

__device__ static void check(const unsigned char *p, uint64_t off, int64_t n, unsigned rank,
                             unsigned size, struct outcome *o)
{
    unsigned long long right = 0, wrong = 0;

    for (int64_t i = rank; i < n; i += size)
        if (p[i] == byte_at(off + i))
            right++;
        else
            wrong++;
    atomicAdd(&o->right, right);
    if (wrong)
        atomicAdd(&o->wrong, wrong);
}

__global__ void read_all(const __grid_constant__ struct varve_gfs h, uint32_t id, uint64_t bytes,
                         uint64_t piece, enum varve_gscope scope, unsigned char *buf,
                         struct outcome *o)
{
    unsigned warps = blockDim.x / 32,
             groups = scope == VARVE_GBLOCK ? gridDim.x : gridDim.x * warps,
             g = scope == VARVE_GBLOCK ? blockIdx.x : blockIdx.x * warps + threadIdx.x / 32;
    uint64_t each = (bytes + groups - 1) / groups, off = g * each,
             end = off + each < bytes ? off + each : bytes;
    unsigned char *p = buf + g * (piece + 16) + g % 16;
    struct varve_gfile f;
    int rc = varve_gopen(&h, id, scope, &f);

    if (rc) {
        o->error = rc;
        return;
    }
    for (; off < end; off += piece) {
        uint64_t want = piece < end - off ? piece : end - off;
        int64_t n = varve_gread(&f, off, p, want);

        if (n != (int64_t)want) {
            o->error = n < 0 ? (int)n : -EPROTO;
            break;
        }
        check(p, off, n, f.rank, f.size, o);
        if (scope == VARVE_GBLOCK)
            __syncthreads();
        else
            __syncwarp();
    }
    rc = varve_gclose(&f);
    if (rc)
        o->error = rc;
}

/* One read by one block; or only opening, by path. */
__global__ void probe(const __grid_constant__ struct varve_gfs h, uint32_t id, int by_path,
                      uint64_t off, uint64_t bytes, unsigned char *buf, struct outcome *o)
{
    struct varve_gfile f;
    int64_t n;
    int rc = by_path ? varve_gopen_path(&h, o->path, 1, VARVE_GBLOCK, &f)
                     : varve_gopen(&h, id, VARVE_GBLOCK, &f);

    o->opened = rc;
    if (rc)
        return;
    n = varve_gread(&f, off, buf, bytes);
    o->got = n;
    check(buf, off, n, f.rank, f.size, o);
    rc = varve_gclose(&f);
    o->closed = rc;
}

__global__ void write_back(const __grid_constant__ struct varve_gfs h, uint32_t id, uint64_t bytes,
                           struct outcome *o)
{
    __shared__ alignas(16) unsigned char piece[8192];
    uint64_t each = (bytes + gridDim.x - 1) / gridDim.x, off = blockIdx.x * each,
             end = off + each < bytes ? off + each : bytes, start = off;
    struct varve_gfile f;
    int rc = varve_gopen(&h, id, VARVE_GBLOCK, &f);

    for (; rc == 0 && off < end; off += sizeof(piece)) {
        uint64_t n = sizeof(piece) < end - off ? sizeof(piece) : end - off;

        for (uint64_t i = threadIdx.x; i < n; i += blockDim.x)
            piece[i] = byte_at(off + i);
        __syncthreads();
        if (varve_gwrite(&f, off, piece, n) != (int64_t)n)
            rc = -EPROTO;
        __syncthreads();
    }
    if (rc == 0)
        rc = varve_gsync(&f);
    for (off = start; rc == 0 && off < end; off += sizeof(piece)) {
        uint64_t n = sizeof(piece) < end - off ? sizeof(piece) : end - off;

        if (varve_gread(&f, off, piece, n) != (int64_t)n)
            rc = -EPROTO;
        else
            check(piece, off, n, f.rank, f.size, o);
        __syncthreads();
    }
    if (rc == 0)
        rc = varve_gclose(&f);
    if (rc)
        o->error = rc;
}

__global__ void map_pages(const __grid_constant__ struct varve_gfs h, uint32_t id, uint64_t bytes,
                          struct outcome *o)
{
    unsigned warps = blockDim.x / 32, g = blockIdx.x * warps + threadIdx.x / 32;
    uint64_t page = 1ull << h.page_shift;
    struct varve_gfile f;
    int rc = varve_gopen(&h, id, VARVE_GWARP, &f);

    for (uint64_t at = g * page; rc == 0 && at < bytes; at += gridDim.x * warps * page) {
        const void *p;
        uint64_t n;

        rc = varve_gmap(&f, at, &p, &n);
        if (rc == 0) {
            check((const unsigned char *)p, at, n, f.rank, f.size, o);
            varve_gunmap(&f, p);
        }
    }
    if (rc == 0)
        rc = varve_gclose(&f);
    if (rc)
        o->error = rc;
}

/* Reads all of the file again and again, until some bytes come from the host's mapping. */
__global__ void read_until_mapped(const __grid_constant__ struct varve_gfs h, uint32_t id,
                                  uint64_t bytes, unsigned char *buf, struct outcome *o)
{
    const uint64_t piece = 64 * 1024;
    unsigned char *p = buf + blockIdx.x * piece;
    uint64_t start = varve_d_now_ns();
    struct varve_gfile f;
    int rc = varve_gopen(&h, id, VARVE_GBLOCK, &f), late = 0;

    if (rc == 0)
        rc = varve_gadvise(&f, VARVE_GADV_NOREUSE, 0, 0);
    while (rc == 0 && !late && !__syncthreads_or(f.mapped_bytes != 0)) {
        for (uint64_t off = 0; rc == 0 && off < bytes; off += piece) {
            uint64_t want = piece < bytes - off ? piece : bytes - off;
            int64_t n = varve_gread(&f, off, p, want);

            if (n != (int64_t)want)
                rc = n < 0 ? (int)n : -EPROTO;
            else
                check(p, off, n, f.rank, f.size, o);
            __syncthreads();
        }
        late = __syncthreads_or(varve_d_now_ns() - start > 20000000000ull);
    }
    if (rc == 0)
        rc = varve_gclose(&f);
    if (rc || late)
        o->error = rc ? rc : -ETIMEDOUT;
}

/* The bytes are the same with any advice; pages are announced before, and dropped after. */
__global__ void read_advised(const __grid_constant__ struct varve_gfs h, uint32_t id,
                             uint64_t bytes, int advice, unsigned char *buf, struct outcome *o)
{
    const uint64_t piece = 32 * 1024;
    unsigned char *p = buf + blockIdx.x * piece;
    struct varve_gfile f;
    int rc = varve_gopen(&h, id, VARVE_GBLOCK, &f);

    if (rc == 0 && advice <= VARVE_GADV_NOREUSE)
        rc = varve_gadvise(&f, advice, 0, 0);
    for (uint64_t off = blockIdx.x * piece; rc == 0 && off < bytes; off += gridDim.x * piece) {
        uint64_t want = piece < bytes - off ? piece : bytes - off;
        int64_t n;

        if (advice == VARVE_GADV_WILLNEED)
            rc = varve_gadvise(&f, advice, off, want);
        n = varve_gread(&f, off, p, want);
        if (n != (int64_t)want)
            rc = n < 0 ? (int)n : -EPROTO;
        else
            check(p, off, n, f.rank, f.size, o);
        __syncthreads();
        if (rc == 0 && advice == VARVE_GADV_DONTNEED)
            rc = varve_gadvise(&f, advice, off, want);
    }
    if (rc == 0 && varve_gadvise(&f, 99, 0, 0) != -EINVAL)
        rc = -EPROTO;
    if (rc == 0)
        rc = varve_gclose(&f);
    if (rc)
        o->error = rc;
}

/* Page p of a file is filled with words of its version, which only grows. */
enum { WRITERS = 8, READERS = 24, BOARD_PAGES = 64, BOARD_ROUNDS = 200, BOARD_READ = 8 };

struct board {
    unsigned long long said[BOARD_PAGES]; /* versions that have certainly been written */
    unsigned long long reads, stale;
};

__device__ static int write_board(struct varve_gfile *f, struct board *b, unsigned me,
                                  uint64_t *words)
{
    for (uint64_t round = 1; round <= BOARD_ROUNDS; round++) {
        uint64_t page = (round * 7 + round / 5) % (BOARD_PAGES / WRITERS) * WRITERS + me;
        int64_t n;

        for (unsigned i = threadIdx.x; i < 512; i += blockDim.x)
            words[i] = round;
        __syncthreads();
        n = varve_gwrite(f, page * 4096, words, 4096);
        if (n != 4096)
            return n < 0 ? (int)n : -EPROTO;
        if (threadIdx.x == 0) {
            __threadfence();
            atomicMax(&b->said[page], (unsigned long long)round);
        }
        __syncthreads();
    }
    return 0;
}

__device__ static int read_board(struct varve_gfile *f, struct board *b, unsigned me,
                                 uint64_t *words)
{
    __shared__ unsigned long long least[BOARD_READ];

    for (uint64_t round = 0; round < BOARD_ROUNDS; round++) {
        uint64_t page = (round * 5 + me * 11) % (BOARD_PAGES - BOARD_READ + 1);
        unsigned long long stale = 0;
        int64_t n;

        if (threadIdx.x < BOARD_READ)
            least[threadIdx.x] = atomicMax(&b->said[page + threadIdx.x], 0ull);
        __syncthreads();
        n = varve_gread(f, page * 4096, words, BOARD_READ * 4096);
        if (n != BOARD_READ * 4096)
            return n < 0 ? (int)n : -EPROTO;
        for (unsigned i = threadIdx.x; i < BOARD_READ * 512; i += blockDim.x)
            stale += words[i] < least[i / 512];
        if (stale)
            atomicAdd(&b->stale, stale);
        if (threadIdx.x == 0)
            atomicAdd(&b->reads, 1ull);
        __syncthreads();
    }
    return 0;
}

__global__ void readers_and_writers(const __grid_constant__ struct varve_gfs h, uint32_t id,
                                    struct board *b, unsigned char *buf, struct outcome *o)
{
    uint64_t *words = (uint64_t *)(buf + blockIdx.x * BOARD_READ * 4096);
    struct varve_gfile f;
    int rc = varve_gopen(&h, id, VARVE_GBLOCK, &f);

    if (rc == 0)
        rc = blockIdx.x < WRITERS ? write_board(&f, b, blockIdx.x, words)
                                  : read_board(&f, b, blockIdx.x, words);
    if (rc == 0)
        rc = varve_gclose(&f);
    if (rc)
        o->error = rc;
}

/* ---- the host's side ---- */

static void make_file(const char *name, uint64_t bytes)
{
    uint64_t words = (bytes + 7) / 8;
    uint64_t *buf = (uint64_t *)malloc(words * 8);
    int fd;

    snprintf(path, sizeof(path), "%s/%s", t_tmpdir(), name);
    fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    T_CHECK(fd >= 0 && buf);
    for (uint64_t i = 0; i < words; i++)
        buf[i] = vv_pattern_word(SEED, 0, i);
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = pwrite(fd, (char *)buf + at, bytes - at, (off_t)at);

        T_CHECK(n > 0);
        at += (uint64_t)n;
    }
    T_EQ(close(fd), 0);
    free(buf);
}

static struct varve_gpufs_opts options(void)
{
    struct varve_gpufs_opts o;

    T_OK(varve_gpufs_opts_init(&o, sizeof(o)));
    o.cache_bytes = 64 * MIB;
    o.streams = BLOCKS * THREADS / 32;
    o.readahead_bytes = 64 * KIB;
    o.timeout_ms = 20000;
    o.servers = 4;
    return o;
}

static void open_fs(const struct varve_gpufs_opts *o)
{
    struct varve_opts opts;

    T_OK(varve_opts_init(&opts, sizeof(opts)));
    opts.device = VARVE_DEVICE_CUDA;
    opts.device_cache = opts.host_cache = 0;
    T_OK(varve_open(&opts, &ctx));
    T_OK(vv_gpufile_open(ctx, o, &fs)); /* some modes are those of the paper */
    T_OK(varve_gpufs_handle(fs, &handle));
}

static int close_fs(void)
{
    int rc = varve_gpufs_close(fs);

    T_OK(varve_close(ctx));
    return rc;
}

static void fresh(void)
{
    memset(out, 0, sizeof(*out));
    out->opened = out->closed = -1;
}

static void all_right(uint64_t bytes)
{
    CUDA(cudaDeviceSynchronize());
    T_OK(out->error);
    T_EQ(out->wrong, 0);
    T_EQ(out->right, bytes);
}

static void try_read(uint32_t id, uint64_t off, uint64_t bytes)
{
    fresh();
    probe<<<1, THREADS>>>(handle, id, 0, off, bytes, buffers, out);
    CUDA(cudaDeviceSynchronize());
    T_EQ(out->wrong, 0);
}

static void try_path(const char *name)
{
    fresh();
    snprintf(out->path, sizeof(out->path), "%s", name);
    probe<<<1, THREADS>>>(handle, 0, 1, 0, 100, buffers, out);
    CUDA(cudaDeviceSynchronize());
    T_EQ(out->wrong, 0);
}

static void every_way_to_read(void)
{
    static const struct {
        uint64_t page, piece, cache;
        enum varve_gscope scope;
        int map, readahead, replace, bypass, direct, queue;
    } ways[] = {
        {4 * KIB, 64 * KIB, 64 * MIB, VARVE_GBLOCK, 1, 0, 0, 0},
        {4 * KIB, 64 * KIB, 64 * MIB, VARVE_GBLOCK, 0, 0, 0, 0},
        {4 * KIB, 4 * KIB, 64 * MIB, VARVE_GWARP, 1, 0, 0, 0},
        {4 * KIB, 10007, 64 * MIB, VARVE_GWARP, 0, 0, 0, 0},
        {4 * KIB, 60000, 8 * MIB, VARVE_GBLOCK, 0, 0, 0, 0},
        {4 * KIB, 60000, 8 * MIB, VARVE_GBLOCK, 0, 0, 0, 1},
        {4 * KIB, 60000, 8 * MIB, VARVE_GBLOCK, 1, 0, 0, 1},
        {4 * KIB, 60000, 8 * MIB, VARVE_GBLOCK, 1, 0, 1, 1},
        {4 * KIB, 64 * KIB, 64 * MIB, VARVE_GBLOCK, 0, 1, 0, 0},
        {4 * KIB, 4 * KIB, 64 * MIB, VARVE_GBLOCK, 0, 2, 0, 0},
        {64 * KIB, 100000, 64 * MIB, VARVE_GBLOCK, 0, 0, 0, 0},
        {64 * KIB, 100000, 64 * MIB, VARVE_GBLOCK, 1, 0, 0, 0},
        {4 * KIB, 64 * KIB, 64 * MIB, VARVE_GBLOCK, 0, 0, 0, 0, 1, 0},
        {4 * KIB, 10007, 8 * MIB, VARVE_GWARP, 0, 0, 0, 1, 1, 0},
        {4 * KIB, 60000, 8 * MIB, VARVE_GBLOCK, 0, 0, 0, 1, 0, 1},
        {4 * KIB, 4 * KIB, 64 * MIB, VARVE_GWARP, 0, 2, 1, 0, 0, 1},
    };

    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct varve_gpufs_opts o = options();
        uint32_t id;

        o.page_bytes = (uint32_t)ways[i].page;
        o.cache_bytes = ways[i].cache;
        o.streams = ways[i].scope == VARVE_GBLOCK ? BLOCKS : BLOCKS * THREADS / 32;
        o.readahead = ways[i].readahead;
        o.replace = ways[i].replace;
        o.bypass = ways[i].bypass;
        o.direct = ways[i].direct;
        o.queue = ways[i].queue;
        open_fs(&o);
        make_file("file", BYTES);
        T_OK(varve_gpufs_register(fs, path, VARVE_GFILE_READ | (ways[i].map ? VARVE_GFILE_MAP : 0),
                                  &id));
        for (int twice = 0; twice < 2; twice++) {
            fresh();
            read_all<<<BLOCKS, THREADS>>>(handle, id, BYTES, ways[i].piece, ways[i].scope, buffers,
                                          out);
            all_right(BYTES);
        }
        fresh();
        map_pages<<<4, 64>>>(handle, id, MIB, out);
        all_right(MIB);
        T_OK(varve_gpufs_drop(fs));
        T_OK(close_fs());
        unlink(path);
    }
}

static void writing(void)
{
    struct varve_gpufs_opts o = options();
    uint64_t bytes = 3 * MIB + 99;
    unsigned char *back = (unsigned char *)malloc(bytes);
    uint32_t id;
    int fd;

    open_fs(&o);
    snprintf(path, sizeof(path), "%s/new", t_tmpdir());
    T_OK(varve_gpufs_register(fs, path, VARVE_GFILE_READ | VARVE_GFILE_WRITE | VARVE_GFILE_CREATE,
                              &id));
    fresh();
    write_back<<<16, THREADS>>>(handle, id, bytes, out);
    all_right(bytes);
    T_OK(close_fs());
    fd = open(path, O_RDONLY);
    T_CHECK(fd >= 0 && back);
    T_EQ(pread(fd, back, bytes, 0), (ssize_t)bytes);
    for (uint64_t i = 0; i < bytes; i++)
        T_EQ(back[i], (unsigned char)(vv_pattern_word(SEED, 0, i / 8) >> 8 * (i % 8)));
    close(fd);
    free(back);
}

/* Mapped by the library, and by the host. */
static void mapped_while_a_kernel_runs(void)
{
    for (int hot = 0; hot < 2; hot++) {
        struct varve_gpufs_opts o = options();
        const uint64_t bytes = 8 * MIB + 99;
        struct varve_gpufs_stats s = {sizeof(s)};
        uint32_t id;

        o.map_hot = hot;
        o.window_bytes = 2 * MIB;
        open_fs(&o);
        make_file("hot", bytes);
        T_OK(varve_gpufs_register(fs, path, VARVE_GFILE_READ, &id));
        fresh();
        read_until_mapped<<<4, THREADS>>>(handle, id, bytes, buffers, out);
        CUDA(cudaGetLastError());
        if (!hot)
            T_OK(varve_gpufs_map(fs, id, 0, 0, NULL));
        CUDA(cudaDeviceSynchronize());
        T_OK(out->error);
        T_EQ(out->wrong, 0);
        T_EQ(out->right % bytes, 0);
        T_OK(varve_gpufs_stats(fs, &s));
        T_CHECK(s.windows > 0 && s.mapped_bytes > 0);
        T_OK(close_fs());
        unlink(path);
    }
}

static void advised(void)
{
    const uint64_t bytes = 8 * MIB + 99;

    for (int advice = VARVE_GADV_NORMAL; advice <= VARVE_GADV_DONTNEED; advice++) {
        struct varve_gpufs_opts o = options();
        struct varve_gpufs_stats s = {sizeof(s)};
        uint32_t id;

        o.streams = BLOCKS; /* so that the share of each stream holds all that it reads */
        open_fs(&o);
        make_file("advised", bytes);
        T_OK(varve_gpufs_register(fs, path, VARVE_GFILE_READ, &id));
        for (int twice = 0; twice < 2; twice++) {
            fresh();
            read_advised<<<BLOCKS, THREADS>>>(handle, id, bytes, advice, buffers, out);
            all_right(bytes);
        }
        T_OK(varve_gpufs_stats(fs, &s));
        /* Pages that are not kept, or dropped, are requested twice. */
        if (advice == VARVE_GADV_NOREUSE || advice == VARVE_GADV_DONTNEED)
            T_EQ(s.served_bytes, 2 * bytes);
        else
            T_EQ(s.served_bytes, bytes);
        T_OK(close_fs());
        unlink(path);
    }
}

static void no_read_is_stale(void)
{
    for (int small = 0; small < 2; small++) {
        struct varve_gpufs_opts o = options();
        const uint64_t bytes = BOARD_PAGES * 4 * KIB;
        char *zero = (char *)calloc(1, bytes);
        struct board *b;
        uint32_t id;
        int fd;

        o.streams = WRITERS + READERS;
        o.cache_bytes = small ? 2 * (WRITERS + READERS) * 4 * KIB : 64 * MIB;
        CUDA(cudaMallocManaged(&b, sizeof(*b)));
        memset(b, 0, sizeof(*b));
        open_fs(&o);
        snprintf(path, sizeof(path), "%s/board", t_tmpdir());
        fd = open(path, O_CREAT | O_RDWR, 0600);
        T_CHECK(fd >= 0 && zero);
        T_EQ(pwrite(fd, zero, bytes, 0), (ssize_t)bytes);
        T_OK(varve_gpufs_register(fs, path, VARVE_GFILE_READ | VARVE_GFILE_WRITE, &id));
        fresh();
        readers_and_writers<<<WRITERS + READERS, THREADS>>>(handle, id, b, buffers, out);
        CUDA(cudaDeviceSynchronize());
        T_OK(out->error);
        T_EQ(b->reads, READERS * BOARD_ROUNDS);
        T_EQ(b->stale, 0);
        for (uint64_t p = 0; p < BOARD_PAGES; p++) {
            uint64_t w;

            T_EQ(pread(fd, &w, 8, (off_t)(p * 4 * KIB)), 8);
            T_EQ(w, b->said[p]);
        }
        T_OK(close_fs());
        T_EQ(close(fd), 0);
        CUDA(cudaFree(b));
        free(zero);
        unlink(path);
    }
}

static void bad_input(void)
{
    struct varve_gpufs_opts o = options();
    uint32_t id, mapped;
    char name[4200];

    o.timeout_ms = 1000;
    o.streams = 8;
    o.servers = 2;
    open_fs(&o);
    make_file("file", 300 * KIB);
    T_OK(varve_gpufs_register(fs, path, VARVE_GFILE_READ, &id));
    snprintf(name, sizeof(name), "%s/none", t_tmpdir());
    try_path(name);
    T_EQ(out->opened, -ENOENT);
    try_path(t_tmpdir());
    T_EQ(out->opened, -EISDIR);
    try_path(path);
    T_EQ(out->opened, 0);
    T_EQ(out->got, 100);
    try_read(17, 0, 10);
    T_EQ(out->opened, -EBADF);
    try_read(id, 300 * KIB + 1, 10);
    T_EQ(out->got, -ERANGE);
    try_read(id, 300 * KIB - 5, 10);
    T_EQ(out->got, 5);
    T_EQ(truncate(path, 100 * KIB), 0);
    try_read(id, 200 * KIB, 10 * KIB);
    T_EQ(out->got, -ENODATA);
    make_file("mapped", 300 * KIB);
    T_OK(varve_gpufs_register(fs, path, VARVE_GFILE_READ | VARVE_GFILE_MAP, &mapped));
    T_OK(varve_gpufs_stop(fs));
    try_read(id, 50 * KIB, 10);
    T_EQ(out->got, -ENOTCONN);
    try_read(mapped, 50 * KIB, 10);
    T_EQ(out->got, 10);
    T_OK(varve_gpufs_start(fs, 0));
    try_read(id, 50 * KIB, 10);
    T_EQ(out->got, 10);
    T_EQ(truncate(path, 290 * KIB), 0);
    try_read(mapped, 60 * KIB, 10);
    T_EQ(out->closed, -ENODATA);
    /* Both servers end during a request. */
    vv_gpufile_lose_server(fs);
    vv_gpufile_lose_server(fs);
    T_OK(varve_gpufs_drop(fs));
    try_read(id, 0, 10);
    T_EQ(out->got, -ETIMEDOUT);
    try_read(id, 0, 10);
    T_EQ(out->got, -ETIMEDOUT);
    try_read(id, 0, 10);
    T_CHECK(out->got == -ETIMEDOUT);
    T_EQ(close_fs(), -ENODATA);
}

int main(void)
{
    int count = 0;
    cudaError_t rc = cudaGetDeviceCount(&count);

    if (rc != cudaSuccess || count == 0)
        T_SKIP("no GPU: %s", cudaGetErrorString(rc));
    CUDA(cudaMallocManaged(&out, sizeof(*out)));
    CUDA(cudaMalloc(&buffers, 256 * MIB));
    T_RUN(every_way_to_read);
    T_RUN(writing);
    T_RUN(mapped_while_a_kernel_runs);
    T_RUN(advised);
    T_RUN(no_read_is_stale);
    T_RUN(bad_input);
    return t_done();
}
