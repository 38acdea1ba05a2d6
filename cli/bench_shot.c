/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve bench shot: the experiment on the library itself.
 *
 * The parent parses, measures the bandwidths that are not throttled, forks one child per process of
 * the shot, waits, measures again, and prints. A child opens a context of its own, carries its
 * script out (sim/shot_run.c) and leaves its figures in memory shared with the parent; it never
 * prints.
 * The parent has no thread when it forks: the probes join theirs.
 *
 * A child that fails, or dies, sets `failed`, and the others leave their next barrier with an
 * error: nobody waits for ever for somebody who will not come.
 *
 * All files live in a folder made for the run, inside --local, and are removed with it; also when
 * the run is interrupted: the signal only sets `interrupted`, which the parent looks at between its
 * steps and while it waits for its children. It then ends them, cleans up, and dies of the signal.
 */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "cli/cli.h"
#include "core/clock.h"
#include "engine/core.h"
#include "sim/probe.h"
#include "sim/report.h"
#include "sim/run.h"
#include "sim/shot_run.h"

#define COMMAND          "varve bench shot"
#define VOID_TOLERANCE   0.10
#define BARRIER_POLL_NS  (20 * VV_NS_PER_US)
#define PROGRESS_NS      (200 * VV_NS_PER_MS)
#define PROBE_SECONDS    0.4
#define PROBE_FILE_BYTES (UINT64_C(256) << 20)
#define PROBE_BLOCK      (UINT32_C(2) << 20)
#define PROBE_THREADS    8
#define TEXT_BYTES       512

/* What one child leaves. Synchronization: the child's until it is reaped, but for ops_done. */
struct child {
    int rc;
    bool finished;
    char err[TEXT_BYTES];
    struct shot_trace trace;   /* its arrays are in the same mapping */
    _Atomic uint64_t ops_done; /* relaxed: for the progress display only */
};

/* At the start of the mapping that parent and children share. */
struct shared {
    /* A barrier that can be given up: who comes last moves the round on. Arrivals are counted with
     * acq_rel, so that what was done before the barrier is seen after it. */
    _Atomic uint32_t arrived;
    _Atomic uint32_t round; /* release by the last, acquire by those who wait */
    _Atomic bool failed;    /* relaxed: seen a poll later is early enough */
};

struct bench {
    struct shot_opts opts;
    struct shot_sizes sizes;
    uint64_t interval_ns;
    uint64_t history_bytes;        /* what shares are shares of */
    char folder[VARVE_PATH_BYTES]; /* empty: no disk */
    struct vv_core_cfg core;       /* for the capacities and the size of the transit buffers */
    struct shared *shared;
    struct child *children;
    size_t mapping_bytes;
    char err[TEXT_BYTES];
};

/* What a child needs while it runs. */
struct child_env {
    struct bench *bench;
    struct child *child;
};

/* The signal that ends the run; 0: none yet. */
static volatile sig_atomic_t interrupted;

static const int ending_signals[] = {SIGHUP, SIGINT, SIGTERM};

static void note_signal(int signal)
{
    interrupted = signal;
}

