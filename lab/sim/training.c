/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job is a sequence of epochs, an epoch a sequence of steps, and a step ends for all processes
 * when it ends for the slowest. The placement of the cache itself decides where files go after failures. Only
 * files that are not at their place are computed one by one; the others cost every process the same. So the time
 * to compute an epoch depends on the number of lost files, not of all files.
 *
 * A failure strikes at a step of an epoch. The epoch is begun again by the nodes that are left,
 * after the framework's restart. Files of the dead node are lost: they come from the shared file system, as the
 * mode has it, or from a second copy.
 *
 * Time is kept in seconds from the start of the job. Every random number is drawn from a state that
 * depends on the seed, the run and the purpose, never on the mode: modes see the same failures, and
 * differences between them are not chance. The cost of reads is the difference to a job that sees the
 * same failures and loses no file.
 *
 * Threads: runs are independent; the placement is computed before and only read.
 */
#include "lab/sim/training.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE     4096u
#define AHEAD_MAX 65u
#define NOWHERE   UINT32_MAX

/* ---- parameters ---- */

const struct training_param_info training_param_table[] = {
#define X(name, value, least, most, unit, source, meaning) \
    {#name, unit, meaning,         value,                  \
     least, most, SOURCE_##source, offsetof(struct training_params, name)},
    TRAINING_PARAMS(X)
#undef X
        {0}};

void training_params_init(struct training_params *p)
{
    for (const struct training_param_info *i = training_param_table; i->name; i++)
        *(double *)(void *)((char *)p + i->offset) = i->value;
}

int training_params_set(struct training_params *p, const char *name, double value)
{
    for (const struct training_param_info *i = training_param_table; i->name; i++) {
        if (strcmp(i->name, name) != 0)
            continue;
        if (!(value >= i->least && value <= i->most))
            return -EINVAL;
        *(double *)(void *)((char *)p + i->offset) = value;
        return 0;
    }
    return -EINVAL;
}

const char *training_mode_name(enum training_mode mode)
{
    static const char *const names[] = {"none", "redirect", "recache-demand", "recache",
                                        "replicas"};

    return names[mode];
}

const char *training_source_name(enum training_source source)
{
    static const char *const names[] = {"paper", "measured", "assumed", "fitted"};

    return names[source];
}

/* ---- what all runs share ---- */

struct shared {
    const struct training_opts *o;
    const struct training_params *p;
    struct vv_place *map;
    uint64_t files;
    uint64_t *keys;    /* of each file */
    uint32_t *owner;   /* of each file, all nodes up */
    uint32_t *by_node; /* the files, by owner */
    uint64_t *first;   /* of each node in by_node, and the end */
    struct result *results;
};

/* The modes, and a job that loses no file. */
enum { IDEAL = TRAINING_MODES, WAYS };

struct result {
    int rc;
    double baseline_s, epoch_s;
    double total_s[WAYS], victim_s[WAYS], shared_reads[WAYS];
};

struct failure {
    uint32_t epoch; /* from 1 on; 0 is the first */
    double at;      /* share of the epoch that is done */
    uint32_t node;
};

/* A file that is not at its first place. */
struct strayed {
    uint32_t file;
    uint32_t owner; /* now */
    bool absent;    /* its owner does not have it */
    double ready_s; /* absent: when the owner will have fetched it by itself; infinite: never */
};

/* One job. */
struct job {
    const struct shared *s;
    int way;
    double now_s;
    uint32_t nr_dead;
    uint64_t *up;
    struct strayed *files;
    uint64_t nr_files, room;
    /* An epoch: the files that are not read as usual, by step. */
    uint64_t *slot;     /* the position of each of them in the order of the epoch */
    uint64_t *sorted;   /* indices into files, by step */
    uint64_t *step_end; /* the end of each step's in sorted */
    double *ready_s;    /* of each process: the time at which it has read its last batch */
    double *extra_s;    /* of each process in this step: its time over reading from the cache */
    uint32_t *touched;
    uint64_t random; /* the state for read times */
    uint64_t order;  /* for the order of files in epochs */
    uint64_t jitter; /* for the jitter of steps */
    uint64_t shared_reads;
};

static uint64_t seed_of(const struct shared *s, uint64_t run, uint64_t purpose)
{
    uint64_t state = s->o->seed * UINT64_C(0x100000001b3) + run * 64 + purpose;

    return sim_random(&state);
}

/* Log-normal with a mean of 1. */
static double draw_factor(uint64_t *state, double sigma)
{
    double u = 1 - sim_random_real(state), v = sim_random_real(state);

    if (sigma == 0)
        return 1;
    return exp(sigma * sqrt(-2 * log(u)) * cos(6.283185307179586 * v) - sigma * sigma / 2);
}

/* The largest of n exponential variates of a mean. */
static double draw_largest(uint64_t *state, double mean, double n)
{
    double u = 1 - sim_random_real(state);

    return mean == 0 ? 0 : -mean * log1p(-pow(u, 1 / n));
}

static double file_gb(const struct shared *s)
{
    return s->p->dataset_gb / s->p->samples;
}

static uint64_t batch_of(const struct shared *s)
{
    double processes = s->p->gpus * s->o->nodes;

    return (uint64_t)fmax(1, floor(s->p->global_batch / processes));
}

/* ---- an epoch ---- */

/* The time that reading a special file takes beyond reading it from the cache, which is a part of sample_s. */
static double read_cost(struct job *j, struct strayed *f, double now_s, double *trips)
{
    const struct training_params *p = j->s->p;
    double factor = draw_factor(&j->random, p->spread), cost;

    if (j->way == TRAINING_REDIRECT) {
        j->shared_reads++;
        *trips += p->client_trips;
        return p->client_trips * p->trip_s * factor;
    }
    *trips += p->fetch_trips;
    cost = p->fetch_trips * p->trip_s * factor;
    f->absent = false;
    if (j->way == TRAINING_DEMAND)
        j->shared_reads++;
    /* It is under way, or requested now; in both cases it is fetched once. */
    return fmin(cost, fmax(f->ready_s - now_s, 0));
}

static bool is_special(const struct job *j, const struct strayed *f, double now_s)
{
    if (j->way == TRAINING_REDIRECT)
        return true;
    return f->absent && f->ready_s > now_s;
}

static int grow_epoch(struct job *j, uint64_t steps)
{
    uint64_t room = VV_MAX(j->nr_files, UINT64_C(1));
    uint64_t *slot = realloc(j->slot, room * sizeof(*slot)), *sorted, *end;

    j->slot = slot ? slot : j->slot;
    sorted = realloc(j->sorted, room * sizeof(*sorted));
    j->sorted = sorted ? sorted : j->sorted;
    end = realloc(j->step_end, (steps + 1) * sizeof(*end));
    j->step_end = end ? end : j->step_end;
    return slot && sorted && end ? 0 : -ENOMEM;
}

/* The order of an epoch: each special file somewhere, sorted by step. */
static int shuffle(struct job *j, uint64_t steps, uint64_t per_step)
{
    uint64_t samples = (uint64_t)j->s->p->samples;
    int rc = grow_epoch(j, steps);

    if (rc < 0)
        return rc;
    memset(j->step_end, 0, (steps + 1) * sizeof(*j->step_end));
    for (uint64_t i = 0; i < j->nr_files; i++) {
        uint64_t at = sim_random_below(&j->order, samples);

        j->slot[i] = at;
        if (is_special(j, &j->files[i], j->now_s))
            j->step_end[at / per_step + 1]++;
    }
    for (uint64_t s = 0; s < steps; s++)
        j->step_end[s + 1] += j->step_end[s];
    for (uint64_t i = 0; i < j->nr_files; i++)
        if (is_special(j, &j->files[i], j->now_s))
            j->sorted[j->step_end[j->slot[i] / per_step]++] = i;
    return 0;
}

/* Adds the cost of the special files [from, to) of a step, requested at `ask_s`, to the processes that read them.
 * Returns the number of processes that have to wait. *ret_floor_s: their least wait, by the limits of the shared file
 * system. */
static uint32_t read_special(struct job *j, uint64_t from, uint64_t to, uint64_t per_step,
                             uint64_t batch, double ask_s, double *ret_floor_s)
{
    double trips = 0, bytes = 0, cost;
    uint32_t n = 0;

    for (uint64_t i = from; i < to; i++) {
        struct strayed *f = &j->files[j->sorted[i]];
        uint32_t process = (uint32_t)(j->slot[j->sorted[i]] % per_step / batch);

        if (!is_special(j, f, ask_s))
            continue;
        bytes += file_gb(j->s);
        cost = read_cost(j, f, ask_s, &trips);
        if (cost > 0 && j->extra_s[process] == 0)
            j->touched[n++] = process;
        j->extra_s[process] += cost;
    }
    *ret_floor_s = fmax(trips / j->s->p->shared_ops, bytes / j->s->p->shared_gbps);
    return n;
}

/* The time at which the slowest process has read its batch. */
static double slowest(struct job *j, uint64_t processes, uint32_t waiting, bool ahead, double ask_s)
{
    double last_s = ask_s;

    if (ahead) {
        for (uint64_t i = 0; i < processes; i++) {
            j->ready_s[i] = fmax(j->ready_s[i], ask_s) + j->extra_s[i];
            last_s = fmax(last_s, j->ready_s[i]);
        }
    } else {
        for (uint32_t i = 0; i < waiting; i++)
            last_s = fmax(last_s, ask_s + j->extra_s[j->touched[i]]);
    }
    for (uint32_t i = 0; i < waiting; i++)
        j->extra_s[j->touched[i]] = 0;
    return last_s;
}

/* Runs a share of an epoch. A process reads a batch when it has read the one before, and the step that is
 * read_ahead before the last has ended. */
static int run_epoch(struct job *j, double share)
{
    const struct training_params *p = j->s->p;
    uint64_t batch = batch_of(j->s), ahead = (uint64_t)p->read_ahead;
    uint64_t processes = (uint64_t)p->gpus * (j->s->o->nodes - j->nr_dead);
    uint64_t per_step = processes * batch;
    uint64_t steps = vv_div_up((uint64_t)p->samples, per_step);
    uint64_t stop = (uint64_t)floor((double)steps * share), from = 0;
    double over_s[AHEAD_MAX];
    int rc = shuffle(j, steps, per_step);

    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i <= ahead; i++)
        over_s[i] = j->now_s;
    for (uint64_t i = 0; i < processes; i++)
        j->ready_s[i] = j->now_s;
    for (uint64_t step = 0; step < stop; step++) {
        double *over = &over_s[step % (ahead + 1)], floor_s, read_s;
        uint32_t n;

        n = read_special(j, from, j->step_end[step], per_step, batch, *over, &floor_s);
        from = j->step_end[step];
        read_s = fmax(slowest(j, processes, n, ahead > 0, *over), *over + floor_s);
        j->now_s = fmax(j->now_s, read_s) + (double)batch * (p->open_s + p->sample_s) + p->step_s +
                   draw_largest(&j->jitter, p->jitter_s, (double)processes);
        *over = j->now_s;
    }
    return 0;
}

