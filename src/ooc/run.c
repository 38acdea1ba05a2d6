/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs: rounds of a kernel until every item is done.
 *
 * A round. The current map is sent to the device. The kernel runs on the caller's stream after it, and the words in
 * which it asks for blocks are read while it runs: blocks that find a free slot are copied at once. When the kernel has
 * ended, the host knows which slots it used; the other blocks that it asked for replace some.
 *
 * Order. Copies to slots go through one stream, `moves`. Each run has a map of its own, which is sent before a round:
 * it has the blocks whose copies were submitted then, and the kernel begins after those copies. A slot whose block
 * has left is filled again when all rounds that began before have ended (slots.c).
 *
 * Maps. The slots write the map of one run, the holder. A run that changes or sends its map becomes the holder first,
 * and applies the changes that other runs have made since it last was the holder. So a run's map is written by its own
 * thread only, under the lock, and not while it is being sent: from then until the kernel behind it is seen to run, or
 * ends, the run gives out slots, but none becomes READY or leaves.
 *
 * Ahead. The blocks that a run's first round missed predict those that the next run will miss. Room for these is made
 * before the second round, whose map then contains that change. Their copies are submitted with that round, on a stream
 * of their own. They wait for its map, which would otherwise wait for them in the queue of the copy engine; so they
 * travel during the round and the beginning of the next run, whose map is the same if they have not ended by then. If a
 * kernel asks for them, `moves` waits for them.
 *
 * Time. A run's time counts as managing, except for calls that copy, for launching, and for waiting: for kernels and
 * copies, and for other runs.
 *
 * Threads. Each run has one, the caller's. `lock` is not held while blocks are read or waited for. A run without
 * progress becomes the one that may begin rounds, `alone`, until it ends: with one item at a time, and all slots free
 * for it, it makes progress or never can.
 *
 * After an error the run waits for the caller's stream and all copies to slots.
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "ckpt/face.h"
#include "ooc/ooc_private.h"

/* So many new words justify a batch of copies while a kernel runs: few at first, so that the link has work soon, and
 * twice as many each time, up to a limit, while it is busy. */
#define BATCH      16
#define BATCH_MOST 64
/* Rounds without any item done, before smaller ones are tried. */
#define FRUITLESS 2
/* Polls without a result before the thread yields: on a machine with few processors, the thread that emulates the
 * device needs one. */
#define LOOKS 64

/* Missing blocks whose neighbours are processed together. */
#define LOOK 8

/* Kinds of time in the statistics. */
enum { MANAGING, MOVING, LAUNCHING, WAITING, KINDS };

struct job {
    struct varve_blocks *b;
    struct vvi_run *r;
    varve_blocks_launch launch;
    void *arg;
    struct CUstream_st *native;
    struct vv_stream *stream;
    uint64_t left, limit;
    unsigned which;   /* todo[which] has the remaining items */
    bool all;         /* the first round: no list */
    bool alone;       /* no other run has rounds */
    bool reported;    /* the error has been recorded; ... */
    const char *what; /* ... or this text is recorded when no lock is held, ... */
    uint64_t block;   /* ... with this block, if the error concerns one */
    uint32_t rounds, fruitless;
    uint64_t since_ns, spent_ns[KINDS];
};

/* Adds the time since the last call to this kind. */
static void spent(struct job *j, int kind)
{
    uint64_t now_ns = vv_now_ns();

    j->spent_ns[kind] += now_ns - j->since_ns;
    j->since_ns = now_ns;
}

#define FAIL(j, rc, ...) \
    ((j)->reported = true, vvi_blocks_fail((j)->b, "blocks_run", rc, __VA_ARGS__))

/* ---- the map ---- */

/* Adds the range that the slots have written to that of the holder's map. */
static void changed_locked(struct varve_blocks *b)
{
    struct vvi_run *r = b->holder;

    r->from = VV_MIN(r->from, b->slots.from);
    r->to = VV_MAX(r->to, b->slots.to);
    b->slots.from = b->slots.blocks;
    b->slots.to = 0;
}

/* Writes all of a map, from the current state. */
static void make_map_locked(const struct vvi_slots *s, uint32_t *map)
{
    memset(map, 0, s->blocks * sizeof(*map));
    for (uint32_t word = 0; word < s->words; word++)
        for (uint64_t bits = s->ready[word]; bits; bits &= bits - 1) {
            uint32_t slot = 64 * word + (uint32_t)__builtin_ctzll(bits);

            map[s->held[slot]] = slot + 1;
        }
}

/* Makes the run the holder: its map gets the other runs' changes, and the slots write it from now on. */
static void hold_map_locked(struct varve_blocks *b, struct vvi_run *r)
{
    uint32_t *map = r->map, blocks = b->slots.blocks;

    if (b->holder == r)
        return;
    changed_locked(b);
    if (r->ndirty == blocks) { /* the list is full, and may be incomplete */
        make_map_locked(&b->slots, map);
        r->from = 0;
        r->to = blocks;
    } else {
        for (const struct vvi_fill *now = r->dirty, *end = now + r->ndirty; now < end; now++) {
            map[now->block] = now->slot + 1;
            r->from = VV_MIN(r->from, now->block);
            r->to = VV_MAX(r->to, now->block + 1);
        }
    }
    r->ndirty = 0;
    b->slots.map = map;
    b->holder = r;
}