/* Signals that were ignored, as under nohup, stay so. */
static void set_signals(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;

    for (size_t i = 0; i < VV_ARRAY_SIZE(ending_signals); i++)
        if (sigaction(ending_signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(ending_signals[i], &action, NULL);
}

VV_PRINTF(3, 4)
static int fail(char *err, int rc, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err, TEXT_BYTES, fmt, ap);
    va_end(ap);
    return rc;
}

static bool has_device(const struct shot_opts *opts)
{
    return opts->device == VARVE_DEVICE_HOST;
}

/* ---- bandwidths ---- */

static double larger(uint64_t configured, double measured)
{
    return configured ? (double)configured : measured;
}

static int probe_memory(const struct bench *b, double *ret_bps)
{
    /* Objects of the size that will be copied, so that caches help the loop no less than the
     * run. */
    uint64_t bytes = b->sizes.total_bytes / b->sizes.nr;

    bytes = VV_MIN(VV_MAX(bytes, UINT64_C(1) << 20), UINT64_C(64) << 20);
    return probe_memcpy(bytes, 1, PROBE_SECONDS, ret_bps);
}

static int probe_folder(struct bench *b, struct probe_disk_rates *ret_rates)
{
    struct probe_disk_opts o = {
        .dir = b->folder,
        .direct = b->opts.local_io != VARVE_LOCAL_IO_BUFFERED,
        .file_bytes = PROBE_FILE_BYTES,
        .block_bytes = PROBE_BLOCK,
        .threads = PROBE_THREADS,
        .seconds = PROBE_SECONDS,
    };
    int rc = probe_disk(&o, ret_rates);

    if (rc == -EINVAL && b->opts.local_io == VARVE_LOCAL_IO_AUTO) {
        o.direct = false;
        rc = probe_disk(&o, ret_rates);
    }
    return rc;
}

/* The rates of all hops: as configured, or else as measured now; 0 where nobody asks for a bound. */
static int measure(struct bench *b, double *ret_rates)
{
    const uint64_t *set = b->opts.rate;
    double memory = 0;
    struct probe_disk_rates disk = {0};
    bool memory_open = has_device(&b->opts)
                           ? !set[SHOT_HOP_D2D] || !set[SHOT_HOP_D2H] || !set[SHOT_HOP_H2D]
                           : !set[SHOT_HOP_H2H];
    bool disk_open = b->folder[0] && (!set[SHOT_HOP_H2F] || !set[SHOT_HOP_F2H]);
    int rc = 0;

    if (memory_open && !b->opts.no_bound)
        rc = probe_memory(b, &memory);
    if (rc < 0)
        return fail(b->err, rc, "measuring memory: %s", strerror(-rc));
    if (disk_open && !b->opts.no_bound)
        rc = probe_folder(b, &disk);
    if (rc < 0)
        return fail(b->err, rc, "measuring the disk: %s", strerror(-rc));
    for (int h = 0; h < SHOT_HOP_NR; h++)
        ret_rates[h] = (double)set[h];
    ret_rates[SHOT_HOP_H2H] = larger(set[SHOT_HOP_H2H], memory);
    ret_rates[SHOT_HOP_D2D] = larger(set[SHOT_HOP_D2D], memory);
    ret_rates[SHOT_HOP_D2H] = larger(set[SHOT_HOP_D2H], memory);
    ret_rates[SHOT_HOP_H2D] = larger(set[SHOT_HOP_H2D], memory);
    ret_rates[SHOT_HOP_H2F] = larger(set[SHOT_HOP_H2F], disk.write_bps);
    ret_rates[SHOT_HOP_F2H] = larger(set[SHOT_HOP_F2H], disk.read_bps);
    ret_rates[SHOT_HOP_DISK] = larger(set[SHOT_HOP_DISK], disk.both_bps);
    return 0;
}

/* The larger of two measurements: the bound must not be computed from less than the machine can do.
 * Returns whether they are too far apart. */
static bool merge_rates(const double *before, const double *after, double *ret_rates)
{
    bool differ = false;

    for (int h = 0; h < SHOT_HOP_NR; h++) {
        differ |= before[h] > 0 && probe_differs(before[h], after[h], VOID_TOLERANCE);
        ret_rates[h] = fmax(before[h], after[h]);
    }
    return differ;
}

/* ---- the folder ---- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    remove(path); /* what cannot be removed stays, and its folder with it */
    return 0;
}

static int make_folder(struct bench *b)
{
    const char *base = b->opts.local;

    if (base && strcmp(base, "none") == 0)
        return 0;
    if (!base)
        base = getenv("TMPDIR");
    if (!base || !*base)
        base = "/var/tmp";
    if (snprintf(b->folder, sizeof(b->folder), "%s/varve-bench-XXXXXX", base) >=
        (int)sizeof(b->folder)) {
        b->folder[0] = '\0';
        return fail(b->err, -ENAMETOOLONG, "--local %s: too long", base);
    }
    if (!mkdtemp(b->folder)) {
        int rc = -errno;

        b->folder[0] = '\0';
        return fail(b->err, rc, "--local %s: %s", base, strerror(-rc));
    }
    return 0;
}

