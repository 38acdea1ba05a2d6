/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of a dataset cache, and its space.
 *
 * An entry is one generation of one file. It has a content file of its own, whose name is a number that is never used
 * again, so that no record, descriptor or reader can take one for another. Entries are found by path. An entry that
 * must not be handed out any more (replaced by another generation, dropped, or damaged) leaves the table at
 * once, and the disk when no process has it open.
 *
 * The kernel records which files are open: every descriptor that is handed out carries a shared lock on its open file
 * description, which lasts as long as a copy of the descriptor is open in any process. A file is removed only
 * under the exclusive lock.
 *
 * dataset->lock protects all of this and is never held across a system call. An entry that is used without the lock is
 * pinned; a pinned entry is not removed. A thread that goes through many entries, to make room or to list them, holds
 * them instead: they stay in memory, but their files may go. So several threads can make room at once, and none
 * waits for a long list to end. An entry that is being removed (GOING) is neither handed out nor removed by another
 * thread; if its file turns out to be open, it returns to its earlier state.
 *
 * Space is counted in blocks, from before the file is created until it is unlinked and closed, so that
 * the capacity is never exceeded. The manifest's lock is taken before this one, never after.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "dataset/dataset_private.h"
#include "dataset/ours.h"
#include "policy/next.h"

#define ROOM_MIN   64
#define COMPLAINT  1024
#define RESTORE_NS (10 * VV_NS_PER_S)
#define RANK_MAX   ((UINT64_C(1) << 56) - 1)
#define SWAP_EVERY 64
#define SWAP_SHARE 16
#define SWAP_MAX   64 /* copies replaced at once */

void vvi_dataset_name(char name[VVI_DATASET_NAME], uint64_t id, bool temp)
{
    snprintf(name, VVI_DATASET_NAME, "%016llx.%s", (unsigned long long)id, temp ? "tmp" : "data");
}

/* ---- states ---- */

/* Used only by assertions. */
__attribute__((unused)) static const bool allowed[][DATASET_GONE + 1] = {
    [DATASET_FILLING] = {[DATASET_READY] = true, [DATASET_GONE] = true},
    [DATASET_READY] = {[DATASET_DOOMED] = true, [DATASET_GOING] = true},
    [DATASET_DOOMED] = {[DATASET_GOING] = true},
    [DATASET_GOING] = {[DATASET_READY] = true, [DATASET_DOOMED] = true, [DATASET_GONE] = true},
    [DATASET_GONE] = {false},
};

static void set_load_locked(struct vv_dataset *d)
{
    atomic_store_explicit(&d->load, d->stats.used - d->stats.copy_bytes, memory_order_relaxed);
}

static void count(struct vv_dataset *d, const struct vvi_entry *e, bool in)
{
    uint64_t bytes = e->space;

    if (e->state == DATASET_READY) {
        d->stats.copies += !e->copy ? 0 : in ? 1 : (uint64_t)-1;
        d->stats.copy_bytes += !e->copy ? 0 : in ? bytes : 0 - bytes;
        set_load_locked(d);
        d->stats.sealed += !e->sealed ? 0 : in ? 1 : (uint64_t)-1;
        d->stats.files += in ? 1 : (uint64_t)-1;
        d->stats.bytes += in ? bytes : 0 - bytes;
        atomic_store_explicit(&d->files, d->stats.files, memory_order_relaxed);
    } else if (e->state == DATASET_DOOMED) {
        d->stats.waiting += in ? 1 : (uint64_t)-1;
    }
}

void vvi_dataset_set_state_locked(struct vv_dataset *d, struct vvi_entry *e,
                                  enum vvi_dataset_state state)
{
    vv_assert(vv_mutex_held(&d->lock));
    vv_assert(allowed[e->state][state]);
    /* First, so that no client opens it after the state has changed. */
    if (e->state == DATASET_READY && d->opts.index)
        vvi_index_withdraw(d->opts.index, e);
    count(d, e, false);
    e->state = state;
    count(d, e, true);
    if (state == DATASET_DOOMED || state == DATASET_GONE)
        (void)vv_table_remove(&d->by_path, e); /* if it is there */
    /* The scrub may have skipped it while it was GOING. */
    if (state == DATASET_READY && e->round != d->round)
        d->scrub_again = true;
    if (state == DATASET_GONE) {
        struct vvi_entry *last = d->all[--d->nr];

        d->all[e->at] = last;
        last->at = e->at;
        if (e->at < d->scrub_at && last->round != d->round)
            d->scrub_again = true;
    }
}

