/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of free pages carry their length at both ends, so that a returned page finds its free neighbours
 * in O(1). They are in lists by the power of two of their length, so that taking is O(1) except for a
 * short search among runs of about the right size.
 *
 * Invariants: no two free runs touch; a run is in exactly the list of its length; nfree counts free
 * pages; a page that is not ready is in no run. The extra pages behind the arena have a record each, but
 * are never handed out here. A page is cut exactly while one of its parts is in use, and in the list of
 * its size exactly while another part is free.
 */
#include "store/arena/arena.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

static unsigned bucket_of(uint32_t run)
{
    return 31u ^ (unsigned)__builtin_clz(run);
}

static void run_link(struct vv_arena *a, uint32_t first, uint32_t len)
{
    unsigned b = bucket_of(len);
    struct vv_page *head = &a->page[first];

    head->chunk = a->page[first + len - 1].chunk = len;
    head->u.run.prev = VV_PAGE_NONE;
    head->u.run.next = a->bucket[b];
    if (a->bucket[b] != VV_PAGE_NONE)
        a->page[a->bucket[b]].u.run.prev = first;
    a->bucket[b] = first;
    a->buckets_used |= 1u << b;
}

static void run_unlink(struct vv_arena *a, uint32_t first)
{
    struct vv_page *head = &a->page[first];
    unsigned b = bucket_of(head->chunk);

    if (head->u.run.prev != VV_PAGE_NONE)
        a->page[head->u.run.prev].u.run.next = head->u.run.next;
    else
        a->bucket[b] = head->u.run.next;
    if (head->u.run.next != VV_PAGE_NONE)
        a->page[head->u.run.next].u.run.prev = head->u.run.prev;
    if (a->bucket[b] == VV_PAGE_NONE)
        a->buckets_used &= ~(1u << b);
}

static int cut_init(struct vv_arena *a, uint32_t units)
{
    a->cut = calloc(a->npages ? a->npages : 1, sizeof(*a->cut));
    a->cut_free = malloc((units + 1) * sizeof(*a->cut_free));
    if (!a->cut || !a->cut_free)
        return -ENOMEM;
    for (uint32_t each = 0; each <= units; each++)
        a->cut_free[each] = VV_PAGE_NONE;
    return 0;
}

int vv_arena_init(struct vv_arena *arena, uint32_t npages, uint32_t nready, uint32_t extra_pages,
                  uint32_t units)
{
    uint64_t records = (uint64_t)npages + extra_pages;

    vv_assert(nready <= npages && units > 0);
    *arena = (struct vv_arena){.npages = npages,
                               .nready = nready,
                               .npromised = npages,
                               .nfree = nready,
                               .units = units,
                               .first_part = units > 1 ? (uint32_t)records : VV_PAGE_NONE};
    for (unsigned b = 0; b < VV_ARRAY_SIZE(arena->bucket); b++)
        arena->bucket[b] = VV_PAGE_NONE;
    /* Records that are never touched take no memory. */
    records += units > 1 ? (uint64_t)npages * units : 0;
    if (records >= VV_PAGE_NONE)
        return -EINVAL;
    arena->page = calloc(records ? records : 1, sizeof(*arena->page));
    if (!arena->page || (units > 1 && cut_init(arena, units) < 0)) {
        vv_arena_fini(arena);
        return -ENOMEM;
    }
    if (nready)
        run_link(arena, 0, nready);
    return 0;
}

void vv_arena_fini(struct vv_arena *arena)
{
    free(arena->page);
    free(arena->cut);
    free(arena->cut_free);
    arena->page = NULL;
    arena->cut = NULL;
    arena->cut_free = NULL;
}

/* The smallest sufficient run, or the longest. Runs in the bucket of `want` itself may be too short:
 * look at a few, then take from the next larger bucket, where every run is long enough. */
static uint32_t run_for(const struct vv_arena *a, uint32_t want)
{
    enum { LOOKS = 8 };
    unsigned b = bucket_of(want);
    uint32_t first = a->bucket[b], larger;

    for (int i = 0; i < LOOKS && first != VV_PAGE_NONE; i++, first = a->page[first].u.run.next)
        if (a->page[first].chunk >= want)
            return first;
    larger = b < 31 ? a->buckets_used >> (b + 1) << (b + 1) : 0;
    if (larger)
        return a->bucket[__builtin_ctz(larger)];
    return a->buckets_used ? a->bucket[31 - __builtin_clz(a->buckets_used)] : VV_PAGE_NONE;
}

