/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of the engine core itself, on one core, with no data moved and every order executed at once:
 *
 *   - a put that must evict among 1,000 fragments, each policy: the time in the core from the
 *     request until its last byte has a place (bar: 20 us, median);
 *   - each operation at histories of 1e3 to 1e6 versions (bar: the cost at 1e6 is no more than 3
 *     times that at 1e3, plus a microsecond: the processor's caches do not hold the tables of a
 *     million versions);
 *   - memory for one version of one region at rest on disk, with and without a hint (bar: 256
 *     bytes);
 *   - a put, in the same history and in another one, while the queue has 40,000 hints that no restore
 *     takes out (bar: 1.5 times a put without these hints, plus half a microsecond).
 *
 * Prints a table; exit status 1 when a bar is missed. With --json one object. With --quick the same
 * runs are short, and no bar is judged.
 */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
#include "engine/core/core.h"

enum {
    PAGE = 256 << 10,
    PUTS = 2000,     /* measured at most, for each policy */
    OPS = 20000,     /* measured at most, for each length of the history */
    STAY_PUTS = 500, /* measured at most, for each kind of hints that stay */
    QUEUE = 4096,    /* orders in flight at most */
};

/* The amount of work. */
static struct size {
    uint64_t fragments, puts, ops, longest, hints, stay_puts;
} size = {1000, PUTS, OPS, 1000000, 40000, STAY_PUTS};
static const struct size quick_size = {50, 20, 100, 1000, 400, 20};

static struct options {
    bool json, quick;
} options;
static int failed;
static struct json out;
static uint64_t seed = 1;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

static void stop_if(bool wrong, const char *text)
{
    if (wrong) {
        fprintf(stderr, "core_ops: %s\n", text);
        exit(2);
    }
}

static double median_us(uint64_t *ns, size_t n)
{
    samples_sort_ns(ns, n);
    return (double)ns[n / 2] / 1e3;
}

static double high_us(const uint64_t *ns, size_t n)
{
    return (double)ns[n * 99 / 100] / 1e3;
}

/* ---- a core, and the executor of its orders ---- */

struct bench {
    struct vv_core *core;
    struct vv_order *queue[QUEUE];
    size_t head, tail;
    uint64_t now_ns;
    uint32_t hist;
    struct vv_req req;
    bool woken;
};

static void open_core(struct bench *b, enum vv_policy policy, uint64_t host_pages)
{
    struct vv_core_cfg cfg = {.page_bytes = PAGE,
                              .ntiers = 2,
                              .tier = {{.kind = VV_TIER_HOST}, {.kind = VV_TIER_FILES}},
                              .policy = policy};
    struct vv_core_hist_cfg hist = {.level = VV_CORE_DURABLE};

    for (int hop = 0; hop < VV_HOP_COUNT; hop++)
        cfg.rate[hop] = UINT64_C(4000000000);
    vv_core_cfg_tune(&cfg);
    /* So many pages for objects; transit pages come on top. */
    cfg.tier[0].capacity_bytes = host_pages * PAGE;
    memset(b, 0, sizeof(*b));
    b->now_ns = 1;
    stop_if(vv_core_new(&cfg, &b->core) < 0, "no core");
    stop_if(vv_core_history_new(b->core, &hist, &b->hist) < 0, "no history");
}

static void collect(struct bench *b)
{
    struct vv_order *o;

    while ((o = vv_core_next_order(b->core))) {
        if (o->kind == VV_ORDER_WAKE) {
            b->woken = true;
            stop_if(b->req.status < 0, strerror(-b->req.status));
            continue;
        }
        b->queue[b->tail++ % QUEUE] = o;
        stop_if(b->tail - b->head > QUEUE, "too many orders");
    }
}

static void end_one(struct bench *b)
{
    struct vv_order *o = b->queue[b->head++ % QUEUE];

    b->now_ns += 1000;
    vv_core_complete(b->core, o, 0, b->now_ns);
    collect(b);
}

static void settle(struct bench *b)
{
    while (b->head < b->tail)
        end_one(b);
}

static void close_core(struct bench *b)
{
    settle(b);
    vv_core_free(b->core);
}

