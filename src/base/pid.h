/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process id without a system call. Every call of the library checks it, to fail in a forked child.
 */
#ifndef VV_BASE_PID_H
#define VV_BASE_PID_H

#include <sys/types.h>

/* Same as getpid. Any thread. */
pid_t vv_pid(void);

#endif
