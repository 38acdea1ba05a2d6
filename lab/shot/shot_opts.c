/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of a shot: one table yields the parser, the help text, the line that repeats a run
 * and the JSON object. An option is written "--name value" or "--name=value"; of several, the last
 * counts.
 *
 * Defaults that depend on other options (binomial keeps what it has read and does not wait) are
 * filled in after the last argument, which is why the fields concerned start out as UNSET.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <varve/varve.h>

#include "base/bytes.h"
#include "base/config.h"
#include "cli/common/json.h"
#include "lab/shot/shot.h"

#define MAX_CKPTS UINT32_C(100000000)
#define MAX_PROCS UINT32_C(65536)
#define UNSET     (-1)

enum type { T_U32, T_U64, T_BYTES, T_REAL, T_MS, T_TEXT, T_CHOICE, T_CAP, T_RATES, T_ON, T_OFF };

static const char *const orders[] = {"seq", "rev", "irr", "binomial", NULL};
static const char *const hints[] = {"none", "one", "all", NULL};
static const char *const consumes[] = {"once", "keep", NULL};
static const char *const engines[] = {[SHOT_ENGINE_VARVE] = "varve",
                                      [SHOT_ENGINE_UVM] = "uvm",
                                      [SHOT_ENGINE_ONDEMAND] = "ondemand",
                                      [SHOT_ENGINE_FILE] = "file",
                                      NULL};
static const char *const calls[] = {"blocking", "on", NULL};
static const char *const computings[] = {"sleep", "gpu", NULL};
static const char *const devices[] = {[VARVE_DEVICE_AUTO] = "auto",
                                      [VARVE_DEVICE_CUDA] = "cuda",
                                      [VARVE_DEVICE_HOST] = "host",
                                      [VARVE_DEVICE_NONE] = "none",
                                      NULL};
static const char *const levels[] = {[VARVE_LEVEL_CACHED] = "cached",
                                     [VARVE_LEVEL_LOCAL] = "local",
                                     [VARVE_LEVEL_REMOTE] = "remote",
                                     [VARVE_LEVEL_COMPLETE] = "complete",
                                     NULL};
static const char *const local_ios[] = {[VARVE_LOCAL_IO_AUTO] = "auto",
                                        [VARVE_LOCAL_IO_DIRECT] = "direct",
                                        [VARVE_LOCAL_IO_BUFFERED] = "buffered",
                                        NULL};
static const char *const policies[] = {[VARVE_POLICY_NEXT] = "next",
                                       [VARVE_POLICY_SCORE] = "score",
                                       [VARVE_POLICY_SCORE_NOW] = "score-now",
                                       [VARVE_POLICY_FIFO] = "fifo",
                                       [VARVE_POLICY_LRU] = "lru",
                                       NULL};
static const char *const hop_names[] = {
    [SHOT_HOP_D2D] = "d2d",   [SHOT_HOP_H2H] = "h2h", [SHOT_HOP_D2H] = "d2h",
    [SHOT_HOP_H2D] = "h2d",   [SHOT_HOP_H2F] = "h2f", [SHOT_HOP_F2H] = "f2h",
    [SHOT_HOP_F2R] = "f2r",   [SHOT_HOP_R2F] = "r2f", [SHOT_HOP_LINK] = "link",
    [SHOT_HOP_DISK] = "disk",
};

/* Parsed values; the tristate fields are what shot_opts cannot hold. */
struct parsed {
    struct shot_opts o;
    int wait;
    int given_size, given_sizes, given_interval, given_load;
};

struct option {
    const char *name;
    enum type type;
    size_t offset;
    const char *metavar;
    const char *help;
    const char *const *choices;
};

#define AT(field)  offsetof(struct shot_opts, field)
#define NO_CHOICES NULL

