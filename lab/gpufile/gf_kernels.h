/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of `varve bench gpufile`, in one source for the GPU and for threads: reading whole files and random
 * records, checks, and the fourteen programs (lab/gpufile/gf_apps.h).
 *
 * All of them count in 32-bit words modulo 2^32, so that a result does not depend on the order of
 * additions, and is either right or wrong. A function computes one element of a result; the processor calls it as
 * well, for the expected result.
 */
#ifndef LAB_GPUFILE_GF_KERNELS_H
#define LAB_GPUFILE_GF_KERNELS_H

#include <varve/gpufile_device.h>

#include "base/pattern.h"

enum { GF_FILES = 3, GF_TILE = 32, GF_HIDDEN = 16, GF_DEGREE = 8, GF_NW_TILE = 64 };

/* Contents of a file. */
enum gf_content { GF_PLAIN, GF_LUD_MATRIX, GF_GRAPH };

struct gf_result {
    uint64_t bytes; /* read */
    uint64_t wrong; /* words */
    uint64_t sum;
    uint64_t changed;
    uint64_t failed; /* an errno, not negative; 0: none */
};

/* Arguments of all kernels; each uses some of them. */
struct gf_args {
    struct varve_gfs fs;
    uint32_t file[GF_FILES]; /* numbers */
    uint64_t bytes[GF_FILES];
    unsigned char *dst[GF_FILES];
    uint32_t n_files;
    uint32_t advice, laps;
    uint32_t own; /* each group has a buffer of `piece` bytes, instead of the file's place in dst */
    uint64_t piece; /* bytes of one read */
    uint64_t count; /* records of each warp */
    uint64_t seed;
    uint32_t content, tag; /* of the file to be checked */

    const uint32_t *in[GF_FILES];
    const uint32_t *x, *z;
    uint32_t *out, *tmp;
    uint64_t rows, cols, planes, step, words;
    uint32_t alpha, beta;
    struct gf_result *result;
};

/* ---- contents ---- */

VV_PATTERN_FN uint32_t gf_mix(uint64_t seed, uint64_t tag, uint64_t i)
{
    return (uint32_t)vv_pattern_mix(seed + (tag << 56) + i * VV_PATTERN_STEP);
}

/* Word i of a file. */
VV_PATTERN_FN uint32_t gf_word(uint32_t content, uint64_t seed, uint64_t tag, uint64_t n,
                               uint64_t i)
{
    uint32_t w = gf_mix(seed, tag, i);

    if (content == GF_LUD_MATRIX) {
        /* Even below the diagonal and odd on it: every pivot is odd, and has an inverse. */
        uint64_t r = i / n, c = i % n;

        return c < r ? w & ~1u : c == r ? w | 1u : w;
    }
    if (content == GF_GRAPH) {
        /* A tree, so that few steps reach all nodes, and edges to neighbours. */
        uint64_t node = i / GF_DEGREE, e = i % GF_DEGREE;

        return (uint32_t)(e < 2 ? (2 * node + 1 + e) % n : (node + n + w % 2048 - 1024) % n);
    }
    return w;
}

/* The weight of a word of a result in the sum over it. */
VV_PATTERN_FN uint64_t gf_weigh(uint64_t i, uint32_t w)
{
    return (uint64_t)w * (vv_pattern_mix(i + 1) | 1);
}

#ifdef VARVE_D_CODE

/* ---- who does what ---- */

VARVE_D_FN uint64_t gf_first(void)
{
    return (uint64_t)varve_d_block() * varve_d_threads() + varve_d_thread();
}

VARVE_D_FN uint64_t gf_stride(void)
{
    return (uint64_t)varve_d_blocks() * varve_d_threads();
}

#define GF_EACH(i, n) for (uint64_t i = gf_first(); i < (n); i += gf_stride())

/* ---- reading ---- */

VARVE_D_FN void gf_ended(const struct gf_args *a, const struct varve_gfile *f, uint64_t bytes,
                         int rc)
{
    if (f->rank != 0)
        return;
    varve_d_add64_dev(&a->result->bytes, bytes);
    if (rc)
        varve_d_max64_dev(&a->result->failed, (uint64_t)-rc);
}

