/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks are processes that report to this one through a pipe what they find and do; a pipe takes such short messages
 * whole or not at all. Of a killed rank, only what it has reported is known. */
#include "crash/job.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "ckpt/ckpt_hooks.h"
#include "fault_os.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { LOST_WAIT_MS = 100 };

enum what { FOUND = 1, LOOKED, STARTED, REPORTED, GAVE_UP, FAILED, STEPS };

struct message {
    uint32_t what, rank;
    uint64_t version, life;
};

void job_init(struct job *j, int level, int ranks, bool local)
{
    memset(j, 0, sizeof(*j));
    j->level = level;
    j->ranks = ranks;
    j->local = local;
    j->remote = level >= VARVE_LEVEL_REMOTE ? t_tmpdir() : NULL;
    job_move(j);
}

void job_move(struct job *j)
{
    for (int r = 0; r < j->ranks && j->local; r++)
        j->folder[r] = r == 0 || j->level >= VARVE_LEVEL_REMOTE ? t_tmpdir() : j->folder[0];
}

bool job_is_full(const struct job *j)
{
    uint64_t latest = 0; /* below level complete the ranks may differ */
    for (int r = 0; r < j->ranks; r++)
        latest = VV_MAX(latest, j->latest[r]);
    return latest + 5 * JOB_PER_LIFE > JOB_VERSIONS || j->life + 8 > JOB_LIVES;
}

/* ---- a rank ---- */

struct rank {
    const struct job *job;
    int rank, fd;
    bool tolerant; /* calls may fail */
    int wait_ms;   /* for the other ranks */
    struct fault_os os;
    struct varve_ctx *ctx;
    struct varve_history *h;
};

static void send_message(const struct rank *r, enum what what, uint64_t version, uint64_t life)
{
    struct message m = {what, (uint32_t)r->rank, version, life};
    T_EQ(write(r->fd, &m, sizeof(m)), sizeof(m));
}

/* True if the call failed, which is allowed after trouble only. */
static bool failed(const struct rank *r, int rc, const char *what)
{
    if (rc == 0)
        return false;
    if (!r->tolerant || rc > 0 || rc == -ETIMEDOUT)
        t_fail(__FILE__, __LINE__, "rank %d, life %llu: %s: %s", r->rank,
               (unsigned long long)r->job->life, what, t_errname(rc));
    send_message(r, FAILED, 0, r->job->life);
    return true;
}

static void fill(char *buf, uint64_t version, int rank, uint64_t life)
{
    ck_fill(buf, JOB_BYTES, version * 1000 + (uint64_t)rank, (int)life);
    memcpy(buf, &life, sizeof(life));
}

/* Returns the life that has written a restored version; fails the test if its bytes are wrong. */
static uint64_t recognise(const struct rank *r, const char *buf, uint64_t version)
{
    static char want[JOB_BYTES];
    uint64_t life;
    memcpy(&life, buf, sizeof(life));
    fill(want, version, r->rank, life);
    if (memcmp(buf, want, JOB_BYTES) != 0)
        t_fail(__FILE__, __LINE__, "rank %d, life %llu: wrong bytes in version %llu", r->rank,
               (unsigned long long)r->job->life, (unsigned long long)version);
    return life;
}

/* True if a reported version is missing from the list because of an earlier failure. Fails the
 * test if it is missing for another reason, unless the retention rule has expired it. */
static bool missing(struct rank *r, const uint64_t *versions, size_t n)
{
    const struct job *j = r->job;
    bool any = false;
    uint64_t newer = 0;
    for (uint64_t v = JOB_VERSIONS; r->tolerant && v-- > 0;) {
        bool listed = false, reported = j->before[v][r->rank] != 0;
        for (size_t i = 0; i < n; i++)
            listed |= versions[i] == v;
        bool wanted = reported && !listed && (j->keep == 0 || newer < j->keep);
        int rc = wanted ? varve_restore_for(r->h, v, CK_LIMIT_MS) : 0;
        if (wanted && (rc == 0 || rc == -ENOENT))
            t_fail(__FILE__, __LINE__, "rank %d, life %llu: version %llu is lost: %s", r->rank,
                   (unsigned long long)j->life, (unsigned long long)v, t_errname(rc));
        any |= failed(r, rc, "restore");
        newer += reported || listed;
    }
    return any;
}

