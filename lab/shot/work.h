/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A workload: histories, and threads that write and read their versions. It is made by a generator,
 * such as that of the shot, or read from a text; docs/script.md describes the text.
 */
#ifndef LAB_SHOT_WORK_H
#define LAB_SHOT_WORK_H

#include "lab/shot/shot.h"

enum {
    SHOT_NAME_BYTES = 32,
    SHOT_MAX_HISTS = 1024,
    SHOT_MAX_THREADS = 1024,
};
#define SHOT_MAX_VERSION ((UINT64_C(1) << 48) - 1)

struct shot_hist {
    char name[SHOT_NAME_BYTES];
    bool consume_once;
    int order; /* declared: enum varve_order */
};

/* A line "set NAME VALUE" of a script: an option of the command that runs it. */
struct shot_setting {
    char *name;  /* with the dashes */
    char *value; /* NULL: it takes none */
    uint32_t line;
};

/* All zero: empty. */
struct shot_work {
    struct shot_hist *hists;
    uint32_t nr_hists;
    struct shot_script *threads;
    uint32_t nr_threads;
    struct shot_setting *settings;
    size_t nr_settings;
    uint64_t peak_live_bytes; /* of all threads together, at most */
};

void shot_work_fini(struct shot_work *work);

VV_WARN_UNUSED int shot_work_add_hist(struct shot_work *work, const struct shot_hist *hist);
VV_WARN_UNUSED int shot_work_add_thread(struct shot_work *work);
VV_WARN_UNUSED int shot_script_add(struct shot_script *script, struct shot_op op);

/*
 * Call it when the last operation was added. Checks that versions exist when they are read or discarded, and do
 * not when they are written, as far as the order within one thread shows, and that threads meet at barriers
 * equally often; fills in sizes of gets and sums. -EINVAL: `err` has a line of text, with `name` and the line
 * number in front if `name` is not NULL. -ENOMEM.
 */
VV_WARN_UNUSED int shot_work_settle(struct shot_work *work, const char *name, char *err,
                                    size_t err_size);

/* ---- generators ---- */

enum shot_kind {
    SHOT_KIND_SHOT,       /* all puts, then all gets in the order of the options */
    SHOT_KIND_REVOLVE,    /* binomial checkpointing                              */
    SHOT_KIND_SWEEPS,     /* all puts, then backward, forward, backward...       */
    SHOT_KIND_QUEUE,      /* put i, get i - distance                             */
    SHOT_KIND_OVERLAP,    /* rounds of LIFO, each read while the next is written */
    SHOT_KIND_ACTIVATIONS /* rounds of LIFO, one after the other                 */
};
#define SHOT_KINDS "shot|revolve|sweeps|queue|overlap|activations"

enum shot_vary { SHOT_VARY_NONE, SHOT_VARY_UNIFORM, SHOT_VARY_TAIL };

/* Options of generators beyond those of a shot. */
struct shot_plan {
    int kind;          /* enum shot_kind */
    int vary;          /* enum shot_vary: the sizes */
    int declare;       /* enum varve_order */
    uint32_t rounds;   /* sweeps, overlap, activations */
    uint32_t distance; /* queue */
    uint32_t repeat;   /* each get so many times in succession */
    uint32_t swap;     /* hints swapped: how far apart */
    uint32_t threads;  /* each with a history of its own */
};

/* A plain shot. */
void shot_plan_init(struct shot_plan *plan);
/* -EINVAL, -ENOMEM. */
VV_WARN_UNUSED int shot_work_init(const struct shot_opts *opts, const struct shot_plan *plan,
                                  const struct shot_sizes *sizes, uint64_t interval_ns,
                                  uint32_t rank, struct shot_work *ret_work);

/* The same from the options alone, with their sizes and interval. A line of text goes with errors. */
VV_WARN_UNUSED int shot_work_make(const struct shot_opts *opts, const struct shot_plan *plan,
                                  char *err, size_t err_size, struct shot_work *ret_work);

/* ---- text ---- */

/* Reads all of `f`. -EINVAL: `err` has "NAME:LINE: the error, the expected form". -EIO, -ENOMEM. */
VV_WARN_UNUSED int shot_work_read(FILE *f, const char *name, char *err, size_t err_size,
                                  struct shot_work *ret_work);
/* A text that shot_work_read reads back to the same. Settings are printed first. */
void shot_work_print(FILE *f, const struct shot_work *work);

#endif
