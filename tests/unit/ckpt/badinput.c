/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input gets a clear error with a text, and nothing is lost. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096 };

/* There is no empty text for it. */
static void test_nothing_has_failed(void)
{
    struct ck_cfg cfg = {.host_cache = 64 * PAGE};
    struct varve_error e = {.error_size = sizeof(e)};
    struct varve_ctx *ctx = ck_open(&cfg);
    T_ERR(varve_last_error(ctx, &e), -ENODATA);
    T_STREQ(varve_error(ctx), "success");
    T_STREQ(varve_error(NULL), "success");
    T_OK(varve_close(ctx));
}

/* Fails a call on the context in a separate thread, and checks the texts that this thread gets. */
static void *fail_elsewhere(void *arg)
{
    struct varve_history *h = arg;
    T_ERR(varve_restore(NULL, 1), -EINVAL);
    T_ERR(varve_unprotect(h, 77), -ENOENT);
    T_CHECK(strstr(varve_error(varve_history_ctx(h)), "region 77"));
    return NULL;
}

/* A thread reads the text of its own last failure, also after failures in other threads and contexts. */
static void test_error_of_this_thread(void)
{
    struct ck_cfg cfg = {.host_cache = 64 * PAGE};
    struct varve_opts opts;
    struct varve_ctx *none = NULL, *ctx = ck_open(&cfg), *other = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "a");
    pthread_t thread;

    T_ERR(varve_unprotect(h, 5), -ENOENT);
    T_EQ(pthread_create(&thread, NULL, fail_elsewhere, h), 0);
    T_EQ(pthread_join(thread, NULL), 0);
    T_CHECK(strstr(varve_error(ctx), "region 5"));
    T_CHECK(strstr(varve_error(NULL), "region 5"));
    T_STREQ(varve_error(other), "success");

    T_ERR(varve_history_open(other, "a/b", &h), -EINVAL);
    T_CHECK(strstr(varve_error(NULL), "no '/'"));
    T_CHECK(strstr(varve_error(other), "no '/'"));
    T_CHECK(strstr(varve_error(ctx), "region 77")); /* the last failure on it, in any thread */

    T_OK(varve_opts_init(&opts, sizeof(opts)));
    opts.level = VARVE_LEVEL_LOCAL;
    opts.local[0] = 0;
    T_ERR(varve_open(&opts, &none), -EINVAL);
    T_CHECK(strstr(varve_error(none), "set `local`"));
    T_CHECK(strstr(varve_error(ctx), "set `local`"));
    T_OK(varve_close(other));
    T_CHECK(strstr(varve_error(NULL), "set `local`")); /* success leaves it as it is */
    T_OK(varve_close(ctx));
}

/* A NULL handle has only the thread's record for the text. */
static void test_error_of_null(void)
{
    uint64_t v;
    T_ERR(varve_checkpoint(NULL, 0), -EINVAL);
    T_STREQ(varve_error(NULL), "the history is NULL: it is not open");
    T_ERR(varve_history_open(NULL, "a", NULL), -EINVAL);
    T_STREQ(varve_error(NULL), "the context is NULL: it is not open");
    T_ERR(varve_latest(NULL, NULL), -EINVAL);
    T_STREQ(varve_error(NULL), "ret_version is NULL");
    T_ERR(varve_latest(NULL, &v), -EINVAL);
    T_STREQ(varve_error(NULL), "the history is NULL: it is not open");
}

