/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound of a run, from its trace alone (docs/bound.md has the theory). Each thread that made
 * calls gets a bound of its own, as if it had all tiers and bandwidths to itself; the sum is what the
 * page compares the blocked time with. Where the trace leaves a choice, the one is taken that makes
 * the bound lower, so that it remains one:
 *
 * - Gaps are whatever lies between two calls of a thread, waiting for a level included.
 * - A version need not be kept after the last time it was read.
 * - Versions from before the trace are written before the first call and their cost is taken off.
 * - A version that another thread wrote may be in a cache by then: its restore counts as a gap.
 * - A way that was not used in the run has no limit.
 * - Memory that was lent is written and read without a copy.
 *
 * The bandwidths remain uncertain: they are the best of the run itself, which is less than the machine can do if
 * the load was low. The page says so.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/page.h"
#include "cli/report/trace_view_private.h"

/* One version of one history, across all threads. */
struct object {
    uint64_t history, version;
    uint64_t discard_ns; /* the first discard in the trace; UINT64_MAX: none */
    bool written;        /* some thread wrote it */
    bool read_later;     /* while looking backwards: the same life is read again */
    bool live;           /* for the thread at hand */
};

struct script {
    struct trace_view *view;
    struct object *objects; /* by history and version */
    size_t nr_objects;
    struct bound_event *events;
    size_t *call_of; /* for each put and get among the events after the fence, the call */
    bool *last_read; /* for each call: this life is not read again */
    size_t nr_events, nr_calls, before; /* `before`: versions that were there */
    double max_bytes;
    bool reads_again;
};

static int by_name(const void *x, const void *y)
{
    const struct object *a = x, *b = y;

    return view_compare_version(a->history, a->version, b->history, b->version);
}

static struct object *find_object(const struct script *s, uint64_t history, uint64_t version)
{
    struct object key = {.history = history, .version = version};

    return bsearch(&key, s->objects, s->nr_objects, sizeof(key), by_name);
}

static bool is_put(const struct vv_iteration *it)
{
    return it->call == VV_TRACE_CALL_CHECKPOINT || it->call == VV_TRACE_CALL_COMMIT;
}

static bool is_get(const struct vv_iteration *it)
{
    return it->call == VV_TRACE_CALL_RESTORE || it->call == VV_TRACE_CALL_ACQUIRE;
}

static int list_objects(struct script *s)
{
    const struct vv_timeline *t = s->view->timeline;
    size_t out = 0;

    s->objects = calloc(t->niterations + 1, sizeof(*s->objects));
    if (!s->objects)
        return -ENOMEM;
    for (size_t i = 0; i < t->niterations; i++)
        s->objects[i] = (struct object){.history = t->iterations[i].history,
                                        .version = t->iterations[i].version,
                                        .discard_ns = UINT64_MAX};
    qsort(s->objects, t->niterations, sizeof(*s->objects), by_name);
    for (size_t i = 0; i < t->niterations; i++)
        if (out == 0 || by_name(&s->objects[out - 1], &s->objects[i]) != 0)
            s->objects[out++] = s->objects[i];
    s->nr_objects = out;
    for (size_t i = 0; i < t->niterations; i++)
        if (is_put(&t->iterations[i]) && t->iterations[i].status == 0)
            find_object(s, t->iterations[i].history, t->iterations[i].version)->written = true;
    for (size_t i = 0; i < t->file->nrecords; i++) {
        const struct vv_trace_record *r = &t->file->records[i];
        struct object *o;

        if (r->kind != VV_TRACE_DISCARD || r->time_ns < t->origin_ns)
            continue;
        o = find_object(s, r->arg[0], r->arg[1]);
        if (o && r->time_ns - t->origin_ns < o->discard_ns)
            o->discard_ns = r->time_ns - t->origin_ns;
    }
    return 0;
}

/* ---- the script of one thread ---- */

static void push(struct script *s, enum bound_kind kind, const struct object *o, uint64_t bytes,
                 uint64_t gap_ns)
{
    s->events[s->nr_events++] = (struct bound_event){
        .kind = kind, .version = (uint64_t)(o - s->objects), .bytes = bytes, .gap_ns = gap_ns};
}

