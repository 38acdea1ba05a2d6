/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest: one append-only file of checksummed records. Each record gives the path and generation of a content
 * file, so that the next run of the cache can use the files on disk. Its layout is in
 * docs/format/dataset-manifest.md.
 *
 * A record counts only if its file is there and has the recorded checksum. So the manifest is never synced, an
 * invalid record ends it, and after a failed write the next record rewrites it. Opening removes content files without
 * a record.
 *
 * An id that a file or a record has had is never used again, so that a record cannot match a later file. This must hold
 * even after the folder was emptied or deleted: programs may still look for its former files through an index that was
 * not yet taken from them. So the first id of a run is the current time, or larger.
 *
 * manifest.lock is held across the system calls here, and is the outer one of the two locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "dataset/dataset_private.h"
#include "dataset/ours.h"

#define MAGIC        "VARVEDS\n"
#define FORMAT       1u
#define RECORD_MAGIC UINT32_C(0x52445656) /* "VVDR" */
#define REWRITE_MIN  1024u                /* records; rewriting a shorter one is not worth it */
#define BYTES_MAX    (UINT64_C(1) << 32)

struct header {
    char magic[8];
    uint32_t format;
    uint32_t zero[11];
    uint64_t sum; /* of the preceding bytes */
};
_Static_assert(sizeof(struct header) == 64, "the header is 64 bytes");

/* The path follows, and zeros up to a multiple of 8. */
struct record {
    uint64_t sum; /* of everything after it, path and zeros included */
    uint32_t magic;
    uint32_t bytes; /* of the whole record */
    uint32_t kind;
    uint32_t path_bytes;
    uint64_t id;
    uint64_t size, mtime_ns, ctime_ns, inode;
    uint64_t content_sum;
};
_Static_assert(sizeof(struct record) == 72, "a record begins with 72 bytes");

enum record_kind {
    RECORD_CACHED = 1,
    RECORD_GONE = 2,
    RECORD_SEALED = 3,
    RECORD_COPY = 4,        /* as CACHED, and another node keeps it */
    RECORD_COPY_SEALED = 5, /* as SEALED, and another node keeps it */
    RECORD_OWN = 6,         /* the copy is now kept here */
};

static enum record_kind kind_of(const struct vvi_entry *e)
{
    if (e->copy)
        return e->sealed ? RECORD_COPY_SEALED : RECORD_COPY;
    return e->sealed ? RECORD_SEALED : RECORD_CACHED;
}

/* True if a record only names the id of another one. */
static bool is_short(enum record_kind kind)
{
    return kind == RECORD_GONE || kind == RECORD_OWN;
}

/* ---- writing ---- */

/* GOING is included: such an entry may be in use, and stay. */
static bool belongs(const struct vvi_entry *e)
{
    return e->state == DATASET_READY || (e->state == DATASET_GOING && !e->doomed);
}

static size_t record_bytes(const struct vvi_entry *e, enum record_kind kind)
{
    return sizeof(struct record) + (!is_short(kind) ? (size_t)vv_align_up(strlen(e->path), 8) : 0);
}

static void encode(const struct vvi_entry *e, enum record_kind kind, char *to)
{
    size_t bytes = record_bytes(e, kind);
    struct record r = {.magic = RECORD_MAGIC, .bytes = (uint32_t)bytes, .kind = kind, .id = e->id};

    memset(to, 0, bytes);
    if (!is_short(kind)) {
        r.path_bytes = (uint32_t)strlen(e->path);
        r.size = e->gen.size;
        r.mtime_ns = e->gen.mtime_ns;
        r.ctime_ns = e->gen.ctime_ns;
        r.inode = e->gen.inode;
        r.content_sum = e->sum;
        memcpy(to + sizeof(r), e->path, r.path_bytes);
    }
    memcpy(to, &r, sizeof(r));
    r.sum = vv_hash64(to + sizeof(r.sum), bytes - sizeof(r.sum));
    memcpy(to, &r.sum, sizeof(r.sum));
}

