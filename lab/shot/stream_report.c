/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a report that only steps on streams have: stalls are the time blocked. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "lab/shot/report.h"

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* A simulated run has one step. */
static double median_step_s(const struct shot_report *r)
{
    double s[STREAM_MAX_STEPS];
    uint32_t n = r->stream_run.nr_steps;

    if (n == 0)
        return r->wall_s;
    memcpy(s, r->stream_run.step_s, n * sizeof(*s));
    qsort(s, n, sizeof(*s), compare);
    return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

static double kernels_s(const struct shot_proc *p)
{
    return p->wall_s - p->blocked_checkpoint_s - p->blocked_restore_s;
}

/* The stream that needs longest: kernels and unavoidable stalls. */
static double bound_step_s(const struct shot_report *r)
{
    double longest = 0;

    for (uint32_t i = 0; i < r->nr_procs; i++)
        longest = fmax(longest, kernels_s(&r->procs[i]) + r->procs[i].bound.total_s);
    return longest;
}

static double longest_kernels_s(const struct shot_report *r)
{
    double longest = 0;

    for (uint32_t i = 0; i < r->nr_procs; i++)
        longest = fmax(longest, kernels_s(&r->procs[i]));
    return longest;
}

static double largest_s(const struct shot_report *r)
{
    return ratio((double)r->stream_largest_bytes, r->machine.rate[SHOT_HOP_H2D]);
}

static double bytes_a_step(const struct shot_report *r, uint64_t all)
{
    return (double)all / VV_MAX(r->stream_run.nr_steps, UINT32_C(1));
}

int stream_report_bound(struct shot_report *r, const struct shot_work *work)
{
    struct shot_stream streams[STREAM_MAX_STREAMS];
    struct bound_result bounds[STREAM_MAX_STREAMS];
    int rc;

    if (!shot_has_bound(&r->opts) || r->nr_procs < 2 || r->procs[0].no_bound)
        return 0;
    for (uint32_t i = 0; i < r->nr_procs; i++)
        streams[i] = (struct shot_stream){&work->threads[i], r->procs[i].gaps_ns,
                                          r->procs[i].put_blocked_s, r->procs[i].get_blocked_s};
    rc = shot_bound_streams(streams, r->nr_procs, &r->machine, bounds);
    /* If objects are large, transfers of other streams' calls make the common bound low. */
    for (uint32_t i = 0; rc == 0 && i < r->nr_procs; i++)
        if (bounds[i].total_s > r->procs[i].bound.total_s)
            r->procs[i].bound = bounds[i];
    return rc;
}

void stream_report_print(FILE *f, const struct shot_report *r)
{
    const struct stream_figures *run = &r->stream_run;
    uint64_t object = 0;

    for (uint32_t i = 0; i < r->nr_procs; i++)
        object += r->procs[i].get_bytes;
    fprintf(f, "step        %9.4f s  best, %.4f s median of %" PRIu32 "; kernels %.4f s\n",
            r->wall_s, median_step_s(r), VV_MAX(run->nr_steps, UINT32_C(1)), longest_kernels_s(r));
    if (r->has_bound) {
        fprintf(f, "step bound  %9.4f s  ratio %.3f\n", bound_step_s(r),
                ratio(r->wall_s, bound_step_s(r)));
        fprintf(f, "largest     %9.4f s  over the link, on top of the bound ratio %.3f\n",
                largest_s(r),
                ratio(r->blocked_checkpoint_s + r->blocked_restore_s,
                      r->bound_s + r->nr_procs * largest_s(r)));
    }
    if (run->nr_steps == 0)
        return;
    fprintf(f,
            "host time of a call, us: checkpoint median %.1f, longest %.1f; restore median %.1f, "
            "longest %.1f\n",
            1e6 * run->put_host_s[0], 1e6 * run->put_host_s[1], 1e6 * run->get_host_s[0],
            1e6 * run->get_host_s[1]);
    fprintf(f, "of %.3f GB a step went down %.3f and came up %.3f", (double)object / 1e9,
            bytes_a_step(r, run->moved_down_bytes) / 1e9,
            bytes_a_step(r, run->moved_up_bytes) / 1e9);
    if (run->restores > 0)
        fprintf(f, "; %.1f%% of the restores found all in the device cache",
                100 * ratio((double)run->ready, (double)run->restores));
    fputc('\n', f);
}

void stream_report_json(struct json *j, const struct shot_report *r)
{
    const struct stream_figures *run = &r->stream_run;

    json_real(j, "step_s", r->wall_s);
    json_real(j, "step_median_s", median_step_s(r));
    json_real(j, "kernels_s", longest_kernels_s(r));
    json_real(j, "step_bound_s", r->has_bound ? bound_step_s(r) : NAN);
    json_real(j, "step_ratio", r->has_bound ? ratio(r->wall_s, bound_step_s(r)) : NAN);
    json_real(j, "largest_s", largest_s(r));
    if (run->nr_steps == 0)
        return;
    json_array(j, "steps_s");
    for (uint32_t i = 0; i < run->nr_steps; i++)
        json_real(j, NULL, run->step_s[i]);
    json_close(j);
    json_real(j, "checkpoint_host_s", run->put_host_s[0]);
    json_real(j, "checkpoint_host_longest_s", run->put_host_s[1]);
    json_real(j, "restore_host_s", run->get_host_s[0]);
    json_real(j, "restore_host_longest_s", run->get_host_s[1]);
    json_real(j, "down_bytes", bytes_a_step(r, run->moved_down_bytes));
    json_real(j, "up_bytes", bytes_a_step(r, run->moved_up_bytes));
    json_real(j, "found_ready", run->restores ? (double)run->ready / (double)run->restores : NAN);
}
