/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Revolve: the optimal schedule for reversing a chain of steps with few stored states.
 *
 * Notation of the literature: with s stored states (the base of the range among them) and every
 * step computed at most t times, C(s + t, s) steps can be reversed. For a range of l steps let t be
 * the least with C(s + t, s) >= l. The range is cut at m: advance m steps, store, reverse the right
 * part with s - 1 states (its own base among them), free, return to the base, reverse the left part
 * with s. The schedule is optimal when C(s+t-2, s) <= m <= C(s+t-1, s)   and   C(s+t-2, s-1) <= l -
 * m <= C(s+t-1, s-1); the smallest such m is taken. The unit test compares the cost with dynamic
 * programming.
 *
 * A state is freed right after its last restore, not after the adjoint computed from it: the application has it in
 * memory then, and an early discard helps the store. A right part of one step is not stored at all, because its
 * state is in memory when it is needed and never again.
 *
 * Pure computation, no thread.
 */
#include "lab/shot/revolve.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/util.h"

/* C(n, k), saturated at 2^62, far above any length it is compared with. */
static uint64_t choose(uint64_t n, uint64_t k)
{
    uint64_t r = 1;

    if (k > n)
        return 0;
    if (k > n - k)
        k = n - k;
    for (uint64_t i = 1; i <= k; i++) {
        /* Exact at every step, because r is C(n - k + i - 1, i - 1) before it; the product may need
         * 96 bits. */
        unsigned __int128 wide = (unsigned __int128)r * (n - k + i) / i;

        if (wide >> 62)
            return (uint64_t)1 << 62;
        r = (uint64_t)wide;
    }
    return r;
}

uint64_t revolve_repeats(uint32_t steps, uint32_t slots)
{
    uint64_t t = 0;

    if (slots <= 1)
        return steps > 0 ? steps - 1 : 0;
    while (choose((uint64_t)slots + t, slots) < steps)
        t++;
    return t;
}

uint64_t revolve_cost(uint32_t steps, uint32_t slots)
{
    if (steps <= 1 || slots == 0)
        return 0;

    uint64_t t = revolve_repeats(steps, slots);

    if (slots == 1)
        return (uint64_t)steps * (steps - 1) / 2;
    return t * steps - choose((uint64_t)slots + t, t - 1);
}

static uint32_t split(uint32_t l, uint32_t s)
{
    uint64_t t = revolve_repeats(l, s);
    uint64_t m = choose(s + t - 2, s);
    uint64_t right_max = choose(s + t - 1, s - 1);

    if (l > right_max && l - right_max > m)
        m = l - right_max;
    return (uint32_t)(m > 0 ? m : 1);
}

static int add(struct revolve_plan *p, enum revolve_kind kind, uint32_t from, uint32_t to)
{
    if (p->nr_actions == p->cap_actions) {
        size_t cap = p->cap_actions ? 2 * p->cap_actions : 64;
        struct revolve_action *a = realloc(p->actions, cap * sizeof(*a));

        if (!a)
            return -ENOMEM;
        p->actions = a;
        p->cap_actions = cap;
    }
    p->actions[p->nr_actions++] = (struct revolve_action){kind, from, to};
    return 0;
}

/* One stored state left: return to it for every step. `base` is stored and in memory. */
static int reverse_quadratic(struct revolve_plan *p, uint32_t base, uint32_t end)
{
    int rc = 0;

    for (uint32_t step = end; rc == 0 && step-- > base;) {
        if (step + 1 < end)
            rc = add(p, REVOLVE_RESTORE, base, 0);
        if (rc == 0 && step == base)
            rc = add(p, REVOLVE_FREE, base, 0);
        if (rc == 0 && step > base)
            rc = add(p, REVOLVE_ADVANCE, base, step);
        if (rc == 0)
            rc = add(p, REVOLVE_REVERSE, step, 0);
    }
    return rc;
}

/* A part of the chain: steps base..end-1, to be reversed with `slots` states, the base among them. */
struct range {
    uint32_t base, end, slots;
};

/*
 * One round of the innermost range, whose base is stored and in memory. The range becomes shorter, or ends
 * (*ret_part is empty then), or a part of it, *ret_part, has to be reversed first.
 */
static int round_of(struct revolve_plan *p, struct range *r, struct range *ret_part)
{
    uint32_t mid, end = r->end;
    int rc;

    *ret_part = (struct range){0};
    if (end - r->base <= 1 || r->slots <= 1) {
        r->end = r->base;
        return reverse_quadratic(p, r->base, end);
    }
    mid = r->base + split(end - r->base, r->slots);
    rc = add(p, REVOLVE_ADVANCE, r->base, mid);
    r->end = mid;
    if (rc < 0)
        return rc;
    if (end - mid > 1) {
        *ret_part = (struct range){mid, end, r->slots - 1};
        return add(p, REVOLVE_STORE, mid, 0);
    }
    rc = add(p, REVOLVE_REVERSE, mid, 0);
    return rc < 0 ? rc : add(p, REVOLVE_RESTORE, r->base, 0);
}

/* Reverses a range and frees its base, which on entry is stored and in memory. */
static int reverse(struct revolve_plan *p, struct range all)
{
    size_t depth = 0;
    struct range *stack = calloc(VV_MIN(all.slots, all.end - all.base), sizeof(*stack));
    int rc = stack ? 0 : -ENOMEM;

    if (stack)
        stack[depth++] = all;
    while (rc == 0 && depth > 0) {
        struct range part;
        rc = round_of(p, &stack[depth - 1], &part);
        if (rc < 0)
            break;
        if (part.end > 0)
            stack[depth++] = part;
        else if (stack[depth - 1].end == stack[depth - 1].base && --depth > 0)
            rc = add(p, REVOLVE_RESTORE, stack[depth - 1].base, 0);
    }
    free(stack);
    return rc;
}

int revolve_plan_init(uint32_t steps, uint32_t slots, struct revolve_plan *ret_plan)
{
    struct revolve_plan plan = {0};
    int rc;

    if (steps == 0 || slots == 0)
        return -EINVAL;
    rc = add(&plan, REVOLVE_STORE, 0, 0);
    if (rc == 0)
        rc = reverse(&plan, (struct range){0, steps, slots});
    if (rc < 0) {
        revolve_plan_fini(&plan);
        return rc;
    }
    *ret_plan = plan;
    return 0;
}

void revolve_plan_fini(struct revolve_plan *plan)
{
    if (!plan)
        return;
    free(plan->actions);
    *plan = (struct revolve_plan){0};
}
