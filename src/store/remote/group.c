/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement through a shared folder.
 *
 * A rank whose file of a version is durable in the shared folder leaves a marker. A rank that finds the markers of
 * all ranks writes the group record. The record follows from the markers alone, so that it does not matter which
 * ranks write it, how many at once, or how often. From then on the version is complete.
 *
 * Markers and records carry the id of their run in their name, and a record is made from the markers of one run: two
 * lives of a version number cannot be mixed. Of several records of a version the one of the latest life counts:
 * generations of a rank grow from life to life (by the life file, see remote.c), and the generation of rank 0 shows
 * which record is later. No record ever replaces another, so a late one, written by a slow rank or one whose life
 * has ended, undoes nothing.
 *
 * The last rank to leave its marker finds all the others, because each rank looks for markers when its own is
 * durable. If that rank dies before it looks, all markers exist; the next rank that looks, or opens the history,
 * writes the record.
 *
 * A rank that removes its file first announces that, by an empty file (`gone`): from then on no record of that
 * version and run counts. Without it, another rank that has seen all markers could write a record afterwards that
 * names a missing file, because seeing the markers and writing the record are two steps. The announcement is deleted
 * once no marker of that version and run is left, since then no rank can be about to write.
 *
 * If a later life of the same rank has begun (the lock was lost, or the file system has none), the earlier life sees
 * that in the life file before it writes or removes anything: -ECANCELED. A step that it has already begun uses other
 * names than anything of the later life. */
#define _GNU_SOURCE
#include "store/remote/group_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define NAME_MAX_BYTES VVI_GROUP_NAME_MAX

/* ---- names ---- */

void vvi_group_format(const struct vvi_group_name *n, char name[NAME_MAX_BYTES])
{
    switch (n->kind) {
    case VVI_GROUP_MARKER:
    case VVI_GROUP_GONE:
        snprintf(name, NAME_MAX_BYTES, "v%" PRIu64 ".x%016" PRIx64 ".r%" PRIu32 ".%s", n->version,
                 n->run_id, n->rank, n->kind == VVI_GROUP_MARKER ? "mark" : "gone");
        break;
    case VVI_GROUP_RECORD:
        snprintf(name, NAME_MAX_BYTES, "v%" PRIu64 ".x%016" PRIx64 ".group", n->version, n->run_id);
        break;
    case VVI_GROUP_TEMP:
        snprintf(name, NAME_MAX_BYTES, "rank%" PRIu32 ".x%016" PRIx64 ".tmp", n->rank, n->run_id);
        break;
    case VVI_GROUP_OTHER:
        name[0] = '\0';
        break;
    }
}

/* A name is valid only if formatting it again gives the same text. */
struct vvi_group_name vvi_group_parse(const char *name)
{
    char again[NAME_MAX_BYTES], end[8] = "";
    struct vvi_group_name n = {0};
    if (sscanf(name, "v%" SCNu64 ".x%" SCNx64 ".r%" SCNu32 ".%7s", &n.version, &n.run_id, &n.rank,
               end) == 4)
        n.kind = end[0] == 'm' ? VVI_GROUP_MARKER : VVI_GROUP_GONE;
    else if (sscanf(name, "v%" SCNu64 ".x%" SCNx64 ".group", &n.version, &n.run_id) == 2)
        n.kind = VVI_GROUP_RECORD;
    else if (sscanf(name, "rank%" SCNu32 ".x%" SCNx64 ".tmp", &n.rank, &n.run_id) == 2)
        n.kind = VVI_GROUP_TEMP;
    vvi_group_format(&n, again);
    return strcmp(name, again) == 0 ? n : (struct vvi_group_name){0};
}

static void name_of(enum vvi_group_kind kind, uint64_t version, uint64_t run_id, uint32_t rank,
                    char name[NAME_MAX_BYTES])
{
    const struct vvi_group_name n = {kind, version, run_id, rank};
    vvi_group_format(&n, name);
}

int vvi_group_unlink(const struct vv_group *g, enum vvi_group_kind kind, uint64_t version,
                     uint64_t run_id, uint32_t rank)
{
    char name[NAME_MAX_BYTES];
    name_of(kind, version, run_id, rank, name);
    return vv_target_remove(g->at, name);
}

/* ---- small files ---- */

/* `mine`: only while this life is the rank's current one. */
static int write_file(const struct vv_group *g, const char *name, const void *bytes, size_t n,
                      bool mine)
{
    const struct vv_target_ops *ops = g->at->ops;
    struct vv_target_file *file = NULL;
    char temp[NAME_MAX_BYTES];
    name_of(VVI_GROUP_TEMP, 0, g->life_run, g->rank, temp);
    int rc = ops->create(g->at, name, temp, n, &file);
    if (rc == 0)
        rc = ops->put(file, bytes, n, 0);
    if (rc == 0)
        rc = ops->settle(file);
    if (rc == 0 && mine)
        rc = vv_group_alive(g);
    if (rc == 0)
        rc = ops->commit(file);
    vv_target_end(file);
    return rc;
}

