/* SPDX-License-Identifier: Apache-2.0 */
/* The store of committed files: writing, committing, reading and removing, on every backend and in both
 * modes. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store_test.h"

static struct st_tier tier;
static struct vv_files *files;
static const char *dir;

static void set_up(void)
{
    tier.opts = st_opts;
    dir = t_tmpdir();
    st_tier_open(&tier, dir);
    files = st_files_open(&tier, "h");
}

static void tear_down(void)
{
    vv_files_close(files);
    st_tier_close(&tier);
}

static void reopen(void)
{
    tear_down();
    st_tier_open(&tier, dir);
    files = st_files_open(&tier, "h");
}

static bool exists(const char *name)
{
    struct stat st;
    return stat(st_path(dir, name), &st) == 0;
}

static int count_entry(void *user, const struct vv_files_entry *e)
{
    (void)e;
    ++*(int *)user;
    return 0;
}

static int listed(void)
{
    int n = 0;
    T_OK(vv_files_list(files, count_entry, &n));
    return n;
}

static void round_trip(void)
{
    static const uint64_t sizes[] = {
        0, 1, 4095, 4096, 4097, ST_PAGE - 1, ST_PAGE, ST_PAGE + 1, 9 * ST_PAGE, 60 * ST_PAGE + 77};
    set_up();
    for (unsigned i = 0; i < VV_ARRAY_SIZE(sizes); i++) {
        T_OK(st_put_version(tier.writer, files, i, 0, sizes[i], ST_PAGE));
        if (sizes[i] > 0)
            T_OK(st_check_version(tier.reader, files, i, 0, sizes[i], ST_PAGE));
        char name[64];
        struct stat st;
        snprintf(name, sizeof(name), "h/r0.v%u.g0.ckpt", i);
        T_OK(stat(st_path(dir, name), &st));
        T_EQ(st.st_size, vv_files_bytes(sizes[i], 2, ST_PAGE));
    }
    reopen();
    for (unsigned i = 1; i < VV_ARRAY_SIZE(sizes); i++)
        T_OK(st_check_version(tier.reader, files, i, 0, sizes[i], ST_PAGE));
    T_EQ(listed(), VV_ARRAY_SIZE(sizes));
    T_EQ(listed(), 0); /* once per open */
    T_EQ(vv_files_first_generation(files), 1);
    tear_down();
}

/* Chunks in any order and grouping; read back before the commit by another store. */
static void any_order_and_read_back(void)
{
    set_up();
    struct st_object o;
    struct vv_store_io io;
    st_object_init(&o, files, 5, 3, 7 * ST_PAGE + 100, ST_PAGE);
    io = st_io(&o, VV_STORE_WRITE, 4, 4);
    T_OK(st_run(tier.writer, &io));
    io = st_io(&o, VV_STORE_READ, 6, 2);
    memset(o.mem[6], 0, ST_PAGE);
    T_OK(st_run(tier.reader, &io));
    io = st_io(&o, VV_STORE_WRITE, 3, 1);
    T_OK(st_run(tier.writer, &io));
    io = st_io(&o, VV_STORE_WRITE, 0, 3);
    T_OK(st_run(tier.writer, &io));
    T_CHECK(exists("h/r0.v5.g3.tmp"));
    T_CHECK(!exists("h/r0.v5.g3.ckpt"));
    st_object_clear(&o, ST_PAGE);
    T_OK(st_do(tier.reader, &o, VV_STORE_READ));
    T_CHECK(st_object_intact(&o, ST_PAGE));
    T_OK(st_do(tier.writer, &o, VV_STORE_COMMIT));
    T_CHECK(!exists("h/r0.v5.g3.tmp"));
    T_CHECK(exists("h/r0.v5.g3.ckpt"));
    T_OK(st_check_version(tier.reader, files, 5, 3, o.size, ST_PAGE));
    st_object_fini(&o);
    tear_down();
}

