/* SPDX-License-Identifier: Apache-2.0 */
/* Levels remote and complete with copies in an object store: number of requests for opening, reading from
 * there when the local disk is lost or damaged, failures and wrong bytes of the store, kills of a
 * process during an upload, and an earlier run of the job that continues to write. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "base/util.h"
#include "store/files/ckfile.h"
#include "store/target/s3/target_s3.h"
#include "t.h"
#include "t_s3.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 3 * PAGE + 5, LARGE = (11 << 20) + 3 };

static char *buf;

static void put(struct varve_history *h, uint64_t v, size_t bytes)
{
    ck_fill(buf, bytes, v, 0);
    T_OK(varve_protect(h, 2, buf, bytes));
    T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
}

static int try_get(struct varve_history *h, uint64_t v, size_t bytes)
{
    memset(buf, 0, bytes);
    T_OK(varve_protect(h, 2, buf, bytes));
    int rc = varve_restore_for(h, v, CK_LIMIT_MS);
    if (rc == 0)
        ck_check(buf, bytes, v, 0);
    return rc;
}

static struct ck_cfg config(int level, size_t host_cache)
{
    return (struct ck_cfg){
        .host_cache = host_cache, .local = t_tmpdir(), .remote = t_shared(), .level = level};
}

static void reset(void)
{
    (void)t_s3_admin("/_reset", "");
}

/* Another node, without local files, opens a thousand versions and reads some. */
static void open_elsewhere(struct ck_cfg cfg, unsigned n)
{
    cfg.local = t_tmpdir();
    struct varve_ctx *ctx = ck_open(&cfg);
    reset();
    struct varve_history *h = ck_history(ctx, "many");
    unsigned long requests = t_s3_requests(NULL);
    t_note("%lu requests open %u versions", requests, n);
    T_CHECK(requests <= 10);
    T_EQ(ck_count(h), n);
    for (uint64_t v = n; v-- > n - 20;)
        T_OK(try_get(h, v, BYTES));
    T_OK(varve_close(ctx));
}

static void test_opening(void)
{
    enum { N = 1000 };
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, 64 * PAGE);
    cfg.close_timeout_ms = -1; /* many uploads may be left, which take long on a busy machine */
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "many");
    for (uint64_t v = 0; v < N; v++)
        put(h, v, BYTES);
    T_OK(varve_close(ctx));
    open_elsewhere(cfg, N);
    /* A killed run leaves an index that lacks a few versions. */
    cfg.local = t_tmpdir();
    pid_t child = fork();
    T_CHECK(child >= 0);
    if (child == 0) {
        ctx = ck_open(&cfg);
        h = ck_history(ctx, "many");
        for (uint64_t v = N; v < N + 30; v++) {
            put(h, v, BYTES);
            T_OK(varve_wait(h, v, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
        }
        _exit(0);
    }
    int status;
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    open_elsewhere(cfg, N + 30);
}

/* Every request of a run fails once, one after the other, in every way: all versions are right in the end. */
static void one_fault(const char *what, unsigned skip, bool *ret_hit)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, 16 * PAGE);
    char fault[128];
    reset();
    snprintf(fault, sizeof(fault), "{\"what\": %s, \"skip\": %u, \"count\": 1}", what, skip);
    t_s3_fault(fault);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "f");
    for (uint64_t v = 0; v < 2; v++)
        put(h, v, BYTES);
    T_OK(varve_wait(h, 1, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS));
    T_OK(varve_discard(h, 0));
    T_OK(varve_close(ctx));
    *ret_hit = t_s3_requests(NULL) > skip;
    cfg.local = t_tmpdir();
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "f");
    T_EQ(ck_count(h), 1);
    T_OK(try_get(h, 1, BYTES));
    T_OK(varve_close(ctx));
}

static void test_faults(void)
{
    static const char *const faults[] = {"500", "503", "\"reset\"", "\"lost\"", "\"cut\""};
    unsigned n = 0;
    for (size_t i = 0; i < VV_ARRAY_SIZE(faults); i++) {
        bool hit = true;
        for (unsigned skip = (unsigned)i % 3; hit; skip += t_long() ? 1 : 3, n++)
            one_fault(faults[i], skip, &hit);
    }
    t_note("%u faults", n);
}

