/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are written once and read back, block after block, as many operations in flight as there are threads.
 * Blocks are taken one after the other; the thread that writes the last missing block of a file syncs it,
 * renames it and syncs the folder, while the others go on with the next one. A pass is timed from its first block to
 * its last sync, as a whole and not in rounds: the bound needs the speed of the disk over the length of the run, not
 * over a tenth of a second.
 *
 * New blocks of a file are written where nothing was written before, so a pass pays for that as the run does.
 */
#define _GNU_SOURCE
#include "cli/measure/probe_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/measure/probe_private.h"

#define ALIGN 4096
#define HUGE \
    ((size_t)2 << 20) /* buffers in huge pages, as the library has them, cost the kernel less */

struct one {
    int fd;
    /* Synchronization: acq_rel; the thread that adds the last block has seen those of the others. */
    _Atomic uint32_t written;
    bool committed;
};

struct probe_files {
    struct probe_files_opts o;
    char folder[4096]; /* with all files in it; removed at the end */
    int dirfd;
    struct one *file;
    uint32_t nr_files, file_blocks;
    uint64_t nr_written; /* blocks, by the last pass that wrote: that is what can be read */
    unsigned char *bufs; /* a block for each thread */
    struct probe_worker workers[PROBE_THREADS_MAX];
    /* State of the running pass; set before its threads start. */
    unsigned writers;
    uint64_t deadline_ns, write_from, write_to, read_to;
    /* Synchronization: relaxed; each thread only has to get a different block. */
    _Atomic uint64_t next_write, next_read;
};

static void name_of(uint32_t i, bool committed, char *name, size_t size)
{
    snprintf(name, size, "%" PRIu32 "%s", i, committed ? "" : ".tmp");
}

static int sync_and_name(struct probe_files *p, uint32_t i)
{
    char from[32], to[32];

    if (!p->o.sync)
        return 0;
    name_of(i, false, from, sizeof(from));
    name_of(i, true, to, sizeof(to));
    if (fsync(p->file[i].fd) < 0 || renameat(p->dirfd, from, p->dirfd, to) < 0)
        return -errno;
    p->file[i].committed = true;
    return fsync(p->dirfd) < 0 ? -errno : 0;
}

static int transfer(struct probe_files *p, bool writes, unsigned char *buf, uint64_t n)
{
    uint32_t i = (uint32_t)(n / p->file_blocks);
    struct one *f = &p->file[i];
    off_t from = (off_t)(n % p->file_blocks * p->o.block_bytes);

    for (size_t done = 0; done < p->o.block_bytes;) {
        size_t left = p->o.block_bytes - done;
        ssize_t r = writes ? pwrite(f->fd, buf + done, left, from + (off_t)done)
                           : pread(f->fd, buf + done, left, from + (off_t)done);

        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return r < 0 ? -errno : -EIO;
        done += (size_t)r;
    }
    if (writes &&
        atomic_fetch_add_explicit(&f->written, 1, memory_order_acq_rel) + 1 == p->file_blocks)
        return sync_and_name(p, i);
    return 0;
}

static void *body(void *arg)
{
    struct probe_worker *w = arg;
    struct probe_files *p = w->job;
    bool writes = w->index < p->writers;
    _Atomic uint64_t *next = writes ? &p->next_write : &p->next_read;
    uint64_t end = writes ? p->write_to : p->read_to;

    while (w->rc == 0 && vv_now_ns() < p->deadline_ns) {
        uint64_t n = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);

        if (n >= end)
            break;
        w->rc = transfer(p, writes, p->bufs + (size_t)w->index * p->o.block_bytes, n);
        if (w->rc == 0)
            w->bytes += p->o.block_bytes;
    }
    return NULL;
}

/* The writes in flight at the deadline have to reach the disk as well. */
static int sync_begun(struct probe_files *p)
{
    for (uint32_t i = 0; p->o.sync && i < p->nr_files; i++) {
        uint32_t n = atomic_load_explicit(&p->file[i].written, memory_order_relaxed);

        if (n > 0 && n < p->file_blocks && fdatasync(p->file[i].fd) < 0)
            return -errno;
    }
    return 0;
}

static int pass(struct probe_files *p, unsigned writers, unsigned threads, double *ret_bps)
{
    uint64_t start = vv_now_ns(), bytes = 0;
    double bps;
    int rc;

    p->writers = writers;
    p->deadline_ns = start + (uint64_t)(p->o.seconds * 1e9);
    atomic_store_explicit(&p->next_write, p->write_from, memory_order_relaxed);
    atomic_store_explicit(&p->next_read, 0, memory_order_relaxed);
    rc = probe_workers_run(p->workers, threads, body, &bps);
    if (rc == 0 && writers > 0)
        rc = sync_begun(p);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < threads; i++)
        bytes += p->workers[i].bytes;
    *ret_bps = (double)bytes * 1e9 / (double)VV_MAX(vv_now_ns() - start, UINT64_C(1));
    return 0;
}

