/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of a shot: one table yields the parser, the help text, the line that repeats a run and the JSON
 * object.
 *
 * Defaults that depend on other options (binomial keeps versions that it has read and does not wait) are filled in
 * after the last argument, so these fields start as UNSET.
 */
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <varve/varve.h>

#include "base/bytes.h"
#include "base/config.h"
#include "base/cpus.h"
#include "cli/common/command.h"
#include "cli/common/json.h"
#include "lab/shot/shot.h"

#define MAX_CKPTS UINT32_C(100000000)
#define MAX_PROCS UINT32_C(65536)
#define UNSET     (-1)

/* In the order of the enumerations. */
#define ENGINES    "varve|uvm|ondemand|file"
#define DEVICES    "auto|cuda|host|none"
#define LEVELS     "cached|local|remote|complete"
#define LOCAL_IO   "auto|direct|buffered"
#define LOCAL_SYNC "commit|off"
#define POLICIES   "next|score|score-now|fifo|lru"
#define HINTS      "none|one|all|late|partial|swapped|wrong"

static const char *const hop_names[] = {
    [SHOT_HOP_D2D] = "d2d",   [SHOT_HOP_H2H] = "h2h", [SHOT_HOP_D2H] = "d2h",
    [SHOT_HOP_H2D] = "h2d",   [SHOT_HOP_H2F] = "h2f", [SHOT_HOP_F2H] = "f2h",
    [SHOT_HOP_F2R] = "f2r",   [SHOT_HOP_R2F] = "r2f", [SHOT_HOP_LINK] = "link",
    [SHOT_HOP_DISK] = "disk",
};

VV_PRINTF(3, 4) static int fail(char *err, size_t err_size, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (err && err_size)
        vsnprintf(err, err_size, fmt, ap);
    va_end(ap);
    return -EINVAL;
}

const char *shot_hop_name(enum shot_hop hop)
{
    return (unsigned)hop < SHOT_HOP_NR ? hop_names[hop] : "?";
}

static const char *word_at(const char *words, int place, char *buf, size_t size)
{
    for (; place > 0; place--)
        words += strcspn(words, "|") + 1;
    snprintf(buf, size, "%.*s", (int)strcspn(words, "|"), words);
    return buf;
}

bool shot_has_device(const struct shot_opts *opts)
{
    return opts->device == VARVE_DEVICE_HOST || opts->device == VARVE_DEVICE_CUDA;
}

bool shot_has_bound(const struct shot_opts *opts)
{
    return !opts->no_bound && opts->engine == SHOT_ENGINE_VARVE &&
           opts->calls == SHOT_CALLS_BLOCKING;
}

void shot_opts_init(struct shot_opts *opts)
{
    *opts = (struct shot_opts){
        .ckpts = 96,
        .procs = 1,
        .size_bytes = UINT64_C(8) << 20,
        .scale = 1,
        .seed = 1,
        .interval_ns = UINT64_C(10000000),
        .order = SHOT_ORDER_REV,
        .hints = SHOT_HINTS_ALL,
        .consume = SHOT_CONSUME_ONCE,
        .wait = true,
        .device = VARVE_DEVICE_HOST,
        .device_cache.share = 0.025,
        .host_cache.share = 0.075,
    };
}

static int parse_cap(const char *s, struct shot_cap *ret_cap)
{
    size_t len = strlen(s);
    char number[64];
    double percent;
    uint64_t bytes;
    int rc;

    if (len > 0 && len <= sizeof(number) && s[len - 1] == '%') {
        snprintf(number, sizeof(number), "%.*s", (int)len - 1, s);
        rc = opts_real(number, 0, DBL_MAX, &percent);
        if (rc == 0)
            *ret_cap = (struct shot_cap){.share = percent / 100};
        return rc;
    }
    rc = vv_bytes_parse(s, &bytes);
    if (rc == 0)
        *ret_cap = (struct shot_cap){.bytes = bytes};
    return rc;
}

