/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry of a version that is committed here and must be copied to the shared folder cannot be
 * allocated: waiting for the version returns the error, once, and the next try succeeds. The
 * linker passes every allocation of the library through this file (cmake/VarveTests.cmake).
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <varve/ckpt.h>

#include "store/remote/remote_private.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, DENIED = 1000 };

/* How often the array of entries cannot be allocated from now on. */
static atomic_int entries_denied;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *mem, size_t bytes);
int __real_posix_memalign(void **ret_mem, size_t align, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *mem, size_t bytes);
int __wrap_posix_memalign(void **ret_mem, size_t align, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *mem, size_t bytes)
{
    if (!mem && bytes == 64 * sizeof(struct vvi_rentry) && atomic_load(&entries_denied) > 0) {
        atomic_fetch_sub(&entries_denied, 1);
        return NULL;
    }
    return __real_realloc(mem, bytes);
}

int __wrap_posix_memalign(void **ret_mem, size_t align, size_t bytes)
{
    return __real_posix_memalign(ret_mem, align, bytes);
}

static void to_the_shared_folder(void)
{
    char local[600], remote[600], *buf = calloc(1, 4 * PAGE);
    struct ck_cfg cfg = {
        .host_cache = 64 * PAGE, .local = local, .remote = remote, .level = VARVE_LEVEL_REMOTE};
    enum varve_level level = VARVE_LEVEL_CACHED;

    const char *folder = t_tmpdir();
    snprintf(local, sizeof(local), "%s/local", folder);
    snprintf(remote, sizeof(remote), "%s/remote", folder);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    T_OK(varve_protect(h, 0, buf, 4 * PAGE));
    ck_fill(buf, 4 * PAGE, 1, 0);
    /* Denied until the error was reported: a wait that begins after the first failure tries again. */
    atomic_store(&entries_denied, DENIED);
    T_OK(varve_checkpoint(h, 1));
    T_ERR(varve_wait(h, 1, VARVE_LEVEL_REMOTE, CK_LIMIT_MS), -ENOMEM);
    T_CHECK(atomic_exchange(&entries_denied, 0) < DENIED);
    T_OK(varve_wait(h, 1, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    T_OK(varve_version_level(h, 1, &level));
    T_EQ(level, VARVE_LEVEL_REMOTE);
    T_OK(varve_close(ctx));
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "h");
    T_OK(varve_protect(h, 0, buf, 4 * PAGE));
    memset(buf, 0, 4 * PAGE);
    T_OK(varve_restore(h, 1));
    ck_check(buf, 4 * PAGE, 1, 0);
    T_OK(varve_close(ctx));
    free(buf);
}

int main(void)
{
    T_RUN(to_the_shared_folder);
    return t_done();
}
