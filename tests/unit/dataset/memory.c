/* SPDX-License-Identifier: Apache-2.0 */
/* Files of other nodes in memory, from the inside: an invalidation in the one moment in which it could be missed, a
 * newer generation, files that were brought before they were requested, and many threads that wait for one file. */
#include "dataset/node_private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "t.h"

static void put_late(struct vv_node *n, const char *path, int memfd,
                     const struct vv_shared_stat *st, uint64_t age_ns, uint64_t place);

/* The sources themselves, with a hook where a file enters memory. */
#include "dataset/node_memory.c"
#define vvi_node_memory_put put_late
#include "dataset/node_get.c"
#undef vvi_node_memory_put

#define WAITING 3
#define PATHS   2
#define LIMIT_S 30

static bool overtake; /* the next file that enters memory is changed just before */

static void put_late(struct vv_node *n, const char *path, int memfd,
                     const struct vv_shared_stat *st, uint64_t age_ns, uint64_t place)
{
    if (overtake)
        T_OK(vv_node_invalidate(n, path, VV_NEVER_NS));
    vvi_node_memory_put(n, path, memfd, st, age_ns, place);
}

static struct vv_node *open_node(char root[512], uint64_t revalidate_ns)
{
    struct vv_node_opts o = {.name = "one",
                             .dataset = {.capacity = 1 << 20},
                             .nr_roots = 1,
                             .mode = VV_NODE_RECACHE,
                             .place = {.scheme = VV_PLACE_HRW},
                             .memory = 1 << 20,
                             .memory_file = 1 << 20,
                             .revalidate_ns = revalidate_ns};
    const char *roots[1] = {root};
    struct vv_node *n;
    char err[512];

    snprintf(root, 512, "%s", t_tmpdir());
    o.folder = t_tmpdir();
    o.roots = roots;
    if (vv_node_open(&o, err, sizeof(err), &n) < 0)
        t_fail(__FILE__, __LINE__, "%s", err);
    return n;
}

/* Adds a file as if another node had sent it: to a program, or before one requests it, which will happen at `place`. */
static void arrive(struct vv_node *n, const char *path, uint64_t place)
{
    struct want w = {
        .n = n, .path = path, .ahead = place != VV_DATASET_UNKNOWN, .place = place, .fd = -1};
    struct vvi_got got = {.what = VVI_GOT_FILE, .st = {.gen = {4, 1, 2, 3}, .mode = 0100644}};
    int keep = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING), fd;

    T_CHECK(keep >= 0);
    T_EQ(write(keep, "abcd", 4), 4);
    T_OK(vvi_node_memory_seal(keep, &fd));
    w.changes = vv_owner_changes(n->owner, path);
    take_file(&w, &got, fd, keep);
    T_EQ(w.fd, fd);
    close(fd);
}

/* A file is changed after it was found valid and before it enters memory: it does not stay there. */
static void overtaken(void)
{
    char root[512], path[600];
    struct vv_node *n = open_node(root, 3600 * VV_NS_PER_S);
    struct vv_shared_stat st;
    int fd;

    snprintf(path, sizeof(path), "%s/f", root);
    arrive(n, path, VV_DATASET_UNKNOWN);
    T_OK(vvi_node_memory_get(n, path, &fd, &st));
    close(fd);
    overtake = true;
    snprintf(path, sizeof(path), "%s/g", root);
    arrive(n, path, VV_DATASET_UNKNOWN);
    overtake = false;
    T_ERR(vvi_node_memory_get(n, path, &fd, &st), -ENOENT);
    vv_node_close(n);
}

/* The owner has a report of another generation since: the one in memory is not valid any more. */
static void other_generation(void)
{
    struct vv_shared_stat st, newer = {.gen = {4, 5, 6, 7}, .mode = 0100644};
    char root[512], path[600];
    struct vv_node *n = open_node(root, 0);
    int fd;

    snprintf(path, sizeof(path), "%s/f", root);
    arrive(n, path, VV_DATASET_UNKNOWN);
    T_OK(vvi_node_memory_get(n, path, &fd, &st));
    close(fd);
    T_CHECK(vv_owner_heard(n->owner, path, vv_owner_changes(n->owner, path), &newer, 0));
    T_ERR(vvi_node_memory_get(n, path, &fd, &st), -ESTALE);
    vv_node_close(n);
}

