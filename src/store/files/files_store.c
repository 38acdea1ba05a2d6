/* SPDX-License-Identifier: Apache-2.0 */
/* The store of committed files.
 *
 * WRITE   the batch's pages become one vectored write at consecutive offsets. The file's header is
 *         written in front of chunk 0, so that it takes no request of its own. Checksums are computed
 *         after the write was submitted: the pages do not change while it runs. Through the page cache
 *         KEEP follows, a sync of the data, before the write is reported.
 * READ    one vectored read; every chunk is verified before the batch is reported. A file written with
 *         larger pages than ours has larger checksummed chunks; it is read through a bounce buffer
 *         that covers whole ones. For device memory both are requests to gds.c instead, except the
 *         header of a write; they return checksums. Data that must go through a bounce buffer is
 *         verified there and then copied to the device: UPLOAD.
 * SALVAGE read chunks of the version's file of another generation, verify them, then continue as WRITE.
 * COMMIT  TAIL: write tables and footer -> SYNC: fsync the file -> rename -> FOLDER: fsync the folder ->
 *         index record. Before the rename a later open does not see the object; after the folder's
 *         fsync it is durable. If that fsync fails, the rename is undone.
 * REMOVE  unlink -> FOLDER (if it was committed) -> index record.
 *
 * Any error of a WRITE or COMMIT spoils the object. Above all a failed fsync: it is not repeated,
 * because the next one would report success for pages that the kernel has dropped.
 *
 * Per object one data sync runs at a time; it serves all writes that have ended since the one before. The kernel
 * reports a write-back error once, to the first sync that asks: of two concurrent syncs, one could get the error
 * of a page while the other reports that page as written.
 *
 * Folder fsyncs are shared: a batch that reaches FOLDER while one runs waits for the next, which serves
 * all batches that came meanwhile. The batch that carries the request is the leader; the others ride.
 *
 * A port and its batches belong to the mover's thread. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/hash.h"
#include "store/files/files_private.h"

enum step { STEP_DATA, STEP_KEEP, STEP_UPLOAD, STEP_SALVAGE, STEP_TAIL, STEP_SYNC, STEP_FOLDER };

/* A running fsync of one history's folder. */
struct folder_sync {
    struct folder_sync *next;
    struct vv_files *files;
    struct vvi_batch *leader;
    struct vvi_batch *riding;  /* renamed or unlinked before the fsync began */
    struct vvi_batch *waiting; /* renamed or unlinked since */
};

struct files_port {
    struct vvi_port port;
    struct vv_folder *folder;
    struct folder_sync *syncs;
};

/* ---- commit and removal ---- */

static uint64_t wall_clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The index entry of a commit, from the footer in its bounce buffer. */
static struct vv_files_entry committed_entry(const struct vvi_batch *b)
{
    const struct vvi_obj *obj = b->obj;
    const struct vv_ckfile_footer *footer =
        (const void *)((char *)b->bounce + b->bounce_bytes - sizeof(*footer));
    return (struct vv_files_entry){
        .version = obj->id.version,
        .generation = obj->id.generation,
        .size = obj->id.size,
        .run_id = obj->id.run_id,
        .commit_time_ns = footer->commit_time_ns,
        .file_bytes = vv_ckfile_bytes(obj->id.size, obj->nchunks, b->io->meta->nregions),
        .rank = obj->id.rank,
        .nregions = b->io->meta->nregions,
        .regions = b->io->meta->regions};
}

static bool unsynced(const struct vvi_batch *b)
{
    return b->io->key.history->folder->opts.unsynced;
}

