/* SPDX-License-Identifier: Apache-2.0 */
/* Regions that are passed to the call: besides protected ones, in several threads, on a stream; and
 * refused calls. */
#include <pthread.h>
#include <stdlib.h>

#include "ckpt/face.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 3 * PAGE + 17, THREADS = 4, ROUNDS = 40 };

static const struct ck_cfg roomy = {
    .device = true, .device_cache = 64 * PAGE, .host_cache = 256 * PAGE};

static void test_beside_protected(void)
{
    struct varve_ctx *ctx = ck_open(&roomy);
    struct varve_history *h = ck_history(ctx, "beside");
    char *mine = ck_alloc(ctx, true, BYTES), *host = ck_alloc(ctx, false, 100);
    char *other = ck_alloc(ctx, true, BYTES);
    ck_fill(other, BYTES, 7, 7);
    T_OK(varve_protect(h, 7, other, BYTES));
    struct varve_region both[] = {{0, mine, BYTES}, {3, host, 100}};
    for (uint64_t v = 0; v < 4; v++) {
        ck_fill(mine, BYTES, v, 0);
        ck_fill(host, 100, v, 3);
        if (v % 2)
            T_OK(varve_checkpoint_of(h, v, both, 2, CK_LIMIT_MS));
        else
            T_OK(varve_checkpoint_of_on(h, v, both, 2, NULL, CK_LIMIT_MS));
    }
    for (uint64_t v = 4; v-- > 0;) {
        size_t bytes;
        ck_set(mine, 0, BYTES);
        ck_set(host, 0, 100);
        if (v % 2)
            T_OK(varve_restore_to(h, v, both, 2, CK_LIMIT_MS));
        else
            T_OK(varve_restore_to_on(h, v, &both[0], 1, NULL, CK_LIMIT_MS));
        ck_stream_sync(vv_ckpt_device(ctx), NULL);
        ck_check(mine, BYTES, v, 0);
        if (v % 2)
            ck_check(host, 100, v, 3);
        T_ERR(varve_region_size(h, v, 7, &bytes), -ESRCH);
    }
    ck_check(other, BYTES, 7, 7);
    ck_free(ctx, true, mine);
    ck_free(ctx, false, host);
    ck_free(ctx, true, other);
    T_OK(varve_close(ctx));
}

struct work {
    struct varve_history *h;
    uint64_t first;
};

static void *run(void *arg)
{
    const struct work *w = arg;
    char *buf = malloc(BYTES);
    struct varve_region r = {0, buf, BYTES};
    for (uint64_t v = w->first; v < w->first + ROUNDS; v++) {
        ck_fill(buf, BYTES, v, 0);
        T_OK(varve_checkpoint_of(w->h, v, &r, 1, CK_LIMIT_MS));
        ck_set(buf, 0, BYTES);
        T_OK(varve_restore_to(w->h, v, &r, 1, CK_LIMIT_MS));
        ck_check(buf, BYTES, v, 0);
        T_OK(varve_discard(w->h, v));
    }
    free(buf);
    return NULL;
}

static void test_threads(void)
{
    struct varve_ctx *ctx = ck_open(&roomy);
    struct work work[THREADS];
    pthread_t threads[THREADS];
    struct varve_history *h = ck_history(ctx, "threads");
    for (unsigned i = 0; i < THREADS; i++) {
        work[i] = (struct work){h, 1000 * i};
        T_EQ(pthread_create(&threads[i], NULL, run, &work[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        T_EQ(pthread_join(threads[i], NULL), 0);
    T_OK(varve_close(ctx));
}

static void test_refused(void)
{
    struct varve_ctx *ctx = ck_open(&roomy);
    struct varve_history *h = ck_history(ctx, "refused");
    char buf[100];
    struct varve_region twice[] = {{1, buf, 10}, {1, buf, 10}}, none = {0, NULL, 10},
                        negative = {-1, buf, 10}, good = {0, buf, 100}, small = {0, buf, 99};
    ck_fill(buf, sizeof(buf), 0, 0);
    T_ERR(varve_checkpoint_of(h, 0, &good, 0, -1), -ENODATA);
    T_ERR(varve_checkpoint_of(h, 0, NULL, 1, -1), -ENODATA);
    ck_error(ctx, -ENODATA, "no region is given");
    T_ERR(varve_checkpoint_of(h, 0, twice, 2, -1), -EINVAL);
    ck_error(ctx, -EINVAL, "numbers must ascend");
    T_ERR(varve_checkpoint_of(h, 0, &none, 1, -1), -EINVAL);
    T_ERR(varve_restore_to(h, 0, &negative, 1, -1), -EINVAL);
    T_ERR(varve_checkpoint_of(NULL, 0, &good, 1, -1), -EINVAL);
    T_EQ(ck_count(h), 0);
    T_OK(varve_checkpoint_of(h, 0, &good, 1, -1));
    T_ERR(varve_restore_to(h, 0, &small, 1, -1), -ENOBUFS);
    T_ERR(varve_restore_to(h, 1, &good, 1, -1), -ENOENT);
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(test_beside_protected);
    T_RUN(test_threads);
    T_RUN(test_refused);
    return t_done();
}
