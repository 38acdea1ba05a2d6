/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time until a context with a large host cache can be used, and until all of the cache is ready; and the delay
 * of the application's calls meanwhile.
 *
 * A small context is opened first and stays open, so that the start of a driver is not measured, as it does not
 * occur for an application that has used its GPU before. Until the cache is ready, versions of `size` (128M) are
 * checkpointed, restored and discarded in turn; with a device cache that is larger both are hits in it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <varve/ckpt.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"

static void check(struct varve_ctx *ctx, int rc, const char *what)
{
    if (rc == 0)
        return;
    struct varve_error e = {.error_size = sizeof(e)};
    if (varve_last_error(ctx, &e))
        e.text[0] = 0;
    fprintf(stderr, "%s: %s %s\n", what, varve_strerror(rc), e.text);
    exit(1);
}

struct times {
    double *ms;
    size_t n, cap;
};

static void times_add(struct times *t, uint64_t start_ns)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 1024;
        t->ms = realloc(t->ms, t->cap * sizeof(*t->ms));
        if (!t->ms)
            exit(1);
    }
    t->ms[t->n++] = (double)(vv_now_ns() - start_ns) / 1e6;
}

static void times_show(struct times *t, const char *what)
{
    if (t->n == 0)
        return;
    samples_sort(t->ms, t->n);
    printf("%s meanwhile: %zu, median %.3f ms, p99 %.3f ms, worst %.3f ms\n", what, t->n,
           t->ms[t->n / 2], t->ms[t->n - 1 - t->n / 100], t->ms[t->n - 1]);
    free(t->ms);
}

static struct varve_ctx *open_small(const struct varve_opts *opts)
{
    struct varve_opts small = *opts;
    struct varve_ctx *ctx;
    small.host_cache = small.device_cache = 4 << 20;
    check(NULL, varve_open(&small, &ctx), "open a small context");
    return ctx;
}

static const struct opts command = {
    .command = "bench_open",
    .usage = "[size=BYTES] [KEY=VALUE]...",
    .about =
        "Opens a context with a large host cache, and checkpoints versions of `size` (128M) until\n"
        "the cache is ready. Keys are those of the configuration: host_cache=32G device=cuda.",
    .operands = true,
};

int main(int argc, char **argv)
{
    struct varve_opts opts;
    uint64_t size = UINT64_C(128) << 20;
    int first, status = opts_parse(&command, argc, argv, NULL, &first);
    if (status >= 0)
        return status;
    check(NULL, varve_opts_init(&opts, sizeof(opts)), "options");
    for (int i = first; i < argc; i++) {
        char key[64];
        const char *value = strchr(argv[i], '=');
        if (!value || (size_t)(value - argv[i]) >= sizeof(key)) {
            opts_usage(stderr, &command);
            return 2;
        }
        snprintf(key, sizeof(key), "%.*s", (int)(value - argv[i]), argv[i]);
        if (strcmp(key, "size") == 0)
            check(NULL, vv_bytes_parse(value + 1, &size), argv[i]);
        else
            check(NULL, varve_opts_set(&opts, key, value + 1), argv[i]);
    }
    struct varve_ctx *before = open_small(&opts), *ctx;
    struct varve_history *h;
    struct times puts = {0}, gets = {0};

    uint64_t t0 = vv_now_ns();
    check(NULL, varve_open(&opts, &ctx), "open");
    uint64_t t1 = vv_now_ns();
    check(ctx, varve_history_open(ctx, "open", &h), "history");
    void *buf = NULL;
    bool device = varve_device_alloc(ctx, size, &buf) == 0;
    if (!device)
        buf = calloc(1, size);
    if (!buf)
        return 1;
    check(ctx, varve_protect(h, 0, buf, size), "protect");
    uint64_t t2 = vv_now_ns();
    check(ctx, varve_checkpoint(h, 0), "checkpoint");
    uint64_t t3 = vv_now_ns();
    printf("open %.1f ms, first checkpoint returned after %.1f ms (%.1f ms of it in the call)\n",
           (double)(t1 - t0) / 1e6, (double)(t3 - t0) / 1e6, (double)(t3 - t2) / 1e6);

    struct varve_stats s = {.stats_size = sizeof(s)};
    unsigned tier = device && opts.device_cache ? 1 : 0;
    uint64_t host;
    for (uint64_t v = 1;; v++) {
        check(ctx, varve_stats(ctx, &s), "stats");
        host = s.tier_bytes[tier];
        if (s.host_ready_bytes >= host)
            break;
        uint64_t t = vv_now_ns();
        check(ctx, varve_checkpoint(h, v), "checkpoint");
        times_add(&puts, t);
        t = vv_now_ns();
        check(ctx, varve_restore(h, v), "restore");
        times_add(&gets, t);
        check(ctx, varve_discard(h, v), "discard");
    }
    double ready_s = (double)(vv_now_ns() - t0) / 1e9;
    printf("all %.1f GiB of the host cache ready after %.3f s (%.1f GB/s)\n",
           (double)host / 1073741824.0, ready_s, (double)host / 1e9 / ready_s);
    times_show(&puts, "checkpoints");
    times_show(&gets, "restores");
    if (device)
        check(ctx, varve_device_free(ctx, buf), "free");
    else
        free(buf);
    uint64_t t4 = vv_now_ns();
    check(NULL, varve_close(ctx), "close");
    printf("close %.3f s\n", (double)(vv_now_ns() - t4) / 1e9);
    check(NULL, varve_close(before), "close");
    return 0;
}
