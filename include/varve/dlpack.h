/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lent regions as DLPack tensors: the memory that varve_acquire lends, in the form in which NumPy, CuPy,
 * JAX and PyTorch import memory of other libraries without a copy. The tensor's deleter is a function of
 * this library and may run in any thread, at any time up to the end of the process.
 *
 * Tensors are struct DLManagedTensor of DLPack before version 1.0, which all of these libraries accept.
 * They are declared `void *` so that this header needs no other one.
 */
#ifndef VARVE_DLPACK_H
#define VARVE_DLPACK_H

#include <stddef.h>
#include <stdint.h>

#include <varve/ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Type and shape of a tensor, in DLPack's terms. */
struct varve_dlpack_type {
    uint8_t code;   /* DLDataTypeCode: 0 int, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool */
    uint8_t bits;   /* of an element */
    uint16_t lanes; /* 1, or elements of a vector type */
    int32_t ndim;   /* dimensions, 0 to 64 */
    const int64_t *shape; /* ndim sizes, in row-major order: the last dimension is contiguous */
};

/*
 * Acquires a region as varve_acquire_for does, and returns it as a DLManagedTensor: host memory,
 * including that of the emulated device, as kDLCPU, device memory as kDLCUDA. The memory is read-only.
 * The tensor's deleter releases the region as varve_release does, on the same stream. Until then,
 * closing the history or the context returns -EBUSY. In a forked child the deleter frees the structure
 * and leaves the region to the parent.
 *   -EINVAL   invalid type or shape, or its size is not that of the region
 *   -ENOMEM
 * and those of varve_acquire.
 */
VARVE_API int varve_acquire_dlpack(struct varve_history *h, uint64_t version, int region,
                                   struct CUstream_st *stream, int timeout_ms,
                                   const struct varve_dlpack_type *type,
                                   void **ret_tensor) VARVE_CHECK;
/*
 * Makes another tensor for the same memory, type and shape. `tensor` comes from varve_acquire_dlpack,
 * and its deleter was not called yet. The region is released with the last of its tensors. -ENOMEM;
 * -EINVAL: NULL. Does not block.
 */
VARVE_API int varve_dlpack_share(void *tensor, void **ret_tensor) VARVE_CHECK;
/* Calls a tensor's own deleter; NULL is allowed. */
VARVE_API void varve_dlpack_delete(void *tensor);

#ifdef __cplusplus
}
#endif

#endif
