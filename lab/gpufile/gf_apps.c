/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fourteen programs: the shapes of their inputs, their launches, and the expected results. The processor
 * computes a result from the bytes of the files, with the functions of the kernels where they work on single
 * elements, and row by row where a row needs the one before.
 */
#define VARVE_EMULATE 1
#include "lab/gpufile/gf_apps.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "lab/gpufile/gf_kernels.h"

#define MIB (1024.0 * 1024.0)

enum { THREADS_MAX = 64, WRITE_WORDS = 256 * 1024, PATH_ROWS = 952, PATH_ROWS_SMALL = 15 };

/* Vectors of the programs that multiply with one: seeds beyond those of files. */
enum { VECTOR_X = 101, VECTOR_Z = 102 };

const struct gf_app gf_apps[GF_APP_NR] = {
    [GF_HOTSPOT] = {"hotspot", 2, {1024, 1024}, 128},
    [GF_LUD] = {"lud", 1, {256}, 128},
    /* Units, weights, and the weights of the step before: sizes of 1 to 16 to 16. */
    [GF_BACKPROP] = {"backprop", 3, {3328.0 / 33, 3328.0 * 16 / 33, 3328.0 * 16 / 33}, 128},
    [GF_BFS] = {"bfs", 1, {1126}, 128},
    [GF_DWT2D] = {"dwt2d", 1, {768}, 128},
    [GF_NW] = {"nw", 2, {1000, 1000}, 100},
    [GF_PATHFINDER] = {"pathfinder", 2, {1, 952}, 100},
    [GF_STENCIL] = {"stencil", 1, {1024}, 128},
    [GF_2DCONV] = {"2dconv", 1, {1024}, 128},
    [GF_3DCONV] = {"3dconv", 1, {512}, 128},
    [GF_GESUMMV] = {"gesummv", 1, {1000}, 128},
    [GF_MVT] = {"mvt", 1, {1000}, 128},
    [GF_BICG] = {"bicg", 1, {1000}, 128},
    [GF_ATAX] = {"atax", 1, {1000}, 128},
};

/* ---- shapes ---- */

static uint64_t at_least(double x, uint64_t multiple)
{
    uint64_t n = (uint64_t)x / multiple * multiple;

    return n < multiple ? multiple : n;
}

static void shape_square(struct gf_shape *s, double words, unsigned files)
{
    s->rows = s->cols = at_least(sqrt(words), GF_TILE);
    for (unsigned k = 0; k < files; k++)
        s->bytes[k] = 4 * s->rows * s->cols;
    s->out_words = s->rows * s->cols;
}

static void shape_cube(struct gf_shape *s, double words)
{
    s->rows = s->cols = s->planes = at_least(cbrt(words), 8);
    s->out_words = s->planes * s->rows * s->cols;
    s->bytes[0] = 4 * s->out_words;
}

void gf_shape_init(enum gf_app_id app, double scale, uint64_t seed, struct gf_shape *ret_shape)
{
    struct gf_shape s = {.app = app, .seed = seed, .planes = 1};
    double words = gf_apps[app].mib[0] * scale * MIB / 4;

    switch (app) {
    case GF_HOTSPOT:
    case GF_NW:
        shape_square(&s, words, 2);
        break;
    case GF_LUD:
        shape_square(&s, words, 1);
        s.content[0] = GF_LUD_MATRIX;
        break;
    case GF_BACKPROP:
        s.rows = at_least(words, 64);
        s.cols = GF_HIDDEN;
        s.bytes[0] = 4 * s.rows;
        s.bytes[1] = s.bytes[2] = 4 * s.rows * GF_HIDDEN;
        s.out_words = s.rows * GF_HIDDEN;
        s.tmp_words = GF_HIDDEN;
        break;
    case GF_BFS:
        s.rows = s.cols = s.out_words = at_least(words / GF_DEGREE, 1024);
        s.bytes[0] = 4 * s.rows * GF_DEGREE;
        s.content[0] = GF_GRAPH;
        break;
    case GF_PATHFINDER:
        s.cols = at_least(words, 64);
        /* Each row is a launch, so small inputs have few. */
        s.rows = scale < 0.01 ? PATH_ROWS_SMALL : PATH_ROWS;
        s.bytes[0] = 4 * s.cols;
        s.bytes[1] = 4 * s.cols * s.rows;
        s.out_words = s.tmp_words = s.cols;
        break;
    case GF_STENCIL:
    case GF_3DCONV:
        shape_cube(&s, words);
        break;
    case GF_GESUMMV: /* two matrices in one file */
        shape_square(&s, words / 2, 1);
        s.bytes[0] *= 2;
        s.out_words = s.rows;
        s.tmp_words = s.cols;
        break;
    case GF_MVT:
    case GF_BICG:
    case GF_ATAX:
        shape_square(&s, words, 1);
        s.out_words = 2 * s.rows;
        s.tmp_words = 2 * s.rows;
        break;
    default:
        shape_square(&s, words, 1);
        break;
    }
    *ret_shape = s;
}

