/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks inside kernels: <varve/blocks.h> describes them. A kernel takes the items of its round one by
 * one, looks cells up, and leaves an item undone when a cell is not there:
 *
 *     __global__ void gather(struct varve_blocks_view v, const struct point *p, float *sum)
 *     {
 *         for (uint32_t i = first; i < v.items; i += all) {
 *             struct varve_blocks_cursor c = varve_blocks_cursor();
 *             uint32_t item = varve_blocks_item(&v, i);
 *             float a, b;
 *             int here = varve_blocks_f32(&v, &c, p[item].x, p[item].y, p[item].z, &a) &
 *                        varve_blocks_f32(&v, &c, p[item].x + 1, p[item].y, p[item].z, &b);
 *
 *             if (here)
 *                 sum[item] = a + b;
 *             else
 *                 varve_blocks_again(&v, item);
 *         }
 *     }
 *
 * An item looks up all cells that it can before it gives up, as above: then one round brings all of
 * them. A cell outside of the array is an error of the run; the lookup returns 0, so the kernel
 * continues.
 *
 * The same source compiles as C for the emulated device if VARVE_EMULATE is defined as 1 before this
 * header. Without nvcc and VARVE_EMULATE the functions are not declared. See <varve/detail/device_dual.h>.
 */
#ifndef VARVE_BLOCKS_DEVICE_H
#define VARVE_BLOCKS_DEVICE_H

#include <varve/detail/device_dual.h>

/* Argument of a kernel, by value, for one round. Only `items` is for the kernel itself. */
struct varve_blocks_view {
    uint32_t items; /* number of items of this round */
    uint32_t cell_bytes;
    uint64_t cells[3];
    uint32_t shift[3]; /* a block has 1 << shift cells along each axis */
    uint32_t nr[3];    /* blocks along each axis */
    uint64_t block_bytes;
    const unsigned char *slots;
    const uint32_t *map;         /* for each block its slot + 1; 0: it is not there */
    uint64_t *used;              /* one bit for each slot: used in this round */
    uint32_t round;              /* no two rounds of an array have the same number */
    const unsigned char *memory; /* all blocks, in host memory; NULL: not in this round */
    uint64_t *need;              /* one bit for each block: requested in this round */
    uint32_t *counts;            /* VARVE_BLOCKS_*_COUNT of this round */
    uint64_t *missing;           /* in host memory: round << 32 | (block + 1) */
    const uint32_t *todo;        /* numbers of the items; NULL: all from 0 on */
    uint32_t *undone;            /* items for another round */
};

enum {
    VARVE_BLOCKS_MISSING_COUNT,
    VARVE_BLOCKS_UNDONE_COUNT,
    VARVE_BLOCKS_OUTSIDE_COUNT,
    VARVE_BLOCKS_OUTSIDE_CELL = 4 /* the first such cell: x, y and z, 64 bits each */
};

#ifdef VARVE_D_CODE

/* The block that a thread used last: neighbouring cells are mostly in the same one. */
struct varve_blocks_cursor {
    uint64_t block;
    const unsigned char *at; /* NULL: it is not there */
};

VARVE_D_FN struct varve_blocks_cursor varve_blocks_cursor(void)
{
    struct varve_blocks_cursor c = {UINT64_MAX, NULL};

    return c;
}

VARVE_D_FN uint32_t varve_blocks_item(const struct varve_blocks_view *v, uint32_t i)
{
    return v->todo ? v->todo[i] : i;
}

/* Leaves the item for the next round. Call it once for an item. */
VARVE_D_FN void varve_blocks_again(const struct varve_blocks_view *v, uint32_t item)
{
    uint32_t at = varve_d_add32_dev(&v->counts[VARVE_BLOCKS_UNDONE_COUNT], 1);

    if (at < v->items) /* otherwise an item was given back twice, and the host fails the run */
        v->undone[at] = item;
}

