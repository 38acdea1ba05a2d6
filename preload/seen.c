/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The originals of descriptors. The key of the table is not the descriptor number, which may be closed, reused or
 * duplicated without a hook, but the kernel's stat of the open file: device, inode, time of change and size. So a
 * number that belongs to another file by now is not mistaken for the copy. A file that is not in the table, because
 * another program opened it or because the table was full, has a mark (server_wire.h): content files as an attribute,
 * memory files in their names.
 *
 * A thread that makes the sequence of an entry odd may write it; a thread that finds it even and unchanged may use
 * what it read. No thread waits: a writer that is not first writes nothing, and a reader that fails uses the mark.
 *
 * Files that this process has changed are one bit for the path and one for the inode, by their hashes. If two files
 * share a bit, the second one is read from the shared file system.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/preload.h"

#define SETS 512
#define WAYS 8
#define BITS (1u << 18)

struct key {
    uint64_t dev, ino, size, ctime_sec, ctime_nsec;
};

#define WORDS ((sizeof(struct key) + sizeof(struct vv_server_stat)) / sizeof(uint64_t))

struct entry {
    /* Odd: a thread is writing. */
    _Atomic uint64_t seq;
    /* struct key, then struct vv_server_stat. Synchronization: seq. */
    _Atomic uint64_t word[WORDS];
};

static struct entry table[SETS][WAYS];
/* Synchronization: relaxed. A call that set a bit is ordered before later calls by the program, or runs beside them. */
static _Atomic uint64_t written[BITS / 64];

static struct key key_of(const struct stat *st)
{
    return (struct key){(uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_size,
                        (uint64_t)st->st_ctim.tv_sec, (uint64_t)st->st_ctim.tv_nsec};
}

static struct entry *set_of(const struct key *k)
{
    return table[((k->ino ^ k->dev) * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & (SETS - 1)];
}

/* Copies an entry. False: it was being written. */
static bool read_entry(struct entry *e, uint64_t *words)
{
    /* Pairs with the release in write_entry. */
    uint64_t seq = atomic_load_explicit(&e->seq, memory_order_acquire);

    if (seq == 0 || (seq & 1))
        return false;
    for (size_t i = 0; i < WORDS; i++)
        words[i] = atomic_load_explicit(&e->word[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&e->seq, memory_order_relaxed) == seq;
}

static bool write_entry(struct entry *e, const uint64_t *words)
{
    uint64_t seq = atomic_load_explicit(&e->seq, memory_order_relaxed);

    if ((seq & 1) || !atomic_compare_exchange_strong_explicit(
                         &e->seq, &seq, seq + 1, memory_order_acquire, memory_order_relaxed))
        return false;
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < WORDS; i++)
        atomic_store_explicit(&e->word[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&e->seq, seq + 2, memory_order_release);
    return true;
}

/* Compares device and inode only: most entries differ, and need not be copied. */
static bool is_of(struct entry *e, const struct key *k)
{
    return atomic_load_explicit(&e->word[offsetof(struct key, ino) / sizeof(uint64_t)],
                                memory_order_relaxed) == k->ino &&
           atomic_load_explicit(&e->word[offsetof(struct key, dev) / sizeof(uint64_t)],
                                memory_order_relaxed) == k->dev;
}

void vvi_preload_saw(const struct stat *real, const struct vv_server_stat *original)
{
    /* Chooses an entry of a full set, in turn. Synchronization: relaxed, any value will do. */
    static _Atomic unsigned turn;
    struct key k = key_of(real);
    uint64_t words[WORDS], found[WORDS];
    struct entry *set = set_of(&k), *to = NULL;

    memcpy(words, &k, sizeof(k));
    memcpy((char *)words + sizeof(k), original, sizeof(*original));
    for (int i = 0; i < WAYS; i++) {
        if (atomic_load_explicit(&set[i].seq, memory_order_relaxed) == 0) {
            to = to ? to : &set[i];
            continue;
        }
        if (!is_of(&set[i], &k))
            continue;
        if (read_entry(&set[i], found) && memcmp(found, words, sizeof(words)) == 0)
            return;
        to = &set[i];
        break;
    }
    if (!to)
        to = &set[atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) % WAYS];
    (void)write_entry(to, words);
}

static bool in_table(const struct key *k, struct vv_server_stat *ret_original)
{
    struct entry *set = set_of(k);
    uint64_t words[WORDS];

    for (int i = 0; i < WAYS; i++) {
        if (!is_of(&set[i], k) || !read_entry(&set[i], words) || memcmp(words, k, sizeof(*k)) != 0)
            continue;
        memcpy(ret_original, (char *)words + sizeof(*k), sizeof(*ret_original));
        return true;
    }
    return false;
}

/* Reads the mark of a content file. */
static bool marked(int fd, const char *path, const struct key *k,
                   struct vv_server_stat *ret_original)
{
    struct vv_server_mark mark;
    long n = fd >= 0 ? syscall(SYS_fgetxattr, fd, VV_SERVER_MARK_NAME, &mark, sizeof(mark))
                     : syscall(SYS_getxattr, path, VV_SERVER_MARK_NAME, &mark, sizeof(mark));

    return n == (long)sizeof(mark) && vv_server_mark_read(&mark, k->ino, k->size, ret_original);
}

/* Reads the mark of a memory file. A path to one is opened without access, to get its name. */
static bool named(int fd, const char *path, const struct key *k,
                  struct vv_server_stat *ret_original)
{
    char link[32] = "/proc/self/fd/", digits[12], shown[300], *at = digits + sizeof(digits);
    size_t length = strlen(link);
    int own = -1;
    long n;

    if (fd < 0) {
        own = (int)syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC);
        fd = own;
        if (fd < 0)
            return false;
    }
    *--at = '\0';
    for (int rest = fd; rest > 0 || *at == '\0'; rest /= 10)
        *--at = (char)('0' + rest % 10);
    memcpy(link + length, at, strlen(at) + 1);
    n = syscall(SYS_readlinkat, AT_FDCWD, link, shown, sizeof(shown));
    if (own >= 0)
        syscall(SYS_close, own);
    return n > 0 && vv_server_memory_named(shown, (size_t)n, ret_original) &&
           ret_original->size == k->size;
}

bool vvi_preload_original(int fd, const char *path, const struct stat *real,
                          struct vv_server_stat *ret_original)
{
    struct key k = key_of(real);
    struct vv_server_stat original;
    int saved = errno;
    bool is;

    if (!S_ISREG(real->st_mode))
        return false;
    if (in_table(&k, ret_original))
        return true;
    if ((real->st_mode & 07777) != VV_SERVER_CONTENT_MODE || real->st_nlink > 1)
        return false;
    is = real->st_nlink == 1 ? marked(fd, path, &k, &original) : named(fd, path, &k, &original);
    errno = saved;
    if (!is)
        return false;
    vvi_preload_saw(real, &original);
    *ret_original = original;
    return true;
}

void vvi_preload_wrote(uint64_t hash)
{
    uint64_t h = hash % BITS;

    atomic_fetch_or_explicit(&written[h / 64], UINT64_C(1) << (h % 64), memory_order_relaxed);
}

void vvi_preload_wrote_all(void)
{
    for (size_t i = 0; i < BITS / 64; i++)
        atomic_store_explicit(&written[i], UINT64_MAX, memory_order_relaxed);
}

bool vvi_preload_has_written(uint64_t hash)
{
    uint64_t h = hash % BITS;

    return (atomic_load_explicit(&written[h / 64], memory_order_relaxed) >> (h % 64) & 1) != 0;
}
