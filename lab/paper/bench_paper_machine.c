/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine of the figures: facts of the kernel and `varve doctor`, which measure nothing; unknown ones are left
 * out. Another process queries the device: this one never initialises CUDA, so that the runs have the device for
 * themselves.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/topo.h"
#include "build_info.h"
#include "cli/common/beside.h"
#include "lab/paper/bench_paper.h"

#define DOCTOR_LIMIT_S 60

struct lines {
    char *buf;
    size_t size, len;
};

VV_PRINTF(3, 4)
static void add(struct lines *l, const char *name, const char *fmt, ...)
{
    va_list ap;
    char text[512];
    int n;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    n = snprintf(l->buf + l->len, l->size - l->len, "%s\t%s\n", name, text);
    if (n > 0 && (size_t)n < l->size - l->len)
        l->len += (size_t)n;
    else
        l->buf[l->len] = '\0';
}

/* The text behind `key` on the first line of a file that begins with it, without blanks around. */
static bool find_line(const char *path, const char *key, char *buf, size_t size)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;
    bool found = false;

    while (f && !found && getline(&line, &cap, f) >= 0) {
        const char *s = line + strlen(key);

        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        s += strspn(s, " \t:");
        snprintf(buf, size, "%.*s", (int)strcspn(s, "\n"), s);
        while (*buf && strchr(" \t", buf[strlen(buf) - 1]))
            buf[strlen(buf) - 1] = '\0';
        found = *buf != '\0';
    }
    free(line);
    if (f)
        fclose(f);
    return found;
}

/* The value of a key in one line of the doctor's JSON, which has one finding on each. */
static bool finding_value(const char *line, const char *key, char *buf, size_t size)
{
    char pattern[32];
    const char *at;

    snprintf(pattern, sizeof(pattern), "\"%s\": \"", key);
    at = strstr(line, pattern);
    if (!at)
        return false;
    at += strlen(pattern);
    snprintf(buf, size, "%.*s", (int)strcspn(at, "\"\\"), at);
    return true;
}

static void add_devices(const struct paper *paper, struct lines *l)
{
    char *argv[] = {(char *)"varve", (char *)"doctor", (char *)"--json", NULL};
    static const char *const places[] = {"varve", VV_BIN_FROM_LIBEXEC "/varve"};
    char *out = NULL, *err = NULL, *save = NULL;
    char version[256], tool[PAPER_PATH];
    int status;

    if (strcmp(paper->opts.device, "host") == 0) {
        add(l, "device", "emulated by threads of the processor: no GPU took part");
        return;
    }
    if (!beside_find(places, VV_ARRAY_SIZE(places), X_OK, tool, sizeof(tool)) ||
        paper_spawn(tool, argv, DOCTOR_LIMIT_S, &status, &out, &err) < 0)
        return;
    for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[64], detail[256];

        if (finding_value(line, "name", name, sizeof(name)) &&
            finding_value(line, "detail", detail, sizeof(detail)) &&
            (strcmp(name, "GPU") == 0 || strcmp(name, "libcuda.so.1") == 0))
            add(l, name[0] == 'G' ? "device" : "driver", "%s", detail);
    }
    if (find_line("/proc/driver/nvidia/version", "NVRM version", version, sizeof(version)))
        add(l, "kernel module", "%s", version);
    free(out);
    free(err);
}

/* True if `dir` is the folder of `path`, or above it. */
static bool contains(const char *dir, const char *path)
{
    size_t n = strlen(dir);

    return strncmp(dir, path, n) == 0 &&
           (path[n] == '\0' || path[n] == '/' || (n > 0 && dir[n - 1] == '/'));
}

/* The name of a disk; a partition's disk is one folder up. */
static void disk_model(const char *number, char *buf, size_t size)
{
    static const char *const where[] = {"device/model", "../device/model"};
    char path[128];

    buf[0] = '\0';
    for (size_t i = 0; i < VV_ARRAY_SIZE(where) && !buf[0]; i++) {
        snprintf(path, sizeof(path), "/sys/dev/block/%s/%s", number, where[i]);
        find_line(path, "", buf, size);
    }
}

static void add_disk(const struct paper *paper, struct lines *l)
{
    const char *dir = paper->opts.local ? paper->opts.local : getenv("TMPDIR");
    char path[PATH_MAX], type[64] = "", source[256] = "", number[32] = "", model[128], *line = NULL;
    size_t cap = 0, best = 0;
    FILE *f;

    if (!dir || !*dir)
        dir = "/var/tmp";
    if (strcmp(dir, "none") == 0 || !realpath(dir, path))
        return;
    f = fopen("/proc/self/mountinfo", "re");
    while (f && getline(&line, &cap, f) >= 0) {
        char num[32], at[PATH_MAX], fs[64], src[256];
        const char *dash = strstr(line, " - ");

        if (sscanf(line, "%*s %*s %31s %*s %4095s", num, at) != 2 || !dash ||
            sscanf(dash, " - %63s %255s", fs, src) != 2 || !contains(at, path) || strlen(at) < best)
            continue;
        best = strlen(at);
        snprintf(type, sizeof(type), "%s", fs);
        snprintf(source, sizeof(source), "%s", src);
        snprintf(number, sizeof(number), "%s", num);
    }
    free(line);
    if (f)
        fclose(f);
    if (!type[0])
        return;
    disk_model(number, model, sizeof(model));
    add(l, "disk", "%s on %s%s%s%s, local_io %s", type, source, model[0] ? " (" : "", model,
        model[0] ? ")" : "", paper->opts.local_io);
}

/* A hash of the program, which contains the library: version numbers do not change with each change of
 * the code. 0: it cannot be read. */
static uint64_t program_hash(const char *path)
{
    FILE *f = fopen(path, "re");
    uint64_t hash[2] = {0, 0}; /* so far, and of the next part */
    char part[1 << 14];
    size_t n;

    while (f && (n = fread(part, 1, sizeof(part), f)) > 0) {
        hash[1] = vv_hash64(part, n);
        hash[0] = vv_hash64(hash, sizeof(hash));
    }
    if (f)
        fclose(f);
    return hash[0];
}

void paper_describe(const struct paper *paper, char *buf, size_t size)
{
    struct lines l = {.buf = buf, .size = size};
    struct vv_topo topo;
    struct utsname uts;
    char text[256], bytes[VV_BYTES_TEXT];

    buf[0] = '\0';
    vv_topo_get(&topo);
    add_devices(paper, &l);
    if (!find_line("/proc/cpuinfo", "model name", text, sizeof(text)))
        snprintf(text, sizeof(text), "processor");
    add(&l, "processor", "%s, %u cores", text, topo.cores);
    if (find_line("/proc/meminfo", "MemTotal", text, sizeof(text)))
        add(&l, "memory", "%s",
            vv_bytes_human(strtoull(text, NULL, 10) << 10, bytes, sizeof(bytes)));
    add_disk(paper, &l);
    if (uname(&uts) == 0)
        add(&l, "kernel", "%s %s, %s", uts.sysname, uts.release, uts.machine);
    add(&l, "varve", "%s, %s build by %s, program %016" PRIx64, VV_VERSION, VV_BUILD_TYPE,
        VV_BUILD_COMPILER, program_hash(paper->program));
}
