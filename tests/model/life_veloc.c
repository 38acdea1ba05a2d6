/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A life of the library model that uses VELOC's interface.
 *
 * VELOC gives up a version that failed in the background, and reports that once. After a failure,
 * the newest generations of all versions may be gone, but none that was known to be safe.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VELOC_NO_MPI
#include <veloc.h>

#include <varve/varve.h>

#include "ckpt/ckpt_hooks.h"
#include "model/life.h"
#include "t.h"

enum { TRIES = 4 };

struct life {
    struct world *x;
    char *buf;
    uint32_t room;
};

static struct ref_version *version_of(struct life *l, unsigned v)
{
    return &l->x->ref.version[v];
}

static const char *result(int rc)
{
    return rc == VELOC_SUCCESS ? "success" : "failure";
}

static void write_config(const struct world *x, char path[LIFE_PATH + 16])
{
    const struct workload *w = &x->w;
    snprintf(path, LIFE_PATH + 16, "%s/veloc.cfg", x->folder);
    FILE *f = fopen(path, "w");
    T_CHECK(f);
    fprintf(f, "scratch = %s/near\nmode = %s\nmax_versions = %u\n", x->folder,
            w->sync ? "sync" : "async", w->keep);
    if (w->level == VARVE_LEVEL_REMOTE)
        fprintf(f, "persistent = %s/far\n", x->folder);
    fprintf(f,
            "[varve]\nhost_cache = %u\npage = %u\nlocal_io = %s\nhelpers = 0\nstats = off\n"
            "local_sync = %s\ndevice = none\n",
            w->host_pages * w->page, w->page, w->direct ? "auto" : "buffered",
            w->unsynced ? "off" : "commit");
    T_EQ(fclose(f), 0);
}

/* ---- restarting ---- */

static bool unreadable(struct life *l)
{
    return l->x->broken || atomic_load(&l->x->faults.gone) || atomic_load(&l->x->faults.once);
}

static void restart(struct life *l, unsigned v)
{
    struct ref_version *rv = version_of(l, v);
    int rc = VELOC_FAILURE;
    T_EQ(VELOC_Mem_protect(0, l->buf, l->room, 1), VELOC_SUCCESS);
    /* A read under a fault, its own or that of a prefetch, takes one try. */
    for (int i = 0; i < TRIES && rc != VELOC_SUCCESS && (i == 0 || life_dirty(l->x)); i++) {
        memset(l->buf, 0xdd, l->room);
        rc = VELOC_Restart("h", (int)v);
        life_note(l->x, " restart %u: %s", v, result(rc));
    }
    if (rc != VELOC_SUCCESS) {
        if (!unreadable(l) && ref_must(&rv->now) && !rv->droppable)
            life_wrong(l->x, "VELOC_Restart %u: failure, but the reference has %s", v,
                       ref_text(&rv->now));
        return;
    }
    unsigned gen = ref_identify(&l->x->ref, l->buf, l->room);
    if (gen == 0 || !ref_has(&rv->now, gen))
        life_wrong(l->x, "version %u: wrong bytes, of generation %u; allowed: %s", v, gen,
                   ref_text(&rv->now));
    ref_seen_as(&l->x->ref, v, gen);
}

/* Checks that the highest version not above `limit` (0: any) is offered. */
static void restart_test(struct life *l, unsigned limit)
{
    struct ref *r = &l->x->ref;
    int got = VELOC_Restart_test("h", (int)limit);
    life_note(l->x, " test %u: %d", limit, got);
    if (got >= 0 && (got >= (int)r->nversions || ref_cannot(&r->version[got].now) ||
                     (limit > 0 && got > (int)limit)))
        life_wrong(l->x, "VELOC_Restart_test %u: %d, which cannot be there", limit, got);
    for (int v = got + 1; v < (int)r->nversions && (limit == 0 || v <= (int)limit); v++) {
        const struct ref_version *rv = &r->version[v];
        if (ref_must(&rv->now) && !rv->droppable && !unreadable(l))
            life_wrong(l->x, "VELOC_Restart_test %u: %d, but version %d must be there: %s", limit,
                       got, v, ref_text(&rv->now));
    }
}

/* ---- checkpoints ---- */

static void failed(struct life *l, const char *call)
{
    if (!life_dirty(l->x))
        life_wrong(l->x, "%s: failure, and nothing was wrong", call);
    ref_given_up(&l->x->ref);
}

/* Makes the three calls of a checkpoint. */
static int in_steps(struct world *x, unsigned v, int success)
{
    int rc = VELOC_Checkpoint_begin("h", (int)v);
    life_note(x, " begin: %s", result(rc));
    if (rc != VELOC_SUCCESS)
        return rc;
    rc = VELOC_Checkpoint_mem();
    life_note(x, " mem: %s", result(rc));
    int end = VELOC_Checkpoint_end(rc == VELOC_SUCCESS && success);
    life_note(x, " end: %s", result(end));
    return rc != VELOC_SUCCESS ? rc : end;
}

static void do_checkpoint(struct life *l, const struct op *op)
{
    struct world *x = l->x;
    unsigned v = op->a;
    uint32_t bytes = op->b < 8 ? 8 : op->b > l->room ? l->room : op->b;
    unsigned gen = ref_begin(&x->ref, v, bytes);
    ref_fill(l->buf, bytes, gen);
    life_note(x, " generation %u", gen);
    T_EQ(VELOC_Mem_protect(0, l->buf, bytes, 1), VELOC_SUCCESS);
    int rc = op->kind == OP_CHECKPOINT ? VELOC_Checkpoint("h", (int)v)
                                       : in_steps(x, v, op->kind == OP_POLL);
    life_note(x, ": %s", result(rc));
    if (op->kind == OP_ABANDON && rc == VELOC_SUCCESS) {
        ref_failed(&x->ref, v, gen);
        return;
    }
    if (rc != VELOC_SUCCESS) {
        /* If storage fails even during the cleanup, the version may remain. */
        if (!life_dirty(x) || op->kind == OP_CHECKPOINT)
            ref_failed(&x->ref, v, gen);
        failed(l, life_op_name[op->kind]);
        return;
    }
    ref_written(&x->ref, v, gen);
    if (x->w.sync)
        ref_reached(&x->ref, v, true);
}

