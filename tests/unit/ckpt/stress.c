/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads on one context, with caches far too small for them. First each with a history of its
 * own: it writes, restores, hints, discards and waits at random and checks every byte. Then all on
 * one history and the same few versions, so that they meet on the same objects.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "ckpt/ckpt_private.h"
#include "t.h"
#include "t_cuda.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, THREADS = 4, HISTORIES = 3, VERSIONS = 12, MAX_BYTES = 10 * PAGE };

struct worker {
    struct varve_ctx *ctx;
    struct varve_history *h;
    bool device;
    int level, rounds;
    struct t_rng rng;
    uint64_t put, got;
};

static size_t size_of(uint64_t v)
{
    return 1 + (v * 7919 + 100) % MAX_BYTES;
}

/* 0, the one refusal that fits the call, or a short limit that ran out. The long limit is there to
 * end a hang: it must not be needed. */
static void expect(const char *what, int rc, int refusal, int limit)
{
    if (rc != 0 && rc != refusal && !(rc == -ETIMEDOUT && limit < CK_LIMIT_MS))
        t_fail(__FILE__, __LINE__, "%s: %d (%s)", what, rc, t_errname(rc));
}

static void step(struct worker *w, char *buf)
{
    uint64_t v = t_rng_below(&w->rng, VERSIONS);
    int limit = t_rng_below(&w->rng, 4) ? CK_LIMIT_MS : (int)t_rng_below(&w->rng, 3), rc;
    switch (t_rng_below(&w->rng, 8)) {
    case 0:
    case 1:
    case 2:
        ck_fill(buf, size_of(v), v, 0);
        T_OK(varve_protect(w->h, 0, buf, size_of(v)));
        rc = varve_checkpoint_for(w->h, v, limit);
        w->put += rc == 0;
        expect("checkpoint", rc, -EEXIST, limit);
        break;
    case 3:
    case 4:
        T_OK(varve_protect(w->h, 0, buf, MAX_BYTES));
        ck_set(buf, 0, MAX_BYTES);
        rc = varve_restore_for(w->h, v, limit);
        expect("restore", rc, -ENOENT, limit);
        if (rc == 0)
            ck_check(buf, size_of(v), v, 0);
        w->got += rc == 0;
        break;
    case 5:
        expect("discard", varve_discard(w->h, v), -ENOENT, CK_LIMIT_MS);
        break;
    case 6:
        T_OK(varve_hint(w->h, v));
        if (t_rng_below(&w->rng, 8) == 0)
            T_OK(varve_hint_clear(w->h));
        break;
    default:
        expect("wait", varve_wait(w->h, v, (enum varve_level)w->level, limit), -ENOENT, limit);
        if (t_rng_below(&w->rng, 16) == 0)
            expect("flush", varve_flush(w->h, limit), 0, limit);
        break;
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    char *buf = ck_alloc(w->ctx, w->device, MAX_BYTES);
    for (int i = 0; i < w->rounds; i++)
        step(w, buf);
    ck_free(w->ctx, w->device, buf);
    return NULL;
}

static void stress(bool device, int level, int policy)
{
    struct ck_cfg cfg = {.device = device,
                         .device_cache = 24 * PAGE,
                         .host_cache = 40 * PAGE,
                         .local = t_tmpdir(),
                         .local_cache = 1024 * PAGE,
                         .level = level,
                         .policy = policy};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct worker w[HISTORIES];
    pthread_t thread[HISTORIES];
    for (int i = 0; i < HISTORIES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "h%d", i);
        w[i] = (struct worker){.ctx = ctx,
                               .h = ck_history(ctx, name),
                               .device = device && i != 1,
                               .level = level,
                               .rounds = t_long() ? 2000 : 150,
                               .rng = {t_seed() + (uint64_t)i}};
        T_OK(pthread_create(&thread[i], NULL, worker_main, &w[i]));
    }
    for (int i = 0; i < HISTORIES; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < HISTORIES; i++)
        T_CHECK(w[i].put > 0 && w[i].got > 0);
    T_OK(varve_close(ctx));
}

static void test_cached(void)
{
    stress(true, VARVE_LEVEL_CACHED, VARVE_POLICY_NEXT);
    if (!t_device_is_cuda())
        stress(false, VARVE_LEVEL_CACHED, VARVE_POLICY_NEXT);
}

static void test_local(void)
{
    stress(true, VARVE_LEVEL_LOCAL, VARVE_POLICY_NEXT);
    if (!t_device_is_cuda())
        stress(false, VARVE_LEVEL_LOCAL, VARVE_POLICY_NEXT);
}

static void test_policies(void)
{
    for (int policy = VARVE_POLICY_SCORE; policy <= VARVE_POLICY_LRU; policy++)
        stress(true, VARVE_LEVEL_CACHED, policy);
}

/* ---- one history, many threads ---- */

/*
 * Regions belong to the history, so that threads which share it cannot have buffers of their own
 * through the public calls alone: data goes in and out through the engine, everything else through
 * the public calls.
 *
 * Every put writes different bytes, with the version and a token that is drawn once for the put.
 * A get reads one generation; all readers of that generation must find the same token.
 */
enum { GENERATIONS = 1 << 16 };

struct shared {
    struct varve_history *h;
    _Atomic uint64_t next_token;
    _Atomic uint64_t token_of[GENERATIONS]; /* 0: not read yet */
};