/* Restores all listed versions. *ret_again: one has expired meanwhile, because a newer one has
 * reached the level that may be missing in the list. */
static bool look_at_all(struct rank *r, bool *ret_again)
{
    static uint64_t versions[JOB_VERSIONS];
    static char buf[JOB_BYTES];
    const struct job *j = r->job;
    size_t n;
    *ret_again = false;
    T_OK(varve_versions(r->h, versions, JOB_VERSIONS, &n));
    T_CHECK(n <= JOB_VERSIONS);
    T_OK(varve_protect(r->h, 0, buf, JOB_BYTES));
    if (missing(r, versions, n))
        return false;
    for (size_t i = 0; i < n; i++) {
        memset(buf, 0, JOB_BYTES);
        int rc = varve_restore_for(r->h, versions[i], CK_LIMIT_MS);
        if (rc == -EBADMSG && versions[i] == j->damaged_version && r->rank == j->damaged_rank)
            continue;
        if (rc == -ENOENT && j->keep != 0) {
            *ret_again = true;
            continue;
        }
        if (failed(r, rc, "restore"))
            return false;
        send_message(r, FOUND, versions[i], recognise(r, buf, versions[i]));
    }
    return true;
}

static bool look(struct rank *r, uint64_t *ret_latest)
{
    const struct job *j = r->job;
    bool again = true;
    for (int i = 0; again && i < JOB_VERSIONS; i++)
        if (!look_at_all(r, &again))
            return false;
    int rc = varve_latest(r->h, ret_latest);
    if (rc == -ENOENT)
        *ret_latest = 0;
    else
        T_OK(rc);
    send_message(r, LOOKED, *ret_latest, j->life);
    return true;
}

/* False: the life has ended. */
static bool write_one(struct rank *r, uint64_t v)
{
    static char buf[JOB_BYTES];
    const struct job *j = r->job;
    fill(buf, v, r->rank, j->life);
    T_OK(varve_protect(r->h, 0, buf, JOB_BYTES));
    send_message(r, STARTED, v, j->life);
    if (failed(r, varve_checkpoint_for(r->h, v, CK_LIMIT_MS), "checkpoint"))
        return false;
    enum varve_level own = (enum varve_level)VV_MIN(j->level, (int)VARVE_LEVEL_REMOTE);
    if (failed(r, varve_wait(r->h, v, own, CK_LIMIT_MS), "wait"))
        return false;
    if (j->level == VARVE_LEVEL_COMPLETE) {
        int rc = varve_wait(r->h, v, VARVE_LEVEL_COMPLETE, r->wait_ms);
        if (rc == -ETIMEDOUT) {
            send_message(r, GAVE_UP, v, j->life);
            return false;
        }
        if (failed(r, rc, "wait for all"))
            return false;
    }
    send_message(r, REPORTED, v, j->life);
    return true;
}

static void write_some(struct rank *r, uint64_t latest)
{
    static char buf[JOB_BYTES];
    uint64_t v = latest + 1;
    while (v <= latest + JOB_PER_LIFE && write_one(r, v))
        v++;
    T_OK(varve_protect(r->h, 0, buf, JOB_BYTES));
    for (uint64_t k = latest + 1; k < v; k++)
        if (!failed(r, varve_restore_for(r->h, k, CK_LIMIT_MS), "restore"))
            T_EQ(recognise(r, buf, k), r->job->life);
}

