/* SPDX-License-Identifier: Apache-2.0 */
/* Copying checkpoint files, verified.
 *
 * The copy has the bytes of the original: header and tables are laid out again from the original's, after their
 * checksums were verified, and every chunk is verified between reading and writing. So a damaged file never
 * spreads, and a copy can repair the original.
 *
 * The target commits the copy in its own way. An existing file under the name has the same bytes, or is damaged: it
 * is replaced.
 *
 * A wrong chunk of an otherwise good file is repaired in place. If that is interrupted, the chunk is still wrong,
 * and its checksum shows it. */
#define _GNU_SOURCE
#include "store/remote/ckcopy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/store_private.h"

enum { STEP_BYTES = 4 << 20 };

static int alloc_buffers(struct vvi_copy *c)
{
    c->buf_bytes = VV_MAX((size_t)c->info.id.chunk_bytes, (size_t)STEP_BYTES);
    for (int i = 0; i < 2; i++) {
        void *buf;
        if (posix_memalign(&buf, VV_STORE_ALIGN, c->buf_bytes) != 0)
            return -ENOMEM;
        c->buf[i] = buf;
    }
    return 0;
}

static int write_header(struct vvi_copy *c)
{
    struct vv_ckfile_header *header = (struct vv_ckfile_header *)c->buf[c->turn];
    c->turn ^= 1;
    vv_ckfile_header_fill(header, &c->info.id, c->info.history);
    c->header_sum = header->sum;
    return c->dst->ops->put(c->dst, header, VV_CKFILE_HEADER_BYTES, 0);
}

int vvi_copy_begin(struct vvi_copy *c, struct vv_target *from, struct vv_target *to,
                   const char *name)
{
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t version, generation;
    char temp[VV_CKFILE_NAME_MAX];
    *c = (struct vvi_copy){0};
    if (!vv_ckfile_parse_name(name, &kind, &rank, &version, &generation))
        return -EINVAL;
    int rc = from->ops->open(from, name, VV_TARGET_STREAM, &c->src);
    if (rc < 0)
        return rc;
    rc = vv_ckfile_read_from(c->src, true, NULL, 0, &c->info);
    if (rc == 0 && (c->info.id.version != version || c->info.id.generation != generation ||
                    c->info.id.rank != rank))
        rc = -EBADMSG;
    if (rc == 0)
        rc = alloc_buffers(c);
    vv_ckfile_name(temp, VV_CKFILE_TEMP, rank, version, generation);
    if (rc == 0)
        rc = to->ops->create(to, name, temp, c->src->bytes, &c->dst);
    if (rc == 0)
        rc = write_header(c);
    if (rc < 0)
        vvi_copy_end(c);
    return rc;
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
    int rc = c->src->ops->get(c->src, mem, whole, offset);
    if (rc < 0)
        return rc == -ENODATA ? -EBADMSG : rc;
    if (!vv_ckfile_chunks_ok(info, mem, c->at, n))
        return -EBADMSG;
    memset(mem + n, 0, whole - n);
    rc = c->dst->ops->put(c->dst, mem, whole, offset);
    if (rc < 0)
        return rc;
    c->turn ^= 1;
    c->at += n;
    *ret_bytes = n;
    return 0;
}

static int write_tables(struct vvi_copy *c, struct vv_group_file *ret_file)
{
    const struct vv_ckfile_info *info = &c->info;
    const struct vv_store_meta meta = {info->nregions, info->regions};
    uint64_t tail_bytes = vv_ckfile_tail_bytes(info->nchunks, info->nregions);
    uint64_t at = vv_ckfile_tail_offset(info->id.size);
    void *tail;
    if (posix_memalign(&tail, VV_STORE_ALIGN, tail_bytes) != 0)
        return -ENOMEM;
    vv_ckfile_tail_fill(tail, &info->id, &meta, info->sums, c->header_sum, info->commit_time_ns,
                        info->unsynced_boot);
    *ret_file =
        (struct vv_group_file){.generation = info->id.generation, .file_bytes = at + tail_bytes};
    memcpy(&ret_file->tail_sum, (char *)tail + tail_bytes - sizeof(uint64_t), sizeof(uint64_t));
    int rc = c->dst->ops->put(c->dst, tail, tail_bytes, at);
    if (rc == 0)
        rc = c->dst->ops->settle(c->dst);
    free(tail);
    return rc;
}

