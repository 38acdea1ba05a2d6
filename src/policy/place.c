/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map, and the code shared by all schemes. The map holds only its input and data derived from
 * it, so that it is the same on every machine. Where an order is needed (ties, modulo), nodes are
 * compared by identity, never by index, which depends on the order of the list.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "policy/place_private.h"

static const char *const names[VV_PLACE_SCHEMES] = {
    [VV_PLACE_RING] = "ring",
    [VV_PLACE_HRW] = "hrw",
    [VV_PLACE_HRW_BOUNDED] = "hrw-bounded",
    [VV_PLACE_MOD] = "mod",
};

const char *vv_place_scheme_name(enum vv_place_scheme scheme)
{
    return names[scheme];
}

int vv_place_scheme_parse(const char *name, enum vv_place_scheme *ret_scheme)
{
    for (int i = 0; i < VV_PLACE_SCHEMES; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_scheme = (enum vv_place_scheme)i;
            return 0;
        }
    }
    return -EINVAL;
}

uint64_t vv_place_node_id(const char *name)
{
    return vv_hash64(name, strlen(name));
}

uint64_t vv_place_key(const void *path, size_t bytes)
{
    return vv_hash64(path, bytes);
}

/* ---- making ---- */

struct named {
    uint64_t id;
    uint32_t node;
};

static int by_identity(const void *a, const void *b)
{
    const struct named *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

/* Sorts the nodes by identity. Refuses two nodes of the same identity. */
static int sort_nodes(struct vv_place *p)
{
    struct named *sorted = calloc(p->nr_nodes, sizeof(*sorted));
    int rc = 0;

    if (!sorted)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->nr_nodes; i++)
        sorted[i] = (struct named){p->ids[i], i};
    qsort(sorted, p->nr_nodes, sizeof(*sorted), by_identity);
    for (uint32_t i = 0; i < p->nr_nodes; i++) {
        p->by_id[i] = sorted[i].node;
        if (i > 0 && sorted[i].id == sorted[i - 1].id)
            rc = -EEXIST;
    }
    free(sorted);
    return rc;
}

static int copy_nodes(struct vv_place *p, const struct vv_place_node *nodes)
{
    uint64_t sum = 0;

    p->ids = calloc(p->nr_nodes, sizeof(*p->ids));
    p->weight = calloc(p->nr_nodes, sizeof(*p->weight));
    p->salt = calloc(p->nr_nodes, sizeof(*p->salt));
    p->by_id = calloc(p->nr_nodes, sizeof(*p->by_id));
    if (!p->ids || !p->weight || !p->salt || !p->by_id)
        return -ENOMEM;
    p->uniform = true;
    for (uint32_t i = 0; i < p->nr_nodes; i++) {
        if (nodes[i].weight == 0)
            return -EINVAL;
        if (nodes[i].weight > VV_PLACE_WEIGHT_MAX - sum)
            return -ERANGE;
        sum += nodes[i].weight;
        p->ids[i] = nodes[i].id;
        p->weight[i] = nodes[i].weight;
        p->weight_max = VV_MAX(p->weight_max, nodes[i].weight);
        p->uniform = p->uniform && nodes[i].weight == nodes[0].weight;
    }
    return sort_nodes(p);
}

int vv_place_new(const struct vv_place_opts *opts, const struct vv_place_node *nodes,
                 uint32_t nr_nodes, struct vv_place **ret_place)
{
    uint32_t limit = opts->limit_pct ? opts->limit_pct : VV_PLACE_LIMIT_PCT;
    uint32_t vnodes = opts->vnodes ? opts->vnodes : VV_PLACE_VNODES;
    uint64_t unit = opts->ring_unit;
    struct vv_place *p;
    int rc;

    if (nr_nodes == 0 || nr_nodes > VV_PLACE_NODES_MAX || limit < 100 ||
        limit > VV_PLACE_LIMIT_MAX || vnodes > VV_PLACE_VNODES_MAX ||
        (unsigned)opts->scheme >= VV_PLACE_SCHEMES)
        return -EINVAL;
    p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->scheme = opts->scheme;
    p->limit_pct = limit;
    p->nr_nodes = nr_nodes;
    rc = copy_nodes(p, nodes);
    if (rc == 0 && p->scheme == VV_PLACE_RING) {
        if (unit == 0)
            unit = VV_MAX(vv_place_weight(p, NULL) / nr_nodes, UINT64_C(1));
        rc = vvi_place_ring_build(p, vnodes, unit);
    }
    if (rc < 0) {
        vv_place_free(p);
        return rc;
    }
    vvi_place_hrw_build(p);
    *ret_place = p;
    return 0;
}

