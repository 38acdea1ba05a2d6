/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's threads and the application's: signals stay with the application, and histories
 * that many threads open and close at the same time do not get into one another's way.
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "t.h"
#include "t_cuda.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 16 * PAGE, OPENERS = 6 };

/* ---- signals ---- */

static bool blocks(const char *task, int sig)
{
    char path[64], line[128];
    unsigned long long mask = 0;
    bool there = false;
    snprintf(path, sizeof(path), "/proc/self/task/%.16s/status", task);
    FILE *f = fopen(path, "r");
    if (!f)
        return true; /* it has ended */
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "SigBlk: %llx", &mask) == 1)
            there = true;
    fclose(f);
    return !there || mask >> (sig - 1) & 1;
}

static void test_signals(void)
{
    /* A real driver has threads of its own, which cannot be distinguished from ours. */
    const char *device = getenv("VARVE_TEST_DEVICE");
    if (device && strcmp(device, "cuda") == 0) {
        t_note("left out: threads of the driver are not ours to answer for");
        return;
    }
    struct ck_cfg cfg = {.device = true,
                         .device_cache = 16 * PAGE,
                         .host_cache = 32 * PAGE,
                         .local = t_tmpdir(),
                         .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks)
        T_SKIP("no /proc/self/task to look into");
    int others = 0;
    for (struct dirent *d; (d = readdir(tasks));) {
        if (d->d_name[0] == '.' || atol(d->d_name) == (long)getpid())
            continue;
        others++;
        if (!blocks(d->d_name, SIGUSR1) || !blocks(d->d_name, SIGTERM))
            t_fail(__FILE__, __LINE__, "a handler may run on thread %s", d->d_name);
    }
    closedir(tasks);
    T_CHECK(others >= 4); /* two movers on memory, two on the disk, at least */
    T_OK(varve_close(ctx));
}

/* ---- histories that come and go ---- */

struct opener {
    struct varve_ctx *ctx;
    int id, rounds;
};

/* The work in flight at the end differs: a discarded version's removal, a commit, nothing. */
static void open_and_close(const struct opener *o, char *buf, uint64_t v)
{
    char name[16];
    snprintf(name, sizeof(name), "o%d", o->id);
    struct varve_history *h = ck_history(o->ctx, name);
    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, v, o->id);
    T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    if (o->id % 2 == 0) {
        T_OK(varve_wait(h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
        memset(buf, 0, BYTES);
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(buf, BYTES, v, o->id);
    }
    if (o->id % 3 != 0)
        T_OK(varve_discard(h, v));
    T_OK(varve_history_close(h));
}

static void *opener_main(void *arg)
{
    const struct opener *o = arg;
    char *buf = malloc(BYTES);
    T_CHECK(buf);
    for (int i = 0; i < o->rounds; i++)
        open_and_close(o, buf, (uint64_t)i);
    free(buf);
    return NULL;
}

static void test_open_and_close(void)
{
    struct ck_cfg cfg = {.host_cache = 512 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct opener o[OPENERS];
    pthread_t thread[OPENERS];
    for (int i = 0; i < OPENERS; i++) {
        o[i] = (struct opener){ctx, i, t_long() ? 1000 : 100};
        T_EQ(pthread_create(&thread[i], NULL, opener_main, &o[i]), 0);
    }
    for (int i = 0; i < OPENERS; i++)
        pthread_join(thread[i], NULL);
    T_OK(varve_close(ctx));
}

/* The time limit of closing is for all histories together. With the same time for each of them,
 * every version would get to the disk. */
static void test_close_once(void)
{
    enum { HISTORIES = 16 };
    struct ck_cfg cfg = {.host_cache = 512 * PAGE,
                         .local = t_tmpdir(),
                         .level = VARVE_LEVEL_LOCAL,
                         .rate = "h2f=160K", /* 0.4 s for each version */
                         .close_timeout_ms = 500};
    struct varve_ctx *ctx = ck_open(&cfg);
    char *buf = malloc(BYTES);
    uint64_t start_ns = vv_now_ns();
    for (int i = 0; i < HISTORIES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "c%d", i);
        struct varve_history *h = ck_history(ctx, name);
        ck_fill(buf, BYTES, 1, i);
        T_OK(varve_protect(h, 0, buf, BYTES));
        T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    }
    free(buf);
    bool slow = vv_now_ns() - start_ns > 3000 * VV_NS_PER_MS;
    int rc = varve_close(ctx);
    if (slow)
        t_note("the machine is too slow: closing may have had little left to do");
    else
        T_ERR(rc, -ETIMEDOUT);
}

int main(void)
{
    ck_any_device();
    T_RUN(test_signals);
    if (t_device_is_cuda())
        return t_done(); /* the others use no device */
    T_RUN(test_open_and_close);
    T_RUN(test_close_once);
    return t_done();
}
