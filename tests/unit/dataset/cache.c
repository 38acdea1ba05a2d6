/* SPDX-License-Identifier: Apache-2.0 */
/* The dataset cache of one node: whole files only, never more than its capacity, and open files are not
 * removed. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "unit/dataset/ds.h"

#define BIG (UINT64_C(1) << 30)

static void round_trip(void)
{
    struct vv_dataset *d = ds_open(t_tmpdir(), BIG, NULL);
    struct vv_dataset_gen old = ds_gen(0, 100001), other = ds_gen(1, 100001), got;
    int fd;

    T_ERR(ds_check(d, "/data/a"), -ENOENT);
    T_OK(ds_put(d, "/data/a", 0, 100001));
    T_OK(ds_put(d, "/data/empty", 0, 0));
    T_OK(ds_check(d, "/data/a"));
    T_OK(ds_check(d, "/data/empty"));
    T_ERR(ds_put(d, "/data/a", 0, 100001), -EEXIST);
    T_ERR(vv_dataset_get(d, "/data/a", &other, &fd, &got), -ESTALE);
    T_OK(vv_dataset_get(d, "/data/a", &old, &fd, &got));
    T_CHECK(got.mtime_ns == old.mtime_ns && got.size == old.size);
    close(fd);
    T_EQ(ds_stats(d).files, 2);
    T_EQ(ds_stats(d).used, 100001 / 4096 * 4096 + 4096);
    T_EQ(ds_stats(d).hits, 3);
    T_EQ(ds_stats(d).misses, 2);
    T_OK(vv_dataset_drop(d, "/data/a"));
    T_ERR(vv_dataset_drop(d, "/data/a"), -ENOENT);
    T_ERR(ds_check(d, "/data/a"), -ENOENT);
    T_EQ(ds_stats(d).used, 0);
    vv_dataset_close(d);
    vv_dataset_close(NULL);
}

/* Only a whole file with the right checksum is stored, and one fill of it at a time. */
static void half_files(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d = ds_open(folder, BIG, NULL);
    struct vv_dataset_want want = {"/data/a", ds_gen(0, 10), VV_DATASET_UNKNOWN, false, false};
    struct vv_dataset_fill *f, *g;
    uint64_t sum = vv_hash64("0123456789", 10);
    unsigned files;

    T_OK(vv_dataset_begin(d, &want, &f));
    T_ERR(vv_dataset_begin(d, &want, &g), -EALREADY);
    T_ERR(ds_check(d, "/data/a"), -ENOENT);
    T_OK(vv_dataset_write(f, "01234", 5));
    T_ERR(vv_dataset_write(f, "567890", 6), -EFBIG);
    T_ERR(vv_dataset_commit(f, NULL), -ENODATA);
    T_OK(vv_dataset_begin(d, &want, &f));
    T_OK(vv_dataset_write(f, "0123456780", 10));
    T_ERR(vv_dataset_commit(f, &sum), -EBADMSG);
    T_OK(vv_dataset_begin(d, &want, &f));
    vv_dataset_abort(f);
    vv_dataset_abort(NULL);
    T_EQ(ds_on_disk(folder, &files), 0);
    T_EQ(files, 0);
    T_EQ(ds_stats(d).used, 0);
    T_OK(vv_dataset_begin(d, &want, &f));
    T_OK(vv_dataset_write(f, "0123456789", 10));
    T_OK(vv_dataset_commit(f, &sum));
    T_EQ(ds_stats(d).files, 1);

    want.path = "";
    T_ERR(vv_dataset_begin(d, &want, &f), -EINVAL);
    vv_dataset_close(d);
}

