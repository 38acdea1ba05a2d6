/* SPDX-License-Identifier: Apache-2.0 */
#include "t_cufile.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "t.h"
#include "t_cuda.h"

static struct fake_cufile *fake;
static struct t_fake cuda;

const char *t_cufile_path(void)
{
    static char path[4096];
    const char *build = getenv("BUILD_DIR");
    snprintf(path, sizeof(path), "%s/fake/cufile/libcufile.so.0", build ? build : ".");
    return path;
}

/* Device memory of the stand-in for the CUDA driver. */
static void *map_cuda(void *arg, void *ptr)
{
    (void)arg;
    return cuda.map(ptr);
}

struct fake_cufile *t_cufile_load(void)
{
    void *lib = dlopen(t_cufile_path(), RTLD_NOW | RTLD_LOCAL), *driver;
    if (!lib)
        T_SKIP("no stand-in for libcufile: %s", dlerror());
    if (t_device_is_cuda() && !t_fake_load("libcuda.so.1", &driver, &cuda))
        T_SKIP("the stand-in for libcufile cannot reach the memory of a GPU");
    void *symbol = dlsym(lib, "fake_cufile");
    fake_cufile_fn *find;
    T_CHECK(symbol);
    memcpy(&find, &symbol, sizeof(find));
    fake = find();
    t_cufile_reset();
    return fake;
}

void t_cufile_reset(void)
{
    memset(fake, 0, sizeof(*fake));
    if (t_device_is_cuda())
        fake->map = map_cuda;
}

void t_cufile_check(void)
{
    if (fake->misuse > 0)
        t_note("%s", fake->what);
    T_EQ(fake->misuse, 0);
    T_EQ(fake->drivers, 0);
    T_EQ(fake->handles, 0);
    T_EQ(fake->bufs, 0);
}
