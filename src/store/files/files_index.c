/* SPDX-License-Identifier: Apache-2.0 */
/* The index: one append-only file of checksummed records per history and rank, so that opening a
 * history does not open every file in it.
 *
 * It is a cache. The folder decides which files exist, the files what is in them; a record only saves
 * reading one. So the index is never synced, a damaged record ends it, and a failure to write deletes
 * it. Its layout is in docs/format/index.md.
 *
 * A stale record cannot describe a new file: records are matched by version and generation, and new
 * files get generations above all those in the folder and in the valid part of the index, records of
 * deleted files included.
 *
 * A target replaces only whole files. There the index is kept in memory and rewritten when the file lacks one
 * record in LACKING_ONE_IN, and at close. So opening takes a few requests for any number of versions, and writing
 * the index stays cheap compared with writing the versions. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/files/files_private.h"

enum { LACKING_ONE_IN = 256 };
#define INDEX_MOST (UINT64_C(1) << 30) /* a longer one is treated as missing */

void vvi_index_init(struct vvi_index *ix, const struct vv_os *os, int dirfd, uint32_t rank)
{
    *ix = (struct vvi_index){.os = os, .dirfd = dirfd, .fd = -1};
    snprintf(ix->name, sizeof(ix->name), "index.%" PRIu32, rank);
    vv_mutex_init(&ix->lock, "index", VV_RANK_STORE);
}

static void temp_name(const struct vvi_index *ix, char name[40])
{
    snprintf(name, 40, "%s.tmp", ix->name);
}

static void close_fd(struct vvi_index *ix)
{
    if (ix->fd >= 0)
        ix->os->close(ix->os, ix->fd);
    ix->fd = -1;
}

static bool is_open(const struct vvi_index *ix)
{
    return ix->fd >= 0 || ix->whole;
}

/* Writes the whole index to the target. After a failure it is tried again later. */
static int save(struct vvi_index *ix)
{
    const struct vv_target_ops *ops = ix->target->ops;
    struct vv_target_file *file = NULL;
    char temp[40];
    temp_name(ix, temp);
    int rc = ops->create(ix->target, ix->name, temp, ix->used, &file);
    if (rc == 0)
        rc = ops->put(file, ix->buf, ix->used, 0);
    if (rc == 0)
        rc = ops->settle(file);
    if (rc == 0)
        rc = ops->commit(file);
    vv_target_end(file);
    if (rc == 0)
        ix->unsaved = 0;
    return rc;
}

bool vvi_index_unsaved(const struct vvi_index *ix)
{
    return ix->whole && ix->unsaved > 0;
}

void vvi_index_leave(struct vvi_index *ix)
{
    ix->unsaved = 0;
}

void vvi_index_fini(struct vvi_index *ix)
{
    if (vvi_index_unsaved(ix))
        (void)save(ix);
    close_fd(ix);
    free(ix->buf);
    vv_mutex_fini(&ix->lock);
}

/* A half-written index would hide nothing (records have checksums), but without the record of a removal
 * it could list a version twice. It is deleted, and rebuilt at the next open. */
static void give_up(struct vvi_index *ix)
{
    char temp[40];
    temp_name(ix, temp);
    close_fd(ix);
    ix->used = 0;
    ix->whole = false;
    if (ix->target) {
        (void)ix->target->ops->remove(ix->target, ix->name);
        return;
    }
    ix->os->unlinkat(ix->os, ix->dirfd, ix->name);
    ix->os->unlinkat(ix->os, ix->dirfd, temp);
}

/* ---- reading ---- */

static void header_fill(struct vvi_index_header *h, const char *history, uint32_t rank)
{
    *h = (struct vvi_index_header){.format = VVI_INDEX_FORMAT, .rank = rank};
    memcpy(h->magic, VVI_INDEX_MAGIC, sizeof(h->magic));
    h->history_sum = vv_hash64(history, strlen(history));
    h->sum = vv_hash64(h, offsetof(struct vvi_index_header, sum));
}

static uint64_t record_sum(const void *record, size_t bytes)
{
    return vv_hash64((const char *)record + sizeof(uint64_t), bytes - sizeof(uint64_t));
}

static bool record_ok(const char *text, uint64_t left)
{
    struct vvi_index_record r;
    if (left < sizeof(r))
        return false;
    memcpy(&r, text, sizeof(r));
    return r.magic == VVI_RECORD_MAGIC && r.bytes <= left && r.nregions <= r.bytes &&
           r.bytes == sizeof(r) + (uint64_t)r.nregions * sizeof(struct vv_store_region) &&
           r.generation < UINT64_MAX &&
           (r.kind == VVI_RECORD_COMMIT || r.kind == VVI_RECORD_REMOVE) &&
           r.sum == record_sum(text, r.bytes);
}

