/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the runtime that can be tested alone: segments, generations, order queues, pacing. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "engine/runtime/runtime_private.h"
#include "engine/runtime/spans.h"
#include "t.h"

static void test_segments(void)
{
    static char base[256], app[256];
    struct vv_copy_seg segs[8];

    /* Memory that continues on both sides is one segment. */
    size_t n = vvi_seg_add(segs, 0, base, app, 100);
    n = vvi_seg_add(segs, n, base + 100, app + 100, 50);
    T_EQ(n, 1);
    T_EQ(segs[0].bytes, 150);
    /* A jump on either side is not. */
    n = vvi_seg_add(segs, n, base + 150, app + 151, 10);
    T_EQ(n, 2);
    n = vvi_seg_add(segs, n, base + 161, app + 161, 10);
    T_EQ(n, 3);
}

enum { PAGE = 4096, CHUNKS = 9 };

/* Copies spans, byte by byte in order, and counts. */
struct carried {
    unsigned spans, device, stop_after;
};

static int carry(void *arg, const struct vvi_span *span)
{
    struct carried *c = arg;
    T_CHECK(span->bytes > 0);
    memcpy(span->dst, span->src, span->bytes);
    c->device += span->device;
    return ++c->spans == c->stop_after ? -EIO : 0;
}

/* An object of nine pages less some bytes, in partly consecutive pages, against pieces: one
 * is empty, one is skipped, and none ends at the end of a page. */
static void test_spans(void)
{
    static struct vv_engine e;
    static char tier[16 * PAGE], app[CHUNKS * PAGE], object[CHUNKS * PAGE];
    static const uint32_t pages[CHUNKS] = {3, 4, 5, 9, 1, 2, 15, 14, 0};
    const uint64_t size = CHUNKS * PAGE - 100, out = PAGE + 7, out_bytes = 2 * PAGE;
    const struct vv_engine_piece pieces[] = {
        {app, 0, VV_MEM_HOST},
        {app, out, VV_MEM_HOST},
        {NULL, out_bytes, VV_MEM_HOST},
        {app + out + out_bytes, 5, VV_MEM_DEVICE},
        {app + out + out_bytes + 5, size - out - out_bytes - 5, VV_MEM_HOST}};
    const struct vv_engine_app a = {.pieces = pieces, .npieces = VV_ARRAY_SIZE(pieces)};
    struct vv_order o = {.src_tier = 0, .dst_tier = VV_TIER_APP, .nchunks = CHUNKS};
    struct carried c = {0};

    e.cfg.page_bytes = PAGE;
    e.base[0] = tier;
    e.first_part[0] = sizeof(tier) / PAGE;
    e.kind[0] = VV_TIER_HOST;
    o.size = o.bytes = size;
    memcpy(o.src_page, pages, sizeof(pages));
    for (size_t i = 0; i < sizeof(tier); i++)
        tier[i] = (char)(i * 2654435761u >> 11);
    for (uint32_t i = 0; i < CHUNKS; i++)
        memcpy(object + i * PAGE, tier + pages[i] * PAGE, PAGE);
    T_OK(vvi_order_spans(&e, &a, &o, carry, &c));
    T_EQ(c.spans, 7); /* one up to the hole, 5 bytes, the rest of that page, four runs */
    T_EQ(c.device, 1);
    T_CHECK(memcmp(app, object, out) == 0);
    T_EQ(app[out], 0);
    T_EQ(app[out + out_bytes - 1], 0);
    T_CHECK(memcmp(app + out + out_bytes, object + out + out_bytes, size - out - out_bytes) == 0);
    T_EQ(app[size], 0);
    /* Back to a device, without the first four chunks. */
    e.kind[0] = VV_TIER_DEVICE;
    o = (struct vv_order){.src_tier = VV_TIER_APP, .dst_tier = 0, .chunk0 = 4, .nchunks = 5};
    o.size = size;
    o.bytes = size - 4 * PAGE;
    memcpy(o.dst_page, pages + 4, 5 * sizeof(pages[0]));
    memset(tier, 0, sizeof(tier));
    c = (struct carried){0};
    T_OK(vvi_order_spans(&e, &a, &o, carry, &c));
    T_EQ(c.spans, 4);
    T_EQ(c.device, 4);
    T_CHECK(memcmp(tier + PAGE, object + 4 * PAGE, 2 * PAGE) == 0);
    T_CHECK(memcmp(tier, object + 8 * PAGE, PAGE - 100) == 0);
    T_EQ(tier[PAGE - 100], 0);
    T_EQ(tier[3 * PAGE], 0);
    /* A chunk within the skipped piece. */
    o.chunk0 = 2;
    o.nchunks = 1;
    o.bytes = PAGE;
    c = (struct carried){0};
    T_OK(vvi_order_spans(&e, &a, &o, carry, &c));
    T_EQ(c.spans, 0);
    o.chunk0 = 4;
    o.nchunks = 5;
    o.bytes = size - 4 * PAGE;
    c = (struct carried){.stop_after = 2};
    T_ERR(vvi_order_spans(&e, &a, &o, carry, &c), -EIO);
    T_EQ(c.spans, 2);
}

static void test_queue(void)
{
    struct vvi_order_queue q = {0};
    struct vv_order o[3] = {0};
    T_CHECK(!vvi_order_pop(&q));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++)
            vvi_order_push(&q, &o[i]);
        for (int i = 0; i < 3; i++)
            T_CHECK(vvi_order_pop(&q) == &o[i]);
        T_CHECK(!vvi_order_pop(&q) && !q.tail);
    }
}

/* Copies that follow one another closely end at exact multiples: sleeping too long does not add up.
 * The test reads only the pacer's own record, not the clock. */
static void test_pacer(void)
{
    struct vvi_pacer p;
    vvi_pacer_init(&p, 1000000000);
    uint64_t start = vv_now_ns() - VV_NS_PER_S;
    vvi_pacer_end(&p, start, 1000);
    T_EQ(p.next_free_ns, start + 1000);
    vvi_pacer_end(&p, start + 60000, 1000); /* a little late */
    T_EQ(p.next_free_ns, start + 2000);
    vvi_pacer_end(&p, start + 100 * VV_NS_PER_MS, 1000); /* after a pause */
    T_EQ(p.next_free_ns, start + 100 * VV_NS_PER_MS + 1000);
    vvi_pacer_end(&p, start, 1000); /* behind another thread's copy */
    T_EQ(p.next_free_ns, start + 100 * VV_NS_PER_MS + 2000);
    vvi_pacer_fini(&p);
    vvi_pacer_init(&p, 0);
    vvi_pacer_end(&p, start, 1000);
    T_EQ(p.next_free_ns, 0);
    vvi_pacer_fini(&p);
}

int main(void)
{
    T_RUN(test_segments);
    T_RUN(test_spans);
    T_RUN(test_queue);
    T_RUN(test_pacer);
    return t_done();
}
