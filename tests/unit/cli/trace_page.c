/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports: rows that do not overlap, intervals drawn together without losing any of their time, the
 * packed data read back, and a page in which no text of the application becomes markup.
 *
 * With "make FILE [CALLS]" it writes a page of an invented run, for tests/cli/report.sh to look at in
 * a browser.
 */
#include "cli/report/trace_page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/common/page.h"
#include "cli/report/trace_spans.h"
#include "t.h"

#define HOSTILE "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x01\xff"

/* ---- an invented run ---- */

enum { LANE_APP, LANE_PHASES, LANE_OWN, LANE_D2H, LANE_H2D, LANE_H2F, LANE_F2H, LANE_NR };

struct run {
    struct lane lanes[LANE_NR];
    struct trace_call *calls;
    size_t nr_calls;
    double *at_s, *time_s, *bytes[3];
    size_t nr_samples;
    struct trace_hop hops[5];
    struct trace_tier tiers[3];
    struct trace_error errors[1];
    struct trace_picture picture;
    struct trace_page page;
};

static const char *const labels[] = {"", "wavefield", HOSTILE, "forward", "backward"};

/* 1 x 1 pixels. */
static const unsigned char png[] = {0x89, 'P', 'N',  'G',  '\r', '\n', 0x1a, '\n', 0,    0, 0, 13,
                                    'I',  'H', 'D',  'R',  0,    0,    0,    1,    0,    0, 0, 1,
                                    8,    0,   0,    0,    0,    0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0,
                                    10,   'I', 'D',  'A',  'T',  0x78, 0x9c, 0x63, 0x68, 0, 0, 0,
                                    0x82, 0,   0x81, 0x77, 0xcd, 0x72, 0xb6, 0,    0,    0, 0, 'I',
                                    'E',  'N', 'D',  0xae, 0x42, 0x60, 0x82};

static void add(struct lane *lane, enum span_kind kind, uint64_t start, uint64_t ns,
                uint64_t version, uint32_t label)
{
    lane->spans[lane->nr++] = (struct span){.start_ns = start,
                                            .ns = ns,
                                            .busy_ns = ns,
                                            .bytes = UINT64_C(128) << 20,
                                            .version = version,
                                            .label = label,
                                            .count = 1,
                                            .kind = (uint8_t)kind};
}

/* Half of the calls write, half read in reverse; the versions read last had to come from the disk. */
static uint64_t invent_calls(struct run *r, size_t nr)
{
    struct t_rng rng = {t_seed()};
    uint64_t now = 1000000, middle = 0;

    for (size_t i = 0; i < nr; i++) {
        bool is_get = i >= nr / 2;
        uint64_t version = is_get ? nr - 1 - i : i;
        uint64_t gap = 8000000 + t_rng_below(&rng, 4000000);
        uint64_t blocked = 90000 + t_rng_below(&rng, 60000);
        struct trace_call *c = &r->calls[i];

        if (is_get && version < nr / 8)
            blocked += 5000000 + t_rng_below(&rng, 9000000);
        add(&r->lanes[LANE_APP], SPAN_COMPUTE, now, gap, SPAN_NO_VERSION, is_get ? 4 : 3);
        now += gap;
        if (i == nr / 2)
            middle = now;
        add(&r->lanes[LANE_APP], is_get ? SPAN_READ : SPAN_WRITE, now, blocked, version, 1);
        add(&r->lanes[LANE_OWN], is_get ? SPAN_UP : SPAN_DOWN, now + blocked - 70000, 70000,
            version, 1);
        if (!is_get) {
            add(&r->lanes[LANE_D2H], SPAN_DOWN, now + blocked, 2500000, version, 1);
            add(&r->lanes[LANE_D2H], SPAN_DOWN, now + blocked + 1000000, 2500000, version, 1);
            add(&r->lanes[LANE_H2F], SPAN_DOWN, now + blocked + 2000000, gap * 9 / 10, version, 1);
        } else {
            add(&r->lanes[LANE_H2D], SPAN_UP, now - gap / 2, 2500000, version, 1);
            add(&r->lanes[LANE_F2H], SPAN_UP, now - gap, gap * 8 / 10, version, 1);
        }
        *c = (struct trace_call){.is_get = is_get,
                                 .ready = is_get && blocked < 200000,
                                 .label = i == 1 ? 2 : 1,
                                 .version = version,
                                 .bytes = UINT64_C(128) << 20,
                                 .start_ns = now,
                                 .blocked_ns = blocked,
                                 .ahead = is_get ? fmin((double)version, 30) : NAN};
        now += blocked;
        r->at_s[i] = (double)now / 1e9 * 0.05 * (is_get ? 1.3 : 1);
        r->page.cause_s[is_get][BLOCKED_COPYING] += 70e-6;
        r->page.cause_s[is_get][is_get ? BLOCKED_DISK : BLOCKED_LINK] +=
            (double)(blocked - 70000) / 1e9;
    }
    add(&r->lanes[LANE_PHASES], SPAN_PHASE, 0, middle, SPAN_NO_VERSION, 3);
    add(&r->lanes[LANE_PHASES], SPAN_PHASE, middle, now - middle, SPAN_NO_VERSION, 4);
    add(&r->lanes[LANE_PHASES], SPAN_PHASE, middle / 4, middle / 2, SPAN_NO_VERSION, 2);
    r->lanes[LANE_H2D].spans[0].failed = nr > 1;
    return now + 5000000;
}

