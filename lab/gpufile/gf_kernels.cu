/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of `varve bench gpufile` for the GPU. */
#include "lab/gpufile/gf_kernels.h"
#include "lab/gpufile/gf_launch.h"

#define GF_ENTRY(name, bounds)                                                            \
    extern "C" __global__ void bounds gf_##name(const __grid_constant__ struct gf_args a) \
    {                                                                                     \
        gf_kernel_##name(&a);                                                             \
    }
#define GF_WARP_ENTRY(name)  GF_ENTRY(name, __launch_bounds__(256, 3))
#define GF_BLOCK_ENTRY(name) GF_ENTRY(name, __launch_bounds__(512))

GF_WARP_KERNELS(GF_WARP_ENTRY)
GF_BLOCK_KERNELS(GF_BLOCK_ENTRY)
