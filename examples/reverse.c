/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A toy adjoint: steps forward, keeps every state, and goes through them again in reverse.
 *
 *     cc reverse.c $(pkg-config --cflags --libs varve) -o reverse && ./reverse
 *
 * VARVE_LOCAL=/some/folder lets the history be larger than memory; VARVE_LEVEL=local keeps it.
 */
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

enum { STEPS = 200, CELLS = 1 << 20 };

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, varve_strerror(rc));
    exit(1);
}

int main(void)
{
    struct varve_ctx *ctx;
    struct varve_history *h;
    double *field = calloc(CELLS, sizeof(*field)), sum = 0;

    must(varve_open(NULL, &ctx), "open");
    must(varve_history_open(ctx, "field", &h), "history");
    must(varve_protect(h, 0, field, CELLS * sizeof(*field)), "protect");

    for (uint64_t v = STEPS; v-- > 0;)
        must(varve_hint(h, v), "hint"); /* they will be wanted in reverse */
    for (uint64_t v = 0; v < STEPS; v++) {
        for (size_t i = 0; i < CELLS; i++)
            field[i] = field[i] * 0.5 + (double)v;
        must(varve_checkpoint(h, v), "checkpoint");
    }
    must(varve_prefetch_start(h), "prefetch");
    for (uint64_t v = STEPS; v-- > 0;) {
        must(varve_restore(h, v), "restore");
        sum += field[CELLS / 2];
        must(varve_discard(h, v), "discard");
    }

    struct varve_stats s = {.stats_size = sizeof(s)};
    must(varve_stats(ctx, &s), "stats");
    printf("sum %.3f; blocked %.3f s writing, %.3f s restoring %.2f GB each way\n", sum,
           (double)s.checkpoint_blocked_ns / 1e9, (double)s.restore_blocked_ns / 1e9,
           (double)s.checkpoint_bytes / 1e9);
    free(field);
    must(varve_close(ctx), "close");
    return 0;
}
