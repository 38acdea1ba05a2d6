/* SPDX-License-Identifier: Apache-2.0 */
/* Copying checkpoint files, verified.
 *
 * The copy has the bytes of the original: header and tables are laid out again from what the
 * original's say, after their checksums were found right, and every chunk is checked between
 * reading and writing. So a damaged file never spreads, and a copy is as good as the original for
 * repairing it.
 *
 * The copy is committed as every file is: temporary name, fsync, rename, fsync of the folder. A file
 * already there under the final name is one with the same bytes, or a damaged one of them: it is
 * replaced.
 *
 * A wrong chunk of an otherwise good file is mended in place. Should that be cut off, the chunk is as
 * wrong as it was, which its checksum tells. */
#define _GNU_SOURCE
#include "store/remote/ckcopy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "store/store_private.h"

enum { STEP_BYTES = 4 << 20 };

static int create_target(struct vvi_copy *c)
{
    const struct vv_os *os = c->os;
    c->dst = vvi_store_openat(os, c->dst_dirfd, c->temp, O_RDWR | O_CREAT | O_TRUNC, c->dst_direct);
    if (c->dst < 0)
        return c->dst;
    c->created = true;
    uint64_t bytes = vv_ckfile_tail_offset(c->info.id.size) +
                     vv_ckfile_tail_bytes(c->info.nchunks, c->info.nregions);
    /* A full folder shows now. */
    int rc = os->fallocate(os, c->dst, 0, bytes);
    return rc == -EOPNOTSUPP ? 0 : rc;
}

static int alloc_buffers(struct vvi_copy *c)
{
    c->buf_bytes = VV_MAX((size_t)c->info.id.chunk_bytes, (size_t)STEP_BYTES);
    for (int i = 0; i < (c->aio != NULL ? 2 : 1); i++) {
        void *buf;
        if (posix_memalign(&buf, VV_STORE_ALIGN, c->buf_bytes) != 0)
            return -ENOMEM;
        c->buf[i] = buf;
    }
    return 0;
}

int vvi_copy_begin(struct vvi_copy *c, const struct vv_os *os, struct vv_aio *aio, int src_dirfd,
                   bool src_direct, int dst_dirfd, bool dst_direct, const char *name)
{
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t version, generation;
    *c = (struct vvi_copy){.os = os,
                           .aio = aio,
                           .src_dirfd = src_dirfd,
                           .dst_dirfd = dst_dirfd,
                           .src_direct = src_direct,
                           .dst_direct = dst_direct,
                           .src = -1,
                           .dst = -1};
    if (!vv_ckfile_parse_name(name, &kind, &rank, &version, &generation))
        return -EINVAL;
    memcpy(c->name, name, strlen(name) + 1);
    vv_ckfile_name(c->temp, VV_CKFILE_TEMP, rank, version, generation);
    c->src = vvi_store_openat(os, src_dirfd, name, O_RDONLY, src_direct);
    int rc = c->src < 0 ? c->src : vv_ckfile_read(os, c->src, true, NULL, 0, &c->info);
    if (rc == 0 && (c->info.id.version != version || c->info.id.generation != generation ||
                    c->info.id.rank != rank))
        rc = -EBADMSG;
    if (rc == 0)
        rc = alloc_buffers(c);
    if (rc == 0)
        rc = create_target(c);
    if (rc < 0)
        vvi_copy_end(c);
    return rc;
}

/* Until the write under way has ended; what became of it. */
static int settle_write(struct vvi_copy *c)
{
    if (!c->writing)
        return 0;
    struct vv_aio_req *done;
    int n;
    while ((n = vv_aio_wait(c->aio, &done, 1, -1)) != 1)
        if (n < 0)
            vv_sleep_until_ns(vv_now_ns() + VV_AIO_REST_NS);
    c->writing = false;
    return c->req.result;
}

