/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An order of work like that of a survey: tables on a grid, their sizes drawn log-uniform; items on a finer
 * grid, line after line, up one and down the next; each uses the few tables that are nearest to it.
 * The same seed and parameters make the same order everywhere.
 */
#ifndef LAB_OOC_SURVEY_H
#define LAB_OOC_SURVEY_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

struct survey_opts {
    uint64_t seed;
    double total_bytes;             /* of all tables, about */
    double least_bytes, most_bytes; /* of one */
    uint32_t least_uses, most_uses; /* tables of an item */
    double aspect;                  /* tables along a line, over the number of lines of tables */
    uint32_t finer;                 /* items between two tables, along each axis */
};

struct survey {
    uint32_t nx, ny, tables;
    uint64_t *bytes, sum_bytes;
    uint64_t items, *first;
    uint32_t *uses;
};

/* 73 GB of tables of 0.3 to 20 MB, 4 to 12 for each item. Lines are so long that the tables that two lines share
 * take as much as a cache of 8 GB. */
static inline struct survey_opts survey_defaults(void)
{
    struct survey_opts o = {1, 73e9, 0.3e6, 20e6, 4, 12, 20, 2};

    return o;
}

static inline double survey_random(uint64_t *state)
{
    uint64_t h = *state += UINT64_C(0x9e3779b97f4a7c15);

    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((h ^ h >> 31) >> 11) * 0x1p-53;
}

/* The k tables nearest to (x, y), nearest first. Returns their number. */
static inline uint32_t survey_nearest(const struct survey *s, double x, double y, uint32_t k,
                                      uint32_t *ret)
{
    enum { REACH = 3, MOST = (2 * REACH + 1) * (2 * REACH + 1) };
    double far[MOST];
    uint32_t table[MOST], n = 0;

    for (int dy = -REACH; dy <= REACH; dy++)
        for (int dx = -REACH; dx <= REACH; dx++) {
            int tx = (int)x + dx, ty = (int)y + dy;
            double ex = tx + 0.5 - x, ey = ty + 0.5 - y;
            uint32_t j = n;

            if (tx < 0 || ty < 0 || tx >= (int)s->nx || ty >= (int)s->ny)
                continue;
            for (; j > 0 && far[j - 1] > ex * ex + ey * ey; j--) {
                far[j] = far[j - 1];
                table[j] = table[j - 1];
            }
            far[j] = ex * ex + ey * ey;
            table[j] = (uint32_t)ty * s->nx + (uint32_t)tx;
            n++;
        }
    if (k > n)
        k = n;
    for (uint32_t i = 0; i < k; i++)
        ret[i] = table[i];
    return k;
}

static inline void survey_free(struct survey *s)
{
    free(s->bytes);
    free(s->first);
    free(s->uses);
}

/* 0, or -1: no memory. */
static inline int survey_make(const struct survey_opts *o, struct survey *s)
{
    uint64_t state = o->seed, n = 0, item = 0;
    double mean = (o->most_bytes - o->least_bytes) / log(o->most_bytes / o->least_bytes);
    uint32_t lines, along;

    s->ny = (uint32_t)fmax(1, sqrt(o->total_bytes / mean / o->aspect) + 0.5);
    s->nx = (uint32_t)fmax(1, o->total_bytes / mean / s->ny + 0.5);
    s->tables = s->nx * s->ny;
    along = s->nx * o->finer;
    lines = s->ny * o->finer;
    s->items = (uint64_t)along * lines;
    s->sum_bytes = 0;
    s->bytes = (uint64_t *)malloc(s->tables * sizeof(*s->bytes));
    s->first = (uint64_t *)malloc((s->items + 1) * sizeof(*s->first));
    s->uses = (uint32_t *)malloc(s->items * o->most_uses * sizeof(*s->uses));
    if (!s->bytes || !s->first || !s->uses) {
        survey_free(s);
        return -1;
    }
    for (uint32_t t = 0; t < s->tables; t++) {
        double b = o->least_bytes * pow(o->most_bytes / o->least_bytes, survey_random(&state));

        s->bytes[t] = (uint64_t)b / 4 * 4; /* floats */
        s->sum_bytes += s->bytes[t];
    }
    for (uint32_t line = 0; line < lines; line++)
        for (uint32_t i = 0; i < along; i++) {
            double x = line % 2 ? along - 1 - i : i;
            uint32_t k = o->least_uses +
                         (uint32_t)(survey_random(&state) * (o->most_uses - o->least_uses + 1));

            s->first[item++] = n;
            n += survey_nearest(s, (x + 0.5) / o->finer, (line + 0.5) / o->finer, k, s->uses + n);
        }
    s->first[item] = n;
    return 0;
}

#endif
