/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of reports of hand-made traces: the time of a call by causes, the sustained rates, and the bound,
 * which is compared with that of the same calls computed directly.
 */
#include "cli/report/trace_view.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "t.h"
#include "trace/write.h"

#define CTX  7u
#define HIST VV_TRACE_HISTORY(CTX, 1)
#define US   UINT64_C(1000)

enum { D2D, H2H, D2H, H2D, H2F, F2H };
enum { APP = -1, DEVICE, HOST, DISK };

static char path[1024];
static uint64_t zero_ns;
static uint64_t chunk;

static void at(uint64_t ns, enum vv_trace_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
               uint64_t e)
{
    const uint64_t arg[VV_TRACE_ARGS] = {a, b, c, d, e};

    vv_trace_at(zero_ns + ns, kind, arg);
}

static void begin(const char *device_bytes, const char *host_bytes)
{
    static const char *const hops[] = {"d2d", "h2h", "d2h", "h2d", "h2f", "f2h"};
    static const char *const tiers[] = {"device", "host", "files"};
    const char *bytes[] = {device_bytes, host_bytes, "0"};
    char err[256] = "", key[32];

    snprintf(path, sizeof(path), "%s/t.vtrace", t_tmpdir());
    T_OK(vv_trace_write_start(path, err, sizeof(err)));
    for (size_t i = 0; i < VV_ARRAY_SIZE(hops); i++) {
        snprintf(key, sizeof(key), "hop.%zu", i);
        T_OK(vv_trace_meta(CTX, key, hops[i]));
    }
    for (size_t i = 0; i < VV_ARRAY_SIZE(tiers); i++) {
        snprintf(key, sizeof(key), "tier.%zu", i);
        T_OK(vv_trace_meta(CTX, key, tiers[i]));
        snprintf(key, sizeof(key), "tier.%zu.bytes", i);
        T_OK(vv_trace_meta(CTX, key, bytes[i]));
    }
    vv_trace(VV_TRACE_NONE, 0, 0, 0, 0);
    zero_ns = vv_now_ns() + VV_NS_PER_S;
    at(0, VV_TRACE_HISTORY_OPEN, HIST, vv_trace_name("field"), 0, 0, 0);
    for (uint64_t i = 0; i < 3; i++)
        at(0, VV_TRACE_OCCUPANCY, CTX, i, 0, strtoull(bytes[i], NULL, 10), 0);
}

static void call(uint64_t from, uint64_t to, uint64_t what, uint64_t version, uint64_t bytes,
                 int status)
{
    at(from, VV_TRACE_CALL_START, what, HIST, version, 0, 0);
    at(to, VV_TRACE_CALL_END, what, HIST, version, bytes, (uint64_t)(int64_t)status);
}

static void put(uint64_t from, uint64_t to, uint64_t version, uint64_t bytes)
{
    call(from, to, VV_TRACE_CALL_CHECKPOINT, version, bytes, 0);
}

static void get(uint64_t from, uint64_t to, uint64_t version, uint64_t bytes)
{
    call(from, to, VV_TRACE_CALL_RESTORE, version, bytes, 0);
}

static void copy(uint64_t from, uint64_t to, int hop, int src, int dst, uint64_t version,
                 uint64_t bytes)
{
    uint64_t route = VV_TRACE_ROUTE(hop, src, dst);

    chunk++;
    at(from, VV_TRACE_COPY_START, route, HIST, version, chunk, bytes);
    at(to, VV_TRACE_COPY_END, route, HIST, version, chunk, 0);
}

struct reading {
    struct vv_trace_file *file;
    struct vv_timeline *timeline;
    struct trace_view *view;
    const struct trace_page *page;
};

static struct reading end(void)
{
    struct reading r;
    char err[256] = "";

    T_OK(vv_trace_write_stop());
    T_OK(vv_trace_file_open(path, err, sizeof(err), &r.file));
    T_OK(vv_timeline_new(r.file, &r.timeline));
    T_OK(trace_view_new(r.timeline, &r.view));
    r.page = trace_view_page(r.view);
    return r;
}