static void test_null_and_absurd(void)
{
    struct varve_opts opts;
    struct varve_ctx *ctx = NULL;
    struct varve_history *h = NULL;
    uint64_t v;
    size_t n;
    void *ptr;
    char buf[16];
    T_ERR(varve_opts_init(NULL, sizeof(opts)), -EINVAL);
    T_ERR(varve_opts_init(&opts, 3), -EINVAL);
    T_ERR(varve_opts_init(&opts, SIZE_MAX), -EINVAL);
    T_OK(varve_opts_init(&opts, sizeof(opts)));
    T_ERR(varve_opts_load(&opts, NULL), -EINVAL);
    T_ERR(varve_opts_set(&opts, NULL, "1"), -EINVAL);
    T_ERR(varve_open(&opts, NULL), -EINVAL);
    T_OK(varve_close(NULL));
    T_OK(varve_history_close(NULL));
    T_ERR(varve_history_open(NULL, "a", &h), -EINVAL);
    T_ERR(varve_checkpoint(NULL, 0), -EINVAL);
    T_ERR(varve_restore(NULL, 0), -EINVAL);
    T_ERR(varve_protect(NULL, 0, buf, 1), -EINVAL);
    T_ERR(varve_unprotect(NULL, 0), -EINVAL);
    T_ERR(varve_hint(NULL, 0), -EINVAL);
    T_ERR(varve_hint_clear(NULL), -EINVAL);
    T_ERR(varve_prefetch_start(NULL), -EINVAL);
    T_ERR(varve_wait(NULL, 0, VARVE_LEVEL_CACHED, 0), -EINVAL);
    T_ERR(varve_flush(NULL, 0), -EINVAL);
    T_ERR(varve_discard(NULL, 0), -EINVAL);
    T_ERR(varve_latest(NULL, &v), -EINVAL);
    T_ERR(varve_versions(NULL, NULL, 0, &n), -EINVAL);
    T_ERR(varve_checkpoint_on(NULL, 0, NULL), -EINVAL);
    T_ERR(varve_restore_on(NULL, 0, NULL), -EINVAL);
    T_ERR(varve_acquire(NULL, 0, 0, NULL, &ptr, &n), -EINVAL);
    T_ERR(varve_release(NULL, 0, 0, NULL), -EINVAL);
    T_ERR(varve_reserve(NULL, 0, 0, 1, NULL, &ptr), -EINVAL);
    T_ERR(varve_commit(NULL, 0, NULL), -EINVAL);
    T_ERR(varve_abort(NULL, 0), -EINVAL);
    T_ERR(varve_stats(NULL, NULL), -EINVAL);
    T_ERR(varve_last_error(NULL, NULL), -EINVAL);
    T_CHECK(varve_strerror(12345)[0]);
    T_CHECK(varve_version()[0]);

    struct ck_cfg cfg = {.host_cache = 64 * PAGE};
    ctx = ck_open(&cfg);
    T_ERR(varve_history_open(ctx, NULL, &h), -EINVAL);
    T_ERR(varve_history_open(ctx, "", &h), -EINVAL);
    T_ERR(varve_history_open(ctx, ".hidden", &h), -EINVAL);
    T_ERR(varve_history_open(ctx, "a/b", &h), -EINVAL);
    ck_error(ctx, -EINVAL, "'a/b': a name has 1 to 200 bytes, no '/'");
    char name[300];
    memset(name, 'x', sizeof(name));
    name[201] = 0;
    T_ERR(varve_history_open(ctx, name, &h), -EINVAL);
    T_ERR(varve_history_open(ctx, "a", NULL), -EINVAL);
    struct varve_history_opts ho;
    T_OK(varve_history_opts_init(&ho, sizeof(ho)));
    ho.order = 77;
    T_ERR(varve_history_open_with(ctx, "a", &ho, &h), -EINVAL);
    ck_error(ctx, -EINVAL, "order is 77: it takes VARVE_ORDER_HINTS,");
    ho.order = VARVE_ORDER_LIFO;
    ho.consume = 5;
    T_ERR(varve_history_open_with(ctx, "a", &ho, &h), -EINVAL);
    ck_error(ctx, -EINVAL, "consume is 5: it takes VARVE_CONSUME_KEEP");
    memset(&ho, 0, sizeof(ho));
    T_ERR(varve_history_open_with(ctx, "a", &ho, &h), -EINVAL);
    ck_error(ctx, -EINVAL, "opts_size is 0: call varve_history_opts_init");
    h = ck_history(ctx, "a");
    T_ERR(varve_protect(h, -1, buf, 1), -EINVAL);
    ck_error(ctx, -EINVAL, "region -1: a region's number must be 0 or more");
    T_ERR(varve_protect(h, 0, NULL, 1), -EINVAL);
    ck_error(ctx, -EINVAL, "region 0: the pointer is NULL");
    T_ERR(varve_protect(h, 0, buf, SIZE_MAX), -EINVAL);
    ck_error(ctx, -EINVAL, "more than any memory holds");
    T_ERR(varve_unprotect(h, 0), -ENOENT);
    T_ERR(varve_checkpoint(h, 0), -ENODATA);
    ck_error(ctx, -ENODATA, "call varve_protect first");
    T_ERR(varve_restore(h, 0), -ENODATA);
    T_ERR(varve_latest(h, NULL), -EINVAL);
    T_ERR(varve_acquire(h, 0, 0, NULL, NULL, &n), -EINVAL);
    T_ERR(varve_acquire(h, 0, 0, NULL, &ptr, NULL), -EINVAL);
    T_ERR(varve_reserve(h, 0, 0, 1, NULL, NULL), -EINVAL);
    T_ERR(varve_latest(h, &v), -ENOENT);
    T_ERR(varve_versions(h, NULL, 1, &n), -EINVAL);
    T_ERR(varve_versions(h, NULL, 0, NULL), -EINVAL);
    T_ERR(varve_wait(h, 0, VARVE_LEVEL_CACHED, 0), -ENOENT);
    T_ERR(varve_wait(h, 0, VARVE_LEVEL_LOCAL, 0), -EINVAL);
    T_ERR(varve_wait(h, 0, (enum varve_level)77, 0), -EINVAL);
    T_ERR(varve_discard(h, 0), -ENOENT);
    ck_error(ctx, -ENOENT, "version 0: no such version; varve_versions lists those");
    T_OK(varve_history_opts_init(&ho, sizeof(ho)));
    ho.consume = VARVE_CONSUME_ONCE;
    T_OK(varve_history_open_with(ctx, "once", &ho, &h));
    T_OK(varve_protect(h, 0, buf, 8));
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_restore(h, 1));
    T_ERR(varve_restore(h, 1), -ENOENT);
    ck_error(ctx, -ENOENT, "gone after its first restore");
    void *p;
    T_ERR(varve_device_alloc(ctx, 10, &p), -ENODEV);
    T_ERR(varve_device_free(ctx, buf), -EINVAL);
    T_OK(varve_device_free(ctx, NULL));
    T_ERR(varve_device_copy(ctx, buf, buf + 8, 8), -ENODEV);
    T_OK(varve_close(ctx));
}

