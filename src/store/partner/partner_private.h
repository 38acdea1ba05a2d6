/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of partner copies: partner.c (contexts, entries, waiting), partner_step.c (messages),
 * partner_held.c (others' files), partner_meet.c (choosing partners), partner_open.c (opening),
 * partner_move.c (collective transfers), partner_parity.c and partner_rebuild.c (parity), partner_store.c
 * (the stores). */
#ifndef VV_STORE_PARTNER_PRIVATE_H
#define VV_STORE_PARTNER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "store/files/files_private.h"
#include "store/parity/parity_file.h"
#include "store/partner/ckpiece.h"
#include "store/partner/partner.h"

enum { VVI_PART_LEAD = 4096, VVI_PART_WINDOW = 4 };

/* ---- messages ---- */

enum vvi_part_kind {
    VVI_PART_TABLES = 1, /* a file begins: header and tables follow the lead */
    VVI_PART_DATA,       /* the next piece follows the lead */
    VVI_PART_ACK,        /* a piece was taken */
    VVI_PART_STORED,     /* the file is committed */
    VVI_PART_FAILED,     /* the copy has failed: status */
    VVI_PART_DROP,       /* the file is no longer needed */
    VVI_PART_DONE,       /* the sender's wait has ended: for `version`, or (`whole`) for all */
    VVI_PART_END,        /* collective transfers: no piece follows */
    /* Parity: the events of parity_rules.h, in this order. */
    VVI_PART_HAVE,
    VVI_PART_GONE,
    VVI_PART_MADE,
    VVI_PART_UNMADE,
    VVI_PART_AGAIN,
    VVI_PART_LACK, /* the sender could not write the version: status */
    VVI_PART_GIVE, /* requests a range of the receiver's file `generation`, or of its parity */
    VVI_PART_PIECE /* that range, or status */
};

/* Parity: fields of a message about a version. */
struct vvi_part_say {
    uint64_t sum, relied, total; /* the sender's layout, the one it relies on, vv_parity_total */
    uint64_t run_id, bytes;      /* HAVE: of its file; GIVE: length of the range */
    uint32_t chunk_bytes, edition;
};

#define VVI_PART_MAGIC "VARVEPA1"

/* Both ends are processes of one job: fields are in memory layout. */
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
    union {
        char name[208]; /* of the history: DROP */
        struct vvi_part_say say;
    };
};
_Static_assert(sizeof(struct vvi_part_msg) <= VVI_PART_LEAD, "fits in front of a piece");

/* ---- state ---- */

/* A version that is committed here. */
struct vvi_pentry {
    uint64_t version, generation;
    /* How often this life had written the version; 0: written by an earlier life. */
    uint32_t edition;
    bool copied;
    bool here;     /* written in this life */
    bool lone;     /* parity: found here but not at others, so that waiting is useless */
    bool done;     /* DONE was sent: our predecessors know that we do not wait for it any more */
    int err;       /* error of the copy; 0: there is a copy, or will be */
    bool reported; /* the copy or the error was */
};

/* A copy of an earlier life that was replaced by a copy of an `entry`. */
struct vvi_pleft {
    uint64_t version, generation;
};

/* Parity of a layout, here on disk. */
struct vvi_pkept {
    uint64_t sum, total; /* total: when it was announced */
    uint64_t generation; /* of the own file */
    bool old;            /* of an earlier life: not known which members rely on it */
    bool aside;          /* the own file was put beside it instead of being removed */
    bool goes;           /* to be removed */
};

