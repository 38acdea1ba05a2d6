/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chart is laid out from top to bottom: title, note, legend in as many rows as it takes, panels.
 * Text cannot be measured here; its width is estimated from the number of characters, generously,
 * so that nothing overlaps in any font.
 *
 * Colours of text, axes and background come from a style sheet with a dark variant; the colours of
 * the series come from the caller and must be visible on both. Coordinates are written with one digit
 * after the point: a tenth of a pixel is enough.
 *
 * A missing value is visible: a cross on the axis where its bar would stand,
 * a gap in its line.
 */
#include "cli/common/plot.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "cli/common/page.h"
#include "cli/common/palette.h"

#define WIDTH       1120.0
#define MARGIN      12.0
#define PANEL_GAP   16.0
#define PANEL_H     330.0
#define INSET_L     58.0 /* of the axes within a panel */
#define INSET_R     12.0
#define INSET_T     52.0 /* title, and the figures on the highest bar */
#define INSET_BARE  14.0 /* without a title */
#define INSET_B     50.0
#define LEGEND_ROW  20.0
#define CHAR_W      7.0 /* of 12 pixel text, estimated generously */
#define GROUP_FILL  0.88
#define BAR_MAX     26.0
#define BAR_TEXT    9.5 /* a narrower bar has no figure on it */
#define MARKERS_MAX 24  /* a line with more points has no markers */
#define TICKS_MAX   8
#define LOG_PAD     0.15 /* room beside the first and the last point of a logarithmic axis */

static const char style[] =
    ".vp-bg{fill:" COLOUR_PAPER "}.vp-text{fill:" COLOUR_TEXT ";font-family:sans-serif}"
    ".vp-axis{stroke:" COLOUR_MUTED ";fill:none}.vp-grid{stroke:" COLOUR_LINE ";fill:none}"
    ".vp-minor{stroke:" COLOUR_FAINT ";fill:none}"
    ".vp-gone{stroke:" COLOUR_BAD ";fill:none;stroke-width:1.5}"
    ".vp-edge{stroke:" COLOUR_MUTED ";stroke-width:.5}"
    "@media (prefers-color-scheme: dark){.vp-bg{fill:" COLOUR_PAPER_DARK "}"
    ".vp-text{fill:" COLOUR_TEXT_DARK "}.vp-axis{stroke:" COLOUR_MUTED_DARK "}"
    ".vp-grid{stroke:" COLOUR_LINE_DARK "}.vp-minor{stroke:" COLOUR_FAINT_DARK "}"
    ".vp-gone{stroke:" COLOUR_BAD_DARK "}.vp-edge{stroke:" COLOUR_TEXT_DARK "}}";

static const char *const dashes[] = {
    [PLOT_SOLID] = "", [PLOT_DASHED] = "7 4", [PLOT_DOTTED] = "2 3"};

/* The axes of one panel in pixels and in values; a logarithmic one is kept as logarithms. */
struct frame {
    double left, right, top, bottom;
    double x_lo, x_hi, y_lo, y_hi;
    double x_step, y_step;
    bool has_data;
};

/* ---- values ---- */

static bool present(const struct plot_panel *p, double y)
{
    return isfinite(y) && (!p->log_y || y > 0);
}

static double x_of(const struct plot_panel *p, double x)
{
    return p->log_x ? log2(x) : x;
}

static double y_of(const struct plot_panel *p, double y)
{
    return p->log_y ? log10(y) : y;
}

void plot_axis(double lo, double hi, unsigned most, double *ret_lo, double *ret_hi,
               double *ret_step)
{
    /* The last ones are for a range that crosses few steps. */
    static const double nice[] = {1, 2, 5, 10, 20, 50};
    double step, unit;

    if (!(hi > lo))
        hi = lo + (lo > 0 ? lo : 1);
    unit = pow(10, floor(log10((hi - lo) / most)));
    step = unit * 50;
    for (size_t i = VV_ARRAY_SIZE(nice); i-- > 0;)
        if (ceil(hi / (unit * nice[i])) - floor(lo / (unit * nice[i])) <= most)
            step = unit * nice[i];
    *ret_lo = floor(lo / step) * step;
    *ret_hi = ceil(hi / step) * step;
    *ret_step = step;
}

