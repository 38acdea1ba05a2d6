/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paper's figures for its caches, and the measurements made here. Shares are relative to the cache of a way,
 * as in the paper, whose caches take all of the device; the caches here are a few percent of an H200's memory.
 */
#include "lab/ooc/ooc_page.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/common/page.h"
#include "cli/common/plot.h"

/* ---- figures of a way ---- */

uint64_t ooc_updates(const struct ooc_options *o, const struct ooc_way *w)
{
    uint64_t edge = o->wave.edge;

    return o->tables ? w->missed : w->bytes / (edge * edge * edge * 4);
}

double ooc_per_refresh(uint64_t count, const struct ooc_way *w)
{
    return w->rounds ? (double)count / (double)w->rounds : 0;
}

double ooc_managing(const struct ooc_way *w)
{
    return w->seconds > 0 ? w->management_s / w->seconds : 0;
}

double ooc_full(const struct ooc_way *w)
{
    double at = 0, full = 0;

    for (size_t i = 0; i < w->nr_samples; i++) {
        if (w->samples[i].used >= 0.999)
            full += w->samples[i].s - at;
        at = w->samples[i].s;
    }
    return at > 0 ? full / at : 0;
}

double ooc_most(const struct ooc_way *w)
{
    double most = 0;

    for (size_t i = 0; i < w->nr_samples; i++)
        most = fmax(most, w->samples[i].used);
    return most;
}

/* True if the way has a cache with evictions, and samples of it. */
static bool is_cached(const struct ooc_way *w)
{
    return !w->skipped[0] && !w->no_cache && w->nr_samples > 0 && strcmp(w->name, "resident") != 0;
}

static const char *title_of(const struct ooc_way *w)
{
    return strcmp(w->name, "paper") == 0 ? "paper's policy" : w->name;
}

/* ---- charts ---- */

static const char *const colours[OOC_WAYS_MAX] = {"#666666", "#0072b2", "#56b4e9", "#d55e00",
                                                  "#009e73", "#cc79a7", "#e69f00", "#000000"};

static double memory_of(const struct ooc_sample *s)
{
    return 100 * s->memory;
}

static double used_of(const struct ooc_sample *s)
{
    return 100 * s->used;
}

static const struct figure {
    const char *file, *title, *label, *claim;
    double (*value)(const struct ooc_sample *s);
} figures[][OOC_FIGURES] = {
    {{"figure1.svg", "Figure 1: memory taken from the device", "% of the cache's size",
      "Paper: all memory of the GPU is allocated at the very start and kept until the end, so that "
      "its use is high throughout.",
      memory_of},
     {"figure2.svg", "Figure 2: how many slots of the cache hold a block", "% of the slots",
      "Paper: it climbs to 100% of the slots and remains there for about 85% of the job.",
      used_of}},
    {{"figure3.svg", "Figure 3: memory taken from the device", "% of the cache's size",
      "Paper: it allocates and frees as it goes; most of the time between 90% and 100% of the "
      "GPU's "
      "memory are in use. Here the cache is allocated once, and divided.",
      memory_of},
     {"figure4.svg", "Figure 4: how much of the cache holds tables", "% of the cache",
      "Paper: use is erratic and reaches 80.82% at its maximum, since free memory is scattered.",
      used_of}},
};

static const struct figure *figure_of(const struct ooc_options *o, unsigned i)
{
    return &figures[o->tables][i];
}

unsigned ooc_figures(const struct ooc_report *r)
{
    for (size_t i = 0; i < r->nr_ways; i++)
        if (is_cached(&r->ways[i]))
            return OOC_FIGURES;
    return 0;
}

const char *ooc_figure_file(const struct ooc_options *o, unsigned i)
{
    return figure_of(o, i)->file;
}

static void describe(const struct ooc_options *o, const struct ooc_report *r, char *buf,
                     size_t size)
{
    char a[VV_BYTES_TEXT], b[VV_BYTES_TEXT];

    vv_bytes_human(r->cache_bytes, a, sizeof(a));
    vv_bytes_human(r->data_bytes, b, sizeof(b));
    if (o->tables)
        snprintf(buf, size, "%s: a cache of %s for %" PRIu64 " tables of %s, %" PRIu64 " items",
                 r->device, a, r->tables, b, r->items);
    else
        snprintf(buf, size,
                 "%s: a cache of %s for a volume of %s in blocks of %u^3 cells, %u points, "
                 "%u steps",
                 r->device, a, b, o->wave.edge, o->wave.points, o->wave.steps);
}

