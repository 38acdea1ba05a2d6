/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors: each bad input, each failure of the system and of the servers is an error code in the kernel within its
 * deadline. Nothing hangs, and everything that can still be used works.
 */
#include <sys/stat.h>

#include <varve/gpufile.h>

#include "ckpt/face.h"
#include "device/host/host.h"
#include "unit/gpufile/gf.h"

enum { BLOCKS = 3, THREADS = 4 };

/* One read by each block, and its result. */
struct probe {
    uint32_t id;
    const char *path; /* instead of id */
    int flags;
    uint64_t off, bytes;
    int opened, closed;
    int64_t got;
    unsigned char buffer[BLOCKS][64 * KIB];
    bool wrong;
};

static void probe_kernel(void *arg)
{
    struct probe *p = arg;
    struct varve_gfile f;
    int64_t n;
    int rc = p->path ? varve_gopen_path(&gf_handle, p->path, p->flags, VARVE_GBLOCK, &f)
                     : varve_gopen(&gf_handle, p->id, VARVE_GBLOCK, &f);

    if (varve_d_block() == 0 && varve_d_thread() == 0)
        p->opened = rc;
    if (rc)
        return;
    n = varve_gread(&f, p->off, p->buffer[varve_d_block()], p->bytes);
    if (varve_d_thread() == 0 && n > 0 &&
        !gf_right(p->buffer[varve_d_block()], p->off, (uint64_t)n))
        p->wrong = true;
    rc = varve_gclose(&f);
    if (varve_d_block() == 0 && varve_d_thread() == 0) {
        p->got = n;
        p->closed = rc;
    }
}

static struct probe probe;

static void try_read(uint32_t id, uint64_t off, uint64_t bytes)
{
    probe.id = id;
    probe.path = NULL;
    probe.off = off;
    probe.bytes = bytes;
    probe.opened = probe.closed = -1;
    probe.got = -1;
    probe.wrong = false;
    gf_launch(BLOCKS, THREADS, BLOCKS, probe_kernel, &probe);
    T_CHECK(!probe.wrong);
}

static void try_path(const char *path, int flags)
{
    probe.path = path;
    probe.flags = flags;
    probe.off = 0;
    probe.bytes = 100;
    probe.opened = probe.closed = -1;
    probe.wrong = false;
    gf_launch(BLOCKS, THREADS, BLOCKS, probe_kernel, &probe);
    T_CHECK(!probe.wrong);
}

static uint32_t add(const char *name, uint64_t bytes, int flags)
{
    uint32_t id;

    T_OK(varve_gpufs_register(gf_fs, gf_file(name, bytes), flags, &id));
    return id;
}

static void open_small(uint32_t timeout_ms)
{
    struct varve_gpufs_opts o = gf_opts();

    o.timeout_ms = timeout_ms;
    gf_open(&o);
}

static void missing_files_and_folders(void)
{
    char path[600], long_path[5000];
    uint32_t id = 99;

    open_small(20000);
    snprintf(path, sizeof(path), "%s/none", t_tmpdir());
    T_ERR(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &id), -ENOENT);
    T_ERR(varve_gpufs_register(gf_fs, "", VARVE_GFILE_READ, &id), -ENOENT);
    T_ERR(varve_gpufs_register(gf_fs, t_tmpdir(), VARVE_GFILE_READ, &id), -EISDIR);
    T_ERR(varve_gpufs_register(gf_fs, "/dev/null", VARVE_GFILE_READ, &id), -EINVAL);
    T_ERR(varve_gpufs_register(gf_fs, path, 0, &id), -EINVAL);
    T_ERR(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ | VARVE_GFILE_CREATE, &id), -EINVAL);
    T_EQ(id, 99);
    try_path(path, VARVE_GFILE_READ);
    T_ERR(probe.opened, -ENOENT);
    try_path(t_tmpdir(), VARVE_GFILE_READ);
    T_ERR(probe.opened, -EISDIR);
    memset(long_path, 'a', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = '\0';
    try_path(long_path, VARVE_GFILE_READ);
    T_ERR(probe.opened, -ENAMETOOLONG);
    try_read(5, 0, 100);
    T_ERR(probe.opened, -EBADF);
    try_read(UINT32_MAX, 0, 100);
    T_ERR(probe.opened, -EBADF);
    /* An existing path, in the form that the host would use. */
    try_path(gf_file("there", 1000), VARVE_GFILE_READ);
    T_OK(probe.opened);
    T_EQ(probe.got, 100);
    T_EQ(gf_stats().files, 1);
    T_OK(gf_close());
}

