/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of blocks: options, the layout, opening and closing, and the memory that runs use.
 *
 * On the device lie the slots, which all kernels share; and for each run a map of blocks, a bit for each block that a
 * round asks for and for each slot that it uses, three counters and two lists of items. In host memory that kernels
 * write lies the list of blocks that a round asks for.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/error.h"
#include "ckpt/face.h"
#include "ooc/ooc_private.h"

/* ---- options and layout ---- */

static const struct varve_blocks_opts defaults = {
    .opts_size = sizeof(defaults),
    .cells = {1, 1, 1},
    .cell_bytes = 4,
    .rounds = 8,
    .ahead = 1,
    .readers = 4,
};

int varve_blocks_opts_init(struct varve_blocks_opts *opts, size_t opts_size)
{
    int rc = vvi_ooc_opts_init(&defaults, sizeof(defaults), opts, opts_size);

    return rc ? vvi_ooc_bad("blocks_opts_init", VVI_OOC_OPTS) : 0;
}

/* Converts the options to this library's version. */
static int take_opts(const struct varve_blocks_opts *opts, struct varve_blocks_opts *ret)
{
    bool flat;
    int rc = vvi_ooc_opts_take(&defaults, sizeof(defaults), opts, ret);

    if (rc)
        return rc;
    flat = ret->cells[1] == 1 && ret->cells[2] == 1;
    for (int i = 0; i < 3; i++)
        if (ret->edge[i] == 0)
            ret->edge[i] = ret->cells[i] == 1 ? 1 : flat ? 32768 : 32;
    return 0;
}

/* Fills in the layout of a view; returns NULL, or a text about the bad option. */
static const char *lay_out(const struct varve_blocks_opts *o, struct varve_blocks_view *v,
                           uint64_t *ret_blocks)
{
    uint64_t blocks = 1, block_bytes = o->cell_bytes;

    if (!vv_is_pow2(o->cell_bytes) || o->cell_bytes > 16)
        return "cell_bytes is 1, 2, 4, 8 or 16";
    for (int i = 0; i < 3; i++) {
        if (!vv_is_pow2(o->edge[i]) || o->edge[i] > UINT32_C(1) << 24)
            return "the edges of a block are powers of two, 2^24 at most";
        if (o->cells[i] == 0 || o->cells[i] > UINT64_C(1) << 48)
            return "an array has 1 to 2^48 cells along each axis";
        v->cells[i] = o->cells[i];
        v->shift[i] = (uint32_t)__builtin_ctz(o->edge[i]);
        if (vv_div_up(o->cells[i], o->edge[i]) > UINT32_MAX - 1)
            return "the array has more than 2^32 - 2 blocks";
        v->nr[i] = (uint32_t)vv_div_up(o->cells[i], o->edge[i]);
        blocks *= v->nr[i];
        block_bytes *= o->edge[i];
        if (blocks > UINT32_MAX - 1)
            return "the array has more than 2^32 - 2 blocks";
        if (block_bytes > UINT64_C(1) << 30)
            return "a block has 1 GiB at most";
    }
    if (block_bytes % 16)
        return "a block has a multiple of 16 bytes";
    v->cell_bytes = o->cell_bytes;
    v->block_bytes = block_bytes;
    *ret_blocks = blocks;
    return NULL;
}

int varve_blocks_bytes(const struct varve_blocks_opts *opts, uint64_t *ret_bytes)
{
    struct varve_blocks_opts o;
    struct varve_blocks_view v;
    uint64_t blocks;
    const char *why;

    if (!ret_bytes)
        return vvi_ooc_bad("blocks_bytes", "ret_bytes is NULL");
    if (take_opts(opts, &o))
        return vvi_ooc_bad("blocks_bytes", VVI_OOC_OPTS);
    why = lay_out(&o, &v, &blocks);
    if (why)
        return vv_ckpt_fail_ctx(NULL, "blocks_bytes", strstr(why, "more than") ? -EFBIG : -EINVAL,
                                false, "%s", why);
    *ret_bytes = blocks * v.block_bytes;
    return 0;
}

