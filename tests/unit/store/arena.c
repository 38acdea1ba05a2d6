/* SPDX-License-Identifier: Apache-2.0 */
/* The arena against a plain array of flags, and its choice of runs. */
#include "store/arena/arena.h"

#include <stdlib.h>

#include "t.h"

enum { PAGES = 257 };

static void whole_and_empty(void)
{
    struct vv_arena a;
    uint32_t got = 0;

    T_OK(vv_arena_init(&a, 8, 8, 4, 1));
    T_EQ(a.nfree, 8);
    T_EQ(vv_arena_run(&a, 0), 8);
    T_EQ(vv_arena_take(&a, 100, &got), 0);
    T_EQ(got, 8);
    T_EQ(a.nfree, 0);
    T_CHECK(vv_arena_take(&a, 1, &got) == VV_PAGE_NONE);
    T_EQ(got, 8); /* set on success only */
    for (uint32_t p = 0; p < 8; p++)
        T_EQ(a.page[p].state, VV_PAGE_RESERVED);
    vv_arena_give(&a, 0, 8);
    T_CHECK(!vv_arena_check(&a));
    T_EQ(vv_arena_run(&a, 0), 8);
    vv_arena_fini(&a);
    T_OK(vv_arena_init(&a, 0, 0, 2, 1));
    T_CHECK(vv_arena_take(&a, 1, &got) == VV_PAGE_NONE);
    T_CHECK(!vv_arena_check(&a));
    vv_arena_fini(&a);
    T_ERR(vv_arena_init(&a, VV_PAGE_NONE - 1, 0, 1, 1), -EINVAL);
}

/* Leaves free runs of these lengths, separated by one used page each. */
static void make_runs(struct vv_arena *a, const uint32_t *len, unsigned n)
{
    uint32_t total = n - 1, at = 0, got;

    for (unsigned i = 0; i < n; i++)
        total += len[i];
    T_OK(vv_arena_init(a, total, total, 0, 1));
    vv_arena_take(a, total, &got);
    for (unsigned i = 0; i < n; i++) {
        vv_arena_give(a, at, len[i]);
        at += len[i] + 1;
    }
    T_CHECK(!vv_arena_check(a));
}

static void choice_of_runs(void)
{
    const uint32_t len[] = {3, 16, 1, 5};
    struct vv_arena a;
    uint32_t got = 0;

    make_runs(&a, len, 4);
    /* The smallest run that holds it whole, not the longest. */
    T_EQ(vv_arena_take(&a, 5, &got), 3 + 1 + 16 + 1 + 1 + 1);
    T_EQ(got, 5);
    T_EQ(vv_arena_take(&a, 1, &got), 3 + 1 + 16 + 1);
    T_EQ(vv_arena_take(&a, 3, &got), 0);
    /* No run holds it: takes the longest. */
    T_EQ(vv_arena_take(&a, 20, &got), 4);
    T_EQ(got, 16);
    T_EQ(a.nfree, 0);
    vv_arena_fini(&a);
}

static void exact_pages(void)
{
    const uint32_t len[] = {10, 10};
    struct vv_arena a;
    uint32_t got = 0;

    make_runs(&a, len, 2);
    vv_arena_take_at(&a, 3, 4); /* out of the middle */
    T_CHECK(!vv_arena_check(&a));
    T_EQ(vv_arena_run(&a, 0), 3);
    T_EQ(vv_arena_run(&a, 7), 3);
    vv_arena_take_at(&a, 11, 10);
    T_EQ(a.nfree, 6);
    vv_arena_give(&a, 3, 4); /* both neighbours are free: one run again */
    T_EQ(vv_arena_run(&a, 0), 10);
    T_EQ(vv_arena_take(&a, 10, &got), 0);
    vv_arena_fini(&a);
}

