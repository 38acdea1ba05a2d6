/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines of traces made by hand: all times and results are known. */
#include "trace/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "t.h"
#include "trace/format.h"
#include "trace/write.h"

#define CTX  9u
#define HIST VV_TRACE_HISTORY(CTX, 3)
#define H2F  4u

static char path[1024];
static uint64_t zero_ns; /* time 0 of the records */

static void at(uint64_t ns, enum vv_trace_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
               uint64_t e)
{
    const uint64_t arg[VV_TRACE_ARGS] = {a, b, c, d, e};

    vv_trace_at(zero_ns + ns, kind, arg);
}

static void begin(void)
{
    char err[256] = "", key[16], value[16];
    static const char *const hops[] = {"d2d", "h2h", "d2h", "h2d", "h2f", "f2h"};

    snprintf(path, sizeof(path), "%s/t", t_tmpdir());
    T_OK(vv_trace_write_start(path, err, sizeof(err)));
    for (size_t i = 0; i < VV_ARRAY_SIZE(hops); i++) {
        snprintf(key, sizeof(key), "hop.%zu", i);
        T_OK(vv_trace_meta(CTX, key, hops[i]));
    }
    T_OK(vv_trace_meta(CTX, "tier.0", "host"));
    T_OK(vv_trace_meta(CTX, "tier.0.bytes", "4096"));
    snprintf(value, sizeof(value), "%d", 0);
    T_OK(vv_trace_meta(CTX, "tier.1", "files"));
    T_OK(vv_trace_meta(CTX, "tier.1.bytes", value));
    /* Announces the thread, at a time of its own: everything else comes after it. */
    vv_trace(VV_TRACE_NONE, 0, 0, 0, 0);
    zero_ns = vv_now_ns() + VV_NS_PER_S;
    at(0, VV_TRACE_HISTORY_OPEN, HIST, vv_trace_name("field"), 0, 0, 0);
}

struct reading {
    struct vv_trace_file *f;
    struct vv_timeline *t;
    uint64_t zero; /* of the records, in the timeline */
};

static struct reading end(void)
{
    struct reading r;
    char err[256] = "";

    T_OK(vv_trace_write_stop());
    T_OK(vv_trace_file_open(path, err, sizeof(err), &r.f));
    T_OK(vv_timeline_new(r.f, &r.t));
    r.zero = zero_ns - r.t->origin_ns;
    return r;
}

static void forget(struct reading r)
{
    vv_timeline_free(r.t);
    vv_timeline_free(NULL);
    vv_trace_file_free(r.f);
}

static void call(uint64_t from, uint64_t to, uint64_t what, uint64_t version, uint64_t bytes)
{
    at(from, VV_TRACE_CALL_START, what, HIST, version, 0, 0);
    if (what == VV_TRACE_CALL_RESTORE)
        at(to, VV_TRACE_DISTANCE, HIST, version, version + 10, 0, 0);
    at(to, VV_TRACE_CALL_END, what, HIST, version, bytes, 0);
}

static void expect(const struct reading *r, const struct vv_span *s, uint64_t from, uint64_t to,
                   enum vv_span_kind kind, const char *name)
{
    T_EQ(s->start_ns - r->zero, from);
    T_EQ(s->end_ns - r->zero, to);
    T_EQ(s->kind, kind);
    T_STREQ(s->name, name);
}

