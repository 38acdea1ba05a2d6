/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvarve-preload.so: README.md describes how it works. No function here allocates memory, takes a lock or needs
 * more than two kilobytes of stack: hooks run in signal handlers, between fork and exec, and in threads that may be
 * cancelled at any time. All system calls are made directly, so that no hook calls another one. They keep errno.
 */
#ifndef VV_PRELOAD_PRELOAD_H
#define VV_PRELOAD_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "dataset/server_wire.h"
#include "preload/list.h"

#define VVI_PRELOAD_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* Each hook is a function with a name of its own here, and has libc's name for the linker. */
#define HOOK(type, name, ...)                                                            \
    __attribute__((visibility("default"))) type hook_##name(__VA_ARGS__) __asm__(#name); \
    __attribute__((visibility("default"))) type hook_##name(__VA_ARGS__)

/* ---- next_calls.c ---- */

enum vvi_preload_hook {
#define X(name) VVI_PRELOAD_##name,
    VV_PRELOAD_HOOKS(X)
#undef X
        VVI_PRELOAD_COUNT
};

/* The function that the hook replaces: libc's, or another preloaded library's. NULL: there is none of that
 * name. */
void *vvi_preload_next(enum vvi_preload_hook hook);

/* False: switched off, or not ready yet. */
bool vvi_preload_on(void);

struct vvi_preload_settings {
    char socket[108];
    char roots[VV_SERVER_PATH_MAX + 1]; /* separated by colons; empty: the daemon's roots */
    unsigned patience_ms;
};

/* Immutable once vvi_preload_on. */
extern struct vvi_preload_settings vvi_preload_settings;

/* ---- client.c ---- */

/* A connection, or a place for one, that one call owns until it is released. */
struct vvi_preload_slot;

/* True if a path as written may be below a root; makes no system call once roots are known. */
bool vvi_preload_may_be_ours(const char *path);

struct vvi_preload_answer {
    int fd; /* of OPEN */
    struct vv_server_stat stat;
    bool readable;
    struct stat real; /* of OPEN and LIST: the kernel's stat of the descriptor, a regular file of
                       * that size */
    int error; /* if there is no answer and the path is in no file system: the error of the call */
};

struct vvi_preload_ask {
    enum vv_server_op op;
    int dirfd;
    const char *path;
    bool nofollow;
    bool cloexec; /* of the descriptor */
    /* Only for INVALIDATE. */
    uint32_t flags;
    uint64_t inode;
};

/* Asks the daemon. False, for any reason: the caller makes the call itself, or fails with `error` if that is set. */
bool vvi_preload_ask(const struct vvi_preload_ask *ask, struct vvi_preload_answer *ret_answer);

/* True if a path is below a root that no file system has, or is one. */
bool vvi_preload_is_sole(int dirfd, const char *path);
/* The same for a path that the caller is about to change. If true, errno is set, and the caller's change has to
 * fail. */
bool vvi_preload_refuses(int dirfd, const char *path);

/* One change of a file below a root, in two steps: the file is not handed out from before the call that changes it
 * until after it. */
struct vvi_preload_change {
    int dirfd;
    const char *path; /* NULL: the file open as `dirfd` */
    bool nofollow;    /* of a link, the link itself */
    bool is_new;      /* there is nothing of this name */
    bool flat;        /* files below a folder do not change */
    /* Results of the first step. */
    bool ours;
    bool tree; /* a folder or a link: paths through it change as well */
    uint64_t inode;
};

void vvi_preload_begin(struct vvi_preload_change *c);
void vvi_preload_end(struct vvi_preload_change *c);
/* Called before and after closing a descriptor that was written to. NULL: it is not below a root. */
struct vvi_preload_slot *vvi_preload_closing(int fd, struct vvi_preload_change *c);
void vvi_preload_closed(struct vvi_preload_slot *s, struct vvi_preload_change *c);
/* Called instead of closed: the process ends and leaves it open. `again`: it is written to once more. */
void vvi_preload_left(struct vvi_preload_slot *s, struct vvi_preload_change *c, bool again);
/* True if an open file lies below a root; false as long as the roots are not known. */
bool vvi_preload_fd_is_ours(int fd);
/* True in a child of vfork, which uses its parent's memory. */
bool vvi_preload_is_vfork_child(void);

