/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing figures: a thread of each context takes a snapshot ten times a second and writes it to the context's
 * statistics page, and every few seconds to the metrics file.
 *
 * Calls of the application do no work for it. The thread takes the engine's lock for a few microseconds, and the
 * context's lock to walk its histories. It also makes the page and removes pages of killed processes, so that opening a
 * context costs no more than starting the thread.
 *
 * Failures here are not errors of the context: it runs without a page. The exception is a metrics file whose folder
 * cannot be written to at opening, because the user asked for the file.
 *
 * A forked child has the structure but not the thread, and its calls on the context are refused.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/hash.h"
#include "base/thread.h"
#include "base/thread_group.h"
#include "ckpt/ckpt_private.h"
#include "stats/prometheus.h"
#include "stats/stats_page.h"
#include "stats/stats_text.h"

#define INTERVAL_NS (100 * VV_NS_PER_MS)
enum {
    RECENT = 10,        /* number of snapshots that "recent" covers */
    METRICS_EVERY = 50, /* snapshots */
};

_Static_assert((int)VV_HOP_COUNT + 2 <= (int)VV_STATS_HOPS &&
                   (int)VV_MAX_TIERS <= (int)VV_STATS_TIERS,
               "all fit");

struct vvi_publisher {
    struct varve_ctx *ctx;         /* immutable, like the next two */
    char folder[VARVE_PATH_BYTES]; /* empty: the default of stats/ */
    bool paged;                    /* the options ask for a page */
    struct vv_stats_file
        *metrics; /* NULL: none. Owner: the thread, like all fields up to the lock */
    struct vv_stats_header about;
    struct vv_stats_writer *writer;
    struct vv_stats_record ring[RECENT]; /* the last snapshots, by number */
    uint64_t taken, errors;

    struct vv_mutex lock;
    struct vv_cond cond;
    bool stop; /* Synchronization: lock */
    pthread_t thread;
};

/* ---- a snapshot ---- */

static void set_calls(struct vv_stats_calls *c, uint64_t count, uint64_t bytes, uint64_t blocked_ns,
                      uint64_t waiting)
{
    *c = (struct vv_stats_calls){
        .count = count, .bytes = bytes, .blocked_ns = blocked_ns, .waiting = waiting};
}

static void set_tiers(const struct varve_ctx *ctx, const struct vv_core_stats *c,
                      struct vv_stats_record *r)
{
    uint64_t page = ctx->opts.page_bytes;

    r->ntiers = vv_engine_tiers(ctx->engine);
    for (unsigned i = 0; i < r->ntiers; i++) {
        struct vv_stats_tier *t = &r->tier[i];
        enum vv_tier_kind kind = vv_engine_tier_kind(ctx->engine, i);

        snprintf(t->name, sizeof(t->name), "%s",
                 kind == VV_TIER_SPILL || kind == VV_TIER_FILES ? "disk" : vv_tier_kind_name(kind));
        snprintf(t->kind, sizeof(t->kind), "%s", vv_tier_kind_name(kind));
        t->capacity_bytes = c->tier_pages[i] * page;
        t->ready_bytes = c->tier_ready_pages[i] * page;
        t->used_bytes = c->tier_used_pages[i] * page;
        t->dirty_bytes = c->tier_dirty_pages[i] * page;
        t->evictable_bytes = c->tier_evictable_pages[i] * page;
        t->copies = c->tier_copies[i];
        t->used_byte_s = c->tier_used_page_ns[i] * (double)page * 1e-9;
        if (kind == VV_TIER_FILES) {
            t->capacity_bytes = t->ready_bytes = ctx->opts.local_cache;
            t->used_bytes = c->files_bytes;
        }
    }
}

/* True if this context can use the hop. */
static bool hop_there(const struct varve_ctx *ctx, enum vv_hop hop)
{
    switch (hop) {
    case VV_HOP_D2D:
    case VV_HOP_D2H:
    case VV_HOP_H2D:
        return ctx->device != NULL;
    case VV_HOP_H2F:
    case VV_HOP_F2H:
        return ctx->write_store != NULL;
    default:
        return true;
    }
}

