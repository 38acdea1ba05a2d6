/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The adjoint of a reaction-diffusion equation that stores only some of its steps and recomputes the others.
 *
 *     cc revolve.c $(pkg-config --cflags --libs varve) -o revolve && ./revolve [FOLDER [MEMORY [DISK]]]
 *
 * A binomial schedule (Griewank and Walther, "revolve") determines which states are stored, restored and discarded, and
 * when; with as many snapshots as steps it is the usual loop, which stores all states. The snapshots are versions of a
 * history. Varve decides if they are in memory or on the disk. The schedule is known beforehand, so each restore is
 * hinted and finds its state in memory, if the disk is fast enough.
 *
 * MEMORY and DISK are the numbers of snapshots that fit there (16 and 64). The program runs the same adjoint with all
 * states in memory, with all of them in memory and in FOLDER, by a binomial schedule in memory, and by one with both; all
 * gradients must be the same, bit by bit. 'varve model --revolve' predicts which one is fastest.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <varve/ckpt.h>

enum { STEPS = 300, SIDE = 256, CELLS = SIDE * SIDE };

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "revolve: %s: %s\n", what, varve_error(NULL));
    exit(1);
}

/* ---- the model: u' = D (u_xx + u_yy) + r u (1 - u), explicit steps ---- */

static const double diffusion = 0.2, growth = 0.05;

static double laplacian(const double *u, int x, int y)
{
    int left = (x + SIDE - 1) % SIDE, right = (x + 1) % SIDE;
    int up = (y + SIDE - 1) % SIDE, down = (y + 1) % SIDE;

    return u[y * SIDE + left] + u[y * SIDE + right] + u[up * SIDE + x] + u[down * SIDE + x] -
           4 * u[y * SIDE + x];
}

static void forward(double *u, double *work)
{
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            double v = u[y * SIDE + x];
            work[y * SIDE + x] = v + diffusion * laplacian(u, x, y) + growth * v * (1 - v);
        }
    memcpy(u, work, CELLS * sizeof(*u));
}

/* The transpose of the derivative of forward() at u, applied to g. */
static void backward(const double *u, double *g, double *work)
{
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            double v = g[y * SIDE + x];
            work[y * SIDE + x] =
                v + diffusion * laplacian(g, x, y) + growth * v * (1 - 2 * u[y * SIDE + x]);
        }
    memcpy(g, work, CELLS * sizeof(*g));
}

static void start(double *u)
{
    for (int i = 0; i < CELLS; i++)
        u[i] = (i / SIDE - 90) * (i / SIDE - 90) + (i % SIDE - 70) * (i % SIDE - 70) < 900 ? 0.9
                                                                                           : 0.01;
}

/* ---- the schedule ---- */

enum what { ADVANCE, STORE, RESTORE, FREE, REVERSE };

/* An action of a schedule. `n` is the number of steps to advance, or a version of the history: the number of the STORE,
 * so that no version is written twice. */
struct action {
    enum what what;
    int n;
};

struct schedule {
    struct action *list;
    size_t n, room;
    int versions;
};

static void add(struct schedule *s, enum what what, int n)
{
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 1024;
        s->list = realloc(s->list, s->room * sizeof(*s->list));
        if (!s->list)
            exit(1);
    }
    s->list[s->n++] = (struct action){what, n};
}

/* The number of steps that can be reversed with `slots` snapshots if no step is computed more than t times:
 * C(slots + t, t). */
static double reach(int slots, int t)
{
    double c = 1;

    for (int i = 1; i <= t; i++)
        c = c * (slots + i) / i;
    return t < 0 ? 0 : c;
}

/* The step at which to store the next state on the way through `steps` steps: the earliest one such that the steps after
 * it can be reversed with one snapshot less, and the steps before it with one computation less. */
static int next_snapshot(int steps, int slots)
{
    int t = 1;

    while (reach(slots, t) < steps)
        t++;
    double early = reach(slots, t - 2), rest = steps - reach(slots - 1, t);
    double m = early > rest ? early : rest;
    return m > 1 ? (int)m : 1;
}

/* Reverses `steps` steps from the current state, which is version `base`. With one snapshot left, every step is computed
 * from there. */
static void reverse(struct schedule *s, int base, int steps, int slots)
{
    for (; steps > 1; add(s, RESTORE, base)) {
        int m = slots > 1 ? next_snapshot(steps, slots) : steps - 1;

        add(s, ADVANCE, m);
        if (steps - m > 1) {
            int version = s->versions++;
            add(s, STORE, version);
            reverse(s, version, steps - m, slots - 1);
        } else {
            add(s, REVERSE, 0);
        }
        steps = m;
    }
    add(s, FREE, base); /* before the adjoint step: the state was restored already */
    add(s, REVERSE, 0);
}

static struct schedule make_schedule(int steps, int slots)
{
    struct schedule s = {0};

