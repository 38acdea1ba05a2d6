/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve bench gpufile: repeats the experiments of the paper on readahead in GPU files: page sizes with and
 * without readahead, files larger than the cache, random records, and fourteen programs, against the ways of the
 * paper's comparison and against a good program without it.
 *
 * bench_gpufile_parts.c   the experiments, row by row
 * bench_gpufile_read.c    the ways to get files into the memory of the GPU
 * bench_gpufile_rates.c   their limits, and the predicted times
 * bench_gpufile_page.c    tables, charts and the page
 *
 * All runs are made by one process, on the GPU or on the emulated device. Results are written after each
 * experiment, so that an interrupted run leaves its results, and --resume adds to them.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/config.h"
#include "ckpt/face.h"
#include "cli/common/command.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "lab/gpufile/bench_gpufile.h"
#include "lab/gpufile/gf_kernels.h"
#include "lab/lab.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (KIB * MIB)

volatile sig_atomic_t gfb_interrupted;

static const char *const part_names[GFB_PART_NR] = {
    [GFB_PAGES] = "2",   [GFB_AHEAD] = "9",   [GFB_LARGE] = "10",  [GFB_MOSAIC] = "mosaic",
    [GFB_HITS] = "hits", [GFB_APPS] = "apps", [GFB_HALF] = "half", [GFB_COLD] = "cold",
};

static const struct {
    const char *name, *title;
} modes[GFB_MODE_NR] = {
    [GFB_CPU] = {"cpu", "one thread, then a copy"},
    [GFB_DOUBLE] = {"double", "threads with double buffers"},
    [GFB_GPUFS_4K] = {"gpufs-4k", "GPUfs mode, 4 KiB pages"},
    [GFB_GPUFS_64K] = {"gpufs-64k", "GPUfs mode, 64 KiB pages"},
    [GFB_PREFETCH_GLOBAL] = {"prefetch-global", "paper's readahead"},
    [GFB_PREFETCH] = {"prefetch", "paper's readahead and replacement"},
    [GFB_PREFETCH_MANY] = {"prefetch-many",
                           "paper's readahead and replacement, as many threads as Varve"},
    [GFB_VARVE_KEPT] = {"varve-kept", "Varve, pages kept"},
    [GFB_VARVE] = {"varve", "Varve"},
    [GFB_VARVE_MAPPED] = {"varve-mapped", "Varve, mapped"},
};

const char *gfb_mode_name(enum gfb_mode mode)
{
    return modes[mode].name;
}

const char *gfb_mode_title(enum gfb_mode mode)
{
    return modes[mode].title;
}

const char *gfb_part_name(enum gfb_part part)
{
    return part_names[part];
}

bool gfb_is_ours(enum gfb_mode mode)
{
    return mode >= GFB_VARVE_KEPT;
}

bool gfb_is_paper(enum gfb_mode mode)
{
    return mode >= GFB_GPUFS_4K && mode <= GFB_PREFETCH_MANY;
}

/* ---- the command line ---- */

static int parse_names(const char *list, const char *(*name)(int), int n, unsigned *ret_bits)
{
    char word[64];
    unsigned bits = 0;

    while (output_next_word(&list, word, sizeof(word))) {
        int i = 0;

        while (i < n && strcmp(name(i), word) != 0)
            i++;
        if (i == n)
            return -EINVAL;
        bits |= 1u << i;
    }
    *ret_bits = bits;
    return bits && !*list ? 0 : -EINVAL;
}

static const char *part_at(int i)
{
    return part_names[i];
}

static const char *mode_at(int i)
{
    return modes[i].name;
}

static const char *app_at(int i)
{
    return gf_apps[i].name;
}

static int parse_double(const char *value, double *ret)
{
    char *end;
    double v = strtod(value, &end);

    /* A number with a fraction, such as 1/4096. */
    if (end != value && *end == '/')
        v /= strtod(end + 1, &end);
    if (end == value || *end || !(v > 0 && v <= 1e6))
        return -EINVAL;
    *ret = v;
    return 0;
}

/* Whole pages. */
static int parse_size(const char *value, uint64_t *ret_bytes)
{
    uint64_t bytes;
    int rc = vv_bytes_parse(value, &bytes);

    bytes = rc == 0 ? bytes / 4096 * 4096 : 0;
    if (bytes < 16 * 4096 || bytes > 1024 * GIB)
        return -EINVAL;
    *ret_bytes = bytes;
    return 0;
}

