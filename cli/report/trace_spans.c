/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane may hold a million spans, and several at the same time. For the page it becomes a few rows
 * without overlaps, and spans that are too short to be seen are combined: short spans of one
 * kind that begin within the same slice of time become one, which remembers how many there were and
 * for how long they were busy. The slice is doubled until all rows together hold few enough spans.
 * Longer spans are kept as they are, so the number falls with every doubling, at last to one span
 * for each kind in each row; a limit below that is not reached.
 *
 * Drawing never asks how long a span is in pixels. It adds up, for each column, the share of the
 * time that each kind was busy, and stacks these shares: from afar a row shows how busy it was, from
 * near the spans themselves. cli/report/trace_page.js does the same on the screen.
 *
 * Pure computation but for the output; no thread.
 */
#include "cli/report/trace_spans.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/page.h"

#define COLUMNS    720
#define ROW_HEIGHT 48  /* units of the drawing, and so the steps of a share */
#define VISIBLE    5.0 /* units */

/* ---- rows ---- */

/* A row that is free at `start`; if there is none, the row that becomes free first. */
static unsigned find_row(const uint64_t *end_ns, unsigned nr, uint64_t start)
{
    unsigned first = 0;

    for (unsigned r = 0; r < nr; r++) {
        if (end_ns[r] <= start)
            return r;
        if (end_ns[r] < end_ns[first])
            first = r;
    }
    return nr < TRACK_ROWS ? nr : first;
}

/* Splits a lane; the rows are appended to `t`, whose array is long enough. */
static int split_lane(const struct lane *lane, size_t index, struct tracks *t)
{
    uint64_t end_ns[TRACK_ROWS] = {0};
    size_t count[TRACK_ROWS] = {0};
    unsigned char *row_of = malloc(lane->nr + 1);
    unsigned nr = 0;

    if (!row_of)
        return -ENOMEM;
    for (size_t i = 0; i < lane->nr; i++) {
        unsigned r = find_row(end_ns, nr, lane->spans[i].start_ns);
        uint64_t end = lane->spans[i].start_ns + lane->spans[i].ns;

        if (r == nr)
            nr++;
        if (end > end_ns[r])
            end_ns[r] = end;
        row_of[i] = (unsigned char)r;
        count[r]++;
    }
    for (unsigned r = 0; r < nr || r == 0; r++) {
        struct track *track = &t->tracks[t->nr++];

        *track = (struct track){.lane = index, .row = r, .nr_rows = nr ? nr : 1};
        track->spans = calloc(count[r] + 1, sizeof(*track->spans));
        if (!track->spans) {
            free(row_of);
            return -ENOMEM;
        }
        for (size_t i = 0; i < lane->nr; i++)
            if (row_of[i] == r)
                track->spans[track->nr++] = lane->spans[i];
    }
    free(row_of);
    return 0;
}

/* ---- fewer spans ---- */

static void add_span(struct span *to, const struct span *s)
{
    uint64_t end = s->start_ns + s->ns;

    if (end > to->start_ns + to->ns)
        to->ns = end - to->start_ns;
    to->busy_ns += s->busy_ns;
    if (to->busy_ns > to->ns)
        to->busy_ns = to->ns;
    to->bytes += s->bytes;
    to->count += s->count;
    to->failed |= s->failed;
    if (to->label != s->label)
        to->label = 0;
    to->version = SPAN_NO_VERSION;
}

/* In place: a combined span has the place of its first one, so the order by start is kept. */
static void merge_short(struct track *t, uint64_t slice_ns)
{
    size_t open[SPAN_KIND_NR], out = 0;

    for (int k = 0; k < SPAN_KIND_NR; k++)
        open[k] = SIZE_MAX;
    for (size_t i = 0; i < t->nr; i++) {
        struct span s = t->spans[i];
        size_t *at = &open[s.kind];

        if (s.ns >= slice_ns) {
            *at = SIZE_MAX;
        } else if (*at != SIZE_MAX && t->spans[*at].start_ns / slice_ns == s.start_ns / slice_ns) {
            add_span(&t->spans[*at], &s);
            continue;
        } else {
            *at = out;
        }
        t->spans[out++] = s;
    }
    t->nr = out;
}

static void count_spans(struct tracks *t)
{
    t->nr_spans = 0;
    for (size_t i = 0; i < t->nr; i++)
        t->nr_spans += t->tracks[i].nr;
}

int tracks_make(const struct lane *lanes, size_t nr_lanes, double wall_s, size_t most,
                struct tracks *ret_tracks)
{
    struct tracks t = {.wall_ns = wall_s * 1e9};
    int rc = 0;

    t.tracks = calloc(nr_lanes * TRACK_ROWS + 1, sizeof(*t.tracks));
    if (!t.tracks)
        return -ENOMEM;
    for (size_t i = 0; i < nr_lanes && rc == 0; i++) {
        t.nr_before += lanes[i].nr;
        rc = split_lane(&lanes[i], i, &t);
    }
    if (rc < 0) {
        tracks_fini(&t);
        return rc;
    }
    count_spans(&t);
    /* The slice runs out of bits if a trace claims a length of centuries. */
    for (uint64_t slice = 1024; slice && t.nr_spans > most && (double)slice < 2 * t.wall_ns;
         slice *= 2) {
        for (size_t i = 0; i < t.nr; i++)
            merge_short(&t.tracks[i], slice);
        t.merged_ns = slice;
        count_spans(&t);
    }
    *ret_tracks = t;
    return 0;
}

void tracks_fini(struct tracks *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->nr; i++)
        free(t->tracks[i].spans);
    free(t->tracks);
    *t = (struct tracks){0};
}

/* ---- the still picture ---- */

