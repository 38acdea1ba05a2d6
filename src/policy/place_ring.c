/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash ring. A node has a number of points on a circle of 2^64 positions, in proportion to its
 * weight; a key belongs to the node of the first point at or after it. A node that is down is
 * skipped, so its keys go to the owners of the next points, and no other key moves.
 *
 * The position of a point is the hash of two numbers, the node's identity and the point's own. As
 * concatenated text, "server1" and 23 would equal "server12" and 3: both points would have the same
 * position, and one of them would be lost.
 */
#include <errno.h>
#include <stdlib.h>

#include "policy/place_private.h"

#define POINTS_MAX (UINT64_C(1) << 28)

static int by_position(const void *a, const void *b)
{
    const struct ring_point *x = a, *y = b;

    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return 0;
}

static uint64_t points_of(const struct vv_place *p, uint32_t node, uint32_t vnodes, uint64_t unit)
{
    uint64_t n = (uint64_t)(((unsigned __int128)p->weight[node] * vnodes + unit / 2) / unit);

    return VV_MAX(n, UINT64_C(1));
}

/* Points at the same position, which happens once in 2^64 / points^2 rings, are ordered by the
 * identity of their nodes, so that all processes agree on the owner. */
static void order_equals(struct vv_place *p)
{
    for (uint64_t i = 1; i < p->nr_points; i++) {
        struct ring_point point = p->points[i];
        uint64_t j = i;

        for (; j > 0 && p->points[j - 1].position == point.position &&
               p->ids[p->points[j - 1].node] > p->ids[point.node];
             j--)
            p->points[j] = p->points[j - 1];
        p->points[j] = point;
    }
}

int vvi_place_ring_build(struct vv_place *p, uint32_t vnodes, uint64_t unit)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < p->nr_nodes; i++) {
        n += points_of(p, i, vnodes, unit);
        if (n > POINTS_MAX)
            return -ERANGE;
    }
    p->points = calloc(n, sizeof(*p->points));
    if (!p->points)
        return -ENOMEM;
    p->nr_points = n;
    n = 0;
    for (uint32_t i = 0; i < p->nr_nodes; i++) {
        uint64_t count = points_of(p, i, vnodes, unit);

        for (uint64_t v = 0; v < count; v++)
            p->points[n++] = (struct ring_point){place_hash(p->ids[i], v), i};
    }
    qsort(p->points, p->nr_points, sizeof(*p->points), by_position);
    order_equals(p);
    return 0;
}

/* The first point at or after a position; the first of all if there is none. */
static uint64_t find_point(const struct vv_place *p, uint64_t position)
{
    uint64_t lo = 0, n = p->nr_points;

    while (n > 0) {
        uint64_t half = n / 2;

        if (p->points[lo + half].position < position) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return lo == p->nr_points ? 0 : lo;
}

static bool is_among(const uint32_t *nodes, uint32_t n, uint32_t node)
{
    for (uint32_t i = 0; i < n; i++)
        if (nodes[i] == node)
            return true;
    return false;
}

uint32_t vvi_place_ring_owners(const struct vv_place *p, uint64_t key, const uint64_t *up,
                               uint32_t k, uint32_t *ret_nodes)
{
    uint64_t at = find_point(p, key);
    uint32_t n = 0;

    for (uint64_t seen = 0; seen < p->nr_points && n < k; seen++) {
        uint32_t node = p->points[at].node;

        if (vv_place_set_has(up, node) && !is_among(ret_nodes, n, node))
            ret_nodes[n++] = node;
        at = at + 1 == p->nr_points ? 0 : at + 1;
    }
    return n;
}