/* The file at this place of the order, as a program opens it. */
static void open_at(struct vv_node *n, uint64_t place)
{
    struct vv_shared_stat st;
    char path[32];
    int fd;

    snprintf(path, sizeof(path), "/%llu", (unsigned long long)place);
    T_OK(vvi_node_memory_get(n, path, &fd, &st));
    close(fd);
}

/* Brings files, from `place` on, until there is no room for more. Returns the place after them. */
static uint64_t bring_all(struct vv_node *n, uint64_t place)
{
    for (; vvi_node_memory_room(n) > 0; place++) {
        char path[32];

        snprintf(path, sizeof(path), "/%llu", (unsigned long long)place);
        arrive(n, path, place);
    }
    return place;
}

/* A file that a program has opened makes room for the next one that will be wanted, and stays. */
static void opened_make_room(void)
{
    char root[512];
    struct vv_node *n = open_node(root, 3600 * VV_NS_PER_S);
    uint64_t end = bring_all(n, 0);

    T_CHECK(end > 1);
    for (uint64_t i = 0; i < end; i++) {
        open_at(n, i);
        T_EQ(bring_all(n, end + i), end + i + 1);
    }
    for (uint64_t i = 0; i < 2 * end; i++)
        open_at(n, i);
    vv_node_close(n);
}

struct waiter {
    struct vv_node *n;
    const char *path;
    pthread_t thread;
    atomic_bool back;
};

static void *wait_for(void *arg)
{
    struct waiter *w = arg;

    T_CHECK(!vvi_node_memory_fly(w->n, w->path, VV_NEVER_NS));
    atomic_store(&w->back, true);
    return NULL;
}

static unsigned waiting_for(struct vv_node *n, const char *path)
{
    struct flight *f;
    unsigned nr;

    vv_mutex_lock(&n->memory.lock);
    f = vvi_paths_find(&n->memory.flights, path);
    nr = f ? f->waiting : 0;
    vv_mutex_unlock(&n->memory.lock);
    return nr;
}

/* A file lands: all threads that wait for it continue, and one that waits for another file does not. */
static void all_go_on(void)
{
    static const char *const paths[PATHS] = {"/a", "/b"};
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S;
    struct waiter w[PATHS][WAITING] = {0};
    char root[512];
    struct vv_node *n = open_node(root, 3600 * VV_NS_PER_S);

    for (unsigned p = 0; p < PATHS; p++) {
        T_CHECK(vvi_node_memory_fly(n, paths[p], VV_NEVER_NS));
        for (unsigned i = 0; i < WAITING; i++) {
            w[p][i].n = n;
            w[p][i].path = paths[p];
            T_EQ(pthread_create(&w[p][i].thread, NULL, wait_for, &w[p][i]), 0);
        }
        while (waiting_for(n, paths[p]) < WAITING)
            usleep(1000);
    }
    for (unsigned p = 0; p < PATHS; p++) {
        vvi_node_memory_land(n, paths[p]);
        for (unsigned i = 0; i < WAITING; i++) {
            while (!atomic_load(&w[p][i].back)) {
                T_CHECK(vv_now_ns() < limit_ns);
                usleep(1000);
            }
            pthread_join(w[p][i].thread, NULL);
        }
        for (unsigned i = 0; i < WAITING && p == 0; i++)
            T_CHECK(!atomic_load(&w[1][i].back));
    }
    vv_node_close(n);
}

int main(void)
{
    T_RUN(overtaken);
    T_RUN(other_generation);
    T_RUN(opened_make_room);
    T_RUN(all_go_on);
    return t_done();
}