/* Each group reads its own stretch of one file. */
VARVE_D_FN void gf_read_file(const struct gf_args *a, uint32_t k, enum varve_gscope scope,
                             uint64_t group, uint64_t groups)
{
    uint64_t pieces = (a->bytes[k] + a->piece - 1) / a->piece, got = 0;
    uint64_t first = pieces * group / groups, last = pieces * (group + 1) / groups;
    struct varve_gfile f;
    int rc = varve_gopen(&a->fs, a->file[k], scope, &f);
    int opened = rc == 0;

    if (rc == 0 && a->advice)
        rc = varve_gadvise(&f, (int)a->advice, 0, 0);
    for (uint32_t lap = 0; rc == 0 && lap < a->laps; lap++)
        for (uint64_t i = first; rc == 0 && i < last; i++) {
            uint64_t off = i * a->piece;
            unsigned char *to = a->dst[k] + (a->own ? group * a->piece : off);
            uint64_t want = a->bytes[k] - off < a->piece ? a->bytes[k] - off : a->piece;
            int64_t n = varve_gread(&f, off, to, want);

            if (n < 0)
                rc = (int)n;
            else if ((uint64_t)n != want)
                rc = -EIO;
            else
                got += want;
        }
    if (opened) {
        int closed = varve_gclose(&f);

        rc = rc ? rc : closed;
    }
    gf_ended(a, &f, got, rc);
}

VARVE_D_FN void gf_kernel_read(const struct gf_args *a)
{
    for (uint32_t k = 0; k < a->n_files; k++)
        gf_read_file(a, k, VARVE_GBLOCK, varve_d_block(), varve_d_blocks());
}

VARVE_D_FN void gf_kernel_read_warp(const struct gf_args *a)
{
    for (uint32_t k = 0; k < a->n_files; k++)
        gf_read_file(a, k, VARVE_GWARP,
                     (uint64_t)varve_d_block() * varve_d_warps() + varve_d_warp(),
                     (uint64_t)varve_d_blocks() * varve_d_warps());
}

/* The index of the i-th record of a group in the file. */
VARVE_D_FN uint64_t gf_record(const struct gf_args *a, uint64_t i)
{
    return vv_pattern_mix(a->seed + i * VV_PATTERN_STEP) % (a->bytes[0] / a->piece);
}

/* Each warp reads records at random, one after another, into dst. */
VARVE_D_FN void gf_kernel_records(const struct gf_args *a)
{
    uint64_t group = (uint64_t)varve_d_block() * varve_d_warps() + varve_d_warp(), got = 0;
    struct varve_gfile f;
    int rc = varve_gopen(&a->fs, a->file[0], VARVE_GWARP, &f);
    int opened = rc == 0;

    for (uint64_t i = group * a->count; rc == 0 && i < (group + 1) * a->count; i++) {
        int64_t n = varve_gread(&f, gf_record(a, i) * a->piece, a->dst[0] + i * a->piece, a->piece);

        if (n != (int64_t)a->piece)
            rc = n < 0 ? (int)n : -EIO;
        else
            got += a->piece;
    }
    if (opened) {
        int closed = varve_gclose(&f);

        rc = rc ? rc : closed;
    }
    gf_ended(a, &f, got, rc);
}

/* Pulls host memory as varve_gread does: each warp a page at a time. */
VARVE_D_FN void gf_kernel_pull(const struct gf_args *a)
{
    uint64_t warp = (uint64_t)varve_d_block() * varve_d_warps() + varve_d_warp(),
             warps = (uint64_t)varve_d_blocks() * varve_d_warps();

    for (uint64_t at = warp * a->piece; at < a->bytes[0]; at += warps * a->piece)
        varve_g_pull(varve_d_lane(), VARVE_D_WARP, a->dst[0] + warp * a->piece, NULL, 0, 0,
                     (const unsigned char *)a->in[0] + at, (uint32_t)(a->piece / 16));
}

/* Does to the pages of the cache what reading does, and nothing else: the first lane of each warp takes one after
 * another, gives it a unique key and releases it. `step` differs from run to run. */
