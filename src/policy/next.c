/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/next.h"

bool vv_next_disk_has_time(uint64_t calls, uint64_t interval_ns, uint64_t missing_bytes,
                           uint64_t disk_rate)
{
    if (disk_rate == 0)
        return false;
    return (double)calls * (double)interval_ns > (double)missing_bytes * 1e9 / (double)disk_rate;
}

bool vv_next_write_beside_reads(uint64_t calls, uint64_t interval_ns, uint64_t missing_bytes,
                                uint64_t unwritten_bytes, uint64_t disk_rate, uint32_t reads)
{
    return reads >= VV_NEXT_WRITE_TURN ||
           vv_next_disk_has_time(calls, interval_ns, missing_bytes + unwritten_bytes, disk_rate);
}

bool vv_next_disk_idles(uint64_t distance, uint64_t resident_bytes, uint64_t interval_ns,
                        uint64_t disk_rate)
{
    return distance == 0 && (double)resident_bytes < (double)interval_ns * (double)disk_rate / 1e9;
}

/* True if the victim would have to be read again before the other page is used, and the disk has no
 * time for that. */
static bool comes_back(const struct vv_next_question *q)
{
    return q->victim < q->rank && q->victim_expected && !q->victim_in_memory && !q->disk_has_time;
}

bool vv_next_may_evict(const struct vv_next_question *q)
{
    if (q->purpose == VV_FOR_DEMAND)
        return true;
    /* Between restores, reading such a page again takes the disk longer than the flush that the put
     * waits for. */
    if (q->purpose == VV_FOR_PUT)
        return !q->mixed || q->stands_still || !comes_back(q);
    /* An exchange of places takes only free pages and duplicates. */
    if (q->purpose == VV_FOR_DEMOTE)
        return false;
    if (q->purpose == VV_FOR_FLUSH && q->phase == VV_PHASE_WRITING && q->headroom_low) {
        /* Puts wait, and the disk limits them. Data that is on the disk already is worth more than
         * data that would have to be written now, wanted early or late. */
        return !q->mixed || !comes_back(q);
    }
    /* Never evict a page that is wanted before the one that needs room. */
    if (q->victim <= q->rank)
        return false;
    if (!q->victim_expected && vv_next_use(q->victim) == VV_USE_CONSUMED)
        return true;
    /* Room in the slower tier before the faster one needs it would only be filled with duplicates.
     * While a request waits for flushes, or restores have begun, the faster tier gains nothing by
     * it. */
    if (q->purpose == VV_FOR_FLUSH)
        return false;
    /* The page that needs room will be wanted a second time before the victim: evicting the victim
     * causes no more disk reads than keeping it. */
    if (q->rank_after < q->victim)
        return true;
    return !q->victim_expected || q->victim_in_memory || q->disk_has_time || q->disk_idles;
}
