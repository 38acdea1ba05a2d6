/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Membership in virtual time: any number of members, messages that are late, lost or cut off, members that freeze, die,
 * leave and come back, each time at another address. Assertions on time are on virtual time.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/util.h"
#include "dataset/member.h"
#include "t.h"

#define MS        VV_NS_PER_MS
#define NODES_MAX 64
#define FENCE_NS  (20 * 300 * MS) /* the minimum, with the default period */

struct message {
    uint64_t at_ns, order; /* order: of sending, for equal times */
    unsigned to;
    size_t bytes;
    uint8_t *msg;
};

static struct world {
    struct t_rng rng;
    uint64_t now;
    unsigned nr;
    struct vv_member *m[NODES_MAX];
    bool frozen[NODES_MAX], dead[NODES_MAX];
    unsigned side[NODES_MAX];     /* messages pass within a side only */
    unsigned port[NODES_MAX + 4]; /* of its address: another one after each start */
    unsigned loss_pct;            /* of messages */
    uint64_t latency, jitter;
    uint64_t epoch[NODES_MAX]; /* the last seen: it never goes back */
    struct message *heap;
    size_t nr_messages, room;
    uint64_t sent;
} w;

static struct vv_member_info info_of(unsigned i)
{
    struct vv_member_info info = {.id = 100 + 7 * (uint64_t)i, .weight = 1};

    snprintf(info.name, sizeof(info.name), "node%u", i);
    snprintf(info.addr, sizeof(info.addr), "10.0.0.%u:%u", i + 1, 7000 + w.port[i]);
    return info;
}

static unsigned node_of(uint64_t id)
{
    return (unsigned)((id - 100) / 7);
}

/* ---- the post ---- */

static bool before(const struct message *a, const struct message *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void swap(size_t a, size_t b)
{
    struct message l = w.heap[a];

    w.heap[a] = w.heap[b];
    w.heap[b] = l;
}

static void push(struct message l)
{
    if (w.nr_messages == w.room) {
        w.room = w.room ? 2 * w.room : 1024;
        w.heap = realloc(w.heap, w.room * sizeof(*w.heap));
        T_CHECK(w.heap);
    }
    w.heap[w.nr_messages++] = l;
    for (size_t i = w.nr_messages - 1; i && before(&w.heap[i], &w.heap[(i - 1) / 2]);
         i = (i - 1) / 2)
        swap(i, (i - 1) / 2);
}

static struct message pop(void)
{
    struct message first = w.heap[0];

    w.heap[0] = w.heap[--w.nr_messages];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < w.nr_messages; k++)
            least = before(&w.heap[k], &w.heap[least]) ? k : least;
        if (least == i)
            return first;
        swap(i, least);
        i = least;
    }
}

/* False if the address that `from` has is unknown or of a former life: then a message is lost. */
static bool has_address(unsigned from, unsigned to)
{
    struct vv_member_info info = info_of(to);
    struct vv_member_row row;

    return vv_member_row(w.m[from], info.id, &row) == 0 && strcmp(row.info.addr, info.addr) == 0;
}

static void collect(unsigned from)
{
    struct vv_member_out out;
    uint64_t epoch = vv_member_epoch(w.m[from]);

    T_CHECK(epoch >= w.epoch[from]);
    w.epoch[from] = epoch;
    while (vv_member_next_out(w.m[from], &out)) {
        unsigned to = node_of(out.to);
        T_CHECK(to != from && out.bytes <= VV_MEMBER_MSG_MAX);
        w.sent++;
        if (to >= w.nr)
            continue; /* a name without a member */
        if (w.side[from] != w.side[to] || w.dead[to] || !has_address(from, to) ||
            t_rng_below(&w.rng, 100) < w.loss_pct)
            continue;
        struct message l = {.at_ns = w.now + w.latency + t_rng_below(&w.rng, w.jitter + 1),
                            .order = w.sent,
                            .to = to,
                            .bytes = out.bytes,
                            .msg = malloc(out.bytes)};
        memcpy(l.msg, out.msg, out.bytes);
        push(l);
    }
}

/* Runs until nothing is due before `until`. */
static void run(uint64_t until)
{
    for (;;) {
        uint64_t due = until;
        unsigned who = w.nr;
        for (unsigned i = 0; i < w.nr; i++) {
            if (w.dead[i] || w.frozen[i])
                continue;
            uint64_t at = VV_MAX(vv_member_due_ns(w.m[i]), w.now);
            if (at < due) {
                due = at;
                who = i;
            }
        }
        if (w.nr_messages && w.heap[0].at_ns <= due && w.heap[0].at_ns < until) {
            struct message l = pop();
            w.now = VV_MAX(w.now, l.at_ns);
            if (w.frozen[l.to] && !w.dead[l.to]) {
                /* Its kernel keeps the message. */
                l.at_ns = w.now + 50 * MS;
                push(l);
                continue;
            }
            if (!w.dead[l.to]) {
                T_OK(vv_member_receive(w.m[l.to], w.now, l.msg, l.bytes));
                collect(l.to);
            }
            free(l.msg);
            continue;
        }
        if (who == w.nr)
            break;
        w.now = due;
        vv_member_tick(w.m[who], w.now);
        collect(who);
    }
    w.now = until;
}

