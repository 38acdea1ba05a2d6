/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partner copies, and parity: system calls fail, or the job is killed before one, and then a node is lost.
 *
 * Threads are the processes of a job, each with a folder as the disk of its node. A first life writes versions; in a
 * second one the Nth system call of all processes together fails, once or from then on, or the whole job is killed
 * before it. Then the disk of one node is taken away, and a third life checks. Whatever failed: no call hangs, opening
 * fails on all processes or on none, every version for which a wait returned success exists with the right bytes, and
 * no version has wrong ones.
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>
#include <varve/transport.h>

#include "base/util.h"
#include "ckpt/ckpt_hooks.h"
#include "fault_os.h"
#include "t.h"
#include "unit/ckpt/ck.h"
#include "unit/ckpt/hub.h"

enum { PAGE = 4096, BYTES = 3 * PAGE + 77, RANKS = 3, VERSIONS = 4, FIRST = 2, LIVES = 3 };

/* State that outlives a killed job. */
struct seen {
    atomic_int safe[RANKS][VERSIONS + 1]; /* the life whose wait returned success; 0: none */
    atomic_int opened; /* number of processes that could open in the second life */
};

struct job {
    const char *base;
    bool threads, parity;
    int life;
    struct hub *hub;
    struct seen *seen;
};

struct process {
    struct job *job;
    int rank;
    struct varve_ctx *ctx;
    struct varve_history *h;
    char buf[BYTES];
};

static int region(int rank, int life)
{
    return rank * 10 + life;
}

static bool begin(struct process *p)
{
    struct varve_opts opts;
    struct varve_history_opts hopts;
    struct varve_transport t = hub_transport(p->job->hub, p->rank, p->job->threads);
    hub_options(p->job->base, p->rank, p->rank, RANKS, &opts);
    opts.run_id = 100 + (uint64_t)p->job->life;
    if (p->job->parity)
        memcpy(opts.parity, "xor", 4);
    int rc = varve_open_with(&opts, &t, &p->ctx);
    T_CHECK(rc == 0 || (rc != -ETIMEDOUT && p->job->life == 2));
    if (rc)
        return false;
    T_OK(varve_history_opts_init(&hopts, sizeof(hopts)));
    hopts.overwrite = 1;
    rc = varve_history_open_with(p->ctx, "h", &hopts, &p->h);
    T_CHECK(rc == 0 || (rc != -ETIMEDOUT && p->job->life == 2));
    if (rc) {
        varve_close(p->ctx);
        return false;
    }
    T_OK(varve_protect(p->h, 0, p->buf, BYTES));
    return true;
}

/* The first life writes the first versions, the second overwrites one of them and writes others. */
static void write_life(struct process *p)
{
    int life = p->job->life;
    if (!begin(p))
        return;
    atomic_fetch_add(&p->job->seen->opened, 1);
    for (uint64_t v = life == 1 ? 1 : FIRST; v <= (life == 1 ? FIRST : VERSIONS); v++) {
        atomic_int *safe = &p->job->seen->safe[p->rank][v];
        ck_fill(p->buf, BYTES, v, region(p->rank, life));
        int rc = varve_checkpoint_for(p->h, v, CK_LIMIT_MS);
        T_CHECK(rc == 0 || (rc != -ETIMEDOUT && life == 2));
        /* A late error is reported once, in place of the checkpoint. */
        if (rc)
            rc = varve_checkpoint_for(p->h, v, CK_LIMIT_MS);
        if (rc == 0)
            rc = varve_wait(p->h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS);
        if (rc == 0)
            atomic_store(safe, life);
        T_CHECK(rc == 0 || (rc != -ETIMEDOUT && life == 2));
    }
    int rc = varve_close(p->ctx);
    T_CHECK(rc == 0 || (rc != -ETIMEDOUT && life == 2));
}

static void look(struct process *p)
{
    T_CHECK(begin(p));
    for (uint64_t v = 1; v <= VERSIONS; v++) {
        int safe = atomic_load(&p->job->seen->safe[p->rank][v]);
        memset(p->buf, 0, BYTES);
        int rc = varve_restore_for(p->h, v, CK_LIMIT_MS);
        bool first = ck_same(p->buf, BYTES, v, region(p->rank, 1));
        bool second = ck_same(p->buf, BYTES, v, region(p->rank, 2));
        if (rc == 0)
            T_CHECK(safe == 2 ? second : first || second);
        else
            T_CHECK(rc == -ENOENT && safe == 0);
    }
    T_OK(varve_close(p->ctx));
}

static void process_main(void *arg, int rank)
{
    struct process p = {.job = arg, .rank = rank};
    if (p.job->life < LIVES)
        write_life(&p);
    else
        look(&p);
}

static void run(struct job *job, int life)
{
    job->life = life;
    job->hub = hub_new(RANKS);
    hub_each(job->hub, process_main, job);
    hub_free(job->hub);
}

/* Runs the second life, in a process of its own if it is to be killed. Returns the number of its calls. */
static long second_life(struct job *job, enum fault_mode mode, long at)
{
    struct fault_os os;
    fault_os_init(&os);
    os.mode = mode;
    os.at = at;
    os.err = mode == FAULT_FOREVER ? ENOSPC : EIO;
    struct vv_ckpt_hooks hooks = {.os = &os.os};
    if (mode != FAULT_KILL) {
        vv_ckpt_set_hooks(&hooks);
        run(job, 2);
        vv_ckpt_set_hooks(NULL);
        return os.count;
    }
    pid_t child = fork();
    T_CHECK(child >= 0);
    if (child == 0) {
        vv_ckpt_set_hooks(&hooks);
        run(job, 2);
        _exit(0);
    }
    int status = 0;
    T_EQ(waitpid(child, &status, 0), child);
    T_CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
            (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return 0;
}

static long one_case(enum fault_mode mode, long at, int lost, bool threads, bool parity)
{
    struct seen *seen =
        mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    T_CHECK(seen != MAP_FAILED);
    struct job job = {.base = t_tmpdir(), .threads = threads, .parity = parity, .seen = seen};
    run(&job, 1);
    atomic_store(&seen->opened, 0);
    long calls = second_life(&job, mode, at);
    int opened = atomic_load(&seen->opened);
    T_CHECK(mode == FAULT_KILL || opened == 0 || opened == RANKS);
    hub_wipe(job.base, lost);
    run(&job, LIVES);
    for (int i = 0; i < RANKS; i++)
        hub_wipe(job.base, i);
    munmap(seen, sizeof(*seen));
    return calls;
}

static void cases(bool parity)
{
    static const enum fault_mode modes[] = {FAULT_ONCE, FAULT_FOREVER, FAULT_KILL};
    struct t_rng rng = {t_seed()};
    long calls = one_case(FAULT_NONE, 0, 0, true, parity);
    uint64_t n = t_cases(21, (uint64_t)calls);
    for (uint64_t i = 0; i < n; i++) {
        long at = 1 + (long)(t_long() ? i : t_rng_below(&rng, (uint64_t)calls));
        (void)one_case(modes[i % 3], at, (int)t_rng_below(&rng, RANKS), t_rng_below(&rng, 2),
                       parity);
    }
    t_note("%llu cases, one of %ld system calls each", (unsigned long long)n, calls);
}

static void copies(void)
{
    cases(false);
}

static void parity(void)
{
    cases(true);
}

int main(void)
{
    T_RUN(copies);
    T_RUN(parity);
    return t_done();
}
