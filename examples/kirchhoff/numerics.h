/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numerics, once: this header is compiled for the CPU, for the emulated device and by nvcc. Every
 * number that depends on the order of operations is computed by one of the functions below, and no
 * compiler may contract a product and a sum into one operation (-ffp-contract=off, --fmad=false), so
 * that all of them round alike. When many threads add or choose, they use integers, whose
 * order does not matter: so the content of a cache does not matter either.
 *
 * Space is measured in cells, velocity in cells per second. Axes are z (depth, fastest in memory), x, y;
 * in two dimensions there is one cell along y.
 *
 * Rays obey dx/dt = v^2 p and dp/dt = -grad v / v, with |p| = 1 / v, by the midpoint rule. A wavefront is
 * all rays of a station after the same time. Each of its points updates the nodes of the station's table
 * around it with the arrival time of the wave, as if it were a sphere about the station; the nearest point
 * wins.
 */
#ifndef KIR_NUMERICS_H
#define KIR_NUMERICS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define KIR_FN static __host__ __device__ __forceinline__
#else
#define KIR_FN static inline __attribute__((unused))
#endif

enum { KIR_Z, KIR_X, KIR_Y, KIR_AXES };

#define KIR_NEVER 1e30f /* the wave does not get there */

struct kir_grid {
    int n[KIR_AXES];   /* cells of the model */
    int step;          /* cells between nodes of a table */
    float dt;          /* time that a ray needs for a step, s */
    float rate, scale; /* samples per second of a trace; units of the image in one of a sample */
    int samples;       /* of a trace */
};

/* Times from a station to nodes at first + step * (0 .. nodes - 1), z fastest. */
struct kir_table {
    int first[KIR_AXES], nodes[KIR_AXES];
    uint64_t offset; /* of its first node among those of all tables */
};

struct kir_ray {
    float at[KIR_AXES], p[KIR_AXES];
    float length; /* of its way so far, in cells; negative: it has left the table */
    uint32_t table;
};

/* ---- interpolation between cells ---- */

/* The cube of eight cells, or nodes, around a place: its first one, and the distance of the place from it. */
KIR_FN void kir_cube(const int n[KIR_AXES], const float at[KIR_AXES], int ret_base[KIR_AXES],
                     float ret_f[KIR_AXES])
{
    for (int d = 0; d < KIR_AXES; d++) {
        int i = at[d] > 0 ? (int)at[d] : 0;

        i = i > n[d] - 2 ? n[d] - 2 : i;
        i = i < 0 ? 0 : i;
        ret_base[d] = i;
        ret_f[d] = n[d] > 1 ? at[d] - (float)i : 0;
    }
}

/* Coordinate of corner k of a cube along axis d. */
KIR_FN int kir_corner(const int n[KIR_AXES], const int base[KIR_AXES], int k, int d)
{
    return base[d] + (n[d] > 1 ? k >> d & 1 : 0);
}

KIR_FN float kir_between(const float c[8], const float f[KIR_AXES])
{
    float x0y0 = c[0] + f[KIR_Z] * (c[1] - c[0]), x1y0 = c[2] + f[KIR_Z] * (c[3] - c[2]);
    float x0y1 = c[4] + f[KIR_Z] * (c[5] - c[4]), x1y1 = c[6] + f[KIR_Z] * (c[7] - c[6]);
    float y0 = x0y0 + f[KIR_X] * (x1y0 - x0y0), y1 = x0y1 + f[KIR_X] * (x1y1 - x0y1);

    return y0 + f[KIR_Y] * (y1 - y0);
}

KIR_FN void kir_slope(const float c[8], const float f[KIR_AXES], float ret_slope[KIR_AXES])
{
    for (int d = 0; d < KIR_AXES; d++) {
        float along[8]; /* the difference along d, in both corners of each pair */

        for (int k = 0; k < 8; k++)
            along[k] = c[k | 1 << d] - c[k & ~(1 << d)];
        ret_slope[d] = kir_between(along, f);
    }
}

/* ---- rays ---- */

KIR_FN int kir_inside(const struct kir_grid *g, const struct kir_table *t, const float at[KIR_AXES])
{
    for (int d = 0; d < KIR_AXES; d++) {
        float low = (float)t->first[d], high = low + (float)((t->nodes[d] - 1) * g->step);

        high = high < (float)(g->n[d] - 1) ? high : (float)(g->n[d] - 1);
        if (!(at[d] >= low && at[d] <= high))
            return 0;
    }
    return 1;
}

/* Two functions that together move a ray by a step. kir_ray_half moves it half a step by the eight velocities around
 * it. The caller looks up the velocities there; with these, kir_ray_whole makes the whole step. */
KIR_FN void kir_ray_half(const struct kir_grid *g, const float c[8], const float f[KIR_AXES],
                         struct kir_ray *r, float ret_at[KIR_AXES], float ret_p[KIR_AXES])
{
    float slope[KIR_AXES], v = kir_between(c, f), pp = 0, half = 0.5f * g->dt, norm;

