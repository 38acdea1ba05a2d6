/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings made from a table of keys, for the library's configuration (config.h) and for programs with
 * tables of their own. A structure of settings is plain data; its fields are int, uint64_t or
 * char[VV_CONFIG_TEXT], by the types of the keys.
 *
 * Functions that read text take `err`, a buffer of `err_size` bytes for a message that says what is wrong
 * (either may be 0). When they fail, the settings are unchanged.
 */
#ifndef VV_BASE_SETTINGS_H
#define VV_BASE_SETTINGS_H

#include "base/config.h"

#define VV_SETTINGS_KEYS_MAX 128

struct vv_settings {
    const struct vv_config_key *keys;
    size_t count;        /* at most VV_SETTINGS_KEYS_MAX */
    size_t bytes;        /* size of the structure */
    const char *section; /* section of an INI file: "varve" */
    const char *prefix;  /* prefix of variables: "VARVE_" */
    /* Checks a value of the key. `value` was read from `text`: a uint64_t, an int, or the text itself.
     * Returns 0, or -EINVAL with a message. NULL: every value is valid. */
    int (*vet)(const struct vv_config_key *key, const char *text, const void *value, char *err,
               size_t err_size);
    /* Translates a synonym of a word of an ENUM: returns the word of the table, or `text`. NULL: there are no
     * synonyms. */
    const char *(*word)(const struct vv_config_key *key, const char *text);
};

/* Writes a message and returns -EINVAL. */
int vv_settings_fail(char *err, size_t err_size, const char *fmt, ...) VV_PRINTF(3, 4);

/* The key of this name, or NULL. */
const struct vv_config_key *vv_settings_find(const struct vv_settings *s, const char *name);

/* Sets the defaults. */
void vv_settings_init(const struct vv_settings *s, void *values);

VV_WARN_UNUSED int vv_settings_set(const struct vv_settings *s, void *values, const char *key,
                                   const char *value, char *err, size_t err_size);

/* Keys are in the section or in none. -EINVAL: unknown section or key, key set twice, malformed line
 * or value; the message begins with "path:line: ". Other errors are those of opening and reading. */
VV_WARN_UNUSED int vv_settings_load_ini(const struct vv_settings *s, void *values, const char *path,
                                        char *err, size_t err_size);

/* Reads a variable for every key; an empty one counts as unset. -EINVAL: malformed value. */
VV_WARN_UNUSED int vv_settings_load_env(const struct vv_settings *s, void *values, char *err,
                                        size_t err_size);

/* The text of a value; vv_settings_set reads it back. -EINVAL: unknown key; -ENOBUFS: it does not fit. */
VV_WARN_UNUSED int vv_settings_get(const struct vv_settings *s, const void *values, const char *key,
                                   char *buf, size_t size);

/* "VARVE_HOST_CACHE"; returns buf. */
char *vv_settings_env_name(const struct vv_settings *s, const struct vv_config_key *key, char *buf,
                           size_t size);

/* The key that "--host-cache" or "--host-cache=4G" names, or NULL. */
const struct vv_config_key *vv_settings_find_flag(const struct vv_settings *s, const char *arg);

#endif
