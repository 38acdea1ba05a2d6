/* SPDX-License-Identifier: Apache-2.0 */
/* varve_emulate: a kernel runs in the order of the stream, and only on the emulated device. */
#include <varve/emulate.h>

#include <pthread.h>

#include "ckpt/ckpt_hooks.h"
#include "device/host/host.h"
#include "t.h"
#include "unit/ckpt/ck.h"

static void raise_it(void *arg)
{
    int *seen = arg; /* ordered by the stream: otherwise ThreadSanitizer reports a race */

    (*seen)++;
}

static void in_order(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 1 << 16, .host_cache = 1 << 16};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct vv_device *d = vv_ckpt_device(ctx);
    int seen = 0, word = 0;
    void *there;

    T_OK(varve_device_alloc(ctx, sizeof(word), &there));
    T_OK(vv_device_host_app_hold(d));
    for (int i = 0; i < 3; i++)
        T_OK(varve_emulate(ctx, raise_it, &seen, NULL));
    T_EQ(__atomic_load_n(&seen, __ATOMIC_RELAXED), 0); /* earlier work on the stream is held */
    vv_device_host_app_release(d);
    T_OK(varve_device_copy(ctx, there, &word, sizeof(word))); /* waits for the stream */
    T_EQ(seen, 3);
    T_ERR(varve_emulate(ctx, raise_it, &seen, (struct CUstream_st *)(uintptr_t)64), -EINVAL);
    T_OK(varve_device_free(ctx, there));
    vv_device_host_lose(d);
    T_ERR(varve_emulate(ctx, raise_it, &seen, NULL), -ENODEV);
    T_EQ(seen, 3);
    (void)varve_close(ctx);
}

static void misuse(void)
{
    struct ck_cfg cfg = {.host_cache = 1 << 16};
    struct varve_ctx *ctx = ck_open(&cfg);
    int seen = 0;

    T_ERR(varve_emulate(NULL, raise_it, &seen, NULL), -EINVAL);
    T_ERR(varve_emulate(ctx, NULL, &seen, NULL), -EINVAL);
    T_ERR(varve_emulate(ctx, raise_it, &seen, NULL), -ENODEV);
    ck_error(ctx, -ENODEV, "no device");
    T_EQ(seen, 0);
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(in_order);
    T_RUN(misuse);
    return t_done();
}
