/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of the two guarantees about files for an application: checkpoints to a shared folder, the plain way
 * and through Varve, and level `local` beside the same writes without checksums.
 *
 *     bench_remote SHARED_FOLDER [LOCAL_FOLDER] [MIB] [ROUNDS] [--check]
 *
 * Blocked. The ways take turns, one checkpoint each in a round:
 *   plain    write the buffer to a new file in the shared folder, fsync, rename, fsync the folder
 *   direct   varve_checkpoint at level remote, without a local folder
 *   local    the same through LOCAL_FOLDER
 * After a checkpoint the application computes for as long as bringing one to its level takes, and waits
 * for the level: the interval is never shorter than the flush. Varve's is counted as blocked while
 * varve_checkpoint has not returned. Bar: 5 times less than plain.
 *
 * Throughput of level local, in LOCAL_FOLDER (or else in the shared one). The ways take turns, FILES
 * checkpoints each in a round:
 *   writes   O_DIRECT writes of 1 MiB, 8 under way, to new files of known size; one fsync a file, beside the
 *            writes of the next; rename; one fsync of the folder; no checksums
 *   local    varve_checkpoint at level local, one right after the other, and varve_flush
 * Bar: 1.1 times the time of the writes.
 *
 * Ratios are those within a round, so that a machine whose speed drifts treats all ways alike, and the
 * median of them is what counts. Every way writes the same bytes; Varve's are read back and compared, not
 * timed. One JSON object; times in milliseconds, medians. --check: exit status 1 if a bar is missed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "base/util.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
#include "store/aio/aio.h"

enum { MAX_ROUNDS = 256, FILES = 8, BLOCK_BYTES = 1 << 20, BLOCKS_UNDER_WAY = 8, CACHED = 4 };
#define BAR_BLOCKED 5.0
#define BAR_LOCAL   1.1

static size_t bytes;
static int nrounds;
static char *buf, *back;

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static void check(int rc, const char *what)
{
    struct varve_error e = {.error_size = sizeof(e)};
    if (rc == 0)
        return;
    if (varve_last_error(NULL, &e) == 0)
        fprintf(stderr, "%s: %s (%s)\n", what, varve_strerror(rc), e.text);
    exit(2);
}

static double median(const double *v, int n)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, v, (size_t)n * sizeof(*v));
    return samples_median(sorted, (size_t)n);
}

static double most(const double *v, int n)
{
    double m = v[0];
    for (int i = 1; i < n; i++)
        m = VV_MAX(m, v[i]);
    return m;
}

static double ratio(const double *a, const double *b, int n)
{
    double r[MAX_ROUNDS];
    for (int i = 0; i < n; i++)
        r[i] = a[i] / b[i];
    return median(r, n);
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
static void produce(uint64_t i)
{
    memcpy(buf, &i, sizeof(i));
}

/* ---- plain files ---- */

static void sync_folder(const char *folder)
{
    int dir = open(folder, O_RDONLY | O_DIRECTORY);
    if (dir < 0 || fsync(dir) < 0)
        die(folder);
    close(dir);
}

static double write_plain(const char *folder, int i)
{
    char temp[1100], name[1100];
    snprintf(temp, sizeof(temp), "%s/plain-%d.tmp", folder, i);
    snprintf(name, sizeof(name), "%s/plain-%d", folder, i);
    uint64_t start = vv_now_ns();
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
    sync_folder(folder);
    double ms = ms_since(start);
    if (unlink(name) < 0)
        die(name);
    sync_folder(folder); /* the time to free it does not belong to a checkpoint */
    return ms;
}

/* The files of one round: blocks of the next go out while one is being synced. */
struct direct {
    struct vv_aio *aio;
    const char *folder;
    int nfiles, fd[FILES];
    size_t left[FILES]; /* bytes still to be written */
    struct vv_aio_req req[BLOCKS_UNDER_WAY], sync[FILES];
    struct iovec iov[BLOCKS_UNDER_WAY];
    size_t block[BLOCKS_UNDER_WAY]; /* bytes; a request's own fields change on the way */
    unsigned spare[BLOCKS_UNDER_WAY], nspare, under_way;
};

static void direct_name(const struct direct *d, int i, const char *end, char name[1100])
{
    snprintf(name, 1100, "%s/direct-%d%s", d->folder, i, end);
}

static void direct_begin(struct direct *d, int i)
{
    char temp[1100];
    direct_name(d, i, ".tmp", temp);
    d->fd[i] = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0666);
    if (d->fd[i] < 0)
        die(temp);
    if (fallocate(d->fd[i], 0, 0, (off_t)bytes) < 0 && errno != EOPNOTSUPP)
        die("fallocate");
    d->left[i] = bytes;
}