static void too_large(void)
{
    struct vv_dataset_opts opts = {.capacity = 100 * DS_KIB, .max_file = 50 * DS_KIB};
    struct vv_dataset *d;
    char err[100], path[VV_DATASET_PATH_MAX + 2];

    T_OK(vv_dataset_open(t_tmpdir(), &opts, err, sizeof(err), &d));
    T_ERR(ds_put(d, "/a", 0, 50 * DS_KIB + 1), -EFBIG);
    T_OK(ds_put(d, "/a", 0, 50 * DS_KIB));
    memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    T_ERR(ds_put(d, path, 0, 5), -ENAMETOOLONG);
    path[sizeof(path) - 2] = '\0';
    T_OK(ds_put(d, path, 0, 5));
    T_OK(ds_check(d, path));
    vv_dataset_close(d);
    opts.max_file = 0;
    T_OK(vv_dataset_open(t_tmpdir(), &opts, err, sizeof(err), &d));
    T_ERR(ds_put(d, "/a", 0, 101 * DS_KIB), -EFBIG);
    T_ERR(ds_put(d, "/a", 0, UINT64_MAX), -EFBIG);
    T_OK(ds_put(d, "/a", 0, 100 * DS_KIB));
    vv_dataset_close(d);
    opts.capacity = 4095;
    T_ERR(vv_dataset_open(t_tmpdir(), &opts, err, sizeof(err), &d), -EINVAL);
    opts = (struct vv_dataset_opts){.capacity = BIG, .high_pct = 50, .low_pct = 60};
    T_ERR(vv_dataset_open(t_tmpdir(), &opts, err, sizeof(err), &d), -EINVAL);
}

static bool is_there(struct vv_dataset *d, const char *path)
{
    int rc = ds_check(d, path);

    T_CHECK(rc == 0 || rc == -ENOENT);
    return rc == 0;
}

/* Ten files of 10% each: the least recently used are evicted, down to the low watermark. */
static void least_recently_used(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d = ds_open(folder, 1000 * DS_KIB, NULL);
    char path[16];

    for (unsigned i = 0; i < 9; i++) {
        snprintf(path, sizeof(path), "/%u", i);
        T_OK(ds_put(d, path, 0, 100 * DS_KIB));
    }
    T_EQ(ds_stats(d).evicted, 0);
    T_OK(ds_check(d, "/0"));
    T_OK(ds_check(d, "/2"));
    /* 900 + 100 > 950: down to 900 including the new file, so one is evicted. */
    T_OK(ds_put(d, "/9", 0, 100 * DS_KIB));
    T_EQ(ds_stats(d).evicted, 1);
    T_OK(ds_put(d, "/10", 0, 200 * DS_KIB));
    T_EQ(ds_stats(d).evicted, 3);
    T_CHECK(!is_there(d, "/1") && !is_there(d, "/3") && !is_there(d, "/4"));
    T_CHECK(is_there(d, "/0") && is_there(d, "/2") && is_there(d, "/5") && is_there(d, "/10"));
    T_CHECK(ds_on_disk(folder, NULL) == ds_stats(d).used);
    vv_dataset_close(d);
}

/* A known order: files of unknown use are evicted first, then the ones that are wanted last. */
static void next_use(void)
{
    struct vv_dataset *d = ds_open(t_tmpdir(), 1000 * DS_KIB, NULL);
    struct vv_dataset_want want = {.gen = ds_gen(0, 100 * DS_KIB)};
    char path[16];

    for (unsigned i = 0; i < 9; i++) {
        snprintf(path, sizeof(path), "/%u", i);
        want.path = path;
        want.next_use = i == 4 ? VV_DATASET_UNKNOWN : 100 - i;
        T_OK(ds_put_want(d, &want));
    }
    /* No request waits for it, and it is wanted after all others: only the file of unknown use is evicted. */
    want.path = "/late";
    want.next_use = 1000;
    want.ahead = true;
    T_OK(ds_put_want(d, &want));
    T_CHECK(!is_there(d, "/4") && is_there(d, "/late"));
    want.path = "/later";
    want.next_use = 1001;
    T_ERR(ds_put_want(d, &want), -ENOSPC);
    /* It is wanted earlier: the file that is wanted last is evicted. */
    want.path = "/soon";
    want.next_use = 50;
    T_OK(ds_put_want(d, &want));
    T_CHECK(!is_there(d, "/late"));
    /* A request waits for it: any file may be evicted. */
    want.path = "/now";
    want.next_use = 1002;
    want.ahead = false;
    T_OK(ds_put_want(d, &want));
    T_CHECK(!is_there(d, "/0") && is_there(d, "/soon"));
    /* The order has come to 96: uses before it have passed. 92 to 95 are of unknown use now, and were
     * used before the others; but /8 is expected again. */
    T_OK(vv_dataset_expect(d, "/8", 97));
    T_ERR(vv_dataset_expect(d, "/none", 97), -ENOENT);
    vv_dataset_advance(d, 96);
    want.path = "/more";
    T_OK(ds_put_want(d, &want));
    T_CHECK(!is_there(d, "/5") && is_there(d, "/8") && is_there(d, "/1") && is_there(d, "/6"));
    vv_dataset_close(d);
}

