/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The propagator on the CPU. The work of a step is cut into columns of depth, which OpenMP's threads
 * share. Every cell is computed from cells of the previous step, by the functions of numerics.h, and
 * nothing is summed over threads: the result does not depend on their number.
 *
 * Ahead of a wave the field is not 0 but denormal, and with denormal numbers
 * processors are a hundred times slower. They are flushed to 0, in all threads and by the
 * kernels of the GPU alike.
 *
 * Threads take a few columns at a time: the store's threads need processors too, and if all
 * columns were assigned beforehand, all threads would wait for the one that was interrupted.
 *
 * A step has two parts: psi of all borders first, because its derivative is taken across columns;
 * then the cells. The inner loops are compiled for several vector widths, and the one that this
 * processor has is taken when the program starts.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "rtm.h"

#ifdef _OPENMP
#define TEAM     _Pragma("omp parallel num_threads(c->threads)")
#define SHARED   _Pragma("omp for schedule(static) collapse(2) nowait") /* within a team */
#define HANDED   _Pragma("omp for schedule(dynamic, c->chunk) collapse(2) nowait") /* the same */
#define ARRIVE   _Pragma("omp barrier")
#define PARALLEL _Pragma("omp parallel for schedule(static) collapse(2) num_threads(c->threads)")
#else
#define TEAM
#define SHARED
#define HANDED
#define ARRIVE
#define PARALLEL
#endif

/* Sanitizers are not ready when the loader chooses among clones. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDTHS __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define WIDTHS
#endif

enum { CHUNK = 512, ALIGNMENT = 4096 };

struct cpu {
    struct rtm_prop prop;
    struct rtm_grid g;
    int steps, threads;
    int chunk; /* columns that a thread takes at a time */
    long receivers;
    long *receiver_cells;
    float *now, *last, *v2;
    float *psi[RTM_AXES], *zeta[RTM_AXES];
    float *stretch[RTM_AXES][2];
    float *records, *data;
    float *image, *light;
    double paused_at, paused_s[RTM_PAUSES];
};

static struct cpu *cpu_of(struct rtm_prop *p)
{
    return (struct cpu *)p;
}

/* Numbers too small to be normal count as 0 in this thread, and in those that it starts. */
static void flush_tiny(void)
{
#if defined(__SSE2__)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* results and operands */
#elif defined(__aarch64__)
    uint64_t fpcr;

    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | UINT64_C(1) << 24));
#endif
}

/* All threads touch it, so that it is near all of them. */
static void *zeros(size_t bytes)
{
    size_t blocks = (bytes + ALIGNMENT - 1) / ALIGNMENT;
    char *p = aligned_alloc(ALIGNMENT, (blocks ? blocks : 1) * ALIGNMENT);

    if (!p)
        return NULL;
    RTM_PARALLEL
    for (size_t b = 0; b < blocks; b++)
        memset(p + b * ALIGNMENT, 0, ALIGNMENT);
    return p;
}

/* ---- the inner loops, each along one column of depth ---- */

WIDTHS static void psi_column(int cells, float *restrict psi, float a, float b,
                              const float *restrict p, long s)
{
    for (int z = 0; z < cells; z++)
        psi[z] = rtm_psi(psi[z], a, b, p + z, s);
}

WIDTHS static void psi_ends(int cells, float *restrict psi, const float *restrict a,
                            const float *restrict b, const float *restrict p)
{
    for (int z = 0; z < cells; z++)
        psi[z] = rtm_psi(psi[z], a[z], b[z], p + z, 1);
}

WIDTHS static void lap_column(int cells, const float *restrict p, long sx, long sy,
                              float *restrict lap)
{
    if (sy)
        for (int z = 0; z < cells; z++)
            lap[z] = rtm_lap3(p + z, sx, sy);
    else
        for (int z = 0; z < cells; z++)
            lap[z] = rtm_lap2(p + z, sx);
}

