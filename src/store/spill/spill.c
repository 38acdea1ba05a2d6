/* SPDX-License-Identifier: Apache-2.0 */
/* The spill file: pages of one file that no other process can see and that ends with the process. With
 * record_files: pages of one file per record (spill_record.c).
 *
 * The checksum of the last write to each page slot is in memory. A page is read only after its write was
 * reported (the engine orders this), and no two writers share a slot, so the checksums need no lock. They
 * are in a reserved address range that costs memory only for slots that were used.
 *
 * The file grows in steps: blocks are allocated ahead of the page to be written. So a full disk is an
 * error of the write that needs the space, and no I/O ever extends the file. `lock` serialises growth. It
 * is held across fallocate, because the only other threads that take it need the same space. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/spill/spill_private.h"

#define GROW_BYTES (UINT64_C(256) << 20)

struct vv_spill {
    struct vv_store_opts opts;
    struct vvi_records *records; /* one file per record; NULL: `fd` for all. Immutable */
    int fd;                      /* -1: none */
    bool direct;
    uint32_t pages;
    uint64_t *sums; /* per page */
    size_t sums_bytes;
    struct vvi_gds_file *gds; /* the same file for device memory; NULL: none */
    struct vvi_pace pace;
    struct vv_mutex lock;
    /* Synchronization: stored under lock, loaded acquire without it. A stale value costs one look
     * under the lock. */
    _Atomic uint64_t allocated_bytes;
};

struct spill_port {
    struct vvi_port port;
    struct vv_spill *spill;
};

/* ---- the file ---- */

static int grow_locked(struct vv_spill *s, uint64_t need_bytes)
{
    const struct vv_os *os = s->opts.os;
    uint64_t have = atomic_load_explicit(&s->allocated_bytes, memory_order_relaxed);
    if (have >= need_bytes)
        return 0;
    uint64_t capacity = (uint64_t)s->pages * s->opts.page_bytes;
    uint64_t want = VV_MIN(capacity, vv_align_up(need_bytes, GROW_BYTES));
    int rc = os->fallocate(os, s->fd, have, want - have);
    if (rc == -ENOSPC && want > need_bytes) {
        /* Less than a step is left; the pages requested may still fit. */
        want = need_bytes;
        rc = os->fallocate(os, s->fd, have, want - have);
    }
    if (rc == -EOPNOTSUPP)
        rc = os->ftruncate(os, s->fd, want);
    if (rc < 0)
        return rc;
    atomic_store_explicit(&s->allocated_bytes, want, memory_order_release);
    return 0;
}

static int grow(struct vv_spill *s, uint64_t need_bytes)
{
    /* Pairs with the release in grow_locked: blocks are allocated before the size includes them. */
    if (atomic_load_explicit(&s->allocated_bytes, memory_order_acquire) >= need_bytes)
        return 0;
    vv_mutex_lock(&s->lock);
    int rc = grow_locked(s, need_bytes);
    vv_mutex_unlock(&s->lock);
    return rc;
}

