/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a timeline to what a page shows. The timeline speaks of contexts, tiers and hops; the page of
 * places (application, device, host, disk, remote), which are the same for all contexts of a process.
 *
 * The trace may come from anywhere, so nothing in it is trusted: numbers are checked before they are used as an
 * index, texts are passed on as they are and escaped where they are written, and the page names only known types
 * of pictures.
 *
 * No thread; all memory belongs to the view.
 */
#include "cli/report/trace_view_private.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/hash.h"
#include "cli/common/page.h"

/* Pictures that are larger in total are named and not shown, so that a report can be sent by mail. */
#define PICTURES_BYTES (UINT64_C(24) << 20)

static const char *const place_names[] = {
    [PLACE_APP] = "application", [PLACE_DEVICE] = "device", [PLACE_HOST] = "host",
    [PLACE_DISK] = "disk",       [PLACE_REMOTE] = "remote",
};

const char *view_place_name(enum place place)
{
    return place_names[place];
}

/* Finds a place by the name of a tier in traces. An unknown name is storage. */
static enum place place_of(const char *tier)
{
    if (strncmp(tier, "device", 6) == 0)
        return PLACE_DEVICE;
    if (strncmp(tier, "host", 4) == 0)
        return PLACE_HOST;
    return strncmp(tier, "remote", 6) == 0 ? PLACE_REMOTE : PLACE_DISK;
}

enum place view_place(const struct trace_view *view, uint64_t history, int tier)
{
    if (tier < 0)
        return PLACE_APP;
    return place_of(vv_timeline_tier(view->timeline, VV_TRACE_HISTORY_CONTEXT(history), tier));
}

const char *view_text(struct trace_view *view, const char *fmt, ...)
{
    struct text *text;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    text = n < 0 ? NULL : malloc(sizeof(*text) + (size_t)n + 1);
    if (!text)
        return NULL;
    va_start(args, fmt);
    vsnprintf(text->at, (size_t)n + 1, fmt, args);
    va_end(args);
    text->next = view->texts;
    view->texts = text;
    return text->at;
}

/* ---- labels ---- */

static int grow_labels(struct trace_view *view)
{
    size_t cap = view->labels_cap ? 2 * view->labels_cap : 64;
    const char **labels = realloc(view->labels, cap * sizeof(*labels));

    if (!labels)
        return -ENOMEM;
    labels[0] = "";
    view->page.labels = view->labels = labels;
    view->labels_cap = cap;
    return 0;
}

struct label {
    VV_TABLE_ITEM(hash); /* of the text */
    const char *text;
    uint32_t number;
};

static struct label *label_add(struct trace_view *view, uint64_t hash, const char *text)
{
    size_t nr = view->page.nr_labels ? view->page.nr_labels : 1;
    struct label *l = malloc(sizeof(*l));

    if (!l || (nr >= view->labels_cap && grow_labels(view) < 0)) {
        free(l);
        return NULL;
    }
    *l = (struct label){.hash = hash, .text = text, .number = (uint32_t)nr};
    vv_table_add(&view->label_numbers, l);
    view->labels[nr] = text;
    view->page.nr_labels = nr + 1;
    return l;
}

/* The number of a text; 0 for "", and if memory is short. */
static uint32_t label(struct trace_view *view, const char *text)
{
    uint64_t hash = vv_hash64(text, strlen(text));
    struct label *l = vv_table_find(&view->label_numbers, hash);

    if (!*text)
        return 0;
    while (l && strcmp(l->text, text) != 0)
        l = vv_table_same(l);
    if (!l)
        l = label_add(view, hash, text);
    return l ? l->number : 0;
}

/* ---- lanes ---- */

