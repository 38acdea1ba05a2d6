/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound as a linear program: transfers are fluids, and a schedule that knows the future chooses how much of
 * each version moves in each period. Gaps and calls are periods of their own; node n is the end of period n.
 *
 *   b(n)        how long the call of period n blocks, at least its copy; the sum is minimised
 *   a(o, n)     bytes of version o above a hop at node n
 *   f(o, n)     bytes of it that have gone down by then; it never falls
 *   u(o, n)     bytes of it that come up in period n
 *
 *   a + f >= size while o is live          a byte is somewhere
 *   a(n) <= a(n-1) + u(n)                  what is above was there, or came up
 *   a(n-1) + u(n) >= size at a get         and a get needs all of it
 *   sum of a <= capacity at every node
 *   time for u, for the growth of f, and for both, within the length of the period
 *
 * Each hop is separate; only b joins it to the others. Every real schedule satisfies this, so the optimum is a
 * lower bound. A fence is a period without limit, at whose end everything is below.
 *
 * Units are seconds and megabytes, for the solver's sake.
 */
#include "lab/shot/bound_lp.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/util.h"

#define NONE SIZE_MAX
#define MEGA 1e6

/* ---- GLPK ---- */

enum {
    GLP_MIN = 1,
    GLP_LO = 2,
    GLP_UP = 3,
    GLP_FX = 5,
    GLP_OPT = 5,
    GLP_OFF = 0,
    GLP_SF_AUTO = 0x80
};

/* X(result, name, arguments) */
#define FUNCTIONS(X)                                                              \
    X(void *, create_prob, (void))                                                \
    X(void, delete_prob, (void *))                                                \
    X(void, set_obj_dir, (void *, int))                                           \
    X(int, add_rows, (void *, int))                                               \
    X(int, add_cols, (void *, int))                                               \
    X(void, set_row_bnds, (void *, int, int, double, double))                     \
    X(void, set_col_bnds, (void *, int, int, double, double))                     \
    X(void, set_obj_coef, (void *, int, double))                                  \
    X(void, load_matrix, (void *, int, const int *, const int *, const double *)) \
    X(int, interior, (void *, const void *))                                      \
    X(int, ipt_status, (void *))                                                  \
    X(double, ipt_obj_val, (void *))                                              \
    X(void, scale_prob, (void *, int))                                            \
    X(void, adv_basis, (void *, int))                                             \
    X(int, simplex, (void *, const void *))                                       \
    X(int, get_status, (void *))                                                  \
    X(double, get_obj_val, (void *))                                              \
    X(int, term_out, (int))                                                       \
    X(int, free_env, (void))

struct glpk {
    void *library;
#define X(result, name, arguments) result(*name) arguments;
    FUNCTIONS(X)
#undef X
};

static int glpk_open(struct glpk *g)
{
    static const char *const names[] = {"libglpk.so.40", "libglpk.so.36", "libglpk.so"};

    for (size_t i = 0; i < VV_ARRAY_SIZE(names) && !g->library; i++)
        g->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!g->library)
        return -ENOTSUP;
#define X(result, name, arguments)                        \
    *(void **)&g->name = dlsym(g->library, "glp_" #name); \
    if (!g->name)                                         \
        return -ENOTSUP;
    FUNCTIONS(X)
#undef X
    return 0;
}

/* ---- the program ---- */

struct life {
    double size;      /* megabytes */
    size_t put, dead; /* periods from 1; dead: the first at whose end it is not needed */
    size_t last_get;  /* 0: none */
    size_t first_col; /* of a(put); each node has three columns: a, f, u */
};

struct period {
    enum { GAP, PUT, GET, FENCE } kind;
    size_t life;   /* PUT, GET */
    double gap_s;  /* GAP */
    double copy_s; /* PUT, GET */
};

struct lp {
    const struct bound_params *params;
    struct life *lives;
    struct period *periods; /* from 1 */
    size_t nr_lives, nr_periods;
    size_t nr_rows, nr_cols, nr_cells, cap_cells;
    struct cell {
        int row, col;
        double value;
    } * cells;
    struct row {
        int type;
        double low, high;
    } * rows;
    size_t cap_rows;
    bool failed; /* no memory */
};

