/* SPDX-License-Identifier: Apache-2.0 */
/* A store whose commits have a copy at the partner.
 *
 * Requests pass through. Commits and removals are noted before they are reported, so that a thread that waits for a
 * version finds its entry. Belongs to the mover's thread, as the inner store does; only kick comes from other
 * threads. */
#include <errno.h>
#include <stdlib.h>

#include "store/partner/partner_private.h"

struct partner_store {
    struct vv_store base;
    struct vv_store *inner;
    struct vv_store_io **failed; /* removals that failed, not reported yet */
    size_t nfailed;
};

static int partner_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct partner_store *s = (struct partner_store *)store;
    struct vv_partner_hist *h = io->key.history ? io->key.history->partner : NULL;
    struct vv_store_io **more;
    int rc = h && h->partner->k > 0 && io->op == VV_STORE_REMOVE
                 ? vvi_parity_removing(h, io->key.version, io->key.generation)
                 : 0;
    if (rc == 0)
        return s->inner->ops->submit(s->inner, io);
    more = realloc(s->failed, (s->nfailed + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    s->failed = more;
    s->failed[s->nfailed++] = io;
    io->status = rc;
    s->inner->ops->kick(s->inner);
    return 0;
}

static int partner_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                        int64_t timeout_ns)
{
    struct partner_store *s = (struct partner_store *)store;
    int n = 0;
    while (s->nfailed > 0 && (size_t)n < max)
        ret_done[n++] = s->failed[--s->nfailed];
    if (n > 0)
        return n;
    n = s->inner->ops->poll(s->inner, ret_done, max, timeout_ns);
    for (int i = 0; i < n; i++) {
        const struct vv_store_io *io = ret_done[i];
        struct vv_partner_hist *h = io->key.history ? io->key.history->partner : NULL;
        if (h && io->status < 0 && h->partner->k > 0 &&
            (io->op == VV_STORE_WRITE || io->op == VV_STORE_COMMIT))
            vvi_parity_unwritten(h, io->key.version, io->edition, io->status);
        if (!h || io->status != 0)
            continue;
        if (io->op == VV_STORE_COMMIT)
            vvi_partner_committed(h, io->key.version, io->key.generation, io->edition);
        else if (io->op == VV_STORE_REMOVE)
            vvi_partner_removed(h, io->key.version, io->key.generation);
    }
    return n;
}

static void partner_kick(struct vv_store *store)
{
    struct partner_store *s = (struct partner_store *)store;
    s->inner->ops->kick(s->inner);
}

static void partner_alone(struct vv_store *store)
{
    struct partner_store *s = (struct partner_store *)store;
    s->inner->ops->alone(s->inner);
}

static void partner_close(struct vv_store *store)
{
    struct partner_store *s = (struct partner_store *)store;
    s->inner->ops->close(s->inner);
    free(s->failed);
    free(s);
}

int vv_partner_store(struct vv_partner *partner, struct vv_store *inner,
                     struct vv_store **ret_store)
{
    static const struct vv_store_ops ops = {.name = "partner",
                                            .close = partner_close,
                                            .submit = partner_submit,
                                            .poll = partner_poll,
                                            .kick = partner_kick,
                                            .alone = partner_alone};
    struct partner_store *s = calloc(1, sizeof(*s));
    (void)partner;
    if (!s)
        return -ENOMEM;
    s->base.ops = &ops;
    s->base.held = inner->held;
    s->inner = inner;
    *ret_store = &s->base;
    return 0;
}
