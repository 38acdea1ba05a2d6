/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Membership: which member is pinged when, and what silence means.
 *
 * Each period a member pings the next one in the order of numbers, so that every member is pinged in every period, and
 * a random one, so that detection does not depend on a single neighbour. A ping that is not answered within ping_ns is
 * sent through `indirect` others as well. If it is not answered by the end of the period, the target becomes suspect
 * for all. A suspect has suspect_ns to refute that; each member counts from when it heard of the suspicion. If one
 * member does not answer, others beyond the same broken link may not answer either: for each failed probe, four more
 * members are pinged in the next period.
 *
 * So the longest time from freezing to being DEAD everywhere is
 *   period (until the next ping) + period (until the probe fails) + suspect_ns + propagation of the news:
 * 2 * 300 + 1200 ms and a little, with the defaults.
 */
#include <string.h>

#include "base/clock.h"
#include "dataset/member_private.h"

enum { PIGGYBACK_MAX = 16, MORE_MAX = 48 };

/* Adds changed records to a message; if there are many, from a random one on. */
static void piggyback(struct vv_member *m, uint64_t to)
{
    struct vvi_record *of_target = vvi_member_find(m, to);
    size_t from = vvi_member_draw(m, m->nr);
    unsigned put = 0;

    vvi_member_put(m, &m->all[m->self]);
    if (of_target && (of_target->suspect || of_target->rank != RANK_UP))
        vvi_member_put(m, of_target);
    for (size_t k = 0; k < m->nr && put < PIGGYBACK_MAX; k++) {
        struct vvi_record *r = &m->all[(from + k) % m->nr];
        if (r->sends && vvi_member_put(m, r)) {
            r->sends--;
            put++;
        }
    }
}

static void ping(struct vv_member *m, uint64_t to, uint32_t seq)
{
    vvi_member_begin(m, to, MEMBER_PING, seq, to);
    piggyback(m, to);
    vvi_member_end(m);
}

void vvi_member_probe(struct vv_member *m, uint64_t id)
{
    const struct vvi_record *r = vvi_member_find(m, id);
    struct vvi_probe *p = m->probes;

    while (p < m->probes + m->nr_probes && p->id != id)
        p++;
    if (!r || p == m->probes + VVI_PROBES)
        return;
    if (p == m->probes + m->nr_probes)
        m->nr_probes++;
    else if (p->life == r->life)
        return; /* a probe is under way */
    *p = (struct vvi_probe){.id = id,
                            .life = r->life,
                            .seq = ++m->seq,
                            .indirect_ns = m->now_ns + m->opts.ping_ns,
                            .end_ns = m->now_ns + m->opts.period_ns};
    ping(m, id, p->seq);
}

void vvi_member_acked(struct vv_member *m, uint32_t seq, uint64_t target)
{
    for (unsigned i = 0; i < m->nr_probes; i++) {
        if (m->probes[i].seq == seq && m->probes[i].id == target) {
            m->probes[i] = m->probes[--m->nr_probes];
            return;
        }
    }
    for (unsigned i = 0; i < m->nr_relays; i++) {
        struct vvi_relay r = m->relays[i];
        if (r.seq != seq || r.target != target)
            continue;
        m->relays[i] = m->relays[--m->nr_relays];
        vvi_member_begin(m, r.his, MEMBER_ACK, r.his_seq, target);
        vvi_member_end(m);
        return;
    }
}

void vvi_member_relay(struct vv_member *m, uint64_t his, uint32_t his_seq, uint64_t target)
{
    struct vvi_record *r = vvi_member_find(m, target);

    if (!r || target == m->opts.self.id || m->nr_relays == VVI_RELAYS)
        return;
    m->relays[m->nr_relays++] = (struct vvi_relay){.seq = ++m->seq,
                                                   .his = his,
                                                   .his_seq = his_seq,
                                                   .target = target,
                                                   .end_ns = m->now_ns + m->opts.period_ns};
    ping(m, target, m->seq);
}

void vvi_member_sync(struct vv_member *m, uint64_t to, bool want)
{
    size_t i = 0;

    do {
        /* The last piece requests the other table: by then the receiver has all of ours. */
        size_t from = i;
        vvi_member_begin(m, to, MEMBER_TABLE, 0, 0);
        while (i < m->nr && vvi_member_put(m, &m->all[i]))
            i++;
        if (want && i == m->nr && m->building)
            m->bytes[m->outs[m->nr_outs].at] = MEMBER_TABLE_REQ;
        vvi_member_end(m);
        if (i == from)
            return; /* no memory */
    } while (i < m->nr);
}

/* ---- time ---- */

