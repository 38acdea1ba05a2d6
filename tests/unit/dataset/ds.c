/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/dataset/ds.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

struct vv_dataset_gen ds_gen(unsigned n, uint64_t size)
{
    return (struct vv_dataset_gen){size, 1000 + n, 2000 + n, 7};
}

static void fill(char *buf, const char *path, const struct vv_dataset_gen *gen)
{
    struct t_rng r = {vv_hash64(path, strlen(path)) ^ gen->mtime_ns * 977};

    for (uint64_t i = 0; i < gen->size; i += 8) {
        uint64_t word = t_rng_u64(&r);

        memcpy(buf + i, &word, VV_MIN(gen->size - i, UINT64_C(8)));
    }
}

struct vv_dataset *ds_open(const char *folder, uint64_t capacity, const struct vv_os *os)
{
    struct vv_dataset_opts opts = {.os = os, .capacity = capacity};
    struct vv_dataset *d = NULL;
    char err[256] = "";

    if (vv_dataset_open(folder, &opts, err, sizeof(err), &d) < 0)
        t_fail(__FILE__, __LINE__, "open: %s", err);
    return d;
}

int ds_put_want(struct vv_dataset *d, const struct vv_dataset_want *want)
{
    struct vv_dataset_fill *f;
    uint64_t half = want->gen.size / 3, sum;
    int rc = vv_dataset_begin(d, want, &f);
    char *buf;

    if (rc < 0)
        return rc;
    buf = malloc(want->gen.size + 1);
    fill(buf, want->path, &want->gen);
    sum = vv_hash64(buf, want->gen.size);
    rc = vv_dataset_write(f, buf, half);
    if (rc == 0)
        rc = vv_dataset_write(f, buf + half, want->gen.size - half);
    if (rc == 0)
        rc = vv_dataset_commit(f, &sum);
    else
        vv_dataset_abort(f);
    free(buf);
    return rc;
}

int ds_put(struct vv_dataset *d, const char *path, unsigned n, uint64_t size)
{
    struct vv_dataset_want want = {path, ds_gen(n, size), VV_DATASET_UNKNOWN, false, false};

    return ds_put_want(d, &want);
}

bool ds_is(int fd, const char *path, const struct vv_dataset_gen *gen)
{
    char *want = malloc(gen->size + 1), *have = malloc(gen->size + 1);
    ssize_t n = pread(fd, have, gen->size + 1, 0);
    bool same;

    fill(want, path, gen);
    same = n == (ssize_t)gen->size && memcmp(want, have, gen->size) == 0;
    free(want);
    free(have);
    return same;
}

int ds_check(struct vv_dataset *d, const char *path)
{
    struct vv_dataset_gen gen;
    int fd, rc = vv_dataset_get(d, path, NULL, &fd, &gen);

    if (rc == 0) {
        T_CHECK(ds_is(fd, path, &gen));
        T_CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
        close(fd);
    }
    return rc;
}

static bool is_content(const char *name)
{
    return strlen(name) > 16 && (strcmp(name + 16, ".data") == 0 || strcmp(name + 16, ".tmp") == 0);
}

uint64_t ds_on_disk(const char *folder, unsigned *ret_files)
{
    DIR *dir = opendir(folder);
    uint64_t bytes = 0;
    unsigned files = 0;

    T_CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;

        /* It may be removed meanwhile. */
        if (!is_content(e->d_name) || fstatat(dirfd(dir), e->d_name, &st, 0) < 0)
            continue;
        bytes += ((uint64_t)st.st_size + 4095) / 4096 * 4096;
        files++;
    }
    closedir(dir);
    if (ret_files)
        *ret_files = files;
    return bytes;
}

const char *ds_file_of(const char *folder, uint64_t size)
{
    static char path[512];
    DIR *dir = opendir(folder);
    unsigned found = 0;

    T_CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;

        if (!is_content(e->d_name) || fstatat(dirfd(dir), e->d_name, &st, 0) < 0 ||
            (uint64_t)st.st_size != size)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        found++;
    }
    closedir(dir);
    T_EQ(found, 1);
    return path;
}

void ds_flip(const char *file, long at)
{
    int fd = open(file, O_RDWR);
    char c;

    T_CHECK(fd >= 0);
    if (at < 0)
        at += lseek(fd, 0, SEEK_END);
    T_EQ(pread(fd, &c, 1, at), 1);
    c ^= 4;
    T_EQ(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

struct vv_dataset_stats ds_stats(struct vv_dataset *d)
{
    struct vv_dataset_stats s;

    vv_dataset_stats(d, &s);
    return s;
}
