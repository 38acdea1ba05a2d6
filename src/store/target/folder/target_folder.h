/* SPDX-License-Identifier: Apache-2.0 */
/* A folder as a target: a file is synced, then renamed, and then its folder is synced. */
#ifndef VV_STORE_TARGET_FOLDER_H
#define VV_STORE_TARGET_FOLDER_H

#include "store/aio/aio.h"
#include "store/os.h"
#include "store/target/target.h"

struct vv_target_folder {
    struct vv_target base;
    const struct vv_os *os;
    int dirfd;          /* the caller's; owned only if `below` has opened it */
    bool direct;        /* copied files are opened for direct I/O */
    struct vv_aio *aio; /* of the thread that creates files: a piece is written while the next is
                         * read. NULL: one after the other */
};

void vv_target_folder_init(struct vv_target_folder *folder, const struct vv_os *os, int dirfd);

/* The working directory, for paths. */
struct vv_target *vv_target_cwd(void);

/* An open file of the caller's, for `get`. */
struct vv_target_fd {
    struct vv_target_file base;
    const struct vv_os *os;
    int fd;
};

VV_WARN_UNUSED int vv_target_fd_init(struct vv_target_fd *file, const struct vv_os *os, int fd);

#endif
