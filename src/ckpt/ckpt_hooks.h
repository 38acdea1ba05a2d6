/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: something to stand between a context and its device, its stores and the system calls
 * they make, such as an injector of failures. Set before varve_open, by one thread, and set back to NULL afterwards.
 */
#ifndef VV_CKPT_HOOKS_H
#define VV_CKPT_HOOKS_H

#include "ckpt/face.h"
#include "device/device.h"
#include "store/store.h"

struct varve_ctx;

struct vv_ckpt_hooks {
    /* Each returns what the context shall use instead; closing that closes the inner one. */
    struct vv_device *(*device)(void *arg, struct vv_device *inner);
    struct vv_store *(*store)(void *arg, struct vv_store *inner);
    void *arg;
    const struct vv_os *os; /* NULL: the real one */
};

void vv_ckpt_set_hooks(const struct vv_ckpt_hooks *hooks);

#endif
