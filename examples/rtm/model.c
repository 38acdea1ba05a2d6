/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Velocity models. The built-in ones are functions of place, as shares of the model's size, so that they look alike at any size of the grid. In 3D the structures vary along y too.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rtm.h"

#define PI 3.14159265358979323846

/* A place, as shares of width (x, y) and depth (z). */
struct place {
    double x, y, z;
};

/* Folded and dipping layers, thicker with depth. */
static double layers(const struct place *p)
{
    static const struct {
        double top, dip, fold, phase, velocity;
    } layer[] = {
        {0.22, 0.00, 0.020, 0.0, 1850},  {0.36, 0.06, 0.025, 0.9, 2150},
        {0.52, -0.08, 0.035, 2.1, 2500}, {0.68, 0.05, 0.050, 3.4, 2900},
        {0.85, 0.00, 0.000, 0.0, 3400},
    };
    double v = 1500;

    for (size_t i = 0; i < sizeof(layer) / sizeof(layer[0]); i++) {
        double top = layer[i].top + layer[i].dip * (p->x - 0.5) +
                     0.5 * layer[i].dip * (p->y - 0.5) +
                     layer[i].fold * sin(2 * PI * (1.5 * p->x + 0.7 * p->y) + layer[i].phase);

        if (p->z >= top)
            v = layer[i].velocity;
    }
    return v;
}

/* A salt body: a bulb that overhangs its stem, which widens towards the base. In 3D it is lobed. */
static bool in_salt(const struct place *p)
{
    double dx = p->x - 0.5, dy = 0.8 * (p->y - 0.5), r = sqrt(dx * dx + dy * dy);
    double angle = atan2(dy, dx), lobes = 1 + 0.10 * cos(3 * angle + 0.6);
    double bulb_r = r / (0.20 * lobes), bulb_z = (p->z - 0.44) / 0.14;
    double roof = 0.018 * sin(31 * p->x + 1) * cos(17 * p->y);
    double stem = 0.055 + 0.5 * (p->z - 0.62) * (p->z - 0.62);

    if (bulb_r * bulb_r + (bulb_z + roof / 0.14) * (bulb_z + roof / 0.14) < 1)
        return true;
    return p->z > 0.44 && p->z < 0.86 && r < stem * lobes;
}

/* Water, sediments that the salt has bent up, a flat base under all of it, three scatterers. */
static double salt(const struct place *p)
{
    static const double scatterer[][3] = {{0.12, 0.5, 0.48}, {0.20, 0.5, 0.70}, {0.86, 0.5, 0.40}};
    double dx = p->x - 0.5, dy = 0.8 * (p->y - 0.5), r2 = dx * dx + dy * dy;
    double z = p->z + 0.10 * exp(-r2 / 0.045); /* dragged up along the flanks */

    if (p->z < 0.12 + 0.012 * sin(5 * p->x + 3 * p->y))
        return 1500;
    if (p->z >= 0.86)
        return 3600;
    for (size_t i = 0; i < sizeof(scatterer) / sizeof(scatterer[0]); i++) {
        double ex = p->x - scatterer[i][0], ey = p->y - scatterer[i][1],
               ez = p->z - scatterer[i][2];

        if (4 * ex * ex + 4 * ey * ey + ez * ez < 0.013 * 0.013)
            return 3600;
    }
    if (in_salt(p))
        return 4400;
    return 1650 + 1500 * z + (fmod(z, 0.16) < 0.08 ? 110 : -70);
}

/* Velocity grows with depth; a faint fault block, a lens of gas and four scatterers are to be found. */
static double graded(const struct place *p)
{
    static const double scatterer[][3] = {
        {0.2, 0.5, 0.30}, {0.4, 0.5, 0.45}, {0.6, 0.5, 0.6}, {0.8, 0.5, 0.38}};
    double v = 1500 + 1800 * p->z;
    double lens_x = (p->x - 0.70) / 0.10, lens_y = (p->y - 0.5) / 0.20,
           lens_z = (p->z - 0.74) / 0.03;

    for (size_t i = 0; i < sizeof(scatterer) / sizeof(scatterer[0]); i++) {
        double dx = p->x - scatterer[i][0], dy = p->y - scatterer[i][1],
               dz = p->z - scatterer[i][2];

        if (4 * dx * dx + 4 * dy * dy + dz * dz < 0.012 * 0.012)
            return v + 1000;
    }
    if (lens_x * lens_x + lens_y * lens_y + lens_z * lens_z < 1)
        return 0.85 * v;
    if (p->z > 0.84 + (p->x < 0.45 ? 0.04 : -0.02) + 0.03 * (p->y - 0.5))
        v += 450;
    return v;
}

static const struct {
    const char *name;
    double (*velocity)(const struct place *p);
} built_in[] = {{"layers", layers}, {"salt", salt}, {"graded", graded}};

