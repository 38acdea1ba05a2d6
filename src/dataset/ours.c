/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths are checked from the top down, so that nothing can be exchanged behind the check. In a folder that only this
 * user and root can change, no other user can exchange an entry. In a folder with the sticky bit, no other user can
 * exchange an entry that belongs to this user or to root.
 */
#include "dataset/ours.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 16

/* The number of users that this namespace does not map; 0: there are none. */
static uid_t unmapped(void)
{
    unsigned long in = 0, out = 0, nr = 0, number = 65534;
    FILE *f = fopen("/proc/self/uid_map", "re");
    bool all = !f || fscanf(f, "%lu %lu %lu", &in, &out, &nr) != 3 || nr == 4294967295ul;

    if (f)
        fclose(f);
    if (all)
        return 0;
    f = fopen("/proc/sys/kernel/overflowuid", "re");
    if (f && fscanf(f, "%lu", &number) != 1)
        number = 65534;
    if (f)
        fclose(f);
    return (uid_t)number;
}

static bool is_trusted(uid_t uid)
{
    return uid == 0 || uid == geteuid() || uid == unmapped();
}

static int check_parent(const char *path, const struct stat *st, char *err, size_t err_bytes)
{
    mode_t others = st->st_mode & (st->st_gid == 0 ? S_IWOTH : S_IWOTH | S_IWGRP);

    if (!is_trusted(st->st_uid)) {
        snprintf(err, err_bytes,
                 "%s belongs to user %lu, who could replace what is in it; expected user %lu or "
                 "root: choose a folder elsewhere",
                 path, (unsigned long)st->st_uid, (unsigned long)geteuid());
        return -EPERM;
    }
    if (S_ISDIR(st->st_mode) && others && !(st->st_mode & S_ISVTX)) {
        snprintf(err, err_bytes,
                 "other users can write to %s (mode %04o) and replace what is in it; expected no "
                 "write permission for group and others, or the sticky bit: chmod go-w, chmod +t, "
                 "or choose a folder elsewhere",
                 path, (unsigned)(st->st_mode & 07777));
        return -EPERM;
    }
    return 0;
}

static int check_path(const char *path, unsigned links, char *err, size_t err_bytes);

/* Checks the target of a link. */
static int check_link(const char *path, unsigned links, char *err, size_t err_bytes)
{
    char to[PATH_MAX], whole[2 * PATH_MAX];
    ssize_t n = readlink(path, to, sizeof(to) - 1);
    const char *slash = strrchr(path, '/');

    if (n < 0)
        return 0; /* it is gone: opening it will fail with a message */
    to[n] = '\0';
    if (to[0] == '/')
        snprintf(whole, sizeof(whole), "%s", to);
    else
        snprintf(whole, sizeof(whole), "%.*s/%s", (int)(slash - path), path, to);
    if (links == LINKS_MAX || strlen(whole) >= PATH_MAX) {
        snprintf(err, err_bytes, "%s leads through too many links: name the folder itself", path);
        return -EPERM;
    }
    return check_path(whole, links + 1, err, err_bytes);
}

/* Checks all of a path, which begins with a slash. */
static int check_path(const char *path, unsigned links, char *err, size_t err_bytes)
{
    char part[PATH_MAX];
    size_t length = strlen(path);

    for (size_t at = 1; at <= length; at++) {
        struct stat st;
        int rc;

        if (at > 1 && path[at] != '/' && path[at] != '\0')
            continue;
        snprintf(part, sizeof(part), "%.*s", (int)at, path);
        if (lstat(part, &st) < 0)
            return 0;
        rc = check_parent(part, &st, err, err_bytes);
        if (rc == 0 && S_ISLNK(st.st_mode))
            rc = check_link(part, links, err, err_bytes);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int vv_ours_parents(const char *path, char *err, size_t err_bytes)
{
    char whole[PATH_MAX] = "";
    size_t n = 0;
    char *slash;

    if (path[0] != '/') {
        if (!getcwd(whole, sizeof(whole)))
            return -errno;
        n = strlen(whole);
    }
    if (n + 1 + strlen(path) >= sizeof(whole))
        return -ENAMETOOLONG;
    snprintf(whole + n, sizeof(whole) - n, "%s%s", n ? "/" : "", path);
    for (n = strlen(whole); n > 1 && whole[n - 1] == '/'; n--)
        whole[n - 1] = '\0';
    slash = strrchr(whole, '/');
    slash[slash == whole] = '\0';
    return check_path(whole, 0, err, err_bytes);
}

static int check_own(const char *kind, const char *path, const struct stat *st, char *err,
                     size_t err_bytes)
{
    if (st->st_uid != geteuid())
        snprintf(err, err_bytes,
                 "%s %s belongs to user %lu, expected %lu: remove it, or name another one", kind,
                 path, (unsigned long)st->st_uid, (unsigned long)geteuid());
    else if (st->st_mode & (S_IWGRP | S_IWOTH))
        snprintf(err, err_bytes,
                 "other users can write to %s %s (mode %04o), expected you alone: chmod go-w %s",
                 kind, path, (unsigned)(st->st_mode & 07777), path);
    else
        return 0;
    return -EPERM;
}

int vv_ours_folder(int fd, const char *path, char *err, size_t err_bytes)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    return check_own("folder", path, &st, err, err_bytes);
}

int vv_ours_file(int fd, const char *path, char *err, size_t err_bytes)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode)) {
        snprintf(err, err_bytes, "%s is not a regular file: remove it", path);
        return -EPERM;
    }
    return check_own("file", path, &st, err, err_bytes);
}
