/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_sync = off: committed versions outlive the process. After a power cut, simulated by another boot of the
 * machine and damaged files, every version is read before it counts; without one only the
 * newest. Wrong bytes are never restored.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "ckpt/ckpt_hooks.h"
#include "fault_os.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 6 * PAGE, VERSIONS = 5 };

static struct fault_os os;
static struct vv_ckpt_hooks hooks = {.os = &os.os};
static uint64_t boot;
static char *a;

static uint64_t this_boot(const struct vv_os *table)
{
    (void)table;
    return boot;
}

static struct varve_ctx *open_at(const char *local, uint64_t at_boot, int sync,
                                 struct varve_history **ret_h)
{
    struct ck_cfg cfg = {
        .host_cache = 8 * PAGE, .local = local, .level = VARVE_LEVEL_LOCAL, .page_bytes = PAGE};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    boot = at_boot;
    ck_opts(&cfg, &opts);
    opts.local_sync = sync;
    T_OK(varve_open(&opts, &ctx));
    *ret_h = ck_history(ctx, "h");
    T_OK(varve_protect(*ret_h, 0, a, BYTES));
    return ctx;
}

static void write_all(const char *local, int sync)
{
    struct varve_history *h;
    fault_os_init(&os);
    os.os.boot = this_boot;
    vv_ckpt_set_hooks(&hooks);
    a = malloc(BYTES);
    struct varve_ctx *ctx = open_at(local, 1, sync, &h);
    for (uint64_t v = 1; v <= VERSIONS; v++) {
        ck_fill(a, BYTES, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
        T_OK(varve_wait(h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    }
    T_OK(varve_close(ctx));
}

static void finish(void)
{
    vv_ckpt_set_hooks(NULL);
    free(a);
}

/* Data that the kernel had not written at the power cut: a hole. */
static void tear(const char *local, uint64_t version)
{
    char folder[512], path[1024], start[32], zeros[PAGE] = {0};
    bool found = false;
    snprintf(folder, sizeof(folder), "%s/h", local);
    snprintf(start, sizeof(start), "r0.v%llu.g", (unsigned long long)version);
    DIR *d = opendir(folder);
    T_CHECK(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, start, strlen(start)) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        int fd = open(path, O_WRONLY);
        T_CHECK(fd >= 0);
        T_EQ(pwrite(fd, zeros, PAGE, 3 * PAGE), PAGE);
        T_EQ(close(fd), 0);
        found = true;
    }
    closedir(d);
    T_CHECK(found);
}

static void latest_is(struct varve_history *h, uint64_t version)
{
    uint64_t latest;
    T_OK(varve_latest(h, &latest));
    T_EQ(latest, version);
}

static void restores(struct varve_history *h, uint64_t version)
{
    memset(a, 0, BYTES);
    T_OK(varve_restore_for(h, version, CK_LIMIT_MS));
    ck_check(a, BYTES, version, 0);
}

static void test_outlives_the_process(void)
{
    const char *local = t_tmpdir();
    struct varve_history *h;
    write_all(local, VARVE_LOCAL_SYNC_OFF);
    for (unsigned life = 0; life < 2; life++) {
        struct varve_ctx *ctx = open_at(local, 1, VARVE_LOCAL_SYNC_OFF, &h);
        latest_is(h, VERSIONS);
        for (uint64_t v = 1; v <= VERSIONS; v++)
            restores(h, v);
        T_OK(varve_close(ctx));
    }
    finish();
}

static void test_power_cut(void)
{
    const char *local = t_tmpdir();
    struct varve_history *h;
    write_all(local, VARVE_LOCAL_SYNC_OFF);
    tear(local, 5);
    tear(local, 4);
    tear(local, 2);
    struct varve_ctx *ctx = open_at(local, 2, VARVE_LOCAL_SYNC_COMMIT, &h);
    latest_is(h, 3);
    T_EQ(ck_count(h), 2);
    restores(h, 1);
    restores(h, 3);
    T_ERR(varve_restore_for(h, 2, CK_LIMIT_MS), -EBADMSG);
    ck_error(ctx, -EBADMSG, "local_sync = off");
    T_OK(varve_close(ctx));
    finish();
}

/* The machine was not restarted: the newest version is read, and the next one if that is damaged. */
static void test_error_of_writing(void)
{
    const char *local = t_tmpdir();
    struct varve_history *h;
    write_all(local, VARVE_LOCAL_SYNC_OFF);
    tear(local, 5);
    tear(local, 2);
    struct varve_ctx *ctx = open_at(local, 1, VARVE_LOCAL_SYNC_OFF, &h);
    latest_is(h, 4);
    T_ERR(varve_restore_for(h, 2, CK_LIMIT_MS), -EBADMSG);
    restores(h, 4);
    T_OK(varve_close(ctx));
    finish();
}

/* The version of the highest number is read too, if another one was written after it: a restart may use either. */
static void test_highest(void)
{
    const char *local = t_tmpdir();
    struct varve_history *h;
    write_all(local, VARVE_LOCAL_SYNC_OFF);
    struct varve_ctx *ctx = open_at(local, 1, VARVE_LOCAL_SYNC_OFF, &h);
    T_OK(varve_discard(h, 2));
    ck_fill(a, BYTES, 2, 0);
    T_OK(varve_checkpoint_for(h, 2, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    tear(local, 5);
    ctx = open_at(local, 1, VARVE_LOCAL_SYNC_OFF, &h);
    latest_is(h, 2);
    T_EQ(ck_count(h), VERSIONS - 1); /* without 5 */
    T_OK(varve_close(ctx));
    tear(local, 2);
    ctx = open_at(local, 1, VARVE_LOCAL_SYNC_OFF, &h);
    latest_is(h, 4);
    T_EQ(ck_count(h), VERSIONS - 2);
    restores(h, 4);
    T_OK(varve_close(ctx));
    finish();
}

static long reads_to_open(const char *local, uint64_t at_boot)
{
    struct varve_history *h;
    long before = atomic_load(&os.per_call[FAULT_PREAD]);
    struct varve_ctx *ctx = open_at(local, at_boot, VARVE_LOCAL_SYNC_COMMIT, &h);
    latest_is(h, VERSIONS);
    T_OK(varve_close(ctx));
    return atomic_load(&os.per_call[FAULT_PREAD]) - before;
}

/* Versions that were read after another boot are not read again. */
static void test_once(void)
{
    const char *local = t_tmpdir();
    write_all(local, VARVE_LOCAL_SYNC_OFF);
    long same = reads_to_open(local, 1), other = reads_to_open(local, 2),
         after = reads_to_open(local, 3);
    T_CHECK(after < same);
    T_CHECK(same < other);
    finish();
    local = t_tmpdir();
    write_all(local, VARVE_LOCAL_SYNC_COMMIT);
    T_CHECK(reads_to_open(local, 2) <= after);
    finish();
}

int main(void)
{
    T_RUN(test_outlives_the_process);
    T_RUN(test_power_cut);
    T_RUN(test_error_of_writing);
    T_RUN(test_highest);
    T_RUN(test_once);
    return t_done();
}
