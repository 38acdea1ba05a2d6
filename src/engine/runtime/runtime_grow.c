/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making the host cache ready behind the application's first checkpoints.
 *
 * Memory has to be touched before it is used, because an application blocked in a checkpoint would
 * pay for the page faults. It has to be registered with the device, which otherwise copies at a
 * fraction of its speed. Both take a second for every 20 to 30 GiB. So opening an engine makes only
 * the transit pages and the first slice of the cache. A few threads make the rest while it is in
 * use, in turns:
 *
 *   touchers   touch piece after piece for a while, with the help of the pinner, and then pause;
 *   the pinner then registers the complete slices one after the other, reports each to the core
 *              (vv_core_grow), and rests after each: registering delays every other call to a
 *              driver, and with the rests a copy on the device waits for one slice at most
 *
 * The reason for turns: a registration while memory is touched takes ten to a hundred times as
 * long, and the calls of the application wait for it. A virtual machine gets its memory from the
 * hypervisor at the first touch, and a processor that waits for that answers no other processor
 * that needs it. Turns begin short, for an application that waits for the first memory. They become
 * longer, because each ends with a wait for the slowest toucher.
 *
 * Touching means storing. A request to the system (MADV_POPULATE_WRITE) would keep the process's
 * address space from being changed meanwhile: other threads that map memory, in a driver or an
 * allocation, would wait.
 *
 * Invariants: the core uses a page only after it was touched and registered. Slices become ready in
 * their order, so that the ready memory is always the first part of the buffer. Pieces are taken in
 * their order too; between turns all pieces taken are touched. No other thread writes to a slice
 * that is not ready, so touching need not preserve contents.
 *
 * Errors: the device refuses a slice, or the system runs out of memory. The latter would kill the
 * process, so the available memory is checked before each slice. After an error the rest of the
 * buffer goes back to the system, the core is notified (vv_core_grow_stop), and the error is kept
 * for the next call of the application: the cache is smaller than configured.
 *
 * Locks: `lock` of rank MOVER, taken alone; the pinner takes the engine lock to report to the core.
 * Not held while touching or registering. Closing waits at most until each thread has touched its
 * piece and for one registration.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/thread_group.h"
#include "base/topo.h"
#include "engine/runtime/runtime_private.h"
#include "trace/trace.h"

#define PIN_REST_NS  (100 * VV_NS_PER_US)
#define LOOK_NS      (20 * VV_NS_PER_US)
#define TOUCH_NICE   10
#define PASS_MOST_NS (500 * VV_NS_PER_US)
/* Turns of touching: the first, and the longest. */
#define TURN_FIRST_NS (10 * VV_NS_PER_MS)
#define TURN_MOST_NS  (100 * VV_NS_PER_MS)
/* A toucher takes one huge page at a time. A turn ends when the last toucher has touched its
 * piece. */
#define PIECE_BYTES  ((size_t)2 << 20)
#define SLICE_PIECES (VVI_SLICE_BYTES / PIECE_BYTES)
/* Left to the rest of the system when memory runs out. */
#define SPARE_BYTES ((uint64_t)64 << 20)

uint64_t (*vvi_memory_available)(void) = vv_memory_available;
uint64_t vvi_grow_turn_ns = TURN_MOST_NS;

static bool memory_left(size_t bytes)
{
    uint64_t available = vvi_memory_available();
    return available == 0 || available >= bytes + SPARE_BYTES;
}

/* ---- slices ---- */

static size_t slice_bytes(const struct vvi_grow *g, size_t slice)
{
    return VV_MIN((size_t)VVI_SLICE_BYTES, g->bytes - slice * VVI_SLICE_BYTES);
}

static void touch(char *from, size_t bytes)
{
    size_t step = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < bytes; at += step)
        *(volatile char *)(from + at) = 0;
}

