/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runs of `varve bench vector`: one program, three ways to keep its records.
 *
 * A step of computing is `step_s` long: the array is filled or checked if the step has a record, and the rest of
 * the time is spent sleeping or spinning. So computing takes the same time in every run, and the processor is free
 * for the threads that move data, as with a core left to them. The waiting times are compared.
 *
 * Blocking I/O is a write or a read of a file of its own for each record, and then sleep up to the time of the
 * layer's bandwidth. Varve is throttled to the same bandwidths by `rate`.
 *
 * Every byte that is read is checked: a record is the pattern of its number.
 */
#include "lab/outofcore/bench_outofcore.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/vector.h>

#include "base/clock.h"
#include "base/pattern.h"
#include "base/thread.h"
#include "cli/measure/probe.h"

enum { START_RECORDS = 4, START_STEPS = 9 };

/* A way to keep records. */
struct keeper {
    const struct ooc_plan *plan;
    int (*write)(struct keeper *k, uint64_t id);
    int (*read)(struct keeper *k, uint64_t id);
    char *data;       /* the array; a read may move it */
    uint64_t late_ns; /* the excess of the last step */
    /* Blocking I/O. */
    const char *dir;
    struct ooc_rate rate;
    /* Varve. */
    struct varve_ctx *ctx;
    struct varve_history *h;
    struct varve_vector *v;
};

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static int failed(struct varve_ctx *ctx, char *err, size_t err_bytes, const char *what, int rc)
{
    struct varve_error e = {.error_size = sizeof(e)};

    if (varve_last_error(ctx, &e) == 0 && e.text[0])
        snprintf(err, err_bytes, "%s: %.200s", what, e.text);
    else
        snprintf(err, err_bytes, "%s: %s", what, varve_strerror(rc));
    return rc;
}

/* ---- the program ---- */

static void pass_time(uint64_t until_ns, bool spin)
{
    if (!spin)
        vv_sleep_until_ns(until_ns);
    while (vv_now_ns() < until_ns)
        ;
}

/* A step that makes or checks the record `id`, unless that is UINT64_MAX. Sleeps end late; the next step is
 * shorter by that, so all steps together take the right time, in every run. */
static void step(struct keeper *k, uint64_t id, bool check, struct ooc_run *r)
{
    const struct ooc_plan *p = k->plan;
    uint64_t begun_ns = vv_now_ns();

    if (id != UINT64_MAX && check) {
        r->wrong_bytes += vv_pattern_count_bad(k->data, p->record_bytes, p->seed, id, 0);
        r->bytes += p->record_bytes;
    } else if (id != UINT64_MAX) {
        vv_pattern_fill(k->data, p->record_bytes, p->seed, id, 0);
    }
    uint64_t step_ns = (uint64_t)(p->step_s * 1e9);
    uint64_t until_ns = begun_ns + step_ns - VV_MIN(k->late_ns, step_ns);
    pass_time(until_ns, p->spin);
    uint64_t end_ns = vv_now_ns();
    k->late_ns = k->late_ns - VV_MIN(k->late_ns, step_ns) + (end_ns - VV_MIN(until_ns, end_ns));
    r->kernel_s += seconds(end_ns - begun_ns);
}

