/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve trace: the content of a trace file, and the same in other formats.
 *
 * Each part is a function with arguments of its own, listed in `parts`. Errors of a file are reported on standard
 * error; its readable part is shown in any case.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "cli/checkpoint_files.h"
#include "cli/cli.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/common/text.h"
#include "cli/report/trace_export.h"
#include "cli/trace_command.h"

int cli_trace_open(const char *command, const char *path, struct cli_trace *ret_trace)
{
    struct cli_trace t = {0};
    char err[512] = "";
    int rc = vv_trace_file_open(path, err, sizeof(err), &t.file);

    if (rc == 0) {
        rc = vv_timeline_new(t.file, &t.timeline);
        if (rc)
            snprintf(err, sizeof(err), "%s: %s", path, vv_strerror(rc));
    }
    if (rc) {
        fprintf(stderr, "%s: %s\n", command, err);
        vv_trace_file_free(t.file);
        return CLI_FAILED;
    }
    if (t.file->lost > 0)
        fprintf(stderr,
                "%s: %s: %" PRIu64 " records were lost, as they came faster than they could be "
                "written\n",
                command, path, t.file->lost);
    if (t.file->damaged_bytes > 0)
        fprintf(stderr, "%s: %s: %" PRIu64 " bytes are damaged and were passed over\n", command,
                path, t.file->damaged_bytes);
    *ret_trace = t;
    return 0;
}

void cli_trace_close(struct cli_trace *trace)
{
    vv_timeline_free(trace->timeline);
    vv_trace_file_free(trace->file);
}

/* ---- info ---- */

static double in_seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

/* Texts of the file, which may come from another user. */
static void say(const char *before, const char *text, const char *after)
{
    fputs(before, stdout);
    text_plain(stdout, text);
    fputs(after, stdout);
}

static void print_meta(const struct vv_trace_file *f, const char *label, const char *key)
{
    const char *value = vv_trace_file_meta(f, 0, key);

    if (value) {
        printf("%-12s ", label);
        say("", value, "\n");
    }
}

static void print_machine(const struct vv_trace_file *f)
{
    const char *threads = vv_trace_file_meta(f, 0, "threads");
    const char *memory = vv_trace_file_meta(f, 0, "memory");
    char text[VV_BYTES_TEXT];

    print_meta(f, "command", "command");
    print_meta(f, "host", "host");
    print_meta(f, "system", "kernel");
    print_meta(f, "processor", "cpu");
    if (threads && memory) {
        printf("%-12s ", "");
        say("", threads, " hardware threads, ");
        printf("%s of memory\n", vv_bytes_human(strtoull(memory, NULL, 10), text, sizeof(text)));
    }
}

/* The processors of the library's threads and the time that they took. The file has both if the context was
 * closed. */
static void print_helpers(const struct vv_trace_file *f, uint32_t context)
{
    const char *threads = vv_trace_file_meta(f, context, "helpers.threads");
    const char *cores = vv_trace_file_meta(f, context, "helpers.cores");
    const char *where = vv_trace_file_meta(f, context, "helpers.where");
    const char *app = vv_trace_file_meta(f, context, "app.where");
    const char *cpu = vv_trace_file_meta(f, context, "helpers.cpu_ns");

    if (!threads || !cores || !where || !cpu)
        return;
    printf("%-12s ", "");
    say("", threads, " threads of the library ");
    if (strtoull(cores, NULL, 10) > 0) {
        say("on ", cores, " cores of their own, ");
        say("processors ", where, ": ");
    } else {
        say("on the application's processors, ", app ? app : "any", ": ");
    }
    printf("%.3f s of processor time\n", in_seconds(strtoull(cpu, NULL, 10)));
}

static void print_contexts(const struct vv_trace_file *f)
{
    for (size_t i = 0; i < f->npairs; i++) {
        const struct vv_trace_pair *p = &f->pairs[i];
        const char *policy = vv_trace_file_meta(f, p->context, "config.policy");
        const char *level = vv_trace_file_meta(f, p->context, "config.level");
        const char *device = vv_trace_file_meta(f, p->context, "device");

        if (p->note || !p->context || strcmp(p->key, "tier.0") != 0)
            continue;
        printf("context %-4u ", p->context);
        say("policy ", policy ? policy : "?", "");
        say(", level ", level ? level : "?", "");
        say(", device ", device ? device : "none", "\n");
        print_helpers(f, p->context);
    }
}

static void say_label(const char *before, const char *label, int width)
{
    int n = (int)strlen(label);

    say(before, label, "");
    printf("%*s", n < width ? width - n : 0, "");
}

