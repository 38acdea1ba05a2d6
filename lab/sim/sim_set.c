/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve sim set: many workloads drawn at random, run in one or more ways, and how far each way is from the
 * bound. The report names bad cases by their number; each can be printed as a script and run alone.
 *
 * Runs are independent; a pool of threads runs them, and the output does not depend on their number.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <varve/varve.h>

#include "base/util.h"
#include "cli/common/command.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "lab/lab.h"
#include "lab/sim/set.h"
#include "lab/sim/set_bars.h"
#include "lab/sim/sim_run.h"

#define COMMAND    "varve sim set"
#define SERIES_MAX 24
#define MAX_CASES  UINT32_C(1000000)
#define POLICIES   "next|score|score-now|fifo|lru"
#define HINTS      "none|one|all|late|partial|swapped|wrong"

/* One way to run a case. */
struct series {
    char name[32];
    int policy, hints;
    uint32_t threads; /* threads with the same work, each with a history */
};

struct set_opts {
    uint32_t cases, jobs, worst, one, lp;
    uint64_t seed;
    const char *only, *csv, *before;
    bool json, print, given_one, bars;
    struct series series[SERIES_MAX];
    size_t nr_series;
};

struct row {
    uint32_t id;
    int rc;
    char what[64];
    char err[128];
    struct sim_set_result r;
};

/* Rows case by case, and within a case series by series. */
struct set {
    const struct set_opts *o;
    struct row *rows;
    size_t nr_cases;
    struct sim_progress progress;
};

/* ---- the command line ---- */

static int set_series(const char *value, void *options)
{
    struct set_opts *o = options;
    char word[32];

    o->nr_series = 0;
    while (output_next_word(&value, word, sizeof(word))) {
        struct series s = {.threads = 1};
        char *slash = strchr(word, '/'), *twice;

        if (!slash || o->nr_series == SERIES_MAX)
            return -EINVAL;
        snprintf(s.name, sizeof(s.name), "%s", word);
        *slash = '\0';
        twice = strchr(slash + 1, '/');
        if (twice) {
            if (strcmp(twice, "/twice") != 0)
                return -EINVAL;
            *twice = '\0';
            s.threads = 2;
        }
        s.policy = opts_word(POLICIES, word);
        s.hints = opts_word(HINTS, slash + 1);
        if (s.policy < 0 || s.hints < 0)
            return -EINVAL;
        o->series[o->nr_series++] = s;
    }
    return *value || o->nr_series == 0 ? -EINVAL : 0;
}

#define AT(field) offsetof(struct set_opts, field)

static const struct opt option_list[] = {
    {OPT_U32, .name = "cases", .arg = "N", .at = AT(cases), .least = 1, .most = MAX_CASES,
     .help = "how many (3000)"},
    {OPT_U64, .name = "seed", .arg = "N", .at = AT(seed), .help = "another set (1)"},
    {OPT_SET, .name = "series", .arg = "POLICY/HINTS,...", .set = set_series,
     .takes = "POLICY/HINTS,... (such as next/all,lru/none)",
     .help = "ways to run each case; others are compared with the first (next/all).\n"
             "next/all/twice: two threads do the same at once"},
    {OPT_TEXT, .name = "only", .arg = "TEXT", .at = AT(only),
     .help = "cases whose description has this text: seq, queue, heavy tail..."},
    {OPT_U32, .name = "worst", .arg = "N", .at = AT(worst), .least = 0, .most = MAX_CASES,
     .help = "cases to list, the worst first (10)"},
    {OPT_U32, .name = "one", .arg = "ID", .at = AT(one),
     .given = OPT_GIVEN(struct set_opts, given_one), .most = MAX_CASES,
     .help = "only this case, with the report of 'varve sim script'"},
    {OPT_U32, .name = "lp", .arg = "N", .at = AT(lp),
     .help = "also a linear program, for cases of up to N versions, and count the larger\n"
             "of the two bounds (0); it takes seconds for 40 versions, minutes for 96"},
    {OPT_FLAG, .name = "print", .at = AT(print), .help = "with --one: print the script instead"},
    {OPT_U32, .name = "jobs", .arg = "N", .at = AT(jobs), .least = 1, .most = SIM_JOBS_MAX,
     .help = "threads (2); the result does not depend on it"},
    {OPT_TEXT, .name = "csv", .arg = "FILE", .at = AT(csv), .help = "write one row for each run"},
    {OPT_FLAG, .name = "bars", .at = AT(bars),
     .help = "compare the policy with its goals; sets --series"},
    {OPT_TEXT, .name = "before", .arg = "FILE", .at = AT(before),
     .help = "with --bars: CSV of the same cases by another build, to compare with"},
    {OPT_FLAG, .name = "json", .at = AT(json), .help = "print one JSON object"},
};

