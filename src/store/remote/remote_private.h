/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the remote folder: remote.c (contexts, entries, waiting), remote_open.c (opening),
 * remote_work.c (the worker), remote_store.c (the stores), remote_space.c (the limit of local disk). */
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

/* A version that is committed in some folder. Its stages: stored in the shared folder, marked there,
 * complete; the last two only if group records are written. */
struct vvi_rentry {
    uint64_t version, generation, run_id;
    struct vv_group_file file; /* file_bytes 0: not known yet */
    bool local;                /* the local folder has it, as far as known */
    uint64_t local_bytes;      /* counted against the limit there; 0 without a limit */
    bool stored, marked, complete;
    bool reported; /* `reached` was called, or need not be */
    bool doubtful; /* a step failed: a file may be there, stored or not */
    bool lacking;  /* the shared copy is known to be bad or missing: the local one has to stay */
    bool err_reported;
    bool removing; /* a removal is in flight: it counts as removed */
    bool stuck;    /* the local file could not be removed: its space does not come back by itself */
    uint32_t misses; /* failed polls in a row */
    int err;         /* error that stopped it; 0: it goes on */
    int remove_err;  /* error of its removal from the shared folder, until that is tried again */
    uint64_t marked_ns, poll_ns, rest_ns;
};

/* A file of an earlier life that is no longer needed. */
struct vvi_rleft {
    uint64_t version, generation, run_id, local_bytes;
    bool local, remote;
};

/* A local file that is being written. */
struct vvi_radmitted {
    struct vvi_radmitted *next;
    struct vv_remote_hist *hist;
    uint64_t version, generation, bytes;
    bool stuck; /* its removal failed: its space does not come back by itself */
};

/* A bad copy to repair. */
struct vvi_repair {
    struct vvi_repair *next;
    uint64_t version, generation;
    uint64_t from, to; /* bytes of data; 0, 0: the whole file */
    bool to_remote;    /* the bad one is in the shared folder */
};

/* A file found at opening, until the versions are listed. */
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
    bool part;                      /* read-only; in no list */
    bool records;                   /* level complete, or its records were found */
    struct vv_files *local;         /* NULL: direct */
    struct vv_files *files;         /* in the shared folder, owned */
    struct vv_target *here, *there; /* the files of both; here NULL: direct, or a part that
                                     * has no files there */
    struct vv_target_folder place[2];
    struct vv_group group;
    struct vvi_opened *opened;
    uint64_t run_id, first_generation;
    /* Local files of a lower generation that never came to the shared folder are outdated. */
    uint64_t known_first;
    struct vvi_rdamage *damaged;
    size_t ndamaged;
    struct vvi_rfound *found; /* owner: the opening thread */
    size_t nfound;
    bool known; /* the local life file has the generations of this life; owner: the worker */

    /* Synchronization: remote->lock, all below. */
    struct vv_remote_hist *next;
    struct vvi_rentry *entry; /* by generation */
    size_t n, room, low;      /* entries before `low` need no work */
    size_t ncommits;          /* in flight; the entry of each has room */
    struct vvi_rleft *left;
    size_t nleft;
    struct vvi_repair *repairs;
    unsigned waiters; /* for completeness */
    unsigned busy;    /* jobs that use it now */
    bool stopped, report, sweep;
    size_t report_from; /* entries before it are reported */
    uint64_t trace_history;
};

/* A removal in flight: the shared copy is removed first, then the request goes to the inner store. */
struct vvi_rremove {
    struct vvi_rremove *next;
    struct vvi_rstore *store;
    struct vv_store_io *io;
    struct vv_remote_hist *hist;
    bool kept; /* an older file of the version could not be removed: the local file stays, too */
};

/* A read that the shared folder serves. */
struct vvi_rread {
    struct vvi_rread *next;
    struct vvi_rstore *store;
    struct vv_store_io io; /* the request for the store on the shared folder */
    struct vv_store_io *orig;
    struct vv_remote_hist *hist;
    uint64_t run_id;  /* of the version */
    int local_status; /* error of the local copy; 0: there is none */
    uint32_t local_bad;
    bool both; /* chunks of both folders were combined */
};

/* One mover's store, wrapped. Owner: the mover's thread, except where the lock is named. */
struct vvi_rstore {
    struct vv_store base;
    struct vv_remote *remote;
    struct vv_store *inner;
    /* Synchronization: remote->lock. */
    struct vv_store_io *done, **done_tail; /* to be reported */
    struct vvi_rremove *resume;            /* removals to continue in the inner store */
    unsigned away;                         /* requests at the worker or the reader */
    struct vv_store_io *held, **held_tail; /* writes that wait for room on local disk */
    _Atomic unsigned nheld;                /* their number; see struct vv_store */
    bool retry;                            /* try the held writes again, or fail them with: */
    int retry_status;
    struct vvi_rstore *next;
};

