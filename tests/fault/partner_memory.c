/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One allocation of one process fails in a collective call: the call fails on all processes or on none, and no process
 * waits for one that has left.
 *
 * Threads are the processes, each with a folder as the disk of its node. A first life writes
 * versions; one disk is taken away, so that opening has files to restore. In the next life the Nth
 * allocation of one process fails, between the opening of the context and the end of the repair,
 * for every N. The linker passes every allocation of the library through this file
 * (cmake/VarveTests.cmake).
 */
#include <stdatomic.h>
#include <unistd.h>

#include <varve/ckpt.h>
#include <varve/transport.h>

#include "fault/fail_alloc.h"
#include "t.h"
#include "unit/ckpt/ck.h"
#include "unit/ckpt/hub.h"

enum { PAGE = 4096, BYTES = 3 * PAGE + 77, RANKS = 3, VERSIONS = 2, LOST = 1, LIMIT_S = 120 };

/* ---- a transport whose own allocations do not count ---- */

static struct varve_transport inner[RANKS];

static int quiet_send(void *arg, int32_t to, void *message, size_t bytes)
{
    struct varve_transport *t = arg;
    bool was = counting;
    counting = false;
    int rc = t->send(t->arg, to, message, bytes);
    counting = was;
    return rc;
}

static int quiet_receive(void *arg, int32_t *ret_from, void **ret_message, size_t *ret_bytes)
{
    struct varve_transport *t = arg;
    bool was = counting;
    counting = false;
    int rc = t->receive(t->arg, ret_from, ret_message, ret_bytes);
    counting = was;
    return rc;
}

static int quiet_exchange(void *arg, const struct varve_part *out, struct varve_part *ret_in)
{
    struct varve_transport *t = arg;
    bool was = counting;
    counting = false;
    int rc = t->exchange(t->arg, out, ret_in);
    counting = was;
    return rc;
}

static int quiet_most(void *arg, uint64_t value, uint64_t *ret_most)
{
    struct varve_transport *t = arg;
    return t->most(t->arg, value, ret_most);
}

/* ---- a job ---- */

struct job {
    const char *base;
    struct hub *hub;
    bool threads, parity;
    int life, victim;
    long at;
    atomic_int contexts, histories; /* number of processes that have opened them */
    long counted;                   /* allocations of the victim */
};

struct process {
    struct job *job;
    int rank;
    char buf[BYTES];
};

static void write_life(struct process *p, struct varve_history *h)
{
    for (uint64_t v = 1; v <= VERSIONS; v++) {
        ck_fill(p->buf, BYTES, v, p->rank);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
        T_OK(varve_wait(h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    }
}

/* Restored files are correct; files that were not restored, for lack of memory, are missing. */
static void look(struct process *p, struct varve_history *h)
{
    for (uint64_t v = 1; v <= VERSIONS; v++) {
        memset(p->buf, 0, BYTES);
        int rc = varve_restore_for(h, v, CK_LIMIT_MS);
        if (rc == 0)
            T_CHECK(ck_same(p->buf, BYTES, v, p->rank));
        else
            T_CHECK(p->job->at > 0 && rc == -ENOENT);
    }
}

static void process_main(void *arg, int rank)
{
    struct job *job = arg;
    struct process self = {.job = job, .rank = rank}, *p = &self;
    struct varve_opts opts;
    struct varve_ctx *ctx = NULL;
    struct varve_history *h = NULL;
    inner[p->rank] = hub_transport(job->hub, p->rank, job->threads);
    struct varve_transport t = inner[p->rank];
    t.arg = &inner[p->rank];
    t.send = quiet_send;
    t.receive = quiet_receive;
    t.exchange = quiet_exchange;
    t.most = quiet_most;
    hub_options(job->base, p->rank, p->rank, RANKS, &opts);
    opts.run_id = 100 + (uint64_t)job->life;
    if (job->parity)
        memcpy(opts.parity, "xor", 4);
    allocs = 0;
    fails_at = job->at;
    counting = p->rank == job->victim;
    int rc = varve_open_with(&opts, &t, &ctx);
    atomic_fetch_add(&job->contexts, rc == 0);
    if (rc == 0) {
        rc = varve_history_open(ctx, "h", &h);
        atomic_fetch_add(&job->histories, rc == 0);
    }
    if (rc == 0 && job->life > 1)
        T_CHECK(varve_history_repair(h, 1, p->rank == LOST) != -ETIMEDOUT);
    counting = false;
    if (p->rank == job->victim)
        job->counted = allocs;
    if (rc == 0) {
        T_OK(varve_protect(h, 0, p->buf, BYTES));
        if (job->life == 1)
            write_life(p, h);
        else
            look(p, h);
    } else {
        T_EQ(rc, -ENOMEM);
        T_CHECK(job->at > 0);
    }
    rc = varve_close(ctx);
    T_CHECK(rc == 0 || job->at > 0);
}

static void run(struct job *job, int victim, long at)
{
    job->life++;
    job->victim = victim;
    job->at = at;
    job->hub = hub_new(RANKS);
    atomic_store(&job->contexts, 0);
    atomic_store(&job->histories, 0);
    alarm(LIMIT_S); /* a process that waits for ever ends the test */
    hub_each(job->hub, process_main, job);
    alarm(0);
    hub_free(job->hub);
    int contexts = atomic_load(&job->contexts), histories = atomic_load(&job->histories);
    T_CHECK(contexts == 0 || contexts == RANKS);
    T_CHECK(histories == 0 || histories == RANKS);
}

static void cases(bool parity)
{
    struct t_rng rng = {t_seed()};
    uint64_t tried = 0;
    long counted = 0;
    for (int threads = 0; threads < 2; threads++) {
        struct job job = {.base = t_tmpdir(), .threads = threads, .parity = parity};
        run(&job, -1, 0);
        for (int victim = 0; victim < RANKS; victim++) {
            hub_wipe(job.base, LOST);
            run(&job, victim, 0);
            counted = job.counted;
            T_CHECK(counted > 20);
            uint64_t n = t_cases(8, (uint64_t)counted);
            for (uint64_t i = 0; i < n; i++, tried++) {
                hub_wipe(job.base, LOST);
                run(&job, victim, 1 + (long)(t_long() ? i : t_rng_below(&rng, (uint64_t)counted)));
            }
        }
        hub_wipe(job.base, LOST);
        run(&job, -1, 0); /* no data was lost by any of it */
    }
    t_note("%llu cases, one of about %ld allocations each", (unsigned long long)tried, counted);
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
