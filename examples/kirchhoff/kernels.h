/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels: velocities come through blocks, times through tables. Compiled by nvcc and, for the
 * emulated device, as C; a kernel function is the work of one thread.
 */
#ifndef KIR_KERNELS_H
#define KIR_KERNELS_H

#include <varve/blocks_device.h>
#include <varve/tables_device.h>

#include "kirchhoff.h"

#define KIR_BODY VARVE_D_FN

struct kir_model {
    const struct varve_blocks_view *view;
    struct varve_blocks_cursor cursor;
};

VARVE_D_FN int kir_velocity(struct kir_model *m, int z, int x, int y, float *ret_velocity)
{
    return varve_blocks_f32(m->view, &m->cursor, (uint64_t)z, (uint64_t)x, (uint64_t)y,
                            ret_velocity);
}

/* The tables of one item of a batch. */
struct kir_times {
    const struct varve_tables_view *view;
    uint32_t item, which; /* index of `table` among them */
    struct varve_table table;
};

VARVE_D_FN float kir_node_time(struct kir_times *times, uint32_t which, uint64_t node)
{
    float time;

    if (times->which != which) {
        times->table = varve_tables_get(times->view, times->item, which);
        times->which = which;
    }
    (void)varve_tables_f32(times->view, &times->table, node, &time); /* the run fails otherwise */
    return time;
}

VARVE_D_FN void kir_raise(uint64_t *word, uint64_t value)
{
    if (varve_d_load64_dev(word) < value)
        (void)varve_d_max64_dev(word, value);
}

#include "steps.h"

/* One step of all rays. */
VARVE_D_FN void kir_rays_kernel(const struct varve_blocks_view *v, const struct kir_rays_args *a)
{
    uint32_t all = varve_d_blocks() * varve_d_threads();

    for (uint32_t i = varve_d_block() * varve_d_threads() + varve_d_thread(); i < v->items;
         i += all) {
        struct kir_model model = {v, varve_blocks_cursor()};
        uint32_t item = varve_blocks_item(v, i);
        struct kir_ray r = a->from[item];

        if (kir_step(&model, &a->grid, &a->tables[r.table], &r, a->time, a->first_node, a->words))
            a->to[item] = r;
        else
            varve_blocks_again(v, item);
    }
}

/* Adds the items of a batch to the image: a thread has cells, and goes through all items. */
VARVE_D_FN void kir_migrate_kernel(const struct varve_tables_view *v,
                                   const struct kir_migrate_args *a)
{
    const int *n = a->shots.grid.n;
    uint64_t cells = (uint64_t)n[KIR_Z] * (uint64_t)n[KIR_X] * (uint64_t)n[KIR_Y],
             all = (uint64_t)varve_d_blocks() * varve_d_threads();

    for (uint64_t at = (uint64_t)varve_d_block() * varve_d_threads() + varve_d_thread(); at < cells;
         at += all) {
        int cell[KIR_AXES] = {(int)(at % (uint64_t)n[KIR_Z]),
                              (int)(at / (uint64_t)n[KIR_Z] % (uint64_t)n[KIR_X]),
                              (int)(at / (uint64_t)n[KIR_Z] / (uint64_t)n[KIR_X])};
        int64_t sum = 0;

        for (uint32_t i = 0; i < v->items; i++) {
            struct kir_times times = {v, i, UINT32_MAX, {0, NULL, NULL, 0}};

            sum += kir_item_cell(&times, &a->shots,
                                 (const struct kir_item *)varve_tables_meta(v, i), cell);
        }
        if (sum)
            (void)varve_d_add64_dev((uint64_t *)&a->image[at], (uint64_t)sum);
    }
}

#endif
