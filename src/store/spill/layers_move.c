/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving pages between the layers, one thread for each direction.
 *
 * The thread keeps a plan: the versions in the order in which they are worth moving (down: the farthest next use
 * first; up: the nearest first). From the first one it takes a run of consecutive chunks that are on one layer
 * only, and slots for them on the other. It reads the run and waits for it, then writes it and goes on with the
 * next: so one run is read while up to two are written, and the slower layer is always busy.
 *
 * The plan is made again after a while, not for every run: hints change seldom, and next_use takes a lock of the
 * engine. An outdated plan may lead to a move that is not the best.
 *
 * A page that is freed while it is moved leaves its slots to the move, which frees them at its end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "store/spill/layers_private.h"
#include "store/store_private.h"
#include "trace/trace.h"

/* A move should take about this long, so that urgent requests do not wait long behind it. */
#define MOVE_NS       10e6
#define MOVE_BYTES    (1 << 20) /* until the slow layer has been measured */
#define PLAN_NS       (20 * VV_NS_PER_MS)
#define PLAN_COST     20 /* a plan is valid for this multiple of the time it took */
#define MOVER_REST_NS VV_NS_PER_MS
#define MOVER_POLL_NS ((int64_t)1000000000)
#define MOVER_IDLE_NS (50 * VV_NS_PER_MS) /* between looks for a changed restore order */

/* ---- the plan ---- */

static int nearest_first(const void *a, const void *b)
{
    const struct vv_layers_version *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->generation > y->generation ? -1 : x->generation < y->generation;
}

static int farthest_first(const void *a, const void *b)
{
    return nearest_first(b, a);
}

/* Lists all versions; false: out of memory. */
static bool list_locked(struct vvi_lmover *m)
{
    struct vv_layers *l = m->layers;
    if (l->versions.n > m->plan_room) {
        size_t room = 2 * l->versions.n;
        struct vv_layers_version *plan = realloc(m->plan, room * sizeof(*plan));
        if (!plan)
            return false;
        m->plan = plan;
        m->plan_room = room;
    }
    m->nplan = 0;
    for (const struct vvi_lversion *v = vv_table_first(&l->versions); v;
         v = vv_table_next(&l->versions, v))
        m->plan[m->nplan++] = (struct vv_layers_version){.hist = v->hist,
                                                         .version = v->version,
                                                         .generation = v->generation,
                                                         .rank = ~v->generation};
    return true;
}

static void note_ranks_locked(struct vvi_lmover *m)
{
    struct vv_layers *l = m->layers;
    uint64_t farthest = 0;
    bool any = false;
    m->restoring = false;
    for (size_t i = 0; i < m->nplan; i++) {
        struct vvi_lversion *v = vvi_lversion_find(l, m->plan[i].generation);
        m->restoring |= m->plan[i].restoring;
        if (!v || m->plan[i].gone)
            continue;
        v->rank = m->plan[i].rank;
        farthest = VV_MAX(farthest, v->rank);
        any = true;
    }
    l->farthest_rank = any ? farthest : UINT64_MAX;
}

/* Makes the plan again if it is old. Releases the lock meanwhile. */
static void plan_locked(struct vvi_lmover *m)
{
    struct vv_layers *l = m->layers;
    uint64_t begun_ns = vv_now_ns();
    if (begun_ns < m->plan_due_ns || !list_locked(m))
        return;
    vv_mutex_unlock(&l->lock);
    if (l->opts.next_use && m->nplan > 0)
        l->opts.next_use(l->opts.arg, m->plan, m->nplan);
    if (m->nplan > 1)
        qsort(m->plan, m->nplan, sizeof(*m->plan),
              m->from == VV_LAYER_FAST ? farthest_first : nearest_first);
    vv_mutex_lock(&l->lock);
    note_ranks_locked(m);
    uint64_t now_ns = vv_now_ns();
    m->plan_at = 0;
    m->plan_due_ns = now_ns + VV_MAX((uint64_t)PLAN_NS, PLAN_COST * (now_ns - begun_ns));
}