/* Sets the range of values of a frame; has_data: false if there is no value. */
static void set_range(const struct plot_panel *p, struct frame *fr)
{
    double x_lo = INFINITY, x_hi = -INFINITY, y_lo = INFINITY, y_hi = -INFINITY;

    for (size_t s = 0; s < p->nr_series; s++) {
        const struct plot_series *se = &p->series[s];

        for (size_t i = 0; i < se->nr; i++) {
            if (p->kind == PLOT_LINES) {
                x_lo = fmin(x_lo, x_of(p, se->x[i]));
                x_hi = fmax(x_hi, x_of(p, se->x[i]));
            }
            if (present(p, se->y[i])) {
                y_lo = fmin(y_lo, y_of(p, se->y[i]));
                y_hi = fmax(y_hi, y_of(p, se->y[i] + (se->err ? se->err[i] : 0)));
            }
        }
    }
    fr->has_data = y_hi >= y_lo && (p->kind == PLOT_BARS || x_hi >= x_lo);
    if (!fr->has_data)
        return;
    if (p->log_y) {
        /* The smallest bar must have a height; the highest may exceed the axis a little. */
        fr->y_lo = floor(y_lo - 0.1);
        fr->y_hi = fmax(ceil(y_hi - 0.02), fr->y_lo + 1);
        fr->y_step = 1;
    } else {
        plot_axis(fmin(y_lo, 0), fmax(y_hi, 0), TICKS_MAX, &fr->y_lo, &fr->y_hi, &fr->y_step);
    }
    if (p->kind == PLOT_LINES && p->log_x) {
        fr->x_lo = x_lo - LOG_PAD;
        fr->x_hi = fmax(x_hi, x_lo + 1) + LOG_PAD;
    } else if (p->kind == PLOT_LINES) {
        plot_axis(fmin(x_lo, 0), x_hi, TICKS_MAX, &fr->x_lo, &fr->x_hi, &fr->x_step);
    }
}

static double px(const struct frame *fr, double x)
{
    return fr->left + (x - fr->x_lo) / (fr->x_hi - fr->x_lo) * (fr->right - fr->left);
}

static double py(const struct frame *fr, double y)
{
    return fr->bottom - (y - fr->y_lo) / (fr->y_hi - fr->y_lo) * (fr->bottom - fr->top);
}

/* ---- parts ---- */

static void put_text(FILE *f, double x, double y, double size, const char *anchor,
                     const char *extra, const char *s)
{
    fprintf(f, "<text class=\"vp-text\" x=\"%.1f\" y=\"%.1f\" font-size=\"%g\"%s%s%s%s>", x, y,
            size, anchor ? " text-anchor=\"" : "", anchor ? anchor : "", anchor ? "\"" : "", extra);
    page_text(f, s);
    fputs("</text>\n", f);
}

static void put_line(FILE *f, const char *class, double x1, double y1, double x2, double y2)
{
    fprintf(f, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1,
            y1, x2, y2);
}

static void put_turned(FILE *f, double x, double y, double size, const char *anchor, const char *s)
{
    char turn[64];

    snprintf(turn, sizeof(turn), " transform=\"rotate(-90 %.1f %.1f)\"", x, y);
    put_text(f, x, y, size, anchor, turn, s);
}

/* Three digits: a figure on a bar has no room for more. */
static void short_number(double v, char *buf, size_t size)
{
    if (v >= 99.95)
        snprintf(buf, size, "%.0f", v);
    else
        snprintf(buf, size, "%.3g", v);
}

