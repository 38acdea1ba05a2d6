/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every interleaving of small configurations.
 *
 * A configuration is a set of tiers of one or two pages and a few application threads, each with a
 * short script. In every state there is a set of choices: a thread that is not blocked takes its
 * next step, an order in flight ends (well; or badly, as often as the configuration allows), or a
 * tier that grows has one more page. A depth-first search takes all of them. States are identified
 * by a digest of the core, the threads and the files; a state that has been seen is not entered
 * again. The core cannot be copied, so going back means repeating the choices from the start.
 *
 * In every state the core's invariants hold (vv_core_check), every byte read is the right one
 * (model/drive), and a thread is blocked only while something is in flight or grows. At the end of
 * every run each thread has finished its script with results that the configuration allows, and
 * each version that should exist is restored once more.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/drive.h"
#include "t.h"

enum { MAX_THREADS = 2, MAX_STEPS = 20, MAX_DEPTH = 400, MAX_ORDERED = 10 };

/*
 * A script, one letter for each step, followed by the version:
 *   p put one page   P put two pages   g get   h hint   c clear hints   s start prefetching
 *   w wait for durable   a wait for all   d discard   x get that may find nothing   y discard that
 *   may find nothing
 *   o put one page, ordered by a stream   W wait until it exists, if it is still to come
 *   A B  put one page, two pages, on a stream of the thread's own that runs ahead   R restore on it, once
 *   the version exists   K its stream waits here until the other thread has finished   N the same, and its
 *   lanes take nothing meanwhile
 *   l lease a page   i lend a page of the version in place, if possible   u give back the pages lent to
 *   this thread   q make a version of the lease, if there is one
 */
struct config {
    const char *name, *tiers, *script[MAX_THREADS];
    bool consume_once;
    uint64_t keep;
    bool durable;
    bool may_be_full; /* puts may get -ENOSPC or -EFBIG */
    bool may_stop;    /* tiers that grow may stop growing before they reach their full size */
    bool long_only;
};