WIDTHS static void stretch_column(int cells, const float *restrict psi, long psi_s,
                                  float *restrict zeta, float a, float b, const float *restrict p,
                                  long s, float *restrict lap)
{
    for (int z = 0; z < cells; z++)
        lap[z] += rtm_stretch(psi + z, psi_s, zeta + z, a, b, p + z, s);
}

WIDTHS static void stretch_ends(int cells, const float *restrict psi, float *restrict zeta,
                                const float *restrict a, const float *restrict b,
                                const float *restrict p, float *restrict lap)
{
    for (int z = 0; z < cells; z++)
        lap[z] += rtm_stretch(psi + z, 1, zeta + z, a[z], b[z], p + z, 1);
}

WIDTHS static void next_column(int cells, const float *restrict now, float *restrict last,
                               const float *restrict v2, const float *restrict lap)
{
    for (int z = 0; z < cells; z++)
        last[z] = rtm_next(now[z], last[z], v2[z], lap[z]);
}

WIDTHS static void correlate_column(int cells, const float *restrict source,
                                    const float *restrict receiver, float *restrict image,
                                    float *restrict light)
{
    for (int z = 0; z < cells; z++)
        rtm_correlate(source[z], receiver[z], image + z, light + z);
}

/* ---- a step ---- */

static long column_at(const struct rtm_grid *g, int x, int y)
{
    return g->origin + x * g->stride[RTM_X] + y * g->stride[RTM_Y];
}

static void psi_z(struct cpu *c)
{
    const struct rtm_grid *g = &c->g;

    SHARED
    for (int y = 0; y < g->m[RTM_Y]; y++)
        for (int x = 0; x < g->m[RTM_X]; x++) {
            long to = x * g->slab_stride[RTM_Z][RTM_X] + y * g->slab_stride[RTM_Z][RTM_Y];

            for (int end = 0; end < 2; end++) {
                int q = rtm_border_cell(g, RTM_Z, end * g->border);
                int s = rtm_slab_at(g, RTM_Z, q);

                psi_ends(g->border, c->psi[RTM_Z] + to + s, c->stretch[RTM_Z][0] + s,
                         c->stretch[RTM_Z][1] + s, c->now + column_at(g, x, y) + q);
            }
        }
}

static void psi_across(struct cpu *c, int d)
{
    const struct rtm_grid *g = &c->g;
    int e = d == RTM_X ? RTM_Y : RTM_X; /* the axis that is neither d nor z */

    SHARED
    for (int k = 0; k < 2 * g->border; k++)
        for (int other = 0; other < g->m[e]; other++) {
            int q = rtm_border_cell(g, d, k), s = rtm_slab_at(g, d, q);
            long to = s * g->slab_stride[d][d] + other * g->slab_stride[d][e];
            long from = d == RTM_X ? column_at(g, q, other) : column_at(g, other, q);

            psi_column(g->m[RTM_Z], c->psi[d] + to, c->stretch[d][0][s], c->stretch[d][1][s],
                       c->now + from, g->stride[d]);
        }
}

/* Adds the border along x or y to cells z0 to z0 + cells of a column. */
static void add_across(struct cpu *c, int d, int x, int y, int z0, int cells, float *lap)
{
    const struct rtm_grid *g = &c->g;
    int e = d == RTM_X ? RTM_Y : RTM_X, at[RTM_AXES] = {0, x, y};
    int s = rtm_slab_at(g, d, at[d]);
    long to;

    if (s < 0)
        return;
    to = s * g->slab_stride[d][d] + at[e] * g->slab_stride[d][e] + z0;
    stretch_column(cells, c->psi[d] + to, g->slab_stride[d][d], c->zeta[d] + to,
                   c->stretch[d][0][s], c->stretch[d][1][s], c->now + column_at(g, x, y) + z0,
                   g->stride[d], lap);
}

