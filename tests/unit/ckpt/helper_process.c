/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes with one helper process: if any of them, or the helper itself, is killed, the
 * others continue with the right bytes. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>
#include <varve/vector.h>

#include "base/clock.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { RANKS = 3, BYTES = 512 << 10, VERSIONS = 24 };

static char name[64];
static const char *program;

struct shape {
    int level;
    bool layers, killer, die, vector;
};

static void options(const struct shape *s, const char *folder, int rank, struct varve_opts *ret)
{
    static char local[RANKS][4096], remote[RANKS][4096];
    snprintf(local[rank], sizeof(local[rank]), "%s/l%d", folder, rank);
    snprintf(remote[rank], sizeof(remote[rank]), "%s/r%d", folder, rank);
    struct ck_cfg cfg = {.host_cache = 4 << 20,
                         .local = local[rank],
                         .local_cache = s->layers ? 4 << 20 : 64 << 20,
                         .remote = s->layers ? remote[rank] : NULL,
                         .level = s->level,
                         .page_bytes = 65536,
                         .rank = rank};
    ck_opts(&cfg, ret);
    T_OK(varve_opts_set(ret, "helper_process", "on"));
    T_OK(varve_opts_set(ret, "helper_name", name));
    T_OK(varve_opts_set(ret, "helper_program", program));
}

static struct varve_stats stats_of(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    return s;
}

static void fill(char *buf, uint64_t version, int rank)
{
    ck_fill(buf, BYTES, version * RANKS + (uint64_t)rank, 0);
}

static void check(const char *buf, uint64_t version, int rank)
{
    ck_check(buf, BYTES, version * RANKS + (uint64_t)rank, 0);
}

static void *vector_of(struct varve_history *h, struct varve_vector **ret_v)
{
    T_OK(varve_vector_new(h, 1, BYTES, ret_v));
    return (*ret_v)->data;
}

/* Writes everything and reads it back in reverse. Returns the helper's number. */
static pid_t rank_main(const struct shape *s, const char *folder, int rank)
{
    struct varve_opts opts;
    struct varve_ctx *ctx;
    struct varve_vector *v = NULL;
    options(s, folder, rank, &opts);
    T_OK(varve_open(&opts, &ctx));
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = s->vector ? vector_of(h, &v) : ck_alloc(ctx, false, BYTES);
    pid_t pid = (pid_t)stats_of(ctx).helper_pid;
    T_CHECK(pid > 0 && pid != getpid());
    if (!s->vector)
        T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t i = 0; i < VERSIONS; i++) {
        fill(buf, i, rank);
        T_OK(s->vector ? varve_vector_write(v, i) : varve_checkpoint(h, i));
        if (s->die && rank == 0 && i == VERSIONS / 2)
            raise(SIGKILL);
        if (s->killer && rank == 0 && i == VERSIONS / 2)
            T_OK(kill(pid, SIGKILL));
    }
    for (uint64_t i = VERSIONS; i-- > 0;) {
        T_OK(s->vector ? varve_vector_read(v, i) : varve_restore(h, i));
        check(s->vector ? v->data : buf, i, rank);
    }
    struct varve_stats st = stats_of(ctx);
    if (!s->killer)
        T_CHECK(st.helper_bytes > 0 && st.helper_alive && st.helper_redone == 0 &&
                st.helper_process_cpu_ns > 0);
    if (s->killer && rank == 0)
        T_CHECK(!st.helper_alive);
    struct varve_helper list[64];
    size_t n = 0;
    char text[32];
    bool alive;
    do { /* another rank may kill it at any moment */
        alive = st.helper_alive;
        T_OK(varve_helpers(ctx, list, 64, &n));
        st = stats_of(ctx);
    } while (st.helper_alive != alive);
    snprintf(text, sizeof(text), "%s %d", st.helper_alive ? "process" : "ended", (int)pid);
    T_CHECK(n > 0 && n <= 64);
    T_STREQ(list[n - 1].name, text);
    if (v)
        varve_vector_free(v);
    else
        ck_free(ctx, false, buf);
    T_OK(varve_close(ctx));
    return pid;
}

