/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: one table of options. */
#include <errno.h>
#include <string.h>

#include "options.h"
#include "rtm.h"

enum kind {
    GRID = OWN,
    IN_MEMORY,
    VARVE, /* a key of the library's configuration */
    LOCAL,
    VARVE_DEVICE_CHOICE
};

static const char *const devices[] = {"cpu", "cuda", NULL};
static const char *const stores[] = {"varve", "file", "memory", NULL};
static const char *const hints[] = {"first", "turn", "none", NULL};
static const char *const accesses[] = {"auto", "copy", "lend", NULL};

#define AT(field) offsetof(struct rtm_params, field)

/* For an option of type VARVE, `more` is the key. */
static const struct rtm_option table[] = {
    {NULL, NULL, TEXT, 0, NULL, "The ground"},
    {"model", "NAME|FILE", TEXT, AT(model), NULL,
     "layers, salt, graded, or a file of floats in m/s, depth fastest, then x, then y (salt)"},
    {"grid", "XxZ|XxYxZ", GRID, 0, NULL, "cells, in two or three dimensions (401x201)"},
    {"spacing", "M", NUMBER, AT(spacing), NULL, "side of a cell in metres (10)"},
    {"migration-model", "FILE", TEXT, AT(migration_model), NULL,
     "velocities to migrate with (the model, smoothed)"},
    {"smooth", "M", NUMBER, AT(smooth), NULL, "how far the model is smoothed (6 cells)"},
    {NULL, NULL, TEXT, 0, NULL, "The survey"},
    {"frequency", "HZ", NUMBER, AT(frequency), NULL, "peak of the Ricker wavelet (15)"},
    {"shots", "N", COUNT, AT(shots), NULL, "how many (1)"},
    {"receiver-step", "CELLS", COUNT, AT(receiver_step), NULL, "between receivers (1, in 3D 2)"},
    {"time", "S", NUMBER, AT(time), NULL, "to listen for (down to the bottom and back)"},
    {"steps", "N", COUNT, AT(steps), NULL, "instead of --time"},
    {"dt", "S", NUMBER, AT(dt), NULL, "time step (0.8 of what is stable)"},
    {"every", "N", COUNT, AT(every), NULL, "steps between snapshots (as the frequency needs)"},
    {"border", "CELLS", COUNT, AT(border), NULL, "width of the absorbing borders (20)"},
    {"data", "FILE", TEXT, AT(data), NULL,
     "observed data: floats, receiver fastest, then step, then shot (modelled)"},
    {"write-data", "FILE", TEXT, AT(write_data), NULL, "keep the modelled data"},
    {NULL, NULL, TEXT, 0, NULL, "The history"},
    {"store", "KIND", CHOICE, AT(store), stores,
     "varve; file: plain blocking writes and reads past the page cache; memory: all in memory"},
    {"in-memory", NULL, IN_MEMORY, 0, NULL, "--store memory: the reference, without Varve"},
    {"memory", "SIZE", SIZE, AT(memory), NULL,
     "memory for the history: the host cache, on a GPU the device cache (1G)"},
    {"device-cache", "SIZE", VARVE, 0, "device_cache",
     "memory of the device for the history; VARVE_* variables are read as by the library"},
    {"host-cache", "SIZE", VARVE, 0, "host_cache", "memory of the host for the history"},
    {"local", "FOLDER", LOCAL, 0, NULL, "on local disk; none: no disk (OUT/history)"},
    {"local-cache", "SIZE", VARVE, 0, "local_cache", "space on disk that is never exceeded"},
    {"local-io", "KIND", VARVE, 0, "local_io", "auto, direct, buffered"},
    {"page", "SIZE", VARVE, 0, "page", "unit of space and transfer"},
    {"policy", "NAME", VARVE, 0, "policy", "next, score, score-now, fifo, lru"},
    {"rate", "HOP=RATE,...", VARVE, 0, "rate", "slow hops down, as h2f=400M,f2h=400M"},
    {"varve-device", "KIND", VARVE_DEVICE_CHOICE, 0, NULL,
     "on the CPU: none, or host: snapshots pass the emulated device's memory"},
    {"zfp", "SHARE", NUMBER, AT(zfp), NULL,
     "compress snapshots, to this share of their largest amplitude, such as 1e-3"},
    {"hints", "WHEN", CHOICE, AT(hints), hints,
     "first: before the first snapshot; turn: before going back; none"},
    {"access", "HOW", CHOICE, AT(access), accesses,
     "copy: checkpoint and restore; lend: write and read in the cache (auto)"},
    {"keep", NULL, CLEAR, AT(consume), NULL, "do not drop snapshots once they were restored"},
    {"no-prefetch", NULL, CLEAR, AT(prefetch), NULL, "begin with the first restore"},
    {NULL, NULL, TEXT, 0, NULL, "The run"},
    {"device", "KIND", CHOICE, AT(device), devices, "cpu or cuda (cpu)"},
    {"threads", "N", COUNT, AT(threads), NULL, "on the CPU (OMP_NUM_THREADS, or all)"},
    {"out", "FOLDER", TEXT, AT(out), NULL, "for all that is written (rtm-out)"},
    {"trace", "FILE", VARVE, 0, "trace_file", "record what happens, for varve trace"},
    {"measure-disk", NULL, SET, AT(measure_disk), NULL, "tell what the disk can do, too"},
    {"json", NULL, SET, AT(json), NULL, "print one object instead of a table"},
    {"quiet", NULL, SET, AT(quiet), NULL, "no progress"},
    {"help", NULL, HELP, 0, NULL, "this text"},
};

