/* SPDX-License-Identifier: Apache-2.0 */
#include "base/topo.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cpus.h"
#include "base/util.h"

#ifdef HAVE_HWLOC
#include <hwloc.h>

/* Gets cores, caches and memory nodes from hwloc. By default hwloc leaves out what the process may not use, but
 * ignores the binding of the process: so threads are counted by affinity, and cores are limited to the number of
 * threads. */
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

static int bind_near(hwloc_topology_t t, void *ptr, size_t bytes, const char *pci_bus_id)
{
    hwloc_obj_t device, place;

    hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_ALL);
    errno = 0;
    if (hwloc_topology_load(t) != 0)
        return errno ? -errno : -EIO;
    if (hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE) <= 1)
        return 0;
    device = hwloc_get_pcidev_by_busidstring(t, pci_bus_id);
    place = device ? hwloc_get_non_io_ancestor_obj(t, device) : NULL;
    if (!place || !place->nodeset)
        return -ENOENT;
    /* Not strict: if the node has too little memory, the rest comes from other nodes. */
    errno = 0;
    if (hwloc_set_area_membind(t, ptr, bytes, place->nodeset, HWLOC_MEMBIND_BIND,
                               HWLOC_MEMBIND_BYNODESET) != 0)
        return errno ? -errno : -EIO;
    return 0;
}

/* A quick check without hwloc, which is slow. */
static bool one_node(void)
{
    char list[32] = "";
    FILE *f = fopen("/sys/devices/system/node/has_memory", "re");

    if (!f)
        return false;
    if (!fgets(list, sizeof(list), f))
        list[0] = 0;
    fclose(f);
    return list[0] && !strpbrk(list, ",-");
}

int vv_topo_bind_near(void *ptr, size_t bytes, const char *pci_bus_id)
{
    hwloc_topology_t t;
    int rc;

    if (one_node())
        return 0;
    if (hwloc_topology_init(&t) != 0)
        return -ENOMEM;
    rc = bind_near(t, ptr, bytes, pci_bus_id);
    hwloc_topology_destroy(t);
    return rc;
}

void vv_topo_core_of(uint16_t *ret_core_of, size_t n)
{
    hwloc_topology_t t;

    for (size_t i = 0; i < n; i++)
        ret_core_of[i] = (uint16_t)i;
    if (hwloc_topology_init(&t) != 0)
        return;
    if (hwloc_topology_load(t) == 0)
        for (hwloc_obj_t core = NULL;
             (core = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_CORE, core)) != NULL;) {
            int first = hwloc_bitmap_first(core->complete_cpuset);
            for (int i = first; i >= 0 && (size_t)i < n;
                 i = hwloc_bitmap_next(core->complete_cpuset, i))
                ret_core_of[i] = (uint16_t)first;
        }
    hwloc_topology_destroy(t);
}

#else

void vv_topo_core_of(uint16_t *ret_core_of, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char path[96];
        unsigned first = 0;
        ret_core_of[i] = (uint16_t)i;
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list",
                 i);
        FILE *f = fopen(path, "re");
        if (!f)
            continue;
        if (fscanf(f, "%u", &first) == 1 && first < n)
            ret_core_of[i] = (uint16_t)first;
        fclose(f);
    }
}

int vv_topo_bind_near(void *ptr, size_t bytes, const char *pci_bus_id)
{
    (void)ptr;
    (void)bytes;
    (void)pci_bus_id;
    return 0;
}

static void ask_hwloc(struct vv_topo *topo)
{
    (void)topo;
}

#endif

void vv_topo_cpus_near(const char *pci_bus_id, cpu_set_t *ret_cpus)
{
    char path[128] = "/sys/bus/pci/devices/", text[1024] = "";
    size_t n = strlen(path);
    CPU_ZERO(ret_cpus);
    for (; *pci_bus_id && n + 1 < sizeof(path) - 16; pci_bus_id++)
        path[n++] = (char)tolower((unsigned char)*pci_bus_id);
    snprintf(path + n, sizeof(path) - n, "/local_cpulist");
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (fgets(text, sizeof(text), f))
        text[strcspn(text, "\n")] = 0;
    fclose(f);
    if (vv_cpus_parse(text, ret_cpus) != 0)
        CPU_ZERO(ret_cpus);
}

unsigned vv_topo_threads(void)
{
    cpu_set_t cpus;

    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 0)
        return (unsigned)CPU_COUNT(&cpus);
    return 1;
}

/* Cache size of the first processor from the kernel's files; 0: unknown. */
static size_t cache_of_kernel(void)
{
    size_t most = 0;

    for (int i = 0; i < 8; i++) {
        char path[80], text[32] = "";
        unsigned long long kib = 0;
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *f = fopen(path, "re");
        if (!f)
            break;
        if (fgets(text, sizeof(text), f) && sscanf(text, "%lluK", &kib) == 1)
            most = VV_MAX(most, (size_t)kib);
        fclose(f);
    }
    return most;
}

size_t vv_topo_cache_bytes(void)
{
    /* Synchronization: relaxed; all threads compute the same value. */
    static _Atomic size_t found;
    size_t bytes = atomic_load_explicit(&found, memory_order_relaxed);

    if (bytes)
        return bytes;
    bytes = cache_of_kernel() << 10;
    if (bytes < (size_t)1 << 20)
        bytes = (size_t)32 << 20;
    atomic_store_explicit(&found, bytes, memory_order_relaxed);
    return bytes;
}

void vv_topo_get(struct vv_topo *ret_topo)
{
    struct vv_topo topo = {1, 1, 1};

    topo.threads = vv_topo_threads();
    topo.cores = topo.threads;
    ask_hwloc(&topo);
    *ret_topo = topo;
}
