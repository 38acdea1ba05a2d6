/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables inside kernels: <varve/tables.h> describes them. A kernel takes the items of its batch one by
 * one, and reads their tables:
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
 * An element beyond the end of its table is an error of the run; the lookup returns 0, so the kernel
 * continues. With flat tables t.at is a plain pointer to t.bytes bytes, aligned to 256.
 *
 * The same source compiles as C for the emulated device if VARVE_EMULATE is defined as 1 before this
 * header. Without nvcc and VARVE_EMULATE the functions are not declared. See <varve/detail/device_dual.h>.
 */
#ifndef VARVE_TABLES_DEVICE_H
#define VARVE_TABLES_DEVICE_H

#include <varve/detail/device_dual.h>

enum { VARVE_TABLES_CHUNK_SHIFT = 16 };

/* Place of a table. */
struct varve_tables_ref {
    uint64_t bytes;
    uint64_t at; /* flat: offset in the cache; chunked: index of its first entry in `chunks` */
    uint32_t table;
    uint32_t unused;
};

/* Argument of a kernel, by value, for one batch. Only `items` is for the kernel itself. */
struct varve_tables_view {
    uint32_t items;
    uint32_t item_bytes;
    const unsigned char *cache;
    const uint32_t *item;  /* the number of each item */
    const uint32_t *first; /* items + 1 entries: where the tables of each item begin in `uses` */
    const uint32_t *uses;  /* indices into `refs` */
    const struct varve_tables_ref *refs;
    const uint32_t *chunks;    /* NULL: tables are flat */
    const unsigned char *meta; /* item_bytes for each item */
    uint32_t *outside;         /* number of reads beyond the end of a table */
};

#ifdef VARVE_D_CODE

/* A table as a kernel uses it. */
struct varve_table {
    uint64_t bytes;
    const unsigned char *at; /* flat: the table; chunked: NULL */
    const uint32_t *chunks;
    uint32_t table; /* its number */
};

VARVE_D_FN uint32_t varve_tables_item(const struct varve_tables_view *v, uint32_t i)
{
    return v->item[i];
}

/* The bytes that the item passes to the kernel. Aligned to 16 bytes if item_bytes is a multiple of 16. */
VARVE_D_FN const void *varve_tables_meta(const struct varve_tables_view *v, uint32_t i)
{
    return v->meta + (uint64_t)i * v->item_bytes;
}

/* Number of tables of the item. */
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

/* The k-th table of the i-th item of the batch. If it does not exist, the result has no bytes, and the run
 * fails. */
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

/* The address of element `index` of `size` bytes (1, 2, 4, 8 or 16). NULL: it is beyond the table's
 * end. */
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

/* Look up elements of 4 and 8 bytes. True if the table has the element. */
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
