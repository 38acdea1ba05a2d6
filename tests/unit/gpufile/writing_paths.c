/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing by warp, through pages and by path; writes, syncs and asynchronous reads that the system cuts
 * short or refuses; places beyond 4 GiB; and several files in one cache.
 */
#include <varve/gpufile.h>

#include "unit/gpufile/gf.h"

enum { PAGE = 4 * KIB, THREADS = 4, BOTH = VARVE_GFILE_READ | VARVE_GFILE_WRITE };

/* Only the first error counts. */
static _Atomic int error;

static void wrong(int rc)
{
    int none = 0;

    if (rc)
        atomic_compare_exchange_strong(&error, &none, rc);
}

static void launch(unsigned blocks, unsigned resident, void (*fn)(void *), void *arg)
{
    atomic_store(&error, 0);
    gf_launch(blocks, THREADS, resident, fn, arg);
    T_OK(atomic_load(&error));
}

static void group_sync(const struct varve_gfile *f)
{
    if (f->by_block)
        varve_d_sync_block();
    else
        varve_d_sync_warp();
}

static unsigned group_of(enum varve_gscope scope)
{
    return scope == VARVE_GBLOCK ? varve_d_block()
                                 : varve_d_block() * varve_d_warps() + varve_d_warp();
}

/* ---- writing by any group ---- */

struct writing {
    uint32_t id;
    enum varve_gscope scope;
    unsigned groups;
    uint64_t bytes, piece;
    unsigned char *source, *back;
};

static void write_sync_and_read(void *arg)
{
    struct writing *w = arg;
    uint64_t each = vv_div_up(w->bytes, w->groups), off = group_of(w->scope) * each,
             end = VV_MIN(off + each, w->bytes), start = off;
    struct varve_gfile f;
    int rc = varve_gopen(&gf_handle, w->id, w->scope, &f);

    if (rc) {
        wrong(rc);
        return;
    }
    for (; off < end; off += w->piece) {
        uint64_t n = VV_MIN(w->piece, end - off);

        if (varve_gwrite(&f, off, w->source + off, n) != (int64_t)n)
            wrong(-EPROTO);
    }
    wrong(varve_gsync(&f));
    if (varve_gread(&f, start, w->back + start, end - start) != (int64_t)(end - start))
        wrong(-EPROTO);
    wrong(varve_gclose(&f));
}

static _Atomic unsigned syncs;

static int count_fsync(const struct vv_os *os, int fd)
{
    (void)os;
    syncs++;
    return vv_os_posix()->fsync(vv_os_posix(), fd);
}

static void written_by_any_group(void)
{
    for (int warp = 0; warp < 2; warp++) {
        struct varve_gpufs_opts o = gf_opts();
        struct writing w = {.scope = warp ? VARVE_GWARP : VARVE_GBLOCK,
                            .groups = warp ? 3 * THREADS / VARVE_D_WARP : 3,
                            .bytes = 200 * KIB + 77,
                            .piece = 9999};
        const char *path;
        int fd;

        w.source = malloc(w.bytes);
        w.back = calloc(1, w.bytes);
        T_CHECK(w.source && w.back);
        vv_pattern_fill(w.source, w.bytes, SEED + 1, 0, 0);
        gf_bad_os(100, 0, 0);
        gf_os.os.fsync = count_fsync;
        gf_open(&o);
        path = gf_file("written", 0);
        T_OK(varve_gpufs_register(gf_fs, path, BOTH, &w.id));
        syncs = 0;
        launch(3, 3, write_sync_and_read, &w);
        T_EQ(memcmp(w.source, w.back, w.bytes), 0);
        T_EQ(syncs, w.groups);
        T_OK(gf_close());
        memset(w.back, 0, w.bytes);
        fd = open(path, O_RDONLY);
        T_OK(vv_os_read_all(vv_os_posix(), fd, w.back, w.bytes, 0));
        T_EQ(memcmp(w.source, w.back, w.bytes), 0);
        T_EQ(close(fd), 0);
        free(w.source);
        free(w.back);
    }
}

