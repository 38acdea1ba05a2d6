/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A timeline as a picture: a lane for each thread of the application (what it computes, by phase,
 * and where it waits) and for each mover, and a band for each tier that shows how full it was.
 *
 * A lane with few spans shows each as a rectangle of its own, with a text that viewers show under
 * the pointer. One with many would hide short waits or exaggerate them, and make a file of megabytes:
 * there each column of one pixel is divided among the kinds in proportion to their time, so that areas
 * are true at any density. Columns that are full of one kind are joined.
 *
 * Colours come from a style sheet with a dark variant. Text cannot be measured here; its width is
 * estimated from the number of characters.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/common/palette.h"
#include "cli/common/text.h"
#include "cli/report/trace_export.h"

enum {
    WIDTH = 1200,
    LEFT = 190, /* of the plots */
    RIGHT = 16,
    COLUMNS = WIDTH - LEFT - RIGHT,
    APP_H = 30,
    PHASE_H = 13,
    MOVER_H = 24,
    TIER_H = 40,
    GAP = 8,
    LEGEND_H = 22,
    HEAD_H = 52,
    AXIS_H = 40,
    RECTS_MAX = 600, /* a lane with more spans is drawn in columns */
    PHASE_ROWS_MAX = 4,
    PHASES_MAX = 400,   /* a lane with more shows them by colour only */
    COMPUTE_COLOURS = 6 /* further phases share the last */
};

/* Things with a colour. */
enum look {
    LOOK_COMPUTE, /* and the next ones: by phase */
    LOOK_OUTSIDE = LOOK_COMPUTE + COMPUTE_COLOURS,
    LOOK_WRITE,
    LOOK_READ,
    LOOK_OTHER,
    LOOK_DOWN,
    LOOK_UP,
    LOOK_COMMIT,
    LOOK_FAILED,
    LOOKS
};

static const char *const look_names[LOOKS] = {[LOOK_OUTSIDE] = "outside of phases",
                                              [LOOK_WRITE] = "blocked write",
                                              [LOOK_READ] = "blocked read",
                                              [LOOK_OTHER] = "blocked, other",
                                              [LOOK_DOWN] = "moving down (flush)",
                                              [LOOK_UP] = "moving up (prefetch, restore)",
                                              [LOOK_COMMIT] = "commit",
                                              [LOOK_FAILED] = "failed"};

static const char style[] =
    ".bg{fill:" COLOUR_PAPER "}.t{fill:" COLOUR_TEXT ";font-family:sans-serif;font-size:12px}"
    ".s{font-size:11px;fill:" COLOUR_MUTED "}.b{fill:" COLOUR_CARD "}.g{stroke:" COLOUR_LINE "}"
    ".a{stroke:" COLOUR_MUTED "}"
    ".p{fill:" COLOUR_FAINT ";stroke:" COLOUR_PHASE ";stroke-width:.5}.o{fill:" COLOUR_HELD "}"
    "@media (prefers-color-scheme:dark){.bg{fill:" COLOUR_PAPER_DARK "}.t{fill:" COLOUR_TEXT_DARK
    "}.s{fill:" COLOUR_MUTED_DARK "}.b{fill:" COLOUR_CARD_DARK "}.g{stroke:" COLOUR_LINE_DARK "}"
    ".a{stroke:" COLOUR_MUTED_DARK "}.p{fill:" COLOUR_FAINT_DARK "}}";

static const char *const look_colours[LOOKS] = {[LOOK_COMPUTE] = COLOUR_COMPUTE,
                                                COLOUR_COMPUTE_2,
                                                COLOUR_COMPUTE_3,
                                                COLOUR_COMPUTE_4,
                                                COLOUR_COMPUTE_5,
                                                COLOUR_COMPUTE_6,
                                                [LOOK_OUTSIDE] = COLOUR_PHASE,
                                                [LOOK_WRITE] = COLOUR_WRITE,
                                                [LOOK_READ] = COLOUR_READ,
                                                [LOOK_OTHER] = COLOUR_WAIT,
                                                [LOOK_DOWN] = COLOUR_DOWN,
                                                [LOOK_UP] = COLOUR_UP,
                                                [LOOK_COMMIT] = COLOUR_OTHER,
                                                [LOOK_FAILED] = COLOUR_FAILED};

