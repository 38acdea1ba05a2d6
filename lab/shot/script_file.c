/* SPDX-License-Identifier: Apache-2.0 */
#include "lab/shot/script_file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/options.h"

/* HOP=MICROSECONDS,... */
static int set_latency(const char *value, void *args)
{
    uint64_t *latency_ns = ((struct shot_args *)args)->o.latency_ns;

    for (;;) {
        size_t len = strcspn(value, ",");
        char text[64], *eq;
        double us;
        int hop = 0;

        if (len >= sizeof(text))
            return -EINVAL;
        snprintf(text, sizeof(text), "%.*s", (int)len, value);
        eq = strchr(text, '=');
        if (!eq)
            return -EINVAL;
        *eq = '\0';
        while (hop < SHOT_HOP_F2R && strcmp(shot_hop_name((enum shot_hop)hop), text) != 0)
            hop++;
        if (hop == SHOT_HOP_F2R || opts_real(eq + 1, 0, 1e12, &us) < 0)
            return -EINVAL;
        latency_ns[hop] = (uint64_t)llround(us * 1e3);
        if (value[len] == '\0')
            return 0;
        value += len + 1;
    }
}

static const struct opt list[] = {
    {OPT_SET, .name = "latency", .arg = "HOP=US,...", .set = set_latency,
     .takes = "HOP=MICROSECONDS,... (such as h2f=50,f2h=80)",
     .help = "simulated: latency of each transfer besides its bytes (0): d2d h2h d2h h2d h2f f2h"},
    {OPT_FLAG, .name = "lp", .at = offsetof(struct shot_args, o.lp),
     .help = "simulated: a linear program as a second bound, by GLPK (up to 96 versions)"},
};

static const char about[] =
    "Runs a workload that is written as text; FILE is - for standard input. A line of it is\n"
    "one of these; # begins a comment:\n\n"
    "  put VERSION SIZE          write a version: put 3 8M, put h:3 8M\n"
    "  get VERSION               read it back\n"
    "  hint VERSION...           these will be read, in this order; 9..0 is a range\n"
    "  discard VERSION...        it will not be read again\n"
    "  compute TIME              10ms, 1.5s, 20us, 300ns\n"
    "  start [HISTORY]           prefetching may begin\n"
    "  wait [HISTORY]            until all its versions are on the lowest tier\n"
    "  barrier                   until every thread has come here\n"
    "  thread                    what follows is done by another thread, at the same time\n"
    "  history NAME [once|keep] [fifo|lifo]\n"
    "                            declares a history: whether a get discards (keep), and the order "
    "of the gets if it is known; versions without a name are of the first\n"
    "  set OPTION [VALUE]        an option of this list, which the command line overrides\n\n"
    "Options (defaults in parentheses):";

/* The options of the machine and a few more, in one table. */
static struct opts all_options(const char *command, struct opt *buf)
{
    const struct opts *machine = &shot_machine_options;

    memcpy(buf, list, sizeof(list));
    memcpy(buf + VV_ARRAY_SIZE(list), machine->list, machine->nr * sizeof(*buf));
    return (struct opts){.command = command,
                         .usage = "FILE [OPTION]...",
                         .about = about,
                         .tail = shot_options.tail,
                         .operands = true,
                         .list = buf,
                         .nr = VV_ARRAY_SIZE(list) + machine->nr};
}

#define MAX_OPTIONS 48

/* The lines "set". */
static int apply_settings(const struct script_file *file, struct shot_args *args)
{
    for (size_t i = 0; i < file->work.nr_settings; i++) {
        const struct shot_setting *s = &file->work.settings[i];
        struct opt buf[MAX_OPTIONS];
        struct opts table;
        char where[512], *argv[] = {where, s->name, s->value, NULL};
        int first, status;

        snprintf(where, sizeof(where), "%s:%" PRIu32, file->name, s->line);
        table = all_options(where, buf);
        table.operands = false;
        status = opts_parse(&table, s->value ? 3 : 2, argv, args, &first);
        if (status >= 0)
            return CLI_USAGE;
    }
    return -1;
}

static int read_file(const char *command, struct script_file *file)
{
    bool piped = strcmp(file->name, "-") == 0;
    FILE *f = piped ? stdin : fopen(file->name, "re");
    char err[512];
    int rc;

    if (!f) {
        fprintf(stderr, "%s: %s: %s\n", command, file->name, strerror(errno));
        return CLI_FAILED;
    }
    rc = shot_work_read(f, piped ? "stdin" : file->name, err, sizeof(err), &file->work);
    if (!piped)
        fclose(f);
    if (rc < 0)
        fprintf(stderr, "%s\n", err);
    return rc < 0 ? CLI_FAILED : -1;
}

int script_file_open(const char *command, int argc, char **argv, struct script_file *ret_file)
{
    struct opt buf[MAX_OPTIONS];
    struct opts table = all_options(command, buf);
    struct script_file file = {0};
    struct shot_args args;
    char err[256];
    int first, status;

    shot_args_init(&args);
    status = opts_parse(&table, argc, argv, &args, &first);
    if (status >= 0)
        return status;
    if (first + 1 != argc) {
        fprintf(stderr,
                "%s: expected the name of one script, or - for standard input; see --help\n",
                command);
        return CLI_USAGE;
    }
    file.name = argv[first];
    status = read_file(command, &file);
    if (status >= 0)
        return status;
    /* The options of the script first, then those of the command line again. */
    shot_args_init(&args);
    status = apply_settings(&file, &args);
    if (status < 0)
        status = opts_parse(&table, argc, argv, &args, &first);
    if (status < 0 && shot_args_settle(&args, err, sizeof(err)) < 0) {
        fprintf(stderr, "%s: %s\n", command, err);
        status = CLI_USAGE;
    }
    if (status >= 0) {
        shot_work_fini(&file.work);
        return status;
    }
    file.opts = args.o;
    *ret_file = file;
    return -1;
}

void script_file_close(struct script_file *file)
{
    shot_work_fini(&file->work);
}