static uint64_t next_fence; /* of members that are made from now on; 0: the minimum */

static void start(unsigned i, uint32_t life)
{
    struct vv_member_opts opts = {.life = life, .seed = t_rng_u64(&w.rng), .fence_ns = next_fence};

    w.port[i]++;
    opts.self = info_of(i);
    T_OK(vv_member_new(&opts, w.now, &w.m[i]));
    w.dead[i] = w.frozen[i] = false;
    w.epoch[i] = 0;
}

static void introduce(unsigned i, unsigned to)
{
    struct vv_member_info info = info_of(to);
    int rc = i == to ? -EEXIST : vv_member_add(w.m[i], w.now, &info);

    T_CHECK(rc == 0 || rc == -EEXIST);
    collect(i);
}

/* n members; each has the first on its list, or all. */
static void make_world(unsigned n, uint64_t seed, bool list)
{
    w = (struct world){.rng = {seed}, .nr = n, .now = 1000 * MS, .latency = MS / 10, .jitter = MS};
    for (unsigned i = 0; i < n; i++)
        start(i, 5);
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < (list ? n : 1); k++)
            introduce(i, k);
    }
}

static void end_world(void)
{
    for (unsigned i = 0; i < w.nr; i++)
        vv_member_free(w.m[i]);
    while (w.nr_messages)
        free(pop().msg);
    free(w.heap);
}

static bool runs(unsigned i)
{
    return !w.dead[i] && !w.frozen[i];
}

/* True if all that run have `who` in this state. */
static bool all_say(unsigned who, enum vv_member_state state)
{
    struct vv_member_row row;

    for (unsigned i = 0; i < w.nr; i++) {
        if (i != who && runs(i) &&
            (vv_member_row(w.m[i], info_of(who).id, &row) != 0 || row.state != state))
            return false;
    }
    return true;
}

/* True if all that run have each other as ALIVE, and equal epochs. */
static bool agree(void)
{
    uint64_t epoch = 0;

    for (unsigned i = 0; i < w.nr; i++) {
        if (!runs(i))
            continue;
        if (!all_say(i, VV_MEMBER_ALIVE) || (epoch && vv_member_epoch(w.m[i]) != epoch))
            return false;
        epoch = vv_member_epoch(w.m[i]);
    }
    return true;
}

/* Runs until `holds` returns true, checked every millisecond; returns how long it took; fails after `limit`. */
static uint64_t until(bool (*holds)(void), uint64_t limit)
{
    uint64_t begin = w.now;

    while (!holds()) {
        T_CHECK(w.now - begin < limit);
        run(w.now + MS);
    }
    return w.now - begin;
}

static unsigned victim;

static bool victim_dead(void)
{
    return all_say(victim, VV_MEMBER_DEAD);
}

static bool victim_gone(void)
{
    return all_say(victim, VV_MEMBER_GONE);
}

static const unsigned sizes[] = {4, 5, 8, 16, 33, 64};

#define EACH_SIZE(n, seed)                                                                  \
    for (size_t s_ = 0; s_ < (t_sanitized() ? 4 : VV_ARRAY_SIZE(sizes)); s_++)              \
        for (uint64_t n = sizes[s_], seed = t_seed() * 1000, end_ = seed + t_cases(2, 100); \
             seed < end_; seed++)

/* ---- cases ---- */

static void test_start(void)
{
    uint64_t worst = 0, took;

    EACH_SIZE(n, seed)
    {
        make_world((unsigned)n, seed, seed % 2);
        took = until(agree, 10000 * MS);
        worst = VV_MAX(worst, took);
        /* And it stays so: no member is suspected while nothing happens. */
        uint64_t epoch = vv_member_epoch(w.m[0]), version = vv_member_version(w.m[0]);
        run(w.now + 5000 * MS);
        T_CHECK(agree());
        T_EQ(vv_member_epoch(w.m[0]), epoch);
        T_EQ(vv_member_version(w.m[0]), version);
        T_CHECK(!vv_member_fenced(w.m[n - 1]));
        end_world();
    }
    t_note("all had each other's records after at most %llu ms", (unsigned long long)(worst / MS));
}

