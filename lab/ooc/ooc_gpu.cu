/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve bench blocks` on a GPU: the launcher, and a main that takes the same options. `--present` alone asks whether
 * there is a GPU: exit status 0, or 77.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lab/ooc/ooc_command.h"
#include "lab/ooc/ooc_kernels.h"

enum { THREADS = 256 };

static int check(void)
{
    return cudaFree(NULL) == cudaSuccess ? 0 : -ENODEV;
}

__global__ static void wave_kernel(struct varve_blocks_view view, struct ooc_wave_args args)
{
    ooc_wave_kernel(&view, &args);
}

static int wave(struct varve_ctx *, const struct ooc_wave_args *args,
                const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    wave_kernel<<<(view->items + THREADS - 1) / THREADS, THREADS, 0, stream>>>(*view, *args);
    return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

__global__ static void survey_kernel(struct varve_tables_view view, struct ooc_survey_args args)
{
    ooc_survey_kernel(&view, &args);
}

static int survey(struct varve_ctx *, const struct ooc_survey_args *args,
                  const struct varve_tables_view *view, struct CUstream_st *stream)
{
    survey_kernel<<<view->items, THREADS, 0, stream>>>(*view, *args);
    return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

__global__ static void plain_kernel(struct ooc_survey_args args)
{
    ooc_plain_kernel(&args);
}

static int plain(struct varve_ctx *, const struct ooc_survey_args *args, struct CUstream_st *stream)
{
    plain_kernel<<<args->to - args->from, THREADS, 0, stream>>>(*args);
    return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

/* Bytes of host memory that can still be had; 0: not known. */
static uint64_t host_left(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    unsigned long long kib = 0;
    char line[128];

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

/* The pages are on the host when the clock starts: there has to be room for them beside the data. */
static int managed_new(const void *from, uint64_t bytes, void **ret_ptr)
{
#if CUDART_VERSION >= 13000
    cudaMemLocation gpu = {cudaMemLocationTypeDevice, 0};
#else
    int gpu = 0;
#endif
    size_t left, total;
    void *p;

    if (cudaMemGetInfo(&left, &total) != cudaSuccess)
        return -EIO;
    if (bytes > left || bytes > host_left() / 10 * 9)
        return -ENOSPC;
    if (cudaMallocManaged(&p, bytes) != cudaSuccess)
        return -ENOMEM;
    memcpy(p, from, bytes);
    if (cudaMemAdvise(p, bytes, cudaMemAdviseSetReadMostly, gpu) != cudaSuccess) {
        cudaFree(p);
        return -EIO;
    }
    *ret_ptr = p;
    return 0;
}

static void managed_free(void *ptr)
{
    cudaFree(ptr);
}

int main(int argc, char **argv)
{
    static const struct ooc_launcher cuda = {VARVE_DEVICE_CUDA, check,       wave, survey, plain,
                                             managed_new,       managed_free};
    struct ooc_options options;
    int status;

    if (argc == 2 && strcmp(argv[1], "--present") == 0)
        return check() ? 77 : 0;
    status = ooc_parse(argc, argv, false, &options);
    if (status >= 0)
        return status;
    return ooc_command(&options, &cuda);
}
