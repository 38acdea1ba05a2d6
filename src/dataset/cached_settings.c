/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's settings: allowed values, and defaults that depend on other settings. */
#include "dataset/cached_settings.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "dataset/cached_table.h"
#include "s3/s3.h"

#define CAPACITY_MIN   (UINT64_C(1) << 20)
#define PEERS_LINE_MAX 512

static const struct vv_config_key keys[] = {
#define X(key, kind, field, value, values, text) \
    {#key, VV_CONFIG_TYPE_##kind, offsetof(struct vv_cached, field), value, values, text},
    VV_CACHED_TABLE(X)
#undef X
};

/* Allowed values: from, to. */
static const struct {
    const char *key;
    int from, to;
} ranges[] = {
    {"high", 1, 100},
    {"low", 1, 100},
    {"revalidate", 0, 1 << 30},
    {"scrub", 0, 1 << 30},
    {"replicas", 1, (int)VV_PLACE_REPLICAS_MAX},
    {"vnodes", 1, (int)VV_PLACE_VNODES_MAX},
    {"limit", 100, VV_PLACE_LIMIT_MAX},
    {"patience", 1, 1 << 30},
    {"period", 20, 60000},
    {"workers", 1, 64},
    {"ahead", 1, 16},
};

static int vet(const struct vv_config_key *key, const char *text, const void *value, char *err,
               size_t err_size)
{
    for (size_t i = 0; i < VV_ARRAY_SIZE(ranges) && key->type == VV_CONFIG_TYPE_INT; i++) {
        int v = *(const int *)value;

        if (strcmp(key->name, ranges[i].key) == 0 && (v < ranges[i].from || v > ranges[i].to))
            return vv_settings_fail(err, err_size, "%s: %s is not from %d to %d", key->name, text,
                                    ranges[i].from, ranges[i].to);
    }
    return 0;
}

const struct vv_settings vv_cached_settings = {
    .keys = keys,
    .count = VV_ARRAY_SIZE(keys),
    .bytes = sizeof(struct vv_cached),
    .section = "cached",
    .prefix = "VARVE_CACHED_",
    .vet = vet,
};

/* ---- sockets ---- */

/* A folder in /tmp that belongs to this user alone. Any user could have made it, so it is checked. */
static int own_folder(const char *path, char *err, size_t err_bytes)
{
    struct stat st;

    if ((mkdir(path, 0700) < 0 && errno != EEXIST) || lstat(path, &st) < 0) {
        int rc = -errno;

        vv_settings_fail(err, err_bytes, "socket: %s: %s", path, strerror(-rc));
        return rc;
    }
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return vv_settings_fail(err, err_bytes, "socket: %s is not a folder of this user alone",
                                path);
    return 0;
}

int vv_cached_socket(struct vv_cached *c, char *err, size_t err_bytes)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    char folder[64];
    int n, rc;

    if (c->socket[0])
        return 0;
    if (run && *run) {
        n = snprintf(c->socket, sizeof(c->socket), "%s/varve-cached.sock", run);
        return n < (int)sizeof(c->socket) ? 0 : -ENAMETOOLONG;
    }
    snprintf(folder, sizeof(folder), "/tmp/varve-%lu", (unsigned long)geteuid());
    rc = own_folder(folder, err, err_bytes);
    if (rc == 0)
        snprintf(c->socket, sizeof(c->socket), "%s/cached.sock", folder);
    return rc;
}

int vv_cached_control(const struct vv_cached *c, char *buf, size_t size)
{
    struct sockaddr_un sun;
    int n = snprintf(buf, size, "%s.ctl", c->socket);

    return n < 0 || (size_t)n >= size || (size_t)n >= sizeof(sun.sun_path) ? -ENAMETOOLONG : 0;
}

/* ---- the rest ---- */

/* Free space and size of the disk that a folder is on, or will be on. */
static int room_of(const char *path, uint64_t *ret_bytes, uint64_t *ret_all)
{
    char folder[VV_CONFIG_TEXT];
    struct statvfs fs;
    char *slash;

    snprintf(folder, sizeof(folder), "%s", path);
    while (statvfs(folder, &fs) < 0) {
        if (errno != ENOENT)
            return -errno;
        slash = strrchr(folder, '/');
        if (!slash || slash == folder)
            return -ENOENT;
        *slash = '\0';
    }
    *ret_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    *ret_all = (uint64_t)fs.f_blocks * fs.f_frsize;
    return 0;
}

