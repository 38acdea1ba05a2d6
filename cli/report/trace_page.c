/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page, from top to bottom: the most important figures, the timeline, where the blocked time went, every call,
 * the tiers, the pictures, and the conditions of the run.
 *
 * Everything is in the page when it is loaded; the script only brings the timeline to life. Every
 * text from the trace goes through page_text() or JSON_IN_PAGE: names of histories and phases
 * are the application's and may hold anything. Unknown figures are shown as unknown, never left out or shown as 0.
 */
#include "cli/report/trace_page.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/json.h"
#include "cli/common/page.h"
#include "cli/common/plot.h"
#include "cli/report/trace_spans.h"

#define CHART_WIDTH  470.0
#define CHART_POINTS 240 /* of a line; a line with more calls combines some */
#define LONGEST      10
#define CALLS_SHOWN  300

static const char *const kind_titles[] = {
#define X(name, colour, title) [SPAN_##name] = title,
    SPAN_KINDS(X)
#undef X
};

static const char *const kind_colours[] = {
#define X(name, colour, title) [SPAN_##name] = colour,
    SPAN_KINDS(X)
#undef X
};

const char *span_kind_title(enum span_kind kind)
{
    return kind_titles[kind];
}

const char *span_kind_colour(enum span_kind kind)
{
    return kind_colours[kind];
}

struct trace_totals trace_page_totals(const struct trace_page *p)
{
    struct trace_totals t = {0};

    for (size_t i = 0; i < p->nr_calls; i++) {
        const struct trace_call *c = &p->calls[i];
        struct trace_total *one = c->is_get ? &t.get : &t.put;

        one->nr++;
        one->failed += c->failed;
        one->blocked_s += (double)c->blocked_ns / 1e9;
        if (!c->failed)
            one->bytes += (double)c->bytes;
        one->ready += c->ready;
        if (c->is_get && isfinite(c->ahead)) {
            one->ahead += c->ahead;
            one->nr_ahead++;
        }
    }
    t.put.blocked_s += p->other_s[0];
    t.get.blocked_s += p->other_s[1];
    t.blocked_s = t.put.blocked_s + t.get.blocked_s;
    return t;
}

