/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of threads runs one body each until a deadline and is joined. The rate is the bytes of all threads over
 * the time from the first start to the last end. Loops are cut into rounds, and the fastest round counts: the
 * bound needs the speed of the machine, and a neighbour's burst must not lower it.
 *
 * Memory: each thread copies, or faults in, its own slice again and again.
 */
#include "cli/measure/probe.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/measure/probe_private.h"

void probe_workers_init(struct probe_worker *w, unsigned n, void *job)
{
    for (unsigned i = 0; i < n; i++)
        w[i] = (struct probe_worker){.job = job, .index = i};
}

int probe_workers_run(struct probe_worker *w, unsigned n, void *(*body)(void *), double *ret_bps)
{
    uint64_t start = vv_now_ns(), bytes = 0, ns;
    unsigned started = 0;
    int rc = 0;

    while (started < n && rc == 0) {
        w[started].bytes = 0;
        w[started].rc = 0;
        rc = -pthread_create(&w[started].thread, NULL, body, &w[started]);
        if (rc == 0)
            started++;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(w[i].thread, NULL);
        bytes += w[i].bytes;
        if (rc == 0)
            rc = w[i].rc;
    }
    ns = VV_MAX(vv_now_ns() - start, UINT64_C(1));
    if (rc == 0)
        *ret_bps = (double)bytes * 1e9 / (double)ns;
    return rc;
}

uint64_t probe_round_deadline_ns(double seconds)
{
    return vv_now_ns() + (uint64_t)(seconds / PROBE_ROUNDS * 1e9);
}

struct memory_job {
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
    unsigned threads;
    uint64_t deadline_ns;
    long page_bytes;
};

/* The part of the buffer that one thread uses. */
static void slice_of(const struct probe_worker *w, size_t *ret_begin, size_t *ret_bytes)
{
    const struct memory_job *job = w->job;
    size_t slice = job->bytes / job->threads;

    *ret_begin = slice * w->index;
    *ret_bytes = w->index + 1 == job->threads ? job->bytes - *ret_begin : slice;
}

static void *copy_body(void *arg)
{
    struct probe_worker *w = arg;
    const struct memory_job *job = w->job;
    size_t begin, n;

    slice_of(w, &begin, &n);
    do {
        memcpy(job->dst + begin, job->src + begin, n);
        w->bytes += n;
    } while (vv_now_ns() < job->deadline_ns);
    return NULL;
}

static void *touch_body(void *arg)
{
    struct probe_worker *w = arg;
    const struct memory_job *job = w->job;
    size_t begin, n;

    slice_of(w, &begin, &n);
    for (size_t i = 0; i < n; i += (size_t)job->page_bytes)
        ((volatile unsigned char *)job->dst)[begin + i] = 1;
    w->bytes = n;
    return NULL;
}

static bool bad_memory_args(size_t bytes, unsigned threads, double seconds)
{
    return threads == 0 || threads > PROBE_THREADS_MAX || bytes < threads || bytes > SIZE_MAX / 2 ||
           !(seconds >= 0 && seconds <= 3600);
}

static unsigned char *map_memory(size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int probe_memcpy(size_t bytes, unsigned threads, double seconds, double *ret_bps)
{
    struct memory_job job = {.bytes = bytes, .threads = threads};
    struct probe_worker w[PROBE_THREADS_MAX];
    unsigned char *buf;
    double best = 0, bps = 0;
    int rc = 0;

    if (bad_memory_args(bytes, threads, seconds))
        return -EINVAL;
    buf = map_memory(2 * bytes);
    if (buf == MAP_FAILED)
        return -errno;
    memset(buf, 1, 2 * bytes); /* fault every page in */
    job.dst = buf;
    job.src = buf + bytes;
    probe_workers_init(w, threads, &job);
    for (int round = 0; rc == 0 && round < PROBE_ROUNDS; round++) {
        job.deadline_ns = probe_round_deadline_ns(seconds);
        rc = probe_workers_run(w, threads, copy_body, &bps);
        best = fmax(best, bps);
    }
    munmap(buf, 2 * bytes);
    if (rc == 0)
        *ret_bps = best;
    return rc;
}

int probe_touch(size_t bytes, unsigned threads, bool huge, double seconds, double *ret_bps)
{
    struct memory_job job = {
        .bytes = bytes, .threads = threads, .page_bytes = sysconf(_SC_PAGESIZE)};
    struct probe_worker w[PROBE_THREADS_MAX];
    uint64_t deadline;
    double best = 0, bps = 0;
    int rc = 0;

    if (bad_memory_args(bytes, threads, seconds))
        return -EINVAL;
    deadline = vv_now_ns() + (uint64_t)(seconds * 1e9);
    probe_workers_init(w, threads, &job);
    do {
        job.dst = map_memory(bytes);
        if (job.dst == MAP_FAILED)
            return -errno;
        /* Advice: a kernel without huge pages is measured as it is. */
        (void)madvise(job.dst, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        rc = probe_workers_run(w, threads, touch_body, &bps);
        best = fmax(best, bps);
        munmap(job.dst, bytes);
    } while (rc == 0 && vv_now_ns() < deadline);
    if (rc == 0)
        *ret_bps = best;
    return rc;
}

bool probe_differs(double a, double b, double tolerance)
{
    return fabs(a - b) > tolerance * fmin(a, b);
}
