/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the baseline with managed memory moves it: in steps, between which others get their turn. The
 * probe that says what the baseline ought to take moves in the same way.
 */
#ifndef VARVE_SIM_MANAGED_H
#define VARVE_SIM_MANAGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util.h"
#include "device/device.h"

/* What the baseline may do in more than one way. */
struct shot_uvm_opts {
    /* Every page gets its place on both sides before the run. */
    bool touch;
    /* So many versions have their memory on the device before they are written; 0: it is moved there
     * by the call. */
    uint32_t ahead;
    uint64_t step_bytes; /* moved at a time; 0: all of a version */
    bool yield;          /* no step begins while a call copies */
    bool fetch;          /* a restore moves what is in host memory before it copies */
};

/* Set where text (NULL: none) says nothing else: "touch=0,ahead=0,step=16M,yield=1,fetch=1".
 * -EINVAL: it cannot be read; `err` says what. */
VV_WARN_UNUSED int shot_uvm_opts_parse(const char *text, char *err, size_t err_size,
                                       struct shot_uvm_opts *ret_opts);

/* One thread's. `before_step` (may be NULL) is called before every step. */
struct managed_mover {
    struct vv_device *device;
    struct vv_stream *stream;
    struct vv_event *event;
    uint64_t step_bytes;
    void (*before_step)(void *arg);
    void *arg;
    /* What it has moved, and how long its steps took. Waiting before them is not counted. */
    uint64_t moved_bytes, moved_ns;
};

VV_WARN_UNUSED int managed_mover_init(struct vv_device *d, uint64_t step_bytes,
                                      struct managed_mover *ret_mover);
void managed_mover_fini(struct managed_mover *m);

/* Advises that it belongs there, moves it and waits for the end. */
VV_WARN_UNUSED int managed_move(struct managed_mover *m, const void *ptr, size_t bytes,
                                bool to_host);

#endif
