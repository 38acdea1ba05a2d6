/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of committed files and the objects open in it.
 *
 * A hash table holds the objects being written (each until it is committed or removed) and committed
 * ones that were read recently. There may be many of the first kind: small versions are written much
 * faster than they are committed. Objects with a descriptor are also in a list, most recently used
 * first, which is short: `max_open` and the pinned ones. A descriptor is closed only while its object is
 * not pinned. An object being written then keeps its checksums and is opened again when needed; a
 * committed one is dropped and read again. An object that could not be written or committed stays in
 * the table, so that no reader takes it for a good one, until it is removed or the history is closed.
 *
 * folder->lock protects table and list and is never held across a system call: files are opened before
 * an object enters them, and if two movers open the same file, the later one closes its own. Used by
 * several threads: every mover with a store on the folder. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "s3/s3.h"
#include "store/files/files_private.h"

/* Checks at opening, not at the first checkpoint, if libcufile accepts files of this folder. On a full disk
 * no file can be created to check that: 0. */
static int try_gds(struct vv_folder *folder, char *err, size_t err_bytes)
{
    const struct vv_os *os = folder->opts.os;
    struct vvi_gds_file *file = NULL;
    int fd = vvi_store_open_unlinked(os, folder->dirfd, folder->direct);
    if (fd == -ENOSPC || fd == -EDQUOT)
        return 0;
    if (fd < 0)
        return vvi_error(fd, err, err_bytes, "%s: cannot create a file: %s", folder->path,
                         strerror(-fd));
    int rc = vvi_gds_file_first(folder->opts.gds, fd, folder->direct, folder->path, err, err_bytes,
                                &file);
    vvi_gds_file_remove(file);
    os->close(os, fd);
    return rc;
}

static int open_directory(struct vv_folder *folder, char *err, size_t err_bytes)
{
    const struct vv_store_opts *opts = &folder->opts;
    folder->dirfd = vvi_store_open_folder(opts->os, folder->path, err, err_bytes);
    if (folder->dirfd < 0)
        return folder->dirfd;
    int rc = vvi_store_probe(opts, folder->dirfd, folder->path, err, err_bytes, &folder->direct);
    folder->keeps = opts->written_stays && !folder->direct && !opts->unsynced;
    folder->ranges = vv_os_syncs_ranges(folder->dirfd);
    return rc < 0 || !opts->gds ? rc : try_gds(folder, err, err_bytes);
}

int vv_folder_new(const char *path, const struct vv_store_opts *opts, char *err, size_t err_bytes,
                  struct vv_folder **ret_folder)
{
    int rc = vvi_store_opts_check(opts);
    if (rc < 0 || !path || path[0] == '\0')
        return vvi_error(-EINVAL, err, err_bytes, "malformed options");
    struct vv_folder *folder = calloc(1, sizeof(*folder));
    if (!folder)
        return vvi_error(-ENOMEM, err, err_bytes, "out of memory");
    folder->opts = *opts;
    vvi_pace_init(&folder->pace, opts);
    vv_mutex_init(&folder->lock, "folder", VV_RANK_STORE);
    folder->path = strdup(path);
    folder->dirfd = -1;
    if (!folder->path)
        rc = vvi_error(-ENOMEM, err, err_bytes, "out of memory");
    else if (vv_s3_is_url(path))
        rc = vv_target_open(opts->os, path, err, err_bytes, &folder->target);
    else
        rc = open_directory(folder, err, err_bytes);
    if (rc < 0) {
        vv_folder_free(folder);
        return rc;
    }
    *ret_folder = folder;
    return 0;
}

void vv_folder_free(struct vv_folder *folder)
{
    if (!folder)
        return;
    vv_assert(folder->objects.n == 0);
    vv_table_fini(&folder->objects);
    if (folder->dirfd >= 0)
        folder->opts.os->close(folder->opts.os, folder->dirfd);
    vv_target_close(folder->target);
    vv_mutex_fini(&folder->lock);
    vvi_pace_fini(&folder->pace);
    free(folder->path);
    free(folder);
}