static int spill_set_up(struct vv_spill *s, int dirfd, uint64_t capacity_bytes, const char *folder,
                        char *err, size_t err_bytes)
{
    const struct vv_os *os = s->opts.os;
    if (capacity_bytes == 0) {
        int rc = os->free_bytes(os, dirfd, &capacity_bytes);
        if (rc < 0)
            return vvi_error(rc, err, err_bytes, "%s: %s", folder, strerror(-rc));
    }
    uint64_t pages = capacity_bytes / s->opts.page_bytes;
    if (pages == 0)
        return vvi_error(-ENOSPC, err, err_bytes,
                         "%s: no room for one page of %u bytes: name a folder on a disk "
                         "with space, or raise local_cache",
                         folder, s->opts.page_bytes);
    s->pages = (uint32_t)VV_MIN(pages, (uint64_t)UINT32_MAX);
    int rc = vvi_store_probe(&s->opts, dirfd, folder, err, err_bytes, &s->direct);
    if (rc < 0)
        return rc;
    if (s->opts.record_files && !s->opts.gds) {
        rc = vvi_records_new(&s->opts, dirfd, s->direct, s->pages, &s->records);
        if (rc == -EOPNOTSUPP)
            vv_log(
                VV_LOG_WARNING,
                "%s: one spill file instead of one per record: the file system cannot punch holes",
                folder);
        else if (rc < 0)
            return vvi_error(rc, err, err_bytes, "%s: cannot create the spill files: %s", folder,
                             strerror(-rc));
    }
    if (!s->records)
        s->fd = vvi_store_open_unlinked(os, dirfd, s->direct);
    if (!s->records && s->fd < 0)
        return vvi_error(s->fd, err, err_bytes, "%s: cannot create the spill file: %s", folder,
                         strerror(-s->fd));
    if (s->opts.gds) {
        rc = vvi_gds_file_first(s->opts.gds, s->fd, s->direct, folder, err, err_bytes, &s->gds);
        if (rc < 0)
            return rc;
    }
    s->sums_bytes = (size_t)s->pages * sizeof(uint64_t);
    s->sums = mmap(NULL, s->sums_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->sums == MAP_FAILED) {
        s->sums = NULL;
        return vvi_error(-ENOMEM, err, err_bytes, "no address space for the spill checksums");
    }
    return 0;
}

int vv_spill_new(const char *folder, uint64_t capacity_bytes, const struct vv_store_opts *opts,
                 char *err, size_t err_bytes, struct vv_spill **ret_spill)
{
    int rc = vvi_store_opts_check(opts);
    if (rc < 0 || !folder)
        return vvi_error(-EINVAL, err, err_bytes, "malformed options");
    struct vv_spill *s = calloc(1, sizeof(*s));
    if (!s)
        return vvi_error(-ENOMEM, err, err_bytes, "out of memory");
    s->opts = *opts;
    s->fd = -1;
    vvi_pace_init(&s->pace, opts);
    vv_mutex_init(&s->lock, "spill file", VV_RANK_STORE);
    int dirfd = vvi_store_open_folder(opts->os, folder, err, err_bytes);
    if (dirfd < 0) {
        rc = dirfd;
    } else {
        rc = spill_set_up(s, dirfd, capacity_bytes, folder, err, err_bytes);
        opts->os->close(opts->os, dirfd);
    }
    if (rc < 0) {
        vv_spill_free(s);
        return rc;
    }
    *ret_spill = s;
    return 0;
}

void vv_spill_free(struct vv_spill *s)
{
    if (!s)
        return;
    vvi_records_free(s->records);
    if (s->sums)
        munmap(s->sums, s->sums_bytes);
    vvi_gds_file_remove(s->gds);
    if (s->fd >= 0)
        s->opts.os->close(s->opts.os, s->fd);
    vv_mutex_fini(&s->lock);
    vvi_pace_fini(&s->pace);
    free(s);
}

uint32_t vv_spill_pages(const struct vv_spill *s)
{
    return s->pages;
}

/* ---- its stores ---- */

static bool spill_advance(struct vvi_port *port, struct vvi_batch *b)
{
    struct vv_spill *s = ((struct spill_port *)port)->spill;
    struct vv_store_io *io = b->io;
    if (s->records)
        vvi_records_unpin(s->records, b->obj);
    if (io->status == -ENODATA) /* the file is allocated: it cannot end before the page */
        io->status = -EIO;
    if (io->status != 0 || (io->op != VV_STORE_READ && !b->gds))
        return true;
    for (uint32_t i = 0; i < io->nchunks; i++) {
        uint32_t bytes = vvi_chunk_bytes(io->size, s->opts.page_bytes, io->chunk0 + i);
        uint64_t sum = b->gds ? b->gds->sums[i] : vv_hash64(io->mem[i], bytes);
        if (io->op == VV_STORE_WRITE) {
            s->sums[io->pages[i]] = sum;
        } else if (sum != s->sums[io->pages[i]]) {
            io->status = -EBADMSG;
            io->bad_chunk = io->chunk0 + i;
            break;
        }
    }
    return true;
}

/* True if chunk i joins the request of the one before it. In a file per record it always does. */
static bool same_run(const struct vv_spill *s, const struct vv_store_io *io, uint32_t i)
{
    return i > 0 && (s->records || io->pages[i] == io->pages[i - 1] + 1) && i % VV_AIO_IOV_MAX != 0;
}

