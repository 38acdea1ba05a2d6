/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output of the rows: rows.csv, from which they can be read again, a chart for each figure, and a page with all of
 * them. A file is written under a temporary name and renamed.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/common/json.h"
#include "cli/common/output.h"
#include "cli/common/page.h"
#include "cli/common/plot.h"
#include "lab/gpufile/bench_gpufile.h"

enum { SERIES_MAX = 24, GROUPS_MAX = 24, FIELDS = 10 };

/* ---- figures ---- */

enum figure_kind { OVER_SIZES, BANDWIDTHS, SPEEDUPS };

static const struct figure {
    const char *id, *part, *title, *claim;
    enum figure_kind kind;
} figures[] = {
    {"2", "2", "Page sizes, one page a request",
     "Paper: 64 KiB pages are best, and exceed reading with the processor.", OVER_SIZES},
    {"9", "9", "Readahead with 4 KiB pages, and large pages",
     "Paper: with readahead, 4 KiB pages come within 20% of 64 KiB pages, twice as fast as "
     "without.",
     OVER_SIZES},
    {"10", "10", "Files that fit the cache, and of 2 and 8 times its size",
     "Paper: pages of one's own make files larger than the cache as fast as others.", BANDWIDTHS},
    {"mosaic", "mosaic", "Random records of 4 KiB",
     "Paper: 4 KiB pages are 45% faster than 64 KiB pages.", BANDWIDTHS},
    {"hits", "hits", "Hits in the page cache on the GPU", "", BANDWIDTHS},
    {"11", "apps", "Fourteen programs, end to end, against GPUfs mode with 4 KiB pages",
     "Paper: readahead makes them 3 times as fast as GPUfs, and 1.5 times as fast as one thread.",
     SPEEDUPS},
    {"12", "apps", "Fourteen programs, I/O bandwidth",
     "Paper: 4 times that of GPUfs, twice that of one thread.", BANDWIDTHS},
    {"13", "half", "A cache of half the input, end to end, against GPUfs mode with 4 KiB pages",
     "Paper: 5 times as fast with its replacement.", SPEEDUPS},
    {"14", "half", "A cache of half the input, I/O bandwidth",
     "Paper: 8 times that of GPUfs with its replacement.", BANDWIDTHS},
    {"cold", "cold", "Nothing in the page cache", "", BANDWIDTHS},
};

/* The factor by which a row is faster, end to end, than the way `than`. */
static double speedup(const struct gfb *b, const struct gfb_row *r, const char *than)
{
    const struct gfb_row *base = gfb_find(b, r->part, r->group, than);

    return !base || base->text[0] || r->text[0] || !(base->total_s > 0) || !(r->total_s > 0)
               ? NAN
               : base->total_s / r->total_s;
}

/* The distinct names of a part, in the order of their first row. */
static size_t names_of(const struct gfb *b, const char *part, bool groups, const char **ret,
                       size_t max)
{
    size_t n = 0;

    for (size_t i = 0; i < b->rows.nr; i++) {
        const struct gfb_row *r = &b->rows.row[i];
        const char *name = groups ? r->group : r->mode;
        size_t k = 0;

        if (strcmp(r->part, part) != 0)
            continue;
        while (k < n && strcmp(ret[k], name) != 0)
            k++;
        if (k == n && n < max)
            ret[n++] = name;
    }
    return n;
}

/* Colours that can be distinguished in charts with all of them. */
static const char *const colours[GFB_MODE_NR] = {
    [GFB_CPU] = "#aaaaaa",           [GFB_DOUBLE] = "#000000",          [GFB_GPUFS_4K] = "#d55e00",
    [GFB_GPUFS_64K] = "#f0e442",     [GFB_PREFETCH_GLOBAL] = "#8c510a", [GFB_PREFETCH] = "#cc79a7",
    [GFB_PREFETCH_MANY] = "#6a3d9a", [GFB_VARVE_KEPT] = "#56b4e9",      [GFB_VARVE] = "#0000cc",
    [GFB_VARVE_MAPPED] = "#009e73",
};

