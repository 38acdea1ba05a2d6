/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the remote folder share: remote.c (contexts, entries, waiting), remote_open.c
 * (what is there), remote_work.c (the worker), remote_store.c (the stores). */
#ifndef VV_STORE_REMOTE_PRIVATE_H
#define VV_STORE_REMOTE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "store/budget.h"
#include "store/files/files_private.h"
#include "store/remote/ckcopy.h"
#include "store/remote/group.h"
#include "store/remote/remote.h"
#include "store/target/folder/target_folder.h"

/* A version that is committed in some folder. Its way: stored in the shared folder, marked there,
 * complete; the last two only where group records are wanted. */
struct vvi_rentry {
    uint64_t version, generation, run_id;
    struct vv_group_file file; /* file_bytes 0: not known yet */
    bool local;                /* the local folder has it, for all we know */
    uint64_t local_bytes;      /* that it counts for there; 0 without a limit */
    bool stored, marked, complete;
    bool reported;   /* `reached` was called, or need not be */
    bool doubtful;   /* something failed on the way: there may be a file there, stored or not */
    bool lacking;    /* the shared copy is known to be bad or gone: the local one has to stay */
    bool told;       /* err was */
    bool removing;   /* a removal is under way: it counts as gone */
    bool stuck;      /* the local file could not be removed: no room comes of it by itself */
    uint32_t misses; /* polls in a row that failed */
    int err;         /* why it goes no further; 0: it does */
    int remove_err;  /* why its removal from the shared folder failed, until that is tried again */
    uint64_t marked_ns, poll_ns, rest_ns;
};

/* A file of an earlier life that nobody will ask for again. */
struct vvi_rleft {
    uint64_t version, generation, run_id, local_bytes;
    bool local, remote;
};

/* A local file that is being written. */
struct vvi_radmitted {
    struct vvi_radmitted *next;
    struct vv_remote_hist *hist;
    uint64_t version, generation, bytes;
    bool stuck; /* its removal failed: no room comes of it by itself */
};

/* A bad copy to be put right. */
struct vvi_repair {
    struct vvi_repair *next;
    uint64_t version, generation;
    uint64_t from, to; /* bytes of data; 0, 0: the whole file */
    bool to_remote;    /* the bad one is in the shared folder */
};

/* What opening found, until it was listed. */
struct vvi_rfound {
    struct vv_files_entry e;
    struct vv_store_region *regions; /* owned; e.regions */
    bool local, remote, used;
};

struct vvi_rdamage {
    uint64_t version, generation;
    int status;
    char *what; /* owned */
};

struct vv_remote_hist {
    struct vv_remote *remote; /* immutable, down to damaged */
    struct vv_remote_hist_opts opts;
    uint32_t rank;                  /* whose files these are */
    bool part;                      /* for reading only; in no list */
    struct vv_files *local;         /* NULL: direct */
    struct vv_files *files;         /* in the shared folder, owned */
    struct vv_target *here, *there; /* the files of both; here NULL: direct, or a part that
                                     * has nothing there */
    struct vv_target_folder place[2];
    struct vv_group group;
    struct vvi_opened *opened;
    uint64_t run_id, first_generation;
    uint64_t
        known_first; /* local files below it that never came to the shared folder are out of date */
    struct vvi_rdamage *damaged;
    size_t ndamaged;
    struct vvi_rfound *found; /* owner: whoever opened */
    size_t nfound;
    bool known; /* the local folder says what this life has found there; owner: the worker */

    /* Synchronization: remote->lock, all below. */
    struct vv_remote_hist *next;
    struct vvi_rentry *entry; /* by generation */
    size_t n, room, low;      /* entries before `low` need nothing */
    size_t ncommits;          /* under way; there is room for the entry of each */
    struct vvi_rleft *left;
    size_t nleft;
    struct vvi_repair *repairs;
    unsigned waiters; /* for completeness */
    unsigned busy;    /* jobs that use it now */
    bool stopped, report, sweep;
    size_t report_from; /* entries before it are reported */
    uint64_t trace_history;
};

/* A removal on its way: the shared copy goes first, then the request is handed to the inner
 * store. */
struct vvi_rremove {
    struct vvi_rremove *next;
    struct vvi_rstore *store;
    struct vv_store_io *io;
    struct vv_remote_hist *hist;
    bool kept; /* something older of the version could not be removed: the local file stays, too */
};

/* A read that the shared folder serves. */
struct vvi_rread {
    struct vvi_rread *next;
    struct vvi_rstore *store;
    struct vv_store_io io; /* the request as the shared folder gets it */
    struct vv_store_io *orig;
    struct vv_remote_hist *hist;
    int local_status; /* why it came here; 0: there is no local copy */
    uint32_t local_bad;
    bool both; /* it took both folders to serve it */
};

/* One mover's store, wrapped. Owner: the mover's thread, but for what the lock protects. */
struct vvi_rstore {
    struct vv_store base;
    struct vv_remote *remote;
    struct vv_store *inner;
    /* Synchronization: remote->lock. */
    struct vv_store_io *done, **done_tail; /* to be reported */
    struct vvi_rremove *resume;            /* removals to go on with, in the inner store */
    unsigned away;                         /* requests with the worker or the reader */
    struct vv_store_io *held, **held_tail; /* writes that wait for room on local disk */
    _Atomic unsigned nheld;                /* how many; see struct vv_store */
    bool retry;                            /* they are to be tried again, or to fail with this: */
    int retry_status;
    struct vvi_rstore *next;
};