void vvi_dataset_unpin_locked(struct vv_dataset *d, struct vvi_entry *e)
{
    vv_assert(vv_mutex_held(&d->lock) && e->pins > 0);
    (void)d;
    if (--e->pins == 0 && e->held == 0 && e->state == DATASET_GONE)
        vvi_dataset_entry_free(e);
}

static void let_go_locked(struct vvi_entry *e)
{
    vv_assert(e->held > 0);
    if (--e->held == 0 && e->pins == 0 && e->state == DATASET_GONE)
        vvi_dataset_entry_free(e);
}

void vvi_dataset_own(struct vv_dataset *d, struct vvi_entry *e)
{
    vv_mutex_lock(&d->lock);
    count(d, e, false);
    e->copy = false;
    count(d, e, true);
    vv_mutex_unlock(&d->lock);
}

/* ---- entries ---- */

struct vvi_entry *vvi_dataset_entry_new(const char *path, const struct vv_dataset_gen *gen)
{
    struct vvi_entry *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->path = strdup(path);
    if (!e->path) {
        free(e);
        return NULL;
    }
    e->gen = *gen;
    e->space = vvi_dataset_space(gen->size, false);
    e->hash = vv_hash64(path, strlen(path));
    e->next_use = VV_DATASET_UNKNOWN;
    return e;
}

void vvi_dataset_entry_free(struct vvi_entry *e)
{
    if (!e)
        return;
    free(e->path);
    free(e);
}

int vvi_dataset_add_locked(struct vv_dataset *d, struct vvi_entry *e)
{
    vv_assert(vv_mutex_held(&d->lock));
    if (d->nr == d->room) {
        size_t room = d->room ? 2 * d->room : ROOM_MIN;
        struct vvi_entry **all = realloc(d->all, room * sizeof(struct vvi_entry *));

        if (!all)
            return -ENOMEM;
        d->all = all;
        d->room = room;
    }
    e->at = d->nr;
    d->all[d->nr++] = e;
    vv_table_add(&d->by_path, e);
    count(d, e, true);
    return 0;
}

struct vvi_entry *vvi_dataset_find_locked(struct vv_dataset *d, const char *path)
{
    struct vvi_entry *e = vv_table_find(&d->by_path, vv_hash64(path, strlen(path)));

    vv_assert(vv_mutex_held(&d->lock));
    while (e && (e->state != DATASET_READY || strcmp(e->path, path) != 0))
        e = vv_table_same(e);
    return e;
}

/* ---- removing ---- */

/* Unlinks the file of an entry that is GOING, if no process has it open. */
static int unlink_unused(struct vv_dataset *d, const struct vvi_entry *e)
{
    char name[VVI_DATASET_NAME];
    int fd, rc;

    vvi_dataset_name(name, e->id, false);
    fd = d->os->openat(d->os, d->dirfd, name, (e->sealed ? O_RDONLY : O_RDWR) | O_NOFOLLOW, 0);
    /* A link, or a file of another user, from before the folder was this user's alone. It is never handed out. */
    if (fd == -ELOOP || fd == -EACCES)
        fd = d->os->unlinkat(d->os, d->dirfd, name) == 0 ? -ENOENT : fd;
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    /* A sealed file cannot be opened for writing, so it cannot be locked exclusively. A test is enough: the entry is
     * GOING, so the daemon does not hand it out, and a client that takes its lock from now on checks the index
     * after that, and does not find the file there. */
    rc = e->sealed ? d->os->lock_test(d->os, fd) : d->os->lock(d->os, fd);
    if (rc == 0)
        rc = d->os->unlinkat(d->os, d->dirfd, name);
    d->os->close(d->os, fd);
    return rc == -ENOENT ? 0 : rc;
}

