/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the experiments of lab/ooc/ooc.h: compiled by nvcc, and as C for the emulated device. */
#ifndef LAB_OOC_OOC_KERNELS_H
#define LAB_OOC_OOC_KERNELS_H

#include <varve/blocks_device.h>
#include <varve/tables_device.h>

#include "lab/ooc/ooc.h"

/* A step of the wave. The position of a point is computed as in ooc_place, so that the bound is for the same
 * blocks. */
VARVE_D_FN void ooc_wave_kernel(const struct varve_blocks_view *view, const struct ooc_wave_args *a)
{
    struct varve_blocks_view v = *view;
    uint32_t all = varve_d_blocks() * varve_d_threads();

    if (a->memory)
        v.memory = a->memory;
    for (uint32_t i = varve_d_block() * varve_d_threads() + varve_d_thread(); i < v.items;
         i += all) {
        struct varve_blocks_cursor c = varve_blocks_cursor();
        uint32_t item = varve_blocks_item(&v, i), base[3];
        float f[3], sum = 0, most = a->cells - 2.0f;
        int here = 1;

        for (int d = 0; d < 3; d++) {
            float at = a->radius * a->points[item].d[d];

            at = at < most ? at : most;
            base[d] = (uint32_t)at;
            f[d] = at - (float)base[d];
        }
        for (uint32_t k = 0; k < 8; k++) {
            float cell;

            here &= varve_blocks_f32(&v, &c, base[0] + (k & 1), base[1] + (k >> 1 & 1),
                                     base[2] + (k >> 2), &cell);
            sum += cell * (k & 1 ? f[0] : 1.0f - f[0]) * (k >> 1 & 1 ? f[1] : 1.0f - f[1]) *
                   (k >> 2 ? f[2] : 1.0f - f[2]);
        }
        if (here)
            a->sums[item] += sum;
        else
            varve_blocks_again(&v, item);
    }
}

/* Items of a batch: one for each block of threads at a time. */
VARVE_D_FN void ooc_survey_kernel(const struct varve_tables_view *v,
                                  const struct ooc_survey_args *a)
{
    for (uint32_t i = varve_d_block(); i < v->items; i += varve_d_blocks()) {
        uint32_t item = varve_tables_item(v, i);
        uint64_t sum = 0;

        for (uint32_t k = 0; k < varve_tables_count(v, i); k++) {
            struct varve_table t = varve_tables_get(v, i, k);

            for (uint32_t e = varve_d_thread(); e < a->reads; e += varve_d_threads()) {
                const uint32_t *p = (const uint32_t *)varve_tables_element(
                    v, &t, OOC_ELEMENT(item, k, e, t.bytes / 4), 4);

                sum += p ? *p : 0;
            }
        }
        (void)varve_d_add64_dev(&a->sums[item], sum);
    }
}

/* The same without a cache. */
VARVE_D_FN void ooc_plain_kernel(const struct ooc_survey_args *a)
{
    for (uint32_t item = a->from + varve_d_block(); item < a->to; item += varve_d_blocks()) {
        uint64_t sum = 0;

        for (uint64_t k = 0; k < a->first[item + 1] - a->first[item]; k++) {
            uint32_t table = a->uses[a->first[item] + k];
            const uint32_t *at = (const uint32_t *)(a->memory + a->offsets[table]);

            for (uint32_t e = varve_d_thread(); e < a->reads; e += varve_d_threads())
                sum += at[OOC_ELEMENT(item, k, e, a->bytes[table] / 4)];
        }
        (void)varve_d_add64_dev(&a->sums[item], sum);
    }
}

#endif
