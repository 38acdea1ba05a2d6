/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve bench paper: the experiments of the HPDC'23 paper, Figures 5 to 9, on this machine.
 *
 *     bench_paper.c          the command: options, the loop over all runs, signals
 *     bench_paper_plan.c     the runs of the figures, and their order
 *     bench_paper_run.c      one run, in a process of its own; results that are kept
 *     bench_paper_page.c     CSV, SVG and the page
 *     bench_paper_machine.c  the machine
 *
 * A run that fails is shown as failed. The page is written in any case: after the last run,
 * when the time is over, and when the command is interrupted, so that nothing measured is lost.
 * This process has one thread and uses no device.
 */
#include "lab/paper/bench_paper.h"

#include <errno.h>
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

#include "base/bytes.h"
#include "base/clock.h"
#include "base/config.h"
#include "build_info.h"
#include "cli/common/beside.h"
#include "cli/common/command.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/common/progress.h"
#include "lab/lab.h"

#define SHORT_CKPTS   60
#define SHORT_LIMIT_S 450
#define RUN_LIMIT_S   600
#define SIZES_NAME    "rtm-sizes-30x8.csv"
#define SIZES_FILE    "lab/data/" SIZES_NAME

static const char *const devices[] = {"cuda", "host", NULL};
static const char *const local_ios[] = {"auto", "direct", "buffered", NULL};
static const int ending_signals[] = {SIGHUP, SIGINT, SIGTERM};

static void note_signal(int signal)
{
    paper_interrupted = signal;
}

/* Without SA_RESTART: poll() has to return. Signals that were ignored, as under nohup, stay ignored. */
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

/* Options of other commands are passed on as text: `bench shot` checks them. */
static int parse_text(const char *s, const char **ret_text)
{
    if (!*s || strlen(s) >= PAPER_ARG)
        return -EINVAL;
    *ret_text = s;
    return 0;
}

static int set_out(const char *s, void *arg)
{
    return strlen(s) < PAPER_PATH / 2 ? parse_text(s, &((struct paper_opts *)arg)->out) : -EINVAL;
}

static int set_figures(const char *s, void *arg)
{
    return parse_list(s, figure_name, PAPER_FIGURE_NR, &((struct paper_opts *)arg)->figures);
}

static int set_engines(const char *s, void *arg)
{
    return parse_list(s, engine_name, PAPER_ENGINE_NR, &((struct paper_opts *)arg)->engines);
}

static int set_sizes(const char *s, void *arg)
{
    return parse_text(s, &((struct paper_opts *)arg)->sizes);
}

static int set_scale(const char *s, void *arg)
{
    return parse_real(s, &((struct paper_opts *)arg)->scale);
}

static int set_interval(const char *s, void *arg)
{
    return parse_real(s, &((struct paper_opts *)arg)->interval_ms);
}

static int set_device(const char *s, void *arg)
{
    return parse_choice(vv_config_device_word(s), devices, &((struct paper_opts *)arg)->device);
}

static int set_local(const char *s, void *arg)
{
    return parse_text(s, &((struct paper_opts *)arg)->local);
}

static int set_local_io(const char *s, void *arg)
{
    return parse_choice(s, local_ios, &((struct paper_opts *)arg)->local_io);
}

static int set_rate(const char *s, void *arg)
{
    return parse_text(s, &((struct paper_opts *)arg)->rate);
}

static int set_time_limit(const char *s, void *arg)
{
    return parse_real(s, &((struct paper_opts *)arg)->time_limit_s);
}

static int set_run_limit(const char *s, void *arg)
{
    return parse_real(s, &((struct paper_opts *)arg)->run_limit_s);
}

#define AT(field)  offsetof(struct paper_opts, field)
#define PAGES      .least = VV_PAGE_BYTES_MIN, .takes = "a size of a page at least (such as 512M or 4G)"
#define TEXT_TAKES "a text that is short enough"
#define REAL_TAKES "a number above 0"

