/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a page. The header is written last, so that a page without a header is unfinished: it is being made, or its
 * process was killed while making it.
 *
 * Names: varve-stats.PID.N, N from 0. If a name is taken (by another context, a process with the same id in another
 * namespace, or a killed process), the next N is tried.
 *
 * In a forked child the descriptor exists and is not used: the child has no writing thread, and vv_stats_writer_close
 * does nothing there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "stats/process.h"
#include "stats/stats_page.h"
#include "stats/stats_page_private.h"
#include "stats/stats_text.h"

enum { NAMES = 256 };

struct vv_stats_writer {
    int fd;
    pid_t pid;
    uint64_t seq, file[2];
    struct vv_stats_header header;
    char path[VV_STATS_PATH];
};

static int write_all(int fd, const void *buf, size_t bytes, off_t at)
{
    const char *p = buf;

    while (bytes > 0) {
        ssize_t n = pwrite(fd, p, bytes, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        p += n;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

void vv_stats_about_process(struct vv_stats_header *about)
{
    struct timespec wall;

    about->pid = (uint64_t)getpid();
    about->pid_space = vvi_process_space();
    about->node = vvi_process_node();
    about->boot = vvi_process_boot();
    if (vvi_process_start("/proc", getpid(), &about->start_ticks) != 0)
        about->start_ticks = 0;
    clock_gettime(CLOCK_REALTIME, &wall);
    about->opened_unix_ns = (uint64_t)wall.tv_sec * VV_NS_PER_S + (uint64_t)wall.tv_nsec;
    about->opened_ns = vv_now_ns();
    snprintf(about->version, sizeof(about->version), "%s", VV_VERSION);
    snprintf(about->program, sizeof(about->program), "%s", program_invocation_short_name);
    vv_stats_text_clean(about->program, sizeof(about->program));
    vvi_process_command(about->command, sizeof(about->command));
    vv_stats_text_clean(about->command, sizeof(about->command));
}

static int open_at(struct vv_stats_writer *w, const char *folder)
{
    for (int n = 0; n < NAMES; n++) {
        int len = snprintf(w->path, sizeof(w->path), "%s/" VVI_STATS_NAME "%ld.%d", folder,
                           (long)w->pid, n);
        if (len < 0 || (size_t)len >= sizeof(w->path))
            return -ENAMETOOLONG;
        w->fd = open(w->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (w->fd >= 0) {
            w->header.context = (uint32_t)n;
            return 0;
        }
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

static int fill(struct vv_stats_writer *w)
{
    struct vv_stats_record empty = {.time_ns = w->header.opened_ns};
    struct stat st;
    int rc = fstat(w->fd, &st) == 0 ? 0 : -errno;

    if (rc)
        return rc;
    w->file[0] = (uint64_t)st.st_dev;
    w->file[1] = (uint64_t)st.st_ino;
    for (int i = 0; i < VV_STATS_SLOTS && rc == 0; i++)
        rc = vv_stats_writer_put(w, &empty);
    return rc ? rc : write_all(w->fd, &w->header, sizeof(w->header), 0);
}

int vv_stats_writer_open(const char *folder, const struct vv_stats_header *about,
                         struct vv_stats_writer **ret_writer)
{
    struct vv_stats_writer *w = calloc(1, sizeof(*w));
    const char *other = getenv("XDG_RUNTIME_DIR");

    if (!w)
        return -ENOMEM;
    w->pid = getpid();
    w->header = *about;
    memcpy(w->header.magic, VV_STATS_MAGIC, sizeof(w->header.magic));
    w->header.format = VV_STATS_FORMAT;
    w->header.header_bytes = sizeof(w->header);
    w->header.record_bytes = sizeof(struct vv_stats_record);
    w->header.slots = VV_STATS_SLOTS;
    vv_stats_about_process(&w->header);
    int rc = open_at(w, folder ? folder : VVI_STATS_FOLDER);
    if (rc && !folder && other && other[0] == '/')
        rc = open_at(w, other);
    if (rc) {
        free(w);
        return rc;
    }
    w->header.checksum = 0;
    w->header.checksum = vv_hash64(&w->header, sizeof(w->header));
    rc = fill(w);
    if (rc) {
        vv_stats_writer_close(w);
        return rc;
    }
    *ret_writer = w;
    return 0;
}

int vv_stats_writer_put(struct vv_stats_writer *w, struct vv_stats_record *record)
{
    off_t at =
        (off_t)sizeof(w->header) + (off_t)(++w->seq % VV_STATS_SLOTS) * (off_t)sizeof(*record);

    record->seq = w->seq;
    record->checksum = 0;
    record->checksum = vv_hash64(record, sizeof(*record));
    return write_all(w->fd, record, sizeof(*record), at);
}

const struct vv_stats_header *vv_stats_writer_header(const struct vv_stats_writer *w)
{
    return &w->header;
}

const char *vv_stats_writer_path(const struct vv_stats_writer *w)
{
    return w->path;
}

void vv_stats_writer_close(struct vv_stats_writer *w)
{
    struct stat st;

    if (!w || w->pid != getpid())
        return;
    /* The page may have been removed, and another process may have taken its name. */
    if (lstat(w->path, &st) == 0 && (uint64_t)st.st_dev == w->file[0] &&
        (uint64_t)st.st_ino == w->file[1])
        unlink(w->path);
    close(w->fd);
    free(w);
}
