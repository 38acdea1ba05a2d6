/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing the parts of a checkpoint file that are not data. Pure, except for the reads
 * through the OS table; any thread.
 *
 * A file is checked in this order: place and magic of its footer, the checksum of the whole tail, then
 * its numbers against each other and against the file's size. After that the region and checksum
 * tables may be used without bounds checks, and each chunk is checked by its checksum. No value from
 * the file is used as a size before it was bounded by the file's size. */
#define _GNU_SOURCE
#include "store/files/ckfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/store_private.h"
#include "store/target/folder/target_folder.h"

uint64_t vv_files_bytes(uint64_t size, uint32_t nregions, uint32_t page_bytes)
{
    return vv_ckfile_tail_offset(size) +
           vv_ckfile_tail_bytes(vvi_chunks(size, page_bytes), nregions);
}

bool vv_files_name_ok(const char *history)
{
    if (!history || history[0] == '\0' || history[0] == '.')
        return false;
    return strlen(history) <= VV_CKFILE_HISTORY_MAX && !strchr(history, '/');
}

/* ---- layout ---- */

void vv_ckfile_header_fill(struct vv_ckfile_header *header, const struct vv_ckfile_id *id,
                           const char *history)
{
    memset(header, 0, sizeof(*header));
    memcpy(header->magic, VV_CKFILE_HEADER_MAGIC, sizeof(header->magic));
    header->format = VV_CKFILE_FORMAT;
    header->header_bytes = VV_CKFILE_HEADER_BYTES;
    header->version = id->version;
    header->generation = id->generation;
    header->run_id = id->run_id;
    header->size = id->size;
    header->rank = id->rank;
    header->chunk_bytes = id->chunk_bytes;
    header->nchunks = vvi_chunks(id->size, id->chunk_bytes);
    snprintf(header->history, sizeof(header->history), "%s", history);
    header->sum = vv_hash64(header, offsetof(struct vv_ckfile_header, sum));
}

void vv_ckfile_tail_fill(void *tail, const struct vv_ckfile_id *id,
                         const struct vv_store_meta *meta, const uint64_t *sums,
                         uint64_t header_sum, uint64_t commit_time_ns, uint64_t unsynced_boot)
{
    uint32_t nchunks = vvi_chunks(id->size, id->chunk_bytes);
    uint64_t bytes = vv_ckfile_tail_bytes(nchunks, meta->nregions);
    size_t regions_bytes = meta->nregions * sizeof(struct vv_store_region);
    char *at = tail;
    memset(tail, 0, bytes);
    if (regions_bytes > 0)
        memcpy(at, meta->regions, regions_bytes);
    if (nchunks > 0)
        memcpy(at + regions_bytes, sums, nchunks * sizeof(uint64_t));
    struct vv_ckfile_footer *footer = (void *)(at + bytes - sizeof(*footer));
    memcpy(footer->magic, VV_CKFILE_FOOTER_MAGIC, sizeof(footer->magic));
    footer->format = VV_CKFILE_FORMAT;
    footer->rank = id->rank;
    footer->version = id->version;
    footer->generation = id->generation;
    footer->run_id = id->run_id;
    footer->size = id->size;
    footer->chunk_bytes = id->chunk_bytes;
    footer->nchunks = nchunks;
    footer->nregions = meta->nregions;
    footer->commit_time_ns = commit_time_ns;
    footer->tail_bytes = bytes;
    footer->unsynced_boot = unsynced_boot;
    footer->header_sum = header_sum;
    footer->tail_sum = vv_hash64(tail, bytes - sizeof(footer->tail_sum));
}

/* ---- names ---- */

void vv_ckfile_name(char name[VV_CKFILE_NAME_MAX], enum vv_ckfile_kind kind, uint32_t rank,
                    uint64_t version, uint64_t generation)
{
    snprintf(name, VV_CKFILE_NAME_MAX, "r%" PRIu32 ".v%" PRIu64 ".g%" PRIu64 ".%s", rank, version,
             generation, kind == VV_CKFILE_TEMP ? "tmp" : "ckpt");
}

/* A decimal number without leading zeros, as printf writes it. */
static bool parse_number(const char **at, char prefix, uint64_t max, uint64_t *ret_value)
{
    const char *p = *at;
    if (*p++ != prefix || *p < '0' || *p > '9' || (*p == '0' && p[1] >= '0' && p[1] <= '9'))
        return false;
    uint64_t value = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (*p != '.')
        return false;
    *at = p + 1;
    *ret_value = value;
    return true;
}

