/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that have parts: varve bench ooc. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

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