static void direct_reap(struct direct *d)
{
    struct vv_aio_req *done;
    char temp[1100], name[1100];
    if (vv_aio_wait(d->aio, &done, 1, -1) != 1 || done->result < 0)
        die("O_DIRECT write");
    d->under_way--;
    if (done->op == VV_AIO_FSYNC) {
        int i = (int)(done - d->sync);
        direct_name(d, i, ".tmp", temp);
        direct_name(d, i, "", name);
        if (close(d->fd[i]) < 0 || rename(temp, name) < 0)
            die("commit");
        return;
    }
    unsigned slot = (unsigned)(done - d->req);
    int i = (int)(intptr_t)done->user;
    d->spare[d->nspare++] = slot;
    d->left[i] -= d->block[slot];
    if (d->left[i] > 0)
        return;
    d->sync[i] = (struct vv_aio_req){.op = VV_AIO_FSYNC, .fd = d->fd[i]};
    vv_aio_submit(d->aio, &d->sync[i]);
    d->under_way++;
}

static double write_direct(const char *folder, int nfiles)
{
    struct direct d = {.folder = folder, .nfiles = nfiles};
    char name[1100];
    if (vv_aio_new(vv_os_posix(), VV_AIO_AUTO, BLOCKS_UNDER_WAY + FILES, &d.aio) < 0)
        die("aio");
    while (d.nspare < BLOCKS_UNDER_WAY)
        d.spare[d.nspare] = d.nspare, d.nspare++;
    uint64_t start = vv_now_ns();
    for (int i = 0; i < nfiles; i++) {
        direct_begin(&d, i);
        for (size_t at = 0; at < bytes; at += BLOCK_BYTES) {
            while (d.nspare == 0)
                direct_reap(&d);
            unsigned slot = d.spare[--d.nspare];
            d.block[slot] = VV_MIN((size_t)BLOCK_BYTES, bytes - at);
            d.iov[slot] = (struct iovec){buf + at, d.block[slot]};
            d.req[slot] = (struct vv_aio_req){.op = VV_AIO_WRITE,
                                              .fd = d.fd[i],
                                              .offset = at,
                                              .iov = &d.iov[slot],
                                              .niov = 1,
                                              .user = (void *)(intptr_t)i};
            vv_aio_submit(d.aio, &d.req[slot]);
            vv_aio_flush(d.aio);
            d.under_way++;
        }
    }
    while (d.under_way > 0)
        direct_reap(&d);
    sync_folder(folder);
    double ms = ms_since(start);
    vv_aio_free(d.aio);
    for (int i = 0; i < nfiles; i++) {
        direct_name(&d, i, "", name);
        if (unlink(name) < 0)
            die(name);
    }
    sync_folder(folder);
    return ms;
}

/* ---- Varve ---- */

struct way {
    struct varve_ctx *ctx;
    struct varve_history *h;
    enum varve_level level;
    uint64_t next;
    double flush_ms; /* to the level, as last seen */
    double blocked[MAX_ROUNDS], flush[MAX_ROUNDS];
};

static void way_open(struct way *w, const char *shared, const char *local, enum varve_level level)
{
    struct varve_opts o;
    check(varve_opts_init(&o, sizeof(o)), "options");
    o.device = VARVE_DEVICE_NONE;
    o.level = w->level = level;
    o.host_cache = VV_MAX((uint64_t)CACHED * bytes, UINT64_C(64) << 20);
    snprintf(o.remote, sizeof(o.remote), "%s", shared ? shared : "");
    snprintf(o.local, sizeof(o.local), "%s", local ? local : "");
    check(varve_open(&o, &w->ctx), "open");
    check(varve_history_open(w->ctx, level == VARVE_LEVEL_LOCAL ? "writes" : "blocked", &w->h),
          "history");
    check(varve_protect(w->h, 0, buf, bytes), "protect");
}

