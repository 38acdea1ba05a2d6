/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are ordered by a stream, on streams of the CUDA driver: they do not wait for the stream, take their
 * place in it, and a version is complete when the stream has reached it.
 */
#include <pthread.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "gpu/gpu.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 61 * PAGE + 9, VERSIONS = 10 };

static const struct ck_cfg cfg = {
    .device = true, .device_cache = 256 * PAGE, .host_cache = 4096 * PAGE};

/* Blocks a stream until it is opened. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
};

#define GATE_INIT                                                  \
    {                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false \
    }

static void gate_pass(void *arg)
{
    struct gate *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static uintptr_t primary_with_memory(void)
{
    void *primary;
    uintptr_t d;
    CU(retain(&primary, 0));
    CU(push(primary));
    CU(alloc(&d, BYTES));
    return d;
}

static size_t listed(struct varve_history *h)
{
    size_t n;
    T_OK(varve_versions(h, NULL, 0, &n));
    return n;
}

static void check_bytes(uintptr_t d, char want)
{
    char *back = malloc(BYTES);
    T_CHECK(back);
    CU(to_host(back, d, BYTES));
    for (size_t i = 0; i < BYTES; i++)
        T_EQ(back[i], want);
    free(back);
}

/* `s` NULL: the legacy default stream. */
static void take_their_place(void *s)
{
    struct gate g = GATE_INIT;
    uintptr_t d = primary_with_memory();
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "order");
    T_OK(varve_protect(h, 0, (void *)d, BYTES));
    CU(host_func(s, gate_pass, &g));
    for (unsigned char v = 0; v < 3; v++) {
        CU(set_async(d, (unsigned char)(v + 1), BYTES, s));
        T_OK(varve_checkpoint_on_for(h, v, s, CK_LIMIT_MS));
    }
    CU(set_async(d, 0xff, BYTES, s));
    /* The stream has not reached these calls yet. */
    T_EQ(listed(h), 0);
    T_ERR(varve_wait(h, 0, VARVE_LEVEL_CACHED, 0), -ETIMEDOUT);
    gate_open(&g);
    for (unsigned char v = 0; v < 3; v++)
        T_OK(varve_wait(h, v, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    T_EQ(listed(h), 3);
    for (unsigned char v = 3; v-- > 0;) {
        CU(set_async(d, 0xee, BYTES, s));
        T_OK(varve_restore_on_for(h, v, s, CK_LIMIT_MS));
        CU(sync(s));
        check_bytes(d, (char)(v + 1));
    }
    T_OK(varve_close(ctx));
    CU(mem_free(d));
}

static void on_a_stream(void)
{
    void *primary, *s;
    CU(retain(&primary, 0));
    CU(push(primary));
    CU(stream(&s, 1));
    take_their_place(s);
    CU(stream_free(s));
}

static void on_a_blocking_stream(void)
{
    void *primary, *s;
    CU(retain(&primary, 0));
    CU(push(primary));
    CU(stream(&s, 0));
    take_their_place(s);
    CU(stream_free(s));
}

static void on_the_default_stream(void)
{
    take_their_place(NULL);
}

/* Restored on one stream, used by the next work on it, and written again, without a wait on the host. */
static void without_the_host(void)
{
    uintptr_t d = primary_with_memory();
    void *s;
    CU(stream(&s, 1));
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "chain");
    T_OK(varve_protect(h, 0, (void *)d, BYTES));
    CU(set_async(d, 42, BYTES, s));
    for (uint64_t v = 0; v < VERSIONS; v++) {
        T_OK(varve_checkpoint_on_for(h, v, s, CK_LIMIT_MS));
        CU(set_async(d, 0, BYTES, s));
        T_OK(varve_restore_on_for(h, v, s, CK_LIMIT_MS));
    }
    CU(sync(s));
    check_bytes(d, 42);
    T_OK(varve_close(ctx));
    CU(stream_free(s));
    CU(mem_free(d));
}

static void not_into_a_capture(void)
{
    uintptr_t d = primary_with_memory();
    void *s, *graph;
    CU(stream(&s, 1));
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "capture");
    T_OK(varve_protect(h, 0, (void *)d, BYTES));
    T_OK(varve_checkpoint_for(h, 0, CK_LIMIT_MS));
    CU(begin_capture(s, 0));
    T_ERR(varve_checkpoint_on_for(h, 1, s, CK_LIMIT_MS), -EBUSY);
    T_ERR(varve_restore_on_for(h, 0, s, CK_LIMIT_MS), -EBUSY);
    CU(end_capture(s, &graph));
    T_OK(varve_checkpoint_on_for(h, 1, s, CK_LIMIT_MS));
    T_OK(varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    CU(stream_free(s));
    CU(mem_free(d));
}

/* ---- threads ---- */

static void *user_main(void *arg)
{
    const struct gpu_user *u = arg;
    char name[8] = {(char)('a' + u->id), 0};
    uintptr_t d;
    void *s;
    CU(push(u->primary));
    CU(alloc(&d, BYTES));
    CU(stream(&s, (unsigned)u->id % 2));
    struct varve_history *h = ck_history(u->ctx, name);
    T_OK(varve_protect(h, 0, (void *)d, BYTES));
    for (unsigned char v = 0; v < VERSIONS; v++) {
        CU(set_async(d, (unsigned char)(v + 16 * u->id), BYTES, s));
        T_OK(varve_checkpoint_on_for(h, v, s, CK_LIMIT_MS));
    }
    for (unsigned char v = VERSIONS; v-- > 0;) {
        T_OK(varve_restore_on_for(h, v, s, CK_LIMIT_MS));
        CU(sync(s));
        check_bytes(d, (char)(v + 16 * u->id));
    }
    T_OK(varve_history_close(h));
    CU(stream_free(s));
    CU(mem_free(d));
    return NULL;
}

static void in_many_threads(void)
{
    struct varve_ctx *ctx = ck_open(&cfg);
    gpu_run_users(ctx, user_main);
    T_OK(varve_close(ctx));
}

/* The device is reset while copies are queued in a stream: an error, and closing ends. */
static void reset_under_a_stream(void)
{
    uintptr_t d = primary_with_memory();
    void *s;
    CU(stream(&s, 1));
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "reset");
    T_OK(varve_protect(h, 0, (void *)d, BYTES));
    for (uint64_t v = 0; v < VERSIONS; v++)
        T_OK(varve_checkpoint_on_for(h, v, s, CK_LIMIT_MS));
    CU(reset(0));
    T_CHECK(varve_checkpoint_on_for(h, 50, s, CK_LIMIT_MS) < 0);
    T_ERR(varve_wait(h, 50, VARVE_LEVEL_CACHED, CK_LIMIT_MS), -ENOENT);
    int rc = varve_close(ctx);
    T_CHECK(rc != -EBUSY && rc != -ETIMEDOUT);
}

int main(void)
{
    gpu_need();
    GPU_RUN(on_a_stream);
    GPU_RUN(on_a_blocking_stream);
    GPU_RUN(on_the_default_stream);
    GPU_RUN(without_the_host);
    GPU_RUN(not_into_a_capture);
    GPU_RUN(in_many_threads);
    GPU_RUN(reset_under_a_stream);
    return t_done();
}
