/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of processors: as text, and which of them an application leaves free. Nothing here asks the
 * system: what is known of it is passed in. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crew.h"

/* A number at *at, which moves behind it. */
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

static bool is_bound(const cpu_set_t *mask, const cpu_set_t *all)
{
    return !CPU_EQUAL(mask, all);
}

/* Cores of which every processor is in `cpus`, as far as it is in `all`. The others are taken out. */
static unsigned whole_cores(const struct vv_crew_question *q, const cpu_set_t *all, cpu_set_t *cpus)
{
    bool broken[CPU_SETSIZE] = {false}, seen[CPU_SETSIZE] = {false};
    unsigned n = 0;

    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, all) && !CPU_ISSET(i, cpus))
            broken[q->core_of[i]] = true;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, cpus))
            continue;
        if (broken[q->core_of[i]])
            CPU_CLR(i, cpus);
        else if (!seen[q->core_of[i]])
            n += seen[q->core_of[i]] = true;
    }
    return n;
}

/* Takes the first `n` cores out. */
static void leave_first(const struct vv_crew_question *q, unsigned n, cpu_set_t *cpus)
{
    bool theirs[CPU_SETSIZE] = {false};

    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, cpus))
            continue;
        if (n > 0 && !theirs[q->core_of[i]]) {
            theirs[q->core_of[i]] = true;
            n--;
        }
        if (theirs[q->core_of[i]])
            CPU_CLR(i, cpus);
    }
}

unsigned vv_crew_free_cores(const struct vv_crew_question *q, cpu_set_t *ret_cpus)
{
    cpu_set_t all, bound, cpus;
    size_t nbound = 0;
    unsigned cores;

    CPU_ZERO(&all);
    CPU_ZERO(&bound);
    for (size_t i = 0; i < q->nmasks; i++)
        CPU_OR(&all, &all, &q->masks[i]);
    for (size_t i = 0; i < q->nmasks; i++)
        if (is_bound(&q->masks[i], &all)) {
            CPU_OR(&bound, &bound, &q->masks[i]);
            nbound++;
        }
    /* Each to its own place, or one thread alone on one: what they leave is told by the machine. */
    bool by_machine = CPU_COUNT(&q->machine) > 0 && (nbound == q->nmasks || q->nmasks == 1) &&
                      CPU_COUNT(&all) < CPU_COUNT(&q->machine);
    if (by_machine) {
        bound = all;
        nbound = q->nmasks;
        CPU_OR(&all, &all, &q->machine);
    }
    cpus = all;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &bound))
            CPU_CLR(i, &cpus);
    cores = whole_cores(q, &all, &cpus);
    /* Threads that are not bound, and those that are still to come, take the first ones. */
    unsigned all_theirs = q->app_threads ? q->app_threads : (unsigned)q->nmasks;
    unsigned theirs = all_theirs > nbound ? all_theirs - (unsigned)nbound : 0;
    bool known = q->app_threads > 0 || (nbound > 0 && !by_machine);
    if (!known || theirs >= cores) {
        CPU_ZERO(&cpus);
        cores = 0;
    } else {
        leave_first(q, theirs, &cpus);
        cores -= theirs;
    }
    *ret_cpus = cpus;
    return cores;
}
