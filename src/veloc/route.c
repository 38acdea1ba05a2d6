/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that the application writes into files itself.
 *
 * The application gets the path of a working file, in a separate folder in scratch, so that the file is not mistaken
 * for a checkpoint if the process is killed while it writes. At the end of the checkpoint the bytes become the only
 * region of a version, with checksums, commit, level, retention and agreement of the ranks. For a restart the bytes are
 * written to a working file again. Working files are removed with their phase; files of a killed process are removed
 * when it starts again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <veloc.h>

#include "veloc/veloc_private.h"

#define FOLDER ".varve-files"

static int path_of(const struct vvi_veloc *c, char path[VELOC_MAX_NAME])
{
    int n = snprintf(path, VELOC_MAX_NAME, "%s/" FOLDER "/%s-%d-%d.dat", c->cfg.scratch,
                     c->current->name, c->rank, c->version);
    return n < VELOC_MAX_NAME ? 0 : -ENAMETOOLONG;
}

static int make_folder(const struct vvi_veloc *c)
{
    char path[VELOC_MAX_NAME];
    if (snprintf(path, sizeof(path), "%s/" FOLDER, c->cfg.scratch) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    return mkdir(path, 0777) && errno != EEXIST ? -errno : 0;
}

void vvi_veloc_route_drop(struct vvi_veloc *c)
{
    char path[VELOC_MAX_NAME];
    if (c->routed && path_of(c, path) == 0)
        unlink(path);
    c->routed = false;
}

void vvi_veloc_route_clean(const struct vvi_veloc *c)
{
    char path[VELOC_MAX_NAME], want[32];
    snprintf(path, sizeof(path), "%s/" FOLDER, c->cfg.scratch);
    snprintf(want, sizeof(want), "-%d-", c->rank);
    DIR *d = opendir(path);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        /* NAME-RANK-VERSION.dat; the name may have '-' too. */
        char *version = strrchr(e->d_name, '-'), *rank = version;
        while (rank && rank > e->d_name && *--rank != '-')
            ;
        if (rank && version && strncmp(rank, want, strlen(want)) == 0)
            unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        closedir(d);
}

/* ---- writing ---- */

/* Maps the file as a region; an empty file has no memory. */
static int map_file(const char *path, int flags, int prot, struct vvi_veloc_region *ret_region)
{
    struct stat st;
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct vvi_veloc_region r = {.id = VVI_VELOC_FILE};
    int rc = fstat(fd, &st) ? -errno : 0;
    if (rc == 0 && st.st_size > 0) {
        r.bytes = (size_t)st.st_size;
        r.ptr = mmap(NULL, r.bytes, prot, MAP_SHARED, fd, 0);
        rc = r.ptr == MAP_FAILED ? -errno : 0;
    }
    close(fd);
    if (rc == 0)
        *ret_region = r;
    return rc;
}

static void unmap(const struct vvi_veloc_region *r)
{
    if (r->bytes > 0)
        munmap(r->ptr, r->bytes);
}

/* Renames the working file and queues it for delivery: the next working file may have the same name. */
static int hand_over(struct vvi_veloc *c, const char *path)
{
    char away[VELOC_MAX_NAME];
    int n = snprintf(away, sizeof(away), "%s/" FOLDER "/out%llu-%d-%d.dat", c->cfg.scratch,
                     (unsigned long long)c->ndelivered++, c->rank, c->version);
    int rc = n >= (int)sizeof(away) ? -ENAMETOOLONG : rename(path, away) ? -errno : 0;
    if (rc == 0)
        rc = vvi_veloc_deliver(c, away, c->original);
    if (rc)
        vvi_veloc_say(c, "%s: %s", c->original, strerror(-rc));
    return rc;
}

int vvi_veloc_route_take(struct vvi_veloc *c)
{
    struct vvi_veloc_region r;
    char path[VELOC_MAX_NAME];
    int rc = path_of(c, path);
    if (rc == 0)
        rc = map_file(path, O_RDONLY, PROT_READ, &r);
    if (rc) {
        vvi_veloc_say(c, "%s: %s", path, strerror(-rc));
        return rc;
    }
    rc = vvi_veloc_take(c, &r, 1);
    unmap(&r);
    if (rc == 0 && c->original[0])
        rc = hand_over(c, path);
    return rc;
}

/* ---- reading ---- */

static int create(const char *path, uint64_t bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    /* Allocate the space now: a full disk is an error here, but a signal when the mapping is written. */
    int rc = bytes > 0 ? -posix_fallocate(fd, 0, (off_t)bytes) : 0;
    close(fd);
    return rc;
}

static int bring_back(struct vvi_veloc *c, const char *path)
{
    struct vvi_veloc_region r = {0};
    uint64_t bytes;
    int rc = vvi_veloc_stored(c, c->current, c->version, VVI_VELOC_FILE, &bytes);
    if (rc == -ESRCH) {
        vvi_veloc_say(c, "checkpoint \"%s\" version %d is not a file of the application",
                      c->current->name, c->version);
        return rc;
    }
    if (rc == 0)
        rc = create(path, bytes);
    if (rc || bytes == 0)
        return rc ? vvi_veloc_fail(c, rc, "%s", path) : 0;
    c->routed = true;
    rc = map_file(path, O_RDWR, PROT_READ | PROT_WRITE, &r);
    if (rc == 0) {
        rc = vvi_veloc_protect(c, c->current, &r, 1);
        if (rc == 0) {
            rc = varve_restore(c->current->h, (uint64_t)c->version);
            int bad = vvi_veloc_protect(c, c->current, NULL, 0);
            rc = rc ? rc : bad;
        }
        unmap(&r);
    }
    return rc ? vvi_veloc_fail(c, rc, "%s", path) : 0;
}

static int route_legacy(struct vvi_veloc *c, char path[VELOC_MAX_NAME])
{
    struct vvi_veloc_legacy file;
    int rc = vvi_veloc_legacy_open(c, c->current->name, c->version, &file);
    if (rc)
        return rc;
    rc = snprintf(path, VELOC_MAX_NAME, "%s", file.path) < VELOC_MAX_NAME ? 0 : -ENAMETOOLONG;
    vvi_veloc_legacy_close(&file);
    return rc;
}

static int route(struct vvi_veloc *c, char path[VELOC_MAX_NAME])
{
    if (c->phase == VVI_VELOC_IDLE) {
        vvi_veloc_say(c, "VELOC_Route_file: neither a checkpoint nor a restart has begun");
        return -EPERM;
    }
    if (c->phase == VVI_VELOC_CHECKPOINT && c->taken) {
        vvi_veloc_say(c, "a checkpoint is memory or a file, not both");
        return -EBUSY;
    }
    if (c->phase == VVI_VELOC_RESTART && c->legacy)
        return route_legacy(c, path);
    int rc = path_of(c, path);
    if (rc == 0)
        rc = make_folder(c);
    if (rc)
        return vvi_veloc_fail(c, rc, "VELOC_Route_file");
    if (c->phase == VVI_VELOC_RESTART)
        return c->routed ? 0 : bring_back(c, path);
    c->routed = true;
    return 0;
}

/* Stores the original path, where the file is to appear. Some programs pass the
 * uninitialised buffer for the result as the original path: then there is none. */
static int note_original(struct vvi_veloc *c, const char *original, const char *routed)
{
    char folder[VARVE_PATH_BYTES];
    c->original[0] = 0;
    if (c->phase != VVI_VELOC_CHECKPOINT || c->level < VARVE_LEVEL_REMOTE || !original ||
        original == routed || !original[0])
        return 0;
    if (original[0] != '/' && !getcwd(folder, sizeof(folder)))
        return -errno;
    int n = original[0] == '/'
                ? snprintf(c->original, sizeof(c->original), "%s", original)
                : snprintf(c->original, sizeof(c->original), "%s/%s", folder, original);
    return n < (int)sizeof(c->original) ? 0 : -ENAMETOOLONG;
}

int VELOC_Route_file(const char *original, char *routed)
{
    char path[VELOC_MAX_NAME];
    struct vvi_veloc *c = vvi_veloc_enter("VELOC_Route_file");
    if (!c)
        return VELOC_FAILURE;
    int rc = routed ? route(c, path) : -EINVAL;
    if (rc == 0)
        rc = note_original(c, original, routed);
    if (rc == 0)
        memcpy(routed, path, strlen(path) + 1);
    return vvi_veloc_leave(rc);
}
