/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading files in kernels: every byte is right for every group, in any pieces and order, from the cache, a mapping
 * or the servers; a second read finds the bytes in the cache; and pages that are
 * mapped by a kernel stay.
 */
#include <varve/gpufile.h>

#include "unit/gpufile/gf.h"

enum {
    BYTES = 700 * KIB + 123,
    /* Up to so many streams for each MiB of cache, in pages of 4 KiB, warps fill many pages at once; with more, one
     * after another. */
    FEW = 4
};

struct job {
    uint32_t id;
    int scope, advice;
    uint64_t piece;        /* bytes of a read */
    unsigned char *buffer; /* `piece` for each group */
    uint64_t bytes;        /* of the file */
    uint32_t groups;
    uint64_t seed;
    _Atomic uint64_t right, wrong;
    _Atomic int error;
};

static unsigned group_of(const struct job *j)
{
    return j->scope == VARVE_GBLOCK ? varve_d_block()
                                    : varve_d_block() * varve_d_warps() + varve_d_warp();
}

static void check(struct job *j, const struct varve_gfile *f, const unsigned char *p, uint64_t off,
                  int64_t n, uint64_t want)
{
    if (f->rank != 0)
        return;
    if (n != (int64_t)want)
        j->error = n < 0 ? (int)n : -EPROTO;
    else if (gf_right(p, off, want))
        j->right += want;
    else
        j->wrong++;
}

static void group_sync(const struct varve_gfile *f)
{
    if (f->by_block)
        varve_d_sync_block();
    else
        varve_d_sync_warp();
}

/* Each group reads its own stretch of the file, again and again. */
static void read_stretch(void *arg)
{
    struct job *j = arg;
    unsigned g = group_of(j);
    uint64_t each = vv_div_up(j->bytes, j->groups), off = g * each,
             end = VV_MIN(off + each, j->bytes);
    unsigned char *p = j->buffer + g * (j->piece + 64);
    struct varve_gfile f;
    int rc = varve_gopen(&gf_handle, j->id, (enum varve_gscope)j->scope, &f);

    if (rc) {
        j->error = rc;
        return;
    }
    if (j->advice)
        (void)varve_gadvise(&f, j->advice, 0, 0);
    for (; off < end; off += j->piece) {
        uint64_t want = VV_MIN(j->piece, end - off);

        check(j, &f, p, off, varve_gread(&f, off, p, want), want);
        group_sync(&f);
    }
    rc = varve_gclose(&f);
    if (rc)
        j->error = rc;
}

static void run_stretch(struct job *j, unsigned blocks, unsigned threads, unsigned resident)
{
    j->groups = j->scope == VARVE_GBLOCK ? blocks : blocks * threads / VARVE_D_WARP;
    j->buffer = aligned_alloc(64, vv_align_up(j->groups * (j->piece + 64), 64));
    T_CHECK(j->buffer);
    j->right = j->wrong = 0;
    j->error = 0;
    gf_launch(blocks, threads, resident, read_stretch, j);
    free(j->buffer);
    T_OK(j->error);
    T_EQ(j->wrong, 0);
    T_EQ(j->right, j->bytes);
}

static uint32_t add(const char *name, uint64_t bytes, int flags)
{
    uint32_t id;

    T_OK(varve_gpufs_register(gf_fs, gf_file(name, bytes), flags, &id));
    return id;
}

