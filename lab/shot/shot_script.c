/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From options to the list of operations that one process performs, in two steps: first the calls
 * (puts and gets, the compute time before each, whether a discard follows), then the operations
 * around them, which are the same for every order:
 *
 *   hints all   every get is announced, in order, before anything else
 *   hints one   at the beginning of the iteration before a get, that get is announced
 *   START       once, before the first get's compute time; with a wait, after the wait
 *   COMPUTE     before every call; then BARRIER, so that processes enter the call together
 */
#include <errno.h>
#include <stdlib.h>

#include "lab/shot/revolve.h"
#include "lab/shot/shot.h"

struct step {
    bool get;
    bool discard; /* afterwards */
    uint64_t version;
    uint64_t compute_ns;
};

struct steps {
    struct step *items;
    size_t nr;
    size_t cap;
};

static int add_step(struct steps *s, struct step step)
{
    if (s->nr == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 256;
        struct step *items = realloc(s->items, cap * sizeof(*items));

        if (!items)
            return -ENOMEM;
        s->items = items;
        s->cap = cap;
    }
    s->items[s->nr++] = step;
    return 0;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void make_order(const struct shot_opts *opts, uint32_t rank, uint64_t *order)
{
    uint64_t n = opts->ckpts;
    uint64_t state = opts->seed + rank * UINT64_C(0x632be59bd9b4e019);

    for (uint64_t i = 0; i < n; i++)
        order[i] = opts->order == SHOT_ORDER_REV ? n - 1 - i : i;
    if (opts->order != SHOT_ORDER_IRR)
        return;
    for (uint64_t i = n; i > 1; i--) {
        /* The bias of the remainder is below n / 2^64. */
        uint64_t j = next_random(&state) % i, swap = order[j];

        order[j] = order[i - 1];
        order[i - 1] = swap;
    }
}

static int make_phases(const struct shot_opts *opts, uint64_t interval_ns, uint32_t rank,
                       struct steps *steps)
{
    uint64_t *order = calloc(opts->ckpts, sizeof(*order));
    int rc = order ? 0 : -ENOMEM;

    if (rc == 0)
        make_order(opts, rank, order);
    for (uint64_t i = 0; rc == 0 && i < opts->ckpts; i++)
        rc = add_step(steps, (struct step){.version = i, .compute_ns = interval_ns});
    for (uint64_t i = 0; rc == 0 && i < opts->ckpts; i++)
        rc = add_step(steps,
                      (struct step){.get = true, .version = order[i], .compute_ns = interval_ns});
    free(order);
    return rc;
}

/* Each time step computed, forward or adjoint, takes one interval. State s is version s. */
static int make_binomial(const struct shot_opts *opts, uint64_t interval_ns, struct steps *steps)
{
    struct revolve_plan plan = {0};
    uint64_t compute_ns = interval_ns; /* the initial state is computed as well */
    int rc = revolve_plan_init(opts->ckpts, opts->slots, &plan);

    for (size_t i = 0; rc == 0 && i < plan.nr_actions; i++) {
        const struct revolve_action *a = &plan.actions[i];

        switch (a->kind) {
        case REVOLVE_ADVANCE:
            compute_ns += (a->to - a->from) * interval_ns;
            break;
        case REVOLVE_REVERSE:
            compute_ns += interval_ns;
            break;
        case REVOLVE_STORE:
        case REVOLVE_RESTORE:
            rc = add_step(steps, (struct step){.get = a->kind == REVOLVE_RESTORE,
                                               .version = a->from,
                                               .compute_ns = compute_ns});
            compute_ns = 0;
            break;
        case REVOLVE_FREE:
            /* It directly follows the last restore, or the store when there is one step only. */
            steps->items[steps->nr - 1].discard = true;
            break;
        }
    }
    revolve_plan_fini(&plan);
    return rc;
}

static int add_op(struct shot_script *s, struct shot_op op)
{
    if (s->nr_ops == s->cap_ops) {
        size_t cap = s->cap_ops ? 2 * s->cap_ops : 256;
        struct shot_op *ops = realloc(s->ops, cap * sizeof(*ops));

        if (!ops)
            return -ENOMEM;
        s->ops = ops;
        s->cap_ops = cap;
    }
    s->ops[s->nr_ops++] = op;
    return 0;
}

static int add_hints(const struct steps *steps, struct shot_script *s)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < steps->nr; i++)
        if (steps->items[i].get)
            rc = add_op(s, (struct shot_op){SHOT_HINT, .version = steps->items[i].version});
    return rc;
}

