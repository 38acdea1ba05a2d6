/* SPDX-License-Identifier: Apache-2.0 */
/* Overwriting versions: at any time the next opening finds the old one or the new one. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "base/util.h"
#include "ckpt/ckpt_hooks.h"
#include "fault_os.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 6 * PAGE + 100, ROUNDS = 12, ROUNDS_LONG = 200 };

static char *buf;

static struct varve_ctx *open_at(const char *folder, int level, const char *rate)
{
    struct ck_cfg cfg = {.host_cache = 64 * PAGE, .local = folder, .level = level, .rate = rate};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    char local[600];
    ck_opts(&cfg, &opts);
    if (level >= VARVE_LEVEL_REMOTE) {
        snprintf(local, sizeof(local), "%s/local", folder);
        snprintf(opts.local, sizeof(opts.local), "%s", local);
        snprintf(opts.remote, sizeof(opts.remote), "%s/remote", folder);
    }
    T_OK(varve_open(&opts, &ctx));
    return ctx;
}

static struct varve_history *history(struct varve_ctx *ctx, uint64_t keep)
{
    struct varve_history_opts opts;
    struct varve_history *h;
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.overwrite = 1;
    opts.keep = keep;
    T_OK(varve_history_open_with(ctx, "h", &opts, &h));
    T_OK(varve_protect(h, 0, buf, BYTES));
    return h;
}

static void put(struct varve_history *h, uint64_t version, uint64_t seed)
{
    ck_fill(buf, BYTES, seed, 0);
    T_OK(varve_checkpoint_for(h, version, CK_LIMIT_MS));
}

static void is(struct varve_history *h, uint64_t version, uint64_t seed)
{
    memset(buf, 0, BYTES);
    T_OK(varve_restore_for(h, version, CK_LIMIT_MS));
    ck_check(buf, BYTES, seed, 0);
}

/* Files of checkpoints in a folder of the history. */
static int files_in(const char *folder, const char *sub)
{
    char path[700];
    int n = 0;
    snprintf(path, sizeof(path), "%s%s/h", folder, sub);
    DIR *d = opendir(path);
    T_CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d));)
        n += strstr(e->d_name, ".ckpt") != NULL;
    closedir(d);
    return n;
}

static void test_content(void)
{
    static const int levels[] = {VARVE_LEVEL_CACHED, VARVE_LEVEL_LOCAL, VARVE_LEVEL_REMOTE,
                                 VARVE_LEVEL_COMPLETE};
    for (int i = 0; i < 4; i++) {
        const char *folder = t_tmpdir();
        struct varve_ctx *ctx = open_at(folder, levels[i], NULL);
        struct varve_history *h = history(ctx, 0);
        T_OK(varve_hint(h, 1));
        for (uint64_t seed = 1; seed <= 5; seed++) {
            put(h, 1, seed);
            put(h, 2, 100 + seed);
            is(h, 1, seed);
            if (seed % 2)
                T_OK(varve_flush(h, CK_LIMIT_MS));
        }
        T_EQ(ck_count(h), 2);
        T_OK(varve_flush(h, CK_LIMIT_MS));
        if (i == 1)
            T_EQ(files_in(folder, ""), 2);
        if (i >= 2) {
            T_EQ(files_in(folder, "/local"), 2);
            T_EQ(files_in(folder, "/remote"), 2);
        }
        is(h, 2, 105);
        T_OK(varve_close(ctx));
        if (i == 0)
            continue;
        ctx = open_at(folder, levels[i], NULL);
        h = history(ctx, 0);
        is(h, 1, 5);
        is(h, 2, 105);
        put(h, 2, 7); /* of an earlier run */
        T_OK(varve_wait(h, 2, levels[i], CK_LIMIT_MS));
        T_OK(varve_discard(h, 1));
        put(h, 1, 8);
        put(h, 1, 9);
        T_OK(varve_discard(h, 1)); /* with all that it superseded */
        T_OK(varve_close(ctx));
        ctx = open_at(folder, levels[i], NULL);
        h = history(ctx, 0);
        is(h, 2, 7);
        T_ERR(varve_restore(h, 1), -ENOENT);
        T_OK(varve_close(ctx));
    }
}

