/* SPDX-License-Identifier: Apache-2.0 */
/* Bandwidths of what the baselines do, from which follows how long they ought to take. */
#ifndef VARVE_SIM_PROBE_BASELINE_H
#define VARVE_SIM_PROBE_BASELINE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/util.h"
#include "device/device.h"
#include "sim/managed.h"

/* Copies of `bytes` between device and pinned host memory, one at a time and waited for, for
 * `seconds` in each direction. -ENOMEM, -EINVAL and what the device reports. */
VV_WARN_UNUSED int probe_link_waited(struct vv_device *d, size_t bytes, double seconds,
                                     double *ret_down_bps, double *ret_up_bps);

/* How managed memory is used: `count` pieces of `bytes`. What calls of the application do is done
 * once in an interval, because the driver is slower after a pause; what threads do, without one. */
struct probe_managed_opts {
    size_t bytes;
    unsigned count;
    struct shot_uvm_opts uvm;
    bool in_call;         /* restores move it themselves, all at once */
    uint64_t interval_ns; /* between two calls of the application's */
};

struct probe_managed_rates {
    double prepare_bps;      /* moving pieces without contents to the device */
    double write_bps;        /* copies on the device into them */
    double to_host_bps;      /* moving them to the host */
    double read_on_host_bps; /* copies on the device out of what is in host memory */
    double to_device_bps;
    double read_bps; /* copies out of what is on the device */
};

/* -ENOTSUP, -EINVAL: no such memory on this device. */
VV_WARN_UNUSED int probe_managed(struct vv_device *d, const struct probe_managed_opts *opts,
                                 struct probe_managed_rates *ret_rates);

/* The whole buffer to or from where the file is, in as few calls as it takes. -EIO: the file ends. */
VV_WARN_UNUSED int probe_file_transfer(int fd, char *buf, size_t bytes, bool writing);

/* `count` new files of `bytes` in `dir`, written and read by one thread with plain write() and
 * read(), and removed afterwards. Never synced: without `direct` this is the page cache, as long as
 * it takes them. -EINVAL also when the file system refuses direct access; -ENOMEM, -ENOSPC and
 * other errors of the files. */
VV_WARN_UNUSED int probe_file(const char *dir, bool direct, size_t bytes, unsigned count,
                              double *ret_write_bps, double *ret_read_bps);

#endif