static void open_refused(struct varve_opts *opts, int err, const char *text)
{
    struct varve_ctx *ctx = NULL;
    int rc = varve_open(opts, &ctx);
    if (rc != err)
        t_fail(__FILE__, __LINE__, "varve_open: %s, expected %s (%s)", t_errname(rc),
               t_errname(err), text);
    T_CHECK(!ctx);
    ck_error(NULL, err, text);
}

static void test_options(void)
{
    struct varve_opts good, o;
    T_OK(varve_opts_init(&good, sizeof(good)));
    good.host_cache = 64 * PAGE;
    o = good;
    o.level = VARVE_LEVEL_LOCAL;
    open_refused(&o, -EINVAL, "local");
    o.level = VARVE_LEVEL_REMOTE;
    open_refused(&o, -EINVAL, "remote");
    snprintf(o.remote, sizeof(o.remote), "%s", o.local);
    if (o.local[0])
        open_refused(&o, -EINVAL, "same folder");
    snprintf(o.remote, sizeof(o.remote), "/nowhere/at/all");
    o.level = VARVE_LEVEL_COMPLETE;
    o.ranks = 0;
    open_refused(&o, -EINVAL, "ranks");
    o.ranks = 2;
    open_refused(&o, -EINVAL, "run");
    o.rank = 2;
    open_refused(&o, -EINVAL, "rank");
    o.rank = 0;
    o.ranks = 1;
    o.remote[0] = 0;
    o.level = 9;
    open_refused(&o, -EINVAL, "level");
    o = good;
    o.page_bytes = 5000;
    open_refused(&o, -EINVAL, "page");
    o = good;
    o.device_id = -2;
    open_refused(&o, -EINVAL, "device_id");
    o = good;
    o.device = VARVE_DEVICE_CUDA;
    snprintf(o.rate, sizeof(o.rate), "d2h=1G");
    open_refused(&o, -EINVAL, "emulated");
    o = good;
    o.policy = -1;
    open_refused(&o, -EINVAL, "policy");
    o = good;
    snprintf(o.rate, sizeof(o.rate), "d2d=fast");
    open_refused(&o, -EINVAL, "");
    o = good;
    o.host_cache = UINT64_C(1) << 50;
    open_refused(&o, -ENOMEM, "host cache");
    o = good;
    snprintf(o.local, sizeof(o.local), "/proc/no/such/folder");
    T_CHECK(varve_open(&o, &(struct varve_ctx *){NULL}) < 0);
    o = good;
    o.opts_size = 7;
    open_refused(&o, -EINVAL, "opts_size is 7");
    T_ERR(varve_opts_set(&good, "no_such_key", "1"), -EINVAL);
    ck_error(NULL, -EINVAL, "no_such_key");
    T_ERR(varve_opts_set(&good, "host_cache", "lots"), -EINVAL);
    T_OK(varve_opts_set(&good, "host_cache", "2M"));
    T_EQ(good.host_cache, 2 << 20);
}

