/* SPDX-License-Identifier: Apache-2.0 */
/* Level local: every committed version is found again, with its regions; discarded ones are not. */
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 5 * PAGE + 3 };

static struct ck_cfg config(const char *local)
{
    return (struct ck_cfg){.host_cache = 16 * PAGE, .local = local, .level = VARVE_LEVEL_LOCAL};
}

static void put(struct varve_history *h, char *buf, uint64_t v)
{
    ck_fill(buf, BYTES, v, 2);
    T_OK(varve_protect(h, 2, buf, BYTES));
    T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
}

static void get(struct varve_history *h, char *buf, uint64_t v)
{
    memset(buf, 0, BYTES);
    T_OK(varve_protect(h, 2, buf, BYTES));
    T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
    ck_check(buf, BYTES, v, 2);
}

static void test_find_all(void)
{
    static const uint64_t versions[] = {30, 10, 20, UINT64_MAX - 1, 0, 7};
    enum { N = 6 };
    struct ck_cfg cfg = config(t_tmpdir());
    char *buf = malloc(BYTES);
    for (int life = 0; life < 3; life++) {
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "all");
        uint64_t found[N + 1];
        size_t n;
        T_OK(varve_versions(h, found, N + 1, &n));
        T_EQ(n, life * 2);
        for (size_t i = 0; i < n; i++) {
            T_EQ(found[i], versions[i]); /* in the order of writing */
            size_t bytes;
            T_OK(varve_region_size(h, found[i], 2, &bytes));
            T_EQ(bytes, BYTES);
            get(h, buf, found[i]);
        }
        for (int i = 0; i < 2; i++)
            put(h, buf, versions[life * 2 + i]);
        T_OK(varve_wait(h, versions[life * 2 + 1], VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
        T_OK(varve_flush(h, CK_LIMIT_MS));
        uint64_t latest;
        T_OK(varve_latest(h, &latest));
        T_EQ(latest, versions[life * 2 + 1]);
        T_OK(varve_close(ctx));
    }
    free(buf);
}

/* Closing finishes what can be finished. */
static void test_close_flushes(void)
{
    struct ck_cfg cfg = config(t_tmpdir());
    char *buf = malloc(BYTES);
    for (int how = 0; how < 2; how++) {
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "close");
        for (uint64_t v = 0; v < 8; v++)
            put(h, buf, (uint64_t)how * 100 + v);
        if (how == 0)
            T_OK(varve_history_close(h));
        T_OK(varve_close(ctx));
    }
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "close");
    for (uint64_t v = 0; v < 8; v++) {
        get(h, buf, v);
        get(h, buf, 100 + v);
    }
    T_OK(varve_close(ctx));
    free(buf);
}

/* ... within its time limit: versions that have not reached the disk are dropped and reported. */
static void test_close_in_time(void)
{
    struct ck_cfg cfg = config(t_tmpdir());
    cfg.rate = "h2f=64K,f2h=10G";
    cfg.close_timeout_ms = -2;
    cfg.host_cache = 64 * PAGE;
    char *buf = malloc(BYTES);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "late");
    for (uint64_t v = 0; v < 4; v++)
        put(h, buf, v);
    T_ERR(varve_close(ctx), -ETIMEDOUT);
    cfg.rate = NULL;
    cfg.close_timeout_ms = 0;
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "late");
    uint64_t found[4];
    size_t n;
    T_OK(varve_versions(h, found, 4, &n));
    T_CHECK(n < 4);
    for (size_t i = 0; i < n; i++)
        get(h, buf, found[i]);
    T_OK(varve_close(ctx));
    free(buf);
}

