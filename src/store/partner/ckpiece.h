/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint file in pieces: taken apart in one process and put together in another, verified on
 * both sides. Inside src/store. */
#ifndef VV_STORE_CKPIECE_H
#define VV_STORE_CKPIECE_H

#include "store/files/ckfile.h"

/* Bytes of data in one piece, unless a single chunk is larger. */
#define VVI_PIECE_BYTES ((size_t)1 << 20)

/* A file being sent. */
struct vvi_outfile {
    const struct vv_os *os;
    int fd; /* -1: not open */
    struct vv_ckfile_info info;
    uint64_t at; /* bytes of data handed out */
};

/* Opens a committed file. -EBADMSG: its tables are damaged. On failure vvi_outfile_end need not be called. */
int vvi_outfile_begin(struct vvi_outfile *f, const struct vv_os *os, int dirfd, bool direct,
                      const struct vv_ckfile_id *id);
/* The first piece, header and tables: memory for free(), 4 KiB aligned, that begins with `lead` bytes for
 * the caller; *ret_bytes includes them. */
int vvi_outfile_tables(struct vvi_outfile *f, size_t lead, void **ret_mem, size_t *ret_bytes);
/* The next piece of data in the same form, padded to 4 KiB with zeros, after its checksums were verified.
 * -ENODATA: none left. */
int vvi_outfile_next(struct vvi_outfile *f, size_t lead, void **ret_mem, size_t *ret_bytes,
                     uint64_t *ret_offset);
bool vvi_outfile_over(const struct vvi_outfile *f);
/* Accepts a zeroed structure. */
void vvi_outfile_end(struct vvi_outfile *f);

/* A file being received. */
struct vvi_infile {
    const struct vv_os *os;
    int dirfd, fd; /* -1: not open; dirfd is the caller's */
    char name[VV_CKFILE_NAME_MAX], temp[VV_CKFILE_NAME_MAX];
    struct vv_ckfile_info info;
    uint64_t at, file_bytes;
    bool created;
};

/* Identity of a file, from its first piece. -EBADMSG: the piece is invalid. */
int vvi_piece_about(const void *tables, size_t bytes, struct vv_ckfile_id *ret_id,
                    char history[VV_CKFILE_HISTORY_MAX + 1], uint64_t *ret_file_bytes);
/* Creates the file under its temporary name. On failure vvi_infile_end need not be called. */
int vvi_infile_begin(struct vvi_infile *f, const struct vv_os *os, int dirfd, bool direct,
                     const void *tables, size_t bytes);
/* Writes the next piece. -EBADMSG: its checksums do not match the tables. */
int vvi_infile_data(struct vvi_infile *f, uint64_t offset, const void *mem, size_t bytes);
bool vvi_infile_over(const struct vvi_infile *f);
/* fsync, rename, fsync of the folder. -EINVAL: pieces are missing. */
int vvi_infile_commit(struct vvi_infile *f);
/* Removes the file if it was not committed. Accepts a zeroed structure. */
void vvi_infile_end(struct vvi_infile *f);

#endif