/* Adds the borders at top and bottom. */
static void add_ends(struct cpu *c, int x, int y, int z0, int cells, float *lap)
{
    const struct rtm_grid *g = &c->g;
    int depth = g->border + RTM_HALF;
    long slab = x * g->slab_stride[RTM_Z][RTM_X] + y * g->slab_stride[RTM_Z][RTM_Y];

    for (int end = 0; end < 2; end++) {
        int from = end ? g->m[RTM_Z] - depth : 0, to = from + depth, s;

        from = from > z0 ? from : z0;
        to = to < z0 + cells ? to : z0 + cells;
        if (from >= to)
            continue;
        s = rtm_slab_at(g, RTM_Z, from);
        stretch_ends(to - from, c->psi[RTM_Z] + slab + s, c->zeta[RTM_Z] + slab + s,
                     c->stretch[RTM_Z][0] + s, c->stretch[RTM_Z][1] + s,
                     c->now + column_at(g, x, y) + from, lap + from - z0);
    }
}

static void step_column(struct cpu *c, int x, int y)
{
    const struct rtm_grid *g = &c->g;
    long sy = g->dims == 3 ? g->stride[RTM_Y] : 0;

    for (int z0 = 0; z0 < g->m[RTM_Z]; z0 += CHUNK) {
        int cells = g->m[RTM_Z] - z0 < CHUNK ? g->m[RTM_Z] - z0 : CHUNK;
        long at = column_at(g, x, y) + z0;
        float lap[CHUNK];

        lap_column(cells, c->now + at, g->stride[RTM_X], sy, lap);
        add_ends(c, x, y, z0, cells, lap);
        for (int d = RTM_X; d < g->dims; d++)
            add_across(c, d, x, y, z0, cells, lap);
        next_column(cells, c->now + at, c->last + at, c->v2 + at, lap);
    }
}

/* A thread's share of a step. */
static void step_share(struct cpu *c)
{
    const struct rtm_grid *g = &c->g;

    psi_z(c);
    for (int d = RTM_X; d < g->dims; d++)
        psi_across(c, d);
    ARRIVE /* psi is read across columns */
        SHARED for (int y = 0; y < g->m[RTM_Y]; y++) for (int x = 0; x < g->m[RTM_X]; x++)
            step_column(c, x, y);
}

static int cpu_step(struct rtm_prop *p)
{
    struct cpu *c = cpu_of(p);
    float *swap;

    TEAM step_share(c);
    swap = c->now;
    c->now = c->last;
    c->last = swap;
    return 0;
}

/* ---- sources and receivers ---- */

static int cpu_inject(struct rtm_prop *p, long cell, float amplitude)
{
    struct cpu *c = cpu_of(p);

    c->now[cell] += c->v2[cell] * amplitude;
    return 0;
}

static int cpu_record(struct rtm_prop *p, int it)
{
    struct cpu *c = cpu_of(p);
    float *to = c->records + it * c->receivers;

    for (long r = 0; r < c->receivers; r++)
        to[r] = c->now[c->receiver_cells[r]];
    return 0;
}

static int cpu_inject_data(struct rtm_prop *p, int it)
{
    struct cpu *c = cpu_of(p);
    const float *from = c->data + it * c->receivers;

    for (long r = 0; r < c->receivers; r++)
        c->now[c->receiver_cells[r]] += c->v2[c->receiver_cells[r]] * from[r];
    return 0;
}

static size_t data_bytes(const struct cpu *c)
{
    return (size_t)c->steps * (size_t)c->receivers * sizeof(float);
}

static int cpu_get_records(struct rtm_prop *p, float *data)
{
    memcpy(data, cpu_of(p)->records, data_bytes(cpu_of(p)));
    return 0;
}

static int cpu_set_data(struct rtm_prop *p, const float *data)
{
    memcpy(cpu_of(p)->data, data, data_bytes(cpu_of(p)));
    return 0;
}

/* ---- snapshots and image ---- */

