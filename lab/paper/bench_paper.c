/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve bench paper: the experiments of the HPDC'23 paper, Figures 5 to 9, on this machine.
 *
 *     bench_paper.c          the command: options, the loop over all runs, signals
 *     bench_paper_plan.c     which runs the figures consist of, and in which order they run
 *     bench_paper_run.c      one run, in a process of its own; results that are kept
 *     bench_paper_page.c     CSV, SVG and the page
 *     bench_paper_machine.c  what it was measured on
 *
 * A run that fails is shown as failed. The page is written whatever happens: after the last run,
 * when the time is over, and when the command is interrupted, so that nothing measured is lost.
 * This process has one thread and uses no device.
 */
#include "lab/paper/bench_paper.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <varve/varve.h>

#include "build_info.h"
#include "cli/common/beside.h"
#include "cli/common/command.h"
#include "cli/common/json.h"
#include "cli/common/progress.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/config.h"
#include "lab/lab.h"

#define SHORT_CKPTS   60
#define SHORT_LIMIT_S 450
#define RUN_LIMIT_S   600
#define SIZES_NAME    "rtm-sizes-30x8.csv"
#define SIZES_FILE    "lab/data/" SIZES_NAME

static const char *const devices[] = {"cuda", "host", NULL};
static const char *const local_ios[] = {"auto", "direct", "buffered", NULL};
static const int ending_signals[] = {SIGHUP, SIGINT, SIGTERM};

static void usage(FILE *f)
{
    fprintf(
        f,
        "usage: " PAPER_COMMAND " [OPTION]...\n\n"
        "Runs the experiments of the HPDC'23 paper and leaves a CSV and an SVG for each figure,\n"
        "and index.html, in a folder.\n\n"
        "  --out DIR             where to (varve-paper)\n"
        "  --short               %d checkpoints, fewer points, no run started after %d s\n"
        "  --figures LIST        of 5a,5b,6a,6b,7,8a,8b,9a,9b (all)\n"
        "  --engines LIST        of varve,score,uvm,ondemand,file (all but score; no uvm on the\n"
        "                        emulated device)\n"
        "  --ckpts N             checkpoints (384)\n"
        "  --size BYTES          of each where sizes are uniform (128M)\n"
        "  --sizes FILE          a table of variable ones (" SIZES_FILE ")\n"
        "  --scale F             multiply every size (1)\n"
        "  --device-cache BYTES  cache on the device (a twelfth of the uniform checkpoints: 4G)\n"
        "  --host-cache BYTES    cache in host memory (two thirds of them: 32G)\n"
        "  --interval-ms MS      compute time before each call (10)\n"
        "  --device cuda|host    host: emulated (cuda)\n"
        "  --local DIR           folder on local disk (a temporary one); none: no disk\n"
        "  --local-io auto|direct|buffered\n"
        "                        how local files are written and read (buffered, as the\n"
        "                        paper's were; managed memory has all of the host's)\n"
        "  --rate HOP=RATE,...   throttle hops, as in varve bench shot\n"
        "  --seed N              of contents and permutations (1)\n"
        "  --bound               measure bandwidths and compute the bound of every run, which\n"
        "                        takes seconds for each\n"
        "  --resume              do not repeat runs whose results are in the folder\n"
        "  --time-limit S        start no run after S seconds\n"
        "  --run-limit S         end a run after S seconds (%d)\n"
        "  --list                only print the commands of the runs\n"
        "  --json                print one JSON object at the end\n"
        "  --help                this text\n",
        SHORT_CKPTS, SHORT_LIMIT_S, RUN_LIMIT_S);
}

static void note_signal(int signal)
{
    paper_interrupted = signal;
}

