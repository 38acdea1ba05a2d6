/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed files (fs-verity), on a simulated file system that supports them, and on ones that do not. The real
 * one: tests/dataset/verity.sh. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "unit/dataset/ds.h"

#define BIG (UINT64_C(1) << 30)

/* Simulates the kernel's seals: a sealed file cannot be opened for writing, and its digest is that of its bytes. */
static struct {
    struct vv_os os;
    ino_t sealed[100];
    size_t nr;
    int fail;     /* error of sealing */
    int seals;    /* number of attempts */
    uint8_t flip; /* changes the digest */
} fake;

static bool is_sealed(ino_t ino)
{
    for (size_t i = 0; i < fake.nr; i++)
        if (fake.sealed[i] == ino)
            return true;
    return false;
}

static int fake_openat(const struct vv_os *os, int dirfd, const char *path, int flags,
                       unsigned mode)
{
    const struct vv_os *real = vv_os_posix();
    int fd = real->openat(real, dirfd, path, flags, mode);
    struct stat st;

    (void)os;
    if (fd >= 0 && (flags & O_ACCMODE) != O_RDONLY && fstat(fd, &st) == 0 && is_sealed(st.st_ino)) {
        close(fd);
        return -EPERM;
    }
    return fd;
}

static int fake_unlinkat(const struct vv_os *os, int dirfd, const char *path)
{
    struct stat st;

    (void)os;
    if (fstatat(dirfd, path, &st, 0) == 0)
        for (size_t i = 0; i < fake.nr; i++)
            if (fake.sealed[i] == st.st_ino)
                fake.sealed[i] = 0;
    return vv_os_posix()->unlinkat(vv_os_posix(), dirfd, path);
}

static int fake_seal(const struct vv_os *os, int fd)
{
    struct stat st;

    (void)os;
    fake.seals++;
    if (fake.fail)
        return fake.fail;
    T_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    T_EQ(fstat(fd, &st), 0);
    fake.sealed[fake.nr++ % 100] = st.st_ino;
    return 0;
}

static int fake_sealed(const struct vv_os *os, int fd, uint8_t digest[VV_OS_DIGEST])
{
    struct stat st;
    uint64_t sum;
    char *buf;

    (void)os;
    T_EQ(fstat(fd, &st), 0);
    if (!is_sealed(st.st_ino))
        return -ENODATA;
    buf = malloc((size_t)st.st_size + 1);
    T_EQ(pread(fd, buf, (size_t)st.st_size, 0), st.st_size);
    sum = vv_hash64(buf, (size_t)st.st_size);
    free(buf);
    memset(digest, fake.flip, VV_OS_DIGEST);
    memcpy(digest, &sum, sizeof(sum));
    return 0;
}

static struct vv_dataset *begin(const char *folder, uint64_t capacity,
                                enum vv_dataset_verity verity)
{
    struct vv_dataset_opts opts = {.os = &fake.os, .capacity = capacity, .verity = verity};
    struct vv_dataset *d;

    T_OK(vv_dataset_open(folder, &opts, NULL, 0, &d));
    return d;
}

static void reset(int fail)
{
    memset(&fake, 0, sizeof(fake));
    fake.os = *vv_os_posix();
    fake.os.openat = fake_openat;
    fake.os.unlinkat = fake_unlinkat;
    fake.os.seal = fake_seal;
    fake.os.sealed = fake_sealed;
    fake.fail = fail;
}

/* Files are sealed when they are stored, stay so in the next run, and are removed like others. */
static void sealed_files(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d;
    int fd;

    reset(0);
    d = begin(folder, BIG, VV_DATASET_VERITY_ON);
    T_OK(ds_put(d, "/a", 0, 1000));
    T_OK(ds_put(d, "/b", 0, 600 * DS_KIB));
    T_EQ(ds_stats(d).sealed, 2);
    /* A block and one for the seal; 150 blocks, two and one of hashes, and one. */
    T_EQ(ds_stats(d).used, (2 + 150 + 2 + 1 + 1) * 4096);
    T_OK(ds_check(d, "/a"));
    vv_dataset_close(d);
    d = begin(folder, BIG, VV_DATASET_VERITY_OFF);
    T_EQ(ds_stats(d).sealed, 2);
    T_EQ(ds_stats(d).used, (2 + 150 + 2 + 1 + 1) * 4096);
    T_OK(ds_put(d, "/c", 0, 1000));
    T_EQ(ds_stats(d).sealed, 2);
    T_OK(ds_check(d, "/a"));
    T_OK(ds_check(d, "/b"));
    /* An open one is not removed. */
    T_OK(vv_dataset_get(d, "/b", NULL, &fd, NULL));
    T_OK(vv_dataset_drop(d, "/b"));
    T_EQ(ds_stats(d).waiting, 1);
    T_EQ(ds_stats(d).sealed, 1);
    close(fd);
    T_OK(vv_dataset_drop(d, "/a"));
    T_EQ(ds_stats(d).waiting, 0);
    T_EQ(ds_stats(d).used, 4096);
    vv_dataset_close(d);
}

