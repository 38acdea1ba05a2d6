/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rare cases: pages that share a bucket, files that grow while windows of them are held, late answers, errors in
 * bytes that were not requested, and pages written while they are read. Bytes are right, and errors are only those of
 * requested bytes. An alarm ends a kernel that hangs.
 */
#include <varve/gpufile.h>

#include "unit/gpufile/gf.h"

enum { THREADS = 4, PAGE = 4 * KIB, DEADLINE_S = 300 };

static unsigned char buffer[4][64 * KIB];
static _Atomic int phase;

/* The line of a failed check in a thread. */
static _Atomic int wrong;

#define CHECK_ALL(cond)       \
    do {                      \
        if (!(cond))          \
            wrong = __LINE__; \
    } while (0)

static uint32_t add(const char *name, uint64_t bytes, int flags)
{
    uint32_t id;

    T_OK(varve_gpufs_register(gf_fs, gf_file(name, bytes), flags, &id));
    return id;
}

static void launch(unsigned blocks, void (*fn)(void *), void *arg)
{
    wrong = 0;
    atomic_store(&phase, 0);
    gf_launch(blocks, THREADS, blocks, fn, arg);
    T_EQ(wrong, 0);
}

/* Waits for all threads of a block, so that none is ahead of the others' phase. */
static void wait_for(int n)
{
    while (atomic_load(&phase) < n)
        usleep(100);
    varve_d_sync_block();
}

static void go_to(int n)
{
    varve_d_sync_block();
    if (varve_d_thread() == 0)
        atomic_store(&phase, n);
    varve_d_sync_block();
}

/* Reads and compares all bytes with the file that gf_file made. */
static bool reads(struct varve_gfile *f, uint64_t off, uint64_t bytes)
{
    unsigned char *p = buffer[varve_d_block()];
    bool right;

    varve_d_sync_block();
    right = varve_gread(f, off, p, bytes) == (int64_t)bytes;
    varve_d_sync_block();
    return right && (varve_d_thread() != 0 || gf_right(p, off, bytes));
}

/* ---- pages that share a bucket ---- */

enum { FILES = 200 };

static void read_each_file(void *arg)
{
    struct varve_gfile f;

    (void)arg;
    for (uint32_t id = 0; id < FILES; id++) {
        CHECK_ALL(varve_gopen(&gf_handle, id, VARVE_GBLOCK, &f) == 0);
        CHECK_ALL(reads(&f, 0, PAGE));
        CHECK_ALL(varve_gclose(&f) == 0);
    }
}

/* The first pages of many files: each is found again. */
static void many_files(void)
{
    for (int flags = VARVE_GFILE_READ; flags <= (VARVE_GFILE_READ | VARVE_GFILE_WRITE);
         flags += VARVE_GFILE_WRITE) {
        struct varve_gpufs_opts o = gf_opts();
        uint32_t buckets[FILES], deepest = 0;
        char name[16];

        o.files = FILES;
        o.cache_bytes = 2 * MIB;
        o.streams = 4;
        gf_open(&o);
        for (uint32_t i = 0; i < FILES; i++) {
            uint32_t depth = 1;

            snprintf(name, sizeof(name), "m%u", i);
            T_EQ(add(name, PAGE, flags), i);
            buckets[i] = varve_g_hash(i, 0) & (gf_handle.n_buckets - 1);
            for (uint32_t k = 0; k < i; k++)
                depth += buckets[k] == buckets[i];
            deepest = VV_MAX(deepest, depth);
        }
        T_CHECK(deepest < 10);
        launch(1, read_each_file, NULL);
        T_EQ(gf_stats().misses, FILES);
        launch(1, read_each_file, NULL);
        T_EQ(gf_stats().misses, FILES);
        T_EQ(gf_stats().hits, FILES);
        T_OK(gf_close());
    }
}

/* Two streams fill the cache, whose pages are all in one chain, and one reads the first page of the other: deeper in
 * the chain than readers search without the lock. */
