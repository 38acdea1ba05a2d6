/* SPDX-License-Identifier: Apache-2.0 */
/* What each process of a set owes the others for one version, and when the version is safe. No I/O, no lock,
 * no clock; the tests run it in every order that they can think of.
 *
 * A version has parity when every member has committed a file of it, all of one run. A layout is these files:
 * members, generations, lengths; its sum names it. Each member makes the parity that it keeps for the layout
 * and says so to the others. When all have, losing any k members loses nothing.
 *
 * Overwriting gives another layout. What is kept for the earlier one stays until the later one is safe, or until
 * all others have said that they neither rely on it nor will: whoever has said that its parity is there has
 * promised its file as well, and keeps it when its owner removes it. */
#ifndef VV_STORE_PARITY_RULES_H
#define VV_STORE_PARITY_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/parity/erasure.h"

#define VV_PARITY_STATES(X)                                                           \
    X(LONE, "a member has no file of the version yet, or one of another run")         \
    X(DUE, "all have one; this process's parity is to be made")                       \
    X(BUSY, "it is being made")                                                       \
    X(MADE, "it is committed; that of another member is not yet, or not known to be") \
    X(SAFE, "all parity is committed")                                                \
    X(FAILED, "a member's parity could not be made; tried again when somebody asks")

enum vv_parity_state {
#define VV_PARITY_ENUM(name, what) VV_PARITY_##name,
    VV_PARITY_STATES(VV_PARITY_ENUM)
#undef VV_PARITY_ENUM
        VV_PARITY_STATE_COUNT
};

/* A member's file of the version. generation 0: it has none. */
struct vv_parity_file {
    uint64_t generation, run_id;
    uint64_t bytes; /* of its string */
    uint32_t rank, chunk_bytes;
};

struct vv_parity_version {
    uint64_t version;
    uint32_t n, k, me;
    enum vv_parity_state state;
    int status;        /* FAILED: why */
    uint64_t sum;      /* of the layout that `state` is about; 0: none yet */
    uint64_t safe_sum; /* of the last one that was safe; 0: none, or the file is gone */
    struct vv_parity_file file[VV_ERASURE_MAX];
    uint64_t made[VV_ERASURE_MAX]; /* by member: for which layout it has committed parity last */
    uint64_t made_total[VV_ERASURE_MAX]; /* by member: its vv_parity_total when it said so */
    uint64_t high[VV_ERASURE_MAX];       /* by member: its highest generation so far */
    /* By member, as it said last: the layout that it relies on, and its vv_parity_total. */
    uint64_t relied[VV_ERASURE_MAX], total[VV_ERASURE_MAX];
};

/* What a caller has to do after an event, in this order. */
enum {
    VV_PARITY_CANCEL = 1,      /* the parity that is being made is not wanted any more */
    VV_PARITY_START = 2,       /* there is parity to be made: vv_parity_begin when there is time */
    VV_PARITY_TELL_MADE = 4,   /* others: vv_parity_made, of `sum` */
    VV_PARITY_TELL_FAILED = 8, /* others: vv_parity_failed, of `sum` and `status` */
    VV_PARITY_TELL_AGAIN = 16, /* others: vv_parity_again, of `sum` */
    VV_PARITY_REPORT = 32,     /* SAFE or FAILED: to whoever waits */
    VV_PARITY_DROP_OLD = 64    /* parity that is kept for this file and another layout goes */
};

void vv_parity_init(struct vv_parity_version *v, uint64_t version, uint32_t n, uint32_t k,
                    uint32_t me, const uint32_t *ranks);
/* A member, this process included, has committed a file. */
unsigned vv_parity_have(struct vv_parity_version *v, uint32_t member,
                        const struct vv_parity_file *file);
/* A member has removed one. */
unsigned vv_parity_gone(struct vv_parity_version *v, uint32_t member, uint64_t generation);
/* A member has committed parity for a layout. `total`: its vv_parity_total then. A layout may come again, when what
 * replaced its files is removed; what was said before that does not count, since that parity may be gone. */
unsigned vv_parity_made(struct vv_parity_version *v, uint32_t member, uint64_t sum, uint64_t total);
unsigned vv_parity_failed(struct vv_parity_version *v, uint32_t member, uint64_t sum, int status);
/* Somebody waits here (sum 0), or where a layout failed. */
unsigned vv_parity_again(struct vv_parity_version *v, uint64_t sum);
/* DUE becomes BUSY; then one of these two, if it was not cancelled. */
void vv_parity_begin(struct vv_parity_version *v);
unsigned vv_parity_done(struct vv_parity_version *v, int status);
/* What goes with every message: a layout is left behind by all who know of a higher total. */
uint64_t vv_parity_total(const struct vv_parity_version *v);
/* What a member said with its message, which is carried out first: v->safe_sum there, and its total. */
void vv_parity_heard(struct vv_parity_version *v, uint32_t member, uint64_t relied, uint64_t total);
/* May another member rely on a layout that had this total, or come to rely on it? */
bool vv_parity_relies(const struct vv_parity_version *v, uint64_t sum, uint64_t total);
/* Is the version safe with the file that this process has now? */
bool vv_parity_is_safe(const struct vv_parity_version *v);

/* The name of a layout: from VV_PARITY_SUM on, where no generation is, and below 2^64 - 1. */
#define VV_PARITY_SUM (UINT64_C(1) << 63)
uint64_t vv_parity_sum(uint64_t version, uint32_t n, uint32_t k, const struct vv_parity_file *file);

/* Deals `count` processes to sets of about `size`, so that no two members of one have the same domain
 * (domain[i] < count) and none has less than k + 1 members. Members are in the order of ranks.
 * ret_set[i]: the set of process i. -EINVAL: there is no such way; *ret_sets is then the least number of sets
 * that keep domains apart. `work` has room for count + 1 numbers: it takes no memory of its own, so that it
 * has the same answer on every process. */
VV_WARN_UNUSED int vv_parity_sets(uint32_t count, const uint32_t *domain, uint32_t size, uint32_t k,
                                  uint32_t *work, uint32_t *ret_set, uint32_t *ret_sets);

#endif
