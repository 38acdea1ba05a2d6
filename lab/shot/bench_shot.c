/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve bench shot, varve bench script and varve bench stream: the experiment on the library itself.
 *
 * The parent parses, measures the bandwidths that are not throttled, forks one child per process of
 * the shot, waits, measures again, and prints. A child (bench_child.c) opens an engine of its own,
 * runs its script (lab/shot/shot_run.c) and stores its figures in memory shared with the parent;
 * it never prints. Devices are measured in a child as well.
 * The parent has no thread when it forks, the probes join theirs, and never uses a device.
 *
 * A child that fails, or dies, sets `failed`, and the others leave their next barrier with an
 * error: no child waits for ever for one that has ended.
 *
 * All files live in a folder made for the run, inside --local, and are removed with it; also when
 * the run is interrupted: the signal only sets `interrupted`, which the parent tests between its steps and while
 * it waits for its children. It then ends them, cleans up, and ends by the signal.
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common/command.h"
#include "cli/common/output.h"
#include "cli/measure/probe.h"
#include "cli/measure/probe_files.h"
#include "lab/lab.h"
#include "lab/shot/bench_shot.h"
#include "lab/shot/script_file.h"
#include "lab/shot/shot_csv.h"
#include "lab/sim/sim_run.h"

#define VOID_TOLERANCE     0.10
#define PROGRESS_NS        (200 * VV_NS_PER_MS)
#define PROBE_POLL_NS      (5 * VV_NS_PER_MS)
#define PROBE_SECONDS      0.4
#define PROBE_LEAST_BYTES  (UINT64_C(256) << 20)
#define PROBE_MOST_BYTES   (UINT64_C(8) << 30)
#define PROBE_BLOCK        (UINT32_C(2) << 20)
#define PROBE_THREADS      8
#define PROBE_SYNCS        4
#define PROBE_DISK_SECONDS 1.0 /* at most, for each of three passes */

/* The signal that ends the run; 0: none so far. */
static volatile sig_atomic_t interrupted;

static const int ending_signals[] = {SIGHUP, SIGINT, SIGTERM};

static void note_signal(int signal)
{
    interrupted = signal;
}

/* Signals that were ignored, as under nohup, stay ignored. */
static void set_signals(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;

    for (size_t i = 0; i < VV_ARRAY_SIZE(ending_signals); i++)
        if (sigaction(ending_signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(ending_signals[i], &action, NULL);
}

int bench_fail(char *err, int rc, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err, BENCH_TEXT_BYTES, fmt, ap);
    va_end(ap);
    return rc;
}

/* ---- bandwidths ---- */

static double larger(uint64_t configured, double measured)
{
    return configured ? (double)configured : measured;
}

static int probe_memory(const struct bench *b, double *ret_bps)
{
    /* Objects of the size that will be copied, so that the loop gains as much from caches as the run. */
    uint64_t bytes = b->sizes.total_bytes / b->sizes.nr;

    bytes = VV_MIN(VV_MAX(bytes, UINT64_C(1) << 20), UINT64_C(64) << 20);
    return probe_memcpy(bytes, 1, PROBE_SECONDS, ret_bps);
}

/* The disk in the mode of the run: files as the library makes them, as much as the run may write, up to a limit.
 * More operations are in flight than blocks, because those that sync a file write nothing. */
static int probe_folder(struct bench *b, struct probe_disk_rates *ret_rates)
{
    bool files = b->opts.level != VARVE_LEVEL_CACHED;
    bool sync = files && b->opts.local_sync == VARVE_LOCAL_SYNC_COMMIT;
    struct probe_files_opts o = {
        .dir = b->folder,
        .direct = b->opts.local_io != VARVE_LOCAL_IO_BUFFERED,
        .sync = sync,
        .total_bytes = VV_MIN(VV_MAX(b->sizes.total_bytes, PROBE_LEAST_BYTES), PROBE_MOST_BYTES),
        .block_bytes = PROBE_BLOCK,
        .threads = PROBE_THREADS + (sync ? PROBE_SYNCS : 0),
        .seconds = PROBE_DISK_SECONDS,
    };
    int rc;

    o.file_bytes = files ? b->sizes.total_bytes / b->sizes.nr : o.total_bytes;
    o.file_bytes = VV_MAX(o.file_bytes, (uint64_t)PROBE_BLOCK);
    rc = probe_files(&o, ret_rates);
    if (rc == -EINVAL && b->opts.local_io == VARVE_LOCAL_IO_AUTO) {
        o.direct = false;
        rc = probe_files(&o, ret_rates);
    }
    return rc;
}

/* Runs bench_child_probe in a child. */
static int probe_in_child(struct bench *b, struct bench_probe *ret_probe)
{
    struct bench_probe *p =
        mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status, rc = 0;
    pid_t pid;

    if (p == MAP_FAILED)
        return bench_fail(b->err, -errno, "memory for the results: %s", strerror(errno));
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        set_signals(SIG_DFL);
        p->rc = bench_child_probe(b, p);
        p->finished = true;
        _exit(0);
    }
    if (pid < 0)
        rc = bench_fail(b->err, -errno, "fork: %s", strerror(errno));
    while (rc == 0 && waitpid(pid, &status, WNOHANG) == 0) {
        if (interrupted)
            kill(pid, SIGKILL);
        vv_sleep_until_ns(vv_now_ns() + PROBE_POLL_NS);
    }
    if (rc == 0 && !interrupted && !p->finished)
        rc = bench_fail(b->err, -ECHILD, "the process that measures the device died");
    else if (rc == 0 && p->rc < 0)
        rc = bench_fail(b->err, p->rc, "%s", p->err);
    if (rc == 0)
        *ret_probe = *p;
    munmap(p, sizeof(*p));
    return rc;
}

