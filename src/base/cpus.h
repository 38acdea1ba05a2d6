/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of processors as text. Uses no other module, because libvarve-mpi has a copy of it. */
#ifndef VV_BASE_CPUS_H
#define VV_BASE_CPUS_H

#include <sched.h>
#include <stddef.h>

#include "base/util.h"

/* Parses "0-3,8". -EINVAL. */
VV_WARN_UNUSED int vv_cpus_parse(const char *text, cpu_set_t *ret_cpus);
/* The reverse; a long text ends with "...". Returns buf. */
char *vv_cpus_format(const cpu_set_t *cpus, char *buf, size_t size);

#endif
