/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths. The client must not ask the shared file system where a path leads; the daemon resolves it, once. Here a path
 * is only brought into a form with the same meaning: the kernel's path of the starting folder goes before a relative
 * path, double slashes and "." are removed. ".." stays, because its meaning depends on links.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/preload.h"

#define PAGE 4096u

/* Makes a call with an invalid first argument. The kernel reads 8 bytes at the address before it checks that argument:
 * so it returns -EFAULT if the address is not mapped, otherwise -EINVAL, and changes nothing in either case. */
static bool is_mapped(uintptr_t at)
{
    return syscall(SYS_rt_sigprocmask, ~0, at & ~(uintptr_t)7, NULL, 8) < 0 && errno != EFAULT;
}

bool vvi_preload_can_read(const char *path)
{
    uintptr_t at = (uintptr_t)path, end = at + VV_SERVER_PATH_MAX + 1;
    int saved = errno;
    bool can = false;

    while (at < end && is_mapped(at)) {
        size_t bytes = PAGE - at % PAGE;

        can = memchr((const char *)at, '\0', bytes) != NULL;
        if (can)
            break;
        at += bytes;
    }
    errno = saved;
    return can;
}

bool vvi_preload_can_write(void *to, size_t bytes)
{
    char *last = (char *)to + bytes - sizeof(struct timespec);
    int saved = errno;
    /* The caller overwrites the result. */
    bool can = syscall(SYS_clock_gettime, CLOCK_MONOTONIC, to) == 0 &&
               syscall(SYS_clock_gettime, CLOCK_MONOTONIC, last) == 0;

    errno = saved;
    return can;
}

void vvi_preload_link_of(int fd, char link[40])
{
    char digits[12];
    size_t at = 14, nr = 0;

    memcpy(link, "/proc/self/fd/", at);
    do {
        digits[nr++] = (char)('0' + fd % 10);
        fd /= 10;
    } while (fd != 0);
    while (nr > 0)
        link[at++] = digits[--nr];
    link[at] = '\0';
}

static bool is_named(const char *shown, size_t bytes)
{
    struct vv_server_stat st;

    return vv_server_memory_named(shown, bytes, &st) && S_ISDIR(st.mode);
}

bool vvi_preload_is_folder(int fd)
{
    char link[40], shown[300];
    int saved = errno;
    long n;

    if (fd < 0)
        return false;
    vvi_preload_link_of(fd, link);
    n = syscall(SYS_readlinkat, AT_FDCWD, link, shown, sizeof(shown));
    errno = saved;
    return n > 0 && is_named(shown, (size_t)n);
}

/* The path of a folder that no file system has, from its memory file. 0: it is none. */
static size_t read_folder(const char *link, char *buf, size_t buf_bytes)
{
    struct vv_server_folder head;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
    size_t n = 0;

    if (fd < 0)
        return 0;
    if (syscall(SYS_pread64, fd, &head, sizeof(head), 0L) == (long)sizeof(head) &&
        head.magic == VV_SERVER_FOLDER_MAGIC && head.path_bytes < buf_bytes &&
        syscall(SYS_pread64, fd, buf, (size_t)head.path_bytes, (long)sizeof(head)) ==
            (long)head.path_bytes)
        n = head.path_bytes;
    syscall(SYS_close, fd);
    return n;
}

/* The path of an open file, or of the folder that a relative path starts from, without a slash at the end. False: it
 * has no name. */
static bool folder_of(int dirfd, char *buf, size_t buf_bytes, size_t *ret_bytes)
{
    static const char deleted[] = " (deleted)";
    size_t n;

    if (dirfd == AT_FDCWD) {
        long got = syscall(SYS_getcwd, buf, buf_bytes);

        n = got > 0 ? (size_t)got - 1 : 0; /* including the NUL */
    } else {
        char link[40];
        long got;

        if (dirfd < 0)
            return false;
        vvi_preload_link_of(dirfd, link);
        got = syscall(SYS_readlinkat, AT_FDCWD, link, buf, buf_bytes);
        n = got > 0 && (size_t)got < buf_bytes ? (size_t)got : 0;
        if (n > 0 && is_named(buf, n))
            n = read_folder(link, buf, buf_bytes);
    }
    /* "(unreachable)/...", "pipe:[1]"; and " (deleted)", even if it is part of a real name. */
    if (n == 0 || buf[0] != '/')
        return false;
    if (n >= sizeof(deleted) - 1 &&
        memcmp(buf + n - (sizeof(deleted) - 1), deleted, sizeof(deleted) - 1) == 0)
        return false;
    *ret_bytes = n == 1 ? 0 : n;
    return true;
}