static void refused_requests(void)
{
    set_up();
    struct st_object o;
    st_object_init(&o, files, 1, 0, 3 * ST_PAGE, ST_PAGE);
    struct vv_store_io io = st_io(&o, VV_STORE_WRITE, 0, 2);
    T_OK(st_run(tier.writer, &io));
    T_ERR(st_do(tier.writer, &o, VV_STORE_COMMIT), -EINVAL); /* a chunk is missing */
    T_ERR(st_run(tier.writer, &io), -EEXIST);                /* chunk 0 a second time */
    io = st_io(&o, VV_STORE_WRITE, 2, 2);
    T_ERR(st_run(tier.writer, &io), -EINVAL); /* beyond the object */
    io = st_io(&o, VV_STORE_WRITE, 2, 1);
    T_OK(st_run(tier.writer, &io));
    o.region[0].bytes++;
    T_ERR(st_do(tier.writer, &o, VV_STORE_COMMIT), -EINVAL); /* regions do not add up */
    o.region[0].bytes--;
    T_OK(st_do(tier.writer, &o, VV_STORE_COMMIT));
    T_ERR(st_do(tier.writer, &o, VV_STORE_COMMIT), -EEXIST);
    T_ERR(st_do(tier.writer, &o, VV_STORE_WRITE), -EEXIST);
    T_ERR(st_check_version(tier.reader, files, 2, 0, 100, ST_PAGE), -ENOENT);
    io = st_io(&o, VV_STORE_READ, 0, 1);
    io.key.history = NULL;
    T_ERR(st_run(tier.reader, &io), -EINVAL);
    reopen();
    /* A generation that the history has had. */
    o.key = (struct vv_store_key){files, 9, 0};
    T_ERR(st_do(tier.writer, &o, VV_STORE_WRITE), -EINVAL);
    T_ERR(st_do(tier.writer, &o, VV_STORE_COMMIT), -EINVAL);
    st_object_fini(&o);
    tear_down();
}

static void removal(void)
{
    set_up();
    struct st_object o;
    st_object_init(&o, files, 1, 0, 3 * ST_PAGE, ST_PAGE);
    T_OK(st_do(tier.writer, &o, VV_STORE_REMOVE)); /* nothing written */
    T_OK(st_do(tier.writer, &o, VV_STORE_WRITE));
    T_CHECK(exists("h/r0.v1.g0.tmp"));
    T_OK(st_do(tier.reader, &o, VV_STORE_REMOVE)); /* written, not committed */
    T_CHECK(!exists("h/r0.v1.g0.tmp"));
    T_OK(st_put(tier.writer, &o)); /* the same key again: nothing was left of it */
    T_OK(st_do(tier.writer, &o, VV_STORE_REMOVE));
    T_CHECK(!exists("h/r0.v1.g0.ckpt"));
    T_ERR(st_do(tier.reader, &o, VV_STORE_READ), -ENOENT);
    T_OK(st_do(tier.writer, &o, VV_STORE_REMOVE));
    o.key.generation = 1;
    T_OK(st_put(tier.writer, &o));
    o.key.version = 2;
    T_OK(st_put(tier.writer, &o));
    T_OK(st_do(tier.reader, &o, VV_STORE_REMOVE));
    reopen();
    T_EQ(listed(), 1);
    T_EQ(vv_files_first_generation(files), 2);
    st_object_fini(&o);
    tear_down();
}

static void unfinished_writes_vanish(void)
{
    set_up();
    struct st_object o;
    st_object_init(&o, files, 1, 0, 3 * ST_PAGE, ST_PAGE);
    T_OK(st_do(tier.writer, &o, VV_STORE_WRITE));
    tear_down(); /* closing deletes it */
    T_CHECK(!exists("h/r0.v1.g0.tmp"));
    /* As after a crash; files of another rank must not be deleted. */
    T_CHECK(close(open(st_path(dir, "h/r0.v8.g0.tmp"), O_CREAT | O_WRONLY, 0666)) == 0);
    T_CHECK(close(open(st_path(dir, "h/r1.v8.g0.tmp"), O_CREAT | O_WRONLY, 0666)) == 0);
    st_tier_open(&tier, dir);
    files = st_files_open(&tier, "h");
    T_CHECK(!exists("h/r0.v8.g0.tmp"));
    T_CHECK(exists("h/r1.v8.g0.tmp"));
    T_EQ(listed(), 0);
    st_object_fini(&o);
    tear_down();
}