static void y_axis(FILE *f, const struct plot_panel *p, const struct frame *fr)
{
    char text[32];

    for (unsigned i = 0; fr->y_lo + i * fr->y_step <= fr->y_hi + fr->y_step / 2; i++) {
        double y = fr->y_lo + i * fr->y_step;

        if (p->log_y && fr->y_hi - fr->y_lo <= 4 && y < fr->y_hi)
            for (int m = 2; m < 10; m++)
                put_line(f, "vp-minor", fr->left, py(fr, y + log10(m)), fr->right,
                         py(fr, y + log10(m)));
        put_line(f, "vp-grid", fr->left, py(fr, y), fr->right, py(fr, y));
        /* A sum of steps is not exactly 0 where it should be. */
        if (fabs(y) < fr->y_step * 1e-9)
            y = 0;
        snprintf(text, sizeof(text), "%g", p->log_y ? pow(10, y) : y);
        put_text(f, fr->left - 6, py(fr, y) + 4, 11, "end", "", text);
    }
    put_turned(f, fr->left - INSET_L + 14, (fr->top + fr->bottom) / 2, 12, "middle", p->y_label);
}

static void x_tick(FILE *f, const struct frame *fr, double at, double value)
{
    char text[32];

    put_line(f, "vp-axis", px(fr, at), fr->bottom, px(fr, at), fr->bottom + 4);
    snprintf(text, sizeof(text), "%.4g", value);
    put_text(f, px(fr, at), fr->bottom + 18, 11, "middle", "", text);
}

/* On a logarithmic axis at the points themselves, which are powers of two or nearly so. */
static void x_axis(FILE *f, const struct plot_panel *p, const struct frame *fr)
{
    const struct plot_series *longest = &p->series[0];
    double last = -INFINITY;

    for (size_t s = 1; s < p->nr_series; s++)
        if (p->series[s].nr > longest->nr)
            longest = &p->series[s];
    if (p->log_x) {
        for (size_t i = 0; i < longest->nr; i++) {
            double at = x_of(p, longest->x[i]);

            if (px(fr, at) - last < 30)
                continue;
            last = px(fr, at);
            x_tick(f, fr, at, longest->x[i]);
        }
        return;
    }
    for (unsigned i = 0; fr->x_lo + i * fr->x_step <= fr->x_hi + fr->x_step / 2; i++)
        x_tick(f, fr, fr->x_lo + i * fr->x_step, fr->x_lo + i * fr->x_step);
}

static void put_marker(FILE *f, size_t series, const char *colour, double x, double y)
{
    switch (series % 4) {
    case 0:
        fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" fill=\"%s\"/>\n", x, y, colour);
        break;
    case 1:
        fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"6.6\" height=\"6.6\" fill=\"%s\"/>\n",
                x - 3.3, y - 3.3, colour);
        break;
    case 2:
        fprintf(f, "<path d=\"M%.1f %.1fl4.2 7.4h-8.4z\" fill=\"%s\"/>\n", x, y - 4.6, colour);
        break;
    default:
        fprintf(f, "<path d=\"M%.1f %.1fl4.6 4.6l-4.6 4.6l-4.6 -4.6z\" fill=\"%s\"/>\n", x, y - 4.6,
                colour);
        break;
    }
}

static void put_cross(FILE *f, double x, double base, double r)
{
    put_line(f, "vp-gone", x - r, base - 2 * r - 2, x + r, base - 2);
    put_line(f, "vp-gone", x - r, base - 2, x + r, base - 2 * r - 2);
}

static bool marked(const struct plot_series *se)
{
    return se->nr <= MARKERS_MAX && !se->plain;
}

static void put_stroke(FILE *f, const struct plot_series *se)
{
    fprintf(f, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"", se->colour);
    if (*dashes[se->dash])
        fprintf(f, " stroke-dasharray=\"%s\"", dashes[se->dash]);
    fputs("/>\n", f);
}

/* A run of points without a gap, down to the axis. */
static void draw_fill(FILE *f, const struct plot_panel *p, const struct frame *fr,
                      const struct plot_series *se)
{
    double base = p->log_y ? fr->bottom : py(fr, 0);

    for (size_t i = 0; i < se->nr;) {
        size_t n = i;

        while (n < se->nr && present(p, se->y[n]))
            n++;
        if (n > i) {
            fprintf(f, "<path d=\"M%.1f %.1f", px(fr, x_of(p, se->x[i])), base);
            for (size_t k = i; k < n; k++)
                fprintf(f, "L%.1f %.1f", px(fr, x_of(p, se->x[k])), py(fr, y_of(p, se->y[k])));
            fprintf(f, "L%.1f %.1fz\" fill=\"%s\" fill-opacity=\".16\"/>\n",
                    px(fr, x_of(p, se->x[n - 1])), base, se->colour);
        }
        i = n + 1;
    }
}

