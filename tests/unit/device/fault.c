/* SPDX-License-Identifier: Apache-2.0 */
/* Failures on demand, and the loss of the emulated device. */
#include <pthread.h>

#include "unit/device/emulated.h"

struct world {
    struct vv_device *d;
    unsigned char *h, *paged;
    void *p;
    struct vv_stream *s;
    struct vv_event *ev;
};

static struct world w;

static void set_up(void)
{
    w.d = emu_open(4 * MIB, true);
    w.h = emu_host(MIB);
    w.paged = emu_host(4096);
    T_OK(vv_device_host_register(w.d, w.h, MIB));
    w.p = emu_alloc(w.d, MIB);
    w.s = emu_stream(w.d);
    w.ev = emu_event(w.d);
}

static void tear_down(void)
{
    vv_device_event_free(w.d, w.ev);
    vv_device_stream_free(w.d, w.s);
    vv_device_close(w.d);
    T_EQ(munmap(w.h, MIB), 0);
    T_EQ(munmap(w.paged, 4096), 0);
}

/* Calls operation `op` with good arguments and undoes its effect. Undoing must not fail. */
static int call_op(enum vv_device_op op)
{
    struct vv_stream *s;
    struct vv_event *ev;
    enum vv_mem_kind kind;
    size_t a, b;
    void *p;
    int rc = 0;

    switch (op) {
    case VV_DEVICE_OP_MEM_ALLOC:
        rc = vv_device_mem_alloc(w.d, 4096, &p);
        if (!rc)
            T_OK(vv_device_mem_free(w.d, p));
        break;
    case VV_DEVICE_OP_MEM_FREE:
        rc = vv_device_mem_free(w.d, NULL);
        break;
    case VV_DEVICE_OP_MEM_INFO:
        rc = vv_device_mem_info(w.d, &a, &b);
        break;
    case VV_DEVICE_OP_HOST_REGISTER:
        rc = vv_device_host_register(w.d, w.paged, 4096);
        if (!rc)
            T_OK(vv_device_host_unregister(w.d, w.paged));
        break;
    case VV_DEVICE_OP_HOST_UNREGISTER:
        rc = vv_device_host_unregister(w.d, w.h);
        if (!rc)
            T_OK(vv_device_host_register(w.d, w.h, MIB));
        break;
    case VV_DEVICE_OP_PTR_KIND:
        rc = vv_device_ptr_kind(w.d, w.p, &kind, &a);
        break;
    case VV_DEVICE_OP_STREAM_NEW:
        rc = vv_device_stream_new(w.d, &s);
        if (!rc)
            vv_device_stream_free(w.d, s);
        break;
    case VV_DEVICE_OP_STREAM_FREE:
        vv_device_stream_free(w.d, NULL);
        break;
    case VV_DEVICE_OP_COPY_ASYNC:
        rc = emu_copy(w.d, w.s, w.p, w.h, 4096);
        break;
    case VV_DEVICE_OP_EVENT_NEW:
        rc = vv_device_event_new(w.d, &ev);
        if (!rc)
            vv_device_event_free(w.d, ev);
        break;
    case VV_DEVICE_OP_EVENT_FREE:
        vv_device_event_free(w.d, NULL);
        break;
    case VV_DEVICE_OP_EVENT_RECORD:
        rc = vv_device_event_record(w.d, w.ev, w.s);
        break;
    case VV_DEVICE_OP_EVENT_QUERY:
        rc = vv_device_event_query(w.d, w.ev);
        rc = rc == -EBUSY ? 0 : rc; /* copies of other cases may be pending */
        break;
    case VV_DEVICE_OP_EVENT_WAIT:
        rc = vv_device_event_wait(w.d, w.ev, -1);
        break;
    case VV_DEVICE_OP_STREAM_WAIT_EVENT:
        rc = vv_device_stream_wait_event(w.d, w.s, w.ev);
        break;
    case VV_DEVICE_OP_AFTER_APP:
        rc = vv_device_after_app(w.d, w.s);
        break;
    case VV_DEVICE_OP_STREAM_ADOPT:
        rc = vv_device_stream_adopt(w.d, NULL, &s);
        if (!rc)
            vv_device_stream_free(w.d, s);
        break;
    case VV_DEVICE_OP_LAUNCH:
        rc = vv_device_launch(w.d, w.s, &(struct vv_kernel){.kind = VV_KERNEL_SPIN, .ns = 1});
        break;
    case VV_DEVICE_OP_COUNT:
        T_CHECK(false);
    }
    return rc;
}

static bool can_fail(enum vv_device_op op)
{
    return op != VV_DEVICE_OP_STREAM_FREE && op != VV_DEVICE_OP_EVENT_FREE;
}

