/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The propagator on a GPU: the same cells, computed by the same functions of numerics.h, a thread for
 * each. Compiled with --fmad=false and -ftz=true it rounds as prop_cpu.c does.
 *
 * All work is in one stream, including that of the store. In 3D a thread moves along y with the nine
 * values of that axis in registers, so that the field is read from memory about once.
 *
 * Pauses are measured on the stream itself, between two events: how long no kernel of ours ran because
 * of the store, because the host waited in a call or a copy was in the stream. The host does not run
 * more than two snapshots ahead, so that space is not requested long before it is used.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include "rtm.h"

/* Tests run the kernels on the CPU with a stand-in for the runtime, which has its own launch. */
#ifndef RTM_LAUNCH
#define RTM_LAUNCH(kernel, blocks, threads, stream, ...) \
    kernel<<<blocks, threads, 0, stream>>>(__VA_ARGS__)
#define RTM_VARVE_DEVICE VARVE_DEVICE_CUDA
#endif

enum { WIDE = 32, HIGH = 8, MARCH = 32, FLAT = 256, AHEAD = 2 };

/* The borders of one axis. */
struct edge {
    float *psi, *zeta, *a, *b;
};

struct edges {
    struct edge of[RTM_AXES];
};

struct pause {
    cudaEvent_t begin, end;
    enum rtm_pause kind;
};

struct gpu {
    struct rtm_prop prop;
    struct rtm_grid g;
    int steps;
    long receivers, points;
    cudaStream_t stream;
    struct edges edges;
    float *now, *last, *v2, *records, *data, *image, *light, *temp;
    long *receiver_cells;
    struct pause *pauses;
    size_t nr_pauses, cap_pauses;
};

static struct gpu *gpu_of(struct rtm_prop *p)
{
    return (struct gpu *)p;
}

static int cuda_error(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return 0;
    if (rc == cudaErrorMemoryAllocation)
        return rtm_error(
            -ENOMEM, "not enough memory on the GPU: make the grid smaller (--grid), the receivers "
                     "fewer (--receiver-step), or the cache (--memory)");
    return rtm_error(-EIO, "%s: %s", what, cudaGetErrorString(rc));
}

/* ---- kernels ---- */

/* psi of the border cells along axis d. */
__global__ void psi_kernel(struct rtm_grid g, int d, struct edge e, const float *now)
{
    int at[RTM_AXES] = {(int)(blockIdx.x * blockDim.x + threadIdx.x),
                        (int)(blockIdx.y * blockDim.y + threadIdx.y), (int)blockIdx.z};
    long to = 0, from = g.origin;
    int s;

    for (int i = 0; i < RTM_AXES; i++)
        if (at[i] >= (i == d ? 2 * g.border : g.m[i]))
            return;
    at[d] = rtm_border_cell(&g, d, at[d]);
    s = rtm_slab_at(&g, d, at[d]);
    for (int i = 0; i < RTM_AXES; i++) {
        to += (i == d ? s : at[i]) * g.slab_stride[d][i];
        from += at[i] * g.stride[i];
    }
    e.psi[to] = rtm_psi(e.psi[to], e.a[s], e.b[s], now + from, g.stride[d]);
}

/* The sum of the borders' terms at one cell: along z, x and y, in this order. */
__device__ __forceinline__ float borders(const struct rtm_grid *g, const struct edges *edges, int z,
                                         int x, int y, const float *now, float lap)
{
    int at[RTM_AXES] = {z, x, y};

#pragma unroll
    for (int d = 0; d < RTM_AXES; d++) {
        const struct edge *e = &edges->of[d];
        int s = d < g->dims ? rtm_slab_at(g, d, at[d]) : -1;
        long to = 0;

        if (s < 0)
            continue;
#pragma unroll
        for (int i = 0; i < RTM_AXES; i++)
            to += (i == d ? s : at[i]) * g->slab_stride[d][i];
        lap += rtm_stretch(e->psi + to, g->slab_stride[d][d], e->zeta + to, e->a[s], e->b[s], now,
                           g->stride[d]);
    }
    return lap;
}