static void do_nodata(struct life *l, const struct op *op)
{
    T_EQ(VELOC_Mem_unprotect(0), VELOC_SUCCESS);
    int rc = VELOC_Checkpoint("h", (int)op->a);
    life_note(l->x, " %s", result(rc));
    if (rc == VELOC_SUCCESS)
        life_wrong(l->x, "VELOC_Checkpoint without a region: success");
    if (life_dirty(l->x))
        ref_given_up(&l->x->ref);
    T_EQ(VELOC_Mem_protect(0, l->buf, l->room, 1), VELOC_SUCCESS);
}

static bool wait_all(struct life *l)
{
    int rc = VELOC_Checkpoint_wait();
    life_note(l->x, " wait: %s", result(rc));
    if (rc != VELOC_SUCCESS) {
        failed(l, "VELOC_Checkpoint_wait");
        return false;
    }
    /* Versions of an earlier life may still be on their way. */
    for (unsigned v = 0; v < l->x->ref.nversions; v++)
        if (ref_ours(&l->x->ref, v))
            ref_reached_at_least(&l->x->ref, v, true);
    return true;
}

/* ---- lives ---- */

static void check_opened(struct life *l)
{
    struct ref *r = &l->x->ref;
    for (unsigned v = 0; v < r->nversions; v++) {
        size_t bytes = VELOC_Recover_ckpt_size("h", (int)v, 0);
        const struct ref_version *rv = &r->version[v];
        bool there = bytes != (size_t)-1;
        if (there && ref_cannot(&rv->now))
            life_wrong(l->x, "version %u is there, but cannot be", v);
        if (!there && ref_must(&rv->now) && !rv->droppable)
            life_wrong(l->x, "version %u is gone at the opening: it must be there, generation %s",
                       v, ref_text(&rv->now));
        if (there)
            ref_seen(r, v);
        else
            ref_missed(r, v, true);
    }
}

static void init(struct life *l)
{
    struct world *x = l->x;
    char path[LIFE_PATH + 16];
    /* An undisturbed opening finds every version. */
    faults_heal(&x->faults);
    write_config(x, path);
    int rc = VELOC_Init_single(0, path);
    life_note(x, " init: %s", result(rc));
    if (rc != VELOC_SUCCESS)
        life_wrong(x, "VELOC_Init_single: failure");
    x->broken = false;
    ref_open(&x->ref, x->lose);
    x->lose = false;
    life_clean(x);
    T_EQ(VELOC_Mem_protect(0, l->buf, l->room, 1), VELOC_SUCCESS);
    check_opened(l);
}

static void finalize(struct life *l, int drain)
{
    int rc = VELOC_Finalize(drain);
    life_note(l->x, " finalize %d: %s", drain, result(rc));
    if (rc == VELOC_SUCCESS && (drain || !life_dirty(l->x)))
        for (unsigned v = 0; v < l->x->ref.nversions; v++)
            ref_reached(&l->x->ref, v, true);
    if (rc != VELOC_SUCCESS)
        failed(l, "VELOC_Finalize");
}

static void do_op(struct life *l, const struct op *op)
{
    switch (op->kind) {
    case OP_CHECKPOINT:
    case OP_POLL:
    case OP_ABANDON:
        do_checkpoint(l, op);
        break;
    case OP_NODATA:
        do_nodata(l, op);
        break;
    case OP_RESTORE:
        restart(l, op->a);
        break;
    case OP_WAIT:
    case OP_FLUSH:
        wait_all(l);
        break;
    case OP_LATEST:
        restart_test(l, op->a);
        break;
    case OP_HINT:
        VELOC_Prefetch_enqueue("h", (int)op->a);
        break;
    case OP_PREFETCH:
        VELOC_Prefetch_start();
        break;
    case OP_REOPEN:
        finalize(l, (int)op->b % 2);
        init(l);
        break;
    default:
        life_common(l->x, op);
    }
}

static void restart_all(struct life *l)
{
    for (unsigned v = 0; v < l->x->ref.nversions; v++)
        restart(l, v);
}

static __attribute__((noreturn)) void finish(struct life *l)
{
    struct world *x = l->x;
    life_note(x, "   end:");
    faults_heal(&x->faults);
    restart_test(l, 0);
    restart_all(l);
    for (int i = 0; i < 4 && !wait_all(l); i++)
        ;
    finalize(l, 1);
    init(l);
    restart_test(l, 0);
    restart_all(l);
    finalize(l, 1);
    x->done = true;
    _exit(0);
}

void life_veloc(struct world *x)
{
    struct vv_ckpt_hooks hooks = {.os = faults_os(&x->faults)};
    struct life life = {.x = x, .room = life_max_bytes(&x->w)}, *l = &life;
    vv_ckpt_set_hooks(&hooks);
    l->buf = malloc(l->room);
    T_CHECK(l->buf);
    init(l);
    if (x->lives % 2 == 0)
        restart_all(l);
    for (; x->at < x->w.nops; x->at++) {
        const struct op *op = &x->w.op[x->at];
        life_maybe_die(x);
        life_note(x, "%2u %s %u %u:", x->at, life_op_name[op->kind], op->a, op->b);
        do_op(l, op);
        life_note(x, "\n");
    }
    life_maybe_die(x);
    finish(l);
}