static void forget(struct reading r)
{
    trace_view_free(r.view);
    trace_view_free(NULL);
    vv_timeline_free(r.timeline);
    vv_trace_file_free(r.file);
}

static void expect(double is, double want)
{
    if (!(fabs(is - want) <= 1e-6 * fabs(want) + 1e-12))
        t_fail(__FILE__, __LINE__, "%.12g, not %.12g", is, want);
}

static const struct trace_hop *way(const struct trace_page *p, const char *title)
{
    for (size_t i = 0; i < p->nr_hops; i++)
        if (strcmp(p->hops[i].title, title) == 0)
            return &p->hops[i];
    t_fail(__FILE__, __LINE__, "no way %s", title);
}

/* ---- cases ---- */

/* Each instant counts once: own copies first, then the disk, then the link. */
static void where_the_time_went(void)
{
    struct reading r;

    begin("4096", "8192");
    copy(0 * US, 30 * US, D2H, DEVICE, HOST, 90, 100);
    copy(20 * US, 50 * US, H2F, HOST, DISK, 91, 100);
    copy(60 * US, 100 * US, D2D, APP, DEVICE, 1, 1000);
    /* The wrong direction, and another call's copy, do not explain a wait. */
    copy(40 * US, 58 * US, F2H, DISK, HOST, 92, 100);
    copy(50 * US, 55 * US, D2D, APP, DEVICE, 93, 100);
    put(0, 100 * US, 1, 1000);
    get(200 * US, 300 * US, 1, 1000);
    copy(190 * US, 250 * US, F2H, DISK, HOST, 1, 1000);
    copy(245 * US, 280 * US, H2D, HOST, APP, 1, 1000);
    r = end();
    expect(r.page->cause_s[0][BLOCKED_COPYING], 40e-6);
    expect(r.page->cause_s[0][BLOCKED_DISK], 30e-6);
    expect(r.page->cause_s[0][BLOCKED_LINK], 20e-6);
    expect(r.page->cause_s[0][BLOCKED_ELSE], 10e-6);
    expect(r.page->cause_s[1][BLOCKED_COPYING], 35e-6);
    expect(r.page->cause_s[1][BLOCKED_DISK], 45e-6);
    expect(r.page->cause_s[1][BLOCKED_ELSE], 20e-6);
    T_EQ(r.page->nr_calls, 2);
    T_CHECK(!r.page->calls[0].is_get && r.page->calls[1].is_get);
    T_STREQ(r.page->labels[r.page->calls[1].label], "field");
    forget(r);
}

static void found_ready(void)
{
    struct reading r;

    begin("4096", "8192");
    put(0, US, 1, 64);
    put(2 * US, 3 * US, 2, 64);
    put(4 * US, 5 * US, 3, 64);
    copy(10 * US, 12 * US, H2D, HOST, DEVICE, 1, 64);
    copy(21 * US, 22 * US, D2D, DEVICE, APP, 1, 64);
    get(20 * US, 23 * US, 1, 64);
    /* Still on its way when it is asked for. */
    copy(28 * US, 32 * US, H2D, HOST, DEVICE, 2, 64);
    copy(32 * US, 33 * US, D2D, DEVICE, APP, 2, 64);
    get(30 * US, 33 * US, 2, 64);
    copy(42 * US, 43 * US, H2D, HOST, APP, 3, 64);
    get(41 * US, 43 * US, 3, 64);
    r = end();
    T_CHECK(r.page->calls[3].ready && !r.page->calls[4].ready && r.page->calls[5].ready);
    T_EQ(r.page->ready, 2);
    forget(r);
    /* The library's own count is used if it is about the same restores. */
    begin("4096", "8192");
    put(0, US, 1, 64);
    get(2 * US, 3 * US, 1, 64);
    T_OK(vv_trace_meta(CTX, "restore.hits", "1"));
    T_OK(vv_trace_meta(CTX, "restore.misses", "0"));
    r = end();
    T_EQ(r.page->ready, 1);
    forget(r);
}

