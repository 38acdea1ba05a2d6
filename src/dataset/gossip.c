/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Membership of a running node. The state machine (member.h) is behind one lock, and three sources drive it: messages
 * and evidence on the net's I/O thread, time on a clock thread, and calls. After each step, still under the lock,
 * the net gets new members, the epoch and the messages to send; none of these calls waits. A second thread calls
 * `changed`, so that a slow callback does not stop the clock.
 *
 * Small jobs keep connections to all members, larger ones to the next few in the order of numbers. So one member
 * notices at once when a process ends, and notifies all others.
 *
 * A member's address may be a name, and looking it up may take seconds. The clock thread does that without the lock;
 * numeric addresses are set at once.
 */
#include "dataset/gossip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"

enum { KEEP_ALL = 64, KEEP_NEXT = 4 };

/* The state of a member that was last given to the net. */
struct peer {
    uint64_t id, addr; /* addr: its hash */
    uint32_t life;     /* in each life the name may belong to another machine */
    unsigned flags;
    bool set;
};

struct vv_gossip {
    struct vv_gossip_opts opts; /* immutable once started */
    struct vv_net *net;         /* immutable once started */
    pthread_t clock_thread, notify_thread;
    struct vv_mutex lock; /* rank GOSSIP */
    /* Synchronization: lock. */
    struct vv_cond clock, notify;
    bool started, stopping, again; /* again: the clock thread has to run before due_ns */
    uint64_t due_ns;               /* when the clock thread wakes up */
    struct vv_member *member;
    uint64_t version, notified_version; /* given to the net; to `changed` */
    struct vv_member_row *rows;         /* of `version` */
    struct peer *peers;                 /* in the same order */
    size_t nr, room;
};

int vv_gossip_new(const struct vv_gossip_opts *opts, struct vv_gossip **ret_gossip)
{
    struct vv_gossip *g = calloc(1, sizeof(*g));

    if (!g)
        return -ENOMEM;
    g->opts = *opts;
    vv_mutex_init(&g->lock, "gossip", VV_RANK_GOSSIP);
    vv_cond_init(&g->clock);
    vv_cond_init(&g->notify);
    *ret_gossip = g;
    return 0;
}

/* ---- telling the net ---- */

static int take_rows_locked(struct vv_gossip *g)
{
    size_t nr = vv_member_rows(g->member, NULL, 0), at = 0;
    struct vv_member_row *rows;
    struct peer *peers;

    if (nr > g->room) {
        size_t room = 2 * nr;
        rows = realloc(g->rows, room * sizeof(*rows));
        g->rows = rows ? rows : g->rows;
        peers = realloc(g->peers, room * sizeof(*peers));
        g->peers = peers ? peers : g->peers;
        if (!rows || !peers)
            return -ENOMEM;
        g->room = room;
    }
    vv_member_rows(g->member, g->rows, nr);
    /* Records of forgotten members stay: the new list is the old one with insertions. */
    for (size_t i = 0; i < nr; i++) {
        if (at < g->nr && g->peers[at].id == g->rows[i].info.id) {
            at++;
            continue;
        }
        memmove(g->peers + at + 1, g->peers + at, (g->nr - at) * sizeof(*g->peers));
        g->peers[at++] = (struct peer){.id = g->rows[i].info.id};
        g->nr++;
    }
    vv_assert(g->nr == nr && at == nr);
    return 0;
}

/* Chooses the members to keep connections to: all that are up, or the next few of them. */
static void choose_flags_locked(struct vv_gossip *g, unsigned *ret_wanted)
{
    size_t self = 0, up = 0;
    unsigned kept = 0;

    for (size_t i = 0; i < g->nr; i++) {
        ret_wanted[i] = 0;
        up += g->rows[i].state <= VV_MEMBER_SUSPECT;
        if (g->rows[i].info.id == g->opts.member.self.id)
            self = i;
    }
    for (size_t k = 1; k < g->nr; k++) {
        size_t i = (self + k) % g->nr;
        if (g->rows[i].state <= VV_MEMBER_SUSPECT && (up <= KEEP_ALL || kept < KEEP_NEXT)) {
            ret_wanted[i] = VV_NET_KEEP;
            kept++;
        }
    }
}

/* For an unusable address this fails: the member is not heard, and so becomes dead. */
static void set_peer(struct vv_gossip *g, const struct vv_member_row *row, unsigned flags)
{
    int rc = vv_net_peer_set(g->net, row->info.id, row->info.addr, flags);

    if (rc && rc != -ESHUTDOWN)
        vv_log(VV_LOG_WARNING, "member %s at %s cannot be reached: %s", row->info.name,
               row->info.addr, vv_strerror(rc));
}