static void test_frozen(void)
{
    uint64_t worst = 0, took;

    EACH_SIZE(n, seed)
    {
        struct vv_member_row row;
        uint64_t epoch;
        make_world((unsigned)n, seed, true);
        until(agree, 10000 * MS);
        victim = (unsigned)t_rng_below(&w.rng, n);
        run(w.now + t_rng_below(&w.rng, 1000 * MS));
        epoch = vv_member_epoch(w.m[(victim + 1) % n]);
        w.frozen[victim] = true;
        took = until(victim_dead, 3000 * MS);
        worst = VV_MAX(worst, took);
        T_CHECK(vv_member_epoch(w.m[(victim + 1) % n]) > epoch);
        for (unsigned i = 0; i < n; i++)
            T_CHECK(i == victim || !vv_member_fenced(w.m[i]));
        run(w.now + t_rng_below(&w.rng, 10000 * MS));
        /* It continues: it comes back in a new life, and makes no other member dead. */
        w.frozen[victim] = false;
        until(agree, 5000 * MS);
        T_OK(vv_member_row(w.m[(victim + 1) % n], info_of(victim).id, &row));
        T_CHECK(row.life > 5);
        for (unsigned i = 0; i < n; i++) {
            T_OK(vv_member_row(w.m[victim], info_of(i).id, &row));
            T_CHECK(i == victim || row.life == 5);
        }
        end_world();
    }
    t_note("a frozen member was dead for all after at most %llu ms",
           (unsigned long long)(worst / MS));
}

/* Its process is gone, and the members that were connected to it get that as evidence. */
static void test_killed(void)
{
    uint64_t worst = 0, took;

    EACH_SIZE(n, seed)
    {
        unsigned witness;
        make_world((unsigned)n, seed, false);
        until(agree, 10000 * MS);
        victim = (unsigned)t_rng_below(&w.rng, n);
        witness = (unsigned)((victim + 1 + t_rng_below(&w.rng, n - 1)) % n);
        w.dead[victim] = true;
        vv_member_evidence(w.m[witness], w.now, info_of(victim).id, VV_MEMBER_BROKEN);
        collect(witness);
        vv_member_evidence(w.m[witness], w.now, info_of(victim).id, VV_MEMBER_ENDED);
        collect(witness);
        took = until(victim_gone, 50 * MS);
        worst = VV_MAX(worst, took);
        /* It starts again with the same clock: a life that was used before. */
        vv_member_free(w.m[victim]);
        start(victim, 5);
        introduce(victim, (victim + 1) % (unsigned)n);
        until(agree, 5000 * MS);
        struct vv_member_row row;
        T_OK(vv_member_row(w.m[witness], info_of(victim).id, &row));
        T_CHECK(row.life > 5);
        end_world();
    }
    t_note("a killed member was gone for all after at most %llu us",
           (unsigned long long)(worst / VV_NS_PER_US));
}

/* Wrong evidence: the connection broke, the process did not end. */
static void test_broken(void)
{
    EACH_SIZE(n, seed)
    {
        uint64_t epoch;
        make_world((unsigned)n, seed, false);
        until(agree, 10000 * MS);
        epoch = vv_member_epoch(w.m[0]);
        vv_member_evidence(w.m[0], w.now, info_of(1).id, VV_MEMBER_BROKEN);
        collect(0);
        T_CHECK(!agree());
        until(agree, 100 * MS);
        T_EQ(vv_member_epoch(w.m[0]), epoch);
        run(w.now + 3000 * MS);
        T_CHECK(agree() && vv_member_epoch(w.m[0]) == epoch);
        end_world();
    }
}

static unsigned cut;

static bool sides_settled(void)
{
    unsigned low = cut, high = w.nr - cut;
    bool low_fenced = low < high; /* the first has the smallest number */

    for (unsigned i = 0; i < w.nr; i++) {
        if (vv_member_fenced(w.m[i]) != (i < cut ? low_fenced : !low_fenced))
            return false;
    }
    return true;
}

static bool none_fenced(void)
{
    for (unsigned i = 0; i < w.nr; i++) {
        if (!w.dead[i] && vv_member_fenced(w.m[i]))
            return false;
    }
    return true;
}

static bool healed(void)
{
    return none_fenced() && agree();
}

