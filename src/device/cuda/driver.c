/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's library: loading it, and the meaning of its results.
 *
 * Functions whose parameters changed over time exist in several versions under one name. cuGetProcAddress returns the
 * version that the list in driver.h names, whatever the library's symbol is; in drivers that are too old to have
 * cuGetProcAddress, the symbol is looked up. Per-thread default streams are never requested: a NULL stream is the
 * legacy one.
 *
 * Any thread; only the dynamic linker's state is shared. The library is opened such that it stays mapped: the driver
 * has threads and exit handlers of its own, and the application may use it too.
 */
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

static const struct error {
    unsigned int code;
    int err;
    bool lost;
    const char *name;
} errors[] = {
#define KEPT                     false
#define LOST                     true
#define X(name, code, err, lost) {code, -err, lost, "CUDA_ERROR_" #name},
    VVI_CUDA_ERRORS(X)
#undef X
#undef KEPT
#undef LOST
};

static const struct error *find_error(unsigned int code)
{
    for (size_t i = 0; i < VV_ARRAY_SIZE(errors); i++) {
        if (errors[i].code == code)
            return &errors[i];
    }
    return NULL;
}

int vvi_cuda_errno(unsigned int code, bool *ret_lost)
{
    const struct error *e = find_error(code);

    *ret_lost = e && e->lost;
    if (code == VVI_CU_SUCCESS)
        return 0;
    return e ? e->err : -EIO;
}

const char *vvi_cuda_error_name(unsigned int code)
{
    const struct error *e = find_error(code);

    if (code == VVI_CU_SUCCESS)
        return "";
    return e ? e->name : "a CUDA error without a name here";
}

typedef unsigned int (*get_proc_fn)(const char *name, void **fn, int version, uint64_t flags,
                                    unsigned int *status);

/* Conversion of a data pointer to a function pointer, which only POSIX defines. */
static void set_function(void *member, void *fn)
{
    *(void **)member = fn;
}

static void find_function(void *lib, get_proc_fn get_proc, const char *name, const char *symbol,
                          int version, void *member)
{
    unsigned int found = 0;
    void *fn = NULL;

    if (get_proc && get_proc(name, &fn, version, VVI_CU_PROC_LEGACY_STREAM, &found) != 0)
        fn = NULL;
    set_function(member, fn ? fn : dlsym(lib, symbol));
}

/* The name of a needed function that is missing, or NULL. */
static const char *find_functions(struct vvi_cuda_driver *d)
{
    const char *missing = NULL;
    get_proc_fn get_proc = NULL;

    set_function(&get_proc, dlsym(d->lib, "cuGetProcAddress_v2"));
#define NEEDED   true
#define OPTIONAL false
#define X(need, name, symbol, since, params)                         \
    find_function(d->lib, get_proc, #name, symbol, since, &d->name); \
    if ((need) && !d->name && !missing)                              \
        missing = #name;
    VVI_CUDA_FUNCTIONS(X)
#undef X
#undef NEEDED
#undef OPTIONAL
#define X(name, base, symbol, since, params) \
    find_function(d->lib, get_proc, base, symbol, since, &d->name);
    VVI_CUDA_OLD_FUNCTIONS(X)
#undef X
    return missing;
}

static int check_version(struct vvi_cuda_driver *d, const char *missing, char *err,
                         size_t err_bytes)
{
    if (d->cuDriverGetVersion)
        (void)d->cuDriverGetVersion(&d->version);
    if (!missing && d->version >= VVI_CUDA_VERSION_MIN)
        return 0;
    snprintf(err, err_bytes,
             "the NVIDIA driver is too old: it has CUDA %d.%d, %d.%d or newer is needed%s%s",
             d->version / 1000, d->version % 1000 / 10, VVI_CUDA_VERSION_MIN / 1000,
             VVI_CUDA_VERSION_MIN % 1000 / 10, missing ? "; it lacks " : "",
             missing ? missing : "");
    return -ENOTSUP;
}

static int init(const struct vvi_cuda_driver *d, char *err, size_t err_bytes,
                unsigned int *ret_code)
{
    unsigned int code = d->cuInit(0);
    bool lost;
    int rc = vvi_cuda_errno(code, &lost);

    if (code == VVI_CU_NO_DEVICE)
        snprintf(err, err_bytes,
                 "the NVIDIA driver sees no GPU (%s): there is none, or CUDA_VISIBLE_DEVICES or "
                 "the container hides it",
                 vvi_cuda_error_name(code));
    else if (code == VVI_CU_STUB_LIBRARY)
        snprintf(err, err_bytes,
                 "libcuda.so.1 is the toolkit's library for linking, not a driver (%s)",
                 vvi_cuda_error_name(code));
    else if (rc)
        snprintf(err, err_bytes, "CUDA cannot be initialised: %s (%u)", vvi_cuda_error_name(code),
                 code);
    *ret_code = code;
    return rc;
}

int vvi_cuda_driver_load(const char *library, char *err, size_t err_bytes, unsigned int *ret_code,
                         struct vvi_cuda_driver *ret_driver)
{
    struct vvi_cuda_driver d = {0};
    int rc;

    *ret_code = VVI_CU_SUCCESS;
    d.lib = dlopen(library ? library : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!d.lib) {
        const char *why = dlerror();

        snprintf(err, err_bytes, "no NVIDIA driver: %s",
                 why ? why : "the library cannot be loaded");
        return -ENODEV;
    }
    rc = check_version(&d, find_functions(&d), err, err_bytes);
    if (!rc)
        rc = init(&d, err, err_bytes, ret_code);
    if (rc) {
        vvi_cuda_driver_unload(&d);
        return rc;
    }
    *ret_driver = d;
    return 0;
}

void vvi_cuda_driver_unload(struct vvi_cuda_driver *driver)
{
    if (driver->lib)
        (void)dlclose(driver->lib);
    driver->lib = NULL;
}