static enum span_kind kind_of(const struct vv_span *s)
{
    switch ((enum vv_span_kind)s->kind) {
    case VV_SPAN_COMPUTE:
        return SPAN_COMPUTE;
    case VV_SPAN_WRITE:
        return SPAN_WRITE;
    case VV_SPAN_READ:
        return SPAN_READ;
    case VV_SPAN_OTHER:
        return SPAN_WAIT;
    case VV_SPAN_COPY:
        return s->up ? SPAN_UP : SPAN_DOWN;
    case VV_SPAN_PHASE:
        return SPAN_PHASE;
    case VV_SPAN_COMMIT:
        break;
    }
    return SPAN_OTHER;
}

static struct span span_of(struct trace_view *view, const struct vv_span *s)
{
    bool named = s->kind == VV_SPAN_PHASE || s->kind == VV_SPAN_COMPUTE;
    bool of_version = !named && s->kind != VV_SPAN_OTHER && s->history != 0;
    uint64_t ns = s->end_ns > s->start_ns ? s->end_ns - s->start_ns : 0;
    const char *name = named ? s->name : "";

    if (of_version)
        name = vv_timeline_history(view->timeline, s->history, s->start_ns);
    return (struct span){
        .start_ns = s->start_ns,
        .ns = ns,
        .busy_ns = ns,
        .bytes = named ? 0 : s->bytes,
        .version = of_version ? s->version : SPAN_NO_VERSION,
        .label = label(view, name),
        .count = 1,
        .kind = (uint8_t)kind_of(s),
        .failed = s->status != 0,
    };
}

/* The spans of a lane of the timeline that are phases, or those that are not, as a lane of its own.
 */
static int add_lane(struct trace_view *view, const struct vv_lane *from, bool phases,
                    const char *name)
{
    struct lane *lane = &view->lanes[view->page.nr_lanes];
    size_t n = 0;

    for (size_t i = 0; i < from->nspans; i++)
        n += (from->spans[i].kind == VV_SPAN_PHASE) == phases;
    if (n == 0)
        return 0;
    if (!name)
        return -ENOMEM;
    *lane = (struct lane){.name = name, .spans = calloc(n, sizeof(*lane->spans))};
    if (!lane->spans)
        return -ENOMEM;
    view->page.nr_lanes++;
    for (size_t i = 0; i < from->nspans; i++)
        if ((from->spans[i].kind == VV_SPAN_PHASE) == phases)
            lane->spans[lane->nr++] = span_of(view, &from->spans[i]);
    return 0;
}

static int make_lanes(struct trace_view *view)
{
    const struct vv_timeline *t = view->timeline;
    int rc = 0;

    view->lanes = calloc(2 * t->nlanes + 1, sizeof(*view->lanes));
    if (!view->lanes)
        return -ENOMEM;
    view->page.lanes = view->lanes;
    for (size_t i = 0; i < t->nlanes && rc == 0; i++) {
        const struct vv_lane *lane = &t->lanes[i];

        if (lane->kind != VV_LANE_APP) {
            rc = add_lane(view, lane, false, lane->label);
            continue;
        }
        rc = add_lane(view, lane, true, view_text(view, "%s: phases", lane->label));
        if (rc == 0)
            rc = add_lane(view, lane, false, lane->label);
    }
    return rc;
}

/* ---- calls ---- */

static void add_stretch(struct trace_view *view, const struct vv_span *s, struct trace_call *call)
{
    if (s->end_ns >= s->start_ns)
        view->stretches[view->nr_stretches++] = (struct stretch){.history = s->history,
                                                                 .version = s->version,
                                                                 .start_ns = s->start_ns,
                                                                 .end_ns = s->end_ns,
                                                                 .is_get = s->kind == VV_SPAN_READ,
                                                                 .call = call};
}

/* The call of a thread that began at that time, or NULL. */
static struct trace_call *call_at(const struct trace_view *view, uint32_t thread, uint64_t start_ns)
{
    const struct vv_timeline *t = view->timeline;
    size_t low = 0, high = t->niterations;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (t->iterations[mid].start_ns < start_ns)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < t->niterations && t->iterations[low].start_ns == start_ns; low++)
        if (t->iterations[low].thread == thread)
            return &view->calls[low];
    return NULL;
}