/* Each run may have another page size; files store theirs. */
static void test_other_pages(void)
{
    static const uint32_t page[] = {16384, 4096, 65536};
    enum { LIVES = 3 };
    struct ck_cfg cfg = config(t_tmpdir());
    char *buf = malloc(BYTES);
    cfg.host_cache = 4 * 65536;
    for (int life = 0; life < LIVES; life++) {
        cfg.page_bytes = page[life];
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "pages");
        for (int v = 0; v < life; v++)
            get(h, buf, (uint64_t)v);
        put(h, buf, (uint64_t)life);
        T_OK(varve_close(ctx));
    }
    free(buf);
}

/* A discarded version does not come back, and may be written again. */
static void test_discard(void)
{
    struct ck_cfg cfg = config(t_tmpdir());
    char *buf = malloc(BYTES);
    for (int life = 0; life < 4; life++) {
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "discard");
        size_t n;
        T_OK(varve_versions(h, NULL, 0, &n));
        T_EQ(n, life == 0 ? 0 : 3);
        for (uint64_t v = 0; v < 4; v++) {
            if (life > 0 && v != 3) {
                get(h, buf, v);
                T_OK(varve_discard(h, v));
                T_ERR(varve_restore_for(h, v, CK_LIMIT_MS), -ENOENT);
            }
            put(h, buf, v);
            if (v % 2)
                T_OK(varve_wait(h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
        }
        T_OK(varve_discard(h, 3));
        T_OK(varve_close(ctx));
    }
    free(buf);
}

static void test_keep(void)
{
    struct ck_cfg cfg = config(t_tmpdir());
    char *buf = malloc(BYTES);
    struct varve_history_opts opts;
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.keep = 3;
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = NULL;
    T_OK(varve_history_open_with(ctx, "keep", &opts, &h));
    for (uint64_t v = 0; v < 10; v++)
        put(h, buf, v);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    uint64_t found[10];
    size_t n;
    T_OK(varve_versions(h, found, 10, &n));
    T_EQ(n, 3);
    T_OK(varve_close(ctx));
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "keep");
    T_OK(varve_versions(h, found, 10, &n));
    T_EQ(n, 3);
    for (uint64_t v = 7; v < 10; v++)
        get(h, buf, v);
    T_OK(varve_close(ctx));
    free(buf);
}

static void test_consume_once(void)
{
    for (int level = VARVE_LEVEL_CACHED; level <= VARVE_LEVEL_LOCAL; level++) {
        struct ck_cfg cfg = config(t_tmpdir());
        cfg.level = level;
        char *buf = malloc(BYTES);
        struct varve_history_opts opts;
        T_OK(varve_history_opts_init(&opts, sizeof(opts)));
        opts.consume = VARVE_CONSUME_ONCE;
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = NULL;
        T_OK(varve_history_open_with(ctx, "once", &opts, &h));
        for (uint64_t v = 0; v < 12; v++)
            put(h, buf, v);
        for (uint64_t v = 12; v-- > 3;) {
            get(h, buf, v);
            T_ERR(varve_restore_for(h, v, CK_LIMIT_MS), -ENOENT);
        }
        size_t n;
        T_OK(varve_versions(h, NULL, 0, &n));
        T_EQ(n, 3);
        T_OK(varve_close(ctx));
        if (level == VARVE_LEVEL_LOCAL) {
            ctx = ck_open(&cfg);
            h = ck_history(ctx, "once");
            T_OK(varve_versions(h, NULL, 0, &n));
            T_EQ(n, 3);
            T_OK(varve_close(ctx));
        }
        free(buf);
    }
}

/* Ranks and histories share a folder without seeing one another. */
static void test_shared_folder(void)
{
    struct ck_cfg cfg = config(t_tmpdir());
    struct varve_opts o;
    struct varve_ctx *ctx[3];
    struct varve_history *h[3][2];
    char *buf = malloc(BYTES);
    ck_opts(&cfg, &o);
    for (int r = 0; r < 3; r++) {
        o.rank = r;
        T_OK(varve_open(&o, &ctx[r]));
        h[r][0] = ck_history(ctx[r], "one");
        h[r][1] = ck_history(ctx[r], "two");
    }
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < 2; i++) {
            ck_fill(buf, BYTES, (uint64_t)(r * 2 + i), 0);
            T_OK(varve_protect(h[r][i], 0, buf, BYTES));
            T_OK(varve_checkpoint_for(h[r][i], 1, CK_LIMIT_MS));
        }
    }
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < 2; i++) {
            T_OK(varve_restore_for(h[r][i], 1, CK_LIMIT_MS));
            ck_check(buf, BYTES, (uint64_t)(r * 2 + i), 0);
        }
    }
    for (int r = 0; r < 3; r++)
        T_OK(varve_close(ctx[r]));
    free(buf);
}

