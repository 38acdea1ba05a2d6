/* SPDX-License-Identifier: Apache-2.0 */
/* vv_os_open_regular: other kinds of file are refused, without waiting. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/util.h"
#include "store/os.h"
#include "t.h"

static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR};

static void write_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    T_CHECK(fd >= 0);
    T_EQ(write(fd, "text", 4), 4);
    T_OK(close(fd));
}

static void make_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    T_CHECK(fd >= 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
    T_OK(bind(fd, (struct sockaddr *)&address, sizeof(address)));
    T_OK(close(fd));
}

/* Like a plain open, except for O_CLOEXEC. */
static void regular(void)
{
    const struct vv_os *os = vv_os_posix();
    char path[600];
    snprintf(path, sizeof(path), "%s/file", t_tmpdir());
    T_ERR(vv_os_open_regular(os, AT_FDCWD, path, O_RDONLY), -ENOENT);
    write_file(path);
    for (size_t i = 0; i < VV_ARRAY_SIZE(modes); i++) {
        int fd = vv_os_open_regular(os, AT_FDCWD, path, modes[i]);
        T_CHECK(fd >= 0);
        T_EQ(fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK), modes[i]);
        T_CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        T_OK(os->close(os, fd));
    }
    int fd = vv_os_open_regular(os, AT_FDCWD, path, O_RDONLY | O_DIRECT);
    T_CHECK(fd >= 0 || fd == -EINVAL);
    if (fd >= 0) {
        T_CHECK(fcntl(fd, F_GETFL) & O_DIRECT);
        T_OK(os->close(os, fd));
    }
}

static void others(void)
{
    const struct vv_os *os = vv_os_posix();
    char path[4][600];
    const char *dir = t_tmpdir();
    for (int i = 0; i < 4; i++)
        snprintf(path[i], sizeof(path[i]), "%s/%d", dir, i);
    T_OK(mkfifo(path[0], 0600));
    T_OK(mkdir(path[1], 0700));
    T_OK(symlink("/dev/zero", path[2]));
    make_socket(path[3]);
    alarm(60); /* ends a test that hangs */
    for (int i = 0; i < 4; i++)
        for (size_t k = 0; k < VV_ARRAY_SIZE(modes); k++) {
            T_ERR(vv_os_open_regular(os, AT_FDCWD, path[i], modes[k]), -EBADMSG);
            T_ERR(vv_os_open_regular(os, AT_FDCWD, path[i], modes[k] | O_DIRECT), -EBADMSG);
        }
    alarm(0);
}

/* A FIFO replaces the file at the last moment. */
static int open_swapped(const struct vv_os *os, int dirfd, const char *path, int flags,
                        unsigned mode)
{
    (void)os;
    T_OK(unlink(path));
    T_OK(mkfifo(path, 0600));
    return vv_os_posix()->openat(vv_os_posix(), dirfd, path, flags, mode);
}

static void swapped(void)
{
    struct vv_os os = *vv_os_posix();
    char path[600];
    os.openat = open_swapped;
    snprintf(path, sizeof(path), "%s/file", t_tmpdir());
    alarm(60);
    for (size_t i = 0; i < VV_ARRAY_SIZE(modes); i++) {
        T_OK(unlink(path) == 0 || errno == ENOENT ? 0 : -errno);
        write_file(path);
        T_ERR(vv_os_open_regular(&os, AT_FDCWD, path, modes[i]), -EBADMSG);
    }
    alarm(0);
}

int main(void)
{
    T_RUN(regular);
    T_RUN(others);
    T_RUN(swapped);
    return t_done();
}
