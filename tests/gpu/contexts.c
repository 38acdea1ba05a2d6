/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Varve beside an application's own use of CUDA: the calling thread's context is unchanged after every call, memory and
 * streams of the application work, and events that end CUDA under an open context (a reset, a fork, the end of the
 * process) give errors and no crash.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "gpu/gpu.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 37 * PAGE + 5, THREADS = 6, ROUNDS = 8 };

/* One case exits without closing, so its threads are never joined. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_thread_leaks=0";
}

static const struct ck_cfg cfg = {
    .device = true, .device_cache = 128 * PAGE, .host_cache = 4096 * PAGE};

static void *current(void)
{
    void *ctx = &ctx;
    CU(current(&ctx));
    return ctx;
}

/* Makes every call that touches the device, and checks the thread's context after each. */
static void use(struct varve_ctx *ctx, const char *name)
{
    void *before = current();
    struct varve_history *h = ck_history(ctx, name);
    T_CHECK(current() == before);
    char *buf = ck_alloc(ctx, true, BYTES);
    T_CHECK(current() == before);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_CHECK(current() == before);
    for (uint64_t v = 0; v < ROUNDS; v++) {
        ck_fill(buf, BYTES, v, 0);
        T_CHECK(current() == before);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
        T_CHECK(current() == before);
    }
    for (uint64_t v = ROUNDS; v-- > 0;) {
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        T_CHECK(current() == before);
        ck_check(buf, BYTES, v, 0);
        T_OK(varve_discard(h, v));
    }
    ck_free(ctx, true, buf);
    T_OK(varve_history_close(h));
    T_CHECK(current() == before);
}

static void without_a_context(void)
{
    T_CHECK(!current());
    struct varve_ctx *ctx = ck_open(&cfg);
    T_CHECK(!current());
    use(ctx, "none");
    T_OK(varve_close(ctx));
    T_CHECK(!current());
}

static void with_the_primary_context(void)
{
    void *primary, *top;
    CU(retain(&primary, 0));
    CU(push(primary));
    struct varve_ctx *ctx = ck_open(&cfg);
    T_CHECK(current() == primary);
    use(ctx, "primary");
    T_OK(varve_close(ctx));
    /* The context was neither popped nor pushed twice, and still works. */
    CU(pop(&top));
    T_CHECK(top == primary);
    T_CHECK(!current());
    CU(push(primary));
    uintptr_t d;
    CU(alloc(&d, PAGE));
    CU(mem_free(d));
    CU(release(0));
}

static void with_another_context(void)
{
    void *own;
    CU(create(&own, 0, 0));
    struct varve_ctx *ctx = ck_open(&cfg);
    T_CHECK(current() == own);
    use(ctx, "own");
    /* Memory of that context cannot be copied by ours. */
    uintptr_t d;
    CU(alloc(&d, BYTES));
    struct varve_history *h = ck_history(ctx, "foreign");
    T_ERR(varve_protect(h, 0, (void *)d, BYTES), -EXDEV);
    T_CHECK(current() == own);
    CU(mem_free(d));
    T_OK(varve_close(ctx));
    T_CHECK(current() == own);
    CU(destroy(own));
}

/* ---- threads ---- */

struct user {
    struct varve_ctx *ctx;
    int id;
};

/* A third of the threads has no context, a third the primary one, a third one of its own. Those with the primary one
 * checkpoint memory that they allocated themselves. */
static void *user_main(void *arg)
{
    const struct user *u = arg;
    void *own = NULL;
    char name[16] = {(char)('a' + u->id), 0}, second[16] = {(char)('A' + u->id), 0};
    uintptr_t d = 0;
    if (u->id % 3 == 1) {
        CU(retain(&own, 0));
        CU(push(own));
        CU(alloc(&d, BYTES));
    } else if (u->id % 3 == 2) {
        CU(create(&own, 0, 0));
    }
    use(u->ctx, name);
    T_CHECK(current() == own);
    if (d) {
        struct varve_history *h = ck_history(u->ctx, second);
        char *bytes = malloc(BYTES), *back = malloc(BYTES);
        T_CHECK(bytes && back);
        T_OK(varve_protect(h, 0, (void *)d, BYTES));
        ck_fill(bytes, BYTES, 77, u->id);
        CU(to_device(d, bytes, BYTES));
        T_OK(varve_checkpoint_for(h, 0, CK_LIMIT_MS));
        CU(set_async(d, 0, BYTES, NULL));
        T_OK(varve_restore_for(h, 0, CK_LIMIT_MS));
        CU(to_host(back, d, BYTES));
        T_CHECK(memcmp(bytes, back, BYTES) == 0);
        T_OK(varve_history_close(h));
        CU(mem_free(d));
        CU(release(0));
        free(bytes);
        free(back);
    } else if (own) {
        CU(destroy(own));
    }
    return NULL;
}

