/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace event format, as objects in an array. What matters about it here:
 *
 * - Complete events ("X") of one thread have to be nested. So each row of a mover is a thread of its
 *   own, and those of the application have their phases with the calls inside; what it computes is
 *   only added where there are no phases, which would say the same.
 * - Times are in microseconds and may have fractions: three digits are exact.
 * - Numbers above 2^53 are not exact in most readers: they are written as strings.
 */
#include <errno.h>
#include <inttypes.h>

#include "trace/export.h"
#include "trace/text.h"

/* Threads of movers, which are none of the system's: numbers above all of those. */
#define MOVER_TID(lane, row) (UINT64_C(100000000) + (uint64_t)(lane)*100 + (row))

struct out {
    FILE *f;
    const struct vv_timeline *t;
    uint64_t pid;
    bool any; /* an event was written */
};

static void put_time(const struct out *o, const char *key, uint64_t ns)
{
    fprintf(o->f, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static void put_number(const struct out *o, const char *key, uint64_t value)
{
    const char *quote = value >> 53 ? "\"" : "";

    fprintf(o->f, "\"%s\":%s%" PRIu64 "%s", key, quote, value, quote);
}

/* Up to and with its thread. */
static void event_begin(struct out *o, const char *type, const char *name, uint64_t tid)
{
    fprintf(o->f, "%s\n{\"ph\":\"%s\",\"pid\":%" PRIu64 ",\"tid\":%" PRIu64 ",\"name\":",
            o->any ? "," : "", type, o->pid, tid);
    vv_text_json(o->f, name);
    o->any = true;
}

static void put_thread(struct out *o, uint64_t tid, const char *name, unsigned row, size_t order)
{
    char full[256];

    if (row > 0)
        snprintf(full, sizeof(full), "%s #%u", name, row + 1);
    else
        snprintf(full, sizeof(full), "%s", name);
    event_begin(o, "M", "thread_name", tid);
    fputs(",\"args\":{\"name\":", o->f);
    vv_text_json(o->f, full);
    fputs("}}", o->f);
    event_begin(o, "M", "thread_sort_index", tid);
    fprintf(o->f, ",\"args\":{\"sort_index\":%zu}}", order);
}

static void put_span(struct out *o, const struct vv_span *s, uint64_t tid)
{
    bool call = s->kind == VV_SPAN_WRITE || s->kind == VV_SPAN_READ || s->kind == VV_SPAN_OTHER;
    bool transfer = s->kind == VV_SPAN_COPY || s->kind == VV_SPAN_COMMIT;

    event_begin(o, "X", s->name[0] ? s->name : "(no phase)", tid);
    fputs(",\"cat\":", o->f);
    vv_text_json(o->f, vv_span_kind_name((enum vv_span_kind)s->kind));
    put_time(o, "ts", s->start_ns);
    put_time(o, "dur", s->end_ns - s->start_ns);
    fputs(",\"args\":{", o->f);
    if (call || transfer) {
        put_number(o, "version", s->version);
        fputs(",\"history\":", o->f);
        vv_text_json(o->f, vv_timeline_history(o->t, s->history, s->start_ns));
        fputc(',', o->f);
        put_number(o, "bytes", s->bytes);
        fprintf(o->f, ",\"status\":%" PRId32, s->status);
    }
    if (s->kind == VV_SPAN_COPY) {
        uint32_t context = VV_TRACE_HISTORY_CONTEXT(s->history);

        fputs(",\"from\":", o->f);
        vv_text_json(o->f, vv_timeline_tier(o->t, context, s->src_tier));
        fputs(",\"to\":", o->f);
        vv_text_json(o->f, vv_timeline_tier(o->t, context, s->dst_tier));
    }
    if (s->cut)
        fprintf(o->f, "%s\"cut\":true", call || transfer ? "," : "");
    fputs("}}", o->f);
}

/* Spans come by their start; of those with the same one, the outer has to come first. */
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

static void put_counters(struct out *o)
{
    char name[128];

    for (size_t i = 0; i < o->t->noccupancy; i++) {
        const struct vv_occupancy *c = &o->t->occupancy[i];

        snprintf(name, sizeof(name), "%s: bytes in use", c->label);
        for (size_t k = 0; k < c->npoints; k++) {
            event_begin(o, "C", name, 0);
            put_time(o, "ts", c->points[k].time_ns);
            fprintf(o->f, ",\"args\":{\"bytes\":%" PRIu64 "}}", c->points[k].bytes);
        }
    }
    for (size_t i = 0; i < o->t->niterations; i++) {
        const struct vv_iteration *it = &o->t->iterations[i];

        if (!it->restore || it->distance == VV_NO_DISTANCE)
            continue;
        event_begin(o, "C", "prefetch distance", 0);
        put_time(o, "ts", it->start_ns);
        fprintf(o->f, ",\"args\":{\"versions\":%" PRIu64 "}}", it->distance);
    }
}

static void put_losses(struct out *o)
{
    const struct vv_trace_file *file = o->t->file;

    for (size_t i = 0; file->lost > 0 && i < file->nrecords; i++) {
        const struct vv_trace_record *r = &file->records[i];

        if (r->kind != VV_TRACE_LOST)
            continue;
        event_begin(o, "i", "records were lost", 0);
        put_time(o, "ts", r->time_ns - o->t->origin_ns);
        fprintf(o->f, ",\"s\":\"g\",\"args\":{\"records\":%" PRIu64 "}}", r->arg[0]);
    }
}

/* What the trace says of itself. */
static void put_other_data(const struct out *o)
{
    const struct vv_trace_file *file = o->t->file;
    const char *separator = "";

    fputs(",\n\"otherData\":{", o->f);
    for (size_t i = 0; i < file->npairs; i++) {
        const struct vv_trace_pair *p = &file->pairs[i];
        char key[256];

        /* A key stands once in an object: the last value counts. */
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
        fputs(separator, o->f);
        vv_text_json(o->f, key);
        fputc(':', o->f);
        vv_text_json(o->f, p->value);
        separator = ",\n";
    }
    fputs("}", o->f);
}

int vv_trace_export_chrome(FILE *f, const struct vv_timeline *t)
{
    struct out o = {.f = f, .t = t, .pid = t->file->pid};
    const char *command = vv_trace_file_meta(t->file, 0, "command");

    fputs("{\"displayTimeUnit\":\"ms\",\n\"traceEvents\":[", f);
    event_begin(&o, "M", "process_name", 0);
    fputs(",\"args\":{\"name\":", f);
    vv_text_json(f, command ? command : "varve");
    fputs("}}", f);
    put_lanes(&o);
    put_counters(&o);
    put_losses(&o);
    fputs("\n]", f);
    put_other_data(&o);
    fputs("}\n", f);
    return fflush(f) || ferror(f) ? -EIO : 0;
}
