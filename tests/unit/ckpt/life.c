/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting, hints, discarding and closing while transfers are in progress. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "ckpt/ckpt_hooks.h"
#include "ckpt/ckpt_private.h"
#include "fault_os.h"
#include "t.h"
#include "t_cuda.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 8 * PAGE };

/* Writes wait here until the test releases them. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool shut, waiting;
} writes = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static int64_t hold_writes(const struct vv_os *os, enum vv_os_aio op, int fd, uint64_t offset,
                           size_t bytes)
{
    (void)os;
    (void)fd;
    (void)offset;
    (void)bytes;
    T_EQ(pthread_mutex_lock(&writes.lock), 0);
    while (op == VV_OS_AIO_WRITE && writes.shut) {
        writes.waiting = true;
        pthread_cond_broadcast(&writes.cond);
        pthread_cond_wait(&writes.cond, &writes.lock);
    }
    T_EQ(pthread_mutex_unlock(&writes.lock), 0);
    return 0;
}

static void hold_writes_from_now(void)
{
    T_EQ(pthread_mutex_lock(&writes.lock), 0);
    writes.shut = true;
    writes.waiting = false;
    T_EQ(pthread_mutex_unlock(&writes.lock), 0);
}

static void let_writes_go(void)
{
    T_EQ(pthread_mutex_lock(&writes.lock), 0);
    writes.shut = false;
    pthread_cond_broadcast(&writes.cond);
    T_EQ(pthread_mutex_unlock(&writes.lock), 0);
}

/* A context whose flushes stay pending until they are released. `os` must outlive the context. */
static struct varve_ctx *open_shut(const struct ck_cfg *cfg, struct fault_os *os)
{
    struct vv_ckpt_hooks hooks = {.os = &os->os};
    fault_os_init(os);
    os->os.aio = hold_writes;
    hold_writes_from_now();
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(cfg);
    vv_ckpt_set_hooks(NULL);
    return ctx;
}

/* A disk so slow that a process ends before its flushes do. */
static struct ck_cfg slow_disk(const char *folder)
{
    return (struct ck_cfg){.host_cache = 16 * PAGE, .local = folder, .rate = "h2f=256K,f2h=10G"};
}

static void put(struct varve_history *h, char *buf, uint64_t v)
{
    ck_fill(buf, BYTES, v, 0);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
}

static void get(struct varve_history *h, char *buf, uint64_t v)
{
    ck_set(buf, 0, BYTES);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
    ck_check(buf, BYTES, v, 0);
}

static void test_timeouts(void)
{
    struct ck_cfg cfg = {.host_cache = 16 * PAGE, .local = t_tmpdir()};
    struct fault_os os;
    struct varve_ctx *ctx = open_shut(&cfg, &os);
    struct varve_history *h = ck_history(ctx, "t");
    char *buf = malloc(BYTES);
    uint64_t v = 0;
    int rc = 0;
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (; v < 64 && rc == 0; v++) {
        ck_fill(buf, BYTES, v, 0);
        rc = varve_checkpoint_for(h, v, 0);
    }
    T_EQ(rc, -ETIMEDOUT);
    ck_error(ctx, -ETIMEDOUT, "version");
    v--;
    T_CHECK(v >= 2); /* a checkpoint that fits at once succeeds even without waiting */
    T_ERR(varve_checkpoint_for(h, v, 1), -ETIMEDOUT);
    T_ERR(varve_flush(h, 0), -ETIMEDOUT);
    T_ERR(varve_flush(h, 1), -ETIMEDOUT);
    /* The version that was not flushed does not exist; the others are whole. */
    T_ERR(varve_restore_for(h, v, 0), -ENOENT);
    size_t n;
    T_OK(varve_versions(h, NULL, 0, &n));
    T_EQ(n, v);
    for (uint64_t k = 0; k < v; k++)
        get(h, buf, k);
    T_OK(varve_wait(h, 0, VARVE_LEVEL_CACHED, 0));
    let_writes_go();
    put(h, buf, v);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    get(h, buf, v);
    free(buf);
    T_OK(varve_close(ctx));
}

