/* SPDX-License-Identifier: Apache-2.0 */
/* Opening one history: the lock, the committed versions, and the index.
 *
 * The listing of the folder tells which files exist. The index tells the contents of each, if the file
 * has the length in the index; otherwise the file is read. If a version has several generations, the
 * highest counts: the others were replaced, and a crash came before their removal. They are removed
 * here, unless the highest cannot be used, or `all_generations` leaves the choice to the remote folder.
 * Files under temporary names are removed: with the lock held, no process writes them. A committed file
 * that fails its check is not deleted: it is left to `varve verify` and its owner. It still counts as
 * the highest generation; otherwise bytes that the application replaced would come back as the version.
 * The generations it hides stay on disk and are removed with it.
 *
 * Everything here runs on the thread that opens or closes, except vv_files_run_id, which reads only
 * immutable fields. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "store/files/files_private.h"
#include "store/target/folder/target_folder.h"

/* ---- the lock ---- */

static long lock_holder(const struct vv_os *os, int fd)
{
    char text[32] = "";
    int64_t n = os->pread(os, fd, text, sizeof(text) - 1, 0);
    return n > 0 ? strtol(text, NULL, 10) : 0;
}

static int take_lock(struct vv_files *f, char *err, size_t err_bytes)
{
    const struct vv_os *os = f->folder->opts.os;
    char name[32], text[32];
    snprintf(name, sizeof(name), "lock.%" PRIu32, f->rank);
    f->lock_fd = os->openat(os, f->dirfd, name, O_RDWR | O_CREAT, 0666);
    if (f->lock_fd < 0)
        return vvi_error(f->lock_fd, err, err_bytes, "%s/%s/%s: %s", f->folder->path, f->history,
                         name, strerror(-f->lock_fd));
    int rc = os->lock(os, f->lock_fd);
    if (rc == -EBUSY) {
        long holder = lock_holder(os, f->lock_fd);
        if (holder == (long)getpid())
            return vvi_error(rc, err, err_bytes,
                             "history %s (rank %" PRIu32 ") in %s is open already in this process; "
                             "use its handle, or close it first",
                             f->history, f->rank, f->folder->path);
        return vvi_error(rc, err, err_bytes,
                         "history %s (rank %" PRIu32 ") in %s is in use by process %ld; give each "
                         "process its own rank",
                         f->history, f->rank, f->folder->path, holder);
    }
    if (rc < 0)
        return vvi_error(rc, err, err_bytes, "cannot lock %s/%s/%s: %s", f->folder->path,
                         f->history, name, strerror(-rc));
    f->locked_by = getpid();
    /* Only for the text above: a full disk must not prevent reading a history. */
    int n = snprintf(text, sizeof(text), "%ld\n", (long)f->locked_by);
    if (os->ftruncate(os, f->lock_fd, 0) == 0)
        (void)os->pwrite(os, f->lock_fd, text, (size_t)n, 0);
    return 0;
}

/* ---- files in the folder ---- */

struct listing {
    struct vv_files *files;
    size_t room;
    char (*temps)[VV_CKFILE_NAME_MAX];
    size_t ntemps, temps_room;
};

static int grow_array(void **array, size_t n, size_t *room, size_t element_bytes)
{
    if (n < *room)
        return 0;
    size_t more = VV_MAX(*room * 2, (size_t)256);
    void *p = realloc(*array, more * element_bytes);
    if (!p)
        return -ENOMEM;
    *array = p;
    *room = more;
    return 0;
}

static int list_name(void *user, const char *name, uint64_t bytes)
{
    struct listing *l = user;
    struct vv_files *f = l->files;
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t version, generation;
    if (!vv_ckfile_parse_name(name, &kind, &rank, &version, &generation) || rank != f->rank)
        return 0;
    if (kind == VV_CKFILE_TEMP) {
        int rc = grow_array((void **)&l->temps, l->ntemps, &l->temps_room, sizeof(*l->temps));
        if (rc == 0)
            snprintf(l->temps[l->ntemps++], VV_CKFILE_NAME_MAX, "%s", name);
        return rc;
    }
    int rc = grow_array((void **)&f->found, f->nfound, &l->room, sizeof(*f->found));
    if (rc == 0)
        f->found[f->nfound++] = (struct vvi_found){
            .entry = {.version = version, .generation = generation, .rank = rank},
            .listed_bytes = bytes};
    return rc;
}