size_t vvi_preload_fd_path(int fd, char *buf, size_t buf_bytes)
{
    size_t n;

    if (fd < 0 || !folder_of(fd, buf, buf_bytes, &n) || n == 0 || n > VV_SERVER_PATH_MAX)
        return 0;
    buf[n] = '\0';
    return n;
}

size_t vvi_preload_resolve(int dirfd, const char *path, char *buf, size_t buf_bytes)
{
    size_t end = strlen(path), at, n;
    int fd;

    while (end > 0 && path[end - 1] == '/')
        end--;
    for (at = end; at > 0 && path[at - 1] != '/'; at--)
        ;
    /* "." and "..": the path is the folder itself. */
    if (end - at <= 2 && path[at] == '.' && path[end - 1] == '.')
        at = end;
    if (end == 0 || at + 2 >= buf_bytes)
        return 0;
    memcpy(buf, path, at);
    memcpy(buf + at, at == end ? "/." : ".", 3 - (at != end));
    fd = (int)syscall(SYS_openat, dirfd, buf, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = folder_of(fd, buf, buf_bytes, &n) ? n : buf_bytes;
    syscall(SYS_close, fd);
    if (n + 1 + (end - at) > VV_SERVER_PATH_MAX)
        return 0;
    if (at < end)
        buf[n++] = '/';
    memcpy(buf + n, path + at, end - at);
    n += end - at;
    buf[n] = '\0';
    return n;
}

size_t vvi_preload_path(int dirfd, const char *path, bool folder, char *buf, size_t buf_bytes)
{
    size_t n = 0;

    if (path[0] == '\0')
        return 0;
    if (path[0] != '/' && !folder_of(dirfd, buf, buf_bytes, &n))
        return 0;
    while (*path) {
        size_t bytes;

        while (*path == '/')
            path++;
        for (bytes = 0; path[bytes] != '\0' && path[bytes] != '/'; bytes++)
            ;
        /* A slash or a dot at the end requires a folder. */
        if (path[bytes] == '\0' && (bytes == 0 || (bytes == 1 && path[0] == '.'))) {
            if (!folder)
                return 0;
            break;
        }
        if (bytes == 1 && path[0] == '.') {
            path++;
            continue;
        }
        if (n + 1 + bytes >= buf_bytes)
            return 0;
        buf[n++] = '/';
        memcpy(buf + n, path, bytes);
        n += bytes;
        path += bytes;
    }
    buf[n] = '\0';
    return n <= VV_SERVER_PATH_MAX ? n : 0;
}

/* The next character of a path, with double slashes and "." left out. */
static char next_char(const char **at)
{
    const char *p = *at;

    if (*p == '/') {
        for (;;) {
            while (p[1] == '/')
                p++;
            if (p[1] != '.' || (p[2] != '/' && p[2] != '\0'))
                break;
            p += 2;
            if (*p == '\0')
                break;
        }
        *at = *p ? p + 1 : p;
        return '/';
    }
    *at = *p ? p + 1 : p;
    return *p;
}

/* Offset in a path behind a root; -1: it does not begin with the root. */
static int after_root(const char *path, const char *root, size_t root_bytes)
{
    for (size_t i = 0; i < (root_bytes == 1 ? 0 : root_bytes); i++)
        if (next_char(&path) != root[i])
            return -1;
    return next_char(&path);
}

bool vvi_preload_is_below(const char *path, const char *root, size_t root_bytes)
{
    return after_root(path, root, root_bytes) == '/';
}

bool vvi_preload_is_root(const char *path, const char *root, size_t root_bytes)
{
    return after_root(path, root, root_bytes) == '\0';
}
