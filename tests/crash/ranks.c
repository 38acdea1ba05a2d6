/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of several processes that share a remote folder, each with a local folder of its own, at
 * level complete; killed again and again, and started anew each time.
 *
 * Every life of the job looks at what is there, goes on from the newest version that is complete, and
 * writes a few more; the bytes tell version, rank and life. In each life one rank is killed at a
 * numbered system call of its storage, or all of them at a random instant. Then:
 *   - all ranks find the same versions, each of one and the same life, with the right bytes;
 *   - every version that any rank was told to be complete is among them, in that life;
 *   - none is among them that not all ranks had begun to write in that life;
 *   - the others' waits for the dead rank end by their time limit.
 * The version numbers are the same in many lives: nothing of two lives is ever mixed.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "ckpt/hooks.h"
#include "core/clock.h"
#include "core/util.h"
#include "fault_os.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 2 * PAGE + 100, MAX_RANKS = 64, MAX_VERSIONS = 512, PER_LIFE = 2 };
enum { LOST_WAIT_MS = 100 };

enum what { FOUND = 1, LATEST, STARTED, COMPLETE, GAVE_UP, STEPS };

struct message {
    uint32_t what, rank;
    uint64_t version, life;
};

struct job {
    int ranks;
    bool local; /* or all of them write to the remote folder itself */
    const char *remote;
    const char *folder[MAX_RANKS];
    uint64_t life;
    /* By version: the life that is complete, as far as anybody was told; 0: none. */
    uint64_t complete[MAX_VERSIONS];
    uint64_t before[MAX_VERSIONS]; /* the same when the current life began */
    /* By version: the last life in which each rank began to write it. */
    uint64_t started[MAX_VERSIONS][MAX_RANKS];
    /* Of the current life: by version, the life that each rank found. */
    uint64_t found[MAX_VERSIONS][MAX_RANKS];
    uint64_t latest[MAX_RANKS];
    long steps[MAX_RANKS];
    uint64_t versions, gave_up;
};

static void job_init(struct job *j, int ranks, bool local)
{
    memset(j, 0, sizeof(*j));
    j->ranks = ranks;
    j->local = local;
    j->remote = t_tmpdir();
    for (int r = 0; r < ranks; r++)
        j->folder[r] = local ? t_tmpdir() : NULL;
}

/* ---- a rank ---- */

static void tell(int fd, enum what what, int rank, uint64_t version, uint64_t life)
{
    struct message m = {what, (uint32_t)rank, version, life};
    T_EQ(write(fd, &m, sizeof(m)), sizeof(m));
}

static void fill(char *buf, uint64_t version, int rank, uint64_t life)
{
    ck_fill(buf, BYTES, version * 1000 + (uint64_t)rank, (int)life);
    memcpy(buf, &life, sizeof(life));
}

static void look(struct varve_history *h, int fd, int rank)
{
    static uint64_t versions[MAX_VERSIONS];
    static char buf[BYTES], want[BYTES];
    uint64_t life;
    size_t n;
    T_OK(varve_versions(h, versions, MAX_VERSIONS, &n));
    T_CHECK(n <= MAX_VERSIONS);
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (size_t i = 0; i < n; i++) {
        memset(buf, 0, BYTES);
        T_OK(varve_restore_for(h, versions[i], CK_LIMIT_MS));
        memcpy(&life, buf, sizeof(life));
        fill(want, versions[i], rank, life);
        T_CHECK(memcmp(buf, want, BYTES) == 0);
        tell(fd, FOUND, rank, versions[i], life);
    }
}

/* One life of one rank. Never returns. `kill_at`: the system call at which it dies; 0: it does
 * not. `wait_ms`: for the others. */
