/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve sim scale: shots on more and more nodes, with and without a barrier before every call, for
 * several ways to run them. The machine is one of nodes whose devices share their links to host
 * memory in groups, and all of a node its host memory and its disk.
 *
 * A run is one point of the grid (synchronisation, series, number of devices). Runs are independent
 * and have no side effects: a pool of threads runs them, the largest first, and the main thread shows the
 * progress. Rows are printed in the order of the grid after the last one, so the output does not depend on the
 * number of threads; a run that fails is a row with its reason, and makes the command fail.
 *
 * The options of `varve sim shot` define the shot; they are taken besides its own.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <varve/varve.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/thread.h"
#include "base/topo.h"
#include "cli/common/command.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "cli/common/progress.h"
#include "lab/lab.h"
#include "lab/sim/sim_run.h"

#define COMMAND     "varve sim scale"
#define LIST_MAX    32
#define THREADS_MAX 64
#define ARGS_MAX    32
#define WATCH_NS    (50 * VV_NS_PER_MS)
#define TEXT_BYTES  256

enum sync { SYNC_BARRIER, SYNC_NONE, SYNC_BOTH };

/* One way to run a shot. */
struct series {
    char name[32];
    const char *policy; /* NULL: nothing is cached on the device, calls copy on demand */
    const char *hints;
};

struct scale_opts {
    struct shot_args shot;
    bool json;
    const char *csv; /* NULL: none; "-": standard output */
    bool barrier;    /* this and the next three are refused: the grid decides */
    const char *procs, *hints, *policy;
    uint32_t gpus[LIST_MAX];
    size_t nr_gpus;
    struct series series[LIST_MAX];
    size_t nr_series;
    int sync;
    uint32_t jobs;
    struct sim_nodes nodes;
};

/* One point of the grid. Synchronization: owned by its worker until that is joined. */
struct point {
    struct shot_opts shot;
    const struct series *series;
    int rc;
    char err[TEXT_BYTES];
    struct shot_report report; /* without the processes */
};

struct pool {
    const struct sim_nodes *nodes;
    struct point **order; /* the largest first */
    size_t nr;
    _Atomic size_t next;        /* relaxed: it only has to be a different number for each thread */
    _Atomic uint64_t done_gpus; /* relaxed: for the display */
    _Atomic size_t done;        /* relaxed: the join orders the results */
};

#define DEFAULT_GPUS       "8,16,32,64,128"
#define DEFAULT_SERIES     "next/all,next/one,next/none,score/all,score/none,ondemand"
#define DEFAULT_NODE_RATES "link=25G,memory=160G"
#define SHOT_DEFAULTS                                                    \
    "--ckpts 384 --order irr --device-cache 4G --host-cache 32G --rate " \
    "d2d=1000G,d2h=25G,h2d=25G,h2f=16G,f2h=16G --page 1M --device host " \
    "--size 128M"

VV_PRINTF(2, 3) static int fail(char *err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err, TEXT_BYTES, fmt, ap);
    va_end(ap);
    return -EINVAL;
}

/* ---- the command line ---- */

static int set_gpus(const char *list, void *arg)
{
    struct scale_opts *o = arg;
    char word[32];
    uint64_t gpus;

    o->nr_gpus = 0;
    do {
        if (o->nr_gpus == LIST_MAX || !output_next_word(&list, word, sizeof(word)) ||
            opts_number(word, 1, 65536, &gpus) < 0)
            return -EINVAL;
        o->gpus[o->nr_gpus++] = (uint32_t)gpus;
    } while (*list);
    return 0;
}

static const char *find_word(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(word, *words) == 0)
            return *words;
    return NULL;
}

static int parse_one_series(char *word, struct series *s)
{
    static const char *const policies[] = {"next", "score", "score-now", "fifo", "lru", NULL};
    static const char *const hints[] = {"none", "one", "all", NULL};
    char *slash;

    snprintf(s->name, sizeof(s->name), "%s", word);
    if (strcmp(word, "ondemand") == 0) {
        s->policy = NULL;
        s->hints = "none";
        return 0;
    }
    slash = strchr(word, '/');
    if (!slash)
        return -EINVAL;
    *slash = '\0';
    s->policy = find_word(word, policies);
    s->hints = find_word(slash + 1, hints);
    return s->policy && s->hints ? 0 : -EINVAL;
}

