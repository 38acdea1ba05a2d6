/* SPDX-License-Identifier: Apache-2.0 */
/* The fault injector itself: every operation is passed on, unless it has to fail, and fails if it has to. */
#include "fault/inject.h"

#include "unit/device/emulated.h"

static struct t_inject inj;
static struct vv_device *inner, *d;

static void set_up(void)
{
    t_inject_init(&inj);
    inner = emu_open(MIB, true);
    d = t_inject_device(&inj, inner);
}

static void tear_down(void)
{
    vv_device_close(d);
    t_inject_fini(&inj);
}

enum { N_OPS = 14 };

/* Calls each operation that can fail once, successfully; stops at the first error. */
static int all_ops(unsigned char *h)
{
    struct vv_stream *s = NULL;
    struct vv_event *ev = NULL;
    enum vv_mem_kind kind;
    size_t a, b;
    void *p = NULL;
    bool registered = false;
    int rc = vv_device_mem_alloc(d, 4096, &p);

    if (!rc)
        rc = vv_device_mem_info(d, &a, &b);
    if (!rc) {
        rc = vv_device_host_register(d, h, 4096);
        registered = !rc;
    }
    if (!rc)
        rc = vv_device_ptr_kind(d, p, &kind, &a);
    if (!rc)
        rc = vv_device_stream_new(d, &s);
    if (!rc)
        rc = vv_device_event_new(d, &ev);
    if (!rc)
        rc = vv_device_after_app(d, s);
    if (!rc)
        rc = emu_copy(d, s, p, h, 4096);
    if (!rc)
        rc = vv_device_event_record(d, ev, s);
    if (!rc)
        rc = vv_device_stream_wait_event(d, s, ev);
    if (!rc)
        rc = vv_device_event_wait(d, ev, -1);
    if (!rc)
        rc = vv_device_event_query(d, ev);
    vv_device_event_free(d, ev);
    vv_device_stream_free(d, s);
    /* Objects left by a failed call are freed by the inner device's own functions. */
    if (registered && (rc || (rc = vv_device_host_unregister(d, h))))
        T_OK(vv_device_host_unregister(inner, h));
    if (p && (rc || (rc = vv_device_mem_free(d, p))))
        T_OK(vv_device_mem_free(inner, p));
    return rc;
}

static void every_device_op_fails_in_turn(void)
{
    unsigned char *h = emu_host(4096);

    set_up();
    T_OK(all_ops(h));
    T_EQ(t_inject_seen(&inj), N_OPS);
    for (uint64_t nth = 1; nth <= N_OPS; nth++) {
        t_inject_arm(&inj, T_INJECT_REFUSE, nth, 1, -EIO);
        T_ERR(all_ops(h), -EIO);
        T_EQ(t_inject_failed(&inj), 1);
        T_CHECK(t_inject_first_failed(&inj));
        T_OK(all_ops(h));
    }
    T_EQ(emu_stats(inner).n_allocs, 0);
    t_inject_arm(&inj, T_INJECT_REFUSE, N_OPS + 1, -1, -EIO);
    T_OK(all_ops(h));
    T_EQ(t_inject_failed(&inj), 0);
    T_ERR(all_ops(h), -EIO);
    T_ERR(all_ops(h), -EIO);
    T_STREQ(t_inject_first_failed(&inj), "mem_alloc");
    t_inject_disarm(&inj);
    T_OK(all_ops(h));
    tear_down();
    T_EQ(munmap(h, 4096), 0);
}

static void skipped_ops_never_fail(void)
{
    struct vv_event *ev;

    set_up();
    ev = emu_event(d);
    t_inject_skip(&inj, VV_DEVICE_OP_EVENT_QUERY);
    t_inject_arm(&inj, T_INJECT_REFUSE, 1, -1, -EIO);
    T_OK(vv_device_event_query(d, ev));
    T_EQ(t_inject_seen(&inj), 0);
    T_ERR(vv_device_event_wait(d, ev, 0), -EIO);
    T_EQ(t_inject_seen(&inj), 1);
    vv_device_event_free(d, ev);
    tear_down();
}