/* ---- errors of the system ---- */

static _Atomic int write_error, sync_error;

static int64_t failing_pwrite(const struct vv_os *os, int fd, const void *buf, size_t bytes,
                              uint64_t offset)
{
    (void)os;
    if (write_error)
        return write_error;
    /* One byte less each time: a short write is continued. */
    return vv_os_posix()->pwrite(vv_os_posix(), fd, buf, bytes > 1 ? bytes - 1 : bytes, offset);
}

static int failing_fsync(const struct vv_os *os, int fd)
{
    (void)os;
    return sync_error ? sync_error : vv_os_posix()->fsync(vv_os_posix(), fd);
}

struct refused {
    uint32_t id;
    enum varve_gscope scope;
    unsigned char bytes[100], back[100];
    _Atomic int64_t wrote, synced, got;
};

static void write_and_sync(void *arg)
{
    struct refused *r = arg;
    struct varve_gfile f;
    int64_t wrote, got;
    int synced, rc = varve_gopen(&gf_handle, r->id, r->scope, &f);

    if (rc || group_of(r->scope) != 0) {
        wrong(rc ? rc : varve_gclose(&f));
        return;
    }
    wrote = varve_gwrite(&f, 0, r->bytes, sizeof(r->bytes));
    synced = varve_gsync(&f);
    got = varve_gread(&f, 0, r->back, sizeof(r->back));
    if (f.rank == 0) {
        r->wrote = wrote;
        r->synced = synced;
        r->got = got;
    }
    wrong(varve_gclose(&f));
}

static void writes_and_syncs_that_fail(void)
{
    for (int warp = 0; warp < 2; warp++) {
        struct varve_gpufs_opts o = gf_opts();
        static struct refused r;

        r.scope = warp ? VARVE_GWARP : VARVE_GBLOCK;
        memset(r.bytes, 0x5a, sizeof(r.bytes));
        gf_bad_os(0, 0, 0);
        gf_os.os.pwrite = failing_pwrite;
        gf_os.os.fsync = failing_fsync;
        write_error = -ENOSPC;
        sync_error = -EIO;
        gf_open(&o);
        T_OK(varve_gpufs_register(gf_fs, gf_file("refused", PAGE), BOTH, &r.id));
        launch(1, 1, write_and_sync, &r);
        T_EQ(r.wrote, -ENOSPC);
        T_EQ(r.synced, -EIO);
        T_EQ(r.got, 100);
        T_CHECK(gf_right(r.back, 0, 100));
        T_EQ(gf_stats().written_bytes, 0);
        write_error = sync_error = 0;
        launch(1, 1, write_and_sync, &r);
        T_EQ(r.wrote, 100);
        T_EQ(r.synced, 0);
        T_EQ(r.got, 100);
        T_EQ(memcmp(r.back, r.bytes, 100), 0);
        T_EQ(gf_stats().written_bytes, 100);
        T_OK(gf_close());
    }
}

/* Every read is shortened, or fails sometimes, before it reaches the kernel. */
static _Atomic unsigned aio_calls;
static unsigned aio_fail; /* of 1000 */

static int64_t bad_aio(const struct vv_os *os, enum vv_os_aio op, int fd, uint64_t offset,
                       size_t bytes)
{
    struct t_rng r = {gf_os.seed + atomic_fetch_add(&aio_calls, 1)};

    (void)os, (void)op, (void)fd, (void)offset;
    if (t_rng_below(&r, 1000) < aio_fail)
        return -EIO;
    return bytes > 512 ? (int64_t)(1 + t_rng_below(&r, bytes / 512 - 1)) * 512 : 0;
}

static _Atomic uint64_t good, failed;

