/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time to open a history with many committed versions.
 *
 * The versions are written the first time (4 KiB each, at level local), and left in the folder. The times of
 * varve_open and of varve_history_open are printed, with the index and without (removed before: it is rebuilt from
 * the files), for a warm page cache.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "cli/common/options.h"

static void check(int rc, const char *what)
{
    if (rc == 0)
        return;
    struct varve_error e = {.error_size = sizeof(e)};
    if (varve_last_error(NULL, &e))
        e.text[0] = 0;
    fprintf(stderr, "%s: %s %s\n", what, varve_strerror(rc), e.text);
    exit(1);
}

static struct varve_history *open_all(const char *folder, struct varve_ctx **ret_ctx,
                                      double *ret_open, double *ret_history)
{
    struct varve_opts opts;
    struct varve_history *h;
    check(varve_opts_init(&opts, sizeof(opts)), "options");
    opts.device = VARVE_DEVICE_NONE;
    opts.level = VARVE_LEVEL_LOCAL;
    opts.host_cache = 256 << 20;
    opts.page_bytes = 4096;
    snprintf(opts.local, sizeof(opts.local), "%s", folder);
    uint64_t t0 = vv_now_ns();
    check(varve_open(&opts, ret_ctx), "open");
    uint64_t t1 = vv_now_ns();
    check(varve_history_open(*ret_ctx, "reopen", &h), "history");
    uint64_t t2 = vv_now_ns();
    *ret_open = (double)(t1 - t0) / 1e9;
    *ret_history = (double)(t2 - t1) / 1e9;
    return h;
}

static void remove_index(const char *folder)
{
    char path[1200];
    snprintf(path, sizeof(path), "%s/reopen", folder);
    DIR *d = opendir(path);
    struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        if (strncmp(e->d_name, "index", 5) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/reopen/%s", folder, e->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
}

struct reopen_opts {
    const char *folder;
    uint64_t versions;
};

static const struct opt options[] = {
    {OPT_TEXT, .arg = "FOLDER", .at = offsetof(struct reopen_opts, folder), .help = "for files"},
    {OPT_U64, .arg = "VERSIONS", .optional = true, .at = offsetof(struct reopen_opts, versions),
     .help = "how many (100000)"},
};

static const struct opts command = {
    .command = "bench_reopen",
    .usage = "FOLDER [VERSIONS]",
    .about = "Opens a history with many committed versions.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    struct reopen_opts o = {.versions = 100000};
    int status = opts_parse(&command, argc, argv, &o, NULL);
    if (status >= 0)
        return status;
    size_t n = o.versions, have;
    static char buf[4096];
    struct varve_ctx *ctx;
    double t_open, t_history;
    struct varve_history *h = open_all(o.folder, &ctx, &t_open, &t_history);
    check(varve_protect(h, 0, buf, sizeof(buf)), "protect");
    check(varve_versions(h, NULL, 0, &have), "versions");
    uint64_t t0 = vv_now_ns();
    for (size_t v = 0; have < n && v < n; v++) {
        memcpy(buf, &v, sizeof(v));
        int rc = varve_checkpoint(h, v);
        if (rc != -EEXIST) /* some may be there from an earlier, interrupted run */
            check(rc, "checkpoint");
    }
    check(varve_close(ctx), "close");
    if (have < n)
        printf("%zu versions written in %.1f s\n", n - have, (double)(vv_now_ns() - t0) / 1e9);
    for (int i = 0; i < 4; i++) {
        if (i == 3)
            remove_index(o.folder);
        h = open_all(o.folder, &ctx, &t_open, &t_history);
        check(varve_versions(h, NULL, 0, &have), "versions");
        check(varve_protect(h, 0, buf, sizeof(buf)), "protect");
        size_t v = have / 2, got;
        check(varve_restore(h, v), "restore");
        memcpy(&got, buf, sizeof(got));
        struct varve_stats s = {.stats_size = sizeof(s)};
        check(varve_stats(ctx, &s), "stats");
        printf("%s: %zu versions, open %.3f s, history %.3f s, %.0f bytes of memory each%s\n",
               i == 3 ? "without index" : "with index", have, t_open, t_history,
               (double)s.metadata_bytes / (double)(have ? have : 1),
               got == v ? "" : ", WRONG BYTES");
        check(varve_close(ctx), "close");
        if (got != v)
            return 1;
    }
    return 0;
}