static int write_phase(struct keeper *k, struct ooc_run *r)
{
    const struct ooc_plan *p = k->plan;

    for (uint64_t i = 1; i <= p->steps; i++) {
        bool record = i % p->ratio == 0;
        uint64_t id = i / p->ratio - 1;
        step(k, record ? id : UINT64_MAX, false, r);
        if (!record)
            continue;
        uint64_t begun_ns = vv_now_ns();
        int rc = k->write(k, id);
        r->write_s += seconds(vv_now_ns() - begun_ns);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_phase(struct keeper *k, struct ooc_run *r)
{
    const struct ooc_plan *p = k->plan;
    uint64_t nth = 0;

    for (uint64_t i = 0; i < p->steps; i++) {
        bool record = i % p->ratio == 0 && nth < p->records;
        uint64_t id = p->lifo ? p->records - 1 - nth : nth;
        if (record) {
            uint64_t begun_ns = vv_now_ns();
            int rc = k->read(k, id);
            r->read_s += seconds(vv_now_ns() - begun_ns);
            if (rc < 0)
                return rc;
            nth++;
        }
        step(k, record ? id : UINT64_MAX, true, r);
    }
    return 0;
}

static int run_program(struct keeper *k, struct ooc_run *ret_run)
{
    struct ooc_run r = {0};
    vv_thread_sharpen(); /* late ends of sleeps in the reference are not computing */
    uint64_t begun_ns = vv_now_ns();
    int rc = write_phase(k, &r);

    if (rc == 0 && k->plan->reads)
        rc = read_phase(k, &r);
    r.wall_s = seconds(vv_now_ns() - begun_ns);
    if (rc == 0)
        *ret_run = r;
    return rc;
}

/* ---- blocking I/O ---- */

static void record_path(const struct keeper *k, uint64_t id, char *path, size_t size)
{
    snprintf(path, size, "%s/record-%" PRIu64, k->dir, id);
}

static int transfer(struct keeper *k, uint64_t id, bool write)
{
    const struct ooc_plan *p = k->plan;
    uint64_t begun_ns = vv_now_ns();
    double rate = write ? k->rate.write : k->rate.read;
    char path[2 * OOC_PATH_BYTES];
    int rc = 0;

    record_path(k, id, path, sizeof(path));
    int fd =
        open(path, write ? O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    for (uint64_t at = 0; at < p->record_bytes && rc == 0;) {
        ssize_t n = write ? pwrite(fd, k->data + at, p->record_bytes - at, (off_t)at)
                          : pread(fd, k->data + at, p->record_bytes - at, (off_t)at);
        if (n > 0)
            at += (uint64_t)n;
        else if (n == 0)
            rc = -EIO;
        else if (errno != EINTR)
            rc = -errno;
    }
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rate > 0)
        pass_time(begun_ns + (uint64_t)((double)p->record_bytes / rate * 1e9), false);
    return rc;
}

static int direct_write(struct keeper *k, uint64_t id)
{
    return transfer(k, id, true);
}

static int direct_read(struct keeper *k, uint64_t id)
{
    return transfer(k, id, false);
}

static void remove_records(const struct keeper *k, uint64_t n)
{
    char path[2 * OOC_PATH_BYTES];

    for (uint64_t id = 0; id < n; id++) {
        record_path(k, id, path, sizeof(path));
        unlink(path);
    }
}

static void layer_dir(const struct ooc_plan *p, bool fast, char *dir, size_t size)
{
    const char *given = fast ? p->fast_dir : p->slow_dir;

    if (given)
        snprintf(dir, size, "%s", given);
    else
        snprintf(dir, size, "%s/%s", p->folder, fast ? "fast" : "slow");
}

static int direct_open(struct keeper *k, bool fast, char *dir, size_t size)
{
    const struct ooc_plan *p = k->plan;

    layer_dir(p, fast, dir, size);
    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        return -errno;
    k->dir = dir;
    k->rate = fast ? p->fast : p->slow;
    k->write = direct_write;
    k->read = direct_read;
    k->data = malloc(p->record_bytes);
    return k->data ? 0 : -ENOMEM;
}

int ooc_run_direct(const struct ooc_plan *plan, bool fast, char *err, size_t err_bytes,
                   struct ooc_run *ret_run)
{
    struct keeper k = {.plan = plan};
    char dir[2 * OOC_PATH_BYTES];
    int rc = direct_open(&k, fast, dir, sizeof(dir));

    if (rc == 0)
        rc = run_program(&k, ret_run);
    if (k.dir)
        remove_records(&k, plan->records);
    free(k.data);
    if (rc < 0)
        snprintf(err, err_bytes, "%s: %s", dir, strerror(-rc));
    return rc;
}

/* ---- before the run ---- */

/* The best of a few: the speed of the layer without disturbance. */
static int measure_layer(struct keeper *k, struct ooc_rate *ret_rate)
{
    int rc = 0;

    *ret_rate = (struct ooc_rate){0};
    for (int i = 0; i < 2 * START_RECORDS && rc == 0; i++) {
        bool write = i < START_RECORDS;
        uint64_t at_ns = vv_now_ns();
        rc = write ? k->write(k, (uint64_t)i) : k->read(k, (uint64_t)(i - START_RECORDS));
        double rate = (double)k->plan->record_bytes / seconds(vv_now_ns() - at_ns);
        double *best = write ? &ret_rate->write : &ret_rate->read;
        *best = rate > *best ? rate : *best;
    }
    remove_records(k, START_RECORDS);
    return rc;
}

/* The mean of a few steps: a step that ends late shortens the next one. */
static double measure_step(struct keeper *k)
{
    struct ooc_run r = {0};

    k->late_ns = 0;
    for (int i = 0; i < START_STEPS; i++)
        step(k, UINT64_MAX, false, &r);
    return r.kernel_s / START_STEPS;
}

int ooc_measure_start(const struct ooc_plan *plan, char *err, size_t err_bytes,
                      struct ooc_start *ret_start)
{
    struct ooc_start s = {0};
    char dir[2 * OOC_PATH_BYTES];
    int rc = 0;

    for (int fast = 1; fast >= 0 && rc == 0; fast--) {
        struct keeper k = {.plan = plan};
        rc = direct_open(&k, fast, dir, sizeof(dir));
        if (rc == 0) {
            vv_pattern_fill(k.data, plan->record_bytes, plan->seed, 0, 0);
            rc = measure_layer(&k, fast ? &s.fast : &s.slow);
            s.step_s = measure_step(&k);
        }
        free(k.data);
    }
    if (rc < 0) {
        snprintf(err, err_bytes, "%s: %s", dir, strerror(-rc));
        return rc;
    }
    rc = probe_memcpy(plan->record_bytes, 1, 0.02, &s.copy);
    if (rc < 0 || (plan->copy > 0 && s.copy > plan->copy))
        s.copy = plan->copy;
    *ret_start = s;
    return 0;
}

/* ---- Varve ---- */

static int varve_write(struct keeper *k, uint64_t id)
{
    return varve_vector_write(k->v, id);
}

static int varve_read(struct keeper *k, uint64_t id)
{
    int rc = varve_vector_read(k->v, id);

    k->data = k->v->data;
    return rc;
}

static int open_context(struct keeper *k)
{
    const struct ooc_plan *p = k->plan;
    struct varve_opts o;
    int rc = varve_opts_init(&o, sizeof(o));

    if (rc < 0)
        return rc;
    o.device = VARVE_DEVICE_NONE;
    o.level = VARVE_LEVEL_CACHED;
    o.trace_file[0] = o.metrics[0] = 0;
    /* The array is in the host cache too. */
    uint64_t page = o.page_bytes ? o.page_bytes : 64 << 10;
    o.page_bytes = (uint32_t)page;
    o.host_cache = vv_align_up(p->host_bytes, page) + vv_align_up(p->record_bytes, page);
    o.local_cache = vv_align_up(p->fast_bytes, page);
    layer_dir(p, true, o.local, sizeof(o.local));
    layer_dir(p, false, o.remote, sizeof(o.remote));
    int n = snprintf(o.rate, sizeof(o.rate), "h2f=%.0f,f2h=%.0f,f2r=%.0f,r2f=%.0f", p->fast.write,
                     p->fast.read, p->slow.write, p->slow.read);
    if (p->copy > 0)
        snprintf(o.rate + n, sizeof(o.rate) - (size_t)n, ",h2h=%.0f", p->copy);
    return varve_open(&o, &k->ctx);
}

static int open_vector(struct keeper *k)
{
    struct varve_history_opts o;
    int rc = varve_history_opts_init(&o, sizeof(o));

    if (rc < 0)
        return rc;
    o.consume = VARVE_CONSUME_ONCE;
    o.order = k->plan->lifo ? VARVE_ORDER_LIFO : VARVE_ORDER_FIFO;
    rc = varve_history_open_with(k->ctx, "outofcore", &o, &k->h);
    if (rc == 0)
        rc = varve_vector_new(k->h, 1, k->plan->record_bytes, &k->v);
    if (rc == 0)
        k->data = k->v->data;
    return rc;
}

static int note_stats(const struct keeper *k, struct ooc_run *r)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    int rc = varve_stats(k->ctx, &s);

    if (rc < 0)
        return rc;
    r->fast_peak_bytes = s.layer_peak_bytes[0];
    r->fast_limit_bytes = s.layer_bytes[0];
    r->slow_written_bytes = s.remote_written_bytes;
    r->down_bytes = s.moved_down_bytes;
    r->up_bytes = s.moved_up_bytes;
    r->fast = (struct ooc_rate){(double)s.layer_write_rate[0], (double)s.layer_read_rate[0]};
    r->slow = (struct ooc_rate){(double)s.layer_write_rate[1], (double)s.layer_read_rate[1]};
    return 0;
}

int ooc_run_varve(const struct ooc_plan *plan, char *err, size_t err_bytes, struct ooc_run *ret_run)
{
    struct keeper k = {.plan = plan, .write = varve_write, .read = varve_read};
    struct ooc_run r = {0};
    int rc = open_context(&k);

    if (rc == 0)
        rc = open_vector(&k);
    if (rc == 0)
        rc = run_program(&k, &r);
    if (rc == 0)
        rc = note_stats(&k, &r);
    if (rc < 0)
        failed(k.ctx, err, err_bytes, "varve", rc);
    varve_vector_free(k.v);
    int closed = varve_close(k.ctx);
    if (rc == 0 && closed < 0)
        rc = failed(NULL, err, err_bytes, "closing", closed);
    if (rc == 0)
        *ret_run = r;
    return rc;
}

/* ---- the model ---- */

struct vv_model_answer ooc_expect(const struct ooc_plan *p, double step_s, double copy,
                                  const struct ooc_rate *fast, const struct ooc_rate *slow)
{
    struct vv_model m = {
        .record_bytes = p->record_bytes,
        .records = p->records,
        .write_kernel_s = step_s * (double)p->steps,
        .read_kernel_s = p->reads ? step_s * (double)p->steps : 0,
        .reads = p->reads,
        .copy_bytes_per_s = copy,
        .host_bytes = p->host_bytes,
        .nlayers = 2,
        .layer = {{fast->write, fast->read, p->fast_bytes}, {slow->write, slow->read, 0}},
        .reference = {slow->write, slow->read, 0}};

    return vv_model_ask(&m);
}