/* Few descriptors, many objects, including objects being written. */
static void bounded_descriptors(void)
{
    enum { N = 20 };
    struct fault_os fault;
    fault_os_init(&fault);
    struct vv_store_opts saved = st_opts;
    st_opts.os = &fault.os;
    st_opts.max_open = 3;
    set_up();
    int before = atomic_load(&fault.descriptors);
    static struct st_object o[N];
    for (uint32_t i = 0; i < N; i++) {
        st_object_init(&o[i], files, i, 0, 2 * ST_PAGE, ST_PAGE);
        struct vv_store_io io = st_io(&o[i], VV_STORE_WRITE, 1, 1);
        T_OK(st_run(tier.writer, &io));
        T_CHECK(atomic_load(&fault.descriptors) <= before + 3);
    }
    for (uint32_t i = 0; i < N; i++) {
        struct vv_store_io io = st_io(&o[i], VV_STORE_WRITE, 0, 1);
        T_OK(st_run(tier.writer, &io));
        T_OK(st_do(tier.writer, &o[i], VV_STORE_COMMIT));
    }
    for (uint32_t i = 0; i < N; i++) {
        st_object_clear(&o[i], ST_PAGE);
        T_OK(st_do(tier.reader, &o[i], VV_STORE_READ));
        T_CHECK(st_object_intact(&o[i], ST_PAGE));
        T_CHECK(atomic_load(&fault.descriptors) <= before + 3);
        st_object_fini(&o[i]);
    }
    tear_down();
    T_EQ(atomic_load(&fault.descriptors), 0);
    st_opts = saved;
}

/* Concurrent commits share the folder's fsync, and all succeed. */
static void grouped_commits(void)
{
    enum { N = 24 };
    struct fault_os fault;
    fault_os_init(&fault);
    struct vv_store_opts saved = st_opts;
    st_opts.os = &fault.os;
    set_up();
    static struct st_object o[N];
    static struct vv_store_io io[N];
    for (uint32_t i = 0; i < N; i++) {
        st_object_init(&o[i], files, i, 0, 1000 + i, ST_PAGE);
        T_OK(st_do(tier.writer, &o[i], VV_STORE_WRITE));
    }
    long before = atomic_load(&fault.per_call[FAULT_AIO_FSYNC]);
    long writes = atomic_load(&fault.per_call[FAULT_PWRITE]);
    for (uint32_t i = 0; i < N; i++) {
        io[i] = st_io(&o[i], VV_STORE_COMMIT, 0, 0);
        T_OK(tier.writer->ops->submit(tier.writer, &io[i]));
    }
    for (int left = N; left > 0;) {
        struct vv_store_io *done[N];
        int n = tier.writer->ops->poll(tier.writer, done, N, -1);
        for (int i = 0; i < n; i++)
            T_OK(done[i]->status);
        left -= n;
    }
    long fsyncs = atomic_load(&fault.per_call[FAULT_AIO_FSYNC]) - before;
    t_note("%d commits: %ld fsyncs, %ld index writes", N, fsyncs,
           atomic_load(&fault.per_call[FAULT_PWRITE]) - writes);
    T_CHECK(fsyncs >= N + 1 && fsyncs < 2 * N);
    reopen();
    for (uint32_t i = 0; i < N; i++) {
        T_OK(st_check_version(tier.reader, files, i, 0, 1000 + i, ST_PAGE));
        st_object_fini(&o[i]);
    }
    tear_down();
    st_opts = saved;
}

static void flip(const char *name, uint64_t at)
{
    int fd = open(st_path(dir, name), O_RDWR);
    unsigned char c;
    T_CHECK(fd >= 0);
    T_EQ(pread(fd, &c, 1, (off_t)at), 1);
    c ^= 0x40;
    T_EQ(pwrite(fd, &c, 1, (off_t)at), 1);
    T_OK(fsync(fd));
    close(fd);
}

