/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of the runtime that are disturbed by others: a version written again after its layout
 * was looked up, and a history that is closed while requests of another one take for ever. The test
 * has its own store, which completes requests of a history when it is allowed to.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "engine/runtime/runtime_private.h"
#include "t.h"

enum { PAGE = 4096, HISTORIES = 2, LIMIT_MS = 20000 };

/* ---- a store that waits ---- */

struct slow_store {
    struct vv_store base;   /* first */
    _Atomic unsigned nheld; /* of history 0, if they count as held for want of room */
    struct vv_mutex lock;
    struct vv_cond cond;
    /* Synchronization: lock, all below. */
    struct vv_store_io *held;
    bool allowed[HISTORIES], kicked;
    bool limited, alone; /* writes of history 0 are held; the engine has nothing else under way */
};

/* Only the addresses are used. */
static char files[HISTORIES];

static struct vv_files *files_of(unsigned history)
{
    return (struct vv_files *)(void *)&files[history];
}

static unsigned history_of(const struct vv_store_io *io)
{
    return (unsigned)((char *)io->key.history - files);
}

static struct slow_store *slow_of(struct vv_store *store)
{
    return (struct slow_store *)store;
}

static int slow_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct slow_store *s = slow_of(store);
    vv_mutex_lock(&s->lock);
    io->next = s->held;
    s->held = io;
    s->nheld += s->limited && history_of(io) == 0;
    vv_mutex_unlock(&s->lock);
    return 0;
}

static struct vv_store_io *take_allowed_locked(struct slow_store *s)
{
    for (struct vv_store_io **at = &s->held; *at; at = &(*at)->next) {
        struct vv_store_io *io = *at;
        bool fails = s->limited && s->alone && history_of(io) == 0;
        if (!s->allowed[history_of(io)] && !fails)
            continue;
        *at = io->next;
        io->status = fails ? -ENOSPC : 0;
        s->nheld -= s->limited && history_of(io) == 0;
        return io;
    }
    return NULL;
}

static int slow_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                     int64_t timeout_ns)
{
    struct slow_store *s = slow_of(store);
    uint64_t until = timeout_ns < 0 ? VV_NEVER_NS : vv_now_ns() + (uint64_t)timeout_ns;
    int n = 0, rc = 0;
    T_CHECK(max > 0);
    vv_mutex_lock(&s->lock);
    while (!(ret_done[0] = take_allowed_locked(s)) && !s->kicked && rc == 0)
        rc = timeout_ns == 0 ? -ETIMEDOUT : vv_cond_wait_until(&s->cond, &s->lock, until);
    if (ret_done[0])
        n = 1;
    s->kicked = false;
    vv_mutex_unlock(&s->lock);
    return n > 0 ? n : rc;
}

static void slow_kick(struct vv_store *store)
{
    struct slow_store *s = slow_of(store);
    vv_mutex_lock(&s->lock);
    s->kicked = true;
    vv_cond_broadcast(&s->cond);
    vv_mutex_unlock(&s->lock);
}

static void slow_alone(struct vv_store *store)
{
    struct slow_store *s = slow_of(store);
    vv_mutex_lock(&s->lock);
    T_CHECK(s->allowed[1]); /* before that its requests are under way */
    s->alone = true;
    vv_mutex_unlock(&s->lock);
}

static void slow_allow(struct slow_store *s, unsigned history)
{
    vv_mutex_lock(&s->lock);
    s->allowed[history] = true;
    vv_cond_broadcast(&s->cond);
    vv_mutex_unlock(&s->lock);
}

static void slow_close(struct vv_store *store)
{
    (void)store;
}

static const struct vv_store_ops slow_ops = {.name = "slow",
                                             .close = slow_close,
                                             .submit = slow_submit,
                                             .poll = slow_poll,
                                             .kick = slow_kick,
                                             .alone = slow_alone};

static void slow_init(struct slow_store *s)
{
    *s = (struct slow_store){.base.ops = &slow_ops};
    vv_mutex_init(&s->lock, "slow store", VV_RANK_AIO);
    vv_cond_init(&s->cond);
}

static void slow_fini(struct slow_store *s)
{
    vv_cond_fini(&s->cond);
    vv_mutex_fini(&s->lock);
}

/* ---- an engine ---- */

static struct vv_engine *engine_new(struct slow_store *store)
{
    struct vv_engine *e = NULL;
    char err[256] = "";
    struct vv_engine_cfg cfg = {.page_bytes = PAGE,
                                .host_cache_bytes = 64 * PAGE,
                                .disk = VV_TIER_FILES,
                                .policy = VV_POLICY_NEXT,
                                .check = true};
    if (store)
        cfg.write_store = cfg.read_store = &store->base;
    int rc = vv_engine_open(&cfg, err, sizeof(err), &e);
    if (rc)
        t_note("%s", err);
    T_OK(rc);
    return e;
}

static void put(struct vv_engine *e, uint32_t hist, uint64_t version)
{
    static char buf[2 * PAGE];
    const struct vv_engine_piece piece = {buf, sizeof(buf), VV_MEM_HOST};
    const struct vv_engine_app app = {.pieces = &piece, .npieces = 1};
    T_OK(vv_engine_put(e, hist, version, sizeof(buf), 0, &app, VV_NEVER_NS));
}