/* The path with its links followed. The end of it may not exist yet. */
static int resolve(const char *path, char resolved[PATH_MAX])
{
    char part[VV_CONFIG_TEXT], found[PATH_MAX];
    char *slash;

    snprintf(part, sizeof(part), "%s", path);
    while (!realpath(part, found)) {
        slash = strrchr(part, '/');
        if (errno != ENOENT || !slash || slash == part)
            return -errno;
        *slash = '\0';
    }
    return snprintf(resolved, PATH_MAX, "%s%s", found, path + strlen(part)) < PATH_MAX
               ? 0
               : -ENAMETOOLONG;
}

static int vet_roots(const struct vv_cached *c, char *err, size_t err_bytes)
{
    char roots[VV_CONFIG_TEXT];
    char *at = roots, *word;
    int rc = 0;

    snprintf(roots, sizeof(roots), "%s", c->roots);
    while (rc == 0 && (word = vv_root_next(&at))) {
        struct vv_root root;

        /* Folders are checked when they are opened. */
        if (!vv_s3_is_url(word))
            continue;
        rc = vv_root_parse(word, &root, err, err_bytes);
        if (rc == 0)
            vv_root_fini(&root);
    }
    return rc;
}

/* A cache inside a served folder would be cached itself. */
static int refuse_inside(const struct vv_cached *c, char *err, size_t err_bytes)
{
    char roots[VV_CONFIG_TEXT], cache[PATH_MAX], root[PATH_MAX];
    char *at = roots, *word;

    if (resolve(c->cache, cache) < 0)
        return 0; /* opening it will report the reason */
    snprintf(roots, sizeof(roots), "%s", c->roots);
    while ((word = vv_root_next(&at))) {
        size_t n;

        if (!*word || !realpath(word, root))
            continue;
        n = strlen(root);
        if (strncmp(cache, root, n) == 0 &&
            (root[n - 1] == '/' || cache[n] == '/' || cache[n] == '\0'))
            return vv_settings_fail(err, err_bytes,
                                    "cache: %s lies in %s, which is served; expected a folder "
                                    "outside of the roots, on local disk",
                                    c->cache, word);
    }
    return 0;
}

/* Bytes that the folder holds from an earlier run. */
static uint64_t held_in(const char *path)
{
    DIR *dir = opendir(path);
    uint64_t bytes = 0;
    struct dirent *e;
    struct stat st;

    while (dir && (e = readdir(dir)))
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_blocks * 512;
    if (dir)
        closedir(dir);
    return bytes;
}

static int complete_node(struct vv_cached *c, char *err, size_t err_bytes)
{
    if (!c->node[0] && gethostname(c->node, VV_MEMBER_NAME_MAX) < 0)
        return -errno;
    if (strlen(c->node) > VV_MEMBER_NAME_MAX || strpbrk(c->node, " \t\n/"))
        return vv_settings_fail(err, err_bytes,
                                "node: '%s' is longer than %u characters, or has spaces or slashes",
                                c->node, VV_MEMBER_NAME_MAX);
    if (c->meet[0] && c->peers[0])
        return vv_settings_fail(err, err_bytes, "either meet or peers, not both");
    if (c->meet[0] && !c->listen[0])
        snprintf(c->listen, sizeof(c->listen), "0.0.0.0:0");
    if (c->peers[0] && !c->listen[0])
        return vv_settings_fail(err, err_bytes, "other nodes have to reach this one: set listen");
    if (c->listen[0] && !c->meet[0] && !c->token[0])
        return vv_settings_fail(err, err_bytes,
                                "nodes have to know each other: set token, or meet");
    if (c->listen[0] && !c->advertise[0] && strncmp(c->listen, "0.0.0.0:", 8) == 0 &&
        gethostname(c->advertise, VV_MEMBER_ADDR_MAX) < 0)
        return -errno;
    return 0;
}

/* Makes a path absolute: the daemon leaves the folder that it was started in. */
static int whole_path(const char *key, char text[VV_CONFIG_TEXT], char *err, size_t err_bytes)
{
    char folder[VV_CONFIG_TEXT];
    size_t n = strlen(text), k;

    if (n == 0 || text[0] == '/')
        return 0;
    if (!getcwd(folder, sizeof(folder)))
        return -errno;
    k = strlen(folder);
    if (k + 1 + n >= VV_CONFIG_TEXT)
        return vv_settings_fail(err, err_bytes, "%s: %s/%s is too long", key, folder, text);
    memmove(text + k + 1, text, n + 1);
    memcpy(text, folder, k);
    text[k] = '/';
    return 0;
}

