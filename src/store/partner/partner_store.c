/* SPDX-License-Identifier: Apache-2.0 */
/* A store whose commits have a copy at the partner.
 *
 * Requests pass; what was committed or removed is noted before anybody above hears of it, so that
 * whoever waits for a version finds its entry. Belongs to the mover's thread, as the store inside;
 * only kick comes from elsewhere. */
#include <errno.h>
#include <stdlib.h>

#include "store/partner/partner_private.h"

struct partner_store {
    struct vv_store base;
    struct vv_store *inner;
};

static int partner_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct partner_store *s = (struct partner_store *)store;
    return s->inner->ops->submit(s->inner, io);
}

static int partner_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                        int64_t timeout_ns)
{
    struct partner_store *s = (struct partner_store *)store;
    int n = s->inner->ops->poll(s->inner, ret_done, max, timeout_ns);
    for (int i = 0; i < n; i++) {
        const struct vv_store_io *io = ret_done[i];
        struct vv_partner_hist *h = io->key.history != NULL ? io->key.history->partner : NULL;
        if (h == NULL || io->status != 0)
            continue;
        if (io->op == VV_STORE_COMMIT)
            vvi_partner_committed(h, io->key.version, io->key.generation);
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

static void partner_close(struct vv_store *store)
{
    struct partner_store *s = (struct partner_store *)store;
    s->inner->ops->close(s->inner);
    free(s);
}

int vv_partner_store(struct vv_partner *partner, struct vv_store *inner,
                     struct vv_store **ret_store)
{
    static const struct vv_store_ops ops = {.name = "partner",
                                            .close = partner_close,
                                            .submit = partner_submit,
                                            .poll = partner_poll,
                                            .kick = partner_kick};
    struct partner_store *s = calloc(1, sizeof(*s));
    (void)partner;
    if (s == NULL)
        return -ENOMEM;
    s->base.ops = &ops;
    s->inner = inner;
    *ret_store = &s->base;
    return 0;
}