static int series_init(struct plot_series *s, const struct ooc_way *w, size_t at,
                       const struct figure *figure, double **ret_points)
{
    double *points = malloc(2 * w->nr_samples * sizeof(double));

    if (!points)
        return -ENOMEM;
    for (size_t k = 0; k < w->nr_samples; k++) {
        points[k] = 100 * fmin(w->samples[k].s / w->seconds, 1);
        points[w->nr_samples + k] = figure->value(&w->samples[k]);
    }
    *s = (struct plot_series){.name = title_of(w),
                              .colour = colours[at],
                              .dash = (enum plot_dash)((at + 2) % 3), /* ours is solid */
                              .plain = true,
                              .x = points,
                              .y = points + w->nr_samples,
                              .nr = w->nr_samples};
    *ret_points = points;
    return 0;
}

/* Over the completed share of the run: ways take unequal time. */
int ooc_figure_draw(FILE *f, const struct ooc_options *o, const struct ooc_report *r, unsigned i)
{
    const struct figure *figure = figure_of(o, i);
    struct plot_series series[OOC_WAYS_MAX];
    double *points[OOC_WAYS_MAX] = {NULL};
    struct plot_panel panel = {.kind = PLOT_LINES,
                               .x_label = "time, % of the run of each way",
                               .y_label = figure->label,
                               .series = series};
    char note[256];
    struct plot plot = {.title = figure->title, .note = note, .panels = &panel, .nr_panels = 1};
    int rc = 0;

    describe(o, r, note, sizeof(note));
    for (size_t k = 0; k < r->nr_ways && rc == 0; k++)
        if (is_cached(&r->ways[k])) {
            rc = series_init(&series[panel.nr_series], &r->ways[k], k, figure,
                             &points[panel.nr_series]);
            panel.nr_series += rc == 0;
        }
    if (rc == 0)
        rc = plot_write(f, &plot);
    for (size_t k = 0; k < panel.nr_series; k++)
        free(points[k]);
    return rc;
}

/* ---- the page ---- */

static double managed(const struct ooc_options *o, const struct ooc_way *w)
{
    (void)o;
    return 100 * ooc_managing(w);
}

static double managed_and_moved(const struct ooc_options *o, const struct ooc_way *w)
{
    (void)o;
    return w->seconds > 0 ? 100 * (w->management_s + w->moving_s) / w->seconds : 0;
}

static double came(const struct ooc_options *o, const struct ooc_way *w)
{
    return ooc_per_refresh(ooc_updates(o, w), w);
}

static double went(const struct ooc_options *o, const struct ooc_way *w)
{
    (void)o;
    return ooc_per_refresh(w->evicted, w);
}

static double each_ms(const struct ooc_options *o, const struct ooc_way *w)
{
    uint64_t n = ooc_updates(o, w);

    return n ? 1e3 * (w->management_s + w->moving_s) / (double)n : 0;
}

static double full(const struct ooc_options *o, const struct ooc_way *w)
{
    (void)o;
    return 100 * ooc_full(w);
}

static double most(const struct ooc_options *o, const struct ooc_way *w)
{
    (void)o;
    return 100 * ooc_most(w);
}

static double average(const struct ooc_options *o, const struct ooc_way *w)
{
    (void)o;
    return 100 * w->utilisation;
}

static const struct claim {
    bool tables, wave; /* which experiment it is of */
    const char *what, *paper, *unit;
    double (*value)(const struct ooc_options *o, const struct ooc_way *w);
} claims[] = {
    {false, true, "time with every slot in use", "about 85", "%", full},
    {true, false, "most of the cache that was ever in use", "80.82", "%", most},
    {true, true, "of the cache in use, averaged over the time", "", "%", average},
    {true, false, "managing the cache, outside of transfers", "13.61, with transfers", "%",
     managed},
    {false, true, "managing the cache, outside of transfers", "", "%", managed},
    {false, true, "managing the cache and calls that copy", "7.58", "%", managed_and_moved},
    {false, true, "blocks that came, for each round of a kernel", "46.57", "", came},
    {false, true, "blocks that went, for each round of a kernel", "46.46", "", went},
    {false, true, "managing and copying, for each block that came", "0.91", "ms", each_ms},
    {true, false, "tables that came, for each launch", "", "", came},
    {true, false, "tables that went, for each launch", "", "", went},
};

