/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: one table of options. */
#include <errno.h>

#include "kirchhoff.h"
#include "options.h"
#include "rtm.h"

enum kind { GRID = OWN, STATIONS };

static const char *const devices[] = {"cpu", "host|emulated", "cuda", NULL};
static const char *const layouts[] = {"flat", "chunked", NULL};

_Static_assert((int)KIR_PATH == (int)RTM_PATH, "both are TEXT");

#define AT(field) offsetof(struct kir_params, field)

static const struct rtm_option table[] = {
    {NULL, NULL, TEXT, 0, NULL, "The ground"},
    {"model", "NAME|FILE", TEXT, AT(model), NULL,
     "layers, salt, graded, or a file of floats in m/s, depth fastest, then x, then y (graded)"},
    {"grid", "XxZ|XxYxZ", GRID, 0, NULL, "cells, in two or three dimensions (401x201)"},
    {"spacing", "M", POSITIVE, AT(spacing), NULL, "side of a cell in metres (10)"},
    {"smooth", "M", POSITIVE, AT(smooth), NULL, "how far the model is smoothed for rays (8 cells)"},
    {NULL, NULL, TEXT, 0, NULL, "The survey"},
    {"frequency", "HZ", POSITIVE, AT(frequency), NULL, "peak of the Ricker wavelet (25)"},
    {"stations", "N|NxM", STATIONS, 0, NULL, "along x, in 3D along x and y (41, 9x9)"},
    {"offset", "M", POSITIVE, AT(offset), NULL, "from source to receiver at most (the depth)"},
    {"aperture", "M", POSITIVE, AT(aperture), NULL,
     "from a station to what it sees at most (1.2 times the depth)"},
    {"time", "S", POSITIVE, AT(time), NULL, "of a trace (there and back)"},
    {"table-step", "CELLS", COUNT, AT(table_step), NULL, "between nodes of a table (4)"},
    {NULL, NULL, TEXT, 0, NULL, "The run"},
    {"device", "KIND", CHOICE, AT(device), devices,
     "cpu: all in memory; host, which is emulated, and cuda: with caches on a device (cpu)"},
    {"model-cache", "SIZE", SIZE, AT(model_cache), NULL,
     "for blocks of the model, on the device (a quarter of it, or 27 blocks)"},
    {"edge", "CELLS", COUNT, AT(edge), NULL, "of a block, a power of two (16)"},
    {"together", "N", COUNT, AT(together), NULL,
     "stations whose rays are traced at once on a device (4)"},
    {"table-cache", "SIZE", SIZE, AT(table_cache), NULL,
     "for tables of times, on the device (a quarter of them, or what an item needs if that is "
     "more)"},
    {"layout", "KIND", CHOICE, AT(layout), layouts, "of tables there: flat, chunked (flat)"},
    {"fallback", NULL, SET, AT(fallback), NULL, "the processor may do items, too"},
    {"threads", "N", COUNT, AT(threads), NULL, "on the CPU (OMP_NUM_THREADS, or all)"},
    {"out", "FOLDER", TEXT, AT(out), NULL, "for all that is written (kirchhoff-out)"},
    {"json", NULL, SET, AT(json), NULL, "print one object instead of a table"},
    {"quiet", NULL, SET, AT(quiet), NULL, "no progress"},
    {"help", NULL, HELP, 0, NULL, "this text"},
};

void kir_params_init(struct kir_params *ret_params)
{
    struct kir_params p = {
        .dims = 2,
        .n = {201, 401, 1},
        .spacing = 10,
        .model = "graded",
        .smooth = -1,
        .frequency = 25,
        .table_step = 4,
        .edge = 16,
        .together = 4,
        .out = "kirchhoff-out",
    };

    *ret_params = p;
}

static int parse_grid(const struct rtm_option *o, const char *text, struct kir_params *p)
{
    int a, b, c = 1, end = 0, n = sscanf(text, "%dx%dx%d%n", &a, &b, &c, &end);

    if (n < 3) {
        c = 1;
        n = sscanf(text, "%dx%d%n", &a, &b, &end);
    }
    if (n < 2 || !end || text[end] || a < 8 || b < 8 || (n == 3 && c < 8) || a > 1 << 14 ||
        b > 1 << 14 || c > 1 << 14)
        return rtm_bad_value(o, text, "as 401x201 or 200x200x100, 8 cells at least");
    p->dims = n;
    p->n[KIR_X] = a;
    p->n[KIR_Y] = n == 3 ? b : 1;
    p->n[KIR_Z] = n == 3 ? c : b;
    return 0;
}

static int parse_stations(const struct rtm_option *o, const char *text, struct kir_params *p)
{
    int a, b = 1, end = 0, n = sscanf(text, "%dx%d%n", &a, &b, &end);

    if (n < 2) {
        b = 1;
        n = sscanf(text, "%d%n", &a, &end);
    }
    if (n < 1 || !end || text[end] || a < 1 || b < 1 || a > 1 << 12 || b > 1 << 12)
        return rtm_bad_value(o, text, "as 41, in three dimensions as 9x9");
    p->stations[0] = a;
    p->stations[1] = b;
    return 0;
}

static int parse_own(const struct rtm_option *o, const char *value, void *params)
{
    return o->kind == GRID ? parse_grid(o, value, params) : parse_stations(o, value, params);
}

static const struct rtm_options options = {
    .table = table,
    .nr = sizeof(table) / sizeof(table[0]),
    .count_max = 1000000,
    .head = "usage: varve-kirchhoff [OPTION]...\n\n"
            "Migrates seismic traces by the times that waves need, with the velocity model\n"
            "and the tables of times in caches of Varve.\n",
    .tail = "\nWrites image.png, image.raw (floats, depth fastest), model.png, smooth.png and\n"
            "summary.json into the folder of --out.\n",
    .own = parse_own,
};

/* Checks the combination of options, and fills in defaults that depend on others. */
static int finish(struct kir_params *p)
{
    if (!p->stations[0]) {
        p->stations[0] = p->dims == 3 ? 9 : 41;
        p->stations[1] = p->dims == 3 ? 9 : 1;
    }
    if (p->dims == 2 && p->stations[1] > 1)
        return rtm_error(-EINVAL, "--stations %dx%d: a grid of two dimensions has one row",
                         p->stations[0], p->stations[1]);
    if (p->stations[0] > p->n[KIR_X] || p->stations[1] > p->n[KIR_Y])
        return rtm_error(-EINVAL, "--stations %dx%d: more than there are cells at the surface",
                         p->stations[0], p->stations[1]);
    if (p->device == KIR_CPU && (p->model_cache || p->table_cache))
        return rtm_error(-EINVAL,
                         "--%s: there is a cache on a device only: set --device, or leave it out",
                         p->model_cache ? "model-cache" : "table-cache");
    if (p->edge & (p->edge - 1))
        return rtm_error(-EINVAL, "--edge %d: a power of two is needed", p->edge);
    if (p->table_step >= p->n[KIR_Z] || p->table_step >= p->n[KIR_X])
        return rtm_error(-EINVAL, "--table-step %d: more than the grid has cells", p->table_step);
    return 0;
}

int kir_args(int argc, char **argv, FILE *out, struct kir_params *ret_params)
{
    struct kir_params p;
    int rc;

    kir_params_init(&p);
    rc = rtm_options_read(&options, argc, argv, out, &p);
    if (rc == 0)
        rc = finish(&p);
    if (rc == 0)
        *ret_params = p;
    return rc;
}
