/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of requests, from the inside. A server that was away and comes back finds the request of
 * its own ticket in an entry, or none. The test writes entries as groups do. It moves the servers'
 * counter of tickets, as a server does that draws a ticket and then stops. A server that has to
 * stop first looks for its request once more. So a server that has ended has also looked at the
 * entries that it must not take. Also: a server that is busy for long delays no request that
 * another server could take.
 */
#include <varve/gpufile.h>

#include "unit/gpufile/gf.h"

#include "gpufile/gpufile_private.h"

enum { PAGE = 4 * KIB };

static uint32_t id;
static struct varve_gfs patient; /* the handle of groups that wait without a limit */

/* A file system whose servers do not run. */
static void open_stopped(uint32_t timeout_ms)
{
    struct varve_gpufs_opts o = gf_opts();

    o.timeout_ms = timeout_ms;
    gf_open(&o);
    patient = gf_handle;
    patient.timeout_ns = UINT64_C(60000000000);
    T_OK(varve_gpufs_register(gf_fs, gf_file("ring", 16 * PAGE), VARVE_GFILE_READ, &id));
    T_OK(varve_gpufs_stop(gf_fs));
}

static uint64_t ticket_of(uint64_t lap)
{
    return lap * gf_handle.n_ring;
}

/* The first entry. */
static uint64_t laps_read(void)
{
    return varve_d_acquire64_sys(&gf_handle.ring[0].read);
}

/* Writes the entry as the group that drew the ticket and wants that page for a part of its stream. */
static void write_entry(uint64_t ticket, uint64_t stream, uint64_t part, uint64_t page)
{
    uint64_t at = ticket % gf_handle.n_ring,
             bit = ticket / gf_handle.n_ring % 2 ? 0 : VARVE_G_LAP_BIT;

    varve_d_release64x2_sys(gf_handle.ring[at].half,
                            bit | (uint64_t)VARVE_G_READ << 60 | stream << 46 | part << 42 |
                                UINT64_C(1) << 34 | (uint64_t)id << 22 | page * PAGE,
                            bit | PAGE);
}

/* Sends as the group that drew the first ticket of a lap; stream and page have the lap's number. */
static void send(uint64_t lap)
{
    T_OK(varve_g_wait_room(&patient, ticket_of(lap)));
    write_entry(ticket_of(lap), lap, 0, lap);
}

static uint64_t mailbox(uint64_t lap)
{
    return varve_d_acquire64_sys(&gf_handle.mailboxes[lap * VARVE_G_PARTS]);
}

/* Waits for the answer to the request of the lap, and checks it. */
static void answered(uint64_t lap)
{
    while (VARVE_G_ANSWER_NUMBER(mailbox(lap)) != 1)
        usleep(50);
    T_EQ((uint32_t)mailbox(lap), PAGE);
    T_CHECK(gf_right(gf_fs->staging.ptr + lap * 2 * gf_handle.readahead_bytes, lap * PAGE, PAGE));
}

/* Marks the tickets before this one as drawn by servers that do not look at their entries. */
static void drawn_up_to(uint64_t ticket)
{
    atomic_store(&gf_fs->n_orphans, 0); /* those of servers that ran before */
    atomic_store(&gf_fs->next_ticket, ticket);
}

/* The next server that starts takes this ticket and looks at its entry. */
static void is_back(uint64_t ticket)
{
    gf_fs->orphans[gf_fs->n_orphans++] = ticket;
}

/* Runs one server that draws a ticket, and looks at least once. */
static void look_once(void)
{
    T_OK(varve_gpufs_start(gf_fs, 1));
    T_OK(varve_gpufs_stop(gf_fs));
}

