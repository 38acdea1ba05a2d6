/* SPDX-License-Identifier: Apache-2.0 */
/* A context publishes the figures of varve_stats, soon; failures of publishing do not affect it. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "stats/stats_page.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 8 * PAGE };

static struct vv_stats_page page;

struct hunt {
    unsigned n;
    uint32_t context;
};

static int take(void *arg, const struct vv_stats_page *p)
{
    struct hunt *h = arg;

    T_OK(p->status);
    h->n++;
    if (p->header.context == h->context)
        page = *p;
    return 0;
}

static unsigned pages(const char *folder, uint32_t context)
{
    struct hunt h = {.context = context};

    T_OK(vv_stats_page_each(folder, take, &h));
    return h.n;
}

/* Waits for the page to show it; it is made soon, but not at once. */
static void until(const char *folder, uint32_t context, bool (*ok)(void))
{
    uint64_t end = vv_deadline_ns(CK_LIMIT_MS);

    while (pages(folder, context) == 0 || page.header.context != context || !ok()) {
        T_CHECK(vv_now_ns() < end);
        usleep(2000);
    }
}

static void opts_for(const struct ck_cfg *cfg, const char *stats, const char *metrics,
                     struct varve_opts *ret_opts)
{
    ck_opts(cfg, ret_opts);
    T_OK(varve_opts_set(ret_opts, "stats", stats));
    T_OK(varve_opts_set(ret_opts, "metrics", metrics));
}

static bool four_restored(void)
{
    return page.record.restore.bytes == 4 * BYTES && page.record.failed_calls > 0;
}

static bool there(void)
{
    return page.record.seq > 2;
}

static bool reopened(void)
{
    return page.record.nhistories == 0 && page.record.seq > 2;
}

static bool two_histories(void)
{
    return page.record.nhistories == 2;
}

/* Collectors of metrics reject the same name twice. */
static void long_names(void)
{
    const char *dir = t_tmpdir();
    struct ck_cfg cfg = {.host_cache = 32 * PAGE};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    char name[2][120];

    opts_for(&cfg, dir, "", &opts);
    T_OK(varve_open(&opts, &ctx));
    for (int i = 0; i < 2; i++) {
        snprintf(name[i], sizeof(name[i]), "%0*d", 100, i);
        (void)ck_history(ctx, name[i]);
    }
    until(dir, 0, two_histories);
    const struct vv_stats_history *h = page.record.history;
    T_CHECK(strcmp(h[0].name, h[1].name) != 0);
    T_EQ(strncmp(h[0].name, name[0], 40), 0);
    T_OK(varve_close(ctx));
}

static void figures(void)
{
    const char *dir = t_tmpdir();
    struct ck_cfg cfg = {
        .device = true, .device_cache = 16 * PAGE, .host_cache = 32 * PAGE, .local = t_tmpdir()};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    struct varve_stats s = {.stats_size = sizeof(s)};
    char *buf;

    opts_for(&cfg, dir, "", &opts);
    T_OK(varve_open(&opts, &ctx));
    struct varve_history *h = ck_history(ctx, "some history");
    buf = ck_alloc(ctx, true, BYTES);
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < 20; v++) {
        ck_fill(buf, BYTES, v, 0);
        T_OK(varve_hint(h, 19 - v));
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    T_OK(varve_flush(h, CK_LIMIT_MS));
    for (uint64_t v = 19; v > 15; v--)
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
    T_ERR(varve_restore_for(h, 77, CK_LIMIT_MS), -ENOENT);
    until(dir, 0, four_restored);
    T_OK(varve_stats(ctx, &s));
    const struct vv_stats_record *r = &page.record;
    T_EQ(page.header.pid, getpid());
    T_EQ(page.header.page_bytes, PAGE);
    T_STREQ(page.header.device, "host");
    T_STREQ(page.header.level, "cached");
    T_EQ(r->state, VV_STATS_OPEN);
    T_EQ(r->checkpoint.count, 20);
    T_EQ(r->checkpoint.bytes, s.checkpoint_bytes);
    T_EQ(r->restore.bytes, s.restore_bytes);
    T_EQ(r->checkpoint.blocked_ns, s.checkpoint_blocked_ns);
    T_CHECK(r->checkpoint.blocked_ns > 0);
    T_EQ(r->hits + r->misses, 4);
    T_EQ(r->hits, s.restore_hits);
    T_EQ(r->hints, 16);
    T_EQ(r->versions, 20);
    T_CHECK(r->failed_calls >= 1);
    T_EQ(r->ntiers, 3);
    T_STREQ(r->tier[0].name, "device");
    T_STREQ(r->tier[1].name, "host");
    T_STREQ(r->tier[2].name, "disk");
    for (int t = 0; t < 3; t++) {
        T_EQ(r->tier[t].capacity_bytes, s.tier_bytes[t]);
        T_CHECK(r->tier[t].used_bytes > 0 && r->tier[t].copies > 0);
    }
    T_EQ(r->tier[0].dirty_bytes, 0); /* all is flushed */
    T_CHECK(r->tier[0].evictable_bytes + r->tier[1].evictable_bytes > 0);
    T_EQ(r->nhops, VARVE_HOPS);
    T_STREQ(r->hop[VARVE_HOP_H2F].name, "h2f");
    T_CHECK(r->hop[VARVE_HOP_H2F].moved_bytes >= 20 * BYTES - 16 * PAGE - 32 * PAGE);
    T_CHECK(r->hop[VARVE_HOP_H2F].busy_ns > 0);
    T_EQ(r->nhistories, 1);
    T_STREQ(r->history[0].name, "some history");
    T_EQ(r->history[0].versions, 20);
    T_EQ(r->history[0].hints, 16);
    T_EQ(r->history[0].prefetching, 1);
    T_OK(varve_history_close(h));
    until(dir, 0, reopened);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
    T_EQ(pages(dir, 0), 0);
}