/* Records a change for the other runs, which apply it when they become the holder. */
static void record_change_locked(struct varve_blocks *b, const struct vvi_run *mine,
                                 const uint32_t *gone, const struct vvi_fill *fills, uint32_t n)
{
    for (struct vvi_run *r = b->all; r; r = r->other) {
        uint32_t room = VV_MIN(n, b->slots.blocks - r->ndirty);
        struct vvi_fill *dirty = r->dirty + r->ndirty;

        if (r == mine)
            continue;
        for (uint32_t i = 0; i < room; i++)
            dirty[i] = fills ? fills[i] : (struct vvi_fill){gone[i], UINT32_MAX};
        r->ndirty += room;
    }
}

/* Marks the slots of the list READY. */
static void filled_locked(struct varve_blocks *b, struct vvi_run *r, const struct vvi_fill *fills,
                          uint32_t n)
{
    hold_map_locked(b, r);
    vvi_slots_filled(&b->slots, fills, n);
    record_change_locked(b, r, NULL, fills, n);
}

/* Sends the current map. The kernel of the next round begins after it, and after the copies to slots that were
 * submitted. */
static int send_map_locked(struct job *j)
{
    struct varve_blocks *b = j->b;
    struct vvi_run *r = j->r;
    struct vv_copy_seg seg;
    int rc;

    hold_map_locked(b, r);
    changed_locked(b);
    spent(j, MANAGING);
    rc = vv_device_event_record(b->device, r->ready, b->moves);
    if (rc == 0)
        rc = vv_device_stream_wait_event(b->device, j->stream, r->ready);
    spent(j, LAUNCHING);
    if (rc || r->from >= r->to)
        return rc;
    seg = (struct vv_copy_seg){(unsigned char *)(uintptr_t)r->view.map + r->from * sizeof(*r->map),
                               r->map + r->from, (r->to - r->from) * sizeof(*r->map)};
    rc = vv_device_copy_async(b->device, j->stream, &seg, 1);
    spent(j, MOVING);
    r->from = rc ? 0 : b->slots.blocks;
    r->to = rc ? b->slots.blocks : 0;
    if (rc == 0 && r->nlater > 0) {
        rc = vv_device_event_record(b->device, r->sent, j->stream);
        r->sends = rc == 0;
        if (rc) { /* without the event it is unknown whether the map arrived */
            r->from = 0;
            r->to = b->slots.blocks;
        }
        spent(j, LAUNCHING);
    }
    return rc;
}

/* ---- bringing blocks ---- */

static uint64_t oldest_locked(const struct varve_blocks *b)
{
    uint64_t oldest = UINT64_MAX;

    for (const struct vvi_run *r = b->active; r; r = r->next)
        oldest = VV_MIN(oldest, r->began);
    return oldest;
}

/* Adds a line of slots that a run needs. */
static void stay(uint64_t *restrict to, const uint64_t *restrict seen, const uint64_t *restrict got)
{
    for (uint32_t i = 0; i < VVI_LINE; i++)
        to[i] |= seen[i] | got[i];
}

static void stays_locked(struct varve_blocks *b, const struct vvi_run *r)
{
    for (uint32_t word = 0; word < b->slots.words; word += VVI_LINE)
        stay(b->slots.stay + word, r->seen + word, r->got + word);
}

/* Collects the slots that must stay: those that this run and the rounds under way need. */
static void prepare_evicting_locked(struct varve_blocks *b, const struct vvi_run *mine)
{
    memset(b->slots.stay, 0, b->slots.words * sizeof(*b->slots.stay));
    stays_locked(b, mine);
    for (const struct vvi_run *r = b->active; r; r = r->next)
        if (r != mine)
            stays_locked(b, r);
}

/* Evicts up to `most` blocks; their slots are free when the rounds under way have ended. */
static void evict_locked(struct varve_blocks *b, struct vvi_run *r, uint32_t most)
{
    uint32_t n;

    hold_map_locked(b, r);
    n = vvi_slots_evict(&b->slots, most, r->gone);
    record_change_locked(b, r, r->gone, NULL, n);
    vvi_slots_reclaim(&b->slots, oldest_locked(b));
}

void vvi_blocks_send_away(struct varve_blocks *b, uint32_t slot)
{
    struct vvi_run *r; /* it has no rounds, so its map is not being sent */
    bool has = vvi_blocks_run_new(b, 0, &r) == 0;

    if (!has)
        return;
    vv_mutex_lock(&b->lock);
    memset(b->slots.stay, 0xff, b->slots.words * sizeof(*b->slots.stay));
    b->slots.stay[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    evict_locked(b, r, 1);
    r->next = b->idle;
    b->idle = r;
    vv_cond_broadcast(&b->changed);
    vv_mutex_unlock(&b->lock);
}

static void ahead_filled_locked(struct varve_blocks *b, struct vvi_run *r)
{
    filled_locked(b, r, b->ahead, b->nahead);
    b->nahead = 0;
    vv_cond_broadcast(&b->changed);
}

/* Marks the blocks that were brought ahead READY if their copies have ended. */
static int ahead_ended_locked(struct job *j)
{
    struct varve_blocks *b = j->b;
    int rc;

    if (b->nahead == 0)
        return 0;
    spent(j, MANAGING);
    rc = vv_device_event_query(b->device, b->earlier[b->early_at].event);
    spent(j, WAITING);
    if (rc == -EBUSY)
        return 0;
    if (rc == 0) {
        ahead_filled_locked(b, j->r);
        return 0;
    }
    for (uint32_t i = 0; i < b->nahead; i++)
        vvi_slots_give_back(&b->slots, b->ahead[i].slot);
    b->nahead = 0;
    vv_cond_broadcast(&b->changed);
    return rc;
}

/* Makes the blocks that were brought ahead available to all rounds from now on: these begin after the copies, because
 * `moves` waits for them. The result of the copies is checked when such a round has ended. */
static int ahead_taken_locked(struct job *j)
{
    struct varve_blocks *b = j->b;
    struct vvi_early *early = &b->earlier[b->early_at];
    int rc;

    if (b->nahead == 0)
        return 0;
    spent(j, MANAGING);
    rc = vv_device_stream_wait_event(b->device, b->moves, early->event);
    spent(j, MOVING);
    if (rc)
        return rc;
    early->relied_on = true;
    ahead_filled_locked(b, j->r);
    return 0;
}

/* Keeps blocks of the list that are still being copied; marks those that are there as used. Returns how many it kept.
 * */
static uint32_t asked_again_locked(struct varve_blocks *b, struct vvi_run *r, uint32_t *list,
                                   uint32_t nr)
{
    const uint32_t *map = b->slots.map;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < nr; i++) {
        uint32_t block = list[i], slot = map[block];

        if (slot)
            vvi_slots_wanted(&b->slots, slot - 1, r->seen);
        else
            list[kept++] = block;
    }
    return kept;
}