static void add_cell(struct lp *p, size_t col, double value)
{
    if (p->nr_cells == p->cap_cells) {
        size_t cap = p->cap_cells ? 2 * p->cap_cells : 4096;
        struct cell *cells = realloc(p->cells, cap * sizeof(*cells));

        p->failed |= !cells;
        if (!cells)
            return;
        p->cells = cells;
        p->cap_cells = cap;
    }
    p->cells[p->nr_cells++] = (struct cell){(int)p->nr_rows, (int)col, value};
}

/* Starts a row: cells that are added next belong to it. */
static void add_row(struct lp *p, int type, double low, double high)
{
    if (p->nr_rows == p->cap_rows) {
        size_t cap = p->cap_rows ? 2 * p->cap_rows : 1024;
        struct row *rows = realloc(p->rows, cap * sizeof(*rows));

        p->failed |= !rows;
        if (!rows)
            return;
        p->rows = rows;
        p->cap_rows = cap;
    }
    p->rows[p->nr_rows++] = (struct row){type, low, high};
}

/* Columns: b(n) is n; then, for the present hop, a, f and u of each life, for nodes put to dead. */
static size_t col_a(const struct life *l, size_t n)
{
    return l->first_col + 3 * (n - l->put);
}

static size_t col_f(const struct life *l, size_t n)
{
    return col_a(l, n) + 1;
}

static size_t col_u(const struct life *l, size_t n)
{
    return col_a(l, n) + 2;
}

static size_t last_node(const struct lp *p, const struct life *l)
{
    return VV_MIN(l->dead, p->nr_periods);
}

static bool is_live(const struct life *l, size_t n)
{
    return n >= l->put && n < l->dead;
}

/* The bytes of a life that go down in period n. */
static void add_down(struct lp *p, const struct life *l, size_t n, double factor)
{
    if (!is_live(l, n))
        return;
    add_cell(p, col_f(l, n), factor);
    if (n > l->put)
        add_cell(p, col_f(l, n - 1), -factor);
}

static void add_up(struct lp *p, const struct life *l, size_t n, double factor)
{
    if (n > l->put && n <= l->last_get && n <= last_node(p, l))
        add_cell(p, col_u(l, n), factor);
}

/* Transfers of period n take no more than its time: those down at one rate, those up at the other. 0: they do not
 * count. */
static void add_bandwidth(struct lp *p, size_t n, double down_bps, double up_bps)
{
    add_row(p, GLP_UP, 0, p->periods[n].gap_s);
    for (size_t i = 0; i < p->nr_lives; i++) {
        if (down_bps > 0)
            add_down(p, &p->lives[i], n, MEGA / down_bps);
        if (up_bps > 0)
            add_up(p, &p->lives[i], n, MEGA / up_bps);
    }
    add_cell(p, n, -1);
}

/* In one direction, in the other, and in both. */
static void add_bandwidths(struct lp *p, size_t n, const struct bound_hop *hop)
{
    double both = fmax(hop->both_bps, fmax(hop->down_bps, hop->up_bps));

    if (hop->down_bps > 0 && hop->up_bps > 0 && hop->both_bps <= 0) {
        add_bandwidth(p, n, hop->down_bps, hop->up_bps); /* one medium: the others follow from it */
        return;
    }
    if (hop->down_bps > 0)
        add_bandwidth(p, n, hop->down_bps, 0);
    if (hop->up_bps > 0)
        add_bandwidth(p, n, 0, hop->up_bps);
    if (hop->down_bps > 0 && hop->up_bps > 0)
        add_bandwidth(p, n, both, both);
}

