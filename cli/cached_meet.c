/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of a job find each other in a folder on shared storage. Each writes a file with its name and address,
 * under a temporary name first, and reads the files of the others from time to time. So nodes can be started by
 * srun, mpirun, ssh or by hand, in any order, without a list. The first node draws the job's token and puts it
 * there. Only users who may read the folder belong to the job.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/cached.h"

#define SUFFIX      ".node"
#define TOKEN_BYTES 32
#define TOKEN_TRIES 100
#define TOKEN_WAIT  (50 * VV_NS_PER_MS)

/* ---- the token ---- */

/* True if no other user can know the token. In a folder that others may write to, another user could have put the file
 * there; so even root takes only a file of its own. */
static bool is_private(int fd, char *err, size_t err_bytes, const char *path)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        snprintf(err, err_bytes, "token: %s is not a regular file", path);
        return false;
    }
    if ((st.st_mode & 077) == 0 && (st.st_uid == geteuid() || st.st_uid == 0))
        return true;
    snprintf(
        err, err_bytes,
        "token: %s belongs to user %lu and has mode %04o, expected user %lu or root, and closed "
        "to others: chmod 600, or make one of your own (on local disk if the file system maps "
        "root to another user, as many shared ones do)",
        path, (unsigned long)st.st_uid, (unsigned)(st.st_mode & 07777), (unsigned long)geteuid());
    return false;
}

/* -EPERM: the file is not this user's alone; the text has the reason. `links`: O_NOFOLLOW, or 0 for a path that
 * the user named, which may be a link (secrets of Kubernetes are). */
static int read_token(const char *path, int links, char *err, size_t err_bytes, void **ret_token,
                      size_t *ret_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | links), rc = 0;
    char *buf;
    ssize_t n;

    if (fd < 0)
        return -errno;
    if (!is_private(fd, err, err_bytes, path)) {
        close(fd);
        return -EPERM;
    }
    buf = malloc(VV_NET_TOKEN_MAX + 1);
    n = buf ? read(fd, buf, VV_NET_TOKEN_MAX + 1) : -1;
    if (n < 0)
        rc = buf ? -errno : -ENOMEM;
    else if ((size_t)n < VV_NET_TOKEN_MIN || (size_t)n > VV_NET_TOKEN_MAX)
        rc = -EMSGSIZE;
    close(fd);
    if (rc < 0) {
        free(buf);
        return rc;
    }
    *ret_token = buf;
    *ret_bytes = (size_t)n;
    return 0;
}

/* The first node that links the file has drawn the token. A file under that name is whole. */
static int draw_token(const char *path)
{
    unsigned char bytes[TOKEN_BYTES];
    char temp[VV_CONFIG_TEXT + 64], host[65] = "";
    int fd, rc = 0;

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return -EIO;
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(temp, sizeof(temp), "%s.%.40s.%ld", path, host, (long)getpid());
    fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    for (size_t i = 0; i < sizeof(bytes) && rc == 0; i++)
        rc = dprintf(fd, "%02x", bytes[i]) == 2 ? 0 : -EIO;
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && link(temp, path) < 0 && errno != EEXIST)
        rc = -errno;
    unlink(temp);
    return rc;
}

int cached_token(const struct vv_cached *c, char *err, size_t err_bytes, void **ret_token,
                 size_t *ret_bytes)
{
    char path[VV_CONFIG_TEXT + 16];
    int rc;

    if (c->token[0]) {
        snprintf(path, sizeof(path), "%s", c->token);
        rc = read_token(path, 0, err, err_bytes, ret_token, ret_bytes);
    } else {
        if (mkdir(c->meet, 0700) < 0 && errno != EEXIST) {
            rc = -errno;
            snprintf(err, err_bytes, "meet: %s: %s", c->meet, strerror(-rc));
            return rc;
        }
        snprintf(path, sizeof(path), "%s/token", c->meet);
        rc = read_token(path, O_NOFOLLOW, err, err_bytes, ret_token, ret_bytes);
        if (rc == -ENOENT)
            rc = draw_token(path);
        /* On some file systems a node sees the file of another node only a moment later. */
        for (int i = 0; rc == 0 && i < TOKEN_TRIES; i++) {
            rc = read_token(path, O_NOFOLLOW, err, err_bytes, ret_token, ret_bytes);
            if (rc != -ENOENT)
                break;
            vv_sleep_until_ns(vv_now_ns() + TOKEN_WAIT);
            rc = 0;
        }
    }
    if (rc == -EMSGSIZE)
        snprintf(err, err_bytes, "token: %s does not have %u to %u bytes", path, VV_NET_TOKEN_MIN,
                 VV_NET_TOKEN_MAX);
    else if (rc == -ELOOP)
        snprintf(err, err_bytes, "token: %s is a link, expected a file of yours: remove it", path);
    else if (rc < 0 && rc != -EPERM)
        snprintf(err, err_bytes, "token: %s: %s", path, strerror(-rc));
    return rc;
}

