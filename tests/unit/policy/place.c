/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: the files that a failure moves; balance by weight; equal results on every machine. */
#include "policy/place.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "policy/place_private.h"
#include "t.h"

#define NODES_MAX 1024u

static const enum vv_place_scheme schemes[] = {VV_PLACE_RING, VV_PLACE_HRW, VV_PLACE_HRW_BOUNDED,
                                               VV_PLACE_MOD};

static void name_nodes(struct vv_place_node *nodes, uint32_t n, uint64_t weight)
{
    char name[32];

    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "node%u", i);
        nodes[i] = (struct vv_place_node){vv_place_node_id(name), weight};
    }
}

static struct vv_place *make(enum vv_place_scheme scheme, const struct vv_place_node *nodes,
                             uint32_t n)
{
    struct vv_place_opts opts = {.scheme = scheme};
    struct vv_place *p;

    T_OK(vv_place_new(&opts, nodes, n, &p));
    T_EQ(vv_place_nr_nodes(p), n);
    return p;
}

static uint64_t key_of(unsigned i)
{
    char path[32];
    int n = snprintf(path, sizeof(path), "train/%u", i);

    return vv_place_key(path, (size_t)n);
}

static void fill_set(uint64_t *set, uint32_t n)
{
    memset(set, 0, vv_place_set_words(n) * sizeof(*set));
    for (uint32_t i = 0; i < n; i++)
        vv_place_set_add(set, i);
}

/* The inlined hash equals that of base/hash.h, of two numbers as they are stored in memory. */
static void hash_is_xxh3(void)
{
    struct t_rng r = {t_seed()};

    for (int i = 0; i < 1000; i++) {
        uint64_t a = t_rng_u64(&r), b = t_rng_u64(&r);
        unsigned char bytes[16];

        for (int k = 0; k < 8; k++) {
            bytes[k] = (unsigned char)(a >> (8 * k));
            bytes[8 + k] = (unsigned char)(b >> (8 * k));
        }
        T_CHECK(place_hash(a, b) == vv_hash64(bytes, sizeof(bytes)));
    }
}

/* -ln(1 - h / 2^64): close to the result of the C library, monotonic, and not below h / 2^64. */
static void exponential(void)
{
    struct vv_place_node node = {1, 1};
    struct vv_place *p = make(VV_PLACE_HRW, &node, 1);
    struct t_rng r = {t_seed()};
    uint64_t before = 0;

    T_EQ(vvi_place_exponential(p, 0), 0);
    for (int i = 0; i < 100000; i++) {
        uint64_t h = t_rng_u64(&r) >> t_rng_below(&r, 60);
        double e, want = -log1p(-ldexp((double)h, -64));

        if (i % 3 == 0) /* near the end, where it grows without limit */
            h = 0 - h - (h == 0), want = -log(ldexp((double)(0 - h), -64));
        e = ldexp((double)vvi_place_exponential(p, h), -58);
        T_CHECK(fabs(e - want) <= want / 1024 + 1e-13);
        T_CHECK(vvi_place_exponential(p, h) + 65536 >= h >> 6);
        if (h > 0)
            T_CHECK(vvi_place_exponential(p, h) >= vvi_place_exponential(p, h - 1));
    }
    /* Across every step of the table and every halving. */
    for (unsigned halvings = 0; halvings < 64; halvings++) {
        for (uint64_t step = 0; step <= 512; step++) {
            uint64_t rest = (UINT64_MAX - (step << 54) + (step > 0)) >> halvings;
            uint64_t h = rest == 0 ? UINT64_MAX : 0 - rest;

            T_CHECK(vvi_place_exponential(p, h) >= before);
            before = vvi_place_exponential(p, h);
        }
    }
    vv_place_free(p);
}

