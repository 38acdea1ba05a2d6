/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks on the emulated device, kernels in threads: every item sees the cells of the array, with any content of the
 * cache, any source of cells, and several runs on one cache. Under ThreadSanitizer, filling a slot while a kernel may
 * read it shows as a race.
 */
#define VARVE_EMULATE 1
#include <varve/blocks.h>
#include <varve/blocks_device.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/ckpt_hooks.h"
#include "device/host/host.h"
#include "ooc/ooc_private.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { X = 37, Y = 21, Z = 13, EDGE = 8, ITEMS = 300, BLOCK_BYTES = EDGE * EDGE * EDGE * 4 };

static uint64_t seed;
static float array[Z][Y][X];
static uint32_t packed_words[5 * 3 * 2 * BLOCK_BYTES / 4];

static void make_array(void)
{
    for (uint32_t z = 0; z < Z; z++)
        for (uint32_t y = 0; y < Y; y++)
            for (uint32_t x = 0; x < X; x++)
                array[z][y][x] = (float)(x + 100 * y + 10000 * z);
}

/* Each item reads the eight cells of a cube at a place that follows from its number and the seed. */
struct work {
    struct vv_device *device;
    struct varve_blocks_view view;
    uint64_t seed;
    uint64_t far; /* cells beyond the array that the first item asks for */
    uint32_t spread;
    bool one_by_one;  /* a cell is asked for when those before are there */
    uint32_t further; /* of pair: distance of its cells */
    uint32_t side;    /* of pair: items are rows of a plane of this side; 0: cells of one row */
    bool stuck;       /* items are left undone although their cells are there */
    float *sum;       /* of each item; -1: not done */
    uint32_t *times;
    int launch_error;
    int fail_at; /* the launch that returns launch_error; 0: all, negative: none */
};

static uint32_t place(const struct work *w, uint32_t item, uint32_t axis, uint32_t cells)
{
    uint64_t h = (3 * (1000 * w->seed + item / w->spread) + axis) * UINT64_C(0x9e3779b97f4a7c15);

    h = (h ^ h >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)((h >> 32) % (cells - 1));
}

static void gather(void *arg)
{
    struct work *w = arg;
    const struct varve_blocks_view *v = &w->view;
    uint32_t all = varve_d_blocks() * varve_d_threads();

    for (uint32_t i = varve_d_block() * varve_d_threads() + varve_d_thread(); i < v->items;
         i += all) {
        struct varve_blocks_cursor c = varve_blocks_cursor();
        uint32_t item = varve_blocks_item(v, i);
        uint64_t x = place(w, item, 0, X), y = place(w, item, 1, Y), z = place(w, item, 2, Z);
        float sum = 0, cell;
        int here = 1;

        if (item == 0)
            x += w->far;
        for (int k = 0; k < 8 && (here || !w->one_by_one); k++) {
            here &= varve_blocks_f32(v, &c, x + (k & 1), y + (k >> 1 & 1), z + (k >> 2), &cell);
            sum += cell;
        }
        if (here && !w->stuck) {
            /* If copies of the device fail, items may run twice. */
            __atomic_store(&w->sum[item], &sum, __ATOMIC_RELAXED);
            __atomic_fetch_add(&w->times[item], 1, __ATOMIC_RELAXED);
        } else {
            varve_blocks_again(v, item);
        }
    }
}

static void run_kernel(void *arg)
{
    T_OK(varve_emu_launch(3, 4, 2, seed, gather, arg));
}

static int launch(void *arg, const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    struct work *w = arg;

    (void)stream;
    w->view = *view;
    if (w->launch_error && (w->fail_at == 0 || --w->fail_at == 0))
        return w->launch_error;
    return vv_device_host_app_run(w->device, run_kernel, w);
}

static void work_init(struct work *w, struct varve_ctx *ctx, uint64_t where)
{
    *w = (struct work){.device = vv_ckpt_device(ctx), .seed = where, .spread = 7};
    w->sum = malloc(ITEMS * sizeof(*w->sum));
    w->times = calloc(ITEMS, sizeof(*w->times));
    for (uint32_t i = 0; i < ITEMS; i++)
        w->sum[i] = -1;
}

static void work_fini(struct work *w)
{
    free(w->sum);
    free(w->times);
}

static void work_check(struct work *w)
{
    for (uint32_t i = 0; i < ITEMS; i++) {
        uint32_t x = place(w, i, 0, X), y = place(w, i, 1, Y), z = place(w, i, 2, Z);
        float sum = 0;

        for (int k = 0; k < 8; k++)
            sum += array[z + (uint32_t)(k >> 2)][y + (uint32_t)(k >> 1 & 1)][x + (uint32_t)(k & 1)];
        if (w->sum[i] != sum || w->times[i] != 1)
            t_fail(__FILE__, __LINE__, "item %u: %g, not %g; done %u times", i, (double)w->sum[i],
                   (double)sum, w->times[i]);
    }
    work_fini(w);
}

static void work_end(struct work *w, int rc)
{
    rc == 0 ? work_check(w) : work_fini(w);
}

static struct varve_ctx *context(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 1 << 16, .host_cache = 1 << 16};

    return ck_open(&cfg);
}

static void close_both(struct varve_blocks *b, struct varve_ctx *ctx)
{
    T_OK(varve_blocks_close(b));
    T_OK(varve_close(ctx));
}

static void opts_for(struct varve_blocks_opts *o, uint32_t slots)
{
    T_OK(varve_blocks_opts_init(o, sizeof(*o)));
    o->cells[0] = X;
    o->cells[1] = Y;
    o->cells[2] = Z;
    for (int i = 0; i < 3; i++)
        o->edge[i] = EDGE;
    o->cache_bytes = (uint64_t)slots * BLOCK_BYTES;
    o->memory = packed_words;
}