static void without_phases(void)
{
    begin();
    call(100, 150, VV_TRACE_CALL_CHECKPOINT, 1, 64);
    call(250, 260, VV_TRACE_CALL_CHECKPOINT, 2, 32);
    call(300, 340, VV_TRACE_CALL_WAIT, 2, 0);
    call(340, 400, VV_TRACE_CALL_RESTORE, 2, 32);
    call(500, 520, VV_TRACE_CALL_RESTORE, 1, 64);
    struct reading r = end();
    T_EQ(r.t->nlanes, 1);
    const struct vv_lane *l = &r.t->lanes[0];
    T_EQ(l->kind, VV_LANE_APP);
    T_EQ(l->thread, gettid());
    T_STREQ(l->label, "application");
    T_EQ(l->nspans, 8);
    T_EQ(l->rows, 1);
    expect(&r, &l->spans[0], 100, 150, VV_SPAN_WRITE, "checkpoint");
    expect(&r, &l->spans[1], 150, 250, VV_SPAN_COMPUTE, "forward");
    expect(&r, &l->spans[2], 250, 260, VV_SPAN_WRITE, "checkpoint");
    expect(&r, &l->spans[3], 260, 300, VV_SPAN_COMPUTE, "forward");
    expect(&r, &l->spans[4], 300, 340, VV_SPAN_OTHER, "wait");
    expect(&r, &l->spans[5], 340, 400, VV_SPAN_READ, "restore");
    expect(&r, &l->spans[6], 400, 500, VV_SPAN_COMPUTE, "backward");
    expect(&r, &l->spans[7], 500, 520, VV_SPAN_READ, "restore");
    T_EQ(l->kind_ns[VV_SPAN_COMPUTE], 240);
    T_EQ(r.t->totals.write_ns, 60);
    T_EQ(r.t->totals.read_ns, 80);
    T_EQ(r.t->totals.other_ns, 40);
    T_EQ(r.t->totals.checkpoint_bytes, 96);
    T_EQ(r.t->totals.restores, 2);
    T_EQ(r.t->niterations, 4);
    T_EQ(r.t->iterations[1].gap_ns, 100);
    T_EQ(r.t->iterations[0].gap_ns, 0);
    T_EQ(r.t->iterations[0].distance, VV_NO_DISTANCE);
    T_EQ(r.t->iterations[2].distance, 12);
    T_EQ(r.t->iterations[2].version, 2);
    T_EQ(r.t->iterations[3].bytes, 64);
    T_STREQ(vv_timeline_history(r.t, HIST, r.zero + 200), "field");
    T_STREQ(vv_timeline_history(r.t, HIST + 1, r.zero + 200), "?");
    T_CHECK(!r.t->phased);
    forget(r);
}

static void with_phases(void)
{
    uint64_t forward = vv_trace_name("forward"), inner = vv_trace_name("stencil");

    begin();
    at(5, VV_TRACE_PHASE_END, 0, 0, 0, 0, 0); /* of a phase without a beginning */
    at(10, VV_TRACE_PHASE_BEGIN, forward, 0, 0, 0, 0);
    at(20, VV_TRACE_PHASE_BEGIN, inner, 0, 0, 0, 0);
    at(50, VV_TRACE_PHASE_END, 0, 0, 0, 0, 0);
    call(60, 70, VV_TRACE_CALL_CHECKPOINT, 1, 64);
    at(80, VV_TRACE_PHASE_END, 0, 0, 0, 0, 0);
    call(100, 110, VV_TRACE_CALL_RESTORE, 1, 64);
    at(120, VV_TRACE_PHASE_BEGIN, forward, 0, 0, 0, 0);
    at(200, VV_TRACE_HINT, HIST, 1, 0, 0, 0);
    struct reading r = end();
    const struct vv_lane *l = &r.t->lanes[0];
    T_CHECK(r.t->phased);
    T_EQ(l->rows, 3);
    T_EQ(l->nspans, 12);
    static const struct {
        uint64_t from, to;
        enum vv_span_kind kind;
        const char *name;
        unsigned row;
    } want[] = {
        {10, 20, VV_SPAN_COMPUTE, "forward", 0},   {10, 80, VV_SPAN_PHASE, "forward", 1},
        {20, 50, VV_SPAN_COMPUTE, "stencil", 0},   {20, 50, VV_SPAN_PHASE, "stencil", 2},
        {50, 60, VV_SPAN_COMPUTE, "forward", 0},   {60, 70, VV_SPAN_WRITE, "checkpoint", 0},
        {70, 80, VV_SPAN_COMPUTE, "forward", 0},   {80, 100, VV_SPAN_COMPUTE, "", 0},
        {100, 110, VV_SPAN_READ, "restore", 0},    {110, 120, VV_SPAN_COMPUTE, "", 0},
        {120, 200, VV_SPAN_COMPUTE, "forward", 0}, {120, 200, VV_SPAN_PHASE, "forward", 1},
    };
    for (size_t i = 0; i < VV_ARRAY_SIZE(want); i++) {
        expect(&r, &l->spans[i], want[i].from, want[i].to, want[i].kind, want[i].name);
        T_EQ(l->spans[i].row, want[i].row);
    }
    T_CHECK(l->spans[11].cut && !l->spans[1].cut);
    T_EQ(l->kind_ns[VV_SPAN_PHASE], 150);
    forget(r);
}