/* Without the option it is an error, as ever. */
static void test_without(void)
{
    struct varve_ctx *ctx = open_at(t_tmpdir(), VARVE_LEVEL_LOCAL, NULL);
    struct varve_history *h = ck_history(ctx, "h");
    T_OK(varve_protect(h, 0, buf, BYTES));
    put(h, 1, 1);
    T_ERR(varve_checkpoint(h, 1), -EEXIST);
    T_OK(varve_close(ctx));
}

/* A checkpoint that fails leaves what was on disk. */
static void test_failed(void)
{
    static const int levels[] = {VARVE_LEVEL_LOCAL, VARVE_LEVEL_REMOTE};
    for (int i = 0; i < 2; i++) {
        const char *folder = t_tmpdir();
        struct varve_ctx *ctx = open_at(folder, levels[i], NULL);
        struct varve_history *h = history(ctx, 0);
        put(h, 1, 1);
        T_OK(varve_wait(h, 1, levels[i], CK_LIMIT_MS));
        T_OK(varve_hint(h, 1));
        T_OK(varve_unprotect(h, 0));
        T_ERR(varve_checkpoint(h, 1), -ENODATA);
        T_OK(varve_protect(h, 0, buf, BYTES));
        is(h, 1, 1);
        put(h, 1, 2);
        is(h, 1, 2);
        T_OK(varve_close(ctx));
        ctx = open_at(folder, levels[i], NULL);
        h = history(ctx, 0);
        T_OK(varve_unprotect(h, 0));
        T_ERR(varve_checkpoint(h, 1), -ENODATA);
        T_OK(varve_protect(h, 0, buf, BYTES));
        is(h, 1, 2);
        T_OK(varve_close(ctx));
    }
}

/* An error that a wait has reported is not reported again by the next call. */
static void test_said_once(void)
{
    struct fault_os os;
    struct vv_ckpt_hooks hooks = {.os = &os.os};
    fault_os_init(&os);
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = open_at(t_tmpdir(), VARVE_LEVEL_LOCAL, NULL);
    struct varve_history *h = history(ctx, 0);
    put(h, 1, 1);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    os.calls = 1u << FAULT_AIO_WRITE | 1u << FAULT_PWRITE;
    os.at = 1;
    os.mode = FAULT_FOREVER;
    put(h, 1, 2);
    T_ERR(varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -EIO);
    os.mode = FAULT_NONE;
    T_OK(varve_prefetch_start(h));
    is(h, 1, 2); /* memory has it */
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    vv_ckpt_set_hooks(NULL);
}

/* A damaged generation hides those below it in every folder: older bytes must not come back. */
static void test_damaged(void)
{
    const char *folder = t_tmpdir();
    char command[3000];
    struct varve_ctx *ctx = open_at(folder, VARVE_LEVEL_REMOTE, NULL);
    struct varve_history *h = history(ctx, 0);
    put(h, 1, 1);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    snprintf(command, sizeof(command), "mkdir %s/old && cp %s/remote/h/*.ckpt %s/old", folder,
             folder, folder);
    T_EQ(system(command), 0);
    put(h, 1, 2);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    snprintf(command, sizeof(command),
             "truncate -s 4096 %s/local/h/*.ckpt %s/remote/h/*.ckpt && cp %s/old/* %s/remote/h && "
             "rm %s/local/h/index.0 %s/remote/h/index.0",
             folder, folder, folder, folder, folder, folder);
    T_EQ(system(command), 0);
    ctx = open_at(folder, VARVE_LEVEL_REMOTE, NULL);
    h = history(ctx, 0);
    T_ERR(varve_restore_for(h, 1, CK_LIMIT_MS), -EBADMSG);
    T_OK(varve_close(ctx));
}

/* ---- killed ---- */

struct message {
    uint64_t begun, safe;
};