static void layout(void)
{
    struct varve_blocks_opts o;
    uint64_t bytes;
    const float *packed = (const float *)packed_words;

    opts_for(&o, 2);
    T_OK(varve_blocks_bytes(&o, &bytes));
    T_EQ(bytes, sizeof(packed_words));
    T_OK(varve_blocks_pack(&o, array, packed_words));
    /* Cell (9, 17, 3) is cell (1, 1, 3) of block (1, 2, 0). */
    T_CHECK(packed[(2 * 5 + 1) * 512 + 3 * 64 + 1 * 8 + 1] == array[3][17][9]);
    /* Behind the edge of the array there are zeros. */
    T_CHECK(packed[4 * 512 + 7] == 0);
    o.edge[1] = 3;
    T_ERR(varve_blocks_bytes(&o, &bytes), -EINVAL);
    ck_error(NULL, -EINVAL, "powers of two");
    T_ERR(varve_blocks_pack(&o, array, packed_words), -EINVAL);
    opts_for(&o, 2);
    o.cells[0] = o.cells[1] = o.cells[2] = UINT64_C(1) << 40;
    T_ERR(varve_blocks_bytes(&o, &bytes), -EFBIG);
}

/* All sizes of the cache from the need of one item up, both policies. */
static void any_cache(void)
{
    struct varve_ctx *ctx = context();

    varve_emu_jitter = 20;
    for (int policy = VARVE_BLOCKS_CLOCK; policy <= VV_BLOCKS_PAPER; policy++)
        for (uint32_t slots = 8; slots <= 32; slots += 12) {
            struct varve_blocks_stats st = {.stats_size = sizeof(st)};
            struct varve_blocks_opts o;
            struct varve_blocks *b;

            opts_for(&o, slots);
            o.policy = policy;
            o.ahead = slots % 4 ? 2 : 0;
            o.rounds = 1000;
            T_OK(vv_blocks_open(ctx, &o, &b));
            for (uint64_t s = 1; s <= 2; s++) {
                struct work w;

                work_init(&w, ctx, s);
                T_OK(varve_blocks_run(b, ITEMS, launch, &w, NULL));
                work_check(&w);
            }
            T_OK(varve_blocks_stats(b, &st));
            T_EQ(st.runs, 2);
            T_CHECK(st.used_slots <= st.slots && st.slots == VV_MIN(slots, 30));
            T_CHECK(st.missed > 0 && st.bytes >= BLOCK_BYTES && st.bytes % BLOCK_BYTES == 0);
            T_CHECK(slots > 26 || st.evicted > 0);
            T_CHECK(slots < 30 || st.evicted == 0);
            T_OK(varve_blocks_close(b));
        }
    T_OK(varve_close(ctx));
}

/* Number of blocks that an item's cells are in. */
static uint32_t blocks_of(const struct work *w, uint32_t item)
{
    uint32_t cells[3] = {X, Y, Z}, n = 1;

    for (uint32_t axis = 0; axis < 3; axis++)
        n *= place(w, item, axis, cells[axis]) % EDGE == EDGE - 1 ? 2 : 1;
    return n;
}

/* The number behind these words in the error's text. */
static uint32_t named_item(struct varve_ctx *ctx, const char *behind)
{
    struct varve_error e = {.error_size = sizeof(e)};
    const char *at;

    T_OK(varve_last_error(ctx, &e));
    at = strstr(e.text, behind);
    if (!at)
        t_fail(__FILE__, __LINE__, "\"%s\" names no item", e.text);
    /* The text is complete: the general text of the error number would not fit. */
    T_CHECK(!strstr(e.text, varve_strerror(e.err)));
    return (uint32_t)strtoul(at + strlen(behind), NULL, 10);
}

/* Fewer slots than an item needs: an error, or the cells are read in host memory. */
static void too_small(void)
{
    struct varve_ctx *ctx = context();

    for (uint32_t slots = 2; slots <= 3; slots++) {
        struct varve_blocks_stats st = {.stats_size = sizeof(st)};
        struct varve_blocks_opts o;
        struct varve_blocks *b;
        struct work w;

        opts_for(&o, slots);
        o.rounds = 3;
        T_OK(varve_blocks_open(ctx, &o, &b));
        work_init(&w, ctx, 5);
        w.spread = 1;
        T_OK(varve_blocks_run(b, ITEMS, launch, &w, NULL));
        work_check(&w);
        T_OK(varve_blocks_stats(b, &st));
        T_CHECK(st.from_host > 0);
        T_OK(varve_blocks_close(b));
        o.rounds = 1 << 20;
        T_OK(varve_blocks_open(ctx, &o, &b));
        work_init(&w, ctx, 5);
        w.spread = 1;
        T_ERR(varve_blocks_run(b, ITEMS, launch, &w, NULL), -EFBIG);
        T_CHECK(blocks_of(&w, named_item(ctx, "item ")) > slots);
        work_fini(&w);
        T_OK(varve_blocks_close(b));
    }
    T_OK(varve_close(ctx));
}

static void run_once(struct varve_ctx *ctx, const struct varve_blocks_opts *o, int expected)
{
    struct varve_blocks *b;
    struct work w;

    T_OK(varve_blocks_open(ctx, o, &b));
    work_init(&w, ctx, 9);
    T_EQ(varve_blocks_run(b, ITEMS, launch, &w, NULL), expected);
    work_end(&w, expected);
    T_OK(varve_blocks_close(b));
}

/* So few slots that items are left over, and read host memory. */
static void run_from_host(struct varve_ctx *ctx, struct varve_blocks *b, int expected)
{
    struct varve_blocks_stats st = {.stats_size = sizeof(st)};
    struct work w;

    work_init(&w, ctx, 5);
    w.spread = 1;
    T_EQ(varve_blocks_run(b, ITEMS, launch, &w, NULL), expected);
    work_end(&w, expected);
    T_OK(varve_blocks_stats(b, &st));
    T_CHECK(expected || st.from_host > 0);
}

