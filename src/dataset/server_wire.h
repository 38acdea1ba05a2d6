/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between a daemon and the programs on its node, and the mark on content files.
 * docs/format/dataset-client.md describes them. Both ends are on one machine, so numbers are in its byte order.
 * preload/ includes this file and nothing else of the library.
 */
#ifndef VV_DATASET_SERVER_WIRE_H
#define VV_DATASET_SERVER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VV_SERVER_MAGIC     UINT32_C(0x52444456) /* "VDDR" */
#define VV_SERVER_VERSION   1u
#define VV_SERVER_PATH_MAX  4095u
#define VV_SERVER_MSG_MAX   8192u /* the longest message, either way */
#define VV_SERVER_ROOTS_MAX 64u

/* The stat(2) of a file on the shared file system. Times are seconds and nanoseconds. */
struct vv_server_time {
    int64_t sec;
    uint32_t nsec;
    uint32_t zero;
};

struct vv_server_stat {
    uint64_t dev, ino, rdev;
    uint32_t mode, uid, gid, blksize;
    uint64_t nlink, size, blocks;
    struct vv_server_time atime, mtime, ctime;
    struct vv_server_time btime; /* all 0: the file system does not report it */
};
_Static_assert(sizeof(struct vv_server_stat) == 128, "a format: docs/format/dataset-client.md");

enum vv_server_op {
    VV_SERVER_OP_HELLO = 1,      /* the first message of a connection, and only that */
    VV_SERVER_OP_OPEN = 2,       /* answered with a descriptor */
    VV_SERVER_OP_STAT = 3,       /* answered with the file's stat */
    VV_SERVER_OP_INVALIDATE = 4, /* a program changes the file */
    VV_SERVER_OP_INDEX = 5,      /* no path; answered with the index: two descriptors */
    VV_SERVER_OP_LIST = 6,       /* a folder below a sole root: answered with a vv_server_folder */
};

/* Flag of a request: fail if a link is in the path. */
#define VV_SERVER_NOFOLLOW 1u
/* Flags of INVALIDATE: TREE: it is a folder or a link, and everything below it changes too. BEGINS: the change is
 * about to be made, and the file is not handed out until the same request without this flag. INODE: the inode follows
 * the path, in 8 bytes. */
#define VV_SERVER_TREE   2u
#define VV_SERVER_BEGINS 4u
#define VV_SERVER_INODE  8u
#define VV_SERVER_CHANGE (VV_SERVER_NOFOLLOW | VV_SERVER_TREE | VV_SERVER_BEGINS | VV_SERVER_INODE)
/* Flag of a reply: the user can read the file. */
#define VV_SERVER_READABLE 1u

struct vv_server_request {
    uint32_t magic;
    uint16_t version;
    uint16_t op;
    uint64_t id; /* repeated in each reply */
    uint32_t flags;
    uint32_t path_bytes; /* bytes that follow, without a NUL */
};
_Static_assert(sizeof(struct vv_server_request) == 24, "a format: docs/format/dataset-client.md");

enum vv_server_kind {
    VV_SERVER_DONE = 1,    /* status 0; otherwise declined: the client makes the call itself */
    VV_SERVER_PENDING = 2, /* still in progress; DONE follows */
    VV_SERVER_WELCOME = 3, /* to HELLO: vv_server_welcome follows */
};

struct vv_server_reply {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t id;
    int32_t status;
    uint32_t flags;
    struct vv_server_stat stat;
};
_Static_assert(sizeof(struct vv_server_reply) == 152, "a format: docs/format/dataset-client.md");

/* Identity of the daemon, and of its name space: a program in another one reads the shared file system itself. */
struct vv_server_welcome {
    uint64_t root_dev, root_ino; /* of the folder "/" */
    uint64_t mount_ns;           /* inode of its mount namespace; 0: not known */
    uint64_t index;              /* identity of the index (vv_server_index.boot); 0: none */
    uint32_t nr_roots, zero;
};
_Static_assert(sizeof(struct vv_server_welcome) == 40, "a format: docs/format/dataset-client.md");

/* nr_roots of these follow, each with its path, without a NUL. */
struct vv_server_root {
    uint64_t dev, ino;
    uint32_t path_bytes, flags;
};
_Static_assert(sizeof(struct vv_server_root) == 24, "a format: docs/format/dataset-client.md");

/* Flag of a root: files below it are in no file system. A declined request there fails with its status. */
#define VV_SERVER_SOLE 1u

