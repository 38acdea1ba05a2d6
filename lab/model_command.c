/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve model: predicts how long a program will wait for its records. The performance model (policy/model.h) gives
 * the answer: a few divisions of sizes, capacities and bandwidths, which are given or measured in folders for a
 * second or two.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/topo.h"
#include "cli/common/command.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "cli/measure/probe.h"
#include "lab/lab.h"
#include "lab/model_revolve.h"
#include "policy/model.h"

#define COMMAND   "varve model"
#define RATIO_MAX 32

struct layer_name {
    const char *folder; /* the folder was measured; NULL: given */
};

struct model_opts {
    struct vv_model m;
    struct layer_name name[VV_MODEL_LAYERS];
    uint64_t grid[3], element_bytes, steps;
    uint64_t ratio[RATIO_MAX];
    size_t nr_ratios;
    double step_s, adjoint_s, seconds;
    bool json, measured, direct_given, write_only;
    bool revolve, adjoint_given, ratio_given;
};

struct model_row {
    uint64_t ratio, records;
    struct vv_model_answer a;
};

struct model_rows {
    const struct model_opts *o;
    struct model_row row[RATIO_MAX];
};

static int parse_grid(const char *value, uint64_t grid[3])
{
    size_t n;

    return output_parse_list(value, UINT32_MAX, grid, 3, &n) == 0 && n == 3 ? 0 : -EINVAL;
}

static int parse_rates(const char *value, struct vv_model_layer *l)
{
    return output_parse_rates(value, 1, &l->write_bytes_per_s, &l->read_bytes_per_s);
}

/* Parses SIZE@ at the start of a text; returns the rest. */
static const char *parse_capacity(const char *value, uint64_t *ret_bytes)
{
    const char *at = strchr(value, '@');
    char text[64];

    *ret_bytes = 0;
    if (!at || (size_t)(at - value) >= sizeof(text))
        return value;
    memcpy(text, value, (size_t)(at - value));
    text[at - value] = '\0';
    return vv_bytes_parse(text, ret_bytes) == 0 && *ret_bytes > 0 ? at + 1 : value;
}

static int add_layer(struct model_opts *o, const char *value, bool folder)
{
    struct vv_model_layer l = {0};
    const char *rest = parse_capacity(value, &l.capacity_bytes);

    if (o->m.nlayers == VV_MODEL_LAYERS || !*rest)
        return -EINVAL;
    if (!folder && parse_rates(rest, &l) < 0)
        return -EINVAL;
    o->name[o->m.nlayers].folder = folder ? rest : NULL;
    o->m.layer[o->m.nlayers++] = l;
    return 0;
}

static int set_grid(const char *value, void *arg)
{
    return parse_grid(value, ((struct model_opts *)arg)->grid);
}

static int set_ratios(const char *value, void *arg)
{
    struct model_opts *o = arg;

    return output_parse_list(value, UINT32_MAX, o->ratio, RATIO_MAX, &o->nr_ratios);
}

static int set_copy(const char *value, void *arg)
{
    struct model_opts *o = arg;
    uint64_t rate;

    if (vv_rate_parse(value, &rate) < 0 || rate == 0)
        return -EINVAL;
    o->m.copy_bytes_per_s = (double)rate;
    return 0;
}

static int set_layer(const char *value, void *arg)
{
    return add_layer(arg, value, false);
}

static int set_folder(const char *value, void *arg)
{
    return add_layer(arg, value, true);
}

static int set_direct(const char *value, void *arg)
{
    return parse_rates(value, &((struct model_opts *)arg)->m.reference);
}

static int set_seconds(const char *value, void *arg)
{
    struct model_opts *o = arg;

    return opts_real(value, 0, 600, &o->seconds) < 0 || o->seconds == 0 ? -EINVAL : 0;
}

#define AT(field) offsetof(struct model_opts, field)

