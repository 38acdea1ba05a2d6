/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls whose cost must not grow with what there is already:
 *
 *   - protecting 50,000 regions, in ascending and in descending order (bar: 0.2 s ascending);
 *   - discarding VERSIONS versions (20,000) at level local, newest first and oldest first (bar:
 *     newest first takes at most 2 times as long), and the memory that stays allocated for each
 *     discarded version (bar: 4 bytes);
 *   - the size of the index after that, with 5 versions left (bar: 16 KiB).
 *
 * Exit status 1 when a bar is missed.
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "cli/common/options.h"

enum { REGIONS = 50000, KEPT = 5, ROUNDS = 5, AT_ONCE = 256 };

static int failed;

static void ok(int rc, const char *what)
{
    if (rc < 0) {
        fprintf(stderr, "ckpt_calls: %s: %s\n", what, strerror(-rc));
        exit(2);
    }
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(vv_now_ns() - start_ns) / 1e9;
}

static void bar(const char *what, double value, double most)
{
    bool missed = value > most;
    failed |= missed;
    printf("%-48s %10.3f%s\n", what, value, missed ? "   MISSED" : "");
}

static struct varve_ctx *open_in(const char *folder)
{
    struct varve_opts opts;
    struct varve_ctx *ctx;
    ok(varve_opts_init(&opts, sizeof(opts)), "options");
    snprintf(opts.local, sizeof(opts.local), "%s", folder);
    opts.host_cache = 64 << 20;
    opts.level = VARVE_LEVEL_LOCAL;
    ok(varve_open(&opts, &ctx), "open");
    return ctx;
}

static double protect(struct varve_ctx *ctx, const char *name, bool descending)
{
    static char byte[REGIONS];
    struct varve_history *h;
    ok(varve_history_open(ctx, name, &h), name);
    uint64_t start = vv_now_ns();
    for (int i = 0; i < REGIONS; i++) {
        int id = descending ? REGIONS - 1 - i : i;
        ok(varve_protect(h, id, &byte[id], 1), "protect");
    }
    double s = seconds_since(start);
    ok(varve_history_close(h), "close");
    return s;
}

static uint64_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Seconds that discarding takes, removal of the files included. */
static double discard(struct varve_ctx *ctx, const char *name, uint64_t n, bool reverse,
                      double *ret_bytes)
{
    struct varve_history *h;
    char byte = 0;
    ok(varve_history_open(ctx, name, &h), name);
    ok(varve_protect(h, 0, &byte, 1), "protect");
    for (uint64_t v = 0; v < n + KEPT; v++)
        ok(varve_checkpoint(h, v), "checkpoint");
    ok(varve_flush(h, -1), "flush");
    uint64_t start = vv_now_ns();
    for (uint64_t i = 0; i < n; i++)
        ok(varve_discard(h, reverse ? n - 1 - i : i), "discard");
    double s = seconds_since(start);
    ok(varve_flush(h, -1), "flush");
    /* The library keeps freed memory up to its maximum use, which discarding a few at a time reaches in the first
     * round. */
    uint64_t next = n + KEPT, heap[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < n; i += AT_ONCE, next += AT_ONCE) {
            for (uint64_t v = next; v < next + AT_ONCE; v++)
                ok(varve_checkpoint(h, v), "checkpoint");
            ok(varve_flush(h, -1), "flush");
            for (uint64_t v = next; v < next + AT_ONCE; v++)
                ok(varve_discard(h, v), "discard");
            ok(varve_flush(h, -1), "flush");
        }
        heap[round] = heap_bytes();
    }
    double grown = (double)heap[ROUNDS - 1] - (double)heap[1];
    *ret_bytes = grown > 0 ? grown / (double)(n * (ROUNDS - 2)) : 0;
    ok(varve_history_close(h), "close");
    return s;
}

struct calls_opts {
    const char *folder;
    uint64_t versions;
};

static const struct opt options[] = {
    {OPT_TEXT, .arg = "FOLDER", .at = offsetof(struct calls_opts, folder),
     .help = "best one in memory: files take most of the time"},
    {OPT_U64, .arg = "VERSIONS", .optional = true, .at = offsetof(struct calls_opts, versions),
     .least = 1, .help = "to discard (20000)"},
};

static const struct opts command = {
    .command = "bench_ckpt_calls",
    .usage = "FOLDER [VERSIONS]",
    .about = "Measures calls whose cost must not grow with what there is already.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    struct calls_opts o = {.versions = 20000};
    int status = opts_parse(&command, argc, argv, &o, NULL);
    if (status >= 0)
        return status;
    uint64_t n = o.versions;
    char path[4096];
    struct stat st;
    double bytes[2];
    struct varve_ctx *ctx = open_in(o.folder);
    bar("50,000 regions, ascending (s)", protect(ctx, "ascending", false), 0.2);
    printf("%-48s %10.3f\n", "50,000 regions, descending (s)", protect(ctx, "descending", true));
    double forward = discard(ctx, "forward", n, false, &bytes[0]);
    double reverse = discard(ctx, "reverse", n, true, &bytes[1]);
    printf("%-48s %10.3f\n", "discarding, first first (us each)", forward / (double)n * 1e6);
    printf("%-48s %10.3f\n", "discarding, last first (us each)", reverse / (double)n * 1e6);
    bar("last first over first first", reverse / forward, 2);
    bar("memory that stays (bytes each)", bytes[0] > bytes[1] ? bytes[0] : bytes[1], 4);
    ok(varve_close(ctx), "close");
    snprintf(path, sizeof(path), "%s/reverse/index.0", o.folder);
    if (stat(path, &st) == 0)
        bar("index (KiB)", (double)st.st_size / 1024, 16);
    return failed;
}