static void read_in_turns(void *arg)
{
    const uint64_t half = gf_handle.n_frames / 2 * PAGE;
    uint64_t off = varve_d_block() * half, end = off + half;
    const void *ptr = NULL;
    struct varve_gfile f;
    uint64_t n = 0;
    int rc;

    CHECK_ALL(varve_gopen(&gf_handle, *(uint32_t *)arg, VARVE_GBLOCK, &f) == 0);
    wait_for((int)varve_d_block());
    for (; off < end; off += 32 * KIB)
        CHECK_ALL(reads(&f, off, 32 * KIB));
    go_to((int)varve_d_block() + 1);
    wait_for(2);
    if (varve_d_block() == 1) {
        CHECK_ALL(reads(&f, 0, PAGE));
        rc = varve_gmap(&f, PAGE, &ptr, &n);
        CHECK_ALL(rc == 0 && n == PAGE && gf_right(ptr, PAGE, PAGE));
        if (rc == 0)
            varve_gunmap(&f, ptr);
        go_to(3);
    }
    wait_for(3);
    CHECK_ALL(varve_gclose(&f) == 0);
}

static void one_chain(void)
{
    for (int flags = VARVE_GFILE_READ; flags <= (VARVE_GFILE_READ | VARVE_GFILE_WRITE);
         flags += VARVE_GFILE_WRITE) {
        struct varve_gpufs_opts o = gf_opts();
        uint32_t id;

        o.streams = 2;
        o.bypass = VARVE_GBYPASS_NEVER;
        gf_open(&o);
        id = add("chain", o.cache_bytes, flags);
        gf_handle.n_buckets = 1; /* of all buckets */
        launch(2, read_in_turns, &id);
        T_EQ(gf_pinned(), 0);
        T_OK(gf_close());
    }
}

/* ---- files that grow ---- */

enum { GROWN = 8 * PAGE + 100 };

/* The last page of a file is in a window when a write far behind leaves a hole in it. The window had other bytes there
 * before. */
static void grow_behind(void *arg)
{
    static const unsigned char zero[PAGE];
    uint32_t id = *(uint32_t *)arg;
    struct varve_gfile f;

    CHECK_ALL(varve_gopen(&gf_handle, id, VARVE_GBLOCK, &f) == 0);
    if (atomic_load(&phase) == 0) {
        CHECK_ALL(reads(&f, PAGE, PAGE));
        CHECK_ALL(reads(&f, 5 * PAGE, PAGE));
        CHECK_ALL(reads(&f, 8 * PAGE, 50));
        CHECK_ALL(varve_gwrite(&f, 12 * PAGE, "the end", 8) == 8);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_ALL(varve_gread(&f, 8 * PAGE, buffer[0], 2 * PAGE) == 2 * PAGE);
        varve_d_sync_block();
        CHECK_ALL(gf_right(buffer[0], 8 * PAGE, 100));
        CHECK_ALL(memcmp(buffer[0] + 100, zero, PAGE - 100) == 0);
        CHECK_ALL(memcmp(buffer[0] + PAGE, zero, PAGE) == 0);
        varve_d_sync_block();
    }
    CHECK_ALL(varve_gclose(&f) == 0);
}

static void holes_are_zeros(void)
{
    struct varve_gpufs_opts o = gf_opts();
    uint32_t id;

    gf_open(&o);
    id = add("grows", GROWN, VARVE_GFILE_READ | VARVE_GFILE_WRITE);
    launch(1, grow_behind, &id);
    wrong = 0;
    atomic_store(&phase, 1); /* another kernel reads the same bytes */
    gf_launch(2, THREADS, 1, grow_behind, &id);
    T_EQ(wrong, 0);
    T_OK(gf_close());
}

/* ---- answers that come after all ---- */

/* The first read of the first bytes is held until the test releases it; other reads are not. */
static _Atomic bool held, first;

static void hold(uint64_t offset)
{
    if (offset == 0 && atomic_exchange(&first, false))
        while (atomic_load(&held))
            usleep(100);
}

static int64_t held_pread(const struct vv_os *os, int fd, void *buf, size_t bytes, uint64_t offset)
{
    (void)os;
    hold(offset);
    return vv_os_posix()->pread(vv_os_posix(), fd, buf, bytes, offset);
}

static int64_t held_pwrite(const struct vv_os *os, int fd, const void *buf, size_t bytes,
                           uint64_t offset)
{
    (void)os;
    hold(offset);
    return vv_os_posix()->pwrite(vv_os_posix(), fd, buf, bytes, offset);
}

static void open_held(void)
{
    struct varve_gpufs_opts o = gf_opts();

    gf_bad_os(0, 0, 0);
    gf_os.os.pread = held_pread;
    gf_os.os.pwrite = held_pwrite;
    gf_open(&o);
    atomic_store(&held, true);
    atomic_store(&first, true);
    gf_handle.timeout_ns = 20000000;
}