/* A version that could not be overwritten in time is unchanged, now and later. */
static void test_overwrite_timeout(void)
{
    struct ck_cfg cfg = {.host_cache = 16 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    struct fault_os os;
    struct varve_ctx *ctx = open_shut(&cfg, &os);
    struct varve_history_opts o;
    struct varve_history *h;
    char *buf = malloc(BYTES);
    T_OK(varve_history_opts_init(&o, sizeof(o)));
    o.overwrite = 1;
    T_OK(varve_history_open_with(ctx, "o", &o, &h));
    let_writes_go();
    put(h, buf, 1);
    T_OK(varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    hold_writes_from_now();
    put(h, buf, 2);
    put(h, buf, 3);
    ck_fill(buf, BYTES, 100, 0);
    T_ERR(varve_checkpoint_for(h, 1, 0), -ETIMEDOUT);
    T_ERR(varve_checkpoint_for(h, 1, 1), -ETIMEDOUT);
    let_writes_go();
    get(h, buf, 1);
    T_OK(varve_close(ctx));
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "o");
    for (uint64_t v = 1; v <= 3; v++)
        get(h, buf, v);
    free(buf);
    T_OK(varve_close(ctx));
}

static void test_restore_timeout(void)
{
    struct ck_cfg cfg = {.local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL, .rate = "f2h=256K"};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "t");
    char *buf = malloc(BYTES);
    put(h, buf, 0);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_ERR(varve_restore_for(h, 0, 0), -ETIMEDOUT);
    T_ERR(varve_restore_for(h, 0, 1), -ETIMEDOUT);
    get(h, buf, 0);
    free(buf);
    T_OK(varve_close(ctx));
}

/* Closing at level cached does not wait for flushes. */
static void test_close_pending(void)
{
    struct ck_cfg cfg = slow_disk(t_tmpdir());
    cfg.rate = "h2f=64K";
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "pending");
    char *buf = malloc(BYTES);
    put(h, buf, 0);
    put(h, buf, 1);
    T_OK(varve_history_close(h));
    h = ck_history(ctx, "pending");
    size_t n;
    T_OK(varve_versions(h, NULL, 0, &n));
    T_EQ(n, 0);
    put(h, buf, 0);
    get(h, buf, 0);
    free(buf);
    T_OK(varve_close(ctx));
}

static void test_hints(void)
{
    struct ck_cfg cfg = {
        .device = true, .device_cache = 24 * PAGE, .host_cache = 32 * PAGE, .local = t_tmpdir()};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "hints");
    char *buf = ck_alloc(ctx, true, BYTES);
    enum { K = 16 };
    /* Before the versions exist, twice, wrong, and never consumed. */
    for (uint64_t v = 0; v < K; v++)
        T_OK(varve_hint(h, v));
    T_OK(varve_hint(h, 3));
    T_OK(varve_hint(h, 1000));
    for (uint64_t v = 0; v < K; v++)
        put(h, buf, v);
    T_OK(varve_prefetch_start(h));
    for (uint64_t v = K; v-- > K / 2;)
        get(h, buf, v); /* against the hints */
    T_OK(varve_hint_clear(h));
    for (uint64_t v = 0; v < K; v++)
        T_OK(varve_hint(h, v));
    for (uint64_t v = 0; v < K; v++) {
        if (v % 3 == 0)
            continue; /* passed over */
        get(h, buf, v);
    }
    put(h, buf, K); /* every slot may hold a prefetched copy */
    get(h, buf, K);
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    T_EQ(s.hints, 2 * K + 2);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void test_discard_in_flight(void)
{
    for (int level = VARVE_LEVEL_CACHED; level <= VARVE_LEVEL_LOCAL; level++) {
        struct ck_cfg cfg = {.device = true,
                             .device_cache = 24 * PAGE,
                             .host_cache = 32 * PAGE,
                             .local = t_tmpdir(),
                             .level = level};
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "discard");
        char *buf = ck_alloc(ctx, true, BYTES);
        for (uint64_t round = 0; round < 50; round++) {
            /* The same numbers again and again, while transfers of earlier versions end. */
            for (uint64_t v = 0; v < 6; v++) {
                ck_fill(buf, BYTES, round * 100 + v, 0);
                T_OK(varve_protect(h, 0, buf, BYTES));
                T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
                if (v % 2)
                    T_OK(varve_discard(h, v - 1));
            }
            for (uint64_t v = 1; v < 6; v += 2) {
                T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
                ck_check(buf, BYTES, round * 100 + v, 0);
                T_OK(varve_discard(h, v));
            }
        }
        size_t n;
        T_OK(varve_versions(h, NULL, 0, &n));
        T_EQ(n, 0);
        ck_free(ctx, true, buf);
        T_OK(varve_close(ctx));
    }
}