static void every_op_is_counted_and_fails(void)
{
    set_up();
    for (unsigned i = 0; i < VV_DEVICE_OP_COUNT; i++) {
        enum vv_device_op op = (enum vv_device_op)i;
        struct vv_device_host_stats before, after;

        if (!can_fail(op))
            continue;
        T_OK(vv_device_host_fail(w.d, op, 2, 2, -EIO));
        before = emu_stats(w.d);
        T_OK(call_op(op));
        T_ERR(call_op(op), -EIO);
        T_ERR(call_op(op), -EIO);
        T_OK(call_op(op));
        after = emu_stats(w.d);
        T_EQ(after.calls[op] - before.calls[op], 4);
        T_EQ(after.failed_calls - before.failed_calls, 2);

        T_OK(vv_device_host_fail(w.d, op, 1, -1, -ENOMEM));
        for (int k = 0; k < 5; k++)
            T_ERR(call_op(op), -ENOMEM);
        vv_device_host_heal(w.d);
        T_OK(call_op(op));
    }
    tear_down();
}

static void any_counts_all_ops(void)
{
    uint64_t sum = 0;
    struct vv_device_host_stats st;

    set_up();
    T_OK(vv_device_host_fail(w.d, VV_DEVICE_OP_ANY, 3, 1, -EIO));
    T_OK(call_op(VV_DEVICE_OP_PTR_KIND));
    T_OK(call_op(VV_DEVICE_OP_MEM_INFO));
    T_ERR(call_op(VV_DEVICE_OP_AFTER_APP), -EIO);
    T_OK(call_op(VV_DEVICE_OP_AFTER_APP));
    st = emu_stats(w.d);
    for (unsigned i = 0; i < VV_DEVICE_OP_COUNT; i++)
        sum += st.calls[i];
    T_EQ(st.calls[VV_DEVICE_OP_ANY], sum);
    tear_down();
}

static void rules_are_checked(void)
{
    int rc = 0;
    int n = 0;

    set_up();
    T_ERR(vv_device_host_fail(w.d, VV_DEVICE_OP_ANY, 0, 1, -EIO), -EINVAL);
    T_ERR(vv_device_host_fail(w.d, VV_DEVICE_OP_ANY, 1, 0, -EIO), -EINVAL);
    T_ERR(vv_device_host_fail(w.d, VV_DEVICE_OP_ANY, 1, 1, 0), -EINVAL);
    T_ERR(vv_device_host_fail(w.d, VV_DEVICE_OP_ANY, 1, 1, EIO), -EINVAL);
    T_ERR(vv_device_host_fail(w.d, (enum vv_device_op)(VV_DEVICE_OP_ANY + 1), 1, 1, -EIO), -EINVAL);
    while (n < 1000 && !rc) {
        rc = vv_device_host_fail(w.d, VV_DEVICE_OP_ANY, 1000, 1, -EIO);
        n++;
    }
    T_ERR(rc, -ENOSPC);
    tear_down();
}

/* A failed call has done nothing: no memory is taken, nothing is enqueued. */
static void failed_calls_have_no_effect(void)
{
    size_t free0, free1, total;
    void *p = &free0;
    struct vv_stream *s = (void *)&free1;

    set_up();
    T_OK(vv_device_mem_info(w.d, &free0, &total));
    T_OK(vv_device_host_fail(w.d, VV_DEVICE_OP_MEM_ALLOC, 1, 1, -ENOMEM));
    T_ERR(vv_device_mem_alloc(w.d, 4096, &p), -ENOMEM);
    T_CHECK(p == &free0);
    T_OK(vv_device_mem_info(w.d, &free1, &total));
    T_EQ(free0, free1);
    T_OK(vv_device_host_fail(w.d, VV_DEVICE_OP_STREAM_NEW, 1, 1, -ENOMEM));
    T_ERR(vv_device_stream_new(w.d, &s), -ENOMEM);
    T_CHECK(s == (void *)&free1);
    T_OK(vv_device_host_fail(w.d, VV_DEVICE_OP_COPY_ASYNC, 1, 1, -EIO));
    T_ERR(emu_copy(w.d, w.s, w.p, w.h, MIB), -EIO);
    T_EQ(emu_stats(w.d).engine[VV_DEVICE_HOST_H2D].batches, 0);
    tear_down();
}

static int record_and_wait(void)
{
    T_OK(vv_device_event_record(w.d, w.ev, w.s));
    return vv_device_event_wait(w.d, w.ev, -1);
}

