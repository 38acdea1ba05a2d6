/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of GPU files: a context with the emulated device, small file systems on it, files with contents
 * that can be checked, kernels that run in threads, and an operating system that is slow, reads short and fails on
 * demand.
 */
#ifndef GF_H
#define GF_H

#define VARVE_EMULATE 1
#include <varve/gpufile.h>
#include <varve/gpufile_device.h>

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/pattern.h"
#include "base/util.h"
#include "gpufile/gpufile_hooks.h"
#include "t.h"

enum { KIB = 1024, MIB = 1024 * KIB, SEED = 7 };

static struct varve_ctx *gf_ctx;
static struct varve_gpufs *gf_fs;
static struct varve_gfs gf_handle;

/* ---- an operating system with failures ---- */

struct gf_os {
    struct vv_os os;
    _Atomic uint64_t calls;
    unsigned delay, cut, fail; /* of 1000 reads */
    _Atomic int fail_with;     /* every read, if not 0 */
    uint64_t seed;
};

static struct gf_os gf_os;

__attribute__((unused)) static int64_t gf_pread(const struct vv_os *os, int fd, void *buf,
                                                size_t bytes, uint64_t offset)
{
    struct gf_os *g = (struct gf_os *)(uintptr_t)os;
    struct t_rng r = {g->seed + atomic_fetch_add(&g->calls, 1)};

    if (atomic_load(&g->fail_with))
        return atomic_load(&g->fail_with);
    if (t_rng_below(&r, 1000) < g->delay)
        usleep((useconds_t)t_rng_below(&r, 300));
    if (t_rng_below(&r, 1000) < g->fail)
        return -EIO;
    if (t_rng_below(&r, 1000) < g->cut && bytes > 1)
        bytes = 1 + t_rng_below(&r, bytes - 1);
    return vv_os_posix()->pread(vv_os_posix(), fd, buf, bytes, offset);
}

__attribute__((unused)) static void gf_bad_os(unsigned delay, unsigned cut, unsigned fail)
{
    gf_os.os = *vv_os_posix();
    gf_os.os.pread = gf_pread;
    gf_os.delay = delay;
    gf_os.cut = cut;
    gf_os.fail = fail;
    gf_os.seed = t_seed();
    atomic_store(&gf_os.fail_with, 0);
    vv_gpufile_set_os(&gf_os.os);
}

/* ---- file systems ---- */

static struct varve_gpufs_opts gf_opts(void)
{
    struct varve_gpufs_opts o;

    T_OK(varve_gpufs_opts_init(&o, sizeof(o)));
    o.cache_bytes = MIB;
    o.window_bytes = 2 * MIB;
    o.streams = 12;
    o.files = 8;
    o.servers = 2;
    o.readahead_bytes = 32 * KIB;
    o.split_bytes = 8 * KIB;
    o.timeout_ms = 20000;
    return o;
}

static void gf_open(const struct varve_gpufs_opts *o)
{
    struct varve_opts opts;

    T_OK(varve_opts_init(&opts, sizeof(opts)));
    opts.device = VARVE_DEVICE_HOST;
    opts.device_cache = 0;
    opts.host_cache = 0;
    T_OK(varve_open(&opts, &gf_ctx));
    T_OK(vv_gpufile_open(gf_ctx, o, &gf_fs));
    T_OK(varve_gpufs_handle(gf_fs, &gf_handle));
}

static int gf_close(void)
{
    int rc = varve_gpufs_close(gf_fs);

    gf_fs = NULL;
    T_OK(varve_close(gf_ctx));
    vv_gpufile_set_os(NULL);
    return rc;
}

/* Makes a file of this size, in a folder that is removed with the test. The text lives until the next call. */
__attribute__((unused)) static const char *gf_file(const char *name, uint64_t bytes)
{
    static char path[4][512];
    static const char *dir;
    static unsigned next;
    char *p = path[next++ % 4];
    unsigned char *buf = malloc(MIB);
    int fd;

    if (!dir)
        dir = t_tmpdir();
    snprintf(p, 512, "%s/%s", dir, name);
    fd = open(p, O_CREAT | O_TRUNC | O_RDWR, 0600);
    T_CHECK(fd >= 0 && buf);
    for (uint64_t at = 0; at < bytes; at += MIB) {
        size_t n = (size_t)VV_MIN(bytes - at, MIB);

        vv_pattern_fill(buf, n, SEED, 0, at);
        T_EQ(pwrite(fd, buf, n, (off_t)at), (ssize_t)n);
    }
    T_EQ(close(fd), 0);
    free(buf);
    return p;
}

/* The byte at an offset of such a file. */
__attribute__((unused)) static unsigned char gf_byte(uint64_t at)
{
    return (unsigned char)(vv_pattern_word(SEED, 0, at / 8) >> 8 * (at % 8));
}

/* Compares bytes [off, off + n) of it. */
__attribute__((unused)) static bool gf_right(const unsigned char *p, uint64_t off, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] != gf_byte(off + i))
            return false;
    return true;
}

__attribute__((unused)) static struct varve_gpufs_stats gf_stats(void)
{
    struct varve_gpufs_stats s = {.stats_size = sizeof(s)};

    T_OK(varve_gpufs_stats(gf_fs, &s));
    return s;
}

/* Number of pages that are mapped or being filled. */
__attribute__((unused)) static unsigned gf_pinned(void)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < gf_handle.n_frames; i++)
        n +=
            gf_handle.frames[i].word != VARVE_G_VALID && gf_handle.frames[i].word != VARVE_G_FAILED;
    return n;
}

/* ---- kernels ---- */

/* Memory shared by the threads of a group: gread needs one buffer. */
__attribute__((unused)) static void gf_launch(unsigned blocks, unsigned threads, unsigned resident,
                                              void (*fn)(void *), void *arg)
{
    varve_emu_jitter = 30;
    T_OK(varve_emu_launch(blocks, threads, resident, t_seed(), fn, arg));
}

#endif