/* True if a move is possible, so that the plan is worth making. */
static bool possible_locked(const struct vvi_lmover *m)
{
    const struct vv_layers *l = m->layers;
    if (m->from == VV_LAYER_FAST)
        return vvi_slots_free(l, VV_LAYER_FAST) < l->low_pages;
    return l->slots[VV_LAYER_SLOW].used > l->nclean;
}

static bool wanted_locked(const struct vvi_lmover *m)
{
    const struct vv_layers *l = m->layers;
    if (m->from == VV_LAYER_FAST)
        return vv_layers_wants_down(vvi_slots_free(l, VV_LAYER_FAST), l->low_pages, m->restoring);
    return vv_layers_wants_up(m->restoring, l->server[0].pending > 0, l->reroute.skipped);
}

/* For a page that moves up: a free slot beyond the reserve, or the slot of a page that is restored later
 * and has another copy. */
static uint32_t slot_locked(struct vvi_lmover *m, uint64_t rank)
{
    struct vv_layers *l = m->layers;
    if (m->to == VV_LAYER_FAST && vvi_slots_free(l, m->to) - l->nclean <= l->low_pages)
        return vvi_slot_reclaim(l, m->to, rank + 1);
    return vvi_slot_take(l, m->to);
}

/* ---- a move ---- */

static bool movable(const struct vv_layers *l, const struct vvi_lmover *m, uint32_t page)
{
    if (page == VVI_SLOT_NONE)
        return false;
    const struct vvi_lpage *p = &l->page[page];
    return p->ready && !p->move && p->slot[m->from] != VVI_SLOT_NONE &&
           p->slot[m->to] == VVI_SLOT_NONE;
}

static uint32_t pages_at_once(const struct vv_layers *l)
{
    double rate = l->rate[VV_LAYER_SLOW][1].bytes_per_s;
    double bytes = rate > 0 ? rate * MOVE_NS / 1e9 : MOVE_BYTES;
    uint64_t pages = (uint64_t)(bytes / l->page_bytes);
    return (uint32_t)VV_MAX(VV_MIN(pages, (uint64_t)l->move_pages), (uint64_t)1);
}

/* Takes a run of the version, with slots on the other layer; false: the version has nothing to move. */
static bool take_run_locked(struct vvi_lmover *m, struct vvi_lversion *v, struct vvi_move *move)
{
    struct vv_layers *l = m->layers;
    uint32_t most = pages_at_once(l), c = 0;
    while (c < v->nchunks && !movable(l, m, v->page[c]))
        c++;
    move->n = 0;
    move->io = (struct vv_store_io){.key = {NULL, v->version, v->generation},
                                    .hist = v->hist,
                                    .size = v->size,
                                    .chunk0 = c,
                                    .mem = move->chunk_mem,
                                    .given_up = &l->given_up,
                                    .user = move};
    for (; c < v->nchunks && move->n < most && movable(l, m, v->page[c]); c++) {
        uint32_t slot = slot_locked(m, v->rank), i = move->n;
        if (slot == VVI_SLOT_NONE)
            break;
        struct vvi_lpage *p = &l->page[v->page[c]];
        move->page[i] = v->page[c];
        move->src[i] = p->slot[m->from];
        move->dst[i] = slot;
        move->dead[i] = false;
        p->move = move;
        move->n++;
    }
    move->io.nchunks = move->n;
    return move->n > 0;
}

static bool pick_locked(struct vvi_lmover *m, struct vvi_move *move)
{
    struct vv_layers *l = m->layers;
    for (; m->plan_at < m->nplan; m->plan_at++) {
        const struct vv_layers_version *w = &m->plan[m->plan_at];
        struct vvi_lversion *v = w->gone ? NULL : vvi_lversion_find(l, w->generation);
        if (!v || v->stuck || (m->to == VV_LAYER_FAST && (w->present || !w->restoring)))
            continue;
        if (take_run_locked(m, v, move))
            return true;
    }
    return false;
}

