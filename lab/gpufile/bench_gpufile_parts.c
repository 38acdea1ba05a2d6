/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experiments. Each fills in rows. A failed one stores the reason in its row, and the next one starts.
 * Destination memory is spoilt before each run and compared, word by word, after it.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <varve/gpufile_device.h>

#include "base/bytes.h"
#include "lab/gpufile/bench_gpufile.h"
#include "lab/gpufile/gf_kernels.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

/* Memory on the device, freed together. */
struct memory {
    struct gfb *b;
    void *p[6];
    unsigned n;
};

static void *take(struct memory *m, uint64_t bytes, int *rc)
{
    void *p = NULL;

    if (*rc || !bytes)
        return NULL;
    *rc = vv_device_mem_alloc(m->b->device, bytes, &p);
    if (*rc)
        (void)gfb_fail(m->b, *rc, "%llu MiB on the device: %s", (unsigned long long)(bytes / MIB),
                       strerror(-*rc));
    else
        m->p[m->n++] = p;
    return p;
}

static void memory_fini(struct memory *m)
{
    for (unsigned i = 0; i < m->n; i++)
        (void)vv_device_mem_free(m->b->device, m->p[i]);
    m->n = 0;
}

static void show(struct gfb *b, const struct gfb_row *r)
{
    char what[128];

    snprintf(what, sizeof(what), "%s %s %s", r->part, r->group, r->mode);
    progress_show(&b->progress, (double)b->steps_done / (double)VV_MAX(b->steps, 1u), what);
}

/* Bytes of an earlier run must not pass for those of this one. */
static int spoil(struct gfb *b, const struct gfb_input *in, unsigned char *const dst[3])
{
    unsigned blocks, threads;
    int rc = 0;

    gf_app_grid(b->gpu, &blocks, &threads);
    for (unsigned k = 0; rc == 0 && k < in->n; k++) {
        struct gf_args a = {
            .out = (uint32_t *)(void *)dst[k], .words = in->bytes[k] / 4, .seed = in->seed + 1000};

        rc = gf_gpu_launch(b->gpu, GF_K_fill, blocks, threads, &a);
    }
    return rc ? rc : gf_gpu_sync(b->gpu);
}

/* True for ways that reach a few GB/s at best: one thread, one page a request, or one lock for all requests. For these
 * a part of the file and one run are enough to show the rate. */
static bool is_slow(enum gfb_mode mode, uint64_t page)
{
    return mode == GFB_CPU || mode == GFB_PREFETCH_GLOBAL ||
           (mode == GFB_GPUFS_4K && page < 64 * KIB);
}

static uint32_t runs_of(const struct gfb *b, enum gfb_mode mode, uint64_t page)
{
    return is_slow(mode, page) ? 1 : b->o.runs;
}

/* ---- one file, read on and on ---- */

/* Reads the input in the way, so many times, and fills in the row: the fastest counts. */
static int measure(struct gfb *b, const struct gfb_way *way, const struct gfb_input *in,
                   unsigned char *const dst[3], struct gfb_row *row)
{
    struct gfb_reader *r = NULL;
    double s, best = INFINITY;
    uint64_t wrong = 0;
    int rc;

    show(b, row);
    row->bytes = gfb_input_bytes(in);
    row->cold = way->cold;
    row->wrong = 0;
    rc = gfb_predict(b, way, in, &row->predicted_s);
    if (rc == 0)
        rc = gfb_reader_new(b, way, in, &r);
    for (uint32_t run = 0; rc == 0 && run < runs_of(b, way->mode, way->page); run++) {
        rc = spoil(b, in, dst);
        if (rc == 0)
            rc = gfb_reader_read(r, dst, &s);
        if (rc == 0)
            best = fmin(best, s);
        if (rc == 0)
            rc = gfb_check(b, in, dst, &wrong);
        row->wrong += wrong;
    }
    if (rc == 0)
        row->io_s = best + gfb_reader_map_s(r);
    gfb_reader_free(r);
    if (rc == 0)
        rc = gfb_predict_after(b, way, in, &row->predicted_s);
    if (rc)
        snprintf(row->text, sizeof(row->text), "%s", b->error);
    else
        row->text[0] = '\0';
    b->bad |= rc != 0 || row->wrong;
    return rc == -EINTR ? rc : 0;
}