/* ---- many threads ---- */

struct part {
    void (*fn)(void *arg, uint64_t first, uint64_t last);
    void *arg;
    uint64_t first, last;
};

static void *part_main(void *arg)
{
    struct part *p = arg;

    p->fn(p->arg, p->first, p->last);
    return NULL;
}

int gf_parallel(uint64_t n, unsigned threads, void (*fn)(void *, uint64_t, uint64_t), void *arg)
{
    struct part parts[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    unsigned started = 0;
    int rc = 0;

    threads = VV_MAX(VV_MIN(threads, (unsigned)THREADS_MAX), 1u);
    for (; rc == 0 && started < threads; started++) {
        parts[started] = (struct part){fn, arg, n * started / threads, n * (started + 1) / threads};
        rc = vv_thread_start(&ids[started], part_main, &parts[started]);
        if (rc)
            break;
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    return rc;
}

/* ---- writing inputs ---- */

struct writing {
    const struct gf_shape *shape;
    unsigned k;
    int fd;
    int rc; /* Synchronization: atomic, relaxed */
};

static void write_part(void *arg, uint64_t first, uint64_t last)
{
    struct writing *w = arg;
    const struct gf_shape *s = w->shape;
    uint32_t *buf = malloc(WRITE_WORDS * sizeof(*buf));
    int rc = buf ? 0 : -ENOMEM;

    for (uint64_t at = first; rc == 0 && at < last; at += WRITE_WORDS) {
        uint64_t n = VV_MIN(last - at, (uint64_t)WRITE_WORDS), done = 0;

        for (uint64_t i = 0; i < n; i++)
            buf[i] = gf_word(s->content[w->k], s->seed, w->k, s->cols, at + i);
        while (rc == 0 && done < 4 * n) {
            ssize_t put = pwrite(w->fd, (char *)buf + done, 4 * n - done, (off_t)(4 * at + done));

            if (put < 0 && errno != EINTR)
                rc = -errno;
            else if (put > 0)
                done += (uint64_t)put;
        }
    }
    if (rc)
        __atomic_store_n(&w->rc, rc, __ATOMIC_RELAXED);
    free(buf);
}

int gf_shape_write(const struct gf_shape *shape, unsigned k, int fd, unsigned threads)
{
    struct writing w = {.shape = shape, .k = k, .fd = fd};
    int rc = gf_parallel(shape->bytes[k] / 4, threads, write_part, &w);

    return rc ? rc : w.rc;
}

/* ---- computing on the device ---- */

void gf_app_grid(const struct gf_gpu *gpu, unsigned *ret_blocks, unsigned *ret_threads)
{
    unsigned processors = gf_gpu_processors(gpu);

    *ret_blocks = processors > 2 ? 4 * processors : 2;
    *ret_threads = processors > 2 ? 512 : 4;
}

struct launcher {
    struct gf_gpu *gpu;
    unsigned blocks, threads;
    int rc;
};

static void go(struct launcher *l, enum gf_kernel kernel, const struct gf_args *a)
{
    if (l->rc == 0)
        l->rc = gf_gpu_launch(l->gpu, kernel, l->blocks, l->threads, a);
}

static void fill(struct launcher *l, uint32_t *to, uint64_t words, uint64_t seed)
{
    struct gf_args a = {.out = to, .words = words, .seed = seed};

    go(l, GF_K_fill, &a);
}

static void compute_lud(struct launcher *l, struct gf_args *a)
{
    uint64_t squares = a->rows / GF_TILE;
    struct launcher corner = *l;

    corner.blocks = 1;
    go(l, GF_K_copy, a);
    for (a->step = 0; a->step < squares && l->rc == 0; a->step++) {
        go(&corner, GF_K_lud_corner, a);
        l->rc = l->rc ? l->rc : corner.rc;
        if (a->step + 1 < squares) {
            go(l, GF_K_lud_edges, a);
            go(l, GF_K_lud_inner, a);
        }
    }
}

static void compute_nw(struct launcher *l, struct gf_args *a)
{
    uint64_t squares = vv_div_up(a->rows, (uint64_t)GF_NW_TILE);
    struct launcher one = *l;

    for (a->step = 0; a->step < 2 * squares - 1 && l->rc == 0; a->step++) {
        one.blocks =
            (unsigned)VV_MIN(VV_MIN(a->step + 1, 2 * squares - 1 - a->step), (uint64_t)l->blocks);
        go(&one, GF_K_nw, a);
        l->rc = one.rc;
    }
}

static void compute_pathfinder(struct launcher *l, struct gf_args *a, const struct gf_memory *m)
{
    uint32_t *from = m->tmp, *to = m->out;

    /* The last row must end in out. */
    a->out = a->rows % 2 ? m->tmp : m->out;
    go(l, GF_K_path_start, a);
    from = a->out;
    for (a->step = 0; a->step < a->rows && l->rc == 0; a->step++) {
        to = from == m->out ? m->tmp : m->out;
        a->tmp = from;
        a->out = to;
        go(l, GF_K_pathfinder, a);
        from = to;
    }
}

static int copy_result(struct vv_device *device, struct gf_result *dst, const struct gf_result *src)
{
    struct vv_copy_seg seg = {dst, src, sizeof(*dst)};
    struct vv_stream *stream;
    struct vv_event *event;
    int rc = vv_device_stream_new(device, &stream);

    if (rc)
        return rc;
    rc = vv_device_event_new(device, &event);
    if (rc == 0) {
        rc = vv_device_copy_async(device, stream, &seg, 1);
        if (rc == 0)
            rc = vv_device_event_record(device, event, stream);
        if (rc == 0)
            rc = vv_device_event_wait(device, event, -1);
        vv_device_event_free(device, event);
    }
    vv_device_stream_free(device, stream);
    return rc;
}

static void compute_bfs(struct launcher *l, struct gf_args *a, struct vv_device *device)
{
    struct gf_result host = {.changed = 1};

    go(l, GF_K_bfs_start, a);
    for (a->step = 0; host.changed && l->rc == 0; a->step++) {
        memset(&host, 0, sizeof(host));
        l->rc = copy_result(device, a->result, &host);
        go(l, GF_K_bfs_step, a);
        if (l->rc == 0)
            l->rc = gf_gpu_sync(l->gpu);
        if (l->rc == 0)
            l->rc = copy_result(device, &host, a->result);
    }
}

/* Both vectors are in tmp, x first; results in out. */
static void compute_vectors(struct launcher *l, struct gf_args *a, const struct gf_shape *s,
                            const struct gf_memory *m)
{
    uint64_t n = s->rows;

    fill(l, m->tmp, n, VECTOR_X);
    fill(l, m->out, s->out_words, 0);
    a->x = m->tmp;
    a->alpha = 1;
    if (s->app == GF_GESUMMV) {
        a->alpha = 3;
        go(l, GF_K_rows, a);
        a->in[0] = m->in[0] + n * n;
        a->alpha = 5;
        go(l, GF_K_rows, a);
        return;
    }
    go(l, GF_K_rows, a);
    if (s->app == GF_ATAX) {
        a->z = m->out;
    } else {
        fill(l, m->tmp + n, n, VECTOR_Z);
        a->z = m->tmp + n;
    }
    a->out = m->out + n;
    go(l, GF_K_cols, a);
}

int gf_app_compute(struct gf_gpu *gpu, struct vv_device *device, const struct gf_shape *s,
                   const struct gf_memory *m)
{
    struct launcher l = {.gpu = gpu};
    struct gf_args a = {.in = {m->in[0], m->in[1], m->in[2]},
                        .out = m->out,
                        .tmp = m->tmp,
                        .rows = s->rows,
                        .cols = s->cols,
                        .planes = s->planes,
                        .words = s->out_words,
                        .result = m->result};
    static const enum gf_kernel maps[GF_APP_NR] = {
        [GF_HOTSPOT] = GF_K_hotspot, [GF_DWT2D] = GF_K_dwt2d,   [GF_STENCIL] = GF_K_stencil,
        [GF_2DCONV] = GF_K_2dconv,   [GF_3DCONV] = GF_K_3dconv,
    };

    gf_app_grid(gpu, &l.blocks, &l.threads);
    switch (s->app) {
    case GF_LUD:
        compute_lud(&l, &a);
        break;
    case GF_BACKPROP:
        fill(&l, m->tmp, GF_HIDDEN, 0);
        go(&l, GF_K_forward, &a);
        go(&l, GF_K_adjust, &a);
        break;
    case GF_BFS:
        compute_bfs(&l, &a, device);
        break;
    case GF_NW:
        compute_nw(&l, &a);
        break;
    case GF_PATHFINDER:
        compute_pathfinder(&l, &a, m);
        break;
    case GF_GESUMMV:
    case GF_MVT:
    case GF_BICG:
    case GF_ATAX:
        compute_vectors(&l, &a, s, m);
        break;
    default:
        go(&l, maps[s->app], &a);
        break;
    }
    return l.rc;
}

/* ---- what has to come out ---- */

struct expecting {
    struct gf_args a;
    const struct gf_shape *shape;
    uint64_t sum; /* Synchronization: atomic, relaxed */
    uint32_t *to;
    const uint32_t *matrix, *x, *z;
    uint32_t factor;
};

static void add_sum(struct expecting *e, uint64_t sum)
{
    __atomic_fetch_add(&e->sum, sum, __ATOMIC_RELAXED);
}

static uint32_t element(const struct expecting *e, uint64_t i)
{
    switch (e->shape->app) {
    case GF_HOTSPOT:
        return gf_hotspot_at(&e->a, i);
    case GF_DWT2D:
        return gf_dwt2d_at(&e->a, i);
    case GF_STENCIL:
        return gf_stencil_at(&e->a, i);
    case GF_2DCONV:
        return gf_2dconv_at(&e->a, i);
    case GF_3DCONV:
        return gf_3dconv_at(&e->a, i);
    default:
        return gf_adjust_at(&e->a, i);
    }
}

static void expect_elements(void *arg, uint64_t first, uint64_t last)
{
    struct expecting *e = arg;
    uint64_t sum = 0;

    for (uint64_t i = first; i < last; i++)
        sum += gf_weigh(i, element(e, i));
    add_sum(e, sum);
}

static void expect_forward(void *arg, uint64_t first, uint64_t last)
{
    struct expecting *e = arg;

    for (uint64_t h = 0; h < GF_HIDDEN; h++) {
        uint32_t sum = 0;

        for (uint64_t i = first; i < last; i++)
            sum += e->a.in[0][i] * e->a.in[1][i * GF_HIDDEN + h];
        __atomic_fetch_add(&e->a.tmp[h], sum, __ATOMIC_RELAXED);
    }
}

static void expect_rows(void *arg, uint64_t first, uint64_t last)
{
    struct expecting *e = arg;
    uint64_t n = e->shape->cols;

    for (uint64_t r = first; r < last; r++) {
        uint32_t sum = 0;

        for (uint64_t c = 0; c < n; c++)
            sum += e->matrix[r * n + c] * e->x[c];
        e->to[r] += e->factor * sum;
    }
}

/* Each thread has columns to itself. */
static void expect_cols(void *arg, uint64_t first, uint64_t last)
{
    struct expecting *e = arg;
    uint64_t n = e->shape->cols;

    for (uint64_t r = 0; r < e->shape->rows; r++)
        for (uint64_t c = first; c < last; c++)
            e->to[c] += e->matrix[r * n + c] * e->z[r];
}

static uint64_t sum_of(const uint32_t *words, uint64_t n, uint64_t from)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += gf_weigh(from + i, words[i]);
    return sum;
}

static int expect_vectors(struct expecting *e, unsigned threads)
{
    const struct gf_shape *s = e->shape;
    uint64_t n = s->rows;
    uint32_t *v = calloc(4 * n, sizeof(*v)), *x = v, *z = v + n, *out = v + 2 * n;
    int rc;

    if (!v)
        return -ENOMEM;
    for (uint64_t i = 0; i < n; i++) {
        x[i] = gf_vector(VECTOR_X, i);
        z[i] = gf_vector(VECTOR_Z, i);
    }
    e->x = x;
    e->z = s->app == GF_ATAX ? out : z;
    e->to = out;
    e->matrix = e->a.in[0];
    e->factor = s->app == GF_GESUMMV ? 3 : 1;
    rc = gf_parallel(n, threads, expect_rows, e);
    if (rc == 0 && s->app == GF_GESUMMV) {
        e->matrix += n * n;
        e->factor = 5;
        rc = gf_parallel(n, threads, expect_rows, e);
    } else if (rc == 0) {
        e->to = out + n;
        rc = gf_parallel(n, threads, expect_cols, e);
    }
    e->sum = sum_of(out, s->out_words, 0);
    free(v);
    return rc;
}

static int expect_nw(struct expecting *e)
{
    const struct gf_shape *s = e->shape;
    int32_t *row = malloc(s->cols * sizeof(*row));

    if (!row)
        return -ENOMEM;
    for (uint64_t c = 0; c < s->cols; c++)
        row[c] = gf_nw_score(NULL, s->cols, -1, (int64_t)c);
    for (uint64_t r = 0; r < s->rows; r++) {
        int32_t nw = gf_nw_score(NULL, s->cols, (int64_t)r - 1, -1),
                w = gf_nw_score(NULL, s->cols, (int64_t)r, -1);

        for (uint64_t c = 0; c < s->cols; c++) {
            uint64_t i = r * s->cols + c;
            int32_t n = row[c];

            row[c] = w = gf_nw_cell(&e->a, i, nw, n, w);
            nw = n;
            e->sum += gf_weigh(i, (uint32_t)w);
        }
    }
    free(row);
    return 0;
}

static int expect_path(struct expecting *e)
{
    const struct gf_shape *s = e->shape;
    uint32_t *rows = malloc(2 * s->cols * sizeof(*rows)), *above = rows, *row;

    if (!rows)
        return -ENOMEM;
    row = rows + s->cols;
    for (uint64_t c = 0; c < s->cols; c++)
        above[c] = e->a.in[0][c] % 1000;
    for (uint64_t r = 0; r < s->rows; r++) {
        uint32_t *last = above;

        for (uint64_t c = 0; c < s->cols; c++)
            row[c] = gf_path_at(above, e->a.in[1] + r * s->cols, s->cols, c);
        above = row;
        row = last;
    }
    e->sum = sum_of(above, s->cols, 0);
    free(rows);
    return 0;
}

/* One level after another, each in many threads. */
static void expect_level(void *arg, uint64_t first, uint64_t last)
{
    struct expecting *e = arg;

    for (uint64_t i = first; i < last; i++) {
        if (__atomic_load_n(&e->to[i], __ATOMIC_RELAXED) != e->factor)
            continue;
        for (uint64_t k = 0; k < GF_DEGREE; k++) {
            uint32_t *to = &e->to[e->a.in[0][i * GF_DEGREE + k]];

            if (__atomic_load_n(to, __ATOMIC_RELAXED) == GF_FAR) {
                __atomic_store_n(to, e->factor + 1, __ATOMIC_RELAXED);
                __atomic_store_n(&e->sum, 1, __ATOMIC_RELAXED);
            }
        }
    }
}

static int expect_bfs(struct expecting *e, unsigned threads)
{
    uint64_t n = e->shape->rows;
    int rc = 0;

    e->to = malloc(n * sizeof(*e->to));
    if (!e->to)
        return -ENOMEM;
    for (uint64_t i = 0; i < n; i++)
        e->to[i] = i ? GF_FAR : 0;
    e->sum = 1;
    for (e->factor = 0; rc == 0 && e->sum; e->factor++) {
        e->sum = 0;
        rc = gf_parallel(n, threads, expect_level, e);
    }
    e->sum = sum_of(e->to, n, 0);
    free(e->to);
    return rc;
}

int gf_app_expect(const struct gf_shape *s, const uint32_t *const files[3], unsigned threads,
                  uint64_t *ret_sum)
{
    uint32_t hidden[GF_HIDDEN] = {0};
    struct expecting e = {.shape = s,
                          .a = {.in = {files[0], files[1], files[2]},
                                .tmp = hidden,
                                .rows = s->rows,
                                .cols = s->cols,
                                .planes = s->planes}};
    int rc = 0;

    switch (s->app) {
    case GF_LUD:
        break;
    case GF_BFS:
        rc = expect_bfs(&e, threads);
        break;
    case GF_NW:
        rc = expect_nw(&e);
        break;
    case GF_PATHFINDER:
        rc = expect_path(&e);
        break;
    case GF_GESUMMV:
    case GF_MVT:
    case GF_BICG:
    case GF_ATAX:
        rc = expect_vectors(&e, threads);
        break;
    default:
        if (s->app == GF_BACKPROP)
            rc = gf_parallel(s->rows, threads, expect_forward, &e);
        if (rc == 0)
            rc = gf_parallel(s->out_words, threads, expect_elements, &e);
        break;
    }
    if (rc == 0)
        *ret_sum = e.sum;
    return rc;
}

/* ---- lud ---- */

struct product {
    const uint32_t *m;
    uint64_t n;
    int part; /* 0: the whole; 1: U, from the diagonal on; 2: L, below it, and ones */
    const uint32_t *x;
    uint32_t *y;
};

static void product_rows(void *arg, uint64_t first, uint64_t last)
{
    struct product *p = arg;

    for (uint64_t r = first; r < last; r++) {
        uint64_t from = p->part == 1 ? r : 0, to = p->part == 2 ? r : p->n;
        uint32_t sum = p->part == 2 ? p->x[r] : 0;

        for (uint64_t c = from; c < to; c++)
            sum += p->m[r * p->n + c] * p->x[c];
        p->y[r] = sum;
    }
}

int gf_lud_right(const struct gf_shape *s, const uint32_t *matrix, const uint32_t *result,
                 unsigned threads, bool *ret_right)
{
    uint64_t n = s->rows;
    uint32_t *v = malloc(4 * n * sizeof(*v));
    bool right = true;
    int rc = v ? 0 : -ENOMEM;

    for (uint64_t round = 0; rc == 0 && round < 4; round++) {
        struct product whole = {matrix, n, 0, v, v + n}, u = {result, n, 1, v, v + 2 * n},
                       l = {result, n, 2, v + 2 * n, v + 3 * n};

        for (uint64_t i = 0; i < n; i++)
            v[i] = gf_mix(s->seed + round, 9, i);
        rc = gf_parallel(n, threads, product_rows, &whole);
        if (rc == 0)
            rc = gf_parallel(n, threads, product_rows, &u);
        if (rc == 0)
            rc = gf_parallel(n, threads, product_rows, &l);
        if (rc == 0 && memcmp(v + n, v + 3 * n, n * sizeof(*v)) != 0)
            right = false;
    }
    free(v);
    if (rc == 0)
        *ret_right = right;
    return rc;
}