static const struct config configs[] = {
    {.name = "two objects, one host page", .tiers = "H1F", .script = {"p1p2g1g2"}, .durable = true},
    {.name = "three objects, one page each", .tiers = "D1H1F", .script = {"p1p2p3g3g2g1"}},
    {.name = "forward without hints",
     .tiers = "D1H1F",
     .script = {"p1p2p3g1g2g3"},
     .durable = true},
    {.name = "three objects, spilled", .tiers = "D1H1S1", .script = {"p1p2p3g1g2g3"}},
    {.name = "one page too few",
     .tiers = "D1H1S1",
     .script = {"p1p2p3p4g1x4"},
     .may_be_full = true},
    {.name = "memory only, one page too few",
     .tiers = "D1H1",
     .script = {"p1p2p3g1g2"},
     .may_be_full = true},
    {.name = "one host page and no more",
     .tiers = "H1",
     .script = {"p1g1p2d1p3x2"},
     .may_be_full = true},
    {.name = "hints before the versions", .tiers = "D1H1F", .script = {"h3h2h1p1p2p3sg3g2g1"}},
    {.name = "hints never consumed", .tiers = "D1H1F", .script = {"h1h2h3p1p2p3sp4a"}},
    {.name = "hints of versions never written", .tiers = "H1F", .script = {"h9h1h8h2p1p2sg1g2a"}},
    {.name = "put while all is prefetched", .tiers = "D1H1F", .script = {"p1p2ah1h2sp3g1"}},
    {.name = "put beside prefetches", .tiers = "D1H1F", .script = {"p1h1sg1", "p2p3"}},
    {.name = "flush and prefetch cross", .tiers = "D1H1S4", .script = {"h1p1p2sg1", "p3g3"}},
    {.name = "flush and prefetch cross, files",
     .tiers = "D1H1F",
     .script = {"h1p1p2sg1", "p3"},
     .durable = true},
    {.name = "hints deviated from", .tiers = "D1H1F", .script = {"h1h2h3p1p2p3sg2g1g3"}},
    {.name = "hints cleared", .tiers = "D1H1F", .script = {"h1h2p1p2p3scg3h1g1"}},
    {.name = "one version hinted twice", .tiers = "D1H1F", .script = {"h1h2h1p1p2sg1g2g1"}},
    {.name = "discard and write again",
     .tiers = "D1H1F",
     .script = {"p1d1p1g1d1p1a"},
     .durable = true},
    {.name = "discard what is hinted", .tiers = "D1H1F", .script = {"h1h2p1p2sd1p1g1g2"}},
    {.name = "discard while others read", .tiers = "D1H1F", .script = {"p1p2x1x2", "y1y2"}},
    {.name = "discard while others read, spilled",
     .tiers = "H1S2",
     .script = {"p1p2x1x2", "y1y2p3"}},
    {.name = "consume once",
     .tiers = "D1H1F",
     .script = {"h2h1p1p2sg2g1p3g3"},
     .consume_once = true},
    {.name = "keep one", .tiers = "H1F", .script = {"p1p2p3ax1x3"}, .keep = 1, .durable = true},
    {.name = "wait for durable", .tiers = "D1H1F", .script = {"p1p2w1", "p3w3"}, .durable = true},
    {.name = "two readers of one version", .tiers = "D1H1F", .script = {"p1p2g1", "x1x2"}},
    {.name = "two pages, partly resident", .tiers = "D2H2F", .script = {"P1P2p3g1g2"}},
    {.name = "two pages through one host page", .tiers = "D2H1F", .script = {"h1h2P1P2sg1g2"}},
    {.name = "larger than every memory tier",
     .tiers = "D1H1F",
     .script = {"P1p2g1g2"},
     .durable = true},
    {.name = "no host pages but transit", .tiers = "D1H0F", .script = {"p1p2h1sg2g1"}},
    {.name = "nothing but transit", .tiers = "H0F", .script = {"p1P2g1g2"}, .durable = true},
    {.name = "past the host", .tiers = "D1H0F+", .script = {"p1p2h1sg2g1"}},
    {.name = "past the host, spilled", .tiers = "D2H1S6+", .script = {"h1h2P1P2sg1", "p3g3"}},
    {.name = "past the host, files",
     .tiers = "D2H1F+",
     .script = {"h1P1P2sg1", "p3"},
     .durable = true},
    {.name = "larger than every memory tier, past the host",
     .tiers = "D1H1F+",
     .script = {"P1p2g1g2"},
     .durable = true},
    {.name = "a put waits for its page", .tiers = "h2", .script = {"p1p2g1g2"}},
    {.name = "a put waits for a page that never comes",
     .tiers = "h2",
     .script = {"p1p2x1x2"},
     .may_be_full = true,
     .may_stop = true},
    {.name = "the host grows beneath the device", .tiers = "D1h2", .script = {"p1p2p3g1g2g3"}},
    {.name = "the host grows, two pages",
     .tiers = "D2h3F",
     .script = {"P1P2g1g2"},
     .durable = true,
     .may_stop = true},
    {.name = "larger than the device, the host grows",
     .tiers = "D1h3F",
     .script = {"P1p2g1g2"},
     .may_stop = true},
    {.name = "prefetches while the host grows",
     .tiers = "D1h2F",
     .script = {"h1h2p1p2sg1", "p3g3"},
     .may_stop = true},
    {.name = "the host grows above the spill",
     .tiers = "D1h1S3",
     .script = {"p1p2p3g1g2"},
     .may_stop = true},
    {.name = "pages go when they are written",
     .tiers = "H2W",
     .script = {"P1P2g1g2"},
     .durable = true},
    {.name = "pages go, and waits try again",
     .tiers = "H2W",
     .script = {"P1P2w1w2x1x2"},
     .durable = true},
    {.name = "pages go from the device too",
     .tiers = "D2H1W",
     .script = {"P1P2w1x1d1"},
     .durable = true},
    {.name = "ordered by a stream", .tiers = "D1H1F", .script = {"o1o2W1g1W2g2"}},
    {.name = "ordered and discarded", .tiers = "D1H1S4", .script = {"o1y1o2W2x2", "y2p3"}},
    {.name = "a lease between puts", .tiers = "H2S4", .script = {"p1lp2p3ug1g2"}},
    {.name = "lent where it is", .tiers = "D2H1F", .script = {"p1i1p2p3d1ug2g3"}},
    {.name = "a version of a lease", .tiers = "D2H2S4", .script = {"lp1q2x2g1", "p3"}},
    {.name = "a lease beside prefetches", .tiers = "D2H1F", .script = {"h1p1p2sg1", "lu"}},
    {.name = "parts and pages", .tiers = "H2S6*", .script = {"p1p2P3g1", "P4g4"}},
    {.name = "parts, flushed and prefetched",
     .tiers = "D1H1S6*",
     .script = {"h1h2p1p2P3sg1g2", "P4"}},
    {.name = "parts, files", .tiers = "D1H1F*", .script = {"p1P2p3g1g3"}, .durable = true},
    {.name = "ahead: parts", .tiers = "D2H2S6*", .script = {"p1P2A3A4W4R1R3", "x2"}},
    {.name = "ahead: all fits", .tiers = "D2H2", .script = {"A1A2W2R2R1"}},
    {.name = "ahead: a victim of its own", .tiers = "D1H2", .script = {"A1A2W2R2R1"}},
    {.name = "ahead: consumed once",
     .tiers = "D2H3",
     .script = {"h3h2h1A1A2A3W3R3R2R1"},
     .consume_once = true},
    {.name = "ahead: two rounds",
     .tiers = "D1H2",
     .script = {"h2h1A1A2W2R2R1A3A4W4R4R3"},
     .consume_once = true},
    {.name = "ahead: two pages, hints",
     .tiers = "D2H4",
     .script = {"h2h1B1B2W2R2R1"},
     .consume_once = true},
    {.name = "ahead: kept", .tiers = "D1H3", .script = {"h1h2A1A2A3W3R1R2R3"}},
    {.name = "ahead: larger than the device", .tiers = "D1H4", .script = {"B1A2W2R1"}},
    {.name = "ahead: finished victims", .tiers = "D1H3", .script = {"p1A2A3W3R2x1"}},
    {.name = "ahead: files", .tiers = "D1H2F", .script = {"h2h1A1A2A3W3sR2R1"}, .durable = true},
    {.name = "ahead: spilled", .tiers = "D1H1S4", .script = {"A1A2A3W3R2R1"}},
    {.name = "ahead: discarded", .tiers = "D1H2", .script = {"A1y1A2A1W1R1", "y2x1"}},
    {.name = "ahead: victims of another stream", .tiers = "D1H3", .script = {"A1W1R1", "A2W2R2"}},
    {.name = "ahead: read by two streams", .tiers = "D2H3", .script = {"p1R1A3W3", "x1A2W2R2"}},
    {.name = "ahead: streams wait for threads", .tiers = "D1H4", .script = {"A1KA2A3", "A4A5"}},
    {.name = "ahead: a stream waits for a blocking thread",
     .tiers = "D1H4",
     .script = {"h1A1KA2A3", "p4p5g4x5"}},
    {.name = "ahead: a stream waits for a reader",
     .tiers = "D3H6",
     .script = {"h4h5h2h1p1p2KA3A4A5", "x2"}},
    {.name = "ahead: a stream waits for a reader of what it fetches",
     .tiers = "D1H3",
     .script = {"h1A1A2W2KR2", "x1"},
     .consume_once = true},
    {.name = "ahead: a reader of what a full lane is to fetch",
     .tiers = "D1H3",
     .script = {"h1A1A2W2NR2", "x1"},
     .consume_once = true},
    {.name = "puts beside prefetches",
     .tiers = "D1H1F",
     .script = {"p1p2h1h2sg2", "p3p4"},
     .long_only = true},
    {.name = "flushes and prefetches cross",
     .tiers = "D1H1S4",
     .script = {"h1h2p1p2sg1g2", "p3p4g3"},
     .long_only = true},
    {.name = "flushes and prefetches cross, files",
     .tiers = "D1H1F",
     .script = {"h1h2p1p2sg1g2", "p3p4g3"},
     .durable = true,
     .long_only = true},
    {.name = "two pages, two threads",
     .tiers = "D2H2F",
     .script = {"h1h3P1P2sg1", "P3g3"},
     .long_only = true},
    {.name = "four objects, two threads",
     .tiers = "D1H1F",
     .script = {"h1h2p1p2sg1g2", "h3h4p3p4g4g3"},
     .long_only = true},
    {.name = "three writers' worth",
     .tiers = "D1H2S4",
     .script = {"h1h2h3p1p2p3sg1g2", "p4p5g4d5"},
     .long_only = true},
};

