/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of `varve bench blocks`, and its results: a table or JSON on standard output, rows as CSV,
 * and a folder with all of it, samples, charts and a page (ooc_page.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/config.h"
#include "cli/common/command.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "lab/ooc/ooc_command.h"
#include "lab/ooc/ooc_page.h"

#define COMMAND "varve bench blocks"

static int parse_sizes(const char *text, struct ooc_survey_opts *s)
{
    const char *colon = strchr(text, ':');
    char least[32];

    if (!colon || colon - text >= (ptrdiff_t)sizeof(least))
        return -EINVAL;
    snprintf(least, sizeof(least), "%.*s", (int)(colon - text), text);
    if (vv_bytes_parse(least, &s->least_bytes) < 0 || vv_bytes_parse(colon + 1, &s->most_bytes) < 0)
        return -EINVAL;
    return s->least_bytes < 64 || s->most_bytes <= s->least_bytes || s->most_bytes > 1u << 30
               ? -EINVAL
               : 0;
}

/* For both experiments. */
static int parse_cache(const char *text, struct ooc_options *o)
{
    struct ooc_wave_opts *w = &o->wave;
    char *end;
    double share = strtod(text, &end);

    if (end != text && strcmp(end, "%") == 0) {
        if (!(share > 0 && share <= 100))
            return -EINVAL;
        w->share = o->survey.share = share / 100;
        w->cache_bytes = o->survey.cache_bytes = 0;
        return 0;
    }
    if (vv_bytes_parse(text, &w->cache_bytes) < 0 || w->cache_bytes == 0)
        return -EINVAL;
    o->survey.cache_bytes = w->cache_bytes;
    return 0;
}

static int set_device(const char *text, void *arg)
{
    static const char *const names[] = {"auto", "host", "cuda"};

    for (int i = 0; i < 3; i++)
        if (strcmp(vv_config_device_word(text), names[i]) == 0) {
            ((struct ooc_options *)arg)->device = (enum ooc_device)i;
            return 0;
        }
    return -EINVAL;
}

static int set_sizes(const char *value, void *arg)
{
    return parse_sizes(value, &((struct ooc_options *)arg)->survey);
}

static int set_cache(const char *value, void *arg)
{
    return parse_cache(value, arg);
}

static int set_edge(const char *value, void *arg)
{
    uint64_t n;

    if (opts_number(value, 2, 256, &n) < 0 || (n & (n - 1)))
        return -EINVAL;
    ((struct ooc_options *)arg)->wave.edge = (uint32_t)n;
    return 0;
}

/* For both experiments. */
static int set_seed(const char *value, void *arg)
{
    struct ooc_options *o = arg;
    int rc = opts_number(value, 1, UINT64_MAX, &o->wave.seed);

    o->survey.seed = o->wave.seed;
    return rc;
}

static int set_ways(const char *value, void *arg)
{
    struct ooc_options *o = arg;

    o->wave.ways = o->survey.ways = value;
    return 0;
}

#define AT(field)  offsetof(struct ooc_options, field)
#define DATA_TAKES "a size from 4K to 4T, as 12G"
#define DATA_LIMIT .least = 4096, .most = UINT64_C(1) << 42

static const struct opt option_list[] = {
    {OPT_SET, .name = "device", .arg = "KIND", .set = set_device,
     .help = "host (emulated), cuda, or auto: a GPU if there is one (auto)",
     .takes = "host (the emulated device), cuda or auto"},
    {OPT_BYTES, .name = "volume", .arg = "SIZE", .at = AT(wave.volume_bytes), DATA_LIMIT,
     .given = OPT_GIVEN(struct ooc_options, volume), .takes = DATA_TAKES,
     .help = "size of the volume (12G; emulated 8M)"},
    {OPT_BYTES, .name = "tables", .arg = "SIZE", .at = AT(survey.tables_bytes), DATA_LIMIT,
     .given = OPT_GIVEN(struct ooc_options, tables), .takes = DATA_TAKES,
     .help = "size of all tables"},
    {OPT_SET, .name = "cache", .arg = "SIZE|P%", .set = set_cache,
     .help = "cache on the device (25%)",
     .takes = "a size, as 3G, or a share above 0% and up to 100%"},
    {OPT_SET, .name = "seed", .arg = "N", .set = set_seed,
     .help = "seed of places, sizes and values (1)", .takes = "a whole number above 0"},
    {OPT_SET, .name = "ways", .arg = "LIST", .set = set_ways,
     .help = "only these, and everything resident, which all are compared with:\n"
             "names as the results have them, '-' for a blank, commas between them"},
    {OPT_TEXT, .name = "csv", .arg = "FILE", .at = AT(csv),
     .help = "write the rows as CSV; -: to standard output"},
    {OPT_TEXT, .name = "out", .arg = "FOLDER", .at = AT(out),
     .help = "write rows, samples, charts and index.html into it"},
    {OPT_FLAG, .name = "json", .help = "print one JSON object", .at = AT(json)},
    {OPT_NOTE, .help = "\nThe wave:"},
    {OPT_U32, .name = "points", .arg = "N", .at = AT(wave.points), .least = 1, .most = 1u << 30,
     .help = "(1000000; emulated 5000)"},
    {OPT_U32, .name = "steps", .arg = "N", .at = AT(wave.steps), .least = 1, .most = 1u << 20,
     .help = "from corner to corner (200; emulated 40)"},
    {OPT_SET, .name = "edge", .arg = "N", .set = set_edge,
     .help = "of a block, in cells: a power of two (32; emulated 16)",
     .takes = "a power of two from 2 to 256"},
    {OPT_U32, .name = "ahead", .arg = "N", .at = AT(wave.ahead), .most = VARVE_BLOCKS_AHEAD_MAX,
     .help = "blocks brought beyond each one that was missing, 8 at most (1)"},
    {OPT_NOTE, .help = "\nThe survey:"},
    {OPT_SET, .name = "sizes", .arg = "MIN:MAX", .set = set_sizes,
     .help = "of a table, drawn log-uniform (300000:20000000; emulated 16K:128K)",
     .takes = "two sizes from 64 to 1G, the smaller one first, as 300K:20M"},
    {OPT_U32, .name = "reads", .arg = "N", .at = AT(survey.reads), .least = 1, .most = 1u << 24,
     .help = "elements of each of its tables that an item reads (65536; emulated 64)"},
    {OPT_FLAG, .name = "fallback", .help = "the processor may do items, too",
     .at = AT(survey.fallback)},
};

static const struct opts command = {
    .command = COMMAND,
    .usage = "[--volume SIZE | --tables SIZE] [OPTION]...",
    .about =
        "Computes on data that do not fit the device's cache, in several ways that give the same\n"
        "sums. A wave of points passes through a volume: everything resident, blocks that kernels\n"
        "ask for, by the policy of the Kirchhoff paper, read from host memory, managed by the "
        "driver. Or, "
        "with\n"
        "--tables, items of work go through tables in the order of a survey: everything resident,\n"
        "tables in both layouts, by the policy of the paper, double buffering, and the same two.",
    OPT_LIST(option_list),
};

static int check_ways(const struct ooc_options *o)
{
    size_t nr;
    const char *const *names = o->tables ? ooc_survey_ways(&nr) : ooc_wave_ways(&nr);

    if (!o->wave.ways || ooc_ways_check(o->wave.ways, names, nr) == 0)
        return 0;
    fprintf(stderr, COMMAND ": --ways: '%s' is not a list of", o->wave.ways);
    for (size_t i = 0; i < nr; i++) {
        fprintf(stderr, "%s ", i ? "," : "");
        for (const char *c = names[i]; *c; c++)
            fputc(*c == ' ' ? '-' : *c, stderr);
    }
    fputc('\n', stderr);
    return -EINVAL;
}

int ooc_parse(int argc, char **argv, bool small, struct ooc_options *ret_options)
{
    struct ooc_options *o = ret_options;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int first, status;

    *o = (struct ooc_options){.wave = {.seed = 1, .share = 0.25, .ahead = 1}};
    o->survey = (struct ooc_survey_opts){.seed = 1,
                                         .share = 0.25,
                                         .least_bytes = small ? 16 << 10 : 300000,
                                         .most_bytes = small ? 128 << 10 : 20000000,
                                         .reads = small ? 64 : 65536};
    o->wave.volume_bytes = small ? UINT64_C(8) << 20 : UINT64_C(12) << 30;
    o->wave.points = small ? 5000 : 1000000;
    o->wave.steps = small ? 40 : 200;
    o->wave.edge = small ? 16 : 32;
    o->wave.jobs = cpus < 1 ? 1 : cpus > 64 ? 64 : (unsigned)cpus;
    o->survey.jobs = o->wave.jobs;
    status = opts_parse(&command, argc, argv, o, &first);
    if (status >= 0)
        return status;
    if (o->tables && o->volume) {
        fprintf(stderr, COMMAND ": --volume and --tables are both given, expected one\n");
        return CLI_USAGE;
    }
    return check_ways(o) < 0 ? CLI_USAGE : -1;
}

/* ---- results ---- */

struct result {
    const struct ooc_options *o;
    struct ooc_report r;
};

/* The time of the caller's thread by its use, and that of the link. */
static void print_times(const struct ooc_report *r)
{
    printf("\n| %-13s | %9s | %9s | %9s | %9s | %9s | %9s |\n", "milliseconds", "all", "managing",
           "copying", "launching", "waiting", "link");
    printf("| --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < r->nr_ways; i++) {
        const struct ooc_way *w = &r->ways[i];

        if (!w->skipped[0])
            printf("| %-13s | %9.2f | %9.2f | %9.2f | %9.2f | %9.2f | %9.2f |\n", w->name,
                   1e3 * w->seconds, 1e3 * w->management_s, 1e3 * w->moving_s, 1e3 * w->launching_s,
                   1e3 * w->waiting_s, 1e3 * (double)w->bytes / r->link_bps);
    }
    printf(
        "\ncopying, launching: calls that do. waiting: for kernels, copies and other threads, by "
        "asking\nagain and again. link: what it needs for the bytes.\n");
}

static void print_table(const struct result *x)
{
    const struct ooc_report *r = &x->r;
    char a[VV_BYTES_TEXT], b[VV_BYTES_TEXT], c[VV_BYTES_TEXT], d[VV_BYTES_TEXT];

    if (x->o->tables)
        printf("%s: %" PRIu64 " tables of %s, a cache of %s, %" PRIu64 " items, seed %" PRIu64 "\n",
               r->device, r->tables, vv_bytes_human(r->data_bytes, a, sizeof(a)),
               vv_bytes_human(r->cache_bytes, b, sizeof(b)), r->items, x->o->survey.seed);
    else
        printf("%s: a volume of %s in blocks of %u^3 cells, a cache of %s, %u points, %u steps, "
               "seed %" PRIu64 "\n",
               r->device, vv_bytes_human(r->data_bytes, a, sizeof(a)), x->o->wave.edge,
               vv_bytes_human(r->cache_bytes, b, sizeof(b)), x->o->wave.points, x->o->wave.steps,
               x->o->wave.seed);
    printf("link %.2f GB/s; %s touched, %s with farthest next use; bound %.4f s\n\n",
           r->link_bps / 1e9, vv_bytes_human(r->touched_bytes, c, sizeof(c)),
           vv_bytes_human(r->least_bytes, d, sizeof(d)), r->bound_s);
    printf("| %-13s | %9s | %7s | %8s | %8s | %8s | %8s | %11s | %11s | %8s | %6s | %s |\n", "way",
           "seconds", "x bound", "GB", "missed", x->o->tables ? "by CPU" : "ahead", "evicted",
           x->o->tables ? "came/launch" : "came/round", x->o->tables ? "went/launch" : "went/round",
           "managing", "in use", "sums");
    printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < r->nr_ways; i++) {
        const struct ooc_way *w = &r->ways[i];

        if (w->skipped[0]) {
            printf("| %-13s | %s |\n", w->name, w->skipped);
            continue;
        }
        printf("| %-13s | %9.4f | %7.2f | %8.3f | %8" PRIu64 " | %8" PRIu64 " | %8" PRIu64
               " | %11.2f | %11.2f | %7.2f%% | %5.1f%% | %s |\n",
               w->name, w->seconds, w->seconds / r->bound_s, (double)w->bytes / 1e9, w->missed,
               x->o->tables ? w->host_items : w->ahead, w->evicted,
               ooc_per_refresh(ooc_updates(x->o, w), w), ooc_per_refresh(w->evicted, w),
               100 * ooc_managing(w), 100 * w->utilisation, w->same ? "same" : "WRONG");
    }
    printf(
        "\nresident: everything is in the cache before, the limit of computing. %s\n"
        "(a refresh, in the paper). managing: time of the threads that run, outside of calls that "
        "copy\nor launch and of waiting, over wall time. in use: the share of the cache with "
        "something in it, over "
        "time.\n",
        x->o->tables ? "came, went: tables for each launch"
                     : "came, went: blocks for each round of a kernel");
    if (!x->o->tables)
        print_times(r);
}