/* Laps 0 and 2 have the same lap bit: the server of lap 2 must not take the request of lap 0. */
static void two_laps_old(void)
{
    open_stopped(20000);
    send(0);
    drawn_up_to(ticket_of(2));
    look_once();
    T_EQ(laps_read(), 0);
    T_EQ(mailbox(0), 0);
    T_EQ(gf_stats().answered, 0);
    /* All servers come back, and each request is carried out once. */
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

/* A group draws the first ticket of a lap, and its wait times out. */
static void give_up(uint64_t lap)
{
    uint64_t ticket;

    gf_handle.shared->ticket = ticket_of(lap);
    T_ERR(varve_g_draw(&gf_handle, &ticket), -ETIMEDOUT);
}

/* The group of lap 1 gave up, so the entry still has the request of lap 0, which has the same lap
 * bit as one of lap 2. */
static void given_up(void)
{
    open_stopped(1);
    send(0);
    give_up(1);
    drawn_up_to(ticket_of(2) + 1);
    for (uint64_t lap = 0; lap < 3; lap++)
        is_back(ticket_of(lap));
    look_once();
    answered(0);
    T_EQ(laps_read(), 2);
    T_EQ(gf_stats().answered, 1);
    T_OK(varve_gpufs_start(gf_fs, 2));
    send(2);
    answered(2);
    T_OK(varve_gpufs_stop(gf_fs));
    T_EQ(laps_read(), 3);
    T_EQ(gf_stats().answered, 2);
    T_OK(gf_close());
}

/* Several groups gave up and left one mark: the servers of all their tickets continue. */
static void given_up_three_times(void)
{
    open_stopped(1);
    send(0);
    for (uint64_t lap = 1; lap < 4; lap++)
        give_up(lap);
    drawn_up_to(ticket_of(4) + 1);
    for (uint64_t lap = 0; lap < 5; lap++)
        is_back(ticket_of(lap));
    T_OK(varve_gpufs_start(gf_fs, 2));
    send(4);
    answered(0);
    answered(4);
    T_OK(varve_gpufs_stop(gf_fs));
    T_EQ(laps_read(), 5);
    T_EQ(gf_stats().answered, 2);
    T_OK(gf_close());
}

/* The group of lap 2 has given up, and the group of lap 1 is about to write its request. */
static void given_up_a_lap_later(void)
{
    open_stopped(UINT32_MAX);
    send(0);
    varve_d_store64_sys(&gf_handle.ring[0].skip, 3);
    drawn_up_to(ticket_of(2) + 1);
    is_back(ticket_of(0));
    is_back(ticket_of(1));
    look_once();
    T_EQ(laps_read(), 1);
    send(1);
    is_back(ticket_of(2));
    look_once();
    T_EQ(laps_read(), 3);
    answered(0);
    answered(1);
    T_EQ(gf_stats().answered, 2);
    T_OK(gf_close());
}

/* Each block reads one page, far from the others'. */
static void read_one_page(void *arg)
{
    struct varve_gfile f;
    unsigned char(*buffers)[PAGE] = arg;
    uint64_t page = varve_d_block() * 3 + 1;

    if (varve_gopen(&gf_handle, id, VARVE_GBLOCK, &f) != 0)
        return;
    (void)varve_gread(&f, page * PAGE, buffers[varve_d_block()], PAGE);
    (void)varve_gclose(&f);
}

/* Single pages of random reads are next to each other in staging memory, not a window apart. */
static void single_pages_are_close_together(void)
{
    enum { BLOCKS = 4 };
    static unsigned char buffers[BLOCKS][PAGE];
    struct varve_gpufs_opts o = gf_opts();
    unsigned found = 0;

    gf_open(&o);
    T_OK(varve_gpufs_register(gf_fs, gf_file("ring", 16 * PAGE), VARVE_GFILE_READ, &id));
    gf_launch(BLOCKS, 2, BLOCKS, read_one_page, buffers);
    for (uint64_t b = 0; b < BLOCKS; b++) {
        T_CHECK(gf_right(buffers[b], (b * 3 + 1) * PAGE, PAGE));
        for (uint64_t i = 0; i < 2 * gf_handle.n_streams; i++)
            found += gf_right(gf_fs->page_staging + i * PAGE, (b * 3 + 1) * PAGE, PAGE);
    }
    T_EQ(found, BLOCKS);
    T_OK(gf_close());
    /* There is no memory for single pages if a window is one page, or if pages are large. */
    o.readahead_bytes = o.split_bytes = PAGE;
    gf_open(&o);
    T_CHECK(!gf_fs->page_staging && !gf_handle.page_staging);
    T_OK(gf_close());
    o.page_bytes = o.split_bytes = 32 * KIB;
    o.readahead_bytes = 64 * KIB;
    gf_open(&o);
    T_CHECK(!gf_fs->page_staging && !gf_handle.page_staging);
    T_OK(gf_close());
}

/* One server is held up in its first read. The other serves all requests, four tickets at a time, and opens the file
 * for itself. */
static _Atomic bool held_up, let_go, opened;

static int64_t hold_up_pread(const struct vv_os *os, int fd, void *buf, size_t bytes,
                             uint64_t offset)
{
    (void)os;
    if (offset == 0) {
        atomic_store(&held_up, true);
        while (!atomic_load(&let_go))
            usleep(50);
    }
    return vv_os_posix()->pread(vv_os_posix(), fd, buf, bytes, offset);
}

static int see_openat(const struct vv_os *os, int dirfd, const char *path, int flags, unsigned mode)
{
    (void)os;
    if (strncmp(path, "/proc/", strlen("/proc/")) == 0) {
        uint64_t drawn = atomic_load(&gf_fs->next_ticket);

        for (uint64_t t = 1; t < drawn; t++) /* all except the first server's */
            T_EQ(varve_d_acquire64_sys(&gf_handle.ring[t].read), 1);
        atomic_store(&opened, true);
    }
    return vv_os_posix()->openat(vv_os_posix(), dirfd, path, flags, mode);
}

static void opened_with_nothing_in_hand(void)
{
    enum { REQUESTS = 24 };

    gf_bad_os(0, 0, 0);
    gf_os.os.pread = hold_up_pread;
    gf_os.os.openat = see_openat;
    open_stopped(20000);
    drawn_up_to(0);
    for (uint64_t t = 0; t < REQUESTS; t++)
        write_entry(t, t / 4, t % 4, t > 0);
    T_OK(varve_gpufs_start(gf_fs, 2));
    while (varve_d_acquire64_sys(&gf_handle.ring[REQUESTS - 1].read) == 0 || !atomic_load(&held_up))
        usleep(50);
    atomic_store(&let_go, true);
    T_OK(varve_gpufs_stop(gf_fs));
    T_CHECK(atomic_load(&opened));
    T_EQ(gf_stats().answered, REQUESTS);
    T_OK(gf_close());
}

/* ---- requests of a foreign kernel ---- */

static void write_request(uint64_t ticket, uint64_t op, uint64_t stream, uint64_t part,
                          uint64_t file, uint64_t bytes)
{
    uint64_t bit = ticket / gf_handle.n_ring % 2 ? 0 : VARVE_G_LAP_BIT;

    varve_d_release64x2_sys(
        gf_handle.ring[ticket % gf_handle.n_ring].half,
        bit | op << 60 | stream << 46 | part << 42 | UINT64_C(1) << 34 | file << 22, bit | bytes);
}

/* The result, when it is there. */
static int32_t result_of(uint64_t stream, uint64_t part)
{
    uint64_t *box = &gf_handle.mailboxes[stream * VARVE_G_PARTS + part];

    while (VARVE_G_ANSWER_NUMBER(varve_d_acquire64_sys(box)) != 1)
        usleep(50);
    return (int32_t)(uint32_t)varve_d_acquire64_sys(box);
}

/* A request that does not fit its place is refused, and the bytes behind the place stay unchanged. */
static void larger_than_its_place(void)
{
    static const struct {
        uint64_t op, part, bytes;
    } bad[] = {
        {VARVE_G_READ_PAGE, 0, PAGE + 1}, {VARVE_G_READ_PAGE, 8, 2 * PAGE},
        {VARVE_G_READ_PAGE, 1, PAGE},     {VARVE_G_READ, 0, 8 * KIB + 1},
        {VARVE_G_READ, 4, PAGE},
    };
    uint64_t bytes = 2 * (uint64_t)gf_opts().streams * PAGE;

    open_stopped(20000);
    drawn_up_to(0);
    memset(gf_fs->page_staging, 0x5a, bytes);
    for (uint64_t t = 0; t < VV_ARRAY_SIZE(bad); t++)
        write_request(t, bad[t].op, t, bad[t].part, id, bad[t].bytes);
    write_request(VV_ARRAY_SIZE(bad), VARVE_G_READ_PAGE, VV_ARRAY_SIZE(bad), 0, id, PAGE);
    T_OK(varve_gpufs_start(gf_fs, 1));
    for (uint64_t t = 0; t < VV_ARRAY_SIZE(bad); t++)
        T_EQ(result_of(t, bad[t].part), -EINVAL);
    T_EQ(result_of(VV_ARRAY_SIZE(bad), 0), PAGE);
    T_OK(varve_gpufs_stop(gf_fs));
    for (uint64_t at = 0; at < bytes; at++)
        if (at / PAGE != 2 * VV_ARRAY_SIZE(bad))
            T_EQ(gf_fs->page_staging[at], 0x5a);
    T_CHECK(gf_right(gf_fs->page_staging + 2 * VV_ARRAY_SIZE(bad) * PAGE, 0, PAGE));
    T_OK(gf_close());
}

static _Atomic bool closed;

static void *close_slow(void *arg)
{
    T_OK(varve_gpufs_unregister(gf_fs, *(uint32_t *)arg));
    atomic_store(&closed, true);
    return NULL;
}

static bool has_uring(void)
{
    struct vv_aio *aio;
    int rc = vv_aio_new(vv_os_posix(), VV_AIO_URING, 1, &aio);

    if (rc == 0)
        vv_aio_free(aio);
    return rc == 0;
}

/* A file is not closed while io_uring reads from it, even if the server has answered later requests meanwhile:
 * its number could be another file's by then. */
static void reads_under_way(void)
{
    struct varve_gpufs_opts o = gf_opts();
    unsigned char page[PAGE] = {1, 2, 3};
    uint32_t slow, quick;
    pthread_t closer;
    int ends[2];

    if (!has_uring()) {
        t_note("no io_uring here");
        return;
    }
    o.io = VARVE_GIO_URING;
    o.servers = 1;
    gf_open(&o);
    T_OK(varve_gpufs_register(gf_fs, gf_file("slow", 16 * PAGE), VARVE_GFILE_READ, &slow));
    T_OK(varve_gpufs_register(gf_fs, gf_file("quick", 16 * PAGE), VARVE_GFILE_READ, &quick));
    /* A pipe instead of the file: a read lasts until the test writes. */
    T_EQ(pipe(ends), 0);
    T_EQ(dup2(ends[0], atomic_load(&gf_fs->files[slow].fd)), atomic_load(&gf_fs->files[slow].fd));
    write_request(0, VARVE_G_READ, 0, 0, slow, PAGE);
    write_request(1, VARVE_G_READ, 1, 0, quick, PAGE);
    T_EQ(result_of(1, 0), PAGE);
    T_EQ(pthread_create(&closer, NULL, close_slow, &slow), 0);
    for (unsigned i = 0; i < 100; i++) {
        T_CHECK(!atomic_load(&closed));
        usleep(1000);
    }
    T_EQ(write(ends[1], page, PAGE), PAGE);
    T_EQ(result_of(0, 0), PAGE);
    T_EQ(pthread_join(closer, NULL), 0);
    T_CHECK(memcmp(gf_fs->staging.ptr, page, PAGE) == 0);
    close(ends[0]);
    close(ends[1]);
    T_OK(gf_close());
}

int main(void)
{
    T_RUN(two_laps_old);
    T_RUN(given_up);
    T_RUN(given_up_three_times);
    T_RUN(given_up_a_lap_later);
    T_RUN(opened_with_nothing_in_hand);
    T_RUN(single_pages_are_close_together);
    T_RUN(larger_than_its_place);
    T_RUN(reads_under_way);
    return t_done();
}
