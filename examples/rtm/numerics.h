/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numerics: this header is compiled by the C compiler for prop_cpu.c and by nvcc for
 * prop_cuda.cu. Every number that depends on the order of operations is computed by one of the
 * functions below. Neither compiler may contract a product and a sum into one operation
 * (-ffp-contract=off, --fmad=false), so that CPU and GPU round alike, and so does every vector
 * width.
 *
 * The equation is p_tt = c^2 lap p + s, second order in time, eighth in space, on cubes of side h.
 * Space is measured in cells, and the model is stored as (c dt / h)^2.
 *
 * Absorbing borders are convolutional perfectly matched layers: along each axis the derivative is
 * stretched, d -> d + psi with psi' = b psi + a d p, twice, which gives
 *
 *     d2 p  ->  t + zeta,  t = d2 p + d1 psi,  zeta' = b zeta + a t
 *
 * psi differs from 0 in the border only, and d1 psi reaches RTM_HALF cells into the model.
 */
#ifndef RTM_NUMERICS_H
#define RTM_NUMERICS_H

#ifdef __CUDACC__
#define RTM_FN static __host__ __device__ __forceinline__
#else
#define RTM_FN static inline
#endif

enum { RTM_HALF = 4 }; /* cells on each side that a stencil reaches */

enum { RTM_Z, RTM_X, RTM_Y, RTM_AXES }; /* z is the fastest in memory, and depth */

/* Coefficients of the centred differences of order 8. */
#define RTM_D2_0 (-205.0f / 72.0f)
#define RTM_D2_1 (8.0f / 5.0f)
#define RTM_D2_2 (-1.0f / 5.0f)
#define RTM_D2_3 (8.0f / 315.0f)
#define RTM_D2_4 (-1.0f / 560.0f)
#define RTM_D1_1 (4.0f / 5.0f)
#define RTM_D1_2 (-1.0f / 5.0f)
#define RTM_D1_3 (4.0f / 105.0f)
#define RTM_D1_4 (-1.0f / 280.0f)

/* Largest eigenvalue of the second difference along one axis; a step is stable if
 * (c dt / h)^2 times this times the number of axes is at most 4. */
#define RTM_D2_RADIUS (205.0 / 72.0 + 2.0 * (8.0 / 5.0 + 1.0 / 5.0 + 8.0 / 315.0 + 1.0 / 560.0))

/*
 * The layout of memory. A field has `m` cells along each axis, including borders, and RTM_HALF cells
 * around them that stay 0. The memory of the borders (psi and zeta) is a slab per axis: as a field
 * without a halo, but along its own axis it has 2 * slab cells, the low border and then the high one.
 */
struct rtm_grid {
    int dims;              /* 2: no y */
    int n[RTM_AXES];       /* cells of the model */
    int m[RTM_AXES];       /* and with borders */
    int border;            /* cells of each absorbing border */
    int slab;              /* border, RTM_HALF zeros outside, and 2 * RTM_HALF cells inside */
    long stride[RTM_AXES]; /* of a field */
    long origin;           /* of cell (0, 0, 0), which is in the corner of the borders */
    long cells;            /* floats in a field */
    long slab_cells[RTM_AXES];
    long slab_stride[RTM_AXES][RTM_AXES];
};

/* The second difference, from the cell and the sums of its neighbours at 1 to 4 cells. */
RTM_FN float rtm_d2_of(float p0, float s1, float s2, float s3, float s4)
{
    return RTM_D2_0 * p0 + RTM_D2_1 * s1 + RTM_D2_2 * s2 + RTM_D2_3 * s3 + RTM_D2_4 * s4;
}

RTM_FN float rtm_d2(const float *p, long s)
{
    return rtm_d2_of(p[0], p[s] + p[-s], p[2 * s] + p[-2 * s], p[3 * s] + p[-3 * s],
                     p[4 * s] + p[-4 * s]);
}

RTM_FN float rtm_d1(const float *p, long s)
{
    return RTM_D1_1 * (p[s] - p[-s]) + RTM_D1_2 * (p[2 * s] - p[-2 * s]) +
           RTM_D1_3 * (p[3 * s] - p[-3 * s]) + RTM_D1_4 * (p[4 * s] - p[-4 * s]);
}

RTM_FN float rtm_lap2(const float *p, long sx)
{
    return rtm_d2(p, 1) + rtm_d2(p, sx);
}

RTM_FN float rtm_lap3(const float *p, long sx, long sy)
{
    return rtm_d2(p, 1) + rtm_d2(p, sx) + rtm_d2(p, sy);
}

/* psi of one cell of a border after a step. */
RTM_FN float rtm_psi(float psi, float a, float b, const float *p, long s)
{
    return b * psi + a * rtm_d1(p, s);
}

/* The term that a border adds to the Laplacian of one cell, along one axis. Advances its zeta by a step. */
RTM_FN float rtm_stretch(const float *psi, long psi_s, float *zeta, float a, float b,
                         const float *p, long s)
{
    float t = rtm_d1(psi, psi_s);
    float z = b * *zeta + a * (rtm_d2(p, s) + t);

    *zeta = z;
    return t + z;
}

RTM_FN float rtm_next(float now, float last, float v2, float lap)
{
    return 2.0f * now - last + v2 * lap;
}

/* Index of cell q along axis d in the slabs of that axis; -1: no border reaches it. */
RTM_FN int rtm_slab_at(const struct rtm_grid *g, int d, int q)
{
    if (q < g->border + RTM_HALF)
        return q + RTM_HALF;
    if (q >= g->n[d] + g->border - RTM_HALF)
        return g->slab + q - (g->n[d] + g->border - 2 * RTM_HALF);
    return -1;
}

/* The cell along axis d that is the k-th of both borders, k from 0 to 2 * border - 1. */
RTM_FN int rtm_border_cell(const struct rtm_grid *g, int d, int k)
{
    return k < g->border ? k : k + g->n[d];
}

/* Image and illumination of one cell. */
RTM_FN void rtm_correlate(float source, float receiver, float *image, float *light)
{
    *image += source * receiver;
    *light += source * source;
}

#endif
