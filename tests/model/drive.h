/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives an engine core by hand: the test decides when each order is carried out, in which order,
 * and with which result. No bytes are moved; instead, every page of every arena and every chunk of
 * every file holds a tag of the data written last. A transfer's destination is garbage from its
 * start to its successful end. Its source is compared at the start and at the end. A restore that
 * ends well must have delivered every chunk of the generation that was alive when it began.
 *
 * Orders that run ahead are on streams. The first of a stream may run when its dependencies have
 * run: the test takes any of these next, regardless of the core's plans. It runs in one step, so
 * that two orders without a dependency run in either sequence. An order is seen to end when it has
 * run.
 */
#ifndef TESTS_MODEL_DRIVE_H
#define TESTS_MODEL_DRIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/core/core.h"

enum {
    DRIVE_PAGE = 4096,
    DRIVE_CUT_PAGE = 4 * DRIVE_PAGE, /* small objects take parts of such a page */
    DRIVE_MAX_ORDERS = 256,
    DRIVE_MAX_CHUNKS = 64,
    DRIVE_MAX_FILES = 256,
    DRIVE_BAD_TAG = 1, /* never a tag of data */
};

/* One call of the application that may block. */
struct drive_call {
    struct vv_req req;
    bool pending;
    uint64_t version, generation;
    uint32_t nchunks;
    uint64_t delivered;      /* GET: a bit for each chunk */
    unsigned seq;            /* ended: place in the order of all ends */
    struct drive_lend *lend; /* LEASE */
};

/* Pages lent to the application, with their data at that time. */
struct drive_lend {
    struct vv_lend lend;
    bool used;
    uint64_t tag[DRIVE_MAX_CHUNKS];
};

struct drive_file {
    bool used, committed;
    uint32_t hist, nchunks;
    uint64_t version, generation; /* generation: of the file */
    uint64_t content;             /* of the object that it holds */
    uint64_t tag[DRIVE_MAX_CHUNKS];
};

struct drive {
    struct vv_core *core;
    struct vv_core_cfg cfg;
    uint64_t now_ns, step_ns; /* time passes by step_ns at each completion and request */
    struct vv_order *order[DRIVE_MAX_ORDERS];
    unsigned norders;
    uint64_t *tag[VV_MAX_TIERS];
    uint32_t *len[VV_MAX_TIERS]; /* of the data written last: parts of pages may overlap others */
    bool app_is_device;
    bool ordered;      /* puts and gets are ordered by a stream */
    uint64_t stream;   /* the id of that stream, if it may run ahead; 0: it may not */
    unsigned refusals; /* orders that the next lanes will refuse */
    uint64_t enqueued[VV_STREAMS], ran[VV_STREAMS]; /* numbers of orders */
    uint64_t hold[VV_STREAMS];  /* orders behind this one wait for another thread; 0: none does */
    bool full[VV_FAMILIES + 1]; /* its lanes take nothing for now */
    uint64_t ntags;             /* written into leases so far */
    bool trace;                 /* print every order as it ends: to understand a failure */
    unsigned wakes;             /* so far */
    char wrong[200];            /* the first wrong byte, missing file, ...; empty: none */
    uint64_t nreleased;         /* objects that the core has freed */
    unsigned app_failures;      /* orders that drive_end() has failed on request */
    unsigned nfiles;            /* places in use or used once; last, so that opening is cheap */
    struct drive_file file[DRIVE_MAX_FILES];
};

/* Writes a configuration with these tiers, e.g. "D2H1F" (device of 2 pages, host of 1, files),
 * "H4S8", "H1". W: files whose pages go when they are written. A small letter is a tier that grows,
 * with no page ready yet: "D2h4F". A plus at the end: the disk reads and writes the device itself. A star at the
 * end: pages are of DRIVE_CUT_PAGE. */
void drive_cfg(struct vv_core_cfg *ret_cfg, const char *tiers, enum vv_policy policy);
/* cfg.check is set by the caller. */
void drive_init(struct drive *d, const struct vv_core_cfg *cfg);
/* Carries out all pending orders and frees the core. */
void drive_fini(struct drive *d);
uint32_t drive_history(struct drive *d, bool consume_once, uint64_t keep, enum vv_core_level level);
uint32_t drive_history_with(struct drive *d, const struct vv_core_hist_cfg *cfg);

