/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of the machine, as far as this process may use it. */
#ifndef VV_BASE_TOPO_H
#define VV_BASE_TOPO_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct vv_topo {
    unsigned threads; /* hardware threads */
    unsigned
        cores; /* with hwloc: cores that have at least one of them; otherwise the same number */
    unsigned nodes; /* with hwloc: memory nodes; otherwise 1 */
};

/* Takes some milliseconds with hwloc. Every number is at least 1. Any thread. */
void vv_topo_get(struct vv_topo *ret_topo);
/* Hardware threads that this process may use, at least 1. Cheap. Any thread. */
unsigned vv_topo_threads(void);

/* The last level of the processor's caches, as far as the system tells; 32 MiB otherwise. Cheap. */
size_t vv_topo_cache_bytes(void);

/* The core of each of `n` processors: the number of the first processor of it; its own number where
 * nothing is known. Takes some milliseconds. */
void vv_topo_core_of(uint16_t *ret_core_of, size_t n);

/* Processors near a PCI device, such as "0000:00:06.0"; none where that is not known. */
void vv_topo_cpus_near(const char *pci_bus_id, cpu_set_t *ret_cpus);

/* Places memory that has not been touched yet on the memory node nearest to a PCI device, such as
 * "0000:00:06.0", as far as that node has any. 0, also where there is nothing to choose: one node,
 * or no hwloc. -ENOENT: no such device is known; or the system's error. `ptr` is page-aligned. Takes
 * some tens of milliseconds where there are several nodes. Any thread. */
int vv_topo_bind_near(void *ptr, size_t bytes, const char *pci_bus_id) VV_WARN_UNUSED;

#endif
