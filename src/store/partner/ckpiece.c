/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint file in pieces.
 *
 * The sender verifies every chunk against the file's own checksums before sending, so that a damaged file never
 * spreads. The receiver gets the tables first, which have a checksum of their own, and verifies every chunk against
 * them again: transmission errors are refused. The new file has the bytes of the original and is committed as every
 * file: temporary name, fsync, rename, fsync of the folder. An existing file under the name has the same bytes, or is
 * damaged: it is replaced.
 *
 * A file belongs to one thread at a time. */
#define _GNU_SOURCE
#include "store/partner/ckpiece.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/store_private.h"

/* Bytes of data in the piece that begins at `at`. */
static uint64_t piece_bytes(const struct vv_ckfile_info *info, uint64_t at)
{
    uint64_t n = vv_align_up(VVI_PIECE_BYTES, info->id.chunk_bytes);
    return VV_MIN(n, info->id.size - at);
}

static uint64_t whole_bytes(const struct vv_ckfile_info *info)
{
    return vv_ckfile_tail_offset(info->id.size) +
           vv_ckfile_tail_bytes(info->nchunks, info->nregions);
}

/* ---- out ---- */

int vvi_outfile_begin(struct vvi_outfile *f, const struct vv_os *os, int dirfd, bool direct,
                      const struct vv_ckfile_id *id)
{
    char name[VV_CKFILE_NAME_MAX];
    *f = (struct vvi_outfile){.os = os, .fd = -1};
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, id->rank, id->version, id->generation);
    f->fd = vvi_store_openat(os, dirfd, name, O_RDONLY, direct);
    if (f->fd < 0)
        return f->fd;
    int rc = vv_ckfile_read(os, f->fd, true, NULL, 0, &f->info);
    if (rc == 0 && (f->info.id.rank != id->rank || f->info.id.version != id->version ||
                    f->info.id.generation != id->generation))
        rc = -EBADMSG;
    if (rc < 0)
        vvi_outfile_end(f);
    return rc;
}

int vvi_outfile_tables(struct vvi_outfile *f, size_t lead, void **ret_mem, size_t *ret_bytes)
{
    const struct vv_ckfile_info *info = &f->info;
    const struct vv_store_meta meta = {info->nregions, info->regions};
    uint64_t tail_bytes = vv_ckfile_tail_bytes(info->nchunks, info->nregions);
    size_t bytes = lead + VV_CKFILE_HEADER_BYTES + tail_bytes;
    void *mem;
    if (posix_memalign(&mem, VV_STORE_ALIGN, bytes) != 0)
        return -ENOMEM;
    memset(mem, 0, lead);
    struct vv_ckfile_header *header = (void *)((char *)mem + lead);
    vv_ckfile_header_fill(header, &info->id, info->history);
    vv_ckfile_tail_fill((char *)header + VV_CKFILE_HEADER_BYTES, &info->id, &meta, info->sums,
                        header->sum, info->commit_time_ns, info->unsynced_boot);
    *ret_mem = mem;
    *ret_bytes = bytes;
    return 0;
}

int vvi_outfile_next(struct vvi_outfile *f, size_t lead, void **ret_mem, size_t *ret_bytes,
                     uint64_t *ret_offset)
{
    uint64_t n = piece_bytes(&f->info, f->at), whole = vv_align_up(n, VV_STORE_ALIGN);
    void *mem;
    if (n == 0)
        return -ENODATA;
    if (posix_memalign(&mem, VV_STORE_ALIGN, lead + whole) != 0)
        return -ENOMEM;
    char *data = (char *)mem + lead;
    memset(mem, 0, lead);
    int rc = vv_os_read_all(f->os, f->fd, data, whole, VV_CKFILE_HEADER_BYTES + f->at);
    if (rc == -ENODATA || (rc == 0 && !vv_ckfile_chunks_ok(&f->info, data, f->at, n)))
        rc = -EBADMSG;
    if (rc < 0) {
        free(mem);
        return rc;
    }
    memset(data + n, 0, whole - n);
    *ret_mem = mem;
    *ret_bytes = lead + whole;
    *ret_offset = f->at;
    f->at += n;
    return 0;
}

bool vvi_outfile_over(const struct vvi_outfile *f)
{
    return f->at == f->info.id.size;
}

void vvi_outfile_end(struct vvi_outfile *f)
{
    if (f->os && f->fd >= 0)
        f->os->close(f->os, f->fd);
    vv_ckfile_info_fini(&f->info);
    *f = (struct vvi_outfile){.fd = -1};
}

/* ---- in ---- */

