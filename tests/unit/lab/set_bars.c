/* SPDX-License-Identifier: Apache-2.0 */
/* Bars over a set of cases: the comparison of each one, the allowances, and the figures of another build. */
#include "lab/sim/set_bars.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "t.h"

static struct set_bars_case make_case(uint32_t id, const char *what)
{
    struct set_bars_case c = {
        .id = id, .what = what, .before_one_s = NAN, .before_none_s = NAN, .before_twice_s = NAN};

    for (size_t s = 0; s < SET_BARS_NR_SERIES; s++)
        c.r[s] = (struct sim_set_result){.blocked_s = 10,
                                         .bound_s = 10,
                                         .object_s = 2,
                                         .read_s = 1,
                                         .refill_s = 4,
                                         .least_s = 5,
                                         .most_s = 5};
    return c;
}

static const struct set_bar *find(const struct set_bar *bars, size_t nr, const char *part)
{
    for (size_t i = 0; i < nr; i++)
        if (strstr(bars[i].name, part))
            return &bars[i];
    return NULL;
}

static void allowances(void)
{
    struct set_bars_case c[2] = {make_case(7, "rev"), make_case(9, "queue")};
    struct set_bar bars[SET_BARS_MOST];
    const struct set_bar *b;
    size_t nr;

    c[1].r[SET_BARS_ALL].blocked_s = 20;  /* (20 - 2) / 10 */
    c[0].r[SET_BARS_NONE].blocked_s = 16; /* (16 - 1) / 10; a queue does not count */
    c[1].r[SET_BARS_NONE].blocked_s = 90;
    c[1].r[SET_BARS_WRONG].blocked_s = 220;        /* (220 - 4) / 90 */
    c[0].r[SET_BARS_OTHERS_ALL + 2].blocked_s = 5; /* (10 - 2) / 5 */
    c[1].r[SET_BARS_TWICE].most_s = 15;
    nr = set_bars_make(c, 2, bars);
    b = find(bars, nr, "less one object, over bound, 95%");
    T_CHECK(b && fabs(b->reached - 1.8) < 1e-9 && b->one_figure);
    b = find(bars, nr, "better of one and none");
    T_CHECK(b && fabs(b->reached - 1.8) < 1e-9 && b->over == 1 && b->cases == 2 && b->worst == 9);
    b = find(bars, nr, "seq and rev");
    T_CHECK(b && b->cases == 1 && fabs(b->reached - 1.5) < 1e-9 && b->worst == 7);
    b = find(bars, nr, "wrong hints");
    T_CHECK(b && fabs(b->reached - 2.4) < 1e-9);
    b = find(bars, nr, "best other policy");
    T_CHECK(b && fabs(b->reached - 18.0 / 10) < 1e-9 && b->over == 2);
    b = find(bars, nr, "the one over the other");
    T_CHECK(b && fabs(b->reached - 3) < 1e-9);
    T_CHECK(!find(bars, nr, "three times") && !find(bars, nr, "before"));
}

static void what_failed_does_not_count(void)
{
    struct set_bars_case c[2] = {make_case(0, "rev, repeat 3"), make_case(1, "seq")};
    struct set_bar bars[SET_BARS_MOST];
    size_t nr;

    c[1].r[SET_BARS_ALL].blocked_s = NAN;
    nr = set_bars_make(c, 2, bars);
    T_EQ(find(bars, nr, "median")->cases, 1);
    T_EQ(find(bars, nr, "three times")->cases, 1);
    T_CHECK(!find(bars, nr, "seq and rev"));
}

static void another_build(void)
{
    struct set_bars_case c = make_case(3, "rev, sizes vary");
    struct set_bar bars[SET_BARS_MOST];
    char path[] = "/tmp/varve-bars-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    const struct set_bar *b;
    size_t nr;

    fprintf(f, "id,series,case,blocked_s,bound_s,object_s,failure\n"
               "2,next/one,\"rev\",1,1,1,\n"
               "3,next/one,\"rev, sizes vary\",4,1,1,\n"
               "3,next/none,\"rev, sizes vary\",5,1,1,\n"
               "3,next/all/twice,\"rev, sizes vary\",8,1,1,\n");
    fclose(f);
    T_OK(set_bars_read_before(path, &c, 1));
    nr = set_bars_make(&c, 1, bars);
    b = find(bars, nr, "as they were before");
    T_CHECK(b && fabs(b->reached - 2) < 1e-9); /* (10 - 2) / 4 */
    b = find(bars, nr, "together over before");
    T_CHECK(b && fabs(b->reached - 1.25) < 1e-9);
    T_EQ(truncate(path, 0), 0);
    T_EQ(set_bars_read_before(path, &c, 1), -EINVAL);
    T_OK(unlink(path));
    T_EQ(set_bars_read_before(path, &c, 1), -ENOENT);
}

int main(void)
{
    T_RUN(allowances);
    T_RUN(what_failed_does_not_count);
    T_RUN(another_build);
    return t_done();
}