static void read_on(void *arg)
{
    uint32_t id = *(uint32_t *)arg;
    static unsigned char buffers[3][20000];
    unsigned char *p = buffers[varve_d_block()];
    struct varve_gfile f;
    int rc = varve_gopen(&gf_handle, id, VARVE_GBLOCK, &f);

    if (rc) {
        wrong(rc);
        return;
    }
    for (uint64_t off = varve_d_block() * 20000; off < varve_gsize(&f); off += 3 * 20000) {
        int64_t n = varve_gread(&f, off, p, 20000);

        if (varve_d_thread() == 0) {
            if (n == -EIO)
                failed++;
            else if (n != (int64_t)VV_MIN(20000, varve_gsize(&f) - off) ||
                     !gf_right(p, off, (uint64_t)n))
                wrong(-EPROTO);
            else
                good++;
        }
        varve_d_sync_block();
    }
    wrong(varve_gclose(&f));
}

static void uring_is_cut_short(void)
{
    struct varve_gpufs_opts o = gf_opts();
    struct varve_gpufs *fs;
    uint32_t id;
    int rc;

    gf_open(&o);
    o.io = VARVE_GIO_URING;
    rc = varve_gpufs_open(gf_ctx, &o, &fs);
    if (rc == 0)
        T_OK(varve_gpufs_close(fs));
    T_OK(gf_close());
    if (rc) {
        T_ERR(rc, -ENOTSUP);
        t_note("no io_uring here");
        return;
    }
    for (int fail = 0; fail < 2; fail++) {
        gf_bad_os(0, 200, 0);
        gf_os.os.aio = bad_aio;
        aio_fail = fail ? 100 : 0;
        aio_calls = 0;
        good = failed = 0;
        gf_open(&o);
        T_OK(varve_gpufs_register(gf_fs, gf_file("cut", 600 * KIB + 77), VARVE_GFILE_READ, &id));
        launch(3, 3, read_on, &id);
        T_CHECK(aio_calls > 0 && good > 0);
        T_CHECK(fail ? failed > 0 : failed == 0);
        T_EQ(gf_pinned(), 0);
        /* No result of a failed read is taken for the file's bytes later. */
        aio_fail = 0;
        failed = 0;
        launch(3, 3, read_on, &id);
        T_EQ(failed, 0);
        T_OK(gf_close());
    }
}

/* ---- files that kernels make ---- */

static char new_path[600];

static void make_by_path(void *arg)
{
    static unsigned char page[PAGE];
    struct varve_gfile f;
    int rc = varve_gopen_path(&gf_handle, new_path, BOTH | VARVE_GFILE_CREATE, VARVE_GBLOCK, &f);

    (void)arg;
    if (rc) {
        wrong(rc);
        return;
    }
    for (unsigned i = varve_d_thread(); i < PAGE && varve_d_block() == 0; i += varve_d_threads())
        page[i] = gf_byte(i);
    varve_d_sync_block();
    if (varve_d_block() == 0 && varve_gwrite(&f, 0, page, PAGE) != PAGE)
        wrong(-EPROTO);
    wrong(varve_gsync(&f));
    wrong(varve_gclose(&f));
}

static void made_by_a_kernel(void)
{
    struct varve_gpufs_opts o = gf_opts();
    unsigned char back[PAGE];
    uint32_t id;
    int fd;

    gf_open(&o);
    snprintf(new_path, sizeof(new_path), "%s/made", t_tmpdir());
    launch(3, 3, make_by_path, NULL);
    T_EQ(gf_stats().files, 1); /* all groups have the same one */
    fd = open(new_path, O_RDONLY);
    T_CHECK(fd >= 0);
    T_OK(vv_os_read_all(vv_os_posix(), fd, back, PAGE, 0));
    T_CHECK(gf_right(back, 0, PAGE));
    T_EQ(close(fd), 0);
    T_OK(varve_gpufs_register(gf_fs, new_path, BOTH, &id));
    T_EQ(gf_stats().files, 1);
    T_OK(varve_gpufs_unregister(gf_fs, id));
    T_EQ(gf_stats().files, 0);
    T_OK(gf_close());
}