/* Wrong bytes are never returned with success, and intact ones are still read. */
static void corruption(void)
{
    set_up();
    for (uint64_t v = 0; v < 4; v++)
        T_OK(st_put_version(tier.writer, files, v, 0, 5 * ST_PAGE + 9, ST_PAGE));
    reopen();
    flip("h/r0.v0.g0.ckpt", 4096 + 3 * ST_PAGE + 17);
    flip("h/r0.v1.g0.ckpt", vv_files_bytes(5 * ST_PAGE + 9, 2, ST_PAGE) - 200); /* the tables */
    T_OK(truncate(st_path(dir, "h/r0.v2.g0.ckpt"), 4096 + 2 * ST_PAGE));
    struct st_object o;
    st_object_init(&o, files, 0, 0, 5 * ST_PAGE + 9, ST_PAGE);
    struct vv_store_io io = st_io(&o, VV_STORE_READ, 1, 4);
    T_ERR(st_run(tier.reader, &io), -EBADMSG);
    T_EQ(io.bad_chunk, 3);
    io = st_io(&o, VV_STORE_READ, 4, 2); /* the chunks around it are intact */
    T_OK(st_run(tier.reader, &io));
    st_object_fini(&o);
    T_ERR(st_check_version(tier.reader, files, 1, 0, 5 * ST_PAGE + 9, ST_PAGE), -EBADMSG);
    T_ERR(st_check_version(tier.reader, files, 2, 0, 5 * ST_PAGE + 9, ST_PAGE), -EBADMSG);
    T_OK(st_check_version(tier.reader, files, 3, 0, 5 * ST_PAGE + 9, ST_PAGE));
    /* Read with another size than it has. */
    T_ERR(st_check_version(tier.reader, files, 3, 0, 5 * ST_PAGE, ST_PAGE), -EBADMSG);
    tear_down();
}

/* Truncated while it is open, after its footer was read. */
static void truncated_while_open(void)
{
    set_up();
    T_OK(st_put_version(tier.writer, files, 0, 0, 5 * ST_PAGE, ST_PAGE));
    T_OK(st_check_version(tier.reader, files, 0, 0, 5 * ST_PAGE, ST_PAGE));
    T_OK(truncate(st_path(dir, "h/r0.v0.g0.ckpt"), 4096 + 2 * ST_PAGE));
    T_ERR(st_check_version(tier.reader, files, 0, 0, 5 * ST_PAGE, ST_PAGE), -EBADMSG);
    tear_down();
}

/* Files written with one page size are read with another. */
static void other_page_sizes(void)
{
    static const uint32_t pages[] = {4096, 8192, ST_PAGE, 65536};
    const uint64_t size = 5 * ST_PAGE + 4097;
    struct vv_store_opts saved = st_opts;
    for (unsigned w = 0; w < 4; w++) {
        st_opts.page_bytes = pages[w];
        set_up();
        T_OK(st_put_version(tier.writer, files, 1, 0, size, pages[w]));
        for (unsigned r = 0; r < 4; r++) {
            tear_down();
            tier.opts.page_bytes = pages[r];
            st_tier_open(&tier, dir);
            files = st_files_open(&tier, "h");
            T_OK(st_check_version(tier.reader, files, 1, 0, size, pages[r]));
            struct st_object o; /* chunk by chunk */
            st_object_init(&o, files, 1, 0, size, pages[r]);
            st_object_clear(&o, pages[r]);
            for (uint32_t c = 0; c < o.nchunks; c++) {
                struct vv_store_io io = st_io(&o, VV_STORE_READ, c, 1);
                T_OK(st_run(tier.reader, &io));
            }
            T_CHECK(st_object_intact(&o, pages[r]));
            st_object_fini(&o);
        }
        tear_down();
        tier.opts.page_bytes = 4096;
        st_tier_open(&tier, dir);
        files = st_files_open(&tier, "h");
        flip("h/r0.v1.g0.ckpt", 4096 + 3 * ST_PAGE);
        struct st_object o;
        st_object_init(&o, files, 1, 0, size, 4096);
        struct vv_store_io io = st_io(&o, VV_STORE_READ, 12, 1);
        T_ERR(st_run(tier.reader, &io), -EBADMSG);
        st_object_fini(&o);
        tear_down();
    }
    st_opts = saved;
}

static void short_transfers(void)
{
    struct fault_os fault;
    fault_os_init(&fault);
    fault.short_bytes = 8192;
    struct vv_store_opts saved = st_opts;
    st_opts.os = &fault.os;
    set_up();
    T_OK(st_put_version(tier.writer, files, 1, 0, 3 * ST_PAGE + 1, ST_PAGE));
    reopen();
    T_OK(st_check_version(tier.reader, files, 1, 0, 3 * ST_PAGE + 1, ST_PAGE));
    tear_down();
    st_opts = saved;
}