/* ---- table and list ---- */

static void list_remove(struct vv_folder *folder, struct vvi_obj *obj)
{
    folder->nopen--;
    *(obj->prev ? &obj->prev->next : &folder->first) = obj->next;
    *(obj->next ? &obj->next->prev : &folder->last) = obj->prev;
    obj->prev = obj->next = NULL;
}

static void list_push_front(struct vv_folder *folder, struct vvi_obj *obj)
{
    folder->nopen++;
    obj->prev = NULL;
    obj->next = folder->first;
    *(obj->next ? &obj->next->prev : &folder->last) = obj;
    folder->first = obj;
}

static struct vvi_obj *find_locked(struct vv_folder *folder, const struct vv_files *files,
                                   const struct vv_store_key *key)
{
    vv_assert(vv_mutex_held(&folder->lock));
    struct vvi_obj *obj = vv_table_find(&folder->objects, key->version);
    while (obj && (obj->files != files || obj->id.generation != key->generation))
        obj = vv_table_same(obj);
    return obj;
}

static void obj_free(struct vvi_obj *obj)
{
    if (!obj)
        return;
    const struct vv_os *os = obj->files->folder->opts.os;
    vvi_gds_file_remove(obj->gds);
    if (obj->fd >= 0)
        os->close(os, obj->fd);
    free(obj->sums);
    free(obj);
}

static void obj_name(const struct vvi_obj *obj, bool temp, char name[VV_CKFILE_NAME_MAX])
{
    vv_ckfile_name(name, temp ? VV_CKFILE_TEMP : VV_CKFILE_COMMITTED, obj->files->rank,
                   obj->id.version, obj->id.generation);
}

/* Takes one surplus descriptor from the least recently used object. Returns the descriptor,
 * or -1. The caller closes *ret_gds, then the descriptor, and frees *ret_drop, an object or NULL. */
static int take_surplus_locked(struct vv_folder *folder, struct vvi_gds_file **ret_gds,
                               struct vvi_obj **ret_drop)
{
    *ret_gds = NULL;
    *ret_drop = NULL;
    if (folder->nopen <= folder->opts.max_open)
        return -1;
    struct vvi_obj *obj = folder->last;
    while (obj && obj->pins > 0)
        obj = obj->prev;
    if (!obj)
        return -1;
    list_remove(folder, obj);
    if (!obj->temp && obj->spoiled == 0) {
        (void)vv_table_remove(&folder->objects, obj);
        *ret_drop = obj;
        return -1;
    }
    int fd = obj->fd;
    obj->fd = -1;
    *ret_gds = obj->gds;
    obj->gds = NULL;
    return fd;
}

static void trim(struct vv_folder *folder)
{
    const struct vv_os *os = folder->opts.os;
    for (;;) {
        struct vvi_gds_file *gds;
        struct vvi_obj *drop;
        vv_mutex_lock(&folder->lock);
        int fd = take_surplus_locked(folder, &gds, &drop);
        vv_mutex_unlock(&folder->lock);
        if (fd < 0 && !drop)
            return;
        vvi_gds_file_remove(gds);
        if (fd >= 0)
            os->close(os, fd);
        obj_free(drop);
    }
}

/* Pins an object of the table and makes it the most recent. */
static void pin_locked(struct vv_folder *folder, struct vvi_obj *obj)
{
    obj->pins++;
    if (obj->fd >= 0) {
        list_remove(folder, obj);
        list_push_front(folder, obj);
    }
}

static struct vvi_obj *find_and_pin(struct vv_files *files, const struct vv_store_key *key)
{
    struct vv_folder *folder = files->folder;
    vv_mutex_lock(&folder->lock);
    struct vvi_obj *obj = find_locked(folder, files, key);
    if (obj)
        pin_locked(folder, obj);
    vv_mutex_unlock(&folder->lock);
    return obj;
}