static int cpu_snapshot(struct rtm_prop *p, float *own)
{
    struct cpu *c = cpu_of(p);
    const struct rtm_grid *g = &c->g;

    PARALLEL
    for (int y = 0; y < g->n[RTM_Y]; y++)
        for (int x = 0; x < g->n[RTM_X]; x++)
            memcpy(own + ((long)y * g->n[RTM_X] + x) * g->n[RTM_Z],
                   c->now + rtm_grid_cell(g, 0, x, y), (size_t)g->n[RTM_Z] * sizeof(float));
    return 0;
}

static int cpu_correlate(struct rtm_prop *p, const float *own)
{
    struct cpu *c = cpu_of(p);
    const struct rtm_grid *g = &c->g;

    PARALLEL
    for (int y = 0; y < g->n[RTM_Y]; y++)
        for (int x = 0; x < g->n[RTM_X]; x++) {
            long at = ((long)y * g->n[RTM_X] + x) * g->n[RTM_Z];

            correlate_column(g->n[RTM_Z], own + at, c->now + rtm_grid_cell(g, 0, x, y),
                             c->image + at, c->light + at);
        }
    return 0;
}

static int cpu_clear_image(struct rtm_prop *p)
{
    struct cpu *c = cpu_of(p);
    size_t bytes = (size_t)rtm_grid_points(&c->g) * sizeof(float);

    memset(c->image, 0, bytes);
    memset(c->light, 0, bytes);
    return 0;
}

static int cpu_get_image(struct rtm_prop *p, float *image, float *light)
{
    struct cpu *c = cpu_of(p);
    size_t bytes = (size_t)rtm_grid_points(&c->g) * sizeof(float);

    memcpy(image, c->image, bytes);
    memcpy(light, c->light, bytes);
    return 0;
}

/* ---- the rest ---- */

static int cpu_set_model(struct rtm_prop *p, const float *v2)
{
    struct cpu *c = cpu_of(p);

    memcpy(c->v2, v2, (size_t)c->g.cells * sizeof(float));
    return 0;
}

static int cpu_reset(struct rtm_prop *p)
{
    struct cpu *c = cpu_of(p);

    memset(c->now, 0, (size_t)c->g.cells * sizeof(float));
    memset(c->last, 0, (size_t)c->g.cells * sizeof(float));
    for (int d = 0; d < c->g.dims; d++) {
        memset(c->psi[d], 0, (size_t)c->g.slab_cells[d] * sizeof(float));
        memset(c->zeta[d], 0, (size_t)c->g.slab_cells[d] * sizeof(float));
    }
    return 0;
}

static int cpu_pause_begin(struct rtm_prop *p, enum rtm_pause kind)
{
    (void)kind;
    cpu_of(p)->paused_at = rtm_now();
    return 0;
}

static int cpu_pause_end(struct rtm_prop *p, enum rtm_pause kind)
{
    cpu_of(p)->paused_s[kind] += rtm_now() - cpu_of(p)->paused_at;
    return 0;
}

static int cpu_pauses(struct rtm_prop *p, double ret_s[RTM_PAUSES])
{
    memcpy(ret_s, cpu_of(p)->paused_s, sizeof(cpu_of(p)->paused_s));
    memset(cpu_of(p)->paused_s, 0, sizeof(cpu_of(p)->paused_s));
    return 0;
}

static int cpu_sync(struct rtm_prop *p)
{
    (void)p;
    return 0;
}

static void *cpu_alloc(struct rtm_prop *p, size_t bytes)
{
    (void)p;
    return zeros(bytes);
}

static void cpu_release(struct rtm_prop *p, void *memory)
{
    (void)p;
    free(memory);
}

static int cpu_copy(struct rtm_prop *p, void *dst, const void *src, size_t bytes)
{
    (void)p;
    memcpy(dst, src, bytes);
    return 0;
}

static void cpu_free(struct rtm_prop *p)
{
    struct cpu *c = cpu_of(p);

    if (!c)
        return;
    for (int d = 0; d < RTM_AXES; d++) {
        free(c->psi[d]);
        free(c->zeta[d]);
        free(c->stretch[d][0]);
        free(c->stretch[d][1]);
    }
    free(c->receiver_cells);
    free(c->now);
    free(c->last);
    free(c->v2);
    free(c->records);
    free(c->data);
    free(c->image);
    free(c->light);
    free(c);
}

