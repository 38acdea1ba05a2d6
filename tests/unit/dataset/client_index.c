/* SPDX-License-Identifier: Apache-2.0 */
/* The index that clients read: they can open exactly the files that the cache would have handed out. The client is the
 * preloaded library's own code. */
#include "dataset/client_index.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "dataset/dataset_private.h"
#include "ds.h"
#include "preload/client_lookup.c"
#include "t.h"

#define VIEW 1u

/* The index that is marked as alive whenever a client looks: on a busy machine a test may take longer than a mark is
 * valid. NULL: the daemon is dead. */
static struct vv_index *alive;

static void map_index(struct vv_index *x)
{
    int fds[2];

    vv_index_fds(x, fds);
    vvi_preload_index_map(fds, VIEW);
    T_EQ(vvi_preload_index_mapped(), vv_index_boot(x));
}

static struct vv_index *index_new(const char *folder, uint32_t slots)
{
    struct vv_index *x;

    T_OK(vv_index_new(folder, slots, &x));
    map_index(x);
    alive = x;
    return x;
}

static void index_free(struct vv_index *x)
{
    alive = NULL;
    vv_index_free(x);
}

static struct vv_dataset *open_with(const char *folder, uint64_t capacity, struct vv_index *x)
{
    struct vv_dataset_opts opts = {.capacity = capacity, .index = x};
    struct vv_dataset *d;
    char err[200];

    T_OK(vv_dataset_open(folder, &opts, err, sizeof(err), &d));
    return d;
}

/* A different inode for each generation. */
static struct vv_server_stat stat_of(const struct vv_dataset_gen *gen)
{
    return (struct vv_server_stat){.ino = gen->mtime_ns, .size = gen->size, .mode = 0100644};
}

static int show(struct vv_dataset *d, const char *path, const struct vv_dataset_gen *gen,
                const char *client_path)
{
    struct vv_server_stat st = stat_of(gen);

    return vv_dataset_show(d, path, gen, client_path, &st, UINT64_MAX, true);
}

static struct vvi_preload_name name_of(const char *path, bool nofollow, unsigned view)
{
    return (struct vvi_preload_name){.path = path,
                                     .bytes = strlen(path),
                                     .hash = vv_server_hash(path, strlen(path)),
                                     .nofollow = nofollow,
                                     .view = view};
}

static bool client_open(const char *path, bool nofollow, unsigned view, int *ret_fd,
                        struct vv_server_stat *ret_stat)
{
    struct vvi_preload_name name = name_of(path, nofollow, view);
    struct vvi_preload_answer a;
    struct stat st;

    if (alive)
        vv_index_beat(alive);
    if (!vvi_preload_index_open(&name, true, &a))
        return false;
    T_OK(fstat(a.fd, &st));
    T_CHECK(st.st_ino == a.real.st_ino && st.st_size == a.real.st_size);
    *ret_fd = a.fd;
    *ret_stat = a.stat;
    return true;
}

static bool client_stat(const char *path, struct vv_server_stat *ret_stat)
{
    struct vvi_preload_name name = name_of(path, false, VIEW);

    if (alive)
        vv_index_beat(alive);
    return vvi_preload_index_stat(&name, ret_stat);
}

/* Opens it as a client does, and compares every byte. */
static bool client_has(const char *client_path, const char *path, const struct vv_dataset_gen *gen)
{
    struct vv_server_stat st;
    int fd;

    if (!client_open(client_path, true, VIEW, &fd, &st))
        return false;
    T_EQ(st.ino, gen->mtime_ns);
    T_CHECK(ds_is(fd, path, gen));
    close(fd);
    return true;
}

