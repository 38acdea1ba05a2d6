/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host cache is made ready behind the first requests. A gate in the device's registration lets
 * the test decide when, so that nothing here depends on durations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "ckpt/ckpt_hooks.h"
#include "device/host/host.h"
#include "engine/runtime/runtime_private.h"
#include "t.h"
#include "unit/ckpt/ck.h"

#define MIB ((size_t)1 << 20)

/* Registrations at opening: the first slice, and before it, with a disk, the transit pages. */
enum { AT_OPEN = 1, AT_OPEN_DISK = 2 };

static struct {
    struct vv_mutex lock;
    struct vv_cond cond;
    const struct vv_device_ops *real;
    struct vv_device_ops ops;
    char *last;                       /* the address in the last call */
    unsigned calls, allowed, fail_at; /* fail_at: this call is refused; 0: none */
    int fail_with;
} gate;

static struct vv_device *caught;

static int gated_register(struct vv_device *d, void *ptr, size_t bytes)
{
    vv_mutex_lock(&gate.lock);
    unsigned call = ++gate.calls;
    gate.last = ptr;
    vv_cond_broadcast(&gate.cond);
    while (call > gate.allowed)
        vv_cond_wait(&gate.cond, &gate.lock);
    int rc = call == gate.fail_at ? gate.fail_with : 0;
    vv_mutex_unlock(&gate.lock);
    return rc ? rc : gate.real->host_register(d, ptr, bytes);
}

static struct vv_device *catch_device(void *arg, struct vv_device *inner)
{
    (void)arg;
    caught = inner;
    gate.real = inner->ops;
    gate.ops = *inner->ops;
    gate.ops.host_register = gated_register;
    inner->ops = &gate.ops;
    return inner;
}

static void gate_set(unsigned allowed)
{
    vv_mutex_lock(&gate.lock);
    gate.allowed = allowed;
    vv_cond_broadcast(&gate.cond);
    vv_mutex_unlock(&gate.lock);
}

/* A context on the emulated device whose cache has `slices` slices. The gate delays all
 * registrations after the first `allowed` calls. */
static struct varve_ctx *open_gated(size_t device_cache, unsigned slices, unsigned allowed,
                                    const char *local)
{
    struct vv_ckpt_hooks hooks = {.device = catch_device};
    struct ck_cfg cfg = {.device = true,
                         .device_cache = device_cache,
                         .host_cache = (uint64_t)slices * VVI_SLICE_BYTES + (local ? 16 * MIB : 0),
                         .page_bytes = 64 << 10,
                         .local = local,
                         .level = local ? VARVE_LEVEL_LOCAL : VARVE_LEVEL_CACHED};
    gate.calls = 0;
    gate.allowed = allowed;
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    vv_ckpt_set_hooks(NULL);
    return ctx;
}

static struct varve_stats stats_of(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    return s;
}

/* Waits until the cache has so many bytes ready, or has stopped growing. */
static void wait_ready(struct varve_ctx *ctx, uint64_t bytes)
{
    uint64_t deadline = vv_now_ns() + CK_LIMIT_MS * VV_NS_PER_MS;
    while (stats_of(ctx).host_ready_bytes < bytes) {
        T_CHECK(vv_now_ns() < deadline);
        vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
    }
}

static char logged[256];

static void log_sink(void *user, enum vv_log_level level, const char *text)
{
    (void)user;
    (void)level;
    snprintf(logged, sizeof(logged), "%s", text);
}

/* Opening returns with one slice. Versions that fit into it are written and restored meanwhile; one
 * that does not waits, and ends when the next slices are ready. */
