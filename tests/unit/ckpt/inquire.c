/* SPDX-License-Identifier: Apache-2.0 */
/* Queries about versions: their regions, their readiness, the run that wrote them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096 };

static struct varve_ctx *open_run(const char *folder, uint64_t run_id)
{
    struct ck_cfg cfg = {.host_cache = 64 * PAGE,
                         .local = folder,
                         .level = folder ? VARVE_LEVEL_LOCAL : VARVE_LEVEL_CACHED};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    ck_opts(&cfg, &opts);
    opts.run_id = run_id;
    T_OK(varve_open(&opts, &ctx));
    return ctx;
}

static void test_regions(void)
{
    struct varve_ctx *ctx = open_run(NULL, 0);
    struct varve_history *h = ck_history(ctx, "h");
    char buf[64];
    int ids[8] = {0};
    size_t n;
    static const int numbers[] = {7, 0, INT32_MAX, 12};
    for (unsigned i = 0; i < 4; i++)
        T_OK(varve_protect(h, numbers[i], buf + i * 8, 8));
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_regions(h, 1, NULL, 0, &n));
    T_EQ(n, 4);
    T_OK(varve_regions(h, 1, ids, 2, &n));
    T_EQ(n, 4);
    T_CHECK(ids[0] == 0 && ids[1] == 7 && ids[2] == 0);
    T_OK(varve_regions(h, 1, ids, 8, &n));
    T_CHECK(ids[2] == 12 && ids[3] == INT32_MAX);
    T_ERR(varve_regions(h, 2, ids, 8, &n), -ENOENT);
    T_ERR(varve_regions(h, 1, ids, 8, NULL), -EINVAL);
    T_ERR(varve_regions(h, 1, NULL, 8, &n), -EINVAL);
    T_OK(varve_close(ctx));
}

static void test_ready(void)
{
    const char *folder = t_tmpdir();
    struct varve_ctx *ctx = open_run(folder, 0);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = calloc(4, PAGE);
    int ready = -1;
    T_OK(varve_protect(h, 0, buf, 4 * PAGE));
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_ready(h, 1, &ready));
    T_EQ(ready, 1);
    T_OK(varve_close(ctx));
    /* It is on disk only, until it was restored. */
    ctx = open_run(folder, 0);
    h = ck_history(ctx, "h");
    T_OK(varve_ready(h, 1, &ready));
    T_EQ(ready, 0);
    T_OK(varve_hint(h, 1));
    T_OK(varve_prefetch_start(h));
    for (uint64_t end = vv_now_ns() + CK_LIMIT_MS * VV_NS_PER_MS; !ready && vv_now_ns() < end;) {
        vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
        T_OK(varve_ready(h, 1, &ready));
    }
    T_EQ(ready, 1);
    T_ERR(varve_ready(h, 2, &ready), -ENOENT);
    T_ERR(varve_ready(h, 1, NULL), -EINVAL);
    T_OK(varve_close(ctx));
    free(buf);
}

static void run_is(struct varve_history *h, uint64_t version, uint64_t want)
{
    uint64_t run = 0;
    T_OK(varve_version_run(h, version, &run));
    T_EQ(run, want);
}

/* Three runs of a job; each overwrites some versions of earlier runs. */
static void test_runs(void)
{
    const char *folder = t_tmpdir();
    char buf[16] = "";
    for (uint64_t life = 1; life <= 3; life++) {
        struct varve_ctx *ctx = open_run(folder, 100 + life);
        struct varve_history *h = ck_history(ctx, "h"), *other = ck_history(ctx, "other");
        T_OK(varve_protect(h, 0, buf, sizeof(buf)));
        T_OK(varve_protect(other, 0, buf, sizeof(buf)));
        if (life > 1) {
            for (uint64_t v = 0; v < 4; v++)
                run_is(h, v, v < 2 || life == 2 ? 101 : 102);
            run_is(other, 5, 101);
            T_OK(varve_discard(h, 2));
            T_OK(varve_discard(h, 3));
        }
        for (uint64_t v = life > 1 ? 2 : 0; v < 4; v++)
            T_OK(varve_checkpoint(h, v));
        if (life == 1)
            T_OK(varve_checkpoint(other, 5));
        for (uint64_t v = 0; v < 4; v++)
            run_is(h, v, v < 2 ? 101 : 100 + life);
        run_is(other, 5, 101);
        uint64_t run;
        T_ERR(varve_version_run(h, 9, &run), -ENOENT);
        T_ERR(varve_version_run(h, 1, NULL), -EINVAL);
        T_OK(varve_close(ctx));
    }
}

