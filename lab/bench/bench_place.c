/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of finding the owner of a key, by scheme and number of nodes. One JSON object a line. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli/common/json.h"
#include "cli/measure/samples.h"
#include "policy/place.h"

#define LOOKUPS 20000
#define ROUNDS  5
#define NODES   1024

static volatile uint32_t sink;

static double median_ns(const struct vv_place *p, const uint64_t *up, uint32_t copies)
{
    uint32_t owners[VV_PLACE_REPLICAS_MAX];
    double ns[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        uint64_t start = vv_now_ns();

        for (uint64_t i = 0; i < LOOKUPS; i++) {
            uint64_t key = vv_place_key(&i, sizeof(i));

            if (copies > 1)
                sink = vv_place_owners(p, key, up, copies, owners);
            else
                sink = vv_place_owner(p, key, up);
        }
        ns[r] = (double)(vv_now_ns() - start) / LOOKUPS;
    }
    return samples_median(ns, ROUNDS);
}

static int measure(enum vv_place_scheme scheme, uint32_t nr, bool weighted)
{
    static struct vv_place_node nodes[NODES];
    static uint64_t up[NODES / 64];
    struct vv_place_opts opts = {.scheme = scheme};
    struct vv_place *p;
    struct json out = json_begin(stdout, JSON_SPACED);
    uint64_t start;
    double made_ms;

    for (uint32_t i = 0; i < nr; i++) {
        char name[32];

        snprintf(name, sizeof(name), "node%u", i);
        nodes[i] = (struct vv_place_node){vv_place_node_id(name), weighted ? 1000 + i : 1000};
        vv_place_set_add(up, i);
    }
    vv_place_set_remove(up, nr / 2);
    start = vv_now_ns();
    if (vv_place_new(&opts, nodes, nr, &p) < 0)
        return 1;
    made_ms = (double)(vv_now_ns() - start) / 1e6;
    json_object(&out, NULL);
    json_text(&out, "scheme", vv_place_scheme_name(scheme));
    json_uint(&out, "nodes", nr);
    json_bool(&out, "weighted", weighted);
    json_number(&out, "made_ms", "%.2f", made_ms);
    json_number(&out, "owner_ns", "%.0f", median_ns(p, NULL, 1));
    json_number(&out, "one_down_ns", "%.0f", median_ns(p, up, 1));
    json_number(&out, "two_copies_ns", "%.0f", median_ns(p, NULL, 2));
    json_close(&out);
    json_end(&out);
    vv_place_free(p);
    return 0;
}

int main(void)
{
    static const enum vv_place_scheme schemes[] = {VV_PLACE_RING, VV_PLACE_HRW, VV_PLACE_MOD};
    static const uint32_t sizes[] = {16, 128, NODES};
    int rc = 0;

    for (size_t s = 0; s < VV_ARRAY_SIZE(schemes); s++)
        for (size_t n = 0; n < VV_ARRAY_SIZE(sizes); n++)
            for (int weighted = 0; weighted < (schemes[s] == VV_PLACE_MOD ? 1 : 2); weighted++)
                rc |= measure(schemes[s], sizes[n], weighted);
    return rc;
}
