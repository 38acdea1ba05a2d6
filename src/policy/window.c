/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both searches move a window [i, j) over the fragments: j advances until the window is large
 * enough, then i drops its first fragment, and so on. Fragments that cannot go are counted instead
 * of having an infinite time, so that sums stay exact when they leave the window again.
 *
 * As printed, the algorithm stops when j reaches n, and so never examines the windows that begin
 * later and end with the last fragment. Here i advances until the rest is too small. The printed
 * inner loop compares with a `size_target` that it does not define: here that is the size of the new
 * checkpoint.
 *
 * Gaps are preferred, as in the text of the paper: one that is large enough is taken as it is, and
 * in a window with other fragments a gap counts as wanted later than any of them. With a distance
 * of 0 it would lose against every copy that may go, and free space would never be used.
 */
#include "policy/window.h"

static bool bars(const struct vv_frag *f, bool now_only)
{
    return f->barred || (now_only && f->wait_ns > 0);
}

static uint64_t distance_of(const struct vv_frag *f, uint64_t farthest)
{
    return f->gap ? farthest + 1 : f->distance;
}

bool vv_window_score(const struct vv_frag *frags, size_t n, uint64_t pages, bool now_only,
                     struct vv_window *ret_window)
{
    uint64_t size = 0, wait = 0, distance = 0, barred = 0, best_wait = 0, best_distance = 0;
    uint64_t farthest = 0;
    size_t gap = n;
    bool found = false;

    for (size_t i = 0; i < n; i++) {
        farthest = frags[i].distance > farthest ? frags[i].distance : farthest;
        if (frags[i].gap && frags[i].pages >= pages &&
            (gap == n || frags[i].pages < frags[gap].pages))
            gap = i;
    }
    if (gap < n) {
        *ret_window = (struct vv_window){.first = gap, .end = gap + 1};
        return true;
    }
    for (size_t i = 0, j = 0; i < n; i++) {
        for (; size < pages && j < n; j++) {
            size += frags[j].pages;
            wait += frags[j].wait_ns;
            distance += distance_of(&frags[j], farthest);
            barred += bars(&frags[j], now_only);
        }
        if (size < pages)
            break;
        if (barred == 0 &&
            (!found || wait < best_wait || (wait == best_wait && distance > best_distance))) {
            found = true;
            best_wait = wait;
            best_distance = distance;
            *ret_window = (struct vv_window){.first = i, .end = j, .wait_ns = wait};
        }
        size -= frags[i].pages;
        wait -= frags[i].wait_ns;
        distance -= distance_of(&frags[i], farthest);
        barred -= bars(&frags[i], now_only);
    }
    return found;
}

bool vv_window_oldest(struct vv_frag *frags, size_t n, uint64_t pages, struct vv_window *ret_window)
{
    uint64_t size = 0, barred = 0, best = 0;
    size_t head = 0,
           tail = 0; /* frags[head..tail).scratch: indices with falling stamps, the maximum first */
    bool found = false;

    for (size_t i = 0, j = 0; i < n; i++) {
        for (; size < pages && j < n; j++) {
            size += frags[j].pages;
            barred += bars(&frags[j], true);
            while (tail > head && frags[frags[tail - 1].scratch].stamp <= frags[j].stamp)
                tail--;
            frags[tail++].scratch = (uint32_t)j;
        }
        if (size < pages)
            break;
        if (barred == 0 && (!found || frags[frags[head].scratch].stamp < best)) {
            found = true;
            best = frags[frags[head].scratch].stamp;
            *ret_window = (struct vv_window){.first = i, .end = j};
        }
        size -= frags[i].pages;
        barred -= bars(&frags[i], true);
        if (frags[head].scratch == i)
            head++;
    }
    return found;
}
