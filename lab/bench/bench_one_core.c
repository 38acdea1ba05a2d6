/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The use that the library makes of one core: the process is bound to one processor, library included, and
 * checkpoints versions in host memory to committed files, and restores them.
 *
 * The passes over each byte are measured first, each alone, in processor time of that core: copying
 * it into the cache, its checksum, its way to the disk, and back. A version on the disk costs at
 * least their sum, which is the prediction: nothing else has to be done with its bytes. Then the
 * library does all of it. The result is the predicted processor time divided by the used one.
 * Neither the disk nor other programs change it much. It has to be at least 0.7 (--min).
 *
 *   bench_one_core [--dir FOLDER] [--size BYTES] [--versions N] [--rounds N] [--buffered] [--no-sync] [--min R]
 *
 * Exit status 1 when the median is below the bar, for checkpoints or for restores.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "base/copy.h"
#include "base/hash.h"
#include "cli/common/options.h"
#include "store/aio/aio.h"
#include "store/os.h"

enum { ROUNDS_MAX = 32, BATCH = 1 << 20, DEPTH = 8, CHUNK = 256 << 10 };

struct bench {
    const char *dir;
    uint64_t size;
    uint32_t versions, rounds;
    bool buffered, no_sync;
    double min_ratio;
    char *app, *cache; /* `size` each, in huge pages */
};

/* Seconds of processor time for each GB, of one pass. */
struct passes {
    double copy, sum, write, read;
};

static void ok(int rc, const char *what)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "bench_one_core: %s: %s\n", what, strerror(-rc));
    exit(2);
}

static double cpu_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void bind_to_one(void)
{
    cpu_set_t all, one;
    int cpu = 0;

    ok(sched_getaffinity(0, sizeof(all), &all) < 0 ? -errno : 0, "affinity");
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ok(sched_setaffinity(0, sizeof(one), &one) < 0 ? -errno : 0, "affinity");
}

static char *memory(uint64_t bytes)
{
    void *p = NULL;

    ok(-posix_memalign(&p, (size_t)2 << 20, bytes), "memory");
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    for (uint64_t i = 0; i < bytes; i += sizeof(i))
        memcpy((char *)p + i, &(uint64_t){i * UINT64_C(0x9e3779b97f4a7c15)}, sizeof(i));
    return p;
}

/* ---- passes ---- */

/* The bytes of a version through the disk, in batches as the movers do them. */
static double move(struct bench *b, struct vv_aio *aio, int fd, enum vv_aio_op op)
{
    uint64_t nr = b->size / BATCH;
    struct vv_aio_req *reqs = calloc(nr, sizeof(*reqs)), *done[DEPTH];
    struct iovec *iov = calloc(nr, sizeof(*iov));
    uint64_t sent = 0, ended = 0;
    double start = cpu_s();

    if (!reqs || !iov)
        ok(-ENOMEM, "memory");
    while (ended < nr) {
        for (; sent < nr && sent - ended < DEPTH; sent++) {
            iov[sent] = (struct iovec){b->cache + sent * BATCH, BATCH};
            reqs[sent] = (struct vv_aio_req){.op = op,
                                             .fd = fd,
                                             .offset = sent * BATCH,
                                             .iov = &iov[sent],
                                             .niov = 1,
                                             .may_block = b->buffered};
            vv_aio_submit(aio, &reqs[sent]);
        }
        vv_aio_flush(aio);
        int n = vv_aio_wait(aio, done, DEPTH, -1);
        ok(n, "transfer");
        for (int i = 0; i < n; i++)
            ok(done[i]->result, "transfer");
        ended += (uint64_t)n;
    }
    if (op == VV_AIO_WRITE && !b->no_sync)
        ok(fdatasync(fd) < 0 ? -errno : 0, "sync");
    start = cpu_s() - start;
    free(reqs);
    free(iov);
    return start;
}