/* A file read once, and again from the cache. */
static void every_byte_of(uint32_t streams, int scope, int flags, uint32_t page, uint64_t piece,
                          int io)
{
    struct varve_gpufs_opts o = gf_opts();
    struct job j = {.scope = scope, .piece = piece, .bytes = BYTES};
    struct varve_gpufs_stats s, again;

    o.streams = streams;
    o.page_bytes = page;
    o.cache_bytes = VV_MAX(MIB, 64 * page * (streams == FEW ? FEW : 1));
    o.readahead_bytes = VV_MAX(o.readahead_bytes, 2 * page);
    o.split_bytes = VV_MAX(o.split_bytes, page);
    o.io = io;
    gf_bad_os(50, 200, 0);
    gf_open(&o);
    j.id = add("file", BYTES, flags);
    run_stretch(&j, 4, 4, 2);
    s = gf_stats();
    T_CHECK(s.misses >= BYTES / page);
    T_EQ(s.mapped_bytes > 0, (flags & VARVE_GFILE_MAP) != 0);
    T_EQ(s.served_bytes > 0, (flags & VARVE_GFILE_MAP) == 0);
    run_stretch(&j, 4, 4, 2);
    again = gf_stats();
    T_EQ(again.misses, s.misses);
    T_EQ(again.served_bytes + again.mapped_bytes, s.served_bytes + s.mapped_bytes);
    T_CHECK(again.hits >= s.hits + BYTES / page);
    T_OK(gf_close());
}

/* In every way. */
static void every_byte(int scope, int flags, uint32_t page, uint64_t piece, int io)
{
    every_byte_of(12, scope, flags, page, piece, io);
    every_byte_of(FEW, scope, flags, page, piece, io);
}

static void served_by_block(void)
{
    every_byte(VARVE_GBLOCK, VARVE_GFILE_READ, 4 * KIB, 40000, VARVE_GIO_PREAD);
    every_byte(VARVE_GBLOCK, VARVE_GFILE_READ, 64 * KIB, 10007, VARVE_GIO_PREAD);
}

static void served_by_warp(void)
{
    every_byte(VARVE_GWARP, VARVE_GFILE_READ, 4 * KIB, 16 * KIB, VARVE_GIO_PREAD);
    every_byte(VARVE_GWARP, VARVE_GFILE_READ, 16 * KIB, 5003, VARVE_GIO_PREAD);
}

static bool uring; /* io_uring is available */

static void served_by_uring(void)
{
    struct varve_gpufs_opts o = gf_opts();
    struct varve_opts opts;
    int rc;

    T_OK(varve_opts_init(&opts, sizeof(opts)));
    opts.device = VARVE_DEVICE_HOST;
    opts.device_cache = opts.host_cache = 0;
    T_OK(varve_open(&opts, &gf_ctx));
    o.io = VARVE_GIO_URING;
    rc = varve_gpufs_open(gf_ctx, &o, &gf_fs);
    if (rc == 0)
        T_OK(varve_gpufs_close(gf_fs));
    T_OK(varve_close(gf_ctx));
    if (rc) {
        T_ERR(rc, -ENOTSUP);
        t_note("no io_uring here");
        return;
    }
    uring = true;
    every_byte(VARVE_GBLOCK, VARVE_GFILE_READ, 4 * KIB, 40000, VARVE_GIO_URING);
}

static void mapped(void)
{
    every_byte(VARVE_GBLOCK, VARVE_GFILE_READ | VARVE_GFILE_MAP, 4 * KIB, 40000, 0);
    every_byte(VARVE_GWARP, VARVE_GFILE_READ | VARVE_GFILE_MAP, 4 * KIB, 4 * KIB, 0);
    every_byte(VARVE_GBLOCK, VARVE_GFILE_READ | VARVE_GFILE_MAP, 256 * KIB, 4 * KIB, 0);
}

/* A file several times as large as the cache, with each way to replace pages and to read ahead. */
static void larger_than_the_cache(void)
{
    for (int how = 0; how < 8; how++) {
        struct varve_gpufs_opts o = gf_opts();
        struct job j = {.scope = how % 2 ? VARVE_GWARP : VARVE_GBLOCK, .piece = 12 * KIB};
        unsigned resident = how < 6 ? 3 : 2;

        j.bytes = 3 * MIB + 1;
        o.cache_bytes = how < 6 ? 256 * KIB : MIB;
        o.streams = how < 6 ? o.streams : FEW;
        o.replace = how == 2 ? VV_GREPLACE_GLOBAL : VARVE_GREPLACE_OWN;
        o.bypass = how == 3 ? VARVE_GBYPASS_AUTO : VARVE_GBYPASS_NEVER;
        o.readahead = how == 4   ? VV_GREADAHEAD_FIXED
                      : how == 5 ? VARVE_GREADAHEAD_OFF
                                 : VARVE_GREADAHEAD_ADAPTIVE;
        gf_bad_os(20, 50, 0);
        gf_open(&o);
        j.id = add("large", j.bytes, VARVE_GFILE_READ);
        run_stretch(&j, 3, 4, resident);
        T_EQ(gf_stats().bypassed_bytes > j.bytes / 2, how == 3);
        if (how >= 6)
            T_EQ(gf_stats().bypassed_bytes, 0);
        run_stretch(&j, 3, 4, resident);
        T_OK(gf_close());
    }
}