/* The first epoch reads everything through the caches from the shared file system: the slowest
 * process of each step. */
static void run_first_epoch(struct job *j)
{
    const struct training_params *p = j->s->p;
    uint64_t batch = batch_of(j->s), processes = (uint64_t)p->gpus * j->s->o->nodes;
    uint64_t steps = vv_div_up((uint64_t)p->samples, processes * batch);
    double per_step = (double)(processes * batch);
    double floor_s =
        fmax(per_step * p->fetch_trips / p->shared_ops, per_step * file_gb(j->s) / p->shared_gbps);

    for (uint64_t step = 0; step < steps; step++) {
        double worst = floor_s;

        for (uint64_t r = 0; r < processes; r++) {
            double sum = 0;

            for (uint64_t b = 0; b < batch; b++)
                sum += p->fetch_trips * p->trip_s * draw_factor(&j->random, p->spread);
            worst = fmax(worst, sum);
        }
        j->now_s += worst + (double)batch * (p->open_s + p->sample_s) + p->step_s +
                    draw_largest(&j->jitter, p->jitter_s, (double)processes);
    }
}

/* ---- failures ---- */

static int stray(struct job *j, uint32_t file, uint32_t owner)
{
    if (j->nr_files == j->room) {
        uint64_t room = j->room ? 2 * j->room : 4096;
        struct strayed *files = realloc(j->files, room * sizeof(*files));

        if (!files)
            return -ENOMEM;
        j->files = files;
        j->room = room;
    }
    j->files[j->nr_files++] = (struct strayed){.file = file, .owner = owner};
    return 0;
}