/* Reads up to `max` bytes; a shorter file is read whole. */
static int read_file(const struct vv_group *g, const char *name, size_t max, void **ret_bytes,
                     size_t *ret_n)
{
    struct vv_target_file *file;
    int rc = g->at->ops->open(g->at, name, VV_TARGET_READ, &file);
    if (rc < 0)
        return rc;
    void *bytes = NULL;
    size_t n = file->bytes;
    rc = n == 0 || n > max ? -EBADMSG : 0;
    if (rc == 0) {
        bytes = malloc(n);
        rc = bytes ? file->ops->get(file, bytes, n, 0) : -ENOMEM;
    }
    vv_target_end(file);
    if (rc < 0) {
        free(bytes);
        return rc == -ENODATA ? -EBADMSG : rc;
    }
    *ret_bytes = bytes;
    *ret_n = n;
    return 0;
}

/* Reads a file of one structure that ends in its checksum. */
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

int vv_group_open(struct vv_target *target, const char *history, uint32_t rank, uint32_t ranks,
                  bool create, struct vv_group *ret_group)
{
    struct vv_group g = {.history = target,
                         .rank = rank,
                         .ranks = ranks,
                         .history_sum = vv_hash64(history, strlen(history))};
    char temp[NAME_MAX_BYTES];
    name_of(VVI_GROUP_TEMP, 0, 0, rank, temp);
    int rc = target->ops->below(target, VV_GROUP_FOLDER, create ? temp : NULL, &g.at);
    if (rc == 0)
        *ret_group = g;
    return rc;
}

void vv_group_close(struct vv_group *group)
{
    vv_target_close(group->at);
    group->at = NULL;
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

int vv_group_read_record(const struct vv_group *g, uint64_t version, uint64_t run_id,
                         struct vv_group_record *ret_record)
{
    char name[NAME_MAX_BYTES];
    void *bytes;
    size_t n;
    struct vv_group_header h;
    uint64_t sum;
    name_of(VVI_GROUP_RECORD, version, run_id, 0, name);
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
        h.version != version || h.run_id != run_id || h.history_sum != g->history_sum ||
        sum != vv_hash64(bytes, n - sizeof(sum)))
        goto out;
    struct vv_group_record r = {.version = version, .run_id = h.run_id, .ranks = h.ranks};
    r.file = malloc(h.ranks * sizeof(*r.file));
    rc = r.file ? 0 : -ENOMEM;
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
    name_of(VVI_GROUP_MARKER, version, run_id, rank, name);
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

int vv_group_alive(const struct vv_group *g)
{
    struct vv_group_life life;
    if (g->life_run == 0)
        return 0;
    int rc = vv_group_read_life(g, &life);
    if (rc == 0 && life.run_id != g->life_run)
        return -ECANCELED;
    return rc == -ENOENT || rc == -EBADMSG ? 0 : rc; /* no later life has written it */
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
    name_of(VVI_GROUP_MARKER, version, run_id, g->rank, name);
    return write_file(g, name, &m, sizeof(m), true);
}

int vv_group_write_range(const struct vv_group *g, uint64_t run_id, uint64_t first_generation,
                         uint64_t next_generation)
{
    char name[NAME_MAX_BYTES];
    struct vv_group_life life = {.format = VV_GROUP_FORMAT,
                                 .rank = g->rank,
                                 .run_id = run_id,
                                 .first_generation = first_generation,
                                 .next_generation = next_generation,
                                 .history_sum = g->history_sum,
                                 .ranks = g->no_records ? g->ranks : 0};
    memcpy(life.magic, VV_GROUP_LIFE_MAGIC, sizeof(life.magic));
    life.sum = vv_hash64(&life, offsetof(struct vv_group_life, sum));
    life_name(g, name);
    return write_file(g, name, &life, sizeof(life), false);
}

int vv_group_write_life(struct vv_group *g, uint64_t run_id, uint64_t first_generation)
{
    int rc = vv_group_write_range(g, run_id, first_generation,
                                  first_generation + VV_GROUP_LIFE_GENERATIONS);
    if (rc == 0)
        g->life_run = run_id;
    return rc;
}

int vvi_group_write_record(const struct vv_group *g, const struct vv_group_record *r)
{
    char name[NAME_MAX_BYTES];
    size_t n = record_bytes(r->ranks);
    char *bytes = malloc(n);
    if (!bytes)
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
    name_of(VVI_GROUP_RECORD, r->version, r->run_id, 0, name);
    int rc = write_file(g, name, bytes, n, true);
    free(bytes);
    return rc;
}

/* ---- retracting ---- */

static int say_gone(struct vv_group *g, uint64_t version, uint64_t run_id)
{
    char name[NAME_MAX_BYTES];
    name_of(VVI_GROUP_GONE, version, run_id, g->rank, name);
    int rc = g->at->ops->touch(g->at, name);
    g->gone += rc == 0;
    return rc;
}

/* Deletes the record if it names this file, or is damaged. */
static int drop_record(const struct vv_group *g, uint64_t version, uint64_t run_id,
                       uint64_t generation)
{
    struct vv_group_record r;
    int rc = vv_group_read_record(g, version, run_id, &r);
    bool goes = rc == -EBADMSG;
    if (rc == 0) {
        goes = g->rank < r.ranks && r.file[g->rank].generation == generation;
        vv_group_record_fini(&r);
    }
    if (goes)
        rc = vvi_group_unlink(g, VVI_GROUP_RECORD, version, run_id, 0);
    return rc == -ENOENT ? 0 : rc;
}

/* The run of a damaged file is not known: all records of the version are checked. */
static int drop_records(const struct vv_group *g, uint64_t version, uint64_t generation)
{
    struct vvi_group_list list;
    int rc = vvi_group_list(g, &list);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < list.n; i++)
        if (list.v[i].kind == VVI_GROUP_RECORD && list.v[i].version == version)
            rc = drop_record(g, version, list.v[i].run_id, generation);
    free(list.v);
    return rc;
}