static void test_shown(void)
{
    struct vv_dataset_gen gen = ds_gen(1, 5000), next = ds_gen(2, 6000);
    const char *folder = t_tmpdir();
    struct vv_index *x = index_new(folder, 64);
    struct vv_dataset *d = open_with(folder, 1 << 20, x);
    struct vv_server_stat st = stat_of(&gen);
    int fd;

    T_OK(ds_put(d, "/a", 1, 5000));
    T_CHECK(!client_has("/a", "/a", &gen));
    T_ERR(show(d, "/a", &next, "/a"), -ESTALE);
    T_ERR(show(d, "/b", &gen, "/b"), -ENOENT);
    T_CHECK(!client_has("/a", "/a", &gen));
    T_OK(show(d, "/a", &gen, "/a"));
    T_OK(show(d, "/a", &gen, "/through/link"));
    T_CHECK(client_has("/a", "/a", &gen) && client_has("/through/link", "/a", &gen));
    T_CHECK(!client_has("/ab", "/a", &gen) && !client_has("/", "/a", &gen));
    T_EQ(ds_stats(d).direct, 2);
    /* With a link on the way. */
    T_OK(vv_dataset_show(d, "/a", &gen, "/a", &st, UINT64_MAX, false));
    T_CHECK(!client_has("/a", "/a", &gen));
    T_CHECK(client_stat("/a", &st) && st.size == 5000);
    /* The owner has to check it again. */
    T_OK(vv_dataset_show(d, "/a", &gen, "/a", &st, vv_now_ns(), true));
    T_CHECK(!client_has("/a", "/a", &gen));
    T_OK(show(d, "/a", &gen, "/a"));
    /* A program in another view of the file system; an index that is switched off. */
    T_CHECK(!client_open("/a", false, VIEW + 1, &fd, &st));
    vv_index_enable(x, false);
    T_CHECK(!client_has("/a", "/a", &gen));
    vv_index_enable(x, true);
    T_CHECK(client_has("/a", "/a", &gen));
    /* Replaced: the old one is not found under any of its names. */
    T_OK(ds_put(d, "/a", 2, 6000));
    T_CHECK(!client_has("/a", "/a", &gen) && !client_has("/through/link", "/a", &gen));
    T_OK(show(d, "/a", &next, "/a"));
    T_CHECK(client_has("/a", "/a", &next));
    T_OK(vv_dataset_drop(d, "/a"));
    T_CHECK(!client_has("/a", "/a", &next));
    vv_dataset_close(d);
    index_free(x);
}

/* A daemon that stopped marking itself alive; and the next one, in place of it. */
static void test_dead(void)
{
    struct vv_dataset_gen gen = ds_gen(1, 500);
    const char *folder = t_tmpdir();
    struct vv_index *x = index_new(folder, 64), *y;
    struct vv_dataset *d = open_with(folder, 1 << 20, x);

    T_OK(ds_put(d, "/a", 1, 500));
    T_OK(show(d, "/a", &gen, "/a"));
    T_CHECK(client_has("/a", "/a", &gen));
    alive = NULL;
    while (client_has("/a", "/a", &gen))
        usleep(10000);
    alive = x;
    T_CHECK(client_has("/a", "/a", &gen));
    vv_dataset_close(d);
    index_free(x);
    T_CHECK(!client_has("/a", "/a", &gen));
    y = index_new(folder, 64);
    d = open_with(folder, 1 << 20, y);
    T_ERR(show(d, "/a", &gen, "/a"), -EAGAIN); /* not verified in this run */
    T_OK(ds_check(d, "/a"));
    T_OK(show(d, "/a", &gen, "/a"));
    T_CHECK(client_has("/a", "/a", &gen));
    vv_dataset_close(d);
    index_free(y);
}

/* Files that clients have open stay, and files that they used last are evicted last. */
static void test_evicted(void)
{
    struct vv_dataset_gen gen = ds_gen(1, 100 * DS_KIB);
    const char *folder = t_tmpdir();
    struct vv_index *x = index_new(folder, 64);
    struct vv_dataset *d = open_with(folder, 450 * DS_KIB, x);
    struct vv_server_stat st;
    int fd;

    for (int i = 0; i < 4; i++) {
        char path[] = {'/', (char)('a' + i), '\0'};

        T_OK(ds_put(d, path, 1, 100 * DS_KIB));
        T_OK(show(d, path, &gen, path));
    }
    T_CHECK(client_open("/b", false, VIEW, &fd, &st));
    T_CHECK(client_has("/a", "/a", &gen));
    T_OK(ds_put(d, "/e", 1, 100 * DS_KIB));
    T_CHECK(client_has("/a", "/a", &gen));  /* used */
    T_CHECK(!client_has("/c", "/c", &gen)); /* the least recently used */
    T_CHECK(ds_is(fd, "/b", &gen));
    T_OK(ds_check(d, "/b"));
    close(fd);
    vv_dataset_close(d);
    index_free(x);
}