/* Number of areas of memory that a process shares. */
static unsigned shared_areas(pid_t pid)
{
    char path[64], line[512];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        n += strstr(line, "memfd:varve") != NULL;
    if (f)
        fclose(f);
    return n;
}

static bool comes_true(bool (*is)(pid_t pid), pid_t pid)
{
    for (int i = 0; i < CK_LIMIT_MS; i++) {
        if (is(pid))
            return true;
        vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
    }
    return false;
}

static bool nothing_shared(pid_t pid)
{
    return shared_areas(pid) == 0;
}

static bool is_gone(pid_t pid)
{
    return kill(pid, 0) < 0 && errno == ESRCH;
}

/* Runs all ranks in processes of their own, and looks after the helper. */
static void job(const struct shape *s)
{
    static int n;
    const char *folder = t_tmpdir();
    int pids[2];
    pid_t rank[RANKS], helper = 0;
    snprintf(name, sizeof(name), "test-%d-%d", (int)getpid(), n++);
    T_OK(pipe(pids));
    for (int i = 0; i < RANKS; i++) {
        rank[i] = fork();
        T_CHECK(rank[i] >= 0);
        if (rank[i] == 0) {
            pid_t pid = rank_main(s, folder, i);
            T_EQ(write(pids[1], &pid, sizeof(pid)), sizeof(pid));
            _exit(0);
        }
    }
    close(pids[1]);
    for (int i = 0; i < RANKS; i++) {
        int status;
        T_EQ(waitpid(rank[i], &status, 0), rank[i]);
        if (s->die && i == 0)
            T_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (pid_t pid; read(pids[0], &pid, sizeof(pid)) == sizeof(pid); helper = pid)
        if (!s->killer) /* one that opens after the kill gets another */
            T_CHECK(helper == 0 || helper == pid);
    close(pids[0]);
    T_CHECK(helper > 0);
    if (s->killer)
        return;
    /* Nothing is left of them there, also not of the killed one. */
    T_CHECK(comes_true(nothing_shared, helper));
    T_OK(kill(helper, SIGTERM));
    T_CHECK(comes_true(is_gone, helper));
}

static void one_for_all(void)
{
    struct shape s = {.level = VARVE_LEVEL_CACHED};
    job(&s);
}

static void vectors_on_layers(void)
{
    struct shape s = {.level = VARVE_LEVEL_CACHED, .layers = true, .vector = true};
    job(&s);
}

static void committed_files(void)
{
    struct shape s = {.level = VARVE_LEVEL_LOCAL};
    job(&s);
}

static void helper_is_killed(void)
{
    for (uint64_t i = 0; i < t_cases(2, 30); i++) {
        struct shape s = {.level = i & 1 ? VARVE_LEVEL_LOCAL : VARVE_LEVEL_CACHED,
                          .layers = !(i & 1),
                          .killer = true};
        job(&s);
    }
}

static void rank_is_killed(void)
{
    struct shape s = {.level = VARVE_LEVEL_CACHED, .layers = true, .die = true};
    job(&s);
}

/* Without a program to start, threads do everything, and nothing fails. */
static void none_to_be_had(void)
{
    struct varve_opts opts;
    struct varve_ctx *ctx;
    struct shape s = {.level = VARVE_LEVEL_CACHED};
    const char *right = program;
    program = "/nonexistent/varve";
    snprintf(name, sizeof(name), "test-%d-none", (int)getpid());
    options(&s, t_tmpdir(), 0, &opts);
    program = right;
    T_OK(varve_open(&opts, &ctx));
    T_EQ(stats_of(ctx).helper_pid, 0);
    T_OK(varve_close(ctx));
}

int main(void)
{
    program = getenv("VARVE_BIN");
    if (!program || access(program, X_OK) != 0)
        T_SKIP("VARVE_BIN does not name the program");
    T_RUN(one_for_all);
    T_RUN(vectors_on_layers);
    T_RUN(committed_files);
    T_RUN(helper_is_killed);
    T_RUN(rank_is_killed);
    T_RUN(none_to_be_had);
    return t_done();
}
