/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A workload is a text: settings, one a line, then "ops", then one operation a line with two
 * numbers. Lines that begin with # are comments.
 */
#include "model/workload.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <varve/varve.h>

#include "base/util.h"
#include "t.h"

static const struct {
    const char *name;
    size_t at;
} setting[] = {
    {"veloc", offsetof(struct workload, veloc)},
    {"level", offsetof(struct workload, level)},
    {"near", offsetof(struct workload, near)},
    {"page", offsetof(struct workload, page)},
    {"host_pages", offsetof(struct workload, host_pages)},
    {"local_pages", offsetof(struct workload, local_pages)},
    {"keep", offsetof(struct workload, keep)},
    {"keep_every", offsetof(struct workload, keep_every)},
    {"overwrite", offsetof(struct workload, overwrite)},
    {"sync", offsetof(struct workload, sync)},
    {"policy", offsetof(struct workload, policy)},
    {"direct", offsetof(struct workload, direct)},
    {"unsynced", offsetof(struct workload, unsynced)},
};

static unsigned *value(struct workload *w, size_t i)
{
    return (unsigned *)((char *)w + setting[i].at);
}

void workload_write(const struct workload *w, FILE *f)
{
    struct workload copy = *w;
    for (size_t i = 0; i < VV_ARRAY_SIZE(setting); i++)
        fprintf(f, "%s %u\n", setting[i].name, *value(&copy, i));
    fprintf(f, "ops\n");
    for (unsigned i = 0; i < w->nops; i++)
        fprintf(f, "%s %u %u\n", life_op_name[w->op[i].kind], w->op[i].a, w->op[i].b);
}

static bool read_setting(struct workload *w, const char *name, unsigned n)
{
    for (size_t i = 0; i < VV_ARRAY_SIZE(setting); i++)
        if (strcmp(name, setting[i].name) == 0) {
            *value(w, i) = n;
            return true;
        }
    return false;
}

static bool read_op(struct workload *w, const char *name, unsigned a, unsigned b)
{
    for (unsigned k = 0; k < OP_COUNT && w->nops < LIFE_MAX_OPS; k++)
        if (strcmp(name, life_op_name[k]) == 0) {
            w->op[w->nops++] = (struct op){k, a, b};
            return true;
        }
    return false;
}

const char *workload_read(struct workload *w, FILE *f)
{
    static char line[200];
    bool ops = false;
    memset(w, 0, sizeof(*w));
    while (fgets(line, sizeof(line), f)) {
        char name[32];
        unsigned a = 0, b = 0;
        if (line[0] == '#' || sscanf(line, "%31s %u %u", name, &a, &b) < 1)
            continue;
        if (strcmp(name, "ops") == 0)
            ops = true;
        else if (ops ? !read_op(w, name, a, b) : !read_setting(w, name, a))
            return line;
    }
    return w->page && w->host_pages ? NULL : "page and host_pages are missing";
}

/* ---- drawing ---- */

static unsigned below(struct t_rng *r, unsigned n)
{
    return (unsigned)t_rng_below(r, n);
}

static unsigned draw_bytes(struct t_rng *r, const struct workload *w)
{
    unsigned cache = w->host_pages * w->page, half = cache / 2;
    switch (below(r, 6)) {
    case 0:
    case 1:
        return 8 + below(r, w->page * 2);
    case 2:
        return 8 + below(r, half);
    case 3:
    case 4:
        return half + 1 + below(r, half);
    default:
        return cache + 1 + below(r, half);
    }
}

static void draw_settings(struct t_rng *r, struct workload *w)
{
    static const unsigned keeps[] = {0, 0, 0, 1, 2, 2, 3}, everies[] = {0, 0, 0, 2, 3};
    static const unsigned hosts[] = {8, 16, 16, 32};
    w->veloc = below(r, 3) == 0;
    w->page = below(r, 12) ? 4096 : 65536;
    w->host_pages = hosts[below(r, VV_ARRAY_SIZE(hosts))];
    w->keep = keeps[below(r, VV_ARRAY_SIZE(keeps))];
    w->direct = below(r, 2);
    w->unsynced = below(r, 3) == 0;
    if (w->veloc) {
        w->level = below(r, 3) ? VARVE_LEVEL_REMOTE : VARVE_LEVEL_LOCAL;
        w->near = w->overwrite = 1;
        w->sync = below(r, 3) == 0;
        return;
    }
    w->level = VARVE_LEVEL_LOCAL + below(r, 3);
    w->near = w->level == VARVE_LEVEL_LOCAL || below(r, 2);
    w->keep_every = w->keep && w->level > VARVE_LEVEL_LOCAL ? everies[below(r, 5)] : 0;
    if (w->keep && w->level == VARVE_LEVEL_LOCAL && below(r, 8) == 0)
        w->keep_every = 2;
    w->overwrite = below(r, 5) > 0;
    w->local_pages = below(r, 5) ? 0 : w->host_pages * (1 + below(r, 8));
    w->policy = below(r, 8) ? VARVE_POLICY_NEXT : below(r, VARVE_POLICY_LRU + 1);
}

