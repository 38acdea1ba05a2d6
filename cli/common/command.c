/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common/command.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"

static void usage(FILE *out, const char *program, const struct cli_command *commands, size_t nr)
{
    fprintf(out, "usage: %s COMMAND [OPTION]...\n\n", program);
    for (size_t i = 0; i < nr; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(out,
            "\n'%s COMMAND --help' is about one command; '%s --version'\nprints the version.\n",
            program, program);
}

#define WORD_MAX 32

/* Levenshtein's distance: the number of letters to insert, delete or replace to make one word of the other. */
bool cli_resembles(const char *word, const char *name)
{
    size_t row[WORD_MAX + 1], n = strlen(name), m = strlen(word);

    if (n > WORD_MAX || m > WORD_MAX)
        return false;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t replaced = diagonal + (word[i - 1] != name[j - 1]);

            diagonal = row[j];
            row[j] = VV_MIN(replaced, VV_MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[n] <= n / 4;
}

/* The number of characters that two words have in common from the start. */
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

    if (name[0] == '-') {
        fprintf(stderr, "%s: unknown option '%s'; '%s --help' lists the commands and options\n",
                program, name, program);
        return CLI_USAGE;
    }
    for (size_t i = 0; i < nr; i++) {
        bool close = cli_resembles(name, commands[i].name);
        size_t n = close ? WORD_MAX : common(commands[i].name, name);

        if (n > most) {
            most = n;
            best = commands[i].name;
        }
    }
    /* A word of the summary: "repair", "remove". */
    for (size_t i = 0; i < nr && !best && strlen(name) > 3; i++)
        if (strstr(commands[i].summary, name))
            best = commands[i].name;
    fprintf(stderr, "%s: unknown command '%s'", program, name);
    if (best)
        fprintf(stderr, "; did you mean '%s'?\n", best);
    else
        fprintf(stderr, "; '%s --help' lists the commands\n", program);
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

int cli_part_or_usage(const char *command, const struct cli_command *parts, size_t nr, int argc,
                      char **argv)
{
    int status = cli_part(command, parts, nr, argc, argv);

    if (status >= 0)
        return status;
    if (argc > 1)
        fprintf(stderr, "%s: unknown %s '%s'", command, argv[1][0] == '-' ? "option" : "command",
                argv[1]);
    else
        fprintf(stderr, "%s: no command is given", command);
    fprintf(stderr, "; expected one of");
    for (size_t i = 0; i < nr; i++)
        if (parts[i].summary)
            fprintf(stderr, "%s %s", i ? "," : "", parts[i].name);
    fprintf(stderr, "; see '%s --help'\n", command);
    return CLI_USAGE;
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
