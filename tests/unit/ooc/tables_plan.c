/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of tables against simple models: a cache whose every unit is modelled, and a simple computation of the farthest
 * next use; and the order of work that the design is measured by.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/ooc/survey.h"
#include "ooc/tables_private.h"
#include "t.h"

enum { TABLES = 60, ITEMS = 400, USES = 5, DEPTH = 12, UNITS = 4096 };

static uint64_t bytes[TABLES], first[ITEMS + 1];
static uint32_t uses[ITEMS * USES];

static struct varve_tables_work make_work(struct t_rng *rng, uint64_t most)
{
    uint64_t n = 0;

    for (uint32_t t = 0; t < TABLES; t++)
        bytes[t] = 1 + t_rng_below(rng, 1 + t_rng_below(rng, most));
    for (uint32_t i = 0; i < ITEMS; i++) {
        uint32_t k = (uint32_t)t_rng_below(rng, USES + 1), around = i / 6;

        first[i] = n;
        for (uint32_t j = 0; j < k; j++)
            uses[n++] = (uint32_t)(t_rng_below(rng, 6) ? (around + t_rng_below(rng, 8)) % TABLES
                                                       : t_rng_below(rng, TABLES));
    }
    first[ITEMS] = n;
    return (struct varve_tables_work){.work_size = sizeof(struct varve_tables_work),
                                      .items = ITEMS,
                                      .first = first,
                                      .uses = uses};
}

/* The first item from there on that uses the table, by searching. */
static uint64_t next_of(uint32_t t, uint32_t from)
{
    for (uint32_t i = from; i < ITEMS; i++)
        for (uint64_t u = first[i]; u < first[i + 1]; u++)
            if (uses[u] == t)
                return i;
    return VVI_NONE;
}

/* ---- a cache whose every unit is modelled ---- */

struct shadow {
    uint64_t unit;
    uint32_t owner[UNITS]; /* the table, plus 1, whose bytes are here; they may be stale */
    uint32_t part[UNITS];  /* and which unit of it */
    uint64_t pinned_at[TABLES];
    uint32_t pinned[TABLES];
};

static uint64_t units_of(const struct vvi_space *s, uint32_t t)
{
    return vvi_space_room(s, t) / (s->chunked ? VVI_CHUNK_BYTES : VVI_FLAT_ALIGN);
}

/* The place of a unit of the table. */
static uint64_t unit_at(const struct vvi_space *s, uint32_t t, uint64_t i)
{
    return s->chunked ? vvi_space_chunks(s, t)[i] : s->held[t].at / VVI_FLAT_ALIGN + i;
}

static void apply(struct shadow *sh, const struct vvi_space *s, const struct vvi_step *step)
{
    for (uint32_t m = 0; m < step->nr_moves; m++) {
        const struct vvi_move *mv = &step->moves[m];
        uint64_t n = units_of(s, mv->table), from = mv->from / VVI_FLAT_ALIGN,
                 to = mv->to / VVI_FLAT_ALIGN;

        T_CHECK(!s->chunked && to < from && sh->pinned[mv->table] == 0);
        memmove(sh->owner + to, sh->owner + from, n * sizeof(*sh->owner));
        memmove(sh->part + to, sh->part + from, n * sizeof(*sh->part));
    }
    for (uint32_t f = 0; f < step->nr_fills; f++)
        for (uint64_t i = 0; i < units_of(s, step->fills[f]); i++) {
            uint64_t at = unit_at(s, step->fills[f], i);

            sh->owner[at] = step->fills[f] + 1;
            sh->part[at] = (uint32_t)i;
        }
}

