/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts how often each byte value occurs in a file, on a GPU that the file need not fit in.
 *
 *     nvcc -arch=sm_90 histogram.cu $(pkg-config --cflags --libs varve) -o histogram
 *     ./histogram FILE
 *
 * The kernel reads the file itself: each block opens it and reads one piece after another. The program need not
 * divide the file into parts that fit, copy them and overlap two copies; threads of the library read the bytes
 * from the file while the blocks count. A file of 40 GB takes the time of reading it from the page cache or the
 * disk.
 */
#include <stdio.h>
#include <stdlib.h>

#include <varve/gpufile.h>
#include <varve/gpufile_device.h>

enum { THREADS = 256, VALUES = 256 };
static const uint64_t PIECE = 128 * 1024;

/* ---- on the GPU ---- */

__global__ void count(const __grid_constant__ struct varve_gfs fs, uint32_t file,
                      unsigned char *buffers, unsigned long long *counts, int *error)
{
    __shared__ unsigned int mine[VALUES];
    unsigned char *buffer = buffers + blockIdx.x * PIECE;
    struct varve_gfile f;

    mine[threadIdx.x] = 0;
    int rc = varve_gopen(&fs, file, VARVE_GBLOCK, &f);
    if (rc) {
        *error = rc;
        return;
    }

    /* Each byte is read once, so it need not be kept in the GPU's cache. */
    varve_gadvise(&f, VARVE_GADV_NOREUSE, 0, 0);

    /* Each block reads its own part of the file from start to end. */
    uint64_t pieces = (varve_gsize(&f) + PIECE - 1) / PIECE;
    uint64_t last = pieces * (blockIdx.x + 1) / gridDim.x;

    for (uint64_t piece = pieces * blockIdx.x / gridDim.x; piece < last; piece++) {
        int64_t bytes = varve_gread(&f, piece * PIECE, buffer, PIECE);

        if (bytes < 0) {
            *error = (int)bytes;
            break;
        }
        for (int64_t i = 4 * threadIdx.x; i < bytes; i += 4 * THREADS) {
            unsigned int four = *(unsigned int *)(buffer + i);

            for (int k = 0; k < 4 && i + k < bytes; k++)
                atomicAdd(&mine[four >> 8 * k & 0xff], 1);
        }
        __syncthreads();
        if (piece % 1024 == 1023 || piece + 1 == last) {
            atomicAdd(&counts[threadIdx.x], (unsigned long long)mine[threadIdx.x]);
            mine[threadIdx.x] = 0;
        }
        __syncthreads();
    }
    varve_gclose(&f);
}

/* ---- on the host ---- */

static struct varve_ctx *ctx;

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "histogram: %s: %s\n", what, varve_error(ctx));
    exit(1);
}

static void must_cuda(cudaError_t rc)
{
    int has = 0, needs = 0;

    if (rc == cudaSuccess)
        return;
    fprintf(stderr, "histogram: %s", cudaGetErrorString(rc));
    if (rc == cudaErrorInsufficientDriver && cudaDriverGetVersion(&has) == cudaSuccess &&
        cudaRuntimeGetVersion(&needs) == cudaSuccess)
        fprintf(stderr, ": the driver has CUDA %d.%d, and this was made with %d.%d", has / 1000,
                has % 1000 / 10, needs / 1000, needs % 1000 / 10);
    fprintf(stderr, "\n");
    exit(1);
}

int main(int argc, char **argv)
{
    struct varve_gpufs_opts options;
    struct varve_gpufs *files;
    struct varve_gfs handle;
    struct varve_opts opts;
    cudaDeviceProp gpu;
    unsigned char *buffers;
    unsigned long long *counts, total = 0;
    uint32_t file;
    int *error;

    if (argc != 2) {
        fprintf(stderr, "usage: histogram FILE\n");
        return 2;
    }

    /* A context without caches for histories. Without a usable GPU, this prints the reason. */
    must(varve_opts_init(&opts, sizeof(opts)), "options");
    opts.device = VARVE_DEVICE_CUDA;
    opts.device_cache = opts.host_cache = 0;
    must(varve_open(&opts, &ctx), "varve_open");

    must_cuda(cudaGetDeviceProperties(&gpu, 0));
    int blocks = 2 * gpu.multiProcessorCount;

    must_cuda(cudaMalloc(&buffers, blocks * PIECE));
    must_cuda(cudaMallocManaged(&counts, VALUES * sizeof(*counts)));
    must_cuda(cudaMallocManaged(&error, sizeof(*error)));
    for (int i = 0; i < VALUES; i++)
        counts[i] = 0;
    *error = 0;

    /* One file for each block. */
    must(varve_gpufs_opts_init(&options, sizeof(options)), "options");
    options.streams = blocks;
    options.cache_bytes = 64 << 20;
    must(varve_gpufs_open(ctx, &options, &files), "varve_gpufs_open");
    must(varve_gpufs_register(files, argv[1], VARVE_GFILE_READ, &file), argv[1]);
    must(varve_gpufs_handle(files, &handle), "handle");

    count<<<blocks, THREADS>>>(handle, file, buffers, counts, error);
    must_cuda(cudaDeviceSynchronize());
    must(*error, argv[1]);

    for (int i = 0; i < VALUES; i++)
        total += counts[i];
    for (int i = 0; i < VALUES; i++)
        if (counts[i])
            printf("%3d %14llu  %6.3f%%\n", i, counts[i], 100.0 * counts[i] / total);
    printf("%llu bytes\n", total);
    must(varve_gpufs_close(files), "varve_gpufs_close");
    must(varve_close(ctx), "varve_close");
    return 0;
}