/* Finds the call of a stretch that is not a call itself: the wait of a reservation belongs to the
 * commit that follows it on the same thread. */
static struct trace_call *partner(const struct vv_lane *lane, size_t i,
                                  struct trace_call *const *call_of)
{
    const struct vv_span *s = &lane->spans[i];

    for (size_t k = i + 1; k < lane->nspans && k < i + 256; k++)
        if (call_of[k] && lane->spans[k].kind == s->kind && lane->spans[k].history == s->history &&
            lane->spans[k].version == s->version)
            return call_of[k];
    return NULL;
}

/* Every wait of a thread: the calls, and the stretches that belong to one. */
static int find_stretches(struct trace_view *view, const struct vv_lane *lane)
{
    struct trace_call **call_of = calloc(lane->nspans + 1, sizeof(struct trace_call *));

    if (!call_of)
        return -ENOMEM;
    for (size_t i = 0; i < lane->nspans; i++)
        if (lane->spans[i].kind == VV_SPAN_WRITE || lane->spans[i].kind == VV_SPAN_READ)
            call_of[i] = call_at(view, lane->thread, lane->spans[i].start_ns);
    for (size_t i = 0; i < lane->nspans; i++) {
        const struct vv_span *s = &lane->spans[i];
        struct trace_call *call;

        if (s->kind != VV_SPAN_WRITE && s->kind != VV_SPAN_READ)
            continue;
        add_stretch(view, s, call_of[i]);
        if (call_of[i] || s->end_ns < s->start_ns)
            continue;
        call = partner(lane, i, call_of);
        if (call)
            call->blocked_ns += s->end_ns - s->start_ns;
        else
            view->page.other_s[s->kind == VV_SPAN_READ] += (double)(s->end_ns - s->start_ns) / 1e9;
    }
    free(call_of);
    return 0;
}

static int make_calls(struct trace_view *view)
{
    const struct vv_timeline *t = view->timeline;
    size_t nr_spans = 0;
    int rc = 0;

    for (size_t i = 0; i < t->nlanes; i++)
        nr_spans += t->lanes[i].kind == VV_LANE_APP ? t->lanes[i].nspans : 0;
    view->calls = calloc(t->niterations + 1, sizeof(*view->calls));
    view->stretches = calloc(nr_spans + 1, sizeof(*view->stretches));
    if (!view->calls || !view->stretches)
        return -ENOMEM;
    for (size_t i = 0; i < t->niterations; i++) {
        const struct vv_iteration *it = &t->iterations[i];

        view->calls[i] = (struct trace_call){
            .is_get = it->restore,
            .failed = it->status != 0,
            .label = label(view, vv_timeline_history(t, it->history, it->start_ns)),
            .version = it->version,
            .bytes = it->bytes,
            .start_ns = it->start_ns,
            .blocked_ns = it->end_ns > it->start_ns ? it->end_ns - it->start_ns : 0,
            .ahead = it->restore && it->distance != VV_NO_DISTANCE ? (double)it->distance : NAN,
        };
        view->has_leases |= it->call == VV_TRACE_CALL_COMMIT || it->call == VV_TRACE_CALL_ACQUIRE;
    }
    view->page.calls = view->calls;
    view->page.nr_calls = t->niterations;
    for (size_t i = 0; i < t->nlanes && rc == 0; i++) {
        if (t->lanes[i].kind != VV_LANE_APP)
            continue;
        view->page.nr_threads++;
        rc = find_stretches(view, &t->lanes[i]);
    }
    return rc;
}

/* ---- what contexts say ---- */

/* If a key and context occur several times, the last value counts. */
static bool is_last(const struct vv_trace_file *f, size_t i)
{
    for (size_t k = i + 1; k < f->npairs && k < i + 4096; k++)
        if (f->pairs[k].context == f->pairs[i].context && f->pairs[k].note == f->pairs[i].note &&
            strcmp(f->pairs[k].key, f->pairs[i].key) == 0)
            return false;
    return true;
}