/* A file of plain words, and memory for it. */
struct plain {
    struct gfb_input in;
    struct memory m;
    unsigned char *dst[3];
    uint64_t room; /* at dst[0] */
};

static void plain_fini(struct plain *p)
{
    gfb_input_fini(&p->in);
    memory_fini(&p->m);
}

static int plain_init(struct gfb *b, uint64_t bytes, uint64_t room, struct plain *p)
{
    struct gf_shape s = {.app = GF_2DCONV, .seed = b->o.seed, .rows = 1, .cols = 1};
    int rc;

    *p = (struct plain){.m = {.b = b}};
    s.bytes[0] = bytes;
    rc = gfb_input_new(b, &s, &p->in);
    if (rc)
        return rc;
    p->dst[0] = take(&p->m, room, &rc);
    p->room = room;
    if (rc)
        plain_fini(p);
    return rc;
}

static struct gfb_way default_way(const struct gfb *b, enum gfb_mode mode, uint64_t cache)
{
    return (struct gfb_way){.mode = mode,
                            .cache_bytes = cache,
                            .blocks = b->o.blocks,
                            .threads = b->o.threads,
                            .cold = b->o.cold};
}

/* One row of a figure over sizes, or of a figure over modes if size is 0. */
static int one(struct gfb *b, struct plain *p, enum gfb_part part, const char *group,
               enum gfb_mode mode, uint64_t cache, uint32_t page, uint32_t ahead, double x)
{
    struct gfb_way way = default_way(b, mode, cache);
    struct gfb_input in = p->in;
    struct gfb_row *row;

    if (!(b->o.modes >> mode & 1) || gfb_over(b))
        return 0;
    if (is_slow(mode, page) && !b->emulated && !b->o.cold) {
        in.bytes[0] /= 4;
        way.cache_bytes /= 4;
    }
    row = gfb_row(b, gfb_part_name(part), group, page ? GFB_ANY_PAGES : gfb_mode_name(mode));
    if (!row)
        return -ENOMEM;
    row->x = x;
    way.page = page;
    way.ahead = ahead;
    way.piece = VV_MAX(128 * KIB, (uint64_t)VV_MAX(page, ahead));
    return measure(b, &way, &in, p->dst, row);
}

/* Rows that two figures share are measured once. True if there was such a row. */
static bool repeat(struct gfb *b, enum gfb_part from, enum gfb_part to, const char *group,
                   const char *mode)
{
    const struct gfb_row *old = gfb_find(b, gfb_part_name(from), group, mode);
    struct gfb_row copy, *row;

    if (!old || old->text[0] || old->cold != b->o.cold)
        return false;
    copy = *old;
    row = gfb_row(b, gfb_part_name(to), group, mode);
    if (!row)
        return false;
    snprintf(copy.part, sizeof(copy.part), "%s", row->part);
    *row = copy;
    return true;
}