static void end_with_folder(struct vvi_port *port, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    struct vvi_index *index = &io->key.history->index;
    if (io->status == 0 && io->op == VV_STORE_COMMIT && unsynced(b)) {
        ; /* no index record: the next open must check the file */
    } else if (io->status == 0 && io->op == VV_STORE_COMMIT) {
        struct vv_files_entry e = committed_entry(b);
        vvi_index_add(index, VVI_RECORD_COMMIT, &e);
    } else if (io->op == VV_STORE_COMMIT) {
        vvi_obj_unname(b->obj);
        vvi_obj_spoil(b->obj, io->status);
    } else if (io->op == VV_STORE_REMOVE) {
        if (io->status < 0)
            atomic_store(&io->key.history->removal_unsynced, true);
        struct vv_files_entry e = {.version = io->key.version, .generation = io->key.generation};
        vvi_index_add(index, VVI_RECORD_REMOVE, &e);
    }
    if (b->obj)
        vvi_obj_unpin(b->obj);
    vvi_batch_end(port, b);
}

static void folder_sync_start(struct files_port *p, struct folder_sync *fs)
{
    struct vvi_batch *b = fs->waiting;
    fs->leader = b;
    fs->riding = b->next;
    fs->waiting = NULL;
    b->reqs[0] = (struct vv_aio_req){.op = VV_AIO_FSYNC, .fd = fs->files->dirfd};
    vvi_batch_submit(&p->port, b, &b->reqs[0]);
}

/* Waits for a folder sync together with others. */
static void folder_sync_join(struct files_port *p, struct vvi_batch *b)
{
    struct folder_sync *fs = p->syncs;
    if (unsynced(b)) {
        struct vvi_index *index = &b->io->key.history->index;
        end_with_folder(&p->port, b);
        vvi_index_flush(index);
        return;
    }
    while (fs && fs->files != b->io->key.history)
        fs = fs->next;
    if (!fs) {
        fs = calloc(1, sizeof(*fs));
        if (!fs) {
            b->io->status = -ENOMEM;
            end_with_folder(&p->port, b);
            return;
        }
        fs->files = b->io->key.history;
        fs->next = p->syncs;
        p->syncs = fs;
    }
    b->step = STEP_FOLDER;
    b->next = fs->waiting;
    fs->waiting = b;
    if (!fs->leader)
        folder_sync_start(p, fs);
}

static void folder_sync_done(struct files_port *p, struct vvi_batch *leader)
{
    struct folder_sync **at = &p->syncs;
    while ((*at)->leader != leader)
        at = &(*at)->next;
    struct folder_sync *fs = *at;
    struct vv_files *files = fs->files;
    struct vvi_batch *riding = fs->riding;
    fs->leader = NULL;
    fs->riding = NULL;
    if (fs->waiting) {
        folder_sync_start(p, fs);
    } else {
        *at = fs->next;
        free(fs);
    }
    int status = leader->io->status;
    end_with_folder(&p->port, leader);
    while (riding) {
        struct vvi_batch *b = riding;
        riding = b->next;
        b->io->status = status;
        end_with_folder(&p->port, b);
    }
    /* One write for the index records of all these batches, which are reported later, when poll returns. */
    vvi_index_flush(&files->index);
}

static void commit_fail(struct vvi_port *port, struct vvi_batch *b, int status)
{
    b->io->status = status;
    vvi_obj_spoil(b->obj, status);
    vvi_obj_unpin(b->obj);
    vvi_batch_end(port, b);
}

static void commit_advance(struct files_port *p, struct vvi_batch *b)
{
    struct vvi_obj *obj = b->obj;
    if (b->io->status < 0) {
        commit_fail(&p->port, b, b->io->status);
    } else if (b->step == STEP_TAIL && !unsynced(b)) {
        b->step = STEP_SYNC;
        b->reqs[0] = (struct vv_aio_req){.op = VV_AIO_FSYNC, .fd = obj->fd};
        vvi_batch_submit(&p->port, b, &b->reqs[0]);
    } else {
        int rc = vvi_obj_rename(obj);
        if (rc < 0)
            commit_fail(&p->port, b, rc);
        else
            folder_sync_join(p, b);
    }
    vv_aio_flush(p->port.aio);
}