static void rank_main(const struct job *j, int rank, int fd, long kill_at, int wait_ms)
{
    static char buf[BYTES];
    char run[32];
    struct fault_os os;
    snprintf(run, sizeof(run), "life %llu", (unsigned long long)j->life);
    struct ck_cfg cfg = {.host_cache = 16 * PAGE,
                         .local = j->folder[rank],
                         .remote = j->remote,
                         .level = VARVE_LEVEL_COMPLETE,
                         .rank = rank,
                         .ranks = j->ranks,
                         .run = run};
    fault_os_init(&os);
    os.mode = kill_at ? FAULT_KILL : FAULT_NONE;
    os.at = kill_at;
    struct vv_ckpt_hooks hooks = {.os = &os.os};
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "job");
    uint64_t latest = 0;
    bool gave_up = false;
    int rc = varve_latest(h, &latest);
    T_CHECK(rc == 0 || rc == -ENOENT);
    look(h, fd, rank);
    tell(fd, LATEST, rank, latest, j->life);
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = latest + 1; v <= latest + PER_LIFE && !gave_up; v++) {
        fill(buf, v, rank, j->life);
        tell(fd, STARTED, rank, v, j->life);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
        T_OK(varve_wait(h, v, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
        rc = varve_wait(h, v, VARVE_LEVEL_COMPLETE, wait_ms);
        T_CHECK(rc == 0 || rc == -ETIMEDOUT);
        gave_up = rc != 0;
        tell(fd, gave_up ? GAVE_UP : COMPLETE, rank, v, j->life);
    }
    T_OK(varve_close(ctx));
    tell(fd, STEPS, rank, (uint64_t)atomic_load(&os.count), j->life);
    _exit(0);
}

/* ---- the job ---- */

static void hear(struct job *j, const struct message *m)
{
    T_CHECK(m->rank < (uint32_t)j->ranks && (m->what == STEPS || m->version < MAX_VERSIONS));
    switch (m->what) {
    case FOUND:
        j->found[m->version][m->rank] = m->life;
        break;
    case LATEST:
        j->latest[m->rank] = m->version;
        break;
    case STARTED:
        j->started[m->version][m->rank] = m->life;
        break;
    case COMPLETE:
        j->complete[m->version] = m->life;
        j->versions++;
        break;
    case GAVE_UP:
        j->gave_up++;
        break;
    default:
        j->steps[m->rank] = (long)m->version;
        break;
    }
}

static void hear_all(struct job *j, int fd)
{
    struct message m;
    ssize_t got;
    while ((got = read(fd, &m, sizeof(m))) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        T_EQ(got, sizeof(m));
        hear(j, &m);
    }
}

/* What the ranks have found is the same, and what it should be. */
static void check_found(const struct job *j, int rank)
{
    for (uint64_t v = 0; v < MAX_VERSIONS; v++) {
        uint64_t life = j->found[v][rank];
        if (j->before[v] && life != j->before[v])
            t_fail(
                __FILE__, __LINE__,
                "life %llu, rank %d: version %llu was complete in life %llu, and is of life %llu",
                (unsigned long long)j->life, rank, (unsigned long long)v,
                (unsigned long long)j->before[v], (unsigned long long)life);
    }
}

static void check_same(struct job *j)
{
    for (uint64_t v = 0; v < MAX_VERSIONS; v++) {
        uint64_t life = j->found[v][0];
        for (int r = 0; r < j->ranks; r++) {
            if (j->found[v][r] != life)
                t_fail(__FILE__, __LINE__,
                       "life %llu: version %llu is of life %llu on rank 0 and %llu on rank %d",
                       (unsigned long long)j->life, (unsigned long long)v, (unsigned long long)life,
                       (unsigned long long)j->found[v][r], r);
            if (life)
                T_CHECK(j->started[v][r] >= life);
        }
        if (life && !j->complete[v])
            j->complete[v] = life; /* nobody may have lived to hear of it */
    }
    for (int r = 1; r < j->ranks; r++)
        T_EQ(j->latest[r], j->latest[0]);
}

enum { NOBODY = -1, EVERYBODY = -2 };

/* One life. `victim` dies at call `at`, or everybody after `at` microseconds. Returns whether it was
 * killed. */
static bool live(struct job *j, int victim, long at)
{
    pid_t pid[MAX_RANKS];
    int fds[2];
    bool killed = false;
    j->life++;
    memset(j->found, 0, sizeof(j->found));
    memcpy(j->before, j->complete, sizeof(j->before));
    T_OK(pipe(fds));
    for (int r = 0; r < j->ranks; r++) {
        pid[r] = fork();
        T_CHECK(pid[r] >= 0);
        if (pid[r] == 0) {
            close(fds[0]);
            rank_main(j, r, fds[1], r == victim ? at : 0,
                      victim == NOBODY ? CK_LIMIT_MS : LOST_WAIT_MS);
        }
    }
    close(fds[1]);
    if (victim == EVERYBODY) {
        if (at % 2)
            T_EQ(poll(&(struct pollfd){.fd = fds[0], .events = POLLIN}, 1, CK_LIMIT_MS), 1);
        vv_sleep_until_ns(vv_now_ns() + (uint64_t)at * VV_NS_PER_US);
        for (int r = 0; r < j->ranks; r++)
            T_OK(kill(pid[r], SIGKILL));
    }
    hear_all(j, fds[0]);
    close(fds[0]);
    for (int r = 0; r < j->ranks; r++) {
        int status;
        T_EQ(waitpid(pid[r], &status, 0), pid[r]);
        bool dead = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        T_CHECK(dead ? victim == EVERYBODY || victim == r
                     : WIFEXITED(status) && WEXITSTATUS(status) == 0);
        killed |= dead;
        if (!dead)
            check_found(j, r);
    }
    return killed;
}

/* A life that nobody ends: what is there must be the same everywhere. */
static void live_on(struct job *j)
{
    live(j, NOBODY, 0);
    check_same(j);
}

/* Kills each rank at calls spread over all that it makes; two killed lives, then one that lives. */
static void every_step(int ranks, bool local, uint64_t gate, uint64_t many)
{
    struct t_rng rng = {t_seed() + (uint64_t)ranks * 2 + local};
    struct job j;
    uint64_t cases = 0, kills = 0;
    job_init(&j, ranks, local);
    live_on(&j);
    live_on(&j); /* counts the calls of a life that finds something */
    long steps = 0;
    for (int r = 0; r < ranks; r++)
        steps = VV_MAX(steps, j.steps[r]);
    T_CHECK(steps > 30);
    uint64_t all = (uint64_t)steps * (uint64_t)ranks, n = VV_MIN(t_cases(gate, many), all);
    uint64_t first = t_rng_below(&rng, all), stride = VV_MAX(all / n, (uint64_t)1);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = (first + i * stride) % all;
        if (j.latest[0] + 8 > MAX_VERSIONS)
            job_init(&j, ranks, local);
        kills += live(&j, (int)(at / (uint64_t)steps), 1 + (long)(at % (uint64_t)steps));
        cases++;
        if (i % 2)
            live_on(&j);
    }
    live_on(&j);
    t_note("%d ranks%s: %llu of %llu kills at a numbered call (%llu hit), %llu lives, %llu waits "
           "given up",
           ranks, local ? "" : " without local folders", (unsigned long long)cases,
           (unsigned long long)all, (unsigned long long)kills, (unsigned long long)j.life,
           (unsigned long long)j.gave_up);
    /* A life that others cut short makes fewer calls: some kills come to nothing. */
    T_CHECK(kills > 0 || n < 8);
}

