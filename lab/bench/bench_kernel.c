/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of the library's threads for a kernel that computes beside them: the time of a sweep of a stencil by
 * threads that are bound to a core each, while a vector is written to disk in the background, over the time of
 * the same sweep with nothing in the background.
 *
 *     spare      one core is left to the library (helper_cores), the others compute
 *     process    the same with a helper process on that core
 *     none       every core computes, and the library's threads run where the system puts them
 *
 * The two runs of a round take turns, and which one is first alternates, so that both see the same machine; a round's
 * figure is the ratio of its two medians, and the median of the rounds counts. In both, the array is copied every
 * few sweeps: by a write of the vector, or by the same copy to other memory, so that what the copy itself
 * does to the caches is in both. The copy is not part of a sweep.
 *
 *     bench_kernel [--array SIZE] [--record SIZE] [--sweeps N] [--rounds N] [--dir FOLDER] [--gate] [--json]
 *
 * On a machine with several hardware threads in a core, a core is left whole. --array: of each thread. --gate:
 * exit status 1 if a sweep with a spare core is slowed down by 3% or more, and by more than the noise: what a quarter
 * of rounds without any write exceed. Fewer than 8 processors are not judged.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/vector.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/thread_group.h"
#include "base/topo.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"

enum { THREADS_MAX = 256, ROUNDS_MAX = 101, SWEEPS_MAX = 1000, EVERY = 4, KEEP = 12 };

static size_t array_bytes = 4 << 20, record_bytes = 32 << 20;
static int rounds = 15, sweeps = 60;
static const char *dir;
static char folder[512];

static void die(const char *what, int rc)
{
    struct varve_error e = {.error_size = sizeof(e)};
    bool known = varve_last_error(NULL, &e) == 0 && e.err == rc;
    fprintf(stderr, "bench_kernel: %s: %s\n", what, known ? e.text : varve_strerror(rc));
    exit(1);
}

/* ---- the kernel ---- */

struct crowd {
    unsigned n;
    int cpu[THREADS_MAX];
    pthread_t thread[THREADS_MAX];
    pthread_barrier_t begin, end;
    bool stop; /* read after the barrier that follows its store */
};

struct worker {
    struct crowd *crowd;
    unsigned i;
};

/* Computes each point of one array from five points of the other: all of both is read or written. */
static void sweep(float *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 2; i + 2 < n; i++)
        to[i] = 0.4f * from[i] + 0.2f * (from[i - 1] + from[i + 1]) +
                0.1f * (from[i - 2] + from[i + 2]);
}

static void bind_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    (void)!pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void *compute(void *arg)
{
    struct worker *w = arg;
    struct crowd *c = w->crowd;
    size_t n = array_bytes / 2 / sizeof(float);
    float *a = malloc(n * sizeof(*a)), *b = malloc(n * sizeof(*b));
    bind_to(c->cpu[w->i]);
    if (!a || !b)
        die("memory", -ENOMEM);
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] = (float)(i % 7);
    for (;;) {
        pthread_barrier_wait(&c->begin);
        if (c->stop)
            break;
        for (int i = 0; i < 8; i++) {
            sweep(b, a, n);
            sweep(a, b, n);
        }
        pthread_barrier_wait(&c->end);
    }
    free(a);
    free(b);
    free(w);
    return NULL;
}

static void crowd_start(struct crowd *c, const int *cpus, unsigned n)
{
    *c = (struct crowd){.n = n};
    memcpy(c->cpu, cpus, n * sizeof(*cpus));
    pthread_barrier_init(&c->begin, NULL, n + 1);
    pthread_barrier_init(&c->end, NULL, n + 1);
    for (unsigned i = 0; i < n; i++) {
        struct worker *w = malloc(sizeof(*w));
        if (!w)
            die("memory", -ENOMEM);
        *w = (struct worker){c, i};
        if (pthread_create(&c->thread[i], NULL, compute, w))
            die("threads", -EAGAIN);
    }
}

static void crowd_stop(struct crowd *c)
{
    c->stop = true;
    pthread_barrier_wait(&c->begin);
    for (unsigned i = 0; i < c->n; i++)
        pthread_join(c->thread[i], NULL);
    pthread_barrier_destroy(&c->begin);
    pthread_barrier_destroy(&c->end);
}

static double one_sweep(struct crowd *c)
{
    uint64_t begun_ns = vv_now_ns();
    pthread_barrier_wait(&c->begin);
    pthread_barrier_wait(&c->end);
    return (double)(vv_now_ns() - begun_ns) * 1e-9;
}

/* ---- the vector ---- */

struct written {
    struct varve_ctx *ctx;
    struct varve_history *h;
    struct varve_vector *v;
    uint64_t next;
    char *copy; /* outside of the library */
};

