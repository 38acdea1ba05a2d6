/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the experiments of sim/ooc.h: compiled by nvcc, and as C for the emulated device. */
#ifndef VARVE_SIM_OOC_KERNELS_H
#define VARVE_SIM_OOC_KERNELS_H

#include <varve/blocks_device.h>

#include "sim/ooc.h"

/* A step of the wave. The operations that say where a point is are those of ooc_place, so that the bound is
 * about the same blocks. */
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

#endif