static const char *label_of(const struct trace_page *p, uint32_t label)
{
    return label < p->nr_labels && label > 0 ? p->labels[label] : "";
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

/* ---- head lines ---- */

static void put_summary(FILE *f, const struct trace_page *p, const struct trace_totals *t)
{
    char wall[PAGE_AMOUNT], blocked[PAGE_AMOUNT], put[PAGE_AMOUNT], get[PAGE_AMOUNT],
        bound[PAGE_AMOUNT];

    fprintf(f, "<p id=\"summary\">The run took %s.", page_seconds(p->wall_s, wall, sizeof(wall)));
    if (p->nr_calls == 0) {
        fputs(" It made no checkpoint and no restore.</p>\n", f);
        return;
    }
    fprintf(f, " Its calls blocked it for %s%s: %zu checkpoint%s for %s, %zu restore%s for %s.",
            page_seconds(t->blocked_s, blocked, sizeof(blocked)),
            p->nr_threads > 1 ? ", all threads added up" : "", t->put.nr, plural(t->put.nr),
            page_seconds(t->put.blocked_s, put, sizeof(put)), t->get.nr, plural(t->get.nr),
            page_seconds(t->get.blocked_s, get, sizeof(get)));
    if (!p->bound.missing && p->bound.result.total_s > 0)
        fprintf(f,
                " With the same computing in between, no schedule could have done with less than "
                "%s.",
                page_seconds(p->bound.result.total_s, bound, sizeof(bound)));
    else if (!p->bound.missing)
        fputs(" With the same computing in between, all of it could have been hidden.", f);
    fputs("</p>\n", f);
    if (p->helpers) {
        fputs("<p id=\"helpers\">", f);
        page_text(f, p->helpers);
        fputs("</p>\n", f);
    }
}

static void card(FILE *f, const char *id, const char *name, const char *value, const char *more,
                 bool alarm)
{
    fprintf(f, "<li id=\"card-%s\"%s><span class=\"name\">", id, alarm ? " class=\"alarm\"" : "");
    page_text(f, name);
    fputs("</span><b>", f);
    page_text(f, value);
    fputs("</b><small>", f);
    page_text(f, more);
    fputs("</small></li>\n", f);
}

static void call_card(FILE *f, const char *id, const char *name, const struct trace_total *t)
{
    char value[PAGE_AMOUNT] = "none", more[128] = "", bytes[PAGE_AMOUNT], blocked[PAGE_AMOUNT];

    if (t->nr > 0) {
        page_rate(t->blocked_s > 0 ? t->bytes / t->blocked_s : NAN, value, sizeof(value));
        snprintf(more, sizeof(more), "%zu call%s, %s in %s blocked", t->nr, plural(t->nr),
                 page_bytes(t->bytes, bytes, sizeof(bytes)),
                 page_seconds(t->blocked_s, blocked, sizeof(blocked)));
    }
    card(f, id, name, value, more, false);
}

static void bound_card(FILE *f, const struct trace_page *p, const struct trace_totals *t)
{
    char value[PAGE_AMOUNT] = "unknown", more[160], bound[PAGE_AMOUNT];
    double least = p->bound.result.total_s;

    if (p->bound.missing) {
        snprintf(more, sizeof(more), "%s", p->bound.missing);
    } else if (least > 0) {
        snprintf(value, sizeof(value), "%.2f \xc3\x97", t->blocked_s / least);
        snprintf(more, sizeof(more), "blocked time over the least possible, %s",
                 page_seconds(least, bound, sizeof(bound)));
    } else {
        snprintf(value, sizeof(value), "+ %s", page_seconds(t->blocked_s, bound, sizeof(bound)));
        snprintf(more, sizeof(more), "blocked time; the least possible is none");
    }
    card(f, "bound", "Against the bound", value, more, false);
}

static void ready_card(FILE *f, const struct trace_page *p, const struct trace_total *get)
{
    char value[PAGE_AMOUNT] = "none", more[160] = "no restores";

    if (get->nr > 0) {
        snprintf(value, sizeof(value), "%.1f%%", 100 * (double)p->ready / (double)get->nr);
        snprintf(more, sizeof(more), "%zu of %zu restores found their bytes in the fastest tier",
                 p->ready, get->nr);
    }
    if (get->nr_ahead > 0)
        snprintf(more + strlen(more), sizeof(more) - strlen(more), "; %.1f ready ahead on average",
                 get->ahead / (double)get->nr_ahead);
    card(f, "ready", "Found ready", value, more, false);
}

static void moved_card(FILE *f, const struct trace_page *p)
{
    char value[PAGE_AMOUNT], more[160], down[PAGE_AMOUNT], up[PAGE_AMOUNT];
    double bytes[2] = {0, 0};

    for (size_t i = 0; i < p->nr_hops; i++)
        if (!p->hops[i].own)
            bytes[p->hops[i].down] += (double)p->hops[i].bytes;
    page_bytes(bytes[0] + bytes[1], value, sizeof(value));
    snprintf(more, sizeof(more), "between tiers: %s down, %s up",
             page_bytes(bytes[1], down, sizeof(down)), page_bytes(bytes[0], up, sizeof(up)));
    card(f, "moved", "Moved", value, more, false);
}

static void put_cards(FILE *f, const struct trace_page *p, const struct trace_totals *t)
{
    double threads = p->nr_threads > 1 ? p->nr_threads : 1;
    char value[PAGE_AMOUNT], more[160];
    size_t failed = t->put.failed + t->get.failed;

    fputs("<ul class=\"cards\" id=\"figures\">\n", f);
    snprintf(more, sizeof(more), "%u thread%s made calls", p->nr_threads, plural(p->nr_threads));
    card(f, "wall", "Wall time", page_seconds(p->wall_s, value, sizeof(value)), more, false);
    if (p->wall_s > 0)
        snprintf(more, sizeof(more), "%.2f%% of the wall time%s",
                 100 * t->blocked_s / (p->wall_s * threads),
                 p->nr_threads > 1 ? " of these threads" : "");
    card(f, "blocked", "Blocked", page_seconds(t->blocked_s, value, sizeof(value)), more, false);
    bound_card(f, p, t);
    call_card(f, "checkpoint", "Checkpoint throughput", &t->put);
    call_card(f, "restore", "Restore throughput", &t->get);
    ready_card(f, p, &t->get);
    moved_card(f, p);
    if (p->nr_errors + failed == 0 && p->nr_repairs == 0)
        snprintf(value, sizeof(value), "none");
    else
        snprintf(value, sizeof(value), "%zu", p->nr_errors + failed);
    snprintf(more, sizeof(more), "%zu call%s failed, %zu error%s below them, %" PRIu64 " repaired",
             failed, plural(failed), p->nr_errors, plural(p->nr_errors), p->nr_repairs);
    card(f, "errors", "Errors", value, more, p->nr_errors + failed > 0);
    fputs("</ul>\n", f);
}

/* The command, the date and the machine. */
static void put_origin(FILE *f, const struct trace_page *p)
{
    if (!p->command && !p->when && !p->where)
        return;
    fputs("<p class=\"muted origin\" id=\"origin\">", f);
    if (p->command) {
        fputs("<code>", f);
        page_text(f, p->command);
        fputs("</code>", f);
    }
    if (p->where) {
        fputs(" on ", f);
        page_text(f, p->where);
    }
    if (p->when) {
        fputs(", ", f);
        page_text(f, p->when);
    }
    fputs("</p>\n", f);
}

static void put_contents(FILE *f, const struct trace_page *p)
{
    fputs("<nav aria-label=\"contents\"><a href=\"#sec-timeline\">Timeline</a>"
          "<a href=\"#sec-blocked\">Blocked time</a><a href=\"#sec-calls\">Call by call</a>"
          "<a href=\"#sec-tiers\">Tiers</a>",
          f);
    if (p->nr_pictures > 0)
        fputs("<a href=\"#sec-pictures\">Pictures</a>", f);
    if (p->nr_errors > 0)
        fputs("<a href=\"#sec-errors\">Errors</a>", f);
    fputs("<a href=\"#sec-conditions\">Run, configuration, machine</a></nav>\n", f);
}

static void put_notices(FILE *f, const struct trace_page *p)
{
    if (p->lost_records == 0 && !p->lost_text)
        return;
    fputs("<div class=\"notice\" id=\"lost\" role=\"note\">\n", f);
    if (p->lost_records > 0)
        fprintf(f,
                "<p><strong>This trace is not complete.</strong> %" PRIu64 " of %" PRIu64
                " records (%.2g%%) were lost, because they were written faster than kept. Sums and "
                "charts below count what is there.</p>\n",
                p->lost_records, p->nr_records + p->lost_records,
                100 * (double)p->lost_records / (double)(p->nr_records + p->lost_records));
    if (p->lost_text) {
        fputs("<p>", f);
        page_text(f, p->lost_text);
        fputs("</p>\n", f);
    }
    fputs("</div>\n", f);
}

/* ---- the timeline ---- */

static void put_ticks(FILE *f, double wall_s)
{
    double lo, hi, step;

    if (!(wall_s > 0))
        return;
    plot_axis(0, wall_s, 6, &lo, &hi, &step);
    for (int i = 0; i * step <= wall_s; i++) {
        double at = i * step / wall_s;

        fprintf(f, "<span style=\"left:%.2f%%%s\">%.*f s</span>", 100 * at,
                at < 0.03   ? ";transform:none"
                : at > 0.97 ? ";transform:translateX(-100%)"
                            : "",
                (int)fmax(0, ceil(-log10(step) - 1e-9)), i * step);
    }
}

/* Names of phases that are long enough to distinguish them. */
static void put_phases(FILE *f, const struct trace_page *p, const struct lane *lane)
{
    double wall_ns = p->wall_s * 1e9;

    for (size_t i = 0; i < lane->nr; i++) {
        const struct span *s = &lane->spans[i];

        if (s->kind != SPAN_PHASE || s->label == 0 || (double)s->ns < 0.06 * wall_ns)
            continue;
        fprintf(f, "<span class=\"phase\" style=\"left:%.2f%%;width:%.2f%%\">",
                100 * (double)s->start_ns / wall_ns, 100 * (double)s->ns / wall_ns);
        page_text(f, label_of(p, s->label));
        fputs("</span>", f);
    }
}

static int put_lane(FILE *f, const struct trace_page *p, const struct tracks *tracks, size_t i)
{
    const struct lane *lane = &p->lanes[i];
    double busy = 0;
    bool calls = false;
    unsigned rows = 1;
    int rc;

    for (size_t k = 0; k < tracks->nr; k++) {
        if (tracks->tracks[k].lane != i)
            continue;
        rows = tracks->tracks[k].nr_rows;
        for (size_t s = 0; s < tracks->tracks[k].nr; s++)
            busy += (double)tracks->tracks[k].spans[s].busy_ns;
    }
    for (size_t k = 0; k < lane->nr && !calls; k++)
        calls = lane->spans[k].kind == SPAN_COMPUTE || lane->spans[k].kind == SPAN_WRITE ||
                lane->spans[k].kind == SPAN_READ;
    fputs("<div class=\"tl-lane\"><div class=\"tl-name\">", f);
    page_text(f, lane->name);
    fprintf(f, "</div><div class=\"tl-bars\" style=\"height:%upx\" role=\"img\" aria-label=\"",
            rows > 1 ? 14 + 8 * rows
            : calls  ? 36
                     : 24);
    page_text(f, lane->name);
    fprintf(f, ": %zu intervals, %.3g s in all\">", lane->nr, busy / 1e9);
    rc = tracks_draw(f, tracks, i);
    put_phases(f, p, lane);
    fputs("</div></div>\n", f);
    return rc;
}

static void put_key(FILE *f, const struct trace_page *p)
{
    bool used[SPAN_KIND_NR] = {false};

    for (size_t i = 0; i < p->nr_lanes; i++)
        for (size_t k = 0; k < p->lanes[i].nr; k++)
            used[p->lanes[i].spans[k].kind] = true;
    fputs("<ul class=\"key\" aria-label=\"colours\">\n", f);
    for (int k = 0; k < SPAN_KIND_NR; k++)
        if (used[k])
            fprintf(f, "<li><i style=\"background:%s\"></i>%s</li>\n", kind_colours[k],
                    kind_titles[k]);
    fputs("</ul>\n", f);
}

static int put_data(FILE *f, const struct trace_page *p, const struct tracks *tracks)
{
    struct json j = json_begin(f, JSON_IN_PAGE);
    int rc;

    fputs("<script type=\"application/json\" id=\"trace-meta\">", f);
    json_object(&j, NULL);
    json_number(&j, "wall_ns", "%.0f", p->wall_s * 1e9);
    json_int(&j, "phase", SPAN_PHASE);
    json_array(&j, "lanes");
    for (size_t i = 0; i < p->nr_lanes; i++)
        json_text(&j, NULL, p->lanes[i].name);
    json_close(&j);
    json_array(&j, "labels");
    for (size_t i = 0; i < p->nr_labels; i++)
        json_text(&j, NULL, p->labels[i]);
    json_close(&j);
    json_array(&j, "kinds");
    for (int k = 0; k < SPAN_KIND_NR; k++) {
        json_object(&j, NULL);
        json_text(&j, "title", kind_titles[k]);
        json_text(&j, "colour", kind_colours[k]);
        json_close(&j);
    }
    json_close(&j);
    json_close(&j);
    fputs("</script>\n<script type=\"text/plain\" id=\"trace-spans\">", f);
    rc = tracks_pack(f, tracks);
    fputs("</script>\n", f);
    return rc;
}

static int put_timeline(FILE *f, const struct trace_page *p)
{
    struct tracks tracks;
    char merged[PAGE_AMOUNT];
    int rc = tracks_make(p->lanes, p->nr_lanes, p->wall_s, TRACE_PAGE_SPANS, &tracks);

    if (rc < 0)
        return rc;
    fputs(
        "<section id=\"sec-timeline\">\n<h2>Timeline</h2>\n"
        "<p>Each lane is a thread of the application or a mover; the height of its colour is the "
        "share of the time that it was busy.<span class=\"js-only\" hidden> Wheel, pinch or + "
        "and - zoom, dragging or the arrow keys move, a tap or the pointer tells what an interval "
        "was, a double click shows it whole.</span></p>\n"
        "<div class=\"tl-tools\" id=\"timeline-tools\" hidden>\n"
        "<button type=\"button\" data-action=\"in\" aria-label=\"zoom in\">+</button>\n"
        "<button type=\"button\" data-action=\"out\" aria-label=\"zoom "
        "out\">\xe2\x88\x92</button>\n"
        "<button type=\"button\" data-action=\"left\" "
        "aria-label=\"earlier\">\xe2\x86\x90</button>\n"
        "<button type=\"button\" data-action=\"right\" aria-label=\"later\">\xe2\x86\x92</button>\n"
        "<button type=\"button\" data-action=\"reset\">whole run</button>\n"
        "<output aria-live=\"polite\"></output>\n</div>\n"
        "<div class=\"tl\" id=\"timeline\" role=\"group\" aria-label=\"timeline of the run\">\n",
        f);
    for (size_t i = 0; i < p->nr_lanes && rc == 0; i++)
        rc = put_lane(f, p, &tracks, i);
    fputs("<div class=\"tl-axis\"><div class=\"ticks\">", f);
    put_ticks(f, p->wall_s);
    fputs("</div></div>\n</div>\n", f);
    put_key(f, p);
    if (tracks.merged_ns > 0)
        fprintf(f,
                "<p class=\"muted\" id=\"merged\">Of %" PRIu64 " intervals, those shorter than %s "
                "are drawn together where they are close: %zu are left.</p>\n",
                tracks.nr_before,
                page_seconds((double)tracks.merged_ns / 1e9, merged, sizeof(merged)),
                tracks.nr_spans);
    if (rc == 0)
        rc = put_data(f, p, &tracks);
    fputs("</section>\n", f);
    tracks_fini(&tracks);
    return rc;
}

/* ---- charts ---- */

struct chart {
    const char *id, *title, *caption;
    const char *x_label, *y_label;
    bool log_y;
    const struct plot_series *series;
    size_t nr_series;
};

static int put_chart(FILE *f, const struct chart *c)
{
    struct plot_panel panel = {
        .kind = PLOT_LINES,
        .x_label = c->x_label,
        .y_label = c->y_label,
        .log_y = c->log_y,
        .series = c->series,
        .nr_series = c->nr_series,
    };
    struct plot plot = {.title = c->title, .width = CHART_WIDTH, .panels = &panel, .nr_panels = 1};
    int rc;

    fprintf(f, "<figure class=\"chart\" id=\"%s\">\n", c->id);
    rc = plot_write(f, &plot);
    fputs("<figcaption>", f);
    page_text(f, c->caption);
    fputs("</figcaption>\n</figure>\n", f);
    return rc;
}

/* The calls of one kind as points: the number of the call, its rate in units of `unit`, and how far
 * ahead it was. Where there are many, a point stands for `ret_each` of them. */
struct points {
    double *x, *rate, *ahead;
    size_t nr, each;
};

static size_t group_size(size_t nr)
{
    return (nr + CHART_POINTS - 1) / CHART_POINTS > 1 ? (nr + CHART_POINTS - 1) / CHART_POINTS : 1;
}

static int make_points(const struct trace_page *p, bool is_get, size_t nr_calls, struct points *ret)
{
    struct points pt = {.each = group_size(nr_calls)};
    size_t n = 0, nr_ahead = 0;
    double bytes = 0, blocked = 0, ahead = 0;

    pt.x = calloc(3 * (nr_calls / pt.each + 2), sizeof(*pt.x));
    if (!pt.x)
        return -ENOMEM;
    pt.rate = pt.x + nr_calls / pt.each + 2;
    pt.ahead = pt.rate + nr_calls / pt.each + 2;
    for (size_t i = 0; i < p->nr_calls; i++) {
        const struct trace_call *c = &p->calls[i];

        if (c->is_get != is_get)
            continue;
        n++;
        if (!c->failed) {
            bytes += (double)c->bytes;
            blocked += (double)c->blocked_ns;
        }
        if (isfinite(c->ahead)) {
            ahead += c->ahead;
            nr_ahead++;
        }
        if (n % pt.each != 0 && n != nr_calls)
            continue;
        pt.x[pt.nr] = (double)n;
        pt.rate[pt.nr] = blocked > 0 ? bytes / blocked : NAN; /* bytes over ns: GB/s */
        pt.ahead[pt.nr] = nr_ahead ? ahead / (double)nr_ahead : PLOT_NOTHING;
        pt.nr++;
        bytes = blocked = ahead = 0;
        nr_ahead = 0;
    }
    *ret = pt;
    return 0;
}

/* An axis that holds values of several orders of magnitude is logarithmic. */
static bool spans_decades(const double *y, size_t nr)
{
    double lo = INFINITY, hi = 0;

    for (size_t i = 0; i < nr; i++) {
        if (isfinite(y[i]) && y[i] > 0) {
            lo = fmin(lo, y[i]);
            hi = fmax(hi, y[i]);
        }
    }
    return hi > 15 * lo;
}

/* Scales rates in GB/s to the unit that suits them. */
static const char *rate_unit(double *rate, size_t nr)
{
    double most = 0;

    for (size_t i = 0; i < nr; i++)
        if (isfinite(rate[i]))
            most = fmax(most, rate[i]);
    if (most >= 0.5)
        return "GB/s, higher is better";
    for (size_t i = 0; i < nr; i++)
        rate[i] *= 1e3;
    return "MB/s, higher is better";
}

static void caption_of(const struct points *pt, const char *text, char *buf, size_t size)
{
    if (pt->each > 1)
        snprintf(buf, size, "%s Each point stands for %zu calls.", text, pt->each);
    else
        snprintf(buf, size, "%s", text);
}

static int put_rates(FILE *f, bool is_get, const struct points *pt)
{
    char caption[256];
    struct plot_series series = {
        .name = is_get ? "restore" : "checkpoint",
        .colour = kind_colours[is_get ? SPAN_READ : SPAN_WRITE],
        .x = pt->x,
        .y = pt->rate,
        .nr = pt->nr,
    };
    struct chart chart = {
        .id = is_get ? "chart-restore" : "chart-checkpoint",
        .title = is_get ? "Restore throughput" : "Checkpoint throughput",
        .x_label = is_get ? "restore number" : "checkpoint number",
        .series = &series,
        .nr_series = 1,
        .caption = caption,
    };

    caption_of(pt, "Bytes over the time for which the call blocked its thread.", caption,
               sizeof(caption));
    chart.y_label = rate_unit(pt->rate, pt->nr);
    chart.log_y = spans_decades(pt->rate, pt->nr);
    return put_chart(f, &chart);
}

static int put_distance(FILE *f, const struct points *pt)
{
    char caption[256];
    struct plot_series series = {
        .name = "ready ahead",
        .colour = kind_colours[SPAN_UP],
        .fill = true,
        .x = pt->x,
        .y = pt->ahead,
        .nr = pt->nr,
    };
    struct chart chart = {
        .id = "chart-distance",
        .title = "Prefetch distance",
        .x_label = "restore number",
        .y_label = "versions ready ahead",
        .series = &series,
        .nr_series = 1,
        .caption = caption,
    };

    caption_of(
        pt,
        "How many of the next versions in the restore order were complete in the fastest tier "
        "when a restore was asked for.",
        caption, sizeof(caption));
    return put_chart(f, &chart);
}

static void call_row(FILE *f, const struct trace_page *p, const struct trace_call *c)
{
    char bytes[PAGE_AMOUNT], blocked[PAGE_AMOUNT], rate[PAGE_AMOUNT] = "";
    double ns = (double)c->blocked_ns;

    fprintf(f, "<td>%s%s</td><td>", c->is_get ? "restore" : "checkpoint",
            c->failed ? " <span class=\"bad\">failed</span>" : "");
    page_text(f, label_of(p, c->label));
    fprintf(f,
            "</td><td class=\"n\">%" PRIu64
            "</td><td class=\"n\">%.6f s</td><td class=\"n\">%s</td>"
            "<td class=\"n\">%s</td><td class=\"n\">%s</td>",
            c->version, (double)c->start_ns / 1e9, page_seconds(ns / 1e9, blocked, sizeof(blocked)),
            page_bytes((double)c->bytes, bytes, sizeof(bytes)),
            ns > 0 ? page_rate((double)c->bytes / ns * 1e9, rate, sizeof(rate)) : "");
}

static const char call_head[] =
    "<thead><tr><th scope=\"col\">call</th><th scope=\"col\">history</th><th scope=\"col\" "
    "class=\"n\">"
    "version</th><th scope=\"col\" class=\"n\">began at</th><th scope=\"col\" "
    "class=\"n\">blocked</th>"
    "<th scope=\"col\" class=\"n\">size</th><th scope=\"col\" class=\"n\">rate</th>";

static void put_all_calls(FILE *f, const struct trace_page *p)
{
    fputs("<details><summary>Every call</summary>\n<div class=\"scroll\"><table id=\"calls\">", f);
    fprintf(f, "%s<th scope=\"col\" class=\"n\">ready ahead</th></tr></thead><tbody>\n", call_head);
    for (size_t i = 0; i < p->nr_calls && i < CALLS_SHOWN; i++) {
        fputs("<tr>", f);
        call_row(f, p, &p->calls[i]);
        if (p->calls[i].is_get && isfinite(p->calls[i].ahead))
            fprintf(f, "<td class=\"n\">%.0f</td></tr>\n", p->calls[i].ahead);
        else
            fputs("<td></td></tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
    if (p->nr_calls > CALLS_SHOWN)
        fprintf(f,
                "<p>These are the first %d of %zu; <code>varve trace export --format csv "
                "--table iterations</code> writes all of them.</p>\n",
                CALLS_SHOWN, p->nr_calls);
    fputs("</details>\n", f);
}

static int put_calls(FILE *f, const struct trace_page *p, const struct trace_totals *t)
{
    struct points put = {0}, get = {0};
    int rc = make_points(p, false, t->put.nr, &put);

    if (rc == 0)
        rc = make_points(p, true, t->get.nr, &get);
    fputs("<section id=\"sec-calls\">\n<h2>Call by call</h2>\n<div class=\"two\">\n", f);
    if (rc == 0 && t->put.nr > 0)
        rc = put_rates(f, false, &put);
    if (rc == 0 && t->get.nr > 0)
        rc = put_rates(f, true, &get);
    if (rc == 0 && t->get.nr_ahead > 0)
        rc = put_distance(f, &get);
    fputs("</div>\n", f);
    if (p->nr_calls == 0)
        fputs("<p>There were no calls.</p>\n", f);
    else
        put_all_calls(f, p);
    fputs("</section>\n", f);
    free(put.x);
    free(get.x);
    return rc;
}

/* ---- blocked time ---- */

struct part {
    const char *title, *colour;
    double s;
};

static void put_bar(FILE *f, const char *name, const struct part *parts, size_t nr, double most)
{
    char text[PAGE_AMOUNT];
    double sum = 0;

    for (size_t i = 0; i < nr; i++)
        sum += parts[i].s;
    fprintf(f, "<div>%s, %s</div><div class=\"bar\" role=\"img\" aria-label=\"%s:", name,
            page_seconds(sum, text, sizeof(text)), name);
    for (size_t i = 0; i < nr; i++)
        if (parts[i].s > 0)
            fprintf(f, " %s %s;", parts[i].title, page_seconds(parts[i].s, text, sizeof(text)));
    fputs("\">", f);
    for (size_t i = 0; i < nr && most > 0; i++)
        if (parts[i].s > 0)
            fprintf(f, "<span style=\"width:%.3f%%;background:%s\" title=\"%s: %s\"></span>",
                    100 * parts[i].s / most, parts[i].colour, parts[i].title,
                    page_seconds(parts[i].s, text, sizeof(text)));
    fputs("</div>\n", f);
}

static void put_parts_key(FILE *f, const struct part *parts, size_t nr)
{
    char text[PAGE_AMOUNT];

    for (size_t i = 0; i < nr; i++)
        if (parts[i].s > 0)
            fprintf(f, "<li><i style=\"background:%s\"></i>%s, %s</li>\n", parts[i].colour,
                    parts[i].title, page_seconds(parts[i].s, text, sizeof(text)));
}

static void set_causes(const struct trace_page *p, bool is_get, struct part *parts)
{
    const double *s = p->cause_s[is_get];

    parts[0] = (struct part){"copying its own bytes", COLOUR_BY_COPY, s[BLOCKED_COPYING]};
    parts[1] = (struct part){is_get ? "while the disk was read" : "while the disk was written",
                             COLOUR_BY_DISK, s[BLOCKED_DISK]};
    parts[2] =
        (struct part){is_get ? "while the device was filled" : "while the device was emptied",
                      COLOUR_BY_LINK, s[BLOCKED_LINK]};
    parts[3] =
        (struct part){"while remote storage was in use", COLOUR_BY_REMOTE, s[BLOCKED_REMOTE]};
    parts[4] =
        (struct part){"something else: latency, scheduling", COLOUR_BY_ELSE, s[BLOCKED_ELSE]};
}

static void put_bound_parts(FILE *f, const struct trace_page *p, const struct trace_totals *t)
{
    const struct bound_result *b = &p->bound.result;
    struct part was[] = {{"checkpoints", kind_colours[SPAN_WRITE], t->put.blocked_s},
                         {"restores", kind_colours[SPAN_READ], t->get.blocked_s}};
    struct part least[] = {{"the copies to and from the caches", COLOUR_BY_COPY, b->copy_s},
                           {"writing what does not fit", kind_colours[SPAN_WRITE], b->write_s},
                           {"reading what did not fit", kind_colours[SPAN_READ], b->restore_s},
                           {"writing and reading together", COLOUR_WAIT, b->cross_s}};
    double most = fmax(t->blocked_s, b->total_s);

    fputs("<h3>Against the bound</h3>\n", f);
    if (p->bound.missing) {
        fputs("<p>No bound: ", f);
        page_text(f, p->bound.missing);
        fputs("</p>\n", f);
        return;
    }
    fputs("<div class=\"parts\" id=\"bound-parts\">\n", f);
    put_bar(f, "blocked", was, VV_ARRAY_SIZE(was), most);
    put_bar(f, "bound", least, VV_ARRAY_SIZE(least), most);
    fputs("</div>\n<ul class=\"key\">\n", f);
    put_parts_key(f, least, VV_ARRAY_SIZE(least));
    fputs("</ul>\n<p>The bound is the least time for which any schedule would have had to block "
          "calls of these sizes, in this order, with this computing in between. ",
          f);
    page_text(f, p->bound.how);
    if (b->total_s < 0.01 * p->wall_s)
        fputs(" It is less than a hundredth of the wall time here, so that their quotient says "
              "little: what the bound does not count, waking a thread for one, takes as long.",
              f);
    fputs("</p>\n", f);
}

static int put_cumulative(FILE *f, const struct trace_page *p)
{
    size_t each = group_size(p->nr_calls), n = 0;
    double *x = calloc(3 * (p->nr_calls / each + 2), sizeof(*x)), blocked = 0, unit;
    double *was = x + (p->nr_calls / each + 2), *least = was + (p->nr_calls / each + 2);
    struct plot_series series[] = {
        {.name = "blocked", .colour = kind_colours[SPAN_READ], .fill = true, .x = x, .y = was},
        {.name = "bound", .colour = COLOUR_LIMIT, .dash = PLOT_DASHED, .x = x, .y = least},
    };
    struct chart chart = {
        .id = "chart-cumulative",
        .title = "Blocked time so far",
        .x_label = "call number",
        .series = series,
        .nr_series = p->bound.missing ? 1 : 2,
        .caption = "Blocked time added up over the calls; where it rises the application waited.",
    };
    int rc;

    if (!x)
        return -ENOMEM;
    for (size_t i = 0; i < p->nr_calls; i++)
        blocked += (double)p->calls[i].blocked_ns / 1e9;
    unit = blocked < 0.5 ? 1e3 : 1;
    chart.y_label = blocked < 0.5 ? "ms, lower is better" : "seconds, lower is better";
    n = 1; /* nothing before the first call */
    blocked = 0;
    for (size_t i = 0; i < p->nr_calls; i++) {
        blocked += (double)p->calls[i].blocked_ns / 1e9;
        if ((i + 1) % each != 0 && i + 1 != p->nr_calls)
            continue;
        x[n] = (double)(i + 1);
        was[n] = blocked * unit;
        least[n] = p->bound.missing ? 0 : p->bound.at_s[i] * unit;
        n++;
    }
    series[0].nr = series[1].nr = n;
    rc = put_chart(f, &chart);
    free(x);
    return rc;
}

static int longer(const void *x, const void *y)
{
    const struct trace_call *a = *(const struct trace_call *const *)x;
    const struct trace_call *b = *(const struct trace_call *const *)y;

    if (a->blocked_ns != b->blocked_ns)
        return a->blocked_ns > b->blocked_ns ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int put_longest(FILE *f, const struct trace_page *p)
{
    const struct trace_call **by_time = calloc(p->nr_calls + 1, sizeof(*by_time));

    if (!by_time)
        return -ENOMEM;
    for (size_t i = 0; i < p->nr_calls; i++)
        by_time[i] = &p->calls[i];
    qsort(by_time, p->nr_calls, sizeof(*by_time), longer);
    fprintf(f,
            "<h3>The longest waits</h3>\n<div class=\"scroll\"><table id=\"longest\">%s"
            "<th scope=\"col\" class=\"js-only\" hidden>timeline</th></tr></thead><tbody>\n",
            call_head);
    for (size_t i = 0; i < p->nr_calls && i < LONGEST; i++) {
        const struct trace_call *c = by_time[i];

        fputs("<tr>", f);
        call_row(f, p, c);
        fprintf(f,
                "<td class=\"js-only\" hidden data-show=\"%" PRIu64 " %" PRIu64 "\" "
                "data-what=\"%s of version %" PRIu64 "\"></td></tr>\n",
                c->start_ns, c->blocked_ns, c->is_get ? "restore" : "checkpoint", c->version);
    }
    fputs("</tbody></table></div>\n", f);
    free(by_time);
    return 0;
}

static int put_blocked(FILE *f, const struct trace_page *p, const struct trace_totals *t)
{
    struct part put[BLOCKED_CAUSE_NR], get[BLOCKED_CAUSE_NR];
    int rc;

    set_causes(p, false, put);
    set_causes(p, true, get);
    fputs("<section id=\"sec-blocked\">\n<h2>Blocked time</h2>\n", f);
    if (p->nr_calls == 0) {
        fputs("<p>There were no calls.</p>\n</section>\n", f);
        return 0;
    }
    fputs("<div class=\"two\">\n<div>\n<h3>Where it went</h3>\n"
          "<div class=\"parts\" id=\"cause-parts\">\n",
          f);
    put_bar(f, "checkpoints", put, BLOCKED_CAUSE_NR, fmax(t->put.blocked_s, t->get.blocked_s));
    put_bar(f, "restores", get, BLOCKED_CAUSE_NR, fmax(t->put.blocked_s, t->get.blocked_s));
    fputs("</div>\n<p class=\"muted\">What was going on while a call waited; of several things the "
          "first of this list counts.</p>\n",
          f);
    for (int g = 0; g < 2; g++) {
        struct part *parts = g ? get : put;

        fprintf(f, "<ul class=\"key\"><li><strong>%s</strong></li>\n",
                g ? "Restores" : "Checkpoints");
        put_parts_key(f, parts, BLOCKED_CAUSE_NR);
        fputs("</ul>\n", f);
    }
    put_bound_parts(f, p, t);
    fputs("</div>\n", f);
    rc = put_cumulative(f, p);
    fputs("</div>\n", f);
    if (rc == 0)
        rc = put_longest(f, p);
    fputs("</section>\n", f);
    return rc;
}

/* ---- tiers and hops ---- */

/* The unit in which a tier's bytes are drawn. */
static double bytes_unit(double most, const char **ret_label)
{
    if (most >= 0x1p29) {
        *ret_label = "GiB";
        return 0x1p30;
    }
    *ret_label = most >= 0x1p19 ? "MiB" : "KiB";
    return most >= 0x1p19 ? 0x1p20 : 0x1p10;
}

/* Many samples become the most and the least of each stretch, so that no peak is lost. */
static size_t thin_out(const struct trace_tier *t, double unit, double *x, double *y)
{
    size_t each = (t->nr + CHART_POINTS - 1) / CHART_POINTS, n = 0;

    for (size_t i = 0; i < t->nr; i += each) {
        size_t lo = i, hi = i, end = i + each < t->nr ? i + each : t->nr;

        for (size_t k = i; k < end; k++) {
            lo = t->bytes[k] < t->bytes[lo] ? k : lo;
            hi = t->bytes[k] > t->bytes[hi] ? k : hi;
        }
        for (int k = 0; k < (lo == hi ? 1 : 2); k++) {
            size_t at = (k == 0) == (lo < hi) ? lo : hi;

            x[n] = t->time_s[at];
            y[n++] = t->bytes[at] / unit;
        }
    }
    return n;
}

static int put_tier(FILE *f, const struct trace_page *p, size_t i)
{
    const struct trace_tier *t = &p->tiers[i];
    double *x = calloc(4 * CHART_POINTS + 8, sizeof(*x)), *y = x + 2 * CHART_POINTS + 4;
    double full_x[2] = {0, p->wall_s}, full[2], most = (double)t->capacity, unit;
    struct plot_series series[] = {
        {.name = "used", .colour = COLOUR_HELD, .fill = true, .x = x, .y = y},
        {.name = "capacity",
         .colour = COLOUR_LIMIT,
         .dash = PLOT_DASHED,
         .plain = true,
         .x = full_x,
         .y = full,
         .nr = 2},
    };
    char id[48], title[96], caption[224], peak[PAGE_AMOUNT], cap[PAGE_AMOUNT], more[PAGE_AMOUNT];
    struct chart chart = {.id = id, .title = title, .caption = caption, .x_label = "time, s"};
    double top = 0;
    int rc;

    if (!x)
        return -ENOMEM;
    for (size_t k = 0; k < t->nr; k++)
        top = fmax(top, t->bytes[k]);
    most = fmax(most, top);
    unit = bytes_unit(most <= 4 * top ? most : top, &chart.y_label);
    full[0] = full[1] = (double)t->capacity / unit;
    series[0].nr = thin_out(t, unit, x, y);
    chart.series = series;
    /* A limit that is far away would leave no room for the rest. */
    chart.nr_series = t->capacity > 0 && most <= 4 * top ? 2 : 1;
    snprintf(id, sizeof(id), "chart-tier-%zu", i);
    snprintf(title, sizeof(title), "Occupancy: %s", t->name);
    snprintf(caption, sizeof(caption), "At most %s%s%s%s%s%s.", page_bytes(top, peak, sizeof(peak)),
             t->capacity ? " of " : "",
             t->capacity ? page_bytes((double)t->capacity, cap, sizeof(cap)) : "",
             t->capacity ? "" : "; no limit", t->buffers ? "; disk buffers took another " : "",
             t->buffers ? page_bytes((double)t->buffers, more, sizeof(more)) : "");
    rc = put_chart(f, &chart);
    free(x);
    return rc;
}

static void put_hops(FILE *f, const struct trace_page *p)
{
    fputs("<h3>What was moved</h3>\n<div class=\"scroll\"><table id=\"hops\"><thead><tr>"
          "<th scope=\"col\">hop</th><th scope=\"col\" class=\"n\">bytes</th>"
          "<th scope=\"col\" class=\"n\">copies</th><th scope=\"col\" class=\"n\">busy</th>"
          "<th scope=\"col\" class=\"n\">of the wall time</th>"
          "<th scope=\"col\" class=\"n\">rate while busy</th>"
          "<th scope=\"col\" class=\"n\">best kept up</th>"
          "<th scope=\"col\" class=\"n\">failed</th></tr></thead><tbody>\n",
          f);
    for (size_t i = 0; i < p->nr_hops; i++) {
        const struct trace_hop *h = &p->hops[i];
        char bytes[PAGE_AMOUNT], busy[PAGE_AMOUNT], rate[PAGE_AMOUNT], best[PAGE_AMOUNT];

        fputs("<tr><th scope=\"row\">", f);
        page_text(f, h->title);
        fprintf(f,
                "</th><td class=\"n\">%s</td><td class=\"n\">%" PRIu64
                "</td><td class=\"n\">%s</td>"
                "<td class=\"n\">%.1f%%</td><td class=\"n\">%s</td><td class=\"n\">%s</td>"
                "<td class=\"n%s\">%" PRIu64 "</td></tr>\n",
                page_bytes((double)h->bytes, bytes, sizeof(bytes)), h->copies,
                page_seconds(h->busy_s, busy, sizeof(busy)),
                p->wall_s > 0 ? 100 * h->busy_s / p->wall_s : 0,
                page_rate(h->busy_s > 0 ? (double)h->bytes / h->busy_s : NAN, rate, sizeof(rate)),
                page_rate(h->best_bps > 0 ? h->best_bps : NAN, best, sizeof(best)),
                h->failures ? " bad" : "", h->failures);
    }
    fputs("</tbody></table></div>\n", f);
}

static int put_tiers(FILE *f, const struct trace_page *p)
{
    int rc = 0;

    fputs("<section id=\"sec-tiers\">\n<h2>Tiers</h2>\n<div class=\"two\">\n", f);
    for (size_t i = 0; i < p->nr_tiers && rc == 0; i++)
        rc = put_tier(f, p, i);
    fputs("</div>\n", f);
    if (p->nr_hops > 0)
        put_hops(f, p);
    fputs("</section>\n", f);
    return rc;
}

/* ---- pictures, errors, conditions ---- */

static void put_pictures(FILE *f, const struct trace_page *p)
{
    if (p->nr_pictures == 0)
        return;
    fputs("<section id=\"sec-pictures\">\n<h2>Pictures</h2>\n<div class=\"pictures\">\n", f);
    for (size_t i = 0; i < p->nr_pictures; i++) {
        const struct trace_picture *pic = &p->pictures[i];

        fputs("<figure><img alt=\"", f);
        page_text(f, pic->name);
        fprintf(f, "\" src=\"data:%s;base64,", pic->type);
        page_base64(f, pic->bytes, pic->nr_bytes);
        fputs("\"><figcaption>", f);
        page_text(f, pic->caption && *pic->caption ? pic->caption : pic->name);
        fputs("</figcaption></figure>\n", f);
    }
    fputs("</div>\n</section>\n", f);
}

static void put_errors(FILE *f, const struct trace_page *p)
{
    if (p->nr_errors == 0)
        return;
    fputs(
        "<section id=\"sec-errors\">\n<h2 class=\"bad\">Errors</h2>\n<div class=\"scroll\"><table>"
        "<thead><tr><th scope=\"col\" class=\"n\">at</th><th scope=\"col\">what</th></tr></thead>"
        "<tbody>\n",
        f);
    for (size_t i = 0; i < p->nr_errors && i < CALLS_SHOWN; i++) {
        fprintf(f, "<tr><td class=\"n\">%.6f s</td><td>", p->errors[i].time_s);
        page_text(f, p->errors[i].text);
        fputs("</td></tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
    if (p->nr_errors > CALLS_SHOWN)
        fprintf(f, "<p>These are the first %d of %zu.</p>\n", CALLS_SHOWN, p->nr_errors);
    fputs("</section>\n", f);
}

static void put_pairs(FILE *f, const char *id, const char *title, const struct trace_pairs *pairs,
                      bool code)
{
    fprintf(f, "<div><h3>%s</h3>\n", title);
    if (pairs->nr == 0) {
        fputs("<p>Not recorded.</p></div>\n", f);
        return;
    }
    fprintf(f, "<div class=\"scroll\"><table id=\"%s\">\n", id);
    for (size_t i = 0; i < pairs->nr; i++)
        page_pair(f, pairs->pairs[i].name, pairs->pairs[i].text, code);
    fputs("</table></div></div>\n", f);
}

static void put_conditions(FILE *f, const struct trace_page *p)
{
    fputs("<section id=\"sec-conditions\">\n<h2>Run, configuration, machine</h2>\n"
          "<div class=\"two\">\n",
          f);
    put_pairs(f, "run", "The run", &p->run, false);
    put_pairs(f, "config", "Configuration", &p->config, true);
    put_pairs(f, "machine", "Machine", &p->machine, false);
    fputs("</div>\n", f);
    fprintf(f,
            "<p class=\"muted\" id=\"records\">Made from %" PRIu64 " records of the trace, %" PRIu64
            " lost. 1 GB is 10<sup>9</sup> bytes, 1 GiB 2<sup>30</sup>. Other "
            "programs can read the same trace: <code>varve trace export</code>.</p>\n</section>\n",
            p->nr_records, p->lost_records);
}

int trace_page_write(FILE *f, const struct trace_page *p)
{
    struct trace_totals totals = trace_page_totals(p);
    int rc;

    page_begin(f, p->title, true);
    fputs("<header><h1>", f);
    page_text(f, p->title);
    fputs("</h1>\n", f);
    put_origin(f, p);
    fputs("</header>\n<main>\n", f);
    put_notices(f, p);
    put_summary(f, p, &totals);
    put_cards(f, p, &totals);
    put_contents(f, p);
    rc = put_timeline(f, p);
    if (rc == 0)
        rc = put_blocked(f, p, &totals);
    if (rc == 0)
        rc = put_calls(f, p, &totals);
    if (rc == 0)
        rc = put_tiers(f, p);
    put_pictures(f, p);
    put_errors(f, p);
    put_conditions(f, p);
    fputs("</main>\n", f);
    page_end(f, true);
    if (rc == 0 && ferror(f))
        rc = -EIO;
    return rc;
}
