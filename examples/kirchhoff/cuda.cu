/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on a GPU. */
#include <errno.h>

#include "kernels.h"

enum { THREADS = 128 };

static int check(void)
{
    return cudaFree(NULL) == cudaSuccess ? 0 : -ENODEV;
}

__global__ static void rays_kernel(struct varve_blocks_view view, struct kir_rays_args args)
{
    kir_rays_kernel(&view, &args);
}

static int rays(struct varve_ctx *, struct kir_rays_args *args,
                const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    rays_kernel<<<(view->items + THREADS - 1) / THREADS, THREADS, 0, stream>>>(*view, *args);
    return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

__global__ static void migrate_kernel(struct varve_tables_view view, struct kir_migrate_args args)
{
    kir_migrate_kernel(&view, &args);
}

static int migrate(struct varve_ctx *, const struct kir_migrate_args *args,
                   const struct varve_tables_view *view, struct CUstream_st *stream)
{
    const int *n = args->shots.grid.n;
    uint64_t cells = (uint64_t)n[KIR_Z] * n[KIR_X] * n[KIR_Y];
    uint64_t blocks = (cells + THREADS - 1) / THREADS, most = 1u << 20;

    migrate_kernel<<<(unsigned)(blocks < most ? blocks : most), THREADS, 0, stream>>>(*view, *args);
    return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

extern "C" const struct kir_launcher kir_cuda = {VARVE_DEVICE_CUDA, check, rays, migrate};