/* Every table is whole at its place in the plan, also those without a launch now. */
static void check_whole(const struct shadow *sh, const struct vvi_space *s)
{
    T_CHECK(vvi_space_check(s));
    for (uint32_t i = 0; i < s->nr; i++) {
        uint32_t t = s->list[i];

        for (uint64_t u = 0; u < units_of(s, t); u++)
            if (sh->owner[unit_at(s, t, u)] != t + 1 || sh->part[unit_at(s, t, u)] != u)
                t_fail(__FILE__, __LINE__, "table %u is not where it should be", t);
        if (sh->pinned[t])
            T_EQ(unit_at(s, t, 0), sh->pinned_at[t]);
    }
    for (uint32_t t = 0; t < TABLES; t++)
        T_CHECK(sh->pinned[t] == s->held[t].refs && !s->held[t].keep);
}

static void pin(struct shadow *sh, const struct vvi_space *s, const struct vvi_batch *b)
{
    for (uint32_t i = 0; i < b->nr; i++) {
        uint32_t t = b->tables[i];

        T_CHECK(s->held[t].index != VVI_NONE);
        if (sh->pinned[t]++ == 0)
            sh->pinned_at[t] = unit_at(s, t, 0);
    }
}

static void unpin(struct shadow *sh, const struct vvi_batch *b)
{
    for (uint32_t i = 0; i < b->nr; i++)
        sh->pinned[b->tables[i]]--;
}

/* A launch has begun: updates the model and pins the tables that it reads. */
static void launched(struct shadow *sh, const struct vvi_plan *p, const struct vvi_step *st)
{
    for (uint32_t i = 0; i < st->batch.nr; i++)
        T_EQ(p->space.held[st->batch.tables[i]].next, next_of(st->batch.tables[i], p->from));
    for (uint64_t u = first[st->batch.from]; u < first[st->batch.to]; u++)
        T_EQ(st->batch.tables[*vvi_order_locals(p->o, u)], uses[u]);
    apply(sh, &p->space, st);
    pin(sh, &p->space, &st->batch);
    check_whole(sh, &p->space);
}

/* Another thread does the next item. Returns the number of such items. */
static uint32_t pass_over(struct vvi_plan *p, struct vvi_step *st, uint32_t next)
{
    st->batch.to = st->batch.nr = 0;
    if (p->from == p->to)
        return 0;
    T_EQ(p->from, next);
    vvi_plan_skip(p);
    return 1;
}

/* Random layout and policy. Returns the unit of places. */
static uint64_t some_options(struct t_rng *rng, struct varve_tables_opts *o)
{
    T_OK(varve_tables_opts_init(o, sizeof(*o)));
    o->layout = (int32_t)t_rng_below(rng, 2);
    o->policy = (int32_t)t_rng_below(rng, 2);
    o->tables = TABLES;
    o->bytes = bytes;
    return o->layout == VARVE_TABLES_CHUNKED ? VVI_CHUNK_BYTES : VVI_FLAT_ALIGN;
}

