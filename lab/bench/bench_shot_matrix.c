/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shot in many cases, against the bars that Varve sets itself.
 *
 * A case is a set of sizes (uniform: 8 MiB each; variable: a sixteenth of those in FILE, by default
 * lab/data/rtm-sizes-30x8.csv), caches that hold 10% or 40% of the history, a quarter of that on
 * the emulated device, waiting for the flushes or not before the restores, the order of the
 * restores, and the load u: the rate at which the application produces data, over the rate that the
 * disk can take. These make its name, such as variable,10,no-wait,irr,0.5.
 *
 *     a  all hints: blocked time over the bound, at most 1.10; at level local 1.12
 *     b  all hints, u from 0.5 to 8: blocked at most 1.15 x the bound and three of the largest
 *        objects over the disk
 *     c  no hints, seq and rev: blocked at most 1.3 x what it is with all hints
 *     d  variable sizes: the default policy no slower than fifo and lru (2% tolerance); its gain
 *        over all others
 *     e  --real: N cases chosen by --seed, and those named by --case, run by `varve bench shot`,
 *        whose blocked time and duration must be those of the simulator, to within 10% of the
 *        blocked time or 2% of the duration, whichever is more
 *
 * Tables a to d come from the simulator, in virtual time: they are the same on every machine.
 * `varve-lab` is looked for beside this program. Everything is printed as Markdown; each miss is
 * followed by the command that repeats it. Exit status 1: a bar was missed, or a run failed; 2:
 * usage.
 *
 * One thread. A simulation that does not come to an end is ended by the alarm clock.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/varve.h>

#include "cli/common/beside.h"
#include "cli/common/options.h"
#include "lab/sim/sim_run.h"

#define DISK_BPS     40e6
#define LIMIT_S      120 /* for one simulation, which takes about 0.03 */
#define BAR_BOUND    1.10
#define BAR_LOCAL    1.12 /* with --level local */
#define BAR_LOADS    1.15
#define BAR_OBJECTS  3
#define BAR_NO_HINTS 1.3
#define BAR_POLICY   1.02
#define BAR_BLOCKED  0.10
#define BAR_WALL     0.02
#define SEEDS        8
#define MAX_REAL     96
#define MAX_OUTPUT   (4u << 20)
#define ARGS         40
#define RATES        "d2d=4G,d2h=400M,h2d=400M,h2f=40M,f2h=40M"

static const double loads[] = {0.5, 1, 2, 4};
static const int caches[] = {10, 40};
static const int orders[] = {SHOT_ORDER_SEQ, SHOT_ORDER_REV, SHOT_ORDER_IRR};
static const char *const order_names[] = {"seq", "rev", "irr"};
static const char *const policy_names[] = {[VARVE_POLICY_NEXT] = "next",
                                           [VARVE_POLICY_SCORE] = "score",
                                           [VARVE_POLICY_SCORE_NOW] = "score-now",
                                           [VARVE_POLICY_FIFO] = "fifo",
                                           [VARVE_POLICY_LRU] = "lru"};

struct cell {
    bool variable;
    bool wait;
    int cache; /* percent of the history */
    int order;
    int hints;
    int policy;
    double load;
    uint64_t seed;
};

struct result {
    double blocked_s;
    double bound_s;
    double wall_s;
};

struct matrix {
    uint32_t ckpts;
    const char *sizes;
    const char *local;
    const char *tables;
    const char *level;
    uint64_t seed;
    unsigned real;
    struct cell real_cells[MAX_REAL];
    size_t nr_real;
    double largest_s[2]; /* the largest object over the slowest hop: uniform, variable */
    unsigned misses;
};

/* ---- one run --------------------------------------------------------------------------------- */

static char running[256]; /* the run that give_up() names */

static void give_up(int sig)
{
    static const char text[] = ": no end in sight\n";
    ssize_t n = write(STDERR_FILENO, running, strlen(running));

    (void)sig;
    if (n >= 0)
        n = write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(1);
}

static void cell_name(const struct cell *c, char *buf, size_t size)
{
    snprintf(buf, size, "%s,%d,%s,%s,%g", c->variable ? "variable" : "uniform", c->cache,
             c->wait ? "wait" : "no-wait", order_names[c->order], c->load);
}