static void ends_of_files(void)
{
    uint32_t id, empty, mapped;

    open_small(20000);
    id = add("short", 5000, VARVE_GFILE_READ);
    empty = add("empty", 0, VARVE_GFILE_READ | VARVE_GFILE_MAP);
    mapped = add("mapped", 5000, VARVE_GFILE_READ | VARVE_GFILE_MAP);
    for (int i = 0; i < 2; i++) {
        uint32_t one = i ? mapped : id;

        try_read(one, 4990, 100);
        T_EQ(probe.got, 10);
        try_read(one, 5000, 100);
        T_EQ(probe.got, 0);
        try_read(one, 5001, 100);
        T_EQ(probe.got, -ERANGE);
        try_read(one, UINT64_MAX - 10, 100);
        T_EQ(probe.got, -ERANGE);
        try_read(one, 0, 0);
        T_EQ(probe.got, 0);
        try_read(one, 1, 64 * KIB - 1);
        T_EQ(probe.got, 4999);
    }
    try_read(empty, 0, 10);
    T_EQ(probe.got, 0);
    T_OK(gf_close());
}

static void truncated_while_open(void)
{
    const char *path;
    uint32_t id;

    open_small(20000);
    path = gf_file("cut", 300 * KIB);
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &id));
    T_EQ(truncate(path, 10 * KIB), 0);
    try_read(id, 200 * KIB, 20 * KIB);
    T_EQ(probe.got, -ENODATA);
    try_read(id, 0, 8 * KIB);
    T_EQ(probe.got, 8 * KIB);
    T_OK(gf_close());

    /* A mapped file is a snapshot: a change is detected at closing, in the kernel and by the host. */
    open_small(20000);
    path = gf_file("cut", 300 * KIB);
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ | VARVE_GFILE_MAP, &id));
    T_EQ(truncate(path, 290 * KIB), 0);
    try_read(id, 0, 8 * KIB);
    T_EQ(probe.got, 8 * KIB);
    T_ERR(probe.closed, -ENODATA);
    T_ERR(varve_gpufs_unregister(gf_fs, id), -ENODATA);
    try_read(id, 0, 8 * KIB);
    T_ERR(probe.opened, -EBADF);
    T_OK(gf_close());

    open_small(20000);
    path = gf_file("cut", 300 * KIB);
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &id));
    T_EQ(truncate(path, 10 * KIB), 0);
    T_ERR(varve_gpufs_map(gf_fs, id, 0, 0, NULL), -ENODATA);
    try_read(id, 0, 8 * KIB); /* without a mapping, since there is none */
    T_EQ(probe.got, 8 * KIB);
    T_OK(probe.closed);
    T_OK(varve_gpufs_unmap(gf_fs, id));
    T_OK(varve_gpufs_unregister(gf_fs, id));
    path = gf_file("cut", 300 * KIB);
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ | VARVE_GFILE_MAP, &id));
    T_EQ(truncate(path, 290 * KIB), 0);
    T_ERR(gf_close(), -ENODATA);
}

static void open_many(void *arg)
{
    struct varve_gfile f[20];
    int *counts = arg, n = 0, rc = 0;

    while (n < 20 && rc == 0) {
        rc = varve_gopen(&gf_handle, 0, VARVE_GBLOCK, &f[n]);
        n += rc == 0;
    }
    if (varve_d_thread() == 0) {
        counts[0] = n;
        counts[1] = rc;
    }
    while (n--)
        (void)varve_gclose(&f[n]);
}

/* Ends without closing the file, with readahead under way. */
static void forget_to_close(void *arg)
{
    struct varve_gfile f;

    if (varve_gopen(&gf_handle, *(uint32_t *)arg, VARVE_GBLOCK, &f) != 0)
        return;
    (void)varve_gread(&f, 0, probe.buffer[varve_d_block()], 8 * KIB);
    (void)varve_gread(&f, 8 * KIB, probe.buffer[varve_d_block()], 8 * KIB);
}