/* Launches begin and end in some order; each item is done once, those that never fit outside of the device. */
static void one_plan(struct t_rng *rng)
{
    struct varve_tables_opts o = {.opts_size = sizeof(o)};
    struct varve_tables_work work;
    struct vvi_limits limits = {1 + (uint32_t)t_rng_below(rng, 20), 0, UINT64_MAX};
    struct vvi_step steps[DEPTH] = {0};
    struct shadow *sh = calloc(1, sizeof(*sh));
    struct vvi_order order;
    struct vvi_plan p;
    const char *why;
    struct vvi_largest largest;
    uint64_t unit, brought = 0, capacity, most;
    uint32_t under_way = 0, items = 0, next = 0;

    unit = some_options(rng, &o);
    work = make_work(rng, unit * 40);
    capacity = unit * (20 + t_rng_below(rng, 400));
    limits.bytes = capacity / (1 + t_rng_below(rng, 8));
    T_OK(vvi_order_init(&order, &o, &work, &why));
    if (t_rng_below(rng, 2)) /* batches are cut before; or each in its turn */
        T_OK(vvi_order_meta(&order, &limits, capacity, &most, &largest));
    T_OK(vvi_plan_init(&p, &o, capacity));
    vvi_plan_begin(&p, &order, &limits, 0, (uint32_t)t_rng_below(rng, ITEMS + 1));
    for (;;) {
        uint32_t free_step = 0, ends;
        int rc = -EAGAIN;

        while (free_step < DEPTH && steps[free_step].batch.nr + steps[free_step].batch.to > 0)
            free_step++;
        if (free_step < DEPTH && t_rng_below(rng, 3))
            rc = vvi_plan_next(&p, t_rng_below(rng, 4) == 0, &steps[free_step]);
        if (rc == -EFBIG || (rc == -EAGAIN && free_step < DEPTH && t_rng_below(rng, 30) == 0)) {
            if (rc == -EFBIG)
                T_CHECK(steps[free_step].batch.bytes > p.space.capacity);
            uint32_t passed = pass_over(&p, &steps[free_step], next);
            next += passed;
            items += passed;
            continue;
        }
        if (rc == 0) {
            struct vvi_step *st = &steps[free_step];

            T_EQ(st->batch.from, next);
            next = st->batch.to;
            items += st->batch.to - st->batch.from;
            brought += st->fill_bytes;
            launched(sh, &p, st);
            under_way++;
            continue;
        }
        T_CHECK(rc == -EAGAIN || rc == -ENODATA);
        if (free_step < DEPTH)
            steps[free_step].batch.to = steps[free_step].batch.nr = 0;
        if (rc == -ENODATA && under_way == 0 && p.to < ITEMS) { /* another part of the order */
            vvi_plan_begin(&p, &order, &limits, p.to,
                           p.to + 1 + (uint32_t)t_rng_below(rng, ITEMS - p.to));
            T_CHECK(vvi_space_check(&p.space));
            continue;
        }
        if (rc == -ENODATA && under_way == 0)
            break;
        ends = (uint32_t)t_rng_below(rng, DEPTH);
        if (steps[ends].batch.to == 0)
            continue;
        unpin(sh, &steps[ends].batch);
        vvi_plan_done(&p, &steps[ends], false);
        steps[ends].batch.to = 0;
        check_whole(sh, &p.space);
        under_way--;
    }
    T_EQ(items, ITEMS);
    T_EQ(brought, p.stats.bytes);
    for (uint32_t i = 0; i < DEPTH; i++)
        vvi_step_fini(&steps[i]);
    vvi_plan_fini(&p);
    vvi_order_fini(&order);
    free(sh);
}

static void plans(void)
{
    struct t_rng rng = {t_seed()};

    for (uint64_t n = t_cases(200, 20000); n > 0; n--)
        one_plan(&rng);
}

/* Without launches under way there is always room for tables that fit the cache. */
static void progress(void)
{
    struct t_rng rng = {t_seed() + 1};

    for (uint64_t n = t_cases(100, 5000); n > 0; n--) {
        struct varve_tables_opts o;
        struct varve_tables_work work = make_work(&rng, 256 * 40);
        struct vvi_limits limits = {1, 0, UINT64_MAX};
        struct vvi_step step = {0};
        struct vvi_order order;
        struct vvi_plan p;
        const char *why;
        uint64_t most = 0;

        T_OK(varve_tables_opts_init(&o, sizeof(o)));
        o.tables = TABLES;
        o.bytes = bytes;
        T_OK(vvi_order_init(&order, &o, &work, &why));
        for (uint32_t i = 0; i < ITEMS; i++) {
            struct vvi_batch b = {0};
            struct vvi_marks m;

            T_OK(vvi_marks_init(&m, o.bytes, TABLES, order.chunked));
            vvi_batch_begin(&b, &m, TABLES, i);
            T_OK(vvi_batch_add(&b, &order, &m, &limits));
            most = VV_MAX(most, b.bytes);
            vvi_batch_fini(&b);
            vvi_marks_fini(&m);
        }
        T_OK(vvi_plan_init(&p, &o, most));
        vvi_plan_begin(&p, &order, &limits, 0, ITEMS);
        for (uint32_t i = 0; i < ITEMS; i++) {
            T_OK(vvi_plan_next(&p, false, &step));
            vvi_plan_done(&p, &step, false);
        }
        vvi_step_fini(&step);
        vvi_plan_fini(&p);
        vvi_order_fini(&order);
    }
}