/* One node fails: its files go to others, and no other file moves. With mod nearly all do. */
static void failure_moves_only_its_files(void)
{
    struct vv_place_node nodes[100];
    uint64_t up[2];
    struct t_rng r = {t_seed()};

    name_nodes(nodes, 100, 1);
    for (size_t s = 0; s < VV_ARRAY_SIZE(schemes); s++) {
        struct vv_place *p = make(schemes[s], nodes, 100);
        unsigned moved = 0, kept = 0;

        for (int trial = 0; trial < 20; trial++) {
            uint32_t dead = (uint32_t)t_rng_below(&r, 100);

            fill_set(up, 100);
            vv_place_set_remove(up, dead);
            for (unsigned i = 0; i < 500; i++) {
                uint32_t before = vv_place_owner(p, key_of(i), NULL);
                uint32_t after = vv_place_owner(p, key_of(i), up);

                T_CHECK(after != dead && after < 100);
                if (before == dead)
                    continue;
                moved += before != after;
                kept += before == after;
            }
        }
        if (schemes[s] == VV_PLACE_MOD)
            T_CHECK(moved > kept * 10);
        else
            T_EQ(moved, 0);
        vv_place_free(p);
    }
}

/* The order of the list does not matter, with equal weights and with others. */
static void order_does_not_matter(void)
{
    struct vv_place_node nodes[64], shuffled[64];
    uint32_t where[64];
    struct t_rng r = {t_seed()};

    for (int weighted = 0; weighted < 2; weighted++) {
        name_nodes(nodes, 64, 1000);
        for (uint32_t i = 0; i < 64; i++) {
            nodes[i].weight += weighted * t_rng_below(&r, 3000);
            where[i] = i;
        }
        for (uint32_t i = 63; i > 0; i--) {
            uint32_t j = (uint32_t)t_rng_below(&r, i + 1), t = where[i];

            where[i] = where[j];
            where[j] = t;
        }
        for (uint32_t i = 0; i < 64; i++)
            shuffled[i] = nodes[where[i]];
        for (size_t s = 0; s < VV_ARRAY_SIZE(schemes); s++) {
            struct vv_place *a = make(schemes[s], nodes, 64), *b = make(schemes[s], shuffled, 64);

            for (unsigned i = 0; i < 1000; i++)
                T_EQ(vv_place_owner(a, key_of(i), NULL), where[vv_place_owner(b, key_of(i), NULL)]);
            vv_place_free(a);
            vv_place_free(b);
        }
    }
}

/* Copies are on different nodes; when the first node goes down, the others move up. */
static void replicas(void)
{
    struct vv_place_node nodes[20];
    uint64_t up[1];
    uint32_t now[8], then[8];

    name_nodes(nodes, 20, 7);
    for (int weighted = 0; weighted < 2; weighted++) {
        nodes[3].weight += (uint64_t)weighted * 9;
        for (size_t s = 0; s < VV_ARRAY_SIZE(schemes); s++) {
            struct vv_place *p = make(schemes[s], nodes, 20);

            for (unsigned i = 0; i < 300; i++) {
                T_EQ(vv_place_owners(p, key_of(i), NULL, 4, now), 4);
                T_EQ(now[0], vv_place_owner(p, key_of(i), NULL));
                for (int a = 0; a < 4; a++)
                    for (int b = 0; b < a; b++)
                        T_CHECK(now[a] != now[b]);
                if (schemes[s] == VV_PLACE_MOD)
                    continue;
                fill_set(up, 20);
                vv_place_set_remove(up, now[0]);
                T_EQ(vv_place_owners(p, key_of(i), up, 3, then), 3);
                T_CHECK(memcmp(now + 1, then, 3 * sizeof(*then)) == 0);
            }
            /* At most as many as there are, and none when none is up. */
            fill_set(up, 20);
            for (uint32_t i = 2; i < 20; i++)
                vv_place_set_remove(up, i);
            T_EQ(vv_place_owners(p, key_of(1), up, 4, now), 2);
            T_CHECK(now[0] + now[1] == 1);
            up[0] = 0;
            T_EQ(vv_place_owners(p, key_of(1), up, 4, now), 0);
            T_EQ(vv_place_owner(p, key_of(1), up), VV_PLACE_NONE);
            vv_place_free(p);
        }
    }
}

