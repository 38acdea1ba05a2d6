/* SPDX-License-Identifier: Apache-2.0 */
/* A bandwidth budget in shared memory.
 *
 * One shared memory object per user holds a table of folders, keyed by device and inode, and of
 * disks, keyed by device. It stays until the machine reboots, as files in /dev/shm do: some 64
 * KiB, because no process can tell that it is the last user. In a full table an entry is reused
 * if all its times are past, since it then carries no information. A process that was using the
 * entry sees another key and searches again. Nothing in the table is locked: numbers left by a
 * killed process expire.
 *
 *   free_ns    the time at which all booked transfers will be over, at their rates. A flush begins
 *              at that time and makes it later by its own length; a restore begins at once, and also
 *              makes it later. A process that dies leaves at most the time of one booking, and no
 *              booking counts for longer than BOOKED_MAX.
 *   restoring  slots, of which each process uses one: the time until which the process counts as
 *              restoring. Every read for a restore sets that time a little ahead. Two processes that
 *              share a slot see each other's restores as their own, and so do not yield to them.
 *
 * Flushes yield to restores of other processes; the engine of a process orders its own transfers.
 * They yield for a few milliseconds each time and then go on, so that no flush is starved. */
#define _GNU_SOURCE
#include "store/budget.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"

enum { FOLDERS = 128, PLACES = 62 };
#define RESTORING_NS (20 * VV_NS_PER_MS)
#define YIELD_NS     (5 * VV_NS_PER_MS)
#define BOOKED_MAX   (60 * VV_NS_PER_S)

/* Synchronization: relaxed atomics. Each number is independent of the others. */
struct folder_budget {
    _Atomic uint64_t key; /* 0: free */
    _Atomic uint64_t free_ns;
    _Atomic uint64_t restoring[PLACES];
};

struct table {
    struct folder_budget folder[FOLDERS];
};

struct vv_budget {
    struct table *table; /* owned mapping; immutable, as are the next two */
    uint64_t key;
    unsigned place;
    /* Synchronization: relaxed; any thread may search again. */
    struct folder_budget *_Atomic folder;
};

static struct table *map_shared(const char *name)
{
    char usual[64];
    struct stat st;
    snprintf(usual, sizeof(usual), "/varve-budget-1-%u", (unsigned)getuid());
    int fd = shm_open(name ? name : usual, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return NULL;
    /* Growing a file to the size it has changes nothing, so several processes may do it at once.
     * Blocks are allocated here; otherwise the first access could raise SIGBUS when memory is
     * short. */
    void *mem = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_uid == getuid() &&
        posix_fallocate(fd, 0, (off_t)sizeof(struct table)) == 0)
        mem = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return mem == MAP_FAILED ? NULL : mem;
}

/* True if nothing is booked and no process restores. */
static bool is_idle(const struct folder_budget *f, uint64_t now_ns)
{
    bool idle = atomic_load_explicit(&f->free_ns, memory_order_relaxed) <= now_ns;
    for (unsigned i = 0; idle && i < PLACES; i++)
        idle = atomic_load_explicit(&f->restoring[i], memory_order_relaxed) <= now_ns;
    return idle;
}

/* The slot of a folder in the table. If the table is full, two folders may share one. */
static struct folder_budget *find_folder(struct table *table, uint64_t key, uint64_t now_ns)
{
    for (unsigned i = 0; i < FOLDERS; i++) {
        struct folder_budget *f = &table->folder[(key + i) % FOLDERS];
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&f->key, &there, key) || there == key)
            return f;
    }
    for (unsigned i = 0; i < FOLDERS; i++) {
        struct folder_budget *f = &table->folder[(key + i) % FOLDERS];
        uint64_t there = atomic_load(&f->key);
        if (there == key ||
            (is_idle(f, now_ns) &&
             (atomic_compare_exchange_strong(&f->key, &there, key) || there == key)))
            return f;
    }
    return &table->folder[key % FOLDERS];
}