static int parse_one_rate(const char *s, size_t len, uint64_t *rates)
{
    char text[64], *eq, *slash;
    uint64_t bps;

    if (len >= sizeof(text))
        return -EINVAL;
    memcpy(text, s, len);
    text[len] = '\0';
    eq = strchr(text, '=');
    if (!eq)
        return -EINVAL;
    *eq = '\0';
    slash = strchr(eq + 1, '/');
    if (slash && strcmp(slash, "/s") == 0)
        *slash = '\0';
    if (vv_rate_parse(eq + 1, &bps) < 0 || bps == 0)
        return -EINVAL;
    for (size_t h = 0; h < SHOT_HOP_NR; h++) {
        if (strcmp(text, hop_names[h]) == 0) {
            rates[h] = bps;
            return 0;
        }
    }
    return -EINVAL;
}

static int parse_rates(const char *s, uint64_t *rates)
{
    for (;;) {
        size_t len = strcspn(s, ",");
        int rc = parse_one_rate(s, len, rates);

        if (rc < 0 || s[len] == '\0')
            return rc;
        s += len + 1;
    }
}

static int set_device_cache(const char *value, void *args)
{
    return parse_cap(value, &((struct shot_args *)args)->o.device_cache);
}

static int set_host_cache(const char *value, void *args)
{
    return parse_cap(value, &((struct shot_args *)args)->o.host_cache);
}

static int set_local_cache(const char *value, void *args)
{
    return parse_cap(value, &((struct shot_args *)args)->o.local_cache);
}

static int set_rates(const char *value, void *args)
{
    return parse_rates(value, ((struct shot_args *)args)->o.rate);
}

static int set_interval(const char *value, void *args)
{
    double ms;
    int rc = opts_real(value, 0, 1e12, &ms);

    if (rc == 0)
        ((struct shot_args *)args)->o.interval_ns = (uint64_t)llround(ms * 1e6);
    return rc;
}

static int set_device(const char *value, void *args)
{
    int device = opts_word(DEVICES, vv_config_device_word(value));

    if (device >= 0)
        ((struct shot_args *)args)->o.device = device;
    return VV_MIN(device, 0);
}

static int set_wait(const char *value, void *args)
{
    (void)value;
    ((struct shot_args *)args)->wait = true;
    return 0;
}

static int set_no_wait(const char *value, void *args)
{
    (void)value;
    ((struct shot_args *)args)->wait = false;
    return 0;
}

#define AT(field)    offsetof(struct shot_args, o.field)
#define GIVEN(field) .given = OPT_GIVEN(struct shot_args, field)
#define WORDS(list)  .arg = (list), .words = (list)
#define CAP          .arg = "BYTES|P%", .takes = "a size or a share (such as 64M or 2.5%)"
#define ABOVE_0      .low = DBL_TRUE_MIN, .high = DBL_MAX, .takes = "a number above 0"