static int add_call(const struct shot_opts *opts, const struct shot_sizes *sizes,
                    const struct step *step, struct shot_script *s)
{
    uint64_t bytes = sizes->bytes[step->version];
    int rc = add_op(s, (struct shot_op){SHOT_COMPUTE, .ns = step->compute_ns});

    if (rc == 0 && opts->barrier)
        rc = add_op(s, (struct shot_op){.kind = SHOT_BARRIER});
    if (rc == 0)
        rc = add_op(s, (struct shot_op){step->get ? SHOT_GET : SHOT_PUT, step->version, bytes, 0});
    if (rc == 0 && step->discard)
        rc = add_op(s, (struct shot_op){SHOT_DISCARD, .version = step->version});
    if (step->get) {
        s->nr_gets++;
        s->get_bytes += bytes;
    } else {
        s->nr_puts++;
        s->put_bytes += bytes;
        s->largest_bytes = VV_MAX(s->largest_bytes, bytes);
    }
    return rc;
}

static int emit(const struct shot_opts *opts, const struct shot_sizes *sizes,
                const struct steps *steps, struct shot_script *s)
{
    bool consume_once = opts->consume == SHOT_CONSUME_ONCE;
    uint64_t live_bytes = 0;
    int rc = opts->hints == SHOT_HINTS_ALL ? add_hints(steps, s) : 0;

    for (size_t i = 0; rc == 0 && i < steps->nr; i++) {
        const struct step *step = &steps->items[i];
        bool first_get = step->get && s->nr_gets == 0;
        uint64_t bytes = sizes->bytes[step->version];

        if (first_get && opts->wait)
            rc = add_op(s, (struct shot_op){.kind = SHOT_WAIT_FLUSH});
        if (rc == 0 && first_get)
            rc = add_op(s, (struct shot_op){.kind = SHOT_START});
        if (rc == 0 && opts->hints == SHOT_HINTS_ONE && i + 1 < steps->nr && step[1].get)
            rc = add_op(s, (struct shot_op){SHOT_HINT, .version = step[1].version});
        if (rc == 0)
            rc = add_call(opts, sizes, step, s);
        if (!step->get)
            live_bytes += bytes;
        s->peak_live_bytes = VV_MAX(s->peak_live_bytes, live_bytes);
        if (step->discard || (step->get && consume_once))
            live_bytes -= bytes;
    }
    return rc;
}

int shot_script_init(const struct shot_opts *opts, const struct shot_sizes *sizes,
                     uint64_t interval_ns, uint32_t rank, struct shot_script *ret_script)
{
    struct shot_script script = {0};
    struct steps steps = {0};
    int rc;

    if (opts->ckpts == 0 || sizes->nr < opts->ckpts)
        return -EINVAL;
    if (opts->order == SHOT_ORDER_BINOMIAL)
        rc = make_binomial(opts, interval_ns, &steps);
    else
        rc = make_phases(opts, interval_ns, rank, &steps);
    if (rc == 0)
        rc = emit(opts, sizes, &steps, &script);
    free(steps.items);
    if (rc < 0)
        shot_script_fini(&script);
    else
        *ret_script = script;
    return rc;
}

void shot_script_fini(struct shot_script *script)
{
    if (!script)
        return;
    free(script->ops);
    *script = (struct shot_script){0};
}
