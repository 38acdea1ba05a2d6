/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve probe`: measures the hops of this machine, explains what the figures mean for the settings, and writes
 * settings that suit it.
 *
 * The measurements are a list of steps, made before the first one runs: so the duration is known, and time is
 * divided evenly. A step adds rows. A step that fails adds a row with the reason, and the others go on. Steps of
 * one device or one file share it: a first step opens it, the last one closes it.
 *
 * Ctrl-C ends the process at any point: files have no name (cli/measure/probe_disk.c), and the file that gets a
 * name is written at the end (probe_config.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <varve/varve.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/topo.h"
#include "cli/cli.h"
#include "cli/common/options.h"
#include "cli/common/progress.h"
#include "cli/measure/probe.h"
#include "cli/measure/probe_device.h"
#include "cli/measure/probe_gds.h"
#include "cli/probe_command.h"
#include "device/cuda/cuda.h"
#include "device/host/host.h"

#define MIB            (UINT64_C(1) << 20)
#define STEPS_MAX      128
#define DISK_BLOCK     (UINT32_C(1) << 20)
#define DISK_DEPTH_MAX 32
#define TRIAL_BYTES    ((uint64_t)DISK_BLOCK * DISK_DEPTH_MAX)
#define CACHED_DEPTH   8
#define SLICE_BYTES    ((size_t)32 << 20)
#define PAUSE_NS       (200 * VV_NS_PER_US)
#define UNIT_BYTES     (2 * MIB)
#define ENOUGH         0.9 /* of the best rate */

struct scale {
    double seconds;      /* of the whole run */
    uint64_t copy_bytes; /* of one copy      */
    uint64_t pin_bytes;
    uint64_t file_bytes;
};

static const struct scale full = {30, 128 * MIB, 1024 * MIB, 1024 * MIB};
static const struct scale quick = {3, 16 * MIB, 64 * MIB, 64 * MIB};

struct probe;

struct step {
    void (*run)(struct probe *p, const struct step *s);
    const char *what; /* for the progress bar */
    unsigned a, b;    /* parameters of the step */
};

struct probe {
    /* Options. */
    bool json, force, quick;
    double seconds;  /* 0: not given */
    int device_kind; /* enum vv_config_device */
    const char *local, *write;
    struct scale scale;
    double step_s;
    /* The open device and file. */
    struct vv_device *device;
    struct probe_device *on_device;
    struct probe_disk *disk;
    int disk_rc; /* the reason why it is not open */
    struct probe_gds *gds;
    /* The results. */
    struct probe_facts facts;
    struct probe_rows rows;
    struct step steps[STEPS_MAX];
    size_t nr_steps;
};

/* ---- rows ---- */

VV_PRINTF(4, 5)
static struct probe_row *add_row(struct probe *p, const char *hop, int rc, const char *fmt, ...)
{
    /* There cannot be more rows than steps; the last row would be overwritten. */
    struct probe_row *r = &p->rows.row[VV_MIN(p->rows.nr, (size_t)PROBE_ROWS_MAX - 1)];
    va_list ap;

    *r = (struct probe_row){.hop = hop, .rc = rc};
    va_start(ap, fmt);
    vsnprintf(r->what, sizeof(r->what), fmt, ap);
    va_end(ap);
    p->rows.nr = VV_MIN(p->rows.nr + 1, (size_t)PROBE_ROWS_MAX);
    return r;
}

static void set_rate(struct probe_row *r, double bps, enum probe_note note)
{
    r->unit = PROBE_RATE;
    r->value = bps;
    r->note = note;
}

static void set_time(struct probe_row *r, uint64_t ns, enum probe_note note)
{
    r->unit = PROBE_TIME;
    r->value = (double)ns / 1e9;
    r->note = note;
}

/* Marks the first of some rows that comes near the best of them; returns the best rate. */
static double mark_enough(struct probe *p, const char *hop, const char *kind, enum probe_note note)
{
    double best = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < p->rows.nr; i++) {
            struct probe_row *r = &p->rows.row[i];

            if (strcmp(r->hop, hop) != 0 || strncmp(r->what, kind, strlen(kind)) != 0 || r->rc < 0)
                continue;
            if (pass == 0) {
                best = fmax(best, r->value);
            } else if (r->value >= ENOUGH * best) {
                r->note = note;
                break;
            }
        }
    }
    return best;
}

/* ---- the device ---- */

static void open_on_device(struct probe *p, const struct step *s)
{
    char size[VV_BYTES_TEXT];
    int rc = probe_device_new(p->device, p->facts.copy_bytes, &p->on_device);

    (void)s;
    if (rc < 0)
        add_row(p, "d2d", rc, "buffers of %s",
                vv_bytes_human(p->facts.copy_bytes, size, sizeof(size)));
}

static void close_on_device(struct probe *p, const struct step *s)
{
    (void)s;
    probe_device_free(p->on_device);
    p->on_device = NULL;
}

static void step_copy(struct probe *p, const struct step *s)
{
    struct probe_copies copies = {0};
    char size[VV_BYTES_TEXT];
    double bps = 0;
    int rc;

    if (!p->on_device)
        return;
    vv_bytes_human(p->facts.copy_bytes, size, sizeof(size));
    if (s->a) {
        rc = probe_device_copy_stream(p->on_device, p->step_s, &bps);
        set_rate(add_row(p, "d2d", rc, "%s, back to back", size), bps, PROBE_NOTE_NONE);
        return;
    }
    rc = probe_device_copy(p->on_device, p->step_s, 0, &copies);
    set_rate(add_row(p, "d2d", rc, "%s, one at a time", size), copies.bps, PROBE_NOTE_COPY);
    set_time(add_row(p, "d2d", rc, "%s, the slowest", size), copies.worst_ns, PROBE_NOTE_NONE);
}

enum direction { DOWN = 1, UP = 2, BOTH = 3 };

static void step_link(struct probe *p, const struct step *s)
{
    struct probe_link_opts o = {.down = (s->a & DOWN) != 0,
                                .up = (s->a & UP) != 0,
                                .seg_bytes = s->b ? s->b : p->facts.copy_bytes,
                                .seconds = p->step_s};
    static const char *const hops[] = {[DOWN] = "d2h", [UP] = "h2d", [BOTH] = "link"};
    enum probe_note note = s->b != 256 << 10 ? PROBE_NOTE_NONE
                           : s->a == DOWN    ? PROBE_NOTE_DOWN
                           : s->a == UP      ? PROBE_NOTE_UP
                                             : PROBE_NOTE_NONE;
    char size[VV_BYTES_TEXT];
    double bps = 0;
    int rc;

    if (!p->on_device)
        return;
    vv_bytes_human(o.seg_bytes, size, sizeof(size));
    rc = probe_device_link(p->on_device, &o, &bps);
    set_rate(add_row(p, hops[s->a], rc, "%ssegments of %s",
                     s->a == BOTH ? "d2h and h2d at once, " : "", size),
             bps, note);
}

static void step_pageable(struct probe *p, const struct step *s)
{
    bool down = s->a == DOWN;
    double bps = 0;
    int rc;

    if (!p->on_device)
        return;
    rc = probe_device_pageable(p->on_device, down, p->step_s, &bps);
    set_rate(add_row(p, down ? "d2h" : "h2d", rc, "memory that is not pinned"), bps,
             down ? PROBE_NOTE_PAGEABLE : PROBE_NOTE_NONE);
}

static void step_pin(struct probe *p, const struct step *s)
{
    struct probe_pin_opts o = {.bytes = p->scale.pin_bytes,
                               .slice_bytes = VV_MIN(SLICE_BYTES, p->scale.pin_bytes),
                               .pause_ns = s->a ? PAUSE_NS : 0,
                               .threads = VV_MIN(p->facts.cores, 16U)};
    struct probe_pin pin = {0};
    const char *how = s->a ? "with pauses" : "back to back";
    int rc;

    if (!p->on_device)
        return;
    rc = probe_device_pin(p->on_device, &o, &pin);
    set_rate(add_row(p, "pin", rc, "slices of 32 MiB, %s", how), pin.pin_bps,
             s->a ? PROBE_NOTE_PIN : PROBE_NOTE_NONE);
    set_time(add_row(p, "pin", rc, "slices %s: slowest d2d copy beside", how), pin.worst_copy_ns,
             s->a ? PROBE_NOTE_WORST : PROBE_NOTE_NONE);
    if (s->a)
        set_rate(add_row(p, "pin", rc, "taking slices back"), pin.unpin_bps, PROBE_NOTE_NONE);
}

/* ---- memory ---- */

static void step_touch(struct probe *p, const struct step *s)
{
    double bps = 0;
    int rc = probe_touch(p->scale.pin_bytes, s->a, s->b, p->step_s, &bps);
    bool last = s->b && s->a == p->facts.cores;

    set_rate(add_row(p, "touch", rc, "%s pages, %u thread%s", s->b ? "huge" : "small", s->a,
                     s->a == 1 ? "" : "s"),
             bps, last ? PROBE_NOTE_TOUCH : PROBE_NOTE_NONE);
}

static void step_memcpy(struct probe *p, const struct step *s)
{
    double bps = 0;
    int rc = probe_memcpy(p->scale.copy_bytes, s->a, p->step_s, &bps);

    set_rate(add_row(p, "h2h", rc, "memcpy, %u thread%s", s->a, s->a == 1 ? "" : "s"), bps,
             PROBE_NOTE_NONE);
}

/* ---- the disk ---- */

static const char *mode_name(bool direct)
{
    return direct ? "direct" : "buffered";
}

static int open_disk(struct probe *p, bool direct, uint64_t bytes)
{
    struct probe_disk_opts o = {.dir = p->facts.folder,
                                .direct = direct,
                                .file_bytes = VV_MAX(bytes, TRIAL_BYTES),
                                .block_bytes = DISK_BLOCK,
                                .threads = DISK_DEPTH_MAX,
                                .seconds = p->step_s / 4};

    return p->disk_rc = probe_disk_open(&o, &p->disk);
}

static void close_disk(struct probe *p, const struct step *s)
{
    (void)s;
    probe_disk_close(p->disk);
    p->disk = NULL;
}

static void open_direct(struct probe *p, const struct step *s)
{
    struct probe_row *r;

    if (open_disk(p, true, p->scale.file_bytes) == 0)
        return;
    p->facts.direct_refused = p->disk_rc == -EINVAL || p->disk_rc == -EOPNOTSUPP;
    r = add_row(p, "h2f", p->disk_rc, "%s", mode_name(true));
    r->note = p->facts.direct_refused ? PROBE_NOTE_REFUSED : PROBE_NOTE_NONE;
    (void)s;
}

/* A pass over a buffered file has no time limit, so the file must not be too large for the disk: a small file is
 * tried first. */
static void open_buffered(struct probe *p, const struct step *s)
{
    double bps = 0;
    int rc = open_disk(p, false, TRIAL_BYTES);

    (void)s;
    if (rc == 0)
        rc = probe_disk_pass(p->disk, PROBE_WRITE, CACHED_DEPTH, &bps);
    probe_disk_close(p->disk);
    p->disk = NULL;
    if (rc == 0)
        rc = open_disk(p, false, (uint64_t)fmin(bps * p->step_s, (double)p->scale.file_bytes));
    p->disk_rc = rc;
    if (rc < 0)
        add_row(p, "h2f", rc, "%s", mode_name(false));
}

static void step_direct(struct probe *p, const struct step *s)
{
    bool write = s->b;
    double bps = 0;
    int rc;

    if (!p->disk)
        return;
    rc = probe_disk_loop(p->disk, write ? PROBE_WRITE : PROBE_READ, s->a, p->step_s, &bps);
    set_rate(add_row(p, write ? "h2f" : "f2h", rc, "direct, %u in flight", s->a), bps,
             PROBE_NOTE_NONE);
}

static void step_buffered(struct probe *p, const struct step *s)
{
    bool write = s->b;
    double bps = 0;
    int rc;

    if (!p->disk)
        return;
    rc = probe_disk_pass(p->disk, write ? PROBE_WRITE : PROBE_READ, s->a, &bps);
    set_rate(add_row(p, write ? "h2f" : "f2h", rc, "buffered, %u in flight, %s", s->a,
                     write ? "then synced" : "not cached"),
             bps, PROBE_NOTE_NONE);
}

static void step_cached(struct probe *p, const struct step *s)
{
    bool write = s->b;
    double bps = 0;
    int rc;

    if (!p->disk)
        return;
    rc = probe_disk_loop(p->disk, write ? PROBE_WRITE : PROBE_READ, CACHED_DEPTH, p->step_s, &bps);
    set_rate(add_row(p, write ? "h2f" : "f2h", rc, "page cache, %u threads", CACHED_DEPTH), bps,
             PROBE_NOTE_CACHED);
}

static void step_sync(struct probe *p, const struct step *s)
{
    uint64_t ns = 0;
    int rc;

    (void)s;
    if (!p->disk)
        return;
    rc = probe_disk_sync(p->disk, 8, &ns);
    set_time(add_row(p, "sync", rc, "fsync after 1 MiB"), ns, PROBE_NOTE_SYNC);
}

/* ---- device and disk ---- */

static void open_gds(struct probe *p, const struct step *s)
{
    struct probe_gds_opts o = {
        .device = p->device, .dir = p->facts.folder, .file_bytes = p->scale.file_bytes};
    int rc = probe_gds_new(&o, p->facts.no_gds, sizeof(p->facts.no_gds), &p->gds);

    (void)s;
    if (rc < 0)
        add_row(p, "f2h", rc, "to the device, past host memory")->note = PROBE_NOTE_PAST;
}

static void step_gds(struct probe *p, const struct step *s)
{
    bool write = s->a;
    const char *hop = write ? "h2f" : "f2h", *where = write ? "from" : "to";
    struct probe_gds_rates rates = {0};
    int rc;

    if (!p->gds)
        return;
    rc = probe_gds_compare(p->gds, write, p->step_s, &rates);
    set_rate(add_row(p, hop, rc, "%s the device, through host memory", where), rates.through_bps,
             PROBE_NOTE_THROUGH);
    set_rate(add_row(p, hop, rc, "%s the device, past host memory", where), rates.past_bps,
             PROBE_NOTE_PAST);
    p->facts.through_bps[!write] = rates.through_bps;
    p->facts.past_bps[!write] = rates.past_bps;
}

static void close_gds(struct probe *p, const struct step *s)
{
    (void)s;
    probe_gds_free(p->gds);
    p->gds = NULL;
}

/* ---- the plan ---- */

static void plan(struct probe *p, void (*run)(struct probe *, const struct step *), unsigned a,
                 unsigned b, const char *what)
{
    if (p->nr_steps < STEPS_MAX)
        p->steps[p->nr_steps++] = (struct step){.run = run, .a = a, .b = b, .what = what};
}

static void plan_device(struct probe *p)
{
    static const unsigned segs[] = {0, 1 << 20, 256 << 10}; /* 0: whole */

    plan(p, open_on_device, 0, 0, "buffers");
    plan(p, step_copy, 0, 0, "copies on the device");
    plan(p, step_copy, 1, 0, "copies on the device");
    for (size_t i = 0; i < VV_ARRAY_SIZE(segs); i++)
        for (unsigned direction = DOWN; direction <= BOTH; direction++)
            plan(p, step_link, direction, segs[i], "link between device and host");
    plan(p, step_pageable, DOWN, 0, "memory that is not pinned");
    plan(p, step_pageable, UP, 0, "memory that is not pinned");
    plan(p, step_pin, 0, 0, "pinning");
    plan(p, step_pin, 1, 0, "pinning");
    plan(p, close_on_device, 0, 0, "buffers");
}

static void plan_memory(struct probe *p)
{
    unsigned cores = p->facts.cores;

    plan(p, step_touch, 1, false, "page faults");
    if (cores > 1)
        plan(p, step_touch, 1, true, "page faults");
    plan(p, step_touch, cores, true, "page faults");
    for (unsigned n = 1; n < 2 * cores; n *= 2)
        plan(p, step_memcpy, VV_MIN(n, cores), 0, "copies in memory");
}

static void plan_disk(struct probe *p)
{
    plan(p, open_direct, 0, 0, "a file");
    for (unsigned depth = 1; depth <= DISK_DEPTH_MAX; depth *= 2)
        plan(p, step_direct, depth, true, "direct writes");
    for (unsigned depth = 1; depth <= DISK_DEPTH_MAX; depth *= 2)
        plan(p, step_direct, depth, false, "direct reads");
    plan(p, close_disk, 0, 0, "a file");
    plan(p, open_buffered, 0, 0, "a file");
    for (unsigned depth = 1; depth <= DISK_DEPTH_MAX; depth *= 2)
        plan(p, step_buffered, depth, true, "buffered writes");
    for (unsigned depth = 1; depth <= DISK_DEPTH_MAX; depth *= 2)
        plan(p, step_buffered, depth, false, "buffered reads");
    plan(p, step_cached, 0, true, "page cache");
    plan(p, step_cached, 0, false, "page cache");
    plan(p, step_sync, 0, 0, "fsync");
    plan(p, close_disk, 0, 0, "a file");
}

static void plan_gds(struct probe *p)
{
    plan(p, open_gds, 0, 0, "GPUDirect Storage");
    plan(p, step_gds, true, 0, "GPUDirect Storage");
    plan(p, step_gds, false, 0, "GPUDirect Storage");
    plan(p, close_gds, 0, 0, "GPUDirect Storage");
}

static void run_plan(struct probe *p)
{
    struct progress bar;

    progress_init(&bar);
    for (size_t i = 0; i < p->nr_steps; i++) {
        progress_show(&bar, (double)i / (double)p->nr_steps, p->steps[i].what);
        p->steps[i].run(p, &p->steps[i]);
    }
    progress_clear(&bar);
    mark_enough(p, "h2h", "memcpy", PROBE_NOTE_THREADS);
    p->facts.direct_write_bps = mark_enough(p, "h2f", "direct", PROBE_NOTE_DEPTH);
    mark_enough(p, "f2h", "direct", PROBE_NOTE_DEPTH);
    p->facts.buffered_write_bps = mark_enough(p, "h2f", "buffered", PROBE_NOTE_DEPTH);
    mark_enough(p, "f2h", "buffered", PROBE_NOTE_DEPTH);
}

/* ---- what is there ---- */

VV_PRINTF(1, 2) static int complain(const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, PROBE_COMMAND ": ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return CLI_FAILED;
}

static int open_emulated(struct probe *p)
{
    struct vv_device_host_opts o;
    int rc;

    vv_device_host_opts_init(&o);
    /* The emulated device uses host memory: a share of it, and only the used pages. */
    o.capacity_bytes = VV_MAX(p->facts.memory_available_bytes / 4, 64 * MIB);
    o.lazy = true;
    p->facts.device = "host";
    rc = vv_device_open_host(&o, &p->device);
    return rc < 0 ? complain("the emulated device: %s", strerror(-rc)) : CLI_OK;
}

static int open_device(struct probe *p)
{
    bool wanted = p->device_kind == VV_CONFIG_DEVICE_CUDA;
    char err[256] = "";
    int rc;

    p->facts.device = "none";
    if (p->device_kind == VV_CONFIG_DEVICE_NONE)
        return CLI_OK;
    if (p->device_kind == VV_CONFIG_DEVICE_HOST)
        return open_emulated(p);
    rc = vv_device_open_cuda(NULL, err, sizeof(err), &p->device);
    if (rc == 0)
        p->facts.device = "cuda";
    else if (wanted)
        return complain("%s", err[0] ? err : strerror(-rc));
    else if (rc != -ENODEV)
        /* There is a GPU, but it cannot be used: print that even if no GPU was asked for. */
        complain("going on without a device: %s", err[0] ? err : strerror(-rc));
    return CLI_OK;
}

static int look_at_device(struct probe *p)
{
    struct vv_device_info info;
    size_t available = 0, total = 0;
    int rc;

    if (!p->device)
        return CLI_OK;
    vv_device_describe(p->device, &info);
    snprintf(p->facts.device_name, sizeof(p->facts.device_name), "%s", info.name);
    rc = vv_device_mem_info(p->device, &available, &total);
    if (rc < 0)
        return complain("memory of the device: %s", strerror(-rc));
    p->facts.device_free_bytes = available;
    p->facts.device_total_bytes = total;
    return CLI_OK;
}

static int look_at_folder(struct probe *p)
{
    const char *env = getenv("VARVE_LOCAL");
    const char *dir = p->local ? p->local : env && *env ? env : ".";
    char path[PATH_MAX];
    struct statvfs fs;

    if (strcmp(dir, "none") == 0)
        return CLI_OK;
    if (!realpath(dir, path))
        return complain("--local %s: %s; give an existing folder, or none", dir, strerror(errno));
    if (access(path, W_OK | X_OK) < 0)
        return complain("cannot write in %s: %s", path, strerror(errno));
    if (strlen(path) >= sizeof(p->facts.folder))
        return complain("%s: the path is too long for a setting", path);
    if (statvfs(path, &fs) < 0)
        return complain("%s: %s", path, strerror(errno));
    if ((uint64_t)fs.f_bavail * fs.f_frsize < 4 * TRIAL_BYTES)
        return complain("%s: too little space to measure; --local names another folder, or none",
                        path);
    p->scale.file_bytes = VV_MIN(p->scale.file_bytes, (uint64_t)fs.f_bavail * fs.f_frsize / 4);
    snprintf(p->facts.folder, sizeof(p->facts.folder), "%s", path);
    return CLI_OK;
}

/* Buffers of a size that the machine has room for. */
static void fit_buffers(struct probe *p)
{
    uint64_t memory = p->facts.memory_available_bytes / 8;

    p->scale.copy_bytes = VV_MIN(p->scale.copy_bytes, memory);
    if (p->device)
        p->scale.copy_bytes = VV_MIN(p->scale.copy_bytes, p->facts.device_free_bytes / 4);
    p->scale.copy_bytes = VV_MAX(vv_align_down(p->scale.copy_bytes, UNIT_BYTES), UNIT_BYTES);
    p->scale.pin_bytes = VV_MIN(p->scale.pin_bytes, memory);
    p->scale.pin_bytes = VV_MAX(vv_align_down(p->scale.pin_bytes, UNIT_BYTES), UNIT_BYTES);
    p->facts.copy_bytes = p->scale.copy_bytes;
}

static int look(struct probe *p)
{
    struct vv_topo topo;
    int status;

    vv_topo_get(&topo);
    p->facts.cores = VV_MIN(topo.cores, (unsigned)PROBE_THREADS_MAX);
    probe_memory(&p->facts.memory_bytes, &p->facts.memory_available_bytes);
    status = look_at_folder(p);
    if (status == CLI_OK)
        status = open_device(p);
    if (status == CLI_OK)
        status = look_at_device(p);
    fit_buffers(p);
    return status;
}

/* ---- the end ---- */

static int write_settings(struct probe *p, const struct vv_config *cfg)
{
    char *text, err[512];
    int rc = probe_config_text(&p->facts, &p->rows, cfg, &text);

    if (rc < 0)
        return complain("%s", strerror(-rc));
    rc = probe_config_write(p->write, text, cfg, p->force, err, sizeof(err));
    free(text);
    return rc < 0 ? complain("%s: %s", p->write, err) : CLI_OK;
}

static int report(struct probe *p, double seconds)
{
    struct vv_config cfg;
    int status = CLI_OK;

    probe_settle(&p->facts, &cfg);
    probe_explain(&p->facts, &cfg, &p->rows);
    if (p->write)
        status = write_settings(p, &cfg);
    if (p->json) {
        probe_print_json(stdout, &p->facts, &p->rows, &cfg,
                         p->write && status == CLI_OK ? p->write : NULL, seconds);
    } else {
        probe_print_text(stdout, &p->facts, &p->rows, &cfg);
        if (p->write && status == CLI_OK)
            printf("\nWritten to %s: programs read it when " VV_CONFIG_FILE_ENV
                   " names it. It took %.1f s.\n",
                   p->write, seconds);
        else if (!p->write)
            printf("\nNothing was written: '" PROBE_COMMAND
                   " --write varve.conf' keeps them in a file, which programs read when\n"
                   "" VV_CONFIG_FILE_ENV " names it.\n"
                   "It took %.1f s.\n",
                   seconds);
    }
    for (size_t i = 0; i < p->rows.nr; i++) {
        const struct probe_row *r = &p->rows.row[i];

        /* A machine without GPUDirect Storage is not a failure. */
        if (r->rc < 0 && r->note != PROBE_NOTE_REFUSED &&
            !(r->note == PROBE_NOTE_PAST && r->rc == -ENOTSUP))
            status = complain("%s, %s: %s", r->hop, r->what, r->so);
    }
    return status;
}

static int set_device(const char *word, void *arg)
{
    struct probe *p = arg;
    struct vv_config cfg;
    char err[256];

    vv_config_init(&cfg);
    if (vv_config_set(&cfg, "device", word, err, sizeof(err)) < 0) {
        fprintf(stderr, PROBE_COMMAND ": %s\n", err);
        return CLI_USAGE;
    }
    p->device_kind = cfg.device;
    return 0;
}

static int set_seconds(const char *value, void *arg)
{
    struct probe *p = arg;

    return opts_real(value, 0, 3600, &p->seconds) < 0 || p->seconds == 0 ? -EINVAL : 0;
}

#define AT(field) offsetof(struct probe, field)

static const struct opt options[] = {
    {OPT_SET, .name = "device", .arg = "auto|cuda|host|none", .set = set_device,
     .help = "which device (auto: a GPU if there is one)"},
    {OPT_TEXT, .name = "local", .arg = "FOLDER", .at = AT(local),
     .help = "folder on the disk to measure (VARVE_LOCAL, or the current one); none"},
    {OPT_SET, .name = "seconds", .arg = "S", .set = set_seconds,
     .help = "how long the run takes, about (30; quick: 3)",
     .takes = "a number of seconds above 0, up to 3600"},
    {OPT_FLAG, .name = "quick", .at = AT(quick),
     .help = "smaller buffers and files, and less time"},
    {OPT_TEXT, .name = "write", .arg = "FILE", .at = AT(write),
     .help = "write the settings there, for VARVE_CONFIG or varve_opts_load"},
    {OPT_FLAG, .name = "force", .help = "replace FILE if there is one", .at = AT(force)},
    {OPT_FLAG, .name = "json", .help = "print one JSON object", .at = AT(json)},
};

static const struct opts command = {
    .command = PROBE_COMMAND,
    .usage = "[OPTION]...",
    .about =
        "Measures this machine: copies on the device and between device and host, pinning, copies\n"
        "in memory, the disk. Prints what it means for the settings, and settings that suit it.",
    OPT_LIST(options),
};

static int measure(struct probe *p)
{
    uint64_t start = vv_now_ns();

    if (p->device)
        plan_device(p);
    plan_memory(p);
    if (p->facts.folder[0])
        plan_disk(p);
    if (p->device && p->facts.folder[0])
        plan_gds(p);
    p->step_s = p->scale.seconds / (double)p->nr_steps;
    fprintf(stderr, PROBE_COMMAND ": this takes about %.0f s\n", fmax(ceil(p->scale.seconds), 1));
    run_plan(p);
    return report(p, (double)(vv_now_ns() - start) / 1e9);
}

int cli_probe(int argc, char **argv)
{
    static struct probe p; /* some tens of kilobytes */
    int first, rc, status = opts_parse(&command, argc, argv, &p, &first);

    if (status >= 0)
        return status;
    p.scale = p.quick ? quick : full;
    if (p.seconds > 0)
        p.scale.seconds = p.seconds;
    rc = p.write ? probe_config_check(p.write, p.force) : 0;
    if (rc < 0)
        return complain("%s: %s", p.write,
                        rc == -EEXIST ? "the file exists already; --force replaces it"
                                      : strerror(-rc));
    status = look(&p);
    if (status == CLI_OK)
        status = measure(&p);
    probe_gds_free(p.gds);
    probe_disk_close(p.disk);
    probe_device_free(p.on_device);
    vv_device_close(p.device);
    return status;
}
