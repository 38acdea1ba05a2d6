/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests that need a CUDA driver: the place of the stand-in, and its control functions (described in
 * fake/cuda/fake.h). VARVE_TEST_DEVICE=cuda makes tests of everything above the devices use device=cuda instead of the
 * emulated device; the dynamic linker then decides if that is the stand-in or a GPU.
 */
#ifndef T_CUDA_H
#define T_CUDA_H

#include <stdbool.h>

#include "fake/cuda/fake.h"

struct t_fake {
    fake_cuda_set_fn *set;
    fake_cuda_fail_fn *fail;
    fake_cuda_fail_async_fn *fail_async;
    fake_cuda_lose_fn *lose;
    fake_cuda_heal_fn *heal;
    fake_cuda_calls_fn *calls;
    fake_cuda_live_fn *live;
    fake_cuda_map_fn *map;
};

/* Path of the stand-in, of the new or the old driver; skips the test if it was not built. The text is valid
 * until exit. */
const char *t_fake_path(bool old);

/* Loads the stand-in (a path, or a name that the dynamic linker looks up) into the process. False: the library
 * is a real driver, or there is none; the handle, if any, is kept anyway. */
bool t_fake_load(const char *library, void **ret_handle, struct t_fake *ret_fake);

/* True if VARVE_TEST_DEVICE is "cuda". */
bool t_device_is_cuda(void);

#endif
