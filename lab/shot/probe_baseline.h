/* SPDX-License-Identifier: Apache-2.0 */
/* Bandwidths of the transfers of the baselines, which give their expected times. */
#ifndef LAB_SHOT_PROBE_BASELINE_H
#define LAB_SHOT_PROBE_BASELINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"
#include "device/device.h"

/* Copies of `bytes` between device and pinned host memory, one at a time with a wait for its end, for `seconds` in
 * each direction. -ENOMEM, -EINVAL and the errors of the device. */
VV_WARN_UNUSED int probe_link_waited(struct vv_device *d, size_t bytes, double seconds,
                                     double *ret_down_bps, double *ret_up_bps);

/* The whole buffer to or from the file's present position, in as few calls as needed. -EIO: the file ends. */
VV_WARN_UNUSED int probe_file_transfer(int fd, char *buf, size_t bytes, bool writing);

/* `count` new files of `bytes` in `dir`, written and read by one thread with plain write() and read(), and removed
 * afterwards. Never synced: without `direct` this measures the page cache, as long as it holds them. -EINVAL also
 * if the file system refuses direct access; -ENOMEM, -ENOSPC and other errors of the files. */
VV_WARN_UNUSED int probe_file(const char *dir, bool direct, size_t bytes, unsigned count,
                              double *ret_write_bps, double *ret_read_bps);

#endif
