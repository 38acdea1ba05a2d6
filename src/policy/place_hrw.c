/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weighted rendezvous hashing. For each key every node draws a lot: an exponential variate of its
 * weight, made from the hash of key and node. The lowest lot owns the key. A node's lots depend
 * only on the node and the key, so that other nodes that come and go change nothing between those
 * that stay. The lowest of exponential variates falls on each node in proportion to its weight.
 *
 * The lot of a node is E / weight with E = -ln(1 - h / 2^64), h being the hash. E is kept in fixed
 * point and lots are compared as fractions by products of 128 bits: exact, and the same on every
 * machine, unlike logarithms of a C library. E is interpolated in a table, with an error of less
 * than 2^-11 of itself, the same on every machine. It must only be monotonic in h: then with equal
 * weights the lowest h wins, and E need not be computed.
 *
 * E is computed only for nodes that may win. Since E >= h / 2^64, a node is out by one comparison
 * if its lot would not be below the best one even with that value instead of E and with the largest
 * of all weights. Among n nodes in random order about ln(n) pass this test.
 */
#include <string.h>

#include "policy/place_private.h"

#define EXP_SHIFT  58        /* binary digits after the point; 64 ln 2 fits in front of it */
#define STEP_SHIFT (64 - 10) /* a step of the table is 2^-10 */
/* A generous bound of the rounding errors in an entry of the table. */
#define EXP_SLACK UINT64_C(65536)

struct lot {
    uint64_t e, weight, h, id;
    uint32_t node;
};

/* table[k] = -ln(1 - k / 1024), summed up from ln(j / (j - 1)) = 2 (x + x^3/3 + x^5/5 + ...) with
 * x = 1 / (2j - 1). */
void vvi_place_hrw_build(struct vv_place *p)
{
    const uint64_t two = UINT64_C(2) << EXP_SHIFT;

    for (uint32_t i = 0; i < p->nr_nodes; i++)
        p->salt[i] = place_salt(p->ids[i]);
    p->exp_table[0] = 0;
    for (uint32_t k = 1; k <= EXP_STEPS; k++) {
        uint64_t d = 2 * (1024 - (uint64_t)k + 1) - 1, power = two / d, sum = power;

        for (uint64_t odd = 3; power > 0; odd += 2) {
            power = power / d / d;
            sum += power / odd;
        }
        p->exp_table[k] = p->exp_table[k - 1] + sum;
    }
}

uint64_t vvi_place_exponential(const struct vv_place *p, uint64_t h)
{
    uint64_t rest = 0 - h, z, step, into, low, high; /* rest: 1 - h / 2^64, times 2^64 */
    unsigned halvings;

    if (h == 0)
        return 0;
    /* rest = 2^-halvings (1 - z) with z in (0, 1/2]. */
    halvings = (unsigned)__builtin_clzll(rest);
    z = 0 - (rest << halvings);
    step = z >> STEP_SHIFT;
    into = z & ((UINT64_C(1) << STEP_SHIFT) - 1);
    low = p->exp_table[step];
    high = step < EXP_STEPS ? p->exp_table[step + 1] : low;
    return halvings * p->exp_table[EXP_STEPS] + low +
           (uint64_t)((unsigned __int128)(high - low) * into >> STEP_SHIFT);
}

static bool comes_before(const struct lot *a, const struct lot *b)
{
    unsigned __int128 x = (unsigned __int128)a->e * b->weight;
    unsigned __int128 y = (unsigned __int128)b->e * a->weight;

    if (x != y)
        return x < y;
    return a->h != b->h ? a->h < b->h : a->id < b->id;
}

/* Nodes with a larger hash than this cannot have a lot below the given one. */
static uint64_t cut_of(const struct vv_place *p, const struct lot *best)
{
    unsigned __int128 e = (unsigned __int128)best->e * p->weight_max / best->weight + EXP_SLACK;

    return e >> EXP_SHIFT ? UINT64_MAX : ((uint64_t)e + 1) << (64 - EXP_SHIFT);
}

static void draw(const struct vv_place *p, uint32_t node, uint64_t h, struct lot *ret_lot)
{
    *ret_lot = (struct lot){vvi_place_exponential(p, h), p->weight[node], h, p->ids[node], node};
}

/* ---- one owner ---- */

struct least {
    uint64_t h;
    uint32_t node;
};

static inline void take_least(const struct vv_place *p, uint64_t key, uint32_t node,
                              struct least *best)
{
    uint64_t h = place_hash_salted(key, p->salt[node]);

