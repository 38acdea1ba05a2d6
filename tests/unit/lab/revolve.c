/* SPDX-License-Identifier: Apache-2.0 */
/* Every schedule is legal, reverses each step once and in order, and is as short as the optimum by dynamic
 * programming. */
#include "lab/shot/revolve.h"

#include "base/util.h"

#include "t.h"

#define MAX_STEPS 60
#define MAX_SLOTS 9

static uint64_t best[MAX_STEPS + 1][MAX_SLOTS + 1];

/* best[l][s]: forward steps to reverse l steps with s states, the base among them. */
static void fill_table(void)
{
    for (uint64_t l = 0; l <= MAX_STEPS; l++)
        for (unsigned s = 1; s <= MAX_SLOTS; s++) {
            best[l][s] = l < 2 ? 0 : l * (l - 1) / 2;
            for (uint64_t m = 1; s > 1 && m < l; m++) {
                uint64_t cost = m + best[l - m][s - 1] + best[m][s];

                if (cost < best[l][s])
                    best[l][s] = cost;
            }
        }
}

/* Walks the plan; returns the forward steps it takes. */
static uint64_t walk(const struct revolve_plan *plan, uint32_t steps, uint32_t slots)
{
    bool stored[MAX_STEPS + 1] = {0};
    uint32_t state = 0, next_reverse = steps, live = 0;
    uint64_t forward = 0;

    for (size_t i = 0; i < plan->nr_actions; i++) {
        const struct revolve_action *a = &plan->actions[i];

        switch (a->kind) {
        case REVOLVE_ADVANCE:
            T_EQ(a->from, state);
            T_CHECK(a->to > a->from && a->to < steps);
            forward += a->to - a->from;
            state = a->to;
            break;
        case REVOLVE_STORE:
            T_EQ(a->from, state);
            T_CHECK(!stored[state]);
            stored[state] = true;
            T_CHECK(++live <= slots);
            break;
        case REVOLVE_RESTORE:
            T_CHECK(stored[a->from]);
            state = a->from;
            break;
        case REVOLVE_REVERSE:
            T_EQ(a->from, state);
            T_EQ(a->from, --next_reverse);
            break;
        case REVOLVE_FREE:
            T_CHECK(stored[a->from]);
            stored[a->from] = false;
            live--;
            break;
        }
    }
    T_EQ(next_reverse, 0);
    T_EQ(live, 0);
    return forward;
}

/* The largest number of computations of one step. */
static uint64_t plan_repeats(const struct revolve_plan *plan, uint32_t steps)
{
    uint64_t times[MAX_STEPS] = {0}, most = 0;

    for (size_t i = 0; i < plan->nr_actions; i++)
        if (plan->actions[i].kind == REVOLVE_ADVANCE)
            for (uint32_t step = plan->actions[i].from; step < plan->actions[i].to; step++)
                times[step]++;
    for (uint32_t step = 0; step < steps; step++)
        most = VV_MAX(most, times[step]);
    return most;
}

static void legal_and_optimal(void)
{
    fill_table();
    for (uint32_t steps = 1; steps <= MAX_STEPS; steps++)
        for (uint32_t slots = 1; slots <= MAX_SLOTS; slots++) {
            struct revolve_plan plan;

            T_OK(revolve_plan_init(steps, slots, &plan));
            T_EQ(walk(&plan, steps, slots), best[steps][slots]);
            T_EQ(revolve_cost(steps, slots), best[steps][slots]);
            T_EQ(plan_repeats(&plan, steps), revolve_repeats(steps, slots));
            revolve_plan_fini(&plan);
        }
}

static void more_slots_than_steps(void)
{
    struct revolve_plan plan;

    T_OK(revolve_plan_init(10, 1000, &plan));
    T_EQ(walk(&plan, 10, 10), 9);
    revolve_plan_fini(&plan);
    revolve_plan_fini(NULL);
}

static void large(void)
{
    struct revolve_plan plan;
    uint64_t forward = 0;

    T_OK(revolve_plan_init(10000, 100, &plan));
    for (size_t i = 0; i < plan.nr_actions; i++)
        if (plan.actions[i].kind == REVOLVE_ADVANCE)
            forward += plan.actions[i].to - plan.actions[i].from;
    T_EQ(forward, revolve_cost(10000, 100));
    revolve_plan_fini(&plan);
}

/* The largest number of states of a program: the ranges nest a million deep. */
static void deep(void)
{
    struct revolve_plan plan;
    uint64_t reversed = 0;

    T_OK(revolve_plan_init(1000000, 999999, &plan));
    for (size_t i = 0; i < plan.nr_actions; i++)
        reversed += plan.actions[i].kind == REVOLVE_REVERSE;
    T_EQ(reversed, 1000000);
    revolve_plan_fini(&plan);
}

static void bad_input(void)
{
    struct revolve_plan plan;

    T_ERR(revolve_plan_init(0, 1, &plan), -EINVAL);
    T_ERR(revolve_plan_init(1, 0, &plan), -EINVAL);
}

int main(void)
{
    T_RUN(legal_and_optimal);
    T_RUN(more_slots_than_steps);
    T_RUN(large);
    T_RUN(deep);
    T_RUN(bad_input);
    return t_done();
}
