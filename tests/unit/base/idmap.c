/* SPDX-License-Identifier: Apache-2.0 */
/* Records found by their id, compared with an array that has a place for each. */
#include "base/idmap.h"

#include "t.h"

enum { IDS = 300, STEPS = 20000 };

struct record {
    int id;
    uint64_t value;
};

static uint64_t random_below(uint64_t *state, uint64_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % n;
}

/* Ids of either sign, and some that differ in few bits only. */
static int id_of(uint64_t i)
{
    return (int)(i % 3 == 0 ? i << 16 : i) * (i % 2 ? 1 : -1);
}

static void sorted_and_all_there(struct vv_idmap *map, const uint64_t *value)
{
    const struct record *r;
    size_t n = 0;

    vv_idmap_sort(map);
    r = map->v;
    for (size_t i = 1; i < map->n; i++)
        T_CHECK(r[i - 1].id < r[i].id);
    for (uint64_t i = 0; i < IDS; i++) {
        r = vv_idmap_find(map, id_of(i));
        T_CHECK((r != NULL) == (value[i] != 0));
        T_CHECK(!r || (r->id == id_of(i) && r->value == value[i]));
        n += r != NULL;
    }
    T_EQ(map->n, n);
}

static void test_random(void)
{
    static uint64_t value[IDS];
    struct vv_idmap map = {.bytes = sizeof(struct record)};
    uint64_t state = 1;

    T_CHECK(vv_idmap_find(&map, 0) == NULL);
    for (uint64_t step = 1; step <= STEPS; step++) {
        /* From ranges that become larger and start again. */
        uint64_t i = random_below(&state, step * 3 % IDS + 1);
        struct record *there = vv_idmap_find(&map, id_of(i));

        T_CHECK((there != NULL) == (value[i] != 0));
        value[i] = there && random_below(&state, 3) ? 0 : step;
        if (there && value[i])
            there->value = step;
        else if (there)
            vv_idmap_remove(&map, id_of(i));
        else
            T_OK(vv_idmap_add(&map, &(struct record){id_of(i), step}));
        if (random_below(&state, 4) == 0)
            sorted_and_all_there(&map, value);
    }
    vv_idmap_fini(&map);
}

int main(void)
{
    T_RUN(test_random);
    return t_done();
}
