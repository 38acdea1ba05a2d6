/* SPDX-License-Identifier: Apache-2.0 */
/* varve cached: the daemon of the dataset cache, and the commands that talk to a running daemon. Settings come
 * from a file, variables and flags, in this order. All commands take them; most commands need the socket only. */
#include "cli/cached.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/common/options.h"

#define COMMAND     "varve cached"
#define DRAIN_MAX_S (365 * 86400L)

static void usage(FILE *f)
{
    fprintf(f, "usage: " COMMAND " [OPTION]...             run the daemon of this node\n"
               "       " COMMAND " status [OPTION]...      hits, bytes and nodes\n"
               "       " COMMAND " preload [OPTION]...     fetch files before they are read\n"
               "       " COMMAND " drain [SECONDS]         give its files to others and stop\n"
               "       " COMMAND " join NAME HOST:PORT     give it the address of another node\n"
               "       " COMMAND " forget NAME             remove a node, on all nodes\n"
               "       " COMMAND " stop                    stop it; its files stay\n\n");
    opts_wrap(f,
              "Keeps files of a shared file system on the local disks of a job's nodes, and hands "
              "them to programs that run with libvarve-preload.so. 'varve cached preload --help' "
              "lists the options of preload, and so on. All commands take these:\n",
              0, 0);
    fputc('\n', f);
    opts_row(f, fprintf(f, "  --config FILE"), "settings, in a section [cached]");
    opts_row(f, fprintf(f, "  --daemon"), "return when it serves, and run in the background");
    for (size_t i = 0; i < vv_cached_settings.count; i++) {
        const struct vv_config_key *key = &vv_cached_settings.keys[i];
        char flag[VV_CONFIG_NAME], text[640];

        snprintf(text, sizeof(text), *key->value ? "%s (%s)" : "%s", key->text, key->value);
        opts_row(f,
                 fprintf(f, "  %s %s", vv_config_flag_name(key, flag, sizeof(flag)), key->values),
                 text);
    }
}

static bool is_help(const char *arg)
{
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

static int complain(const char *text)
{
    fprintf(stderr, COMMAND ": %s\n", text);
    return CLI_USAGE;
}

/* Takes the flags that are settings. The other arguments are moved to the front and counted. */
static int take_flags(struct vv_cached *c, int *argc, char **argv, const char **config,
                      bool *daemon)
{
    char err[512];
    int left = 1;

    for (int i = 1; i < *argc; i++) {
        const struct vv_config_key *key = vv_settings_find_flag(&vv_cached_settings, argv[i]);
        const char *eq = strchr(argv[i], '='), *value;

        if (strcmp(argv[i], "--daemon") == 0) {
            *daemon = true;
            continue;
        }
        if (!key && strcmp(argv[i], "--config") != 0 && strncmp(argv[i], "--config=", 9) != 0) {
            argv[left++] = argv[i];
            continue;
        }
        value = eq ? eq + 1 : i + 1 < *argc ? argv[++i] : NULL;
        if (!value) {
            snprintf(err, sizeof(err), "%s needs a value", argv[i]);
            return complain(err);
        }
        if (!key)
            *config = value;
        else if (c &&
                 vv_settings_set(&vv_cached_settings, c, key->name, value, err, sizeof(err)) < 0)
            return complain(err);
    }
    if (c) {
        *argc = left;
        argv[left] = NULL;
    }
    return CLI_OK;
}

/* Reads the file, then the environment, then the flags. A flag names the file, so the flags are read twice. */
static int load(struct vv_cached *c, int *argc, char **argv, bool *daemon)
{
    const char *config = getenv("VARVE_CACHED_CONFIG");
    char **copy = calloc((size_t)*argc + 1, sizeof(*copy)), err[512];
    int n = *argc, status;

    if (!copy)
        return complain("out of memory");
    memcpy(copy, argv, (size_t)*argc * sizeof(*copy));
    status = take_flags(NULL, &n, copy, &config, daemon);
    free(copy);
    vv_settings_init(&vv_cached_settings, c);
    if (status == CLI_OK && config && *config &&
        vv_settings_load_ini(&vv_cached_settings, c, config, err, sizeof(err)) < 0)
        status = complain(err);
    if (status == CLI_OK && vv_settings_load_env(&vv_cached_settings, c, err, sizeof(err)) < 0)
        status = complain(err);
    return status == CLI_OK ? take_flags(c, argc, argv, &config, daemon) : status;
}

/* The parent returns when the child serves, or has failed. */
static int run_behind(struct vv_cached *c)
{
    int fds[2], status;
    char ready = 0;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return complain(strerror(errno));
    pid = fork();
    if (pid < 0)
        return complain(strerror(errno));
    if (pid == 0) {
        close(fds[0]);
        setsid();
        return cached_run(c, fds[1]);
    }
    close(fds[1]);
    if (read(fds[0], &ready, 1) == 1) {
        printf("%ld\n", (long)pid);
        close(fds[0]);
        return CLI_OK;
    }
    close(fds[0]);
    /* the child has printed the reason */
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : CLI_FAILED;
}

static int run(struct vv_cached *c, bool daemon)
{
    char err[1024] = "";
    int rc = vv_cached_complete(c, err, sizeof(err));

    if (rc < 0)
        return complain(err[0] ? err : strerror(-rc));
    return daemon ? run_behind(c) : cached_run(c, -1);
}

static int status_command(struct vv_cached *c, int argc, char **argv)
{
    const char *form = argc > 0 ? argv[0] : "";

    if (argc > 1 || (*form && strcmp(form, "--json") != 0 && strcmp(form, "--prometheus") != 0))
        return complain("status: expected --json, --prometheus or no argument");
    return cached_ask(c, *form ? form[2] == 'j' ? "status json" : "status prometheus" : "status",
                      NULL, NULL);
}

static int drain_command(struct vv_cached *c, int argc, char **argv)
{
    char line[64];
    char *end = NULL;
    long seconds = argc > 0 ? strtol(argv[0], &end, 10) : 600;

    if (argc > 1 || seconds <= 0 || seconds > DRAIN_MAX_S || (end && *end))
        return complain("drain: expected a number of seconds (for example 600)");
    snprintf(line, sizeof(line), "drain %ld", seconds);
    return cached_ask(c, line, NULL, NULL);
}

static bool is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    char *end;
    long port = colon ? strtol(colon + 1, &end, 10) : 0;

    return colon && colon > text && isdigit((unsigned char)colon[1]) && !*end && port > 0 &&
           port <= UINT16_MAX && strlen(text) <= VV_MEMBER_ADDR_MAX;
}