static void remove_folder(struct bench *b)
{
    if (b->folder[0])
        nftw(b->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- shared memory ---- */

static int map_shared(struct bench *b, size_t nr_puts, size_t nr_gets)
{
    size_t calls = nr_puts + nr_gets;
    size_t per_child = sizeof(struct child) + calls * (sizeof(double) + sizeof(uint64_t)) +
                       nr_gets * sizeof(uint32_t) + 64;
    size_t bytes = 4096 + b->opts.procs * vv_align_up(per_child, 64);
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *next = map + 4096;

    if (map == MAP_FAILED)
        return fail(b->err, -errno, "memory for the results: %s", strerror(errno));
    b->mapping_bytes = bytes;
    b->shared = (struct shared *)(void *)map;
    b->children = (struct child *)(void *)next;
    next += b->opts.procs * sizeof(struct child);
    for (uint32_t i = 0; i < b->opts.procs; i++) {
        struct shot_trace *t = &b->children[i].trace;

        t->put_blocked_s = (double *)(void *)next;
        t->get_blocked_s = t->put_blocked_s + nr_puts;
        t->gaps_ns = (uint64_t *)(void *)(t->get_blocked_s + nr_gets);
        t->distance = (uint32_t *)(void *)(t->gaps_ns + calls);
        next += vv_align_up(
            calls * (sizeof(double) + sizeof(uint64_t)) + nr_gets * sizeof(uint32_t), 8);
    }
    return 0;
}

static int wait_at_barrier(void *arg)
{
    struct bench *b = ((struct child_env *)arg)->bench;
    struct shared *sh = b->shared;
    uint32_t round = atomic_load_explicit(&sh->round, memory_order_acquire);

    if (atomic_fetch_add_explicit(&sh->arrived, 1, memory_order_acq_rel) + 1 == b->opts.procs) {
        atomic_store_explicit(&sh->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&sh->round, round + 1, memory_order_release);
        return 0;
    }
    while (atomic_load_explicit(&sh->round, memory_order_acquire) == round) {
        if (atomic_load_explicit(&sh->failed, memory_order_relaxed))
            return -ECANCELED;
        vv_sleep_until_ns(vv_now_ns() + BARRIER_POLL_NS);
    }
    return 0;
}

static void note_progress(void *arg, size_t ops_done)
{
    struct child *c = ((struct child_env *)arg)->child;

    atomic_store_explicit(&c->ops_done, ops_done, memory_order_relaxed);
}

/* ---- a child ---- */

static int open_context(const struct bench *b, uint32_t rank, char *err, struct varve_ctx **ret_ctx)
{
    struct varve_opts o;
    struct varve_error error = {.error_size = sizeof(error)};
    int rc = varve_opts_init(&o, sizeof(o));

    if (rc < 0)
        return fail(err, rc, "options: %s", varve_strerror(rc));
    o.device = b->opts.device;
    o.policy = b->opts.policy;
    o.level = b->opts.level;
    o.local_io = b->opts.local_io;
    o.device_cache = 0;
    o.host_cache = 0;
    for (unsigned t = 0; t < b->core.ntiers; t++) {
        if (b->core.tier[t].kind == VV_TIER_DEVICE)
            o.device_cache = b->core.tier[t].capacity_bytes;
        else if (b->core.tier[t].kind == VV_TIER_HOST)
            o.host_cache = b->core.tier[t].capacity_bytes;
    }
    o.local_cache = shot_cap_bytes(&b->opts.local_cache, b->history_bytes, b->opts.page_bytes);
    o.page_bytes = b->core.page_bytes;
    o.rank = (int32_t)rank;
    snprintf(o.local, sizeof(o.local), "%s", b->folder);
    o.remote[0] = '\0';
    rc = shot_opts_rates(&b->opts, o.rate, sizeof(o.rate));
    if (rc < 0)
        return fail(err, rc, "--rate: too long");
    rc = varve_open(&o, ret_ctx);
    if (rc < 0)
        return fail(err, rc, "opening the library: %s",
                    varve_last_error(NULL, &error) == 0 && error.text[0] ? error.text
                                                                         : varve_strerror(rc));
    return 0;
}

static int get_buffer(const struct bench *b, struct varve_ctx *ctx, uint64_t bytes, char *err,
                      void **ret_buf)
{
    int rc = has_device(&b->opts) ? varve_device_alloc(ctx, bytes, ret_buf)
                                  : -posix_memalign(ret_buf, 4096, vv_align_up(bytes, 4096));

    return rc < 0 ? fail(err, rc, "memory for the application: %s", varve_strerror(rc)) : 0;
}

static int child_run(struct bench *b, uint32_t rank, struct child *c)
{
    struct child_env env = {b, c};
    struct varve_history_opts ho;
    struct shot_script script = {0};
    struct shot_run run = {.script = &script,
                           .has_disk = b->folder[0] != '\0',
                           .seed = b->opts.seed + rank,
                           .barrier = wait_at_barrier,
                           .progress = note_progress,
                           .arg = &env};
    int close_rc, rc = shot_script_init(&b->opts, &b->sizes, b->interval_ns, rank, &script);

    if (rc < 0)
        return fail(c->err, rc, "script: %s", strerror(-rc));
    rc = open_context(b, rank, c->err, &run.ctx);
    if (rc == 0)
        rc = get_buffer(b, run.ctx, script.largest_bytes, c->err, &run.buf);
    if (rc == 0)
        rc = varve_history_opts_init(&ho, sizeof(ho));
    if (rc == 0) {
        ho.consume = b->opts.consume == SHOT_CONSUME_ONCE ? VARVE_CONSUME_ONCE : VARVE_CONSUME_KEEP;
        rc = varve_history_open_with(run.ctx, "shot", &ho, &run.history);
        if (rc < 0)
            fail(c->err, rc, "opening the history: %s", varve_strerror(rc));
    }
    if (rc == 0)
        rc = shot_run(&run, c->err, sizeof(c->err), &c->trace);
    close_rc = varve_history_close(run.history);
    if (has_device(&b->opts) && run.ctx)
        varve_device_free(run.ctx, run.buf);
    else
        free(run.buf);
    if (varve_close(run.ctx) < 0 || close_rc < 0)
        rc = rc < 0 ? rc : fail(c->err, -EIO, "closing the library failed");
    shot_script_fini(&script);
    return rc;
}

/* ---- the parent ---- */

static void show_progress(const struct bench *b, size_t nr_ops, bool end)
{
    uint64_t done = 0, all = (uint64_t)nr_ops * b->opts.procs;

    if (!isatty(STDERR_FILENO))
        return;
    for (uint32_t i = 0; i < b->opts.procs; i++)
        done += atomic_load_explicit(&b->children[i].ops_done, memory_order_relaxed);
    if (end)
        fprintf(stderr, "\r\033[K");
    else
        fprintf(stderr, "\r" COMMAND ": %3.0f%%", all ? 100.0 * (double)done / (double)all : 0);
    fflush(stderr);
}

static void end_children(const pid_t *pids, uint32_t started)
{
    for (uint32_t i = 0; i < started; i++)
        if (pids[i] > 0)
            kill(pids[i], SIGKILL); /* their files are removed with the folder */
}

/* Waits for all children that were started; a child that ended badly makes the others give up. */
static void reap(struct bench *b, pid_t *pids, uint32_t started, size_t nr_ops)
{
    uint32_t left = started;

    while (left > 0) {
        if (interrupted)
            end_children(pids, started);
        for (uint32_t i = 0; i < started; i++) {
            int status;

            if (pids[i] <= 0 || waitpid(pids[i], &status, WNOHANG) != pids[i])
                continue;
            pids[i] = 0;
            left--;
            if (!b->children[i].finished) {
                b->children[i].rc =
                    fail(b->children[i].err, -ECHILD, "the process died (%s %d)",
                         WIFSIGNALED(status) ? "signal" : "status",
                         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            }
            if (b->children[i].rc < 0)
                atomic_store_explicit(&b->shared->failed, true, memory_order_relaxed);
        }
        show_progress(b, nr_ops, left == 0);
        if (left > 0)
            vv_sleep_until_ns(vv_now_ns() + PROGRESS_NS / 10);
    }
}

static int run_children(struct bench *b, size_t nr_ops)
{
    pid_t *pids = calloc(b->opts.procs, sizeof(*pids));
    uint32_t started = 0;
    int rc = pids ? 0 : fail(b->err, -ENOMEM, "out of memory");

    fflush(NULL); /* or a child would print what the parent has buffered */
    for (; rc == 0 && started < b->opts.procs; started++) {
        pids[started] = fork();
        if (pids[started] < 0) {
            rc = fail(b->err, -errno, "fork: %s", strerror(errno));
            atomic_store_explicit(&b->shared->failed, true, memory_order_relaxed);
            break;
        }
        if (pids[started] == 0) {
            struct child *c = &b->children[started];

            set_signals(SIG_DFL);
            c->rc = child_run(b, started, c);
            c->finished = true;
            _exit(0);
        }
    }
    reap(b, pids, started, nr_ops);
    free(pids);
    /* Name the one that failed, not those that gave up because of it. */
    for (uint32_t i = 0; rc == 0 && i < b->opts.procs; i++)
        if (b->children[i].rc < 0 && b->children[i].rc != -ECANCELED)
            rc = fail(b->err, b->children[i].rc, "process %" PRIu32 ": %s", i, b->children[i].err);
    for (uint32_t i = 0; rc == 0 && i < b->opts.procs; i++)
        if (b->children[i].rc < 0)
            rc = fail(b->err, b->children[i].rc, "process %" PRIu32 " gave up", i);
    for (uint32_t i = 0; rc == 0 && i < b->opts.procs; i++)
        if (!b->children[i].trace.verified)
            fprintf(stderr, COMMAND ": process %" PRIu32 ": %s\n", i, b->children[i].err);
    return rc;
}

static void set_machine(const struct bench *b, const double *rates, struct shot_machine *m)
{
    *m =
        (struct shot_machine){.has_device = has_device(&b->opts), .has_disk = b->folder[0] != '\0'};
    for (unsigned t = 0; t < b->core.ntiers; t++) {
        uint64_t bytes = vv_align_down(b->core.tier[t].capacity_bytes, b->core.page_bytes);

        if (b->core.tier[t].kind == VV_TIER_DEVICE)
            m->device_bytes = bytes;
        else if (b->core.tier[t].kind == VV_TIER_HOST)
            m->host_bytes = bytes;
    }
    m->staging_bytes = 2 * (uint64_t)b->core.transit_pages * b->core.page_bytes;
    memcpy(m->rate, rates, sizeof(m->rate));
}

/* One process's part of the report, its bound from the gaps as they were. */
static int collect(struct bench *b, uint32_t rank, struct shot_report *report)
{
    const struct shot_trace *t = &b->children[rank].trace;
    struct shot_proc *p = &report->procs[rank];
    struct shot_script script;
    int rc = shot_script_init(&b->opts, &b->sizes, b->interval_ns, rank, &script);

    if (rc < 0)
        return rc;
    memcpy(p->put_blocked_s, t->put_blocked_s, script.nr_puts * sizeof(double));
    memcpy(p->get_blocked_s, t->get_blocked_s, script.nr_gets * sizeof(double));
    memcpy(p->distance, t->distance, script.nr_gets * sizeof(uint32_t));
    p->put_bytes = script.put_bytes;
    p->get_bytes = script.get_bytes;
    p->wall_s = t->wall_s;
    p->wait_s = t->wait_s;
    p->utilisation = t->utilisation;
    p->verified = t->verified;
    if (!b->opts.no_bound)
        rc = shot_bound(&script, b->opts.consume == SHOT_CONSUME_ONCE, &report->machine, t->gaps_ns,
                        &p->bound);
    shot_script_fini(&script);
    return rc;
}

static int make_report(struct bench *b, const double *rates, bool is_void,
                       const struct shot_script *script, struct shot_report *ret_report)
{
    struct shot_report r;
    int rc = shot_report_init(b->opts.procs, script->nr_puts, script->nr_gets, &r);

    if (rc < 0)
        return fail(b->err, rc, "report: %s", strerror(-rc));
    r.command = "bench";
    r.head_printed = true;
    r.opts = b->opts;
    r.interval_ns = b->interval_ns;
    r.is_void = is_void;
    set_machine(b, rates, &r.machine);
    for (uint32_t i = 0; rc == 0 && i < b->opts.procs; i++)
        rc = collect(b, i, &r);
    if (rc < 0) {
        shot_report_fini(&r);
        return fail(b->err, rc, "bound: %s", strerror(-rc));
    }
    shot_report_finish(&r);
    *ret_report = r;
    return 0;
}

/* Everything between the folder's making and its removal. */
static int run_bench(struct bench *b, struct shot_report *ret_report)
{
    double before[SHOT_HOP_NR], after[SHOT_HOP_NR], rates[SHOT_HOP_NR];
    struct shot_script script = {0};
    bool differ;
    int rc = measure(b, before);

    /* What an unthrottled disk takes is shared by all; a throttle is each process's own. */
    if (rc == 0 &&
        shot_interval_ns(&b->opts, &b->sizes,
                         before[SHOT_HOP_H2F] / (b->opts.rate[SHOT_HOP_H2F] ? 1 : b->opts.procs),
                         &b->interval_ns) < 0)
        rc = fail(b->err, -EINVAL, "--load needs a disk");
    if (rc == 0)
        rc = shot_script_init(&b->opts, &b->sizes, b->interval_ns, 0, &script);
    if (rc == 0) {
        b->history_bytes = script.peak_live_bytes;
        sim_core_cfg(&b->opts, b->history_bytes, &b->core);
        rc = map_shared(b, script.nr_puts, script.nr_gets);
    }
    if (rc == 0 && !interrupted) {
        FILE *out = b->opts.json ? stderr : stdout;

        shot_report_print_head(out, "bench", &b->opts);
        fflush(out);
        rc = run_children(b, script.nr_ops);
    }
    if (rc == 0 && !interrupted)
        rc = measure(b, after);
    if (rc == 0 && interrupted)
        rc = fail(b->err, -EINTR, "interrupted");
    if (rc == 0) {
        differ = merge_rates(before, after, rates);
        rc = make_report(b, rates, differ, &script, ret_report);
    }
    shot_script_fini(&script);
    if (b->shared)
        munmap(b->shared, b->mapping_bytes);
    return rc;
}

static int print_report(const struct shot_report *report)
{
    char err[TEXT_BYTES];
    int rc;

    if (report->opts.json)
        shot_report_print_json(stdout, report);
    else
        shot_report_print(stdout, report);
    rc = shot_report_check(report, err, sizeof(err));
    if (rc < 0)
        fprintf(stderr, COMMAND ": %s\n", err);
    return rc < 0 ? CLI_FAILED : CLI_OK;
}

static int bench_shot(int argc, char **argv)
{
    struct bench b = {0};
    struct shot_report report;
    int status = CLI_FAILED;
    int rc = shot_opts_parse(argc, argv, b.err, sizeof(b.err), &b.opts);

    if (rc < 0) {
        fprintf(stderr, COMMAND ": %s\n", b.err);
        return CLI_USAGE;
    }
    if (b.opts.help) {
        shot_opts_usage(stdout, COMMAND);
        return CLI_OK;
    }
    rc = shot_sizes_init(&b.opts, b.err, sizeof(b.err), &b.sizes);
    set_signals(note_signal);
    if (rc == 0)
        rc = make_folder(&b);
    if (rc == 0)
        rc = run_bench(&b, &report);
    remove_folder(&b);
    set_signals(SIG_DFL);
    if (interrupted)
        raise(interrupted);
    if (rc == 0) {
        status = print_report(&report);
        shot_report_fini(&report);
    } else {
        fprintf(stderr, COMMAND ": %s\n", b.err[0] ? b.err : varve_strerror(rc));
    }
    shot_sizes_fini(&b.sizes);
    return status;
}

int cli_bench(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "shot") == 0)
        return bench_shot(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "paper") == 0)
        return cli_bench_paper(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        printf("usage: varve bench shot|paper [OPTION]...\n\n'varve bench shot --help' and 'varve "
               "bench paper --help' list the options.\n");
        return CLI_OK;
    }
    fprintf(stderr, "varve bench: what is to be measured? There are 'varve bench shot' and 'varve "
                    "bench paper'.\n");
    return CLI_USAGE;
}