struct sharer {
    struct shared *all;
    int rounds;
    struct t_rng rng;
    uint64_t put, got;
    char *buf;
};

/* The first word is the token, the rest follows from it. */
static void stamp(char *buf, uint64_t version, uint64_t token)
{
    uint64_t id = version << 32 | token;
    ck_fill(buf, MAX_BYTES, id, 0);
    memcpy(buf, &id, sizeof(id));
}

static uint64_t check_stamp(const char *buf, uint64_t version)
{
    uint64_t id;
    memcpy(&id, buf, sizeof(id));
    T_EQ(id >> 32, version);
    T_CHECK(ck_same_from(buf, sizeof(id), MAX_BYTES, id, 0));
    return id & UINT32_MAX;
}

static void share_put(struct sharer *s, uint64_t v)
{
    struct vv_engine_piece piece = {s->buf, MAX_BYTES, VV_MEM_HOST};
    struct vv_engine_app app = {.pieces = &piece, .npieces = 1};
    struct vv_store_region region = {.id = 0, .bytes = MAX_BYTES};
    uint64_t user;
    stamp(s->buf, v, atomic_fetch_add(&s->all->next_token, 1) + 1);
    T_OK(vvi_layout_new(&region, 1, &user));
    int rc = vv_engine_put(s->all->h->ctx->engine, s->all->h->hist, v, MAX_BYTES, user, &app,
                           vv_deadline_ns(CK_LIMIT_MS));
    expect("put", rc, -EEXIST, CK_LIMIT_MS);
    s->put += rc == 0;
}

static void share_get(struct sharer *s, uint64_t v)
{
    struct vv_engine *e = s->all->h->ctx->engine;
    struct vv_engine_piece piece = {s->buf, MAX_BYTES, VV_MEM_HOST};
    struct vv_engine_app app = {.pieces = &piece, .npieces = 1};
    struct vv_object_info info;
    uint32_t distance;
    memset(s->buf, 0, MAX_BYTES);
    int rc = vv_engine_lookup(e, s->all->h->hist, v, &info);
    if (rc == 0) {
        rc = vv_engine_get(e, s->all->h->hist, v, info.generation, &app,
                           vv_deadline_ns(CK_LIMIT_MS), &distance);
        vvi_layout_release(NULL, info.user);
    }
    if (rc == -ESTALE) /* discarded and written again since */
        return;
    expect("get", rc, -ENOENT, CK_LIMIT_MS);
    if (rc)
        return;
    uint64_t token = check_stamp(s->buf, v), none = 0;
    T_CHECK(info.generation < GENERATIONS);
    if (!atomic_compare_exchange_strong(&s->all->token_of[info.generation], &none, token))
        T_EQ(none, token);
    s->got++;
}

static void *sharer_main(void *arg)
{
    struct sharer *s = arg;
    struct varve_history *h = s->all->h;
    for (int i = 0; i < s->rounds; i++) {
        uint64_t v = t_rng_below(&s->rng, VERSIONS);
        switch (t_rng_below(&s->rng, 8)) {
        case 0:
        case 1:
        case 2:
            share_put(s, v);
            break;
        case 3:
        case 4:
        case 5:
            share_get(s, v);
            break;
        case 6:
            expect("discard", varve_discard(h, v), -ENOENT, CK_LIMIT_MS);
            break;
        default:
            T_OK(varve_hint(h, v));
            expect("wait", varve_wait(h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -ENOENT, CK_LIMIT_MS);
            break;
        }
    }
    return NULL;
}

static void check_all(struct varve_history *h)
{
    char *buf = malloc(MAX_BYTES);
    uint64_t found[VERSIONS];
    size_t n;
    T_OK(varve_protect(h, 0, buf, MAX_BYTES));
    T_OK(varve_versions(h, found, VERSIONS, &n));
    T_CHECK(n <= VERSIONS);
    for (size_t i = 0; i < n; i++) {
        ck_set(buf, 0, MAX_BYTES);
        T_OK(varve_restore_for(h, found[i], CK_LIMIT_MS));
        check_stamp(buf, found[i]);
    }
    T_OK(varve_unprotect(h, 0));
    free(buf);
}

static void test_shared_history(void)
{
    struct ck_cfg cfg = {.host_cache = 40 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct shared *all = calloc(1, sizeof(*all));
    struct sharer s[THREADS];
    pthread_t thread[THREADS];
    uint64_t put = 0, got = 0;
    T_CHECK(all);
    all->h = ck_history(ctx, "shared");
    for (int i = 0; i < THREADS; i++) {
        s[i] = (struct sharer){.all = all,
                               .rounds = t_long() ? 2000 : 100,
                               .rng = {t_seed() * 3 + (uint64_t)i},
                               .buf = malloc(MAX_BYTES)};
        T_EQ(pthread_create(&thread[i], NULL, sharer_main, &s[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        put += s[i].put;
        got += s[i].got;
        free(s[i].buf);
    }
    T_CHECK(put > VERSIONS && got > 0);
    check_all(all->h);
    T_OK(varve_close(ctx));
    ctx = ck_open(&cfg);
    check_all(ck_history(ctx, "shared"));
    T_OK(varve_close(ctx));
    free(all);
}

int main(void)
{
    ck_any_device();
    T_RUN(test_cached);
    T_RUN(test_local);
    if (!t_device_is_cuda() || t_long()) {
        T_RUN(test_policies);
        T_RUN(test_shared_history);
    }
    return t_done();
}
