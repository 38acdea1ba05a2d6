/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link does not idle while there is data to move, however late its mover checks. A gate in the
 * device's events decides when copies over the link have ended, several at once. The test counts
 * copies that find no other queued before them.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "ckpt/ckpt_hooks.h"
#include "device/host/host.h"
#include "engine/runtime/runtime_private.h"
#include "t.h"
#include "unit/ckpt/ck.h"

#define MIB ((size_t)1 << 20)

enum { EVENTS = 64, RANGES = 64, SLOTS = 3 };

/* One direction of the link. Synchronization: gate.lock, as all of this. */
struct way {
    size_t submitted, bytes;
    size_t ended; /* number of copies that the gate lets the mover see as ended */
    size_t dry;   /* copies submitted when all before them had ended */
    struct vv_stream *stream;
};

static struct {
    struct vv_mutex lock;
    struct vv_cond cond;
    const struct vv_device_ops *real;
    struct vv_device_ops ops;
    struct {
        char *from;
        size_t bytes;
    } host[RANGES]; /* registered */
    unsigned nhost;
    struct {
        struct vv_event *event;
        struct way *way;
        size_t number; /* of the copy before the event, from 1 */
    } behind[EVENTS];
    struct way down, up;
} gate;

static bool on_host(const void *ptr)
{
    for (unsigned i = 0; i < gate.nhost; i++)
        if ((const char *)ptr >= gate.host[i].from &&
            (const char *)ptr < gate.host[i].from + gate.host[i].bytes)
            return true;
    return false;
}

static int noted_register(struct vv_device *d, void *ptr, size_t bytes)
{
    vv_mutex_lock(&gate.lock);
    T_CHECK(gate.nhost < RANGES);
    gate.host[gate.nhost].from = ptr;
    gate.host[gate.nhost++].bytes = bytes;
    vv_mutex_unlock(&gate.lock);
    return gate.real->host_register(d, ptr, bytes);
}

static int counted_copy(struct vv_device *d, struct vv_stream *s, const struct vv_copy_seg *segs,
                        size_t n)
{
    vv_mutex_lock(&gate.lock);
    bool to_host = on_host(segs[0].dst), from_host = on_host(segs[0].src);
    struct way *w = to_host && !from_host ? &gate.down : from_host && !to_host ? &gate.up : NULL;
    if (w) {
        w->dry += w->submitted > 0 && w->ended >= w->submitted;
        w->submitted++;
        for (size_t i = 0; i < n; i++)
            w->bytes += segs[i].bytes;
        w->stream = s;
        vv_cond_broadcast(&gate.cond);
    }
    vv_mutex_unlock(&gate.lock);
    return gate.real->copy_async(d, s, segs, n);
}

/* Notes the event if the last copy before it on its stream is one over the link. */
static int noted_record(struct vv_device *d, struct vv_event *ev, struct vv_stream *s)
{
    vv_mutex_lock(&gate.lock);
    struct way *w = s == gate.down.stream ? &gate.down : s == gate.up.stream ? &gate.up : NULL;
    unsigned i = 0;
    while (i < EVENTS && gate.behind[i].event && gate.behind[i].event != ev)
        i++;
    T_CHECK(i < EVENTS);
    gate.behind[i].event = ev;
    gate.behind[i].way = w;
    gate.behind[i].number = w ? w->submitted : 0;
    vv_mutex_unlock(&gate.lock);
    return gate.real->event_record(d, ev, s);
}

static int gated_query(struct vv_device *d, struct vv_event *ev)
{
    bool running = false;
    vv_mutex_lock(&gate.lock);
    for (unsigned i = 0; i < EVENTS; i++)
        if (gate.behind[i].event == ev && gate.behind[i].way)
            running = gate.behind[i].number > gate.behind[i].way->ended;
    vv_mutex_unlock(&gate.lock);
    return running ? -EBUSY : gate.real->event_query(d, ev);
}

static struct vv_device *catch_device(void *arg, struct vv_device *inner)
{
    (void)arg;
    gate.real = inner->ops;
    gate.ops = *inner->ops;
    gate.ops.host_register = noted_register;
    gate.ops.copy_async = counted_copy;
    gate.ops.event_record = noted_record;
    gate.ops.event_query = gated_query;
    inner->ops = &gate.ops;
    return inner;
}

/* Lets copies end, all but the last of those that are queued at a time, until all bytes have been
 * submitted: each time the mover finds several that have ended, and one must be left. */
static void let_pass(struct way *w, size_t bytes)
{
    vv_mutex_lock(&gate.lock);
    for (;;) {
        while (w->bytes < bytes && w->submitted < w->ended + SLOTS)
            T_OK(vv_cond_wait_until(&gate.cond, &gate.lock,
                                    vv_now_ns() + CK_LIMIT_MS * VV_NS_PER_MS));
        if (w->bytes >= bytes)
            break;
        w->ended = w->submitted - 1;
    }
    w->ended = SIZE_MAX;
    vv_mutex_unlock(&gate.lock);
}

static void test_never_dry(void)
{
    struct vv_ckpt_hooks hooks = {.device = catch_device};
    size_t bytes = 48 * MIB;
    struct ck_cfg cfg = {.device = true,
                         .device_cache = 64 * MIB,
                         .host_cache = 256 * MIB,
                         .page_bytes = 64 << 10,
                         .level = VARVE_LEVEL_CACHED};
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    vv_ckpt_set_hooks(NULL);
    struct varve_history *h = ck_history(ctx, "dry");
    char *buf = ck_alloc(ctx, true, bytes);
    struct varve_stats s = {.stats_size = sizeof(s)};
    do
        T_OK(varve_stats(ctx, &s));
    while (s.host_ready_bytes < cfg.host_cache);

    T_OK(varve_protect(h, 0, buf, bytes));
    ck_fill(buf, bytes, 1, 0);
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    let_pass(&gate.down, bytes);
    T_CHECK(gate.down.submitted > 2 * SLOTS);
    T_EQ(gate.down.dry, 0);

    /* Another version replaces it on the device; it returns when it is hinted and there is room. */
    ck_fill(buf, bytes, 2, 0);
    T_OK(varve_checkpoint_for(h, 2, CK_LIMIT_MS));
    T_OK(varve_hint(h, 1));
    T_OK(varve_discard(h, 2));
    T_OK(varve_prefetch_start(h));
    let_pass(&gate.up, 24 * MIB); /* an eighth of it may stay on the host */
    T_EQ(gate.up.dry, 0);
    T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
    ck_check(buf, bytes, 1, 0);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

int main(void)
{
    vv_mutex_init(&gate.lock, "gate", VV_RANK_TRACE);
    vv_cond_init(&gate.cond);
    T_RUN(test_never_dry);
    vv_cond_fini(&gate.cond);
    vv_mutex_fini(&gate.lock);
    return t_done();
}