static const struct opt options[] = {
    {OPT_SET, .name = "grid", .arg = "X,Y,Z", .set = set_grid,
     .help = "points of the grid that is written (512,512,512)",
     .takes = "X,Y,Z (for example 120,100,80)"},
    {OPT_U64, .name = "element", .arg = "BYTES", .at = AT(element_bytes), .least = 1, .most = 4096,
     .help = "bytes of one point (4)"},
    {OPT_BYTES, .name = "record", .arg = "SIZE", .at = AT(m.record_bytes), .least = 1,
     .help = "bytes of a record, instead of --grid and --element"},
    {OPT_U64, .name = "steps", .arg = "N", .at = AT(steps), .least = 1, .most = UINT32_MAX,
     .help = "time steps of each phase (1000)"},
    {OPT_SET, .name = "ratio", .arg = "N,...", .set = set_ratios,
     .given = OPT_GIVEN(struct model_opts, ratio_given),
     .help = "time steps between two records (1,2,5,10,20,50)",
     .takes = "a list of whole numbers (for example 1,10,50)"},
    {OPT_REAL, .name = "step-time", .arg = "S", .at = AT(step_s), .high = 1e300,
     .help = "seconds that one step computes (0.1)", .takes = "a number of seconds"},
    {OPT_FLAG, .name = "write-only", .help = "nothing is read back", .at = AT(write_only)},
    {OPT_FLAG, .name = "revolve", .at = AT(revolve),
     .help = "compare storing the steps of an adjoint code with computing "
             "them again"},
    {OPT_REAL, .name = "adjoint-time", .arg = "S", .at = AT(adjoint_s), .high = 1e300,
     .given = OPT_GIVEN(struct model_opts, adjoint_given),
     .help = "with --revolve: seconds of one adjoint step (as a step)",
     .takes = "a number of seconds"},
    {OPT_BYTES, .name = "host-cache", .arg = "SIZE", .at = AT(m.host_bytes),
     .help = "host memory for records (1G)"},
    {OPT_SET, .name = "copy", .arg = "RATE", .set = set_copy,
     .help = "bandwidth of a copy in host memory; measured if a folder is",
     .takes = "a rate (for example 10G)"},
    {OPT_SET, .name = "layer", .arg = "[SIZE@]WRITE[:READ]", .set = set_layer,
     .help = "a layer below it, fast to slow, up to 4: its capacity (no\n"
             "limit) and its bandwidths",
     .takes = "[SIZE@]WRITE[:READ] (for example 100G@2G:3G), or there are more than 4"},
    {OPT_SET, .name = "folder", .arg = "[SIZE@]PATH", .set = set_folder,
     .help = "the same with bandwidths measured in a folder",
     .takes = "[SIZE@]PATH (for example 100G@/scratch), or there are more than 4"},
    {OPT_SET, .name = "direct", .arg = "WRITE[:READ]", .set = set_direct,
     .given = OPT_GIVEN(struct model_opts, direct_given),
     .help = "blocking I/O to compare with (that of the last layer)",
     .takes = "WRITE[:READ] (for example 500M:1G)"},
    {OPT_SET, .name = "seconds", .arg = "S", .set = set_seconds,
     .help = "how long each folder is measured (2)",
     .takes = "a number of seconds above 0, up to 600"},
    {OPT_FLAG, .name = "json", .help = "print one JSON object", .at = AT(json)},
};
_Static_assert(VV_MODEL_LAYERS == 4, "the help text says so");

static const struct opts command = {
    .command = COMMAND,
    .usage = "[OPTION]...",
    .about =
        "Predicts how long a program will wait that computes on a grid, writes it every few time\n"
        "steps and reads all of it back, before it is run; with --revolve, what an adjoint code\n"
        "gains by computing steps again.",
    OPT_LIST(options),
};