static int read_target(struct vvi_index *ix, struct vvi_index_view *view)
{
    const struct vv_target_ops *ops = ix->target->ops;
    struct vv_target_file *file = NULL;
    int rc = ix->whole ? 0 : ops->open(ix->target, ix->name, VV_TARGET_READ, &file);
    if (rc < 0)
        return rc;
    view->bytes = ix->whole ? ix->used : file->bytes;
    view->text = view->bytes > INDEX_MOST ? NULL : malloc(view->bytes + 1);
    if (view->bytes > INDEX_MOST)
        rc = -EFBIG;
    else if (!view->text)
        rc = -ENOMEM;
    else if (!ix->whole)
        rc = ops->get(file, view->text, view->bytes, 0);
    else
        memcpy(view->text, ix->buf, ix->used);
    vv_target_end(file);
    return rc;
}

static int read_folder(struct vvi_index *ix, struct vvi_index_view *view)
{
    const struct vv_os *os = ix->os;
    int fd = vv_os_open_regular(os, ix->dirfd, ix->name, O_RDONLY);
    if (fd < 0)
        return -ENOENT;
    int rc = os->file_bytes(os, fd, &view->bytes);
    if (rc == 0 && view->bytes > INDEX_MOST)
        rc = -EFBIG;
    if (rc == 0)
        view->text = malloc(view->bytes + 1);
    if (rc == 0 && !view->text)
        rc = -ENOMEM;
    if (rc == 0)
        rc = vv_os_read_all(os, fd, view->text, view->bytes, 0);
    os->close(os, fd);
    return rc;
}

/* `want`: the required header; NULL: any. */
static int read_view(struct vvi_index *ix, const struct vvi_index_header *want,
                     struct vvi_index_view *ret_view)
{
    struct vvi_index_view view = {0};
    int rc = ix->target ? read_target(ix, &view) : read_folder(ix, &view);
    if (rc == -ENOMEM) {
        return rc;
    } else if (rc < 0) {
        free(view.text); /* unreadable: treated as missing */
        *ret_view = (struct vvi_index_view){0};
        return 0;
    }
    if (view.bytes >= sizeof(*want) && (!want || memcmp(view.text, want, sizeof(*want)) == 0))
        view.valid_bytes = sizeof(*want);
    while (view.valid_bytes > 0 &&
           record_ok(view.text + view.valid_bytes, view.bytes - view.valid_bytes)) {
        view.valid_bytes += ((struct vvi_index_record *)(view.text + view.valid_bytes))->bytes;
        view.nrecords++;
    }
    *ret_view = view;
    return 0;
}

int vvi_index_read(struct vvi_index *ix, const char *history, uint32_t rank,
                   struct vvi_index_view *ret_view)
{
    struct vvi_index_header want;
    header_fill(&want, history, rank);
    return read_view(ix, &want, ret_view);
}

const struct vvi_index_record *vvi_index_next(const struct vvi_index_view *view, uint64_t *at)
{
    if (*at == 0)
        *at = sizeof(struct vvi_index_header);
    if (*at >= view->valid_bytes)
        return NULL;
    const struct vvi_index_record *r = (const void *)(view->text + *at);
    *at += r->bytes;
    return r;
}

const struct vv_store_region *vvi_index_regions(const struct vvi_index_record *record)
{
    return (const struct vv_store_region *)(record + 1);
}

/* ---- writing ---- */

static int make_room_locked(struct vvi_index *ix, size_t bytes)
{
    if (ix->used + bytes <= ix->room)
        return 0;
    size_t room = VV_MAX(ix->room * 2, vv_align_up(ix->used + bytes, 4096));
    char *buf = realloc(ix->buf, room);
    if (!buf)
        return -ENOMEM;
    ix->buf = buf;
    ix->room = room;
    return 0;
}

/* Stores the first `bytes` of an index on a target. */
static int begin_whole(struct vvi_index *ix, const void *text, size_t bytes)
{
    vv_mutex_lock(&ix->lock);
    ix->used = 0;
    int rc = make_room_locked(ix, bytes);
    if (rc == 0) {
        memcpy(ix->buf, text, bytes);
        ix->used = bytes;
        ix->whole = true;
    }
    vv_mutex_unlock(&ix->lock);
    return rc;
}