/* Memory that is pinned already is read in place, too, for as long as it stays pinned. */
static void pinned_before(void)
{
    struct varve_ctx *ctx = context(), *other = context();
    struct vv_device *d = vv_ckpt_device(ctx);
    struct varve_blocks *b[2];
    struct varve_blocks_opts o;
    enum vv_mem_kind kind;
    size_t left;

    opts_for(&o, 2);
    o.rounds = 3;
    /* By the application, whole and in pieces. */
    T_OK(vv_device_host_register(d, packed_words, sizeof(packed_words)));
    T_OK(varve_blocks_open(ctx, &o, &b[0]));
    run_from_host(ctx, b[0], 0);
    T_OK(varve_blocks_close(b[0]));
    T_OK(vv_device_host_unregister(d, packed_words));
    T_OK(vv_device_host_register(d, packed_words, BLOCK_BYTES));
    T_OK(varve_blocks_open(ctx, &o, &b[0]));
    run_from_host(ctx, b[0], -EFBIG);
    ck_error(ctx, -EFBIG, "registered, or is in part");
    T_OK(varve_blocks_close(b[0]));
    T_OK(vv_device_host_unregister(d, packed_words));
    /* By another array, which is closed first. */
    for (int i = 0; i < 2; i++)
        T_OK(varve_blocks_open(ctx, &o, &b[i]));
    T_OK(varve_blocks_close(b[0]));
    T_OK(vv_device_ptr_kind(d, packed_words, &kind, &left));
    T_EQ(left, sizeof(packed_words));
    run_from_host(ctx, b[1], 0);
    T_OK(varve_blocks_close(b[1]));
    T_OK(vv_device_ptr_kind(d, packed_words, &kind, &left));
    T_CHECK(left == SIZE_MAX);
    /* On one device while another device's array has it: each keeps its own. */
    T_OK(varve_blocks_open(ctx, &o, &b[0]));
    T_OK(varve_blocks_open(other, &o, &b[1]));
    T_OK(varve_blocks_close(b[0]));
    run_from_host(other, b[1], 0);
    T_OK(varve_blocks_close(b[1]));
    /* Another context's kernels would read memory that may not be pinned any more: only one registers it for both. */
    T_OK(varve_blocks_open(ctx, &o, &b[0]));
    T_OK(vv_device_host_register(vv_ckpt_device(other), packed_words, sizeof(packed_words)));
    T_OK(varve_blocks_open(other, &o, &b[1]));
    run_from_host(other, b[1], -EFBIG);
    ck_error(other, -EFBIG, "another context");
    T_OK(varve_blocks_close(b[1]));
    T_OK(vv_device_host_unregister(vv_ckpt_device(other), packed_words));
    T_OK(varve_blocks_close(b[0]));
    T_OK(varve_close(ctx));
    T_OK(varve_close(other));
}

/* Cells that are not aligned for the device are copied, and never read in place. */
static void misaligned(void)
{
    struct varve_ctx *ctx = context();
    unsigned char *p = malloc(sizeof(packed_words) + 16);
    struct varve_blocks_opts o;
    struct varve_blocks *b;

    memcpy(p + 2, packed_words, sizeof(packed_words));
    opts_for(&o, 10);
    o.memory = p + 2;
    o.rounds = 1000;
    run_once(ctx, &o, 0);
    o.cache_bytes = 2 * BLOCK_BYTES;
    o.rounds = 1;
    T_OK(varve_blocks_open(ctx, &o, &b));
    run_from_host(ctx, b, -EFBIG);
    ck_error(ctx, -EFBIG, "multiple of a cell");
    close_both(b, ctx);
    free(p);
}

/* The cells that an item asks for depend on those it has read: it takes as many rounds as it has blocks. */
static void chained(void)
{
    struct varve_ctx *ctx = context();

    for (uint32_t slots = 3; slots <= 4; slots++) { /* no item here needs more */
        struct varve_blocks_opts o;
        struct varve_blocks *b;
        struct work w;

        opts_for(&o, slots);
        o.rounds = 1 << 20;
        T_OK(varve_blocks_open(ctx, &o, &b));
        work_init(&w, ctx, 5);
        w.spread = 1;
        w.one_by_one = true;
        T_EQ(varve_blocks_run(b, ITEMS, launch, &w, NULL), slots < 4 ? -EFBIG : 0);
        if (slots < 4) {
            work_fini(&w);
        } else {
            work_check(&w);
        }
        T_OK(varve_blocks_close(b));
    }
    T_OK(varve_close(ctx));
}

static int from_packed(void *arg, uint64_t block, void *buf, size_t bytes)
{
    int *calls = arg;

    if (__atomic_add_fetch(calls, 1, __ATOMIC_RELAXED) == 20)
        return -EIO;
    memcpy(buf, (const char *)packed_words + block * bytes, bytes);
    return 0;
}