/* Figures 2 and 9. A size above the bytes of a block is of no use. */
static int over_sizes(struct gfb *b, enum gfb_part part)
{
    static const enum gfb_mode pages[] = {GFB_GPUFS_4K},
                               aheads[] = {GFB_GPUFS_4K, GFB_PREFETCH, GFB_VARVE_KEPT};
    const enum gfb_mode *modes = part == GFB_PAGES ? pages : aheads;
    size_t n = part == GFB_PAGES ? VV_ARRAY_SIZE(pages) : VV_ARRAY_SIZE(aheads);
    uint64_t cache = b->o.bytes + b->o.bytes / 8;
    struct plain p;
    int rc = plain_init(b, b->o.bytes, b->o.bytes, &p);

    if (rc)
        return rc;
    for (uint64_t size = 4 * KIB; rc == 0 && size <= 4 * MIB && size * b->o.blocks <= b->o.bytes;
         size *= 2) {
        char group[GFB_NAME];

        (void)vv_bytes_format(size, group, sizeof(group));
        for (size_t i = 0; rc == 0 && i < n; i++) {
            bool by_page = modes[i] == GFB_GPUFS_4K;

            if (by_page && part == GFB_AHEAD && b->o.modes >> modes[i] & 1 &&
                repeat(b, GFB_PAGES, part, group, GFB_ANY_PAGES))
                continue;
            rc = one(b, &p, part, group, modes[i], cache, by_page ? (uint32_t)size : 0,
                     by_page ? 0 : (uint32_t)size, (double)size);
        }
        if (part == GFB_PAGES)
            for (int mode = GFB_CPU; rc == 0 && mode <= GFB_DOUBLE; mode++)
                rc = size == 4 * KIB ? one(b, &p, part, "all", (enum gfb_mode)mode, cache, 0, 0, 0)
                                     : 0;
    }
    plain_fini(&p);
    return rc;
}

/* Figure 10, and its references. */
static int over_caches(struct gfb *b)
{
    static const struct {
        const char *name;
        unsigned times;
    } groups[] = {{"fits", 0}, {"2x", 2}, {"8x", 8}};
    struct plain p;
    int rc = plain_init(b, b->o.bytes, b->o.bytes, &p);

    if (rc)
        return rc;
    for (size_t g = 0; g < VV_ARRAY_SIZE(groups); g++)
        for (int mode = 0; rc == 0 && mode < GFB_MODE_NR; mode++)
            rc = one(b, &p, GFB_LARGE, groups[g].name, (enum gfb_mode)mode,
                     groups[g].times ? b->o.bytes / groups[g].times : b->o.bytes + b->o.bytes / 8,
                     0, 0, 0);
    plain_fini(&p);
    return rc;
}

/* ---- nothing in the page cache ---- */

static int depth_row(struct gfb *b, struct plain *p, unsigned depth)
{
    char name[GFB_NAME];
    struct gfb_row *row;
    double rate;
    int rc;

    if (gfb_over(b))
        return 0;
    snprintf(name, sizeof(name), "direct-%u", depth);
    row = gfb_row(b, gfb_part_name(GFB_COLD), "reader", name);
    if (!row)
        return -ENOMEM;
    show(b, row);
    row->cold = true;
    row->x = depth;
    row->bytes = p->in.bytes[0];
    row->predicted_s = NAN;
    rc = gfb_disk_rate(b, &p->in, depth, &rate);
    if (rc)
        snprintf(row->text, sizeof(row->text), "%s", b->error);
    else
        row->io_s = (double)row->bytes / rate;
    b->bad |= rc != 0;
    return 0;
}

static int cold(struct gfb *b)
{
    uint64_t cache = b->o.bytes + b->o.bytes / 8;
    bool was = b->o.cold;
    struct plain p;
    int rc = plain_init(b, b->o.bytes, b->o.bytes, &p);

    if (rc)
        return rc;
    b->o.cold = true;
    for (unsigned depth = 1; rc == 0 && depth <= 64; depth *= 2)
        rc = depth_row(b, &p, depth);
    for (int mode = 0; rc == 0 && mode < GFB_MODE_NR; mode++)
        if (mode != GFB_PREFETCH_GLOBAL && mode != GFB_PREFETCH_MANY && mode != GFB_VARVE_MAPPED)
            rc = one(b, &p, GFB_COLD, "all", (enum gfb_mode)mode, cache, 0, 0, 0);
    b->o.cold = was;
    plain_fini(&p);
    return rc;
}

/* ---- warps that read for themselves ---- */

struct warps {
    struct gfb *b;
    struct varve_gpufs *fs;
    struct gf_args a;
    uint32_t blocks, threads;
    uint64_t groups;
};

