/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads on one dataset cache that is too small for their files. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "unit/dataset/ds.h"

#define THREADS  4
#define PATHS    24u
#define CAPACITY (300 * DS_KIB)

struct worker {
    struct vv_dataset *d;
    const char *folder;
    uint64_t seed;
    pthread_t thread;
};

static int glance(void *user, const struct vv_dataset_entry *e)
{
    (void)user;
    T_CHECK(e->path[0] == '/');
    return 0;
}

static void act(struct vv_dataset *d, const char *folder, struct t_rng *r)
{
    struct vv_dataset_want want = {.gen = ds_gen((unsigned)t_rng_below(r, 4), 0)};
    char path[32];
    bool around;
    int rc;

    snprintf(path, sizeof(path), "/%u", (unsigned)t_rng_below(r, PATHS));
    want.path = path;
    want.gen.size = 1000 + t_rng_below(r, 40000);
    want.next_use = t_rng_below(r, 3) ? t_rng_below(r, 1000) : VV_DATASET_UNKNOWN;
    want.ahead = t_rng_below(r, 2);
    switch (t_rng_below(r, 16)) {
    case 0:
        rc = vv_dataset_drop(d, path);
        T_CHECK(rc == 0 || rc == -ENOENT);
        break;
    case 1:
        T_EQ(vv_dataset_scrub(d, 50 * DS_KIB, &around), 0);
        break;
    case 2:
        (void)vv_dataset_expect(d, path, want.next_use);
        vv_dataset_advance(d, t_rng_below(r, 1000));
        break;
    case 3:
        T_OK(vv_dataset_list(d, glance, NULL));
        T_CHECK(ds_stats(d).used <= CAPACITY && ds_on_disk(folder, NULL) <= CAPACITY);
        break;
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
        rc = ds_put_want(d, &want);
        T_CHECK(rc == 0 || rc == -EEXIST || rc == -EALREADY || rc == -ENOSPC);
        break;
    default:
        rc = ds_check(d, path);
        T_CHECK(rc == 0 || rc == -ENOENT);
        break;
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct t_rng r = {w->seed};
    struct vv_dataset_gen gen;
    char path[32];
    int held = -1;

    for (uint64_t i = 0; i < t_cases(600, 20000); i++) {
        act(w->d, w->folder, &r);
        /* One file is open at all times, and stays unchanged. */
        if (held >= 0 && t_rng_below(&r, 4) == 0) {
            T_CHECK(ds_is(held, path, &gen));
            close(held);
            held = -1;
        }
        if (held < 0) {
            snprintf(path, sizeof(path), "/%u", (unsigned)t_rng_below(&r, PATHS));
            if (vv_dataset_get(w->d, path, NULL, &held, &gen) < 0)
                held = -1;
        }
    }
    if (held >= 0)
        close(held);
    return NULL;
}

static void together(void)
{
    const char *folder = t_tmpdir();
    struct vv_dataset *d = ds_open(folder, CAPACITY, NULL);
    struct worker workers[THREADS];
    struct vv_dataset_stats s;
    unsigned files;

    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.d = d, .folder = folder, .seed = t_seed() + (uint64_t)i};
        T_EQ(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    s = ds_stats(d);
    T_CHECK(s.hits > 0 && s.misses > 0 && s.evicted > 0 && s.damaged == 0);
    vv_dataset_close(d);
    d = ds_open(folder, CAPACITY, NULL);
    T_EQ(ds_on_disk(folder, &files), ds_stats(d).used);
    T_EQ(files, ds_stats(d).files);
    for (unsigned i = 0; i < PATHS; i++) {
        char path[32];
        int rc;

        snprintf(path, sizeof(path), "/%u", i);
        rc = ds_check(d, path);
        T_CHECK(rc == 0 || rc == -ENOENT);
    }
    vv_dataset_close(d);
}

int main(void)
{
    T_RUN(together);
    return t_done();
}