static uint64_t expected_again(void *user, const char *path)
{
    (void)user;
    return strcmp(path, "/again") == 0 ? 150 : VV_DATASET_UNKNOWN;
}

/* A file whose place has passed may be wanted again. */
static void passed_over(void)
{
    struct vv_dataset_opts opts = {.capacity = 400 * DS_KIB, .passed = expected_again};
    struct vv_dataset_want want = {.gen = ds_gen(0, 100 * DS_KIB)};
    static const struct {
        const char *path;
        uint64_t next_use;
    } files[] = {{"/again", 50}, {"/over", 60}, {"/far", 200}};
    struct vv_dataset *d;
    char err[200];

    T_OK(vv_dataset_open(t_tmpdir(), &opts, err, sizeof(err), &d));
    for (unsigned i = 0; i < VV_ARRAY_SIZE(files); i++) {
        want.path = files[i].path;
        want.next_use = files[i].next_use;
        T_OK(ds_put_want(d, &want));
    }
    vv_dataset_advance(d, 100);
    want.ahead = true;
    want.path = "/one";
    want.next_use = 120;
    T_OK(ds_put_want(d, &want));
    T_CHECK(is_there(d, "/again") && !is_there(d, "/over") && is_there(d, "/far"));
    want.path = "/two";
    T_OK(ds_put_want(d, &want));
    T_CHECK(is_there(d, "/again") && !is_there(d, "/far"));
    want.path = "/three";
    T_OK(ds_put_want(d, &want));
    T_CHECK(!is_there(d, "/again") && is_there(d, "/one") && is_there(d, "/two"));
    vv_dataset_close(d);
}

/* A descriptor keeps its file, in this process and in others; all files together stay within the capacity. */
static void in_use(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d = ds_open(folder, 400 * DS_KIB, NULL);
    struct vv_dataset_gen gen = ds_gen(0, 100 * DS_KIB);
    int fd, copy, pipes[2], status;
    pid_t child;

    T_OK(ds_put(d, "/a", 0, 100 * DS_KIB));
    T_OK(ds_put(d, "/b", 0, 100 * DS_KIB));
    T_OK(ds_put(d, "/c", 0, 100 * DS_KIB));
    T_OK(vv_dataset_get(d, "/a", NULL, &fd, NULL));
    copy = dup(fd);
    close(fd);
    T_OK(ds_check(d, "/b"));
    T_OK(ds_check(d, "/c"));
    T_OK(ds_put(d, "/d", 0, 200 * DS_KIB)); /* /a is the least recently used, and open */
    T_CHECK(is_there(d, "/a") && !is_there(d, "/b") && !is_there(d, "/c"));
    T_CHECK(ds_stats(d).refused_busy > 0);
    T_ERR(ds_put(d, "/e", 0, 301 * DS_KIB), -ENOSPC);
    T_CHECK(ds_is(copy, "/a", &gen));

    /* A child has it open after this process has closed it. */
    T_EQ(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        char c;

        close(pipes[1]);
        _exit(read(pipes[0], &c, 1) == 0 && ds_is(copy, "/a", &gen) ? 0 : 1);
    }
    close(pipes[0]);
    close(copy);
    T_OK(vv_dataset_drop(d, "/a"));
    T_ERR(ds_check(d, "/a"), -ENOENT);
    T_EQ(ds_stats(d).waiting, 1);
    T_ERR(ds_put(d, "/e", 0, 301 * DS_KIB), -ENOSPC); /* open files count */
    T_CHECK(ds_on_disk(folder, NULL) == ds_stats(d).used);
    close(pipes[1]);
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    T_OK(ds_put(d, "/e", 0, 301 * DS_KIB));
    T_EQ(ds_stats(d).waiting, 0);
    vv_dataset_close(d);
}

