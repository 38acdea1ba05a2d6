/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that the daemon lets this process open itself. Its index is memory that this process can read. A file in the
 * index is opened in the folder of the cache and gets the lock that keeps it there; it is valid if it is still in the
 * index after that. All other files are requested from the daemon: the index shows where files are, never that they
 * are missing.
 *
 * A daemon that has ended or is frozen does not mark itself alive any more, and its index is not used. The next
 * connection brings another index, which is mapped over the old one. A thread that is reading then may find words of
 * both, under a sequence number that happens to be the same in both. So the identity of the index is compared as
 * well, before and after.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/preload.h"

typedef _Atomic uint64_t word;

/* Address of the index, which never changes. Synchronization: stored with release, before `boot`. */
static _Atomic(struct vv_server_index *) head;
static _Atomic(_Atomic uint32_t *) used;
/* Identity of the mapped index, combined with the view of the file system; 0: none may be used. */
static _Atomic uint64_t boot;
static atomic_uint mapped_view;
static uint32_t mapped_slots; /* immutable once there is a head */
static atomic_bool mapping;   /* a thread is mapping it */

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

uint64_t vvi_preload_index_mapped(void)
{
    return atomic_load_explicit(&boot, memory_order_acquire);
}

static size_t bytes_of(uint32_t slots)
{
    return sizeof(struct vv_server_index) + (size_t)slots * VV_SERVER_SLOT_WORDS * sizeof(uint64_t);
}

/* A thread may read the old mapping meanwhile. Replacing it is no memory access, so there is nothing to order. */
static void *map(void *at, size_t bytes, int protection, int fd)
{
    long p = syscall(SYS_mmap, at, bytes, protection, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0L);

    return p == -1 ? MAP_FAILED : (void *)p;
}

/* Maps both pieces: at new addresses, or over the old mapping. */
static bool map_pieces(const int fds[2], uint32_t slots)
{
    struct vv_server_index *was = atomic_load_explicit(&head, memory_order_relaxed);
    _Atomic uint32_t *was_used = atomic_load_explicit(&used, memory_order_relaxed);
    void *a, *b;

    if (was && slots != mapped_slots)
        return false;
    a = map(was, bytes_of(slots), PROT_READ, fds[0]);
    if (a == MAP_FAILED)
        return false;
    b = map((void *)(uintptr_t)was_used, (size_t)slots * sizeof(uint32_t), PROT_READ | PROT_WRITE,
            fds[1]);
    if (b == MAP_FAILED) {
        if (!was)
            munmap(a, bytes_of(slots));
        return false;
    }
    if (!was)
        mapped_slots = slots;
    atomic_store_explicit(&used, b, memory_order_release);
    atomic_store_explicit(&head, a, memory_order_release);
    return true;
}

void vvi_preload_index_map(const int fds[2], unsigned view)
{
    struct vv_server_index *peek;
    struct stat st;
    bool was = false;

    if (!atomic_compare_exchange_strong_explicit(&mapping, &was, true, memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    atomic_store_explicit(&boot, 0, memory_order_release);
    /* Check the header against the file's size: it cannot shrink, but it could be another file. */
    peek = mmap(NULL, sizeof(*peek), PROT_READ, MAP_SHARED, fds[0], 0);
    if (peek != MAP_FAILED) {
        uint32_t slots = peek->nr_slots;

        if (peek->magic == VV_SERVER_INDEX_MAGIC && peek->version == VV_SERVER_VERSION &&
            slots > 0 && slots % VV_SERVER_WAYS == 0 && slots <= (1u << 24) &&
            peek->folder[0] == '/' && peek->folder_bytes < 400 &&
            syscall(SYS_fstat, fds[0], &st) == 0 && (uint64_t)st.st_size == bytes_of(slots) &&
            syscall(SYS_fstat, fds[1], &st) == 0 &&
            (uint64_t)st.st_size == (uint64_t)slots * sizeof(uint32_t) && map_pieces(fds, slots)) {
            atomic_store_explicit(&mapped_view, view, memory_order_relaxed);
            atomic_store_explicit(&boot, peek->boot, memory_order_release);
        }
        munmap(peek, sizeof(*peek));
    }
    atomic_store_explicit(&mapping, false, memory_order_release);
}

/* ---- looking ---- */

struct found {
    word *slot;
    uint32_t number;
    uint64_t boot; /* of the index that the slot is in */
    uint64_t seq, id;
    struct vv_server_stat stat;
};

static uint64_t get(word *w)
{
    return atomic_load_explicit(w, memory_order_relaxed);
}

/* True if the slot is unchanged, in the same index, and the daemon is alive. Another index may replace this one at any
 * moment, but this one never comes back: if it is mapped at the end, it was mapped all the time. */
static bool still(struct vv_server_index *x, const struct found *f)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&f->slot[VV_SERVER_SLOT_SEQ], memory_order_acquire) == f->seq &&
           atomic_load_explicit((word *)(void *)&x->enabled, memory_order_acquire) != 0 &&
           get((word *)(void *)&x->boot) == f->boot;
}

