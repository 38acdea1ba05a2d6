/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the baseline with managed memory, and the calls by which it moves memory. */
#ifndef LAB_SHOT_MANAGED_H
#define LAB_SHOT_MANAGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "device/device.h"

/* The variants of the baseline. */
struct shot_uvm_opts {
    /* Every page gets its place on both sides before the run. */
    bool touch;
    /* So many versions have their memory on the device before they are written; 0: the call moves it there. */
    uint32_t ahead;
    uint64_t step_bytes; /* bytes of a move; 0: all of a version */
    bool yield;          /* neither a step nor advice begins while a call copies */
    bool fetch;          /* a restore moves pages in host memory before it copies */
    bool gone;           /* advice is given for versions that are not needed any more */
};

/* Takes settings from a text such as "touch=0,ahead=0,step=16M,yield=1,fetch=1,gone=0" (NULL: none); others keep
 * their defaults. -EINVAL: it cannot be read, with the reason in `err`. */
VV_WARN_UNUSED int shot_uvm_opts_parse(const char *text, char *err, size_t err_size,
                                       struct shot_uvm_opts *ret_opts);

/* State of one thread. */
struct managed_mover {
    struct vv_device *device;
    struct vv_stream *stream;
    struct vv_event *event;
};

VV_WARN_UNUSED int managed_mover_init(struct vv_device *d, struct managed_mover *ret_mover);
void managed_mover_fini(struct managed_mover *m);

/* Advises the driver to keep it there. */
VV_WARN_UNUSED int managed_advise(struct managed_mover *m, const void *ptr, size_t bytes,
                                  bool to_host);
/* Moves it and waits for the end. */
VV_WARN_UNUSED int managed_move(struct managed_mover *m, const void *ptr, size_t bytes,
                                bool to_host);

#endif
