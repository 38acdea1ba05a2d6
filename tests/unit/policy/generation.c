/* SPDX-License-Identifier: Apache-2.0 */
/* The table of generations: every state with every event, and the versions that retention ends. */
#include <string.h>

#include "policy/generation.h"
#include "t.h"

/* Columns: BEGUN WRITTEN REACHED REPLACED DROPPED DISCARDED RELEASED RETURNED. A letter is the
 * initial of the next state; '-': the event cannot happen. */
static const char *const expected[VV_GEN_STATES] = {
    [VV_GEN_NONE] = "WC------", [VV_GEN_WRITING] = "-C--EE--", [VV_GEN_CURRENT] = "--SHEE--",
    [VV_GEN_SAFE] = "---HEE--", [VV_GEN_HELD] = "-----EEC",    [VV_GEN_ENDED] = "--------",
};

static void table(void)
{
    for (unsigned s = 0; s < VV_GEN_STATES; s++)
        for (unsigned e = 0; e < VV_GEN_EVENTS; e++) {
            enum vv_gen_state next = VV_GEN_STATES;
            bool can = vv_gen_next((enum vv_gen_state)s, (enum vv_gen_event)e, &next);
            char got = can ? vv_gen_state_name(next)[0] : '-';
            if (got != expected[s][e])
                t_fail(__FILE__, __LINE__, "%s in %s leads to %c, not to %c",
                       vv_gen_event_name((enum vv_gen_event)e),
                       vv_gen_state_name((enum vv_gen_state)s), got, expected[s][e]);
            T_EQ(next == VV_GEN_STATES, !can); /* changed only on success */
        }
}

static void out_of_range(void)
{
    enum vv_gen_state next;

    T_CHECK(!vv_gen_next(VV_GEN_STATES, VV_GEN_WRITTEN, &next));
    T_CHECK(!vv_gen_next(VV_GEN_SAFE, VV_GEN_EVENTS, &next));
    T_CHECK(strcmp(vv_gen_state_name(VV_GEN_STATES), "unknown") == 0);
    T_CHECK(strcmp(vv_gen_event_name(VV_GEN_EVENTS), "unknown") == 0);
}

static void expires(void)
{
    T_CHECK(!vv_gen_expires(1, 100, 0, 0)); /* no limit */
    T_CHECK(!vv_gen_expires(1, 0, 1, 0));
    T_CHECK(vv_gen_expires(1, 1, 1, 0));
    T_CHECK(!vv_gen_expires(7, 2, 3, 0));
    T_CHECK(vv_gen_expires(7, 3, 3, 0));
    T_CHECK(!vv_gen_expires(8, 3, 3, 4));
    T_CHECK(!vv_gen_expires(4, 9, 3, 4));
    T_CHECK(vv_gen_expires(9, 3, 3, 4));
    T_CHECK(!vv_gen_expires(0, 9, 1, 4)); /* 0 is a multiple of every number */
}

int main(void)
{
    T_RUN(table);
    T_RUN(out_of_range);
    T_RUN(expires);
    return t_done();
}
