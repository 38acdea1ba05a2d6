/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a sampler, from its seed: equal to PyTorch's. */
#include "dataset/order.h"

#include <stdlib.h>

#include "t.h"

/* Results of torch.manual_seed(seed); torch.randperm(10), of PyTorch 1.13 and 2.x on the CPU. */
static void known(void)
{
    static const uint64_t zero[10] = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2};
    static const uint64_t fortytwo[10] = {2, 6, 1, 8, 4, 5, 0, 9, 3, 7};
    uint64_t order[10];

    T_OK(vv_order_torch(0, 10, order));
    T_CHECK(memcmp(order, zero, sizeof(zero)) == 0);
    T_OK(vv_order_torch(42, 10, order));
    T_CHECK(memcmp(order, fortytwo, sizeof(fortytwo)) == 0);
}

/* Each number once, whatever the seed, past the first 624 draws; the same seed, the same order. */
static void permutations(void)
{
    struct t_rng rng = {t_seed()};
    enum { NR = 2000 };
    uint64_t *order = calloc(NR, sizeof(*order)), *again = calloc(NR, sizeof(*again));

    T_CHECK(order && again);
    for (unsigned i = 0; i < 20; i++) {
        uint64_t seed = t_rng_u64(&rng), nr = t_rng_below(&rng, NR) + 1;
        bool seen[NR] = {false};

        T_OK(vv_order_torch(seed, nr, order));
        for (uint64_t k = 0; k < nr; k++) {
            T_CHECK(order[k] < nr && !seen[order[k]]);
            seen[order[k]] = true;
        }
        T_OK(vv_order_torch(seed, nr, again));
        T_CHECK(memcmp(order, again, nr * sizeof(*order)) == 0);
    }
    T_OK(vv_order_torch(1, 0, order));
    T_ERR(vv_order_torch(1, (uint64_t)UINT32_MAX + 1, order), -ERANGE);
    free(order);
    free(again);
}

int main(void)
{
    T_RUN(known);
    T_RUN(permutations);
    return t_done();
}