struct picture {
    FILE *f;
    const struct vv_timeline *t;
    uint64_t from_ns, to_ns;
    const char *phase[COMPUTE_COLOURS]; /* the phase of each colour; NULL: free */
    bool used[LOOKS];
    double y;
};

/* ---- small things ---- */

static double x_of(const struct picture *p, uint64_t ns)
{
    uint64_t length = p->to_ns - p->from_ns;

    ns = VV_MIN(VV_MAX(ns, p->from_ns), p->to_ns);
    return LEFT + (length ? (double)(ns - p->from_ns) / (double)length * COLUMNS : 0);
}

static bool in_view(const struct picture *p, const struct vv_span *s)
{
    return s->end_ns >= p->from_ns && s->start_ns <= p->to_ns;
}

static void put_text(const struct picture *p, const char *class, const char *anchor, double x,
                     double y, const char *s)
{
    fprintf(p->f, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", class, x, y,
            anchor);
    text_xml(p->f, s);
    fputs("</text>\n", p->f);
}

static void put_label(const struct picture *p, double y, const char *s)
{
    char cut[32];

    /* Never cuts inside a character. */
    if (strlen(s) >= sizeof(cut)) {
        size_t n = sizeof(cut) - 4;
        while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
            n--;
        memcpy(cut, s, n);
        memcpy(cut + n, "...", 4);
        s = cut;
    }
    put_text(p, "t", "end", LEFT - 8, y, s);
}

static void put_rect(const struct picture *p, const char *class, double x, double y, double w,
                     double h)
{
    fprintf(p->f, "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n",
            class, x, y, w, h);
}

static char *seconds(uint64_t ns, char *buf, size_t size)
{
    if (ns >= 1000000000)
        snprintf(buf, size, "%.3f s", (double)ns * 1e-9);
    else if (ns >= 1000000)
        snprintf(buf, size, "%.3f ms", (double)ns * 1e-6);
    else
        snprintf(buf, size, "%.3f us", (double)ns * 1e-3);
    return buf;
}

/* ---- colours ---- */

/* The two phases that every adjoint code has always look the same. */
static enum look phase_look(struct picture *p, const char *name)
{
    unsigned i = strcmp(name, "forward") == 0 ? 0 : strcmp(name, "backward") == 0 ? 1 : 2;

    if (!name[0])
        return LOOK_OUTSIDE;
    while (i < COMPUTE_COLOURS - 1 && p->phase[i] && strcmp(p->phase[i], name) != 0)
        i++;
    if (!p->phase[i])
        p->phase[i] = name;
    else if (strcmp(p->phase[i], name) != 0)
        p->phase[i] = "other phases";
    return (enum look)(LOOK_COMPUTE + i);
}

static enum look look_of(struct picture *p, const struct vv_span *s)
{
    enum look look;

    switch ((enum vv_span_kind)s->kind) {
    case VV_SPAN_COMPUTE:
    case VV_SPAN_PHASE:
        look = phase_look(p, s->name);
        break;
    case VV_SPAN_WRITE:
        look = LOOK_WRITE;
        break;
    case VV_SPAN_READ:
        look = LOOK_READ;
        break;
    case VV_SPAN_COPY:
        look = s->status < 0 ? LOOK_FAILED : s->up ? LOOK_UP : LOOK_DOWN;
        break;
    case VV_SPAN_COMMIT:
        look = s->status < 0 ? LOOK_FAILED : LOOK_COMMIT;
        break;
    default:
        look = LOOK_OTHER;
        break;
    }
    p->used[look] = true;
    return look;
}

/* The colours of the legend, which comes first. Gaps between two phases that are too short to be seen are left
 * out. */
static void find_looks(struct picture *p)
{
    uint64_t outside_ns = 0;

    for (size_t i = 0; i < p->t->nlanes; i++) {
        for (size_t k = 0; k < p->t->lanes[i].nspans; k++) {
            const struct vv_span *s = &p->t->lanes[i].spans[k];
            if (s->kind == VV_SPAN_COMPUTE)
                (void)phase_look(p, s->name); /* the same colour in every part of a trace */
            if (!in_view(p, s) || s->kind == VV_SPAN_PHASE)
                continue;
            if (look_of(p, s) == LOOK_OUTSIDE)
                outside_ns += s->end_ns - s->start_ns;
        }
    }
    p->used[LOOK_OUTSIDE] = outside_ns > (p->to_ns - p->from_ns) / COLUMNS;
}