/* Names of modes in rows that cannot be chosen by an option. */
static const struct {
    const char *name, *title, *colour;
} others[] = {
    {GFB_ANY_PAGES, "GPUfs mode, such pages", "#d55e00"},
    {"pread", "as many threads read, and nothing else", "#444444"},
    {"varve-kept-noahead", "Varve, pages kept, no readahead", "#1f3f7f"},
    {"varve-mapped-noahead", "Varve, mapped, no readahead", "#8fd14f"},
};

/* Our own reader of a disk, with so many reads in flight. */
static const char direct[] = "direct-";

static bool is_direct(const char *mode)
{
    return strncmp(mode, direct, sizeof(direct) - 1) == 0;
}

static const char *colour_of(const char *mode)
{
    for (int m = 0; m < GFB_MODE_NR; m++)
        if (strcmp(gfb_mode_name((enum gfb_mode)m), mode) == 0)
            return colours[m];
    for (size_t i = 0; i < VV_ARRAY_SIZE(others); i++)
        if (strcmp(others[i].name, mode) == 0)
            return others[i].colour;
    return "#7f7f00";
}

/* The name of a mode for readers. The text may be in buf. */
static const char *title_of(const char *mode, char *buf, size_t size)
{
    for (int m = 0; m < GFB_MODE_NR; m++)
        if (strcmp(gfb_mode_name((enum gfb_mode)m), mode) == 0)
            return gfb_mode_title((enum gfb_mode)m);
    for (size_t i = 0; i < VV_ARRAY_SIZE(others); i++)
        if (strcmp(others[i].name, mode) == 0)
            return others[i].title;
    if (!is_direct(mode))
        return mode;
    snprintf(buf, size, "reads alone, %s under way", mode + sizeof(direct) - 1);
    return buf;
}

