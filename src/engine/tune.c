/* SPDX-License-Identifier: Apache-2.0 */
/* How finely work is cut: shared by the runtime and the simulator, so that both run the same machine. */
#include "engine/core_private.h"

/* One order takes about this long: short enough that an urgent one soon has its turn, long enough that the cost of
 * starting it does not show. */
#define ORDER_NS 2e6

void vv_core_cfg_tune(struct vv_core_cfg *cfg)
{
    for (int hop = 0; hop < VV_HOP_COUNT; hop++) {
        bool disk = hop == VV_HOP_H2F || hop == VV_HOP_F2H;
        /* A disk whose rate is not given is fed with what saturates real ones: 8 requests of 1 MiB. */
        double bytes = cfg->rate[hop] ? (double)cfg->rate[hop] * ORDER_NS / 1e9 : disk ? 1 << 20 : 8 << 20;
        uint64_t pages = (uint64_t)(bytes / cfg->page_bytes);
        if (!cfg->batch_pages[hop])
            cfg->batch_pages[hop] = (uint32_t)VV_MIN(VV_MAX(pages, 1), VV_ORDER_MAX_PAGES);
        if (!cfg->slots[hop])
            cfg->slots[hop] = disk && !cfg->rate[hop] ? 8 : 2;
    }
    if (!cfg->transit_pages) {
        uint32_t down = cfg->batch_pages[VV_HOP_H2F] * cfg->slots[VV_HOP_H2F];
        uint32_t up = cfg->batch_pages[VV_HOP_F2H] * cfg->slots[VV_HOP_F2H];
        cfg->transit_pages = 2 * VV_MAX(down, up);
    }
}
