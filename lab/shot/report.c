/* SPDX-License-Identifier: Apache-2.0 */
#include "lab/shot/report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "cli/common/json.h"
#include "policy/model.h"

int shot_report_init(uint32_t nr_procs, struct shot_report *ret_report)
{
    struct shot_report r = {.command = "", .nr_procs = nr_procs};

    if (nr_procs == 0)
        return -EINVAL;
    r.procs = calloc(nr_procs, sizeof(*r.procs));
    if (!r.procs)
        return -ENOMEM;
    *ret_report = r;
    return 0;
}

int shot_report_calls(struct shot_proc *p, size_t nr_puts, size_t nr_gets)
{
    /* One more than needed: 0 elements are allowed. */
    p->put_blocked_s = calloc(nr_puts + 1, sizeof(*p->put_blocked_s));
    p->get_blocked_s = calloc(nr_gets + 1, sizeof(*p->get_blocked_s));
    p->distance = calloc(nr_gets + 1, sizeof(*p->distance));
    p->gaps_ns = calloc(nr_puts + nr_gets + 1, sizeof(*p->gaps_ns));
    if (!p->put_blocked_s || !p->get_blocked_s || !p->distance || !p->gaps_ns)
        return -ENOMEM;
    p->nr_puts = nr_puts;
    p->nr_gets = nr_gets;
    return 0;
}

void shot_report_fini(struct shot_report *report)
{
    if (!report)
        return;
    for (uint32_t i = 0; report->procs && i < report->nr_procs; i++) {
        free(report->procs[i].put_blocked_s);
        free(report->procs[i].get_blocked_s);
        free(report->procs[i].distance);
        free(report->procs[i].gaps_ns);
    }
    free(report->procs);
    *report = (struct shot_report){0};
}

static double sum(const double *x, size_t n)
{
    double s = 0;

    for (size_t i = 0; i < n; i++)
        s += x[i];
    return s;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void expect(struct shot_report *r, double put_bytes, double get_bytes)
{
    r->expected_checkpoint_s = ratio(put_bytes, r->expected.put_bps);
    r->expected_restore_s = ratio(get_bytes, r->expected.get_bps);
}

/* The input of the model, with these bandwidths. */
static struct vv_model model_of(const struct shot_report *r, double put_bytes, const double *rate)
{
    const struct shot_machine *h = &r->machine;

    return (struct vv_model){.record_bytes =
                                 r->nr_puts ? (uint64_t)(put_bytes / (double)r->nr_puts) : 0,
                             .records = r->nr_puts,
                             .reads = true,
                             .write_kernel_s = (double)r->nr_puts * (double)r->interval_ns * 1e-9,
                             .read_kernel_s = (double)r->nr_gets * (double)r->interval_ns * 1e-9,
                             .copy_bytes_per_s = rate[h->has_device ? SHOT_HOP_D2D : SHOT_HOP_H2H],
                             .host_bytes = (h->has_device ? h->device_bytes : 0) + h->host_bytes,
                             .nlayers = 1,
                             .layer = {{rate[SHOT_HOP_H2F], rate[SHOT_HOP_F2H], 0}},
                             .reference = {rate[SHOT_HOP_H2F], rate[SHOT_HOP_F2H], 0}};
}

/* The model is for one program on layers of its own that writes everything and reads it back. */
static void ask_model(struct shot_report *r, double put_bytes, double get_bytes)
{
    const struct shot_machine *h = &r->machine;
    const double *rate = h->rate, *running = r->nr_procs == 1 ? r->procs[0].rate : rate;

    r->expected_speedup = r->expected_speedup_running = r->speedup = 0;
    if (r->nr_procs != 1 || r->script || r->stream || !r->has_bound || !h->has_disk ||
        put_bytes != get_bytes || rate[SHOT_HOP_H2F] <= 0 || rate[SHOT_HOP_F2H] <= 0)
        return;
    struct vv_model m = model_of(r, put_bytes, rate);
    struct vv_model_answer a = vv_model_ask(&m);
    r->expected_speedup = a.speedup;
    r->speedup = ratio(a.reference_s, m.write_kernel_s + m.read_kernel_s + r->blocked_checkpoint_s +
                                          r->blocked_restore_s);
    /* Compared with blocking I/O at the same bandwidths, as all other figures here. */
    if (running[SHOT_HOP_H2F] > 0 && running[SHOT_HOP_F2H] > 0) {
        m = model_of(r, put_bytes, running);
        r->expected_speedup_running = vv_model_ask(&m).speedup;
    }
}

static double longest(const double *x, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, x[i]);
    return most;
}

