/* SPDX-License-Identifier: Apache-2.0 */
/* Versions are discarded as soon as their restore is enqueued on the stream, while others are fetched
 * into the freed pages: every restore gets its own bytes. */
#include <stdlib.h>

#include "ckpt/face.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, OBJECTS = 24, ROUNDS = 30 };

static const struct ck_cfg small = {
    .device = true, .device_cache = 40 * PAGE, .host_cache = 512 * PAGE};

static size_t bytes_of(int i)
{
    return (size_t)(i % 3 ? 8 : 2) * PAGE;
}

static void test_discard_behind_restore(void)
{
    struct varve_ctx *ctx = ck_open(&small);
    struct varve_history *h = ck_history(ctx, "discard");
    char *from[OBJECTS], *to[OBJECTS];
    for (int i = 0; i < OBJECTS; i++) {
        from[i] = ck_alloc(ctx, true, bytes_of(i));
        to[i] = ck_alloc(ctx, true, bytes_of(i));
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t base = round * 1000;
        for (int i = OBJECTS - 1; i >= 0 && round > 0; i--)
            T_OK(varve_hint(h, base + (uint64_t)i));
        for (int i = 0; i < OBJECTS; i++) {
            struct varve_region r = {0, from[i], bytes_of(i)};
            ck_fill(from[i], bytes_of(i), base + (uint64_t)i, 0);
            ck_set(to[i], 0, bytes_of(i));
            T_OK(varve_checkpoint_of_on(h, base + (uint64_t)i, &r, 1, NULL, CK_LIMIT_MS));
        }
        for (int i = OBJECTS - 1; i >= 0; i--) {
            struct varve_region r = {0, to[i], bytes_of(i)};
            T_OK(varve_restore_to_on(h, base + (uint64_t)i, &r, 1, NULL, CK_LIMIT_MS));
            T_OK(varve_discard(h, base + (uint64_t)i));
        }
        ck_stream_sync(vv_ckpt_device(ctx), NULL);
        for (int i = 0; i < OBJECTS; i++)
            ck_check(to[i], bytes_of(i), base + (uint64_t)i, 0);
        T_EQ(ck_count(h), 0);
    }
    for (int i = 0; i < OBJECTS; i++) {
        ck_free(ctx, true, from[i]);
        ck_free(ctx, true, to[i]);
    }
    T_OK(varve_close(ctx));
}

int main(void)
{
    ck_any_device();
    T_RUN(test_discard_behind_restore);
    return t_done();
}