static bool open_rank(struct rank *r)
{
    const struct job *j = r->job;
    struct varve_opts opts;
    struct varve_history_opts keep;
    char run[32];
    snprintf(run, sizeof(run), "life %llu", (unsigned long long)j->life);
    /* At level cached the second version evicts the first one to the disk. */
    struct ck_cfg cfg = {.host_cache =
                             (j->level == VARVE_LEVEL_CACHED ? 4 : 16) * (uint64_t)JOB_PAGE,
                         .local = j->local ? j->folder[r->rank] : NULL,
                         .remote = j->remote,
                         .level = j->level,
                         .rank = r->rank,
                         .ranks = j->ranks,
                         .run = run};
    struct vv_ckpt_hooks hooks = {.os = &r->os.os};
    vv_ckpt_set_hooks(&hooks);
    ck_opts(&cfg, &opts);
    if (failed(r, varve_open(&opts, &r->ctx), "open"))
        return false;
    T_OK(varve_history_opts_init(&keep, sizeof(keep)));
    keep.keep = j->keep;
    if (!failed(r, varve_history_open_with(r->ctx, "job", &keep, &r->h), "history"))
        return true;
    (void)varve_close(r->ctx);
    return false;
}

/* One life of one rank. Never returns. */
static void rank_main(const struct job *j, int rank, int fd, const struct job_fault *f)
{
    static struct rank r;
    bool victim = rank == f->victim;
    uint64_t latest;
    r = (struct rank){.job = j,
                      .rank = rank,
                      .fd = fd,
                      .wait_ms = f->trouble == JOB_NONE || f->trouble == JOB_SHORT ? CK_LIMIT_MS
                                                                                   : LOST_WAIT_MS};
    fault_os_init(&r.os);
    if (victim) {
        r.tolerant = f->trouble == JOB_ONCE || f->trouble == JOB_FOR_EVER;
        r.os.mode = f->trouble == JOB_KILL       ? FAULT_KILL
                    : f->trouble == JOB_ONCE     ? FAULT_ONCE
                    : f->trouble == JOB_FOR_EVER ? FAULT_FOREVER
                                                 : FAULT_NONE;
        r.os.at = f->at;
        r.os.err = f->err;
        r.os.short_bytes = f->trouble == JOB_SHORT ? JOB_PAGE : 0;
    }
    if (open_rank(&r)) {
        if (look(&r, &latest) && !j->only_look)
            write_some(&r, latest);
        failed(&r, varve_close(r.ctx), "close");
    }
    send_message(&r, STEPS, (uint64_t)atomic_load(&r.os.count), j->life);
    _exit(0);
}

/* ---- the job ---- */

static void report(struct job *j, const struct message *m)
{
    j->reports++;
    if (j->level == VARVE_LEVEL_CACHED)
        return; /* it survives no kill */
    j->reported[m->version][m->rank] = m->life;
    for (int r = 0; r < j->ranks && j->level == VARVE_LEVEL_COMPLETE; r++)
        j->reported[m->version][r] = m->life;
}

static void take_message(struct job *j, const struct message *m)
{
    T_CHECK(m->rank < (uint32_t)j->ranks && (m->what == STEPS || m->version < JOB_VERSIONS));
    switch (m->what) {
    case FOUND:
        j->found[m->version][m->rank] = m->life;
        break;
    case LOOKED:
        j->looked[m->rank] = true;
        j->latest[m->rank] = m->version;
        break;
    case STARTED:
        j->begun[m->version][m->rank][m->life / 8] |= (uint8_t)(1u << m->life % 8);
        break;
    case REPORTED:
        report(j, m);
        break;
    case GAVE_UP:
        j->gave_up++;
        break;
    case FAILED:
        j->failures++;
        break;
    default:
        j->steps[m->rank] = (long)m->version;
        break;
    }
}

static void take_messages(struct job *j, int fd)
{
    struct message m;
    ssize_t got;
    while ((got = read(fd, &m, sizeof(m))) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        T_EQ(got, sizeof(m));
        take_message(j, &m);
    }
}

static bool began(const struct job *j, uint64_t version, int rank, uint64_t life)
{
    return j->begun[version][rank][life / 8] >> life % 8 & 1;
}

/* True if the retention rule has expired the version. */
static bool given_up(const struct job *j, uint64_t version, int rank)
{
    uint64_t newer = 0;
    for (uint64_t v = version + 1; v < JOB_VERSIONS; v++)
        newer += j->before[v][rank] != 0 || j->found[v][rank] != 0;
    return j->keep != 0 && newer >= j->keep;
}