void shot_report_finish(struct shot_report *r)
{
    double put_bytes = 0, get_bytes = 0, distances = 0;

    r->blocked_checkpoint_s = r->blocked_restore_s = r->bound_s = 0;
    r->utilisation = r->first_utilisation = r->wall_s = r->wait_s = r->barrier_s = 0;
    r->open_s = r->ready_s = r->host_ready_s = 0;
    r->helper_cores = r->nr_procs ? r->procs[0].helper_cores : 0;
    r->helper_cpu_s = r->slowest_checkpoint_s = r->slowest_restore_s = 0;
    r->nr_puts = r->nr_gets = 0;
    r->lp_s = 0;
    r->verified = true;
    r->has_bound = shot_has_bound(&r->opts);
    for (uint32_t i = 0; i < r->nr_procs; i++) {
        struct shot_proc *p = &r->procs[i];

        p->blocked_checkpoint_s = sum(p->put_blocked_s, p->nr_puts);
        p->blocked_restore_s = sum(p->get_blocked_s, p->nr_gets);
        r->nr_puts += p->nr_puts;
        r->nr_gets += p->nr_gets;
        r->has_bound = r->has_bound && !p->no_bound;
        put_bytes += (double)p->put_bytes;
        get_bytes += (double)p->get_bytes;
        for (size_t g = 0; g < p->nr_gets; g++)
            distances += p->distance[g];
        r->blocked_checkpoint_s += p->blocked_checkpoint_s;
        r->blocked_restore_s += p->blocked_restore_s;
        r->bound_s += p->bound.total_s;
        r->lp_s += p->lp_s;
        r->utilisation += p->utilisation / r->nr_procs;
        r->first_utilisation += p->first_utilisation / r->nr_procs;
        r->open_s = fmax(r->open_s, p->open_s);
        r->host_ready_s = fmax(r->host_ready_s, p->host_ready_s);
        if (p->open_s > 0 && p->nr_puts > 0 && p->host_ready_s == 0)
            r->ready_s = fmax(r->ready_s, p->open_s + p->put_blocked_s[0]);
        r->helper_cores = VV_MIN(r->helper_cores, p->helper_cores);
        r->helper_cpu_s += p->helper_cpu_s;
        r->slowest_checkpoint_s =
            fmax(r->slowest_checkpoint_s, longest(p->put_blocked_s, p->nr_puts));
        r->slowest_restore_s = fmax(r->slowest_restore_s, longest(p->get_blocked_s, p->nr_gets));
        r->wall_s = fmax(r->wall_s, p->wall_s);
        r->wait_s += p->wait_s;
        r->barrier_s += p->barrier_s;
        r->verified = r->verified && p->verified;
    }
    r->checkpoint_gbps = ratio(put_bytes, r->blocked_checkpoint_s) / 1e9;
    r->restore_gbps = ratio(get_bytes, r->blocked_restore_s) / 1e9;
    r->bound_ratio = ratio(r->blocked_checkpoint_s + r->blocked_restore_s, r->bound_s);
    r->prefetch_distance_mean = ratio(distances, (double)r->nr_gets);
    expect(r, put_bytes, get_bytes);
    ask_model(r, put_bytes, get_bytes);
}

int shot_report_check(const struct shot_report *r, char *err, size_t err_size)
{
    if (!r->verified) {
        snprintf(err, err_size, "wrong bytes came back");
        return -EBADMSG;
    }
    if (r->is_void) {
        snprintf(
            err, err_size,
            "void: the bandwidths before and after the run differ by more than 10%% (%s); repeat "
            "it when nothing else is busy here, or do without a bound, --no-bound",
            r->changed);
        return -EAGAIN;
    }
    /* A process blocked for less than its bound must not be hidden by the others. */
    for (uint32_t i = 0; i < r->nr_procs; i++) {
        const struct shot_proc *p = &r->procs[i];
        double blocked = p->blocked_checkpoint_s + p->blocked_restore_s;

        if (p->bound.total_s > 0 && blocked < SHOT_MIN_BOUND_RATIO * p->bound.total_s) {
            snprintf(err, err_size,
                     "the bound is wrong: process %" PRIu32
                     " was blocked for %.6f s, less than %.2f of the bound, %.6f s",
                     i, blocked, SHOT_MIN_BOUND_RATIO, p->bound.total_s);
            return -ERANGE;
        }
    }
    return 0;
}

