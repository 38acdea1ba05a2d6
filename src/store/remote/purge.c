/* SPDX-License-Identifier: Apache-2.0 */
/* Removing the files of ranks without opening the history.
 *
 * Group records go first: they prevent another number of ranks from opening the history, and any process may retract
 * them. Files go rank by rank, under the rank's lock. All processes of a job may do this at the same time. A process
 * waits for the lock of its own rank, and of ranks that the job does not have, while there is something to remove. It
 * skips a rank whose lock another process of the job may hold: that process removes these files, or has opened the
 * history again. Files that other ranks have written in this run stay. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/files/files_private.h"
#include "store/remote/group.h"
#include "store/remote/purge.h"
#include "store/target/folder/target_folder.h"

#define BUSY_NS (10 * UINT64_C(1000000000))
#define POLL_NS (20 * UINT64_C(1000000))

struct victim {
    uint32_t rank;
    uint64_t version, generation;
    uint64_t run_id; /* 0: not known, because the file is damaged */
};

struct victims {
    const struct vv_purge *purge;
    const uint32_t *only; /* NULL: all ranks */
    struct victim *v;
    size_t n, room;
};

/* Run ids of one run differ in the lower half. */
static bool of_this_run(const struct vv_purge *p, uint64_t run_id)
{
    return run_id >> 32 == p->run_id >> 32;
}

/* True for the other ranks of the job, which may be using the history again. */
static bool is_of_others(const struct vv_purge *p, uint32_t rank)
{
    return rank != p->rank && rank < p->ranks;
}

static int victims_add(struct victims *list, const struct victim *v)
{
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        struct victim *more = realloc(list->v, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        list->v = more;
        list->room = room;
    }
    list->v[list->n++] = *v;
    return 0;
}

static int see_file(void *user, const struct vv_files_found *f)
{
    struct victims *list = user;
    const struct vv_purge *p = list->purge;
    struct victim v = {f->rank, f->version, f->generation, f->info ? f->info->id.run_id : 0};
    if (f->kind != VV_CKFILE_COMMITTED || f->rank < p->first_rank ||
        (list->only && f->rank != *list->only))
        return 0;
    bool of_others = is_of_others(p, f->rank);
    /* Its rank may have written it in this run. */
    if (of_others && f->status < 0 && f->status != -EBADMSG)
        return f->status;
    if (of_others && of_this_run(p, v.run_id))
        return 0;
    return victims_add(list, &v);
}

static int list_files(struct vv_folder *folder, struct victims *list)
{
    list->n = 0;
    int rc = vv_files_scan(folder->opts.os, folder->path, list->purge->history, see_file, list);
    return rc == -ENOENT ? 0 : rc;
}

/* ---- group records ---- */

static int see_record(void *user, const struct vv_group_record *r, int error)
{
    struct victims *list = user;
    const struct vv_purge *p = list->purge;
    /* A damaged record is removed together with a file. */
    if (error != 0 || r->ranks <= p->first_rank || of_this_run(p, r->run_id))
        return 0;
    return victims_add(list, &(struct victim){p->first_rank, r->version,
                                              r->file[p->first_rank].generation, r->run_id});
}

/* Opens the place of the history; -ENOENT. */
static int place_below(struct vv_folder *folder, const char *history, struct vv_target **ret)
{
    struct vv_target_folder above;
    vv_target_folder_init(&above, folder->opts.os, folder->dirfd);
    struct vv_target *at = folder->target ? folder->target : &above.base;
    return at->ops->below(at, history, NULL, ret);
}

/* Retracts the markers and records of the files in `list`. With `records`, first lists the files of the first
 * rank that records name. */
static int retract(struct vv_folder *folder, const struct vv_purge *p, uint32_t rank,
                   struct victims *list, bool records)
{
    struct vv_target *at;
    struct vv_group group;
    int rc = place_below(folder, p->history, &at);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    /* 2 ranks: another rank may be about to write a record while this one is retracted. */
    rc = vv_group_open(at, p->history, rank, 2, false, &group);
    if (rc < 0) {
        vv_target_close(at);
        return rc == -ENOENT ? 0 : rc; /* not a shared folder */
    }
    if (records)
        rc = vv_group_scan(&group, VV_GROUP_LOOK, see_record, list);
    for (size_t i = 0; rc == 0 && i < list->n; i++)
        rc = vv_group_retract(&group, list->v[i].version, list->v[i].run_id, list->v[i].generation);
    vv_group_tidy(&group);
    vv_group_close(&group);
    vv_target_close(at);
    return rc;
}