VARVE_D_FN void gf_kernel_takes(const struct gf_args *a)
{
    uint64_t group = (uint64_t)varve_d_block() * varve_d_warps() + varve_d_warp(),
             groups = (uint64_t)varve_d_blocks() * varve_d_warps(), got = 0;

    if (varve_d_lane() != 0)
        return;
    for (uint64_t i = 0; i < a->count; i++) {
        uint32_t frame = varve_g_take(&a->fs, (uint32_t)(group % a->fs.n_streams));

        if (frame == VARVE_G_NONE)
            continue;
        if (varve_g_link(&a->fs, frame, a->file[0], (a->step * groups + group) * a->count + i))
            varve_d_add32_release_dev(&a->fs.frames[frame].word,
                                      VARVE_G_VALID - VARVE_G_BUSY - VARVE_G_PIN);
        got++;
    }
    varve_d_add64_dev(&a->result->sum, got);
}

/* ---- checks ---- */

/* The number of words at in[0] that differ from those of the file. */
VARVE_D_FN void gf_kernel_check(const struct gf_args *a)
{
    uint64_t wrong = 0;

    GF_EACH(i, a->words)
    wrong += a->in[0][i] != gf_word(a->content, a->seed, a->tag, a->cols, i);
    if (wrong)
        varve_d_add64_dev(&a->result->wrong, wrong);
}

/* The same for `words` words of records that were read at random. */
VARVE_D_FN void gf_kernel_check_records(const struct gf_args *a)
{
    uint64_t wrong = 0, each = a->piece / 4;

    GF_EACH(i, a->words)
    wrong += a->in[0][i] != gf_word(a->content, a->step, a->tag, a->cols,
                                    gf_record(a, i / each) * each + i % each);
    if (wrong)
        varve_d_add64_dev(&a->result->wrong, wrong);
}

VARVE_D_FN void gf_kernel_sum(const struct gf_args *a)
{
    uint64_t sum = 0;

    GF_EACH(i, a->words)
    sum += gf_weigh(i, a->in[0][i]);
    varve_d_add64_dev(&a->result->sum, sum);
}

/* A vector known to both sides; with seed 0, zeros. */
VARVE_D_FN uint32_t gf_vector(uint64_t seed, uint64_t i)
{
    return seed ? gf_mix(seed, 7, i) : 0;
}

VARVE_D_FN void gf_kernel_fill(const struct gf_args *a)
{
    GF_EACH(i, a->words)
    a->out[i] = gf_vector(a->seed, i);
}

/* ---- grids: each element of the result from its neighbourhood ---- */

/* Row-major; outside of the grid it has the values of the edge. */
VARVE_D_FN uint32_t gf_at2(const uint32_t *p, uint64_t rows, uint64_t cols, int64_t r, int64_t c)
{
    r = r < 0 ? 0 : r >= (int64_t)rows ? (int64_t)rows - 1 : r;
    c = c < 0 ? 0 : c >= (int64_t)cols ? (int64_t)cols - 1 : c;
    return p[(uint64_t)r * cols + (uint64_t)c];
}

VARVE_D_FN uint32_t gf_hotspot_at(const struct gf_args *a, uint64_t i)
{
    int64_t r = (int64_t)(i / a->cols), c = (int64_t)(i % a->cols);
    uint32_t t = a->in[0][i];
    uint32_t ns = gf_at2(a->in[0], a->rows, a->cols, r - 1, c) +
                  gf_at2(a->in[0], a->rows, a->cols, r + 1, c) - 2 * t;
    uint32_t ew = gf_at2(a->in[0], a->rows, a->cols, r, c - 1) +
                  gf_at2(a->in[0], a->rows, a->cols, r, c + 1) - 2 * t;

    return t + 3 * ns + 5 * ew + 7 * a->in[1][i] + 80;
}

VARVE_D_FN uint32_t gf_2dconv_at(const struct gf_args *a, uint64_t i)
{
    int64_t r = (int64_t)(i / a->cols), c = (int64_t)(i % a->cols);
    uint32_t sum = 0;

    for (int dr = -1; dr <= 1; dr++)
        for (int dc = -1; dc <= 1; dc++)
            sum += (uint32_t)(5 + 3 * dr - 2 * dc + 4 * dr * dc) *
                   gf_at2(a->in[0], a->rows, a->cols, r + dr, c + dc);
    return sum;
}

