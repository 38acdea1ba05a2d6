/* SPDX-License-Identifier: Apache-2.0 */
/* Several regions in one version, host and device memory mixed, restored into other buffers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <varve/ckpt.h>

#include "ckpt/ckpt_hooks.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096 };

static const struct {
    int id;
    size_t bytes;
    bool device;
} region[] = {{7, 3 * PAGE + 1, true}, {0, 10, false},       {1000000, PAGE, true},
              {3, 5 * PAGE, false},    {4, PAGE - 1, false}, {5, 1, true}};
enum { N = sizeof(region) / sizeof(region[0]) };

static void test_mixed(void)
{
    struct ck_cfg cfg = {.device = true,
                         .device_cache = 16 * PAGE,
                         .host_cache = 16 * PAGE,
                         .local = t_tmpdir(),
                         .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "mixed");
    char *buf[N], *other[N];
    for (int i = 0; i < N; i++) {
        buf[i] = ck_alloc(ctx, region[i].device, region[i].bytes);
        other[i] = ck_alloc(ctx, !region[i].device, region[i].bytes + 100);
    }
    for (uint64_t v = 0; v < 10; v++) {
        for (int i = 0; i < N; i++) {
            ck_fill(buf[i], region[i].bytes, v, region[i].id);
            T_OK(varve_protect(h, region[i].id, buf[i], region[i].bytes));
        }
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    for (uint64_t v = 10; v-- > 0;) {
        for (int i = 0; i < N; i++) {
            size_t bytes = 0;
            T_OK(varve_region_size(h, v, region[i].id, &bytes));
            T_EQ(bytes, region[i].bytes);
            ck_set(other[i], 0x55, bytes + 100);
            T_OK(varve_protect(h, region[i].id, other[i], bytes + 100));
        }
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        for (int i = 0; i < N; i++) {
            ck_check(other[i], region[i].bytes, v, region[i].id);
            char behind[100];
            ck_get(other[i] + region[i].bytes, behind, sizeof(behind));
            for (size_t k = 0; k < sizeof(behind); k++)
                T_EQ(behind[k], 0x55);
        }
    }
    for (int i = 0; i < N; i++) {
        ck_free(ctx, region[i].device, buf[i]);
        ck_free(ctx, !region[i].device, other[i]);
    }
    T_OK(varve_close(ctx));
}

/* More regions than fit a stack frame, and small pages full of region borders. */
static void test_many(void)
{
    enum { MANY = 300 };
    struct ck_cfg cfg = {.host_cache = 64 * PAGE, .local = t_tmpdir()};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "many");
    char *buf = malloc(MANY * 100);
    for (int i = 0; i < MANY; i++)
        T_OK(varve_protect(h, i, buf + i * 100, (size_t)(1 + i % 100)));
    for (uint64_t v = 0; v < 5; v++) {
        for (int i = 0; i < MANY; i++)
            ck_fill(buf + i * 100, (size_t)(1 + i % 100), v, i);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    for (uint64_t v = 0; v < 5; v++) {
        memset(buf, 0, MANY * 100);
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        for (int i = 0; i < MANY; i++)
            ck_check(buf + i * 100, (size_t)(1 + i % 100), v, i);
    }
    free(buf);
    T_OK(varve_close(ctx));
}

/* A restore reads the regions that are protected now, and skips the others. */
static void test_part(void)
{
    struct ck_cfg cfg = {.host_cache = 64 * PAGE};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "part");
    char a[PAGE], b[PAGE], c[PAGE];
    ck_fill(a, PAGE, 1, 1);
    ck_fill(b, PAGE, 1, 2);
    ck_fill(c, PAGE, 1, 3);
    T_OK(varve_protect(h, 1, a, PAGE));
    T_OK(varve_protect(h, 2, b, PAGE));
    T_OK(varve_protect(h, 3, c, PAGE));
    T_OK(varve_checkpoint(h, 1));
    memset(a, 0, PAGE);
    memset(b, 0, PAGE);
    memset(c, 0, PAGE);
    T_OK(varve_unprotect(h, 1));
    T_OK(varve_unprotect(h, 3));
    T_OK(varve_restore(h, 1));
    ck_check(b, PAGE, 1, 2);
    for (int i = 0; i < PAGE; i++)
        T_CHECK(a[i] == 0 && c[i] == 0);

    T_OK(varve_protect(h, 9, a, PAGE));
    T_ERR(varve_restore(h, 1), -ESRCH);
    ck_error(ctx, -ESRCH, "no region 9");
    T_OK(varve_unprotect(h, 9));
    T_OK(varve_protect(h, 0, a, PAGE));
    T_ERR(varve_restore(h, 1), -ESRCH);
    ck_error(ctx, -ESRCH, "no region 0");
    T_OK(varve_unprotect(h, 0));
    T_OK(varve_protect(h, 2, b, PAGE - 1));
    T_ERR(varve_restore(h, 1), -ENOBUFS);
    ck_error(ctx, -ENOBUFS, "4096 bytes, the buffer only 4095");
    T_OK(varve_protect(h, 2, b, PAGE));
    T_OK(varve_restore(h, 1));
    size_t bytes;
    T_ERR(varve_region_size(h, 1, 77, &bytes), -ESRCH);
    T_ERR(varve_region_size(h, 2, 1, &bytes), -ENOENT);
    T_OK(varve_close(ctx));
}

