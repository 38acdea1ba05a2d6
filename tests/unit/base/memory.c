/* SPDX-License-Identifier: Apache-2.0 */
/* Available memory, read from folders that look like those of a system. */
#include <stdio.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "t.h"

static char proc[400], cgroup[400];

static void put(const char *folder, const char *name, const char *text)
{
    char path[1000];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    T_CHECK(f != NULL);
    fputs(text, f);
    T_EQ(fclose(f), 0);
}

static void make(const char *folder, const char *name)
{
    char path[1000];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    T_EQ(mkdir(path, 0777), 0);
}

static void start(void)
{
    const char *dir = t_tmpdir();
    snprintf(proc, sizeof(proc), "%s/proc", dir);
    snprintf(cgroup, sizeof(cgroup), "%s/cgroup", dir);
    make(dir, "proc");
    make(dir, "cgroup");
    make(proc, "self");
}

static void the_machine_limits(void)
{
    start();
    T_EQ(vvi_memory_available_in(proc, cgroup), 0);
    put(proc, "meminfo", "MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:    500 kB\n");
    T_EQ(vvi_memory_available_in(proc, cgroup), 500 << 10);
    put(proc, "self/cgroup", "1:name=systemd:/elsewhere\n");
    T_EQ(vvi_memory_available_in(proc, cgroup), 500 << 10);
    put(proc, "self/cgroup", "0::/\n");
    T_EQ(vvi_memory_available_in(proc, cgroup), 500 << 10);
}

static void groups_limit(void)
{
    start();
    put(proc, "meminfo", "MemAvailable:    500 kB\n");
    put(proc, "self/cgroup", "0::/job/step\n");
    make(cgroup, "job");
    make(cgroup, "job/step");
    put(cgroup, "job/step/memory.max", "max\n");
    put(cgroup, "job/step/memory.current", "4096\n");
    T_EQ(vvi_memory_available_in(proc, cgroup), 500 << 10);
    /* The group around it has a limit. Page cache of that group counts as available. */
    put(cgroup, "job/memory.max", "300000\n");
    put(cgroup, "job/memory.current", "250000\n");
    T_EQ(vvi_memory_available_in(proc, cgroup), 50000);
    put(cgroup, "job/memory.stat", "anon 1\nfile 99999\ninactive_file 10000\nactive_file 20000\n");
    T_EQ(vvi_memory_available_in(proc, cgroup), 80000);
    put(cgroup, "job/step/memory.max", "5000\n");
    T_EQ(vvi_memory_available_in(proc, cgroup), 904);
    /* Beyond its limit: almost nothing, which differs from "not known". */
    put(cgroup, "job/step/memory.current", "6000\n");
    T_EQ(vvi_memory_available_in(proc, cgroup), 1);
}

/* In a container the process's own group is the root of what it sees. */
static void the_root_limits(void)
{
    start();
    put(proc, "self/cgroup", "0::/\n");
    put(cgroup, "memory.max", "1000\n");
    put(cgroup, "memory.current", "400\n");
    T_EQ(vvi_memory_available_in(proc, cgroup), 600);
}

static void this_machine_tells(void)
{
    T_CHECK(vv_memory_available() > 1 << 20);
}

int main(void)
{
    T_RUN(the_machine_limits);
    T_RUN(groups_limit);
    T_RUN(the_root_limits);
    T_RUN(this_machine_tells);
    return t_done();
}