static void several(void)
{
    const char *dir = t_tmpdir();
    struct ck_cfg cfg = {.host_cache = 16 * PAGE};
    struct varve_opts opts;
    struct varve_ctx *a, *b;
    int status;

    opts_for(&cfg, dir, "", &opts);
    opts.rank = 7;
    T_OK(varve_open(&opts, &a));
    until(dir, 0, there);
    T_OK(varve_open(&opts, &b));
    until(dir, 1, there);
    T_EQ(page.header.rank, 7);
    T_EQ(pages(dir, 0), 2);
    /* A child has neither of them, and does not change them. */
    pid_t child = fork();
    T_CHECK(child >= 0);
    if (child == 0)
        _exit(varve_close(a) == -EPERM && varve_close(b) == -EPERM ? 0 : 1);
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    T_EQ(pages(dir, 0), 2);
    T_OK(varve_close(a));
    T_EQ(pages(dir, 1), 1);
    T_OK(varve_close(b));
    T_EQ(pages(dir, 0), 0);
}

static void nowhere(void)
{
    const char *dir = t_tmpdir();
    struct ck_cfg cfg = {.host_cache = 16 * PAGE};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    char path[300];

    /* Without a place there is no page, and nothing else is different. */
    opts_for(&cfg, "/nonexistent/folder", "", &opts);
    T_OK(varve_open(&opts, &ctx));
    T_OK(varve_close(ctx));
    opts_for(&cfg, "off", "", &opts);
    T_OK(varve_open(&opts, &ctx));
    T_OK(varve_close(ctx));
    T_ERR(varve_opts_set(&opts, "stats", "of"), -EINVAL);
    /* Options of a program older than pages. */
    ck_opts(&cfg, &opts);
    opts.opts_size = offsetof(struct varve_opts, stats);
    setenv("VARVE_STATS", dir, 1);
    T_OK(varve_open(&opts, &ctx));
    until(dir, 0, there);
    unsetenv("VARVE_STATS");
    T_OK(varve_close(ctx));
    /* A configured file that cannot be written is an error at once, with its name. */
    opts_for(&cfg, "off", "/nonexistent/x.prom", &opts);
    T_ERR(varve_open(&opts, &ctx), -ENOENT);
    ck_error(NULL, -ENOENT, "metrics: folder /nonexistent");
    snprintf(path, sizeof(path), "%s/", dir);
    opts_for(&cfg, "off", path, &opts);
    T_ERR(varve_open(&opts, &ctx), -EINVAL);
}

/* Exchanges some bytes of the only committed file, or puts them back. */
static void spoil(const char *folder)
{
    char path[600] = "", bytes[2][8] = {"damage!"};
    snprintf(path, sizeof(path), "%s/h", folder);
    DIR *d = opendir(path);
    T_CHECK(d);
    for (struct dirent *e; (e = readdir(d));)
        if (strncmp(e->d_name, "r0.v1.", 6) == 0)
            snprintf(path, sizeof(path), "%s/h/%s", folder, e->d_name);
    closedir(d);
    static char kept[8];
    int fd = open(path, O_RDWR);
    T_CHECK(fd >= 0);
    T_EQ(pread(fd, bytes[1], 8, 2 * PAGE), 8);
    T_EQ(pwrite(fd, memcmp(bytes[0], bytes[1], 8) == 0 ? kept : bytes[0], 8, 2 * PAGE), 8);
    memcpy(kept, bytes[1], 8);
    close(fd);
}

