/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of cells, and the coefficients of absorbing borders. */
#include <math.h>
#include <string.h>

#include "rtm.h"

void rtm_grid_init(struct rtm_grid *g, int dims, const int n[RTM_AXES], int border)
{
    long size = 1;

    memset(g, 0, sizeof(*g));
    g->dims = dims;
    g->border = border;
    g->slab = border + 3 * RTM_HALF;
    for (int d = 0; d < RTM_AXES; d++) {
        g->n[d] = d < dims ? n[d] : 1;
        g->m[d] = d < dims ? n[d] + 2 * border : 1;
        g->stride[d] = size;
        size *= d < dims ? g->m[d] + 2 * RTM_HALF : 1;
    }
    g->cells = size;
    for (int d = 0; d < dims; d++) {
        long cells = 1;

        g->origin += RTM_HALF * g->stride[d];
        for (int e = 0; e < RTM_AXES; e++) {
            g->slab_stride[d][e] = cells;
            cells *= e == d ? 2 * g->slab : g->m[e];
        }
        g->slab_cells[d] = cells;
    }
}

long rtm_grid_cell(const struct rtm_grid *g, int z, int x, int y)
{
    int at[RTM_AXES] = {z, x, y};
    long cell = g->origin;

    for (int d = 0; d < g->dims; d++)
        cell += (at[d] + g->border) * g->stride[d];
    return cell;
}

long rtm_grid_points(const struct rtm_grid *g)
{
    return (long)g->n[RTM_Z] * g->n[RTM_X] * g->n[RTM_Y];
}

double rtm_grid_dt_max(int dims, double spacing, double velocity)
{
    return 2.0 * spacing / (velocity * sqrt(dims * RTM_D2_RADIUS));
}

/* Damping grows with the square of the depth in the border, to a value that lets 1e-5 of a wave at
 * normal incidence return; the shift keeps waves of low frequency and grazing incidence from
 * growing. Velocity in cells and frequency in cycles, per time step. */
void rtm_grid_stretch(const struct rtm_grid *g, int d, double velocity_dt, double frequency_dt,
                      float *a, float *b)
{
    const double pi = 3.14159265358979323846;
    double top = -3.0 * velocity_dt * log(1e-5) / (2.0 * g->border);

    memset(a, 0, 2 * (size_t)g->slab * sizeof(*a));
    memset(b, 0, 2 * (size_t)g->slab * sizeof(*b));
    for (int k = 0; k < 2 * g->border; k++) {
        int q = rtm_border_cell(g, d, k);
        double depth = k < g->border ? g->border - k : k - g->border + 1; /* 1: next to the model */
        double share = depth / g->border;
        double damp = top * share * share;
        double shift = pi * frequency_dt * (1.0 - share);
        double decay = exp(-(damp + shift));
        int at = rtm_slab_at(g, d, q);

        a[at] = (float)(damp / (damp + shift) * (decay - 1.0));
        b[at] = (float)decay;
    }
}