static int whole_paths(struct vv_cached *c, char *err, size_t err_bytes)
{
    struct {
        const char *key;
        char *text;
    } paths[] = {{"cache", c->cache}, {"meet", c->meet},     {"peers", c->peers},
                 {"token", c->token}, {"socket", c->socket}, {"metrics", c->metrics},
                 {"log", c->log}};
    int rc = 0;

    for (size_t i = 0; i < VV_ARRAY_SIZE(paths) && rc == 0; i++)
        rc = whole_path(paths[i].key, paths[i].text, err, err_bytes);
    return rc;
}

static int complete_capacity(struct vv_cached *c, char *err, size_t err_bytes)
{
    char wanted[VV_BYTES_TEXT], there[VV_BYTES_TEXT];
    uint64_t room = 0, all = 0;
    int rc = room_of(c->cache, &room, &all);

    if (rc < 0) {
        vv_settings_fail(err, err_bytes, "cache: %s: %s", c->cache, strerror(-rc));
        return rc;
    }
    if (c->capacity == 0) {
        c->capacity = (room + held_in(c->cache)) / 5 * 4;
        if (c->capacity < CAPACITY_MIN)
            return vv_settings_fail(err, err_bytes, "cache: the disk of %s is full", c->cache);
    }
    if (c->capacity < CAPACITY_MIN)
        return vv_settings_fail(err, err_bytes, "capacity: less than 1M holds nothing");
    /* Some file systems in memory have no size, and no limit. */
    if (all > 0 && c->capacity > all)
        return vv_settings_fail(err, err_bytes,
                                "capacity: %s is more than the disk of %s has, %s: lower it, or "
                                "leave it out for four fifths of what is free",
                                vv_bytes_human(c->capacity, wanted, sizeof(wanted)), c->cache,
                                vv_bytes_human(all, there, sizeof(there)));
    return 0;
}

int vv_cached_complete(struct vv_cached *c, char *err, size_t err_bytes)
{
    int rc;

    if (!c->roots[0])
        return vv_settings_fail(err, err_bytes,
                                "nothing is served: set roots, the folders that programs read");
    if (!c->cache[0])
        return vv_settings_fail(err, err_bytes, "set cache, a folder on local disk");
    if (c->low > c->high)
        return vv_settings_fail(err, err_bytes, "low is more than high");
    rc = complete_node(c, err, err_bytes);
    if (rc == 0)
        rc = vv_cached_socket(c, err, err_bytes);
    if (rc == 0)
        rc = whole_paths(c, err, err_bytes);
    if (rc == 0)
        rc = vet_roots(c, err, err_bytes);
    if (rc == 0)
        rc = refuse_inside(c, err, err_bytes);
    if (rc == 0)
        rc = complete_capacity(c, err, err_bytes);
    if (rc < 0)
        return rc;
    c->max_file = VV_MIN(c->max_file ? c->max_file : c->capacity, c->capacity);
    return 0;
}

int vv_cached_peers(const char *path, char *err, size_t err_bytes,
                    struct vv_member_info **ret_peers, size_t *ret_nr)
{
    struct vv_member_info *peers = NULL;
    FILE *f = fopen(path, "re");
    char line[PEERS_LINE_MAX];
    size_t nr = 0;
    int rc = f ? 0 : -errno;

    if (!f)
        vv_settings_fail(err, err_bytes, "peers: %s: %s", path, strerror(-rc));
    for (unsigned number = 1; rc == 0 && fgets(line, sizeof(line), f); number++) {
        struct vv_member_info *more;
        char name[VV_MEMBER_NAME_MAX + 2], addr[VV_MEMBER_ADDR_MAX + 2], rest[2];
        int words;

        line[strcspn(line, "#\n")] = '\0';
        words = sscanf(line, "%64s %128s %1s", name, addr, rest);
        if (words <= 0)
            continue;
        if (words != 2 || strlen(name) > VV_MEMBER_NAME_MAX || strlen(addr) > VV_MEMBER_ADDR_MAX) {
            rc = vv_settings_fail(err, err_bytes, "%s:%u: expected a name and host:port", path,
                                  number);
            break;
        }
        more = realloc(peers, (nr + 1) * sizeof(*peers));
        if (!more) {
            rc = -ENOMEM;
            break;
        }
        peers = more;
        peers[nr] = (struct vv_member_info){.id = vv_place_node_id(name)};
        memcpy(peers[nr].name, name, strlen(name) + 1);
        memcpy(peers[nr].addr, addr, strlen(addr) + 1);
        nr++;
    }
    if (f)
        fclose(f);
    if (rc < 0) {
        free(peers);
        return rc;
    }
    *ret_peers = peers;
    *ret_nr = nr;
    return 0;
}