/* A full disk fails this object at its first write and does not affect the others. */
static void full_disk(void)
{
    struct fault_os fault;
    fault_os_init(&fault);
    struct vv_store_opts saved = st_opts;
    st_opts.os = &fault.os;
    set_up();
    T_OK(st_put_version(tier.writer, files, 1, 0, 3 * ST_PAGE, ST_PAGE));
    fault.calls = 1u << FAULT_FALLOCATE;
    fault.err = ENOSPC;
    fault.at = 1;
    fault.mode = FAULT_ONCE;
    atomic_store(&fault.count, 0);
    struct st_object o;
    st_object_init(&o, files, 2, 0, 3 * ST_PAGE, ST_PAGE);
    T_ERR(st_do(tier.writer, &o, VV_STORE_WRITE), -ENOSPC);
    T_CHECK(!exists("h/r0.v2.g0.tmp"));
    T_OK(st_do(tier.writer, &o, VV_STORE_REMOVE));
    T_OK(st_put(tier.writer, &o));
    /* Without ahead-of-time allocation, writing still works. */
    fault.err = EOPNOTSUPP;
    atomic_store(&fault.count, 0);
    st_object_fini(&o);
    T_OK(st_put_version(tier.writer, files, 3, 0, 3 * ST_PAGE, ST_PAGE));
    for (uint64_t v = 1; v <= 3; v++)
        T_OK(st_check_version(tier.reader, files, v, 0, 3 * ST_PAGE, ST_PAGE));
    tear_down();
    st_opts = saved;
}

static void cases(void)
{
    T_RUN(round_trip);
    T_RUN(any_order_and_read_back);
    T_RUN(refused_requests);
    T_RUN(removal);
    T_RUN(unfinished_writes_vanish);
    T_RUN(bounded_descriptors);
    T_RUN(grouped_commits);
    T_RUN(corruption);
    T_RUN(truncated_while_open);
    T_RUN(other_page_sizes);
    T_RUN(short_transfers);
    T_RUN(full_disk);
}

/* ---- once, in any mode ---- */

static const char *small_disk;

static void small_disk_gone(void)
{
    umount2(small_disk, MNT_DETACH);
}

/* A file system that is really full: committed data stays, and freed space is used again. */
static void really_full_disk(void)
{
    small_disk = t_tmpdir();
    if (mount("tmpfs", small_disk, "tmpfs", 0, "size=2m") != 0) {
        t_note("a full file system: not tested, mounting one is not allowed here");
        return;
    }
    atexit(small_disk_gone);
    vv_store_opts_init(&tier.opts);
    tier.opts.page_bytes = ST_PAGE;
    dir = small_disk;
    st_tier_open(&tier, dir);
    files = st_files_open(&tier, "h");
    const uint64_t size = 20 * ST_PAGE;
    struct st_object o;
    int rc = 0, n = 0;
    while (rc == 0) {
        st_object_init(&o, files, (uint64_t)n, 0, size, ST_PAGE);
        rc = st_put(tier.writer, &o);
        if (rc < 0)
            T_OK(st_do(tier.writer, &o, VV_STORE_REMOVE));
        n += rc == 0;
        st_object_fini(&o);
    }
    T_EQ(rc, -ENOSPC);
    T_CHECK(n >= 3);
    for (int i = 0; i < n; i++)
        T_OK(st_check_version(tier.reader, files, (uint64_t)i, 0, size, ST_PAGE));
    reopen();
    T_EQ(listed(), n);
    struct vv_store_io io = {.op = VV_STORE_REMOVE, .key = {files, 0, 0}};
    T_OK(st_run(tier.writer, &io));
    T_OK(st_put_version(tier.writer, files, 100, 1, size, ST_PAGE));
    T_OK(st_check_version(tier.reader, files, 100, 1, size, ST_PAGE));
    tear_down();
    /* A spill file on it. */
    struct vv_spill *spill;
    struct vv_store *store;
    T_OK(vv_spill_new(dir, 64 << 20, &tier.opts, NULL, 0, &spill));
    T_OK(vv_spill_store(spill, &store));
    uint32_t pages[20];
    for (uint32_t i = 0; i < 20; i++)
        pages[i] = 1000 + i;
    st_object_init(&o, NULL, 1, 0, size, ST_PAGE);
    io = st_io(&o, VV_STORE_WRITE, 0, 20);
    io.pages = pages;
    T_ERR(st_run(store, &io), -ENOSPC);
    store->ops->close(store);
    vv_spill_free(spill);
    st_object_fini(&o);
}