static bool meta_ok(const struct vv_store_io *io)
{
    if (!io->meta || (io->meta->nregions > 0 && !io->meta->regions))
        return false;
    uint64_t left = io->size;
    for (uint32_t i = 0; i < io->meta->nregions; i++) {
        if (io->meta->regions[i].bytes > left)
            return false;
        left -= io->meta->regions[i].bytes;
    }
    return left == 0;
}

static void add_header(struct vvi_obj *obj, struct vv_ckfile_header *header)
{
    vv_ckfile_header_fill(header, &obj->id, obj->files->history);
    obj->header_sum = header->sum;
    obj->header_sent = true;
}

/* Writes the tail. In front of it in the same memory is the header, if no chunk has carried it (an
 * object without bytes). */
static int commit_start(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    struct vvi_obj *obj = b->obj;
    bool with_header = !obj->header_sent;
    uint64_t tail_bytes = vv_ckfile_tail_bytes(obj->nchunks, io->meta->nregions);
    uint64_t head_bytes = with_header ? VV_CKFILE_HEADER_BYTES : 0;
    if (posix_memalign(&b->bounce, VV_STORE_ALIGN, head_bytes + tail_bytes) != 0) {
        b->bounce = NULL;
        return -ENOMEM;
    }
    b->bounce_bytes = head_bytes + tail_bytes;
    if (with_header)
        add_header(obj, b->bounce);
    char *tail = (char *)b->bounce + head_bytes;
    vv_ckfile_tail_fill(tail, &obj->id, io->meta, obj->sums, obj->header_sum, wall_clock_ns(),
                        unsynced(b) ? vv_os_boot(p->folder->opts.os) : 0);
    /* Without data the tail follows the header: one write either way. */
    vv_assert(!with_header || obj->id.size == 0);
    b->step = STEP_TAIL;
    b->iov[0] = (struct iovec){.iov_base = b->bounce, .iov_len = b->bounce_bytes};
    b->reqs[0] = (struct vv_aio_req){.op = VV_AIO_WRITE,
                                     .fd = obj->fd,
                                     .offset = vv_ckfile_tail_offset(obj->id.size) - head_bytes,
                                     .iov = b->iov,
                                     .niov = 1,
                                     .may_block = !p->folder->direct};
    vvi_batch_submit(&p->port, b, &b->reqs[0]);
    vv_aio_flush(p->port.aio);
    return 0;
}

static int submit_commit(struct files_port *p, struct vv_store_io *io)
{
    if (!meta_ok(io) || io->key.generation < io->key.history->first_generation)
        return -EINVAL;
    struct vvi_batch *b = vvi_batch_new(&p->port, io, 1, 1);
    if (!b)
        return -ENOMEM;
    struct vvi_obj *obj;
    int rc = vvi_obj_create(io, &obj);
    if (rc == 0 && obj->written != obj->nchunks) {
        vvi_obj_unpin(obj); /* misuse: it does not spoil the object */
        rc = -EINVAL;
    }
    if (rc == 0) {
        b->obj = obj;
        rc = commit_start(p, b);
        if (rc < 0)
            commit_fail(&p->port, b, rc);
        return 0;
    }
    io->status = rc;
    vvi_batch_end(&p->port, b);
    return 0;
}

static int submit_remove(struct files_port *p, struct vv_store_io *io)
{
    struct vvi_batch *b = vvi_batch_new(&p->port, io, 1, 1);
    if (!b)
        return -ENOMEM;
    bool sync = false;
    io->status = vvi_obj_remove(io->key.history, &io->key, &sync);
    if (io->status == 0 && sync) {
        folder_sync_join(p, b);
        vv_aio_flush(p->port.aio);
    } else {
        vvi_batch_end(&p->port, b);
    }
    return 0;
}

/* ---- data ---- */