static void sources(void)
{
    struct varve_ctx *ctx = context();
    struct varve_history *h = ck_history(ctx, "model");
    struct varve_blocks_opts o;
    struct varve_blocks *b;
    char path[4096];
    int calls = 0, fd;

    snprintf(path, sizeof(path), "%s/cells", t_tmpdir());
    fd = open(path, O_CREAT | O_RDWR, 0600);
    T_CHECK(fd >= 0);
    T_EQ(pwrite(fd, packed_words, sizeof(packed_words), 100), (ssize_t)sizeof(packed_words));
    opts_for(&o, 10);
    o.memory = NULL;
    o.path = path;
    o.path_offset = 100;
    run_once(ctx, &o, 0);
    o.path_offset = 101; /* the file is one byte too short */
    T_ERR(varve_blocks_open(ctx, &o, &b), -ENODATA);
    ck_error(ctx, -ENODATA, "cells");
    o.path_offset = 100;
    T_OK(varve_blocks_open(ctx, &o, &b)); /* it becomes shorter later */
    T_EQ(ftruncate(fd, 100 + 3 * BLOCK_BYTES), 0);
    struct work w;
    work_init(&w, ctx, 9);
    T_ERR(varve_blocks_run(b, ITEMS, launch, &w, NULL), -ENODATA);
    ck_error(ctx, -ENODATA, " cannot be read");
    work_fini(&w);
    T_OK(varve_blocks_close(b));
    close(fd);
    o.path = "/nowhere/cells";
    T_ERR(varve_blocks_open(ctx, &o, &b), -ENOENT);
    ck_error(ctx, -ENOENT, "cannot open /nowhere/cells: No such file or directory");
    o.path = t_tmpdir();
    T_ERR(varve_blocks_open(ctx, &o, &b), -EISDIR);

    o.path = NULL;
    o.read = from_packed;
    o.read_arg = &calls;
    run_once(ctx, &o, -EIO);
    ck_error(ctx, -EIO, "block ");
    ck_error(ctx, -EIO, " cannot be read");
    calls = 100;
    run_once(ctx, &o, 0);

    /* A region of a version. */
    T_OK(varve_protect(h, 2, packed_words, sizeof(packed_words)));
    T_OK(varve_checkpoint(h, 7));
    T_OK(varve_unprotect(h, 2));
    o.read = NULL;
    o.history = h;
    o.version = 7;
    o.region = 2;
    run_once(ctx, &o, 0);
    o.version = 8;
    T_ERR(varve_blocks_open(ctx, &o, &b), -ENOENT);
    T_OK(varve_close(ctx));
}

/* Opening from a version does not change the application's regions: neither their content, nor that they are
 * protected. */
static void protected_regions(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 1 << 16, .host_cache = 1 << 18};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "model");
    struct varve_blocks_opts o;
    uint32_t first = packed_words[0];
    int state = 1, since = 1;

    T_OK(varve_protect(h, 0, &state, sizeof(state)));
    T_OK(varve_protect(h, 2, packed_words, sizeof(packed_words)));
    T_OK(varve_checkpoint(h, 7));
    T_OK(varve_protect(h, 9, &since, sizeof(since))); /* the version has no such region */
    state = 2;
    packed_words[0] = first + 1;
    opts_for(&o, 10);
    o.memory = NULL;
    o.history = h;
    o.version = 7;
    o.region = 2;
    run_once(ctx, &o, 0);
    T_EQ(state, 2);
    T_EQ(packed_words[0], first + 1);
    T_OK(varve_checkpoint(h, 8));
    state = 3;
    packed_words[0] = first;
    T_OK(varve_restore(h, 8));
    T_EQ(state, 2);
    T_EQ(packed_words[0], first + 1);
    packed_words[0] = first;
    T_OK(varve_unprotect(h, 2));
    T_OK(varve_close(ctx));
}

/* Staging memory is pinned: it has no more room than for all blocks, and for few large ones. */
static void staging(void)
{
    static const struct {
        uint64_t cells;
        uint32_t edge;
        size_t half_bytes;
    } cases[] = {
        {100 * 1024, 1024, VVI_STAGED * 4096},
        {5 * 1024, 1024, 5 * 4096},
        {100 << 20, 1 << 20, VVI_STAGED_BYTES},
        {64 << 20, 16 << 20, 64 << 20},
    };
    struct varve_ctx *ctx = context();

    for (size_t i = 0; i < VV_ARRAY_SIZE(cases); i++) {
        struct varve_blocks_opts o;
        struct varve_blocks *b;
        int calls = 100;

        T_OK(varve_blocks_opts_init(&o, sizeof(o)));
        o.cells[0] = cases[i].cells;
        o.edge[0] = cases[i].edge;
        o.cache_bytes = UINT64_C(8) * cases[i].edge;
        o.read = from_packed;
        o.read_arg = &calls;
        T_OK(varve_blocks_open(ctx, &o, &b));
        T_EQ(b->source.half_bytes, cases[i].half_bytes);
        T_OK(varve_blocks_close(b));
    }
    T_OK(varve_close(ctx));
}

struct crowd {
    struct varve_ctx *ctx;
    struct varve_blocks *b;
    uint64_t seed;
};

static void *one_of_many(void *arg)
{
    struct crowd *c = arg;

    for (uint64_t i = 0; i < 4; i++) {
        struct work w;

        work_init(&w, c->ctx, c->seed + i);
        T_OK(varve_blocks_run(c->b, ITEMS, launch, &w, NULL));
        work_check(&w);
    }
    return NULL;
}

/* Runs of several threads on one cache. */
static void shared(void)
{
    struct varve_ctx *ctx = context();

    for (uint32_t slots = 8; slots <= 20; slots += 12) {
        struct crowd crowd[3];
        struct varve_blocks_opts o;
        struct varve_blocks *b;
        pthread_t id[3];

        opts_for(&o, slots);
        o.rounds = 1000;
        T_OK(varve_blocks_open(ctx, &o, &b));
        for (int i = 0; i < 3; i++) {
            crowd[i] = (struct crowd){ctx, b, (uint64_t)i * 2};
            T_OK(-pthread_create(&id[i], NULL, one_of_many, &crowd[i]));
        }
        for (int i = 0; i < 3; i++)
            T_OK(-pthread_join(id[i], NULL));
        T_OK(varve_blocks_close(b));
    }
    T_OK(varve_close(ctx));
}

