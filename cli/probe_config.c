/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes settings of the measurements, and writes a file with them.
 *
 * Sizes are shares of the memory that is free now, not of all memory: other programs keep theirs. They are meant
 * for one process; the file says so.
 *
 * The file is written under a temporary name beside its place, with all signals blocked, read back by the
 * library's own parser, compared value by value, and only then renamed. So the file under its name is always one
 * that varve_opts_load accepts, for any characters in a path.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "cli/probe_command.h"
#include "store/os.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

/* The share of free device memory; the application needs most of it. */
#define DEVICE_SHARE 8
/* The share of available host memory. Files in the page cache need as much again to be of use, and the application
 * needs some too. */
#define HOST_SHARE_DIRECT   2
#define HOST_SHARE_BUFFERED 4
/* Buffered writing has to be faster by this factor in the long run to be worth its memory. */
#define BUFFERED_GAIN 1.1
/* GPUDirect Storage has to be faster by this factor to be worth another library. */
#define GDS_GAIN 1.05

const char *const probe_config_keys[] = {"device",   "device_cache", "host_cache", "local",
                                         "local_io", "gds",          NULL};

/* ---- memory ---- */

void probe_memory(uint64_t *ret_bytes, uint64_t *ret_available_bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t available = vv_memory_available();

    *ret_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
    *ret_available_bytes = available ? available : (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
}

/* ---- settings ---- */

/* Rounds down to a number that is easy to read. */
static uint64_t round_size(uint64_t bytes)
{
    if (bytes >= 8 * GIB)
        return vv_align_down(bytes, GIB);
    if (bytes >= 64 * MIB)
        return vv_align_down(bytes, 64 * MIB);
    return VV_MAX(vv_align_down(bytes, MIB), MIB);
}

static int settle_local_io(const struct probe_facts *f)
{
    if (!f->folder[0])
        return VV_CONFIG_LOCAL_IO_AUTO;
    if (f->direct_refused)
        return VV_CONFIG_LOCAL_IO_BUFFERED;
    if (f->direct_write_bps <= 0)
        return VV_CONFIG_LOCAL_IO_AUTO;
    return f->buffered_write_bps > BUFFERED_GAIN * f->direct_write_bps ? VV_CONFIG_LOCAL_IO_BUFFERED
                                                                       : VV_CONFIG_LOCAL_IO_DIRECT;
}

/* True if a byte goes down and up again faster with GPUDirect Storage, which needs direct I/O. */
static bool settle_gds(const struct probe_facts *f, int local_io)
{
    double through = 0, past = 0;

    for (int up = 0; up < 2; up++) {
        if (f->through_bps[up] <= 0 || f->past_bps[up] <= 0)
            return false;
        through += 1 / f->through_bps[up];
        past += 1 / f->past_bps[up];
    }
    return local_io == VV_CONFIG_LOCAL_IO_DIRECT && through >= GDS_GAIN * past;
}

void probe_settle(const struct probe_facts *f, struct vv_config *ret_cfg)
{
    struct vv_config cfg;

    vv_config_init(&cfg);
    cfg.device = strcmp(f->device, "cuda") == 0   ? VV_CONFIG_DEVICE_CUDA
                 : strcmp(f->device, "host") == 0 ? VV_CONFIG_DEVICE_HOST
                                                  : VV_CONFIG_DEVICE_NONE;
    if (cfg.device != VV_CONFIG_DEVICE_NONE && f->device_free_bytes > 0)
        cfg.device_cache = round_size(f->device_free_bytes / DEVICE_SHARE);
    cfg.local_io = settle_local_io(f);
    cfg.gds = settle_gds(f, cfg.local_io);
    cfg.host_cache = round_size(
        f->memory_available_bytes /
        (cfg.local_io == VV_CONFIG_LOCAL_IO_BUFFERED ? HOST_SHARE_BUFFERED : HOST_SHARE_DIRECT));
    snprintf(cfg.local, sizeof(cfg.local), "%s", f->folder);
    *ret_cfg = cfg;
}

/* ---- the file ---- */

static const char *key_comment(const char *key, const struct probe_facts *f,
                               const struct vv_config *cfg)
{
    if (strcmp(key, "device_cache") == 0)
        return "an eighth of the device memory that was free";
    if (strcmp(key, "host_cache") == 0)
        return cfg->local_io == VV_CONFIG_LOCAL_IO_BUFFERED
                   ? "a quarter of the memory that was available: the page cache needs room too"
                   : "half of the memory that was available";
    if (strcmp(key, "gds") == 0)
        return "between device and disk, past host memory was faster by 5% or more";
    if (strcmp(key, "local_io") != 0)
        return NULL;
    if (f->direct_refused)
        return "the file system refuses direct access";
    return cfg->local_io == VV_CONFIG_LOCAL_IO_AUTO ? "direct access could not be measured"
                                                    : "what wrote faster in the long run";
}

/* True if the key is written. */
bool probe_config_applies(const char *key, const struct vv_config *cfg)
{
    if (strcmp(key, "device_cache") == 0)
        return cfg->device != VV_CONFIG_DEVICE_NONE;
    if (strcmp(key, "local") == 0 || strcmp(key, "local_io") == 0)
        return cfg->local[0] != '\0';
    if (strcmp(key, "gds") == 0)
        return cfg->gds; /* off is the default */
    return true;
}

static void print_row(FILE *f, const struct probe_row *r)
{
    if (r->rc < 0)
        fprintf(f, "#   %-5s %-44.44s not measured\n", r->hop, r->what);
    else if (r->unit == PROBE_RATE)
        fprintf(f, "#   %-5s %-44.44s %9.3f GB/s\n", r->hop, r->what, r->value / 1e9);
    else
        fprintf(f, "#   %-5s %-44.44s %9.3f ms\n", r->hop, r->what, r->value * 1e3);
}

static int print_config(FILE *f, const struct probe_facts *facts, const struct probe_rows *rows,
                        const struct vv_config *cfg)
{
    char value[VV_CONFIG_TEXT + 1], date[32];
    time_t now = time(NULL);
    struct tm tm;

    strftime(date, sizeof(date), "%Y-%m-%d", gmtime_r(&now, &tm));
    fprintf(
        f,
        "# Settings for Varve, made by '" PROBE_COMMAND "' on %s. varve.conf(5) tells about\n"
        "# the keys. The sizes are for one process: with several on this machine, divide them.\n"
        "[varve]\n",
        date);
    for (size_t i = 0; probe_config_keys[i]; i++) {
        const char *key = probe_config_keys[i], *comment = key_comment(key, facts, cfg);
        int rc = vv_config_get(cfg, key, value, sizeof(value));

        if (rc < 0)
            return rc;
        if (!probe_config_applies(key, cfg))
            continue;
        if (comment)
            fprintf(f, "# %s\n", comment);
        fprintf(f, "%s = %s\n", key, value);
    }
    fprintf(f, "\n# Measured:\n#   device: %s%s%.60s\n", facts->device,
            facts->device_name[0] ? ", " : "", facts->device_name);
    for (size_t i = 0; i < rows->nr; i++)
        print_row(f, &rows->row[i]);
    return 0;
}

int probe_config_text(const struct probe_facts *facts, const struct probe_rows *rows,
                      const struct vv_config *cfg, char **ret_text)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    int rc;

    if (!f)
        return -ENOMEM;
    rc = print_config(f, facts, rows, cfg);
    if (fclose(f) != 0 && rc == 0)
        rc = -ENOMEM;
    if (rc < 0)
        free(text);
    else
        *ret_text = text;
    return rc;
}

