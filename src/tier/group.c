/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement through a shared folder.
 *
 * A rank that has its file of a version in the shared folder, for good, leaves a marker. Whoever
 * sees the markers of all ranks writes the group record. What it writes follows from the markers
 * alone, so that it does not matter who does it, how many at once, or how often. From then on the
 * version is complete.
 *
 * Markers carry the id of their run in their name, and a record is made of the markers of one run:
 * two lives of a version number cannot be mixed. There is one record for each version. One of a
 * later life replaces it, never the other way round: generations of a rank grow from life to life
 * (the life file sees to that, see remote.c), and the generation of rank 0 tells which came later.
 *
 * The last rank to leave its marker finds all the others: it looks after its own marker is there
 * for good, and so did they. A rank that dies in between leaves all markers behind; then the next
 * one that looks, or opens the history, writes the record.
 *
 * A record that is there but damaged says at least that the version was complete. Its markers may be
 * gone by then, but the files are not, and they tell run, generation and checksum: with one file of
 * the same run for each rank the record is written anew. */
#define _GNU_SOURCE
#include "tier/group.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "tier/ckcopy.h"

enum { NAME_MAX_BYTES = 80 };

/* ---- names ---- */

static void marker_name(char name[NAME_MAX_BYTES], uint64_t version, uint64_t run_id, uint32_t rank)
{
    snprintf(name, NAME_MAX_BYTES, "v%" PRIu64 ".x%016" PRIx64 ".r%" PRIu32 ".mark", version,
             run_id, rank);
}

static void record_name(char name[NAME_MAX_BYTES], uint64_t version)
{
    snprintf(name, NAME_MAX_BYTES, "v%" PRIu64 ".group", version);
}

static bool parse_record(const char *name, uint64_t *ret_version)
{
    char again[NAME_MAX_BYTES];
    if (sscanf(name, "v%" SCNu64 ".group", ret_version) != 1)
        return false;
    record_name(again, *ret_version);
    return strcmp(name, again) == 0;
}

static bool parse_marker(const char *name, uint64_t *ret_version, uint64_t *ret_run,
                         uint32_t *ret_rank)
{
    char again[NAME_MAX_BYTES];
    if (sscanf(name, "v%" SCNu64 ".x%" SCNx64 ".r%" SCNu32 ".mark", ret_version, ret_run,
               ret_rank) != 3)
        return false;
    marker_name(again, *ret_version, *ret_run, *ret_rank);
    return strcmp(name, again) == 0;
}

/* ---- small files ---- */