static void misuse(void)
{
    struct varve_ctx *ctx = context();
    struct varve_blocks_opts o;
    struct varve_blocks *b;
    struct work w;
    char text[128];

    opts_for(&o, 1);
    o.cache_bytes--;
    T_ERR(varve_blocks_open(ctx, &o, &b), -EFBIG);
    ck_error(ctx, -EFBIG, "not hold a block");
    opts_for(&o, 8);
    o.path = "x";
    T_ERR(varve_blocks_open(ctx, &o, &b), -EINVAL);
    opts_for(&o, 8);
    o.ahead = VARVE_BLOCKS_AHEAD_MAX + 1;
    T_ERR(varve_blocks_open(ctx, &o, &b), -EINVAL);
    ck_error(ctx, -EINVAL, "ahead is 8 at most");
    o.ahead = VARVE_BLOCKS_AHEAD_MAX;
    T_OK(varve_blocks_open(ctx, &o, &b));
    T_OK(varve_blocks_close(b));
    opts_for(&o, 8);
    o.cell_bytes = 3;
    T_ERR(varve_blocks_open(ctx, &o, &b), -EINVAL);
    T_ERR(varve_blocks_open(NULL, &o, &b), -EINVAL);
    opts_for(&o, 8);
    T_OK(varve_blocks_open(ctx, &o, &b));
    T_ERR(varve_close(ctx), -EBUSY);
    work_init(&w, ctx, 1);
    T_ERR(varve_blocks_run(b, ITEMS, NULL, &w, NULL), -EINVAL);
    ck_error(ctx, -EINVAL, "launch starts");
    T_ERR(varve_blocks_run(b, UINT64_C(1) << 33, launch, &w, NULL), -EINVAL);
    ck_error(ctx, -EINVAL, "items at most");
    T_OK(varve_blocks_run(b, 0, launch, &w, NULL));
    w.launch_error = -EPROTO;
    T_ERR(varve_blocks_run(b, ITEMS, launch, &w, NULL), -EPROTO);
    ck_error(ctx, -EPROTO, "launch returned");
    w.launch_error = 0;
    w.stuck = true;
    T_ERR(varve_blocks_run(b, ITEMS, launch, &w, NULL), -EINVAL);
    ck_error(ctx, -EINVAL, "which is missing no cell");
    T_CHECK(named_item(ctx, "leaves item ") < ITEMS);
    w.stuck = false;
    w.far = 1000;
    T_ERR(varve_blocks_run(b, ITEMS, launch, &w, NULL), -EINVAL);
    snprintf(text, sizeof(text), "cell %u, %u, %u, outside of the array's %d x %d x %d (8 times",
             place(&w, 0, 0, X) + 1000, place(&w, 0, 1, Y), place(&w, 0, 2, Z), X, Y, Z);
    ck_error(ctx, -EINVAL, text);
    work_fini(&w);
    /* Later runs work. */
    work_init(&w, ctx, 1);
    T_OK(varve_blocks_run(b, ITEMS, launch, &w, NULL));
    work_check(&w);
    T_OK(varve_blocks_close(b));
    T_OK(varve_blocks_close(NULL));
    T_OK(varve_close(ctx));
}

/* Each call of the device fails in turn: an error and nothing left behind, or right results. */
static void failures(void)
{
    for (uint64_t nth = 1; nth < 120; nth += 3 + t_seed() % 5) {
        struct varve_ctx *ctx = context();
        struct vv_device *d = vv_ckpt_device(ctx);
        struct varve_blocks_opts o;
        struct varve_blocks *b;
        struct work w;
        int rc;

        opts_for(&o, 9);
        T_OK(vv_device_host_fail(d, VV_DEVICE_OP_ANY, nth, 1, -EIO));
        rc = varve_blocks_open(ctx, &o, &b);
        if (rc == 0) {
            work_init(&w, ctx, 3);
            rc = varve_blocks_run(b, ITEMS, launch, &w, NULL);
            vv_device_host_heal(d);
            T_CHECK(rc == 0 || rc == -EIO);
            work_end(&w, rc);
            T_OK(varve_blocks_close(b));
        } else {
            T_EQ(rc, -EIO);
        }
        vv_device_host_heal(d);
        T_OK(varve_close(ctx));
    }
}

/* Copies that are accepted and fail later are detected before the run returns. */
static void late_failures(void)
{
    int failed = 0;

    for (uint64_t nth = 1; nth < 24; nth += 1 + t_seed() % 3) {
        struct varve_ctx *ctx = context();
        struct vv_device *d = vv_ckpt_device(ctx);
        struct varve_blocks_opts o;
        struct varve_blocks *b;
        struct work w;
        int rc;

        opts_for(&o, 9);
        T_OK(varve_blocks_open(ctx, &o, &b));
        work_init(&w, ctx, 3);
        T_OK(vv_device_host_fail_async(d, nth, 1, -EIO));
        rc = varve_blocks_run(b, ITEMS, launch, &w, NULL);
        vv_device_host_heal(d);
        failed += rc != 0;
        work_end(&w, rc);
        close_both(b, ctx);
    }
    T_CHECK(failed > 0);
}

/* A copy that was accepted and failed later still counts if the run ended with another error: the next run is right, or
 * returns an error. */
static void two_failures(void)
{
    int hidden = 0;

    for (uint64_t n = 0; n < t_cases(160, 640); n++) {
        struct varve_ctx *ctx = context();
        struct vv_device *d = vv_ckpt_device(ctx);
        struct varve_blocks_opts o;
        struct varve_blocks *b;
        struct work w;
        int calls = 100, rc;

        opts_for(&o, 40);
        o.policy = n % 2 ? VV_BLOCKS_PAPER : VARVE_BLOCKS_CLOCK;
        if (n % 4 > 1) {
            o.memory = NULL;
            o.read = from_packed;
            o.read_arg = &calls;
        }
        T_OK(vv_blocks_open(ctx, &o, &b));
        work_init(&w, ctx, 3);
        w.launch_error = -EPROTO;
        w.fail_at = 2 + (int)(n / 4 % 2);
        T_OK(vv_device_host_fail_async(d, 1 + (n / 8 + t_seed()) % 12, 1, -EIO));
        rc = varve_blocks_run(b, ITEMS, launch, &w, NULL);
        vv_device_host_heal(d);
        work_fini(&w);
        work_init(&w, ctx, 3);
        hidden += rc == -EPROTO;
        work_end(&w, varve_blocks_run(b, ITEMS, launch, &w, NULL));
        close_both(b, ctx);
    }
    T_CHECK(hidden > 0);
}

/* ---- a front that moves on ---- */

enum { ROW_EDGE = 128, ROW_BLOCKS = 20, ROW = ROW_EDGE * ROW_BLOCKS };