/* The shortcuts of hrw change nothing: the test draws every lot and compares them one by one. */
static void hrw_without_shortcuts(void)
{
    struct vv_place_node nodes[70];
    struct t_rng r = {t_seed()};
    uint64_t up[2];

    for (int round = 0; round < 40; round++) {
        uint32_t n = 1 + (uint32_t)t_rng_below(&r, 70);
        struct vv_place *p;

        name_nodes(nodes, n, 1);
        for (uint32_t i = 0; i < n && round % 2; i++)
            nodes[i].weight = 1 + t_rng_below(&r, UINT64_C(1) << t_rng_below(&r, 40));
        p = make(VV_PLACE_HRW, nodes, n);
        fill_set(up, n);
        for (uint32_t i = 0; i < n / 4; i++)
            vv_place_set_remove(up, (uint32_t)t_rng_below(&r, n));
        for (unsigned i = 0; i < 200; i++) {
            uint64_t key = key_of(i), best_e = 0, best_h = 0;
            uint32_t best = VV_PLACE_NONE, one[1];

            for (uint32_t k = 0; k < n; k++) {
                uint64_t h = place_hash(key, nodes[k].id), e = vvi_place_exponential(p, h);
                unsigned __int128 x, y;

                if (!vv_place_set_has(up, k))
                    continue;
                x = best == VV_PLACE_NONE ? 0 : (unsigned __int128)e * nodes[best].weight;
                y = best == VV_PLACE_NONE ? 1 : (unsigned __int128)best_e * nodes[k].weight;
                if (x < y || (x == y && h < best_h)) {
                    best = k;
                    best_e = e;
                    best_h = h;
                }
            }
            T_EQ(vv_place_owner(p, key, up), best);
            T_EQ(vv_place_owners(p, key, up, 1, one), best == VV_PLACE_NONE ? 0 : 1);
            T_CHECK(best == VV_PLACE_NONE || one[0] == best);
        }
        vv_place_free(p);
    }
}

/* Nodes get files in proportion to their weights, as evenly as independent draws do. */
static void balance(void)
{
    struct vv_place_node nodes[50];
    const unsigned files = 100000;

    name_nodes(nodes, 50, 1);
    for (uint32_t i = 0; i < 50; i++)
        nodes[i].weight = i < 10 ? 400 : i < 30 ? 100 : 150;
    for (size_t s = 0; s < 2; s++) {
        struct vv_place *p = make(schemes[s], nodes, 50);
        double weight = (double)vv_place_weight(p, NULL), worst = 0;
        unsigned count[50] = {0};

        for (unsigned i = 0; i < files; i++)
            count[vv_place_owner(p, key_of(i), NULL)]++;
        for (uint32_t i = 0; i < 50; i++) {
            double want = files * (double)nodes[i].weight / weight;

            worst = fmax(worst, fabs((double)count[i] - want) / sqrt(want));
        }
        /* 50 draws of a normal distribution stay below 5; the ring's arcs vary in addition. */
        T_CHECK(worst < (schemes[s] == VV_PLACE_HRW ? 5 : 20));
        vv_place_free(p);
    }
}

static void place_all(const struct vv_place *p, const uint64_t *up, const uint64_t *sizes,
                      unsigned files, uint64_t *load, uint32_t *where)
{
    struct vv_place_loads loads = {.bytes = load, .weight = vv_place_weight(p, up)};

    for (unsigned i = 0; i < files; i++) {
        uint32_t home = vv_place_owner(p, key_of(i), up);

        where[i] = vv_place_bounded(p, key_of(i), home, up, &loads, sizes[i]);
        load[where[i]] += sizes[i];
        loads.total += sizes[i];
    }
}

/* No node gets more than 1.05 of its share by capacity, in bytes; a file leaves its home only if the
 * home is full, and then goes to the first node that is not. */