static int compare_found(const void *a, const void *b)
{
    const struct vv_files_entry *x = &((const struct vvi_found *)a)->entry;
    const struct vv_files_entry *y = &((const struct vvi_found *)b)->entry;
    if (x->version != y->version)
        return x->version < y->version ? -1 : 1;
    return (x->generation > y->generation) - (x->generation < y->generation);
}

static int list_folder(struct vv_files *f)
{
    struct listing l = {.files = f};
    int rc = f->at->ops->list(f->at, list_name, &l);
    for (size_t i = 0; rc == 0 && i < l.ntemps && !f->read_only; i++) {
        rc = f->at->ops->remove(f->at, l.temps[i]);
        /* A folder of that name is not ours. New files have other names, so it can stay. */
        if (rc == -ENOENT || rc == -EISDIR || rc == -EPERM)
            rc = 0;
    }
    free(l.temps);
    if (f->nfound > 0)
        qsort(f->found, f->nfound, sizeof(*f->found), compare_found);
    return rc;
}

static bool is_ours(void *user, const char *name)
{
    const struct vv_files *f = user;
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t version, generation;
    return vv_ckfile_parse_name(name, &kind, &rank, &version, &generation) && rank == f->rank;
}

void vvi_files_sweep(struct vv_files *f)
{
    if (f->at->ops->sweep)
        (void)f->at->ops->sweep(f->at, is_ours, f);
}

/* ---- contents of the files ---- */

static void apply_index(struct vv_files *f)
{
    const struct vvi_index_record *r;
    uint64_t at = 0;
    while ((r = vvi_index_next(&f->view, &at))) {
        f->first_generation = VV_MAX(f->first_generation, r->generation + 1);
        struct vvi_found key = {.entry = {.version = r->version, .generation = r->generation}};
        struct vvi_found *found =
            f->nfound == 0 ? NULL : bsearch(&key, f->found, f->nfound, sizeof(key), compare_found);
        if (!found)
            continue;
        found->known = r->kind == VVI_RECORD_COMMIT;
        found->entry.size = r->size;
        found->entry.run_id = r->run_id;
        found->entry.commit_time_ns = r->commit_time_ns;
        found->entry.file_bytes = r->file_bytes;
        found->entry.nregions = r->nregions;
        found->entry.regions = vvi_index_regions(r);
    }
}

/* True if a file has the length in the index. Otherwise it is read as if it were not in the index. */
static bool as_indexed(const struct vv_files *f, const struct vvi_found *found)
{
    const struct vv_os *os = f->folder->opts.os;
    char name[VV_CKFILE_NAME_MAX];
    uint64_t bytes;
    if (found->listed_bytes != VV_TARGET_BYTES_UNKNOWN)
        return found->listed_bytes == found->entry.file_bytes;
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, f->rank, found->entry.version,
                   found->entry.generation);
    return os->stat(os, f->dirfd, name, &bytes) == 0 && bytes == found->entry.file_bytes;
}

/* Reads one file that is not in the index. Errors of the file are not fatal; err describes them. */
static int read_file(struct vv_files *f, struct vvi_found *found, char *err, size_t err_bytes)
{
    /* On a target the header takes another request; the file's name and its tail suffice. */
    bool header = !f->folder->target;
    char name[VV_CKFILE_NAME_MAX];
    struct vv_target_file *file;
    struct vv_ckfile_info info;
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, f->rank, found->entry.version,
                   found->entry.generation);
    int rc = f->at->ops->open(f->at, name, VV_TARGET_READ, &file);
    if (rc < 0)
        return vvi_error(rc, err, err_bytes, "%s",
                         rc == -EBADMSG ? VV_CKFILE_NOT_REGULAR : strerror(-rc));
    rc = vv_ckfile_read_from(file, header, err, err_bytes, &info);
    vv_target_end(file);
    if (rc < 0)
        return rc;
    if (info.id.version != found->entry.version || info.id.generation != found->entry.generation ||
        info.id.rank != f->rank || (header && strcmp(info.history, f->history) != 0)) {
        vv_ckfile_info_fini(&info);
        return vvi_error(-EBADMSG, err, err_bytes, "holds another checkpoint than its name says");
    }
    found->known = true;
    found->entry.size = info.id.size;
    found->entry.run_id = info.id.run_id;
    found->entry.commit_time_ns = info.commit_time_ns;
    found->entry.file_bytes = vv_ckfile_bytes(info.id.size, info.nchunks, info.nregions);
    found->entry.nregions = info.nregions;
    found->entry.regions = found->owned = info.regions;
    found->unsynced_boot = f->shared ? 0 : info.unsynced_boot;
    info.regions = NULL;
    vv_ckfile_info_fini(&info);
    return 0;
}

