/* SPDX-License-Identifier: Apache-2.0 */
/* Files of parity, and files rebuilt from it. Writing: temporary name, fsync, rename and fsync of the folder, as for
 * every file. Reading: ranges of both, verified. A file belongs to one thread at a time. */
#ifndef VV_STORE_PARITY_FILE_H
#define VV_STORE_PARITY_FILE_H

#include "store/files/ckfile.h"
#include "store/parity/parity_make.h"

/* A file being written, in the order of its data or its string. */
struct vv_parity_out {
    const struct vv_os *os;
    int dirfd, fd; /* -1: not open; dirfd is the caller's */
    char name[VV_CKFILE_NAME_MAX], temp[VV_CKFILE_NAME_MAX];
    struct vv_parity_layout layout;
    bool parity, created;
    uint64_t bytes; /* of the file */
    uint64_t *sums;
    uint32_t chunk;
};

/* On failure vv_parity_out_end need not be called. */
VV_WARN_UNUSED int vv_parity_out_begin(struct vv_parity_out *f, const struct vv_os *os, int dirfd,
                                       bool direct, const struct vv_parity_layout *layout,
                                       bool parity);
/* Writes a window as vv_parity_make_window returns it. */
VV_WARN_UNUSED int vv_parity_out_write(struct vv_parity_out *f, const void *mem, uint64_t at,
                                       uint64_t bytes);
/* Writes the rest, verifies a rebuilt file, and commits. A file under the name is replaced. */
VV_WARN_UNUSED int vv_parity_out_commit(struct vv_parity_out *f, const char *history);
/* Removes the file if it was not committed. Accepts a zeroed structure. */
void vv_parity_out_end(struct vv_parity_out *f);

/* A file being read, under its committed name. */
struct vv_parity_in {
    const struct vv_os *os;
    int fd; /* -1: none */
    struct vv_ckfile_info info;
    uint64_t bytes;
};

/* -EBADMSG: it is damaged. `header`: verify the header too, before any of it is sent. On failure vv_parity_in_end
 * need not be called. */
VV_WARN_UNUSED int vv_parity_in_begin(struct vv_parity_in *f, const struct vv_os *os, int dirfd,
                                      bool direct, bool header, uint32_t rank, uint64_t version,
                                      uint64_t generation);
/* Reads bytes of the string, or of the data if it is parity, in multiples of 4 KiB, into memory for free(), 4 KiB
 * aligned, after `lead` bytes. Chunks are verified. */
VV_WARN_UNUSED int vv_parity_in_read(struct vv_parity_in *f, uint64_t at, uint64_t bytes,
                                     size_t lead, void **ret_mem);
/* Reads the layout of the parity. */
VV_WARN_UNUSED int vv_parity_in_layout(struct vv_parity_in *f, struct vv_parity_layout *ret_layout);
void vv_parity_in_end(struct vv_parity_in *f);

#endif