/* Gives slots to blocks of the list that have none, as far as possible, and drops those that are there. Entries before
 * `from` stay unchanged. Returns how many have to be filled. */
static uint32_t assign_locked(struct varve_blocks *b, struct vvi_run *r, bool evict, uint32_t *list,
                              uint32_t from, uint32_t *nlist)
{
    uint32_t n = 0, kept = from, nr = *nlist;
    bool prepared = false;

    if (b->alone && b->alone != r)
        return 0; /* another round will ask for them again */
    for (uint32_t i = from; i < nr;) {
        uint32_t had = 0;

        i += vvi_slots_take(&b->slots, list + i, nr - i, r->got, r->fills, &n, list + kept, &had);
        kept += asked_again_locked(b, r, list + kept, had);
        if (i == nr)
            break;
        if (evict) {
            if (!prepared)
                prepare_evicting_locked(b, r);
            prepared = true;
            evict_locked(b, r, 1);
        }
        if (b->slots.nfree == 0)
            list[kept++] = list[i++]; /* there is no room */
    }
    *nlist = kept;
    return n;
}

static void give_back_locked(struct varve_blocks *b, struct vvi_run *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        vvi_slots_give_back(&b->slots, r->fills[i].slot);
}

/* Submits the copies of n of the fills from `first` on. The time before this call has been counted; the caller counts
 * the time of this call. */
static int fill(struct job *j, struct vv_stream *stream, uint32_t first, uint32_t n)
{
    struct varve_blocks *b = j->b;
    const struct vvi_fill *fills = j->r->fills + first;
    struct vvi_piece *pieces = j->r->pieces;
    unsigned char *cache = b->cache;
    size_t bytes = b->block_bytes;
    int rc;

    if (b->source.registered) {
        rc = vvi_source_fill_slots(&b->source, stream, fills, n, cache, bytes);
    } else {
        for (uint32_t i = 0; i < n; i++)
            pieces[i] = (struct vvi_piece){.offset = fills[i].block * bytes,
                                           .bytes = bytes,
                                           .to = cache + fills[i].slot * bytes,
                                           .id = fills[i].block};
        spent(j, MANAGING);
        rc = vvi_source_fill(&b->source, stream, pieces, n, &j->block);
    }
    if (rc)
        j->what = "blocks cannot be brought to the device";
    return rc;
}

/* Waits for the copies to slots. An error may come from another run's copy, and is reported once: then slots that
 * count as filled are not, and the cache is broken. The same holds if the result is unknown. */
static int moves_ended(struct job *j)
{
    struct varve_blocks *b = j->b;
    int rc = vv_device_event_record(b->device, j->r->filled, b->moves);

    if (rc == 0)
        rc = vvi_blocks_wait(b, j->r->filled);
    spent(j, WAITING);
    return rc;
}

/* Fills the slots that were assigned. Called with the lock held, which it releases meanwhile. */
static int fill_locked(struct job *j, uint32_t n)
{
    struct varve_blocks *b = j->b;
    struct vvi_run *r = j->r;
    bool one_by_one = b->opts.policy == VV_BLOCKS_PAPER;
    int rc = 0, moved = 0;

    b->fills++;
    vv_mutex_unlock(&b->lock);
    spent(j, MANAGING);
    for (uint32_t i = 0; rc == 0 && i < n; i += one_by_one ? 1 : n) {
        rc = fill(j, b->moves, i, one_by_one ? 1 : n);
        spent(j, MOVING);
        if (rc == 0 && one_by_one)
            rc = moved = moves_ended(j);
    }
    if (rc && !moved)
        moved = moves_ended(j);
    vv_mutex_lock(&b->lock);
    b->fills--;
    if (moved && !b->broken)
        b->broken = moved;
    if (rc) {
        give_back_locked(b, r, n);
    } else {
        filled_locked(b, r, r->fills, n);
        b->stats.bytes += n * b->block_bytes;
    }
    vv_cond_broadcast(&b->changed);
    return rc;
}

/* While the kernel runs: brings blocks that find a free slot. Entries up to `from` have been tried: they found none, or
 * were on their way. */