static void trace_move(const struct vvi_lmover *m, const struct vvi_move *move,
                       enum vv_trace_kind kind, uint64_t last)
{
    uint64_t route =
        m->to == VV_LAYER_SLOW
            ? VV_TRACE_ROUTE(VV_TRACE_HOP_F2R, VV_TRACE_TIER_FILE, VV_TRACE_TIER_REMOTE)
            : VV_TRACE_ROUTE(VV_TRACE_HOP_R2F, VV_TRACE_TIER_REMOTE, VV_TRACE_TIER_FILE);
    vv_trace5(kind, route, VV_TRACE_HISTORY(m->layers->opts.trace_id, move->io.hist),
              move->io.key.version, move->io.chunk0, last);
}

/* Records that the page is now on both layers; on a move down its slot on the fast layer is freed, unless that
 * slot is being read. */
static void arrive_locked(struct vvi_lmover *m, const struct vvi_move *move, uint32_t i)
{
    struct vv_layers *l = m->layers;
    struct vvi_lpage *p = &l->page[move->page[i]];
    p->move = NULL;
    p->slot[m->to] = move->dst[i];
    if (m->to == VV_LAYER_SLOW && p->readers[VV_LAYER_FAST] == 0) {
        vvi_slot_give(l, VV_LAYER_FAST, move->src[i]);
        p->slot[VV_LAYER_FAST] = VVI_SLOT_NONE;
    } else {
        vvi_clean_add(l, move->page[i]);
    }
}

static void finish_locked(struct vvi_lmover *m, struct vvi_move *move, int status)
{
    struct vv_layers *l = m->layers;
    for (uint32_t i = 0; i < move->n; i++) {
        if (move->dead[i])
            vvi_slot_give(l, m->from, move->src[i]);
        if (move->dead[i] || status < 0)
            vvi_slot_give(l, m->to, move->dst[i]);
        if (!move->dead[i] && status < 0)
            l->page[move->page[i]].move = NULL;
        else if (!move->dead[i])
            arrive_locked(m, move, i);
    }
    struct vvi_lversion *v = status < 0 ? vvi_lversion_find(l, move->io.key.generation) : NULL;
    if (v)
        v->stuck = true;
    if (status == 0)
        *(m->to == VV_LAYER_SLOW ? &l->stats.down_bytes : &l->stats.up_bytes) +=
            vvi_io_bytes(&move->io, l->page_bytes);
    move->next = m->spare;
    m->spare = move;
}

/* Counts one finished transfer of a move. */
static void half_locked(struct vvi_lmover *m, struct vvi_move *move, enum vv_layer layer)
{
    vvi_layer_ended(m->layers, layer, layer == m->to,
                    vvi_io_bytes(&move->io, m->layers->page_bytes), move->begun_ns,
                    move->io.status == 0);
}

/* Starts a transfer of the move on one of the layers; a refusal counts as its end. */
static int submit(struct vvi_lmover *m, struct vvi_move *move, enum vv_layer layer)
{
    struct vv_layers *l = m->layers;
    struct vv_store *s = layer == m->to ? m->dst : m->src;
    move->io.op = layer == m->to ? VV_STORE_WRITE : VV_STORE_READ;
    move->io.pages = layer == m->to ? move->dst : move->src;
    for (uint32_t i = 0; i < move->n; i++)
        move->chunk_mem[i] = move->mem + (size_t)i * l->page_bytes;
    vv_mutex_lock(&l->lock);
    vvi_layer_begins(l, layer, vvi_io_bytes(&move->io, l->page_bytes));
    vv_mutex_unlock(&l->lock);
    move->begun_ns = vv_now_ns();
    int rc = s->ops->submit(s, &move->io);
    if (rc < 0)
        move->io.status = rc;
    return rc;
}

/* Waits for one transfer of a store. */
static struct vvi_move *await(struct vv_store *s)
{
    struct vv_store_io *done;
    for (;;) {
        int n = s->ops->poll(s, &done, 1, MOVER_POLL_NS);
        if (n == 1)
            return done->user;
        if (n < 0 && n != -ETIMEDOUT)
            vv_sleep_until_ns(vv_now_ns() + MOVER_REST_NS);
    }
}

static void ended(struct vvi_lmover *m, struct vvi_move *move, enum vv_layer layer)
{
    struct vv_layers *l = m->layers;
    vv_mutex_lock(&l->lock);
    half_locked(m, move, layer);
    if (layer == m->to || move->io.status < 0) {
        trace_move(m, move, VV_TRACE_COPY_END, (uint64_t)(int64_t)move->io.status);
        finish_locked(m, move, move->io.status);
    }
    vv_mutex_unlock(&l->lock);
}

