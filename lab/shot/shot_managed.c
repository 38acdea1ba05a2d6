/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each move is waited for: work that is submitted while the stream is busy goes to a thread of the driver, and no
 * caller could delay that.
 */
#include "lab/shot/shot_managed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "device/cuda/managed.h"

#define DEFAULT_STEP_BYTES (UINT64_C(16) << 20)
#define STEP_ALIGN         (UINT64_C(2) << 20) /* the driver's unit */
#define MAX_AHEAD          64

static int set_one(struct shot_uvm_opts *o, const char *name, const char *value)
{
    uint64_t n;
    int rc = vv_bytes_parse(value, &n);

    if (rc)
        return rc;
    if (strcmp(name, "step") == 0)
        o->step_bytes = vv_align_up(n, STEP_ALIGN);
    else if (strcmp(name, "ahead") == 0 && n <= MAX_AHEAD)
        o->ahead = (uint32_t)n;
    else if (strcmp(name, "touch") == 0 && n <= 1)
        o->touch = n;
    else if (strcmp(name, "yield") == 0 && n <= 1)
        o->yield = n;
    else if (strcmp(name, "fetch") == 0 && n <= 1)
        o->fetch = n;
    else if (strcmp(name, "gone") == 0 && n <= 1)
        o->gone = n;
    else
        return -EINVAL;
    return 0;
}

int shot_uvm_opts_parse(const char *text, char *err, size_t err_size,
                        struct shot_uvm_opts *ret_opts)
{
    struct shot_uvm_opts o = {.step_bytes = DEFAULT_STEP_BYTES, .yield = true, .fetch = true};
    char *copy = strdup(text ? text : ""), *rest = NULL;
    int rc = copy ? 0 : -ENOMEM;

    for (char *item = copy ? strtok_r(copy, ",", &rest) : NULL; rc == 0 && item;
         item = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(item, '=');

        if (value)
            *value++ = '\0';
        rc = value ? set_one(&o, item, value) : -EINVAL;
        if (rc)
            snprintf(err, err_size,
                     "uvm: '%s': touch, ahead, step, yield, fetch or gone, and a number", item);
    }
    free(copy);
    if (rc == 0)
        *ret_opts = o;
    return rc;
}

int managed_mover_init(struct vv_device *d, struct managed_mover *ret_mover)
{
    struct managed_mover m = {.device = d};
    int rc = vv_device_stream_new(d, &m.stream);

    if (rc == 0)
        rc = vv_device_event_new(d, &m.event);
    if (rc)
        managed_mover_fini(&m);
    else
        *ret_mover = m;
    return rc;
}

void managed_mover_fini(struct managed_mover *m)
{
    if (!m->device)
        return;
    vv_device_event_free(m->device, m->event);
    vv_device_stream_free(m->device, m->stream);
    *m = (struct managed_mover){0};
}

int managed_advise(struct managed_mover *m, const void *ptr, size_t bytes, bool to_host)
{
    return vv_device_cuda_managed_advise(
        m->device, ptr, bytes, to_host ? VV_DEVICE_CUDA_PREFER_HOST : VV_DEVICE_CUDA_PREFER_DEVICE);
}

int managed_move(struct managed_mover *m, const void *ptr, size_t bytes, bool to_host)
{
    int rc = vv_device_cuda_managed_move(m->device, m->stream, ptr, bytes, to_host);

    if (rc == 0)
        rc = vv_device_event_record(m->device, m->event, m->stream);
    return rc ? rc : vv_device_event_wait(m->device, m->event, -1);
}