/* Restores the version and discards it. */
static void take_back(struct way *w, uint64_t version)
{
    produce(version);
    check(varve_protect(w->h, 0, back, bytes), "protect");
    check(varve_restore(w->h, version), "restore");
    if (memcmp(buf, back, bytes) != 0) {
        fprintf(stderr, "checkpoint %llu came back wrong\n", (unsigned long long)version);
        exit(2);
    }
    check(varve_protect(w->h, 0, buf, bytes), "protect");
    check(varve_discard(w->h, version), "discard");
    check(varve_flush(w->h, -1), "flush");
}

/* One checkpoint, and the computing after it. Returns for how long it blocked. */
static double put(struct way *w, double *ret_flush_ms)
{
    uint64_t version = w->next++;
    produce(version);
    uint64_t start = vv_now_ns();
    check(varve_checkpoint(w->h, version), "checkpoint");
    double blocked = ms_since(start);
    compute(w->flush_ms - blocked);
    check(varve_wait(w->h, version, w->level, -1), "wait");
    *ret_flush_ms = ms_since(start);
    return blocked;
}

static void round_of(struct way *w, int i)
{
    w->blocked[i] = put(w, &w->flush[i]);
    take_back(w, w->next - 1);
}

/* Uses every page of the cache once, and learns how long a flush takes. */
static void warm_up(struct way *w)
{
    double ms = 0;
    for (int i = 0; i < CACHED + 1; i++)
        put(w, &ms);
    w->flush_ms = ms;
    for (uint64_t v = 0; v < w->next; v++)
        take_back(w, v);
}

static double write_local(struct way *w, int nfiles)
{
    uint64_t first = w->next;
    uint64_t start = vv_now_ns();
    for (int i = 0; i < nfiles; i++) {
        produce(w->next);
        check(varve_checkpoint(w->h, w->next++), "checkpoint");
    }
    check(varve_flush(w->h, -1), "flush");
    double ms = ms_since(start);
    for (uint64_t v = first; v < w->next; v++)
        take_back(w, v);
    return ms;
}

/* ---- the two measurements ---- */

static struct json out;

static double print_way(const char *name, const struct way *w, const double *plain)
{
    double times = ratio(plain, w->blocked, nrounds);
    json_gap(&out, "\n  ");
    json_object(&out, name);
    json_number(&out, "blocked_ms", "%.3f", median(w->blocked, nrounds));
    json_number(&out, "worst_ms", "%.3f", most(w->blocked, nrounds));
    json_number(&out, "flush_ms", "%.3f", median(w->flush, nrounds));
    json_number(&out, "times_less", "%.2f", times);
    json_close(&out);
    return times;
}

/* True if the bar was met. */
static bool blocked(const char *shared, const char *local)
{
    static struct way direct, via;
    static double plain[MAX_ROUNDS];
    if (local) {
        char folder[1100];
        snprintf(folder, sizeof(folder), "%s/via", shared);
        mkdir(folder, 0777);
        way_open(&via, folder, local, VARVE_LEVEL_REMOTE);
        warm_up(&via);
    }
    way_open(&direct, shared, NULL, VARVE_LEVEL_REMOTE);
    warm_up(&direct);
    for (int i = 0; i < nrounds; i++) {
        plain[i] = write_plain(shared, i);
        round_of(&direct, i);
        if (local)
            round_of(&via, i);
    }
    check(varve_close(direct.ctx), "close");
    if (local)
        check(varve_close(via.ctx), "close");
    json_gap(&out, "\n ");
    json_object(&out, "blocked");
    json_gap(&out, "\n  ");
    json_object(&out, "plain");
    json_number(&out, "blocked_ms", "%.3f", median(plain, nrounds));
    json_number(&out, "worst_ms", "%.3f", most(plain, nrounds));
    json_close(&out);
    double times = print_way("direct", &direct, plain);
    if (local) {
        double other = print_way("local", &via, plain);
        times = VV_MIN(times, other);
    }
    json_gap(&out, "\n  ");
    json_number(&out, "bar", "%.1f", BAR_BLOCKED);
    json_bool(&out, "met", times >= BAR_BLOCKED);
    json_close(&out);
    return times >= BAR_BLOCKED;
}