static int check_revolve(struct model_opts *o)
{
    if (o->adjoint_given && !o->revolve) {
        fprintf(stderr, COMMAND ": --adjoint-time is allowed only with --revolve\n");
        return CLI_USAGE;
    }
    if (!o->revolve)
        return -1;
    if (o->ratio_given || o->write_only || o->direct_given) {
        fprintf(stderr,
                COMMAND ": --revolve cannot be combined with --ratio, --write-only or --direct\n");
        return CLI_USAGE;
    }
    if (o->m.nlayers > 1) {
        fprintf(stderr, COMMAND ": --revolve expects one --layer or --folder: the disk\n");
        return CLI_USAGE;
    }
    if (o->steps > MODEL_REVOLVE_STEPS) {
        fprintf(stderr, COMMAND ": --revolve: expected --steps of %d at most\n",
                MODEL_REVOLVE_STEPS);
        return CLI_USAGE;
    }
    if (!o->adjoint_given)
        o->adjoint_s = o->step_s;
    return -1;
}

static int check(struct model_opts *o)
{
    int status = check_revolve(o);

    if (status >= 0)
        return status;
    if (o->m.nlayers == 0 && !o->revolve) {
        fprintf(stderr, COMMAND ": no layers are given: use --layer or --folder; see --help\n");
        return CLI_USAGE;
    }
    if (o->m.record_bytes == 0) {
        double bytes =
            (double)o->grid[0] * (double)o->grid[1] * (double)o->grid[2] * (double)o->element_bytes;
        if (bytes > 9e18) {
            fprintf(stderr,
                    COMMAND ": --grid: the grid has more than 9e18 bytes: give fewer points\n");
            return CLI_USAGE;
        }
        o->m.record_bytes = o->grid[0] * o->grid[1] * o->grid[2] * o->element_bytes;
    }
    return -1;
}

/* Returns an exit status, or -1 to go on. */
static int parse(int argc, char **argv, struct model_opts *o)
{
    int first, status = opts_parse(&command, argc, argv, o, &first);

    if (status >= 0)
        return status;
    o->m.reads = !o->write_only;
    return check(o);
}

/* ---- measuring ---- */

/* Past the page cache if possible; otherwise a whole file, synced and read again. */
static int measure_folder(const char *folder, double seconds, struct vv_model_layer *l)
{
    struct probe_disk_opts o = {.dir = folder,
                                .direct = true,
                                .file_bytes = 256 << 20,
                                .block_bytes = 1 << 20,
                                .threads = 8,
                                .seconds = seconds / 4};
    struct probe_disk *disk = NULL;
    int rc = probe_disk_open(&o, &disk);

    if (rc == -EINVAL) {
        o.direct = false;
        rc = probe_disk_open(&o, &disk);
    }
    if (rc == 0 && o.direct) {
        rc = probe_disk_loop(disk, PROBE_WRITE, o.threads, seconds / 2, &l->write_bytes_per_s);
        if (rc == 0)
            rc = probe_disk_loop(disk, PROBE_READ, o.threads, seconds / 2, &l->read_bytes_per_s);
    } else if (rc == 0) {
        rc = probe_disk_pass(disk, PROBE_WRITE, o.threads, &l->write_bytes_per_s);
        if (rc == 0)
            rc = probe_disk_pass(disk, PROBE_READ, o.threads, &l->read_bytes_per_s);
    }
    probe_disk_close(disk);
    return rc;
}

static int measure(struct model_opts *o)
{
    for (unsigned i = 0; i < o->m.nlayers; i++) {
        if (!o->name[i].folder)
            continue;
        int rc = measure_folder(o->name[i].folder, o->seconds, &o->m.layer[i]);
        if (rc < 0) {
            fprintf(stderr, COMMAND ": %s: %s\n", o->name[i].folder, strerror(-rc));
            return CLI_FAILED;
        }
        o->measured = true;
    }
    if (o->measured && o->m.copy_bytes_per_s == 0) {
        unsigned threads = VV_MIN(vv_topo_threads(), 8u);
        int rc = probe_memcpy((size_t)64 << 20, threads, o->seconds / 4, &o->m.copy_bytes_per_s);
        if (rc < 0)
            o->m.copy_bytes_per_s = 0; /* it takes no time then, which is nearly true */
    }
    if (!o->direct_given && o->m.nlayers > 0)
        o->m.reference = o->m.layer[o->m.nlayers - 1];
    return CLI_OK;
}