/* The options as arguments; `text` holds those that are not constants. Returns their number. */
static int cell_args(const struct matrix *m, const struct cell *c, const char **argv,
                     char (*text)[32])
{
    static const char *const hints[] = {"none", "one", "all"};
    int n = 0;

    snprintf(text[0], sizeof(*text), "%" PRIu32, m->ckpts);
    snprintf(text[1], sizeof(*text), "%g%%", c->cache / 4.0);
    snprintf(text[2], sizeof(*text), "%g%%", c->cache * 3 / 4.0);
    snprintf(text[3], sizeof(*text), "%g", c->load);
    snprintf(text[4], sizeof(*text), "%" PRIu64, c->seed);
    argv[n++] = "shot";
    argv[n++] = "--ckpts";
    argv[n++] = text[0];
    argv[n++] = c->variable ? "--sizes" : "--size";
    argv[n++] = c->variable ? m->sizes : "8M";
    argv[n++] = "--scale";
    argv[n++] = c->variable ? "0.0625" : "1";
    argv[n++] = "--device";
    argv[n++] = "host";
    argv[n++] = "--device-cache";
    argv[n++] = text[1];
    argv[n++] = "--host-cache";
    argv[n++] = text[2];
    argv[n++] = "--rate";
    argv[n++] = RATES;
    argv[n++] = "--load";
    argv[n++] = text[3];
    argv[n++] = c->wait ? "--wait" : "--no-wait";
    argv[n++] = "--order";
    argv[n++] = order_names[c->order];
    argv[n++] = "--seed";
    argv[n++] = text[4];
    argv[n++] = "--hints";
    argv[n++] = hints[c->hints];
    argv[n++] = "--policy";
    argv[n++] = policy_names[c->policy];
    argv[n++] = "--level";
    argv[n++] = m->level;
    argv[n] = NULL;
    return n;
}

/* Prints the missed bar, and the command that shows it. Called after the table, so that it stands below it. */
static void miss(struct matrix *m, const struct cell *c, const char *what)
{
    const char *argv[ARGS];
    char text[5][32];

    cell_args(m, c, argv, text);
    m->misses++;
    printf("**Missed: %s**: `varve sim", what);
    for (int i = 0; argv[i]; i++)
        printf(" %s", argv[i]);
    printf("`\n\n");
}

/* After a failure the run counts as a miss, its figures are NaN, and every comparison with them fails. */
static struct result run_sim(struct matrix *m, const struct cell *c)
{
    struct result res = {NAN, NAN, NAN};
    struct shot_report report;
    struct shot_opts opts;
    const char *argv[ARGS];
    char text[5][32], err[256] = "";
    int argc = cell_args(m, c, argv, text);
    int rc = shot_opts_parse("bench_shot_matrix", argc, (char **)argv, &opts) >= 0 ? -EINVAL : 0;

    cell_name(c, running, sizeof(running));
    alarm(LIMIT_S);
    if (rc == 0)
        rc = sim_run_shot(&opts, err, sizeof(err), &report);
    alarm(0);
    if (rc == 0) {
        rc = shot_report_check(&report, err, sizeof(err));
        if (rc == 0)
            res = (struct result){report.blocked_checkpoint_s + report.blocked_restore_s,
                                  report.bound_s, report.wall_s};
        shot_report_fini(&report);
    }
    if (rc < 0)
        fprintf(stderr, "%s, hints %d, policy %s: %s\n", running, c->hints, policy_names[c->policy],
                err[0] ? err : varve_strerror(rc));
    return res;
}

/* ---- going through the cases ----------------------------------------------------------------- */

/* The 24 rows of most tables: everything but the load. */
#define ROWS 24

static struct cell row_cell(unsigned row)
{
    return (struct cell){
        .order = orders[row % 3],
        .wait = row / 3 % 2 == 0,
        .cache = caches[row / 6 % 2],
        .variable = row / 12 % 2 == 1,
        .hints = SHOT_HINTS_ALL,
        .policy = VARVE_POLICY_NEXT,
        .load = loads[0],
        .seed = 1,
    };
}

static void print_row_head(const struct cell *c)
{
    printf("| %s | %d%% | %s | %s |", c->variable ? "variable" : "uniform", c->cache,
           c->wait ? "wait" : "no-wait", order_names[c->order]);
}

static const char table_head[] = "| sizes | caches | | order |";

/* Misses found while a table is printed, for the text below it. */
struct missed {
    struct cell cell;
    char what[128];
};

struct misses {
    struct missed *items;
    size_t nr, cap;
};

static void add_miss(struct misses *l, const struct cell *c, const char *what)
{
    if (l->nr == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->items = realloc(l->items, l->cap * sizeof(*l->items));
        if (!l->items) {
            fprintf(stderr, "out of memory\n");
            exit(1);
        }
    }
    l->items[l->nr].cell = *c;
    snprintf(l->items[l->nr].what, sizeof(l->items[l->nr].what), "%s", what);
    l->nr++;
}