/* Packs one row of cells from its place in the array. */
static void pack_row(const struct varve_blocks_view *v, const unsigned char *array,
                     const uint64_t at[3], unsigned char *to)
{
    uint64_t edge = UINT64_C(1) << v->shift[0], cells = 0;

    if (at[1] < v->cells[1] && at[2] < v->cells[2])
        cells = VV_MIN(edge, v->cells[0] - at[0]);
    if (cells)
        memcpy(to, array + ((at[2] * v->cells[1] + at[1]) * v->cells[0] + at[0]) * v->cell_bytes,
               cells * v->cell_bytes);
    memset(to + cells * v->cell_bytes, 0, (edge - cells) * v->cell_bytes);
}

int varve_blocks_pack(const struct varve_blocks_opts *opts, const void *array, void *ret_packed)
{
    struct varve_blocks_opts o;
    struct varve_blocks_view v;
    unsigned char *to = ret_packed;
    uint64_t blocks;
    const char *why;

    if (!array || !ret_packed)
        return vvi_ooc_bad("blocks_pack", array ? "ret_packed is NULL" : "array is NULL");
    if (take_opts(opts, &o))
        return vvi_ooc_bad("blocks_pack", VVI_OOC_OPTS);
    why = lay_out(&o, &v, &blocks);
    if (why)
        return vv_ckpt_fail_ctx(NULL, "blocks_pack", -EINVAL, false, "%s", why);
    for (uint64_t b = 0; b < blocks; b++) {
        uint64_t first[3] = {(b % v.nr[0]) << v.shift[0], (b / v.nr[0] % v.nr[1]) << v.shift[1],
                             (b / v.nr[0] / v.nr[1]) << v.shift[2]};

        for (uint64_t z = 0; z < o.edge[2]; z++)
            for (uint64_t y = 0; y < o.edge[1]; y++) {
                pack_row(&v, array, (uint64_t[]){first[0], first[1] + y, first[2] + z}, to);
                to += o.edge[0] * v.cell_bytes;
            }
    }
    return 0;
}

static const char *why_not(const struct varve_blocks_opts *o, bool paper)
{
    int sources = !!o->memory + !!o->path + !!o->read + !!o->history;

    if (sources != 1)
        return "one of memory, path, read and history says where the cells are";
    if (o->policy != VARVE_BLOCKS_CLOCK && !(paper && o->policy == VV_BLOCKS_PAPER))
        return "policy is VARVE_BLOCKS_CLOCK";
    if (o->readers < 1 || o->readers > 64)
        return "readers are 1 to 64";
    _Static_assert(VARVE_BLOCKS_AHEAD_MAX == 8, "as the text says");
    if (o->ahead > VARVE_BLOCKS_AHEAD_MAX)
        return "ahead is 8 at most";
    return NULL;
}

/* ---- small things ---- */

int vvi_blocks_wait(struct varve_blocks *b, struct vv_event *event)
{
    return vvi_ooc_wait(b->device, event);
}

int vvi_blocks_fail(struct varve_blocks *b, const char *operation, int rc, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return vv_ckpt_fail_ctx(b->ctx, operation, rc, true, "%s", text);
}

static int device_alloc(struct varve_blocks *b, size_t bytes, unsigned char **ret)
{
    void *p;
    int rc = vv_device_mem_alloc(b->device, bytes, &p);

    if (rc == 0)
        *ret = p;
    return rc;
}

/* Maps are read at random places, a few entries at a time: with pages of this size there are fewer TLB misses. Memory
 * smaller than half of one is in small pages. */
#define LARGE_PAGE ((size_t)2 << 20)

static size_t mapped_bytes(size_t bytes)
{
    return bytes < LARGE_PAGE / 2 ? bytes : vv_align_up(bytes, LARGE_PAGE);
}