/* Without a run_id in the options, a run draws its own. */
static void test_drawn(void)
{
    char buf[16] = "";
    uint64_t run[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct varve_ctx *ctx = open_run(t_tmpdir(), 0);
        struct varve_history *a = ck_history(ctx, "a"), *b = ck_history(ctx, "b");
        T_OK(varve_protect(a, 0, buf, sizeof(buf)));
        T_OK(varve_protect(b, 0, buf, sizeof(buf)));
        T_OK(varve_checkpoint(a, 1));
        T_OK(varve_checkpoint(b, 1));
        T_OK(varve_version_run(a, 1, &run[i]));
        run_is(b, 1, run[i]);
        /* No other process has versions of it: an overwritten version has the same id. */
        T_OK(varve_discard(a, 1));
        T_OK(varve_checkpoint(a, 1));
        run_is(a, 1, run[i]);
        T_OK(varve_close(ctx));
    }
    T_CHECK(run[0] != 0 && run[1] != 0 && run[0] != run[1]);
}

/* A version that one run writes twice is two states. If a rank has written it only once, its number alone
 * would say that the files of both states belong together. The upper half of the id stays. */
static void test_editions(void)
{
    uint64_t run[4] = {0}, base = UINT64_C(0x123456789abcdef0), other = 0;
    const char *folder = t_tmpdir();
    struct varve_ctx *ctx = open_run(folder, base);
    struct varve_history_opts opts;
    struct varve_history *h;
    char buf[16] = "";
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.overwrite = 1;
    T_OK(varve_history_open_with(ctx, "h", &opts, &h));
    T_OK(varve_protect(h, 0, buf, sizeof(buf)));
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            T_OK(varve_discard(h, 1));
        T_OK(varve_checkpoint(h, 1));
        T_OK(varve_version_run(h, 1, &run[i]));
        T_EQ(run[i] >> 32, base >> 32);
        for (int k = 0; k < i; k++)
            T_CHECK(run[k] != run[i]);
    }
    T_EQ(run[0], base);
    /* A failed checkpoint does not count. */
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_unprotect(h, 0));
    T_ERR(varve_checkpoint(h, 1), -ENODATA);
    run_is(h, 1, run[3]);
    T_OK(varve_close(ctx));
    /* The files have the same ids; another run begins with its own. */
    ctx = open_run(folder, base + 1);
    T_OK(varve_history_open_with(ctx, "h", &opts, &h));
    T_OK(varve_protect(h, 0, buf, sizeof(buf)));
    run_is(h, 1, run[3]);
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_version_run(h, 1, &other));
    T_EQ(other, base + 1);
    T_OK(varve_close(ctx));
}

static struct varve_history *overwriting(struct varve_ctx *ctx)
{
    struct varve_history_opts opts;
    struct varve_history *h;
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.overwrite = 1;
    T_OK(varve_history_open_with(ctx, "h", &opts, &h));
    return h;
}

/* Ranks that write a version equally often have the same id for it, also after failures in between, and
 * another one for reverted versions. */