/* Begins to write the buffer whose turn it is, once the other one is done. */
static int write_buffer(struct vvi_copy *c, size_t bytes, uint64_t offset)
{
    char *mem = c->buf[c->turn];
    if (c->aio == NULL)
        return vv_os_write_all(c->os, c->dst, mem, bytes, offset);
    int rc = settle_write(c);
    if (rc < 0)
        return rc;
    c->iov = (struct iovec){.iov_base = mem, .iov_len = bytes};
    c->req = (struct vv_aio_req){.op = VV_AIO_WRITE,
                                 .fd = c->dst,
                                 .offset = offset,
                                 .iov = &c->iov,
                                 .niov = 1,
                                 .may_block = !c->dst_direct};
    c->writing = true;
    c->turn ^= 1;
    vv_aio_submit(c->aio, &c->req);
    vv_aio_flush(c->aio);
    return 0;
}

int vvi_copy_step(struct vvi_copy *c, uint64_t max_bytes, uint64_t *ret_bytes)
{
    const struct vv_ckfile_info *info = &c->info;
    uint64_t n = vv_align_up(VV_MAX(max_bytes, (uint64_t)1), info->id.chunk_bytes);
    n = VV_MIN(VV_MIN(n, (uint64_t)c->buf_bytes), info->id.size - c->at);
    if (n == 0) {
        *ret_bytes = 0;
        return 0;
    }
    uint64_t whole = vv_align_up(n, VV_STORE_ALIGN), offset = VV_CKFILE_HEADER_BYTES + c->at;
    char *mem = c->buf[c->turn];
    int rc = vv_os_read_all(c->os, c->src, mem, whole, offset);
    if (rc < 0)
        return rc == -ENODATA ? -EBADMSG : rc;
    if (!vv_ckfile_chunks_ok(info, mem, c->at, n))
        return -EBADMSG;
    memset(mem + n, 0, whole - n);
    rc = write_buffer(c, whole, offset);
    if (rc < 0)
        return rc;
    c->at += n;
    *ret_bytes = n;
    return 0;
}

static int write_tables(struct vvi_copy *c, struct vv_group_file *ret_file)
{
    const struct vv_ckfile_info *info = &c->info;
    const struct vv_store_meta meta = {info->nregions, info->regions};
    uint64_t tail_bytes = vv_ckfile_tail_bytes(info->nchunks, info->nregions);
    void *mem;
    if (posix_memalign(&mem, VV_STORE_ALIGN, VV_CKFILE_HEADER_BYTES + tail_bytes) != 0)
        return -ENOMEM;
    struct vv_ckfile_header *header = mem;
    char *tail = (char *)mem + VV_CKFILE_HEADER_BYTES;
    vv_ckfile_header_fill(header, &info->id, info->history);
    vv_ckfile_tail_fill(tail, &info->id, &meta, info->sums, header->sum, info->commit_time_ns, 0);
    uint64_t at = vv_ckfile_tail_offset(info->id.size);
    int rc = vv_os_write_all(c->os, c->dst, header, VV_CKFILE_HEADER_BYTES, 0);
    if (rc == 0)
        rc = vv_os_write_all(c->os, c->dst, tail, tail_bytes, at);
    *ret_file =
        (struct vv_group_file){.generation = info->id.generation, .file_bytes = at + tail_bytes};
    memcpy(&ret_file->tail_sum, tail + tail_bytes - sizeof(uint64_t), sizeof(uint64_t));
    free(mem);
    return rc;
}

int vvi_copy_commit(struct vvi_copy *c, const struct vv_group *life, struct vv_group_file *ret_file)
{
    const struct vv_os *os = c->os;
    struct vv_group_file file;
    int rc = settle_write(c);
    if (rc == 0)
        rc = write_tables(c, &file);
    if (rc == 0)
        rc = os->fsync(os, c->dst);
    if (rc == 0 && life != NULL)
        rc = vv_group_alive(life);
    if (rc == 0)
        rc = os->rename(os, c->dst_dirfd, c->temp, c->name, true);
    if (rc == 0) {
        c->created = false;
        rc = os->fsync(os, c->dst_dirfd);
    }
    if (rc == 0)
        *ret_file = file;
    return rc;
}