struct thread {
    const char *at;
    struct drive_call call;
    char step;                              /* in progress; 0: none */
    struct drive_call ordered[MAX_ORDERED]; /* calls that a stream orders, ended or not */
    char letter[MAX_ORDERED];
    unsigned nordered;
    bool held; /* its stream waits for the other thread */
    struct drive_lend lend;
};

/* One run of a configuration, from its start. */
struct run {
    const struct config *cfg;
    struct drive d;
    uint32_t hist;
    struct thread thread[MAX_THREADS];
    unsigned failures_left, failures;
};

struct choice {
    uint16_t kind; /* 0: thread, 1: order ends well, 2: order fails, 3: tier grows, 4: and stops */
    uint16_t which;
};

/* ---- a set of digests ---- */

static uint64_t *seen;
static size_t seen_cap, nseen;

static bool seen_add(uint64_t d)
{
    size_t i;

    d += d == 0;
    if (nseen * 2 >= seen_cap) {
        size_t old = seen_cap;
        uint64_t *from = seen;
        seen_cap = old ? old * 2 : 4096;
        seen = calloc(seen_cap, sizeof(*seen));
        T_CHECK(seen);
        for (size_t k = 0; k < old; k++)
            if (from[k]) {
                for (i = from[k] & (seen_cap - 1); seen[i]; i = (i + 1) & (seen_cap - 1))
                    ;
                seen[i] = from[k];
            }
        free(from);
    }
    for (i = d & (seen_cap - 1); seen[i]; i = (i + 1) & (seen_cap - 1))
        if (seen[i] == d)
            return false;
    seen[i] = d;
    nseen++;
    return true;
}