/* The sum of the values of all contexts for a key. */
static double sum_of(const struct vv_trace_file *f, const char *key)
{
    double sum = 0;

    for (size_t i = 0; i < f->npairs; i++)
        if (!f->pairs[i].note && strcmp(f->pairs[i].key, key) == 0 && is_last(f, i))
            sum += strtod(f->pairs[i].value, NULL);
    return isfinite(sum) && sum > 0 ? sum : 0;
}

/* ---- tiers ---- */

static uint64_t buffers_of(const struct vv_trace_file *f, uint32_t context)
{
    const char *value = vv_trace_file_meta(f, context, "transit.bytes");

    return value ? strtoull(value, NULL, 10) : 0;
}

/* A value is valid until the next one, so a step has two points. */
static int make_tier(const struct vv_occupancy *o, double wall_s, struct trace_tier *ret)
{
    struct trace_tier t = {.name = o->label, .capacity = o->capacity_bytes};

    t.time_s = calloc(4 * o->npoints + 2, sizeof(*t.time_s));
    if (!t.time_s)
        return -ENOMEM;
    t.bytes = t.time_s + 2 * o->npoints + 1;
    for (size_t i = 0; i < o->npoints; i++) {
        double at = (double)o->points[i].time_ns / 1e9;

        if (i > 0) {
            t.time_s[t.nr] = at;
            t.bytes[t.nr++] = (double)o->points[i - 1].bytes;
        }
        t.time_s[t.nr] = at;
        t.bytes[t.nr++] = (double)o->points[i].bytes;
    }
    if (t.nr > 0) {
        t.time_s[t.nr] = fmax(wall_s, t.time_s[t.nr - 1]);
        t.bytes[t.nr] = t.bytes[t.nr - 1];
        t.nr++;
    }
    *ret = t;
    return 0;
}

static int make_tiers(struct trace_view *view)
{
    const struct vv_timeline *t = view->timeline;
    int rc = 0;

    view->tiers = calloc(t->noccupancy + 1, sizeof(*view->tiers));
    if (!view->tiers)
        return -ENOMEM;
    for (size_t i = 0; i < t->noccupancy && rc == 0; i++) {
        const struct vv_occupancy *o = &t->occupancy[i];
        enum place place = place_of(vv_timeline_tier(t, o->context, (int)o->tier));

        view->capacity[place] += (double)o->capacity_bytes;
        rc = make_tier(o, view->page.wall_s, &view->tiers[i]);
        if (rc == 0 && place == PLACE_HOST)
            view->tiers[i].buffers = buffers_of(t->file, o->context);
        view->page.nr_tiers += rc == 0;
    }
    view->transit_bytes = sum_of(t->file, "transit.bytes");
    view->page.tiers = view->tiers;
    return rc;
}

/* ---- errors ---- */

/* True if a restore of the version succeeded after the error: the bytes came from another tier. */
static bool repaired(const struct vv_timeline *t, const struct vv_trace_record *r)
{
    uint64_t at = r->time_ns > t->origin_ns ? r->time_ns - t->origin_ns : 0;

    for (size_t i = 0; i < t->niterations; i++) {
        const struct vv_iteration *it = &t->iterations[i];

        if (it->restore && it->status == 0 && it->end_ns >= at && it->history == r->arg[0] &&
            it->version == r->arg[1])
            return true;
    }
    return false;
}