static bool throughput(const char *folder)
{
    static struct way w;
    static double writes[MAX_ROUNDS], local[MAX_ROUNDS];
    way_open(&w, NULL, folder, VARVE_LEVEL_LOCAL);
    warm_up(&w);
    write_direct(folder, FILES);
    for (int i = 0; i < nrounds; i++) {
        writes[i] = write_direct(folder, FILES);
        local[i] = write_local(&w, FILES);
    }
    check(varve_close(w.ctx), "close");
    double gb = (double)FILES * (double)bytes / 1e6, times = ratio(local, writes, nrounds);
    json_gap(&out, "\n ");
    json_object(&out, "throughput");
    json_gap(&out, "\n  ");
    json_object(&out, "writes");
    json_number(&out, "ms", "%.3f", median(writes, nrounds));
    json_number(&out, "gb_per_s", "%.3f", gb / median(writes, nrounds));
    json_close(&out);
    json_gap(&out, "\n  ");
    json_object(&out, "local");
    json_number(&out, "ms", "%.3f", median(local, nrounds));
    json_number(&out, "gb_per_s", "%.3f", gb / median(local, nrounds));
    json_number(&out, "times_as_long", "%.3f", times);
    json_close(&out);
    json_gap(&out, "\n  ");
    json_number(&out, "bar", "%.2f", BAR_LOCAL);
    json_bool(&out, "met", times <= BAR_LOCAL);
    json_close(&out);
    return times <= BAR_LOCAL;
}

/* In huge pages, as Varve's cache is: direct writes from small ones take longer. */
static char *buffer(void)
{
    void *mem;
    if (posix_memalign(&mem, (size_t)2 << 20, bytes) != 0)
        die("memory");
    (void)madvise(mem, bytes, MADV_HUGEPAGE);
    return mem;
}

struct remote_opts {
    bool check;
    const char *shared, *local;
    uint32_t mib;
    int rounds;
};

#define AT(field) offsetof(struct remote_opts, field)

static int set_local(const char *value, void *options)
{
    ((struct remote_opts *)options)->local = *value ? value : NULL;
    return 0;
}

static const struct opt options[] = {
    {OPT_TEXT, .arg = "SHARED_FOLDER", .at = AT(shared), .help = "is made"},
    {OPT_SET, .arg = "LOCAL_FOLDER", .optional = true, .set = set_local, .help = "empty: none"},
    {OPT_U32, .arg = "MIB", .optional = true, .at = AT(mib), .least = 1, .help = "a file (64)"},
    {OPT_INT, .arg = "ROUNDS", .optional = true, .at = AT(rounds), .least = 1, .most = MAX_ROUNDS,
     .help = "how many (11)"},
    {OPT_FLAG, .name = "check", .at = AT(check), .help = "exit 1 if a bar is missed"},
};

static const struct opts command = {
    .command = "bench_remote",
    .usage = "SHARED_FOLDER [LOCAL_FOLDER] [MIB] [ROUNDS] [--check]",
    .about = "Compares levels remote and local with plain writes.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    struct remote_opts o = {.mib = 64, .rounds = 11};
    int status = opts_parse(&command, argc, argv, &o, NULL);

    if (status >= 0)
        return status;
    bytes = (size_t)o.mib << 20;
    nrounds = o.rounds;
    buf = buffer();
    back = buffer();
    for (size_t i = 0; i < bytes; i++)
        buf[i] = (char)(i * 2654435761u >> 13);
    memset(back, 1, bytes);
    mkdir(o.shared, 0777);
    if (o.local)
        mkdir(o.local, 0777);
    out = json_begin(stdout, JSON_SPACED);
    json_object(&out, NULL);
    json_uint(&out, "mib", bytes >> 20);
    json_int(&out, "rounds", nrounds);
    bool met = blocked(o.shared, o.local);
    met &= throughput(o.local ? o.local : o.shared);
    json_close(&out);
    json_end(&out);
    free(buf);
    free(back);
    return o.check && !met ? 1 : 0;
}