/* Adds a span's share to the columns that it touches. */
static void cover(const struct span *s, double wall_ns, double *share)
{
    double scale = COLUMNS / wall_ns, from = (double)s->start_ns * scale;
    double to = from + (double)s->ns * scale;
    double density = s->ns > 0 ? (double)s->busy_ns / (double)s->ns : 0;

    for (int c = (int)fmax(from, 0); c < COLUMNS && c < to; c++)
        share[c] += density * (fmin(to, c + 1) - fmax(from, c));
}

/* Columns of equal height in one stroke. */
static void draw_kind(FILE *f, int kind, const int *base, const int *top, int y0, int row_height)
{
    bool any = false;

    for (int c = 0, n; c < COLUMNS; c += n) {
        for (n = 1; c + n < COLUMNS && base[c + n] == base[c] && top[c + n] == top[c];)
            n++;
        if (top[c] == base[c])
            continue;
        if (!any)
            fprintf(f, "<path fill=\"%s\" d=\"", span_kind_colour((enum span_kind)kind));
        any = true;
        fprintf(f, "M%d %dh%dv%dh-%dz", c, y0 + row_height - top[c], n, top[c] - base[c], n);
    }
    if (any)
        fputs("\"/>", f);
}

static void draw_track(FILE *f, const struct track *t, double wall_ns, double *share)
{
    int row_height = ROW_HEIGHT / (int)t->nr_rows, y0 = (int)t->row * row_height;
    int base[COLUMNS] = {0}, top[COLUMNS];
    double sum[COLUMNS] = {0}, least = fmin(VISIBLE / row_height, 1);

    memset(share, 0, sizeof(*share) * COLUMNS * SPAN_KIND_NR);
    for (size_t i = 0; i < t->nr; i++)
        cover(&t->spans[i], wall_ns, share + COLUMNS * t->spans[i].kind);
    /* Computing, the first kind, comes on top, so that it covers nothing. */
    for (int k = SPAN_KIND_NR; k-- > 0;) {
        for (int c = 0; c < COLUMNS; c++) {
            double more = share[COLUMNS * k + c];

            /* A span is visible even if it was very short. */
            if (more > 0)
                sum[c] = fmin(sum[c] + fmax(more, least), 1);
            top[c] = (int)lround(sum[c] * row_height);
        }
        draw_kind(f, k, base, top, y0, row_height);
        memcpy(base, top, sizeof(base));
    }
}

int tracks_draw(FILE *f, const struct tracks *t, size_t lane)
{
    double *share = calloc((size_t)COLUMNS * SPAN_KIND_NR, sizeof(*share));

    if (!share)
        return -ENOMEM;
    fprintf(f,
            "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
            "shape-rendering=\"crispEdges\" aria-hidden=\"true\">",
            COLUMNS, ROW_HEIGHT);
    for (size_t i = 0; i < t->nr && t->wall_ns > 0; i++)
        if (t->tracks[i].lane == lane)
            draw_track(f, &t->tracks[i], t->wall_ns, share);
    fputs("</svg>", f);
    free(share);
    return 0;
}

/* ---- the data ---- */

struct bytes {
    unsigned char *at;
    size_t nr, cap;
};

/* Room for `more` bytes. */
static int reserve(struct bytes *b, size_t more)
{
    size_t cap = b->cap ? b->cap : 1 << 16;
    unsigned char *at;

    while (cap < b->nr + more)
        cap *= 2;
    if (cap == b->cap)
        return 0;
    at = realloc(b->at, cap);
    if (!at)
        return -ENOMEM;
    b->at = at;
    b->cap = cap;
    return 0;
}

/* Seven bits a byte, the lowest first, the top bit set on all but the last. */
static void put_varint(struct bytes *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        b->at[b->nr++] = (unsigned char)(v | 0x80);
    b->at[b->nr++] = (unsigned char)v;
}

enum { FLAG_FAILED = 1 << 4, FLAG_MERGED = 1 << 5, FLAG_VERSION = 1 << 6 };

_Static_assert((int)SPAN_KIND_NR <= (int)FLAG_FAILED, "a kind is the lower bits of the flags");

static int pack_track(struct bytes *b, const struct track *t)
{
    uint64_t start = 0, version = 0;

    if (reserve(b, 30) < 0)
        return -ENOMEM;
    put_varint(b, t->lane);
    put_varint(b, t->nr_rows);
    put_varint(b, t->nr);
    for (size_t i = 0; i < t->nr; i++) {
        const struct span *s = &t->spans[i];
        bool merged = s->count > 1, has_version = s->version != SPAN_NO_VERSION;
        uint64_t step = s->version - version; /* up or down, as two's complement */

        if (reserve(b, 90) < 0)
            return -ENOMEM;
        put_varint(b, (uint64_t)s->kind | (s->failed ? FLAG_FAILED : 0) |
                          (merged ? FLAG_MERGED : 0) | (has_version ? FLAG_VERSION : 0));
        put_varint(b, s->start_ns - start);
        put_varint(b, s->ns);
        put_varint(b, s->label);
        put_varint(b, s->bytes);
        if (merged) {
            put_varint(b, s->count);
            put_varint(b, s->busy_ns);
        }
        if (has_version) {
            /* The sign in the lowest bit. */
            put_varint(b, step >> 63 ? ~(step << 1) : step << 1);
            version = s->version;
        }
        start = s->start_ns;
    }
    return 0;
}

int tracks_pack(FILE *f, const struct tracks *t)
{
    struct bytes b = {0};
    int rc = reserve(&b, 20);

    if (rc == 0)
        put_varint(&b, t->nr);
    for (size_t i = 0; i < t->nr && rc == 0; i++)
        rc = pack_track(&b, &t->tracks[i]);
    if (rc == 0)
        page_base64(f, b.at, b.nr);
    free(b.at);
    return rc;
}