static int read_unknown(struct vv_files *f, size_t *ret_nread)
{
    size_t nread = 0;
    for (size_t i = 0; i < f->nfound; i++) {
        struct vvi_found *found = &f->found[i];
        f->first_generation = VV_MAX(f->first_generation, found->entry.generation + 1);
        found->known = found->known && as_indexed(f, found);
        if (found->known)
            continue;
        char err[256] = "";
        int rc = read_file(f, found, err, sizeof(err));
        bool of_file = !f->folder->target || rc == -EBADMSG || rc == -ENOENT;
        if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || (rc < 0 && !of_file))
            return rc; /* caused by this process or the network, not by the file */
        if (rc < 0) {
            found->status = rc;
            found->what = strdup(err[0] != '\0' ? err : strerror(-rc));
            if (!found->what)
                return -ENOMEM;
        }
        nread += rc == 0;
    }
    *ret_nread = nread;
    return 0;
}

/* ---- files that were not synced ---- */

struct fault {
    char text[128];
};

static void note_fault(void *user, const struct vv_ckfile_problem *p)
{
    struct fault *fault = user;
    if (fault->text[0] == '\0')
        snprintf(fault->text, sizeof(fault->text), "%s", p->what);
}

/* Reads a whole file. If its data is not what was written, it counts as damaged. */
static int look_at_data(struct vv_files *f, struct vvi_found *found)
{
    struct fault fault = {""};
    char name[VV_CKFILE_NAME_MAX], text[256];
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, f->rank, found->entry.version,
                   found->entry.generation);
    int rc = vv_ckfile_verify(f->at, name, note_fault, &fault, NULL);
    if (rc == 0 || rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE)
        return rc;
    snprintf(text, sizeof(text), "it was not synced (local_sync = off): %s",
             fault.text[0] != '\0' ? fault.text : strerror(-rc));
    found->what = strdup(text);
    if (!found->what)
        return -ENOMEM;
    found->known = false;
    found->status = -EBADMSG;
    return 0;
}

static struct vvi_found *newest_known(struct vv_files *f)
{
    struct vvi_found *newest = NULL;
    for (size_t i = 0; i < f->nfound; i++)
        if (f->found[i].known &&
            (!newest || f->found[i].entry.generation > newest->entry.generation))
            newest = &f->found[i];
    return newest;
}

/* The highest version whose newest generation is intact. */
static struct vvi_found *highest_known(struct vv_files *f)
{
    for (size_t i = f->nfound; i-- > 0;)
        if (f->found[i].known &&
            (i + 1 == f->nfound || f->found[i + 1].entry.version != f->found[i].entry.version))
            return &f->found[i];
    return NULL;
}

/* Reads one file after the other until one is good. */
static int look_until_good(struct vv_files *f, struct vvi_found *(*next)(struct vv_files *))
{
    struct vvi_found *found;
    int rc = 0;
    while (rc == 0 && (found = next(f)) && found->unsynced_boot != 0) {
        rc = look_at_data(f, found);
        if (found->known)
            break;
    }
    return rc;
}

/* Checks files that were committed without a sync. If the machine has rebooted since, any of them may have lost
 * bytes: all are read, and intact ones, which are on the disk then, go into the index. Without a reboot the kernel
 * still has the data, except after write errors, which the checksums find at restore. Then only the versions that a
 * restart requests first are read: the one written last and, as VELOC defines it, the one with the highest number. */