static void bounded(void)
{
    enum { FILES = 20000, NODES = 32 };
    struct vv_place_node nodes[NODES];
    uint64_t sizes[FILES], load[NODES] = {0}, total = 0;
    static uint32_t where[FILES];
    struct t_rng r = {t_seed()};
    struct vv_place *p, *plain;
    unsigned away = 0;

    name_nodes(nodes, NODES, 1);
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i].weight = 1 + i % 3;
    for (unsigned i = 0; i < FILES; i++) {
        sizes[i] = 1 + t_rng_below(&r, 1000);
        total += sizes[i];
    }
    p = make(VV_PLACE_HRW_BOUNDED, nodes, NODES);
    plain = make(VV_PLACE_HRW, nodes, NODES);
    place_all(p, NULL, sizes, FILES, load, where);
    for (uint32_t i = 0; i < NODES; i++) {
        uint64_t limit = vv_place_limit(p, i, total, vv_place_weight(p, NULL));

        T_CHECK(limit == total * 105 * nodes[i].weight / (100 * vv_place_weight(p, NULL)));
        T_CHECK(load[i] <= limit);
    }
    for (unsigned i = 0; i < FILES; i++)
        away += where[i] != vv_place_owner(plain, key_of(i), NULL);
    T_CHECK(away > 0 && away < FILES / 10);

    /* Only full homes give files away, to the first node with room in rendezvous order. */
    {
        uint64_t key = key_of(7), half[NODES] = {0};
        struct vv_place_loads loads = {half, 0, 0, vv_place_weight(p, NULL)};
        uint32_t order[8];

        T_EQ(vv_place_owners(p, key, NULL, 8, order), 8);
        for (uint32_t i = 0; i < NODES; i++) {
            half[i] = 1000 * nodes[i].weight;
            loads.total += half[i];
        }
        T_EQ(vv_place_bounded(p, key, order[0], NULL, &loads, 1), order[0]);
        for (int full = 0; full < 7; full++) {
            half[order[full]] *= 2; /* the total stays as it is: the home's data may be stale */
            T_EQ(vv_place_bounded(p, key, order[0], NULL, &loads, 1), order[full + 1]);
        }
        /* Larger than the room on any node: to the least full. */
        for (uint32_t i = 0; i < NODES; i++) {
            nodes[i].weight = 5;
            half[i] = i == 9 ? 0 : 10;
        }
        vv_place_free(plain);
        plain = make(VV_PLACE_HRW_BOUNDED, nodes, NODES);
        loads = (struct vv_place_loads){half, 310, 0, vv_place_weight(plain, NULL)};
        T_EQ(vv_place_bounded(plain, key, vv_place_owner(plain, key, NULL), NULL, &loads, 1000), 9);
    }
    vv_place_free(p);
    vv_place_free(plain);
}

/* The first file of an empty cache stays at home, although strictly no node has room. */
static void bounded_begins(void)
{
    struct vv_place_node nodes[8];
    uint64_t load[8] = {0};
    struct vv_place_loads loads = {.bytes = load};
    struct vv_place *p;

    name_nodes(nodes, 8, 3);
    p = make(VV_PLACE_HRW_BOUNDED, nodes, 8);
    loads.weight = vv_place_weight(p, NULL);
    for (unsigned i = 0; i < 50; i++) {
        uint32_t home = vv_place_owner(p, key_of(i), NULL);

        T_EQ(vv_place_bounded(p, key_of(i), home, NULL, &loads, 4096), home);
    }
    /* The final total is known: each node takes as many files as it will hold in the end. */
    loads.expected = 8 * 4096 * 100;
    {
        uint64_t key = key_of(0);
        uint32_t home = vv_place_owner(p, key, NULL);

        for (unsigned i = 0; i < 105; i++) {
            T_EQ(vv_place_bounded(p, key, home, NULL, &loads, 4096), home);
            load[home] += 4096;
            loads.total += 4096;
        }
        T_CHECK(vv_place_bounded(p, key, home, NULL, &loads, 4096) != home);
    }
    vv_place_free(p);
}

/* "server1" + "23" and "server12" + "3": no two points of a ring are the same, so none is lost. */
static void ring_keys_are_unambiguous(void)
{
    static struct vv_place_node nodes[NODES_MAX];
    struct vv_place_opts opts = {.scheme = VV_PLACE_RING};
    struct vv_place *p;
    char name[32];

    for (uint32_t i = 0; i < NODES_MAX; i++) {
        snprintf(name, sizeof(name), "server%u", i + 1);
        nodes[i] = (struct vv_place_node){vv_place_node_id(name), 1};
    }
    T_OK(vv_place_new(&opts, nodes, NODES_MAX, &p));
    T_EQ(vv_place_nr_points(p), NODES_MAX * 100);
    for (uint64_t i = 1; i < p->nr_points; i++)
        T_CHECK(p->points[i - 1].position < p->points[i].position);
    vv_place_free(p);
}

/* Points in proportion to weights; with an explicit unit a node's points do not depend on the
 * others. */
static void ring_weights(void)
{
    struct vv_place_node nodes[5];
    struct vv_place_opts opts = {.scheme = VV_PLACE_RING, .vnodes = 50, .ring_unit = 100};
    struct vv_place *few, *many;

    name_nodes(nodes, 5, 100);
    nodes[1].weight = 300;
    nodes[2].weight = 1;
    nodes[4].weight = 900;
    T_OK(vv_place_new(&opts, nodes, 4, &few));
    T_EQ(vv_place_nr_points(few), 50 + 150 + 1 + 50);
    T_OK(vv_place_new(&opts, nodes, 5, &many));
    for (unsigned i = 0; i < 2000; i++) {
        uint32_t now = vv_place_owner(many, key_of(i), NULL);

        T_CHECK(now == 4 || now == vv_place_owner(few, key_of(i), NULL));
    }
    vv_place_free(few);
    vv_place_free(many);
}

