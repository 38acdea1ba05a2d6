/* SPDX-License-Identifier: Apache-2.0 */
/* How one thread copies: kept apart from who copies what (copy.h), for tests and measurements. */
#ifndef VV_BASE_COPY_KERNELS_H
#define VV_BASE_COPY_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

enum vv_copy_kernel {
    VV_COPY_PLAIN,  /* memcpy: ordinary stores, until the C library finds the copy large */
    VV_COPY_AVX2,   /* streaming stores, 32 bytes each: past the caches */
    VV_COPY_AVX512, /* the same, 64 bytes each */
    VV_COPY_KERNELS,
};

const char *vv_copy_kernel_name(enum vv_copy_kernel kernel);
/* Can it be used here? By compiler, processor and operating system. */
bool vv_copy_kernel_usable(enum vv_copy_kernel kernel);
/* The fastest usable one with streaming stores; VV_COPY_PLAIN where there is none, and under
 * sanitizers, which do not see them. Found once. */
enum vv_copy_kernel vv_copy_kernel_best(void);

/* Copies with a usable kernel. When it returns, the bytes are ordered before later stores of the
 * thread, whatever the kernel. The ranges must not overlap. */
void vv_copy_with(enum vv_copy_kernel kernel, void *dst, const void *src, size_t n);

#endif
