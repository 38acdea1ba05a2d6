/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launching the kernels of `varve bench gpufile`. On a GPU they come from the fatbin in the binary and
 * are launched with the driver's own calls, in the context that the CUDA backend uses; the library cannot launch
 * an application's kernels. An application does the same as this file.
 */
#define VARVE_EMULATE 1
#include "lab/gpufile/gf_launch.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "lab/gpufile/gf_kernels.h"

/* CUdevice_attribute */
#define MULTIPROCESSORS 16

struct driver {
    void *lib;
    unsigned (*load)(void **ret_module, const void *image);
    unsigned (*unload)(void *module);
    unsigned (*function)(void **ret_function, void *module, const char *name);
    unsigned (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
                       void **extra);
    unsigned (*stream_new)(void **ret_stream, unsigned flags);
    unsigned (*stream_free)(void *stream);
    unsigned (*stream_sync)(void *stream);
    unsigned (*current)(int *ret_device);
    unsigned (*attribute)(int *ret_value, int attribute, int device);
};

struct gf_gpu {
    struct vv_device *device;
    bool emulated;
    unsigned processors;
    struct driver cu;
    void *module, *stream;
    void *functions[GF_KERNEL_NR];
};

#ifdef GF_HAVE_KERNELS
extern const unsigned char gf_fatbin[];
static const unsigned char *const fatbin = gf_fatbin;
#else
static const unsigned char *const fatbin = NULL;
#endif

static const char *const names[] = {
#define GF_NAME(name) "gf_" #name,
    GF_KERNELS(GF_NAME)
#undef GF_NAME
};

/* ---- in threads ---- */

#define GF_EMULATED(name)                              \
    static void emulated_##name(void *arg)             \
    {                                                  \
        gf_kernel_##name((const struct gf_args *)arg); \
    }
GF_KERNELS(GF_EMULATED)
#undef GF_EMULATED

static void (*const emulated[])(void *arg) = {
#define GF_FUNCTION(name) emulated_##name,
    GF_KERNELS(GF_FUNCTION)
#undef GF_FUNCTION
};

/* ---- on a GPU ---- */

static int find_functions(struct driver *d, char *err, size_t err_bytes)
{
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"cuModuleLoadData", &d->load},           {"cuModuleUnload", &d->unload},
        {"cuModuleGetFunction", &d->function},    {"cuLaunchKernel", &d->launch},
        {"cuStreamCreate", &d->stream_new},       {"cuStreamDestroy_v2", &d->stream_free},
        {"cuStreamSynchronize", &d->stream_sync}, {"cuCtxGetDevice", &d->current},
        {"cuDeviceGetAttribute", &d->attribute},
    };

    d->lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; d->lib && i < VV_ARRAY_SIZE(wanted); i++) {
        void *p = dlsym(d->lib, wanted[i].name);

        if (!p) {
            snprintf(err, err_bytes, "the driver has no %s", wanted[i].name);
            return -ENOTSUP;
        }
        *(void **)wanted[i].function = p;
    }
    if (!d->lib)
        snprintf(err, err_bytes, "no libcuda.so.1");
    return d->lib ? 0 : -ENOTSUP;
}

static int load(struct gf_gpu *g, char *err, size_t err_bytes)
{
    unsigned code;
    int device = 0, processors = 0;

    if (!fatbin) {
        snprintf(err, err_bytes, "built without nvcc: there are no kernels for a GPU");
        return -ENOTSUP;
    }
    if (find_functions(&g->cu, err, err_bytes) < 0)
        return -ENOTSUP;
    code = g->cu.load(&g->module, fatbin);
    for (int i = 0; code == 0 && i < GF_KERNEL_NR; i++)
        code = g->cu.function(&g->functions[i], g->module, names[i]);
    if (code == 0)
        code = g->cu.stream_new(&g->stream, 1); /* not ordered after the default stream */
    if (code == 0)
        code = g->cu.current(&device);
    if (code == 0)
        code = g->cu.attribute(&processors, MULTIPROCESSORS, device);
    if (code) {
        snprintf(err, err_bytes, "the driver does not take the kernels: error %u", code);
        return -ENOTSUP;
    }
    g->processors = (unsigned)processors;
    return 0;
}

int gf_gpu_new(struct vv_device *device, bool is_emulated, char *err, size_t err_bytes,
               struct gf_gpu **ret_gpu)
{
    struct gf_gpu *g = calloc(1, sizeof(*g));
    int rc = 0;

    if (!g) {
        snprintf(err, err_bytes, "out of memory");
        return -ENOMEM;
    }
    g->device = device;
    g->emulated = is_emulated;
    g->processors = 2;
    if (!is_emulated) {
        rc = vv_device_enter(device);
        if (rc) {
            snprintf(err, err_bytes, "the device cannot be used");
        } else {
            rc = load(g, err, err_bytes);
            vv_device_leave(device);
        }
    }
    if (rc) {
        gf_gpu_free(g);
        return rc;
    }
    *ret_gpu = g;
    return 0;
}

void gf_gpu_free(struct gf_gpu *g)
{
    if (g && g->module && vv_device_enter(g->device) == 0) {
        if (g->stream)
            (void)g->cu.stream_free(g->stream);
        (void)g->cu.unload(g->module);
        vv_device_leave(g->device);
    }
    free(g);
}

unsigned gf_gpu_processors(const struct gf_gpu *gpu)
{
    return gpu->processors;
}

int gf_gpu_launch(struct gf_gpu *g, enum gf_kernel kernel, unsigned blocks, unsigned threads,
                  const struct gf_args *args)
{
    struct gf_args copy = *args;
    void *params[] = {&copy};
    unsigned code;
    int rc;

    if (g->emulated)
        return varve_emu_launch(blocks, threads, 0, args->seed, emulated[kernel], &copy);
    rc = vv_device_enter(g->device);
    if (rc)
        return rc;
    code =
        g->cu.launch(g->functions[kernel], blocks, 1, 1, threads, 1, 1, 0, g->stream, params, NULL);
    vv_device_leave(g->device);
    return code ? -EIO : 0;
}

int gf_gpu_sync(struct gf_gpu *g)
{
    unsigned code;
    int rc;

    if (g->emulated)
        return 0;
    rc = vv_device_enter(g->device);
    if (rc)
        return rc;
    code = g->cu.stream_sync(g->stream);
    vv_device_leave(g->device);
    return code ? -EIO : 0;
}
