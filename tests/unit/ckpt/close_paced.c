/* SPDX-License-Identifier: Apache-2.0 */
/* Closing within its time limit, with any limit of rates: transfers in progress do not wait for
 * the rates. The alarm ends a test that waits; with these rates it would wait for minutes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 65536, BYTES = 16 * PAGE, VERSIONS = 8, LIMIT_S = 20 };

struct paced {
    int level;
    bool local, remote;
    uint64_t local_rate, remote_rate;
    const char *rate;
};

static struct varve_ctx *open_paced(const struct paced *p, const char *local, const char *remote)
{
    struct ck_cfg cfg = {.host_cache = (VERSIONS + 1) * BYTES,
                         .local = p->local ? local : NULL,
                         .remote = p->remote ? remote : NULL,
                         .local_cache = p->level == VARVE_LEVEL_CACHED ? 4 * BYTES : 0,
                         .level = p->level,
                         .page_bytes = PAGE,
                         .rate = p->rate,
                         .close_timeout_ms = 300};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    ck_opts(&cfg, &opts);
    opts.local_rate = p->local_rate;
    opts.remote_rate = p->remote_rate;
    T_OK(varve_open(&opts, &ctx));
    return ctx;
}

/* Writes more than the rates allow, closes, and checks which versions are there. */
static void close_one(const struct paced *p)
{
    char local[256], remote[256];
    char *buf = malloc(BYTES);
    snprintf(local, sizeof(local), "%s", t_tmpdir());
    snprintf(remote, sizeof(remote), "%s", t_tmpdir());
    struct varve_ctx *ctx = open_paced(p, local, remote);
    struct varve_history *h = ck_history(ctx, "paced");
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < VERSIONS; v++) {
        ck_fill(buf, BYTES, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    alarm(LIMIT_S);
    int rc = varve_close(ctx);
    alarm(0);
    if (p->level == VARVE_LEVEL_CACHED) {
        T_EQ(rc, 0);
        free(buf);
        return;
    }
    T_EQ(rc, -ETIMEDOUT);
    /* Versions that were not safe are lost; versions that are found are whole. */
    struct paced fast = {.level = p->level, .local = p->local, .remote = p->remote};
    ctx = open_paced(&fast, local, remote);
    h = ck_history(ctx, "paced");
    uint64_t found[VERSIONS];
    size_t n = 0;
    T_OK(varve_versions(h, found, VERSIONS, &n));
    T_CHECK(p->level > VARVE_LEVEL_LOCAL || n < VERSIONS);
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (size_t i = 0; i < n; i++) {
        T_OK(varve_restore_for(h, found[i], CK_LIMIT_MS));
        ck_check(buf, BYTES, found[i], 0);
    }
    T_OK(varve_checkpoint_for(h, 100, CK_LIMIT_MS)); /* not delayed by earlier bookings */
    T_OK(varve_wait(h, 100, (enum varve_level)p->level, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    free(buf);
}

static void local_rate(void)
{
    close_one(&(struct paced){VARVE_LEVEL_LOCAL, .local = true, .local_rate = 20000});
    close_one(&(struct paced){VARVE_LEVEL_LOCAL, .local = true, .local_rate = 1000000});
}

/* The store itself enforces the rate, and delays the report. */
static void rate_of_the_medium(void)
{
    close_one(&(struct paced){VARVE_LEVEL_LOCAL, .local = true, .rate = "h2f=20K"});
}

static void remote_rate(void)
{
    close_one(
        &(struct paced){VARVE_LEVEL_REMOTE, .local = true, .remote = true, .remote_rate = 20000});
    close_one(&(struct paced){VARVE_LEVEL_REMOTE, .remote = true, .rate = "f2r=20K"});
}

static void layers(void)
{
    close_one(&(struct paced){VARVE_LEVEL_CACHED, .local = true, .remote = true,
                              .local_rate = 20000, .remote_rate = 20000});
    close_one(&(struct paced){VARVE_LEVEL_CACHED, .local = true, .remote = true,
                              .rate = "h2f=20K,f2r=20K"});
}

/* Versions that were safe before are found. */
static void those_before(void)
{
    struct paced p = {VARVE_LEVEL_LOCAL, .local = true};
    const char *local = t_tmpdir();
    char *buf = malloc(BYTES);
    struct varve_ctx *ctx = open_paced(&p, local, NULL);
    struct varve_history *h = ck_history(ctx, "before");
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    p.local_rate = 20000;
    ctx = open_paced(&p, local, NULL);
    h = ck_history(ctx, "before");
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 2; v < 6; v++)
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    alarm(LIMIT_S);
    T_EQ(varve_history_close(h), -ETIMEDOUT);
    ck_error(ctx, -ETIMEDOUT, "did not reach local disk");
    T_EQ(varve_close(ctx), 0);
    alarm(0);
    p.local_rate = 0;
    ctx = open_paced(&p, local, NULL);
    h = ck_history(ctx, "before");
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
    ck_check(buf, BYTES, 1, 0);
    T_OK(varve_close(ctx));
    free(buf);
}

int main(void)
{
    T_RUN(local_rate);
    T_RUN(rate_of_the_medium);
    T_RUN(remote_rate);
    T_RUN(layers);
    T_RUN(those_before);
    return t_done();
}
