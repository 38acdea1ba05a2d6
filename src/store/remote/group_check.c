/* SPDX-License-Identifier: Apache-2.0 */
/* Checking and repairing the group folder of a history, without opening the history.
 *
 * Every record, marker and life is read and compared with the files that it names; the bytes of those are checked
 * elsewhere (vv_ckfile_verify). What other files determine is written again: a record from the files of its run, a
 * marker from its file, and a file that a record names from its copy in another folder. A damaged life is deleted:
 * the next opening writes one.
 *
 * Repairing holds the locks of all ranks, so that no program has the history open. Checking takes none: it sees the
 * state of the moment, and a running job may be between two steps. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/remote/ckcopy.h"
#include "store/remote/group_private.h"

struct check {
    struct vv_group group;
    const struct vv_group_check *opts;
    struct vvi_group_list list;
    uint32_t lives;                /* ranks that have a life file */
    uint32_t ranks;                /* of the job; 0: not known */
    struct vv_target_file **locks; /* by rank */
    uint32_t nlocks;
    struct vv_group_check_result result;
};

static void report(struct check *c, uint64_t version, const char *name, bool repaired,
                   const char *what)
{
    const struct vv_group_problem p = {version, name, what, repaired};
    c->result.problems++;
    c->result.repaired += repaired;
    c->opts->report(c->opts->user, &p);
}

/* ---- how many ranks there are ---- */

static int count_life(void *user, const char *name, uint64_t bytes)
{
    (void)bytes;
    struct check *c = user;
    char again[VVI_GROUP_NAME_MAX];
    uint32_t rank;
    if (sscanf(name, "life.%" SCNu32, &rank) != 1)
        return 0;
    snprintf(again, sizeof(again), "life.%" PRIu32, rank);
    if (strcmp(name, again) == 0 && rank < VV_GROUP_RANKS_MAX)
        c->lives = VV_MAX(c->lives, rank + 1);
    return 0;
}

/* Takes the number of ranks from a record or marker, or else counts the life files: every rank has one. */
static void count_ranks(struct check *c)
{
    for (size_t i = 0; i < c->list.n && c->ranks == 0; i++) {
        const struct vvi_group_name *n = &c->list.v[i];
        struct vv_group_record r;
        struct vv_group_marker m;
        if (n->kind == VVI_GROUP_RECORD &&
            vv_group_read_record(&c->group, n->version, n->run_id, &r) == 0) {
            c->ranks = r.ranks;
            vv_group_record_fini(&r);
        } else if (n->kind == VVI_GROUP_MARKER &&
                   vv_group_read_marker(&c->group, n->version, n->run_id, n->rank, &m) == 0) {
            c->ranks = m.ranks;
        }
    }
    if (c->ranks == 0)
        c->ranks = c->lives;
    c->group.ranks = c->ranks;
}

/* ---- locks ---- */

static int lock_all(struct check *c)
{
    struct vv_target *history = c->group.history;
    int rc = 0;
    c->locks = calloc((size_t)c->ranks + 1, sizeof(*c->locks));
    if (!c->locks)
        return -ENOMEM;
    for (uint32_t r = 0; rc == 0 && r < c->ranks; r++) {
        char name[32];
        snprintf(name, sizeof(name), "lock.%" PRIu32, r);
        rc = history->ops->lock(history, name, &c->locks[r]);
        c->nlocks += rc == 0;
    }
    return rc;
}

static void unlock_all(struct check *c)
{
    for (uint32_t i = 0; i < c->nlocks; i++)
        vv_target_end(c->locks[i]);
    free(c->locks);
}

/* ---- a file that a record or marker names ---- */

/* NULL, or what is wrong with the file. A damaged file is reported by the check of its bytes. */
static const char *check_file(const struct check *c, const char *name, uint64_t run_id,
                              const struct vv_group_file *want, int *ret_status)
{
    struct vv_group_file file;
    uint64_t run;
    int rc = vvi_copy_identify(c->group.history, name, &run, &file);
    *ret_status = rc;
    if (rc == -ENOENT)
        return "is missing";
    if (rc < 0)
        return NULL;
    return run == run_id && file.generation == want->generation &&
                   file.file_bytes == want->file_bytes && file.tail_sum == want->tail_sum
               ? NULL
               : "is not the expected file";
}

/* Copies a file back from the other folder, if that copy is the expected one. */
static bool bring_back(struct check *c, const char *name, uint64_t run_id,
                       const struct vv_group_file *want)
{
    struct vv_group_file file;
    uint64_t run;
    struct vv_target *other = c->opts->other;
    return c->opts->repair && other && vvi_copy_identify(other, name, &run, &file) == 0 &&
           run == run_id && file.generation == want->generation &&
           file.tail_sum == want->tail_sum && vv_ckfile_copy(other, c->group.history, name) == 0;
}

static void check_named_file(struct check *c, const char *by, const struct vvi_group_name *n,
                             uint32_t rank, const struct vv_group_file *want)
{
    char file[VV_CKFILE_NAME_MAX], what[VV_CKFILE_NAME_MAX + 80];
    int status;
    vv_ckfile_name(file, VV_CKFILE_COMMITTED, rank, n->version, want->generation);
    const char *wrong = check_file(c, file, n->run_id, want, &status);
    if (!wrong)
        return;
    snprintf(what, sizeof(what), "%s of rank %" PRIu32 " %s", file, rank, wrong);
    report(c, n->version, by, bring_back(c, file, n->run_id, want), what);
}

/* ---- records ---- */