static int bring_some(struct job *j, uint32_t from)
{
    struct varve_blocks *b = j->b;
    uint32_t n;
    int rc = 0;

    vv_mutex_lock(&b->lock);
    n = assign_locked(b, j->r, false, j->r->asked, from, &j->r->nasked);
    if (n > 0)
        rc = fill_locked(j, n);
    vv_mutex_unlock(&b->lock);
    return rc;
}

/* True if another run is bringing a block that is still missing, or if a slot could become free. */
static bool worth_waiting_locked(const struct varve_blocks *b, const struct vvi_run *r)
{
    if (r->nasked == 0 || (b->alone && b->alone != r))
        return false;
    if (b->active && b->slots.nleaving > 0)
        return true;
    for (uint32_t i = 0; i < r->nasked; i++)
        if (vvi_bit(b->slots.have, r->asked[i]))
            return true;
    return false;
}

/* After the kernel: brings as many of the missing blocks as possible. */
static int bring_rest(struct job *j)
{
    struct varve_blocks *b = j->b;
    int rc = 0;

    vv_mutex_lock(&b->lock);
    while (rc == 0 && j->r->nasked > 0) {
        uint32_t n = assign_locked(b, j->r, true, j->r->asked, 0, &j->r->nasked);

        if (n > 0)
            rc = fill_locked(j, n);
        if (rc == 0 && j->r->nasked > 0 && b->nahead > 0) {
            /* Missing blocks may be among these. Once they are READY, the others may be evicted. */
            rc = ahead_taken_locked(j);
        } else if (n > 0) {
            continue;
        } else if (worth_waiting_locked(b, j->r)) {
            spent(j, MANAGING);
            vv_cond_wait(&b->changed, &b->lock);
            spent(j, WAITING);
        } else {
            break;
        }
    }
    vv_mutex_unlock(&b->lock);
    return rc;
}

/* ---- ahead of the front ---- */

/* A missing block, and a side of it: two ways for each axis, forward and back. */
struct side {
    uint32_t block, way;
};

/* The step to the next block in each of the six directions. */
static void steps_of(const struct varve_blocks *b, uint32_t ret_step[6])
{
    uint32_t apart[3] = {1, b->view.nr[0], b->view.nr[0] * b->view.nr[1]};

    for (int axis = 0; axis < 3; axis++) {
        ret_step[2 * axis] = apart[axis];
        ret_step[2 * axis + 1] = -apart[axis];
    }
}

/* Number of blocks beyond this one. */
static uint32_t beyond(const uint32_t *nr, struct side s)
{
    uint32_t row = s.block / nr[0], at[3] = {s.block % nr[0], row % nr[1], row / nr[1]};

    return s.way % 2 ? at[s.way / 2] : nr[s.way / 2] - 1 - at[s.way / 2];
}

/* Finds the sides of a missing block where the front may move on: one neighbour has a slot and the opposite one has
 * not; or both have, but blocks further on may be wanted. Returns how many. */
static uint32_t find_sides_locked(const struct varve_blocks *b, const uint32_t step[6],
                                  uint32_t block, struct side ret_sides[6])
{
    const uint64_t *have = b->slots.have;
    uint32_t inside = b->inside[block], far = b->opts.ahead > 1, n = 0;

    for (uint32_t way = 0; way < 6; way += 2) {
        uint32_t in = inside >> way & 1, apart = in ? step[way] : 0;
        uint32_t down = vvi_bit(have, block - apart), up = vvi_bit(have, block + apart);

        ret_sides[n] = (struct side){block, way + up};
        n += in & (down ^ up);
        if (far & in & down & up) {
            ret_sides[n++] = (struct side){block, way};
            ret_sides[n++] = (struct side){block, way + 1};
        }
    }
    return n;
}

/* Lists the blocks beyond, unless they have a slot or are in the list; but only if this run's first round used the
 * block on the other side, which was therefore there before. */
static void note_later_locked(struct varve_blocks *b, struct vvi_run *r, const uint32_t step[6],
                              struct side side)
{
    uint32_t ahead = b->opts.ahead, apart = step[side.way], block = side.block;
    uint32_t most = VV_MIN(beyond(b->view.nr, side), ahead);
    uint32_t at = b->slots.map[block - apart];
    uint32_t used = (at != 0) & vvi_bit(r->seen, at - (at != 0));

    for (uint32_t n = 0; n < most && r->nlater < b->slots.nr / 8; n++) {
        uint64_t add;

        block += apart;
        add = used & !vvi_bit(b->slots.have, block);
        r->later[r->nlater] = block;
        r->nlater += (uint32_t)add;
        b->slots.have[block / 64] |= add << block % 64;
    }
}

static void look_far_locked(struct varve_blocks *b, struct vvi_run *r, const uint32_t step[6],
                            uint32_t nmissed)
{
    struct side sides[6];

    for (uint32_t i = 0; i < nmissed; i++) {
        uint32_t n = find_sides_locked(b, step, (uint32_t)r->missing[i] - 1, sides);

        for (uint32_t k = 0; k < n; k++)
            note_later_locked(b, r, step, sides[k]);
    }
}

/* Two neighbours of a missing block, across from one another: one that has a slot, and one that lacks it. */
struct pair {
    uint32_t has, lacks;
};

/* Stores the pair. Returns 1 if exactly one of the two has a slot, otherwise 0. */
static inline uint32_t note_pair(const uint64_t *have, uint32_t block, uint32_t in, uint32_t apart,
                                 struct pair *ret_pair)
{
    uint32_t off = apart & -in; /* the first or last on this axis is no pair with itself */
    uint32_t down = vvi_bit(have, block - off), up = vvi_bit(have, block + off);
    uint32_t to = (off ^ (up - 1)) - (up - 1); /* -off unless up; with ?: compilers make a branch */