/* Wrong bytes are always detected; damage on local disk is healed from the store. */
static void test_wrong_bytes(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, 16 * PAGE);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "w");
    put(h, 0, BYTES);
    T_OK(varve_close(ctx));
    const char *local = cfg.local;
    cfg.local = t_tmpdir();
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "w");
    reset();
    t_s3_fault("{\"what\": \"wrong\", \"method\": \"GET\", \"match\": \"ckpt\", \"count\": 1000}");
    T_ERR(try_get(h, 0, BYTES), -EBADMSG);
    reset();
    T_OK(try_get(h, 0, BYTES));
    T_OK(varve_close(ctx));

    char command[512];
    snprintf(command, sizeof(command),
             "printf x | dd of=$(ls %s/w/r0.v0.*.ckpt) bs=1 seek=5000 conv=notrunc 2>/dev/null",
             local);
    T_EQ(system(command), 0);
    cfg.local = local;
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "w");
    T_OK(try_get(h, 0, BYTES));
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    T_CHECK(s.healed_chunks > 0);
    for (int i = 0; i < CK_LIMIT_MS && s.repaired_chunks == 0; i++) {
        usleep(1000);
        T_OK(varve_stats(ctx, &s));
    }
    T_CHECK(s.repaired_chunks > 0);
    T_OK(varve_close(ctx));
}

/* Histories of one context have versions of the same numbers. */
static void test_two_histories(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, 16 * PAGE);
    struct varve_history *h[2];
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        struct varve_ctx *ctx = ck_open(&cfg);
        h[0] = ck_history(ctx, "one");
        h[1] = ck_history(ctx, "two");
        for (uint64_t v = 0; v < 4 && !elsewhere; v++)
            put(h[v % 2], v / 2, BYTES);
        /* Their bytes depend on the version written first. */
        for (int i = 0; i < 2 && !elsewhere; i++) {
            ck_fill(buf, BYTES, 0, i);
            T_OK(varve_protect(h[i], 2, buf, BYTES));
            T_OK(varve_checkpoint_for(h[i], 7, CK_LIMIT_MS));
        }
        for (int i = 0; i < 2 && elsewhere; i++) {
            T_OK(varve_protect(h[i], 2, buf, BYTES));
            T_OK(varve_restore_for(h[i], 7, CK_LIMIT_MS));
            ck_check(buf, BYTES, 0, i);
        }
        T_OK(varve_close(ctx));
        cfg.local = t_tmpdir();
    }
}

/* There are no locks: the rank belongs to the run that opened last; writes of another run fail and
 * leave nothing. */
