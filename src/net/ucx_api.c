/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads UCX and translates its results. It is loaded once, under a lock used for nothing else; the result never changes
 * afterwards.
 *
 * UCX reads its environment when it is loaded. By default it catches fatal signals of the process, and prints. A
 * library must not do that to an application, so both are turned off, unless the user has set the variables.
 */
#include "net/ucx_api.h"

#include "net/net_private.h"

#if HAVE_UCX

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct vvi_ucx_api api;
static char reason[256];

/* Conversion of a data pointer to a function pointer, which only POSIX defines. */
static void set_function(void *member, void *fn)
{
    *(void **)member = fn;
}

static void load(void)
{
    unsigned major = 0, minor = 0, release = 0;
    void *lib;

    (void)setenv("UCX_ERROR_SIGNALS", "", 0);
    (void)setenv("UCX_LOG_LEVEL", "fatal", 0);
    (void)setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
    lib = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib) {
        snprintf(reason, sizeof(reason), "UCX cannot be loaded: %s", dlerror());
        return;
    }
#define X(name)                                 \
    set_function(&api.name, dlsym(lib, #name)); \
    if (!api.name && !reason[0])                \
        snprintf(reason, sizeof(reason), "this UCX is too old: it lacks %s", #name);
    VVI_UCX_FUNCTIONS(X)
#undef X
    if (reason[0])
        return;
    api.ucp_get_version(&major, &minor, &release);
    if (major != UCP_API_MAJOR || minor < 13)
        snprintf(reason, sizeof(reason), "this is UCX %u.%u; 1.13 or a later 1.x is needed", major,
                 minor);
}

int vvi_ucx_load(char *err, size_t err_bytes, const struct vvi_ucx_api **ret_api)
{
    pthread_once(&once, load);
    if (reason[0]) {
        snprintf(err, err_bytes, "%s", reason);
        return -ENOTSUP;
    }
    *ret_api = &api;
    return 0;
}

int vvi_ucx_errno(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return 0;
    case UCS_ERR_NO_MEMORY:
        return -ENOMEM;
    case UCS_ERR_BUSY:
        return -EADDRINUSE;
    case UCS_ERR_INVALID_ADDR:
    case UCS_ERR_INVALID_PARAM:
        return -EINVAL;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NO_DEVICE:
        return -EHOSTUNREACH;
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_ENDPOINT_TIMEOUT:
        return -ETIMEDOUT;
    default:
        return -ECONNRESET;
    }
}

int vvi_net_ucx_check(char *err, size_t err_bytes)
{
    const struct vvi_ucx_api *unused;

    return vvi_ucx_load(err, err_bytes, &unused);
}

#endif
