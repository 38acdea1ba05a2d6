/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the cache lent to the application: regions acquired for reading, reserved for
 * writing. */
#include <pthread.h>
#include <stdlib.h>

#include "ckpt/ckpt_hooks.h"
#include "device/host/host.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 5 * PAGE + 321 };

/* The device of the context opened last. */
static struct vv_device *device;

static struct vv_device *see_device(void *arg, struct vv_device *inner)
{
    (void)arg;
    device = inner;
    return inner;
}

static struct varve_ctx *open_ctx(const struct ck_cfg *cfg)
{
    static const struct vv_ckpt_hooks hooks = {.device = see_device};

    device = NULL;
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(cfg);
    vv_ckpt_set_hooks(NULL);
    return ctx;
}

static const struct ck_cfg roomy = {
    .device = true, .device_cache = 64 * PAGE, .host_cache = 64 * PAGE};

static uint64_t moved(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    uint64_t bytes = 0;
    T_OK(varve_stats(ctx, &s));
    bytes = s.moved_bytes[0] + s.moved_bytes[1]; /* d2d, h2h */
    return bytes;
}

static uint64_t copies(void)
{
    struct vv_device_host_stats s;
    vv_device_host_stats(device, &s);
    return s.engine[VV_DEVICE_HOST_D2D].bytes;
}

static uint64_t used(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    return s.tier_used_bytes[0];
}

/* ---- reading ---- */