/* varve_open itself reports errors of the environment, with options or without. */
static void test_environment(void)
{
    struct varve_opts good;
    T_OK(varve_opts_init(&good, sizeof(good)));
    T_OK(setenv("VARVE_HOST_CACHE", "1Q", 1));
    open_refused(NULL, -EINVAL, "VARVE_HOST_CACHE");
    open_refused(NULL, -EINVAL, "1Q");
    open_refused(&good, -EINVAL, "VARVE_HOST_CACHE");
    T_OK(unsetenv("VARVE_HOST_CACHE"));
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    T_CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void test_ini(void)
{
    struct varve_opts o;
    char path[512];
    snprintf(path, sizeof(path), "%s/varve.ini", t_tmpdir());
    T_OK(varve_opts_init(&o, sizeof(o)));
    T_ERR(varve_opts_load(&o, path), -ENOENT);
    write_text(path, "[varve]\nhost_cache = 3M\nlevel = cached\n");
    T_OK(varve_opts_load(&o, path));
    T_EQ(o.host_cache, 3 << 20);
    write_text(path, "[varve]\nhost_cache = 4M\nhots_cache = 5M\n");
    T_ERR(varve_opts_load(&o, path), -EINVAL);
    ck_error(NULL, -EINVAL, "varve.ini:3");
    T_EQ(o.host_cache, 3 << 20);
    write_text(path, "[varve]\n\nhost_cache = many\n");
    T_ERR(varve_opts_load(&o, path), -EINVAL);
    ck_error(NULL, -EINVAL, "varve.ini:3");
    write_text(path, "[varve]\nhost_cache = 4M\n");
    T_OK(setenv("VARVE_HOST_CACHE", "6M", 1));
    T_OK(varve_opts_load(&o, path));
    T_EQ(o.host_cache, 6 << 20);
    T_OK(setenv("VARVE_HOST_CACHE", "nonsense", 1));
    T_ERR(varve_opts_load(&o, path), -EINVAL);
    ck_error(NULL, -EINVAL, "VARVE_HOST_CACHE");
    T_OK(unsetenv("VARVE_HOST_CACHE"));
}

static void test_versions(void)
{
    struct ck_cfg cfg = {.host_cache = 64 * PAGE};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "v");
    char buf[PAGE];
    ck_fill(buf, PAGE, 5, 0);
    T_OK(varve_protect(h, 0, buf, PAGE));
    T_OK(varve_checkpoint(h, 5));
    ck_fill(buf, PAGE, 6, 0);
    T_ERR(varve_checkpoint(h, 5), -EEXIST);
    ck_error(ctx, -EEXIST, "version 5");
    ck_error(ctx, -EEXIST, "overwrite"); /* needed by a job that continues from an older version */
    T_ERR(varve_restore(h, 6), -ENOENT);
    ck_error(ctx, -ENOENT, "version 6");
    T_OK(varve_restore(h, 5));
    ck_check(buf, PAGE, 5, 0);
    T_ERR(varve_history_open(ctx, "v", &h), -EBUSY);
    ck_error(ctx, -EBUSY, "open already in this process");
    T_OK(varve_close(ctx));
}

