/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power of one node is cut at a numbered system call. Its unsynced writes are dropped, torn or kept, at random and
 * in any order, in its local folder and in the shared one. Levels local, remote and complete, on one rank and on four.
 *
 * Then the job is started again: every version that was reported at the level exists and is correct, everything that
 * exists is correct and the same on all ranks, and the job continues.
 *
 * Here ranks are threads of one process, each with a context, a local folder and an OS table of its own.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "base/util.h"
#include "ckpt/ckpt_hooks.h"
#include "power_os.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 3 * PAGE + 50, MAX_RANKS = 4, MAX_VERSIONS = 12, PER_LIFE = 2 };
enum { LOST_WAIT_MS = 60 };

static uint64_t total;

struct job;

struct rank {
    struct job *job;
    int rank;
    const char *local;
    struct power_os os;
    struct varve_ctx *ctx;
    struct varve_history *h;
    pthread_t thread;
    uint64_t found[MAX_VERSIONS]; /* the life that has written each version; 0: missing */
    uint64_t latest;
    bool reported[MAX_VERSIONS]; /* at the level, in this life */
};

struct job {
    int level, ranks, local_io;
    bool local, remote;
    const char *shared;
    uint64_t life;
    int victim; /* -1: none */
    struct rank rank[MAX_RANKS];
    /* By version and rank: the life that was reported at the level; at level complete to any rank. */
    uint64_t complete[MAX_VERSIONS][MAX_RANKS];
};

static void fill(char *buf, uint64_t version, int rank, uint64_t life)
{
    ck_fill(buf, BYTES, version * 100 + (uint64_t)rank, (int)life);
    memcpy(buf, &life, sizeof(life));
}

/* True if the call failed because the power was cut. Any other failure fails the test. */
static bool off(struct rank *r, int rc, const char *what)
{
    if (rc == 0)
        return false;
    pthread_mutex_lock(&r->os.lock);
    bool dead = r->os.dead;
    pthread_mutex_unlock(&r->os.lock);
    if (!dead)
        t_fail(__FILE__, __LINE__, "rank %d, life %llu: %s: %s", r->rank,
               (unsigned long long)r->job->life, what, t_errname(rc));
    return true;
}

static bool open_rank(struct rank *r)
{
    struct job *j = r->job;
    struct varve_opts opts;
    char run[32];
    snprintf(run, sizeof(run), "life %llu", (unsigned long long)j->life);
    struct ck_cfg cfg = {.host_cache = 16 * PAGE,
                         .local = j->local ? r->local : NULL,
                         .remote = j->remote ? j->shared : NULL,
                         .level = j->level,
                         .rank = r->rank,
                         .ranks = j->ranks,
                         .run = run};
    struct vv_ckpt_hooks hooks = {.os = &r->os.os};
    vv_ckpt_set_hooks(&hooks);
    ck_opts(&cfg, &opts);
    opts.local_io = j->local_io;
    r->ctx = NULL;
    bool dead = off(r, varve_open(&opts, &r->ctx), "open");
    vv_ckpt_set_hooks(NULL);
    return !dead && !off(r, varve_history_open(r->ctx, "p", &r->h), "history");
}

