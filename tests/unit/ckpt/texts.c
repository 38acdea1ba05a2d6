/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of varve_last_error for data that finds no room or does not reach the disk: they name
 * tier, setting and amount, and can still be read after closing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/ckpt_hooks.h"
#include "fault/inject.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, MANY = 64 };

static struct vv_store *hook_store(void *arg, struct vv_store *inner)
{
    return t_inject_store(arg, inner);
}

/* Writes until there is no room; returns the version that found none. */
static uint64_t fill(struct varve_ctx *ctx, const char *name, bool wait)
{
    struct varve_history *h = ck_history(ctx, name);
    static char buf[4 * PAGE];
    uint64_t v = 0;
    int rc = 0;
    T_OK(varve_protect(h, 0, buf, sizeof(buf)));
    for (; v < MANY; v++) {
        rc = varve_checkpoint_for(h, v, CK_LIMIT_MS);
        if (rc == 0 && wait)
            rc = varve_wait(h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS);
        if (rc)
            break;
    }
    T_EQ(rc, -ENOSPC);
    return v;
}

/* A checkpoint of so many pages fails with this. */
static void refused(struct varve_ctx *ctx, const char *name, size_t pages, int err,
                    const char *text)
{
    struct varve_history *h = ck_history(ctx, name);
    char *buf = calloc(pages, PAGE);
    T_OK(varve_protect(h, 0, buf, pages * PAGE));
    T_ERR(varve_checkpoint_for(h, 7, CK_LIMIT_MS), err);
    ck_error(ctx, err, text);
    free(buf);
}

static void test_memory_only(void)
{
    struct ck_cfg cfg = {.host_cache = 16 * PAGE};
    struct varve_ctx *ctx = ck_open(&cfg);
    char text[64];
    snprintf(text, sizeof(text), "version %llu (16.0 KiB) finds no room: ",
             (unsigned long long)fill(ctx, "full", false));
    ck_error(ctx, -ENOSPC, text);
    ck_error(ctx, -ENOSPC,
             "host_cache 64K is full of versions that nothing else holds; set `local`, raise "
             "host_cache, or discard versions");
    refused(ctx, "big", 32, -EFBIG,
            "version 7 (128 KiB) can never fit: host_cache 64K holds 64.0 KiB; set `local` or");
    T_OK(varve_close(ctx));
}

static void test_two_caches(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 8 * PAGE, .host_cache = 16 * PAGE};
    struct varve_ctx *ctx = ck_open(&cfg);
    refused(ctx, "big", 32, -EFBIG, "device_cache 32K and host_cache 64K hold 96.0 KiB together");
    T_OK(varve_close(ctx));
}

static void test_spill(void)
{
    struct ck_cfg cfg = {.host_cache = 16 * PAGE, .local = t_tmpdir(), .local_cache = 256 * PAGE};
    struct varve_ctx *ctx = ck_open(&cfg);
    refused(ctx, "big", 1024, -EFBIG, "raise host_cache or local_cache");
    T_OK(varve_close(ctx));
    cfg.local_cache = 64 * PAGE;
    cfg.page_bytes = PAGE;
    ctx = ck_open(&cfg);
    fill(ctx, "full", false);
    ck_error(ctx, -ENOSPC, "host_cache 64K and the spill file (local_cache 256K) are full");
    T_OK(varve_close(ctx));
}

static void test_files(void)
{
    struct ck_cfg cfg = {.host_cache = 16 * PAGE,
                         .local = t_tmpdir(),
                         .local_cache = 64 * PAGE,
                         .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    fill(ctx, "full", true);
    ck_error(ctx, -ENOSPC, "local_cache 256K has ");
    ck_error(ctx, -ENOSPC, " KiB in use; discard versions or raise local_cache");
    refused(ctx, "big", 128, -EFBIG, "can never fit: local_cache is 256K");
    T_OK(varve_close(ctx));
}

/* Writing fails after the checkpoint has returned. */
static void test_late(void)
{
    struct t_inject inj;
    struct vv_ckpt_hooks hooks = {.store = hook_store, .arg = &inj};
    struct ck_cfg cfg = {.host_cache = 64 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    static char buf[2 * PAGE];
    t_inject_init(&inj);
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "late");
    T_OK(varve_protect(h, 0, buf, sizeof(buf)));
    t_inject_arm(&inj, T_INJECT_REPORT, 1, -1, -ENOSPC);
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    T_ERR(varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -ENOSPC);
    ck_error(ctx, -ENOSPC, "version 1 could not be brought to local disk, /");
    ck_error(ctx, -ENOSPC, "no space is left there. It can be restored until");
    T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
    T_ERR(varve_flush(h, CK_LIMIT_MS), -ENOSPC);
    ck_error(ctx, -ENOSPC, "version 1 could not be brought to local disk, /");
    T_ERR(varve_close(ctx), -ENOSPC);
    ck_error(NULL, -ENOSPC, "history late: 1 version did not reach local disk, /");
    ck_error(NULL, -ENOSPC, "and is lost, version 1 first: no space is left there");
    vv_ckpt_set_hooks(NULL);
    t_inject_fini(&inj);
}

static void test_levels(void)
{
    struct ck_cfg cfg = {.host_cache = 16 * PAGE};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    T_ERR(varve_wait(h, 1, VARVE_LEVEL_LOCAL, 0), -EINVAL);
    ck_error(ctx, -EINVAL, "level local is above this context's level, cached");
    T_ERR(varve_wait(h, 1, (enum varve_level)9, 0), -EINVAL);
    ck_error(ctx, -EINVAL, "no level 9");
    T_OK(varve_close(ctx));
}

/* The folder is created, those above it are not. */
static void test_folder(void)
{
    struct varve_ctx *ctx;
    struct varve_opts o;
    char path[1024];
    for (int level = VARVE_LEVEL_CACHED; level <= VARVE_LEVEL_LOCAL; level++) {
        struct ck_cfg cfg = {.host_cache = 16 * PAGE, .local = path, .level = level};
        const char *base = t_tmpdir();
        snprintf(path, sizeof(path), "%s/a/b", base);
        ck_opts(&cfg, &o);
        T_ERR(varve_open(&o, &ctx), -ENOENT);
        ck_error(NULL, -ENOENT, path);
        ck_error(NULL, -ENOENT, "; those above it have to be there");
        snprintf(path, sizeof(path), "%s/a", base);
        T_OK(varve_close(ck_open(&cfg)));
        T_OK(access(path, R_OK | W_OK | X_OK));
    }
}

static void test_zeroed_options(void)
{
    struct varve_opts o = {0};
    struct varve_ctx *ctx;
    T_ERR(varve_open(&o, &ctx), -EINVAL);
    ck_error(NULL, -EINVAL, "varve_opts_init");
    T_ERR(varve_opts_set(&o, "level", "local"), -EINVAL);
    ck_error(NULL, -EINVAL, "varve_opts_init");
}

int main(void)
{
    ck_any_device();
    T_RUN(test_memory_only);
    T_RUN(test_two_caches);
    T_RUN(test_spill);
    T_RUN(test_files);
    T_RUN(test_late);
    T_RUN(test_levels);
    T_RUN(test_folder);
    T_RUN(test_zeroed_options);
    return t_done();
}