static float row[ROW];

/* An item reads a cell and one further on. The first is at w->seed of the item's row, or, if all items are in one
 * row, as many cells behind it as the item's number. */
static void pair(void *arg)
{
    struct work *w = arg;
    const struct varve_blocks_view *v = &w->view;
    uint32_t all = varve_d_blocks() * varve_d_threads();

    for (uint32_t i = varve_d_block() * varve_d_threads() + varve_d_thread(); i < v->items;
         i += all) {
        struct varve_blocks_cursor c = varve_blocks_cursor();
        uint32_t item = varve_blocks_item(v, i);
        uint64_t x = w->seed + (w->side ? 0 : item);
        uint32_t y = w->side ? item % w->side : 0, z = w->side ? item / w->side : 0;
        float a, b;
        int here = varve_blocks_f32(v, &c, x, y, z, &a) &
                   varve_blocks_f32(v, &c, x + w->further, y, z, &b);

        if (here) {
            a += b;
            __atomic_store(&w->sum[item], &a, __ATOMIC_RELAXED);
        } else {
            varve_blocks_again(v, item);
        }
    }
}

static void run_pair(void *arg)
{
    T_OK(varve_emu_launch(3, 4, 2, seed, pair, arg));
}

static int launch_pair(void *arg, const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    struct work *w = arg;

    (void)stream;
    w->view = *view;
    return vv_device_host_app_run(w->device, run_pair, w);
}

/* Runs from end to end, or up to the first error. */
static int go_along(struct varve_ctx *ctx, struct varve_blocks *b)
{
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at + ITEMS + ROW_EDGE <= ROW; at += ROW_EDGE) {
        struct work w;

        work_init(&w, ctx, at);
        w.further = ROW_EDGE;
        rc = varve_blocks_run(b, ITEMS, launch_pair, &w, NULL);
        for (uint32_t i = 0; rc == 0 && i < ITEMS; i++)
            T_CHECK(w.sum[i] == row[at + i] + row[at + i + ROW_EDGE]);
        work_fini(&w);
    }
    return rc;
}

static void row_opts(struct varve_blocks_opts *o)
{
    for (uint32_t i = 0; i < ROW; i++)
        row[i] = (float)(i + 1);
    T_OK(varve_blocks_opts_init(o, sizeof(*o)));
    o->cells[0] = ROW;
    o->edge[0] = ROW_EDGE;
    o->cache_bytes = 8 * ROW_EDGE * sizeof(float);
    o->memory = row;
}

/* A map in large pages, used from end to end. */
static void many_blocks(void)
{
    enum { CELLS = 400000, SIDE = 4 }; /* of a block */
    struct varve_ctx *ctx = context();
    float *cells = malloc(CELLS * sizeof(*cells));
    struct varve_blocks_opts o;
    struct varve_blocks *b;
    struct work w;

    for (uint32_t i = 0; i < CELLS; i++)
        cells[i] = (float)i;
    T_OK(varve_blocks_opts_init(&o, sizeof(o)));
    o.cells[0] = CELLS;
    o.edge[0] = SIDE;
    o.cache_bytes = 64 * SIDE * sizeof(*cells);
    o.memory = cells;
    T_OK(varve_blocks_open(ctx, &o, &b));
    for (uint32_t at = 0; at + ITEMS < CELLS; at += CELLS / 8) {
        work_init(&w, ctx, at);
        T_OK(varve_blocks_run(b, ITEMS, launch_pair, &w, NULL));
        for (uint32_t i = 0; i < ITEMS; i++)
            T_CHECK(w.sum[i] == 2 * cells[at + i]);
        work_fini(&w);
    }
    close_both(b, ctx);
    free(cells);
}

/* Copies take a while, so that blocks brought ahead are still on their way when kernels ask for them. One copy fails,
 * and only a later event reports it. A wrong sum is always reported by its run. */
static void front(void)
{
    const struct vv_device_host_rate slow = {.bytes_per_s = 250000};
    int failed = 0;

    varve_emu_jitter = 0; /* kernels end before copies */
    for (uint64_t n = 0; n < t_cases(8, 120); n++) {
        struct varve_blocks_stats st = {.stats_size = sizeof(st)};
        struct varve_ctx *ctx = context();
        struct vv_device *d = vv_ckpt_device(ctx);
        struct varve_blocks_opts o;
        struct varve_blocks *b;
        int rc;

        row_opts(&o);
        T_OK(varve_blocks_open(ctx, &o, &b));
        vv_device_host_set_rate(d, VV_DEVICE_HOST_H2D, slow);
        if (n > 0)
            T_OK(vv_device_host_fail_async(d, 1 + (n * 11 + t_seed()) % 80, 1, -EIO));
        rc = go_along(ctx, b);
        vv_device_host_heal(d);
        T_OK(varve_blocks_stats(b, &st));
        if (n == 0) {
            T_OK(rc);
            T_CHECK(st.ahead > 0 && st.missed > 0);
            T_CHECK(st.bytes / (ROW_EDGE * sizeof(float)) <= ROW_BLOCKS);
        }
        failed += rc != 0;
        close_both(b, ctx);
    }
    T_CHECK(failed > 0);
}

/* Runs along until the nth event is refused, and the last copy before it fails without a report, because its event
 * would have been that. `copies`: the index of that copy, 0 for none; returns its index. Then runs along again. */
static uint64_t go_until_refused(uint64_t nth, uint64_t copies)
{
    struct varve_ctx *ctx = context();
    struct vv_device *d = vv_ckpt_device(ctx);
    struct vv_device_host_stats before, after;
    struct varve_blocks_opts o;
    struct varve_blocks *b;

    row_opts(&o);
    T_OK(varve_blocks_open(ctx, &o, &b));
    vv_device_host_stats(d, &before);
    if (copies)
        T_OK(vv_device_host_fail_async(d, copies, 1, -EIO));
    T_OK(vv_device_host_fail(d, VV_DEVICE_OP_EVENT_RECORD, nth, 1, -EINVAL));
    (void)go_along(ctx, b); /* it checks the sums if it returns 0 */
    vv_device_host_stats(d, &after);
    vv_device_host_heal(d);
    for (int i = 0; copies && i < 2; i++)
        (void)go_along(ctx, b);
    close_both(b, ctx);
    return after.calls[VV_DEVICE_OP_COPY_ASYNC] - before.calls[VV_DEVICE_OP_COPY_ASYNC];
}