/* ---- pages of files that are written ---- */

static bool all_are(const unsigned char *p, uint64_t n, unsigned char what)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] != what)
            return false;
    return true;
}

/* A page mapped before a write keeps its bytes; one mapped afterwards has the new ones. */
static void map_around_a_write(void *arg)
{
    static unsigned char fill[2][PAGE];
    struct varve_gfile f;
    const void *before, *after;
    uint64_t n, m, bytes;
    int rc = varve_gopen(&gf_handle, *(uint32_t *)arg, VARVE_GBLOCK, &f);

    if (rc) {
        wrong(rc);
        return;
    }
    for (unsigned i = varve_d_thread(); i < 2 * PAGE; i += varve_d_threads())
        fill[i / PAGE][i % PAGE] = (unsigned char)(1 + i / PAGE);
    varve_d_sync_block();
    bytes = varve_gsize(&f);
    for (uint64_t at = 0; at < bytes; at += PAGE) {
        uint64_t here = VV_MIN(PAGE, bytes - at);

        if (varve_gwrite(&f, at, fill[0], here) != (int64_t)here)
            wrong(-EPROTO);
        wrong(varve_gmap(&f, at, &before, &n));
        if (n != here || !all_are(before, here, 1))
            wrong(-EBADMSG);
        group_sync(&f);
        if (varve_gwrite(&f, at, fill[1], here) != (int64_t)here)
            wrong(-EPROTO);
        wrong(varve_gmap(&f, at, &after, &m));
        if (m != here || !all_are(after, here, 2) || !all_are(before, here, 1))
            wrong(-EBADMSG);
        varve_gunmap(&f, after);
        varve_gunmap(&f, before);
    }
    wrong(varve_gclose(&f));
}

static void pages_of_written_files(void)
{
    struct varve_gpufs_opts o = gf_opts();
    uint32_t id;

    gf_open(&o);
    T_OK(varve_gpufs_register(gf_fs, gf_file("pages", 5 * PAGE + 100), BOTH, &id));
    launch(1, 1, map_around_a_write, &id);
    T_EQ(gf_pinned(), 0);
    T_OK(gf_close());
}

/* ---- places beyond 4 GiB ---- */

static const uint64_t far_away[] = {0, (UINT64_C(1) << 32) - 100, (UINT64_C(5) << 40) + 4095,
                                    (UINT64_C(7) << 40) - 2 * PAGE};

struct far {
    uint32_t id;
    bool write;
};

static void reach_far(void *arg)
{
    const struct far *a = arg;
    static unsigned char p[2 * PAGE];
    struct varve_gfile f;
    int rc = varve_gopen(&gf_handle, a->id, VARVE_GBLOCK, &f);

    if (rc) {
        wrong(rc);
        return;
    }
    for (unsigned i = 0; i < 4; i++) {
        int64_t n;

        if (varve_d_thread() == 0)
            memset(p, a->write ? 'a' + (int)i : 0, sizeof(p));
        varve_d_sync_block();
        n = a->write ? varve_gwrite(&f, far_away[i], p, sizeof(p))
                     : varve_gread(&f, far_away[i], p, sizeof(p));
        if (n != sizeof(p) || !all_are(p, sizeof(p), (unsigned char)('a' + i)))
            wrong(n < 0 ? (int)n : -EBADMSG);
        varve_d_sync_block();
    }
    wrong(varve_gclose(&f));
}

