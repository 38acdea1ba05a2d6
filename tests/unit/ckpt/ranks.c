/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of another number of ranks: refused with a word on what to do, counted, and removed. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <varve/ckpt.h>

#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 2 * PAGE + 1, MOST = 4 };

static char buf[BYTES];

static struct ck_cfg config(int level)
{
    return (struct ck_cfg){.host_cache = 16 * PAGE,
                           .local = t_tmpdir(),
                           .remote = level > VARVE_LEVEL_LOCAL ? t_tmpdir() : NULL,
                           .level = level};
}

/* The contexts of a job, each with the history open. */
static void job_open(struct ck_cfg cfg, int ranks, const char *run, struct varve_ctx **ctx,
                     struct varve_history **h)
{
    cfg.ranks = ranks;
    cfg.run = run;
    for (cfg.rank = 0; cfg.rank < ranks; cfg.rank++) {
        ctx[cfg.rank] = ck_open(&cfg);
        h[cfg.rank] = ck_history(ctx[cfg.rank], "h");
        T_OK(varve_protect(h[cfg.rank], 0, buf, BYTES));
    }
}

static void job_close(struct varve_ctx **ctx, int ranks)
{
    for (int r = 0; r < ranks; r++)
        T_OK(varve_close(ctx[r]));
}

static void job(const struct ck_cfg *cfg, int ranks, const char *run, uint64_t versions)
{
    struct varve_ctx *ctx[MOST];
    struct varve_history *h[MOST];
    job_open(*cfg, ranks, run, ctx, h);
    for (uint64_t v = 0; v < versions; v++)
        for (int r = 0; r < ranks; r++) {
            ck_fill(buf, BYTES, v, r);
            T_OK(varve_checkpoint_for(h[r], v, CK_LIMIT_MS));
        }
    for (int r = 0; r < ranks; r++)
        T_OK(varve_flush(h[r], CK_LIMIT_MS));
    job_close(ctx, ranks);
}

/* Files of ranks from this one on. */
static int files_from(const char *folder, int first)
{
    char path[512];
    int n = 0, rank;
    snprintf(path, sizeof(path), "%s/h", folder);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        n += strstr(e->d_name, ".ckpt") && sscanf(e->d_name, "r%d.v", &rank) == 1 && rank >= first;
    if (dir)
        closedir(dir);
    return n;
}

static struct varve_ctx *other_open(struct ck_cfg cfg, int rank, int ranks, const char *run)
{
    cfg.rank = rank;
    cfg.ranks = ranks;
    cfg.run = run;
    return ck_open(&cfg);
}

/* Fewer and more ranks than wrote it; each process of the new job removes all of it. */
static void refused_and_removed(int level, int were, int now)
{
    struct ck_cfg cfg = config(level);
    struct varve_ctx *ctx[MOST];
    struct varve_history *h;
    int ranks = -1;
    job(&cfg, were, "first", 3);
    T_EQ(files_from(cfg.local, 0), 3 * were);
    for (int r = 0; r < now; r++) {
        ctx[r] = other_open(cfg, r, now, "second");
        if (r < were || level == VARVE_LEVEL_COMPLETE) {
            T_ERR(varve_history_open(ctx[r], "h", &h), -EINVAL);
            ck_error(ctx[r], -EINVAL, "varve_history_remove");
        }
        T_OK(varve_history_ranks(ctx[r], "h", &ranks));
        T_EQ(ranks, were);
    }
    for (int r = 0; r < now; r++)
        T_OK(varve_history_remove(ctx[r], "h", 0));
    T_EQ(files_from(cfg.local, 0), 0);
    T_EQ(cfg.remote ? files_from(cfg.remote, 0) : 0, 0);
    for (int r = 0; r < now; r++) {
        T_OK(varve_history_open(ctx[r], "h", &h));
        T_EQ(ck_count(h), 0);
        T_ERR(varve_history_remove(ctx[r], "h", 0), -EBUSY);
        T_OK(varve_history_remove(ctx[r], "h", now));
    }
    job_close(ctx, now);
    job(&cfg, now, "third", 2);
    ctx[0] = other_open(cfg, 0, now, "fourth");
    T_OK(varve_history_open(ctx[0], "h", &h));
    T_EQ(ck_count(h), 2);
    T_OK(varve_history_ranks(ctx[0], "h", &ranks));
    T_EQ(ranks, now == 1 && level == VARVE_LEVEL_LOCAL ? 0 : now);
    T_OK(varve_close(ctx[0]));
}

static void test_refused_and_removed(void)
{
    for (int level = VARVE_LEVEL_LOCAL; level <= VARVE_LEVEL_COMPLETE; level++) {
        refused_and_removed(level, 4, 2);
        refused_and_removed(level, 2, 4);
        refused_and_removed(level, 3, 1);
    }
}

/* A rank that opens at level remote what a job at level complete has written, or the other way round. */
static void other_level(int level, int were, int now)
{
    const int other = VARVE_LEVEL_REMOTE + VARVE_LEVEL_COMPLETE - level;
    struct ck_cfg cfg = config(level);
    struct varve_history *h;
    int ranks = -1;
    job(&cfg, were, "first", 3);
    cfg.level = other;
    cfg.local = t_tmpdir(); /* on another node */
    struct varve_ctx *ctx = other_open(cfg, 0, now, "second");
    T_ERR(varve_history_open(ctx, "h", &h), -EINVAL);
    ck_error(ctx, -EINVAL, "varve_history_remove");
    T_OK(varve_history_ranks(ctx, "h", &ranks));
    T_EQ(ranks, were);
    T_OK(varve_close(ctx));
    cfg.level = level; /* nothing was lost by that */
    ctx = other_open(cfg, 0, were, "third");
    T_OK(varve_history_open(ctx, "h", &h));
    T_EQ(ck_count(h), 3);
    T_OK(varve_close(ctx));
}

