/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on the emulated device: threads of the processor emulate those of a GPU. */
#define VARVE_EMULATE 1
#include <stdlib.h>

#include <varve/emulate.h>

#include "kernels.h"

enum { BLOCKS = 4, THREADS = 4, RESIDENT = 2 };

struct rays {
    struct kir_rays_args args;
    struct varve_blocks_view view;
};

static void rays_thread(void *arg)
{
    const struct rays *k = arg;

    kir_rays_kernel(&k->view, &k->args);
}

/* The emulated device cannot report that a grid did not start: without memory the program ends. */
static void rays_grid(void *arg)
{
    if (varve_emu_launch(BLOCKS, THREADS, RESIDENT, 1, rays_thread, arg) != 0)
        abort();
    free(arg);
}

static int rays(struct varve_ctx *ctx, struct kir_rays_args *args,
                const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    struct rays *k = malloc(sizeof(*k));
    int rc;

    if (!k)
        return -ENOMEM;
    k->args = *args;
    k->view = *view;
    rc = varve_emulate(ctx, rays_grid, k, stream);
    if (rc)
        free(k);
    return rc;
}

struct migrate {
    struct kir_migrate_args args;
    struct varve_tables_view view;
};

static void migrate_thread(void *arg)
{
    const struct migrate *k = arg;

    kir_migrate_kernel(&k->view, &k->args);
}

static void migrate_grid(void *arg)
{
    if (varve_emu_launch(BLOCKS, THREADS, RESIDENT, 1, migrate_thread, arg) != 0)
        abort();
    free(arg);
}

static int migrate(struct varve_ctx *ctx, const struct kir_migrate_args *args,
                   const struct varve_tables_view *view, struct CUstream_st *stream)
{
    struct migrate *k = malloc(sizeof(*k));
    int rc;

    if (!k)
        return -ENOMEM;
    k->args = *args;
    k->view = *view;
    rc = varve_emulate(ctx, migrate_grid, k, stream);
    if (rc)
        free(k);
    return rc;
}

const struct kir_launcher kir_emulated = {
    .varve_device = VARVE_DEVICE_HOST,
    .rays = rays,
    .migrate = migrate,
};