/* A chart has only the best depth of our own reader; the table has all. */
static size_t leave_best(const struct gfb *b, const char *part, const char **modes, size_t n)
{
    const char *best = NULL;
    double most = 0;
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        double rate =
            is_direct(modes[i]) ? gfb_gbps(gfb_find(b, part, "reader", modes[i])) : (double)NAN;

        if (rate > most) { /* no number after a failure */
            best = modes[i];
            most = rate;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (!is_direct(modes[i]) || modes[i] == best)
            modes[kept++] = modes[i];
    return kept;
}

struct chart {
    double x[SERIES_MAX][GROUPS_MAX], y[SERIES_MAX][GROUPS_MAX];
    struct plot_series series[SERIES_MAX];
    const char *modes[SERIES_MAX], *groups[GROUPS_MAX];
    char titles[SERIES_MAX][64];
    size_t nr_series, nr_groups;
};

static void chart_lines(const struct gfb *b, const char *part, struct chart *c)
{
    for (size_t s = 0; s < c->nr_series; s++) {
        size_t n = 0;

        for (size_t g = 0; g < c->nr_groups; g++) {
            const struct gfb_row *r = gfb_find(b, part, c->groups[g], c->modes[s]);

            if (r && r->x > 0) {
                c->x[s][n] = r->x / 1024;
                c->y[s][n++] = gfb_gbps(r);
            } else if (r && n == 0) { /* one figure for all sizes */
                c->x[s][0] = 4;
                c->x[s][1] = 4096;
                c->y[s][0] = c->y[s][1] = gfb_gbps(r);
                n = 2;
            }
        }
        c->series[s].nr = n;
    }
}

static void chart_bars(const struct gfb *b, const struct figure *fig, struct chart *c)
{
    for (size_t s = 0; s < c->nr_series; s++) {
        for (size_t g = 0; g < c->nr_groups; g++) {
            const struct gfb_row *r = gfb_find(b, fig->part, c->groups[g], c->modes[s]);

            c->y[s][g] = !r                      ? PLOT_NOTHING
                         : fig->kind == SPEEDUPS ? speedup(b, r, "gpufs-4k")
                                                 : gfb_gbps(r);
        }
        c->series[s].nr = c->nr_groups;
    }
}

static int draw(FILE *f, const struct gfb *b, const struct figure *fig)
{
    struct chart *c = calloc(1, sizeof(*c));
    char title[160], note[200];
    struct plot_panel panel = {
        .kind = fig->kind == OVER_SIZES ? PLOT_LINES : PLOT_BARS,
        .x_label = fig->kind == OVER_SIZES ? "KiB of a page, or of a window" : "",
        .y_label = fig->kind == SPEEDUPS ? "times as fast" : "GB/s, higher is better",
        .log_x = fig->kind == OVER_SIZES,
        .log_y = true,
    };
    struct plot plot = {.title = title, .note = note, .panels = &panel, .nr_panels = 1};
    int rc;

    if (!c)
        return -ENOMEM;
    c->nr_series = names_of(b, fig->part, false, c->modes, SERIES_MAX);
    c->nr_series = leave_best(b, fig->part, c->modes, c->nr_series);
    c->nr_groups = names_of(b, fig->part, true, c->groups, GROUPS_MAX);
    for (size_t s = 0; s < c->nr_series; s++)
        c->series[s] =
            (struct plot_series){.name = title_of(c->modes[s], c->titles[s], sizeof(c->titles[s])),
                                 .colour = colour_of(c->modes[s]),
                                 .x = c->x[s],
                                 .y = c->y[s]};
    if (fig->kind == OVER_SIZES)
        chart_lines(b, fig->part, c);
    else
        chart_bars(b, fig, c);
    panel.series = c->series;
    panel.nr_series = c->nr_series;
    if (fig->kind != OVER_SIZES) {
        panel.groups = c->groups;
        panel.nr_groups = c->nr_groups;
        plot.width = c->nr_groups > 6 ? 1600 : 0;
    }
    snprintf(title, sizeof(title), "%s%s: %s", fig->id[0] <= '9' ? "Figure " : "", fig->id,
             fig->title);
    snprintf(note, sizeof(note), "%s, %u servers%s", b->device_name, (unsigned)b->o.servers,
             b->emulated ? "; emulated: the figures mean nothing" : "");
    rc = plot_write(f, &plot);
    free(c);
    return rc;
}

/* ---- numbers ---- */

static char *number(double x, char *buf, size_t size)
{
    if (isfinite(x))
        snprintf(buf, size, "%.6g", x);
    else
        snprintf(buf, size, "%s", "");
    return buf;
}

static double predicted_gbps(const struct gfb_row *r)
{
    return r->predicted_s > 0 ? (double)r->bytes / r->predicted_s * 1e-9 : NAN;
}

static void csv_rows(FILE *f, const struct gfb *b, const char *part)
{
    char n[6][32];

    fputs("part,group,mode,cold,x,bytes,io_s,total_s,predicted_s,wrong,gbps,predicted_gbps,"
          "measured_over_predicted,text\n",
          f);
    for (size_t i = 0; i < b->rows.nr; i++) {
        const struct gfb_row *r = &b->rows.row[i];
        char text[GFB_TEXT];

        if (part && strcmp(r->part, part) != 0)
            continue;
        snprintf(text, sizeof(text), "%s", r->text);
        for (char *p = text; *p; p++)
            if (*p == ',' || *p == '"' || *p == '\n')
                *p = ' ';
        fprintf(f, "%s,%s,%s,%d,%.17g,%" PRIu64 ",%.9g,%.9g,%s,%" PRIu64 ",%s,%s,%s,%s\n", r->part,
                r->group, r->mode, r->cold, r->x, r->bytes, r->io_s, r->total_s,
                number(r->predicted_s, n[0], sizeof(n[0])), r->wrong,
                number(gfb_gbps(r), n[1], sizeof(n[1])),
                number(predicted_gbps(r), n[2], sizeof(n[2])),
                number(gfb_explained(r), n[3], sizeof(n[3])), text);
    }
}

/* One line of rows.csv, in place. */
static int load_line(struct gfb *b, char *line)
{
    char *field[FIELDS + 4], *at = line;
    struct gfb_row *r;
    size_t n = 0;

    line[strcspn(line, "\r\n")] = '\0';
    for (; n < FIELDS + 4; n++) {
        size_t len = strcspn(at, n == FIELDS + 3 ? "" : ",");

        field[n] = at;
        if (n < FIELDS + 3 && at[len] != ',')
            return -EINVAL;
        if (n < FIELDS + 3) {
            at[len] = '\0';
            at += len + 1;
        }
    }
    r = gfb_row(b, field[0], field[1], field[2]);
    if (!r)
        return -ENOMEM;
    r->kept = true;
    r->cold = field[3][0] == '1';
    r->x = strtod(field[4], NULL);
    r->bytes = strtoull(field[5], NULL, 10);
    r->io_s = strtod(field[6], NULL);
    r->total_s = strtod(field[7], NULL);
    r->predicted_s = field[8][0] ? strtod(field[8], NULL) : NAN;
    r->wrong = strtoull(field[9], NULL, 10);
    snprintf(r->text, sizeof(r->text), "%s", field[FIELDS + 3]);
    b->bad |= r->wrong != 0;
    return 0;
}

int gfb_load(struct gfb *b)
{
    char path[GFB_PATH + 64], *line = NULL;
    size_t cap = 0;
    FILE *f;
    int rc = 0;

    snprintf(path, sizeof(path), "%s/rows.csv", b->o.out);
    f = fopen(path, "re");
    if (!f)
        return errno == ENOENT ? 0 : gfb_fail(b, -errno, "%s: %s", path, strerror(errno));
    for (bool first = true; rc == 0 && getline(&line, &cap, f) >= 0; first = false)
        if (!first)
            rc = load_line(b, line);
    free(line);
    (void)fclose(f);
    return rc ? gfb_fail(b, rc, "%s is not a table of ours", path) : 0;
}

/* ---- the page ---- */

/* A way in a cell of a table: its name for readers, and the name in rows.csv and on the command line. */
static void put_way(FILE *f, const char *mode)
{
    char title[64];

    fputs("<td title=\"", f);
    page_text(f, mode);
    fputs("\">", f);
    page_text(f, title_of(mode, title, sizeof(title)));
    fputs("</td>", f);
}

static void put_ways(FILE *f)
{
    fputs("<table id=\"ways\"><thead><tr><th>in rows.csv, and for --modes</th><th>way</th></tr>"
          "</thead><tbody>\n",
          f);
    for (int m = 0; m < GFB_MODE_NR; m++) {
        fprintf(f, "<tr><td><code>%s</code></td><td>", gfb_mode_name((enum gfb_mode)m));
        page_text(f, gfb_mode_title((enum gfb_mode)m));
        fputs("</td></tr>\n", f);
    }
    fputs("</tbody></table>\n", f);
}

static void put_table(FILE *f, const struct gfb *b, const struct figure *fig)
{
    char n[5][32];

    fprintf(f,
            "<table id=\"table-%s\"><thead><tr><th>what</th><th>way</th><th>GB/s</th><th>predicted"
            "</th><th>measured / predicted</th><th>end to end, s</th><th>wrong</th><th></th></tr>"
            "</thead><tbody>\n",
            fig->id);
    for (size_t i = 0; i < b->rows.nr; i++) {
        const struct gfb_row *r = &b->rows.row[i];

        if (strcmp(r->part, fig->part) != 0)
            continue;
        fputs("<tr><td>", f);
        page_text(f, r->group);
        fputs("</td>", f);
        put_way(f, r->mode);
        fprintf(f, "<td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%" PRIu64 "</td><td>",
                number(gfb_gbps(r), n[0], sizeof(n[0])),
                number(predicted_gbps(r), n[1], sizeof(n[1])),
                number(gfb_explained(r), n[2], sizeof(n[2])),
                number(r->total_s > 0 ? r->total_s : NAN, n[3], sizeof(n[3])), r->wrong);
        page_text(f, r->text);
        fputs(r->kept ? " earlier run</td></tr>\n" : "</td></tr>\n", f);
    }
    fputs("</tbody></table>\n", f);
}

static void put_means(FILE *f, const struct gfb *b, const char *part)
{
    static const char *const ours[] = {"varve", "varve-kept", "varve-mapped", "prefetch"};
    static const char *const than[] = {"cpu", "double", "gpufs-4k", "gpufs-64k", "prefetch"};

    for (size_t o = 0; o < VV_ARRAY_SIZE(ours); o++)
        for (size_t t = 0; t < VV_ARRAY_SIZE(than); t++) {
            struct gfb_mean m = gfb_mean(b, part, ours[o], part, than[t]);

            if (!m.n || strcmp(ours[o], than[t]) == 0)
                continue;
            fputs("<tr>", f);
            put_way(f, ours[o]);
            put_way(f, than[t]);
            fprintf(f, "<td>%.2f</td><td>%.2f</td><td>%zu</td></tr>\n", m.mean, m.least, m.n);
        }
}

static void put_figure(FILE *f, const struct gfb *b, const struct figure *fig)
{
    const char *one;

    if (names_of(b, fig->part, false, &one, 1) == 0)
        return;
    fprintf(f, "<section id=\"fig-%s\"><h2>", fig->id);
    if (fig->id[0] <= '9')
        fprintf(f, "Figure %s: ", fig->id);
    page_text(f, fig->title);
    fputs("</h2>\n<p>", f);
    page_text(f, fig->claim);
    fputs("</p>\n", f);
    (void)!draw(f, b, fig);
    if (fig->kind == SPEEDUPS) {
        fprintf(f,
                "<table id=\"means-%s\"><thead><tr><th>way</th><th>against</th><th>geometric "
                "mean</th><th>least</th><th>programs</th></tr></thead><tbody>\n",
                fig->id);
        put_means(f, b, fig->part);
        fputs("</tbody></table>\n", f);
    } else {
        put_table(f, b, fig);
    }
    fputs("</section>\n", f);
}

static size_t kept_rows(const struct gfb *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->rows.nr; i++)
        n += b->rows.row[i].kept;
    return n;
}