/* Launches some of an order; they end one by one, or not at all. `other`: a plan that has to do the same. */
static void launch_some(struct t_rng *rng, struct vvi_plan *p, struct vvi_plan *other, uint64_t n,
                        bool end)
{
    struct vvi_step step = {0}, same = {0};

    for (; n > 0; n--) {
        bool more = t_rng_below(rng, 4) == 0;
        int rc = vvi_plan_next(p, more, &step);

        if (other) {
            T_EQ(vvi_plan_next(other, more, &same), rc);
            T_EQ(other->space.evicted, p->space.evicted);
            T_CHECK(vvi_space_check(&p->space));
        }
        if (rc == -ENODATA)
            break;
        if (rc == -EFBIG || (rc == -EAGAIN && !more)) {
            vvi_plan_skip(p);
            if (other)
                vvi_plan_skip(other);
            continue;
        }
        if (rc)
            continue;
        for (uint32_t i = 0; other && i < step.batch.nr; i++) {
            uint32_t t = step.batch.tables[i];

            for (uint64_t u = 0; u < units_of(&p->space, t); u++)
                T_EQ(unit_at(&p->space, t, u), unit_at(&other->space, t, u));
        }
        if (other)
            T_EQ(same.nr_fills, step.nr_fills);
        if (end || t_rng_below(rng, 2)) {
            vvi_plan_done(p, &step, false);
            if (other)
                vvi_plan_done(other, &same, false);
        }
    }
    vvi_step_fini(&step);
    vvi_step_fini(&same);
}

/* A cache that was emptied, with any launches under way, is equal to a new one of that size. */
static void emptied(void)
{
    struct t_rng rng = {t_seed() + 5};

    for (uint64_t n = t_cases(100, 5000); n > 0; n--) {
        struct varve_tables_opts o = {.opts_size = sizeof(o)};
        struct vvi_limits limits = {1 + (uint32_t)t_rng_below(&rng, 20), 0, UINT64_MAX};
        struct varve_tables_work work;
        struct vvi_order order;
        struct vvi_plan p, made;
        const char *why;
        uint64_t unit, capacity, evicted;

        T_OK(varve_tables_opts_init(&o, sizeof(o)));
        o.layout = (int32_t)t_rng_below(&rng, 2);
        o.tables = TABLES;
        o.bytes = bytes;
        unit = o.layout == VARVE_TABLES_CHUNKED ? VVI_CHUNK_BYTES : VVI_FLAT_ALIGN;
        work = make_work(&rng, unit * 40);
        capacity = unit * (20 + t_rng_below(&rng, 400));
        limits.bytes = capacity / (1 + t_rng_below(&rng, 8));
        T_OK(vvi_order_init(&order, &o, &work, &why));
        T_OK(vvi_plan_init(&p, &o, capacity));
        vvi_plan_begin(&p, &order, &limits, 0, ITEMS);
        launch_some(&rng, &p, NULL, t_rng_below(&rng, 200), t_rng_below(&rng, 2));
        evicted = p.space.evicted + p.space.nr;
        capacity -= t_rng_below(&rng, capacity / 2);
        vvi_space_empty(&p.space, capacity);
        T_EQ(p.space.evicted, evicted);
        T_CHECK(vvi_space_check(&p.space));
        T_OK(vvi_plan_init(&made, &o, capacity));
        made.space.evicted = evicted;
        vvi_plan_begin(&p, &order, &limits, 0, ITEMS);
        vvi_plan_begin(&made, &order, &limits, 0, ITEMS);
        launch_some(&rng, &p, &made, UINT64_MAX, true);
        vvi_plan_fini(&p);
        vvi_plan_fini(&made);
        vvi_order_fini(&order);
    }
}

