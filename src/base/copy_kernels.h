/* SPDX-License-Identifier: Apache-2.0 */
/* Copies by one thread. Separate from the distribution of work (copy.h), for tests and measurements. */
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
/* True if compiler, processor and operating system support the kernel. */
bool vv_copy_kernel_usable(enum vv_copy_kernel kernel);
/* The fastest usable kernel with streaming stores; VV_COPY_PLAIN if there is none, and under sanitizers, which
 * do not see such stores. The choice is made once. */
enum vv_copy_kernel vv_copy_kernel_best(void);

/* Copies with a usable kernel. When it returns, the bytes are ordered before later stores of the thread,
 * with every kernel. The ranges must not overlap. */
void vv_copy_with(enum vv_copy_kernel kernel, void *dst, const void *src, size_t n);

#endif
