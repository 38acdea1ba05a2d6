/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing files before they are requested: because a program gave the order in which they will be read (an epoch's
 * shuffle), because they shall be there when a job begins, or because their node is gone.
 *
 * The whole job has one order of use. Each home gets its own files of it, with their places. They are brought in that
 * order, several at a time, and the cache makes room by its general rule: files that are wanted later are evicted
 * before files that are wanted earlier (vv_next_rank). When the cache is full of files that are wanted earlier,
 * bringing stops until some of them have been used. Each use of a file moves the current place in the order on. A file
 * with several places counts as wanted at the first place still to come, whichever of them it was brought for.
 *
 * A node can also have an order of its own: the one in which its programs read (`mine`). Files of other homes are
 * brought to this node in that order: to its disk if there is free room, otherwise to memory. Half of `memory` is for
 * files that came and are not opened yet. When that is full, bringing stops until some of them have been opened.
 *
 * The lock of an order protects all of it; no other part is called under it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "dataset/node_private.h"

#define FULL_WAIT_NS (200 * VV_NS_PER_MS)
#define BODY_BYTES   65536u
/* A file that was just written is too young to be fetched; the others come first. */
#define YOUNG_WAIT_NS (50 * VV_NS_PER_MS)
#define YOUNG_TRIES   2400
#define MOVING        16 /* files given away at once */

struct item {
    uint64_t place;
    uint32_t pos; /* in the heap */
    bool here;    /* its home has placed it here */
    unsigned tries;
    char path[];
};

/* ---- files that wait ---- */

static struct item *item_new(const char *path, uint64_t place, bool here)
{
    size_t bytes = strlen(path) + 1;
    struct item *item = malloc(sizeof(*item) + bytes);

    if (!item)
        return NULL;
    *item = (struct item){.place = place, .pos = VV_HEAP_OUT, .here = here};
    memcpy(item->path, path, bytes);
    return item;
}

/* The heap gives the largest key first, so keys fall as places grow: the first place comes first, and files without a
 * place come last. */
static int push_locked(struct vvi_ahead *a, struct item *item)
{
    if (vv_heap_reserve(&a->items, a->items.n + 1) < 0)
        return -ENOMEM;
    vv_heap_set(&a->items, &item->pos, item, UINT64_MAX - item->place);
    return 0;
}

static struct item *pop_locked(struct vvi_ahead *a)
{
    struct item *first = vv_heap_top(&a->items);

    vv_heap_remove(&a->items, &first->pos);
    return first;
}

/* ---- bringing ---- */

enum brought { BROUGHT, BRING_WHEN_ROOM, BRING_LATER };

/* Brings a file of the job's order to this home. `next`: the first place at which it is wanted, which may be before
 * this item's place. */
static enum brought bring_home(struct vv_node *n, const struct item *item, uint64_t next)
{
    struct vvi_view *v = vvi_node_view_get(n);
    bool ours = !v->fenced && (item->here || vvi_node_view_home(n, v, item->path) == v->self);
    uint64_t at = n->id;
    int rc = 0;

    vvi_node_view_put(v);
    if (!ours || atomic_load(&n->draining))
        return BROUGHT; /* or another node brings it */
    if (!item->here)
        rc = vvi_node_home_where(n, item->path, 0, true, vv_now_ns() + n->opts.patience_ns, &at);
    if (rc < 0)
        return BROUGHT;
    if (at != n->id) {
        uint8_t body[VVI_PEER_BODY_MAX];
        struct vvi_pack p = {.buf = body, .max = sizeof(body)};

        vvi_wire_put(&p, item->place, 8);
        vvi_wire_put(&p, 1, 1);
        vvi_wire_put_path(&p, item->path);
        (void)vvi_node_ask_short(n, at, VVI_PEER_BRING, body, p.at,
                                 vv_now_ns() + n->opts.patience_ns);
        return BROUGHT;
    }
    rc = vv_owner_bring(n->owner, item->path, next);
    if (rc == 0) {
        vv_dataset_own(n->cache, item->path);
        VVI_COUNT(n, ahead);
    } else {
        vvi_node_home_decided(n, item->path);
    }
    if (rc == -EAGAIN)
        return BRING_LATER;
    return rc == -ENOSPC && item->place != VV_DATASET_UNKNOWN ? BRING_WHEN_ROOM : BROUGHT;
}

