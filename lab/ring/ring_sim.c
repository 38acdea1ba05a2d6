/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All files are placed once. A trial then takes one node away and places only the files of that node
 * again: the other files are not computed again; a sample of them is checked in each trial, to find a scheme that
 * moves them. Only `mod` moves them, and for it all files are computed again.
 *
 * Under hrw-bounded the places of files depend on the order in which they came; they come in the
 * order of their numbers, before and after the failure, and every home has the loads of all nodes and the
 * size of the data set.
 * A healthy file stays where its home put it, so the sample checks its home.
 *
 * Threads: homes are found piece by piece, trials are independent; each has arrays of its own for its changes.
 * Results are summed up in order at the end.
 */
#include "lab/ring/ring_sim.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 4096u

struct trial {
    uint32_t dead;
    uint32_t receivers;
    uint64_t got;            /* files that came to a node which did not have them */
    uint64_t checked, moved; /* healthy files */
    double max_over_mean;
    int rc;
};

struct sim {
    const struct ring_sim_opts *o;
    struct vv_place *map;
    struct vv_place_node *nodes;
    uint64_t *keys;    /* of each file */
    uint32_t *home;    /* of each file, by the map alone */
    uint32_t *holder;  /* of each file */
    uint64_t *load;    /* files of each node */
    uint32_t *by_node; /* the files, by holder */
    uint64_t *first;   /* of each node in by_node, and the end */
    struct trial *trials;
    struct sim_progress *progress;
};

/* ---- placing ---- */

static void find_homes(void *arg, size_t piece)
{
    struct sim *s = arg;
    uint64_t end = VV_MIN((uint64_t)(piece + 1) * PIECE, s->o->files);

    for (uint64_t f = (uint64_t)piece * PIECE; f < end; f++) {
        char path[64];
        int n = snprintf(path, sizeof(path), "train/%llu/%llu", (unsigned long long)s->o->seed,
                         (unsigned long long)f);

        s->keys[f] = vv_place_key(path, (size_t)n);
        s->home[f] = vv_place_owner(s->map, s->keys[f], NULL);
    }
}

static void place_all(struct sim *s)
{
    struct vv_place_loads loads = {
        .bytes = s->load, .expected = s->o->files, .weight = vv_place_weight(s->map, NULL)};

    sim_parallel(s->o->jobs, vv_div_up(s->o->files, PIECE), find_homes, s, s->progress);
    for (uint64_t f = 0; f < s->o->files; f++) {
        s->holder[f] = vv_place_bounded(s->map, s->keys[f], s->home[f], NULL, &loads, 1);
        s->load[s->holder[f]]++;
        loads.total++;
    }
    /* Sorted by holder, so that a trial finds the files of its node. */
    for (uint32_t n = 0; n < s->o->nodes; n++)
        s->first[n + 1] = s->first[n] + s->load[n];
    for (uint64_t f = s->o->files; f-- > 0;)
        s->by_node[--s->first[s->holder[f] + 1]] = (uint32_t)f;
    for (uint32_t n = 0; n < s->o->nodes; n++)
        s->first[n] = s->first[n + 1];
    s->first[s->o->nodes] = s->o->files;
}

static double fullest(const struct sim *s, const uint64_t *load, const uint64_t *up)
{
    double weight = (double)vv_place_weight(s->map, up), worst = 0;

    for (uint32_t n = 0; n < s->o->nodes; n++)
        if (vv_place_set_has(up, n))
            worst = fmax(worst, (double)load[n] * weight /
                                    ((double)s->nodes[n].weight * (double)s->o->files));
    return worst;
}

/* ---- a trial ---- */

/* Memory of one thread for a trial. */
struct scratch {
    uint64_t *up, *load, *got;
};

static int scratch_init(const struct sim *s, uint32_t dead, struct scratch *x)
{
    uint32_t n = s->o->nodes;

    x->up = calloc(vv_place_set_words(n), sizeof(*x->up));
    x->load = calloc(n, sizeof(*x->load));
    x->got = calloc(n, sizeof(*x->got));
    if (!x->up || !x->load || !x->got)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        if (i != dead)
            vv_place_set_add(x->up, i);
    memcpy(x->load, s->load, n * sizeof(*x->load));
    x->load[dead] = 0;
    return 0;
}