static void tell_misses(struct matrix *m, struct misses *l)
{
    printf("\n");
    for (size_t i = 0; i < l->nr; i++)
        miss(m, &l->items[i].cell, l->items[i].what);
    free(l->items);
    *l = (struct misses){0};
}

/* True if x is at most the bar; NaN is not. */
static bool within(double x, double bar)
{
    return x <= bar * (1 + 1e-9);
}

/* ---- the tables ------------------------------------------------------------------------------ */

static void print_load_heads(void)
{
    printf("%s", table_head);
    for (size_t i = 0; i < VV_ARRAY_SIZE(loads); i++)
        printf(" u = %g |", loads[i]);
    printf("\n| --- | --- | --- | --- |");
    for (size_t i = 0; i < VV_ARRAY_SIZE(loads); i++)
        printf(" --- |");
    printf("\n");
}

static void table_bound(struct matrix *m)
{
    double bar = strcmp(m->level, "cached") == 0 ? BAR_BOUND : BAR_LOCAL;
    struct misses list = {0};
    double worst = 0;

    printf("## All hints: blocked time over the bound (at most %.2f)\n\n", bar);
    print_load_heads();
    for (unsigned row = 0; row < ROWS; row++) {
        struct cell c = row_cell(row);

        print_row_head(&c);
        for (size_t i = 0; i < VV_ARRAY_SIZE(loads); i++) {
            c.load = loads[i];
            struct result r = run_sim(m, &c);
            double ratio = r.blocked_s / r.bound_s;
            char what[128];

            worst = fmax(worst, ratio);
            printf(" %.3f%s |", ratio, within(ratio, bar) ? "" : " !");
            snprintf(what, sizeof(what), "%.3f x the bound", ratio);
            if (!within(ratio, bar))
                add_miss(&list, &c, what);
        }
        printf("\n");
    }
    printf("\nThe largest: %.3f.\n", worst);
    tell_misses(m, &list);
}

/* From 0.5 to 2 in steps of 0.05, because most things happen around 1, and on to 8 in steps of
 * 0.25. */
#define LOAD_STEPS 55

static double load_step(int i)
{
    return i <= 30 ? (10 + i) / 20.0 : 2 + (i - 30) / 4.0;
}

static void table_loads(struct matrix *m)
{
    struct misses list = {0};
    double worst = 0;

    printf("## All hints, u from 0.5 to 8: blocked time over what is allowed\n\n"
           "Allowed is %.2f x the bound plus %d of the largest objects over the disk (%.3f s "
           "uniform, %.3f s "
           "variable). Of %d\nloads (steps of 0.05 up to 2, then of 0.25) each line shows the one "
           "that comes nearest to it.\n\n",
           BAR_LOADS, BAR_OBJECTS, BAR_OBJECTS * m->largest_s[0], BAR_OBJECTS * m->largest_s[1],
           LOAD_STEPS);
    printf("%s u | blocked s | bound s | over the bound | over the allowed |\n", table_head);
    printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (unsigned row = 0; row < ROWS; row++) {
        struct cell c = row_cell(row), at = c;
        struct result most = {0};
        double row_worst = -1;

        for (int i = 0; i < LOAD_STEPS; i++) {
            c.load = load_step(i);
            struct result r = run_sim(m, &c);
            double share =
                r.blocked_s / (BAR_LOADS * r.bound_s + BAR_OBJECTS * m->largest_s[c.variable]);
            char what[128];

            if (!(share <= row_worst)) {
                row_worst = share;
                most = r;
                at = c;
            }
            snprintf(what, sizeof(what), "%.3f x what is allowed", share);
            if (!within(share, 1))
                add_miss(&list, &c, what);
        }
        worst = fmax(worst, row_worst);
        print_row_head(&c);
        printf(" %g | %.3f | %.3f | %.3f | %.3f%s |\n", at.load, most.blocked_s, most.bound_s,
               most.blocked_s / most.bound_s, row_worst, within(row_worst, 1) ? "" : " !");
    }
    printf("\nThe largest: %.3f.\n", worst);
    tell_misses(m, &list);
}

