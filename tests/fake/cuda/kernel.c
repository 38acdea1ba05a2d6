/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of the stand-in: any image loads (unless the setting `kernels` is 0). The functions of
 * src/device/cuda/kernels.cu are known by name and run on the processor, in stream order. Their
 * parameters are declared again here, so that a launch with other parameters is noticed.
 *
 * Addresses are checked when a kernel is launched; a wrong one ends the context when the kernel runs, as on a device.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/xxh3.h"
#include "private.h"

#define STEP UINT64_C(0x9e3779b97f4a7c15)

enum {
    BLOCK = 4096,
    TILE = 8 << 10,
    COPIED = 4 << 10, /* bytes per block that copies a single segment */
    FEW = 84,
    SMALL = 170,
    MIDDLE = 600,
    LARGE = 1364,
    HASH_SPANS = 64
};

enum kernel_kind { K_FILL, K_VERIFY, K_SPIN, K_COPY, K_GATHER, K_HASH };

struct seg {
    uint64_t dst, src;
    uint32_t bytes;
    uint32_t end_tile;
};

struct head {
    uint32_t n_segs;
    uint32_t n_tiles;
    uint64_t segs_per_tile; /* where the kernel begins its search; not needed here */
};

struct function {
    const char *name;
    enum kernel_kind kind;
    uint32_t max_segs;
};

static const struct function functions[] = {
    {"varve_fill", K_FILL, 0},
    {"varve_verify", K_VERIFY, 0},
    {"varve_spin", K_SPIN, 0},
    {"varve_hash", K_HASH, HASH_SPANS},
    {"varve_copy", K_COPY, 1},
    {"varve_gather_few", K_GATHER, FEW},
    {"varve_gather_small", K_GATHER, SMALL},
    {"varve_gather_middle", K_GATHER, MIDDLE},
    {"varve_gather_large", K_GATHER, LARGE},
};

struct module {
    struct module *next;
    struct fake_ctx *ctx;
    unsigned life;
};

/* One launch, with its addresses translated to the processor's. */
struct launch {
    enum kernel_kind kind;
    unsigned char *ptr;
    uint64_t bytes, first, ns;
    unsigned char *bad;
    struct head head;
    struct seg segs[];
};

static struct module *modules;

void fake_modules_drop(struct fake_ctx *c, unsigned life)
{
    for (struct module **p = &modules; *p;) {
        struct module *m = *p;
        if (m->ctx != c || m->life != life) {
            p = &m->next;
            continue;
        }
        *p = m->next;
        free(m);
    }
}

static int load(void **ret_module, const void *image)
{
    if (!image)
        return FAKE_INVALID_VALUE;
    if (!fake_set.kernels)
        return FAKE_NO_BINARY_FOR_GPU;
    struct module *m = calloc(1, sizeof(*m));
    if (!m)
        return FAKE_OUT_OF_MEMORY;
    m->ctx = fake_current();
    m->life = m->ctx->life;
    m->next = modules;
    modules = m;
    *ret_module = m;
    return 0;
}

API int cuModuleLoadData(void **ret_module, const void *image)
{
    ENTER(cuModuleLoadData, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(load(ret_module, image));
}

API int cuModuleLoadDataEx(void **ret_module, const void *image, unsigned n, int *options,
                           void **values)
{
    ENTER(cuModuleLoadDataEx, FAKE_NEED_CTX | FAKE_NEED_CALM);
    (void)n, (void)options, (void)values;
    LEAVE(load(ret_module, image));
}

static struct module **module_find(void *handle)
{
    struct module **p = &modules;
    while (*p && (void *)*p != handle)
        p = &(*p)->next;
    return *p ? p : NULL;
}

API int cuModuleUnload(void *handle)
{
    ENTER(cuModuleUnload, FAKE_NEED_CTX | FAKE_NEED_CALM);
    struct module **p = module_find(handle), *m;
    if (!p)
        LEAVE(FAKE_INVALID_HANDLE);
    m = *p;
    *p = m->next;
    free(m);
    LEAVE(0);
}

API int cuModuleGetFunction(void **ret_function, void *handle, const char *name)
{
    ENTER(cuModuleGetFunction, FAKE_NEED_CTX);
    if (!module_find(handle))
        LEAVE(FAKE_INVALID_HANDLE);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(functions[i].name, name) == 0) {
            *ret_function = (void *)(uintptr_t)&functions[i];
            LEAVE(0);
        }
    }
    LEAVE(FAKE_NOT_FOUND);
}

/* ---- running kernels ---- */

