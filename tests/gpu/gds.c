/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUDirect Storage with the real libcufile, if available: data that was written past the host is read back, past it or
 * through it. Without its kernel module the library runs in its compatibility mode, which is slow but gives the same
 * bytes.
 */
#include <varve/ckpt.h>

#include "gpu/gpu.h"
#include "store/aio/gds.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { K = 12, PAGE = 1 << 16, BYTES = 9 * PAGE, ODD = BYTES - 123 };

static void shot(int level, bool gds_up)
{
    struct ck_cfg cfg = {.device = true,
                         .device_cache = 24 * PAGE,
                         .host_cache = 4 * PAGE,
                         .page_bytes = PAGE,
                         .local = t_tmpdir(),
                         .local_cache = 2 * K * BYTES,
                         .level = level,
                         .gds = true};
    struct varve_opts opts;
    struct varve_ctx *ctx = NULL;
    ck_opts(&cfg, &opts);
    int rc = varve_open(&opts, &ctx);
    if (rc == -ENOTSUP) {
        struct varve_error e = {.error_size = sizeof(e)};
        T_OK(varve_last_error(NULL, &e));
        t_note("not here: %s", e.text);
        return;
    }
    T_OK(rc);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    for (uint64_t v = 0; v < K; v++) {
        size_t bytes = v % 2 ? ODD : BYTES;
        ck_fill(buf, bytes, v, 0);
        T_OK(varve_protect(h, 0, buf, bytes));
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    T_OK(varve_flush(h, CK_LIMIT_MS));
    if (level == VARVE_LEVEL_LOCAL) {
        ck_free(ctx, true, buf);
        T_OK(varve_close(ctx));
        cfg.gds = gds_up;
        ctx = ck_open(&cfg);
        h = ck_history(ctx, "h");
        buf = ck_alloc(ctx, true, BYTES);
    }
    for (uint64_t v = K; v-- > 0;)
        T_OK(varve_hint(h, v));
    T_OK(varve_prefetch_start(h));
    for (uint64_t v = K; v-- > 0;) {
        ck_set(buf, 0xee, BYTES);
        T_OK(varve_protect(h, 0, buf, BYTES));
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(buf, v % 2 ? ODD : BYTES, v, 0);
    }
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void spilled(void)
{
    shot(VARVE_LEVEL_CACHED, true);
}

static void files(void)
{
    shot(VARVE_LEVEL_LOCAL, true);
}

static void files_read_through_the_host(void)
{
    shot(VARVE_LEVEL_LOCAL, false);
}

int main(void)
{
    char err[256] = "";
    if (vv_gds_find(NULL, err, sizeof(err)) != 0)
        T_SKIP("%s", err);
    gpu_need();
    GPU_RUN(spilled);
    GPU_RUN(files);
    GPU_RUN(files_read_through_the_host);
    return t_done();
}