static void warps_init(struct gfb *b, uint64_t piece, struct warps *w)
{
    *w = (struct warps){.b = b, .threads = b->emulated ? 4 : 256};
    w->blocks = b->emulated ? b->o.blocks : 3 * gf_gpu_processors(b->gpu);
    w->groups = (uint64_t)w->blocks * (w->threads / (b->emulated ? 2 : 32));
    w->a = (struct gf_args){.n_files = 1, .piece = piece, .laps = 1, .result = b->result};
}

static int warps_open(struct warps *w, const struct gfb_way *way, struct plain *p)
{
    double map_s;
    int rc = gfb_fs_open(w->b, way, &p->in, (uint32_t)w->groups, &w->fs, w->a.file, &map_s);

    if (rc == 0)
        rc = varve_gpufs_handle(w->fs, &w->a.fs);
    w->a.bytes[0] = p->in.bytes[0];
    w->a.dst[0] = p->dst[0];
    return rc;
}

static int warps_run(struct warps *w, enum gf_kernel kernel, double *ret_s)
{
    double start = gfb_now_s();
    int rc = gf_gpu_launch(w->b->gpu, kernel, w->blocks, w->threads, &w->a);

    if (rc == 0)
        rc = gf_gpu_sync(w->b->gpu);
    *ret_s = gfb_now_s() - start;
    return rc;
}

/* Stores the time of a run in its row, or the reason of its failure. */
static void ended(struct gfb *b, struct gfb_row *row, int rc, double s)
{
    if (rc)
        snprintf(row->text, sizeof(row->text), "%s", b->error);
    else
        row->io_s = s;
    b->bad |= rc != 0 || row->wrong;
}

/* ---- records at random ---- */

static int mosaic_run(struct gfb *b, struct warps *w, struct plain *p, struct gfb_row *row,
                      double *ret_s)
{
    struct gf_args junk = {
        .out = (uint32_t *)(void *)p->dst[0], .words = row->bytes / 4, .seed = 99};
    struct gf_args c = {.in = {(const uint32_t *)(const void *)p->dst[0]},
                        .bytes = {p->in.bytes[0]},
                        .piece = w->a.piece,
                        .words = row->bytes / 4,
                        .seed = w->a.seed,
                        .step = p->in.seed,
                        .cols = p->in.cols,
                        .result = b->result};
    struct gf_result result = {0};
    unsigned blocks, threads;
    int rc;

    gf_app_grid(b->gpu, &blocks, &threads);
    if (b->o.cold)
        gfb_input_drop(&p->in);
    rc = varve_gpufs_drop(w->fs);
    if (rc == 0)
        rc = gfb_result_clear(b);
    if (rc == 0)
        rc = gf_gpu_launch(b->gpu, GF_K_fill, blocks, threads, &junk);
    if (rc == 0)
        rc = gf_gpu_sync(b->gpu);
    if (rc == 0)
        rc = warps_run(w, GF_K_records, ret_s);
    if (rc == 0)
        rc = gf_gpu_launch(b->gpu, GF_K_check_records, blocks, threads, &c);
    if (rc == 0)
        rc = gfb_result_get(b, &result);
    if (rc == 0)
        row->wrong += result.wrong + (result.bytes != row->bytes);
    return rc;
}

/* As for sequential reads, with as many blocks as there are warps. But if a request is larger than a record, the
 * rest of it comes along. */
static int mosaic_predict(struct gfb *b, const struct gfb_way *way, struct plain *p,
                          const struct warps *w, struct gfb_row *row)
{
    double whole, share = (double)row->bytes / (double)p->in.bytes[0];
    struct gfb_way many = *way;
    int rc;

    many.blocks = (uint32_t)w->groups;
    many.anywhere = true;
    many.fetched = row->bytes * (way->mode == GFB_GPUFS_4K ? 1 : 16);
    rc = gfb_predict(b, &many, &p->in, &whole);
    if (rc == 0)
        row->predicted_s = whole * share * (way->mode == GFB_GPUFS_4K ? 1 : 16);
    return rc;
}

