/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels on the emulated device, in their place on the stream: for programs whose kernels compile as
 * C as well (<varve/detail/device_dual.h>), so that they run and can be tested where there is no GPU.
 *
 * Functions such as varve_blocks_run ask the application to launch a kernel on a stream. The kernel begins
 * when all work that was put on the stream before has ended. varve_emulate is the launch:
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
 * Puts a kernel on a stream of the emulated device and returns at once: kernel(arg) is called on a
 * thread of the device when its turn has come. It must not call the library, and `arg` stays valid
 * until it has ended. The stream is one that a function of the library has asked to launch on, or NULL, the
 * legacy default one. Kernels of different streams begin in the order in which their turns come, and run one
 * after another.
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