/* This object is committed, and so renamed, after a reader has composed its temporary name and before the reader opens
 * that name. */
static struct st_object *renamed;

static int late_openat(const struct vv_os *os, int dirfd, const char *path, int flags,
                       unsigned mode)
{
    struct st_object *o = renamed;
    if (o && strstr(path, ".tmp")) {
        renamed = NULL;
        T_OK(st_do(tier.writer, o, VV_STORE_COMMIT));
    }
    return vv_os_posix()->openat(os, dirfd, path, flags, mode);
}

static void renamed_while_opening(void)
{
    struct vv_os os = *vv_os_posix();
    struct st_object o;
    os.openat = late_openat;
    vv_store_opts_init(&tier.opts);
    tier.opts.os = &os;
    tier.opts.page_bytes = ST_PAGE;
    tier.opts.max_open = 1;
    dir = t_tmpdir();
    st_tier_open(&tier, dir);
    files = st_files_open(&tier, "h");
    st_object_init(&o, files, 1, 0, 3 * ST_PAGE, ST_PAGE);
    T_OK(st_do(tier.writer, &o, VV_STORE_WRITE));
    T_OK(st_put_version(tier.writer, files, 2, 0, ST_PAGE, ST_PAGE)); /* closes the first */
    renamed = &o;
    T_OK(st_check_version(tier.reader, files, 1, 0, 3 * ST_PAGE, ST_PAGE));
    T_CHECK(!renamed);
    st_object_fini(&o);
    tear_down();
}

static int no_direct_openat(const struct vv_os *os, int dirfd, const char *path, int flags,
                            unsigned mode)
{
    return flags & O_DIRECT ? -EINVAL : vv_os_posix()->openat(os, dirfd, path, flags, mode);
}

static void direct_refused(void)
{
    struct vv_os os = *vv_os_posix();
    struct vv_folder *folder;
    struct vv_spill *spill;
    char err[256] = "";
    os.openat = no_direct_openat;
    vv_store_opts_init(&tier.opts);
    tier.opts.os = &os;
    tier.opts.page_bytes = ST_PAGE;
    tier.opts.mode = VV_STORE_DIRECT;
    dir = t_tmpdir();
    T_ERR(vv_folder_new(dir, &tier.opts, err, sizeof(err), &folder), -EOPNOTSUPP);
    T_CHECK(strstr(err, "direct") && strstr(err, dir));
    T_ERR(vv_spill_new(dir, 1 << 20, &tier.opts, err, sizeof(err), &spill), -EOPNOTSUPP);
    tier.opts.mode = VV_STORE_AUTO;
    st_tier_open(&tier, dir);
    files = st_files_open(&tier, "h");
    T_OK(st_put_version(tier.writer, files, 1, 0, 3 * ST_PAGE, ST_PAGE));
    T_OK(st_check_version(tier.reader, files, 1, 0, 3 * ST_PAGE, ST_PAGE));
    tear_down();
    T_OK(vv_spill_new(dir, 1 << 20, &tier.opts, err, sizeof(err), &spill));
    vv_spill_free(spill);
}

/* ---- a slow fsync of a folder ---- */

/* An OS table that holds each fsync of a folder once it has begun, and records the order of calls. */
struct slow_sync {
    struct vv_os os; /* first */
    /* Synchronization: atomic, all of them: workers of the store count and wait. */
    atomic_int clock;             /* numbers the calls */
    atomic_int begun;             /* of the last fsync of a folder; 0: none yet */
    atomic_int renamed, unlinked; /* of the last of each */
    atomic_bool open;             /* fsyncs need not wait any more */
};

static struct slow_sync *slow_of(const struct vv_os *os)
{
    return (struct slow_sync *)(uintptr_t)os;
}