/* A history of several ranks cannot be opened by another number of ranks, if they have declared how many
 * they are; a history without versions can be opened by any number. */
static void number_of_ranks(int level)
{
    char remote[600];
    struct ck_cfg cfg = config(t_tmpdir());
    snprintf(remote, sizeof(remote), "%s/shared", cfg.local);
    cfg.level = level;
    cfg.remote = level == VARVE_LEVEL_REMOTE ? remote : NULL;
    static const struct {
        int ranks;
        bool refused;
    } lives[] = {{4, false}, {4, false}, {3, true}, {1, true}, {5, true}, {4, false}};
    char *buf = malloc(BYTES);
    struct varve_ctx *ctx;
    struct varve_history *h;
    for (size_t i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
        cfg.ranks = lives[i].ranks;
        ctx = ck_open(&cfg);
        if (lives[i].refused) {
            T_ERR(varve_history_open(ctx, "h", &h), -EINVAL);
            ck_error(ctx, -EINVAL, "written by 4 ranks");
            T_OK(varve_history_open(ctx, "other", &h));
        } else {
            h = ck_history(ctx, "h");
            put(h, buf, i);
            get(h, buf, 0);
        }
        T_OK(varve_close(ctx));
    }
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "h");
    for (uint64_t v = 0; v < 6; v++) {
        int rc = varve_discard(h, v);
        T_CHECK(rc == 0 || rc == -ENOENT);
    }
    T_OK(varve_close(ctx));
    for (int ranks = 3; ranks >= 1; ranks -= 2)
        for (int life = 0; life < 2; life++) {
            cfg.ranks = ranks;
            ctx = ck_open(&cfg);
            h = ck_history(ctx, "h");
            if (life == 0)
                put(h, buf, 9);
            get(h, buf, 9);
            if (life == 1)
                T_OK(varve_discard(h, 9));
            T_OK(varve_close(ctx));
        }
    free(buf);
}

static void test_number_of_ranks(void)
{
    number_of_ranks(VARVE_LEVEL_LOCAL);
    number_of_ranks(VARVE_LEVEL_REMOTE);
}

/* A missing committed file is an error of the disk: the version existed, and reading it must not
 * return that it does not exist. */
static void test_file_gone(void)
{
    struct ck_cfg cfg = config(t_tmpdir());
    char command[700], *buf = malloc(BYTES);
    struct varve_ctx *ctx = ck_open(&cfg);
    put(ck_history(ctx, "gone"), buf, 1);
    T_OK(varve_close(ctx));
    ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "gone");
    snprintf(command, sizeof(command), "rm %s/gone/*.ckpt", cfg.local);
    T_EQ(system(command), 0);
    T_OK(varve_protect(h, 2, buf, BYTES));
    T_ERR(varve_restore_for(h, 1, CK_LIMIT_MS), -EBADF);
    T_OK(varve_close(ctx));
    free(buf);
}

int main(void)
{
    T_RUN(test_find_all);
    T_RUN(test_close_flushes);
    T_RUN(test_close_in_time);
    T_RUN(test_other_pages);
    T_RUN(test_discard);
    T_RUN(test_keep);
    T_RUN(test_consume_once);
    T_RUN(test_shared_folder);
    T_RUN(test_number_of_ranks);
    T_RUN(test_file_gone);
    return t_done();
}
