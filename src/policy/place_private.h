/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VV_POLICY_PLACE_PRIVATE_H
#define VV_POLICY_PLACE_PRIVATE_H

#include "base/xxh3.h"
#include "policy/place.h"

/* Number of steps in which the table of the exponential variate covers [0, 1/2]. */
#define EXP_STEPS 512u

struct ring_point {
    uint64_t position;
    uint32_t node;
};

struct vv_place {
    enum vv_place_scheme scheme;
    uint32_t nr_nodes;
    uint32_t limit_pct;
    bool uniform; /* all weights are the same */
    uint64_t weight_max;
    uint64_t *ids;    /* of each node */
    uint64_t *weight; /* of each node */
    /* hrw: the precomputed contribution of a node to each of its hashes. */
    uint64_t *salt;
    uint64_t exp_table[EXP_STEPS + 1];
    /* mod: the nodes by identity. */
    uint32_t *by_id;
    /* ring: by position. */
    struct ring_point *points;
    uint64_t nr_points;
};

/* XXH3 of the 16 bytes (a, b), little-endian: the same as vv_hash64 of them, which a test checks,
 * but inlined and with the part of b separated. Keys are unambiguous because they are two numbers
 * of fixed width, never concatenated texts. */
static inline uint64_t place_salt(uint64_t b)
{
    return b ^ (vv_xxh3_key(40) ^ vv_xxh3_key(48));
}

static inline uint64_t place_hash_salted(uint64_t a, uint64_t salt)
{
    uint64_t lo = a ^ (vv_xxh3_key(24) ^ vv_xxh3_key(32));
    unsigned __int128 product = (unsigned __int128)lo * salt;
    uint64_t fold = (uint64_t)product ^ (uint64_t)(product >> 64);

    return vv_xxh3_avalanche(16 + __builtin_bswap64(lo) + salt + fold);
}

static inline uint64_t place_hash(uint64_t a, uint64_t b)
{
    return place_hash_salted(a, place_salt(b));
}

int vvi_place_ring_build(struct vv_place *p, uint32_t vnodes, uint64_t unit);
uint32_t vvi_place_ring_owners(const struct vv_place *p, uint64_t key, const uint64_t *up,
                               uint32_t k, uint32_t *ret_nodes);

void vvi_place_hrw_build(struct vv_place *p);
uint32_t vvi_place_hrw_owner(const struct vv_place *p, uint64_t key, const uint64_t *up);
uint32_t vvi_place_hrw_owners(const struct vv_place *p, uint64_t key, const uint64_t *up,
                              uint32_t k, uint32_t *ret_nodes);
uint32_t vvi_place_hrw_overflow(const struct vv_place *p, uint64_t key, const uint64_t *up,
                                const struct vv_place_loads *loads, uint64_t bytes);

/* The total from which limits are computed, including a file of `bytes` more. */
uint64_t vvi_place_total(const struct vv_place_loads *loads, uint64_t bytes);

/* -ln(1 - h / 2^64) times 2^58; monotonic in h. For tests. */
uint64_t vvi_place_exponential(const struct vv_place *p, uint64_t h);

#endif