static void test_former_life(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, 16 * PAGE), later = cfg;
    struct varve_ctx *before = ck_open(&cfg);
    struct varve_history *h = ck_history(before, "l");
    put(h, 0, BYTES);
    T_OK(varve_wait(h, 0, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    later.local = t_tmpdir();
    struct varve_ctx *ctx = ck_open(&later);
    struct varve_history *now = ck_history(ctx, "l");
    put(now, 1, BYTES);
    T_OK(varve_wait(now, 1, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    put(h, 2, BYTES);
    T_ERR(varve_wait(h, 2, VARVE_LEVEL_REMOTE, CK_LIMIT_MS), -ECANCELED);
    T_CHECK(varve_close(before) != 0);
    T_OK(varve_close(ctx));
    later.local = t_tmpdir();
    ctx = ck_open(&later);
    now = ck_history(ctx, "l");
    T_EQ(ck_count(now), 2);
    T_OK(try_get(now, 0, BYTES));
    T_OK(try_get(now, 1, BYTES));
    T_OK(varve_close(ctx));
}

/* Addresses that hold credentials are refused, and not shown. */
static void test_credentials_in_address(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, 16 * PAGE);
    struct varve_opts opts;
    struct varve_ctx *ctx;
    cfg.remote = "s3://KEY:SECRET@bucket/x";
    ck_opts(&cfg, &opts);
    T_ERR(varve_open(&opts, &ctx), -EINVAL);
    T_CHECK(strstr(varve_error(NULL), "BUCKET/PREFIX"));
    T_CHECK(!strstr(varve_error(NULL), "SECRET"));
}

/* A former life leaves the index to the later one. */
static void test_former_index(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, 64 * PAGE), later = cfg;
    struct varve_ctx *before = ck_open(&cfg);
    struct varve_history *h = ck_history(before, "i");
    uint64_t n = 256; /* from here on the index in the store may lack one */
    for (uint64_t v = 0; v < n; v++) {
        put(h, v, 100);
        T_OK(varve_wait(h, v, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    }
    later.local = t_tmpdir();
    struct varve_ctx *ctx = ck_open(&later);
    T_EQ(ck_count(ck_history(ctx, "i")), n);
    reset();
    T_OK(varve_close(before));
    T_EQ(t_s3_requests("PUT"), 0);
    T_OK(varve_close(ctx));
}

/* The number of ranks that wrote a history cannot be read: a job of one rank must not take a half for the whole. */
static void test_ranks_unread(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, 16 * PAGE);
    cfg.ranks = 2;
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "two");
    put(h, 0, BYTES);
    T_OK(varve_close(ctx));
    cfg.ranks = 1;
    cfg.local = t_tmpdir();
    ctx = ck_open(&cfg);
    reset();
    t_s3_fault("{\"what\": 400, \"method\": \"GET\", \"match\": \"ranks.0\", \"count\": 1000}");
    T_ERR(varve_history_open(ctx, "two", &h), -EIO);
    ck_error(ctx, -EIO, "ranks.0");
    reset();
    T_ERR(varve_history_open(ctx, "two", &h), -EINVAL);
    ck_error(ctx, -EINVAL, "written by 2 ranks");
    T_OK(varve_close(ctx));
}

/* A file of another rank of the job cannot be read while the history is removed: it may be a new one. */
static void test_removal_unread(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, 16 * PAGE), other;
    cfg.ranks = 2;
    cfg.run = "a";
    other = cfg;
    other.rank = 1;
    struct varve_ctx *ctx = ck_open(&cfg), *ctx1 = ck_open(&other);
    put(ck_history(ctx, "gone"), 0, BYTES);
    T_OK(varve_close(ctx));
    reset();
    t_s3_fault("{\"what\": 400, \"method\": \"GET\", \"match\": \"r0.v0\", \"count\": 1000}");
    T_ERR(varve_history_remove(ctx1, "gone", 0), -EIO);
    reset();
    T_OK(varve_history_remove(ctx1, "gone", 0));
    T_OK(varve_close(ctx1));
    cfg.local = t_tmpdir();
    cfg.run = "b";
    ctx = ck_open(&cfg);
    T_OK(try_get(ck_history(ctx, "gone"), 0, BYTES));
    T_OK(varve_close(ctx));
}

/* Begins an upload of rank 0, as another process would. */
static void begin_upload(const char *remote, const char *history)
{
    const struct vv_s3_opts none = {0};
    char *bucket, *prefix, key[512], name[VV_CKFILE_NAME_MAX], id[VV_S3_UPLOAD_ID_MAX];
    struct vv_s3 *s3;
    T_OK(vv_s3_url_parse(remote, &bucket, &prefix));
    T_OK(vv_s3_new(&none, NULL, 0, &s3));
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, 0, 50, 60);
    snprintf(key, sizeof(key), "%s/%s/%s", prefix, history, name);
    T_OK(vv_s3_upload_begin(s3, bucket, key, id));
    vv_s3_free(s3);
    free(bucket);
    free(prefix);
}

/* Uploads of a running job go on while another opening is refused, and while another rank removes old files. They
 * end when a later life has begun. */