bool vv_ckfile_parse_name(const char *name, enum vv_ckfile_kind *ret_kind, uint32_t *ret_rank,
                          uint64_t *ret_version, uint64_t *ret_generation)
{
    uint64_t rank, version, generation;
    if (!parse_number(&name, 'r', UINT32_MAX, &rank) ||
        !parse_number(&name, 'v', UINT64_MAX, &version) ||
        !parse_number(&name, 'g', UINT64_MAX - 1, &generation)) /* a next one must exist */
        return false;
    bool temp = strcmp(name, "tmp") == 0;
    if (!temp && strcmp(name, "ckpt") != 0)
        return false;
    *ret_kind = temp ? VV_CKFILE_TEMP : VV_CKFILE_COMMITTED;
    *ret_rank = (uint32_t)rank;
    *ret_version = version;
    *ret_generation = generation;
    return true;
}

/* ---- reading ---- */

void vv_ckfile_info_fini(struct vv_ckfile_info *info)
{
    free(info->regions);
    free(info->sums);
    info->regions = NULL;
    info->sums = NULL;
}

bool vv_ckfile_chunks_ok(const struct vv_ckfile_info *info, const char *mem, uint64_t at,
                         uint64_t n)
{
    uint32_t unit = info->id.chunk_bytes;
    for (uint64_t done = 0; done < n; done += unit) {
        uint64_t bytes = VV_MIN((uint64_t)unit, n - done);
        if (vv_hash64(mem + done, bytes) != info->sums[(at + done) / unit])
            return false;
    }
    return true;
}

static int read_aligned(struct vv_target_file *file, uint64_t offset, uint64_t bytes,
                        void **ret_buf)
{
    void *buf;
    if (posix_memalign(&buf, VV_STORE_ALIGN, bytes) != 0)
        return -ENOMEM;
    int rc = file->ops->get(file, buf, bytes, offset);
    if (rc < 0) {
        free(buf);
        return rc == -ENODATA ? -EBADMSG : rc;
    }
    *ret_buf = buf;
    return 0;
}

static const char *footer_fault(const struct vv_ckfile_footer *f, uint64_t file_bytes)
{
    if (memcmp(f->magic, VV_CKFILE_FOOTER_MAGIC, sizeof(f->magic)) != 0)
        return "no footer at its end (truncated or overwritten)";
    if (f->format != VV_CKFILE_FORMAT)
        return "the footer has an unknown format number";
    if (!vv_is_pow2(f->chunk_bytes) || f->chunk_bytes < VV_STORE_ALIGN || f->size > file_bytes ||
        f->nchunks != vv_div_up(f->size, f->chunk_bytes) || f->tail_bytes > file_bytes ||
        f->nregions > f->tail_bytes ||
        f->tail_bytes != vv_ckfile_tail_bytes(f->nchunks, f->nregions) ||
        vv_ckfile_tail_offset(f->size) + f->tail_bytes != file_bytes)
        return "the footer contradicts itself or the file's size";
    return NULL;
}

static const char *regions_fault(const struct vv_store_region *regions, uint32_t n, uint64_t size)
{
    uint64_t left = size;
    for (uint32_t i = 0; i < n; i++) {
        if (regions[i].bytes > left)
            return "the regions are larger than the checkpoint";
        left -= regions[i].bytes;
    }
    return left > 0 ? "the regions are smaller than the checkpoint" : NULL;
}

static const char *header_fault(const struct vv_ckfile_header *h, const struct vv_ckfile_footer *f)
{
    if (memcmp(h->magic, VV_CKFILE_HEADER_MAGIC, sizeof(h->magic)) != 0)
        return "the header has no magic";
    if (h->format != VV_CKFILE_FORMAT)
        return "the header has an unknown format number";
    if (h->sum != vv_hash64(h, offsetof(struct vv_ckfile_header, sum)))
        return "the header's checksum is wrong";
    if (f && h->sum != f->header_sum)
        return "header and footer are not of the same checkpoint";
    if (!memchr(h->history, '\0', sizeof(h->history)))
        return "the header's history name has no end";
    return NULL;
}