/* The modes of the papers: each stream has its own slot of one server, and requests one page, or one window of a fixed
 * size, at a time. */
static void paper_modes(void)
{
    for (int how = 0; how < 6; how++) {
        struct varve_gpufs_opts o = gf_opts();
        struct job j = {.scope = how == 4 ? VARVE_GWARP : VARVE_GBLOCK, .piece = 20 * KIB};
        bool one_page = how % 2 == 0;

        j.bytes = 1 * MIB + 5;
        o.queue = VV_GQUEUE_SLOTS;
        o.page_bytes = how == 2 ? 64 * KIB : 4 * KIB;
        o.cache_bytes = how >= 3 ? 128 * KIB : 2 * MIB;
        o.replace = how == 5 ? VARVE_GREPLACE_OWN : VV_GREPLACE_GLOBAL;
        o.bypass = VARVE_GBYPASS_NEVER;
        o.readahead = one_page ? VARVE_GREADAHEAD_OFF : VV_GREADAHEAD_FIXED;
        o.readahead_bytes = one_page ? o.page_bytes : 32 * KIB;
        o.split_bytes = o.readahead_bytes;
        gf_bad_os(20, 50, 0);
        gf_open(&o);
        j.id = add("paper", j.bytes, VARVE_GFILE_READ);
        run_stretch(&j, 3, 4, 3);
        if (one_page) { /* neighbours may both have requested the page in which their stretches meet */
            T_CHECK(gf_stats().requests >= vv_div_up(j.bytes, o.page_bytes));
            T_EQ(gf_stats().requested_bytes, gf_stats().requests * o.page_bytes);
        }
        run_stretch(&j, 3, 4, 3);
        T_OK(gf_close());
    }
}

/* The largest pages take several requests each, or are a whole window. */
static void largest_pages(void)
{
    struct varve_gpufs_opts o = gf_opts();
    struct job j = {.scope = VARVE_GBLOCK, .piece = 3 * MIB + 1, .bytes = 13 * MIB + 3};

    o.page_bytes = 4 * MIB;
    o.window_bytes = 4 * MIB;
    o.cache_bytes = 32 * MIB;
    o.streams = 4;
    o.readahead_bytes = o.split_bytes = 0;
    gf_bad_os(20, 50, 0);
    gf_open(&o);
    j.id = add("pages", j.bytes, VARVE_GFILE_READ);
    run_stretch(&j, 2, 4, 2);
    T_CHECK(gf_stats().requests >= 7);
    T_OK(varve_gpufs_drop(gf_fs));
    T_OK(varve_gpufs_map(gf_fs, j.id, 0, 0, NULL));
    run_stretch(&j, 2, 4, 2);
    T_CHECK(gf_stats().mapped_bytes > 0);
    T_OK(gf_close());
}

