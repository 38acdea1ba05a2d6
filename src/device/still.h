/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device on which nothing happens: every copy has been made, every event has fired, and its memory is
 * a range of addresses that nobody may touch. What is rehearsed on it takes the way of a real call up to
 * the table of operations and goes no further.
 */
#ifndef VV_DEVICE_STILL_H
#define VV_DEVICE_STILL_H

#include "device/device.h"

/* There is one, which is never closed. Any number of users. */
struct vv_device *vv_device_still(void);

#endif