VARVE_D_FN uint32_t gf_at3(const struct gf_args *a, int64_t z, int64_t r, int64_t c)
{
    z = z < 0 ? 0 : z >= (int64_t)a->planes ? (int64_t)a->planes - 1 : z;
    return gf_at2(a->in[0] + (uint64_t)z * a->rows * a->cols, a->rows, a->cols, r, c);
}

VARVE_D_FN uint32_t gf_stencil_at(const struct gf_args *a, uint64_t i)
{
    int64_t z = (int64_t)(i / (a->rows * a->cols)), r = (int64_t)(i / a->cols % a->rows),
            c = (int64_t)(i % a->cols);

    return 11 * a->in[0][i] +
           3 * (gf_at3(a, z - 1, r, c) + gf_at3(a, z + 1, r, c) + gf_at3(a, z, r - 1, c) +
                gf_at3(a, z, r + 1, c) + gf_at3(a, z, r, c - 1) + gf_at3(a, z, r, c + 1));
}

VARVE_D_FN uint32_t gf_3dconv_at(const struct gf_args *a, uint64_t i)
{
    int64_t z = (int64_t)(i / (a->rows * a->cols)), r = (int64_t)(i / a->cols % a->rows),
            c = (int64_t)(i % a->cols);
    uint32_t sum = 0;

    for (int dz = -1; dz <= 1; dz++)
        for (int dr = -1; dr <= 1; dr++)
            for (int dc = -1; dc <= 1; dc++)
                sum += (uint32_t)(7 + dz - 2 * dr + 3 * dc) * gf_at3(a, z + dz, r + dr, c + dc);
    return sum;
}

/* Pixels are 16 bits; halves are rounded down, as integer wavelets do. */
VARVE_D_FN int32_t gf_half(int32_t v)
{
    return (v - (v & 1)) / 2;
}

VARVE_D_FN int32_t gf_quarter(int32_t v)
{
    return gf_half(gf_half(v));
}

VARVE_D_FN int32_t gf_pixel(const struct gf_args *a, int64_t r, int64_t c)
{
    /* Rows and columns are mirrored at their ends. */
    int64_t rows = (int64_t)a->rows, cols = (int64_t)a->cols;

    r = r < 0 ? -r : r >= rows ? 2 * rows - 2 - r : r;
    c = c < 0 ? -c : c >= cols ? 2 * cols - 2 - c : c;
    return (int32_t)(a->in[0][(uint64_t)r * a->cols + (uint64_t)c] & 0xffff);
}

/* One level of the 5/3 wavelet along a row: odd places hold differences, even ones averages. */
VARVE_D_FN int32_t gf_wave_row(const struct gf_args *a, int64_t r, int64_t c)
{
    int32_t before, after;

    if (c % 2)
        return gf_pixel(a, r, c) - gf_half(gf_pixel(a, r, c - 1) + gf_pixel(a, r, c + 1));
    before = gf_pixel(a, r, c - 1) - gf_half(gf_pixel(a, r, c - 2) + gf_pixel(a, r, c));
    after = gf_pixel(a, r, c + 1) - gf_half(gf_pixel(a, r, c) + gf_pixel(a, r, c + 2));
    return gf_pixel(a, r, c) + gf_quarter(before + after + 2);
}

/* And down the columns of that. */
VARVE_D_FN uint32_t gf_dwt2d_at(const struct gf_args *a, uint64_t i)
{
    int64_t r = (int64_t)(i / a->cols), c = (int64_t)(i % a->cols);
    int32_t here = gf_wave_row(a, r, c), before, after;

    if (r % 2)
        return (uint32_t)(here - gf_half(gf_wave_row(a, r - 1, c) + gf_wave_row(a, r + 1, c)));
    before = gf_wave_row(a, r - 1, c) - gf_half(gf_wave_row(a, r - 2, c) + here);
    after = gf_wave_row(a, r + 1, c) - gf_half(here + gf_wave_row(a, r + 2, c));
    return (uint32_t)(here + gf_quarter(before + after + 2));
}