/* ---- one run ---- */

struct level {
    struct choice choice[MAX_THREADS + 2 * DRIVE_MAX_ORDERS + 2 * VV_MAX_TIERS];
    unsigned n, next;
};

static struct level *stack;
static unsigned path_depth; /* choices taken so far */

static void broken(const struct run *r, const char *text)
{
    fprintf(stderr, "%s, tiers %s, policy %s\nscripts: %s %s\nchoices: ", r->cfg->name,
            r->cfg->tiers, vv_policy_name(r->d.cfg.policy), r->cfg->script[0],
            r->cfg->script[1] ? r->cfg->script[1] : "");
    for (unsigned i = 0; i < path_depth; i++) {
        struct choice c = stack[i].choice[stack[i].next - 1];
        fprintf(stderr, "%c%u ", "tefgs"[c.kind], c.which);
    }
    fprintf(stderr, "\n");
    t_fail(__FILE__, __LINE__, "%s", text);
}

static const struct run *current;

static void on_assert(const char *file, int line, const char *text)
{
    char buffer[400];

    snprintf(buffer, sizeof(buffer), "%s:%d: %s", file, line, text);
    broken(current, buffer);
}

static void run_start(struct run *r, const struct config *cfg, enum vv_policy policy,
                      unsigned failures)
{
    struct vv_core_cfg core_cfg;

    memset(r->thread, 0, sizeof(r->thread));
    r->failures = 0;
    current = r;
    r->cfg = cfg;
    r->failures_left = failures;
    drive_cfg(&core_cfg, cfg->tiers, policy);
    drive_init(&r->d, &core_cfg);
    r->hist = drive_history(&r->d, cfg->consume_once, cfg->keep,
                            cfg->durable ? VV_CORE_DURABLE : VV_CORE_CACHED);
    for (int i = 0; i < MAX_THREADS; i++)
        r->thread[i].at = cfg->script[i] ? cfg->script[i] : "";
}