/* Submits one request for each run that is consecutive in the file. */
static void submit_runs(struct vvi_port *port, struct vv_spill *s, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    struct vv_aio_req *req = b->reqs;
    for (uint32_t i = 0; i < io->nchunks; i++) {
        b->iov[i] = vvi_io_vec(io, s->opts.page_bytes, i);
        uint64_t at = s->records ? io->chunk0 + i : io->pages[i];
        if (!same_run(s, io, i))
            *req = (struct vv_aio_req){.op = io->op == VV_STORE_READ ? VV_AIO_READ : VV_AIO_WRITE,
                                       .fd = s->records ? vvi_record_fd(b->obj) : s->fd,
                                       .offset = at * s->opts.page_bytes,
                                       .iov = &b->iov[i],
                                       .may_block = !s->direct};
        req->niov++;
        if (i + 1 == io->nchunks || !same_run(s, io, i + 1))
            vvi_batch_submit(port, b, req++);
    }
    vv_aio_flush(port->aio);
}

/* Makes room in the file for a write; opens the record's file. */
static int prepare(struct vv_spill *s, struct vvi_batch *b, uint64_t need_bytes)
{
    struct vvi_record *record = NULL;
    bool write = b->io->op == VV_STORE_WRITE;
    if (!s->records)
        return write ? grow(s, need_bytes) : 0;
    int rc = write ? vvi_records_write(s->records, b->io, &record)
                   : vvi_records_read(s->records, b->io, &record);
    b->obj = record;
    return rc;
}

static int spill_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct vvi_port *port = (struct vvi_port *)store;
    struct vv_spill *s = ((struct spill_port *)store)->spill;
    uint32_t page_bytes = s->opts.page_bytes;
    if ((io->op != VV_STORE_READ && io->op != VV_STORE_WRITE) || !io->pages ||
        !vvi_io_valid(io, page_bytes) || (io->device && !port->gds))
        return -EINVAL;
    unsigned runs = 0;
    uint64_t need = 0;
    for (uint32_t i = 0; i < io->nchunks; i++) {
        if (io->pages[i] >= s->pages)
            return -EINVAL;
        need = VV_MAX(need, ((uint64_t)io->pages[i] + 1) * page_bytes);
        runs += !same_run(s, io, i);
    }
    struct vvi_batch *b = vvi_batch_new(port, io, runs, io->nchunks);
    if (!b)
        return -ENOMEM;
    io->status = prepare(s, b, need);
    if (io->status == 0 && io->device)
        io->status = vvi_io_gds(b, s->gds, 0, io->pages, page_bytes, page_bytes);
    if (io->status < 0) {
        vvi_batch_end(port, b);
        return 0;
    }
    b->due_ns = vvi_pace_book(port->pace, io->op, vvi_io_bytes(io, page_bytes));
    if (io->device) {
        vvi_batch_submit_gds(port, b);
        return 0;
    }
    submit_runs(port, s, b);
    /* The pages do not change during the write: hash them while the disk is busy. */
    if (io->op == VV_STORE_WRITE)
        for (uint32_t i = 0; i < io->nchunks; i++)
            s->sums[io->pages[i]] =
                vv_hash64(io->mem[i], vvi_chunk_bytes(io->size, page_bytes, io->chunk0 + i));
    return 0;
}

static void spill_close(struct vv_store *store)
{
    vvi_port_fini((struct vvi_port *)store);
    free(store);
}

static const struct vv_store_ops spill_ops = {
    .name = "spill",
    .close = spill_close,
    .submit = spill_submit,
    .poll = vvi_port_poll,
    .kick = vvi_port_kick,
};

int vv_spill_store(struct vv_spill *spill, struct vv_store **ret_store)
{
    struct spill_port *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->spill = spill;
    int rc = vvi_port_init(&p->port, &spill_ops, &spill->opts, &spill->pace, spill_advance);
    if (rc < 0) {
        free(p);
        return rc;
    }
    *ret_store = &p->port.base;
    return 0;
}