static int set_series(const char *list, void *arg)
{
    struct scale_opts *o = arg;
    char word[sizeof(o->series[0].name)];

    o->nr_series = 0;
    do {
        if (o->nr_series == LIST_MAX || !output_next_word(&list, word, sizeof(word)) ||
            parse_one_series(word, &o->series[o->nr_series++]) < 0)
            return -EINVAL;
    } while (*list);
    return 0;
}

static int set_node_rates(const char *list, void *arg)
{
    struct sim_nodes *nodes = &((struct scale_opts *)arg)->nodes;
    char word[64], *eq;

    do {
        uint64_t bps;

        if (!output_next_word(&list, word, sizeof(word)) || !(eq = strchr(word, '=')))
            return -EINVAL;
        *eq = '\0';
        if (vv_rate_parse(eq + 1, &bps) < 0 || (bps && bps < VV_CONFIG_RATE_MIN))
            return -EINVAL;
        if (strcmp(word, "link") == 0)
            nodes->link_bps = bps;
        else if (strcmp(word, "memory") == 0)
            nodes->memory_bps = bps;
        else
            return -EINVAL;
    } while (*list);
    return 0;
}

#define AT(field) offsetof(struct scale_opts, field)

static const struct opt options[] = {
    {OPT_SET, .name = "gpus", .arg = "N,...", .set = set_gpus,
     .takes = "a list of numbers from 1 to 65536 (such as 8,16)",
     .help = "numbers of GPUs (" DEFAULT_GPUS ")"},
    {OPT_U32, .name = "node-gpus", .arg = "N", .at = AT(nodes.procs), .least = 1, .most = 1024,
     .help = "GPUs of a node (8)"},
    {OPT_U32, .name = "link-gpus", .arg = "N", .at = AT(nodes.link_procs), .least = 1, .most = 1024,
     .help = "GPUs behind one link to host memory (2)"},
    {OPT_SET, .name = "node-rate", .arg = "KIND=RATE,...", .set = set_node_rates,
     .takes = "a list of link=RATE and memory=RATE, from 1K on (such as link=25G)",
     .help = "link: of such a link, in each direction; memory: of a node's\n"
             "host memory (" DEFAULT_NODE_RATES "); 0: no limit"},
    {OPT_SET, .name = "series", .arg = "POLICY/HINTS,...", .set = set_series,
     .takes = "a list of POLICY/HINTS and ondemand (such as next/all,ondemand)",
     .help = "ways to run the shot; ondemand: no cache on the GPU\n(" DEFAULT_SERIES ")"},
    {OPT_WORD, .name = "sync", .arg = "barrier|none|both", .at = AT(sync),
     .words = "barrier|none|both",
     .help = "processes wait for each other before every call, or not (both)"},
    {OPT_TEXT, .name = "csv", .arg = "FILE", .at = AT(csv),
     .help = "write the rows as CSV; -: to standard output"},
    {OPT_FLAG, .name = "json", .at = AT(json), .help = "print one JSON object"},
    {OPT_U32, .name = "jobs", .arg = "N", .at = AT(jobs), .least = 1, .most = THREADS_MAX,
     .help = "simulations at once (a core each)"},
    {OPT_FLAG, .name = "barrier", .at = AT(barrier)},
    {OPT_TEXT, .name = "procs", .arg = "N", .at = AT(procs)},
    {OPT_TEXT, .name = "hints", .arg = "WORD", .at = AT(hints)},
    {OPT_TEXT, .name = "policy", .arg = "WORD", .at = AT(policy)},
};

static const struct opts command = {
    .command = COMMAND,
    .usage = "[OPTION]... [OPTION of varve sim shot]...",
    .about =
        "Simulates shots on more and more nodes of several GPUs each, one process to a GPU, and\n"
        "prints what the average process saw. GPUs share their links to host memory in groups, "
        "and\n"
        "a node's GPUs its host memory and its disk.",
    .tail = "'varve sim shot --help' lists the options of a shot; h2f and f2h are the rates of a "
            "node's\n"
            "disk here. Defaults that differ:\n  " SHOT_DEFAULTS,
    OPT_LIST(options),
    .also = &shot_options,
};

/* Reads the defaults as if they stood before the command line; a default --size does not exclude --sizes. */
static int set_defaults(struct scale_opts *o)
{
    char words[] = SHOT_DEFAULTS, *args[ARGS_MAX] = {(char *)COMMAND}, *save = NULL;
    int n = 1, first;

    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        args[n++] = w;
    shot_args_init(&o->shot);
    if (opts_parse(&command, n, args, o, &first) >= 0 || set_gpus(DEFAULT_GPUS, o) < 0 ||
        set_series(DEFAULT_SERIES, o) < 0 || set_node_rates(DEFAULT_NODE_RATES, o) < 0)
        return -EINVAL;
    o->shot.given_size = false;
    return 0;
}

