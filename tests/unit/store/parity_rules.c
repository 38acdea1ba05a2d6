/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of parity for one version: members of a set, the messages between them and their disks
 * as plain tables, and events in random order. A version that was reported as safe must be safe at
 * every moment. */
#include <stdlib.h>

#include "store/parity/parity_rules.h"
#include "t.h"

enum { MOST = 5, QUEUE = 4096, KEPT = 64 };

enum kind { HAVE, GONE, MADE, FAILED, AGAIN };

struct message {
    enum kind kind;
    struct vv_parity_file file;
    uint64_t value, total;
};

struct member {
    struct vv_parity_version v;
    uint64_t file[KEPT]; /* generations on disk, rising */
    int files;
    uint64_t kept[KEPT], kept_for[KEPT]; /* parity on disk: layout, generation of the own file */
    int parities;
    uint64_t busy_sum, reported; /* generation that was reported as safe */
    bool job;
};

struct set {
    uint32_t n, k;
    struct member m[MOST];
    struct message queue[MOST][MOST][QUEUE]; /* from, to */
    int head[MOST][MOST], tail[MOST][MOST];
    uint64_t generation, run;
};

static struct set set;

static uint32_t next(uint32_t below)
{
    static uint64_t state;
    if (state == 0)
        state = t_seed() | 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % below;
}

static void send_to_all(uint32_t from, struct message m)
{
    for (uint32_t to = 0; to < set.n; to++)
        if (to != from) {
            T_CHECK(set.tail[from][to] < QUEUE);
            set.queue[from][to][set.tail[from][to]++] = m;
        }
}

static bool on_disk(const struct member *m, uint64_t generation)
{
    for (int i = 0; i < m->files; i++)
        if (m->file[i] == generation)
            return true;
    return false;
}

static bool keeps(const struct member *m, uint64_t sum)
{
    for (int i = 0; i < m->parities; i++)
        if (m->kept[i] == sum)
            return true;
    return false;
}

static void remove_file(uint32_t i, uint64_t generation)
{
    struct member *m = &set.m[i];
    int n = 0;
    for (int j = 0; j < m->files; j++)
        if (m->file[j] != generation)
            m->file[n++] = m->file[j];
    m->files = n;
    n = 0;
    for (int j = 0; j < m->parities; j++)
        if (m->kept_for[j] != generation) {
            m->kept[n] = m->kept[j];
            m->kept_for[n++] = m->kept_for[j];
        }
    m->parities = n;
    send_to_all(i, (struct message){.kind = GONE, .value = generation});
}

static void carry_out(uint32_t i, unsigned orders)
{
    struct member *m = &set.m[i];
    if (orders & VV_PARITY_CANCEL)
        m->job = false;
    if (orders & VV_PARITY_TELL_MADE)
        send_to_all(
            i, (struct message){.kind = MADE, .value = m->v.sum, .total = vv_parity_total(&m->v)});
    if (orders & VV_PARITY_TELL_FAILED)
        send_to_all(i, (struct message){.kind = FAILED, .value = m->v.sum});
    if (orders & VV_PARITY_TELL_AGAIN)
        send_to_all(i, (struct message){.kind = AGAIN, .value = m->v.sum});
    if ((orders & VV_PARITY_REPORT) && vv_parity_is_safe(&m->v)) {
        uint64_t own = m->v.file[i].generation;
        for (uint32_t j = 0; j < set.n; j++)
            T_CHECK(keeps(&set.m[j], m->v.sum) || !on_disk(&set.m[j], m->v.file[j].generation));
        m->reported = own;
        /* The engine removes what this generation replaces. */
        while (m->file[0] < own) {
            uint64_t old = m->file[0];
            remove_file(i, old);
            carry_out(i, vv_parity_gone(&m->v, i, old));
        }
    }
    if (orders & VV_PARITY_DROP_OLD) {
        int n = 0;
        for (int j = 0; j < m->parities; j++)
            if (m->kept[j] == m->v.sum || m->kept_for[j] != m->v.file[i].generation) {
                m->kept[n] = m->kept[j];
                m->kept_for[n++] = m->kept_for[j];
            }
        m->parities = n;
    }
}

static void commit(uint32_t i)
{
    struct member *m = &set.m[i];
    struct vv_parity_file f = {
        .generation = ++set.generation, .run_id = set.run, .bytes = 4096, .rank = i};
    m->file[m->files++] = f.generation;
    carry_out(i, vv_parity_have(&m->v, i, &f));
    send_to_all(i, (struct message){.kind = HAVE, .file = f});
}