static int drop_records(struct vv_folder *folder, const struct vv_purge *p)
{
    struct victims list = {.purge = p};
    int rc = retract(folder, p, p->first_rank, &list, true);
    free(list.v);
    return rc;
}

/* ---- files ---- */

/* Without locks, another rank of the job may have opened the history again, and recorded its number of ranks. */
static bool number_may_be_new(const struct vv_purge *p, const struct vv_files *files)
{
    uint32_t ranks;
    return files->folder->target && is_of_others(p, files->rank) &&
           (vvi_recorded_ranks(files->at, files->rank, &ranks) < 0 || ranks == p->ranks);
}

/* With the rank's lock held, if the folder has locks. */
static int unlink_files(struct vv_folder *folder, struct vv_files *files, struct victims *list)
{
    char name[VV_CKFILE_NAME_MAX];
    int rc = list_files(folder, list);
    if (rc == 0)
        rc = retract(folder, list->purge, files->rank, list, false);
    for (size_t i = 0; rc == 0 && i < list->n; i++) {
        vv_ckfile_name(name, VV_CKFILE_COMMITTED, files->rank, list->v[i].version,
                       list->v[i].generation);
        rc = vv_target_remove(files->at, name);
    }
    /* The recorded number of ranks goes with them. */
    snprintf(name, sizeof(name), "ranks.%" PRIu32, files->rank);
    if (rc == 0 && !number_may_be_new(list->purge, files))
        (void)files->at->ops->remove(files->at, name);
    if (rc == 0 && !is_of_others(list->purge, files->rank))
        vvi_files_sweep(files);
    return rc == 0 ? files->at->ops->sync(files->at) : rc;
}

static int purge_rank(struct vv_folder *folder, const struct vv_purge *p, uint32_t rank, char *err,
                      size_t err_bytes)
{
    struct vv_files_opts opts = {.all_generations = true};
    struct victims list = {.purge = p, .only = &rank};
    struct vv_files *files = NULL;
    bool of_others = is_of_others(p, rank);
    uint64_t deadline_ns = vv_now_ns() + (of_others ? 0 : BUSY_NS);
    int rc;
    do {
        rc = list_files(folder, &list);
        if (rc < 0 || list.n == 0)
            break;
        rc = vv_files_open(folder, p->history, rank, &opts, err, err_bytes, &files);
        if (rc == -EBUSY && vv_now_ns() < deadline_ns)
            vv_sleep_until_ns(vv_now_ns() + POLL_NS);
    } while (rc == -EBUSY && vv_now_ns() < deadline_ns);
    if (files)
        rc = unlink_files(folder, files, &list);
    vv_files_close(files);
    free(list.v);
    return of_others && rc == -EBUSY ? 0 : rc;
}

int vv_files_purge(struct vv_folder *folder, const struct vv_purge *p, char *err, size_t err_bytes)
{
    struct victims all = {.purge = p};
    int rc = vv_files_name_ok(p->history) ? drop_records(folder, p) : -EINVAL;
    if (rc == 0)
        rc = list_files(folder, &all);
    /* In order of ranks. */
    for (size_t i = 0; rc == 0 && i < all.n; i++)
        if (i == 0 || all.v[i].rank != all.v[i - 1].rank)
            rc = purge_rank(folder, p, all.v[i].rank, err, err_bytes);
    free(all.v);
    if (rc < 0 && rc != -EBUSY)
        vvi_error(rc, err, err_bytes, "cannot remove history %s from %s: %s", p->history,
                  folder->path, strerror(-rc));
    return rc;
}

/* ---- how many ranks ---- */

static int see_ranks(void *user, const struct vv_group_record *r, int error)
{
    if (error == 0)
        *(uint32_t *)user = r->ranks;
    return 0;
}

struct noted {
    struct vv_target *at;
    uint32_t ranks;
};