static int check(struct scale_opts *o, char *err)
{
    if (o->procs)
        return fail(err, "--procs is not allowed here: use --gpus");
    if (o->barrier)
        return fail(err, "--barrier is not allowed here: use --sync");
    if (o->hints || o->policy)
        return fail(err, "--%s is not allowed here: use --series", o->hints ? "hints" : "policy");
    if (shot_args_settle(&o->shot, err, TEXT_BYTES) < 0)
        return -EINVAL;
    if (o->shot.o.order == SHOT_ORDER_BINOMIAL)
        return fail(err, "--order binomial is not allowed here: expected seq, rev or irr");
    if (o->csv && strcmp(o->csv, "-") == 0 && o->json)
        return fail(err, "--json and --csv - both write to standard output: give --csv a file");
    return sim_check_rates(&o->shot.o, err, TEXT_BYTES);
}

/* As opts_parse: -1, or an exit status. */
static int parse(int argc, char **argv, struct scale_opts *o)
{
    char err[TEXT_BYTES] = "";
    int first,
        status = set_defaults(o) < 0 ? CLI_FAILED : opts_parse(&command, argc, argv, o, &first);

    if (status >= 0 || check(o, err) == 0)
        return status;
    fprintf(stderr, COMMAND ": %s\n", err);
    return CLI_USAGE;
}

/* ---- running ---- */

static void run_point(const struct sim_nodes *nodes, struct point *p)
{
    struct shot_report *r = &p->report, totals;

    p->rc = sim_run_nodes(&p->shot, nodes, p->err, sizeof(p->err), r);
    if (p->rc == 0) {
        p->rc = shot_report_check(r, p->err, sizeof(p->err));
        totals = *r;
        shot_report_fini(r);
        totals.procs = NULL;
        *r = totals;
    } else if (!p->err[0]) {
        snprintf(p->err, sizeof(p->err), "%s", varve_strerror(p->rc));
    }
}

static void *work(void *arg)
{
    struct pool *pool = arg;

    for (;;) {
        size_t n = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);

        if (n >= pool->nr)
            return NULL;
        run_point(pool->nodes, pool->order[n]);
        atomic_fetch_add_explicit(&pool->done_gpus, pool->order[n]->shot.procs,
                                  memory_order_relaxed);
        atomic_fetch_add_explicit(&pool->done, 1, memory_order_relaxed);
    }
}

static int compare_points(const void *a, const void *b)
{
    uint32_t x = (*(struct point *const *)a)->shot.procs;
    uint32_t y = (*(struct point *const *)b)->shot.procs;

    return x < y ? 1 : x > y ? -1 : 0;
}

static void watch(struct pool *pool, uint64_t all_gpus)
{
    struct progress bar;

    progress_init(&bar);
    while (bar.shown && atomic_load_explicit(&pool->done, memory_order_relaxed) < pool->nr) {
        char what[64];

        snprintf(what, sizeof(what), "%zu of %zu runs",
                 atomic_load_explicit(&pool->done, memory_order_relaxed), pool->nr);
        progress_show(&bar,
                      (double)atomic_load_explicit(&pool->done_gpus, memory_order_relaxed) /
                          (double)all_gpus,
                      what);
        vv_sleep_until_ns(vv_now_ns() + WATCH_NS);
    }
    progress_clear(&bar);
}

