/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a report for programs: what the page says in its head lines and tables. A figure
 * that is not known is null. */
#include <inttypes.h>
#include <math.h>

#include "cli/common/json.h"
#include "cli/report/trace_page.h"

static void put_number(FILE *f, const char *name, double x)
{
    fprintf(f, "\"%s\":", name);
    json_number(f, x);
    fputc(',', f);
}

static void put_total(FILE *f, const char *name, const struct trace_total *t, const double *cause_s)
{
    static const char *const causes[] = {
        [BLOCKED_COPYING] = "copying_s", [BLOCKED_DISK] = "disk_s", [BLOCKED_LINK] = "link_s",
        [BLOCKED_REMOTE] = "remote_s",   [BLOCKED_ELSE] = "else_s",
    };

    fprintf(f, "\"%s\":{\"calls\":%zu,\"failed\":%zu,\"bytes\":%.0f,", name, t->nr, t->failed,
            t->bytes);
    put_number(f, "blocked_s", t->blocked_s);
    put_number(f, "gbps", t->blocked_s > 0 ? t->bytes / t->blocked_s / 1e9 : NAN);
    fputs("\"blocked\":{", f);
    for (int i = 0; i < BLOCKED_CAUSE_NR; i++) {
        fprintf(f, "%s\"%s\":", i ? "," : "", causes[i]);
        json_number(f, cause_s[i]);
    }
    fputs("}},", f);
}

static void put_bound(FILE *f, const struct trace_page *p, double blocked_s)
{
    const struct bound_result *b = &p->bound.result;
    double least = p->bound.missing ? NAN : b->total_s;

    put_number(f, "bound_s", least);
    put_number(f, "bound_ratio", least > 0 ? blocked_s / least : NAN);
    if (p->bound.missing) {
        fputs("\"no_bound\":", f);
        json_string(f, p->bound.missing);
        fputc(',', f);
    }
}

static void put_hop(FILE *f, const struct trace_hop *h)
{
    fputs("{\"way\":", f);
    json_string(f, h->title);
    fprintf(f, ",\"bytes\":%" PRIu64 ",\"copies\":%" PRIu64 ",\"failed\":%" PRIu64 ",", h->bytes,
            h->copies, h->failures);
    put_number(f, "busy_s", h->busy_s);
    fputs("\"best_gbps\":", f);
    json_number(f, h->best_bps > 0 ? h->best_bps / 1e9 : NAN);
    fputc('}', f);
}

static void put_tier(FILE *f, const struct trace_tier *t)
{
    double peak = 0;

    for (size_t i = 0; i < t->nr; i++)
        peak = fmax(peak, t->bytes[i]);
    fputs("{\"tier\":", f);
    json_string(f, t->name);
    fprintf(f, ",\"capacity_bytes\":%" PRIu64 ",\"peak_bytes\":%.0f}", t->capacity, peak);
}

void trace_page_json(FILE *f, const struct trace_page *p)
{
    struct trace_totals t = trace_page_totals(p);

    fputs("{\"title\":", f);
    json_string(f, p->title);
    fputc(',', f);
    put_number(f, "wall_s", p->wall_s);
    put_number(f, "blocked_s", t.blocked_s);
    fprintf(f, "\"threads\":%u,", p->nr_threads);
    put_bound(f, p, t.blocked_s);
    put_total(f, "checkpoint", &t.put, p->cause_s[0]);
    put_total(f, "restore", &t.get, p->cause_s[1]);
    fprintf(f, "\"restores_found_ready\":%zu,", t.get.ready);
    put_number(f, "prefetch_distance", t.get.nr_ahead ? t.get.ahead / (double)t.get.nr_ahead : NAN);
    fputs("\"ways\":[", f);
    for (size_t i = 0; i < p->nr_hops; i++) {
        fputs(i ? "," : "", f);
        put_hop(f, &p->hops[i]);
    }
    fputs("],\"tiers\":[", f);
    for (size_t i = 0; i < p->nr_tiers; i++) {
        fputs(i ? "," : "", f);
        put_tier(f, &p->tiers[i]);
    }
    fprintf(f,
            "],\"errors\":%zu,\"repaired\":%" PRIu64 ",\"pictures\":%zu,\"records\":%" PRIu64
            ",\"lost\":%" PRIu64 "}\n",
            p->nr_errors, p->nr_repairs, p->nr_pictures, p->nr_records, p->lost_records);
}