__global__ void step2_kernel(struct rtm_grid g, struct edges edges, const float *__restrict__ now,
                             float *__restrict__ last, const float *__restrict__ v2)
{
    int z = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int x = (int)(blockIdx.y * blockDim.y + threadIdx.y);
    long at = g.origin + z + x * g.stride[RTM_X];

    if (z >= g.m[RTM_Z] || x >= g.m[RTM_X])
        return;
    last[at] =
        rtm_next(now[at], last[at], v2[at],
                 borders(&g, &edges, z, x, 0, now + at, rtm_lap2(now + at, g.stride[RTM_X])));
}

__global__ void step3_kernel(struct rtm_grid g, struct edges edges, const float *__restrict__ now,
                             float *__restrict__ last, const float *__restrict__ v2)
{
    int z = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int x = (int)(blockIdx.y * blockDim.y + threadIdx.y);
    int y0 = (int)blockIdx.z * MARCH, y1 = y0 + MARCH < g.m[RTM_Y] ? y0 + MARCH : g.m[RTM_Y];
    long sx = g.stride[RTM_X], sy = g.stride[RTM_Y], at = g.origin + z + x * sx + y0 * sy;
    float q[2 * RTM_HALF + 1]; /* along y, at in the middle */

    if (z >= g.m[RTM_Z] || x >= g.m[RTM_X])
        return;
#pragma unroll
    for (int i = 0; i < 2 * RTM_HALF; i++)
        q[i + 1] = now[at + (i - RTM_HALF) * sy];
    for (int y = y0; y < y1; y++, at += sy) {
        float lap;

#pragma unroll
        for (int i = 0; i < 2 * RTM_HALF; i++)
            q[i] = q[i + 1];
        q[2 * RTM_HALF] = now[at + RTM_HALF * sy];
        lap = rtm_d2(now + at, 1) + rtm_d2(now + at, sx) +
              rtm_d2_of(q[4], q[5] + q[3], q[6] + q[2], q[7] + q[1], q[8] + q[0]);
        last[at] = rtm_next(q[4], last[at], v2[at], borders(&g, &edges, z, x, y, now + at, lap));
    }
}

__global__ void inject_kernel(float *now, const float *v2, long cell, float amplitude)
{
    now[cell] += v2[cell] * amplitude;
}

__global__ void record_kernel(long receivers, const long *cells, const float *now, float *to)
{
    long r = (long)blockIdx.x * blockDim.x + threadIdx.x;

    if (r < receivers)
        to[r] = now[cells[r]];
}

__global__ void inject_data_kernel(long receivers, const long *cells, const float *from,
                                   const float *v2, float *now)
{
    long r = (long)blockIdx.x * blockDim.x + threadIdx.x;

    if (r < receivers)
        now[cells[r]] += v2[cells[r]] * from[r];
}

/* Index of this thread's cell in the field and in a snapshot. False: the thread has no cell. */
__device__ __forceinline__ bool model_cell(const struct rtm_grid *g, long *ret_field,
                                           long *ret_model)
{
    int z = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int x = (int)(blockIdx.y * blockDim.y + threadIdx.y), y = (int)blockIdx.z;

    if (z >= g->n[RTM_Z] || x >= g->n[RTM_X])
        return false;
    *ret_field = g->origin + (z + g->border) + (x + g->border) * g->stride[RTM_X] +
                 (g->dims == 3 ? (y + g->border) * g->stride[RTM_Y] : 0);
    *ret_model = ((long)y * g->n[RTM_X] + x) * g->n[RTM_Z] + z;
    return true;
}

__global__ void snapshot_kernel(struct rtm_grid g, const float *__restrict__ now,
                                float *__restrict__ to)
{
    long field, model;

    if (model_cell(&g, &field, &model))
        to[model] = now[field];
}