/* The whole manifest in memory. */
static char *encode_all(struct vv_dataset *d, uint64_t *ret_bytes, uint64_t *ret_records)
{
    struct header h = {.magic = MAGIC, .format = FORMAT};
    uint64_t bytes = sizeof(h), records = 0;
    char *buf;

    h.sum = vv_hash64(&h, offsetof(struct header, sum));
    vv_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->nr; i++)
        if (belongs(d->all[i]))
            bytes += record_bytes(d->all[i], kind_of(d->all[i]));
    buf = malloc(bytes);
    if (buf) {
        char *to = buf + sizeof(h);

        memcpy(buf, &h, sizeof(h));
        for (size_t i = 0; i < d->nr; i++) {
            if (!belongs(d->all[i]))
                continue;
            encode(d->all[i], kind_of(d->all[i]), to);
            to += record_bytes(d->all[i], kind_of(d->all[i]));
            records++;
        }
    }
    vv_mutex_unlock(&d->lock);
    *ret_bytes = bytes;
    *ret_records = records;
    return buf;
}

static void close_fd(struct vv_dataset *d)
{
    if (d->manifest.fd >= 0)
        d->os->close(d->os, d->manifest.fd);
    d->manifest.fd = -1;
}

void vvi_manifest_forget_locked(struct vv_dataset *d)
{
    close_fd(d);
    d->manifest.bytes = d->manifest.records = d->manifest.gone = 0;
}

static void rewrite_locked(struct vv_dataset *d)
{
    struct vvi_manifest *m = &d->manifest;
    uint64_t bytes, records;
    char *buf = encode_all(d, &bytes, &records);
    int fd = -ENOMEM, rc;

    /* Make a new file, so that nothing is written through a link, or into a file, that another user left. */
    if (buf) {
        (void)d->os->unlinkat(d->os, d->dirfd, "manifest.tmp");
        fd = d->os->openat(d->os, d->dirfd, "manifest.tmp", O_RDWR | O_CREAT | O_EXCL, 0600);
    }
    rc = fd < 0 ? fd : vv_os_write_all(d->os, fd, buf, bytes, 0);
    free(buf);
    if (rc == 0)
        rc = d->os->rename(d->os, d->dirfd, "manifest.tmp", "manifest", true);
    close_fd(d);
    if (rc < 0) {
        if (fd >= 0) {
            d->os->close(d->os, fd);
            (void)d->os->unlinkat(d->os, d->dirfd, "manifest.tmp");
        }
        vv_log(VV_LOG_WARNING, "dataset: cannot write the manifest: %s", strerror(-rc));
        return;
    }
    m->fd = fd;
    m->bytes = bytes;
    m->records = records;
    m->gone = 0;
}

static void add(struct vv_dataset *d, enum record_kind kind, const struct vvi_entry *e)
{
    struct vvi_manifest *m = &d->manifest;
    size_t bytes = record_bytes(e, kind);
    char buf[sizeof(struct record) + VV_DATASET_PATH_MAX + 8];
    int rc;

    vv_assert(vv_mutex_held(&m->lock));
    if (m->fd < 0 || (m->records > REWRITE_MIN && m->gone > m->records / 2)) {
        rewrite_locked(d); /* the state of the entry is in it */
        return;
    }
    encode(e, kind, buf);
    rc = vv_os_write_all(d->os, m->fd, buf, bytes, m->bytes);
    if (rc < 0) {
        vv_log(VV_LOG_WARNING, "dataset: cannot add to the manifest: %s", strerror(-rc));
        close_fd(d);
        return;
    }
    m->bytes += bytes;
    m->records++;
    m->gone +=
        kind == RECORD_GONE ? 2 : kind == RECORD_OWN; /* the record, and the one that it ends */
}

void vvi_manifest_list_locked(struct vv_dataset *d, struct vvi_entry *e)
{
    add(d, kind_of(e), e);
    e->listed = true;
}

void vvi_manifest_unlist_locked(struct vv_dataset *d, struct vvi_entry *e)
{
    if (e->listed)
        add(d, RECORD_GONE, e);
    e->listed = false;
}

