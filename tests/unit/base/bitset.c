/* SPDX-License-Identifier: Apache-2.0 */
/* The set of bits against an array that is searched from end to end. */
#include "base/bitset.h"

#include <stdlib.h>

#include "t.h"

static uint64_t random_below(uint64_t *state, uint64_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % n;
}

static void as_an_array(uint64_t size, unsigned steps)
{
    struct vv_bitset set;
    bool *in = calloc(size, sizeof(*in));
    uint64_t state = size;

    T_CHECK(in != NULL);
    T_OK(vv_bitset_init(&set, size));
    for (unsigned i = 0; i < steps; i++) {
        uint64_t at = random_below(&state, size), want = at;

        T_EQ(vv_bitset_has(&set, at), in[at]);
        while (want < size && !in[want])
            want++;
        T_EQ(vv_bitset_next(&set, at), want);
        /* More is removed than added, so that there are long gaps. */
        in[at] = random_below(&state, 3) == 0;
        if (in[at]) {
            vv_bitset_add(&set, at);
            continue;
        }
        vv_bitset_remove(&set, at);
        if (want < size && want != at) {
            vv_bitset_remove(&set, want);
            in[want] = false;
        }
    }
    T_EQ(vv_bitset_next(&set, size), size);
    vv_bitset_fini(&set);
    vv_bitset_fini(&set);
    free(in);
}

static void ends(void)
{
    static const uint64_t sizes[] = {1, 63, 64, 65, 4096, 4097, 262144, 300000};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct vv_bitset set;

        T_OK(vv_bitset_init(&set, sizes[i]));
        T_EQ(vv_bitset_next(&set, 0), sizes[i]);
        vv_bitset_add(&set, sizes[i] - 1);
        T_EQ(vv_bitset_next(&set, 0), sizes[i] - 1);
        vv_bitset_add(&set, 0);
        T_EQ(vv_bitset_next(&set, 0), 0);
        T_EQ(vv_bitset_next(&set, 1), sizes[i] == 1 ? 1 : sizes[i] - 1);
        vv_bitset_fini(&set);
    }
}

static void as_arrays(void)
{
    as_an_array(1, 100);
    as_an_array(100, 20000);
    as_an_array(5000, 20000);
    as_an_array(300000, 2000);
}

int main(void)
{
    T_RUN(ends);
    T_RUN(as_arrays);
    return t_done();
}