static int write_file(const struct vv_group *g, const char *name, const void *bytes, size_t n)
{
    const struct vv_os *os = g->os;
    char temp[NAME_MAX_BYTES];
    snprintf(temp, sizeof(temp), "rank%" PRIu32 ".tmp", g->rank);
    int fd = os->openat(os, g->dirfd, temp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        return fd;
    int rc = vv_os_write_all(os, fd, bytes, n, 0);
    if (rc == 0)
        rc = os->fsync(os, fd);
    os->close(os, fd);
    if (rc == 0)
        rc = os->rename(os, g->dirfd, temp, name, true);
    if (rc == 0)
        return os->fsync(os, g->dirfd);
    os->unlinkat(os, g->dirfd, temp);
    return rc;
}

/* Up to `max` bytes; the whole file if it has no more. */
static int read_file(const struct vv_group *g, const char *name, size_t max, void **ret_bytes,
                     size_t *ret_n)
{
    const struct vv_os *os = g->os;
    uint64_t n = 0;
    int fd = os->openat(os, g->dirfd, name, O_RDONLY, 0);
    if (fd < 0)
        return fd;
    void *bytes = NULL;
    int rc = os->file_bytes(os, fd, &n);
    if (rc == 0 && (n == 0 || n > max))
        rc = -EBADMSG;
    if (rc == 0) {
        bytes = malloc(n);
        rc = bytes == NULL ? -ENOMEM : vv_os_read_all(os, fd, bytes, n, 0);
    }
    os->close(os, fd);
    if (rc < 0) {
        free(bytes);
        return rc == -ENODATA ? -EBADMSG : rc;
    }
    *ret_bytes = bytes;
    *ret_n = n;
    return 0;
}

/* A file of one structure that ends in its checksum. */
static int read_fixed(const struct vv_group *g, const char *name, const char magic[8], void *ret,
                      size_t n)
{
    void *bytes;
    size_t got;
    int rc = read_file(g, name, n, &bytes, &got);
    if (rc < 0)
        return rc;
    uint64_t sum;
    uint32_t format;
    if (got == n) {
        memcpy(&sum, (char *)bytes + n - sizeof(sum), sizeof(sum));
        memcpy(&format, (char *)bytes + 8, sizeof(format));
    }
    if (got != n || memcmp(bytes, magic, 8) != 0 || format != VV_GROUP_FORMAT ||
        sum != vv_hash64(bytes, n - sizeof(sum)))
        rc = -EBADMSG;
    else
        memcpy(ret, bytes, n);
    free(bytes);
    return rc;
}

/* ---- opening ---- */

int vv_group_open(const struct vv_os *os, int history_fd, const char *history, uint32_t rank,
                  uint32_t ranks, bool create, struct vv_group *ret_group)
{
    int rc = 0;
    if (create) {
        rc = os->mkdirat(os, history_fd, VV_GROUP_FOLDER, 0777);
        /* Also if it was there: who made it may have been cut off before this. */
        if (rc == 0 || rc == -EEXIST)
            rc = os->fsync(os, history_fd);
    }
    if (rc < 0)
        return rc;
    int fd = os->openat(os, history_fd, VV_GROUP_FOLDER, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fd;
    *ret_group = (struct vv_group){.os = os,
                                   .dirfd = fd,
                                   .history_fd = history_fd,
                                   .rank = rank,
                                   .ranks = ranks,
                                   .history_sum = vv_hash64(history, strlen(history))};
    return 0;
}

void vv_group_close(struct vv_group *group)
{
    if (group->dirfd >= 0)
        group->os->close(group->os, group->dirfd);
    group->dirfd = -1;
}

/* ---- reading ---- */

void vv_group_record_fini(struct vv_group_record *record)
{
    free(record->file);
    record->file = NULL;
}

static size_t record_bytes(uint32_t ranks)
{
    return sizeof(struct vv_group_header) + (size_t)ranks * sizeof(struct vv_group_file) +
           sizeof(uint64_t);
}

int vv_group_read_record(const struct vv_group *g, uint64_t version,
                         struct vv_group_record *ret_record)
{
    char name[NAME_MAX_BYTES];
    void *bytes;
    size_t n;
    struct vv_group_header h;
    uint64_t sum;
    record_name(name, version);
    int rc = read_file(g, name, record_bytes(VV_GROUP_RANKS_MAX), &bytes, &n);
    if (rc < 0)
        return rc;
    rc = -EBADMSG;
    if (n < record_bytes(1))
        goto out;
    memcpy(&h, bytes, sizeof(h));
    memcpy(&sum, (char *)bytes + n - sizeof(sum), sizeof(sum));
    if (memcmp(h.magic, VV_GROUP_RECORD_MAGIC, 8) != 0 || h.format != VV_GROUP_FORMAT ||
        h.ranks == 0 || h.ranks > VV_GROUP_RANKS_MAX || n != record_bytes(h.ranks) ||
        h.version != version || h.history_sum != g->history_sum ||
        sum != vv_hash64(bytes, n - sizeof(sum)))
        goto out;
    struct vv_group_record r = {.version = version, .run_id = h.run_id, .ranks = h.ranks};
    r.file = malloc(h.ranks * sizeof(*r.file));
    rc = r.file == NULL ? -ENOMEM : 0;
    if (rc == 0) {
        memcpy(r.file, (char *)bytes + sizeof(h), h.ranks * sizeof(*r.file));
        *ret_record = r;
    }
out:
    free(bytes);
    return rc;
}

int vv_group_read_marker(const struct vv_group *g, uint64_t version, uint64_t run_id, uint32_t rank,
                         struct vv_group_marker *ret_marker)
{
    char name[NAME_MAX_BYTES];
    struct vv_group_marker m;
    marker_name(name, version, run_id, rank);
    int rc = read_fixed(g, name, VV_GROUP_MARKER_MAGIC, &m, sizeof(m));
    if (rc == 0 && (m.rank != rank || m.version != version || m.run_id != run_id ||
                    m.history_sum != g->history_sum || m.ranks == 0 || rank >= m.ranks))
        rc = -EBADMSG;
    if (rc == 0)
        *ret_marker = m;
    return rc;
}

static void life_name(const struct vv_group *g, char name[NAME_MAX_BYTES])
{
    snprintf(name, NAME_MAX_BYTES, "life.%" PRIu32, g->rank);
}

int vv_group_read_life(const struct vv_group *g, struct vv_group_life *ret_life)
{
    char name[NAME_MAX_BYTES];
    struct vv_group_life life;
    life_name(g, name);
    int rc = read_fixed(g, name, VV_GROUP_LIFE_MAGIC, &life, sizeof(life));
    if (rc == 0 && (life.rank != g->rank || life.history_sum != g->history_sum))
        rc = -EBADMSG;
    if (rc == 0)
        *ret_life = life;
    return rc;
}

/* ---- writing ---- */

int vv_group_write_marker(const struct vv_group *g, uint64_t version, uint64_t run_id,
                          const struct vv_group_file *file)
{
    char name[NAME_MAX_BYTES];
    struct vv_group_marker m = {.format = VV_GROUP_FORMAT,
                                .rank = g->rank,
                                .ranks = g->ranks,
                                .version = version,
                                .run_id = run_id,
                                .history_sum = g->history_sum,
                                .file = *file};
    memcpy(m.magic, VV_GROUP_MARKER_MAGIC, sizeof(m.magic));
    m.sum = vv_hash64(&m, offsetof(struct vv_group_marker, sum));
    marker_name(name, version, run_id, g->rank);
    return write_file(g, name, &m, sizeof(m));
}

int vv_group_write_life(const struct vv_group *g, uint64_t run_id, uint64_t first_generation)
{
    char name[NAME_MAX_BYTES];
    struct vv_group_life life = {.format = VV_GROUP_FORMAT,
                                 .rank = g->rank,
                                 .run_id = run_id,
                                 .first_generation = first_generation,
                                 .next_generation = first_generation + VV_GROUP_LIFE_GENERATIONS,
                                 .history_sum = g->history_sum};
    memcpy(life.magic, VV_GROUP_LIFE_MAGIC, sizeof(life.magic));
    life.sum = vv_hash64(&life, offsetof(struct vv_group_life, sum));
    life_name(g, name);
    return write_file(g, name, &life, sizeof(life));
}

static int write_record(const struct vv_group *g, const struct vv_group_record *r)
{
    char name[NAME_MAX_BYTES];
    size_t n = record_bytes(r->ranks);
    char *bytes = malloc(n);
    if (bytes == NULL)
        return -ENOMEM;
    struct vv_group_header h = {.format = VV_GROUP_FORMAT,
                                .ranks = r->ranks,
                                .version = r->version,
                                .run_id = r->run_id,
                                .history_sum = g->history_sum};
    memcpy(h.magic, VV_GROUP_RECORD_MAGIC, sizeof(h.magic));
    memcpy(bytes, &h, sizeof(h));
    memcpy(bytes + sizeof(h), r->file, r->ranks * sizeof(*r->file));
    uint64_t sum = vv_hash64(bytes, n - sizeof(sum));
    memcpy(bytes + n - sizeof(sum), &sum, sizeof(sum));
    record_name(name, r->version);
    int rc = write_file(g, name, bytes, n);
    free(bytes);
    return rc;
}

static int unlink_if_there(const struct vv_group *g, const char *name, bool *ret_any)
{
    int rc = g->os->unlinkat(g->os, g->dirfd, name);
    *ret_any |= rc == 0;
    return rc == -ENOENT ? 0 : rc;
}

int vv_group_retract(const struct vv_group *g, uint64_t version, uint64_t run_id,
                     uint64_t generation)
{
    char name[NAME_MAX_BYTES];
    struct vv_group_record r;
    bool any = false;
    /* The marker first: with the record gone and all markers there, anybody would write it again. */
    marker_name(name, version, run_id, g->rank);
    int rc = unlink_if_there(g, name, &any);
    if (rc < 0)
        return rc;
    rc = vv_group_read_record(g, version, &r);
    if (rc == 0) {
        bool names_it = g->rank < r.ranks && (run_id == 0 || r.run_id == run_id) &&
                        r.file[g->rank].generation == generation;
        vv_group_record_fini(&r);
        record_name(name, version);
        if (names_it)
            rc = unlink_if_there(g, name, &any);
    } else if (rc == -EBADMSG) {
        record_name(name, version); /* of no use to anybody */
        rc = unlink_if_there(g, name, &any);
    } else if (rc == -ENOENT) {
        rc = 0;
    }
    /* Also if nothing was there: an earlier try may have failed here. */
    return rc < 0 ? rc : g->os->fsync(g->os, g->dirfd);
}

void vv_group_drop_marker(const struct vv_group *g, uint64_t version, uint64_t run_id)
{
    char name[NAME_MAX_BYTES];
    marker_name(name, version, run_id, g->rank);
    (void)g->os->unlinkat(g->os, g->dirfd, name);
}

/* ---- completing ---- */

struct count {
    uint64_t version, run_id, n;
};

static int count_marker(void *user, const char *name)
{
    struct count *c = user;
    uint64_t version, run_id;
    uint32_t rank;
    c->n += parse_marker(name, &version, &run_id, &rank) && version == c->version &&
            run_id == c->run_id;
    return 0;
}

/* Reads the markers of all ranks: -EAGAIN until all of them are there. The folder is listed first:
 * one request where there would be one for each rank, and on NFS what makes the client forget that a
 * name was not there when it last looked. */
static int gather(const struct vv_group *g, uint64_t version, uint64_t run_id,
                  struct vv_group_record *ret_record)
{
    struct vv_group_marker m;
    struct vv_group_record r = {.version = version, .run_id = run_id};
    struct count count = {.version = version, .run_id = run_id};
    int rc = g->os->list(g->os, g->dirfd, count_marker, &count);
    /* The number of ranks is the markers' own: a folder may be looked at by anybody. */
    if (rc == 0)
        rc = vv_group_read_marker(g, version, run_id, 0, &m);
    if (rc == 0 && count.n < m.ranks)
        rc = -EAGAIN;
    if (rc == 0) {
        r.ranks = m.ranks;
        r.file = calloc(m.ranks, sizeof(*r.file));
        rc = r.file == NULL ? -ENOMEM : 0;
    }
    for (uint32_t rank = 0; rc == 0 && rank < r.ranks; rank++) {
        if (rank > 0)
            rc = vv_group_read_marker(g, version, run_id, rank, &m);
        if (rc == 0 && m.ranks != r.ranks)
            rc = -ERANGE;
        if (rc == 0)
            r.file[rank] = m.file;
    }
    if (rc < 0) {
        vv_group_record_fini(&r);
        return rc == -ENOENT ? -EAGAIN : rc;
    }
    *ret_record = r;
    return 0;
}

int vv_group_complete(const struct vv_group *g, uint64_t version, uint64_t run_id, bool sweep)
{
    struct vv_group_record old = {0}, r;
    int there = vv_group_read_record(g, version, &old);
    if (there < 0 && there != -ENOENT && there != -EBADMSG)
        return there;
    if (there == 0 && old.run_id == run_id) {
        vv_group_record_fini(&old);
        /* Who wrote it may be cut off before the folder is synced, and what the caller does next,
         * taking its marker away, must not outlive the record. */
        return g->os->fsync(g->os, g->dirfd);
    }
    int rc = sweep ? gather(g, version, run_id, &r) : -EAGAIN;
    if (rc == 0) {
        bool stale = there == 0 && old.file[0].generation > r.file[0].generation;
        rc = stale ? -ECANCELED : write_record(g, &r);
        vv_group_record_fini(&r);
    }
    vv_group_record_fini(&old);
    return rc;
}

/* ---- all of a folder ---- */

struct named {
    uint64_t version, run_id;
};

struct listing {
    struct named *v;
    size_t n, room;
    bool markers; /* those of rank 0, otherwise records */
};

static int list_name(void *user, const char *name)
{
    struct listing *l = user;
    struct named x = {0};
    uint32_t rank = 0;
    if (l->markers ? !parse_marker(name, &x.version, &x.run_id, &rank) || rank != 0
                   : !parse_record(name, &x.version))
        return 0;
    if (l->n == l->room) {
        size_t room = VV_MAX(2 * l->room, (size_t)64);
        struct named *more = realloc(l->v, room * sizeof(*more));
        if (more == NULL)
            return -ENOMEM;
        l->v = more;
        l->room = room;
    }
    l->v[l->n++] = x;
    return 0;
}

static int compare_named(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    return x->version < y->version ? -1 : x->version > y->version;
}

static int list(const struct vv_group *g, bool markers, struct listing *ret)
{
    struct listing l = {.markers = markers};
    int rc = g->os->list(g->os, g->dirfd, list_name, &l);
    if (rc < 0) {
        free(l.v);
        return rc;
    }
    if (l.n > 1)
        qsort(l.v, l.n, sizeof(*l.v), compare_named);
    *ret = l;
    return 0;
}

/* All markers there and no record: whoever saw the last of them was cut off. */
static int finish_records(const struct vv_group *g)
{
    struct listing l = {0};
    int rc = list(g, true, &l);
    for (size_t i = 0; rc == 0 && i < l.n; i++) {
        rc = vv_group_complete(g, l.v[i].version, l.v[i].run_id, true);
        if (rc == -EAGAIN || rc == -ECANCELED || rc == -ERANGE || rc == -EBADMSG)
            rc = 0;
    }
    free(l.v);
    return rc;
}

/* ---- a record from the files ---- */

struct candidate {
    uint64_t run_id;
    uint32_t rank;
    struct vv_group_file file;
};

struct candidates {
    const struct vv_group *group;
    uint64_t version;
    struct candidate *v;
    size_t n, room;
};

static int list_candidate(void *user, const char *name)
{
    struct candidates *c = user;
    struct candidate x = {0};
    enum vv_ckfile_kind kind;
    uint64_t version;
    if (!vv_ckfile_parse_name(name, &kind, &x.rank, &version, &x.file.generation) ||
        kind != VV_CKFILE_COMMITTED || version != c->version || x.rank >= c->group->ranks)
        return 0;
    int rc = vvi_copy_identify(c->group->os, c->group->history_fd, name, &x.run_id, &x.file);
    if (rc < 0)
        return rc == -ENOMEM ? rc : 0; /* of no use */
    if (c->n == c->room) {
        size_t room = VV_MAX(2 * c->room, (size_t)16);
        struct candidate *more = realloc(c->v, room * sizeof(*more));
        if (more == NULL)
            return -ENOMEM;
        c->v = more;
        c->room = room;
    }
    c->v[c->n++] = x;
    return 0;
}

/* The files of one run; false: not all ranks have one. */
static bool choose_files(const struct candidates *c, uint64_t run_id, struct vv_group_file *files)
{
    uint32_t ranks = c->group->ranks, found = 0;
    memset(files, 0, ranks * sizeof(*files));
    for (size_t i = 0; i < c->n; i++) {
        const struct candidate *x = &c->v[i];
        if (x->run_id != run_id || x->file.generation < files[x->rank].generation)
            continue;
        found += files[x->rank].file_bytes == 0;
        files[x->rank] = x->file;
    }
    return found == ranks;
}

static int rebuild(const struct vv_group *g, uint64_t version)
{
    struct candidates c = {.group = g, .version = version};
    struct vv_group_record r = {.version = version, .ranks = g->ranks};
    uint64_t best = 0;
    bool any = false;
    int rc = g->os->list(g->os, g->history_fd, list_candidate, &c);
    r.file = calloc(g->ranks, sizeof(*r.file));
    if (rc == 0 && r.file == NULL)
        rc = -ENOMEM;
    /* Of two runs that all ranks have files of, the later one. */
    for (size_t i = 0; rc == 0 && i < c.n; i++) {
        const struct candidate *x = &c.v[i];
        if (x->rank == 0 && x->file.generation >= best && choose_files(&c, x->run_id, r.file)) {
            best = x->file.generation;
            r.run_id = x->run_id;
            any = true;
        }
    }
    if (rc == 0 && any)
        rc = choose_files(&c, r.run_id, r.file) ? write_record(g, &r) : -EBADMSG;
    free(c.v);
    vv_group_record_fini(&r);
    return rc < 0 ? rc : any ? 0 : -EBADMSG;
}

int vv_group_scan(const struct vv_group *g, bool write,
                  int (*visit)(void *user, const struct vv_group_record *record, int error),
                  void *user)
{
    struct listing l = {0};
    int rc = write ? finish_records(g) : 0;
    if (rc == 0)
        rc = list(g, false, &l);
    for (size_t i = 0; rc == 0 && i < l.n; i++) {
        struct vv_group_record r = {.version = l.v[i].version};
        int error = vv_group_read_record(g, l.v[i].version, &r);
        if (error == -EBADMSG && write && rebuild(g, l.v[i].version) == 0)
            error = vv_group_read_record(g, l.v[i].version, &r);
        if (error == -ENOENT)
            continue; /* it went away meanwhile */
        rc = error == -ENOMEM ? error : visit(user, &r, error);
        vv_group_record_fini(&r);
    }
    free(l.v);
    return rc;
}
