/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement: which node keeps a file. A map is made once from the nodes of a job. After that every query
 * is answered from the map, a key, and the set of nodes that are up, so that all processes that agree on
 * these get the same answer, on any machine. No floating point, no library whose results differ.
 *
 *   ring         consistent hashing with virtual nodes: O(log points)
 *   hrw          weighted rendezvous hashing (highest random weight): O(nodes), a nanosecond each
 *   hrw-bounded  hrw, but a file whose owner is full goes to the next node that is not. The owner by
 *                hrw is its *home*: only the home decides and records the place of such a file
 *   mod          hash modulo the number of nodes, to compare with: one failure moves nearly
 *                everything
 *
 * In ring and hrw the loss of a node moves the files it owned and no other. The order in which the
 * nodes are listed does not matter.
 */
#ifndef VV_POLICY_PLACE_H
#define VV_POLICY_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

enum vv_place_scheme {
    VV_PLACE_RING,
    VV_PLACE_HRW,
    VV_PLACE_HRW_BOUNDED,
    VV_PLACE_MOD,
    VV_PLACE_SCHEMES,
};

#define VV_PLACE_NONE         UINT32_MAX
#define VV_PLACE_VNODES       100
#define VV_PLACE_LIMIT_PCT    105
#define VV_PLACE_LIMIT_MAX    1000
#define VV_PLACE_NODES_MAX    65536u
#define VV_PLACE_VNODES_MAX   65536u
#define VV_PLACE_REPLICAS_MAX 8u
/* The largest sum of all weights: products with sizes must fit 128 bits. */
#define VV_PLACE_WEIGHT_MAX (UINT64_C(1) << 48)

struct vv_place_node {
    uint64_t id;     /* vv_place_node_id of its name */
    uint64_t weight; /* its capacity, in any unit, the same for all; not 0 */
};

struct vv_place_opts {
    enum vv_place_scheme scheme;
    uint32_t vnodes; /* ring: points of a node of weight `ring_unit`; 0: VV_PLACE_VNODES */
    /* ring: 0: the mean weight. A job that later adds nodes of other sizes has to set it: a node's
     * points must not depend on the other nodes. */
    uint64_t ring_unit;
    /* hrw-bounded: limit of a node's load, in percent of its share by weight; at least 100. 0:
     * VV_PLACE_LIMIT_PCT. */
    uint32_t limit_pct;
};

/* Immutable once made. Any thread. */
struct vv_place;

const char *vv_place_scheme_name(enum vv_place_scheme scheme);
int vv_place_scheme_parse(const char *name, enum vv_place_scheme *ret_scheme);

/* Names and paths as 64-bit numbers. */
uint64_t vv_place_node_id(const char *name);
uint64_t vv_place_key(const void *path, size_t bytes);

/* From here on, nodes are identified by their index in `nodes`. The only call here that allocates.
 * -EINVAL: no node or too many, a weight of 0, or a limit outside of 100 to VV_PLACE_LIMIT_MAX; -EEXIST: two nodes of the
 * same identity; -ERANGE: the weights are too large, or too unequal for a ring; -ENOMEM. */
VV_WARN_UNUSED int vv_place_new(const struct vv_place_opts *opts, const struct vv_place_node *nodes,
                                uint32_t nr_nodes, struct vv_place **ret_place);
void vv_place_free(struct vv_place *p);

uint32_t vv_place_nr_nodes(const struct vv_place *p);
/* Points of a ring; 0 for the other schemes. */
uint64_t vv_place_nr_points(const struct vv_place *p);

/* A set of nodes has one bit for each: node n is bit n % 64 of word n / 64; NULL is all of them. */
static inline size_t vv_place_set_words(uint32_t nr_nodes)
{
    return vv_div_up(nr_nodes, 64);
}

static inline bool vv_place_set_has(const uint64_t *set, uint32_t node)
{
    return !set || (set[node / 64] >> (node % 64) & 1);
}

static inline void vv_place_set_add(uint64_t *set, uint32_t node)
{
    set[node / 64] |= UINT64_C(1) << (node % 64);
}

static inline void vv_place_set_remove(uint64_t *set, uint32_t node)
{
    set[node / 64] &= ~(UINT64_C(1) << (node % 64));
}

/* The node that owns a key among those in `up`; the home of a file under hrw-bounded.
 * VV_PLACE_NONE: none is up. */
uint32_t vv_place_owner(const struct vv_place *p, uint64_t key, const uint64_t *up);

/* The first k owners, all different: the nodes of k copies. When the first goes down, the second is
 * the owner, and so on. Returns the number found: k, or the number of nodes that are up. k is at
 * most VV_PLACE_REPLICAS_MAX. */
uint32_t vv_place_owners(const struct vv_place *p, uint64_t key, const uint64_t *up, uint32_t k,
                         uint32_t *ret_nodes);

/* The sum of the weights of the nodes in `up`. */
uint64_t vv_place_weight(const struct vv_place *p, const uint64_t *up);

/* The load of the nodes, as recorded by the home. */
struct vv_place_loads {
    const uint64_t *bytes; /* of each node */
    uint64_t total;        /* of all nodes that are up; below 2^63 */
    /* The final total, if it is known; otherwise 0. A cache without it must stay even from the
     * first file on, and sends more files away from their homes. */
    uint64_t expected;
    uint64_t weight; /* vv_place_weight of the same set */
};

/* Limit of a node's load when all nodes hold `total`: limit_pct of its share by weight, rounded
 * down. */
uint64_t vv_place_limit(const struct vv_place *p, uint32_t node, uint64_t total, uint64_t weight);

/* The node on which a home (vv_place_owner) puts a file of `bytes` that no node holds: itself,
 * unless that exceeds its limit (of the expected total or, if larger, the present total with this
 * file). Then the first node in rendezvous order that stays within its own limit. If no node does,
 * because the file is large compared with a share, the one that is least full by weight afterwards.
 * Every scheme except hrw-bounded returns the home. */
uint32_t vv_place_bounded(const struct vv_place *p, uint64_t key, uint32_t home, const uint64_t *up,
                          const struct vv_place_loads *loads, uint64_t bytes);

#endif