static unsigned char *map_pages(size_t bytes)
{
    size_t mapped = mapped_bytes(bytes), more = mapped < LARGE_PAGE ? 0 : LARGE_PAGE, before;
    unsigned char *p =
        mmap(NULL, mapped + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    if (more > 0) {
        before = vv_align_up((uintptr_t)p, LARGE_PAGE) - (uintptr_t)p;
        if (before > 0)
            (void)munmap(p, before);
        p += before;
        if (more > before)
            (void)munmap(p + mapped, more - before);
        (void)madvise(p, mapped, MADV_HUGEPAGE);
    }
    return p;
}

/* Allocates registered host memory; *ret_dev is its address for kernels. */
static int host_alloc(struct varve_blocks *b, size_t bytes, unsigned char **ret, void **ret_dev)
{
    unsigned char *p = map_pages(bytes);
    int rc;

    if (!p)
        return -ENOMEM;
    memset(p, 0, bytes);
    rc = vv_device_host_share(b->device, p, bytes, false, ret_dev);
    if (rc)
        (void)munmap(p, mapped_bytes(bytes));
    else
        *ret = p;
    return rc;
}

static void host_free(struct varve_blocks *b, unsigned char *p, size_t bytes)
{
    if (!p)
        return;
    (void)vv_device_host_unregister(b->device, p);
    (void)munmap(p, mapped_bytes(bytes));
}

/* ---- runs ---- */

static int todo_init(struct varve_blocks *b, struct vvi_run *r, uint64_t items)
{
    size_t bytes = vv_align_up(items * sizeof(uint32_t), 256);
    int rc;

    (void)vv_device_mem_free(b->device, r->lists);
    r->lists = NULL;
    r->todo_items = 0;
    rc = device_alloc(b, 2 * bytes, &r->lists);
    if (rc)
        return rc;
    r->todo[0] = (uint32_t *)(void *)r->lists;
    r->todo[1] = (uint32_t *)(void *)(r->lists + bytes);
    r->todo_items = items;
    return 0;
}

static int run_memory_init(struct varve_blocks *b, struct vvi_run *r)
{
    size_t lists = vv_align_up((size_t)b->slots.blocks * sizeof(uint64_t), VVI_COUNTS_BYTES);
    size_t marks = b->need_bytes + VVI_COUNTS_BYTES + b->used_bytes;
    void *dev = NULL;
    int rc = device_alloc(b, marks + b->map_bytes, &r->meta);

    r->host_bytes = vv_align_up(lists + b->map_bytes + VVI_COUNTS_BYTES + b->used_bytes, 4096);
    if (rc == 0)
        rc = host_alloc(b, r->host_bytes, &r->host, &dev);
    if (rc)
        return rc;
    r->view = b->view;
    r->view.need = (uint64_t *)(void *)r->meta;
    r->view.counts = (uint32_t *)(void *)(r->meta + b->need_bytes);
    r->view.used = (uint64_t *)(void *)(r->meta + b->need_bytes + VVI_COUNTS_BYTES);
    r->view.map = (const uint32_t *)(const void *)(r->meta + marks);
    r->view.missing = dev;
    r->missing = (const uint64_t *)(const void *)r->host;
    r->map = (uint32_t *)(void *)(r->host + lists);
    r->counts = (const uint32_t *)(const void *)(r->host + lists + b->map_bytes);
    r->used = (const uint64_t *)(const void *)(r->host + lists + b->map_bytes + VVI_COUNTS_BYTES);
    r->fills = vvi_ooc_zeroed(b->slots.nr, sizeof(*r->fills));
    r->pieces = vvi_ooc_zeroed(b->source.registered ? 0 : b->slots.nr, sizeof(*r->pieces));
    r->asked = vvi_ooc_zeroed(b->slots.blocks, sizeof(*r->asked));
    r->gone = vvi_ooc_zeroed(b->slots.nr, sizeof(*r->gone));
    r->later = vvi_ooc_zeroed(b->slots.nr, sizeof(*r->later));
    r->seen = vvi_ooc_zeroed(b->slots.words, sizeof(uint64_t));
    r->got = vvi_ooc_zeroed(b->slots.words, sizeof(uint64_t));
    r->dirty = vvi_ooc_zeroed(b->slots.blocks, sizeof(*r->dirty));
    r->ndirty = r->to = b->slots.blocks; /* no part of the map has been sent */
    if (!r->fills || !r->pieces || !r->asked || !r->gone || !r->later || !r->seen || !r->got ||
        !r->dirty)
        return -ENOMEM;
    rc = vv_device_event_new(b->device, &r->event);
    if (rc == 0)
        rc = vv_device_event_new(b->device, &r->ready);
    if (rc == 0)
        rc = vv_device_event_new(b->device, &r->filled);
    return rc ? rc : vv_device_event_new(b->device, &r->sent);
}

void vvi_blocks_run_free(struct varve_blocks *b, struct vvi_run *r)
{
    if (!r)
        return;
    vv_device_event_free(b->device, r->event);
    vv_device_event_free(b->device, r->ready);
    vv_device_event_free(b->device, r->filled);
    vv_device_event_free(b->device, r->sent);
    (void)vv_device_mem_free(b->device, r->lists);
    (void)vv_device_mem_free(b->device, r->meta);
    host_free(b, r->host, r->host_bytes);
    free(r->fills);
    free(r->pieces);
    free(r->asked);
    free(r->gone);
    free(r->later);
    free(r->seen);
    free(r->got);
    free(r->dirty);
    free(r);
}

int vvi_blocks_run_new(struct varve_blocks *b, uint64_t items, struct vvi_run **ret_run)
{
    struct vvi_run *r;
    int rc = 0;

    vv_mutex_lock(&b->lock);
    r = b->idle;
    if (r)
        b->idle = r->next;
    vv_mutex_unlock(&b->lock);
    if (!r) {
        r = calloc(1, sizeof(*r));
        rc = r ? run_memory_init(b, r) : -ENOMEM;
        if (rc) {
            vvi_blocks_run_free(b, r);
            return rc;
        }
        vv_mutex_lock(&b->lock);
        r->other = b->all;
        b->all = r;
        vv_mutex_unlock(&b->lock);
    }
    *ret_run = r; /* the caller owns it, also after an error */
    return r->todo_items < items ? todo_init(b, r, items) : 0;
}

/* ---- opening and closing ---- */

static void device_parts_free(struct varve_blocks *b)
{
    while (b->all) {
        struct vvi_run *r = b->all;

        b->all = r->other;
        vvi_blocks_run_free(b, r);
    }
    vvi_source_fini(&b->source);
    if (b->moved)
        vv_device_event_free(b->device, b->moved);
    for (int i = 0; i < 2; i++)
        if (b->earlier[i].event)
            vv_device_event_free(b->device, b->earlier[i].event);
    if (b->moves)
        vv_device_stream_free(b->device, b->moves);
    if (b->early)
        vv_device_stream_free(b->device, b->early);
    free(b->ahead);
    free(b->inside);
    (void)vv_device_mem_free(b->device, b->cache);
    (void)vv_device_mem_free(b->device, b->zeros);
}

static void blocks_free(struct varve_blocks *b)
{
    if (b->device)
        device_parts_free(b);
    vvi_slots_fini(&b->slots);
    vv_cond_fini(&b->changed);
    vv_mutex_fini(&b->lock);
    vv_ckpt_leave(b->ctx);
    free(b);
}

/* Allocates the zeros that rounds of all runs begin with. */
static int zeros_init(struct varve_blocks *b)
{
    size_t bytes = b->need_bytes + VVI_COUNTS_BYTES + b->used_bytes;
    unsigned char *image = calloc(1, bytes);
    int rc = image ? device_alloc(b, bytes, &b->zeros) : -ENOMEM;

    if (rc == 0) {
        struct vv_copy_seg seg = {b->zeros, image, bytes};

        rc = vv_device_copy_async(b->device, b->moves, &seg, 1);
    }
    if (rc == 0)
        rc = vv_device_event_record(b->device, b->moved, b->moves);
    if (rc == 0)
        rc = vvi_blocks_wait(b, b->moved);
    free(image);
    return rc;
}

static int ahead_init(struct varve_blocks *b, uint32_t blocks, uint64_t slots)
{
    const uint32_t *nr = b->view.nr;

    b->ahead = vvi_ooc_zeroed(slots, sizeof(*b->ahead));
    b->inside = b->opts.ahead ? vvi_ooc_zeroed(blocks, sizeof(*b->inside)) : NULL;
    if (!b->ahead || (b->opts.ahead && !b->inside))
        return -ENOMEM;
    for (uint32_t block = 0; b->inside && block < blocks; block++) {
        uint32_t at[3] = {block % nr[0], block / nr[0] % nr[1], block / nr[0] / nr[1]};

        for (int axis = 0; axis < 3; axis++)
            if (at[axis] > 0 && at[axis] + 1 < nr[axis])
                b->inside[block] |= (uint8_t)(3 << 2 * axis);
    }
    return 0;
}

static int memory_init(struct varve_blocks *b, uint64_t blocks)
{
    uint64_t slots = VV_MIN(b->opts.cache_bytes / b->block_bytes, blocks);
    char room[VVI_OOC_ROOM];
    int rc;

    if (slots == 0)
        return vv_ckpt_fail_ctx(b->ctx, "blocks_open", -EFBIG, false,
                                "a cache of %llu bytes does not hold a block of %zu",
                                (unsigned long long)b->opts.cache_bytes, b->block_bytes);
    rc = vvi_slots_init(&b->slots, (uint32_t)blocks, (uint32_t)slots,
                        b->opts.policy == VV_BLOCKS_PAPER);
    b->need_bytes = vv_align_up(vv_div_up(blocks, 8), VVI_COUNTS_BYTES);
    b->used_bytes = vv_align_up(vv_div_up(slots, 8), VVI_COUNTS_BYTES);
    b->map_bytes = vv_align_up(blocks * sizeof(uint32_t), VVI_COUNTS_BYTES);
    if (rc == 0)
        rc = vv_device_stream_new(b->device, &b->moves);
    if (rc == 0)
        rc = vv_device_event_new(b->device, &b->moved);
    if (rc == 0)
        rc = vv_device_stream_new(b->device, &b->early);
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = vv_device_event_new(b->device, &b->earlier[i].event);
    if (rc == 0)
        rc = ahead_init(b, (uint32_t)blocks, slots);
    if (rc == 0)
        rc = device_alloc(b, slots * b->block_bytes, &b->cache);
    if (rc == 0)
        rc = zeros_init(b);
    b->view.slots = b->cache;
    return rc ? vvi_blocks_fail(b, "blocks_open", rc, "memory for %llu slots of %zu bytes: %s%s",
                                (unsigned long long)slots, b->block_bytes, vv_strerror(rc),
                                vvi_ooc_room(b->device, rc, room, sizeof(room)))
              : 0;
}

static int read_block(void *arg, const struct vvi_piece *p, void *buf)
{
    const struct varve_blocks_opts *o = arg;

    return o->read(o->read_arg, p->id, buf, p->bytes);
}

/* Size of half of the staging memory: several blocks, so that all readers have work, but few, since pinned memory is
 * scarce. */
static size_t half_bytes(const struct varve_blocks *b)
{
    uint64_t blocks = VV_MIN(b->slots.blocks, VVI_STAGED);

    return VV_MAX(VV_MIN(blocks, VVI_STAGED_BYTES / b->block_bytes), 1) * b->block_bytes;
}

static int source_init(struct varve_blocks *b, uint64_t bytes)
{
    const struct varve_blocks_opts *o = &b->opts;
    struct vvi_source_opts so = {
        .operation = "blocks_open",
        .bytes = bytes,
        .half_bytes = half_bytes(b),
        VVI_SOURCE_OF(o),
        .read = o->read ? read_block : NULL,
        .read_arg = &b->opts,
    };

    int rc = vvi_source_init(&b->source, b->ctx, b->device, &so);

    /* Copies work at any address, kernels do not. */
    if (rc == 0 && (uintptr_t)b->source.dev_memory % o->cell_bytes) {
        b->source.dev_memory = NULL;
        b->source.apart = "its address is no multiple of a cell's bytes";
    }
    return rc;
}

/* Makes the memory of the first run now, because that may take longer than the run itself. */
static int first_run(struct varve_blocks *b)
{
    struct vvi_run *r;
    int rc = vvi_blocks_run_new(b, 0, &r);

    if (rc)
        return vvi_blocks_fail(b, "blocks_open", rc, "memory for a run: %s", vv_strerror(rc));
    vv_mutex_lock(&b->lock);
    b->idle = b->holder = r;
    b->slots.map = r->map; /* all 0: no block is there */
    r->ndirty = 0;
    vv_mutex_unlock(&b->lock);
    return 0;
}

static int blocks_open(struct varve_ctx *ctx, const struct varve_blocks_opts *opts, bool paper,
                       struct varve_blocks **ret_blocks)
{
    struct varve_blocks *b;
    const char *why = NULL;
    uint64_t blocks = 0;
    int rc;

    if (!ret_blocks)
        return vvi_ooc_bad("blocks_open", "ret_blocks is NULL");
    rc = vvi_ooc_enter(ctx, "blocks_open");
    if (rc)
        return rc;
    b = calloc(1, sizeof(*b));
    if (!b) {
        vv_ckpt_leave(ctx);
        return -ENOMEM;
    }
    b->ctx = ctx;
    b->device = vv_ckpt_device(ctx);
    vv_mutex_init(&b->lock, "blocks", VV_RANK_OOC);
    vv_cond_init(&b->changed);
    b->source.fd = -1;
    rc = take_opts(opts, &b->opts);
    if (rc == 0)
        why = why_not(&b->opts, paper);
    if (rc == 0 && !why)
        why = lay_out(&b->opts, &b->view, &blocks);
    if (rc || why)
        rc = vv_ckpt_fail_ctx(ctx, "blocks_open", -EINVAL, false, "%s", why ? why : VVI_OOC_OPTS);
    else if (!b->device)
        rc = vv_ckpt_fail_ctx(ctx, "blocks_open", -ENODEV, false, "%s", VVI_OOC_NO_DEVICE);
    b->block_bytes = b->view.block_bytes;
    if (rc == 0)
        rc = memory_init(b, blocks);
    if (rc == 0)
        rc = source_init(b, blocks * b->block_bytes);
    if (rc == 0)
        rc = first_run(b);
    if (rc)
        blocks_free(b);
    else
        *ret_blocks = b;
    return rc;
}

int varve_blocks_open(struct varve_ctx *ctx, const struct varve_blocks_opts *opts,
                      struct varve_blocks **ret_blocks)
{
    return blocks_open(ctx, opts, false, ret_blocks);
}

int vv_blocks_open(struct varve_ctx *ctx, const struct varve_blocks_opts *opts,
                   struct varve_blocks **ret_blocks)
{
    return blocks_open(ctx, opts, true, ret_blocks);
}

int varve_blocks_close(struct varve_blocks *b)
{
    bool busy;

    if (!b)
        return 0;
    vv_mutex_lock(&b->lock);
    busy = b->runs > 0;
    vv_mutex_unlock(&b->lock);
    if (busy)
        return -EBUSY;
    /* Blocks may still be on their way. */
    if (vv_device_event_record(b->device, b->moved, b->moves) == 0)
        (void)vvi_blocks_wait(b, b->moved);
    if (b->nahead > 0)
        (void)vvi_blocks_wait(b, b->earlier[b->early_at].event);
    blocks_free(b);
    return 0;
}

int varve_blocks_stats(struct varve_blocks *b, struct varve_blocks_stats *ret_stats)
{
    struct varve_blocks_stats s;

    if (!b || !ret_stats || ret_stats->stats_size < sizeof(size_t))
        return vvi_ooc_bad("blocks_stats", !b ? "blocks is NULL" : VVI_OOC_STATS);
    vv_mutex_lock(&b->lock);
    s = b->stats;
    s.slots = b->slots.nr;
    s.used_slots = b->slots.used;
    s.evicted = b->slots.evicted;
    vv_mutex_unlock(&b->lock);
    s.stats_size = VV_MIN(ret_stats->stats_size, sizeof(s));
    memcpy(ret_stats, &s, s.stats_size);
    return 0;
}
