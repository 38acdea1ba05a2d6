/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing files in kernels: the file gets all bytes, and every read that begins after the write has returned sees
 * them, even if its page is in the cache, in a window that was requested before, or on its way into the cache at that
 * moment.
 */
#include <varve/gpufile.h>

#include "unit/gpufile/gf.h"

enum { PAGES = 24, PAGE = 4 * KIB, ROUNDS = 30, BLOCKS = 5, WRITERS = 2, THREADS = 4 };

/* Page p is filled with words of its version. */
struct board {
    uint32_t id;
    uint64_t seed;
    _Atomic uint64_t said[PAGES]; /* a version that has certainly been written */
    unsigned char buffer[BLOCKS][8 * PAGE];
    _Atomic int error;
    _Atomic uint64_t stale, reads;
};

static void write_pages(struct board *b, struct varve_gfile *f, unsigned me)
{
    uint64_t *words = (uint64_t *)b->buffer[me];
    struct t_rng r = {b->seed + me};

    for (uint64_t round = 1; round <= ROUNDS; round++) {
        /* Writers have pages of their own, so that versions only grow. */
        uint64_t page = t_rng_below(&r, PAGES / WRITERS) * WRITERS + me, version = round;
        int64_t n;

        for (unsigned i = varve_d_thread(); i < PAGE / 8; i += varve_d_threads())
            words[i] = version;
        varve_d_sync_block();
        n = varve_gwrite(f, page * PAGE, words, PAGE);
        if (varve_d_thread() == 0) {
            if (n != PAGE)
                b->error = n < 0 ? (int)n : -EPROTO;
            atomic_store(&b->said[page], version);
        }
        varve_d_sync_block();
    }
}

/* The minimum that a read has to see. */
struct floor {
    uint64_t version[8];
};

static void check_pages(struct board *b, const unsigned char *p, uint64_t n, const uint64_t *least)
{
    for (uint64_t k = 0; k < n; k++) {
        const uint64_t *w = (const uint64_t *)(p + k * PAGE);

        if (w[0] < least[k])
            b->stale++;
        b->reads++;
        for (unsigned i = 1; i < PAGE / 8; i++)
            if (w[i] < least[k])
                b->stale++;
    }
}

static void read_pages(struct board *b, struct varve_gfile *f, unsigned me)
{
    struct t_rng r = {b->seed + 100 + me};
    VARVE_D_SHARED(struct floor, least);

    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t at = t_rng_below(&r, PAGES), n = 1 + t_rng_below(&r, 8);

        /* Continue from there: readahead has windows under way. */
        for (unsigned step = 0; step < 3 && at < PAGES; step++, at += n) {
            uint64_t pages = VV_MIN(n, PAGES - at);
            int64_t got;

            if (varve_d_thread() == 0)
                for (uint64_t k = 0; k < pages; k++)
                    least->version[k] = atomic_load(&b->said[at + k]);
            varve_d_sync_block();
            got = varve_gread(f, at * PAGE, b->buffer[me], pages * PAGE);
            if (varve_d_thread() == 0) {
                if (got != (int64_t)(pages * PAGE))
                    b->error = got < 0 ? (int)got : -EPROTO;
                else
                    check_pages(b, b->buffer[me], pages, least->version);
            }
            varve_d_sync_block();
        }
    }
}

static void readers_and_writers(void *arg)
{
    struct board *b = arg;
    unsigned me = varve_d_block();
    struct varve_gfile f;
    int rc = varve_gopen(&gf_handle, b->id, VARVE_GBLOCK, &f);

    if (rc) {
        b->error = rc;
        return;
    }
    if (me < WRITERS)
        write_pages(b, &f, me);
    else
        read_pages(b, &f, me);
    rc = varve_gclose(&f);
    if (rc)
        b->error = rc;
}

static void no_read_is_stale(void)
{
    uint64_t runs = t_cases(8, 100);

    for (uint64_t run = 0; run < runs; run++) {
        struct varve_gpufs_opts o = gf_opts();
        static struct board b;
        char path[600];
        unsigned char *zero = calloc(PAGES, PAGE);
        int fd;

        memset(&b, 0, sizeof(b));
        b.seed = t_seed() + run * 1000;
        o.cache_bytes = run % 2 ? 128 * KIB : MIB;
        gf_bad_os(200, 0, 0);
        gf_os.seed += run;
        gf_open(&o);
        snprintf(path, sizeof(path), "%s/board", t_tmpdir());
        fd = open(path, O_CREAT | O_RDWR, 0600);
        T_CHECK(fd >= 0 && zero);
        T_EQ(pwrite(fd, zero, PAGES * PAGE, 0), PAGES * PAGE);
        T_OK(varve_gpufs_register(gf_fs, path, VARVE_GFILE_READ | VARVE_GFILE_WRITE, &b.id));
        gf_launch(BLOCKS, THREADS, BLOCKS, readers_and_writers, &b);
        T_OK(b.error);
        T_EQ(b.stale, 0);
        T_CHECK(b.reads > 0);
        for (uint64_t p = 0; p < PAGES; p++) {
            uint64_t w;

            T_EQ(pread(fd, &w, 8, (off_t)(p * PAGE)), 8);
            T_EQ(w, b.said[p]);
        }
        T_EQ(close(fd), 0);
        free(zero);
        T_OK(gf_close());
    }
}