/* ---- farthest next use, simply ---- */

/* Item after item, whole tables in chunks (`whole`) or chunk by chunk. Returns the bytes that are brought. */
static uint64_t long_way(uint64_t chunks, bool whole)
{
    uint64_t have[TABLES] = {0}, vacant = chunks, brought = 0;

    for (uint32_t i = 0; i < ITEMS; i++)
        for (int pass = 0; pass < 2; pass++) {
            uint64_t need = 0;

            for (uint64_t u = first[i]; u < first[i + 1]; u++) {
                uint64_t all = vv_div_up(bytes[uses[u]], VVI_CHUNK_BYTES);
                bool before = false;

                for (uint64_t k = first[i]; k < u; k++)
                    before = before || uses[k] == uses[u];
                if (before)
                    continue;
                need += all - have[uses[u]];
                if (pass == 1 && have[uses[u]] < all) {
                    brought += bytes[uses[u]] - have[uses[u]] * VVI_CHUNK_BYTES;
                    vacant -= all - have[uses[u]];
                    have[uses[u]] = all;
                }
            }
            while (pass == 0 && vacant < need) {
                uint32_t worst = VVI_NONE;
                uint64_t n;

                for (uint32_t t = 0; t < TABLES; t++)
                    if (have[t] && next_of(t, i) != i &&
                        (worst == VVI_NONE || next_of(t, i) >= next_of(worst, i)))
                        worst = t;
                T_CHECK(worst != VVI_NONE);
                n = whole ? have[worst] : VV_MIN(have[worst], need - vacant);
                have[worst] -= n;
                vacant += n;
            }
        }
    return brought;
}

static void next_uses(void)
{
    struct t_rng rng = {t_seed() + 3};
    struct varve_tables_work work = make_work(&rng, 100);
    struct varve_tables_opts o = {.opts_size = sizeof(o), .tables = TABLES, .bytes = bytes};
    struct vvi_order order;
    const char *why;

    T_OK(vvi_order_init(&order, &o, &work, &why));
    T_OK(vvi_order_find_nexts(&order));
    for (uint32_t i = 0; i < ITEMS; i++)
        for (uint64_t u = first[i]; u < first[i + 1]; u++)
            T_EQ(vvi_order_next(&order, u), next_of(uses[u], i + 1));
    vvi_order_fini(&order);
}

/* A use of a table that does not exist is found in any position, and its item named. */
static void no_such_table(void)
{
    struct t_rng rng = {t_seed() + 4};
    struct varve_tables_opts o = {.opts_size = sizeof(o), .tables = TABLES, .bytes = bytes};

    for (uint64_t n = t_cases(200, 20000); n > 0; n--) {
        struct varve_tables_work work = make_work(&rng, 100);
        uint64_t at = t_rng_below(&rng, first[ITEMS]), item = 0;
        const uint32_t wrong[] = {TABLES, TABLES + 1, UINT32_C(1) << 31, UINT32_MAX};
        struct vvi_order order;
        char text[32];
        const char *why;

        while (first[item + 1] <= at)
            item++;
        uses[at] = wrong[t_rng_below(&rng, 4)];
        T_EQ(vvi_order_init(&order, &o, &work, &why), -EINVAL);
        (void)snprintf(text, sizeof(text), "item %llu uses", (unsigned long long)item);
        T_CHECK(strncmp(why, text, strlen(text)) == 0);
        vvi_order_fini(&order);
    }
}