    kir_slope(c, f, slope);
    for (int d = 0; d < KIR_AXES; d++)
        pp += r->p[d] * r->p[d];
    norm = 1.0f / (v * sqrtf(pp)); /* restores |p| = 1 / v after the last step */
    for (int d = 0; d < KIR_AXES; d++) {
        r->p[d] *= norm;
        ret_at[d] = r->at[d] + half * (v * v) * r->p[d];
        ret_p[d] = r->p[d] - half * slope[d] / v;
    }
}

KIR_FN void kir_ray_whole(const struct kir_grid *g, const float c[8], const float f[KIR_AXES],
                          const float middle_p[KIR_AXES], struct kir_ray *r)
{
    float slope[KIR_AXES], v = kir_between(c, f);

    kir_slope(c, f, slope);
    for (int d = 0; d < KIR_AXES; d++) {
        r->at[d] += g->dt * (v * v) * middle_p[d];
        r->p[d] -= g->dt * slope[d] / v;
    }
    r->length += g->dt * v;
}

/* ---- tables under construction: a word for each node, which keeps the largest value ---- */

/* A word: the nearer the ray, the larger; 0: no ray was there. */
KIR_FN uint64_t kir_word(float distance2, float time)
{
    uint32_t near, when;

    memcpy(&near, &distance2, sizeof(near));
    memcpy(&when, &time, sizeof(when));
    return ~((uint64_t)near << 32 | when);
}

KIR_FN float kir_word_time(uint64_t word)
{
    uint32_t when = (uint32_t)~word;
    float time = KIR_NEVER;

    if (word)
        memcpy(&time, &when, sizeof(time));
    return time;
}

/* The nodes along axis d that a ray updates: from the result to *ret_last. */
KIR_FN int kir_near(const struct kir_grid *g, const struct kir_table *t, const struct kir_ray *r,
                    int d, int *ret_last)
{
    float at = (r->at[d] - (float)t->first[d]) / (float)g->step;
    int first = (int)ceilf(at - 1.5f), last = (int)floorf(at + 1.5f);

    *ret_last = last < t->nodes[d] - 1 ? last : t->nodes[d] - 1;
    return first > 0 ? first : 0;
}

/* The word that the ray adds to node (z, x, y) of the table, `time` after it left; 0: none. */
KIR_FN uint64_t kir_tell(const struct kir_grid *g, const struct kir_table *t,
                         const struct kir_ray *r, float time, const int node[KIR_AXES])
{
    float dd = 0, along = 0, pp = 0, across, far = 1.5f * (float)g->step;

    for (int d = 0; d < KIR_AXES; d++) {
        float delta = (float)(t->first[d] + node[d] * g->step) - r->at[d];

        dd += delta * delta;
        along += r->p[d] * delta;
        pp += r->p[d] * r->p[d];
    }
    if (!(dd <= far * far))
        return 0;
    across = dd - along * along / pp;
    time += along + (across > 0 ? across : 0) * sqrtf(pp) / (2.0f * r->length);
    return kir_word(dd, time > 0 ? time : 0);
}

KIR_FN uint64_t kir_node(const struct kir_table *t, const int node[KIR_AXES])
{
    return t->offset +
           ((uint64_t)node[KIR_Y] * (uint64_t)t->nodes[KIR_X] + (uint64_t)node[KIR_X]) *
               (uint64_t)t->nodes[KIR_Z] +
           (uint64_t)node[KIR_Z];
}

/* ---- migration ---- */

/* Finds the nodes around a cell of the image; 0: the table does not reach there. */
KIR_FN int kir_look(const struct kir_grid *g, const struct kir_table *t, const int cell[KIR_AXES],
                    int ret_base[KIR_AXES], float ret_f[KIR_AXES])
{
    float at[KIR_AXES];

    for (int d = 0; d < KIR_AXES; d++) {
        int from = cell[d] - t->first[d];

        if (from < 0 || from > (t->nodes[d] - 1) * g->step)
            return 0;
        at[d] = (float)from / (float)g->step;
    }
    kir_cube(t->nodes, at, ret_base, ret_f);
    return 1;
}

/* The time at the cell, from those at the eight nodes around it. */
KIR_FN float kir_time(const float c[8], const float f[KIR_AXES])
{
    for (int k = 0; k < 8; k++)
        if (c[k] >= KIR_NEVER)
            return KIR_NEVER;
    return kir_between(c, f);
}

/* Steepness of the arriving wave: 1 from below, 0 along the surface. */
KIR_FN float kir_steep(const float station[KIR_AXES], const int cell[KIR_AXES])
{
    float dd = 0, dz = (float)cell[KIR_Z] - station[KIR_Z];

    for (int d = 0; d < KIR_AXES; d++)
        dd += ((float)cell[d] - station[d]) * ((float)cell[d] - station[d]);
    return dz > 0 ? dz / sqrtf(dd) : 0;
}

/* The value of a trace for a cell, in units of the image. */
KIR_FN int64_t kir_add(const struct kir_grid *g, const float *trace, float there, float back,
                       float weight)
{
    float at = (there + back) * g->rate, f;
    int i;

    if (!(there + back < KIR_NEVER) || !(at < (float)(g->samples - 1)))
        return 0;
    i = (int)at;
    f = at - (float)i;
    return (int64_t)((trace[i] + f * (trace[i + 1] - trace[i])) * weight * g->scale);
}

#endif