/* 100 bytes a microsecond, twice as much for a fifth of the bytes, and a pause in between. */
static void rates(void)
{
    struct reading r;
    uint64_t t = 0;

    begin("4096", "8192");
    for (int i = 0; i < 100; i++) {
        uint64_t us = i >= 40 && i < 60 ? 5 : 10;

        copy(t, t + us * US, H2F, HOST, DISK, 5, 1000);
        t += us * US + (i % 10 == 0 ? 500 * US : 0);
    }
    r = end();
    expect(way(r.page, "host to disk")->best_bps, 200e6);
    expect(way(r.page, "host to disk")->busy_s, 900e-6);
    T_EQ(way(r.page, "host to disk")->bytes, 100000);
    T_EQ(way(r.page, "host to disk")->copies, 100);
    forget(r);
    /* Four copies that end together are no faster than they are. */
    begin("4096", "8192");
    for (uint64_t i = 0; i < 100; i++)
        copy(i / 4 * 40 * US, (i / 4 + 1) * 40 * US, F2H, DISK, HOST, 5, 1000);
    r = end();
    T_CHECK(way(r.page, "disk to host")->best_bps >= 100e6);
    T_CHECK(way(r.page, "disk to host")->best_bps <= 115e6);
    forget(r);
}

/* Puts of 1000 bytes into a host cache of 4000, a disk of 10 bytes a microsecond, and all of them
 * read back in reverse. No device. */
static void bound_of_a_shot(void)
{
    enum { NR = 40 };
    struct bound_event events[2 * NR];
    struct bound_hop hop = {
        .above_bytes = 4000, .down_bps = 10e6, .up_bps = 20e6, .both_bps = 20e6};
    struct bound_params params = {
        .put_copy_bps = 1e9, .get_copy_bps = 1e9, .consume_once = true, .hops = &hop, .nr_hops = 1};
    struct bound_result want;
    struct reading r;
    uint64_t t = 0;

    begin("0", "4000");
    for (uint64_t i = 0; i < NR; i++) {
        uint64_t blocked = i < 4 ? 1 * US : 110 * US;

        put(t, t + blocked, i, 1000);
        copy(t + blocked - US, t + blocked, H2H, APP, HOST, i, 1000);
        copy(i * 100 * US, (i + 1) * 100 * US, H2F, HOST, DISK, i, 1000);
        events[i] = (struct bound_event){BOUND_PUT, i, 1000, i ? 20 * US : 0, 0};
        t += blocked + 20 * US;
    }
    for (uint64_t i = 0; i < NR; i++) {
        uint64_t version = NR - 1 - i;

        copy(t, t + 50 * US, F2H, DISK, HOST, version, 1000);
        copy(t + 50 * US, t + 51 * US, H2H, HOST, APP, version, 1000);
        get(t, t + 51 * US, version, 1000);
        events[NR + i] = (struct bound_event){BOUND_GET, version, 0, 20 * US, 0};
        t += 71 * US;
    }
    r = end();
    if (r.page->bound.missing)
        t_fail(__FILE__, __LINE__, "%s", r.page->bound.missing);
    expect(way(r.page, "host to disk")->best_bps, 10e6);
    expect(way(r.page, "disk to host")->best_bps, 20e6);
    expect(way(r.page, "application to host")->best_bps, 1e9);
    T_OK(bound_compute(events, 2 * NR, &params, &want));
    T_CHECK(want.total_s > 3e-3);
    expect(r.page->bound.result.total_s, want.total_s);
    expect(r.page->bound.result.write_s, want.write_s);
    expect(r.page->bound.at_s[2 * NR - 1], want.total_s);
    for (size_t i = 1; i < 2 * NR; i++)
        T_CHECK(r.page->bound.at_s[i] >= r.page->bound.at_s[i - 1]);
    T_CHECK(strstr(r.page->bound.how, "host to disk 10.0 MB/s"));
    forget(r);
}

