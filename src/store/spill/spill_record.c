/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spill with a file for each record, instead of one for all (struct vv_store_opts, record_files).
 *
 * A chunk is in its record's file, at its offset in the record: so data that is scattered over the pages of a cache
 * is contiguous on the disk, which is faster on some file systems. The limit is still counted in page numbers: each
 * belongs to at most one chunk of one record, and a chunk whose last page number passes to another chunk first
 * frees its blocks. So the files never take more than the limit. A chunk may have several page numbers: its leaving
 * a page is not reported, and it may have returned on another page since.
 *
 * Files are identified by name, because a process may not open so many; the files in use and the last few others
 * are open. Names begin with an id that no other process has. A killed process leaves its files behind. The next
 * process that opens the folder finds the lock of that id free, and removes them.
 *
 * Threads: the stores of a spill share this; `lock` (rank STORE) protects all of it. It is held while files are
 * opened and removed: other threads that take it need a file too. The engine makes sure that no thread reads or
 * writes a chunk whose page changes its owner.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/table.h"
#include "store/spill/spill_private.h"

enum { STALE_MAX = 64 };

struct vvi_record {
    VV_TABLE_ITEM(generation);
    struct vvi_record *newer, *older; /* list of files that are open and not in use */
    uint32_t pages;                   /* of the whole record */
    unsigned pins;
    int fd; /* -1: closed */
    uint32_t nchunks;
    uint32_t chunk_pages[]; /* number of pages of each chunk */
};

struct owner {
    struct vvi_record *record; /* NULL: no owner */
    uint32_t chunk;
};

struct vvi_records {
    struct vv_store_opts opts; /* immutable, down to owner_bytes */
    int dirfd, lock_fd;
    bool direct;
    uint64_t id;
    uint32_t npages;
    size_t owner_bytes;
    struct vv_mutex lock;
    /* Synchronization: lock, all below. */
    struct owner *owner;     /* by page */
    struct vv_table records; /* by generation */
    struct vvi_record *newest, *oldest;
    unsigned nopen;
};

enum { NAME_MAX_BYTES = 64 };

static void name_of(uint64_t id, uint64_t generation, char name[NAME_MAX_BYTES])
{
    snprintf(name, NAME_MAX_BYTES, ".spill-%016llx-%llu", (unsigned long long)id,
             (unsigned long long)generation);
}

/* ---- files of killed processes ---- */

struct stale {
    const struct vv_os *os;
    int dirfd;
    size_t n;
    unsigned long long id[STALE_MAX];
};

/* Collects ids whose lock is free: their process has ended. A lock that is being created has another name. */
static int find_stale(void *user, const char *name)
{
    struct stale *s = user;
    unsigned long long id;
    int end = 0;
    if (sscanf(name, ".spill-%16llx.lock%n", &id, &end) != 1 || end == 0 || name[end] != 0)
        return 0;
    int fd = s->os->openat(s->os, s->dirfd, name, O_RDWR, 0);
    if (fd < 0)
        return 0;
    if (s->os->lock(s->os, fd) == 0 && s->n < STALE_MAX)
        s->id[s->n++] = id;
    s->os->close(s->os, fd);
    return 0;
}

static int remove_stale(void *user, const char *name)
{
    const struct stale *s = user;
    unsigned long long id;
    char after = 0;
    if (sscanf(name, ".spill-%16llx%c", &id, &after) != 2 || after != '-')
        return 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->id[i] == id)
            (void)s->os->unlinkat(s->os, s->dirfd, name);
    return 0;
}

/* Errors are ignored: the next process tries again. */
static void clean(const struct vv_os *os, int dirfd)
{
    struct stale s = {.os = os, .dirfd = dirfd};
    char name[NAME_MAX_BYTES];
    if (os->list(os, dirfd, find_stale, &s) < 0 || s.n == 0 ||
        os->list(os, dirfd, remove_stale, &s) < 0)
        return;
    for (size_t i = 0; i < s.n; i++) {
        snprintf(name, sizeof(name), ".spill-%016llx.lock", s.id[i]);
        (void)os->unlinkat(os, dirfd, name);
    }
}

