/* SPDX-License-Identifier: Apache-2.0 */
/*
 * It has no state, so that all of its operations may be called from anywhere. Streams and events are
 * one address each. Whatever a rehearsal has no use for is refused.
 */
#include "device/still.h"

#include <errno.h>
#include <stdio.h>

/* Where its memory is said to be: no mapping of a process begins this low. */
#define ADDRESS ((uintptr_t)1 << 12)

static char stream_tag, event_tag;

static void still_close(struct vv_device *d)
{
    (void)d;
}

static int still_mem_alloc(struct vv_device *d, size_t bytes, void **ret_ptr)
{
    (void)d;
    if (bytes == 0)
        return -EINVAL;
    *ret_ptr = (void *)ADDRESS; /* NOLINT(performance-no-int-to-ptr): an address, and no more */
    return 0;
}

static int still_mem_free(struct vv_device *d, void *ptr)
{
    (void)d;
    (void)ptr;
    return 0;
}

static int still_mem_info(struct vv_device *d, size_t *ret_free, size_t *ret_total)
{
    (void)d;
    *ret_free = *ret_total = 0;
    return 0;
}

static int still_host_register(struct vv_device *d, void *ptr, size_t bytes)
{
    (void)d;
    (void)ptr;
    (void)bytes;
    return -ENOTSUP;
}

static int still_host_share(struct vv_device *d, void *ptr, size_t bytes, bool read_only,
                            void **ret_ptr)
{
    (void)read_only;
    (void)ret_ptr;
    return still_host_register(d, ptr, bytes);
}

static int still_host_address(struct vv_device *d, const void *ptr, void **ret_ptr)
{
    (void)d;
    (void)ptr;
    (void)ret_ptr;
    return -EINVAL;
}

static int still_host_unregister(struct vv_device *d, void *ptr)
{
    (void)d;
    (void)ptr;
    return -EINVAL;
}

static int still_ptr_kind(struct vv_device *d, const void *ptr, enum vv_mem_kind *ret_kind,
                          size_t *ret_bytes_left)
{
    (void)d;
    *ret_kind = VV_MEM_DEVICE;
    *ret_bytes_left = SIZE_MAX;
    return ptr ? 0 : -EINVAL;
}

static int still_stream_new(struct vv_device *d, struct vv_stream **ret_stream)
{
    (void)d;
    *ret_stream = (struct vv_stream *)(void *)&stream_tag;
    return 0;
}

static void still_stream_free(struct vv_device *d, struct vv_stream *s)
{
    (void)d;
    (void)s;
}

static int still_copy_async(struct vv_device *d, struct vv_stream *s,
                            const struct vv_copy_seg *segs, size_t n_segs)
{
    (void)d;
    (void)s;
    (void)segs;
    (void)n_segs;
    return 0;
}

static int still_event_new(struct vv_device *d, struct vv_event **ret_event)
{
    (void)d;
    *ret_event = (struct vv_event *)(void *)&event_tag;
    return 0;
}

static void still_event_free(struct vv_device *d, struct vv_event *ev)
{
    (void)d;
    (void)ev;
}

static int still_event_record(struct vv_device *d, struct vv_event *ev, struct vv_stream *s)
{
    (void)d;
    (void)ev;
    (void)s;
    return 0;
}

static int still_event_query(struct vv_device *d, struct vv_event *ev)
{
    (void)d;
    (void)ev;
    return 0;
}

static int still_event_wait(struct vv_device *d, struct vv_event *ev, int64_t timeout_ns)
{
    (void)timeout_ns;
    return still_event_query(d, ev);
}

static int still_stream_wait_event(struct vv_device *d, struct vv_stream *s, struct vv_event *ev)
{
    return still_event_record(d, ev, s);
}

static int still_after_app(struct vv_device *d, struct vv_stream *s)
{
    (void)d;
    (void)s;
    return 0;
}

static int still_stream_adopt(struct vv_device *d, void *native, struct vv_stream **ret_stream)
{
    (void)native;
    return still_stream_new(d, ret_stream);
}

static void *still_stream_native(struct vv_device *d, struct vv_stream *s)
{
    (void)d;
    (void)s;
    return NULL;
}

static int still_enter(struct vv_device *d)
{
    (void)d;
    return 0;
}

static void still_leave(struct vv_device *d)
{
    (void)d;
}

static int still_launch(struct vv_device *d, struct vv_stream *s, const struct vv_kernel *k)
{
    (void)d;
    (void)s;
    (void)k;
    return -ENOTSUP;
}

static void still_describe(struct vv_device *d, struct vv_device_info *ret_info)
{
    (void)d;
    *ret_info = (struct vv_device_info){.index = -1};
    snprintf(ret_info->name, sizeof(ret_info->name), "still");
}

static int still_last_code(struct vv_device *d, const char **ret_name)
{
    (void)d;
    *ret_name = "";
    return 0;
}

struct vv_device *vv_device_still(void)
{
    static const struct vv_device_ops ops = {
        .name = "still",
        .close = still_close,
        .mem_alloc = still_mem_alloc,
        .mem_free = still_mem_free,
        .mem_info = still_mem_info,
        .host_register = still_host_register,
        .host_share = still_host_share,
        .host_address = still_host_address,
        .host_unregister = still_host_unregister,
        .ptr_kind = still_ptr_kind,
        .stream_new = still_stream_new,
        .stream_free = still_stream_free,
        .copy_async = still_copy_async,
        .event_new = still_event_new,
        .event_free = still_event_free,
        .event_record = still_event_record,
        .event_query = still_event_query,
        .event_wait = still_event_wait,
        .stream_wait_event = still_stream_wait_event,
        .after_app = still_after_app,
        .stream_adopt = still_stream_adopt,
        .stream_native = still_stream_native,
        .enter = still_enter,
        .leave = still_leave,
        .launch = still_launch,
        .describe = still_describe,
        .last_code = still_last_code,
    };
    static struct vv_device still = {&ops};
    return &still;
}