static void test_uploads_of_others(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, 16 * PAGE), other;
    struct varve_history *h;
    int ranks = 0;
    cfg.ranks = 2;
    cfg.run = "a";
    struct varve_ctx *ctx = ck_open(&cfg), *ctx1;
    put(ck_history(ctx, "up"), 0, BYTES);
    T_OK(varve_close(ctx));
    cfg.run = "b";
    cfg.local = t_tmpdir();
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "up");
    begin_upload(cfg.remote, "up");

    other = cfg;
    other.ranks = 1;
    other.run = "c";
    other.local = t_tmpdir();
    ctx1 = ck_open(&other);
    T_ERR(varve_history_open(ctx1, "up", &h), -EINVAL);
    T_OK(varve_close(ctx1));
    T_CHECK(t_s3_admin("/_uploads", "")[0] != '\0');

    other = cfg;
    other.rank = 1;
    other.local = t_tmpdir();
    ctx1 = ck_open(&other);
    T_OK(varve_history_remove(ctx1, "up", 0));
    T_CHECK(t_s3_admin("/_uploads", "")[0] != '\0');
    T_OK(varve_history_ranks(ctx1, "up", &ranks));
    T_EQ(ranks, 2);
    T_OK(varve_close(ctx1));
    T_OK(varve_close(ctx));

    cfg.run = "d";
    cfg.local = t_tmpdir();
    ctx = ck_open(&cfg);
    T_EQ(ck_count(ck_history(ctx, "up")), 0);
    T_STREQ(t_s3_admin("/_uploads", ""), "");
    T_OK(varve_close(ctx));
}

/* Versions of several parts: `n` of them, or until it is killed. */
static void write_large(const struct ck_cfg *cfg, uint64_t first, uint64_t n)
{
    struct varve_ctx *ctx = ck_open(cfg);
    struct varve_history *h = ck_history(ctx, "k");
    for (uint64_t v = first; v < first + n; v++) {
        put(h, v, LARGE);
        T_OK(varve_wait(h, v, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    }
}

/* Versions found after a kill are right, on a node that has lost its disk; nothing is left of uploads. */
static uint64_t look(struct ck_cfg cfg)
{
    uint64_t version[256];
    cfg.local = t_tmpdir();
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "k");
    size_t n;
    T_STREQ(t_s3_admin("/_uploads", ""), "");
    T_OK(varve_versions(h, version, VV_ARRAY_SIZE(version), &n));
    for (size_t i = 0; i < n; i++)
        T_OK(try_get(h, version[i], LARGE));
    uint64_t next = 0;
    for (size_t i = 0; i < n; i++)
        next = VV_MAX(next, version[i] + 1);
    for (size_t i = 0; i < n; i++)
        T_OK(varve_discard(h, version[i]));
    T_OK(varve_close(ctx));
    return next;
}

/* Runs a child that is killed after `ns` or, if `ns` is 0, writes two versions. Returns the time that it took. */
static uint64_t kill_after(const struct ck_cfg *cfg, uint64_t first, uint64_t ns)
{
    uint64_t start_ns = vv_now_ns();
    pid_t child = fork();
    T_CHECK(child >= 0);
    if (child == 0) {
        write_large(cfg, first, ns == 0 ? 2 : 1000);
        _exit(0);
    }
    if (ns != 0) {
        vv_sleep_until_ns(start_ns + ns);
        kill(child, SIGKILL);
    }
    T_EQ(waitpid(child, NULL, 0), child);
    return vv_now_ns() - start_ns;
}

static void test_killed(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, 30 << 20);
    cfg.page_bytes = 256 << 10;
    struct t_rng rng = {t_seed()};
    unsigned uploads = 0;
    reset();
    uint64_t two_ns = kill_after(&cfg, 0, 0), first = look(cfg);
    T_EQ(first, 2);
    for (uint64_t i = 0, n = t_cases(12, 500); i < n; i++) {
        cfg.local = t_tmpdir();
        kill_after(&cfg, first, 1 + t_rng_below(&rng, two_ns));
        uploads += t_s3_admin("/_uploads", "")[0] != '\0';
        uint64_t next = look(cfg);
        first = VV_MAX(first, next);
    }
    t_note("%llu versions came whole, %u kills left an upload", (unsigned long long)first, uploads);
}

int main(void)
{
    setenv("VARVE_TEST_REMOTE", "s3", 1);
    buf = malloc(LARGE);
    t_s3_start();
    vv_target_s3_sizes(5 << 20, 5 << 20); /* less to move */
    T_RUN(test_opening);
    T_RUN(test_faults);
    T_RUN(test_wrong_bytes);
    T_RUN(test_two_histories);
    T_RUN(test_former_life);
    T_RUN(test_credentials_in_address);
    T_RUN(test_former_index);
    T_RUN(test_ranks_unread);
    T_RUN(test_removal_unread);
    T_RUN(test_uploads_of_others);
    T_RUN(test_killed);
    free(buf);
    return t_done();
}