static void copy(uint64_t from, uint64_t to, uint64_t route, uint64_t version, uint64_t chunk,
                 int status)
{
    at(from, VV_TRACE_COPY_START, route, HIST, version, chunk, 100);
    if (to)
        at(to, VV_TRACE_COPY_END, route, HIST, version, chunk, (uint64_t)status);
}

/* The time in which a commit was pending and nothing was copied: overlapping commits count once, and copies may begin
 * and end at any time of them. */
static void commits_alone(void)
{
    const uint64_t down = VV_TRACE_ROUTE(H2F, 0, 1);

    begin();
    copy(0, 10, down, 1, 0, 0);
    at(5, VV_TRACE_COMMIT_START, HIST, 1, 200, 0, 0);
    copy(12, 30, down, 2, 0, 0); /* 10 to 12 */
    copy(14, 20, down, 3, 0, 0);
    at(25, VV_TRACE_COMMIT_START, HIST, 2, 200, 0, 0);
    at(40, VV_TRACE_COMMIT_END, HIST, 1, 0, 0, 0);
    at(50, VV_TRACE_COMMIT_END, HIST, 2, 0, 0, 0); /* 30 to 50 */
    copy(60, 70, down, 3, 8, 0);
    at(80, VV_TRACE_COMMIT_START, HIST, 3, 200, 0, 0);
    at(85, VV_TRACE_COMMIT_END, HIST, 3, 0, 0, 0); /* 80 to 85 */
    struct reading r = end();
    T_EQ(r.t->lanes[0].kind_ns[VV_SPAN_COMMIT], 50);
    T_EQ(r.t->lanes[0].commit_alone_ns, 27);
    forget(r);
}

static void movers(void)
{
    const uint64_t down = VV_TRACE_ROUTE(H2F, 0, 1), up = VV_TRACE_ROUTE(5, 1, 0);
    const uint64_t app = VV_TRACE_ROUTE(1, -1, 0);

    begin();
    copy(10, 30, down, 1, 0, 0);
    copy(20, 40, down, 1, 8, 0);
    copy(25, 35, down, 1, 9, -EIO);
    copy(40, 50, down, 2, 0, 0);
    at(50, VV_TRACE_COMMIT_START, HIST, 1, 200, 0, 0);
    at(70, VV_TRACE_COMMIT_END, HIST, 1, 0, 0, 0);
    copy(60, 80, up, 1, 0, 0);
    copy(61, 79, up, 1, 0, 0); /* twice at once: two threads restore the same */
    copy(90, 0, up, 2, 0, 0);  /* its end is missing */
    at(91, VV_TRACE_COPY_END, up, HIST, 77, 0, 0);
    copy(5, 9, app, 1, 0, 0);
    at(100, VV_TRACE_HINT, HIST, 1, 0, 0, 0);
    struct reading r = end();
    T_EQ(r.t->nlanes, 3);
    const struct vv_lane *h2h = &r.t->lanes[0], *h2f = &r.t->lanes[1], *f2h = &r.t->lanes[2];
    T_STREQ(h2h->label, "h2h within host memory");
    T_STREQ(h2f->label, "h2f host to file");
    T_EQ(h2h->nspans, 1);
    T_EQ(h2h->spans[0].src_tier, -1);
    T_CHECK(!h2h->spans[0].up && !h2f->spans[0].up && f2h->spans[0].up);
    T_EQ(h2f->nspans, 5);
    T_EQ(h2f->rows, 3);
    T_EQ(h2f->bytes, 300);
    T_EQ(h2f->kind_ns[VV_SPAN_COPY], 40);
    T_EQ(h2f->kind_ns[VV_SPAN_COMMIT], 20);
    T_EQ(h2f->commit_alone_ns, 20);
    expect(&r, &h2f->spans[2], 25, 35, VV_SPAN_COPY, "h2f");
    T_EQ(h2f->spans[2].status, -EIO);
    T_EQ(h2f->spans[2].row, 2);
    T_EQ(h2f->spans[3].row, 0);
    T_EQ(f2h->nspans, 2);
    T_EQ(f2h->spans[0].row + f2h->spans[1].row, 1);
    T_EQ(f2h->kind_ns[VV_SPAN_COPY], 20);
    forget(r);
}