static const struct rtm_prop_ops cpu_ops = {
    .name = "cpu",
    .free = cpu_free,
    .set_model = cpu_set_model,
    .reset = cpu_reset,
    .step = cpu_step,
    .inject = cpu_inject,
    .record = cpu_record,
    .get_records = cpu_get_records,
    .set_data = cpu_set_data,
    .inject_data = cpu_inject_data,
    .snapshot = cpu_snapshot,
    .correlate = cpu_correlate,
    .snapshot_to_host = cpu_snapshot,
    .correlate_host = cpu_correlate,
    .clear_image = cpu_clear_image,
    .get_image = cpu_get_image,
    .pause_begin = cpu_pause_begin,
    .pause_end = cpu_pause_end,
    .pauses = cpu_pauses,
    .sync = cpu_sync,
    .own_alloc = cpu_alloc,
    .own_free = cpu_release,
    .host_alloc = cpu_alloc,
    .host_free = cpu_release,
    .copy = cpu_copy,
};

/* True if there is memory for all of it. */
static bool allocate(struct cpu *c, const struct rtm_setup *setup)
{
    size_t field = (size_t)c->g.cells * sizeof(float);
    size_t points = (size_t)rtm_grid_points(&c->g) * sizeof(float);
    size_t profile = 2 * (size_t)c->g.slab * sizeof(float);
    size_t cells = (size_t)c->receivers * sizeof(long);
    bool ok;

    c->now = zeros(field);
    c->last = zeros(field);
    c->v2 = zeros(field);
    c->image = zeros(points);
    c->light = zeros(points);
    c->records = zeros(data_bytes(c));
    c->data = zeros(data_bytes(c));
    c->receiver_cells = zeros(cells);
    ok = c->now && c->last && c->v2 && c->image && c->light && c->records && c->data &&
         c->receiver_cells;
    if (ok)
        memcpy(c->receiver_cells, setup->receiver_cells, cells);
    for (int d = 0; d < c->g.dims && ok; d++) {
        c->psi[d] = zeros((size_t)c->g.slab_cells[d] * sizeof(float));
        c->zeta[d] = zeros((size_t)c->g.slab_cells[d] * sizeof(float));
        c->stretch[d][0] = zeros(profile);
        c->stretch[d][1] = zeros(profile);
        ok = c->psi[d] && c->zeta[d] && c->stretch[d][0] && c->stretch[d][1];
        for (int i = 0; i < 2 && ok; i++)
            memcpy(c->stretch[d][i], setup->stretch[d][i], profile);
    }
    return ok;
}

int rtm_prop_cpu_new(const struct rtm_setup *setup, struct rtm_prop **ret_prop)
{
    struct cpu *c = calloc(1, sizeof(*c));

    if (!c)
        return rtm_error(-ENOMEM, "out of memory");
    c->prop.ops = &cpu_ops;
    c->prop.varve_device = VARVE_DEVICE_NONE;
    c->g = setup->grid;
    c->steps = setup->steps;
    c->receivers = setup->receivers;
    c->threads = setup->threads;
#ifdef _OPENMP
    if (c->threads < 1)
        c->threads = omp_get_max_threads();
#endif
    c->chunk = c->g.m[RTM_X] * c->g.m[RTM_Y] / (16 * (c->threads > 0 ? c->threads : 1));
    c->chunk = c->chunk < 1 ? 1 : c->chunk;
    flush_tiny();
    TEAM flush_tiny(); /* the threads that were started before */
    if (!allocate(c, setup)) {
        cpu_free(&c->prop);
        return rtm_error(-ENOMEM, "not enough memory for the wavefields: make the grid smaller "
                                  "(--grid), or the receivers fewer (--receiver-step)");
    }
    *ret_prop = &c->prop;
    return 0;
}