    if (h < best->h ||
        (h == best->h && (best->node == VV_PLACE_NONE || p->ids[node] < p->ids[best->node]))) {
        best->h = h;
        best->node = node;
    }
}

static uint32_t uniform_owner(const struct vv_place *p, uint64_t key, const uint64_t *up)
{
    struct least best = {UINT64_MAX, VV_PLACE_NONE};

    for (uint32_t base = 0; base < p->nr_nodes; base += 64) {
        uint32_t end = VV_MIN(base + 64, p->nr_nodes);
        uint64_t bits = up ? up[base / 64] : UINT64_MAX;

        if (bits == UINT64_MAX) {
            for (uint32_t i = base; i < end; i++)
                take_least(p, key, i, &best);
            continue;
        }
        for (; bits; bits &= bits - 1) {
            uint32_t i = base + (uint32_t)__builtin_ctzll(bits);

            if (i < end)
                take_least(p, key, i, &best);
        }
    }
    return best.node;
}

uint32_t vvi_place_hrw_owner(const struct vv_place *p, uint64_t key, const uint64_t *up)
{
    uint32_t node;

    if (p->uniform)
        return uniform_owner(p, key, up);
    return vvi_place_hrw_owners(p, key, up, 1, &node) == 1 ? node : VV_PLACE_NONE;
}

/* ---- several owners ---- */

uint32_t vvi_place_hrw_owners(const struct vv_place *p, uint64_t key, const uint64_t *up,
                              uint32_t k, uint32_t *ret_nodes)
{
    struct lot best[VV_PLACE_REPLICAS_MAX], lot;
    uint64_t cut = UINT64_MAX;
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->nr_nodes && k > 0; i++) {
        uint64_t h;
        uint32_t at;

        if (!vv_place_set_has(up, i))
            continue;
        h = place_hash_salted(key, p->salt[i]);
        if (h > cut)
            continue;
        draw(p, i, h, &lot);
        if (n == k && !comes_before(&lot, &best[n - 1]))
            continue;
        if (n < k)
            n++;
        for (at = n - 1; at > 0 && comes_before(&lot, &best[at - 1]); at--)
            best[at] = best[at - 1];
        best[at] = lot;
        if (n == k)
            cut = cut_of(p, &best[n - 1]);
    }
    for (uint32_t i = 0; i < n; i++)
        ret_nodes[i] = best[i].node;
    return n;
}

/* ---- bounded load ---- */

/* True if the node stays within its limit: (load + bytes) / share <= limit, without the
 * division. */
static bool has_room(const struct vv_place *p, uint32_t node, const struct vv_place_loads *loads,
                     uint64_t bytes)
{
    unsigned __int128 load = (unsigned __int128)(loads->bytes[node] + bytes) * loads->weight;

    return load * 100 <=
           (unsigned __int128)vvi_place_total(loads, bytes) * p->limit_pct * p->weight[node];
}

/* True if node a would be less full than node b, each with the file and relative to its weight. */
static bool is_emptier(const struct vv_place *p, const struct lot *a, const struct lot *b,
                       const uint64_t *load, uint64_t bytes)
{
    unsigned __int128 x = (unsigned __int128)(load[a->node] + bytes) * p->weight[b->node];
    unsigned __int128 y = (unsigned __int128)(load[b->node] + bytes) * p->weight[a->node];

    return x != y ? x < y : comes_before(a, b);
}

/* Finds the first node in rendezvous order that has room, or the emptiest node if none has. */
uint32_t vvi_place_hrw_overflow(const struct vv_place *p, uint64_t key, const uint64_t *up,
                                const struct vv_place_loads *loads, uint64_t bytes)
{
    struct lot best = {.node = VV_PLACE_NONE}, emptiest = {.node = VV_PLACE_NONE}, lot;
    uint64_t cut = UINT64_MAX;

    for (uint32_t i = 0; i < p->nr_nodes; i++) {
        uint64_t h;

        if (!vv_place_set_has(up, i))
            continue;
        h = place_hash_salted(key, p->salt[i]);
        if (h > cut)
            continue;
        if (has_room(p, i, loads, bytes)) {
            draw(p, i, h, &lot);
            if (best.node == VV_PLACE_NONE || comes_before(&lot, &best)) {
                best = lot;
                cut = cut_of(p, &best);
            }
        } else if (best.node == VV_PLACE_NONE) {
            draw(p, i, h, &lot);
            if (emptiest.node == VV_PLACE_NONE ||
                is_emptier(p, &lot, &emptiest, loads->bytes, bytes))
                emptiest = lot;
        }
    }
    return best.node != VV_PLACE_NONE ? best.node : emptiest.node;
}