/* The rates behind the bound, one line. */
static void print_machine(FILE *f, const struct shot_machine *m)
{
    char text[VV_BYTES_TEXT];
    bool any = false;

    fprintf(f, "caches        ");
    if (m->has_device)
        fprintf(f, "device %s, ", vv_bytes_human(m->device_bytes, text, sizeof(text)));
    fprintf(f, "host %s%s\n", vv_bytes_human(m->host_bytes, text, sizeof(text)),
            m->has_disk ? ", disk below" : "");
    for (int h = 0; h < SHOT_HOP_NR; h++)
        if (m->rate[h] > 0) {
            fprintf(f, "%s%s %.3f", any ? "  " : "rates, GB/s   ", shot_hop_name((enum shot_hop)h),
                    m->rate[h] / 1e9);
            any = true;
        }
    fputs(any ? "\n" : "rates         not measured\n", f);
}

/* The bandwidth of the disk in the library's run, of the first process. Beside the rates behind the bound it shows
 * if the disk had the same speed. */
static void print_running(FILE *f, const struct shot_report *r)
{
    const double *rate = r->procs[0].rate;

    if (r->machine.has_disk && rate[SHOT_HOP_H2F] > 0 && rate[SHOT_HOP_F2H] > 0)
        fprintf(f, "while it ran  h2f %.3f  f2h %.3f\n", rate[SHOT_HOP_H2F] / 1e9,
                rate[SHOT_HOP_F2H] / 1e9);
}

static void print_procs(FILE *f, const struct shot_report *r)
{
    fprintf(f, "%s   checkpoint   restore    bound    ratio\n",
            r->stream   ? "stream "
            : r->script ? "thread "
                        : "process");
    for (uint32_t i = 0; i < r->nr_procs; i++) {
        const struct shot_proc *p = &r->procs[i];

        fprintf(f, "%7" PRIu32 " %10.4f s %8.4f s %8.4f s %6.3f%s\n", i, p->blocked_checkpoint_s,
                p->blocked_restore_s, p->bound.total_s,
                ratio(p->blocked_checkpoint_s + p->blocked_restore_s, p->bound.total_s),
                p->verified ? "" : "  WRONG BYTES");
    }
}

void shot_report_print_head(FILE *f, const char *command, const char *script,
                            const struct shot_opts *opts)
{
    if (script) {
        fprintf(f, "varve %s script %s ", command, script);
        shot_opts_print_machine(f, opts);
    } else {
        fprintf(f, "varve %s shot ", command);
        shot_opts_print(f, opts);
    }
    fprintf(f, "\n");
}

/* A baseline counts if its limit is understood: the two should agree within 20%. */
static void print_expected(FILE *f, const struct shot_report *r)
{
    fprintf(f, "expected    %9.4f s  checkpoint, %.4f s restore: %s\n", r->expected_checkpoint_s,
            r->expected_restore_s, r->expected.text);
    fprintf(f, "measured    %9.3f x  checkpoint, %.3f x restore\n\n",
            ratio(r->blocked_checkpoint_s, r->expected_checkpoint_s),
            ratio(r->blocked_restore_s, r->expected_restore_s));
}

static void print_run(FILE *f, const struct shot_report *r)
{
    fprintf(
        f, "prefetch distance %.2f   cache utilisation %.1f%%   wall %.3f s   waited %.3f s   %s\n",
        r->prefetch_distance_mean, 100 * r->utilisation, r->wall_s, r->wait_s,
        r->verified ? "verified" : "WRONG BYTES");
}