int vv_group_retract(struct vv_group *g, uint64_t version, uint64_t run_id, uint64_t generation)
{
    enum { TIDY_EVERY = 64 };
    int rc = vv_group_alive(g);
    /* A single rank is never about to write a record while it removes a file. */
    if (rc == 0 && run_id != 0 && g->ranks > 1)
        rc = say_gone(g, version, run_id);
    /* The marker first: without the record but with all markers, any rank would write the record again. */
    if (rc == 0)
        rc = vvi_group_unlink(g, VVI_GROUP_MARKER, version, run_id, g->rank);
    if (rc == 0)
        rc = run_id != 0 ? drop_record(g, version, run_id, generation)
                         : drop_records(g, version, generation);
    /* Sync even if neither marker nor record existed: an earlier try may have deleted them and failed here. */
    if (rc == 0)
        rc = g->at->ops->sync(g->at);
    if (rc == 0 && g->gone >= TIDY_EVERY)
        vv_group_tidy(g);
    return rc;
}

void vv_group_drop_marker(const struct vv_group *g, uint64_t version, uint64_t run_id)
{
    (void)vvi_group_unlink(g, VVI_GROUP_MARKER, version, run_id, g->rank);
}

/* ---- completing ---- */

/* Reads the markers of all ranks: -EAGAIN until all exist. The folder is listed first: one request
 * instead of one for each rank, and on NFS the listing makes the client drop its cached negative
 * lookups. */
int vvi_group_gather(const struct vv_group *g, const struct vvi_group_list *list, uint64_t version,
                     uint64_t run_id, struct vv_group_record *ret_record)
{
    struct vv_group_marker m;
    struct vv_group_record r = {.version = version, .run_id = run_id};
    if (vvi_group_count(list, VVI_GROUP_GONE, version, run_id) > 0)
        return -EAGAIN; /* permanently */
    /* The number of ranks comes from the markers: the caller may not know it. */
    int rc = vv_group_read_marker(g, version, run_id, 0, &m);
    if (rc == 0 && vvi_group_count(list, VVI_GROUP_MARKER, version, run_id) < m.ranks)
        rc = -EAGAIN;
    if (rc == 0) {
        r.ranks = m.ranks;
        r.file = calloc(m.ranks, sizeof(*r.file));
        rc = r.file ? 0 : -ENOMEM;
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

/* True if a record of another run is later. */
static bool superseded(const struct vv_group *g, const struct vvi_group_list *list,
                       const struct vv_group_record *r)
{
    bool later = false;
    for (size_t i = 0; i < list->n; i++) {
        const struct vvi_group_name *n = &list->v[i];
        struct vv_group_record other;
        if (n->kind != VVI_GROUP_RECORD || n->version != r->version || n->run_id == r->run_id ||
            vv_group_read_record(g, n->version, n->run_id, &other) < 0)
            continue;
        later |= other.file[0].generation > r->file[0].generation;
        vv_group_record_fini(&other);
    }
    return later;
}

static int complete_now(const struct vv_group *g, uint64_t version, uint64_t run_id)
{
    struct vvi_group_list list;
    struct vv_group_record r;
    int rc = vvi_group_list(g, &list);
    if (rc < 0)
        return rc;
    rc = vvi_group_gather(g, &list, version, run_id, &r);
    if (rc == 0) {
        /* A record of an earlier run stays as long as its file: if this run is retracted, the earlier
         * record counts again. */
        rc = superseded(g, &list, &r) ? -ECANCELED : vvi_group_write_record(g, &r);
        vv_group_record_fini(&r);
    }
    free(list.v);
    return rc;
}

int vv_group_complete(const struct vv_group *g, uint64_t version, uint64_t run_id, bool sweep)
{
    struct vv_group_record r;
    int rc = vv_group_read_record(g, version, run_id, &r);
    if (rc == 0) {
        vv_group_record_fini(&r);
        /* The rank that wrote it may have lost power before it synced the folder. The caller deletes its
         * marker next, and that must not become durable before the record. */
        return g->at->ops->sync(g->at);
    }
    if (rc != -ENOENT && rc != -EBADMSG)
        return rc;
    return sweep ? complete_now(g, version, run_id) : -EAGAIN;
}