static void print_lanes(const struct vv_timeline *t)
{
    char text[VV_BYTES_TEXT];

    for (size_t i = 0; i < t->nlanes; i++) {
        const struct vv_lane *l = &t->lanes[i];

        say_label("", l->label, 28);
        if (l->kind == VV_LANE_APP) {
            printf(" compute %.4f s, blocked: write %.4f s, read %.4f s, other %.4f s\n",
                   in_seconds(l->kind_ns[VV_SPAN_COMPUTE]), in_seconds(l->kind_ns[VV_SPAN_WRITE]),
                   in_seconds(l->kind_ns[VV_SPAN_READ]), in_seconds(l->kind_ns[VV_SPAN_OTHER]));
            continue;
        }
        printf(" busy %.4f s, %s", in_seconds(l->kind_ns[VV_SPAN_COPY]),
               vv_bytes_human(l->bytes, text, sizeof(text)));
        if (l->kind_ns[VV_SPAN_COPY] > 0)
            printf(", %.3f GB/s", (double)l->bytes / (double)l->kind_ns[VV_SPAN_COPY]);
        if (l->kind_ns[VV_SPAN_COMMIT] > 0)
            printf(", commits %.4f s, %.4f s of it without a copy",
                   in_seconds(l->kind_ns[VV_SPAN_COMMIT]), in_seconds(l->commit_alone_ns));
        putchar('\n');
    }
    for (size_t i = 0; i < t->noccupancy; i++) {
        const struct vv_occupancy *o = &t->occupancy[i];

        say_label("tier ", o->label, 23);
        printf(" peak %s", vv_bytes_human(o->peak_bytes, text, sizeof(text)));
        if (o->capacity_bytes)
            printf(" of %s", vv_bytes_human(o->capacity_bytes, text, sizeof(text)));
        putchar('\n');
    }
}

static void info_text(const char *path, const struct cli_trace *tr)
{
    const struct vv_trace_file *f = tr->file;
    const struct vv_timeline *t = tr->timeline;
    char text[VV_BYTES_TEXT], when[32];

    printf("%-12s %s, %s, %s\n", "file", path, vv_bytes_human(f->file_bytes, text, sizeof(text)),
           f->complete ? "complete" : "not ended: the process was killed, or still runs");
    if (f->wall_ns)
        printf("%-12s %s UTC, process %" PRIu64 "\n", "written",
               files_time(f->wall_ns, when, sizeof(when)), f->pid);
    print_machine(f);
    print_contexts(f);
    printf("%-12s %zu in %.4f s, %" PRIu64 " lost\n", "records", f->nrecords,
           in_seconds(t->length_ns), f->lost);
    for (size_t i = 0; i < t->nhistories; i++)
        say("history      ", t->histories[i].name, "\n");
    printf("%-12s %" PRIu64 ", %s\n", "checkpoints", t->totals.checkpoints,
           vv_bytes_human(t->totals.checkpoint_bytes, text, sizeof(text)));
    printf("%-12s %" PRIu64 ", %s\n", "restores", t->totals.restores,
           vv_bytes_human(t->totals.restore_bytes, text, sizeof(text)));
    if (t->totals.errors > 0)
        printf("%-12s %" PRIu64 "\n", "errors", t->totals.errors);
    for (size_t i = 0; i < f->npairs; i++)
        if (f->pairs[i].note) {
            say("note         ", f->pairs[i].key, ": ");
            say("", f->pairs[i].value, "\n");
        }
    for (size_t i = 0; i < f->nattachments; i++) {
        say("attachment   ", f->attachments[i].name, "");
        say(" (", f->attachments[i].type, "), ");
        printf("%s\n", vv_bytes_human(f->attachments[i].size, text, sizeof(text)));
    }
    putchar('\n');
    print_lanes(t);
}

static void json_pairs(struct json *j, const struct vv_trace_file *f)
{
    json_gap(j, "\n ");
    json_array(j, "meta");
    for (size_t i = 0; i < f->npairs; i++) {
        const struct vv_trace_pair *p = &f->pairs[i];

        json_gap(j, "\n  ");
        json_object(j, NULL);
        json_uint(j, "context", p->context);
        json_bool(j, "note", p->note);
        json_text(j, "key", p->key);
        json_text(j, "value", p->value);
        json_close(j);
    }
    json_close(j);
    json_gap(j, "\n ");
    json_array(j, "attachments");
    for (size_t i = 0; i < f->nattachments; i++) {
        json_gap(j, "\n  ");
        json_object(j, NULL);
        json_text(j, "name", f->attachments[i].name);
        json_text(j, "type", f->attachments[i].type);
        json_uint(j, "bytes", f->attachments[i].size);
        json_close(j);
    }
    json_close(j);
}