/* Without SA_RESTART: poll() shall return. Signals that were ignored, as under nohup, stay so. */
static void set_signals(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler}, old;

    for (size_t i = 0; i < VV_ARRAY_SIZE(ending_signals); i++)
        if (sigaction(ending_signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(ending_signals[i], &action, NULL);
}

/* ---- options ---- */

static int parse_real(const char *s, double *ret_value)
{
    char *end;
    double v = strtod(s, &end);

    if (end == s || *end || !isfinite(v) || v <= 0)
        return -EINVAL;
    *ret_value = v;
    return 0;
}

static int parse_ckpts(const char *s, uint32_t *ret_value)
{
    uint64_t v;

    if (shot_parse_u64(s, 1000000, &v) < 0 || v == 0)
        return -EINVAL;
    *ret_value = (uint32_t)v;
    return 0;
}

static int parse_size(const char *s, uint64_t *ret_bytes)
{
    uint64_t bytes;

    if (vv_bytes_parse(s, &bytes) < 0 || bytes < VV_PAGE_BYTES_MIN)
        return -EINVAL;
    *ret_bytes = bytes;
    return 0;
}

static int parse_choice(const char *s, const char *const *choices, const char **ret_value)
{
    for (; *choices; choices++) {
        if (strcmp(s, *choices) == 0) {
            *ret_value = *choices;
            return 0;
        }
    }
    return -EINVAL;
}

static const char *figure_name(int i)
{
    return paper_figures[i].id;
}

static const char *engine_name(int i)
{
    return paper_engine_name((enum paper_engine)i);
}

/* A list of names as a set of bits. */
static int parse_list(const char *s, const char *(*name)(int), int nr, unsigned *ret_set)
{
    unsigned set = 0;

    for (;;) {
        size_t len = strcspn(s, ",");
        int i = 0;

        while (i < nr && (strlen(name(i)) != len || strncmp(name(i), s, len) != 0))
            i++;
        if (i == nr)
            return -EINVAL;
        set |= 1u << i;
        if (s[len] == '\0')
            break;
        s += len + 1;
    }
    *ret_set = set;
    return 0;
}

enum option_id {
    OPT_OUT = 256,
    OPT_SHORT,
    OPT_FIGURES,
    OPT_ENGINES,
    OPT_CKPTS,
    OPT_SIZE,
    OPT_SIZES,
    OPT_SCALE,
    OPT_DEVICE_CACHE,
    OPT_HOST_CACHE,
    OPT_INTERVAL,
    OPT_DEVICE,
    OPT_LOCAL,
    OPT_LOCAL_IO,
    OPT_RATE,
    OPT_SEED,
    OPT_BOUND,
    OPT_RESUME,
    OPT_TIME_LIMIT,
    OPT_RUN_LIMIT,
    OPT_LIST,
    OPT_JSON,
    OPT_HELP
};

static const struct option options[] = {
    {"out", required_argument, NULL, OPT_OUT},
    {"short", no_argument, NULL, OPT_SHORT},
    {"figures", required_argument, NULL, OPT_FIGURES},
    {"engines", required_argument, NULL, OPT_ENGINES},
    {"ckpts", required_argument, NULL, OPT_CKPTS},
    {"size", required_argument, NULL, OPT_SIZE},
    {"sizes", required_argument, NULL, OPT_SIZES},
    {"scale", required_argument, NULL, OPT_SCALE},
    {"device-cache", required_argument, NULL, OPT_DEVICE_CACHE},
    {"host-cache", required_argument, NULL, OPT_HOST_CACHE},
    {"interval-ms", required_argument, NULL, OPT_INTERVAL},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"local", required_argument, NULL, OPT_LOCAL},
    {"local-io", required_argument, NULL, OPT_LOCAL_IO},
    {"rate", required_argument, NULL, OPT_RATE},
    {"seed", required_argument, NULL, OPT_SEED},
    {"bound", no_argument, NULL, OPT_BOUND},
    {"resume", no_argument, NULL, OPT_RESUME},
    {"time-limit", required_argument, NULL, OPT_TIME_LIMIT},
    {"run-limit", required_argument, NULL, OPT_RUN_LIMIT},
    {"list", no_argument, NULL, OPT_LIST},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

/* Texts of others' options are passed on as they are: `bench shot` knows what it takes. */
static int parse_text(const char *s, const char **ret_text)
{
    if (!*s || strlen(s) >= PAPER_ARG)
        return -EINVAL;
    *ret_text = s;
    return 0;
}

static int set_value(int id, const char *s, struct paper_opts *o)
{
    switch ((enum option_id)id) {
    case OPT_OUT:
        return strlen(s) < PAPER_PATH / 2 ? parse_text(s, &o->out) : -EINVAL;
    case OPT_FIGURES:
        return parse_list(s, figure_name, PAPER_FIGURE_NR, &o->figures);
    case OPT_ENGINES:
        return parse_list(s, engine_name, PAPER_ENGINE_NR, &o->engines);
    case OPT_CKPTS:
        return parse_ckpts(s, &o->ckpts);
    case OPT_SIZE:
        return parse_size(s, &o->size_bytes);
    case OPT_SIZES:
        return parse_text(s, &o->sizes);
    case OPT_SCALE:
        return parse_real(s, &o->scale);
    case OPT_DEVICE_CACHE:
        return parse_size(s, &o->device_cache);
    case OPT_HOST_CACHE:
        return parse_size(s, &o->host_cache);
    case OPT_INTERVAL:
        return parse_real(s, &o->interval_ms);
    case OPT_DEVICE:
        return parse_choice(vv_config_device_word(s), devices, &o->device);
    case OPT_LOCAL:
        return parse_text(s, &o->local);
    case OPT_LOCAL_IO:
        return parse_choice(s, local_ios, &o->local_io);
    case OPT_RATE:
        return parse_text(s, &o->rate);
    case OPT_SEED:
        return shot_parse_u64(s, UINT64_MAX, &o->seed);
    case OPT_TIME_LIMIT:
        return parse_real(s, &o->time_limit_s);
    case OPT_RUN_LIMIT:
        return parse_real(s, &o->run_limit_s);
    case OPT_SHORT:
        o->is_short = true;
        return 0;
    case OPT_BOUND:
        o->bound = true;
        return 0;
    case OPT_RESUME:
        o->resume = true;
        return 0;
    case OPT_LIST:
        o->list = true;
        return 0;
    case OPT_JSON:
        o->json = true;
        return 0;
    case OPT_HELP:
        break;
    }
    return -EINVAL;
}

/* A share of what the uniform checkpoints take; in whole MiB where that does not matter. */
static uint64_t share(const struct paper_opts *o, double part)
{
    double bytes = part * o->scale * (double)o->size_bytes * o->ckpts;
    uint64_t unit = bytes > 64e6 ? UINT64_C(1) << 20 : VV_PAGE_BYTES_MIN;

    return VV_MAX(vv_align_down((uint64_t)bytes, unit), UINT64_C(16) * VV_PAGE_BYTES_MIN);
}

/* Values that depend on others. The caches are those of the paper: 4 and 32 GB for 48 GB. */
static void settle(struct paper_opts *o)
{
    if (o->ckpts == 0)
        o->ckpts = o->is_short ? SHORT_CKPTS : 384;
    if (o->time_limit_s <= 0 && o->is_short)
        o->time_limit_s = SHORT_LIMIT_S;
    if (o->device_cache == 0)
        o->device_cache = share(o, 1.0 / 12);
    if (o->host_cache == 0)
        o->host_cache = share(o, 2.0 / 3);
    if (o->engines == 0) {
        o->engines = 1u << PAPER_VARVE | 1u << PAPER_UVM | 1u << PAPER_ONDEMAND | 1u << PAPER_FILE;
        /* Managed memory is the driver's: there is none to emulate. */
        if (strcmp(o->device, "host") == 0)
            o->engines &= ~(1u << PAPER_UVM);
    }
}

static int parse(int argc, char **argv, struct paper_opts *o)
{
    int id, index = 0;

    *o = (struct paper_opts){.out = "varve-paper",
                             .device = "cuda",
                             .local_io = "buffered",
                             .size_bytes = UINT64_C(128) << 20,
                             .scale = 1,
                             .interval_ms = 10,
                             .seed = 1,
                             .figures = (1u << PAPER_FIGURE_NR) - 1,
                             .run_limit_s = RUN_LIMIT_S};
    optind = 1;
    while ((id = getopt_long(argc, argv, "", options, &index)) != -1) {
        if (id == OPT_HELP) {
            usage(stdout);
            return 1;
        }
        if (id == '?')
            return -EINVAL;
        if (set_value(id, optarg, o) < 0) {
            fprintf(stderr, PAPER_COMMAND ": --%s %s makes no sense; see --help\n",
                    options[index].name, optarg);
            return -EINVAL;
        }
    }
    if (optind < argc) {
        fprintf(stderr, PAPER_COMMAND ": unexpected argument '%s'\n", argv[optind]);
        return -EINVAL;
    }
    settle(o);
    return 0;
}

/* ---- before the first run ---- */

/* The table of real sizes: in a source tree, seen from the working directory or from this program, or
 * where it is installed with the program. */
static const char *find_sizes(char *buf, size_t size)
{
    static const char *const places[] = {"../../" SIZES_FILE, "../../../" SIZES_FILE,
                                         VV_DATA_FROM_LIBEXEC "/" SIZES_NAME};

    if (access(SIZES_FILE, R_OK) == 0)
        return SIZES_FILE;
    return beside_find(places, VV_ARRAY_SIZE(places), R_OK, buf, size) ? buf : NULL;
}

static bool needs_sizes(const struct paper_opts *o)
{
    for (int i = 0; i < PAPER_FIGURE_NR; i++)
        if ((o->figures & 1u << i) && paper_figures[i].variable)
            return true;
    return false;
}

static void set_command(struct paper *paper, int argc, char **argv)
{
    size_t n = (size_t)snprintf(paper->command, sizeof(paper->command), PAPER_COMMAND);

    for (int i = 1; i < argc && n < sizeof(paper->command); i++)
        n += (size_t)snprintf(paper->command + n, sizeof(paper->command) - n, " %s", argv[i]);
}

static void set_date(struct paper *paper)
{
    time_t now = time(NULL);
    struct tm tm;

    if (!gmtime_r(&now, &tm) ||
        strftime(paper->date, sizeof(paper->date), "%Y-%m-%d %H:%M UTC", &tm) == 0)
        paper->date[0] = '\0';
}

static int make_folders(const struct paper_opts *o)
{
    char path[PAPER_PATH];

    snprintf(path, sizeof(path), "%s/runs", o->out);
    if ((mkdir(o->out, 0777) < 0 && errno != EEXIST) ||
        (mkdir(path, 0777) < 0 && errno != EEXIST)) {
        fprintf(stderr, PAPER_COMMAND ": --out %s: %s\n", o->out, strerror(errno));
        return -EIO;
    }
    return 0;
}

static bool has_device(const char *machine)
{
    return strncmp(machine, "device\t", 7) == 0 || strstr(machine, "\ndevice\t");
}

/* Negative errno: something is missing, and said so. */
static int prepare(struct paper *paper, char *sizes, size_t sizes_size)
{
    struct paper_opts *o = &paper->opts;
    ssize_t n = readlink("/proc/self/exe", paper->program, sizeof(paper->program) - 1);

    if (n <= 0) {
        fprintf(stderr, PAPER_COMMAND ": /proc/self/exe: %s\n", strerror(errno));
        return -EIO;
    }
    paper->program[n] = '\0';
    if (needs_sizes(o) && !o->sizes) {
        o->sizes = find_sizes(sizes, sizes_size);
        if (!o->sizes) {
            fprintf(stderr, PAPER_COMMAND ": variable sizes need a table, and " SIZES_FILE
                                          " of the sources is not here: give --sizes FILE, or "
                                          "--figures without 5b, 6b, 8a, 8b, 9a and 9b\n");
            return -ENOENT;
        }
    }
    if (o->list)
        return 0;
    paper_describe(paper, paper->machine, sizeof(paper->machine));
    if (paper_interrupted)
        return -EINTR;
    if (strcmp(o->device, "cuda") == 0 && !has_device(paper->machine)) {
        fprintf(stderr, PAPER_COMMAND ": no GPU was found ('varve doctor' tells more); --device "
                                      "host runs on the emulated device\n");
        return -ENODEV;
    }
    return make_folders(o);
}

/* ---- the runs ---- */

static void print_run(const struct paper *paper, size_t i, const struct paper_run *r)
{
    FILE *out = paper->opts.json ? stderr : stdout;
    char cache[VV_BYTES_TEXT];

    fprintf(out, "[%3zu/%zu] %-8s %-7s %s %-4s %-8s %4.4g ms %6s ", i + 1, paper->nr_runs,
            r->variable ? "variable" : "uniform", r->wait ? "wait" : "no-wait",
            paper_order_name(r->order), paper_hints_name(r->hints), paper_engine_name(r->engine),
            r->interval_ms, vv_bytes_format(r->device_cache, cache, sizeof(cache)));
    if (r->status == PAPER_OK || r->status == PAPER_DOUBTFUL)
        fprintf(out, "checkpoint %8.5g  restore %8.5g GB/s", r->checkpoint_gbps, r->restore_gbps);
    if (r->status != PAPER_OK)
        fprintf(out, "  %s: %s", paper_status_name(r->status), r->text);
    if (r->kept)
        fprintf(out, "  (kept)\n");
    else
        fprintf(out, "  (%.1f s)\n", r->elapsed_s);
    fflush(out);
}

static int perform_all(struct paper *paper, uint64_t begun)
{
    struct progress bar;
    size_t left_out = 0;
    int rc = 0;

    progress_init(&bar);
    for (size_t i = 0; i < paper->nr_runs && rc == 0; i++) {
        struct paper_run *r = &paper->runs[i];
        double elapsed = (double)(vv_now_ns() - begun) * 1e-9;
        char what[160];

        bool in_time = paper->opts.time_limit_s <= 0 || elapsed < paper->opts.time_limit_s;

        snprintf(what, sizeof(what), "%zu of %zu, %s %s %s, about %.0f s left", i + 1,
                 paper->nr_runs, paper_order_name(r->order), paper_hints_name(r->hints),
                 paper_engine_name(r->engine),
                 i ? elapsed / (double)i * (double)(paper->nr_runs - i) : 0.0);
        progress_show(&bar, (double)i / (double)paper->nr_runs, what);
        rc = paper_perform(paper, r, in_time);
        progress_clear(&bar);
        if (rc == 0 && r->status != PAPER_TO_DO)
            print_run(paper, i, r);
        left_out += rc == 0 && r->status == PAPER_TO_DO;
    }
    if (left_out)
        fprintf(stderr, PAPER_COMMAND ": the time was over: %zu runs were not started\n", left_out);
    return rc;
}

static bool wants_simulation(const struct paper_opts *o)
{
    return (o->figures & (1u << PAPER_9A | 1u << PAPER_9B)) != 0;
}

/* Everything between the plan and the last word. */
static int run_all(struct paper *paper)
{
    uint64_t begun = vv_now_ns();
    char err[PAPER_TEXT + PAPER_PATH];
    int rc = 0, write_rc;

    paper_name(paper);
    if (wants_simulation(&paper->opts))
        rc = paper_simulate(paper);
    if (rc == 0 && paper->opts.list) {
        for (size_t i = 0; i < paper->nr_runs; i++)
            printf("%s\n", paper->runs[i].command);
        if (wants_simulation(&paper->opts))
            printf("%s\n", paper->scale_command);
        return 0;
    }
    if (rc == 0)
        rc = perform_all(paper, begun);
    paper->elapsed_s = (double)(vv_now_ns() - begun) * 1e-9;
    if (rc < 0 && rc != -EINTR) {
        fprintf(stderr, PAPER_COMMAND ": %s\n", varve_strerror(rc));
        return rc;
    }
    write_rc = paper_write(paper, err, sizeof(err));
    if (write_rc < 0)
        fprintf(stderr, PAPER_COMMAND ": %s\n", err);
    return write_rc < 0 ? write_rc : rc;
}

/* The last word: how many runs are how. Returns the exit status. */
static int conclude(const struct paper *paper)
{
    size_t count[PAPER_FAILED + 1] = {0};

    for (size_t i = 0; i < paper->nr_runs; i++)
        count[paper->runs[i].status]++;
    if (paper->scale_text[0])
        fprintf(stderr, PAPER_COMMAND ": Figures 9a and 9b: %s\n", paper->scale_text);
    if (!paper->opts.json) {
        printf("%zu runs ok, %zu doubtful, %zu failed, %zu not run, in %.0f s: %s/index.html\n",
               count[PAPER_OK], count[PAPER_DOUBTFUL], count[PAPER_FAILED], count[PAPER_TO_DO],
               paper->elapsed_s, paper->opts.out);
    } else {
        struct json j = json_begin(stdout, JSON_COMPACT);

        json_object(&j, NULL);
        json_text(&j, "command", "bench paper");
        json_text(&j, "out", paper->opts.out);
        json_uint(&j, "ok", count[PAPER_OK]);
        json_uint(&j, "doubtful", count[PAPER_DOUBTFUL]);
        json_uint(&j, "failed", count[PAPER_FAILED]);
        json_uint(&j, "not_run", count[PAPER_TO_DO]);
        json_real(&j, "elapsed_s", paper->elapsed_s);
        json_array(&j, "figures");
        for (int i = 0; i < PAPER_FIGURE_NR; i++)
            if (paper->opts.figures & 1u << i)
                json_text(&j, NULL, paper_figures[i].id);
        json_close(&j);
        json_close(&j);
        json_end(&j);
    }
    return count[PAPER_DOUBTFUL] || count[PAPER_FAILED] || paper->scale_text[0] ? CLI_FAILED
                                                                                : CLI_OK;
}

int lab_bench_paper(int argc, char **argv)
{
    struct paper *paper = calloc(1, sizeof(*paper));
    char sizes[PAPER_PATH + 64];
    int status = CLI_FAILED, rc;

    if (!paper) {
        fprintf(stderr, PAPER_COMMAND ": %s\n", strerror(ENOMEM));
        return CLI_FAILED;
    }
    rc = parse(argc, argv, &paper->opts);
    if (rc != 0) {
        free(paper);
        return rc < 0 ? CLI_USAGE : CLI_OK;
    }
    set_command(paper, argc, argv);
    set_date(paper);
    set_signals(note_signal);
    if (prepare(paper, sizes, sizeof(sizes)) == 0) {
        rc = paper_plan(paper);
        if (rc < 0)
            fprintf(stderr, PAPER_COMMAND ": %s\n", strerror(-rc));
        else
            rc = run_all(paper);
        if (rc == 0)
            status = paper->opts.list ? CLI_OK : conclude(paper);
    }
    set_signals(SIG_DFL);
    paper_plan_fini(paper);
    free(paper);
    if (paper_interrupted)
        raise(paper_interrupted);
    return status;
}