static void occupancy(void)
{
    begin();
    at(10, VV_TRACE_OCCUPANCY, CTX, 1, 7, 0, 0);
    at(20, VV_TRACE_OCCUPANCY, CTX, 0, 1000, 4096, 0);
    at(30, VV_TRACE_OCCUPANCY, CTX, 0, 3000, 4096, 0);
    at(40, VV_TRACE_OCCUPANCY, CTX, 0, 500, 4096, 0);
    struct reading r = end();
    T_EQ(r.t->noccupancy, 2);
    T_STREQ(r.t->occupancy[0].label, "host");
    T_STREQ(r.t->occupancy[1].label, "disk");
    T_EQ(r.t->occupancy[0].capacity_bytes, 4096);
    T_EQ(r.t->occupancy[0].peak_bytes, 3000);
    T_EQ(r.t->occupancy[0].npoints, 3);
    T_EQ(r.t->occupancy[0].points[1].bytes, 3000);
    T_EQ(r.t->occupancy[0].points[1].time_ns - r.zero, 30);
    T_STREQ(vv_timeline_tier(r.t, CTX, -1), "application");
    T_STREQ(vv_timeline_tier(r.t, CTX, 5), "?");
    forget(r);
}

/* Starts and ends that are missing. */
static void torn_calls(void)
{
    begin();
    at(10, VV_TRACE_CALL_END, VV_TRACE_CALL_RESTORE, HIST, 5, 64, 0);
    at(20, VV_TRACE_CALL_START, VV_TRACE_CALL_CHECKPOINT, HIST, 6, 0, 0);
    at(30, VV_TRACE_CALL_START, VV_TRACE_CALL_CHECKPOINT, HIST, 7, 0, 0);
    at(35, VV_TRACE_CALL_END, VV_TRACE_CALL_CHECKPOINT, HIST, 7, 64, 0);
    at(40, VV_TRACE_CALL_START, 12345, HIST, 8, 0, 0);
    at(50, VV_TRACE_HINT, HIST, 1, 0, 0, 0);
    struct reading r = end();
    const struct vv_lane *l = &r.t->lanes[0];
    T_EQ(l->nspans, 6);
    T_EQ(l->spans[0].start_ns, 0);
    T_CHECK(l->spans[0].cut && l->spans[0].kind == VV_SPAN_READ);
    expect(&r, &l->spans[2], 20, 30, VV_SPAN_WRITE, "checkpoint");
    T_CHECK(l->spans[2].cut);
    expect(&r, &l->spans[3], 30, 35, VV_SPAN_WRITE, "checkpoint");
    T_CHECK(!l->spans[3].cut);
    expect(&r, &l->spans[5], 40, 50, VV_SPAN_OTHER, "?");
    T_EQ(r.t->niterations, 2);
    forget(r);
}

