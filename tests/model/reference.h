/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference of the library model: for every version, the contents that may be restored now, and
 * those that the next opening may find.
 *
 * Every attempt to write a version is a generation, numbered from 1 on, and its bytes contain its
 * number. A set of generations, with a flag that the version may be missing, says what is allowed.
 * A set of one without that flag is a known content. A set has several members when the content is
 * uncertain, for example before the first restore of a life that follows a kill.
 *
 * It is in memory that processes share. It is changed before a call if a kill inside the call may
 * take effect, and after the call if only the result counts. call may take effect, and after it
 * where only the result counts.
 */
#ifndef TESTS_MODEL_REFERENCE_H
#define TESTS_MODEL_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REF_VERSIONS = 8, REF_GENERATIONS = 400, REF_SET = 64 };

struct ref_set {
    bool missing; /* the version may be missing */
    unsigned n;
    uint16_t gen[REF_SET]; /* ascending */
};

struct ref_version {
    struct ref_set now;  /* in this life */
    struct ref_set next; /* at the next opening */
    struct ref_set node; /* the same without the local folder */
    /* Generations that an opening did not find but that may still be on local disk, superseded by
     * the shared folder. Without that folder they may be found again. */
    struct ref_set hidden;
    bool opened;         /* `now` is what the opening found */
    bool droppable;      /* retention may have removed it */
    bool exposed;        /* its storage was removed after it was written: it may never be safe */
    bool exposed_before; /* the same for a generation that was replaced */
    unsigned before;     /* the last generation that was replaced or discarded */
};

struct ref {
    unsigned nversions, keep, keep_every;
    bool local;            /* levels local and remote: a file in the local folder is found */
    unsigned ngens, found; /* generations up to `found` are of earlier lives */
    uint32_t bytes[REF_GENERATIONS]; /* by generation */
    struct ref_version version[REF_VERSIONS];
};

void ref_init(struct ref *r, unsigned nversions, unsigned keep, unsigned keep_every);

bool ref_has(const struct ref_set *s, unsigned gen);
/* The version must exist; it cannot exist. */
bool ref_must(const struct ref_set *s);
bool ref_cannot(const struct ref_set *s);

/* A checkpoint begins and gets a generation. Then it succeeds or fails. */
unsigned ref_begin(struct ref *r, unsigned version, uint32_t bytes);
void ref_written(struct ref *r, unsigned version, unsigned gen);
void ref_failed(struct ref *r, unsigned version, unsigned gen);
/* The present content has reached the level, or only the local folder. */
void ref_reached(struct ref *r, unsigned version, bool level);
/* The same, but the file of a newer generation that was taken back, or that timed out, may still
 * exist. */
void ref_reached_at_least(struct ref *r, unsigned version, bool level);
/* Before and after a discard that succeeded. */
void ref_discarding(struct ref *r, unsigned version);
void ref_discarded(struct ref *r, unsigned version);
/* A flush or the end of a life has succeeded: every version has reached the level, and nothing else
 * is left. */
void ref_flushed(struct ref *r);
/* A folder was removed while the library used it; `shared`: the shared one. */
void ref_removed(struct ref *r, bool shared);
/* Something failed in the background, in an interface that then gives the version up: the newest
 * generations may be gone, but no safe one. */
void ref_given_up(struct ref *r);
/* A life begins; `lost`: on another node. */
void ref_open(struct ref *r, bool lost);
/* The present content was written in this life. */
bool ref_ours(const struct ref *r, unsigned version);
/* The version exists, with some content of `now`; with this one. */
void ref_seen(struct ref *r, unsigned version);
void ref_seen_as(struct ref *r, unsigned version, unsigned gen);
/* The version does not exist, as is allowed. `opening`: and never will. */
void ref_missed(struct ref *r, unsigned version, bool opening);

/* Retention. */
bool ref_kept_always(const struct ref *r, unsigned version);
/* Another version may be newer than this one; is certainly newer. */
bool ref_may_be_newer(const struct ref *r, unsigned other, unsigned version);
bool ref_is_newer(const struct ref *r, unsigned other, unsigned version);

/* The set as text, for example "{3 5 -}"; uses four buffers in turn. */
const char *ref_text(const struct ref_set *s);

/* ---- bytes ---- */

void ref_fill(void *buf, size_t bytes, unsigned gen);
/* The generation with exactly these bytes; 0: none. */
unsigned ref_identify(const struct ref *r, const void *buf, size_t room);

#endif