static void submit_vectors(struct files_port *p, struct vvi_batch *b, unsigned niov,
                           uint64_t offset)
{
    struct vvi_obj *obj = b->obj;
    struct vv_aio_req *req = b->reqs;
    for (unsigned i = 0; i < niov; i++) {
        if (i % VV_AIO_IOV_MAX == 0)
            *req =
                (struct vv_aio_req){.op = b->io->op == VV_STORE_READ ? VV_AIO_READ : VV_AIO_WRITE,
                                    .fd = obj->fd,
                                    .offset = offset,
                                    .iov = &b->iov[i],
                                    .may_block = !p->folder->direct};
        req->niov++;
        offset += b->iov[i].iov_len;
        if (i + 1 == niov || (i + 1) % VV_AIO_IOV_MAX == 0)
            vvi_batch_submit(&p->port, b, req++);
    }
    vv_aio_flush(p->port.aio);
}

static uint64_t data_offset(const struct vv_store_io *io, uint32_t page_bytes)
{
    return VV_CKFILE_HEADER_BYTES + (uint64_t)io->chunk0 * page_bytes;
}

/* Submits the batch's chunks to gds.c, and the header in b->bounce, if the batch carries it, to the
 * kernel. On failure nothing was submitted. */
static int gds_start(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    struct vvi_obj *obj = b->obj;
    uint32_t page_bytes = p->folder->opts.page_bytes;
    struct vvi_gds_file *file;
    int rc = vvi_obj_gds(obj, &file);
    if (rc == 0)
        rc = vvi_io_gds(b, file, data_offset(io, page_bytes), NULL, page_bytes,
                        VV_MIN(page_bytes, obj->id.chunk_bytes));
    if (rc < 0) {
        if (io->op == VV_STORE_WRITE)
            vvi_obj_spoil(obj, rc);
        return rc;
    }
    b->due_ns = vvi_pace_book(p->port.pace, io->op, vvi_io_bytes(io, page_bytes));
    if (b->bounce)
        submit_vectors(p, b, 1, 0);
    vvi_batch_submit_gds(&p->port, b);
    return 0;
}

/* On failure nothing was submitted. */
static int write_start(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    struct vvi_obj *obj = b->obj;
    uint32_t page_bytes = p->folder->opts.page_bytes;
    uint64_t offset = data_offset(io, page_bytes);
    unsigned niov = 0;
    if (io->chunk0 == 0) {
        if (obj->header_sent)
            return -EEXIST;
        if (posix_memalign(&b->bounce, VV_STORE_ALIGN, VV_CKFILE_HEADER_BYTES) != 0) {
            b->bounce = NULL;
            vvi_obj_spoil(obj, -ENOMEM);
            return -ENOMEM;
        }
        add_header(obj, b->bounce);
        b->iov[niov++] = (struct iovec){.iov_base = b->bounce, .iov_len = VV_CKFILE_HEADER_BYTES};
        offset = 0;
    }
    if (io->device)
        return gds_start(p, b);
    for (uint32_t i = 0; i < io->nchunks; i++)
        b->iov[niov++] = vvi_io_vec(io, page_bytes, i);
    b->due_ns = vvi_pace_book(p->port.pace, io->op, vvi_io_bytes(io, page_bytes));
    submit_vectors(p, b, niov, offset);
    for (uint32_t i = 0; i < io->nchunks; i++)
        obj->sums[io->chunk0 + i] =
            vv_hash64(io->mem[i], vvi_chunk_bytes(io->size, page_bytes, io->chunk0 + i));
    return 0;
}

/* One read that covers whole checksummed chunks of the file. */
static int bounce_start(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    struct vvi_obj *obj = b->obj;
    uint32_t page_bytes = p->folder->opts.page_bytes;
    uint64_t begin = (uint64_t)io->chunk0 * page_bytes;
    uint64_t end = begin + vvi_io_bytes(io, page_bytes);
    begin = vv_align_down(begin, obj->id.chunk_bytes);
    end = VV_MIN(vv_align_up(end, obj->id.chunk_bytes), vv_align_up(io->size, VV_STORE_ALIGN));
    if (posix_memalign(&b->bounce, VV_STORE_ALIGN, end - begin) != 0) {
        b->bounce = NULL;
        return -ENOMEM;
    }
    b->bounce_bytes = end - begin;
    b->iov[0] = (struct iovec){.iov_base = b->bounce, .iov_len = end - begin};
    submit_vectors(p, b, 1, VV_CKFILE_HEADER_BYTES + begin);
    return 0;
}

