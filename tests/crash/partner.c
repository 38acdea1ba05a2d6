/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power of a whole job with partner copies, or parity, is cut, and one node does not come back.
 *
 * Threads are the processes of a job, each with a folder as the disk of its node. A first life
 * writes a version. A second one overwrites it and writes others; in it the power is cut, when a
 * copy is acknowledged or before a numbered system call, and unsynced writes are lost. Then the
 * disk of one node is taken away, and a third life checks: every version for which a wait returned
 * success exists with the right bytes, those of the last such wait or later ones, and no version
 * has wrong bytes.
 */
#include <pthread.h>
#include <stdio.h>

#include <varve/ckpt.h>
#include <varve/transport.h>

#include "ckpt/ckpt_hooks.h"
#include "power_os.h"
#include "store/partner/partner_private.h"
#include "t.h"
#include "unit/ckpt/ck.h"
#include "unit/ckpt/hub.h"

enum { PAGE = 4096, BYTES = 3 * PAGE + 77, RANKS = 3, VERSIONS = 3 };

struct job {
    const char *base;
    bool threads, parity;
    int life;
    struct hub *hub;
    struct power_os power;
    int cut_by; /* the power is cut when this rank has acknowledged a copy; -1: not then */
    int safe[RANKS][VERSIONS + 1]; /* the life whose wait returned success; 0: none */
};

struct process {
    struct job *job;
    int rank;
    struct varve_transport inner;
    struct varve_ctx *ctx;
    struct varve_history *h;
    char buf[BYTES];
};

/* ---- a wire that cuts the power ---- */

static int cutting_send(void *arg, int32_t to, void *message, size_t bytes)
{
    struct process *p = arg;
    const struct vvi_part_msg *m = message;
    if (p->job->life == 2 && p->rank == p->job->cut_by &&
        m->kind == (p->job->parity ? VVI_PART_MADE : VVI_PART_STORED))
        power_os_cut(&p->job->power);
    return p->inner.send(p->inner.arg, to, message, bytes);
}

static int cutting_receive(void *arg, int32_t *ret_from, void **ret_message, size_t *ret_bytes)
{
    struct process *p = arg;
    return p->inner.receive(p->inner.arg, ret_from, ret_message, ret_bytes);
}

static int cutting_exchange(void *arg, const struct varve_part *out, struct varve_part *ret_in)
{
    struct process *p = arg;
    return p->inner.exchange(p->inner.arg, out, ret_in);
}

static int cutting_most(void *arg, uint64_t value, uint64_t *ret_most)
{
    struct process *p = arg;
    return p->inner.most(p->inner.arg, value, ret_most);
}

static struct varve_transport cutting_wire(struct process *p)
{
    p->inner = hub_transport(p->job->hub, p->rank, p->job->threads);
    struct varve_transport t = p->inner;
    t.arg = p;
    t.send = cutting_send;
    t.receive = cutting_receive;
    t.exchange = cutting_exchange;
    t.most = cutting_most;
    return t;
}

/* ---- lives ---- */

static bool off(struct job *job)
{
    if (job->life != 2)
        return false;
    pthread_mutex_lock(&job->power.lock);
    bool dead = job->power.dead;
    pthread_mutex_unlock(&job->power.lock);
    return dead;
}

/* A call may fail only after the power was cut. */
static bool ok(struct process *p, int rc, const char *what)
{
    if (rc != 0 && !off(p->job))
        t_fail(__FILE__, __LINE__, "rank %d, life %d: %s: %s", p->rank, p->job->life, what,
               t_errname(rc));
    return rc == 0;
}

static int region(int rank, int life)
{
    return rank * 10 + life;
}

static bool begin(struct process *p)
{
    struct varve_history_opts hopts;
    struct varve_opts opts;
    struct varve_transport t = cutting_wire(p);
    hub_options(p->job->base, p->rank, p->rank, RANKS, &opts);
    opts.run_id = 100 + (uint64_t)p->job->life;
    if (p->job->parity)
        memcpy(opts.parity, "xor", 4);
    T_OK(varve_history_opts_init(&hopts, sizeof(hopts)));
    hopts.overwrite = 1;
    return ok(p, varve_open_with(&opts, &t, &p->ctx), "open") &&
           ok(p, varve_history_open_with(p->ctx, "h", &hopts, &p->h), "history");
}

