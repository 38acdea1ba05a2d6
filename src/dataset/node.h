/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One node of the dataset cache: its cache, its owner of files, and its connections to the other nodes of the job. A
 * caller that asks it for a file gets a descriptor, from its own disk or from another node, or has to read the shared
 * file system; it never gets an error that the shared file system would not give.
 *
 * A file has a *home*, the node that rendezvous hashing chooses among those that are up. The home has the file, or has
 * decided which other node keeps it, and has a record of that; so a reader needs two hops at most. docs/dataset.md
 * describes it for users, docs/format/dataset-peer.md the messages between nodes.
 *
 * Invariants: a descriptor is one generation of one file, whole and verified, that was current at some time within the
 * last `revalidate`. A call ends at its deadline, whatever the other nodes do.
 *
 * Threads: any, for all calls except opening and closing.
 */
#ifndef VV_DATASET_NODE_H
#define VV_DATASET_NODE_H

#include "dataset/dataset.h"
#include "dataset/member.h"
#include "dataset/owner.h"
#include "dataset/server.h"
#include "dataset/shared_fs.h"
#include "net/net.h"
#include "policy/place.h"

/* Fate of the files of a node that is gone. */
enum vv_node_mode {
    VV_NODE_REDIRECT, /* they are read from the shared file system, until it is back */
    VV_NODE_RECACHE,  /* other nodes fetch and keep them */
};

struct vv_node_opts {
    const char *name;      /* unique among the nodes; must not change while the node has files */
    const char *listen;    /* "host:port", port 0: any; NULL: there are no other nodes */
    const char *advertise; /* address that other nodes connect to; NULL: `listen` */
    enum vv_net_transport transport;
    const void *token; /* secret of the job */
    size_t token_bytes;
    const struct vv_member_info *peers; /* first members; only names and addresses count */
    size_t nr_peers;
    const char *folder; /* of the cache, on local disk */
    struct vv_dataset_opts dataset;
    const char *const *roots; /* see vv_root_parse */
    size_t nr_roots;
    uint64_t revalidate_ns; /* 0: files never change */
    enum vv_node_mode mode;
    unsigned replicas; /* copies of a file on different nodes; 0: 1 */
    struct vv_place_opts place;
    uint64_t expected;    /* bytes of all files that the job will read; 0: not known */
    uint64_t memory;      /* for files of other nodes that may be opened again */
    uint64_t memory_file; /* larger files of other nodes go through the disk */
    /* A program does not wait for a larger file that is not here: it reads the shared file system while the file is
     * fetched; 0: all programs wait. */
    uint64_t direct_above;
    uint64_t patience_ns; /* how long a call waits for nodes that do not answer; 0: 4 s */
    uint64_t period_ns;   /* interval of pings between nodes; 0: the default of member.h */
    unsigned workers;     /* files that are fetched at once on request; 0: 32 */
    unsigned ahead;       /* files that are fetched at once before any request; 0: 4 */
    bool lazy;            /* lost files are fetched when they are requested, not before */
};

struct vv_node;

/* Opens the cache, listens, and contacts the other nodes. Returns the errors of vv_dataset_open, vv_shared_roots_new,
 * vv_net_open and vv_place_new, with a text in `err`. */
VV_WARN_UNUSED int vv_node_open(const struct vv_node_opts *opts, char *err, size_t err_bytes,
                                struct vv_node **ret_node);
/* Announces that it leaves, and ends all calls that wait. No call may begin after it. Descriptors that were handed out
 * stay valid. Accepts NULL. */
void vv_node_close(struct vv_node *n);

/* ---- for programs on this node ---- */

/* Returns a descriptor, read-only, at the beginning of the file, and a description of the file. The caller closes it.
 * After any error the caller has to read the shared file system.
 *   -EAGAIN    with `now`: it cannot be had without waiting
 *   -ELOOP     with `nofollow`: there was a link on the way
 *   -ENOTCONN  this node is fenced, or the file's node is gone (redirect)
 *   -EFBIG, -ENOSPC, -ETIMEDOUT, errors of the shared file system */
VV_WARN_UNUSED int vv_node_get(struct vv_node *n, const struct vv_server_ask *ask, int *ret_fd,
                               struct vv_shared_stat *ret_stat);
VV_WARN_UNUSED int vv_node_stat(struct vv_node *n, const struct vv_server_ask *ask,
                                struct vv_shared_stat *ret_stat);
/* The file has been written to: its old content is not handed out any more. -ETIMEDOUT: a node has not answered; if it
 * runs, it may hand the old content out for at most `revalidate`. */
int vv_node_invalidate(struct vv_node *n, const char *path, uint64_t deadline_ns);
/* The same, for one kind of change and all names that it concerns. */
int vv_node_change(struct vv_node *n, const struct vv_owner_change *c, uint64_t deadline_ns);

/* These calls as a table for the server, and the index for clients (with opts.dataset.index); `user` is the
 * node. */
extern const struct vv_server_ops vv_node_server_ops;
/* Lists a folder of an object store, in the form that the server hands out (vv_server_folder). */
VV_WARN_UNUSED int vv_node_list(struct vv_node *n, const struct vv_server_ask *ask, int *ret_fd,
                                struct vv_server_stat *ret_stat);
void vv_node_show(void *user, const char *path);