/* The time at which an owner has fetched a lost file by itself. All owners begin when they know of the failure,
 * each fetches its files in order, some at a time, and together they stay below the limit of the shared file
 * system. */
static void plan_fetches(struct job *j, uint64_t first, double begin_s)
{
    const struct training_params *p = j->s->p;
    double one_s = p->fetch_trips * p->trip_s / p->fetch_jobs;
    double rate = fmin(p->shared_ops / fmax(p->fetch_trips, 1e-9), p->shared_gbps / file_gb(j->s));
    double *queue_s = j->ready_s; /* one for each node; there are fewer nodes than processes */

    for (uint32_t n = 0; n < j->s->o->nodes; n++)
        queue_s[n] = begin_s;
    for (uint64_t i = first; i < j->nr_files; i++) {
        struct strayed *f = &j->files[i];

        if (!f->absent || isfinite(f->ready_s))
            continue;
        j->shared_reads++;
        queue_s[f->owner] += one_s;
        f->ready_s = fmax(queue_s[f->owner] + p->fetch_trips * p->trip_s - one_s,
                          begin_s + (double)(i - first + 1) / rate);
    }
}

/* Removes a node. Its files belong to others now, which do not have them. */
static int fail_node(struct job *j, uint32_t node, double begin_s)
{
    const struct shared *s = j->s;
    int rc = 0;

    vv_place_set_remove(j->up, node);
    j->nr_dead++;
    if (j->way == IDEAL || j->way == TRAINING_NONE)
        return 0;
    for (uint64_t i = s->first[node]; i < s->first[node + 1] && rc == 0; i++)
        rc = stray(j, s->by_node[i], node);
    for (uint64_t i = 0; i < j->nr_files && rc == 0; i++) {
        struct strayed *f = &j->files[i];

        if (f->owner != node)
            continue;
        f->owner = vv_place_owner(s->map, s->keys[f->file], j->up);
        /* With two copies the new owner is the node with the second one, which was made since the last failure, or
         * with the data set. */
        f->absent = j->way != TRAINING_REPLICAS;
        f->ready_s = INFINITY;
    }
    if (rc == 0 && j->way == TRAINING_RECACHE)
        plan_fetches(j, 0, begin_s);
    return rc;
}