/* SOCKET.lock, beside the socket: tells clients that the daemon runs, and its roots, without a request.
 * vv_server_welcome and the roots follow. */
#define VV_SERVER_LIFE_MAGIC UINT32_C(0x4c444456) /* "VDDL" */

struct vv_server_life {
    uint32_t magic, version;
    uint64_t alive_ns; /* its last update, by CLOCK_MONOTONIC; 0: it has ended */
    uint32_t welcome_bytes, zero;
};
_Static_assert(sizeof(struct vv_server_life) == 24, "a format: docs/format/dataset-client.md");

/* ---- folders ---- */

/* The entries of a folder below a sole root: a sealed memory file, whose name (vv_server_memory) marks a folder. The
 * folder's path follows, with a NUL, and from `at` on as many bytes of records as getdents64 returns; the position of
 * each (d_off) is that of the next one. */
#define VV_SERVER_FOLDER_MAGIC UINT32_C(0x46444456) /* "VDDF" */

struct vv_server_folder {
    uint32_t magic, version;
    uint32_t path_bytes, zero;
    uint64_t at, bytes;
};
_Static_assert(sizeof(struct vv_server_folder) == 32, "a format: docs/format/dataset-client.md");

struct vv_server_name {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[5]; /* any length, with a NUL */
};
_Static_assert(sizeof(struct vv_server_name) == 24, "as the kernel has it");

/* ---- the index ---- */

/* Files that clients may open themselves. Two pieces of shared memory. Clients map the first for reading: this header
 * and `nr_slots` slots. The second has a counter of 32 bits for each slot, to which clients add one for each use. A
 * path is in one of VV_SERVER_WAYS slots, from (hash mod nr_slots / VV_SERVER_WAYS) * VV_SERVER_WAYS on. */
#define VV_SERVER_INDEX_MAGIC UINT32_C(0x58444456) /* "VDDX" */
#define VV_SERVER_WAYS        8u
#define VV_SERVER_ALIVE_NS    UINT64_C(1000000000) /* an older index is not valid */

struct vv_server_index {
    uint32_t magic, version;
    uint32_t nr_slots, folder_bytes;
    uint64_t boot;
    uint64_t alive_ns; /* atomic: the daemon's last update, by CLOCK_MONOTONIC */
    uint64_t enabled;  /* atomic */
    char folder[4056]; /* of the content files, with a NUL */
};
_Static_assert(sizeof(struct vv_server_index) == 4096, "a format: docs/format/dataset-client.md");

/* A slot consists of words of 64 bits, each read and written atomically. */
enum {
    VV_SERVER_SLOT_SEQ,  /* odd while it is being written; changes with every other word */
    VV_SERVER_SLOT_HASH, /* of the path; 0: empty */
    VV_SERVER_SLOT_ID,   /* the content file is FOLDER/%016x.data */
    VV_SERVER_SLOT_UNTIL, /* CLOCK_MONOTONIC in ns: from then on the owner has to check the file again */
    VV_SERVER_SLOT_PATH_BYTES,
    VV_SERVER_SLOT_FLAGS, /* VV_SERVER_DIRECT */
    VV_SERVER_SLOT_STAT,
    VV_SERVER_SLOT_PATH = VV_SERVER_SLOT_STAT + sizeof(struct vv_server_stat) / 8,
    VV_SERVER_SLOT_WORDS = 64,
};
#define VV_SERVER_DIRECT         1u /* there is no link in the path */
#define VV_SERVER_SLOT_PATH_ROOM ((VV_SERVER_SLOT_WORDS - VV_SERVER_SLOT_PATH) * 8u)

/* FNV-1a, folded; never 0. */
static inline uint64_t vv_server_hash(const char *path, size_t bytes)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)path[i]) * UINT64_C(0x100000001b3);
    h ^= h >> 32;
    return h ? h : 1;
}

static inline size_t vv_server_set(uint64_t hash, uint32_t nr_slots)
{
    return (size_t)(hash % (nr_slots / VV_SERVER_WAYS)) * VV_SERVER_WAYS;
}

/* The mark on a content file: its original file. It is valid only if `own` belongs to the file that has it, because
 * programs copy attributes along with files. One byte more, and ext4 would use a block for it in each content file,
 * which no figure counts. */