void vvi_manifest_own_locked(struct vv_dataset *d, struct vvi_entry *e)
{
    if (e->listed)
        add(d, RECORD_OWN, e);
}

void vvi_manifest_close(struct vv_dataset *d)
{
    vv_mutex_lock(&d->manifest.lock);
    /* Try once more: without a manifest the next run begins with no files. */
    if (d->manifest.fd < 0 && d->lock_fd >= 0 && d->stats.files > 0)
        rewrite_locked(d);
    close_fd(d);
    vv_mutex_unlock(&d->manifest.lock);
}

/* ---- reading ---- */

/* State of loading, sorted by id. */
struct loading {
    struct vv_dataset *d;
    struct vvi_entry **entry; /* of the records: in their order while reading, then sorted by id */
    bool *present;            /* the folder has its file */
    size_t nr, room;
    uint64_t *gone; /* ids whose records were ended by later records */
    size_t nr_gone, room_gone;
    uint64_t *own; /* ids of copies that are now kept */
    size_t nr_own, room_own;
    uint64_t *orphan; /* of files without a record: twice the id, plus 1 for a temporary file */
    size_t nr_orphans, room_orphans;
    uint64_t highest;
    bool damaged; /* a part of the manifest could not be read */
};

static int push(uint64_t **list, size_t *nr, size_t *room, uint64_t value)
{
    if (*nr == *room) {
        size_t more = *room ? 2 * *room : 64;
        uint64_t *grown = realloc(*list, more * sizeof(**list));

        if (!grown)
            return -ENOMEM;
        *list = grown;
        *room = more;
    }
    (*list)[(*nr)++] = value;
    return 0;
}

static int push_entry(struct loading *l, struct vvi_entry *e)
{
    if (l->nr == l->room) {
        size_t room = l->room ? 2 * l->room : 256;
        struct vvi_entry **entry = realloc(l->entry, room * sizeof(struct vvi_entry *));

        if (!entry)
            return -ENOMEM;
        l->entry = entry;
        l->room = room;
    }
    l->entry[l->nr++] = e;
    return 0;
}

static bool is_sound(const struct record *r, const char *at, uint64_t left)
{
    return r->magic == RECORD_MAGIC && r->bytes >= sizeof(*r) && r->bytes <= left &&
           r->bytes % 8 == 0 && r->path_bytes <= r->bytes - sizeof(*r) &&
           r->path_bytes <= VV_DATASET_PATH_MAX && r->id <= UINT64_MAX / 4 &&
           r->size <= UINT64_MAX / 4 &&
           r->sum == vv_hash64(at + sizeof(r->sum), r->bytes - sizeof(r->sum));
}

static int parse_record(struct loading *l, const char *at, uint64_t left, struct record *r)
{
    struct vv_dataset_gen gen;
    char path[VV_DATASET_PATH_MAX + 1];
    struct vvi_entry *e;
    int rc;

    if (left < sizeof(*r))
        return -EBADMSG;
    memcpy(r, at, sizeof(*r));
    if (!is_sound(r, at, left))
        return -EBADMSG;
    l->highest = VV_MAX(l->highest, r->id);
    if (r->kind == RECORD_GONE)
        return push(&l->gone, &l->nr_gone, &l->room_gone, r->id);
    if (r->kind == RECORD_OWN)
        return push(&l->own, &l->nr_own, &l->room_own, r->id);
    memcpy(path, at + sizeof(*r), r->path_bytes);
    path[r->path_bytes] = '\0';
    if (r->kind < RECORD_CACHED || r->kind > RECORD_COPY_SEALED || r->path_bytes == 0 ||
        strlen(path) != r->path_bytes)
        return -EBADMSG;
    gen = (struct vv_dataset_gen){r->size, r->mtime_ns, r->ctime_ns, r->inode};
    e = vvi_dataset_entry_new(path, &gen);
    if (!e)
        return -ENOMEM;
    e->id = r->id;
    e->sum = r->content_sum;
    e->sealed = r->kind == RECORD_SEALED || r->kind == RECORD_COPY_SEALED;
    e->copy = r->kind == RECORD_COPY || r->kind == RECORD_COPY_SEALED;
    e->space = vvi_dataset_space(r->size, e->sealed);
    e->listed = true;
    rc = push_entry(l, e);
    if (rc < 0)
        vvi_dataset_entry_free(e);
    return rc;
}

