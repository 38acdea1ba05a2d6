/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve top: the state of running processes, from their statistics pages. It changes nothing, except that it
 * removes pages of processes that ended without closing them.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/checkpoint_files.h"
#include "cli/cli.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/top.h"
#include "stats/prometheus.h"

struct look {
    struct top_pages *pages;
    void (*tell)(const struct vv_stats_page *page);
};

static int see(void *arg, const struct vv_stats_page *page)
{
    struct look *look = arg;
    struct top_pages *pages = look->pages;

    if (page->owner == VV_STATS_DEAD) {
        if (vv_stats_page_remove(page) == 0) {
            pages->removed++;
            if (look->tell)
                look->tell(page);
        }
        return 0;
    }
    if (page->status) {
        pages->damaged += page->status != -EPROTO; /* another version is not an error */
        if (!pages->trouble[0])
            snprintf(pages->trouble, sizeof(pages->trouble), "%.100s: %.140s", page->path,
                     page->error);
        if (look->tell)
            look->tell(page);
        return 0;
    }
    if (pages->pid && pages->pid != page->header.pid)
        return 0;
    if (pages->n == pages->cap) {
        size_t cap = VV_MAX(2 * pages->cap, (size_t)8);
        struct vv_stats_page *more = realloc(pages->page, cap * sizeof(*more));
        if (!more)
            return -ENOMEM;
        pages->page = more;
        pages->cap = cap;
    }
    pages->page[pages->n++] = *page;
    return 0;
}

static int by_process(const void *a, const void *b)
{
    const struct vv_stats_header *x = &((const struct vv_stats_page *)a)->header,
                                 *y = &((const struct vv_stats_page *)b)->header;

    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return x->context < y->context ? -1 : x->context > y->context;
}

int top_look(struct top_pages *pages, void (*tell)(const struct vv_stats_page *page))
{
    struct look look = {pages, tell};

    pages->n = 0;
    pages->removed = pages->damaged = 0;
    pages->trouble[0] = '\0';
    int rc = vv_stats_page_each(pages->folder, see, &look);
    if (pages->n > 1)
        qsort(pages->page, pages->n, sizeof(*pages->page), by_process);
    return rc;
}

void top_pages_free(struct top_pages *pages)
{
    free(pages->page);
    pages->page = NULL;
    pages->n = pages->cap = 0;
}

static void tell(const struct vv_stats_page *page)
{
    if (page->owner == VV_STATS_DEAD && page->header.pid)
        fprintf(stderr,
                "varve top: removed the page of process %" PRIu64 ", which ended without closing\n",
                page->header.pid);
    else if (page->owner == VV_STATS_DEAD)
        fprintf(stderr, "varve top: removed %s, which was never finished\n", page->path);
    else
        fprintf(stderr, "varve top: %s: %s\n", page->path, page->error);
}

static double per_s(uint64_t n, uint64_t ns)
{
    return ns ? (double)n / (double)ns * 1e9 : 0;
}

static void json_calls(struct json *j, const char *name, const struct vv_stats_calls *c,
                       uint64_t recent_ns)
{
    json_object(j, name);
    json_uint(j, "count", c->count);
    json_uint(j, "bytes", c->bytes);
    json_real(j, "blocked_s", (double)c->blocked_ns * 1e-9);
    json_uint(j, "waiting", c->waiting);
    json_real(j, "per_s", per_s(c->recent_count, recent_ns));
    json_real(j, "bytes_per_s", per_s(c->recent_bytes, recent_ns));
    json_real(j, "blocked_share", recent_ns ? (double)c->recent_blocked_ns / (double)recent_ns : 0);
    json_close(j);
}