/* Gives the net new members and addresses. `names`: looks up addresses that are names, without the lock; false: leaves
 * them to the clock thread. */
static void set_peers_locked(struct vv_gossip *g, bool names)
{
    unsigned *wanted = malloc((g->nr + 1) * sizeof(*wanted));

    if (!wanted)
        return; /* the next change tries again */
    choose_flags_locked(g, wanted);
    for (size_t i = 0; i < g->nr; i++) {
        struct vv_member_row row = g->rows[i];
        struct peer *p = &g->peers[i];
        bool numeric = vv_net_addr_is_numeric(row.info.addr);
        uint64_t addr = vv_hash64(row.info.addr, strlen(row.info.addr));
        uint64_t version = g->version;
        if (row.info.id == g->opts.member.self.id ||
            (p->set && p->life == row.life && p->addr == addr && p->flags == wanted[i]))
            continue;
        if (!numeric && !names) {
            g->again = true;
            vv_cond_signal(&g->clock);
            continue;
        }
        *p = (struct peer){
            .id = p->id, .addr = addr, .life = row.life, .flags = wanted[i], .set = true};
        if (numeric) {
            set_peer(g, &row, wanted[i]);
            continue;
        }
        vv_mutex_unlock(&g->lock);
        set_peer(g, &row, wanted[i]);
        vv_mutex_lock(&g->lock);
        if (g->version != version)
            break; /* the list has changed: the next round continues */
    }
    free(wanted);
}

/* After each step of the state machine. */
static void pump_locked(struct vv_gossip *g, bool names)
{
    struct vv_member_out out;

    if (vv_member_version(g->member) != g->version && take_rows_locked(g) == 0) {
        g->version = vv_member_version(g->member);
        vv_net_set_epoch(g->net, vv_member_epoch(g->member));
        set_peers_locked(g, false);
        vv_cond_signal(&g->notify);
    }
    if (names)
        set_peers_locked(g, true);
    while (vv_member_next_out(g->member, &out))
        (void)vv_net_send(g->net, out.to, VV_GOSSIP_TYPE, out.msg, out.bytes);
    if (vv_member_due_ns(g->member) < g->due_ns)
        vv_cond_signal(&g->clock);
}

/* ---- threads ---- */

static void *clock_main(void *arg)
{
    struct vv_gossip *g = arg;

    vv_mutex_lock(&g->lock);
    while (!g->stopping) {
        uint64_t now = vv_now_ns(), due = vv_member_due_ns(g->member);
        bool again = g->again;
        g->again = false;
        if (now >= due)
            vv_member_tick(g->member, now);
        if (now >= due || again) {
            pump_locked(g, again);
        } else {
            g->due_ns = due;
            (void)vv_cond_wait_until(&g->clock, &g->lock, due);
            g->due_ns = 0;
        }
    }
    vv_mutex_unlock(&g->lock);
    return NULL;
}

static void *notify_main(void *arg)
{
    struct vv_gossip *g = arg;

    vv_mutex_lock(&g->lock);
    while (!g->stopping) {
        if (g->notified_version == g->version) {
            vv_cond_wait(&g->notify, &g->lock);
            continue;
        }
        g->notified_version = g->version;
        vv_mutex_unlock(&g->lock);
        if (g->opts.changed)
            g->opts.changed(g->opts.user);
        vv_mutex_lock(&g->lock);
    }
    vv_mutex_unlock(&g->lock);
    return NULL;
}

/* Returns false if they were stopped before, or never started. */
static bool stop_threads(struct vv_gossip *g, bool leave)
{
    bool running;

    vv_mutex_lock(&g->lock);
    running = g->started && !g->stopping;
    if (running && leave) {
        vv_member_leave(g->member, vv_now_ns());
        pump_locked(g, false);
    }
    g->stopping = true;
    vv_cond_broadcast(&g->clock);
    vv_cond_broadcast(&g->notify);
    vv_mutex_unlock(&g->lock);
    return running;
}