/* Lent memory: reserving belongs to the commit; one that was never committed counts as well. Each instant is still in one cause. */
static void leases(void)
{
    struct trace_totals totals;
    struct reading r;

    begin("4096", "8192");
    call(0, 30 * US, VV_TRACE_CALL_RESERVE, 1, 1000, 0);
    copy(0, 20 * US, D2H, DEVICE, HOST, 90, 1000);
    call(100 * US, 101 * US, VV_TRACE_CALL_COMMIT, 1, 1000, 0);
    call(200 * US, 210 * US, VV_TRACE_CALL_RESERVE, 2, 1000, 0);
    call(300 * US, 340 * US, VV_TRACE_CALL_ACQUIRE, 1, 1000, 0);
    copy(290 * US, 330 * US, H2D, HOST, DEVICE, 1, 1000);
    r = end();
    totals = trace_page_totals(r.page);
    T_EQ(totals.put.nr, 1);
    T_EQ(totals.get.nr, 1);
    T_EQ(r.page->calls[0].blocked_ns, 31 * US);
    T_EQ(r.page->calls[1].blocked_ns, 40 * US);
    expect(r.page->other_s[0], 10e-6);
    expect(totals.put.blocked_s, 41e-6);
    expect(totals.get.blocked_s, 40e-6);
    expect(r.page->cause_s[0][BLOCKED_LINK], 20e-6);
    expect(r.page->cause_s[0][BLOCKED_ELSE], 21e-6);
    expect(r.page->cause_s[1][BLOCKED_LINK], 30e-6);
    expect(r.page->cause_s[1][BLOCKED_ELSE], 10e-6);
    forget(r);
}

/* Records that no engine would write: no access is out of bounds, and there is a page. */
static void nonsense(void)
{
    struct t_rng rng = {t_seed()};
    uint64_t rounds = t_cases(40, 2000);

    for (uint64_t k = 0; k < rounds; k++) {
        uint64_t nr = t_rng_below(&rng, 300), t = 0;
        FILE *f = fopen("/dev/null", "we");
        struct reading r;

        T_CHECK(f);
        begin("4096", "8192");
        for (uint64_t i = 0; i < nr; i++) {
            uint64_t arg[VV_TRACE_ARGS];

            for (int a = 0; a < VV_TRACE_ARGS; a++) {
                uint64_t any = t_rng_u64(&rng);

                arg[a] = any % 3 == 0 ? HIST : any % 3 == 1 ? any >> 32 & 7 : t_rng_u64(&rng);
            }
            t += t_rng_below(&rng, 50) == 0 ? t_rng_u64(&rng) >> 24 : t_rng_below(&rng, 2000);
            vv_trace_at(zero_ns + t, (enum vv_trace_kind)t_rng_below(&rng, VV_TRACE_KIND_COUNT),
                        arg);
        }
        r = end();
        T_OK(trace_page_write(f, r.page));
        trace_page_json(f, r.page);
        T_EQ(fclose(f), 0);
        forget(r);
    }
}

/* A second process that only reads: its versions existed before, and only reading them counts. */
static void bound_of_what_was_there(void)
{
    enum { NR = 30 };
    struct reading r;
    double want;

    begin("0", "4000");
    /* A slow one of its own, so that the cost of having written the others would be seen. */
    put(0, 100 * US, 1000, 1000);
    copy(0, 100 * US, H2H, APP, HOST, 1000, 1000);
    for (uint64_t i = 0; i < NR; i++) {
        uint64_t t = 200 * US + i * 60 * US;

        copy(t, t + 50 * US, F2H, DISK, HOST, i, 1000);
        copy(t + 50 * US, t + 51 * US, H2H, HOST, APP, i, 1000);
        get(t, t + 51 * US, i, 1000);
    }
    r = end();
    T_CHECK(!r.page->bound.missing);
    /* Everything but 4000 bytes comes up at 20 bytes a microsecond, during the gaps of 9 too. */
    want = (NR * 1000 - 4000) / 20e6 - (NR - 1) * 9e-6;
    T_CHECK(r.page->bound.result.total_s >= want);
    T_CHECK(r.page->bound.result.total_s <= 100e-6 + NR * 51e-6);
    expect(r.page->bound.result.copy_s + r.page->bound.result.restore_s +
               r.page->bound.result.write_s,
           r.page->bound.result.total_s);
    forget(r);
}

