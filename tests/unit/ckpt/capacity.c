/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit on the files of level local: it counts the space of files; a checkpoint waits while
 * something in progress may free room, within its time limit, and is refused when nothing will.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "store/store.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 16 * PAGE, REGIONS = 512 };

static uint64_t folder_bytes(const char *local, const char *history)
{
    char path[1024];
    uint64_t bytes = 0;
    snprintf(path, sizeof(path), "%s/%s", local, history);
    DIR *d = opendir(path);
    T_CHECK(d);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (!strstr(e->d_name, ".ckpt"))
            continue;
        snprintf(path, sizeof(path), "%s/%s/%s", local, history, e->d_name);
        T_OK(stat(path, &st));
        bytes += (uint64_t)st.st_size;
    }
    closedir(d);
    return bytes;
}

static uint64_t used_bytes(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    return s.tier_used_bytes[1];
}

/* Tables of regions and checksums count: with many small regions they are most of a file. */
static void test_counts_tables(void)
{
    struct ck_cfg cfg = {.host_cache = 64 * PAGE,
                         .local = t_tmpdir(),
                         .local_cache = 64 * PAGE,
                         .level = VARVE_LEVEL_LOCAL};
    static char buf[REGIONS];
    uint64_t n = 0;
    int rc;
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "tables");
    for (int i = 0; i < REGIONS; i++)
        T_OK(varve_protect(h, i, buf + i, 1));
    while ((rc = varve_checkpoint_for(h, n, CK_LIMIT_MS)) == 0)
        n++;
    T_EQ(rc, -ENOSPC);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_CHECK(n > 1);
    T_EQ(folder_bytes(cfg.local, "tables"), used_bytes(ctx));
    T_CHECK(used_bytes(ctx) <= cfg.local_cache);
    T_OK(varve_close(ctx));
    ctx = ck_open(&cfg); /* and the same when they are found again */
    h = ck_history(ctx, "tables");
    T_EQ(folder_bytes(cfg.local, "tables"), used_bytes(ctx));
    T_OK(varve_close(ctx));
}

static struct ck_cfg three_files(const char *rate)
{
    return (struct ck_cfg){.host_cache = 256 * PAGE,
                           .local = t_tmpdir(),
                           .local_cache = 3 * vv_files_bytes(BYTES, 1, PAGE),
                           .level = VARVE_LEVEL_LOCAL,
                           .rate = rate};
}

static void put(struct varve_history *h, char *buf, uint64_t v)
{
    ck_fill(buf, BYTES, v, 0);
    T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
}

/* Older versions are removed as soon as newer ones are committed: every put waits for that. */
static void test_keep(void)
{
    enum { KEEP = 2, PUTS = 12 };
    struct ck_cfg cfg = three_files("h2f=4M");
    struct varve_history_opts opts;
    struct varve_history *h;
    char *buf = malloc(BYTES);
    uint64_t found[PUTS];
    size_t n;
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.keep = KEEP;
    struct varve_ctx *ctx = ck_open(&cfg);
    T_OK(varve_history_open_with(ctx, "keep", &opts, &h));
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < PUTS; v++)
        put(h, buf, v);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_versions(h, found, PUTS, &n));
    T_EQ(n, KEEP);
    for (size_t i = 0; i < n; i++) {
        T_EQ(found[i], PUTS - KEEP + i);
        memset(buf, 0, BYTES);
        T_OK(varve_restore_for(h, found[i], CK_LIMIT_MS));
        ck_check(buf, BYTES, found[i], 0);
    }
    T_OK(varve_close(ctx));
    free(buf);
}

static void test_deadline(void)
{
    struct ck_cfg cfg = three_files("h2f=160K"); /* 0.4 s for each version */
    struct varve_history_opts opts;
    struct varve_history *h;
    char *buf = malloc(BYTES);
    size_t n;
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.keep = 2;
    struct varve_ctx *ctx = ck_open(&cfg);
    T_OK(varve_history_open_with(ctx, "deadline", &opts, &h));
    T_OK(varve_protect(h, 0, buf, BYTES));
    uint64_t start_ns = vv_now_ns();
    for (uint64_t v = 0; v < 3; v++)
        put(h, buf, v);
    int rc = varve_checkpoint_for(h, 3, 10);
    if (rc == 0 && vv_now_ns() - start_ns > 600 * VV_NS_PER_MS) {
        t_note("the machine is too slow: there was room before the limit ran out");
    } else {
        T_EQ(rc, -ETIMEDOUT);
        T_ERR(varve_region_size(h, 3, 0, &n), -ENOENT); /* it left nothing behind */
        put(h, buf, 3);
    }
    T_OK(varve_close(ctx));
    free(buf);
}

/* Nothing in progress frees room: an error at once, and room again after a discard. */
static void test_full(void)
{
    struct ck_cfg cfg = three_files(NULL);
    char *buf = malloc(BYTES);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "full");
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < 3; v++)
        put(h, buf, v);
    T_ERR(varve_checkpoint(h, 3), -ENOSPC);
    ck_error(ctx, -ENOSPC, "local_cache");
    for (uint64_t v = 0; v < 3; v++) {
        T_OK(varve_discard(h, v));
        put(h, buf, v + 3); /* waits for the removal */
    }
    T_OK(varve_close(ctx));
    free(buf);
}

int main(void)
{
    T_RUN(test_counts_tables);
    T_RUN(test_keep);
    T_RUN(test_deadline);
    T_RUN(test_full);
    return t_done();
}