static void table_no_hints(struct matrix *m)
{
    struct misses list = {0};
    double worst = 0;

    printf("## No hints: blocked time over that with all hints (at most %.1f)\n\n", BAR_NO_HINTS);
    print_load_heads();
    for (unsigned row = 0; row < ROWS; row++) {
        struct cell c = row_cell(row);

        if (c.order == SHOT_ORDER_IRR)
            continue;
        print_row_head(&c);
        for (size_t i = 0; i < VV_ARRAY_SIZE(loads); i++) {
            c.load = loads[i];
            c.hints = SHOT_HINTS_ALL;
            struct result all = run_sim(m, &c);
            c.hints = SHOT_HINTS_NONE;
            struct result none = run_sim(m, &c);
            double ratio = none.blocked_s / all.blocked_s;
            char what[128];

            worst = fmax(worst, ratio);
            printf(" %.3f%s |", ratio, within(ratio, BAR_NO_HINTS) ? "" : " !");
            snprintf(what, sizeof(what), "%.3f x the time with all hints", ratio);
            if (!within(ratio, BAR_NO_HINTS))
                add_miss(&list, &c, what);
        }
        printf("\n");
    }
    printf("\nThe largest: %.3f.\n", worst);
    tell_misses(m, &list);
}

/* The factor by which a policy blocks longer than the default. */
struct gain {
    double log_sum, least, most;
    unsigned nr;
};

static void gain_add(struct gain *g, double ratio)
{
    g->log_sum += log(ratio);
    g->least = g->nr ? fmin(g->least, ratio) : ratio;
    g->most = g->nr ? fmax(g->most, ratio) : ratio;
    g->nr++;
}

/* One case under all policies. Missed when fifo or lru is faster. */
static void compare_policies(struct matrix *m, const struct cell *c, struct gain *gains,
                             struct misses *list)
{
    static const int others[] = {VARVE_POLICY_FIFO, VARVE_POLICY_LRU, VARVE_POLICY_SCORE,
                                 VARVE_POLICY_SCORE_NOW};
    struct cell other = *c;
    struct result mine = run_sim(m, c);

    for (size_t i = 0; i < VV_ARRAY_SIZE(others); i++) {
        char what[128];

        other.policy = others[i];
        struct result r = run_sim(m, &other);
        snprintf(what, sizeof(what), "default %.3f s, %s %.3f s", mine.blocked_s,
                 policy_names[others[i]], r.blocked_s);
        gain_add(&gains[i], r.blocked_s / mine.blocked_s);
        if (i < 2 ? !within(mine.blocked_s, BAR_POLICY * r.blocked_s) : isnan(r.blocked_s))
            add_miss(list, c, what);
    }
}

static void print_gains(const struct gain *gains)
{
    for (int i = 0; i < 4; i++)
        printf(" %.3f (%.3f to %.3f) |", exp(gains[i].log_sum / gains[i].nr), gains[i].least,
               gains[i].most);
    printf("\n");
}

static void table_policies(struct matrix *m)
{
    struct misses list = {0};
    struct gain total[4] = {0};
    unsigned cases = 0;

    printf("## Policies: blocked time over that of the default, variable sizes\n\n"
           "Geometric mean (least to most) over u = 0.5, 1, 2 and 4; irr: over %d permutations as "
           "well. fifo and lru "
           "must\nnot come below %.3f.\n\n",
           SEEDS, 1 / BAR_POLICY);
    printf("%s fifo | lru | score | score-now |\n", table_head);
    printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (unsigned row = ROWS / 2; row < ROWS; row++) {
        struct cell c = row_cell(row);
        struct gain gains[4] = {0};
        uint64_t seeds = c.order == SHOT_ORDER_IRR ? SEEDS : 1;

        for (c.seed = 1; c.seed <= seeds; c.seed++) {
            for (size_t i = 0; i < VV_ARRAY_SIZE(loads); i++, cases++) {
                c.load = loads[i];
                compare_policies(m, &c, gains, &list);
            }
        }
        print_row_head(&c);
        print_gains(gains);
        for (int i = 0; i < 4; i++) {
            total[i].least = total[i].nr ? fmin(total[i].least, gains[i].least) : gains[i].least;
            total[i].most = fmax(total[i].most, gains[i].most);
            total[i].log_sum += gains[i].log_sum;
            total[i].nr += gains[i].nr;
        }
    }
    printf("| all %u cases | | | |", cases);
    print_gains(total);
    tell_misses(m, &list);
}

/* ---- the real thing -------------------------------------------------------------------------- */