static const struct option options[] = {
    {"ckpts", T_U32, AT(ckpts), "N", "checkpoints per process (96)", NO_CHOICES},
    {"size", T_BYTES, AT(size_bytes), "BYTES", "size of each (8M)", NO_CHOICES},
    {"sizes", T_TEXT, AT(sizes), "FILE.csv[:column]",
     "sizes in bytes: column after column, or one column (from 0), cycled", NO_CHOICES},
    {"scale", T_REAL, AT(scale), "F", "multiply every size (1)", NO_CHOICES},
    {"seed", T_U64, AT(seed), "N", "of contents and permutations (1)", NO_CHOICES},
    {"order", T_CHOICE, AT(order), NULL, "order of the restores (rev)", orders},
    {"slots", T_U32, AT(slots), "N",
     "binomial: states stored at once (an eighth of --ckpts, at least 2)", NO_CHOICES},
    {"hints", T_CHOICE, AT(hints), NULL, "hints given to the library (all)", hints},
    {"interval-ms", T_MS, AT(interval_ns), "MS", "compute time before each call (10)", NO_CHOICES},
    {"load", T_REAL, AT(load), "U",
     "instead: the interval at which a process makes U times what the disk can take", NO_CHOICES},
    {"wait", T_ON, AT(wait), NULL, "wait for the flushes before the restores (default)",
     NO_CHOICES},
    {"no-wait", T_OFF, AT(wait), NULL, "restore while flushes are pending", NO_CHOICES},
    {"consume", T_CHOICE, AT(consume), NULL,
     "whether a restored version is discarded (once; binomial: keep)", consumes},
    {"barrier", T_ON, AT(barrier), NULL, "processes wait for each other before every call",
     NO_CHOICES},
    {"engine", T_CHOICE, AT(engine), NULL,
     "what carries the calls out: the library (varve), or a baseline", engines},
    {"uvm", T_TEXT, AT(uvm), "WAY=N,...", "engine uvm: how it uses managed memory; see the manual",
     NO_CHOICES},
    {"compute", T_CHOICE, AT(compute), NULL,
     "compute by sleeping, or by a kernel on the device (sleep; gpu on a real one)", computings},
    {"calls", T_CHOICE, AT(calls), NULL,
     "calls that return when they are done, or that are put on a stream (blocking)", calls},
    {"device", T_CHOICE, AT(device), NULL,
     "where the application's data is (host, the emulated device; auto is none here)", devices},
    {"device-cache", T_CAP, AT(device_cache), "BYTES|P%",
     "cache on the device; P% is a share of the history (2.5%)", NO_CHOICES},
    {"host-cache", T_CAP, AT(host_cache), "BYTES|P%", "cache in host memory (7.5%)", NO_CHOICES},
    {"local", T_TEXT, AT(local), "DIR", "folder on local disk (a temporary one); none: no disk",
     NO_CHOICES},
    {"local-cache", T_CAP, AT(local_cache), "BYTES|P%", "most to keep on local disk (no limit)",
     NO_CHOICES},
    {"local-io", T_CHOICE, AT(local_io), NULL, "how local files are written and read (auto)",
     local_ios},
    {"level", T_CHOICE, AT(level), NULL, "how far versions shall come (cached)", levels},
    {"rate", T_RATES, AT(rate), "HOP=BYTES/S,...",
     "throttle hops: d2d h2h d2h h2d h2f f2h f2r r2f; link, disk: see varve-bench(1)", NO_CHOICES},
    {"policy", T_CHOICE, AT(policy), NULL, "eviction policy (next)", policies},
    {"page", T_BYTES, AT(page_bytes), "BYTES", "unit of space and transfer (0: by the caches)",
     NO_CHOICES},
    {"procs", T_U32, AT(procs), "N", "processes (1)", NO_CHOICES},
    {"at-once", T_ON, AT(at_once), NULL,
     "begin while the host cache is still being made ready (wait for it)", NO_CHOICES},
    {"no-bound", T_ON, AT(no_bound), NULL, "measure no bandwidths and compute no bound",
     NO_CHOICES},
    {"csv", T_TEXT, AT(csv), "FILE", "write the figures of every call to this file", NO_CHOICES},
    {"trace", T_TEXT, AT(trace), "FILE", "record what happens when, for 'varve trace'", NO_CHOICES},
    {"json", T_ON, AT(json), NULL, "print one JSON object", NO_CHOICES},
    {"help", T_ON, AT(help), NULL, "this text", NO_CHOICES},
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

const char *shot_engine_name(enum shot_engine_kind engine)
{
    return engines[engine];
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

int shot_parse_u64(const char *s, uint64_t max, uint64_t *ret_value)
{
    char *end;
    unsigned long long v;

    if (*s < '0' || *s > '9')
        return -EINVAL;
    errno = 0;
    v = strtoull(s, &end, 10);
    if (errno || *end || v > max)
        return -EINVAL;
    *ret_value = v;
    return 0;
}

static int parse_real(const char *s, const char *suffix, double *ret_value)
{
    char *end;
    double v = strtod(s, &end);

    if (end == s || strcmp(end, suffix) != 0 || !isfinite(v) || v < 0)
        return -EINVAL;
    *ret_value = v;
    return 0;
}

static int parse_cap(const char *s, struct shot_cap *ret_cap)
{
    size_t len = strlen(s);
    double percent;
    uint64_t bytes;
    int rc;

    if (len > 0 && s[len - 1] == '%') {
        rc = parse_real(s, "%", &percent);
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

static int parse_choice(const char *s, const char *const *choices, int *ret_choice)
{
    for (int i = 0; choices[i]; i++) {
        if (strcmp(s, choices[i]) == 0) {
            *ret_choice = i;
            return 0;
        }
    }
    return -EINVAL;
}

static int set_value(const struct option *opt, const char *s, struct parsed *p)
{
    char *field = (char *)&p->o + opt->offset;
    uint64_t u = 0;
    double ms;
    int rc;

    switch (opt->type) {
    case T_U32:
        rc = shot_parse_u64(s, UINT32_MAX, &u);
        if (rc == 0)
            *(uint32_t *)(void *)field = (uint32_t)u;
        return rc;
    case T_U64:
        return shot_parse_u64(s, UINT64_MAX, (uint64_t *)(void *)field);
    case T_BYTES:
        return vv_bytes_parse(s, (uint64_t *)(void *)field);
    case T_REAL:
        return parse_real(s, "", (double *)(void *)field);
    case T_MS:
        rc = parse_real(s, "", &ms);
        if (rc == 0 && ms > 1e12)
            return -EINVAL;
        if (rc == 0)
            *(uint64_t *)(void *)field = (uint64_t)llround(ms * 1e6);
        return rc;
    case T_TEXT:
        *(const char **)(void *)field = s;
        return *s ? 0 : -EINVAL;
    case T_CHOICE:
        return parse_choice(opt->choices == devices ? vv_config_device_word(s) : s, opt->choices,
                            (int *)(void *)field);
    case T_CAP:
        return parse_cap(s, (struct shot_cap *)(void *)field);
    case T_RATES:
        return parse_rates(s, p->o.rate);
    case T_ON:
    case T_OFF:
        break;
    }
    return -EINVAL;
}

static bool get_bool(const struct shot_opts *o, const struct option *opt)
{
    return *(const bool *)((const char *)o + opt->offset);
}

static const struct option *find_option(const char *name, size_t len)
{
    for (size_t i = 0; i < VV_ARRAY_SIZE(options); i++)
        if (strlen(options[i].name) == len && strncmp(options[i].name, name, len) == 0)
            return &options[i];
    return NULL;
}

/* What a value of this option looks like, for messages and help. */
static void describe(const struct option *opt, char *buf, size_t size)
{
    size_t n = 0;

    if (!opt->choices) {
        snprintf(buf, size, "%s", opt->metavar ? opt->metavar : "");
        return;
    }
    for (int i = 0; opt->choices[i] && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? "|" : "", opt->choices[i]);
}

static void note_given(const struct option *opt, struct parsed *p)
{
    switch (opt->offset) {
    case AT(size_bytes):
        p->given_size = 1;
        break;
    case AT(sizes):
        p->given_sizes = 1;
        break;
    case AT(interval_ns):
        p->given_interval = 1;
        break;
    case AT(load):
        p->given_load = 1;
        break;
    case AT(wait):
        p->wait = p->o.wait;
        break;
    default:
        break;
    }
}

static int parse_args(int argc, char *const *argv, char *err, size_t err_size, struct parsed *p)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value;
        const struct option *opt;
        size_t len;
        char form[128];

        if (strncmp(arg, "--", 2) != 0)
            return fail(err, err_size, "unexpected argument '%s'", arg);
        len = strcspn(arg + 2, "=");
        opt = find_option(arg + 2, len);
        if (!opt)
            return fail(err, err_size, "unknown option '%.*s'", (int)len + 2, arg);
        value = arg[2 + len] == '=' ? arg + 3 + len : NULL;
        if (opt->type == T_ON || opt->type == T_OFF) {
            if (value)
                return fail(err, err_size, "--%s takes no value", opt->name);
            *(bool *)((char *)&p->o + opt->offset) = opt->type == T_ON;
        } else {
            describe(opt, form, sizeof(form));
            if (!value && i + 1 < argc)
                value = argv[++i];
            if (!value)
                return fail(err, err_size, "--%s needs a value: %s", opt->name, form);
            if (set_value(opt, value, p) < 0)
                return fail(err, err_size, "--%s %s: expected %s", opt->name, value, form);
        }
        note_given(opt, p);
    }
    return 0;
}

static int check_cap(const char *name, const struct shot_cap *cap, char *err, size_t err_size)
{
    if (cap->bytes == 0 || cap->bytes >= VV_PAGE_BYTES_MIN)
        return 0;
    return fail(err, err_size,
                "--%s: %" PRIu64 " bytes hold nothing; did you mean %" PRIu64 "M or %" PRIu64 "%%?",
                name, cap->bytes, cap->bytes, cap->bytes);
}

/* Numbers without the unit that was meant. */
static int check_units(const struct shot_opts *o, char *err, size_t err_size)
{
    int rc = check_cap("device-cache", &o->device_cache, err, err_size);

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

static int check_engine(const struct shot_opts *o, char *err, size_t err_size)
{
    if (o->engine == SHOT_ENGINE_UVM && o->device != VARVE_DEVICE_CUDA)
        return fail(
            err, err_size,
            "--engine uvm needs a real GPU, --device cuda: nothing else has managed memory");
    if (o->uvm && o->engine != SHOT_ENGINE_UVM)
        return fail(err, err_size, "--uvm is for --engine uvm");
    if (o->engine != SHOT_ENGINE_VARVE && !shot_has_device(o))
        return fail(err, err_size, "--engine %s needs a device: cuda or host", engines[o->engine]);
    if (o->engine == SHOT_ENGINE_FILE && o->local && strcmp(o->local, "none") == 0)
        return fail(err, err_size, "--engine file needs a local disk");
    if (o->calls == SHOT_CALLS_ON && (o->engine != SHOT_ENGINE_VARVE || !shot_has_device(o)))
        return fail(err, err_size, "--calls on is for the library on a device: cuda or host");
    if (o->compute == SHOT_COMPUTING_GPU && !shot_has_device(o))
        return fail(err, err_size, "--compute gpu needs a device: cuda or host");
    return 0;
}

static int check_numbers(const struct shot_opts *o, char *err, size_t err_size)
{
    if (o->ckpts == 0 || o->ckpts > MAX_CKPTS)
        return fail(err, err_size, "--ckpts must be 1 to %" PRIu32, MAX_CKPTS);
    if (o->procs == 0 || o->procs > MAX_PROCS)
        return fail(err, err_size, "--procs must be 1 to %" PRIu32, MAX_PROCS);
    if (o->size_bytes == 0)
        return fail(err, err_size, "--size must not be 0");
    if (o->scale <= 0)
        return fail(err, err_size, "--scale must be more than 0");
    if (o->page_bytes && (!vv_is_pow2(o->page_bytes) || o->page_bytes < VV_PAGE_BYTES_MIN ||
                          o->page_bytes > UINT64_C(64) << 20))
        return fail(err, err_size, "--page must be a power of two, 4K to 64M");
    if (o->local && strcmp(o->local, "none") == 0 && o->level != VARVE_LEVEL_CACHED)
        return fail(err, err_size, "--level %s needs a local disk", levels[o->level]);
    return check_units(o, err, err_size);
}

/* Conflicts, and defaults that depend on other options. */
static int settle(struct parsed *p, char *err, size_t err_size)
{
    struct shot_opts *o = &p->o;
    bool binomial = o->order == SHOT_ORDER_BINOMIAL;

    if (p->given_size && p->given_sizes)
        return fail(err, err_size, "--size and --sizes exclude each other");
    if (p->given_interval && p->given_load)
        return fail(err, err_size, "--interval-ms and --load exclude each other");
    if (p->given_load && o->load <= 0)
        return fail(err, err_size, "--load must be more than 0");
    if (p->given_load && o->no_bound && o->rate[SHOT_HOP_H2F] == 0)
        return fail(
            err, err_size,
            "--load needs the disk's bandwidth: give --rate h2f=..., or leave out --no-bound");
    if (o->slots && !binomial)
        return fail(err, err_size, "--slots is for --order binomial");
    if (binomial && p->wait == true)
        return fail(err, err_size,
                    "--order binomial mixes writes and restores: there is no place for --wait");
    if (binomial && o->consume == SHOT_CONSUME_ONCE)
        return fail(err, err_size,
                    "--order binomial restores versions repeatedly: --consume once cannot be");
    if (o->consume == UNSET)
        o->consume = binomial ? SHOT_CONSUME_KEEP : SHOT_CONSUME_ONCE;
    if (o->compute == UNSET)
        o->compute = o->device == VARVE_DEVICE_CUDA ? SHOT_COMPUTING_GPU : SHOT_COMPUTING_SLEEP;
    o->wait = p->wait == UNSET ? !binomial : p->wait;
    if (binomial && o->slots == 0)
        o->slots = VV_MAX((uint32_t)vv_div_up(o->ckpts, 8), UINT32_C(2));
    /* As the library has it: without a device, the first copy is the one within host memory. */
    if (o->rate[SHOT_HOP_H2H] == 0)
        o->rate[SHOT_HOP_H2H] = o->rate[SHOT_HOP_D2D];
    return check_engine(o, err, err_size) < 0 ? -EINVAL : check_numbers(o, err, err_size);
}

int shot_opts_parse(int argc, char *const *argv, char *err, size_t err_size,
                    struct shot_opts *ret_opts)
{
    struct parsed p = {.wait = UNSET};
    int rc;

    shot_opts_init(&p.o);
    p.o.consume = p.o.compute = UNSET;
    rc = parse_args(argc, argv, err, err_size, &p);
    if (rc == 0 && !p.o.help)
        rc = settle(&p, err, err_size);
    if (rc == 0)
        *ret_opts = p.o;
    return rc;
}

void shot_opts_usage(FILE *f, const char *command)
{
    fprintf(f, "usage: %s [OPTION]...\n\nOptions (defaults in parentheses):\n", command);
    for (size_t i = 0; i < VV_ARRAY_SIZE(options); i++) {
        const struct option *opt = &options[i];
        char form[96], left[128];

        describe(opt, form, sizeof(form));
        snprintf(left, sizeof(left), "--%s%s%s", opt->name, *form ? " " : "", form);
        fprintf(f, "  %-42s %s\n", left, opt->help);
    }
    fprintf(
        f, "\nSizes: 512K, 8M, 4G (powers of 1024). Rates: 40M, 4G (powers of 1000) per second.\n");
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

/* The value as the command line takes it; empty: the option is not to be given. */
static void format_value(const struct option *opt, const struct shot_opts *o, char *buf,
                         size_t size)
{
    const char *field = (const char *)o + opt->offset;
    const struct shot_cap *cap = (const void *)field;

    buf[0] = '\0';
    switch (opt->type) {
    case T_U32:
        snprintf(buf, size, "%" PRIu32, *(const uint32_t *)(const void *)field);
        break;
    case T_U64:
    case T_BYTES:
        snprintf(buf, size, "%" PRIu64, *(const uint64_t *)(const void *)field);
        break;
    case T_REAL:
        snprintf(buf, size, "%.17g", *(const double *)(const void *)field);
        break;
    case T_MS:
        snprintf(buf, size, "%.6f", (double)*(const uint64_t *)(const void *)field / 1e6);
        break;
    case T_TEXT:
        if (*(const char *const *)(const void *)field)
            snprintf(buf, size, "%s", *(const char *const *)(const void *)field);
        break;
    case T_CHOICE:
        snprintf(buf, size, "%s", opt->choices[*(const int *)(const void *)field]);
        break;
    case T_CAP:
        if (cap->share > 0)
            snprintf(buf, size, "%.17g%%", cap->share * 100);
        else
            snprintf(buf, size, "%" PRIu64, cap->bytes);
        break;
    case T_RATES:
        format_rates(o->rate, SHOT_HOP_NR, buf, size);
        break;
    case T_ON:
    case T_OFF:
        break;
    }
}

/* Options that say nothing in this combination, or would be refused. */
static bool applies(const struct option *opt, const struct shot_opts *o)
{
    switch (opt->offset) {
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
    case AT(help):
        return false;
    default:
        return true;
    }
}

void shot_opts_print(FILE *f, const struct shot_opts *opts)
{
    const char *space = "";

    for (size_t i = 0; i < VV_ARRAY_SIZE(options); i++) {
        const struct option *opt = &options[i];
        char value[1280];

        if (!applies(opt, opts))
            continue;
        if (opt->type == T_ON || opt->type == T_OFF) {
            bool set = get_bool(opts, opt);

            if (set != (opt->type == T_ON) ||
                (opt->offset == AT(wait) && opts->order == SHOT_ORDER_BINOMIAL))
                continue;
            fprintf(f, "%s--%s", space, opt->name);
        } else {
            format_value(opt, opts, value, sizeof(value));
            if (!*value)
                continue;
            fprintf(f, "%s--%s %s", space, opt->name, value);
        }
        space = " ";
    }
}

void shot_opts_print_json(struct json *j, const char *key, const struct shot_opts *opts)
{
    json_object(j, key);
    for (size_t i = 0; i < VV_ARRAY_SIZE(options); i++) {
        const struct option *opt = &options[i];
        char value[1280];

        if (!applies(opt, opts) || opt->type == T_OFF)
            continue;
        format_value(opt, opts, value, sizeof(value));
        if (opt->type == T_ON)
            json_bool(j, opt->name, get_bool(opts, opt));
        else if (opt->type == T_U32 || opt->type == T_U64 || opt->type == T_BYTES ||
                 opt->type == T_REAL || opt->type == T_MS)
            json_number(j, opt->name, "%s", value);
        else
            json_text(j, opt->name, *value ? value : NULL);
    }
    json_close(j);
}

/* Shares are whole multiples of this when the page size follows from the caches. */
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
