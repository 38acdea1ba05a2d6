/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables that do not fit the GPU's cache, in an order of work that is known: tables.c, on a GPU.
 *
 *     nvcc -arch=sm_90 tables.cu $(pkg-config --cflags --libs varve) -o tables && ./tables
 */
#include "tables.c"