static void add_life(struct lp *p, const struct life *l)
{
    for (size_t n = l->put; n <= last_node(p, l) && is_live(l, n); n++) {
        add_row(p, GLP_LO, l->size, 0);
        add_cell(p, col_a(l, n), 1);
        add_cell(p, col_f(l, n), 1);
        if (n == l->put)
            continue;
        add_row(p, GLP_LO, p->periods[n].kind == FENCE ? l->size : 0, 0);
        add_cell(p, col_f(l, n), 1);
        if (p->periods[n].kind != FENCE)
            add_cell(p, col_f(l, n - 1), -1);
        if (n > l->last_get)
            continue;
        add_row(p, GLP_UP, 0, 0);
        add_cell(p, col_a(l, n), 1);
        add_cell(p, col_a(l, n - 1), -1);
        add_cell(p, col_u(l, n), -1);
    }
}

static void add_hop(struct lp *p, const struct bound_hop *hop)
{
    for (size_t i = 0; i < p->nr_lives; i++) {
        struct life *l = &p->lives[i];

        l->first_col = p->nr_cols + 1;
        p->nr_cols += 3 * (last_node(p, l) - l->put + 1);
    }
    for (size_t i = 0; i < p->nr_lives; i++)
        add_life(p, &p->lives[i]);
    for (size_t n = 1; n <= p->nr_periods; n++) {
        const struct life *l = &p->lives[p->periods[n].life];

        add_row(p, GLP_UP, 0, hop->above_bytes / MEGA);
        for (size_t i = 0; i < p->nr_lives; i++)
            if (is_live(&p->lives[i], n))
                add_cell(p, col_a(&p->lives[i], n), 1);
        if (p->periods[n].kind == FENCE)
            continue;
        add_bandwidths(p, n, hop);
        if (p->periods[n].kind == GET) {
            add_row(p, GLP_LO, l->size, 0);
            add_cell(p, col_a(l, n - 1), 1);
            add_cell(p, col_u(l, n), 1);
        }
    }
}

/* ---- events ---- */

static double copy_s(const struct bound_params *p, bool get, double bytes)
{
    double bps = get                                               ? p->get_copy_bps
                 : p->put_beyond_bps > 0 && bytes > p->first_bytes ? p->put_beyond_bps
                                                                   : p->put_copy_bps;

    return bps > 0 ? bytes / bps : 0;
}

/* The life that a version has now, or NONE. */
static size_t find_life(const struct lp *p, const uint64_t *versions, uint64_t version)
{
    for (size_t i = p->nr_lives; i-- > 0;)
        if (versions[i] == version && p->lives[i].dead == NONE)
            return i;
    return NONE;
}

static void take_call(struct lp *p, const struct bound_event *ev, size_t life)
{
    struct life *l = &p->lives[life];
    bool get = ev->kind != BOUND_PUT;
    struct period *call;

    p->periods[++p->nr_periods] = (struct period){.kind = GAP, .gap_s = (double)ev->gap_ns * 1e-9};
    call = &p->periods[++p->nr_periods];
    *call = (struct period){.kind = get ? GET : PUT, .life = life};
    if (get)
        l->last_get = p->nr_periods;
    else
        *l = (struct life){.size = (double)ev->bytes / MEGA, .put = p->nr_periods, .dead = NONE};
    if (ev->kind == BOUND_TAKE || (get && p->params->consume_once))
        l->dead = p->nr_periods;
    call->copy_s = copy_s(p->params, get, l->size * MEGA);
}

static int take_events(struct lp *p, const struct bound_event *events, size_t nr_events,
                       uint64_t *versions)
{
    for (size_t i = 0; i < nr_events; i++) {
        const struct bound_event *ev = &events[i];
        size_t life = ev->kind == BOUND_FENCE ? NONE : find_life(p, versions, ev->version);

        if (ev->kind == BOUND_FENCE) {
            p->periods[++p->nr_periods].kind = FENCE;
            continue;
        }
        if ((ev->kind == BOUND_PUT) != (life == NONE))
            return -EINVAL;
        if (ev->kind == BOUND_DISCARD) {
            p->lives[life].dead = p->nr_periods + 1;
            continue;
        }
        if (ev->kind == BOUND_PUT) {
            versions[p->nr_lives] = ev->version;
            life = p->nr_lives++;
        }
        take_call(p, ev, life);
    }
    return 0;
}