/* From now on the normal timeout applies. */
static void be_patient(void)
{
    varve_d_sync_block();
    if (varve_d_thread() == 0)
        gf_handle.timeout_ns = UINT64_C(20000000000);
    varve_d_sync_block();
}

static void time_out_and_go_on(void *arg)
{
    struct varve_gfile f;
    int64_t n;

    CHECK_ALL(varve_gopen(&gf_handle, *(uint32_t *)arg, VARVE_GBLOCK, &f) == 0);
    CHECK_ALL(varve_gread(&f, 0, buffer[0], PAGE) == -ETIMEDOUT);
    /* While the answer is outstanding nothing is sent: a write that returns this error was not made. */
    for (int i = 0; i < 3; i++)
        CHECK_ALL(varve_gwrite(&f, 0, "lost", 5) == -ETIMEDOUT);
    CHECK_ALL(varve_gsync(&f) == -ETIMEDOUT);
    be_patient();
    atomic_store(&held, false);
    do
        n = varve_gread(&f, 7 * PAGE, buffer[0], PAGE);
    while (n == -ETIMEDOUT);
    CHECK_ALL(n == PAGE);
    for (uint64_t i = 0; i < 50; i++)
        CHECK_ALL(reads(&f, i * 11 % 50 * PAGE, PAGE));
    varve_d_sync_block();
    CHECK_ALL(varve_gwrite(&f, 50 * PAGE, buffer[0], 5) == 5);
    CHECK_ALL(varve_gclose(&f) == 0);
}

static void a_handle_recovers(void)
{
    uint32_t id;

    open_held();
    id = add("slow", 50 * PAGE, VARVE_GFILE_READ | VARVE_GFILE_WRITE);
    launch(1, time_out_and_go_on, &id);
    T_EQ(gf_stats().written_bytes, 5);
    T_OK(gf_close());
}

/* A write that timed out is carried out after another one, whose bytes are in the cache by then. */
static bool has(struct varve_gfile *f, unsigned char c)
{
    varve_d_sync_block();
    CHECK_ALL(varve_gread(f, 0, buffer[0], PAGE) == PAGE);
    varve_d_sync_block();
    return buffer[0][0] == c && buffer[0][PAGE - 1] == c;
}

/* The same without a copy. */
static bool shows(struct varve_gfile *f, unsigned char c)
{
    const void *ptr = NULL;
    const unsigned char *page;
    uint64_t bytes = 0;
    bool right;

    varve_d_sync_block();
    CHECK_ALL(varve_gmap(f, 0, &ptr, &bytes) == 0);
    page = ptr;
    right = page && bytes == PAGE && page[0] == c && page[PAGE - 1] == c;
    if (page)
        varve_gunmap(f, page);
    return right;
}

enum again { READ, OPEN, MAP, AGAINS }; /* the next use of the file by the group that wrote */

static void write_late(void *arg)
{
    const enum again again = *(enum again *)arg;
    const bool open_again = again == OPEN;
    struct varve_gfile f, other;

    varve_d_sync_block();
    if (varve_d_thread() == 0) {
        memset(buffer[1], 'a', PAGE);
        memset(buffer[2], 'b', PAGE);
    }
    varve_d_sync_block();
    CHECK_ALL(varve_gopen(&gf_handle, 0, VARVE_GBLOCK, &f) == 0);
    CHECK_ALL(varve_gwrite(&f, 0, buffer[1], PAGE) == -ETIMEDOUT);
    if (open_again)
        CHECK_ALL(varve_gclose(&f) == 0);
    CHECK_ALL(varve_gopen(&gf_handle, 0, VARVE_GBLOCK, &other) == 0);
    be_patient();
    CHECK_ALL(varve_gwrite(&other, 0, buffer[2], PAGE) == PAGE);
    CHECK_ALL(has(&other, 'b'));
    CHECK_ALL(has(&other, 'b')); /* from the cache */
    atomic_store(&held, false);
    while (VARVE_G_ANSWER_NUMBER(varve_d_acquire64_sys(varve_g_mailbox(&f, 0))) !=
           gf_handle.streams[f.stream].number[0])
        usleep(100);
    varve_d_sync_block();
    if (open_again)
        CHECK_ALL(varve_gopen(&gf_handle, 0, VARVE_GBLOCK, &f) == 0);
    CHECK_ALL(again == MAP ? shows(&f, 'a') : has(&f, 'a'));
    CHECK_ALL(has(&other, 'a'));
    CHECK_ALL(varve_gclose(&other) == 0);
    CHECK_ALL(varve_gclose(&f) == 0);
}