/* Adjacent regions may be of different kinds: one copy across both would be refused. */
static void test_touching_regions(void)
{
    enum { BYTES = 1 << 16 };
    struct ck_cfg cfg = {.device = true, .device_cache = 16 * BYTES, .host_cache = 16 * BYTES};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "touching");
    char *buf = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *dev = ck_alloc(ctx, true, BYTES);

    T_CHECK(buf != MAP_FAILED);
    T_OK(vv_device_host_register(vv_ckpt_device(ctx), buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    ck_fill(buf + BYTES, BYTES, 1, 1);
    ck_fill(dev, BYTES, 1, 2);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_protect(h, 1, buf + BYTES, BYTES));
    T_OK(varve_protect(h, 2, dev, BYTES));
    T_OK(varve_checkpoint(h, 1));
    memset(buf, 0, 2 * BYTES);
    ck_set(dev, 0, BYTES);
    T_OK(varve_restore(h, 1));
    ck_check(buf, BYTES, 1, 0);
    ck_check(buf + BYTES, BYTES, 1, 1);
    ck_check(dev, BYTES, 1, 2);
    T_OK(vv_device_host_unregister(vv_ckpt_device(ctx), buf));
    ck_free(ctx, true, dev);
    T_OK(varve_close(ctx));
    munmap(buf, 2 * BYTES);
}

/* The n-th of `all` numbers: ascending, descending, or scattered. */
static int nth(int order, int n, int all)
{
    return order == 0 ? n : order == 1 ? all - 1 - n : (int)((unsigned)n * 7919u % (unsigned)all);
}

/* Many regions, protected and unprotected in any order. */
static void test_orders(void)
{
    enum { KEPT = 100 };
    const int many =
        t_sanitized() ? 5000 : 50000; /* a sanitizer looks at each call of the loader */
    struct ck_cfg cfg = {.host_cache = 64 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "orders");
    uint8_t *buf = malloc((size_t)many);
    T_CHECK(buf != NULL);
    for (int order = 0; order < 9; order++) {
        int up = order % 3, down = order / 3;
        for (int i = 0; i < many; i++) {
            buf[i] = (uint8_t)(i % 251 + order);
            T_OK(varve_protect(h, nth(up, i, many), &buf[nth(up, i, many)], 1));
        }
        for (int i = 0; i < many; i++)
            if (nth(down, i, many) % KEPT)
                T_OK(varve_unprotect(h, nth(down, i, many)));
        T_EQ(varve_unprotect(h, 1), -ENOENT);
        T_OK(varve_checkpoint_for(h, (uint64_t)order, CK_LIMIT_MS));
        memset(buf, 0, (size_t)many);
        T_OK(varve_restore_for(h, (uint64_t)order, CK_LIMIT_MS));
        for (int i = 0; i < many; i++)
            T_EQ(buf[i], i % KEPT ? 0 : (uint8_t)(i % 251 + order));
        size_t bytes = 0;
        T_OK(varve_region_size(h, (uint64_t)order, many - KEPT, &bytes));
        T_EQ(bytes, 1);
        T_EQ(varve_region_size(h, (uint64_t)order, many - 1, &bytes), -ESRCH);
        for (int i = 0; i < many; i += KEPT)
            T_OK(varve_unprotect(h, i));
        T_EQ(varve_checkpoint_for(h, 100, CK_LIMIT_MS), -ENODATA);
    }
    T_OK(varve_close(ctx));
    free(buf);
}

int main(void)
{
    ck_any_device();
    T_RUN(test_mixed);
    T_RUN(test_many);
    T_RUN(test_part);
    T_RUN(test_touching_regions);
    T_RUN(test_orders);
    return t_done();
}
