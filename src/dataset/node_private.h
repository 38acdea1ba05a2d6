/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VV_DATASET_NODE_PRIVATE_H
#define VV_DATASET_NODE_PRIVATE_H

#include <stdatomic.h>

#include "base/heap.h"
#include "base/lock.h"
#include "dataset/gossip.h"
#include "dataset/node.h"
#include "dataset/paths.h"
#include "dataset/places.h"

/* Most bytes of a file in one answer. The first answer gives the size; the other pieces are requested after it. */
#define VVI_NODE_PIECE (UINT64_C(16) << 20)

/* ---- messages between nodes (docs/format/dataset-peer.md) ---- */

enum vvi_peer_type {
    VVI_PEER_GET = 16, /* a file, or only its description */
    VVI_PEER_DROP,     /* a file has been written to */
    VVI_PEER_HOLD,     /* which files do you hold whose home is here? */
    VVI_PEER_KEEP,     /* store a copy of this file of mine */
    VVI_PEER_BRING,    /* fetch these before they are requested */
    VVI_PEER_WILL,     /* a message: when I am gone, you are the home of these files */
    VVI_PEER_CHECK,    /* your bytes of this file were damaged: verify your copy */
};

enum {
    VVI_GET_HOME = 1,   /* asked as the file's home: the answer may be another node */
    VVI_GET_FETCH = 2,  /* waits for fetches and checks */
    VVI_GET_ONLY = 4,   /* fetches nothing: the file if it is there, or -ENOENT */
    VVI_GET_HAVE = 8,   /* the sender has this generation: do not send it again */
    VVI_GET_EXACT = 16, /* this generation or -ESTALE; only bytes */
    VVI_GET_STAT = 32,  /* no bytes */
    VVI_GET_FLAGS = 63,
};

/* Flags of DROP: see vv_owner_change. */
enum {
    VVI_DROP_TREE = 1,
    VVI_DROP_BEGINS = 2,
};

struct vvi_get {
    uint32_t flags;
    uint64_t load;   /* of the sender */
    uint64_t not_at; /* a node that did not answer, or did not have it; 0: none */
    uint64_t offset; /* of the first byte */
    struct vv_dataset_gen gen;
    const char *path;
};

enum vvi_what {
    VVI_GOT_FILE = 1, /* bytes follow, or STAT was asked for */
    VVI_GOT_SAME,     /* the sender's generation is current */
    VVI_GOT_AT,       /* ask that node */
    VVI_GOT_PASS,     /* read the shared file system; `why` */
};

struct vvi_got {
    enum vvi_what what;
    uint64_t load;   /* of the node that answers */
    uint64_t age_ns; /* since it was checked on the shared file system */
    uint64_t at;     /* a node */
    int why;         /* a negative errno */
    uint64_t sum;    /* of the whole file, taken when it was fetched; with bytes only */
    struct vv_shared_stat st;
};

/* Writes to, or reads from, a buffer. Once the buffer is too short, `bad` is set and nothing more is read or
 * written. */
struct vvi_pack {
    uint8_t *buf;
    size_t at, max;
    bool bad;
};

void vvi_wire_put(struct vvi_pack *p, uint64_t value, unsigned bytes);
uint64_t vvi_wire_take(struct vvi_pack *p, unsigned bytes);
void vvi_wire_put_path(struct vvi_pack *p, const char *path);
/* Into a buffer of VV_DATASET_PATH_MAX + 1; bad: too long, empty, not absolute, or containing a NUL. */
void vvi_wire_take_path(struct vvi_pack *p, char *path);
void vvi_wire_put_gen(struct vvi_pack *p, const struct vv_dataset_gen *gen);
void vvi_wire_take_gen(struct vvi_pack *p, struct vv_dataset_gen *gen);
void vvi_wire_put_stat(struct vvi_pack *p, const struct vv_shared_stat *st);
void vvi_wire_take_stat(struct vvi_pack *p, struct vv_shared_stat *st);
void vvi_wire_put_get(struct vvi_pack *p, const struct vvi_get *g);
void vvi_wire_take_get(struct vvi_pack *p, struct vvi_get *g, char *path);
void vvi_wire_put_got(struct vvi_pack *p, const struct vvi_got *g);
void vvi_wire_take_got(struct vvi_pack *p, struct vvi_got *g);

#define VVI_PEER_BODY_MAX (VV_DATASET_PATH_MAX + 512)