/* The loss of a map is not reported: the next runs send it again, or return an error. */
static void lost_maps(void)
{
    varve_emu_jitter = 0;
    (void)go_until_refused(16, go_until_refused(16, 0)); /* these are behind maps */
    (void)go_until_refused(24, go_until_refused(24, 0));
    for (uint64_t nth = 1; nth <= t_cases(8, 60); nth++)
        (void)go_until_refused(nth, go_until_refused(nth, 0));
}

static void *along(void *arg)
{
    struct crowd *c = arg;

    T_OK(go_along(c->ctx, c->b));
    return NULL;
}

/* Blocks that one run brings ahead are on their way when others ask for them. */
static void two_fronts(void)
{
    const struct vv_device_host_rate slow = {.bytes_per_s = 400000};
    struct varve_ctx *ctx = context();
    struct varve_blocks_opts o;
    struct varve_blocks *b;
    struct crowd crowd[2];
    pthread_t id[2];

    row_opts(&o);
    T_OK(varve_blocks_open(ctx, &o, &b));
    vv_device_host_set_rate(vv_ckpt_device(ctx), VV_DEVICE_HOST_H2D, slow);
    for (int i = 0; i < 2; i++) {
        crowd[i] = (struct crowd){ctx, b, 0};
        T_OK(-pthread_create(&id[i], NULL, along, &crowd[i]));
    }
    for (int i = 0; i < 2; i++)
        T_OK(-pthread_join(id[i], NULL));
    close_both(b, ctx);
}

/* ---- hardly any slots ---- */

struct narrow {
    struct varve_ctx *ctx;
    struct varve_blocks *b;
    uint32_t further;
};

/* All items of a run need two or three blocks, an item one or two. */
static void *run_narrow(void *arg)
{
    struct narrow *n = arg;

    for (uint64_t at = 0; at + ITEMS + n->further <= ROW; at += 5 * ROW_EDGE) {
        struct work w;

        work_init(&w, n->ctx, at);
        w.further = n->further;
        T_OK(varve_blocks_run(n->b, ITEMS, launch_pair, &w, NULL));
        for (uint32_t i = 0; i < ITEMS; i++)
            T_CHECK(w.sum[i] == row[at + i] + row[at + i + w.further]);
        work_fini(&w);
    }
    return NULL;
}

/* One to three slots; an item needs all, or all but one. All blocks come through them, for one run and for two that
 * take them from each other. */
static void few_slots(void)
{
    struct varve_ctx *ctx = context();

    varve_emu_jitter = 0;
    for (uint32_t n = 0; n < 12; n++) {
        struct varve_blocks_stats st = {.stats_size = sizeof(st)};
        uint32_t slots = 1 + n % 3;
        struct varve_blocks_opts o;
        struct narrow narrow = {.ctx = ctx, .further = slots > 1 ? ROW_EDGE : 0};
        pthread_t other;

        row_opts(&o);
        o.cache_bytes = slots * ROW_EDGE * sizeof(float);
        o.policy = n / 3 % 2 ? VV_BLOCKS_PAPER : VARVE_BLOCKS_CLOCK;
        o.rounds = 1 << 20;
        T_OK(vv_blocks_open(ctx, &o, &narrow.b));
        if (n / 6)
            T_OK(-pthread_create(&other, NULL, run_narrow, &narrow));
        (void)run_narrow(&narrow);
        if (n / 6)
            T_OK(-pthread_join(other, NULL));
        T_OK(varve_blocks_stats(narrow.b, &st));
        T_EQ(st.slots, slots);
        T_EQ(st.from_host, 0);
        T_CHECK(st.evicted > 0);
        T_OK(varve_blocks_close(narrow.b));
    }
    T_OK(varve_close(ctx));
}

struct evictor {
    struct varve_blocks *b;
    uint32_t slots;
    _Atomic int stop;
};

static void *evict_at_random(void *arg)
{
    struct evictor *e = arg;
    struct t_rng rng = {seed};

    while (!e->stop) {
        vvi_blocks_send_away(e->b, (uint32_t)t_rng_below(&rng, e->slots));
        usleep((useconds_t)t_rng_below(&rng, 200));
    }
    return NULL;
}

/* Blocks are evicted at any time, also those that running kernels read: their slots are not filled before these kernels
 * have ended, and evicted blocks come again. */
static void random_evictions(void)
{
    struct varve_ctx *ctx = context();

    varve_emu_jitter = 20;
    for (uint32_t slots = 2; slots <= 26; slots += 8) {
        struct varve_blocks_opts o;
        struct evictor e = {.slots = slots};
        struct crowd crowd[2];
        pthread_t id[2], evictor;

        opts_for(&o, slots);
        o.policy = slots % 4 ? VARVE_BLOCKS_CLOCK : VV_BLOCKS_PAPER;
        o.rounds = 6; /* after that, an unlucky item reads host memory */
        T_OK(vv_blocks_open(ctx, &o, &e.b));
        T_OK(-pthread_create(&evictor, NULL, evict_at_random, &e));
        for (int i = 0; i < 2; i++) {
            crowd[i] = (struct crowd){ctx, e.b, (uint64_t)i * 2};
            T_OK(-pthread_create(&id[i], NULL, one_of_many, &crowd[i]));
        }
        for (int i = 0; i < 2; i++)
            T_OK(-pthread_join(id[i], NULL));
        e.stop = 1;
        T_OK(-pthread_join(evictor, NULL));
        T_OK(varve_blocks_close(e.b));
    }
    T_OK(varve_close(ctx));
}