    *ret_pair = (struct pair){block + to, block - to};
    return down ^ up;
}

/* The same for one block ahead, which mostly suffices. No branch depends on which neighbours are pairs, because it
 * would be mispredicted; most pairs are added to the list, so that branch is predicted well. */
static void look_near_locked(struct varve_blocks *b, struct vvi_run *r, const uint32_t step[6],
                             uint32_t nmissed)
{
    const uint32_t *map = b->slots.map, most = b->slots.nr / 8;
    const uint64_t *seen = r->seen, *missing = r->missing;
    uint64_t *have = b->slots.have;
    uint32_t *later = r->later, nlater = r->nlater;
    struct pair pairs[3 * LOOK];

    for (uint32_t i = 0; i < nmissed && nlater < most;) {
        uint32_t n = 0, end = VV_MIN(nmissed, i + LOOK), next = VV_MIN(nmissed, end + LOOK);

        for (uint32_t k = end; k < next; k++)
            __builtin_prefetch(&b->inside[(uint32_t)missing[k] - 1]);
        for (; i < end; i++) {
            uint32_t block = (uint32_t)missing[i] - 1, inside = b->inside[block];

            n += note_pair(have, block, inside & 1, step[0], pairs + n);
            n += note_pair(have, block, inside >> 2 & 1, step[2], pairs + n);
            n += note_pair(have, block, inside >> 4 & 1, step[4], pairs + n);
        }
        for (uint32_t k = 0; k < n && nlater < most; k++) {
            uint32_t lacks = pairs[k].lacks, at = map[pairs[k].has];
            uint64_t bit = UINT64_C(1) << lacks % 64, word = have[lacks / 64];

            /* A block whose bit is only set because it is in the list has no entry in the map. */
            if (at == 0 || !vvi_bit(seen, at - 1) || word & bit)
                continue;
            later[nlater++] = lacks;
            have[lacks / 64] = word | bit;
        }
    }
    r->nlater = nlater;
}

/* Lists the blocks beyond those that a run's first round missed: the front moves from blocks that have been used for
 * longer through the missed ones. While the list is made, the bits in `have` of its blocks are set. */
static void look_ahead_locked(struct varve_blocks *b, struct vvi_run *r, uint32_t nmissed)
{
    uint64_t *have = b->slots.have;
    uint32_t step[6];

    steps_of(b, step);
    if (b->opts.ahead == 1)
        look_near_locked(b, r, step, nmissed);
    else
        look_far_locked(b, r, step, nmissed);
    for (const uint32_t *at = r->later, *end = at + r->nlater; at < end; at++)
        have[*at / 64] &= ~(UINT64_C(1) << *at % 64);
}

/* After the first round of this run, prepares for the next run: lists the blocks beyond those that were missing, if
 * they can be copied without reading, and makes room for them and for as many as may be missing then. */
static int get_ready(struct job *j)
{
    struct varve_blocks *b = j->b;
    struct vvi_run *r = j->r;
    uint32_t nmissed = r->read_at; /* still in the list */
    uint32_t room;
    int rc = 0;

    vv_mutex_lock(&b->lock);
    b->expect = VV_MIN(VV_MAX(nmissed + nmissed / 4, b->expect / 2), b->slots.nr / 8);
    b->expect = VV_MIN(b->expect, b->slots.blocks - b->slots.used);
    if (b->opts.ahead && r->nasked == 0 && b->source.registered && !b->alone) {
        if (nmissed > 0) /* the next round begins after other copies anyway */
            rc = ahead_taken_locked(j);
        if (rc == 0)
            look_ahead_locked(b, r, nmissed);
    }
    room = b->expect + r->nlater;
    if (rc == 0 && b->slots.nfree + b->slots.nleaving < room) {
        prepare_evicting_locked(b, r);
        evict_locked(b, r, room - b->slots.nfree - b->slots.nleaving);
    }
    vv_mutex_unlock(&b->lock);
    return rc;
}

/* True if the result of the copies before the event is known. */
static bool early_known_locked(struct varve_blocks *b, struct vvi_early *early)
{
    int rc;

    if (!early->relied_on)
        return true;
    rc = vv_device_event_query(b->device, early->event);
    if (rc == -EBUSY)
        return false;
    if (rc && !b->broken)
        b->broken = rc;
    early->relied_on = false;
    return true;
}

/* Submits the copies to the assigned slots. One batch at a time. */
static int submit_ahead_locked(struct job *j, uint32_t n)
{
    struct varve_blocks *b = j->b;
    struct vv_event *event = b->earlier[!b->early_at].event;
    struct vvi_fill *ahead;
    int rc = 0;

    spent(j, MANAGING);
    if (j->r->sends)
        rc = vv_device_stream_wait_event(b->device, b->early, j->r->sent);
    if (rc == 0)
        rc = fill(j, b->early, 0, n);
    if (rc == 0)
        rc = vv_device_event_record(b->device, event, b->early);
    spent(j, MOVING);
    if (rc) {
        /* Copies may be under way to slots that other blocks are about to get. */
        if (vv_device_event_record(b->device, event, b->early) == 0)
            (void)vvi_blocks_wait(b, event);
        else
            b->broken = rc;
        give_back_locked(b, j->r, n);
        return rc;
    }
    ahead = b->ahead;
    b->ahead = j->r->fills;
    j->r->fills = ahead;
    b->nahead = n;
    b->early_at = !b->early_at;
    b->stats.ahead += n;
    b->stats.bytes += n * b->block_bytes;
    return 0;
}

