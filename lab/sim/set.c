/* SPDX-License-Identifier: Apache-2.0 */
#include "lab/sim/set.h"

#include <inttypes.h>
#include <math.h>

#include <varve/varve.h>

#include "cli/common/parallel.h"
#include "lab/sim/sim_run.h"

struct shape {
    const char *name;
    unsigned weight;
    int kind, order;
    uint32_t repeat;
    bool keep;
};

static const struct shape shapes[] = {
    {"seq", 4, SHOT_KIND_SHOT, SHOT_ORDER_SEQ, 1, false},
    {"rev", 4, SHOT_KIND_SHOT, SHOT_ORDER_REV, 1, false},
    {"irr", 4, SHOT_KIND_SHOT, SHOT_ORDER_IRR, 1, false},
    {"rev, keep", 1, SHOT_KIND_SHOT, SHOT_ORDER_REV, 1, true},
    {"rev, repeat 3", 1, SHOT_KIND_SHOT, SHOT_ORDER_REV, 3, false},
    {"revolve", 1, SHOT_KIND_REVOLVE, SHOT_ORDER_BINOMIAL, 1, true},
    {"sweeps", 2, SHOT_KIND_SWEEPS, SHOT_ORDER_REV, 1, false},
    {"queue", 1, SHOT_KIND_QUEUE, SHOT_ORDER_REV, 1, false},
    {"overlap", 1, SHOT_KIND_OVERLAP, SHOT_ORDER_REV, 1, false},
    {"activations", 1, SHOT_KIND_ACTIVATIONS, SHOT_ORDER_REV, 1, false},
};

/* Every factor between the two is as likely as any other. */
static double between(uint64_t *state, double low, double high)
{
    return low * pow(high / low, sim_random_real(state));
}

static const struct shape *draw_shape(uint64_t *state)
{
    unsigned sum = 0, at;

    for (size_t i = 0; i < VV_ARRAY_SIZE(shapes); i++)
        sum += shapes[i].weight;
    at = (unsigned)sim_random_below(state, sum);
    for (size_t i = 0;; i++) {
        if (at < shapes[i].weight)
            return &shapes[i];
        at -= shapes[i].weight;
    }
}

static void draw_work(uint64_t *state, const struct shape *shape, struct sim_set_case *c)
{
    static const int vary[] = {SHOT_VARY_NONE, SHOT_VARY_NONE, SHOT_VARY_UNIFORM, SHOT_VARY_TAIL};
    struct shot_opts *o = &c->opts;
    struct shot_plan *p = &c->plan;
    uint32_t objects = 12 + (uint32_t)sim_random_below(state, SIM_SET_OBJECTS - 11);
    bool rounds = shape->kind == SHOT_KIND_OVERLAP || shape->kind == SHOT_KIND_ACTIVATIONS;
    bool phases = shape->kind == SHOT_KIND_SHOT || shape->kind == SHOT_KIND_SWEEPS;

    p->kind = shape->kind;
    p->repeat = shape->repeat;
    p->rounds = 2 + (uint32_t)sim_random_below(state, 2);
    p->distance = 1 + (uint32_t)sim_random_below(state, objects / 2);
    p->vary = vary[sim_random_below(state, VV_ARRAY_SIZE(vary))];
    o->order = shape->order;
    o->consume = shape->keep ? SHOT_CONSUME_KEEP : SHOT_CONSUME_ONCE;
    o->ckpts = rounds ? objects / p->rounds : objects;
    o->slots = VV_MAX(o->ckpts / (4 + (uint32_t)sim_random_below(state, 5)), UINT32_C(3));
    o->size_bytes = (uint64_t)between(state, 256 << 10, 16 << 20);
    o->load = between(state, 0.5, 4);
    o->wait = phases && sim_random_below(state, 3) == 0;
    o->seed = sim_random_below(state, 1000000);
}

/* A share of the history, or in one case of ten half an object. */
static struct shot_cap draw_cache(uint64_t *state, const struct shot_opts *o)
{
    double share = between(state, 0.005, 0.6);