static void invent_tiers(struct run *r, double wall_s)
{
    static const char *const names[] = {"device", "host", "disk"};
    static const uint64_t capacity[] = {UINT64_C(4) << 30, UINT64_C(32) << 30, 0};

    for (size_t i = 0; i < r->nr_samples; i++) {
        double x = (double)i / (double)r->nr_samples;

        r->time_s[i] = wall_s * x;
        r->bytes[0][i] = fmin(x * 20, 0.97 + 0.03 * sin(300 * x)) * 0x1p32;
        r->bytes[1][i] = fmin(x * 5, 1) * 0x1p35;
        r->bytes[2][i] = fmax(0, fmin(x, 0.9 - x) - 0.1) * 0x1p37;
    }
    for (size_t k = 0; k < 3; k++)
        r->tiers[k] = (struct trace_tier){.name = names[k],
                                          .capacity = capacity[k],
                                          .time_s = r->time_s,
                                          .bytes = r->bytes[k],
                                          .nr = r->nr_samples};
}

static void invent_hops(struct run *r)
{
    static const char *const titles[] = {"d2d: the application's own copies", "d2h: device to host",
                                         "h2d: host to device", "h2f: host to disk",
                                         "f2h: disk to host"};

    for (size_t k = 0; k < 5; k++)
        r->hops[k] = (struct trace_hop){.name = "hop",
                                        .title = titles[k],
                                        .down = k % 2,
                                        .own = k == 0,
                                        .bytes = (uint64_t)(r->nr_calls / 2) << 27,
                                        .copies = r->nr_calls,
                                        .failures = k == 2,
                                        .busy_s = 0.3 * (double)(k + 1),
                                        .best_bps = 55e9 / (double)(k + 1)};
}

static struct run *invent(size_t nr_calls)
{
    static const char *const names[] = {"application",    "phases",         "own copies",
                                        "device to host", "host to device", "host to disk",
                                        HOSTILE};
    static const struct trace_pair config[] = {{"device_cache", "4G"}, {"local", HOSTILE}};
    static const struct trace_pair machine[] = {{"processor", "an invented one"}};
    static const struct trace_pair run_pairs[] = {{"command", "rtm --nx 256 " HOSTILE}};
    struct run *r = calloc(1, sizeof(*r));
    uint64_t wall;