static int look_at_unsynced(struct vv_files *f)
{
    uint64_t boot = vv_os_boot(f->folder->opts.os);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < f->nfound; i++) {
        struct vvi_found *found = &f->found[i];
        if (!found->known || found->unsynced_boot == 0 || found->unsynced_boot == boot)
            continue;
        rc = look_at_data(f, found);
        found->unsynced_boot = 0;
    }
    if (rc == 0)
        rc = look_until_good(f, newest_known);
    if (rc == 0)
        rc = look_until_good(f, highest_known);
    return rc;
}

static int delete_superseded(struct vv_files *f, const struct vvi_found *old)
{
    char name[VV_CKFILE_NAME_MAX];
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, f->rank, old->entry.version, old->entry.generation);
    return vv_target_remove(f->at, name);
}

static void found_fini(struct vvi_found *found)
{
    free(found->owned);
    free(found->what);
    found->owned = NULL;
    found->what = NULL;
}

/* Found [first, last] are the generations of one version, the highest last. Only the highest stays: at
 * *kept if it is known, in `damaged` if it is not. If it is known, the others are deleted from the disk,
 * unless they are damaged; if not, they are noted as hidden. */
static int settle_version(struct vv_files *f, size_t first, size_t last, size_t *kept,
                          size_t *removed)
{
    struct vvi_found top = f->found[last];
    for (size_t i = first; i < last; i++) {
        struct vvi_found *old = &f->found[i];
        if (!top.known) {
            f->hidden[f->nhidden++] =
                (struct vvi_hidden){old->entry.version, old->entry.generation};
        } else if (old->known) {
            int rc = delete_superseded(f, old);
            if (rc < 0)
                return rc;
            (*removed)++;
        }
        found_fini(old);
    }
    f->found[last].owned = NULL; /* they move with `top` */
    f->found[last].what = NULL;
    *(top.known ? &f->found[(*kept)++] : &f->damaged[f->ndamaged++]) = top;
    return 0;
}

/* Leaves one generation of each version. */
static int drop_superseded(struct vv_files *f, size_t *ret_nremoved)
{
    size_t kept = 0, removed = 0;
    if (f->nfound == 0)
        return 0;
    f->damaged = calloc(f->nfound, sizeof(*f->damaged));
    f->hidden = calloc(f->nfound, sizeof(*f->hidden));
    if (!f->damaged || !f->hidden)
        return -ENOMEM;
    for (size_t first = 0, last; first < f->nfound; first = last + 1) {
        last = first;
        while (!f->all_generations && last + 1 < f->nfound &&
               f->found[last + 1].entry.version == f->found[first].entry.version)
            last++;
        int rc = settle_version(f, first, last, &kept, &removed);
        if (rc < 0)
            return rc;
    }
    f->nfound = kept;
    *ret_nremoved = removed;
    /* Without the sync, a crash after the kept one is removed would bring the old one back. */
    return removed > 0 ? f->at->ops->sync(f->at) : 0;
}

/* ---- the index ---- */

/* Continues the index if it is good, or starts a new one if it is missing, torn or mostly about removed
 * versions. Failures are ignored: without an index opening is slow, not wrong. */
static void start_index(struct vv_files *f, bool incomplete)
{
    const struct vvi_index_view *view = &f->view;
    bool torn = view->valid_bytes == 0 || view->valid_bytes < view->bytes;
    bool stale = vvi_index_stale(view->nrecords, f->nfound);
    if (!torn && !stale && !incomplete && vvi_index_continue(&f->index, view, f->nfound) == 0)
        return;
    /* A rewritten index lacks the records of deleted files and their generations. That is safe: no
     * record is left that a later file could match. */
    if (vvi_index_restart(&f->index, f->history, f->rank) < 0)
        return;
    for (size_t i = 0; i < f->nfound; i++)
        if (f->found[i].unsynced_boot == 0)
            vvi_index_add(&f->index, VVI_RECORD_COMMIT, &f->found[i].entry);
    (void)vvi_index_publish(&f->index);
}

static void forget_found(struct vv_files *f)
{
    for (size_t i = 0; i < f->nfound; i++)
        found_fini(&f->found[i]);
    free(f->found);
    f->found = NULL;
    f->nfound = 0;
    free(f->view.text);
    f->view = (struct vvi_index_view){0};
}

/* ---- opening ---- */