static void test_ready_at_once(void)
{
    vv_log_set_sink(log_sink, NULL,
                    VV_LOG_INFO); /* the times of each activity are logged at the end */
    struct varve_ctx *ctx = open_gated(0, 4, AT_OPEN, NULL);
    struct varve_history *h = ck_history(ctx, "once");
    size_t small = MIB, large = 40 * MIB;
    char *buf = ck_alloc(ctx, true, large);
    T_EQ(stats_of(ctx).host_ready_bytes, VVI_SLICE_BYTES);
    T_EQ(stats_of(ctx).tier_bytes[0], (uint64_t)4 * VVI_SLICE_BYTES);
    T_OK(varve_protect(h, 0, buf, small));
    for (uint64_t v = 0; v < 3; v++) {
        ck_fill(buf, small, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    for (uint64_t v = 0; v < 3; v++) {
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(buf, small, v, 0);
    }
    T_EQ(stats_of(ctx).host_ready_bytes, VVI_SLICE_BYTES);

    T_OK(varve_protect(h, 0, buf, large));
    ck_fill(buf, large, 7, 0);
    T_ERR(varve_checkpoint_for(h, 7, 20), -ETIMEDOUT);
    gate_set(AT_OPEN + 1);
    T_OK(varve_checkpoint_for(h, 7, CK_LIMIT_MS));
    T_EQ(stats_of(ctx).host_ready_bytes, 2 * (uint64_t)VVI_SLICE_BYTES);
    memset(buf, 0, large);
    T_OK(varve_restore_for(h, 7, CK_LIMIT_MS));
    ck_check(buf, large, 7, 0);
    gate_set(100);
    wait_ready(ctx, (uint64_t)4 * VVI_SLICE_BYTES);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
    vv_log_set_sink(NULL, NULL, VV_LOG_WARNING);
    T_CHECK(strstr(logged, "host cache: ready; ") == logged);
}

struct waiting {
    struct varve_history *h;
    uint64_t version;
    int rc;
};

static void *waiting_main(void *arg)
{
    struct waiting *w = arg;
    w->rc = varve_checkpoint_for(w->h, w->version, CK_LIMIT_MS);
    return NULL;
}

/* The device cache serves checkpoints and restores while a slice is being registered. */
static void test_hits_meanwhile(void)
{
    struct varve_ctx *ctx = open_gated(8 * MIB, 3, AT_OPEN_DISK, t_tmpdir());
    struct varve_history *h = ck_history(ctx, "hits");
    size_t bytes = MIB;
    char *buf = ck_alloc(ctx, true, bytes);
    T_OK(varve_protect(h, 0, buf, bytes));
    for (uint64_t v = 0; v < 40; v++) {
        ck_fill(buf, bytes, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(buf, bytes, v, 0);
        if (v == 20)
            gate_set(AT_OPEN_DISK + 1);
    }
    gate_set(100);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    for (uint64_t v = 40; v-- > 0;) {
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(buf, bytes, v, 0);
    }
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static size_t resident(char *from, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = bytes / page, sum = 0;
    unsigned char *in = malloc(n);
    T_CHECK(in);
    T_EQ(mincore(from, bytes, in), 0);
    for (size_t i = 0; i < n; i++)
        sum += in[i] & 1;
    free(in);
    return sum * page;
}

/* While a slice is being registered no thread touches memory: only that slice and the pieces that
 * each thread had begun when it was whole are resident, and no more until it is registered. */
static void test_in_turns(void)
{
    uint64_t most = vvi_grow_turn_ns;
    unsigned slices = 8;
    vvi_grow_turn_ns = 0;
    struct varve_ctx *ctx = open_gated(0, slices, AT_OPEN, NULL);
    for (unsigned k = 1; k < slices; k++) {
        vv_mutex_lock(&gate.lock);
        while (gate.calls < AT_OPEN + k)
            vv_cond_wait(&gate.cond, &gate.lock);
        char *slice = gate.last;
        vv_mutex_unlock(&gate.lock);
        size_t behind = (slices - 1 - k) * (size_t)VVI_SLICE_BYTES;
        T_EQ(resident(slice, VVI_SLICE_BYTES), VVI_SLICE_BYTES);
        size_t ahead = resident(slice + VVI_SLICE_BYTES, behind);
        T_CHECK(ahead <= VVI_TOUCHERS * 2 * MIB);
        vv_sleep_until_ns(vv_now_ns() + 2 * VV_NS_PER_MS);
        T_EQ(resident(slice + VVI_SLICE_BYTES, behind), ahead);
        gate_set(AT_OPEN + k);
    }
    gate_set(100);
    wait_ready(ctx, (uint64_t)slices * VVI_SLICE_BYTES);
    T_OK(varve_close(ctx));
    vvi_grow_turn_ns = most;
}

/* A slice is refused: the request that waits for it fails, the next call returns the reason, once,
 * and everything else continues in the ready part. */
static void test_refused(void)
{
    for (unsigned k = 1; k <= 3; k++) {
        gate.fail_at = AT_OPEN + k;
        gate.fail_with = -EIO;
        vv_log_set_sink(log_sink, NULL, VV_LOG_WARNING);
        struct varve_ctx *ctx = open_gated(0, 4, AT_OPEN, NULL);
        struct varve_history *h = ck_history(ctx, "refused");
        size_t small = MIB, large = 120 * MIB;
        char *buf = ck_alloc(ctx, true, large);
        pthread_t thread;
        struct waiting w = {h, 1, 0};
        ck_fill(buf, small, 2, 0);
        T_OK(varve_protect(h, 0, buf, large));
        T_OK(vv_thread_start(&thread, waiting_main, &w));
        while (stats_of(ctx).checkpoints == 0) /* the engine has taken it, to wait for room */
            vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
        gate_set(100);
        T_EQ(pthread_join(thread, NULL), 0);
        T_EQ(w.rc, -EFBIG);
        T_OK(varve_protect(h, 0, buf, small));
        T_ERR(varve_checkpoint_for(h, 2, CK_LIMIT_MS), -EIO);
        ck_error(ctx, -EIO, "of 128 MiB could be registered with the device");
        T_CHECK(strstr(logged, "could be registered"));
        T_OK(varve_checkpoint_for(h, 2, CK_LIMIT_MS));
        T_OK(varve_restore_for(h, 2, CK_LIMIT_MS));
        ck_check(buf, small, 2, 0);
        T_EQ(stats_of(ctx).host_ready_bytes, (uint64_t)k * VVI_SLICE_BYTES);
        T_EQ(stats_of(ctx).tier_bytes[0], (uint64_t)k * VVI_SLICE_BYTES);
        ck_free(ctx, true, buf);
        T_OK(varve_close(ctx));
        vv_log_set_sink(NULL, NULL, VV_LOG_WARNING);
        gate.fail_at = 0;
    }
}

/* If it is refused at opening, opening fails. */
static void test_refused_at_once(void)
{
    for (unsigned k = 1; k <= AT_OPEN; k++) {
        struct vv_ckpt_hooks hooks = {.device = catch_device};
        struct ck_cfg cfg = {.device = true, .host_cache = 2 * (uint64_t)VVI_SLICE_BYTES};
        struct varve_opts opts;
        struct varve_ctx *ctx = NULL;
        gate.fail_at = k;
        gate.fail_with = -EIO;
        gate.calls = 0;
        gate.allowed = 100;
        ck_opts(&cfg, &opts);
        vv_ckpt_set_hooks(&hooks);
        T_ERR(varve_open(&opts, &ctx), -EIO);
        vv_ckpt_set_hooks(NULL);
        ck_error(NULL, -EIO, "host cache: its first part could not be registered");
        T_CHECK(!ctx);
        gate.fail_at = 0;
    }
}

/* Closing does not wait for the rest, whether slices are being registered or touched. */
static void test_close_meanwhile(void)
{
    for (unsigned i = 0; i < 6; i++) {
        struct varve_ctx *ctx = open_gated(0, 8, AT_OPEN + i, NULL);
        struct vv_device_host_stats st;
        size_t bytes = 64 << 10;
        struct varve_history *h = ck_history(ctx, "close");
        char *buf = ck_alloc(ctx, true, bytes);
        T_OK(varve_protect(h, 0, buf, bytes));
        ck_fill(buf, bytes, 1, 0);
        T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
        ck_free(ctx, true, buf);
        vv_device_host_stats(caught, &st);
        T_CHECK(st.n_slices >= AT_OPEN);
        gate_set(100);
        T_OK(varve_close(ctx));
    }
    for (unsigned i = 0; i < 6; i++) {
        struct ck_cfg cfg = {.host_cache = 8 * (uint64_t)VVI_SLICE_BYTES, .page_bytes = 64 << 10};
        struct varve_ctx *ctx = ck_open(&cfg);
        vv_sleep_until_ns(vv_now_ns() + i * 3 * VV_NS_PER_MS);
        T_OK(varve_close(ctx));
    }
}

/* The device is lost half-way: late errors, no thread hangs, closing works. */
static void test_lost(void)
{
    struct varve_ctx *ctx = open_gated(0, 4, AT_OPEN, NULL);
    struct varve_history *h = ck_history(ctx, "lost");
    size_t bytes = MIB;
    char *buf = ck_alloc(ctx, true, bytes);
    T_OK(varve_protect(h, 0, buf, bytes));
    vv_device_host_lose(caught);
    gate_set(100);
    T_ERR(varve_checkpoint_for(h, 1, CK_LIMIT_MS), -ENODEV);
    T_ERR(varve_checkpoint_for(h, 2, CK_LIMIT_MS), -ENODEV);
    T_OK(varve_close(ctx));
}

/* Without a device memory is only touched; versions are written and restored meanwhile. */
static void test_without_device(void)
{
    struct ck_cfg cfg = {.host_cache = 6 * (uint64_t)VVI_SLICE_BYTES, .page_bytes = 64 << 10};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "host");
    size_t bytes = 10 * MIB;
    char *buf = ck_alloc(ctx, false, bytes);
    T_OK(varve_protect(h, 0, buf, bytes));
    for (uint64_t v = 0; v < 18; v++) {
        ck_fill(buf, bytes, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    for (uint64_t v = 0; v < 18; v++) {
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(buf, bytes, v, 0);
    }
    wait_ready(ctx, (uint64_t)6 * VVI_SLICE_BYTES);
    ck_free(ctx, false, buf);
    T_OK(varve_close(ctx));
}

static _Atomic unsigned asked;

static uint64_t soon_nothing(void)
{
    return atomic_fetch_add(&asked, 1) < 3 ? UINT64_C(1) << 40 : MIB;
}

/* Memory that was available at opening is gone when it is to be touched. */
static void test_memory_gone(void)
{
    uint64_t (*real)(void) = vvi_memory_available;
    struct ck_cfg cfg = {.host_cache = 6 * (uint64_t)VVI_SLICE_BYTES, .page_bytes = 64 << 10};
    asked = 0;
    vvi_memory_available = soon_nothing;
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "gone");
    size_t bytes = 180 * MIB;
    char *buf = ck_alloc(ctx, false, bytes);
    T_OK(varve_protect(h, 0, buf, bytes));
    /* -EFBIG if the put is refused; then the next call returns the reason. -ENOMEM if the lack of
     * memory was found out before this call. */
    int rc = varve_checkpoint_for(h, 1, CK_LIMIT_MS);
    T_CHECK(rc == -EFBIG || rc == -ENOMEM);
    if (rc == -EFBIG)
        T_ERR(varve_checkpoint_for(h, 1, CK_LIMIT_MS), -ENOMEM);
    ck_error(ctx, -ENOMEM, "of 192 MiB could be allocated by the system: memory runs out");
    T_ERR(varve_checkpoint_for(h, 1, CK_LIMIT_MS), -EFBIG);
    /* The first slice and two more: the available memory is queried once at opening, then for each
     * slice. */
    T_EQ(stats_of(ctx).tier_bytes[0], 3 * (uint64_t)VVI_SLICE_BYTES);
    T_OK(varve_protect(h, 0, buf, 60 * MIB));
    ck_fill(buf, 60 * MIB, 2, 0);
    T_OK(varve_checkpoint_for(h, 2, CK_LIMIT_MS));
    T_OK(varve_restore_for(h, 2, CK_LIMIT_MS));
    ck_check(buf, 60 * MIB, 2, 0);
    ck_free(ctx, false, buf);
    T_OK(varve_close(ctx));
    vvi_memory_available = real;
}

int main(void)
{
    vv_mutex_init(&gate.lock, "gate", VV_RANK_TRACE);
    vv_cond_init(&gate.cond);
    T_RUN(test_ready_at_once);
    T_RUN(test_hits_meanwhile);
    T_RUN(test_in_turns);
    T_RUN(test_refused);
    T_RUN(test_refused_at_once);
    T_RUN(test_close_meanwhile);
    T_RUN(test_lost);
    T_RUN(test_without_device);
    T_RUN(test_memory_gone);
    vv_cond_fini(&gate.cond);
    vv_mutex_fini(&gate.lock);
    return t_done();
}
