/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint in two parts, because at first there is room for one only. The copy of the first part fails
 * after it was accepted, and the second is ordered before that is known: the second succeeds, and the
 * checkpoint must still fail.
 */
#include <pthread.h>
#include <sched.h>

#include "ckpt/ckpt_hooks.h"
#include "device/host/host.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, ROUNDS = 20 };

static struct vv_device *device;

static struct vv_device *see_device(void *arg, struct vv_device *inner)
{
    (void)arg;
    device = inner;
    return inner;
}

struct put {
    struct varve_history *h;
    int rc;
};

static void *put_main(void *arg)
{
    struct put *p = arg;
    p->rc = varve_checkpoint_for(p->h, 2, CK_LIMIT_MS);
    return NULL;
}

static uint64_t copies(void)
{
    struct vv_device_host_stats s;
    vv_device_host_stats(device, &s);
    return s.calls[VV_DEVICE_OP_COPY_ASYNC];
}

/* A cache of four pages on the device; version 1 has two of them. */
static void first_part_fails(void)
{
    static const struct vv_ckpt_hooks hooks = {.device = see_device};
    struct ck_cfg cfg = {.device = true, .device_cache = 4 * PAGE};
    for (int round = 0; round < ROUNDS; round++) {
        vv_ckpt_set_hooks(&hooks);
        struct varve_ctx *ctx = ck_open(&cfg);
        vv_ckpt_set_hooks(NULL);
        struct put put = {.h = ck_history(ctx, "h")};
        char *buf = ck_alloc(ctx, true, 4 * PAGE);
        pthread_t thread;
        T_OK(varve_protect(put.h, 0, buf, 2 * PAGE));
        T_OK(varve_checkpoint_for(put.h, 1, CK_LIMIT_MS));
        T_OK(varve_protect(put.h, 0, buf, 4 * PAGE));

        T_OK(vv_device_host_fail_async(device, 1, 1, -EIO));
        T_OK(vv_device_host_app_hold(device)); /* the copy waits for this kernel */
        uint64_t before = copies();
        T_EQ(pthread_create(&thread, NULL, put_main, &put), 0);
        while (copies() == before)
            sched_yield();
        T_OK(varve_discard(put.h, 1));
        vv_device_host_app_release(device);
        T_EQ(pthread_join(thread, NULL), 0);
        T_ERR(put.rc, -EIO);
        T_ERR(varve_restore_for(put.h, 2, CK_LIMIT_MS), -ENOENT);

        T_OK(varve_checkpoint_for(put.h, 2, CK_LIMIT_MS)); /* it can be written again */
        ck_free(ctx, true, buf);
        T_OK(varve_close(ctx));
    }
}

int main(void)
{
    T_RUN(first_part_fails);
    return t_done();
}