static void test_one_rank(void)
{
    every_step(1, true, 24, 100000);
}

static void test_one_rank_direct(void)
{
    every_step(1, false, 12, 100000);
}

static void test_four_ranks(void)
{
    every_step(4, true, 16, 100000);
}

static void test_four_ranks_direct(void)
{
    every_step(4, false, 8, 100000);
}

/* All at once, at a random instant. */
static void test_all_at_once(void)
{
    struct t_rng rng = {t_seed() ^ 77};
    struct job j;
    uint64_t n = t_cases(12, 600);
    job_init(&j, 4, true);
    for (uint64_t i = 0; i < n; i++) {
        if (j.latest[0] + 8 > MAX_VERSIONS)
            job_init(&j, 4, true);
        live(&j, EVERYBODY, (long)t_rng_below(&rng, 60000));
        if (i % 3 == 2)
            live_on(&j);
    }
    live_on(&j);
    t_note("%llu times all of 4 ranks killed, %llu lives", (unsigned long long)n,
           (unsigned long long)j.life);
}

/* Many ranks commit, and start again, on other nodes too. */
static void test_many_ranks(void)
{
    struct job j;
    int ranks = t_long() ? MAX_RANKS : t_sanitized() ? 4 : 8;
    job_init(&j, ranks, true);
    live_on(&j);
    for (int r = 0; r < ranks; r++)
        j.folder[r] = t_tmpdir();
    live_on(&j);
    T_EQ(j.latest[0], PER_LIFE);
    live(&j, ranks / 2, 60);
    live_on(&j);
    t_note("%d ranks, %llu times told that a version is complete", ranks,
           (unsigned long long)j.versions);
}

int main(void)
{
    T_RUN(test_one_rank);
    T_RUN(test_one_rank_direct);
    T_RUN(test_four_ranks);
    T_RUN(test_four_ranks_direct);
    T_RUN(test_all_at_once);
    T_RUN(test_many_ranks);
    return t_done();
}
