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

/* Bytes of a file that one answer has at most; the next ones are asked for when the first has told how many
 * there are. */
#define VVI_NODE_PIECE (UINT64_C(16) << 20)

/* ---- what nodes say to each other (docs/format/dataset-peer.md) ---- */

enum vvi_peer_type {
    VVI_PEER_GET = 16, /* a file, or what it is */
    VVI_PEER_DROP,     /* a file has been written to */
    VVI_PEER_HOLD,     /* what do you have of files that are at home at mine? */
    VVI_PEER_KEEP,     /* have a copy of this file of mine */
    VVI_PEER_BRING,    /* fetch these before they are asked for */
    VVI_PEER_WILL,     /* a message: these files will be yours when I am gone */
    VVI_PEER_CHECK,    /* what you sent of this file is damaged: verify what you have */
};

enum {
    VVI_GET_HOME = 1,   /* asked as the file's home: the answer may be where else it is */
    VVI_GET_FETCH = 2,  /* waits for what has to be fetched or looked at */
    VVI_GET_ONLY = 4,   /* nothing is fetched: what is there, or -ENOENT */
    VVI_GET_HAVE = 8,   /* whoever asks has this generation: no need to send it again */
    VVI_GET_EXACT = 16, /* this generation or -ESTALE; nothing but bytes */
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
    uint64_t load;   /* of whoever asks */
    uint64_t not_at; /* a node that did not answer, or did not have it; 0: none */
    uint64_t offset; /* of the first byte that is wanted */
    struct vv_dataset_gen gen;
    const char *path;
};

enum vvi_what {
    VVI_GOT_FILE = 1, /* bytes follow, or STAT was asked for */
    VVI_GOT_SAME,     /* what you have is good */
    VVI_GOT_AT,       /* ask that node */
    VVI_GOT_PASS,     /* read the shared file system; `why` */
};

struct vvi_got {
    enum vvi_what what;
    uint64_t load;   /* of whoever answers */
    uint64_t age_ns; /* since it was looked at on the shared file system */
    uint64_t at;     /* a node */
    int why;         /* a negative errno */
    uint64_t sum;    /* of all of the file, taken when it was brought; with bytes only */
    struct vv_shared_stat st;
};

/* Packs into, and takes from, a buffer; `bad` says that there was not enough, and nothing is read or written
 * from then on. */
struct vvi_pack {
    uint8_t *buf;
    size_t at, max;
    bool bad;
};

void vvi_wire_put(struct vvi_pack *p, uint64_t value, unsigned bytes);
uint64_t vvi_wire_take(struct vvi_pack *p, unsigned bytes);
void vvi_wire_put_path(struct vvi_pack *p, const char *path);
/* Into a buffer of VV_DATASET_PATH_MAX + 1; bad: too long, empty, not absolute, or with a NUL in it. */
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

/* ---- who is there ---- */

/* Immutable but for the count. Nodes are known by their number in `rows`. */
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
/* The number of a node, or VV_PLACE_NONE. */
uint32_t vvi_node_view_find(const struct vvi_view *v, uint64_t id);
/* The home of a path; in mode redirect it may be down. VV_PLACE_NONE: none is there. */
uint32_t vvi_node_view_home(const struct vv_node *n, const struct vvi_view *v, const char *path);
/* Waits until another view than that of this epoch is there; false: `until_ns` came first. */
bool vvi_node_view_wait(struct vv_node *n, uint64_t epoch, uint64_t until_ns);

/* ---- work for other threads ---- */

enum vvi_queue_kind {
    VVI_QUEUE_FAST, /* what never waits for the shared file system or another node */
    VVI_QUEUE_SLOW, /* what may */
    VVI_QUEUE_LIST, /* going through all files of the cache: one at a time, in no other job's way */
    VVI_QUEUE_COPY, /* copies for this node to keep */
    VVI_QUEUE_BACK, /* copies for others to keep; no program waits for them */
    VVI_QUEUE_LARGE, /* large files for this node; no program waits for them */
    VVI_QUEUES,
};

