/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that servers open for themselves. A server that reads a file in small pieces opens it again: the file
 * that was registered, wherever its path leads by then; but not if the system refuses, nor above a share of the
 * process's limit. None is used, or left, when the file is gone.
 */
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#include "unit/gpufile/gf.h"

enum { PAGE = 4 * KIB, PAGES = 128, READS = 20, SERVERS = 2, DESCRIPTORS = 1024 };

static const char again[] = "/proc/thread-self/fd/";

static struct {
    _Atomic unsigned opened, closed, own_reads;
    _Atomic bool own[DESCRIPTORS];
    bool refuse;
} seen;

static int see_openat(const struct vv_os *os, int dirfd, const char *path, int flags, unsigned mode)
{
    bool own = strncmp(path, again, strlen(again)) == 0;
    int fd = own && seen.refuse ? -EMFILE
                                : vv_os_posix()->openat(vv_os_posix(), dirfd, path, flags, mode);

    (void)os;
    if (own && fd >= 0) {
        T_CHECK(fd < DESCRIPTORS);
        atomic_store(&seen.own[fd], true);
        atomic_fetch_add(&seen.opened, 1);
    }
    return fd;
}

static int see_close(const struct vv_os *os, int fd)
{
    (void)os;
    if (atomic_exchange(&seen.own[fd], false))
        atomic_fetch_add(&seen.closed, 1);
    return vv_os_posix()->close(vv_os_posix(), fd);
}

static int64_t see_pread(const struct vv_os *os, int fd, void *buf, size_t bytes, uint64_t offset)
{
    if (atomic_load(&seen.own[fd]))
        atomic_fetch_add(&seen.own_reads, 1);
    return gf_pread(os, fd, buf, bytes, offset);
}

/* A file system whose groups get every page from servers, one at a time. */
static void open_seen(unsigned delay)
{
    struct varve_gpufs_opts o = gf_opts();

    o.servers = SERVERS;
    o.readahead = VARVE_GREADAHEAD_OFF;
    gf_bad_os(delay, 50, 0);
    gf_os.os.openat = see_openat;
    gf_os.os.close = see_close;
    gf_os.os.pread = see_pread;
    seen.opened = seen.closed = seen.own_reads = 0;
    gf_open(&o);
}

struct job {
    uint32_t id;
    unsigned reads;
    uint64_t seed;
    _Atomic unsigned right, wrong, gone;
};

static void read_pages(void *arg)
{
    struct job *j = arg;
    struct t_rng r = {j->seed + varve_d_block()};
    static unsigned char buffers[8][PAGE];
    unsigned char *p = buffers[varve_d_block()];
    struct varve_gfile f;
    int rc = varve_gopen(&gf_handle, j->id, VARVE_GBLOCK, &f);

    if (rc) {
        j->gone++;
        return;
    }
    (void)varve_gadvise(&f, VARVE_GADV_NOREUSE, 0, 0);
    for (unsigned i = 0; i < j->reads; i++) {
        uint64_t page = t_rng_below(&r, PAGES);
        int64_t n = varve_gread(&f, page * PAGE, p, PAGE);

        if (f.rank == 0 && n == -EBADF)
            j->gone++;
        else if (f.rank == 0 && n == PAGE && gf_right(p, page * PAGE, PAGE))
            j->right++;
        else if (f.rank == 0)
            j->wrong++;
        varve_d_sync_block();
    }
    (void)varve_gclose(&f);
}

/* Two groups. One of the servers carries out at least half of the requests. */
static void run_job(struct job *j, unsigned reads)
{
    j->reads = reads;
    j->seed = t_seed();
    gf_launch(2, 2, 2, read_pages, j);
    T_EQ(j->wrong, 0);
}

static void add(struct job *j, const char *path)
{
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &j->id));
}