/* A call that is under way when the main thread tries to close the handle, which is refused. */
static void *blocked_main(void *arg)
{
    struct varve_history *h = arg;
    T_OK(varve_flush(h, CK_LIMIT_MS));
    return NULL;
}

static void test_close_in_use(void)
{
    struct ck_cfg cfg = {.host_cache = 16 * PAGE, .local = t_tmpdir()};
    struct fault_os os;
    struct varve_ctx *ctx = open_shut(&cfg, &os);
    struct varve_history *h = ck_history(ctx, "busy");
    char *buf = malloc(BYTES);
    pthread_t thread;
    put(h, buf, 0);
    put(h, buf, 1);
    T_OK(pthread_create(&thread, NULL, blocked_main, h));
    while (atomic_load_explicit(&h->calls, memory_order_relaxed) == 0)
        sched_yield();
    T_ERR(varve_close(ctx), -EBUSY);
    T_ERR(varve_history_close(h), -EBUSY);
    let_writes_go();
    pthread_join(thread, NULL);
    T_OK(varve_close(ctx));
    free(buf);
}

/* Exiting without closing, in parent and child, does not crash. */
static void test_exit_without_close(void)
{
    const char *folder = t_tmpdir();
    pid_t child = fork();
    if (child == 0) {
        struct ck_cfg cfg = slow_disk(folder);
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "exit");
        char *buf = malloc(BYTES);
        put(h, buf, 0);
        put(h, buf, 1);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            uint64_t v;
            int ok = varve_latest(h, &v) == -EPERM && strstr(varve_error(ctx), "fork()") &&
                     varve_close(ctx) == -EPERM;
            _exit(ok ? 0 : 1);
        }
        int status;
        T_EQ(waitpid(grandchild, &status, 0), grandchild);
        T_EQ(status, 0);
        _exit(0);
    }
    int status;
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
}

static unsigned files_in(const char *folder)
{
    unsigned n = 0;
    struct dirent *e;
    DIR *d = opendir(folder);
    T_CHECK(d != NULL);
    while ((e = readdir(d)) != NULL)
        n += strchr(e->d_name, 'v') != NULL; /* of a version, committed or not: not index, lock */
    closedir(d);
    return n;
}

/* Discarded while it is being written, a version leaves a file that can be removed only later. A
 * flush waits for that too. */
static void test_flush_waits_for_removals(void)
{
    const char *folder = t_tmpdir();
    struct fault_os os;
    struct ck_cfg cfg = {.host_cache = 64 * PAGE, .local = folder, .level = VARVE_LEVEL_LOCAL};
    char *buf = malloc(BYTES), path[600];
    struct varve_ctx *ctx = open_shut(&cfg, &os);
    struct varve_history *h = ck_history(ctx, "r");
    put(h, buf, 1);
    T_EQ(pthread_mutex_lock(&writes.lock), 0);
    while (!writes.waiting)
        pthread_cond_wait(&writes.cond, &writes.lock);
    T_EQ(pthread_mutex_unlock(&writes.lock), 0);
    T_OK(varve_discard(h, 1));
    T_ERR(varve_flush(h, 0), -ETIMEDOUT);
    let_writes_go();
    T_OK(varve_flush(h, CK_LIMIT_MS));
    snprintf(path, sizeof(path), "%s/r", folder);
    T_EQ(files_in(path), 0);
    T_OK(varve_close(ctx));
    free(buf);
}

int main(void)
{
    ck_any_device();
    T_RUN(test_hints);
    T_RUN(test_discard_in_flight);
    T_RUN(test_flush_waits_for_removals);
    if (t_device_is_cuda())
        return t_done(); /* the others use no device */
    T_RUN(test_timeouts);
    T_RUN(test_overwrite_timeout);
    T_RUN(test_restore_timeout);
    T_RUN(test_close_pending);
    T_RUN(test_close_in_use);
    T_RUN(test_exit_without_close);
    return t_done();
}