/* Checks that a rank has found what it should. */
static void check_found(struct job *j, int rank)
{
    bool all = j->level == VARVE_LEVEL_COMPLETE;
    for (uint64_t v = 0; v < JOB_VERSIONS; v++) {
        uint64_t life = j->found[v][rank], want = j->before[v][rank];
        if (life == 0 && v == j->damaged_version && rank == j->damaged_rank)
            continue;
        if (life == 0 && given_up(j, v, rank))
            continue;
        if (want && life != want)
            t_fail(
                __FILE__, __LINE__,
                "life %llu, rank %d: version %llu was reported in life %llu, and is of life %llu",
                (unsigned long long)j->life, rank, (unsigned long long)v, (unsigned long long)want,
                (unsigned long long)life);
        if (life == 0)
            continue;
        T_CHECK(j->level != VARVE_LEVEL_CACHED);
        for (int r = all ? 0 : rank; r <= (all ? j->ranks - 1 : rank); r++)
            if (!began(j, v, r, life))
                t_fail(__FILE__, __LINE__,
                       "life %llu, rank %d: version %llu is of life %llu, in which rank %d had not "
                       "begun it",
                       (unsigned long long)j->life, rank, (unsigned long long)v,
                       (unsigned long long)life, r);
        /* The report may have died with the rank. A version that is not in the shared folder may be lost. */
        for (int r = 0; r < j->ranks && j->level != VARVE_LEVEL_REMOTE; r++)
            if ((all || r == rank) && j->reported[v][r] < life)
                j->reported[v][r] = life;
    }
}

static void check_same(const struct job *j)
{
    for (int r = 1; r < j->ranks && j->level == VARVE_LEVEL_COMPLETE; r++) {
        T_CHECK(j->looked[0] && j->looked[r]);
        T_EQ(j->latest[r], j->latest[0]);
        for (uint64_t v = 0; v < JOB_VERSIONS; v++)
            if (j->found[v][r] != j->found[v][0])
                t_fail(__FILE__, __LINE__,
                       "life %llu: version %llu is of life %llu on rank 0 and %llu on rank %d",
                       (unsigned long long)j->life, (unsigned long long)v,
                       (unsigned long long)j->found[v][0], (unsigned long long)j->found[v][r], r);
    }
}

static void kill_all(const struct job *j, const pid_t *pid, int fd, long at)
{
    if (at % 2)
        T_EQ(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, CK_LIMIT_MS), 1);
    vv_sleep_until_ns(vv_now_ns() + (uint64_t)at * VV_NS_PER_US);
    for (int r = 0; r < j->ranks; r++)
        T_OK(kill(pid[r], SIGKILL));
}

static bool ended_by_kill(pid_t pid, bool may)
{
    int status;
    T_EQ(waitpid(pid, &status, 0), pid);
    bool dead = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    T_CHECK(dead ? may : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return dead;
}

bool job_live(struct job *j, const struct job_fault *f)
{
    pid_t pid[JOB_RANKS];
    int fds[2];
    bool killed = false;
    j->life++;
    T_CHECK(j->life < JOB_LIVES);
    memset(j->found, 0, sizeof(j->found));
    memset(j->looked, 0, sizeof(j->looked));
    memcpy(j->before, j->reported, sizeof(j->before));
    T_OK(pipe(fds));
    for (int r = 0; r < j->ranks; r++) {
        pid[r] = fork();
        T_CHECK(pid[r] >= 0);
        if (pid[r] == 0) {
            close(fds[0]);
            rank_main(j, r, fds[1], f);
        }
    }
    close(fds[1]);
    if (f->trouble == JOB_KILL_ALL)
        kill_all(j, pid, fds[0], f->at);
    take_messages(j, fds[0]);
    close(fds[0]);
    for (int r = 0; r < j->ranks; r++) {
        bool may = f->trouble == JOB_KILL_ALL || (f->trouble == JOB_KILL && r == f->victim);
        killed |= ended_by_kill(pid[r], may);
        if (j->looked[r])
            check_found(j, r);
    }
    return killed;
}

void job_live_on(struct job *j)
{
    job_live(j, &(struct job_fault){.trouble = JOB_NONE, .victim = -1});
    check_same(j);
}
