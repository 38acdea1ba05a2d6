/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 at a random instant while a history at level local or remote is being written, then
 * reopening it; at level remote, every few times without the local folder.
 *
 * The child writes versions, waits for them to reach the level and reports each through a pipe, before and after; now
 * and then it discards an old one, reported likewise. After the kill:
 *   - every version reported as committed, and not reported as being discarded, exists and is correct;
 *   - every visible version was reported, and is correct;
 *   - a version that one reopening has missed or discarded does not come back in a later one.
 * The same folder is used for all rounds, so that each round also finds the leftovers of the one before, and the
 * history grows across lives.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "t.h"
#include "t_cuda.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, ROUNDS = 20, ROUNDS_LONG = 400, MAX_VERSIONS = 1 << 16 };

enum what { STARTED = 1, COMMITTED, DISCARDING, GONE };

struct message {
    uint32_t what, pad;
    uint64_t version;
};

/* The parent's state of each version. */
static unsigned char known[MAX_VERSIONS];

static size_t size_of(uint64_t v)
{
    return 1 + (v * 104729) % (12 * PAGE);
}

static void send_message(int fd, enum what what, uint64_t version)
{
    struct message m = {.what = what, .version = version};
    /* A pipe takes so few bytes whole or not at all. */
    T_EQ(write(fd, &m, sizeof(m)), sizeof(m));
}

/* Never returns; the parent kills it. */
static void child_main(const struct ck_cfg *cfg, int fd, uint64_t first)
{
    struct varve_ctx *ctx = ck_open(cfg);
    struct varve_history *h = ck_history(ctx, "crash");
    char *a = malloc(12 * PAGE), *b = malloc(100);
    for (uint64_t v = first; v < MAX_VERSIONS; v++) {
        ck_fill(a, size_of(v), v, 0);
        ck_fill(b, 100, v, 9);
        T_OK(varve_protect(h, 0, a, size_of(v)));
        if (v % 2)
            T_OK(varve_protect(h, 9, b, 100));
        else if (v > first)
            T_OK(varve_unprotect(h, 9));
        send_message(fd, STARTED, v);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
        if (v % 3 == 0)
            continue; /* several in flight at once */
        T_OK(varve_wait(h, v, (enum varve_level)cfg->level, CK_LIMIT_MS));
        send_message(fd, COMMITTED, v);
        if (v % 5 == 1 && v >= first + 4) {
            send_message(fd, DISCARDING, v - 4);
            T_OK(varve_discard(h, v - 4));
        }
    }
    for (;;)
        pause();
}

static uint64_t listen_to(int fd)
{
    struct message m;
    uint64_t n = 0;
    ssize_t got;
    while ((got = read(fd, &m, sizeof(m))) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        T_EQ(got, sizeof(m));
        T_CHECK(m.version < MAX_VERSIONS);
        known[m.version] = (unsigned char)m.what;
        n++;
    }
    return n;
}

static void check_version(struct varve_history *h, uint64_t v, char *a, char *b)
{
    size_t bytes;
    T_OK(varve_region_size(h, v, 0, &bytes));
    T_EQ(bytes, size_of(v));
    T_OK(varve_protect(h, 0, a, bytes));
    bool second = varve_region_size(h, v, 9, &bytes) == 0;
    if (second)
        T_OK(varve_protect(h, 9, b, 100));
    T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
    ck_check(a, size_of(v), v, 0);
    if (second) {
        ck_check(b, 100, v, 9);
        T_OK(varve_unprotect(h, 9));
    }
}

/* Opens the history again; returns the first unused version number. A process that has used CUDA cannot fork
 * another that does, so this one uses no CUDA. */