/* Puts a new object into the table, pinned. If another thread was faster, returns that one's object. */
static struct vvi_obj *insert_and_pin(struct vv_files *files, const struct vv_store_key *key,
                                      struct vvi_obj *fresh)
{
    struct vv_folder *folder = files->folder;
    vv_mutex_lock(&folder->lock);
    struct vvi_obj *obj = find_locked(folder, files, key);
    if (obj) {
        pin_locked(folder, obj);
    } else {
        obj = fresh;
        obj->pins = 1;
        vv_table_add(&folder->objects, obj);
        if (obj->fd >= 0)
            list_push_front(folder, obj);
    }
    vv_mutex_unlock(&folder->lock);
    if (obj != fresh)
        obj_free(fresh);
    trim(folder);
    return obj;
}

void vvi_obj_unpin(struct vvi_obj *obj)
{
    struct vv_folder *folder = obj->files->folder;
    vv_mutex_lock(&folder->lock);
    vv_assert(obj->pins > 0);
    obj->pins--;
    bool last = obj->dead && obj->pins == 0;
    bool surplus = folder->nopen > folder->opts.max_open;
    vv_mutex_unlock(&folder->lock);
    if (last)
        obj_free(obj);
    else if (surplus)
        trim(folder);
}

int vvi_obj_gds(struct vvi_obj *obj, struct vvi_gds_file **ret_file)
{
    struct vv_folder *folder = obj->files->folder;
    vv_mutex_lock(&folder->lock);
    struct vvi_gds_file *file = obj->gds;
    int fd = obj->fd;
    vv_mutex_unlock(&folder->lock);
    if (!file) {
        struct vvi_gds_file *fresh;
        int rc = vvi_gds_file_add(folder->opts.gds, fd, &fresh);
        if (rc < 0)
            return rc;
        vv_mutex_lock(&folder->lock);
        if (!obj->gds) {
            obj->gds = fresh;
            fresh = NULL;
        }
        file = obj->gds;
        vv_mutex_unlock(&folder->lock);
        vvi_gds_file_remove(fresh); /* another mover was faster */
    }
    *ret_file = file;
    return 0;
}

/* ---- opening and creating ---- */

/* Opens the descriptor of a pinned object again. */
static int reopen(struct vvi_obj *obj)
{
    struct vv_folder *folder = obj->files->folder;
    const struct vv_os *os = folder->opts.os;
    bool temp = false;
    int fd = -ENOENT;
    /* Another mover's commit may rename the file after we have made up its name, and back if that commit
     * fails. */
    for (int tries = 0; tries < 3 && fd == -ENOENT; tries++) {
        char name[VV_CKFILE_NAME_MAX];
        vv_mutex_lock(&folder->lock);
        bool open = obj->fd >= 0;
        temp = tries == 0 ? obj->temp : !temp;
        obj_name(obj, temp, name);
        vv_mutex_unlock(&folder->lock);
        if (open)
            return 0;
        fd = vvi_store_openat(os, obj->files->dirfd, name,
                              obj->files->read_only ? O_RDONLY : O_RDWR, folder->direct);
    }
    if (fd < 0)
        return vvi_files_same(obj->files, obj->id.version, obj->id.generation, fd, 0);
    vv_mutex_lock(&folder->lock);
    bool open = obj->fd >= 0;
    if (!open) {
        obj->fd = fd;
        list_push_front(folder, obj);
    }
    vv_mutex_unlock(&folder->lock);
    if (open)
        os->close(os, fd);
    trim(folder);
    return 0;
}

static struct vvi_obj *obj_new(struct vv_files *files, const struct vv_ckfile_id *id)
{
    struct vvi_obj *obj = calloc(1, sizeof(*obj));
    if (!obj)
        return NULL;
    obj->version = id->version;
    obj->files = files;
    obj->id = *id;
    obj->nchunks = vvi_chunks(id->size, id->chunk_bytes);
    obj->fd = -1;
    return obj;
}

