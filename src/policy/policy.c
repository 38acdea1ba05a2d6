/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/policy.h"

#include <errno.h>
#include <string.h>

static const char *const names[VV_POLICY_COUNT] = {
    [VV_POLICY_NEXT] = "next", [VV_POLICY_SCORE] = "score", [VV_POLICY_SCORE_NOW] = "score-now",
    [VV_POLICY_FIFO] = "fifo", [VV_POLICY_LRU] = "lru",
};

const char *vv_policy_name(enum vv_policy policy)
{
    return (unsigned)policy < VV_POLICY_COUNT ? names[policy] : "unknown";
}

int vv_policy_parse(const char *name, enum vv_policy *ret_policy)
{
    for (int i = 0; name && i < VV_POLICY_COUNT; i++)
        if (strcmp(name, names[i]) == 0) {
            *ret_policy = (enum vv_policy)i;
            return 0;
        }
    return -EINVAL;
}
