/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that VELOC itself wrote, in scratch or persistent: NAME-RANK-VERSION.dat. Regions that VELOC saved come after a
 * table (a count, then number and size of each, in the machine's own sizes and byte order); a file that the application
 * wrote has no table.
 *
 * VELOC writes the bytes first and the table last, without syncing either. If the table does not match the length of
 * the file, the application wrote the file, with two exceptions: a count of 0 at the beginning (a process was killed
 * while writing), and a valid table that needs more bytes than there are (a copy to persistent storage was cut off).
 * Such files are skipped as if they did not exist.
 *
 * These files are only read. They have no checksum: damage that does not change the length is not detected.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "veloc/veloc_private.h"

#define REGION_MAX (UINT64_C(1) << 40) /* largest plausible size of a region */
enum {
    ENTRY_BYTES = sizeof(int) + sizeof(size_t),
    MAX_REGIONS = 1 << 20,
    TABLE_LOOKED_AT = 1024,
    BOUNCE_BYTES = 4 << 20
};

static int read_at(int fd, void *buf, size_t bytes, uint64_t offset)
{
    for (char *p = buf; bytes > 0;) {
        ssize_t n = pread(fd, p, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        p += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* True if all numbers of regions differ, as in every file of VELOC. */
static bool all_differ(const struct vvi_veloc_stored *v, size_t n)
{
    for (size_t i = 1; i < n && n <= TABLE_LOOKED_AT; i++)
        for (size_t k = 0; k < i; k++)
            if (v[k].id == v[i].id)
                return false;
    return n <= TABLE_LOOKED_AT;
}

/* Reads the table, if there is one that matches the length; otherwise sets raw. -EBADMSG: an unfinished file, neither
 * VELOC's nor likely the application's. */
static int read_table(struct vvi_veloc_legacy *f, uint64_t file_bytes)
{
    size_t n = 0;
    f->raw = true;
    if (file_bytes == 0)
        return -EBADMSG;
    if (file_bytes < sizeof(n))
        return 0;
    int rc = read_at(f->fd, &n, sizeof(n), 0);
    if (rc)
        return rc;
    if (n == 0)
        return -EBADMSG;
    if (n > MAX_REGIONS || sizeof(n) + n * ENTRY_BYTES > file_bytes)
        return 0;
    char *table = malloc(n * ENTRY_BYTES);
    f->v = calloc(n, sizeof(*f->v));
    rc = table && f->v ? read_at(f->fd, table, n * ENTRY_BYTES, sizeof(n)) : -ENOMEM;
    uint64_t at = sizeof(n) + n * ENTRY_BYTES;
    bool sound = true;
    for (size_t i = 0; rc == 0 && i < n && sound; i++) {
        size_t bytes;
        memcpy(&f->v[i].id, table + i * ENTRY_BYTES, sizeof(int));
        memcpy(&bytes, table + i * ENTRY_BYTES + sizeof(int), sizeof(bytes));
        f->v[i].bytes = bytes;
        f->v[i].offset = at;
        sound = bytes <= REGION_MAX;
        at += sound ? bytes : 0;
    }
    free(table);
    if (rc == 0 && sound && at == file_bytes) {
        f->raw = false;
        f->n = n;
    }
    return rc == 0 && sound && at > file_bytes && all_differ(f->v, n) ? -EBADMSG : rc;
}

static int open_in(const char *folder, const char *name, int rank, int version,
                   struct vvi_veloc_legacy *ret_legacy)
{
    struct vvi_veloc_legacy f = {.fd = -1};
    struct stat st;
    if (!folder[0] || (size_t)snprintf(f.path, sizeof(f.path), "%s/%s-%d-%d.dat", folder, name,
                                       rank, version) >= sizeof(f.path))
        return -ENOENT;
    f.fd = open(f.path, O_RDONLY | O_CLOEXEC);
    if (f.fd < 0)
        return -errno;
    int rc = fstat(f.fd, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -ENOENT;
    if (rc == 0)
        rc = read_table(&f, (uint64_t)st.st_size);
    if (rc) {
        vvi_veloc_legacy_close(&f);
        return rc;
    }
    *ret_legacy = f;
    return 0;
}

int vvi_veloc_legacy_open(const struct vvi_veloc *c, const char *name, int version,
                          struct vvi_veloc_legacy *ret_legacy)
{
    const char *folders[] = {c->cfg.scratch, c->cfg.persistent};
    for (int i = 0; i < 2; i++) {
        int rc = open_in(folders[i], name, c->rank, version, ret_legacy);
        if (rc == 0)
            return 0;
        if (rc != -ENOENT)
            vvi_veloc_say(c, "%s/%s-%d-%d.dat is skipped: %s", folders[i], name, c->rank, version,
                          rc == -EBADMSG ? "it was not written to the end" : varve_strerror(rc));
    }
    return -ENOENT;
}

void vvi_veloc_legacy_close(struct vvi_veloc_legacy *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->v);
    f->fd = -1;
    f->v = NULL;
    f->n = 0;
}

/* The version in a file's name; negative: the file is not of this process and checkpoint. */
static int version_of(const struct vvi_veloc *c, const char *name, const char *file)
{
    size_t n = strlen(name);
    char *end;
    if (strncmp(file, name, n) != 0 || file[n] != '-')
        return -1;
    const char *rank = file + n + 1;
    errno = 0;
    long r = strtol(rank, &end, 10);
    if (errno || end == rank || *end != '-' || r != c->rank || rank[0] == '-' || rank[0] == '+')
        return -1;
    const char *version = end + 1;
    long v = strtol(version, &end, 10);
    if (errno || end == version || strcmp(end, ".dat") != 0 || v < 0 || v > INT_MAX ||
        version[0] == '+')
        return -1;
    return (int)v;
}

/* Calls fn for every file of the checkpoint in the folder. */
static void each(const struct vvi_veloc *c, const char *folder, const char *name,
                 void (*fn)(void *arg, int version, int dir, const char *file), void *arg)
{
    DIR *d = folder[0] ? opendir(folder) : NULL;
    struct dirent *e;
    while (d && (e = readdir(d))) {
        int v = version_of(c, name, e->d_name);
        if (v >= 0)
            fn(arg, v, dirfd(d), e->d_name);
    }
    if (d)
        closedir(d);
}

struct search {
    int max, best;
};

static void see(void *arg, int version, int dir, const char *file)
{
    struct search *s = arg;
    (void)dir;
    (void)file;
    if (version <= s->max && version > s->best)
        s->best = version;
}

int vvi_veloc_legacy_newest(const struct vvi_veloc *c, const char *name, int max, int *ret_version)
{
    for (struct search s = {max, -1};; s = (struct search){s.best - 1, -1}) {
        struct vvi_veloc_legacy f;
        each(c, c->cfg.scratch, name, see, &s);
        each(c, c->cfg.persistent, name, see, &s);
        if (s.best < 0)
            return -ENOENT;
        if (vvi_veloc_legacy_open(c, name, s.best, &f) == 0) {
            vvi_veloc_legacy_close(&f);
            *ret_version = s.best;
            return 0;
        }
        if (s.best == 0)
            return -ENOENT;
    }
}

static void unlink_it(void *arg, int version, int dir, const char *file)
{
    (void)arg;
    (void)version;
    unlinkat(dir, file, 0);
}

void vvi_veloc_legacy_remove(const struct vvi_veloc *c, const char *name)
{
    each(c, c->cfg.scratch, name, unlink_it, NULL);
}

/* With a device, the target may be device memory: copy to it in pieces. */
static int read_by_pieces(struct vvi_veloc *c, const struct vvi_veloc_legacy *f,
                          const struct vvi_veloc_stored *stored, char *ptr)
{
    char *piece = malloc(BOUNCE_BYTES);
    int rc = piece ? 0 : -ENOMEM;
    for (uint64_t at = 0; rc == 0 && at < stored->bytes; at += BOUNCE_BYTES) {
        size_t n = VV_MIN(stored->bytes - at, (uint64_t)BOUNCE_BYTES);
        rc = read_at(f->fd, piece, n, stored->offset + at);
        if (rc == 0)
            rc = varve_device_copy(c->ctx, ptr + at, piece, n);
    }
    free(piece);
    return rc;
}

int vvi_veloc_legacy_read(struct vvi_veloc *c, const struct vvi_veloc_legacy *f,
                          const struct vvi_veloc_stored *stored, void *ptr)
{
    int rc = c->has_device ? read_by_pieces(c, f, stored, ptr)
                           : read_at(f->fd, ptr, stored->bytes, stored->offset);
    return rc ? vvi_veloc_fail(c, rc, "%s, region %d", f->path, stored->id) : 0;
}
