/* SPDX-License-Identifier: Apache-2.0 */
/* Error texts, time, and sizes in readable form. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rtm.h"

static char text[1024];

int rtm_error(int err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err;
}

const char *rtm_error_text(void)
{
    return text;
}

int rtm_error_varve(struct varve_ctx *ctx, int err, const char *what)
{
    struct varve_error e = {.error_size = sizeof(e)};

    if (varve_last_error(ctx, &e) == 0 && e.err == err && e.text[0])
        return rtm_error(err, "%s: %s", what, e.text);
    return rtm_error(err, "%s: %s", what, varve_strerror(err));
}

void rtm_warn(const char *fmt, ...)
{
    va_list ap;

    fputs("varve-rtm: warning: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

double rtm_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

const char *rtm_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    static char texts[8][32];
    static unsigned next;
    char *t = texts[next++ % 8];
    double value = (double)bytes;
    size_t u = 0;

    while (value >= 1024 && u + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        u++;
    }
    snprintf(t, sizeof(texts[0]), u == 0 ? "%.0f %s" : "%.4g %s", value, units[u]);
    return t;
}

int rtm_parse_bytes(const char *from, uint64_t *ret_bytes)
{
    static const char units[] = "kmgt";
    char *end;
    const char *unit;
    double value;

    errno = 0;
    value = strtod(from, &end);
    if (end == from || errno || !(value >= 0) || value > 1e18)
        return -EINVAL;
    if (*end && (unit = strchr(units, tolower((unsigned char)*end))) != NULL) {
        for (const char *u = units; u <= unit; u++)
            value *= 1024;
        end++;
        if (*end == 'i')
            end++;
    }
    if (*end == 'B' || *end == 'b')
        end++;
    if (*end || value > 9e18)
        return -EINVAL;
    *ret_bytes = (uint64_t)value;
    return 0;
}
