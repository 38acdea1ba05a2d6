/* SPDX-License-Identifier: Apache-2.0 */
/* Files of parity, and files rebuilt from it: see parity_file.h. */
#define _GNU_SOURCE
#include "store/parity/parity_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "store/store_private.h"

/* Offset in the file of a byte of its string: the header comes last. */
static uint64_t in_file(uint64_t at, uint64_t file_bytes)
{
    uint64_t behind = file_bytes - VV_CKFILE_HEADER_BYTES;
    return at < behind ? at + VV_CKFILE_HEADER_BYTES : at - behind;
}

/* ---- writing ---- */

static struct vv_ckfile_id id_of(const struct vv_parity_out *f)
{
    const struct vv_parity_layout *l = &f->layout;
    const struct vv_parity_file *me = &l->file[l->me];
    return (struct vv_ckfile_id){.rank = me->rank,
                                 .version = l->version,
                                 .generation = f->parity ? l->sum : me->generation,
                                 .run_id = me->run_id,
                                 .size = vv_parity_layout_size(l),
                                 .chunk_bytes = f->chunk};
}

static uint32_t chunks_of(const struct vv_parity_out *f)
{
    uint64_t size = vv_parity_layout_size(&f->layout);
    return (uint32_t)((size + f->chunk - 1) / f->chunk);
}

int vv_parity_out_begin(struct vv_parity_out *f, const struct vv_os *os, int dirfd, bool direct,
                        const struct vv_parity_layout *layout, bool parity)
{
    *f = (struct vv_parity_out){
        .os = os, .dirfd = dirfd, .fd = -1, .layout = *layout, .parity = parity};
    f->chunk = vv_parity_layout_chunk(layout);
    if (parity && vv_parity_layout_size(layout) / f->chunk >= UINT32_MAX)
        return -EFBIG;
    f->bytes = parity ? vv_ckfile_bytes(vv_parity_layout_size(layout), chunks_of(f), 2)
                      : layout->file[layout->me].bytes;
    f->sums = parity ? calloc(chunks_of(f), sizeof(*f->sums)) : NULL;
    if (parity && !f->sums)
        return -ENOMEM;
    struct vv_ckfile_id id = id_of(f);
    vv_ckfile_name(f->name, VV_CKFILE_COMMITTED, id.rank, id.version, id.generation);
    vv_ckfile_name(f->temp, VV_CKFILE_TEMP, id.rank, id.version, id.generation);
    f->fd = vvi_store_openat(os, dirfd, f->temp, O_RDWR | O_CREAT | O_TRUNC, direct);
    f->created = f->fd >= 0;
    int rc = f->fd >= 0 ? os->fallocate(os, f->fd, 0, f->bytes) : f->fd;
    if (rc == -EOPNOTSUPP)
        rc = 0;
    if (rc < 0)
        vv_parity_out_end(f);
    return rc;
}

int vv_parity_out_write(struct vv_parity_out *f, const void *mem, uint64_t at, uint64_t bytes)
{
    if (f->parity) {
        for (uint64_t b = 0; b < bytes; b += f->chunk)
            f->sums[(at + b) / f->chunk] =
                vv_hash64((const char *)mem + b, VV_MIN(bytes - b, (uint64_t)f->chunk));
        return vv_os_write_all(f->os, f->fd, mem, bytes, VV_CKFILE_HEADER_BYTES + at);
    }
    uint64_t behind = f->bytes - VV_CKFILE_HEADER_BYTES;
    uint64_t first = at < behind ? VV_MIN(bytes, behind - at) : bytes;
    int rc = vv_os_write_all(f->os, f->fd, mem, first, in_file(at, f->bytes));
    if (rc == 0 && first < bytes)
        rc = vv_os_write_all(f->os, f->fd, (const char *)mem + first, bytes - first, 0);
    return rc;
}

