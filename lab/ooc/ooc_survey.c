/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A survey's order of work over tables, in all ways.
 *
 *   resident        every table is in the cache already: the limit of computing
 *   flat, chunked   a cache of a share of the tables, in both layouts
 *   paper           the same cache, flat, by the policy of the paper
 *   double buffer   two halves of the cache: while the items of one compute, the tables of the other are
 *                   copied; a half that is filled again keeps nothing
 *   zero copy       tables stay in host memory and kernels read them there
 *   uvm             managed memory that fits the device: the driver brings pages at the first touch
 *
 * One thread runs everything. While the library runs, another one takes samples at intervals.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "ckpt/face.h"
#include "cli/common/parallel.h"
#include "device/device.h"
#include "lab/ooc/ooc.h"
#include "lab/ooc/ooc_survey.h"
#include "lab/ooc/survey.h"
#include "ooc/ooc_hooks.h"

static const char *const way_names[OOC_SURVEY_WAYS] = {
    "resident", "flat", "chunked", "paper", "double buffer", "zero copy", "uvm"};

static int fail(struct ooc_job *j, int rc, const char *what)
{
    struct varve_error e = {.error_size = sizeof(e)};

    if (j->ctx && varve_last_error(j->ctx, &e) == 0 && e.err == rc && e.text[0])
        snprintf(j->err, OOC_TEXT, "%s: %s", what, e.text);
    else
        snprintf(j->err, OOC_TEXT, "%s: %s", what, varve_strerror(rc));
    return rc;
}

/* ---- what is there before ---- */

