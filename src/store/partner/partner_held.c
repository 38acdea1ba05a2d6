/* SPDX-License-Identifier: Apache-2.0 */
/* Partner copies: files of other ranks in this node's local folder; with parity, the files that processes keep for
 * their set, in LOCAL/.parity/HISTORY.
 *
 * They are in LOCAL/.partner/HISTORY, under the names that they have at home: rank, version and generation. A name
 * with a leading dot is not a history, so that a listing of histories skips it. Processes of one node may share the
 * folder. Each is responsible for the files that come to it. Files left over from another arrangement of the job are
 * divided among them by rank, and so are files in the local folder itself of ranks that run elsewhere now: these serve
 * as copies too. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/partner/partner_private.h"

const char *vvi_held_name(const struct vv_partner *p)
{
    return p->k > 0 ? VV_PARITY_FOLDER : VV_PARTNER_FOLDER;
}

bool vvi_held_fits(const struct vv_partner *p, uint64_t bytes)
{
    return p->opts.cache_bytes == 0 || bytes <= p->opts.cache_bytes - vv_partner_own_bytes(p);
}

int vvi_held_open(struct vv_partner *p)
{
    const struct vv_os *os = p->os;
    int top = p->opts.folder->dirfd, rc = os->mkdirat(os, top, vvi_held_name(p), 0777);
    if (rc == 0 || rc == -EEXIST)
        rc = os->fsync(os, top);
    if (rc < 0)
        return rc;
    p->top_fd = os->openat(os, top, vvi_held_name(p), O_RDONLY | O_DIRECTORY, 0);
    return p->top_fd < 0 ? p->top_fd : 0;
}

void vvi_held_fini(struct vv_partner *p)
{
    const struct vv_os *os = p->os;
    for (struct vvi_pin *in = p->in, *next; in; in = next) {
        next = in->next;
        vvi_infile_end(&in->file);
        free(in);
    }
    for (struct vvi_pheld *held = p->held, *next; held; held = next) {
        next = held->next;
        os->close(os, held->dirfd);
        free(held);
    }
    p->in = NULL;
    p->held = NULL;
    if (p->top_fd >= 0)
        os->close(os, p->top_fd);
    p->top_fd = -1;
}

int vvi_held_folder(struct vv_partner *p, const char *history, int *ret_dirfd)
{
    const struct vv_os *os = p->os;
    for (struct vvi_pheld *held = p->held; held; held = held->next)
        if (strcmp(held->history, history) == 0) {
            *ret_dirfd = held->dirfd;
            return 0;
        }
    struct vvi_pheld *held = calloc(1, sizeof(*held));
    if (!held)
        return -ENOMEM;
    snprintf(held->history, sizeof(held->history), "%s", history);
    int rc = os->mkdirat(os, p->top_fd, history, 0777);
    if (rc == 0 || rc == -EEXIST)
        rc = os->fsync(os, p->top_fd);
    if (rc == 0) {
        held->dirfd = os->openat(os, p->top_fd, history, O_RDONLY | O_DIRECTORY, 0);
        rc = held->dirfd < 0 ? held->dirfd : 0;
    }
    if (rc < 0) {
        free(held);
        return rc;
    }
    held->next = p->held;
    p->held = held;
    *ret_dirfd = held->dirfd;
    return 0;
}

bool vvi_held_mine(const struct vv_partner *p, uint32_t owner)
{
    const struct vvi_phello *me = &p->hello[p->opts.wire.rank];
    uint32_t at = owner < p->opts.wire.ranks ? p->partner_of[owner] : UINT32_MAX;
    if (at == p->opts.wire.rank)
        return true;
    if (at != UINT32_MAX && vvi_same_folder(me, &p->hello[at]))
        return false; /* another process that uses the same folder keeps them */
    return owner % p->sharers == p->share;
}

bool vvi_left_mine(const struct vv_partner *p, uint32_t owner)
{
    const struct vvi_phello *me = &p->hello[p->opts.wire.rank];
    return owner < p->opts.wire.ranks && !vvi_same_folder(me, &p->hello[owner]) &&
           owner % p->sharers == p->share;
}

