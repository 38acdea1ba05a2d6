/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storing the steps of an adjoint code, or computing them again: the time with snapshots in memory, on a disk or
 * both, and a binomial schedule (lab/shot/revolve.h) for the other steps.
 *
 * A schedule keeps its snapshots as a stack. The lowest of them are restored least often and are on the disk, the
 * others in memory; a program can place them so, and a better placement takes no longer. In each of the
 * two phases, up to the first adjoint step and from there on, time passes with computing and copying or
 * with the disk, the longer of the two. That leaves out latencies and the first record that is read.
 */
#ifndef LAB_MODEL_REVOLVE_H
#define LAB_MODEL_REVOLVE_H

#include "base/util.h"
#include "policy/model.h"

enum { MODEL_REVOLVE_STEPS = 1000000 };

struct model_reversal {
    uint32_t steps; /* up to MODEL_REVOLVE_STEPS */
    uint64_t record_bytes;
    double step_s, adjoint_s;
    double copy_bytes_per_s; /* 0: copies take no time */
    uint64_t host_bytes;
    bool has_disk;
    struct vv_model_layer disk; /* capacity 0: no limit */
};

/* One combination of snapshots in memory and on disk. */
struct model_way {
    bool fits;
    uint32_t in_memory, on_disk;    /* snapshots at one time, at most */
    uint64_t recomputed;            /* steps that are computed again, in all */
    uint64_t repeats;               /* the most recomputations of one step */
    double disk_written, disk_read; /* bytes */
    double compute_s, wall_s;
};

/* The largest number of snapshots, of up to `steps`, that memory and the disk hold. */
uint32_t model_memory_snapshots(const struct model_reversal *r);
uint32_t model_disk_snapshots(const struct model_reversal *r);

/*
 * All steps stored; a binomial schedule in memory alone; and of the schedules with so many snapshots in memory and
 * more on the disk the one that takes least time. -ENOMEM.
 */
VV_WARN_UNUSED int model_store_all(const struct model_reversal *r, struct model_way *ret_way);
VV_WARN_UNUSED int model_binomial(const struct model_reversal *r, struct model_way *ret_way);
VV_WARN_UNUSED int model_mix(const struct model_reversal *r, struct model_way *ret_way);

#endif