void vv_place_free(struct vv_place *p)
{
    if (!p)
        return;
    free(p->ids);
    free(p->weight);
    free(p->salt);
    free(p->by_id);
    free(p->points);
    free(p);
}

uint32_t vv_place_nr_nodes(const struct vv_place *p)
{
    return p->nr_nodes;
}

uint64_t vv_place_nr_points(const struct vv_place *p)
{
    return p->nr_points;
}

/* ---- modulo ---- */

static uint32_t count_up(const struct vv_place *p, const uint64_t *up)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->nr_nodes; i++)
        n += vv_place_set_has(up, i);
    return n;
}

static uint32_t mod_owners(const struct vv_place *p, uint64_t key, const uint64_t *up, uint32_t k,
                           uint32_t *ret_nodes)
{
    uint32_t nr_up = up ? count_up(p, up) : p->nr_nodes, skip, at = 0, n = 0;

    if (nr_up == 0)
        return 0;
    skip = (uint32_t)(key % nr_up);
    if (!up) {
        at = skip;
    } else {
        while (!vv_place_set_has(up, p->by_id[at]) || skip-- > 0)
            at++;
    }
    for (; n < VV_MIN(k, nr_up); at = (at + 1) % p->nr_nodes)
        if (vv_place_set_has(up, p->by_id[at]))
            ret_nodes[n++] = p->by_id[at];
    return n;
}

/* ---- queries ---- */

uint32_t vv_place_owners(const struct vv_place *p, uint64_t key, const uint64_t *up, uint32_t k,
                         uint32_t *ret_nodes)
{
    k = VV_MIN(k, VV_PLACE_REPLICAS_MAX);
    switch (p->scheme) {
    case VV_PLACE_RING:
        return vvi_place_ring_owners(p, key, up, k, ret_nodes);
    case VV_PLACE_MOD:
        return mod_owners(p, key, up, k, ret_nodes);
    default:
        return vvi_place_hrw_owners(p, key, up, k, ret_nodes);
    }
}

uint32_t vv_place_owner(const struct vv_place *p, uint64_t key, const uint64_t *up)
{
    uint32_t node;

    if (p->scheme == VV_PLACE_HRW || p->scheme == VV_PLACE_HRW_BOUNDED)
        return vvi_place_hrw_owner(p, key, up);
    return vv_place_owners(p, key, up, 1, &node) == 1 ? node : VV_PLACE_NONE;
}

uint64_t vv_place_weight(const struct vv_place *p, const uint64_t *up)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < p->nr_nodes; i++)
        if (vv_place_set_has(up, i))
            sum += p->weight[i];
    return sum;
}

uint64_t vv_place_limit(const struct vv_place *p, uint32_t node, uint64_t total, uint64_t weight)
{
    unsigned __int128 limit = (unsigned __int128)total * p->limit_pct * p->weight[node];

    limit /= (unsigned __int128)weight * 100;
    return limit > UINT64_MAX ? UINT64_MAX : (uint64_t)limit;
}

uint64_t vvi_place_total(const struct vv_place_loads *loads, uint64_t bytes)
{
    return VV_MAX(loads->total + bytes, loads->expected);
}

uint32_t vv_place_bounded(const struct vv_place *p, uint64_t key, uint32_t home, const uint64_t *up,
                          const struct vv_place_loads *loads, uint64_t bytes)
{
    if (p->scheme != VV_PLACE_HRW_BOUNDED ||
        loads->bytes[home] + bytes <=
            vv_place_limit(p, home, vvi_place_total(loads, bytes), loads->weight))
        return home;
    return vvi_place_hrw_overflow(p, key, up, loads, bytes);
}