static void checker_sees(void)
{
    struct vv_arena a;
    uint32_t got;

    T_OK(vv_arena_init(&a, 16, 16, 0, 1));
    vv_arena_take(&a, 4, &got);
    T_CHECK(!vv_arena_check(&a));
    a.nfree++;
    T_CHECK(vv_arena_check(&a));
    a.nfree--;
    a.page[15].chunk--; /* the far end of the free run */
    T_CHECK(vv_arena_check(&a));
    a.page[15].chunk++;
    a.page[9].state = VV_PAGE_VALID;
    T_CHECK(vv_arena_check(&a));
    a.page[9].state = VV_PAGE_FREE;
    T_CHECK(!vv_arena_check(&a));
    vv_arena_fini(&a);
}

/* Pages become ready from the first on; the last free run extends into the new pages. */
static void grows(void)
{
    struct vv_arena a;
    uint32_t got = 0;

    T_OK(vv_arena_init(&a, 16, 0, 4, 1));
    T_CHECK(vv_arena_growing(&a));
    T_EQ(a.nfree, 0);
    T_EQ(vv_arena_take(&a, 3, &got), VV_PAGE_NONE);
    vv_arena_grow(&a, 0);
    T_EQ(a.nfree, 0);
    vv_arena_grow(&a, 4);
    T_EQ(vv_arena_run(&a, 0), 4);
    T_EQ(vv_arena_take(&a, 8, &got), 0);
    T_EQ(got, 4);
    vv_arena_grow(&a, 6); /* the pages before are in use */
    T_EQ(vv_arena_run(&a, 4), 2);
    vv_arena_grow(&a, 9); /* the pages before are free: one run */
    T_EQ(vv_arena_run(&a, 4), 5);
    T_EQ(a.nfree, 5);
    T_CHECK(!vv_arena_check(&a));
    vv_arena_give(&a, 2, 2); /* returned at the border of ready pages: nothing beyond joins */
    T_EQ(vv_arena_run(&a, 2), 7);
    T_CHECK(!vv_arena_check(&a));
    vv_arena_stop(&a);
    T_CHECK(!vv_arena_growing(&a));
    T_EQ(a.npromised, 9);
    T_EQ(a.npages, 16);
    T_EQ(vv_arena_take(&a, 9, &got), 2);
    T_EQ(got, 7);
    T_EQ(vv_arena_take(&a, 1, &got), VV_PAGE_NONE);
    T_CHECK(!vv_arena_check(&a));
    a.nready = 10;
    T_CHECK(vv_arena_check(&a));
    vv_arena_fini(&a);
}

static uint32_t longest_run(const bool *used)
{
    uint32_t best = 0, run = 0;

    for (uint32_t p = 0; p < PAGES; p++) {
        run = used[p] ? 0 : run + 1;
        best = VV_MAX(best, run);
    }
    return best;
}

/* Random takes and gives. A take gets all it wants if some run holds it, otherwise the longest run. */
static void against_a_model(void)
{
    struct t_rng r = {t_seed()};
    bool used[PAGES] = {0};
    struct vv_arena a;
    uint32_t nused = 0;

    T_OK(vv_arena_init(&a, PAGES, PAGES, 3, 1));
    for (int step = 0; step < 20000; step++) {
        uint32_t want = 1 + (uint32_t)t_rng_below(&r, 20), got = 0, first;
        bool give = t_rng_below(&r, 100) < nused * 100 / PAGES;
        if (give) {
            first = (uint32_t)t_rng_below(&r, PAGES);
            for (got = 0; got < want && first + got < PAGES && used[first + got]; got++)
                used[first + got] = false;
            if (got)
                vv_arena_give(&a, first, got);
            nused -= got;
        } else {
            uint32_t longest = longest_run(used);
            first = vv_arena_take(&a, want, &got);
            T_EQ(first == VV_PAGE_NONE, longest == 0);
            if (first == VV_PAGE_NONE)
                continue;
            /* It looks only at a few runs of about the right size, then at larger ones. */
            T_CHECK(got == want || (got <= longest && longest < 2 * want));
            for (uint32_t p = first; p < first + got; p++) {
                T_CHECK(!used[p]);
                used[p] = true;
            }
            nused += got;
        }
        T_EQ(a.nfree, PAGES - nused);
        for (uint32_t p = 0; p < PAGES; p++)
            T_EQ(a.page[p].state != VV_PAGE_FREE, used[p]);
        const char *wrong = vv_arena_check(&a);
        T_STREQ(wrong ? wrong : "", "");
    }
    vv_arena_fini(&a);
}