/* ---- the view of the nodes ---- */

/* Immutable except for the count. A node is named by its index in `rows`. */
struct vvi_view {
    atomic_uint refs;
    uint64_t epoch;
    bool fenced;
    uint32_t nr, self;
    struct vv_place *place;
    uint64_t *up; /* a set */
    struct vv_member_row *rows;
};

struct vvi_view *vvi_node_view_get(struct vv_node *n);
void vvi_node_view_put(struct vvi_view *v);
static inline bool vvi_node_view_up(const struct vvi_view *v, uint32_t node)
{
    return node < v->nr && vv_place_set_has(v->up, node);
}
/* The index of a node, or VV_PLACE_NONE. */
uint32_t vvi_node_view_find(const struct vvi_view *v, uint64_t id);
/* The home of a path; in mode redirect it may be down. VV_PLACE_NONE: there is none. */
uint32_t vvi_node_view_home(const struct vv_node *n, const struct vvi_view *v, const char *path);
/* Waits until the view has another epoch; false: `until_ns` came first. */
bool vvi_node_view_wait(struct vv_node *n, uint64_t epoch, uint64_t until_ns);

/* ---- work for other threads ---- */

enum vvi_queue_kind {
    VVI_QUEUE_FAST, /* jobs that never wait for the shared file system or another node */
    VVI_QUEUE_SLOW, /* jobs that may */
    VVI_QUEUE_LIST, /* listings of all files of the cache: one at a time, so that they delay no other job */
    VVI_QUEUE_COPY,  /* copies for this node to keep */
    VVI_QUEUE_BACK,  /* copies for others to keep; no program waits for them */
    VVI_QUEUE_LARGE, /* large files for this node; no program waits for them */
    VVI_QUEUES,
};

struct vvi_job {
    struct vvi_job *next;
    /* Must free the job. `stopping`: the node is being closed, and fn must do nothing else. */
    void (*fn)(struct vv_node *n, struct vvi_job *job, bool stopping);
    struct vv_net_req *req; /* NULL: none */
    uint64_t peer, epoch;   /* of the node that asks */
    uint16_t type;
    const void *body;
    size_t body_bytes;
    struct vv_shared_stat st;
    uint64_t looked_ns; /* when its state was checked */
    char path[];        /* "" if there is none */
};

struct vvi_queue {
    struct vv_node *node;
    struct vv_mutex lock;
    struct vv_cond more;
    /* Synchronization: lock. */
    struct vvi_job *first, **last;
    unsigned nr, room;
    unsigned threads, idle, max;
    bool stop;
    pthread_t thread[64];
};

struct vvi_job *vvi_node_job_new(const char *path);
/* -EBUSY: full; -ESHUTDOWN. On an error the caller still owns the job. */
VV_WARN_UNUSED int vvi_node_queue_push(struct vv_node *n, enum vvi_queue_kind kind,
                                       struct vvi_job *job);
/* True if jobs wait for a thread. */
bool vvi_node_queue_waits(struct vv_node *n, enum vvi_queue_kind kind);
int vvi_node_queue_start(struct vv_node *n);
/* Waits for running jobs, and has the others freed. */
void vvi_node_queue_stop(struct vv_node *n);

/* ---- files of other nodes, in memory ---- */

struct vvi_memory_file;

struct vvi_memory {
    struct vv_mutex lock;
    struct vv_cond landed;
    /* Synchronization: lock. */
    struct vvi_paths files, flights;
    struct vvi_memory_list {
        struct vvi_memory_file *newest, *oldest;
        uint64_t bytes, nr; /* bytes as pages */
    } used, ahead;   /* files that a program has opened; files that were brought before an open */
    uint64_t max;    /* files in both */
    uint64_t passed; /* current place in the order of this node */
};

void vvi_node_memory_init(struct vv_node *n);
void vvi_node_memory_fini(struct vv_node *n);
/* Returns a descriptor of a file in memory. 0: it may be handed out without asking; -ESTALE: its home has to confirm
 * that it is the same (no descriptor); -ENOENT. `ret_stat` is set in the first two cases. */
int vvi_node_memory_get(struct vv_node *n, const char *path, int *ret_fd,
                        struct vv_shared_stat *ret_stat);
/* The same for this generation, at any age. */
int vvi_node_memory_get_gen(struct vv_node *n, const char *path, const struct vv_dataset_gen *gen,
                            int *ret_fd);