static void judge(const struct run *r, char step, uint64_t version, int status)
{
    char text[100];

    if (status == 0 || (r->failures && status != -EINPROGRESS))
        return;
    if (strchr("pP", step) && r->cfg->may_be_full && (status == -ENOSPC || status == -EFBIG))
        return;
    if (strchr("xyWi", step) && status == -ENOENT)
        return;
    /* Versions overwritten or discarded while a stream has still to write or read them. */
    if (strchr("ABR", step) && (status == -ECANCELED || status == -ENOENT) &&
        (strchr(r->cfg->script[0], 'y') || strchr(r->cfg->script[0], 'd')))
        return;
    if (strchr("li", step) && (status == -ENOSPC || (step == 'i' && status == -EAGAIN)))
        return;
    snprintf(text, sizeof(text), "step %c%llu got %s", step, (unsigned long long)version,
             t_errname(status));
    broken(r, text);
}

/* Steps that lend. A thread has one lend at a time, and goes on if a step does not apply. */
static int lend_step(struct run *r, struct thread *th, char step, uint64_t version)
{
    struct drive_lend *lend = &th->lend;
    bool mine = lend->used, lease = mine && lend->lend.lease;

    switch (step) {
    case 'l':
        return mine ? -ENOSPC : drive_lease(&r->d, &th->call, lend, r->hist, 1);
    case 'i':
        return mine ? -EAGAIN : drive_lend(&r->d, lend, r->hist, version, 0, 1);
    case 'q':
        return lease ? drive_put_lent(&r->d, &th->call, &lend, 1, r->hist, version, DRIVE_PAGE) : 0;
    default:
        if (mine)
            drive_unlend(&r->d, lend);
        return 0;
    }
}

static void give_back(struct run *r)
{
    for (int i = 0; i < MAX_THREADS; i++)
        if (r->thread[i].lend.used)
            drive_unlend(&r->d, &r->thread[i].lend);
}

static bool on_stream(char step)
{
    return step && strchr("oABR", step);
}

/* A call ordered by the thread's own stream. */
static int stream_step(struct run *r, struct thread *th, char step, uint64_t version)
{
    struct drive *d = &r->d;
    struct drive_call *call = &th->ordered[th->nordered];
    int rc;

    T_CHECK(th->nordered < MAX_ORDERED);
    th->letter[th->nordered++] = step;
    d->ordered = true;
    d->stream = step == 'o' ? 0 : 1 + (uint64_t)(th - r->thread);
    rc = step == 'R'
             ? drive_get(d, call, r->hist, version)
             : drive_put(d, call, r->hist, version, step == 'B' ? DRIVE_PAGE + 100 : DRIVE_PAGE);
    d->ordered = false;
    d->stream = 0;
    return rc;
}