static void test_editions_of_ranks(void)
{
    uint64_t base = UINT64_C(0x123456789abcdef0), run[4], first = 0;
    char buf[16] = "";
    for (int rank = 0; rank < 4; rank++) {
        struct varve_ctx *ctx = open_run(t_tmpdir(), base);
        struct varve_history *h = overwriting(ctx);
        T_OK(varve_protect(h, 0, buf, sizeof(buf)));
        T_OK(varve_checkpoint(h, 1));
        if (rank == 1) {
            T_OK(varve_unprotect(h, 0));
            T_ERR(varve_checkpoint(h, 1), -ENODATA);
            T_OK(varve_protect(h, 0, buf, sizeof(buf)));
        }
        if (rank == 2)
            T_OK(varve_discard(h, 1));
        if (rank == 3) {
            /* Reverted at once, or discarded if it has its file by now. */
            int rc = varve_revert(h, 1);
            T_CHECK(rc == 0 || rc == -EALREADY);
            if (rc)
                T_OK(varve_discard(h, 1));
        }
        T_OK(varve_checkpoint(h, 1));
        T_OK(varve_version_run(h, 1, &run[rank]));
        T_CHECK(run[rank] != base);
        if (rank == 0)
            first = run[0];
        if (rank == 1 || rank == 2)
            T_EQ(run[rank], first);
        T_OK(varve_close(ctx));
    }
}

/* The old version keeps its id, also after many overwrites that were reverted; each
 * of those had another one. */
static void test_edition_comes_back(void)
{
    enum { ROUNDS = 5 };
    uint64_t run[ROUNDS], last = 0, base = UINT64_C(0x123456789abcdef0);
    const char *folder = t_tmpdir();
    char buf[16] = "";
    struct varve_ctx *ctx = open_run(folder, base);
    struct varve_history_opts opts;
    struct varve_history *h;
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.overwrite = opts.confirm = 1;
    T_OK(varve_history_open_with(ctx, "h", &opts, &h));
    T_OK(varve_protect(h, 0, buf, sizeof(buf)));
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_confirm(h, 1));
    for (int i = 0; i < ROUNDS; i++) {
        T_OK(varve_checkpoint(h, 1));
        if (i % 2)
            T_OK(varve_flush(h, CK_LIMIT_MS));
        T_OK(varve_version_run(h, 1, &run[i]));
        T_CHECK(run[i] != base);
        for (int k = 0; k < i; k++)
            T_CHECK(run[k] != run[i]);
        T_OK(varve_revert(h, 1));
        run_is(h, 1, base);
    }
    T_OK(varve_discard(h, 1));
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_confirm(h, 1));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_version_run(h, 1, &last));
    T_CHECK(last != base);
    for (int k = 0; k < ROUNDS; k++)
        T_CHECK(run[k] != last);
    T_OK(varve_close(ctx));
    ctx = open_run(folder, base + 1);
    run_is(ck_history(ctx, "h"), 1, last); /* and so says the file */
    T_OK(varve_close(ctx));
}

/* A version that replaces one in the shared folder is in memory until it has a file. */
static void test_level(void)
{
    const char *folder = t_tmpdir();
    char local[600], remote[600], *buf = calloc(4, PAGE);
    enum varve_level level = VARVE_LEVEL_CACHED;
    snprintf(local, sizeof(local), "%s/local", folder);
    snprintf(remote, sizeof(remote), "%s/remote", folder);
    for (int life = 0; life < 2; life++) {
        struct ck_cfg cfg = {.host_cache = 64 * PAGE,
                             .local = local,
                             .remote = remote,
                             .level = VARVE_LEVEL_REMOTE,
                             .rate = life ? "h2f=1K" : NULL,
                             .close_timeout_ms = life ? -2 : 0};
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = overwriting(ctx);
        T_OK(varve_protect(h, 0, buf, 4 * PAGE));
        if (life) {
            T_OK(varve_version_level(h, 1, &level));
            T_EQ(level, VARVE_LEVEL_REMOTE);
        }
        T_OK(varve_checkpoint(h, 1));
        if (life) {
            T_OK(varve_version_level(h, 1, &level));
            T_EQ(level, VARVE_LEVEL_CACHED);
            (void)varve_close(ctx);
        } else {
            T_OK(varve_flush(h, CK_LIMIT_MS));
            T_OK(varve_close(ctx));
        }
    }
    free(buf);
}

int main(void)
{
    T_RUN(test_regions);
    T_RUN(test_ready);
    T_RUN(test_runs);
    T_RUN(test_drawn);
    T_RUN(test_editions);
    T_RUN(test_edition_comes_back);
    T_RUN(test_editions_of_ranks);
    T_RUN(test_level);
    return t_done();
}