/* A new generation: readers of the old one keep it, whole; later ones get the new one. */
static void generations(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d = ds_open(folder, BIG, NULL);
    struct vv_dataset_gen old = ds_gen(1, 5000), got;
    struct vv_dataset_want want = {"/a", ds_gen(2, 9000), VV_DATASET_UNKNOWN, false, false};
    struct vv_dataset_fill *f;
    int fd, later;

    T_OK(ds_put(d, "/a", 1, 5000));
    T_OK(vv_dataset_begin(d, &want, &f)); /* the old one is there until the commit */
    T_OK(vv_dataset_get(d, "/a", &old, &fd, NULL));
    vv_dataset_abort(f);
    T_OK(ds_put(d, "/a", 2, 9000));
    T_OK(vv_dataset_get(d, "/a", NULL, &later, &got));
    T_CHECK(got.size == 9000 && ds_is(later, "/a", &got) && ds_is(fd, "/a", &old));
    T_EQ(ds_stats(d).waiting, 1);
    T_EQ(ds_stats(d).files, 1);
    close(later);
    /* The old one does not come back after a restart either. */
    vv_dataset_close(d);
    d = ds_open(folder, BIG, NULL);
    T_OK(vv_dataset_get(d, "/a", NULL, &later, &got));
    T_EQ(got.size, 9000);
    close(later);
    T_EQ(ds_stats(d).files, 1);
    T_CHECK(ds_is(fd, "/a", &old));
    close(fd);
    vv_dataset_close(d);
}

/* A system that runs other code between two calls, and can fail to unlink. */
struct hooked {
    struct vv_os os; /* first: the functions get a pointer to it */
    struct vv_dataset *d;
    bool evict, keep;
};

static int hooked_openat(const struct vv_os *os, int dirfd, const char *path, int flags,
                         unsigned mode)
{
    struct hooked *h = (struct hooked *)(uintptr_t)os;

    if (h->evict && (flags & O_ACCMODE) == O_RDONLY) {
        h->evict = false;
        T_OK(ds_put(h->d, "/b", 0, 50 * DS_KIB));
    }
    return vv_os_posix()->openat(os, dirfd, path, flags, mode);
}

static int hooked_unlinkat(const struct vv_os *os, int dirfd, const char *path)
{
    const struct hooked *h = (const struct hooked *)os;

    return h->keep ? -EIO : vv_os_posix()->unlinkat(os, dirfd, path);
}

/* Room is made while a thread has found a file and not opened it yet: another file is evicted. */
static void found_is_not_evicted(void)
{
    struct hooked h = {.os = *vv_os_posix()};

    h.os.openat = hooked_openat;
    h.d = ds_open(t_tmpdir(), 100 * DS_KIB, &h.os);
    T_OK(ds_put(h.d, "/a", 0, 40 * DS_KIB));
    T_OK(ds_put(h.d, "/other", 0, 40 * DS_KIB));
    T_OK(vv_dataset_expect(h.d, "/other", 1)); /* otherwise it would be evicted first */
    h.evict = true;
    T_OK(ds_check(h.d, "/a"));
    T_CHECK(is_there(h.d, "/b") && !is_there(h.d, "/other"));
    vv_dataset_close(h.d);
}