/* Parity: a version that this process or another of its set has. */
struct vvi_pver {
    struct vv_parity_version rules;
    struct vvi_pkept *kept;
    uint32_t nkept;
    uint32_t edition[VV_ERASURE_MAX]; /* by member: of its file */
    struct {
        int status; /* why the member could not write it; 0: it has not said so */
        uint32_t edition;
    } lack[VV_ERASURE_MAX]; /* by member */
    uint64_t since_ns;      /* time of the last progress; 0: not checked yet */
    bool look;              /* another file of ours may be announced */
    bool late;              /* other members have not written it in time */
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
    struct vvi_pleft *left;   /* removed when their replacement has a copy, or is removed itself */
    size_t nleft;
    int held_fd;           /* immutable: folder of others' files, or of parity */
    struct vvi_pver **ver; /* parity */
    size_t nver;
    uint64_t looks, goes;         /* upper bounds: versions with `look`, kept parity with `goes` */
    vv_partner_report_fn *report; /* NULL: not started, or stopped */
    void *report_arg;
    unsigned reporting; /* calls of `report` in progress */
};

/* Number of DONE messages of one process about a version. */
struct vvi_pmark {
    uint64_t history, version;
    uint32_t who; /* index in `from`; nfrom: this process */
    bool whole;   /* about all versions; version is 0 then */
    uint64_t count;
};

/* A message to be sent when there is time. */
struct vvi_pnote {
    struct vvi_pnote *next;
    struct vvi_part_msg msg;
};

/* The current copy to the partner. */
struct vvi_pout {
    bool on, started; /* started: the receiver has taken the tables */
    struct vv_partner_hist *hist;
    uint64_t version, generation, id, last_ns;
    uint64_t due_ns; /* earliest time of the next piece, while others restore; 0: not checked yet */
    unsigned unacked;
    struct vvi_outfile file;
};

/* A copy being received. */
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

/* The parity being made here. */
struct vvi_pmaking {
    bool on, begun;
    struct vv_partner_hist *hist;
    uint64_t version, id, last_ns, due_ns;
    struct vv_parity_make make;
    struct vv_parity_out out;
};

/* A file that other members request ranges of. */
struct vvi_pserving {
    int home_fd;
    uint64_t version, generation;
    struct vv_parity_in file;
};

/* Sent by each process when a context is opened. */
struct vvi_phello {
    uint64_t node, machine, device, inode, run_id, kind;
    int64_t status;
};

struct vv_partner {
    struct vv_partner_opts opts; /* immutable, down to from */
    const struct vv_os *os;
    struct vvi_phello *hello; /* of all, by rank */
    uint32_t *partner_of;     /* by rank: the keeper of its copies; with parity, itself */
    uint32_t to;              /* the partner of this process */
    uint32_t *from; /* ranks whose copies are kept here; with parity, the others of the set */
    uint32_t nfrom;
    const uint32_t *peer; /* ranks that are notified of events here: `to`, or the set */
    uint32_t npeers;
    uint32_t *member, n, k, me; /* the set; k 0: copies, no parity; index of this process */
    /* Number of processes that use the same local folder; index among them. */
    uint32_t sharers, share;
    int top_fd; /* the folder of others' files */
    pthread_t thread;
    bool has_thread;

    /* Held while messages are sent, received and processed; taken before `lock`. */
    struct vv_mutex step;
    /* Synchronization: step, down to held_bytes. */
    struct vvi_pout out;
    struct vvi_pin *in;
    struct vvi_pheld *held;
    struct vvi_pmaking making;
    struct vvi_pserving serving;
    uint64_t *heard_ns;         /* by member: time of its last message */
    uint64_t clock_ns, seen_ns; /* time spent attending; the real time at the last step */
    uint64_t next_id;

    struct vv_mutex lock;
    struct vv_cond changed, work; /* waiters; the thread */
    /* Synchronization: lock. */
    struct vv_partner_hist *hists;
    struct vvi_pnote *notes, **notes_tail;
    struct vvi_pmark *mark;
    size_t nmarks, marks_room;
    bool due;    /* parity may have to be made */
    bool news;   /* entries may have to be reported */
    bool silent; /* copies have failed because the partner did not answer */
    bool stopping;