static void files_left_open(void)
{
    uint32_t id;

    gf_bad_os(1000, 0, 0);
    open_small(20000);
    id = add("open", 200 * KIB, VARVE_GFILE_READ);
    for (int i = 0; i < 10; i++)
        gf_launch(BLOCKS, THREADS, BLOCKS, forget_to_close, &id);
    try_read(id, 0, 8 * KIB);
    T_ERR(probe.opened, -EMFILE);
    T_OK(varve_gpufs_drop(gf_fs));
    /* Answers to the ended kernel's requests are still to come. */
    for (int i = 0; i < 10 && probe.got != 60 * KIB; i++)
        try_read(id, 100 * KIB, 60 * KIB);
    T_EQ(probe.got, 60 * KIB);
    T_OK(gf_close());
}

/* Ends with a page mapped. */
static void forget_to_unmap(void *arg)
{
    struct varve_gfile f;
    const void *p;
    uint64_t n;
    int rc = varve_gopen(&gf_handle, *(uint32_t *)arg, VARVE_GBLOCK, &f);

    if (rc == 0)
        rc = varve_gmap(&f, varve_d_block() * 4 * KIB, &p, &n);
    if (varve_d_thread() == 0 && rc)
        probe.got = rc;
}

/* Pages that kernels left mapped are released by the next drop. */
static void pages_left_mapped(void)
{
    struct varve_gpufs_opts o = gf_opts();
    uint32_t id;

    for (int how = 0; how < 2; how++) {
        o.streams = BLOCKS;
        o.replace = how ? VV_GREPLACE_GLOBAL : VARVE_GREPLACE_OWN;
        gf_open(&o);
        id = add("mapped", 200 * KIB, VARVE_GFILE_READ);
        for (int i = 0; i < 5; i++) {
            probe.got = 0;
            gf_launch(BLOCKS, THREADS, BLOCKS, forget_to_unmap, &id);
            T_OK(probe.got);
            T_EQ(gf_pinned(), BLOCKS);
            try_read(id, 0, 8 * KIB);
            T_ERR(probe.opened, -EMFILE);
            T_OK(varve_gpufs_drop(gf_fs));
            T_EQ(gf_pinned(), 0);
            try_read(id, 100 * KIB, 60 * KIB);
            T_EQ(probe.got, 60 * KIB);
        }
        T_OK(gf_close());
    }
}

static void too_many(void)
{
    struct varve_gpufs_opts o = gf_opts();
    char name[16];
    uint32_t id;
    int counts[2];

    gf_open(&o);
    for (uint32_t i = 0; i < o.files; i++) {
        snprintf(name, sizeof(name), "f%u", i);
        id = add(name, 100, VARVE_GFILE_READ);
        T_EQ(id, i);
        T_EQ(add(name, 100, VARVE_GFILE_READ), i); /* the same path, the same number */
    }
    T_ERR(varve_gpufs_register(gf_fs, gf_file("more", 1), VARVE_GFILE_READ, &id), -EMFILE);
    try_path(gf_file("more", 1), VARVE_GFILE_READ);
    T_ERR(probe.opened, -EMFILE);
    for (int i = 0; i < 2; i++) {
        gf_launch(1, THREADS, 1, open_many, counts);
        T_EQ(counts[0], o.streams);
        T_ERR(counts[1], -EMFILE);
    }
    T_OK(varve_gpufs_unregister(gf_fs, 3)); /* once for each registration */
    T_OK(varve_gpufs_unregister(gf_fs, 3));
    T_ERR(varve_gpufs_unregister(gf_fs, 3), -EINVAL);
    T_OK(varve_gpufs_register(gf_fs, gf_file("more", 1), VARVE_GFILE_READ, &id));
    T_CHECK(id != 3); /* pages of the old one may still be in the cache */
    T_OK(gf_close());
}