int vv_gossip_start(struct vv_gossip *g, struct vv_net *net, const char *addr)
{
    struct vv_member_opts *o = &g->opts.member;
    size_t n;
    int rc;

    addr = addr ? addr : vv_net_addr(net);
    n = strlen(addr);
    if (n > VV_MEMBER_ADDR_MAX)
        return -EINVAL;
    vv_mutex_lock(&g->lock);
    memcpy(o->self.addr, addr, n + 1);
    rc = vv_member_new(o, vv_now_ns(), &g->member);
    if (rc == 0) {
        g->net = net;
        g->started = true;
        pump_locked(g, false);
    }
    vv_mutex_unlock(&g->lock);
    if (rc)
        return rc;
    rc = vv_thread_start(&g->clock_thread, clock_main, g);
    if (rc == 0) {
        rc = vv_thread_start(&g->notify_thread, notify_main, g);
        if (rc == 0)
            return 0;
        stop_threads(g, false);
        pthread_join(g->clock_thread, NULL);
        return rc;
    }
    stop_threads(g, false);
    return rc;
}

void vv_gossip_stop(struct vv_gossip *g, bool leave)
{
    if (!stop_threads(g, leave))
        return;
    pthread_join(g->clock_thread, NULL);
    pthread_join(g->notify_thread, NULL);
}

void vv_gossip_free(struct vv_gossip *g)
{
    if (!g)
        return;
    vv_gossip_stop(g, false);
    vv_member_free(g->member);
    free(g->rows);
    free(g->peers);
    vv_cond_fini(&g->notify);
    vv_cond_fini(&g->clock);
    vv_mutex_fini(&g->lock);
    free(g);
}

/* ---- messages and evidence ---- */

/* False: not running; then the lock is not held. */
static bool enter(struct vv_gossip *g)
{
    vv_mutex_lock(&g->lock);
    if (g->started && !g->stopping)
        return true;
    vv_mutex_unlock(&g->lock);
    return false;
}

static void done(struct vv_gossip *g)
{
    pump_locked(g, false);
    vv_mutex_unlock(&g->lock);
}

int vv_gossip_add(struct vv_gossip *g, const struct vv_member_info *info)
{
    int rc;

    if (!enter(g))
        return -ESHUTDOWN;
    rc = vv_member_add(g->member, vv_now_ns(), info);
    done(g);
    return rc;
}

int vv_gossip_forget(struct vv_gossip *g, uint64_t id)
{
    int rc;

    if (!enter(g))
        return -ESHUTDOWN;
    rc = vv_member_forget(g->member, vv_now_ns(), id);
    done(g);
    return rc;
}

void vv_gossip_message(struct vv_gossip *g, const struct vv_net_msg *m)
{
    if (!enter(g))
        return;
    (void)vv_member_receive(g->member, vv_now_ns(), m->body, m->body_bytes);
    done(g);
}

void vv_gossip_peer(struct vv_gossip *g, uint64_t peer, enum vv_net_change change)
{
    enum vv_member_evidence what;

    switch (change) {
    case VV_NET_LOST:
    case VV_NET_BYE: /* a member that leaves announces it itself, by a message */
        what = VV_MEMBER_BROKEN;
        break;
    case VV_NET_REFUSED:
        what = VV_MEMBER_ENDED;
        break;
    case VV_NET_UNREACHABLE:
        what = VV_MEMBER_SILENT;
        break;
    default:
        return;
    }
    if (!enter(g))
        return;
    vv_member_evidence(g->member, vv_now_ns(), peer, what);
    done(g);
}

void vv_gossip_epoch(struct vv_gossip *g, uint64_t from)
{
    if (!enter(g))
        return;
    vv_member_differs(g->member, vv_now_ns(), from);
    done(g);
}

void vv_gossip_silent(struct vv_gossip *g, uint64_t peer)
{
    if (!enter(g))
        return;
    vv_member_evidence(g->member, vv_now_ns(), peer, VV_MEMBER_SILENT);
    done(g);
}

/* ---- looking ---- */

int vv_gossip_view(struct vv_gossip *g, struct vv_gossip_view **ret_view)
{
    struct vv_gossip_view *v;

    vv_mutex_lock(&g->lock);
    v = malloc(sizeof(*v) + g->nr * sizeof(v->rows[0]));
    if (v) {
        v->epoch = g->member ? vv_member_epoch(g->member) : 0;
        v->fenced = g->member && vv_member_fenced(g->member);
        v->nr = g->nr;
        if (g->nr)
            memcpy(v->rows, g->rows, g->nr * sizeof(v->rows[0]));
    }
    vv_mutex_unlock(&g->lock);
    if (!v)
        return -ENOMEM;
    *ret_view = v;
    return 0;
}

bool vv_gossip_fenced(struct vv_gossip *g)
{
    bool fenced;

    vv_mutex_lock(&g->lock);
    fenced = g->member && vv_member_fenced(g->member);
    vv_mutex_unlock(&g->lock);
    return fenced;
}