static void the_file_that_was_registered(void)
{
    const char *path = gf_file("own", PAGES * PAGE);
    struct job j = {0};
    int fd;

    open_seen(0);
    add(&j, path);
    T_EQ(unlink(path), 0);
    fd = open(path, O_CREAT | O_RDWR, 0600);
    T_CHECK(fd >= 0);
    T_EQ(ftruncate(fd, PAGES * PAGE), 0);
    T_EQ(close(fd), 0);
    run_job(&j, READS);
    T_EQ(j.right, 2 * READS);
    T_CHECK(seen.opened >= 1 && seen.opened <= SERVERS);
    T_CHECK(seen.own_reads > 0);
    T_OK(varve_gpufs_unregister(gf_fs, j.id));
    T_EQ(seen.closed, seen.opened);
    T_OK(gf_close());
    T_EQ(seen.closed, seen.opened);
}

static void where_the_system_refuses(void)
{
    struct job j = {0};

    seen.refuse = true;
    open_seen(0);
    add(&j, gf_file("refused", PAGES * PAGE));
    run_job(&j, READS);
    T_EQ(j.right, 2 * READS);
    T_EQ(seen.opened, 0);
    T_OK(gf_close());
    seen.refuse = false;
}

/* A single server shares files with no other. */
static void one_server(void)
{
    struct job j = {0};

    open_seen(0);
    T_OK(varve_gpufs_stop(gf_fs));
    T_OK(varve_gpufs_start(gf_fs, 1));
    add(&j, gf_file("alone", PAGES * PAGE));
    run_job(&j, READS);
    T_EQ(j.right, 2 * READS);
    T_EQ(seen.opened, 0);
    T_OK(gf_close());
}

static void not_beyond_a_part_of_what_there_is(void)
{
    enum { FILES = 8, MOST = 6 };
    struct rlimit limit, small;
    struct job j[FILES] = {0};
    char name[16];

    T_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    small.rlim_cur = 4 * MOST;
    T_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
    open_seen(0);
    T_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "limit%d", i);
        add(&j[i], gf_file(name, PAGES * PAGE));
        run_job(&j[i], READS);
        T_EQ(j[i].right, 2 * READS);
    }
    T_EQ(seen.opened, MOST);
    /* A closed descriptor can be opened again. */
    for (int i = 0; i < FILES; i++)
        T_OK(varve_gpufs_unregister(gf_fs, j[i].id));
    T_EQ(seen.closed, MOST);
    add(&j[0], gf_file("limit0", PAGES * PAGE));
    run_job(&j[0], READS);
    T_EQ(j[0].right, 4 * READS);
    T_CHECK(seen.opened > MOST);
    T_OK(gf_close());
    T_EQ(seen.closed, seen.opened);
}

static void *run_reads(void *arg)
{
    gf_launch(2, 2, 2, read_pages, arg);
    return NULL;
}

/* A kernel keeps reading a file that is unregistered: it gets the file's bytes, or an error; never the bytes of another
 * file that got its descriptor numbers. */
static void gone_while_it_is_read(void)
{
    const char *path = gf_file("gone", PAGES * PAGE), *other = gf_file("other", 0);
    int others[2 * SERVERS + 2];
    pthread_t t;

    T_EQ(truncate(other, PAGES * PAGE), 0);
    open_seen(1000); /* reads begin slowly, so that descriptor numbers are reused meanwhile */
    for (int round = 0; round < 8; round++) {
        struct job j = {.reads = 2 * READS, .seed = t_seed() + (unsigned)round};

        add(&j, path);
        T_OK(-pthread_create(&t, NULL, run_reads, &j));
        while (j.right < (unsigned)round * 4 && j.gone + j.wrong == 0)
            usleep(50);
        T_OK(varve_gpufs_unregister(gf_fs, j.id));
        for (size_t i = 0; i < VV_ARRAY_SIZE(others); i++)
            others[i] = open(other, O_RDONLY);
        T_OK(-pthread_join(t, NULL));
        T_EQ(j.wrong, 0);
        for (size_t i = 0; i < VV_ARRAY_SIZE(others); i++)
            T_EQ(close(others[i]), 0);
        T_EQ(seen.closed, seen.opened);
    }
    T_OK(gf_close());
}

int main(void)
{
    T_RUN(the_file_that_was_registered);
    T_RUN(where_the_system_refuses);
    T_RUN(one_server);
    T_RUN(not_beyond_a_part_of_what_there_is);
    T_RUN(gone_while_it_is_read);
    return t_done();
}