    /* Synchronization: relaxed; independent counters. */
    _Atomic uint64_t sent, received, sent_bytes, received_bytes, errors, recovered, repaired_chunks,
        held_bytes;
    /* Number of entries without a copy, of all histories. Synchronization: changed under lock, with the
     * entries; loaded relaxed. */
    _Atomic uint64_t pending;
};

/* ---- partner.c ---- */

/* Sends a message to all peers later. */
void vvi_partner_note_locked(struct vv_partner *p, const struct vvi_part_msg *msg);
/* Calls `report` for copies that were made or have failed since. No lock held. */
void vvi_partner_report(struct vv_partner *p);
/* The partner has the copy, or the copy has failed: status. */
void vvi_partner_copied_locked(struct vv_partner *p, struct vvi_pentry *e, int status);
struct vvi_pentry *vvi_partner_find_locked(struct vv_partner_hist *hist, uint64_t version,
                                           uint64_t generation);
/* Tries a failed copy again. */
void vvi_partner_again_locked(struct vv_partner_hist *hist, struct vvi_pentry *e);
int vvi_partner_add_locked(struct vv_partner_hist *hist, const struct vvi_pentry *entry);
/* Frees a history that no other thread uses, and its entries. Accepts NULL. */
void vvi_partner_forget(struct vv_partner_hist *hist);
/* Committed or removed in the local folder. Any thread. */
void vvi_partner_committed(struct vv_partner_hist *hist, uint64_t version, uint64_t generation,
                           uint32_t edition);
void vvi_partner_removed(struct vv_partner_hist *hist, uint64_t version, uint64_t generation);
/* Drops copies of the version below this generation that an earlier life has left. */
void vvi_partner_drop_left_locked(struct vv_partner_hist *hist, uint64_t version,
                                  uint64_t generation);
/* Drops the partner's copy. */
void vvi_partner_drop_locked(struct vv_partner_hist *hist, uint64_t version, uint64_t generation);
/* A predecessor has waited for a version, or for all. Lock held. */
void vvi_partner_mark_locked(struct vv_partner *p, uint32_t who, uint64_t history, bool whole,
                             uint64_t version);

/* ---- partner_step.c ---- */

/* Does everything that can be done now; true if there was anything. step held. */
bool vvi_partner_step(struct vv_partner *p);
/* Begins a file that comes from another process, in the folder of its history. step held. */
int vvi_partner_begin_in(struct vv_partner *p, uint32_t from, const void *tables, size_t bytes,
                         struct vvi_infile *ret_file, uint64_t *ret_replaced_bytes);
int vvi_partner_send(struct vv_partner *p, uint32_t to, void *mem, size_t bytes,
                     const struct vvi_part_msg *msg);
/* Ends the current copy, if it is of this history. step held. */
void vvi_partner_stop_out(struct vv_partner *p, const struct vv_partner_hist *hist);

/* ---- partner_held.c ---- */

const char *vvi_held_name(const struct vv_partner *p); /* name of the folder */
/* True if so many bytes in all may be held. */
bool vvi_held_fits(const struct vv_partner *p, uint64_t bytes);
int vvi_held_open(struct vv_partner *p);
/* Counts the bytes that are held already, once it is known for which ranks. */
void vvi_held_count(struct vv_partner *p);
void vvi_held_fini(struct vv_partner *p);
/* The folder of a history's copies, created if missing. step held, as for all below. */
int vvi_held_folder(struct vv_partner *p, const char *history, int *ret_dirfd);
/* True if this process is responsible for files of that rank in the folder. */
bool vvi_held_mine(const struct vv_partner *p, uint32_t owner);
/* The same for files in the local folder itself, of ranks that no longer run here. */
bool vvi_left_mine(const struct vv_partner *p, uint32_t owner);
/* Length of a file there; 0: there is none. */
uint64_t vvi_held_file_bytes(struct vv_partner *p, int dirfd, const struct vv_ckfile_id *id);
int vvi_held_drop(struct vv_partner *p, const char *history, const struct vv_ckfile_id *id);