static void json_tiers(struct json *j, const struct vv_stats_record *r)
{
    json_array(j, "tiers");
    for (uint32_t i = 0; i < r->ntiers; i++) {
        const struct vv_stats_tier *t = &r->tier[i];

        json_object(j, NULL);
        json_text(j, "name", t->name);
        json_text(j, "kind", t->kind);
        json_uint(j, "capacity_bytes", t->capacity_bytes);
        json_uint(j, "ready_bytes", t->ready_bytes);
        json_uint(j, "used_bytes", t->used_bytes);
        json_uint(j, "dirty_bytes", t->dirty_bytes);
        json_uint(j, "evictable_bytes", t->evictable_bytes);
        json_uint(j, "copies", t->copies);
        json_real(j, "used_byte_s", t->used_byte_s);
        json_close(j);
    }
    json_close(j);
}

static void json_hops(struct json *j, const struct vv_stats_record *r)
{
    json_array(j, "hops");
    for (uint32_t i = 0; i < r->nhops; i++) {
        const struct vv_stats_hop *h = &r->hop[i];

        json_object(j, NULL);
        json_text(j, "name", h->name);
        json_uint(j, "moved_bytes", h->moved_bytes);
        json_real(j, "busy_s", (double)h->busy_ns * 1e-9);
        json_uint(j, "transfers", h->orders);
        json_uint(j, "errors", h->errors);
        json_uint(j, "bandwidth_bytes_per_s", h->bytes_per_s);
        json_real(j, "bytes_per_s", per_s(h->recent_bytes, r->recent_ns));
        json_real(j, "busy_share",
                  r->recent_ns ? (double)h->recent_busy_ns / (double)r->recent_ns : 0);
        json_close(j);
    }
    json_close(j);
}

static void json_histories(struct json *j, const struct vv_stats_record *r)
{
    json_array(j, "histories");
    for (uint32_t i = 0; i < r->nhistories; i++) {
        const struct vv_stats_history *h = &r->history[i];

        json_object(j, NULL);
        json_text(j, "name", h->name);
        json_uint(j, "versions", h->versions);
        json_uint(j, "durable", h->durable);
        json_uint(j, "failed", h->failed);
        json_uint(j, "hints", h->hints);
        json_uint(j, "ready", h->ready);
        json_uint(j, "pending", h->pending);
        json_bool(j, "predicting", h->predicting);
        json_bool(j, "prefetching", h->prefetching);
        json_close(j);
    }
    json_close(j);
}