/* Readahead is of no use here, and must cost nothing: varve is measured with it and without. */
static int mosaic_row(struct gfb *b, struct plain *p, enum gfb_mode mode, bool no_ahead)
{
    struct gfb_way way = default_way(b, mode, VV_MAX(b->o.mosaic_bytes / 16, 2 * MIB));
    double s, best = INFINITY;
    char name[GFB_NAME];
    struct gfb_row *row;
    struct warps w;
    int rc;

    snprintf(name, sizeof(name), "%s%s", gfb_mode_name(mode), no_ahead ? "-noahead" : "");
    if (!(b->o.modes >> mode & 1) || gfb_over(b))
        return 0;
    row = gfb_row(b, gfb_part_name(GFB_MOSAIC), "all", name);
    if (!row)
        return -ENOMEM;
    show(b, row);
    warps_init(b, 4 * KIB, &w);
    w.a.seed = b->o.seed + 7;
    w.a.count = VV_MAX(b->o.records_bytes / (gfb_is_paper(mode) && !b->emulated ? 32 : 1) /
                           w.a.piece / w.groups,
                       UINT64_C(1));
    row->bytes = w.groups * w.a.count * w.a.piece;
    row->cold = b->o.cold;
    way.ahead = mode < GFB_VARVE_KEPT ? 0 : (no_ahead ? 4 : 64) * (uint32_t)KIB;
    rc = row->bytes > p->room ? gfb_fail(b, -EFBIG, "more warps than --records has records")
                              : mosaic_predict(b, &way, p, &w, row);
    if (rc == 0)
        rc = warps_open(&w, &way, p);
    for (uint32_t run = 0; rc == 0 && run < (gfb_is_paper(mode) ? 1 : b->o.runs); run++) {
        rc = mosaic_run(b, &w, p, row, &s);
        best = fmin(best, s);
    }
    (void)varve_gpufs_close(w.fs);
    ended(b, row, rc, best);
    return 0;
}

/* The rate at which threads read at random is an upper limit for servers. */
static int mosaic(struct gfb *b)
{
    struct gfb_preads how = {.piece = 4 * KIB, .anywhere = true, .direct = b->o.cold};
    struct plain p;
    struct gfb_row *row;
    double rate;
    int rc =
        plain_init(b, b->o.mosaic_bytes / 4096 * 4096, VV_MAX(b->o.records_bytes, 16 * MIB), &p);

    if (rc)
        return rc;
    row = gfb_row(b, gfb_part_name(GFB_MOSAIC), "all", "pread");
    rc = row ? gfb_pread_rate(b, &p.in, &how, &rate) : -ENOMEM;
    if (rc == 0) {
        row->bytes = p.in.bytes[0];
        row->io_s = (double)row->bytes / rate;
        row->predicted_s = NAN;
        row->cold = b->o.cold;
    }
    for (int mode = GFB_GPUFS_4K; rc == 0 && mode < GFB_MODE_NR; mode++) {
        if (mode == GFB_PREFETCH_GLOBAL || mode == GFB_PREFETCH_MANY || mode == GFB_VARVE)
            continue;
        rc = mosaic_row(b, &p, (enum gfb_mode)mode, false);
        if (rc == 0 && gfb_is_ours((enum gfb_mode)mode))
            rc = mosaic_row(b, &p, (enum gfb_mode)mode, true);
    }
    plain_fini(&p);
    return rc;
}

/* ---- what is in the cache already ---- */

/* Reads once more from the cache, to a place where it can be compared. */
static int hits_check(struct gfb *b, struct warps *w, struct plain *p, uint64_t *ret_wrong)
{
    double s;
    int rc = spoil(b, &p->in, p->dst);

    w->a.own = 0;
    w->a.laps = 1;
    if (rc == 0)
        rc = warps_run(w, GF_K_read_warp, &s);
    return rc ? rc : gfb_check(b, &p->in, p->dst, ret_wrong);
}