static int by_time(const void *a, const void *b)
{
    const struct failure *x = a, *y = b;

    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return 0; /* their order within one epoch is as drawn */
}

static void draw_failures(const struct shared *s, uint64_t run, struct failure *f)
{
    uint64_t state = seed_of(s, run, 1), n = (uint64_t)s->p->failures;

    for (uint64_t i = 0; i < n; i++) {
        f[i].epoch = 1 + (uint32_t)sim_random_below(&state, (uint64_t)s->p->epochs - 1);
        f[i].at = sim_random_real(&state) * s->p->early;
        do {
            f[i].node = (uint32_t)sim_random_below(&state, s->o->nodes);
            for (uint64_t k = 0; k < i; k++)
                if (f[k].node == f[i].node)
                    f[i].node = NOWHERE;
        } while (f[i].node == NOWHERE);
    }
    /* Few, and it has to be stable, which qsort is not. */
    for (uint64_t i = 1; i < n; i++)
        for (uint64_t k = i; k > 0 && by_time(&f[k - 1], &f[k]) > 0; k--) {
            struct failure t = f[k];

            f[k] = f[k - 1];
            f[k - 1] = t;
        }
}

/* ---- a job ---- */

static int job_init(const struct shared *s, uint64_t run, int way, struct job *j)
{
    uint64_t processes = (uint64_t)s->p->gpus * s->o->nodes;

    *j = (struct job){.s = s,
                      .way = way,
                      .random = seed_of(s, run, 2),
                      .order = seed_of(s, run, 3),
                      .jitter = seed_of(s, run, 4)};
    j->up = calloc(vv_place_set_words(s->o->nodes), sizeof(*j->up));
    j->ready_s = calloc(processes, sizeof(*j->ready_s));
    j->extra_s = calloc(processes, sizeof(*j->extra_s));
    j->touched = calloc(processes, sizeof(*j->touched));
    if (!j->up || !j->ready_s || !j->extra_s || !j->touched)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->o->nodes; i++)
        vv_place_set_add(j->up, i);
    return 0;
}

