/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Nth system call of a history on three layers fails, for many N: once with an I/O error, and
 * from then on with a full disk. Whatever fails: no call crashes or needs its time limit, no
 * restore returns wrong bytes, the limit holds, every descriptor is closed, and after a temporary
 * failure everything can be repeated.
 */
#include <stdlib.h>

#include <varve/ckpt.h>

#include "base/util.h"
#include "ckpt/ckpt_hooks.h"
#include "fault_os.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, K = 14, BYTES = 5 * PAGE + 7 };

static void allow(enum fault_mode mode, const char *what, int rc)
{
    if (rc == -ETIMEDOUT || rc > 0 || (rc < 0 && mode == FAULT_NONE))
        t_fail(__FILE__, __LINE__, "%s: %s", what, t_errname(rc));
}

/* Repeats a failed call once: each error is reported once. */
#define TRY(mode, expr)                  \
    ({                                   \
        int rc_ = 0;                     \
        for (int i_ = 0; i_ < 4; i_++) { \
            rc_ = (expr);                \
            allow(mode, #expr, rc_);     \
            if (rc_ == 0)                \
                break;                   \
        }                                \
        rc_ == 0;                        \
    })

static void use(struct varve_ctx *ctx, enum fault_mode mode)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    struct varve_history *h = ck_history(ctx, "layers");
    char *buf = malloc(BYTES);
    bool put[K];
    T_CHECK(buf);
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < K; v++) {
        ck_fill(buf, BYTES, v, 0);
        put[v] = TRY(mode, varve_checkpoint_for(h, v, CK_LIMIT_MS));
        T_CHECK(put[v] || mode == FAULT_FOREVER);
    }
    for (uint64_t v = K; v-- > 0;) {
        memset(buf, 0, BYTES);
        if (!put[v])
            continue;
        bool got = TRY(mode, varve_restore_for(h, v, CK_LIMIT_MS));
        T_CHECK(got || mode == FAULT_FOREVER);
        if (got)
            ck_check(buf, BYTES, v, 0);
    }
    T_OK(varve_stats(ctx, &s));
    T_CHECK(s.layer_peak_bytes[0] <= s.layer_bytes[0] && s.layer_bytes[0] <= 16 * PAGE);
    free(buf);
}

/* Returns the number of calls. */
static long one(enum fault_mode mode, long at, int err)
{
    struct ck_cfg cfg = {.host_cache = 12 * PAGE,
                         .local_cache = 16 * PAGE,
                         .local = t_tmpdir(),
                         .remote = t_tmpdir()};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    struct fault_os os;
    fault_os_init(&os);
    os.mode = mode;
    os.at = at;
    os.err = err;
    struct vv_ckpt_hooks hooks = {.os = &os.os};
    vv_ckpt_set_hooks(&hooks);
    ck_opts(&cfg, &opts);
    if (TRY(mode, varve_open(&opts, &ctx))) {
        use(ctx, mode);
        allow(mode, "close", varve_close(ctx));
    }
    vv_ckpt_set_hooks(NULL);
    T_EQ(atomic_load(&os.descriptors), 0);
    return atomic_load(&os.count);
}

static void every(enum fault_mode mode, int err)
{
    long seen = one(FAULT_NONE, 0, 0);
    T_CHECK(seen > 30);
    uint64_t n = t_cases(VV_MIN(UINT64_C(12), (uint64_t)seen), (uint64_t)seen);
    uint64_t step = VV_MAX((uint64_t)seen / n, UINT64_C(1));
    struct t_rng rng = {t_seed() + (uint64_t)mode};
    t_note("%ld system calls, one in %llu made to fail", seen, (unsigned long long)step);
    for (long at = 1 + (long)t_rng_below(&rng, step); at <= seen; at += (long)step)
        one(mode, at, err);
}

static void once(void)
{
    every(FAULT_ONCE, EIO);
}

static void for_ever(void)
{
    every(FAULT_FOREVER, ENOSPC);
}

int main(void)
{
    T_RUN(once);
    T_RUN(for_ever);
    return t_done();
}