static void test_partition(void)
{
    uint64_t worst = 0, took;

    EACH_SIZE(n, seed)
    {
        make_world((unsigned)n, seed, true);
        until(agree, 10000 * MS);
        cut = 1 + (unsigned)t_rng_below(&w.rng, n - 1);
        for (unsigned i = 0; i < n; i++)
            w.side[i] = i >= cut;
        took = until(sides_settled, 3000 * MS);
        worst = VV_MAX(worst, took);
        run(w.now + t_rng_below(&w.rng, FENCE_NS / 2));
        T_CHECK(sides_settled());
        /* The fence has an end; a repaired link heals the job before it and after it. */
        if (seed % 2) {
            until(none_fenced, FENCE_NS + 1000 * MS);
            run(w.now + t_rng_below(&w.rng, 120000 * MS));
            T_CHECK(none_fenced());
        }
        for (unsigned i = 0; i < n; i++)
            w.side[i] = 0;
        until(healed, 60000 * MS);
        end_world();
    }
    t_note("the smaller part was fenced after at most %llu ms", (unsigned long long)(worst / MS));
}

/* All but one end, one after the other: the remaining ones are not fenced, because the others are known to be
 * gone. */
static void test_one_after_the_other(void)
{
    make_world(4, t_seed(), true);
    until(agree, 10000 * MS);
    for (victim = 0; victim < 3; victim++) {
        w.dead[victim] = true;
        vv_member_evidence(w.m[3], w.now, info_of(victim).id, VV_MEMBER_ENDED);
        collect(3);
        until(victim_gone, 50 * MS);
        for (unsigned i = victim + 1; i < 4; i++)
            T_CHECK(!vv_member_fenced(w.m[i]));
    }
    end_world();
    /* Frozen ones may be running: with two of four dead, the rest is the larger part only after the first was
     * forgotten. */
    make_world(4, t_seed() + 1, true);
    until(agree, 10000 * MS);
    victim = 0;
    w.frozen[0] = true;
    until(victim_dead, 3000 * MS);
    run(w.now + 61000 * MS);
    victim = 1;
    w.frozen[1] = true;
    until(victim_dead, 3000 * MS);
    run(w.now + 1000 * MS);
    T_CHECK(!vv_member_fenced(w.m[2]) && !vv_member_fenced(w.m[3]));
    end_world();
}

/* ---- members that continue while others are silent ---- */

static void restart(unsigned i, uint32_t life)
{
    vv_member_free(w.m[i]);
    start(i, life);
    for (unsigned k = 0; k < w.nr; k++)
        introduce(i, k);
}

/* One of two dies without a message: the other may be fenced, but not for long. */
static void test_two_silent(void)
{
    for (unsigned dies = 0; dies < 2; dies++) {
        make_world(2, t_seed() + dies, true);
        until(agree, 10000 * MS);
        victim = dies;
        w.dead[dies] = true;
        until(victim_dead, 3000 * MS);
        /* The one with the smaller number continues at once. */
        T_EQ(vv_member_fenced(w.m[1 - dies]), dies == 0);
        run(w.now + FENCE_NS - 400 * MS);
        T_EQ(vv_member_fenced(w.m[1 - dies]), dies == 0);
        until(none_fenced, 1000 * MS);
        run(w.now + 300000 * MS);
        T_CHECK(none_fenced());
        /* It comes back, and both are up again. */
        restart(dies, 6);
        until(healed, 5000 * MS);
        end_world();
    }
}

/* Time during which a member did not run itself is no evidence against others. */
static void test_fence_frozen(void)
{
    make_world(2, t_seed(), true);
    until(agree, 10000 * MS);
    victim = 0;
    w.frozen[0] = true;
    until(victim_dead, 3000 * MS);
    T_CHECK(vv_member_fenced(w.m[1]));
    w.frozen[1] = true;
    run(w.now + 10 * FENCE_NS);
    w.frozen[1] = false;
    run(w.now + FENCE_NS / 2);
    T_CHECK(vv_member_fenced(w.m[1]));
    w.frozen[0] = false;
    until(healed, 5000 * MS);
    end_world();
}

/* One file, and the state of each member's copy, by the rules of the daemons: an edit is reported to the members that
 * the writer sees as up; a copy is valid for `revalidate` after a check; a fenced member leaves reading to the shared
 * file system. */
#define REVALIDATE (9000 * MS)

static struct {
    unsigned now;                 /* the file's generation */
    unsigned has[NODES_MAX];      /* of each member's copy ... */
    uint64_t looked[NODES_MAX];   /* ... and when it was checked; 0: it has none */
    uint64_t replaced[NODES_MAX]; /* when each generation ended */
} file;

static bool sees(unsigned i, unsigned k)
{
    struct vv_member_row row;

    return vv_member_row(w.m[i], info_of(k).id, &row) == 0 && row.state <= VV_MEMBER_SUSPECT;
}

static void edit(unsigned by)
{
    file.replaced[file.now++] = w.now;
    for (unsigned i = 0; i < w.nr; i++) {
        if (i == by || (sees(by, i) && w.side[by] == w.side[i] && runs(i)))
            file.looked[i] = 0;
    }
}