static int open_files(struct probe_files *p)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | (p->o.direct ? O_DIRECT : 0);
    off_t bytes = (off_t)p->file_blocks * p->o.block_bytes;

    for (uint32_t i = 0; i < p->nr_files; i++) {
        char name[32];

        name_of(i, false, name, sizeof(name));
        p->file[i].fd = openat(p->dirfd, name, flags, 0600);
        if (p->file[i].fd < 0)
            return -errno;
        if (fallocate(p->file[i].fd, 0, 0, bytes) < 0 && errno != EOPNOTSUPP)
            return -errno;
    }
    return 0;
}

static void close_files(struct probe_files *p)
{
    for (uint32_t i = 0; p->file && i < p->nr_files; i++) {
        char name[32];

        if (p->file[i].fd >= 0)
            close(p->file[i].fd);
        /* A refused direct file may have been left behind. */
        name_of(i, p->file[i].committed, name, sizeof(name));
        unlinkat(p->dirfd, name, 0);
    }
    if (p->dirfd >= 0)
        close(p->dirfd);
    if (p->folder[0])
        rmdir(p->folder);
    free(p->file);
    free(p->bufs);
    free(p);
}

/* Bytes that no disk can compress. */
static void fill(unsigned char *bufs, size_t bytes)
{
    uint64_t x = 0x9e3779b97f4a7c15;

    for (size_t i = 0; i + sizeof(x) <= bytes; i += sizeof(x)) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(bufs + i, &x, sizeof(x));
    }
}

static int files_new(const struct probe_files_opts *o, struct probe_files **ret_files)
{
    struct probe_files *p = calloc(1, sizeof(*p));
    uint64_t blocks = VV_MAX(vv_div_up(o->total_bytes, o->block_bytes), UINT64_C(2));
    int rc = 0;

    if (!p)
        return -ENOMEM;
    p->o = *o;
    p->dirfd = -1;
    p->file_blocks =
        (uint32_t)VV_MIN(VV_MAX(vv_div_up(o->file_bytes, o->block_bytes), UINT64_C(1)), blocks);
    p->nr_files = (uint32_t)vv_div_up(blocks, p->file_blocks);
    p->file = calloc(p->nr_files, sizeof(*p->file));
    if (!p->file || posix_memalign((void **)&p->bufs, HUGE, (size_t)o->threads * o->block_bytes))
        rc = -ENOMEM;
    for (uint32_t i = 0; p->file && i < p->nr_files; i++)
        p->file[i].fd = -1;
    if (rc == 0 && snprintf(p->folder, sizeof(p->folder), "%s/.varve-probe-XXXXXX", o->dir) >=
                       (int)sizeof(p->folder))
        rc = -ENAMETOOLONG;
    if (rc == 0 && !mkdtemp(p->folder))
        rc = -errno;
    if (rc < 0)
        p->folder[0] = '\0';
    if (rc == 0)
        p->dirfd = open(p->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (rc == 0 && p->dirfd < 0)
        rc = -errno;
    if (rc == 0)
        rc = open_files(p);
    if (rc < 0) {
        close_files(p);
        return rc;
    }
    (void)madvise(p->bufs, (size_t)o->threads * o->block_bytes, MADV_HUGEPAGE);
    fill(p->bufs, (size_t)o->threads * o->block_bytes);
    probe_workers_init(p->workers, o->threads, p);
    *ret_files = p;
    return 0;
}

int probe_files(const struct probe_files_opts *opts, struct probe_disk_rates *ret_rates)
{
    struct probe_disk_rates r = {0};
    struct probe_files *p;
    uint64_t all;
    int rc;

    if (!opts->dir || opts->threads < 2 || opts->threads > PROBE_THREADS_MAX ||
        opts->block_bytes == 0 || opts->block_bytes % ALIGN != 0 || opts->file_bytes == 0 ||
        opts->total_bytes == 0 || !(opts->seconds > 0 && opts->seconds <= 3600))
        return -EINVAL;
    rc = files_new(opts, &p);
    if (rc < 0)
        return rc;
    /* The first half is written alone and read alone. Then it is read while the other half is written. */
    all = (uint64_t)p->nr_files * p->file_blocks;
    p->write_to = VV_MAX(p->nr_files / 2, 1U) * (uint64_t)p->file_blocks;
    if (p->nr_files == 1)
        p->write_to = all / 2;
    rc = pass(p, opts->threads, opts->threads, &r.write_bps);
    p->read_to = VV_MIN(atomic_load(&p->next_write), p->write_to);
    if (rc == 0)
        rc = pass(p, 0, opts->threads, &r.read_bps);
    p->write_from = p->write_to;
    p->write_to = all;
    if (rc == 0)
        rc = pass(p, opts->threads / 2, opts->threads, &r.both_bps);
    close_files(p);
    if (rc == 0)
        *ret_rates = r;
    return rc;
}
