/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the backend of an address. */
#define _GNU_SOURCE
#include "store/target/target.h"

#include <fcntl.h>

#include "store/target/folder/target_folder.h"
#include "store/target/s3/target_s3.h"

int vv_target_open(const struct vv_os *os, const char *place, char *err, size_t err_bytes,
                   struct vv_target **ret_target)
{
    static const struct vv_s3_opts by_environment;
    struct vv_target_folder here;
    if (vv_s3_is_url(place))
        return vv_target_s3_open(place, &by_environment, err, err_bytes, ret_target);
    vv_target_folder_init(&here, os, AT_FDCWD);
    return here.base.ops->below(&here.base, place, NULL, ret_target);
}
