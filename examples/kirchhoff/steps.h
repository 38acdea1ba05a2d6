/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps for one ray and one cell of the image, with any storage of velocities and times. A file that
 * includes this header defines before:
 *
 *     KIR_BODY                                             what functions are: static, or on a device
 *     struct kir_model                                     where velocities are, and
 *     int kir_velocity(model, z, x, y, &velocity)          0: not there yet
 *     struct kir_times                                     where the tables of an item are, and
 *     float kir_node_time(times, which, node)              of its which-th table
 *     void kir_raise(&word, value)                         atomically keeps the larger value
 */
#ifndef KIR_STEPS_H
#define KIR_STEPS_H

#include "kirchhoff.h"

/* The eight velocities around a place; 0: some are not there. All are requested. */
KIR_BODY int kir_around(struct kir_model *m, const struct kir_grid *g, const float at[KIR_AXES],
                        float ret_c[8], float ret_f[KIR_AXES])
{
    int base[KIR_AXES], here = 1;

    kir_cube(g->n, at, base, ret_f);
    for (int k = 0; k < 8; k++)
        here &= kir_velocity(m, kir_corner(g->n, base, k, KIR_Z), kir_corner(g->n, base, k, KIR_X),
                             kir_corner(g->n, base, k, KIR_Y), &ret_c[k]);
    return here;
}

/* Updates the nodes around a ray. `words` begins with that of node `first`. */
KIR_BODY void kir_spread(const struct kir_grid *g, const struct kir_table *t,
                         const struct kir_ray *r, float time, uint64_t first, uint64_t *words)
{
    int node[KIR_AXES], from[KIR_AXES], to[KIR_AXES];

    for (int d = 0; d < KIR_AXES; d++)
        from[d] = kir_near(g, t, r, d, &to[d]);
    for (node[KIR_Y] = from[KIR_Y]; node[KIR_Y] <= to[KIR_Y]; node[KIR_Y]++)
        for (node[KIR_X] = from[KIR_X]; node[KIR_X] <= to[KIR_X]; node[KIR_X]++)
            for (node[KIR_Z] = from[KIR_Z]; node[KIR_Z] <= to[KIR_Z]; node[KIR_Z]++) {
                uint64_t word = kir_tell(g, t, r, time, node);

                if (word)
                    kir_raise(&words[kir_node(t, node) - first], word);
            }
}

/* Moves a ray by a step and updates nodes. 0: velocities are not there, and nothing has changed but
 * *r, a copy of the caller's. */
KIR_BODY int kir_step(struct kir_model *m, const struct kir_grid *g, const struct kir_table *t,
                      struct kir_ray *r, float time, uint64_t first, uint64_t *words)
{
    float c[8], f[KIR_AXES], at[KIR_AXES], p[KIR_AXES];

    if (r->length < 0)
        return 1;
    if (!kir_around(m, g, r->at, c, f))
        return 0;
    kir_ray_half(g, c, f, r, at, p);
    if (!kir_inside(g, t, at)) {
        r->length = -1;
        return 1;
    }
    if (!kir_around(m, g, at, c, f))
        return 0;
    kir_ray_whole(g, c, f, p, r);
    if (kir_inside(g, t, r->at))
        kir_spread(g, t, r, time, first, words);
    else
        r->length = -1;
    return 1;
}

KIR_BODY float kir_time_at(struct kir_times *times, uint32_t which, const struct kir_grid *g,
                           const struct kir_table *t, const int cell[KIR_AXES])
{
    int base[KIR_AXES];
    float f[KIR_AXES], c[8];

    if (!kir_look(g, t, cell, base, f))
        return KIR_NEVER;
    for (int k = 0; k < 8; k++) {
        int node[KIR_AXES];

        for (int d = 0; d < KIR_AXES; d++)
            node[d] = kir_corner(t->nodes, base, k, d);
        c[k] = kir_node_time(times, which, kir_node(t, node) - t->offset);
    }
    return kir_time(c, f);
}

/* The sum that an item adds to a cell of the image. Its tables are the source's and then, trace by trace, those of
 * the receivers. */
KIR_BODY int64_t kir_item_cell(struct kir_times *times, const struct kir_shots *shots,
                               const struct kir_item *item, const int cell[KIR_AXES])
{
    const struct kir_grid *g = &shots->grid;
    float there = kir_time_at(times, 0, g, &shots->tables[item->source], cell), steep;
    int64_t sum = 0;

    if (there >= KIR_NEVER)
        return 0;
    steep = kir_steep(shots->stations[item->source].at, cell);
    for (uint32_t k = 0; k < item->traces; k++) {
        uint32_t receiver = shots->receiver[item->first + k];
        float back = kir_time_at(times, 1 + k, g, &shots->tables[receiver], cell);

        sum += kir_add(g, shots->samples + (uint64_t)(item->first + k) * (uint64_t)g->samples,
                       there, back, steep * kir_steep(shots->stations[receiver].at, cell));
    }
    return sum;
}

#endif