#define VV_SERVER_MARK_NAME  "user.varve.file"
#define VV_SERVER_MARK_MAGIC UINT32_C(0x4d444456) /* "VDDM" */
#define VV_SERVER_MARK_MASK  UINT32_C(0x00ffffff)

struct vv_server_mark {
    uint32_t magic; /* its last byte is the base-2 logarithm of blksize */
    uint32_t own;   /* of the content file: vv_server_own */
    uint32_t dev[2], ino[2];
    uint32_t mtime_ns[2], ctime_ns[2]; /* since 1970; low half first, as in all pairs */
    uint32_t atime_s;
    uint32_t uid, gid;
    uint32_t blocks;      /* saturates */
    uint16_t mode, nlink; /* saturates */
};
_Static_assert(sizeof(struct vv_server_mark) == 60, "a format: docs/format/dataset-client.md");

static inline uint32_t vv_server_own(uint64_t ino, uint64_t size)
{
    uint64_t h = (ino ^ size << 32 ^ size >> 32) * UINT64_C(0x9e3779b97f4a7c15);

    return (uint32_t)(h >> 32);
}

static inline struct vv_server_time vv_server_time_of(const uint32_t ns[2])
{
    int64_t all = (int64_t)((uint64_t)ns[1] << 32 | ns[0]), sec = all / 1000000000;
    int64_t rest = all % 1000000000;

    if (rest < 0) { /* before 1970 */
        sec--;
        rest += 1000000000;
    }
    return (struct vv_server_time){sec, (uint32_t)rest, 0};
}

static inline void vv_server_mark_make(const struct vv_server_stat *st, uint64_t own_ino,
                                       struct vv_server_mark *m)
{
    uint64_t mtime_ns = (uint64_t)st->mtime.sec * 1000000000u + st->mtime.nsec;
    uint64_t ctime_ns = (uint64_t)st->ctime.sec * 1000000000u + st->ctime.nsec;
    uint32_t shift = 0;

    while (shift < 31 && st->blksize >> shift > 1)
        shift++;
    *m = (struct vv_server_mark){
        .magic = (VV_SERVER_MARK_MAGIC & VV_SERVER_MARK_MASK) | shift << 24,
        .own = vv_server_own(own_ino, st->size),
        .dev = {(uint32_t)st->dev, (uint32_t)(st->dev >> 32)},
        .ino = {(uint32_t)st->ino, (uint32_t)(st->ino >> 32)},
        .mtime_ns = {(uint32_t)mtime_ns, (uint32_t)(mtime_ns >> 32)},
        .ctime_ns = {(uint32_t)ctime_ns, (uint32_t)(ctime_ns >> 32)},
        .atime_s = (uint32_t)st->atime.sec,
        .uid = st->uid,
        .gid = st->gid,
        .blocks = st->blocks < UINT32_MAX ? (uint32_t)st->blocks : UINT32_MAX,
        .mode = (uint16_t)st->mode,
        .nlink = st->nlink < UINT16_MAX ? (uint16_t)st->nlink : UINT16_MAX,
    };
}

/* Reads the mark of a content file with this inode and size; false: it is another file's mark. */
static inline bool vv_server_mark_read(const struct vv_server_mark *m, uint64_t own_ino,
                                       uint64_t size, struct vv_server_stat *ret_stat)
{
    uint32_t shift = m->magic >> 24;

    if (((m->magic ^ VV_SERVER_MARK_MAGIC) & VV_SERVER_MARK_MASK) != 0 || shift > 31 ||
        m->own != vv_server_own(own_ino, size))
        return false;
    *ret_stat = (struct vv_server_stat){
        .dev = (uint64_t)m->dev[1] << 32 | m->dev[0],
        .ino = (uint64_t)m->ino[1] << 32 | m->ino[0],
        .mode = m->mode,
        .uid = m->uid,
        .gid = m->gid,
        .blksize = UINT32_C(1) << shift,
        .nlink = m->nlink,
        .size = size,
        .blocks = m->blocks,
        .atime = {m->atime_s, 0, 0},
        .mtime = vv_server_time_of(m->mtime_ns),
        .ctime = vv_server_time_of(m->ctime_ns),
    };
    return true;
}

/* A memory file has its mark in its name, which the kernel shows as "/memfd:NAME (deleted)" in /proc/self/fd: many
 * kernels have no attributes of memory files. The name is "varve:" and the structure below, six bits to a character,
 * the lowest first. */
#define VV_SERVER_MEMORY_PREFIX "varve:"

