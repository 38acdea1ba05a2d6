/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of the machine, as far as this process may use it. */
#ifndef VV_CORE_TOPO_H
#define VV_CORE_TOPO_H

struct vv_topo {
    unsigned threads; /* hardware threads */
    unsigned
        cores; /* with hwloc: cores that have at least one of them; otherwise the same number */
    unsigned nodes; /* with hwloc: memory nodes; otherwise 1 */
};

/* Takes some milliseconds with hwloc. Every number is at least 1. Any thread. */
void vv_topo_get(struct vv_topo *ret_topo);

#endif
