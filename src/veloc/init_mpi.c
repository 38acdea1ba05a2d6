/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VELOC_Init. This library takes a communicator, but calls no function of MPI and is not linked with it: programs that
 * use VELOC_Init_single need no MPI. All code that needs MPI is in libvarve-mpi, which is loaded here: a program with a
 * communicator has MPI.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include <veloc.h>

#include "veloc/veloc_private.h"

static const char here[] = "an address in this library";

/* Loads it from the folder of this library. */
static void *load_beside(void)
{
    char path[PATH_MAX];
    Dl_info self;
    if (!dladdr(here, &self) || !self.dli_fname)
        return NULL;
    const char *slash = strrchr(self.dli_fname, '/');
    int n = slash ? (int)(slash - self.dli_fname) : 0;
    if (!slash || snprintf(path, sizeof(path), "%.*s/" VV_GROUP_LIBRARY, n, self.dli_fname) >=
                      (int)sizeof(path))
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

/* Loads it from there, or from the system's search path. It stays loaded. */
static const struct vv_group_ops *load_group(void)
{
    void *library = load_beside();
    if (!library)
        library = dlopen(VV_GROUP_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        vvi_veloc_say(NULL, "VELOC_Init: %s", dlerror());
        return NULL;
    }
    const struct vv_group_ops *ops = dlsym(library, VV_GROUP_SYMBOL);
    if (!ops || ops->format != VV_GROUP_FORMAT) {
        vvi_veloc_say(NULL, "VELOC_Init: " VV_GROUP_LIBRARY " belongs to another version");
        return NULL;
    }
    return ops;
}

/* Takes part in the split of the communicator that the other processes are about to make, as one
 * that belongs to no part: otherwise they would wait for this process. It needs MPI's functions,
 * which this library is not linked with; if the program does not make them visible, the others do
 * wait. */
static void leave_out(MPI_Comm comm)
{
    typedef int initialized_fn(int *flag);
    typedef int split_fn(MPI_Comm comm, int color, int key, MPI_Comm *ret_comm);
    initialized_fn *initialized = (initialized_fn *)dlsym(RTLD_DEFAULT, "MPI_Initialized");
    split_fn *split = (split_fn *)dlsym(RTLD_DEFAULT, "MPI_Comm_split");
    MPI_Comm none;
    int ready = 0;
    if (initialized && split && initialized(&ready) == 0 && ready)
        (void)split(comm, MPI_UNDEFINED, 0, &none);
}

int VELOC_Init(MPI_Comm comm, const char *cfg_file)
{
    const struct vv_group_ops *ops = load_group();
    struct vv_group *group = NULL;
    if (!ops) {
        leave_out(comm);
        return VELOC_FAILURE;
    }
    int rc = ops->open(&comm, &group);
    if (rc) {
        vvi_veloc_say(NULL, "VELOC_Init: %s",
                      rc == -EPERM     ? "MPI_Init was not called"
                      : rc == -ELIBACC ? "another process cannot use " VV_GROUP_LIBRARY
                                       : varve_strerror(rc));
        return VELOC_FAILURE;
    }
    return vvi_veloc_open(ops->rank(group), cfg_file, ops, group);
}