/* Returns the generation that a program there gets, and checks that it was current within `revalidate`. */
static unsigned read_file(unsigned at)
{
    if (vv_member_fenced(w.m[at]))
        return file.now;
    if (!file.looked[at] || w.now - file.looked[at] >= REVALIDATE) {
        file.has[at] = file.now;
        file.looked[at] = w.now;
    }
    T_CHECK(file.has[at] == file.now || w.now - file.replaced[file.has[at]] < REVALIDATE);
    return file.has[at];
}

static void read_everywhere(void)
{
    for (unsigned i = 0; i < w.nr; i++)
        (void)read_file(i);
}

static void split(unsigned low, unsigned n, uint64_t seed)
{
    unsigned first = (unsigned)(seed % 2) * low,
             last = seed % 2 ? n : low; /* the side that edits */

    next_fence = REVALIDATE;
    make_world(n, seed, true);
    memset(&file, 0, sizeof(file));
    until(agree, 10000 * MS);
    read_everywhere();
    for (unsigned i = 0; i < n; i++)
        w.side[i] = i >= low;
    edit(first);
    read_everywhere();
    cut = low;
    until(sides_settled, 3000 * MS);
    edit(last - 1);
    while (!none_fenced()) {
        read_everywhere();
        run(w.now + 50 * MS);
    }
    /* The part that was fenced has no old content left: all checks from before the cut have expired. */
    for (unsigned i = 0; i < n; i++)
        T_EQ(read_file(i), file.now);
    for (unsigned step = 0; step < 60; step++) {
        if (step % 10 == 0)
            edit((unsigned)t_rng_below(&w.rng, n));
        read_everywhere();
        run(w.now + 500 * MS);
    }
    for (unsigned i = 0; i < n; i++)
        w.side[i] = 0;
    until(healed, 60000 * MS);
    run(w.now + REVALIDATE);
    for (unsigned i = 0; i < n; i++)
        T_EQ(read_file(i), file.now);
    end_world();
    next_fence = 0;
}

static void test_edit_while_split(void)
{
    for (uint64_t seed = t_seed(), end = seed + t_cases(4, 100); seed < end; seed++) {
        split(2, 4, seed);
        split(2, 3, seed);
        split(1, 3, seed);
        split(1, 2, seed);
    }
}

/* Adds names without members, as a mistyped join does. */
static void mistype(unsigned at, unsigned nr)
{
    for (unsigned i = 0; i < nr; i++) {
        struct vv_member_info info = info_of(NODES_MAX + i);
        T_OK(vv_member_add(w.m[at], w.now, &info));
        collect(at);
    }
}

static bool typos_are(enum vv_member_state state)
{
    struct vv_member_row row;

    for (unsigned i = 0; i < w.nr; i++) {
        for (unsigned k = 0; k < 3 && runs(i); k++) {
            if (vv_member_row(w.m[i], info_of(NODES_MAX + k).id, &row) != 0 || row.state != state)
                return false;
        }
    }
    return true;
}

static bool typos_dead(void)
{
    return typos_are(VV_MEMBER_DEAD);
}

static bool typos_forgotten(void)
{
    return typos_are(VV_MEMBER_FORGOTTEN);
}

static void test_mistyped(void)
{
    for (unsigned n = 1; n <= 3; n++) {
        uint64_t epoch, end;
        make_world(n, t_seed() + n, true);
        until(agree, 10000 * MS);
        mistype(n - 1, 3);
        for (end = w.now + 30000 * MS; w.now < end;) {
            T_CHECK(none_fenced());
            run(w.now + 50 * MS);
        }
        T_CHECK(typos_dead());
        /* One member forgets them: then all do, and it stays so. */
        epoch = vv_member_epoch(w.m[0]);
        for (unsigned k = 0; k < 3; k++) {
            T_OK(vv_member_forget(w.m[0], w.now, info_of(NODES_MAX + k).id));
            T_ERR(vv_member_forget(w.m[0], w.now, info_of(NODES_MAX + k).id), -EALREADY);
            collect(0);
        }
        until(typos_forgotten, 1000 * MS);
        T_CHECK(vv_member_epoch(w.m[0]) > epoch);
        run(w.now + 100000 * MS);
        T_CHECK(typos_forgotten() && agree());
        end_world();
    }
}

static bool victim_forgotten(void)
{
    return all_say(victim, VV_MEMBER_FORGOTTEN);
}

/* One of three dies, is forgotten, and comes back: in a new life, in the same one by its clock, or in an earlier one.
 * */
