/* SPDX-License-Identifier: Apache-2.0 */
/* The library's configuration: its table, and checks of single values and of their combination.
 * settings.c reads and writes values. */
#include "base/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/config_table.h"
#include "base/settings.h"

const struct vv_config_key vv_config_keys[] = {
#define X(key, kind, field, value, values, text) \
    {#key, VV_CONFIG_TYPE_##kind, offsetof(struct vv_config, field), value, values, text},
    VV_CONFIG_TABLE(X)
#undef X
};

const size_t vv_config_key_count = VV_ARRAY_SIZE(vv_config_keys);

static bool is_cache(const struct vv_config_key *key)
{
    return key->offset == offsetof(struct vv_config, device_cache) ||
           key->offset == offsetof(struct vv_config, host_cache) ||
           key->offset == offsetof(struct vv_config, local_cache);
}

static int vet_bytes(const struct vv_config_key *key, const char *text, uint64_t bytes, char *err,
                     size_t err_size)
{
    if (key->offset == offsetof(struct vv_config, page) && bytes != 0 &&
        (!vv_is_pow2(bytes) || bytes < VV_PAGE_BYTES_MIN || bytes > VV_CONFIG_PAGE_MAX))
        return vv_settings_fail(err, err_size, "%s: '%s' is not a power of two from 4K to 64M",
                                key->name, text);
    if (is_cache(key) && bytes != 0 && bytes < VV_PAGE_BYTES_MIN)
        return vv_settings_fail(err, err_size,
                                "%s: %" PRIu64 " bytes hold nothing; did you mean %" PRIu64 "M?",
                                key->name, bytes, bytes);
    return 0;
}

static int vet_text(const struct vv_config_key *key, const char *text, char *err, size_t err_size)
{
    if (key->offset == offsetof(struct vv_config, rate)) {
        struct vv_config_rates rates;
        char why[256];

        if (vv_config_rates_parse(text, why, sizeof(why), &rates) != 0)
            return vv_settings_fail(err, err_size, "%s: %s", key->name, why);
    }
    if (key->offset == offsetof(struct vv_config, stats) && strcmp(text, "auto") != 0 &&
        strcmp(text, "off") != 0 && !strchr(text, '/'))
        return vv_settings_fail(err, err_size,
                                "%s: '%s' is neither auto, off nor a folder (with a slash)",
                                key->name, text);
    return 0;
}

static int vet(const struct vv_config_key *key, const char *text, const void *value, char *err,
               size_t err_size)
{
    if (key->type == VV_CONFIG_TYPE_BYTES)
        return vet_bytes(key, text, *(const uint64_t *)value, err, err_size);
    if (key->type == VV_CONFIG_TYPE_TEXT)
        return vet_text(key, text, err, err_size);
    if (key->offset == offsetof(struct vv_config, rank) && *(const int *)value < 0)
        return vv_settings_fail(err, err_size, "%s: '%s' is negative", key->name, text);
    return 0;
}

const char *vv_config_device_word(const char *word)
{
    return strcmp(word, "emulated") == 0 ? "host" : word;
}

static const char *word_of(const struct vv_config_key *key, const char *text)
{
    return key->offset == offsetof(struct vv_config, device) ? vv_config_device_word(text) : text;
}

static const struct vv_settings settings = {
    .keys = vv_config_keys,
    .count = VV_ARRAY_SIZE(vv_config_keys),
    .bytes = sizeof(struct vv_config),
    .section = "varve",
    .prefix = "VARVE_",
    .vet = vet,
    .word = word_of,
};

void vv_config_init(struct vv_config *cfg)
{
    vv_settings_init(&settings, cfg);
}

int vv_config_set(struct vv_config *cfg, const char *key, const char *value, char *err,
                  size_t err_size)
{
    return vv_settings_set(&settings, cfg, key, value, err, err_size);
}

int vv_config_load_ini(struct vv_config *cfg, const char *path, char *err, size_t err_size)
{
    return vv_settings_load_ini(&settings, cfg, path, err, err_size);
}

int vv_config_load_env(struct vv_config *cfg, char *err, size_t err_size)
{
    return vv_settings_load_env(&settings, cfg, err, err_size);
}

int vv_config_load(struct vv_config *cfg, char *err, size_t err_size)
{
    const char *file = getenv(VV_CONFIG_FILE_ENV);
    struct vv_config got;
    char why[512];
    int rc = 0;

    vv_config_init(&got);
    if (file && *file != '\0')
        rc = vv_config_load_ini(&got, file, why, sizeof(why));
    if (rc != 0) {
        vv_settings_fail(err, err_size, VV_CONFIG_FILE_ENV ": %s", why);
        return rc;
    }
    rc = vv_config_load_env(&got, err, err_size);
    if (rc == 0)
        *cfg = got;
    return rc;
}

int vv_config_check(const struct vv_config *cfg, char *err, size_t err_size)
{
    if (cfg->level == VV_CONFIG_LEVEL_LOCAL && cfg->local[0] == '\0')
        return vv_settings_fail(err, err_size,
                                "this level needs a folder on local disk: set local");
    if (cfg->level >= VV_CONFIG_LEVEL_REMOTE && cfg->remote[0] == '\0')
        return vv_settings_fail(err, err_size,
                                "this level needs a folder on shared storage: set remote");
    for (size_t i = 0; i < vv_config_key_count; i++) {
        const struct vv_config_key *key = &vv_config_keys[i];
        uint64_t bytes = is_cache(key) ? *(const uint64_t *)((const char *)cfg + key->offset) : 0;

        if (bytes > 0 && bytes < VV_PAGE_BYTES_MIN)
            return vv_settings_fail(err, err_size, "%s: %" PRIu64 " bytes hold nothing", key->name,
                                    bytes);
    }
    if (cfg->local_cache > 0 && cfg->local_cache < (cfg->page ? cfg->page : VV_PAGE_BYTES_DEFAULT))
        return vv_settings_fail(err, err_size, "local_cache is smaller than one page");
    return 0;
}

int vv_config_get(const struct vv_config *cfg, const char *key, char *buf, size_t size)
{
    return vv_settings_get(&settings, cfg, key, buf, size);
}

static uint64_t *find_hop(struct vv_config_rates *rates, const char *name, size_t len)
{
#define X(hop, text)                                          \
    if (strlen(#hop) == len && strncmp(#hop, name, len) == 0) \
        return &rates->hop;
    VV_CONFIG_HOPS(X)
#undef X
    return NULL;
}

int vv_config_rates_parse(const char *text, char *err, size_t err_size,
                          struct vv_config_rates *ret_rates)
{
    struct vv_config_rates rates = {0};
    char value[64];

    while (*text != '\0') {
        size_t item = strcspn(text, ","), name = strcspn(text, "=,");
        uint64_t *hop = find_hop(&rates, text, name);

        if (!hop)
            return vv_settings_fail(err, err_size,
                                    "'%.*s' is not a hop (d2d, h2h, d2h, h2d, h2f, f2h, f2r, r2f)",
                                    (int)name, text);
        if (*hop != 0)
            return vv_settings_fail(err, err_size, "hop %.*s is given twice", (int)name, text);
        if (name == item || item - name - 1 >= sizeof(value))
            return vv_settings_fail(err, err_size, "'%.*s' is not HOP=RATE", (int)item, text);
        memcpy(value, text + name + 1, item - name - 1);
        value[item - name - 1] = '\0';
        if (vv_rate_parse(value, hop) != 0 || *hop == 0)
            return vv_settings_fail(
                err, err_size, "'%s' is not a rate (such as 400M or 4G bytes per second)", value);
        if (*hop < VV_CONFIG_RATE_MIN)
            return vv_settings_fail(
                err, err_size, "'%.*s' is %" PRIu64 " bytes per second; did you mean %" PRIu64 "M?",
                (int)item, text, *hop, *hop);
        text += item;
        if (*text == ',' && *++text == '\0')
            return vv_settings_fail(err, err_size, "nothing after the last comma");
    }
    *ret_rates = rates;
    return 0;
}

char *vv_config_env_name(const struct vv_config_key *key, char *buf, size_t size)
{
    return vv_settings_env_name(&settings, key, buf, size);
}

char *vv_config_flag_name(const struct vv_config_key *key, char *buf, size_t size)
{
    snprintf(buf, size, "--%s", key->name);
    for (char *p = buf; *p; p++)
        if (*p == '_')
            *p = '-';
    return buf;
}

const struct vv_config_key *vv_config_find_flag(const char *arg)
{
    return vv_settings_find_flag(&settings, arg);
}
