/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of discarded versions are removed when the disk has nothing to read for restores; but a wait for
 * all versions does not wait for reads, nor does closing.
 */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "ckpt/ckpt_hooks.h"
#include "fault_os.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 4 * PAGE, VERSIONS = 8 };

/* Reads of data that cannot end until `open` is set. Synchronization: atomic. */
static atomic_bool gate_open = true;
static atomic_int held;

static int64_t held_aio(const struct vv_os *os, enum vv_os_aio op, int fd, uint64_t offset,
                        size_t bytes)
{
    (void)os;
    (void)fd;
    (void)offset;
    (void)bytes;
    if (op == VV_OS_AIO_READ && !gate_open) {
        atomic_fetch_add(&held, 1);
        while (!gate_open)
            usleep(1000);
    }
    return 0;
}

static size_t files(const char *local)
{
    char path[512];
    size_t n = 0;
    snprintf(path, sizeof(path), "%s/h", local);
    DIR *d = opendir(path);
    T_CHECK(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strstr(e->d_name, ".ckpt") != NULL;
    closedir(d);
    return n;
}

static void test_flush_does_not_wait_for_reads(void)
{
    struct ck_cfg cfg = {.host_cache = 8 * PAGE,
                         .local = t_tmpdir(),
                         .level = VARVE_LEVEL_LOCAL,
                         .page_bytes = PAGE};
    struct fault_os os;
    struct vv_ckpt_hooks hooks = {.os = &os.os};
    char *a = malloc(BYTES);
    fault_os_init(&os);
    os.os.aio = held_aio;
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    T_OK(varve_protect(h, 0, a, BYTES));
    for (uint64_t v = 1; v <= VERSIONS; v++) {
        ck_fill(a, BYTES, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_EQ(files(cfg.local), VERSIONS);
    gate_open = false;
    T_OK(varve_hint(h, 1));
    T_OK(varve_prefetch_start(h));
    while (held == 0)
        usleep(1000);
    T_OK(varve_discard(h, 5));
    T_OK(varve_discard(h, 6));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_EQ(files(cfg.local), VERSIONS - 2);
    T_OK(varve_discard(h, 7));
    gate_open = true;
    T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
    ck_check(a, BYTES, 1, 0);
    T_OK(varve_discard(h, 4));
    T_OK(varve_close(ctx));
    T_EQ(files(cfg.local), VERSIONS - 4);
    vv_ckpt_set_hooks(NULL);
    free(a);
}

static atomic_int refused;

/* The file of version 1 cannot be removed at first, and that of version 2 takes its time. */
static int hard_unlinkat(const struct vv_os *os, int dirfd, const char *path)
{
    if (strncmp(path, "r0.v1.", 6) == 0 && atomic_fetch_add(&refused, 1) == 0)
        return -EACCES;
    if (strncmp(path, "r0.v2.", 6) == 0)
        usleep(300000);
    return fault_unlinkat(os, dirfd, path);
}

/* A flush that reports another error still waits until discarded versions are removed. */
static void test_flush_waits_with_an_error(void)
{
    struct ck_cfg cfg = {.host_cache = 64 * PAGE,
                         .local = t_tmpdir(),
                         .level = VARVE_LEVEL_LOCAL,
                         .page_bytes = PAGE};
    struct fault_os os;
    struct vv_ckpt_hooks hooks = {.os = &os.os};
    char *a = malloc(BYTES);
    fault_os_init(&os);
    os.os.unlinkat = hard_unlinkat;
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    T_OK(varve_protect(h, 0, a, BYTES));
    for (uint64_t v = 1; v <= 3; v++) {
        ck_fill(a, BYTES, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_discard(h, 1));
    while (refused == 0)
        usleep(1000);
    usleep(
        100000); /* the engine knows, but for a very slow machine, on which the flush finds it out */
    T_OK(varve_discard(h, 2));
    T_ERR(varve_flush(h, CK_LIMIT_MS), -EACCES);
    T_CHECK(files(cfg.local) <= 2); /* without version 2 */
    T_OK(varve_close(ctx));
    T_EQ(files(cfg.local), 1);
    vv_ckpt_set_hooks(NULL);
    free(a);
}

int main(void)
{
    T_RUN(test_flush_waits_with_an_error);
    T_RUN(test_flush_does_not_wait_for_reads);
    return t_done();
}
