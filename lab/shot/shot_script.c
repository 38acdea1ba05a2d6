/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generators: from options to the operations that a process performs, in two steps: first the calls
 * (puts and gets, the compute time before each, whether a discard follows), then the operations
 * around them, which are the same for every kind:
 *
 *   hints       before anything else; but hints one: at the beginning of the iteration before a get,
 *               and late: just before the get
 *   START       once, before the first get's compute time; with a wait, after the wait
 *   COMPUTE     before every call; then BARRIER, so that processes enter the call together
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include <varve/varve.h>

#include "lab/shot/revolve.h"
#include "lab/shot/work.h"

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

/* The input of a generator. */
struct maker {
    const struct shot_opts *opts;
    const struct shot_plan *plan;
    uint64_t interval_ns;
    bool discards; /* the last of several gets discards the version */
    struct steps steps;
};

static int add_put(struct maker *m, uint64_t version)
{
    return add_step(&m->steps, (struct step){.version = version, .compute_ns = m->interval_ns});
}

/* Repeated in succession, if requested. */
static int add_get(struct maker *m, uint64_t version, uint64_t compute_ns, bool last)
{
    uint32_t repeat = VV_MAX(m->plan->repeat, UINT32_C(1));
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < repeat; i++)
        rc = add_step(&m->steps, (struct step){.get = true,
                                               .version = version,
                                               .compute_ns = compute_ns,
                                               .discard = m->discards && last && i + 1 == repeat});
    return rc;
}

static int make_phases(struct maker *m, uint32_t rank)
{
    uint64_t n = m->opts->ckpts;
    uint64_t *order = calloc(n, sizeof(*order));
    int rc = order ? 0 : -ENOMEM;

    if (rc == 0)
        make_order(m->opts, rank, order);
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        rc = add_put(m, i);
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        rc = add_get(m, order[i], m->interval_ns, true);
    free(order);
    return rc;
}

/* The first sweep goes backward, the second forward. */
static int make_sweeps(struct maker *m)
{
    uint64_t n = m->opts->ckpts;
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < n; i++)
        rc = add_put(m, i);
    for (uint32_t r = 0; rc == 0 && r < m->plan->rounds; r++)
        for (uint64_t i = 0; rc == 0 && i < n; i++)
            rc = add_get(m, r % 2 ? i : n - 1 - i, m->interval_ns, r + 1 == m->plan->rounds);
    return rc;
}

static int make_queue(struct maker *m)
{
    uint64_t n = m->opts->ckpts, distance = m->plan->distance;
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < n + distance; i++) {
        if (i < n)
            rc = add_put(m, i);
        if (rc == 0 && i >= distance && i - distance < n)
            rc = add_get(m, i - distance, m->interval_ns, true);
    }
    return rc;
}

/* Round r reads backward the versions of round r - 1, between its own puts. */
static int make_overlap(struct maker *m)
{
    uint64_t n = m->opts->ckpts;
    int rc = 0;

    for (uint64_t r = 0; rc == 0 && r <= m->plan->rounds; r++)
        for (uint64_t i = 0; rc == 0 && i < n; i++) {
            if (r > 0)
                rc = add_get(m, r * n - 1 - i, m->interval_ns, true);
            if (rc == 0 && r < m->plan->rounds)
                rc = add_put(m, r * n + i);
        }
    return rc;
}

/* A layer takes twice as long backward as forward. */
static int make_activations(struct maker *m)
{
    uint64_t n = m->opts->ckpts;
    int rc = 0;

    for (uint64_t r = 0; rc == 0 && r < m->plan->rounds; r++) {
        for (uint64_t i = 0; rc == 0 && i < n; i++)
            rc = add_put(m, r * n + i);
        for (uint64_t i = 0; rc == 0 && i < n; i++)
            rc = add_get(m, (r + 1) * n - 1 - i, 2 * m->interval_ns, true);
    }
    return rc;
}

