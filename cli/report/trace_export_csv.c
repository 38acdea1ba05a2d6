/* SPDX-License-Identifier: Apache-2.0 */
/* Tables for spreadsheets and scripts. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cli/common/text.h"
#include "cli/report/trace_export.h"

static void put_history(FILE *f, const struct vv_timeline *t, uint64_t history, uint64_t time_ns)
{
    if (history)
        text_csv(f, vv_timeline_history(t, history, time_ns));
    fputc(',', f);
}

static void spans(FILE *f, const struct vv_timeline *t)
{
    fputs("start_ns,end_ns,lane,row,kind,name,history,version,bytes,status,from,to,cut\n", f);
    for (size_t i = 0; i < t->nlanes; i++) {
        const struct vv_lane *l = &t->lanes[i];

        for (size_t k = 0; k < l->nspans; k++) {
            const struct vv_span *s = &l->spans[k];
            uint32_t context = VV_TRACE_HISTORY_CONTEXT(s->history);
            bool copy = s->kind == VV_SPAN_COPY;

            fprintf(f, "%" PRIu64 ",%" PRIu64 ",", s->start_ns, s->end_ns);
            text_csv(f, l->label);
            fprintf(f, ",%u,%s,", s->row, vv_span_kind_name((enum vv_span_kind)s->kind));
            text_csv(f, s->name);
            fputc(',', f);
            put_history(f, t, s->history, s->start_ns);
            if (s->history)
                fprintf(f, "%" PRIu64 ",%" PRIu64 ",%" PRId32, s->version, s->bytes, s->status);
            else
                fputs(",,", f);
            fprintf(f, ",%s,%s,%d\n", copy ? vv_timeline_tier(t, context, s->src_tier) : "",
                    copy ? vv_timeline_tier(t, context, s->dst_tier) : "", s->cut);
        }
    }
}

static void iterations(FILE *f, const struct vv_timeline *t)
{
    fputs("iteration,call,start_ns,end_ns,blocked_ns,gap_ns,thread,history,version,bytes,distance,"
          "status\n",
          f);
    for (size_t i = 0; i < t->niterations; i++) {
        const struct vv_iteration *it = &t->iterations[i];

        fprintf(f, "%zu,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%u,", i,
                vv_trace_call_name(it->call), it->start_ns, it->end_ns, it->end_ns - it->start_ns,
                it->gap_ns, it->thread);
        put_history(f, t, it->history, it->start_ns);
        fprintf(f, "%" PRIu64 ",%" PRIu64 ",", it->version, it->bytes);
        if (it->distance != VV_NO_DISTANCE)
            fprintf(f, "%" PRIu64, it->distance);
        fprintf(f, ",%" PRId32 "\n", it->status);
    }
}

static void occupancy(FILE *f, const struct vv_timeline *t)
{
    fputs("time_ns,context,tier,label,bytes,capacity\n", f);
    for (size_t i = 0; i < t->noccupancy; i++) {
        const struct vv_occupancy *o = &t->occupancy[i];

        for (size_t k = 0; k < o->npoints; k++) {
            fprintf(f, "%" PRIu64 ",%u,%u,", o->points[k].time_ns, o->context, o->tier);
            text_csv(f, o->label);
            fprintf(f, ",%" PRIu64 ",%" PRIu64 "\n", o->points[k].bytes, o->capacity_bytes);
        }
    }
}

/* A record's arguments by their names, so that one column serves all kinds. */
static void records(FILE *f, const struct vv_timeline *t)
{
    const struct vv_trace_file *file = t->file;

    fputs("time_ns,thread,kind,arguments\n", f);
    for (size_t i = 0; i < file->nrecords; i++) {
        const struct vv_trace_record *r = &file->records[i];
        char text[512] = "";
        size_t at = 0;

        for (unsigned a = 0; a < VV_TRACE_ARGS && at < sizeof(text); a++) {
            const char *name = vv_trace_file_arg(file, r->kind, a);
            const char *space = at ? " " : "";

            if (!name[0])
                continue;
            if (strcmp(name, "name") == 0 || strcmp(name, "phase") == 0)
                at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%.32s=%.80s", space, name,
                                       vv_trace_file_name(file, r->arg[a]));
            else if (strcmp(name, "status") == 0)
                at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%.32s=%" PRId64, space,
                                       name, (int64_t)r->arg[a]);
            else
                at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%.32s=%" PRIu64, space,
                                       name, r->arg[a]);
        }
        fprintf(f, "%" PRIu64 ",%u,", r->time_ns - t->origin_ns, r->thread);
        text_csv(f, vv_trace_file_kind(file, r->kind));
        fputc(',', f);
        text_csv(f, text);
        fputc('\n', f);
    }
}

int trace_export_csv(FILE *f, const struct vv_timeline *t, enum trace_table table)
{
    switch (table) {
    case TRACE_TABLE_SPANS:
        spans(f, t);
        break;
    case TRACE_TABLE_ITERATIONS:
        iterations(f, t);
        break;
    case TRACE_TABLE_OCCUPANCY:
        occupancy(f, t);
        break;
    case TRACE_TABLE_RECORDS:
        records(f, t);
        break;
    }
    return fflush(f) || ferror(f) ? -EIO : 0;
}