static int set_folder(const char *value, void *arg)
{
    ((struct gfb_opts *)arg)->folder = value;
    return strlen(value) < GFB_PATH - 64 ? 0 : -EINVAL;
}

static int set_device(const char *value, void *arg)
{
    const char *device = vv_config_device_word(value);

    ((struct gfb_opts *)arg)->device = device;
    return strcmp(device, "auto") == 0 || strcmp(device, "cuda") == 0 || strcmp(device, "host") == 0
               ? 0
               : -EINVAL;
}

static int set_parts(const char *value, void *arg)
{
    return parse_names(value, part_at, GFB_PART_NR, &((struct gfb_opts *)arg)->parts);
}

static int set_apps(const char *value, void *arg)
{
    return parse_names(value, app_at, GF_APP_NR, &((struct gfb_opts *)arg)->apps);
}

static int set_modes(const char *value, void *arg)
{
    return parse_names(value, mode_at, GFB_MODE_NR, &((struct gfb_opts *)arg)->modes);
}

static int set_scale(const char *value, void *arg)
{
    return parse_double(value, &((struct gfb_opts *)arg)->scale);
}

static int set_bytes(const char *value, void *arg)
{
    return parse_size(value, &((struct gfb_opts *)arg)->bytes);
}

static int set_mosaic(const char *value, void *arg)
{
    return parse_size(value, &((struct gfb_opts *)arg)->mosaic_bytes);
}

static int set_records(const char *value, void *arg)
{
    return parse_size(value, &((struct gfb_opts *)arg)->records_bytes);
}

static int set_time_limit(const char *value, void *arg)
{
    return parse_double(value, &((struct gfb_opts *)arg)->time_limit_s);
}

#define AT(field)  offsetof(struct gfb_opts, field)
#define SIZE_TAKES "a size from 64K to 1T (for example 4G)"

static const struct opt options[] = {
    {OPT_TEXT, .name = "out", .arg = "FOLDER", .at = AT(out),
     .help = "where tables, charts and index.html go (gpufile-bench)"},
    {OPT_SET, .name = "folder", .arg = "FOLDER", .set = set_folder,
     .help = "where the files to be read are made ($TMPDIR, or /tmp)",
     .takes = "a path that is short enough"},
    {OPT_SET, .name = "device", .arg = "NAME", .set = set_device,
     .help = "cuda, host (emulated), or auto: a GPU if there is one (auto)",
     .takes = "one of cuda, host, auto"},
    {OPT_SET, .name = "only", .arg = "LIST", .set = set_parts,
     .help = "of 2 (page sizes), 9 (readahead), 10 (files larger than the\n"
             "cache), mosaic (random records), hits, apps (Figures 11, 12), half\n"
             "(13, 14: a cache of half the input), cold (all)",
     .takes = "a list of 2, 9, 10, mosaic, hits, apps, half, cold"},
    {OPT_SET, .name = "apps", .arg = "LIST", .set = set_apps,
     .help = "of hotspot, lud, backprop, bfs, dwt2d, nw, pathfinder, stencil,\n"
             "2dconv, 3dconv, gesummv, mvt, bicg, atax (all)",
     .takes = "a list of programs (for example bfs,nw)"},
    {OPT_SET, .name = "modes", .arg = "LIST", .set = set_modes,
     .help = "of cpu, double, gpufs-4k, gpufs-64k, prefetch-global, prefetch,\n"
             "prefetch-many, varve-kept, varve, varve-mapped (all)",
     .takes = "a list of ways (for example cpu,varve)"},
    {OPT_SET, .name = "scale", .arg = "X", .set = set_scale,
     .help = "inputs of the programs, in times the paper's (8; emulated: 1/4096)",
     .takes = "a number or a fraction above 0 (for example 1/4096)"},
    {OPT_SET, .name = "bytes", .arg = "SIZE", .set = set_bytes, .takes = SIZE_TAKES,
     .help = "the file that is read from its start to its end (4G; 1M)"},
    {OPT_SET, .name = "mosaic", .arg = "SIZE", .set = set_mosaic, .takes = SIZE_TAKES,
     .help = "the file with records of 4 KiB (19G; 4M)"},
    {OPT_SET, .name = "records", .arg = "SIZE", .set = set_records, .takes = SIZE_TAKES,
     .help = "how much of them is read (12G; 256K)"},
    {OPT_U32, .name = "servers", .arg = "N", .at = AT(servers), .least = 1, .most = GFB_SERVERS_MAX,
     .help = "threads, where they are not the paper's four or one (processors less\n"
             "two, 1 to 14)"},
    {OPT_U32, .name = "blocks", .arg = "N", .at = AT(blocks), .least = 1, .most = 4096,
     .help = "of the kernel that reads --bytes (120; 4)"},
    {OPT_U32, .name = "threads", .arg = "N", .at = AT(threads), .least = 1, .most = 512,
     .help = "of a block (512; 4)"},
    {OPT_U32, .name = "runs", .arg = "N", .at = AT(runs), .least = 1, .most = 100,
     .help = "the best of so many (3; 1)"},
    {OPT_FLAG, .name = "cold", .at = AT(cold),
     .help = "nothing in the page cache before a run, and ours reads past it"},
    {OPT_FLAG, .name = "short", .at = AT(is_short),
     .help = "a quarter of the programs' inputs and of --mosaic, half of --bytes,\n"
             "one run"},
    {OPT_SET, .name = "time-limit", .arg = "S", .set = set_time_limit,
     .help = "start no run after so many seconds; exit status 1 if it was reached",
     .takes = "a number of seconds"},
    {OPT_FLAG, .name = "resume", .at = AT(resume),
     .help = "keep the rows that are in --out already, and say how many"},
    {OPT_U64, .name = "seed", .arg = "N", .at = AT(seed), .least = 1, .most = UINT32_MAX,
     .help = "seed of the content of the files (1)"},
    {OPT_FLAG, .name = "list", .help = "print the runs, and do nothing", .at = AT(list)},
    {OPT_FLAG, .name = "json", .help = "print one JSON object", .at = AT(json)},
};

