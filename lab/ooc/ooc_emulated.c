/* SPDX-License-Identifier: Apache-2.0 */
/* The experiments' kernels on the emulated device. */
#define VARVE_EMULATE 1
#include <errno.h>
#include <stdlib.h>

#include <varve/emulate.h>

#include "lab/ooc/ooc_kernels.h"

enum { BLOCKS = 4, THREADS = 4, RESIDENT = 2 };

struct wave {
    struct ooc_wave_args args;
    struct varve_blocks_view view;
};

static void wave_thread(void *arg)
{
    const struct wave *w = arg;

    ooc_wave_kernel(&w->view, &w->args);
}

/* A grid that cannot be started has no way to report it: the emulation ends the process, as it does without
 * threads. */
static void wave_grid(void *arg)
{
    if (varve_emu_launch(BLOCKS, THREADS, RESIDENT, 1, wave_thread, arg) != 0)
        abort();
    free(arg);
}

static int wave(struct varve_ctx *ctx, const struct ooc_wave_args *args,
                const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    struct wave *w = malloc(sizeof(*w));
    int rc;

    if (!w)
        return -ENOMEM;
    *w = (struct wave){*args, *view};
    rc = varve_emulate(ctx, wave_grid, w, stream);
    if (rc)
        free(w);
    return rc;
}

struct survey {
    struct ooc_survey_args args;
    struct varve_tables_view view;
    bool plain;
};

static void survey_thread(void *arg)
{
    const struct survey *k = arg;

    if (k->plain)
        ooc_plain_kernel(&k->args);
    else
        ooc_survey_kernel(&k->view, &k->args);
}

static void survey_grid(void *arg)
{
    if (varve_emu_launch(BLOCKS, THREADS, RESIDENT, 1, survey_thread, arg) != 0)
        abort();
    free(arg);
}

static int start_survey(struct varve_ctx *ctx, const struct ooc_survey_args *args,
                        const struct varve_tables_view *view, struct CUstream_st *stream)
{
    struct survey *k = calloc(1, sizeof(*k));
    int rc;

    if (!k)
        return -ENOMEM;
    k->args = *args;
    k->plain = !view;
    if (view)
        k->view = *view;
    rc = varve_emulate(ctx, survey_grid, k, stream);
    if (rc)
        free(k);
    return rc;
}

static int plain(struct varve_ctx *ctx, const struct ooc_survey_args *args,
                 struct CUstream_st *stream)
{
    return start_survey(ctx, args, NULL, stream);
}

const struct ooc_launcher ooc_emulated = {
    .device = VARVE_DEVICE_HOST, .wave = wave, .survey = start_survey, .plain = plain};