/* Brings the blocks that get_ready listed, as far as slots are free. No kernel waits for them. */
static int bring_ahead(struct job *j)
{
    struct varve_blocks *b = j->b;
    struct vvi_run *r = j->r;
    struct vvi_early *other;
    uint32_t n = 0;
    bool known = true;
    int rc = 0;

    if (r->nlater == 0)
        return 0;
    vv_mutex_lock(&b->lock);
    other = &b->earlier[!b->early_at];
    if (other->relied_on) { /* this queries the device */
        spent(j, MANAGING);
        known = early_known_locked(b, other);
        spent(j, WAITING);
    }
    if (b->nahead == 0 && known && !b->alone)
        n = assign_locked(b, r, false, r->later, 0, &r->nlater);
    if (n > 0)
        rc = submit_ahead_locked(j, n);
    r->nlater = 0;
    vv_mutex_unlock(&b->lock);
    spent(j, MANAGING);
    return rc;
}

/* ---- rounds ---- */

/* Later rounds of a run use the same slots as the first, or ones that were asked for. Their uses only matter without
 * progress. */
static bool wants_uses(const struct job *j)
{
    return j->rounds == 0 || j->fruitless > 0 || j->alone || j->b->opts.policy == VV_BLOCKS_PAPER;
}

static int begin_round(struct job *j, uint32_t items)
{
    struct varve_blocks *b = j->b;
    struct vvi_run *r = j->r;
    int rc;

    vv_mutex_lock(&b->lock);
    while (b->alone && b->alone != r) {
        spent(j, MANAGING);
        vv_cond_wait(&b->changed, &b->lock);
        spent(j, WAITING);
    }
    rc = b->broken ? b->broken : ahead_ended_locked(j);
    /* Later rounds do not report which slots they used, except without progress. */
    if (wants_uses(j)) {
        memset(r->seen, 0, b->slots.words * sizeof(*r->seen));
        memset(r->got, 0, b->slots.words * sizeof(*r->got));
    }
    if (rc == 0)
        rc = send_map_locked(j);
    if (rc == 0) {
        r->began = ++b->slots.now;
        if (++b->round == 0)
            b->round = 1; /* 0 marks slots that were never used */
        r->round = b->round;
        r->next = b->active;
        b->active = r;
        b->stats.rounds++;
    }
    vv_mutex_unlock(&b->lock);
    r->view.items = items;
    r->view.round = r->round;
    r->view.todo = j->all ? NULL : r->todo[j->which];
    r->view.undone = r->todo[!j->which];
    r->view.memory = j->rounds >= b->opts.rounds ? b->source.dev_memory : NULL;
    r->nasked = r->read_at = 0;
    return rc;
}

static void end_round_locked(struct varve_blocks *b, struct vvi_run *r)
{
    struct vvi_run **at = &b->active;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    r->next = NULL;
    vvi_slots_reclaim(&b->slots, oldest_locked(b));
    vv_cond_broadcast(&b->changed);
}

static int submit(struct job *j)
{
    struct varve_blocks *b = j->b;
    struct vvi_run *r = j->r;
    size_t marks_bytes = VVI_COUNTS_BYTES + b->used_bytes;
    size_t back_bytes = VVI_COUNTS_BYTES + (wants_uses(j) ? b->used_bytes : 0);
    /* Two segments are copied by a kernel: the copy engine may be busy with blocks brought ahead. */
    struct vv_copy_seg zero[2] = {{r->meta, b->zeros, b->need_bytes},
                                  {r->view.counts, b->zeros + b->need_bytes, marks_bytes}};
    struct vv_copy_seg back = {r->host + ((const unsigned char *)r->counts - r->host),
                               r->view.counts, back_bytes};
    int rc = vv_device_copy_async(b->device, j->stream, zero, 2);

    if (rc == 0) {
        rc = j->launch(j->arg, &r->view, j->native);
        if (rc)
            return FAIL(j, rc < 0 ? rc : -EINVAL, "launch returned %d", rc);
        rc = vv_device_copy_async(b->device, j->stream, &back, 1);
    }
    return rc;
}

/* True if the kernel has written n words more. */
static bool more_words(const struct job *j, uint32_t n)
{
    const _Atomic uint64_t *words = (const _Atomic uint64_t *)j->r->missing;
    uint64_t at = (uint64_t)j->r->read_at + n - 1;

    return at < j->b->slots.blocks &&
           atomic_load_explicit(&words[at], memory_order_acquire) >> 32 == j->r->round;
}

/* Reads the words that the kernel has written since. */
static void take_words(struct job *j)
{
    struct vvi_run *r = j->r;
    const _Atomic uint64_t *words = (const _Atomic uint64_t *)r->missing;
    uint32_t at = r->read_at, end = j->b->slots.blocks, round = r->round;
    uint32_t *asked = r->asked + r->nasked;

    for (; at < end; at++) {
        uint64_t word = atomic_load_explicit(&words[at], memory_order_relaxed);

        if (word >> 32 != round)
            break;
        *asked++ = (uint32_t)word - 1;
    }
    r->nasked = (uint32_t)(asked - r->asked);
    r->read_at = at;
}