    T_CHECK(r);
    r->nr_calls = nr_calls;
    r->nr_samples = 3000;
    r->calls = calloc(nr_calls + 1, sizeof(*r->calls));
    r->at_s = calloc(nr_calls + 1, sizeof(*r->at_s));
    r->time_s = calloc(r->nr_samples, sizeof(double));
    T_CHECK(r->calls && r->at_s && r->time_s);
    for (size_t k = 0; k < 3; k++) {
        r->bytes[k] = calloc(r->nr_samples, sizeof(double));
        T_CHECK(r->bytes[k]);
    }
    for (size_t k = 0; k < LANE_NR; k++) {
        r->lanes[k] = (struct lane){.name = names[k]};
        r->lanes[k].spans = calloc(2 * nr_calls + 4, sizeof(struct span));
        T_CHECK(r->lanes[k].spans);
    }
    wall = invent_calls(r, nr_calls);
    invent_tiers(r, (double)wall / 1e9);
    invent_hops(r);
    r->errors[0] = (struct trace_error){0.5, "disk: " HOSTILE};
    r->picture = (struct trace_picture){HOSTILE, "the image", "image/png", png, sizeof(png)};
    r->page.title = "Varve report: rtm";
    r->page.wall_s = (double)wall / 1e9;
    r->page.nr_threads = 1;
    r->page.command = "rtm --nx 256 " HOSTILE;
    r->page.when = "2026-11-15T11:24:03Z";
    r->page.where = HOSTILE;
    r->page.ready = nr_calls / 4;
    r->page.labels = labels;
    r->page.nr_labels = VV_ARRAY_SIZE(labels);
    r->page.lanes = r->lanes;
    r->page.nr_lanes = LANE_NR;
    r->page.calls = r->calls;
    r->page.nr_calls = nr_calls;
    r->page.hops = r->hops;
    r->page.nr_hops = 5;
    r->page.tiers = r->tiers;
    r->page.nr_tiers = 3;
    r->page.bound.at_s = r->at_s;
    r->page.bound.how = "Invented.";
    r->page.bound.result = (struct bound_result){0.06, 0.01, 0.02, 0.02, 0.01};
    r->page.pictures = &r->picture;
    r->page.nr_pictures = 1;
    r->page.config = (struct trace_pairs){config, VV_ARRAY_SIZE(config)};
    r->page.machine = (struct trace_pairs){machine, VV_ARRAY_SIZE(machine)};
    r->page.run = (struct trace_pairs){run_pairs, VV_ARRAY_SIZE(run_pairs)};
    r->page.errors = r->errors;
    r->page.nr_errors = 1;
    r->page.nr_records = 12345;
    return r;
}

static void forget(struct run *r)
{
    for (size_t k = 0; k < LANE_NR; k++)
        free(r->lanes[k].spans);
    for (size_t k = 0; k < 3; k++)
        free(r->bytes[k]);
    free(r->calls);
    free(r->at_s);
    free(r->time_s);
    free(r);
}

/* ---- cases ---- */

/* The caller frees it. */
static char *written(const struct trace_page *page, size_t *ret_len)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, ret_len);

    T_CHECK(f);
    T_OK(trace_page_write(f, page));
    T_CHECK(fclose(f) == 0);
    return text;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;

    for (const char *s = text; (s = strstr(s, what)); s += strlen(what))
        n++;
    return n;
}

static double busy_of(const struct tracks *t)
{
    double busy = 0;

    for (size_t i = 0; i < t->nr; i++)
        for (size_t k = 0; k < t->tracks[i].nr; k++)
            busy += (double)t->tracks[i].spans[k].busy_ns;
    return busy;
}

static uint64_t count_of(const struct tracks *t)
{
    uint64_t n = 0;

    for (size_t i = 0; i < t->nr; i++)
        for (size_t k = 0; k < t->tracks[i].nr; k++)
            n += t->tracks[i].spans[k].count;
    return n;
}

static void rows_do_not_overlap(void)
{
    struct run *r = invent(200);
    struct tracks t;

    T_OK(tracks_make(r->lanes, LANE_NR, r->page.wall_s, SIZE_MAX, &t));
    T_EQ(t.merged_ns, 0);
    T_EQ(t.nr_spans, t.nr_before);
    for (size_t i = 0; i < t.nr; i++)
        for (size_t k = 1; k < t.tracks[i].nr; k++)
            T_CHECK(t.tracks[i].spans[k - 1].start_ns + t.tracks[i].spans[k - 1].ns <=
                    t.tracks[i].spans[k].start_ns);
    tracks_fini(&t);
    forget(r);
}

