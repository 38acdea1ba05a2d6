/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One workload of the library model, and the lives in which it runs. See model/library.c.
 *
 * A life is a process. Everything that outlives it is in struct world, in shared memory.
 */
#ifndef TESTS_MODEL_LIFE_H
#define TESTS_MODEL_LIFE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/faults.h"
#include "model/reference.h"

enum { LIFE_MAX_OPS = 64, LIFE_PATH = 256, LIFE_LOG = 16384 };

enum life_op {
    OP_CHECKPOINT, /* version, bytes */
    OP_POLL,       /* the same within 0 ms; VELOC: begin, mem, end */
    OP_NODATA,     /* version: with no region */
    OP_ABANDON,    /* version, bytes. VELOC: end(0) */
    OP_RESTORE,    /* version */
    OP_WAIT,       /* version, level: 0 that of the context, 1 local */
    OP_FLUSH,
    OP_DISCARD, /* version */
    OP_LATEST,  /* VELOC: version, the highest */
    OP_RESUME,  /* version */
    OP_HINT,    /* version */
    OP_UNHINT,
    OP_PREFETCH,
    OP_ACQUIRE, /* version */
    OP_RELEASE,
    OP_RESERVE, /* version, bytes */
    OP_COMMIT,
    OP_ABORT,
    OP_REOPEN, /* VELOC: drain */
    OP_KILL,   /* a: before this system call, counted from here; 0: now */
    OP_LOSE,   /* a kill, and the next life is on another node */
    OP_FULL,   /* folders: 1 near, 2 far, 3 both */
    OP_GONE,   /* folders */
    OP_ONCE,   /* enum faults_once, folders */
    OP_REMOVE, /* folder: 1 or 2 */
    OP_HEAL,
    OP_COUNT
};

struct op {
    unsigned kind, a, b;
};

/* Only numbers, each with a name in the text of a workload. */
struct workload {
    unsigned veloc;                         /* the interface */
    unsigned level;                         /* enum varve_level */
    unsigned near;                          /* with a local folder */
    unsigned page, host_pages, local_pages; /* local_pages 0: no limit */
    unsigned keep, keep_every, overwrite;
    unsigned sync;             /* VELOC: mode */
    unsigned policy;           /* enum varve_policy_kind */
    unsigned direct, unsynced; /* local_io, local_sync */
    unsigned nops;
    struct op op[LIFE_MAX_OPS];
};

struct world {
    struct workload w;
    struct ref ref;
    struct faults faults;
    char folder[LIFE_PATH];
    unsigned at; /* the operation in progress */
    unsigned
        kill_by; /* greater than 0: the process is killed before this operation at the latest */
    bool kill_expected;  /* the process may end by a kill */
    bool losing, lose;   /* the life after a kill, this life: on another node */
    bool done;           /* the last life has ended well */
    bool broken;         /* a folder was removed: no operation has to succeed until the next life */
    unsigned clean_hits; /* faults.hits when the state was last known to be good */
    unsigned lives;
    char wrong[500]; /* the failure; empty: none */
    unsigned nlog;
    char log[LIFE_LOG];
};

extern const char *const life_op_name[OP_COUNT];

/* Appends to the log of operations. */
void life_note(struct world *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Ends the process: the library broke a rule of the reference. */
void life_wrong(struct world *x, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), noreturn));

/* True if a call failed since the last clean state, so that errors may come late. */
bool life_dirty(struct world *x);
/* Marks the state as clean: from now on nothing may fail. */
void life_clean(struct world *x);
/* Largest version of the workload. */
uint32_t life_max_bytes(const struct workload *w);
/* Operations common to all interfaces. False: it is none of these. */
bool life_common(struct world *x, const struct op *op);
/* Kills the process if its time has come. */
void life_maybe_die(struct world *x);
void life_remove_folder(const char *path);

/* Runs the operations from world.at on to the end, and ends the process. */
void life_ckpt(struct world *x) __attribute__((noreturn));
void life_veloc(struct world *x) __attribute__((noreturn));

#endif