#define GF_MAP_KERNEL(name)                                   \
    VARVE_D_FN void gf_kernel_##name(const struct gf_args *a) \
    {                                                         \
        GF_EACH(i, a->words)                                  \
        a->out[i] = gf_##name##_at(a, i);                     \
    }

GF_MAP_KERNEL(hotspot)
GF_MAP_KERNEL(2dconv)
GF_MAP_KERNEL(3dconv)
GF_MAP_KERNEL(stencil)
GF_MAP_KERNEL(dwt2d)

/* ---- matrices and vectors ---- */

/* out[r] += alpha * (row r of the matrix) . x; a block takes a row. */
VARVE_D_FN void gf_kernel_rows(const struct gf_args *a)
{
    for (uint64_t r = varve_d_block(); r < a->rows; r += varve_d_blocks()) {
        uint32_t sum = 0;

        for (uint64_t c = varve_d_thread(); c < a->cols; c += varve_d_threads())
            sum += a->in[0][r * a->cols + c] * a->x[c];
        varve_d_add32_dev(&a->out[r], a->alpha * sum);
    }
}

/* out[c] += (column c of the matrix) . z; a block takes 64 rows. */
VARVE_D_FN void gf_kernel_cols(const struct gf_args *a)
{
    for (uint64_t first = 64 * (uint64_t)varve_d_block(); first < a->rows;
         first += 64 * (uint64_t)varve_d_blocks()) {
        uint64_t last = first + 64 < a->rows ? first + 64 : a->rows;

        for (uint64_t c = varve_d_thread(); c < a->cols; c += varve_d_threads()) {
            uint32_t sum = 0;

            for (uint64_t r = first; r < last; r++)
                sum += a->in[0][r * a->cols + c] * a->z[r];
            varve_d_add32_dev(&a->out[c], sum);
        }
    }
}

/* ---- backprop: a layer of 16 neurons ---- */

VARVE_D_FN uint32_t gf_squash(uint32_t v)
{
    return (v ^ v >> 15) & 0xff;
}

/* in: units, weights. tmp[h] += sum over units of unit * weight. */
VARVE_D_FN void gf_kernel_forward(const struct gf_args *a)
{
    uint32_t sum[GF_HIDDEN];

    for (int h = 0; h < GF_HIDDEN; h++)
        sum[h] = 0;
    GF_EACH(i, a->rows)
    for (int h = 0; h < GF_HIDDEN; h++)
        sum[h] += a->in[0][i] * a->in[1][i * GF_HIDDEN + (uint64_t)h];
    for (int h = 0; h < GF_HIDDEN; h++)
        varve_d_add32_dev(&a->tmp[h], sum[h]);
}

VARVE_D_FN uint32_t gf_adjust_at(const struct gf_args *a, uint64_t i)
{
    return a->in[1][i] + gf_squash(a->tmp[i % GF_HIDDEN]) * a->in[0][i / GF_HIDDEN] +
           3 * a->in[2][i];
}

GF_MAP_KERNEL(adjust)

/* ---- bfs: out[node] is its distance from node 0 ---- */

#define GF_FAR 0xffffffffu

VARVE_D_FN void gf_kernel_bfs_start(const struct gf_args *a)
{
    GF_EACH(i, a->rows)
    a->out[i] = i ? GF_FAR : 0;
}

VARVE_D_FN void gf_kernel_bfs_step(const struct gf_args *a)
{
    int changed = 0;

    GF_EACH(i, a->rows)
    {
        if (varve_d_load32_dev(&a->out[i]) != (uint32_t)a->step)
            continue;
        for (uint64_t e = 0; e < GF_DEGREE; e++) {
            uint32_t to = a->in[0][i * GF_DEGREE + e];

            if (to < a->rows && varve_d_load32_dev(&a->out[to]) == GF_FAR) {
                varve_d_store32_dev(&a->out[to], (uint32_t)a->step + 1);
                changed = 1;
            }
        }
    }
    if (changed)
        varve_d_or64_dev(&a->result->changed, 1);
}

/* ---- nw: the best alignment of every two beginnings ---- */

