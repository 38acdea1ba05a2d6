/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors in C: growth, records, ownership of memory, and misuse. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/vector.h>

#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, MIB = 1 << 20 };

static struct varve_history *store(struct varve_ctx *ctx, const char *name, int order, int consume)
{
    struct varve_history_opts o;
    struct varve_history *h = NULL;
    T_OK(varve_history_opts_init(&o, sizeof(o)));
    o.order = order;
    o.consume = consume;
    T_OK(varve_history_open_with(ctx, name, &o, &h));
    return h;
}

static struct varve_vector *vector(struct varve_history *h, size_t count)
{
    struct varve_vector *v = NULL;
    T_OK(varve_vector_new(h, sizeof(uint64_t), count, &v));
    return v;
}

static void fill(struct varve_vector *v, uint64_t id)
{
    for (size_t i = 0; i < v->size; i++)
        VARVE_AT(v, uint64_t, i) = id * 1000003 + i;
}

static bool holds(const struct varve_vector *v, size_t count, uint64_t id)
{
    if (v->size != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (VARVE_VECTOR(v, uint64_t)[i] != id * 1000003 + i)
            return false;
    return true;
}

static struct varve_stats stats_of(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    return s;
}

static uint64_t copied(struct varve_ctx *ctx)
{
    return stats_of(ctx).moved_bytes[VARVE_HOP_H2H];
}

static void grows_and_shrinks(void)
{
    struct varve_ctx *ctx = ck_open(&(struct ck_cfg){.host_cache = MIB});
    struct varve_history *h = store(ctx, "v", VARVE_ORDER_HINTS, VARVE_CONSUME_KEEP);
    struct varve_vector *v = vector(h, 0);
    T_CHECK(!v->data && v->size == 0 && v->capacity == 0 && v->elem_bytes == 8);
    T_EQ(stats_of(ctx).tier_used_bytes[0], 0);
    for (uint64_t i = 0; i < 3000; i++) {
        uint64_t x = 7 * 1000003 + i;
        T_OK(varve_vector_push_back(v, &x));
        T_CHECK(v->size == i + 1 && v->capacity >= v->size);
        T_EQ((uintptr_t)v->data % 64, 0);
    }
    T_CHECK(holds(v, 3000, 7));
    /* Its memory is the cache's. */
    T_CHECK(stats_of(ctx).tier_used_bytes[0] >= v->capacity * 8);
    T_OK(varve_vector_resize(v, 3500));
    for (size_t i = 3000; i < 3500; i++)
        T_EQ(VARVE_AT(v, uint64_t, i), 0);
    T_OK(varve_vector_resize(v, 10));
    T_CHECK(v->capacity >= 3500);
    T_OK(varve_vector_resize(v, 20)); /* what was there before is gone */
    T_EQ(VARVE_AT(v, uint64_t, 9), 7 * 1000003 + 9);
    T_EQ(VARVE_AT(v, uint64_t, 10), 0);
    T_OK(varve_vector_shrink(v));
    T_EQ(v->capacity, PAGE / 8);
    T_EQ(stats_of(ctx).tier_used_bytes[0], PAGE);
    T_EQ(VARVE_AT(v, uint64_t, 9), 7 * 1000003 + 9);
    T_OK(varve_vector_reserve(v, 5000));
    T_CHECK(v->size == 20 && v->capacity >= 5000);
    void *data = v->data;
    T_OK(varve_vector_reserve(v, 100));
    T_CHECK(v->data == data);
    T_OK(varve_vector_resize(v, 0));
    T_OK(varve_vector_shrink(v));
    T_CHECK(!v->data && v->capacity == 0);
    T_EQ(stats_of(ctx).tier_used_bytes[0], 0);
    varve_vector_free(v);
    T_OK(varve_close(ctx));
}

/* An element of the vector itself may be appended, whether or not the memory moves. */
static void appends_its_own(void)
{
    struct varve_ctx *ctx = ck_open(&(struct ck_cfg){.host_cache = MIB});
    struct varve_history *h = store(ctx, "v", VARVE_ORDER_HINTS, VARVE_CONSUME_KEEP);
    struct varve_vector *v = vector(h, 1);
    VARVE_AT(v, uint64_t, 0) = 42;
    while (v->size < 2000)
        T_OK(varve_vector_push_back(v, &VARVE_AT(v, uint64_t, v->size - 1)));
    for (size_t i = 0; i < v->size; i++)
        T_EQ(VARVE_AT(v, uint64_t, i), 42);
    varve_vector_free(v);
    T_OK(varve_close(ctx));
}

/* Records of any sizes, in the three orders, through memory that holds a few of them. */
static void writes_and_reads(void)
{
    for (int order = VARVE_ORDER_HINTS; order <= VARVE_ORDER_LIFO; order++) {
        for (int consume = VARVE_CONSUME_KEEP; consume <= VARVE_CONSUME_ONCE; consume++) {
            struct varve_ctx *ctx =
                ck_open(&(struct ck_cfg){.host_cache = 64 * PAGE, .local = t_tmpdir(), .level = 0});
            struct varve_history *h = store(ctx, "v", order, consume);
            struct varve_vector *v = vector(h, 0);
            enum { N = 40 };
            for (uint64_t i = 0; i < N; i++) {
                T_OK(varve_vector_resize(v, 512 + 700 * (i % 4)));
                fill(v, i);
                if (i % 3)
                    T_OK(varve_vector_write(v, i));
                else
                    T_OK(varve_vector_write_move(v, i));
                T_EQ(v->size, i % 3 ? 512 + 700 * (i % 4) : 0);
            }
            T_EQ(ck_count(h), N);
            for (uint64_t k = 0; k < N; k++) {
                uint64_t i = order == VARVE_ORDER_FIFO ? k : N - 1 - k;
                T_OK(varve_vector_read(v, i));
                T_CHECK(holds(v, 512 + 700 * (i % 4), i));
                fill(v, 99); /* a separate record after each write */
            }
            T_EQ(ck_count(h), consume == VARVE_CONSUME_ONCE ? 0 : N);
            for (uint64_t i = 0; i < N && consume == VARVE_CONSUME_KEEP; i++) {
                T_OK(varve_vector_read(v, i));
                T_CHECK(holds(v, 512 + 700 * (i % 4), i));
                fill(v, 99);
            }
            T_ERR(varve_vector_read(v, N), -ENOENT);
            varve_vector_free(v);
            T_OK(varve_close(ctx));
        }
    }
}

/* write_move moves the memory into the record, and reading moves it back: no byte is copied. */
static void memory_changes_hands(void)
{
    struct varve_ctx *ctx = ck_open(&(struct ck_cfg){.host_cache = MIB});
    struct varve_history *h = store(ctx, "v", VARVE_ORDER_LIFO, VARVE_CONSUME_ONCE);
    struct varve_vector *v = vector(h, 3000);
    fill(v, 1);
    void *data = v->data;
    uint64_t before = copied(ctx);
    T_OK(varve_vector_write_move(v, 1));
    T_CHECK(!v->data && v->size == 0 && v->capacity == 0);
    T_OK(varve_vector_resize(v, 10)); /* what it has is given back in exchange */
    T_OK(varve_vector_read(v, 1));
    T_CHECK(v->data == data && holds(v, 3000, 1));
    T_EQ(copied(ctx), before);
    T_EQ(ck_count(h), 0);
    T_EQ(stats_of(ctx).tier_used_bytes[0], v->capacity * 8);
    T_OK(varve_vector_write(v, 2)); /* a copy, */
    T_EQ(copied(ctx), before + 24000);
    data = v->data;
    T_OK(varve_vector_read(v, 2)); /* and no other */
    T_CHECK(v->data != data && holds(v, 3000, 1));
    T_EQ(copied(ctx), before + 24000);
    T_EQ(stats_of(ctx).restores, 2);
    varve_vector_free(v);
    T_EQ(stats_of(ctx).tier_used_bytes[0], 0);
    T_OK(varve_close(ctx));
}

/* The only copy of a record that is kept is not given to the vector; a copy with another one below is. */
static void keeps_the_only_copy(void)
{
    for (int disk = 0; disk < 2; disk++) {
        struct varve_ctx *ctx = ck_open(&(struct ck_cfg){.host_cache = MIB,
                                                         .local = disk ? t_tmpdir() : NULL,
                                                         .level = disk ? VARVE_LEVEL_LOCAL : 0});
        struct varve_history *h = store(ctx, "v", VARVE_ORDER_HINTS, VARVE_CONSUME_KEEP);
        struct varve_vector *v = vector(h, 3000);
        fill(v, 1);
        T_OK(varve_vector_write_move(v, 1));
        T_OK(varve_flush(h, CK_LIMIT_MS));
        uint64_t before = copied(ctx);
        T_OK(varve_vector_read(v, 1));
        T_CHECK(holds(v, 3000, 1));
        T_EQ(copied(ctx) - before, disk ? 0 : 24000);
        fill(v, 5);
        T_OK(varve_vector_read(v, 1));
        T_CHECK(holds(v, 3000, 1));
        varve_vector_free(v);
        T_OK(varve_close(ctx));
    }
}

/* A record that is hinted again stays where it is. */
static void hinted_again(void)
{
    struct varve_ctx *ctx = ck_open(
        &(struct ck_cfg){.host_cache = MIB, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL});
    struct varve_history *h = store(ctx, "v", VARVE_ORDER_HINTS, VARVE_CONSUME_KEEP);
    struct varve_vector *v = vector(h, 3000);
    fill(v, 1);
    T_OK(varve_hint(h, 1));
    T_OK(varve_hint(h, 1));
    T_OK(varve_vector_write_move(v, 1));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    uint64_t before = copied(ctx);
    T_OK(varve_vector_read(v, 1));
    T_EQ(copied(ctx) - before, 24000);
    T_OK(varve_vector_read(v, 1)); /* the last time that is known of */
    T_EQ(copied(ctx) - before, 24000);
    T_CHECK(holds(v, 3000, 1));
    varve_vector_free(v);
    T_OK(varve_close(ctx));
}

static void copies(void)
{
    struct varve_ctx *ctx = ck_open(&(struct ck_cfg){.host_cache = MIB});
    struct varve_history *h = store(ctx, "v", VARVE_ORDER_HINTS, VARVE_CONSUME_KEEP);
    struct varve_vector *v = vector(h, 3000), *w = NULL, *none = NULL, *empty = vector(h, 0);
    fill(v, 1);
    T_OK(varve_vector_copy(v, &w));
    fill(v, 2);
    T_CHECK(holds(w, 3000, 1) && holds(v, 3000, 2) && w->data != v->data);
    T_OK(varve_vector_copy(empty, &none));
    T_CHECK(none->size == 0 && !none->data);
    varve_vector_free(none);
    varve_vector_free(empty);
    varve_vector_free(w);
    varve_vector_free(v);
    varve_vector_free(NULL);
    T_OK(varve_close(ctx));
}

/* Records outlive the process, and are versions like any others. */
static void across_contexts(void)
{
    struct ck_cfg cfg = {.host_cache = MIB, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = store(ctx, "v", VARVE_ORDER_LIFO, VARVE_CONSUME_KEEP);
    struct varve_vector *v = vector(h, 100);
    for (uint64_t i = 0; i < 8; i++) {
        fill(v, i);
        T_OK(varve_vector_write(v, i));
    }
    varve_vector_free(v);
    T_OK(varve_close(ctx));

    ctx = ck_open(&cfg);
    h = store(ctx, "v", VARVE_ORDER_LIFO, VARVE_CONSUME_KEEP);
    uint64_t plain[100];
    T_OK(varve_protect(h, 0, plain, sizeof(plain)));
    T_OK(varve_restore(h, 3));
    T_EQ(plain[5], 3 * 1000003 + 5);
    T_OK(varve_checkpoint(h, 8));
    v = vector(h, 0);
    for (uint64_t i = 8; i-- > 0;) {
        T_OK(varve_vector_read(v, i));
        T_CHECK(holds(v, 100, i));
    }
    T_OK(varve_vector_read(v, 8));
    T_CHECK(holds(v, 100, 3));
    varve_vector_free(v);
    T_OK(varve_close(ctx));
}

static void overwrites(void)
{
    struct varve_ctx *ctx = ck_open(
        &(struct ck_cfg){.host_cache = MIB, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL});
    struct varve_history_opts o;
    struct varve_history *h = NULL;
    T_OK(varve_history_opts_init(&o, sizeof(o)));
    o.overwrite = 1;
    T_OK(varve_history_open_with(ctx, "v", &o, &h));
    struct varve_vector *v = vector(h, 100);
    for (uint64_t i = 1; i < 5; i++) {
        T_OK(varve_vector_resize(v, 100 * i));
        fill(v, i);
        if (i % 2)
            T_OK(varve_vector_write(v, 0));
        else
            T_OK(varve_vector_write_move(v, 0));
        T_OK(varve_vector_read(v, 0));
        T_CHECK(holds(v, 100 * i, i));
    }
    varve_vector_free(v);
    T_OK(varve_close(ctx));
}

/* Elements of another size are refused, on every tier and in every process. A record that no
 * vector wrote, or with elements of 4 GiB, is checked by its size in bytes. */
static void elements_are_known(void)
{
    struct ck_cfg cfg = {.host_cache = MIB, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    char index[4200];
    snprintf(index, sizeof(index), "%s/v/index.0", cfg.local);
    /* The run that writes; one that reads the index; one that reads the files. */
    for (int life = 0; life < 3; life++) {
        if (life == 2)
            T_OK(unlink(index));
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = store(ctx, "v", VARVE_ORDER_HINTS, VARVE_CONSUME_KEEP);
        struct varve_vector *v = vector(h, 3000), *w = NULL;
        uint64_t plain[12] = {1000003 * 4};
        T_OK(varve_protect(h, 0, plain, sizeof(plain)));
        for (uint64_t i = 1; i <= 3 && life == 0; i++) {
            T_OK(varve_vector_resize(v, 3000));
            fill(v, i);
            if (i == 1)
                T_OK(varve_vector_write(v, i));
            else
                T_OK(varve_vector_write_move(v, i));
        }
        if (life == 0)
            T_OK(varve_checkpoint(h, 4));
        T_OK(varve_flush(h, CK_LIMIT_MS));
        T_OK(varve_vector_new(h, 4, 0, &w));
        for (uint64_t i = 1; i <= 3; i++) {
            T_ERR(varve_vector_read(w, i), -EINVAL);
            ck_error(ctx, -EINVAL, "elements of 8 bytes, those of the vector have 4");
            T_CHECK(!w->data);
            T_OK(varve_vector_read(v, i));
            T_CHECK(holds(v, 3000, i));
        }
        T_OK(varve_vector_read(w, 4));
        T_EQ(w->size, 24);
        varve_vector_free(w);
        T_OK(varve_vector_new(h, 5, 0, &w));
        T_ERR(varve_vector_read(w, 4), -EINVAL);
        ck_error(ctx, -EINVAL, "not a multiple");
        varve_vector_free(w);
        varve_vector_free(v);
        T_OK(varve_close(ctx));
    }
}

/* A vector without elements makes a record without elements, in memory or on disk. */
static void empty_records(void)
{
    struct ck_cfg cfg = {.host_cache = MIB, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    for (int life = 0; life < 2; life++) {
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h =
            store(ctx, "v", VARVE_ORDER_LIFO, life ? VARVE_CONSUME_ONCE : VARVE_CONSUME_KEEP);
        struct varve_vector *v = vector(h, 0), *w = NULL;
        if (life == 0) {
            T_OK(varve_vector_write(v, 1));
            T_OK(varve_vector_write_move(v, 2));
            T_OK(varve_vector_resize(v, 10));
            T_OK(varve_vector_resize(v, 0));
            T_ERR(varve_vector_write_move(v, 2), -EEXIST);
            T_CHECK(v->data != NULL); /* a call that fails changes nothing */
            T_OK(varve_vector_write_move(v, 3));
            T_CHECK(!v->data && v->capacity == 0);
        }
        T_OK(varve_flush(h, CK_LIMIT_MS));
        T_EQ(ck_count(h), 3);
        T_OK(varve_vector_new(h, 4, 5, &w));
        T_ERR(varve_vector_read(w, 1), -EINVAL);
        T_EQ(w->size, 5);
        for (uint64_t i = 3; i > 0; i--) {
            T_OK(varve_vector_resize(v, i == 1 ? 0 : 10));
            T_OK(varve_vector_read(v, i));
            T_EQ(v->size, 0);
            T_OK(varve_vector_push_back(v, &i));
            T_EQ(VARVE_AT(v, uint64_t, 0), i);
        }
        T_EQ(ck_count(h), life ? 0 : 3);
        varve_vector_free(w);
        varve_vector_free(v);
        T_OK(varve_close(ctx));
    }
}

static void in_a_child(struct varve_vector *v)
{
    uint64_t x = 1;
    pid_t pid = fork();
    T_CHECK(pid >= 0);
    if (pid == 0) {
        bool refused = varve_vector_write(v, 9) == -EPERM && varve_vector_read(v, 1) == -EPERM &&
                       varve_vector_resize(v, 1 << 16) == -EPERM &&
                       varve_vector_push_back(v, &x) == -EPERM;
        varve_vector_free(v);
        _exit(refused ? 0 : 1);
    }
    int status = 0;
    T_EQ(waitpid(pid, &status, 0), pid);
    T_EQ(status, 0);
}

static void misuse(void)
{
    struct varve_ctx *ctx = ck_open(&(struct ck_cfg){.host_cache = 64 * PAGE});
    struct varve_history *h = store(ctx, "v", VARVE_ORDER_FIFO, VARVE_CONSUME_KEEP);
    struct varve_vector *v = vector(h, 100), *w = NULL;
    uint64_t x = 1;
    T_ERR(varve_vector_new(NULL, 8, 1, &w), -EINVAL);
    T_ERR(varve_vector_new(h, 0, 1, &w), -EINVAL);
    ck_error(ctx, -EINVAL, "1 byte");
    T_ERR(varve_vector_new(h, 8, 1, NULL), -EINVAL);
    T_ERR(varve_vector_new(h, 8, SIZE_MAX / 4, &w), -ENOSPC);
    T_ERR(varve_vector_new(h, 8, 33 * PAGE / 8, &w), -ENOSPC);
    ck_error(ctx, -ENOSPC, "set host_cache = 264K");
    T_ERR(varve_vector_copy(NULL, &w), -EINVAL);
    T_ERR(varve_vector_copy(v, NULL), -EINVAL);
    T_ERR(varve_vector_resize(NULL, 1), -EINVAL);
    T_ERR(varve_vector_reserve(NULL, 1), -EINVAL);
    T_ERR(varve_vector_shrink(NULL), -EINVAL);
    T_ERR(varve_vector_push_back(NULL, &x), -EINVAL);
    T_ERR(varve_vector_push_back(v, NULL), -EINVAL);
    T_ERR(varve_vector_write(NULL, 1), -EINVAL);
    T_ERR(varve_vector_write_move(NULL, 1), -EINVAL);
    T_ERR(varve_vector_read(NULL, 1), -EINVAL);
    T_ERR(varve_vector_attach(NULL, &x, NULL), -EINVAL);
    T_CHECK(!varve_vector_attached(NULL) && !varve_vector_attached(v));
    T_CHECK(!VARVE_VECTOR(v, float) && VARVE_VECTOR(v, double));

    fill(v, 1);
    T_OK(varve_vector_write(v, 1));
    T_ERR(varve_vector_write(v, 1), -EEXIST);
    ck_error(ctx, -EEXIST, "by another of its history");
    ck_error(ctx, -EEXIST, "a history of its own");
    T_OK(varve_vector_reserve(v, 2000));
    size_t capacity = v->capacity;
    T_ERR(varve_vector_write_move(v, 1), -EEXIST);
    T_CHECK(holds(v, 100, 1) && v->capacity == capacity); /* its memory was not moved */
    T_ERR(varve_hint(h, 1), -EINVAL);
    ck_error(ctx, -EINVAL, "declared");
    T_ERR(varve_vector_read(v, 2), -ENOENT);
    T_CHECK(holds(v, 100, 1));
    T_OK(varve_vector_new(h, 24, 0, &w));
    T_ERR(varve_vector_read(w, 1), -EINVAL);
    ck_error(ctx, -EINVAL, "elements of 8 bytes, those of the vector have 24");
    varve_vector_free(w);
    in_a_child(v);

    T_ERR(varve_history_close(h), -EBUSY);
    T_ERR(varve_close(ctx), -EBUSY);
    ck_error(NULL, -EBUSY, "1 vector has memory");
    varve_vector_free(v);
    T_OK(varve_close(ctx));

    struct varve_history_opts o;
    ctx = ck_open(&(struct ck_cfg){.device = true, .device_cache = MIB, .host_cache = MIB});
    T_OK(varve_history_opts_init(&o, sizeof(o)));
    o.order = 3;
    T_ERR(varve_history_open_with(ctx, "v", &o, &h), -EINVAL);
    h = store(ctx, "v", 0, 0);
    T_ERR(varve_vector_new(h, 8, 1, &w), -ENOTSUP);
    T_OK(varve_close(ctx));
}

/* Growth beyond the available memory leaves the vector unchanged. */
static void no_room_to_grow(void)
{
    struct varve_ctx *ctx = ck_open(&(struct ck_cfg){.host_cache = 64 * PAGE});
    struct varve_history *h = store(ctx, "v", VARVE_ORDER_HINTS, VARVE_CONSUME_KEEP);
    struct varve_vector *v = vector(h, 16 * PAGE / 8);
    fill(v, 1);
    T_ERR(varve_vector_resize(v, 17 * PAGE / 8), -ENOSPC); /* both would be 33 pages of 64 */
    T_CHECK(holds(v, 16 * PAGE / 8, 1));
    T_OK(varve_vector_resize(v, 16));
    T_OK(varve_vector_shrink(v));
    T_OK(varve_vector_resize(v, 17 * PAGE / 8));
    fill(v, 2);
    T_OK(varve_vector_write(v, 2));
    T_OK(varve_vector_resize(v, 8));
    T_OK(varve_vector_shrink(v));
    T_OK(varve_vector_resize(v, 16 * PAGE / 8));
    T_OK(varve_vector_read(v, 2)); /* its old memory is given back first */
    T_CHECK(holds(v, 17 * PAGE / 8, 2));
    uint64_t x = 0;
    T_OK(varve_vector_resize(v, v->capacity));
    T_ERR(varve_vector_push_back(v, &x), -ENOSPC);
    T_EQ(v->size, 17 * PAGE / 8);
    T_ERR(varve_vector_resize_for(v, 18 * PAGE / 8, 0), -ENOSPC);
    varve_vector_free(v);
    T_OK(varve_close(ctx));
}

static unsigned released;

static void release(void *what)
{
    released += *(unsigned *)what;
}

static void belongings(void)
{
    struct varve_ctx *ctx = ck_open(&(struct ck_cfg){.host_cache = MIB});
    struct varve_history *h = store(ctx, "v", VARVE_ORDER_HINTS, VARVE_CONSUME_KEEP);
    struct varve_vector *v = vector(h, 1), *w = NULL;
    unsigned one = 1, ten = 10;
    T_OK(varve_vector_attach(v, &one, release));
    T_CHECK(varve_vector_attached(v) == &one);
    T_OK(varve_vector_copy(v, &w));
    T_CHECK(!varve_vector_attached(w));
    T_OK(varve_vector_attach(v, &ten, release));
    T_EQ(released, 1);
    varve_vector_free(w);
    varve_vector_free(v);
    T_EQ(released, 11);
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(grows_and_shrinks);
    T_RUN(appends_its_own);
    T_RUN(writes_and_reads);
    T_RUN(memory_changes_hands);
    T_RUN(keeps_the_only_copy);
    T_RUN(hinted_again);
    T_RUN(copies);
    T_RUN(across_contexts);
    T_RUN(overwrites);
    T_RUN(elements_are_known);
    T_RUN(empty_records);
    T_RUN(misuse);
    T_RUN(no_room_to_grow);
    T_RUN(belongings);
    return t_done();
}
