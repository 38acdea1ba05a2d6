/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of other nodes, in memory files that cannot change: they are sealed against writing, growing and shrinking
 * before the first descriptor is handed out. Each descriptor is an open file of its own, and read-only.
 *
 * The last files that were opened are kept, within `memory`: programs open labels and indexes again and again, on every
 * node. A kept file is valid for as long as its home's check of the shared file system is; after that the home is
 * asked, and confirms in a few bytes that the file is the same. Each kept file takes a descriptor and at least a page.
 * So small files are counted in pages, and their number is limited to a share of the descriptors that this process may
 * have. Files that were handed out do not count here: their memory is the programs', and lasts as long as they are
 * open.
 *
 * Files that were brought before a program asked for them (node_ahead.c) are kept apart until one does, in the order in
 * which they will be wanted. They take at most half of `memory`, and do not evict files that a program has opened. When
 * that half is full, a file is dropped if the order has passed the file's place by more than the number of files in
 * that half: programs that read in parallel do not keep the order exactly.
 *
 * memory.lock protects all of it; under it only files are opened and closed, which is short.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataset/node_private.h"

#define FILES_MIN 16
#define FILES_MAX 65536
#define PAGE      4096

struct vvi_memory_file {
    struct vvi_path path;
    struct vvi_memory_file *newer, *older;
    uint64_t place; /* VV_DATASET_UNKNOWN: in the list `used` */
    int fd;
    struct vv_shared_stat st;
    uint64_t looked_ns;
};

/* A thread is receiving this path. */
struct flight {
    struct vvi_path path;
    unsigned waiting;
    bool landed;
};

void vvi_node_memory_init(struct vv_node *n)
{
    struct rlimit limit;

    vv_mutex_init(&n->memory.lock, "memory", VV_RANK_STORE);
    vv_cond_init(&n->memory.landed);
    n->memory.max = FILES_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        n->memory.max = VV_MAX(VV_MIN(limit.rlim_cur / 4, FILES_MAX), FILES_MIN);
}

static uint64_t space_of(uint64_t size)
{
    return vv_align_up(VV_MAX(size, 1), PAGE);
}

static void free_file(struct vvi_path *e)
{
    close(((struct vvi_memory_file *)e)->fd);
    free(e);
}

static void free_flight(struct vvi_path *e)
{
    free(e);
}

void vvi_node_memory_fini(struct vv_node *n)
{
    vvi_paths_fini(&n->memory.files, free_file);
    vvi_paths_fini(&n->memory.flights, free_flight);
    vv_cond_fini(&n->memory.landed);
    vv_mutex_fini(&n->memory.lock);
}

/* Opens the same bytes again, read-only. */
static int reopen(int fd)
{
    char link[40];
    int file;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    file = open(link, O_RDONLY | O_CLOEXEC);
    return file < 0 ? -errno : file;
}

