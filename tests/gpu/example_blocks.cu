/* SPDX-License-Identifier: Apache-2.0 */
/* The example on a GPU: it checks its sums itself. */
#define main example_main
#include "../../examples/blocks.cu"
#undef main

extern "C" {
#include "t.h"
}

static void sums_are_right(void)
{
    T_EQ(example_main(), 0);
}

int main(void)
{
    int count = 0;
    cudaError_t rc = cudaGetDeviceCount(&count);

    if (rc != cudaSuccess || count == 0)
        T_SKIP("no GPU: %s", cudaGetErrorString(rc));
    T_RUN(sums_are_right);
    return t_done();
}
