/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of the cache serialises writers. A writer makes a slot's sequence number odd before the words of the slot
 * change, and even afterwards. Readers accept only slots whose number they found even and unchanged. So a client
 * refuses a slot that was withdrawn before its second look. A slot that is withdrawn after that look does no harm: the
 * client has the file, as if the daemon had handed it out.
 *
 * Clients map the memory for reading. Once it is sealed they cannot map it for writing (our own mapping was made
 * before), and it cannot shrink under them. Clients may write the counters; these decide only what is evicted
 * first.
 */
#include "dataset/client_index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataset/client_index_private.h"
#include "dataset/dataset_private.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

typedef _Atomic uint64_t word;

struct vv_index {
    uint32_t nr_slots;
    int fd, read_fd, used_fd;
    struct vv_server_index *head; /* shared; then the slots */
    word *slots;
    _Atomic uint32_t *used; /* shared, and written by clients */
    /* Synchronization: the lock of the cache. */
    struct vvi_entry **whose; /* NULL: free */
    uint32_t *next;           /* the next slot of the same entry, plus one */
    uint32_t turn;
    uint64_t opened; /* by clients, up to the last harvest */
};

static word *slot_of(struct vv_index *x, uint32_t i)
{
    return x->slots + (size_t)i * VV_SERVER_SLOT_WORDS;
}

static size_t map_bytes(const struct vv_index *x)
{
    return sizeof(struct vv_server_index) +
           (size_t)x->nr_slots * VV_SERVER_SLOT_WORDS * sizeof(uint64_t);
}

/* ---- making it ---- */

static int share(const char *name, size_t bytes, int *ret_fd, void **ret_map)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *map;

    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    if (ftruncate(fd, (off_t)bytes) < 0)
        return -errno;
    map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    *ret_map = map;
    return 0;
}