/* A history that this context has opened, or tried to open. */
struct vvi_opened {
    struct vvi_opened *next;
    uint64_t name_sum; /* immutable */
    uint64_t times;    /* number of openings; failed tries do not count */
    bool begun;        /* a failed try has already written the next life to the life file */
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
    /* Synchronization: lock, all below that do not say otherwise. */
    struct vv_remote_hist *hists;
    struct vvi_opened *opened;
    struct vvi_rremove *removals, **removals_tail;
    struct vvi_rread *reads, **reads_tail;
    bool reader_polls, stopping;
    struct vvi_rstore *stores;
    uint64_t used, wanted; /* bytes of local disk; bytes that a held write needs, 0: none held */
    struct vvi_radmitted *admitted;
    bool space_due; /* the worker has to make room */
    bool alone;     /* only held writes are in flight in the engine, so it makes no room */

    struct vv_aio *aio; /* owner: the worker; for the current copy */
    /* The current copy. Owner: the worker, down to `yielded`. */
    struct {
        bool on, to_local;
        struct vv_remote_hist *hist;
        uint64_t version, generation;
        struct vvi_copy copy;
    } active;
    uint64_t free_ns; /* earliest time of the next copy step */
    bool yielded;     /* to restores of other processes, before this step */

    /* Synchronization: relaxed; independent counters. */
    _Atomic uint64_t written_bytes, read_bytes, healed_chunks, repaired_chunks;
};

/* ---- remote.c ---- */

struct vvi_rentry *vvi_remote_find(struct vv_remote_hist *hist, uint64_t version,
                                   uint64_t generation);
/* Makes room for n more entries; -ENOMEM. */
VV_WARN_UNUSED int vvi_remote_reserve(struct vv_remote_hist *hist, size_t n);
/* Inserts an entry; NULL: out of memory. */
struct vvi_rentry *vvi_remote_add(struct vv_remote_hist *hist, const struct vvi_rentry *entry);
void vvi_remote_erase(struct vv_remote_hist *hist, uint64_t version, uint64_t generation);
static inline bool vvi_remote_reached(const struct vv_remote_hist *hist, const struct vvi_rentry *e)
{
    return hist->remote->opts.complete ? e->complete : e->stored;
}
/* True if it has reached the level and the engine has been notified. */
static inline bool vvi_remote_settled(const struct vv_remote_hist *hist, const struct vvi_rentry *e)
{
    return vvi_remote_reached(hist, e) && e->reported;
}
/* True if a later generation of the version has reached the level: the engine will remove this one. */
bool vvi_remote_passed_locked(const struct vv_remote_hist *hist, const struct vvi_rentry *e);
/* Call it when the entry has reached the level: the engine is notified, and leftovers of earlier lives may go. */
void vvi_remote_reached_locked(struct vv_remote_hist *hist, const struct vvi_rentry *e);
/* Wakes the worker for an entry. */
void vvi_remote_wake_locked(struct vv_remote_hist *hist, size_t index);

/* ---- remote_work.c ---- */

void *vvi_remote_worker(void *arg);
/* Requests a repair; ignored if out of memory. Lock held. */
void vvi_remote_repair_locked(struct vv_remote_hist *hist, const struct vvi_repair *repair);

/* ---- remote_space.c: the limit of local disk ---- */

/* True if this write may begin, or continue, its file. False: it is held, or *ret_error is set. */
bool vvi_space_admit(struct vvi_rstore *s, struct vv_store_io *io, int *ret_error);
/* Called when a file was committed with this length. Returns the bytes that it counts for from now on. */
uint64_t vvi_space_committed_locked(struct vv_remote_hist *h, uint64_t version, uint64_t generation,
                                    uint64_t bytes);
/* Called when a file that was never committed was removed, or could not be removed. */
void vvi_space_removed_locked(struct vv_remote_hist *h, uint64_t version, uint64_t generation,
                              bool gone);
/* Called when only held writes are in flight in the engine. */
void vvi_space_alone(struct vv_store *store);
/* Called when the history is closed. */
void vvi_space_forget_locked(struct vv_remote_hist *h);
/* Called when room may have come, or none will come any more: held writes are checked again. */
void vvi_space_wake_locked(struct vv_remote *r);
/* One step of making room for held writes. Worker's thread. */
void vvi_space_make(struct vv_remote *r);

/* ---- remote_store.c ---- */

void *vvi_remote_reader(void *arg);
/* Called when the removal in the shared folder has ended. Any thread, lock not held. */
void vvi_rstore_removed(struct vvi_rremove *removal, int status);

#endif