static void put(struct bench *b, uint64_t version, uint64_t pages)
{
    b->woken = false;
    stop_if(vv_core_put(b->core, b->hist, version, pages * PAGE, 0, false, b->now_ns, &b->req) < 0,
            "put");
    collect(b);
}

static void get(struct bench *b, uint64_t version)
{
    b->woken = false;
    stop_if(vv_core_get(b->core, b->hist, version, false, b->now_ns, &b->req) < 0, "get");
    collect(b);
}

/* Ends the orders of the request, and no others. */
static void finish_request(struct bench *b)
{
    while (!b->woken) {
        size_t i = b->head;
        while (i < b->tail && b->queue[i % QUEUE]->req != &b->req)
            i++;
        stop_if(i == b->tail, "a request waits for something else");
        struct vv_order *o = b->queue[i % QUEUE];
        b->queue[i % QUEUE] = b->queue[b->head % QUEUE];
        b->queue[b->head % QUEUE] = o;
        end_one(b);
    }
}

/* ---- a put among fragments ---- */

static void evicting_put(enum vv_policy policy, bool hinted)
{
    static uint64_t ns[PUTS];
    static struct bench b;
    uint64_t version = 0, fragments = 0;
    struct vv_object_info info;
    double us, high;

    /* Objects of 16 pages: `fragments` of them fill the tier, and each put replaces one. */
    open_core(&b, policy, size.fragments * 16);
    for (uint64_t v = 0; hinted && v < 2 * size.fragments + size.puts; v++)
        stop_if(vv_core_hint(b.core, b.hist, v, b.now_ns) < 0, "hint");
    for (; version < 2 * size.fragments; version++) {
        put(&b, version, 16);
        settle(&b);
    }
    for (uint64_t i = 0; i < size.puts; i++) {
        uint64_t start = vv_now_ns();
        put(&b, version++, 16);
        finish_request(&b);
        ns[i] = vv_now_ns() - start;
        settle(&b);
    }
    for (uint64_t v = 0; v < version; v++)
        fragments += vv_core_lookup(b.core, b.hist, v, &info) == 0 && info.resident[0] > 0;
    stop_if(fragments < size.fragments, "there were fewer fragments than that");
    close_core(&b);
    us = median_us(ns, size.puts);
    high = high_us(ns, size.puts);
    failed |= !options.quick && us >= 20;
    if (options.json) {
        json_object(&out, NULL);
        json_text(&out, "policy", vv_policy_name(policy));
        json_bool(&out, "hinted", hinted);
        json_number(&out, "median_us", "%.2f", us);
        json_number(&out, "p99_us", "%.2f", high);
        json_close(&out);
    } else {
        printf("put among %" PRIu64 " fragments, %-9s %-8s median %6.2f us, 99%% %6.2f us%s\n",
               size.fragments, vv_policy_name(policy), hinted ? "hinted" : "no hints", us, high,
               us < 20 || options.quick ? "" : "   MISSED: 20");
    }
}

/* ---- the length of the history ---- */

enum { OP_HINT, OP_PUT, OP_GET, OP_LOOKUP, OP_DISCARD, OP_KINDS };
static const char *const op_names[OP_KINDS] = {"hint", "put", "get", "lookup", "discard"};

static uint64_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

struct cost {
    uint64_t length;
    double us[OP_KINDS];
    double bytes, hinted_bytes;
};

/* Every version of `length` is on disk, one region of one page. Then some more are put, the hinted ones are
 * restored in reverse, and discarded. The times of a put and a get include all of their orders. */