/* Requests a block, unless this round has done so. The host sees the word at once. */
VARVE_D_FN void varve_blocks_ask(const struct varve_blocks_view *v, uint64_t block)
{
    uint64_t bit = UINT64_C(1) << block % 64, *word = &v->need[block / 64];
    uint32_t at;

    if (varve_d_load64_dev(word) & bit || varve_d_or64_dev(word, bit) & bit)
        return;
    at = varve_d_add32_dev(&v->counts[VARVE_BLOCKS_MISSING_COUNT], 1);
    if (at < (uint64_t)v->nr[0] * v->nr[1] * v->nr[2])
        varve_d_store64_sys(&v->missing[at], (uint64_t)v->round << 32 | (block + 1));
}

/* Address of a block. NULL: it is not there, and has been requested. */
VARVE_D_FN const unsigned char *varve_blocks_find(const struct varve_blocks_view *v, uint64_t block)
{
    uint32_t slot = varve_d_acquire32_dev(&v->map[block]);

    if (slot) {
        uint64_t bit = UINT64_C(1) << (slot - 1) % 64, *word = &v->used[(slot - 1) / 64];

        if (!(varve_d_load64_dev(word) & bit))
            (void)varve_d_or64_dev(word, bit);
        return v->slots + (slot - 1) * v->block_bytes;
    }
    if (v->memory)
        return v->memory + block * v->block_bytes;
    varve_blocks_ask(v, block);
    return NULL;
}

/* Records a cell outside of the array: the run fails, and its error names the first such cell. */
VARVE_D_FN void varve_blocks_outside(const struct varve_blocks_view *v, uint64_t x, uint64_t y,
                                     uint64_t z)
{
    uint64_t *cell = (uint64_t *)(void *)&v->counts[VARVE_BLOCKS_OUTSIDE_CELL];

    if (varve_d_add32_dev(&v->counts[VARVE_BLOCKS_OUTSIDE_COUNT], 1) != 0)
        return;
    cell[0] = x;
    cell[1] = y;
    cell[2] = z;
}

/* The address of a cell; NULL: it is not there, or outside of the array. */
VARVE_D_FN const void *varve_blocks_cell(const struct varve_blocks_view *v,
                                         struct varve_blocks_cursor *c, uint64_t x, uint64_t y,
                                         uint64_t z)
{
    uint64_t block;

    if (x >= v->cells[0] || y >= v->cells[1] || z >= v->cells[2]) {
        varve_blocks_outside(v, x, y, z);
        return NULL;
    }
    block = ((z >> v->shift[2]) * v->nr[1] + (y >> v->shift[1])) * v->nr[0] + (x >> v->shift[0]);
    if (block != c->block) {
        c->block = block;
        c->at = varve_blocks_find(v, block);
    }
    if (!c->at)
        return NULL;
    x &= (UINT64_C(1) << v->shift[0]) - 1;
    y &= (UINT64_C(1) << v->shift[1]) - 1;
    z &= (UINT64_C(1) << v->shift[2]) - 1;
    return c->at + ((((z << v->shift[1]) + y) << v->shift[0]) + x) * v->cell_bytes;
}

/* Look up cells of 4 and 8 bytes. True if the cell was there. */
VARVE_D_FN int varve_blocks_f32(const struct varve_blocks_view *v, struct varve_blocks_cursor *c,
                                uint64_t x, uint64_t y, uint64_t z, float *ret_value)
{
    const float *p = (const float *)varve_blocks_cell(v, c, x, y, z);

    *ret_value = p ? *p : 0;
    return p != NULL;
}

VARVE_D_FN int varve_blocks_f64(const struct varve_blocks_view *v, struct varve_blocks_cursor *c,
                                uint64_t x, uint64_t y, uint64_t z, double *ret_value)
{
    const double *p = (const double *)varve_blocks_cell(v, c, x, y, z);

    *ret_value = p ? *p : 0;
    return p != NULL;
}

#endif

#endif
