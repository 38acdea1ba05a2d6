/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of this process, without a system call: what every call of the library asks for, to
 * refuse its service in a child that fork has made.
 */
#ifndef VV_BASE_PID_H
#define VV_BASE_PID_H

#include <sys/types.h>

/* As getpid. Any thread. */
pid_t vv_pid(void);

#endif