static void no_servers(void)
{
    uint32_t id, mapped;

    open_small(20000);
    id = add("served", 200 * KIB, VARVE_GFILE_READ);
    mapped = add("mapped", 200 * KIB, VARVE_GFILE_READ | VARVE_GFILE_MAP);
    T_ERR(varve_gpufs_start(gf_fs, 1), -EALREADY);
    T_OK(varve_gpufs_stop(gf_fs));
    T_EQ(gf_stats().servers, 0);
    try_read(id, 0, 10 * KIB);
    T_OK(probe.opened);
    T_EQ(probe.got, -ENOTCONN);
    try_path(gf_file("path", 10), VARVE_GFILE_READ);
    T_ERR(probe.opened, -ENOTCONN);
    /* Mapped pages need no servers. */
    try_read(mapped, 0, 10 * KIB);
    T_EQ(probe.got, 10 * KIB);
    T_OK(probe.closed);
    T_OK(varve_gpufs_start(gf_fs, 1));
    try_read(id, 0, 10 * KIB);
    T_EQ(probe.got, 10 * KIB);
    T_OK(gf_close());
}

/* Stops the servers while a kernel waits. */
static void *stop_soon(void *arg)
{
    (void)arg;
    usleep(20000);
    T_OK(varve_gpufs_stop(gf_fs));
    return NULL;
}

static void *stop_and_start(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        usleep(1000);
        T_OK(varve_gpufs_stop(gf_fs));
        T_OK(varve_gpufs_start(gf_fs, 1 + (uint32_t)i % 3));
    }
    return NULL;
}

static _Atomic uint64_t failed_reads, good_reads;

struct reading {
    uint64_t bytes;
    bool until_gone; /* the servers end for good: a block reads until it gets -ENOTCONN */
};

static void read_until_error(void *arg)
{
    const struct reading *reading = arg;
    struct varve_gfile f;
    int64_t n;
    uint64_t bytes = reading->bytes;
    unsigned b = varve_d_block();
    bool gone = false;

    for (int round = 0; round < 40 || (reading->until_gone && !gone); round++) {
        if (varve_gopen(&gf_handle, 0, VARVE_GBLOCK, &f) != 0)
            continue;
        for (uint64_t off = 0; off < bytes; off += 32 * KIB) {
            n = varve_gread(&f, off, probe.buffer[b], 32 * KIB);
            if (varve_d_thread() == 0) {
                if (n < 0)
                    failed_reads++;
                else if (gf_right(probe.buffer[b], off, (uint64_t)n))
                    good_reads++;
                else
                    probe.wrong = true;
            }
            varve_d_sync_block();
            gone = gone || n == -ENOTCONN;
            if (n == -ENOTCONN)
                break;
        }
        (void)varve_gclose(&f);
    }
}

static void servers_go_and_come(void)
{
    struct varve_gpufs_opts o = gf_opts();
    struct reading reading = {.bytes = 400 * KIB};
    pthread_t t;

    o.cache_bytes = 128 * KIB;
    o.bypass = VARVE_GBYPASS_NEVER;
    for (int how = 0; how < 4; how++) {
        reading.until_gone = how % 2 == 0;
        o.queue = how < 2 ? VARVE_GQUEUE_TICKETS : VV_GQUEUE_SLOTS;
        gf_bad_os(300, 100, 0);
        gf_open(&o);
        (void)add("stopped", reading.bytes, VARVE_GFILE_READ);
        failed_reads = good_reads = 0;
        probe.wrong = false;
        T_OK(-pthread_create(&t, NULL, how % 2 ? stop_and_start : stop_soon, NULL));
        gf_launch(BLOCKS, THREADS, BLOCKS, read_until_error, &reading);
        T_OK(-pthread_join(t, NULL));
        T_CHECK(!probe.wrong);
        if (reading.until_gone) {
            T_CHECK(failed_reads > 0);
            T_OK(varve_gpufs_start(gf_fs, 0));
        }
        /* All streams can be used again. */
        try_read(0, 100 * KIB, 32 * KIB);
        T_EQ(probe.got, 32 * KIB);
        T_OK(gf_close());
    }
}

/* A group that got -ENOTCONN continues when there are servers again, with the same open file. */
static _Atomic int phase;

static void read_in_phases(void *arg)
{
    static const int want[] = {8 * KIB, -ENOTCONN, -ENOTCONN, 8 * KIB};
    struct varve_gfile f;

    (void)arg;
    if (varve_gopen(&gf_handle, 0, VARVE_GBLOCK, &f) != 0)
        return;
    for (int i = 0; i < 4; i++) {
        int64_t n;

        while (atomic_load(&phase) < 2 * i)
            usleep(100);
        n = varve_gread(&f, (uint64_t)i * 100 * KIB, probe.buffer[varve_d_block()], 8 * KIB);
        if (n != want[i])
            probe.wrong = true;
        varve_d_sync_block();
        if (varve_d_thread() == 0)
            atomic_fetch_add(&phase, 1);
    }
    if (varve_gclose(&f) != 0)
        probe.wrong = true;
}