/* Files that were put aside are not counted. */
static bool counted(const struct vv_partner *p, uint64_t generation)
{
    return p->k == 0 || generation >= VV_PARITY_SUM;
}

static int count(void *user, const struct vv_files_found *found)
{
    struct vv_partner *p = user;
    if (found->kind == VV_CKFILE_COMMITTED && counted(p, found->generation) &&
        vvi_held_mine(p, found->rank))
        atomic_fetch_add_explicit(&p->held_bytes, found->file_bytes, memory_order_relaxed);
    return 0;
}

void vvi_held_count(struct vv_partner *p)
{
    char path[4096 + sizeof(VV_PARTNER_FOLDER)];
    snprintf(path, sizeof(path), "%s/%s", p->opts.folder->path, vvi_held_name(p));
    int rc = vv_files_scan(p->os, path, NULL, count, p);
    (void)rc; /* it was opened just now; an unreadable file is counted when it is replaced */
}

uint64_t vvi_held_file_bytes(struct vv_partner *p, int dirfd, const struct vv_ckfile_id *id)
{
    const struct vv_os *os = p->os;
    char name[VV_CKFILE_NAME_MAX];
    uint64_t bytes = 0;
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, id->rank, id->version, id->generation);
    int fd = vv_os_open_regular(os, dirfd, name, O_RDONLY);
    if (fd < 0)
        return 0;
    if (os->file_bytes(os, fd, &bytes) < 0)
        bytes = 0;
    os->close(os, fd);
    return bytes;
}

int vvi_held_drop(struct vv_partner *p, const char *history, const struct vv_ckfile_id *id)
{
    char name[VV_CKFILE_NAME_MAX];
    int dirfd, rc = vvi_held_folder(p, history, &dirfd);
    if (rc < 0)
        return rc;
    uint64_t bytes = vvi_held_file_bytes(p, dirfd, id);
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, id->rank, id->version, id->generation);
    rc = p->os->unlinkat(p->os, dirfd, name);
    if (rc == 0 && counted(p, id->generation))
        atomic_fetch_sub_explicit(&p->held_bytes, bytes, memory_order_relaxed);
    return rc == -ENOENT ? 0 : rc;
}

/* ---- a history that is removed ---- */

struct removing {
    struct vv_partner *p;
    const char *history;
    uint32_t first_rank;
    bool any;
};

static int remove_one(void *user, const struct vv_files_found *found)
{
    struct removing *r = user;
    const struct vv_wire *w = &r->p->opts.wire;
    struct vv_ckfile_id id = {
        .rank = found->rank, .version = found->version, .generation = found->generation};
    bool own = found->rank == w->rank, left = found->rank >= w->ranks;
    if (found->kind != VV_CKFILE_COMMITTED || found->rank < r->first_rank ||
        !(own || (left && vvi_held_mine(r->p, found->rank))))
        return 0; /* another process of the job removes its own */
    r->any = true;
    return vvi_held_drop(r->p, r->history, &id);
}

int vv_partner_remove(struct vv_partner *p, const char *history, uint32_t first_rank)
{
    struct removing r = {p, history, first_rank, false};
    char path[4096 + sizeof(VV_PARTNER_FOLDER)];
    int dirfd;
    if (p->k == 0)
        return 0;
    if (!vv_files_name_ok(history))
        return -EINVAL;
    snprintf(path, sizeof(path), "%s/%s", p->opts.folder->path, vvi_held_name(p));
    vv_mutex_lock(&p->step);
    int rc = vv_files_scan(p->os, path, history, remove_one, &r);
    if (rc == 0 && r.any)
        rc = vvi_held_folder(p, history, &dirfd);
    if (rc == 0 && r.any)
        rc = p->os->fsync(p->os, dirfd);
    vv_mutex_unlock(&p->step);
    return rc == -ENOENT ? 0 : rc;
}