static void test_other_level(void)
{
    other_level(VARVE_LEVEL_COMPLETE, 3, 1);
    other_level(VARVE_LEVEL_COMPLETE, 2, 4);
    other_level(VARVE_LEVEL_REMOTE, 3, 2);
    other_level(VARVE_LEVEL_REMOTE, 1, 2);
}

/* The record of a version goes, too, if one rank has completed it and discards it at level remote. */
static void test_discarded_at_remote(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE);
    struct varve_history *h;
    job(&cfg, 1, "first", 3);
    cfg.level = VARVE_LEVEL_REMOTE;
    struct varve_ctx *ctx = other_open(cfg, 0, 1, "second");
    T_OK(varve_history_open(ctx, "h", &h));
    T_EQ(ck_count(h), 3);
    T_OK(varve_discard(h, 1));
    T_OK(varve_close(ctx));
    cfg.level = VARVE_LEVEL_COMPLETE;
    ctx = other_open(cfg, 0, 1, "third");
    T_OK(varve_history_open(ctx, "h", &h));
    T_EQ(ck_count(h), 2);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint(h, 1)); /* not damaged, which would be -EEXIST */
    T_OK(varve_close(ctx));
}

/* The second process removes it after the first has written again: the new files stay. */
static void test_late_process(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE);
    struct varve_ctx *ctx[2];
    struct varve_history *h[2];
    job(&cfg, 4, "first", 3);
    for (int r = 0; r < 2; r++)
        ctx[r] = other_open(cfg, r, 2, "second");
    T_OK(varve_history_remove(ctx[0], "h", 0));
    T_OK(varve_history_open(ctx[0], "h", &h[0]));
    T_OK(varve_protect(h[0], 0, buf, BYTES));
    T_OK(varve_checkpoint(h[0], 7));
    T_OK(varve_wait(h[0], 7, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    T_OK(varve_history_remove(ctx[1], "h", 0));
    T_OK(varve_history_open(ctx[1], "h", &h[1]));
    T_OK(varve_protect(h[1], 0, buf, BYTES));
    T_OK(varve_checkpoint(h[1], 7));
    for (int r = 0; r < 2; r++)
        T_OK(varve_wait(h[r], 7, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS));
    T_EQ(files_from(cfg.remote, 0), 2);
    job_close(ctx, 2);
}

/* Only files of ranks that the job does not have. */
static void test_higher_ranks(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_LOCAL);
    struct varve_ctx *ctx;
    struct varve_history *h;
    job(&cfg, 4, NULL, 3);
    ctx = other_open(cfg, 0, 4, NULL);
    T_OK(varve_history_open(ctx, "h", &h));
    T_OK(varve_history_remove(ctx, "h", 2));
    T_EQ(files_from(cfg.local, 0), 6);
    T_EQ(files_from(cfg.local, 2), 0);
    T_EQ(ck_count(h), 3);
    T_OK(varve_close(ctx));
}

/* The recorded number is damaged: it may have been another one. */
static void test_damaged_number(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_LOCAL);
    struct varve_ctx *ctx;
    struct varve_history *h;
    char path[512];
    job(&cfg, 2, NULL, 1);
    snprintf(path, sizeof(path), "%s/h/ranks.0", cfg.local);
    for (int ranks = 1; ranks <= 2; ranks++) {
        FILE *f = fopen(path, "w");
        fprintf(f, "two\n");
        fclose(f);
        ctx = other_open(cfg, 0, ranks, NULL);
        T_ERR(varve_history_open(ctx, "h", &h), -EBADMSG);
        ck_error(ctx, -EBADMSG, "ranks.0");
        T_OK(varve_close(ctx));
    }
    remove(path);
    ctx = other_open(cfg, 0, 2, NULL);
    T_EQ(ck_count(ck_history(ctx, "h")), 1);
    T_OK(varve_close(ctx));
}

static void test_bad(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE);
    struct varve_ctx *ctx = ck_open(&cfg);
    int ranks = 5;
    T_ERR(varve_history_remove(NULL, "h", 0), -EINVAL);
    T_ERR(varve_history_remove(ctx, NULL, 0), -EINVAL);
    T_ERR(varve_history_remove(ctx, "h", -1), -EINVAL);
    T_ERR(varve_history_remove(ctx, "../h", 0), -EINVAL);
    T_ERR(varve_history_ranks(ctx, "h", NULL), -EINVAL);
    T_ERR(varve_history_ranks(ctx, "../h", &ranks), -EINVAL);
    ck_error(ctx, -EINVAL, "no leading dot");
    T_EQ(ranks, 5);
    T_OK(varve_history_remove(ctx, "h", 0));
    T_OK(varve_history_ranks(ctx, "h", &ranks));
    T_EQ(ranks, 0);
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(test_refused_and_removed);
    T_RUN(test_other_level);
    T_RUN(test_discarded_at_remote);
    T_RUN(test_late_process);
    T_RUN(test_higher_ranks);
    T_RUN(test_damaged_number);
    T_RUN(test_bad);
    return t_done();
}