static void set_full(struct vvi_ahead *a, bool full)
{
    vv_mutex_lock(&a->lock);
    a->full = full;
    vv_mutex_unlock(&a->lock);
}

/* The next file of the order. Files whose place has passed are dropped: a program has read them. NULL: none is left. */
static struct item *next_locked(struct vvi_ahead *a)
{
    uint64_t from = VV_MAX(a->places.now, a->from);

    while (a->items.n > 0) {
        struct item *item = pop_locked(a);

        if (item->place >= from)
            return item;
        free(item);
    }
    return NULL;
}

/* Brings files of this node's order from their homes, several at a time, so that a thread wakes up once for all of
 * them. */
static enum brought bring_here(struct vvi_ahead *a, struct item *first)
{
    struct item *item[VVI_NODE_TOGETHER] = {first};
    const char *paths[VVI_NODE_TOGETHER];
    uint64_t places[VVI_NODE_TOGETHER];
    unsigned nr = 1, room = vvi_node_memory_room(a->node);
    int here;

    if (room == 0) {
        set_full(a, true);
        /* A program may have opened one since. Either that thread sees `full`, or this one sees the room. */
        room = vvi_node_memory_room(a->node);
        if (room == 0)
            return BRING_WHEN_ROOM;
        set_full(a, false);
    }
    room = VV_MIN(room / a->threads, VVI_NODE_TOGETHER);
    vv_mutex_lock(&a->lock);
    while (nr < room && (item[nr] = next_locked(a)))
        nr++;
    vv_mutex_unlock(&a->lock);
    for (unsigned i = 0; i < nr; i++) {
        paths[i] = item[i]->path;
        places[i] = item[i]->place;
    }
    here = vvi_node_get_ahead(a->node, nr, paths, places);
    for (unsigned i = 1; i < nr; i++)
        free(item[i]);
    if (here > 0)
        VVI_COUNT_BY(a->node, ahead, (unsigned)here);
    /* No node can be asked: wait, so that the next files are not lost in the same way. */
    if (here < 0)
        vv_sleep_until_ns(vv_now_ns() + FULL_WAIT_NS);
    return BROUGHT;
}

static void *bring(void *arg)
{
    struct vvi_ahead *a = arg;
    struct vv_node *n = a->node;

    vv_mutex_lock(&a->lock);
    while (!a->stop) {
        struct item *item;
        enum brought what;
        uint64_t next;

        if (a->items.n == 0) {
            vv_cond_wait(&a->more, &a->lock);
            continue;
        }
        if (a->full) {
            (void)vv_cond_wait_until(&a->more, &a->lock, vv_now_ns() + FULL_WAIT_NS);
            a->full = false;
            continue;
        }
        item = next_locked(a);
        if (!item)
            continue;
        next = vvi_places_next(&a->places, item->path, item->place);
        vv_mutex_unlock(&a->lock);
        what = a == &n->mine ? bring_here(a, item) : bring_home(n, item, next);
        if (what == BRING_LATER) {
            vv_sleep_until_ns(vv_now_ns() + YOUNG_WAIT_NS);
            item->place = VV_DATASET_UNKNOWN;
            if (item->tries++ == YOUNG_TRIES)
                what = BROUGHT; /* it changes all the time */
        }
        vv_mutex_lock(&a->lock);
        a->full = a->full || what == BRING_WHEN_ROOM;
        if (what == BROUGHT || push_locked(a, item) < 0)
            free(item);
    }
    vv_mutex_unlock(&a->lock);
    return NULL;
}