static void json_lane(struct json *j, const struct vv_lane *l)
{
    json_gap(j, "\n  ");
    json_object(j, NULL);
    json_text(j, "kind", l->kind == VV_LANE_APP ? "application" : "mover");
    json_text(j, "label", l->label);
    json_uint(j, "thread", l->thread);
    json_uint(j, "context", l->context);
    json_uint(j, "spans", l->nspans);
    json_uint(j, "bytes", l->bytes);
    json_uint(j, "commit_alone", l->commit_alone_ns);
    for (int k = 0; k < VV_SPAN_KINDS; k++)
        json_uint(j, vv_span_kind_name((enum vv_span_kind)k), l->kind_ns[k]);
    json_close(j);
}

static void json_lanes(struct json *j, const struct vv_timeline *t)
{
    json_gap(j, "\n ");
    json_array(j, "lanes");
    for (size_t i = 0; i < t->nlanes; i++)
        json_lane(j, &t->lanes[i]);
    json_close(j);
    json_gap(j, "\n ");
    json_array(j, "tiers");
    for (size_t i = 0; i < t->noccupancy; i++) {
        const struct vv_occupancy *o = &t->occupancy[i];

        json_gap(j, "\n  ");
        json_object(j, NULL);
        json_uint(j, "context", o->context);
        json_uint(j, "tier", o->tier);
        json_text(j, "label", o->label);
        json_uint(j, "capacity", o->capacity_bytes);
        json_uint(j, "peak", o->peak_bytes);
        json_close(j);
    }
    json_close(j);
    json_gap(j, "\n ");
    json_array(j, "histories");
    for (size_t i = 0; i < t->nhistories; i++)
        json_text(j, NULL, t->histories[i].name);
    json_close(j);
}

static void info_json(const char *path, const struct cli_trace *tr)
{
    const struct vv_trace_file *f = tr->file;
    const struct vv_timeline *t = tr->timeline;
    const struct vv_timeline_totals *s = &t->totals;
    struct json j = json_begin(stdout, JSON_SPACED);

    json_object(&j, NULL);
    json_text(&j, "file", path);
    json_uint(&j, "file_bytes", f->file_bytes);
    json_bool(&j, "complete", f->complete);
    json_uint(&j, "wall_ns", f->wall_ns);
    json_uint(&j, "pid", f->pid);
    json_gap(&j, "\n ");
    json_uint(&j, "records", f->nrecords);
    json_uint(&j, "lost", f->lost);
    json_uint(&j, "damaged_bytes", f->damaged_bytes);
    json_uint(&j, "length_ns", t->length_ns);
    json_bool(&j, "phased", t->phased);
    json_gap(&j, "\n ");
    json_uint(&j, "checkpoints", s->checkpoints);
    json_uint(&j, "checkpoint_bytes", s->checkpoint_bytes);
    json_uint(&j, "restores", s->restores);
    json_uint(&j, "restore_bytes", s->restore_bytes);
    json_gap(&j, "\n ");
    json_uint(&j, "blocked_write_ns", s->write_ns);
    json_uint(&j, "blocked_read_ns", s->read_ns);
    json_uint(&j, "blocked_other_ns", s->other_ns);
    json_uint(&j, "compute_ns", s->compute_ns);
    json_uint(&j, "errors", s->errors);
    json_pairs(&j, f);
    json_lanes(&j, t);
    json_close(&j);
    json_end(&j);
}

static int usage_error(const char *command, const char *text)
{
    fprintf(stderr, "%s: %s; see --help\n", command, text);
    return CLI_USAGE;
}

struct info_opts {
    bool json;
};

static const struct opt info_options[] = {
    {OPT_FLAG, .name = "json", .help = "print one JSON object",
     .at = offsetof(struct info_opts, json)},
};

static const struct opts info_command = {
    .command = "varve trace info",
    .usage = "[--json] FILE",
    .about = "Prints the run and the machine of a trace, its records, and where the time went.",
    .operands = true,
    OPT_LIST(info_options),
};

static int trace_info(int argc, char **argv)
{
    struct info_opts o = {0};
    struct cli_trace t;
    int first, status = opts_parse(&info_command, argc, argv, &o, &first);

    if (status >= 0)
        return status;
    if (first + 1 != argc)
        return usage_error(argv[0], "expected the name of one trace");
    status = cli_trace_open(argv[0], argv[first], &t);
    if (status)
        return status;
    if (o.json)
        info_json(argv[first], &t);
    else
        info_text(argv[first], &t);
    cli_trace_close(&t);
    return fflush(stdout) || ferror(stdout) ? CLI_FAILED : CLI_OK;
}

/* ---- export ---- */

enum format { FORMAT_CHROME, FORMAT_SVG, FORMAT_CSV };

struct export_opts {
    int format; /* enum format; -1: not given */
    int table;  /* enum trace_table */
    const char *out;
    uint64_t from_ns, to_ns;
};