/* A write that timed out makes the file longer. */
static void grow_late(void *arg)
{
    struct varve_gfile f;

    CHECK_ALL(varve_gopen(&gf_handle, *(uint32_t *)arg, VARVE_GBLOCK, &f) == 0);
    CHECK_ALL(varve_gsize(&f) == 100);
    CHECK_ALL(varve_gwrite(&f, 0, buffer[1], PAGE) == -ETIMEDOUT);
    be_patient();
    atomic_store(&held, false);
    while (VARVE_G_ANSWER_NUMBER(varve_d_acquire64_sys(varve_g_mailbox(&f, 0))) !=
           gf_handle.streams[f.stream].number[0])
        usleep(100);
    varve_d_sync_block();
    CHECK_ALL(varve_gread(&f, 0, buffer[0], PAGE) == PAGE);
    CHECK_ALL(varve_gread(&f, 101, buffer[0], PAGE) == PAGE - 101);
    CHECK_ALL(varve_gclose(&f) == 0);
}

static void late_writes_are_seen(void)
{
    uint32_t id;

    open_held();
    id = add("longer", 100, VARVE_GFILE_READ | VARVE_GFILE_WRITE);
    launch(1, grow_late, &id);
    T_OK(gf_close());
    for (enum again again = READ; again < AGAINS; again++) {
        open_held();
        (void)add("written", PAGE, VARVE_GFILE_READ | VARVE_GFILE_WRITE);
        launch(1, write_late, &again);
        T_OK(gf_close());
    }
}

/* ---- errors in bytes that were not requested ---- */

enum { BAD_PAGE = 9, ALL_PAGES = 64 };

static int64_t bad_pread(const struct vv_os *os, int fd, void *buf, size_t bytes, uint64_t offset)
{
    (void)os;
    if (offset < (BAD_PAGE + 1) * PAGE && offset + bytes > BAD_PAGE * PAGE)
        return -EIO;
    return vv_os_posix()->pread(vv_os_posix(), fd, buf, bytes, offset);
}

struct bad {
    uint32_t id;
    int want;  /* result for the bad page */
    int after; /* for pages behind it; 0: success */
};

static void read_on_to_the_bad_page(void *arg)
{
    const struct bad *b = arg;
    struct varve_gfile f;

    CHECK_ALL(varve_gopen(&gf_handle, b->id, VARVE_GBLOCK, &f) == 0);
    for (uint64_t page = 0; page < 16; page++) {
        int want = page < BAD_PAGE ? 0 : page == BAD_PAGE ? b->want : b->after;

        if (want)
            CHECK_ALL(varve_gread(&f, page * PAGE, buffer[0], PAGE) == want);
        else
            CHECK_ALL(reads(&f, page * PAGE, PAGE));
    }
    CHECK_ALL(varve_gread(&f, 0, buffer[0], 16 * PAGE) == b->want);
    CHECK_ALL(reads(&f, 0, BAD_PAGE * PAGE));
    (void)varve_gclose(&f);
}

/* A page that cannot be read, or does not exist any more, is an error for its reader, and not for readers of the pages
 * before it, which are requested together with it. */
static void errors_of_other_pages(void)
{
    for (int how = 0; how < 4; how++) {
        struct varve_gpufs_opts o = gf_opts();
        struct bad b = {0, how % 2 ? -ENODATA : -EIO, how % 2 ? -ENODATA : 0};
        const char *path;

        o.split_bytes = o.readahead_bytes = 0;
        o.readahead = how / 2 ? VV_GREADAHEAD_FIXED : VARVE_GREADAHEAD_ADAPTIVE;
        gf_bad_os(0, 0, 0);
        if (how % 2 == 0)
            gf_os.os.pread = bad_pread;
        gf_open(&o);
        path = gf_file("bad", ALL_PAGES * PAGE);
        T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &b.id));
        if (how % 2)
            T_EQ(truncate(path, BAD_PAGE * PAGE), 0);
        launch(1, read_on_to_the_bad_page, &b);
        T_EQ(gf_pinned(), 0);
        T_OK(gf_close());
    }
}

/* Two windows that overlap, both of which hold the bad page in their second part. */
static void read_back_before_the_bad_page(void *arg)
{
    struct varve_gfile f;

    CHECK_ALL(varve_gopen(&gf_handle, *(uint32_t *)arg, VARVE_GBLOCK, &f) == 0);
    CHECK_ALL(reads(&f, (uint64_t)(BAD_PAGE - 3) * PAGE, PAGE));
    CHECK_ALL(reads(&f, (uint64_t)(BAD_PAGE - 7) * PAGE, PAGE));
    CHECK_ALL(reads(&f, (uint64_t)(BAD_PAGE - 1) * PAGE, PAGE));
    (void)varve_gclose(&f);
}

