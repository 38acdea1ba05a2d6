/* SPDX-License-Identifier: Apache-2.0 */
/* More device memory than available: an error with the free size, and no leak. */
#include <stdio.h>

#include <varve/ckpt.h>

#include "gpu/gpu.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 1 << 16, BYTES = 5 * PAGE };

static const struct ck_cfg small = {
    .device = true, .device_cache = 16 * PAGE, .host_cache = 32 * PAGE, .page_bytes = PAGE};

static void memory_free(size_t *ret_free, size_t *ret_total)
{
    CU(info(ret_free, ret_total));
}

static void round_trip(struct varve_ctx *ctx, const char *name)
{
    struct varve_history *h = ck_history(ctx, name);
    char *buf = ck_alloc(ctx, true, BYTES);
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    ck_set(buf, 0, BYTES);
    T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
    ck_check(buf, BYTES, 1, 0);
    ck_free(ctx, true, buf);
}

static void cache_larger_than_the_device(void)
{
    void *primary;
    size_t before, after, total;
    struct varve_opts opts;
    struct varve_ctx *ctx = NULL;
    struct varve_error e = {.error_size = sizeof(e)};
    CU(retain(&primary, 0));
    CU(push(primary));
    memory_free(&before, &total);
    ck_opts(&small, &opts);
    opts.device_cache = (uint64_t)total / PAGE * PAGE + PAGE;
    T_ERR(varve_open(&opts, &ctx), -ENOMEM);
    T_CHECK(!ctx);
    T_OK(varve_last_error(NULL, &e));
    T_EQ(e.err, -ENOMEM);
    T_CHECK(strstr(e.text, "device cache") && strstr(e.text, "free"));
    t_note("%s", e.text);
    memory_free(&after, &total);
    T_CHECK(after >= before - ((size_t)64 << 20)); /* other processes may use the device */

    ctx = ck_open(&small);
    round_trip(ctx, "after");
    T_OK(varve_close(ctx));
    CU(release(0));
}

static void allocation_larger_than_the_device(void)
{
    struct varve_ctx *ctx = ck_open(&small);
    size_t total, unused;
    void *primary, *p = NULL;
    CU(retain(&primary, 0));
    CU(push(primary));
    memory_free(&unused, &total);
    T_ERR(varve_device_alloc(ctx, total + PAGE, &p), -ENOMEM);
    T_CHECK(!p);
    ck_error(ctx, -ENOMEM, "device memory");
    struct varve_error e = {.error_size = sizeof(e)};
    T_OK(varve_last_error(ctx, &e));
    T_STREQ(e.domain, "cuda");
    T_EQ(e.code, 2); /* out of memory */
    T_EQ(e.scope, VARVE_SCOPE_OPERATION);
    round_trip(ctx, "after");
    T_OK(varve_close(ctx));
    CU(release(0));
}

int main(void)
{
    gpu_need();
    GPU_RUN(cache_larger_than_the_device);
    GPU_RUN(allocation_larger_than_the_device);
    return t_done();
}