VARVE_D_FN int32_t gf_nw_cell(const struct gf_args *a, uint64_t i, int32_t nw, int32_t n, int32_t w)
{
    int32_t here = nw + (int32_t)(a->in[0][i] % 21) - 10 + (int32_t)(a->in[1][i] % 4);
    int32_t gap = (n > w ? n : w) - 10;

    return here > gap ? here : gap;
}

VARVE_D_FN int32_t gf_nw_score(const uint32_t *p, uint64_t cols, int64_t r, int64_t c)
{
    return r < 0 || c < 0 ? (int32_t)(-10 * (r + c + 2))
                          : (int32_t)p[(uint64_t)r * cols + (uint64_t)c];
}

/* Square number varve_d_block() of the `step`-th diagonal of squares, diagonal by diagonal of cells. */
VARVE_D_FN void gf_kernel_nw(const struct gf_args *a)
{
    uint64_t squares = (a->rows + GF_NW_TILE - 1) / GF_NW_TILE;
    uint64_t low = a->step < squares ? 0 : a->step - squares + 1;
    uint64_t high = a->step < squares ? a->step : squares - 1;

    for (uint64_t s = low + varve_d_block(); s <= high; s += varve_d_blocks()) {
        uint64_t r0 = s * GF_NW_TILE, c0 = (a->step - s) * GF_NW_TILE;

        for (uint64_t d = 0; d < 2 * GF_NW_TILE - 1; d++) {
            for (uint64_t k = varve_d_thread(); k < GF_NW_TILE; k += varve_d_threads()) {
                uint64_t r = r0 + k, c = c0 + d - k;
                int64_t R = (int64_t)r, C = (int64_t)c;

                if (k > d || d - k >= GF_NW_TILE || r >= a->rows || c >= a->cols)
                    continue;
                a->out[r * a->cols + c] = (uint32_t)gf_nw_cell(
                    a, r * a->cols + c, gf_nw_score(a->out, a->cols, R - 1, C - 1),
                    gf_nw_score(a->out, a->cols, R - 1, C), gf_nw_score(a->out, a->cols, R, C - 1));
            }
            varve_d_sync_block();
        }
    }
}

/* ---- pathfinder: the cheapest way down to each cell of a row ---- */

VARVE_D_FN uint32_t gf_path_at(const uint32_t *above, const uint32_t *row, uint64_t cols,
                               uint64_t c)
{
    uint32_t best = above[c];

    if (c > 0 && above[c - 1] < best)
        best = above[c - 1];
    if (c + 1 < cols && above[c + 1] < best)
        best = above[c + 1];
    return best + row[c] % 1000;
}

/* Row `step` of in[1], from tmp to out. */
VARVE_D_FN void gf_kernel_pathfinder(const struct gf_args *a)
{
    GF_EACH(c, a->cols)
    a->out[c] = gf_path_at(a->tmp, a->in[1] + a->step * a->cols, a->cols, c);
}

/* The first row of ways. */
VARVE_D_FN void gf_kernel_path_start(const struct gf_args *a)
{
    GF_EACH(c, a->cols)
    a->out[c] = a->in[0][c] % 1000;
}

/* ---- lud: in place, a matrix of squares of 32 x 32; below the diagonal L, without its ones ---- */

struct gf_square {
    uint32_t v[GF_TILE][GF_TILE + 1];
};

VARVE_D_FN void gf_square_load(const struct gf_args *a, uint64_t r, uint64_t c, struct gf_square *s)
{
    for (uint32_t k = varve_d_thread(); k < GF_TILE * GF_TILE; k += varve_d_threads())
        s->v[k / GF_TILE][k % GF_TILE] =
            a->out[(r * GF_TILE + k / GF_TILE) * a->cols + c * GF_TILE + k % GF_TILE];
}

VARVE_D_FN void gf_square_store(const struct gf_args *a, uint64_t r, uint64_t c,
                                const struct gf_square *s)
{
    for (uint32_t k = varve_d_thread(); k < GF_TILE * GF_TILE; k += varve_d_threads())
        a->out[(r * GF_TILE + k / GF_TILE) * a->cols + c * GF_TILE + k % GF_TILE] =
            s->v[k / GF_TILE][k % GF_TILE];
}