static int hits_row(struct gfb *b, struct plain *p, uint64_t piece)
{
    uint64_t bytes = p->in.bytes[0];
    struct gfb_way way = default_way(b, GFB_VARVE_KEPT, bytes + bytes / 4);
    struct gf_result result = {0};
    char name[GFB_NAME];
    struct gfb_row *row;
    struct warps w;
    double s = 0;
    int rc;

    if (gfb_over(b))
        return 0;
    (void)vv_bytes_format(piece, name, sizeof(name));
    row = gfb_row(b, gfb_part_name(GFB_HITS), name, gfb_mode_name(GFB_VARVE_KEPT));
    if (!row)
        return -ENOMEM;
    show(b, row);
    way.cold = false;
    way.ahead = 64 * (uint32_t)KIB;
    warps_init(b, piece, &w);
    w.a.own = 1;
    rc = w.groups * piece > p->room ? gfb_fail(b, -EFBIG, "no room for the warps' buffers")
                                    : warps_open(&w, &way, p);
    for (int run = 0; rc == 0 && run < 2; run++) {
        w.a.laps = run ? b->emulated ? 2 : 16 : 1; /* the first pass fills the cache */
        rc = gfb_result_clear(b);
        if (rc == 0)
            rc = warps_run(&w, GF_K_read_warp, &s);
        if (rc == 0)
            rc = gfb_result_get(b, &result);
    }
    row->bytes = result.bytes;
    row->predicted_s = NAN;
    if (rc == 0)
        rc = hits_check(b, &w, p, &row->wrong);
    (void)varve_gpufs_close(w.fs);
    ended(b, row, rc, s);
    return 0;
}

static int hits(struct gfb *b)
{
    uint64_t bytes = VV_MIN(b->o.bytes, 2048 * MIB);
    struct plain p;
    /* Each group has a buffer, and the whole file has to fit as well. */
    int rc = plain_init(b, bytes, VV_MAX(bytes, b->emulated ? 8 * MIB : 1024 * MIB), &p);

    if (rc)
        return rc;
    for (uint64_t piece = 4 * KIB; rc == 0 && piece <= 64 * KIB; piece *= 16)
        rc = hits_row(b, &p, piece);
    plain_fini(&p);
    return rc;
}

/* ---- the fourteen programs ---- */

struct program {
    struct gf_shape shape;
    struct gfb_input in;
    struct memory m;
    struct gf_memory mem;
    unsigned char *dst[3];
    uint64_t expected;
};

static void program_fini(struct program *p)
{
    gfb_input_fini(&p->in);
    memory_fini(&p->m);
}

static void unmap_files(const struct gfb_input *in, const uint32_t *map[3])
{
    for (unsigned k = 0; k < in->n; k++)
        if (map[k])
            (void)munmap((void *)(uintptr_t)map[k], in->bytes[k]);
}

/* The files, mapped for the processor. Unmapped after use: mapped files cannot be dropped from the page cache. */
static int map_files(struct gfb *b, const struct gfb_input *in, const uint32_t *ret_map[3])
{
    int rc = 0;

    for (unsigned k = 0; k < 3; k++)
        ret_map[k] = NULL;
    for (unsigned k = 0; rc == 0 && k < in->n; k++) {
        void *p = mmap(NULL, in->bytes[k], PROT_READ, MAP_SHARED, in->fd[k], 0);

        if (p == MAP_FAILED)
            rc = gfb_fail(b, -errno, "%s: %s", in->path[k], strerror(errno));
        else
            ret_map[k] = p;
    }
    if (rc)
        unmap_files(in, ret_map);
    return rc;
}

