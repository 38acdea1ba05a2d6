/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: wrappers around a context's device, its stores and their system calls, for example to inject
 * failures. One thread sets them before varve_open, and sets them back to NULL afterwards.
 */
#ifndef VV_CKPT_HOOKS_H
#define VV_CKPT_HOOKS_H

#include "ckpt/face.h"
#include "device/device.h"
#include "store/store.h"

struct varve_ctx;

struct vv_ckpt_hooks {
    /* Each returns the wrapper for the context to use; closing the wrapper closes the inner one. */
    struct vv_device *(*device)(void *arg, struct vv_device *inner);
    struct vv_store *(*store)(void *arg, struct vv_store *inner);
    void *arg;
    const struct vv_os *os; /* NULL: the real one */
};

void vv_ckpt_set_hooks(const struct vv_ckpt_hooks *hooks);

#endif
