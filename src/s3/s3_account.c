/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials, region and endpoint, from the same environment variables and files that other programs use.
 *
 * The lines of these files are read here, not by inih: session tokens are longer than its lines. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/s3_private.h"

static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] != '\0' ? value : NULL;
}

static int complain(int rc, char *err, size_t err_bytes, const char *text)
{
    if (err_bytes > 0)
        snprintf(err, err_bytes, "%s", text);
    return rc;
}

/* ---- the files ---- */

static const char *profile_name(void)
{
    const char *name = env("AWS_PROFILE");
    return name ? name : "default";
}

/* NULL: out of memory, or no home directory. The caller frees it. */
static char *file_path(const char *variable, const char *name)
{
    char *path = NULL;
    if (env(variable))
        return strdup(env(variable));
    if (!env("HOME") || asprintf(&path, "%s/.aws/%s", env("HOME"), name) < 0)
        return NULL;
    return path;
}

static char *trim(char *s)
{
    char *end;
    while (isspace((unsigned char)*s))
        s++;
    for (end = s + strlen(s); end > s && isspace((unsigned char)end[-1]);)
        end--;
    *end = '\0';
    return s;
}

/* True for "[profile]" and "[profile name]". */
static bool is_section(char *line, const char *profile)
{
    line[strcspn(line, "]")] = '\0';
    char *name = trim(line + 1);
    if (strncmp(name, "profile ", 8) == 0)
        name = trim(name + 8);
    return strcmp(name, profile) == 0;
}

/* Value of a key in the profile; false: missing, or too long. */
static bool file_value(const char *path, const char *key, char *ret, size_t room)
{
    FILE *f = path ? fopen(path, "re") : NULL;
    char *line = NULL, *equals;
    size_t line_room = 0;
    bool within = false, found = false;
    if (!f)
        return false;
    while (!found && getline(&line, &line_room, f) > 0) {
        char *s = trim(line);
        if (s[0] == '[') {
            within = is_section(s, profile_name());
        } else if (within && s[0] != '#' && s[0] != ';' && (equals = strchr(s, '='))) {
            *equals = '\0';
            const char *value = trim(equals + 1);
            found = strcmp(trim(s), key) == 0 && strlen(value) < room && value[0] != '\0';
            if (found)
                strcpy(ret, value);
        }
    }
    if (line)
        explicit_bzero(line, line_room);
    free(line);
    fclose(f);
    return found;
}

static bool config_value(const char *key, char *ret, size_t room)
{
    char *path = file_path("AWS_CONFIG_FILE", "config");
    bool found = file_value(path, key, ret, room);
    free(path);
    return found;
}

/* ---- credentials ---- */

static bool keys_in(const char *path, struct vvi_s3_keys *ret)
{
    if (!file_value(path, "aws_access_key_id", ret->id, sizeof(ret->id)) ||
        !file_value(path, "aws_secret_access_key", ret->secret, sizeof(ret->secret)))
        return false;
    if (!file_value(path, "aws_session_token", ret->token, sizeof(ret->token)))
        ret->token[0] = '\0';
    return true;
}

static bool keys_in_files(struct vvi_s3_keys *ret)
{
    char *secrets = file_path("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    char *config = file_path("AWS_CONFIG_FILE", "config");
    bool found = keys_in(secrets, ret) || keys_in(config, ret);
    free(secrets);
    free(config);
    return found;
}

int vvi_s3_keys_read(struct vvi_s3_keys *ret, char *err, size_t err_bytes)
{
    const char *id = env("AWS_ACCESS_KEY_ID"), *secret = env("AWS_SECRET_ACCESS_KEY");
    const char *token = env("AWS_SESSION_TOKEN");
    if (!id || !secret)
        return keys_in_files(ret)
                   ? 0
                   : complain(
                         -EACCES, err, err_bytes,
                         "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                         "or write ~/.aws/credentials (AWS_PROFILE chooses its section)");
    if (strlen(id) >= sizeof(ret->id) || strlen(secret) >= sizeof(ret->secret) ||
        (token && strlen(token) >= sizeof(ret->token)))
        return complain(-EACCES, err, err_bytes,
                        "credentials for S3 are longer than those of any known store");
    snprintf(ret->id, sizeof(ret->id), "%s", id);
    snprintf(ret->secret, sizeof(ret->secret), "%s", secret);
    snprintf(ret->token, sizeof(ret->token), "%s", token ? token : "");
    return 0;
}

/* ---- the endpoint ---- */

static const char *first_of(const char *given, const char *one, const char *other)
{
    if (given && given[0] != '\0')
        return given;
    return env(one) ? env(one) : env(other);
}

int vvi_s3_place_find(const struct vv_s3_opts *opts, char *err, size_t err_bytes,
                      struct vvi_s3_place *ret)
{
    char text[512];
    const char *region = first_of(opts->region, "AWS_REGION", "AWS_DEFAULT_REGION");
    const char *endpoint = first_of(opts->endpoint, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    struct vvi_s3_place p = {.region = "us-east-1"};
    if (region && strlen(region) >= sizeof(p.region))
        return complain(-EINVAL, err, err_bytes, "the name of the S3 region is too long");
    if (region)
        strcpy(p.region, region);
    else
        (void)config_value("region", p.region, sizeof(p.region));
    if (!endpoint && config_value("endpoint_url", text, sizeof(text)))
        endpoint = text;
    p.path_style = opts->path == VV_S3_PATH_AUTO ? endpoint != NULL : opts->path == VV_S3_PATH_ON;
    if (!endpoint) {
        strcpy(p.scheme, "https");
        snprintf(p.host, sizeof(p.host), "s3.%s.amazonaws.com", p.region);
        *ret = p;
        return 0;
    }
    const char *host = strstr(endpoint, "://");
    size_t scheme = host ? (size_t)(host - endpoint) : 0;
    size_t n = host ? strcspn(host + 3, "/") : 0;
    if (n == 0 || n >= sizeof(p.host) || host[3 + n + (host[3 + n] == '/')] != '\0' ||
        memchr(host + 3, '@', n) ||
        !((scheme == 4 && strncmp(endpoint, "http", 4) == 0) ||
          (scheme == 5 && strncmp(endpoint, "https", 5) == 0)))
        return complain(-EINVAL, err, err_bytes,
                        "the S3 endpoint is not http://host[:port] or https://host[:port]");
    memcpy(p.scheme, endpoint, scheme);
    memcpy(p.host, host + 3, n);
    *ret = p;
    return 0;
}

int vv_s3_url_parse(const char *url, char **ret_bucket, char **ret_prefix)
{
    if (!vv_s3_is_url(url))
        return -EINVAL;
    const char *bucket = url + 5;
    size_t n = strcspn(bucket, "/");
    const char *prefix = bucket + n;
    size_t end = strlen(prefix);
    while (*prefix == '/') {
        prefix++;
        end--;
    }
    while (end > 0 && prefix[end - 1] == '/')
        end--;
    if (n < 3 || n > 63 || memchr(prefix, '\n', end))
        return -EINVAL;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)bucket[i]) && !strchr("-._", bucket[i]))
            return -EINVAL;
    char *b = strndup(bucket, n), *p = strndup(prefix, end);
    if (!b || !p) {
        free(b);
        free(p);
        return -ENOMEM;
    }
    *ret_bucket = b;
    *ret_prefix = p;
    return 0;
}
