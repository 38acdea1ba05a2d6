/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buffers of the memory tiers, and pacing of copies within host memory.
 *
 * The host tier is one anonymous mapping, aligned to huge pages and placed near the device; its
 * pages are made ready in runtime_grow.c, most of them while it is in use. The device tier is one
 * allocation of the device.
 *
 * All of this runs in vv_engine_open and vv_engine_close, while no other thread uses the engine,
 * except the pacer.
 *
 * Risk: a cache larger than memory. A mapping would be granted and the process killed while
 * touching it, so its size is first compared with the memory that the system reports as available.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/topo.h"
#include "engine/runtime/runtime_private.h"

#define HUGE_BYTES ((size_t)2 << 20)

/* A copy that begins this soon after the paced end of the last one counts as following it at once,
 * so that sleeping too long does not add up. */
#define PACER_SLACK_NS (150 * VV_NS_PER_US)

int vvi_engine_mem_check(const struct vv_engine_cfg *cfg, char *err, size_t err_bytes)
{
    char want[VV_BYTES_TEXT], have[VV_BYTES_TEXT];
    uint64_t available = vvi_memory_available();
    if (available == 0 || cfg->host_cache_bytes <= available)
        return 0;
    snprintf(err, err_bytes, "host cache: %s wanted, %s available; set host_cache lower",
             vv_bytes_human(cfg->host_cache_bytes, want, sizeof(want)),
             vv_bytes_human(available, have, sizeof(have)));
    return -ENOMEM;
}

/* Affects only speed: memory that is farther away works as well. */
static void place_near_device(const struct vv_engine *e, void *base, size_t bytes)
{
    struct vv_device_info info = {0};
    if (!e->cfg.device)
        return;
    vv_device_describe(e->cfg.device, &info);
    int rc = info.pci_bus_id[0] ? vv_topo_bind_near(base, bytes, info.pci_bus_id) : 0;
    if (rc)
        vv_log(VV_LOG_INFO, "host cache: it could not be placed near %s: %s", info.pci_bus_id,
               strerror(-rc));
}

/* Maps private memory. */
static int map_alone(size_t bytes, char **ret_base)
{
    char *map =
        mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return -errno;
    char *base = (char *)vv_align_up((uintptr_t)map, HUGE_BYTES);
    size_t before = (size_t)(base - map), after = HUGE_BYTES - before;
    if (before)
        munmap(map, before);
    if (after)
        munmap(base + bytes, after);
    madvise(base, bytes, MADV_HUGEPAGE);
    *ret_base = base;
    return 0;
}

static int host_init(struct vv_engine *e, unsigned tier, size_t bytes, char *err, size_t err_bytes)
{
    bytes = vv_align_up(bytes, HUGE_BYTES);
    void *shared = NULL;
    char *base = NULL;
    /* Memory that cannot be shared is read and written by threads of this process. */
    e->grow.shared = e->cfg.helper && vv_helper_map(e->cfg.helper, bytes, &shared) == 0;
    int rc = e->grow.shared ? 0 : map_alone(bytes, &base);
    if (rc) {
        char want[VV_BYTES_TEXT];
        snprintf(err, err_bytes, "host cache: cannot map %s",
                 vv_bytes_human(bytes, want, sizeof(want)));
        return rc;
    }
    if (e->grow.shared)
        base = shared;
    e->base[tier] = base;
    e->base_bytes[tier] = bytes;
    place_near_device(e, base, bytes);
    return vvi_grow_init(e, tier, err, err_bytes);
}

static int device_init(struct vv_engine *e, unsigned tier, size_t bytes, char *err,
                       size_t err_bytes)
{
    void *ptr;
    int rc = vv_device_mem_alloc(e->cfg.device, bytes, &ptr);
    if (rc) {
        char want[VV_BYTES_TEXT], have[VV_BYTES_TEXT];
        size_t free_bytes = 0, total = 0;
        int known = vv_device_mem_info(e->cfg.device, &free_bytes, &total);
        snprintf(err, err_bytes, "device cache: %s wanted, %s free",
                 vv_bytes_human(bytes, want, sizeof(want)),
                 known == 0 ? vv_bytes_human(free_bytes, have, sizeof(have)) : "unknown");
        return rc;
    }
    e->base[tier] = ptr;
    e->base_bytes[tier] = bytes;
    return 0;
}

int vvi_engine_mem_init(struct vv_engine *e, char *err, size_t err_bytes)
{
    for (unsigned t = 0; t < e->ntiers; t++) {
        if (e->kind[t] != VV_TIER_DEVICE && e->kind[t] != VV_TIER_HOST)
            continue;
        e->first_part[t] = vv_core_tier_pages(e->core, t);
        uint64_t bytes = e->first_part[t] * e->cfg.page_bytes;
        if (bytes == 0)
            continue;
        int rc = e->kind[t] == VV_TIER_DEVICE ? device_init(e, t, bytes, err, err_bytes)
                                              : host_init(e, t, bytes, err, err_bytes);
        if (rc)
            return rc;
    }
    return 0;
}

void vvi_engine_mem_fini(struct vv_engine *e)
{
    for (unsigned t = 0; t < e->ntiers; t++) {
        if (!e->base[t])
            continue;
        if (e->kind[t] == VV_TIER_DEVICE) {
            /* A lost device refuses; its memory is freed with it. */
            vv_device_mem_free(e->cfg.device, e->base[t]);
            continue;
        }
        vvi_grow_fini(e);
        if (e->grow.shared)
            vv_helper_unmap(e->cfg.helper, e->base[t]);
        else
            munmap(e->base[t], e->base_bytes[t]);
    }
}

void vvi_pacer_init(struct vvi_pacer *p, uint64_t bytes_per_s)
{
    vv_mutex_init(&p->lock, "engine pacer", VV_RANK_MOVER);
    p->bytes_per_s = bytes_per_s;
    p->next_free_ns = 0;
}

void vvi_pacer_fini(struct vvi_pacer *p)
{
    vv_mutex_fini(&p->lock);
}

void vvi_pacer_end(struct vvi_pacer *p, uint64_t start_ns, uint64_t bytes)
{
    if (p->bytes_per_s == 0)
        return;
    vv_mutex_lock(&p->lock);
    uint64_t from = p->next_free_ns + PACER_SLACK_NS >= start_ns ? p->next_free_ns : start_ns;
    uint64_t end = from + (uint64_t)((double)bytes * 1e9 / (double)p->bytes_per_s);
    p->next_free_ns = end;
    vv_mutex_unlock(&p->lock);
    vv_sleep_until_ns(end);
}