static void thread_step(struct run *r, struct thread *th)
{
    char step = *th->at++;
    uint64_t version = *th->at >= '0' && *th->at <= '9' ? (uint64_t)(*th->at++ - '0') : 0;
    struct drive *d = &r->d;
    int rc = 0;

    th->call.pending = false;
    th->call.req.status = 0;
    switch (step) {
    case 'o':
    case 'A':
    case 'B':
    case 'R':
        rc = stream_step(r, th, step, version);
        break;
    case 'K':
    case 'N':
        drive_hold(d, 1 + (uint64_t)(th - r->thread), step == 'N');
        th->held = true;
        break;
    case 'W':
        rc = drive_wait(d, &th->call, r->hist, version, VV_CORE_CACHED);
        break;
    case 'l':
    case 'i':
    case 'q':
    case 'u':
        rc = lend_step(r, th, step, version);
        break;
    case 'p':
    case 'P':
        rc = drive_put(d, &th->call, r->hist, version, step == 'p' ? DRIVE_PAGE : DRIVE_PAGE + 100);
        break;
    case 'g':
    case 'x':
        rc = drive_get(d, &th->call, r->hist, version);
        break;
    case 'w':
        rc = drive_wait(d, &th->call, r->hist, version, VV_CORE_DURABLE);
        break;
    case 'a':
        rc = drive_wait_all(d, &th->call, r->hist);
        break;
    case 'h':
        rc = drive_hint(d, r->hist, version);
        break;
    case 'c':
        drive_hint_clear(d, r->hist);
        break;
    case 's':
        drive_start(d, r->hist);
        break;
    case 'd':
    case 'y':
        rc = drive_discard(d, r->hist, version);
        break;
    }
    th->step = step;
    if (rc < 0 || !strchr("pPgxwaoWlqABR", step)) {
        judge(r, step, version, rc);
        th->step = 0;
    }
}

/* Checks the result of a call that ended well. */
static void check_promise(const struct run *r, const struct thread *th)
{
    struct vv_object_info info;

    if (th->call.req.status != 0 || vv_core_lookup(r->d.core, r->hist, th->call.version, &info) < 0)
        return;
    if (th->step == 'w' && !info.durable)
        broken(r, "a wait for durable ended before the version was");
    if (strchr("gx", th->step) && r->cfg->consume_once && info.generation == th->call.generation)
        broken(r, "a version is still there after it was consumed");
}

/* A put that a stream orders blocks its thread only until all its orders are out. */
static bool holds_up(const struct thread *th)
{
    const struct drive_call *last = on_stream(th->step) ? &th->ordered[th->nordered - 1] : NULL;

    return last ? last->pending && last->req.unissued > 0 : th->call.pending;
}

/* Releases streams that wait for a thread that has finished. */
static void let_go(struct run *r)
{
    for (int i = 0; i < MAX_THREADS; i++) {
        struct thread *th = &r->thread[i], *other = &r->thread[1 - i];
        if (!th->held || other->step || *other->at)
            continue;
        th->held = false;
        drive_let_go(&r->d, 1 + (uint64_t)i);
    }
}

static void after(struct run *r)
{
    for (int i = 0; i < MAX_THREADS; i++) {
        struct thread *th = &r->thread[i];
        if (!th->step || holds_up(th))
            continue;
        if (on_stream(th->step)) {
            th->step = 0;
            continue;
        }
        judge(r, th->step, th->call.version, th->call.req.status);
        check_promise(r, th);
        th->step = 0;
    }
    let_go(r);
}

static bool blocked(const struct run *r)
{
    for (int i = 0; i < MAX_THREADS; i++)
        if (r->thread[i].step)
            return true;
    return false;
}

static void take(struct run *r, struct choice c)
{
    struct vv_core_stats before, now;
    bool was_blocked = blocked(r);

    vv_core_get_stats(r->d.core, &before);
    if (c.kind == 0) {
        thread_step(r, &r->thread[c.which]);
    } else if (c.kind == 3) {
        drive_grow(&r->d, c.which);
    } else if (c.kind == 4) {
        drive_grow_stop(&r->d, c.which);
    } else {
        r->failures_left -= c.kind == 2;
        r->failures += c.kind == 2;
        drive_end(&r->d, c.which, c.kind == 2 ? -EIO : 0);
    }
    vv_core_get_stats(r->d.core, &now);
    /* `next` may give up a copy wanted later for one wanted earlier, `score` has chosen a
     * window. */
    if (r->d.cfg.policy > VV_POLICY_SCORE && c.kind != 0 && !was_blocked &&
        now.revoked_pages > before.revoked_pages)
        broken(r, "a claimed copy was taken while no thread was blocked");
    after(r);
}