/* Random offsets, sizes and alignments, all groups on the same file; some pages stay mapped. */
static void read_anywhere(void *arg)
{
    struct job *j = arg;
    unsigned g = group_of(j);
    unsigned char *p = j->buffer + g * (j->piece + 64);
    struct t_rng r = {j->seed + g};
    const void *held = NULL;
    uint64_t held_off = 0, held_bytes = 0;
    struct varve_gfile f;
    int rc = varve_gopen(&gf_handle, j->id, (enum varve_gscope)j->scope, &f);

    if (rc) {
        j->error = rc;
        return;
    }
    for (unsigned i = 0; i < 60; i++) {
        uint64_t off = t_rng_below(&r, j->bytes), n = 1 + t_rng_below(&r, j->piece),
                 skew = t_rng_below(&r, 17);

        check(j, &f, p + skew, off, varve_gread(&f, off, p + skew, n), VV_MIN(n, j->bytes - off));
        group_sync(&f);
        if (i % 8 == 3 && !held) {
            rc = varve_gmap(&f, off, &held, &held_bytes);
            held_off = off;
            if (rc)
                j->error = rc;
        } else if (i % 8 == 1 && held) {
            if (f.rank == 0 && !gf_right(held, held_off, held_bytes))
                j->wrong++;
            varve_gunmap(&f, held);
            held = NULL;
        }
    }
    if (held)
        varve_gunmap(&f, held);
    (void)varve_gclose(&f);
}

static void random_places(void)
{
    uint64_t rounds = t_cases(1, 40);

    for (uint64_t round = 0; round < 8 * rounds; round++) {
        int how = (int)(round % 4), few = round % 8 >= 4;
        struct varve_gpufs_opts o = gf_opts();
        struct job j = {.scope = how % 2 ? VARVE_GWARP : VARVE_GBLOCK, .piece = 30 * KIB};
        unsigned blocks = how % 2 ? 3 : 6;

        j.bytes = (few ? 2 : 3) * MIB + 77;
        o.cache_bytes = few ? MIB : 192 * KIB; /* 48 pages: every group takes frames from others */
        o.streams = few ? FEW : o.streams;
        gf_bad_os(20, 100, 0);
        gf_open(&o);
        j.id = add("any", j.bytes, VARVE_GFILE_READ | (how / 2 ? VARVE_GFILE_MAP : 0));
        j.seed = t_seed() + 1000 * round;
        j.groups = how % 2 ? blocks * 2 : blocks;
        j.buffer = malloc(j.groups * (j.piece + 64));
        gf_launch(blocks, 4, few && how % 2 ? 2 : 4, read_anywhere, &j);
        T_OK(j.error);
        T_EQ(j.wrong, 0);
        T_EQ(gf_pinned(), 0);
        free(j.buffer);
        T_OK(gf_close());
    }
}

/* All groups read the same file, of the size of the cache, at once. A page that several of them fill at the same time
 * is stored once, and the other frames are reused. */
static void read_all(void *arg)
{
    struct job *j = arg;
    unsigned char *p = j->buffer + group_of(j) * j->piece;
    struct varve_gfile f;
    int rc = varve_gopen(&gf_handle, j->id, (enum varve_gscope)j->scope, &f);

    if (rc) {
        j->error = rc;
        return;
    }
    for (uint64_t off = 0; off < j->bytes; off += j->piece) {
        check(j, &f, p, off, varve_gread(&f, off, p, j->piece), j->piece);
        group_sync(&f);
    }
    (void)varve_gclose(&f);
}

static void the_same_at_once(void)
{
    for (int how = 0; how < 4; how++) {
        struct varve_gpufs_opts o = gf_opts();
        struct job j = {.scope = how % 2 ? VARVE_GWARP : VARVE_GBLOCK, .piece = 64 * KIB};
        struct varve_gpufs_stats s;

        j.bytes = o.cache_bytes;
        o.streams = FEW;
        o.bypass = VARVE_GBYPASS_NEVER;
        gf_bad_os(20, 0, 0);
        gf_open(&o);
        j.id = add("same", j.bytes, VARVE_GFILE_READ | (how / 2 ? VARVE_GFILE_MAP : 0));
        j.buffer = malloc(FEW * j.piece);
        for (int round = 0; round < 4; round++)
            gf_launch(how % 2 ? 2 : FEW, 4, FEW, read_all, &j);
        T_OK(j.error);
        T_EQ(j.wrong, 0);
        T_EQ(j.right, 4 * FEW * j.bytes);
        s = gf_stats();
        T_EQ(s.bypassed_bytes, 0); /* no frame was lost */
        T_EQ(s.hits + s.misses, 4 * FEW * j.bytes / (4 * KIB));
        T_EQ(gf_pinned(), 0);
        free(j.buffer);
        T_OK(gf_close());
    }
}