/* Cuts [first, first + n) out of the free run that starts at `run`. */
static void carve(struct vv_arena *a, uint32_t run, uint32_t first, uint32_t n)
{
    uint32_t len = a->page[run].chunk, end = run + len;

    run_unlink(a, run);
    if (first > run)
        run_link(a, run, first - run);
    if (first + n < end)
        run_link(a, first + n, end - first - n);
    for (uint32_t p = first; p < first + n; p++)
        a->page[p] = (struct vv_page){.state = VV_PAGE_RESERVED};
    a->nfree -= n;
}

uint32_t vv_arena_take(struct vv_arena *arena, uint32_t want, uint32_t *ret_got)
{
    uint32_t first, got;

    vv_assert(want > 0);
    first = run_for(arena, want);
    if (first == VV_PAGE_NONE)
        return VV_PAGE_NONE;
    got = VV_MIN(want, arena->page[first].chunk);
    carve(arena, first, first, got);
    *ret_got = got;
    return first;
}

/* Takes whole runs from the list of the longest, while each is shorter than the number still wanted.
 * Takes them off the head of one list and rebuilds the list once. */
static uint32_t take_longest(struct vv_arena *a, unsigned b, uint32_t want, uint32_t *ret_pages)
{
    struct vv_page *page = a->page;
    uint32_t first = a->bucket[b], got = 0;

    do {
        uint32_t len = page[first].chunk, next = page[first].u.run.next;

        for (uint32_t i = 0; i < len; i++) {
            page[first + i] = (struct vv_page){.state = VV_PAGE_RESERVED};
            ret_pages[got + i] = first + i;
        }
        got += len;
        first = next;
    } while (first != VV_PAGE_NONE && (want - got) >> b > 1);
    a->bucket[b] = first;
    if (first != VV_PAGE_NONE)
        page[first].u.run.prev = VV_PAGE_NONE;
    else
        a->buckets_used &= ~(1u << b);
    a->nfree -= got;
    return got;
}

uint32_t vv_arena_take_pages(struct vv_arena *arena, uint32_t want, uint32_t *ret_pages)
{
    uint32_t got = 0;

    while (got < want && arena->buckets_used) {
        unsigned longest = bucket_of(arena->buckets_used);

        if (bucket_of(want - got) > longest) { /* no run is long enough */
            got += take_longest(arena, longest, want - got, ret_pages + got);
        } else {
            uint32_t run = 0, first = vv_arena_take(arena, want - got, &run);

            for (uint32_t p = first; p < first + run; p++)
                ret_pages[got++] = p;
        }
    }
    return got;
}

void vv_arena_take_at(struct vv_arena *arena, uint32_t first, uint32_t n)
{
    uint32_t run = first;

    while (run > 0 && arena->page[run - 1].state == VV_PAGE_FREE)
        run--;
    vv_assert(arena->page[run].state == VV_PAGE_FREE && run + arena->page[run].chunk >= first + n);
    carve(arena, run, first, n);
}

void vv_arena_give(struct vv_arena *arena, uint32_t first, uint32_t n)
{
    uint32_t start = first, end = first + n;

    vv_assert(n > 0 && end <= arena->nready);
    for (uint32_t p = first; p < end; p++) {
        vv_assert(arena->page[p].state != VV_PAGE_FREE && arena->page[p].pins == 0);
        arena->page[p] = (struct vv_page){.state = VV_PAGE_FREE};
    }
    if (end < arena->nready && arena->page[end].state == VV_PAGE_FREE) {
        uint32_t after = end;
        end += arena->page[after].chunk;
        run_unlink(arena, after);
    }
    if (start > 0 && arena->page[start - 1].state == VV_PAGE_FREE) {
        start -= arena->page[start - 1].chunk;
        run_unlink(arena, start);
    }
    run_link(arena, start, end - start);
    arena->nfree += n;
}

static void cut_link(struct vv_arena *a, uint32_t page)
{
    struct vv_arena_cut *cut = &a->cut[page];

    cut->prev = VV_PAGE_NONE;
    cut->next = a->cut_free[cut->each];
    if (cut->next != VV_PAGE_NONE)
        a->cut[cut->next].prev = page;
    a->cut_free[cut->each] = page;
}

static void cut_unlink(struct vv_arena *a, uint32_t page)
{
    struct vv_arena_cut *cut = &a->cut[page];

    if (cut->prev != VV_PAGE_NONE)
        a->cut[cut->prev].next = cut->next;
    else
        a->cut_free[cut->each] = cut->next;
    if (cut->next != VV_PAGE_NONE)
        a->cut[cut->next].prev = cut->prev;
}