static void deliver(uint32_t from, uint32_t to)
{
    struct member *m = &set.m[to];
    if (set.head[from][to] == set.tail[from][to])
        return;
    struct message q = set.queue[from][to][set.head[from][to]++];
    unsigned orders = q.kind == HAVE     ? vv_parity_have(&m->v, from, &q.file)
                      : q.kind == GONE   ? vv_parity_gone(&m->v, from, q.value)
                      : q.kind == MADE   ? vv_parity_made(&m->v, from, q.value, q.total)
                      : q.kind == FAILED ? vv_parity_failed(&m->v, from, q.value, -EIO)
                                         : vv_parity_again(&m->v, q.value);
    carry_out(to, orders);
}

static void work(uint32_t i, bool good)
{
    struct member *m = &set.m[i];
    if (m->job) {
        m->job = false;
        if (good && !keeps(m, m->v.sum)) {
            m->kept[m->parities] = m->v.sum;
            m->kept_for[m->parities++] = m->v.file[i].generation;
        }
        carry_out(i, vv_parity_done(&m->v, good ? 0 : -EIO));
    } else if (m->v.state == VV_PARITY_DUE) {
        vv_parity_begin(&m->v);
        m->job = true;
    }
}

/* A version reported as safe survives the loss of any k members: the files of one layout exist, with all parity. If a
 * member removes its file without a replacement, that ends for all members, as requested. */
static void nothing_is_lost(bool discards)
{
    for (uint32_t i = 0; i < set.n; i++) {
        struct member *m = &set.m[i];
        if (m->reported == 0 || discards || !on_disk(m, m->reported))
            continue;
        bool found = false;
        /* The files are those of a layout of which some member keeps parity; only complete parity counts. */
        for (int j = 0; j < m->parities && !found; j++) {
            found = m->kept_for[j] >= m->reported; /* that file, or one that replaces it */
            for (uint32_t o = 0; o < set.n && found; o++)
                found = keeps(&set.m[o], m->kept[j]);
        }
        T_CHECK(found);
    }
}

static void quiet(void)
{
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < set.n; i++) {
            more = more || set.m[i].job || set.m[i].v.state == VV_PARITY_DUE;
            work(i, true);
            for (uint32_t j = 0; j < set.n; j++) {
                more = more || set.head[i][j] < set.tail[i][j];
                deliver(i, j);
            }
        }
    }
}

static void one_set(bool discards, bool failures)
{
    static const uint32_t ranks[MOST] = {3, 5, 8, 9, 11};
    memset(&set, 0, sizeof(set));
    set.n = 2 + next(MOST - 1);
    set.k = 1 + next(set.n - 1);
    set.run = 1;
    for (uint32_t i = 0; i < set.n; i++)
        vv_parity_init(&set.m[i].v, 7, set.n, set.k, i, ranks);
    int commits = 6;
    for (int step = 0; step < 400; step++) {
        uint32_t i = next(set.n), what = next(20);
        if (what == 0 && commits-- > 0)
            commit(i);
        else if (what == 1 && discards && set.m[i].files > 0) {
            uint64_t last = set.m[i].file[set.m[i].files - 1];
            remove_file(i, last);
            carry_out(i, vv_parity_gone(&set.m[i].v, i, last));
        } else if (what < 5)
            work(i, !failures || next(3) > 0);
        else if (what == 5)
            carry_out(i, vv_parity_again(&set.m[i].v, 0));
        else
            deliver(i, next(set.n));
        nothing_is_lost(discards);
    }
    /* In the end every member writes, failed members are asked again, and all are safe. */
    set.run = 2;
    for (uint32_t i = 0; i < set.n; i++)
        commit(i);
    quiet();
    for (uint32_t i = 0; i < set.n; i++)
        carry_out(i, vv_parity_again(&set.m[i].v, 0));
    quiet();
    for (uint32_t i = 0; i < set.n; i++) {
        T_EQ(set.m[i].v.state, VV_PARITY_SAFE);
        T_EQ(set.m[i].reported, set.m[i].file[set.m[i].files - 1]);
        T_EQ(set.m[i].files, 1);
        T_EQ(set.m[i].parities, 1);
    }
    nothing_is_lost(false);
}

static void random_sets(void)
{
    for (int i = t_long() ? 20000 : 1000; i > 0; i--)
        one_set(i % 4 == 1, i % 2 == 0);
}