static enum life_op draw_trouble(struct t_rng *r)
{
    static const enum life_op kinds[] = {OP_FULL, OP_FULL, OP_FULL, OP_GONE, OP_ONCE, OP_ONCE,
                                         OP_KILL, OP_KILL, OP_KILL, OP_LOSE, OP_HEAL, OP_REOPEN};
    return below(r, 30) ? kinds[below(r, VV_ARRAY_SIZE(kinds))] : OP_REMOVE;
}

static enum life_op draw_kind(struct t_rng *r, const struct workload *w)
{
    static const enum life_op ckpt[] = {
        OP_CHECKPOINT, OP_CHECKPOINT, OP_CHECKPOINT, OP_CHECKPOINT, OP_CHECKPOINT, OP_POLL,
        OP_NODATA,     OP_RESTORE,    OP_RESTORE,    OP_WAIT,       OP_WAIT,       OP_FLUSH,
        OP_DISCARD,    OP_LATEST,     OP_RESUME,     OP_HINT,       OP_HINT,       OP_UNHINT,
        OP_PREFETCH,   OP_ACQUIRE,    OP_ACQUIRE,    OP_RELEASE,    OP_RESERVE,    OP_COMMIT,
        OP_ABORT,      OP_REOPEN,
    };
    static const enum life_op veloc[] = {
        OP_CHECKPOINT, OP_CHECKPOINT, OP_CHECKPOINT, OP_CHECKPOINT, OP_POLL,
        OP_POLL,       OP_NODATA,     OP_ABANDON,    OP_ABANDON,    OP_RESTORE,
        OP_WAIT,       OP_WAIT,       OP_LATEST,     OP_HINT,       OP_REOPEN,
    };
    if (w->veloc)
        return veloc[below(r, VV_ARRAY_SIZE(veloc))];
    return ckpt[below(r, VV_ARRAY_SIZE(ckpt))];
}

static void append(struct workload *w, enum life_op kind, unsigned a, unsigned b)
{
    w->op[w->nops++] = (struct op){kind, a, b};
}

/* A life leaves a version on local disk that was not copied to the shared folder, and the next life
 * fails to write it again. Operations drawn one by one rarely have this order. */
static void draw_unfinished(struct t_rng *r, struct workload *w, unsigned version)
{
    append(w, OP_HEAL, 0, 0);
    append(w, OP_FULL, 2, 0);
    append(w, OP_CHECKPOINT, version, 8 + below(r, 2 * w->page));
    append(w, OP_WAIT, version, 1);
    append(w, OP_KILL, 0, 0);
    if (below(r, 2)) {
        append(w, OP_NODATA, version, 0);
    } else {
        append(w, OP_KILL, 1 + below(r, 20), 0);
        append(w, OP_CHECKPOINT, version, 8 + below(r, 2 * w->page));
    }
}

void workload_draw(struct workload *w, uint64_t seed)
{
    struct t_rng r = {seed};
    bool troubled = seed % 4 != 0;
    memset(w, 0, sizeof(*w));
    draw_settings(&r, w);
    unsigned versions = 2 + below(&r, 5), last = 0;
    w->nops = 6 + below(&r, 26);
    for (unsigned i = 0; i < w->nops; i++) {
        struct op *op = &w->op[i];
        op->kind = troubled && below(&r, 4) == 0 ? draw_trouble(&r) : draw_kind(&r, w);
        /* Often the same version as before, so that one version goes through several operations. */
        last = op->a = below(&r, 2) ? below(&r, versions) : last;
        op->b = draw_bytes(&r, w);
        if (op->kind == OP_FULL || op->kind == OP_GONE)
            op->a = 1 + below(&r, 3);
        if (op->kind == OP_REMOVE)
            op->a = 1 + below(&r, 2);
        if (op->kind == OP_ONCE) {
            op->a = 1 + below(&r, FAULTS_ONCE_KINDS - 1);
            op->b = 1 + below(&r, 3);
        }
        if (op->kind == OP_KILL || op->kind == OP_LOSE)
            op->a = below(&r, 3) ? 1 + below(&r, 80) : 0;
        if (op->kind == OP_WAIT || op->kind == OP_REOPEN)
            op->b = below(&r, 2);
    }
    if (seed % 4 == 3 && w->near && w->level == VARVE_LEVEL_REMOTE)
        draw_unfinished(&r, w, versions);
}
