/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two stores: batches of requests on an aio, pacing, the queue of finished
 * requests, and the choice between direct and buffered I/O. */
#ifndef VV_STORE_STORE_PRIVATE_H
#define VV_STORE_STORE_PRIVATE_H

#include <stdarg.h>

#include "base/lock.h"
#include "store/aio/gds_private.h"
#include "store/store.h"

/* ---- pacing: one medium with one next-free time, shared by both directions ---- */

struct vvi_pace {
    struct vv_mutex lock;
    uint64_t write_rate, read_rate; /* bytes/s, 0: none; immutable */
    uint64_t next_free_ns;          /* Synchronization: lock */
};

void vvi_pace_init(struct vvi_pace *pace, const struct vv_store_opts *opts);
void vvi_pace_fini(struct vvi_pace *pace);
/* Books the medium. Returns the earliest time at which the transfer may be reported, 0: any. */
uint64_t vvi_pace_book(struct vvi_pace *pace, enum vv_store_op op, uint64_t bytes);

/* ---- a mover's end of a store ---- */

struct vvi_batch {
    struct vv_store_io *io;
    struct vvi_batch *next;
    uint64_t due_ns; /* not to be reported before */
    unsigned left;   /* aio requests in flight */
    int step;        /* of a commit or removal */
    void *obj;       /* files: the open object */
    void *from;      /* SALVAGE: the one that is read */
    void *bounce;    /* memory owned by the batch */
    size_t bounce_bytes;
    struct vvi_gds_req *gds; /* on device memory, owned; NULL: none */
    struct vv_aio_req *reqs;
    struct iovec *iov;
};

struct vvi_port {
    struct vv_store base;
    struct vv_aio *aio;
    struct vvi_gds_pool *gds; /* NULL: host memory only */
    struct vvi_pace *pace;
    /* Called when all requests of the batch's current step have ended (io->status: the first
     * error). True: the batch is finished. False: it has submitted its next step. */
    bool (*advance)(struct vvi_port *port, struct vvi_batch *b);
    struct vv_store_io *done, **done_tail;
    struct vvi_batch *waiting; /* for their due time; unordered */
    unsigned active;           /* batches neither on `done` nor on `waiting` */
};

int vvi_port_init(struct vvi_port *port, const struct vv_store_ops *ops,
                  const struct vv_store_opts *opts, struct vvi_pace *pace,
                  bool (*advance)(struct vvi_port *, struct vvi_batch *));
/* Waits for all batches. */
void vvi_port_fini(struct vvi_port *port);
/* A batch with room for nreqs requests and niov vectors. */
struct vvi_batch *vvi_batch_new(struct vvi_port *port, struct vv_store_io *io, unsigned nreqs,
                                unsigned niov);
/* Submits one request of the batch. */
void vvi_batch_submit(struct vvi_port *port, struct vvi_batch *b, struct vv_aio_req *req);
/* The same for the batch's request on device memory. */
void vvi_batch_submit_gds(struct vvi_port *port, struct vvi_batch *b);
/* Finishes a batch that has nothing in flight and whose status is set. */
void vvi_batch_end(struct vvi_port *port, struct vvi_batch *b);
/* Reports a request that never became a batch. */
void vvi_port_report(struct vvi_port *port, struct vv_store_io *io);
int vvi_port_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                  int64_t timeout_ns);
void vvi_port_kick(struct vv_store *store);

/* ---- shapes ---- */

static inline uint32_t vvi_chunks(uint64_t size, uint32_t page_bytes)
{
    return (uint32_t)vv_div_up(size, page_bytes);
}

static inline uint32_t vvi_chunk_bytes(uint64_t size, uint32_t page_bytes, uint32_t chunk)
{
    return (uint32_t)VV_MIN((uint64_t)page_bytes, size - (uint64_t)chunk * page_bytes);
}

/* True if this is a batch of consecutive chunks of the object, in memory aligned for direct I/O. */
bool vvi_io_valid(const struct vv_store_io *io, uint32_t page_bytes);
/* Bytes of the object in the batch. */
uint64_t vvi_io_bytes(const struct vv_store_io *io, uint32_t page_bytes);
/* Makes the batch's request on device memory: chunk after chunk starting at `offset` in the file,
 * or at the pages in `pages`, with a checksum for every `unit` bytes of a chunk. */
int vvi_io_gds(struct vvi_batch *b, struct vvi_gds_file *file, uint64_t offset,
               const uint32_t *pages, uint32_t page_bytes, uint32_t unit);
/* The vector of chunk0 + i. For a write, zeros are filled in after the object's last byte. */
struct iovec vvi_io_vec(const struct vv_store_io *io, uint32_t page_bytes, uint32_t i);

/* ---- options ---- */

int vvi_store_opts_check(const struct vv_store_opts *opts);
/* Decides if files in the folder are opened with O_DIRECT; tries it on a file of its own. */
int vvi_store_probe(const struct vv_store_opts *opts, int dirfd, const char *folder, char *err,
                    size_t err_bytes, bool *ret_direct);
/* Opens a file for I/O in the chosen mode. */
int vvi_store_openat(const struct vv_os *os, int dirfd, const char *name, int flags, bool direct);
/* Creates a file without a name, which is deleted when its descriptor is closed. */
int vvi_store_open_unlinked(const struct vv_os *os, int dirfd, bool direct);
/* Opens a folder, creating it if missing, and makes sure that it survives a power cut. */
int vvi_store_open_folder(const struct vv_os *os, const char *path, char *err, size_t err_bytes);

/* Formats into err if there is room and returns rc. */
int vvi_error(int rc, char *err, size_t err_bytes, const char *fmt, ...) VV_PRINTF(4, 5);

#endif