/* Brings blocks until the kernel has ended. */
static int follow(struct job *j)
{
    bool later = j->b->opts.policy == VV_BLOCKS_PAPER;
    uint32_t tried = 0, looks = 0, batch = BATCH;
    int rc, moved = 0;

    for (;;) {
        bool more = !later && !moved && more_words(j, batch);

        /* Queried after the words were read: if the kernel has begun, the work before it has ended, so the map is no
         * longer being sent, and may be changed. */
        rc = vv_device_event_query(j->b->device, j->r->event);
        if (rc != -EBUSY)
            break;
        if (!more) {
            if (++looks % LOOKS == 0)
                (void)sched_yield();
            continue;
        }
        spent(j, WAITING);
        take_words(j);
        moved = bring_some(j, tried);
        tried = j->r->nasked; /* blocks that found no room will find none now */
        batch = VV_MIN(2 * batch, BATCH_MOST);
        spent(j, MANAGING);
    }
    spent(j, WAITING);
    take_words(j);
    return rc ? rc : moved;
}

/* Checks the copies to slots that the round relied on. If one fails, the first event after it reports the error. That
 * may be another run's event; it is not recorded again before it was checked here. */
static int check_moves_locked(struct varve_blocks *b)
{
    for (struct vvi_run *r = b->all; r && !b->broken; r = r->other) {
        int rc = vv_device_event_query(b->device, r->ready);

        if (rc && rc != -EBUSY)
            b->broken = rc;
    }
    for (int i = 0; i < 2; i++)
        (void)early_known_locked(b, &b->earlier[i]);
    if (!b->broken)
        b->broken = vvi_source_check(&b->source);
    return b->broken;
}

static int fail_outside(struct job *j)
{
    const uint32_t *counts = j->r->counts;
    const uint64_t *cells = j->b->view.cells;
    uint64_t at[3];

    memcpy(at, counts + VARVE_BLOCKS_OUTSIDE_CELL, sizeof(at));
    return FAIL(
        j, -EINVAL,
        "a kernel asked for cell %llu, %llu, %llu, outside of the array's %llu x %llu x %llu "
        "(%u times outside in all)",
        (unsigned long long)at[0], (unsigned long long)at[1], (unsigned long long)at[2],
        (unsigned long long)cells[0], (unsigned long long)cells[1], (unsigned long long)cells[2],
        counts[VARVE_BLOCKS_OUTSIDE_COUNT]);
}

/* Runs one round; *ret_undone: how many items have to be done again. */
static int one_round(struct job *j, uint32_t items, uint32_t *ret_undone)
{
    struct varve_blocks *b = j->b;
    struct vvi_run *r = j->r;
    int rc = begin_round(j, items), ended, moved;

    if (rc)
        return rc;
    rc = submit(j);
    ended = vv_device_event_record(b->device, r->event, j->stream);
    spent(j, LAUNCHING);
    if (rc == 0 && ended == 0) {
        int ahead = bring_ahead(j);

        rc = follow(j);
        rc = rc ? rc : ahead;
    } else if (ended == 0) {
        (void)vvi_blocks_wait(b, r->event);
        spent(j, WAITING);
    }
    vv_mutex_lock(&b->lock);
    if (rc == 0 && ended == 0 && wants_uses(j))
        vvi_slots_touch(&b->slots, r->used, r->seen);
    end_round_locked(b, r);
    spent(j, MANAGING);
    moved = check_moves_locked(b); /* also after another error */
    if (rc == 0)
        rc = ended ? ended : moved;
    if (rc == 0 && r->sends) /* this event reports an error of the map's copy, later ones do not */
        rc = vv_device_event_query(b->device, r->sent);
    spent(j, WAITING);
    r->sends = false;
    if (rc) { /* it is unknown which part has arrived */
        r->from = 0;
        r->to = b->slots.blocks;
    }
    if (rc == 0) {
        b->stats.missed += r->read_at;
        b->stats.undone += r->counts[VARVE_BLOCKS_UNDONE_COUNT];
        if (r->view.memory)
            b->stats.from_host += items;
    }
    vv_mutex_unlock(&b->lock);
    j->rounds++;
    if (rc)
        return rc;
    if (r->counts[VARVE_BLOCKS_OUTSIDE_COUNT])
        return fail_outside(j);
    *ret_undone = r->counts[VARVE_BLOCKS_UNDONE_COUNT];
    return *ret_undone <= items ? 0
                                : FAIL(j, -EINVAL, "a kernel left more items undone than it had");
}

/* Lists the remaining items after a round: the undone ones, then those without a turn. */
static int next_list(struct job *j, uint32_t items, uint32_t undone)
{
    struct vvi_run *r = j->r;
    uint64_t rest = j->left - items;
    int rc = 0;

    if (rest > 0) {
        struct vv_copy_seg seg = {r->todo[!j->which] + undone, r->todo[j->which] + items,
                                  rest * sizeof(uint32_t)};

        spent(j, MANAGING);
        rc = vv_device_copy_async(j->b->device, j->stream, &seg, 1);
        spent(j, LAUNCHING);
    }
    j->left = undone + rest;
    j->which = !j->which;
    j->all = false;
    return rc;
}

/* The round had one item, and it cannot be done. */
static int fail_item(struct job *j)
{
    struct varve_blocks *b = j->b;
    const char *apart = b->source.apart;
    uint32_t item = 0;
    struct vv_copy_seg seg = {&item, j->r->todo[j->which], sizeof(item)};
    int rc = vv_device_copy_async(b->device, j->stream, &seg, 1);

    if (rc == 0)
        rc = vv_device_event_record(b->device, j->r->event, j->stream);
    if (rc == 0)
        rc = vvi_blocks_wait(b, j->r->event);
    if (rc)
        return rc;
    if (j->r->read_at == 0)
        return FAIL(j, -EINVAL, "a kernel leaves item %u undone, which is missing no cell", item);
    return FAIL(j, -EFBIG, "item %u needs more blocks at a time than the cache's %u slots hold%s%s",
                item, b->slots.nr, apart ? "; kernels cannot read the memory itself: " : "",
                apart ? apart : "");
}