/* More at one time than there are rows: the order by start is kept, and no span is lost. */
static void too_many_at_once(void)
{
    struct span spans[12];
    struct lane lane = {"busy", spans, 0};
    struct tracks t;

    for (uint64_t i = 0; i < 12; i++)
        add(&lane, SPAN_UP, i, 1000, i, 0);
    T_OK(tracks_make(&lane, 1, 2e-6, SIZE_MAX, &t));
    T_EQ(t.nr, TRACK_ROWS);
    T_EQ(t.nr_spans, 12);
    for (size_t i = 0; i < t.nr; i++)
        for (size_t k = 1; k < t.tracks[i].nr; k++)
            T_CHECK(t.tracks[i].spans[k - 1].start_ns <= t.tracks[i].spans[k].start_ns);
    tracks_fini(&t);
}

static void few_enough(void)
{
    struct run *r = invent(20000);
    struct tracks all, few;

    T_OK(tracks_make(r->lanes, LANE_NR, r->page.wall_s, SIZE_MAX, &all));
    for (size_t most = 50000; most >= 500; most /= 10) {
        T_OK(tracks_make(r->lanes, LANE_NR, r->page.wall_s, most, &few));
        T_CHECK(few.nr_spans <= most && few.nr_spans > 10);
        T_CHECK(few.merged_ns > 0);
        T_EQ(few.nr_before, all.nr_before);
        /* Every interval is in one of them, and so is its time. */
        T_EQ(count_of(&few), all.nr_before);
        T_CHECK(fabs(busy_of(&few) - busy_of(&all)) <= 1e-9 * busy_of(&all));
        for (size_t i = 0; i < few.nr; i++)
            for (size_t k = 1; k < few.tracks[i].nr; k++)
                T_CHECK(few.tracks[i].spans[k - 1].start_ns <= few.tracks[i].spans[k].start_ns);
        tracks_fini(&few);
    }
    tracks_fini(&all);
    forget(r);
}

static void no_markup_from_texts(void)
{
    struct run *r = invent(40);
    size_t len;
    char *text = written(&r->page, &len);

    T_EQ(strlen(text), len);
    /* The page's own: the script and two blocks of data. */
    T_EQ(count(text, "<script"), 3);
    T_EQ(count(text, "</script"), 3);
    T_EQ(count(text, "<img"), 1);
    T_EQ(count(text, "onerror=alert(2)&gt;"), count(text, "onerror"
                                                          "=alert(2)") -
                                                  2);
    T_EQ(count(text, "\xff"), 0);
    T_EQ(count(text, "\x01"), 0);
    T_CHECK(count(text, "&lt;/script&gt;") > 5);
    T_CHECK(strstr(text, "\\u003c/script\\u003e"));
    free(text);
    forget(r);
}

static void loads_nothing(void)
{
    struct run *r = invent(40);
    size_t len;
    char *text = written(&r->page, &len);

    T_EQ(count(text, "http://"), count(text, "xmlns=\"http://www.w3.org/2000/svg\""));
    T_EQ(count(text, "https://"), 0);
    T_EQ(count(text, "src=\""), count(text, "src=\"data:image/png;base64,"));
    T_EQ(count(text, "<link"), 0);
    T_EQ(count(text, "url("), 0);
    T_EQ(count(text, "@import"), 0);
    T_CHECK(strstr(text, "default-src 'none'"));
    T_CHECK(strstr(text, "script-src 'sha256-"));
    free(text);
    forget(r);
}

static void all_sections(void)
{
    static const char *const ids[] = {"summary",          "figures",          "timeline",
                                      "trace-meta",       "trace-spans",      "cause-parts",
                                      "bound-parts",      "chart-cumulative", "longest",
                                      "chart-checkpoint", "chart-restore",    "chart-distance",
                                      "chart-tier-0",     "chart-tier-2",     "hops",
                                      "sec-pictures",     "sec-errors",       "run",
                                      "config",           "machine",          "records"};
    struct run *r = invent(40);
    size_t len;
    char *text, id[40];

    r->page.lost_records = 5;
    text = written(&r->page, &len);
    for (size_t i = 0; i < VV_ARRAY_SIZE(ids); i++) {
        snprintf(id, sizeof(id), " id=\"%s\"", ids[i]);
        if (count(text, id) != 1)
            t_fail(__FILE__, __LINE__, "%zu of%s", count(text, id), id);
    }
    T_EQ(count(text, " id=\"lost\""), 1);
    free(text);
    forget(r);
}

