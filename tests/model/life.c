/* SPDX-License-Identifier: Apache-2.0 */
#include "model/life.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <varve/varve.h>

const char *const life_op_name[OP_COUNT] = {
    "checkpoint", "poll",    "nodata", "abandon", "restore", "wait",     "flush",
    "discard",    "latest",  "resume", "hint",    "unhint",  "prefetch", "acquire",
    "release",    "reserve", "commit", "abort",   "reopen",  "kill",     "lose",
    "full",       "gone",    "once",   "remove",  "heal",
};

/* The number of operations after which an armed kill must have taken effect. */
enum { KILL_OPS = 4 };

static void append(struct world *x, const char *fmt, va_list ap)
{
    if (x->nlog + 1 >= LIFE_LOG)
        return;
    int n = vsnprintf(x->log + x->nlog, LIFE_LOG - x->nlog, fmt, ap);
    x->nlog += (unsigned)n;
    if (x->nlog >= LIFE_LOG)
        x->nlog = LIFE_LOG - 1;
}

void life_note(struct world *x, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    append(x, fmt, ap);
    va_end(ap);
}

void life_wrong(struct world *x, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(x->wrong, sizeof(x->wrong), fmt, ap);
    va_end(ap);
    _exit(1);
}

bool life_dirty(struct world *x)
{
    return x->broken || atomic_load(&x->faults.hits) != x->clean_hits;
}

void life_clean(struct world *x)
{
    if (!faults_active(&x->faults))
        x->clean_hits = atomic_load(&x->faults.hits);
}

uint32_t life_max_bytes(const struct workload *w)
{
    return 2 * w->host_pages * w->page;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    remove(path); /* files may come and go meanwhile */
    return 0;
}

void life_remove_folder(const char *path)
{
    for (int i = 0; i < 100 && access(path, F_OK) == 0; i++)
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void arm_kill(struct world *x, const struct op *op)
{
    x->kill_expected = true;
    x->kill_by = x->at + KILL_OPS;
    if (op->kind == OP_LOSE)
        x->losing = x->w.level >= VARVE_LEVEL_REMOTE;
    if (op->a == 0)
        kill(getpid(), SIGKILL);
    atomic_store(&x->faults.kill_in, (long)op->a);
}

void life_maybe_die(struct world *x)
{
    if (x->kill_by > 0 && x->at >= x->kill_by)
        kill(getpid(), SIGKILL);
}

static void remove_under(struct world *x, unsigned which)
{
    char path[LIFE_PATH + 8];
    if (!x->w.near)
        which = 2;
    if (x->w.level < VARVE_LEVEL_REMOTE)
        which = 1;
    x->broken = true;
    ref_removed(&x->ref, which == 2);
    snprintf(path, sizeof(path), "%s/%s", x->folder, which == 1 ? "near" : "far");
    life_remove_folder(path);
}

bool life_common(struct world *x, const struct op *op)
{
    switch (op->kind) {
    case OP_KILL:
    case OP_LOSE:
        arm_kill(x, op);
        return true;
    case OP_FULL:
        atomic_store(&x->faults.full, op->a & 3);
        return true;
    case OP_GONE:
        atomic_store(&x->faults.gone, op->a & 3);
        return true;
    case OP_ONCE:
        atomic_store(&x->faults.once_at, op->b & 3);
        atomic_store(&x->faults.once, op->a);
        return true;
    case OP_REMOVE:
        remove_under(x, op->a);
        return true;
    case OP_HEAL:
        faults_heal(&x->faults);
        return true;
    default:
        return false;
    }
}