void rtm_params_init(struct rtm_params *ret_params)
{
    struct rtm_params p = {
        .dims = 2,
        .n = {201, 401, 1},
        .spacing = 10,
        .model = "salt",
        .smooth = -1,
        .frequency = 15,
        .shots = 1,
        .border = 20,
        .prefetch = true,
        .consume = true,
        .out = "rtm-out",
    };

    *ret_params = p;
}

static int parse_grid(const struct rtm_option *o, const char *text, struct rtm_params *p)
{
    int a, b, c, end = 0, n;
    const int most = 1 << 16;

    n = sscanf(text, "%dx%dx%d%n", &a, &b, &c, &end);
    if (n < 3 && (end = 0, n = sscanf(text, "%dx%d%n", &a, &b, &end)) < 2)
        return rtm_bad_value(o, text, "as 401x201 or 200x200x100");
    if (!end || text[end] || a < 1 || b < 1 || a > most || b > most ||
        (n == 3 && (c < 1 || c > most)))
        return rtm_bad_value(o, text, "as 401x201 or 200x200x100");
    p->dims = n;
    p->n[RTM_X] = a;
    p->n[RTM_Y] = n == 3 ? b : 1;
    p->n[RTM_Z] = n == 3 ? c : b;
    return 0;
}

static int parse_varve(const char *key, const char *value, struct rtm_params *p)
{
    int rc = varve_opts_set(&p->varve, key, value);

    return rc ? rtm_error_varve(NULL, rc, key) : 0;
}

static int parse_own(const struct rtm_option *o, const char *value, void *params)
{
    struct rtm_params *p = params;

    switch ((enum kind)o->kind) {
    case GRID:
        return parse_grid(o, value, p);
    case IN_MEMORY:
        p->store = RTM_STORE_MEMORY;
        return 0;
    case LOCAL:
        p->no_local = strcmp(value, "none") == 0;
        return p->no_local ? 0 : parse_varve("local", value, p);
    case VARVE_DEVICE_CHOICE:
        if (strcmp(value, "none") != 0 && strcmp(value, "host") != 0 &&
            strcmp(value, "emulated") != 0)
            return rtm_bad_value(o, value, "none or host; for a GPU use --device cuda");
        return parse_varve("device", value, p);
    default:
        return parse_varve(o->more, value, p);
    }
}

static const struct rtm_options options = {
    .table = table,
    .nr = sizeof(table) / sizeof(table[0]),
    .count_max = 1000000000,
    .head = "usage: varve-rtm [OPTION]...\n\n"
            "Migrates seismic shots in reverse time, with the history of wavefields in Varve.\n",
    .tail = "\nWrites image.png, image.raw (floats, depth fastest), model.png, migration.png\n"
            "and summary.json into the folder of --out.\n",
    .own = parse_own,
};

/* True if `--name` is among the arguments. */
static bool given(int argc, char **argv, const char *name)
{
    size_t length = strlen(name);

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, name, length) == 0 &&
            (argv[i][2 + length] == 0 || argv[i][2 + length] == '='))
            return true;
    return false;
}

int rtm_args(int argc, char **argv, FILE *out, struct rtm_params *ret_params)
{
    struct rtm_params p;
    int rc;

    rtm_params_init(&p);
    rc = varve_opts_init(&p.varve, sizeof(p.varve));
    if (rc)
        return rtm_error_varve(NULL, rc, "settings");
    rc = rtm_options_read(&options, argc, argv, out, &p);
    if (rc)
        return rc;
    if (!(p.spacing > 0) || !(p.frequency > 0))
        return rtm_error(-EINVAL, "--spacing and --frequency have to be above 0");
    if (p.border < RTM_HALF)
        return rtm_error(-EINVAL, "--border %d: %d cells at least", p.border, RTM_HALF);
    /* An exact option overrides a rough one. */
    if (p.memory && p.device == RTM_CUDA && !given(argc, argv, "device-cache"))
        p.varve.device_cache = p.memory;
    else if (p.memory && p.device != RTM_CUDA && !given(argc, argv, "host-cache"))
        p.varve.host_cache = p.memory;
    *ret_params = p;
    return 0;
}