/* Never fits: nothing is below the host tier. */
static void test_too_large(void)
{
    struct ck_cfg cfg = {.host_cache = 16 * PAGE};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "big");
    char *buf = ck_alloc(ctx, false, 256 * PAGE);
    ck_fill(buf, PAGE, 0, 0);
    T_OK(varve_protect(h, 0, buf, PAGE));
    T_OK(varve_checkpoint(h, 0));
    T_OK(varve_protect(h, 0, buf, 256 * PAGE));
    T_ERR(varve_checkpoint(h, 1), -EFBIG);
    /* It fits, but there is no room, and nothing in progress frees any. */
    T_OK(varve_protect(h, 0, buf, 8 * PAGE));
    int rc = 0;
    uint64_t v = 2;
    for (; v < 10 && rc == 0; v++)
        rc = varve_checkpoint_for(h, v, CK_LIMIT_MS);
    T_EQ(rc, -ENOSPC);
    T_OK(varve_protect(h, 0, buf, PAGE));
    T_OK(varve_restore(h, 0));
    ck_check(buf, PAGE, 0, 0);
    free(buf);
    T_OK(varve_close(ctx));
}

/* The second process; it was started before the first one opened anything. */
static void second_process(const struct ck_cfg *cfg, int go)
{
    struct varve_opts o;
    struct varve_ctx *ctx = NULL;
    struct varve_history *h = NULL;
    char c;
    ck_opts(cfg, &o);
    if (read(go, &c, 1) != 1 || varve_open(&o, &ctx))
        _exit(2);
    if (varve_history_open(ctx, "mine", &h) != -EBUSY)
        _exit(3);
    char pid[32];
    snprintf(pid, sizeof(pid), "%ld", (long)getppid());
    ck_error(ctx, -EBUSY, pid);
    _exit(varve_close(ctx) ? 4 : 0);
}

static void test_in_use(void)
{
    struct ck_cfg cfg = {.host_cache = 64 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    int go[2], status;
    T_OK(pipe(go));
    pid_t child = fork();
    if (child == 0)
        second_process(&cfg, go[0]);
    struct varve_ctx *ctx = ck_open(&cfg), *ctx2 = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "mine"), *h2 = NULL;
    T_EQ(write(go[1], "", 1), 1);
    T_ERR(varve_history_open(ctx2, "mine", &h2), -EBUSY);
    ck_error(ctx2, -EBUSY, "open already in this process");
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    close(go[0]);
    close(go[1]);
    T_OK(varve_history_close(h));
    h2 = ck_history(ctx2, "mine");
    T_OK(varve_close(ctx2));
    T_OK(varve_close(ctx));
}