static void child_main(const char *folder, int level, const char *rate, int fd, uint64_t seed)
{
    struct varve_ctx *ctx = open_at(folder, level, rate);
    struct varve_history *h = history(ctx, 1);
    for (;; seed++) {
        struct message m = {.begun = seed};
        T_EQ(write(fd, &m, sizeof(m)), sizeof(m));
        put(h, 1, seed);
        if (seed % 3 == 0)
            continue;
        T_OK(varve_wait(h, 1, (enum varve_level)level, CK_LIMIT_MS));
        m.safe = seed;
        T_EQ(write(fd, &m, sizeof(m)), sizeof(m));
    }
}

static uint64_t content_of(const char *folder, int level)
{
    struct varve_ctx *ctx = open_at(folder, level, NULL);
    struct varve_history *h = history(ctx, 1);
    uint64_t found = 0;
    size_t n = ck_count(h);
    T_CHECK(n <= 1);
    if (n == 1) {
        T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
        while (found < 1000000 && !ck_same(buf, BYTES, ++found, 0))
            ;
        T_CHECK(found < 1000000);
    }
    T_OK(varve_close(ctx));
    return found;
}

static void kills(int level, const char *rate)
{
    const char *folder = t_tmpdir();
    struct t_rng rng = {t_seed()};
    uint64_t seed = 1, safe = 0, begun = 0;
    int rounds = (int)t_cases(ROUNDS, ROUNDS_LONG);
    for (int i = 0; i < rounds; i++) {
        struct message m;
        int fds[2], status;
        T_OK(pipe(fds));
        pid_t child = fork();
        T_CHECK(child >= 0);
        if (child == 0)
            child_main(folder, level, rate, fds[1], seed);
        close(fds[1]);
        T_EQ(poll(&(struct pollfd){.fd = fds[0], .events = POLLIN}, 1, CK_LIMIT_MS), 1);
        vv_sleep_until_ns(vv_now_ns() + t_rng_below(&rng, 80 * VV_NS_PER_MS));
        T_OK(kill(child, SIGKILL));
        while (read(fds[0], &m, sizeof(m)) == (ssize_t)sizeof(m)) {
            begun = VV_MAX(begun, m.begun);
            safe = VV_MAX(safe, m.safe);
        }
        close(fds[0]);
        T_EQ(waitpid(child, &status, 0), child);
        uint64_t found = content_of(folder, level);
        T_CHECK(found >= safe && found <= begun);
        safe = found; /* it was found, so it can be restored */
        seed = begun + 1;
    }
    t_note("%d kills, version 1 written %llu times", rounds, (unsigned long long)begun);
}

static void test_killed(void)
{
    kills(VARVE_LEVEL_LOCAL, NULL);
    kills(VARVE_LEVEL_LOCAL, "h2f=1M");
}

static void test_killed_remote(void)
{
    kills(VARVE_LEVEL_REMOTE, NULL);
    kills(VARVE_LEVEL_COMPLETE, "h2f=2M,f2r=1M");
}

/* Copies to the shared folder take seconds. */
static struct varve_ctx *open_slow(const char *folder)
{
    struct ck_cfg cfg = {
        .host_cache = 64 * PAGE, .level = VARVE_LEVEL_REMOTE, .close_timeout_ms = -2};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    char local[600], remote[600];
    snprintf(local, sizeof(local), "%s/local", folder);
    snprintf(remote, sizeof(remote), "%s/remote", folder);
    cfg.local = local;
    cfg.remote = remote;
    ck_opts(&cfg, &opts);
    opts.remote_rate = 2 * PAGE;
    T_OK(varve_open(&opts, &ctx));
    return ctx;
}

/* A new generation that an earlier run has not brought to the shared folder can be reverted: the one
 * before it, which is there, comes back. */
