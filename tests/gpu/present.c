/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the first GPU. scripts/gpu-test runs it first: status 77 and a reason if there is none. */
#include <stdio.h>

#include "device/cuda/cuda.h"
#include "t.h"

enum { MAX = 16 };

static struct vv_device_cuda_gpu gpu[MAX];
static struct vv_device_cuda_report report;

static void first_gpu_opens(void)
{
    struct vv_device *d;
    struct vv_device_info info;
    char err[256] = "";
    if (vv_device_open_cuda(NULL, err, sizeof(err), &d))
        t_fail(__FILE__, __LINE__, "the first GPU cannot be opened: %s", err);
    vv_device_describe(d, &info);
    printf("driver %d.%d, kernels %s\n", report.driver_version / 1000,
           report.driver_version % 1000 / 10, info.kernels ? "built" : "not built");
    vv_device_close(d);
}

int main(void)
{
    char err[256] = "";
    if (vv_device_cuda_list(NULL, err, sizeof(err), gpu, MAX, &report))
        T_SKIP("%s", err);
    for (int i = 0; i < report.count && i < MAX; i++)
        printf("GPU %d: %s, %s, %.1f GiB, capability %d.%d\n", i, gpu[i].name, gpu[i].pci_bus_id,
               (double)gpu[i].memory_bytes / (1 << 30), gpu[i].capability_major,
               gpu[i].capability_minor);
    T_RUN(first_gpu_opens);
    return t_done();
}
