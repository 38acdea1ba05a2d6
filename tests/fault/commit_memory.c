/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One allocation of the core fails on the way of a version to its file, or when the version is removed: the call or a
 * later wait returns the error, no committed version is lost, no removed file comes back, and the next try succeeds.
 * The linker passes every allocation of the library through this file (cmake/VarveTests.cmake).
 */
#include <stdlib.h>

#include "fault/fail_alloc.h"
#include "t.h"
#include "unit/engine/hand.h"

enum { MOST = 400, FIRST_OF_MANY = 10, MANY = 40 };

/* ---- the core ---- */

static struct drive d;

static unsigned files(uint64_t version)
{
    unsigned n = 0;

    for (unsigned i = 0; i < d.nfiles; i++)
        n += d.file[i].used && d.file[i].committed && d.file[i].version == version;
    return n;
}

/* Any call may run out of memory once. It is then repeated, and succeeds. */
static void put(uint32_t h, uint64_t version, uint32_t pages)
{
    struct drive_call call;
    int rc = drive_replace(&d, &call, h, version, pages * DRIVE_PAGE);

    rc = rc ? rc : drive_finish(&d, &call);
    if (rc) {
        /* Without memory for its bookkeeping, free space counts as none. */
        T_CHECK(rc == -ENOMEM || rc == -ENOSPC);
        T_OK(drive_replace(&d, &call, h, version, pages * DRIVE_PAGE));
        T_OK(drive_finish(&d, &call));
    }
}

static void commit(uint32_t h, uint64_t version)
{
    struct drive_call call;
    int rc = drive_wait(&d, &call, h, version, VV_CORE_DURABLE);

    rc = rc ? rc : drive_finish(&d, &call);
    if (rc) {
        T_ERR(rc, -ENOMEM);
        T_OK(drive_wait(&d, &call, h, version, VV_CORE_DURABLE));
        T_OK(drive_finish(&d, &call));
    }
}

static void discard(uint32_t h, uint64_t version)
{
    int rc = drive_discard(&d, h, version);

    T_CHECK(rc == 0 || rc == -ENOMEM);
    if (rc)
        T_OK(drive_discard(&d, h, version));
}

static unsigned discarded_files(void)
{
    unsigned n = files(2);

    for (uint64_t v = FIRST_OF_MANY; v < FIRST_OF_MANY + MANY; v++)
        n += files(v);
    return n;
}

static void all_down(uint32_t h)
{
    struct drive_call call;
    uint64_t version;
    int tier;

    drive_run(&d);
    (void)vv_core_take_error(d.core, h, &version, &tier);
    for (int i = 0; i < 2; i++) {
        T_OK(drive_wait_all(&d, &call, h));
        (void)drive_finish(&d, &call);
        drive_run(&d);
    }
}

/* Versions are written, overwritten and discarded, one larger than memory, one empty; the Nth allocation fails.
 * False: there were fewer. */
static bool lives(long nth)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);

    allocs = 0;
    fails_at = nth;
    counting = true;
    put(h, 1, 2);
    commit(h, 1);
    put(h, 1, 1);
    T_CHECK(files(1) >= 1); /* the old one or both */
    commit(h, 1);
    put(h, 2, 6);
    put(h, 3, 0);
    commit(h, 3);
    for (uint64_t v = FIRST_OF_MANY; v < FIRST_OF_MANY + MANY; v++) {
        put(h, v, 1);
        commit(h, v);
    }
    /* More concurrent removals than there were concurrent orders before: they need memory. */
    discard(h, 2);
    for (uint64_t v = FIRST_OF_MANY; v < FIRST_OF_MANY + MANY; v++)
        discard(h, v);
    drive_run(&d);
    counting = false;
    /* A failed removal is reported, and tried again. */
    T_CHECK(discarded_files() == 0 || vv_core_has_error(d.core, h));
    all_down(h);
    T_EQ(files(1), 1);
    T_EQ(files(3), 1);
    T_EQ(discarded_files(), 0);
    hand_get(&d, h, 1);
    hand_get(&d, h, 3);
    hand_close(&d);
    return allocs >= nth;
}

static void in_the_core(void)
{
    long nth = 1;

    while (nth < MOST && lives(nth))
        nth++;
    t_note("%ld allocations", nth - 1);
    T_CHECK(nth > 1 && nth < MOST);
}

int main(void)
{
    T_RUN(in_the_core);
    return t_done();
}