__global__ void correlate_kernel(struct rtm_grid g, const float *__restrict__ source,
                                 const float *__restrict__ now, float *__restrict__ image,
                                 float *__restrict__ light)
{
    long field, model;

    if (model_cell(&g, &field, &model))
        rtm_correlate(source[model], now[field], image + model, light + model);
}

/* ---- launching them ---- */

static unsigned blocks_for(long count, int each)
{
    return (unsigned)((count + each - 1) / each);
}

static int gpu_step(struct rtm_prop *p)
{
    struct gpu *c = gpu_of(p);
    const struct rtm_grid *g = &c->g;
    dim3 threads(WIDE, HIGH, 1);
    float *swap;

    for (int d = 0; d < g->dims; d++) {
        long size[RTM_AXES];

        for (int i = 0; i < RTM_AXES; i++)
            size[i] = i == d ? 2 * g->border : g->m[i];
        RTM_LAUNCH(psi_kernel,
                   dim3(blocks_for(size[0], WIDE), blocks_for(size[1], HIGH), (unsigned)size[2]),
                   threads, c->stream, *g, d, c->edges.of[d], c->now);
    }
    if (g->dims == 3)
        RTM_LAUNCH(step3_kernel,
                   dim3(blocks_for(g->m[RTM_Z], WIDE), blocks_for(g->m[RTM_X], HIGH),
                        blocks_for(g->m[RTM_Y], MARCH)),
                   threads, c->stream, *g, c->edges, c->now, c->last, c->v2);
    else
        RTM_LAUNCH(step2_kernel,
                   dim3(blocks_for(g->m[RTM_Z], WIDE), blocks_for(g->m[RTM_X], HIGH), 1), threads,
                   c->stream, *g, c->edges, c->now, c->last, c->v2);
    swap = c->now;
    c->now = c->last;
    c->last = swap;
    return cuda_error(cudaGetLastError(), "a step on the GPU");
}

static int gpu_inject(struct rtm_prop *p, long cell, float amplitude)
{
    struct gpu *c = gpu_of(p);

    RTM_LAUNCH(inject_kernel, dim3(1), dim3(1), c->stream, c->now, c->v2, cell, amplitude);
    return cuda_error(cudaGetLastError(), "the source on the GPU");
}

static int gpu_record(struct rtm_prop *p, int it)
{
    struct gpu *c = gpu_of(p);

    RTM_LAUNCH(record_kernel, dim3(blocks_for(c->receivers, FLAT)), dim3(FLAT), c->stream,
               c->receivers, c->receiver_cells, c->now, c->records + it * c->receivers);
    return cuda_error(cudaGetLastError(), "recording on the GPU");
}

static int gpu_inject_data(struct rtm_prop *p, int it)
{
    struct gpu *c = gpu_of(p);

    RTM_LAUNCH(inject_data_kernel, dim3(blocks_for(c->receivers, FLAT)), dim3(FLAT), c->stream,
               c->receivers, c->receiver_cells, c->data + it * c->receivers, c->v2, c->now);
    return cuda_error(cudaGetLastError(), "the receivers' data on the GPU");
}

static dim3 model_blocks(const struct gpu *c)
{
    return dim3(blocks_for(c->g.n[RTM_Z], WIDE), blocks_for(c->g.n[RTM_X], HIGH),
                (unsigned)c->g.n[RTM_Y]);
}

static int gpu_snapshot(struct rtm_prop *p, float *own)
{
    struct gpu *c = gpu_of(p);

    RTM_LAUNCH(snapshot_kernel, model_blocks(c), dim3(WIDE, HIGH, 1), c->stream, c->g, c->now, own);
    return cuda_error(cudaGetLastError(), "a snapshot on the GPU");
}

static int gpu_correlate(struct rtm_prop *p, const float *own)
{
    struct gpu *c = gpu_of(p);

    RTM_LAUNCH(correlate_kernel, model_blocks(c), dim3(WIDE, HIGH, 1), c->stream, c->g, own, c->now,
               c->image, c->light);
    return cuda_error(cudaGetLastError(), "correlating on the GPU");
}

/* ---- memory ---- */