static void farthest(void)
{
    struct t_rng rng = {t_seed() + 2};

    for (uint64_t n = t_cases(20, 500); n > 0; n--) {
        struct varve_tables_opts o;
        struct varve_tables_work work = make_work(&rng, VVI_CHUNK_BYTES * 10);
        struct varve_tables_stats st = {.stats_size = sizeof(st)};
        struct varve_tables_speeds speeds = {.speeds_size = sizeof(speeds), .link_bytes = 1e9};
        uint64_t least, chunks = 60 + t_rng_below(&rng, 100);

        T_OK(varve_tables_opts_init(&o, sizeof(o)));
        o.tables = TABLES;
        o.bytes = bytes;
        o.cache_bytes = chunks * VVI_CHUNK_BYTES;
        o.layout = VARVE_TABLES_CHUNKED;
        o.batch_items = 1;
        o.depth = o.lanes = 1;
        T_OK(varve_tables_least(&o, &work, &least));
        T_EQ(least, long_way(chunks, false));
        T_OK(varve_tables_plan(&o, &work, &speeds, &st));
        T_EQ(st.capacity_bytes, vv_align_down(o.cache_bytes - st.meta_bytes, VVI_CHUNK_BYTES));
        T_EQ(st.bytes, long_way(st.capacity_bytes / VVI_CHUNK_BYTES, true));
        T_CHECK(least <= st.bytes);
    }
}

/* ---- sharing work ---- */

/* The processor is faster than the remaining work on the device, or a speed is unknown. */
static void paces(void)
{
    struct vvi_pace unknown = {0, 0}, slow = {1, 100}, fast = {1, 1};

    T_CHECK(vvi_pace_host_first(&unknown, &fast, 1, 0));
    T_CHECK(!vvi_pace_host_first(&slow, &unknown, 1, 0));
    T_CHECK(!vvi_pace_host_first(&slow, &fast, 1, 99));
    T_CHECK(vvi_pace_host_first(&slow, &fast, 1, 100));
    T_CHECK(vvi_pace_host_first(&fast, &slow, 1, 0));
}

/* Several devices do each item once, even if one part has all the work; and take less time than one. */
static void several(void)
{
    struct t_rng rng = {t_seed() + 4};
    double cost[ITEMS];

    for (uint64_t n = t_cases(40, 2000); n > 0; n--) {
        struct varve_tables_opts o;
        struct varve_tables_work work = make_work(&rng, 256 * 40);
        struct varve_tables_speeds speeds = {.speeds_size = sizeof(speeds), .device_cost = 1000};
        uint64_t one_ns = 0;

        T_OK(varve_tables_opts_init(&o, sizeof(o)));
        o.tables = TABLES;
        o.bytes = bytes;
        o.cache_bytes = 256 * 40 * USES + (1 << 16);
        o.layout = VARVE_TABLES_FLAT;
        o.policy = (int32_t)t_rng_below(&rng, 2);
        o.batch_items = 1 + (uint32_t)t_rng_below(&rng, 4);
        o.depth = 1;
        if (n % 2)
            work.cost = cost;
        for (uint32_t i = 0; i < ITEMS; i++)
            cost[i] = 1 + (double)t_rng_below(&rng, 5);
        for (o.nr_more = 0; o.nr_more < 4; o.nr_more += 3) {
            struct varve_tables_stats st = {.stats_size = sizeof(st)};

            T_OK(vv_tables_plan(&o, &work, &speeds, &st));
            T_EQ(st.items, ITEMS);
            T_EQ(st.host_items, 0);
            T_CHECK(o.nr_more == 0 || st.queued_ns < one_ns);
            one_ns = st.queued_ns;
        }
    }
}

/* Launches that take long, with few or many items, run in parallel; and no more tables are brought for that than the
 * lanes hold. */