static int open_history_folder(struct vv_files *f, char *err, size_t err_bytes)
{
    struct vv_folder *folder = f->folder;
    const struct vv_os *os = folder->opts.os;
    if (folder->target) {
        int rc = folder->target->ops->below(folder->target, f->history, f->read_only ? NULL : "",
                                            &f->at);
        if (rc == -ENOENT && f->read_only)
            return 0;
        return rc == 0 ? 0
                       : vvi_error(rc, err, err_bytes, "%s/%s: %s", folder->path, f->history,
                                   strerror(-rc));
    }
    int rc = f->read_only ? 0 : os->mkdirat(os, folder->dirfd, f->history, 0777);
    /* Also if it existed: the process that made it may have stopped, or failed, before this. */
    if (!f->read_only && (rc == 0 || rc == -EEXIST))
        rc = os->fsync(os, folder->dirfd);
    if (rc < 0)
        return vvi_error(rc, err, err_bytes, "cannot create %s/%s: %s", folder->path, f->history,
                         strerror(-rc));
    f->dirfd = os->openat(os, folder->dirfd, f->history, O_RDONLY | O_DIRECTORY, 0);
    if (f->dirfd == -ENOENT && f->read_only)
        return 0;
    if (f->dirfd < 0)
        return vvi_error(f->dirfd, err, err_bytes, "cannot open %s/%s: %s", folder->path,
                         f->history, strerror(-f->dirfd));
    vv_target_folder_init(&f->place, os, f->dirfd);
    f->at = &f->place.base;
    return 0;
}

static int refresh_listing(struct vv_files *f, char *err, size_t err_bytes)
{
    char name[32];
    snprintf(name, sizeof(name), "look.%" PRIu32, f->rank);
    int rc = vv_os_refresh(f->folder->opts.os, f->dirfd, name);
    return rc == 0 ? 0
                   : vvi_error(rc, err, err_bytes, "cannot write in %s/%s: %s", f->folder->path,
                               f->history, strerror(-rc));
}

static int find_versions(struct vv_files *f, char *err, size_t err_bytes)
{
    size_t nread = 0, nremoved = 0;
    int rc = list_folder(f);
    if (rc == 0)
        rc = vvi_index_read(&f->index, f->history, f->rank, &f->view);
    if (rc == 0) {
        apply_index(f);
        rc = read_unknown(f, &nread);
    }
    if (rc == 0 && nread > 0)
        rc = look_at_unsynced(f);
    if (rc == 0)
        rc = drop_superseded(f, &nremoved);
    if (rc < 0)
        return vvi_error(rc, err, err_bytes, "cannot read %s/%s: %s", f->folder->path, f->history,
                         strerror(-rc));
    if (!f->read_only)
        start_index(f, nread > 0 || nremoved > 0);
    return 0;
}

enum vvi_files_state vvi_files_state(const struct vv_files *f, uint64_t version,
                                     uint64_t generation)
{
    const struct vvi_index_record *r;
    enum vvi_files_state state = VVI_FILES_NONE;
    uint64_t at = 0;
    for (size_t i = 0; i < f->nfound; i++)
        if (f->found[i].entry.version == version && f->found[i].entry.generation >= generation)
            return VVI_FILES_HAVE;
    for (size_t i = 0; i < f->ndamaged; i++)
        if (f->damaged[i].entry.version == version && f->damaged[i].entry.generation >= generation)
            return f->damaged[i].entry.generation == generation ? VVI_FILES_BROKEN : VVI_FILES_HAVE;
    while ((r = vvi_index_next(&f->view, &at)))
        if (r->version == version && r->generation == generation)
            state = r->kind == VVI_RECORD_REMOVE ? VVI_FILES_GONE : VVI_FILES_NONE;
    return state;
}

static void forget_damaged(struct vv_files *f)
{
    for (size_t i = 0; i < f->ndamaged; i++)
        found_fini(&f->damaged[i]);
    free(f->damaged);
    free(f->hidden);
    f->damaged = NULL;
    f->hidden = NULL;
    f->ndamaged = f->nhidden = 0;
}

static void index_init(struct vv_files *f)
{
    vvi_index_init(&f->index, f->folder->opts.os, f->dirfd, f->rank);
    f->index.target = f->folder->target ? f->at : NULL;
}

