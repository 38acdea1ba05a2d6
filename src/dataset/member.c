/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Membership: the table, and how news changes it. member_probe.c decides when to ping which member.
 *
 * A record is (life, rank, refutation, suspect), compared in this order, and the greater one wins on every node. That
 * is the whole agreement: news may be lost, repeated, late or in any order, and tables that received the same
 * news are equal. Three rules make it work:
 *   - only a member itself raises its life or its refutation, always above all that it has heard about itself;
 *   - others only add suspicion, or a rank;
 *   - a rank ends a life for good: a member that comes back begins a new one.
 *
 * Hard cases:
 *   - A process that was frozen finds everything overdue when it continues. It heard nothing because it did not
 *     listen, so all deadlines are dropped and begin again.
 *   - A process that starts again within the tick of its clock, or after the clock was set back, uses a life that was
 *     used before. A member that hears it directly sees another address: that life has ended. The news goes to
 *     the new address, not to the old one, and the process begins a new life.
 *   - Evidence of a former life could count against the present one: a ping that it did not answer, a late message,
 *     the end of a connection. The life tells the first two apart. The end of a connection has no life, so it
 *     only makes the member suspect, which a running member refutes. This holds for a goodbye too: a member that leaves
 *     sends its life.
 */
#include "dataset/member.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "dataset/member_private.h"

enum { PIGGYBACK_MAX = 24, ALL_AT_ONCE = 64, SOME_AT_ONCE = 16, PASS_ON = 4 };

static const char *const state_names[] = {"alive", "suspect", "dead", "gone", "forgotten"};

const char *vv_member_state_name(enum vv_member_state s)
{
    return (unsigned)s < VV_ARRAY_SIZE(state_names) ? state_names[s] : "?";
}

static enum vv_member_state state_of(const struct vvi_record *r)
{
    static const enum vv_member_state by_rank[RANKS] = {
        [RANK_DEAD] = VV_MEMBER_DEAD,
        [RANK_GONE] = VV_MEMBER_GONE,
        [RANK_FORGOTTEN] = VV_MEMBER_FORGOTTEN,
    };

    if (r->rank == RANK_UP)
        return r->suspect ? VV_MEMBER_SUSPECT : VV_MEMBER_ALIVE;
    return by_rank[r->rank];
}

uint64_t vvi_member_draw(struct vv_member *m, uint64_t below)
{
    uint64_t x = m->rng += UINT64_C(0x9E3779B97F4A7C15);

    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (x ^ x >> 31) % below;
}

/* ---- the table ---- */