/* Takes one entry, which the caller holds, off the disk. -EBUSY: a process has it open, a thread has it pinned, or its
 * state has changed. */
static int remove_entry(struct vv_dataset *d, struct vvi_entry *e, enum vvi_dataset_state from)
{
    int rc;

    vv_mutex_lock(&d->lock);
    if (e->state != from || e->pins > 0) {
        vv_mutex_unlock(&d->lock);
        return -EBUSY;
    }
    vvi_dataset_set_state_locked(d, e, DATASET_GOING);
    vv_mutex_unlock(&d->lock);

    rc = unlink_unused(d, e);
    vv_mutex_lock(&d->manifest.lock);
    vv_mutex_lock(&d->lock);
    if (rc == 0) {
        vvi_dataset_set_state_locked(d, e, DATASET_GONE);
        vvi_dataset_used_locked(d, -(int64_t)e->space);
    } else {
        vvi_dataset_set_state_locked(d, e, e->doomed ? DATASET_DOOMED : DATASET_READY);
        d->stats.refused_busy += rc == -EBUSY;
    }
    vv_mutex_unlock(&d->lock);
    /* A doomed entry was unlisted when it became doomed, or must be now. */
    if (rc == 0 || e->doomed)
        vvi_manifest_unlist_locked(d, e);
    vv_mutex_unlock(&d->manifest.lock);
    return rc;
}

void vvi_dataset_doom(struct vv_dataset *d, struct vvi_entry *e)
{
    vv_mutex_lock(&d->manifest.lock);
    vv_mutex_lock(&d->lock);
    if (e->state == DATASET_READY) {
        e->doomed = true;
        vvi_dataset_set_state_locked(d, e, DATASET_DOOMED);
    }
    vv_mutex_unlock(&d->lock);
    if (e->doomed)
        vvi_manifest_unlist_locked(d, e);
    vv_mutex_unlock(&d->manifest.lock);
}

/* An entry to look at later, held, with its rank at the time. */
struct candidate {
    struct vvi_entry *e;
    uint64_t rank;
    bool gone; /* evicted */
};

static int farthest_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank > y->rank ? -1 : 1;
    return x->e->id < y->e->id ? -1 : x->e->id > y->e->id;
}

uint64_t vvi_dataset_rank_locked(const struct vv_dataset *d, uint64_t next_use, uint64_t last_use)
{
    if (next_use != VV_DATASET_UNKNOWN && next_use >= d->place)
        return vv_next_rank(VV_USE_HINTED, VV_MIN(next_use - d->place, RANK_MAX));
    /* An older last use ranks farther. */
    return vv_next_rank(VV_USE_UNKNOWN, RANK_MAX - last_use);
}

uint64_t vvi_dataset_rank_of_copies(void)
{
    return vv_next_rank(VV_USE_SPARE, 0) - 1;
}

static uint64_t entry_rank_locked(const struct vv_dataset *d, const struct vvi_entry *e)
{
    if (e->copy)
        return vv_next_rank(VV_USE_SPARE, RANK_MAX - e->last_use);
    return vvi_dataset_rank_locked(d, e->next_use, e->last_use);
}

static bool is_passed(const struct vv_dataset *d, const struct vvi_entry *e)
{
    return e->state == DATASET_READY && e->next_use != VV_DATASET_UNKNOWN && e->next_use < d->place;
}

/* Asks for the next place of each file whose place has passed. From then on the file ranks by its next place. Paths are
 * copied instead of pinned: pinned files cannot be evicted, and another thread may need room now. */
static void ask_for_next_places(struct vv_dataset *d)
{
    char **list;
    size_t n = 0, room = 0;

    if (!d->opts.passed)
        return;
    vv_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->nr; i++)
        room += is_passed(d, d->all[i]);
    /* Without memory for the list, these files rank as if no next place were known. */
    list = room ? malloc(room * sizeof(char *)) : NULL;
    for (size_t i = 0; list && i < d->nr && n < room; i++)
        if (is_passed(d, d->all[i]) && (list[n] = strdup(d->all[i]->path)))
            n++;
    vv_mutex_unlock(&d->lock);
    for (size_t i = 0; i < n; i++) {
        uint64_t next_use = d->opts.passed(d->opts.user, list[i]);
        struct vvi_entry *e;

        vv_mutex_lock(&d->lock);
        e = vvi_dataset_find_locked(d, list[i]);
        if (e && is_passed(d, e)) /* not set by another thread meanwhile */
            e->next_use = next_use;
        vv_mutex_unlock(&d->lock);
        free(list[i]);
    }
    free(list);
}

