/* SPDX-License-Identifier: Apache-2.0 */
/* Topology of the part of the machine that this process may use. */
#ifndef VV_BASE_TOPO_H
#define VV_BASE_TOPO_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct vv_topo {
    unsigned threads; /* hardware threads */
    unsigned
        cores; /* with hwloc: cores with at least one of these threads; otherwise the same number */
    unsigned nodes; /* with hwloc: memory nodes; otherwise 1 */
};

/* Takes some milliseconds with hwloc. Every number is at least 1. Any thread. */
void vv_topo_get(struct vv_topo *ret_topo);
/* Hardware threads that this process may use, at least 1. Cheap. Any thread. */
unsigned vv_topo_threads(void);

/* Size of the processor's last-level cache; 32 MiB if the system does not report it. Cheap. */
size_t vv_topo_cache_bytes(void);

/* The core of each of `n` processors, as the number of its first processor; if not known, the processor's own
 * number. Takes some milliseconds. */
void vv_topo_core_of(uint16_t *ret_core_of, size_t n);

/* Processors near a PCI device, such as "0000:00:06.0"; none where that is not known. */
void vv_topo_cpus_near(const char *pci_bus_id, cpu_set_t *ret_cpus);

/* Places memory that has not been touched yet on the memory node nearest to a PCI device, such as
 * "0000:00:06.0", as far as that node has room. Returns 0, also if there is no choice: one node, or no hwloc.
 * -ENOENT: the device is not known; or the system's error. `ptr` is page-aligned. Takes some tens of
 * milliseconds if there are several nodes. Any thread. */
int vv_topo_bind_near(void *ptr, size_t bytes, const char *pci_bus_id) VV_WARN_UNUSED;

#endif