static void job_fini(struct job *j)
{
    free(j->up);
    free(j->files);
    free(j->slot);
    free(j->sorted);
    free(j->step_end);
    free(j->ready_s);
    free(j->extra_s);
    free(j->touched);
}

/* Goes through the epochs after the first. */
static int run_epochs(struct job *j, const struct failure *f, uint64_t nr, double baseline_s,
                      double *ret_victim_s)
{
    const struct training_params *p = j->s->p;
    uint64_t next = 0, victims = 0;
    double victim_s = 0;
    int rc = 0;

    for (uint32_t epoch = 1; epoch < (uint32_t)p->epochs && rc == 0; epoch++) {
        bool victim = false;
        double start_s;

        /* Every epoch has an order of its own, independent of all before. */
        for (; next < nr && f[next].epoch == epoch && rc == 0; next++) {
            rc = run_epoch(j, f[next].at);
            if (j->way == TRAINING_NONE) {
                /* The job is started again, on as many nodes, without failures. */
                j->now_s += baseline_s;
                return rc;
            }
            if (rc == 0)
                rc = fail_node(j, f[next].node, j->now_s + p->detect_s);
            j->now_s += p->restart_s;
            victim = true;
        }
        start_s = j->now_s;
        if (rc == 0)
            rc = run_epoch(j, 1);
        if (victim) {
            victim_s += j->now_s - start_s;
            victims++;
        }
    }
    *ret_victim_s = victims ? victim_s / (double)victims : NAN;
    return rc;
}

static int run_job(const struct shared *s, uint64_t run, int way, double first_s,
                   const struct failure *f, uint64_t nr, struct result *r)
{
    double victim_s = NAN;
    struct job j;
    int rc = job_init(s, run, way, &j);

    j.now_s = s->p->launch_s + first_s;
    if (rc == 0)
        rc = run_epochs(&j, f, nr, r->baseline_s, &victim_s);
    if (rc == 0 && nr == 0) {
        r->baseline_s = j.now_s;
        r->epoch_s = (j.now_s - s->p->launch_s - first_s) / (s->p->epochs - 1);
    } else if (rc == 0) {
        r->total_s[way] = j.now_s;
        r->victim_s[way] = victim_s;
        r->shared_reads[way] = (double)j.shared_reads;
    }
    job_fini(&j);
    return rc;
}

/* Runs all modes through the same failures. */
static void run_one(void *arg, size_t run)
{
    struct shared *s = arg;
    struct result *r = &s->results[run];
    uint64_t nr = (uint64_t)s->p->failures;
    struct failure *f = calloc(VV_MAX(nr, UINT64_C(1)), sizeof(*f));
    struct job first;
    double first_s = 0;

    r->rc = f ? job_init(s, run, IDEAL, &first) : -ENOMEM;
    if (r->rc == 0) {
        run_first_epoch(&first);
        first_s = first.now_s;
        draw_failures(s, run, f);
    }
    if (f)
        job_fini(&first);
    if (r->rc == 0)
        r->rc = run_job(s, run, IDEAL, first_s, f, 0, r);
    for (int way = 0; way < WAYS && r->rc == 0; way++)
        r->rc = run_job(s, run, way, first_s, f, nr, r);
    free(f);
}

/* ---- the placement ---- */