/* Bandwidths, and the expected time of a baseline. */
struct rates {
    double hop[SHOT_HOP_NR];
    struct shot_expected expected;
    char changed[64]; /* the difference that the later of two measurements found; empty: none */
};

/* The hops that are memory. A real device is measured; the emulated one copies as the processor does. */
static int measure_memory(struct bench *b, struct rates *r)
{
    const uint64_t *set = b->opts.rate;
    bool cuda = b->opts.device == VARVE_DEVICE_CUDA;
    bool open = shot_has_device(&b->opts)
                    ? !set[SHOT_HOP_D2D] || !set[SHOT_HOP_D2H] || !set[SHOT_HOP_H2D]
                    : !set[SHOT_HOP_H2H];
    struct bench_probe p = {0};
    double memory = 0;
    int rc = 0;

    if (cuda || b->opts.engine != SHOT_ENGINE_VARVE)
        rc = probe_in_child(b, &p);
    else if (open && (rc = probe_memory(b, &memory)) < 0)
        bench_fail(b->err, rc, "measuring memory: %s", strerror(-rc));
    if (rc < 0)
        return rc;
    r->expected = p.expected;
    r->hop[SHOT_HOP_H2H] = larger(set[SHOT_HOP_H2H], memory);
    r->hop[SHOT_HOP_D2D] = larger(set[SHOT_HOP_D2D], cuda ? p.d2d_bps : memory);
    r->hop[SHOT_HOP_D2H] = larger(set[SHOT_HOP_D2H], cuda ? p.d2h_bps : memory);
    r->hop[SHOT_HOP_H2D] = larger(set[SHOT_HOP_H2D], cuda ? p.h2d_bps : memory);
    r->hop[SHOT_HOP_LINK] = larger(set[SHOT_HOP_LINK], p.link_bps);
    return 0;
}

/* The rates of all hops: as configured, or else as measured now; 0 if no bound is requested. */
static int measure(struct bench *b, struct rates *ret_rates)
{
    const uint64_t *set = b->opts.rate;
    struct probe_disk_rates disk = {0};
    struct rates r = {0};
    bool disk_open =
        b->folder[0] && (!set[SHOT_HOP_H2F] || !set[SHOT_HOP_F2H]) && shot_has_bound(&b->opts);
    int rc = 0;

    for (int h = 0; h < SHOT_HOP_NR; h++)
        r.hop[h] = (double)set[h];
    if (!b->opts.no_bound && b->opts.calls == SHOT_CALLS_BLOCKING)
        rc = measure_memory(b, &r);
    if (rc < 0)
        return rc;
    if (disk_open)
        rc = probe_folder(b, &disk);
    if (rc < 0)
        return bench_fail(b->err, rc, "measuring the disk: %s", strerror(-rc));
    r.hop[SHOT_HOP_H2F] = larger(set[SHOT_HOP_H2F], disk.write_bps);
    r.hop[SHOT_HOP_F2H] = larger(set[SHOT_HOP_F2H], disk.read_bps);
    r.hop[SHOT_HOP_DISK] = larger(set[SHOT_HOP_DISK], disk.both_bps);
    *ret_rates = r;
    return 0;
}

