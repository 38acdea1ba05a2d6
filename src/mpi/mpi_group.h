/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of a job as one group, for libraries that must not depend on MPI themselves: they load libvarve-mpi when
 * they get a communicator, and find this table in it. All functions except close are collective; no thread of the
 * library calls them.
 */
#ifndef VV_MPI_GROUP_H
#define VV_MPI_GROUP_H

#include <stddef.h>
#include <stdint.h>

struct vv_group;

/* Returns the caller's newest version not above `max`, and its run. -ENOENT: none; any other error fails the agreement
 * on all processes. */
typedef int vv_group_newest_fn(void *arg, uint64_t max, uint64_t *ret_version, uint64_t *ret_run);

struct vv_group_ops {
    uint32_t format; /* VV_GROUP_FORMAT, the version of this table */
    /* `comm` points to an MPI_Comm. The group makes its own communicator. -ELIBACC: a process of `comm`
     * has left itself out. */
    int (*open)(const void *comm, struct vv_group **ret_group);
    /* Collective if MPI is not finalized yet. Accepts NULL. */
    void (*close)(struct vv_group *group);
    int (*rank)(const struct vv_group *group);
    int (*size)(const struct vv_group *group);
    /* Sets the `bytes` bytes at `data` to those of the first process. */
    int (*broadcast)(struct vv_group *group, void *data, int bytes);
    /* The least of all results: 0 if all have succeeded. */
    int (*all)(struct vv_group *group, int rc);
    /* The newest version that all processes have from the same run. -ENOENT: none. */
    int (*agree)(struct vv_group *group, vv_group_newest_fn *newest, void *arg, uint64_t max,
                 uint64_t *ret_version);
    /* The processors that the processes of this node are bound to, as a list; empty: none is bound. */
    int (*cores)(struct vv_group *group, char *ret_list, size_t size);
};

enum { VV_GROUP_FORMAT = 2 };

/* The name under which the table is exported. */
#define VV_GROUP_SYMBOL  "varve_group_ops_mpi"
#define VV_GROUP_LIBRARY "libvarve-mpi.so.0"

#endif
