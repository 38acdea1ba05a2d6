/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launching the kernels of lab/gpufile/gf_kernels.h: on a GPU, from the fatbin that is part of the binary
 * where an nvcc built it, and in threads on the emulated device. One thread uses a launcher.
 */
#ifndef LAB_GPUFILE_GF_LAUNCH_H
#define LAB_GPUFILE_GF_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"
#include "device/device.h"

struct gf_args;

/* Every kernel, by the name it has in gf_kernels.h: those in which blocks of 512 threads work, and
 * those in which warps read for themselves, in blocks of 256 threads, so that three blocks fit a
 * multiprocessor. */
/* clang-format off */
#define GF_WARP_KERNELS(X) X(read_warp) X(records) X(pull) X(takes)
#define GF_BLOCK_KERNELS(X)                                                                 \
    X(read) X(check) X(check_records) X(sum) X(fill) X(copy) X(hotspot) X(2dconv) X(3dconv) \
    X(stencil) X(dwt2d) X(rows) X(cols) X(forward) X(adjust) X(bfs_start) X(bfs_step) X(nw) \
    X(pathfinder) X(path_start) X(lud_corner) X(lud_edges) X(lud_inner)
/* clang-format on */
#define GF_KERNELS(X) GF_WARP_KERNELS(X) GF_BLOCK_KERNELS(X)

enum gf_kernel {
#define GF_ENUM(name) GF_K_##name,
    GF_KERNELS(GF_ENUM)
#undef GF_ENUM
        GF_KERNEL_NR
};

struct gf_gpu;

/* `device` is the emulated one, or the CUDA backend's; the caller owns it, and it outlives the launcher. -ENOTSUP:
 * the binary was built without nvcc, or the driver cannot; a line in `err`. */
VV_WARN_UNUSED int gf_gpu_new(struct vv_device *device, bool emulated, char *err, size_t err_bytes,
                              struct gf_gpu **ret_gpu);
/* Accepts NULL. */
void gf_gpu_free(struct gf_gpu *gpu);

/* Multiprocessors; 2 where they are emulated. */
unsigned gf_gpu_processors(const struct gf_gpu *gpu);

/* Starts a kernel after those before it. On the emulated device it has ended when this returns. */
VV_WARN_UNUSED int gf_gpu_launch(struct gf_gpu *gpu, enum gf_kernel kernel, unsigned blocks,
                                 unsigned threads, const struct gf_args *args);
/* Waits for all kernels. -EIO: one has failed. */
VV_WARN_UNUSED int gf_gpu_sync(struct gf_gpu *gpu);

#endif