static int create_file(struct vvi_obj *obj)
{
    struct vv_folder *folder = obj->files->folder;
    const struct vv_os *os = folder->opts.os;
    char name[VV_CKFILE_NAME_MAX];
    obj_name(obj, true, name);
    obj->fd =
        vvi_store_openat(os, obj->files->dirfd, name, O_RDWR | O_CREAT | O_EXCL, folder->direct);
    if (obj->fd < 0)
        return obj->fd;
    /* A full disk is found here, not after most of the object was written. And writes to a file of its
     * final size need no lock for extending it, which would serialise direct writes. */
    int rc =
        os->fallocate(os, obj->fd, 0, vv_files_bytes(obj->id.size, 0, folder->opts.page_bytes));
    if (rc < 0 && rc != -EOPNOTSUPP) {
        os->unlinkat(os, obj->files->dirfd, name);
        os->close(os, obj->fd);
        obj->fd = -1;
        return rc;
    }
    return 0;
}

void vvi_obj_spoil(struct vvi_obj *obj, int error)
{
    struct vv_folder *folder = obj->files->folder;
    vv_assert(error < 0);
    vv_mutex_lock(&folder->lock);
    if (obj->spoiled == 0)
        obj->spoiled = error;
    vv_mutex_unlock(&folder->lock);
}

int vvi_obj_create(const struct vv_store_io *io, struct vvi_obj **ret_obj)
{
    const struct vv_store_key *key = &io->key;
    struct vv_files *files = key->history;
    struct vvi_obj *obj = find_and_pin(files, key);
    if (!obj) {
        struct vv_ckfile_id id = {.version = key->version,
                                  .generation = key->generation,
                                  .run_id = vv_files_run_id(files, io->edition),
                                  .size = io->size,
                                  .rank = files->rank,
                                  .chunk_bytes = files->folder->opts.page_bytes};
        obj = obj_new(files, &id);
        if (!obj)
            return -ENOMEM;
        obj->temp = true;
        obj->sums = calloc((size_t)obj->nchunks + 1, sizeof(uint64_t));
        obj->spoiled = obj->sums ? create_file(obj) : -ENOMEM;
        obj = insert_and_pin(files, key, obj);
    }
    /* Synchronization: only the writing store, which is the caller, changes spoiled and temp. */
    int rc = obj->spoiled;
    if (rc == 0 && obj->id.size != io->size)
        rc = -EINVAL;
    if (rc == 0 && !obj->temp)
        rc = -EEXIST;
    if (rc == 0) {
        rc = reopen(obj);
        if (rc < 0)
            vvi_obj_spoil(obj, rc);
    }
    if (rc < 0) {
        vvi_obj_unpin(obj);
        return rc;
    }
    *ret_obj = obj;
    return 0;
}

static int load_committed(struct vv_files *files, const struct vv_store_key *key,
                          struct vvi_obj **ret_obj)
{
    struct vv_folder *folder = files->folder;
    const struct vv_os *os = folder->opts.os;
    char name[VV_CKFILE_NAME_MAX];
    struct vv_ckfile_info info;
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, files->rank, key->version, key->generation);
    int fd = vvi_store_openat(os, files->dirfd, name, O_RDONLY, folder->direct);
    if (fd < 0)
        return vvi_files_same(files, key->version, key->generation, fd, 0);
    int rc = vv_ckfile_read(os, fd, false, NULL, 0, &info);
    if (rc == 0) {
        rc = vvi_files_same(files, key->version, key->generation, 0, info.id.run_id);
        if (rc < 0)
            vv_ckfile_info_fini(&info);
    }
    if (rc < 0) {
        os->close(os, fd);
        return rc;
    }
    bool same = info.id.version == key->version && info.id.generation == key->generation &&
                info.id.rank == files->rank;
    struct vvi_obj *obj = same ? obj_new(files, &info.id) : NULL;
    if (!obj) {
        vv_ckfile_info_fini(&info);
        os->close(os, fd);
        return same ? -ENOMEM : -EBADMSG;
    }
    obj->fd = fd;
    obj->sums = info.sums;
    info.sums = NULL;
    vv_ckfile_info_fini(&info);
    *ret_obj = obj;
    return 0;
}

