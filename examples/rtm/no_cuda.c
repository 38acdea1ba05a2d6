/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces prop_cuda.cu if there is no nvcc. */
#include <errno.h>

#include "rtm.h"

int rtm_prop_cuda_new(const struct rtm_setup *setup, struct rtm_prop **ret_prop)
{
    (void)setup;
    (void)ret_prop;
    return rtm_error(-ENOTSUP,
                     "this program was built without nvcc and has no kernels for a GPU: leave "
                     "out --device cuda, or build it where CUDA is installed");
}