void shot_report_print(FILE *f, const struct shot_report *r)
{
    struct bound_result parts = {0};
    char running[64] = "";

    for (uint32_t i = 0; i < r->nr_procs; i++) {
        parts.copy_s += r->procs[i].bound.copy_s;
        parts.write_s += r->procs[i].bound.write_s;
        parts.restore_s += r->procs[i].bound.restore_s;
        parts.cross_s += r->procs[i].bound.cross_s;
    }
    if (r->expected_speedup_running > 0)
        snprintf(running, sizeof(running), ", and %.3f of the bandwidths while it ran",
                 r->expected_speedup_running);
    if (r->stream && !r->head_printed)
        stream_args_print(f, r->command, &r->opts, r->stream);
    else if (!r->head_printed)
        shot_report_print_head(f, r->command, r->script, &r->opts);
    fprintf(f, "\n");
    print_machine(f, &r->machine);
    print_running(f, r);
    if (!r->script && !r->stream)
        fprintf(f, "interval      %.3f ms\n", (double)r->interval_ns / 1e6);
    fprintf(f, "\n");
    fprintf(f, "              %s     throughput\n", r->stream ? "stalled" : "blocked");
    fprintf(f, "checkpoint  %9.4f s  %9.3f GB/s\n", r->blocked_checkpoint_s, r->checkpoint_gbps);
    fprintf(f, "restore     %9.4f s  %9.3f GB/s\n", r->blocked_restore_s, r->restore_gbps);
    if (r->expected.known) {
        print_expected(f, r);
    } else if (!r->has_bound) {
        fprintf(f, "bound        not computed\n\n");
    } else {
        fprintf(f, "bound       %9.4f s  (copies %.4f, writing %.4f, restoring %.4f, both %.4f)\n",
                r->bound_s, parts.copy_s, parts.write_s, parts.restore_s, parts.cross_s);
        fprintf(f, "ratio       %9.3f\n", r->bound_ratio);
        if (r->lp_s > 0)
            fprintf(f, "program     %9.4f s  (a linear program), ratio %.3f\n", r->lp_s,
                    ratio(r->blocked_checkpoint_s + r->blocked_restore_s, r->lp_s));
        if (r->speedup > 0)
            fprintf(
                f, "speed-up    %9.3f    over blocking I/O on the disk; the model expects %.3f%s\n",
                r->speedup, r->expected_speedup, running);
        fprintf(f, "\n");
    }
    if (r->stream) {
        stream_report_print(f, r);
        fprintf(f, "%s\n", r->verified ? "verified" : "WRONG BYTES");
    } else {
        print_run(f, r);
    }
    if (r->first_utilisation > 0)
        fprintf(f, "fastest tier %.1f%% in use since it was full\n", 100 * r->first_utilisation);
    if (r->opts.calls == SHOT_CALLS_ON)
        fprintf(f, "host time of a call: checkpoint %.1f us, restore %.1f us\n",
                1e6 * ratio(r->blocked_checkpoint_s, (double)r->nr_puts),
                1e6 * ratio(r->blocked_restore_s, (double)r->nr_gets));
    fprintf(f, "slowest call: checkpoint %.3f ms, restore %.3f ms\n", 1e3 * r->slowest_checkpoint_s,
            1e3 * r->slowest_restore_s);
    if (r->helper_cores > 0)
        fprintf(f, "the library worked on %" PRIu64 " cores of its own, %.3f s of processor time\n",
                r->helper_cores, r->helper_cpu_s);
    else if (r->helper_cpu_s > 0)
        fprintf(f, "the library worked where the application does, %.3f s of processor time\n",
                r->helper_cpu_s);
    if (r->opts.barrier)
        fprintf(f, "waited for other processes %.3f s, which counts as compute time\n",
                r->barrier_s);
    if (r->host_ready_s > 0)
        fprintf(f, "opened after %.3f s; began when the host cache was ready, after %.3f s\n",
                r->open_s, r->host_ready_s);
    else if (r->open_s > 0)
        fprintf(f, "opened after %.3f s, first checkpoint included %.3f s\n", r->open_s,
                r->ready_s);
    if (r->nr_procs > 1) {
        fputc('\n', f);
        print_procs(f, r);
    }
}

static void json_reals(struct json *j, const char *name, const double *x, size_t n)
{
    json_array(j, name);
    for (size_t i = 0; i < n; i++)
        json_real(j, NULL, x[i]);
    json_close(j);
}

static void json_machine(struct json *j, const struct shot_machine *m)
{
    json_object(j, "machine");
    json_bool(j, "has_device", m->has_device);
    json_bool(j, "has_disk", m->has_disk);
    json_uint(j, "device_bytes", m->device_bytes);
    json_uint(j, "host_bytes", m->host_bytes);
    json_uint(j, "staging_bytes", m->staging_bytes);
    for (int h = 0; h < SHOT_HOP_NR; h++) {
        char name[32];

        snprintf(name, sizeof(name), "%s_bps", shot_hop_name((enum shot_hop)h));
        json_real(j, name, m->rate[h]);
    }
    json_close(j);
}