static void vector_open(struct written *w, const char *cores, bool process)
{
    struct varve_opts o;
    *w = (struct written){0};
    int rc = varve_opts_init(&o, sizeof(o));
    if (rc)
        die("options", rc);
    o.device = VARVE_DEVICE_NONE;
    o.level = VARVE_LEVEL_CACHED;
    o.host_cache = 6 * record_bytes;
    o.local_cache = 2 * KEEP * record_bytes;
    o.helper_process = process;
    snprintf(o.local, sizeof(o.local), "%s", folder);
    snprintf(o.helper_cores, sizeof(o.helper_cores), "%s", cores);
    snprintf(o.helper_name, sizeof(o.helper_name), "bench-%d", (int)getpid());
    rc = varve_open(&o, &w->ctx);
    if (rc)
        die("opening", rc);
    rc = varve_history_open(w->ctx, "kernel", &w->h);
    if (rc == 0)
        rc = varve_vector_new(w->h, 1, record_bytes, &w->v);
    if (rc)
        die("vector", rc);
    w->copy = malloc(record_bytes);
    if (!w->copy)
        die("memory", -ENOMEM);
    memset(w->v->data, 1, record_bytes);
    memset(w->copy, 1, record_bytes);
}

static void vector_write(struct written *w)
{
    int rc = varve_vector_write(w->v, w->next);
    if (rc)
        die("writing", rc);
    if (w->next >= KEEP)
        rc = varve_discard(w->h, w->next - KEEP);
    if (rc)
        die("discarding", rc);
    w->next++;
}

static void vector_close(struct written *w)
{
    varve_vector_free(w->v);
    int rc = varve_close(w->ctx);
    if (rc)
        die("closing", rc);
    free(w->copy);
}

/* ---- measuring ---- */

/* The median of the sweeps of one run. */
static double run(struct crowd *c, struct written *w, bool writes)
{
    double s[SWEEPS_MAX];
    for (int i = 0; i < sweeps; i++) {
        if (i % EVERY == 0 && writes)
            vector_write(w);
        else if (i % EVERY == 0)
            memcpy(w->copy, w->v->data, record_bytes);
        s[i] = one_sweep(c);
    }
    if (writes) /* no write goes on during the next run */
        (void)!varve_flush(w->h, -1);
    return samples_median(s, (size_t)sweeps);
}

struct figure {
    const char *name;
    unsigned threads;
    double sweep_s, slowdown,
        noise; /* of nothing against nothing: what a quarter of the rounds exceed */
    uint64_t cpu_ns, process_cpu_ns, bytes;
    char where[64];
};

static void measure(const char *name, const int *cpus, unsigned n, const char *cores, bool process,
                    struct figure *ret)
{
    struct crowd c;
    struct written w;
    struct varve_stats st = {.stats_size = sizeof(st)};
    double ratio[ROUNDS_MAX], same[ROUNDS_MAX], base[ROUNDS_MAX];
    vector_open(&w, cores, process);
    crowd_start(&c, cpus, n);
    run(&c, &w, true); /* makes files, and touches memory */
    for (int i = 0; i < rounds; i++) {
        double first = i % 2 ? run(&c, &w, true) : 0;
        base[i] = run(&c, &w, false);
        double with = i % 2 ? first : run(&c, &w, true);
        same[i] = run(&c, &w, false) / base[i] - 1;
        ratio[i] = with / base[i] - 1;
    }
    crowd_stop(&c);
    (void)!varve_stats(w.ctx, &st);
    for (int i = 0; i < rounds; i++)
        same[i] = fabs(same[i]);
    samples_sort(same, (size_t)rounds);
    *ret = (struct figure){.name = name,
                           .threads = n,
                           .sweep_s = samples_median(base, (size_t)rounds),
                           .slowdown = samples_median(ratio, (size_t)rounds),
                           .noise = same[rounds * 3 / 4],
                           .cpu_ns = st.helper_cpu_ns,
                           .process_cpu_ns = st.helper_process_cpu_ns,
                           .bytes = st.moved_bytes[VARVE_HOP_H2F]};
    snprintf(ret->where, sizeof(ret->where), "%s", cores);
    if (process && st.helper_pid == 0)
        ret->name = "process (none could be started: threads)";
    vector_close(&w);
}

/* A row as soon as it is known: the whole takes minutes on a slow disk. */
static void print(const struct figure *f, bool first, struct json *out)
{
    if (out) {
        json_object(out, NULL);
        json_text(out, "mode", f->name);
        json_uint(out, "threads", f->threads);
        json_number(out, "sweep_s", "%g", f->sweep_s);
        json_number(out, "slowdown", "%g", f->slowdown);
        json_number(out, "noise", "%g", f->noise);
        json_number(out, "helper_cpu_s", "%g", (double)f->cpu_ns * 1e-9);
        json_number(out, "process_cpu_s", "%g", (double)f->process_cpu_ns * 1e-9);
        json_uint(out, "written_bytes", f->bytes);
        json_close(out);
    } else {
        if (first)
            printf("%-10s %8s %12s %10s %8s %12s %12s  %s\n", "", "threads", "sweep ms", "slowdown",
                   "noise", "threads' s", "process's s", "library on");
        printf("%-10s %8u %12.3f %9.2f%% %7.2f%% %12.3f %12.3f  %s\n", f->name, f->threads,
               f->sweep_s * 1e3, 100 * f->slowdown, 100 * f->noise, (double)f->cpu_ns * 1e-9,
               (double)f->process_cpu_ns * 1e-9, f->where);
    }
    fflush(stdout);
}

