/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common/command.h"

#include <stdio.h>
#include <string.h>

static void usage(FILE *out, const char *program, const struct cli_command *commands, size_t nr)
{
    fprintf(out, "usage: %s COMMAND [OPTION]...\n\n", program);
    for (size_t i = 0; i < nr; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(out,
            "\n'%s COMMAND --help' is about one command; '%s --version'\nprints the version.\n",
            program, program);
}

/* How many characters two words have in common from the start. */
static size_t common(const char *a, const char *b)
{
    size_t n = 0;

    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

static int unknown(const char *program, const struct cli_command *commands, size_t nr,
                   const char *name)
{
    const char *best = NULL;
    size_t most = 1; /* one letter in common is no hint */

    for (size_t i = 0; i < nr; i++) {
        if (common(commands[i].name, name) > most) {
            most = common(commands[i].name, name);
            best = commands[i].name;
        }
    }
    /* Or what one of them does: "repair", "remove". */
    for (size_t i = 0; i < nr && !best && strlen(name) > 3; i++)
        if (strstr(commands[i].summary, name))
            best = commands[i].name;
    fprintf(stderr, "%s: there is no command '%s'", program, name);
    if (best)
        fprintf(stderr, "; did you mean '%s'?\n", best);
    else
        fprintf(stderr, "; '%s --help' lists them\n", program);
    return CLI_USAGE;
}

int cli_part(const char *command, const struct cli_command *parts, size_t nr, int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < nr; i++) {
        char full[48];

        if (strcmp(parts[i].name, argv[1]) != 0)
            continue;
        snprintf(full, sizeof(full), "%s %s", command, parts[i].name);
        argv[1] = full;
        return parts[i].run(argc - 1, argv + 1);
    }
    return -1;
}

int cli_run(const char *program, const struct cli_command *commands, size_t nr, int argc,
            char **argv)
{
    static char help[] = "--help";
    const char *name = argc > 1 ? argv[1] : NULL;
    int status;

    if (!name) {
        usage(stderr, program, commands, nr);
        return CLI_USAGE;
    }
    if (strcmp(name, "help") == 0 && argc > 2) { /* help COMMAND is COMMAND --help */
        memmove(&argv[1], &argv[2], (size_t)(argc - 2) * sizeof(*argv));
        argv[argc - 1] = help;
        name = argv[1];
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        usage(stdout, program, commands, nr);
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("varve %s\n", VV_VERSION);
        return CLI_OK;
    }
    status = cli_part("varve", commands, nr, argc, argv);
    return status >= 0 ? status : unknown(program, commands, nr, name);
}