/* Measuring takes long, so check first that the file can be written. */
static int folder_check(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];

    if (!slash)
        return access(".", W_OK) < 0 ? -errno : 0;
    if (snprintf(folder, sizeof(folder), "%.*s/", (int)(slash - path), path) >= PATH_MAX)
        return -ENAMETOOLONG;
    return access(folder, W_OK) < 0 ? -errno : 0;
}

int probe_config_check(const char *path, bool force)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return errno == ENOENT ? folder_check(path) : -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    return force ? 0 : -EEXIST;
}

/* 0 if the file at `path` has the settings of `cfg`; -EINVAL, with a text, if one differs; or the error of reading. */
static int read_back(const char *path, const struct vv_config *cfg, char *err, size_t err_size)
{
    struct vv_config got;
    int rc;

    vv_config_init(&got);
    rc = vv_config_load_ini(&got, path, err, err_size);
    for (size_t i = 0; rc == 0 && probe_config_keys[i]; i++) {
        char want[VV_CONFIG_TEXT + 1], have[VV_CONFIG_TEXT + 1];

        if (!probe_config_applies(probe_config_keys[i], cfg))
            continue;
        rc = vv_config_get(cfg, probe_config_keys[i], want, sizeof(want));
        if (rc == 0)
            rc = vv_config_get(&got, probe_config_keys[i], have, sizeof(have));
        if (rc == 0 && strcmp(want, have) != 0) {
            snprintf(err, err_size, "an INI file cannot hold %s = %s", probe_config_keys[i], want);
            rc = -EINVAL;
        }
    }
    return rc;
}

static int write_file(const char *path, const char *text, const struct vv_config *cfg, bool force,
                      char *err, size_t err_size)
{
    const struct vv_os *os = vv_os_posix();
    char temporary[4096];
    mode_t mask = umask(0);
    int fd, rc;

    umask(mask);
    if (snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= (int)sizeof(temporary))
        return -ENAMETOOLONG;
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    rc = vv_os_write_all(os, fd, text, strlen(text), 0);
    /* Use the usual permissions of a new file: mkostemp lets only the owner read it. */
    if (rc == 0 && fchmod(fd, 0666 & ~mask) < 0)
        rc = -errno;
    if (rc == 0)
        rc = os->fsync(os, fd);
    close(fd);
    if (rc == 0)
        rc = read_back(temporary, cfg, err, err_size);
    if (rc == 0)
        rc = os->rename(os, AT_FDCWD, temporary, path, force);
    if (rc < 0)
        unlink(temporary);
    return rc;
}

int probe_config_write(const char *path, const char *text, const struct vv_config *cfg, bool force,
                       char *err, size_t err_size)
{
    sigset_t all, old;
    int rc;

    err[0] = '\0';
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    rc = write_file(path, text, cfg, force, err, err_size);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc < 0 && !err[0])
        snprintf(err, err_size, "%s",
                 rc == -EEXIST ? "the file exists already; --force replaces it" : strerror(-rc));
    return rc;
}