/* A disk that fills up: this checkpoint fails, all earlier ones stay. */
static void test_full_disk(void)
{
    enum { FIT = 6 };
    struct ck_cfg cfg = {.host_cache = 8 * PAGE,
                         .local = t_tmpdir(),
                         .local_cache = FIT * (4 * PAGE + 8 * PAGE),
                         .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "full");
    char buf[4 * PAGE];
    uint64_t v = 0;
    int rc = 0;
    T_OK(varve_protect(h, 0, buf, sizeof(buf)));
    for (; v < 64; v++) {
        ck_fill(buf, sizeof(buf), v, 0);
        rc = varve_checkpoint_for(h, v, CK_LIMIT_MS);
        if (rc == 0)
            rc = varve_wait(h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS);
        if (rc)
            break;
    }
    T_EQ(rc, -ENOSPC);
    T_CHECK(v >= FIT);
    for (uint64_t k = 0; k < v; k++) {
        T_OK(varve_restore_for(h, k, CK_LIMIT_MS));
        ck_check(buf, sizeof(buf), k, 0);
    }
    T_OK(varve_discard(h, 0));
    T_OK(varve_discard(h, 1));
    int dropped = varve_discard(h, v);
    T_CHECK(dropped == 0 || dropped == -ENOENT);
    ck_fill(buf, sizeof(buf), 100, 0);
    T_OK(varve_checkpoint_for(h, 100, CK_LIMIT_MS));
    T_OK(varve_wait(h, 100, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    varve_close(ctx);
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "full");
    T_OK(varve_protect(h, 0, buf, sizeof(buf)));
    T_OK(varve_restore_for(h, 100, CK_LIMIT_MS));
    ck_check(buf, sizeof(buf), 100, 0);
    T_ERR(varve_restore_for(h, 0, CK_LIMIT_MS), -ENOENT);
    T_OK(varve_close(ctx));
}

/* Makes later calls on the history, which would succeed, until one reports the failure of another call. */
static int call_until_error(struct varve_history *h)
{
    uint64_t until_ns = vv_now_ns() + CK_LIMIT_MS * VV_NS_PER_MS;
    int rc = 0;
    while (rc == 0 && vv_now_ns() < until_ns)
        rc = varve_prefetch_start(h);
    return rc;
}

/* The same with the system's own limit, which comes late: the flush fails after the checkpoint has
 * returned. A wait for the version reports it, or else the next call. */
static void write_error(bool waits)
{
    const char *folder = t_tmpdir();
    pid_t child = fork();
    if (child == 0) {
        struct ck_cfg cfg = {.host_cache = 256 * PAGE,
                             .local = folder,
                             .level = VARVE_LEVEL_LOCAL,
                             .close_timeout_ms = 5000};
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "late");
        char *buf = ck_alloc(ctx, false, 64 * PAGE);
        ck_fill(buf, PAGE, 0, 0);
        T_OK(varve_protect(h, 0, buf, PAGE));
        T_OK(varve_checkpoint(h, 0));
        T_OK(varve_wait(h, 0, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
        signal(SIGXFSZ, SIG_IGN);
        T_OK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){16 * PAGE, 16 * PAGE}));
        ck_fill(buf, 64 * PAGE, 1, 0);
        T_OK(varve_protect(h, 0, buf, 64 * PAGE));
        T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
        int rc = waits ? varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS) : call_until_error(h);
        T_CHECK(rc == -EFBIG || rc == -ENOSPC || rc == -EIO);
        struct varve_error e = {.error_size = sizeof(e)};
        T_OK(varve_last_error(ctx, &e));
        T_EQ(e.err, rc);
        T_EQ(e.version, 1);
        /* Reported once: the next calls succeed. The version is still in memory. */
        T_OK(varve_protect(h, 0, buf, PAGE));
        T_OK(varve_restore_for(h, 0, CK_LIMIT_MS));
        ck_check(buf, PAGE, 0, 0);
        uint64_t latest;
        T_OK(varve_latest(h, &latest));
        T_EQ(latest, 0);
        /* A wait reports the failure again; a checkpoint with the same number fails again. */
        T_ERR(varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), rc);
        T_OK(varve_discard(h, 1));
        T_OK(varve_protect(h, 0, buf, 64 * PAGE));
        T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
        T_ERR(call_until_error(h), rc);
        T_CHECK(varve_close(ctx) != 0);
        fflush(NULL);
        _exit(0);
    }
    int status;
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
}