int vvi_node_memory_seal(int memfd, int *ret_fd)
{
    int fd;

    if (fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return -errno;
    fd = reopen(memfd);
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

/* ---- the list, by last use ---- */

static struct vvi_memory_list *list_of(struct vvi_memory *m, const struct vvi_memory_file *f)
{
    return f->place == VV_DATASET_UNKNOWN ? &m->used : &m->ahead;
}

static void unlink_locked(struct vvi_memory *m, struct vvi_memory_file *f)
{
    struct vvi_memory_list *l = list_of(m, f);

    *(f->newer ? &f->newer->older : &l->newest) = f->older;
    *(f->older ? &f->older->newer : &l->oldest) = f->newer;
    f->newer = f->older = NULL;
    l->bytes -= space_of(f->st.gen.size);
    l->nr--;
}

static void link_locked(struct vvi_memory *m, struct vvi_memory_file *f, uint64_t place)
{
    struct vvi_memory_list *l;

    f->place = place;
    l = list_of(m, f);
    f->older = l->newest;
    *(l->newest ? &l->newest->newer : &l->oldest) = f;
    l->newest = f;
    l->bytes += space_of(f->st.gen.size);
    l->nr++;
}

static void drop_locked(struct vvi_memory *m, struct vvi_memory_file *f)
{
    unlink_locked(m, f);
    vvi_paths_remove(&m->files, &f->path);
    close(f->fd);
    free(f);
}

/* With revalidate 0 the age of a file does not matter: the file is valid if the owner has a valid record of its path,
 * with the same generation. `known`: the state in that record, or NULL. */
static bool is_fresh(const struct vv_node *n, const struct vvi_memory_file *f,
                     const struct vv_shared_stat *known)
{
    if (n->opts.revalidate_ns == 0)
        return known && vvi_same_gen(&f->st.gen, &known->gen);
    return vv_now_ns() - f->looked_ns < n->opts.revalidate_ns;
}

int vvi_node_memory_get(struct vv_node *n, const char *path, int *ret_fd,
                        struct vv_shared_stat *ret_stat)
{
    struct vvi_memory *m = &n->memory;
    struct vvi_memory_file *f;
    struct vv_shared_stat st;
    bool known = n->opts.revalidate_ns == 0 && vv_owner_stat_now(n->owner, path, &st, NULL) == 0;
    int rc = -ENOENT;

    vv_mutex_lock(&m->lock);
    f = vvi_paths_find(&m->files, path);
    if (f) {
        *ret_stat = f->st;
        rc = is_fresh(n, f, known ? &st : NULL) ? reopen(f->fd) : -ESTALE;
        if (rc >= 0) {
            *ret_fd = rc;
            rc = 0;
        }
        unlink_locked(m, f);
        link_locked(m, f, VV_DATASET_UNKNOWN);
    }
    vv_mutex_unlock(&m->lock);
    return rc;
}

bool vvi_node_memory_awaits(struct vv_node *n, const char *path, uint64_t place)
{
    struct vvi_memory *m = &n->memory;
    struct vvi_memory_file *f;

    vv_mutex_lock(&m->lock);
    f = vvi_paths_find(&m->files, path);
    if (f && f->place == VV_DATASET_UNKNOWN) {
        unlink_locked(m, f);
        link_locked(m, f, place);
    }
    vv_mutex_unlock(&m->lock);
    return f;
}

/* True if the files brought ahead take less than so many sixteenths of the memory, and of the number of files. */
static bool has_room_locked(const struct vv_node *n, unsigned sixteenths)
{
    const struct vvi_memory *m = &n->memory;

    return m->ahead.bytes < n->opts.memory / 16 * sixteenths &&
           m->ahead.nr < m->max / 16 * sixteenths;
}

static void drop_passed_locked(struct vv_node *n)
{
    struct vvi_memory *m = &n->memory;
    struct vvi_memory_file *f;

    while (!has_room_locked(n, 8) && (f = m->ahead.oldest) && f->place + m->ahead.nr < m->passed)
        drop_locked(m, f);
}

unsigned vvi_node_memory_room(struct vv_node *n)
{
    struct vvi_memory_list *l = &n->memory.ahead;
    uint64_t room = 0;

    vv_mutex_lock(&n->memory.lock);
    drop_passed_locked(n);
    if (has_room_locked(n, 8))
        room = 1 + (l->nr ? (n->opts.memory / 2 - l->bytes) * l->nr / l->bytes : 0);
    vv_mutex_unlock(&n->memory.lock);
    return (unsigned)VV_MIN(room, (uint64_t)UINT32_MAX);
}

bool vvi_node_memory_passed(struct vv_node *n, uint64_t place, bool *ret_empty)
{
    struct vvi_memory *m = &n->memory;
    bool room;

    vv_mutex_lock(&m->lock);
    m->passed = VV_MAX(m->passed, place);
    drop_passed_locked(n);
    room = has_room_locked(n, 6);
    *ret_empty = m->ahead.nr == 0;
    vv_mutex_unlock(&m->lock);
    return room;
}

int vvi_node_memory_get_gen(struct vv_node *n, const char *path, const struct vv_dataset_gen *gen,
                            int *ret_fd)
{
    struct vvi_memory *m = &n->memory;
    struct vvi_memory_file *f;
    int fd = -ENOENT;

    vv_mutex_lock(&m->lock);
    f = vvi_paths_find(&m->files, path);
    if (f && vvi_same_gen(&f->st.gen, gen))
        fd = reopen(f->fd);
    vv_mutex_unlock(&m->lock);
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

static bool has_space_locked(const struct vv_node *n, uint64_t space)
{
    const struct vvi_memory *m = &n->memory;

    return m->used.bytes + m->ahead.bytes + space <= n->opts.memory &&
           m->used.nr + m->ahead.nr < m->max;
}

void vvi_node_memory_put(struct vv_node *n, const char *path, int memfd,
                         const struct vv_shared_stat *st, uint64_t age_ns, uint64_t place)
{
    struct vvi_memory *m = &n->memory;
    struct vvi_memory_file *f, *old;
    uint64_t space = space_of(st->gen.size);
    int fd;

    /* One file must not evict all others. */
    if (space > n->opts.memory / 2)
        return;
    f = calloc(1, sizeof(*f));
    fd = f ? reopen(memfd) : -1;
    if (fd < 0) {
        free(f);
        return;
    }
    f->fd = fd;
    f->st = *st;
    f->looked_ns = vv_now_ns() - age_ns;
    vv_mutex_lock(&m->lock);
    old = vvi_paths_find(&m->files, path);
    if (old)
        drop_locked(m, old);
    while (m->used.oldest && !has_space_locked(n, space))
        drop_locked(m, m->used.oldest);
    if (has_space_locked(n, space) && vvi_paths_add(&m->files, path, &f->path) == 0) {
        link_locked(m, f, place);
        f = NULL;
    }
    vv_mutex_unlock(&m->lock);
    if (f) {
        close(f->fd);
        free(f);
    }
}

void vvi_node_memory_heard(struct vv_node *n, const char *path, const struct vv_shared_stat *st,
                           uint64_t age_ns)
{
    struct vvi_memory *m = &n->memory;
    uint64_t then_ns = vv_now_ns() - age_ns;
    struct vvi_memory_file *f;

    vv_mutex_lock(&m->lock);
    f = vvi_paths_find(&m->files, path);
    if (f && vvi_same_gen(&f->st.gen, &st->gen) && (int64_t)(then_ns - f->looked_ns) > 0)
        f->looked_ns = then_ns;
    vv_mutex_unlock(&m->lock);
}

void vvi_node_memory_drop(struct vv_node *n, const char *path)
{
    struct vvi_memory_file *f;

    vv_mutex_lock(&n->memory.lock);
    f = vvi_paths_find(&n->memory.files, path);
    if (f)
        drop_locked(&n->memory, f);
    vv_mutex_unlock(&n->memory.lock);
}

void vvi_node_memory_drop_all(struct vv_node *n)
{
    vv_mutex_lock(&n->memory.lock);
    while (n->memory.used.oldest)
        drop_locked(&n->memory, n->memory.used.oldest);
    while (n->memory.ahead.oldest)
        drop_locked(&n->memory, n->memory.ahead.oldest);
    vv_mutex_unlock(&n->memory.lock);
}

/* ---- one at a time ---- */

bool vvi_node_memory_flies(struct vv_node *n, const char *path)
{
    bool flies;

    vv_mutex_lock(&n->memory.lock);
    flies = vvi_paths_find(&n->memory.flights, path);
    vv_mutex_unlock(&n->memory.lock);
    return flies;
}

bool vvi_node_memory_fly(struct vv_node *n, const char *path, uint64_t until_ns)
{
    struct vvi_memory *m = &n->memory;
    struct flight *f, *mine;
    bool first = false;
    int rc = 0;

    mine = calloc(1, sizeof(*mine));
    vv_mutex_lock(&m->lock);
    f = vvi_paths_find(&m->flights, path);
    if (!f) {
        /* Without memory for the flight, another thread may receive the same file, which does no harm. */
        if (mine && vvi_paths_add(&m->flights, path, &mine->path) == 0)
            mine = NULL;
        first = true;
    } else {
        f->waiting++;
        while (!f->landed && rc == 0)
            rc = vv_cond_wait_until(&m->landed, &m->lock, until_ns);
        f->waiting--;
        /* It left the table when it landed; the last thread that waited frees it. */
        if (f->landed && f->waiting == 0)
            free(f);
    }
    vv_mutex_unlock(&m->lock);
    free(mine);
    return first;
}

void vvi_node_memory_land(struct vv_node *n, const char *path)
{
    struct vvi_memory *m = &n->memory;
    struct flight *f;

    vv_mutex_lock(&m->lock);
    f = vvi_paths_find(&m->flights, path);
    if (f) {
        vvi_paths_remove(&m->flights, &f->path);
        f->landed = true;
        if (f->waiting == 0)
            free(f);
        else
            vv_cond_broadcast(&m->landed);
    }
    vv_mutex_unlock(&m->lock);
}