static struct folder_budget *folder_of(struct vv_budget *b, uint64_t now_ns)
{
    struct folder_budget *f = atomic_load_explicit(&b->folder, memory_order_relaxed);
    if (atomic_load_explicit(&f->key, memory_order_relaxed) == b->key)
        return f;
    f = find_folder(b->table, b->key, now_ns);
    atomic_store_explicit(&b->folder, f, memory_order_relaxed);
    return f;
}

int vv_budget_new(const char *path, enum vv_budget_of what, const char *name,
                  struct vv_budget **ret_budget)
{
    struct stat st = {0};
    struct vv_budget *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    b->table = map_shared(name);
    if (!b->table) {
        void *mem = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mem == MAP_FAILED) {
            free(b);
            return -ENOMEM;
        }
        b->table = mem;
    }
    (void)stat(path, &st);
    uint64_t id[2] = {(uint64_t)st.st_dev, what == VV_BUDGET_FOLDER ? (uint64_t)st.st_ino : 0};
    b->key = vv_hash64(id, sizeof(id)) | 1;
    atomic_init(&b->folder, find_folder(b->table, b->key, vv_now_ns()));
    b->place = (unsigned)getpid() % PLACES;
    *ret_budget = b;
    return 0;
}

void vv_budget_free(struct vv_budget *b)
{
    if (!b)
        return;
    munmap(b->table, sizeof(struct table));
    free(b);
}

static uint64_t cost_ns(uint64_t bytes, uint64_t bytes_per_s)
{
    return (uint64_t)((double)bytes / (double)bytes_per_s * 1e9);
}

uint64_t vv_budget_book_flush(struct vv_budget *b, uint64_t bytes, uint64_t bytes_per_s,
                              uint64_t now_ns)
{
    if (bytes_per_s == 0)
        return now_ns;
    uint64_t cost = cost_ns(bytes, bytes_per_s);
    struct folder_budget *f = folder_of(b, now_ns);
    uint64_t free_ns = atomic_load_explicit(&f->free_ns, memory_order_relaxed), begin;
    do
        begin = free_ns > now_ns && free_ns <= now_ns + BOOKED_MAX ? free_ns : now_ns;
    while (!atomic_compare_exchange_weak_explicit(&f->free_ns, &free_ns, begin + cost,
                                                  memory_order_relaxed, memory_order_relaxed));
    return begin;
}

void vv_budget_unbook_flush(struct vv_budget *b, uint64_t bytes, uint64_t bytes_per_s,
                            uint64_t now_ns)
{
    if (bytes_per_s == 0)
        return;
    uint64_t cost = cost_ns(bytes, bytes_per_s);
    struct folder_budget *f = folder_of(b, now_ns);
    uint64_t free_ns = atomic_load_explicit(&f->free_ns, memory_order_relaxed), back;
    do
        back = free_ns > now_ns + cost ? free_ns - cost : VV_MIN(free_ns, now_ns);
    while (!atomic_compare_exchange_weak_explicit(&f->free_ns, &free_ns, back, memory_order_relaxed,
                                                  memory_order_relaxed));
}

void vv_budget_book_restore(struct vv_budget *b, uint64_t bytes, uint64_t bytes_per_s,
                            uint64_t now_ns)
{
    struct folder_budget *f = folder_of(b, now_ns);
    atomic_store_explicit(&f->restoring[b->place], now_ns + RESTORING_NS, memory_order_relaxed);
    (void)vv_budget_book_flush(b, bytes, bytes_per_s, now_ns);
}

uint64_t vv_budget_yield_until(struct vv_budget *b, uint64_t now_ns)
{
    const struct folder_budget *f = folder_of(b, now_ns);
    for (unsigned i = 0; i < PLACES; i++) {
        uint64_t until = atomic_load_explicit(&f->restoring[i], memory_order_relaxed);
        if (i != b->place && until > now_ns && until <= now_ns + RESTORING_NS)
            return now_ns + YIELD_NS;
    }
    return 0;
}