void vvi_node_ahead_init(struct vv_node *n, struct vvi_ahead *a)
{
    a->node = n;
    vv_mutex_init(&a->lock, "ahead", VV_RANK_STORE);
    vv_cond_init(&a->more);
}

int vvi_node_ahead_start(struct vvi_ahead *a)
{
    unsigned nr = VV_MIN(a->node->opts.ahead, (unsigned)VV_ARRAY_SIZE(a->thread));

    for (unsigned i = 0; i < nr; i++) {
        int rc = vv_thread_start(&a->thread[i], bring, a);

        if (rc < 0)
            return rc;
        a->threads++;
    }
    return 0;
}

void vvi_node_ahead_stop(struct vvi_ahead *a)
{
    vv_mutex_lock(&a->lock);
    a->stop = true;
    vv_cond_broadcast(&a->more);
    vv_mutex_unlock(&a->lock);
    for (unsigned i = 0; i < a->threads; i++)
        pthread_join(a->thread[i], NULL);
}

void vvi_node_ahead_fini(struct vvi_ahead *a)
{
    while (a->items.n > 0)
        free(pop_locked(a));
    vv_heap_fini(&a->items);
    vvi_places_fini(&a->places);
    vv_cond_fini(&a->more);
    vv_mutex_fini(&a->lock);
}

int vvi_node_ahead_add(struct vvi_ahead *a, const char *path, uint64_t place, bool here)
{
    struct item *item = item_new(path, place, here);
    int rc = item ? 0 : -ENOMEM;

    vv_mutex_lock(&a->lock);
    if (rc == 0 && a->stop)
        rc = -ESHUTDOWN;
    if (rc == 0 && place != VV_DATASET_UNKNOWN)
        rc = vvi_places_add(&a->places, path, place);
    if (rc == 0)
        rc = push_locked(a, item);
    if (rc == 0)
        vv_cond_signal(&a->more);
    vv_mutex_unlock(&a->lock);
    if (rc < 0)
        free(item);
    return rc;
}

void vvi_node_ahead_again(void *user, const char *path, uint64_t place)
{
    struct vv_node *n = user;
    struct vvi_ahead *a = &n->ahead;
    struct item *item = item_new(path, place, true);

    vv_mutex_lock(&a->lock);
    /* Otherwise its place has passed: a program has read it. */
    if (item && !a->stop && place >= a->places.now && push_locked(a, item) == 0) {
        vv_cond_signal(&a->more);
        item = NULL;
    }
    vv_mutex_unlock(&a->lock);
    free(item);
}

uint64_t vvi_node_ahead_passed(void *user, const char *path)
{
    struct vvi_ahead *a = &((struct vv_node *)user)->ahead;
    uint64_t next;

    vv_mutex_lock(&a->lock);
    next = vvi_places_next(&a->places, path, VV_DATASET_UNKNOWN);
    vv_mutex_unlock(&a->lock);
    return next;
}

void vvi_node_ahead_used(struct vv_node *n, const char *path)
{
    struct vvi_ahead *a = &n->ahead;
    uint64_t now, next;
    bool ordered;

    vv_mutex_lock(&a->lock);
    ordered = vvi_places_use(&a->places, path, &next);
    now = a->places.now;
    if (ordered) {
        a->full = false;
        vv_cond_broadcast(&a->more);
    }
    vv_mutex_unlock(&a->lock);
    if (!ordered)
        return;
    vv_dataset_advance(n->cache, now);
    (void)vv_dataset_expect(n->cache, path, next);
}