static void test_taken_back_later(void)
{
    const char *folder = t_tmpdir();
    struct varve_ctx *ctx = open_at(folder, VARVE_LEVEL_REMOTE, NULL);
    struct varve_history *h = history(ctx, 0);
    int status;
    put(h, 1, 1);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    pid_t child = fork();
    T_CHECK(child >= 0);
    if (child == 0) {
        h = history(open_slow(folder), 0);
        put(h, 1, 2);
        T_OK(varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
        _exit(0);
    }
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    ctx = open_slow(folder);
    h = history(ctx, 0);
    is(h, 1, 2);
    T_OK(varve_revert(h, 1));
    is(h, 1, 1);
    (void)varve_close(ctx);
    ctx = open_at(folder, VARVE_LEVEL_REMOTE, NULL);
    is(history(ctx, 0), 1, 1);
    T_OK(varve_close(ctx));
}

/* A run that continues from an older version overwrites later versions of earlier runs, and no others. */
static void test_resume(void)
{
    static const int levels[] = {VARVE_LEVEL_LOCAL, VARVE_LEVEL_REMOTE, VARVE_LEVEL_COMPLETE};
    for (size_t i = 0; i < VV_ARRAY_SIZE(levels); i++) {
        const char *folder = t_tmpdir();
        bool refused = levels[i] == VARVE_LEVEL_COMPLETE;
        for (uint64_t life = 1; life <= 3; life++) {
            struct varve_ctx *ctx = open_at(folder, levels[i], NULL);
            struct varve_history *h;
            T_OK(varve_history_open(ctx, "h", &h));
            T_OK(varve_protect(h, 0, buf, BYTES));
            if (life > 1) {
                ck_fill(buf, BYTES, 0, 0);
                T_ERR(varve_checkpoint(h, 3), -EEXIST);
                T_OK(varve_resume(h, 2));
                T_ERR(varve_checkpoint(h, 1), -EEXIST);
                is(h, 1, 101);
                is(h, 3, refused ? 103 : 100 * (life - 1) + 3);
            }
            for (uint64_t v = life == 1 ? 1 : 2; v <= 4; v++) {
                ck_fill(buf, BYTES, 100 * life + v, 0);
                T_ERR(varve_checkpoint(h, v), life > 1 && refused ? -EEXIST : 0);
                T_ERR(varve_checkpoint(h, v), -EEXIST); /* its own */
            }
            T_OK(varve_flush(h, CK_LIMIT_MS));
            T_OK(varve_close(ctx));
            T_EQ(files_in(folder, levels[i] >= VARVE_LEVEL_REMOTE ? "/remote" : ""), 4);
        }
        struct varve_ctx *ctx = open_at(folder, levels[i], NULL);
        struct varve_history *h = history(ctx, 0);
        for (uint64_t v = 1; v <= 4; v++)
            is(h, v, (v == 1 || refused ? 100 : 300) + v);
        T_OK(varve_close(ctx));
    }
}

/* At level cached a checkpoint has reached the level when it returns, and what it replaced is gone:
 * it cannot be reverted, and stays. A provisional version can be dropped. */
static void test_revert_at_level_cached(void)
{
    char mem[64] = "";
    struct varve_ctx *ctx = ck_open(&(struct ck_cfg){.host_cache = 64 * PAGE});
    for (int confirm = 0; confirm < 2; confirm++) {
        struct varve_history_opts opts;
        struct varve_history *h;
        T_OK(varve_history_opts_init(&opts, sizeof(opts)));
        opts.overwrite = 1;
        opts.confirm = confirm;
        T_OK(varve_history_open_with(ctx, confirm ? "confirm" : "h", &opts, &h));
        T_OK(varve_protect(h, 0, mem, sizeof(mem)));
        for (int i = 0; i < 2; i++)
            T_OK(varve_checkpoint(h, 1));
        T_ERR(varve_revert(h, 1), confirm ? 0 : -EALREADY);
        T_ERR(varve_restore(h, 1), confirm ? -ENOENT : 0);
        T_ERR(varve_revert(h, 2), -ENOENT);
        T_OK(varve_checkpoint(h, 1));
        if (confirm)
            T_OK(varve_confirm(h, 1));
        T_ERR(varve_revert(h, 1), -EALREADY);
        T_OK(varve_restore(h, 1));
    }
    T_OK(varve_close(ctx));
}

int main(void)
{
    buf = malloc(BYTES);
    T_RUN(test_content);
    T_RUN(test_without);
    T_RUN(test_resume);
    T_RUN(test_failed);
    T_RUN(test_said_once);
    T_RUN(test_damaged);
    T_RUN(test_taken_back_later);
    T_RUN(test_revert_at_level_cached);
    T_RUN(test_killed);
    T_RUN(test_killed_remote);
    free(buf);
    return t_done();
}
