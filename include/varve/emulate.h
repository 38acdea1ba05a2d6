/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels on the emulated device, in stream order: for programs whose kernels also compile as C
 * (<varve/detail/device_dual.h>), so that they run and can be tested without a GPU.
 *
 * Functions such as varve_blocks_run call the application to launch a kernel on a stream. The kernel begins
 * when all earlier work of the stream has ended. varve_emulate launches it:
 *
 *     static void gather(void *arg) { ... one thread of the kernel ... }
 *     static void grid(void *arg) { (void)varve_emu_launch(64, 8, 2, 1, gather, arg); }
 *
 *     varve_emulate(ctx, grid, arg, stream);
 */
#ifndef VARVE_EMULATE_H
#define VARVE_EMULATE_H

#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Puts a kernel on a stream of the emulated device and returns at once. kernel(arg) is called on a thread
 * of the device when the earlier work of the stream has ended. It must not call the library, and `arg`
 * stays valid until it has ended. The stream is one that the library passed to the application for a
 * launch, or NULL, the legacy default stream. Kernels run one at a time, those of different streams in the
 * order in which they become ready.
 *   -EINVAL   no context, no kernel, or a stream that the device does not have
 *   -ENODEV   the context has no device, or it is lost
 *   -ENOTSUP  its device is a real one
 *   -ENOMEM
 */
VARVE_API int varve_emulate(struct varve_ctx *ctx, void (*kernel)(void *arg), void *arg,
                            struct CUstream_st *stream) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