static void find_owners(void *arg, size_t piece)
{
    struct shared *s = arg;
    uint64_t end = VV_MIN((uint64_t)(piece + 1) * PIECE, s->files);

    for (uint64_t f = (uint64_t)piece * PIECE; f < end; f++) {
        char path[64];
        int n = snprintf(path, sizeof(path), "train/%llu/%llu", (unsigned long long)s->o->seed,
                         (unsigned long long)f);

        s->keys[f] = vv_place_key(path, (size_t)n);
        s->owner[f] = vv_place_owner(s->map, s->keys[f], NULL);
    }
}

static int place(struct shared *s)
{
    struct vv_place_opts opts = {.scheme = s->o->scheme};
    uint32_t nr = s->o->nodes;
    struct vv_place_node *nodes = calloc(nr, sizeof(*nodes));
    int rc;

    s->keys = calloc(s->files, sizeof(*s->keys));
    s->owner = calloc(s->files, sizeof(*s->owner));
    s->by_node = calloc(s->files, sizeof(*s->by_node));
    s->first = calloc(nr + 2, sizeof(*s->first));
    if (!nodes || !s->keys || !s->owner || !s->by_node || !s->first) {
        free(nodes);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < nr; i++) {
        char name[32];

        snprintf(name, sizeof(name), "node%u", i);
        nodes[i] = (struct vv_place_node){vv_place_node_id(name), 1};
    }
    rc = vv_place_new(&opts, nodes, nr, &s->map);
    free(nodes);
    if (rc < 0)
        return rc;
    sim_parallel(s->o->jobs, vv_div_up(s->files, PIECE), find_owners, s, NULL);
    for (uint64_t f = 0; f < s->files; f++)
        s->first[s->owner[f] + 2]++;
    for (uint32_t i = 0; i < nr; i++)
        s->first[i + 2] += s->first[i + 1];
    for (uint64_t f = 0; f < s->files; f++)
        s->by_node[s->first[s->owner[f] + 1]++] = (uint32_t)f;
    return 0;
}

/* ---- the whole ---- */

static void sum_up(const struct shared *s, struct training_row *rows)
{
    double n = s->o->runs;

    for (int m = 0; m < TRAINING_MODES; m++) {
        struct training_row row = {.nodes = s->o->nodes, .mode = (enum training_mode)m};
        double ideal = 0, squares = 0, victims = 0;

        for (uint32_t i = 0; i < s->o->runs; i++) {
            const struct result *r = &s->results[i];

            row.baseline_s += r->baseline_s / n;
            row.epoch_s += r->epoch_s / n;
            row.total_s += r->total_s[m] / n;
            squares += r->total_s[m] * r->total_s[m] / n;
            ideal += r->total_s[IDEAL] / n;
            row.shared_reads += r->shared_reads[m] / n;
            if (isfinite(r->victim_s[m])) {
                row.victim_epoch_s += r->victim_s[m];
                victims++;
            }
        }
        row.total_sd = sqrt(fmax(squares - row.total_s * row.total_s, 0));
        row.victim_epoch_s = victims > 0 ? row.victim_epoch_s / victims : NAN;
        row.overhead = row.total_s / row.baseline_s - 1;
        row.overhead_restart = m == TRAINING_NONE ? row.overhead : ideal / row.baseline_s - 1;
        row.overhead_reads = row.overhead - row.overhead_restart;
        rows[m] = row;
    }
}

int training_run(const struct training_opts *o, struct sim_progress *progress,
                 struct training_row ret_rows[TRAINING_MODES])
{
    struct shared s = {.o = o, .p = &o->params, .files = (uint64_t)o->params.samples};
    int rc;

    if (o->runs == 0 || o->nodes == 0 || o->params.failures >= o->nodes)
        return -EINVAL;
    s.results = calloc(o->runs, sizeof(*s.results));
    rc = s.results ? place(&s) : -ENOMEM;
    if (rc == 0)
        sim_parallel(o->jobs, o->runs, run_one, &s, progress);
    for (uint32_t i = 0; i < o->runs && rc == 0; i++)
        rc = s.results[i].rc;
    if (rc == 0)
        sum_up(&s, ret_rows);
    vv_place_free(s.map);
    free(s.keys);
    free(s.owner);
    free(s.by_node);
    free(s.first);
    free(s.results);
    return rc;
}
