/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large files. No program waits for one: it reads the shared file system, while a thread of this node brings the file,
 * from the shared file system or from the node that has it. Later opens get the copy.
 *
 * Invariant: a path is in the table while a thread brings it, or is about to. Requests for it, also for its stat, are
 * answered at once meanwhile: the owner of files would let them wait for the thread that brings it.
 *
 * behind.lock protects the table; no other part is called under it.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataset/node_private.h"

#define TRY_NS (24 * 3600 * VV_NS_PER_S) /* practically no limit */

void vvi_node_behind_init(struct vv_node *n)
{
    vv_mutex_init(&n->behind.lock, "behind", VV_RANK_STORE);
}

static void free_path(struct vvi_path *e)
{
    free(e);
}

void vvi_node_behind_fini(struct vv_node *n)
{
    vvi_paths_fini(&n->behind.paths, free_path);
    vv_mutex_fini(&n->behind.lock);
}

bool vvi_node_behind_is(struct vv_node *n, const char *path)
{
    bool is;

    vv_mutex_lock(&n->behind.lock);
    is = n->behind.paths.table.n > 0 && vvi_paths_find(&n->behind.paths, path);
    vv_mutex_unlock(&n->behind.lock);
    return is;
}

bool vvi_node_behind_wants(struct vv_node *n, const char *path, const struct vv_dataset_gen *gen)
{
    struct vv_dataset_gen here;
    bool verified;

    if (n->opts.direct_above == 0 || gen->size <= n->opts.direct_above || vvi_node_is_sole(n, path))
        return false;
    return vv_dataset_peek(n->cache, path, &here, &verified) < 0 || !verified ||
           !vvi_same_gen(&here, gen);
}

static void forget(struct vv_node *n, const char *path)
{
    struct vvi_path *e;

    vv_mutex_lock(&n->behind.lock);
    e = vvi_paths_find(&n->behind.paths, path);
    if (e)
        vvi_paths_remove(&n->behind.paths, e);
    vv_mutex_unlock(&n->behind.lock);
    free(e);
}

/* Brings it from the shared file system. The descriptor is not needed: now the file is here, and verified. */
static int bring(struct vv_node *n, const char *path)
{
    int fd, rc = vv_owner_get_large(n->owner, path, vv_now_ns() + TRY_NS, &fd, NULL);

    if (rc == 0)
        close(fd);
    return rc;
}

static void behind_job(struct vv_node *n, struct vvi_job *job, bool stopping)
{
    int rc = -ESHUTDOWN;

    if (!stopping && job->peer == n->id)
        rc = bring(n, job->path);
    else if (!stopping)
        rc = vvi_node_ask_spare(n, job->peer, job->path, &job->st, vv_now_ns() - job->looked_ns);
    if (rc == 0)
        VVI_COUNT(n, behind);
    forget(n, job->path);
    free(job);
}

void vvi_node_behind_add(struct vv_node *n, uint64_t from, const char *path,
                         const struct vv_shared_stat *st, uint64_t age_ns)
{
    struct vvi_path *e = calloc(1, sizeof(*e));
    struct vvi_job *job = vvi_node_job_new(path);
    bool added = false;

    if (e && job) {
        vv_mutex_lock(&n->behind.lock);
        added = !vvi_paths_find(&n->behind.paths, path) &&
                vvi_paths_add(&n->behind.paths, path, e) == 0;
        vv_mutex_unlock(&n->behind.lock);
    }
    if (!added) {
        free(e);
        free(job);
        return;
    }
    job->fn = behind_job;
    job->peer = from;
    job->st = *st;
    job->looked_ns = vv_now_ns() - age_ns;
    if (vvi_node_queue_push(n, VVI_QUEUE_LARGE, job) < 0)
        behind_job(n, job, true);
}
