/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain loops, one transfer at a time with a wait for its end, as the baselines do. Loops that can be repeated are
 * cut into rounds, and the fastest counts, as in probe.c and for the same reason.
 */
#include "lab/shot/probe_baseline.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

#define ROUNDS 4
#define PAGE   ((size_t)4096)

struct probe {
    struct vv_device *d;
    size_t bytes;
    double round_s;
    char *dev;
    char *host;
    bool pinned;
    struct vv_stream *stream;
    struct vv_event *event;
};

static int copy(struct probe *p, void *dst, const void *src)
{
    struct vv_copy_seg seg = {dst, src, p->bytes};
    int rc = vv_device_copy_async(p->d, p->stream, &seg, 1);

    if (rc == 0)
        rc = vv_device_event_record(p->d, p->event, p->stream);
    return rc ? rc : vv_device_event_wait(p->d, p->event, -1);
}

static void probe_fini(struct probe *p)
{
    vv_device_event_free(p->d, p->event);
    vv_device_stream_free(p->d, p->stream);
    vv_device_mem_free(p->d, p->dev);
    if (p->pinned)
        vv_device_host_unregister(p->d, p->host);
    if (p->host)
        munmap(p->host, vv_align_up(p->bytes, PAGE));
}

static int probe_init(struct probe *p)
{
    size_t bytes = vv_align_up(p->bytes, PAGE);
    void *ptr;
    int rc = vv_device_mem_alloc(p->d, bytes, &ptr);

    if (rc)
        return rc;
    p->dev = ptr;
    ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED)
        return -ENOMEM;
    p->host = ptr;
    (void)madvise(ptr, bytes, MADV_HUGEPAGE);
    memset(ptr, 1, bytes);
    rc = vv_device_host_register(p->d, ptr, bytes);
    p->pinned = rc == 0;
    if (rc == 0)
        rc = vv_device_stream_new(p->d, &p->stream);
    return rc ? rc : vv_device_event_new(p->d, &p->event);
}

/* ---- the link ---- */

static int loop_link(struct probe *p, bool down, double *ret_bps)
{
    double best = 0;
    int rc = 0;

    for (int round = 0; rc == 0 && round < ROUNDS; round++) {
        uint64_t start = vv_now_ns(), end = start;
        double bytes = 0;

        while (rc == 0 && (bytes == 0 || (double)(end - start) * 1e-9 < p->round_s)) {
            rc = copy(p, down ? p->host : p->dev, down ? p->dev : p->host);
            bytes += (double)p->bytes;
            end = vv_now_ns();
        }
        best = fmax(best, bytes * 1e9 / (double)VV_MAX(end - start, UINT64_C(1)));
    }
    if (rc == 0)
        *ret_bps = best;
    return rc;
}

int probe_link_waited(struct vv_device *d, size_t bytes, double seconds, double *ret_down_bps,
                      double *ret_up_bps)
{
    struct probe p = {.d = d, .bytes = bytes, .round_s = seconds / ROUNDS};
    double down = 0, up = 0;
    int rc;

    if (bytes == 0 || !(seconds >= 0 && seconds <= 3600))
        return -EINVAL;
    rc = probe_init(&p);
    if (rc == 0)
        rc = loop_link(&p, true, &down);
    if (rc == 0)
        rc = loop_link(&p, false, &up);
    probe_fini(&p);
    if (rc == 0) {
        *ret_down_bps = down;
        *ret_up_bps = up;
    }
    return rc;
}

/* ---- files ---- */

int probe_file_transfer(int fd, char *buf, size_t bytes, bool writing)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = writing ? write(fd, buf + at, bytes - at) : read(fd, buf + at, bytes - at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += (size_t)n;
    }
    return 0;
}

static int one_file(const char *path, bool direct, char *buf, size_t bytes, bool writing)
{
    int flags = (writing ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY) | (direct ? O_DIRECT : 0);
    int fd = open(path, flags | O_CLOEXEC, 0600);
    int rc;

    if (fd < 0)
        return -errno;
    rc = probe_file_transfer(fd, buf, bytes, writing);
    if (close(fd) && rc == 0)
        rc = -errno;
    return rc;
}

static void name_of(const char *dir, unsigned i, char *path, size_t size)
{
    snprintf(path, size, "%s/.varve-probe-%ld.%u", dir, (long)getpid(), i);
}

static int all_files(const char *dir, bool direct, char *buf, size_t bytes, unsigned count,
                     bool writing, double *ret_bps)
{
    uint64_t start = vv_now_ns();
    char path[4096];
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < count; i++) {
        name_of(dir, i, path, sizeof(path));
        rc = one_file(path, direct, buf, bytes, writing);
    }
    if (rc == 0)
        *ret_bps = (double)bytes * count * 1e9 / (double)VV_MAX(vv_now_ns() - start, UINT64_C(1));
    return rc;
}

int probe_file(const char *dir, bool direct, size_t bytes, unsigned count, double *ret_write_bps,
               double *ret_read_bps)
{
    double write_bps = 0, read_bps = 0;
    char path[4096];
    void *buf;
    int rc;

    if (bytes == 0 || count == 0)
        return -EINVAL;
    bytes = vv_align_up(bytes, PAGE);
    rc = -posix_memalign(&buf, PAGE, bytes);
    if (rc)
        return rc;
    memset(buf, 0x5a, bytes);
    rc = all_files(dir, direct, buf, bytes, count, true, &write_bps);
    if (rc == 0)
        rc = all_files(dir, direct, buf, bytes, count, false, &read_bps);
    for (unsigned i = 0; i < count; i++) {
        name_of(dir, i, path, sizeof(path));
        unlink(path);
    }
    free(buf);
    if (rc == 0) {
        *ret_write_bps = write_bps;
        *ret_read_bps = read_bps;
    }
    return rc;
}