/* A bound is never above the time of a run without waste; calls and gaps at random. */
static void bound_holds(void)
{
    struct t_rng rng = {t_seed()};
    uint64_t rounds = t_cases(20, 500);

    for (uint64_t k = 0; k < rounds; k++) {
        uint64_t nr = 2 + t_rng_below(&rng, 40), t = 0, disk = 0;
        struct trace_totals totals;
        struct reading r;

        begin("0", "3000");
        for (uint64_t i = 0; i < nr; i++) {
            uint64_t bytes = 500 + t_rng_below(&rng, 1000), start = t, own = bytes;

            /* Through a cache that is always full: the disk takes it before the call returns. */
            disk = (disk > t ? disk : t) + bytes * 50;
            copy(disk - bytes * 50, disk, H2F, HOST, DISK, i, bytes);
            t = disk + own;
            copy(t - own, t, H2H, APP, HOST, i, bytes);
            put(start, t, i, bytes);
            t += t_rng_below(&rng, 100 * US);
        }
        r = end();
        totals = trace_page_totals(r.page);
        T_CHECK(!r.page->bound.missing);
        T_CHECK(r.page->bound.result.total_s > 0);
        T_CHECK(r.page->bound.result.total_s <= totals.blocked_s * 1.0001);
        forget(r);
    }
}

/* Read twice, written again, discarded, failed: the bound handles all of these calls. */
static void bound_of_odd_calls(void)
{
    struct reading r;

    begin("0", "4000");
    copy(0, US, H2F, HOST, DISK, 1, 1000);
    put(0, US, 1, 1000);
    get(2 * US, 3 * US, 1, 1000);
    get(4 * US, 5 * US, 1, 1000);
    put(6 * US, 7 * US, 1, 1000);
    put(8 * US, 9 * US, 1, 1000);
    at(10 * US, VV_TRACE_DISCARD, HIST, 1, 0, 0, 0);
    get(11 * US, 12 * US, 1, 1000);
    call(13 * US, 14 * US, VV_TRACE_CALL_RESTORE, 77, 0, -ENOENT);
    call(15 * US, 16 * US, VV_TRACE_CALL_CHECKPOINT, 78, 1000, -ENOSPC);
    get(17 * US, 18 * US, 5, 1000);
    r = end();
    if (r.page->bound.missing)
        t_fail(__FILE__, __LINE__, "%s", r.page->bound.missing);
    T_EQ(r.page->nr_calls, 9);
    T_CHECK(r.page->calls[7].failed);
    forget(r);
}

static void *other_thread(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; i < 10; i++)
        get(1000 * US + i * 10 * US, 1005 * US + i * 10 * US, i, 1000);
    return NULL;
}

/* Versions that one thread writes and another reads may have stayed in a cache. */
static void threads(void)
{
    struct reading r;
    pthread_t thread;

    begin("0", "2000");
    for (uint64_t i = 0; i < 10; i++) {
        put(i * 100 * US, i * 100 * US + US, i, 1000);
        copy(i * 100 * US, i * 100 * US + US, H2H, APP, HOST, i, 1000);
        copy(i * 100 * US + US, i * 100 * US + 90 * US, H2F, HOST, DISK, i, 1000);
    }
    T_EQ(pthread_create(&thread, NULL, other_thread, NULL), 0);
    T_EQ(pthread_join(thread, NULL), 0);
    r = end();
    T_EQ(r.page->nr_threads, 2);
    T_CHECK(!r.page->bound.missing);
    expect(r.page->bound.result.restore_s, 0);
    forget(r);
}