static int make_errors(struct trace_view *view)
{
    const struct vv_timeline *t = view->timeline;
    size_t n = 0;

    for (size_t i = 0; i < t->file->nrecords; i++)
        n += t->file->records[i].kind == VV_TRACE_ERROR;
    view->errors = calloc(n + 1, sizeof(*view->errors));
    if (!view->errors)
        return -ENOMEM;
    for (size_t i = 0; i < t->file->nrecords; i++) {
        const struct vv_trace_record *r = &t->file->records[i];
        struct trace_error *e = &view->errors[view->page.nr_errors];
        uint64_t at = r->time_ns > t->origin_ns ? r->time_ns - t->origin_ns : 0;
        bool well;

        if (r->kind != VV_TRACE_ERROR)
            continue;
        well = view->page.nr_errors < 1000 && repaired(t, r);
        e->time_s = (double)at / 1e9;
        e->text = view_text(
            view, "%s version %" PRIu64 ", %s, chunk %" PRIu64 ": %s%s",
            r->arg[0] ? vv_timeline_history(t, r->arg[0], at) : "", r->arg[1],
            vv_timeline_tier(t, VV_TRACE_HISTORY_CONTEXT(r->arg[0]), (int)r->arg[2]), r->arg[3],
            vv_strerror((int)r->arg[4]), well ? " (repaired: a later restore succeeded)" : "");
        if (!e->text)
            return -ENOMEM;
        view->page.nr_errors++;
        view->page.nr_repairs += well;
    }
    view->page.errors = view->errors;
    return 0;
}

/* ---- conditions ---- */

enum { PAIRS_RUN, PAIRS_CONFIG, PAIRS_MACHINE, PAIRS_NR };