static const struct opts command = {
    .command = GFB_COMMAND,
    .usage = "[OPTION]...",
    .about = "Runs the experiments of the paper on readahead in files that GPU kernels read, and\n"
             "compares what the library does with its ways, and with reading and copying. Writes\n"
             "tables, charts and a page. Every word that was read is compared, every result too.",
    OPT_LIST(options),
};

/* Defaults that depend on the device. */
static void fill_in(struct gfb *b)
{
    struct gfb_opts *o = &b->o;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    bool e = b->emulated;
    uint64_t less = o->is_short ? 4 : 1, half = o->is_short ? 2 : 1;

    if (!o->servers)
        o->servers = e || n <= 3 ? 2 : n >= 16 ? 14 : (uint32_t)n - 2;
    if (!o->blocks)
        o->blocks = e ? 4 : 120;
    if (!o->threads)
        o->threads = e ? 4 : 512;
    if (!o->runs)
        o->runs = e || o->is_short ? 1 : 3;
    if (o->scale == 0)
        o->scale = (e ? 1.0 / 4096 : 8) / (double)less;
    if (!o->bytes)
        o->bytes = (e ? MIB : 4 * GIB) / half;
    if (!o->mosaic_bytes)
        o->mosaic_bytes = (e ? 4 * MIB : 19 * GIB) / less;
    if (!o->records_bytes)
        o->records_bytes = e ? 256 * KIB : 12 * GIB;
}

/* ---- rows ---- */

const struct gfb_row *gfb_find(const struct gfb *b, const char *part, const char *group,
                               const char *mode)
{
    for (size_t i = 0; i < b->rows.nr; i++) {
        const struct gfb_row *r = &b->rows.row[i];

        if (strcmp(r->part, part) == 0 && strcmp(r->group, group) == 0 &&
            strcmp(r->mode, mode) == 0)
            return r;
    }
    return NULL;
}

struct gfb_row *gfb_row(struct gfb *b, const char *part, const char *group, const char *mode)
{
    struct gfb_row *r = (struct gfb_row *)(uintptr_t)gfb_find(b, part, group, mode);

    if (!r && b->rows.nr == b->rows.cap) {
        size_t cap = b->rows.cap ? 2 * b->rows.cap : 64;
        struct gfb_row *more = realloc(b->rows.row, cap * sizeof(*more));

        if (!more)
            return NULL;
        b->rows.row = more;
        b->rows.cap = cap;
    }
    if (!r)
        r = &b->rows.row[b->rows.nr++];
    *r = (struct gfb_row){.predicted_s = NAN};
    snprintf(r->part, sizeof(r->part), "%s", part);
    snprintf(r->group, sizeof(r->group), "%s", group);
    snprintf(r->mode, sizeof(r->mode), "%s", mode);
    return r;
}