static void set_hops(const struct varve_ctx *ctx, const struct vv_core_stats *c,
                     struct vv_stats_record *r)
{
    for (int i = 0; i < VV_HOP_COUNT; i++) {
        struct vv_stats_hop *h = &r->hop[r->nhops];

        if (!hop_there(ctx, (enum vv_hop)i))
            continue;
        r->nhops++;
        snprintf(h->name, sizeof(h->name), "%s", vv_hop_name((enum vv_hop)i));
        h->moved_bytes = c->moved_bytes[i];
        h->busy_ns = c->hop_busy_ns[i];
        h->orders = c->hop_orders[i];
        h->errors = c->hop_errors[i];
        h->bytes_per_s = c->rate[i];
    }
}

/* The remote folder is behind the store and not visible to the engine: only its bytes are known. */
static void set_remote(const struct varve_ctx *ctx, struct vv_stats_record *r)
{
    struct vv_remote_stats s;

    if (!ctx->remote)
        return;
    vv_remote_get_stats(ctx->remote, &s);
    r->healed_chunks = s.healed_chunks;
    r->repaired_chunks = s.repaired_chunks;
    struct vv_stats_hop *h = &r->hop[r->nhops++];
    snprintf(h->name, sizeof(h->name), "f2r");
    h->moved_bytes = s.written_bytes;
    h = &r->hop[r->nhops++];
    snprintf(h->name, sizeof(h->name), "r2f");
    h->moved_bytes = s.read_bytes;
}

static void set_partner(const struct varve_ctx *ctx, struct vv_stats_record *r)
{
    struct vv_partner_stats s;

    if (!ctx->partner)
        return;
    vv_partner_get_stats(ctx->partner, &s);
    r->partner_on = 1;
    r->partner_sent = s.sent;
    r->partner_received = s.received;
    r->partner_pending = s.pending;
    r->partner_errors = s.errors;
    r->partner_sent_bytes = s.sent_bytes;
    r->partner_received_bytes = s.received_bytes;
    r->partner_held_bytes = s.held_bytes;
    r->partner_recovered = s.recovered;
    r->partner_repaired_chunks = s.repaired_chunks;
}

/* Names may be too long, or have characters that cannot be shown. They must stay unique: collectors of metrics
 * reject all figures if two names are equal. */
static void set_name(const char *name, char *to, size_t size)
{
    char hash[12];

    snprintf(to, size, "%s", name);
    vv_stats_text_clean(to, size);
    if (strcmp(to, name) == 0)
        return;
    snprintf(hash, sizeof(hash), "~%08x", (unsigned)vv_hash64(name, strlen(name)));
    snprintf(to + VV_MIN(strlen(to), size - sizeof(hash)), sizeof(hash), "%s", hash);
    vv_stats_text_clean(to, size);
}

static void set_histories(struct varve_ctx *ctx, struct vv_stats_record *r)
{
    /* A history is in the list while it is open. */
    vv_mutex_lock(&ctx->lock);
    for (struct varve_history *h = ctx->histories; h; h = h->next) {
        struct vv_stats_history *to = &r->history[r->nhistories];
        struct vv_core_hist_stats s;

        vv_engine_get_hist_stats(ctx->engine, h->hist, &s);
        r->histories++;
        r->versions += s.versions;
        r->hints += s.hints;
        r->ready += s.ready;
        if (r->nhistories == VV_STATS_HISTORIES)
            continue;
        r->nhistories++;
        set_name(h->name, to->name, sizeof(to->name));
        to->versions = s.versions;
        to->durable = s.durable;
        to->failed = s.failed;
        to->hints = s.hints;
        to->ready = s.ready;
        to->pending = s.pending;
        to->predicting = s.predicting;
        to->prefetching = s.prefetching;
    }
    vv_mutex_unlock(&ctx->lock);
}

static void calls_since(struct vv_stats_calls *c, const struct vv_stats_calls *old)
{
    c->recent_count = c->count - old->count;
    c->recent_bytes = c->bytes - old->bytes;
    c->recent_blocked_ns = c->blocked_ns - old->blocked_ns;
}

/* `old` is of the same context, so its hops have the same places. */
static void set_recent(struct vv_stats_record *r, const struct vv_stats_record *old)
{
    r->recent_ns = r->time_ns - old->time_ns;
    calls_since(&r->checkpoint, &old->checkpoint);
    calls_since(&r->restore, &old->restore);
    r->recent_helper_cpu_ns = r->helper_cpu_ns - old->helper_cpu_ns;
    for (uint32_t i = 0; i < r->nhops; i++) {
        r->hop[i].recent_bytes = r->hop[i].moved_bytes - old->hop[i].moved_bytes;
        r->hop[i].recent_busy_ns = r->hop[i].busy_ns - old->hop[i].busy_ns;
    }
}

