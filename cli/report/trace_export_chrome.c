/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace event format, as objects in an array. Its important rules:
 *
 * - Complete events ("X") of one thread have to be nested. So each row of a mover is a thread of
 *   its own. A thread of the application has its phases, with the calls inside them; its computing
 *   is written only if the trace has no phases, since phases show the same.
 * - Times are in microseconds and may have fractions: three digits are exact.
 * - Numbers above 2^53 are not exact in most readers: they are written as strings.
 */
#include <errno.h>
#include <inttypes.h>

#include "cli/common/json.h"
#include "cli/report/trace_export.h"

/* The thread number of a row of a mover. It is above all thread numbers of the system. */
#define MOVER_TID(lane, row) (UINT64_C(100000000) + (uint64_t)(lane)*100 + (row))

struct out {
    struct json j;
    const struct vv_timeline *t;
    uint64_t pid;
};

static void put_time(struct out *o, const char *key, uint64_t ns)
{
    json_number(&o->j, key, "%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}

static void put_number(struct out *o, const char *key, uint64_t value)
{
    if (value >> 53)
        json_textf(&o->j, key, "%" PRIu64, value);
    else
        json_uint(&o->j, key, value);
}

/* Opens an event and writes its fields, down to the name. */
static void event_begin(struct out *o, const char *type, const char *name, uint64_t tid)
{
    json_gap(&o->j, "\n");
    json_object(&o->j, NULL);
    json_text(&o->j, "ph", type);
    json_uint(&o->j, "pid", o->pid);
    json_uint(&o->j, "tid", tid);
    json_text(&o->j, "name", name);
}

/* Closes the arguments, and then the event. */
static void event_end(struct out *o)
{
    json_close(&o->j);
    json_close(&o->j);
}

static void put_name(struct out *o, const char *what, uint64_t tid, const char *name)
{
    event_begin(o, "M", what, tid);
    json_object(&o->j, "args");
    json_text(&o->j, "name", name);
    event_end(o);
}

static void put_thread(struct out *o, uint64_t tid, const char *name, unsigned row, size_t order)
{
    char full[256];

    if (row > 0)
        snprintf(full, sizeof(full), "%s #%u", name, row + 1);
    else
        snprintf(full, sizeof(full), "%s", name);
    put_name(o, "thread_name", tid, full);
    event_begin(o, "M", "thread_sort_index", tid);
    json_object(&o->j, "args");
    json_uint(&o->j, "sort_index", order);
    event_end(o);
}

static void put_span(struct out *o, const struct vv_span *s, uint64_t tid)
{
    bool call = s->kind == VV_SPAN_WRITE || s->kind == VV_SPAN_READ || s->kind == VV_SPAN_OTHER;
    bool transfer = s->kind == VV_SPAN_COPY || s->kind == VV_SPAN_COMMIT;
    struct json *j = &o->j;

    event_begin(o, "X", s->name[0] ? s->name : "(no phase)", tid);
    json_text(j, "cat", vv_span_kind_name((enum vv_span_kind)s->kind));
    put_time(o, "ts", s->start_ns);
    put_time(o, "dur", s->end_ns - s->start_ns);
    json_object(j, "args");
    if (call || transfer) {
        put_number(o, "version", s->version);
        json_text(j, "history", vv_timeline_history(o->t, s->history, s->start_ns));
        put_number(o, "bytes", s->bytes);
        json_int(j, "status", s->status);
    }
    if (s->kind == VV_SPAN_COPY) {
        uint32_t context = VV_TRACE_HISTORY_CONTEXT(s->history);

        json_text(j, "from", vv_timeline_tier(o->t, context, s->src_tier));
        json_text(j, "to", vv_timeline_tier(o->t, context, s->dst_tier));
    }
    if (s->cut)
        json_bool(j, "cut", true);
    event_end(o);
}

/* Spans are in the order of their start. If several start at once, the outer one has to be written
 * first. */
static void put_app_lane(struct out *o, const struct vv_lane *l)
{
    for (size_t i = 0, next; i < l->nspans; i = next) {
        for (next = i; next < l->nspans && l->spans[next].start_ns == l->spans[i].start_ns;)
            next++;
        for (size_t k = i; k < next; k++)
            if (l->spans[k].row > 0)
                put_span(o, &l->spans[k], l->thread);
        for (size_t k = i; k < next; k++)
            if (l->spans[k].row == 0 && (l->spans[k].kind != VV_SPAN_COMPUTE || !o->t->phased))
                put_span(o, &l->spans[k], l->thread);
    }
}

static void put_lanes(struct out *o)
{
    size_t order = 0;

    for (size_t i = 0; i < o->t->nlanes; i++) {
        const struct vv_lane *l = &o->t->lanes[i];

        if (l->kind == VV_LANE_APP) {
            put_thread(o, l->thread, l->label, 0, order++);
            put_app_lane(o, l);
            continue;
        }
        for (unsigned row = 0; row < l->rows; row++)
            put_thread(o, MOVER_TID(i, row), l->label, row, order++);
        for (size_t k = 0; k < l->nspans; k++)
            put_span(o, &l->spans[k], MOVER_TID(i, l->spans[k].row));
    }
}

/* `type`: a counter (C), or an event that concerns all threads (i). */
static void put_count(struct out *o, const char *type, const char *name, uint64_t time_ns,
                      const char *key, uint64_t value)
{
    event_begin(o, type, name, 0);
    put_time(o, "ts", time_ns);
    if (type[0] == 'i')
        json_text(&o->j, "s", "g");
    json_object(&o->j, "args");
    json_uint(&o->j, key, value);
    event_end(o);
}

static void put_counters(struct out *o)
{
    char name[128];

    for (size_t i = 0; i < o->t->noccupancy; i++) {
        const struct vv_occupancy *c = &o->t->occupancy[i];

        snprintf(name, sizeof(name), "%s: bytes in use", c->label);
        for (size_t k = 0; k < c->npoints; k++)
            put_count(o, "C", name, c->points[k].time_ns, "bytes", c->points[k].bytes);
    }
    for (size_t i = 0; i < o->t->niterations; i++) {
        const struct vv_iteration *it = &o->t->iterations[i];

        if (it->restore && it->distance != VV_NO_DISTANCE)
            put_count(o, "C", "prefetch distance", it->start_ns, "versions", it->distance);
    }
}

static void put_losses(struct out *o)
{
    const struct vv_trace_file *file = o->t->file;

    for (size_t i = 0; file->lost > 0 && i < file->nrecords; i++) {
        const struct vv_trace_record *r = &file->records[i];

        if (r->kind == VV_TRACE_LOST)
            put_count(o, "i", "records were lost", r->time_ns - o->t->origin_ns, "records",
                      r->arg[0]);
    }
}

/* The description of the trace itself. */
static void put_other_data(struct out *o)
{
    const struct vv_trace_file *file = o->t->file;
    const char *gap = NULL;

    json_gap(&o->j, "\n");
    json_object(&o->j, "otherData");
    for (size_t i = 0; i < file->npairs; i++) {
        const struct vv_trace_pair *p = &file->pairs[i];
        char key[256];

        /* A key appears once in an object: the last value counts. */
        const char *last = p->note ? vv_trace_file_note(file, p->key)
                                   : vv_trace_file_meta(file, p->context, p->key);
        if (last != p->value)
            continue;
        if (p->note)
            snprintf(key, sizeof(key), "note.%s", p->key);
        else if (p->context)
            snprintf(key, sizeof(key), "context.%u.%s", p->context, p->key);
        else
            snprintf(key, sizeof(key), "%s", p->key);
        json_gap(&o->j, gap);
        json_text(&o->j, key, p->value);
        gap = "\n";
    }
    json_close(&o->j);
}

int trace_export_chrome(FILE *f, const struct vv_timeline *t)
{
    struct out o = {json_begin(f, JSON_COMPACT), t, t->file->pid};
    const char *command = vv_trace_file_meta(t->file, 0, "command");

    json_object(&o.j, NULL);
    json_text(&o.j, "displayTimeUnit", "ms");
    json_gap(&o.j, "\n");
    json_array(&o.j, "traceEvents");
    put_name(&o, "process_name", 0, command ? command : "varve");
    put_lanes(&o);
    put_counters(&o);
    put_losses(&o);
    json_gap(&o.j, "\n");
    json_close(&o.j);
    put_other_data(&o);
    json_close(&o.j);
    json_end(&o.j);
    return fflush(f) || ferror(f) ? -EIO : 0;
}