    if (sim_random_below(state, 10) == 0)
        return (struct shot_cap){.bytes = VV_MAX(o->size_bytes / 2, UINT64_C(65536))};
    return (struct shot_cap){.share = share};
}

static void draw_machine(uint64_t *state, struct shot_opts *o)
{
    static const double read[] = {0.25, 0.5, 1, 1, 1, 2, 4};
    double link = 4e8 * between(state, 0.5, 4);

    o->device = sim_random_below(state, 10) ? VARVE_DEVICE_HOST : VARVE_DEVICE_NONE;
    o->device_cache = draw_cache(state, o);
    o->host_cache = draw_cache(state, o);
    o->rate[SHOT_HOP_D2D] = o->rate[SHOT_HOP_H2H] = UINT64_C(4000000000);
    o->rate[SHOT_HOP_D2H] = o->rate[SHOT_HOP_H2D] = (uint64_t)link;
    o->rate[SHOT_HOP_H2F] = 40000000;
    o->rate[SHOT_HOP_F2H] = (uint64_t)(4e7 * read[sim_random_below(state, VV_ARRAY_SIZE(read))]);
}

void sim_set_draw(uint64_t seed, uint32_t id, struct sim_set_case *ret_case)
{
    uint64_t state = seed * UINT64_C(0xd1342543de82ef95) + id * UINT64_C(0x2545f4914f6cdd1d);
    struct sim_set_case c;

    shot_opts_init(&c.opts);
    shot_plan_init(&c.plan);
    draw_work(&state, draw_shape(&state), &c);
    draw_machine(&state, &c.opts);
    *ret_case = c;
}

void sim_set_describe(const struct sim_set_case *c, char *buf, size_t size)
{
    static const char *const vary[] = {"", ", sizes vary", ", heavy tail"};
    const struct shape *s = shapes;

    while (s->kind != c->plan.kind || s->order != c->opts.order || s->repeat != c->plan.repeat ||
           s->keep != (c->opts.consume == SHOT_CONSUME_KEEP))
        s++;
    snprintf(buf, size, "%s%s%s%s", s->name, vary[c->plan.vary], c->opts.wait ? ", wait" : "",
             shot_has_device(&c->opts) ? "" : ", no device");
}

uint32_t sim_set_objects(const struct sim_set_case *c)
{
    bool rounds = c->plan.kind == SHOT_KIND_OVERLAP || c->plan.kind == SHOT_KIND_ACTIVATIONS;

    return c->opts.ckpts * (rounds ? c->plan.rounds : 1);
}

static struct sim_set_result result_of(const struct shot_report *r, const struct shot_work *work)
{
    const double *rate = r->machine.rate;
    double largest = (double)work->threads[0].largest_bytes;
    struct sim_set_result result = {
        .blocked_s = r->blocked_checkpoint_s + r->blocked_restore_s,
        .bound_s = fmax(r->bound_s, r->lp_s),
        .object_s = largest / fmin(rate[SHOT_HOP_H2F], rate[SHOT_HOP_F2H]),
        .read_s = largest / rate[SHOT_HOP_F2H],
        .refill_s = (double)(r->machine.device_bytes + r->machine.host_bytes) / rate[SHOT_HOP_F2H],
        .least_s = INFINITY,
    };

    for (uint32_t i = 0; i < r->nr_procs; i++) {
        double s = r->procs[i].blocked_checkpoint_s + r->procs[i].blocked_restore_s;
        result.least_s = fmin(result.least_s, s);
        result.most_s = fmax(result.most_s, s);
    }
    return result;
}

int sim_set_run(const struct sim_set_case *c, char *err, size_t err_size,
                struct sim_set_result *ret_result)
{
    struct shot_work work;
    struct shot_report r;
    int rc = shot_work_make(&c->opts, &c->plan, err, err_size, &work);

    if (rc < 0)
        return rc;
    rc = sim_run_work("set", &c->opts, &work, err, err_size, &r);
    if (rc == 0) {
        rc = shot_report_check(&r, err, err_size);
        if (rc == 0)
            *ret_result = result_of(&r, &work);
        shot_report_fini(&r);
    }
    shot_work_fini(&work);
    return rc;
}
