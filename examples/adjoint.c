/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of a time-stepping model by its adjoint, which needs every state again, last first.
 *
 *     cc adjoint.c $(pkg-config --cflags --libs varve) -o adjoint && ./adjoint
 *
 * The forward pass checkpoints each state and the reverse pass restores it; the rest of the model does
 * not use Varve. The states take 100 MiB and stay in host memory. To see them pass through a smaller
 * cache and a file, run it as
 *
 *     VARVE_HOST_CACHE=16M VARVE_LOCAL=/tmp ./adjoint
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <varve/ckpt.h>

enum { STEPS = 100, CELLS = 1 << 17 };
static const double dt = 0.01;

static void must(int rc, struct varve_ctx *ctx, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "adjoint: %s: %s\n", what, varve_error(ctx));
    exit(1);
}

/* x[i] follows its left neighbour and damps itself. Nonlinear: the adjoint needs the state. */
static void step(double *x)
{
    double left = x[CELLS - 1];

    for (size_t i = 0; i < CELLS; i++) {
        double old = x[i];
        x[i] = old + dt * (left - old * old * old);
        left = old;
    }
}

/* The transpose of the derivative of step() at x, applied to g. */
static void step_adjoint(const double *x, double *g)
{
    double first = g[0];

    for (size_t i = 0; i < CELLS; i++) {
        double right = i + 1 < CELLS ? g[i + 1] : first;
        g[i] = g[i] * (1 - 3 * dt * x[i] * x[i]) + dt * right;
    }
}

static void start(double *x)
{
    for (size_t i = 0; i < CELLS; i++)
        x[i] = 1.0 + (double)(i % 100) / 100;
}

/* Half the sum of squares of the last state, with the first cell moved by `nudge`. */
static double cost_from(double *x, double nudge)
{
    double cost = 0;

    start(x);
    x[0] += nudge;
    for (int v = 0; v < STEPS; v++)
        step(x);
    for (size_t i = 0; i < CELLS; i++)
        cost += x[i] * x[i] / 2;
    return cost;
}

int main(void)
{
    struct varve_history_opts opts;
    struct varve_ctx *ctx;
    struct varve_history *h;
    double *x = malloc(CELLS * sizeof(*x)), *g = malloc(CELLS * sizeof(*g));

    if (!x || !g)
        return 1;
    must(varve_open(NULL, &ctx), NULL, "open");
    must(varve_history_opts_init(&opts, sizeof(opts)), ctx, "options");
    opts.consume =
        VARVE_CONSUME_ONCE; /* each state is restored once, and its space is then freed */
    must(varve_history_open_with(ctx, "states", &opts, &h), ctx, "history");
    must(varve_protect(h, 0, x, CELLS * sizeof(*x)), ctx, "protect");

    /* Hint the order of the restores. Hints may come before the versions exist. */
    for (uint64_t v = STEPS; v-- > 0;)
        must(varve_hint(h, v), ctx, "hint");
    start(x);
    for (uint64_t v = 0; v < STEPS; v++) {
        must(varve_checkpoint(h, v), ctx, "checkpoint");
        step(x);
    }
    memcpy(g, x, CELLS * sizeof(*g)); /* the derivative of the cost by the last state */
    must(varve_prefetch_start(h), ctx, "prefetch");
    for (uint64_t v = STEPS; v-- > 0;) {
        must(varve_restore(h, v), ctx, "restore");
        step_adjoint(x, g);
    }

    struct varve_stats s = {.stats_size = sizeof(s)};
    must(varve_stats(ctx, &s), ctx, "stats");
    must(varve_close(ctx), NULL, "close");
    printf("blocked %.3f s for checkpoints, %.3f s for restores of %.1f MB each way\n",
           (double)s.checkpoint_blocked_ns / 1e9, (double)s.restore_blocked_ns / 1e9,
           (double)s.checkpoint_bytes / 1e6);

    double eps = 1e-4, by_difference = (cost_from(x, eps) - cost_from(x, -eps)) / (2 * eps);
    int same = fabs(g[0] - by_difference) < 1e-5 * fabs(g[0]);
    printf("gradient %.6f by the adjoint, %.6f by differences: %s\n", g[0], by_difference,
           same ? "the same" : "NOT the same");
    free(x);
    free(g);
    return same ? 0 : 1;
}
