/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve top: how running processes are doing, from their statistics pages. It changes nothing but
 * this: pages of processes that have ended without closing are removed.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/common/json.h"
#include "cli/files.h"
#include "cli/top.h"
#include "core/clock.h"
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
        pages->damaged += page->status != -EPROTO; /* another version is nothing wrong */
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

/* ---- for programs ---- */

static void field(const char *name, uint64_t value)
{
    printf(", \"%s\": %" PRIu64, name, value);
}

static void text(const char *name, const char *value)
{
    printf(", \"%s\": ", name);
    json_string(stdout, value);
}

static void number(const char *name, double value)
{
    printf(", \"%s\": ", name);
    json_number(stdout, value);
}

static double per_s(uint64_t n, uint64_t ns)
{
    return ns ? (double)n / (double)ns * 1e9 : 0;
}

static void json_calls(const char *name, const struct vv_stats_calls *c, uint64_t recent_ns)
{
    printf(", \"%s\": {\"count\": %" PRIu64, name, c->count);
    field("bytes", c->bytes);
    number("blocked_s", (double)c->blocked_ns * 1e-9);
    field("waiting", c->waiting);
    number("per_s", per_s(c->recent_count, recent_ns));
    number("bytes_per_s", per_s(c->recent_bytes, recent_ns));
    number("blocked_share", recent_ns ? (double)c->recent_blocked_ns / (double)recent_ns : 0);
    printf("}");
}

static void json_tiers(const struct vv_stats_record *r)
{
    printf(", \"tiers\": [");
    for (uint32_t i = 0; i < r->ntiers; i++) {
        const struct vv_stats_tier *t = &r->tier[i];

        printf("%s{\"name\": ", i ? ", " : "");
        json_string(stdout, t->name);
        text("kind", t->kind);
        field("capacity_bytes", t->capacity_bytes);
        field("ready_bytes", t->ready_bytes);
        field("used_bytes", t->used_bytes);
        field("dirty_bytes", t->dirty_bytes);
        field("evictable_bytes", t->evictable_bytes);
        field("copies", t->copies);
        number("used_byte_s", t->used_byte_s);
        printf("}");
    }
    printf("]");
}

static void json_hops(const struct vv_stats_record *r)
{
    printf(", \"hops\": [");
    for (uint32_t i = 0; i < r->nhops; i++) {
        const struct vv_stats_hop *h = &r->hop[i];

        printf("%s{\"name\": ", i ? ", " : "");
        json_string(stdout, h->name);
        field("moved_bytes", h->moved_bytes);
        number("busy_s", (double)h->busy_ns * 1e-9);
        field("transfers", h->orders);
        field("errors", h->errors);
        field("bandwidth_bytes_per_s", h->bytes_per_s);
        number("bytes_per_s", per_s(h->recent_bytes, r->recent_ns));
        number("busy_share", r->recent_ns ? (double)h->recent_busy_ns / (double)r->recent_ns : 0);
        printf("}");
    }
    printf("]");
}

static void json_histories(const struct vv_stats_record *r)
{
    printf(", \"histories\": [");
    for (uint32_t i = 0; i < r->nhistories; i++) {
        const struct vv_stats_history *h = &r->history[i];

        printf("%s{\"name\": ", i ? ", " : "");
        json_string(stdout, h->name);
        field("versions", h->versions);
        field("durable", h->durable);
        field("failed", h->failed);
        field("hints", h->hints);
        field("ready", h->ready);
        field("pending", h->pending);
        printf(", \"predicting\": %s, \"prefetching\": %s}", h->predicting ? "true" : "false",
               h->prefetching ? "true" : "false");
    }
    printf("]");
}

