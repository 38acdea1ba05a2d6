/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application's side of a shot: its memory, on a device or in the host, filled before every
 * checkpoint and checked after every restore. On a device kernels do both, on the legacy default
 * stream or on a stream of the application's own.
 *
 * One thread.
 */
#ifndef LAB_SHOT_SHOT_APP_H
#define LAB_SHOT_SHOT_APP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

struct shot_app {
    struct vv_device *device; /* NULL: host memory */
    void *buf;
    size_t bytes;
    /* The fields below only with a device. */
    struct vv_stream *stream;
    struct vv_event *event;
    void *native;       /* its own stream, as the library's calls take it; NULL: the legacy one */
    uint64_t *bad;      /* in device memory: wrong bytes so far */
    uint64_t known_bad; /* the same, as last read */
};

/* Memory for `bytes`, and with `own_stream` a stream that no other waits for. The caller owns the device, which
 * stays open until shot_app_fini. -ENOTSUP: it has no kernels. -ENOMEM and the errors of the device. */
VV_WARN_UNUSED int shot_app_init(struct vv_device *device, size_t bytes, bool own_stream,
                                 struct shot_app *ret_app);
/* Accepts one that was not initialised. */
void shot_app_fini(struct shot_app *app);

/* Each returns when it is done. */

/* The contents of a version: base/pattern.h. */
VV_WARN_UNUSED int shot_app_fill(struct shot_app *app, size_t bytes, uint64_t seed,
                                 uint64_t version);
/* The number of bytes that differ from the version. */
VV_WARN_UNUSED int shot_app_verify(struct shot_app *app, size_t bytes, uint64_t seed,
                                   uint64_t version, uint64_t *ret_bad);
/* Keeps the device busy until `until_ns`. -EINVAL: there is none. */
VV_WARN_UNUSED int shot_app_compute(struct shot_app *app, uint64_t until_ns);

#endif