/* Sealed files are evicted too, and the capacity is never exceeded. */
static void room(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d;
    char path[32];

    reset(0);
    d = begin(folder, 100 * DS_KIB, VV_DATASET_VERITY_AUTO);
    for (unsigned i = 0; i < 40; i++) {
        snprintf(path, sizeof(path), "/%u", i);
        T_OK(ds_put(d, path, 0, 10 * DS_KIB));
        T_OK(ds_check(d, path));
        T_CHECK(ds_stats(d).used <= 100 * DS_KIB);
    }
    T_CHECK(ds_stats(d).evicted > 30);
    vv_dataset_close(d);
}

/* A different digest is damage, even if the bytes are right. */
static void another_digest(void)
{
    struct vv_dataset *d;

    reset(0);
    d = begin(t_tmpdir(), BIG, VV_DATASET_VERITY_AUTO);
    T_OK(ds_put(d, "/a", 0, 5000));
    T_OK(ds_check(d, "/a"));
    fake.flip = 1;
    T_ERR(ds_check(d, "/a"), -EBADMSG);
    T_EQ(ds_stats(d).damaged, 1);
    T_ERR(ds_check(d, "/a"), -ENOENT);
    vv_dataset_close(d);
}

/* A folder that was copied: its files have no seals, and the next run uses them without. */
static void without_seals(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d;

    reset(0);
    d = begin(folder, BIG, VV_DATASET_VERITY_AUTO);
    T_OK(ds_put(d, "/a", 0, 5000));
    vv_dataset_close(d);
    fake.nr = 0;
    d = begin(folder, BIG, VV_DATASET_VERITY_AUTO);
    T_OK(ds_check(d, "/a"));
    T_OK(ds_check(d, "/a"));
    vv_dataset_close(d);
}

/* Without support, sealing is tried once, and files are stored without seals. */
static void not_there(void)
{
    struct vv_dataset_opts opts = {.os = &fake.os, .capacity = BIG, .verity = VV_DATASET_VERITY_ON};
    const char *folder = t_tmpdir();
    struct vv_dataset *d;
    char err[200];

    reset(-EOPNOTSUPP);
    d = begin(folder, BIG, VV_DATASET_VERITY_AUTO);
    T_OK(ds_put(d, "/a", 0, 5000));
    T_OK(ds_put(d, "/b", 0, 5000));
    T_EQ(fake.seals, 1);
    T_EQ(ds_stats(d).sealed, 0);
    T_EQ(ds_stats(d).unsealed, 0);
    T_EQ(ds_stats(d).used, 4 * 4096);
    T_OK(ds_check(d, "/a"));
    vv_dataset_close(d);
    T_ERR(vv_dataset_open(folder, &opts, err, sizeof(err), &d), -EOPNOTSUPP);
    T_CHECK(strstr(err, "fs-verity"));
    T_CHECK(access(folder, F_OK) == 0);

    /* For example a full disk: this file is not sealed, the next one may be. */
    reset(-ENOSPC);
    d = begin(t_tmpdir(), BIG, VV_DATASET_VERITY_AUTO);
    T_OK(ds_put(d, "/a", 0, 5000));
    T_EQ(ds_stats(d).unsealed, 1);
    T_EQ(ds_stats(d).used, 2 * 4096);
    fake.fail = 0;
    T_OK(ds_put(d, "/b", 0, 5000));
    T_EQ(ds_stats(d).sealed, 1);
    T_OK(ds_check(d, "/a"));
    T_OK(ds_check(d, "/b"));
    vv_dataset_close(d);
}

/* With the file system of this machine, whether it supports seals or not. */
static void as_it_is(void)
{
    struct vv_dataset_opts opts = {.capacity = BIG, .verity = VV_DATASET_VERITY_AUTO};
    struct vv_dataset *d;

    T_OK(vv_dataset_open(t_tmpdir(), &opts, NULL, 0, &d));
    T_OK(ds_put(d, "/a", 0, 5000));
    T_OK(ds_check(d, "/a"));
    T_OK(vv_dataset_drop(d, "/a"));
    T_EQ(ds_stats(d).used, 0);
    vv_dataset_close(d);
}

int main(void)
{
    T_RUN(sealed_files);
    T_RUN(room);
    T_RUN(another_digest);
    T_RUN(without_seals);
    T_RUN(not_there);
    T_RUN(as_it_is);
    return t_done();
}