static void fill(void *arg, size_t table)
{
    struct ooc_job *j = arg;
    uint32_t *to = (uint32_t *)(void *)(j->memory + j->offsets[table]);

    for (uint64_t i = 0; i < j->s.bytes[table] / 4; i++)
        to[i] = (uint32_t)((table * 131071 + i + j->o->seed) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static int make_data(struct ooc_job *j)
{
    struct survey_opts so = survey_defaults();
    uint64_t at = 0;
    void *p;

    so.seed = j->o->seed;
    so.total_bytes = (double)j->o->tables_bytes;
    so.least_bytes = (double)j->o->least_bytes;
    so.most_bytes = (double)j->o->most_bytes;
    if (survey_make(&so, &j->s) != 0)
        return fail(j, -ENOMEM, "the survey");
    j->made = true;
    if (j->s.items > UINT32_MAX - 1)
        return fail(j, -EFBIG, "the survey");
    j->offsets = malloc(j->s.tables * sizeof(*j->offsets));
    j->expected = calloc(j->s.items, sizeof(*j->expected));
    j->got = calloc(j->s.items, sizeof(*j->got));
    j->host_sums = calloc(j->s.items, sizeof(*j->host_sums));
    p = mmap(NULL, j->s.sum_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || !j->offsets || !j->expected || !j->got || !j->host_sums)
        return fail(j, -ENOMEM, "tables");
    j->memory = p;
    (void)madvise(p, j->s.sum_bytes, MADV_HUGEPAGE);
    for (uint32_t t = 0; t < j->s.tables; t++) {
        j->offsets[t] = at;
        at += j->s.bytes[t];
    }
    sim_parallel(j->o->jobs, j->s.tables, fill, j, NULL);
    return 0;
}

static int put(struct ooc_job *j, const void *from, size_t bytes, void **ret_ptr)
{
    int rc = varve_device_alloc(j->ctx, bytes, ret_ptr);

    return rc == 0 ? varve_device_copy(j->ctx, *ret_ptr, from, bytes) : rc;
}

static int open_context(struct ooc_job *j)
{
    struct varve_opts o;
    int rc = varve_opts_init(&o, sizeof(o));

    o.device = j->launcher->device;
    o.device_cache = o.host_cache = 0;
    if (rc == 0)
        rc = varve_open(&o, &j->ctx);
    if (rc)
        return fail(j, rc, "the device");
    j->device = vv_ckpt_device(j->ctx);
    rc = vv_device_host_share(j->device, j->memory, j->s.sum_bytes, false, &j->shared);
    if (rc == -ENOTSUP)
        rc = vv_device_host_register(j->device, j->memory, j->s.sum_bytes);
    if (rc)
        return fail(j, rc, "registering the tables");
    j->registered = true;
    rc = put(j, j->s.first, (j->s.items + 1) * sizeof(uint64_t), &j->on[OOC_ON_FIRST]);
    if (rc == 0)
        rc = put(j, j->s.uses, j->s.first[j->s.items] * sizeof(uint32_t), &j->on[OOC_ON_USES]);
    if (rc == 0)
        rc = put(j, j->s.bytes, j->s.tables * sizeof(uint64_t), &j->on[OOC_ON_BYTES]);
    if (rc == 0)
        rc = put(j, j->offsets, j->s.tables * sizeof(uint64_t), &j->on[OOC_ON_OFFSETS]);
    if (rc == 0)
        rc = put(j, j->got, j->s.items * sizeof(uint64_t), &j->on[OOC_ON_SUMS]);
    j->args = (struct ooc_survey_args){.sums = j->on[OOC_ON_SUMS],
                                       .reads = j->o->reads,
                                       .to = (uint32_t)j->s.items,
                                       .first = j->on[OOC_ON_FIRST],
                                       .bytes = j->on[OOC_ON_BYTES],
                                       .offsets = j->on[OOC_ON_OFFSETS],
                                       .uses = j->on[OOC_ON_USES]};
    return rc ? fail(j, rc, "memory on the device") : 0;
}

/* ---- with the library ---- */

static int launch(void *arg, const struct varve_tables_view *view, uint32_t device,
                  struct CUstream_st *stream)
{
    struct ooc_job *j = arg;

    (void)device;
    return j->launcher->survey(j->ctx, &j->args, view, stream);
}

static int on_processor(void *arg, uint64_t item, const void *const *tables)
{
    struct ooc_job *j = arg;

    for (uint64_t k = 0; k < j->s.first[item + 1] - j->s.first[item]; k++) {
        uint64_t elements = j->s.bytes[j->s.uses[j->s.first[item] + k]] / 4;
        const uint32_t *at = tables[k];

        for (uint32_t e = 0; e < j->o->reads; e++)
            j->host_sums[item] += at[OOC_ELEMENT(item, k, e, elements)];
    }
    return 0;
}

struct sampler {
    struct ooc_job *job;
    struct varve_tables *tables;
    struct ooc_way *way;
    uint64_t start_ns, interval_ns;
    _Atomic bool stop; /* relaxed: it is joined */
};

/* Called if there is no room for more samples: drops every other one, and doubles the interval. */
static void thin_out(struct sampler *s)
{
    for (size_t i = 0; i < s->way->nr_samples / 2; i++)
        s->way->samples[i] = s->way->samples[2 * i + 1];
    s->way->nr_samples /= 2;
    s->interval_ns *= 2;
}

static void take_sample(struct sampler *s)
{
    struct varve_tables_stats st = {.stats_size = sizeof(st)};

    if (varve_tables_stats(s->tables, &st) || st.capacity_bytes == 0)
        return;
    if (s->way->nr_samples == OOC_SURVEY_SAMPLES)
        thin_out(s);
    s->way->samples[s->way->nr_samples++] = (struct ooc_sample){
        .s = (double)(vv_now_ns() - s->start_ns) * 1e-9,
        .memory = (ooc_memory_taken(s->job->device) - s->job->taken) / (double)s->job->cache_bytes,
        .used = (double)st.used_bytes / (double)st.capacity_bytes,
        .missed = st.missed,
        .evicted = st.evicted,
        .rounds = st.launches,
        .bytes = st.bytes,
        .management_s = (double)st.management_ns * 1e-9,
    };
}

static void *sample_all(void *arg)
{
    struct sampler *s = arg;

    while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
        struct timespec t = {0, (long)s->interval_ns};

        take_sample(s);
        nanosleep(&t, NULL);
    }
    return NULL;
}

static struct varve_tables_work work_of(struct ooc_job *j)
{
    return (struct varve_tables_work){.work_size = sizeof(struct varve_tables_work),
                                      .items = j->s.items,
                                      .first = j->s.first,
                                      .uses = j->s.uses,
                                      .launch = launch,
                                      .host = j->o->fallback ? on_processor : NULL,
                                      .arg = j};
}

static int run_sampled(struct ooc_job *j, struct varve_tables *t, struct ooc_way *way)
{
    struct varve_tables_work work = work_of(j);
    struct sampler s = {.job = j, .tables = t, .way = way, .interval_ns = 1000000};
    pthread_t id;
    int rc;

    way->nr_samples = 0;
    s.start_ns = vv_now_ns();
    rc = -pthread_create(&id, NULL, sample_all, &s);
    if (rc)
        return rc;
    rc = varve_tables_run(t, &work);
    way->seconds = (double)(vv_now_ns() - s.start_ns) * 1e-9;
    atomic_store_explicit(&s.stop, true, memory_order_relaxed);
    pthread_join(id, NULL);
    take_sample(&s);
    return rc;
}

int ooc_survey_clear(struct ooc_job *j)
{
    memset(j->got, 0, j->s.items * sizeof(*j->got));
    memset(j->host_sums, 0, j->s.items * sizeof(*j->host_sums));
    return varve_device_copy(j->ctx, j->on[OOC_ON_SUMS], j->got, j->s.items * sizeof(*j->got));
}

int ooc_survey_compare(struct ooc_job *j, struct ooc_way *way)
{
    int rc = varve_device_copy(j->ctx, j->got, j->on[OOC_ON_SUMS], j->s.items * sizeof(*j->got));

    for (uint64_t i = 0; i < j->s.items; i++)
        j->got[i] += j->host_sums[i];
    way->same = memcmp(j->got, j->expected, j->s.items * sizeof(*j->got)) == 0;
    return rc;
}

static int pass(struct ooc_job *j, struct varve_tables *t, struct ooc_way *way)
{
    struct varve_tables_stats a = {.stats_size = sizeof(a)}, b = a;
    int rc = ooc_survey_clear(j);

    if (rc == 0)
        rc = varve_tables_stats(t, &a);
    if (rc == 0)
        rc = run_sampled(j, t, way);
    if (rc == 0)
        rc = varve_tables_stats(t, &b);
    if (rc == 0)
        rc = ooc_survey_compare(j, way);
    if (rc)
        return fail(j, rc, way->name);
    way->bytes = b.bytes - a.bytes;
    way->missed = b.missed - a.missed;
    way->evicted = b.evicted - a.evicted;
    way->rounds = b.launches - a.launches;
    way->host_items = b.host_items - a.host_items;
    way->moved_bytes = b.moved_bytes - a.moved_bytes;
    way->management_s = (double)(b.management_ns - a.management_ns) * 1e-9;
    way->utilisation = b.utilisation;
    return 0;
}

static void opts_of(struct ooc_job *j, enum ooc_survey_way kind, const struct ooc_report *r,
                    struct varve_tables_opts *o)
{
    o->tables = j->s.tables;
    o->bytes = j->s.bytes;
    o->memory = j->memory;
    o->cache_bytes = r->cache_bytes;
    if (kind == OOC_RESIDENT) /* each table begins at a multiple of 256, and launches need some */
        o->cache_bytes = r->data_bytes + r->data_bytes / 16 + j->s.tables * 256 + (16 << 20);
    o->layout = kind == OOC_CHUNKED ? VARVE_TABLES_CHUNKED : VARVE_TABLES_FLAT;
    o->policy = kind == OOC_PAPER ? VV_TABLES_PAPER : VARVE_TABLES_NEXT_USE;
}

static int run_tables(struct ooc_job *j, enum ooc_survey_way kind, const struct ooc_report *r,
                      struct ooc_way *way)
{
    struct varve_tables_opts o;
    struct varve_tables *t = NULL;
    int rc = varve_tables_opts_init(&o, sizeof(o));

    opts_of(j, kind, r, &o);
    j->taken = ooc_memory_taken(j->device);
    j->cache_bytes = o.cache_bytes;
    if (rc == 0)
        rc = vv_tables_open(j->ctx, &o, &t);
    if (rc)
        return fail(j, rc, way->name);
    rc = pass(j, t, way);
    if (rc == 0 && kind == OOC_RESIDENT) { /* the first pass brought all tables */
        memcpy(j->expected, j->got, j->s.items * sizeof(*j->got));
        rc = pass(j, t, way);
    }
    varve_tables_close(t);
    return rc;
}

/* ---- all of it ---- */

static int run_way(struct ooc_job *j, enum ooc_survey_way kind, struct ooc_report *r,
                   struct ooc_way *way)
{
    int rc;

    way->name = way_names[kind];
    way->samples = calloc(OOC_SURVEY_SAMPLES + 1, sizeof(*way->samples));
    if (!way->samples)
        return fail(j, -ENOMEM, "samples");
    if (kind <= OOC_PAPER)
        return run_tables(j, kind, r, way);
    rc = kind == OOC_DOUBLE ? ooc_survey_double(j, r->cache_bytes, way)
                            : ooc_survey_direct(j, kind == OOC_UVM, way);
    return rc ? fail(j, rc, way->name) : 0;
}

static int find_bound(struct ooc_job *j, struct ooc_report *r)
{
    struct varve_tables_work work = work_of(j);
    struct varve_tables_opts o;
    int rc = varve_tables_opts_init(&o, sizeof(o));

    opts_of(j, OOC_CHUNKED, r, &o);
    if (rc == 0)
        rc = varve_tables_least(&o, &work, &r->least_bytes);
    if (rc)
        return fail(j, rc, "the bound");
    r->touched_bytes = r->data_bytes;
    r->bound_s = fmax(r->ways[0].seconds, (double)r->least_bytes / r->link_bps);
    return 0;
}

static void free_all(struct ooc_job *j)
{
    if (j->ctx) {
        for (int i = 0; i < OOC_ON; i++)
            varve_device_free(j->ctx, j->on[i]);
        if (j->registered)
            (void)vv_device_host_unregister(j->device, j->memory);
        varve_close(j->ctx);
    }
    if (j->memory)
        munmap(j->memory, j->s.sum_bytes);
    if (j->made)
        survey_free(&j->s);
    free(j->offsets);
    free(j->expected);
    free(j->got);
    free(j->host_sums);
}

int ooc_survey(const struct ooc_survey_opts *opts, const struct ooc_launcher *launcher,
               ooc_progress progress, void *arg, char err[OOC_TEXT], struct ooc_report *ret_report)
{
    struct ooc_job j = {.o = opts, .launcher = launcher, .err = err};
    struct ooc_report *r = ret_report;
    int rc;

    memset(r, 0, sizeof(*r));
    rc = make_data(&j);
    if (rc == 0)
        rc = open_context(&j);
    if (rc == 0) {
        r->data_bytes = j.s.sum_bytes;
        r->cache_bytes =
            opts->cache_bytes ? opts->cache_bytes : (uint64_t)((double)r->data_bytes * opts->share);
        r->tables = j.s.tables;
        r->items = j.s.items;
        rc = ooc_link(j.device, r);
        if (rc)
            rc = fail(&j, rc, "measuring the link");
    }
    for (int kind = 0; kind < OOC_SURVEY_WAYS && rc == 0; kind++) {
        if (!ooc_wanted(opts->ways, way_names[kind]))
            continue;
        if (progress)
            progress(arg, way_names[kind], (double)kind / OOC_SURVEY_WAYS);
        rc = run_way(&j, (enum ooc_survey_way)kind, r, &r->ways[r->nr_ways++]);
    }
    if (rc == 0)
        rc = find_bound(&j, r);
    free_all(&j);
    if (rc)
        ooc_report_fini(r);
    return rc;
}

const char *const *ooc_survey_ways(size_t *ret_nr)
{
    *ret_nr = OOC_SURVEY_WAYS;
    return way_names;
}