int vvi_piece_about(const void *tables, size_t bytes, struct vv_ckfile_id *ret_id,
                    char history[VV_CKFILE_HISTORY_MAX + 1], uint64_t *ret_file_bytes)
{
    const struct vv_ckfile_header *h = tables;
    if (bytes <= VV_CKFILE_HEADER_BYTES || bytes % VV_STORE_ALIGN != 0 ||
        memcmp(h->magic, VV_CKFILE_HEADER_MAGIC, sizeof(h->magic)) != 0 ||
        h->sum != vv_hash64(h, offsetof(struct vv_ckfile_header, sum)) ||
        h->format != VV_CKFILE_FORMAT || h->size > INT64_MAX ||
        !memchr(h->history, 0, VV_CKFILE_HISTORY_MAX + 1) || !vv_files_name_ok(h->history))
        return -EBADMSG;
    *ret_id = (struct vv_ckfile_id){.version = h->version,
                                    .generation = h->generation,
                                    .run_id = h->run_id,
                                    .size = h->size,
                                    .rank = h->rank,
                                    .chunk_bytes = h->chunk_bytes};
    memcpy(history, h->history, strlen(h->history) + 1);
    *ret_file_bytes = vv_ckfile_tail_offset(h->size) + (bytes - VV_CKFILE_HEADER_BYTES);
    return 0;
}

/* Allocates blocks and writes header and tables; then reads them back with all checks of a file. */
static int infile_fill(struct vvi_infile *f, const void *tables, size_t bytes)
{
    const struct vv_os *os = f->os;
    uint64_t tail_at = f->file_bytes - (bytes - VV_CKFILE_HEADER_BYTES);
    int rc = os->fallocate(os, f->fd, 0, f->file_bytes); /* finds a full disk now */
    if (rc == 0 || rc == -EOPNOTSUPP)
        rc = vv_os_write_all(os, f->fd, tables, VV_CKFILE_HEADER_BYTES, 0);
    if (rc == 0)
        rc = vv_os_write_all(os, f->fd, (const char *)tables + VV_CKFILE_HEADER_BYTES,
                             bytes - VV_CKFILE_HEADER_BYTES, tail_at);
    if (rc == 0)
        rc = vv_ckfile_read(os, f->fd, true, NULL, 0, &f->info);
    if (rc == 0 && whole_bytes(&f->info) != f->file_bytes)
        rc = -EBADMSG;
    return rc;
}

int vvi_infile_begin(struct vvi_infile *f, const struct vv_os *os, int dirfd, bool direct,
                     const void *tables, size_t bytes)
{
    struct vv_ckfile_id id;
    char history[VV_CKFILE_HISTORY_MAX + 1];
    *f = (struct vvi_infile){.os = os, .dirfd = dirfd, .fd = -1};
    int rc = vvi_piece_about(tables, bytes, &id, history, &f->file_bytes);
    if (rc < 0)
        return rc;
    vv_ckfile_name(f->name, VV_CKFILE_COMMITTED, id.rank, id.version, id.generation);
    vv_ckfile_name(f->temp, VV_CKFILE_TEMP, id.rank, id.version, id.generation);
    f->fd = vvi_store_openat(os, dirfd, f->temp, O_RDWR | O_CREAT | O_TRUNC, direct);
    if (f->fd < 0)
        return f->fd;
    f->created = true;
    rc = infile_fill(f, tables, bytes);
    if (rc < 0)
        vvi_infile_end(f);
    return rc;
}

int vvi_infile_data(struct vvi_infile *f, uint64_t offset, const void *mem, size_t bytes)
{
    uint64_t n = piece_bytes(&f->info, f->at);
    if (n == 0 || offset != f->at || bytes != vv_align_up(n, VV_STORE_ALIGN) ||
        !vv_ckfile_chunks_ok(&f->info, mem, offset, n))
        return -EBADMSG;
    int rc = vv_os_write_all(f->os, f->fd, mem, bytes, VV_CKFILE_HEADER_BYTES + offset);
    if (rc == 0)
        f->at += n;
    return rc;
}

bool vvi_infile_over(const struct vvi_infile *f)
{
    return f->at == f->info.id.size;
}

int vvi_infile_commit(struct vvi_infile *f)
{
    const struct vv_os *os = f->os;
    int rc = vvi_infile_over(f) ? os->fsync(os, f->fd) : -EINVAL;
    if (rc == 0)
        rc = os->rename(os, f->dirfd, f->temp, f->name, true);
    if (rc == 0) {
        f->created = false;
        rc = os->fsync(os, f->dirfd);
    }
    return rc;
}

void vvi_infile_end(struct vvi_infile *f)
{
    if (f->os && f->fd >= 0)
        f->os->close(f->os, f->fd);
    if (f->created)
        (void)f->os->unlinkat(f->os, f->dirfd, f->temp);
    vv_ckfile_info_fini(&f->info);
    *f = (struct vvi_infile){.fd = -1};
}