static int run_all(const struct scale_opts *o, struct point *points, size_t nr)
{
    struct pool pool = {.nodes = &o->nodes, .nr = nr};
    pthread_t threads[THREADS_MAX];
    uint64_t all_gpus = 0;
    unsigned started = 0;
    int rc = 0;

    pool.order = calloc(nr, sizeof(*pool.order));
    if (!pool.order)
        return -ENOMEM;
    for (size_t i = 0; i < nr; i++) {
        pool.order[i] = &points[i];
        all_gpus += points[i].shot.procs;
    }
    qsort(pool.order, nr, sizeof(struct point *), compare_points);
    while (started < o->jobs && rc == 0) {
        rc = vv_thread_start(&threads[started], work, &pool);
        if (rc == 0)
            started++;
    }
    /* Fewer threads than requested are enough. */
    if (started > 0) {
        rc = 0;
        watch(&pool, all_gpus);
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(pool.order);
    return rc;
}

/* ---- the grid ---- */

static void set_point(const struct shot_opts *shot, bool barrier, const struct series *series,
                      uint32_t gpus, struct point *p)
{
    static const char *const policies[] = {[VARVE_POLICY_NEXT] = "next",
                                           [VARVE_POLICY_SCORE] = "score",
                                           [VARVE_POLICY_SCORE_NOW] = "score-now",
                                           [VARVE_POLICY_FIFO] = "fifo",
                                           [VARVE_POLICY_LRU] = "lru"};

    *p = (struct point){.shot = *shot, .series = series};
    p->shot.barrier = barrier;
    p->shot.procs = gpus;
    p->shot.hints = strcmp(series->hints, "all") == 0   ? SHOT_HINTS_ALL
                    : strcmp(series->hints, "one") == 0 ? SHOT_HINTS_ONE
                                                        : SHOT_HINTS_NONE;
    if (!series->policy)
        p->shot.device_cache = (struct shot_cap){0};
    for (size_t i = 0; series->policy && i < VV_ARRAY_SIZE(policies); i++)
        if (strcmp(series->policy, policies[i]) == 0)
            p->shot.policy = (int)i;
}

static size_t fill_grid(const struct scale_opts *o, const struct shot_opts *shot,
                        struct point *points)
{
    size_t n = 0;

    for (int sync = SYNC_BARRIER; sync <= SYNC_NONE; sync++) {
        if (o->sync != SYNC_BOTH && o->sync != sync)
            continue;
        for (size_t s = 0; s < o->nr_series; s++)
            for (size_t g = 0; g < o->nr_gpus; g++)
                set_point(shot, sync == SYNC_BARRIER, &o->series[s], o->gpus[g], &points[n++]);
    }
    return n;
}

/* ---- printing ---- */

static const char *sync_of(const struct point *p)
{
    return p->shot.barrier ? "barrier" : "none";
}

static uint64_t nodes_of(const struct scale_opts *o, const struct point *p)
{
    return vv_div_up(p->shot.procs, o->nodes.procs);
}

static void print_table(FILE *f, const struct scale_opts *o, const struct point *points, size_t nr)
{
    fprintf(f, "sync     series           GPUs  nodes  checkpoint GB/s  restore GB/s  distance"
               "  barrier s   wall s\n");
    for (size_t i = 0; i < nr; i++) {
        const struct point *p = &points[i];
        const struct shot_report *r = &p->report;

        fprintf(f, "%-8s %-15s %5" PRIu32 "  %5" PRIu64, sync_of(p), p->series->name, p->shot.procs,
                nodes_of(o, p));
        if (p->rc < 0)
            fprintf(f, "  failed: %s\n", p->err);
        else
            fprintf(f, "  %15.3f  %12.3f  %8.2f  %9.3f  %7.3f\n", r->checkpoint_gbps,
                    r->restore_gbps, r->prefetch_distance_mean, r->barrier_s / p->shot.procs,
                    r->wall_s);
    }
}

/* X(name, value): the figures of a row. */
#define COLUMNS(X)                                          \
    X(checkpoint_gbps, r->checkpoint_gbps)                  \
    X(restore_gbps, r->restore_gbps)                        \
    X(blocked_checkpoint_s, r->blocked_checkpoint_s)        \
    X(blocked_restore_s, r->blocked_restore_s)              \
    X(wait_s, r->wait_s)                                    \
    X(barrier_s, r->barrier_s)                              \
    X(wall_s, r->wall_s)                                    \
    X(bound_s, p->shot.no_bound ? (double)NAN : r->bound_s) \
    X(prefetch_distance_mean, r->prefetch_distance_mean)    \
    X(utilisation, r->utilisation)

/* A failed run has its reason instead of figures; commas would look like columns. */
static void print_reason(FILE *f, const char *text)
{
    for (; *text; text++)
        fputc(*text == ',' || *text == '"' || *text == '\n' ? ' ' : *text, f);
}

static void print_csv(FILE *f, const struct scale_opts *o, const struct point *points, size_t nr)
{
    fprintf(f, "sync,series,gpus,nodes");
#define X(name, value) fprintf(f, "," #name);
    COLUMNS(X)
#undef X
    fprintf(f, ",verified,failure\n");
    for (size_t i = 0; i < nr; i++) {
        const struct point *p = &points[i];
        const struct shot_report *r = &p->report;

        fprintf(f, "%s,%s,%" PRIu32 ",%" PRIu64, sync_of(p), p->series->name, p->shot.procs,
                nodes_of(o, p));
#define X(name, value)                 \
    if (p->rc == 0 && isfinite(value)) \
        fprintf(f, ",%.9g", value);    \
    else                               \
        fputc(',', f);
        COLUMNS(X)
#undef X
        fprintf(f, ",%d,", p->rc == 0 && r->verified);
        print_reason(f, p->rc < 0 ? p->err : "");
        fputc('\n', f);
    }
}

static void print_json(FILE *f, const struct scale_opts *o, const struct shot_opts *shot,
                       const struct point *points, size_t nr)
{
    struct json j = json_begin(f, JSON_COMPACT);

    json_object(&j, NULL);
    json_text(&j, "command", "sim scale");
    json_uint(&j, "node_gpus", o->nodes.procs);
    json_uint(&j, "link_gpus", o->nodes.link_procs);
    json_uint(&j, "link_bps", o->nodes.link_bps);
    json_uint(&j, "memory_bps", o->nodes.memory_bps);
    shot_opts_print_json(&j, "options", shot, false);
    json_array(&j, "rows");
    for (size_t i = 0; i < nr; i++) {
        const struct point *p = &points[i];
        const struct shot_report *r = &p->report;

        json_gap(&j, "\n");
        json_object(&j, NULL);
        json_text(&j, "sync", sync_of(p));
        json_text(&j, "series", p->series->name);
        json_uint(&j, "gpus", p->shot.procs);
        json_uint(&j, "nodes", nodes_of(o, p));
#define X(name, value) json_real(&j, #name, p->rc == 0 ? (value) : (double)NAN);
        COLUMNS(X)
#undef X
        json_bool(&j, "verified", p->rc == 0 && r->verified);
        json_text(&j, "failure", p->rc < 0 ? p->err : NULL);
        json_close(&j);
    }
    json_gap(&j, "\n");
    json_close(&j);
    json_close(&j);
    json_end(&j);
}

static int write_csv(const struct scale_opts *o, const struct point *points, size_t nr)
{
    FILE *f;
    int rc = 0;

    if (strcmp(o->csv, "-") == 0) {
        print_csv(stdout, o, points, nr);
        return 0;
    }
    f = fopen(o->csv, "w");
    if (f)
        print_csv(f, o, points, nr);
    if (!f || ferror(f))
        rc = -errno;
    if (f && fclose(f) != 0)
        rc = -errno;
    if (rc < 0)
        fprintf(stderr, COMMAND ": %s: %s\n", o->csv, strerror(-rc));
    return rc;
}

static int report(const struct scale_opts *o, const struct shot_opts *shot,
                  const struct point *points, size_t nr)
{
    int status = CLI_OK;

    if (o->json)
        print_json(stdout, o, shot, points, nr);
    else if (!o->csv || strcmp(o->csv, "-") != 0)
        print_table(stdout, o, points, nr);
    if (o->csv && write_csv(o, points, nr) < 0)
        status = CLI_FAILED;
    for (size_t i = 0; i < nr; i++) {
        if (points[i].rc == 0)
            continue;
        fprintf(stderr, COMMAND ": %s, %s, %" PRIu32 " GPUs: %s\n", sync_of(&points[i]),
                points[i].series->name, points[i].shot.procs, points[i].err);
        status = CLI_FAILED;
    }
    return status;
}

int lab_sim_scale(int argc, char **argv)
{
    struct scale_opts o = {.sync = SYNC_BOTH, .nodes = {.procs = 8, .link_procs = 2}};
    const struct shot_opts *shot = &o.shot.o;
    struct point *points;
    struct vv_topo topo;
    size_t nr;
    int rc;

    vv_topo_get(&topo);
    o.jobs = VV_MIN(topo.cores, (unsigned)THREADS_MAX);
    rc = parse(argc, argv, &o);
    if (rc >= 0)
        return rc;
    if (output_try(COMMAND, o.csv) < 0)
        return CLI_FAILED;
    points = calloc(2 * o.nr_series * o.nr_gpus, sizeof(*points));
    nr = points ? fill_grid(&o, shot, points) : 0;
    rc = points ? run_all(&o, points, nr) : -ENOMEM;
    if (rc < 0)
        fprintf(stderr, COMMAND ": %s\n", strerror(-rc));
    rc = rc < 0 ? CLI_FAILED : report(&o, shot, points, nr);
    free(points);
    return rc;
}