static int pin(struct vv_engine *e, char *from, size_t bytes)
{
    return e->cfg.device ? vv_device_host_register(e->cfg.device, from, bytes) : 0;
}

static void describe_failure(const struct vvi_grow *g, int rc, char *text, size_t text_bytes)
{
    char ready[VV_BYTES_TEXT], all[VV_BYTES_TEXT];
    snprintf(text, text_bytes, "host cache: %s of %s could be %s: %s",
             vv_bytes_human(VV_MIN(g->nready * VVI_SLICE_BYTES, g->bytes), ready, sizeof(ready)),
             vv_bytes_human(g->bytes, all, sizeof(all)),
             g->refused ? "registered with the device" : "allocated by the system",
             rc == -ENOMEM && !g->refused ? "memory runs out" : vv_strerror(rc));
}

/* Reports the ready slices to the core. Engine lock held, or no other thread exists. */
static void report_ready(struct vv_engine *e)
{
    struct vvi_grow *g = &e->grow;
    size_t ready = VV_MIN(g->nready * VVI_SLICE_BYTES, g->bytes);
    vv_core_grow(e->core, g->tier, ready / e->cfg.page_bytes, vv_now_ns());
}

/* ---- touching ---- */

static size_t npieces(const struct vvi_grow *g)
{
    return vv_div_up(g->bytes, PIECE_BYTES);
}

static bool stopping(const struct vvi_grow *g)
{
    return atomic_load_explicit(&g->stop, memory_order_relaxed);
}

/* True if a checkpoint waits for room: complete slices are then registered first. */
static bool starved(const struct vv_engine *e)
{
    return atomic_load_explicit(&e->starved, memory_order_relaxed) > 0;
}

/* Takes the next piece and touches it. `lock` held, released while touching. Ends the turn if its
 * time is over. False: no more pieces in this turn. */
static bool touch_next_locked(struct vv_engine *e)
{
    struct vvi_grow *g = &e->grow;
    if (g->turn && g->next >= g->least && (starved(e) || vv_now_ns() >= g->until_ns)) {
        g->turn = false;
        vv_cond_broadcast(&g->cond);
    }
    if (!g->turn || g->next == npieces(g) || g->error || stopping(g))
        return false;
    size_t piece = g->next++, at = piece * PIECE_BYTES;
    g->touching++;
    vv_mutex_unlock(&g->lock);
    bool room = piece % SLICE_PIECES != 0 || memory_left(slice_bytes(g, piece / SLICE_PIECES));
    if (room)
        touch(g->base + at, VV_MIN(PIECE_BYTES, g->bytes - at));
    vv_mutex_lock(&g->lock);
    if (!room) {
        g->failed = g->error ? VV_MIN(g->failed, piece) : piece;
        g->error = -ENOMEM;
    }
    g->touching--;
    if (g->touching == 0)
        vv_cond_broadcast(&g->cond);
    return true;
}

static void *toucher_main(void *arg)
{
    struct vv_engine *e = arg;
    struct vvi_grow *g = &e->grow;
    /* If the application computes on the same cores, touching continues while it does not compute,
     * and all the more while it waits for this memory. */
    if (!g->own_cores)
        (void)!setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), TOUCH_NICE);
    vv_mutex_lock(&g->lock);
    while (g->next < npieces(g) && !g->error && !stopping(g))
        if (!touch_next_locked(e))
            vv_cond_wait(&g->cond, &g->lock);
    vv_mutex_unlock(&g->lock);
    return NULL;
}

/* One turn: until the time is over and the slice behind the first `ready` is whole, or no piece is
 * left. 0, with the number of whole slices; or the error that ends touching. */
