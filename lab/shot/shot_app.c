/* SPDX-License-Identifier: Apache-2.0 */
#include "lab/shot/shot_app.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pattern.h"
#include "device/cuda/cuda.h"
#include "device/host/host.h"

#define ALIGN 4096
/* The longest time of one kernel; a longer computation takes several. */
#define COMPUTE_STEP_NS (100 * VV_NS_PER_MS)

static int finish(struct shot_app *app)
{
    int rc = vv_device_event_record(app->device, app->event, app->stream);

    return rc ? rc : vv_device_event_wait(app->device, app->event, -1);
}

static int run(struct shot_app *app, const struct vv_kernel *k)
{
    int rc = vv_device_launch(app->device, app->stream, k);

    return rc ? rc : finish(app);
}

static int copy(struct shot_app *app, void *dst, const void *src, size_t bytes)
{
    struct vv_copy_seg seg = {dst, src, bytes};
    int rc = vv_device_copy_async(app->device, app->stream, &seg, 1);

    return rc ? rc : finish(app);
}

static bool is_emulated(const struct vv_device *d)
{
    return strcmp(d->ops->name, "host") == 0;
}

static int open_stream(struct shot_app *app, bool own)
{
    struct vv_device *d = app->device;
    int rc;

    if (!own)
        return vv_device_stream_adopt(d, NULL, &app->stream);
    if (is_emulated(d)) {
        rc = vv_device_host_native_new(d, &app->native);
        return rc ? rc : vv_device_stream_adopt(d, app->native, &app->stream);
    }
    rc = vv_device_stream_new(d, &app->stream);
    if (rc == 0)
        app->native = vv_device_cuda_native(d, app->stream);
    return rc;
}

static int device_init(struct shot_app *app, bool own_stream)
{
    struct vv_device *d = app->device;
    struct vv_device_info info;
    void *bad;
    int rc;

    vv_device_describe(d, &info);
    if (!info.kernels)
        return -ENOTSUP;
    rc = vv_device_mem_alloc(d, app->bytes, &app->buf);
    if (rc == 0)
        rc = vv_device_mem_alloc(d, sizeof(uint64_t), &bad);
    if (rc)
        return rc;
    app->bad = bad;
    rc = open_stream(app, own_stream);
    if (rc == 0)
        rc = vv_device_event_new(d, &app->event);
    if (rc == 0)
        rc = copy(app, app->bad, &app->known_bad, sizeof(uint64_t));
    return rc;
}

int shot_app_init(struct vv_device *device, size_t bytes, bool own_stream, struct shot_app *ret_app)
{
    struct shot_app app = {.device = device, .bytes = vv_align_up(bytes, ALIGN)};
    int rc;

    if (device) {
        rc = device_init(&app, own_stream);
    } else {
        rc = -posix_memalign(&app.buf, ALIGN, app.bytes);
        if (rc == 0)
            memset(app.buf, 0, app.bytes); /* the first call must not pay for page faults */
    }
    if (rc)
        shot_app_fini(&app);
    else
        *ret_app = app;
    return rc;
}

void shot_app_fini(struct shot_app *app)
{
    if (app->device) {
        vv_device_event_free(app->device, app->event);
        vv_device_stream_free(app->device, app->stream);
        if (is_emulated(app->device))
            vv_device_host_native_free(app->device, app->native);
        vv_device_mem_free(app->device, app->bad);
        vv_device_mem_free(app->device, app->buf);
    } else {
        free(app->buf);
    }
    *app = (struct shot_app){0};
}

int shot_app_fill(struct shot_app *app, size_t bytes, uint64_t seed, uint64_t version)
{
    if (app->device)
        return run(app, &(struct vv_kernel){.kind = VV_KERNEL_FILL,
                                            .ptr = app->buf,
                                            .bytes = bytes,
                                            .seed = seed,
                                            .version = version});
    vv_pattern_fill(app->buf, bytes, seed, version, 0);
    return 0;
}

int shot_app_verify(struct shot_app *app, size_t bytes, uint64_t seed, uint64_t version,
                    uint64_t *ret_bad)
{
    uint64_t before = app->known_bad;
    int rc;

    if (!app->device) {
        *ret_bad = vv_pattern_verify(app->buf, bytes, seed, version, 0, NULL)
                       ? 0
                       : vv_pattern_count_bad(app->buf, bytes, seed, version, 0);
        return 0;
    }
    rc = vv_device_launch(app->device, app->stream,
                          &(struct vv_kernel){.kind = VV_KERNEL_VERIFY,
                                              .ptr = app->buf,
                                              .bytes = bytes,
                                              .seed = seed,
                                              .version = version,
                                              .bad = app->bad});
    if (rc == 0)
        rc = copy(app, &app->known_bad, app->bad, sizeof(uint64_t));
    if (rc == 0)
        *ret_bad = app->known_bad - before;
    return rc;
}

/* The host is as busy as a CUDA program that waits for its kernels, by default without sleeping: a processor that
 * has slept takes a while to be fast again, and the next call would pay for it. The loop reads the clock and
 * rarely the event, because polling the driver delays all its other callers. */
int shot_app_compute(struct shot_app *app, uint64_t until_ns)
{
    uint64_t now_ns;
    int rc = app->device ? 0 : -EINVAL;

    while (rc == 0 && (now_ns = vv_now_ns()) < until_ns) {
        uint64_t ns = VV_MIN(until_ns - now_ns, COMPUTE_STEP_NS);
        rc = vv_device_launch(app->device, app->stream,
                              &(struct vv_kernel){.kind = VV_KERNEL_SPIN, .ns = ns});
        while (rc == 0 && vv_now_ns() < now_ns + ns)
            ;
        if (rc == 0)
            rc = finish(app);
    }
    return rc;
}
