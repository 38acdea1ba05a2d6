/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Level cached in host memory only: how long is an application blocked by 64 checkpoints of 32 MiB
 * and by restoring them, compared with a plain memcpy of the same bytes in the same run?
 *
 * The comparison copies from the same buffer into memory as large as the cache, touched before, so
 * that both sides pay for the same cache misses and neither for page faults. Copies and checkpoints
 * take turns, so that both see the same machine; the median of each pair of rounds is compared.
 *
 *     bench_cached_memcpy [VERSIONS [MIB]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"

#define ROUNDS 5

static void check(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, varve_strerror(rc));
    exit(1);
}

static void *touched(size_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    return p;
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(vv_now_ns() - start_ns) / 1e9;
}

struct result {
    double put, get, copy_out, copy_in, first, last;
};

static void one_round(uint64_t n, size_t bytes, char *plain, char *buf, struct result *ret_result)
{
    struct varve_opts opts;
    struct varve_ctx *ctx;
    struct varve_history *h;
    struct result r = {0};
    check(varve_opts_init(&opts, sizeof(opts)), "options");
    opts.device = VARVE_DEVICE_NONE;
    opts.host_cache = n * bytes;
    check(varve_open(&opts, &ctx), "open");
    check(varve_history_open(ctx, "memcpy", &h), "history");
    check(varve_protect(h, 0, buf, bytes), "protect");
    for (uint64_t v = 0; v < n; v++) {
        memset(buf, (int)(v + 1), bytes);
        uint64_t t = vv_now_ns();
        memcpy(plain + v * bytes, buf, bytes);
        r.copy_out += seconds_since(t);
        memset(buf, (int)(v + 1), bytes);
        t = vv_now_ns();
        check(varve_checkpoint(h, v), "checkpoint");
        r.put += seconds_since(t);
    }
    for (uint64_t v = n; v-- > 0;) {
        uint64_t t = vv_now_ns();
        memcpy(buf, plain + v * bytes, bytes);
        r.copy_in += seconds_since(t);
        memset(buf, 0, bytes);
        t = vv_now_ns();
        check(varve_restore(h, v), "restore");
        double took = seconds_since(t);
        r.get += took;
        if (v == n - 1)
            r.first = took;
        r.last = took;
        if (memcmp(buf, plain + v * bytes, bytes) != 0) {
            fprintf(stderr, "version %llu: wrong bytes\n", (unsigned long long)v);
            exit(1);
        }
    }
    check(varve_close(ctx), "close");
    *ret_result = r;
}

struct memcpy_opts {
    uint32_t versions, mib;
};

static const struct opt options[] = {
    {OPT_U32, .arg = "VERSIONS", .optional = true, .help = "how many (64)",
     .at = offsetof(struct memcpy_opts, versions), .least = 1},
    {OPT_U32, .arg = "MIB", .optional = true, .help = "of each (32)",
     .at = offsetof(struct memcpy_opts, mib), .least = 1},
};

static const struct opts command = {
    .command = "bench_cached_memcpy",
    .usage = "[VERSIONS [MIB]]",
    .about = "Compares checkpoints and restores in host memory with memcpy.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    struct memcpy_opts o = {64, 32};
    int status = opts_parse(&command, argc, argv, &o, NULL);

    if (status >= 0)
        return status;
    uint64_t n = o.versions;
    size_t bytes = (size_t)o.mib << 20;
    double put[ROUNDS], get[ROUNDS], ramp[ROUNDS];
    char *plain = touched(n * bytes), *buf = touched(bytes);
    printf("%llu x %zu MiB, %d rounds\n", (unsigned long long)n, bytes >> 20, ROUNDS);
    printf("%10s %10s %8s %10s %10s %8s %12s\n", "put s", "memcpy s", "ratio", "get s", "memcpy s",
           "ratio", "first/last");
    for (int i = 0; i < ROUNDS; i++) {
        struct result r;
        one_round(n, bytes, plain, buf, &r);
        put[i] = r.put / r.copy_out;
        get[i] = r.get / r.copy_in;
        ramp[i] = r.first / r.last;
        printf("%10.4f %10.4f %8.3f %10.4f %10.4f %8.3f %12.3f\n", r.put, r.copy_out, put[i], r.get,
               r.copy_in, get[i], ramp[i]);
    }
    printf("median: checkpoint %.3f x memcpy, restore %.3f x memcpy, first restore %.3f x last\n",
           samples_median(put, ROUNDS), samples_median(get, ROUNDS), samples_median(ramp, ROUNDS));
    return 0;
}