/* The speed of the link at the start of each experiment, which may have been in another run. */
static void put_links(FILE *f, const struct gfb *b)
{
    for (size_t i = 0; i < b->rows.nr; i++) {
        const struct gfb_row *r = &b->rows.row[i];
        char name[GFB_NAME + 64], rate[PAGE_AMOUNT], text[PAGE_AMOUNT + 32];

        if (strcmp(r->part, "rates") != 0 || strcmp(r->mode, "pull") != 0 ||
            strcmp(r->group, "alone") == 0)
            continue;
        snprintf(name, sizeof(name), "link, pulled, before experiment %s", r->group);
        snprintf(text, sizeof(text), "%s%s", page_rate(gfb_gbps(r) * 1e9, rate, sizeof(rate)),
                 r->kept ? ", in an earlier run" : "");
        page_pair(f, name, text, false);
    }
}

static void put_rates(FILE *f, const struct gfb *b)
{
    char text[PAGE_AMOUNT];

    fputs("<table id=\"rates\"><tbody>\n", f);
    page_pair(f, "device", b->device_name, false);
    page_pair(f, "command", b->command, true);
    page_pair(f, "date", b->date, false);
    page_pair(f, "link, pulled by kernels", page_rate(b->rates.pull, text, sizeof(text)), false);
    page_pair(f, "link, copies from pinned memory", page_rate(b->rates.copy, text, sizeof(text)),
              false);
    page_pair(f, "copies from pageable memory", page_rate(b->rates.pageable, text, sizeof(text)),
              false);
    page_pair(f, "one thread reads into fresh memory",
              page_rate(b->rates.read_one, text, sizeof(text)), false);
    page_pair(f, "all threads read into memory of their own",
              page_rate(b->rates.pread, text, sizeof(text)), false);
    put_links(f, b);
    fputs("</tbody></table>\n", f);
    if (kept_rows(b))
        fprintf(f,
                "<p id=\"kept\">%zu of %zu rows are of earlier runs, whose command, date and rates "
                "were others: what is predicted beside a row follows from the rates of its own "
                "run. Goals that compare rows of two runs compare what the machine was like in "
                "both, too.</p>\n",
                kept_rows(b), b->rows.nr);
}

