/* SPDX-License-Identifier: Apache-2.0 */
/* A prefix of a bucket as a target: names are keys below it. */
#ifndef VV_STORE_TARGET_S3_H
#define VV_STORE_TARGET_S3_H

#include "s3/s3.h"
#include "store/target/target.h"

/* "s3://bucket/prefix". Makes no request. What `below` opens may outlive it. */
VV_WARN_UNUSED int vv_target_s3_open(const char *url, const struct vv_s3_opts *opts, char *err,
                                     size_t err_bytes, struct vv_target **ret_target);

/* For tests, before any target is opened: files of more than `single` bytes are uploaded in parts of `part` bytes,
 * 5 MiB or more. */
void vv_target_s3_sizes(uint64_t single, uint64_t part);

#endif
