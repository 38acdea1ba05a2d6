/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that files and folders belong to this user alone. The cache trusts its files because of their place: another
 * user who could put a file, a link or a folder there would decide what programs read.
 *
 * Trusted users are this user and root. In a user namespace, the owner whose number is not mapped is trusted too: the
 * machine's root appears there under that number.
 *
 * Threads: any. The error is always -EPERM, with a text: the problem, the expectation, and a remedy.
 */
#ifndef VV_DATASET_OURS_H
#define VV_DATASET_OURS_H

#include <stddef.h>

#include "base/util.h"

/* Checks every folder on the way to `path`, including those behind links: it belongs to a trusted user, and others
 * cannot write to it, or only with the sticky bit, which prevents them from replacing files of others. A group may
 * write if it is root's (0). Missing folders and `path` itself are not checked. */
VV_WARN_UNUSED int vv_ours_parents(const char *path, char *err, size_t err_bytes);

/* Checks an open folder: it belongs to this user, and others cannot write to it. */
VV_WARN_UNUSED int vv_ours_folder(int fd, const char *path, char *err, size_t err_bytes);

/* Checks an open file: a regular one of this user, and others cannot write to it. */
VV_WARN_UNUSED int vv_ours_file(int fd, const char *path, char *err, size_t err_bytes);

#endif