static int take_turn(struct vv_engine *e, size_t ready, uint64_t turn_ns, size_t *ret_whole)
{
    struct vvi_grow *g = &e->grow;
    /* Where the application computes, this thread has too high a priority to help. */
    bool helps = g->own_cores || g->ntouchers == 0 || vv_topo_threads() > 1;
    vv_mutex_lock(&g->lock);
    g->until_ns = vv_now_ns() + turn_ns;
    g->least = VV_MIN((ready + 1) * SLICE_PIECES, npieces(g));
    g->turn = true;
    vv_cond_broadcast(&g->cond);
    while (helps && touch_next_locked(e))
        ;
    while (g->touching > 0 ||
           (!helps && g->turn && g->next < npieces(g) && !g->error && !stopping(g)))
        vv_cond_wait(&g->cond, &g->lock);
    g->turn = false;
    size_t touched = g->error ? g->failed : g->next;
    size_t whole = touched == npieces(g) ? g->nslices : touched / SLICE_PIECES;
    int rc = whole > ready ? 0 : g->error ? g->error : -ECANCELED;
    vv_mutex_unlock(&g->lock);
    *ret_whole = whole;
    return rc;
}

/* ---- the pinner ---- */

/* Adds the time since the last lap to `sum_ns`. */
static uint64_t lap(struct vvi_grow *g, uint64_t *sum_ns)
{
    uint64_t now_ns = vv_now_ns(), spent_ns = now_ns - g->spent.lap_ns;
    *sum_ns += spent_ns;
    g->spent.lap_ns = now_ns;
    return spent_ns;
}

/* Logs the time of each activity. Machines differ in this more than in anything else. */
static void log_spent(const struct vvi_grow *g)
{
    const struct vvi_grow_spent *s = &g->spent;
    vv_log(VV_LOG_INFO,
           "host cache: ready; %u turns of touching %.3f s, registering %.3f s (slowest slice %.2f "
           "ms), waiting for calls %.3f s, resting %.3f s",
           s->turns, (double)s->touching_ns * 1e-9, (double)s->registering_ns * 1e-9,
           (double)s->slowest_ns * 1e-6, (double)s->passing_ns * 1e-9,
           (double)s->resting_ns * 1e-9);
}

/* Lets calls of other threads proceed; ends early when the engine is being closed. */
static void rest(struct vvi_grow *g)
{
    uint64_t until_ns = vv_now_ns() + PIN_REST_NS;
    vv_mutex_lock(&g->lock);
    while (!stopping(g) && vv_cond_wait_until(&g->cond, &g->lock, until_ns) != -ETIMEDOUT)
        ;
    vv_mutex_unlock(&g->lock);
}

/* Touching or registering has failed: returns the rest of the memory, and notifies core and
 * application. */