static void print_json_way(struct json *j, const struct ooc_way *w)
{
    json_object(j, NULL);
    json_text(j, "way", w->name);
    if (w->skipped[0]) {
        json_text(j, "skipped", w->skipped);
        json_close(j);
        return;
    }
    json_bool(j, "same", w->same);
    json_uint(j, "slots", w->slots);
    json_uint(j, "bytes", w->bytes);
    json_uint(j, "missed", w->missed);
    json_uint(j, "ahead", w->ahead);
    json_uint(j, "evicted", w->evicted);
    json_uint(j, "rounds", w->rounds);
    json_uint(j, "undone", w->undone);
    json_uint(j, "from_host", w->from_host);
    json_uint(j, "host_items", w->host_items);
    json_uint(j, "moved_bytes", w->moved_bytes);
    json_real(j, "seconds", w->seconds);
    json_real(j, "management_s", w->management_s);
    json_real(j, "moving_s", w->moving_s);
    json_real(j, "launching_s", w->launching_s);
    json_real(j, "waiting_s", w->waiting_s);
    json_real(j, "utilisation", w->utilisation);
    json_close(j);
}

static void print_json(const struct result *x)
{
    const struct ooc_report *r = &x->r;
    struct json j = json_begin(stdout, JSON_COMPACT);

    json_object(&j, NULL);
    json_text(&j, "device", r->device);
    if (x->o->tables) {
        json_uint(&j, "seed", x->o->survey.seed);
        json_uint(&j, "tables", r->tables);
        json_uint(&j, "items", r->items);
        json_uint(&j, "tables_bytes", r->data_bytes);
        json_uint(&j, "cache_bytes", r->cache_bytes);
    } else {
        json_uint(&j, "seed", x->o->wave.seed);
        json_uint(&j, "points", x->o->wave.points);
        json_uint(&j, "steps", x->o->wave.steps);
        json_uint(&j, "edge", x->o->wave.edge);
        json_uint(&j, "volume_bytes", r->data_bytes);
        json_uint(&j, "cache_bytes", r->cache_bytes);
        json_uint(&j, "touched_bytes", r->touched_bytes);
    }
    json_uint(&j, "least_bytes", r->least_bytes);
    json_real(&j, "link_bps", r->link_bps);
    json_real(&j, "bound_s", r->bound_s);
    json_array(&j, "ways");
    for (size_t i = 0; i < r->nr_ways; i++)
        print_json_way(&j, &r->ways[i]);
    json_close(&j);
    json_close(&j);
    json_end(&j);
}