/* Writes layout, header and tail of parity. */
static int finish_parity(struct vv_parity_out *f, const char *history)
{
    const struct vv_parity_layout *l = &f->layout;
    struct vv_ckfile_id id = id_of(f);
    uint64_t at = l->k * l->segment, tail_at = vv_ckfile_tail_offset(id.size);
    const struct vv_store_region regions[2] = {{.id = 0, .bytes = at},
                                               {.id = 1, .bytes = sizeof(*l)}};
    const struct vv_store_meta meta = {2, regions};
    struct timespec now;
    char *mem;
    clock_gettime(CLOCK_REALTIME, &now);
    if (posix_memalign((void **)&mem, VV_STORE_ALIGN, f->bytes - tail_at + VV_STORE_ALIGN) != 0)
        return -ENOMEM;
    memcpy(mem, l, sizeof(*l));
    int rc = vv_parity_out_write(f, mem, at, sizeof(*l));
    struct vv_ckfile_header *header = (void *)mem;
    vv_ckfile_header_fill(header, &id, history);
    vv_ckfile_tail_fill(mem + VV_STORE_ALIGN, &id, &meta, f->sums, header->sum,
                        (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, 0);
    if (rc == 0)
        rc = vv_os_write_all(f->os, f->fd, mem, VV_CKFILE_HEADER_BYTES, 0);
    if (rc == 0)
        rc = vv_os_write_all(f->os, f->fd, mem + VV_STORE_ALIGN, f->bytes - tail_at, tail_at);
    free(mem);
    return rc;
}

/* Checks that the rebuilt file is the expected one. */
static int check_file(struct vv_parity_out *f)
{
    const struct vv_parity_file *me = &f->layout.file[f->layout.me];
    struct vv_parity_in in = {.os = f->os, .fd = f->fd, .bytes = f->bytes};
    int rc = vv_ckfile_read(f->os, f->fd, true, NULL, 0, &in.info);
    if (rc < 0)
        return rc;
    if (in.info.id.rank != me->rank || in.info.id.version != f->layout.version ||
        in.info.id.generation != me->generation || in.info.id.run_id != me->run_id)
        rc = -EBADMSG;
    uint64_t end = vv_align_up(in.info.id.size, VV_STORE_ALIGN);
    for (uint64_t at = 0, n; rc == 0 && at < end; at += n) {
        void *mem;
        n = VV_MIN(VV_MAX(VV_PARITY_WINDOW, (uint64_t)in.info.id.chunk_bytes), end - at);
        rc = vv_parity_in_read(&in, at, n, 0, &mem);
        if (rc == 0)
            free(mem);
    }
    vv_ckfile_info_fini(&in.info);
    return rc;
}

int vv_parity_out_commit(struct vv_parity_out *f, const char *history)
{
    const struct vv_os *os = f->os;
    int rc = f->parity ? finish_parity(f, history) : check_file(f);
    if (rc == 0)
        rc = os->fsync(os, f->fd);
    if (rc == 0)
        rc = os->rename(os, f->dirfd, f->temp, f->name, true);
    if (rc == 0) {
        f->created = false;
        rc = os->fsync(os, f->dirfd);
    }
    return rc;
}

void vv_parity_out_end(struct vv_parity_out *f)
{
    if (f->os && f->fd >= 0)
        f->os->close(f->os, f->fd);
    if (f->created)
        (void)f->os->unlinkat(f->os, f->dirfd, f->temp);
    free(f->sums);
    *f = (struct vv_parity_out){.fd = -1};
}

/* ---- reading ---- */

int vv_parity_in_begin(struct vv_parity_in *f, const struct vv_os *os, int dirfd, bool direct,
                       bool header, uint32_t rank, uint64_t version, uint64_t generation)
{
    char name[VV_CKFILE_NAME_MAX];
    *f = (struct vv_parity_in){.os = os, .fd = -1};
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, rank, version, generation);
    f->fd = vvi_store_openat(os, dirfd, name, O_RDONLY, direct);
    if (f->fd < 0)
        return f->fd;
    int rc = vv_ckfile_read(os, f->fd, header, NULL, 0, &f->info);
    if (rc == 0 && (f->info.id.rank != rank || f->info.id.version != version ||
                    f->info.id.generation != generation))
        rc = -EBADMSG;
    f->bytes = vv_ckfile_bytes(f->info.id.size, f->info.nchunks, f->info.nregions);
    if (rc < 0)
        vv_parity_in_end(f);
    return rc;
}