/* ---- lanes ---- */

static void put_span(struct picture *p, const struct vv_span *s, double y, double h)
{
    double x = x_of(p, s->start_ns), w = x_of(p, s->end_ns) - x;
    char time[32], bytes[VV_BYTES_TEXT];

    fprintf(p->f,
            "<rect class=\"k%d\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
            (int)look_of(p, s), x, y, w < 0.25 ? 0.25 : w, h);
    text_xml(p->f, s->name[0] ? s->name : "outside of phases");
    if (s->history) {
        fputs(" of ", p->f);
        text_xml(p->f, vv_timeline_history(p->t, s->history, s->start_ns));
        fprintf(p->f, " %" PRIu64, s->version);
        if (s->bytes)
            fprintf(p->f, ", %s", vv_bytes_human(s->bytes, bytes, sizeof(bytes)));
    }
    fprintf(p->f, ", %s", seconds(s->end_ns - s->start_ns, time, sizeof(time)));
    if (s->status)
        fprintf(p->f, ", error %d", -s->status);
    fputs(s->cut ? ", cut</title></rect>\n" : "</title></rect>\n", p->f);
}

/* Time of each look in each column. */
struct columns {
    double share[COLUMNS][LOOKS]; /* of the column's time */
};

static void columns_add(const struct picture *p, struct columns *c, uint64_t from_ns,
                        uint64_t to_ns, enum look look)
{
    double from = x_of(p, from_ns) - LEFT, to = x_of(p, to_ns) - LEFT;

    for (int i = (int)from; i < COLUMNS && i < to; i++) {
        double a = from > i ? from : i, b = to < i + 1 ? to : i + 1;

        if (b > a)
            c->share[i][look] += b - a;
    }
}

/* One path for each look: in each column they stand on one another. */
static void columns_put(const struct picture *p, const struct columns *c, double y, double h)
{
    for (int look = 0; look < LOOKS; look++) {
        bool any = false;

        for (int i = 0, next; i < COLUMNS; i = next) {
            double below = 0, share = c->share[i][look];
            next = i + 1;
            if (share <= 0)
                continue;
            for (int k = 0; k < look; k++)
                below += c->share[i][k];
            while (next < COLUMNS && share > 0.999 && c->share[next][look] > 0.999)
                next++;
            if (!any)
                fprintf(p->f, "<path class=\"k%d\" d=\"", look);
            any = true;
            fprintf(p->f, "M%d %.2fh%dv%.2fh-%dz", LEFT + i, y + h * (1 - below - share), next - i,
                    h * share, next - i);
        }
        if (any)
            fputs("\"/>\n", p->f);
    }
}

/* The spans of a lane in a band: `rows` of them stacked, or row 0 only. */
static int put_band(struct picture *p, const struct vv_lane *l, unsigned rows, double h)
{
    size_t n = 0;

    put_rect(p, "b", LEFT, p->y, COLUMNS, h);
    for (size_t i = 0; i < l->nspans; i++)
        n += l->spans[i].row < rows && in_view(p, &l->spans[i]);
    if (n <= RECTS_MAX) {
        for (size_t i = 0; i < l->nspans; i++) {
            const struct vv_span *s = &l->spans[i];
            if (s->row < rows && in_view(p, s))
                put_span(p, s, p->y + h * s->row / rows, h / rows);
        }
        return 0;
    }
    struct columns *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    /* Overlapping spans count once: the column shows for how long any of them lasted. */
    uint64_t covered_ns = 0;
    for (size_t i = 0; i < l->nspans; i++) {
        const struct vv_span *s = &l->spans[i];
        uint64_t from_ns = VV_MAX(s->start_ns, covered_ns);
        if (s->row >= rows || !in_view(p, s) || s->end_ns <= from_ns)
            continue;
        columns_add(p, c, from_ns, s->end_ns, look_of(p, s));
        covered_ns = s->end_ns;
    }
    columns_put(p, c, p->y, h);
    free(c);
    return 0;
}

