/* SPDX-License-Identifier: Apache-2.0 */
/* What the tool wants to know about options without opening a context. */
#ifndef VV_CKPT_OPTIONS_H
#define VV_CKPT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

/* What varve_open would answer to the settings of the environment, and why: 0, -EINVAL or -ENOTSUP.
 * Nothing is opened, created or looked for. */
VV_WARN_UNUSED int vv_ckpt_check_environment(char *err, size_t err_bytes);

/* Where the threads of a context opened here and now would run, by the settings of the environment:
 * as text, and whether they would share the processors of the application. May take some 40 ms. */
VV_WARN_UNUSED int vv_ckpt_helper_cores(char *text, size_t size, bool *ret_shared);

#endif