static void windows_that_overlap(void)
{
    struct varve_gpufs_opts o = gf_opts();
    uint32_t id;

    o.readahead = VV_GREADAHEAD_FIXED;
    gf_bad_os(0, 0, 0);
    gf_os.os.pread = bad_pread;
    gf_open(&o);
    id = add("overlap", ALL_PAGES * PAGE, VARVE_GFILE_READ);
    launch(1, read_back_before_the_bad_page, &id);
    T_OK(gf_close());
}

/* The file has grown since a window up to its end was requested: that must not make it look shorter. */
static void announce_and_append(void *arg)
{
    const uint64_t old = PAGE + 100;
    struct varve_gfile f;

    CHECK_ALL(varve_gopen(&gf_handle, *(uint32_t *)arg, VARVE_GBLOCK, &f) == 0);
    if (varve_d_thread() == 0)
        vv_pattern_fill(buffer[1], 2 * PAGE, SEED, 0, 0);
    CHECK_ALL(varve_gadvise(&f, VARVE_GADV_WILLNEED, 0, old) == 0);
    varve_d_sync_block();
    CHECK_ALL(varve_gwrite(&f, old, buffer[1] + old, 2 * PAGE - old) == 2 * PAGE - (int)old);
    CHECK_ALL(reads(&f, 0, 2 * PAGE));
    CHECK_ALL(varve_gclose(&f) == 0);
}

static void windows_of_files_that_grow(void)
{
    struct varve_gpufs_opts o = gf_opts();
    uint32_t id;

    gf_open(&o);
    id = add("append", PAGE + 100, VARVE_GFILE_READ | VARVE_GFILE_WRITE);
    launch(1, announce_and_append, &id);
    T_OK(gf_close());
}

/* ---- pages that are written while they are read ---- */

static uint32_t busy_file;

/* A write to a page ends before a server has read it. */
static int64_t written_pread(const struct vv_os *os, int fd, void *buf, size_t bytes,
                             uint64_t offset)
{
    (void)os;
    varve_g_touch(&gf_handle, busy_file, offset, bytes);
    return vv_os_posix()->pread(vv_os_posix(), fd, buf, bytes, offset);
}

static void read_what_is_written(void *arg)
{
    enum varve_gscope scope = *(enum varve_gscope *)arg;
    const void *ptr;
    struct varve_gfile f;
    uint64_t n;
    int rc;

    CHECK_ALL(varve_gopen(&gf_handle, busy_file, scope, &f) == 0);
    if (scope == VARVE_GWARP) {
        unsigned char *p = buffer[2 * varve_d_block() + varve_d_warp()];

        for (uint64_t page = 0; page < 8; page++) {
            CHECK_ALL(varve_gread(&f, page * PAGE, p, 2 * PAGE) == 2 * PAGE);
            varve_d_sync_warp();
            CHECK_ALL(gf_right(p, page * PAGE, 2 * PAGE));
            varve_d_sync_warp();
        }
    } else {
        for (uint64_t page = 0; page < 8; page++)
            CHECK_ALL(reads(&f, page * PAGE, 2 * PAGE));
        rc = varve_gmap(&f, PAGE, &ptr, &n);
        CHECK_ALL(rc == 0 && n == PAGE && gf_right(ptr, PAGE, PAGE));
        if (rc == 0)
            varve_gunmap(&f, ptr);
    }
    CHECK_ALL(varve_gclose(&f) == 0);
}

static void always_written(void)
{
    for (int how = 0; how < 4; how++) {
        struct varve_gpufs_opts o = gf_opts();
        enum varve_gscope scope = how % 2 ? VARVE_GWARP : VARVE_GBLOCK;

        o.readahead = how / 2 ? VARVE_GREADAHEAD_OFF : VARVE_GREADAHEAD_ADAPTIVE;
        gf_bad_os(0, 0, 0);
        gf_os.os.pread = written_pread;
        gf_open(&o);
        busy_file = add("busy", 16 * PAGE, VARVE_GFILE_READ | VARVE_GFILE_WRITE);
        launch(2, read_what_is_written, &scope);
        T_EQ(gf_stats().hits, 0); /* no page was kept */
        T_EQ(gf_pinned(), 0);
        T_OK(gf_close());
    }
}