/* Each time step computed, forward or adjoint, takes one interval. State s is version s. */
static int make_binomial(struct maker *m)
{
    struct revolve_plan plan = {0};
    struct steps *steps = &m->steps;
    uint64_t interval_ns = m->interval_ns;
    uint64_t compute_ns = interval_ns; /* the initial state is computed as well */
    int rc = revolve_plan_init(m->opts->ckpts, m->opts->slots, &plan);

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

static int make_steps(struct maker *m, uint32_t rank)
{
    switch (m->plan->kind) {
    case SHOT_KIND_SWEEPS:
        return make_sweeps(m);
    case SHOT_KIND_QUEUE:
        return make_queue(m);
    case SHOT_KIND_OVERLAP:
        return make_overlap(m);
    case SHOT_KIND_ACTIVATIONS:
        return make_activations(m);
    default:
        return m->opts->order == SHOT_ORDER_BINOMIAL ? make_binomial(m) : make_phases(m, rank);
    }
}

/* ---- operations ---- */

/* The index, in the order of the gets, of the version whose hint comes as number `i` of `n`. */
static size_t hinted_at(const struct maker *m, size_t i, size_t n)
{
    size_t swap = VV_MIN((size_t)m->plan->swap, n - 1), low = (n - swap) / 2;

    if (m->opts->hints == SHOT_HINTS_WRONG)
        return n - 1 - i;
    if (m->opts->hints != SHOT_HINTS_SWAPPED)
        return i;
    return i == low ? low + swap : i == low + swap ? low : i;
}

/* The hints that come before all other operations. */
static int add_hints(const struct maker *m, struct shot_script *s)
{
    uint64_t *versions = calloc(m->steps.nr + 1, sizeof(*versions));
    size_t n = 0, hinted;
    int rc = 0;

    if (!versions)
        return -ENOMEM;
    for (size_t i = 0; i < m->steps.nr; i++)
        if (m->steps.items[i].get)
            versions[n++] = m->steps.items[i].version;
    hinted = m->opts->hints == SHOT_HINTS_PARTIAL ? vv_div_up(n, 10) : n;
    for (size_t i = 0; rc == 0 && i < hinted; i++)
        rc = shot_script_add(s,
                             (struct shot_op){SHOT_HINT, .version = versions[hinted_at(m, i, n)]});
    free(versions);
    return rc;
}

static bool hints_first(int hints)
{
    return hints == SHOT_HINTS_ALL || hints == SHOT_HINTS_PARTIAL || hints == SHOT_HINTS_SWAPPED ||
           hints == SHOT_HINTS_WRONG;
}

static int add_call(const struct maker *m, uint64_t bytes, const struct step *step,
                    struct shot_script *s)
{
    int rc = shot_script_add(s, (struct shot_op){SHOT_COMPUTE, .ns = step->compute_ns});

    if (rc == 0 && m->opts->barrier)
        rc = shot_script_add(s, (struct shot_op){.kind = SHOT_BARRIER});
    if (rc == 0 && step->get && m->opts->hints == SHOT_HINTS_LATE)
        rc = shot_script_add(s, (struct shot_op){SHOT_HINT, .version = step->version});
    if (rc == 0)
        rc = shot_script_add(s, (struct shot_op){.kind = step->get ? SHOT_GET : SHOT_PUT,
                                                 .version = step->version,
                                                 .bytes = bytes});
    if (rc == 0 && step->discard)
        rc = shot_script_add(s, (struct shot_op){SHOT_DISCARD, .version = step->version});
    return rc;
}

static int emit(const struct maker *m, const struct shot_sizes *sizes, struct shot_script *s)
{
    int rc = hints_first(m->opts->hints) ? add_hints(m, s) : 0;
    bool reads = false;

    for (size_t i = 0; rc == 0 && i < m->steps.nr; i++) {
        const struct step *step = &m->steps.items[i];
        bool first_get = step->get && !reads;

        if (first_get && m->opts->wait)
            rc = shot_script_add(s, (struct shot_op){.kind = SHOT_WAIT_FLUSH});
        if (rc == 0 && first_get)
            rc = shot_script_add(s, (struct shot_op){.kind = SHOT_START});
        if (rc == 0 && m->opts->hints == SHOT_HINTS_ONE && i + 1 < m->steps.nr && step[1].get)
            rc = shot_script_add(s, (struct shot_op){SHOT_HINT, .version = step[1].version});
        if (rc == 0)
            rc = add_call(m, sizes->bytes[step->version % sizes->nr], step, s);
        reads |= step->get;
    }
    return rc;
}

/* One thread with a history of its own. */
static int add_thread(struct maker *m, const struct shot_sizes *sizes, uint32_t rank,
                      struct shot_work *work)
{
    bool again = m->plan->repeat > 1 || m->plan->kind == SHOT_KIND_SWEEPS;
    struct shot_hist hist = {.consume_once = m->opts->consume == SHOT_CONSUME_ONCE && !again,
                             .order = m->plan->declare};
    uint32_t index = work->nr_hists;
    int rc;

    if (m->plan->threads > 1)
        snprintf(hist.name, sizeof(hist.name), "h%" PRIu32, index);
    else
        snprintf(hist.name, sizeof(hist.name), "shot");
    m->discards = m->opts->consume == SHOT_CONSUME_ONCE && again;
    m->steps.nr = 0;
    rc = make_steps(m, rank);
    if (rc == 0)
        rc = shot_work_add_hist(work, &hist);
    if (rc == 0)
        rc = shot_work_add_thread(work);
    if (rc == 0)
        rc = emit(m, sizes, &work->threads[index]);
    for (size_t i = 0; rc == 0 && i < work->threads[index].nr_ops; i++) {
        struct shot_op *op = &work->threads[index].ops[i];
        op->hist = op->kind == SHOT_COMPUTE || op->kind == SHOT_BARRIER ? 0 : index;
    }
    return rc;
}

void shot_plan_init(struct shot_plan *plan)
{
    *plan = (struct shot_plan){
        .kind = SHOT_KIND_SHOT, .rounds = 3, .distance = 24, .repeat = 1, .swap = 50, .threads = 1};
}

int shot_work_init(const struct shot_opts *opts, const struct shot_plan *plan,
                   const struct shot_sizes *sizes, uint64_t interval_ns, uint32_t rank,
                   struct shot_work *ret_work)
{
    struct maker m = {.opts = opts, .plan = plan, .interval_ns = interval_ns};
    struct shot_work work = {0};
    char err[256];
    int rc = 0;

    if (opts->ckpts == 0 || sizes->nr < opts->ckpts || plan->rounds == 0)
        return -EINVAL;
    for (uint32_t t = 0; rc == 0 && t < plan->threads; t++)
        rc = add_thread(&m, sizes, rank + t, &work);
    free(m.steps.items);
    if (rc == 0)
        rc = shot_work_settle(&work, NULL, err, sizeof(err));
    if (rc < 0)
        shot_work_fini(&work);
    else
        *ret_work = work;
    return rc;
}

int shot_script_init(const struct shot_opts *opts, const struct shot_sizes *sizes,
                     uint64_t interval_ns, uint32_t rank, struct shot_script *ret_script)
{
    struct shot_plan plan;
    struct shot_work work;
    int rc;

    shot_plan_init(&plan);
    rc = shot_work_init(opts, &plan, sizes, interval_ns, rank, &work);
    if (rc < 0)
        return rc;
    *ret_script = work.threads[0];
    work.threads[0] = (struct shot_script){0};
    shot_work_fini(&work);
    return 0;
}

/* The mean stays about the same: uniform from a quarter to seven quarters; tail: Pareto with exponent 1.5, cut off
 * at twenty times. */
static void vary_sizes(const struct shot_plan *plan, uint64_t seed, struct shot_sizes *sizes)
{
    uint64_t state = seed ^ UINT64_C(0x5851f42d4c957f2d);

    if (plan->vary == SHOT_VARY_NONE)
        return;
    sizes->total_bytes = sizes->largest_bytes = 0;
    for (size_t i = 0; i < sizes->nr; i++) {
        double u = ((double)(next_random(&state) >> 11) + 0.5) / 9007199254740992.0;
        double factor =
            plan->vary == SHOT_VARY_UNIFORM ? 0.25 + 1.5 * u : fmin(pow(u, -1 / 1.5) / 3, 20);

        sizes->bytes[i] = (uint64_t)fmax(round((double)sizes->bytes[i] * factor), 1);
        sizes->total_bytes += sizes->bytes[i];
        sizes->largest_bytes = VV_MAX(sizes->largest_bytes, sizes->bytes[i]);
    }
}

int shot_work_make(const struct shot_opts *opts, const struct shot_plan *plan, char *err,
                   size_t err_size, struct shot_work *ret_work)
{
    struct shot_sizes sizes;
    uint64_t interval_ns;
    int rc = shot_sizes_init(opts, err, err_size, &sizes);

    if (rc < 0)
        return rc;
    vary_sizes(plan, opts->seed, &sizes);
    rc = shot_interval_ns(opts, &sizes, (double)opts->rate[SHOT_HOP_H2F], &interval_ns);
    if (rc < 0) {
        snprintf(err, err_size, "--load needs the rate of the disk: --rate h2f=...");
    } else {
        rc = shot_work_init(opts, plan, &sizes, interval_ns, 0, ret_work);
        if (rc < 0)
            snprintf(err, err_size, "the workload cannot be made: %s", varve_strerror(rc));
    }
    shot_sizes_fini(&sizes);
    return rc;
}