/* Index of the first record whose number is not smaller. */
static size_t place_of(const struct vv_member *m, uint64_t id)
{
    size_t low = 0, high = m->nr;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (m->all[mid].info.id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct vvi_record *vvi_member_find(struct vv_member *m, uint64_t id)
{
    size_t at = place_of(m, id);

    return at < m->nr && m->all[at].info.id == id ? &m->all[at] : NULL;
}

static int insert(struct vv_member *m, const struct vvi_record *r, struct vvi_record **ret_record)
{
    size_t at = place_of(m, r->info.id);

    if (m->nr >= VV_MEMBERS_MAX)
        return -ENOSPC;
    if (m->nr == m->room) {
        size_t room = VV_MAX(2 * m->room, 16);
        struct vvi_record *all = realloc(m->all, room * sizeof(*all));
        if (!all)
            return -ENOMEM;
        m->all = all;
        m->room = room;
    }
    memmove(m->all + at + 1, m->all + at, (m->nr - at) * sizeof(*m->all));
    m->all[at] = *r;
    m->nr++;
    if (m->nr > 1 && at <= m->self)
        m->self++;
    *ret_record = &m->all[at];
    return 0;
}

uint64_t vvi_member_digest(struct vv_member *m)
{
    if (m->counted == m->version && m->counted)
        return m->digest;
    m->counted = m->version;
    m->digest = m->sum = 0;
    for (size_t i = 0; i < m->nr; i++) {
        uint64_t parts[3] = {m->all[i].info.id, m->all[i].life, m->all[i].rank};
        m->digest += vv_hash64(parts, sizeof(parts));
        m->sum += 4 * (uint64_t)m->all[i].life + m->all[i].rank + 1;
    }
    return m->digest;
}

/* The sum grows with every member, and with every change of rank or life. The digest tells tables of equal sums
 * apart. */
uint64_t vv_member_epoch(const struct vv_member *m)
{
    return m->sum << 16 | (m->digest & 0xffff);
}

static unsigned log2_up(size_t n)
{
    unsigned bits = 0;

    while (n >> bits)
        bits++;
    return bits;
}

/* The record has changed: it is sent with the next messages, and if urgent, at once. */
static void changed(struct vv_member *m, struct vvi_record *r, bool urgent)
{
    r->sends = 3 * log2_up(m->nr) + 2;
    m->version++;
    m->urgent = m->urgent || urgent;
}

void vvi_member_set_rank(struct vv_member *m, struct vvi_record *r, enum vvi_member_rank rank)
{
    if (r->rank >= rank)
        return;
    if (r->rank == RANK_UP)
        r->since_ns = m->now_ns;
    r->rank = (uint8_t)rank;
    changed(m, r, true);
    m->first = true;
}

void vvi_member_suspect(struct vv_member *m, struct vvi_record *r)
{
    if (r->rank != RANK_UP || r->suspect || r == &m->all[m->self])
        return;
    r->suspect = true;
    r->since_ns = m->now_ns;
    changed(m, r, true);
}

/* ---- merging ---- */

static bool greater(const struct vvi_record *a, const struct vvi_record *b)
{
    if (a->life != b->life)
        return a->life > b->life;
    if (a->rank != b->rank)
        return a->rank > b->rank;
    if (a->refutation != b->refutation)
        return a->refutation > b->refutation;
    return a->suspect && !b->suspect;
}

/* Answers a record of this member that is greater than its own. */
static void refute(struct vv_member *m, const struct vvi_record *r)
{
    struct vvi_record *self = &m->all[m->self];

    if (m->left)
        return; /* the record is right: we are gone */
    if (r->life > self->life || r->rank != RANK_UP) {
        self->life = VV_MIN(VV_MAX(r->life, self->life), UINT32_MAX - 2) + 1;
        self->refutation = 0;
    } else {
        self->refutation = VV_MIN(r->refutation, UINT32_MAX - 2) + 1;
    }
    changed(m, self, true);
    m->first = true;
}

/* A member's address is fixed within a life. Another address, sent by the member itself, means that this life has
 * ended. But a message of a former life may come late, when the member is up in the next one. So an older life is taken
 * for a clock that was set back only if the member is not up. */
static void moved(struct vv_member *m, struct vvi_record *own, const struct vvi_record *r)
{
    if (r->rank != RANK_UP || strcmp(own->info.addr, r->info.addr) == 0 ||
        (r->life < own->life && own->rank == RANK_UP))
        return;
    memcpy(own->info.addr, r->info.addr, sizeof(own->info.addr));
    vvi_member_set_rank(m, own, RANK_GONE);
    m->version++;
}

void vvi_member_merge(struct vv_member *m, const struct vvi_record *r, bool from_self)
{
    struct vvi_record *own = vvi_member_find(m, r->info.id);
    bool urgent;

    if (own && !greater(r, own)) {
        if (from_self && own != &m->all[m->self])
            moved(m, own, r);
        return;
    }
    if (own == &m->all[m->self]) {
        refute(m, r);
        return;
    }
    if (!own) {
        struct vvi_record fresh = *r;
        fresh.since_ns = m->now_ns;
        fresh.sends = 0;
        /* News of a new member need not be urgent: tables that differ are exchanged. */
        if (insert(m, &fresh, &own) == 0)
            changed(m, own, false);
        return;
    }
    urgent =
        (r->life != own->life && own->life) || r->rank != own->rank || r->suspect != own->suspect;
    if (r->life != own->life || r->rank != own->rank || (r->suspect && !own->suspect))
        own->since_ns = m->now_ns;
    if (r->life != own->life) {
        own->info = r->info; /* fixed within a life */
        own->discounted = false;
    }
    own->life = r->life;
    own->rank = r->rank;
    own->refutation = r->refutation;
    own->suspect = r->suspect;
    changed(m, own, urgent);
}

/* ---- time, and the end of each call ---- */

void vvi_member_at(struct vv_member *m, uint64_t now_ns)
{
    uint64_t late = m->period_at_ns + 2 * m->opts.period_ns;

    now_ns = VV_MAX(now_ns, m->now_ns);
    m->now_ns = now_ns;
    if (now_ns < late)
        return;
    m->nr_probes = 0;
    m->nr_relays = 0;
    m->failed = 0;
    m->period_at_ns = now_ns;
    m->fenced_ns = now_ns; /* other members could not be heard meanwhile */
    for (size_t i = 0; i < m->nr; i++) {
        if (m->all[i].suspect || m->all[i].rank == RANK_DEAD)
            m->all[i].since_ns = now_ns;
    }
}

/* True if this node sees the smaller part of the members that may be running. A name that no node has heard (life 0) is
 * as likely a mistake as a member: if it counted, three such names would fence two members for good. */
static bool in_minority(const struct vv_member *m)
{
    size_t seen = 0, all = 0;
    bool first_seen = false;

    for (size_t i = 0; i < m->nr; i++) {
        const struct vvi_record *r = &m->all[i];
        if (r->rank >= RANK_GONE || r->life == 0 || (r->rank == RANK_DEAD && r->discounted))
            continue;
        if (all++ == 0)
            first_seen = r->rank == RANK_UP;
        seen += r->rank == RANK_UP;
    }
    return 2 * seen < all || (2 * seen == all && !first_seen);
}

/* Time while fenced does not count for forget_ns. But after fence_ns all dead members are discounted, and the nodes on
 * this side of the broken link continue. */
static void judge(struct vv_member *m)
{
    bool enough = m->fenced && m->now_ns - m->fenced_ns >= m->opts.fence_ns, fenced;

    for (size_t i = 0; i < m->nr; i++) {
        struct vvi_record *r = &m->all[i];
        if (r->rank != RANK_DEAD || r->discounted)
            continue;
        if (enough || (!m->fenced && m->now_ns - r->since_ns >= m->opts.forget_ns))
            r->discounted = true;
        else if (m->fenced)
            r->since_ns = m->now_ns;
    }
    fenced = in_minority(m);
    if (fenced != m->fenced) {
        m->version++;
        m->fenced_ns = m->now_ns;
    }
    m->fenced = fenced;
}

/* Sends the records that were sent least so far: the latest news. */
static void send_news(struct vv_member *m, uint64_t to)
{
    unsigned put = 0, most = 1;

    for (size_t i = 0; i < m->nr; i++)
        most = VV_MAX(most, m->all[i].sends);
    vvi_member_begin(m, to, MEMBER_NEWS, 0, 0);
    for (size_t i = 0; i < m->nr && put < PIGGYBACK_MAX; i++) {
        if (m->all[i].sends == most && vvi_member_put(m, &m->all[i]))
            put++;
    }
    vvi_member_end(m);
}

static bool hears(const struct vv_member *m, size_t i)
{
    return i != m->self && m->all[i].rank == RANK_UP;
}

void vvi_member_settle(struct vv_member *m)
{
    size_t there = 0, want;

    judge(m);
    (void)vvi_member_digest(m);
    if (!m->urgent)
        return;
    for (size_t i = 0; i < m->nr; i++)
        there += hears(m, i);
    want = !m->first ? PASS_ON : there <= ALL_AT_ONCE ? there : SOME_AT_ONCE;
    m->urgent = false;
    m->first = false;
    if (want >= there) {
        for (size_t i = 0; i < m->nr; i++) {
            if (hears(m, i))
                send_news(m, m->all[i].info.id);
        }
        return;
    }
    for (size_t sent = 0; sent < want;) {
        size_t i = vvi_member_draw(m, m->nr);
        if (hears(m, i)) {
            send_news(m, m->all[i].info.id);
            sent++;
        }
    }
}

/* ---- calls ---- */

static bool info_ok(const struct vv_member_info *info)
{
    return info->id && info->weight && info->name[0] &&
           memchr(info->name, '\0', sizeof(info->name)) &&
           memchr(info->addr, '\0', sizeof(info->addr));
}

static void set_defaults(struct vv_member_opts *o)
{
    o->period_ns = o->period_ns ? o->period_ns : 300 * VV_NS_PER_MS;
    o->ping_ns = o->ping_ns ? o->ping_ns : o->period_ns / 3;
    o->suspect_ns = o->suspect_ns ? o->suspect_ns : 4 * o->period_ns;
    o->dead_probe_ns = o->dead_probe_ns ? o->dead_probe_ns : 3 * o->period_ns;
    o->forget_ns = o->forget_ns ? o->forget_ns : 60 * VV_NS_PER_S;
    o->fence_ns = VV_MAX(o->fence_ns, 20 * o->period_ns);
    o->indirect = o->indirect ? o->indirect : 3;
}

int vv_member_new(const struct vv_member_opts *opts, uint64_t now_ns, struct vv_member **ret_member)
{
    struct vv_member *m;
    struct vvi_record self = {.info = opts->self, .life = VV_MAX(opts->life, 1)}, *at;
    int rc;

    if (!info_ok(&opts->self) || !opts->self.addr[0] || opts->life == UINT32_MAX)
        return -EINVAL;
    m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    m->opts = *opts;
    set_defaults(&m->opts);
    m->now_ns = now_ns;
    m->rng = opts->seed;
    m->dead_probe_at_ns = now_ns + m->opts.dead_probe_ns;
    rc = insert(m, &self, &at);
    if (rc) {
        free(m);
        return rc;
    }
    m->self = 0;
    m->version = 1;
    (void)vvi_member_digest(m);
    /* A random start, so that members started together do not all ping at the same time. */
    m->period_at_ns = now_ns + vvi_member_draw(m, m->opts.period_ns);
    *ret_member = m;
    return 0;
}

void vv_member_free(struct vv_member *m)
{
    if (!m)
        return;
    free(m->all);
    free(m->outs);
    free(m->bytes);
    free(m);
}

/* The member may have come back at another address, without contact to any node that has its record. */
static int look_elsewhere(struct vv_member *m, struct vvi_record *r,
                          const struct vv_member_info *info)
{
    if (r == &m->all[m->self] || (r->rank == RANK_UP && r->life) ||
        strcmp(r->info.addr, info->addr) == 0)
        return -EEXIST;
    memcpy(r->info.addr, info->addr, sizeof(r->info.addr));
    m->version++;
    vvi_member_sync(m, info->id, true);
    vvi_member_settle(m);
    return 0;
}

int vv_member_add(struct vv_member *m, uint64_t now_ns, const struct vv_member_info *info)
{
    struct vvi_record r = {.info = *info}, *at;
    int rc;

    if (!info_ok(info) || !info->addr[0])
        return -EINVAL;
    vvi_member_at(m, now_ns);
    at = vvi_member_find(m, info->id);
    if (at)
        return look_elsewhere(m, at, info);
    r.since_ns = m->now_ns;
    rc = insert(m, &r, &at);
    if (rc)
        return rc;
    m->version++;
    /* Ask the first few for their tables; these include the other members. */
    if (m->nr <= 4)
        vvi_member_sync(m, info->id, true);
    vvi_member_settle(m);
    return 0;
}

static void take_head(struct vv_member *m, const struct vvi_member_head *h)
{
    struct vvi_record *from = vvi_member_find(m, h->from);

    switch (h->kind) {
    case MEMBER_PING:
        vvi_member_begin(m, h->from, MEMBER_ACK, h->seq, m->opts.self.id);
        vvi_member_put(m, &m->all[m->self]);
        if (from && (from->rank != RANK_UP || from->suspect))
            vvi_member_put(m, from); /* so that the member can refute it */
        vvi_member_end(m);
        break;
    case MEMBER_ACK:
        vvi_member_acked(m, h->seq, h->target);
        break;
    case MEMBER_PING_REQ:
        vvi_member_relay(m, h->from, h->seq, h->target);
        break;
    case MEMBER_TABLE_REQ:
        vvi_member_sync(m, h->from, false);
        break;
    default:
        break;
    }
}

int vv_member_receive(struct vv_member *m, uint64_t now_ns, const void *msg, size_t bytes)
{
    const uint8_t *p = msg;
    struct vvi_member_head h;
    struct vvi_record r;
    int rc = vvi_member_head(p, bytes, &h);

    for (size_t pass = 0; pass < 2 && rc == 0; pass++) {
        size_t at = VVI_MEMBER_HEAD;
        for (unsigned i = 0; i < h.nr && rc == 0; i++) {
            rc = vvi_member_get(p, bytes, &at, &r);
            if (rc == 0 && pass == 1)
                vvi_member_merge(m, &r, r.info.id == h.from);
        }
        if (rc == 0 && at != bytes)
            rc = -EBADMSG;
        if (rc == 0 && pass == 0)
            vvi_member_at(m, now_ns);
    }
    if (rc)
        return rc;
    if (h.from != m->opts.self.id && !m->left) {
        take_head(m, &h);
        if ((h.kind == MEMBER_PING || h.kind == MEMBER_ACK) && h.digest != vvi_member_digest(m) &&
            m->now_ns - m->synced_ns >= m->opts.period_ns / 2) {
            m->synced_ns = m->now_ns;
            vvi_member_sync(m, h.from, true);
        }
    }
    vvi_member_settle(m);
    return 0;
}

void vv_member_evidence(struct vv_member *m, uint64_t now_ns, uint64_t id,
                        enum vv_member_evidence what)
{
    struct vvi_record *r;

    vvi_member_at(m, now_ns);
    r = vvi_member_find(m, id);
    if (!r || r == &m->all[m->self] || m->left)
        return;
    if (what == VV_MEMBER_ENDED) {
        vvi_member_set_rank(m, r, RANK_GONE);
    } else if (r->rank == RANK_UP) {
        if (what == VV_MEMBER_BROKEN)
            vvi_member_suspect(m, r);
        vvi_member_probe(m, id);
    }
    vvi_member_settle(m);
}

void vv_member_differs(struct vv_member *m, uint64_t now_ns, uint64_t id)
{
    vvi_member_at(m, now_ns);
    if (m->left || !vvi_member_find(m, id) || m->now_ns - m->synced_ns < m->opts.period_ns / 8)
        return;
    m->synced_ns = m->now_ns;
    vvi_member_sync(m, id, true);
}

void vv_member_leave(struct vv_member *m, uint64_t now_ns)
{
    vvi_member_at(m, now_ns);
    m->left = true;
    vvi_member_set_rank(m, &m->all[m->self], RANK_GONE);
    vvi_member_settle(m);
}

int vv_member_forget(struct vv_member *m, uint64_t now_ns, uint64_t id)
{
    struct vvi_record *r;

    vvi_member_at(m, now_ns);
    r = vvi_member_find(m, id);
    if (!r)
        return -ENOENT;
    if (r == &m->all[m->self])
        return -EINVAL;
    if (r->rank == RANK_FORGOTTEN)
        return -EALREADY;
    if (r->rank == RANK_UP && r->life)
        return -EBUSY;
    vvi_member_set_rank(m, r, RANK_FORGOTTEN);
    vvi_member_settle(m);
    return 0;
}

bool vv_member_next_out(struct vv_member *m, struct vv_member_out *ret_out)
{
    struct vvi_out *o;

    if (m->next_out == m->nr_outs) {
        m->next_out = m->nr_outs = 0;
        m->nr_bytes = 0;
        return false;
    }
    o = &m->outs[m->next_out++];
    *ret_out = (struct vv_member_out){.to = o->to, .msg = m->bytes + o->at, .bytes = o->bytes};
    return true;
}

/* ---- looking ---- */

bool vv_member_fenced(const struct vv_member *m)
{
    return m->fenced;
}

uint64_t vv_member_version(const struct vv_member *m)
{
    return m->version;
}

static struct vv_member_row row_of(const struct vvi_record *r)
{
    return (struct vv_member_row){
        .info = r->info, .state = state_of(r), .life = r->life, .refutation = r->refutation};
}

size_t vv_member_rows(const struct vv_member *m, struct vv_member_row *ret_rows, size_t max)
{
    for (size_t i = 0; i < VV_MIN(m->nr, max); i++)
        ret_rows[i] = row_of(&m->all[i]);
    return m->nr;
}

int vv_member_row(const struct vv_member *m, uint64_t id, struct vv_member_row *ret_row)
{
    size_t at = place_of(m, id);

    if (at == m->nr || m->all[at].info.id != id)
        return -ENOENT;
    *ret_row = row_of(&m->all[at]);
    return 0;
}
