/* SPDX-License-Identifier: Apache-2.0 */
/* What the steps of the baseline with managed memory cost, on a small allocation before the shot. */
#ifndef VARVE_SIM_UVM_CALIBRATE_H
#define VARVE_SIM_UVM_CALIBRATE_H

#include "lab/shot/shot_engine.h"
#include "lab/shot/uvm_steps.h"

/* Versions that are written, and so many times `bytes` of managed memory. */
#define UVM_CALIBRATE_VERSIONS 31

struct uvm_calibrate_opts {
    struct vv_device *device; /* the application's */
    struct shot_uvm_opts uvm;
    void *buf; /* the application's memory, on the device */
    size_t bytes;
    /* Passes the time between two calls as the shot does: the driver is slower after a pause. */
    int (*pause)(void *arg);
    void *arg;
};

/* -ENOMEM: the device has not so much memory free; and the errors of shot_engine_uvm and its calls,
 * with a line of text. */
VV_WARN_UNUSED int uvm_calibrate(const struct uvm_calibrate_opts *opts, char *err, size_t err_size,
                                 struct uvm_account *ret_costs);

#endif