int vvi_files_again(struct vv_files *f, char *err, size_t err_bytes)
{
    forget_found(f);
    forget_damaged(f);
    vvi_index_fini(&f->index);
    index_init(f);
    return find_versions(f, err, err_bytes);
}

/* ---- how many ranks ---- */

static void ranks_name(uint32_t rank, bool temp, char name[32])
{
    snprintf(name, 32, "ranks.%" PRIu32 "%s", rank, temp ? ".tmp" : "");
}

int vvi_recorded_ranks(struct vv_target *at, uint32_t rank, uint32_t *ret_ranks)
{
    char name[32], text[32] = "", *end = text;
    struct vv_target_file *file;
    ranks_name(rank, false, name);
    int rc = at->ops->open(at, name, VV_TARGET_READ, &file);
    if (rc < 0)
        return rc;
    rc = at->ops->get(file, text, VV_MIN(sizeof(text) - 1, (size_t)file->bytes), 0);
    vv_target_end(file);
    if (rc < 0)
        return rc;
    unsigned long long ranks = strtoull(text, &end, 10);
    if (end == text || *end != '\n' || ranks == 0 || ranks > INT32_MAX)
        return -EBADMSG;
    *ret_ranks = (uint32_t)ranks;
    return 0;
}

/* Errors are ignored: a full disk must not prevent reading a history, and without the record nothing is
 * refused. */
static void record_ranks(struct vv_files *f, uint32_t ranks)
{
    const struct vv_target_ops *ops = f->at->ops;
    struct vv_target_file *file = NULL;
    char name[32], temp[32], text[32];
    ranks_name(f->rank, false, name);
    ranks_name(f->rank, true, temp);
    if (ranks <= 1) {
        (void)ops->remove(f->at, name);
        return;
    }
    int n = snprintf(text, sizeof(text), "%" PRIu32 "\n", ranks);
    int rc = ops->create(f->at, name, temp, (uint64_t)n, &file);
    if (rc == 0)
        rc = ops->put(file, text, (size_t)n, 0);
    if (rc == 0)
        rc = ops->settle(file);
    if (rc == 0)
        (void)ops->commit(file);
    vv_target_end(file);
}

static int check_ranks(struct vv_files *f, uint32_t ranks, char *err, size_t err_bytes)
{
    uint32_t recorded = 0;
    bool empty = f->nfound + f->ndamaged == 0;
    int rc = ranks == 0 ? 0 : vvi_recorded_ranks(f->at, f->rank, &recorded);
    /* A number that cannot be read may be another one. */
    if (rc < 0 && rc != -ENOENT && !empty)
        return vvi_error(
            rc, err, err_bytes, "cannot read ranks.%" PRIu32 " of history %.60s in %.60s: %s",
            f->rank, f->history, f->folder->path,
            rc == -EBADMSG ? "it must hold the number of ranks; write it there, or remove the file"
                           : strerror(-rc));
    if (ranks == 0 || recorded == ranks || (rc == -ENOENT && ranks == 1))
        return 0;
    if (recorded != 0 && !empty)
        return vvi_error(-EINVAL, err, err_bytes,
                         "history %.60s in %.60s was written by %" PRIu32
                         " ranks, and this run has %" PRIu32
                         ": run as many%s, or remove it (varve rm, varve_history_remove)",
                         f->history, f->folder->path, recorded, ranks,
                         f->shared ? ", read its parts (varve_part_open)" : "");
    record_ranks(f, ranks);
    return 0;
}

uint64_t vv_files_draw_id(void)
{
    uint64_t id = 0;
    while (id == 0)
        if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id)) {
            struct timespec ts;
            clock_gettime(CLOCK_REALTIME, &ts);
            id = (uint64_t)ts.tv_sec << 32 ^ (uint64_t)ts.tv_nsec ^ (uint64_t)getpid() << 48;
        }
    return id;
}

/* Takes the lock, if there is one, and lists the versions. */
static int open_found(struct vv_files *f, uint32_t ranks, char *err, size_t err_bytes)
{
    int rc = 0;
    if (!f->at)
        return 0;
    /* A target has no locks and always lists the present state: only the life marker separates lives. */
    bool locks = !f->folder->target && !f->read_only;
    if (locks)
        rc = take_lock(f, err, err_bytes);
    if (rc == 0 && locks && f->shared)
        rc = refresh_listing(f, err, err_bytes);
    if (rc == 0)
        rc = find_versions(f, err, err_bytes);
    return rc == 0 ? check_ranks(f, ranks, err, err_bytes) : rc;
}