static void ask_others(struct vv_member *m, const struct vvi_probe *p)
{
    size_t others = 0;
    unsigned asked = 0;

    for (size_t i = 0; i < m->nr; i++)
        others += i != m->self && m->all[i].rank == RANK_UP && m->all[i].info.id != p->id;
    /* Takes each remaining member with the probability that gives `indirect` in total. */
    for (size_t i = 0; i < m->nr && asked < m->opts.indirect; i++) {
        const struct vvi_record *r = &m->all[i];
        if (i == m->self || r->rank != RANK_UP || r->info.id == p->id)
            continue;
        if (vvi_member_draw(m, others--) < m->opts.indirect - asked) {
            asked++;
            vvi_member_begin(m, r->info.id, MEMBER_PING_REQ, p->seq, p->id);
            vvi_member_put(m, &m->all[m->self]);
            vvi_member_end(m);
        }
    }
}

static void look_at_probes(struct vv_member *m)
{
    for (unsigned i = 0; i < m->nr_probes;) {
        struct vvi_probe *p = &m->probes[i];
        struct vvi_record *r;
        if (!p->asked && m->now_ns >= p->indirect_ns) {
            p->asked = true;
            ask_others(m, p);
        }
        if (m->now_ns < p->end_ns) {
            i++;
            continue;
        }
        r = vvi_member_find(m, p->id);
        if (r && r->life == p->life) {
            m->failed++;
            vvi_member_suspect(m, r);
        }
        *p = m->probes[--m->nr_probes];
    }
    for (unsigned i = 0; i < m->nr_relays;) {
        if (m->now_ns >= m->relays[i].end_ns)
            m->relays[i] = m->relays[--m->nr_relays];
        else
            i++;
    }
}

/* The next member after `from` in the order of numbers with this rank; or our own. */
static size_t next_of(const struct vv_member *m, size_t from, enum vvi_member_rank rank)
{
    for (size_t k = 1; k < m->nr; k++) {
        size_t i = (from + k) % m->nr;
        if (i != m->self && m->all[i].rank == rank)
            return i;
    }
    return m->self;
}

static void begin_period(struct vv_member *m)
{
    size_t next = next_of(m, m->self, RANK_UP);
    size_t drawn = next_of(m, vvi_member_draw(m, m->nr), RANK_UP);

    if (next != m->self)
        vvi_member_probe(m, m->all[next].info.id);
    if (drawn != m->self)
        vvi_member_probe(m, m->all[drawn].info.id);
    /* Ping members that are not suspected yet. */
    for (unsigned i = VV_MIN(4 * m->failed, MORE_MAX); i > 0; i--) {
        size_t k = vvi_member_draw(m, m->nr);
        if (k != m->self && m->all[k].rank == RANK_UP && !m->all[k].suspect)
            vvi_member_probe(m, m->all[k].info.id);
    }
    m->failed = 0;
    m->period_at_ns = m->now_ns + m->opts.period_ns;
}

static void try_dead(struct vv_member *m)
{
    size_t dead = next_of(m, vvi_member_draw(m, m->nr), RANK_DEAD);

    m->dead_probe_at_ns = m->now_ns + m->opts.dead_probe_ns;
    if (dead != m->self)
        ping(m, m->all[dead].info.id, ++m->seq);
}

void vv_member_tick(struct vv_member *m, uint64_t now_ns)
{
    vvi_member_at(m, now_ns);
    if (m->left)
        return;
    look_at_probes(m);
    for (size_t i = 0; i < m->nr; i++) {
        struct vvi_record *r = &m->all[i];
        if (r->rank == RANK_UP && r->suspect && m->now_ns - r->since_ns >= m->opts.suspect_ns)
            vvi_member_set_rank(m, r, RANK_DEAD);
    }
    if (m->now_ns >= m->period_at_ns)
        begin_period(m);
    if (m->now_ns >= m->dead_probe_at_ns)
        try_dead(m);
    vvi_member_settle(m);
}

uint64_t vv_member_due_ns(const struct vv_member *m)
{
    uint64_t due = VV_MIN(m->period_at_ns, m->dead_probe_at_ns);

    if (m->left)
        return VV_NEVER_NS;
    for (unsigned i = 0; i < m->nr_probes; i++) {
        const struct vvi_probe *p = &m->probes[i];
        due = VV_MIN(due, p->asked ? p->end_ns : p->indirect_ns);
    }
    for (size_t i = 0; i < m->nr; i++) {
        if (m->all[i].rank == RANK_UP && m->all[i].suspect)
            due = VV_MIN(due, m->all[i].since_ns + m->opts.suspect_ns);
    }
    return due;
}
