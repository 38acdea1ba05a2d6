/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that any replacement brings over a trace: if there is no room, the block that is needed last is
 * evicted. Present blocks are in lists by the step of their next use. Blocks of one step come in the order of
 * their numbers, so the farthest block is the one of the last list with the highest number. Blocks that are never
 * needed again are all equal.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lab/ooc/ooc.h"

enum { NONE = -1 };

struct cache {
    const struct ooc_touches *t;
    int64_t *head;        /* of each step's list, and of those never needed again */
    int64_t *next, *prev; /* of each block */
    uint32_t *due;        /* of each block: its next use; `steps`: none */
    unsigned char *there;
    uint64_t used;
};

static uint32_t next_use(const struct ooc_touches *t, uint64_t block, uint32_t after)
{
    for (uint32_t step = after; step < t->steps; step++)
        if (t->bits[step * t->words + block / 64] >> block % 64 & 1)
            return step;
    return t->steps;
}

static void unlink_block(struct cache *c, uint64_t block)
{
    if (c->prev[block] != NONE)
        c->next[c->prev[block]] = c->next[block];
    else
        c->head[c->due[block]] = c->next[block];
    if (c->next[block] != NONE)
        c->prev[c->next[block]] = c->prev[block];
}

static void link_block(struct cache *c, uint64_t block, uint32_t due)
{
    c->due[block] = due;
    c->prev[block] = NONE;
    c->next[block] = c->head[due];
    if (c->head[due] != NONE)
        c->prev[c->head[due]] = (int64_t)block;
    c->head[due] = (int64_t)block;
}

static void evict_farthest(struct cache *c)
{
    uint32_t due = c->t->steps;
    int64_t last;

    while (c->head[due] == NONE)
        due--;
    last = c->head[due];
    for (int64_t i = last; due < c->t->steps && i != NONE; i = c->next[i])
        last = i > last ? i : last;
    c->there[last] = 0;
    unlink_block(c, (uint64_t)last);
    c->used--;
}

static void go_through(struct cache *c, uint64_t slots, uint64_t *brought, uint64_t *touched)
{
    const struct ooc_touches *t = c->t;

    for (uint32_t step = 0; step < t->steps; step++)
        for (uint64_t block = 0; block < t->blocks; block++) {
            if (!(t->bits[step * t->words + block / 64] >> block % 64 & 1))
                continue;
            if (c->there[block]) {
                unlink_block(c, block);
            } else {
                if (c->used == slots)
                    evict_farthest(c);
                c->used++;
                (*brought)++;
                *touched += c->due[block] == 0; /* never seen before */
            }
            c->there[block] = 1;
            link_block(c, block, next_use(t, block, step + 1));
        }
}

int ooc_farthest(const struct ooc_touches *t, uint64_t slots, uint64_t *ret_brought,
                 uint64_t *ret_touched)
{
    struct cache c = {.t = t};
    uint64_t brought = 0, touched = 0;
    int rc = 0;

    if (slots == 0)
        return -EINVAL;
    c.head = malloc((t->steps + 1) * sizeof(*c.head));
    c.next = malloc(t->blocks * sizeof(*c.next));
    c.prev = malloc(t->blocks * sizeof(*c.prev));
    c.due = calloc(t->blocks, sizeof(*c.due)); /* a use is never due in step 0 again */
    c.there = calloc(t->blocks, 1);
    if (c.head && c.next && c.prev && c.due && c.there) {
        for (uint32_t i = 0; i <= t->steps; i++)
            c.head[i] = NONE;
        go_through(&c, slots, &brought, &touched);
    } else {
        rc = -ENOMEM;
    }
    free(c.head);
    free(c.next);
    free(c.prev);
    free(c.due);
    free(c.there);
    if (rc)
        return rc;
    *ret_brought = brought;
    *ret_touched = touched;
    return 0;
}
