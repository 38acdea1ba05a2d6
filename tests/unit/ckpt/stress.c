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

#include "t.h"
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

static void expect(const char *what, int rc)
{
    if (rc != 0 && rc != -EEXIST && rc != -ENOENT && rc != -ETIMEDOUT)
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
        expect("checkpoint", rc);
        break;
    case 3:
    case 4:
        T_OK(varve_protect(w->h, 0, buf, MAX_BYTES));
        memset(buf, 0, MAX_BYTES);
        rc = varve_restore_for(w->h, v, limit);
        expect("restore", rc);
        if (rc == 0)
            ck_check(buf, size_of(v), v, 0);
        w->got += rc == 0;
        break;
    case 5:
        expect("discard", varve_discard(w->h, v));
        break;
    case 6:
        expect("hint", varve_hint(w->h, v));
        if (t_rng_below(&w->rng, 8) == 0)
            expect("clear", varve_hint_clear(w->h));
        break;
    default:
        expect("wait", varve_wait(w->h, v, (enum varve_level)w->level, limit));
        if (t_rng_below(&w->rng, 16) == 0)
            expect("flush", varve_flush(w->h, limit));
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
        T_CHECK(w[i].put > 0);
    T_OK(varve_close(ctx));
}

static void test_cached(void)
{
    stress(true, VARVE_LEVEL_CACHED, VARVE_POLICY_NEXT);
    stress(false, VARVE_LEVEL_CACHED, VARVE_POLICY_NEXT);
}

static void test_local(void)
{
    stress(true, VARVE_LEVEL_LOCAL, VARVE_POLICY_NEXT);
    stress(false, VARVE_LEVEL_LOCAL, VARVE_POLICY_NEXT);
}

static void test_policies(void)
{
    for (int policy = VARVE_POLICY_SCORE; policy <= VARVE_POLICY_LRU; policy++)
        stress(true, VARVE_LEVEL_CACHED, policy);
}

/* ---- one history, many threads ---- */

struct sharer {
    struct varve_history *h;
    int rounds;
    struct t_rng rng;
    uint64_t put;
};

static void *sharer_main(void *arg)
{
    struct sharer *s = arg;
    for (int i = 0; i < s->rounds; i++) {
        uint64_t v = t_rng_below(&s->rng, VERSIONS);
        int rc;
        switch (t_rng_below(&s->rng, 4)) {
        case 0:
        case 1:
            rc = varve_checkpoint_for(s->h, v, CK_LIMIT_MS);
            s->put += rc == 0;
            T_CHECK(rc == 0 || rc == -EEXIST);
            break;
        case 2:
            rc = varve_discard(s->h, v);
            T_CHECK(rc == 0 || rc == -ENOENT);
            break;
        default:
            rc = varve_wait(s->h, v, VARVE_LEVEL_CACHED, CK_LIMIT_MS);
            T_CHECK(rc == 0 || rc == -ENOENT);
            break;
        }
    }
    return NULL;
}

static void test_shared_history(void)
{
    struct ck_cfg cfg = {.host_cache = 40 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "shared");
    char *buf = malloc(MAX_BYTES);
    ck_fill(buf, MAX_BYTES, 99, 0);
    T_OK(varve_protect(h, 0, buf, MAX_BYTES));
    struct sharer s[THREADS];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        s[i] = (struct sharer){
            .h = h, .rounds = t_long() ? 2000 : 60, .rng = {t_seed() * 3 + (uint64_t)i}};
        T_OK(pthread_create(&thread[i], NULL, sharer_main, &s[i]));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    uint64_t found[VERSIONS];
    size_t n;
    T_OK(varve_versions(h, found, VERSIONS, &n));
    for (size_t i = 0; i < n; i++) {
        memset(buf, 0, MAX_BYTES);
        T_OK(varve_restore_for(h, found[i], CK_LIMIT_MS));
        ck_check(buf, MAX_BYTES, 99, 0);
    }
    free(buf);
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(test_cached);
    T_RUN(test_local);
    T_RUN(test_policies);
    T_RUN(test_shared_history);
    return t_done();
}