/* More files than slots. */
static void test_crowded(void)
{
    const char *folder = t_tmpdir();
    struct vv_index *x = index_new(folder, 64);
    struct vv_dataset *d = open_with(folder, 8 << 20, x);
    char path[VV_SERVER_SLOT_PATH_ROOM + 10];
    unsigned found = 0;

    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 300; i++) {
            struct vv_dataset_gen gen = ds_gen(1, i + 1);

            snprintf(path, sizeof(path), "/file/%u", i);
            if (round == 0) {
                T_OK(ds_put(d, path, 1, i + 1));
                T_OK(show(d, path, &gen, path));
            }
            found += client_has(path, path, &gen);
        }
    }
    T_CHECK(found >= 300 && found <= 364);
    memset(path, 'a', sizeof(path));
    path[0] = '/';
    path[VV_SERVER_SLOT_PATH_ROOM] = '\0';
    for (int more = 0; more < 2; more++) {
        struct vv_dataset_gen gen = ds_gen(1, 7);

        T_OK(ds_put(d, path, 1, 7));
        T_OK(show(d, path, &gen, path));
        T_EQ(client_has(path, path, &gen), more == 0);
        path[VV_SERVER_SLOT_PATH_ROOM] = 'a';
        path[VV_SERVER_SLOT_PATH_ROOM + 1] = '\0';
    }
    vv_dataset_close(d);
    index_free(x);
}

static void test_bad(void)
{
    struct vv_index *x;
    char folder[500];
    int fds[2];

    T_ERR(vv_index_new("relative", 64, &x), -EINVAL);
    T_ERR(vv_index_new("/a", 7, &x), -EINVAL);
    memset(folder, 'a', sizeof(folder));
    folder[0] = '/';
    folder[499] = '\0';
    T_ERR(vv_index_new(folder, 64, &x), -ENAMETOOLONG);
    /* Descriptors that are not an index. */
    fds[0] = fds[1] = open("/dev/zero", O_RDONLY);
    vvi_preload_index_map(fds, VIEW);
    T_EQ(vvi_preload_index_mapped(), 0);
    close(fds[0]);
    /* A client cannot write to it. */
    T_OK(vv_index_new(t_tmpdir(), 64, &x));
    vv_index_fds(x, fds);
    T_CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0) == MAP_FAILED);
    snprintf(folder, sizeof(folder), "/proc/self/fd/%d", fds[0]);
    fds[0] = open(folder, O_RDWR);
    T_CHECK(fds[0] < 0 ||
            mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0) == MAP_FAILED);
    T_CHECK(fds[0] < 0 || (write(fds[0], "x", 1) < 0 && ftruncate(fds[0], 0) < 0));
    if (fds[0] >= 0)
        close(fds[0]);
    index_free(x);
}

/* ---- at once ---- */

#define PATHS 6

static struct vv_dataset *shared_d;
static _Atomic bool done;
static _Atomic uint64_t opened;

static void *reader(void *arg)
{
    struct t_rng rng = {(uintptr_t)arg};

    while (!atomic_load(&done)) {
        char path[] = {'/', (char)('a' + t_rng_below(&rng, PATHS)), '\0'};
        struct vv_server_stat st;
        int fd;

        if (!client_open(path, true, VIEW, &fd, &st))
            continue;
        /* Any generation, but that one whole. */
        for (unsigned n = 1;; n++) {
            struct vv_dataset_gen gen = ds_gen(n, st.size);

            if (gen.mtime_ns != st.ino) {
                T_CHECK(n < 100000);
                continue;
            }
            T_CHECK(ds_is(fd, path, &gen));
            break;
        }
        close(fd);
        atomic_fetch_add(&opened, 1);
    }
    return NULL;
}