static void *stop_between_phases(void *arg)
{
    for (int i = 1; i < 6; i += 2) {
        while (atomic_load(&phase) != i)
            usleep(100);
        if (i == 1)
            T_OK(varve_gpufs_stop(gf_fs));
        if (i == 5)
            T_OK(varve_gpufs_start(gf_fs, 0));
        atomic_fetch_add(&phase, 1);
    }
    return arg;
}

static void servers_come_back(void)
{
    pthread_t t;

    open_small(20000);
    (void)add("phases", 400 * KIB, VARVE_GFILE_READ);
    probe.wrong = false;
    atomic_store(&phase, 0);
    T_OK(-pthread_create(&t, NULL, stop_between_phases, NULL));
    gf_launch(1, THREADS, 1, read_in_phases, NULL);
    T_OK(-pthread_join(t, NULL));
    T_CHECK(!probe.wrong);
    T_EQ(atomic_load(&phase), 7);
    T_OK(gf_close());
}

/* A server ends during a request: the group that waits for it gets an error in time, others continue. */
static void a_server_is_lost(void)
{
    struct reading reading = {.bytes = 200 * KIB};
    uint32_t id;

    open_small(1000); /* long enough for the remaining server, also on a busy machine */
    id = add("lost", reading.bytes, VARVE_GFILE_READ);
    vv_gpufile_lose_server(gf_fs);
    failed_reads = good_reads = 0;
    probe.wrong = false;
    gf_launch(BLOCKS, THREADS, BLOCKS, read_until_error, &reading);
    T_CHECK(!probe.wrong);
    T_CHECK(failed_reads >= 1);
    T_CHECK(good_reads > failed_reads);
    try_read(id, 0, 10 * KIB);
    T_EQ(probe.got, 10 * KIB);
    /* The last one ends too. */
    vv_gpufile_lose_server(gf_fs);
    T_OK(varve_gpufs_drop(gf_fs));
    try_read(id, 0, 10 * KIB);
    try_read(id, 50 * KIB, 10 * KIB);
    T_EQ(probe.got, -ETIMEDOUT);
    T_OK(gf_close());
}

/* After a clock is set back, no request is late. */
static void a_clock_that_steps_back(void)
{
    struct varve_gfs fs = {.timeout_ns = 1000};
    uint64_t wrap = UINT64_C(1) << 32, start = 7 * wrap - 10;

    T_CHECK(!varve_g_is_late(&fs, start, start));
    T_CHECK(!varve_g_is_late(&fs, start, start + 1000));
    T_CHECK(varve_g_is_late(&fs, start, start + 1001));
    T_CHECK(!varve_g_is_late(&fs, start, start - 1));
    T_CHECK(!varve_g_is_late(&fs, start, start + 20 - wrap));
    T_CHECK(varve_g_is_late(&fs, start, start + wrap));
}

/* A late answer must not change memory that is already used for something else. */
static void answers_come_too_late(void)
{
    struct varve_gpufs_opts o = gf_opts();
    struct reading reading = {.bytes = 200 * KIB};

    o.timeout_ms = 2;
    o.cache_bytes = 128 * KIB;
    o.bypass = VARVE_GBYPASS_NEVER;
    gf_bad_os(1000, 100, 0);
    gf_open(&o);
    (void)add("late", reading.bytes, VARVE_GFILE_READ);
    probe.wrong = false;
    failed_reads = good_reads = 0;
    gf_launch(BLOCKS, THREADS, BLOCKS, read_until_error, &reading);
    T_CHECK(!probe.wrong);
    T_OK(gf_close());
}