static bool read_badly(void)
{
    return page.record.bad_reads > 0 && page.record.failed_calls > 0;
}

static bool read_after_all(void)
{
    return page.record.reread > 0;
}

/* Reads of damaged bytes are counted, and so are later successful reads of them. */
static void errors(void)
{
    const char *dir = t_tmpdir();
    struct ck_cfg cfg = {.host_cache = 16 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    char *buf = malloc(BYTES);

    opts_for(&cfg, dir, "", &opts);
    T_OK(varve_open(&opts, &ctx));
    struct varve_history *h = ck_history(ctx, "h");
    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    spoil(cfg.local);
    T_OK(varve_open(&opts, &ctx));
    h = ck_history(ctx, "h");
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_ERR(varve_restore_for(h, 1, CK_LIMIT_MS), -EBADMSG);
    until(dir, 0, read_badly);
    T_STREQ(page.record.tier[1].name, "disk");
    T_STREQ(page.record.tier[1].kind, "files");
    T_EQ(page.record.tier[1].copies, 1);
    T_EQ(page.record.history[0].durable, 1);
    T_CHECK(page.record.hop[page.record.nhops - 1].errors > 0);
    spoil(cfg.local);
    T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
    ck_check(buf, BYTES, 1, 0);
    until(dir, 0, read_after_all);
    T_OK(varve_close(ctx));
    free(buf);
}

static bool copied(void)
{
    return page.record.hop[page.record.nhops - 2].moved_bytes >= BYTES;
}

static void shared(void)
{
    const char *dir = t_tmpdir();
    struct ck_cfg cfg = {.host_cache = 16 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_REMOTE};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    char *buf = malloc(BYTES);

    opts_for(&cfg, dir, "", &opts);
    T_OK(varve_opts_set(&opts, "remote", t_tmpdir()));
    T_OK(varve_open(&opts, &ctx));
    struct varve_history *h = ck_history(ctx, "h");
    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    T_OK(varve_wait(h, 1, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    until(dir, 0, copied);
    T_STREQ(page.header.level, "remote");
    T_STREQ(page.record.hop[page.record.nhops - 2].name, "f2r");
    T_STREQ(page.record.hop[page.record.nhops - 1].name, "r2f");
    T_EQ(page.record.hop[page.record.nhops - 1].moved_bytes, 0);
    T_OK(varve_close(ctx));
    free(buf);
}

static char *text_of(const char *path)
{
    static char text[1 << 17];
    FILE *f = fopen(path, "r");

    if (!f)
        return NULL;
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void metrics(void)
{
    struct ck_cfg cfg = {.host_cache = 32 * PAGE};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    char path[300], pattern[300], want[200];
    const char *dir = t_tmpdir();
    uint64_t end = vv_deadline_ns(CK_LIMIT_MS);

    snprintf(pattern, sizeof(pattern), "%s/v-%%p.prom", dir);
    snprintf(path, sizeof(path), "%s/v-%ld.prom", dir, (long)getpid());
    opts_for(&cfg, "off", pattern, &opts);
    T_OK(varve_open(&opts, &ctx));
    while (access(path, F_OK) != 0) {
        T_CHECK(vv_now_ns() < end);
        usleep(2000);
    }
    snprintf(want, sizeof(want), "\nvarve_up{pid=\"%ld\",context=\"0\",rank=\"0\"} 1\n",
             (long)getpid());
    T_CHECK(strstr(text_of(path), want));
    struct varve_history *h = ck_history(ctx, "m");
    char *buf = malloc(BYTES);
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    /* The last figures stay. */
    want[strlen(want) - 2] = '0';
    T_CHECK(strstr(text_of(path), want));
    T_CHECK(strstr(text_of(path), "call=\"checkpoint\"} 1\n"));
    free(buf);
}

int main(void)
{
    T_RUN(figures);
    T_RUN(long_names);
    T_RUN(several);
    T_RUN(nowhere);
    T_RUN(errors);
    T_RUN(shared);
    T_RUN(metrics);
    return t_done();
}