static void at_length(uint64_t length, struct cost *ret)
{
    static uint64_t ns[OPS];
    static struct bench b;
    uint64_t before, ops = VV_MIN(size.ops, length / 2);
    struct vv_object_info info;

    open_core(&b, VV_POLICY_NEXT, 512);
    before = heap_bytes(); /* open_core made the tables of the pages, which do not grow */
    *ret = (struct cost){.length = length};
    for (uint64_t v = 0; v < length; v++)
        stop_if(vv_core_adopt(b.core, b.hist, v, v + 1, PAGE, 0, true) < 0, "adopt");
    ret->bytes = (double)(heap_bytes() - before) / (double)length;
    for (uint64_t v = length; v-- > 0;) {
        uint64_t start = vv_now_ns();
        stop_if(vv_core_hint(b.core, b.hist, v, b.now_ns) < 0, "hint");
        if (v < ops)
            ns[v] = vv_now_ns() - start;
    }
    ret->us[OP_HINT] = median_us(ns, ops);
    ret->hinted_bytes = (double)(heap_bytes() - before) / (double)length;
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t start = vv_now_ns();
        put(&b, length + i, 1);
        settle(&b);
        ns[i] = vv_now_ns() - start;
    }
    ret->us[OP_PUT] = median_us(ns, ops);
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t start = vv_now_ns();
        get(&b, length - 1 - i);
        settle(&b);
        ns[i] = vv_now_ns() - start;
    }
    ret->us[OP_GET] = median_us(ns, ops);
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t v = draw(length), start = vv_now_ns();
        stop_if(vv_core_lookup(b.core, b.hist, v, &info) < 0, "lookup");
        ns[i] = vv_now_ns() - start;
    }
    ret->us[OP_LOOKUP] = median_us(ns, ops);
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t start = vv_now_ns();
        stop_if(vv_core_discard(b.core, b.hist, length - 1 - i, b.now_ns) < 0, "discard");
        collect(&b);
        settle(&b);
        ns[i] = vv_now_ns() - start;
    }
    ret->us[OP_DISCARD] = median_us(ns, ops);
    close_core(&b);
}

static void print_cost(uint64_t versions, const struct cost *c)
{
    json_object(&out, NULL);
    json_uint(&out, "versions", versions);
    for (int k = 0; k < OP_KINDS; k++) {
        char name[32];

        snprintf(name, sizeof(name), "%s_us", op_names[k]);
        json_number(&out, name, "%.3f", c->us[k]);
    }
    json_number(&out, "bytes", "%.0f", c->bytes);
    json_number(&out, "hinted_bytes", "%.0f", c->hinted_bytes);
    json_close(&out);
}

static void lengths(void)
{
    static const uint64_t length[] = {1000, 10000, 100000, 1000000};
    enum { N = sizeof(length) / sizeof(length[0]) };
    struct cost cost[N];

    for (int i = 0; i < N && length[i] <= size.longest; i++) {
        at_length(length[i], &cost[i]);
        if (options.json) {
            print_cost(length[i], &cost[i]);
            continue;
        }
        printf("%8" PRIu64 " versions:", length[i]);
        for (int k = 0; k < OP_KINDS; k++)
            printf("  %s %.2f us", op_names[k], cost[i].us[k]);
        printf("  %.0f bytes each, hinted %.0f\n", cost[i].bytes, cost[i].hinted_bytes);
    }
    if (options.quick)
        return;
    for (int k = 0; k < OP_KINDS; k++)
        if (cost[N - 1].us[k] > 3 * cost[0].us[k] + 1) {
            failed = 1;
            fprintf(stderr, "MISSED: %s grows with the history, %.2f to %.2f us\n", op_names[k],
                    cost[0].us[k], cost[N - 1].us[k]);
        }
    /* The shortest history is not judged: its figure consists mostly of tables that an empty history has, too. */
    for (int i = 1; i < N; i++)
        if (cost[i].bytes > 256 || cost[i].hinted_bytes > 256) {
            failed = 1;
            fprintf(stderr, "MISSED: %.0f bytes for a version, %.0f hinted, of 256\n",
                    cost[i].bytes, cost[i].hinted_bytes);
        }
}

/* ---- hints that stay ---- */

enum stay { STAY_NONE, STAY_UNWRITTEN, STAY_FIRST, STAY_DISCARDED, STAY_KINDS };
static const char *const stay_names[STAY_KINDS] = {
    "no hints", "none written", "all but the first written", "all but the first discarded"};

/* Puts and discards, so that the history stays as long as it is; the median of one pair. */
static double pair_us(struct bench *b, uint64_t version)
{
    static uint64_t ns[STAY_PUTS];

    for (uint64_t i = 0; i < size.stay_puts; i++) {
        uint64_t start = vv_now_ns();
        put(b, version, 1);
        settle(b);
        stop_if(vv_core_discard(b->core, b->hist, version++, b->now_ns) < 0, "discard");
        collect(b);
        settle(b);
        ns[i] = vv_now_ns() - start;
    }
    return median_us(ns, size.stay_puts);
}