static void draw_line(FILE *f, const struct plot_panel *p, const struct frame *fr, size_t s)
{
    const struct plot_series *se = &p->series[s];
    bool open = false, any = false;

    if (se->fill)
        draw_fill(f, p, fr, se);
    for (size_t i = 0; i < se->nr; i++) {
        if (!present(p, se->y[i])) {
            open = false;
            continue;
        }
        if (!any)
            fputs("<path d=\"", f);
        any = true;
        fprintf(f, "%s%.1f %.1f", open ? "L" : "M", px(fr, x_of(p, se->x[i])),
                py(fr, y_of(p, se->y[i])));
        open = true;
    }
    if (any)
        put_stroke(f, se);
    for (size_t i = 0; i < se->nr && marked(se); i++) {
        double x = px(fr, x_of(p, se->x[i]));

        if (present(p, se->y[i]))
            put_marker(f, s, se->colour, x, py(fr, y_of(p, se->y[i])));
        else if (se->y[i] != PLOT_NOTHING)
            put_cross(f, x, fr->bottom, 4);
    }
}

static void draw_bar(FILE *f, const struct plot_panel *p, const struct frame *fr, double x,
                     double width, const struct plot_series *se, size_t g)
{
    double y = g < se->nr ? se->y[g] : NAN, top, base = fr->bottom, mid = x + width / 2;
    char text[32];

    if (y == PLOT_NOTHING)
        return;
    if (!present(p, y)) {
        put_cross(f, mid, base, fmin(width / 2, 4));
        return;
    }
    if (!p->log_y)
        base = py(fr, 0);
    top = py(fr, y_of(p, y));
    short_number(y, text, sizeof(text));
    fprintf(f,
            "<rect class=\"vp-edge\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "fill=\"%s\"><title>",
            x, fmin(top, base), width, fabs(base - top), se->colour);
    page_text(f, se->name);
    fputs(", ", f);
    page_text(f, p->groups[g]);
    fprintf(f, ": %s</title></rect>\n", text);
    if (se->err && se->err[g] > 0) {
        double high = py(fr, y_of(p, y + se->err[g]));

        put_line(f, "vp-axis", mid, high, mid,
                 present(p, y - se->err[g]) ? py(fr, y_of(p, y - se->err[g])) : base);
        put_line(f, "vp-axis", mid - 3, high, mid + 3, high);
        top = fmin(top, high);
    }
    if (width >= BAR_TEXT)
        put_turned(f, mid + 3.5, fmin(top, base) - 4, 10, "start", text);
}

static void draw_bars(FILE *f, const struct plot_panel *p, const struct frame *fr)
{
    double slot = (fr->right - fr->left) / (double)p->nr_groups;
    double width = fmin(slot * GROUP_FILL / (double)p->nr_series, BAR_MAX);

    for (size_t g = 0; g < p->nr_groups; g++) {
        double mid = fr->left + slot * ((double)g + 0.5);
        double x = mid - width * (double)p->nr_series / 2;

        for (size_t s = 0; s < p->nr_series; s++)
            draw_bar(f, p, fr, x + width * (double)s, width * 0.92, &p->series[s], g);
        put_text(f, mid, fr->bottom + 18, 12, "middle", "", p->groups[g]);
    }
}