static const struct opts options = {
    .command = COMMAND,
    .usage = "[OPTION]...",
    .about = "Runs workloads drawn at random and prints how far they are from the bound.\n"
             "Options (defaults in parentheses):",
    .list = option_list,
    .nr = VV_ARRAY_SIZE(option_list),
};

/* ---- running ---- */

static void draw(const struct set_opts *o, const struct series *s, uint32_t id,
                 struct sim_set_case *c)
{
    sim_set_draw(o->seed, id, c);
    c->opts.policy = s->policy;
    c->opts.hints = s->hints;
    c->plan.threads = s->threads;
    c->opts.lp = sim_set_objects(c) <= o->lp;
}

static void run_row(void *arg, size_t i)
{
    struct set *set = arg;
    struct row *row = &set->rows[i];
    struct sim_set_case c;
    char err[512] = "";

    draw(set->o, &set->o->series[i % set->o->nr_series], row->id, &c);
    row->rc = sim_set_run(&c, err, sizeof(err), &row->r);
    if (row->rc < 0)
        snprintf(row->err, sizeof(row->err), "%s", err[0] ? err : varve_strerror(row->rc));
}

static int run_all(void *arg)
{
    struct set *set = arg;

    sim_parallel(set->o->jobs, set->nr_cases * set->o->nr_series, run_row, set, &set->progress);
    return 0;
}

static int list_rows(struct set *set)
{
    const struct set_opts *o = set->o;

    set->rows = calloc((size_t)o->cases * o->nr_series, sizeof(*set->rows));
    if (!set->rows)
        return -ENOMEM;
    for (uint32_t id = 0; id < o->cases; id++) {
        struct sim_set_case c;
        char what[64];

        sim_set_draw(o->seed, id, &c);
        sim_set_describe(&c, what, sizeof(what));
        if (o->only && !strstr(what, o->only))
            continue;
        for (size_t s = 0; s < o->nr_series; s++) {
            struct row *row = &set->rows[set->nr_cases * o->nr_series + s];
            row->id = id;
            memcpy(row->what, what, sizeof(what));
        }
        set->nr_cases++;
    }
    set->progress.all = set->nr_cases * o->nr_series;
    return 0;
}

/* ---- what came of it ---- */

static const struct row *row_at(const struct set *set, size_t k, size_t s)
{
    return &set->rows[k * set->o->nr_series + s];
}

static double ratio_of(const struct row *row)
{
    return row->r.blocked_s / row->r.bound_s;
}

/* The same with the time of one object taken off the blocked time. */
static double ratio_but_one(const struct row *row)
{
    return fmax(row->r.blocked_s - row->r.object_s, 0) / row->r.bound_s;
}