/* Options with a `set` have a field, too, for printing. */
static const struct opt options[] = {
    {OPT_U32, .name = "ckpts", .arg = "N", .at = AT(ckpts), .least = 1, .most = MAX_CKPTS,
     .help = "checkpoints per process (96)"},
    {OPT_BYTES, .name = "size", .arg = "BYTES", .at = AT(size_bytes), GIVEN(given_size), .least = 1,
     .takes = "a size above 0 (such as 8M)", .help = "size of each (8M)"},
    {OPT_TEXT, .name = "sizes", .arg = "FILE.csv[:column]", .at = AT(sizes), GIVEN(given_sizes),
     .help = "sizes in bytes: column after column, or one column (from 0), cycled; or a list\n"
             "of sizes: 128M,512M,512M"},
    {OPT_REAL, .name = "scale", .arg = "F", .at = AT(scale), ABOVE_0,
     .help = "multiply every size (1)"},
    {OPT_U64, .name = "seed", .arg = "N", .at = AT(seed),
     .help = "seed of contents and permutations (1)"},
    {OPT_WORD, .name = "order", WORDS("seq|rev|irr|binomial"), .at = AT(order), GIVEN(given_order),
     .help = "order of the restores (rev)"},
    {OPT_U32, .name = "slots", .arg = "N", .at = AT(slots),
     .help = "binomial: states stored at once (an eighth of --ckpts, at least 2)"},
    {OPT_WORD, .name = "hints", WORDS(HINTS), .at = AT(hints),
     .help = "hints given to the library (all); late: just before a restore; partial:\n"
             "the first tenth; swapped: one pair is; wrong: in reverse order"},
    {OPT_SET, .name = "interval-ms", .arg = "MS", .at = AT(interval_ns), .set = set_interval,
     GIVEN(given_interval), .takes = "a number of milliseconds",
     .help = "compute time before each call (10)"},
    {OPT_REAL, .name = "load", .arg = "U", .at = AT(load), GIVEN(given_load), ABOVE_0,
     .help = "instead: the interval at which a process makes U times what the disk can take"},
    {OPT_SET, .name = "wait", .at = AT(wait), .set = set_wait,
     .help = "wait for the flushes before the restores (default)"},
    {OPT_SET, .name = "no-wait", .at = AT(wait), .set = set_no_wait,
     .help = "restore while flushes are pending"},
    {OPT_WORD, .name = "consume", WORDS("once|keep"), .at = AT(consume),
     .help = "discard a restored version or not (once; binomial: keep)"},
    {OPT_FLAG, .name = "barrier", .at = AT(barrier),
     .help = "processes wait for each other before every call"},
    {OPT_U32, .name = "procs", .arg = "N", .at = AT(procs), .least = 1, .most = MAX_PROCS,
     .help = "processes (1)"},
    /* The options of the machine begin here: see FIRST_OF_MACHINE. */
    {OPT_WORD, .name = "engine", WORDS(ENGINES), .at = AT(engine),
     .help = "engine of the calls: the library (varve), or a baseline"},
    {OPT_TEXT, .name = "uvm", .arg = "WAY=N,...", .at = AT(uvm),
     .help = "engine uvm: how it uses managed memory; see the manual"},
    {OPT_WORD, .name = "compute", WORDS("sleep|gpu"), .at = AT(compute),
     .help = "compute by sleeping, or by a kernel on the device (sleep; gpu on a real one)"},
    {OPT_WORD, .name = "calls", WORDS("blocking|on"), .at = AT(calls),
     .help = "calls that return when they are done, or that are put on a stream (blocking)"},
    {OPT_SET, .name = "device", WORDS(DEVICES), .at = AT(device), .set = set_device,
     .takes = "one of " DEVICES,
     .help = "where the application's data is (host, the emulated device; auto is none here)"},
    {OPT_SET, .name = "device-cache", CAP, .at = AT(device_cache), .set = set_device_cache,
     .help = "cache on the device; P% is a share of the history (2.5%)"},
    {OPT_SET, .name = "host-cache", CAP, .at = AT(host_cache), .set = set_host_cache,
     .help = "cache in host memory (7.5%)"},
    {OPT_TEXT, .name = "local", .arg = "FOLDER", .at = AT(local),
     .help = "folder on local disk (a temporary one); none: no disk"},
    {OPT_SET, .name = "local-cache", CAP, .at = AT(local_cache), .set = set_local_cache,
     .help = "most to keep on local disk (no limit)"},
    {OPT_WORD, .name = "local-io", WORDS(LOCAL_IO), .at = AT(local_io),
     .help = "how local files are written and read (auto)"},
    {OPT_WORD, .name = "local-sync", WORDS(LOCAL_SYNC), .at = AT(local_sync),
     .help = "sync committed files or not (commit)"},
    {OPT_WORD, .name = "level", WORDS(LEVELS), .at = AT(level),
     .help = "level of all versions (cached)"},
    {OPT_SET, .name = "rate", .arg = "HOP=BYTES/S,...", .at = AT(rate), .set = set_rates,
     .takes = "HOP=BYTES/S,... (such as d2h=4G,h2f=400M)",
     .help = "throttle hops: d2d h2h d2h h2d h2f f2h f2r r2f; link, disk: see varve-bench(1)"},
    {OPT_WORD, .name = "policy", WORDS(POLICIES), .at = AT(policy),
     .help = "eviction policy (next)"},
    {OPT_BYTES, .name = "page", .arg = "BYTES", .at = AT(page_bytes),
     .help = "unit of space and transfer (0: by the caches)"},
    {OPT_FLAG, .name = "at-once", .at = AT(at_once),
     .help = "begin while the host cache is still being made ready (wait for it)"},
    {OPT_TEXT, .name = "cores", .arg = "LIST", .at = AT(cores),
     .help = "bind the processes to these processors, as a launcher of MPI does: several\n"
             "processes to one each, in turn"},
    {OPT_FLAG, .name = "no-bound", .at = AT(no_bound),
     .help = "measure no bandwidths and compute no bound"},
    {OPT_TEXT, .name = "csv", .arg = "FILE", .at = AT(csv),
     .help = "write the figures of every call to this file"},
    {OPT_TEXT, .name = "trace", .arg = "FILE", .at = AT(trace),
     .help = "record the events of the run, for 'varve trace'"},
    {OPT_FLAG, .name = "json", .at = AT(json), .help = "print one JSON object"},
};

