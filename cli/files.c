/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

const char *files_folder(const char *command, const char *option)
{
    const char *folder = option != NULL ? option : getenv("VARVE_LOCAL");
    if (folder == NULL || folder[0] == '\0') {
        fprintf(stderr, "varve %s: which folder? Give --local FOLDER or set VARVE_LOCAL\n",
                command);
        return NULL;
    }
    return folder;
}

char *files_time(uint64_t ns, char *buf, size_t size)
{
    time_t seconds = (time_t)(ns / 1000000000u);
    struct tm tm;
    if (gmtime_r(&seconds, &tm) == NULL || strftime(buf, size, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        snprintf(buf, size, "?");
    return buf;
}

void files_json_text(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20)
            fprintf(out, "\\u%04x", c);
        else
            putc(c, out);
    }
    putc('"', out);
}

void files_progress(const char *what, uint64_t done, uint64_t total)
{
    enum { WIDTH = 40 };
    if (!isatty(STDERR_FILENO))
        return;
    if (total == 0) {
        fprintf(stderr, "\r\033[K");
        return;
    }
    int filled = (int)((double)done / (double)total * WIDTH);
    fprintf(stderr, "\r%s [", what);
    for (int i = 0; i < WIDTH; i++)
        putc(i < filled ? '#' : '.', stderr);
    fprintf(stderr, "] %" PRIu64 "/%" PRIu64, done, total);
}

bool files_number(const char *text, uint64_t *ret_value)
{
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *ret_value = value;
    return true;
}

int files_complain(const char *command, const char *folder, const char *history, int rc)
{
    fprintf(stderr, "varve %s: ", command);
    if (rc == -EINVAL && history != NULL)
        fprintf(stderr, "'%s' is not a name for a history\n", history);
    else if (rc == -ENOENT && history != NULL)
        fprintf(stderr, "no history '%s' in %s\n", history, folder);
    else
        fprintf(stderr, "%s: %s\n", folder, strerror(-rc));
    return CLI_FAILED;
}