static int write_rows(FILE *f, const struct result *x)
{
    const struct ooc_report *r = &x->r;

    fprintf(f,
            "way,seconds,bound_s,bytes,least_bytes,missed,ahead,evicted,rounds,undone,from_host,"
            "host_items,moved_bytes,management_s,moving_s,launching_s,waiting_s,utilisation,same,"
            "skipped\n");
    for (size_t i = 0; i < r->nr_ways; i++) {
        const struct ooc_way *w = &r->ways[i];

        fprintf(f,
                "%s,%.6f,%.6f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.6f,%.6f,%.6f,%.6f,%.6f,%d,%s\n",
                w->name, w->seconds, r->bound_s, w->bytes, r->least_bytes, w->missed, w->ahead,
                w->evicted, w->rounds, w->undone, w->from_host, w->host_items, w->moved_bytes,
                w->management_s, w->moving_s, w->launching_s, w->waiting_s, w->utilisation, w->same,
                w->skipped);
    }
    return ferror(f) ? -EIO : 0;
}

static int write_samples(FILE *f, const struct result *x)
{
    fprintf(f, "way,step,s,memory,used,missed,ahead,evicted,rounds,bytes,management_s,moving_s,"
               "launching_s,waiting_s\n");
    for (size_t i = 0; i < x->r.nr_ways; i++)
        for (size_t k = 0; k < x->r.ways[i].nr_samples; k++) {
            const struct ooc_sample *s = &x->r.ways[i].samples[k];

            fprintf(f,
                    "%s,%zu,%.6f,%.6f,%.6f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                    ",%.6f,%.6f,%.6f,%.6f\n",
                    x->r.ways[i].name, k + 1, s->s, s->memory, s->used, s->missed, s->ahead,
                    s->evicted, s->rounds, s->bytes, s->management_s, s->moving_s, s->launching_s,
                    s->waiting_s);
        }
    return ferror(f) ? -EIO : 0;
}