static int read_start(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    struct vvi_obj *obj = b->obj;
    uint32_t page_bytes = p->folder->opts.page_bytes;
    if (obj->id.size != io->size) {
        io->bad_chunk = io->chunk0;
        return -EBADMSG;
    }
    if (io->device && obj->id.chunk_bytes <= page_bytes)
        return gds_start(p, b);
    b->due_ns = vvi_pace_book(p->port.pace, io->op, vvi_io_bytes(io, page_bytes));
    if (obj->id.chunk_bytes > page_bytes)
        return bounce_start(p, b);
    for (uint32_t i = 0; i < io->nchunks; i++)
        b->iov[i] = vvi_io_vec(io, page_bytes, i);
    submit_vectors(p, b, io->nchunks, data_offset(io, page_bytes));
    return 0;
}

/* Verifies bytes [at, at + n) of the object, a whole number of the file's chunks. */
static bool sums_ok(const struct vvi_obj *obj, const char *mem, uint64_t at, uint64_t n)
{
    uint32_t unit = obj->id.chunk_bytes;
    for (uint64_t done = 0; done < n; done += unit)
        if (vv_hash64(mem + done, VV_MIN((uint64_t)unit, n - done)) !=
            obj->sums[(at + done) / unit])
            return false;
    return true;
}

/* Stores the checksums that gds.c has computed after a write, and compares them after a read. */
static void settle_sums(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    struct vvi_obj *obj = b->obj;
    uint32_t page_bytes = p->folder->opts.page_bytes;
    uint64_t unit = VV_MIN(page_bytes, obj->id.chunk_bytes);
    uint64_t first = (uint64_t)io->chunk0 * page_bytes / unit;
    for (size_t i = 0; i < b->gds->nspans; i++) {
        if (io->op == VV_STORE_WRITE) {
            obj->sums[first + i] = b->gds->sums[i];
        } else if (obj->sums[first + i] != b->gds->sums[i]) {
            io->status = -EBADMSG;
            io->bad_chunk = (uint32_t)((first + i) * unit / page_bytes);
            return;
        }
    }
}

static void verify_pages(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    uint32_t page_bytes = p->folder->opts.page_bytes;
    for (uint32_t i = 0; i < io->nchunks; i++) {
        uint32_t chunk = io->chunk0 + i;
        if (!sums_ok(b->obj, io->mem[i], (uint64_t)chunk * page_bytes,
                     vvi_chunk_bytes(io->size, page_bytes, chunk))) {
            io->status = -EBADMSG;
            io->bad_chunk = chunk;
            return;
        }
    }
}

static void verify_bounce(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    struct vvi_obj *obj = b->obj;
    uint32_t page_bytes = p->folder->opts.page_bytes, unit = obj->id.chunk_bytes;
    uint64_t begin = vv_align_down((uint64_t)io->chunk0 * page_bytes, unit);
    for (uint32_t i = 0; i < io->nchunks; i++) {
        uint32_t chunk = io->chunk0 + i;
        uint64_t at = (uint64_t)chunk * page_bytes;
        uint64_t first = vv_align_down(at, unit);
        if ((i == 0 || at == first) && !sums_ok(obj, (char *)b->bounce + (first - begin), first,
                                                VV_MIN((uint64_t)unit, io->size - first))) {
            io->status = -EBADMSG;
            io->bad_chunk = chunk;
            return;
        }
        if (!io->device)
            memcpy(io->mem[i], (char *)b->bounce + (at - begin),
                   vvi_chunk_bytes(io->size, page_bytes, chunk));
    }
}