static int info_fill(const struct vv_ckfile_footer *f, const char *tail,
                     struct vv_ckfile_info *ret_info)
{
    struct vv_ckfile_info info = {
        .id = {.version = f->version,
               .generation = f->generation,
               .run_id = f->run_id,
               .size = f->size,
               .rank = f->rank,
               .chunk_bytes = f->chunk_bytes},
        .nchunks = f->nchunks,
        .nregions = f->nregions,
        .commit_time_ns = f->commit_time_ns,
        .unsynced_boot = f->unsynced_boot,
    };
    size_t regions_bytes = f->nregions * sizeof(struct vv_store_region);
    size_t sums_bytes = f->nchunks * sizeof(uint64_t);
    info.regions = malloc(regions_bytes + 1);
    info.sums = malloc(sums_bytes + 1);
    if (!info.regions || !info.sums) {
        vv_ckfile_info_fini(&info);
        return -ENOMEM;
    }
    memcpy(info.regions, tail, regions_bytes);
    memcpy(info.sums, tail + regions_bytes, sums_bytes);
    *ret_info = info;
    return 0;
}

/* Reads and checks the tail. Most tails fit into the last block, which also holds the footer; for longer
 * ones the footer has the length. */
static int read_tail(struct vv_target_file *file, char *err, size_t err_bytes, void **ret_tail,
                     struct vv_ckfile_footer *ret_footer)
{
    uint64_t file_bytes = file->bytes;
    void *tail;
    int rc = read_aligned(file, file_bytes - VV_STORE_ALIGN, VV_STORE_ALIGN, &tail);
    if (rc < 0)
        return vvi_error(rc, err, err_bytes, "cannot read the footer: %s", strerror(-rc));
    struct vv_ckfile_footer footer;
    memcpy(&footer, (char *)tail + VV_STORE_ALIGN - sizeof(footer), sizeof(footer));
    const char *fault = footer_fault(&footer, file_bytes);
    if (!fault && footer.tail_bytes > VV_STORE_ALIGN) {
        free(tail);
        rc = read_aligned(file, file_bytes - footer.tail_bytes, footer.tail_bytes, &tail);
        if (rc < 0)
            return vvi_error(rc, err, err_bytes, "cannot read the tables: %s", strerror(-rc));
    }
    if (!fault && footer.tail_sum != vv_hash64(tail, footer.tail_bytes - sizeof(uint64_t)))
        fault = "the checksum of tables and footer is wrong";
    if (!fault)
        fault = regions_fault(tail, footer.nregions, footer.size);
    if (fault) {
        free(tail);
        return vvi_error(-EBADMSG, err, err_bytes, "%s", fault);
    }
    *ret_tail = tail;
    *ret_footer = footer;
    return 0;
}

int vv_ckfile_read(const struct vv_os *os, int fd, bool with_header, char *err, size_t err_bytes,
                   struct vv_ckfile_info *ret_info)
{
    struct vv_target_fd file;
    int rc = vv_target_fd_init(&file, os, fd);
    if (rc < 0)
        return vvi_error(rc, err, err_bytes, "cannot get the file's size: %s", strerror(-rc));
    return vv_ckfile_read_from(&file.base, with_header, err, err_bytes, ret_info);
}

int vv_ckfile_read_from(struct vv_target_file *file, bool with_header, char *err, size_t err_bytes,
                        struct vv_ckfile_info *ret_info)
{
    void *tail = NULL, *head = NULL;
    struct vv_ckfile_footer footer;
    struct vv_ckfile_info info;
    if (file->bytes < VV_CKFILE_HEADER_BYTES + VV_STORE_ALIGN || file->bytes % VV_STORE_ALIGN != 0)
        return vvi_error(-EBADMSG, err, err_bytes,
                         "%" PRIu64 " bytes is not the size of a checkpoint file", file->bytes);
    int rc = read_tail(file, err, err_bytes, &tail, &footer);
    if (rc < 0)
        return rc;
    if (with_header) {
        rc = read_aligned(file, 0, VV_CKFILE_HEADER_BYTES, &head);
        const char *fault = rc < 0 ? strerror(-rc) : header_fault(head, &footer);
        if (fault) {
            rc = vvi_error(rc < 0 ? rc : -EBADMSG, err, err_bytes, "%s", fault);
            goto out;
        }
    }
    rc = info_fill(&footer, tail, &info);
    if (rc < 0) {
        vvi_error(rc, err, err_bytes, "out of memory");
        goto out;
    }
    if (with_header)
        memcpy(info.history, ((struct vv_ckfile_header *)head)->history, sizeof(info.history));
    *ret_info = info;
out:
    free(head);
    free(tail);
    return rc;
}

/* ---- checking a whole file ---- */

struct checker {
    void (*report)(void *user, const struct vv_ckfile_problem *p);
    void *user;
    uint64_t version;
    int result;
};

