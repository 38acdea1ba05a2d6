/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From records to a timeline, in one pass over the records by time and one over the spans.
 *
 * Each thread of the application has a small state: it is in a call or not, and in a stack of phases. At every change the
 * time since the last one becomes a span, so the spans of the thread's first row cover it from its first event to its last
 * without gap or overlap. Copies and commits are matched by their data, because they may begin in one thread and end in
 * another.
 *
 * Records may be missing: lost, before the trace began, or after its end. A call whose start is missing begins at its
 * thread's last known event; a second start ends an open call. A copy without an end was in flight when the trace stopped,
 * and is drawn to there, but only if nothing was lost and the file was not closed: otherwise only the end record is
 * missing, and the copy is left out. Records are not trusted: numbers out of range become "?" or are skipped.
 */
#include "trace/timeline.h"

#include <errno.h>
#include <stdio.h>

#include "base/config.h"
#include "trace/map.h"
#include "trace/pool.h"

enum { ROWS_MAX = 64, PHASES_MAX = 64 };

/* A span that is being built, and its lane. */
struct draft {
    struct vv_span span;
    uint32_t lane;
    uint32_t below; /* another open span with the same key */
};

struct phase {
    uint64_t start_ns;
    const char *name;
};

struct thread {
    uint32_t number, role;
    const char *name;
    uint32_t lane;             /* VVI_MAP_NONE: it has none */
    bool seen;                 /* an event made it visible in a lane: the fields below are valid */
    uint64_t since_ns;         /* start of its current activity */
    uint64_t last_ns;          /* its last event */
    uint64_t last_call_end_ns; /* 0: none yet */
    bool in_call;
    struct vv_span call;
    uint32_t call_number;
    uint64_t distance;
    struct phase *phase; /* PHASES_MAX of them, once it has one */
    unsigned nphases, too_deep;
};

struct lane {
    struct vv_lane lane;
    size_t nspans;
};

struct vvi_timeline_arena {
    struct vvi_pool pool;
    struct vvi_list drafts, spans, lanes, lanes_out, threads, iterations, histories, occupancy;
};

struct occupancy {
    struct vv_occupancy o;
    struct vvi_list points;
};

struct build {
    struct vv_timeline *t;
    struct vvi_timeline_arena *a;
    const struct vv_trace_file *file;
    struct vvi_map threads, lanes, copies, commits, histories, occupancy;
    struct vvi_list points; /* struct occupancy: points until they are copied */
    bool restoring;         /* a restore has begun */
    bool failed;            /* not enough memory */
};

const char *vv_span_kind_name(enum vv_span_kind kind)
{
    static const char *const names[] = {"compute", "blocked write", "blocked read", "blocked other",
                                        "copy",    "commit",        "phase"};
    return (unsigned)kind < VV_ARRAY_SIZE(names) ? names[kind] : "?";
}

static void *out_of_memory(struct build *b)
{
    b->failed = true;
    return NULL;
}

static const char *text(struct build *b, const char *s)
{
    char *copy = vvi_pool_text(&b->a->pool, s, strlen(s));

    if (!copy)
        b->failed = true;
    return copy ? copy : "";
}

/* ---- names ---- */

static const char *meta(const struct vv_trace_file *f, uint32_t context, const char *what,
                        uint64_t number, const char *more)
{
    char key[64];

    snprintf(key, sizeof(key), "%s.%llu%s", what, (unsigned long long)number, more);
    return vv_trace_file_meta(f, context, key);
}

static const char *hop_name(const struct build *b, uint32_t context, uint32_t hop)
{
    const char *name = meta(b->file, context, "hop", hop, "");

    return name ? name : "?";
}