/* Options before this one describe the workload. */
#define FIRST_OF_MACHINE 15

const struct opts shot_machine_options = {
    .list = options + FIRST_OF_MACHINE,
    .nr = VV_ARRAY_SIZE(options) - FIRST_OF_MACHINE,
};

const struct opts shot_options = {
    .usage = "[OPTION]...",
    .about = "Options (defaults in parentheses):",
    .tail = "Sizes: 512K, 8M, 4G (powers of 1024). Rates: 40M, 4G (powers of 1000) per second.",
    OPT_LIST(options),
};

static int check_cap(const char *name, const struct shot_cap *cap, char *err, size_t err_size)
{
    if (cap->bytes == 0 || cap->bytes >= VV_PAGE_BYTES_MIN)
        return 0;
    return fail(err, err_size,
                "--%s: %" PRIu64 " bytes hold nothing; did you mean %" PRIu64 "M or %" PRIu64 "%%?",
                name, cap->bytes, cap->bytes, cap->bytes);
}

/* Numbers whose unit was probably left out. */
static int check_units(const struct shot_opts *o, char *err, size_t err_size)
{
    int rc = check_cap("device-cache", &o->device_cache, err, err_size);
    cpu_set_t cpus;

    if (rc == 0 && o->cores && vv_cpus_parse(o->cores, &cpus) < 0)
        rc = fail(err, err_size, "--cores: '%.60s' is no list of processors, such as 0 or 0-3,8",
                  o->cores);
    if (rc == 0)
        rc = check_cap("host-cache", &o->host_cache, err, err_size);
    if (rc == 0)
        rc = check_cap("local-cache", &o->local_cache, err, err_size);
    for (size_t h = 0; h < SHOT_HOP_NR && rc == 0; h++)
        if (o->rate[h] > 0 && o->rate[h] < VV_CONFIG_RATE_MIN)
            rc = fail(err, err_size,
                      "--rate %s=%" PRIu64 " is bytes per second; did you mean %" PRIu64 "M?",
                      hop_names[h], o->rate[h], o->rate[h]);
    return rc;
}

static int default_compute(const struct shot_opts *o)
{
    return o->device == VARVE_DEVICE_CUDA ? SHOT_COMPUTING_GPU : SHOT_COMPUTING_SLEEP;
}