static void late_failures_come_from_the_next_event(void)
{
    struct vv_event *other;
    struct vv_stream *s2;

    set_up();
    other = emu_event(w.d);
    s2 = emu_stream(w.d);
    memset(w.h, 1, MIB);
    T_OK(emu_copy(w.d, w.s, w.p, w.h, MIB));
    T_OK(record_and_wait());
    memset(w.h, 2, MIB);
    T_OK(vv_device_host_fail_async(w.d, 2, 1, -EIO));
    T_OK(emu_copy(w.d, w.s, w.p, w.h, 4096));
    T_OK(emu_copy(w.d, w.s, (char *)w.p + 4096, w.h, 4096)); /* this one fails */
    T_OK(emu_copy(w.d, w.s, (char *)w.p + 8192, w.h, 4096));
    T_OK(vv_device_event_record(w.d, w.ev, w.s));
    T_OK(vv_device_event_record(w.d, other, w.s));
    T_OK(vv_device_stream_wait_event(w.d, s2, w.ev));
    T_ERR(vv_device_event_wait(w.d, w.ev, -1), -EIO);
    T_ERR(vv_device_event_query(w.d, w.ev), -EIO); /* again */
    T_OK(vv_device_event_wait(w.d, other, -1));    /* only on that event */
    T_OK(record_and_wait());                       /* until it is recorded again */

    T_OK(emu_copy(w.d, s2, w.h, w.p, MIB));
    T_OK(vv_device_event_record(w.d, w.ev, s2));
    T_OK(vv_device_event_wait(w.d, w.ev, -1));
    T_EQ(w.h[0], 2);
    T_EQ(w.h[4096], 1);
    T_EQ(w.h[8191], 1);
    T_EQ(w.h[8192], 2);

    /* A synchronous copy is accepted as well, and its error is the event's. */
    T_OK(vv_device_host_fail_async(w.d, 1, 1, -EIO));
    T_OK(emu_copy(w.d, w.s, w.paged, w.p, 4096));
    T_EQ(w.paged[0], 0);
    T_ERR(record_and_wait(), -EIO);
    T_OK(emu_copy(w.d, w.s, w.paged, w.p, 4096));
    T_EQ(w.paged[0], 2);
    T_OK(record_and_wait());
    vv_device_stream_free(w.d, s2);
    vv_device_event_free(w.d, other);
    tear_down();
}

static void *wait_for_event(void *arg)
{
    int *ret_rc = arg;

    *ret_rc = vv_device_event_wait(w.d, w.ev, -1);
    return NULL;
}

/* Lost while a kernel runs, copies and records are queued behind it, and a thread waits. */
static void lost_with_work_pending(void)
{
    pthread_t thread;
    uint64_t calls;
    int rc = 0;

    set_up();
    T_OK(vv_device_host_app_hold(w.d));
    T_OK(vv_device_after_app(w.d, w.s));
    memset(w.h, 9, MIB);
    T_OK(emu_copy(w.d, w.s, w.p, w.h, MIB));
    /* Recorded twice: the first record reports the copy's failure, the second only the loss. */
    T_OK(vv_device_event_record(w.d, w.ev, w.s));
    T_OK(vv_device_event_record(w.d, w.ev, w.s));
    calls = emu_stats(w.d).calls[VV_DEVICE_OP_EVENT_WAIT];
    T_EQ(pthread_create(&thread, NULL, wait_for_event, &rc), 0);
    while (emu_stats(w.d).calls[VV_DEVICE_OP_EVENT_WAIT] == calls)
        vv_sleep_until_ns(vv_now_ns() + 50000);
    vv_device_host_lose(w.d);
    vv_device_host_lose(w.d);
    T_EQ(pthread_join(thread, NULL), 0);
    T_ERR(rc, -ENODEV);
    T_EQ(emu_stats(w.d).n_pending, 0);
    T_EQ(emu_stats(w.d).engine[VV_DEVICE_HOST_H2D].batches, 0);
    for (unsigned i = 0; i < VV_DEVICE_OP_COUNT; i++) {
        if (can_fail((enum vv_device_op)i))
            T_ERR(call_op((enum vv_device_op)i), -ENODEV);
    }
    T_ERR(vv_device_host_app_launch(w.d, 1), -ENODEV);
    vv_device_host_heal(w.d);
    T_ERR(call_op(VV_DEVICE_OP_MEM_INFO), -ENODEV);
    tear_down();
}

/* The device is lost at each call in turn: after the first -ENODEV the host memory may be freed. */
static void lost_at_each_call(void)
{
    for (uint64_t nth = 1;; nth++) {
        unsigned char *buf = emu_host(MIB);
        bool lost = false;

        set_up();
        T_OK(vv_device_host_register(w.d, buf, MIB));
        T_OK(vv_device_host_lose_at(w.d, VV_DEVICE_OP_ANY, nth));
        for (int i = 0; i < 4 && !lost; i++) {
            lost = emu_copy(w.d, w.s, buf, w.p, MIB) == -ENODEV;
            lost = lost || emu_copy(w.d, w.s, w.p, buf, MIB) == -ENODEV;
            lost = lost || vv_device_event_record(w.d, w.ev, w.s) == -ENODEV;
        }
        lost = lost || vv_device_event_wait(w.d, w.ev, -1) == -ENODEV;
        T_EQ(munmap(buf, MIB), 0);
        tear_down();
        if (!lost) {
            T_EQ(nth, 4 * 3 + 1 + 1);
            break;
        }
    }
}

int main(void)
{
    T_RUN(every_op_is_counted_and_fails);
    T_RUN(any_counts_all_ops);
    T_RUN(rules_are_checked);
    T_RUN(failed_calls_have_no_effect);
    T_RUN(late_failures_come_from_the_next_event);
    T_RUN(lost_with_work_pending);
    T_RUN(lost_at_each_call);
    return t_done();
}
