/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A wave on a GPU, and the illumination of its medium: the sum of the squared field over all time
 * steps, gathered last step first, as reverse time migration gathers its image.
 *
 *     nvcc illumination.cu $(pkg-config --cflags --libs varve) -o illumination && ./illumination
 *
 * The forward pass puts a checkpoint on the stream after every step, and continues. The reverse pass
 * reads each field in the library's cache. The 100 fields take 1.6 GiB: more than the cache on
 * the GPU, so some of them are moved to host memory and brought back before they are needed. To see
 * them go to disk as well, run it as
 *
 *     VARVE_HOST_CACHE=256M VARVE_LOCAL=/tmp ./illumination
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utility>
#include <vector>

#include <varve/ckpt.h>

enum { STEPS = 100, CELLS = 1 << 22, THREADS = 256, BLOCKS = CELLS / THREADS };
static const size_t BYTES = CELLS * sizeof(float);
static struct varve_ctx *ctx;

static void must(int rc)
{
    if (rc == 0)
        return;
    fprintf(stderr, "illumination: %s\n", varve_error(ctx));
    exit(1);
}

static void must_cuda(cudaError_t rc)
{
    if (rc == cudaSuccess)
        return;
    fprintf(stderr, "illumination: %s\n", cudaGetErrorString(rc));
    exit(1);
}

__global__ void start(float *now, float *last)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    float x = (i - CELLS / 2) * 1e-3f;

    now[i] = last[i] = expf(-x * x);
}

/* One step in time; the result replaces `last`. */
__global__ void step(const float *now, float *last, float *light)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    float left = now[i ? i - 1 : CELLS - 1], right = now[i < CELLS - 1 ? i + 1 : 0];

    last[i] = 2 * now[i] - last[i] + 0.25f * (left - 2 * now[i] + right);
    light[i] += last[i] * last[i];
}

__global__ void gather(const float *field, float *light)
{
    int i = blockIdx.x * THREADS + threadIdx.x;

    light[i] += field[i] * field[i];
}

int main()
{
    std::vector<float> a(CELLS), b(CELLS);
    float *now, *last, *forward, *reverse;
    struct varve_history *h;
    cudaStream_t stream;
    double worst = 0;

    must_cuda(cudaMalloc(&now, BYTES));
    must_cuda(cudaMalloc(&last, BYTES));
    must_cuda(cudaMalloc(&forward, BYTES));
    must_cuda(cudaMalloc(&reverse, BYTES));
    must_cuda(cudaStreamCreate(&stream));
    must_cuda(cudaMemsetAsync(forward, 0, BYTES, stream));
    must_cuda(cudaMemsetAsync(reverse, 0, BYTES, stream));

    must(varve_open(NULL, &ctx)); /* the program uses CUDA already, so the library uses its GPU */
    must(varve_history_open(ctx, "field", &h));
    for (uint64_t v = STEPS; v-- > 0;)
        must(varve_hint(h, v));

    start<<<BLOCKS, THREADS, 0, stream>>>(now, last);
    for (uint64_t v = 0; v < STEPS; v++) {
        step<<<BLOCKS, THREADS, 0, stream>>>(now, last, forward);
        std::swap(now, last);
        must(varve_protect(h, 0, now, BYTES)); /* the two fields alternate */
        must(varve_checkpoint_on(h, v, stream));
    }
    for (uint64_t v = STEPS; v-- > 0;) {
        void *field;
        size_t bytes;

        must(varve_acquire(h, v, 0, stream, &field, &bytes));
        gather<<<BLOCKS, THREADS, 0, stream>>>((const float *)field, reverse);
        must(varve_release(h, v, 0, stream));
    }
    must_cuda(cudaMemcpyAsync(a.data(), forward, BYTES, cudaMemcpyDeviceToHost, stream));
    must_cuda(cudaMemcpyAsync(b.data(), reverse, BYTES, cudaMemcpyDeviceToHost, stream));
    must_cuda(cudaStreamSynchronize(stream));
    must_cuda(cudaGetLastError());

    int rc = varve_close(ctx);
    ctx = NULL; /* it is closed in any case */
    must(rc);
    for (size_t i = 0; i < CELLS; i++)
        worst = fmax(worst, fabs(a[i] - b[i]) / (fabs(a[i]) + 1e-6));
    printf("forward and reverse differ by %.1e at most: %s\n", worst,
           worst < 1e-4 ? "the same but for rounding" : "wrong");
    return worst < 1e-4 ? 0 : 1;
}