void vvi_copy_end(struct vvi_copy *c)
{
    const struct vv_os *os = c->os;
    (void)settle_write(c);
    if (c->src >= 0)
        os->close(os, c->src);
    if (c->dst >= 0)
        os->close(os, c->dst);
    if (c->created)
        (void)os->unlinkat(os, c->dst_dirfd, c->temp);
    vv_ckfile_info_fini(&c->info);
    free(c->buf[0]);
    free(c->buf[1]);
    c->src = c->dst = -1;
    c->created = false;
    c->buf[0] = c->buf[1] = NULL;
}

int vv_ckfile_copy(const struct vv_os *os, int src_dirfd, int dst_dirfd, const char *name)
{
    struct vvi_copy c;
    struct vv_group_file file;
    uint64_t moved = 1;
    int rc = vvi_copy_begin(&c, os, NULL, src_dirfd, false, dst_dirfd, false, name);
    if (rc < 0)
        return rc;
    while (rc == 0 && moved > 0)
        rc = vvi_copy_step(&c, STEP_BYTES, &moved);
    if (rc == 0)
        rc = vvi_copy_commit(&c, NULL, &file);
    vvi_copy_end(&c);
    return rc;
}

int vvi_copy_identify(const struct vv_os *os, int dirfd, const char *name, uint64_t *ret_run_id,
                      struct vv_group_file *ret_file)
{
    struct vv_ckfile_info info;
    struct vv_ckfile_footer footer;
    uint64_t file_bytes;
    int fd = vv_os_open_regular(os, dirfd, name, O_RDONLY);
    if (fd < 0)
        return fd;
    int rc = vv_ckfile_read(os, fd, false, NULL, 0, &info);
    if (rc == 0) {
        *ret_run_id = info.id.run_id;
        vv_ckfile_info_fini(&info);
        rc = os->file_bytes(os, fd, &file_bytes);
    }
    if (rc == 0)
        rc = vv_os_read_all(os, fd, &footer, sizeof(footer), file_bytes - sizeof(footer));
    os->close(os, fd);
    if (rc == 0)
        *ret_file = (struct vv_group_file){footer.generation, file_bytes, footer.tail_sum};
    return rc;
}

/* One checksummed chunk: rewritten if it is wrong here and right there. */
static int mend_chunk(const struct vv_os *os, int good, int bad, const struct vv_ckfile_info *info,
                      uint32_t chunk, char *mem, uint64_t *repaired)
{
    uint32_t bytes = vvi_chunk_bytes(info->id.size, info->id.chunk_bytes, chunk);
    uint64_t offset = VV_CKFILE_HEADER_BYTES + (uint64_t)chunk * info->id.chunk_bytes;
    int rc = vv_os_read_all(os, bad, mem, bytes, offset);
    if (rc == 0 && vv_hash64(mem, bytes) == info->sums[chunk])
        return 0;
    rc = vv_os_read_all(os, good, mem, bytes, offset);
    if (rc == 0 && vv_hash64(mem, bytes) != info->sums[chunk])
        rc = -EBADMSG;
    if (rc == 0)
        rc = vv_os_write_all(os, bad, mem, bytes, offset);
    if (rc == 0)
        ++*repaired;
    return rc;
}

