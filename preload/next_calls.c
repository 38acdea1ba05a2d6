/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions behind the hooks, and the settings. Both are looked up when the library is loaded, before threads and
 * signal handlers of the program run: dlsym is safe in neither. Earlier hook calls, by constructors of other
 * libraries, look up their function and do nothing else.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/preload.h"

static const char *const names[] = {
#define X(name) #name,
    VV_PRELOAD_HOOKS(X)
#undef X
};

/* Synchronization: relaxed; every thread would find the same address. */
static _Atomic(void *) next[VVI_PRELOAD_COUNT];
/* Stored with release once the settings are complete. */
static atomic_bool on;
struct vvi_preload_settings vvi_preload_settings;

void *vvi_preload_next(enum vvi_preload_hook hook)
{
    void *fn = atomic_load_explicit(&next[hook], memory_order_relaxed);

    if (!fn && !atomic_load_explicit(&on, memory_order_relaxed)) {
        fn = dlsym(RTLD_NEXT, names[hook]);
        atomic_store_explicit(&next[hook], fn, memory_order_relaxed);
    }
    return fn;
}

bool vvi_preload_on(void)
{
    return atomic_load_explicit(&on, memory_order_acquire);
}

static bool is_off(const char *value)
{
    return value && (strcmp(value, "off") == 0 || strcmp(value, "0") == 0 ||
                     strcmp(value, "no") == 0 || strcmp(value, "false") == 0);
}

__attribute__((constructor)) static void start(void)
{
    struct vvi_preload_settings *s = &vvi_preload_settings;
    const char *roots = getenv("VARVE_PRELOAD_ROOTS"), *patience = getenv("VARVE_PRELOAD_PATIENCE");
    long ms = patience ? strtol(patience, NULL, 10) : 0;

    for (int i = 0; i < VVI_PRELOAD_COUNT; i++)
        atomic_store_explicit(&next[i], dlsym(RTLD_NEXT, names[i]), memory_order_relaxed);
    s->patience_ms = ms > 0 && ms <= 3600000 ? (unsigned)ms : 2000;
    if (is_off(getenv("VARVE_PRELOAD")) ||
        !vv_server_socket(getenv("VARVE_CACHED_SOCKET"), getenv("XDG_RUNTIME_DIR"),
                          (unsigned long)syscall(SYS_geteuid), s->socket, sizeof(s->socket)))
        return;
    if (roots) {
        if (strlen(roots) >= sizeof(s->roots))
            return;
        strcpy(s->roots, roots);
    }
    /* The program runs as another user than the one who started it: the daemon is not asked. */
    if (syscall(SYS_getuid) != syscall(SYS_geteuid))
        return;
    vvi_preload_identify();
    atomic_store_explicit(&on, true, memory_order_release);
    vvi_preload_inherit();
}