static void no_bound(void)
{
    struct reading r;

    begin("0", "4000");
    r = end();
    T_STREQ(r.page->bound.missing, "there were no calls");
    forget(r);
    begin("4096", "4000");
    put(0, US, 1, 1000);
    copy(US / 2, 20 * US, D2D, APP, DEVICE, 1, 1000);
    r = end();
    T_CHECK(strstr(r.page->bound.missing, "streams"));
    forget(r);
}

static void errors_and_repairs(void)
{
    struct reading r;

    begin("0", "4000");
    put(0, US, 1, 1000);
    put(2 * US, 3 * US, 2, 1000);
    at(10 * US, VV_TRACE_ERROR, HIST, 1, DISK, 4, (uint64_t)(int64_t)-EBADMSG);
    get(9 * US, 12 * US, 1, 1000);
    at(20 * US, VV_TRACE_ERROR, HIST, 2, DISK, 0, (uint64_t)(int64_t)-EIO);
    call(19 * US, 21 * US, VV_TRACE_CALL_RESTORE, 2, 1000, -EIO);
    r = end();
    T_EQ(r.page->nr_errors, 2);
    T_EQ(r.page->nr_repairs, 1);
    T_CHECK(strstr(r.page->errors[0].text, "field version 1") &&
            strstr(r.page->errors[0].text, "chunk 4"));
    T_CHECK(strstr(r.page->errors[0].text, "repaired") &&
            !strstr(r.page->errors[1].text, "repaired"));
    forget(r);
}

static const char *text_of(const struct trace_pairs *p, const char *name)
{
    for (size_t i = 0; i < p->nr; i++)
        if (strcmp(p->pairs[i].name, name) == 0)
            return p->pairs[i].text;
    return "";
}

static void conditions_and_pictures(void)
{
    struct reading r;

    begin("0", "4000");
    T_OK(vv_trace_meta(0, "command", "/a/b/rtm --nx 3"));
    T_OK(vv_trace_meta(0, "memory", "1073741824"));
    T_OK(vv_trace_meta(CTX, "config.host_cache", "1G"));
    T_OK(vv_trace_meta(CTX, "config.host_cache", "2G"));
    T_OK(vv_trace_note("grid", "3 x 4"));
    T_OK(vv_trace_attach("image", "image/png", "old", 3));
    T_OK(vv_trace_attach("image", "image/png", "newer", 5));
    T_OK(vv_trace_attach("table", "text/html\"><script>", "x", 1));
    put(0, US, 1, 1000);
    r = end();
    T_STREQ(r.page->title, "Varve report: rtm");
    T_STREQ(text_of(&r.page->config, "host_cache"), "2G");
    T_STREQ(text_of(&r.page->machine, "memory"), "1.00 GiB");
    T_STREQ(text_of(&r.page->run, "grid"), "3 x 4");
    T_CHECK(strncmp(text_of(&r.page->run, "attached, not shown"), "table (text/html", 16) == 0);
    T_EQ(r.page->nr_pictures, 1);
    T_EQ(r.page->pictures[0].nr_bytes, 5);
    forget(r);
}

int main(void)
{
    T_RUN(where_the_time_went);
    T_RUN(found_ready);
    T_RUN(rates);
    T_RUN(leases);
    T_RUN(nonsense);
    T_RUN(bound_of_a_shot);
    T_RUN(bound_of_what_was_there);
    T_RUN(bound_holds);
    T_RUN(bound_of_odd_calls);
    T_RUN(threads);
    T_RUN(no_bound);
    T_RUN(errors_and_repairs);
    T_RUN(conditions_and_pictures);
    return t_done();
}