/* ---- a new file, in pieces of any size ---- */

struct pieces {
    uint32_t id;
    uint64_t bytes, piece;
    unsigned char *source, *back;
    _Atomic int error;
};

static void write_and_read_back(void *arg)
{
    struct pieces *p = arg;
    uint64_t each = vv_div_up(p->bytes, varve_d_blocks()), off = varve_d_block() * each,
             end = VV_MIN(off + each, p->bytes), start = off;
    struct varve_gfile f;
    int64_t n;
    int rc = varve_gopen(&gf_handle, p->id, VARVE_GBLOCK, &f);

    if (rc) {
        p->error = rc;
        return;
    }
    for (; off < end; off += n) {
        n = varve_gwrite(&f, off, p->source + off, VV_MIN(p->piece, end - off));
        if (n <= 0) {
            p->error = (int)n;
            break;
        }
        if (varve_gsize(&f) > p->bytes)
            p->error = -EPROTO;
    }
    rc = varve_gsync(&f);
    if (rc == 0 && varve_gread(&f, start, p->back + start, end - start) != (int64_t)(end - start))
        rc = -EPROTO;
    if (rc)
        p->error = rc;
    (void)varve_gclose(&f);
}

static void a_new_file_of(uint64_t bytes, uint64_t piece)
{
    struct varve_gpufs_opts o = gf_opts();
    struct pieces p = {.bytes = bytes, .piece = piece};
    uint64_t after;
    char path[600];
    int fd;

    p.source = malloc(p.bytes);
    p.back = calloc(1, p.bytes);
    T_CHECK(p.source && p.back);
    vv_pattern_fill(p.source, p.bytes, SEED, 0, 0);
    gf_open(&o);
    snprintf(path, sizeof(path), "%s/new", t_tmpdir());
    T_OK(varve_gpufs_register(gf_fs, path,
                              VARVE_GFILE_READ | VARVE_GFILE_WRITE | VARVE_GFILE_CREATE, &p.id));
    gf_launch(3, THREADS, 3, write_and_read_back, &p);
    T_OK(p.error);
    T_EQ(memcmp(p.back, p.source, p.bytes), 0);
    T_EQ(gf_stats().written_bytes, p.bytes);
    T_OK(gf_close());
    fd = open(path, O_RDONLY);
    T_CHECK(fd >= 0);
    T_OK(vv_os_posix()->file_bytes(vv_os_posix(), fd, &after));
    T_EQ(after, p.bytes);
    T_OK(vv_os_read_all(vv_os_posix(), fd, p.back, p.bytes, 0));
    T_EQ(memcmp(p.back, p.source, p.bytes), 0);
    T_EQ(close(fd), 0);
    free(p.source);
    free(p.back);
}

/* Groups end and begin in the same page, and learn the file's new end at different times. */
static void a_new_file(void)
{
    a_new_file_of(300 * KIB + 77, 19999);
    for (uint64_t i = 0; i < t_cases(20, 1000); i++)
        a_new_file_of(3 * 4096 + 500 + i, 4096);
}

static void write_once(void *arg)
{
    struct pieces *p = arg;
    struct varve_gfile f;
    int64_t n;

    if (varve_gopen(&gf_handle, p->id, VARVE_GWARP, &f) != 0)
        return;
    n = varve_gwrite(&f, p->piece, p->source, p->bytes);
    if (f.rank == 0)
        p->error = (int)n;
    (void)varve_gclose(&f);
}

static void writes_that_fail(void)
{
    struct varve_gpufs_opts o = gf_opts();
    struct pieces p = {.bytes = 100};

    p.source = calloc(1, 100);
    gf_open(&o);
    T_OK(varve_gpufs_register(gf_fs, gf_file("kept", 1000), VARVE_GFILE_READ, &p.id));
    gf_launch(1, 2, 1, write_once, &p);
    T_ERR(p.error, -EACCES);
    T_OK(varve_gpufs_register(gf_fs, gf_file("other", 1000), VARVE_GFILE_WRITE, &p.id));
    p.piece = UINT64_MAX - 50;
    gf_launch(1, 2, 1, write_once, &p);
    T_ERR(p.error, -EFBIG);
    p.piece = 0;
    T_OK(varve_gpufs_stop(gf_fs));
    gf_launch(1, 2, 1, write_once, &p);
    T_ERR(p.error, -ENOTCONN);
    T_OK(gf_close());
    free(p.source);
}

int main(void)
{
    T_RUN(a_new_file);
    T_RUN(writes_that_fail);
    T_RUN(no_read_is_stale);
    return t_done();
}