/* Makes rounds without progress smaller, without rounds of other runs beside them. A single item may take many
 * rounds: the blocks it asks for can depend on data it has read. Then each round brings one more block, until one has
 * no room. */
static int narrow(struct job *j, uint32_t items)
{
    struct varve_blocks *b = j->b;

    if (j->fruitless < FRUITLESS)
        return 0;
    if (items == 1 && j->alone) {
        if (j->r->read_at > 0 && j->r->nasked == 0 && j->fruitless <= b->slots.nr + FRUITLESS)
            return 0;
        return fail_item(j);
    }
    j->limit = VV_MAX(items / 4, 1);
    j->fruitless = 0;
    spent(j, MANAGING);
    vv_mutex_lock(&b->lock);
    while (b->alone && b->alone != j->r)
        vv_cond_wait(&b->changed, &b->lock);
    b->alone = j->r;
    j->alone = true;
    while (b->active || b->fills > 0)
        vv_cond_wait(&b->changed, &b->lock);
    vv_mutex_unlock(&b->lock);
    spent(j, WAITING);
    return 0;
}

static int run_items(struct job *j)
{
    int rc = 0;

    j->r->nlater = 0;
    j->r->sends = false;
    while (rc == 0 && j->left > 0) {
        uint32_t items = (uint32_t)VV_MIN(j->left, j->limit), undone = 0;

        rc = one_round(j, items, &undone);
        if (rc == 0)
            rc = bring_rest(j);
        if (rc == 0 && j->rounds == 1 && j->b->opts.policy != VV_BLOCKS_PAPER)
            rc = get_ready(j);
        if (rc == 0)
            rc = next_list(j, items, undone);
        j->fruitless = undone == items ? j->fruitless + 1 : 0;
        if (rc == 0 && j->left > 0)
            rc = narrow(j, items);
    }
    return rc ? rc : bring_ahead(j); /* unless a second round did */
}

/* Waits until no work of the run is under way. */
static void settle(struct job *j)
{
    struct varve_blocks *b = j->b;
    int ended = vv_device_event_record(b->device, j->r->event, j->stream), moved;

    if (ended == 0)
        (void)vvi_blocks_wait(b, j->r->event); /* the kernel has ended, perhaps with an error */
    moved = moves_ended(j);
    vv_mutex_lock(&b->lock);
    if (ended && !b->broken)
        b->broken = ended; /* a kernel may still run, on slots that other blocks would get */
    if (moved && !b->broken)
        b->broken = moved;
    (void)check_moves_locked(b);
    vv_mutex_unlock(&b->lock);
}

static void run_end(struct job *j)
{
    struct varve_blocks *b = j->b;

    vv_mutex_lock(&b->lock);
    if (j->r) {
        j->r->next = b->idle;
        b->idle = j->r;
    }
    if (b->alone == j->r)
        b->alone = NULL;
    b->runs--;
    b->stats.runs++;
    spent(j, MANAGING);
    b->stats.management_ns += j->spent_ns[MANAGING];
    b->stats.moving_ns += j->spent_ns[MOVING];
    b->stats.launching_ns += j->spent_ns[LAUNCHING];
    b->stats.waiting_ns += j->spent_ns[WAITING];
    vv_cond_broadcast(&b->changed);
    vv_mutex_unlock(&b->lock);
}

int varve_blocks_run(struct varve_blocks *b, uint64_t items, varve_blocks_launch launch, void *arg,
                     struct CUstream_st *stream)
{
    struct job j = {.b = b,
                    .launch = launch,
                    .arg = arg,
                    .native = stream,
                    .left = items,
                    .limit = items,
                    .all = true,
                    .block = VVI_NO_ID,
                    .since_ns = vv_now_ns()};
    int rc;

    if (!b)
        return vvi_ooc_bad("blocks_run", "blocks is NULL");
    if (!launch || items > UINT32_MAX - 1)
        return vv_ckpt_fail_ctx(b->ctx, "blocks_run", -EINVAL, false,
                                launch ? "there are 2^32 - 2 items at most"
                                       : "launch starts the kernels");
    if (items == 0)
        return 0;
    vv_mutex_lock(&b->lock);
    b->runs++;
    vv_mutex_unlock(&b->lock);
    rc = vvi_blocks_run_new(b, items, &j.r);
    if (rc == 0) {
        spent(&j, MANAGING);
        rc = vv_device_stream_adopt(b->device, stream, &j.stream);
        spent(&j, LAUNCHING);
        if (rc == 0) {
            rc = run_items(&j);
            if (rc)
                settle(&j);
            spent(&j, MANAGING);
            vv_device_stream_free(b->device, j.stream);
            spent(&j, LAUNCHING);
        }
    }
    if (rc && !j.reported && j.block != VVI_NO_ID)
        rc = FAIL(&j, rc, "block %llu cannot be read: %s", (unsigned long long)j.block,
                  vv_strerror(rc));
    else if (rc && !j.reported)
        rc = FAIL(&j, rc, "%s: %s", j.what ? j.what : "a run on the device", vv_strerror(rc));
    run_end(&j); /* from here on another thread may close the array */
    return rc;
}
