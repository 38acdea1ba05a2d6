/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From sums to a picture. Correlating source and receiver fields gives reflectors, and under them a
 * smooth backdrop wherever both fields travel the same way. Dividing by the source's illumination
 * evens out the light; the negative Laplacian weighs each dip by its wave number squared, which
 * takes the backdrop out and keeps the phase.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rtm.h"

static float at(const struct rtm_grid *g, const float *v, int z, int x, int y)
{
    z = z < 0 ? 0 : z >= g->n[RTM_Z] ? g->n[RTM_Z] - 1 : z;
    x = x < 0 ? 0 : x >= g->n[RTM_X] ? g->n[RTM_X] - 1 : x;
    y = y < 0 ? 0 : y >= g->n[RTM_Y] ? g->n[RTM_Y] - 1 : y;
    return v[((long)y * g->n[RTM_X] + x) * g->n[RTM_Z] + z];
}

static float laplacian(const struct rtm_grid *g, const float *v, int z, int x, int y)
{
    float sum = at(g, v, z - 1, x, y) + at(g, v, z + 1, x, y) + at(g, v, z, x - 1, y) +
                at(g, v, z, x + 1, y) - 4 * at(g, v, z, x, y);

    if (g->dims == 3)
        sum += at(g, v, z, x, y - 1) + at(g, v, z, x, y + 1) - 2 * at(g, v, z, x, y);
    return sum;
}

/* 0 down to depth `mute`, where the amplitudes of sources and receivers dominate, then rising to 1. */
static float taper(int z, int mute)
{
    const double pi = 3.14159265358979323846;
    int full = 4 * mute;

    if (z < mute)
        return 0;
    if (z >= full)
        return 1;
    return (float)(0.5 - 0.5 * cos(pi * (z - mute) / (full - mute)));
}

void rtm_image_finish(const struct rtm_grid *g, const float *image, const float *light,
                      double spacing, int mute, float *ret_raw, float *ret_filtered)
{
    long points = rtm_grid_points(g);
    float brightest = 0, floor;

    /* Points with hardly any illumination are not amplified further. */
    for (long k = 0; k < points; k++)
        brightest = light[k] > brightest ? light[k] : brightest;
    floor = 1e-4f * brightest;
    if (!(floor > 0))
        floor = 1;
    RTM_PARALLEL
    for (long k = 0; k < points; k++)
        ret_raw[k] = image[k] / (light[k] + floor);
    RTM_PARALLEL
    for (long column = 0; column < (long)g->n[RTM_Y] * g->n[RTM_X]; column++) {
        int x = (int)(column % g->n[RTM_X]), y = (int)(column / g->n[RTM_X]);

        for (int z = 0; z < g->n[RTM_Z]; z++)
            ret_filtered[column * g->n[RTM_Z] + z] =
                -laplacian(g, ret_raw, z, x, y) * taper(z, mute) / (float)(spacing * spacing);
    }
}

/* ---- pictures ---- */

static double gamma_of(double v)
{
    v = v < 0 ? 0 : v > 1 ? 1 : v;
    return v <= 0.0031308 ? 12.92 * v : 1.055 * pow(v, 1 / 2.4) - 0.055;
}

static double lab_inverse(double t)
{
    return t > 6.0 / 29 ? t * t * t : 3 * 36.0 / 841 * (t - 4.0 / 29);
}

/* A colour by lightness (0 to 100), chroma and hue (degrees) in CIE Lab, as sRGB. */
static void lab_colour(double lightness, double chroma, double hue, uint8_t rgb[3])
{
    const double pi = 3.14159265358979323846;
    double a = chroma * cos(hue * pi / 180), b = chroma * sin(hue * pi / 180);
    double fy = (lightness + 16) / 116;
    double x = 0.95047 * lab_inverse(fy + a / 500), y = lab_inverse(fy);
    double z = 1.08883 * lab_inverse(fy - b / 200);
    double linear[3] = {3.2406 * x - 1.5372 * y - 0.4986 * z, -0.9689 * x + 1.8758 * y + 0.0415 * z,
                        0.0557 * x - 0.2040 * y + 1.0570 * z};

    for (int i = 0; i < 3; i++)
        rgb[i] = (uint8_t)lround(255 * gamma_of(linear[i]));
}