/* All unpinned entries of a state; with a rank, only those that rank farther. They are held, and sorted farthest
 * first. */
static int collect(struct vv_dataset *d, enum vvi_dataset_state state, uint64_t rank,
                   struct candidate **ret_list, size_t *ret_nr)
{
    struct candidate *list;
    size_t n = 0;

    vv_mutex_lock(&d->lock);
    list = malloc(VV_MAX(d->nr, (size_t)1) * sizeof(*list));
    for (size_t i = 0; list && i < d->nr; i++) {
        struct vvi_entry *e = d->all[i];
        uint64_t its = entry_rank_locked(d, e);

        if (e->state != state || e->pins > 0 || (rank > 0 && its <= rank))
            continue;
        e->held++;
        list[n++] = (struct candidate){.e = e, .rank = its};
    }
    vv_mutex_unlock(&d->lock);
    if (!list)
        return -ENOMEM;
    qsort(list, n, sizeof(*list), farthest_first);
    *ret_list = list;
    *ret_nr = n;
    return 0;
}

static void release(struct vv_dataset *d, struct candidate *list, size_t nr)
{
    vv_mutex_lock(&d->lock);
    for (size_t i = 0; i < nr; i++)
        let_go_locked(list[i].e);
    vv_mutex_unlock(&d->lock);
    free(list);
}

void vvi_dataset_bury(struct vv_dataset *d)
{
    struct candidate *list;
    uint64_t waiting;
    size_t nr;

    vv_mutex_lock(&d->lock);
    waiting = d->stats.waiting;
    vv_mutex_unlock(&d->lock);
    if (waiting == 0 || collect(d, DATASET_DOOMED, 0, &list, &nr) < 0)
        return;
    for (size_t i = 0; i < nr; i++)
        (void)remove_entry(d, list[i].e, DATASET_DOOMED); /* busy ones are tried again later */
    release(d, list, nr);
}

/* ---- space ---- */

void vvi_dataset_used_locked(struct vv_dataset *d, int64_t bytes)
{
    d->stats.used += (uint64_t)bytes;
    set_load_locked(d);
}

static uint64_t used_now(struct vv_dataset *d)
{
    uint64_t used;

    vv_mutex_lock(&d->lock);
    used = d->stats.used;
    vv_mutex_unlock(&d->lock);
    return used;
}

static void note_use(void *user, struct vvi_entry *e)
{
    struct vv_dataset *d = user;

    e->last_use = ++d->clock;
}

/* Collects the opens that clients made without asking, and counts them as uses made now. */
static void harvest_locked(struct vv_dataset *d)
{
    if (d->opts.index)
        d->stats.direct = vvi_index_harvest(d->opts.index, note_use, d);
}

/* Removes files, the farthest first, until no more than `goal` bytes are used, it has freed `enough` bytes, or none is
 * left. Other threads may take freed room before `goal` is reached. The list is for notify_evicted(). */
static int evict(struct vv_dataset *d, uint64_t goal, uint64_t enough, uint64_t rank,
                 struct candidate **ret_list, size_t *ret_nr)
{
    struct candidate *list;
    uint64_t evicted = 0, freed = 0;
    size_t nr;
    int rc;

    vvi_dataset_bury(d);
    vv_mutex_lock(&d->lock);
    harvest_locked(d);
    vv_mutex_unlock(&d->lock);
    ask_for_next_places(d);
    rc = collect(d, DATASET_READY, rank, &list, &nr);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < nr && freed < enough && used_now(d) > goal; i++) {
        list[i].gone = remove_entry(d, list[i].e, DATASET_READY) == 0;
        evicted += list[i].gone;
        freed += list[i].gone ? list[i].e->space : 0;
    }
    vv_mutex_lock(&d->lock);
    d->stats.evicted += evicted;
    vv_mutex_unlock(&d->lock);
    *ret_list = list;
    *ret_nr = nr;
    return 0;
}