static void in_many_threads(void)
{
    struct varve_ctx *ctx = ck_open(&cfg);
    struct user u[THREADS];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        u[i] = (struct user){ctx, i};
        T_EQ(pthread_create(&thread[i], NULL, user_main, &u[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        T_EQ(pthread_join(thread[i], NULL), 0);
    T_CHECK(!current());
    T_OK(varve_close(ctx));
}

/* ---- the order of work ---- */

static void late(void *arg)
{
    (void)arg;
    vv_sleep_until_ns(vv_now_ns() + 50 * VV_NS_PER_MS);
}

/* The application's work on the default stream comes first, as with a synchronous copy. */
static void behind_the_default_stream(void)
{
    void *primary;
    uintptr_t d;
    CU(retain(&primary, 0));
    CU(push(primary));
    CU(alloc(&d, BYTES));
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "order");
    char *back = malloc(BYTES);
    T_CHECK(back);
    T_OK(varve_protect(h, 0, (void *)d, BYTES));
    for (unsigned char v = 0; v < 4; v++) {
        CU(host_func(NULL, late, NULL));
        CU(set_async(d, (unsigned char)(v + 1), BYTES, NULL));
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
        CU(set_async(d, 0, BYTES, NULL));
    }
    for (unsigned char v = 0; v < 4; v++) {
        CU(host_func(NULL, late, NULL));
        CU(set_async(d, 0xff, BYTES, NULL));
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        CU(to_host(back, d, BYTES));
        for (size_t i = 0; i < BYTES; i++)
            T_EQ(back[i], v + 1);
    }
    free(back);
    T_OK(varve_close(ctx));
    CU(mem_free(d));
    CU(release(0));
}

/* Calls of the library and of its threads do not spoil a capture of the application. */
static void beside_a_capture(void)
{
    void *primary, *s, *graph;
    CU(retain(&primary, 0));
    CU(push(primary));
    struct varve_ctx *ctx = ck_open(&cfg);
    char *buf = ck_alloc(ctx, true, BYTES);
    struct varve_history *h = ck_history(ctx, "capture");
    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 3, 0);
    CU(stream(&s, 1));
    CU(begin_capture(s, 0));
    for (uint64_t v = 0; v < 8; v++)
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    T_OK(varve_restore_for(h, 0, CK_LIMIT_MS));
    CU(end_capture(s, &graph));
    ck_check(buf, BYTES, 3, 0);
    CU(stream_free(s));
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
    CU(release(0));
}

/* ---- ends ---- */

static void in_a_forked_child(void)
{
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "fork");
    char *buf = ck_alloc(ctx, true, BYTES);
    int status;
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    pid_t child = fork();
    T_CHECK(child >= 0);
    if (child == 0) {
        void *p;
        bool ok = varve_checkpoint(h, 2) == -EPERM && varve_restore(h, 1) == -EPERM &&
                  varve_device_alloc(ctx, PAGE, &p) == -EPERM && varve_history_close(h) == -EPERM &&
                  varve_close(ctx) == -EPERM;
        _exit(ok ? 0 : 1);
    }
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    /* The parent is not affected. */
    T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
    ck_check(buf, BYTES, 1, 0);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void after_a_reset(void)
{
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "reset");
    struct varve_error e = {.error_size = sizeof(e)};
    char *buf = ck_alloc(ctx, true, BYTES);
    void *p;
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < ROUNDS; v++)
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    CU(reset(0));
    T_CHECK(varve_checkpoint_for(h, 100, CK_LIMIT_MS) < 0);
    T_OK(varve_last_error(ctx, &e));
    T_CHECK(e.err < 0 && e.text[0]);
    t_note("after the reset: %s", e.text);
    T_CHECK(varve_restore_for(h, 0, CK_LIMIT_MS) < 0);
    T_ERR(varve_device_alloc(ctx, PAGE, &p), -ENODEV);
    T_CHECK(varve_flush(h, CK_LIMIT_MS) != -ETIMEDOUT);
    T_CHECK(varve_close(ctx) != -EBUSY);
    /* A new context works. */
    ck_forget(buf);
    ctx = ck_open(&cfg);
    use(ctx, "again");
    T_OK(varve_close(ctx));
}

static struct varve_ctx *left_open;
static struct varve_history *left_history;

/* Registered before CUDA was initialised, so the driver has ended when it runs. */
static void last_calls(void)
{
    int rc = left_history ? varve_checkpoint_for(left_history, 50, 1000) : 0;
    if (rc > 0 || rc == -EBUSY)
        _exit(3);
    if (varve_close(left_open) == -EBUSY)
        _exit(4);
}

static void leave(bool pending)
{
    static const struct ck_cfg large = {
        .device = true, .device_cache = 128 * PAGE, .host_cache = 16384 * (uint64_t)PAGE};
    struct varve_ctx *ctx = ck_open(&large);
    struct varve_history *h = ck_history(ctx, "left");
    char *buf = ck_alloc(ctx, true, BYTES);
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < ROUNDS; v++)
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    if (!pending)
        T_OK(varve_flush(h, CK_LIMIT_MS));
    left_open = ctx;
    left_history = h;
}

/* The process ends while flushes, and perhaps pinning, are under way. */
static void exit_while_busy(void)
{
    leave(true);
}

static void exit_when_idle(void)
{
    leave(false);
}

static void exit_with_last_calls(void)
{
    leave(true);
    T_EQ(setenv("LAST_CALLS", "1", 1), 0);
}

static void maybe_last_calls(void)
{
    if (getenv("LAST_CALLS"))
        last_calls();
}

int main(void)
{
    gpu_need();
    T_EQ(atexit(maybe_last_calls), 0); /* children inherit it */
    GPU_RUN(without_a_context);
    GPU_RUN(with_the_primary_context);
    GPU_RUN(with_another_context);
    GPU_RUN(in_many_threads);
    GPU_RUN(behind_the_default_stream);
    GPU_RUN(beside_a_capture);
    GPU_RUN(in_a_forked_child);
    GPU_RUN(after_a_reset);
    GPU_RUN(exit_while_busy);
    GPU_RUN(exit_when_idle);
    GPU_RUN(exit_with_last_calls);
    return t_done();
}