/* Phases above the band of their thread, the outer ones on top. Returns how many rows there are. */
static unsigned put_phases(struct picture *p, const struct vv_lane *l, bool measure)
{
    unsigned rows = VV_MIN(l->rows - 1, (unsigned)PHASE_ROWS_MAX);
    size_t n = 0;

    for (size_t i = 0; i < l->nspans; i++)
        n += l->spans[i].kind == VV_SPAN_PHASE && in_view(p, &l->spans[i]);
    if (n > PHASES_MAX || n == 0)
        return 0;
    for (size_t i = 0; i < l->nspans && !measure; i++) {
        const struct vv_span *s = &l->spans[i];
        if (s->kind != VV_SPAN_PHASE || s->row > rows || !in_view(p, s))
            continue;
        double x = x_of(p, s->start_ns), w = x_of(p, s->end_ns) - x;
        double y = p->y + (double)(s->row - 1) * PHASE_H;
        put_rect(p, "p", x, y, w < 0.25 ? 0.25 : w, PHASE_H - 1);
        if (w > 7.5 * (double)strlen(s->name) + 6)
            put_text(p, "t s", "start", x + 4, y + PHASE_H - 3, s->name);
    }
    return rows;
}

static double lane_height(struct picture *p, const struct vv_lane *l)
{
    return l->kind == VV_LANE_APP ? APP_H + PHASE_H * put_phases(p, l, true) : MOVER_H;
}

static int put_lane(struct picture *p, const struct vv_lane *l)
{
    bool app = l->kind == VV_LANE_APP;
    double h = app ? APP_H : MOVER_H;
    int rc;

    if (app)
        p->y += PHASE_H * put_phases(p, l, false);
    put_label(p, p->y + h / 2 + 4, l->label);
    rc = put_band(p, l, app ? 1 : VV_MAX(l->rows, 1u), h);
    p->y += h + GAP;
    return rc;
}

/* ---- tiers ---- */

static void put_tier(struct picture *p, const struct vv_occupancy *o)
{
    /* The scale of a disk that is used little is that of the used bytes. */
    bool little = o->capacity_bytes / 8 >= o->peak_bytes;
    uint64_t all = little ? o->peak_bytes : VV_MAX(o->capacity_bytes, o->peak_bytes);
    double before = 0, now = 0;
    char size[VV_BYTES_TEXT], text[96];
    size_t k = 0;

    put_rect(p, "b", LEFT, p->y, COLUMNS, TIER_H);
    put_label(p, p->y + TIER_H / 2.0, o->label);
    snprintf(text, sizeof(text), "%s %s", little ? "at most" : "of",
             vv_bytes_human(all, size, sizeof(size)));
    put_text(p, "t s", "end", LEFT - 8, p->y + TIER_H / 2.0 + 14, text);
    fprintf(p->f, "<path class=\"o\" d=\"M%d %.1f", LEFT, p->y + TIER_H);
    for (int i = 0; i < COLUMNS; i++) {
        double highest = now;
        while (k < o->npoints && x_of(p, o->points[k].time_ns) < LEFT + i + 1) {
            now = all ? (double)o->points[k].bytes / (double)all : 0;
            highest = VV_MAX(highest, now);
            k++;
        }
        if (highest != before)
            fprintf(p->f, "H%dV%.1f", LEFT + i, p->y + TIER_H * (1 - highest));
        before = highest;
    }
    fprintf(p->f, "H%dV%.1fz\"/>\n", LEFT + COLUMNS, p->y + TIER_H);
    p->y += TIER_H + GAP;
}

/* ---- around it ---- */

static void put_head(const struct picture *p)
{
    const struct vv_timeline_totals *sum = &p->t->totals;
    const char *command = vv_trace_file_meta(p->t->file, 0, "command");
    char a[32], b[32], c[32], line[256];

    snprintf(line, sizeof(line), "%.120s", command ? command : "trace");
    fputs("<text class=\"t\" font-weight=\"bold\" x=\"12\" y=\"20\">", p->f);
    text_xml(p->f, line);
    fputs("</text>\n", p->f);
    snprintf(line, sizeof(line),
             "%s; %" PRIu64 " checkpoints blocked %s, %" PRIu64 " restores blocked %s",
             seconds(p->t->length_ns, a, sizeof(a)), sum->checkpoints,
             seconds(sum->write_ns, b, sizeof(b)), sum->restores,
             seconds(sum->read_ns, c, sizeof(c)));
    put_text(p, "t s", "start", 12, 38, line);
    if (p->t->file->lost > 0) {
        snprintf(line, sizeof(line), "%" PRIu64 " records were lost", p->t->file->lost);
        put_text(p, "t s", "end", WIDTH - RIGHT, 38, line);
    }
}