static bool look(struct rank *r)
{
    char buf[BYTES], want[BYTES];
    uint64_t versions[MAX_VERSIONS], life;
    size_t n;
    memset(r->found, 0, sizeof(r->found));
    T_OK(varve_versions(r->h, versions, MAX_VERSIONS, &n));
    T_CHECK(n <= MAX_VERSIONS);
    T_OK(varve_protect(r->h, 0, buf, BYTES));
    for (size_t i = 0; i < n; i++) {
        T_CHECK(versions[i] < MAX_VERSIONS);
        if (off(r, varve_restore_for(r->h, versions[i], CK_LIMIT_MS), "restore"))
            return false;
        memcpy(&life, buf, sizeof(life));
        fill(want, versions[i], r->rank, life);
        T_CHECK(memcmp(buf, want, BYTES) == 0);
        r->found[versions[i]] = life;
    }
    r->latest = 0;
    int rc = varve_latest(r->h, &r->latest);
    T_CHECK(rc == 0 || rc == -ENOENT);
    T_OK(varve_unprotect(r->h, 0));
    return true;
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct job *j = r->job;
    char buf[BYTES];
    if (!r->h || !look(r))
        return NULL;
    T_OK(varve_protect(r->h, 0, buf, BYTES));
    for (uint64_t v = r->latest + 1; v <= r->latest + PER_LIFE; v++) {
        fill(buf, v, r->rank, j->life);
        if (off(r, varve_checkpoint_for(r->h, v, CK_LIMIT_MS), "checkpoint"))
            break;
        int rc = varve_wait(r->h, v, (enum varve_level)j->level,
                            j->victim < 0 ? CK_LIMIT_MS : LOST_WAIT_MS);
        if (rc == -ETIMEDOUT && j->victim >= 0)
            break; /* the wait for dead ranks */
        if (off(r, rc, "wait"))
            break;
        r->reported[v] = true;
        /* Discards are not reported here: they are of the first versions. */
        if (v > 6)
            (void)varve_discard(r->h, v - 6);
    }
    return NULL;
}

/* Runs one life of the job; returns the largest number of calls of a rank. */
static long live(struct job *j, int victim, long at, struct t_rng *rng)
{
    long calls = 0;
    j->life++;
    j->victim = victim;
    for (int i = 0; i < j->ranks; i++) {
        struct rank *r = &j->rank[i];
        memset(r->reported, 0, sizeof(r->reported));
        power_os_init(&r->os, i == victim ? at : 0);
        r->os.peers = &j->rank[0].os;
        r->os.next_peer = i + 1 < j->ranks ? &j->rank[i + 1].os : NULL;
    }
    for (int i = 0; i < j->ranks; i++) {
        struct rank *r = &j->rank[i];
        r->h = NULL;
        if (!open_rank(r))
            r->h = NULL;
    }
    for (int i = 0; i < j->ranks; i++)
        T_OK(pthread_create(&j->rank[i].thread, NULL, rank_main, &j->rank[i]));
    for (int i = 0; i < j->ranks; i++)
        T_OK(pthread_join(j->rank[i].thread, NULL));
    for (int i = 0; i < j->ranks; i++) {
        struct rank *r = &j->rank[i];
        off(r, varve_close(r->ctx), "close");
        calls = VV_MAX(calls, r->os.count);
    }
    for (int i = 0; i < j->ranks; i++) {
        struct rank *r = &j->rank[i];
        power_os_lose(&r->os, rng);
        for (int v = 0; v < MAX_VERSIONS; v++)
            for (int k = 0; k < j->ranks; k++)
                if (r->reported[v] && (k == i || j->level == VARVE_LEVEL_COMPLETE))
                    j->complete[v][k] = j->life;
    }
    return calls;
}

static void forget_discarded(struct job *j)
{
    for (int k = 0; k < j->ranks; k++) {
        uint64_t newest = 0;
        for (uint64_t v = 0; v < MAX_VERSIONS; v++)
            if (j->complete[v][k])
                newest = v;
        for (uint64_t v = 0; v + 6 <= newest; v++)
            j->complete[v][k] = 0;
    }
}

static void check(const struct job *j, uint64_t before[MAX_VERSIONS][MAX_RANKS])
{
    for (uint64_t v = 0; v < MAX_VERSIONS; v++)
        for (int i = 0; i < j->ranks; i++) {
            const struct rank *r = &j->rank[i];
            if (before[v][i] && r->found[v] != before[v][i])
                t_fail(__FILE__, __LINE__,
                       "rank %d: version %llu was at the level in life %llu and is of life %llu", i,
                       (unsigned long long)v, (unsigned long long)before[v][i],
                       (unsigned long long)r->found[v]);
            if (j->level == VARVE_LEVEL_COMPLETE)
                T_EQ(r->found[v], j->rank[0].found[v]);
        }
}