/* Adds a received file, as a sealed memory file, which the caller still owns. `place`: its place in this node's
 * order, if no program has asked for it yet, or VV_DATASET_UNKNOWN. */
void vvi_node_memory_put(struct vv_node *n, const char *path, int memfd,
                         const struct vv_shared_stat *st, uint64_t age_ns, uint64_t place);
/* True if a file is there that a program will want at this place. */
bool vvi_node_memory_awaits(struct vv_node *n, const char *path, uint64_t place);
/* How many more files of the average size may be brought ahead. */
unsigned vvi_node_memory_room(struct vv_node *n);
/* The order has come to this place. Returns true if a good part of the room for files ahead is free. `ret_empty`:
 * programs have asked for all files that are there. */
bool vvi_node_memory_passed(struct vv_node *n, uint64_t place, bool *ret_empty);
/* Its home checked it `age_ns` ago, and it is the same. */
void vvi_node_memory_heard(struct vv_node *n, const char *path, const struct vv_shared_stat *st,
                           uint64_t age_ns);
void vvi_node_memory_drop(struct vv_node *n, const char *path);
void vvi_node_memory_drop_all(struct vv_node *n);
/* One thread at a time receives a path. True: the caller does, and must call land; false: another thread received
 * it, or `until_ns` came. */
bool vvi_node_memory_fly(struct vv_node *n, const char *path, uint64_t until_ns);
/* True if another thread is receiving it. */
bool vvi_node_memory_flies(struct vv_node *n, const char *path);
void vvi_node_memory_land(struct vv_node *n, const char *path);
/* Seals a memory file, and returns a descriptor to hand out. */
int vvi_node_memory_seal(int memfd, int *ret_fd);

/* ---- folders ---- */

/* The stat of a folder in an object store; -EISDIR: it is a folder elsewhere. */
int vvi_node_folder_stat(struct vv_node *n, const char *path, struct vv_server_stat *ret_stat,
                         bool *ret_readable);

/* ---- large files ---- */

struct vvi_behind {
    struct vv_mutex lock;
    /* Synchronization: lock. */
    struct vvi_paths paths; /* files that a thread is fetching, or will fetch */
};

void vvi_node_behind_init(struct vv_node *n);
void vvi_node_behind_fini(struct vv_node *n);
/* True if it is being fetched: programs read the shared file system meanwhile. */
bool vvi_node_behind_is(struct vv_node *n, const char *path);
/* True if a file is large, and this generation of it cannot be handed out at once. */
bool vvi_node_behind_wants(struct vv_node *n, const char *path, const struct vv_dataset_gen *gen);
/* Starts to fetch it from the shared file system (if `from` is this node) or as a copy from another node, unless that
 * is under way. */
void vvi_node_behind_add(struct vv_node *n, uint64_t from, const char *path,
                         const struct vv_shared_stat *st, uint64_t age_ns);

/* ---- a home ---- */

struct vvi_record {
    struct vvi_path path;
    uint64_t holder; /* a node's id */
    bool placed;     /* decided here, because of loads; not found there */
    bool asked;      /* since the clock hand passed it */
    bool fetching;   /* this node is copying it for itself */
};

struct vvi_home {
    struct vv_mutex lock;
    struct vv_cond pulled; /* the others have reported their files, or the view has changed */
    /* Synchronization: lock. */
    struct vvi_paths
        records;            /* files of this home that other nodes keep, or that were placed here */
    struct vvi_paths wills; /* files whose home this node becomes when another node goes */
    size_t max;             /* most entries of each; above it, old ones are dropped */
    size_t record_hand, will_hand; /* clock hands: the chains to look at next */
    uint64_t pulled_epoch;         /* the view in which all have reported */
    uint64_t nr_elsewhere;
    struct load {
        uint64_t id, bytes, heard_ns;
    } * loads;
    size_t nr_loads;
};

void vvi_node_home_init(struct vv_node *n);
void vvi_node_home_fini(struct vv_node *n);
void vvi_node_home_load(struct vv_node *n, uint64_t id, uint64_t bytes);
uint64_t vvi_node_home_load_of(struct vv_node *n, uint64_t id);
/* Finds where a file of this home is: 0 and a node's id, which may be this one's. If it is nowhere, `decide` places it;
 * otherwise -EAGAIN. May wait until `deadline_ns` for reports of other nodes; with 0 it does not wait:
 * -EINPROGRESS. `not_at`: a node that turned out not to have it. */