/* Reads a slot if it belongs to this path. */
static bool read_slot(const struct vvi_preload_name *name, uint64_t now, struct found *f)
{
    uint64_t words[8];

    f->seq = atomic_load_explicit(&f->slot[VV_SERVER_SLOT_SEQ], memory_order_acquire);
    if ((f->seq & 1) || get(&f->slot[VV_SERVER_SLOT_HASH]) != name->hash ||
        get(&f->slot[VV_SERVER_SLOT_PATH_BYTES]) != name->bytes ||
        get(&f->slot[VV_SERVER_SLOT_UNTIL]) <= now)
        return false;
    if (name->nofollow && !(get(&f->slot[VV_SERVER_SLOT_FLAGS]) & VV_SERVER_DIRECT))
        return false;
    for (size_t at = 0; at < name->bytes; at += sizeof(words)) {
        size_t n = name->bytes - at < sizeof(words) ? name->bytes - at : sizeof(words);

        for (size_t i = 0; i < (n + 7) / 8; i++)
            words[i] = get(&f->slot[VV_SERVER_SLOT_PATH + at / 8 + i]);
        if (memcmp(words, name->path + at, n) != 0)
            return false;
    }
    f->id = get(&f->slot[VV_SERVER_SLOT_ID]);
    for (size_t i = 0; i < sizeof(f->stat) / 8; i++) {
        uint64_t value = get(&f->slot[VV_SERVER_SLOT_STAT + i]);

        memcpy((char *)&f->stat + i * 8, &value, 8);
    }
    return true;
}

static struct vv_server_index *look(const struct vvi_preload_name *name, struct found *f)
{
    uint64_t now = now_ns();
    struct vv_server_index *x;
    uint32_t first;

    if (atomic_load_explicit(&boot, memory_order_acquire) == 0 ||
        name->bytes > VV_SERVER_SLOT_PATH_ROOM ||
        atomic_load_explicit(&mapped_view, memory_order_relaxed) != name->view)
        return NULL;
    x = atomic_load_explicit(&head, memory_order_acquire);
    /* Read before all other words. */
    f->boot = atomic_load_explicit((word *)(void *)&x->boot, memory_order_acquire);
    if (now > get((word *)(void *)&x->alive_ns) + VV_SERVER_ALIVE_NS)
        return NULL;
    first = (uint32_t)vv_server_set(name->hash, mapped_slots);
    /* The slots lie far apart, and most likely in no cache: prefetch all of them at once. */
    for (uint32_t i = first; i < first + VV_SERVER_WAYS; i++)
        __builtin_prefetch((const char *)(x + 1) +
                           (size_t)i * VV_SERVER_SLOT_WORDS * sizeof(uint64_t));
    for (uint32_t i = first; i < first + VV_SERVER_WAYS; i++) {
        f->number = i;
        f->slot = (word *)(void *)(x + 1) + (size_t)i * VV_SERVER_SLOT_WORDS;
        if (read_slot(name, now, f) && still(x, f))
            return x;
    }
    return NULL;
}

/* "FOLDER/0123456789abcdef.data" */
static void content_of(const struct vv_server_index *x, uint64_t id, char name[500])
{
    static const char digits[] = "0123456789abcdef";
    size_t n = x->folder_bytes < 400 ? x->folder_bytes : 0;

    memcpy(name, x->folder, n);
    name[n++] = '/';
    for (int shift = 60; shift >= 0; shift -= 4)
        name[n++] = digits[id >> shift & 15];
    memcpy(name + n, ".data", 6);
}

bool vvi_preload_index_stat(const struct vvi_preload_name *name, struct vv_server_stat *ret_stat)
{
    struct found f;

    if (!look(name, &f))
        return false;
    *ret_stat = f.stat;
    return true;
}

bool vvi_preload_index_open(const struct vvi_preload_name *name, bool cloexec,
                            struct vvi_preload_answer *ret_answer)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    struct vv_server_index *x;
    _Atomic uint32_t *count;
    char content[500];
    struct found f;
    struct stat st;
    int fd;

    x = look(name, &f);
    if (!x)
        return false;
    /* Other processes count here too, perhaps on another core: prefetch the line during the open. */
    count = &atomic_load_explicit(&used, memory_order_relaxed)[f.number];
    __builtin_prefetch((const void *)(uintptr_t)count, 1);
    content_of(x, f.id, content);
    fd = (int)syscall(SYS_openat, AT_FDCWD, content,
                      O_RDONLY | (name->nofollow ? O_NOFOLLOW : 0) | (cloexec ? O_CLOEXEC : 0));
    if (fd < 0)
        return false;
    /* Removed, being removed, or of another daemon: the caller asks the daemon. */
    if (syscall(SYS_fcntl, fd, F_OFD_SETLK, &lock) < 0 || syscall(SYS_fstat, fd, &st) < 0 ||
        st.st_nlink != 1 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != f.stat.size ||
        !still(x, &f)) {
        syscall(SYS_close, fd);
        return false;
    }
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    ret_answer->fd = fd;
    ret_answer->real = st;
    ret_answer->stat = f.stat;
    return true;
}