static void test_forget(void)
{
    for (uint32_t life = 4; life <= 6; life++) {
        make_world(3, t_seed() + life, true);
        until(agree, 10000 * MS);
        victim = 1;
        T_ERR(vv_member_forget(w.m[0], w.now, info_of(0).id), -EINVAL);
        T_ERR(vv_member_forget(w.m[0], w.now, info_of(1).id), -EBUSY);
        T_ERR(vv_member_forget(w.m[0], w.now, 3), -ENOENT);
        w.dead[1] = true;
        until(victim_dead, 3000 * MS);
        T_OK(vv_member_forget(w.m[2], w.now, info_of(1).id));
        collect(2);
        until(victim_forgotten, 50 * MS);
        /* It does not count: one of the two that are left may die, and the first continues at once. */
        run(w.now + 10000 * MS);
        T_CHECK(victim_forgotten() && none_fenced());
        restart(1, life);
        until(healed, 5000 * MS);
        run(w.now + 10000 * MS);
        T_CHECK(healed());
        end_world();
    }
}

/* A member that was cut off and forgotten still runs: when the link is repaired it is back, and a member that has not
 * heard of any of it agrees with the others. */
static void test_forgotten_runs(void)
{
    for (unsigned who = 0; who < 4; who++) {
        make_world(4, t_seed() + who, true);
        until(agree, 10000 * MS);
        victim = who;
        w.side[who] = 1;
        run(w.now + 5000 * MS);
        T_OK(vv_member_forget(w.m[(who + 1) % 4], w.now, info_of(who).id));
        collect((who + 1) % 4);
        until(victim_forgotten, 1000 * MS);
        run(w.now + 20000 * MS);
        T_CHECK(victim_forgotten() && none_fenced());
        w.side[who] = 0;
        until(healed, 10000 * MS);
        end_world();
    }
}

static void test_leave(void)
{
    make_world(6, t_seed(), true);
    until(agree, 10000 * MS);
    victim = 2;
    vv_member_leave(w.m[2], w.now);
    collect(2);
    until(victim_gone, 50 * MS);
    run(w.now + 5000 * MS);
    T_CHECK(victim_gone());
    w.dead[2] = true;
    T_CHECK(agree());
    end_world();
}

/* A copy of a message from one member to another. */
static struct message message_of(unsigned from, unsigned to)
{
    struct message l = {.to = to};
    struct vv_member_out out;

    vv_member_differs(w.m[from], w.now, info_of(to).id);
    while (vv_member_next_out(w.m[from], &out)) {
        if (l.msg || out.to != info_of(to).id)
            continue;
        l.bytes = out.bytes;
        l.msg = malloc(out.bytes);
        memcpy(l.msg, out.msg, out.bytes);
    }
    T_CHECK(l.msg);
    return l;
}

/* A message of a former life arrives when the next one has begun. */
static void test_late_message(void)
{
    EACH_SIZE(n, seed)
    {
        struct vv_member_row row;
        struct message l;
        uint64_t epoch;
        make_world((unsigned)n, seed, true);
        until(agree, 10000 * MS);
        run(w.now + 1000 * MS);
        victim = 1;
        l = message_of(victim, 0);
        w.dead[victim] = true;
        vv_member_evidence(w.m[2], w.now, info_of(victim).id, VV_MEMBER_ENDED);
        collect(2);
        until(victim_gone, 50 * MS);
        restart(victim, seed % 2 ? 5 : 6);
        until(agree, 5000 * MS);
        run(w.now + 1000 * MS);
        epoch = vv_member_epoch(w.m[0]);
        T_OK(vv_member_receive(w.m[0], w.now, l.msg, l.bytes));
        collect(0);
        for (unsigned step = 0; step < 50; step++) {
            T_CHECK(agree() && vv_member_epoch(w.m[0]) == epoch);
            run(w.now + 10 * MS);
        }
        T_OK(vv_member_row(w.m[0], info_of(victim).id, &row));
        T_STREQ(row.info.addr, info_of(victim).addr);
        T_EQ(row.life, 6);
        free(l.msg);
        end_world();
    }
}

/* A ping that a member did not answer while it was down does not count against its next life. */
static void test_late_suspicion(void)
{
    EACH_SIZE(n, seed)
    {
        struct vv_member_row row;
        make_world((unsigned)n, seed, true);
        until(agree, 10000 * MS);
        run(w.now + t_rng_below(&w.rng, 1000 * MS));
        victim = (unsigned)t_rng_below(&w.rng, n);
        w.dead[victim] = true;
        run(w.now +
            t_rng_below(&w.rng, 280 * MS)); /* less than a period: it is not suspected yet */
        restart(victim, 6);
        run(w.now + 2000 * MS);
        T_CHECK(agree());
        for (unsigned i = 0; i < n; i++) {
            T_OK(vv_member_row(w.m[i], info_of(victim).id, &row));
            T_CHECK(row.life == 6 && row.refutation == 0);
        }
        end_world();
    }
}

