/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the emulated device. */
#ifndef T_UNIT_DEVICE_EMULATED_H
#define T_UNIT_DEVICE_EMULATED_H

#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "device/host/host.h"
#include "t.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static inline struct vv_device *emu_open(uint64_t capacity_bytes, bool guard)
{
    struct vv_device_host_opts opts;
    struct vv_device *d;

    vv_device_host_opts_init(&opts);
    opts.capacity_bytes = capacity_bytes;
    opts.guard = guard;
    T_OK(vv_device_open_host(&opts, &d));
    return d;
}

static inline void *emu_alloc(struct vv_device *d, size_t bytes)
{
    void *p;

    T_OK(vv_device_mem_alloc(d, bytes, &p));
    return p;
}

/* Zeroed host memory, page aligned, unregistered. */
static inline unsigned char *emu_host(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    T_CHECK(p != MAP_FAILED);
    return p;
}

static inline struct vv_stream *emu_stream(struct vv_device *d)
{
    struct vv_stream *s;

    T_OK(vv_device_stream_new(d, &s));
    return s;
}

static inline struct vv_event *emu_event(struct vv_device *d)
{
    struct vv_event *ev;

    T_OK(vv_device_event_new(d, &ev));
    return ev;
}

static inline int emu_copy(struct vv_device *d, struct vv_stream *s, void *dst, const void *src,
                           size_t bytes)
{
    struct vv_copy_seg seg = {dst, src, bytes};

    return vv_device_copy_async(d, s, &seg, 1);
}

static inline struct vv_device_host_stats emu_stats(struct vv_device *d)
{
    struct vv_device_host_stats st;

    vv_device_host_stats(d, &st);
    return st;
}

#endif