/* A file that could not be removed counts as long as it is there. */
static void what_stays_counts(void)
{
    const char *folder = t_tmpdir();
    struct hooked h = {.os = *vv_os_posix()};
    struct vv_dataset_want want = {"/a", ds_gen(0, 60 * DS_KIB), VV_DATASET_UNKNOWN, false, false};
    struct vv_dataset_fill *f;

    h.os.unlinkat = hooked_unlinkat;
    h.d = ds_open(folder, 100 * DS_KIB, &h.os);
    T_OK(vv_dataset_begin(h.d, &want, &f));
    h.keep = true;
    vv_dataset_abort(f);
    T_EQ(ds_stats(h.d).used, 60 * DS_KIB);
    T_ERR(ds_put(h.d, "/a", 0, 60 * DS_KIB), -ENOSPC);
    T_OK(ds_put(h.d, "/a", 0, 40 * DS_KIB));
    T_ERR(ds_put(h.d, "/b", 0, 40 * DS_KIB), -ENOSPC); /* /a cannot go */
    T_OK(ds_check(h.d, "/a"));
    T_OK(vv_dataset_drop(h.d, "/a"));
    T_ERR(ds_check(h.d, "/a"), -ENOENT);
    T_EQ(ds_stats(h.d).waiting, 1);
    h.keep = false;
    T_OK(ds_put(h.d, "/b", 0, 40 * DS_KIB));
    vv_dataset_close(h.d);
    h.d = ds_open(folder, 100 * DS_KIB, &h.os);
    T_EQ(ds_on_disk(folder, NULL), 40 * DS_KIB);
    T_EQ(ds_stats(h.d).used, 40 * DS_KIB);
    T_OK(ds_check(h.d, "/b"));
    vv_dataset_close(h.d);
}

static int count_files(void *user, const struct vv_dataset_entry *e)
{
    unsigned *n = user;

    T_CHECK(e->path[0] == '/' && e->gen.inode == 7);
    (*n)++;
    return *n == 3 ? 77 : 0;
}

static void listing(void)
{
    struct vv_dataset *d = ds_open(t_tmpdir(), BIG, NULL);
    unsigned n = 0;

    T_OK(vv_dataset_list(d, count_files, &n));
    T_EQ(n, 0);
    for (unsigned i = 0; i < 500; i++) {
        char path[16];

        snprintf(path, sizeof(path), "/%u", i);
        T_OK(ds_put(d, path, i, i));
    }
    T_EQ(vv_dataset_list(d, count_files, &n), 77);
    T_EQ(n, 3);
    T_OK(vv_dataset_list(d, count_files, &n)); /* counts on from 3 */
    T_EQ(n, 503);
    vv_dataset_close(d);
}

struct visit {
    struct vv_dataset *d;
    unsigned seen, put;
};

static int put_another(void *user, const struct vv_dataset_entry *e)
{
    struct visit *v = user;
    char path[16];

    T_CHECK(e->path[0] == '/' && e->gen.size == 10 * DS_KIB); /* evicted or not */
    snprintf(path, sizeof(path), "/new%u", v->put++);
    T_OK(ds_put(v->d, path, 1, 10 * DS_KIB));
    v->seen++;
    return 0;
}

/* During a long listing there is still room for new files. */
static void listing_keeps_nothing(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d = ds_open(folder, 100 * DS_KIB, NULL);
    struct visit v = {.d = d};
    unsigned had;

    for (unsigned i = 0; i < 12; i++) {
        char path[16];

        snprintf(path, sizeof(path), "/%u", i);
        T_OK(ds_put(d, path, 1, 10 * DS_KIB));
    }
    had = (unsigned)ds_stats(d).files;
    T_OK(vv_dataset_list(d, put_another, &v));
    T_EQ(v.seen, had);
    T_CHECK(ds_on_disk(folder, NULL) <= 100 * DS_KIB);
    T_EQ(ds_on_disk(folder, NULL), ds_stats(d).used);
    vv_dataset_close(d);
}

int main(void)
{
    T_RUN(round_trip);
    T_RUN(half_files);
    T_RUN(too_large);
    T_RUN(least_recently_used);
    T_RUN(next_use);
    T_RUN(passed_over);
    T_RUN(in_use);
    T_RUN(generations);
    T_RUN(found_is_not_evicted);
    T_RUN(what_stays_counts);
    T_RUN(listing);
    T_RUN(listing_keeps_nothing);
    return t_done();
}
