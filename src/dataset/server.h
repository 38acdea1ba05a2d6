/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of the daemon: a Unix socket on which the programs of this node ask for files, and get read-only
 * descriptors of them (docs/format/dataset-client.md). It does not depend on the cache or other nodes: a table of
 * functions answers the requests.
 *
 * Invariants: only processes of this user are served. No client makes another one wait, whatever it sends or does not
 * read. Every request is answered within opts.wait_ns; a slower one is declined, and so is one above the limits.
 * (Requests for files of an object store are waited for without a limit.) Every descriptor that the functions give is
 * closed here exactly once, whether or not it arrived.
 *
 * With an index (client_index.h) clients open files themselves that were handed out before.
 *
 * Threads: the functions of the table are called from several threads at once, with no lock held.
 */
#ifndef VV_DATASET_SERVER_H
#define VV_DATASET_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/util.h"
#include "dataset/client_index.h"
#include "dataset/dataset.h"
#include "dataset/server_wire.h"

struct vv_server_ask {
    /* Absolute; no empty or "." components, no slash at the end. It may have "..", and lead through links: the
     * function has to resolve them. It begins with one of the roots, as they were given or resolved; it may
     * lead elsewhere. */
    const char *path;
    /* Fail with -ELOOP if a link is in the path. */
    bool nofollow;
    /* Answer without waiting for a busy disk, another thread or another node; -EAGAIN if that is impossible. Then the
     * same request is made again without `now`, in a thread that may wait. */
    bool now;
    /* The client waits until then. A function may take longer; then its answer is dropped. */
    uint64_t deadline_ns;
    /* For a change (vv_owner_change): the file's inode or 0, whether it is a folder or a link, and whether the change is
     * about to be made. */
    uint64_t inode;
    bool tree, begins;
};

/* All return 0 or a negative errno; after an error the client makes the call itself, on the shared file system. Each
 * may be NULL: -ENOSYS. */
struct vv_server_ops {
    /* Returns a descriptor of its own, read-only, at the beginning of the file; the server closes it. `ret_stat`
     * describes the original file, in the generation of the descriptor (vv_server_gen). */
    int (*open)(void *user, const struct vv_server_ask *ask, int *ret_fd,
                struct vv_server_stat *ret_stat);
    /* Describes the file as an open would. `ret_readable`: an open would succeed. */
    int (*stat)(void *user, const struct vv_server_ask *ask, struct vv_server_stat *ret_stat,
                bool *ret_readable);
    /* A program is about to change the file, or has changed it. Returns when the old content is not handed out any
     * more. */
    int (*invalidate)(void *user, const struct vv_server_ask *ask);
    /* Lists a folder that is in no file system: a descriptor, as from open, of a vv_server_folder. */
    int (*list)(void *user, const struct vv_server_ask *ask, int *ret_fd,
                struct vv_server_stat *ret_stat);
};

struct vv_server_opts {
    /* For the default see vv_server_socket; made with mode 0600; the folder must exist. */
    const char *socket_path;
    const char *const *roots; /* see vv_root_parse; every request's path begins with one of them */
    size_t nr_roots;
    const struct vv_server_ops *ops; /* must outlive the server */
    void *user;
    struct vv_index *index; /* shared with clients; NULL: none. Must outlive the server */
    /* With an index: adds a file that was just handed out (vv_owner_show), if that is possible. Does not
     * wait. */
    void (*show)(void *user, const char *path);
    unsigned loops;       /* threads that talk to clients; 0: one, or two from 16 processors on */
    unsigned workers_max; /* threads that may wait, started as needed; 0: 32 */
    unsigned waiting_max; /* requests that wait for one of them; 0: four per worker */
    unsigned clients_max; /* connections; 0: 4096, or half of the limit of descriptors */
    uint64_t wait_ns;     /* 0: 30 s. Files of an object store are waited for without a limit */
};

struct vv_server;

/* -EADDRINUSE: another daemon answers there (a socket without a daemon is replaced); -ENAMETOOLONG, -EINVAL, -ENOMEM
 * or a system error, with a text in `err`. */
VV_WARN_UNUSED int vv_server_open(const struct vv_server_opts *opts, char *err, size_t err_bytes,
                                  struct vv_server **ret_server);
/* Waits for functions of the table that are running. Clients see the connection end, and read the shared file
 * system; descriptors that they have stay valid. Accepts NULL. */
void vv_server_close(struct vv_server *d);

struct vv_server_stats {
    uint64_t clients; /* connected now */
    /* Since opening: */
    uint64_t accepted, refused; /* connections; refused: another user's, or too many */
    uint64_t broken; /* ended by us: malformed requests, or a client that does not read */
    uint64_t opens, stats, writes; /* answered successfully; writes: invalidated */
    uint64_t waited;               /* of these, requests that had to wait */
    uint64_t declined;             /* requests left to the shared file system ... */
    uint64_t late, full;           /* ... because it took too long; because too many waited */
};

void vv_server_stats(struct vv_server *d, struct vv_server_stats *ret_stats);

/* ---- for implementations of the functions ---- */

void vv_server_stat_of(const struct stat *st, struct vv_server_stat *ret_stat);

static inline uint64_t vv_server_ns(const struct vv_server_time *t)
{
    return (uint64_t)t->sec * UINT64_C(1000000000) + t->nsec;
}

static inline struct vv_dataset_gen vv_server_gen(const struct vv_server_stat *st)
{
    return (struct vv_dataset_gen){st->size, vv_server_ns(&st->mtime), vv_server_ns(&st->ctime),
                                   st->ino};
}

/* The original file of a content file, from its mark: programs that inherited the descriptor identify the file by it,
 * and so does the next run of the daemon. The server marks a file whenever the answer had to wait, which the first
 * answer always does. -ENODATA: no mark, or the mark of another file; -EOPNOTSUPP: the file system has no attributes;
 * or a system error. */
VV_WARN_UNUSED int vv_server_marked(int fd, struct vv_server_stat *ret_stat);
int vv_server_mark(int fd, const struct vv_server_stat *stat);

#endif