/* Versions that a thread reads and no thread has written since the trace began: written here, slowly enough to
 * cost no more than the copies. */
static void push_before(struct script *s, uint32_t thread, double least_bps)
{
    const struct vv_timeline *t = s->view->timeline;

    for (size_t i = 0; i < t->niterations; i++) {
        const struct vv_iteration *it = &t->iterations[i];
        struct object *o = find_object(s, it->history, it->version);

        s->max_bytes = fmax(s->max_bytes, (double)it->bytes);
        if (it->thread != thread || it->status != 0 || !is_get(it) || o->written || o->live)
            continue;
        o->live = true;
        push(s, BOUND_PUT, o, it->bytes, 0);
        s->before++;
    }
    for (size_t i = 0; i < s->nr_events && least_bps > 0; i++)
        s->events[i].gap_ns =
            (uint64_t)(((double)s->events[i].bytes + s->max_bytes) / least_bps * 1e9) + 1;
    if (s->before > 0)
        s->events[s->nr_events++] = (struct bound_event){.kind = BOUND_FENCE};
}

/* Marks the restores of the thread that are the last of earlier versions. */
static void find_last_reads(struct script *s, uint32_t thread)
{
    const struct vv_timeline *t = s->view->timeline;

    for (size_t i = t->niterations; i-- > 0;) {
        const struct vv_iteration *it = &t->iterations[i];
        struct object *o = find_object(s, it->history, it->version);

        if (it->thread != thread || it->status != 0)
            continue;
        if (is_put(it))
            o->read_later = false;
        if (!is_get(it))
            continue;
        s->last_read[i] = !o->read_later;
        s->reads_again |= o->read_later;
        o->read_later = true;
    }
}

/* False: the bound leaves this call out. It is a restore of a version that another thread wrote, or that was
 * discarded meanwhile. */
static bool push_call(struct script *s, size_t i, uint64_t gap_ns)
{
    const struct vv_iteration *it = &s->view->timeline->iterations[i];
    struct object *o = find_object(s, it->history, it->version);

    if (o->live && o->discard_ns < it->start_ns) {
        push(s, BOUND_DISCARD, o, 0, 0);
        o->live = false;
    }
    if (is_put(it)) {
        if (o->live)
            push(s, BOUND_DISCARD, o, 0, 0);
        push(s, BOUND_PUT, o, it->bytes, gap_ns);
        o->live = true;
        return true;
    }
    if (!o->live)
        return false;
    push(s, BOUND_GET, o, it->bytes, gap_ns);
    if (s->last_read[i] && s->reads_again)
        push(s, BOUND_DISCARD, o, 0, 0);
    if (s->last_read[i])
        o->live = false;
    return true;
}

static void make_script(struct script *s, uint32_t thread, double least_bps)
{
    const struct vv_timeline *t = s->view->timeline;
    uint64_t end_ns = 0;

    s->nr_events = s->nr_calls = s->before = 0;
    s->max_bytes = 0;
    s->reads_again = false;
    for (size_t i = 0; i < s->nr_objects; i++)
        s->objects[i].live = s->objects[i].read_later = false;
    push_before(s, thread, least_bps);
    find_last_reads(s, thread);
    for (size_t i = 0; i < t->niterations; i++) {
        const struct vv_iteration *it = &t->iterations[i];

        if (it->thread != thread || it->status != 0 || !(is_put(it) || is_get(it)) ||
            !push_call(s, i, it->start_ns > end_ns ? it->start_ns - end_ns : 0))
            continue;
        s->call_of[s->nr_calls++] = i;
        end_ns = it->end_ns;
    }
}

/* ---- the machine ---- */

static double best_of(const struct trace_view *view, enum place a, enum place b)
{
    return view->ways[a][b].best_bps;
}

struct machine {
    struct bound_hop hops[2];
    const char *names[2];
    struct bound_params params;
    double least_bps;
};