static void json_process(const struct vv_stats_page *p)
{
    static const char *const states[] = {"open", "closing", "closed"};
    const struct vv_stats_header *h = &p->header;
    const struct vv_stats_record *r = &p->record;

    printf("{\"pid\": %" PRIu64 ", \"rank\": %" PRId32, h->pid, h->rank);
    field("context", h->context);
    text("state", states[VV_MIN(r->state, 2u)]);
    text("version", h->version);
    text("program", h->program);
    text("command", h->command);
    text("level", h->level);
    text("policy", h->policy);
    text("device", h->device);
    text("local", h->local);
    field("page_bytes", h->page_bytes);
    printf(", \"opened_unix_s\": %.3f", (double)h->opened_unix_ns * 1e-9);
    number("up_s", r->time_ns > h->opened_ns ? (double)(r->time_ns - h->opened_ns) * 1e-9 : 0);
    number("age_s", vv_now_ns() > r->time_ns ? (double)(vv_now_ns() - r->time_ns) * 1e-9 : 0);
    number("recent_s", (double)r->recent_ns * 1e-9);
    json_calls("checkpoint", &r->checkpoint, r->recent_ns);
    json_calls("restore", &r->restore, r->recent_ns);
    number("waiting_s", (double)r->waiting_ns * 1e-9);
    field("hits", r->hits);
    field("misses", r->misses);
    field("hints", r->hints);
    field("ready", r->ready);
    field("last_distance", r->last_distance);
    number("last_blocked_s", (double)r->last_blocked_ns * 1e-9);
    field("versions", r->versions);
    field("discarded", r->discarded);
    field("evicted_pages", r->evicted_pages);
    field("revoked_pages", r->revoked_pages);
    field("metadata_bytes", r->metadata_bytes);
    field("helper_threads", r->helper_threads);
    field("helper_cpu_ns", r->helper_cpu_ns);
    field("helper_cores", r->helper_cores);
    number("expected_speedup_start", r->expected_speedup_start);
    number("expected_speedup", r->expected_speedup);
    number("actual_speedup", r->actual_speedup);
    field("helper_process_pid", r->process_pid);
    field("helper_process_alive", r->process_alive);
    field("helper_process_requests", r->process_requests);
    field("helper_process_bytes", r->process_bytes);
    field("helper_process_cpu_ns", r->process_cpu_ns);
    field("helper_process_redone", r->process_redone);
    field("partner", r->partner_on);
    field("partner_sent", r->partner_sent);
    field("partner_received", r->partner_received);
    field("partner_pending", r->partner_pending);
    field("partner_errors", r->partner_errors);
    field("partner_sent_bytes", r->partner_sent_bytes);
    field("partner_received_bytes", r->partner_received_bytes);
    field("partner_held_bytes", r->partner_held_bytes);
    field("partner_recovered", r->partner_recovered);
    field("partner_mended_chunks", r->partner_mended_chunks);
    field("failed_calls", r->failed_calls);
    field("late_errors", r->late_errors);
    field("bad_reads", r->bad_reads);
    field("rereads", r->reread);
    field("healed_chunks", r->healed_chunks);
    field("repaired_chunks", r->repaired_chunks);
    json_tiers(r);
    json_hops(r);
    json_histories(r);
    printf("}");
}

static void print_json(const struct top_pages *pages)
{
    printf("{\"processes\": [");
    for (size_t i = 0; i < pages->n; i++) {
        printf("%s\n  ", i ? "," : "");
        json_process(&pages->page[i]);
    }
    printf("\n]}\n");
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

static void usage(FILE *out)
{
    fprintf(out, "usage: varve top [--once | --json | --prometheus] [--interval SECONDS]\n"
                 "                 [--stats FOLDER] [PID]\n\n"
                 "Shows how processes that use Varve are doing: the process PID, or all of this\n"
                 "user. On a terminal it goes on until q is pressed, h explains what is shown;\n"
                 "otherwise it prints the same once.\n\n"
                 "  --once              print it once\n"
                 "  --json              print one JSON object, once\n"
                 "  --prometheus        print the figures as Prometheus reads them, once\n"
                 "  --interval SECONDS  look again after so long, 0.1 to 3600; 1 by default\n"
                 "  --stats FOLDER      look only where processes publish whose setting `stats`\n"
                 "                      names this folder; by default as VARVE_STATS says\n"
                 "  --help              print this\n");
}

static int bad(const char *what, const char *value)
{
    fprintf(stderr, "varve top: %s '%s'\n", what, value);
    return CLI_USAGE;
}

static bool seconds(const char *s, double *ret)
{
    char *end;
    double x = strtod(s, &end);

    if (end == s || *end || !isfinite(x) || x < 0.1 || x > 3600)
        return false;
    *ret = x;
    return true;
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

int cli_top(int argc, char **argv)
{
    static const struct option options[] = {{"once", no_argument, NULL, '1'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"prometheus", no_argument, NULL, 'p'},
                                            {"interval", required_argument, NULL, 'i'},
                                            {"stats", required_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct top_pages pages = {.folder = getenv("VARVE_STATS")};
    enum form form = FORM_AUTO;
    double interval_s = 1;

    if (pages.folder && !strchr(pages.folder, '/'))
        pages.folder = NULL; /* auto, off, or empty */
    for (int opt; (opt = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (opt) {
        case '1':
        case 'j':
        case 'p':
            if (form != FORM_AUTO)
                return bad("only one of --once, --json and --prometheus:", argv[optind - 1]);
            form = opt == '1' ? FORM_ONCE : opt == 'j' ? FORM_JSON : FORM_PROMETHEUS;
            break;
        case 'i':
            if (!seconds(optarg, &interval_s))
                return bad("--interval takes 0.1 to 3600 seconds, not", optarg);
            break;
        case 's':
            pages.folder = optarg;
            break;
        case 'h':
            usage(stdout);
            return CLI_OK;
        default:
            usage(stderr);
            return CLI_USAGE;
        }
    }
    if (optind < argc && (!files_number(argv[optind], &pages.pid) || !pages.pid))
        return bad("not the number of a process:", argv[optind]);
    if (optind + 1 < argc)
        return bad("one process at most; unexpected argument", argv[optind + 1]);
    int result = form == FORM_AUTO && top_has_terminal() ? top_terminal(&pages, interval_s)
                                                         : show_once(&pages, form);
    top_pages_free(&pages);
    return result;
}