static void json_process(struct json *j, const struct vv_stats_page *p)
{
    static const char *const states[] = {"open", "closing", "closed"};
    const struct vv_stats_header *h = &p->header;
    const struct vv_stats_record *r = &p->record;

    json_object(j, NULL);
    json_uint(j, "pid", h->pid);
    json_int(j, "rank", h->rank);
    json_uint(j, "context", h->context);
    json_text(j, "state", states[VV_MIN(r->state, 2u)]);
    json_text(j, "version", h->version);
    json_text(j, "program", h->program);
    json_text(j, "command", h->command);
    json_text(j, "level", h->level);
    json_text(j, "policy", h->policy);
    json_text(j, "device", h->device);
    json_text(j, "local", h->local);
    json_uint(j, "page_bytes", h->page_bytes);
    json_number(j, "opened_unix_s", "%.3f", (double)h->opened_unix_ns * 1e-9);
    json_real(j, "up_s",
              r->time_ns > h->opened_ns ? (double)(r->time_ns - h->opened_ns) * 1e-9 : 0);
    json_real(j, "age_s", vv_now_ns() > r->time_ns ? (double)(vv_now_ns() - r->time_ns) * 1e-9 : 0);
    json_real(j, "recent_s", (double)r->recent_ns * 1e-9);
    json_calls(j, "checkpoint", &r->checkpoint, r->recent_ns);
    json_calls(j, "restore", &r->restore, r->recent_ns);
    json_real(j, "waiting_s", (double)r->waiting_ns * 1e-9);
    json_uint(j, "hits", r->hits);
    json_uint(j, "misses", r->misses);
    json_uint(j, "hints", r->hints);
    json_uint(j, "ready", r->ready);
    json_uint(j, "last_distance", r->last_distance);
    json_real(j, "last_blocked_s", (double)r->last_blocked_ns * 1e-9);
    json_uint(j, "versions", r->versions);
    json_uint(j, "discarded", r->discarded);
    json_uint(j, "evicted_pages", r->evicted_pages);
    json_uint(j, "revoked_pages", r->revoked_pages);
    json_uint(j, "metadata_bytes", r->metadata_bytes);
    json_uint(j, "buffer_bytes", r->buffer_bytes);
    json_uint(j, "helper_threads", r->helper_threads);
    json_uint(j, "helper_cpu_ns", r->helper_cpu_ns);
    json_uint(j, "helper_cores", r->helper_cores);
    json_text(j, "helper_where", r->helper_where);
    json_text(j, "helper_how", r->helper_how);
    json_text(j, "application_where", r->app_where);
    json_uint(j, "application_processors", r->app_cpus);
    json_uint(j, "recent_helper_cpu_ns", r->recent_helper_cpu_ns);
    json_real(j, "expected_speedup_start", r->expected_speedup_start);
    json_real(j, "expected_speedup", r->expected_speedup);
    json_real(j, "actual_speedup", r->actual_speedup);
    json_uint(j, "helper_process_pid", r->process_pid);
    json_uint(j, "helper_process_alive", r->process_alive);
    json_uint(j, "helper_process_requests", r->process_requests);
    json_uint(j, "helper_process_bytes", r->process_bytes);
    json_uint(j, "helper_process_cpu_ns", r->process_cpu_ns);
    json_uint(j, "helper_process_redone", r->process_redone);
    json_uint(j, "partner", r->partner_on);
    json_uint(j, "partner_sent", r->partner_sent);
    json_uint(j, "partner_received", r->partner_received);
    json_uint(j, "partner_pending", r->partner_pending);
    json_uint(j, "partner_errors", r->partner_errors);
    json_uint(j, "partner_sent_bytes", r->partner_sent_bytes);
    json_uint(j, "partner_received_bytes", r->partner_received_bytes);
    json_uint(j, "partner_held_bytes", r->partner_held_bytes);
    json_uint(j, "partner_recovered", r->partner_recovered);
    json_uint(j, "partner_repaired_chunks", r->partner_repaired_chunks);
    json_uint(j, "partner_mended_chunks", r->partner_repaired_chunks); /* its former name */
    json_uint(j, "failed_calls", r->failed_calls);
    json_uint(j, "late_errors", r->late_errors);
    json_uint(j, "bad_reads", r->bad_reads);
    json_uint(j, "rereads", r->reread);
    json_uint(j, "healed_chunks", r->healed_chunks);
    json_uint(j, "repaired_chunks", r->repaired_chunks);
    json_tiers(j, r);
    json_hops(j, r);
    json_histories(j, r);
    json_close(j);
}

static void print_json(const struct top_pages *pages)
{
    struct json j = json_begin(stdout, JSON_SPACED);

    json_object(&j, NULL);
    json_array(&j, "processes");
    for (size_t i = 0; i < pages->n; i++) {
        json_gap(&j, "\n  ");
        json_process(&j, &pages->page[i]);
    }
    json_gap(&j, "\n");
    json_close(&j);
    json_close(&j);
    json_end(&j);
}

static int print_prometheus(const struct top_pages *pages)
{
    struct vv_stats_target *targets = calloc(pages->n + 1, sizeof(*targets));

    if (!targets)
        return CLI_FAILED;
    for (size_t i = 0; i < pages->n; i++)
        targets[i] = (struct vv_stats_target){&pages->page[i].header, &pages->page[i].record};
    vv_stats_prometheus(stdout, targets, pages->n);
    free(targets);
    return CLI_OK;
}

static void print_text(const struct top_pages *pages)
{
    struct top_text t = {.width = top_width()};

    if (pages->n == 0 && !pages->pid)
        top_row(&t, "no process of this user publishes statistics");
    else if (pages->n > 1)
        top_view_list(&t, pages, SIZE_MAX);
    else if (pages->n == 1)
        top_view_process(&t, &pages->page[0]);
    if (t.data)
        printf("%s\n", t.data);
    top_text_free(&t);
}