/* Keys of the process that describe the machine; the others describe the run. */
static bool is_machine(const char *key)
{
    static const char *const keys[] = {"host",    "kernel", "cpu",    "cores",
                                       "threads", "memory", "device", "device.memory"};

    for (size_t i = 0; i < VV_ARRAY_SIZE(keys); i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static int add_pair(struct trace_view *view, int where, const char *name, const char *text)
{
    struct trace_pairs *p = where == PAIRS_RUN      ? &view->page.run
                            : where == PAIRS_CONFIG ? &view->page.config
                                                    : &view->page.machine;

    if (!name || !text)
        return -ENOMEM;
    view->pairs[where][p->nr++] = (struct trace_pair){name, text};
    p->pairs = view->pairs[where];
    return 0;
}

static int file_pair(struct trace_view *view, const struct vv_trace_pair *p)
{
    const struct vv_timeline *t = view->timeline;
    bool config = !p->note && strncmp(p->key, "config.", 7) == 0;
    const char *name = config ? p->key + 7 : p->key, *value = p->value;
    bool rate = !p->note && strncmp(p->key, "rate.", 5) == 0;
    bool bytes =
        !p->note && (strcmp(p->key, "memory") == 0 || strcmp(p->key, "device.memory") == 0 ||
                     strcmp(p->key, "transit.bytes") == 0);
    char amount[PAGE_AMOUNT];

    /* These are shown in the tables and charts. */
    if (!p->note && (strncmp(p->key, "tier.", 5) == 0 || strncmp(p->key, "hop.", 4) == 0 ||
                     strncmp(p->key, "moved.", 6) == 0))
        return 0;
    if (rate && strcmp(p->value, "0") == 0)
        return 0; /* never measured */
    if (bytes)
        value = view_text(view, "%s", page_bytes(strtod(p->value, NULL), amount, sizeof(amount)));
    else if (rate)
        value = view_text(view, "%s", page_rate(strtod(p->value, NULL), amount, sizeof(amount)));
    if (t->ncontexts > 1 && p->context > 0)
        name = view_text(view, "%s (context %" PRIu32 ")", name, p->context);
    return add_pair(view,
                    config                           ? PAIRS_CONFIG
                    : !p->note && is_machine(p->key) ? PAIRS_MACHINE
                                                     : PAIRS_RUN,
                    name, value);
}

static int make_pairs(struct trace_view *view)
{
    const struct vv_trace_file *f = view->timeline->file;
    int rc = 0;

    for (int i = 0; i < PAIRS_NR; i++) {
        view->pairs[i] = calloc(f->npairs + f->nattachments + 4, sizeof(*view->pairs[i]));
        if (!view->pairs[i])
            return -ENOMEM;
    }
    /* The notes of the application come first. */
    for (int note = 1; note >= 0; note--)
        for (size_t i = 0; i < f->npairs && rc == 0; i++)
            if (f->pairs[i].note == note && is_last(f, i))
                rc = file_pair(view, &f->pairs[i]);
    return rc;
}

static const char *picture_type(const char *type)
{
    static const char *const types[] = {"image/png", "image/jpeg", "image/gif", "image/webp",
                                        "image/svg+xml"};

    for (size_t i = 0; i < VV_ARRAY_SIZE(types); i++)
        if (strcmp(type, types[i]) == 0)
            return types[i];
    return NULL;
}

static int make_pictures(struct trace_view *view)
{
    const struct vv_trace_file *f = view->timeline->file;
    uint64_t sum = 0;

    view->pictures = calloc(f->nattachments + 1, sizeof(*view->pictures));
    if (!view->pictures)
        return -ENOMEM;
    for (size_t i = 0; i < f->nattachments; i++) {
        const struct vv_trace_attachment *a = &f->attachments[i];
        const char *type = picture_type(a->type);
        char size[PAGE_AMOUNT];

        if (vv_trace_file_attachment(f, a->name) != a)
            continue;
        if (type && a->size > 0 && sum + a->size <= PICTURES_BYTES) {
            sum += a->size;
            view->pictures[view->page.nr_pictures++] =
                (struct trace_picture){a->name, a->name, type, a->bytes, a->size};
            continue;
        }
        if (add_pair(view, PAIRS_RUN, "attached, not shown",
                     view_text(view, "%s (%s, %s)", a->name, a->type,
                               page_bytes((double)a->size, size, sizeof(size)))) < 0)
            return -ENOMEM;
    }
    view->page.pictures = view->pictures;
    return 0;
}

static void make_lost(struct trace_view *view)
{
    const struct vv_trace_file *f = view->timeline->file;
    char *p = view->lost_text, *end = p + sizeof(view->lost_text), size[PAGE_AMOUNT];

    view->page.nr_records = f->nrecords;
    view->page.lost_records = f->lost;
    if (!f->complete)
        p += snprintf(p, (size_t)(end - p),
                      "The trace was not closed: the process was killed or is still running. ");
    if (f->damaged_bytes > 0)
        p += snprintf(p, (size_t)(end - p), "%s of the file are damaged and were passed over. ",
                      page_bytes((double)f->damaged_bytes, size, sizeof(size)));
    if (f->unknown_blocks > 0)
        p += snprintf(p, (size_t)(end - p),
                      "%" PRIu64 " parts of the file are of a later version and were passed over. ",
                      f->unknown_blocks);
    if (p > view->lost_text)
        view->page.lost_text = view->lost_text;
}

/* The title: the application's own name for it, or the program's. */
static void make_title(struct trace_view *view)
{
    const struct vv_trace_file *f = view->timeline->file;
    const char *note = vv_trace_file_note(f, "title"),
               *application = vv_trace_file_note(f, "application");
    const char *command = vv_trace_file_meta(f, 0, "command");
    const char *end = command ? command + strcspn(command, " ") : NULL, *base = command;

    for (const char *s = command; s && s < end; s++)
        base = *s == '/' ? s + 1 : base;
    if (note)
        snprintf(view->title, sizeof(view->title), "%s", note);
    else if (application)
        snprintf(view->title, sizeof(view->title), "Varve report: %s", application);
    else if (command)
        snprintf(view->title, sizeof(view->title), "Varve report: %.*s", (int)(end - base), base);
    else
        snprintf(view->title, sizeof(view->title), "Varve report");
    view->page.title = view->title;
    view->page.command = command;
    view->page.when = vv_trace_file_meta(f, 0, "time");
    view->page.where = vv_trace_file_meta(f, 0, "host");
}

/* The value of the first context that has one. */
static const char *first_of(const struct vv_trace_file *f, const char *key)
{
    for (size_t i = 0; i < f->npairs; i++)
        if (!f->pairs[i].note && strcmp(f->pairs[i].key, key) == 0 && is_last(f, i))
            return f->pairs[i].value;
    return NULL;
}

static int make_helpers(struct trace_view *view)
{
    const struct vv_trace_file *f = view->timeline->file;
    const char *where = first_of(f, "helpers.where"), *cores = first_of(f, "helpers.cores"),
               *app = first_of(f, "app.where"), *cpus = first_of(f, "app.processors");
    double taken_s = sum_of(f, "helpers.cpu_ns") * 1e-9, n = cpus ? strtod(cpus, NULL) : 0;

    if (!where || !cores || !app || n < 1 || taken_s <= 0)
        return 0;
    if (strtod(cores, NULL) > 0)
        snprintf(view->helpers_text, sizeof(view->helpers_text),
                 "The library's threads ran on %.8s cores of their own, processors %.64s, and took "
                 "%.3f s of their time.",
                 cores, where, taken_s);
    else
        snprintf(view->helpers_text, sizeof(view->helpers_text),
                 "The library's threads ran on the application's processors, %.64s, and took %.3f "
                 "s, %.1f%% of their time.",
                 app, taken_s, 100 * taken_s / (n * view->page.wall_s));
    view->page.helpers = view->helpers_text;
    return 0;
}

/* The library's own count of restores whose bytes were ready, if the trace has it and it covers the restores of
 * the trace. */
static int take_hits(struct trace_view *view)
{
    const struct vv_trace_file *f = view->timeline->file;
    double hits = sum_of(f, "restore.hits"), misses = sum_of(f, "restore.misses");
    struct trace_totals totals = trace_page_totals(&view->page);

    view->page.ready = hits + misses == (double)totals.get.nr ? (size_t)hits : totals.get.ready;
    return 0;
}

/* ---- all of it ---- */

int trace_view_new(const struct vv_timeline *timeline, struct trace_view **ret_view)
{
    static int (*const parts[])(struct trace_view *) = {
        make_lanes, make_calls,      make_tiers,  view_find_ways, view_make_hops, view_find_causes,
        take_hits,  view_find_bound, make_errors, make_pairs,     make_pictures,  make_helpers};
    struct trace_view *view = calloc(1, sizeof(*view));
    int rc = 0;

    if (!view)
        return -ENOMEM;
    view->timeline = timeline;
    view->page.wall_s = (double)timeline->length_ns / 1e9;
    make_title(view);
    make_lost(view);
    for (size_t i = 0; i < VV_ARRAY_SIZE(parts) && rc == 0; i++)
        rc = parts[i](view);
    if (rc < 0) {
        trace_view_free(view);
        return rc;
    }
    *ret_view = view;
    return 0;
}

void trace_view_free(struct trace_view *view)
{
    if (!view)
        return;
    for (size_t i = 0; i < view->page.nr_lanes; i++)
        free(view->lanes[i].spans);
    for (size_t i = 0; i < view->page.nr_tiers; i++)
        free(view->tiers[i].time_s);
    for (int a = 0; a < PLACE_NR; a++)
        for (int b = 0; b < PLACE_NR; b++)
            free(view->ways[a][b].copies);
    for (int i = 0; i < PAIRS_NR; i++)
        free(view->pairs[i]);
    while (view->texts) {
        struct text *next = view->texts->next;

        free(view->texts);
        view->texts = next;
    }
    free(view->by_version);
    free(view->calls);
    free(view->stretches);
    free(view->lanes);
    free(view->labels);
    vv_table_fini_items(&view->label_numbers);
    free(view->hops);
    free(view->tiers);
    free(view->errors);
    free(view->pictures);
    free(view->bound_at_s);
    free(view);
}

const struct trace_page *trace_view_page(const struct trace_view *view)
{
    return &view->page;
}