uint32_t vv_arena_take_part(struct vv_arena *arena, uint32_t each)
{
    uint32_t page, part, got;

    vv_assert(each > 0 && each <= arena->units / 2);
    page = arena->cut_free[each];
    if (page == VV_PAGE_NONE) {
        page = vv_arena_take(arena, 1, &got);
        if (page == VV_PAGE_NONE)
            return VV_PAGE_NONE;
        arena->cut[page] = (struct vv_arena_cut){.each = (uint16_t)each};
        cut_link(arena, page);
    }
    part = arena->first_part + page * arena->units;
    while (arena->page[part].state != VV_PAGE_FREE)
        part += each;
    arena->page[part] = (struct vv_page){.state = VV_PAGE_RESERVED};
    if (++arena->cut[page].used == arena->units / each)
        cut_unlink(arena, page);
    return part;
}

void vv_arena_give_part(struct vv_arena *arena, uint32_t part)
{
    uint32_t page = vv_arena_page_of(arena, part);
    struct vv_arena_cut *cut = &arena->cut[page];

    vv_assert(cut->used > 0 && arena->page[part].state != VV_PAGE_FREE &&
              arena->page[part].pins == 0);
    arena->page[part] = (struct vv_page){.state = VV_PAGE_FREE};
    if (cut->used-- == arena->units / cut->each)
        cut_link(arena, page);
    if (cut->used > 0)
        return;
    cut_unlink(arena, page);
    cut->each = 0;
    vv_arena_give(arena, page, 1);
}

void vv_arena_grow(struct vv_arena *arena, uint32_t nready)
{
    uint32_t start = arena->nready;

    vv_assert(nready >= start && nready <= arena->npromised);
    if (nready == start)
        return;
    arena->nfree += nready - start;
    arena->nready = nready;
    if (start > 0 && arena->page[start - 1].state == VV_PAGE_FREE) {
        start -= arena->page[start - 1].chunk;
        run_unlink(arena, start);
    }
    run_link(arena, start, nready - start);
}

uint32_t vv_arena_run(const struct vv_arena *arena, uint32_t first)
{
    vv_assert(arena->page[first].state == VV_PAGE_FREE);
    return arena->page[first].chunk;
}

static const char *check_cuts(const struct vv_arena *a)
{
    uint32_t open = 0, listed = 0;

    for (uint32_t p = 0; a->cut && p < a->npages; p++) {
        uint32_t each = a->cut[p].each, part = a->first_part + p * a->units, used = 0;
        if (!each)
            continue;
        if (a->page[p].state != VV_PAGE_RESERVED || a->page[p].u.owner)
            return "arena: a page in parts is free or has an owner";
        for (uint32_t u = 0; u + each <= a->units; u += each)
            used += a->page[part + u].state != VV_PAGE_FREE;
        if (used == 0 || used != a->cut[p].used)
            return "arena: the parts of a page are miscounted";
        open += used < a->units / each;
    }
    for (uint32_t each = 0; a->cut && each <= a->units; each++)
        for (uint32_t p = a->cut_free[each]; p != VV_PAGE_NONE; p = a->cut[p].next, listed++)
            if (a->cut[p].each != each)
                return "arena: a page in parts is in the wrong list";
    return open == listed ? NULL : "arena: a page with a free part is in no list";
}

const char *vv_arena_check(const struct vv_arena *arena)
{
    uint32_t nfree = 0, listed = 0;

    if (arena->nready > arena->npromised || arena->npromised > arena->npages)
        return "arena: more pages are ready than promised, or promised than there are";
    for (uint32_t p = 0; p < arena->nready;) {
        uint32_t len;
        if (arena->page[p].state != VV_PAGE_FREE) {
            p++;
            continue;
        }
        len = arena->page[p].chunk;
        if (len == 0 || len > arena->nready - p || arena->page[p + len - 1].chunk != len)
            return "arena: a free run has a wrong length";
        for (uint32_t i = p; i < p + len; i++)
            if (arena->page[i].state != VV_PAGE_FREE)
                return "arena: a free run holds a page in use";
        p += len;
        nfree += len;
        if (p < arena->nready && arena->page[p].state == VV_PAGE_FREE)
            return "arena: two free runs touch";
    }
    for (unsigned b = 0; b < VV_ARRAY_SIZE(arena->bucket); b++)
        for (uint32_t p = arena->bucket[b]; p != VV_PAGE_NONE; p = arena->page[p].u.run.next) {
            if (arena->page[p].state != VV_PAGE_FREE || bucket_of(arena->page[p].chunk) != b)
                return "arena: a run is in the wrong list";
            listed += arena->page[p].chunk;
        }
    if (nfree != arena->nfree || listed != nfree)
        return "arena: free pages miscounted";
    return check_cuts(arena);
}
