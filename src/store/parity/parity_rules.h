/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of parity for one version: what each process of a set must make and keep for the others, and when the version
 * is safe. No I/O, no lock, no clock; the tests run the rules in every order of events.
 *
 * A version has parity when every member has committed a file of it, all of one run. A layout is these files:
 * members, generations, lengths; its sum is its name. Each member makes the parity that it keeps for the layout
 * and notifies the others. When all have, any k members may be lost without loss of data.
 *
 * An overwrite gives another layout. The parity kept for the earlier one stays until the later one is safe, or until
 * all others have said that they do not rely on the earlier one and will not. A member that has announced its parity
 * has promised its file as well, and keeps the file when its owner removes it. */
#ifndef VV_STORE_PARITY_RULES_H
#define VV_STORE_PARITY_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/parity/erasure.h"

#define VV_PARITY_STATES(X)                                                           \
    X(LONE, "a member has no file of the version yet, or one of another run")         \
    X(DUE, "all members have a file; this process has to make its parity")            \
    X(BUSY, "this process makes its parity")                                          \
    X(MADE, "it is committed; that of another member is not yet, or not known to be") \
    X(SAFE, "all parity is committed")                                                \
    X(FAILED, "a member could not make its parity; tried again when a thread waits for it")

enum vv_parity_state {
#define VV_PARITY_ENUM(name, what) VV_PARITY_##name,
    VV_PARITY_STATES(VV_PARITY_ENUM)
#undef VV_PARITY_ENUM
        VV_PARITY_STATE_COUNT
};

/* A member's file of the version. generation 0: none. */
struct vv_parity_file {
    uint64_t generation, run_id;
    uint64_t bytes; /* of its string */
    uint32_t rank, chunk_bytes;
};

struct vv_parity_version {
    uint64_t version;
    uint32_t n, k, me;
    enum vv_parity_state state;
    int status;        /* FAILED: the error */
    uint64_t sum;      /* of the layout that `state` describes; 0: none yet */
    uint64_t safe_sum; /* of the last safe layout; 0: none, or the file was removed */
    struct vv_parity_file file[VV_ERASURE_MAX];
    uint64_t made[VV_ERASURE_MAX]; /* by member: the last layout for which it committed parity */
    uint64_t made_total[VV_ERASURE_MAX]; /* by member: its vv_parity_total when it announced that */
    uint64_t high[VV_ERASURE_MAX];       /* by member: its highest generation so far */
    /* By member, from its last message: the layout that it relies on, and its vv_parity_total. */
    uint64_t relied[VV_ERASURE_MAX], total[VV_ERASURE_MAX];
};

/* Actions of the caller after an event, in this order. */
enum {
    VV_PARITY_CANCEL = 1,      /* stop making parity: it is no longer needed */
    VV_PARITY_START = 2,       /* parity is due: call vv_parity_begin when there is time */
    VV_PARITY_TELL_MADE = 4,   /* call vv_parity_made of `sum` on the others */
    VV_PARITY_TELL_FAILED = 8, /* call vv_parity_failed of `sum` and `status` on the others */
    VV_PARITY_TELL_AGAIN = 16, /* call vv_parity_again of `sum` on the others */
    VV_PARITY_REPORT = 32,     /* SAFE or FAILED: wake the waiters */
    VV_PARITY_DROP_OLD = 64    /* drop the parity kept for this file in another layout */
};

void vv_parity_init(struct vv_parity_version *v, uint64_t version, uint32_t n, uint32_t k,
                    uint32_t me, const uint32_t *ranks);
/* A member, this process included, has committed a file. */
unsigned vv_parity_have(struct vv_parity_version *v, uint32_t member,
                        const struct vv_parity_file *file);
/* A member has removed one. */
unsigned vv_parity_gone(struct vv_parity_version *v, uint32_t member, uint64_t generation);
/* A member has committed parity for a layout. `total`: its vv_parity_total then. A layout may come again, when the
 * files that replaced its files are removed; announcements from before do not count, since that parity may be gone. */
unsigned vv_parity_made(struct vv_parity_version *v, uint32_t member, uint64_t sum, uint64_t total);
unsigned vv_parity_failed(struct vv_parity_version *v, uint32_t member, uint64_t sum, int status);
/* A thread waits for a failed layout: here (sum 0), or at another member (its sum). */
unsigned vv_parity_again(struct vv_parity_version *v, uint64_t sum);
/* DUE becomes BUSY; then vv_parity_done follows, unless it was cancelled. */
void vv_parity_begin(struct vv_parity_version *v);
unsigned vv_parity_done(struct vv_parity_version *v, int status);
/* Sent with every message: members that know of a higher total no longer use the layout. */
uint64_t vv_parity_total(const struct vv_parity_version *v);
/* Notes what a member sent with its message (v->safe_sum there, and its total). Process the message first. */
void vv_parity_heard(struct vv_parity_version *v, uint32_t member, uint64_t relied, uint64_t total);
/* True if another member may rely on a layout that had this total, now or later. */
bool vv_parity_relies(const struct vv_parity_version *v, uint64_t sum, uint64_t total);
/* True if the version is safe with the file that this process has now. */
bool vv_parity_is_safe(const struct vv_parity_version *v);

/* Name of a layout: from VV_PARITY_SUM on, above all generations, and below 2^64 - 1. */
#define VV_PARITY_SUM (UINT64_C(1) << 63)
uint64_t vv_parity_sum(uint64_t version, uint32_t n, uint32_t k, const struct vv_parity_file *file);

/* Deals `count` processes to sets of about `size`, so that no two members of a set have the same domain
 * (domain[i] < count) and no set has less than k + 1 members. Members are in the order of ranks. ret_set[i]:
 * the set of process i. -EINVAL: not possible; *ret_sets is then the least number of sets that keep domains
 * apart. `work` has room for count + 1 numbers. The function allocates nothing, so that it has the same
 * answer on every process. */
VV_WARN_UNUSED int vv_parity_sets(uint32_t count, const uint32_t *domain, uint32_t size, uint32_t k,
                                  uint32_t *work, uint32_t *ret_set, uint32_t *ret_sets);

#endif
