/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of one event, with tracing off, on, and with a thread that writes the events to a file, beside an empty
 * loop and a reading of the clock; and the same for a phase of the application, which is two events with a name.
 * Events come as fast as possible, far faster than in any application, so the file loses many of them; their
 * number is printed. One JSON object. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <varve/trace.h>

#include "base/clock.h"
#include "cli/common/json.h"
#include "cli/measure/samples.h"
#include "trace/file.h"
#include "trace/trace.h"
#include "trace/write.h"

#define BATCH        1000
#define BATCHES      20000
#define FILE_BATCHES 5000

static volatile uint64_t sink;

static void empty_loop(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sink = i;
}

static void clock_loop(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sink = vv_now_ns();
}

static void event_loop(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        sink = i;
        vv_trace(VV_TRACE_COPY_START, 1, i, 2, 4096);
    }
}

static void phase_loop(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        sink = i;
        varve_trace_begin("forward");
        varve_trace_end();
    }
}

/* The median of many short runs: other work on the machine disturbs some of them, and not the median. */
static double median_ns(void (*loop)(uint64_t n), size_t batches)
{
    double *ns = malloc(batches * sizeof(*ns)), median;

    if (!ns)
        exit(1);
    for (size_t i = 0; i < batches; i++) {
        uint64_t start = vv_now_ns();

        loop(BATCH);
        ns[i] = (double)(vv_now_ns() - start) / BATCH;
    }
    samples_sort(ns, batches);
    median = ns[batches / 2];
    free(ns);
    return median;
}

/* Records that were written to the file, and those that were lost. */
static int count(const char *path, uint64_t *ret_written, uint64_t *ret_lost)
{
    struct vv_trace_file *f;
    char err[256];

    if (vv_trace_file_open(path, err, sizeof(err), &f)) {
        fprintf(stderr, "%s\n", err);
        return -1;
    }
    *ret_written = f->nrecords;
    *ret_lost = f->lost;
    vv_trace_file_free(f);
    return 0;
}

int main(void)
{
    struct json out;
    const char *tmp = getenv("TMPDIR");
    double empty = median_ns(empty_loop, BATCHES), clock = median_ns(clock_loop, BATCHES);
    double off, phase_off, on, phase_on, file, phase_file;
    uint64_t written, lost;
    char path[1024], err[256];
    int rc;

    off = median_ns(event_loop, BATCHES);
    phase_off = median_ns(phase_loop, BATCHES);
    vv_trace_start(0);
    on = median_ns(event_loop, BATCHES);
    phase_on = median_ns(phase_loop, BATCHES);
    vv_trace_stop();
    snprintf(path, sizeof(path), "%s/varve-trace-cost.%d", tmp && *tmp ? tmp : "/var/tmp",
             (int)getpid());
    if (vv_trace_write_start(path, err, sizeof(err))) {
        fprintf(stderr, "%s\n", err);
        return 1;
    }
    file = median_ns(event_loop, FILE_BATCHES);
    phase_file = median_ns(phase_loop, FILE_BATCHES);
    (void)!vv_trace_write_stop();
    rc = count(path, &written, &lost);
    unlink(path);
    if (rc)
        return 1;
    out = json_begin(stdout, JSON_SPACED);
    json_object(&out, NULL);
    json_int(&out, "events", BATCH * BATCHES);
    json_number(&out, "loop_ns", "%.2f", empty);
    json_number(&out, "clock_ns", "%.2f", clock);
    json_number(&out, "off_ns", "%.2f", off - empty);
    json_number(&out, "on_ns", "%.2f", on - empty);
    json_number(&out, "file_ns", "%.2f", file - empty);
    json_gap(&out, "\n ");
    json_number(&out, "phase_off_ns", "%.2f", phase_off - empty);
    json_number(&out, "phase_on_ns", "%.2f", phase_on - empty);
    json_number(&out, "phase_file_ns", "%.2f", phase_file - empty);
    json_uint(&out, "written", written);
    json_uint(&out, "lost", lost);
    json_close(&out);
    json_end(&out);
    return 0;
}
