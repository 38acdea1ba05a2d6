/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings from tables of keys. All values pass through set_value(), so that file, environment and flags
 * accept the same words and fail with the same messages. Loaders work on a copy and store it at the end, so
 * a failure changes nothing.
 *
 * The INI parser treats an indented line as a continuation of the previous value, and reports it as a second
 * value of the key. That is never intended, so a key that is set twice in one file is an error.
 */
#include "base/settings.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/bytes.h"

int vv_settings_fail(char *err, size_t err_size, const char *fmt, ...)
{
    va_list ap;

    if (err && err_size > 0) {
        va_start(ap, fmt);
        vsnprintf(err, err_size, fmt, ap);
        va_end(ap);
    }
    return -EINVAL;
}

const struct vv_config_key *vv_settings_find(const struct vv_settings *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->keys[i].name, name) == 0)
            return &s->keys[i];
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

static int vet(const struct vv_settings *s, const struct vv_config_key *key, const char *text,
               const void *value, char *err, size_t err_size)
{
    return s->vet ? s->vet(key, text, value, err, err_size) : 0;
}

static int set_bytes(const struct vv_settings *s, const struct vv_config_key *key, uint64_t *field,
                     const char *value, char *err, size_t err_size)
{
    uint64_t bytes;
    int rc = vv_bytes_parse(value, &bytes);

    if (rc == -ERANGE)
        return vv_settings_fail(err, err_size, "%s: '%s' is too large", key->name, value);
    if (rc != 0)
        return vv_settings_fail(err, err_size, "%s: '%s' is not a size (such as 512M or 4G)",
                                key->name, value);
    rc = vet(s, key, value, &bytes, err, err_size);
    if (rc < 0)
        return rc;
    *field = bytes;
    return 0;
}

static int set_text(const struct vv_settings *s, const struct vv_config_key *key, char *field,
                    const char *value, char *err, size_t err_size)
{
    int rc;

    if (strlen(value) >= VV_CONFIG_TEXT)
        return vv_settings_fail(err, err_size, "%s: longer than %d characters", key->name,
                                VV_CONFIG_TEXT - 1);
    rc = vet(s, key, value, value, err, err_size);
    if (rc < 0)
        return rc;
    /* `value` may be the field itself. */
    memmove(field, value, strlen(value) + 1);
    return 0;
}

static int set_value(const struct vv_settings *s, void *values, const struct vv_config_key *key,
                     const char *value, char *err, size_t err_size)
{
    void *field = (char *)values + key->offset;
    int v, rc;

    switch (key->type) {
    case VV_CONFIG_TYPE_BYTES:
        return set_bytes(s, key, field, value, err, err_size);
    case VV_CONFIG_TYPE_TEXT:
        return set_text(s, key, field, value, err, err_size);
    case VV_CONFIG_TYPE_INT:
        if (parse_int(value, &v) != 0)
            return vv_settings_fail(err, err_size, "%s: '%s' is not a number", key->name, value);
        break;
    case VV_CONFIG_TYPE_BOOL:
        v = parse_bool(value);
        if (v < 0)
            return vv_settings_fail(err, err_size, "%s: '%s' is neither on nor off", key->name,
                                    value);
        break;
    case VV_CONFIG_TYPE_ENUM:
        v = word_index(key->values, s->word ? s->word(key, value) : value);
        if (v < 0)
            return vv_settings_fail(err, err_size, "%s: '%s' is not one of %s", key->name, value,
                                    key->values);
        break;
    default:
        return -EINVAL;
    }
    rc = vet(s, key, value, &v, err, err_size);
    if (rc < 0)
        return rc;
    *(int *)field = v;
    return 0;
}

void vv_settings_init(const struct vv_settings *s, void *values)
{
    vv_assert(s->count <= VV_SETTINGS_KEYS_MAX);
    memset(values, 0, s->bytes);
    for (size_t i = 0; i < s->count; i++) {
        int rc = set_value(s, values, &s->keys[i], s->keys[i].value, NULL, 0);

        vv_assert(rc == 0);
        (void)rc;
    }
}

/* Stores the letters of a key: the same for "hostCache", "host-cache" and "host_cache". */
static size_t letters(const char *key, char *buf, size_t size)
{
    size_t n = 0;

    for (; *key && n < size; key++)
        if (*key != '_' && *key != '-')
            buf[n++] = (char)(*key >= 'A' && *key <= 'Z' ? *key + ('a' - 'A') : *key);
    return n;
}

/* Edit distance: the number of letters to add, remove or change to turn one word into the other; exchanging
 * two letters counts as two. */
static size_t letters_apart(const char *left, const char *right)
{
    char a[VV_CONFIG_NAME], b[VV_CONFIG_NAME];
    size_t m = letters(left, a, sizeof(a)), n = letters(right, b, sizeof(b));
    size_t row[VV_CONFIG_NAME + 1];

    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t corner = row[0];

        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t changed = corner + (a[i - 1] != b[j - 1]);

            corner = row[j];
            row[j] = VV_MIN(changed, VV_MIN(row[j - 1], row[j]) + 1);
        }
    }
    return row[n];
}

static int unknown_key(const struct vv_settings *s, const char *key, char *err, size_t err_size)
{
    const char *best = NULL;
    size_t least = VV_MIN((size_t)3, strlen(key) / 2);

    for (size_t i = 0; i < s->count; i++) {
        size_t apart = letters_apart(key, s->keys[i].name);

        if (apart < least) {
            least = apart;
            best = s->keys[i].name;
        }
    }
    if (best)
        return vv_settings_fail(err, err_size, "unknown key '%s'; did you mean '%s'?", key, best);
    return vv_settings_fail(err, err_size, "unknown key '%s'", key);
}