static void reads_fail(void)
{
    struct reading reading = {.bytes = 300 * KIB};
    uint32_t id;

    gf_bad_os(0, 0, 0);
    open_small(20000);
    id = add("bad", reading.bytes, VARVE_GFILE_READ);
    atomic_store(&gf_os.fail_with, -EIO);
    try_read(id, 0, 20 * KIB);
    T_EQ(probe.got, -EIO);
    T_OK(probe.closed);
    atomic_store(&gf_os.fail_with, 0);
    try_read(id, 0, 20 * KIB);
    T_EQ(probe.got, 20 * KIB);
    T_CHECK(gf_stats().failed > 0);
    T_OK(gf_close());
    /* Sometimes, among good ones. */
    gf_bad_os(100, 200, 100);
    open_small(20000);
    (void)add("bad", reading.bytes, VARVE_GFILE_READ);
    probe.wrong = false;
    failed_reads = good_reads = 0;
    gf_launch(BLOCKS, THREADS, BLOCKS, read_until_error, &reading);
    T_CHECK(!probe.wrong);
    T_CHECK(good_reads > 0);
    T_EQ(gf_pinned(), 0);
    T_OK(gf_close());
}

/* Random words that a faulty kernel writes into the ring do not reach memory that is not its own. */
static void garbage_in_the_ring(void)
{
    struct t_rng r = {t_seed()};

    open_small(20000);
    (void)add("file", 100 * KIB, VARVE_GFILE_READ);
    for (uint32_t i = 0; i < gf_handle.n_ring; i++) {
        uint64_t a = t_rng_u64(&r) | VARVE_G_LAP_BIT, b = t_rng_u64(&r) | VARVE_G_LAP_BIT;

        if (i % 2) /* an existing stream, file and size */
            a &= ~(UINT64_C(0x3ff8) << 46 | UINT64_C(0xfff) << 22);
        if (i % 4 == 1)
            b &= ~UINT64_C(0x3ff000);
        if ((a >> 60 & 7) == VARVE_G_OPEN) /* would open files by random memory */
            a ^= UINT64_C(1) << 60;
        varve_d_store64_sys(&gf_handle.ring[i].half[1], b);
        varve_d_release64_sys(&gf_handle.ring[i].half[0], a);
    }
    while (varve_d_acquire64_sys(&gf_handle.ring[gf_handle.n_ring - 1].read) == 0 ||
           varve_d_acquire64_sys(&gf_handle.ring[gf_handle.n_ring - 2].read) == 0)
        usleep(100);
    T_CHECK(gf_stats().answered > 0);
    T_OK(gf_close());
}

/* The context's record is of this call, and explains the error. */
static void fails_with(int rc, int err, const char *operation, const char *text)
{
    struct varve_error e = {.error_size = sizeof(e)};

    T_ERR(rc, err);
    T_OK(varve_last_error(gf_ctx, &e));
    T_EQ(e.err, err);
    T_STREQ(e.operation, operation);
    if (!strstr(e.text, text))
        t_fail(__FILE__, __LINE__, "\"%s\" does not have \"%s\"", e.text, text);
}

