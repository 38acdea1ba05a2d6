/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a whole group folder: which versions are complete.
 *
 * A damaged record at least shows that the version was complete in that run. Its markers may be gone by then, but
 * the files are not, and they have run, generation and checksum: with one file of the run for each rank the record
 * is written again.
 *
 * A rank that opens the history also deletes files that are no longer needed: records of versions that a later life
 * has written or a rank has retracted, and leftovers of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/remote/ckcopy.h"
#include "store/remote/group_private.h"

/* ---- listing ---- */

static int compare_names(const void *a, const void *b)
{
    const struct vvi_group_name *x = a, *y = b;
    if (x->version != y->version)
        return x->version < y->version ? -1 : 1;
    if (x->run_id != y->run_id)
        return x->run_id < y->run_id ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int list_name(void *user, const char *name, uint64_t bytes)
{
    (void)bytes;
    struct vvi_group_list *l = user;
    struct vvi_group_name n = vvi_group_parse(name);
    if (n.kind == VVI_GROUP_OTHER)
        return 0;
    if (l->n == l->room) {
        size_t room = VV_MAX(2 * l->room, (size_t)64);
        struct vvi_group_name *more = realloc(l->v, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        l->v = more;
        l->room = room;
    }
    l->v[l->n++] = n;
    return 0;
}

int vvi_group_list(const struct vv_group *g, struct vvi_group_list *ret_list)
{
    struct vvi_group_list l = {0};
    int rc = g->at->ops->list(g->at, list_name, &l);
    if (rc < 0) {
        free(l.v);
        return rc;
    }
    if (l.n > 1)
        qsort(l.v, l.n, sizeof(*l.v), compare_names);
    *ret_list = l;
    return 0;
}

void vvi_group_find(const struct vvi_group_list *l, uint64_t version, uint64_t run_id,
                    size_t *ret_first, size_t *ret_end)
{
    size_t lo = 0, hi = l->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct vvi_group_name *n = &l->v[mid];
        if (n->version < version || (n->version == version && n->run_id < run_id))
            lo = mid + 1;
        else
            hi = mid;
    }
    *ret_first = lo;
    while (lo < l->n && l->v[lo].version == version && l->v[lo].run_id == run_id)
        lo++;
    *ret_end = lo;
}

size_t vvi_group_count(const struct vvi_group_list *l, enum vvi_group_kind kind, uint64_t version,
                       uint64_t run_id)
{
    size_t first, end, n = 0;
    vvi_group_find(l, version, run_id, &first, &end);
    for (size_t i = first; i < end; i++)
        n += l->v[i].kind == kind;
    return n;
}

/* ---- deleting leftovers ---- */

static void tidy(struct vv_group *g, const struct vvi_group_list *l)
{
    uint32_t left = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct vvi_group_name *n = &l->v[i];
        if (n->rank != g->rank)
            continue;
        if (n->kind == VVI_GROUP_TEMP && n->run_id != g->life_run)
            (void)vvi_group_unlink(g, VVI_GROUP_TEMP, 0, n->run_id, n->rank);
        if (n->kind != VVI_GROUP_GONE)
            continue;
        if (vvi_group_count(l, VVI_GROUP_MARKER, n->version, n->run_id) > 0 ||
            vvi_group_count(l, VVI_GROUP_RECORD, n->version, n->run_id) > 0)
            left++;
        else
            (void)vvi_group_unlink(g, VVI_GROUP_GONE, n->version, n->run_id, n->rank);
    }
    /* Each file that has to stay counts half towards the next check, which comes at TIDY_EVERY (group.c). */
    g->gone = left / 2;
}

void vv_group_tidy(struct vv_group *g)
{
    struct vvi_group_list l;
    if (vvi_group_list(g, &l) == 0) {
        tidy(g, &l);
        free(l.v);
    }
}

/* ---- a record from the files ---- */

struct candidates {
    const struct vv_group *group;
    struct vv_group_record record;
    uint32_t found;
};

static int take_file(void *user, const char *name, uint64_t bytes)
{
    (void)bytes;
    struct candidates *c = user;
    enum vv_ckfile_kind kind;
    uint64_t version, run_id;
    uint32_t rank;
    struct vv_group_file file = {0};
    if (!vv_ckfile_parse_name(name, &kind, &rank, &version, &file.generation) ||
        kind != VV_CKFILE_COMMITTED || version != c->record.version || rank >= c->record.ranks)
        return 0;
    int rc = vvi_copy_identify(c->group->history, name, &run_id, &file);
    if (rc < 0)
        return rc == -ENOMEM ? rc : 0; /* not usable */
    struct vv_group_file *have = &c->record.file[rank];
    if (run_id != c->record.run_id || file.generation < have->generation)
        return 0;
    c->found += have->file_bytes == 0;
    *have = file;
    return 0;
}

static int record_of_files(const struct vv_group *g, uint64_t version, uint64_t run_id,
                           struct vv_group_record *ret_record)
{
    struct candidates c = {.group = g,
                           .record = {.version = version, .run_id = run_id, .ranks = g->ranks}};
    c.record.file = calloc((size_t)g->ranks + 1, sizeof(*c.record.file));
    int rc = c.record.file ? g->history->ops->list(g->history, take_file, &c) : -ENOMEM;
    if (rc == 0 && (g->ranks == 0 || c.found != g->ranks))
        rc = -EBADMSG;
    if (rc == 0)
        *ret_record = c.record;
    else
        vv_group_record_fini(&c.record);
    return rc;
}