static void other_runs_are_not_mixed(void)
{
    static const uint32_t ranks[2] = {0, 1};
    struct vv_parity_version v;
    struct vv_parity_file a = {.generation = 5, .run_id = 1, .bytes = 8192}, b = a, c = a;
    vv_parity_init(&v, 1, 2, 1, 0, ranks);
    b.run_id = 2;
    b.generation = 9;
    T_EQ(vv_parity_have(&v, 0, &a), 0);
    T_EQ(vv_parity_have(&v, 1, &b), 0);
    T_EQ(v.state, VV_PARITY_LONE);
    T_EQ(vv_parity_have(&v, 0, &b), VV_PARITY_START);
    vv_parity_begin(&v);
    T_EQ(vv_parity_have(&v, 1, &c), 0); /* older than the known one */
    c.generation = 12;
    c.run_id = 2;
    T_EQ(vv_parity_have(&v, 1, &c), VV_PARITY_CANCEL | VV_PARITY_START);
    T_EQ(v.state, VV_PARITY_DUE);
    T_EQ(vv_parity_gone(&v, 1, 12), 0);
    T_EQ(v.state, VV_PARITY_LONE);
}

/* A member replaces its file and later removes the replacement, which the other member has skipped:
 * the layout exists again, but its parity may be gone by then, on both members. */
static void a_layout_that_comes_again_is_looked_at(void)
{
    static const uint32_t ranks[2] = {0, 1};
    struct vv_parity_version v;
    struct vv_parity_file a = {.generation = 5, .run_id = 1, .bytes = 8192}, b = a;
    vv_parity_init(&v, 1, 2, 1, 0, ranks);
    T_EQ(vv_parity_have(&v, 0, &a), 0);
    T_EQ(vv_parity_have(&v, 1, &a), VV_PARITY_START);
    uint64_t sum = v.sum, total = vv_parity_total(&v);
    T_EQ(vv_parity_made(&v, 1, sum, total), 0);
    vv_parity_begin(&v);
    T_EQ(vv_parity_done(&v, -EIO), VV_PARITY_TELL_FAILED | VV_PARITY_REPORT);
    b.generation = 6;
    b.run_id = 2;
    T_EQ(vv_parity_have(&v, 0, &b), 0);
    T_EQ(vv_parity_gone(&v, 0, 6), 0);
    T_EQ(vv_parity_have(&v, 0, &a), VV_PARITY_START);
    T_EQ(v.sum, sum);
    vv_parity_begin(&v);
    T_EQ(vv_parity_done(&v, 0), VV_PARITY_TELL_MADE);
    T_EQ(v.state, VV_PARITY_MADE);
    T_EQ(vv_parity_made(&v, 1, sum, vv_parity_total(&v)), VV_PARITY_REPORT | VV_PARITY_DROP_OLD);
    /* The same with our own parity. */
    T_EQ(vv_parity_have(&v, 0, &b), 0);
    T_EQ(vv_parity_gone(&v, 0, 6), 0);
    T_EQ(vv_parity_have(&v, 0, &a), VV_PARITY_START);
    T_EQ(v.state, VV_PARITY_DUE);
}

/* ---- sets ---- */

static void sets_of(uint32_t count, const uint32_t *domain, uint32_t size, uint32_t k, int want)
{
    uint32_t set_of[64], work[65], sets, members[64] = {0};
    int rc = vv_parity_sets(count, domain, size, k, work, set_of, &sets);
    T_ERR(rc, want);
    if (rc < 0)
        return;
    for (uint32_t i = 0; i < count; i++) {
        T_CHECK(set_of[i] < sets);
        members[set_of[i]]++;
        for (uint32_t j = 0; j < i; j++)
            T_CHECK(set_of[i] != set_of[j] || domain[i] != domain[j]);
    }
    for (uint32_t s = 0; s < sets; s++) {
        T_CHECK(members[s] >= k + 1);
        T_CHECK(members[s] <= size + size - 1);
    }
}

static void no_set_has_two_of_one_domain(void)
{
    uint32_t domain[64];
    for (uint32_t nodes = 2; nodes <= 8; nodes++)
        for (uint32_t each = 1; each <= 8; each++) {
            for (uint32_t i = 0; i < nodes * each; i++)
                domain[i] = i / each;
            sets_of(nodes * each, domain, 8, 1, 0);
            sets_of(nodes * each, domain, 4, 2, nodes >= 3 ? 0 : -EINVAL);
            for (uint32_t i = 0; i < nodes * each; i++)
                domain[i] = i % nodes;
            sets_of(nodes * each, domain, 3, 1, 0);
        }
    static const uint32_t uneven[7] = {0, 0, 0, 1, 2, 2, 1}, lopsided[5] = {0, 0, 0, 1, 2};
    sets_of(7, uneven, 8, 1, 0);
    sets_of(7, uneven, 8, 2, -EINVAL);
    sets_of(5, lopsided, 8, 1, -EINVAL);
}

int main(void)
{
    T_RUN(random_sets);
    T_RUN(other_runs_are_not_mixed);
    T_RUN(a_layout_that_comes_again_is_looked_at);
    T_RUN(no_set_has_two_of_one_domain);
    return t_done();
}