/* The callback may bring a file again, so it is called after the caller has taken the room. */
static void notify_evicted(struct vv_dataset *d, struct candidate *list, size_t nr)
{
    for (size_t i = 0; i < nr && d->opts.evicted; i++)
        if (list[i].gone && list[i].e->next_use != VV_DATASET_UNKNOWN)
            d->opts.evicted(d->opts.user, list[i].e->path, list[i].e->next_use);
    release(d, list, nr);
}

/* A share of the capacity, without overflow for any 64-bit number. */
static uint64_t share(const struct vv_dataset *d, unsigned pct)
{
    return (uint64_t)((unsigned __int128)d->opts.capacity * pct / 100);
}

static bool take(struct vv_dataset *d, uint64_t bytes, uint64_t limit)
{
    bool fits;

    vv_mutex_lock(&d->lock);
    fits = bytes <= limit && d->stats.used <= limit - bytes;
    if (fits)
        vvi_dataset_used_locked(d, (int64_t)bytes);
    vv_mutex_unlock(&d->lock);
    return fits;
}

/* The limit on used space for a file that no request waits for: the high watermark, because the space above it is for
 * requests. A file with a place in the order of use does not raise the used space above the low watermark. Otherwise
 * the files that were just evicted would come back and take the room that was made for others. */
static uint64_t limit_ahead(struct vv_dataset *d, uint64_t rank)
{
    uint64_t low = share(d, d->opts.low_pct), high = share(d, d->opts.high_pct);

    return vv_next_use(rank) == VV_USE_HINTED ? VV_MIN(high, VV_MAX(low, used_now(d))) : high;
}

int vvi_dataset_reserve(struct vv_dataset *d, uint64_t bytes, uint64_t rank)
{
    uint64_t low = share(d, d->opts.low_pct), limit = share(d, d->opts.high_pct);
    struct candidate *list;
    size_t nr;
    int rc;

    /* Without a waiting request, evict no more than needed: the evicted files may be wanted too. */
    if (rank > 0)
        low = limit = limit_ahead(d, rank);
    if (take(d, bytes, limit))
        return 0;
    rc = evict(d, bytes <= low ? low - bytes : d->opts.capacity - bytes, UINT64_MAX, rank, &list,
               &nr);
    if (rc < 0)
        return rc;
    rc = take(d, bytes, rank > 0 ? limit : d->opts.capacity) ? 0 : -ENOSPC;
    notify_evicted(d, list, nr);
    return rc;
}

/* Counts copies that find no room. True for every (SWAP_EVERY * batch)th of them: then the least recently used copies
 * are evicted, so that there is room for `batch` copies of this size. During epochs all copies are equally useful, and
 * replacing one only costs time; when a job turns to other files, old copies have to be replaced. */
static bool swap_is_due(struct vv_dataset *d, uint64_t bytes, uint64_t *ret_room)
{
    uint64_t batch;
    bool due;

    vv_mutex_lock(&d->lock);
    batch = VV_MIN(VV_MAX(d->stats.copies / SWAP_SHARE, UINT64_C(1)), (uint64_t)SWAP_MAX);
    due = d->stats.copies > 0 && ++d->refused >= SWAP_EVERY * batch;
    if (due)
        d->refused = 0;
    vv_mutex_unlock(&d->lock);
    if (due)
        *ret_room = batch * VV_MIN(bytes, UINT64_MAX / SWAP_MAX);
    return due;
}

bool vvi_dataset_may_copy(struct vv_dataset *d, uint64_t bytes, uint64_t *ret_room)
{
    uint64_t low = share(d, d->opts.low_pct);

    *ret_room = 0;
    return bytes <= low && (used_now(d) <= low - bytes || swap_is_due(d, bytes, ret_room));
}