/* A put enters through one way, a restore may come through two. Where the application's memory is on
 * a device, its way to the host is the link, which movers may have driven harder than calls. */
static void set_copies(const struct trace_view *view, struct bound_params *p)
{
    double link_down = 0, link_up = 0;

    if (view->capacity[PLACE_DEVICE] > 0) {
        link_down = best_of(view, PLACE_DEVICE, PLACE_HOST);
        link_up = best_of(view, PLACE_HOST, PLACE_DEVICE);
    }
    p->put_copy_bps =
        fmax(fmax(best_of(view, PLACE_APP, PLACE_DEVICE), link_down),
             fmax(best_of(view, PLACE_APP, PLACE_HOST), best_of(view, PLACE_APP, PLACE_DISK)));
    p->get_copy_bps = best_of(view, PLACE_DEVICE, PLACE_APP) +
                      fmax(best_of(view, PLACE_HOST, PLACE_APP), link_up) +
                      best_of(view, PLACE_DISK, PLACE_APP);
}

static int set_machine(const struct trace_view *view, struct machine *m)
{
    const struct way *disk[] = {
        &view->ways[PLACE_HOST][PLACE_DISK], &view->ways[PLACE_DISK][PLACE_HOST],
        &view->ways[PLACE_DEVICE][PLACE_DISK], &view->ways[PLACE_DISK][PLACE_DEVICE]};
    double device = view->capacity[PLACE_DEVICE], host = view->capacity[PLACE_HOST];
    size_t n = 0;
    int rc;

    *m = (struct machine){.params = {.hops = m->hops}};
    if (!view->has_leases)
        set_copies(view, &m->params);
    if (device > 0) {
        struct bound_hop *hop = &m->hops[n];

        m->names[n++] = "device's link";
        hop->above_bytes = device;
        hop->down_bps =
            fmax(best_of(view, PLACE_DEVICE, PLACE_HOST), best_of(view, PLACE_APP, PLACE_HOST));
        hop->up_bps =
            fmax(best_of(view, PLACE_HOST, PLACE_DEVICE), best_of(view, PLACE_HOST, PLACE_APP));
        hop->both_bps = hop->down_bps + hop->up_bps;
    }
    if (disk[0]->nr + disk[1]->nr + disk[2]->nr + disk[3]->nr > 0) {
        struct bound_hop *hop = &m->hops[n];

        m->names[n++] = "disk";
        hop->above_bytes = device + host + view->transit_bytes;
        hop->down_bps = fmax(disk[0]->best_bps, disk[2]->best_bps);
        hop->up_bps = fmax(disk[1]->best_bps, disk[3]->best_bps);
        rc = view_best_rate(disk, VV_ARRAY_SIZE(disk), &hop->both_bps);
        if (rc < 0)
            return rc;
    }
    m->params.nr_hops = n;
    m->least_bps = INFINITY;
    for (size_t i = 0; i < n; i++)
        if (m->hops[i].down_bps > 0)
            m->least_bps = fmin(m->least_bps, m->hops[i].down_bps);
    if (!isfinite(m->least_bps))
        m->least_bps = 0;
    return 0;
}

static void explain(struct trace_view *view, const struct machine *m)
{
    char *p = view->bound_how, *end = p + sizeof(view->bound_how), text[PAGE_AMOUNT];
    const char *between = "";

    p += snprintf(
        p, (size_t)(end - p),
        "Computed from this trace: the sizes of the versions, the time between calls, and for "
        "each way the best rate that it kept up over a tenth of its bytes (");
    for (int a = 0; a < PLACE_NR; a++) {
        for (int b = 0; b < PLACE_NR && p < end; b++) {
            if (view->ways[a][b].best_bps <= 0)
                continue;
            p += snprintf(p, (size_t)(end - p), "%s%s to %s %s", between,
                          view_place_name((enum place)a), view_place_name((enum place)b),
                          page_rate(view->ways[a][b].best_bps, text, sizeof(text)));
            between = ", ";
        }
    }
    for (size_t i = 0; i < m->params.nr_hops && p < end; i++) {
        p += snprintf(p, (size_t)(end - p), "%s%s fit above the %s", i ? ", " : "); ",
                      page_bytes(m->hops[i].above_bytes, text, sizeof(text)), m->names[i]);
    }
    if (p < end)
        p += snprintf(p, (size_t)(end - p),
                      "%s. A way that was never under full load can do more than "
                      "that; the bound would then be lower.",
                      m->params.nr_hops ? "" : ")");
    view->page.bound.how = view->bound_how;
}