/* ---- the answer ---- */

static void ask(const struct model_opts *o, struct model_rows *ret)
{
    ret->o = o;
    for (size_t i = 0; i < o->nr_ratios; i++) {
        struct vv_model m = o->m;
        struct model_row *row = &ret->row[i];
        row->ratio = o->ratio[i];
        row->records = m.records = o->steps / o->ratio[i];
        m.write_kernel_s = o->step_s * (double)o->steps;
        m.read_kernel_s = m.reads ? m.write_kernel_s : 0;
        row->a = vv_model_ask(&m);
    }
}

static const char *binding_text(const struct vv_model_answer *a)
{
    static const char *const text[] = {"layer 1", "layer 2", "layer 3", "layer 4"};
    int b = VV_MAX(a->write.binding, a->read.binding);

    return b < 0 ? "-" : text[b];
}

static void print_layers(const struct model_opts *o)
{
    char a[VV_BYTES_TEXT], b[VV_BYTES_TEXT];

    printf("record %s, %" PRIu64 " steps of %g s%s, host memory %s",
           vv_bytes_human(o->m.record_bytes, a, sizeof(a)), o->steps, o->step_s,
           o->m.reads ? " each way" : "", vv_bytes_human(o->m.host_bytes, b, sizeof(b)));
    if (o->m.copy_bytes_per_s > 0)
        printf(" at %.2f GB/s", o->m.copy_bytes_per_s / 1e9);
    printf("\n");
    for (unsigned i = 0; i < o->m.nlayers; i++) {
        const struct vv_model_layer *l = &o->m.layer[i];
        printf("layer %u: %s, write %.3f GB/s, read %.3f GB/s%s%s\n", i + 1,
               l->capacity_bytes ? vv_bytes_human(l->capacity_bytes, a, sizeof(a)) : "no limit",
               l->write_bytes_per_s / 1e9, l->read_bytes_per_s / 1e9,
               o->name[i].folder ? ", measured in " : "",
               o->name[i].folder ? o->name[i].folder : "");
    }
}

static void print_table(const void *result)
{
    const struct model_rows *r = result;

    print_layers(r->o);
    printf("\n%8s %8s %12s %12s %12s %9s %9s  %s\n", "ratio", "records", "compute s", "wait s",
           "wall s", "waiting", "speed-up", "held up by");
    for (size_t i = 0; i < r->o->nr_ratios; i++) {
        const struct model_row *row = &r->row[i];
        const struct vv_model_answer *a = &row->a;
        printf("%8" PRIu64 " %8" PRIu64, row->ratio, row->records);
        if (a->fits)
            printf(" %12.2f %12.2f %12.2f %8.1f%% %9.2f  %s\n", a->wall_s - a->blocked_s,
                   a->blocked_s, a->wall_s, a->wall_s > 0 ? 100 * a->blocked_s / a->wall_s : 0,
                   a->speedup, binding_text(a));
        else
            printf("  the layers do not hold so much\n");
    }
    printf("\nAgainst blocking I/O at %.3f GB/s (write) and %.3f GB/s (read). Computed from "
           "bandwidths and\ncapacities; 'varve sim shot' plays one run through, 'varve bench "
           "vector' measures.\n",
           r->o->m.reference.write_bytes_per_s / 1e9, r->o->m.reference.read_bytes_per_s / 1e9);
}

static void json_phase(struct json *j, const char *name, const struct vv_model_phase *p)
{
    json_object(j, name);
    json_real(j, "kernel_s", p->kernel_s);
    json_real(j, "copy_s", p->copy_s);
    json_real(j, "io_s", p->io_s);
    json_real(j, "wall_s", p->wall_s);
    json_real(j, "blocked_s", p->blocked_s);
    json_int(j, "held_up_by_layer", p->binding + 1);
    json_close(j);
}

