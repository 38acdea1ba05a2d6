/* SPDX-License-Identifier: Apache-2.0 */
/* Histories: opened, and dropped while streams may still have work for them. */
#include <errno.h>
#include <stdlib.h>

#include "engine/core/core_private.h"

void vvi_history_fini(struct hist *h, unsigned ntiers)
{
    for (unsigned t = 0; t < ntiers; t++)
        for (int k = 0; k < HEAP_KINDS; k++)
            vv_heap_fini(&h->heap[t][k]);
    vv_table_fini(&h->versions);
    vv_table_fini(&h->replacements);
    free(h->ring);
    for (int i = 0; i < OPEN_SETS; i++)
        vv_bitset_fini(&h->open[i]);
    free(h->passed);
    vv_table_fini(&h->ending);
    vv_table_fini_items(&h->editions);
}

int vv_core_history_new(struct vv_core *core, const struct vv_core_hist_cfg *cfg,
                        uint32_t *ret_hist)
{
    uint32_t i = 0;

    if (cfg->level == VV_CORE_DURABLE &&
        (core->disk < 0 || core->tier[core->disk].kind != VV_TIER_FILES))
        return -EINVAL;
    while (i < core->nhist && (core->hist[i].used || core->hist[i].nalive))
        i++;
    if (i == core->nhist) {
        struct hist *hist = realloc(core->hist, (i + 1) * sizeof(*hist));
        if (!hist)
            return -ENOMEM;
        core->hist = hist;
        core->nhist++;
    } else {
        vvi_history_fini(&core->hist[i], core->ntiers);
    }
    core->hist[i] =
        (struct hist){.used = true, .cfg = *cfg, .head = HINT_MIDDLE, .tail = HINT_MIDDLE};
    core->hist[i].nopen = OPEN_TIER + (unsigned)core->host + 1;
    core->hist[i].hinted = cfg->order != VV_RESTORE_BY_HINTS;
    core->hist[i].next_generation = VV_MAX(cfg->first_generation, (uint64_t)1);
    *ret_hist = i;
    return 0;
}

/* Counts the requests of the history whose calls have returned: all of them are on a stream, and
 * end when the stream has carried them out. Versions that they write will not exist. */
static uint32_t leave_to_streams(struct vv_core *core, struct vv_req *list, uint32_t hist)
{
    uint32_t n = 0;

    for (struct vv_req *req = list; req; req = req->next) {
        if (req->hist != hist)
            continue;
        n += req->ordered;
        if (req->kind == VV_REQ_PUT && !req->obj->dead)
            vvi_gen_end(core, req->obj, VV_GEN_DROPPED);
    }
    return n;
}

void vv_core_history_drop(struct vv_core *core, uint32_t hist, uint64_t now_ns)
{
    struct hist *h = vvi_hist(core, hist);
    uint32_t ordered;

    vvi_core_enter(core, now_ns);
    vvi_hint_clear(core, hist);
    /* Requests whose calls timed out are still in the first two lists. */
    ordered = leave_to_streams(core, core->puts, hist);
    ordered += leave_to_streams(core, core->gets, hist);
    ordered += leave_to_streams(core, core->ordered, hist);
    vv_assert(h->pending == ordered);
    while (h->oldest)
        vvi_gen_close(core, h->oldest);
    vvi_removals_forget(core, h);
    h->used = false;
    vvi_core_leave(core);
}