static void put(struct process *p, uint64_t version)
{
    ck_fill(p->buf, BYTES, version, region(p->rank, p->job->life));
    if (!ok(p, varve_checkpoint_for(p->h, version, CK_LIMIT_MS), "checkpoint") ||
        !ok(p, varve_wait(p->h, version, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), "wait"))
        return;
    p->job->safe[p->rank][version] = p->job->life;
}

static void look(struct process *p)
{
    for (uint64_t v = 1; v <= VERSIONS; v++) {
        memset(p->buf, 0, BYTES);
        int rc = varve_restore_for(p->h, v, CK_LIMIT_MS);
        int safe = p->job->safe[p->rank][v];
        T_CHECK(rc == 0 || rc == -ENOENT);
        if (rc != 0 && safe > 0)
            t_fail(__FILE__, __LINE__, "rank %d: version %d was safe and is lost", p->rank, (int)v);
        if (rc == 0)
            T_CHECK((safe < 2 && ck_same(p->buf, BYTES, v, region(p->rank, 1))) ||
                    ck_same(p->buf, BYTES, v, region(p->rank, 2)));
    }
}

static void process_main(void *arg, int rank)
{
    struct process self = {.job = arg, .rank = rank}, *p = &self;
    if (begin(p)) {
        T_OK(varve_protect(p->h, 0, p->buf, BYTES));
        if (p->job->life == 1)
            put(p, 1);
        for (uint64_t v = 1; p->job->life == 2 && v <= VERSIONS; v++)
            put(p, v);
        if (p->job->life == 3)
            look(p);
    }
    ok(p, varve_close(p->ctx), "close");
}

static void run(struct job *job, int life)
{
    job->life = life;
    job->hub = hub_new(RANKS);
    hub_each(job->hub, process_main, job);
    hub_free(job->hub);
}

/* Returns the number of calls of the second life. */
static long one(int cut_by, long at, bool threads, bool parity, struct t_rng *rng)
{
    static struct job job;
    job = (struct job){.base = t_tmpdir(), .threads = threads, .parity = parity, .cut_by = cut_by};
    run(&job, 1);
    power_os_init(&job.power, at);
    job.power.all = cut_by >= 0;
    struct vv_ckpt_hooks hooks = {.os = &job.power.os};
    vv_ckpt_set_hooks(&hooks);
    run(&job, 2);
    vv_ckpt_set_hooks(NULL);
    long calls = job.power.count;
    T_CHECK(job.power.dead == (cut_by >= 0 || (at != 0 && at <= calls)));
    power_os_lose(&job.power, rng);
    int lost = cut_by >= 0 ? (cut_by + RANKS - 1) % RANKS : (int)t_rng_below(rng, RANKS);
    hub_wipe(job.base, lost);
    run(&job, 3);
    return calls;
}

/* The copy acknowledged last is all that its owner has left. */
static void acknowledged_copies_last(void)
{
    struct t_rng rng = {t_seed()};
    for (int rank = 0; rank < RANKS; rank++)
        for (int parity = 0; parity < 2; parity++)
            one(rank, 0, rank % 2, parity, &rng);
}

static void numbered_calls(bool parity)
{
    struct t_rng rng = {t_seed()};
    long calls = one(-1, 0, true, parity, &rng);
    uint64_t n = t_cases(12, (uint64_t)calls);
    for (uint64_t i = 0; i < n; i++) {
        long at = 1 + (long)(t_long() ? i : t_rng_below(&rng, (uint64_t)calls));
        one(-1, at, t_rng_below(&rng, 2), parity, &rng);
    }
    t_note("the power cut %llu times, at one of %ld calls each", (unsigned long long)n, calls);
}

static void numbered_calls_of_copies(void)
{
    numbered_calls(false);
}

static void numbered_calls_of_parity(void)
{
    numbered_calls(true);
}

int main(void)
{
    T_RUN(acknowledged_copies_last);
    T_RUN(numbered_calls_of_copies);
    T_RUN(numbered_calls_of_parity);
    return t_done();
}