static int program_init(struct gfb *b, enum gf_app_id app, struct program *p)
{
    const uint32_t *map[3];
    int rc;

    *p = (struct program){.m = {.b = b}};
    gf_shape_init(app, b->o.scale, b->o.seed, &p->shape);
    rc = gfb_input_new(b, &p->shape, &p->in);
    if (rc)
        return rc;
    for (unsigned k = 0; k < p->in.n; k++) {
        p->dst[k] = take(&p->m, p->in.bytes[k], &rc);
        p->mem.in[k] = (uint32_t *)(void *)p->dst[k];
    }
    p->mem.out = take(&p->m, 4 * p->shape.out_words, &rc);
    p->mem.tmp = take(&p->m, 4 * p->shape.tmp_words, &rc);
    p->mem.result = b->result;
    if (rc == 0)
        rc = map_files(b, &p->in, map);
    if (rc == 0) {
        rc = gf_app_expect(&p->shape, map, b->o.servers, &p->expected);
        if (rc)
            (void)gfb_fail(b, rc, "what should come out: %s", strerror(-rc));
        unmap_files(&p->in, map);
    }
    if (rc)
        program_fini(p);
    return rc;
}

static int lud_check(struct gfb *b, struct program *p, bool *ret_right)
{
    uint64_t bytes = 4 * p->shape.out_words;
    uint32_t *host = malloc(bytes);
    const uint32_t *map[3];
    int rc = host ? gfb_copy(b, host, p->mem.out, bytes) : -ENOMEM;

    if (rc == 0)
        rc = map_files(b, &p->in, map);
    if (rc == 0) {
        rc = gf_lud_right(&p->shape, map[0], host, b->o.servers, ret_right);
        unmap_files(&p->in, map);
    }
    free(host);
    return rc;
}

/* The present result on the device. */
static int program_check(struct gfb *b, struct program *p, uint64_t *ret_wrong)
{
    struct gf_args a = {.in = {p->mem.out}, .words = p->shape.out_words, .result = b->result};
    struct gf_result result;
    unsigned blocks, threads;
    bool right = true;
    int rc = gfb_result_clear(b);

    gf_app_grid(b->gpu, &blocks, &threads);
    if (p->shape.app == GF_LUD) {
        rc = lud_check(b, p, &right);
    } else {
        if (rc == 0)
            rc = gf_gpu_launch(b->gpu, GF_K_sum, blocks, threads, &a);
        if (rc == 0)
            rc = gfb_result_get(b, &result);
        right = rc == 0 && result.sum == p->expected;
    }
    if (rc == 0)
        *ret_wrong = !right;
    return rc;
}

static int program_run(struct gfb *b, struct program *p, const struct gfb_way *way,
                       struct gfb_row *row)
{
    struct gfb_reader *r = NULL;
    double io, start, compute, best = INFINITY;
    uint64_t wrong = 0, wrong_result = 0;
    int rc = gfb_predict(b, way, &p->in, &row->predicted_s);

    row->wrong = 0;
    if (rc == 0)
        rc = gfb_reader_new(b, way, &p->in, &r);
    for (uint32_t run = 0; rc == 0 && run < runs_of(b, way->mode, 0); run++) {
        rc = spoil(b, &p->in, p->dst);
        if (rc == 0)
            rc = gfb_reader_read(r, p->dst, &io);
        start = gfb_now_s();
        if (rc == 0)
            rc = gf_app_compute(b->gpu, b->device, &p->shape, &p->mem);
        if (rc == 0)
            rc = gf_gpu_sync(b->gpu);
        compute = gfb_now_s() - start;
        if (rc == 0)
            rc = program_check(b, p, &wrong_result);
        if (rc == 0)
            rc = gfb_check(b, &p->in, p->dst, &wrong);
        if (rc)
            break;
        row->wrong += wrong + wrong_result;
        io += gfb_reader_map_s(r);
        if (io + compute < best) {
            best = row->total_s = io + compute;
            row->io_s = io;
        }
    }
    gfb_reader_free(r);
    if (rc == 0)
        rc = gfb_predict_after(b, way, &p->in, &row->predicted_s);
    return rc;
}