int vvi_group_rebuild(const struct vv_group *g, uint64_t version, uint64_t run_id)
{
    struct vv_group_record r;
    int rc = record_of_files(g, version, run_id, &r);
    if (rc == 0) {
        rc = vvi_group_write_record(g, &r);
        vv_group_record_fini(&r);
    }
    return rc;
}

/* ---- scanning ---- */

/* Writes the missing records of versions that have the markers of all ranks: the rank that saw the last marker was
 * interrupted. */
static int finish_records(const struct vv_group *g, const struct vvi_group_list *l)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        if (l->v[i].kind != VVI_GROUP_MARKER || l->v[i].rank != 0)
            continue;
        rc = vv_group_complete(g, l->v[i].version, l->v[i].run_id, true);
        if (rc == -EAGAIN || rc == -ECANCELED || rc == -ERANGE || rc == -EBADMSG)
            rc = 0;
    }
    return rc;
}

/* Reads the record that this name in the list belongs to. -ENOENT: the name belongs to none. */
static int read_one(const struct vv_group *g, enum vv_group_scan how,
                    const struct vvi_group_list *l, const struct vvi_group_name *n,
                    struct vv_group_record *ret_record)
{
    /* Without a record, the markers of all ranks give one. A marker beside its record has no further information. */
    if (n->kind == VVI_GROUP_MARKER && n->rank == 0 && how == VV_GROUP_DEDUCE &&
        vvi_group_count(l, VVI_GROUP_RECORD, n->version, n->run_id) == 0) {
        int rc = vvi_group_gather(g, l, n->version, n->run_id, ret_record);
        return rc == -EAGAIN || rc == -ERANGE || rc == -EBADMSG ? -ENOENT : rc;
    }
    if (n->kind != VVI_GROUP_RECORD)
        return -ENOENT;
    if (vvi_group_count(l, VVI_GROUP_GONE, n->version, n->run_id) > 0) {
        if (how == VV_GROUP_WRITE)
            (void)vvi_group_unlink(g, VVI_GROUP_RECORD, n->version, n->run_id, 0);
        return -ENOENT;
    }
    int rc = vv_group_read_record(g, n->version, n->run_id, ret_record);
    if (rc == -EBADMSG && how == VV_GROUP_WRITE && vvi_group_rebuild(g, n->version, n->run_id) == 0)
        rc = vv_group_read_record(g, n->version, n->run_id, ret_record);
    if (rc == -EBADMSG && how == VV_GROUP_DEDUCE)
        rc = record_of_files(g, n->version, n->run_id, ret_record);
    return rc;
}

/* Reads the newest record of a version. Fails if one is unreadable, since it could be the newest. -ENOENT: the
 * version has none. */
static int read_newest(const struct vv_group *g, enum vv_group_scan how,
                       const struct vvi_group_list *l, size_t first, size_t end,
                       struct vv_group_record *ret_record)
{
    struct vv_group_record best = {0}, r;
    int result = -ENOENT;
    for (size_t i = first; i < end; i++) {
        int rc = read_one(g, how, l, &l->v[i], &r);
        if (rc == -ENOENT)
            continue; /* also if it was deleted meanwhile */
        if (rc < 0) {
            result = rc;
        } else if (!best.file || r.file[0].generation > best.file[0].generation) {
            vv_group_record_fini(&best);
            best = r;
            result = result == -ENOENT ? 0 : result;
        } else {
            vv_group_record_fini(&r);
        }
    }
    if (result == 0)
        *ret_record = best;
    else
        vv_group_record_fini(&best);
    return result;
}

static void drop_older(const struct vv_group *g, const struct vvi_group_list *l, size_t first,
                       size_t end, uint64_t run_id)
{
    for (size_t i = first; i < end; i++)
        if (l->v[i].kind == VVI_GROUP_RECORD && l->v[i].run_id != run_id)
            (void)vvi_group_unlink(g, VVI_GROUP_RECORD, l->v[i].version, l->v[i].run_id, 0);
}

int vv_group_scan(struct vv_group *g, enum vv_group_scan how,
                  int (*visit)(void *user, const struct vv_group_record *record, int error),
                  void *user)
{
    struct vvi_group_list l = {0};
    bool write = how == VV_GROUP_WRITE;
    int rc = vvi_group_list(g, &l);
    if (rc == 0 && write) {
        rc = finish_records(g, &l);
        free(l.v);
        l = (struct vvi_group_list){0};
        if (rc == 0)
            rc = vvi_group_list(g, &l);
    }
    for (size_t first = 0, end; rc == 0 && first < l.n; first = end) {
        struct vv_group_record r = {.version = l.v[first].version};
        for (end = first; end < l.n && l.v[end].version == r.version; end++)
            continue;
        int error = read_newest(g, how, &l, first, end, &r);
        if (error == -ENOENT)
            continue;
        rc = error == -ENOMEM ? error : visit(user, &r, error);
        if (error == 0 && write && rc == 0)
            drop_older(g, &l, first, end, r.run_id);
        vv_group_record_fini(&r);
    }
    if (rc == 0 && write)
        tidy(g, &l);
    free(l.v);
    return rc;
}