/* ---- the nodes ---- */

int cached_meet_tell(const struct vv_cached *c, const char *addr)
{
    char path[2 * VV_CONFIG_TEXT], temp[2 * VV_CONFIG_TEXT + 32];
    FILE *f;
    int rc = 0;

    snprintf(path, sizeof(path), "%s/%s" SUFFIX, c->meet, c->node);
    snprintf(temp, sizeof(temp), "%s.%ld", path, (long)getpid());
    /* In a folder that others may write to, the path could be a link of theirs. */
    unlink(temp);
    f = fopen(temp, "wxe");
    if (!f)
        return -errno;
    fprintf(f, "%s %s\n", c->node, addr);
    if (fclose(f) != 0)
        rc = -errno;
    if (rc == 0 && rename(temp, path) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(temp);
    return rc;
}

int cached_meet_look(const struct vv_cached *c, struct vv_node *n)
{
    DIR *dir = opendir(c->meet);
    struct dirent *e;

    if (!dir)
        return -errno;
    while ((e = readdir(dir))) {
        size_t length = strlen(e->d_name);
        char path[2 * VV_CONFIG_TEXT], err[256];
        struct vv_member_info *peers;
        size_t nr;

        if (length <= strlen(SUFFIX) || strcmp(e->d_name + length - strlen(SUFFIX), SUFFIX) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", c->meet, e->d_name);
        if (vv_cached_peers(path, err, sizeof(err), &peers, &nr) < 0)
            continue;
        for (size_t i = 0; i < nr; i++)
            if (vv_node_add(n, &peers[i]) < 0)
                vv_log(VV_LOG_WARNING, "meet: %s: not an address of a node", path);
        free(peers);
    }
    closedir(dir);
    return 0;
}

/* The address in the file with this node's name. */
static bool read_own(const struct vv_cached *c, struct vv_member_info *ret_info)
{
    char path[2 * VV_CONFIG_TEXT], err[256];
    struct vv_member_info *peers;
    size_t nr;

    snprintf(path, sizeof(path), "%s/%s" SUFFIX, c->meet, c->node);
    if (vv_cached_peers(path, err, sizeof(err), &peers, &nr) < 0)
        return false;
    if (nr == 1)
        *ret_info = peers[0];
    free(peers);
    return nr == 1;
}

bool cached_meet_check(const struct vv_cached *c, const char *addr)
{
    struct vv_member_info own;

    if (!read_own(c, &own) || strcmp(own.addr, addr) == 0)
        return true;
    vv_log(VV_LOG_WARNING,
           "another node of this job, at %s, has the name %s too: only one of them can take part; "
           "give "
           "each a name of its own (node)",
           own.addr, c->node);
    (void)cached_meet_tell(c, addr);
    return false;
}

void cached_meet_forget(const struct vv_cached *c, const char *name)
{
    char path[2 * VV_CONFIG_TEXT];

    if (!c->meet[0] || strchr(name, '/'))
        return;
    snprintf(path, sizeof(path), "%s/%s" SUFFIX, c->meet, name);
    unlink(path);
}

void cached_meet_leave(const struct vv_cached *c, const char *addr)
{
    char path[2 * VV_CONFIG_TEXT];
    struct vv_member_info own;

    snprintf(path, sizeof(path), "%s/%s" SUFFIX, c->meet, c->node);
    if (read_own(c, &own) && strcmp(own.addr, addr) == 0)
        unlink(path);
}
