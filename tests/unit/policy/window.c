/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of the contiguous policies: the errors of the printed algorithm, and a comparison with
 * all windows tried one by one. */
#include "policy/window.h"

#include "base/util.h"
#include "t.h"

enum { MAX_FRAGS = 24 };

#define SECOND UINT64_C(1000000000)

/* The algorithm as printed: the scan ends when j reaches n, and the inner loop compares with a size
 * that is given from outside. Kept to show that the examples below distinguish the two. */
static bool as_printed(const struct vv_frag *f, size_t n, uint64_t size_new, uint64_t size_target,
                       struct vv_window *ret)
{
    uint64_t best = UINT64_MAX;

    for (size_t i = 0, j = 0; j < n; i++) {
        uint64_t size = 0, wait = 0;
        for (j = i; j < n && size < size_target; j++) {
            size += f[j].pages;
            wait += f[j].wait_ns;
        }
        if (size >= size_new && wait < best) {
            best = wait;
            *ret = (struct vv_window){.first = i, .end = j, .wait_ns = wait};
        }
    }
    return best != UINT64_MAX;
}

/* As printed, the scan ends when it reaches the last fragment and takes the first two, for 10 s. */
static void gap_at_the_end(void)
{
    const struct vv_frag f[] = {
        {.pages = 4, .wait_ns = 5 * SECOND, .distance = 1},
        {.pages = 4, .wait_ns = 5 * SECOND, .distance = 1},
        {.pages = 2, .wait_ns = 9 * SECOND, .distance = 1},
        {.pages = 8, .gap = true},
    };
    struct vv_window w = {0};

    T_CHECK(vv_window_score(f, 4, 8, false, &w));
    T_EQ(w.first, 3);
    T_EQ(w.end, 4);
    T_EQ(w.wait_ns, 0);
    T_CHECK(as_printed(f, 4, 8, 8, &w));
    T_EQ(w.first, 0);
    T_EQ(w.wait_ns, 10 * SECOND);
}

/* `size_target` of the printed inner loop is the size of the new checkpoint: a window ends as soon
 * as it is that large. Any other reading (the whole size, the largest fragment, the size so far)
 * gives another window. */
static void window_ends_when_large_enough(void)
{
    const struct vv_frag f[] = {
        {.pages = 3, .wait_ns = 1},
        {.pages = 3, .wait_ns = 1},
        {.pages = 9, .wait_ns = 7},
        {.pages = 3, .wait_ns = 1},
    };
    struct vv_window w = {0};

    T_CHECK(vv_window_score(f, 4, 6, false, &w));
    T_EQ(w.first, 0);
    T_EQ(w.end, 2);
    T_EQ(w.wait_ns, 2);
    T_CHECK(as_printed(f, 4, 6, 9, &w)); /* the largest fragment */
    T_EQ(w.wait_ns, 7);
    T_CHECK(as_printed(f, 4, 6, 18, &w)); /* the whole size */
    T_EQ(w.wait_ns, 10);
    T_CHECK(vv_window_score(f, 4, 3, false, &w));
    T_EQ(w.first, 0);
    T_EQ(w.end, 1);
    T_CHECK(vv_window_score(f, 4, 18, false, &w));
    T_EQ(w.end - w.first, 4);
    T_CHECK(!vv_window_score(f, 4, 19, false, &w));
    T_CHECK(!vv_window_score(f, 0, 1, false, &w));
}

/* Among windows that are evictable equally soon: the one wanted last, and the first of those. */
static void ties(void)
{
    struct vv_frag f[] = {
        {.pages = 1, .distance = 4},
        {.pages = 1, .distance = 9},
        {.pages = 1, .distance = 9},
        {.pages = 1, .distance = 2},
    };
    struct vv_window w = {0};

    T_CHECK(vv_window_score(f, 4, 1, false, &w));
    T_EQ(w.first, 1);
    f[1].wait_ns = 1;
    T_CHECK(vv_window_score(f, 4, 1, false, &w));
    T_EQ(w.first, 2);
    f[2].barred = true;
    T_CHECK(vv_window_score(f, 4, 1, false, &w));
    T_EQ(w.first, 0);
    T_CHECK(!vv_window_score(f, 4, 3, false, &w));
    f[2].barred = false;
    T_CHECK(vv_window_score(f, 4, 4, false, &w));
    T_CHECK(!vv_window_score(f, 4, 4, true, &w)); /* one of them cannot go now */
}