/* Reads a run, and begins to write it. */
static void carry(struct vvi_lmover *m, struct vvi_move *move, unsigned *writing)
{
    trace_move(m, move, VV_TRACE_COPY_START, vvi_io_bytes(&move->io, m->layers->page_bytes));
    if (submit(m, move, m->from) == 0)
        (void)await(m->src);
    bool good = move->io.status == 0;
    ended(m, move, m->from);
    if (!good)
        return;
    if (submit(m, move, m->to) == 0)
        (*writing)++;
    else
        ended(m, move, m->to);
}

static void *move_pages(void *arg)
{
    struct vvi_lmover *m = arg;
    struct vv_layers *l = m->layers;
    unsigned writing = 0;
    vv_trace_thread(m->to == VV_LAYER_SLOW ? "layers down" : "layers up");
    vv_mutex_lock(&l->lock);
    while (!l->stopped) {
        bool got = false, possible = possible_locked(m);
        if (possible) {
            plan_locked(m);
            struct vvi_move *move = m->spare;
            got = !l->stopped && move && wanted_locked(m) && pick_locked(m, move);
            if (got) {
                m->spare = move->next;
                vv_mutex_unlock(&l->lock);
                carry(m, move, &writing);
                vv_mutex_lock(&l->lock);
                if (m->spare)
                    continue;
            }
        }
        if (writing > 0) {
            vv_mutex_unlock(&l->lock);
            ended(m, await(m->dst), m->to);
            writing--;
            vv_mutex_lock(&l->lock);
        } else if (!got) {
            (void)vv_cond_wait_until(&m->work, &l->lock,
                                     possible ? vv_now_ns() + MOVER_IDLE_NS : VV_NEVER_NS);
        }
    }
    vv_mutex_unlock(&l->lock);
    for (; writing > 0; writing--)
        ended(m, await(m->dst), m->to);
    return NULL;
}

/* ---- starting and stopping ---- */

static int memory_new(struct vvi_lmover *m)
{
    const struct vv_layers *l = m->layers;
    size_t each = (size_t)l->move_pages * l->page_bytes, all = each * VV_ARRAY_SIZE(m->move);
    struct vv_helper *helper = l->opts.layer[m->from].store.helper;
    void *mem = NULL;
    m->shared = helper && vv_helper_map(helper, all, &mem) == 0;
    if (!m->shared && posix_memalign(&mem, VV_STORE_ALIGN, all))
        return -ENOMEM;
    m->mem = mem;
    for (size_t i = 0; i < VV_ARRAY_SIZE(m->move); i++) {
        m->move[i].mem = m->mem + i * each;
        m->move[i].next = m->spare;
        m->spare = &m->move[i];
    }
    return 0;
}

static void memory_free(struct vvi_lmover *m)
{
    if (m->shared)
        vv_helper_unmap(m->layers->opts.layer[m->from].store.helper, m->mem);
    else
        free(m->mem);
    m->mem = NULL;
}

int vvi_lmover_start(struct vv_layers *l, enum vv_layer from, struct vvi_lmover *m)
{
    m->layers = l;
    m->from = from;
    m->to = from == VV_LAYER_FAST ? VV_LAYER_SLOW : VV_LAYER_FAST;
    int rc = memory_new(m);
    if (rc < 0)
        return rc;
    rc = vvi_layer_store(l, m->from, &m->src);
    if (rc == 0)
        rc = vvi_layer_store(l, m->to, &m->dst);
    if (rc == 0)
        rc = vv_thread_start(&m->thread, move_pages, m);
    m->started = rc == 0;
    return rc;
}

void vvi_lmover_stop(struct vvi_lmover *m)
{
    if (!m->started)
        return;
    pthread_join(m->thread, NULL);
    m->started = false;
}

void vvi_lmover_fini(struct vvi_lmover *m)
{
    if (m->src)
        m->src->ops->close(m->src);
    if (m->dst)
        m->dst->ops->close(m->dst);
    memory_free(m);
    free(m->plan);
}
