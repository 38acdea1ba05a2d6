/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processors of a context's threads. policy/cores.h decides; this file collects its input: the threads that the
 * application has at opening, its job on this node (base/job.h), the processors that other processes of the node are
 * bound to, and those near the device.
 *
 * Other processes are found in three places: the launcher's list, the processes that opened together (`rank_cores`),
 * and the statistics pages of all contexts of this user on the node.
 *
 * The decision is made at opening, before the context has threads. If it may change, it is repeated every few seconds,
 * on the thread that publishes figures: processes may start later, and other jobs may begin to use idle processors.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/job.h"
#include "base/thread_group.h"
#include "base/topo.h"
#include "ckpt/ckpt_options.h"
#include "ckpt/ckpt_private.h"
#include "policy/cores.h"
#include "stats/stats_page.h"

#define AGAIN_NS (2000 * VV_NS_PER_MS)
#define STALE_NS (5000 * VV_NS_PER_MS)

struct vvi_cores {
    bool automatic;   /* immutable once open, like all fields down to core_of */
    cpu_set_t *masks; /* of the threads at opening */
    size_t nmasks;
    struct vv_job job;
    cpu_set_t near, agreed;
    char app
        [VV_THREAD_GROUP_CORES_TEXT]; /* the processors that the application may use, as a list */
    unsigned app_cpus;                /* their number */
    uint16_t core_of[CPU_SETSIZE];
    /* Owner: the thread that opens the context, then the publisher. */
    struct vv_job_sample sample[2];
    unsigned taken; /* samples so far */
    uint64_t sampled_ns;
    _Atomic enum vv_cores_how how; /* Synchronization: relaxed */
};

static unsigned number_in(const char *variable)
{
    const char *text = getenv(variable);
    long n = text ? strtol(text, NULL, 10) : 0;
    return n > 0 && n < CPU_SETSIZE ? (unsigned)n : 0;
}

/* True if OpenMP binds its threads: then the processors of one thread are not those of the process. */
static bool binds(void)
{
    static const char *const variables[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                            "KMP_AFFINITY"};
    for (size_t i = 0; i < VV_ARRAY_SIZE(variables); i++) {
        const char *text = getenv(variables[i]);
        if (text && *text && strcasecmp(text, "false") != 0)
            return true;
    }
    return false;
}

/* True if other processes of the same job run on this machine. */
static bool has_neighbours(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                            "SLURM_NTASKS_PER_NODE", "PMI_SIZE"};
    for (size_t i = 0; i < VV_ARRAY_SIZE(variables); i++)
        if (number_in(variables[i]) > 1)
            return true;
    return false;
}

/* ---- other processes ---- */

static const struct vv_job_sample *last_sample(const struct vvi_cores *c)
{
    return &c->sample[(c->taken + 1) % 2];
}

static void take_sample(struct vvi_cores *c)
{
    vv_job_look(&c->job, &c->sample[c->taken++ % 2]);
    c->sampled_ns = vv_now_ns();
}

struct pages {
    const struct vvi_cores *cores;
    struct vv_stats_header self;
    cpu_set_t *ranks;
};

/* Adds the processors of a process that are published on its statistics page. */
static int add_page(void *arg, const struct vv_stats_page *page)
{
    struct pages *p = arg;
    const struct vv_stats_header *h = &page->header;
    uint64_t age_ns = p->self.opened_ns - VV_MIN(p->self.opened_ns, page->record.time_ns);
    cpu_set_t cpus, both;
    if (page->status || page->owner == VV_STATS_DEAD || h->boot != p->self.boot ||
        age_ns > STALE_NS || (h->pid == p->self.pid && h->pid_space == p->self.pid_space) ||
        vv_cpus_parse(page->record.app_where, &cpus) != 0)
        return 0;
    CPU_AND(&both, &cpus, &p->cores->job.cpus);
    if (!CPU_EQUAL(&both, &p->cores->job.cpus)) /* it is bound */
        CPU_OR(p->ranks, p->ranks, &cpus);
    return 0;
}

static void add_pages(const struct vvi_cores *c, cpu_set_t *ranks)
{
    struct pages p = {.cores = c, .ranks = ranks};
    vv_stats_about_process(&p.self);
    (void)!vv_stats_page_each_usual(add_page, &p);
}

/* ---- the decision ---- */

static void decide(struct varve_ctx *ctx)
{
    struct vvi_cores *c = ctx->cores;
    const struct vv_job_sample *last = last_sample(c);
    struct vv_cores_question q = {.masks = c->masks,
                                  .nmasks = c->nmasks,
                                  .core_of = c->core_of,
                                  .app_threads = number_in("OMP_NUM_THREADS"),
                                  .job = c->job.cpus,
                                  .owned = c->job.owned,
                                  .near = c->near};
    enum vv_cores_how how;
    cpu_set_t cpus;
    if (binds() && !has_neighbours()) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        for (long i = 0; i < n && i < CPU_SETSIZE; i++)
            CPU_SET((size_t)i, &q.machine);
    }
    if (c->job.launched) {
        CPU_OR(&q.ranks, &last->ranks, &c->agreed);
        add_pages(c, &q.ranks);
        q.all_known = last->listed || CPU_COUNT(&c->agreed) > 0 || !has_neighbours();
    }
    if (c->taken > 1)
        vv_job_idle(&c->job, &c->sample[c->taken % 2], last, &q.idle);
    unsigned cores = vv_cores_choose(&q, &cpus, &how);
    vv_thread_group_move(ctx->group, &cpus, cores);
    atomic_store_explicit(&c->how, how, memory_order_relaxed);
}

