/* SPDX-License-Identifier: Apache-2.0 */
#include "core/topo.h"

#include <sched.h>

#include "core/util.h"

#ifdef HAVE_HWLOC
#include <hwloc.h>

/* What hwloc knows beyond the number of threads. By default it leaves out what the process may not
 * use, but for the binding of the process, which is why the threads are counted by affinity and the
 * cores never exceed them. */
static void ask_hwloc(struct vv_topo *topo)
{
    hwloc_topology_t t;
    int cores, nodes;

    if (hwloc_topology_init(&t) != 0)
        return;
    if (hwloc_topology_load(t) == 0) {
        cores = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
        nodes = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE);
        if (cores > 0)
            topo->cores = VV_MIN((unsigned)cores, topo->threads);
        if (nodes > 0)
            topo->nodes = (unsigned)nodes;
    }
    hwloc_topology_destroy(t);
}

#else

static void ask_hwloc(struct vv_topo *topo)
{
    (void)topo;
}

#endif

void vv_topo_get(struct vv_topo *ret_topo)
{
    struct vv_topo topo = {1, 1, 1};
    cpu_set_t cpus;

    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 0)
        topo.threads = (unsigned)CPU_COUNT(&cpus);
    topo.cores = topo.threads;
    ask_hwloc(&topo);
    *ret_topo = topo;
}