static void problem(struct checker *c, int64_t region, int64_t chunk, const char *what)
{
    struct vv_ckfile_problem p = {
        .version = c->version, .region = region, .chunk = chunk, .what = what};
    c->result = -EBADMSG;
    c->report(c->user, &p);
}

/* Reports every region with bytes in the chunk. */
static void chunk_problem(struct checker *c, const struct vv_ckfile_info *info, uint32_t chunk,
                          const char *what)
{
    uint64_t begin = (uint64_t)chunk * info->id.chunk_bytes;
    uint64_t end = begin + vvi_chunk_bytes(info->id.size, info->id.chunk_bytes, chunk);
    uint64_t at = 0;
    for (uint32_t i = 0; i < info->nregions; i++) {
        uint64_t next = at + info->regions[i].bytes;
        if (at < end && next > begin)
            problem(c, info->regions[i].id, chunk, what);
        at = next;
    }
}

static int check_chunks(struct checker *c, struct vv_target_file *file,
                        const struct vv_ckfile_info *info)
{
    if (info->nchunks == 0)
        return 0;
    void *buf = malloc(info->id.chunk_bytes);
    if (!buf)
        return -ENOMEM;
    for (uint32_t i = 0; i < info->nchunks; i++) {
        uint32_t bytes = vvi_chunk_bytes(info->id.size, info->id.chunk_bytes, i);
        uint64_t offset = VV_CKFILE_HEADER_BYTES + (uint64_t)i * info->id.chunk_bytes;
        int rc = file->ops->get(file, buf, bytes, offset);
        if (rc < 0)
            chunk_problem(c, info, i, strerror(-rc));
        else if (vv_hash64(buf, bytes) != info->sums[i])
            chunk_problem(c, info, i, "the data's checksum is wrong");
    }
    free(buf);
    return 0;
}

/* Without the tail, the header may still tell which file it was. */
static void check_header_alone(struct checker *c, struct vv_target_file *file)
{
    void *head;
    if (read_aligned(file, 0, VV_CKFILE_HEADER_BYTES, &head) < 0) {
        problem(c, -1, -1, "too short to have a header");
        return;
    }
    const char *fault = header_fault(head, NULL);
    if (fault)
        problem(c, -1, -1, fault);
    free(head);
}

static void check_name(struct checker *c, const char *path, const struct vv_ckfile_info *info)
{
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t version, generation;
    const char *base = strrchr(path, '/');
    if (!vv_ckfile_parse_name(base ? base + 1 : path, &kind, &rank, &version, &generation))
        return; /* a copy may have any name */
    if (rank != info->id.rank || version != info->id.version || generation != info->id.generation)
        problem(c, -1, -1, "the file's name is not that of its checkpoint");
}

int vv_ckfile_verify(struct vv_target *target, const char *path,
                     void (*report)(void *user, const struct vv_ckfile_problem *p), void *user,
                     struct vv_ckfile_info *ret_info)
{
    struct checker c = {.report = report, .user = user};
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t generation;
    const char *base = strrchr(path, '/');
    if (!vv_ckfile_parse_name(base ? base + 1 : path, &kind, &rank, &c.version, &generation))
        c.version = 0;
    struct vv_target_file *file;
    int rc = target->ops->open(target, path, VV_TARGET_READ, &file);
    if (rc == -EBADMSG)
        problem(&c, -1, -1, VV_CKFILE_NOT_REGULAR);
    if (rc < 0)
        return rc;
    char err[256];
    struct vv_ckfile_info info;
    rc = vv_ckfile_read_from(file, false, err, sizeof(err), &info);
    if (rc == -EBADMSG) {
        problem(&c, -1, -1, err);
        check_header_alone(&c, file);
    }
    if (rc < 0) {
        vv_target_end(file);
        return rc;
    }
    c.version = info.id.version;
    struct vv_ckfile_info full;
    rc = vv_ckfile_read_from(file, true, err, sizeof(err), &full);
    if (rc == -EBADMSG)
        problem(&c, -1, -1, err);
    if (rc == 0) {
        vv_ckfile_info_fini(&info);
        info = full;
    }
    check_name(&c, path, &info);
    if (rc == 0 || rc == -EBADMSG)
        rc = check_chunks(&c, file, &info);
    vv_target_end(file);
    rc = rc < 0 ? rc : c.result;
    if (rc == 0 && ret_info)
        *ret_info = info;
    else
        vv_ckfile_info_fini(&info);
    return rc;
}
