/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of requests, looked at from inside: servers that were away, and came back, find their own
 * request in an entry or none. The test writes entries as groups do, and moves the servers' counter of
 * tickets as servers do that draw and then stand still. A server that is told to stop ends after it has
 * looked for its request in vain, so that what it must not take it has looked at when it has ended.
 */
#include <varve/gpufile.h>

#include "unit/gpufile/gf.h"

#include "gpufile/gpufile_private.h"

enum { PAGE = 4 * KIB };

static uint32_t id;

/* A file system whose servers do not run. */
static void open_stopped(uint32_t timeout_ms)
{
    struct varve_gpufs_opts o = gf_opts();

    o.timeout_ms = timeout_ms;
    gf_open(&o);
    T_OK(varve_gpufs_register(gf_fs, gf_file("ring", 16 * PAGE), VARVE_GFILE_READ, &id));
    T_OK(varve_gpufs_stop(gf_fs));
}

static uint64_t ticket_of(uint64_t lap)
{
    return lap * gf_handle.n_ring;
}

static uint64_t laps_read(void)
{
    return varve_d_acquire64_sys(&gf_handle.ring[0].read);
}

/* What the group writes that drew the first ticket of a lap: it has a stream to itself, and wants the
 * page of that number. */
static void send(uint64_t lap)
{
    uint64_t bit = lap % 2 ? 0 : VARVE_G_LAP_BIT;

    T_OK(varve_g_wait_room(&gf_handle, ticket_of(lap)));
    varve_d_release64x2_sys(gf_handle.ring[0].half,
                            bit | (uint64_t)VARVE_G_READ << 60 | lap << 46 | UINT64_C(1) << 34 |
                                (uint64_t)id << 22 | lap * PAGE,
                            bit | PAGE);
}

static uint64_t mailbox(uint64_t lap)
{
    return varve_d_acquire64_sys(&gf_handle.mailboxes[lap * VARVE_G_PARTS]);
}

/* Waits for its answer. */
static void answered(uint64_t lap)
{
    while (VARVE_G_ANSWER_NUMBER(mailbox(lap)) != 1)
        usleep(50);
    T_EQ((uint32_t)mailbox(lap), PAGE);
    T_CHECK(gf_right(gf_fs->staging.ptr + lap * 2 * gf_handle.readahead_bytes, lap * PAGE, PAGE));
}

/* Tickets before this one are drawn; their servers are away. */
static void drawn_up_to(uint64_t ticket)
{
    atomic_store(&gf_fs->n_orphans, 0); /* those of the servers that have run */
    atomic_store(&gf_fs->next_ticket, ticket);
}

/* The server that has it is back. */
static void is_back(uint64_t ticket)
{
    gf_fs->orphans[gf_fs->n_orphans++] = ticket;
}

/* One server that draws a ticket, and looks once at least. */
static void look_once(void)
{
    T_OK(varve_gpufs_start(gf_fs, 1));
    T_OK(varve_gpufs_stop(gf_fs));
}

/* The request of lap 0 has the bit of lap 2's. */
static void two_laps_old(void)
{
    open_stopped(20000);
    send(0);
    drawn_up_to(ticket_of(2));
    look_once();
    T_EQ(laps_read(), 0);
    T_EQ(mailbox(0), 0);
    T_EQ(gf_stats().answered, 0);
    /* All come back, and each request is carried out once. */
    is_back(ticket_of(0));
    is_back(ticket_of(1));
    T_OK(varve_gpufs_start(gf_fs, 3));
    for (uint64_t lap = 0; lap < 3; lap++) {
        if (lap)
            send(lap);
        answered(lap);
    }
    T_OK(varve_gpufs_stop(gf_fs));
    T_EQ(laps_read(), 3);
    T_EQ(gf_stats().answered, 3);
    T_OK(gf_close());
}

int main(void)
{
    T_RUN(two_laps_old);
    return t_done();
}