static int gpu_sync(struct rtm_prop *p)
{
    return cuda_error(cudaStreamSynchronize(gpu_of(p)->stream), "waiting for the GPU");
}

static int gpu_copy(struct rtm_prop *p, void *dst, const void *src, size_t bytes)
{
    int rc = cuda_error(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, gpu_of(p)->stream),
                        "a copy on the GPU");

    return rc ? rc : gpu_sync(p);
}

static int zero(struct gpu *c, void *own, size_t bytes)
{
    return cuda_error(cudaMemsetAsync(own, 0, bytes, c->stream), "clearing memory on the GPU");
}

static int gpu_set_model(struct rtm_prop *p, const float *v2)
{
    return gpu_copy(p, gpu_of(p)->v2, v2, (size_t)gpu_of(p)->g.cells * sizeof(float));
}

static int gpu_reset(struct rtm_prop *p)
{
    struct gpu *c = gpu_of(p);
    size_t bytes = (size_t)c->g.cells * sizeof(float);
    int rc = zero(c, c->now, bytes);

    if (rc == 0)
        rc = zero(c, c->last, bytes);
    for (int d = 0; d < c->g.dims && rc == 0; d++) {
        bytes = (size_t)c->g.slab_cells[d] * sizeof(float);
        rc = zero(c, c->edges.of[d].psi, bytes);
        if (rc == 0)
            rc = zero(c, c->edges.of[d].zeta, bytes);
    }
    return rc;
}

static size_t data_bytes(const struct gpu *c)
{
    return (size_t)c->steps * (size_t)c->receivers * sizeof(float);
}

static int gpu_get_records(struct rtm_prop *p, float *data)
{
    return gpu_copy(p, data, gpu_of(p)->records, data_bytes(gpu_of(p)));
}

static int gpu_set_data(struct rtm_prop *p, const float *data)
{
    return gpu_copy(p, gpu_of(p)->data, data, data_bytes(gpu_of(p)));
}

static int gpu_clear_image(struct rtm_prop *p)
{
    struct gpu *c = gpu_of(p);
    int rc = zero(c, c->image, (size_t)c->points * sizeof(float));

    return rc ? rc : zero(c, c->light, (size_t)c->points * sizeof(float));
}

static int gpu_get_image(struct rtm_prop *p, float *image, float *light)
{
    struct gpu *c = gpu_of(p);
    int rc = gpu_copy(p, image, c->image, (size_t)c->points * sizeof(float));

    return rc ? rc : gpu_copy(p, light, c->light, (size_t)c->points * sizeof(float));
}

