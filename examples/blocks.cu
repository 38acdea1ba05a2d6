/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A field that does not fit the GPU's cache, read by kernels that request its blocks: blocks.c on a GPU.
 *
 *     nvcc -arch=sm_90 blocks.cu $(pkg-config --cflags --libs varve) -o blocks && ./blocks
 */
#include "blocks.c"