static int make(struct vv_index *x)
{
    char link[40];
    void *map;
    int rc = share("varve index", map_bytes(x), &x->fd, &map);

    if (rc < 0)
        return rc;
    x->head = map;
    x->slots = (word *)(void *)(x->head + 1);
    rc = share("varve used", (size_t)x->nr_slots * sizeof(uint32_t), &x->used_fd, &map);
    if (rc < 0)
        return rc;
    x->used = map;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", x->fd);
    x->read_fd = open(link, O_RDONLY | O_CLOEXEC);
    if (x->read_fd < 0)
        return -errno;
    if (fcntl(x->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) <
            0 ||
        fcntl(x->used_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return errno == EINVAL ? -ENOSYS : -errno;
    return 0;
}

int vv_index_new(const char *folder, uint32_t slots, struct vv_index **ret_index)
{
    struct vv_index *x;
    int rc;

    if (folder[0] != '/' || slots == 0 || slots % VV_SERVER_WAYS != 0)
        return -EINVAL;
    if (strlen(folder) + VVI_DATASET_NAME + 1 >= 400)
        return -ENAMETOOLONG; /* clients have little room */
    x = calloc(1, sizeof(*x));
    if (!x)
        return -ENOMEM;
    x->nr_slots = slots;
    x->fd = x->read_fd = x->used_fd = -1;
    x->whose = calloc(slots, sizeof(*x->whose));
    x->next = calloc(slots, sizeof(*x->next));
    rc = x->whose && x->next ? make(x) : -ENOMEM;
    if (rc < 0) {
        vv_index_free(x);
        return rc;
    }
    x->head->version = VV_SERVER_VERSION;
    x->head->nr_slots = slots;
    x->head->folder_bytes = (uint32_t)strlen(folder);
    memcpy(x->head->folder, folder, strlen(folder));
    x->head->boot = (vv_now_ns() << 16 ^ (uint64_t)getpid()) | 1;
    x->head->magic = VV_SERVER_INDEX_MAGIC;
    vv_index_beat(x);
    vv_index_enable(x, true);
    *ret_index = x;
    return 0;
}

void vv_index_free(struct vv_index *x)
{
    if (!x)
        return;
    if (x->head) {
        vv_index_enable(x, false);
        munmap(x->head, map_bytes(x));
    }
    if (x->used)
        munmap((void *)(uintptr_t)x->used, (size_t)x->nr_slots * sizeof(uint32_t));
    if (x->fd >= 0)
        close(x->fd);
    if (x->read_fd >= 0)
        close(x->read_fd);
    if (x->used_fd >= 0)
        close(x->used_fd);
    free(x->whose);
    free(x->next);
    free(x);
}

void vv_index_fds(const struct vv_index *x, int ret_fds[2])
{
    ret_fds[0] = x->read_fd;
    ret_fds[1] = x->used_fd;
}

uint64_t vv_index_boot(const struct vv_index *x)
{
    return x->head->boot;
}

void vv_index_beat(struct vv_index *x)
{
    atomic_store_explicit((word *)(void *)&x->head->alive_ns, vv_now_ns(), memory_order_relaxed);
}

void vv_index_enable(struct vv_index *x, bool on)
{
    /* Sequentially consistent: a client whose second look comes after this store must see it, and must not use a file
     * of a fenced node. */
    atomic_store((word *)(void *)&x->head->enabled, on);
}

/* ---- entries ---- */

static void set(word *w, uint64_t value)
{
    atomic_store_explicit(w, value, memory_order_relaxed);
}

/* Makes a slot's sequence number odd. The words of the slot change after that. */
static void begin(word *s)
{
    set(&s[VV_SERVER_SLOT_SEQ],
        atomic_load_explicit(&s[VV_SERVER_SLOT_SEQ], memory_order_relaxed) + 1);
    atomic_thread_fence(memory_order_seq_cst);
}

/* Pairs with the acquiring load of clients. */
static void end(word *s)
{
    uint64_t seq = atomic_load_explicit(&s[VV_SERVER_SLOT_SEQ], memory_order_relaxed);

    atomic_store(&s[VV_SERVER_SLOT_SEQ], seq + 1);
}

static void empty(struct vv_index *x, uint32_t i)
{
    word *s = slot_of(x, i);

    begin(s);
    set(&s[VV_SERVER_SLOT_HASH], 0);
    set(&s[VV_SERVER_SLOT_UNTIL], 0);
    end(s);
    x->opened += atomic_exchange_explicit(&x->used[i], 0, memory_order_relaxed);
    x->whose[i] = NULL;
}

/* Takes one slot from its entry. */
static void take_away(struct vv_index *x, uint32_t i)
{
    struct vvi_entry *e = x->whose[i];
    uint32_t *at;

    if (!e)
        return;
    for (at = &e->shown; *at != i + 1; at = &x->next[*at - 1])
        ;
    *at = x->next[i];
    empty(x, i);
}

void vvi_index_withdraw(struct vv_index *x, struct vvi_entry *e)
{
    while (e->shown) {
        uint32_t i = e->shown - 1;

        e->shown = x->next[i];
        empty(x, i);
    }
}

static bool has_path(word *s, const char *path, size_t bytes)
{
    uint64_t words[VV_SERVER_SLOT_PATH_ROOM / 8];

    if (atomic_load_explicit(&s[VV_SERVER_SLOT_PATH_BYTES], memory_order_relaxed) != bytes)
        return false;
    for (size_t i = 0; i < VV_ARRAY_SIZE(words); i++)
        words[i] = atomic_load_explicit(&s[VV_SERVER_SLOT_PATH + i], memory_order_relaxed);
    return memcmp(words, path, bytes) == 0;
}

/* The slot of a path, or one that it can take. */
static uint32_t choose(struct vv_index *x, uint64_t hash, const char *path, size_t bytes)
{
    uint32_t first = (uint32_t)vv_server_set(hash, x->nr_slots), found = UINT32_MAX;

    for (uint32_t i = first; i < first + VV_SERVER_WAYS; i++) {
        word *s = slot_of(x, i);

        if (!x->whose[i])
            found = i;
        else if (atomic_load_explicit(&s[VV_SERVER_SLOT_HASH], memory_order_relaxed) == hash &&
                 has_path(s, path, bytes))
            return i;
    }
    return found != UINT32_MAX ? found : first + x->turn++ % VV_SERVER_WAYS;
}

void vvi_index_put(struct vv_index *x, struct vvi_entry *e, const char *path,
                   const struct vv_server_stat *stat, uint64_t until_ns, bool direct)
{
    uint64_t words[VV_SERVER_SLOT_WORDS] = {0};
    size_t bytes = strlen(path);
    uint64_t hash = vv_server_hash(path, bytes);
    uint32_t i;
    word *s;

    if (bytes > VV_SERVER_SLOT_PATH_ROOM)
        return;
    i = choose(x, hash, path, bytes);
    s = slot_of(x, i);
    if (x->whose[i] != e) {
        take_away(x, i);
        x->whose[i] = e;
        x->next[i] = e->shown;
        e->shown = i + 1;
    }
    words[VV_SERVER_SLOT_HASH] = hash;
    words[VV_SERVER_SLOT_ID] = e->id;
    words[VV_SERVER_SLOT_UNTIL] = until_ns;
    words[VV_SERVER_SLOT_PATH_BYTES] = bytes;
    words[VV_SERVER_SLOT_FLAGS] = direct ? VV_SERVER_DIRECT : 0;
    memcpy(&words[VV_SERVER_SLOT_STAT], stat, sizeof(*stat));
    memcpy(&words[VV_SERVER_SLOT_PATH], path, bytes);
    begin(s);
    for (size_t k = VV_SERVER_SLOT_HASH; k < VV_SERVER_SLOT_WORDS; k++)
        set(&s[k], words[k]);
    end(s);
}

uint64_t vvi_index_harvest(struct vv_index *x, void (*fn)(void *user, struct vvi_entry *e),
                           void *user)
{
    for (uint32_t i = 0; i < x->nr_slots; i++) {
        uint32_t times = atomic_load_explicit(&x->used[i], memory_order_relaxed);

        if (times == 0)
            continue;
        times = atomic_exchange_explicit(&x->used[i], 0, memory_order_relaxed);
        x->opened += times;
        if (x->whose[i])
            fn(user, x->whose[i]);
    }
    return x->opened;
}