/* Writes as many files as the library. The page cache is cheaper if it reuses its own memory than
 * if it takes memory that was never used, above all in a virtual machine. */
static void measure_disk(struct bench *b, struct passes *p)
{
    struct vv_aio *aio;
    int *fd = calloc(b->versions, sizeof(*fd));

    ok(fd ? 0 : -ENOMEM, "memory");
    ok(vv_aio_new(vv_os_posix(), VV_AIO_AUTO, DEPTH, &aio), "aio");
    p->write = p->read = 0;
    for (uint32_t i = 0; i < b->versions; i++) {
        char path[4096];

        snprintf(path, sizeof(path), "%s/one-core.data", b->dir);
        fd[i] = open(path, O_RDWR | O_CREAT | O_TRUNC | (b->buffered ? 0 : O_DIRECT), 0600);
        ok(fd[i] < 0 ? -errno : 0, path);
        unlink(path);
        ok(-posix_fallocate(fd[i], 0, (off_t)b->size), "space");
        p->write += move(b, aio, fd[i], VV_AIO_WRITE);
    }
    for (uint32_t i = 0; i < b->versions; i++) {
        p->read += move(b, aio, fd[i], VV_AIO_READ);
        close(fd[i]);
    }
    p->write /= b->versions;
    p->read /= b->versions;
    vv_aio_free(aio);
    free(fd);
}

static struct passes measure(struct bench *b)
{
    double gb = (double)b->size / 1e9, start;
    struct passes p;
    struct vv_copy_seg seg = {b->cache, b->app, b->size};
    uint64_t sum = 0;

    start = cpu_s();
    vv_copy_parallel(NULL, &seg, 1);
    p.copy = cpu_s() - start;
    start = cpu_s();
    for (uint64_t at = 0; at < b->size; at += CHUNK)
        sum += vv_hash64(b->cache + at, CHUNK);
    p.sum = cpu_s() - start;
    *(volatile uint64_t *)b->cache = sum; /* so that the loop is not optimised away */
    measure_disk(b, &p);
    p.copy /= gb;
    p.sum /= gb;
    p.write /= gb;
    p.read /= gb;
    return p;
}

/* ---- the library ---- */

struct used {
    double put, get; /* seconds of processor time for each GB */
};

/* Touching the cache is not a pass over checkpointed bytes. */
static void wait_until_ready(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};

    do {
        vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
        ok(varve_stats(ctx, &s), "statistics");
    } while (s.host_ready_bytes + s.page_bytes <= s.tier_bytes[0]);
}

static struct used run(struct bench *b, uint32_t round)
{
    double gb = (double)b->size * b->versions / 1e9, start;
    struct varve_history_opts ho;
    struct varve_history *h;
    struct varve_ctx *ctx;
    struct varve_opts o;
    struct used used;
    char name[32];