static void put_goals(FILE *f, const struct gfb *b)
{
    struct gfb_goal goals[GFB_GOALS_MAX];
    size_t n = gfb_goals(b, goals);

    if (!n)
        return;
    fputs("<table id=\"goals\"><thead><tr><th>goal</th><th>is</th><th>at least</th></tr></thead>"
          "<tbody>\n",
          f);
    for (size_t i = 0; i < n; i++) {
        fputs("<tr><td>", f);
        page_text(f, goals[i].name);
        fprintf(f, "</td><td>%.2f%s</td><td>%.2f</td></tr>\n", goals[i].value,
                !b->emulated && goals[i].value < goals[i].bar ? " !" : "", goals[i].bar);
    }
    fputs("</tbody></table>\n", f);
}

static int write_page(FILE *f, const struct gfb *b, const struct figure *fig)
{
    (void)fig;
    page_begin(f, "Varve: files inside kernels, the paper's experiments", false);
    fputs(
        "<h1>Files inside kernels: the paper's experiments, repeated</h1>\n"
        "<p>The experiments of a paper on readahead in GPU file systems, as Varve performs them. "
        "<em>GPUfs mode</em> and <em>paper's readahead</em> are options of the same library: one "
        "page, or one window of a fixed size, for each request, in places that belong to one "
        "server each, of four, waited for. <em>One thread</em> reads a whole file and copies it; "
        "<em>double buffers</em> are as many threads as there are servers, each with two pinned "
        "buffers. Every word that came to the GPU was compared with what was written, and every "
        "result with the processor's. 1 GB is 10<sup>9</sup> bytes; axes are logarithmic.</p>\n"
        "<p>What is predicted for the ways that are not ours follows from rates measured apart: a "
        "baseline is explained where measured over predicted is between 0.8 and 1.25.</p>\n",
        f);
    if (b->emulated)
        fputs("<p>Here the device is emulated by the processor: the figures show that the "
              "experiments run, not what a GPU would reach.</p>\n",
              f);
    put_ways(f);
    put_rates(f, b);
    put_goals(f, b);
    for (size_t i = 0; i < VV_ARRAY_SIZE(figures); i++)
        put_figure(f, b, &figures[i]);
    fputs("<p>All rows: <a href=\"rows.csv\">rows.csv</a></p>\n", f);
    page_end(f, false);
    return 0;
}