/* Returns the number of rows; draws unless it is only measured. */
static unsigned put_legend(const struct picture *p, bool measure)
{
    double x = 12;
    unsigned rows = 1;

    for (int look = 0; look < LOOKS; look++) {
        const char *name = look < LOOK_OUTSIDE ? p->phase[look] : look_names[look];
        double w;

        if (!p->used[look] || !name)
            continue;
        w = 30 + 7.0 * (double)VV_MIN(strlen(name), (size_t)60);
        if (x + w > WIDTH - RIGHT && x > 12) {
            x = 12;
            rows++;
        }
        if (!measure) {
            double y = HEAD_H + LEGEND_H * (double)(rows - 1);
            char class[8];
            snprintf(class, sizeof(class), "k%d", look);
            put_rect(p, class, x, y, 12, 12);
            put_text(p, "t", "start", x + 18, y + 10.5, name);
        }
        x += w;
    }
    return rows;
}

/* Ticks at 1, 2 or 5 times a power of ten, a dozen at most. */
static void put_axis(const struct picture *p, double top, double bottom)
{
    uint64_t length = p->to_ns - p->from_ns, step = 1;
    unsigned digits = 9;
    char text[48];

    for (unsigned i = 0; length / step > 12 && step < UINT64_MAX / 10; i++)
        step = i % 3 == 0 ? step * 2 : i % 3 == 1 ? step / 2 * 5 : step * 2;
    for (uint64_t s = step; digits > 0 && s % 10 == 0; s /= 10)
        digits--;
    for (uint64_t ns = vv_div_up(p->from_ns, step) * step; ns <= p->to_ns && length > 0;
         ns += step) {
        double x = x_of(p, ns);
        fprintf(p->f,
                "<line class=\"g\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                "stroke-opacity=\".6\"/>\n",
                x, top, x, bottom + 4);
        snprintf(text, sizeof(text), "%.*f", (int)digits, (double)ns * 1e-9);
        put_text(p, "t s", "middle", x, bottom + 16, text);
        if (ns > UINT64_MAX - step)
            break;
    }
    put_text(p, "t", "middle", LEFT + COLUMNS / 2.0, bottom + 33, "seconds");
}

static double height_of(struct picture *p, unsigned legend_rows)
{
    double h = HEAD_H + LEGEND_H * legend_rows + GAP + AXIS_H;

    for (size_t i = 0; i < p->t->nlanes; i++)
        h += lane_height(p, &p->t->lanes[i]) + GAP;
    return h + (double)p->t->noccupancy * (TIER_H + GAP) + (p->t->nlanes ? 0 : 60);
}

int trace_export_svg(FILE *f, const struct vv_timeline *t, uint64_t from_ns, uint64_t to_ns)
{
    struct picture p = {.f = f, .t = t, .from_ns = from_ns, .to_ns = to_ns ? to_ns : t->length_ns};
    int rc = 0;

    p.to_ns = VV_MIN(p.to_ns, t->length_ns);
    p.from_ns = VV_MIN(p.from_ns, p.to_ns);
    find_looks(&p);
    unsigned legend_rows = put_legend(&p, true);
    double height = height_of(&p, legend_rows), top = HEAD_H + LEGEND_H * legend_rows + GAP;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" "
            "role=\"img\">\n<title>Timeline</title>\n<style>%s",
            WIDTH, height, WIDTH, style);
    for (int look = 0; look < LOOKS; look++)
        fprintf(f, ".k%d{fill:%s}", look, look_colours[look]);
    fputs("</style>\n", f);
    fprintf(f, "<rect class=\"bg\" width=\"%d\" height=\"%.0f\"/>\n", WIDTH, height);
    put_head(&p);
    (void)put_legend(&p, false);
    p.y = top;
    for (size_t i = 0; i < t->nlanes && rc == 0; i++)
        rc = put_lane(&p, &t->lanes[i]);
    for (size_t i = 0; i < t->noccupancy; i++)
        put_tier(&p, &t->occupancy[i]);
    if (t->nlanes == 0)
        put_text(&p, "t", "middle", WIDTH / 2.0, (p.y += 30), "nothing was recorded");
    put_axis(&p, top, p.y - GAP);
    fputs("</svg>\n", f);
    if (rc == 0 && (fflush(f) || ferror(f)))
        rc = -EIO;
    return rc;
}