static int64_t slow_aio(const struct vv_os *os, enum vv_os_aio op, int fd, uint64_t offset,
                        size_t bytes)
{
    struct slow_sync *s = slow_of(os);
    struct stat st;
    (void)offset;
    (void)bytes;
    T_OK(fstat(fd, &st));
    if (op != VV_OS_AIO_FSYNC || !S_ISDIR(st.st_mode))
        return 0;
    atomic_store(&s->begun, atomic_fetch_add(&s->clock, 1) + 1);
    while (!atomic_load(&s->open))
        usleep(100);
    return 0;
}

static int slow_rename(const struct vv_os *os, int dirfd, const char *from, const char *to,
                       bool may_replace)
{
    int rc = vv_os_posix()->rename(os, dirfd, from, to, may_replace);
    atomic_store(&slow_of(os)->renamed, atomic_fetch_add(&slow_of(os)->clock, 1) + 1);
    return rc;
}

static int slow_unlinkat(const struct vv_os *os, int dirfd, const char *path)
{
    int rc = vv_os_posix()->unlinkat(os, dirfd, path);
    atomic_store(&slow_of(os)->unlinked, atomic_fetch_add(&slow_of(os)->clock, 1) + 1);
    return rc;
}

/* Polls until the call has been made; no request may be reported meanwhile. */
static void poll_until(atomic_int *call, int after)
{
    struct vv_store_io *done;
    while (atomic_load(call) <= after)
        T_CHECK(tier.writer->ops->poll(tier.writer, &done, 1, 1000000) <= 0);
}

/* A file that is named or deleted while the folder's fsync runs waits for another fsync: the running one
 * may have missed it. */
static void a_running_sync_is_joined_by_none(void)
{
    static struct slow_sync slow;
    struct st_object a, b;
    struct vv_store_io io[3], *done;
    slow = (struct slow_sync){.os = *vv_os_posix(), .open = true};
    slow.os.aio = slow_aio;
    slow.os.rename = slow_rename;
    slow.os.unlinkat = slow_unlinkat;
    vv_store_opts_init(&tier.opts);
    tier.opts.os = &slow.os;
    tier.opts.page_bytes = ST_PAGE;
    tier.opts.backend = VV_AIO_THREADS; /* its workers may be held */
    dir = t_tmpdir();
    st_tier_open(&tier, dir);
    files = st_files_open(&tier, "h");
    st_object_init(&a, files, 1, 0, ST_PAGE, ST_PAGE);
    st_object_init(&b, files, 2, 0, ST_PAGE, ST_PAGE);
    T_OK(st_do(tier.writer, &a, VV_STORE_WRITE));
    T_OK(st_do(tier.writer, &b, VV_STORE_WRITE));
    T_OK(st_put_version(tier.writer, files, 3, 0, ST_PAGE, ST_PAGE));
    slow.open = false;
    int start = slow.clock;
    io[0] = st_io(&a, VV_STORE_COMMIT, 0, 0);
    T_OK(tier.writer->ops->submit(tier.writer, &io[0]));
    poll_until(&slow.begun, start);
    io[1] = st_io(&b, VV_STORE_COMMIT, 0, 0);
    T_OK(tier.writer->ops->submit(tier.writer, &io[1]));
    poll_until(&slow.renamed, slow.begun);
    io[2] = (struct vv_store_io){.op = VV_STORE_REMOVE, .key = {files, 3, 0}};
    T_OK(tier.writer->ops->submit(tier.writer, &io[2]));
    poll_until(&slow.unlinked, slow.begun);
    slow.open = true;
    for (int left = 3; left > 0; left--) {
        int n;
        while ((n = tier.writer->ops->poll(tier.writer, &done, 1, -1)) == 0)
            ;
        T_EQ(n, 1);
        T_OK(done->status);
        T_CHECK(done != &io[1] || slow.begun > slow.renamed);
        T_CHECK(done != &io[2] || slow.begun > slow.unlinked);
    }
    st_object_fini(&a);
    st_object_fini(&b);
    tear_down();
}

int main(void)
{
    st_each_mode(cases);
    T_RUN(really_full_disk);
    T_RUN(direct_refused);
    T_RUN(renamed_while_opening);
    T_RUN(a_running_sync_is_joined_by_none);
    return t_done();
}