static int write_csv(FILE *f, const struct gfb *b, const struct figure *fig)
{
    csv_rows(f, b, fig ? fig->part : NULL);
    return 0;
}

static int write_file(const struct gfb *b, const char *name,
                      int (*fn)(FILE *f, const struct gfb *b, const struct figure *fig),
                      const struct figure *fig, char *err, size_t err_bytes)
{
    struct output_file file;
    int rc = output_begin(b->o.out, name, &file);

    if (rc == 0)
        rc = fn(file.f, b, fig);
    return output_end(&file, rc, err, err_bytes);
}

int gfb_write(const struct gfb *b, char *err, size_t err_bytes)
{
    int rc = write_file(b, "rows.csv", write_csv, NULL, err, err_bytes);

    for (size_t i = 0; rc == 0 && i < VV_ARRAY_SIZE(figures); i++) {
        char name[64];
        const char *one;

        if (names_of(b, figures[i].part, false, &one, 1) == 0)
            continue;
        snprintf(name, sizeof(name), "fig-%s.csv", figures[i].id);
        rc = write_file(b, name, write_csv, &figures[i], err, err_bytes);
        snprintf(name, sizeof(name), "fig-%s.svg", figures[i].id);
        if (rc == 0)
            rc = write_file(b, name, draw, &figures[i], err, err_bytes);
    }
    return rc ? rc : write_file(b, "index.html", write_page, NULL, err, err_bytes);
}