static void json_row(struct json *j, const struct model_row *row, bool reads)
{
    const struct vv_model_answer *a = &row->a;

    json_gap(j, "\n");
    json_object(j, NULL);
    json_uint(j, "ratio", row->ratio);
    json_uint(j, "records", row->records);
    json_bool(j, "fits", a->fits);
    if (a->fits) {
        json_real(j, "expected_wall_s", a->wall_s);
        json_real(j, "expected_blocked_s", a->blocked_s);
        json_real(j, "reference_s", a->reference_s);
        json_real(j, "expected_speedup", a->speedup);
        json_bool(j, "hides", a->hides);
        json_phase(j, "write", &a->write);
        if (reads)
            json_phase(j, "read", &a->read);
    }
    json_close(j);
}

static void print_json(const void *result)
{
    const struct model_rows *r = result;
    const struct model_opts *o = r->o;
    struct json j = json_begin(stdout, JSON_COMPACT);

    json_object(&j, NULL);
    json_uint(&j, "record_bytes", o->m.record_bytes);
    json_uint(&j, "steps", o->steps);
    json_real(&j, "step_s", o->step_s);
    json_uint(&j, "host_bytes", o->m.host_bytes);
    json_real(&j, "copy_bytes_per_s", o->m.copy_bytes_per_s);
    json_array(&j, "layers");
    for (unsigned i = 0; i < o->m.nlayers; i++) {
        json_object(&j, NULL);
        json_uint(&j, "capacity_bytes", o->m.layer[i].capacity_bytes);
        json_real(&j, "write_bytes_per_s", o->m.layer[i].write_bytes_per_s);
        json_real(&j, "read_bytes_per_s", o->m.layer[i].read_bytes_per_s);
        json_text(&j, "measured_in", o->name[i].folder);
        json_close(&j);
    }
    json_close(&j);
    json_array(&j, "rows");
    for (size_t i = 0; i < o->nr_ratios; i++)
        json_row(&j, &r->row[i], o->m.reads);
    json_gap(&j, "\n");
    json_close(&j);
    json_close(&j);
    json_end(&j);
}

/* ---- --revolve ---- */

struct revolve_rows {
    const struct model_opts *o;
    struct model_reversal r;
    struct model_way way[3];
};
static const char *const way_names[] = {"store all", "binomial", "mix"};

static void print_revolve(const void *result)
{
    const struct revolve_rows *t = result;
    char a[VV_BYTES_TEXT], b[VV_BYTES_TEXT];

    printf("%" PRIu32 " steps of %g s, adjoint steps of %g s, snapshots of %s\n", t->r.steps,
           t->r.step_s, t->r.adjoint_s, vv_bytes_human(t->r.record_bytes, a, sizeof(a)));
    printf("memory: %s, %" PRIu32 " snapshots\n", vv_bytes_human(t->r.host_bytes, a, sizeof(a)),
           model_memory_snapshots(&t->r));
    if (t->r.has_disk)
        printf("disk: %s, %" PRIu32 " snapshots, write %.3f GB/s, read %.3f GB/s\n",
               t->r.disk.capacity_bytes ? vv_bytes_human(t->r.disk.capacity_bytes, a, sizeof(a))
                                        : "no limit",
               model_disk_snapshots(&t->r), t->r.disk.write_bytes_per_s / 1e9,
               t->r.disk.read_bytes_per_s / 1e9);
    printf("\n%-10s %9s %9s %11s %8s %11s %11s %11s %10s %11s\n", "way", "in memory", "on disk",
           "recomputed", "at most", "written", "read", "compute s", "wait s", "wall s");
    for (int i = 0; i < 3; i++) {
        const struct model_way *w = &t->way[i];
        printf("%-10s", way_names[i]);
        if (!w->fits) {
            printf(" does not fit\n");
            continue;
        }
        printf(" %9" PRIu32 " %9" PRIu32 " %11" PRIu64 " %8" PRIu64 " %11s %11s", w->in_memory,
               w->on_disk, w->recomputed, w->repeats,
               vv_bytes_human((uint64_t)w->disk_written, a, sizeof(a)),
               vv_bytes_human((uint64_t)w->disk_read, b, sizeof(b)));
        printf(" %11.2f %10.2f %11.2f\n", w->compute_s, w->wall_s - w->compute_s, w->wall_s);
    }
    printf(
        "\n'at most' is how often one step is computed again. 'mix' is a binomial schedule with\n"
        "snapshots in memory and so many on the disk as make it fastest.\n");
}