/* A history that this context has opened, or tried to. */
struct vvi_opened {
    struct vvi_opened *next;
    uint64_t name_sum; /* immutable */
    uint64_t times;    /* that it was opened; tries that failed do not count */
    bool begun;        /* the life file names the next life already: a try failed after that */
};

struct vv_remote {
    struct vv_remote_opts opts; /* immutable, down to reader */
    struct vv_folder *folder;
    struct vv_budget *budget; /* of the shared folder */
    uint64_t run_id;
    struct vv_store *read_store; /* owner: the reader's thread; NULL: direct */
    pthread_t worker, reader;
    bool has_worker, has_reader;

    struct vv_mutex lock;
    struct vv_cond work, changed, idle, reads_come; /* worker; waiters; closers; reader */
    /* Synchronization: lock, all below but the counters. */
    struct vv_remote_hist *hists;
    struct vvi_opened *opened;
    struct vvi_rremove *removals, **removals_tail;
    struct vvi_rread *reads, **reads_tail;
    bool reader_polls, stopping;
    struct vvi_rstore *stores;
    uint64_t used, wanted; /* bytes of local disk; what a held write needs, 0: none is */
    struct vvi_radmitted *admitted;
    bool space_due; /* the worker shall see to it */
    bool alone;     /* the engine has nothing under way but held writes, and so makes no room */

    struct vv_aio *aio; /* owner: the worker; of the copy under way */
    /* Owner: the worker. The copy that is under way. */
    struct {
        bool on, to_local;
        struct vv_remote_hist *hist;
        uint64_t version, generation;
        struct vvi_copy copy;
    } active;
    uint64_t free_ns; /* no copying before */
    bool yielded;     /* to restores of other processes, before this step */

    /* Synchronization: relaxed; each counts for itself. */
    _Atomic uint64_t written_bytes, read_bytes, healed_chunks, repaired_chunks;
};

/* ---- remote.c ---- */

struct vvi_rentry *vvi_remote_find(struct vv_remote_hist *hist, uint64_t version,
                                   uint64_t generation);
/* Makes room for so many more entries; -ENOMEM. */
VV_WARN_UNUSED int vvi_remote_reserve(struct vv_remote_hist *hist, size_t n);
/* Inserts an entry; NULL: no memory. */
struct vvi_rentry *vvi_remote_add(struct vv_remote_hist *hist, const struct vvi_rentry *entry);
void vvi_remote_erase(struct vv_remote_hist *hist, uint64_t version, uint64_t generation);
static inline bool vvi_remote_reached(const struct vv_remote_hist *hist, const struct vvi_rentry *e)
{
    return hist->remote->opts.complete ? e->complete : e->stored;
}
/* The same, and the engine knows. */
static inline bool vvi_remote_settled(const struct vv_remote_hist *hist, const struct vvi_rentry *e)
{
    return vvi_remote_reached(hist, e) && e->reported;
}
/* Has a later generation of the version reached it? Then the engine is about to remove this one. */
bool vvi_remote_passed_locked(const struct vv_remote_hist *hist, const struct vvi_rentry *e);
/* It has reached the level: the engine hears of it, and leftovers of earlier lives may go. */
void vvi_remote_reached_locked(struct vv_remote_hist *hist, const struct vvi_rentry *e);
/* There is work: wakes the worker. */
void vvi_remote_wake_locked(struct vv_remote_hist *hist, size_t index);

/* ---- remote_work.c ---- */

void *vvi_remote_worker(void *arg);
/* Asks for a repair; nothing happens if there is no memory for it. Lock held. */
void vvi_remote_repair_locked(struct vv_remote_hist *hist, const struct vvi_repair *repair);

/* ---- remote_space.c: the limit of local disk ---- */

/* May this write begin, or go on with, its file? False: it is held, or *ret_error is set. */
bool vvi_space_admit(struct vvi_rstore *s, struct vv_store_io *io, int *ret_error);
/* The file is committed and has so many bytes: what it counts for from now on. */
uint64_t vvi_space_committed_locked(struct vv_remote_hist *h, uint64_t version, uint64_t generation,
                                    uint64_t bytes);
/* A file that was never committed is gone, or could not be removed. */
void vvi_space_removed_locked(struct vv_remote_hist *h, uint64_t version, uint64_t generation,
                              bool gone);
/* The engine has nothing under way but held writes. */
void vvi_space_alone(struct vv_store *store);
/* The history is being closed. */
void vvi_space_forget_locked(struct vv_remote_hist *h);
/* There may be room now, or none will come: whoever is held back is looked at again. */
void vvi_space_wake_locked(struct vv_remote *r);
/* One step towards letting held writes go on. The worker's. */
void vvi_space_make(struct vv_remote *r);

/* ---- remote_store.c ---- */

void *vvi_remote_reader(void *arg);
/* A removal's shared part has ended. Any thread, lock not held. */
void vvi_rstore_removed(struct vvi_rremove *removal, int status);

#endif