    ok(varve_opts_init(&o, sizeof(o)), "options");
    snprintf(o.local, sizeof(o.local), "%s", b->dir);
    o.device = VARVE_DEVICE_NONE;
    o.host_cache = 2 * b->size; /* so that nearly all of it goes through the disk */
    o.level = VARVE_LEVEL_LOCAL;
    o.local_io = b->buffered ? VARVE_LOCAL_IO_BUFFERED : VARVE_LOCAL_IO_DIRECT;
    o.local_sync = b->no_sync ? VARVE_LOCAL_SYNC_OFF : VARVE_LOCAL_SYNC_COMMIT;
    ok(varve_open(&o, &ctx), "open");
    ok(varve_history_opts_init(&ho, sizeof(ho)), "options");
    snprintf(name, sizeof(name), "one-core-%" PRIu32, round);
    ok(varve_history_open_with(ctx, name, &ho, &h), "history");
    ok(varve_protect(h, 0, b->app, b->size), "protect");
    wait_until_ready(ctx);
    start = cpu_s();
    for (uint64_t v = 0; v < b->versions; v++) {
        memcpy(b->app, &v, sizeof(v));
        ok(varve_checkpoint(h, v), "checkpoint");
    }
    ok(varve_wait(h, b->versions - 1, VARVE_LEVEL_LOCAL, -1), "wait");
    used.put = (cpu_s() - start) / gb;
    start = cpu_s();
    for (uint64_t v = 0; v < b->versions; v++) {
        uint64_t found;

        ok(varve_restore(h, v), "restore");
        memcpy(&found, b->app, sizeof(found));
        ok(found == v ? 0 : -EBADMSG, "restored bytes");
    }
    used.get = (cpu_s() - start) / gb;
    for (uint64_t v = 0; v < b->versions; v++)
        ok(varve_discard(h, v), "discard");
    ok(varve_history_close(h), "close");
    ok(varve_close(ctx), "close");
    return used;
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

static double median(double *x, uint32_t n)
{
    qsort(x, n, sizeof(*x), by_value);
    return x[n / 2];
}

#define AT(field) offsetof(struct bench, field)

static const struct opt options[] = {
    {OPT_TEXT, .name = "dir", .arg = "FOLDER", .at = AT(dir), .help = "on the disk (.)"},
    {OPT_BYTES, .name = "size", .arg = "BYTES", .least = BATCH, .at = AT(size),
     .help = "of a version (128M)"},
    {OPT_U32, .name = "versions", .arg = "N", .at = AT(versions), .least = 1, .most = 10000,
     .help = "in each round (12)"},
    {OPT_U32, .name = "rounds", .arg = "N", .at = AT(rounds), .least = 1, .most = ROUNDS_MAX,
     .help = "of passes and library in turns (5)"},
    {OPT_FLAG, .name = "buffered", .at = AT(buffered), .help = "through the page cache"},
    {OPT_FLAG, .name = "no-sync", .at = AT(no_sync), .help = "local_sync = off"},
    {OPT_REAL, .name = "min", .arg = "R", .low = 0, .high = 1, .at = AT(min_ratio),
     .help = "the bar (0.7)"},
};

static const struct opts command = {
    .command = "bench_one_core",
    .usage = "[OPTION]...",
    .about = "Compares the library on one core with the passes over each byte.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    struct bench b = {.dir = ".", .size = 128 << 20, .versions = 12, .rounds = 5, .min_ratio = 0.7};
    int status = opts_parse(&command, argc, argv, &b, NULL);
    double put[ROUNDS_MAX], get[ROUNDS_MAX], p, g;

    if (status >= 0)
        return status;
    b.size = vv_align_down(VV_MAX(b.size, (uint64_t)BATCH), (uint64_t)BATCH);
    bind_to_one();
    b.app = memory(b.size);
    b.cache = memory(b.size);
    printf("one core, versions of %" PRIu64 " MiB, %s, %s; seconds of processor time for each GB\n",
           b.size >> 20, b.buffered ? "buffered" : "direct", b.no_sync ? "not synced" : "synced");
    for (uint32_t r = 0; r < b.rounds; r++) {
        struct passes s = measure(&b);
        struct used u = run(&b, r);
        double want_put = s.copy + s.sum + s.write, want_get = s.read + s.sum + s.copy;

        put[r] = want_put / u.put;
        get[r] = want_get / u.get;
        printf("copy %.3f, checksum %.3f, write %.3f, read %.3f; checkpoint %.3f of %.3f (%.2f), "
               "restore %.3f of %.3f (%.2f)\n",
               s.copy, s.sum, s.write, s.read, want_put, u.put, put[r], want_get, u.get, get[r]);
        fflush(stdout);
    }
    p = median(put, b.rounds);
    g = median(get, b.rounds);
    printf("medians, predicted over used: checkpoint %.2f, restore %.2f (at least %.2f)%s\n", p, g,
           b.min_ratio, p < b.min_ratio || g < b.min_ratio ? "   MISSED" : "");
    return p < b.min_ratio || g < b.min_ratio;
}