int vvi_dataset_reserve_copy(struct vv_dataset *d, uint64_t bytes, uint64_t room)
{
    uint64_t low = share(d, d->opts.low_pct);
    struct candidate *list;
    size_t nr;
    int rc;

    if (take(d, bytes, low))
        return 0;
    if (room == 0)
        return -ENOSPC;
    rc = evict(d, low - VV_MIN(room, low), room, vvi_dataset_rank_of_copies(), &list, &nr);
    if (rc < 0)
        return rc;
    rc = take(d, bytes, low) ? 0 : -ENOSPC;
    notify_evicted(d, list, nr);
    return rc;
}

/* ---- opening and closing ---- */

VV_PRINTF(4, 5)
static int complain(int rc, char *err, size_t err_bytes, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (err && err_bytes)
        vsnprintf(err, err_bytes, fmt, ap);
    va_end(ap);
    return rc;
}

/* Opens the folder, or makes it, and refuses one that does not belong to this user alone. Links are not followed. */
static int open_dir(struct vv_dataset *d, const char *folder, char *err, size_t err_bytes,
                    int *ret_fd)
{
    char why[COMPLAINT] = "";
    int rc = vv_ours_parents(folder, why, sizeof(why)), fd;

    if (rc < 0)
        return complain(rc, err, err_bytes, "folder %s is not safe: %s", folder,
                        why[0] ? why : strerror(-rc));
    rc = d->os->mkdirat(d->os, AT_FDCWD, folder, 0700);
    if (rc < 0 && rc != -EEXIST)
        return complain(rc, err, err_bytes, "cannot create folder %s: %s", folder, strerror(-rc));
    fd = d->os->openat(d->os, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    /* For a link the kernel reports either error. */
    if (fd == -ELOOP || fd == -ENOTDIR)
        return complain(fd, err, err_bytes,
                        "%s is a link or a file, expected a folder: name the folder itself",
                        folder);
    if (fd < 0)
        return complain(fd, err, err_bytes, "cannot open folder %s: %s", folder, strerror(-fd));
    rc = vv_ours_folder(fd, folder, why, sizeof(why));
    if (rc < 0) {
        d->os->close(d->os, fd);
        return complain(rc, err, err_bytes, "%s", why[0] ? why : strerror(-rc));
    }
    *ret_fd = fd;
    return 0;
}

static int lock_dir(struct vv_dataset *d, const char *folder, int dirfd, char *err,
                    size_t err_bytes, int *ret_fd)
{
    char why[COMPLAINT] = "", path[COMPLAINT];
    int fd = d->os->openat(d->os, dirfd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0600), rc;

    if (fd == -ELOOP)
        return complain(fd, err, err_bytes, "%s/lock is a link, expected a file: remove it",
                        folder);
    if (fd < 0)
        return complain(fd, err, err_bytes, "cannot write in folder %s: %s", folder, strerror(-fd));
    snprintf(path, sizeof(path), "%s/lock", folder);
    rc = vv_ours_file(fd, path, why, sizeof(why));
    if (rc < 0) {
        complain(rc, err, err_bytes, "%s", why[0] ? why : strerror(-rc));
    } else {
        rc = d->os->lock(d->os, fd);
        if (rc == -EBUSY)
            complain(rc, err, err_bytes, "folder %s is in use by another process", folder);
        else if (rc < 0)
            complain(rc, err, err_bytes, "cannot lock folder %s: %s", folder, strerror(-rc));
    }
    if (rc < 0) {
        d->os->close(d->os, fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

static int open_folder(struct vv_dataset *d, const char *folder, char *err, size_t err_bytes)
{
    int rc = open_dir(d, folder, err, err_bytes, &d->dirfd);

    return rc < 0 ? rc : lock_dir(d, folder, d->dirfd, err, err_bytes, &d->lock_fd);
}

/* ---- a folder that was deleted ---- */

static bool is_deleted(const struct vv_dataset *d)
{
    struct stat st;

    return fstat(d->dirfd, &st) == 0 && st.st_nlink == 0;
}

/* Dooms all entries after their files were deleted. manifest.lock is held. */
static void doom_all(struct vv_dataset *d)
{
    vvi_manifest_forget_locked(d);
    vv_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->nr; i++) {
        struct vvi_entry *e = d->all[i];

        e->listed = false;
        e->doomed |= e->state == DATASET_READY || e->state == DATASET_GOING;
        if (e->state == DATASET_READY)
            vvi_dataset_set_state_locked(d, e, DATASET_DOOMED);
    }
    vv_mutex_unlock(&d->lock);
}

static int see_any(void *user, const char *name)
{
    (void)user;
    return strcmp(name, "lock") != 0;
}

/* Puts the new folder behind the same descriptor numbers. Concurrent calls use the old folder or the new one. */
static int make_again(struct vv_dataset *d, char *err, size_t err_bytes)
{
    int dirfd = -1, lock_fd = -1, rc = open_dir(d, d->folder, err, err_bytes, &dirfd);

    if (rc < 0)
        return rc;
    rc = lock_dir(d, d->folder, dirfd, err, err_bytes, &lock_fd);
    if (rc == 0)
        rc = d->os->list(d->os, dirfd, see_any, NULL);
    /* Existing files would not be counted, and could fill the disk. */
    if (rc > 0)
        rc = complain(-ENOTEMPTY, err, err_bytes, "%s has other files in it", d->folder);
    if (rc == 0 &&
        (dup3(lock_fd, d->lock_fd, O_CLOEXEC) < 0 || dup3(dirfd, d->dirfd, O_CLOEXEC) < 0))
        rc = complain(-errno, err, err_bytes, "%s", strerror(errno));
    if (lock_fd >= 0)
        d->os->close(d->os, lock_fd);
    d->os->close(d->os, dirfd);
    return rc;
}

bool vvi_dataset_restore(struct vv_dataset *d)
{
    char err[COMPLAINT] = "";
    bool gone, tries;

    vv_mutex_lock(&d->manifest.lock);
    gone = is_deleted(d);
    tries = gone && vv_now_ns() >= d->restore_ns;
    if (gone)
        doom_all(d);
    if (tries) {
        d->restore_ns = vv_now_ns() + RESTORE_NS;
        if (make_again(d, err, sizeof(err)) == 0)
            vv_log(VV_LOG_WARNING,
                   "dataset: the cache folder %s is gone: it is made again, and files are fetched "
                   "again",
                   d->folder);
        else
            vv_log(VV_LOG_WARNING,
                   "dataset: the cache folder %s is gone and cannot be made again (%s): programs "
                   "read the shared file system until it can",
                   d->folder, err);
    }
    vv_mutex_unlock(&d->manifest.lock);
    if (gone)
        vvi_dataset_bury(d);
    return gone;
}

static bool are_sound(const struct vv_dataset_opts *o)
{
    return o->capacity >= VVI_DATASET_BLOCK && o->high_pct <= 100 && o->low_pct <= o->high_pct &&
           o->low_pct > 0;
}

int vv_dataset_open(const char *folder, const struct vv_dataset_opts *opts, char *err,
                    size_t err_bytes, struct vv_dataset **ret_dataset)
{
    struct vv_dataset *d = calloc(1, sizeof(*d));
    struct candidate *list;
    size_t nr;
    int rc;

    if (!d)
        return complain(-ENOMEM, err, err_bytes, "out of memory");
    d->opts = *opts;
    d->opts.high_pct = opts->high_pct ? opts->high_pct : VV_DATASET_HIGH_PCT;
    d->opts.low_pct = opts->low_pct ? opts->low_pct : VV_MIN(VV_DATASET_LOW_PCT, d->opts.high_pct);
    d->os = opts->os ? opts->os : vv_os_posix();
    d->round = 1;
    atomic_init(&d->seals, opts->verity != VV_DATASET_VERITY_OFF);
    d->dirfd = d->lock_fd = d->manifest.fd = -1;
    vv_mutex_init(&d->manifest.lock, "manifest", VV_RANK_MANIFEST);
    vv_mutex_init(&d->lock, "dataset", VV_RANK_STORE);
    rc = are_sound(&d->opts) ? 0 : complain(-EINVAL, err, err_bytes, "malformed options");
    d->folder = rc == 0 ? strdup(folder) : NULL;
    if (rc == 0 && !d->folder)
        rc = complain(-ENOMEM, err, err_bytes, "out of memory");
    if (rc == 0)
        rc = open_folder(d, folder, err, err_bytes);
    if (rc == 0) {
        rc = vvi_manifest_load(d);
        /* The capacity may be less than in the last run. */
        if (rc == 0 && d->stats.used > d->opts.capacity) {
            rc = evict(d, share(d, d->opts.low_pct), UINT64_MAX, 0, &list, &nr);
            if (rc == 0)
                release(d, list, nr);
        }
        if (rc < 0)
            complain(rc, err, err_bytes, "cannot take up folder %s: %s", folder, strerror(-rc));
    }
    if (rc == 0 && opts->verity == VV_DATASET_VERITY_ON) {
        rc = vvi_dataset_try_seal(d);
        if (rc < 0)
            complain(rc, err, err_bytes, "files in %s cannot be sealed with fs-verity: %s", folder,
                     strerror(-rc));
    }
    if (rc < 0) {
        vv_dataset_close(d);
        return rc;
    }
    d->stats.evicted = 0;
    *ret_dataset = d;
    return 0;
}

void vv_dataset_close(struct vv_dataset *d)
{
    if (!d)
        return;
    vvi_manifest_close(d);
    for (size_t i = 0; i < d->nr; i++) {
        vv_assert(d->all[i]->state != DATASET_FILLING && d->all[i]->pins == 0);
        if (d->opts.index)
            vvi_index_withdraw(d->opts.index, d->all[i]);
        vvi_dataset_entry_free(d->all[i]);
    }
    if (d->lock_fd >= 0) {
        d->os->unlock(d->os, d->lock_fd);
        d->os->close(d->os, d->lock_fd);
    }
    if (d->dirfd >= 0)
        d->os->close(d->os, d->dirfd);
    vv_mutex_fini(&d->lock);
    vv_mutex_fini(&d->manifest.lock);
    free(d->all);
    vv_table_fini(&d->by_path);
    free(d->folder);
    free(d);
}

/* ---- expected uses, and figures ---- */

int vv_dataset_expect(struct vv_dataset *d, const char *path, uint64_t next_use)
{
    struct vvi_entry *e;

    vv_mutex_lock(&d->lock);
    e = vvi_dataset_find_locked(d, path);
    if (e)
        e->next_use = next_use;
    vv_mutex_unlock(&d->lock);
    return e ? 0 : -ENOENT;
}

void vv_dataset_advance(struct vv_dataset *d, uint64_t place)
{
    vv_mutex_lock(&d->lock);
    d->place = place;
    vv_mutex_unlock(&d->lock);
}

void vv_dataset_stats(struct vv_dataset *d, struct vv_dataset_stats *ret_stats)
{
    vv_mutex_lock(&d->lock);
    harvest_locked(d);
    *ret_stats = d->stats;
    vv_mutex_unlock(&d->lock);
}

uint64_t vv_dataset_files(const struct vv_dataset *d)
{
    return atomic_load_explicit(&d->files, memory_order_relaxed);
}

uint64_t vv_dataset_load(const struct vv_dataset *d)
{
    return atomic_load_explicit(&d->load, memory_order_relaxed);
}

int vv_dataset_list(struct vv_dataset *d,
                    int (*visit)(void *user, const struct vv_dataset_entry *e), void *user)
{
    struct vvi_entry **list;
    size_t n = 0;
    int rc = 0;

    vv_mutex_lock(&d->lock);
    list = malloc(VV_MAX(d->nr, (size_t)1) * sizeof(struct vvi_entry *));
    for (size_t i = 0; list && i < d->nr; i++) {
        if (d->all[i]->state != DATASET_READY)
            continue;
        d->all[i]->held++;
        list[n++] = d->all[i];
    }
    vv_mutex_unlock(&d->lock);
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct vv_dataset_entry e = {list[i]->path, list[i]->gen, list[i]->sum, false};

        vv_mutex_lock(&d->lock);
        e.copy = list[i]->copy;
        vv_mutex_unlock(&d->lock);
        rc = visit(user, &e);
    }
    vv_mutex_lock(&d->lock);
    for (size_t i = 0; i < n; i++)
        let_go_locked(list[i]);
    vv_mutex_unlock(&d->lock);
    free(list);
    return rc;
}