int vv_files_open(struct vv_folder *folder, const char *history, uint32_t rank,
                  const struct vv_files_opts *opts, char *err, size_t err_bytes,
                  struct vv_files **ret_files)
{
    static _Atomic uint64_t serials;
    static const struct vv_files_opts plain;
    const struct vv_files_opts *o = opts ? opts : &plain;
    if (!vv_files_name_ok(history))
        return vvi_error(-EINVAL, err, err_bytes, "\"%s\" is not a name for a history",
                         history ? history : "");
    struct vv_files *f = calloc(1, sizeof(*f));
    if (!f)
        return vvi_error(-ENOMEM, err, err_bytes, "out of memory");
    f->folder = folder;
    f->rank = rank;
    f->dirfd = f->lock_fd = -1;
    f->serial = atomic_fetch_add_explicit(&serials, 1, memory_order_relaxed);
    f->run_id = o->run_id != 0 ? o->run_id : vv_files_draw_id();
    f->read_only = o->read_only;
    f->all_generations = o->all_generations || o->read_only;
    f->shared = o->shared;
    snprintf(f->history, sizeof(f->history), "%s", history);
    int rc = open_history_folder(f, err, err_bytes);
    index_init(f);
    if (rc == 0)
        rc = open_found(f, o->read_only ? 0 : o->ranks, err, err_bytes);
    if (rc < 0) {
        vv_files_close(f);
        return rc;
    }
    *ret_files = f;
    return 0;
}

void vv_files_close(struct vv_files *f)
{
    if (!f)
        return;
    const struct vv_os *os = f->folder->opts.os;
    if (!f->folder->target)
        vvi_obj_drop_all(f);
    forget_found(f);
    forget_damaged(f);
    vvi_index_fini(&f->index);
    /* Last of all. A child forked meanwhile also holds the descriptor, so that closing ours would keep
     * the lock. If the child itself gets here, it must not release the lock. */
    if (f->locked_by == getpid())
        (void)os->unlock(os, f->lock_fd);
    if (f->lock_fd >= 0)
        os->close(os, f->lock_fd);
    if (f->dirfd >= 0)
        os->close(os, f->dirfd);
    if (f->folder->target)
        vv_target_close(f->at);
    free(f);
}

int vv_files_list(struct vv_files *f, int (*visit)(void *user, const struct vv_files_entry *e),
                  void *user)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < f->nfound; i++)
        rc = visit(user, &f->found[i].entry);
    if (!f->read_only)
        forget_found(f);
    return rc;
}

int vv_files_list_damaged(const struct vv_files *f,
                          int (*visit)(void *user, const struct vv_files_damage *d), void *user)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < f->ndamaged; i++) {
        const struct vvi_found *found = &f->damaged[i];
        struct vv_files_damage d = {.version = found->entry.version,
                                    .generation = found->entry.generation,
                                    .status = found->status,
                                    .what = found->what};
        rc = visit(user, &d);
    }
    return rc;
}

int vvi_files_same(const struct vv_files *f, uint64_t version, uint64_t generation, int rc,
                   uint64_t run_id)
{
    struct vvi_found key = {.entry = {.version = version, .generation = generation}};
    if (!f->read_only || (rc < 0 && rc != -ENOENT))
        return rc;
    if (rc == -ENOENT)
        return -EIDRM;
    const struct vvi_found *found =
        f->nfound == 0 ? NULL : bsearch(&key, f->found, f->nfound, sizeof(key), compare_found);
    return found && found->entry.run_id != run_id ? -EIDRM : 0;
}

uint64_t vv_files_first_generation(const struct vv_files *f)
{
    return f->first_generation;
}

uint64_t vv_files_run_id(const struct vv_files *f, uint32_t edition)
{
    if (edition <= 1)
        return f->run_id;
    uint64_t seed[2] = {f->run_id, edition - 1}, low = vv_hash64(seed, sizeof(seed)) & UINT32_MAX;
    return (f->run_id & ~(uint64_t)UINT32_MAX) | (low ? low : 1);
}
