/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference of the library model: for every version, which contents may be restored now, and
 * which may be found by the next opening.
 *
 * Every attempt to write a version is a generation, numbered from 1 on; its bytes tell its number.
 * A set of generations, and whether the version may be missing, says what is allowed. With a set of
 * one that may not be missing, the content is known. Sets have several members where the reference
 * cannot know: before the first restore of a life that follows a kill, say.
 *
 * It lies in memory that processes share and is changed before a call where a kill inside of the
 * call may take effect, and after it where only the result counts.
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
    /* Not found by an opening, but perhaps still on local disk, where the shared folder makes it out of
     * date. Without that folder it may be found again. */
    struct ref_set hidden;
    bool opened;         /* `now` is what the opening found */
    bool droppable;      /* retention may have given it up */
    bool exposed;        /* its storage was removed after it was written: it may never be safe */
    bool exposed_before; /* that of a generation that was replaced was */
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
/* The version must be there; it cannot be there. */
bool ref_must(const struct ref_set *s);
bool ref_cannot(const struct ref_set *s);

/* A checkpoint begins: its generation. It then ended well or badly. */
unsigned ref_begin(struct ref *r, unsigned version, uint32_t bytes);
void ref_written(struct ref *r, unsigned version, unsigned gen);
void ref_failed(struct ref *r, unsigned version, unsigned gen);
/* What stands there now has reached the level, or the local folder only. */
void ref_reached(struct ref *r, unsigned version, bool level);
/* The same, but the file of a newer generation that was taken back, or whose time ran out, may
 * still be there. */
void ref_reached_at_least(struct ref *r, unsigned version, bool level);
/* Before and after a discard that succeeded. */
void ref_discarding(struct ref *r, unsigned version);
void ref_discarded(struct ref *r, unsigned version);
/* A flush or the end of a life has succeeded: all that is there has reached the level, and nothing
 * else is left. */
void ref_flushed(struct ref *r);
/* A folder was removed under the library; `shared`: that one. */
void ref_removed(struct ref *r, bool shared);
/* Something failed in the background, in an interface that gives a version up then: the newest
 * generations may be gone, what was safe may not. */
void ref_given_up(struct ref *r);
/* A life begins; `lost`: on another node. */
void ref_open(struct ref *r, bool lost);
/* What stands there now was written in this life. */
bool ref_ours(const struct ref *r, unsigned version);
/* The version is there, with some content of `now`; with this one. */
void ref_seen(struct ref *r, unsigned version);
void ref_seen_as(struct ref *r, unsigned version, unsigned gen);
/* The version is not there, as it may be. `opening`: and never will be. */
void ref_missed(struct ref *r, unsigned version, bool opening);

/* Retention. */
bool ref_kept_always(const struct ref *r, unsigned version);
/* Another version may be newer than this one; certainly is. */
bool ref_may_be_newer(const struct ref *r, unsigned other, unsigned version);
bool ref_is_newer(const struct ref *r, unsigned other, unsigned version);

/* The set as text, e.g. "{3 5 -}"; a buffer of its own for each of four calls in a row. */
const char *ref_text(const struct ref_set *s);

/* ---- bytes ---- */

void ref_fill(void *buf, size_t bytes, unsigned gen);
/* The generation whose bytes these are, all of them; 0: of none. */
unsigned ref_identify(const struct ref *r, const void *buf, size_t room);

#endif
