/* SPDX-License-Identifier: Apache-2.0 */
/* The hash table, compared with an array that has a place for each item. */
#include <stdbool.h>
#include <stdlib.h>

static bool no_memory;

static void *calloc_or_not(size_t n, size_t bytes)
{
    return no_memory ? NULL : calloc(n, bytes);
}

#define calloc calloc_or_not
#include "base/table.h"
#undef calloc

#include "t.h"

enum { ITEMS = 5000, STEPS = 100000 };

struct thing {
    VV_TABLE_ITEM(key);
    bool in;
    unsigned seen;
};

static struct thing things[ITEMS];

static uint64_t random_below(uint64_t *state, uint64_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % n;
}

/* Three items in ten share a key with another one; the others have consecutive keys or are far apart. */
static void things_init(void)
{
    for (uint64_t i = 0; i < ITEMS; i++)
        things[i] = (struct thing){.key = i % 10 < 3 ? i / 10 : i % 2 ? i << 20 : i << 52 | i};
}

static bool found(const struct vv_table *t, const struct thing *x)
{
    for (const struct thing *y = vv_table_find(t, x->key); y; y = vv_table_same(y)) {
        T_EQ(y->key, x->key);
        if (y == x)
            return true;
    }
    return false;
}

/* Each item is found by its key, and once on the way through all of them. */
static void all_there(const struct vv_table *t)
{
    size_t in = 0, passed = 0;

    for (struct thing *x = vv_table_first(t); x; x = vv_table_next(t, x), passed++)
        x->seen++;
    for (size_t i = 0; i < ITEMS; i++) {
        T_EQ(found(t, &things[i]), things[i].in);
        T_EQ(things[i].seen, things[i].in);
        things[i].seen = 0;
        in += things[i].in;
    }
    T_EQ(t->n, in);
    T_EQ(passed, in);
}

static void steps(struct vv_table *t)
{
    uint64_t state = 1;

    for (uint64_t step = 1; step <= STEPS; step++) {
        /* From ranges that become larger and start again. */
        struct thing *x = &things[random_below(&state, step * 3 % ITEMS + 1)];

        if (x->in)
            T_CHECK(vv_table_remove(t, x));
        else
            vv_table_add(t, x);
        x->in = !x->in;
        if (random_below(&state, 1000) == 0)
            all_there(t);
    }
}

static void test_random(void)
{
    struct vv_table t = {0};

    things_init();
    T_CHECK(vv_table_find(&t, 0) == NULL && vv_table_first(&t) == NULL);
    T_CHECK(!vv_table_remove(&t, &things[0]));
    steps(&t);
    T_CHECK(3 * vv_table_chains(&t) >= 4 * t.n && 3 * vv_table_chains(&t) <= 8 * ITEMS);
    vv_table_fini(&t);
}

/* Keys at equal distances, as versions and addresses are, spread over the chains: on average fewer than two
 * items are looked at. Those that follow one another have chains side by side. */
static void test_regular_keys(void)
{
    static const uint64_t distance[] = {1, 2, 3, 4, 5, 7, 8, 10, 16, 64, 100, 1000, 4096};

    for (size_t d = 0; d < sizeof(distance) / sizeof(distance[0]); d++) {
        struct vv_table t = {0};
        size_t looks = 0;

        for (size_t i = 0; i < ITEMS; i++) {
            things[i] = (struct thing){.key = i * distance[d]};
            vv_table_add(&t, &things[i]);
        }
        for (size_t i = 0; i < ITEMS; i++)
            for (const struct vv_table_item *it = *vvi_table_chain_of(&t, things[i].key); it;
                 it = it->key == things[i].key ? NULL : it->next)
                looks++;
        T_CHECK(looks < (size_t)2 * ITEMS);
        vv_table_fini(&t);
    }
    struct vv_table t = {0};
    for (size_t i = 0; i < ITEMS; i++)
        vv_table_add(&t, &things[i]);
    for (uint64_t key = 0; key < ITEMS; key++) {
        size_t a = (size_t)(vvi_table_chain_of(&t, key) - t.chain);
        size_t b = (size_t)(vvi_table_chain_of(&t, key / 8 * 8) - t.chain);
        T_EQ(a / 8, b / 8);
    }
    vv_table_fini(&t);
}

/* Without memory there is one chain, and everything is in it. With memory again there are more. */
static void test_no_memory(void)
{
    struct vv_table t = {0};

    things_init();
    no_memory = true;
    for (size_t i = 0; i < 300; i++) {
        vv_table_add(&t, &things[i]);
        things[i].in = true;
    }
    no_memory = false;
    all_there(&t);
    T_EQ(vv_table_chains(&t), 1);
    vv_table_add(&t, &things[300]);
    things[300].in = true;
    all_there(&t);
    T_CHECK(vv_table_chains(&t) > 1);
    vv_table_fini(&t);
}

/* Iteration continues after the current item is removed. */
static void test_empty_out(void)
{
    struct vv_table t = {0};

    things_init();
    for (size_t i = 0; i < ITEMS; i++)
        vv_table_add(&t, &things[i]);
    for (struct thing *x = vv_table_first(&t), *next; x; x = next) {
        next = vv_table_next(&t, x);
        T_CHECK(vv_table_remove(&t, x));
    }
    all_there(&t);
    for (size_t i = 0; i < ITEMS; i++)
        vv_table_add(&t, &things[i]);
    vv_table_clear(&t);
    all_there(&t);
    steps(&t);
    vv_table_fini(&t);
    T_CHECK(vv_table_first(&t) == NULL && t.n == 0);
}

/* Items of malloc: the sanitizers check that all are freed. */
static void test_fini_items(void)
{
    struct vv_table t = {0};

    for (uint64_t i = 0; i < 100; i++) {
        struct thing *x = malloc(sizeof(*x));

        T_CHECK(x != NULL);
        *x = (struct thing){.key = i / 2};
        vv_table_add(&t, x);
    }
    vv_table_fini_items(&t);
    T_CHECK(vv_table_first(&t) == NULL && t.n == 0);
}

int main(void)
{
    T_RUN(test_random);
    T_RUN(test_regular_keys);
    T_RUN(test_no_memory);
    T_RUN(test_empty_out);
    T_RUN(test_fini_items);
    return t_done();
}