static void json_revolve(const void *result)
{
    const struct revolve_rows *t = result;
    struct json j = json_begin(stdout, JSON_COMPACT);

    json_object(&j, NULL);
    json_uint(&j, "record_bytes", t->r.record_bytes);
    json_uint(&j, "steps", t->r.steps);
    json_real(&j, "step_s", t->r.step_s);
    json_real(&j, "adjoint_s", t->r.adjoint_s);
    json_uint(&j, "host_bytes", t->r.host_bytes);
    json_real(&j, "copy_bytes_per_s", t->r.copy_bytes_per_s);
    json_uint(&j, "memory_snapshots", model_memory_snapshots(&t->r));
    json_uint(&j, "disk_snapshots", model_disk_snapshots(&t->r));
    json_real(&j, "disk_write_bytes_per_s", t->r.disk.write_bytes_per_s);
    json_real(&j, "disk_read_bytes_per_s", t->r.disk.read_bytes_per_s);
    json_text(&j, "measured_in", t->o->name[0].folder);
    json_array(&j, "rows");
    for (int i = 0; i < 3; i++) {
        const struct model_way *w = &t->way[i];
        json_gap(&j, "\n");
        json_object(&j, NULL);
        json_text(&j, "way", way_names[i]);
        json_bool(&j, "fits", w->fits);
        if (w->fits) {
            json_uint(&j, "in_memory", w->in_memory);
            json_uint(&j, "on_disk", w->on_disk);
            json_uint(&j, "recomputed_steps", w->recomputed);
            json_uint(&j, "repeats", w->repeats);
            json_real(&j, "written_bytes", w->disk_written);
            json_real(&j, "read_bytes", w->disk_read);
            json_real(&j, "compute_s", w->compute_s);
            json_real(&j, "wall_s", w->wall_s);
        }
        json_close(&j);
    }
    json_gap(&j, "\n");
    json_close(&j);
    json_close(&j);
    json_end(&j);
}

static int ask_revolve(const struct model_opts *o)
{
    struct revolve_rows t = {.o = o,
                             .r = {.steps = (uint32_t)o->steps,
                                   .record_bytes = o->m.record_bytes,
                                   .step_s = o->step_s,
                                   .adjoint_s = o->adjoint_s,
                                   .copy_bytes_per_s = o->m.copy_bytes_per_s,
                                   .host_bytes = o->m.host_bytes,
                                   .has_disk = o->m.nlayers > 0,
                                   .disk = o->m.layer[0]}};
    struct output_forms forms = {
        .json = o->json, .print_json = json_revolve, .print_table = print_revolve};

    if (model_store_all(&t.r, &t.way[0]) < 0 || model_binomial(&t.r, &t.way[1]) < 0 ||
        model_mix(&t.r, &t.way[2]) < 0) {
        fprintf(stderr, COMMAND ": not enough memory\n");
        return CLI_FAILED;
    }
    return output_print(COMMAND, &forms, &t);
}

int lab_model(int argc, char **argv)
{
    struct model_opts o = {.m = {.host_bytes = UINT64_C(1) << 30},
                           .grid = {512, 512, 512},
                           .element_bytes = 4,
                           .steps = 1000,
                           .ratio = {1, 2, 5, 10, 20, 50},
                           .nr_ratios = 6,
                           .step_s = 0.1,
                           .seconds = 2};
    struct model_rows rows;
    struct output_forms forms = {.print_json = print_json, .print_table = print_table};
    int status = parse(argc, argv, &o);

    if (status >= 0)
        return status;
    status = measure(&o);
    if (status != CLI_OK)
        return status;
    if (o.revolve)
        return ask_revolve(&o);
    ask(&o, &rows);
    forms.json = o.json;
    return output_print(COMMAND, &forms, &rows);
}