static void *gpu_own_alloc(struct rtm_prop *p, size_t bytes)
{
    void *own = NULL;

    if (cudaMalloc(&own, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    p->device_bytes += bytes;
    return own;
}

static void gpu_own_free(struct rtm_prop *p, void *own)
{
    (void)p;
    cudaFree(own);
}

static void *gpu_host_alloc(struct rtm_prop *p, size_t bytes)
{
    void *host = NULL;

    (void)p;
    if (cudaHostAlloc(&host, bytes, cudaHostAllocDefault) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return host;
}

static void gpu_host_free(struct rtm_prop *p, void *host)
{
    (void)p;
    cudaFreeHost(host);
}

static int need_temp(struct gpu *c)
{
    if (!c->temp)
        c->temp = (float *)gpu_own_alloc(&c->prop, (size_t)c->points * sizeof(float));
    return c->temp ? 0 : cuda_error(cudaErrorMemoryAllocation, "");
}

static int gpu_snapshot_to_host(struct rtm_prop *p, float *host)
{
    struct gpu *c = gpu_of(p);
    int rc = need_temp(c);

    if (rc == 0)
        rc = gpu_snapshot(p, c->temp);
    return rc ? rc : gpu_copy(p, host, c->temp, (size_t)c->points * sizeof(float));
}

static int gpu_correlate_host(struct rtm_prop *p, const float *host)
{
    struct gpu *c = gpu_of(p);
    int rc = need_temp(c);

    if (rc == 0)
        rc = gpu_copy(p, c->temp, host, (size_t)c->points * sizeof(float));
    return rc ? rc : gpu_correlate(p, c->temp);
}

/* ---- pauses ---- */

/* Events are created when first needed and reused after their times were read. */
static int next_pause(struct gpu *c, enum rtm_pause kind)
{
    struct pause *more;
    int rc;

    if (c->nr_pauses == c->cap_pauses) {
        more = (struct pause *)realloc(c->pauses, (c->cap_pauses + 64) * sizeof(*more));
        if (!more)
            return rtm_error(-ENOMEM, "out of memory");
        c->pauses = more;
        for (int i = 0; i < 64; i++) {
            rc = cuda_error(cudaEventCreate(&more[c->cap_pauses].begin), "an event");
            if (rc)
                return rc;
            rc = cuda_error(cudaEventCreate(&more[c->cap_pauses].end), "an event");
            if (rc) {
                cudaEventDestroy(more[c->cap_pauses].begin);
                return rc;
            }
            c->cap_pauses++;
        }
    }
    c->pauses[c->nr_pauses].kind = kind;
    return 0;
}

static int gpu_pause_begin(struct rtm_prop *p, enum rtm_pause kind)
{
    struct gpu *c = gpu_of(p);
    int rc = next_pause(c, kind);

    /* A snapshot has two pauses. */
    if (rc == 0 && c->nr_pauses >= 2 * AHEAD)
        rc = cuda_error(cudaEventSynchronize(c->pauses[c->nr_pauses - 2 * AHEAD].end),
                        "waiting for the GPU");
    if (rc == 0)
        rc = cuda_error(cudaEventRecord(c->pauses[c->nr_pauses].begin, c->stream), "an event");
    return rc;
}

static int gpu_pause_end(struct rtm_prop *p, enum rtm_pause kind)
{
    struct gpu *c = gpu_of(p);

    (void)kind;
    if (c->nr_pauses == c->cap_pauses)
        return 0; /* the beginning failed */
    return cuda_error(cudaEventRecord(c->pauses[c->nr_pauses++].end, c->stream), "an event");
}

static int gpu_pauses(struct rtm_prop *p, double ret_s[RTM_PAUSES])
{
    struct gpu *c = gpu_of(p);
    int rc = gpu_sync(p);

    memset(ret_s, 0, RTM_PAUSES * sizeof(*ret_s));
    for (size_t i = 0; i < c->nr_pauses && rc == 0; i++) {
        float ms = 0;

        rc =
            cuda_error(cudaEventElapsedTime(&ms, c->pauses[i].begin, c->pauses[i].end), "an event");
        ret_s[c->pauses[i].kind] += ms * 1e-3;
    }
    c->nr_pauses = 0;
    return rc;
}

/* ---- creation and end ---- */

static void gpu_free(struct rtm_prop *p)
{
    struct gpu *c = gpu_of(p);

    if (!c)
        return;
    for (size_t i = 0; i < c->cap_pauses; i++) {
        cudaEventDestroy(c->pauses[i].begin);
        cudaEventDestroy(c->pauses[i].end);
    }
    free(c->pauses);
    for (int d = 0; d < RTM_AXES; d++) {
        cudaFree(c->edges.of[d].psi);
        cudaFree(c->edges.of[d].zeta);
        cudaFree(c->edges.of[d].a);
        cudaFree(c->edges.of[d].b);
    }
    cudaFree(c->now);
    cudaFree(c->last);
    cudaFree(c->v2);
    cudaFree(c->records);
    cudaFree(c->data);
    cudaFree(c->image);
    cudaFree(c->light);
    cudaFree(c->temp);
    cudaFree(c->receiver_cells);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    free(c);
}

static const struct rtm_prop_ops *gpu_ops(void)
{
    static struct rtm_prop_ops ops;

    ops.name = "cuda";
    ops.on_device = true;
    ops.free = gpu_free;
    ops.set_model = gpu_set_model;
    ops.reset = gpu_reset;
    ops.step = gpu_step;
    ops.inject = gpu_inject;
    ops.record = gpu_record;
    ops.get_records = gpu_get_records;
    ops.set_data = gpu_set_data;
    ops.inject_data = gpu_inject_data;
    ops.snapshot = gpu_snapshot;
    ops.correlate = gpu_correlate;
    ops.snapshot_to_host = gpu_snapshot_to_host;
    ops.correlate_host = gpu_correlate_host;
    ops.clear_image = gpu_clear_image;
    ops.get_image = gpu_get_image;
    ops.pause_begin = gpu_pause_begin;
    ops.pause_end = gpu_pause_end;
    ops.pauses = gpu_pauses;
    ops.sync = gpu_sync;
    ops.own_alloc = gpu_own_alloc;
    ops.own_free = gpu_own_free;
    ops.host_alloc = gpu_host_alloc;
    ops.host_free = gpu_host_free;
    ops.copy = gpu_copy;
    return &ops;
}

/* Memory on the GPU with a copy of `from`, or zeros. */
static int give(struct gpu *c, void *to, const void *from, size_t bytes)
{
    void **own = (void **)to;

    *own = gpu_own_alloc(&c->prop, bytes);
    if (!*own)
        return cuda_error(cudaErrorMemoryAllocation, "");
    return from ? gpu_copy(&c->prop, *own, from, bytes) : zero(c, *own, bytes);
}

static int allocate(struct gpu *c, const struct rtm_setup *setup)
{
    size_t field = (size_t)c->g.cells * sizeof(float), points = (size_t)c->points * sizeof(float);
    size_t profile = 2 * (size_t)c->g.slab * sizeof(float);
    int rc = give(c, &c->now, NULL, field);

    rc = rc ? rc : give(c, &c->last, NULL, field);
    rc = rc ? rc : give(c, &c->v2, NULL, field);
    rc = rc ? rc : give(c, &c->records, NULL, data_bytes(c));
    rc = rc ? rc : give(c, &c->data, NULL, data_bytes(c));
    rc = rc ? rc : give(c, &c->image, NULL, points);
    rc = rc ? rc : give(c, &c->light, NULL, points);
    rc = rc ? rc : give(c, &c->receiver_cells, setup->receiver_cells, c->receivers * sizeof(long));
    for (int d = 0; d < c->g.dims && rc == 0; d++) {
        size_t slab = (size_t)c->g.slab_cells[d] * sizeof(float);
        struct edge *e = &c->edges.of[d];

        rc = give(c, &e->psi, NULL, slab);
        rc = rc ? rc : give(c, &e->zeta, NULL, slab);
        rc = rc ? rc : give(c, &e->a, setup->stretch[d][0], profile);
        rc = rc ? rc : give(c, &e->b, setup->stretch[d][1], profile);
    }
    return rc ? rc : gpu_sync(&c->prop);
}

int rtm_prop_cuda_new(const struct rtm_setup *setup, struct rtm_prop **ret_prop)
{
    cudaError_t found = cudaSetDevice(setup->device_id >= 0 ? setup->device_id : 0);
    struct gpu *c;
    int rc;

    if (found == cudaSuccess)
        found = cudaFree(NULL);
    if (found != cudaSuccess)
        return rtm_error(-ENODEV, "no GPU can be used (%s): leave out --device cuda",
                         cudaGetErrorString(found));
    c = (struct gpu *)calloc(1, sizeof(*c));
    if (!c)
        return rtm_error(-ENOMEM, "out of memory");
    c->prop.ops = gpu_ops();
    c->prop.varve_device = RTM_VARVE_DEVICE;
    c->g = setup->grid;
    c->points = rtm_grid_points(&c->g);
    c->steps = setup->steps;
    c->receivers = setup->receivers;
    rc = cuda_error(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "a stream");
    c->prop.stream = c->stream;
    if (rc == 0)
        rc = allocate(c, setup);
    if (rc == 0)
        *ret_prop = &c->prop;
    else
        gpu_free(&c->prop);
    return rc;
}