    add(&s, STORE, s.versions++);
    reverse(&s, 0, steps, slots);
    return s;
}

/* ---- one adjoint ---- */

struct run {
    const char *name;
    int memory, disk, slots;
    double seconds, waited;
    long computed; /* steps */
    double mib;    /* memory of the process */
};

static double process_mib(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static struct varve_ctx *open_context(const struct run *r, const char *folder)
{
    const uint64_t state = CELLS * sizeof(double);
    struct varve_opts opts;
    struct varve_ctx *ctx;

    must(varve_opts_init(&opts, sizeof(opts)), "options");
    opts.host_cache = (uint64_t)r->memory * state;
    opts.local[0] = '\0';
    if (r->disk > 0) {
        must(varve_opts_set(&opts, "local", folder), "the folder");
        opts.local_cache = (uint64_t)r->disk * state;
    }
    must(varve_open(&opts, &ctx), "open");
    return ctx;
}

static void carry_out(const struct schedule *s, struct varve_history *h, double *u, double *g,
                      double *work, struct run *r)
{
    int first = 1;

    for (size_t i = 0; i < s->n; i++) {
        struct action a = s->list[i];
        switch (a.what) {
        case ADVANCE:
            for (int k = 0; k < a.n; k++)
                forward(u, work);
            r->computed += a.n;
            break;
        case STORE:
            must(varve_checkpoint(h, (uint64_t)a.n), "checkpoint");
            break;
        case RESTORE:
            must(varve_restore(h, (uint64_t)a.n), "restore");
            break;
        case FREE:
            must(varve_discard(h, (uint64_t)a.n), "discard");
            break;
        case REVERSE:
            if (first) { /* the cost is half the sum of squares of the last state */
                memcpy(g, u, CELLS * sizeof(*g));
                forward(g, work);
                r->computed++;
                first = 0;
            }
            backward(u, g, work);
            break;
        }
    }
}

static void run(struct run *r, const char *folder, double *u, double *g, double *work)
{
    struct varve_ctx *ctx = open_context(r, folder);
    struct schedule s = make_schedule(STEPS, r->slots);
    struct varve_stats stats = {.stats_size = sizeof(stats)};
    struct timespec before, after;
    struct varve_history *h;

    must(varve_history_open(ctx, "states", &h), "history");
    must(varve_protect(h, 0, u, CELLS * sizeof(*u)), "protect");
    for (size_t i = 0; i < s.n; i++) /* hint all restores, in their order */
        if (s.list[i].what == RESTORE)
            must(varve_hint(h, (uint64_t)s.list[i].n), "hint");
    start(u);
    clock_gettime(CLOCK_MONOTONIC, &before);
    carry_out(&s, h, u, g, work, r);
    clock_gettime(CLOCK_MONOTONIC, &after);
    must(varve_stats(ctx, &stats), "figures");
    r->seconds =
        (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
    r->waited = (double)(stats.checkpoint_blocked_ns + stats.restore_blocked_ns) / 1e9;
    r->mib = process_mib();
    must(varve_close(ctx), "close");
    free(s.list);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "/tmp";
    int memory = argc > 2 ? atoi(argv[2]) : 16, disk = argc > 3 ? atoi(argv[3]) : 64;
    int failed = 0;

    if (memory < 1 || disk < 1 || memory + disk >= STEPS) {
        fprintf(stderr, "revolve: MEMORY and DISK must be at least 1, and less than %d together\n",
                STEPS);
        return 2;
    }
    double *u = malloc(CELLS * sizeof(*u)), *work = malloc(CELLS * sizeof(*work));
    double *g = malloc(CELLS * sizeof(*g)), *want = malloc(CELLS * sizeof(*want));
    if (!u || !work || !g || !want)
        return 1;
    struct run runs[] = {
        {.name = "store all, memory", .memory = STEPS, .slots = STEPS},
        {.name = "store all, both", .memory = memory, .disk = STEPS, .slots = STEPS},
        {.name = "binomial, memory", .memory = memory, .slots = memory},
        {.name = "binomial, both", .memory = memory, .disk = disk, .slots = memory + disk},
    };
    printf("%-18s %9s %8s %11s %8s %9s %11s  %s\n", "", "in memory", "on disk", "recomputed",
           "time s", "waited s", "process MiB", "gradient");
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        struct run *r = &runs[i];
        run(r, folder, u, g, work);
        int same = i == 0 || memcmp(g, want, CELLS * sizeof(*g)) == 0;
        if (i == 0)
            memcpy(want, g, CELLS * sizeof(*g));
        failed |= !same;
        printf("%-18s %9d %8d %11ld %8.3f %9.3f %11.0f  %s\n", r->name, r->memory, r->disk,
               r->computed - STEPS, r->seconds, r->waited, r->mib, same ? "the same" : "ANOTHER");
    }
    free(u);
    free(work);
    free(g);
    free(want);
    return failed;
}