/* Lanes take and link frames at once, with pages in few buckets among them: each page is found once, in a frame of its
 * own. */
enum { KEYS = 24, TAKES = 40 };

static void take_and_link(void *arg)
{
    struct job *j = arg;
    uint32_t stream = varve_d_block() % gf_handle.n_streams;
    uint64_t turn = 2 * varve_d_warp() + varve_d_lane();

    for (unsigned i = 0; i < TAKES; i++) {
        uint32_t frame = varve_g_take_warp(&gf_handle, stream, (i + turn) % 3 != 0);

        if (frame != VARVE_G_NONE &&
            (varve_d_load32_dev(&gf_handle.frames[frame].word) & VARVE_G_STATE) != VARVE_G_FREE)
            j->wrong++;
        if (frame != VARVE_G_NONE) {
            gf_handle.data[(uint64_t)frame << gf_handle.page_shift] = (unsigned char)(i % KEYS);
            j->right++;
        }
        varve_d_sync_warp();
        varve_g_link_warp(&gf_handle, frame, 0, i % KEYS);
    }
}

static void lanes_take_and_link(void)
{
    struct varve_gpufs_opts o = gf_opts();
    struct varve_gfs small;
    struct job j = {0};

    o.streams = FEW;
    gf_open(&o);
    small = gf_handle;
    gf_handle.n_buckets = 2; /* of all buckets */
    for (int round = 0; round < 8; round++) {
        unsigned linked = 0;

        gf_launch(FEW, 4, FEW, take_and_link, &j);
        T_EQ(j.wrong, 0);
        for (uint64_t page = 0; page < KEYS; page++) {
            uint32_t frame = varve_g_find(&gf_handle, 0, page);

            if (frame == VARVE_G_NONE)
                continue; /* its frame was taken meanwhile */
            T_EQ(gf_handle.data[(uint64_t)frame << gf_handle.page_shift], page);
            varve_g_unpin(&gf_handle, frame);
            linked++;
        }
        T_CHECK(linked > 0);
        for (uint32_t i = 0; i < gf_handle.n_frames; i++) {
            T_EQ(gf_handle.frames[i].word, VARVE_G_VALID);
            linked -= gf_handle.frames[i].linked;
        }
        T_EQ(linked, 0);
    }
    T_CHECK(j.right > 0);
    gf_handle = small;
    T_OK(gf_close());
}

/* Direct I/O, where the file system supports it, and where it does not. */
static void direct(void)
{
    for (int io = VARVE_GIO_PREAD; io <= VARVE_GIO_URING; io++) {
        struct varve_gpufs_opts o = gf_opts();
        struct job j = {.scope = VARVE_GBLOCK, .piece = 40000, .bytes = BYTES};

        o.direct = 1;
        o.io = io == VARVE_GIO_URING && !uring ? VARVE_GIO_PREAD : io;
        gf_open(&o);
        j.id = add("direct", BYTES, VARVE_GFILE_READ);
        run_stretch(&j, 4, 4, 2);
        T_OK(gf_close());
    }
}

static void advised(void)
{
    for (int advice = VARVE_GADV_NORMAL; advice <= VARVE_GADV_NOREUSE; advice++) {
        struct varve_gpufs_opts o = gf_opts();
        struct job j = {
            .scope = VARVE_GBLOCK, .advice = advice, .piece = 8 * KIB, .bytes = 512 * KIB};
        struct varve_gpufs_stats s;

        gf_open(&o);
        j.id = add("advised", j.bytes, VARVE_GFILE_READ);
        run_stretch(&j, 2, 4, 2);
        s = gf_stats();
        if (advice == VARVE_GADV_RANDOM) /* one request for each read, without readahead */
            T_EQ(s.requested_bytes, j.bytes);
        T_EQ(s.bypassed_bytes, advice == VARVE_GADV_NOREUSE ? j.bytes : 0);
        T_OK(gf_close());
    }
}

/* While a group reads in order, the bytes behind the window in use are requested, whether the window had to be waited
 * for or not. */
