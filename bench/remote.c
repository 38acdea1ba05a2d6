/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For how long an application is blocked by its checkpoints to a shared folder, the plain way and
 * through Varve.
 *
 *     bench_remote SHARED_FOLDER [LOCAL_FOLDER] [MIB] [CHECKPOINTS]
 *
 * plain    write the buffer to a new file in the shared folder, fsync, rename, fsync the folder
 * remote   varve_checkpoint at level remote, through LOCAL_FOLDER, and without one
 *
 * Between two checkpoints the application computes for as long as bringing one to its end takes the
 * way that is measured: 1.2 times what the plain write takes, or what varve_wait for the remote level
 * took, whichever is longer; so that each has ended before the next begins. Varve's is counted as blocked while
 * varve_checkpoint has not returned. Every way writes the same bytes; they are read back and compared
 * at the end. One JSON object; times in milliseconds, medians.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "core/clock.h"
#include "core/util.h"

enum { MAX_CKPTS = 256 };

static size_t bytes;
static int nckpts;
static char *buf, *back;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void check(int rc, const char *what)
{
    struct varve_error e = {.error_size = sizeof(e)};
    if (rc == 0)
        return;
    if (varve_last_error(NULL, &e) == 0)
        fprintf(stderr, "%s: %s (%s)\n", what, varve_strerror(rc), e.text);
    exit(1);
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return v[n / 2];
}

static double ms_since(uint64_t start_ns)
{
    return (double)(vv_now_ns() - start_ns) / 1e6;
}

static void compute(double ms)
{
    uint64_t until = vv_now_ns() + (uint64_t)(ms * 1e6);
    volatile unsigned x = 0;
    while (vv_now_ns() < until)
        x++;
}

/* A different first word each time, so that no two checkpoints are alike. */
static void produce(int i)
{
    uint64_t word = (uint64_t)i;
    memcpy(buf, &word, sizeof(word));
}

static void write_plain(const char *folder, int i)
{
    char temp[1100], name[1100];
    snprintf(temp, sizeof(temp), "%s/plain-%d.tmp", folder, i);
    snprintf(name, sizeof(name), "%s/plain-%d", folder, i);
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        die(temp);
    for (size_t at = 0; at < bytes;) {
        ssize_t n = write(fd, buf + at, bytes - at);
        if (n < 0)
            die("write");
        at += (size_t)n;
    }
    if (fsync(fd) < 0 || close(fd) < 0 || rename(temp, name) < 0)
        die("commit");
    int dir = open(folder, O_RDONLY | O_DIRECTORY);
    if (dir < 0 || fsync(dir) < 0)
        die(folder);
    close(dir);
}

static double plain(const char *folder, double *ret_worst)
{
    double ms[MAX_CKPTS];
    char name[1100];
    for (int i = 0; i < nckpts; i++) {
        produce(i);
        uint64_t start = vv_now_ns();
        write_plain(folder, i);
        ms[i] = ms_since(start);
        snprintf(name, sizeof(name), "%s/plain-%d", folder, i);
        unlink(name);
    }
    double m = median(ms, nckpts);
    *ret_worst = ms[nckpts - 1];
    return m;
}

struct result {
    double blocked_ms, worst_ms, flush_ms;
};

static struct result varve_way(const char *shared, const char *local, double plain_ms)
{
    struct varve_opts o;
    struct varve_ctx *ctx;
    struct varve_history *h;
    struct result r = {0};
    double ms[MAX_CKPTS];
    check(varve_opts_init(&o, sizeof(o)), "options");
    o.device = VARVE_DEVICE_NONE;
    o.level = VARVE_LEVEL_REMOTE;
    o.host_cache = VV_MAX((uint64_t)4 * bytes, UINT64_C(64) << 20);
    snprintf(o.remote, sizeof(o.remote), "%s", shared);
    snprintf(o.local, sizeof(o.local), "%s", local ? local : "");
    check(varve_open(&o, &ctx), "open");
    check(varve_history_open(ctx, "bench", &h), "history");
    check(varve_protect(h, 0, buf, bytes), "protect");
    /* How long one takes to get there; and the cache is ready then. */
    produce(-1);
    uint64_t start = vv_now_ns();
    check(varve_checkpoint(h, 1000000), "checkpoint");
    check(varve_wait(h, 1000000, VARVE_LEVEL_REMOTE, -1), "wait");
    r.flush_ms = ms_since(start);
    double interval = 1.2 * VV_MAX(r.flush_ms, plain_ms);
    for (int i = 0; i < nckpts; i++) {
        produce(i);
        start = vv_now_ns();
        check(varve_checkpoint(h, (uint64_t)i), "checkpoint");
        ms[i] = ms_since(start);
        compute(interval);
    }
    check(varve_flush(h, -1), "flush");
    check(varve_protect(h, 0, back, bytes), "protect");
    for (int i = 0; i < nckpts; i++) {
        produce(i);
        check(varve_restore(h, (uint64_t)i), "restore");
        if (memcmp(buf, back, bytes) != 0) {
            fprintf(stderr, "checkpoint %d came back wrong\n", i);
            exit(1);
        }
        check(varve_discard(h, (uint64_t)i), "discard");
    }
    check(varve_discard(h, 1000000), "discard");
    check(varve_close(ctx), "close");
    r.blocked_ms = median(ms, nckpts);
    r.worst_ms = ms[nckpts - 1];
    return r;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_remote SHARED_FOLDER [LOCAL_FOLDER] [MIB] [CHECKPOINTS]\n");
        return 2;
    }
    const char *local = argc > 2 && argv[2][0] ? argv[2] : NULL;
    bytes = (size_t)(argc > 3 ? atoi(argv[3]) : 64) << 20;
    nckpts = argc > 4 ? VV_MIN(atoi(argv[4]), (int)MAX_CKPTS) : 10;
    if (bytes == 0 || nckpts < 1) {
        fprintf(stderr, "bench_remote: nothing to write\n");
        return 2;
    }
    buf = malloc(bytes);
    back = malloc(bytes);
    if (!buf || !back)
        die("memory");
    for (size_t i = 0; i < bytes; i++)
        buf[i] = (char)(i * 2654435761u >> 13);
    mkdir(argv[1], 0777);
    double worst, plain_ms = plain(argv[1], &worst);
    struct result direct = varve_way(argv[1], NULL, plain_ms), via = {0};
    if (local)
        via = varve_way(argv[1], local, plain_ms);
    printf("{\"mib\": %zu, \"checkpoints\": %d,\n"
           " \"plain\": {\"blocked_ms\": %.3f, \"worst_ms\": %.3f},\n"
           " \"remote\": {\"blocked_ms\": %.3f, \"worst_ms\": %.3f, \"flush_ms\": %.3f, "
           "\"times_less\": %.1f}",
           bytes >> 20, nckpts, plain_ms, worst, direct.blocked_ms, direct.worst_ms,
           direct.flush_ms, plain_ms / direct.blocked_ms);
    if (local)
        printf(",\n \"local_and_remote\": {\"blocked_ms\": %.3f, \"worst_ms\": %.3f, \"flush_ms\": "
               "%.3f, \"times_less\": %.1f}",
               via.blocked_ms, via.worst_ms, via.flush_ms, plain_ms / via.blocked_ms);
    printf("}\n");
    free(buf);
    free(back);
    return 0;
}