static void copies_may_fail_late(void)
{
    unsigned char out[64] = {0};
    struct vv_stream *s;
    struct vv_event *ev, *other;
    unsigned char *p;

    set_up();
    s = emu_stream(d);
    ev = emu_event(d);
    other = emu_event(d);
    p = emu_alloc(d, 4096);
    memset(vv_device_host_map(inner, p), 5, 4096);
    t_inject_arm(&inj, T_INJECT_REPORT, 1, 1, -EIO);
    T_OK(emu_copy(d, s, out, p, sizeof(out)));
    T_EQ(out[0], 0);
    T_OK(vv_device_event_record(d, ev, s));
    T_OK(vv_device_event_record(d, other, s));
    T_ERR(vv_device_event_wait(d, ev, -1), -EIO);
    T_ERR(vv_device_event_query(d, ev), -EIO);
    T_OK(vv_device_event_wait(d, other, -1));
    T_OK(emu_copy(d, s, out, p, sizeof(out)));
    T_EQ(out[0], 5);
    T_OK(vv_device_event_record(d, ev, s));
    T_OK(vv_device_event_wait(d, ev, -1));
    vv_device_event_free(d, ev);
    vv_device_event_free(d, other);
    vv_device_stream_free(d, s);
    tear_down();
}

/* ---- a store that carries out requests at once and reports them when polled ---- */

struct plain_store {
    struct vv_store base;
    struct vv_store_io *done[8];
    int n_done;
    int submitted, kicks, closed;
};

static void plain_close(struct vv_store *store)
{
    ((struct plain_store *)store)->closed++;
}

static int plain_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct plain_store *s = (struct plain_store *)store;

    io->status = 0;
    s->submitted++;
    s->done[s->n_done++] = io;
    return 0;
}

static int plain_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                      int64_t timeout_ns)
{
    struct plain_store *s = (struct plain_store *)store;
    int n = s->n_done;

    (void)timeout_ns;
    T_CHECK((size_t)n <= max);
    for (int i = 0; i < n; i++)
        ret_done[i] = s->done[i];
    s->n_done = 0;
    return n ? n : -ETIMEDOUT;
}

static void plain_kick(struct vv_store *store)
{
    ((struct plain_store *)store)->kicks++;
}

static const struct vv_store_ops plain_ops = {
    .name = "plain",
    .close = plain_close,
    .submit = plain_submit,
    .poll = plain_poll,
    .kick = plain_kick,
};

static void store_requests_fail(void)
{
    struct plain_store plain = {.base = {.ops = &plain_ops}};
    struct vv_store_io io[4], *done[8];
    struct vv_store *s;

    t_inject_init(&inj);
    s = t_inject_store(&inj, &plain.base);
    memset(io, 0, sizeof(io));
    for (size_t i = 0; i < 4; i++) {
        io[i].op = (enum vv_store_op)i;
        io[i].chunk0 = 7;
        T_OK(s->ops->submit(s, &io[i]));
    }
    T_EQ(s->ops->poll(s, done, 8, 0), 4);
    T_EQ(t_inject_seen(&inj), 4);

    t_inject_arm(&inj, T_INJECT_REFUSE, 2, 1, -ENOMEM);
    T_OK(s->ops->submit(s, &io[0]));
    T_ERR(s->ops->submit(s, &io[1]), -ENOMEM);
    T_OK(s->ops->submit(s, &io[2]));
    T_EQ(s->ops->poll(s, done, 8, 0), 2);
    T_CHECK(done[0] == &io[0] && done[1] == &io[2]);
    T_STREQ(t_inject_first_failed(&inj), "store write");

    t_inject_arm(&inj, T_INJECT_REPORT, 2, 2, -EBADMSG);
    for (size_t i = 0; i < 4; i++)
        T_OK(s->ops->submit(s, &io[i]));
    T_EQ(s->ops->poll(s, done, 1, 0), 1);
    T_CHECK(done[0] == &io[1]);
    T_EQ(io[1].status, -EBADMSG);
    T_EQ(io[1].bad_chunk, 7);
    T_EQ(s->ops->poll(s, done, 8, 0), 1);
    T_CHECK(done[0] == &io[2]);
    T_EQ(s->ops->poll(s, done, 8, 0), 2);
    T_CHECK(done[0] == &io[0] && done[1] == &io[3]);
    T_EQ(io[0].status, 0);
    T_EQ(s->ops->poll(s, done, 8, 0), -ETIMEDOUT);

    s->ops->kick(s);
    T_EQ(plain.kicks, 1);
    T_EQ(plain.submitted, 4 + 2 + 2);
    s->ops->close(s);
    T_EQ(plain.closed, 1);
    t_inject_fini(&inj);
}

int main(void)
{
    T_RUN(every_device_op_fails_in_turn);
    T_RUN(skipped_ops_never_fail);
    T_RUN(copies_may_fail_late);
    T_RUN(store_requests_fail);
    return t_done();
}