/* Copies from the bounce buffer to the device. */
static int upload_start(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    uint32_t page_bytes = p->folder->opts.page_bytes;
    uint64_t begin = vv_align_down((uint64_t)io->chunk0 * page_bytes,
                                   ((struct vvi_obj *)b->obj)->id.chunk_bytes);
    struct vvi_gds_req *req = vvi_gds_req_new(0, 0, io->nchunks);
    if (!req)
        return -ENOMEM;
    for (uint32_t i = 0; i < io->nchunks; i++) {
        uint64_t at = (uint64_t)(io->chunk0 + i) * page_bytes;
        req->uploads[i] =
            (struct vv_copy_seg){io->mem[i], (char *)b->bounce + (at - begin),
                                 vvi_chunk_bytes(io->size, page_bytes, io->chunk0 + i)};
    }
    req->nuploads = io->nchunks;
    b->gds = req;
    b->step = STEP_UPLOAD;
    vvi_batch_submit_gds(&p->port, b);
    return 0;
}

/* ---- data syncs before a write is reported ---- */

/* Starts one sync for all waiting batches, over the range from their first byte to their last. */
static void keep_start(struct files_port *p, struct vvi_obj *obj)
{
    struct vvi_batch *carrier = obj->to_keep;
    uint32_t page_bytes = p->folder->opts.page_bytes;
    uint64_t from = UINT64_MAX, to = 0;
    for (struct vvi_batch *b = carrier; b; b = b->next) {
        uint64_t at = b->io->chunk0 == 0 ? 0 : data_offset(b->io, page_bytes);
        from = VV_MIN(from, at);
        to = VV_MAX(to, data_offset(b->io, page_bytes) + vvi_io_bytes(b->io, page_bytes));
    }
    to = vv_align_up(to, VV_STORE_ALIGN);
    obj->keeping = carrier;
    obj->to_keep = NULL;
    carrier->reqs[0] = (struct vv_aio_req){.op = VV_AIO_RANGE, .fd = obj->fd, .offset = from};
    if (p->folder->ranges && to - from <= UINT32_MAX)
        carrier->reqs[0].bytes = (uint32_t)(to - from);
    vvi_batch_submit(&p->port, carrier, &carrier->reqs[0]);
    vv_aio_flush(p->port.aio);
}

static void keep_join(struct files_port *p, struct vvi_batch *b)
{
    struct vvi_obj *obj = b->obj;
    b->step = STEP_KEEP;
    b->next = obj->to_keep;
    obj->to_keep = b;
    if (!obj->keeping)
        keep_start(p, obj);
}

static void keep_done(struct files_port *p, struct vvi_batch *carrier)
{
    struct vvi_obj *obj = carrier->obj;
    struct vvi_batch *next;
    if (carrier->io->status < 0)
        vvi_obj_spoil(obj, carrier->io->status);
    obj->keeping = NULL;
    for (struct vvi_batch *b = carrier; b; b = next) {
        next = b->next;
        b->io->status = obj->spoiled;
        if (b->io->status == 0)
            obj->written += b->io->nchunks;
        if (!next && obj->to_keep)
            keep_start(p, obj);
        vvi_obj_unpin(obj);
        vvi_batch_end(&p->port, b);
    }
}

/* False: the batch has a next step. */
static bool data_advance(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    struct vvi_obj *obj = b->obj;
    if (io->status == -ENODATA) { /* the file was truncated after its footer was read */
        io->status = -EBADMSG;
        io->bad_chunk = io->chunk0;
    }
    if (io->status == 0 && b->gds)
        settle_sums(p, b);
    bool write = io->op != VV_STORE_READ;
    if (io->status == 0 && write && p->folder->keeps) {
        keep_join(p, b);
        return false;
    }
    if (io->status < 0 && write)
        vvi_obj_spoil(obj, io->status);
    else if (io->status == 0 && write)
        obj->written += io->nchunks;
    else if (io->status == 0 && b->bounce)
        verify_bounce(p, b);
    else if (io->status == 0 && !b->gds)
        verify_pages(p, b);
    if (io->status == 0 && io->op == VV_STORE_READ && io->device && !b->gds) {
        io->status = upload_start(p, b);
        if (io->status == 0)
            return false;
    }
    vvi_obj_unpin(obj);
    return true;
}