int vvi_copy_mend(const struct vv_os *os, int good_dirfd, int bad_dirfd, const char *name,
                  uint64_t from, uint64_t to, uint64_t *ret_repaired)
{
    struct vv_ckfile_info info = {0}, other = {0};
    uint64_t repaired = 0;
    int bad = -1, good = vv_os_open_regular(os, good_dirfd, name, O_RDONLY);
    int rc = good < 0 ? good : vv_ckfile_read(os, good, false, NULL, 0, &info);
    if (rc == 0) {
        bad = vv_os_open_regular(os, bad_dirfd, name, O_RDWR);
        rc = bad < 0 ? bad : vv_ckfile_read(os, bad, false, NULL, 0, &other);
    }
    if (rc == 0 && (other.id.run_id != info.id.run_id || other.id.size != info.id.size ||
                    other.id.chunk_bytes != info.id.chunk_bytes ||
                    memcmp(other.sums, info.sums, info.nchunks * sizeof(uint64_t)) != 0))
        rc = -EBADMSG;
    char *mem = rc == 0 ? malloc(info.id.chunk_bytes) : NULL;
    if (rc == 0 && mem == NULL)
        rc = -ENOMEM;
    for (uint64_t at = from; rc == 0 && at < VV_MIN(to, info.id.size);) {
        uint32_t chunk = (uint32_t)(at / info.id.chunk_bytes);
        rc = mend_chunk(os, good, bad, &info, chunk, mem, &repaired);
        at = ((uint64_t)chunk + 1) * info.id.chunk_bytes;
    }
    if (rc == 0 && repaired > 0)
        rc = os->fsync(os, bad);
    free(mem);
    if (good >= 0)
        os->close(os, good);
    if (bad >= 0)
        os->close(os, bad);
    vv_ckfile_info_fini(&info);
    vv_ckfile_info_fini(&other);
    *ret_repaired = repaired;
    return rc;
}

/* ---- one out of two ---- */

/* Opens what there is of two copies; the tables are those of the first that checks. */
static int open_both(const struct vv_os *os, const int dirfd[2], const char *name, int fd[2],
                     struct vv_ckfile_info *ret_info)
{
    int rc = -ENOENT;
    for (int i = 0; i < 2; i++) {
        fd[i] = vv_os_open_regular(os, dirfd[i], name, O_RDONLY);
        if (rc < 0 && fd[i] >= 0)
            rc = vv_ckfile_read(os, fd[i], false, NULL, 0, ret_info);
    }
    return rc;
}

/* Puts bytes [at, at + n) of the data where they belong; `first` is the byte that pages[0] begins
 * with. */
static void scatter(const char *mem, uint64_t at, uint64_t n, uint64_t first, void *const *pages,
                    uint32_t page_bytes)
{
    for (uint64_t done = 0; done < n;) {
        uint64_t place = at + done - first, in_page = place % page_bytes;
        uint64_t bytes = VV_MIN(n - done, page_bytes - in_page);
        memcpy((char *)pages[place / page_bytes] + in_page, mem + done, bytes);
        done += bytes;
    }
}

static int gather_chunk(const struct vv_os *os, const int fd[2], const struct vv_ckfile_info *info,
                        uint32_t chunk, char *mem)
{
    uint32_t bytes = vvi_chunk_bytes(info->id.size, info->id.chunk_bytes, chunk);
    uint64_t offset = VV_CKFILE_HEADER_BYTES + (uint64_t)chunk * info->id.chunk_bytes;
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0 && vv_os_read_all(os, fd[i], mem, bytes, offset) == 0 &&
            vv_hash64(mem, bytes) == info->sums[chunk])
            return 0;
    return -EBADMSG;
}

int vvi_copy_gather(const struct vv_os *os, const int dirfd[2], const char *name, uint64_t from,
                    uint64_t to, void *const *pages, uint32_t page_bytes, uint64_t *ret_bad)
{
    struct vv_ckfile_info info = {0};
    int fd[2] = {-1, -1};
    int rc = open_both(os, dirfd, name, fd, &info);
    char *mem = rc == 0 ? malloc(info.id.chunk_bytes) : NULL;
    if (rc == 0 && (mem == NULL || to > info.id.size))
        rc = mem == NULL ? -ENOMEM : -EBADMSG;
    for (uint64_t at = from; rc == 0 && at < to;) {
        uint32_t unit = info.id.chunk_bytes, chunk = (uint32_t)(at / unit);
        uint64_t begin = (uint64_t)chunk * unit, end = VV_MIN(begin + unit, to);
        rc = gather_chunk(os, fd, &info, chunk, mem);
        if (rc == 0)
            scatter(mem + (at - begin), at, end - at, from, pages, page_bytes);
        else
            *ret_bad = at;
        at = end;
    }
    free(mem);
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            os->close(os, fd[i]);
    vv_ckfile_info_fini(&info);
    return rc;
}
