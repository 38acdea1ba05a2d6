/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char units[] = "KMGTPE";

/* The multiplier of the unit at `s`, or 0 if `s` is not a unit. */
static uint64_t unit_factor(const char *s, unsigned bare_base)
{
    unsigned base = bare_base;
    uint64_t factor = 1;
    const char *p;

    if (*s == '\0')
        return 1;
    if (toupper((unsigned char)*s) == 'B')
        return s[1] == '\0' ? 1 : 0;
    p = strchr(units, toupper((unsigned char)*s));
    if (!p)
        return 0;
    s++;
    if (toupper((unsigned char)s[0]) == 'I' && toupper((unsigned char)s[1]) == 'B') {
        base = 1024;
        s += 2;
    } else if (toupper((unsigned char)s[0]) == 'B') {
        base = 1000;
        s++;
    }
    if (*s != '\0')
        return 0;
    for (long i = 0; i <= p - units; i++)
        factor *= base;
    return factor;
}

static int parse(const char *s, unsigned bare_base, uint64_t *ret_value)
{
    unsigned __int128 whole = 0, fraction = 0, scale = 1, value;
    uint64_t factor;
    int digits = 0;

    if (!s)
        return -EINVAL;
    while (isspace((unsigned char)*s))
        s++;
    for (; isdigit((unsigned char)*s); s++, digits++) {
        whole = whole * 10 + (unsigned)(*s - '0');
        if (whole > UINT64_MAX)
            return -ERANGE;
    }
    if (*s == '.') {
        for (s++; isdigit((unsigned char)*s); s++, digits++) {
            /* Further digits are below one byte of any unit. */
            if (scale < UINT64_C(1000000000000000000)) {
                fraction = fraction * 10 + (unsigned)(*s - '0');
                scale *= 10;
            }
        }
    }
    if (digits == 0)
        return -EINVAL;
    while (isspace((unsigned char)*s))
        s++;
    factor = unit_factor(s, bare_base);
    if (factor == 0)
        return -EINVAL;
    value = whole * factor + fraction * factor / scale;
    if (value > UINT64_MAX)
        return -ERANGE;
    *ret_value = (uint64_t)value;
    return 0;
}

int vv_bytes_parse(const char *s, uint64_t *ret_bytes)
{
    return parse(s, 1024, ret_bytes);
}

int vv_rate_parse(const char *s, uint64_t *ret_bytes_per_s)
{
    return parse(s, 1000, ret_bytes_per_s);
}

char *vv_bytes_format(uint64_t bytes, char *buf, size_t size)
{
    int unit = -1;

    while (bytes != 0 && bytes % 1024 == 0 && units[unit + 1] != '\0') {
        bytes /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(buf, size, "%" PRIu64, bytes);
    else
        snprintf(buf, size, "%" PRIu64 "%c", bytes, units[unit]);
    return buf;
}

char *vv_bytes_human(uint64_t bytes, char *buf, size_t size)
{
    double value = (double)bytes;
    int unit = -1;

    /* 999.5 and more would be printed with four digits. */
    while (value >= 999.5 && units[unit + 1] != '\0') {
        value /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(buf, size, "%" PRIu64 " B", bytes);
    else
        snprintf(buf, size, "%.*f %ciB",
                 value < 9.995   ? 2
                 : value < 99.95 ? 1
                                 : 0,
                 value, units[unit]);
    return buf;
}
