/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LAB_SHOT_REVOLVE_H
#define LAB_SHOT_REVOLVE_H

#include <stddef.h>
#include <stdint.h>

/* Binomial checkpointing (Griewank and Walther): reverse `steps` time steps while at most `slots`
 * states are stored, with the fewest recomputed steps there can be. State s is the state before
 * step s. */
enum revolve_kind {
    REVOLVE_ADVANCE, /* compute states from..to-1 -> to; the state in memory becomes `to` */
    REVOLVE_STORE,   /* keep the state in memory, number `from`                            */
    REVOLVE_RESTORE, /* the state in memory becomes `from`, which is stored                */
    REVOLVE_REVERSE, /* the adjoint of step `from`; the state in memory is `from`           */
    REVOLVE_FREE     /* state `from` is not needed again                                    */
};

struct revolve_action {
    enum revolve_kind kind;
    uint32_t from;
    uint32_t to; /* REVOLVE_ADVANCE only */
};

struct revolve_plan {
    struct revolve_action *actions;
    size_t nr_actions;
    size_t cap_actions;
};

/* Makes the whole schedule. Errors: -EINVAL when steps or slots is 0, -ENOMEM. */
int revolve_plan_init(uint32_t steps, uint32_t slots, struct revolve_plan *ret_plan);
void revolve_plan_fini(struct revolve_plan *plan);

/* The fewest forward steps beyond the reversals themselves, by the closed formula. */
uint64_t revolve_cost(uint32_t steps, uint32_t slots);
/* How often a step is computed at most: the least t with C(slots + t, slots) >= steps. */
uint64_t revolve_repeats(uint32_t steps, uint32_t slots);

#endif