int gfb_fail(struct gfb *b, int rc, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(b->error, sizeof(b->error), fmt, ap);
    va_end(ap);
    return rc;
}

bool gfb_over(const struct gfb *b)
{
    return gfb_interrupted ||
           (b->o.time_limit_s > 0 && gfb_now_s() - b->started_s > b->o.time_limit_s);
}

/* ---- opening ---- */

static int open_context(struct gfb *b, int32_t device)
{
    struct varve_opts o;
    int rc = varve_opts_init(&o, sizeof(o));

    if (rc)
        return rc;
    o.device = device;
    o.device_cache = o.host_cache = 0;
    return varve_open(&o, &b->ctx);
}

/* Reports the text of the driver, which the library has recorded: the error number alone does not say what to do. */
static int no_gpu(struct gfb *b, int rc)
{
    struct varve_error e = {.error_size = sizeof(e)};
    bool has_text = varve_last_error(NULL, &e) == 0 && e.err == rc;

    return gfb_fail(b, rc, "no GPU: %s", has_text ? e.text : varve_strerror(rc));
}

static int open_device(struct gfb *b)
{
    bool host = strcmp(b->o.device, "host") == 0;
    struct vv_device_info info;
    int rc = host ? -ENODEV : open_context(b, VARVE_DEVICE_CUDA);

    if (rc == 0 && !vv_ckpt_device(b->ctx))
        rc = -ENODEV;
    if (rc == 0)
        rc = gf_gpu_new(vv_ckpt_device(b->ctx), false, b->error, sizeof(b->error), &b->gpu);
    else if (!host)
        (void)no_gpu(b, rc);
    if (rc && strcmp(b->o.device, "cuda") == 0)
        return rc;
    if (rc) {
        if (!host)
            fprintf(stderr, GFB_COMMAND ": %s; the device is emulated\n", b->error);
        (void)varve_close(b->ctx);
        b->ctx = NULL;
        b->emulated = true;
        rc = open_context(b, VARVE_DEVICE_HOST);
        if (rc)
            return gfb_fail(b, rc, "the emulated device: %s", varve_strerror(rc));
        rc = gf_gpu_new(vv_ckpt_device(b->ctx), true, b->error, sizeof(b->error), &b->gpu);
    }
    if (rc)
        return rc;
    b->device = vv_ckpt_device(b->ctx);
    vv_device_describe(b->device, &info);
    snprintf(b->device_name, sizeof(b->device_name), "%s", info.name);
    return 0;
}