static int see_note(void *user, const char *name, uint64_t bytes)
{
    struct noted *n = user;
    uint32_t rank, ranks;
    int end = 0;
    (void)bytes;
    if (sscanf(name, "ranks.%" SCNu32 "%n", &rank, &end) != 1 || name[end] != '\0')
        return 0;
    int rc = vvi_recorded_ranks(n->at, rank, &ranks);
    if (rc == 0)
        n->ranks = ranks;
    return rc == -ENOENT || rc == -EBADMSG ? 0 : rc; /* other ranks may have recorded it too */
}

static int see_first_rank(void *user, const char *name, uint64_t bytes)
{
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t version, generation;
    (void)bytes;
    *(bool *)user |= vv_ckfile_parse_name(name, &kind, &rank, &version, &generation) &&
                     kind == VV_CKFILE_COMMITTED && rank == 0;
    return 0;
}

/* The number in the life file of the first rank, if it has files and its last life was at level remote. Files are
 * listed before: a life at level complete replaces that file before it writes others. */
static int ranks_of_life(struct vv_target *at, const char *history, uint32_t *ret_ranks)
{
    struct vv_group group;
    struct vv_group_life life;
    bool files = false;
    int rc = at->ops->list(at, see_first_rank, &files);
    if (rc == 0 && files)
        rc = vv_group_open(at, history, 0, 0, false, &group);
    if (rc < 0 || !files)
        return rc == -ENOENT ? 0 : rc;
    if (vv_group_read_life(&group, &life) == 0)
        *ret_ranks = life.ranks;
    vv_group_close(&group);
    return 0;
}

static int files_ranks(struct vv_folder *folder, const char *history, bool lives,
                       uint32_t *ret_ranks)
{
    struct noted n = {0};
    struct vv_group group;
    if (!vv_files_name_ok(history))
        return -EINVAL;
    int rc = place_below(folder, history, &n.at);
    if (rc < 0)
        return rc;
    rc = vv_group_open(n.at, history, 0, 0, false, &group);
    if (rc == 0) {
        rc = vv_group_scan(&group, VV_GROUP_DEDUCE, see_ranks, &n.ranks);
        vv_group_close(&group);
    }
    if (rc == -ENOENT || (rc == 0 && n.ranks == 0))
        rc = n.at->ops->list(n.at, see_note, &n);
    if (rc == 0 && n.ranks == 0 && lives)
        rc = ranks_of_life(n.at, history, &n.ranks);
    vv_target_close(n.at);
    if (rc == 0)
        *ret_ranks = n.ranks;
    return rc;
}

int vv_files_ranks(struct vv_folder *folder, const char *history, uint32_t *ret_ranks)
{
    return files_ranks(folder, history, true, ret_ranks);
}

/* Life files outlast the files of their rank, so they are used only if nothing else has the number. */
struct left {
    uint32_t lives;
    bool files;
};

static int see_life(void *user, const char *name, uint64_t bytes)
{
    struct left *left = user;
    uint32_t rank;
    int end = 0;
    (void)bytes;
    if (sscanf(name, "life.%" SCNu32 "%n", &rank, &end) == 1 && name[end] == '\0' &&
        rank < VV_GROUP_RANKS_MAX)
        left->lives = VV_MAX(left->lives, rank + 1);
    return 0;
}

static int see_committed(void *user, const char *name, uint64_t bytes)
{
    struct left *left = user;
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t version, generation;
    (void)bytes;
    left->files |= vv_ckfile_parse_name(name, &kind, &rank, &version, &generation);
    return 0;
}

int vv_files_parts(struct vv_folder *folder, const char *history, uint32_t *ret_ranks)
{
    struct vv_target *at, *group;
    struct left left = {0};
    uint32_t ranks = 0;
    int rc = files_ranks(folder, history, false, &ranks);
    if (rc == 0 && ranks == 0)
        rc = place_below(folder, history, &at);
    if (rc == 0 && ranks == 0) {
        rc = at->ops->below(at, VV_GROUP_FOLDER, NULL, &group);
        if (rc == 0) {
            rc = group->ops->list(group, see_life, &left);
            vv_target_close(group);
        }
        if (rc == 0 || rc == -ENOENT)
            rc = at->ops->list(at, see_committed, &left);
        vv_target_close(at);
        ranks = left.lives > 0 ? left.lives : left.files;
    }
    if (rc == 0 && ranks == 0)
        rc = -ENOENT;
    if (rc == 0)
        *ret_ranks = ranks;
    return rc;
}