/* ---- files ---- */

static int close_file(FILE *f, const char *path, int rc)
{
    if (f != stdout && f && fclose(f) != 0 && rc == 0)
        rc = -EIO;
    if (rc)
        fprintf(stderr, COMMAND ": %s cannot be written: %s\n", path, strerror(-rc));
    return rc;
}

static FILE *open_in(const struct result *x, const char *name, char *path, size_t bytes)
{
    FILE *f;

    snprintf(path, bytes, "%s/%s", x->o->out, name);
    f = fopen(path, "w");
    if (!f)
        fprintf(stderr, COMMAND ": %s cannot be written: %s\n", path, strerror(errno));
    return f;
}

/* Checks that the results can be written, before minutes of computing. A file that did not exist is not left
 * behind. */
static int try_files(const struct ooc_options *o)
{
    if (o->out && ((mkdir(o->out, 0777) != 0 && errno != EEXIST) || access(o->out, W_OK | X_OK))) {
        fprintf(stderr, COMMAND ": folder %s cannot be made or written: %s\n", o->out,
                strerror(errno));
        return -EIO;
    }
    if (o->csv && strcmp(o->csv, "-") != 0) {
        bool was = access(o->csv, F_OK) == 0;
        FILE *f = fopen(o->csv, "a");

        if (!f || fclose(f) != 0) {
            fprintf(stderr, COMMAND ": %s cannot be written: %s\n", o->csv, strerror(errno));
            return -EIO;
        }
        if (!was)
            (void)unlink(o->csv);
    }
    return 0;
}