int vvi_cores_begin(struct varve_ctx *ctx, char *err, size_t err_bytes)
{
    struct vvi_cores *c = ctx->cores = calloc(1, sizeof(*c));
    const char *given = ctx->opts.helper_cores;
    cpu_set_t all;
    if (!c)
        return -ENOMEM;
    if (ctx->opts.rank_cores[0] && vv_cpus_parse(ctx->opts.rank_cores, &c->agreed)) {
        snprintf(err, err_bytes, "rank_cores: \"%.60s\" is not a list of processors, such as 0-3,8",
                 ctx->opts.rank_cores);
        return -EINVAL;
    }
    c->masks = vv_thread_group_app_masks(&c->nmasks);
    CPU_ZERO(&all);
    for (size_t i = 0; i < c->nmasks; i++)
        CPU_OR(&all, &all, &c->masks[i]);
    vv_cpus_format(&all, c->app, sizeof(c->app));
    c->app_cpus = (unsigned)CPU_COUNT(&all);
    c->automatic = strcmp(given, "auto") == 0;
    atomic_store_explicit(&c->how,
                          vv_thread_group_cores(ctx->group) ? VV_CORES_GIVEN : VV_CORES_ANY,
                          memory_order_relaxed);
    if (!c->automatic)
        return 0;
    vv_job_find(&all, &c->job);
    if (c->job.launched)
        take_sample(c);
    return 0;
}

void vvi_cores_decide(struct varve_ctx *ctx)
{
    struct vvi_cores *c = ctx->cores;
    struct vv_device_info info = {0};
    /* Most programs: without a launcher, a bound thread or a number of threads there is nothing to decide. */
    if (!c->automatic || !c->masks ||
        (!c->job.launched && c->nmasks < 2 && number_in("OMP_NUM_THREADS") == 0))
        return;
    vv_topo_core_of(c->core_of, CPU_SETSIZE);
    if (ctx->device)
        vv_device_describe(ctx->device, &info);
    vv_topo_cpus_near(info.pci_bus_id, &c->near);
    if (c->job.launched) {
        /* Opening a device mostly takes longer than this wait. */
        if (!c->job.owned || !last_sample(c)->listed)
            vv_sleep_until_ns(c->sampled_ns + VV_JOB_LEAST_NS);
        take_sample(c);
    }
    decide(ctx);
}

void vvi_cores_again(struct varve_ctx *ctx)
{
    struct vvi_cores *c = ctx->cores;
    if (!c->job.launched || vv_now_ns() < c->sampled_ns + AGAIN_NS)
        return;
    take_sample(c);
    decide(ctx);
}

void vvi_cores_free(struct vvi_cores *c)
{
    if (c)
        free(c->masks);
    free(c);
}

void vvi_cores_describe(const struct varve_ctx *ctx, struct vvi_cores_report *ret_report)
{
    static const char *const words[] = {[VV_CORES_ANY] = "shared",
                                        [VV_CORES_LEFT] = "left",
                                        [VV_CORES_JOB] = "job",
                                        [VV_CORES_IDLE] = "idle",
                                        [VV_CORES_GIVEN] = "given"};
    const struct vvi_cores *c = ctx->cores;
    *ret_report =
        (struct vvi_cores_report){.how = words[atomic_load_explicit(&c->how, memory_order_relaxed)],
                                  .app = c->app,
                                  .app_cpus = c->app_cpus};
}

static void describe(struct varve_ctx *ctx, char *text, size_t size, bool *ret_shared)
{
    static const char *const why[] = {
        [VV_CORES_LEFT] = "which the application's threads do not use",
        [VV_CORES_JOB] = "which belong to the job, and no process is bound to them",
        [VV_CORES_IDLE] = "which the job may use; no process is bound to them, and they are idle",
        [VV_CORES_GIVEN] = "from helper_cores"};
    struct vvi_cores *c = ctx->cores;
    struct vv_thread_group_stats group;
    vv_thread_group_get_stats(ctx->group, &group);
    *ret_shared = group.cores == 0;
    if (group.cores == 0)
        snprintf(text, size,
                 "none for the library alone: its threads share processors %s with the "
                 "application",
                 c->app);
    else
        snprintf(text, size, "%u for the library's threads, processors %s, %s", group.cores,
                 group.where, why[atomic_load_explicit(&c->how, memory_order_relaxed)]);
}

int vv_ckpt_helper_cores(char *text, size_t size, bool *ret_shared)
{
    struct varve_ctx *ctx = calloc(1, sizeof(*ctx));
    char err[256] = "";
    if (!ctx)
        return -ENOMEM;
    int rc = vvi_opts_take(NULL, err, sizeof(err), &ctx->opts);
    if (rc == 0)
        rc = vv_thread_group_new(ctx->opts.helper_cores, 0, err, sizeof(err), &ctx->group);
    if (rc == 0)
        rc = vvi_cores_begin(ctx, err, sizeof(err));
    if (rc == 0) {
        vvi_cores_decide(ctx);
        describe(ctx, text, size, ret_shared);
    } else {
        snprintf(text, size, "%s", err[0] ? err : strerror(-rc));
    }
    vv_thread_group_free(ctx->group);
    vvi_cores_free(ctx->cores);
    free(ctx);
    return rc;
}