/* ---- the command ---- */

enum form { FORM_AUTO, FORM_ONCE, FORM_JSON, FORM_PROMETHEUS };

static int bad(const char *what, const char *value)
{
    fprintf(stderr, "varve top: '%s' %s; see --help\n", value, what);
    return CLI_USAGE;
}

static int show_once(struct top_pages *pages, enum form form)
{
    int result = CLI_OK;
    int rc = top_look(pages, tell);

    if (rc) {
        fprintf(stderr, "varve top: %s: %s\n", pages->folder ? pages->folder : "looking for pages",
                strerror(-rc));
        return CLI_FAILED;
    }
    if (form == FORM_JSON)
        print_json(pages);
    else if (form == FORM_PROMETHEUS)
        result = print_prometheus(pages);
    else
        print_text(pages);
    if (pages->pid && pages->n == 0) {
        fprintf(stderr,
                "varve top: process %" PRIu64
                " publishes no statistics: it does not use Varve, has "
                "`stats` set to off, or belongs to another user\n",
                pages->pid);
        result = CLI_FAILED;
    }
    return pages->damaged ? CLI_FAILED : result;
}

struct top_opts {
    bool once, json, prometheus;
    double interval_s;
    const char *folder;
};

#define AT(field) offsetof(struct top_opts, field)

static const struct opt options[] = {
    {OPT_FLAG, .name = "once", .help = "print it once", .at = AT(once)},
    {OPT_FLAG, .name = "json", .help = "print one JSON object, once", .at = AT(json)},
    {OPT_FLAG, .name = "prometheus", .at = AT(prometheus),
     .help = "print the figures as Prometheus reads them, once"},
    {OPT_REAL, .name = "interval", .arg = "SECONDS", .at = AT(interval_s), .low = 0.1, .high = 3600,
     .help = "look again after so long, 0.1 to 3600; 1 by default"},
    {OPT_TEXT, .name = "stats", .arg = "FOLDER", .at = AT(folder),
     .help = "look only where processes publish whose setting `stats`\n"
             "names this folder; by default as VARVE_STATS says"},
};

static const struct opts command = {
    .command = "varve top",
    .usage = "[--once | --json | --prometheus] [--interval SECONDS]\n"
             "                 [--stats FOLDER] [PID]",
    .about = "Shows the state of processes that use Varve: the process PID, or all of this\n"
             "user. On a terminal it goes on until q is pressed, h explains what is shown;\n"
             "otherwise it prints the same once.",
    .operands = true,
    OPT_LIST(options),
};

int cli_top(int argc, char **argv)
{
    struct top_opts o = {.interval_s = 1, .folder = getenv("VARVE_STATS")};
    struct top_pages pages = {0};
    enum form form;
    int first, result;

    if (o.folder && !strchr(o.folder, '/'))
        o.folder = NULL; /* auto, off, or empty */
    result = opts_parse(&command, argc, argv, &o, &first);
    if (result >= 0)
        return result;
    if (o.once + o.json + o.prometheus > 1) {
        fputs("varve top: --once, --json and --prometheus exclude each other: give one\n", stderr);
        return CLI_USAGE;
    }
    if (first < argc && (!files_number(argv[first], &pages.pid) || !pages.pid))
        return bad("is not the number of a process", argv[first]);
    if (first + 1 < argc)
        return bad("is a second process, expected one at most", argv[first + 1]);
    pages.folder = o.folder;
    form = o.once ? FORM_ONCE : o.json ? FORM_JSON : o.prometheus ? FORM_PROMETHEUS : FORM_AUTO;
    result = form == FORM_AUTO && top_has_terminal() ? top_terminal(&pages, o.interval_s)
                                                     : show_once(&pages, form);
    top_pages_free(&pages);
    return result;
}