/* Every failure records a text of its own: an older one, or none, would mislead. */
static void texts(void)
{
    struct varve_gpufs_opts o = gf_opts();
    struct varve_gpufs_stats s = {.stats_size = 1};
    struct varve_error e = {.error_size = sizeof(e)};
    struct varve_gpufs *fs;
    const char *path;
    uint32_t id;

    o.files = 2;
    o.map_limit = 3 * MIB;
    gf_open(&o);
    T_ERR(varve_last_error(gf_ctx, &e), -ENODATA);
    fails_with(varve_gpufs_register(gf_fs, "nofile", VARVE_GFILE_READ, &id), -ENOENT,
               "gpufs_register", "cannot open nofile: No such file or directory");
    o.cache_bytes = 1;
    fails_with(varve_gpufs_open(gf_ctx, &o, &fs), -EINVAL, "gpufs_open", "cache_bytes");
    fails_with(varve_gpufs_register(gf_fs, "some", 0, &id), -EINVAL, "gpufs_register",
               "some: flags 0");
    fails_with(varve_gpufs_register(gf_fs, "some", VARVE_GFILE_WRITE | VARVE_GFILE_MAP, &id),
               -EINVAL, "gpufs_register", "some: flags 10");
    fails_with(varve_gpufs_register(gf_fs, "", VARVE_GFILE_READ, &id), -ENOENT, "gpufs_register",
               "no path");
    fails_with(varve_gpufs_register(gf_fs, ".", VARVE_GFILE_READ, &id), -EISDIR, "gpufs_register",
               "cannot open .: Is a directory");
    fails_with(varve_gpufs_register(gf_fs, "/dev/null", VARVE_GFILE_READ, &id), -EINVAL,
               "gpufs_register", "/dev/null is not a regular file");
    fails_with(varve_gpufs_map(gf_fs, 3, 0, 0, NULL), -EINVAL, "gpufs_map",
               "file 3, from 0 on: no file");
    fails_with(varve_gpufs_unmap(gf_fs, 3), -EINVAL, "gpufs_unmap", "file 3: no file");
    fails_with(varve_gpufs_unregister(gf_fs, 3), -EINVAL, "gpufs_unregister", "file 3: no file");
    fails_with(varve_gpufs_start(gf_fs, 0), -EALREADY, "gpufs_start", "run already");
    fails_with(varve_gpufs_start(gf_fs, 65), -EINVAL, "gpufs_start", "64 at most");
    fails_with(varve_gpufs_stats(gf_fs, &s), -EINVAL, "gpufs_stats", "size");
    fails_with(varve_gpufs_handle(gf_fs, NULL), -EINVAL, "gpufs_handle", "nowhere");
    id = add("writable", 100, VARVE_GFILE_WRITE);
    fails_with(varve_gpufs_map(gf_fs, id, 0, 0, NULL), -EINVAL, "gpufs_map", "for writing");
    /* Windows behind the ones that registering maps are read by servers: nothing has failed. */
    id = add("large", 6 * MIB, VARVE_GFILE_READ | VARVE_GFILE_MAP);
    fails_with(varve_gpufs_map(gf_fs, id, 6 * MIB + 1, 0, NULL), -EINVAL, "gpufs_map", "beyond");
    fails_with(varve_gpufs_map(gf_fs, id, 0, 0, NULL), -ENOSPC, "gpufs_map", "map_limit");
    path = gf_file("third", 100);
    fails_with(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &id), -EMFILE, "gpufs_register",
               "third: there are 2 files");
    T_ERR(varve_gpufs_drop(NULL), -EINVAL);
    T_OK(varve_last_error(NULL, &e));
    T_STREQ(e.operation, "gpufs_drop");
    T_OK(gf_close());
}

static void bad_options(void)
{
    struct varve_gpufs_opts good = gf_opts(), o;
    struct varve_gpufs *fs = NULL;
    struct varve_gpufs_stats s = {.stats_size = 1};
    struct varve_opts opts;
    struct varve_error e = {.error_size = sizeof(e)};
    uint64_t bytes;
    uint32_t id;

    T_ERR(varve_gpufs_opts_init(NULL, sizeof(o)), -EINVAL);
    T_ERR(varve_gpufs_opts_init(&o, 1), -EINVAL);
    T_ERR(varve_gpufs_open(NULL, &good, &fs), -EINVAL);
    open_small(20000);
#define BAD(field, value)                                  \
    do {                                                   \
        o = good;                                          \
        o.field = value;                                   \
        T_ERR(varve_gpufs_open(gf_ctx, &o, &fs), -EINVAL); \
    } while (0)
    BAD(page_bytes, 2 * KIB);
    BAD(page_bytes, 8 * MIB);
    BAD(page_bytes, 5000);
    BAD(streams, 0);
    BAD(cache_bytes, 64 * KIB);
    BAD(window_bytes, 3 * MIB);
    good.page_bytes = good.readahead_bytes = 4 * MIB; /* a page that is larger than a window */
    good.split_bytes = 2 * MIB;
    good.cache_bytes = 256 * MIB;
    BAD(window_bytes, 2 * MIB);
    good = gf_opts();
    BAD(files, 5000);
    BAD(servers, 65);
    BAD(readahead_bytes, 5000);
    BAD(split_bytes, 5000);
    BAD(timeout_ms, 0);
    BAD(io, 7);
    BAD(readahead, -1);
    BAD(readahead, VV_GREADAHEAD_FIXED); /* the public function refuses this one and the next two */
    BAD(replace, VV_GREPLACE_GLOBAL);
    BAD(queue, VV_GQUEUE_SLOTS);
    o = good;
    o.replace = o.queue = 2;
    T_ERR(vv_gpufile_open(gf_ctx, &o, &fs), -EINVAL);
    BAD(bypass, 2);
    BAD(opts_size, 3);
    T_OK(varve_last_error(gf_ctx, &e));
    T_STREQ(e.operation, "gpufs_open");
    o = good;
    o.cache_bytes = UINT64_C(1) << 40;
    T_ERR(varve_gpufs_open(gf_ctx, &o, &fs), -ENOMEM);
    T_CHECK(!fs);
    T_ERR(varve_close(gf_ctx), -EBUSY); /* the file system uses it */
    T_ERR(varve_gpufs_stats(gf_fs, &s), -EINVAL);
    T_ERR(varve_gpufs_handle(gf_fs, NULL), -EINVAL);
    T_ERR(varve_gpufs_map(gf_fs, 3, 0, 0, NULL), -EINVAL);
    T_ERR(varve_gpufs_unmap(gf_fs, 3), -EINVAL);
    id = add("writable", 100, VARVE_GFILE_WRITE);
    T_ERR(varve_gpufs_map(gf_fs, id, 0, 0, NULL), -EINVAL);
    id = add("readable", 100, VARVE_GFILE_READ);
    T_ERR(varve_gpufs_map(gf_fs, id, 101, 0, NULL), -EINVAL);
    T_OK(gf_close());

    good.map_limit = 3 * MIB;
    gf_open(&good);
    id = add("large", 6 * MIB + 5, VARVE_GFILE_READ);
    T_ERR(varve_gpufs_map(gf_fs, id, 0, 0, &bytes), -ENOSPC);
    T_EQ(bytes, 2 * MIB);
    T_OK(varve_gpufs_map(gf_fs, id, 100, 200, &bytes));
    T_EQ(gf_stats().windows, 1);
    T_OK(varve_gpufs_unmap(gf_fs, id));
    T_OK(varve_gpufs_map(gf_fs, id, 6 * MIB, 1, &bytes));
    T_EQ(bytes, 5);
    T_OK(gf_close());

    T_OK(varve_opts_init(&opts, sizeof(opts)));
    opts.device = VARVE_DEVICE_NONE;
    T_OK(varve_open(&opts, &gf_ctx));
    T_ERR(varve_gpufs_open(gf_ctx, NULL, &fs), -ENODEV);
    T_OK(varve_close(gf_ctx));
    T_OK(varve_gpufs_close(NULL));
}

