/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables inside kernels: <varve/tables.h> says what they are. A kernel takes the items of its batch one
 * by one, and reads their tables:
 *
 *     __global__ void migrate(struct varve_tables_view v, float *sum)
 *     {
 *         for (uint32_t i = first; i < v.items; i += all) {
 *             uint32_t item = varve_tables_item(&v, i);
 *
 *             for (uint32_t k = 0; k < varve_tables_count(&v, i); k++) {
 *                 struct varve_table t = varve_tables_get(&v, i, k);
 *                 float cell;
 *
 *                 if (varve_tables_f32(&v, &t, 17, &cell))
 *                     sum[item] += cell;
 *             }
 *         }
 *     }
 *
 * An element beyond the end of its table is an error of the run; the lookup gives 0, so the kernel goes
 * on. With flat tables t.at is a plain pointer to t.bytes bytes, aligned to 256.
 *
 * The same source compiles as C for the emulated device, after `#define VARVE_EMULATE 1` before this
 * header; without nvcc and without that the functions are not declared. <varve/detail/device_dual.h> tells more.
 */
#ifndef VARVE_TABLES_DEVICE_H
#define VARVE_TABLES_DEVICE_H

#include <varve/detail/device_dual.h>

enum { VARVE_TABLES_CHUNK_SHIFT = 16 };

/* Where a table is. */
struct varve_tables_ref {
    uint64_t bytes;
    uint64_t at; /* flat: where in the cache; chunked: where its chunks begin in the list */
    uint32_t table;
    uint32_t unused;
};

/* Argument of a kernel, by value, for one batch. Only `items` is for the kernel itself. */
struct varve_tables_view {
    uint32_t items;
    uint32_t item_bytes;
    const unsigned char *cache;
    const uint32_t *item;  /* the number of each */
    const uint32_t *first; /* of items + 1: where its tables begin in `uses` */
    const uint32_t *uses;  /* which of `refs` */
    const struct varve_tables_ref *refs;
    const uint32_t *chunks;    /* NULL: tables are flat */
    const unsigned char *meta; /* item_bytes of each */
    uint32_t *outside;         /* how often a kernel has read beyond the end of a table */
};

#ifdef VARVE_D_CODE

/* A table as a kernel uses it. */
struct varve_table {
    uint64_t bytes;
    const unsigned char *at; /* flat: all of it; chunked: NULL */
    const uint32_t *chunks;
    uint32_t table; /* its number */
};

VARVE_D_FN uint32_t varve_tables_item(const struct varve_tables_view *v, uint32_t i)
{
    return v->item[i];
}

/* The bytes that the item passed. Aligned to 16 bytes if item_bytes is a multiple of that. */
VARVE_D_FN const void *varve_tables_meta(const struct varve_tables_view *v, uint32_t i)
{
    return v->meta + (uint64_t)i * v->item_bytes;
}

/* How many tables the item has. */
VARVE_D_FN uint32_t varve_tables_count(const struct varve_tables_view *v, uint32_t i)
{
    return v->first[i + 1] - v->first[i];
}

VARVE_D_FN struct varve_table varve_tables_none(const struct varve_tables_view *v)
{
    struct varve_table t = {0, NULL, NULL, UINT32_MAX};

    (void)varve_d_add32_dev(v->outside, 1);
    return t;
}

/* The k-th table of the i-th item of the batch. One that there is none of has no bytes, and is an error
 * of the run. */
VARVE_D_FN struct varve_table varve_tables_get(const struct varve_tables_view *v, uint32_t i,
                                               uint32_t k)
{
    struct varve_table t;
    const struct varve_tables_ref *r;

    if (i >= v->items || k >= varve_tables_count(v, i))
        return varve_tables_none(v);
    r = &v->refs[v->uses[v->first[i] + k]];
    t.bytes = r->bytes;
    t.table = r->table;
    t.at = v->chunks ? NULL : v->cache + r->at;
    t.chunks = v->chunks ? v->chunks + r->at : NULL;
    return t;
}

/* The address of element `index` of `size` bytes (1, 2, 4, 8 or 16); NULL: the table ends before. */
VARVE_D_FN const void *varve_tables_element(const struct varve_tables_view *v,
                                            const struct varve_table *t, uint64_t index,
                                            uint32_t size)
{
    uint64_t at = index * size;

    if (index >= t->bytes / size) {
        (void)varve_d_add32_dev(v->outside, 1);
        return NULL;
    }
    if (t->at)
        return t->at + at;
    return v->cache +
           ((uint64_t)t->chunks[at >> VARVE_TABLES_CHUNK_SHIFT] << VARVE_TABLES_CHUNK_SHIFT) +
           (at & ((UINT64_C(1) << VARVE_TABLES_CHUNK_SHIFT) - 1));
}

/* Elements of 4 and 8 bytes: whether the table has it. */
VARVE_D_FN int varve_tables_f32(const struct varve_tables_view *v, const struct varve_table *t,
                                uint64_t index, float *ret_value)
{
    const float *p = (const float *)varve_tables_element(v, t, index, 4);

    *ret_value = p ? *p : 0;
    return p != NULL;
}

VARVE_D_FN int varve_tables_f64(const struct varve_tables_view *v, const struct varve_table *t,
                                uint64_t index, double *ret_value)
{
    const double *p = (const double *)varve_tables_element(v, t, index, 8);

    *ret_value = p ? *p : 0;
    return p != NULL;
}

#endif

#endif