static void read_slowly(void *arg)
{
    struct job *j = arg;
    struct varve_gfile f;

    if (varve_gopen(&gf_handle, j->id, (enum varve_gscope)j->scope, &f) != 0) {
        j->error = -EPROTO;
        return;
    }
    for (uint64_t off = 0; off < j->bytes; off += j->piece) {
        check(j, &f, j->buffer, off, varve_gread(&f, off, j->buffer, j->piece), j->piece);
        if (f.rank == 0 && off) {
            const struct varve_g_window *now = &f.window[f.last], *next = &f.window[!f.last];

            if (now->off + now->bytes < j->bytes && next->off != now->off + now->bytes)
                j->error = -EPROTO;
            usleep(1000);
        }
        group_sync(&f);
    }
    (void)varve_gclose(&f);
}

static void the_next_is_asked_for(void)
{
    for (int scope = VARVE_GBLOCK; scope <= VARVE_GWARP; scope++) {
        static unsigned char buffer[8 * KIB];
        struct varve_gpufs_opts o = gf_opts();
        struct job j = {.scope = scope, .piece = sizeof(buffer), .bytes = 512 * KIB};

        j.buffer = buffer;
        gf_open(&o);
        j.id = add("next", j.bytes, VARVE_GFILE_READ);
        gf_launch(1, scope == VARVE_GBLOCK ? 4 : VARVE_D_WARP, 1, read_slowly, &j);
        T_OK(j.error);
        T_EQ(j.wrong, 0);
        T_EQ(j.right, j.bytes);
        T_EQ(gf_stats().requested_bytes, j.bytes);
        T_OK(gf_close());
    }
}

/* The first read with a handle counts as sequential if it begins the file or is large. */
static void read_first(void *arg)
{
    struct job *j = arg;
    struct varve_gfile f;

    if (varve_gopen(&gf_handle, j->id, VARVE_GBLOCK, &f) != 0) {
        j->error = -EPROTO;
        return;
    }
    check(j, &f, j->buffer, j->seed, varve_gread(&f, j->seed, j->buffer, j->piece), j->piece);
    varve_d_sync_block();
    (void)varve_gclose(&f);
}

static void first_reads(void)
{
    static const struct {
        uint64_t off, bytes;
        bool ahead;
    } reads[] = {{0, 4 * KIB, true}, {128 * KIB, 60 * KIB, false}, {128 * KIB, 64 * KIB, true}};
    static unsigned char buffer[64 * KIB];

    for (size_t i = 0; i < VV_ARRAY_SIZE(reads); i++) {
        struct varve_gpufs_opts o = gf_opts();
        struct job j = {.seed = reads[i].off, .piece = reads[i].bytes, .buffer = buffer};

        o.readahead_bytes = 64 * KIB;
        gf_open(&o);
        j.id = add("first", 512 * KIB, VARVE_GFILE_READ);
        gf_launch(1, 4, 1, read_first, &j);
        T_OK(j.error);
        T_EQ(j.wrong, 0);
        T_EQ(j.right, j.piece);
        T_EQ(gf_stats().requested_bytes > j.piece, reads[i].ahead);
        T_OK(gf_close());
    }
}

/* An announced range is there when it is read; a range that was declared useless is read from the file again. */
enum { RANGE = 16 * KIB };

static void announce_and_forget(void *arg)
{
    static const int then[] = {VARVE_GADV_WILLNEED, VARVE_GADV_NORMAL, VARVE_GADV_DONTNEED};
    struct job *j = arg;
    struct varve_gfile f;

    if (varve_gopen(&gf_handle, j->id, VARVE_GBLOCK, &f) != 0)
        return;
    if (varve_gadvise(&f, -1, 0, 0) != -EINVAL ||
        varve_gadvise(&f, VARVE_GADV_DONTNEED + 1, 0, 0) != -EINVAL ||
        varve_gadvise(&f, VARVE_GADV_WILLNEED, j->bytes, 1) != 0)
        j->error = -EPROTO;
    for (unsigned i = 0; i < VV_ARRAY_SIZE(then); i++) {
        if (varve_gadvise(&f, then[i], 4 * RANGE, RANGE) != 0)
            j->error = -EPROTO;
        group_sync(&f); /* only in the first thread: the others would find bytes of before */
        check(j, &f, j->buffer, 4 * RANGE, varve_gread(&f, 4 * RANGE, j->buffer, RANGE), RANGE);
        group_sync(&f);
    }
    (void)varve_gclose(&f);
}