static unsigned choices(const struct run *r, struct choice *ret)
{
    unsigned n = 0;

    for (uint16_t i = 0; i < MAX_THREADS; i++)
        if (!r->thread[i].step && *r->thread[i].at)
            ret[n++] = (struct choice){.kind = 0, .which = i};
    for (uint16_t i = 0; i < r->d.norders; i++)
        if (drive_may_end(&r->d, i))
            ret[n++] = (struct choice){.kind = 1, .which = i};
    for (uint16_t i = 0; r->failures_left && i < r->d.norders; i++)
        if (drive_may_end(&r->d, i))
            ret[n++] = (struct choice){.kind = 2, .which = i};
    for (uint16_t t = 0; t < r->d.cfg.ntiers && drive_growing(&r->d); t++) {
        if (!r->d.cfg.tier[t].grows)
            continue;
        ret[n++] = (struct choice){.kind = 3, .which = t};
        if (r->cfg->may_stop)
            ret[n++] = (struct choice){.kind = 4, .which = t};
    }
    return n;
}

static uint64_t digest(const struct run *r)
{
    uint64_t d = drive_digest(&r->d);

    for (int i = 0; i < MAX_THREADS; i++) {
        const struct thread *th = &r->thread[i];
        d = d * 31 + (uint64_t)(th->at - (r->cfg->script[i] ? r->cfg->script[i] : th->at));
        d = d * 31 + (uint64_t)th->step;
        d = d * 31 + (th->step ? th->call.delivered : 0);
        d = d * 31 + th->held;
        d = d * 31 + (th->lend.used ? 1 + th->lend.lend.first_page : 0);
        for (unsigned k = 0; k < th->nordered; k++)
            d = d * 31 + th->ordered[k].pending + 2 * th->ordered[k].delivered;
    }
    return d * 31 + r->failures;
}

static void check_state(const struct run *r)
{
    const char *wrong = vv_core_check(r->d.core);
    struct vv_core_stats stats;
    uint64_t capacity;

    if (wrong)
        broken(r, wrong);
    if (r->d.wrong[0])
        broken(r, r->d.wrong);
    vv_core_get_stats(r->d.core, &stats);
    capacity = r->d.cfg.tier[r->d.cfg.ntiers - 1].capacity_bytes;
    if (r->d.cfg.tier[r->d.cfg.ntiers - 1].kind == VV_TIER_FILES && capacity &&
        stats.files_bytes > capacity)
        broken(r, "the files tier holds more than its capacity");
}

/* All scripts have ended: every version that exists can be restored. */
static void check_end(struct run *r)
{
    struct drive_call call;

    for (int i = 0; i < MAX_THREADS; i++)
        if (r->thread[i].step)
            broken(r, "a thread is blocked and no choice is left");
    if (r->d.norders)
        broken(r, "orders on streams wait for each other");
    for (int i = 0; i < MAX_THREADS; i++)
        for (unsigned k = 0; k < r->thread[i].nordered; k++)
            if (r->thread[i].letter[k] != 'o' && !r->thread[i].ordered[k].pending)
                judge(r, r->thread[i].letter[k], r->thread[i].ordered[k].version,
                      r->thread[i].ordered[k].req.status);
    give_back(r);
    for (uint64_t v = 0; v < 10; v++) {
        int rc = drive_get(&r->d, &call, r->hist, v);
        if (rc == 0)
            rc = drive_finish(&r->d, &call);
        if (rc != 0 && rc != -ENOENT)
            broken(r, "a version cannot be restored in the end");
        check_state(r);
    }
}