/* b of a gap or a fence. */
static bool takes_no_time(const struct lp *p, size_t col)
{
    return col <= p->nr_periods && (p->periods[col].kind == GAP || p->periods[col].kind == FENCE);
}

/* By interior points, which is fast; by the simplex method if that does not converge. */
static int optimise(const struct glpk *g, void *prob, double *ret_s)
{
    if (g->interior(prob, NULL) == 0 && g->ipt_status(prob) == GLP_OPT) {
        *ret_s = g->ipt_obj_val(prob);
        return 0;
    }
    g->scale_prob(prob, GLP_SF_AUTO);
    g->adv_basis(prob, 0);
    if (g->simplex(prob, NULL) != 0 || g->get_status(prob) != GLP_OPT)
        return -EDOM;
    *ret_s = g->get_obj_val(prob);
    return 0;
}

static int solve(struct glpk *g, struct lp *p, double *ret_s)
{
    int *ia = calloc(p->nr_cells + 1, sizeof(*ia)), *ja = calloc(p->nr_cells + 1, sizeof(*ja));
    double *ar = calloc(p->nr_cells + 1, sizeof(*ar));
    void *prob = g->create_prob();
    int rc = ia && ja && ar && prob ? 0 : -ENOMEM;

    if (rc == 0) {
        g->term_out(GLP_OFF);
        g->set_obj_dir(prob, GLP_MIN);
        g->add_rows(prob, (int)p->nr_rows);
        g->add_cols(prob, (int)p->nr_cols);
        for (size_t i = 0; i < p->nr_rows; i++)
            g->set_row_bnds(prob, (int)i + 1, p->rows[i].type, p->rows[i].low, p->rows[i].high);
        for (size_t i = 1; i <= p->nr_cols; i++)
            g->set_col_bnds(prob, (int)i, takes_no_time(p, i) ? GLP_FX : GLP_LO,
                            i <= p->nr_periods ? p->periods[i].copy_s : 0, 0);
        for (size_t i = 1; i <= p->nr_periods; i++)
            g->set_obj_coef(prob, (int)i, 1);
        for (size_t i = 0; i < p->nr_cells; i++) {
            ia[i + 1] = p->cells[i].row;
            ja[i + 1] = p->cells[i].col;
            ar[i + 1] = p->cells[i].value;
        }
        g->load_matrix(prob, (int)p->nr_cells, ia, ja, ar);
        rc = optimise(g, prob, ret_s);
    }
    if (prob)
        g->delete_prob(prob);
    free(ia);
    free(ja);
    free(ar);
    return rc;
}

int bound_lp(const struct bound_event *events, size_t nr_events, const struct bound_params *params,
             double *ret_s)
{
    struct lp p = {.params = params};
    struct glpk g = {0};
    uint64_t *versions = calloc(nr_events + 1, sizeof(*versions));
    int rc = glpk_open(&g);

    p.lives = calloc(nr_events + 1, sizeof(*p.lives));
    p.periods = calloc(2 * nr_events + 2, sizeof(*p.periods));
    if (rc == 0 && (!versions || !p.lives || !p.periods))
        rc = -ENOMEM;
    if (rc == 0)
        rc = take_events(&p, events, nr_events, versions);
    if (rc == 0) {
        p.nr_cols = p.nr_periods;
        for (size_t h = 0; h < params->nr_hops; h++)
            add_hop(&p, &params->hops[h]);
        rc = p.failed ? -ENOMEM : p.nr_periods ? solve(&g, &p, ret_s) : (*ret_s = 0, 0);
    }
    if (g.library && g.free_env)
        g.free_env(); /* memory that GLPK keeps for this thread */
    if (g.library)
        dlclose(g.library);
    free(versions);
    free(p.lives);
    free(p.periods);
    free(p.cells);
    free(p.rows);
    return rc;
}