/* Taking many pages at once gives the same pages, in the same order, as taking them run by run, and leaves the
 * same choice for later takes. */
static void pages_as_runs(void)
{
    struct t_rng r = {t_seed()};
    struct vv_arena one, all;

    T_OK(vv_arena_init(&one, PAGES, PAGES, 3, 1));
    T_OK(vv_arena_init(&all, PAGES, PAGES, 3, 1));
    for (int step = 0; step < 5000; step++) {
        uint32_t pages[PAGES], want = (uint32_t)t_rng_below(&r, PAGES + 9), got, at = 0, run = 0;
        for (int i = 0; i < 60; i++) { /* runs of one to four pages, and longer ones */
            uint32_t first = (uint32_t)t_rng_below(&r, PAGES), n = 0,
                     most = 1 + (uint32_t)t_rng_below(&r, i % 8 == 0 ? 40 : 4);
            while (n < most && first + n < PAGES && one.page[first + n].state != VV_PAGE_FREE)
                n++;
            if (n) {
                vv_arena_give(&one, first, n);
                vv_arena_give(&all, first, n);
            }
        }
        got = vv_arena_take_pages(&all, want, pages);
        T_EQ(got, VV_MIN(want, one.nfree));
        while (at < got) {
            uint32_t first = vv_arena_take(&one, want - at, &run);
            for (uint32_t i = 0; i < run; i++, at++)
                T_EQ(pages[at], first + i);
        }
        T_EQ(at, got);
        T_EQ(one.nfree, all.nfree);
        for (uint32_t p = 0; p < PAGES; p++)
            T_EQ(one.page[p].state, all.page[p].state);
        const char *wrong = vv_arena_check(&all);
        T_STREQ(wrong ? wrong : "", "");
    }
    vv_arena_fini(&one);
    vv_arena_fini(&all);
}

/* Parts of pages: no two overlap, a page is cut while one of its parts is in use, and is freed whole. */
static void parts_of_pages(void)
{
    enum { UNITS = 16, MOST = 512 };
    struct t_rng r = {t_seed()};
    uint32_t part[MOST], each[MOST], n = 0;
    struct vv_arena a;

    T_OK(vv_arena_init(&a, 32, 24, 3, UNITS));
    T_EQ(vv_arena_take_part(&a, 4), a.first_part);
    T_EQ(a.nfree, 23);
    vv_arena_give_part(&a, a.first_part);
    T_EQ(a.nfree, 24);
    for (int step = 0; step < 20000; step++) {
        bool owner[32 * UNITS] = {0};
        if (n > 0 && t_rng_below(&r, 24 * UNITS) < n) {
            uint32_t i = (uint32_t)t_rng_below(&r, n--);
            vv_arena_give_part(&a, part[i]);
            part[i] = part[n];
            each[i] = each[n];
        } else {
            each[n] = UNITS / (2 + (uint32_t)t_rng_below(&r, UNITS - 1));
            part[n] = vv_arena_take_part(&a, each[n]);
            if (part[n] == VV_PAGE_NONE) {
                T_EQ(a.nfree, 0);
                continue;
            }
            T_CHECK(vv_arena_is_part(&a, part[n]) && vv_arena_page_of(&a, part[n]) < 24);
            n++;
        }
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t u = 0; u < each[i]; u++) {
                T_CHECK(!owner[part[i] - a.first_part + u]);
                owner[part[i] - a.first_part + u] = true;
            }
        const char *wrong = vv_arena_check(&a);
        T_STREQ(wrong ? wrong : "", "");
    }
    while (n > 0)
        vv_arena_give_part(&a, part[--n]);
    T_EQ(a.nfree, 24);
    vv_arena_fini(&a);
}

int main(void)
{
    T_RUN(whole_and_empty);
    T_RUN(choice_of_runs);
    T_RUN(exact_pages);
    T_RUN(checker_sees);
    T_RUN(grows);
    T_RUN(against_a_model);
    T_RUN(pages_as_runs);
    T_RUN(parts_of_pages);
    return t_done();
}
