/* SPDX-License-Identifier: Apache-2.0 */
/* Level cached on three layers: host memory, a local folder with a limit, a remote folder behind it. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { KIB = 1024, VERSIONS = 60, BYTES = 150 * 1000 };

enum order { LIFO, FIFO, IRREGULAR };

static struct varve_stats stats_of(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    return s;
}

static bool folder_is_empty(const char *path)
{
    DIR *d = opendir(path);
    bool empty = true;
    T_CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        empty = empty && e->d_name[0] == '.';
    closedir(d);
    return empty;
}

static uint64_t nth(enum order order, uint64_t i)
{
    return order == LIFO ? VERSIONS - 1 - i : order == FIFO ? i : i * 37 % VERSIONS;
}

static void limits_hold(struct varve_ctx *ctx)
{
    struct varve_stats s = stats_of(ctx);
    T_CHECK(s.layer_peak_bytes[0] <= 1024 * KIB);
    T_CHECK(s.layer_used_bytes[0] <= s.layer_peak_bytes[0]);
    T_EQ(s.layer_bytes[0], 1024 * KIB);
}

/* 9 MB of versions through 512 KiB of memory and a local folder of 1 MiB. */
static void shot(enum order order, bool hints, bool once, const char *rate)
{
    const char *local = t_tmpdir(), *remote = t_tmpdir();
    struct ck_cfg cfg = {.host_cache = 512 * KIB,
                         .local_cache = 1024 * KIB,
                         .local = local,
                         .remote = remote,
                         .rate = rate};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history_opts o;
    struct varve_history *h;
    T_OK(varve_history_opts_init(&o, sizeof(o)));
    o.consume = once ? VARVE_CONSUME_ONCE : VARVE_CONSUME_KEEP;
    T_OK(varve_history_open_with(ctx, "shot", &o, &h));
    char *buf = malloc(BYTES);
    T_CHECK(buf != NULL);
    T_OK(varve_protect(h, 3, buf, BYTES));
    T_CHECK(stats_of(ctx).expected_speedup == 0); /* nothing is known yet */
    for (uint64_t i = 0; hints && i < VERSIONS; i++)
        T_OK(varve_hint(h, nth(order, i)));
    for (uint64_t v = 0; v < VERSIONS; v++) {
        ck_fill(buf, BYTES, v, 3);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
        limits_hold(ctx);
    }
    struct varve_stats s = stats_of(ctx);
    T_CHECK(s.remote_written_bytes > 0 && s.layer_used_bytes[1] > 0);
    T_OK(varve_prefetch_start(h));
    for (uint64_t i = 0; i < VERSIONS; i++) {
        memset(buf, 0, BYTES);
        T_OK(varve_restore_for(h, nth(order, i), CK_LIMIT_MS));
        T_CHECK(ck_same(buf, BYTES, nth(order, i), 3));
        limits_hold(ctx);
    }
    for (uint64_t i = 0; i < VERSIONS && !once; i++) { /* and once more */
        T_OK(varve_restore_for(h, i, CK_LIMIT_MS));
        T_CHECK(ck_same(buf, BYTES, i, 3));
    }
    s = stats_of(ctx);
    T_CHECK(s.remote_read_bytes > 0);
    T_CHECK(s.layer_start_write_rate[1] > 0 && s.layer_start_read_rate[1] > 0);
    T_CHECK(s.expected_speedup > 0 && s.expected_speedup_start > 0 && s.actual_speedup > 0);
    T_CHECK(s.expected_blocked_ns > 0);
    if (once)
        T_EQ(ck_count(h), 0);
    T_OK(varve_close(ctx));
    T_CHECK(folder_is_empty(local) && folder_is_empty(remote));
    free(buf);
}

static void orders(void)
{
    shot(LIFO, true, true, NULL);
    shot(IRREGULAR, true, false, NULL);
    if (t_sanitized() && !t_long())
        return;
    shot(FIFO, true, true, NULL);
    shot(LIFO, false, true, NULL);
    shot(FIFO, false, false, NULL);
}