static int check_engine(const struct shot_opts *o, char *err, size_t err_size)
{
    char word[16];

    if (o->engine == SHOT_ENGINE_UVM && o->device != VARVE_DEVICE_CUDA)
        return fail(err, err_size,
                    "--engine uvm needs a GPU with managed memory: use --device cuda");
    if (o->uvm && o->engine != SHOT_ENGINE_UVM)
        return fail(err, err_size, "--uvm is allowed only with --engine uvm");
    if (o->engine != SHOT_ENGINE_VARVE && !shot_has_device(o))
        return fail(err, err_size, "--engine %s needs a device: cuda or host",
                    word_at(ENGINES, o->engine, word, sizeof(word)));
    if (o->engine == SHOT_ENGINE_FILE && o->local && strcmp(o->local, "none") == 0)
        return fail(err, err_size, "--engine file needs a local disk");
    if (o->calls == SHOT_CALLS_ON && (o->engine != SHOT_ENGINE_VARVE || !shot_has_device(o)))
        return fail(err, err_size,
                    "--calls on is allowed only with --engine varve and a device: cuda or host");
    if (o->compute == SHOT_COMPUTING_GPU && !shot_has_device(o))
        return fail(err, err_size, "--compute gpu needs a device: cuda or host");
    return 0;
}

static int check_numbers(const struct shot_opts *o, char *err, size_t err_size)
{
    char word[16];

    if (o->page_bytes && (!vv_is_pow2(o->page_bytes) || o->page_bytes < VV_PAGE_BYTES_MIN ||
                          o->page_bytes > UINT64_C(64) << 20))
        return fail(err, err_size, "--page must be a power of two, 4K to 64M");
    if (o->local && strcmp(o->local, "none") == 0 && o->level != VARVE_LEVEL_CACHED)
        return fail(err, err_size, "--level %s needs a local disk",
                    word_at(LEVELS, o->level, word, sizeof(word)));
    return check_units(o, err, err_size);
}

int shot_args_settle(struct shot_args *p, char *err, size_t err_size)
{
    struct shot_opts *o = &p->o;
    bool binomial = o->order == SHOT_ORDER_BINOMIAL;

    if (p->given_size && p->given_sizes)
        return fail(err, err_size, "--size and --sizes exclude each other");
    if (p->given_interval && p->given_load)
        return fail(err, err_size, "--interval-ms and --load exclude each other");
    if (p->given_load && o->no_bound && o->rate[SHOT_HOP_H2F] == 0)
        return fail(
            err, err_size,
            "--load needs the disk's bandwidth: give --rate h2f=..., or leave out --no-bound");
    if (o->slots && !binomial)
        return fail(err, err_size, "--slots is allowed only with --order binomial");
    if (binomial && p->wait == true)
        return fail(err, err_size, "--order binomial mixes writes and restores: leave --wait out");
    if (binomial && o->consume == SHOT_CONSUME_ONCE)
        return fail(err, err_size,
                    "--order binomial restores versions repeatedly: --consume once is not allowed");
    if (o->consume == UNSET)
        o->consume = binomial ? SHOT_CONSUME_KEEP : SHOT_CONSUME_ONCE;
    if (o->compute == UNSET)
        o->compute = default_compute(o);
    o->wait = p->wait == UNSET ? !binomial : p->wait;
    if (binomial && o->slots == 0)
        o->slots = VV_MAX((uint32_t)vv_div_up(o->ckpts, 8), UINT32_C(2));
    /* As in the library: without a device, the first copy is the one within host memory. */
    if (o->rate[SHOT_HOP_H2H] == 0)
        o->rate[SHOT_HOP_H2H] = o->rate[SHOT_HOP_D2D];
    return check_engine(o, err, err_size) < 0 ? -EINVAL : check_numbers(o, err, err_size);
}

void shot_args_init(struct shot_args *args)
{
    *args = (struct shot_args){.wait = UNSET};
    shot_opts_init(&args->o);
    args->o.consume = args->o.compute = UNSET;
}

