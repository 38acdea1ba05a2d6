/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve trace report: a page of one trace. It appears by rename, so that a page is never half written, and an
 * existing page stays if the new one cannot be made.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/common/options.h"
#include "cli/report/trace_view.h"
#include "cli/trace_command.h"

#define COMMAND    "varve trace report"
#define PATH_BYTES 4096

struct report_opts {
    const char *output;
    bool json;
};

static const struct opt options[] = {
    {OPT_TEXT, .letter = 'o', .name = "output", .arg = "PAGE",
     .at = offsetof(struct report_opts, output),
     .help = "the page; '-' is standard output (default: FILE with .html for\n"
             "the end of its name)"},
    {OPT_FLAG, .name = "json", .at = offsetof(struct report_opts, json),
     .help = "print the figures of the page as JSON, and write no page unless\n"
             "-o says where"},
};

static const struct opts command = {
    .command = COMMAND,
    .usage = "[OPTION]... FILE",
    .about = "Makes a page of a trace, one file that needs no other: what\n"
             "blocked the application and for how long, against the least that was possible, a\n"
             "timeline that zooms, every call, how full the tiers were, the pictures that the\n"
             "application attached, the configuration and the machine.",
    .operands = true,
    OPT_LIST(options),
};

/* run.vtrace -> run.html, in the same folder. */
static bool default_output(const char *path, char *buf, size_t size)
{
    const char *base = strrchr(path, '/'), *dot;

    base = base ? base + 1 : path;
    dot = strrchr(base, '.');
    if (!dot || dot == base)
        dot = base + strlen(base);
    return snprintf(buf, size, "%.*s.html", (int)(dot - path), path) < (int)size;
}

bool cli_trace_same_file(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int write_page(const struct trace_page *page, const char *path)
{
    char made[PATH_BYTES];
    struct stat st;
    FILE *f;
    int rc;

    if (strcmp(path, "-") == 0)
        return trace_page_write(stdout, page);
    /* A device or a pipe must not be replaced by a file. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        f = fopen(path, "we");
        rc = f ? trace_page_write(f, page) : -errno;
        if (f && fclose(f) != 0 && rc == 0)
            rc = -errno;
        return rc;
    }
    if (snprintf(made, sizeof(made), "%s.%ld.new", path, (long)getpid()) >= (int)sizeof(made))
        return -ENAMETOOLONG;
    f = fopen(made, "wxe");
    if (!f)
        return -errno;
    rc = trace_page_write(f, page);
    if (fclose(f) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && rename(made, path) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(made);
    return rc;
}

static int make_report(const char *path, const char *output, bool json)
{
    struct trace_view *view = NULL;
    struct cli_trace trace;
    int rc, status = cli_trace_open(COMMAND, path, &trace);

    if (status)
        return status;
    rc = trace_view_new(trace.timeline, &view);
    if (rc < 0)
        fprintf(stderr, COMMAND ": %s: %s\n", path, vv_strerror(rc));
    if (rc == 0 && output) {
        rc = write_page(trace_view_page(view), output);
        if (rc < 0)
            fprintf(stderr, COMMAND ": %s: %s\n", output, strerror(-rc));
    }
    if (rc == 0 && json)
        trace_page_json(stdout, trace_view_page(view));
    else if (rc == 0 && output && strcmp(output, "-") != 0)
        printf("%s\n", output);
    if (rc == 0 && fflush(stdout) != 0) {
        rc = -errno;
        fprintf(stderr, COMMAND ": standard output: %s\n", strerror(-rc));
    }
    trace_view_free(view);
    cli_trace_close(&trace);
    return rc < 0 ? CLI_FAILED : CLI_OK;
}

int cli_trace_report(int argc, char **argv)
{
    struct report_opts o = {0};
    char path[PATH_BYTES];
    int first, status = opts_parse(&command, argc, argv, &o, &first);

    if (status >= 0)
        return status;
    if (argc - first != 1) {
        fprintf(stderr, COMMAND ": %s\n",
                argc > first ? "several traces are given, expected one"
                             : "no trace is given; expected the name of a file");
        return CLI_USAGE;
    }
    if (o.json && o.output && strcmp(o.output, "-") == 0) {
        fprintf(stderr,
                COMMAND ": --json and -o - both write to standard output: give one of them\n");
        return CLI_USAGE;
    }
    if (!o.output && !o.json) {
        if (!default_output(argv[first], path, sizeof(path))) {
            fprintf(stderr, COMMAND
                    ": the name of the page would be too long: give another one with -o FILE\n");
            return CLI_USAGE;
        }
        o.output = path;
    }
    if (o.output && cli_trace_same_file(o.output, argv[first])) {
        fprintf(stderr, COMMAND ": %s is the trace itself: give another file with -o\n", o.output);
        return CLI_USAGE;
    }
    return make_report(argv[first], o.output, o.json);
}
