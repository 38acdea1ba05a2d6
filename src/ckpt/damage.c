/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions whose files were found unusable when the history was opened: damaged, truncated, of a newer format. They
 * are not in the engine. They keep their number, so that they are not mistaken for versions that were never
 * written: reading one fails with the reason, and writing it is refused until it has been discarded, which removes
 * the file. A checkpoint that may replace versions discards it by itself if no byte of it can be used; a file that
 * cannot be opened now may be intact, and stays.
 *
 * The list is nearly always empty. It only shrinks, under h->lock. A version that is being discarded stays in it,
 * marked, until its file is removed: it must not be written as long as the removal may still fail.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ckpt/ckpt_private.h"

#define POLL_NS ((int64_t)1000000000)

static int add(void *arg, const struct vv_files_damage *d)
{
    struct varve_history *h = arg;
    if (d->status == -ENOENT)
        return 0; /* the file was removed while the folder was read */
    struct vvi_damaged *more = realloc(h->damaged, (h->ndamaged + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    h->damaged = more;
    char *what = strdup(d->what);
    if (!what)
        return -ENOMEM;
    h->damaged[h->ndamaged++] =
        (struct vvi_damaged){d->version, d->generation, d->status, false, what};
    return 0;
}

int vvi_damage_find(struct varve_history *h)
{
    return h->remote ? vv_remote_list_damaged(h->remote, add, h)
                     : vv_files_list_damaged(h->files, add, h);
}

void vvi_damage_free(struct varve_history *h)
{
    for (size_t i = 0; i < h->ndamaged; i++)
        free(h->damaged[i].what);
    free(h->damaged);
}

static struct vvi_damaged *find_locked(struct varve_history *h, uint64_t version)
{
    for (size_t i = 0; i < h->ndamaged; i++)
        if (h->damaged[i].version == version)
            return &h->damaged[i];
    return NULL;
}

/* Uses a store of its own: those of the engine belong to its movers. */
static int remove_file(struct varve_history *h, uint64_t version, uint64_t generation)
{
    struct vv_store *store;
    struct vv_store_io *done, io = {.op = VV_STORE_REMOVE, .key = {h->files, version, generation}};
    int rc = vvi_store_open(h->ctx, &store);
    if (rc)
        return rc;
    rc = store->ops->submit(store, &io);
    if (rc == 0) {
        int n;
        do
            n = store->ops->poll(store, &done, 1, POLL_NS);
        while (n == 0 || n == -ETIMEDOUT);
        rc = n < 0 ? n : io.status;
    }
    store->ops->close(store);
    return rc;
}

int vvi_damage_discard(struct varve_history *h, uint64_t version)
{
    uint64_t generation = 0;
    vv_mutex_lock(&h->lock);
    struct vvi_damaged *d = find_locked(h, version);
    int rc = d && !d->going ? 0 : -ENOENT;
    if (rc == 0) {
        d->going = true;
        generation = d->generation;
    }
    vv_mutex_unlock(&h->lock);
    if (rc)
        return rc;
    rc = remove_file(h, version, generation);
    vv_mutex_lock(&h->lock);
    d = find_locked(h, version); /* other entries may have been removed meanwhile */
    d->going = false;
    if (rc == 0) {
        free(d->what);
        *d = h->damaged[--h->ndamaged];
    }
    vv_mutex_unlock(&h->lock);
    return rc;
}

static bool is_spoilt(struct varve_history *h, uint64_t version)
{
    vv_mutex_lock(&h->lock);
    const struct vvi_damaged *d = find_locked(h, version);
    bool spoilt = d && d->status == -EBADMSG;
    vv_mutex_unlock(&h->lock);
    return spoilt;
}

int vvi_damage_check(struct varve_history *h, const char *operation, uint64_t version, int refusal)
{
    if (!h->damaged)
        return 0;
    struct vvi_where here = {operation, version, -1, (int)vv_engine_tiers(h->ctx->engine) - 1};
    char what[160] = "";
    int status = 0;
    /* A version whose file cannot be removed stays in the list. */
    if (refusal && is_spoilt(h, version) && vvi_replaces(h, version))
        (void)vvi_damage_discard(h, version);
    vv_mutex_lock(&h->lock);
    const struct vvi_damaged *d = find_locked(h, version);
    if (d) {
        status = refusal ? refusal : d->status;
        strncpy(what, d->what, sizeof(what) - 1);
    }
    vv_mutex_unlock(&h->lock);
    return status ? vvi_fail(h->ctx, &here, status,
                             "version %llu: its file in %s cannot be used: %s; discard it to write "
                             "it again",
                             (unsigned long long)version, vvi_tier_name(h->ctx, here.tier), what)
                  : 0;
}
