/* SPDX-License-Identifier: Apache-2.0 */
/* A cache folder is deleted while the cache is open: it is made again, empty. If that fails, files find no room until
 * it succeeds. Nothing counts as damaged, and the capacity holds. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "unit/dataset/ds.h"

#define CAPACITY (64 * DS_KIB)

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void delete_all(const char *folder)
{
    T_EQ(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void comes_back(void)
{
    char folder[600];
    struct vv_dataset *d;
    unsigned files;
    int fd;

    snprintf(folder, sizeof(folder), "%s/c", t_tmpdir());
    d = ds_open(folder, CAPACITY, NULL);
    T_OK(ds_put(d, "/a", 1, 3000));
    T_OK(ds_put(d, "/b", 1, 9000));
    T_OK(vv_dataset_get(d, "/a", NULL, &fd, NULL));
    delete_all(folder);
    /* A descriptor that was handed out stays valid; a new one cannot be had. */
    T_CHECK(ds_is(fd, "/a", &(struct vv_dataset_gen){3000, 1001, 2001, 7}));
    T_ERR(ds_check(d, "/b"), -ENOENT);
    T_ERR(ds_check(d, "/a"), -ENOENT);
    close(fd);
    T_EQ(ds_stats(d).files, 0);
    T_EQ(ds_stats(d).damaged, 0);
    for (unsigned i = 0; i < 20; i++) {
        char path[16];

        snprintf(path, sizeof(path), "/n%u", i);
        T_OK(ds_put(d, path, 1, 9000));
        T_OK(ds_check(d, path));
        T_CHECK(ds_on_disk(folder, NULL) <= CAPACITY);
    }
    T_EQ(ds_stats(d).used, ds_on_disk(folder, &files));
    vv_dataset_close(d);
    /* Files stored from then on are there in the next run. */
    d = ds_open(folder, CAPACITY, NULL);
    T_EQ(ds_stats(d).files, files);
    T_OK(ds_check(d, "/n19"));
    vv_dataset_close(d);
}

/* A fill, the scrub, or a write in the middle of a fill finds the folder gone. */
static void found_by(void)
{
    struct vv_dataset_want want = {"/x", ds_gen(1, 5000), VV_DATASET_UNKNOWN, false, false};
    struct vv_dataset_fill *f;
    char folder[600], bytes[5000] = "";
    struct vv_dataset *d;
    bool around;

    snprintf(folder, sizeof(folder), "%s/c", t_tmpdir());
    d = ds_open(folder, CAPACITY, NULL);
    T_OK(ds_put(d, "/a", 1, 3000));
    delete_all(folder);
    T_OK(ds_put(d, "/b", 1, 3000));
    T_EQ(ds_stats(d).files, 1);
    vv_dataset_close(d);
    d = ds_open(folder, CAPACITY, NULL);
    delete_all(folder);
    T_EQ(vv_dataset_scrub(d, 1 << 20, &around), 0);
    T_EQ(ds_stats(d).files, 0);
    T_EQ(ds_stats(d).damaged, 0);
    vv_dataset_close(d);
    d = ds_open(folder, CAPACITY, NULL);
    T_OK(vv_dataset_begin(d, &want, &f));
    delete_all(folder);
    T_OK(vv_dataset_write(f, bytes, sizeof(bytes)));
    T_ERR(vv_dataset_commit(f, NULL), -ENOSPC);
    T_EQ(ds_stats(d).used, 0);
    T_OK(ds_put(d, "/b", 1, 3000));
    T_OK(ds_check(d, "/b"));
    vv_dataset_close(d);
}

static void cannot(void)
{
    char parent[560], folder[600];
    struct vv_dataset *d;

    snprintf(parent, sizeof(parent), "%s/p", t_tmpdir());
    T_EQ(mkdir(parent, 0700), 0);
    snprintf(folder, sizeof(folder), "%s/c", parent);
    d = ds_open(folder, CAPACITY, NULL);
    T_OK(ds_put(d, "/a", 1, 3000));
    delete_all(parent);
    T_ERR(ds_check(d, "/a"), -ENOENT);
    T_ERR(ds_put(d, "/a", 1, 3000), -ENOSPC);
    T_EQ(ds_stats(d).used, 0);
    vv_dataset_close(d);
}

int main(void)
{
    vv_log_set_sink(NULL, NULL, VV_LOG_WARNING);
    T_RUN(comes_back);
    T_RUN(found_by);
    T_RUN(cannot);
    return t_done();
}