static void put_claims(FILE *f, const struct ooc_options *o, const struct ooc_report *r)
{
    fputs("<table id=\"claims\"><thead><tr><th>what</th><th>paper says</th>", f);
    for (size_t i = 0; i < r->nr_ways; i++)
        if (is_cached(&r->ways[i])) {
            fputs("<th>", f);
            page_text(f, title_of(&r->ways[i]));
            fputs("</th>", f);
        }
    fputs("</tr></thead><tbody>\n", f);
    for (size_t k = 0; k < VV_ARRAY_SIZE(claims); k++) {
        const struct claim *c = &claims[k];

        if (o->tables ? !c->tables : !c->wave)
            continue;
        fprintf(f, "<tr><th scope=\"row\">%s%s%s</th><td>%s</td>", c->what, c->unit[0] ? ", " : "",
                c->unit, c->paper);
        for (size_t i = 0; i < r->nr_ways; i++)
            if (is_cached(&r->ways[i]))
                fprintf(f, "<td>%.3g</td>", c->value(o, &r->ways[i]));
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table>\n", f);
}

static void put_ways(FILE *f, const struct ooc_report *r)
{
    char bytes[PAGE_AMOUNT], s[PAGE_AMOUNT];

    fputs("<table id=\"ways\"><thead><tr><th>way</th><th>time</th><th>times the bound</th>"
          "<th>came to the device</th><th>sums</th></tr></thead><tbody>\n",
          f);
    for (size_t i = 0; i < r->nr_ways; i++) {
        const struct ooc_way *w = &r->ways[i];

        fputs("<tr><th scope=\"row\">", f);
        page_text(f, title_of(w));
        if (w->skipped[0]) {
            fputs("</th><td colspan=\"4\" class=\"text\">", f);
            page_text(f, w->skipped);
            fputs("</td></tr>\n", f);
            continue;
        }
        fprintf(f, "</th><td>%s</td><td>%.2f</td><td>%s</td><td>%s</td></tr>\n",
                page_seconds(w->seconds, s, sizeof(s)), w->seconds / r->bound_s,
                page_bytes((double)w->bytes, bytes, sizeof(bytes)), w->same ? "same" : "WRONG");
    }
    fputs("</tbody></table>\n", f);
}

static void put_facts(FILE *f, const struct ooc_options *o, const struct ooc_report *r)
{
    char text[256], amount[PAGE_AMOUNT], more[PAGE_AMOUNT];

    fputs("<table id=\"facts\"><tbody>\n", f);
    describe(o, r, text, sizeof(text));
    page_pair(f, "experiment", text, false);
    snprintf(text, sizeof(text), "%" PRIu64, o->tables ? o->survey.seed : o->wave.seed);
    page_pair(f, "seed", text, false);
    page_pair(f, "link", page_rate(r->link_bps, amount, sizeof(amount)), false);
    snprintf(text, sizeof(text),
             "%s: the larger of the resident run's time, and of the time that the link needs for "
             "the %s that farthest next use would bring",
             page_seconds(r->bound_s, amount, sizeof(amount)),
             page_bytes((double)r->least_bytes, more, sizeof(more)));
    page_pair(f, "bound", text, false);
    fputs("</tbody></table>\n", f);
}

int ooc_page_write(FILE *f, const struct ooc_options *o, const struct ooc_report *r)
{
    int rc = 0;

    page_begin(f, "Varve: data that do not fit the GPU, the paper's measurements", false);
    fputs("<h1>Data that do not fit the GPU: the paper's measurements, repeated</h1>\n", f);
    fputs(o->tables
              ? "<p>Items of work go through tables in the order of a survey; the GPU has a cache "
                "for a part of the tables. <em>Flat</em> and <em>chunked</em> are the library's "
                "layouts, <em>paper's policy</em> is an option of the same library: a table goes "
                "when no launch uses it.</p>\n"
              : "<p>A wave of points passes through a volume; the GPU has a cache for a part of "
                "its blocks, which kernels ask for. <em>None ahead</em> brings only those that "
                "were asked for; <em>paper's policy</em> is an option of the same library: blocks "
                "come one by one between rounds, and the one goes that was used longest "
                "ago.</p>\n",
          f);
    fputs("<p><em>Resident</em> is a run with a cache that holds everything from the start: the "
          "limit of computing. It is not in the charts, nor are ways that have no cache. Sums of "
          "all ways were compared with its, bit for bit.</p>\n",
          f);
    if (o->emulated)
        fputs("<p>Here the device is emulated by the processor: what comes and goes is as on a "
              "GPU, times and shares of them mean nothing.</p>\n",
              f);
    put_facts(f, o, r);
    put_ways(f, r);
    fputs("<h2>What the paper says, and what was measured here</h2>\n", f);
    put_claims(f, o, r);
    for (unsigned i = 0; i < ooc_figures(r) && rc == 0; i++) {
        fprintf(f, "<section id=\"figure%u\"><h2>%s</h2>\n<p>%s</p>\n", i + (o->tables ? 3 : 1),
                figure_of(o, i)->title, figure_of(o, i)->claim);
        rc = ooc_figure_draw(f, o, r, i);
        fputs("</section>\n", f);
    }
    fputs("<p>All rows: <a href=\"ooc.csv\">ooc.csv</a>; what the charts show: <a "
          "href=\"samples.csv\">samples.csv</a></p>\n",
          f);
    page_end(f, false);
    return rc ? rc : ferror(f) ? -EIO : 0;
}