void vv_parity_in_end(struct vv_parity_in *f)
{
    if (f->os && f->fd >= 0)
        f->os->close(f->os, f->fd);
    vv_ckfile_info_fini(&f->info);
    *f = (struct vv_parity_in){.fd = -1};
}

/* Reads data from byte `at` on into `to`: reads and verifies whole chunks. */
static int read_data(struct vv_parity_in *f, char *to, uint64_t at, uint64_t bytes)
{
    uint64_t chunk = f->info.id.chunk_bytes, size = f->info.id.size;
    uint64_t from = at / chunk * chunk, end = VV_MIN(vv_align_up(at + bytes, chunk), size);
    uint64_t n = end > from ? end - from : 0, whole = vv_align_up(n, VV_STORE_ALIGN);
    char *mem = to;
    bool exact = from == at && whole == bytes;
    if (n == 0)
        return -EINVAL;
    if (!exact && posix_memalign((void **)&mem, VV_STORE_ALIGN, whole) != 0)
        return -ENOMEM;
    int rc = vv_os_read_all(f->os, f->fd, mem, whole, VV_CKFILE_HEADER_BYTES + from);
    if (rc == -ENODATA || (rc == 0 && !vv_ckfile_chunks_ok(&f->info, mem, from, n)))
        rc = -EBADMSG;
    if (rc == 0) {
        memset(mem + n, 0, whole - n); /* not covered by a checksum */
        if (!exact)
            memcpy(to, mem + (at - from), bytes);
    }
    if (!exact)
        free(mem);
    return rc;
}

int vv_parity_in_read(struct vv_parity_in *f, uint64_t at, uint64_t bytes, size_t lead,
                      void **ret_mem)
{
    uint64_t data = vv_align_up(f->info.id.size, VV_STORE_ALIGN);
    uint64_t first = at < data ? VV_MIN(bytes, data - at) : 0;
    char *mem;
    int rc = 0;
    if (bytes == 0 || at % VV_STORE_ALIGN != 0 || bytes % VV_STORE_ALIGN != 0 || at > f->bytes ||
        bytes > f->bytes - at)
        return -EINVAL;
    if (posix_memalign((void **)&mem, VV_STORE_ALIGN, lead + bytes) != 0)
        return -ENOMEM;
    memset(mem, 0, lead);
    if (first > 0)
        rc = read_data(f, mem + lead, at, first);
    /* Tables and header, which were verified at opening. */
    for (uint64_t done = first; rc == 0 && done < bytes;) {
        uint64_t from = in_file(at + done, f->bytes), n = bytes - done;
        if (from != 0)
            n = VV_MIN(n, f->bytes - from);
        rc = vv_os_read_all(f->os, f->fd, mem + lead + done, n, from);
        done += n;
    }
    if (rc < 0) {
        free(mem);
        return rc == -ENODATA ? -EBADMSG : rc;
    }
    *ret_mem = mem;
    return 0;
}

int vv_parity_in_layout(struct vv_parity_in *f, struct vv_parity_layout *ret_layout)
{
    struct vv_parity_layout *l;
    uint64_t size = f->info.id.size;
    void *mem;
    if (size < sizeof(*l) || size % VV_STORE_ALIGN != 0)
        return -EBADMSG;
    int rc = vv_parity_in_read(f, size - sizeof(*l), sizeof(*l), 0, &mem);
    if (rc < 0)
        return rc;
    l = mem;
    if (!vv_parity_layout_ok(l, sizeof(*l)) || vv_parity_layout_size(l) != size ||
        l->sum != f->info.id.generation || l->version != f->info.id.version ||
        l->file[l->me].rank != f->info.id.rank)
        rc = -EBADMSG;
    else
        *ret_layout = *l;
    free(mem);
    return rc;
}