static void draw_panel(FILE *f, const struct plot_panel *p, double x, double y, double width)
{
    struct frame fr = {
        .left = x + INSET_L,
        .right = x + width - INSET_R,
        .top = y + INSET_T,
        .bottom = y + PANEL_H - INSET_B,
    };
    double mid = (fr.left + fr.right) / 2;

    set_range(p, &fr);
    if (p->title)
        put_text(f, mid, y + 16, 13, "middle", " font-weight=\"bold\"", p->title);
    else if (p->kind == PLOT_LINES)
        fr.top = y + INSET_BARE;
    put_text(f, mid, y + PANEL_H - 10, 12, "middle", "", p->x_label);
    if (fr.has_data) {
        y_axis(f, p, &fr);
        if (p->kind == PLOT_LINES)
            x_axis(f, p, &fr);
        for (size_t s = 0; p->kind == PLOT_LINES && s < p->nr_series; s++)
            draw_line(f, p, &fr, s);
        if (p->kind == PLOT_BARS)
            draw_bars(f, p, &fr);
    } else {
        put_text(f, mid, (fr.top + fr.bottom) / 2, 13, "middle", "", "nothing was measured");
    }
    put_line(f, "vp-axis", fr.left, fr.bottom, fr.right, fr.bottom);
    put_line(f, "vp-axis", fr.left, fr.top, fr.left, fr.bottom);
}

/* ---- the legend ---- */

static double entry_width(const struct plot_series *se)
{
    return 34 + CHAR_W * (double)strlen(se->name);
}

/* Draws the legend; with f NULL it only computes the height. */
static double legend(FILE *f, const struct plot_panel *p, double chart_width, double top)
{
    double x = MARGIN + 4, y = top;

    for (size_t s = 0; s < p->nr_series; s++) {
        const struct plot_series *se = &p->series[s];

        if (x > MARGIN + 4 && x + entry_width(se) > chart_width - MARGIN) {
            x = MARGIN + 4;
            y += LEGEND_ROW;
        }
        if (f && p->kind == PLOT_BARS) {
            fprintf(f,
                    "<rect class=\"vp-edge\" x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"12\" "
                    "fill=\"%s\"/>\n",
                    x + 6, y + 3, se->colour);
        } else if (f) {
            fprintf(f, "<path d=\"M%.1f %.1fh24", x, y + 9);
            put_stroke(f, se);
            if (marked(se))
                put_marker(f, s, se->colour, x + 12, y + 9);
        }
        if (f)
            put_text(f, x + 28, y + 13, 12, NULL, "", se->name);
        x += entry_width(se);
    }
    return y + LEGEND_ROW - top;
}

static bool is_sound(const struct plot *plot)
{
    const struct plot_panel *first = plot->panels;

    if (plot->nr_panels == 0 || first->nr_series == 0)
        return false;
    for (size_t i = 0; i < plot->nr_panels; i++) {
        const struct plot_panel *p = &plot->panels[i];

        if (p->kind != first->kind || p->nr_series != first->nr_series ||
            (p->kind == PLOT_BARS && p->nr_groups == 0))
            return false;
        for (size_t s = 0; s < p->nr_series; s++)
            if (strcmp(p->series[s].name, first->series[s].name) != 0)
                return false;
    }
    return true;
}

int plot_write(FILE *f, const struct plot *plot)
{
    double y = 44, chart = plot->width > 0 ? plot->width : WIDTH, width, height;

    if (!is_sound(plot))
        return -EINVAL;
    if (plot->note)
        y += 18;
    height = y + legend(NULL, plot->panels, chart, y) + 8 + PANEL_H + 4;
    width =
        (chart - 2 * MARGIN - PANEL_GAP * (double)(plot->nr_panels - 1)) / (double)plot->nr_panels;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\" role=\"img\">\n<title>",
            chart, height, chart, height);
    page_text(f, plot->title);
    fprintf(f, "</title>\n<style>%s</style>\n", style);
    fprintf(f, "<rect class=\"vp-bg\" width=\"%.0f\" height=\"%.0f\" rx=\"6\"/>\n", chart, height);
    put_text(f, MARGIN + 4, 28, 16, NULL, " font-weight=\"bold\"", plot->title);
    if (plot->note)
        put_text(f, MARGIN + 4, 48, 12, NULL, "", plot->note);
    y += legend(f, plot->panels, chart, y) + 8;
    for (size_t i = 0; i < plot->nr_panels; i++)
        draw_panel(f, &plot->panels[i], MARGIN + (width + PANEL_GAP) * (double)i, y, width);
    fputs("</svg>\n", f);
    return ferror(f) ? -EIO : 0;
}