/* ---- salvage ---- */

/* The batch's memory has a block for the header, then the chunks. */
static int salvage_start(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    uint32_t page_bytes = p->folder->opts.page_bytes;
    struct vv_store_key key = io->key;
    uint64_t bytes = vv_align_up(vvi_io_bytes(io, page_bytes), VV_STORE_ALIGN);
    struct vvi_obj *from;
    key.generation = io->from_generation;
    int rc = vvi_obj_open(key.history, &key, &from);
    if (rc < 0)
        return rc;
    if (from->id.size != io->size || from->id.chunk_bytes != page_bytes)
        rc = -EINVAL;
    else if (posix_memalign(&b->bounce, VV_STORE_ALIGN, VV_CKFILE_HEADER_BYTES + bytes) != 0)
        rc = -ENOMEM;
    if (rc < 0) {
        b->bounce = NULL;
        vvi_obj_unpin(from);
        return rc;
    }
    b->bounce_bytes = VV_CKFILE_HEADER_BYTES + bytes;
    b->from = from;
    b->step = STEP_SALVAGE;
    b->due_ns = vvi_pace_book(p->port.pace, VV_STORE_READ, vvi_io_bytes(io, page_bytes));
    b->iov[0] = (struct iovec){(char *)b->bounce + VV_CKFILE_HEADER_BYTES, bytes};
    b->reqs[0] = (struct vv_aio_req){.op = VV_AIO_READ,
                                     .fd = from->fd,
                                     .offset = data_offset(io, page_bytes),
                                     .iov = b->iov,
                                     .niov = 1,
                                     .may_block = !p->folder->direct};
    vvi_batch_submit(&p->port, b, &b->reqs[0]);
    vv_aio_flush(p->port.aio);
    return 0;
}

/* Verifies the bytes read and writes them to the new file, header included. */
static bool salvage_advance(struct files_port *p, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    struct vvi_obj *obj = b->obj, *from = b->from;
    uint32_t page_bytes = p->folder->opts.page_bytes;
    char *data = (char *)b->bounce + VV_CKFILE_HEADER_BYTES;
    uint64_t at = (uint64_t)io->chunk0 * page_bytes, offset = data_offset(io, page_bytes);
    size_t bytes = b->bounce_bytes - VV_CKFILE_HEADER_BYTES;
    if (io->status == -ENODATA ||
        (io->status == 0 && !sums_ok(from, data, at, vvi_io_bytes(io, page_bytes))))
        io->status = -EBADMSG;
    if (io->status == 0)
        memcpy(&obj->sums[io->chunk0], &from->sums[io->chunk0], io->nchunks * sizeof(uint64_t));
    vvi_obj_unpin(from);
    if (io->status == 0 && io->chunk0 == 0 && obj->header_sent)
        io->status = -EEXIST;
    if (io->status < 0) {
        vvi_obj_unpin(obj);
        return true;
    }
    if (io->chunk0 == 0) {
        add_header(obj, b->bounce);
        data = b->bounce;
        bytes = b->bounce_bytes;
        offset = 0;
    }
    b->step = STEP_DATA;
    b->due_ns = vvi_pace_book(p->port.pace, VV_STORE_WRITE, vvi_io_bytes(io, page_bytes));
    b->iov[0] = (struct iovec){data, bytes};
    submit_vectors(p, b, 1, offset);
    return false;
}