static void give_up(struct vv_engine *e, int rc)
{
    struct vvi_grow *g = &e->grow;
    char text[sizeof(g->text)];
    vv_mutex_lock(&g->lock);
    if (!g->error) {
        g->failed = g->next;
        g->error = rc;
    }
    vv_cond_broadcast(&g->cond); /* touchers end */
    vv_mutex_unlock(&g->lock);
    size_t ready = VV_MIN(g->nready * VVI_SLICE_BYTES, g->bytes);
    madvise(g->base + ready, g->bytes - ready, g->shared ? MADV_REMOVE : MADV_DONTNEED);
    describe_failure(g, rc, text, sizeof(text));
    vv_log(VV_LOG_WARNING, "%s", text);
    vv_trace5(VV_TRACE_ERROR, VV_TRACE_HISTORY(e->cfg.trace_id, 0), 0, g->tier, 0,
              (uint64_t)(int64_t)rc);
    vvi_engine_lock(e);
    memcpy(g->text, text, sizeof(text));
    vv_core_grow_stop(e->core, g->tier, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    /* Pairs with the load in vv_engine_take_memory_error: the text is there. */
    atomic_store_explicit(&g->late, rc, memory_order_release);
    vvi_engine_unlock(e);
}

static bool calling(const struct vv_engine *e)
{
    return atomic_load_explicit(&e->device_calls, memory_order_relaxed) > 0;
}

/* Lets a call of the application on the device end before a slice is registered: the call makes
 * several driver calls, and each of them could have to wait for a registration of its own. Not for
 * long, because the next call may follow at once. Polls without sleeping: where calls follow one
 * another, the gaps are only a few microseconds long, and a thread that sleeps between polls misses
 * every one. */
static void let_end(struct vv_engine *e)
{
    uint64_t until_ns = vv_now_ns() + PASS_MOST_NS;
    while (calling(e) && !starved(e) && !stopping(&e->grow) && vv_now_ns() < until_ns)
        sched_yield();
}

/* The same for a call that is expected before the registration would end. */
static void let_pass(struct vv_engine *e)
{
    struct vvi_grow *g = &e->grow;
    let_end(e);
    uint64_t now_ns = vv_now_ns();
    uint64_t until_ns = vvi_gaps_wait(&e->gaps, now_ns, g->spent.expected_ns);
    while (now_ns < until_ns && !calling(e) && !stopping(g) &&
           vvi_gaps_wait(&e->gaps, now_ns, g->spent.expected_ns)) {
        vv_sleep_until_ns(now_ns + LOOK_NS);
        now_ns = vv_now_ns();
    }
    let_end(e);
}

/* Registers the next slice, which has been touched, and reports it to the core. */
static int add_slice(struct vv_engine *e)
{
    struct vvi_grow *g = &e->grow;
    if (stopping(g))
        return -ECANCELED;
    let_pass(e);
    lap(g, &g->spent.passing_ns);
    int rc = pin(e, g->base + g->nready * VVI_SLICE_BYTES, slice_bytes(g, g->nready));
    uint64_t took_ns = lap(g, &g->spent.registering_ns);
    g->spent.slowest_ns = VV_MAX(g->spent.slowest_ns, took_ns);
    /* The estimate is more often too long than too short. */
    g->spent.expected_ns = VV_MAX(took_ns + took_ns / 4, g->spent.expected_ns * 7 / 8);
    g->refused = rc != 0;
    if (rc)
        return rc;
    vvi_engine_lock(e);
    g->nready++;
    report_ready(e);
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
    return 0;
}

static void *pinner_main(void *arg)
{
    struct vv_engine *e = arg;
    struct vvi_grow *g = &e->grow;
    uint64_t turn_ns = VV_MIN((uint64_t)TURN_FIRST_NS, vvi_grow_turn_ns);
    int rc = 0;
    vv_thread_sharpen();
    vv_trace_thread("pinner");
    g->spent.lap_ns = vv_now_ns();
    while (g->nready < g->nslices && rc == 0) {
        size_t whole;
        rc = take_turn(e, g->nready, turn_ns, &whole);
        lap(g, &g->spent.touching_ns);
        g->spent.turns++;
        turn_ns = VV_MIN(2 * turn_ns, vvi_grow_turn_ns);
        while (rc == 0 && g->nready < whole) {
            rc = add_slice(e);
            lap(g, &g->spent.registering_ns); /* includes the report to the core */
            if (rc == 0 && e->cfg.device && g->nready < whole)
                rest(g);
            lap(g, &g->spent.resting_ns);
        }
    }
    if (rc == 0)
        log_spent(g);
    else if (rc != -ECANCELED)
        give_up(e, rc);
    return NULL;
}

/* ---- opening and closing ---- */

int vvi_grow_init(struct vv_engine *e, unsigned tier, char *err, size_t err_bytes)
{
    struct vvi_grow *g = &e->grow;
    struct vv_core_stats stats;
    vv_core_get_stats(e->core, &stats);
    g->tier = tier;
    g->base = e->base[tier];
    g->bytes = stats.tier_pages[tier] * e->cfg.page_bytes;
    g->nslices = vv_div_up(g->bytes, VVI_SLICE_BYTES);
    /* Transit pages follow the cache. Without them nothing could pass on its way to the disk and
     * back. */
    size_t transit = vv_core_tier_pages(e->core, tier) * e->cfg.page_bytes - g->bytes;
    int rc = 0;
    if (transit > 0) {
        touch(g->base + g->bytes, transit);
        rc = pin(e, g->base + g->bytes, transit);
        g->transit_pinned = rc == 0 && e->cfg.device;
    }
    if (rc == 0 && g->nslices > 0) {
        touch(g->base, slice_bytes(g, 0));
        rc = pin(e, g->base, slice_bytes(g, 0));
        if (rc == 0) {
            g->nready = 1;
            g->next = VV_MIN((size_t)SLICE_PIECES, npieces(g));
            report_ready(e);
        }
    }
    if (rc)
        snprintf(err, err_bytes,
                 "host cache: its first part could not be registered with the device: %s",
                 vv_strerror(rc));
    return rc;
}

int vvi_grow_start(struct vv_engine *e)
{
    struct vvi_grow *g = &e->grow;
    if (g->nready == g->nslices)
        return 0;
    /* Use the thread group's cores if they are as many as the application's. Otherwise do not:
     * memory is placed near the core that touches it first, and not all of it should be near a few
     * free cores. */
    unsigned own = vv_thread_group_cores(e->cfg.group), shared = vv_topo_threads();
    bool own_cores = g->own_cores = own >= shared;
    /* With the pinner, three quarters of the processors: the others are for the application and the
     * movers. The pinner touches as well, so that no toucher is indispensable. */
    unsigned want =
        VV_MIN(VV_MAX((own_cores ? own : shared) * 3 / 4, 2u) - 1, (unsigned)VVI_TOUCHERS);
    want = (unsigned)VV_MIN((size_t)want, npieces(g) - g->next);
    struct vv_thread_group *before = vv_thread_group_enter(own_cores ? e->cfg.group : NULL);
    while (g->ntouchers < want && vv_thread_start(&g->toucher[g->ntouchers], toucher_main, e) == 0)
        g->ntouchers++;
    vv_thread_group_enter(before);
    /* The pinner is started last: it reads the number of touchers, and they wait for its turns. */
    int rc = vv_thread_start(&g->pinner, pinner_main, e);
    g->runs = rc == 0;
    return rc;
}

void vvi_grow_stop(struct vv_engine *e)
{
    struct vvi_grow *g = &e->grow;
    vv_mutex_lock(&g->lock);
    atomic_store_explicit(&g->stop, true, memory_order_relaxed);
    vv_cond_broadcast(&g->cond);
    vv_mutex_unlock(&g->lock);
    for (unsigned i = 0; i < g->ntouchers; i++)
        pthread_join(g->toucher[i], NULL);
    if (g->runs)
        pthread_join(g->pinner, NULL);
    g->ntouchers = 0;
    g->runs = false;
}

void vvi_grow_fini(struct vv_engine *e)
{
    struct vvi_grow *g = &e->grow;
    /* The driver unregisters slice by slice. A lost one refuses, and a call for each slice would
     * only take time. */
    int rc = 0;
    if (g->transit_pinned)
        rc = vv_device_host_unregister(e->cfg.device, g->base + g->bytes);
    for (size_t i = 0; e->cfg.device && i < g->nready && rc != -ENODEV; i++)
        rc = vv_device_host_unregister(e->cfg.device, g->base + i * VVI_SLICE_BYTES);
    g->nready = 0;
    g->transit_pinned = false;
}

int vv_engine_take_memory_error(struct vv_engine *e, char *text, size_t text_bytes)
{
    struct vvi_grow *g = &e->grow;
    /* Pairs with the store in give_up. */
    if (atomic_load_explicit(&g->late, memory_order_acquire) == 0)
        return 0;
    int rc = atomic_exchange_explicit(&g->late, 0, memory_order_acquire);
    if (rc)
        snprintf(text, text_bytes, "%s", g->text);
    return rc;
}