/* The lock file gets its final name after it is locked. */
static int take_id(struct vvi_records *r)
{
    const struct vv_os *os = r->opts.os;
    char fresh[NAME_MAX_BYTES], name[NAME_MAX_BYTES];
    r->id = vv_files_draw_id();
    snprintf(fresh, sizeof(fresh), ".spill-%016llx.new", (unsigned long long)r->id);
    snprintf(name, sizeof(name), ".spill-%016llx.lock", (unsigned long long)r->id);
    r->lock_fd = os->openat(os, r->dirfd, fresh, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (r->lock_fd < 0)
        return r->lock_fd;
    int rc = os->lock(os, r->lock_fd);
    if (rc == 0)
        rc = os->rename(os, r->dirfd, fresh, name, false);
    if (rc < 0)
        (void)os->unlinkat(os, r->dirfd, fresh);
    return rc;
}

/* ---- files; lock held ---- */

static void idle_remove(struct vvi_records *r, struct vvi_record *rec)
{
    *(rec->newer ? &rec->newer->older : &r->newest) = rec->older;
    *(rec->older ? &rec->older->newer : &r->oldest) = rec->newer;
    rec->newer = rec->older = NULL;
}

static void idle_add(struct vvi_records *r, struct vvi_record *rec)
{
    rec->older = r->newest;
    *(r->newest ? &r->newest->newer : &r->oldest) = rec;
    r->newest = rec;
}

static void file_close(struct vvi_records *r, struct vvi_record *rec)
{
    r->opts.os->close(r->opts.os, rec->fd);
    rec->fd = -1;
    r->nopen--;
}

static int pin(struct vvi_records *r, struct vvi_record *rec, bool create)
{
    char name[NAME_MAX_BYTES];
    if (rec->fd >= 0) {
        if (rec->pins++ == 0)
            idle_remove(r, rec);
        return 0;
    }
    while (r->nopen >= r->opts.max_open && r->oldest) {
        struct vvi_record *old = r->oldest;
        idle_remove(r, old);
        file_close(r, old);
    }
    name_of(r->id, rec->generation, name);
    rec->fd = vvi_store_openat(r->opts.os, r->dirfd, name, O_RDWR | (create ? O_CREAT | O_EXCL : 0),
                               r->direct);
    if (rec->fd < 0) {
        int rc = rec->fd;
        rec->fd = -1;
        return rc == -ENOENT ? -EIO : rc; /* another process has removed it */
    }
    r->nopen++;
    rec->pins++;
    return 0;
}

static void unpin(struct vvi_records *r, struct vvi_record *rec)
{
    vv_assert(rec->pins > 0);
    if (--rec->pins == 0)
        idle_add(r, rec);
}

/* Frees the record and deletes its file. */
static void record_free(struct vvi_records *r, struct vvi_record *rec)
{
    char name[NAME_MAX_BYTES];
    (void)vv_table_remove(&r->records, rec);
    if (rec->fd >= 0) {
        if (rec->pins == 0)
            idle_remove(r, rec);
        file_close(r, rec);
    }
    name_of(r->id, rec->generation, name);
    (void)r->opts.os->unlinkat(r->opts.os, r->dirfd, name);
    free(rec);
}

static void unpin_last(struct vvi_records *r, struct vvi_record *rec)
{
    unpin(r, rec);
    if (rec->pins == 0 && rec->pages == 0)
        record_free(r, rec);
}

/* Ends the ownership of a page: frees the chunk's blocks, unless the chunk has another page. */
static int disown(struct vvi_records *r, uint32_t page)
{
    struct owner *o = &r->owner[page];
    struct vvi_record *rec = o->record;
    int rc = 0;
    if (!rec)
        return 0;
    uint32_t chunk = o->chunk;
    *o = (struct owner){0};
    if (--rec->pages == 0 && rec->pins == 0) {
        record_free(r, rec);
        return 0;
    }
    if (--rec->chunk_pages[chunk] > 0)
        return 0;
    rc = pin(r, rec, false);
    if (rc == 0) {
        rc = r->opts.os->punch(r->opts.os, rec->fd, (uint64_t)chunk * r->opts.page_bytes,
                               r->opts.page_bytes);
        unpin(r, rec);
    }
    return rc;
}

static struct vvi_record *record_new(struct vvi_records *r, uint64_t generation, uint32_t nchunks)
{
    struct vvi_record *rec = calloc(1, sizeof(*rec) + nchunks * sizeof(rec->chunk_pages[0]));
    if (!rec)
        return NULL;
    rec->generation = generation;
    rec->nchunks = nchunks;
    rec->fd = -1;
    vv_table_add(&r->records, rec);
    return rec;
}

/* ---- for the stores ---- */

int vvi_records_write(struct vvi_records *r, const struct vv_store_io *io,
                      struct vvi_record **ret_record)
{
    vv_mutex_lock(&r->lock);
    struct vvi_record *rec = vv_table_find(&r->records, io->key.generation);
    bool fresh = !rec;
    if (fresh)
        rec = record_new(r, io->key.generation, (uint32_t)vv_div_up(io->size, r->opts.page_bytes));
    int rc = !rec                                                ? -ENOMEM
             : (uint64_t)io->chunk0 + io->nchunks > rec->nchunks ? -EINVAL
                                                                 : pin(r, rec, fresh);
    bool pinned = rc == 0;
    if (rc < 0 && fresh && rec)
        record_free(r, rec);
    for (uint32_t i = 0; i < io->nchunks && rc == 0; i++) {
        rc = disown(r, io->pages[i]);
        if (rc < 0)
            break;
        r->owner[io->pages[i]] = (struct owner){rec, io->chunk0 + i};
        rec->chunk_pages[io->chunk0 + i]++;
        rec->pages++;
    }
    if (rc == 0)
        *ret_record = rec;
    else if (pinned)
        unpin_last(r, rec);
    vv_mutex_unlock(&r->lock);
    return rc;
}

int vvi_records_read(struct vvi_records *r, const struct vv_store_io *io,
                     struct vvi_record **ret_record)
{
    vv_mutex_lock(&r->lock);
    struct vvi_record *rec = vv_table_find(&r->records, io->key.generation);
    int rc = rec ? 0 : -EINVAL;
    for (uint32_t i = 0; i < io->nchunks && rc == 0; i++) {
        const struct owner *o = &r->owner[io->pages[i]];
        rc = o->record == rec && o->chunk == io->chunk0 + i ? 0 : -EINVAL;
    }
    if (rc == 0)
        rc = pin(r, rec, false);
    if (rc == 0)
        *ret_record = rec;
    vv_mutex_unlock(&r->lock);
    return rc;
}

int vvi_record_fd(const struct vvi_record *rec)
{
    return rec->fd;
}

void vvi_records_unpin(struct vvi_records *r, struct vvi_record *rec)
{
    vv_mutex_lock(&r->lock);
    unpin_last(r, rec);
    vv_mutex_unlock(&r->lock);
}

/* ---- opening and closing ---- */

/* Checks that the file system can punch holes; otherwise the limit could not be kept. */
static int probe(struct vvi_records *r)
{
    const struct vv_os *os = r->opts.os;
    if (!os->punch)
        return -EOPNOTSUPP;
    int fd = vvi_store_open_unlinked(os, r->dirfd, false);
    if (fd < 0)
        return fd;
    int rc = os->ftruncate(os, fd, r->opts.page_bytes);
    if (rc == 0)
        rc = os->punch(os, fd, 0, r->opts.page_bytes);
    os->close(os, fd);
    return rc;
}

int vvi_records_new(const struct vv_store_opts *opts, int dirfd, bool direct, uint32_t pages,
                    struct vvi_records **ret_records)
{
    struct vvi_records *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->opts = *opts;
    r->direct = direct;
    r->npages = pages;
    r->lock_fd = -1;
    vv_mutex_init(&r->lock, "spill records", VV_RANK_STORE);
    r->dirfd = opts->os->openat(opts->os, dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
    int rc = r->dirfd < 0 ? r->dirfd : probe(r);
    if (rc == 0) {
        clean(opts->os, r->dirfd);
        rc = take_id(r);
    }
    r->owner_bytes = (size_t)pages * sizeof(struct owner);
    r->owner = mmap(NULL, r->owner_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->owner == MAP_FAILED)
        r->owner = NULL;
    if (rc == 0 && !r->owner)
        rc = -ENOMEM;
    if (rc < 0) {
        vvi_records_free(r);
        return rc;
    }
    *ret_records = r;
    return 0;
}

void vvi_records_free(struct vvi_records *r)
{
    char name[NAME_MAX_BYTES];
    if (!r)
        return;
    const struct vv_os *os = r->opts.os;
    for (struct vvi_record *rec = vv_table_first(&r->records), *next; rec; rec = next) {
        next = vv_table_next(&r->records, rec);
        record_free(r, rec);
    }
    vv_table_fini(&r->records);
    if (r->owner)
        munmap(r->owner, r->owner_bytes);
    if (r->lock_fd >= 0) {
        /* Unlocked last, when all files are removed. */
        snprintf(name, sizeof(name), ".spill-%016llx.lock", (unsigned long long)r->id);
        (void)os->unlinkat(os, r->dirfd, name);
        os->close(os, r->lock_fd);
    }
    if (r->dirfd >= 0)
        os->close(os, r->dirfd);
    vv_mutex_fini(&r->lock);
    free(r);
}