/* True if this process has ever seen a daemon. */
bool vvi_preload_was_there(void);
/* Called when the program has no descriptor left: closes idle connections. True: there were some. */
bool vvi_preload_give_way(void);

/* From here on this process sees other files under the same names. */
void vvi_preload_view_changed(void);

/* ---- client_lookup.c ---- */

/* Identity of the index that is mapped (vv_server_index.boot); 0: none. */
uint64_t vvi_preload_index_mapped(void);
/* Maps the daemon's index; the caller still owns the descriptors. `view`: see vvi_preload_view_changed. */
void vvi_preload_index_map(const int fds[2], unsigned view);
/* A path in the form that the daemon expects. */
struct vvi_preload_name {
    const char *path;
    size_t bytes;
    uint64_t hash; /* vv_server_hash of it */
    bool nofollow;
    unsigned view;
};

/* Looks a path up in the index, or opens it: fd, stat and real of the answer. False: ask the daemon. */
bool vvi_preload_index_stat(const struct vvi_preload_name *name, struct vv_server_stat *ret_stat);
bool vvi_preload_index_open(const struct vvi_preload_name *name, bool cloexec,
                            struct vvi_preload_answer *ret_answer);

/* ---- path.c ---- */

/* True if a program's pointer leads to a readable path, or to writable room for an answer; if not, the kernel reports
 * the error. The room is overwritten. */
bool vvi_preload_can_read(const char *path);
bool vvi_preload_can_write(void *to, size_t bytes);

/* Makes a path absolute and brings it into the daemon's form. Returns its length; 0: not a path that the daemon could
 * serve, or too long. `folder`: it may end as only folders do. */
size_t vvi_preload_path(int dirfd, const char *path, bool folder, char *buf, size_t buf_bytes);
/* The path of an open file, and of a name in a folder, with no link on the way. The same results. */
size_t vvi_preload_fd_path(int fd, char *buf, size_t buf_bytes);
size_t vvi_preload_resolve(int dirfd, const char *path, char *buf, size_t buf_bytes);
/* True if a path in any form is below a folder; `root` has no slash at its end. */
bool vvi_preload_is_below(const char *path, const char *root, size_t root_bytes);
/* True if it is the folder. */
bool vvi_preload_is_root(const char *path, const char *root, size_t root_bytes);
/* "/proc/self/fd/N". */
void vvi_preload_link_of(int fd, char link[40]);
/* True if an open file is a folder below a sole root; then its bytes are a vv_server_folder. */
bool vvi_preload_is_folder(int fd);

/* ---- seen.c ---- */

/* Records that a descriptor is a copy of this file. */
void vvi_preload_saw(const struct stat *real, const struct vv_server_stat *original);
/* Finds the original of a descriptor (or, with fd -1, of the file that a path leads to). `real` is the kernel's stat of
 * it. False: it is not a known copy. */
bool vvi_preload_original(int fd, const char *path, const struct stat *real,
                          struct vv_server_stat *ret_original);
/* Paths (vv_server_hash) and inodes (vvi_preload_inode_hash) that this process has changed: it always reads its own
 * changes. */
void vvi_preload_wrote(uint64_t hash);
bool vvi_preload_has_written(uint64_t hash);
/* All of them: the changed ones are not known. */
void vvi_preload_wrote_all(void);
static inline uint64_t vvi_preload_inode_hash(uint64_t inode)
{
    return (inode ^ inode >> 32) * UINT64_C(0x9e3779b97f4a7c15) >> 24;
}

/* ---- hook_folder.c ---- */

/* Opens a folder below a sole root: a descriptor that works as a starting point, and gives no bytes. */
int vvi_preload_open_folder(int dirfd, const char *path, bool cloexec);

/* ---- hook_id.c ---- */

/* Records the program's identity when the library is loaded; compares the current one with it. */
void vvi_preload_identify(void);
bool vvi_preload_is_other(void);

/* ---- hook_fd.c ---- */

/* A descriptor was opened for writing, by a path below a root. */
void vvi_preload_writes(int fd);
/* Finds the standard descriptors that another program opened for writing to files below a root. */
void vvi_preload_inherit(void);

#endif