static void scratch_fini(struct scratch *x)
{
    free(x->up);
    free(x->load);
    free(x->got);
}

/* Moves the files of the dead node to others, and checks a sample of the healthy ones. */
static void fail_one(const struct sim *s, struct trial *t, struct scratch *x)
{
    struct vv_place_loads loads = {.bytes = x->load,
                                   .total = s->o->files - s->load[t->dead],
                                   .expected = s->o->files,
                                   .weight = vv_place_weight(s->map, x->up)};
    uint64_t state = s->o->seed ^ ((uint64_t)t->dead << 32);

    for (uint64_t i = s->first[t->dead]; i < s->first[t->dead + 1]; i++) {
        uint64_t key = s->keys[s->by_node[i]];
        uint32_t home = vv_place_owner(s->map, key, x->up);
        uint32_t to = vv_place_bounded(s->map, key, home, x->up, &loads, 1);

        x->load[to]++;
        x->got[to]++;
        loads.total++;
    }
    for (uint32_t i = 0; i < s->o->checks; i++) {
        uint64_t f = sim_random_below(&state, s->o->files);

        if (s->home[f] == t->dead || s->holder[f] == t->dead)
            continue;
        t->checked++;
        t->moved += vv_place_owner(s->map, s->keys[f], x->up) != s->home[f];
    }
}

/* Computes all files again, without the dead node. */
static int fail_mod(const struct sim *s, struct trial *t, struct scratch *x)
{
    struct vv_place_opts opts = {.scheme = VV_PLACE_MOD};
    struct vv_place_node *left = calloc(s->o->nodes, sizeof(*left));
    struct vv_place *map;
    uint32_t n = 0;
    int rc;

    if (!left)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->o->nodes; i++)
        if (i != t->dead)
            left[n++] = s->nodes[i];
    rc = vv_place_new(&opts, left, n, &map);
    free(left);
    if (rc < 0)
        return rc;
    memset(x->load, 0, s->o->nodes * sizeof(*x->load));
    for (uint64_t f = 0; f < s->o->files; f++) {
        uint32_t to = vv_place_owner(map, s->keys[f], NULL);

        to += to >= t->dead;
        x->load[to]++;
        x->got[to] += to != s->holder[f];
        t->checked += s->holder[f] != t->dead;
        t->moved += s->holder[f] != t->dead && to != s->holder[f];
    }
    vv_place_free(map);
    return 0;
}

static void run_trial(void *arg, size_t i)
{
    struct sim *s = arg;
    struct trial *t = &s->trials[i];
    struct scratch x = {0};

    t->rc = scratch_init(s, t->dead, &x);
    if (t->rc == 0 && s->o->scheme == VV_PLACE_MOD)
        t->rc = fail_mod(s, t, &x);
    else if (t->rc == 0)
        fail_one(s, t, &x);
    if (t->rc == 0) {
        for (uint32_t n = 0; n < s->o->nodes; n++) {
            t->receivers += x.got[n] > 0;
            t->got += x.got[n];
        }
        t->max_over_mean = fullest(s, x.load, x.up);
    }
    scratch_fini(&x);
}

/* ---- the whole ---- */

/* Each node fails once before any fails twice. */
static int choose_nodes(struct sim *s)
{
    uint32_t n = s->o->nodes, *order = calloc(n, sizeof(*order));
    uint64_t state = s->o->seed;

    if (!order)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t j = (uint32_t)sim_random_below(&state, i + 1), t = order[i];

        order[i] = order[j];
        order[j] = t;
    }
    for (uint32_t i = 0; i < s->o->trials; i++)
        s->trials[i].dead = order[i % n];
    free(order);
    return 0;
}