/* The larger of two measurements: the bound must not be computed from less than the machine can do.
 * If they are too far apart, the first such hop is reported. Copies within the device do not count
 * here: milliseconds apart they vary more than that from one second to the next on an idle machine. */
static void merge_rates(const struct rates *before, const struct rates *after,
                        struct rates *ret_rates)
{
    *ret_rates = *before;
    for (int h = 0; h < SHOT_HOP_NR; h++) {
        double a = before->hop[h], b = after->hop[h];

        if (h != SHOT_HOP_D2D && a > 0 && probe_differs(a, b, VOID_TOLERANCE) &&
            !ret_rates->changed[0])
            snprintf(ret_rates->changed, sizeof(ret_rates->changed), "%s %.3g, then %.3g GB/s",
                     shot_hop_name((enum shot_hop)h), a / 1e9, b / 1e9);
        ret_rates->hop[h] = fmax(a, b);
    }
}

/* ---- the folder ---- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    remove(path); /* a file that cannot be removed stays, and its folder with it */
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
        return bench_fail(b->err, -ENAMETOOLONG, "--local %s: too long", base);
    }
    /* As the library does: this folder, but none above it. */
    if (b->opts.local && mkdir(base, 0777) == 0)
        b->made = base;
    if (!mkdtemp(b->folder)) {
        int rc = -errno;

        b->folder[0] = '\0';
        return bench_fail(b->err, rc, "--local %s: %s", base, strerror(-rc));
    }
    return 0;
}