void vvi_node_ahead_opened(struct vv_node *n, const char *path, bool waited)
{
    struct vvi_ahead *a = &n->mine;
    uint64_t now, next;
    bool ordered, room, empty;

    vv_mutex_lock(&a->lock);
    ordered = vvi_places_use(&a->places, path, &next);
    now = a->places.now;
    vv_mutex_unlock(&a->lock);
    if (!ordered)
        return;
    room = vvi_node_memory_passed(n, now, &empty);
    vv_mutex_lock(&a->lock);
    /* A program had to wait, and no file brought ahead is left: programs are faster than these threads. They would
     * request the next files before the threads could bring them. So the threads skip these files. */
    if (waited && empty)
        a->from = now + (uint64_t)a->threads * VVI_NODE_TOGETHER;
    /* The threads continue when a good part is free: waking them up for each file costs as much as bringing it. */
    if (a->full && room) {
        a->full = false;
        vv_cond_broadcast(&a->more);
    }
    vv_mutex_unlock(&a->lock);
}

uint64_t vvi_node_ahead_waiting(struct vvi_ahead *a)
{
    uint64_t nr;

    vv_mutex_lock(&a->lock);
    nr = a->items.n;
    vv_mutex_unlock(&a->lock);
    return nr;
}

/* ---- sending the order to the homes ---- */

/* The message for one node. */
struct batch {
    struct vvi_pack p;
    uint8_t *buf;
};

static int send_batch(struct vv_node *n, uint64_t to, struct batch *batch)
{
    int rc = 0;

    if (batch->p.at > 0)
        rc = vvi_node_ask_short(n, to, VVI_PEER_BRING, batch->buf, batch->p.at,
                                vv_now_ns() + n->opts.patience_ns);
    batch->p = (struct vvi_pack){.buf = batch->buf, .max = BODY_BYTES};
    return rc;
}

static int add_to_batch(struct vv_node *n, uint64_t to, struct batch *batch, const char *path,
                        uint64_t place)
{
    int rc = 0;

    if (!batch->buf) {
        batch->buf = malloc(BODY_BYTES);
        if (!batch->buf)
            return -ENOMEM;
        batch->p = (struct vvi_pack){.buf = batch->buf, .max = BODY_BYTES};
    }
    if (batch->p.max - batch->p.at < strlen(path) + 11)
        rc = send_batch(n, to, batch);
    vvi_wire_put(&batch->p, place, 8);
    vvi_wire_put(&batch->p, 0, 1);
    vvi_wire_put_path(&batch->p, path);
    return rc;
}

int vv_node_bring(struct vv_node *n, const char *const *paths, size_t nr, uint64_t place)
{
    struct vvi_view *v = vvi_node_view_get(n);
    struct batch *batch = calloc(v->nr, sizeof(*batch));
    int rc = batch ? 0 : -ENOMEM, one;

    for (size_t i = 0; i < nr && rc == 0; i++) {
        char path[VV_DATASET_PATH_MAX + 1];
        uint64_t at = place == VV_DATASET_UNKNOWN ? place : place + i;
        uint32_t home;

        if (vvi_node_path(n, paths[i], path) < 0)
            continue;
        home = vvi_node_view_home(n, v, path);
        if (home == v->self)
            rc = vvi_node_ahead_add(&n->ahead, path, at, false);
        else if (home != VV_PLACE_NONE && vvi_node_view_up(v, home))
            rc = add_to_batch(n, v->rows[home].info.id, &batch[home], path, at);
    }
    for (uint32_t i = 0; i < v->nr && batch; i++) {
        if (batch[i].buf) {
            one = send_batch(n, v->rows[i].info.id, &batch[i]);
            rc = rc < 0 ? rc : one;
            free(batch[i].buf);
        }
    }
    free(batch);
    vvi_node_view_put(v);
    return rc;
}

int vv_node_bring_here(struct vv_node *n, const char *const *paths, size_t nr, uint64_t place)
{
    struct vvi_view *v = vvi_node_view_get(n);
    int rc = n->opts.memory > 0 ? 0 : -ENOSPC;

    for (size_t i = 0; i < nr && rc == 0; i++) {
        char path[VV_DATASET_PATH_MAX + 1];

        if (vvi_node_path(n, paths[i], path) == 0)
            rc =
                vvi_node_ahead_add(vvi_node_view_home(n, v, path) == v->self ? &n->ahead : &n->mine,
                                   path, place + i, false);
    }
    vvi_node_view_put(v);
    return rc;
}