int vvi_node_home_where(struct vv_node *n, const char *path, uint64_t not_at, bool decide,
                        uint64_t deadline_ns, uint64_t *ret_id);
/* The recorded node, without any other action; 0: none. */
uint64_t vvi_node_home_known(struct vv_node *n, const char *path);
void vvi_node_home_forget(struct vv_node *n, const char *path);
/* Applies a change of a file here, not on other nodes. */
void vvi_node_drop(struct vv_node *n, const struct vv_owner_change *c);
/* A file that was placed here is here, or cannot be: the decision is removed. */
void vvi_node_home_decided(struct vv_node *n, const char *path);
/* Fetches a file of this home that is at another node. If it was placed there, only with `placed`. */
void vvi_node_home_fetch(struct vv_node *n, const char *path, uint64_t from, bool placed);
/* After a new view: asks the other nodes which files they hold, then updates copies and wills. On the keeper's
 * thread. */
void vvi_node_home_settle(struct vv_node *n);
/* Called after a file was fetched here. */
void vvi_node_home_brought(void *user, const char *path, const struct vv_shared_stat *st);
void vvi_node_home_will(struct vv_node *n, uint64_t from, const void *body, size_t bytes);

/* ---- asking and answering ---- */

/* Answers a request for a file or its description, as home or as holder. 0: `ret_got`, and a descriptor if it is FILE
 * and not STAT. -EINPROGRESS: the answer takes a fetch or a check, and FETCH is not set. */
int vvi_node_serve(struct vv_node *n, const struct vvi_get *g, uint64_t deadline_ns,
                   struct vvi_got *ret_got, int *ret_fd);
/* Handles a request that arrives, on the net's thread. */
void vvi_node_serve_request(void *user, struct vv_net_req *req, const struct vv_net_msg *m);
void vvi_node_serve_message(void *user, const struct vv_net_msg *m);

/* Asks a node once. 0: *ret_got. If that is FILE and there are bytes: either a sealed memory file (to hand out, and to
 * keep), or a descriptor of the local cache (keep is -1). Errors: those of vv_net_wait, of the other node, or of
 * storing the file. */
int vvi_node_ask(struct vv_node *n, uint64_t peer, const struct vvi_get *g, uint64_t deadline_ns,
                 struct vvi_got *ret_got, int *ret_fd, int *ret_keep);
/* The same in two steps, so that one thread can ask for several files. Each start that succeeds must be finished.
 * `g` and its path must live until then. */
struct vvi_asked {
    struct vv_net_call *call;
    uint64_t peer;
    const struct vvi_get *g;
    uint64_t deadline_ns, said_ns;
    uint64_t changes; /* vv_owner_changes before the request */
};
int vvi_node_ask_start(struct vv_node *n, uint64_t peer, const struct vvi_get *g,
                       uint64_t deadline_ns, struct vvi_asked *ret_asked);
int vvi_node_ask_finish(struct vv_node *n, struct vvi_asked *asked, struct vvi_got *ret_got,
                        int *ret_fd, int *ret_keep);
/* Receives a generation of a file into the cache of this node, to keep. `changes`: see vv_owner_heard. */
int vvi_node_ask_copy(struct vv_node *n, uint64_t peer, const char *path, uint64_t changes,
                      const struct vv_shared_stat *st, uint64_t age_ns);
/* The same as a copy that may be evicted. 0: it is stored, and verified. */
int vvi_node_ask_spare(struct vv_node *n, uint64_t peer, const char *path,
                       const struct vv_shared_stat *st, uint64_t age_ns);
/* A request with only a status as answer. */
int vvi_node_ask_short(struct vv_node *n, uint64_t peer, uint16_t type, const void *body,
                       size_t bytes, uint64_t deadline_ns);
/* Waits for the end of a call. -ECONNRESET also if membership has given up the peer, or this node is being closed.
 * Reports a deadline that has passed to membership. */
int vvi_node_ask_wait(struct vv_node *n, uint64_t peer, struct vv_net_call *call,
                      struct vv_net_answer *ret_answer);
/* True if the error means that the node did not answer. */
bool vvi_node_ask_is_silence(int rc);

/* ---- ahead of time ---- */