static bool is_name(const char *text)
{
    return *text && strlen(text) <= VV_MEMBER_NAME_MAX && !strpbrk(text, " \t\n/");
}

static int forget_command(struct vv_cached *c, int argc, char **argv)
{
    char line[VV_MEMBER_NAME_MAX + 8];

    if (argc != 1 || !is_name(argv[0]))
        return complain("forget: expected the name of a node; 'varve cached status' lists them");
    snprintf(line, sizeof(line), "forget %s", argv[0]);
    return cached_ask(c, line, NULL, NULL);
}

static int join_command(struct vv_cached *c, int argc, char **argv)
{
    char line[VV_MEMBER_NAME_MAX + VV_MEMBER_ADDR_MAX + 8];

    if (argc != 2 || !is_name(argv[0]) || strpbrk(argv[1], " \t\n") || !is_address(argv[1]))
        return complain("join: expected NAME HOST:PORT (for example node2 10.0.0.2:7001)");
    snprintf(line, sizeof(line), "join %s %s", argv[0], argv[1]);
    return cached_ask(c, line, NULL, NULL);
}

static int stop_command(struct vv_cached *c, int argc, char **argv)
{
    (void)argv;
    return argc > 0 ? complain("stop: expected no arguments") : cached_ask(c, "stop", NULL, NULL);
}

static const struct part {
    const char *name;
    int (*run)(struct vv_cached *c, int argc, char **argv);
    const char *usage, *about;
} parts[] = {
    {"status", status_command, "[--json | --prometheus] [--socket FILE]",
     "How the daemon of this node is doing, and who is there: for people, as one JSON object, or "
     "in "
     "the format of Prometheus."},
    {"drain", drain_command, "[SECONDS] [--socket FILE]",
     "Gives the files of this node to the others, which takes SECONDS (600) at most, and stops its "
     "daemon."},
    {"join", join_command, "NAME HOST:PORT [--socket FILE]",
     "Tells the daemon of this node of another node."},
    {"forget", forget_command, "NAME [--socket FILE]",
     "Removes a node that does not come back, on all nodes."},
    {"stop", stop_command, "[--socket FILE]",
     "Stops the daemon of this node. Its files stay, for the next start."},
};

static void part_usage(const struct part *part)
{
    char command[32];
    /* take_flags and the part read the options. */
    const struct opt options[] = {
        {OPT_FLAG, .name = "json", .help = "print one JSON object"},
        {OPT_FLAG, .name = "prometheus", .help = "print metrics for Prometheus"},
        {OPT_TEXT, .name = "socket", .arg = "FILE",
         .help = "socket of the daemon, as given when it was started"},
    };
    struct opts o = {.command = command,
                     .usage = part->usage,
                     .about = part->about,
                     .tail = "Other settings of the daemon are taken, too: '" COMMAND
                             " --help' lists them.",
                     OPT_LIST(options)};
    size_t skipped = part->run == status_command ? 0 : 2;

    o.list += skipped;
    o.nr -= skipped;

    snprintf(command, sizeof(command), COMMAND " %s", part->name);
    opts_usage(stdout, &o);
}

static const struct part *find_part(const char *name)
{
    for (size_t i = 0; i < VV_ARRAY_SIZE(parts); i++)
        if (strcmp(name, parts[i].name) == 0)
            return &parts[i];
    return NULL;
}

/* Runs the part with the arguments that are not settings. */
static int run_part(struct vv_cached *c, int argc, char **argv)
{
    const char *name = argv[1];
    const struct part *part = find_part(name);

    if (strcmp(name, "preload") == 0) /* it has options and a help text of its own */
        return cached_preload(c, argc - 1, argv + 1);
    for (int i = 1; i < argc; i++) {
        if (is_help(argv[i])) {
            if (part)
                part_usage(part);
            else
                usage(stdout);
            return CLI_OK;
        }
    }
    if (part)
        return part->run(c, argc - 2, argv + 2);
    fprintf(stderr, COMMAND ": %s '%s'; '" COMMAND " --help' lists the commands and options\n",
            name[0] == '-' ? "unknown option" : "unknown command", name);
    return CLI_USAGE;
}

int cli_cached(int argc, char **argv)
{
    bool daemon = false;
    struct vv_cached *c;
    int status;

    if (argc > 1 && is_help(argv[1])) { /* help does not read the configuration */
        usage(stdout);
        return CLI_OK;
    }
    c = malloc(sizeof(*c));
    if (!c)
        return complain("out of memory");
    status = load(c, &argc, argv, &daemon);
    if (status == CLI_OK)
        status = argc < 2 ? run(c, daemon) : run_part(c, argc, argv);
    free(c);
    return status;
}