/* So slow that layers are chosen by how busy they are, and pages move. */
static void paced(void)
{
    shot(LIFO, true, true, "h2f=60M,f2h=60M,f2r=20M,r2f=20M");
    if (!t_sanitized() || t_long())
        shot(FIFO, false, false, "h2f=60M,f2h=60M,f2r=20M,r2f=20M");
}

/* Writes to the layers obey the limits of bandwidth: none is early. */
static void rates_hold(void)
{
    enum { N = 8 };
    struct ck_cfg cfg = {.host_cache = 256 * KIB,
                         .local_cache = 1024 * KIB,
                         .local = t_tmpdir(),
                         .remote = t_tmpdir()};
    struct varve_opts opts;
    struct varve_ctx *ctx = NULL;
    ck_opts(&cfg, &opts);
    T_OK(varve_opts_set(&opts, "local_rate", "2MB"));
    T_OK(varve_opts_set(&opts, "remote_rate", "1MB"));
    T_OK(varve_open(&opts, &ctx));
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, false, BYTES);
    T_OK(varve_protect(h, 0, buf, BYTES));
    uint64_t begun_ns = vv_now_ns();
    for (uint64_t v = 0; v < N; v++) {
        ck_fill(buf, BYTES, v, 0);
        T_OK(varve_checkpoint(h, v));
    }
    /* Data beyond memory is on the layers; each of them may have begun a transfer at once. */
    uint64_t took_ns = vv_now_ns() - begun_ns, least_bytes = N * BYTES - cfg.host_cache;
    T_CHECK(took_ns >= least_bytes * 1000 / 3 / 2);
    for (uint64_t v = N; v-- > 0;) {
        T_OK(varve_restore(h, v));
        ck_check(buf, BYTES, v, 0);
    }
    ck_free(ctx, false, buf);
    T_OK(varve_close(ctx));
}

/* Discarded versions free room on each layer. */
static void discarded_versions_make_room(void)
{
    struct ck_cfg cfg = {.host_cache = 256 * KIB,
                         .local_cache = 512 * KIB,
                         .local = t_tmpdir(),
                         .remote = t_tmpdir()};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = malloc(BYTES);
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < 100; v++) {
        ck_fill(buf, BYTES, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
        if (v >= 10)
            T_OK(varve_discard(h, v - 10));
    }
    T_OK(varve_flush(h, CK_LIMIT_MS));
    struct varve_stats s = stats_of(ctx);
    T_CHECK(s.layer_used_bytes[0] + s.layer_used_bytes[1] <= 11 * (BYTES + 4096));
    for (uint64_t v = 90; v < 100; v++) {
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        T_CHECK(ck_same(buf, BYTES, v, 0));
    }
    T_OK(varve_close(ctx));
    free(buf);
}

/* With only a remote folder, the spill file is there. */
static void remote_alone(void)
{
    struct ck_cfg cfg = {.host_cache = 256 * KIB, .remote = t_tmpdir()};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = malloc(BYTES);
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < 20; v++) {
        ck_fill(buf, BYTES, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    for (uint64_t v = 20; v-- > 0;) {
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        T_CHECK(ck_same(buf, BYTES, v, 0));
    }
    T_OK(varve_close(ctx));
    free(buf);
}

static void refusals(void)
{
    struct varve_opts o;
    struct varve_ctx *ctx;
    const char *same = t_tmpdir();
    struct ck_cfg cfg = {.host_cache = 256 * KIB, .local = same, .remote = same};
    ck_opts(&cfg, &o);
    T_ERR(varve_open(&o, &ctx), -EINVAL);
    char missing[512];
    snprintf(missing, sizeof(missing), "%s/a/b", same);
    cfg.remote = missing;
    ck_opts(&cfg, &o);
    T_ERR(varve_open(&o, &ctx), -ENOENT);
}

int main(void)
{
    T_RUN(orders);
    T_RUN(paced);
    T_RUN(rates_hold);
    T_RUN(discarded_versions_make_room);
    T_RUN(remote_alone);
    T_RUN(refusals);
    return t_done();
}