/* Bad links: false states are corrected when the links are good again. */
static void test_loss(void)
{
    for (uint64_t seed = t_seed(), end = seed + t_cases(4, 200); seed < end; seed++) {
        unsigned n = 4 + (unsigned)(seed % 13);
        make_world(n, seed, true);
        until(agree, 10000 * MS);
        w.loss_pct = 10 + (unsigned)(seed % 3) * 20;
        w.jitter = 200 * MS;
        run(w.now + 30000 * MS);
        w.loss_pct = 0;
        w.jitter = MS;
        until(healed, 60000 * MS);
        end_world();
    }
}

/* Random events, then quiet. */
static void test_anything(void)
{
    for (uint64_t seed = t_seed() + 77, end = seed + t_cases(8, 2000); seed < end; seed++) {
        unsigned n = 4 + (unsigned)(seed % 9);
        make_world(n, seed, seed % 2);
        for (unsigned step = 0; step < 40; step++) {
            unsigned i = (unsigned)t_rng_below(&w.rng, n), k = (unsigned)t_rng_below(&w.rng, n);
            switch (t_rng_below(&w.rng, 7)) {
            case 0:
                w.frozen[i] = !w.frozen[i];
                break;
            case 1:
                w.side[i] = (unsigned)t_rng_below(&w.rng, 2);
                break;
            case 2:
                w.loss_pct = (unsigned)t_rng_below(&w.rng, 60);
                break;
            case 3:
                if (runs(i) && i != k) {
                    vv_member_evidence(w.m[i], w.now, info_of(k).id,
                                       (enum vv_member_evidence)t_rng_below(&w.rng, 3));
                    collect(i);
                }
                break;
            case 4:
                if (runs(i) && vv_member_forget(w.m[i], w.now, info_of(k).id) == 0)
                    collect(i);
                break;
            case 5:
                if (!w.dead[i])
                    vv_member_free(w.m[i]);
                start(i, (uint32_t)t_rng_below(&w.rng, 10));
                introduce(i, (i + 1) % n);
                break;
            default:
                if (runs(i) && i != k) {
                    vv_member_differs(w.m[i], w.now, info_of(k).id);
                    collect(i);
                }
            }
            run(w.now + t_rng_below(&w.rng, 2000 * MS));
        }
        w.loss_pct = 0;
        for (unsigned i = 0; i < n; i++) {
            w.side[i] = 0;
            w.frozen[i] = false;
        }
        /* Two members that each see the other as gone need a third member, or an introduction. */
        for (unsigned i = 0; i < n; i++) {
            introduce(i, (i + 1) % n);
            vv_member_differs(w.m[i], w.now, info_of((i + 1) % n).id);
            collect(i);
        }
        until(healed, 120000 * MS);
        end_world();
    }
}

/* The same news in any order make the same table. */
static void test_any_order(void)
{
    struct vv_member_opts opts = {.self = info_of(60), .life = 3, .seed = 1};
    struct t_rng rng = {t_seed()};
    enum { LETTERS = 24 };
    uint8_t *msg[LETTERS];
    size_t bytes[LETTERS], nr = 0;

    /* Messages of six members with different histories. */
    make_world(6, t_seed(), true);
    until(agree, 10000 * MS);
    for (unsigned i = 0; i < 6; i++)
        w.side[i] = i;
    for (unsigned i = 0; i < 6; i++) {
        for (unsigned k = 0; k < 3; k++) {
            struct vv_member_out out;
            vv_member_evidence(w.m[i], w.now, info_of((i + k + 1) % 6).id,
                               (enum vv_member_evidence)k);
            if (!vv_member_next_out(w.m[i], &out))
                continue; /* it had that already */
            bytes[nr] = out.bytes;
            msg[nr] = malloc(out.bytes);
            memcpy(msg[nr++], out.msg, out.bytes);
            while (vv_member_next_out(w.m[i], &out))
                ;
        }
    }
    T_CHECK(nr >= 6);
    uint64_t epoch = 0;
    struct vv_member_row rows[2][8];
    for (unsigned trial = 0; trial < 50; trial++) {
        struct vv_member_out out;
        struct vv_member *m;
        for (size_t i = nr; i > 1; i--) {
            size_t k = t_rng_below(&rng, i), b = bytes[k];
            uint8_t *p = msg[k];
            msg[k] = msg[i - 1];
            msg[i - 1] = p;
            bytes[k] = bytes[i - 1];
            bytes[i - 1] = b;
        }
        T_OK(vv_member_new(&opts, 1000 * MS, &m));
        for (size_t i = 0; i < nr + 5; i++) { /* some twice */
            T_OK(vv_member_receive(m, 1000 * MS, msg[i % nr], bytes[i % nr]));
            while (vv_member_next_out(m, &out))
                ;
        }
        T_EQ(vv_member_rows(m, rows[trial > 0], 8), 7);
        T_CHECK(trial == 0 || vv_member_epoch(m) == epoch);
        for (unsigned i = 0; i < 7 && trial > 0; i++) {
            T_EQ(rows[0][i].info.id, rows[1][i].info.id);
            T_EQ(rows[0][i].state, rows[1][i].state);
            T_EQ(rows[0][i].life, rows[1][i].life);
            T_EQ(rows[0][i].refutation, rows[1][i].refutation);
            T_STREQ(rows[0][i].info.addr, rows[1][i].info.addr);
        }
        epoch = vv_member_epoch(m);
        vv_member_free(m);
    }
    for (size_t i = 0; i < nr; i++)
        free(msg[i]);
    end_world();
}