/* The inverse of an odd number, modulo 2^32: each step doubles the bits that are right. */
VARVE_D_FN uint32_t gf_inverse(uint32_t odd)
{
    uint32_t x = odd;

    for (int i = 0; i < 5; i++)
        x *= 2 - odd * x;
    return x;
}

/* Square (step, step). One block. */
VARVE_D_FN void gf_kernel_lud_corner(const struct gf_args *a)
{
    VARVE_D_SHARED(struct gf_square, s);

    gf_square_load(a, a->step, a->step, s);
    varve_d_sync_block();
    for (uint32_t k = 0; k < GF_TILE; k++) {
        uint32_t inverse = gf_inverse(s->v[k][k]);

        for (uint32_t r = k + 1 + varve_d_thread(); r < GF_TILE; r += varve_d_threads())
            s->v[r][k] *= inverse;
        varve_d_sync_block();
        for (uint32_t i = varve_d_thread(); i < GF_TILE * GF_TILE; i += varve_d_threads())
            if (i / GF_TILE > k && i % GF_TILE > k)
                s->v[i / GF_TILE][i % GF_TILE] -= s->v[i / GF_TILE][k] * s->v[k][i % GF_TILE];
        varve_d_sync_block();
    }
    gf_square_store(a, a->step, a->step, s);
}

/* The squares right of it (even blocks) and below it (odd ones). */
VARVE_D_FN void gf_kernel_lud_edges(const struct gf_args *a)
{
    uint64_t squares = a->rows / GF_TILE, left = squares - a->step - 1;
    VARVE_D_SHARED(struct gf_square, corner);
    VARVE_D_SHARED(struct gf_square, s);

    gf_square_load(a, a->step, a->step, corner);
    for (uint64_t b = varve_d_block(); b < 2 * left; b += varve_d_blocks()) {
        uint64_t other = a->step + 1 + b / 2;
        uint64_t r = b % 2 ? other : a->step, c = b % 2 ? a->step : other;

        gf_square_load(a, r, c, s);
        varve_d_sync_block();
        /* Each thread has a column, or a row, to itself. */
        for (uint32_t t = varve_d_thread(); t < GF_TILE; t += varve_d_threads())
            for (uint32_t k = 0; k < GF_TILE; k++) {
                uint32_t sum = b % 2 ? s->v[t][k] : s->v[k][t];

                for (uint32_t i = 0; i < k; i++)
                    sum -= b % 2 ? s->v[t][i] * corner->v[i][k] : corner->v[k][i] * s->v[i][t];
                if (b % 2)
                    s->v[t][k] = sum * gf_inverse(corner->v[k][k]);
                else
                    s->v[k][t] = sum;
            }
        varve_d_sync_block();
        gf_square_store(a, r, c, s);
        varve_d_sync_block();
    }
}

/* All squares right of and below both. */
VARVE_D_FN void gf_kernel_lud_inner(const struct gf_args *a)
{
    uint64_t squares = a->rows / GF_TILE, left = squares - a->step - 1;
    VARVE_D_SHARED(struct gf_square, l);
    VARVE_D_SHARED(struct gf_square, u);

    for (uint64_t b = varve_d_block(); b < left * left; b += varve_d_blocks()) {
        uint64_t r = a->step + 1 + b / left, c = a->step + 1 + b % left;

        gf_square_load(a, r, a->step, l);
        gf_square_load(a, a->step, c, u);
        varve_d_sync_block();
        for (uint32_t k = varve_d_thread(); k < GF_TILE * GF_TILE; k += varve_d_threads()) {
            uint32_t y = k / GF_TILE, x = k % GF_TILE, sum = 0;

            for (uint32_t i = 0; i < GF_TILE; i++)
                sum += l->v[y][i] * u->v[i][x];
            a->out[(r * GF_TILE + y) * a->cols + c * GF_TILE + x] -= sum;
        }
        varve_d_sync_block();
    }
}

/* in[0] to out. */
VARVE_D_FN void gf_kernel_copy(const struct gf_args *a)
{
    GF_EACH(i, a->words)
    a->out[i] = a->in[0][i];
}

#endif

#endif