static void remove_folder(struct bench *b)
{
    if (b->folder[0])
        nftw(b->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (b->made)
        rmdir(b->made); /* unless others use it meanwhile */
}

/* ---- shared memory ---- */

/* The number of bytes for the figures of one thread. */
static size_t trace_bytes(const struct shot_script *script)
{
    size_t calls = script->nr_puts + script->nr_gets;

    return vv_align_up(
        calls * (sizeof(double) + sizeof(uint64_t)) + script->nr_gets * sizeof(uint32_t), 8);
}

static void place_trace(struct shot_trace *t, const struct shot_script *script, char *at)
{
    t->put_blocked_s = (double *)(void *)at;
    t->get_blocked_s = t->put_blocked_s + script->nr_puts;
    t->gaps_ns = (uint64_t *)(void *)(t->get_blocked_s + script->nr_gets);
    t->distance = (uint32_t *)(void *)(t->gaps_ns + script->nr_puts + script->nr_gets);
}

/* Every process makes as many calls as the work of the first has. */
static int map_shared(struct bench *b, const struct shot_work *work)
{
    uint32_t slots = b->opts.procs * b->nr_threads;
    size_t bytes = 4096 + slots * sizeof(struct bench_child);
    char *map, *next;

    for (uint32_t t = 0; t < work->nr_threads; t++)
        bytes += b->opts.procs * trace_bytes(&work->threads[t]);
    map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return bench_fail(b->err, -errno, "memory for the results: %s", strerror(errno));
    b->mapping_bytes = bytes;
    b->shared = (struct bench_shared *)(void *)map;
    b->children = (struct bench_child *)(void *)(map + 4096);
    next = map + 4096 + slots * sizeof(struct bench_child);
    for (uint32_t i = 0; i < slots; i++) {
        const struct shot_script *script = &work->threads[i % b->nr_threads];
        place_trace(&b->children[i].trace, script, next);
        next += trace_bytes(script);
    }
    return 0;
}

/* ---- the parent ---- */

static void show_progress(const struct bench *b, size_t nr_ops, bool end)
{
    uint64_t done = 0, all = (uint64_t)nr_ops * b->opts.procs;
    uint32_t slots = b->opts.procs * b->nr_threads;

    if (!isatty(STDERR_FILENO))
        return;
    for (uint32_t i = 0; i < slots; i++)
        done += atomic_load_explicit(&b->children[i].ops_done, memory_order_relaxed);
    if (end)
        fprintf(stderr, "\r\033[K");
    else
        fprintf(stderr, "\r%s: %3.0f%%", b->command, all ? 100.0 * (double)done / (double)all : 0);
    fflush(stderr);
}

static void end_children(const pid_t *pids, uint32_t started)
{
    for (uint32_t i = 0; i < started; i++)
        if (pids[i] > 0)
            kill(pids[i], SIGKILL); /* their files are removed with the folder */
}

/* The figures of a process, in the place of its first thread. */
static struct bench_child *child_of(const struct bench *b, uint32_t rank)
{
    return &b->children[rank * b->nr_threads];
}

/* Waits for all children that were started; a child that failed makes the others stop. */
static void reap(struct bench *b, pid_t *pids, uint32_t started, size_t nr_ops)
{
    uint32_t left = started;

    while (left > 0) {
        if (interrupted)
            end_children(pids, started);
        for (uint32_t i = 0; i < started; i++) {
            struct bench_child *c;
            int status;

            if (pids[i] <= 0 || waitpid(pids[i], &status, WNOHANG) != pids[i])
                continue;
            pids[i] = 0;
            left--;
            c = child_of(b, i);
            if (!c->finished)
                c->rc = bench_fail(c->err, -ECHILD, "the process died (%s %d)",
                                   WIFSIGNALED(status) ? "signal" : "status",
                                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            if (c->rc < 0)
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
    int rc = pids ? 0 : bench_fail(b->err, -ENOMEM, "out of memory");

    fflush(NULL); /* or a child would print the parent's buffer */
    for (; rc == 0 && started < b->opts.procs; started++) {
        pids[started] = fork();
        if (pids[started] < 0) {
            rc = bench_fail(b->err, -errno, "fork: %s", strerror(errno));
            atomic_store_explicit(&b->shared->failed, true, memory_order_relaxed);
            break;
        }
        if (pids[started] == 0) {
            struct bench_child *c = child_of(b, started);

            set_signals(SIG_DFL);
            c->rc = bench_child_run(b, started, c);
            c->finished = true;
            _exit(0);
        }
    }
    reap(b, pids, started, nr_ops);
    free(pids);
    /* Name the child that failed, not those that stopped because of it. */
    for (uint32_t i = 0; rc == 0 && i < b->opts.procs; i++)
        if (child_of(b, i)->rc < 0 && child_of(b, i)->rc != -ECANCELED)
            rc = bench_fail(b->err, child_of(b, i)->rc, "process %" PRIu32 ": %s", i,
                            child_of(b, i)->err);
    for (uint32_t i = 0; rc == 0 && i < b->opts.procs; i++)
        if (child_of(b, i)->rc < 0)
            rc = bench_fail(b->err, child_of(b, i)->rc, "process %" PRIu32 " gave up", i);
    for (uint32_t i = 0; rc == 0 && i < b->opts.procs * b->nr_threads; i++)
        if (!b->children[i].trace.verified)
            fprintf(stderr, "%s: %s %" PRIu32 ": %s\n", b->command, b->work ? "thread" : "process",
                    i, b->children[i].err);
    return rc;
}

static void set_machine(const struct bench *b, const struct rates *rates, struct shot_machine *m)
{
    *m = (struct shot_machine){.has_device = shot_has_device(&b->opts),
                               .has_disk = b->folder[0] != '\0'};
    for (unsigned t = 0; t < b->core.ntiers; t++) {
        uint64_t bytes = vv_align_down(b->core.tier[t].capacity_bytes, b->core.page_bytes);

        if (b->core.tier[t].kind == VV_TIER_DEVICE)
            m->device_bytes = bytes;
        else if (b->core.tier[t].kind == VV_TIER_HOST)
            m->host_bytes = bytes;
    }
    m->staging_bytes = 2 * (uint64_t)b->core.transit_pages * b->core.page_bytes;
    memcpy(m->rate, rates->hop, sizeof(m->rate));
    /* Kernels write into the pool's memory: nothing is copied before or after them. */
    if (b->stream && b->stream->engine == STREAM_ENGINE_POOL)
        m->rate[SHOT_HOP_D2D] = 0;
}

/* One thread's part of the report. Its bound comes from the measured gaps. */
static int collect(const struct bench *b, uint32_t slot, const struct shot_script *script,
                   struct shot_report *report)
{
    const struct shot_trace *t = &b->children[slot].trace;
    const struct bench_child *c = child_of(b, slot / b->nr_threads);
    struct shot_proc *p = &report->procs[slot];
    int rc = shot_report_calls(p, script->nr_puts, script->nr_gets);

    if (rc < 0)
        return rc;
    memcpy(p->put_blocked_s, t->put_blocked_s, script->nr_puts * sizeof(double));
    memcpy(p->get_blocked_s, t->get_blocked_s, script->nr_gets * sizeof(double));
    memcpy(p->gaps_ns, t->gaps_ns, (script->nr_puts + script->nr_gets) * sizeof(uint64_t));
    memcpy(p->distance, t->distance, script->nr_gets * sizeof(uint32_t));
    p->put_bytes = script->put_bytes;
    p->get_bytes = script->get_bytes;
    p->wall_s = t->wall_s;
    p->wait_s = t->wait_s;
    p->barrier_s = t->barrier_s;
    p->utilisation = t->utilisation;
    p->first_utilisation = t->first_utilisation;
    p->open_s = c->open_s;
    p->host_ready_s = c->host_ready_s;
    p->helper_cores = c->helper_cores;
    p->helper_cpu_s = c->helper_cpu_s;
    memcpy(p->rate, t->rate, sizeof(p->rate));
    p->verified = t->verified;
    p->no_bound = script->foreign || (b->stream && b->stream->engine == STREAM_ENGINE_NONE);
    if (!shot_has_bound(&b->opts) || p->no_bound)
        return 0;
    return shot_bound(script, &report->machine, t->gaps_ns, &p->bound);
}

/* The threads of one process. */
static int collect_child(const struct bench *b, uint32_t rank, struct shot_report *report)
{
    struct shot_work own;
    const struct shot_work *work;
    int rc = bench_work(b, rank, &own, &work);

    for (uint32_t t = 0; rc == 0 && t < b->nr_threads; t++)
        rc = collect(b, rank * b->nr_threads + t, &work->threads[t], report);
    shot_work_fini(&own);
    return rc;
}

static void set_stream(const struct bench *b, struct shot_report *r)
{
    r->stream = b->stream;
    r->stream_run = b->children[0].stream;
    r->stream_largest_bytes = b->sizes.largest_bytes;
    for (uint32_t t = 1; t < b->nr_threads; t++) {
        const struct stream_figures *f = &b->children[t].stream;

        r->stream_run.put_host_s[1] = fmax(r->stream_run.put_host_s[1], f->put_host_s[1]);
        r->stream_run.get_host_s[1] = fmax(r->stream_run.get_host_s[1], f->get_host_s[1]);
        if (b->stream->engine == STREAM_ENGINE_VARVE)
            continue; /* one context with the figures of all */
        r->stream_run.moved_down_bytes += f->moved_down_bytes;
        r->stream_run.moved_up_bytes += f->moved_up_bytes;
    }
}

static int make_report(struct bench *b, const struct rates *rates, struct shot_report *ret_report)
{
    struct shot_report r;
    int rc = shot_report_init(b->opts.procs * b->nr_threads, &r);

    if (rc < 0)
        return bench_fail(b->err, rc, "report: %s", strerror(-rc));
    r.command = "bench";
    r.script = b->script;
    r.head_printed = true;
    r.opts = b->opts;
    r.interval_ns = b->interval_ns;
    r.is_void = rates->changed[0] && shot_has_bound(&b->opts);
    snprintf(r.changed, sizeof(r.changed), "%s", rates->changed);
    r.expected = rates->expected;
    set_machine(b, rates, &r.machine);
    if (b->stream)
        set_stream(b, &r);
    for (uint32_t i = 0; rc == 0 && i < b->opts.procs; i++)
        rc = collect_child(b, i, &r);
    if (rc == 0 && b->stream)
        rc = stream_report_bound(&r, b->work);
    if (rc < 0) {
        shot_report_fini(&r);
        return bench_fail(b->err, rc, "bound: %s", strerror(-rc));
    }
    shot_report_finish(&r);
    *ret_report = r;
    return 0;
}

/* Work of every process that is the same for all; the first one's work is in *own. */
static int prepare(struct bench *b, const struct rates *before, struct shot_work *own,
                   const struct shot_work **ret_work)
{
    /* The speed of an unthrottled disk is shared by all; a throttle applies to each process. */
    double sharing = b->opts.rate[SHOT_HOP_H2F] ? 1 : b->opts.procs;
    int rc = 0;

    if (!b->work && shot_interval_ns(&b->opts, &b->sizes, before->hop[SHOT_HOP_H2F] / sharing,
                                     &b->interval_ns) < 0)
        return bench_fail(b->err, -EINVAL, "--load needs a disk");
    rc = bench_work(b, 0, own, ret_work);
    if (rc < 0)
        return rc;
    b->nr_threads = (*ret_work)->nr_threads;
    b->history_bytes = (*ret_work)->peak_live_bytes;
    sim_core_cfg(&b->opts, b->history_bytes, &b->core);
    return map_shared(b, *ret_work);
}

/* Everything between making the folder and removing it. */
static int run_bench(struct bench *b, struct shot_report *ret_report)
{
    struct rates before, after, rates;
    struct shot_work own = {0};
    const struct shot_work *work;
    int rc = measure(b, &before);

    if (rc == 0)
        rc = prepare(b, &before, &own, &work);
    if (rc == 0 && !interrupted) {
        FILE *out = b->opts.json ? stderr : stdout;
        size_t nr_ops = 0;

        for (uint32_t t = 0; t < work->nr_threads; t++)
            nr_ops += work->threads[t].nr_ops;
        if (b->stream)
            stream_args_print(out, "bench", &b->opts, b->stream);
        else
            shot_report_print_head(out, "bench", b->script, &b->opts);
        fflush(out);
        rc = run_children(b, nr_ops);
    }
    after = before;
    if (rc == 0 && !interrupted && shot_has_bound(&b->opts))
        rc = measure(b, &after);
    if (rc == 0 && interrupted)
        rc = bench_fail(b->err, -EINTR, "interrupted");
    if (rc == 0) {
        merge_rates(&before, &after, &rates);
        rc = make_report(b, &rates, ret_report);
    }
    shot_work_fini(&own);
    if (b->shared)
        munmap(b->shared, b->mapping_bytes);
    return rc;
}

static int print_report(const struct bench *b, const struct shot_report *report)
{
    char err[BENCH_TEXT_BYTES];
    int rc = 0;

    if (report->opts.json)
        shot_report_print_json(stdout, report);
    else
        shot_report_print(stdout, report);
    if (report->opts.csv)
        rc = shot_csv_write(report->opts.csv, report, b->work, err, sizeof(err));
    if (rc == 0)
        rc = shot_report_check(report, err, sizeof(err));
    if (rc < 0)
        fprintf(stderr, "%s: %s\n", b->command, err);
    return rc < 0 ? CLI_FAILED : CLI_OK;
}

/* 0 if the options are allowed together; otherwise -EINVAL, after a message. */
static int check_options(const struct bench *b)
{
    const uint64_t *rate = b->opts.rate;

    if (b->opts.device == VARVE_DEVICE_CUDA &&
        (rate[SHOT_HOP_D2D] || rate[SHOT_HOP_D2H] || rate[SHOT_HOP_H2D])) {
        fprintf(stderr,
                "%s: --rate: a GPU cannot be throttled: leave it out, or use --device host\n",
                b->command);
        return -EINVAL;
    }
    if (b->opts.trace && b->opts.engine != SHOT_ENGINE_VARVE) {
        fprintf(stderr,
                "%s: --trace is allowed only with --engine varve: baselines record nothing\n",
                b->command);
        return -EINVAL;
    }
    return 0;
}

/* Runs and reports. Returns the exit status. */
static int bench(struct bench *b)
{
    struct shot_report report;
    int rc, status = CLI_FAILED;

    if (output_try(b->command, b->opts.csv) < 0)
        return CLI_FAILED;
    rc = b->work ? 0 : shot_sizes_init(&b->opts, b->err, sizeof(b->err), &b->sizes);
    set_signals(note_signal);
    if (rc == 0)
        rc = make_folder(b);
    if (rc == 0)
        rc = run_bench(b, &report);
    remove_folder(b);
    set_signals(SIG_DFL);
    if (interrupted)
        raise(interrupted);
    if (rc == 0) {
        status = print_report(b, &report);
        shot_report_fini(&report);
    } else {
        fprintf(stderr, "%s: %s\n", b->command, b->err[0] ? b->err : varve_strerror(rc));
    }
    shot_sizes_fini(&b->sizes);
    return status;
}

int lab_bench_shot(int argc, char **argv)
{
    struct bench b = {.command = "varve bench shot"};
    int status = shot_opts_parse(b.command, argc, argv, &b.opts);

    if (status >= 0)
        return status;
    return check_options(&b) < 0 ? CLI_USAGE : bench(&b);
}

/* ---- scripts ---- */

/* A history of the library has one set of regions, so two threads cannot use it at the same time. */
static int check_histories(const struct shot_work *work, const char *command)
{
    uint32_t user[SHOT_MAX_HISTS];

    memset(user, 0xff, sizeof(user));
    for (uint32_t t = 0; t < work->nr_threads; t++)
        for (size_t i = 0; i < work->threads[t].nr_ops; i++) {
            const struct shot_op *op = &work->threads[t].ops[i];

            if (op->kind != SHOT_PUT && op->kind != SHOT_GET)
                continue;
            if (user[op->hist] != UINT32_MAX && user[op->hist] != t) {
                fprintf(stderr,
                        "%s: line %" PRIu32 ": history '%s' is used by threads %" PRIu32
                        " and %" PRIu32 ", expected one; 'varve sim script' can do that\n",
                        command, op->line, work->hists[op->hist].name, user[op->hist], t);
                return -EINVAL;
            }
            user[op->hist] = t;
        }
    return 0;
}

/* Sizes for the probes. */
static void add_up_sizes(struct bench *b)
{
    for (uint32_t t = 0; t < b->work->nr_threads; t++) {
        const struct shot_script *script = &b->work->threads[t];

        b->sizes.nr += script->nr_puts;
        b->sizes.total_bytes += script->put_bytes;
        b->sizes.largest_bytes = VV_MAX(b->sizes.largest_bytes, script->largest_bytes);
    }
    b->sizes.nr = VV_MAX(b->sizes.nr, (size_t)1);
}

/* Refuses options that scripts do not take. 0, or -EINVAL after a message. */
static int check_script(const struct bench *b)
{
    if (b->opts.engine != SHOT_ENGINE_VARVE) {
        fprintf(stderr, "%s: --engine: scripts run on varve only: leave it out\n", b->command);
        return -EINVAL;
    }
    for (int h = 0; h < SHOT_HOP_NR; h++)
        if (b->opts.latency_ns[h]) {
            fprintf(stderr, "%s: --latency is allowed only with 'varve sim script'\n", b->command);
            return -EINVAL;
        }
    return check_histories(b->work, b->command);
}

int lab_bench_script(int argc, char **argv)
{
    struct bench b = {.command = "varve bench script"};
    struct script_file file;
    int status = script_file_open(b.command, argc, argv, &file);

    if (status >= 0)
        return status;
    b.script = file.name;
    b.work = &file.work;
    b.opts = file.opts;
    b.opts.procs = 1;
    add_up_sizes(&b);
    status = check_script(&b) < 0 || check_options(&b) < 0 ? CLI_USAGE : bench(&b);
    script_file_close(&file);
    return status;
}

/* ---- steps on streams ---- */

int lab_bench_stream(int argc, char **argv)
{
    struct bench b = {.command = "varve bench stream"};
    struct stream_args args;
    struct shot_work work;
    int status = stream_args_parse(b.command, argc, argv, &args);

    if (status >= 0)
        return status;
    if (stream_work_make(&args.shot.o, &args.plan, b.err, sizeof(b.err), &work) < 0) {
        fprintf(stderr, "%s: %s\n", b.command, b.err);
        return CLI_FAILED;
    }
    b.work = &work;
    b.stream = &args.plan;
    b.opts = args.shot.o;
    add_up_sizes(&b);
    status = check_options(&b) < 0 ? CLI_USAGE : bench(&b);
    shot_work_fini(&work);
    return status;
}