/* ---- a plane that moves back and forth ---- */

/* Blocks of PLANE_EDGE cells. A plane takes several calls that copy, so that other runs' calls come in
 * between. */
enum { PLANE_EDGE = 4, PLANES = 12, PLANE_SIDE = 17, PLANE = PLANE_SIDE * PLANE_SIDE };

static float planes[PLANE][PLANES * PLANE_EDGE];

static void sweep_at(struct varve_ctx *ctx, struct varve_blocks *b, uint32_t plane)
{
    uint32_t at = plane * PLANE_EDGE + (uint32_t)seed % PLANE_EDGE;
    struct work w;

    work_init(&w, ctx, at);
    w.further = PLANE_EDGE;
    w.side = PLANE_SIDE;
    T_OK(varve_blocks_run(b, PLANE, launch_pair, &w, NULL));
    for (uint32_t i = 0; i < PLANE; i++)
        T_CHECK(w.sum[i] == planes[i][at] + planes[i][at + PLANE_EDGE]);
    work_fini(&w);
}

/* The cache holds two thirds of the planes. Blocks are asked for while they are on their way, and are needed again
 * after their eviction: neither a slot that is not filled yet nor an outdated map may be read. */
static void back_and_forth(void)
{
    const struct vv_device_host_rate slow = {.bytes_per_s = 400000};
    struct varve_blocks_stats st = {.stats_size = sizeof(st)};
    struct varve_ctx *ctx = context();
    struct varve_blocks_opts o;
    struct varve_blocks *b;

    varve_emu_jitter = 0; /* kernels end before copies */
    for (uint32_t i = 0; i < PLANE; i++)
        for (uint32_t x = 0; x < PLANES * PLANE_EDGE; x++)
            planes[i][x] = (float)(i * PLANES * PLANE_EDGE + x + 1);
    T_OK(varve_blocks_opts_init(&o, sizeof(o)));
    o.cells[0] = PLANES * PLANE_EDGE;
    o.cells[1] = o.cells[2] = PLANE_SIDE;
    o.edge[0] = PLANE_EDGE;
    o.edge[1] = o.edge[2] = 1;
    o.cache_bytes = 8 * PLANE * PLANE_EDGE * sizeof(float);
    o.memory = planes;
    T_OK(varve_blocks_open(ctx, &o, &b));
    vv_device_host_set_rate(vv_ckpt_device(ctx), VV_DEVICE_HOST_H2D, slow);
    for (uint32_t plane = 0; plane + 1 < PLANES; plane++)
        sweep_at(ctx, b, plane);
    for (uint32_t plane = PLANES - 2; plane > 0; plane--)
        sweep_at(ctx, b, plane - 1);
    T_OK(varve_blocks_stats(b, &st));
    T_CHECK(st.ahead > 0 && st.missed > 0 && st.evicted > 0);
    close_both(b, ctx);
}

static void lost(void)
{
    struct varve_ctx *ctx = context();
    struct vv_device *d = vv_ckpt_device(ctx);
    struct varve_blocks_opts o;
    struct varve_blocks *b;
    struct work w;

    opts_for(&o, 9);
    T_OK(varve_blocks_open(ctx, &o, &b));
    work_init(&w, ctx, 3);
    T_OK(vv_device_host_lose_at(d, VV_DEVICE_OP_EVENT_QUERY, 3));
    T_ERR(varve_blocks_run(b, ITEMS, launch, &w, NULL), -ENODEV);
    T_ERR(varve_blocks_run(b, ITEMS, launch, &w, NULL), -ENODEV);
    T_OK(varve_blocks_close(b));
    work_fini(&w);
    (void)varve_close(ctx);
}

/* Each call finds the device lost in turn, also during opening: -ENODEV, and no thread hangs. */
static void lost_anywhere(void)
{
    struct t_rng rng = {seed};
    int failed = 0;

    for (uint64_t n = 0; n < t_cases(48, 800); n++) {
        struct varve_ctx *ctx = context();
        struct varve_blocks_opts o;
        struct varve_blocks *b;
        struct work w;
        int calls = 100, rc;

        opts_for(&o, 9);
        o.policy = n % 4 > 1 ? VV_BLOCKS_PAPER : VARVE_BLOCKS_CLOCK;
        if (n % 2) {
            o.memory = NULL;
            o.read = from_packed;
            o.read_arg = &calls;
        }
        T_OK(vv_device_host_lose_at(vv_ckpt_device(ctx), VV_DEVICE_OP_ANY,
                                    1 + t_rng_below(&rng, 200)));
        rc = vv_blocks_open(ctx, &o, &b);
        if (rc == 0) {
            work_init(&w, ctx, 3);
            rc = varve_blocks_run(b, ITEMS, launch, &w, NULL);
            work_end(&w, rc); /* 0: it had fewer calls */
            T_OK(varve_blocks_close(b));
        }
        T_CHECK(rc == -ENODEV || rc == 0);
        failed += rc != 0;
        (void)varve_close(ctx);
    }
    T_CHECK(failed > 0);
}

int main(void)
{
    seed = t_seed();
    make_array();
    T_RUN(layout);
    T_RUN(any_cache);
    T_RUN(too_small);
    T_RUN(pinned_before);
    T_RUN(misaligned);
    T_RUN(chained);
    T_RUN(sources);
    T_RUN(protected_regions);
    T_RUN(staging);
    T_RUN(shared);
    T_RUN(misuse);
    T_RUN(failures);
    T_RUN(late_failures);
    T_RUN(two_failures);
    T_RUN(many_blocks);
    T_RUN(front);
    T_RUN(lost_maps);
    T_RUN(two_fronts);
    T_RUN(few_slots);
    T_RUN(random_evictions);
    T_RUN(back_and_forth);
    T_RUN(lost);
    T_RUN(lost_anywhere);
    return t_done();
}
