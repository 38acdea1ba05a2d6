/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's side of files: who has registered them and when they are gone.
 */
#include <pthread.h>

#include "unit/gpufile/gf.h"

enum { PAGE = 4 * KIB };

/* The first page of a file, as a kernel reads it. */
struct first {
    uint32_t id;
    int opened;
    int64_t got;
    uint64_t bytes; /* of the file */
    unsigned char page[PAGE];
};

static void read_first(void *arg)
{
    struct first *r = arg;
    struct varve_gfile f;
    int rc = varve_gopen(&gf_handle, r->id, VARVE_GBLOCK, &f);
    int64_t n;

    if (varve_d_thread() == 0)
        r->opened = rc;
    if (rc)
        return;
    n = varve_gread(&f, 0, r->page, PAGE);
    if (varve_d_thread() == 0) {
        r->got = n;
        r->bytes = varve_gsize(&f);
    }
    (void)varve_gclose(&f);
}

static struct first first;

static int try_first(uint32_t id)
{
    memset(&first, 0, sizeof(first));
    first.id = id;
    gf_launch(1, 2, 1, read_first, &first);
    return first.opened;
}

static void open_plain(void)
{
    struct varve_gpufs_opts o = gf_opts();

    gf_open(&o);
}

/* Two that use a file do not take it from each other. */
static void users_are_counted(void)
{
    const char *path;
    uint32_t a, b;

    open_plain();
    path = gf_file("shared", PAGE);
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &a));
    T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &b));
    T_EQ(a, b);
    T_OK(varve_gpufs_unregister(gf_fs, a));
    T_OK(try_first(b));
    T_EQ(first.got, PAGE);
    T_EQ(gf_stats().files, 1);
    T_OK(varve_gpufs_unregister(gf_fs, b));
    T_EQ(gf_stats().files, 0);
    T_ERR(try_first(b), -EBADF);
    T_ERR(varve_gpufs_unregister(gf_fs, b), -EINVAL);
    T_OK(gf_close());
}

static struct {
    pthread_barrier_t round;
    uint32_t id;
    unsigned rounds;
    _Atomic unsigned ended;
} race;

static void *unregister_each_round(void *arg)
{
    for (unsigned i = 0; i < race.rounds; i++) {
        int rc;

        pthread_barrier_wait(&race.round);
        rc = varve_gpufs_unregister(gf_fs, race.id);
        T_CHECK(rc == 0 || rc == -EINVAL);
        if (rc == 0)
            race.ended++;
        pthread_barrier_wait(&race.round);
    }
    return arg;
}

/* Of two threads that unregister a number at once, one does. */
static void two_unregister_at_once(void)
{
    const char *path;
    pthread_t t[2];

    open_plain();
    path = gf_file("twice", PAGE);
    race.rounds = (unsigned)t_cases(300, 3000);
    T_OK(-pthread_barrier_init(&race.round, NULL, 3));
    for (int i = 0; i < 2; i++)
        T_OK(-pthread_create(&t[i], NULL, unregister_each_round, NULL));
    for (unsigned i = 0; i < race.rounds; i++) {
        T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ | VARVE_GFILE_MAP, &race.id));
        race.ended = 0;
        pthread_barrier_wait(&race.round);
        pthread_barrier_wait(&race.round);
        T_EQ(race.ended, 1);
        T_EQ(gf_stats().files, 0);
    }
    for (int i = 0; i < 2; i++)
        T_OK(-pthread_join(t[i], NULL));
    T_OK(-pthread_barrier_destroy(&race.round));
    T_OK(gf_close());
}

int main(void)
{
    T_RUN(users_are_counted);
    T_RUN(two_unregister_at_once);
    return t_done();
}
