/* SPDX-License-Identifier: Apache-2.0 */
/* What the tool wants to know about options without opening a context. */
#ifndef VV_CKPT_OPTIONS_H
#define VV_CKPT_OPTIONS_H

#include <stddef.h>

#include "base/util.h"

/* What varve_open would answer to the settings of the environment, and why: 0, -EINVAL or -ENOTSUP.
 * Nothing is opened, created or looked for. */
VV_WARN_UNUSED int vv_ckpt_check_environment(char *err, size_t err_bytes);

#endif