static int open_rest(struct gfb *b)
{
    void *p;
    int rc;

    b->buffer_bytes = b->emulated ? 64 * KIB : 4 * MIB;
    b->pinned_bytes = vv_align_up(2 * b->o.servers * b->buffer_bytes, 2 * MIB);
    p = mmap(NULL, b->pinned_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return gfb_fail(b, -ENOMEM, "no memory for buffers");
    b->pinned = p;
    memset(p, 1, b->pinned_bytes);
    rc = vv_device_host_share(b->device, p, b->pinned_bytes, false, &b->pinned_dev);
    if (rc == 0)
        rc = vv_device_stream_new(b->device, &b->stream);
    if (rc == 0)
        rc = vv_device_event_new(b->device, &b->event);
    if (rc == 0) {
        rc = vv_device_mem_alloc(b->device, sizeof(*b->result), &p);
        b->result = rc ? NULL : p;
    }
    return rc ? gfb_fail(b, rc, "the device: %s", strerror(-rc)) : 0;
}

static void close_all(struct gfb *b)
{
    if (b->device) {
        (void)vv_device_mem_free(b->device, b->result);
        vv_device_event_free(b->device, b->event);
        vv_device_stream_free(b->device, b->stream);
        if (b->pinned_dev)
            (void)vv_device_host_unregister(b->device, b->pinned);
    }
    if (b->pinned)
        (void)munmap(b->pinned, b->pinned_bytes);
    gf_gpu_free(b->gpu);
    (void)varve_close(b->ctx);
    free(b->rows.row);
}

static void on_signal(int signal)
{
    (void)signal;
    gfb_interrupted = 1;
}

static void list(const struct gfb *b)
{
    const bool with_apps = b->o.parts & (1u << GFB_APPS | 1u << GFB_HALF);

    for (int part = 0; part < GFB_PART_NR; part++)
        if (b->o.parts >> part & 1)
            printf("%s\n", part_names[part]);
    for (int app = 0; with_apps && app < GF_APP_NR; app++)
        if (b->o.apps >> app & 1) {
            struct gf_shape s;

            gf_shape_init((enum gf_app_id)app, b->o.scale, b->o.seed, &s);
            printf("  %-11s %u file%s, %.1f MiB, result of %.1f MiB\n", gf_apps[app].name,
                   gf_apps[app].n_files, gf_apps[app].n_files > 1 ? "s" : "",
                   (double)(s.bytes[0] + s.bytes[1] + s.bytes[2]) / (double)MIB,
                   (double)s.out_words * 4 / (double)MIB);
        }
}

static void describe(struct gfb *b, int argc, char **argv)
{
    size_t len = (size_t)snprintf(b->command, sizeof(b->command), GFB_COMMAND);
    time_t now = time(NULL);
    struct tm tm;

    for (int i = 1; i < argc && len < sizeof(b->command); i++)
        len += (size_t)snprintf(b->command + len, sizeof(b->command) - len, " %s", argv[i]);
    strftime(b->date, sizeof(b->date), "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &tm));
}

static int perform(struct gfb *b)
{
    char err[GFB_PATH + GFB_TEXT];
    int rc = 0, wrote;

    /* Checks the folder for the files, and makes that of the results, before anything is measured. A
     * path that ends in a dot exists only if it is a folder. */
    snprintf(err, sizeof(err), "%s/.", b->o.folder);
    if (access(err, W_OK | X_OK) < 0)
        return gfb_fail(b, -errno, "no files can be made in %s (--folder): %s", b->o.folder,
                        strerror(errno));
    if (mkdir(b->o.out, 0777) < 0 && errno != EEXIST)
        return gfb_fail(b, -errno, "%s: %s", b->o.out, strerror(errno));
    if (b->o.resume)
        rc = gfb_load(b);
    if (rc == 0)
        rc = open_rest(b);
    if (rc == 0)
        rc = gfb_run(b);
    wrote = gfb_write(b, err, sizeof(err));
    return rc || wrote == 0 ? rc : gfb_fail(b, wrote, "%s", err);
}

int lab_bench_gpufile(int argc, char **argv)
{
    struct sigaction sa = {.sa_handler = on_signal};
    const char *tmp = getenv("TMPDIR");
    struct gfb b = {.o = {.out = "gpufile-bench",
                          .folder = tmp && *tmp ? tmp : "/tmp",
                          .device = "auto",
                          .parts = (1u << GFB_PART_NR) - 1,
                          .apps = (1u << GF_APP_NR) - 1,
                          .modes = (1u << GFB_MODE_NR) - 1,
                          .seed = 1}};
    bool over;
    int first, rc = opts_parse(&command, argc, argv, &b.o, &first);

    if (rc >= 0)
        return rc;
    describe(&b, argc, argv);
    progress_init(&b.progress);
    b.started_s = gfb_now_s();
    rc = open_device(&b);
    if (rc == 0) {
        fill_in(&b);
        if (b.emulated && (b.o.threads > 64 || b.o.threads % 2)) {
            fprintf(stderr, GFB_COMMAND
                    ": --threads: on the emulated device expected an even number up to 64\n");
            close_all(&b);
            return CLI_USAGE;
        }
        sigaction(SIGINT, &sa, NULL);
        sigaction(SIGTERM, &sa, NULL);
        if (b.o.list)
            list(&b);
        else
            rc = perform(&b);
    }
    progress_clear(&b.progress);
    /* Errors after a signal, such as files that were removed, are not reported. */
    if (rc && !gfb_interrupted)
        fprintf(stderr, GFB_COMMAND ": %s\n", b.error);
    else if (!b.o.list && b.o.json)
        gfb_print_json(&b);
    else if (!b.o.list)
        gfb_print(&b);
    over = !b.o.list && gfb_over(&b);
    if (over)
        fprintf(stderr, GFB_COMMAND ": %s\n", gfb_interrupted ? "interrupted" : "out of time");
    close_all(&b);
    return rc || b.bad || over ? CLI_FAILED : CLI_OK;
}