static int export_to(FILE *f, const struct export_opts *o, const struct vv_timeline *t)
{
    if (o->format == FORMAT_CHROME)
        return trace_export_chrome(f, t);
    if (o->format == FORMAT_SVG)
        return trace_export_svg(f, t, o->from_ns, o->to_ns);
    return trace_export_csv(f, t, (enum trace_table)o->table);
}

static int export_file(const char *command, const struct export_opts *o,
                       const struct vv_timeline *t)
{
    bool to_stdout = !o->out || strcmp(o->out, "-") == 0;
    FILE *f = to_stdout ? stdout : fopen(o->out, "we");
    int rc = f ? export_to(f, o, t) : -errno;

    if (f && !to_stdout && fclose(f) && rc == 0)
        rc = -errno;
    if (rc == 0)
        return CLI_OK;
    fprintf(stderr, "%s: %s: %s\n", command, to_stdout ? "standard output" : o->out, strerror(-rc));
    struct stat st;
    if (f && !to_stdout && lstat(o->out, &st) == 0 && S_ISREG(st.st_mode))
        unlink(o->out); /* half of a file is of no use */
    return CLI_FAILED;
}

static int parse_seconds(const char *text, uint64_t *ret_ns)
{
    double s;
    int rc = opts_real(text, 0, 1e9, &s);

    if (rc == 0)
        *ret_ns = (uint64_t)llround(s * 1e9);
    return rc;
}

static int set_from(const char *value, void *arg)
{
    return parse_seconds(value, &((struct export_opts *)arg)->from_ns);
}

static int set_to(const char *value, void *arg)
{
    return parse_seconds(value, &((struct export_opts *)arg)->to_ns);
}

#define AT(field) offsetof(struct export_opts, field)

static const struct opt export_options[] = {
    {OPT_WORD, .name = "format", .arg = "chrome|svg|csv", .at = AT(format),
     .words = "chrome|svg|csv",
     .help = "chrome: JSON for ui.perfetto.dev and chrome://tracing; svg: a\n"
             "picture: threads, movers, tiers over time; csv: a table"},
    {OPT_TEXT, .letter = 'o', .name = "output", .arg = "OUT", .at = AT(out),
     .help = "the file to write (standard output)"},
    {OPT_WORD, .name = "table", .arg = "WHAT", .at = AT(table),
     .words = "spans|iterations|occupancy|records",
     .help = "csv: spans, iterations, occupancy or records (spans)"},
    {OPT_SET, .name = "from", .arg = "S", .set = set_from, .takes = "a number of seconds",
     .help = "svg: only what comes after this, in seconds"},
    {OPT_SET, .name = "to", .arg = "S", .set = set_to, .takes = "a number of seconds",
     .help = "svg: only what comes before this"},
};

static const struct opts export_command = {
    .command = "varve trace export",
    .usage = "--format chrome|svg|csv [OPTION]... FILE",
    .about = "Writes a trace in another format.",
    .operands = true,
    OPT_LIST(export_options),
};

static int trace_export(int argc, char **argv)
{
    struct export_opts o = {.format = -1};
    struct cli_trace t;
    int first, status = opts_parse(&export_command, argc, argv, &o, &first);

    if (status >= 0)
        return status;
    if (o.format < 0)
        return usage_error(argv[0], "--format is missing: give chrome, svg or csv");
    if (o.to_ns && o.to_ns <= o.from_ns)
        return usage_error(argv[0], "--to is not after --from");
    if (first + 1 != argc)
        return usage_error(argv[0], "expected the name of one trace");
    if (o.out && cli_trace_same_file(o.out, argv[first]))
        return usage_error(argv[0], "--output is the trace itself: give another file");
    status = cli_trace_open(argv[0], argv[first], &t);
    if (status)
        return status;
    status = export_file(argv[0], &o, t.timeline);
    cli_trace_close(&t);
    return status;
}

/* ---- the parts ---- */

static const struct cli_command parts[] = {
    {"info", "the run, the machine, and where the time went", trace_info},
    {"report", "a page for the browser with all of it", cli_trace_report},
    {"export", "a trace as JSON for Perfetto, as SVG or as CSV", trace_export},
    {"script", "its calls, for 'varve sim script' and 'varve bench script'", cli_trace_script},
};

static void usage(FILE *out)
{
    fprintf(out, "usage: varve trace PART [OPTION]... FILE\n\n");
    for (size_t i = 0; i < VV_ARRAY_SIZE(parts); i++)
        fprintf(out, "  %-8s %s\n", parts[i].name, parts[i].summary);
    fprintf(out, "\nA trace is written by any program that uses the library, with\n"
                 "VARVE_TRACE_FILE=FILE, and by 'varve bench shot --trace FILE'.\n"
                 "'varve trace PART --help' is about one part.\n");
}

int cli_trace(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        usage(stdout);
        return CLI_OK;
    }
    return cli_part_or_usage("varve trace", parts, VV_ARRAY_SIZE(parts), argc, argv);
}
