/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a report for programs: those of the page's head lines and tables. An unknown figure is null. */
#include <math.h>

#include "cli/common/json.h"
#include "cli/report/trace_page.h"

static void put_total(struct json *j, const char *name, const struct trace_total *t,
                      const double *cause_s)
{
    static const char *const causes[] = {
        [BLOCKED_COPYING] = "copying_s", [BLOCKED_DISK] = "disk_s", [BLOCKED_LINK] = "link_s",
        [BLOCKED_REMOTE] = "remote_s",   [BLOCKED_ELSE] = "else_s",
    };

    json_object(j, name);
    json_uint(j, "calls", t->nr);
    json_uint(j, "failed", t->failed);
    json_number(j, "bytes", "%.0f", t->bytes);
    json_real(j, "blocked_s", t->blocked_s);
    json_real(j, "gbps", t->blocked_s > 0 ? t->bytes / t->blocked_s / 1e9 : NAN);
    json_object(j, "blocked");
    for (int i = 0; i < BLOCKED_CAUSE_NR; i++)
        json_real(j, causes[i], cause_s[i]);
    json_close(j);
    json_close(j);
}

static void put_bound(struct json *j, const struct trace_page *p, double blocked_s)
{
    double least = p->bound.missing ? NAN : p->bound.result.total_s;

    json_real(j, "bound_s", least);
    json_real(j, "bound_ratio", least > 0 ? blocked_s / least : NAN);
    if (p->bound.missing)
        json_text(j, "no_bound", p->bound.missing);
}

static void put_hop(struct json *j, const struct trace_hop *h)
{
    json_object(j, NULL);
    json_text(j, "way", h->title);
    json_uint(j, "bytes", h->bytes);
    json_uint(j, "copies", h->copies);
    json_uint(j, "failed", h->failures);
    json_real(j, "busy_s", h->busy_s);
    json_real(j, "best_gbps", h->best_bps > 0 ? h->best_bps / 1e9 : NAN);
    json_close(j);
}

static void put_tier(struct json *j, const struct trace_tier *t)
{
    double peak = 0;

    for (size_t i = 0; i < t->nr; i++)
        peak = fmax(peak, t->bytes[i]);
    json_object(j, NULL);
    json_text(j, "tier", t->name);
    json_uint(j, "capacity_bytes", t->capacity);
    json_number(j, "peak_bytes", "%.0f", peak);
    json_uint(j, "buffer_bytes", t->buffers);
    json_close(j);
}

void trace_page_json(FILE *f, const struct trace_page *p)
{
    struct trace_totals t = trace_page_totals(p);
    struct json j = json_begin(f, JSON_COMPACT);

    json_object(&j, NULL);
    json_text(&j, "title", p->title);
    json_real(&j, "wall_s", p->wall_s);
    json_real(&j, "blocked_s", t.blocked_s);
    json_uint(&j, "threads", p->nr_threads);
    put_bound(&j, p, t.blocked_s);
    put_total(&j, "checkpoint", &t.put, p->cause_s[0]);
    put_total(&j, "restore", &t.get, p->cause_s[1]);
    json_uint(&j, "restores_found_ready", t.get.ready);
    json_real(&j, "prefetch_distance", t.get.nr_ahead ? t.get.ahead / (double)t.get.nr_ahead : NAN);
    json_array(&j, "ways");
    for (size_t i = 0; i < p->nr_hops; i++)
        put_hop(&j, &p->hops[i]);
    json_close(&j);
    json_array(&j, "tiers");
    for (size_t i = 0; i < p->nr_tiers; i++)
        put_tier(&j, &p->tiers[i]);
    json_close(&j);
    json_text(&j, "helpers", p->helpers);
    json_uint(&j, "errors", p->nr_errors);
    json_uint(&j, "repaired", p->nr_repairs);
    json_uint(&j, "pictures", p->nr_pictures);
    json_uint(&j, "records", p->nr_records);
    json_uint(&j, "lost", p->lost_records);
    json_close(&j);
    json_end(&j);
}
