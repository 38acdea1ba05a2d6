/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linux grants more memory than it has, and kills a process when the memory is used. Two limits apply: that
 * of the machine (/proc/meminfo estimates the available part) and those of the process's control groups,
 * which count the page cache as used although it can be reclaimed.
 *
 * Failures: a file that is missing or malformed counts as no limit.
 */
#include "base/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

enum { PATH_BYTES = 512 };

/* Reads the number after `key` in a file of lines "key number ..."; without a key, the first number. */
static bool read_number(const char *path, const char *key, uint64_t *ret_number)
{
    FILE *f = fopen(path, "re");
    size_t skip = key ? strlen(key) : 0;
    unsigned long long n;
    char line[256];
    bool found = false;

    if (!f)
        return false;
    while (!found && fgets(line, sizeof(line), f)) {
        if (key && (strncmp(line, key, skip) != 0 || (line[skip] != ' ' && line[skip] != ':')))
            continue;
        found = sscanf(line + skip + (key != NULL), "%llu", &n) == 1;
        if (!key)
            break;
    }
    fclose(f);
    if (found)
        *ret_number = n;
    return found;
}

/* Memory available in one group; UINT64_MAX: it has no limit. */
static uint64_t group_available(const char *folder)
{
    char path[PATH_BYTES + 32];
    uint64_t max, used, file = 0, n;

    snprintf(path, sizeof(path), "%s/memory.max", folder);
    if (!read_number(path, NULL, &max)) /* "max": no limit */
        return UINT64_MAX;
    snprintf(path, sizeof(path), "%s/memory.current", folder);
    if (!read_number(path, NULL, &used))
        return UINT64_MAX;
    snprintf(path, sizeof(path), "%s/memory.stat", folder);
    if (read_number(path, "inactive_file", &n))
        file += n;
    if (read_number(path, "active_file", &n))
        file += n;
    used -= VV_MIN(used, file);
    return max > used ? max - used : 0;
}

/* The folder of the process's group below `cgroup`: a line "0::/path". */
static bool group_folder(const char *proc, const char *cgroup, char *ret_folder)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    bool found = false;
    FILE *f;

    snprintf(path, sizeof(path), "%s/self/cgroup", proc);
    f = fopen(path, "re");
    if (!f)
        return false;
    while (!found && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::/", 4) != 0)
            continue;
        found = snprintf(ret_folder, PATH_BYTES, "%s/%s", cgroup, line + 4) < PATH_BYTES;
    }
    fclose(f);
    return found;
}

uint64_t vvi_memory_available_in(const char *proc, const char *cgroup)
{
    char path[PATH_BYTES];
    uint64_t available = UINT64_MAX, kib;

    snprintf(path, sizeof(path), "%s/meminfo", proc);
    if (read_number(path, "MemAvailable", &kib))
        available = kib << 10;
    if (group_folder(proc, cgroup, path))
        while (strlen(path) >= strlen(cgroup)) {
            available = VV_MIN(available, group_available(path));
            *strrchr(path, '/') = 0;
        }
    /* 0 stands for unknown, so no available memory is returned as 1. */
    return available == UINT64_MAX ? 0 : VV_MAX(available, (uint64_t)1);
}

uint64_t vv_memory_available(void)
{
    return vvi_memory_available_in("/proc", "/sys/fs/cgroup");
}