static void one(const struct job *like, int victim, long at, uint64_t seed, long *ret_calls)
{
    static struct job j;
    struct t_rng rng = {seed};
    uint64_t before[MAX_VERSIONS][MAX_RANKS];
    j = *like;
    j.shared = t_tmpdir();
    for (int i = 0; i < j.ranks; i++)
        j.rank[i] = (struct rank){.job = &j, .rank = i, .local = t_tmpdir()};
    live(&j, -1, 0, &rng);
    long calls = live(&j, victim, at, &rng);
    forget_discarded(&j);
    memcpy(before, j.complete, sizeof(before));
    /* Half of the time on other nodes, because local files would repair the shared folder. */
    for (int i = 0; j.remote && seed % 2 && i < j.ranks; i++)
        j.rank[i].local = t_tmpdir();
    live(&j, -1, 0, &rng);
    check(&j, before);
    if (ret_calls)
        *ret_calls = calls;
}

static void cases(const char *what, const struct job *like, uint64_t gate, uint64_t many)
{
    struct t_rng rng = {t_seed() ^ (uint64_t)like->level << 8 ^ (uint64_t)like->ranks};
    long calls = 0;
    one(like, -1, 0, 1, &calls);
    T_CHECK(calls > 20);
    uint64_t n = t_cases(gate, many);
    for (uint64_t i = 0; i < n; i++) {
        int victim = (int)t_rng_below(&rng, (uint64_t)like->ranks);
        /* In the long run each call in turn, repeatedly. */
        long at =
            1 + (t_long() ? (long)(i % (uint64_t)calls) : (long)t_rng_below(&rng, (uint64_t)calls));
        one(like, victim, at, t_rng_u64(&rng), NULL);
    }
    total += n;
    t_note("%s: the power cut %llu times, at %ld calls", what, (unsigned long long)n, calls);
}

static void test_local(void)
{
    struct job like = {.level = VARVE_LEVEL_LOCAL, .ranks = 1, .local = true};
    cases("local", &like, 16, 600);
    like.local_io = VARVE_LOCAL_IO_BUFFERED;
    cases("local through the page cache", &like, 16, 600);
}

static void test_remote(void)
{
    struct job like = {.level = VARVE_LEVEL_REMOTE, .ranks = 1, .local = true, .remote = true};
    cases("remote", &like, 16, 600);
}

static void test_complete(void)
{
    struct job like = {.level = VARVE_LEVEL_COMPLETE, .ranks = 1, .local = true, .remote = true};
    cases("complete", &like, 16, 600);
}

static void test_direct(void)
{
    struct job like = {.level = VARVE_LEVEL_COMPLETE, .ranks = 1, .remote = true};
    cases("complete, no local folder", &like, 12, 600);
}

static void test_four(void)
{
    struct job like = {.level = VARVE_LEVEL_COMPLETE, .ranks = 4, .local = true, .remote = true};
    cases("complete on 4 ranks", &like, 8, 600);
    like = (struct job){.level = VARVE_LEVEL_COMPLETE, .ranks = 4, .remote = true};
    cases("complete on 4 ranks, no local folders", &like, 4, 600);
    like = (struct job){.level = VARVE_LEVEL_REMOTE, .ranks = 4, .local = true, .remote = true};
    cases("remote on 4 ranks", &like, 4, 600);
    like = (struct job){.level = VARVE_LEVEL_LOCAL, .ranks = 4, .local = true};
    cases("local on 4 ranks", &like, 4, 600);
}

int main(void)
{
    T_RUN(test_local);
    T_RUN(test_remote);
    T_RUN(test_complete);
    T_RUN(test_direct);
    T_RUN(test_four);
    t_note("power cuts: %llu cases, seed %llu", (unsigned long long)total,
           (unsigned long long)t_seed());
    return t_done();
}