static uint64_t generation_of(struct vv_engine *e, uint32_t hist, uint64_t version)
{
    struct vv_object_info info;
    T_OK(vv_engine_lookup(e, hist, version, &info));
    return info.generation;
}

/* ---- the cases ---- */

/* Between the lookup of a version and its restore, it is discarded and written again: the caller's
 * data for the old one, above all its regions, does not fit the new one. */
static void written_again(void)
{
    static char buf[2 * PAGE];
    const struct vv_engine_piece piece = {buf, sizeof(buf), VV_MEM_HOST};
    const struct vv_engine_app app = {.pieces = &piece, .npieces = 1};
    const struct vv_core_hist_cfg cfg = {.level = VV_CORE_CACHED};
    struct vv_engine *e = engine_new(NULL);
    uint32_t hist, distance;

    T_OK(vv_engine_history_new(e, &cfg, NULL, 1, &hist));
    put(e, hist, 1);
    uint64_t before = generation_of(e, hist, 1);
    T_OK(vv_engine_get(e, hist, 1, before, &app, VV_NEVER_NS, &distance));
    T_OK(vv_engine_discard(e, hist, 1));
    put(e, hist, 1);
    uint64_t after = generation_of(e, hist, 1);
    T_CHECK(after != before);
    T_ERR(vv_engine_get(e, hist, 1, before, &app, VV_NEVER_NS, &distance), -ESTALE);
    T_OK(vv_engine_get(e, hist, 1, after, &app, VV_NEVER_NS, &distance));
    vv_engine_history_drop(e, hist);
    vv_engine_close(e);
}

struct closing {
    struct vv_engine *e;
    uint32_t hist;
    atomic_bool over;
};

static void *close_history(void *arg)
{
    struct closing *c = arg;
    vv_engine_history_drop(c->e, c->hist);
    atomic_store(&c->over, true);
    return NULL;
}

/* Closing waits for requests in flight of its own history, and for no others. */
static void others_keep_busy(void)
{
    const struct vv_core_hist_cfg cfg = {.level = VV_CORE_DURABLE};
    static struct slow_store store;
    struct closing c = {0};
    uint32_t hist[HISTORIES];
    pthread_t thread;
    bool waits = false;

    slow_init(&store);
    c.e = engine_new(&store);
    for (unsigned i = 0; i < HISTORIES; i++) {
        T_OK(vv_engine_history_new(c.e, &cfg, files_of(i), 1, &hist[i]));
        put(c.e, hist[i], 1);
    }
    c.hist = hist[0];
    T_OK(vv_thread_start(&thread, close_history, &c));
    while (!waits) { /* until it has released the lock */
        usleep(1000);
        vvi_engine_lock(c.e);
        waits = c.e->hist[c.hist].draining;
        T_CHECK(c.e->hist[hist[0]].inflight > 0 && c.e->hist[hist[1]].inflight > 0);
        vvi_engine_unlock(c.e);
    }
    slow_allow(&store, 0);
    for (int ms = 0; ms < LIMIT_MS && !atomic_load(&c.over); ms++)
        usleep(1000);
    T_CHECK(atomic_load(&c.over));
    T_OK(pthread_join(thread, NULL));
    slow_allow(&store, 1);
    vv_engine_history_drop(c.e, hist[1]);
    vv_engine_close(c.e);
    slow_fini(&store);
}

/* A store holds a write until there is room. It is notified when all else has ended: then no room
 * comes. */
static void nothing_makes_room(void)
{
    const struct vv_core_hist_cfg cfg = {.level = VV_CORE_DURABLE};
    static struct slow_store store;
    uint32_t hist[HISTORIES];

    slow_init(&store);
    store.limited = true;
    store.base.held = &store.nheld;
    struct vv_engine *e = engine_new(&store);
    for (unsigned i = HISTORIES; i-- > 0;) {
        T_OK(vv_engine_history_new(e, &cfg, files_of(i), 1, &hist[i]));
        put(e, hist[i], 1);
    }
    T_ERR(vv_engine_wait(e, hist[0], 1, VV_CORE_DURABLE, vv_now_ns() + 50 * VV_NS_PER_MS),
          -ETIMEDOUT);
    slow_allow(&store, 1);
    T_OK(vv_engine_wait(e, hist[1], 1, VV_CORE_DURABLE, VV_NEVER_NS));
    T_ERR(vv_engine_wait(e, hist[0], 1, VV_CORE_DURABLE, vv_now_ns() + LIMIT_MS * VV_NS_PER_MS),
          -ENOSPC);
    slow_allow(&store, 0);
    for (unsigned i = 0; i < HISTORIES; i++)
        vv_engine_history_drop(e, hist[i]);
    vv_engine_close(e);
    slow_fini(&store);
}

int main(void)
{
    T_RUN(nothing_makes_room);
    T_RUN(written_again);
    T_RUN(others_keep_busy);
    return t_done();
}
