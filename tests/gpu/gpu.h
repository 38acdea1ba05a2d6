/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests in this folder. They act as an application that uses the CUDA driver itself, beside Varve. The
 * driver's library is the one that the dynamic linker finds, a GPU's or the stand-in's.
 *
 * A process that has used CUDA cannot fork children that use it, and some cases end CUDA for their process. So each
 * case runs in a process of its own, and the first process does not use CUDA at all.
 */
#ifndef GPU_H
#define GPU_H

#include <stddef.h>
#include <stdint.h>

#include <varve/varve.h>

/* X(member, symbol, parameters): the driver's functions, by the names of its library. */
#define GPU_FUNCTIONS(X)                                                        \
    X(init, "cuInit", (unsigned))                                               \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                       \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int))                           \
    X(reset, "cuDevicePrimaryCtxReset_v2", (int))                               \
    X(create, "cuCtxCreate_v2", (void **, unsigned, int))                       \
    X(destroy, "cuCtxDestroy_v2", (void *))                                     \
    X(push, "cuCtxPushCurrent_v2", (void *))                                    \
    X(pop, "cuCtxPopCurrent_v2", (void **))                                     \
    X(current, "cuCtxGetCurrent", (void **))                                    \
    X(set_current, "cuCtxSetCurrent", (void *))                                 \
    X(info, "cuMemGetInfo_v2", (size_t *, size_t *))                            \
    X(alloc, "cuMemAlloc_v2", (uintptr_t *, size_t))                            \
    X(mem_free, "cuMemFree_v2", (uintptr_t))                                    \
    X(to_device, "cuMemcpyHtoD_v2", (uintptr_t, const void *, size_t))          \
    X(to_host, "cuMemcpyDtoH_v2", (void *, uintptr_t, size_t))                  \
    X(set_async, "cuMemsetD8Async", (uintptr_t, unsigned char, size_t, void *)) \
    X(stream, "cuStreamCreate", (void **, unsigned))                            \
    X(stream_free, "cuStreamDestroy_v2", (void *))                              \
    X(sync, "cuStreamSynchronize", (void *))                                    \
    X(host_func, "cuLaunchHostFunc", (void *, void (*)(void *), void *))        \
    X(begin_capture, "cuStreamBeginCapture_v2", (void *, int))                  \
    X(end_capture, "cuStreamEndCapture", (void *, void **))

struct gpu_driver {
#define X(member, symbol, params) int(*member) params;
    GPU_FUNCTIONS(X)
#undef X
};

extern struct gpu_driver cu;

/* Checks one of them: it returns 0. */
#define CU(call) T_EQ(cu.call, 0)

/* One of several threads that use a context, and the device's primary context. */
enum { GPU_USERS = 4 };
struct gpu_user {
    struct varve_ctx *ctx;
    void *primary;
    int id;
};

/* Runs `fn` in GPU_USERS threads, with a struct gpu_user each, and waits for them. */
void gpu_run_users(struct varve_ctx *ctx, void *(*fn)(void *));

/* Loads the driver without using it, and skips the test if there is no driver or no GPU. */
void gpu_need(void);

/* Runs the case in a child, where CUDA is initialised and VARVE_TEST_DEVICE is cuda. */
#define GPU_RUN(fn) gpu_run(#fn, fn)
void gpu_run(const char *name, void (*fn)(void));

#endif
