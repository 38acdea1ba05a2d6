/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration. Everything goes through set_value(): file, environment and flags accept the same
 * words and fail with the same messages. Loaders work on a copy and hand it over at the end, so
 * that a failure changes nothing.
 *
 * The INI parser takes an indented line for the continuation of the value before it. As that would
 * give a key a second value, and nobody writes that on purpose, a key that is set twice in one file
 * is an error.
 */
#include "core/config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/config_table.h"

const struct vv_config_key vv_config_keys[] = {
#define X(key, kind, field, value, values, text) \
    {#key, VV_CONFIG_TYPE_##kind, offsetof(struct vv_config, field), value, values, text},
    VV_CONFIG_TABLE(X)
#undef X
};

const size_t vv_config_key_count = VV_ARRAY_SIZE(vv_config_keys);

static VV_PRINTF(3, 4) int fail(char *err, size_t err_size, const char *fmt, ...)
{
    va_list ap;

    if (err && err_size > 0) {
        va_start(ap, fmt);
        vsnprintf(err, err_size, fmt, ap);
        va_end(ap);
    }
    return -EINVAL;
}

static const struct vv_config_key *find_key(const char *name)
{
    for (size_t i = 0; i < vv_config_key_count; i++)
        if (strcmp(vv_config_keys[i].name, name) == 0)
            return &vv_config_keys[i];
    return NULL;
}

/* Position of `word` in a list separated by '|', or -1. */
static int word_index(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (int i = 0; n > 0; i++) {
        size_t len = strcspn(list, "|");

        if (len == n && strncmp(list, word, n) == 0)
            return i;
        if (list[len] == '\0')
            break;
        list += len + 1;
    }
    return -1;
}

static int parse_int(const char *s, int *ret_value)
{
    char *end;
    long v;

    errno = 0;
    v = strtol(s, &end, 10);
    if (end == s || *end != '\0' || errno != 0 || v < INT_MIN || v > INT_MAX)
        return -EINVAL;
    *ret_value = (int)v;
    return 0;
}

static int parse_bool(const char *s)
{
    static const char *const on[] = {"on", "yes", "true", "1"};
    static const char *const off[] = {"off", "no", "false", "0"};

    for (size_t i = 0; i < VV_ARRAY_SIZE(on); i++) {
        if (strcasecmp(s, on[i]) == 0)
            return 1;
        if (strcasecmp(s, off[i]) == 0)
            return 0;
    }
    return -EINVAL;
}

static bool is_cache(const struct vv_config_key *key)
{
    return key->offset == offsetof(struct vv_config, device_cache) ||
           key->offset == offsetof(struct vv_config, host_cache) ||
           key->offset == offsetof(struct vv_config, local_cache);
}

static int set_bytes(const struct vv_config_key *key, uint64_t *field, const char *value, char *err,
                     size_t err_size)
{
    uint64_t bytes;
    int rc = vv_bytes_parse(value, &bytes);

    if (rc == -ERANGE)
        return fail(err, err_size, "%s: '%s' is too large", key->name, value);
    if (rc != 0)
        return fail(err, err_size, "%s: '%s' is not a size (such as 512M or 4G)", key->name, value);
    if (key->offset == offsetof(struct vv_config, page) && bytes != 0 &&
        (!vv_is_pow2(bytes) || bytes < VV_PAGE_BYTES_MIN || bytes > VV_CONFIG_PAGE_MAX))
        return fail(err, err_size, "%s: '%s' is not a power of two from 4K to 64M", key->name,
                    value);
    if (is_cache(key) && bytes != 0 && bytes < VV_PAGE_BYTES_MIN)
        return fail(err, err_size, "%s: %" PRIu64 " bytes hold nothing; did you mean %" PRIu64 "M?",
                    key->name, bytes, bytes);
    *field = bytes;
    return 0;
}

static int set_text(const struct vv_config_key *key, char *field, const char *value, char *err,
                    size_t err_size)
{
    if (strlen(value) >= VV_CONFIG_TEXT)
        return fail(err, err_size, "%s: longer than %d characters", key->name, VV_CONFIG_TEXT - 1);
    if (key->offset == offsetof(struct vv_config, rate)) {
        struct vv_config_rates rates;
        char why[256];

        if (vv_config_rates_parse(value, why, sizeof(why), &rates) != 0)
            return fail(err, err_size, "%s: %s", key->name, why);
    }
    if (key->offset == offsetof(struct vv_config, stats) && strcmp(value, "auto") != 0 &&
        strcmp(value, "off") != 0 && !strchr(value, '/'))
        return fail(err, err_size, "%s: '%s' is neither auto, off nor a folder (with a slash)",
                    key->name, value);
    /* `value` may be the field itself. */
    memmove(field, value, strlen(value) + 1);
    return 0;
}

static int set_value(struct vv_config *cfg, const struct vv_config_key *key, const char *value,
                     char *err, size_t err_size)
{
    void *field = (char *)cfg + key->offset;
    int v;

    switch (key->type) {
    case VV_CONFIG_TYPE_BYTES:
        return set_bytes(key, field, value, err, err_size);
    case VV_CONFIG_TYPE_TEXT:
        return set_text(key, field, value, err, err_size);
    case VV_CONFIG_TYPE_INT:
        if (parse_int(value, &v) != 0)
            return fail(err, err_size, "%s: '%s' is not a number", key->name, value);
        if (key->offset == offsetof(struct vv_config, rank) && v < 0)
            return fail(err, err_size, "%s: '%s' is negative", key->name, value);
        break;
    case VV_CONFIG_TYPE_BOOL:
        v = parse_bool(value);
        if (v < 0)
            return fail(err, err_size, "%s: '%s' is neither on nor off", key->name, value);
        break;
    case VV_CONFIG_TYPE_ENUM:
        v = word_index(key->values, value);
        if (v < 0)
            return fail(err, err_size, "%s: '%s' is not one of %s", key->name, value, key->values);
        break;
    default:
        return -EINVAL;
    }
    *(int *)field = v;
    return 0;
}

void vv_config_init(struct vv_config *cfg)
{
    memset(cfg, 0, sizeof(*cfg));
    for (size_t i = 0; i < vv_config_key_count; i++) {
        int rc = set_value(cfg, &vv_config_keys[i], vv_config_keys[i].value, NULL, 0);

        vv_assert(rc == 0);
        (void)rc;
    }
}

int vv_config_set(struct vv_config *cfg, const char *key, const char *value, char *err,
                  size_t err_size)
{
    const struct vv_config_key *k = key ? find_key(key) : NULL;

    if (!k)
        return fail(err, err_size, "unknown key '%s'", key ? key : "");
    if (!value)
        return fail(err, err_size, "%s: no value", key);
    return set_value(cfg, k, value, err, err_size);
}

struct ini_state {
    struct vv_config cfg;
    bool seen[VV_ARRAY_SIZE(vv_config_keys)];
    bool failed;
    char why[512]; /* of the first failure */
};

/* Called by the parser for each "key = value"; 0 tells it that the line is wrong. */
static int ini_pair(void *user, const char *section, const char *name, const char *value)
{
    struct ini_state *s = user;
    const struct vv_config_key *key = find_key(name);

    if (s->failed)
        return 0;
    s->failed = true;
    if (*section != '\0' && strcmp(section, "varve") != 0) {
        fail(s->why, sizeof(s->why), "unknown section [%s]", section);
        return 0;
    }
    if (!key) {
        fail(s->why, sizeof(s->why), "unknown key '%s'", name);
        return 0;
    }
    if (s->seen[key - vv_config_keys]) {
        fail(s->why, sizeof(s->why), "%s: set twice, or the line is indented", name);
        return 0;
    }
    s->seen[key - vv_config_keys] = true;
    if (set_value(&s->cfg, key, value, s->why, sizeof(s->why)) != 0)
        return 0;
    s->failed = false;
    return 1;
}

int vv_config_load_ini(struct vv_config *cfg, const char *path, char *err, size_t err_size)
{
    struct ini_state s = {.cfg = *cfg};
    FILE *file;
    int line, rc;

    if (!path)
        return fail(err, err_size, "no path");
    file = fopen(path, "re");
    if (!file) {
        rc = -errno;
        fail(err, err_size, "%s: %s", path, strerror(-rc));
        return rc;
    }
    errno = 0;
    line = ini_parse_file(file, ini_pair, &s);
    if (ferror(file) || line < 0) {
        rc = errno ? -errno : line == -2 ? -ENOMEM : -EIO;
        fail(err, err_size, "%s: %s", path, strerror(-rc));
    } else if (line > 0) {
        /* The parser reports the first bad line; its own complaints come without a text of ours. */
        rc = fail(err, err_size, "%s:%d: %s", path, line,
                  s.failed ? s.why : "expected 'key = value' or '[varve]' on a line of its own");
    } else {
        *cfg = s.cfg;
        rc = 0;
    }
    fclose(file);
    return rc;
}

int vv_config_load_env(struct vv_config *cfg, char *err, size_t err_size)
{
    struct vv_config copy = *cfg;

    for (size_t i = 0; i < vv_config_key_count; i++) {
        char name[VV_CONFIG_NAME], why[512];
        const char *value = getenv(vv_config_env_name(&vv_config_keys[i], name, sizeof(name)));

        if (!value || *value == '\0')
            continue;
        if (set_value(&copy, &vv_config_keys[i], value, why, sizeof(why)) != 0)
            return fail(err, err_size, "environment: %s: %s", name, why);
    }
    *cfg = copy;
    return 0;
}

int vv_config_check(const struct vv_config *cfg, char *err, size_t err_size)
{
    if (cfg->level == VV_CONFIG_LEVEL_LOCAL && cfg->local[0] == '\0')
        return fail(err, err_size, "this level needs a folder on local disk: set local");
    if (cfg->level >= VV_CONFIG_LEVEL_REMOTE && cfg->remote[0] == '\0')
        return fail(err, err_size, "this level needs a folder on shared storage: set remote");
    for (size_t i = 0; i < vv_config_key_count; i++) {
        const struct vv_config_key *key = &vv_config_keys[i];
        uint64_t bytes = is_cache(key) ? *(const uint64_t *)((const char *)cfg + key->offset) : 0;

        if (bytes > 0 && bytes < VV_PAGE_BYTES_MIN)
            return fail(err, err_size, "%s: %" PRIu64 " bytes hold nothing", key->name, bytes);
    }
    if (cfg->local_cache > 0 && cfg->local_cache < (cfg->page ? cfg->page : VV_PAGE_BYTES_DEFAULT))
        return fail(err, err_size, "local_cache is smaller than one page");
    return 0;
}

int vv_config_get(const struct vv_config *cfg, const char *key, char *buf, size_t size)
{
    const struct vv_config_key *k = key ? find_key(key) : NULL;
    const void *field;
    char text[VV_BYTES_TEXT];
    const char *list;
    int n, v;

    if (!k)
        return -EINVAL;
    field = (const char *)cfg + k->offset;
    switch (k->type) {
    case VV_CONFIG_TYPE_BYTES:
        n = snprintf(buf, size, "%s",
                     vv_bytes_format(*(const uint64_t *)field, text, sizeof(text)));
        break;
    case VV_CONFIG_TYPE_TEXT:
        n = snprintf(buf, size, "%s", (const char *)field);
        break;
    case VV_CONFIG_TYPE_INT:
        n = snprintf(buf, size, "%d", *(const int *)field);
        break;
    case VV_CONFIG_TYPE_BOOL:
        n = snprintf(buf, size, "%s", *(const int *)field ? "on" : "off");
        break;
    default:
        list = k->values;
        for (v = *(const int *)field; v > 0 && *list; v--)
            list += strcspn(list, "|") + 1;
        n = snprintf(buf, size, "%.*s", (int)strcspn(list, "|"), list);
    }
    return n >= 0 && (size_t)n < size ? 0 : -ENOBUFS;
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
            return fail(err, err_size,
                        "'%.*s' is not a hop (d2d, h2h, d2h, h2d, h2f, f2h, f2r, r2f)", (int)name,
                        text);
        if (*hop != 0)
            return fail(err, err_size, "hop %.*s is given twice", (int)name, text);
        if (name == item || item - name - 1 >= sizeof(value))
            return fail(err, err_size, "'%.*s' is not HOP=RATE", (int)item, text);
        memcpy(value, text + name + 1, item - name - 1);
        value[item - name - 1] = '\0';
        if (vv_rate_parse(value, hop) != 0 || *hop == 0)
            return fail(err, err_size, "'%s' is not a rate (such as 400M or 4G bytes per second)",
                        value);
        if (*hop < VV_CONFIG_RATE_MIN)
            return fail(err, err_size,
                        "'%.*s' is %" PRIu64 " bytes per second; did you mean %" PRIu64 "M?",
                        (int)item, text, *hop, *hop);
        text += item;
        if (*text == ',' && *++text == '\0')
            return fail(err, err_size, "nothing after the last comma");
    }
    *ret_rates = rates;
    return 0;
}

char *vv_config_env_name(const struct vv_config_key *key, char *buf, size_t size)
{
    snprintf(buf, size, "VARVE_%s", key->name);
    for (char *p = buf; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    return buf;
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
    for (size_t i = 0; i < vv_config_key_count; i++) {
        char flag[VV_CONFIG_NAME];
        size_t n = strlen(vv_config_flag_name(&vv_config_keys[i], flag, sizeof(flag)));

        if (strncmp(arg, flag, n) == 0 && (arg[n] == '\0' || arg[n] == '='))
            return &vv_config_keys[i];
    }
    return NULL;
}