/* Requests: the result of the core's call; when it is 0, call->pending is true until the call has
 * ended. */
int drive_put(struct drive *d, struct drive_call *call, uint32_t hist, uint64_t version,
              uint64_t size);
int drive_get(struct drive *d, struct drive_call *call, uint32_t hist, uint64_t version);
int drive_wait(struct drive *d, struct drive_call *call, uint32_t hist, uint64_t version,
               enum vv_core_level level);
int drive_wait_all(struct drive *d, struct drive_call *call, uint32_t hist);
int drive_hint(struct drive *d, uint32_t hist, uint64_t version);
void drive_hint_clear(struct drive *d, uint32_t hist);
void drive_start(struct drive *d, uint32_t hist);
int drive_discard(struct drive *d, uint32_t hist, uint64_t version);
/* A put of a version that may exist. */
int drive_replace(struct drive *d, struct drive_call *call, uint32_t hist, uint64_t version,
                  uint64_t size);
int drive_take_back(struct drive *d, uint32_t hist, uint64_t version);
int drive_confirm(struct drive *d, uint32_t hist, uint64_t version);
/* This file of the version has reached the level. */
void drive_reached(struct drive *d, uint32_t hist, uint64_t version, uint64_t file_generation);
void drive_missed(struct drive *d, uint32_t hist, uint64_t version, uint64_t file_generation);
int drive_adopt(struct drive *d, uint32_t hist, uint64_t version, uint64_t generation,
                uint64_t size);
/* false: one of its orders is in flight, so that it cannot be cancelled now. */
bool drive_cancel(struct drive *d, struct drive_call *call, int status);

/* Pages of a version in place, for reading; or empty ones, which the application writes. No order
 * may change them meanwhile. A version may be made of leases. */
int drive_lend(struct drive *d, struct drive_lend *lend, uint32_t hist, uint64_t version,
               uint32_t chunk0, uint32_t nchunks);
int drive_lease(struct drive *d, struct drive_call *call, struct drive_lend *lend, uint32_t hist,
                uint32_t npages);
int drive_put_lent(struct drive *d, struct drive_call *call, struct drive_lend **lends, size_t n,
                   uint32_t hist, uint64_t version, uint64_t size);
void drive_unlend(struct drive *d, struct drive_lend *lend);
/* The pages of a version, in exchange for those of `old`, if that is not NULL; then the application
 * writes them. */
int drive_swap(struct drive *d, struct drive_lend *old, struct drive_lend *lend, uint32_t hist,
               uint64_t version);
void drive_trim(struct drive *d, struct drive_lend *lend, uint32_t npages);

/* True if the order at place i may end. */
bool drive_may_end(const struct drive *d, unsigned i);
/* From here on, work on the stream waits until it is released; `full`: its lanes also refuse to
 * take orders. */
void drive_hold(struct drive *d, uint64_t stream, bool full);
void drive_let_go(struct drive *d, uint64_t stream);
/* Ends the order at place i. */
void drive_end(struct drive *d, unsigned i, int status);
/* The place of the first pending order of this kind between these tiers (VV_TIER_APP included) for
 * this version; -1: none. */
int drive_find(const struct drive *d, enum vv_order_kind kind, int src, int dst, uint64_t version);
/* One more page of a tier that grows becomes ready; false: it does not grow any more. */
bool drive_grow(struct drive *d, unsigned tier);
/* No more pages come. */
void drive_grow_stop(struct drive *d, unsigned tier);
/* True if a tier grows. */
bool drive_growing(const struct drive *d);
/* Ends pending orders, each time the oldest that may end, until none is left; then tiers that grow
 * have all their pages. */
void drive_run(struct drive *d);
/* The same, until the call has ended; its status. */
int drive_finish(struct drive *d, struct drive_call *call);

/* A digest of the orders under way and of the places of all tags. */
uint64_t drive_digest(const struct drive *d);

#endif