static int read_all(int fd, char *buf, size_t size)
{
    size_t n = 0;

    while (n + 1 < size) {
        ssize_t got = read(fd, buf + n, size - 1 - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    buf[n] = '\0';
    return 0;
}

/* Runs varve and reads its output. -EIO after a failure, whose message it has printed. */
static int run_varve(const char *program, const char **argv, char *buf, size_t size)
{
    int fds[2], status, rc;
    pid_t pid;

    if (pipe(fds) < 0)
        return -errno;
    fflush(NULL); /* or the child would print what is buffered here */
    pid = fork();
    if (pid < 0) {
        rc = -errno;
        close(fds[0]);
        close(fds[1]);
        return rc;
    }
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        execv(program, (char *const *)argv);
        _exit(127);
    }
    close(fds[1]);
    rc = read_all(fds[0], buf, size);
    close(fds[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (rc == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        rc = -EIO;
    return rc;
}

/* A number of the outermost object, which comes before any nested one of the same name. */
static double json_value(const char *text, const char *name)
{
    char key[64];
    const char *at;

    snprintf(key, sizeof(key), "\"%s\":", name);
    at = strstr(text, key);
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

static struct result run_real(struct matrix *m, const struct cell *c)
{
    static const char *const places[] = {"varve-lab"};
    struct result res = {NAN, NAN, NAN};
    char program[4096], text[5][32], *out = malloc(MAX_OUTPUT);
    const char *argv[ARGS] = {"varve", "bench"};
    int n = 2 + cell_args(m, c, argv + 2, text);
    int rc = out ? 0 : -ENOMEM;

    if (rc == 0 && !beside_find(places, 1, X_OK, program, sizeof(program)))
        rc = -ENOENT;

    argv[n++] = "--json";
    if (m->local) {
        argv[n++] = "--local";
        argv[n++] = m->local;
    }
    argv[n] = NULL;
    if (rc == 0)
        rc = run_varve(program, argv, out, MAX_OUTPUT);
    if (rc == 0)
        res = (struct result){json_value(out, "blocked_checkpoint_s") +
                                  json_value(out, "blocked_restore_s"),
                              json_value(out, "bound_s"), json_value(out, "wall_s")};
    else
        fprintf(stderr, "varve bench: %s\n", varve_strerror(rc));
    free(out);
    return res;
}

static void table_real(struct matrix *m)
{
    struct misses list = {0};

    printf("## Simulator and library\n\nBlocked time and duration differ by at most %.0f%% of the "
           "blocked time or %.0f%% "
           "of the duration, whichever is more.\n\n",
           100 * BAR_BLOCKED, 100 * BAR_WALL);
    printf("| case | blocked s, sim | real | allowed +- | duration s, sim | real | over the bound, "
           "sim | real |\n");
    printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < m->nr_real; i++) {
        const struct cell *c = &m->real_cells[i];
        struct result sim = run_sim(m, c), real = run_real(m, c);
        double allowed = fmax(BAR_BLOCKED * sim.blocked_s, BAR_WALL * sim.wall_s);
        bool good = within(fabs(sim.blocked_s - real.blocked_s), allowed) &&
                    within(fabs(sim.wall_s - real.wall_s), allowed);
        char name[64];

        cell_name(c, name, sizeof(name));
        printf("| %s%s | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f |\n", name,
               good ? "" : " !", sim.blocked_s, real.blocked_s, allowed, sim.wall_s, real.wall_s,
               sim.blocked_s / sim.bound_s, real.blocked_s / real.bound_s);
        fflush(stdout);
        if (!good)
            add_miss(&list, c, "simulator and library differ");
    }
    tell_misses(m, &list);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The first of the 96 cases, shuffled, after those that were named. */
static void choose_cells(struct matrix *m)
{
    enum { ALL = ROWS * VV_ARRAY_SIZE(loads) };
    unsigned pick[ALL];
    uint64_t state = m->seed;

    for (unsigned i = 0; i < ALL; i++)
        pick[i] = i;
    for (unsigned i = 0; i < m->real && i < ALL && m->nr_real < MAX_REAL; i++) {
        unsigned k = i + (unsigned)(mix(&state) % (ALL - i)), chosen = pick[k];

        pick[k] = pick[i];
        m->real_cells[m->nr_real] = row_cell(chosen / VV_ARRAY_SIZE(loads));
        m->real_cells[m->nr_real++].load = loads[chosen % VV_ARRAY_SIZE(loads)];
    }
}

static int parse_cell(const char *s, struct cell *ret_cell)
{
    for (unsigned row = 0; row < ROWS; row++) {
        struct cell c = row_cell(row);
        char name[64], *end, *comma;

        cell_name(&c, name, sizeof(name));
        comma = strrchr(name, ',') + 1;
        if (strncmp(s, name, (size_t)(comma - name)) != 0)
            continue;
        s += comma - name;
        c.load = strtod(s, &end);
        if (end == s || *end || !(c.load > 0))
            return -EINVAL;
        *ret_cell = c;
        return 0;
    }
    return -EINVAL;
}

static int set_tables(const char *value, void *options)
{
    struct matrix *m = options;

    m->tables = strcmp(value, "none") == 0 ? "" : value;
    return !*m->tables || strspn(value, "abcd") == strlen(value) ? 0 : -EINVAL;
}

static int set_case(const char *value, void *options)
{
    struct matrix *m = options;
    int rc = m->nr_real < MAX_REAL ? parse_cell(value, &m->real_cells[m->nr_real]) : -EINVAL;

    if (rc == 0)
        m->nr_real++;
    return rc;
}

#define AT(field) offsetof(struct matrix, field)

static const struct opt options[] = {
    {OPT_U32, .name = "ckpts", .arg = "N", .at = AT(ckpts), .most = 100000,
     .help = "checkpoints of a shot (96)"},
    {OPT_TEXT, .name = "sizes", .arg = "FILE", .at = AT(sizes),
     .help = "of variable checkpoints, a sixteenth of those (lab/data/rtm-sizes-30x8.csv)"},
    {OPT_SET, .name = "tables", .arg = "abcd|none", .set = set_tables, .help = "which (abcd)"},
    {OPT_TEXT, .name = "level", .arg = "cached|local", .at = AT(level),
     .help = "what the disk holds: pages of a spill file, or committed files (cached)"},
    {OPT_U32, .name = "real", .arg = "N", .at = AT(real), .most = MAX_REAL,
     .help = "cases, chosen by --seed, that `varve bench shot` runs as well (0)"},
    {OPT_SET, .name = "case", .arg = "NAME", .set = set_case,
     .takes = "{uniform|variable},{10|40},{wait|no-wait},{seq|rev|irr},LOAD",
     .help = "another such case: {uniform|variable},{10|40},{wait|no-wait},{seq|rev|irr},LOAD;\n"
             "may be given several times"},
    {OPT_U64, .name = "seed", .arg = "N", .at = AT(seed), .help = "of the choice (1)"},
    {OPT_TEXT, .name = "local", .arg = "FOLDER", .at = AT(local), .help = "for `varve bench shot`"},
};

static const struct opts command = {
    .command = "bench_shot_matrix",
    .usage = "[OPTION]...",
    .about = "Runs the shot in many cases, and compares it with bars.",
    OPT_LIST(options),
};

/* The largest object of both sets of sizes, in seconds of the disk. Fails early if the file cannot be read. */
static int measure_sizes(struct matrix *m)
{
    for (int variable = 0; variable < 2; variable++) {
        struct cell c = row_cell(variable ? ROWS / 2 : 0);
        struct shot_sizes sizes;
        struct shot_opts opts;
        const char *argv[ARGS];
        char text[5][32], err[256] = "";
        int argc = cell_args(m, &c, argv, text);
        int rc =
            shot_opts_parse("bench_shot_matrix", argc, (char **)argv, &opts) >= 0 ? -EINVAL : 0;

        if (rc == 0)
            rc = shot_sizes_init(&opts, err, sizeof(err), &sizes);
        if (rc < 0) {
            fprintf(stderr, "bench_shot_matrix: %s\n", err[0] ? err : varve_strerror(rc));
            return rc;
        }
        m->largest_s[variable] = (double)sizes.largest_bytes / DISK_BPS;
        shot_sizes_fini(&sizes);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct matrix m = {.ckpts = 96,
                       .sizes = "lab/data/rtm-sizes-30x8.csv",
                       .tables = "abcd",
                       .level = "cached",
                       .seed = 1};
    int status = opts_parse(&command, argc, argv, &m, NULL);

    if (status >= 0)
        return status;
    if (measure_sizes(&m) < 0)
        return 2;
    signal(SIGALRM, give_up);
    choose_cells(&m);
    if (strchr(m.tables, 'a'))
        table_bound(&m);
    if (strchr(m.tables, 'b'))
        table_loads(&m);
    if (strchr(m.tables, 'c'))
        table_no_hints(&m);
    if (strchr(m.tables, 'd'))
        table_policies(&m);
    if (m.nr_real > 0)
        table_real(&m);
    printf("%u missed.\n", m.misses);
    return m.misses > 0;
}
