/* SPDX-License-Identifier: Apache-2.0 */
/* How the baseline with managed memory may use it, and the calls by which it moves it. */
#ifndef LAB_SHOT_MANAGED_H
#define LAB_SHOT_MANAGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "device/device.h"

/* What the baseline may do in more than one way. */
struct shot_uvm_opts {
    /* Every page gets its place on both sides before the run. */
    bool touch;
    /* So many versions have their memory on the device before they are written; 0: it is moved there
     * by the call. */
    uint32_t ahead;
    uint64_t step_bytes; /* moved at a time; 0: all of a version */
    bool yield;          /* neither a step nor advice begins while a call copies */
    bool fetch;          /* a restore moves what is in host memory before it copies */
    bool gone;           /* advice is given on what is not needed any more */
};

/* Set where text (NULL: none) says nothing else: "touch=0,ahead=0,step=16M,yield=1,fetch=1,gone=0".
 * -EINVAL: it cannot be read; `err` says what. */
VV_WARN_UNUSED int shot_uvm_opts_parse(const char *text, char *err, size_t err_size,
                                       struct shot_uvm_opts *ret_opts);

/* One thread's. */
struct managed_mover {
    struct vv_device *device;
    struct vv_stream *stream;
    struct vv_event *event;
};

VV_WARN_UNUSED int managed_mover_init(struct vv_device *d, struct managed_mover *ret_mover);
void managed_mover_fini(struct managed_mover *m);

/* Advises that it belongs there. */
VV_WARN_UNUSED int managed_advise(struct managed_mover *m, const void *ptr, size_t bytes,
                                  bool to_host);
/* Moves it and waits for the end. */
VV_WARN_UNUSED int managed_move(struct managed_mover *m, const void *ptr, size_t bytes,
                                bool to_host);

#endif