static void acquire_in_place(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    void *ptr = NULL;
    size_t bytes = 0;

    T_OK(varve_protect(h, 3, buf, BYTES));
    ck_fill(buf, BYTES, 1, 3);
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    uint64_t before = moved(ctx), on_device = copies();
    T_OK(varve_acquire(h, 1, 3, NULL, &ptr, &bytes));
    T_EQ(bytes, BYTES);
    T_EQ((uintptr_t)ptr % 256, 0);
    ck_check(ptr, BYTES, 1, 3);
    T_ERR(varve_acquire(h, 1, 3, NULL, &ptr, &bytes), -EBUSY);
    ck_error(ctx, -EBUSY, "lent already");
    T_ERR(varve_acquire(h, 1, 4, NULL, &ptr, &bytes), -ESRCH);
    T_ERR(varve_acquire(h, 2, 3, NULL, &ptr, &bytes), -ENOENT);
    T_ERR(varve_release(h, 1, 4, NULL), -ENOENT);
    T_ERR(varve_history_close(h), -EBUSY);
    ck_error(ctx, -EBUSY, "1 region is lent");
    T_ERR(varve_close(ctx), -EBUSY);
    /* Discarded, it stays where it is until it is given back. */
    T_OK(varve_discard(h, 1));
    T_ERR(varve_restore(h, 1), -ENOENT);
    T_OK(varve_protect(h, 3, buf, BYTES));
    for (uint64_t v = 10; v < 40; v++) {
        ck_fill(buf, BYTES, v, 3);
        int rc = varve_checkpoint(h, v);
        if (rc) { /* memory only: it is full at some time */
            T_EQ(rc, -ENOSPC);
            break;
        }
    }
    ck_check(ptr, BYTES, 1, 3);
    T_EQ(copies() - on_device, moved(ctx) - before);
    T_OK(varve_release(h, 1, 3, NULL));
    T_ERR(varve_release(h, 1, 3, NULL), -ENOENT);
    ck_error(ctx, -ENOENT, "not lent");
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* Nothing is copied, by the device's and by the engine's count. */
static void in_place_moves_nothing(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    void *ptr = NULL;
    size_t bytes = 0;

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_checkpoint(h, 1));
    uint64_t before = moved(ctx), on_device = copies();
    for (int i = 0; i < 3; i++) {
        T_OK(varve_acquire_for(h, 1, 0, NULL, 0, &ptr, &bytes));
        T_OK(varve_release(h, 1, 0, NULL));
    }
    T_EQ(moved(ctx), before);
    T_EQ(copies(), on_device);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

struct see {
    const char *ptr;
    size_t bytes;
    bool same;
};

static void see_kernel(void *arg)
{
    struct see *s = arg;
    s->same = ck_same(s->ptr, s->bytes, 1, 1);
}

/* A region that begins at an unaligned place is gathered, in stream order. */
static void acquire_a_copy(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *a = ck_alloc(ctx, true, 100), *b = ck_alloc(ctx, true, BYTES);
    void *ptr = NULL;
    size_t bytes = 0;

    T_OK(varve_protect(h, 0, a, 100));
    T_OK(varve_protect(h, 1, b, BYTES));
    ck_fill(a, 100, 1, 0);
    ck_fill(b, BYTES, 1, 1);
    T_OK(varve_checkpoint(h, 1));
    uint64_t before = used(ctx), on_device = copies();
    T_OK(vv_device_host_app_hold(device));
    T_OK(varve_acquire(h, 1, 1, NULL, &ptr, &bytes));
    T_EQ(bytes, BYTES);
    T_EQ((uintptr_t)ptr % 256, 0);
    T_CHECK(used(ctx) > before);
    struct see see = {ptr, bytes, false};
    T_OK(vv_device_host_app_run(device, see_kernel, &see));
    T_OK(varve_release(h, 1, 1, NULL)); /* the kernel is still to come */
    T_CHECK(used(ctx) > before);
    vv_device_host_app_release(device);
    ck_stream_sync(device, NULL);
    T_CHECK(see.same);
    T_EQ(copies() - on_device, BYTES);
    while (used(ctx) != before)
        ;
    T_EQ(ck_count(h), 1);
    ck_free(ctx, true, a);
    ck_free(ctx, true, b);
    T_OK(varve_close(ctx));
}

/* With every policy, and with the bytes on every tier. */
static void acquire_from_below(void)
{
    for (int policy = VARVE_POLICY_NEXT; policy <= VARVE_POLICY_LRU; policy++) {
        struct ck_cfg cfg = {
            .device = true, .device_cache = 16 * PAGE, .host_cache = 16 * PAGE, .policy = policy};
        cfg.local = t_tmpdir();
        struct varve_ctx *ctx = open_ctx(&cfg);
        struct varve_history *h = ck_history(ctx, "h");
        char *buf = ck_alloc(ctx, true, BYTES);
        void *ptr = NULL;
        size_t bytes = 0;

        T_OK(varve_protect(h, 0, buf, BYTES));
        for (uint64_t v = 0; v < 12; v++) {
            ck_fill(buf, BYTES, v, 0);
            T_OK(varve_checkpoint(h, v));
        }
        for (uint64_t v = 0; v < 12; v++) {
            T_OK(varve_acquire(h, v, 0, NULL, &ptr, &bytes));
            ck_stream_sync(device, NULL);
            ck_check(ptr, BYTES, v, 0);
            T_OK(varve_release(h, v, 0, NULL));
        }
        T_EQ(ck_count(h), 12);
        ck_free(ctx, true, buf);
        T_OK(varve_close(ctx));
    }
}

static void half_a_tier(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 13 * PAGE, .host_cache = 64 * PAGE};
    struct varve_ctx *ctx = open_ctx(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    void *one = NULL, *two = NULL;
    size_t bytes = 0;

    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 1; v <= 2; v++) {
        ck_fill(buf, BYTES, v, 0);
        T_OK(varve_checkpoint(h, v));
    }
    T_OK(varve_acquire(h, 1, 0, NULL, &one, &bytes));
    T_ERR(varve_acquire(h, 2, 0, NULL, &two, &bytes), -ENOSPC);
    ck_error(ctx, -ENOSPC, "at most half");
    T_ERR(varve_reserve(h, 3, 0, PAGE, NULL, &two), -ENOSPC);
    T_OK(varve_release(h, 1, 0, NULL));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    int rc;
    while ((rc = varve_acquire(h, 2, 0, NULL, &two, &bytes)) == -ENOSPC)
        ; /* the event of the release is seen a little later */
    T_OK(rc);
    ck_stream_sync(device, NULL);
    ck_check(two, BYTES, 2, 0);
    T_OK(varve_release(h, 2, 0, NULL));
    T_ERR(varve_reserve(h, 3, 0, 7 * PAGE, NULL, &two), -ENOSPC);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* Until the stream has reached the release, the pages are not reused; a thread that needs them
 * waits, as they will come. */
static void release_waits_for_the_stream(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 12 * PAGE, .host_cache = 0};
    struct varve_ctx *ctx = open_ctx(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    void *ptr = NULL;
    size_t bytes = 0;

    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 1; v <= 2; v++) {
        ck_fill(buf, BYTES, v, 0);
        T_OK(varve_checkpoint(h, v));
    }
    T_OK(varve_acquire(h, 1, 0, NULL, &ptr, &bytes));
    T_OK(varve_discard(h, 1));
    ck_fill(buf, BYTES, 3, 0);
    T_ERR(varve_checkpoint_for(h, 3, CK_LIMIT_MS), -ENOSPC); /* nothing will free room */
    T_OK(vv_device_host_app_hold(device));
    T_OK(varve_release(h, 1, 0, NULL));
    T_ERR(varve_checkpoint_on_for(h, 3, NULL, 0), -EAGAIN);
    T_ERR(varve_checkpoint_on_for(h, 3, NULL, 20), -ETIMEDOUT);
    ck_check(ptr, BYTES, 1, 0);
    vv_device_host_app_release(device);
    T_OK(varve_checkpoint(h, 3));
    T_OK(varve_restore(h, 3));
    ck_check(buf, BYTES, 3, 0);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void consumed_once(void)
{
    for (int device_regions = 0; device_regions < 2; device_regions++) {
        struct varve_history_opts opts;
        struct varve_ctx *ctx = open_ctx(&roomy);
        struct varve_history *h = NULL;
        char *a = ck_alloc(ctx, true, BYTES), *b = ck_alloc(ctx, true, PAGE);
        void *ptr = NULL;
        size_t bytes = 0;

        T_OK(varve_history_opts_init(&opts, sizeof(opts)));
        opts.consume = VARVE_CONSUME_ONCE;
        T_OK(varve_history_open_with(ctx, "once", &opts, &h));
        T_OK(varve_protect(h, 0, a, device_regions ? BYTES : 4 * PAGE));
        T_OK(varve_protect(h, 1, b, PAGE));
        ck_fill(a, BYTES, 1, 0);
        ck_fill(b, PAGE, 1, 1);
        T_OK(varve_checkpoint(h, 1));
        T_OK(varve_acquire(h, 1, 0, NULL, &ptr, &bytes));
        T_OK(varve_acquire(h, 1, 1, NULL, &ptr, &bytes));
        ck_stream_sync(device, NULL);
        ck_check(ptr, PAGE, 1, 1);
        T_OK(varve_release(h, 1, 0, NULL));
        ck_stream_sync(device, NULL);
        T_EQ(ck_count(h), 1);
        T_OK(varve_release(h, 1, 1, NULL));
        while (ck_count(h))
            ;
        T_ERR(varve_restore(h, 1), -ENOENT);
        T_OK(varve_history_close(h));
        ck_free(ctx, true, a);
        ck_free(ctx, true, b);
        T_OK(varve_close(ctx));
    }
}

enum { SHARERS = 3 };

struct sharer {
    struct varve_history *h;
    pthread_barrier_t *all;
    int region;
};

static void *release_one(void *arg)
{
    const struct sharer *s = arg;

    for (uint64_t v = 0; v < 50; v++) {
        pthread_barrier_wait(s->all);
        T_OK(varve_release(s->h, v, s->region, NULL));
        pthread_barrier_wait(s->all);
    }
    return NULL;
}

/* Regions released at the same time: the last one of them ends the version. */
static void consumed_once_by_threads(void)
{
    struct varve_history_opts opts;
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = NULL;
    char *buf = ck_alloc(ctx, true, PAGE);
    pthread_barrier_t all;
    struct sharer sharer[SHARERS];
    pthread_t thread[SHARERS];
    void *ptr = NULL;
    size_t bytes = 0;

    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.consume = VARVE_CONSUME_ONCE;
    T_OK(varve_history_open_with(ctx, "once", &opts, &h));
    T_OK(pthread_barrier_init(&all, NULL, SHARERS + 1));
    for (int i = 0; i < SHARERS; i++) {
        T_OK(varve_protect(h, i, buf, PAGE));
        sharer[i] = (struct sharer){h, &all, i};
        T_OK(pthread_create(&thread[i], NULL, release_one, &sharer[i]));
    }
    for (uint64_t v = 0; v < 50; v++) {
        T_OK(varve_checkpoint(h, v));
        for (int i = 0; i < SHARERS; i++)
            T_OK(varve_acquire(h, v, i, NULL, &ptr, &bytes));
        pthread_barrier_wait(&all);
        pthread_barrier_wait(&all);
    }
    for (int i = 0; i < SHARERS; i++)
        T_OK(pthread_join(thread[i], NULL));
    while (ck_count(h))
        ;
    T_OK(pthread_barrier_destroy(&all));
    T_OK(varve_history_close(h));
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* ---- writing ---- */

static void commit_moves_nothing(void)
{
    for (int policy = VARVE_POLICY_NEXT; policy <= VARVE_POLICY_LRU; policy++) {
        struct ck_cfg cfg = roomy;
        cfg.policy = policy;
        struct varve_ctx *ctx = open_ctx(&cfg);
        struct varve_history *h = ck_history(ctx, "h");
        char *buf = ck_alloc(ctx, true, BYTES);
        void *ptr = NULL, *back = NULL;
        size_t bytes = 0;

        T_OK(varve_protect(h, 2, buf, BYTES));
        T_OK(varve_reserve(h, 1, 2, BYTES, NULL, &ptr));
        T_EQ((uintptr_t)ptr % 256, 0);
        ck_fill(ptr, BYTES, 1, 2);
        T_EQ(ck_count(h), 0);
        T_ERR(varve_restore(h, 1), -ENOENT);
        uint64_t before = moved(ctx), on_device = copies();
        T_OK(vv_device_host_app_hold(device));
        T_OK(varve_commit(h, 1, NULL));
        T_EQ(ck_count(h), 0);
        T_ERR(varve_wait(h, 1, VARVE_LEVEL_CACHED, 10), -ETIMEDOUT);
        T_ERR(varve_reserve(h, 1, 2, BYTES, NULL, &back), -EEXIST);
        T_ERR(varve_commit(h, 1, NULL), -ENODATA);
        vv_device_host_app_release(device);
        T_OK(varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
        T_EQ(ck_count(h), 1);
        T_EQ(moved(ctx), before);
        T_EQ(copies(), on_device);
        /* It is in one piece: read where it was written. */
        T_OK(varve_acquire(h, 1, 2, NULL, &back, &bytes));
        T_CHECK(back == ptr);
        T_OK(varve_release(h, 1, 2, NULL));
        T_OK(varve_restore(h, 1));
        ck_check(buf, BYTES, 1, 2);
        ck_free(ctx, true, buf);
        T_OK(varve_close(ctx));
    }
}

/* Regions that are multiples of the page size become one version without a copy; others are copied. */
static void commit_regions(void)
{
    for (int policy = VARVE_POLICY_NEXT; policy <= VARVE_POLICY_SCORE; policy++)
        for (int odd = 0; odd < 2; odd++) {
            struct ck_cfg cfg = roomy;
            cfg.policy = policy;
            struct varve_ctx *ctx = open_ctx(&cfg);
            struct varve_history *h = ck_history(ctx, "h");
            size_t first = 4 * PAGE - (size_t)odd * 8;
            char *a = ck_alloc(ctx, true, first), *b = ck_alloc(ctx, true, BYTES);
            void *one = NULL, *two = NULL;

            /* The second is reserved first: the numbers decide. */
            T_OK(varve_reserve(h, 9, 5, BYTES, NULL, &two));
            T_OK(varve_reserve(h, 9, 1, first, NULL, &one));
            T_ERR(varve_reserve(h, 9, 1, PAGE, NULL, &one), -EEXIST);
            ck_error(ctx, -EEXIST, "reserved already");
            ck_fill(one, first, 9, 1);
            ck_fill(two, BYTES, 9, 5);
            uint64_t before = used(ctx), on_device = copies();
            T_OK(varve_commit(h, 9, NULL));
            T_OK(varve_wait(h, 9, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
            bool joined = !odd && policy == VARVE_POLICY_NEXT;
            T_EQ(copies() - on_device, joined ? 0 : first + BYTES);
            while (used(ctx) > before)
                ;
            T_OK(varve_protect(h, 1, a, first));
            T_OK(varve_protect(h, 5, b, BYTES));
            T_OK(varve_restore(h, 9));
            ck_check(a, first, 9, 1);
            ck_check(b, BYTES, 9, 5);
            ck_free(ctx, true, a);
            ck_free(ctx, true, b);
            T_OK(varve_close(ctx));
        }
}

/* Memory that copies on a stream still read is returned automatically, and does not count as lent. */
static void committed_is_not_lent(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    void *ptr = NULL;

    T_OK(vv_device_host_app_hold(device));
    T_OK(varve_reserve(h, 1, 0, 100, NULL, &ptr));
    T_OK(varve_reserve(h, 1, 1, 10 * PAGE, NULL, &ptr));
    T_OK(varve_commit(h, 1, NULL));
    T_OK(varve_reserve(h, 2, 0, 25 * PAGE, NULL, &ptr));
    T_ERR(varve_reserve(h, 2, 1, 8 * PAGE, NULL, &ptr), -ENOSPC);
    vv_device_host_app_release(device);
    T_OK(varve_abort(h, 2));
    T_OK(varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
}

/* A region that the disk has no room for is still lent to the application. */
static void commit_without_room_on_disk(void)
{
    struct ck_cfg cfg = roomy;
    cfg.local = t_tmpdir();
    cfg.level = VARVE_LEVEL_LOCAL;
    cfg.local_cache = 20 * PAGE;
    struct varve_ctx *ctx = open_ctx(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, 10 * PAGE);
    void *ptr = NULL;

    T_OK(varve_protect(h, 0, buf, 10 * PAGE));
    T_OK(varve_checkpoint(h, 0));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_reserve(h, 1, 0, 10 * PAGE, NULL, &ptr));
    ck_fill(ptr, 10 * PAGE, 1, 0);
    T_ERR(varve_commit_for(h, 1, NULL, 0), -ENOSPC);
    T_ERR(varve_commit(h, 1, NULL), -ENOSPC);
    T_OK(varve_discard(h, 0));
    T_OK(varve_commit(h, 1, NULL)); /* waits until the file is gone */
    T_OK(varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    T_OK(varve_restore(h, 1));
    ck_check(buf, 10 * PAGE, 1, 0);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void abort_gives_back(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    void *ptr = NULL;

    T_ERR(varve_abort(h, 1), -ENODATA);
    T_ERR(varve_commit(h, 1, NULL), -ENODATA);
    ck_error(ctx, -ENODATA, "no region is reserved");
    T_ERR(varve_reserve(h, 1, -1, PAGE, NULL, &ptr), -EINVAL);
    T_ERR(varve_reserve(h, 1, 0, SIZE_MAX / 4, NULL, &ptr), -ENOSPC);
    for (int i = 0; i < 20; i++) {
        T_OK(varve_reserve(h, 1, 0, 10 * PAGE, NULL, &ptr));
        T_OK(varve_reserve(h, 1, 1, 20 * PAGE, NULL, &ptr));
        T_EQ(used(ctx), 30 * PAGE);
        T_ERR(varve_history_close(h), -EBUSY);
        T_OK(varve_abort(h, 1));
        T_EQ(used(ctx), 0);
    }
    T_EQ(ck_count(h), 0);
    T_OK(varve_close(ctx));
}

static void refusals(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    void *native = NULL, *ptr = NULL;
    size_t bytes = 0;

    T_OK(vv_device_host_native_new(device, &native));
    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_checkpoint(h, 1));
    T_ERR(varve_reserve(h, 1, 0, BYTES, native, &ptr), -EEXIST);
    ck_error(ctx, -EEXIST, "exists");
    T_OK(varve_reserve(h, 2, 0, BYTES, native, &ptr));
    ck_fill(ptr, BYTES, 2, 0);
    T_OK(varve_acquire(h, 1, 0, native, &ptr, &bytes));
    vv_device_host_native_capture(device, native, true);
    T_ERR(varve_release(h, 1, 0, native), -EBUSY);
    ck_error(ctx, -EBUSY, "captured");
    T_ERR(varve_commit(h, 2, native), -EBUSY);
    T_ERR(varve_reserve(h, 3, 0, BYTES, native, &ptr), -EBUSY);
    T_ERR(varve_acquire(h, 1, 0, native, &ptr, &bytes), -EBUSY);
    vv_device_host_native_capture(device, native, false);
    T_OK(varve_release(h, 1, 0, native));
    /* Another call wrote the version first. */
    ck_fill(buf, BYTES, 7, 0);
    T_OK(varve_checkpoint(h, 2));
    T_ERR(varve_commit(h, 2, native), -EEXIST);
    T_OK(varve_discard(h, 2));
    T_OK(varve_commit(h, 2, native));
    T_OK(varve_restore(h, 2));
    ck_check(buf, BYTES, 2, 0);
    vv_device_host_native_free(device, native);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* ---- without a device, or without its cache ---- */

static void host_memory(void)
{
    for (int with = 0; with < 2; with++) {
        struct ck_cfg cfg = {.device = with == 1, .host_cache = 64 * PAGE};
        struct varve_ctx *ctx = open_ctx(&cfg);
        struct varve_history *h = ck_history(ctx, "h");
        char *buf = ck_alloc(ctx, false, BYTES);
        void *ptr = NULL;
        size_t bytes = 0;

        T_OK(varve_protect(h, 0, buf, 100));
        T_OK(varve_protect(h, 1, buf + 100, BYTES - 100));
        ck_fill(buf, BYTES, 1, 0);
        T_OK(varve_checkpoint(h, 1));
        T_OK(varve_acquire(h, 1, 0, NULL, &ptr, &bytes));
        T_EQ(bytes, 100);
        T_CHECK(memcmp(ptr, buf, 100) == 0);
        T_OK(varve_acquire(h, 1, 1, NULL, &ptr, &bytes));
        T_CHECK(memcmp(ptr, buf + 100, BYTES - 100) == 0);
        T_OK(varve_release(h, 1, 0, NULL));
        T_OK(varve_release(h, 1, 1, NULL));
        if (!with)
            T_ERR(varve_acquire(h, 1, 0, (struct CUstream_st *)buf, &ptr, &bytes), -ENODEV);
        for (size_t odd = 0; odd < 2; odd++) {
            T_OK(varve_reserve(h, 2 + odd, 0, PAGE + odd, NULL, &ptr));
            ck_fill(ptr, PAGE, 2, 0);
            T_OK(varve_reserve(h, 2 + odd, 1, PAGE, NULL, &ptr));
            ck_fill(ptr, PAGE, 2, 1);
            T_OK(varve_commit(h, 2 + odd, NULL));
            T_OK(varve_wait(h, 2 + odd, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
            T_OK(varve_protect(h, 0, buf, PAGE + odd));
            T_OK(varve_protect(h, 1, buf + 2 * PAGE, PAGE));
            T_OK(varve_restore(h, 2 + odd));
            ck_check(buf, PAGE, 2, 0);
            ck_check(buf + 2 * PAGE, PAGE, 2, 1);
        }
        ck_free(ctx, false, buf);
        T_OK(varve_close(ctx));
    }
}

/* ---- failures ---- */

static void late_failures(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *a = ck_alloc(ctx, true, 100), *b = ck_alloc(ctx, true, BYTES);
    void *ptr = NULL;
    size_t bytes = 0;
    int rc;

    T_OK(varve_protect(h, 0, a, 100));
    T_OK(varve_protect(h, 1, b, BYTES));
    ck_fill(b, BYTES, 1, 1);
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(vv_device_host_fail_async(device, 1, 1, -EIO));
    T_OK(varve_acquire(h, 1, 1, NULL, &ptr, &bytes));
    while ((rc = varve_prefetch_start(h)) == 0)
        ;
    T_EQ(rc, -EIO);
    T_OK(varve_release(h, 1, 1, NULL));
    /* A copy that fails on the way into a version: it never appears, and the memory is given
     * back. */
    T_OK(varve_reserve(h, 2, 0, 100, NULL, &ptr));
    T_OK(varve_reserve(h, 2, 1, PAGE, NULL, &ptr));
    T_OK(vv_device_host_fail_async(device, 1, 1, -EIO));
    T_OK(varve_commit(h, 2, NULL));
    T_ERR(varve_wait(h, 2, VARVE_LEVEL_CACHED, CK_LIMIT_MS), -EIO);
    T_EQ(ck_count(h), 1);
    T_ERR(varve_abort(h, 2), -ENODATA);
    /* Recording the event of a release or a commit fails. */
    T_OK(varve_reserve(h, 3, 0, PAGE, NULL, &ptr));
    T_OK(vv_device_host_fail(device, VV_DEVICE_OP_STREAM_ADOPT, 1, 1, -EIO));
    T_ERR(varve_commit(h, 3, NULL), -EIO);
    T_OK(varve_acquire(h, 1, 0, NULL, &ptr, &bytes));
    T_OK(vv_device_host_fail(device, VV_DEVICE_OP_EVENT_RECORD, 1, 1, -EIO));
    T_ERR(varve_release(h, 1, 0, NULL), -EIO);
    T_ERR(varve_release(h, 1, 0, NULL), -ENOENT);
    T_OK(vv_device_host_fail(device, VV_DEVICE_OP_EVENT_RECORD, 1, 1, -EIO));
    T_ERR(varve_commit(h, 3, NULL), -EIO);
    T_ERR(varve_commit(h, 3, NULL), -ENODATA);
    ck_free(ctx, true, a);
    ck_free(ctx, true, b);
    T_OK(varve_close(ctx));
}

static void lost_device(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    void *ptr = NULL;
    size_t bytes = 0;

    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_acquire(h, 1, 0, NULL, &ptr, &bytes));
    T_OK(varve_reserve(h, 2, 0, PAGE, NULL, &ptr));
    T_OK(vv_device_host_app_hold(device));
    T_OK(varve_commit(h, 2, NULL));
    vv_device_host_lose(device);
    T_ERR(varve_release(h, 1, 0, NULL), -ENODEV);
    T_ERR(varve_wait(h, 2, VARVE_LEVEL_CACHED, CK_LIMIT_MS), -ENODEV);
    T_ERR(varve_release(h, 1, 0, NULL), -ENOENT);
    T_OK(varve_close(ctx));
}

/* ---- many ---- */

enum { THREADS = 4, ROUNDS = 30 };

struct worker {
    struct varve_ctx *ctx;
    int id;
};

static void *work(void *arg)
{
    const struct worker *w = arg;
    char name[16] = {'w', (char)('0' + w->id)};
    struct varve_history *h = ck_history(w->ctx, name);
    void *native = NULL, *ptr = NULL;
    size_t bytes = 0;

    T_OK(vv_device_host_native_new(device, &native));
    for (uint64_t v = 0; v < ROUNDS; v++) {
        int rc;
        while ((rc = varve_reserve(h, v, 0, BYTES, native, &ptr)) == -ENOSPC)
            ; /* others have lent half of it */
        T_OK(rc);
        ck_fill(ptr, BYTES, v, w->id);
        T_OK(varve_commit(h, v, native));
        if (v % 2) {
            while ((rc = varve_acquire(h, v - 1, 0, native, &ptr, &bytes)) == -ENOSPC)
                ;
            T_OK(rc);
            ck_stream_sync(device, native);
            ck_check(ptr, bytes, v - 1, w->id);
            T_OK(varve_release(h, v - 1, 0, native));
        }
        if (v % 5 == 4)
            T_OK(varve_discard(h, v - 2));
    }
    ck_stream_sync(device, native);
    T_OK(varve_history_close(h));
    vv_device_host_native_free(device, native);
    return NULL;
}

static void threads_and_streams(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 60 * PAGE, .host_cache = 40 * PAGE};
    cfg.local = t_tmpdir();
    struct varve_ctx *ctx = open_ctx(&cfg);
    struct worker w[THREADS];
    pthread_t thread[THREADS];

    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){ctx, i};
        T_OK(pthread_create(&thread[i], NULL, work, &w[i]));
    }
    for (int i = 0; i < THREADS; i++)
        T_OK(pthread_join(thread[i], NULL));
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(acquire_in_place);
    T_RUN(in_place_moves_nothing);
    T_RUN(acquire_a_copy);
    T_RUN(acquire_from_below);
    T_RUN(half_a_tier);
    T_RUN(release_waits_for_the_stream);
    T_RUN(consumed_once);
    T_RUN(consumed_once_by_threads);
    T_RUN(commit_moves_nothing);
    T_RUN(commit_regions);
    T_RUN(committed_is_not_lent);
    T_RUN(commit_without_room_on_disk);
    T_RUN(abort_gives_back);
    T_RUN(refusals);
    T_RUN(host_memory);
    T_RUN(late_failures);
    T_RUN(lost_device);
    T_RUN(threads_and_streams);
    return t_done();
}