int vv_settings_set(const struct vv_settings *s, void *values, const char *key, const char *value,
                    char *err, size_t err_size)
{
    const struct vv_config_key *k = key ? vv_settings_find(s, key) : NULL;

    if (!k)
        return unknown_key(s, key ? key : "", err, err_size);
    if (!value)
        return vv_settings_fail(err, err_size, "%s: no value", key);
    return set_value(s, values, k, value, err, err_size);
}

struct ini_state {
    const struct vv_settings *s;
    void *values;
    bool seen[VV_SETTINGS_KEYS_MAX];
    bool failed;
    char why[512]; /* text of the first failure */
};

/* The parser calls it for each "key = value"; 0: the line is wrong. */
static int ini_pair(void *user, const char *section, const char *name, const char *value)
{
    struct ini_state *st = user;
    const struct vv_config_key *key = vv_settings_find(st->s, name);

    if (st->failed)
        return 0;
    st->failed = true;
    if (*section != '\0' && strcmp(section, st->s->section) != 0) {
        vv_settings_fail(st->why, sizeof(st->why), "unknown section [%s]", section);
        return 0;
    }
    if (!key) {
        unknown_key(st->s, name, st->why, sizeof(st->why));
        return 0;
    }
    if (st->seen[key - st->s->keys]) {
        vv_settings_fail(st->why, sizeof(st->why), "%s: set twice, or the line is indented", name);
        return 0;
    }
    st->seen[key - st->s->keys] = true;
    if (set_value(st->s, st->values, key, value, st->why, sizeof(st->why)) != 0)
        return 0;
    st->failed = false;
    return 1;
}

static int read_ini(FILE *file, const char *path, struct ini_state *st, char *err, size_t err_size)
{
    int line, rc;

    errno = 0;
    line = ini_parse_file(file, ini_pair, st);
    if (ferror(file) || line < 0) {
        rc = errno ? -errno : line == -2 ? -ENOMEM : -EIO;
        vv_settings_fail(err, err_size, "%s: %s", path, strerror(-rc));
        return rc;
    }
    /* The parser returns the first bad line. If it found the error itself, there is no text of ours. */
    if (line > 0 && st->failed)
        return vv_settings_fail(err, err_size, "%s:%d: %s", path, line, st->why);
    if (line > 0)
        return vv_settings_fail(err, err_size,
                                "%s:%d: expected 'key = value' or '[%s]' on a line of its own",
                                path, line, st->s->section);
    return 0;
}

int vv_settings_load_ini(const struct vv_settings *s, void *values, const char *path, char *err,
                         size_t err_size)
{
    struct ini_state st = {.s = s};
    FILE *file;
    int rc;

    if (!path)
        return vv_settings_fail(err, err_size, "no path");
    file = fopen(path, "re");
    if (!file) {
        rc = -errno;
        vv_settings_fail(err, err_size, "%s: %s", path, strerror(-rc));
        return rc;
    }
    st.values = malloc(s->bytes);
    rc = st.values ? 0 : -ENOMEM;
    if (rc == 0) {
        memcpy(st.values, values, s->bytes);
        rc = read_ini(file, path, &st, err, err_size);
    }
    if (rc == 0)
        memcpy(values, st.values, s->bytes);
    free(st.values);
    fclose(file);
    return rc;
}

int vv_settings_load_env(const struct vv_settings *s, void *values, char *err, size_t err_size)
{
    void *copy = malloc(s->bytes);
    int rc = copy ? 0 : -ENOMEM;

    if (rc == 0)
        memcpy(copy, values, s->bytes);
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        char name[VV_CONFIG_NAME], why[512];
        const char *value = getenv(vv_settings_env_name(s, &s->keys[i], name, sizeof(name)));

        if (!value || *value == '\0')
            continue;
        rc = set_value(s, copy, &s->keys[i], value, why, sizeof(why));
        if (rc != 0)
            rc = vv_settings_fail(err, err_size, "environment: %s: %s", name, why);
    }
    if (rc == 0)
        memcpy(values, copy, s->bytes);
    free(copy);
    return rc;
}

int vv_settings_get(const struct vv_settings *s, const void *values, const char *key, char *buf,
                    size_t size)
{
    const struct vv_config_key *k = key ? vv_settings_find(s, key) : NULL;
    const void *field;
    char text[VV_BYTES_TEXT];
    const char *list;
    int n, v;

    if (!k)
        return -EINVAL;
    field = (const char *)values + k->offset;
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

char *vv_settings_env_name(const struct vv_settings *s, const struct vv_config_key *key, char *buf,
                           size_t size)
{
    snprintf(buf, size, "%s%s", s->prefix, key->name);
    for (char *p = buf; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    return buf;
}

const struct vv_config_key *vv_settings_find_flag(const struct vv_settings *s, const char *arg)
{
    for (size_t i = 0; i < s->count; i++) {
        char flag[VV_CONFIG_NAME];
        size_t n = strlen(vv_config_flag_name(&s->keys[i], flag, sizeof(flag)));

        if (strncmp(arg, flag, n) == 0 && (arg[n] == '\0' || arg[n] == '='))
            return &s->keys[i];
    }
    return NULL;
}
