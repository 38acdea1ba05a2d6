/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of processors as text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpus.h"

/* Reads a number at *at, and moves *at behind it. */
static int number(const char **at, unsigned *ret_n)
{
    char *end;
    unsigned long n;

    if (**at < '0' || **at > '9')
        return -EINVAL;
    n = strtoul(*at, &end, 10);
    if (n >= CPU_SETSIZE)
        return -EINVAL;
    *at = end;
    *ret_n = (unsigned)n;
    return 0;
}

int vv_cpus_parse(const char *text, cpu_set_t *ret_cpus)
{
    cpu_set_t cpus;
    unsigned from, to;

    CPU_ZERO(&cpus);
    do {
        if (number(&text, &from))
            return -EINVAL;
        to = from;
        if (*text == '-') {
            text++;
            if (number(&text, &to) || to < from)
                return -EINVAL;
        }
        for (; from <= to; from++)
            CPU_SET(from, &cpus);
    } while (*text++ == ',');
    if (text[-1])
        return -EINVAL;
    *ret_cpus = cpus;
    return 0;
}

char *vv_cpus_format(const cpu_set_t *cpus, char *buf, size_t size)
{
    size_t at = 0;

    buf[0] = 0;
    for (int from = 0, to; from < CPU_SETSIZE; from = to + 1) {
        char one[24];
        to = from;
        if (!CPU_ISSET(from, cpus))
            continue;
        while (to + 1 < CPU_SETSIZE && CPU_ISSET(to + 1, cpus))
            to++;
        int n = to > from ? snprintf(one, sizeof(one), "%s%d-%d", at ? "," : "", from, to)
                          : snprintf(one, sizeof(one), "%s%d", at ? "," : "", from);
        if (at + (size_t)n + 4 > size) {
            snprintf(buf + at, size - at, "...");
            break;
        }
        memcpy(buf + at, one, (size_t)n + 1);
        at += (size_t)n;
    }
    return buf;
}
