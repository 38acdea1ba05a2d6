/* SPDX-License-Identifier: Apache-2.0 */
/* A store that shares its disk with other processes of the node.
 *
 * Reads tell the budget that this process restores. If another process restores, a write and
 * those behind it are held back for the few milliseconds that the budget returns. Then they go
 * on, even if the other process still restores: writes get slower, but are not starved. With a
 * bandwidth limit writes also wait for their turn, one after the other. All other requests pass.
 * A write that is given up while it waits is not made.
 *
 * Belongs to the mover's thread, as the inner store does; only kick comes from other threads. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "store/budget.h"

struct budget_store {
    struct vv_store base;
    struct vv_store *inner;
    struct vv_budget *budget;
    uint32_t page_bytes;
    uint64_t bytes_per_s;
    struct vv_store_io *held, **held_tail;
    /* Time at which the held writes are submitted; with a bandwidth limit, only the first of them. */
    uint64_t due_ns;
    struct vv_store_io *ended; /* held writes that were given up, or that the inner store refused */
};

static uint64_t bytes_of(const struct budget_store *s, const struct vv_store_io *io)
{
    return (uint64_t)io->nchunks * s->page_bytes;
}

static int budget_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct budget_store *s = (struct budget_store *)store;
    uint64_t now_ns = vv_now_ns();
    if (io->op == VV_STORE_READ)
        vv_budget_book_restore(s->budget, bytes_of(s, io), s->bytes_per_s, now_ns);
    if (io->op != VV_STORE_WRITE && io->op != VV_STORE_SALVAGE)
        return s->inner->ops->submit(s->inner, io);
    if (!s->held) {
        uint64_t turn_ns = vv_budget_book_flush(s->budget, bytes_of(s, io), s->bytes_per_s, now_ns);
        s->due_ns = VV_MAX(vv_budget_yield_until(s->budget, now_ns), turn_ns);
        if (s->due_ns <= now_ns)
            return s->inner->ops->submit(s->inner, io);
    }
    io->next = NULL;
    *s->held_tail = io;
    s->held_tail = &io->next;
    return 0;
}

static void end_held(struct budget_store *s, struct vv_store_io *io, int status)
{
    io->status = status;
    io->next = s->ended;
    s->ended = io;
}

/* Ends the writes that are given up. The first one has a booking, which passes to the next. */
static void drop_given_up(struct budget_store *s, uint64_t now_ns)
{
    bool first_gone = false;
    struct vv_store_io **at = &s->held;
    while (*at) {
        struct vv_store_io *io = *at;
        if (!vv_store_given_up(io)) {
            at = &io->next;
            continue;
        }
        if (at == &s->held && !first_gone) {
            vv_budget_unbook_flush(s->budget, bytes_of(s, io), s->bytes_per_s, now_ns);
            first_gone = true;
        }
        *at = io->next;
        end_held(s, io, -ECANCELED);
    }
    s->held_tail = at;
    if (first_gone && s->held && s->bytes_per_s)
        s->due_ns = vv_budget_book_flush(s->budget, bytes_of(s, s->held), s->bytes_per_s, now_ns);
}

/* Submits the held writes whose time has come; `all`: all of them. */
static void go_on(struct budget_store *s, uint64_t now_ns, bool all)
{
    drop_given_up(s, now_ns);
    while (s->held && (all || now_ns >= s->due_ns)) {
        struct vv_store_io *io = s->held;
        s->held = io->next;
        if (!s->held)
            s->held_tail = &s->held;
        else if (s->bytes_per_s)
            s->due_ns =
                vv_budget_book_flush(s->budget, bytes_of(s, s->held), s->bytes_per_s, now_ns);
        int rc = s->inner->ops->submit(s->inner, io);
        if (rc != 0)
            end_held(s, io, rc);
    }
}

static int budget_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                       int64_t timeout_ns)
{
    struct budget_store *s = (struct budget_store *)store;
    uint64_t now_ns = vv_now_ns();
    int n = 0;
    bool cut = false;
    go_on(s, now_ns, false);
    for (; s->ended && (size_t)n < max; n++) {
        ret_done[n] = s->ended;
        s->ended = s->ended->next;
    }
    if (n > 0)
        return n;
    if (s->held) {
        int64_t left = (int64_t)VV_MIN(s->due_ns - now_ns, VV_STORE_LOOK_NS);
        cut = timeout_ns < 0 || left < timeout_ns;
        timeout_ns = cut ? left : timeout_ns;
    }
    n = s->inner->ops->poll(s->inner, ret_done, max, timeout_ns);
    return n == -ETIMEDOUT && cut ? 0 : n;
}

static void budget_kick(struct vv_store *store)
{
    struct budget_store *s = (struct budget_store *)store;
    s->inner->ops->kick(s->inner);
}

static void budget_close(struct vv_store *store)
{
    struct budget_store *s = (struct budget_store *)store;
    go_on(s, 0, true); /* results are lost, but the writes are made */
    s->inner->ops->close(s->inner);
    free(s);
}

int vv_budget_store(struct vv_budget *budget, struct vv_store *inner, uint32_t page_bytes,
                    uint64_t bytes_per_s, struct vv_store **ret_store)
{
    static const struct vv_store_ops ops = {.name = "budget",
                                            .close = budget_close,
                                            .submit = budget_submit,
                                            .poll = budget_poll,
                                            .kick = budget_kick};
    struct budget_store *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->base.ops = &ops;
    s->inner = inner;
    s->budget = budget;
    s->page_bytes = page_bytes;
    s->bytes_per_s = bytes_per_s;
    s->held_tail = &s->held;
    *ret_store = &s->base;
    return 0;
}
