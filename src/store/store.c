/* SPDX-License-Identifier: Apache-2.0 */
/* The mover's end of a store ("port"), shared by spill and files.
 *
 * A request becomes a batch of one or more aio requests. When those of a step have ended, the store's
 * advance function verifies the bytes read or starts the next step of a commit. A finished batch whose
 * paced time has not come waits in the port; poll sleeps in the aio, with a time limit, so that a kick
 * always wakes it, and no lock is held meanwhile. Everything here belongs to the port's thread; only
 * the pace is shared.
 *
 * Requests on device memory are carried out by threads of the port's own (gds.c), which kick the aio
 * after each: so poll waits in one place for both kinds. A kick of the caller and one of these threads
 * may become one; poll then reports the finished request, which wakes the caller as well.
 *
 * Pacing keeps one next-free time and books every transfer behind it. A late wake-up moves no booking,
 * so sleeping errors do not add up while the caller keeps a second batch in flight. */
#define _GNU_SOURCE
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "store/store_private.h"

int vvi_error(int rc, char *err, size_t err_bytes, const char *fmt, ...)
{
    if (err && err_bytes > 0) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err, err_bytes, fmt, ap);
        va_end(ap);
    }
    return rc;
}

/* ---- options ---- */

void vv_store_opts_init(struct vv_store_opts *opts)
{
    *opts = (struct vv_store_opts){
        .os = vv_os_posix(),
        .page_bytes = VV_PAGE_BYTES_DEFAULT,
        .depth = 32,
        .max_open = 64,
    };
}

int vvi_store_opts_check(const struct vv_store_opts *opts)
{
    if (!opts || !opts->os || !vv_is_pow2(opts->page_bytes) || opts->page_bytes < VV_STORE_ALIGN ||
        opts->depth == 0 || opts->depth > 1024 || opts->max_open == 0)
        return -EINVAL;
    return 0;
}

int vvi_store_openat(const struct vv_os *os, int dirfd, const char *name, int flags, bool direct)
{
    if (direct)
        flags |= O_DIRECT;
    if (flags & (O_CREAT | O_DIRECTORY))
        return os->openat(os, dirfd, name, flags, 0666);
    return vv_os_open_regular(os, dirfd, name, flags);
}

/* Syncs the folder above, since a committed file survives only if its folder does. This is done even
 * for a folder that existed before: the process that made it may have lost power before it synced. In
 * that case the folder above may belong to another user, be inaccessible or not support sync; this
 * is not an error. */
static int sync_parent(const struct vv_os *os, int fd, bool fresh)
{
    int parent = os->openat(os, fd, "..", O_RDONLY | O_DIRECTORY, 0);
    if (parent < 0)
        return !fresh && (parent == -EACCES || parent == -EPERM) ? 0 : parent;
    int rc = os->fsync(os, parent);
    os->close(os, parent);
    return !fresh && (rc == -EINVAL || rc == -EROFS) ? 0 : rc;
}

