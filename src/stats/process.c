/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

/* Field 22 of /proc/PID/stat, counted from the state, which is field 3. */
#define START_FIELD 19

static ssize_t slurp(const char *path, char *buf, size_t size)
{
    size_t n = 0;
    ssize_t r = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    while (n < size - 1 && r > 0) {
        r = read(fd, buf + n, size - 1 - n);
        if (r > 0)
            n += (size_t)r;
        else if (r < 0 && errno == EINTR)
            r = 1;
    }
    r = r < 0 ? -errno : (ssize_t)n;
    buf[n] = '\0';
    close(fd);
    return r;
}

/* Other threads may outlive the first thread of a process, which then looks like a zombie. */
static bool has_threads(const char *proc, pid_t pid)
{
    char path[128];
    unsigned n = 0;
    struct dirent *entry;

    snprintf(path, sizeof(path), "%s/%ld/task", proc, (long)pid);
    DIR *dir = opendir(path);
    while (dir && (entry = readdir(dir)))
        n += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n > 1;
}

int vvi_process_start(const char *proc, pid_t pid, uint64_t *ret_ticks)
{
    char path[128], text[1024], state;

    snprintf(path, sizeof(path), "%s/%ld/stat", proc, (long)pid);
    ssize_t n = slurp(path, text, sizeof(text));
    if (n == -ENOENT || n == -ESRCH) {
        /* Without /proc the start is not known. */
        snprintf(path, sizeof(path), "%s/self/stat", proc);
        return access(path, R_OK) == 0 ? -ESRCH : -ENOSYS;
    }
    if (n < 0)
        return (int)n;
    /* The name of the program is in parentheses and may have any characters, including parentheses. */
    char *p = strrchr(text, ')');
    if (!p || p[1] != ' ')
        return -EBADMSG;
    p += 2;
    state = *p;
    for (int field = 0; field < START_FIELD && p; field++) {
        p = strchr(p, ' ');
        p = p ? p + 1 : NULL;
    }
    if (!p)
        return -EBADMSG;
    if ((state == 'Z' || state == 'X') && !has_threads(proc, pid))
        return -ESRCH;
    *ret_ticks = strtoull(p, NULL, 10);
    return 0;
}

uint64_t vvi_process_space(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

uint64_t vvi_process_node(void)
{
    char name[256] = "";

    return gethostname(name, sizeof(name) - 1) == 0 && name[0] ? vv_hash64(name, strlen(name)) : 0;
}

uint64_t vvi_process_boot(void)
{
    char id[64];
    ssize_t n = slurp("/proc/sys/kernel/random/boot_id", id, sizeof(id));

    return n > 0 ? vv_hash64(id, (size_t)n) : 0;
}

void vvi_process_command(char *buf, size_t size)
{
    ssize_t n = slurp("/proc/self/cmdline", buf, size);

    if (n < 0)
        n = 0;
    while (n > 0 && buf[n - 1] == '\0')
        n--;
    for (ssize_t i = 0; i < n; i++)
        if (buf[i] == '\0')
            buf[i] = ' ';
    buf[n] = '\0';
}