/* Messages that were changed on the way: refused without effect, or accepted; never a crash. */
static void test_mutated(void)
{
    struct t_rng rng = {t_seed() + 5};
    struct vv_member_opts opts = {.self = info_of(60), .life = 3, .seed = 1};
    struct vv_member_out out;
    struct vv_member *m;
    uint64_t refused = 0, n = t_cases(8000, 1000000);

    make_world(8, t_seed(), true);
    until(agree, 10000 * MS);
    T_OK(vv_member_new(&opts, 1000 * MS, &m));
    for (uint64_t i = 0; i < n; i++) {
        uint8_t buf[2048];
        size_t bytes;
        uint64_t version = vv_member_version(m);
        vv_member_differs(w.m[0], w.now += 1000 * MS, info_of(1).id);
        if (!vv_member_next_out(w.m[0], &out))
            continue;
        bytes = VV_MIN(out.bytes, sizeof(buf));
        memcpy(buf, out.msg, bytes);
        while (vv_member_next_out(w.m[0], &out))
            ;
        for (uint64_t k = t_rng_below(&rng, 4); k > 0; k--)
            buf[t_rng_below(&rng, bytes)] = (uint8_t)t_rng_u64(&rng);
        if (t_rng_below(&rng, 4) == 0)
            bytes = t_rng_below(&rng, bytes + 1);
        if (vv_member_receive(m, 1000 * MS, buf, bytes) != 0) {
            T_EQ(vv_member_version(m), version);
            refused++;
        }
        while (vv_member_next_out(m, &out))
            ;
    }
    T_CHECK(refused > n / 10);
    vv_member_free(m);
    end_world();
}

static void test_bad_calls(void)
{
    struct vv_member_opts opts = {.self = info_of(0), .life = 3};
    struct vv_member_info info = info_of(1);
    struct vv_member_row row;
    struct vv_member *m;

    opts.self.id = 0;
    T_ERR(vv_member_new(&opts, 0, &m), -EINVAL);
    opts.self = info_of(0);
    T_OK(vv_member_new(&opts, 0, &m));
    T_OK(vv_member_add(m, 0, &info));
    T_ERR(vv_member_add(m, 0, &info), -EEXIST);
    info.addr[0] = '\0';
    info.id = 9;
    T_ERR(vv_member_add(m, 0, &info), -EINVAL);
    for (unsigned i = 2; i < VV_MEMBERS_MAX; i++) {
        info = info_of(1);
        info.id = 100000 - i;
        T_OK(vv_member_add(m, 0, &info));
    }
    info.id = 5;
    T_ERR(vv_member_add(m, 0, &info), -ENOSPC);
    T_OK(vv_member_row(m, 100000 - 77, &row));
    T_ERR(vv_member_row(m, 3, &row), -ENOENT);
    T_STREQ(vv_member_state_name(row.state), "alive");
    vv_member_free(m);
    vv_member_free(NULL);
}

int main(void)
{
    T_RUN(test_start);
    T_RUN(test_frozen);
    T_RUN(test_killed);
    T_RUN(test_broken);
    T_RUN(test_partition);
    T_RUN(test_one_after_the_other);
    T_RUN(test_two_silent);
    T_RUN(test_fence_frozen);
    T_RUN(test_edit_while_split);
    T_RUN(test_mistyped);
    T_RUN(test_forget);
    T_RUN(test_forgotten_runs);
    T_RUN(test_leave);
    T_RUN(test_late_message);
    T_RUN(test_late_suspicion);
    T_RUN(test_loss);
    T_RUN(test_anything);
    T_RUN(test_any_order);
    T_RUN(test_mutated);
    T_RUN(test_bad_calls);
    return t_done();
}