static const char *hop_text(const char *name)
{
#define X(hop, words)            \
    if (strcmp(name, #hop) == 0) \
        return words;
    VV_CONFIG_HOPS(X)
#undef X
    return "";
}

const char *vv_timeline_tier(const struct vv_timeline *t, uint32_t context, int tier)
{
    const char *kind = tier < 0 ? NULL : meta(t->file, context, "tier", (uint64_t)tier, "");

    if (tier == -1)
        return "application";
    if (tier == VV_TRACE_TIER_FILE || tier == VV_TRACE_TIER_REMOTE)
        return tier == VV_TRACE_TIER_FILE ? "disk" : "remote";
    if (!kind)
        return "?";
    return strcmp(kind, "spill") == 0 || strcmp(kind, "files") == 0 ? "disk" : kind;
}

const char *vv_timeline_history(const struct vv_timeline *t, uint64_t history, uint64_t time_ns)
{
    for (size_t i = t->nhistories; i-- > 0;) {
        const struct vv_trace_history *h = &t->histories[i];
        if (h->history == history && h->start_ns <= time_ns && time_ns <= h->end_ns)
            return h->name;
    }
    return "?";
}

/* ---- objects by their keys ---- */

static struct thread *thread_of(struct build *b, uint32_t number)
{
    struct vvi_map_key key = {{number}};
    uint32_t i = vvi_map_get(&b->threads, key);

    if (i != VVI_MAP_NONE)
        return &((struct thread *)b->a->threads.v)[i];
    i = (uint32_t)b->a->threads.n;
    struct thread *t = vvi_list_add(&b->a->threads, sizeof(*t), 1);
    if (!t || !vvi_map_put(&b->threads, key, i))
        return out_of_memory(b);
    memset(t, 0, sizeof(*t));
    t->number = number;
    t->name = "";
    t->lane = VVI_MAP_NONE;
    t->distance = VV_NO_DISTANCE;
    return t;
}

/* VVI_MAP_NONE: no memory. */
static uint32_t lane_of(struct build *b, enum vv_lane_kind kind, uint32_t a, uint32_t c)
{
    struct vvi_map_key key = {{kind, a, c}};
    uint32_t i = vvi_map_get(&b->lanes, key);

    if (i != VVI_MAP_NONE)
        return i;
    i = (uint32_t)b->a->lanes.n;
    struct lane *l = vvi_list_add(&b->a->lanes, sizeof(*l), 1);
    if (!l || !vvi_map_put(&b->lanes, key, i)) {
        b->failed = true;
        return VVI_MAP_NONE;
    }
    memset(l, 0, sizeof(*l));
    l->lane.kind = kind;
    l->lane.label = "";
    if (kind == VV_LANE_APP) {
        l->lane.thread = a;
    } else {
        l->lane.context = a;
        l->lane.hop = c;
    }
    return i;
}

static struct draft *draft_new(struct build *b, uint32_t lane)
{
    struct draft *d = lane == VVI_MAP_NONE || b->a->drafts.n >= VVI_MAP_NONE
                          ? NULL
                          : vvi_list_add(&b->a->drafts, sizeof(*d), 1);

    if (!d)
        return out_of_memory(b);
    memset(d, 0, sizeof(*d));
    d->lane = lane;
    d->below = VVI_MAP_NONE;
    d->span.name = "";
    d->span.src_tier = d->span.dst_tier = -1;
    return d;
}

/* ---- threads of the application ---- */

/* Handles the thread's first visible event: it has a lane from now on. */
static void thread_begin(struct build *b, struct thread *t, uint64_t now)
{
    if (!t->seen) {
        t->seen = true;
        t->since_ns = t->last_ns = now;
        t->lane = lane_of(b, VV_LANE_APP, t->number, 0);
    }
}

/* Ends the thread's current time outside of the library. */
static void compute_ends(struct build *b, struct thread *t, uint64_t now)
{
    if (t->in_call || now <= t->since_ns)
        return;
    struct draft *d = draft_new(b, t->lane);
    if (!d)
        return;
    d->span.start_ns = t->since_ns;
    d->span.end_ns = now;
    d->span.kind = VV_SPAN_COMPUTE;
    if (t->nphases > 0)
        d->span.name = t->phase[t->nphases - 1].name;
    else if (!b->t->phased)
        d->span.name = b->restoring ? "backward" : "forward";
}

static void phase_begins(struct build *b, struct thread *t, uint64_t name, uint64_t now)
{
    thread_begin(b, t, now);
    /* Outside of phases the thread may be idle: draw only time within a phase. */
    if (t->nphases > 0 || t->last_call_end_ns > 0)
        compute_ends(b, t, now);
    if (!t->in_call)
        t->since_ns = now;
    if (!t->phase)
        t->phase = vvi_pool_alloc(&b->a->pool, PHASES_MAX * sizeof(*t->phase));
    b->failed |= !t->phase;
    if (!t->phase || t->nphases == PHASES_MAX) {
        t->too_deep++;
        return;
    }
    t->phase[t->nphases++] = (struct phase){now, vv_trace_file_name(b->file, name)};
}

static void phase_ends(struct build *b, struct thread *t, uint64_t now, bool cut)
{
    if (t->too_deep > 0) {
        t->too_deep--;
        return;
    }
    if (t->nphases == 0)
        return;
    compute_ends(b, t, now);
    if (!t->in_call)
        t->since_ns = now;
    const struct phase *p = &t->phase[--t->nphases];
    struct draft *d = draft_new(b, t->lane);
    if (!d)
        return;
    d->span.start_ns = p->start_ns;
    d->span.end_ns = now;
    d->span.kind = VV_SPAN_PHASE;
    d->span.row = (uint16_t)(t->nphases + 1);
    d->span.name = p->name;
    d->span.cut = cut;
}

static enum vv_span_kind call_kind(uint64_t call)
{
    enum { WRITE = VV_SPAN_WRITE, READ = VV_SPAN_READ, OTHER = VV_SPAN_OTHER };
    static const uint8_t kinds[] = {
#define X(name, words, waits) waits,
        VV_TRACE_CALLS(X)
#undef X
    };
    return call < VV_ARRAY_SIZE(kinds) ? (enum vv_span_kind)kinds[call] : VV_SPAN_OTHER;
}

static void iteration_add(struct build *b, struct thread *t)
{
    bool restore =
        t->call_number == VV_TRACE_CALL_RESTORE || t->call_number == VV_TRACE_CALL_ACQUIRE;

    if (!restore && t->call_number != VV_TRACE_CALL_CHECKPOINT &&
        t->call_number != VV_TRACE_CALL_COMMIT)
        return;
    struct vv_iteration *it = vvi_list_add(&b->a->iterations, sizeof(*it), 1);
    if (!it) {
        b->failed = true;
        return;
    }
    *it = (struct vv_iteration){
        .start_ns = t->call.start_ns,
        .end_ns = t->call.end_ns,
        .gap_ns = t->last_call_end_ns && t->call.start_ns > t->last_call_end_ns
                      ? t->call.start_ns - t->last_call_end_ns
                      : 0,
        .restore = restore,
        .call = t->call_number,
        .thread = t->number,
        .history = t->call.history,
        .version = t->call.version,
        .bytes = t->call.bytes,
        .distance = restore ? t->distance : VV_NO_DISTANCE,
        .status = t->call.status,
    };
}

/* Ends the open call; `end`: its end record, NULL if that is missing. */
static void call_ends(struct build *b, struct thread *t, const struct vv_trace_record *end,
                      uint64_t now)
{
    struct draft *d = draft_new(b, t->lane);

    t->in_call = false;
    t->call.end_ns = now;
    t->call.cut |= !end;
    if (end) {
        t->call.bytes = end->arg[3];
        t->call.status = (int32_t)end->arg[4];
    }
    if (d)
        d->span = t->call;
    if (end && d)
        iteration_add(b, t);
    t->since_ns = t->last_call_end_ns = now;
    t->distance = VV_NO_DISTANCE;
}

static void call_opens(struct thread *t, const struct vv_trace_record *r, uint64_t start_ns)
{
    t->in_call = true;
    t->call_number = (uint32_t)r->arg[0];
    t->call = (struct vv_span){.start_ns = start_ns,
                               .kind = (uint16_t)call_kind(r->arg[0]),
                               .name = vv_trace_call_name(t->call_number),
                               .history = r->arg[1],
                               .version = r->arg[2],
                               .src_tier = -1,
                               .dst_tier = -1};
}

static void on_call(struct build *b, struct thread *t, const struct vv_trace_record *r,
                    uint64_t now)
{
    bool fresh = !t->seen;

    thread_begin(b, t, now);
    if (r->kind == VV_TRACE_CALL_START) {
        if (t->in_call)
            call_ends(b, t, NULL, now);
        compute_ends(b, t, now);
        call_opens(t, r, now);
        b->restoring |= call_kind(r->arg[0]) == VV_SPAN_READ;
        return;
    }
    if (!t->in_call) {
        call_opens(t, r, fresh ? 0 : t->since_ns);
        t->call.cut = true;
    }
    call_ends(b, t, r, now);
}

/* At the end of the trace: ends the thread's call and phases. */
static void thread_ends(struct build *b, struct thread *t, uint64_t now)
{
    if (t->in_call)
        call_ends(b, t, NULL, now);
    while (t->nphases > 0 && !b->failed) {
        t->too_deep = 0;
        phase_ends(b, t, now, true);
    }
}

/* ---- copies and commits ---- */

static struct vvi_map_key copy_key(const struct vv_trace_record *r)
{
    return (struct vvi_map_key){{r->arg[0], r->arg[1], r->arg[2], r->arg[3]}};
}

static struct vvi_map_key commit_key(const struct vv_trace_record *r)
{
    return (struct vvi_map_key){{r->arg[0], r->arg[1]}};
}

/* The hop that writes files: its mover makes commits. */
static uint32_t commit_hop(const struct build *b, uint32_t context)
{
    for (uint32_t hop = 0; hop < 16; hop++)
        if (strcmp(hop_name(b, context, hop), "h2f") == 0)
            return hop;
    return 0;
}

static void transfer_starts(struct build *b, const struct vv_trace_record *r, uint64_t now)
{
    bool commit = r->kind == VV_TRACE_COMMIT_START;
    struct vvi_map *map = commit ? &b->commits : &b->copies;
    struct vvi_map_key key = commit ? commit_key(r) : copy_key(r);
    uint64_t history = r->arg[commit ? 0 : 1];
    uint32_t context = VV_TRACE_HISTORY_CONTEXT(history);
    uint32_t hop = commit ? commit_hop(b, context) : VV_TRACE_ROUTE_HOP(r->arg[0]);
    struct draft *d = draft_new(b, lane_of(b, VV_LANE_MOVER, context, hop));

    if (!d)
        return;
    d->span = (struct vv_span){.start_ns = now,
                               .end_ns = UINT64_MAX,
                               .kind = commit ? VV_SPAN_COMMIT : VV_SPAN_COPY,
                               .name = commit ? "commit" : hop_name(b, context, hop),
                               .history = history,
                               .version = r->arg[commit ? 1 : 2],
                               .bytes = r->arg[commit ? 2 : 4],
                               .src_tier = -1,
                               .dst_tier = -1};
    if (!commit) {
        d->span.src_tier = (int16_t)VV_TRACE_ROUTE_SRC(r->arg[0]);
        d->span.dst_tier = (int16_t)VV_TRACE_ROUTE_DST(r->arg[0]);
        d->span.up = d->span.dst_tier < d->span.src_tier;
    }
    d->below = vvi_map_get(map, key);
    if (!vvi_map_put(map, key, (uint32_t)(b->a->drafts.n - 1)))
        b->failed = true;
}

static void transfer_ends(struct build *b, const struct vv_trace_record *r, uint64_t now)
{
    bool commit = r->kind == VV_TRACE_COMMIT_END;
    struct vvi_map *map = commit ? &b->commits : &b->copies;
    struct vvi_map_key key = commit ? commit_key(r) : copy_key(r);
    uint32_t i = vvi_map_get(map, key);

    if (i == VVI_MAP_NONE)
        return;
    struct draft *d = &((struct draft *)b->a->drafts.v)[i];
    d->span.end_ns = VV_MAX(now, d->span.start_ns);
    d->span.status = (int32_t)r->arg[commit ? 2 : 4];
    if (d->below == VVI_MAP_NONE)
        vvi_map_remove(map, key);
    else
        vvi_map_put(map, key, d->below); /* the key exists: needs no memory */
}

/* ---- histories and tiers ---- */

static void history_opens(struct build *b, const struct vv_trace_record *r, uint64_t now)
{
    struct vvi_map_key key = {{r->arg[0]}};
    struct vv_trace_history *h = vvi_list_add(&b->a->histories, sizeof(*h), 1);

    if (!h || !vvi_map_put(&b->histories, key, (uint32_t)(b->a->histories.n - 1))) {
        b->failed = true;
        return;
    }
    *h = (struct vv_trace_history){r->arg[0], now, b->t->length_ns,
                                   vv_trace_file_name(b->file, r->arg[1])};
}

static void history_closes(struct build *b, const struct vv_trace_record *r, uint64_t now)
{
    uint32_t i = vvi_map_get(&b->histories, (struct vvi_map_key){{r->arg[0]}});

    if (i != VVI_MAP_NONE)
        ((struct vv_trace_history *)b->a->histories.v)[i].end_ns = now;
}

static void occupancy_changes(struct build *b, const struct vv_trace_record *r, uint64_t now)
{
    struct vvi_map_key key = {{(uint32_t)r->arg[0], (uint32_t)r->arg[1]}};
    uint32_t i = vvi_map_get(&b->occupancy, key);
    struct occupancy *o;

    if (i == VVI_MAP_NONE) {
        i = (uint32_t)b->points.n;
        o = vvi_list_add(&b->points, sizeof(*o), 1);
        if (!o || !vvi_map_put(&b->occupancy, key, i)) {
            b->points.n -= o != NULL;
            b->failed = true;
            return;
        }
        memset(o, 0, sizeof(*o));
        o->o.context = (uint32_t)r->arg[0];
        o->o.tier = (uint32_t)r->arg[1];
        const char *bytes = meta(b->file, o->o.context, "tier", o->o.tier, ".bytes");
        o->o.capacity_bytes = bytes ? strtoull(bytes, NULL, 10) : 0;
    }
    o = &((struct occupancy *)b->points.v)[i];
    struct vv_occupancy_point *p = vvi_list_add(&o->points, sizeof(*p), 1);
    if (!p) {
        b->failed = true;
        return;
    }
    *p = (struct vv_occupancy_point){now, r->arg[2]};
    o->o.peak_bytes = VV_MAX(o->o.peak_bytes, r->arg[2]);
}

/* ---- the pass over the records ---- */

static void on_record(struct build *b, const struct vv_trace_record *r)
{
    struct vv_timeline_totals *sum = &b->t->totals;
    uint64_t now = r->time_ns - b->t->origin_ns;
    struct thread *t = thread_of(b, r->thread);

    if (!t)
        return;
    switch (r->kind) {
    case VV_TRACE_THREAD:
        t->name = vv_trace_file_name(b->file, r->arg[0]);
        t->role = (uint32_t)r->arg[1];
        break;
    case VV_TRACE_CALL_START:
    case VV_TRACE_CALL_END:
        on_call(b, t, r, now);
        break;
    case VV_TRACE_PHASE_BEGIN:
        phase_begins(b, t, r->arg[0], now);
        break;
    case VV_TRACE_PHASE_END:
        phase_ends(b, t, now, false);
        break;
    case VV_TRACE_DISTANCE:
        t->distance = r->arg[2];
        break;
    case VV_TRACE_COPY_START:
    case VV_TRACE_COMMIT_START:
        transfer_starts(b, r, now);
        break;
    case VV_TRACE_COPY_END:
    case VV_TRACE_COMMIT_END:
        transfer_ends(b, r, now);
        break;
    case VV_TRACE_OCCUPANCY:
        occupancy_changes(b, r, now);
        break;
    case VV_TRACE_HISTORY_OPEN:
        history_opens(b, r, now);
        break;
    case VV_TRACE_HISTORY_CLOSE:
        history_closes(b, r, now);
        break;
    case VV_TRACE_ERROR:
        sum->errors++;
        break;
    case VV_TRACE_EVICT:
        sum->evicted_pages += r->arg[4];
        break;
    case VV_TRACE_DISCARD:
        sum->discards++;
        break;
    case VV_TRACE_HINT:
        sum->hints++;
        break;
    default:
        break;
    }
}

/* ---- the pass over the spans ---- */

/* Draws spans without an end to the end of the trace, or leaves them out: see above. */
static void settle_open(struct build *b)
{
    struct draft *d = b->a->drafts.v;
    bool broke_off = !b->file->complete && b->file->lost == 0;
    size_t n = 0;

    for (size_t i = 0; i < b->a->drafts.n; i++) {
        if (d[i].span.end_ns == UINT64_MAX) {
            if (!broke_off)
                continue;
            d[i].span.end_ns = b->t->length_ns;
            d[i].span.cut = true;
        }
        d[n++] = d[i];
    }
    b->a->drafts.n = n;
}

static int by_lane_and_start(const void *x, const void *y)
{
    const struct draft *a = x, *b = y;

    if (a->lane != b->lane)
        return a->lane < b->lane ? -1 : 1;
    if (a->span.start_ns != b->span.start_ns)
        return a->span.start_ns < b->span.start_ns ? -1 : 1;
    if (a->span.row != b->span.row)
        return a->span.row < b->span.row ? -1 : 1;
    /* A span of length 0 comes before others that begin at the same time. */
    return a->span.end_ns < b->span.end_ns ? -1 : a->span.end_ns > b->span.end_ns;
}

/* Assigns rows to a mover's spans, so that none overlaps another; beyond ROWS_MAX they do. */
static void assign_row(uint64_t *row_end, unsigned *rows, struct vv_span *s)
{
    unsigned row = 0;

    while (row < *rows && row_end[row] > s->start_ns && row < ROWS_MAX - 1)
        row++;
    *rows = VV_MAX(*rows, row + 1);
    row_end[row] = s->end_ns;
    s->row = (uint16_t)row;
}

/* Computes the time in which commits were pending and nothing was copied. Spans come in the order of their start, so
 * everything before the start of the current span is final. */
struct alone {
    uint64_t commit_from, commit_to; /* pending; not yet counted from here on */
    uint64_t copy_to;
    uint64_t ns;
};

static void alone_until(struct alone *a, uint64_t now)
{
    uint64_t from = VV_MAX(a->commit_from, a->copy_to), to = VV_MIN(a->commit_to, now);

    if (to > from)
        a->ns += to - from;
    a->commit_from = VV_MAX(a->commit_from, now);
}

static void alone_see(struct alone *a, const struct vv_span *s)
{
    alone_until(a, s->start_ns);
    if (s->kind == VV_SPAN_COPY)
        a->copy_to = VV_MAX(a->copy_to, s->end_ns);
    else if (s->kind == VV_SPAN_COMMIT)
        a->commit_to = VV_MAX(a->commit_to, s->end_ns);
}

/* The spans of one lane, sorted: rows and sums. */
static void lane_sums(struct vv_lane *lane, struct vv_span *spans, size_t n)
{
    uint64_t row_end[ROWS_MAX] = {0}, covered[VV_SPAN_KINDS] = {0};
    struct alone alone = {0};

    lane->rows = lane->kind == VV_LANE_APP;
    for (size_t i = 0; i < n; i++) {
        struct vv_span *s = &spans[i];
        uint64_t from = VV_MAX(s->start_ns, covered[s->kind]);

        alone_see(&alone, s);
        if (lane->kind == VV_LANE_MOVER)
            assign_row(row_end, &lane->rows, s);
        lane->rows = VV_MAX(lane->rows, s->row + 1u);
        if (s->end_ns > from)
            lane->kind_ns[s->kind] += s->end_ns - from;
        covered[s->kind] = VV_MAX(covered[s->kind], s->end_ns);
        if (s->kind == VV_SPAN_COPY && s->status == 0 && !s->cut)
            lane->bytes += s->bytes;
    }
    alone_until(&alone, UINT64_MAX);
    lane->commit_alone_ns = alone.ns;
    lane->spans = spans;
    lane->nspans = n;
}

static void label_lane(struct build *b, struct vv_lane *lane, size_t napps)
{
    char buf[160] = "";
    size_t at = 0;

    if (lane->kind == VV_LANE_APP) {
        const struct thread *t = thread_of(b, lane->thread);
        if (napps == 1)
            snprintf(buf, sizeof(buf), "application");
        else
            snprintf(buf, sizeof(buf), "%.80s (%u)", t && t->name[0] ? t->name : "thread",
                     lane->thread);
    } else {
        const char *name = hop_name(b, lane->context, lane->hop);
        if (b->t->ncontexts > 1)
            at = (size_t)snprintf(buf, sizeof(buf), "context %u: ", lane->context);
        snprintf(buf + at, sizeof(buf) - at, "%.20s %s", name, hop_text(name));
    }
    lane->label = text(b, buf);
}

static int by_lane(const void *x, const void *y)
{
    const struct vv_lane *a = x, *b = y;

    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->kind == VV_LANE_APP) {
        uint64_t s = a->nspans ? a->spans[0].start_ns : 0, u = b->nspans ? b->spans[0].start_ns : 0;
        if (s != u)
            return s < u ? -1 : 1;
        return a->thread < b->thread ? -1 : a->thread > b->thread;
    }
    if (a->context != b->context)
        return a->context < b->context ? -1 : 1;
    return a->hop < b->hop ? -1 : a->hop > b->hop;
}

static void make_lanes(struct build *b)
{
    struct vvi_timeline_arena *a = b->a;
    struct draft *d = a->drafts.v;
    size_t n = a->drafts.n, napps = 0;

    settle_open(b);
    n = a->drafts.n;
    if (n == 0)
        return;
    qsort(d, n, sizeof(*d), by_lane_and_start);
    struct vv_span *spans = vvi_list_add(&a->spans, sizeof(*spans), n);
    if (!spans) {
        b->failed = true;
        return;
    }
    for (size_t i = 0, from; i < n;) {
        uint32_t lane = d[i].lane;
        for (from = i; i < n && d[i].lane == lane; i++)
            spans[i] = d[i].span;
        struct vv_lane *out = vvi_list_add(&a->lanes_out, sizeof(*out), 1);
        if (!out) {
            b->failed = true;
            return;
        }
        *out = ((struct lane *)a->lanes.v)[lane].lane;
        napps += out->kind == VV_LANE_APP;
        lane_sums(out, spans + from, i - from);
    }
    qsort(a->lanes_out.v, a->lanes_out.n, sizeof(struct vv_lane), by_lane);
    b->t->lanes = a->lanes_out.v;
    b->t->nlanes = a->lanes_out.n;
    for (size_t i = 0; i < a->lanes_out.n; i++)
        label_lane(b, &((struct vv_lane *)a->lanes_out.v)[i], napps);
}

/* ---- the rest ---- */

static int by_context_and_tier(const void *x, const void *y)
{
    const struct vv_occupancy *a = x, *b = y;

    if (a->context != b->context)
        return a->context < b->context ? -1 : 1;
    return a->tier < b->tier ? -1 : a->tier > b->tier;
}

static void make_occupancy(struct build *b)
{
    struct occupancy *from = b->points.v;
    size_t n = b->points.n;
    struct vv_occupancy *out = n ? vvi_list_add(&b->a->occupancy, sizeof(*out), n) : NULL;
    char buf[96];

    if (!out) {
        b->failed |= n > 0;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct vv_occupancy *o = &out[i];
        size_t bytes = from[i].points.n * sizeof(struct vv_occupancy_point);
        struct vv_occupancy_point *points = vvi_pool_alloc(&b->a->pool, bytes);
        const char *tier =
            vv_timeline_tier(b->t, from[i].o.context, (int)(from[i].o.tier & 0xffff));

        *o = from[i].o;
        if (b->t->ncontexts > 1)
            snprintf(buf, sizeof(buf), "context %u: %.40s", o->context, tier);
        else
            snprintf(buf, sizeof(buf), "%.40s", tier);
        o->label = text(b, buf);
        if (!points) {
            b->failed = true;
            return;
        }
        memcpy(points, from[i].points.v, bytes);
        o->points = points;
        o->npoints = from[i].points.n;
    }
    qsort(out, n, sizeof(*out), by_context_and_tier);
    b->t->occupancy = out;
    b->t->noccupancy = n;
}

static int by_start(const void *x, const void *y)
{
    const struct vv_iteration *a = x, *b = y;

    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    return a->thread < b->thread ? -1 : a->thread > b->thread;
}

static void make_totals(struct build *b)
{
    struct vv_timeline *t = b->t;
    struct vv_timeline_totals *sum = &t->totals;

    if (b->a->iterations.n > 1)
        qsort(b->a->iterations.v, b->a->iterations.n, sizeof(struct vv_iteration), by_start);
    t->iterations = b->a->iterations.v;
    t->niterations = b->a->iterations.n;
    t->histories = b->a->histories.v;
    t->nhistories = b->a->histories.n;
    for (size_t i = 0; i < t->niterations; i++) {
        const struct vv_iteration *it = &t->iterations[i];
        if (it->status)
            continue;
        sum->checkpoints += !it->restore;
        sum->restores += it->restore;
        sum->checkpoint_bytes += it->restore ? 0 : it->bytes;
        sum->restore_bytes += it->restore ? it->bytes : 0;
    }
    for (size_t i = 0; i < t->nlanes; i++) {
        if (t->lanes[i].kind != VV_LANE_APP)
            continue;
        sum->compute_ns += t->lanes[i].kind_ns[VV_SPAN_COMPUTE];
        sum->write_ns += t->lanes[i].kind_ns[VV_SPAN_WRITE];
        sum->read_ns += t->lanes[i].kind_ns[VV_SPAN_READ];
        sum->other_ns += t->lanes[i].kind_ns[VV_SPAN_OTHER];
    }
}

static uint32_t count_contexts(const struct vv_trace_file *f)
{
    uint32_t n = 0;

    for (size_t i = 0; i < f->npairs; i++)
        if (!f->pairs[i].note && f->pairs[i].context && strcmp(f->pairs[i].key, "tier.0") == 0)
            n++;
    return n;
}

static void build_all(struct build *b)
{
    const struct vv_trace_file *f = b->file;
    struct vv_timeline *t = b->t;

    t->file = f;
    t->origin_ns = f->begin_ns;
    t->length_ns = f->end_ns - f->begin_ns;
    t->ncontexts = count_contexts(f);
    for (size_t i = 0; i < f->nrecords; i++)
        t->phased |= f->records[i].kind == VV_TRACE_PHASE_BEGIN;
    for (size_t i = 0; i < f->nrecords && !b->failed; i++)
        on_record(b, &f->records[i]);
    for (size_t i = 0; i < b->a->threads.n && !b->failed; i++)
        thread_ends(b, &((struct thread *)b->a->threads.v)[i], t->length_ns);
    if (!b->failed)
        make_lanes(b);
    if (!b->failed)
        make_occupancy(b);
    if (!b->failed)
        make_totals(b);
}

int vv_timeline_new(const struct vv_trace_file *file, struct vv_timeline **ret_timeline)
{
    struct build b = {.file = file, .t = calloc(1, sizeof(*b.t))};

    b.a = calloc(1, sizeof(*b.a));
    b.failed = !b.t || !b.a;
    if (b.t)
        b.t->arena = b.a;
    else
        free(b.a);
    if (!b.failed)
        build_all(&b);
    vvi_map_fini(&b.threads);
    vvi_map_fini(&b.lanes);
    vvi_map_fini(&b.copies);
    vvi_map_fini(&b.commits);
    vvi_map_fini(&b.histories);
    vvi_map_fini(&b.occupancy);
    for (size_t i = 0; i < b.points.n; i++)
        free(((struct occupancy *)b.points.v)[i].points.v);
    free(b.points.v);
    if (b.failed) {
        vv_timeline_free(b.t);
        return -ENOMEM;
    }
    free(b.a->drafts.v);
    b.a->drafts = (struct vvi_list){0};
    *ret_timeline = b.t;
    return 0;
}

void vv_timeline_free(struct vv_timeline *t)
{
    if (!t)
        return;
    if (t->arena) {
        struct vvi_timeline_arena *a = t->arena;
        struct vvi_list *lists[] = {&a->drafts,  &a->spans,      &a->lanes,     &a->lanes_out,
                                    &a->threads, &a->iterations, &a->histories, &a->occupancy};
        for (size_t i = 0; i < VV_ARRAY_SIZE(lists); i++)
            free(lists[i]->v);
        vvi_pool_fini(&a->pool);
        free(a);
    }
    free(t);
}