/* ---- partner_meet.c: choosing partners ---- */

int vvi_partner_meet(struct vv_partner *p, char *err, size_t err_bytes);
/* True if two processes use the same local folder. */
bool vvi_same_folder(const struct vvi_phello *a, const struct vvi_phello *b);

/* ---- partner_move.c: collective transfers ---- */

struct vvi_pmove {
    struct vv_ckfile_id id; /* of the file; rank is its owner */
    uint32_t peer;          /* the process that has it, or gets it */
    uint32_t home;          /* it is not among others' files: its owner ran there */
};

/* Moves at most one file for each process. Collective; `want`: the file to get from another process into
 * `dirfd`, NULL: none. `home_fd`: this process's own folder of the history. *ret_got: the file has come. An
 * error is one of the wire. */
int vvi_partner_fetch(struct vv_partner *p, const char *history, const struct vvi_pmove *want,
                      int home_fd, int dirfd, bool *ret_got);
/* The same for a file that it sends, out of `dirfd`, for another process to keep. */
int vvi_partner_push(struct vv_partner *p, const char *history, const struct vvi_pmove *give,
                     int dirfd, bool *ret_stored);

/* ---- partner_parity.c: parity behind the commits ---- */

/* Does everything that can be done at once; true if there was anything. step held. */
bool vvi_parity_step(struct vv_partner *p);
/* True: the message's memory was kept. step held. */
bool vvi_parity_message(struct vv_partner *p, uint32_t from, struct vvi_part_msg *m, size_t bytes);
void vvi_parity_stop(struct vv_partner *p, const struct vv_partner_hist *hist);
/* A file was committed, or a file found at opening is to be announced. */
void vvi_parity_committed_locked(struct vv_partner_hist *h, uint64_t version);
void vvi_parity_again_locked(struct vv_partner_hist *h, uint64_t version);
/* A file could not be written. */
void vvi_parity_unwritten(struct vv_partner_hist *h, uint64_t version, uint32_t edition,
                          int status);
/* Before a file is removed: notifies the other members, and puts the file aside if they rely on it. */
VV_WARN_UNUSED int vvi_parity_removing(struct vv_partner_hist *h, uint64_t version,
                                       uint64_t generation);
/* Parity that was found at opening. */
VV_WARN_UNUSED int vvi_parity_found(struct vv_partner_hist *h, const struct vv_parity_layout *l,
                                    bool aside);
void vvi_parity_forget(struct vv_partner_hist *h);
/* Reads a range of a file of this process, or of its parity. */
VV_WARN_UNUSED int vvi_parity_serve(struct vv_partner *p, const struct vv_files *files, int held_fd,
                                    uint64_t version, uint64_t generation, uint64_t at,
                                    uint64_t bytes, void **ret_mem);
/* The history's files are being closed. NULL: of any history. */
void vvi_parity_stop_serving(struct vv_partner *p, const struct vv_files *files);

/* ---- partner_rebuild.c: rebuilding files from parity, collectively ---- */

/* Collective. With `version` NULL, at opening: rebuilds files that this process lacks into `out_fd`. Otherwise
 * that version's, if `generation` is not 0. *ret_got: at least one was rebuilt. */
VV_WARN_UNUSED int vvi_parity_rebuild(struct vv_partner_hist *h, const uint64_t *version,
                                      uint64_t generation, int out_fd, bool *ret_got);

/* Collective: returns the least of all results everywhere. */
int vvi_partner_all(struct vv_partner *p, int status);
int vvi_partner_exchange(struct vv_partner *p, const struct vv_wire_part *out,
                         struct vv_wire_part *ret_in);
int vvi_partner_most(struct vv_partner *p, uint64_t value, uint64_t *ret_most);
void vvi_parts_free(struct vv_wire_part *parts, uint32_t n);

#endif