int shot_opts_parse(const char *command, int argc, char **argv, struct shot_opts *ret_opts)
{
    struct opts table = shot_options;
    struct shot_args args;
    char err[256];
    int first, status;

    table.command = command;
    shot_args_init(&args);
    status = opts_parse(&table, argc, argv, &args, &first);
    if (status >= 0)
        return status;
    if (shot_args_settle(&args, err, sizeof(err)) < 0) {
        fprintf(stderr, "%s: %s\n", command, err);
        return CLI_USAGE;
    }
    *ret_opts = args.o;
    return -1;
}

static void format_rates(const uint64_t *rates, size_t nr, char *buf, size_t size)
{
    size_t n = 0;

    buf[0] = '\0';
    for (size_t h = 0; h < nr && n < size; h++)
        if (rates[h])
            n += (size_t)snprintf(buf + n, size - n, "%s%s=%" PRIu64, n ? "," : "", hop_names[h],
                                  rates[h]);
}

int shot_opts_rates(const struct shot_opts *opts, char *buf, size_t size)
{
    char text[SHOT_HOP_NR * 32];

    format_rates(opts->rate, SHOT_HOP_LINK, text, sizeof(text));
    if (strlen(text) >= size)
        return -ENOSPC;
    memcpy(buf, text, strlen(text) + 1);
    return 0;
}

static void format_set(const struct opt *opt, const struct shot_opts *o, const void *field,
                       char *buf, size_t size)
{
    const struct shot_cap *cap = field;

    if (opt->set == set_interval)
        snprintf(buf, size, "%.6f", (double)o->interval_ns / 1e6);
    else if (opt->set == set_device)
        word_at(DEVICES, o->device, buf, size);
    else if (opt->set == set_rates)
        format_rates(o->rate, SHOT_HOP_NR, buf, size);
    else if (cap->share > 0)
        snprintf(buf, size, "%.17g%%", cap->share * 100);
    else
        snprintf(buf, size, "%" PRIu64, cap->bytes);
}

/* The value as the command line takes it; empty: the option is left out. */
static void format_value(const struct opt *opt, const struct shot_opts *o, char *buf, size_t size)
{
    const void *field = (const char *)o + opt->at;
    const char *text;

    buf[0] = '\0';
    switch (opt->kind) {
    case OPT_U32:
        snprintf(buf, size, "%" PRIu32, *(const uint32_t *)field);
        break;
    case OPT_U64:
    case OPT_BYTES:
        snprintf(buf, size, "%" PRIu64, *(const uint64_t *)field);
        break;
    case OPT_REAL:
        snprintf(buf, size, "%.17g", *(const double *)field);
        break;
    case OPT_TEXT:
        text = *(const char *const *)field;
        snprintf(buf, size, "%s", text ? text : "");
        break;
    case OPT_WORD:
        word_at(opt->words, *(const int *)field, buf, size);
        break;
    case OPT_SET:
        format_set(opt, o, field, buf, size);
        break;
    default:
        break;
    }
}

/* Options without effect in this combination, or that would be refused. */
static bool applies(const struct opt *opt, const struct shot_opts *o)
{
    switch (opt->at) {
    case AT(size_bytes):
        return !o->sizes;
    case AT(slots):
        return o->order == SHOT_ORDER_BINOMIAL;
    case AT(interval_ns):
        return o->load <= 0;
    case AT(load):
        return o->load > 0;
    case AT(csv):
    case AT(trace):
    case AT(json):
        return false;
    default:
        return true;
    }
}

/* The state of an option without a value. */
static bool is_on(const struct opt *opt, const struct shot_opts *o)
{
    bool on = *(const bool *)((const char *)o + opt->at);

    return opt->set == set_no_wait ? !on : on;
}

