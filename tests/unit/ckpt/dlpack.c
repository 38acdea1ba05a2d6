/* SPDX-License-Identifier: Apache-2.0 */
/* Lent regions as DLPack tensors: their fields, that the last deleter releases the region, that a
 * history with tensors cannot be closed, and refused calls. */
#include <varve/dlpack.h>

#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/face.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, COLUMNS = 37, ROWS = 100, BYTES = COLUMNS * ROWS * 4 };

static const struct ck_cfg roomy = {
    .device = true, .device_cache = 64 * PAGE, .host_cache = 64 * PAGE};
static const int64_t shape[] = {ROWS, COLUMNS};
static const struct varve_dlpack_type floats = {2, 32, 1, 2, shape};

/* DLManagedTensor, by its ABI. */
struct managed {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
    void *manager_ctx;
    void (*deleter)(struct managed *self);
};

static struct varve_history *written(struct varve_ctx *ctx, int consume)
{
    struct varve_history_opts opts;
    struct varve_history *h;
    char *buf = ck_alloc(ctx, true, BYTES);
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.consume = consume;
    T_OK(varve_history_open_with(ctx, "tensors", &opts, &h));
    T_OK(varve_protect(h, 5, buf, BYTES));
    for (uint64_t v = 0; v < 3; v++) {
        ck_fill(buf, BYTES, v, 5);
        T_OK(varve_checkpoint(h, v));
    }
    ck_free(ctx, true, buf);
    return h;
}

static struct managed *take(struct varve_history *h, uint64_t version)
{
    void *tensor = NULL;
    T_OK(varve_acquire_dlpack(h, version, 5, NULL, CK_LIMIT_MS, &floats, &tensor));
    ck_stream_sync(vv_ckpt_device(varve_history_ctx(h)), NULL);
    return tensor;
}

static void test_tensor(void)
{
    struct varve_ctx *ctx = ck_open(&roomy);
    struct varve_history *h = written(ctx, VARVE_CONSUME_KEEP);
    struct managed *t = take(h, 1);
    T_EQ(t->device_type, 1); /* the emulated device's memory is the host's */
    T_EQ(t->ndim, 2);
    T_EQ(t->shape[0], ROWS);
    T_EQ(t->shape[1], COLUMNS);
    T_CHECK(!t->strides && t->byte_offset == 0 && t->shape != shape);
    T_EQ(t->code, 2);
    T_EQ(t->bits, 32);
    T_EQ(t->lanes, 1);
    T_CHECK(ck_same(t->data, BYTES, 1, 5));
    t->deleter(t);
    T_OK(varve_close(ctx));
}

static void test_last_one_releases(void)
{
    struct varve_ctx *ctx = ck_open(&roomy);
    struct varve_history *h = written(ctx, VARVE_CONSUME_ONCE);
    struct managed *first = take(h, 2);
    void *second = NULL, *third = NULL;
    T_OK(varve_dlpack_share(first, &second));
    T_OK(varve_dlpack_share(second, &third));
    T_CHECK(((struct managed *)third)->shape[1] == COLUMNS);
    first->deleter(first);
    varve_dlpack_delete(third);
    T_ERR(varve_acquire_dlpack(h, 2, 5, NULL, 0, &floats, &third), -EBUSY);
    T_ERR(varve_history_close(h), -EBUSY);
    T_ERR(varve_close(ctx), -EBUSY);
    T_CHECK(ck_same(((struct managed *)second)->data, BYTES, 2, 5));
    T_EQ(ck_count(h), 3);
    varve_dlpack_delete(second);
    /* Consumed once the watcher has seen that the stream has reached the release. */
    for (int i = 0; ck_count(h) != 2 && i < CK_LIMIT_MS; i++)
        usleep(1000);
    T_EQ(ck_count(h), 2);
    varve_dlpack_delete(NULL);
    T_OK(varve_close(ctx));
}

static void test_refused(void)
{
    struct varve_ctx *ctx = ck_open(&roomy);
    struct varve_history *h = written(ctx, VARVE_CONSUME_KEEP);
    const int64_t negative[] = {-ROWS, COLUMNS}, huge[] = {INT64_MAX, INT64_MAX};
    const struct varve_dlpack_type bad[] = {
        {2, 32, 1, 1, shape},    {2, 64, 1, 2, shape}, {2, 0, 1, 2, shape}, {2, 32, 0, 2, shape},
        {2, 32, 1, 2, negative}, {2, 32, 1, 2, huge},  {2, 32, 1, 2, NULL}, {2, 4, 1, 2, shape},
        {2, 32, 1, 65, shape},   {2, 32, 1, -1, shape}};
    void *tensor = NULL;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        T_ERR(varve_acquire_dlpack(h, 0, 5, NULL, 0, &bad[i], &tensor), -EINVAL);
    T_ERR(varve_acquire_dlpack(h, 0, 5, NULL, 0, NULL, &tensor), -EINVAL);
    T_ERR(varve_acquire_dlpack(NULL, 0, 5, NULL, 0, &floats, &tensor), -EINVAL);
    T_ERR(varve_acquire_dlpack(h, 0, 4, NULL, 0, &floats, &tensor), -ESRCH);
    T_ERR(varve_acquire_dlpack(h, 9, 5, NULL, 0, &floats, &tensor), -ENOENT);
    T_ERR(varve_dlpack_share(NULL, &tensor), -EINVAL);
    T_CHECK(!tensor);
    T_OK(varve_close(ctx));
}

/* The child's deleter leaves the parent's memory alone. */
static void test_fork(void)
{
    struct varve_ctx *ctx = ck_open(&roomy);
    struct varve_history *h = written(ctx, VARVE_CONSUME_KEEP);
    struct managed *t = take(h, 0);
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        t->deleter(t);
        _exit(0);
    }
    T_EQ(waitpid(pid, &status, 0), pid);
    T_EQ(status, 0);
    T_CHECK(ck_same(t->data, BYTES, 0, 5));
    t->deleter(t);
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(test_tensor);
    T_RUN(test_last_one_releases);
    T_RUN(test_refused);
    T_RUN(test_fork);
    return t_done();
}
