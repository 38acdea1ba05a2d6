/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of the daemon: a Unix socket through which the programs of this node ask for files, and get
 * read-only descriptors of them (docs/format/dataset-client.md). It knows nothing of caches and other nodes;
 * what it hands out comes from a table of functions.
 *
 * What always holds: only processes of this user are served. No client, whatever it sends, or does not
 * read, makes another one wait. Every request is answered within opts.wait_ns; one that takes longer is
 * declined, and so is one too many. Every descriptor that the functions give is
 * closed here exactly once, whether or not it arrived.
 *
 * With an index (client_index.h) clients open themselves what was handed out before.
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
    /* Absolute; no empty or "." components, no slash at the end. It may have "..", and lead through
     * links: where it leads is for the function to find out. It begins with one of the roots, as they
     * were given or resolved; that says nothing of where it leads. */
    const char *path;
    /* Refuse (-ELOOP) unless the path is where it leads, with no link in it. */
    bool nofollow;
    /* Answer without waiting for a disk that is busy, another thread or another node; -EAGAIN if that
     * cannot be done. The same is then asked again without it, from a thread that may wait. */
    bool now;
    /* Nobody waits any longer than this. A function that does is tolerated; its answer is dropped. */
    uint64_t deadline_ns;
    /* Of a change (vv_owner_change): the file's inode or 0, whether it is a folder or a link, and whether it is about
     * to be made. */
    uint64_t inode;
    bool tree, begins;
};

/* All return 0 or a negative errno, which makes the client do it itself: with the shared file system's
 * own answer, whatever it is. None has to exist on its own: NULL answers -ENOSYS. */
struct vv_server_ops {
    /* A descriptor of its own, read-only, at the beginning of the file; the server closes it. `ret_stat` is the
     * original file, the generation that the descriptor is (vv_server_gen). */
    int (*open)(void *user, const struct vv_server_ask *ask, int *ret_fd,
                struct vv_server_stat *ret_stat);
    /* What an open would tell. `ret_readable`: it would succeed. */
    int (*stat)(void *user, const struct vv_server_ask *ask, struct vv_server_stat *ret_stat,
                bool *ret_readable);
    /* Somebody is about to change it, or has. Returns when no program is given the former content any more. */
    int (*invalidate)(void *user, const struct vv_server_ask *ask);
    /* What is in a folder that no file system has: a descriptor, as with open, of a vv_server_folder. */
    int (*list)(void *user, const struct vv_server_ask *ask, int *ret_fd,
                struct vv_server_stat *ret_stat);
};

struct vv_server_opts {
    const char *
        socket_path; /* vv_server_socket tells where by default; made with mode 0600; the folder must be there */
    const char *const *roots; /* see vv_root_parse; what clients ask for begins with one of them */
    size_t nr_roots;
    const struct vv_server_ops *ops; /* must outlive the server */
    void *user;
    struct vv_index *index; /* shared with clients; NULL: none. Must outlive the server */
    /* With an index: shows a file that was just handed out (vv_owner_show), if that makes sense. Does not
     * wait. */
    void (*show)(void *user, const char *path);
    unsigned loops;       /* threads that talk to clients; 0: one, or two from 16 processors on */
    unsigned workers_max; /* threads that may wait, started as needed; 0: 32 */
    unsigned waiting_max; /* requests that wait for one of them; 0: four per worker */
    unsigned clients_max; /* connections; 0: 4096, or half of the descriptors there may be */
    uint64_t wait_ns;     /* 0: 30 s. What is in an object store may take as long as it takes */
};

struct vv_server;

/* -EADDRINUSE: another daemon answers there (a socket that nobody answers is replaced);
 * -ENAMETOOLONG, -EINVAL, -ENOMEM or the system's error, with a text in `err`. */
VV_WARN_UNUSED int vv_server_open(const struct vv_server_opts *opts, char *err, size_t err_bytes,
                                  struct vv_server **ret_server);
/* Waits for functions of the table that are running. Clients see the connection end, and read for
 * themselves; what they have open stays good. Accepts NULL. */
void vv_server_close(struct vv_server *d);

struct vv_server_stats {
    uint64_t clients; /* connected now */
    /* Since opening: */
    uint64_t accepted, refused;    /* connections; refused: another user's, or too many */
    uint64_t broken;               /* ended by us: nonsense, or a client that does not read */
    uint64_t opens, stats, writes; /* answered with what was asked for; writes: invalidated */
    uint64_t waited;               /* of these, how many had to wait */
    uint64_t declined;             /* requests left to the shared file system ... */
    uint64_t late, full;           /* ... because it took too long; because too many waited */
};

void vv_server_stats(struct vv_server *d, struct vv_server_stats *ret_stats);

/* ---- for whoever implements the functions ---- */

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

/* Which file a content file is a copy of, as its mark says: programs that got the descriptor from another
 * one know it by that, and so does the next life of a daemon. The server marks what it hands out whenever
 * the answer had to wait, which a first one has to. -ENODATA: no mark, or not its own; -EOPNOTSUPP: the file system has no
 * attributes; or the system's error. */
VV_WARN_UNUSED int vv_server_marked(int fd, struct vv_server_stat *ret_stat);
int vv_server_mark(int fd, const struct vv_server_stat *stat);

#endif