static void announced_and_forgotten(void)
{
    static unsigned char buffer[RANGE];
    struct varve_gpufs_opts o = gf_opts();
    struct job j = {.bytes = 16 * RANGE, .buffer = buffer};
    struct varve_gpufs_stats s;

    o.bypass = VARVE_GBYPASS_NEVER;
    gf_open(&o);
    j.id = add("announced", j.bytes, VARVE_GFILE_READ);
    gf_launch(1, 4, 1, announce_and_forget, &j);
    T_EQ(j.error, 0);
    T_EQ(j.wrong, 0);
    T_EQ(j.right, 3 * RANGE);
    s = gf_stats();
    T_EQ(s.hits, RANGE / (4 * KIB));
    T_EQ(s.misses, 2 * RANGE / (4 * KIB));
    T_OK(gf_close());
}

/* Windows that servers have read twice are mapped automatically. */
static void hot_files_are_mapped(void)
{
    struct varve_gpufs_opts o = gf_opts();
    struct job j = {.scope = VARVE_GBLOCK, .piece = 64 * KIB, .bytes = 2 * MIB};

    o.map_hot = 1;
    o.cache_bytes = 192 * KIB;
    gf_open(&o);
    j.id = add("hot", j.bytes, VARVE_GFILE_READ);
    for (int i = 0; i < 200 && gf_stats().windows == 0; i++)
        run_stretch(&j, 2, 4, 2);
    T_EQ(gf_stats().windows, 1);
    run_stretch(&j, 2, 4, 2);
    T_CHECK(gf_stats().mapped_bytes > 0);
    T_OK(varve_gpufs_unmap(gf_fs, j.id));
    T_EQ(gf_stats().windows, 0);
    run_stretch(&j, 2, 4, 2);
    T_OK(gf_close());
}

/* Small files as well, and the last window of a large one, though a window could hold much more. */
static void small_files_are_hot(void)
{
    struct varve_gpufs_opts o = gf_opts();
    struct job j = {.scope = VARVE_GBLOCK, .piece = 64 * KIB};

    o.map_hot = 1;
    o.cache_bytes = 192 * KIB;
    o.bypass = VARVE_GBYPASS_AUTO;
    for (int large = 0; large < 2; large++) {
        o.window_bytes = (large ? 2 : 64) * MIB;
        j.bytes = large ? 2 * MIB + 200 * KIB + 77 : 500 * KIB + 77;
        gf_open(&o);
        j.id = add("small", j.bytes, VARVE_GFILE_READ);
        for (int i = 0; i < 3; i++)
            run_stretch(&j, 2, 4, 2);
        T_CHECK(gf_stats().read_bytes < 5 * j.bytes);
        for (int i = 0; i < 20000 && gf_stats().windows < 1 + (unsigned)large; i++)
            usleep(1000); /* for the thread that maps */
        T_EQ(gf_stats().windows, 1 + (unsigned)large);
        T_OK(gf_close());
    }
}

int main(void)
{
    T_RUN(served_by_block);
    T_RUN(served_by_warp);
    T_RUN(served_by_uring);
    T_RUN(mapped);
    T_RUN(larger_than_the_cache);
    T_RUN(paper_modes);
    T_RUN(largest_pages);
    T_RUN(random_places);
    T_RUN(the_same_at_once);
    T_RUN(lanes_take_and_link);
    T_RUN(direct);
    T_RUN(advised);
    T_RUN(the_next_is_asked_for);
    T_RUN(first_reads);
    T_RUN(announced_and_forgotten);
    T_RUN(hot_files_are_mapped);
    T_RUN(small_files_are_hot);
    return t_done();
}