static uint64_t inspect(struct ck_cfg cfg)
{
    cfg.device &= !t_device_is_cuda();
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "crash");
    static uint64_t found[MAX_VERSIONS];
    static bool there[MAX_VERSIONS];
    char *a = malloc(12 * PAGE), *b = malloc(100);
    size_t n;
    T_OK(varve_versions(h, found, MAX_VERSIONS, &n));
    memset(there, 0, sizeof(there));
    for (size_t i = 0; i < n; i++) {
        T_CHECK(found[i] < MAX_VERSIONS && known[found[i]] != 0);
        T_CHECK(known[found[i]] != GONE);
        there[found[i]] = true;
        check_version(h, found[i], a, b);
    }
    uint64_t next = 0;
    for (uint64_t v = 0; v < MAX_VERSIONS; v++) {
        if (known[v] == COMMITTED && !there[v])
            t_fail(__FILE__, __LINE__, "version %llu was committed and is gone",
                   (unsigned long long)v);
        /* The next life must find what this one has found, and miss what it has missed. */
        if (known[v] != 0) {
            next = v + 1;
            known[v] = there[v] ? COMMITTED : GONE;
        }
    }
    /* Keep the history short: only new versions matter in the next round. */
    for (size_t i = 0; i + 20 < n; i++) {
        T_OK(varve_discard(h, found[i]));
        known[found[i]] = GONE;
    }
    free(a);
    free(b);
    T_OK(varve_close(ctx));
    return next;
}

static void rounds(const char *rate, bool device, int level)
{
    struct ck_cfg cfg = {.device = device,
                         .device_cache = 16 * PAGE,
                         .host_cache = 32 * PAGE,
                         .local = t_tmpdir(),
                         .level = level,
                         .rate = rate};
    if (level >= VARVE_LEVEL_REMOTE)
        cfg.remote = t_tmpdir();
    struct t_rng rng = {t_seed()};
    uint64_t next = 0, messages = 0;
    memset(known, 0, sizeof(known));
    int n = t_long() ? ROUNDS_LONG : ROUNDS;
    for (int i = 0; i < n && next < MAX_VERSIONS / 2; i++) {
        int fds[2];
        T_OK(pipe(fds));
        pid_t child = fork();
        T_CHECK(child >= 0);
        if (child == 0) {
            close(fds[0]);
            child_main(&cfg, fds[1], next);
        }
        close(fds[1]);
        /* Opening may take longer than the whole rest, on a GPU above all and on a busy machine. So every
         * other kill, including the first, waits for the first message; on a GPU, every kill. */
        if (i % 2 == 0 || (device && t_device_is_cuda()))
            T_EQ(poll(&(struct pollfd){.fd = fds[0], .events = POLLIN}, 1, CK_LIMIT_MS), 1);
        vv_sleep_until_ns(vv_now_ns() + t_rng_below(&rng, 60 * VV_NS_PER_MS));
        T_OK(kill(child, SIGKILL));
        messages += listen_to(fds[0]);
        close(fds[0]);
        int status;
        T_EQ(waitpid(child, &status, 0), child);
        T_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        uint64_t first = next;
        if (cfg.remote && i % 3 == 2)
            cfg.local = t_tmpdir(); /* continues on another node */
        next = inspect(cfg);
        T_CHECK(next >= first);
    }
    t_note("%d kills, %llu versions begun, %llu messages", n, (unsigned long long)next,
           (unsigned long long)messages);
    T_CHECK(next > 0);
}

static void test_full_speed(void)
{
    rounds(NULL, false, VARVE_LEVEL_LOCAL);
}

static void test_slow_disk(void)
{
    rounds("h2f=2M,f2h=1G", true, VARVE_LEVEL_LOCAL);
}

static void test_remote(void)
{
    rounds(NULL, false, VARVE_LEVEL_REMOTE);
}

static void test_slow_remote(void)
{
    rounds("f2r=500K", false, VARVE_LEVEL_REMOTE);
}

int main(void)
{
    ck_any_device();
    if (!t_device_is_cuda())
        T_RUN(test_full_speed);
    T_RUN(test_slow_disk);
    if (!t_device_is_cuda()) {
        T_RUN(test_remote);
        T_RUN(test_slow_remote);
    }
    return t_done();
}