static const struct opt options[] = {
    {OPT_SET, .name = "out", .arg = "FOLDER", .set = set_out, .takes = TEXT_TAKES,
     .help = "the folder of the results (varve-paper)"},
    {OPT_FLAG, .name = "short", .at = AT(is_short),
     .help = "60 checkpoints, fewer points, no run started after 450 s"},
    {OPT_SET, .name = "figures", .arg = "LIST", .set = set_figures,
     .takes = "a list of 5a,5b,6a,6b,7,8a,8b,9a,9b", .help = "of 5a,5b,6a,6b,7,8a,8b,9a,9b (all)"},
    {OPT_SET, .name = "engines", .arg = "LIST", .set = set_engines,
     .takes = "a list of varve,score,uvm,ondemand,file",
     .help = "of varve,score,uvm,ondemand,file (all but score; no uvm on the\n"
             "emulated device)"},
    {OPT_U32, .name = "ckpts", .arg = "N", .at = AT(ckpts), .least = 1, .most = 1000000,
     .help = "checkpoints (384)"},
    {OPT_BYTES, .name = "size", .arg = "BYTES", .at = AT(size_bytes), PAGES,
     .help = "of each where sizes are uniform (128M)"},
    {OPT_SET, .name = "sizes", .arg = "FILE", .set = set_sizes, .takes = TEXT_TAKES,
     .help = "a table of variable ones (" SIZES_FILE ")"},
    {OPT_SET, .name = "scale", .arg = "F", .set = set_scale, .takes = REAL_TAKES,
     .help = "multiply every size (1)"},
    {OPT_BYTES, .name = "device-cache", .arg = "BYTES", .at = AT(device_cache), PAGES,
     .help = "cache on the device (a twelfth of the uniform checkpoints: 4G)"},
    {OPT_BYTES, .name = "host-cache", .arg = "BYTES", .at = AT(host_cache), PAGES,
     .help = "cache in host memory (two thirds of them: 32G)"},
    {OPT_SET, .name = "interval-ms", .arg = "MS", .set = set_interval, .takes = REAL_TAKES,
     .help = "compute time before each call (10)"},
    {OPT_SET, .name = "device", .arg = "cuda|host", .set = set_device,
     .help = "host: emulated (cuda)", .takes = "cuda or host"},
    {OPT_SET, .name = "local", .arg = "FOLDER", .set = set_local, .takes = TEXT_TAKES,
     .help = "folder on local disk (a temporary one); none: no disk"},
    {OPT_SET, .name = "local-io", .arg = "auto|direct|buffered", .set = set_local_io,
     .help = "how local files are written and read (buffered, as the\n"
             "paper's were; managed memory has all of the host's)",
     .takes = "one of auto, direct, buffered"},
    {OPT_SET, .name = "rate", .arg = "HOP=RATE,...", .set = set_rate, .takes = TEXT_TAKES,
     .help = "throttle hops, as in varve bench shot"},
    {OPT_U64, .name = "seed", .arg = "N", .help = "seed of contents and permutations (1)",
     .at = AT(seed)},
    {OPT_FLAG, .name = "bound", .at = AT(bound),
     .help = "measure bandwidths and compute the bound of every run, which\n"
             "takes seconds for each"},
    {OPT_FLAG, .name = "resume", .at = AT(resume),
     .help = "do not repeat runs whose results are in the folder"},
    {OPT_SET, .name = "time-limit", .arg = "S", .set = set_time_limit, .takes = REAL_TAKES,
     .help = "start no run after S seconds"},
    {OPT_SET, .name = "run-limit", .arg = "S", .set = set_run_limit, .takes = REAL_TAKES,
     .help = "end a run after S seconds (600)"},
    {OPT_FLAG, .name = "list", .help = "only print the commands of the runs", .at = AT(list)},
    {OPT_FLAG, .name = "json", .help = "print one JSON object at the end", .at = AT(json)},
};
_Static_assert(SHORT_CKPTS == 60 && SHORT_LIMIT_S == 450 && RUN_LIMIT_S == 600,
               "the help text says so");

static const struct opts command = {
    .command = PAPER_COMMAND,
    .usage = "[OPTION]...",
    .about =
        "Runs the experiments of the HPDC'23 paper and leaves a CSV and an SVG for each figure,\n"
        "and index.html, in a folder.",
    OPT_LIST(options),
};

/* A share of the bytes of the uniform checkpoints; in whole MiB if they are large. */
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
        /* The driver provides managed memory: it cannot be emulated. */
        if (strcmp(o->device, "host") == 0)
            o->engines &= ~(1u << PAPER_UVM);
    }
}

/* Returns an exit status, or -1 to go on. */
static int parse(int argc, char **argv, struct paper_opts *o)
{
    int first, status;

    *o = (struct paper_opts){.out = "varve-paper",
                             .device = "cuda",
                             .local_io = "buffered",
                             .size_bytes = UINT64_C(128) << 20,
                             .scale = 1,
                             .interval_ms = 10,
                             .seed = 1,
                             .figures = (1u << PAPER_FIGURE_NR) - 1,
                             .run_limit_s = RUN_LIMIT_S};
    status = opts_parse(&command, argc, argv, o, &first);
    if (status < 0)
        settle(o);
    return status;
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

/* A negative errno after a message: something is missing. */
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
        fprintf(stderr, PAPER_COMMAND ": no GPU was found ('varve doctor' says why); --device "
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

/* Everything between the plan and the summary. */
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

/* The summary: the number of runs of each state. Returns the exit status. */
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
    if (rc >= 0) {
        free(paper);
        return rc;
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