int vvi_store_open_folder(const struct vv_os *os, const char *path, char *err, size_t err_bytes)
{
    int rc = os->mkdirat(os, AT_FDCWD, path, 0777);
    if (rc < 0 && rc != -EEXIST)
        return vvi_error(rc, err, err_bytes, "cannot create folder %s: %s%s", path, strerror(-rc),
                         rc == -ENOENT ? "; those above it have to be there" : "");
    bool fresh = rc == 0;
    int fd = os->openat(os, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return vvi_error(fd, err, err_bytes, "cannot open folder %s: %s", path, strerror(-fd));
    rc = sync_parent(os, fd, fresh);
    if (rc < 0) {
        os->close(os, fd);
        return vvi_error(rc, err, err_bytes, "cannot sync the folder above %s: %s", path,
                         strerror(-rc));
    }
    return fd;
}

int vvi_store_open_unlinked(const struct vv_os *os, int dirfd, bool direct)
{
    int fd = vvi_store_openat(os, dirfd, ".", O_TMPFILE | O_RDWR | O_EXCL, direct);
    if (fd >= 0)
        return fd;
    if (fd != -EOPNOTSUPP && fd != -EISDIR && fd != -EINVAL && fd != -ENOENT)
        return fd;
    char name[64];
    snprintf(name, sizeof(name), ".spill-%ld-%llx", (long)getpid(),
             (unsigned long long)vv_now_ns());
    fd = vvi_store_openat(os, dirfd, name, O_RDWR | O_CREAT | O_EXCL, direct);
    if (fd < 0)
        return fd;
    int rc = os->unlinkat(os, dirfd, name);
    if (rc < 0) {
        os->close(os, fd);
        return rc;
    }
    return fd;
}

/* File systems without direct I/O refuse at open or at the first transfer. A read of an empty
 * file is enough to see it. It needs no space, so data on a full disk stays readable. */
static int try_direct(const struct vv_os *os, int dirfd)
{
    char name[64];
    void *block = NULL;
    snprintf(name, sizeof(name), ".probe-%ld-%llx", (long)getpid(),
             (unsigned long long)vv_now_ns());
    int fd = vvi_store_openat(os, dirfd, name, O_RDWR | O_CREAT | O_EXCL, true);
    /* Some file systems leave the file behind when they refuse the flag. */
    if (fd >= 0 || fd == -EINVAL)
        os->unlinkat(os, dirfd, name);
    if (fd < 0)
        return fd == -ENOSPC || fd == -EDQUOT ? 0 : fd;
    int rc = -ENOMEM;
    if (posix_memalign(&block, VV_STORE_ALIGN, VV_STORE_ALIGN) == 0) {
        rc = (int)os->pread(os, fd, block, VV_STORE_ALIGN, 0);
        free(block);
    }
    os->close(os, fd);
    return rc;
}

int vvi_store_probe(const struct vv_store_opts *opts, int dirfd, const char *folder, char *err,
                    size_t err_bytes, bool *ret_direct)
{
    bool direct = opts->mode != VV_STORE_BUFFERED;
    if (direct) {
        int rc = try_direct(opts->os, dirfd);
        bool refused = rc == -EINVAL || rc == -EOPNOTSUPP;
        if (refused && opts->mode == VV_STORE_AUTO) {
            direct = false;
        } else if (refused) {
            return vvi_error(-EOPNOTSUPP, err, err_bytes,
                             "%s: the file system takes no direct I/O; use buffered or auto",
                             folder);
        } else if (rc < 0) {
            return vvi_error(rc, err, err_bytes, "%s: cannot use it: %s", folder, strerror(-rc));
        }
    }
    *ret_direct = direct;
    return 0;
}

/* ---- shapes ---- */

bool vvi_io_valid(const struct vv_store_io *io, uint32_t page_bytes)
{
    uint64_t chunks = vv_div_up(io->size, page_bytes);
    if (io->device && io->op == VV_STORE_WRITE && (uint64_t)io->chunk0 + io->nchunks == chunks &&
        io->size % VV_STORE_ALIGN != 0)
        return false;
    if (io->nchunks == 0 || chunks > UINT32_MAX || (uint64_t)io->chunk0 + io->nchunks > chunks ||
        !io->mem)
        return false;
    for (uint32_t i = 0; i < io->nchunks; i++)
        if (!io->mem[i] || (uintptr_t)io->mem[i] % VV_STORE_ALIGN != 0)
            return false;
    return true;
}

uint64_t vvi_io_bytes(const struct vv_store_io *io, uint32_t page_bytes)
{
    uint64_t begin = (uint64_t)io->chunk0 * page_bytes;
    return VV_MIN(io->size - begin, (uint64_t)io->nchunks * page_bytes);
}

int vvi_io_gds(struct vvi_batch *b, struct vvi_gds_file *file, uint64_t offset,
               const uint32_t *pages, uint32_t page_bytes, uint32_t unit)
{
    const struct vv_store_io *io = b->io;
    uint32_t per_chunk = (uint32_t)vv_div_up(page_bytes, unit);
    struct vvi_gds_req *req = vvi_gds_req_new(io->nchunks, (size_t)io->nchunks * per_chunk, 0);
    if (!req)
        return -ENOMEM;
    req->file = file;
    req->write = io->op == VV_STORE_WRITE;
    for (uint32_t i = 0; i < io->nchunks; i++) {
        uint32_t bytes = vvi_chunk_bytes(io->size, page_bytes, io->chunk0 + i);
        struct vvi_gds_part part = {.mem = io->mem[i],
                                    .offset = pages ? (uint64_t)pages[i] * page_bytes
                                                    : offset + (uint64_t)i * page_bytes,
                                    .bytes = vv_align_up(bytes, VV_STORE_ALIGN)};
        struct vvi_gds_part *last = req->nparts > 0 ? &req->parts[req->nparts - 1] : NULL;
        if (last && last->offset + last->bytes == part.offset &&
            (char *)last->mem + last->bytes == part.mem)
            last->bytes += part.bytes;
        else
            req->parts[req->nparts++] = part;
        for (uint32_t at = 0; at < bytes; at += unit)
            req->spans[req->nspans++] =
                (struct vv_kernel_span){(char *)io->mem[i] + at, VV_MIN(unit, bytes - at)};
    }
    b->gds = req;
    return 0;
}

struct iovec vvi_io_vec(const struct vv_store_io *io, uint32_t page_bytes, uint32_t i)
{
    uint32_t bytes = vvi_chunk_bytes(io->size, page_bytes, io->chunk0 + i);
    uint32_t padded = (uint32_t)vv_align_up(bytes, VV_STORE_ALIGN);
    if (io->op == VV_STORE_WRITE && padded > bytes)
        memset((char *)io->mem[i] + bytes, 0, padded - bytes);
    return (struct iovec){.iov_base = io->mem[i], .iov_len = padded};
}

/* ---- pacing ---- */

void vvi_pace_init(struct vvi_pace *pace, const struct vv_store_opts *opts)
{
    *pace = (struct vvi_pace){.write_rate = opts->write_bytes_per_s,
                              .read_rate = opts->read_bytes_per_s};
    vv_mutex_init(&pace->lock, "store pace", VV_RANK_STORE);
}

void vvi_pace_fini(struct vvi_pace *pace)
{
    vv_mutex_fini(&pace->lock);
}

uint64_t vvi_pace_book(struct vvi_pace *pace, enum vv_store_op op, uint64_t bytes)
{
    uint64_t rate = op == VV_STORE_WRITE ? pace->write_rate : pace->read_rate;
    if (rate == 0)
        return 0;
    uint64_t ns = (uint64_t)((unsigned __int128)bytes * 1000000000u / rate);
    uint64_t now = vv_now_ns();
    vv_mutex_lock(&pace->lock);
    uint64_t due = VV_MAX(now, pace->next_free_ns) + ns;
    pace->next_free_ns = due;
    vv_mutex_unlock(&pace->lock);
    return due;
}

/* ---- ports ---- */

static void kick_aio(void *arg)
{
    vv_aio_kick(arg);
}

int vvi_port_init(struct vvi_port *port, const struct vv_store_ops *ops,
                  const struct vv_store_opts *opts, struct vvi_pace *pace,
                  bool (*advance)(struct vvi_port *, struct vvi_batch *))
{
    port->base.ops = ops;
    port->gds = NULL;
    port->pace = pace;
    port->advance = advance;
    port->done = NULL;
    port->done_tail = &port->done;
    port->waiting = NULL;
    port->active = 0;
    int rc = vv_aio_new_helped(opts->os, opts->backend, opts->depth, opts->helper, &port->aio);
    if (rc == 0 && opts->gds) {
        rc = vvi_gds_pool_new(opts->gds, opts->os, kick_aio, port->aio, &port->gds);
        if (rc < 0)
            vv_aio_free(port->aio);
    }
    return rc;
}

struct vvi_batch *vvi_batch_new(struct vvi_port *port, struct vv_store_io *io, unsigned nreqs,
                                unsigned niov)
{
    struct vvi_batch *b =
        malloc(sizeof(*b) + nreqs * sizeof(struct vv_aio_req) + niov * sizeof(struct iovec));
    if (!b)
        return NULL;
    *b = (struct vvi_batch){.io = io};
    b->reqs = (struct vv_aio_req *)(b + 1);
    b->iov = (struct iovec *)(b->reqs + nreqs);
    io->status = 0;
    io->bad_chunk = 0;
    port->active++;
    return b;
}

void vvi_batch_submit(struct vvi_port *port, struct vvi_batch *b, struct vv_aio_req *req)
{
    req->user = b;
    b->left++;
    vv_aio_submit(port->aio, req);
}

void vvi_batch_submit_gds(struct vvi_port *port, struct vvi_batch *b)
{
    b->gds->user = b;
    b->left++;
    vvi_gds_submit(port->gds, b->gds);
}

void vvi_port_report(struct vvi_port *port, struct vv_store_io *io)
{
    io->next = NULL;
    *port->done_tail = io;
    port->done_tail = &io->next;
}

static void batch_free(struct vvi_batch *b)
{
    free(b->bounce);
    free(b->gds);
    free(b);
}

static void batch_report(struct vvi_port *port, struct vvi_batch *b)
{
    struct vv_store_io *io = b->io;
    batch_free(b);
    vvi_port_report(port, io);
}

void vvi_batch_end(struct vvi_port *port, struct vvi_batch *b)
{
    vv_assert(b->left == 0 && port->active > 0);
    port->active--;
    /* A failure is reported at once; the medium stays booked. */
    if (b->io->status == 0 && b->due_ns > vv_now_ns() && !vv_store_given_up(b->io)) {
        b->next = port->waiting;
        port->waiting = b;
        return;
    }
    batch_report(port, b);
}

static void reap(struct vvi_port *port, struct vvi_batch *b, int result)
{
    if (b->io->status == 0)
        b->io->status = result;
    if (--b->left == 0 && port->advance(port, b))
        vvi_batch_end(port, b);
}

/* Handles one request on device memory that has ended. */
static bool reap_gds(struct vvi_port *port)
{
    struct vvi_gds_req *req = port->gds ? vvi_gds_reap(port->gds) : NULL;
    if (!req)
        return false;
    reap(port, req->user, req->result);
    return true;
}

/* Reports the batches whose time has come. Returns when to look again. */
static uint64_t release_due(struct vvi_port *port)
{
    uint64_t next = VV_NEVER_NS;
    if (!port->waiting)
        return next;
    uint64_t now = vv_now_ns();
    for (struct vvi_batch **at = &port->waiting; *at;) {
        struct vvi_batch *b = *at;
        if (b->due_ns <= now || vv_store_given_up(b->io)) {
            *at = b->next;
            batch_report(port, b);
        } else {
            next = VV_MIN(next, b->due_ns);
            next = b->io->given_up ? VV_MIN(next, now + VV_STORE_LOOK_NS) : next;
            at = &b->next;
        }
    }
    return next;
}

static int take_done(struct vvi_port *port, struct vv_store_io **ret_done, size_t max)
{
    size_t n = 0;
    while (n < max && port->done) {
        struct vv_store_io *io = port->done;
        port->done = io->next;
        if (!port->done)
            port->done_tail = &port->done;
        ret_done[n++] = io;
    }
    return (int)n;
}

/* Takes completions one by one, and stops when there is something to report: verifying what was read
 * takes time, in which the caller could have submitted the next request. */
int vvi_port_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                  int64_t timeout_ns)
{
    struct vvi_port *port = (struct vvi_port *)store;
    uint64_t deadline = timeout_ns < 0 ? VV_NEVER_NS : vv_now_ns() + (uint64_t)timeout_ns;
    if (max == 0 || max > INT32_MAX)
        return -EINVAL;
    for (;;) {
        struct vv_aio_req *req;
        uint64_t until = VV_MIN(deadline, release_due(port));
        if (port->done)
            return take_done(port, ret_done, max);
        if (reap_gds(port))
            continue;
        int64_t wait_ns = -1;
        if (until != VV_NEVER_NS) {
            uint64_t now = vv_now_ns();
            wait_ns = until > now ? (int64_t)(until - now) : 0;
        }
        int n = vv_aio_wait(port->aio, &req, 1, wait_ns);
        if (n > 0)
            reap(port, req->user, req->result);
        else if (n == 0 && reap_gds(port))
            continue;
        else if (n == 0)
            return 0;
        else if (n != -ETIMEDOUT)
            return n;
        else if (vv_now_ns() >= deadline)
            return -ETIMEDOUT; /* the next poll reports a paced batch that is due by now */
    }
}

void vvi_port_kick(struct vv_store *store)
{
    vv_aio_kick(((struct vvi_port *)store)->aio);
}

void vvi_port_fini(struct vvi_port *port)
{
    struct vv_aio_req *req;
    while (port->active > 0) {
        if (reap_gds(port))
            continue;
        int n = vv_aio_wait(port->aio, &req, 1, -1);
        if (n > 0)
            reap(port, req->user, req->result);
        else if (n < 0) /* the kernel still uses the callers' memory: keep asking */
            vv_sleep_until_ns(vv_now_ns() + VV_AIO_REST_NS);
    }
    while (port->waiting) {
        struct vvi_batch *b = port->waiting;
        port->waiting = b->next;
        batch_free(b);
    }
    vvi_gds_pool_free(port->gds); /* its threads kick the aio */
    vv_aio_free(port->aio);
}
