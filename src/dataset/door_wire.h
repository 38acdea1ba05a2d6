/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes through the door: the messages between a daemon and the programs on its node, and the mark on
 * content files. docs/format/dataset-door.md says what they mean. Both ends are on one machine, so
 * numbers are in its byte order. preload/ includes this file and nothing else of the library.
 */
#ifndef VV_DATASET_DOOR_WIRE_H
#define VV_DATASET_DOOR_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VV_DOOR_MAGIC     UINT32_C(0x52444456) /* "VDDR" */
#define VV_DOOR_VERSION   1u
#define VV_DOOR_PATH_MAX  4095u
#define VV_DOOR_MSG_MAX   8192u /* the longest message, either way */
#define VV_DOOR_ROOTS_MAX 64u

/* A file as stat(2) tells it, on the shared file system. Times are seconds and nanoseconds. */
struct vv_door_time {
    int64_t sec;
    uint32_t nsec;
    uint32_t zero;
};

struct vv_door_stat {
    uint64_t dev, ino, rdev;
    uint32_t mode, uid, gid, blksize;
    uint64_t nlink, size, blocks;
    struct vv_door_time atime, mtime, ctime;
    struct vv_door_time btime; /* all 0: not known */
};
_Static_assert(sizeof(struct vv_door_stat) == 128, "a format: docs/format/dataset-door.md");

enum vv_door_op {
    VV_DOOR_OP_HELLO = 1,      /* the first message of a connection, and no other */
    VV_DOOR_OP_OPEN = 2,       /* answered with a descriptor */
    VV_DOOR_OP_STAT = 3,       /* answered from what is known of the file */
    VV_DOOR_OP_INVALIDATE = 4, /* somebody has opened it for writing */
    VV_DOOR_OP_INDEX = 5,      /* no path; answered with the index: two descriptors */
};

/* Flags of a request: where the path ends must not be reached through any link. */
#define VV_DOOR_NOFOLLOW 1u
/* Flags of a reply: the file can be read by the user. */
#define VV_DOOR_READABLE 1u

struct vv_door_request {
    uint32_t magic;
    uint16_t version;
    uint16_t op;
    uint64_t id; /* comes back with each reply */
    uint32_t flags;
    uint32_t path_bytes; /* that follow, without a NUL at the end or anywhere else */
};
_Static_assert(sizeof(struct vv_door_request) == 24, "a format: docs/format/dataset-door.md");

enum vv_door_kind {
    VV_DOOR_DONE = 1,    /* status 0, or an errno: do it yourself, whatever it is */
    VV_DOOR_PENDING = 2, /* still at it; DONE follows */
    VV_DOOR_WELCOME = 3, /* of HELLO: vv_door_welcome follows */
};

struct vv_door_reply {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t id;
    int32_t status;
    uint32_t flags;
    struct vv_door_stat stat;
};
_Static_assert(sizeof(struct vv_door_reply) == 152, "a format: docs/format/dataset-door.md");

/* What the daemon serves, and how it sees the world: a program that sees another one reads for itself. */
struct vv_door_welcome {
    uint64_t root_dev, root_ino; /* of the folder "/" */
    uint64_t mount_ns;           /* inode of its mount namespace; 0: not known */
    uint64_t index;              /* which index it has (vv_door_index.boot); 0: none */
    uint32_t nr_roots, zero;
};
_Static_assert(sizeof(struct vv_door_welcome) == 40, "a format: docs/format/dataset-door.md");

/* Then nr_roots of these, each followed by its path, with no NUL. */
struct vv_door_root {
    uint64_t dev, ino;
    uint32_t path_bytes, zero;
};
_Static_assert(sizeof(struct vv_door_root) == 24, "a format: docs/format/dataset-door.md");

/* ---- the index ---- */

/* Files that clients may open themselves. Two pieces of shared memory: this header and `nr_slots` slots, which
 * clients map for reading; and as many counters of 32 bits, to which they add one for each use. A path is in one
 * of VV_DOOR_WAYS slots, from (hash mod nr_slots / VV_DOOR_WAYS) * VV_DOOR_WAYS on. */
#define VV_DOOR_INDEX_MAGIC UINT32_C(0x58444456) /* "VDDX" */
#define VV_DOOR_WAYS        8u
#define VV_DOOR_ALIVE_NS \
    UINT64_C(1000000000) /* an index that is older than this is nobody's any more */

struct vv_door_index {
    uint32_t magic, version;
    uint32_t nr_slots, folder_bytes;
    uint64_t boot;
    uint64_t alive_ns; /* atomic: when the daemon last said so, by CLOCK_MONOTONIC */
    uint64_t enabled;  /* atomic */
    char folder[4056]; /* of the content files, with a NUL */
};
_Static_assert(sizeof(struct vv_door_index) == 4096, "a format: docs/format/dataset-door.md");

/* A slot is so many words of 64 bits, each read and written at once. */
enum {
    VV_DOOR_SLOT_SEQ,  /* odd: it is being written; changes with everything else */
    VV_DOOR_SLOT_HASH, /* of the path; 0: empty */
    VV_DOOR_SLOT_ID,   /* the content file is FOLDER/%016x.data */
    VV_DOOR_SLOT_UNTIL, /* CLOCK_MONOTONIC in ns: from then on the owner wants to look at the file again */
    VV_DOOR_SLOT_PATH_BYTES,
    VV_DOOR_SLOT_FLAGS, /* VV_DOOR_DIRECT */
    VV_DOOR_SLOT_STAT,
    VV_DOOR_SLOT_PATH = VV_DOOR_SLOT_STAT + sizeof(struct vv_door_stat) / 8,
    VV_DOOR_SLOT_WORDS = 64,
};
#define VV_DOOR_DIRECT         1u /* there is no link in the path */
#define VV_DOOR_SLOT_PATH_ROOM ((VV_DOOR_SLOT_WORDS - VV_DOOR_SLOT_PATH) * 8u)

/* FNV-1a, folded; never 0. */
static inline uint64_t vv_door_hash(const char *path, size_t bytes)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)path[i]) * UINT64_C(0x100000001b3);
    h ^= h >> 32;
    return h ? h : 1;
}

static inline size_t vv_door_set(uint64_t hash, uint32_t nr_slots)
{
    return (size_t)(hash % (nr_slots / VV_DOOR_WAYS)) * VV_DOOR_WAYS;
}

/* The mark on a content file: which file it is a copy of. It is one only if `own_ino` is the inode of
 * the file that carries it, because programs copy attributes along with files. */
#define VV_DOOR_MARK_NAME  "user.varve.file"
#define VV_DOOR_MARK_MAGIC UINT32_C(0x4d444456) /* "VDDM" */

struct vv_door_mark {
    uint32_t magic;
    uint32_t version;
    uint64_t own_ino;
    struct vv_door_stat stat;
};
_Static_assert(sizeof(struct vv_door_mark) == 144, "a format: docs/format/dataset-door.md");

/* Where the socket is: as given (VARVE_CACHED_SOCKET, the key `socket`), else in the folder for such things
 * (XDG_RUNTIME_DIR), else in a folder of the user's in /tmp. Each may be NULL or empty. False: too long. Makes
 * no call but those of <string.h>. */
static inline bool vv_door_socket(const char *given, const char *run_folder, unsigned long uid,
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

/* Content files have this mode and no second name: what looks otherwise has no mark. */
#define VV_DOOR_CONTENT_MODE 0600u

#endif