static void build(double (*velocity)(const struct place *p), const int n[RTM_AXES], float *to)
{
    RTM_PARALLEL
    for (long column = 0; column < (long)n[RTM_Y] * n[RTM_X]; column++) {
        int y = (int)(column / n[RTM_X]), x = (int)(column % n[RTM_X]);

        for (int z = 0; z < n[RTM_Z]; z++) {
            struct place p = {
                .x = (x + 0.5) / n[RTM_X],
                .y = (y + 0.5) / n[RTM_Y],
                .z = (z + 0.5) / n[RTM_Z],
            };

            to[column * n[RTM_Z] + z] = (float)velocity(&p);
        }
    }
}

static int read_model(const char *path, const int n[RTM_AXES], float *to)
{
    size_t points = (size_t)n[RTM_Z] * (size_t)n[RTM_X] * (size_t)n[RTM_Y];
    FILE *f = fopen(path, "rb");
    struct stat st;
    size_t got;

    if (!f)
        return rtm_error(-errno,
                         "model %s: %s; it may be layers, salt, graded, or a file of floats", path,
                         strerror(errno));
    if (fstat(fileno(f), &st) != 0 || (uint64_t)st.st_size != points * sizeof(float)) {
        fclose(f);
        return rtm_error(-EINVAL,
                         "model %s has %lld bytes, and a grid of %d x %d x %d floats (z fastest, "
                         "then x, then y) has %zu: set --grid to what is in the file",
                         path, (long long)st.st_size, n[RTM_Z], n[RTM_X], n[RTM_Y],
                         points * sizeof(float));
    }
    got = fread(to, sizeof(float), points, f);
    fclose(f);
    if (got != points)
        return rtm_error(-EIO, "model %s cannot be read", path);
    for (size_t i = 0; i < points; i++)
        if (!(to[i] >= 50 && to[i] <= 20000))
            return rtm_error(
                -EINVAL,
                "model %s: cell %zu has %g, which is no velocity in m/s: the file must "
                "hold little-endian floats of 50 to 20000",
                path, i, (double)to[i]);
    return 0;
}

int rtm_model_new(const char *name, int dims, const int n[RTM_AXES], float **ret_velocity)
{
    int size[RTM_AXES] = {n[RTM_Z], n[RTM_X], dims == 3 ? n[RTM_Y] : 1};
    float *v = malloc((size_t)size[0] * (size_t)size[1] * (size_t)size[2] * sizeof(*v));
    int rc = 0;

    if (!v)
        return rtm_error(-ENOMEM,
                         "not enough memory for the model: make the grid smaller (--grid)");
    for (size_t i = 0; i < sizeof(built_in) / sizeof(built_in[0]); i++)
        if (strcmp(name, built_in[i].name) == 0) {
            build(built_in[i].velocity, size, v);
            *ret_velocity = v;
            return 0;
        }
    rc = read_model(name, size, v);
    if (rc == 0)
        *ret_velocity = v;
    else
        free(v);
    return rc;
}

/* A running mean over 2 * half + 1 values of a line, which is extended by its ends, three times. */
static void smooth_line(float *line, long stride, int count, int half, double *buffer)
{
    for (int pass = 0; pass < 3; pass++) {
        double sum = 0;

        for (int i = 0; i < count; i++)
            buffer[i] = line[i * stride];
        for (int i = -half; i <= half; i++)
            sum += buffer[i < 0 ? 0 : i >= count ? count - 1 : i];
        for (int i = 0; i < count; i++) {
            int out = i - half, in = i + half + 1;

            line[i * stride] = (float)(sum / (2 * half + 1));
            sum += buffer[in >= count ? count - 1 : in] - buffer[out < 0 ? 0 : out];
        }
    }
}

/* Three running means along each axis come close to a Gaussian whose standard deviation is `cells`.
 * They work on slowness, so that travel times are kept. */
int rtm_model_smooth(const int n[RTM_AXES], double cells, float *velocity)
{
    long points = (long)n[RTM_Z] * n[RTM_X] * n[RTM_Y];
    long stride[RTM_AXES] = {1, n[RTM_Z], (long)n[RTM_Z] * n[RTM_X]};
    int half = (int)lround((sqrt(4 * cells * cells + 1) - 1) / 2);
    bool failed = false;

    if (half < 1)
        return 0;
    RTM_PARALLEL
    for (long i = 0; i < points; i++)
        velocity[i] = 1 / velocity[i];
    for (int d = 0; d < RTM_AXES; d++) {
        if (n[d] == 1)
            continue;
        RTM_PARALLEL
        for (long line = 0; line < points / n[d]; line++) {
            double *buffer = malloc((size_t)n[d] * sizeof(*buffer));
            long at = line / stride[d] * stride[d] * n[d] + line % stride[d];

            if (buffer)
                smooth_line(velocity + at, stride[d], n[d], half, buffer);
            else
                failed = true;
            free(buffer);
        }
    }
    RTM_PARALLEL
    for (long i = 0; i < points; i++)
        velocity[i] = 1 / velocity[i];
    return failed ? rtm_error(-ENOMEM, "out of memory") : 0;
}

void rtm_model_range(const float *velocity, long points, float *ret_min, float *ret_max)
{
    float min = velocity[0], max = velocity[0];

    for (long i = 1; i < points; i++) {
        min = velocity[i] < min ? velocity[i] : min;
        max = velocity[i] > max ? velocity[i] : max;
    }
    *ret_min = min;
    *ret_max = max;
}