/* Each call of the device fails in turn, at opening, registering, dropping and closing. */
static void the_device_fails(void)
{
    struct varve_gpufs_opts o = gf_opts();
    const char *path = gf_file("file", 3 * MIB);
    int rc = -1;

    for (uint64_t nth = 1; rc != 0; nth++) {
        struct varve_opts opts;
        struct vv_device *d;
        uint32_t id;

        T_OK(varve_opts_init(&opts, sizeof(opts)));
        opts.device = VARVE_DEVICE_HOST;
        opts.device_cache = opts.host_cache = 0;
        T_OK(varve_open(&opts, &gf_ctx));
        d = vv_ckpt_device(gf_ctx);
        T_OK(vv_device_host_fail(d, VV_DEVICE_OP_ANY, nth, 1, -ENOMEM));
        rc = varve_gpufs_open(gf_ctx, &o, &gf_fs);
        if (rc == 0) {
            struct varve_gpufs_stats s = {.stats_size = sizeof(s)};

            rc = varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ | VARVE_GFILE_MAP, &id);
            if (rc == 0)
                rc = varve_gpufs_drop(gf_fs);
            if (rc == 0)
                rc = varve_gpufs_stats(gf_fs, &s);
            T_OK(varve_gpufs_close(gf_fs));
        }
        T_CHECK(rc == 0 || rc == -ENOMEM);
        vv_device_host_heal(d);
        T_OK(varve_close(gf_ctx));
        T_CHECK(nth < 1000);
    }
}

int main(void)
{
    T_RUN(missing_files_and_folders);
    T_RUN(ends_of_files);
    T_RUN(truncated_while_open);
    T_RUN(too_many);
    T_RUN(files_left_open);
    T_RUN(pages_left_mapped);
    T_RUN(no_servers);
    T_RUN(servers_go_and_come);
    T_RUN(servers_come_back);
    T_RUN(a_server_is_lost);
    T_RUN(answers_come_too_late);
    T_RUN(a_clock_that_steps_back);
    T_RUN(reads_fail);
    T_RUN(garbage_in_the_ring);
    T_RUN(texts);
    T_RUN(bad_options);
    T_RUN(the_device_fails);
    return t_done();
}
