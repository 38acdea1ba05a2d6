/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are not what was written: the error names version, region and tier; a version whose
 * file cannot be made sense of at opening does not vanish, and can be discarded.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 8 * PAGE, REGION_A = 0, REGION_B = 5 };

static struct ck_cfg config(void)
{
    return (struct ck_cfg){
        .host_cache = 64 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
}

static void error_is(struct varve_ctx *ctx, uint64_t version, int region, int tier,
                     const char *text)
{
    struct varve_error e = {.error_size = sizeof(e)};
    ck_error(ctx, -EBADMSG, text);
    T_OK(varve_last_error(ctx, &e));
    T_EQ(e.version, version);
    T_EQ(e.region, region);
    T_EQ(e.tier, tier);
}

/* The path of the file of a version, and whether there is one. */
static bool file_of(const struct ck_cfg *cfg, uint64_t version, char *ret_path, size_t n)
{
    char folder[512], start[64];
    snprintf(folder, sizeof(folder), "%s/h", cfg->local);
    snprintf(start, sizeof(start), "r0.v%llu.g", (unsigned long long)version);
    DIR *d = opendir(folder);
    T_CHECK(d);
    bool there = false;
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, start, strlen(start)) == 0) {
            snprintf(ret_path, n, "%s/%s", folder, e->d_name);
            there = true;
        }
    }
    closedir(d);
    return there;
}

static void write_some(const struct ck_cfg *cfg, uint64_t n)
{
    struct varve_ctx *ctx = ck_open(cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *a = malloc(BYTES), *b = malloc(BYTES);
    T_OK(varve_protect(h, REGION_A, a, BYTES));
    T_OK(varve_protect(h, REGION_B, b, BYTES));
    for (uint64_t v = 1; v <= n; v++) {
        ck_fill(a, BYTES, v, REGION_A);
        ck_fill(b, BYTES, v, REGION_B);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    T_OK(varve_close(ctx));
    free(a);
    free(b);
}

static void damage(const struct ck_cfg *cfg, uint64_t version, off_t at)
{
    char path[1024];
    T_CHECK(file_of(cfg, version, path, sizeof(path)));
    int fd = open(path, O_RDWR);
    T_CHECK(fd >= 0);
    T_EQ(pwrite(fd, "damage", 6, at), 6);
    close(fd);
}

/* The checksums are those of chunks: one that is wrong fails the version for every region, also for
 * those that have no byte in it. */
static void test_names_region(void)
{
    struct ck_cfg cfg = config();
    char *a = malloc(BYTES), *b = malloc(BYTES);
    write_some(&cfg, 3);
    damage(&cfg, 1, PAGE + BYTES + 3 * PAGE); /* behind the header and the first region */
    damage(&cfg, 2, PAGE + 2 * PAGE);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    T_OK(varve_protect(h, REGION_B, b, BYTES));
    T_ERR(varve_restore_for(h, 1, CK_LIMIT_MS), -EBADMSG);
    error_is(ctx, 1, REGION_B, 1, "version 1, region 5");
    ck_error(ctx, -EBADMSG, "local files");
    T_OK(varve_protect(h, REGION_A, a, BYTES));
    T_ERR(varve_restore_for(h, 2, CK_LIMIT_MS), -EBADMSG);
    error_is(ctx, 2, REGION_A, 1, "version 2, region 0");
    T_ERR(varve_restore_for(h, 1, CK_LIMIT_MS), -EBADMSG);
    error_is(ctx, 1, REGION_B, 1, "version 1, region 5");
    T_OK(varve_restore_for(h, 3, CK_LIMIT_MS));
    ck_check(a, BYTES, 3, REGION_A);
    ck_check(b, BYTES, 3, REGION_B);
    T_OK(varve_close(ctx));
    free(a);
    free(b);
}

int main(void)
{
    T_RUN(test_names_region);
    return t_done();
}
