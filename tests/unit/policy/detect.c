/* SPDX-License-Identifier: Apache-2.0 */
/* The pattern detector: forward, reverse, strides, and requests that break a pattern. */
#include "policy/detect.h"

#include "t.h"

static enum vv_detect_verdict see(struct vv_detect *d, uint64_t ordinal)
{
    return vv_detect_restore(d, ordinal, 10, 19);
}

static void one_request_at_either_end(void)
{
    struct vv_detect first = {0}, last = {0}, middle = {0}, single = {0};

    T_EQ(see(&first, 10), VV_DETECT_FOUND);
    T_EQ(first.stride, 1);
    T_EQ(see(&last, 19), VV_DETECT_FOUND);
    T_EQ(last.stride, -1);
    T_EQ(see(&middle, 14), VV_DETECT_NONE);
    T_EQ(middle.stride, 0);
    /* One version only: nothing follows it. */
    T_EQ(vv_detect_restore(&single, 5, 5, 5), VV_DETECT_NONE);
}

static void forward_and_reverse(void)
{
    struct vv_detect d = {0};

    T_EQ(see(&d, 10), VV_DETECT_FOUND);
    for (uint64_t o = 11; o < 20; o++)
        T_EQ(see(&d, o), VV_DETECT_HELD);
    d = (struct vv_detect){0};
    T_EQ(see(&d, 19), VV_DETECT_FOUND);
    for (uint64_t o = 18; o >= 10; o--)
        T_EQ(see(&d, o), VV_DETECT_HELD);
}

/* From the middle, the same step twice is a pattern. */
static void strides(void)
{
    struct vv_detect d = {0};

    T_EQ(see(&d, 18), VV_DETECT_NONE);
    T_EQ(see(&d, 16), VV_DETECT_NONE);
    T_EQ(see(&d, 14), VV_DETECT_FOUND);
    T_EQ(d.stride, -2);
    T_EQ(see(&d, 12), VV_DETECT_HELD);
    T_EQ(see(&d, 10), VV_DETECT_HELD);
}

static void broken_and_found_again(void)
{
    struct vv_detect d = {0};

    T_EQ(see(&d, 10), VV_DETECT_FOUND);
    T_EQ(see(&d, 11), VV_DETECT_HELD);
    T_EQ(see(&d, 15), VV_DETECT_BROKEN);
    T_EQ(d.stride, 0);
    T_EQ(see(&d, 16), VV_DETECT_NONE); /* step 1 after step 4 */
    T_EQ(see(&d, 17), VV_DETECT_FOUND);
    T_EQ(d.stride, 1);
}

/* The same version again is no step: the pattern continues. */
static void repeats(void)
{
    struct vv_detect d = {0};

    T_EQ(see(&d, 12), VV_DETECT_NONE);
    T_EQ(see(&d, 12), VV_DETECT_SAME);
    T_EQ(see(&d, 12), VV_DETECT_SAME);
    d = (struct vv_detect){0};
    T_EQ(see(&d, 19), VV_DETECT_FOUND);
    T_EQ(see(&d, 19), VV_DETECT_SAME);
    T_EQ(see(&d, 18), VV_DETECT_HELD);
    T_EQ(see(&d, 18), VV_DETECT_SAME);
    T_EQ(see(&d, 17), VV_DETECT_HELD);
}

/* After a break the newest version means reverse again: it is the top of a stack. */
static void newest_after_a_break(void)
{
    struct vv_detect d = {0};

    T_EQ(see(&d, 19), VV_DETECT_FOUND);
    T_EQ(see(&d, 18), VV_DETECT_HELD);
    T_EQ(see(&d, 19), VV_DETECT_FOUND);
    T_EQ(d.stride, -1);
    T_EQ(see(&d, 18), VV_DETECT_HELD);
}

int main(void)
{
    T_RUN(one_request_at_either_end);
    T_RUN(forward_and_reverse);
    T_RUN(strides);
    T_RUN(broken_and_found_again);
    T_RUN(repeats);
    T_RUN(newest_after_a_break);
    return t_done();
}