int vvi_copy_commit(struct vvi_copy *c, const struct vv_group *life, struct vv_group_file *ret_file)
{
    struct vv_group_file file;
    int rc = write_tables(c, &file);
    if (rc == 0 && life)
        rc = vv_group_alive(life);
    if (rc == 0)
        rc = c->dst->ops->commit(c->dst);
    if (rc == 0)
        *ret_file = file;
    return rc;
}

void vvi_copy_end(struct vvi_copy *c)
{
    vv_target_end(c->dst);
    vv_target_end(c->src);
    vv_ckfile_info_fini(&c->info);
    free(c->buf[0]);
    free(c->buf[1]);
    *c = (struct vvi_copy){0};
}

int vv_ckfile_copy(struct vv_target *from, struct vv_target *to, const char *name)
{
    struct vvi_copy c;
    struct vv_group_file file;
    uint64_t moved = 1;
    int rc = vvi_copy_begin(&c, from, to, name);
    while (rc == 0 && moved > 0)
        rc = vvi_copy_step(&c, STEP_BYTES, &moved);
    if (rc == 0)
        rc = vvi_copy_commit(&c, NULL, &file);
    vvi_copy_end(&c);
    return rc;
}

int vvi_copy_identify(struct vv_target *target, const char *name, uint64_t *ret_run_id,
                      struct vv_group_file *ret_file)
{
    struct vv_ckfile_info info;
    struct vv_ckfile_footer footer;
    struct vv_target_file *file;
    int rc = target->ops->open(target, name, VV_TARGET_READ, &file);
    if (rc < 0)
        return rc;
    rc = vv_ckfile_read_from(file, false, NULL, 0, &info);
    if (rc == 0) {
        *ret_run_id = info.id.run_id;
        vv_ckfile_info_fini(&info);
        rc = file->ops->get(file, &footer, sizeof(footer), file->bytes - sizeof(footer));
    }
    if (rc == 0)
        *ret_file = (struct vv_group_file){footer.generation, file->bytes, footer.tail_sum};
    vv_target_end(file);
    return rc;
}

/* Reads a chunk of a file; -EBADMSG: its checksum is wrong. */
static int get_chunk(struct vv_target_file *file, const struct vv_ckfile_info *info, uint32_t chunk,
                     char *mem)
{
    uint32_t bytes = vvi_chunk_bytes(info->id.size, info->id.chunk_bytes, chunk);
    int rc = file->ops->get(file, mem, bytes,
                            VV_CKFILE_HEADER_BYTES + (uint64_t)chunk * info->id.chunk_bytes);
    return rc == 0 && vv_hash64(mem, bytes) != info->sums[chunk] ? -EBADMSG : rc;
}

/* Rewrites one checksummed chunk if it is wrong in `bad` and right in `good`. */
static int repair_chunk(struct vv_target_file *good, struct vv_target_file *bad,
                        const struct vv_ckfile_info *info, uint32_t chunk, char *mem,
                        uint64_t *repaired)
{
    if (get_chunk(bad, info, chunk, mem) == 0)
        return 0;
    int rc = get_chunk(good, info, chunk, mem);
    if (rc == 0)
        rc = bad->ops->put(bad, mem, vvi_chunk_bytes(info->id.size, info->id.chunk_bytes, chunk),
                           VV_CKFILE_HEADER_BYTES + (uint64_t)chunk * info->id.chunk_bytes);
    if (rc == 0)
        ++*repaired;
    return rc;
}