/* An order of use, and the threads that bring its files. */
struct vvi_ahead {
    struct vv_node *node;
    struct vv_mutex lock;
    struct vv_cond more;
    /* Synchronization: lock. */
    struct vv_heap items; /* files to bring, the next one first */
    struct vvi_places places;
    uint64_t from;   /* files wanted before this place are not brought */
    bool stop, full; /* full: there is no room until files have been used */
    unsigned threads;
    pthread_t thread[16];
};

void vvi_node_ahead_init(struct vv_node *n, struct vvi_ahead *a);
int vvi_node_ahead_start(struct vvi_ahead *a);
/* Ends its threads; from then on, additions are refused. */
void vvi_node_ahead_stop(struct vvi_ahead *a);
/* To be called when no thread can add to it any more. */
void vvi_node_ahead_fini(struct vvi_ahead *a);
/* Adds a file that is wanted at a place, or VV_DATASET_UNKNOWN. In the order of the job it is one of this home; with
 * `here`, one of another home, which has placed it here. */
int vvi_node_ahead_add(struct vvi_ahead *a, const char *path, uint64_t place, bool here);
/* A file wanted at this place was evicted. */
void vvi_node_ahead_again(void *user, const char *path, uint64_t place);
/* A file's place has passed: returns its next place, or VV_DATASET_UNKNOWN. */
uint64_t vvi_node_ahead_passed(void *user, const char *path);
/* A node asked for a file of this home. */
void vvi_node_ahead_used(struct vv_node *n, const char *path);
/* A program of this node got a file. `waited`: it was not here. */
void vvi_node_ahead_opened(struct vv_node *n, const char *path, bool waited);
/* Number of files that are still to be brought. */
uint64_t vvi_node_ahead_waiting(struct vvi_ahead *a);
/* Brings files that programs of this node will want at these places. Returns how many of them were brought now, or
 * -ENOTCONN: no node can be asked. */
#define VVI_NODE_TOGETHER 8
int vvi_node_get_ahead(struct vv_node *n, unsigned nr, const char *const *paths,
                       const uint64_t *places);

/* ---- all of it ---- */

struct vv_node {
    /* Immutable once open. */
    struct vv_node_opts opts;
    uint64_t id;
    char name[VV_MEMBER_NAME_MAX + 1];
    char addr[VV_MEMBER_ADDR_MAX + 1]; /* for other nodes */
    struct vv_dataset *cache;
    struct vv_shared *shared;
    struct vv_owner *owner;
    struct vv_net *net;       /* NULL: there are no other nodes */
    struct vv_gossip *gossip; /* NULL: as above */
    struct vvi_root {
        char *given, *resolved;
        uint64_t dev;
        bool sole; /* in an object store: programs find its files only here */
    } * roots;
    size_t nr_roots;

    struct vv_mutex lock;
    struct vv_cond changed; /* the view has changed, or the keeper has work */
    /* Synchronization: lock. */
    struct vvi_view *view;
    /* The last one in which the others have reported their files; NULL: none. */
    struct vvi_view *settled;
    bool settle, stop;
    pthread_t keeper;
    bool has_keeper;

    struct vvi_home home;
    struct vvi_memory memory;
    struct vvi_behind behind;
    struct vvi_ahead ahead; /* the order of the job: files of this home */
    struct vvi_ahead mine; /* the order in which programs of this node read: files of other homes */
    struct vvi_queue queue[VVI_QUEUES];
    atomic_bool closing, draining;
    bool left; /* the gossip was stopped: by draining, before closing */
    /* Synchronization: relaxed. */
    struct {
#define X(name, help) _Atomic uint64_t name;
        VV_NODE_COUNTERS(X)
#undef X
    } count;
};

#define VVI_COUNT(n, name) VVI_COUNT_BY(n, name, 1)
#define VVI_COUNT_BY(n, name, by) \
    atomic_fetch_add_explicit(&(n)->count.name, (by), memory_order_relaxed)

/* Bytes of files that this node keeps. */
uint64_t vvi_node_load(struct vv_node *n);
/* The form of a path that all nodes use: below a resolved root, or below a root of an object store. -EINVAL: outside of
 * the roots; -ENAMETOOLONG. */
int vvi_node_path(const struct vv_node *n, const char *path, char *ret_path);
/* True if programs have no other way to the file. */
bool vvi_node_is_sole(const struct vv_node *n, const char *path);
/* The device of a file, as this node sees it. */
uint64_t vvi_node_dev(const struct vv_node *n, const char *path);
bool vvi_same_gen(const struct vv_dataset_gen *a, const struct vv_dataset_gen *b);

#endif
