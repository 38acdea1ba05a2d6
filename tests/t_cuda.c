/* SPDX-License-Identifier: Apache-2.0 */
#include "t_cuda.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "t.h"

/* The folder of the build: ctest sets it; a test run by hand is in its tests/. */
static const char *build_dir(void)
{
    static char dir[PATH_MAX];
    const char *set = getenv("BUILD_DIR");
    if (set)
        return set;
    ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
    dir[n > 0 ? n : 0] = '\0';
    char *tests = strstr(dir, "/tests/");
    for (char *next = tests; next; next = strstr(next + 1, "/tests/"))
        tests = next;
    if (tests)
        *tests = '\0';
    return dir;
}

const char *t_fake_path(bool old)
{
    static char path[2][PATH_MAX + 64];
    snprintf(path[old], sizeof(path[old]), "%s/fake/%slibcuda.so.1", build_dir(),
             old ? "old/" : "");
    if (access(path[old], R_OK) != 0)
        T_SKIP("no stand-in for the driver: %s", path[old]);
    return path[old];
}

bool t_fake_load(const char *library, void **ret_handle, struct t_fake *ret_fake)
{
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *member;
    } wanted[] = {
        {"fake_cuda_set", &ret_fake->set},
        {"fake_cuda_fail", &ret_fake->fail},
        {"fake_cuda_fail_async", &ret_fake->fail_async},
        {"fake_cuda_lose", &ret_fake->lose},
        {"fake_cuda_heal", &ret_fake->heal},
        {"fake_cuda_calls", &ret_fake->calls},
        {"fake_cuda_live", &ret_fake->live},
        {"fake_cuda_map", &ret_fake->map},
    };
    *ret_handle = lib;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *fn = lib ? dlsym(lib, wanted[i].name) : NULL;
        if (!fn)
            return false;
        memcpy(wanted[i].member, &fn, sizeof(fn));
    }
    return true;
}

bool t_device_is_cuda(void)
{
    const char *kind = getenv("VARVE_TEST_DEVICE");
    return kind && strcmp(kind, "cuda") == 0;
}
