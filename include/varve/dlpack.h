/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lent regions as DLPack tensors: what varve_acquire lends, in the form in which NumPy, CuPy, JAX
 * and PyTorch take memory of other libraries without a copy. The tensor's deleter is a function of
 * this library, so that it may run in any thread and at any time up to the end of the process.
 *
 * Tensors are struct DLManagedTensor of DLPack before its version 1.0, which all of these take;
 * here they are `void *`, so that this header needs no other one.
 */
#ifndef VARVE_DLPACK_H
#define VARVE_DLPACK_H

#include <stddef.h>
#include <stdint.h>

#include <varve/ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Type and shape of a tensor, in the words of DLPack. */
struct varve_dlpack_type {
    uint8_t code;   /* DLDataTypeCode: 0 int, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool */
    uint8_t bits;   /* of an element */
    uint16_t lanes; /* 1, or elements of a vector type */
    int32_t ndim;   /* dimensions, 0 to 64 */
    const int64_t *shape; /* so many; row by row, the last one contiguous */
};

/*
 * Acquires a region as varve_acquire_for does, and stores it as a DLManagedTensor: host memory as
 * kDLCPU (that of the emulated device is host memory), device memory as kDLCUDA. Nothing may write
 * to it. Its deleter releases the region as varve_release does, on the same stream. Until then the
 * history and the context stay open: closing them is refused with -EBUSY. In a forked child the
 * deleter frees the structure and leaves the region to the parent.
 *   -EINVAL   no such type or shape, or it needs more or fewer bytes than the region has
 *   -ENOMEM
 * and those of varve_acquire.
 */
VARVE_API int varve_acquire_dlpack(struct varve_history *h, uint64_t version, int region,
                                   struct CUstream_st *stream, int timeout_ms,
                                   const struct varve_dlpack_type *type,
                                   void **ret_tensor) VARVE_CHECK;
/*
 * One more tensor for the memory of one that varve_acquire_dlpack made and whose deleter was not
 * called yet, of the same type and shape. The region is released with the last of them. -ENOMEM;
 * -EINVAL: NULL. Does not block.
 */
VARVE_API int varve_dlpack_share(void *tensor, void **ret_tensor) VARVE_CHECK;
/* Calls a tensor's own deleter; NULL is allowed. */
VARVE_API void varve_dlpack_delete(void *tensor);

#ifdef __cplusplus
}
#endif

#endif