/* ---- standard output ---- */

static void print_goals(const struct gfb *b)
{
    struct gfb_goal goals[GFB_GOALS_MAX];
    size_t n = gfb_goals(b, goals);

    if (n)
        printf("\n%-82s %9s %9s\n", "goal", "is", "at least");
    for (size_t i = 0; i < n; i++)
        printf("%-82s %9.2f %9.2f%s\n", goals[i].name, goals[i].value, goals[i].bar,
               b->emulated                     ? ""
               : goals[i].value < goals[i].bar ? " !"
                                               : "");
}

void gfb_print(const struct gfb *b)
{
    printf(
        "%s%s; link: pulled %.1f, copied %.1f, pageable %.1f GB/s; one thread reads %.1f GB/s\n\n",
        b->device_name, b->emulated ? " (emulated: times mean nothing)" : "", b->rates.pull * 1e-9,
        b->rates.copy * 1e-9, b->rates.pageable * 1e-9, b->rates.read_one * 1e-9);
    printf("%-7s %-11s %-20s %9s %9s %6s %9s %6s\n", "figure", "what", "way", "GB/s", "predicted",
           "ratio", "total s", "wrong");
    for (size_t i = 0; i < b->rows.nr; i++) {
        const struct gfb_row *r = &b->rows.row[i];

        printf("%-7s %-11s %-20s", r->part, r->group, r->mode);
        if (r->text[0]) {
            printf(" %s\n", r->text);
            continue;
        }
        printf(" %9.3f", gfb_gbps(r));
        if (isfinite(predicted_gbps(r)))
            printf(" %9.3f %6.2f", predicted_gbps(r), gfb_explained(r));
        else
            printf(" %9s %6s", "", "");
        if (r->total_s > 0)
            printf(" %9.4f", r->total_s);
        else
            printf(" %9s", "");
        printf(" %6" PRIu64 "\n", r->wrong);
    }
    print_goals(b);
    if (kept_rows(b))
        printf(
            "\n%zu of %zu rows are of earlier runs; the rates in the first line are this one's\n",
            kept_rows(b), b->rows.nr);
    printf("\n%s/index.html\n", b->o.out);
}

void gfb_print_json(const struct gfb *b)
{
    struct json j = json_begin(stdout, JSON_SPACED);

    json_object(&j, NULL);
    json_text(&j, "device", b->device_name);
    json_bool(&j, "emulated", b->emulated);
    json_uint(&j, "kept_rows", kept_rows(b));
    json_real(&j, "pull_bps", b->rates.pull);
    json_real(&j, "copy_bps", b->rates.copy);
    json_real(&j, "pageable_bps", b->rates.pageable);
    json_real(&j, "read_one_bps", b->rates.read_one);
    json_array(&j, "rows");
    for (size_t i = 0; i < b->rows.nr; i++) {
        const struct gfb_row *r = &b->rows.row[i];

        json_gap(&j, "\n  ");
        json_object(&j, NULL);
        json_text(&j, "part", r->part);
        json_text(&j, "group", r->group);
        json_text(&j, "mode", r->mode);
        json_bool(&j, "cold", r->cold);
        json_uint(&j, "bytes", r->bytes);
        json_real(&j, "gbps", gfb_gbps(r));
        json_real(&j, "predicted_gbps", predicted_gbps(r));
        json_real(&j, "total_s", r->total_s);
        json_uint(&j, "wrong", r->wrong);
        json_text(&j, "error", r->text);
        json_close(&j);
    }
    json_gap(&j, "\n");
    json_close(&j);
    json_close(&j);
    json_end(&j);
}