/* True if the option has its default. `buf` gets the value of an option that takes one. */
static bool is_default(const struct opt *opt, const struct shot_opts *opts, char *buf, size_t size)
{
    struct shot_opts defaults;
    char unset[1280];

    shot_opts_init(&defaults);
    defaults.compute = default_compute(opts);
    if (!opt->arg)
        return is_on(opt, opts) == is_on(opt, &defaults);
    format_value(opt, opts, buf, size);
    format_value(opt, &defaults, unset, sizeof(unset));
    return !*buf || strcmp(buf, unset) == 0;
}

static void print_option(FILE *f, const struct shot_opts *opts, const struct opt *opt, bool all,
                         const char **space)
{
    char value[1280] = "";

    if (!applies(opt, opts) || (opt->at == AT(wait) && opts->order == SHOT_ORDER_BINOMIAL))
        return;
    bool same = is_default(opt, opts, value, sizeof(value));
    if ((same && !all) || (opt->arg ? !*value : !is_on(opt, opts)))
        return;
    fprintf(f, "%s--%s%s%s", *space, opt->name, opt->arg ? " " : "", value);
    *space = " ";
}

static void print_from(FILE *f, const struct shot_opts *opts, size_t first)
{
    const char *space = "";

    for (size_t i = first; i < VV_ARRAY_SIZE(options); i++)
        print_option(f, opts, &options[i], false, &space);
}

void shot_opts_print_named(FILE *f, const struct shot_opts *opts, const char *const *names,
                           size_t nr)
{
    const char *space = "";

    for (size_t i = 0; i < VV_ARRAY_SIZE(options); i++)
        for (size_t k = 0; k < nr; k++)
            if (strcmp(options[i].name, names[k]) == 0)
                print_option(f, opts, &options[i], true, &space);
}

void shot_opts_print(FILE *f, const struct shot_opts *opts)
{
    print_from(f, opts, 0);
}

void shot_opts_print_machine(FILE *f, const struct shot_opts *opts)
{
    print_from(f, opts, FIRST_OF_MACHINE);
}

void shot_opts_print_set(FILE *f, const struct shot_opts *opts)
{
    for (size_t i = FIRST_OF_MACHINE; i < VV_ARRAY_SIZE(options); i++) {
        const struct opt *opt = &options[i];
        char value[1280] = "";

        if (!applies(opt, opts) || is_default(opt, opts, value, sizeof(value)))
            continue;
        if (opt->arg)
            fprintf(f, "set %s %s\n", opt->name, value);
        else if (is_on(opt, opts))
            fprintf(f, "set %s\n", opt->name);
    }
}

static bool is_number(const struct opt *opt)
{
    return opt->kind == OPT_U32 || opt->kind == OPT_U64 || opt->kind == OPT_BYTES ||
           opt->kind == OPT_REAL || opt->set == set_interval;
}

void shot_opts_print_json(struct json *j, const char *key, const struct shot_opts *opts,
                          bool machine)
{
    json_object(j, key);
    for (size_t i = machine ? FIRST_OF_MACHINE : 0; i < VV_ARRAY_SIZE(options); i++) {
        const struct opt *opt = &options[i];
        char value[1280];

        if (!applies(opt, opts) || opt->set == set_no_wait)
            continue;
        if (!opt->arg) {
            json_bool(j, opt->name, is_on(opt, opts));
            continue;
        }
        format_value(opt, opts, value, sizeof(value));
        if (is_number(opt))
            json_number(j, opt->name, "%s", value);
        else
            json_text(j, opt->name, *value ? value : NULL);
    }
    json_close(j);
}

/* If the page size follows from the caches, capacities that are given as shares are cut to multiples of this. */
#define CAP_UNIT ((uint64_t)256 << 10)

uint64_t shot_cap_bytes(const struct shot_cap *cap, uint64_t history_bytes, uint64_t page_bytes)
{
    uint64_t bytes;

    if (cap->share <= 0)
        return cap->bytes;
    if (page_bytes == 0)
        page_bytes = CAP_UNIT;
    bytes = vv_align_down((uint64_t)(cap->share * (double)history_bytes), page_bytes);
    return VV_MAX(bytes, page_bytes);
}
