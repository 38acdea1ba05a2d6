/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of options for the tool, without opening a context. */
#ifndef VV_CKPT_OPTIONS_H
#define VV_CKPT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

/* Checks the settings of the environment as varve_open would: 0, or -EINVAL or -ENOTSUP with a text.
 * Nothing is opened, created or searched for. */
VV_WARN_UNUSED int vv_ckpt_check_environment(char *err, size_t err_bytes);

/* The processors of the threads of a context opened now, by the settings of the environment:
 * as text; `ret_shared`: they share the processors of the application. May take about 40 ms. */
VV_WARN_UNUSED int vv_ckpt_helper_cores(char *text, size_t size, bool *ret_shared);

#endif