struct vv_server_memory {
    uint32_t magic; /* VV_SERVER_MARK_MAGIC */
    uint32_t version;
    struct vv_server_stat stat;
};
_Static_assert(sizeof(struct vv_server_memory) == 136, "a format: docs/format/dataset-client.md");

#define VV_SERVER_MEMORY_CHARS ((sizeof(struct vv_server_memory) * 8 + 5) / 6)
/* Including the NUL; the kernel allows 249 characters. */
#define VV_SERVER_MEMORY_NAME (sizeof(VV_SERVER_MEMORY_PREFIX) + VV_SERVER_MEMORY_CHARS)

static inline void vv_server_memory_name(const struct vv_server_stat *stat,
                                         char name[VV_SERVER_MEMORY_NAME])
{
    struct vv_server_memory m = {VV_SERVER_MARK_MAGIC, VV_SERVER_VERSION, *stat};
    const unsigned char *from = (const unsigned char *)&m;
    char *to = name + sizeof(VV_SERVER_MEMORY_PREFIX) - 1;

    memcpy(name, VV_SERVER_MEMORY_PREFIX, sizeof(VV_SERVER_MEMORY_PREFIX) - 1);
    for (size_t i = 0; i < VV_SERVER_MEMORY_CHARS; i++) {
        size_t bit = i * 6, byte = bit / 8;
        unsigned two = from[byte] | (byte + 1 < sizeof(m) ? (unsigned)from[byte + 1] << 8 : 0u);

        /* '0' to 'o': all printable, without slash and space. */
        to[i] = (char)('0' + (two >> bit % 8 & 63));
    }
    to[VV_SERVER_MEMORY_CHARS] = '\0';
}

/* Reads the mark from the name of an open file, as the kernel shows it; false: it has none. */
static inline bool vv_server_memory_named(const char *shown, size_t bytes,
                                          struct vv_server_stat *ret_stat)
{
    static const char before[] = "/memfd:" VV_SERVER_MEMORY_PREFIX;
    unsigned char to[sizeof(struct vv_server_memory) + 1] = {0};
    struct vv_server_memory m;

    if (bytes < sizeof(before) - 1 + VV_SERVER_MEMORY_CHARS ||
        memcmp(shown, before, sizeof(before) - 1) != 0)
        return false;
    for (size_t i = 0; i < VV_SERVER_MEMORY_CHARS; i++) {
        unsigned six = (unsigned char)shown[sizeof(before) - 1 + i] - (unsigned)'0';
        size_t bit = i * 6;

        if (six > 63)
            return false;
        to[bit / 8] |= (unsigned char)(six << bit % 8);
        to[bit / 8 + 1] |= (unsigned char)(six << bit % 8 >> 8);
    }
    memcpy(&m, to, sizeof(m));
    if (m.magic != VV_SERVER_MARK_MAGIC || m.version != VV_SERVER_VERSION)
        return false;
    *ret_stat = m.stat;
    return true;
}

/* The path of the socket: as given (VARVE_CACHED_SOCKET, the key `socket`), otherwise in the runtime folder
 * (XDG_RUNTIME_DIR), otherwise in a folder of the user's in /tmp. Each may be NULL or empty. False: too long. Calls
 * only functions of <string.h>. */
static inline bool vv_server_socket(const char *given, const char *run_folder, unsigned long uid,
                                    char *buf, size_t buf_bytes)
{
    char digits[24], *at = digits + sizeof(digits) - 1;
    const char *part[3] = {"/tmp/varve-", at, "/cached.sock"};
    size_t n = 0;

    *at = '\0';
    do {
        *--at = (char)('0' + uid % 10);
        uid /= 10;
    } while (uid != 0);
    part[1] = at;
    if (given && *given) {
        part[0] = given;
        part[1] = part[2] = "";
    } else if (run_folder && *run_folder) {
        part[0] = run_folder;
        part[1] = "";
        part[2] = "/varve-cached.sock";
    }
    for (int i = 0; i < 3; i++) {
        size_t bytes = strlen(part[i]);

        if (n + bytes >= buf_bytes)
            return false;
        memcpy(buf + n, part[i], bytes);
        n += bytes;
    }
    buf[n] = '\0';
    return true;
}

/* Content files have this mode and one name, memory files this mode and none. A file with another mode or more names
 * has no mark. */
#define VV_SERVER_CONTENT_MODE 0600u

#endif