/* Lightness rises evenly, so that equal steps look equal, in grey as well. */
static void model_palette(uint8_t palette[256][3])
{
    for (int i = 0; i < 256; i++) {
        double t = i / 255.0;

        lab_colour(22 + 70 * t, 28 + 34 * sin(3.0 * t), 285 - 195 * t, palette[i]);
    }
}

static void grey_palette(uint8_t palette[256][3])
{
    for (int i = 0; i < 256; i++)
        for (int k = 0; k < 3; k++)
            palette[i][k] = (uint8_t)(255 - i);
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* The amplitude that 98 of 100 cells stay below, of those that are not near the surface. */
static float clip_of(const struct rtm_grid *g, const float *v)
{
    long points = rtm_grid_points(g), step = points / 200000 + 1, count = 0;
    float *sorted = malloc((size_t)(points / step + 1) * sizeof(*sorted)), clip;

    if (!sorted)
        return 1;
    for (long i = 0; i < points; i += step)
        if (i % g->n[RTM_Z] >= g->n[RTM_Z] / 5)
            sorted[count++] = fabsf(v[i]);
    qsort(sorted, (size_t)count, sizeof(*sorted), by_size);
    clip = count ? sorted[count * 98 / 100] : 0;
    free(sorted);
    return clip > 0 ? clip : 1;
}

struct shades {
    float low, high;
};

static uint8_t shade(const struct shades *s, float v)
{
    float t = (v - s->low) / (s->high - s->low);

    return (uint8_t)(t <= 0 ? 0 : t >= 1 ? 255 : lroundf(t * 255));
}

/* A section along x at the given y, or along y at the given x, `scale` pixels a cell. */
static void draw(const struct rtm_grid *g, const float *v, bool along_y, int scale,
                 const struct shades *s, uint8_t *to, int width)
{
    int across = along_y ? g->n[RTM_Y] : g->n[RTM_X];

    for (int py = 0; py < g->n[RTM_Z] * scale; py++)
        for (int px = 0; px < across * scale; px++) {
            float fz = ((float)py + 0.5f) / (float)scale - 0.5f,
                  fx = ((float)px + 0.5f) / (float)scale - 0.5f;
            int z = (int)floorf(fz), x = (int)floorf(fx);
            float wz = fz - (float)z, wx = fx - (float)x, c[2][2];

            for (int i = 0; i < 2; i++)
                for (int k = 0; k < 2; k++)
                    c[i][k] = along_y ? at(g, v, z + i, g->n[RTM_X] / 2, x + k)
                                      : at(g, v, z + i, x + k, g->n[RTM_Y] / 2);
            to[(size_t)py * (size_t)width + (size_t)px] =
                shade(s, (c[0][0] * (1 - wx) + c[0][1] * wx) * (1 - wz) +
                             (c[1][0] * (1 - wx) + c[1][1] * wx) * wz);
        }
}

int rtm_image_png(const struct rtm_grid *g, const float *values, bool is_model, uint8_t **ret_png,
                  size_t *ret_bytes)
{
    enum { GAP = 6, WIDTH = 800 };
    int cells = g->n[RTM_X] + (g->dims == 3 ? g->n[RTM_Y] : 0);
    int scale = (WIDTH + cells / 2) / cells < 1 ? 1 : (WIDTH + cells / 2) / cells;
    int width = cells * scale + (g->dims == 3 ? GAP : 0), height = g->n[RTM_Z] * scale;
    uint8_t *pixels = calloc((size_t)width, (size_t)height), palette[256][3];
    struct shades s;
    int rc;

    if (!pixels)
        return rtm_error(-ENOMEM, "no memory for a picture");
    if (is_model) {
        rtm_model_range(values, rtm_grid_points(g), &s.low, &s.high);
        if (!(s.high > s.low))
            s.high = s.low + 1;
        model_palette(palette);
    } else {
        s.high = clip_of(g, values);
        s.low = -s.high;
        grey_palette(palette);
    }
    draw(g, values, false, scale, &s, pixels, width);
    if (g->dims == 3)
        draw(g, values, true, scale, &s, pixels + g->n[RTM_X] * scale + GAP, width);
    rc = rtm_png(width, height, pixels, palette, ret_png, ret_bytes);
    free(pixels);
    return rc;
}
