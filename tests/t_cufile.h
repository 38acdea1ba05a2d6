/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of GPUDirect Storage: the stand-in for libcufile (controlled as fake/libcufile.h
 * describes). */
#ifndef T_CUFILE_H
#define T_CUFILE_H

#include "fake/libcufile.h"

/* Path of the stand-in. The text is valid until exit. */
const char *t_cufile_path(void);

/* Loads it into the process, where the library then finds it by its name. Skips the test if it was not built, and
 * with VARVE_TEST_DEVICE=cuda on a GPU, whose memory it cannot reach. */
struct fake_cufile *t_cufile_load(void);

/* Resets its settings and counters. */
void t_cufile_reset(void);

/* Checks that nothing is registered with it any more, and that no call was misuse. */
void t_cufile_check(void);

#endif