struct vvi_job {
    struct vvi_job *next;
    /* Frees the job. `stopping`: the node is being closed, it shall do nothing but that. */
    void (*fn)(struct vv_node *n, struct vvi_job *job, bool stopping);
    struct vv_net_req *req; /* NULL: none */
    uint64_t peer, epoch;   /* of whoever asks */
    uint16_t type;
    const void *body;
    size_t body_bytes;
    struct vv_shared_stat st;
    uint64_t looked_ns; /* when that was so */
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
/* -EBUSY: full; -ESHUTDOWN. The job is then still the caller's. */
VV_WARN_UNUSED int vvi_node_queue_push(struct vv_node *n, enum vvi_queue_kind kind,
                                       struct vvi_job *job);
/* Whether jobs wait for a thread. */
bool vvi_node_queue_waits(struct vv_node *n, enum vvi_queue_kind kind);
int vvi_node_queue_start(struct vv_node *n);
/* Lets running jobs end and the others be freed. */
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
    } used, ahead;   /* files that a program has had, and those that were brought before it asks */
    uint64_t max;    /* files in both */
    uint64_t passed; /* the place that the order of this node has come to */
};

void vvi_node_memory_init(struct vv_node *n);
void vvi_node_memory_fini(struct vv_node *n);
/* A descriptor of a file that is here. 0: it counts without asking; -ESTALE: its home has to say that it is
 * the same (no descriptor); -ENOENT. `ret_stat` in the first two cases. */
int vvi_node_memory_get(struct vv_node *n, const char *path, int *ret_fd,
                        struct vv_shared_stat *ret_stat);
/* One of this generation, whatever its age. */
int vvi_node_memory_get_gen(struct vv_node *n, const char *path, const struct vv_dataset_gen *gen,
                            int *ret_fd);
/* What was received, as a sealed memory file, which is the caller's as before. `place`: where this node's order has it, if
 * no program has asked for it yet, or VV_DATASET_UNKNOWN. */
void vvi_node_memory_put(struct vv_node *n, const char *path, int memfd,
                         const struct vv_shared_stat *st, uint64_t age_ns, uint64_t place);
/* Whether a file is there, for the program that will want it at this place. */
bool vvi_node_memory_awaits(struct vv_node *n, const char *path, uint64_t place);
/* How many files more, of the size of those before them, may be brought before programs ask. */
unsigned vvi_node_memory_room(struct vv_node *n);
/* The order has come to this place. Returns whether there is room for a good part of what may be brought. `ret_empty`: none
 * is there that a program has not asked for yet. */
bool vvi_node_memory_passed(struct vv_node *n, uint64_t place, bool *ret_empty);
/* Its home has looked, so long ago, and it is the same. */
void vvi_node_memory_heard(struct vv_node *n, const char *path, const struct vv_shared_stat *st,
                           uint64_t age_ns);
void vvi_node_memory_drop(struct vv_node *n, const char *path);
void vvi_node_memory_drop_all(struct vv_node *n);
/* One thread at a time receives a path. True: this one does, and calls land; false: another one did, or
 * `until_ns` came. */
bool vvi_node_memory_fly(struct vv_node *n, const char *path, uint64_t until_ns);
/* Whether another thread receives it. */
bool vvi_node_memory_flies(struct vv_node *n, const char *path);
void vvi_node_memory_land(struct vv_node *n, const char *path);
/* A sealed file of memory from what lies in it, and a descriptor to hand out. */
int vvi_node_memory_seal(int memfd, int *ret_fd);

/* ---- folders ---- */

/* What stat tells of a folder in an object store; -EISDIR: it is another one. */
int vvi_node_folder_stat(struct vv_node *n, const char *path, struct vv_server_stat *ret_stat,
                         bool *ret_readable);

/* ---- large files ---- */

struct vvi_behind {
    struct vv_mutex lock;
    /* Synchronization: lock. */
    struct vvi_paths paths; /* of files that a thread brings, or will */
};

void vvi_node_behind_init(struct vv_node *n);
void vvi_node_behind_fini(struct vv_node *n);
/* Whether it is being brought: programs read the shared file system meanwhile. */
bool vvi_node_behind_is(struct vv_node *n, const char *path);
/* Whether a file is large, and this generation of it cannot be handed out at once. */
bool vvi_node_behind_wants(struct vv_node *n, const char *path, const struct vv_dataset_gen *gen);
/* Has it brought from the shared file system (`from` is this node) or as a copy from another node, unless it is being
 * brought. */
void vvi_node_behind_add(struct vv_node *n, uint64_t from, const char *path,
                         const struct vv_shared_stat *st, uint64_t age_ns);

/* ---- a home ---- */