static int submit_salvage(struct files_port *p, struct vv_store_io *io)
{
    uint32_t page_bytes = p->folder->opts.page_bytes;
    uint64_t chunks = vv_div_up(io->size, page_bytes);
    if (io->nchunks == 0 || (uint64_t)io->chunk0 + io->nchunks > chunks ||
        io->key.generation < io->key.history->first_generation)
        return -EINVAL;
    struct vvi_batch *b = vvi_batch_new(&p->port, io, 1, 1);
    if (!b)
        return -ENOMEM;
    struct vvi_obj *obj;
    int rc = vvi_obj_create(io, &obj);
    if (rc == 0) {
        b->obj = obj;
        rc = salvage_start(p, b);
        if (rc < 0)
            vvi_obj_unpin(obj);
    }
    if (rc < 0) {
        io->status = rc;
        vvi_batch_end(&p->port, b);
    }
    return 0;
}

/* ---- data, submitted ---- */

static int submit_data(struct files_port *p, struct vv_store_io *io)
{
    struct vv_files *files = io->key.history;
    bool write = io->op == VV_STORE_WRITE;
    if (!vvi_io_valid(io, p->folder->opts.page_bytes) || (io->device && !p->port.gds) ||
        (write && io->key.generation < files->first_generation))
        return -EINVAL;
    unsigned niov = io->nchunks + 1; /* one for the header */
    struct vvi_batch *b =
        vvi_batch_new(&p->port, io, (unsigned)vv_div_up(niov, VV_AIO_IOV_MAX), niov);
    if (!b)
        return -ENOMEM;
    struct vvi_obj *obj;
    int rc = write ? vvi_obj_create(io, &obj) : vvi_obj_open(files, &io->key, &obj);
    if (rc == 0) {
        b->obj = obj;
        rc = write ? write_start(p, b) : read_start(p, b);
        if (rc < 0)
            vvi_obj_unpin(obj);
    } else if (rc == -EBADMSG) {
        io->bad_chunk = io->chunk0;
    }
    if (rc < 0) {
        io->status = rc;
        vvi_batch_end(&p->port, b);
    }
    return 0;
}

/* ---- the ops table ---- */

static bool files_advance(struct vvi_port *port, struct vvi_batch *b)
{
    struct files_port *p = (struct files_port *)port;
    switch ((enum step)b->step) {
    case STEP_DATA:
        return data_advance(p, b);
    case STEP_KEEP:
        keep_done(p, b);
        return false;
    case STEP_UPLOAD:
        vvi_obj_unpin(b->obj);
        return true;
    case STEP_SALVAGE:
        return salvage_advance(p, b);
    case STEP_TAIL:
    case STEP_SYNC:
        commit_advance(p, b);
        return false;
    case STEP_FOLDER:
        folder_sync_done(p, b);
        return false;
    }
    return true;
}

static int files_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct files_port *p = (struct files_port *)store;
    if (!io->key.history || io->key.history->folder != p->folder)
        return -EINVAL;
    switch (io->op) {
    case VV_STORE_READ:
    case VV_STORE_WRITE:
        return submit_data(p, io);
    case VV_STORE_COMMIT:
        return submit_commit(p, io);
    case VV_STORE_REMOVE:
        return submit_remove(p, io);
    case VV_STORE_SALVAGE:
        return submit_salvage(p, io);
    }
    return -EINVAL;
}

static void files_close(struct vv_store *store)
{
    struct files_port *p = (struct files_port *)store;
    vvi_port_fini(&p->port);
    vv_assert(!p->syncs);
    free(p);
}

static const struct vv_store_ops files_ops = {
    .name = "files",
    .close = files_close,
    .submit = files_submit,
    .poll = vvi_port_poll,
    .kick = vvi_port_kick,
};

int vv_folder_store(struct vv_folder *folder, struct vv_store **ret_store)
{
    if (folder->target)
        return vvi_target_store(folder, ret_store);
    struct files_port *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->folder = folder;
    int rc = vvi_port_init(&p->port, &files_ops, &folder->opts, &folder->pace, files_advance);
    if (rc < 0) {
        free(p);
        return rc;
    }
    *ret_store = &p->port.base;
    return 0;
}