static void make_folder(void)
{
    const char *base = dir ? dir : getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/varve-kernel-XXXXXX", base && *base ? base : "/var/tmp");
    if (!mkdtemp(folder))
        die(folder, -errno);
}

struct kernel_opts {
    uint64_t array, record;
    int sweeps, rounds;
    const char *dir;
    bool gate, json;
};

#define AT(field) offsetof(struct kernel_opts, field)

static const struct opt options[] = {
    {OPT_BYTES, .name = "array", .arg = "SIZE", .at = AT(array), .least = 65536,
     .help = "of a thread (4M)"},
    {OPT_BYTES, .name = "record", .arg = "SIZE", .at = AT(record), .least = 65536,
     .help = "that is written (32M)"},
    {OPT_INT, .name = "sweeps", .arg = "N", .at = AT(sweeps), .least = 1, .most = SWEEPS_MAX,
     .help = "of a round (60)"},
    {OPT_INT, .name = "rounds", .arg = "N", .at = AT(rounds), .least = 1, .most = ROUNDS_MAX,
     .help = "(15)"},
    {OPT_TEXT, .name = "dir", .arg = "FOLDER", .help = "where records go ($TMPDIR, or /var/tmp)",
     .at = AT(dir)},
    {OPT_FLAG, .name = "gate", .help = "exit 1 if sweeps are slowed down", .at = AT(gate)},
    {OPT_FLAG, .name = "json", .help = "print a JSON array", .at = AT(json)},
};

static const struct opts command = {
    .command = "bench_kernel",
    .usage = "[OPTION]...",
    .about = "Measures how much a sweep is slowed down while a vector is written.",
    OPT_LIST(options),
};

/* The processors that this process may use; those of the last core come last. `last` gets these as a list. Returns the
 * number of the others. */
static unsigned processors(int *ret_cpus, unsigned *ret_n, char *last, size_t size)
{
    static uint16_t core_of[CPU_SETSIZE];
    cpu_set_t mine, spare;
    unsigned n = 0, left;
    int core = -1;
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
        die("processors", -errno);
    vv_topo_core_of(core_of, CPU_SETSIZE);
    CPU_ZERO(&spare);
    for (int i = 0; i < CPU_SETSIZE; i++)
        core = CPU_ISSET(i, &mine) ? core_of[i] : core;
    for (int i = 0; i < CPU_SETSIZE && n < THREADS_MAX; i++)
        if (CPU_ISSET(i, &mine) && core_of[i] != core)
            ret_cpus[n++] = i;
    left = n;
    for (int i = 0; i < CPU_SETSIZE && n < THREADS_MAX; i++)
        if (CPU_ISSET(i, &mine) && core_of[i] == core) {
            ret_cpus[n++] = i;
            CPU_SET((size_t)i, &spare);
        }
    vv_cpus_format(&spare, last, size);
    *ret_n = n;
    return left;
}

int main(int argc, char **argv)
{
    struct figure f[3];
    int cpus[THREADS_MAX];
    unsigned nr = 0;
    char last[256];
    struct json out = json_begin(stdout, JSON_COMPACT);
    struct kernel_opts o = {array_bytes, record_bytes, sweeps, rounds, NULL, false, false};
    int first, status = opts_parse(&command, argc, argv, &o, &first);
    if (status >= 0)
        return status;
    array_bytes = o.array;
    record_bytes = o.record;
    sweeps = o.sweeps;
    rounds = o.rounds;
    dir = o.dir;
    bool gate = o.gate, json = o.json;
    unsigned n, left = processors(cpus, &n, last, sizeof(last));
    make_folder();
    if (json)
        json_array(&out, NULL);
    for (unsigned i = left > 0 ? 0 : 2; i < 3; i++) {
        if (i < 2)
            measure(i == 0 ? "spare" : "process", cpus, left, last, i == 1, &f[nr]);
        else
            measure("none", cpus, n, "any", false, &f[nr]);
        print(&f[nr], nr == 0, json ? &out : NULL);
        nr++;
    }
    if (json) {
        json_close(&out);
        json_end(&out);
    }
    rmdir(folder);
    bool slow = nr == 3 && n >= 8 && f[0].slowdown >= 0.03 && f[0].slowdown > f[0].noise;
    if (gate && n < 8)
        fprintf(stderr, "bench_kernel: %u processors: the bar is for 8 or more\n", n);
    return gate && slow;
}