static void set_engine(const struct varve_ctx *ctx, const struct vv_core_stats *c,
                       struct vv_stats_record *r)
{
    set_calls(&r->checkpoint, c->puts, ctx->checkpoint_bytes, ctx->checkpoint_blocked_ns,
              c->waiting_puts);
    set_calls(&r->restore, c->gets, ctx->restore_bytes, ctx->restore_blocked_ns, c->waiting_gets);
    if (c->waiting_since_ns && r->time_ns > c->waiting_since_ns)
        r->waiting_ns = r->time_ns - c->waiting_since_ns;
    r->hits = c->hits;
    r->misses = c->misses;
    r->discarded = c->discarded;
    r->evicted_pages = c->evicted_pages;
    r->revoked_pages = c->revoked_pages;
    r->metadata_bytes = c->object_bytes;
    r->buffer_bytes = c->transit_pages * ctx->opts.page_bytes;
    struct vv_thread_group_stats group;
    vv_thread_group_get_stats(ctx->group, &group);
    r->helper_threads = group.threads;
    r->helper_cpu_ns = group.cpu_ns;
    r->helper_cores = group.cores;
    snprintf(r->helper_where, sizeof(r->helper_where), "%s", group.where);
    struct vvi_cores_report report;
    vvi_cores_describe(ctx, &report);
    snprintf(r->helper_how, sizeof(r->helper_how), "%s", report.how);
    snprintf(r->app_where, sizeof(r->app_where), "%s", report.app);
    r->app_cpus = report.app_cpus;
    vvi_helper_publish(ctx, r);
    struct vvi_expected e;
    vvi_expect(ctx, c, &e);
    r->expected_speedup_start = e.speedup_start;
    r->expected_speedup = e.speedup;
    r->actual_speedup = e.actual;
    r->late_errors = c->late_errors;
    r->bad_reads = c->bad_reads;
    r->reread = c->reread;
}

static struct vv_stats_record *snapshot(struct vvi_publisher *p, enum vv_stats_state state)
{
    struct varve_ctx *ctx = p->ctx;
    struct vv_core_stats c;
    struct timespec wall;
    const struct vv_stats_record *old = &p->ring[(p->taken + 1) % RECENT];
    struct vv_stats_record *r = &p->ring[p->taken % RECENT];
    struct vv_stats_record now = {.state = state};

    vv_engine_get_stats(ctx->engine, &c);
    clock_gettime(CLOCK_REALTIME, &wall);
    now.time_ns = vv_now_ns();
    now.unix_ns = (uint64_t)wall.tv_sec * VV_NS_PER_S + (uint64_t)wall.tv_nsec;
    set_engine(ctx, &c, &now);
    now.last_distance = ctx->last_distance;
    now.last_blocked_ns = ctx->last_blocked_ns;
    now.failed_calls = ctx->failed_calls;
    now.page_errors = p->errors;
    set_tiers(ctx, &c, &now);
    set_hops(ctx, &c, &now);
    set_remote(ctx, &now);
    set_partner(ctx, &now);
    set_histories(ctx, &now);
    if (p->taken > 0)
        set_recent(&now, p->taken + 1 < RECENT ? &p->ring[0] : old);
    p->taken++;
    *r = now;
    return r;
}

/* ---- the thread ---- */

/* Waits until `until_ns` or the stop flag. True: stop. */
static bool rest(struct vvi_publisher *p, uint64_t until_ns)
{
    vv_mutex_lock(&p->lock);
    while (!p->stop && vv_now_ns() < until_ns)
        (void)!vv_cond_wait_until(&p->cond, &p->lock, until_ns);
    bool stop = p->stop;
    vv_mutex_unlock(&p->lock);
    return stop;
}

static void put_metrics(struct vvi_publisher *p, const struct vv_stats_record *r)
{
    struct vv_stats_target target = {&p->about, r};

    if (p->metrics && vv_stats_file_put(p->metrics, &target) != 0)
        p->errors++;
}

