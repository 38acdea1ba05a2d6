/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the CUDA driver API that Varve uses, declared here so that building needs no toolkit, and loaded at run
 * time so that nothing of it is linked. A test, cuda_decls.c, compares everything below with cuda.h if that is
 * available.
 *
 * Handles carry the driver's own names and tags: a program may include cuda.h as well. Enumerations
 * are `unsigned int`, as compilers represent the driver's.
 */
#ifndef VV_DEVICE_CUDA_DRIVER_H
#define VV_DEVICE_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;

struct vvi_cu_location {
    unsigned int type; /* VVI_CU_LOCATION_* */
    int id;
};

struct vvi_cu_copy_attributes {
    unsigned int src_access_order; /* VVI_CU_SRC_ACCESS_* */
    struct vvi_cu_location src_hint, dst_hint;
    unsigned int flags;
};

/* X(our name, the driver's name, value) */
#define VVI_CUDA_CONSTANTS(X)                                                              \
    X(VVI_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING, 1)                               \
    X(VVI_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING, 2)                             \
    X(VVI_CU_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE, 1)                       \
    X(VVI_CU_HOST_REGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP, 2)                     \
    X(VVI_CU_HOST_REGISTER_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY, 8)                     \
    X(VVI_CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_GLOBAL, 1)                                   \
    X(VVI_CU_PROC_LEGACY_STREAM, CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1)                     \
    X(VVI_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE, 0)                               \
    X(VVI_CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                           \
    X(VVI_CU_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED, 2)                      \
    X(VVI_CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST, 1)                                       \
    X(VVI_CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE, 2)                                   \
    X(VVI_CU_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT, 1)                             \
    X(VVI_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                     \
    X(VVI_CU_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                       \
    X(VVI_CU_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)               \
    X(VVI_CU_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)               \
    X(VVI_CU_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)                      \
    X(VVI_CU_DEVICE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)         \
    X(VVI_CU_DEVICE_UNIFIED_ADDRESSING, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)        \
    X(VVI_CU_DEVICE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)    \
    X(VVI_CU_DEVICE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)    \
    X(VVI_CU_DEVICE_CONCURRENT_MANAGED, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 89) \
    X(VVI_CU_SRC_ACCESS_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, 1)                      \
    X(VVI_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE, 1)                              \
    X(VVI_CU_LOCATION_HOST, CU_MEM_LOCATION_TYPE_HOST, 2)                                  \
    X(VVI_CU_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 3)       \
    X(VVI_CU_ADVISE_UNSET_PREFERRED_LOCATION, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 4)   \
    X(VVI_CU_ADVISE_SET_ACCESSED_BY, CU_MEM_ADVISE_SET_ACCESSED_BY, 5)                     \
    X(VVI_CU_ADVISE_UNSET_ACCESSED_BY, CU_MEM_ADVISE_UNSET_ACCESSED_BY, 6)

enum vvi_cuda_constant {
#define X(ours, theirs, value) ours = value,
    VVI_CUDA_CONSTANTS(X)
#undef X
};

/*
 * Results of the driver, and their errno: X(name without CUDA_ERROR_, code, errno, LOST or KEPT). LOST: the context is
 * unusable. Codes outside of the list are EIO and KEPT.
 */
#define VVI_CUDA_ERRORS(X)                               \
    X(INVALID_VALUE, 1, EINVAL, KEPT)                    \
    X(OUT_OF_MEMORY, 2, ENOMEM, KEPT)                    \
    X(NOT_INITIALIZED, 3, ENODEV, LOST)                  \
    X(DEINITIALIZED, 4, ENODEV, LOST)                    \
    X(STUB_LIBRARY, 34, ENODEV, LOST)                    \
    X(CALL_REQUIRES_NEWER_DRIVER, 36, ENOTSUP, KEPT)     \
    X(DEVICE_UNAVAILABLE, 46, ENODEV, LOST)              \
    X(NO_DEVICE, 100, ENODEV, LOST)                      \
    X(INVALID_DEVICE, 101, EINVAL, KEPT)                 \
    X(DEVICE_NOT_LICENSED, 102, ENODEV, LOST)            \
    X(INVALID_IMAGE, 200, ENOTSUP, KEPT)                 \
    X(INVALID_CONTEXT, 201, ENODEV, LOST)                \
    X(NO_BINARY_FOR_GPU, 209, ENOTSUP, KEPT)             \
    X(ECC_UNCORRECTABLE, 214, ENODEV, LOST)              \
    X(INVALID_PTX, 218, ENOTSUP, KEPT)                   \
    X(NVLINK_UNCORRECTABLE, 220, ENODEV, LOST)           \
    X(JIT_COMPILER_NOT_FOUND, 221, ENOTSUP, KEPT)        \
    X(UNSUPPORTED_PTX_VERSION, 222, ENOTSUP, KEPT)       \
    X(JIT_COMPILATION_DISABLED, 223, ENOTSUP, KEPT)      \
    X(CONTAINED, 226, ENODEV, LOST)                      \
    X(OPERATING_SYSTEM, 304, EIO, KEPT)                  \
    X(INVALID_HANDLE, 400, EINVAL, KEPT)                 \
    X(ILLEGAL_STATE, 401, EINVAL, KEPT)                  \
    X(NOT_FOUND, 500, ENOENT, KEPT)                      \
    X(NOT_READY, 600, EBUSY, KEPT)                       \
    X(ILLEGAL_ADDRESS, 700, ENODEV, LOST)                \
    X(LAUNCH_OUT_OF_RESOURCES, 701, ENOMEM, KEPT)        \
    X(LAUNCH_TIMEOUT, 702, ENODEV, LOST)                 \
    X(CONTEXT_IS_DESTROYED, 709, ENODEV, LOST)           \
    X(ASSERT, 710, ENODEV, LOST)                         \
    X(HOST_MEMORY_ALREADY_REGISTERED, 712, EEXIST, KEPT) \
    X(HOST_MEMORY_NOT_REGISTERED, 713, EINVAL, KEPT)     \
    X(HARDWARE_STACK_ERROR, 714, ENODEV, LOST)           \
    X(ILLEGAL_INSTRUCTION, 715, ENODEV, LOST)            \
    X(MISALIGNED_ADDRESS, 716, ENODEV, LOST)             \
    X(INVALID_ADDRESS_SPACE, 717, ENODEV, LOST)          \
    X(INVALID_PC, 718, ENODEV, LOST)                     \
    X(LAUNCH_FAILED, 719, ENODEV, LOST)                  \
    X(TENSOR_MEMORY_LEAK, 721, ENODEV, LOST)             \
    X(NOT_PERMITTED, 800, EACCES, KEPT)                  \
    X(NOT_SUPPORTED, 801, ENOTSUP, KEPT)                 \
    X(SYSTEM_NOT_READY, 802, ENODEV, LOST)               \
    X(SYSTEM_DRIVER_MISMATCH, 803, ENODEV, LOST)         \
    X(COMPAT_NOT_SUPPORTED_ON_DEVICE, 804, ENODEV, LOST) \
    X(MPS_CONNECTION_FAILED, 805, ENODEV, LOST)          \
    X(MPS_RPC_FAILURE, 806, ENODEV, LOST)                \
    X(MPS_SERVER_NOT_READY, 807, ENODEV, LOST)           \
    X(MPS_CLIENT_TERMINATED, 810, ENODEV, LOST)          \
    X(STREAM_CAPTURE_UNSUPPORTED, 900, EBUSY, KEPT)      \
    X(STREAM_CAPTURE_INVALIDATED, 901, EBUSY, KEPT)      \
    X(STREAM_CAPTURE_MERGE, 902, EBUSY, KEPT)            \
    X(STREAM_CAPTURE_UNMATCHED, 903, EBUSY, KEPT)        \
    X(STREAM_CAPTURE_UNJOINED, 904, EBUSY, KEPT)         \
    X(STREAM_CAPTURE_ISOLATION, 905, EBUSY, KEPT)        \
    X(STREAM_CAPTURE_IMPLICIT, 906, EBUSY, KEPT)         \
    X(CAPTURED_EVENT, 907, EBUSY, KEPT)                  \
    X(STREAM_CAPTURE_WRONG_THREAD, 908, EBUSY, KEPT)     \
    X(EXTERNAL_DEVICE, 911, ENODEV, LOST)                \
    X(UNKNOWN, 999, EIO, KEPT)

enum vvi_cuda_result {
    VVI_CU_SUCCESS = 0,
#define X(name, code, err, lost) VVI_CU_##name = code,
    VVI_CUDA_ERRORS(X)
#undef X
};

/*
 * X(NEEDED or OPTIONAL, name, name of the library's symbol, version of the API, parameters). The
 * version is the first that has the function with these parameters. Optional ones may be NULL.
 */
#define VVI_CUDA_FUNCTIONS(X)                                                                      \
    X(NEEDED, cuInit, "cuInit", 2000, (unsigned int flags))                                        \
    X(NEEDED, cuDriverGetVersion, "cuDriverGetVersion", 2020, (int *version))                      \
    X(NEEDED, cuDeviceGet, "cuDeviceGet", 2000, (CUdevice * device, int ordinal))                  \
    X(NEEDED, cuDeviceGetCount, "cuDeviceGetCount", 2000, (int *count))                            \
    X(NEEDED, cuDeviceGetName, "cuDeviceGetName", 2000, (char *name, int bytes, CUdevice device))  \
    X(NEEDED, cuDeviceTotalMem, "cuDeviceTotalMem_v2", 3020, (size_t * bytes, CUdevice device))    \
    X(NEEDED, cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000,                                  \
      (int *value, unsigned int attribute, CUdevice device))                                       \
    X(NEEDED, cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", 4010,                                    \
      (char *id, int bytes, CUdevice device))                                                      \
    X(NEEDED, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000,                          \
      (CUcontext * ctx, CUdevice device))                                                          \
    X(NEEDED, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", 11000, (CUdevice device)) \
    X(NEEDED, cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", 7000,                      \
      (CUdevice device, unsigned int *flags, int *active))                                         \
    X(NEEDED, cuCtxGetCurrent, "cuCtxGetCurrent", 4000, (CUcontext * ctx))                         \
    X(NEEDED, cuCtxGetDevice, "cuCtxGetDevice", 2000, (CUdevice * device))                         \
    X(NEEDED, cuCtxPushCurrent, "cuCtxPushCurrent_v2", 4000, (CUcontext ctx))                      \
    X(NEEDED, cuCtxPopCurrent, "cuCtxPopCurrent_v2", 4000, (CUcontext * ctx))                      \
    X(OPTIONAL, cuCtxGetId, "cuCtxGetId", 12000, (CUcontext ctx, unsigned long long *id))          \
    X(OPTIONAL, cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010,     \
      (unsigned int *mode))                                                                        \
    X(NEEDED, cuMemAlloc, "cuMemAlloc_v2", 3020, (CUdeviceptr * ptr, size_t bytes))                \
    X(NEEDED, cuMemFree, "cuMemFree_v2", 3020, (CUdeviceptr ptr))                                  \
    X(NEEDED, cuMemGetInfo, "cuMemGetInfo_v2", 3020, (size_t * free_bytes, size_t * total))        \
    X(NEEDED, cuMemHostRegister, "cuMemHostRegister_v2", 6050,                                     \
      (void *ptr, size_t bytes, unsigned int flags))                                               \
    X(NEEDED, cuMemHostUnregister, "cuMemHostUnregister", 4000, (void *ptr))                       \
    X(NEEDED, cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", 3020,                     \
      (CUdeviceptr * at, void *ptr, unsigned int flags))                                           \
    X(NEEDED, cuPointerGetAttributes, "cuPointerGetAttributes", 7000,                              \
      (unsigned int count, unsigned int *attributes, void **values, CUdeviceptr ptr))              \
    X(NEEDED, cuMemcpyAsync, "cuMemcpyAsync", 4000,                                                \
      (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                           \
    X(OPTIONAL, cuMemcpyBatchAsync, "cuMemcpyBatchAsync_v2", 13000,                                \
      (CUdeviceptr * dst, CUdeviceptr * src, size_t * bytes, size_t count,                         \
       struct vvi_cu_copy_attributes * attributes, size_t * first, size_t attribute_count,         \
       CUstream stream))                                                                           \
    X(NEEDED, cuStreamCreate, "cuStreamCreate", 2000, (CUstream * stream, unsigned int flags))     \
    X(NEEDED, cuStreamDestroy, "cuStreamDestroy_v2", 4000, (CUstream stream))                      \
    X(NEEDED, cuStreamSynchronize, "cuStreamSynchronize", 2000, (CUstream stream))                 \
    X(NEEDED, cuStreamWaitEvent, "cuStreamWaitEvent", 3020,                                        \
      (CUstream stream, CUevent event, unsigned int flags))                                        \
    X(NEEDED, cuStreamIsCapturing, "cuStreamIsCapturing", 10000,                                   \
      (CUstream stream, unsigned int *status))                                                     \
    X(NEEDED, cuStreamGetCtx, "cuStreamGetCtx", 9020, (CUstream stream, CUcontext * ctx))          \
    X(OPTIONAL, cuStreamGetId, "cuStreamGetId", 12000, (CUstream stream, unsigned long long *id))  \
    X(NEEDED, cuEventCreate, "cuEventCreate", 2000, (CUevent * event, unsigned int flags))         \
    X(NEEDED, cuEventDestroy, "cuEventDestroy_v2", 4000, (CUevent event))                          \
    X(NEEDED, cuEventRecord, "cuEventRecord", 2000, (CUevent event, CUstream stream))              \
    X(NEEDED, cuEventQuery, "cuEventQuery", 2000, (CUevent event))                                 \
    X(OPTIONAL, cuEventElapsedTime, "cuEventElapsedTime", 2000,                                    \
      (float *ms, CUevent from, CUevent to))                                                       \
    X(OPTIONAL, cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010,                                    \
      (CUmodule * module, const void *image, unsigned int count, unsigned int *options,            \
       void **values))                                                                             \
    X(OPTIONAL, cuModuleUnload, "cuModuleUnload", 2000, (CUmodule module))                         \
    X(OPTIONAL, cuModuleGetFunction, "cuModuleGetFunction", 2000,                                  \
      (CUfunction * function, CUmodule module, const char *name))                                  \
    X(OPTIONAL, cuLaunchKernel, "cuLaunchKernel", 4000,                                            \
      (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,         \
       unsigned int block_x, unsigned int block_y, unsigned int block_z,                           \
       unsigned int shared_bytes, CUstream stream, void **parameters, void **extra))               \
    X(OPTIONAL, cuMemAllocManaged, "cuMemAllocManaged", 6000,                                      \
      (CUdeviceptr * ptr, size_t bytes, unsigned int flags))                                       \
    X(OPTIONAL, cuMemAdvise, "cuMemAdvise_v2", 12020,                                              \
      (CUdeviceptr ptr, size_t bytes, unsigned int advice, struct vvi_cu_location location))       \
    X(OPTIONAL, cuMemPrefetchAsync, "cuMemPrefetchAsync_v2", 12020,                                \
      (CUdeviceptr ptr, size_t bytes, struct vvi_cu_location location, unsigned int flags,         \
       CUstream stream))

/* The same for functions that later changed their parameters: X(member, name, symbol, version,
 * parameters). All optional. */
#define VVI_CUDA_OLD_FUNCTIONS(X)                                                          \
    X(cuMemcpyBatchAsync_v12080, "cuMemcpyBatchAsync", "cuMemcpyBatchAsync", 12080,        \
      (CUdeviceptr * dst, CUdeviceptr * src, size_t * bytes, size_t count,                 \
       struct vvi_cu_copy_attributes * attributes, size_t * first, size_t attribute_count, \
       size_t * failed, CUstream stream))

struct vvi_cuda_driver {
    void *lib;
    int version; /* 13000: 13.0 */
#define X(need, name, symbol, since, params) unsigned int(*name) params;
    VVI_CUDA_FUNCTIONS(X)
#undef X
#define X(name, base, symbol, since, params) unsigned int(*name) params;
    VVI_CUDA_OLD_FUNCTIONS(X)
#undef X
};

/* The oldest driver that opening accepts; older ones lack functions that it needs. */
#define VVI_CUDA_VERSION_MIN 11000

/*
 * Loads the library (NULL: libcuda.so.1), finds the functions and initialises CUDA. A failure leaves a text in `err`
 * with the reason. -ENODEV: no driver, or it sees no device; -ENOTSUP: it is too old. `ret_code`: the driver's code
 * behind it, or 0; written on failure too.
 */
VV_WARN_UNUSED int vvi_cuda_driver_load(const char *library, char *err, size_t err_bytes,
                                        unsigned int *ret_code, struct vvi_cuda_driver *ret_driver);
/* The library stays in the process: it has threads of its own. */
void vvi_cuda_driver_unload(struct vvi_cuda_driver *driver);

/* The negative errno of a result, 0 for success; `ret_lost` is set if the context is gone. */
int vvi_cuda_errno(unsigned int code, bool *ret_lost);
/* "CUDA_ERROR_OUT_OF_MEMORY", constant; "" for success. */
const char *vvi_cuda_error_name(unsigned int code);

#endif