int vvi_obj_open(struct vv_files *files, const struct vv_store_key *key, struct vvi_obj **ret_obj)
{
    struct vvi_obj *obj = find_and_pin(files, key);
    if (!obj) {
        int rc = load_committed(files, key, &obj);
        if (rc < 0)
            return rc;
        obj = insert_and_pin(files, key, obj);
    }
    int rc = reopen(obj);
    if (rc < 0) {
        vvi_obj_unpin(obj);
        return rc;
    }
    *ret_obj = obj;
    return 0;
}

/* ---- committing and removing ---- */

int vvi_obj_rename(struct vvi_obj *obj)
{
    struct vv_folder *folder = obj->files->folder;
    const struct vv_os *os = folder->opts.os;
    char from[VV_CKFILE_NAME_MAX], to[VV_CKFILE_NAME_MAX];
    obj_name(obj, true, from);
    obj_name(obj, false, to);
    int rc = os->rename(os, obj->files->dirfd, from, to, false);
    if (rc < 0)
        return rc;
    vv_mutex_lock(&folder->lock);
    obj->temp = false;
    obj->renamed = true;
    vv_mutex_unlock(&folder->lock);
    return 0;
}

void vvi_obj_unname(struct vvi_obj *obj)
{
    struct vv_folder *folder = obj->files->folder;
    const struct vv_os *os = folder->opts.os;
    char from[VV_CKFILE_NAME_MAX], to[VV_CKFILE_NAME_MAX];
    obj_name(obj, false, from);
    obj_name(obj, true, to);
    if (os->rename(os, obj->files->dirfd, from, to, false) < 0)
        return;
    vv_mutex_lock(&folder->lock);
    obj->temp = true;
    vv_mutex_unlock(&folder->lock);
}

/* Removes an object from the table. It is freed now or at its last unpin. */
static void drop_locked(struct vv_folder *folder, struct vvi_obj *obj, struct vvi_obj **ret_free)
{
    (void)vv_table_remove(&folder->objects, obj);
    if (obj->fd >= 0)
        list_remove(folder, obj);
    obj->dead = true;
    *ret_free = obj->pins == 0 ? obj : NULL;
}

/* Deletes the generations hidden by a damaged one, before that one: an interrupted removal must not
 * leave the older bytes as the version. */
static int remove_hidden(struct vv_files *files, const struct vv_store_key *key, bool *ret_any)
{
    const struct vv_os *os = files->folder->opts.os;
    for (size_t i = 0; i < files->nhidden; i++) {
        const struct vvi_hidden *h = &files->hidden[i];
        char name[VV_CKFILE_NAME_MAX];
        if (h->version != key->version || h->generation >= key->generation)
            continue;
        vv_ckfile_name(name, VV_CKFILE_COMMITTED, files->rank, h->version, h->generation);
        int rc = os->unlinkat(os, files->dirfd, name);
        if (rc < 0 && rc != -ENOENT)
            return rc;
        *ret_any |= rc == 0;
    }
    return 0;
}

/* Removes the object's file. A known object has one name, by its state; an unknown one, or one whose
 * rename failed, may have either. */