/* A file is truncated while a kernel has it open: closing it returns an error only if it had been mapped. */
struct cut {
    const char *path;
    uint32_t id;
    int want;
};

static void cut_and_close(void *arg)
{
    const struct cut *c = arg;
    struct varve_gfile f;

    CHECK_ALL(varve_gopen(&gf_handle, c->id, VARVE_GBLOCK, &f) == 0);
    CHECK_ALL(reads(&f, 0, PAGE));
    if (varve_d_thread() == 0)
        CHECK_ALL(truncate(c->path, PAGE + 100) == 0);
    varve_d_sync_block();
    CHECK_ALL(varve_gclose(&f) == c->want);
}

static void cut_files_are_closed(void)
{
    for (int mapped = 0; mapped < 2; mapped++) {
        struct varve_gpufs_opts o = gf_opts();
        struct cut c = {.want = mapped ? -ENODATA : 0};

        gf_open(&o);
        c.path = gf_file("cut", 2 * PAGE);
        T_OK(varve_gpufs_register(gf_fs, c.path, VARVE_GFILE_READ | (mapped ? VARVE_GFILE_MAP : 0),
                                  &c.id));
        launch(1, cut_and_close, &c);
        T_EQ(varve_gpufs_unregister(gf_fs, c.id), c.want);
        T_OK(gf_close());
    }
}

/* ---- many pages mapped ---- */

enum { MAPPED = 64, EXTENT = 8, MOST = MAPPED - EXTENT };

/* Two blocks have filled the cache, half of it each; then one maps all pages except the other's last extent. */
static void map_most(void *arg)
{
    static const void *ptr[THREADS][MAPPED];
    const void **mine = ptr[varve_d_thread()];
    struct varve_gfile f;
    uint64_t n = 0, all;
    int rc = 0;

    CHECK_ALL(varve_gopen(&gf_handle, *(uint32_t *)arg, VARVE_GBLOCK, &f) == 0);
    for (uint64_t i = 0; i < MAPPED / 2; i++)
        CHECK_ALL(reads(&f, (i + varve_d_block() * MAPPED / 2) * PAGE, PAGE));
    varve_d_sync_block();
    if (varve_d_thread() == 0)
        atomic_fetch_add(&phase, 1);
    wait_for(2);
    if (varve_d_block() == 0) {
        for (all = 0; all < MAPPED && rc == 0; all += rc == 0) {
            uint64_t off = (MAPPED + all) * PAGE;

            /* No thread unmaps any: waiting for the last one is useless. */
            if (all == MOST) {
                varve_d_sync_block();
                if (varve_d_thread() == 0)
                    gf_handle.timeout_ns = UINT64_C(2000000000);
                varve_d_sync_block();
            }
            rc = varve_gmap(&f, off, &mine[all], &n);
            if (rc == 0)
                CHECK_ALL(n == PAGE && gf_right(mine[all], off, PAGE));
        }
        CHECK_ALL(all == MOST && rc == -EBUSY);
        while (all--)
            varve_gunmap(&f, mine[all]);
        be_patient();
        go_to(3);
    }
    wait_for(3);
    CHECK_ALL(reads(&f, 2 * MAPPED * PAGE, 4 * PAGE));
    CHECK_ALL(varve_gclose(&f) == 0);
}

static void one_maps_nearly_all(void)
{
    struct varve_gpufs_opts o = gf_opts();
    uint32_t id;

    o.streams = 2;
    o.cache_bytes = MAPPED * PAGE;
    o.bypass = VARVE_GBYPASS_NEVER;
    gf_bad_os(0, 0, 0);
    gf_open(&o);
    T_EQ(gf_handle.extent_frames, EXTENT);
    id = add("map", 4 * MAPPED * PAGE, VARVE_GFILE_READ);
    launch(2, map_most, &id);
    T_EQ(gf_pinned(), 0);
    T_OK(gf_close());
}

int main(void)
{
    (void)alarm(DEADLINE_S);
    T_RUN(many_files);
    T_RUN(one_chain);
    T_RUN(holes_are_zeros);
    T_RUN(a_handle_recovers);
    T_RUN(late_writes_are_seen);
    T_RUN(errors_of_other_pages);
    T_RUN(windows_that_overlap);
    T_RUN(windows_of_files_that_grow);
    T_RUN(cut_files_are_closed);
    T_RUN(always_written);
    T_RUN(one_maps_nearly_all);
    return t_done();
}