/* ---- the search ---- */

static void drive_let_all_go(struct drive *d)
{
    for (uint64_t stream = 1; stream <= MAX_THREADS; stream++)
        drive_let_go(d, stream);
}

static void run_again(struct run *r, enum vv_policy policy, unsigned failures, unsigned depth)
{
    const struct config *cfg = r->cfg;

    drive_let_all_go(&r->d);
    drive_run(&r->d);
    give_back(r);
    if (r->d.wrong[0])
        broken(r, r->d.wrong);
    drive_fini(&r->d);
    run_start(r, cfg, policy, failures);
    for (unsigned i = 0; i < depth; i++)
        take(r, stack[i].choice[stack[i].next - 1]);
}

static size_t explore(const struct config *cfg, enum vv_policy policy, unsigned failures,
                      size_t most)
{
    static struct run r;
    unsigned depth = 0;
    bool fresh = true; /* the run stands where the stack says */

    nseen = 0;
    if (seen)
        memset(seen, 0, seen_cap * sizeof(*seen));
    run_start(&r, cfg, policy, failures);
    seen_add(digest(&r));
    stack[0].n = choices(&r, stack[0].choice);
    stack[0].next = 0;
    for (;;) {
        struct level *l = &stack[depth];
        if (l->next == l->n || nseen > most) {
            if (depth == 0)
                break;
            depth--;
            fresh = false;
            continue;
        }
        if (!fresh)
            run_again(&r, policy, failures, depth);
        l->next++;
        path_depth = depth + 1;
        take(&r, l->choice[l->next - 1]);
        fresh = false;
        check_state(&r);
        if (!seen_add(digest(&r)))
            continue;
        T_CHECK(depth + 1 < MAX_DEPTH);
        depth++;
        stack[depth].n = choices(&r, stack[depth].choice);
        stack[depth].next = 0;
        fresh = true;
        if (stack[depth].n == 0) {
            check_end(&r);
            fresh = false;
        }
    }
    drive_let_all_go(&r.d);
    drive_run(&r.d);
    give_back(&r);
    drive_fini(&r.d);
    return nseen;
}

static void explore_all(unsigned failures, size_t most)
{
    size_t total = 0;

    for (size_t i = 0; i < VV_ARRAY_SIZE(configs); i++) {
        const struct config *cfg = &configs[i];
        char line[200];
        size_t at = 0;
        if (cfg->long_only && !t_long())
            continue;
        for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
            /* Only `next` plans ahead. */
            if (strncmp(cfg->name, "ahead", 5) == 0 && policy != VV_POLICY_NEXT)
                continue;
            size_t n = explore(cfg, (enum vv_policy)policy, failures, most);
            total += n;
            at += (size_t)snprintf(line + at, sizeof(line) - at, " %s %zu%s",
                                   vv_policy_name((enum vv_policy)policy), n, n > most ? "+" : "");
        }
        t_note("%-36s states:%s", cfg->name, line);
    }
    t_note("%zu states in all, %u failure%s allowed in each run", total, failures,
           failures == 1 ? "" : "s");
}

static void all_end_well(void)
{
    /* Sanitizers examine what the code does in a state, however it was reached. */
    explore_all(0, t_cases(t_sanitized() ? 4000 : 15000, 300000));
}

static void one_order_fails(void)
{
    explore_all(1, t_cases(400, 100000));
}

static void two_orders_fail(void)
{
    explore_all(2, 30000);
}

int main(void)
{
    stack = calloc(MAX_DEPTH, sizeof(*stack));
    T_CHECK(stack);
    vv_assert_set_handler(on_assert);
    T_RUN(all_end_well);
    T_RUN(one_order_fails);
    if (t_long())
        T_RUN(two_orders_fail);
    free(stack);
    free(seen);
    return t_done();
}
