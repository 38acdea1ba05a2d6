/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of GPUDirect Storage: the stand-in for libcufile (fake/libcufile.h says how to steer
 * it). */
#ifndef T_CUFILE_H
#define T_CUFILE_H

#include "fake/libcufile.h"

/* The stand-in's path. The text lives until exit. */
const char *t_cufile_path(void);

/* Loads it into the process, where the library then finds it by its name. Skips the test where it
 * was not built, and with VARVE_TEST_DEVICE=cuda on a GPU, whose memory it cannot reach. */
struct fake_cufile *t_cufile_load(void);

/* Forgets what it was told and has counted. */
void t_cufile_reset(void);

/* Nothing is registered with it any more, and nothing was misused. */
void t_cufile_check(void);

#endif