/* ---- the sum ---- */

static int add_thread(struct script *s, const struct machine *m, uint32_t thread)
{
    struct trace_view *view = s->view;
    struct bound_params params = m->params;
    struct bound_result r;
    double *at_s, before_s = 0;
    int rc;

    make_script(s, thread, m->least_bps);
    params.consume_once = !s->reads_again;
    at_s = calloc(s->before + s->nr_calls + 1, sizeof(*at_s));
    if (!at_s)
        return -ENOMEM;
    rc = bound_compute_calls(s->events, s->nr_events, &params, at_s, &r);
    if (rc == 0) {
        struct bound_result *sum = &view->page.bound.result;

        if (s->before > 0)
            before_s = at_s[s->before - 1];
        sum->total_s += r.total_s - before_s;
        sum->copy_s += fmax(r.copy_s - before_s, 0);
        sum->write_s += r.write_s;
        sum->restore_s += r.restore_s;
        sum->cross_s += r.cross_s;
        for (size_t i = 0; i < s->nr_calls; i++) {
            double last = i ? at_s[s->before + i - 1] : before_s;

            /* The share of this call; shares are summed up over all threads afterwards. */
            view->bound_at_s[s->call_of[i]] = at_s[s->before + i] - last;
        }
    }
    free(at_s);
    return rc;
}

static const char *why_not(const struct trace_view *view)
{
    const struct vv_timeline *t = view->timeline;

    if (t->niterations == 0)
        return "there were no calls";
    if (t->file->lost > 0 || t->file->damaged_bytes > 0)
        return "records are missing, so that sizes and gaps are not known";
    if (view->on_streams)
        return "calls on streams return before they are done";
    return NULL;
}

/* The threads that made calls, each once. The list is at most as long as the number of lanes. */
static int add_threads(struct script *s, const struct machine *m)
{
    const struct vv_timeline *t = s->view->timeline;
    int rc = 0;

    for (size_t i = 0; i < t->nlanes && rc == 0; i++)
        if (t->lanes[i].kind == VV_LANE_APP)
            rc = add_thread(s, m, t->lanes[i].thread);
    return rc;
}

int view_find_bound(struct trace_view *view)
{
    struct script s = {.view = view};
    struct machine m;
    size_t n = view->timeline->niterations;
    int rc;

    view->page.bound.missing = why_not(view);
    if (view->page.bound.missing)
        return 0;
    rc = set_machine(view, &m);
    if (rc < 0)
        return rc;
    view->bound_at_s = calloc(n + 1, sizeof(*view->bound_at_s));
    /* Each call is preceded by one discard and followed by one, or was there before. */
    s.events = calloc(4 * n + 2, sizeof(*s.events));
    s.call_of = calloc(n + 1, sizeof(*s.call_of));
    s.last_read = calloc(n + 1, sizeof(*s.last_read));
    rc = view->bound_at_s && s.events && s.call_of && s.last_read ? list_objects(&s) : -ENOMEM;
    if (rc == 0)
        rc = add_threads(&s, &m);
    if (rc == 0) {
        for (size_t i = 1; i < n; i++)
            view->bound_at_s[i] += view->bound_at_s[i - 1];
        view->page.bound.at_s = view->bound_at_s;
        explain(view, &m);
    } else if (rc == -EINVAL) {
        view->page.bound.missing = "the calls of this trace make no sense to it";
        rc = 0;
    }
    free(s.objects);
    free(s.events);
    free(s.call_of);
    free(s.last_read);
    return rc;
}