static void json_proc(struct json *j, const struct shot_proc *p)
{
    json_object(j, NULL);
    json_uint(j, "put_bytes", p->put_bytes);
    json_uint(j, "get_bytes", p->get_bytes);
    json_bool(j, "verified", p->verified);
    json_real(j, "blocked_checkpoint_s", p->blocked_checkpoint_s);
    json_real(j, "blocked_restore_s", p->blocked_restore_s);
    json_real(j, "bound_s", p->bound.total_s);
    json_real(j, "bound_copy_s", p->bound.copy_s);
    json_real(j, "bound_write_s", p->bound.write_s);
    json_real(j, "bound_restore_s", p->bound.restore_s);
    json_real(j, "bound_cross_s", p->bound.cross_s);
    json_real(j, "wall_s", p->wall_s);
    json_real(j, "wait_s", p->wait_s);
    json_real(j, "barrier_s", p->barrier_s);
    json_real(j, "utilisation", p->utilisation);
    json_real(j, "running_h2f_bps", p->rate[SHOT_HOP_H2F]);
    json_real(j, "running_f2h_bps", p->rate[SHOT_HOP_F2H]);
    json_reals(j, "checkpoint_blocked_s", p->put_blocked_s, p->nr_puts);
    json_reals(j, "restore_blocked_s", p->get_blocked_s, p->nr_gets);
    json_array(j, "prefetch_distance");
    for (size_t g = 0; g < p->nr_gets; g++)
        json_uint(j, NULL, p->distance[g]);
    json_close(j);
    json_close(j);
}

/* Writes a figure for which 0 means that it is not known: null then. */
static void json_known(struct json *j, const char *name, double value)
{
    json_real(j, name, value > 0 ? value : NAN);
}

void shot_report_print_json(FILE *f, const struct shot_report *r)
{
    struct json j = json_begin(f, JSON_COMPACT);
    char err[256];
    int rc = shot_report_check(r, err, sizeof(err));

    json_object(&j, NULL);
    json_text(&j, "command", r->command);
    json_real(&j, "checkpoint_gbps", r->checkpoint_gbps);
    json_real(&j, "restore_gbps", r->restore_gbps);
    json_real(&j, "blocked_checkpoint_s", r->blocked_checkpoint_s);
    json_real(&j, "blocked_restore_s", r->blocked_restore_s);
    json_real(&j, "bound_s", r->has_bound ? r->bound_s : NAN);
    json_real(&j, "bound_ratio", r->has_bound ? r->bound_ratio : NAN);
    if (r->lp_s > 0)
        json_real(&j, "lp_s", r->lp_s);
    json_real(&j, "prefetch_distance_mean", r->prefetch_distance_mean);
    json_real(&j, "utilisation", r->utilisation);
    json_known(&j, "first_tier_utilisation", r->first_utilisation);
    json_known(&j, "open_s", r->open_s);
    json_known(&j, "ready_s", r->ready_s);
    json_known(&j, "host_ready_s", r->host_ready_s);
    json_real(&j, "slowest_checkpoint_s", r->slowest_checkpoint_s);
    json_real(&j, "slowest_restore_s", r->slowest_restore_s);
    json_uint(&j, "helper_cores", r->helper_cores);
    json_known(&j, "helper_cpu_s", r->helper_cpu_s);
    json_real(&j, "expected_checkpoint_s", r->expected.known ? r->expected_checkpoint_s : NAN);
    json_real(&j, "expected_restore_s", r->expected.known ? r->expected_restore_s : NAN);
    json_known(&j, "speedup", r->speedup);
    json_real(&j, "expected_speedup", r->speedup > 0 ? r->expected_speedup : NAN);
    json_known(&j, "expected_speedup_running", r->expected_speedup_running);
    json_text(&j, "expected_by", r->expected.known ? r->expected.text : NULL);
    json_bool(&j, "verified", r->verified);
    json_bool(&j, "void", r->is_void);
    json_real(&j, "wall_s", r->wall_s);
    json_real(&j, "wait_s", r->wait_s);
    json_real(&j, "barrier_s", r->barrier_s);
    if (r->stream)
        stream_report_json(&j, r);
    else if (r->script)
        json_text(&j, "script", r->script);
    else
        json_real(&j, "interval_s", (double)r->interval_ns / 1e9);
    json_text(&j, "failure", rc < 0 ? err : NULL);
    shot_opts_print_json(&j, "options", &r->opts, r->script || r->stream);
    json_machine(&j, &r->machine);
    json_array(&j, r->stream ? "streams" : r->script ? "threads" : "processes");
    for (uint32_t i = 0; i < r->nr_procs; i++)
        json_proc(&j, &r->procs[i]);
    json_close(&j);
    json_close(&j);
    json_end(&j);
}