/* A trace of nothing, one of a single call, one without a bound. */
static void little_to_show(void)
{
    struct trace_page nothing = {.title = "nothing", .bound = {.missing = "no calls"}};
    struct run *r;
    size_t len;
    char *text = written(&nothing, &len);

    T_CHECK(strstr(text, "no checkpoint and no restore"));
    T_CHECK(!strstr(text, "nan") && !strstr(text, "inf%"));
    free(text);
    for (size_t calls = 1; calls < 4; calls++) {
        r = invent(calls);
        r->page.bound.missing = "bandwidths are not known";
        r->page.nr_pictures = 0;
        text = written(&r->page, &len);
        T_CHECK(strstr(text, "No bound: bandwidths are not known"));
        T_CHECK(!strstr(text, "sec-pictures"));
        free(text);
        forget(r);
    }
}

/* A run of any length makes a page that is small enough to be sent. */
static void stays_small(void)
{
    struct run *r = invent(t_sanitized() ? 50000 : 250000);
    size_t len;
    char *text = written(&r->page, &len);

    T_CHECK(len < (10 << 20));
    t_note("%zu intervals or so: a page of %zu bytes", 5 * r->nr_calls, len);
    T_CHECK(strstr(text, " id=\"merged\""));
    free(text);
    forget(r);
}

static void amounts(void)
{
    static const struct {
        double x;
        const char *seconds, *bytes, *rate;
    } cases[] = {
        {0, "0 s", "0 B", "0 B/s"},
        {1, "1.00 s", "1 B", "1 B/s"},
        {0.00125, "1.25 ms", "0.00 B", "0.00 B/s"},
        {59.96, "60.0 s", "60.0 B", "60.0 B/s"},
        {999.6, "16 min 39 s", "1000 B", "1.00 KB/s"},
        {1536, "25 min 36 s", "1.50 KiB", "1.54 KB/s"},
        {5e10, "833333333 min 20 s", "46.6 GiB", "50.0 GB/s"},
        {NAN, "unknown", "unknown", "unknown"},
    };
    char buf[PAGE_AMOUNT];

    for (size_t i = 0; i < VV_ARRAY_SIZE(cases); i++) {
        T_STREQ(page_seconds(cases[i].x, buf, sizeof(buf)), cases[i].seconds);
        T_STREQ(page_bytes(cases[i].x, buf, sizeof(buf)), cases[i].bytes);
        T_STREQ(page_rate(cases[i].x, buf, sizeof(buf)), cases[i].rate);
    }
}

static void base64(void)
{
    static const char *const want[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                       "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};

    for (size_t n = 0; n <= 6; n++) {
        char *text = NULL;
        size_t len = 0;
        FILE *f = open_memstream(&text, &len);

        T_CHECK(f);
        page_base64(f, "foobar", n);
        fclose(f);
        T_STREQ(text, want[n]);
        free(text);
    }
}

static int make(const char *path, size_t calls)
{
    struct run *r = invent(calls);
    FILE *f = fopen(path, "we");

    T_CHECK(f);
    T_OK(trace_page_write(f, &r->page));
    T_CHECK(fclose(f) == 0);
    forget(r);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "make") == 0)
        return make(argv[2], argc > 3 ? strtoul(argv[3], NULL, 10) : 200);
    T_RUN(amounts);
    T_RUN(base64);
    T_RUN(rows_do_not_overlap);
    T_RUN(too_many_at_once);
    T_RUN(few_enough);
    T_RUN(no_markup_from_texts);
    T_RUN(loads_nothing);
    T_RUN(all_sections);
    T_RUN(little_to_show);
    T_RUN(stays_small);
    return t_done();
}
