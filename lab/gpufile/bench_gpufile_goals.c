/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goals and results: ratios within one run, computed from its rows. The limit is the rate at which kernels pull
 * over the link; for pages that servers bring, it is the rate at which as many threads read, if that is less.
 */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "lab/gpufile/bench_gpufile.h"

double gfb_gbps(const struct gfb_row *r)
{
    return !r || r->text[0] || !(r->io_s > 0) ? NAN : (double)r->bytes / r->io_s * 1e-9;
}

double gfb_explained(const struct gfb_row *r)
{
    return r->predicted_s > 0 ? gfb_gbps(r) / ((double)r->bytes / r->predicted_s * 1e-9) : NAN;
}

struct gfb_mean gfb_mean(const struct gfb *b, const char *part, const char *mode,
                         const char *other_part, const char *other_mode)
{
    struct gfb_mean m = {NAN, INFINITY, 0};
    double sum = 0;

    for (size_t i = 0; i < b->rows.nr; i++) {
        const struct gfb_row *r = &b->rows.row[i], *other;

        if (strcmp(r->part, part) != 0 || strcmp(r->mode, mode) != 0)
            continue;
        other = gfb_find(b, other_part, r->group, other_mode);
        if (!other || other->text[0] || r->text[0] || !(other->total_s > 0) || !(r->total_s > 0))
            continue;
        sum += log(other->total_s / r->total_s);
        m.least = fmin(m.least, other->total_s / r->total_s);
        m.n++;
    }
    if (m.n)
        m.mean = exp(sum / (double)m.n);
    return m;
}

struct goals {
    const struct gfb *b;
    struct gfb_goal *to;
    size_t n;
};

VV_PRINTF(4, 5)
static void add(struct goals *g, double value, double bar, const char *fmt, ...)
{
    struct gfb_goal *to = &g->to[g->n];
    va_list ap;

    if (!isfinite(value) || g->n == GFB_GOALS_MAX)
        return;
    va_start(ap, fmt);
    vsnprintf(to->name, sizeof(to->name), fmt, ap);
    va_end(ap);
    to->value = value;
    to->bar = bar;
    g->n++;
}

static double at(const struct goals *g, const char *part, const char *group, const char *mode)
{
    return gfb_gbps(gfb_find(g->b, part, group, mode));
}

static void sequential(struct goals *g)
{
    static const char *const larger[] = {"2x", "8x"};
    double ours = at(g, "10", "fits", "varve-kept"), pull = at(g, "rates", "10", "pull");

    add(g, ours / fmin(pull, at(g, "rates", "10", "pread")), 0.9,
        "sequential, fits the cache: of what link and reads allow");
    add(g, ours / at(g, "10", "fits", "double"), 0.95, "  times double buffers");
    add(g, ours / at(g, "10", "fits", "gpufs-4k"), 6, "  times GPUfs mode, 4 KiB pages");
    add(g, ours / at(g, "10", "fits", "prefetch"), 2.5, "  times the paper's readahead");
    add(g, ours / at(g, "10", "fits", "prefetch-many"), 0,
        "  times the same with as many threads as ours (no goal)");
    for (size_t i = 0; i < VV_ARRAY_SIZE(larger); i++) {
        double kept = at(g, "10", larger[i], "varve-kept");

        add(g, kept / ours, 0.95, "file of %s the cache: times our rate in cache", larger[i]);
        add(g, kept / at(g, "10", larger[i], "prefetch-global"), 6,
            "  times one queue of pages for all");
    }
}

static void random_and_hits(struct goals *g)
{
    double pull = at(g, "rates", "mosaic", "pull"), served = at(g, "mosaic", "all", "varve-kept"),
           mapped = at(g, "mosaic", "all", "varve-mapped");

    add(g, mapped / pull, 0.7, "random records of 4 KiB, mapped: of what the link allows");
    add(g, mapped / at(g, "mosaic", "all", "varve-mapped-noahead"), 0.97,
        "  with readahead allowed, times without");
    add(g, served / fmin(pull, at(g, "mosaic", "all", "pread")), 0.7,
        "random records of 4 KiB, served: of what link and reads allow");
    add(g, served / at(g, "mosaic", "all", "varve-kept-noahead"), 0.97,
        "  with readahead allowed, times without");
    add(g, at(g, "hits", "64K", "varve-kept"), 1000, "hits, 4 KiB pages, reads of 64 KiB: GB/s");
}

static void programs(struct goals *g)
{
    struct gfb_mean cpu = gfb_mean(g->b, "apps", "varve", "apps", "cpu"),
                    twice = gfb_mean(g->b, "apps", "varve", "apps", "double"),
                    /* Ways that bypass the cache do not depend on its size. */
        half = gfb_mean(g->b, "half", "varve-kept", "apps", "varve-kept");

    if (cpu.n)
        add(g, cpu.mean, 4, "%zu programs end to end, geometric mean: times one thread", cpu.n);
    if (twice.n) {
        add(g, twice.mean, 1, "  times double buffers");
        add(g, twice.least, 0.9, "  the least of them");
    }
    if (half.n)
        add(g, half.mean, 0.9, "%zu programs, a cache of half the input: times with all of it",
            half.n);
}

/* True if a goal above compares varve with this row. */
static bool is_compared(const struct gfb_row *r)
{
    if (strcmp(r->part, "10") == 0 && strcmp(r->group, "fits") == 0)
        return strcmp(r->mode, "double") == 0 || strcmp(r->mode, "gpufs-4k") == 0 ||
               strcmp(r->mode, "prefetch") == 0;
    if (strcmp(r->part, "10") == 0)
        return strcmp(r->mode, "prefetch-global") == 0;
    return strcmp(r->part, "apps") == 0 &&
           (strcmp(r->mode, "cpu") == 0 || strcmp(r->mode, "double") == 0);
}

/* Counts the baselines within 20% of their prediction: those that count, and all. */
static void explained(struct goals *g)
{
    size_t all = 0, near = 0, counts = 0, counts_near = 0;

    for (size_t i = 0; i < g->b->rows.nr; i++) {
        const struct gfb_row *r = &g->b->rows.row[i];
        double x = gfb_explained(r);
        bool is_near = x >= 0.8 && x <= 1.25;

        if (!isfinite(x))
            continue;
        all++;
        near += is_near;
        counts += is_compared(r);
        counts_near += is_compared(r) && is_near;
    }
    if (counts)
        add(g, (double)counts_near / (double)counts, 1,
            "baselines of goals within 20%% of their prediction: share of %zu", counts);
    if (all)
        add(g, (double)near / (double)all, 0, "  of all %zu predictions (no goal)", all);
}

size_t gfb_goals(const struct gfb *b, struct gfb_goal *ret_goals)
{
    struct goals g = {.b = b, .to = ret_goals};
    double best = NAN;

    sequential(&g);
    random_and_hits(&g);
    programs(&g);
    for (size_t i = 0; i < b->rows.nr; i++)
        if (strcmp(b->rows.row[i].group, "reader") == 0)
            best = fmax(best, gfb_gbps(&b->rows.row[i]));
    add(&g, at(&g, "cold", "all", "varve") / best, 0.9,
        "cold: times our own reader at its best depth");
    explained(&g);
    return g.n;
}