/* ---- leaving ---- */

/* Several files travel at a time: the receiver requests each in pieces, and has a few threads for that. If the limit is
 * reached, the oldest is waited for. */
struct moving {
    struct vv_node *n;
    struct vvi_view *v;
    uint64_t *up; /* without this node */
    uint64_t deadline_ns;
    int64_t given;
    struct {
        uint64_t peer;
        struct vv_net_call *call;
    } under_way[MOVING];
    unsigned first, nr; /* a ring of calls */
};

static void wait_for_oldest(struct moving *m)
{
    struct vv_net_answer a;
    struct vv_net_call *call = m->under_way[m->first].call;

    m->given +=
        vvi_node_ask_wait(m->n, m->under_way[m->first].peer, call, &a) == 0 && a.status == 0;
    vv_net_end(call);
    m->first = (m->first + 1) % MOVING;
    m->nr--;
}

static void offer(struct moving *m, uint64_t peer, const void *body, size_t bytes)
{
    struct vv_net_ask ask = VV_NET_ASK_INIT;
    int rc;

    ask.peer = peer;
    ask.type = VVI_PEER_KEEP;
    ask.body = body;
    ask.body_bytes = bytes;
    ask.deadline_ns = m->deadline_ns;
    do {
        unsigned at = (m->first + m->nr) % MOVING;

        rc = m->nr < MOVING ? vv_net_start(m->n->net, &ask, &m->under_way[at].call) : -EAGAIN;
        if (rc == 0) {
            m->under_way[at].peer = peer;
            m->nr++;
        } else if (rc == -EAGAIN && m->nr > 0) {
            wait_for_oldest(m);
        } else {
            return;
        }
    } while (rc != 0);
}

static int give_away(void *user, const struct vv_dataset_entry *e)
{
    struct moving *m = user;
    uint8_t body[VVI_PEER_BODY_MAX];
    struct vvi_pack p = {.buf = body, .max = sizeof(body)};
    uint32_t to = vv_place_owner(m->v->place, vv_place_key(e->path, strlen(e->path)), m->up);
    struct vv_shared_stat st;
    uint64_t age_ns = 0;

    if (to == VV_PLACE_NONE || vv_now_ns() >= m->deadline_ns || atomic_load(&m->n->closing))
        return 1;
    if (e->copy) /* kept by another node */
        return 0;
    if ((vv_owner_recall(m->n->owner, e->path, &st, &age_ns) < 0 &&
         vv_owner_stat(m->n->owner, e->path, m->deadline_ns, &st) < 0) ||
        !vvi_same_gen(&st.gen, &e->gen))
        return 0;
    vvi_wire_put(&p, age_ns, 8);
    vvi_wire_put_stat(&p, &st);
    vvi_wire_put_path(&p, e->path);
    offer(m, m->v->rows[to].info.id, body, p.at);
    return 0;
}

int64_t vv_node_drain(struct vv_node *n, uint64_t deadline_ns)
{
    struct moving m = {.n = n, .deadline_ns = deadline_ns};
    bool was = atomic_exchange(&n->draining, true);
    size_t words;

    if (was)
        return -EALREADY;
    if (n->opts.dataset.index)
        vv_index_enable(n->opts.dataset.index, false);
    m.v = vvi_node_view_get(n);
    words = vv_place_set_words(m.v->nr);
    m.up = malloc(words * sizeof(*m.up));
    if (m.up && n->net) {
        memcpy(m.up, m.v->up, words * sizeof(*m.up));
        vv_place_set_remove(m.up, m.v->self);
        (void)vv_dataset_list(n->cache, give_away, &m);
        while (m.nr > 0)
            wait_for_oldest(&m);
    }
    free(m.up);
    vvi_node_view_put(m.v);
    if (n->gossip) {
        n->left = true;
        vv_gossip_stop(n->gossip, true);
    }
    return m.given;
}