/* Properties of every timeline, with any records: spans lie within it, those of a row do not overlap,
 * and all texts can be read. */
static void check_shape(const struct vv_timeline *t)
{
    size_t sum = 0;

    for (size_t i = 0; i < t->nlanes; i++) {
        const struct vv_lane *l = &t->lanes[i];
        uint64_t *row_end = calloc(l->rows + 1, sizeof(*row_end));
        T_CHECK(row_end && l->nspans > 0);
        sum += strlen(l->label);
        for (size_t k = 0; k < l->nspans; k++) {
            const struct vv_span *s = &l->spans[k];
            T_CHECK(s->start_ns <= s->end_ns && s->end_ns <= t->length_ns);
            T_CHECK(k == 0 || l->spans[k - 1].start_ns <= s->start_ns);
            T_CHECK(s->row < l->rows);
            if (s->row < 63)
                T_CHECK(row_end[s->row] <= s->start_ns);
            row_end[s->row] = s->end_ns;
            sum += strlen(s->name) + strlen(vv_timeline_history(t, s->history, s->start_ns));
        }
        free(row_end);
    }
    for (size_t i = 0; i < t->noccupancy; i++)
        sum += strlen(t->occupancy[i].label) + t->occupancy[i].npoints;
    for (size_t i = 0; i < t->nhistories; i++)
        sum += strlen(t->histories[i].name);
    T_CHECK(sum != 1);
}

/* Records without sense or order, as a file by hand might have them. */
static void any_records(void)
{
    struct t_rng rng = {t_seed()};
    enum { RECORDS = 200 };

    for (uint64_t n = t_cases(400, 20000); n-- > 0;) {
        struct vv_trace_record records[RECORDS];
        struct vv_trace_file *f;
        struct vv_timeline *t;
        struct vv_trace_head head = {.magic = VV_TRACE_MAGIC, .format = VV_TRACE_FORMAT};
        char err[256];
        uint64_t time_ns = t_rng_u64(&rng) >> t_rng_below(&rng, 64);

        T_OK(vv_trace_file_parse(&head, sizeof(head), err, sizeof(err), &f));
        for (int i = 0; i < RECORDS; i++) {
            struct vv_trace_record *r = &records[i];
            time_ns += time_ns < UINT64_MAX / 2 ? t_rng_below(&rng, 5) : 0;
            *r = (struct vv_trace_record){.seq = (uint64_t)i,
                                          .time_ns = time_ns,
                                          .kind = (uint32_t)t_rng_below(&rng, 26),
                                          .thread = (uint32_t)t_rng_below(&rng, 3)};
            for (int k = 0; k < VV_TRACE_ARGS; k++)
                r->arg[k] = t_rng_below(&rng, 20) ? t_rng_below(&rng, 3) : t_rng_u64(&rng);
        }
        f->records = records;
        f->nrecords = RECORDS;
        f->begin_ns = records[0].time_ns;
        f->end_ns = time_ns;
        f->complete = t_rng_below(&rng, 2);
        T_OK(vv_timeline_new(f, &t));
        check_shape(t);
        vv_timeline_free(t);
        vv_trace_file_free(f);
    }
}

static void nothing(void)
{
    char err[256] = "";
    snprintf(path, sizeof(path), "%s/t", t_tmpdir());
    T_OK(vv_trace_write_start(path, err, sizeof(err)));
    struct reading r = end();
    T_EQ(r.t->nlanes, 0);
    T_EQ(r.t->length_ns, 0);
    forget(r);
}

int main(void)
{
    T_RUN(nothing);
    T_RUN(without_phases);
    T_RUN(with_phases);
    T_RUN(movers);
    T_RUN(commits_alone);
    T_RUN(occupancy);
    T_RUN(torn_calls);
    T_RUN(any_records);
    return t_done();
}