/* Free space is used before anything is evicted, the smallest gap that is large enough first. */
static void gaps_go_first(void)
{
    struct vv_frag f[] = {
        {.pages = 4, .distance = 100}, {.pages = 9, .gap = true},   {.pages = 4, .distance = 50},
        {.pages = 5, .gap = true},     {.pages = 4, .distance = 1},
    };
    struct vv_window w = {0};

    T_CHECK(vv_window_score(f, 5, 4, false, &w));
    T_EQ(w.first, 3);
    T_EQ(w.end, 4);
    T_CHECK(vv_window_score(f, 5, 6, false, &w));
    T_EQ(w.first, 1);
    /* No gap is large enough: with all else equal, the window with the most gaps wins. */
    T_CHECK(vv_window_score(f, 5, 15, false, &w));
    T_EQ(w.first, 1);
    T_EQ(w.end, 4);
}

/* The shortest window that begins at i and is large enough; 0: none. */
static size_t window_at(const struct vv_frag *f, size_t n, size_t i, uint64_t pages)
{
    uint64_t size = 0;

    for (size_t j = i; j < n; j++) {
        size += f[j].pages;
        if (size >= pages)
            return j + 1;
    }
    return 0;
}

static bool score_by_force(const struct vv_frag *f, size_t n, uint64_t pages, bool now_only,
                           struct vv_window *ret)
{
    uint64_t best_distance = 0, farthest = 0, smallest = UINT64_MAX;
    bool found = false;

    for (size_t i = 0; i < n; i++) {
        farthest = VV_MAX(farthest, f[i].distance);
        if (f[i].gap && f[i].pages >= pages && f[i].pages < smallest) {
            smallest = f[i].pages;
            *ret = (struct vv_window){.first = i, .end = i + 1};
        }
    }
    if (smallest < UINT64_MAX)
        return true;
    for (size_t i = 0; i < n; i++) {
        size_t end = window_at(f, n, i, pages);
        uint64_t wait = 0, distance = 0;
        bool barred = end == 0;
        for (size_t k = i; k < end; k++) {
            wait += f[k].wait_ns;
            distance += f[k].gap ? farthest + 1 : f[k].distance;
            barred |= f[k].barred || (now_only && f[k].wait_ns > 0);
        }
        if (barred ||
            (found && (wait > ret->wait_ns || (wait == ret->wait_ns && distance <= best_distance))))
            continue;
        found = true;
        best_distance = distance;
        *ret = (struct vv_window){.first = i, .end = end, .wait_ns = wait};
    }
    return found;
}

static bool oldest_by_force(const struct vv_frag *f, size_t n, uint64_t pages,
                            struct vv_window *ret)
{
    uint64_t best = 0;
    bool found = false;

    for (size_t i = 0; i < n; i++) {
        size_t end = window_at(f, n, i, pages);
        uint64_t newest = 0;
        bool barred = end == 0;
        for (size_t k = i; k < end; k++) {
            newest = VV_MAX(newest, f[k].stamp);
            barred |= f[k].barred || f[k].wait_ns > 0;
        }
        if (barred || (found && newest >= best))
            continue;
        found = true;
        best = newest;
        *ret = (struct vv_window){.first = i, .end = end};
    }
    return found;
}

static size_t draw(struct t_rng *r, struct vv_frag *f)
{
    size_t n = (size_t)t_rng_below(r, MAX_FRAGS + 1);

    for (size_t i = 0; i < n; i++) {
        f[i] = (struct vv_frag){.pages = 1 + t_rng_below(r, 6)};
        f[i].gap = t_rng_below(r, 4) == 0;
        if (f[i].gap)
            continue;
        f[i].wait_ns = t_rng_below(r, 3) ? 0 : t_rng_below(r, 4);
        f[i].distance = t_rng_below(r, 5);
        f[i].stamp = 1 + t_rng_below(r, 30);
        f[i].barred = t_rng_below(r, 8) == 0;
    }
    return n;
}

static void against_brute_force(void)
{
    struct t_rng r = {t_seed()};

    for (int k = 0; k < 50000; k++) {
        struct vv_frag f[MAX_FRAGS];
        struct vv_window got = {0}, want = {0};
        size_t n = draw(&r, f);
        uint64_t pages = 1 + t_rng_below(&r, 20);
        for (int now = 0; now < 2; now++) {
            bool found = score_by_force(f, n, pages, now, &want);
            T_EQ(vv_window_score(f, n, pages, now, &got), found);
            T_EQ(got.first, want.first);
            T_EQ(got.end, want.end);
            T_EQ(got.wait_ns, want.wait_ns);
        }
        got = want = (struct vv_window){0};
        T_EQ(vv_window_oldest(f, n, pages, &got), oldest_by_force(f, n, pages, &want));
        T_EQ(got.first, want.first);
        T_EQ(got.end, want.end);
    }
}

int main(void)
{
    T_RUN(gap_at_the_end);
    T_RUN(window_ends_when_large_enough);
    T_RUN(ties);
    T_RUN(gaps_go_first);
    T_RUN(against_brute_force);
    return t_done();
}