static int compare_reals(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

struct summary {
    size_t nr, failed;
    double median, p95, worst;             /* blocked over bound */
    double one_median, one_p95, one_worst; /* the same less one object */
    size_t over_110, over_150; /* cases above 1.1 and 1.5 times the bound and one object */
    size_t better; /* cases in which the first series is worse by more than 5% and one object */
    double lost;   /* the largest such difference, without the object */
};

static double quantile(const double *sorted, size_t n, double q)
{
    return n ? sorted[VV_MIN((size_t)(q * (double)n), n - 1)] : 0;
}

static void compare(const struct row *first, const struct row *row, struct summary *sum)
{
    double but_one = fmax(first->r.blocked_s - row->r.object_s, 0) / row->r.blocked_s;

    sum->better += but_one > 1.05;
    sum->lost = fmax(sum->lost, but_one);
}

static struct summary summarise(const struct set *set, size_t s, double *ratios)
{
    struct summary sum = {0};

    for (size_t k = 0; k < set->nr_cases; k++) {
        const struct row *row = row_at(set, k, s), *first = row_at(set, k, 0);
        if (row->rc < 0) {
            sum.failed++;
            continue;
        }
        ratios[sum.nr] = ratio_of(row);
        ratios[set->nr_cases + sum.nr++] = ratio_but_one(row);
        sum.over_110 += ratio_but_one(row) > 1.1;
        sum.over_150 += ratio_but_one(row) > 1.5;
        if (s > 0 && first->rc == 0)
            compare(first, row, &sum);
    }
    qsort(ratios, sum.nr, sizeof(*ratios), compare_reals);
    qsort(ratios + set->nr_cases, sum.nr, sizeof(*ratios), compare_reals);
    sum.median = quantile(ratios, sum.nr, 0.5);
    sum.p95 = quantile(ratios, sum.nr, 0.95);
    sum.worst = quantile(ratios, sum.nr, 1);
    sum.one_median = quantile(ratios + set->nr_cases, sum.nr, 0.5);
    sum.one_p95 = quantile(ratios + set->nr_cases, sum.nr, 0.95);
    sum.one_worst = quantile(ratios + set->nr_cases, sum.nr, 1);
    return sum;
}

static int worst_first(const void *a, const void *b)
{
    const struct row *const *x = a, *const *y = b;
    double p = (*x)->rc < 0 ? INFINITY : ratio_but_one(*x);
    double q = (*y)->rc < 0 ? INFINITY : ratio_but_one(*y);

    if (p != q)
        return p > q ? -1 : 1;
    return (*x)->id < (*y)->id ? -1 : (*x)->id > (*y)->id;
}

/* All rows of a series, the worst first; the caller frees them. */
static const struct row **sorted_rows(const struct set *set, size_t s)
{
    const struct row **rows = calloc(set->nr_cases + 1, sizeof(*rows));

    for (size_t k = 0; rows && k < set->nr_cases; k++)
        rows[k] = row_at(set, k, s);
    if (rows)
        qsort(rows, set->nr_cases, sizeof(*rows), worst_first);
    return rows;
}

static void print_worst(const struct set *set, size_t s)
{
    const struct row **rows = sorted_rows(set, s);

    printf("\nworst of %s\n     id  blocked s    bound s    ratio  less one object  case\n",
           set->o->series[s].name);
    for (size_t k = 0; rows && k < set->nr_cases && k < set->o->worst; k++) {
        const struct row *r = rows[k];
        if (r->rc < 0)
            printf("%7" PRIu32 "  failed: %s  %s\n", r->id, r->err, r->what);
        else
            printf("%7" PRIu32 "  %9.4f  %9.4f  %7.3f  %15.3f  %s\n", r->id, r->r.blocked_s,
                   r->r.bound_s, ratio_of(r), ratio_but_one(r), r->what);
    }
    free(rows);
}

static void print_table(const void *result)
{
    const struct set *set = result;
    double *ratios = calloc(2 * set->nr_cases + 1, sizeof(*ratios));

    printf(
        "                    blocked / bound           less one object       over the bound by\n"
        "series           median    95%%    worst  median    95%%    worst   10%%    50%%  failed"
        "  better than the first\n");
    for (size_t s = 0; ratios && s < set->o->nr_series; s++) {
        struct summary m = summarise(set, s, ratios);
        printf("%-15s %7.3f %6.3f %8.3f %7.3f %6.3f %8.3f %5zu %6zu %7zu", set->o->series[s].name,
               m.median, m.p95, m.worst, m.one_median, m.one_p95, m.one_worst, m.over_110,
               m.over_150, m.failed);
        if (s > 0)
            printf("  %zu, by %.2f at most", m.better, m.lost);
        putchar('\n');
    }
    printf("%zu cases of seed %" PRIu64 "\n", set->nr_cases, set->o->seed);
    for (size_t s = 0; s < set->o->nr_series && set->o->worst; s++)
        print_worst(set, s);
    free(ratios);
}

static int print_csv(FILE *f, const void *result)
{
    const struct set *set = result;

    fprintf(f, "id,series,case,blocked_s,bound_s,object_s,failure\n");
    for (size_t i = 0; i < set->nr_cases * set->o->nr_series; i++) {
        const struct row *r = &set->rows[i];
        fprintf(f, "%" PRIu32 ",%s,\"%s\",", r->id, set->o->series[i % set->o->nr_series].name,
                r->what);
        if (r->rc < 0)
            fprintf(f, ",,,\"%s\"\n", r->err);
        else
            fprintf(f, "%.9f,%.9f,%.9f,\n", r->r.blocked_s, r->r.bound_s, r->r.object_s);
    }
    return ferror(f) ? -EIO : 0;
}

static void json_summary(struct json *j, const char *name, const struct summary *m)
{
    json_object(j, NULL);
    json_text(j, "series", name);
    json_uint(j, "cases", m->nr);
    json_uint(j, "failed", m->failed);
    json_real(j, "median", m->median);
    json_real(j, "p95", m->p95);
    json_real(j, "worst", m->worst);
    json_real(j, "less_one_median", m->one_median);
    json_real(j, "less_one_p95", m->one_p95);
    json_real(j, "less_one_worst", m->one_worst);
    json_uint(j, "over_110", m->over_110);
    json_uint(j, "over_150", m->over_150);
    json_uint(j, "better_than_first", m->better);
    json_real(j, "better_by", m->lost);
    json_close(j);
}

static void print_json(const void *result)
{
    const struct set *set = result;
    double *ratios = calloc(2 * set->nr_cases + 1, sizeof(*ratios));
    struct json j = json_begin(stdout, JSON_COMPACT);

    json_object(&j, NULL);
    json_text(&j, "command", "sim set");
    json_uint(&j, "seed", set->o->seed);
    json_array(&j, "series");
    for (size_t s = 0; ratios && s < set->o->nr_series; s++) {
        struct summary m = summarise(set, s, ratios);
        json_summary(&j, set->o->series[s].name, &m);
    }
    json_close(&j);
    json_array(&j, "runs");
    for (size_t i = 0; i < set->nr_cases * set->o->nr_series; i++) {
        const struct row *r = &set->rows[i];
        json_object(&j, NULL);
        json_uint(&j, "id", r->id);
        json_text(&j, "series", set->o->series[i % set->o->nr_series].name);
        json_text(&j, "case", r->what);
        json_real(&j, "blocked_s", r->rc < 0 ? NAN : r->r.blocked_s);
        json_real(&j, "bound_s", r->rc < 0 ? NAN : r->r.bound_s);
        json_real(&j, "object_s", r->rc < 0 ? NAN : r->r.object_s);
        json_text(&j, "failure", r->rc < 0 ? r->err : NULL);
        json_close(&j);
    }
    json_close(&j);
    json_close(&j);
    json_end(&j);
    free(ratios);
}

/* ---- bars ---- */

struct bars {
    const struct set *set;
    struct set_bars_case *cases;
    struct set_bar bar[SET_BARS_MOST];
    size_t nr;
};

static int make_bars(const struct set *set, struct bars *b)
{
    int rc = 0;

    *b = (struct bars){.set = set, .cases = calloc(set->nr_cases + 1, sizeof(*b->cases))};
    if (!b->cases)
        return -ENOMEM;
    for (size_t k = 0; k < set->nr_cases; k++) {
        struct set_bars_case *c = &b->cases[k];
        *c = (struct set_bars_case){.id = row_at(set, k, 0)->id,
                                    .what = row_at(set, k, 0)->what,
                                    .before_one_s = NAN,
                                    .before_none_s = NAN,
                                    .before_twice_s = NAN};
        for (size_t s = 0; s < SET_BARS_NR_SERIES; s++) {
            const struct row *row = row_at(set, k, s);
            c->r[s] = row->r;
            if (row->rc < 0)
                c->r[s].blocked_s = c->r[s].most_s = NAN;
        }
    }
    if (set->o->before)
        rc = set_bars_read_before(set->o->before, b->cases, set->nr_cases);
    if (rc == 0)
        b->nr = set_bars_make(b->cases, set->nr_cases, b->bar);
    return rc;
}

static bool bar_met(const struct set_bar *bar)
{
    return bar->reached <= bar->limit;
}

static void print_bars(const void *result)
{
    const struct bars *b = result;

    printf(
        "bar                                          limit  reached     over       of  worst\n");
    for (size_t i = 0; i < b->nr; i++) {
        const struct set_bar *bar = &b->bar[i];
        printf("%-44s %5.2f %8.3f %8zu %8zu  ", bar->name, bar->limit, bar->reached, bar->over,
               bar->cases);
        if (bar->one_figure)
            printf("%5s", "-");
        else
            printf("%5" PRIu32, bar->worst);
        puts(bar_met(bar) ? "  met" : "  missed");
    }
    printf("%zu cases of seed %" PRIu64 "\n", b->set->nr_cases, b->set->o->seed);
}

static void print_bars_json(const void *result)
{
    const struct bars *b = result;
    struct json j = json_begin(stdout, JSON_COMPACT);

    json_object(&j, NULL);
    json_text(&j, "command", "sim set");
    json_uint(&j, "seed", b->set->o->seed);
    json_uint(&j, "cases", b->set->nr_cases);
    json_array(&j, "bars");
    for (size_t i = 0; i < b->nr; i++) {
        const struct set_bar *bar = &b->bar[i];
        json_object(&j, NULL);
        json_text(&j, "bar", bar->name);
        json_real(&j, "limit", bar->limit);
        json_real(&j, "reached", bar->reached);
        json_uint(&j, "cases", bar->cases);
        json_uint(&j, "over", bar->over);
        json_bool(&j, "met", bar_met(bar));
        json_close(&j);
    }
    json_close(&j);
    json_close(&j);
    json_end(&j);
}

static int print_bars_csv(FILE *f, const void *result)
{
    return print_csv(f, ((const struct bars *)result)->set);
}

/* The exit status does not depend on the bars. */
static int report_bars(const struct set *set)
{
    struct output_forms forms = {.print_json = print_bars_json,
                                 .print_table = print_bars,
                                 .print_csv = print_bars_csv,
                                 .json = set->o->json,
                                 .csv = set->o->csv};
    struct bars b;
    int rc = make_bars(set, &b), status = CLI_FAILED;

    if (rc == 0)
        status = output_print(COMMAND, &forms, &b);
    else
        fprintf(stderr, COMMAND ": %s: %s\n", set->o->before ? set->o->before : "bars",
                varve_strerror(rc));
    free(b.cases);
    return status;
}

/* ---- one case ---- */

static int complain(const char *text)
{
    fprintf(stderr, COMMAND ": %s\n", text);
    return CLI_FAILED;
}

static int run_one(const struct set_opts *o)
{
    struct sim_set_case c;
    struct shot_work work;
    struct shot_report r;
    char err[512] = "", name[32];
    int rc;

    draw(o, &o->series[0], o->one, &c);
    rc = shot_work_make(&c.opts, &c.plan, err, sizeof(err), &work);
    if (rc < 0)
        return complain(err);
    if (o->print) {
        shot_opts_print_set(stdout, &c.opts);
        shot_work_print(stdout, &work);
        shot_work_fini(&work);
        return CLI_OK;
    }
    snprintf(name, sizeof(name), "case-%" PRIu32, o->one);
    rc = sim_run_work(name, &c.opts, &work, err, sizeof(err), &r);
    shot_work_fini(&work);
    if (rc < 0)
        return complain(err[0] ? err : varve_strerror(rc));
    if (o->json)
        shot_report_print_json(stdout, &r);
    else
        shot_report_print(stdout, &r);
    rc = shot_report_check(&r, err, sizeof(err));
    shot_report_fini(&r);
    return rc < 0 ? complain(err) : CLI_OK;
}

int lab_sim_set(int argc, char **argv)
{
    struct set_opts o = {.cases = 3000,
                         .seed = 1,
                         .jobs = 2,
                         .worst = 10,
                         .nr_series = 1,
                         .series = {{"next/all", VARVE_POLICY_NEXT, SHOT_HINTS_ALL, 1}}};
    struct set set = {.o = &o};
    struct output_forms forms = {
        .print_json = print_json, .print_table = print_table, .print_csv = print_csv};
    bool failed = false;
    int first, status = opts_parse(&options, argc, argv, &o, &first);

    if (status >= 0)
        return status;
    if (o.given_one)
        return run_one(&o);
    if (o.bars && set_series(SET_BARS_SERIES, &o) < 0)
        return CLI_FAILED;
    if (output_try(COMMAND, o.csv) < 0 || list_rows(&set) < 0)
        return CLI_FAILED;
    output_watch(run_all, &set, &set.progress, "runs");
    forms.json = o.json;
    forms.csv = o.csv;
    status = o.bars ? report_bars(&set) : output_print(COMMAND, &forms, &set);
    for (size_t i = 0; i < set.nr_cases * o.nr_series; i++)
        failed |= set.rows[i].rc < 0;
    free(set.rows);
    return status == CLI_OK && failed ? CLI_FAILED : status;
}