static void test_write_error(void)
{
    write_error(true);
    write_error(false);
}

/* The only file of a history's folder that is as large as a checkpoint. */
static void find_file(const char *folder, char *ret_path, size_t n)
{
    DIR *d = opendir(folder);
    T_CHECK(d);
    struct dirent *e;
    ret_path[0] = 0;
    while ((e = readdir(d)) != NULL) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        int fd = open(path, O_RDONLY);
        if (fd >= 0 && lseek(fd, 0, SEEK_END) >= 64 * PAGE)
            snprintf(ret_path, n, "%s", path);
        if (fd >= 0)
            close(fd);
    }
    closedir(d);
    T_CHECK(ret_path[0]);
}

static void damaged_file(bool truncated)
{
    struct ck_cfg cfg = {.host_cache = 16 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "bad");
    char *buf = ck_alloc(ctx, false, 64 * PAGE);
    ck_fill(buf, 64 * PAGE, 0, 0);
    T_OK(varve_protect(h, 0, buf, 64 * PAGE));
    T_OK(varve_checkpoint_for(h, 0, CK_LIMIT_MS));
    T_OK(varve_protect(h, 0, buf, PAGE));
    ck_fill(buf, PAGE, 1, 0);
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    T_OK(varve_close(ctx));

    char folder[512], path[1024];
    snprintf(folder, sizeof(folder), "%s/bad", cfg.local);
    find_file(folder, path, sizeof(path));
    int fd = open(path, O_RDWR);
    T_CHECK(fd >= 0);
    if (truncated)
        T_OK(ftruncate(fd, 20 * PAGE));
    else
        T_EQ(pwrite(fd, "damage", 6, 33 * PAGE + 5), 6);
    close(fd);

    ctx = ck_open(&cfg);
    h = ck_history(ctx, "bad");
    T_OK(varve_protect(h, 0, buf, 64 * PAGE));
    int rc = varve_restore_for(h, 0, CK_LIMIT_MS);
    if (truncated)
        T_CHECK(rc == -EBADMSG || rc == -ENOENT || rc == -EIO);
    else
        T_EQ(rc, -EBADMSG);
    ck_error(ctx, rc, "version 0");
    T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
    ck_check(buf, PAGE, 1, 0);
    free(buf);
    varve_close(ctx);
}

static void test_corrupt_file(void)
{
    damaged_file(false);
}

static void test_truncated_file(void)
{
    damaged_file(true);
}

static void test_device_range(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 8 * PAGE, .host_cache = 64 * PAGE};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "range");
    char *dev = ck_alloc(ctx, true, PAGE);
    T_ERR(varve_protect(h, 0, dev, PAGE + 1), -EFAULT);
    T_ERR(varve_protect(h, 0, dev + 1, PAGE), -EFAULT);
    ck_error(ctx, -EFAULT, "region 0");
    T_OK(varve_protect(h, 0, dev + 1, PAGE - 1));
    T_OK(varve_checkpoint(h, 0));
    ck_free(ctx, true, dev);
    T_OK(varve_close(ctx));
}

int main(void)
{
    ck_any_device();
    T_RUN(test_nothing_has_failed);
    T_RUN(test_error_of_this_thread);
    T_RUN(test_error_of_null);
    T_RUN(test_null_and_absurd);
    T_RUN(test_options);
    T_RUN(test_environment);
    T_RUN(test_ini);
    T_RUN(test_versions);
    T_RUN(test_too_large);
    T_RUN(test_in_use);
    T_RUN(test_full_disk);
    T_RUN(test_write_error);
    T_RUN(test_corrupt_file);
    T_RUN(test_truncated_file);
    T_RUN(test_device_range);
    return t_done();
}