static void beyond_4_gib(void)
{
    enum { SERVED_WRITABLE, SERVED, MAPPED, WAYS };

    for (int way = 0; way < WAYS; way++) {
        struct varve_gpufs_opts o = gf_opts();
        struct far a = {.write = true};
        const char *path;

        o.window_bytes = 256 * UINT64_C(1024) * KIB;
        gf_open(&o);
        path = gf_file("sparse", 1);
        if (truncate(path, (off_t)7 << 40) < 0) {
            t_note("no sparse file of 7 TiB here");
            T_OK(gf_close());
            return;
        }
        T_OK(varve_gpufs_register(gf_fs, path, BOTH, &a.id));
        launch(1, 1, reach_far, &a);
        if (way != SERVED_WRITABLE)
            T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &a.id));
        if (way == MAPPED)
            /* Only the last window: each would bring 256 MiB of zeros into the page cache. */
            T_OK(varve_gpufs_map(gf_fs, a.id, far_away[3], 2 * PAGE, NULL));
        a.write = false;
        launch(1, 1, reach_far, &a);
        if (way == MAPPED)
            T_EQ(gf_stats().mapped_bytes, 2 * PAGE);
        T_OK(gf_close());
        T_EQ(unlink(path), 0);
    }
}

/* ---- several files in one cache ---- */

enum { FILES = 20, FILE_PAGES = 8 };

static uint32_t ids[FILES];

/* The word that fills page p of file i. */
static uint64_t word_of(uint64_t i, uint64_t p)
{
    return (i + 1) << 32 | p;
}

static void read_all_files(void *arg)
{
    static uint64_t buffers[4][FILE_PAGES * PAGE / 8];
    uint64_t *p = buffers[varve_d_block()];

    (void)arg;
    for (unsigned k = 0; k < FILES; k++) {
        unsigned i = (k + 5 * varve_d_block()) % FILES;
        struct varve_gfile f;
        int rc = varve_gopen(&gf_handle, ids[i], VARVE_GBLOCK, &f);

        if (rc) {
            wrong(rc);
            return;
        }
        if (varve_gread(&f, 0, p, FILE_PAGES * PAGE) != FILE_PAGES * PAGE)
            wrong(-EPROTO);
        for (unsigned at = 0; at < FILE_PAGES * PAGE / 8; at++)
            if (p[at] != word_of(i, at / (PAGE / 8)))
                wrong(-EBADMSG);
        varve_d_sync_block();
        wrong(varve_gclose(&f));
    }
}

static void several_files_in_one_cache(void)
{
    uint64_t words[PAGE / 8];
    struct varve_gpufs_stats before, s;

    for (int small = 0; small < 2; small++) {
        struct varve_gpufs_opts o = gf_opts();

        o.files = FILES;
        o.cache_bytes = small ? 192 * KIB : 4 * MIB;
        gf_bad_os(20, 50, 0);
        gf_open(&o);
        for (unsigned i = 0; i < FILES; i++) {
            char name[16];
            const char *path;
            int fd;

            snprintf(name, sizeof(name), "several%u", i);
            path = gf_file(name, 0);
            fd = open(path, O_RDWR);
            T_CHECK(fd >= 0);
            for (unsigned p = 0; p < FILE_PAGES; p++) {
                for (unsigned at = 0; at < PAGE / 8; at++)
                    words[at] = word_of(i, p);
                T_EQ(pwrite(fd, words, PAGE, (off_t)p * PAGE), PAGE);
            }
            T_EQ(close(fd), 0);
            T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ, &ids[i]));
        }
        launch(4, 4, read_all_files, NULL);
        before = gf_stats();
        launch(4, 4, read_all_files, NULL);
        s = gf_stats();
        if (!small) /* all pages are there */
            T_EQ(s.misses, before.misses);
        T_EQ(s.hits + s.misses - before.hits - before.misses, 4 * FILES * FILE_PAGES);
        T_EQ(gf_pinned(), 0);
        T_OK(gf_close());
    }
}

int main(void)
{
    T_RUN(written_by_any_group);
    T_RUN(writes_and_syncs_that_fail);
    T_RUN(uring_is_cut_short);
    T_RUN(made_by_a_kernel);
    T_RUN(pages_of_written_files);
    T_RUN(beyond_4_gib);
    T_RUN(several_files_in_one_cache);
    return t_done();
}