int vvi_index_continue(struct vvi_index *ix, const struct vvi_index_view *view, uint64_t nlive)
{
    const struct vv_os *os = ix->os;
    if (ix->target) {
        int rc = begin_whole(ix, view->text, view->valid_bytes);
        ix->published = true;
        ix->nrecords = view->nrecords;
        ix->nlive = nlive;
        return rc;
    }
    int fd = vv_os_open_regular(os, ix->dirfd, ix->name, O_WRONLY);
    if (fd < 0)
        return fd;
    int rc = view->valid_bytes < view->bytes ? os->ftruncate(os, fd, view->valid_bytes) : 0;
    if (rc < 0) {
        os->close(os, fd);
        return rc;
    }
    vv_mutex_lock(&ix->lock);
    ix->fd = fd;
    ix->end = view->valid_bytes;
    ix->published = true;
    ix->nrecords = view->nrecords;
    ix->nlive = nlive;
    vv_mutex_unlock(&ix->lock);
    return 0;
}

int vvi_index_restart(struct vvi_index *ix, const char *history, uint32_t rank)
{
    const struct vv_os *os = ix->os;
    struct vvi_index_header header;
    char temp[40];
    temp_name(ix, temp);
    header_fill(&header, history, rank);
    if (ix->target) {
        ix->published = false;
        ix->nrecords = ix->nlive = 0;
        return begin_whole(ix, &header, sizeof(header));
    }
    int fd = os->openat(os, ix->dirfd, temp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        return fd;
    int rc = vv_os_write_all(os, fd, &header, sizeof(header), 0);
    if (rc < 0) {
        os->close(os, fd);
        os->unlinkat(os, ix->dirfd, temp);
        return rc;
    }
    vv_mutex_lock(&ix->lock);
    ix->fd = fd;
    ix->end = sizeof(header);
    ix->published = false;
    ix->nrecords = ix->nlive = 0;
    vv_mutex_unlock(&ix->lock);
    return 0;
}

int vvi_index_publish(struct vvi_index *ix)
{
    char temp[40];
    temp_name(ix, temp);
    vvi_index_flush(ix);
    vv_mutex_lock(&ix->lock);
    int rc = ix->whole    ? save(ix)
             : ix->fd < 0 ? -EIO
                          : ix->os->rename(ix->os, ix->dirfd, temp, ix->name, true);
    if (rc < 0)
        give_up(ix);
    ix->published = rc == 0;
    vv_mutex_unlock(&ix->lock);
    return rc;
}

void vvi_index_add(struct vvi_index *ix, enum vvi_record_kind kind, const struct vv_files_entry *e)
{
    uint32_t nregions = kind == VVI_RECORD_COMMIT ? e->nregions : 0;
    size_t regions_bytes = nregions * sizeof(struct vv_store_region);
    struct vvi_index_record r = {
        .magic = VVI_RECORD_MAGIC,
        .bytes = (uint32_t)(sizeof(r) + regions_bytes),
        .kind = kind,
        .nregions = nregions,
        .version = e->version,
        .generation = e->generation,
        .size = e->size,
        .run_id = e->run_id,
        .commit_time_ns = e->commit_time_ns,
        .file_bytes = e->file_bytes,
    };
    vv_mutex_lock(&ix->lock);
    if (is_open(ix) && make_room_locked(ix, r.bytes) < 0)
        give_up(ix);
    if (is_open(ix)) {
        char *at = ix->buf + ix->used;
        memcpy(at, &r, sizeof(r));
        if (regions_bytes > 0)
            memcpy(at + sizeof(r), e->regions, regions_bytes);
        r.sum = record_sum(at, r.bytes);
        memcpy(at, &r.sum, sizeof(r.sum));
        ix->used += r.bytes;
        ix->unsaved++;
        ix->nrecords++;
        if (kind == VVI_RECORD_COMMIT)
            ix->nlive++;
        else if (ix->nlive > 0)
            ix->nlive--;
    }
    vv_mutex_unlock(&ix->lock);
}

/* ---- compaction ---- */

/* The last removals are kept: a partner that missed one learns of it at the next open. */
enum { REMOVALS_KEPT = 32 };

struct compact {
    const struct vvi_index_record **record; /* by version and generation, then in file order */
    uint64_t n;
};

static int compare_records(const void *a, const void *b)
{
    const struct vvi_index_record *x = *(const struct vvi_index_record *const *)a;
    const struct vvi_index_record *y = *(const struct vvi_index_record *const *)b;
    if (x->version != y->version)
        return x->version < y->version ? -1 : 1;
    if (x->generation != y->generation)
        return x->generation < y->generation ? -1 : 1;
    return x < y ? -1 : x > y; /* in file order */
}

static int compare_places(const void *a, const void *b)
{
    const struct vvi_index_record *x = *(const struct vvi_index_record *const *)a;
    const struct vvi_index_record *y = *(const struct vvi_index_record *const *)b;
    return x < y ? -1 : x > y;
}

/* Keeps the last record of each file, and only the latest removals, in file order. */
static void keep_last(struct compact *c, uint64_t *ret_nlive)
{
    uint64_t kept = 0, live = 0, removals = 0;
    qsort(c->record, c->n, sizeof(*c->record), compare_records);
    for (uint64_t i = 0; i < c->n; i++)
        if (i + 1 == c->n || c->record[i]->version != c->record[i + 1]->version ||
            c->record[i]->generation != c->record[i + 1]->generation) {
            live += c->record[i]->kind == VVI_RECORD_COMMIT;
            removals += c->record[i]->kind == VVI_RECORD_REMOVE;
            c->record[kept++] = c->record[i];
        }
    c->n = kept;
    qsort(c->record, c->n, sizeof(*c->record), compare_places);
    kept = 0;
    for (uint64_t i = 0; i < c->n; i++)
        if (c->record[i]->kind == VVI_RECORD_COMMIT || removals-- <= REMOVALS_KEPT)
            c->record[kept++] = c->record[i];
    c->n = kept;
    *ret_nlive = live;
}

/* Writes the header and the records to a new file, which replaces the old one. */
static int rewrite_locked(struct vvi_index *ix, const char *header, const struct compact *c)
{
    const struct vv_os *os = ix->os;
    uint64_t bytes = sizeof(struct vvi_index_header), at = bytes;
    char temp[40];
    for (uint64_t i = 0; i < c->n; i++)
        bytes += c->record[i]->bytes;
    char *text = malloc(bytes);
    if (!text)
        return -ENOMEM;
    memcpy(text, header, at);
    for (uint64_t i = 0; i < c->n; at += c->record[i++]->bytes)
        memcpy(text + at, c->record[i], c->record[i]->bytes);
    if (ix->target) {
        free(ix->buf);
        ix->buf = text;
        ix->used = ix->room = bytes;
        return save(ix);
    }
    temp_name(ix, temp);
    int fd = os->openat(os, ix->dirfd, temp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int rc = fd < 0 ? fd : vv_os_write_all(os, fd, text, bytes, 0);
    free(text);
    if (rc == 0)
        rc = os->rename(os, ix->dirfd, temp, ix->name, true);
    if (rc < 0) {
        if (fd >= 0)
            os->close(os, fd);
        return rc;
    }
    close_fd(ix);
    ix->fd = fd;
    ix->end = bytes;
    return 0;
}

/* Reads the file again, because memory holds none of its records. Their number has doubled since the last
 * time, so this adds a constant to the cost of each. */
static int compact_locked(struct vvi_index *ix)
{
    struct vvi_index_view view;
    struct compact c = {0};
    uint64_t at = 0, nlive = 0;
    const struct vvi_index_record *r;
    int rc = read_view(ix, NULL, &view);
    if (rc < 0)
        return rc;
    c.record = malloc((view.nrecords + 1) * sizeof(*c.record));
    if (view.valid_bytes != (ix->whole ? ix->used : ix->end))
        rc = -EIO; /* the file was changed */
    else if (!c.record)
        rc = -ENOMEM;
    while (rc == 0 && (r = vvi_index_next(&view, &at)))
        c.record[c.n++] = r;
    if (rc == 0) {
        keep_last(&c, &nlive);
        rc = rewrite_locked(ix, view.text, &c);
    }
    if (rc == 0) {
        ix->nrecords = c.n;
        ix->nlive = nlive;
    }
    free(c.record);
    free(view.text);
    return rc;
}

void vvi_index_flush(struct vvi_index *ix)
{
    vv_mutex_lock(&ix->lock);
    if (ix->fd >= 0 && ix->used > 0) {
        if (vv_os_write_all(ix->os, ix->fd, ix->buf, ix->used, ix->end) < 0) {
            give_up(ix);
        } else {
            ix->end += ix->used;
            ix->used = 0;
        }
    }
    if (ix->whole && ix->published && ix->unsaved > ix->nlive / LACKING_ONE_IN)
        (void)save(ix);
    if (is_open(ix) && ix->published && vvi_index_stale(ix->nrecords, ix->nlive) &&
        compact_locked(ix) < 0)
        give_up(ix);
    vv_mutex_unlock(&ix->lock);
}