/* One program in all ways, with a cache of its input's size or of half of it. */
static int program_modes(struct gfb *b, enum gfb_part part, enum gf_app_id app, struct program *p)
{
    uint64_t bytes = gfb_input_bytes(&p->in);

    for (int mode = 0; mode < GFB_MODE_NR; mode++) {
        struct gfb_way way =
            default_way(b, (enum gfb_mode)mode, part == GFB_HALF ? bytes / 2 : bytes + bytes / 8);
        struct gfb_row *row;

        if (!(b->o.modes >> mode & 1) || gfb_over(b))
            continue;
        /* Modes without a cache do not depend on its size. */
        if (part == GFB_HALF && mode <= GFB_DOUBLE && b->o.parts >> GFB_APPS & 1 &&
            repeat(b, GFB_APPS, part, gf_apps[app].name, gfb_mode_name(way.mode)))
            continue;
        if (!b->emulated)
            way.blocks = gf_apps[app].blocks;
        row = gfb_row(b, gfb_part_name(part), gf_apps[app].name, gfb_mode_name(way.mode));
        if (!row)
            return -ENOMEM;
        show(b, row);
        row->bytes = bytes;
        row->cold = way.cold;
        if (program_run(b, p, &way, row) != 0)
            snprintf(row->text, sizeof(row->text), "%s", b->error);
        b->bad |= row->text[0] || row->wrong;
    }
    return 0;
}

/* Its files are written once, and the expected result is computed once, for both sizes of the cache. */
static int program(struct gfb *b, enum gf_app_id app)
{
    struct program p;
    int rc = program_init(b, app, &p);

    if (rc)
        return rc;
    for (int part = GFB_APPS; rc == 0 && part <= GFB_HALF; part++)
        if (b->o.parts >> part & 1)
            rc = program_modes(b, (enum gfb_part)part, app, &p);
    program_fini(&p);
    return rc;
}

/* ---- all of them ---- */

/* Writes the rows so far, in case the run ends early. */
static int keep(struct gfb *b)
{
    char err[GFB_PATH + GFB_TEXT];
    int rc = gfb_rates_keep(b);

    if (rc == 0)
        rc = gfb_write(b, err, sizeof(err));
    b->steps_done++;
    return rc ? gfb_fail(b, rc, "%s", err) : 0;
}

/* One step for each program: both sizes of the cache. */
static int run_programs(struct gfb *b)
{
    int rc = 0;

    for (int app = 0; rc == 0 && app < GF_APP_NR; app++)
        if (b->o.apps >> app & 1 && !gfb_over(b)) {
            rc = program(b, (enum gf_app_id)app);
            if (rc == 0)
                rc = keep(b);
        }
    return rc;
}

static int run_part(struct gfb *b, enum gfb_part part)
{
    switch (part) {
    case GFB_PAGES:
    case GFB_AHEAD:
        return over_sizes(b, part);
    case GFB_LARGE:
        return over_caches(b);
    case GFB_MOSAIC:
        return mosaic(b);
    case GFB_HITS:
        return hits(b);
    default:
        return cold(b);
    }
}

int gfb_run(struct gfb *b)
{
    const unsigned with_apps = 1u << GFB_APPS | 1u << GFB_HALF;
    unsigned others = b->o.parts & ~with_apps;
    int rc = gfb_rates_measure(b);

    b->steps = (unsigned)__builtin_popcount(others) +
               (b->o.parts & with_apps ? (unsigned)__builtin_popcount(b->o.apps) : 0);
    for (int part = 0; rc == 0 && part < GFB_PART_NR; part++) {
        if (part == GFB_APPS && b->o.parts & with_apps)
            rc = run_programs(b);
        if (rc == 0 && others >> part & 1 && !gfb_over(b)) {
            rc = gfb_rates_of(b, (enum gfb_part)part);
            if (rc == 0)
                rc = run_part(b, (enum gfb_part)part);
            if (rc == 0)
                rc = keep(b);
        }
    }
    return rc;
}