struct vvi_record {
    struct vvi_path path;
    uint64_t holder; /* a node's id */
    bool placed;     /* decided here, because of loads; not found there */
    bool asked;      /* for it, since the hand came by */
    bool fetching;   /* this node is taking a copy for itself */
};

struct vvi_home {
    struct vv_mutex lock;
    struct vv_cond pulled; /* the others have told what they hold, or the view has changed */
    /* Synchronization: lock. */
    struct vvi_paths
        records; /* files of this home that others keep, or that are decided to be here */
    struct vvi_paths wills;        /* files that will be at home here when another node goes */
    size_t max;                    /* entries of either; more make room */
    size_t record_hand, will_hand; /* the chains that they come to next */
    uint64_t pulled_epoch;         /* the view in which all have told */
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
/* Where a file of this home is: 0 and a node's id, which may be this one's. With `decide` it is placed if it
 * is nowhere; without, -EAGAIN. May wait for what the others hold, until `deadline_ns`; with 0 it does not:
 * -EINPROGRESS. `not_at`: it was not there. */
int vvi_node_home_where(struct vv_node *n, const char *path, uint64_t not_at, bool decide,
                        uint64_t deadline_ns, uint64_t *ret_id);
/* Where it is known to be, without doing anything about it: 0 is nowhere known. */
uint64_t vvi_node_home_known(struct vv_node *n, const char *path);
void vvi_node_home_forget(struct vv_node *n, const char *path);
/* A change of a file, here and not at other nodes. */
void vvi_node_drop(struct vv_node *n, const struct vv_owner_change *c);
/* What was decided to be here is here, or cannot be: the decision has had its day. */
void vvi_node_home_decided(struct vv_node *n, const char *path);
/* A file of this home is at another node: have it here as well. If it was placed there, only with `placed`. */
void vvi_node_home_fetch(struct vv_node *n, const char *path, uint64_t from, bool placed);
/* A new view: asks the others what they hold; then, who gets copies and wills now. On the keeper's thread. */
void vvi_node_home_settle(struct vv_node *n);
/* A file has been brought here. */
void vvi_node_home_brought(void *user, const char *path, const struct vv_shared_stat *st);
void vvi_node_home_will(struct vv_node *n, uint64_t from, const void *body, size_t bytes);

/* ---- asking and answering ---- */

/* A file, or what it is, from this node; as home, as holder, whichever way it was asked. 0: `ret_got`, and a
 * descriptor if it is FILE and not STAT. -EINPROGRESS: not without FETCH. */
int vvi_node_serve(struct vv_node *n, const struct vvi_get *g, uint64_t deadline_ns,
                   struct vvi_got *ret_got, int *ret_fd);
/* Requests that arrive. On the net's thread. */
void vvi_node_serve_request(void *user, struct vv_net_req *req, const struct vv_net_msg *m);
void vvi_node_serve_message(void *user, const struct vv_net_msg *m);

/* Asks a node, once. 0: *ret_got, and if it is FILE and there are bytes, a sealed memory file (to hand out, and
 * to keep), or a descriptor of the local cache (keep is -1). Errors are those of vv_net_wait, what the node
 * said, or of storing it. */
int vvi_node_ask(struct vv_node *n, uint64_t peer, const struct vvi_get *g, uint64_t deadline_ns,
                 struct vvi_got *ret_got, int *ret_fd, int *ret_keep);
/* The same in two steps, so that one thread can ask for several files: after a start that succeeded the question has to be
 * finished. `g` and its path have to live until then. */
struct vvi_asked {
    struct vv_net_call *call;
    uint64_t peer;
    const struct vvi_get *g;
    uint64_t deadline_ns, said_ns;
    uint64_t changes; /* of the file, before anybody was asked */
};
int vvi_node_ask_start(struct vv_node *n, uint64_t peer, const struct vvi_get *g,
                       uint64_t deadline_ns, struct vvi_asked *ret_asked);
int vvi_node_ask_finish(struct vv_node *n, struct vvi_asked *asked, struct vvi_got *ret_got,
                        int *ret_fd, int *ret_keep);
/* Receives a generation of a file into the cache of this node, to keep. `changes`: see vv_owner_heard. */
int vvi_node_ask_copy(struct vv_node *n, uint64_t peer, const char *path, uint64_t changes,
                      const struct vv_shared_stat *st, uint64_t age_ns);
/* The same as a copy that goes first when room is needed. 0: it is kept, and verified. */
int vvi_node_ask_spare(struct vv_node *n, uint64_t peer, const char *path,
                       const struct vv_shared_stat *st, uint64_t age_ns);
/* A short question with a short answer. */
int vvi_node_ask_short(struct vv_node *n, uint64_t peer, uint16_t type, const void *body,
                       size_t bytes, uint64_t deadline_ns);
/* Waits for the end of a call, or of the node that it was made to, which is then reported. */
int vvi_node_ask_wait(struct vv_node *n, uint64_t peer, struct vv_net_call *call,
                      struct vv_net_answer *ret_answer);
/* Whether an error says that the node did not answer, rather than what it answered. */
bool vvi_node_ask_is_silence(int rc);

/* ---- ahead of time ---- */

/* An order of use, and the threads that bring what it names. */
struct vvi_ahead {
    struct vv_node *node;
    struct vv_mutex lock;
    struct vv_cond more;
    /* Synchronization: lock. */
    struct vv_heap items; /* to be brought, the next one first */
    struct vvi_places places;
    uint64_t from;   /* what is wanted before this place is not brought */
    bool stop, full; /* full: there is no room until files have been used */
    unsigned threads;
    pthread_t thread[16];
};

void vvi_node_ahead_init(struct vv_node *n, struct vvi_ahead *a);
int vvi_node_ahead_start(struct vvi_ahead *a);
/* Ends its threads; what others add is refused from then on. */
void vvi_node_ahead_stop(struct vvi_ahead *a);
/* When nobody can add any more. */
void vvi_node_ahead_fini(struct vvi_ahead *a);
/* A file that is wanted at a place, or VV_DATASET_UNKNOWN; in the order of the job, one of this home. `here`: of another
 * home, which has decided that it is kept here. */
int vvi_node_ahead_add(struct vvi_ahead *a, const char *path, uint64_t place, bool here);
/* One that is wanted at a place had to make room. */
void vvi_node_ahead_again(void *user, const char *path, uint64_t place);
/* One was passed over: its next place, or VV_DATASET_UNKNOWN. */
uint64_t vvi_node_ahead_passed(void *user, const char *path);
/* A file of this home was asked for, by any node. */
void vvi_node_ahead_used(struct vv_node *n, const char *path);
/* A program of this node was given a file, which was here, or it had to wait. */
void vvi_node_ahead_opened(struct vv_node *n, const char *path, bool waited);
/* How many are still to be brought. */
uint64_t vvi_node_ahead_waiting(struct vvi_ahead *a);
/* Brings files as if programs of this node asked for them, which will want them at these places. Returns how many are here
 * that were not, or -ENOTCONN: no node can be asked. */
#define VVI_NODE_TOGETHER 8
int vvi_node_get_ahead(struct vv_node *n, unsigned nr, const char *const *paths,
                       const uint64_t *places);

/* ---- all of it ---- */

struct vv_node {
    /* Immutable once open. */
    struct vv_node_opts opts;
    uint64_t id;
    char name[VV_MEMBER_NAME_MAX + 1];
    char addr[VV_MEMBER_ADDR_MAX + 1]; /* where others reach it */
    struct vv_dataset *cache;
    struct vv_shared *shared;
    struct vv_owner *owner;
    struct vv_net *net;       /* NULL: there are no other nodes */
    struct vv_gossip *gossip; /* likewise */
    struct vvi_root {
        char *given, *resolved;
        uint64_t dev;
        bool sole; /* in an object store: programs find it here alone */
    } * roots;
    size_t nr_roots;

    struct vv_mutex lock;
    struct vv_cond changed; /* the view, or the keeper shall look */
    /* Synchronization: lock. */
    struct vvi_view *view;
    struct vvi_view
        *settled; /* the last one in which the others have told what they hold; NULL: none */
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
    bool left; /* the gossip was stopped; by draining, before closing */
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
/* The form of a path that all nodes use: below a root as resolved, or a root of an object store itself. -EINVAL: below
 * none; -ENAMETOOLONG. */
int vvi_node_path(const struct vv_node *n, const char *path, char *ret_path);
/* Whether programs get it here or nowhere. */
bool vvi_node_is_sole(const struct vv_node *n, const char *path);
/* The device of a file, as this node sees it. */
uint64_t vvi_node_dev(const struct vv_node *n, const char *path);
bool vvi_same_gen(const struct vv_dataset_gen *a, const struct vv_dataset_gen *b);

#endif