static int remove_names(struct vv_files *files, const struct vv_store_key *key, bool known,
                        bool temp, bool *ret_committed)
{
    static const enum vv_ckfile_kind kinds[] = {VV_CKFILE_COMMITTED, VV_CKFILE_TEMP};
    const struct vv_os *os = files->folder->opts.os;
    for (unsigned i = 0; i < VV_ARRAY_SIZE(kinds); i++) {
        char name[VV_CKFILE_NAME_MAX];
        if (known && temp != (kinds[i] == VV_CKFILE_TEMP))
            continue;
        vv_ckfile_name(name, kinds[i], files->rank, key->version, key->generation);
        int rc = os->unlinkat(os, files->dirfd, name);
        if (rc < 0 && rc != -ENOENT)
            return rc;
        if (rc == 0) {
            *ret_committed = kinds[i] == VV_CKFILE_COMMITTED;
            return 0;
        }
    }
    return 0;
}

/* Removes an earlier generation whose removal has failed. */
static int remove_left(struct vv_files *files, const struct vv_store_key *key, bool *ret_any)
{
    struct vv_folder *folder = files->folder;
    int rc = 0;
    for (bool any = true; any && rc == 0;) {
        struct vv_store_key left = *key;
        vv_mutex_lock(&folder->lock);
        struct vvi_obj *obj = vv_table_find(&folder->objects, key->version);
        for (; obj; obj = vv_table_same(obj))
            if (obj->files == files && obj->left && obj->id.generation < left.generation)
                left.generation = obj->id.generation;
        vv_mutex_unlock(&folder->lock);
        bool sync = false;
        any = left.generation < key->generation;
        if (any)
            rc = vvi_obj_remove(files, &left, &sync);
        *ret_any |= sync;
    }
    return rc;
}

int vvi_obj_remove_older(struct vv_files *files, const struct vv_store_key *key, bool *ret_any)
{
    *ret_any = false;
    int rc = remove_hidden(files, key, ret_any);
    return rc == 0 ? remove_left(files, key, ret_any) : rc;
}

int vvi_obj_remove(struct vv_files *files, const struct vv_store_key *key, bool *ret_sync)
{
    struct vv_folder *folder = files->folder;
    struct vvi_obj *gone = NULL;
    bool temp = false, renamed = false, before, committed = false;
    vv_mutex_lock(&folder->lock);
    struct vvi_obj *obj = find_locked(folder, files, key);
    bool known = obj && obj->spoiled == 0;
    if (obj) {
        temp = obj->temp;
        renamed = obj->renamed;
    }
    vv_mutex_unlock(&folder->lock);
    int rc = vvi_obj_remove_older(files, key, &before);
    if (rc == 0)
        rc = remove_names(files, key, known, temp, &committed);
    /* Dropped only if its file is deleted: a spoiled object stays spoiled. */
    vv_mutex_lock(&folder->lock);
    obj = find_locked(folder, files, key);
    if (obj && rc == 0)
        drop_locked(folder, obj, &gone);
    else if (obj)
        obj->left = true;
    vv_mutex_unlock(&folder->lock);
    obj_free(gone);
    if (rc < 0)
        return rc;
    *ret_sync = before || committed || renamed || atomic_load(&files->removal_unsynced);
    return 0;
}

void vvi_obj_drop_all(struct vv_files *files)
{
    struct vv_folder *folder = files->folder;
    const struct vv_os *os = folder->opts.os;
    struct vvi_obj *all = NULL, *gone, *next;
    vv_mutex_lock(&folder->lock);
    for (struct vvi_obj *obj = vv_table_first(&folder->objects); obj; obj = next) {
        next = vv_table_next(&folder->objects, obj);
        if (obj->files != files)
            continue;
        vv_assert(obj->pins == 0);
        drop_locked(folder, obj, &gone);
        if (!gone)
            continue;
        gone->next = all;
        all = gone;
    }
    vv_mutex_unlock(&folder->lock);
    for (; all; all = next) {
        next = all->next;
        if (all->temp) {
            char name[VV_CKFILE_NAME_MAX];
            obj_name(all, true, name);
            os->unlinkat(os, files->dirfd, name);
        }
        obj_free(all);
    }
}
