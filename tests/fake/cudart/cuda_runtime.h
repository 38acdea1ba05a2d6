/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for the CUDA runtime with which examples/rtm/prop_cuda.cu is compiled as C++ and runs
 * on the CPU: the threads of a kernel run one after the other, at the launch. It tests that the
 * kernels compute the right cells, and that memory and the pauses around kernels are handled; not
 * speed, nor the order between streams. Device memory is host memory, filled with NaNs, so that
 * code that relies on zeros fails.
 */
#ifndef FAKE_CUDA_RUNTIME_H
#define FAKE_CUDA_RUNTIME_H

#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __CUDACC__      1

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

static dim3 blockIdx, threadIdx, blockDim;

#define RTM_VARVE_DEVICE VARVE_DEVICE_NONE
#define RTM_LAUNCH(kernel, blocks, threads, stream, ...)            \
    do {                                                            \
        dim3 blocks_ = blocks, i_, t_;                              \
        blockDim = threads;                                         \
        for (i_.z = 0; i_.z < blocks_.z; i_.z++)                    \
            for (i_.y = 0; i_.y < blocks_.y; i_.y++)                \
                for (i_.x = 0; i_.x < blocks_.x; i_.x++)            \
                    for (t_.y = 0; t_.y < blockDim.y; t_.y++)       \
                        for (t_.x = 0; t_.x < blockDim.x; t_.x++) { \
                            blockIdx = i_;                          \
                            threadIdx = dim3(t_.x, t_.y, 0);        \
                            kernel(__VA_ARGS__);                    \
                        }                                           \
        (void)(stream);                                             \
    } while (0)

typedef enum { cudaSuccess, cudaErrorMemoryAllocation = 2 } cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef double *cudaEvent_t;
enum { cudaMemcpyDefault = 4, cudaStreamNonBlocking = 1, cudaHostAllocDefault = 0 };

static inline const char *cudaGetErrorString(cudaError_t rc)
{
    return rc == cudaSuccess ? "no error" : "out of memory";
}

static inline cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

static inline cudaError_t cudaSetDevice(int)
{
#ifdef __SSE2__
    _mm_setcsr(_mm_getcsr() | 0x8040); /* -ftz=true */
#endif
    return cudaSuccess;
}

static inline cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*p)
        return cudaErrorMemoryAllocation;
    memset(*p, 0xff, bytes);
    return cudaSuccess;
}

static inline cudaError_t cudaHostAlloc(void **p, size_t bytes, int)
{
    return cudaMalloc(p, bytes);
}

static inline cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

static inline cudaError_t cudaFreeHost(void *p)
{
    return cudaFree(p);
}

static inline cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, int,
                                          cudaStream_t)
{
    memcpy(dst, src, bytes);
    return cudaSuccess;
}

static inline cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t)
{
    memset(dst, value, bytes);
    return cudaSuccess;
}

static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, int)
{
    *s = NULL;
    return cudaSuccess;
}

static inline cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}

static inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}

static inline cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    *e = (cudaEvent_t)calloc(1, sizeof(double));
    return *e ? cudaSuccess : cudaErrorMemoryAllocation;
}

static inline cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return cudaSuccess;
}

static inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    *e = (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
    return cudaSuccess;
}

static inline cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaSuccess;
}

static inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)((*to - *from) * 1e3);
    return cudaSuccess;
}

#endif