static void lanes(void)
{
    struct t_rng rng = {t_seed() + 5};
    struct varve_tables_work work = make_work(&rng, 256 * 40);
    struct varve_tables_speeds speeds = {.speeds_size = sizeof(speeds), .launch_s = 1e-3};
    struct varve_tables_opts o;
    uint64_t one_ns = 0;

    T_OK(varve_tables_opts_init(&o, sizeof(o)));
    o.tables = TABLES;
    o.bytes = bytes;
    o.cache_bytes = 256 * 40 * (TABLES + 10);
    o.batch_items = 4;
    for (o.lanes = 1; o.lanes <= 8; o.lanes += 7) {
        struct varve_tables_stats st = {.stats_size = sizeof(st)};

        T_OK(vv_tables_plan(&o, &work, &speeds, &st));
        T_EQ(st.items, ITEMS);
        T_CHECK(o.lanes == 1 || 4 * st.queued_ns < one_ns);
        one_ns = st.queued_ns;
    }
    o.lanes = 0;
    T_ERR(vv_tables_plan(&o, &work, &speeds, &(struct varve_tables_stats){.stats_size = 8}),
          -EINVAL);
}

/* ---- the order of work that the design is measured by ---- */

static void survey(void)
{
    struct survey_opts so = survey_defaults();
    struct varve_tables_opts o;
    struct varve_tables_stats st[2][2];
    struct varve_tables_speeds speeds = {.speeds_size = sizeof(speeds),
                                         .link_bytes = 55e9,
                                         .device_cost = 50000,
                                         .host_cost = 500,
                                         .launch_s = 1.9e-3};
    double bound_s;
    struct varve_tables_work work = {.work_size = sizeof(work)};
    struct survey s;
    uint64_t least;

    so.seed = t_seed();
    if (t_sanitized()) { /* a tenth of the size */
        so.total_bytes /= 10;
        so.aspect = 2;
    }
    T_EQ(survey_make(&so, &s), 0);
    T_OK(varve_tables_opts_init(&o, sizeof(o)));
    o.tables = s.tables;
    o.bytes = s.bytes;
    o.cache_bytes = (uint64_t)(so.total_bytes * 8 / 73);
    work.items = s.items;
    work.first = s.first;
    work.uses = s.uses;
    T_OK(varve_tables_least(&o, &work, &least));
    for (int policy = 0; policy < 2; policy++)
        for (int layout = 0; layout < 2; layout++) {
            struct varve_tables_stats *to = &st[policy][layout];

            o.policy = policy;
            o.layout = layout;
            to->stats_size = sizeof(*to);
            T_OK(vv_tables_plan(&o, &work, &speeds, to));
            T_EQ(to->items, s.items);
            t_note("%s, %s: %.1f GB, %.3f of the least; utilisation %.4f; %llu items by the "
                   "processor, "
                   "%.1f GB moved on the device; %.3f s",
                   policy ? "paper" : "next use", layout ? "chunked" : "flat",
                   (double)to->bytes / 1e9, (double)to->bytes / (double)least, to->utilisation,
                   (unsigned long long)to->host_items, (double)to->moved_bytes / 1e9,
                   (double)to->queued_ns * 1e-9);
        }
    bound_s = fmax((double)least / speeds.link_bytes, (double)s.items / speeds.device_cost);
    for (int layout = 0; layout < 2 && !t_sanitized(); layout++) {
        T_CHECK((double)st[0][layout].queued_ns * 1e-9 <= 1.3 * bound_s);
        T_CHECK((double)st[0][layout].bytes <= 1.15 * (double)least);
        T_CHECK((double)st[0][layout].bytes <= 0.6 * (double)st[1][layout].bytes);
        T_CHECK(2 * st[0][layout].host_items <= st[1][layout].host_items);
        T_CHECK(st[0][layout].utilisation >= (layout ? 0.99 : 0.95));
    }
    survey_free(&s);
}

int main(void)
{
    T_RUN(plans);
    T_RUN(progress);
    T_RUN(emptied);
    T_RUN(next_uses);
    T_RUN(no_such_table);
    T_RUN(farthest);
    T_RUN(paces);
    T_RUN(several);
    T_RUN(lanes);
    T_RUN(survey);
    return t_done();
}