/* Reads records up to the first invalid one. */
static int parse(struct loading *l, const char *buf, uint64_t bytes)
{
    struct vvi_manifest *m = &l->d->manifest;
    struct header h;

    m->bytes = 0;
    if (bytes < sizeof(h))
        return -EBADMSG;
    memcpy(&h, buf, sizeof(h));
    if (memcmp(h.magic, MAGIC, sizeof(h.magic)) != 0 || h.format != FORMAT ||
        h.sum != vv_hash64(&h, offsetof(struct header, sum)))
        return -EBADMSG;
    for (m->bytes = sizeof(h); m->bytes < bytes;) {
        struct record r;
        int rc = parse_record(l, buf + m->bytes, bytes - m->bytes, &r);

        if (rc < 0)
            return rc;
        m->bytes += r.bytes;
        m->records++;
        m->gone += r.kind == RECORD_GONE ? 2 : r.kind == RECORD_OWN;
    }
    return 0;
}

static int read_manifest(struct loading *l)
{
    struct vv_dataset *d = l->d;
    int fd = d->os->openat(d->os, d->dirfd, "manifest", O_RDWR | O_NOFOLLOW, 0), rc;
    char *buf = NULL, why[512];
    uint64_t bytes = 0;

    if (fd < 0) {
        l->damaged = true;
        return fd == -ENOMEM || fd == -EMFILE || fd == -ENFILE ? fd : 0;
    }
    if (vv_ours_file(fd, "manifest", why, sizeof(why)) < 0) {
        vv_log(VV_LOG_WARNING, "dataset: the cache begins empty: %s", why);
        d->os->close(d->os, fd);
        l->damaged = true;
        return 0;
    }
    rc = d->os->file_bytes(d->os, fd, &bytes);
    if (rc == 0 && bytes > BYTES_MAX)
        rc = -EBADMSG;
    if (rc == 0) {
        buf = malloc(VV_MAX(bytes, UINT64_C(1)));
        rc = buf ? vv_os_read_all(d->os, fd, buf, bytes, 0) : -ENOMEM;
    }
    if (rc == 0)
        rc = parse(l, buf, bytes);
    free(buf);
    d->manifest.fd = fd;
    if (rc == -ENOMEM)
        return rc;
    l->damaged = rc < 0;
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const struct vvi_entry *x = *(struct vvi_entry *const *)a, *y = *(struct vvi_entry *const *)b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static size_t find_id(const struct loading *l, uint64_t id)
{
    size_t lo = 0, n = l->nr;

    while (n > 0) {
        size_t half = n / 2;

        if (l->entry[lo + half]->id < id) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return lo < l->nr && l->entry[lo]->id == id ? lo : SIZE_MAX;
}

/* "0123456789abcdef.data" or ".tmp"; other names are not ours. */
static bool parse_name(const char *name, uint64_t *ret_id, bool *ret_temp)
{
    char want[VVI_DATASET_NAME];
    unsigned long long id;

    if (strlen(name) < 17 || sscanf(name, "%16llx.", &id) != 1)
        return false;
    for (int temp = 0; temp < 2; temp++) {
        vvi_dataset_name(want, id, temp);
        if (strcmp(want, name) == 0) {
            *ret_id = id;
            *ret_temp = temp;
            return true;
        }
    }
    return false;
}

static int see_file(void *user, const char *name)
{
    struct loading *l = user;
    uint64_t id;
    size_t at;
    bool temp;

    if (!parse_name(name, &id, &temp) || id > UINT64_MAX / 4)
        return 0;
    l->highest = VV_MAX(l->highest, id);
    at = temp ? SIZE_MAX : find_id(l, id);
    if (at != SIZE_MAX) {
        l->present[at] = true;
        return 0;
    }
    return push(&l->orphan, &l->nr_orphans, &l->room_orphans, 2 * id + temp);
}

/* Sorts the entries and removes those whose records were ended. */
static void settle(struct loading *l)
{
    size_t n = 0;

    if (l->nr > 0)
        qsort(l->entry, l->nr, sizeof(struct vvi_entry *), by_id);
    for (size_t i = 0; i < l->nr_gone; i++) {
        size_t at = find_id(l, l->gone[i]);

        if (at != SIZE_MAX)
            l->entry[at]->listed = false;
    }
    for (size_t i = 0; i < l->nr_own; i++) {
        size_t at = find_id(l, l->own[i]);

        if (at != SIZE_MAX)
            l->entry[at]->copy = false;
    }
    for (size_t i = 0; i < l->nr; i++) {
        if (l->entry[i]->listed)
            l->entry[n++] = l->entry[i];
        else
            vvi_dataset_entry_free(l->entry[i]);
    }
    l->nr = n;
}

/* If a file cannot be removed, opening fails: it is not counted, and could fill the disk. */
static int remove_orphans(struct loading *l)
{
    struct vv_dataset *d = l->d;

    for (size_t i = 0; i < l->nr_orphans; i++) {
        char name[VVI_DATASET_NAME];
        int rc;

        vvi_dataset_name(name, l->orphan[i] / 2, l->orphan[i] % 2);
        rc = d->os->unlinkat(d->os, d->dirfd, name);
        if (rc < 0 && rc != -ENOENT)
            return rc;
    }
    return 0;
}

/* Nanoseconds since 1970: no run makes more than one file per nanosecond, so a later run begins with a larger id. Ids
 * have 62 bits. */
static uint64_t first_id(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return ((uint64_t)ts.tv_sec * VV_NS_PER_S + (uint64_t)ts.tv_nsec) & (UINT64_MAX / 4);
}

/* Adds entries whose files are there to the table. The newest of a path can be handed out. */
static int fill_table(struct loading *l)
{
    struct vv_dataset *d = l->d;
    int rc = 0;

    vv_mutex_lock(&d->lock);
    d->next_id = VV_MAX(l->highest + 1, first_id());
    for (size_t i = l->nr; i-- > 0 && rc == 0;) {
        struct vvi_entry *e = l->entry[i];
        bool newer;

        if (!l->present[i])
            continue;
        newer = vvi_dataset_find_locked(d, e->path) != NULL;
        e->state = DATASET_READY;
        rc = vvi_dataset_add_locked(d, e);
        if (rc < 0)
            break;
        l->entry[i] = NULL;
        vvi_dataset_used_locked(d, (int64_t)e->space);
        if (newer) {
            e->doomed = true;
            vvi_dataset_set_state_locked(d, e, DATASET_DOOMED);
        }
    }
    vv_mutex_unlock(&d->lock);
    return rc;
}

int vvi_manifest_load(struct vv_dataset *d)
{
    struct loading l = {.d = d};
    int rc;

    vv_mutex_lock(&d->manifest.lock);
    rc = read_manifest(&l);
    if (rc == 0) {
        settle(&l);
        l.present = calloc(VV_MAX(l.nr, (size_t)1), sizeof(*l.present));
        rc = l.present ? d->os->list(d->os, d->dirfd, see_file, &l) : -ENOMEM;
    }
    if (rc == 0)
        rc = remove_orphans(&l);
    if (rc == 0)
        rc = fill_table(&l);
    if (rc == 0 && l.damaged)
        rewrite_locked(d);
    vv_mutex_unlock(&d->manifest.lock);
    for (size_t i = 0; i < l.nr; i++)
        vvi_dataset_entry_free(l.entry[i]);
    free(l.entry);
    free(l.present);
    free(l.gone);
    free(l.own);
    free(l.orphan);
    if (rc == 0)
        vvi_dataset_bury(d);
    return rc;
}