int vvi_copy_repair(struct vv_target *good, struct vv_target *bad, const char *name, uint64_t from,
                    uint64_t to, uint64_t *ret_repaired)
{
    struct vv_ckfile_info info = {0}, other = {0};
    struct vv_target_file *right = NULL, *wrong = NULL;
    uint64_t repaired = 0;
    int rc = good->ops->open(good, name, VV_TARGET_READ, &right);
    if (rc == 0)
        rc = vv_ckfile_read_from(right, false, NULL, 0, &info);
    if (rc == 0)
        rc = bad->ops->open(bad, name, VV_TARGET_REPAIR, &wrong);
    if (rc == 0)
        rc = vv_ckfile_read_from(wrong, false, NULL, 0, &other);
    if (rc == 0 && (other.id.run_id != info.id.run_id || other.id.size != info.id.size ||
                    other.id.chunk_bytes != info.id.chunk_bytes ||
                    memcmp(other.sums, info.sums, info.nchunks * sizeof(uint64_t)) != 0))
        rc = -EBADMSG;
    char *mem = rc == 0 ? malloc(info.id.chunk_bytes) : NULL;
    if (rc == 0 && !mem)
        rc = -ENOMEM;
    for (uint64_t at = from; rc == 0 && at < VV_MIN(to, info.id.size);) {
        uint32_t chunk = (uint32_t)(at / info.id.chunk_bytes);
        rc = repair_chunk(right, wrong, &info, chunk, mem, &repaired);
        at = ((uint64_t)chunk + 1) * info.id.chunk_bytes;
    }
    if (rc == 0 && repaired > 0)
        rc = wrong->ops->settle(wrong);
    free(mem);
    vv_target_end(right);
    vv_target_end(wrong);
    vv_ckfile_info_fini(&info);
    vv_ckfile_info_fini(&other);
    *ret_repaired = repaired;
    return rc;
}

/* ---- each chunk from the better of two copies ---- */

static bool is_copy(const struct vv_ckfile_id *file, const struct vv_ckfile_id *id)
{
    return file->version == id->version && file->generation == id->generation &&
           file->run_id == id->run_id && file->size == id->size && file->rank == id->rank;
}

/* Opens the copies that exist; the tables are those of the first intact one. */
static int open_both(struct vv_target *const target[2], const struct vv_ckfile_id *id,
                     struct vv_target_file *file[2], struct vv_ckfile_info *ret_info)
{
    char name[VV_CKFILE_NAME_MAX];
    int rc = -ENOENT;
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, id->rank, id->version, id->generation);
    for (int i = 0; i < 2; i++) {
        if (target[i]->ops->open(target[i], name, VV_TARGET_READ, &file[i]) < 0 || rc == 0)
            continue;
        rc = vv_ckfile_read_from(file[i], false, NULL, 0, ret_info);
        if (rc == 0 && !is_copy(&ret_info->id, id)) {
            vv_ckfile_info_fini(ret_info);
            rc = -ENOENT;
        }
    }
    return rc;
}

/* Copies bytes [at, at + n) of the data to their pages; `first` is the byte where pages[0] begins. */
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

static int gather_chunk(struct vv_target_file *const file[2], const struct vv_ckfile_info *info,
                        uint32_t chunk, char *mem)
{
    for (int i = 0; i < 2; i++)
        if (file[i] && get_chunk(file[i], info, chunk, mem) == 0)
            return 0;
    return -EBADMSG;
}

int vvi_copy_gather(struct vv_target *const target[2], const struct vv_ckfile_id *id, uint64_t from,
                    uint64_t to, void *const *pages, uint32_t page_bytes, uint64_t *ret_bad)
{
    struct vv_ckfile_info info = {0};
    struct vv_target_file *file[2] = {NULL, NULL};
    int rc = open_both(target, id, file, &info);
    char *mem = rc == 0 ? malloc(info.id.chunk_bytes) : NULL;
    if (rc == 0 && !mem)
        rc = -ENOMEM;
    for (uint64_t at = from; rc == 0 && at < to;) {
        uint32_t unit = info.id.chunk_bytes, chunk = (uint32_t)(at / unit);
        uint64_t begin = (uint64_t)chunk * unit, end = VV_MIN(begin + unit, to);
        rc = gather_chunk(file, &info, chunk, mem);
        if (rc == 0)
            scatter(mem + (at - begin), at, end - at, from, pages, page_bytes);
        else
            *ret_bad = at;
        at = end;
    }
    free(mem);
    for (int i = 0; i < 2; i++)
        vv_target_end(file[i]);
    vv_ckfile_info_fini(&info);
    return rc;
}