static void refused(void)
{
    struct vv_place_node nodes[3] = {{1, 1}, {2, 1}, {1, 1}};
    struct vv_place_opts opts = {.scheme = VV_PLACE_HRW};
    struct vv_place *p = NULL;
    enum vv_place_scheme scheme;

    T_ERR(vv_place_new(&opts, nodes, 0, &p), -EINVAL);
    T_ERR(vv_place_new(&opts, nodes, VV_PLACE_NODES_MAX + 1, &p), -EINVAL);
    T_ERR(vv_place_new(&opts, nodes, 3, &p), -EEXIST);
    nodes[2] = (struct vv_place_node){3, 0};
    T_ERR(vv_place_new(&opts, nodes, 3, &p), -EINVAL);
    nodes[2].weight = VV_PLACE_WEIGHT_MAX - 1;
    T_ERR(vv_place_new(&opts, nodes, 3, &p), -ERANGE);
    nodes[2].weight = VV_PLACE_WEIGHT_MAX - 2;
    opts.limit_pct = 99;
    T_ERR(vv_place_new(&opts, nodes, 3, &p), -EINVAL);
    opts = (struct vv_place_opts){.scheme = VV_PLACE_RING, .ring_unit = 1};
    T_ERR(vv_place_new(&opts, nodes, 3, &p), -ERANGE);
    T_CHECK(!p);
    vv_place_free(NULL);
    for (size_t s = 0; s < VV_ARRAY_SIZE(schemes); s++) {
        T_OK(vv_place_scheme_parse(vv_place_scheme_name(schemes[s]), &scheme));
        T_EQ(scheme, schemes[s]);
    }
    T_ERR(vv_place_scheme_parse("hrw-", &scheme), -EINVAL);
}

/* Owners of some files, computed by a program in another language with the logarithms of its own
 * library. Nodes of one job may be different machines, and all have to compute the same; a change
 * here moves every cached file of every installation. */
static void golden(void)
{
    static const struct {
        enum vv_place_scheme scheme;
        bool weighted;
        uint32_t owners[8];
    } known[] = {
        {VV_PLACE_RING, false, {55, 59, 92, 9, 41, 16, 13, 25}},
        {VV_PLACE_RING, true, {55, 80, 92, 31, 41, 16, 46, 25}},
        {VV_PLACE_HRW, false, {44, 50, 77, 39, 66, 17, 21, 82}},
        {VV_PLACE_HRW, true, {75, 50, 77, 39, 79, 85, 21, 82}},
        {VV_PLACE_MOD, false, {81, 96, 32, 21, 11, 42, 92, 73}},
    };
    struct vv_place_node nodes[100];

    T_CHECK(vv_place_node_id("node0") == UINT64_C(0x71be3283b3f6d477));
    T_CHECK(key_of(0) == UINT64_C(0x1e0c607dbfd6e27e));
    for (size_t c = 0; c < VV_ARRAY_SIZE(known); c++) {
        struct vv_place *p;

        name_nodes(nodes, 100, 10);
        for (uint32_t i = 0; i < 100 && known[c].weighted; i++)
            nodes[i].weight += i;
        p = make(known[c].scheme, nodes, 100);
        for (unsigned i = 0; i < 8; i++)
            T_EQ(vv_place_owner(p, key_of(i), NULL), known[c].owners[i]);
        vv_place_free(p);
    }
}

int main(void)
{
    T_RUN(hash_is_xxh3);
    T_RUN(exponential);
    T_RUN(failure_moves_only_its_files);
    T_RUN(order_does_not_matter);
    T_RUN(replicas);
    T_RUN(hrw_without_shortcuts);
    T_RUN(balance);
    T_RUN(bounded);
    T_RUN(bounded_begins);
    T_RUN(ring_keys_are_unambiguous);
    T_RUN(ring_weights);
    T_RUN(refused);
    T_RUN(golden);
    return t_done();
}
