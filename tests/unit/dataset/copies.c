/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of files that other nodes keep: they are evicted first, evict no kept files, add no load, and stay copies in
 * the next run. */
#include "dataset/dataset.h"

#include <stdio.h>

#include "ds.h"
#include "t.h"

#define FILE_BYTES (100 * DS_KIB)
#define CAPACITY   (1000 * DS_KIB) /* 9 files below the low watermark */

static bool is_there(struct vv_dataset *d, const char *path)
{
    struct vv_dataset_gen gen;
    bool verified;

    return vv_dataset_peek(d, path, &gen, &verified) == 0;
}

static int put(struct vv_dataset *d, const char *kind, unsigned i, bool copy, bool ahead)
{
    char path[32];
    struct vv_dataset_want want = {path, ds_gen(0, FILE_BYTES), VV_DATASET_UNKNOWN, ahead, copy};

    snprintf(path, sizeof(path), "/%s%u", kind, i);
    return ds_put_want(d, &want);
}

static void check_space(struct vv_dataset *d, const char *folder)
{
    struct vv_dataset_stats s = ds_stats(d);

    T_CHECK(s.used <= CAPACITY);
    T_EQ(s.used, ds_on_disk(folder, NULL));
    T_EQ(vv_dataset_load(d), s.used - s.copy_bytes);
}

/* Copies fill free room up to the low watermark. Kept files evict them, the least recently used first, and no other
 * file is evicted as long as there is a copy. */
static void go_first(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d = ds_open(folder, CAPACITY, NULL);

    T_OK(put(d, "own", 0, false, false));
    for (unsigned i = 0; i < 8; i++)
        T_OK(put(d, "copy", i, true, false));
    T_ERR(put(d, "copy", 8, true, false), -ENOSPC);
    T_EQ(ds_stats(d).copies, 8);
    T_EQ(ds_stats(d).evicted, 0);
    check_space(d, folder);
    /* Used last, but not a copy; and the first copy is used after the second. */
    T_OK(ds_check(d, "/copy0"));
    for (unsigned i = 1; i <= 8; i++) {
        T_OK(put(d, "own", i, false, i % 2));
        check_space(d, folder);
        T_CHECK(is_there(d, "/own0"));
        if (i == 1)
            T_CHECK(!is_there(d, "/copy1") && is_there(d, "/copy0") && is_there(d, "/copy2"));
    }
    T_EQ(ds_stats(d).copies, 0);
    T_EQ(ds_stats(d).files, 9);
    /* No copy is left: now the least recently used file is evicted. */
    T_OK(put(d, "own", 9, false, false));
    T_CHECK(!is_there(d, "/own0"));
    check_space(d, folder);
    vv_dataset_close(d);
}

/* A copy evicts no kept files, however often it is tried; sometimes it replaces other copies. */
static void take_nothing(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d = ds_open(folder, CAPACITY, NULL);
    unsigned taken = 0;

    for (unsigned i = 0; i < 7; i++)
        T_OK(put(d, "own", i, false, false));
    T_OK(put(d, "copy", 0, true, false));
    T_OK(put(d, "copy", 1, true, false));
    for (unsigned i = 2; i < 2000; i++) {
        int rc = put(d, "copy", i, true, false);

        T_CHECK(rc == 0 || rc == -ENOSPC);
        taken += rc == 0;
        check_space(d, folder);
    }
    /* One in 64 that find no room, each replacing one. */
    T_EQ(taken, 1998 / 64);
    T_EQ(ds_stats(d).evicted, taken);
    T_EQ(ds_stats(d).copies, 2);
    for (unsigned i = 0; i < 7; i++) {
        char path[16];

        snprintf(path, sizeof(path), "/own%u", i);
        T_OK(ds_check(d, path));
    }
    vv_dataset_close(d);
    /* The same with kept files only. */
    d = ds_open(t_tmpdir(), CAPACITY, NULL);
    for (unsigned i = 0; i < 9; i++)
        T_OK(put(d, "own", i, false, false));
    for (unsigned i = 0; i < 500; i++)
        T_ERR(put(d, "copy", i, true, false), -ENOSPC);
    T_EQ(ds_stats(d).files, 9);
    vv_dataset_close(d);
}

/* A large file takes free room and evicts copies only. */
static void large(void)
{
    struct vv_dataset_opts opts = {.capacity = CAPACITY, .big_file = 150 * DS_KIB};
    struct vv_dataset *d;
    char err[200];

    T_OK(vv_dataset_open(t_tmpdir(), &opts, err, sizeof(err), &d));
    for (unsigned i = 0; i < 5; i++)
        T_OK(put(d, "own", i, false, false));
    for (unsigned i = 0; i < 4; i++)
        T_OK(put(d, "copy", i, true, false));
    T_ERR(ds_put(d, "/larger", 0, 500 * DS_KIB), -ENOSPC);
    T_OK(ds_put(d, "/large", 0, 400 * DS_KIB));
    for (unsigned i = 0; i < 5; i++) {
        char path[16];

        snprintf(path, sizeof(path), "/own%u", i);
        T_OK(ds_check(d, path));
    }
    T_OK(ds_check(d, "/large"));
    vv_dataset_close(d);
}

static int count_copies(void *user, const struct vv_dataset_entry *e)
{
    *(unsigned *)user += e->copy;
    return 0;
}

/* A copy that is kept from now on is not a copy any more, in this run and in the next. */
static void next_life(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d = ds_open(folder, CAPACITY, NULL);
    uint64_t load = vv_dataset_load(d);

    T_EQ(load, 0);
    for (unsigned i = 0; i < 4; i++)
        T_OK(put(d, "copy", i, true, false));
    T_OK(put(d, "own", 0, false, false));
    vv_dataset_own(d, "/copy1");
    vv_dataset_own(d, "/copy1");
    vv_dataset_own(d, "/none");
    check_space(d, folder);
    for (int life = 0; life < 3; life++) {
        unsigned copies = 0;

        T_EQ(ds_stats(d).copies, 3);
        T_EQ(ds_stats(d).files, 5);
        check_space(d, folder);
        T_EQ(vv_dataset_list(d, count_copies, &copies), 0);
        T_EQ(copies, 3);
        T_OK(ds_check(d, "/copy1"));
        T_OK(ds_check(d, "/copy2"));
        vv_dataset_close(d);
        d = ds_open(folder, CAPACITY, NULL);
    }
    for (unsigned i = 1; i < 7; i++)
        T_OK(put(d, "own", i, false, false));
    T_CHECK(is_there(d, "/copy1") && !is_there(d, "/copy0") && !is_there(d, "/copy2"));
    check_space(d, folder);
    vv_dataset_close(d);
}

int main(void)
{
    T_RUN(go_first);
    T_RUN(take_nothing);
    T_RUN(large);
    T_RUN(next_life);
    return t_done();
}