static void with_hints(enum stay stay, double ret_us[2])
{
    static struct bench b;
    struct vv_core_hist_cfg hist = {.level = VV_CORE_DURABLE};
    uint32_t other;

    open_core(&b, VV_POLICY_NEXT, size.hints + 1024);
    stop_if(vv_core_history_new(b.core, &hist, &other) < 0, "no history");
    for (uint64_t v = 0; stay != STAY_NONE && v < size.hints; v++)
        stop_if(vv_core_hint(b.core, b.hist, v, b.now_ns) < 0, "hint");
    /* The last hinted version is always put: a history with nothing to restore does not prefetch. */
    for (uint64_t v = stay == STAY_FIRST || stay == STAY_DISCARDED ? 1 : size.hints - 1;
         v < size.hints; v++) {
        put(&b, v, 1);
        settle(&b);
    }
    vv_core_prefetch_start(b.core, b.hist, b.now_ns);
    for (uint64_t v = 1; stay == STAY_DISCARDED && v < size.hints - 1; v++) {
        stop_if(vv_core_discard(b.core, b.hist, v, b.now_ns) < 0, "discard");
        collect(&b);
        settle(&b);
    }
    ret_us[0] = pair_us(&b, size.hints);
    b.hist = other;
    ret_us[1] = pair_us(&b, 0);
    close_core(&b);
}

static void hints_that_stay(void)
{
    double us[STAY_KINDS][2];

    for (int k = 0; k < STAY_KINDS; k++) {
        with_hints((enum stay)k, us[k]);
        if (options.json) {
            json_object(&out, NULL);
            json_text(&out, "hints", stay_names[k]);
            json_number(&out, "put_us", "%.2f", us[k][0]);
            json_number(&out, "other_history_us", "%.2f", us[k][1]);
            json_close(&out);
        } else {
            printf("put and discard, %" PRIu64
                   " hints, %-28s %8.2f us, in another history %8.2f us\n",
                   k ? size.hints : 0, stay_names[k], us[k][0], us[k][1]);
        }
        for (int i = 0; !options.quick && i < 2; i++)
            if (us[k][i] > 1.5 * us[STAY_NONE][i] + 0.5) {
                failed = 1;
                fprintf(stderr, "MISSED: %" PRIu64 " hints, %s: %.2f us, without %.2f us\n",
                        size.hints, stay_names[k], us[k][i], us[STAY_NONE][i]);
            }
    }
}

static void begin_list(const char *name)
{
    if (options.json)
        json_array(&out, name);
}

static void end_list(void)
{
    if (options.json)
        json_close(&out);
}

#define AT(field) offsetof(struct options, field)
static const struct opt option_list[] = {
    {OPT_FLAG, .name = "json", .help = "print one JSON object", .at = AT(json)},
    {OPT_FLAG, .name = "quick", .help = "short runs, whose times say little: no bar is judged",
     .at = AT(quick)},
};

static const struct opts command = {
    .command = "bench_core_ops",
    .usage = "[OPTION]...",
    .about = "Measures operations of the core, without any data. Exit status 1: a bar is missed.",
    OPT_LIST(option_list),
};

int main(int argc, char **argv)
{
    int first, status = opts_parse(&command, argc, argv, &options, &first);

    if (status >= 0)
        return status;
    if (options.quick)
        size = quick_size;
    out = json_begin(stdout, JSON_SPACED);
    if (options.json)
        json_object(&out, NULL);
    begin_list("evicting_put");
    for (int hinted = 0; hinted < 2; hinted++)
        for (int policy = 0; policy < VV_POLICY_COUNT; policy++)
            evicting_put((enum vv_policy)policy, hinted);
    end_list();
    begin_list("history");
    lengths();
    end_list();
    begin_list("hints_that_stay");
    hints_that_stay();
    end_list();
    if (options.json) {
        json_bool(&out, "missed", failed);
        json_close(&out);
        json_end(&out);
    }
    return failed;
}