static int sum_up(const struct sim *s, struct ring_sim_result *r)
{
    double n = s->o->trials, r2 = 0, f2 = 0, checked = 0, moved = 0;

    for (uint32_t i = 0; i < s->o->trials; i++) {
        const struct trial *t = &s->trials[i];
        double per = t->receivers ? (double)t->got / t->receivers : 0;

        if (t->rc < 0)
            return t->rc;
        r->receivers_mean += t->receivers / n;
        r2 += (double)t->receivers * t->receivers / n;
        r->files_per_receiver_mean += per / n;
        f2 += per * per / n;
        r->max_over_mean_after += t->max_over_mean / n;
        r->max_over_mean_worst = fmax(r->max_over_mean_worst, t->max_over_mean);
        checked += (double)t->checked;
        moved += (double)t->moved;
    }
    r->receivers_sd = sqrt(fmax(r2 - r->receivers_mean * r->receivers_mean, 0));
    r->files_per_receiver_sd =
        sqrt(fmax(f2 - r->files_per_receiver_mean * r->files_per_receiver_mean, 0));
    r->healthy_moved_fraction = checked > 0 ? moved / checked : 0;
    return 0;
}

static int sim_init(struct sim *s)
{
    const struct ring_sim_opts *o = s->o;
    struct vv_place_opts opts = {
        .scheme = o->scheme, .vnodes = o->vnodes, .limit_pct = o->limit_pct};

    if (o->nodes < 2 || o->files == 0 || o->files > UINT32_MAX || o->trials == 0)
        return -EINVAL;
    s->nodes = calloc(o->nodes, sizeof(*s->nodes));
    s->keys = calloc(o->files, sizeof(*s->keys));
    s->home = calloc(o->files, sizeof(*s->home));
    s->holder = calloc(o->files, sizeof(*s->holder));
    s->by_node = calloc(o->files, sizeof(*s->by_node));
    s->load = calloc(o->nodes, sizeof(*s->load));
    s->first = calloc(o->nodes + 1, sizeof(*s->first));
    s->trials = calloc(o->trials, sizeof(*s->trials));
    if (!s->nodes || !s->keys || !s->home || !s->holder || !s->by_node || !s->load || !s->first ||
        !s->trials)
        return -ENOMEM;
    for (uint32_t i = 0; i < o->nodes; i++) {
        char name[32];

        snprintf(name, sizeof(name), "node%u", i);
        s->nodes[i] = (struct vv_place_node){vv_place_node_id(name),
                                             o->nr_weights ? o->weights[i % o->nr_weights] : 1};
    }
    return vv_place_new(&opts, s->nodes, o->nodes, &s->map);
}

static void sim_fini(struct sim *s)
{
    vv_place_free(s->map);
    free(s->nodes);
    free(s->keys);
    free(s->home);
    free(s->holder);
    free(s->by_node);
    free(s->load);
    free(s->first);
    free(s->trials);
}

uint64_t ring_sim_steps(const struct ring_sim_opts *o)
{
    return vv_div_up(o->files, PIECE) + o->trials;
}

int ring_sim_run(const struct ring_sim_opts *o, struct sim_progress *progress,
                 struct ring_sim_result *ret_result)
{
    struct ring_sim_result r = {.scheme = o->scheme};
    struct sim s = {.o = o, .progress = progress};
    int rc = sim_init(&s);

    if (rc == 0)
        rc = choose_nodes(&s);
    if (rc == 0) {
        if (o->scheme == VV_PLACE_RING)
            r.vnodes = o->vnodes ? o->vnodes : VV_PLACE_VNODES;
        place_all(&s);
        r.max_over_mean = fullest(&s, s.load, NULL);
        for (uint64_t f = 0; f < o->files; f++)
            r.away_fraction += s.holder[f] != s.home[f];
        r.away_fraction /= (double)o->files;
        sim_parallel(o->jobs, o->trials, run_trial, &s, progress);
        rc = sum_up(&s, &r);
    }
    sim_fini(&s);
    if (rc == 0)
        *ret_result = r;
    return rc;
}
