/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of partner copies share: partner.c (contexts, entries, waiting), partner_step.c (the
 * messages), partner_held.c (others' files), partner_open.c (who is whose partner, what comes back),
 * partner_store.c (the stores). */
#ifndef VV_STORE_PARTNER_PRIVATE_H
#define VV_STORE_PARTNER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "store/files/files_private.h"
#include "store/partner/ckpiece.h"
#include "store/partner/partner.h"

enum { VVI_PART_LEAD = 4096, VVI_PART_WINDOW = 4 };

/* ---- messages ---- */

enum vvi_part_kind {
    VVI_PART_TABLES = 1, /* a file begins: header and tables follow the lead */
    VVI_PART_DATA,       /* its next piece does */
    VVI_PART_ACK,        /* so much has been taken */
    VVI_PART_STORED,     /* the file is committed */
    VVI_PART_FAILED,     /* nothing comes of it: status */
    VVI_PART_DROP,       /* the file is not needed any more */
    VVI_PART_DONE, /* the sender has what it needs: `version` was waited for, or (`whole`) all */
    VVI_PART_END   /* collective transfers: no piece follows */
};

#define VVI_PART_MAGIC "VARVEPA1"

/* Both ends are processes of one job: fields are as they lie in memory. */
struct vvi_part_msg {
    char magic[8];
    uint32_t kind;
    int32_t status;
    uint64_t run_id;
    uint64_t transfer; /* TABLES to FAILED */
    uint64_t history;  /* hash of its name: DROP, DONE */
    uint64_t version, generation;
    uint64_t offset;
    uint32_t whole;
    uint32_t spare;
    char name[208]; /* of the history: DROP */
};
_Static_assert(sizeof(struct vvi_part_msg) <= VVI_PART_LEAD, "fits in front of a piece");

/* ---- what is known ---- */

/* A version that is committed here. */
struct vvi_pentry {
    uint64_t version, generation;
    bool copied;
    bool here;     /* written in this life */
    bool done;     /* our predecessors know that we do not wait for it any more */
    int err;       /* why there is no copy; 0: there is, or will be */
    bool reported; /* that there is one, or why not */
};

/* A copy of an earlier life that was replaced by one of `entry`. */
struct vvi_pleft {
    uint64_t version, generation;
};

struct vv_partner_hist {
    struct vv_partner *partner; /* immutable, down to first_generation */
    struct vv_files *files;
    uint64_t sum; /* of its name */
    uint64_t first_generation;
    /* Synchronization: partner->lock, all below. */
    struct vv_partner_hist *next;
    struct vvi_pentry *entry; /* by generation */
    size_t n, room, low;      /* entries before `low` are reported */
    struct vvi_pleft *left;   /* they go when what replaced them has a copy, or goes itself */
    size_t nleft;
    vv_partner_report_fn *report; /* NULL: not started, or stopped */
    void *report_arg;
    unsigned reporting; /* calls of it under way */
};

/* How often somebody has said that he has waited for something. */
struct vvi_pmark {
    uint64_t history, version;
    uint32_t who; /* place in `from`; nfrom: this process */
    bool whole;   /* for everything; version is 0 then */
    uint64_t count;
};

/* A message to be sent when there is time. */
struct vvi_pnote {
    struct vvi_pnote *next;
    struct vvi_part_msg msg;
};

/* The copy that is under way from here. */
struct vvi_pout {
    bool on, started; /* started: the tables were taken */
    struct vv_partner_hist *hist;
    uint64_t version, generation, id, last_ns;
    uint64_t due_ns; /* no piece before: somebody restores; 0: not looked yet */
    unsigned unacked;
    struct vvi_outfile file;
};

/* One that comes here. */
struct vvi_pin {
    struct vvi_pin *next;
    uint32_t from;
    uint64_t id, last_ns, replaced_bytes;
    struct vvi_infile file;
};

/* A folder of others' files of one history. */
struct vvi_pheld {
    struct vvi_pheld *next;
    int dirfd;
    char history[VV_CKFILE_HISTORY_MAX + 1];
};

/* What each process says of itself when a context is opened. */
struct vvi_phello {
    uint64_t node, machine, device, inode, run_id;
    int64_t status;
};

struct vv_partner {
    struct vv_partner_opts opts; /* immutable, down to from */
    const struct vv_os *os;
    struct vvi_phello *hello; /* of all, by rank */
    uint32_t *partner_of;     /* who keeps the copies of each rank */
    uint32_t to;              /* and of this one */
    uint32_t *from;           /* whose copies come here */
    uint32_t nfrom;
    uint32_t sharers, share; /* processes that use the same local folder; which of them this is */
    int top_fd;              /* the folder of others' files */
    pthread_t thread;
    bool has_thread;

    /* Held while messages are sent, received and carried out; taken before `lock`. */
    struct vv_mutex step;
    /* Synchronization: step, down to held_bytes. */
    struct vvi_pout out;
    struct vvi_pin *in;
    struct vvi_pheld *held;
    uint64_t clock_ns, seen_ns; /* time that was spent attending; the real one at the last look */
    uint64_t next_id;

    struct vv_mutex lock;
    struct vv_cond changed, work; /* waiters; the thread */
    /* Synchronization: lock. */
    struct vv_partner_hist *hists;
    struct vvi_pnote *notes, **notes_tail;
    struct vvi_pmark *mark;
    size_t nmarks, marks_room;
    bool news;   /* entries may have to be reported */
    bool silent; /* copies have failed because the partner did not answer */
    bool stopping;

    /* Synchronization: relaxed; each counts for itself. */
    _Atomic uint64_t sent, received, sent_bytes, received_bytes, errors, recovered, mended_chunks,
        held_bytes;
    /* Entries of all histories that are not copied. Synchronization: changed under lock, with them;
     * loaded relaxed. */
    _Atomic uint64_t pending;
};

/* ---- partner.c ---- */

/* Calls `report` for copies that were made or have failed since. No lock held. */
void vvi_partner_report(struct vv_partner *p);
/* The partner has it, or nothing came of the copy: status. */
void vvi_partner_copied_locked(struct vv_partner *p, struct vvi_pentry *e, int status);
struct vvi_pentry *vvi_partner_find_locked(struct vv_partner_hist *hist, uint64_t version,
                                           uint64_t generation);
/* What failed is tried again. */
void vvi_partner_again_locked(struct vv_partner_hist *hist, struct vvi_pentry *e);
int vvi_partner_add_locked(struct vv_partner_hist *hist, const struct vvi_pentry *entry);
/* Ends what nobody else has any more, and its entries. Accepts NULL. */
void vvi_partner_forget(struct vv_partner_hist *hist);
/* Committed or removed in the local folder. Any thread. */
void vvi_partner_committed(struct vv_partner_hist *hist, uint64_t version, uint64_t generation);
void vvi_partner_removed(struct vv_partner_hist *hist, uint64_t version, uint64_t generation);
/* Copies of the version below this generation go, of those that an earlier life has left. */
void vvi_partner_drop_left_locked(struct vv_partner_hist *hist, uint64_t version,
                                  uint64_t generation);
/* The partner's copy goes. */
void vvi_partner_drop_locked(struct vv_partner_hist *hist, uint64_t version, uint64_t generation);
/* A predecessor has waited for a version, or for all. Lock held. */
void vvi_partner_mark_locked(struct vv_partner *p, uint32_t who, uint64_t history, bool whole,
                             uint64_t version);

/* ---- partner_step.c ---- */

/* Everything that can be done now; whether that was anything. step held. */
bool vvi_partner_step(struct vv_partner *p);
/* Begins a file that came from another process, in the folder of its history. step held. */
int vvi_partner_begin_in(struct vv_partner *p, uint32_t from, const void *tables, size_t bytes,
                         struct vvi_infile *ret_file, uint64_t *ret_replaced_bytes);
/* Ends the copy under way, if it is one of this history. step held. */
void vvi_partner_stop_out(struct vv_partner *p, const struct vv_partner_hist *hist);

/* ---- partner_held.c ---- */

int vvi_held_open(struct vv_partner *p);
/* How much is held already, now that it is known for whom. */
void vvi_held_count(struct vv_partner *p);
void vvi_held_fini(struct vv_partner *p);
/* The folder of a history's copies, made if missing. step held, as for all below. */
int vvi_held_folder(struct vv_partner *p, const char *history, int *ret_dirfd);
/* Is it for this process to know about files of that rank in the folder? */
bool vvi_held_mine(const struct vv_partner *p, uint32_t owner);
/* The same for files in the local folder itself, of ranks that do not run here any more. */
bool vvi_left_mine(const struct vv_partner *p, uint32_t owner);
/* Bytes of a file there; 0: it is not. */
uint64_t vvi_held_file_bytes(struct vv_partner *p, int dirfd, const struct vv_ckfile_id *id);
int vvi_held_drop(struct vv_partner *p, const char *history, const struct vv_ckfile_id *id);

/* ---- partner_meet.c: who is whose partner ---- */

int vvi_partner_meet(struct vv_partner *p, char *err, size_t err_bytes);
/* Do two processes use one and the same local folder? */
bool vvi_same_folder(const struct vvi_phello *a, const struct vvi_phello *b);

/* ---- partner_move.c: transfers that all processes make together ---- */

struct vvi_pmove {
    struct vv_ckfile_id id; /* of the file; rank is its owner */
    uint32_t peer;          /* who has it, or gets it */
    uint32_t home;          /* not among others' files: its owner ran there */
};

/* One file for each process at most. Every process calls, with what it wants back from another (NULL:
 * nothing) to have in `dirfd`. `home_fd`: this process's own folder of the history. *ret_got: it has
 * come. An error is one of the wire. */
int vvi_partner_fetch(struct vv_partner *p, const char *history, const struct vvi_pmove *want,
                      int home_fd, int dirfd, bool *ret_got);
/* The same for what it gives away, out of `dirfd`, for others to keep. */
int vvi_partner_push(struct vv_partner *p, const char *history, const struct vvi_pmove *give,
                     int dirfd, bool *ret_stored);

/* The least of all results, as an error everywhere. */
int vvi_partner_all(struct vv_partner *p, int status);
int vvi_partner_exchange(struct vv_partner *p, const struct vv_wire_part *out,
                         struct vv_wire_part *ret_in);
int vvi_partner_most(struct vv_partner *p, uint64_t value, uint64_t *ret_most);
void vvi_parts_free(struct vv_wire_part *parts, uint32_t n);

#endif
