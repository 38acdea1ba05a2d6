/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether files and folders are this user's alone. The cache is believed because of where it lies: another user who
 * could put a file, a link or a folder in its place would decide what programs read.
 *
 * Trusted are this user and root. In a user namespace, so is the owner whose number is not mapped: root of the
 * machine looks like that there.
 *
 * Threads: any. The error is always -EPERM, with a text: what is wrong, what was expected, what to do.
 */
#ifndef VV_DATASET_OURS_H
#define VV_DATASET_OURS_H

#include <stddef.h>

#include "base/util.h"

/* Every folder on the way to `path`, and behind links on it: it belongs to somebody trusted, and others cannot write
 * to it, or only with the sticky bit, which keeps them from replacing what is not theirs. A group may write if it is
 * root's (0). What does not exist is not looked at; `path` itself is not either. */
VV_WARN_UNUSED int vv_ours_parents(const char *path, char *err, size_t err_bytes);

/* An open folder: it is this user's, and others cannot write to it. */
VV_WARN_UNUSED int vv_ours_folder(int fd, const char *path, char *err, size_t err_bytes);

/* An open file: a regular one of this user, and others cannot write to it. */
VV_WARN_UNUSED int vv_ours_file(int fd, const char *path, char *err, size_t err_bytes);

#endif
