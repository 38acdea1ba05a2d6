/* SPDX-License-Identifier: Apache-2.0 */
/* The heap against an array that is searched from end to end. */
#include "base/heap.h"

#include "t.h"

#define ELEMENTS 60

struct element {
    uint64_t key;
    uint32_t pos;
};

static uint64_t random_below(uint64_t *state, uint64_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % n;
}

static void check(const struct vv_heap *heap, const struct element *e)
{
    const struct element *top = vv_heap_top(heap);
    uint32_t in = 0;

    for (int i = 0; i < ELEMENTS; i++) {
        if (e[i].pos == VV_HEAP_OUT)
            continue;
        in++;
        T_CHECK(heap->item[e[i].pos].value == &e[i]);
        T_CHECK(heap->item[e[i].pos].key == e[i].key);
        T_CHECK(top && top->key >= e[i].key);
    }
    T_EQ(heap->n, in);
    T_CHECK((top == NULL) == (in == 0));
}

static void as_an_array(void)
{
    struct vv_heap heap = {0};
    struct element e[ELEMENTS];
    uint64_t state = 7, last = UINT64_MAX;

    for (int i = 0; i < ELEMENTS; i++)
        e[i].pos = VV_HEAP_OUT;
    check(&heap, e);
    for (int step = 0; step < 20000; step++) {
        struct element *one = &e[random_below(&state, ELEMENTS)];

        if (random_below(&state, 3) == 0) {
            vv_heap_remove(&heap, &one->pos);
        } else {
            T_OK(vv_heap_reserve(&heap, heap.n + 1));
            /* Few keys, so that there are equal ones; and the ends of their range. */
            one->key = random_below(&state, 20);
            one->key = one->key == 19 ? UINT64_MAX : one->key;
            vv_heap_set(&heap, &one->pos, one, one->key);
        }
        check(&heap, e);
    }
    while (heap.n > 0) {
        struct element *top = vv_heap_top(&heap);

        T_CHECK(top->key <= last);
        last = top->key;
        vv_heap_remove(&heap, &top->pos);
        check(&heap, e);
    }
    vv_heap_fini(&heap);
    vv_heap_fini(&heap);
}

static void too_many(void)
{
    struct vv_heap heap = {0};

    T_ERR(vv_heap_reserve(&heap, UINT32_MAX), -ENOMEM);
    T_EQ(heap.cap, 0);
    vv_heap_fini(&heap);
}

int main(void)
{
    T_RUN(as_an_array);
    T_RUN(too_many);
    return t_done();
}