static void *publish(void *arg)
{
    struct vvi_publisher *p = arg;
    const char *folder = p->folder[0] ? p->folder : NULL;
    bool stop = false;

    vv_thread_group_name("figures");
    if (p->paged) {
        (void)vv_stats_clean(folder);
        if (vv_stats_writer_open(folder, &p->about, &p->writer) != 0)
            p->writer = NULL;
    }
    if (p->writer)
        p->about = *vv_stats_writer_header(p->writer);
    else
        vv_stats_about_process(&p->about);
    for (uint64_t next_ns = vv_now_ns(); !stop && (p->writer || p->metrics);
         next_ns += INTERVAL_NS) {
        vvi_cores_again(p->ctx);
        bool closing = atomic_load_explicit(&p->ctx->closing, memory_order_relaxed);
        struct vv_stats_record *r = snapshot(p, closing ? VV_STATS_CLOSING : VV_STATS_OPEN);

        if (p->writer && vv_stats_writer_put(p->writer, r) != 0)
            p->errors++;
        if ((p->taken - 1) % METRICS_EVERY == 0)
            put_metrics(p, r);
        /* After a pause of the whole process, skip the missed snapshots. */
        next_ns = VV_MAX(next_ns, r->time_ns);
        stop = rest(p, next_ns + INTERVAL_NS);
    }
    if (p->metrics)
        put_metrics(p, snapshot(p, VV_STATS_CLOSED));
    vv_stats_writer_close(p->writer);
    return NULL;
}

/* ---- start and stop ---- */

static void describe(const struct varve_ctx *ctx, struct vv_stats_header *about)
{
    static const char *const level[] = {"cached", "local", "remote", "complete"};
    static const char *const policy[] = {"next", "score", "score-now", "fifo", "lru"};

    *about = (struct vv_stats_header){
        .interval_ns = INTERVAL_NS, .page_bytes = ctx->opts.page_bytes, .rank = ctx->opts.rank};
    snprintf(about->level, sizeof(about->level), "%s", level[ctx->opts.level]);
    snprintf(about->policy, sizeof(about->policy), "%s", policy[ctx->opts.policy]);
    snprintf(about->device, sizeof(about->device), "%s",
             !ctx->device ? "none" : ctx->device->ops->name);
    snprintf(about->local, sizeof(about->local), "%s", ctx->opts.local);
    vv_stats_text_clean(about->local, sizeof(about->local));
}

static void publisher_free(struct vvi_publisher *p)
{
    if (!p)
        return;
    vv_stats_file_close(p->metrics);
    vv_cond_fini(&p->cond);
    vv_mutex_fini(&p->lock);
    free(p);
}

/* The thread uses the path later, when the working directory may have changed. */
static bool full_path(const char *path, char *ret_path, size_t size)
{
    char *full = realpath(path, NULL);
    bool fits = full && strlen(full) < size;

    if (fits)
        snprintf(ret_path, size, "%s", full);
    free(full);
    return fits;
}

int vvi_publisher_start(struct varve_ctx *ctx, char *err, size_t err_bytes)
{
    const struct varve_opts *opts = &ctx->opts;
    bool paged = strcmp(opts->stats, "off") != 0;

    if (!paged && !opts->metrics[0])
        return 0;
    struct vvi_publisher *p = calloc(1, sizeof(*p));
    if (!p)
        return opts->metrics[0] ? -ENOMEM : 0;
    vv_mutex_init(&p->lock, "publisher", VV_RANK_STATS);
    vv_cond_init(&p->cond);
    p->ctx = ctx;
    p->paged = paged;
    if (opts->stats[0] && strcmp(opts->stats, "auto") != 0)
        p->paged = full_path(opts->stats, p->folder, sizeof(p->folder));
    describe(ctx, &p->about);
    int rc = opts->metrics[0]
                 ? vv_stats_file_open(opts->metrics, opts->rank, err, err_bytes, &p->metrics)
                 : 0;
    if (rc == 0 && vv_thread_start(&p->thread, publish, p) == 0)
        ctx->publisher = p;
    else
        publisher_free(p);
    return rc;
}

void vvi_publisher_stop(struct varve_ctx *ctx)
{
    struct vvi_publisher *p = ctx->publisher;

    if (!p)
        return;
    vv_mutex_lock(&p->lock);
    p->stop = true;
    vv_cond_signal(&p->cond);
    vv_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    ctx->publisher = NULL;
    publisher_free(p);
}
