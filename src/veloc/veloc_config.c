/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VELOC's configuration files. VELOC's keys are in no section. Keys with a meaning here are read, and known keys without
 * one are ignored. Unknown keys are likely misspelt: they cause a warning, but do not keep a program from running. A
 * section [varve], which VELOC ignores, has settings of Varve for which VELOC has no key.
 */
#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "veloc/veloc_private.h"

/* Keys of VELOC that Varve does not need: erasure coding, VELOC's transfer library and backend process, and
 * checksums, which are always on. */
static const char *const without_meaning[] = {
    "ec_interval", "chksum",         "meta",        "threaded",   "watchdog_interval",
    "axl_type",    "failure_domain", "axl_config",  "backends",   "log_prefix",
    "chunk_size",  "max_cache_size", "ec_activate", "aggregated",
};

struct reading {
    const char *path;
    struct vvi_veloc_cfg *cfg;
    bool mode_given, bad;
};

static bool known_without_meaning(const char *key)
{
    for (size_t i = 0; i < sizeof(without_meaning) / sizeof(without_meaning[0]); i++)
        if (strcmp(key, without_meaning[i]) == 0)
            return true;
    return false;
}

static bool read_long(const char *value, long *ret)
{
    char *end;
    errno = 0;
    long n = strtol(value, &end, 10);
    if (errno || end == value || *end)
        return false;
    *ret = n;
    return true;
}

static bool read_count(const char *value, long *ret)
{
    long n;
    if (!read_long(value, &n) || n < 0)
        return false;
    *ret = n;
    return true;
}

/* Reads a size in GiB, which may have a fraction. */
static bool read_size(const char *value, double *ret)
{
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || !isfinite(x) || x < 0 || x > 1e6)
        return false;
    *ret = x;
    return true;
}

static bool read_bool(const char *value, bool *ret)
{
    static const char *const words[] = {"false", "no", "off", "0", "true", "yes", "on", "1"};
    for (int i = 0; i < 8; i++)
        if (strcasecmp(value, words[i]) == 0) {
            *ret = i >= 4;
            return true;
        }
    return false;
}

static bool read_path(const char *value, char ret[VARVE_PATH_BYTES])
{
    size_t n = strlen(value);
    while (n > 1 && value[n - 1] == '/')
        n--;
    if (n == 0 || n >= VARVE_PATH_BYTES)
        return false;
    memcpy(ret, value, n);
    ret[n] = 0;
    return true;
}

static bool read_mode(struct reading *r, const char *value)
{
    r->mode_given = true;
    r->cfg->sync = strcmp(value, "sync") == 0;
    return r->cfg->sync || strcmp(value, "async") == 0;
}

static bool read_own(struct vvi_veloc_cfg *cfg, const char *key, const char *value)
{
    if (cfg->nown == VVI_VELOC_SETTINGS || strlen(key) >= sizeof(cfg->own[0].key) ||
        strlen(value) >= sizeof(cfg->own[0].value))
        return false;
    snprintf(cfg->own[cfg->nown].key, sizeof(cfg->own[0].key), "%s", key);
    snprintf(cfg->own[cfg->nown].value, sizeof(cfg->own[0].value), "%s", value);
    cfg->nown++;
    return true;
}

static const char *accepted(const char *section, const char *key)
{
    static const struct {
        const char *key, *values;
    } list[] = {
        {"scratch", "the path of a folder"},
        {"persistent", "the path of a folder"},
        {"mode", "sync or async"},
        {"max_versions", "a whole number from 0 on, 0 for all"},
        {"scratch_versions", "a whole number from 0 on, 0 for all"},
        {"persistent_interval", "a whole number"},
        {"gpu_cache_size", "a number of GiB"},
        {"host_cache_size", "a number of GiB"},
    };
    if (strcmp(section, "varve") == 0)
        return "fewer and shorter lines in section [varve]";
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        if (strcmp(key, list[i].key) == 0)
            return list[i].values;
    return "true or false";
}

static int each_key(void *user, const char *section, const char *key, const char *value)
{
    struct reading *r = user;
    struct vvi_veloc_cfg *cfg = r->cfg;
    bool flag, ok = true;
    if (strcmp(section, "varve") == 0)
        ok = read_own(cfg, key, value);
    else if (section[0])
        ok = true; /* VELOC ignores sections */
    else if (strcmp(key, "scratch") == 0)
        ok = read_path(value, cfg->scratch);
    else if (strcmp(key, "persistent") == 0)
        ok = read_path(value, cfg->persistent);
    else if (strcmp(key, "mode") == 0)
        ok = read_mode(r, value);
    else if (strcmp(key, "max_versions") == 0)
        ok = read_count(value, &cfg->max_versions);
    else if (strcmp(key, "scratch_versions") == 0)
        ok = read_count(value, &cfg->scratch_versions);
    else if (strcmp(key, "persistent_interval") == 0)
        ok = read_long(value, &cfg->persistent_interval);
    else if (strcmp(key, "gpu_cache_size") == 0)
        ok = read_size(value, &cfg->gpu_cache_gib);
    else if (strcmp(key, "host_cache_size") == 0)
        ok = read_size(value, &cfg->host_cache_gib);
    else if (strcmp(key, "score_eviction") == 0 && (ok = read_bool(value, &flag)))
        cfg->score_eviction = flag;
    else if (strcmp(key, "premature_eviction") == 0)
        ok = read_bool(value, &cfg->premature_eviction);
    else if (strcmp(key, "disable_persistence") == 0 && (ok = read_bool(value, &flag)))
        cfg->persistent_interval = flag ? -1 : cfg->persistent_interval;
    else if (ok && !known_without_meaning(key))
        vvi_veloc_say(NULL, "%s: %s: no such key; it is ignored", r->path, key);
    if (!ok) {
        vvi_veloc_say(NULL, "%s: %s = %s: it takes %s", r->path, key, value,
                      accepted(section, key));
        r->bad = true;
    }
    return 1;
}

int vvi_veloc_config_load(const char *path, struct vvi_veloc_cfg *ret_cfg)
{
    struct vvi_veloc_cfg cfg = {.gpu_cache_gib = -1, .host_cache_gib = -1, .score_eviction = -1};
    struct reading r = {.path = path, .cfg = &cfg};
    int line = ini_parse(path, each_key, &r);
    if (line < 0) {
        vvi_veloc_say(NULL, "%s: the configuration file cannot be read", path);
        return -ENOENT;
    }
    if (line > 0)
        vvi_veloc_say(NULL, "%s:%d: expected 'key = value' or '[section]'", path, line);
    else if (!cfg.scratch[0])
        vvi_veloc_say(NULL, "%s: scratch is missing; it is the folder of checkpoints on local disk",
                      path);
    else if (!r.mode_given && !r.bad)
        vvi_veloc_say(NULL, "%s: mode is missing; it is sync or async", path);
    if (line > 0 || r.bad || !cfg.scratch[0] || !r.mode_given)
        return -EINVAL;
    *ret_cfg = cfg;
    return 0;
}
