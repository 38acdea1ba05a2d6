/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of pages, orders and transit areas. Shared by the runtime and the simulator, so that both
 * run the same machine.
 */
#include "engine/core/core_private.h"

/* Duration of one order: short enough that an urgent one soon has its turn, long enough that the
 * cost of starting it does not show. */
#define ORDER_NS 2e6
/* On a hop of unknown speed. A disk at full speed needs large requests, several in flight. A disk
 * that is slowed down for a measurement needs short ones, which follow the set rate closely, and as
 * many, because the real disk below hesitates now and then. */
#define DISK_BYTES (1 << 20)
#define DISK_SLOTS 8
/* A link at full speed loses 2 to 5 us between two copies, and its mover is sometimes late by more
 * than the duration of a copy of 8 MiB: copies of 16 MiB, three of them queued. Copies under way
 * must not fill a small cache. */
#define LINK_BYTES       (16 << 20)
#define LINK_BYTES_LEAST (8 << 20)
#define LINK_PARTS       64
#define LINK_SLOTS       3
#define PACED_SLOTS      2
/* Within a memory at full speed, an order takes as much as it can: the copy is short, and the cost
 * of starting it dominates. */
#define PACED_PAGES 64

/* Transit pages are part of a host cache of COUNTED_LEAST or more, and at most a TRANSIT_PART-th of
 * it; beside a smaller one they take BESIDE_BYTES at most. */
#define COUNTED_LEAST ((uint64_t)16 << 20)
#define TRANSIT_PART  4
#define BESIDE_BYTES  ((uint64_t)4 << 20)

/* Pages are small enough that the ends of objects waste little. Caches with many more pages than
 * that requires use larger ones: the overhead of a page does not depend on its size, and it shows
 * in a call that copies at a thousand GB/s. */
enum { PAGE_MIN = 16 << 10, PAGE_MID = 256 << 10, PAGE_MAX = 1 << 20 };
enum { PAGES_WANTED = 1024, PAGES_PLENTY = 4096 };

uint32_t vv_core_page_bytes(uint64_t device_cache_bytes, uint64_t host_cache_bytes)
{
    uint64_t least = host_cache_bytes;
    uint32_t page = PAGE_MID;

    if (device_cache_bytes && (!least || device_cache_bytes < least))
        least = device_cache_bytes;
    while (page > PAGE_MIN && least / page < PAGES_WANTED)
        page /= 2;
    while (page >= PAGE_MID && page < PAGE_MAX && least / (2 * page) >= PAGES_PLENTY)
        page *= 2;
    return page;
}

/* Size of one order on a link of unknown speed. */
static double link_bytes(const struct vv_core_cfg *cfg)
{
    uint64_t least = UINT64_MAX;

    for (unsigned t = 0; t < cfg->ntiers; t++)
        if (cfg->tier[t].kind == VV_TIER_DEVICE || cfg->tier[t].kind == VV_TIER_HOST)
            least = VV_MIN(least, cfg->tier[t].capacity_bytes);
    return (double)VV_MAX(VV_MIN(least / LINK_PARTS, (uint64_t)LINK_BYTES),
                          (uint64_t)LINK_BYTES_LEAST);
}

static int tier_of(const struct vv_core_cfg *cfg, bool disk)
{
    for (unsigned t = 0; t < cfg->ntiers; t++)
        if (disk ? cfg->tier[t].kind > VV_TIER_HOST : cfg->tier[t].kind == VV_TIER_HOST)
            return (int)t;
    return -1;
}

/* Transit pages in each direction that keep the disk busy: as many as are in flight, because a page
 * is emptied in a fraction of the time that the disk takes to fill the others. */
static uint32_t in_flight(const struct vv_core_cfg *cfg)
{
    uint32_t down = cfg->batch_pages[VV_HOP_H2F] * cfg->slots[VV_HOP_H2F];
    uint32_t up = cfg->batch_pages[VV_HOP_F2H] * cfg->slots[VV_HOP_F2H];
    return VV_MAX(down, up);
}

/* The size of a host cache includes its transit pages. A cache below COUNTED_LEAST has them beside
 * it, because too little of it would be left. */
static void tune_transit(struct vv_core_cfg *cfg)
{
    int host = tier_of(cfg, false);
    if (host < 0 || tier_of(cfg, true) < 0)
        return; /* nothing passes */
    uint64_t *bytes = &cfg->tier[host].capacity_bytes, page = cfg->page_bytes;
    uint64_t pages = in_flight(cfg);
    bool counted = *bytes >= COUNTED_LEAST;
    if (*bytes > 0)
        pages = VV_MIN(pages, (counted ? *bytes / TRANSIT_PART : BESIDE_BYTES) / 2 / page);
    cfg->transit_pages = (uint32_t)VV_MAX(pages, (uint64_t)1);
    if (counted)
        *bytes -= 2 * cfg->transit_pages * page;
}

uint64_t vv_core_host_cache(const struct vv_core_cfg *cfg, uint64_t bytes)
{
    if (tier_of(cfg, true) < 0 || bytes < COUNTED_LEAST)
        return bytes;
    uint64_t flight = 2 * (uint64_t)in_flight(cfg) * cfg->page_bytes;
    return bytes + VV_MIN(flight, vv_div_up(bytes, (uint64_t)TRANSIT_PART - 1));
}

void vv_core_cfg_tune(struct vv_core_cfg *cfg)
{
    for (int hop = 0; hop < VV_HOP_COUNT; hop++) {
        bool disk = hop == VV_HOP_H2F || hop == VV_HOP_F2H;
        bool within = hop == VV_HOP_D2D;
        double bytes = disk ? DISK_BYTES : link_bytes(cfg);
        if (cfg->rate[hop])
            bytes = (double)cfg->rate[hop] * ORDER_NS / 1e9;
        uint64_t pages = VV_MAX((uint64_t)(bytes / cfg->page_bytes), (uint64_t)1);
        pages = VV_MIN(pages, (uint64_t)PACED_PAGES);
        if (within && !cfg->rate[hop])
            pages = VV_ORDER_MAX_PAGES;
        if (!cfg->batch_pages[hop])
            cfg->batch_pages[hop] = (uint32_t)pages;
        if (!cfg->slots[hop])
            cfg->slots[hop] = disk ? DISK_SLOTS : cfg->rate[hop] ? PACED_SLOTS : LINK_SLOTS;
    }
    if (!cfg->transit_pages)
        tune_transit(cfg);
}