static void test_threads(void)
{
    uint64_t rounds = t_cases(300, 20000);
    struct t_rng rng = {t_seed()};
    const char *folder = t_tmpdir();
    struct vv_index *x = index_new(folder, 64);
    pthread_t t[3];

    shared_d = open_with(folder, 64 * DS_KIB, x);
    for (uintptr_t i = 0; i < 3; i++)
        T_EQ(pthread_create(&t[i], NULL, reader, (void *)(i + 1)), 0);
    for (uint64_t i = 1; i <= rounds || atomic_load(&opened) < 20; i++) {
        char path[] = {'/', (char)('a' + t_rng_below(&rng, PATHS)), '\0'};
        uint64_t size = 1 + t_rng_below(&rng, 20000);
        struct vv_dataset_gen gen = ds_gen((unsigned)i, size);
        int rc = ds_put(shared_d, path, (unsigned)i, size);

        T_CHECK(rc == 0 || rc == -ENOSPC);
        if (rc == 0)
            (void)show(shared_d, path, &gen, path);
        if (t_rng_below(&rng, 8) == 0)
            (void)vv_dataset_drop(shared_d, path);
        if (t_rng_below(&rng, 16) == 0)
            vv_index_enable(x, t_rng_below(&rng, 2) == 0);
        else
            vv_index_enable(x, true);
        vv_index_beat(x);
    }
    atomic_store(&done, true);
    for (int i = 0; i < 3; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
    vv_dataset_close(shared_d);
    index_free(x);
}

/* ---- one after the other ---- */

static _Atomic uint64_t looked;

/* Each result is of one index or of the other: both the size and the inode show which. */
static void *looker(void *arg)
{
    (void)arg;
    while (!atomic_load(&done)) {
        struct vvi_preload_name name = name_of("/a", false, VIEW);
        struct vv_server_stat st;

        if (!vvi_preload_index_stat(&name, &st))
            continue;
        T_CHECK(st.ino == ds_gen(1, 0).mtime_ns || st.ino == ds_gen(2, 0).mtime_ns);
        T_EQ(st.size, st.ino == ds_gen(1, 0).mtime_ns ? 100 : 200);
        T_EQ(st.blocks, st.size);
        T_EQ(st.btime.sec, (int64_t)st.size);
        atomic_fetch_add(&looked, 1);
    }
    return NULL;
}

/* The index of the next daemon replaces the old one while a client reads a slot, and both slots have the same sequence
 * number: the client never mixes words of both. */
static void test_replaced(void)
{
    uint64_t rounds = t_cases(3000, 100000);
    const char *folder = t_tmpdir();
    struct vv_index *former = NULL;
    struct vvi_entry e = {0};
    pthread_t t[2];

    atomic_store(&done, false);
    for (uint64_t i = 0; i < rounds || atomic_load(&looked) < 20; i++) {
        struct vv_dataset_gen gen = ds_gen(1 + (i & 1), 100 * (1 + (i & 1)));
        struct vv_server_stat st = stat_of(&gen);
        struct vv_index *x;

        st.blocks = gen.size;
        st.btime.sec = (int64_t)gen.size;
        T_OK(vv_index_new(folder, 64, &x));
        e.shown = 0;
        vvi_index_put(x, &e, "/a", &st, UINT64_MAX, true);
        map_index(x);
        for (int k = 0; k < 2 && !former; k++)
            T_EQ(pthread_create(&t[k], NULL, looker, NULL), 0);
        vv_index_free(former);
        former = x;
    }
    atomic_store(&done, true);
    for (int k = 0; k < 2; k++)
        T_EQ(pthread_join(t[k], NULL), 0);
    vv_index_free(former);
}

int main(void)
{
    T_RUN(test_shown);
    T_RUN(test_dead);
    T_RUN(test_evicted);
    T_RUN(test_crowded);
    T_RUN(test_bad);
    T_RUN(test_threads);
    T_RUN(test_replaced);
    return t_done();
}
