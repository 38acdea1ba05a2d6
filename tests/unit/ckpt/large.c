/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions in host memory so large that several threads copy them, by two threads of the application
 * at once; only one of these two gets help.
 */
#include <pthread.h>

#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 64 << 10, VERSIONS = 3 };

static const size_t size[] = {(13 << 20) + 40, (3 << 20) - 8};

struct app {
    struct varve_history *h;
    pthread_t thread;
};

static void *app_main(void *arg)
{
    const struct app *app = arg;
    char *buf[2];
    for (int r = 0; r < 2; r++) {
        buf[r] = ck_alloc(NULL, false, size[r]);
        T_OK(varve_protect(app->h, r, buf[r], size[r]));
    }
    for (uint64_t v = 0; v < VERSIONS; v++) {
        for (int r = 0; r < 2; r++)
            ck_fill(buf[r], size[r], v, r);
        T_OK(varve_checkpoint_for(app->h, v, CK_LIMIT_MS));
    }
    for (uint64_t v = VERSIONS; v-- > 0;) {
        for (int r = 0; r < 2; r++)
            ck_set(buf[r], 0x5a, size[r]);
        T_OK(varve_restore_for(app->h, v, CK_LIMIT_MS));
        for (int r = 0; r < 2; r++)
            ck_check(buf[r], size[r], v, r);
    }
    for (int r = 0; r < 2; r++)
        ck_free(NULL, false, buf[r]);
    return NULL;
}

static void test_two_at_once(void)
{
    struct ck_cfg cfg = {.host_cache = UINT64_C(128) << 20, .page_bytes = PAGE};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct app app[2];
    for (int i = 0; i < 2; i++) {
        app[i].h = ck_history(ctx, i ? "a" : "b");
        T_EQ(pthread_create(&app[i].thread, NULL, app_main, &app[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        T_EQ(pthread_join(app[i].thread, NULL), 0);
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(test_two_at_once);
    return t_done();
}
