/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the process and its machine in a trace. Values that cannot be determined are left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/topo.h"
#include "trace/write.h"

/* The value of the first line of /proc/cpuinfo with one of these keys. */
static bool cpu_model(char *buf, size_t size)
{
    static const char *const keys[] = {"model name", "Processor", "cpu model"};
    char line[512];
    bool found = false;
    FILE *f = fopen("/proc/cpuinfo", "re");

    while (f && !found && fgets(line, sizeof(line), f)) {
        char *colon = strchr(line, ':');
        for (size_t i = 0; colon && !found && i < VV_ARRAY_SIZE(keys); i++)
            found = strncmp(line, keys[i], strlen(keys[i])) == 0;
        if (!found)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(buf, size, "%s", colon);
    }
    if (f)
        fclose(f);
    return found;
}

/* The arguments of the process, separated by spaces. */
static bool command_line(char *buf, size_t size)
{
    FILE *f = fopen("/proc/self/cmdline", "re");
    size_t n = f ? fread(buf, 1, size - 1, f) : 0;

    if (f)
        fclose(f);
    while (n > 0 && buf[n - 1] == '\0')
        n--;
    for (size_t i = 0; i < n; i++)
        if (buf[i] == '\0')
            buf[i] = ' ';
    buf[n] = '\0';
    return n > 0;
}

static int say_number(const char *key, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return vv_trace_meta(0, key, text);
}

int vv_trace_meta_machine(void)
{
    struct utsname u;
    struct vv_topo topo;
    struct tm tm;
    char text[4096];
    time_t now = time(NULL);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int rc = vv_trace_meta(0, "version", VV_VERSION);

    if (rc == 0 && gmtime_r(&now, &tm) && strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm))
        rc = vv_trace_meta(0, "time", text);
    if (rc == 0 && uname(&u) == 0) {
        snprintf(text, sizeof(text), "%s %s %s", u.sysname, u.release, u.machine);
        rc = vv_trace_meta(0, "kernel", text);
        if (rc == 0)
            rc = vv_trace_meta(0, "host", u.nodename);
    }
    if (rc == 0 && cpu_model(text, sizeof(text)))
        rc = vv_trace_meta(0, "cpu", text);
    if (rc == 0 && command_line(text, sizeof(text)))
        rc = vv_trace_meta(0, "command", text);
    vv_topo_get(&topo);
    if (rc == 0)
        rc = say_number("threads", topo.threads);
    if (rc == 0)
        rc = say_number("cores", topo.cores);
    if (rc == 0)
        rc = say_number("pid", (uint64_t)getpid());
    if (rc == 0 && pages > 0 && page > 0)
        rc = say_number("memory", (uint64_t)pages * (uint64_t)page);
    return rc;
}