static int write_folder(const struct result *x)
{
    char path[4096];
    FILE *f;
    int rc = 0;

    f = open_in(x, "ooc.csv", path, sizeof(path));
    if (!f)
        return -EIO;
    rc = close_file(f, path, write_rows(f, x));
    f = rc ? NULL : open_in(x, "samples.csv", path, sizeof(path));
    if (!f)
        return -EIO;
    rc = close_file(f, path, write_samples(f, x));
    for (unsigned i = 0; rc == 0 && i < ooc_figures(&x->r); i++) {
        f = open_in(x, ooc_figure_file(x->o, i), path, sizeof(path));
        if (!f)
            return -EIO;
        rc = close_file(f, path, ooc_figure_draw(f, x->o, &x->r, i));
    }
    f = rc ? NULL : open_in(x, "index.html", path, sizeof(path));
    if (f)
        rc = close_file(f, path, ooc_page_write(f, x->o, &x->r));
    return f ? rc : -EIO;
}

static int write_csv(const struct result *x)
{
    FILE *f = strcmp(x->o->csv, "-") == 0 ? stdout : fopen(x->o->csv, "w");

    if (!f) {
        fprintf(stderr, COMMAND ": %s cannot be written: %s\n", x->o->csv, strerror(errno));
        return -errno;
    }
    return close_file(f, x->o->csv, write_rows(f, x));
}

/* Without a terminal: a line for each way, with the seconds until it began. */
static void show(void *arg, const char *way, double share)
{
    const uint64_t *start = arg;

    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%3.0f%% %-20s", 100 * share, way);
    else
        fprintf(stderr, "%6.1f s: %s\n", (double)(vv_now_ns() - *start) * 1e-9, way);
}

int ooc_command(const struct ooc_options *options, const struct ooc_launcher *launcher)
{
    struct ooc_options o = *options;
    struct result x = {.o = &o};
    char err[OOC_TEXT] = "";
    bool wrong = false;
    uint64_t start = vv_now_ns();
    int rc;

    o.emulated = launcher->device == VARVE_DEVICE_HOST;
    /* Checked before data are made, which takes a while. */
    if (launcher->check && launcher->check()) {
        fprintf(stderr, COMMAND ": no GPU can be used here\n");
        return 77;
    }
    rc = try_files(options);
    if (rc)
        return 1;
    rc = options->tables ? ooc_survey(&options->survey, launcher, show, &start, err, &x.r)
                         : ooc_wave(&options->wave, launcher, show, &start, err, &x.r);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%30s\r", "");
    if (rc) {
        fprintf(stderr, COMMAND ": %s\n", err);
        return rc == -ENODEV ? 77 : 1;
    }
    if (options->json)
        print_json(&x);
    else if (!options->csv || strcmp(options->csv, "-") != 0)
        print_table(&x);
    if (options->csv)
        rc = write_csv(&x);
    if (rc == 0 && options->out)
        rc = write_folder(&x);
    if (rc == 0 && options->out && !options->json && (!options->csv || strcmp(options->csv, "-")))
        printf("\n%s/index.html\n", options->out);
    for (size_t i = 0; i < x.r.nr_ways; i++)
        wrong = wrong || (!x.r.ways[i].skipped[0] && !x.r.ways[i].same);
    ooc_report_fini(&x.r);
    if (fflush(stdout) != 0)
        rc = -EIO;
    return rc || wrong ? 1 : 0;
}