/* ---- administration ---- */

/* Adds a member to contact. */
VV_WARN_UNUSED int vv_node_add(struct vv_node *n, const struct vv_member_info *info);
/* Removes a name from the membership, on all nodes; a node that still runs comes back. -ENOENT: it is not known;
 * -EINVAL: it is this node; -EBUSY: it is up; -EALREADY: it is forgotten. */
VV_WARN_UNUSED int vv_node_forget(struct vv_node *n, const char *name);
/* The address for other nodes; "" if there are none. */
const char *vv_node_addr(const struct vv_node *n);

/* Gives every file of the cache to the node that will be its home when this one has left, if that node has room, and
 * leaves. Calls are declined from then on. Returns the number of files that it gave. */
VV_WARN_UNUSED int64_t vv_node_drain(struct vv_node *n, uint64_t deadline_ns);

/* To be called before closing: calls that wait for other nodes, as vv_node_drain does, stop waiting and return soon. */
void vv_node_hurry(struct vv_node *n);

/* Has files brought to their homes before they are requested. They are wanted in this order, the first of them at
 * `place`. Files outside of the roots are skipped. Returns when all homes have the list. */
VV_WARN_UNUSED int vv_node_bring(struct vv_node *n, const char *const *paths, size_t nr,
                                 uint64_t place);

/* Has files brought to this node before its programs request them, in this order, as far as there is room: free space
 * of its disk, or half of `memory`. Their homes fetch files that they do not have. -ENOSPC: `memory` is 0. */
VV_WARN_UNUSED int vv_node_bring_here(struct vv_node *n, const char *const *paths, size_t nr,
                                      uint64_t place);

/* Verifies `bytes` of the cache. See vv_dataset_scrub. */
int vv_node_scrub(struct vv_node *n, uint64_t bytes, bool *ret_around);

/* X(name, help): counters since opening. */
#define VV_NODE_COUNTERS(X)                                                                      \
    X(opens, "Files handed out.")                                                                \
    X(local, "Of these, from the disk of this node.")                                            \
    X(memory, "Of these, of another node, from memory.")                                         \
    X(remote, "Of these, received from another node.")                                           \
    X(remote_bytes, "Bytes received from other nodes for programs on this one.")                 \
    X(stats, "Questions about files answered.")                                                  \
    X(invalidated, "Files that programs have written to.")                                       \
    X(served, "Files sent to other nodes.")                                                      \
    X(served_bytes, "Bytes sent to other nodes.")                                                \
    X(hops, "Files that were not at their home: one hop more.")                                  \
    X(placed, "Files that this node, their home, had another node keep.")                        \
    X(copied, "Copies of files taken over from other nodes to keep.")                            \
    X(ahead, "Files brought before they were asked for.")                                        \
    X(rejected, "Files received from other nodes that did not match their checksum.")            \
    X(behind, "Large files brought while programs read the shared file system.")                 \
    X(retried, "Questions asked again, because a node did not answer or has just come or gone.") \
    X(second, "Files received from a second copy, because the first did not answer.")            \
    X(passed_fenced, "Left to the shared file system: this node is cut off from most.")          \
    X(passed_leaving, "Left to the shared file system: this node gives its files to others.")    \
    X(passed_redirect, "Left to the shared file system: the file's node is gone.")               \
    X(passed_large, "Left to the shared file system: larger than max_file.")                     \
    X(passed_full, "Left to the shared file system: no room.")                                   \
    X(passed_behind, "Left to the shared file system: large, and being brought.")                \
    X(passed_late, "Left to the shared file system: no answer in time.")                         \
    X(passed_changing, "Left to the shared file system: being changed, or just changed.")        \
    X(passed_error, "Left to the shared file system: another error of it, or of a node.")        \
    X(passed_missing, "No such file, or a folder: the shared file system reports it itself.")    \
    X(passed_denied, "Not a regular file, outside of the roots, or not readable.")               \
    X(passed_link, "Asked for without links, and there was one on the way.")                     \
    X(views, "Changes of the set of nodes.")

struct vv_node_counters {
#define X(name, help) uint64_t name;
    VV_NODE_COUNTERS(X)
#undef X
};

struct vv_node_row {
    struct vv_member_row member;
    bool self;
    uint64_t load; /* bytes on its disk, as last reported to this node */
};

struct vv_node_status {
    uint64_t epoch;
    bool fenced, draining;
    uint64_t waiting;   /* files still to be brought */
    uint64_t elsewhere; /* files of this home that others keep, as far as recorded here */
    uint64_t memory_files, memory_bytes;
    struct vv_node_counters counters;
    struct vv_dataset_stats cache;
    struct vv_owner_stats owner;
    struct vv_net_stats net;
    size_t nr;
    struct vv_node_row rows[];
};

/* Freed with free(). -ENOMEM. */
VV_WARN_UNUSED int vv_node_status(struct vv_node *n, struct vv_node_status **ret_status);

/* The home of a path in the view of this node. -ENOENT: none. The name stays valid as long as the
 * node. */
VV_WARN_UNUSED int vv_node_home(struct vv_node *n, const char *path, uint64_t *ret_id);
/* True if the path lies below a root, judging by its name alone. */
bool vv_node_serves(const struct vv_node *n, const char *path);

#endif