/* Fills in up to a block of the pattern, from word `k` on. */
static void pattern(uint64_t first, uint64_t k, unsigned char *ret_block, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = first + (k + at / 8) * STEP;
        memcpy(ret_block + at, &word, bytes - at < 8 ? bytes - at : 8);
    }
}

static uint64_t count_wrong(const struct launch *l)
{
    unsigned char block[BLOCK];
    uint64_t wrong = 0;
    for (uint64_t at = 0; at < l->bytes; at += BLOCK) {
        size_t n = l->bytes - at < BLOCK ? (size_t)(l->bytes - at) : BLOCK;
        pattern(l->first, at / 8, block, n);
        if (memcmp(block, l->ptr + at, n) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            wrong += l->ptr[at + i] != block[i];
    }
    return wrong;
}

static void gather(const struct launch *l)
{
    for (uint32_t tile = 0; tile < l->head.n_tiles; tile++) {
        uint32_t i = 0;
        while (i + 1 < l->head.n_segs && l->segs[i].end_tile <= tile)
            i++;
        uint32_t start = i ? l->segs[i - 1].end_tile : 0, at = (tile - start) * TILE;
        if (at >= l->segs[i].bytes)
            continue;
        uint32_t n = l->segs[i].bytes - at;
        memcpy((char *)(uintptr_t)l->segs[i].dst + at, (const char *)(uintptr_t)l->segs[i].src + at,
               n < TILE ? n : TILE);
    }
}

/* Sleeps until `ns` after `start`. */
static void stay(const struct timespec *start, uint64_t ns)
{
    ns += (uint64_t)start->tv_sec * 1000000000u + (uint64_t)start->tv_nsec;
    struct timespec end = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
}

static void run(void *arg)
{
    struct launch *l = arg;
    uint64_t sum;
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    switch (l->kind) {
    case K_FILL:
        pattern(l->first, 0, l->ptr, l->bytes);
        break;
    case K_VERIFY:
        memcpy(&sum, l->bad, sizeof(sum));
        sum += count_wrong(l);
        memcpy(l->bad, &sum, sizeof(sum));
        break;
    case K_SPIN:
        break;
    case K_COPY:
        memcpy((void *)(uintptr_t)l->segs[0].dst, (const void *)(uintptr_t)l->segs[0].src,
               l->bytes);
        break;
    case K_GATHER:
        gather(l);
        break;
    case K_HASH: /* one checksum for each segment */
        for (uint32_t i = 0; i < l->head.n_segs; i++) {
            sum = vv_xxh3((const void *)(uintptr_t)l->segs[i].src, l->segs[i].bytes);
            memcpy((void *)(uintptr_t)l->segs[i].dst, &sum, sizeof(sum));
        }
        break;
    }
    if (l->ns)
        stay(&start, l->ns);
}

/* ---- launching ---- */

static int resolve(uint64_t at, uint64_t bytes, unsigned char **ret_real)
{
    const struct fake_mem *m;
    char *real;
    int rc = fake_mem_range((uintptr_t)at, bytes, &real, &m);
    if (rc || !m)
        return FAKE_ILLEGAL_ADDRESS;
    *ret_real = (unsigned char *)real;
    return 0;
}

static uint64_t parameter(void **params, int i)
{
    uint64_t value;
    memcpy(&value, params[i], sizeof(value));
    return value;
}

/* The error is reported when the kernel runs; allocation failure is ret_launch NULL. Segments that a block would not
 * reach, or would search in vain, are an error as well. */
static int read_gather(const struct function *f, unsigned blocks, void **params,
                       struct launch **ret_launch)
{
    struct head head;
    memcpy(&head, params[0], sizeof(head));
    *ret_launch = calloc(1, sizeof(**ret_launch) + head.n_segs * sizeof(struct seg));
    if (!*ret_launch)
        return 0;
    struct launch *l = *ret_launch;
    l->head = head;
    if (head.n_segs == 0 || head.n_segs > f->max_segs || blocks != head.n_tiles)
        return FAKE_ILLEGAL_ADDRESS;
    memcpy(l->segs, (const char *)params[0] + sizeof(head), head.n_segs * sizeof(struct seg));
    uint64_t tiles = 0;
    for (uint32_t i = 0; i < head.n_segs; i++) {
        unsigned char *dst, *src;
        int rc = resolve(l->segs[i].dst, l->segs[i].bytes, &dst);
        if (rc == 0)
            rc = resolve(l->segs[i].src, l->segs[i].bytes, &src);
        if (rc)
            return rc;
        l->segs[i].dst = (uintptr_t)dst;
        l->segs[i].src = (uintptr_t)src;
        tiles += (l->segs[i].bytes + TILE - 1) / TILE;
        if (l->segs[i].end_tile != tiles)
            return FAKE_ILLEGAL_ADDRESS;
    }
    return tiles == head.n_tiles ? 0 : FAKE_ILLEGAL_ADDRESS;
}

static int read_copy(unsigned blocks, void **params, struct launch **ret_launch)
{
    *ret_launch = calloc(1, sizeof(**ret_launch) + sizeof(struct seg));
    if (!*ret_launch)
        return 0;
    struct launch *l = *ret_launch;
    uint64_t to = parameter(params, 0), from = parameter(params, 1);
    unsigned char *dst = NULL, *src = NULL;
    l->bytes = parameter(params, 2);
    int rc = resolve(to, l->bytes, &dst);
    if (rc == 0)
        rc = resolve(from, l->bytes, &src);
    if (rc || to % 16 || from % 16 || blocks != l->bytes / COPIED + 1)
        return FAKE_ILLEGAL_ADDRESS;
    l->segs[0] = (struct seg){.dst = (uintptr_t)dst, .src = (uintptr_t)src};
    return 0;
}

static int read_hash(const struct function *f, void **params, struct launch **ret_launch)
{
    struct {
        uint64_t sums, n;
        struct {
            uint64_t ptr, bytes;
        } span[HASH_SPANS];
    } t;
    memcpy(&t, params[0], sizeof(t));
    *ret_launch = calloc(1, sizeof(**ret_launch) + HASH_SPANS * sizeof(struct seg));
    if (!*ret_launch)
        return 0;
    struct launch *l = *ret_launch;
    if (t.n == 0 || t.n > f->max_segs)
        return FAKE_ILLEGAL_ADDRESS;
    l->head.n_segs = (uint32_t)t.n;
    for (uint32_t i = 0; i < t.n; i++) {
        unsigned char *dst, *src = NULL;
        int rc = resolve(t.sums + i * sizeof(uint64_t), sizeof(uint64_t), &dst);
        if (rc == 0)
            rc = resolve(t.span[i].ptr, t.span[i].bytes, &src);
        if (rc)
            return rc;
        l->segs[i] = (struct seg){
            .dst = (uintptr_t)dst, .src = (uintptr_t)src, .bytes = (uint32_t)t.span[i].bytes};
    }
    return 0;
}

static int read_params(const struct function *f, unsigned blocks, void **params,
                       struct launch **ret_launch)
{
    int rc = 0;
    if (f->kind == K_COPY || f->kind == K_GATHER || f->kind == K_HASH) {
        rc = f->kind == K_HASH   ? read_hash(f, params, ret_launch)
             : f->kind == K_COPY ? read_copy(blocks, params, ret_launch)
                                 : read_gather(f, blocks, params, ret_launch);
        if (*ret_launch)
            (*ret_launch)->kind = f->kind;
        return rc;
    }
    struct launch *l = *ret_launch = calloc(1, sizeof(*l));
    if (!l)
        return 0;
    l->kind = f->kind;
    l->ns = parameter(params, f->kind == K_SPIN ? 0 : f->kind == K_FILL ? 3 : 4);
    if (l->ns > 1000000000u)
        l->ns = 1000000000u;
    if (f->kind == K_SPIN)
        return 0;
    l->bytes = parameter(params, 1);
    l->first = parameter(params, 2);
    rc = resolve(parameter(params, 0), l->bytes, &l->ptr);
    if (rc == 0 && f->kind == K_VERIFY)
        rc = resolve(parameter(params, 3), sizeof(uint64_t), &l->bad);
    return rc;
}

static int launch(const void *handle, unsigned blocks, void **params, void *stream)
{
    const struct function *f = NULL;
    struct fake_stream *s;
    struct launch *l;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (handle == &functions[i])
            f = &functions[i];
    }
    if (!f)
        return FAKE_INVALID_HANDLE;
    int rc = params ? fake_stream_find(stream, &s) : FAKE_INVALID_VALUE;
    if (rc)
        return rc;
    int fail = read_params(f, blocks, params, &l);
    struct fake_op *op = l ? fake_op_new(FAKE_OP_CALL) : NULL;
    if (!op) {
        free(l);
        return FAKE_OUT_OF_MEMORY;
    }
    op->fn = run;
    op->arg = l;
    op->free_arg = free;
    op->fail = fail ? fail : fake_late_failure();
    return fake_submit(s, op);
}

API int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                       void *stream, void **params, void **extra)
{
    ENTER(cuLaunchKernel, FAKE_NEED_CTX);
    (void)shared;
    if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z || extra ||
        (uint64_t)block_x * block_y * block_z > 1024)
        LEAVE(FAKE_INVALID_VALUE);
    LEAVE(launch(function, grid_x, params, stream));
}