/* True if a later life has written the version: files of this record may be gone. */
static bool is_out_of_date(const struct check *c, const struct vv_group_record *r)
{
    bool later = false;
    size_t i, end;
    vvi_group_find(&c->list, r->version, 0, &i, &end);
    for (; i < c->list.n && c->list.v[i].version == r->version && !later; i++) {
        const struct vvi_group_name *n = &c->list.v[i];
        struct vv_group_record other;
        if (n->kind != VVI_GROUP_RECORD || n->run_id == r->run_id ||
            vv_group_read_record(&c->group, n->version, n->run_id, &other) < 0)
            continue;
        later = other.file[0].generation > r->file[0].generation;
        vv_group_record_fini(&other);
    }
    return later;
}

static void check_record(struct check *c, const struct vvi_group_name *n, const char *name)
{
    struct vv_group_record r;
    if (vvi_group_count(&c->list, VVI_GROUP_GONE, n->version, n->run_id) > 0)
        return; /* the record does not count */
    c->result.records++;
    int rc = vv_group_read_record(&c->group, n->version, n->run_id, &r);
    if (rc == -ENOENT)
        return; /* deleted meanwhile */
    if (rc < 0) {
        bool again = c->opts->repair && c->ranks > 0 &&
                     vvi_group_rebuild(&c->group, n->version, n->run_id) == 0;
        report(c, n->version, name, again, "the group record is damaged");
        if (!again || vv_group_read_record(&c->group, n->version, n->run_id, &r) < 0)
            return;
    }
    bool counts = !is_out_of_date(c, &r);
    for (uint32_t rank = 0; counts && rank < r.ranks; rank++)
        check_named_file(c, name, n, rank, &r.file[rank]);
    vv_group_record_fini(&r);
}

/* ---- markers ---- */

/* A damaged marker is written again from the rank's file of that version and run with the highest generation. If
 * there is no such file, the marker is deleted. */
struct owner {
    struct check *check;
    const struct vvi_group_name *name;
    struct vv_group_file file;
};

static int find_owner(void *user, const char *name, uint64_t bytes)
{
    (void)bytes;
    struct owner *o = user;
    const struct vv_group *g = &o->check->group;
    enum vv_ckfile_kind kind;
    uint64_t version, generation, run;
    uint32_t rank;
    struct vv_group_file file;
    if (vv_ckfile_parse_name(name, &kind, &rank, &version, &generation) &&
        kind == VV_CKFILE_COMMITTED && rank == o->name->rank && version == o->name->version &&
        vvi_copy_identify(g->history, name, &run, &file) == 0 && run == o->name->run_id &&
        file.generation >= o->file.generation)
        o->file = file;
    return 0;
}

static bool rewrite_marker(struct check *c, const struct vvi_group_name *n)
{
    struct owner o = {.check = c, .name = n};
    struct vv_group as = c->group;
    as.rank = n->rank;
    if (!c->opts->repair || c->ranks == 0 || as.history->ops->list(as.history, find_owner, &o) < 0)
        return false;
    if (o.file.file_bytes == 0)
        return vvi_group_unlink(&as, VVI_GROUP_MARKER, n->version, n->run_id, n->rank) == 0;
    return vv_group_write_marker(&as, n->version, n->run_id, &o.file) == 0;
}

static void check_marker(struct check *c, const struct vvi_group_name *n, const char *name)
{
    struct vv_group_marker m;
    c->result.markers++;
    int rc = vv_group_read_marker(&c->group, n->version, n->run_id, n->rank, &m);
    if (rc == -ENOENT)
        return;
    if (rc < 0)
        report(c, n->version, name, rewrite_marker(c, n), "the commit marker is damaged");
    else
        check_named_file(c, name, n, n->rank, &m.file);
}

/* ---- lives ---- */

static void check_lives(struct check *c)
{
    for (uint32_t rank = 0; rank < c->lives; rank++) {
        struct vv_group as = c->group;
        struct vv_group_life life;
        char name[VVI_GROUP_NAME_MAX];
        as.rank = rank;
        if (vv_group_read_life(&as, &life) != -EBADMSG)
            continue;
        snprintf(name, sizeof(name), "life.%" PRIu32, rank);
        report(c, 0, name, c->opts->repair && vv_target_remove(as.at, name) == 0,
               "the life file is damaged");
    }
}

/* ---- all of it ---- */

static void check_all(struct check *c)
{
    for (size_t i = 0; i < c->list.n; i++) {
        char name[VVI_GROUP_NAME_MAX];
        vvi_group_format(&c->list.v[i], name);
        if (c->list.v[i].kind == VVI_GROUP_RECORD)
            check_record(c, &c->list.v[i], name);
        else if (c->list.v[i].kind == VVI_GROUP_MARKER)
            check_marker(c, &c->list.v[i], name);
    }
    check_lives(c);
}

int vv_group_check(struct vv_target *target, const char *history, const struct vv_group_check *opts,
                   struct vv_group_check_result *ret_result)
{
    struct check c = {.opts = opts};
    int rc = vv_group_open(target, history, 0, 1, false, &c.group);
    if (rc < 0)
        return rc;
    rc = c.group.at->ops->list(c.group.at, count_life, &c);
    if (rc == 0)
        rc = vvi_group_list(&c.group, &c.list);
    if (rc == 0) {
        count_ranks(&c);
        if (opts->repair)
            rc = lock_all(&c);
    }
    if (rc == 0)
        check_all(&c);
    if (rc == 0 && opts->repair && c.result.repaired > 0)
        rc = c.group.at->ops->sync(c.group.at);
    unlock_all(&c);
    free(c.list.v);
    vv_group_close(&c.group);
    if (rc == 0)
        *ret_result = c.result;
    return rc;
}
