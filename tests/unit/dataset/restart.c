/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a dataset cache uses from an earlier run, and their checks; and the scrub. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/dataset/ds.h"

#define BIG   (UINT64_C(1) << 30)
#define FILES 20u

/* File i has i + 1 KiB, so that the size identifies its content file. */
static const char *path_of(unsigned i)
{
    static char path[2][32];
    static unsigned turn;

    turn ^= 1;
    snprintf(path[turn], sizeof(path[turn]), "/data/file-%u", i);
    return path[turn];
}

static void fill_folder(const char *folder)
{
    struct vv_dataset *d = ds_open(folder, BIG, NULL);

    for (unsigned i = 0; i < FILES; i++)
        T_OK(ds_put(d, path_of(i), i, (i + 1) * DS_KIB));
    vv_dataset_close(d);
}

static const char *in(const char *folder, const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static unsigned good_ones(struct vv_dataset *d)
{
    unsigned n = 0;

    for (unsigned i = 0; i < FILES; i++) {
        int rc = ds_check(d, path_of(i));

        T_CHECK(rc == 0 || rc == -ENOENT);
        n += rc == 0;
    }
    return n;
}

/* Checks that the folder has exactly the files of the cache. */
static void consistent(struct vv_dataset *d, const char *folder)
{
    unsigned files;
    uint64_t bytes = ds_on_disk(folder, &files);

    T_EQ(files, ds_stats(d).files + ds_stats(d).waiting);
    T_EQ(bytes, ds_stats(d).used);
}

static void everything_is_there(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d;
    struct vv_dataset_gen gen = ds_gen(3, 4 * DS_KIB);
    int fd;

    fill_folder(folder);
    for (int life = 0; life < 3; life++) {
        d = ds_open(folder, BIG, NULL);
        T_EQ(ds_stats(d).files, FILES);
        T_EQ(good_ones(d), FILES);
        T_OK(vv_dataset_get(d, path_of(3), &gen, &fd, NULL));
        close(fd);
        consistent(d, folder);
        T_ERR(ds_put(d, path_of(5), 5, 6 * DS_KIB), -EEXIST);
        vv_dataset_close(d);
    }
    /* Files removed in one run are not there in the next; numbers of files are not used again. */
    d = ds_open(folder, BIG, NULL);
    T_OK(vv_dataset_drop(d, path_of(5)));
    T_OK(ds_put(d, path_of(6), 99, 100));
    vv_dataset_close(d);
    d = ds_open(folder, BIG, NULL);
    T_EQ(good_ones(d), FILES - 1);
    consistent(d, folder);
    vv_dataset_close(d);
}

static void one_at_a_time(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d = ds_open(folder, BIG, NULL), *other = NULL;
    struct vv_dataset_opts opts = {.capacity = BIG};
    char err[256];

    T_ERR(vv_dataset_open(folder, &opts, err, sizeof(err), &other), -EBUSY);
    T_CHECK(strstr(err, folder) && !other);
    vv_dataset_close(d);
    d = ds_open(folder, BIG, NULL);
    vv_dataset_close(d);
    T_ERR(vv_dataset_open(in(folder, "no/such"), &opts, err, sizeof(err), &other), -ENOENT);
}

/* While the cache is closed: a bit flipped, a byte missing, a byte too many, the file gone. It is never handed out, and
 * can be fetched again. */
static void damage_while_down(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d;

    fill_folder(folder);
    ds_flip(ds_file_of(folder, 1 * DS_KIB), 500);
    ds_flip(ds_file_of(folder, 2 * DS_KIB), -1);
    T_EQ(truncate(ds_file_of(folder, 3 * DS_KIB), 3 * DS_KIB - 1), 0);
    T_EQ(truncate(ds_file_of(folder, 4 * DS_KIB), 4 * DS_KIB + 1), 0);
    T_EQ(unlink(ds_file_of(folder, 5 * DS_KIB)), 0);
    d = ds_open(folder, BIG, NULL);
    for (unsigned i = 0; i < 5; i++) {
        T_ERR(ds_check(d, path_of(i)), i == 4 ? -ENOENT : -EBADMSG);
        T_ERR(ds_check(d, path_of(i)), -ENOENT);
        T_OK(ds_put(d, path_of(i), 40 + i, (i + 1) * DS_KIB));
        T_OK(ds_check(d, path_of(i)));
    }
    T_EQ(ds_stats(d).damaged, 4);
    T_EQ(good_ones(d), FILES);
    consistent(d, folder);
    vv_dataset_close(d);
    d = ds_open(folder, BIG, NULL);
    T_EQ(good_ones(d), FILES);
    T_EQ(ds_stats(d).damaged, 0);
    vv_dataset_close(d);
}

/* While the cache runs: the scrub finds it within one round. */
static void scrub(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d;
    bool around = false;
    unsigned calls = 0;
    int found = 0;

    fill_folder(folder);
    d = ds_open(folder, BIG, NULL);
    T_EQ(good_ones(d), FILES);
    T_EQ(vv_dataset_scrub(d, BIG, &around), 0);
    T_CHECK(around);
    ds_flip(ds_file_of(folder, 7 * DS_KIB), 100);
    ds_flip(ds_file_of(folder, 17 * DS_KIB), 0);
    T_EQ(unlink(ds_file_of(folder, 18 * DS_KIB)), 0);
    for (around = false; !around; calls++) {
        int rc = vv_dataset_scrub(d, 20 * DS_KIB, &around);

        T_CHECK(rc >= 0);
        found += rc;
    }
    T_EQ(found, 3);
    T_CHECK(calls > 5 && calls < 20); /* 210 KiB, 20 to 40 at a time */
    T_EQ(good_ones(d), FILES - 3);
    /* A get finds a truncated file. */
    T_EQ(truncate(ds_file_of(folder, 12 * DS_KIB), 5), 0);
    T_ERR(ds_check(d, path_of(11)), -EBADMSG);
    consistent(d, folder);
    vv_dataset_close(d);
}

static int no_more; /* number of files that can be opened; negative: any */

static int scarce_openat(const struct vv_os *os, int dirfd, const char *path, int flags,
                         unsigned mode)
{
    if (no_more == 0)
        return -EMFILE;
    no_more -= no_more > 0;
    return vv_os_posix()->openat(os, dirfd, path, flags, mode);
}

/* A file that could not be opened for lack of descriptors is read in the same round, not in the next. */
static void scrub_without_descriptors(void)
{
    const char *folder = t_tmpdir();
    struct vv_os os = *vv_os_posix();
    struct vv_dataset *d;
    bool around = false;
    int found = 0;

    os.openat = scarce_openat;
    no_more = -1;
    fill_folder(folder);
    d = ds_open(folder, BIG, &os);
    T_EQ(vv_dataset_scrub(d, BIG, &around), 0);
    T_CHECK(around);
    for (unsigned i = 0; i < FILES; i++)
        ds_flip(ds_file_of(folder, (i + 1) * DS_KIB), 9);
    no_more = 0;
    T_ERR(vv_dataset_scrub(d, BIG, &around), -EMFILE);
    T_ERR(vv_dataset_scrub(d, BIG, &around), -EMFILE);
    no_more = -1;
    for (around = false; !around;)
        found += vv_dataset_scrub(d, DS_KIB, &around);
    T_EQ(found, FILES);
    vv_dataset_close(d);
}

/* Files come and go during the scrub: it still reads all others. */
static void scrub_misses_none(void)
{
    const char *folder = t_tmpdir();
    struct t_rng r = {t_seed()};

    for (uint64_t round = 0; round < t_cases(30, 300); round++) {
        struct vv_dataset *d = ds_open(folder, BIG, NULL);
        unsigned bad = (unsigned)t_rng_below(&r, FILES);
        bool around = false;
        int found = 0;

        for (unsigned i = 0; i < FILES; i++)
            (void)ds_put(d, path_of(i), 0, (i + 1) * DS_KIB); /* those that are missing */
        while (!around) /* from here on each round is a full one */
            T_EQ(vv_dataset_scrub(d, BIG, &around), 0);
        ds_flip(ds_file_of(folder, (bad + 1) * DS_KIB), 9);
        for (around = false; !around;) {
            unsigned other = (unsigned)t_rng_below(&r, FILES);

            if (other != bad && t_rng_below(&r, 2)) {
                (void)vv_dataset_drop(d, path_of(other));
                if (t_rng_below(&r, 2))
                    T_OK(ds_put(d, path_of(other), 0, (other + 1) * DS_KIB));
            }
            found += vv_dataset_scrub(d, 1, &around);
        }
        T_EQ(found, 1);
        vv_dataset_close(d);
    }
}

/* Opening removes content files without a record, and no other files. */
static void leftovers(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d;
    static const char *const names[] = {"2f000000000000ff.data", "2f00000000000100.tmp", "readme",
                                        "2f000000000000FF.data", "ff.data"};

    fill_folder(folder);
    for (size_t i = 0; i < VV_ARRAY_SIZE(names); i++)
        close(open(in(folder, names[i]), O_CREAT | O_WRONLY, 0600));
    d = ds_open(folder, BIG, NULL);
    for (size_t i = 0; i < VV_ARRAY_SIZE(names); i++)
        T_EQ(access(in(folder, names[i]), F_OK) == 0, i >= 2);
    T_EQ(good_ones(d), FILES);
    T_OK(ds_put(d, "/new", 0, 30 * DS_KIB));
    T_EQ(access(in(folder, "2f00000000000101.data"), F_OK), 0);
    vv_dataset_close(d);
}

/* After a folder was emptied, no name of its files is used again: a client may be about to open one. */
static void emptied(void)
{
    const char *folder = t_tmpdir();
    char name[2][512], command[600];

    for (int life = 0; life < 2; life++) {
        struct vv_dataset *d = ds_open(folder, BIG, NULL);

        T_OK(ds_put(d, path_of((unsigned)life), 0, 30 * DS_KIB));
        snprintf(name[life], sizeof(name[life]), "%s", ds_file_of(folder, 30 * DS_KIB));
        vv_dataset_close(d);
        snprintf(command, sizeof(command), "rm -f '%s'/*", folder);
        T_EQ(system(command), 0);
    }
    T_CHECK(strcmp(name[0], name[1]) != 0);
}

/* The manifest is truncated or changed anywhere: the files of its readable part are there, and the others are gone. */
static void damaged_manifest(void)
{
    const char *folder = t_tmpdir();
    struct t_rng r = {t_seed()};
    unsigned all_but_one = 0;
    struct stat st;

    fill_folder(folder);
    T_EQ(stat(in(folder, "manifest"), &st), 0);
    for (uint64_t round = 0; round < t_cases(60, 2000); round++) {
        long at = (long)(round ? t_rng_below(&r, (uint64_t)st.st_size) : (uint64_t)st.st_size - 1);
        const char *copy = t_tmpdir();
        struct vv_dataset *d;
        unsigned n;

        {
            char command[1800];

            snprintf(command, sizeof(command),
                     "ln '%s'/*.data '%s' && cp '%s/manifest' '%s/manifest'", folder, copy, folder,
                     copy);
            T_EQ(system(command), 0);
        }
        if (round % 2)
            T_EQ(truncate(in(copy, "manifest"), at), 0);
        else
            ds_flip(in(copy, "manifest"), at);
        d = ds_open(copy, BIG, NULL);
        n = good_ones(d);
        T_CHECK(n < FILES);
        T_CHECK(at >= 64 || n == 0);
        all_but_one += n == FILES - 1;
        consistent(d, copy);
        T_OK(ds_put(d, "/new", 1, 5));
        vv_dataset_close(d);
        d = ds_open(copy, BIG, NULL);
        T_EQ(good_ones(d), n);
        T_OK(ds_check(d, "/new"));
        vv_dataset_close(d);
    }
    T_CHECK(all_but_one > 0); /* in round 0, which damages the last byte */
}

/* Thousands of changes: the manifest is rewritten, and stays short. */
static void manifest_stays_short(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d = ds_open(folder, BIG, NULL);
    struct stat st;

    for (unsigned i = 0; i < 3000; i++)
        T_OK(ds_put(d, path_of(i % FILES), i, i % 100));
    T_EQ(stat(in(folder, "manifest"), &st), 0);
    T_CHECK(st.st_size < 200 * 1000);
    vv_dataset_close(d);
    d = ds_open(folder, BIG, NULL);
    T_EQ(good_ones(d), FILES);
    consistent(d, folder);
    vv_dataset_close(d);
}

static void less_room(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d;

    fill_folder(folder);
    d = ds_open(folder, 100 * DS_KIB, NULL);
    T_CHECK(ds_stats(d).used <= 90 * DS_KIB && ds_stats(d).files > 3);
    consistent(d, folder);
    (void)good_ones(d);
    vv_dataset_close(d);
}

int main(void)
{
    T_RUN(everything_is_there);
    T_RUN(one_at_a_time);
    T_RUN(damage_while_down);
    T_RUN(scrub);
    T_RUN(scrub_without_descriptors);
    T_RUN(scrub_misses_none);
    T_RUN(leftovers);
    T_RUN(emptied);
    T_RUN(damaged_manifest);
    T_RUN(manifest_stays_short);
    T_RUN(less_room);
    return t_done();
}
