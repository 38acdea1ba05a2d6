/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A life of the library model that uses varve/ckpt.h.
 *
 * After each operation the list of versions is checked, so that a version that disappears or
 * returns without reason is found at once. The test accepts errors only if a fault has struck since
 * the last clean state, and -ENOENT only if the version does not exist.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/util.h"
#include "ckpt/ckpt_hooks.h"
#include "model/life.h"
#include "t.h"

enum { LEASES = 2, TRIES = 4 };

struct lease {
    bool used;
    unsigned version, gen;
    void *ptr;
    size_t bytes;
};

struct life {
    struct world *x;
    struct varve_ctx *ctx;
    struct varve_history *h;
    char *buf;
    uint32_t room;
    bool resumed;
    struct lease lease[LEASES];
    struct {
        bool used;
        unsigned version;
        uint32_t bytes;
        void *ptr;
    } reserved;
};

static struct ref_version *version_of(struct life *l, unsigned v)
{
    return &l->x->ref.version[v];
}

/* True if the library may return this error now. */
static bool excused(struct life *l, int rc)
{
    return life_dirty(l->x) && rc != -ENOENT && rc != -EEXIST && rc != -EINVAL;
}

/* ---- opening ---- */

static void fill_opts(const struct world *x, struct varve_opts *o)
{
    const struct workload *w = &x->w;
    T_OK(varve_opts_init(o, sizeof(*o)));
    o->device = VARVE_DEVICE_NONE;
    o->level = (int)w->level;
    o->policy = (int)w->policy;
    o->local_io = w->direct ? VARVE_LOCAL_IO_AUTO : VARVE_LOCAL_IO_BUFFERED;
    o->local_sync = w->unsynced ? VARVE_LOCAL_SYNC_OFF : VARVE_LOCAL_SYNC_COMMIT;
    o->host_cache = (uint64_t)w->host_pages * w->page;
    o->local_cache = (uint64_t)w->local_pages * w->page;
    o->page_bytes = w->page;
    o->close_timeout_ms = -1;
    o->helpers = 0;
    snprintf(o->stats, sizeof(o->stats), "off");
    if (w->near)
        snprintf(o->local, sizeof(o->local), "%s/near", x->folder);
    if (w->level >= VARVE_LEVEL_REMOTE)
        snprintf(o->remote, sizeof(o->remote), "%s/far", x->folder);
}

static int open_once(struct life *l)
{
    struct varve_history_opts ho;
    struct varve_opts o;
    fill_opts(l->x, &o);
    T_OK(varve_history_opts_init(&ho, sizeof(ho)));
    ho.keep = l->x->w.keep;
    ho.keep_every = l->x->w.keep_every;
    ho.overwrite = l->x->w.overwrite != 0;
    int rc = varve_open(&o, &l->ctx);
    if (rc)
        return rc;
    rc = varve_history_open_with(l->ctx, "h", &ho, &l->h);
    if (rc)
        varve_close(l->ctx);
    return rc;
}

/* True if as many versions newer than `v` as retention keeps may have reached the level. */
static bool enough_newer(struct life *l, unsigned v, const bool *listed, bool opening)
{
    struct ref *r = &l->x->ref;
    unsigned n = 0;
    for (unsigned w = 0; w < r->nversions; w++) {
        enum varve_level level = VARVE_LEVEL_CACHED;
        bool there = listed[w] && ref_may_be_newer(r, w, v);
        if (there && !opening) {
            /* Gone since it was listed: retention ended it, which happens only to safe versions. */
            int rc = varve_version_level(l->h, w, &level);
            there = rc == -ENOENT || (rc == 0 && (unsigned)level >= l->x->w.level);
        }
        n += there || (w != v && r->version[w].before > r->version[v].now.gen[0]);
    }
    return n >= r->keep;
}

static void check_order(struct life *l, const uint64_t *list, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (ref_is_newer(&l->x->ref, (unsigned)list[i - 1], (unsigned)list[i]))
            life_wrong(l->x, "varve_versions: %u stands before %u, but was written after it",
                       (unsigned)list[i - 1], (unsigned)list[i]);
}

static void check_retention(struct life *l, const bool *listed)
{
    struct ref *r = &l->x->ref;
    for (unsigned v = 0; v < r->nversions; v++) {
        unsigned newer = 0;
        for (unsigned w = 0; w < r->nversions; w++)
            newer += listed[w] && ref_is_newer(r, w, v);
        if (listed[v] && !ref_kept_always(r, v) && newer >= r->keep)
            life_wrong(l->x, "retention: version %u is left, though %u newer ones are there", v,
                       newer);
    }
}

/* `exact`: everything has reached the level, so that retention has removed all that it must. */
static void check_versions(struct life *l, bool opening, bool exact)
{
    struct ref *r = &l->x->ref;
    uint64_t list[REF_VERSIONS * 2];
    bool listed[REF_VERSIONS] = {false}, missed[REF_VERSIONS] = {false};
    size_t n = 0;
    int rc = varve_versions(l->h, list, VV_ARRAY_SIZE(list), &n);
    if (rc || n > VV_ARRAY_SIZE(list))
        life_wrong(l->x, "varve_versions: %s, %zu versions", t_errname(rc), n);
    for (size_t i = 0; i < n; i++) {
        if (list[i] >= r->nversions || listed[list[i]] ||
            ref_cannot(&version_of(l, (unsigned)list[i])->now))
            life_wrong(l->x, "version %llu is listed, but cannot be there",
                       (unsigned long long)list[i]);
        listed[list[i]] = true;
    }
    for (unsigned v = 0; v < r->nversions; v++) {
        const struct ref_version *x = version_of(l, v);
        if (listed[v])
            ref_seen(r, v);
        else if (x->now.n > 0) {
            if (!x->now.missing && !(x->droppable && enough_newer(l, v, listed, opening)))
                life_wrong(l->x, "version %u is gone%s: it must be there, generation %s, %s", v,
                           opening ? " at the opening" : "", ref_text(&x->now),
                           x->next.missing ? "which was not safe yet" : "and one was safe");
            missed[v] = true;
        }
    }
    check_order(l, list, n);
    /* At level complete, closing only waits for what one rank can do for its versions alone. */
    if (exact && !(opening && l->x->w.level == VARVE_LEVEL_COMPLETE))
        check_retention(l, listed);
    for (unsigned v = 0; v < r->nversions; v++)
        if (missed[v] || (opening && !listed[v]))
            ref_missed(r, v, opening);
}

static void open_life(struct life *l, bool exact)
{
    struct world *x = l->x;
    unsigned hits = atomic_load(&x->faults.hits);
    int rc = open_once(l);
    if (rc && (faults_active(&x->faults) || atomic_load(&x->faults.hits) != hits)) {
        life_note(x, "   opening under faults: %s\n", t_errname(rc));
        faults_heal(&x->faults);
        rc = open_once(l);
    }
    if (rc) {
        struct varve_error e = {.error_size = sizeof(e)};
        bool known = varve_last_error(NULL, &e) == 0;
        life_wrong(x, "opening: %s (%s)", t_errname(rc), known ? e.text : "");
    }
    x->broken = false;
    ref_open(&x->ref, x->lose);
    x->lose = false;
    life_clean(x);
    check_versions(l, true, exact);
}

/* ---- writing ---- */

static void check_checkpoint(struct life *l, unsigned v, int rc, bool existed, bool spared)
{
    const struct workload *w = &l->x->w;
    if (rc == 0) {
        if (existed && !w->overwrite && !spared)
            life_wrong(l->x, "checkpoint %u: 0, but the version exists", v);
        return;
    }
    if (excused(l, rc))
        return;
    if (rc == -EEXIST && existed && !w->overwrite)
        return;
    bool lent = l->reserved.used;
    for (int i = 0; i < LEASES; i++)
        lent |= l->lease[i].used;
    if ((rc == -ENOSPC || rc == -EFBIG) && (w->local_pages || lent))
        return;
    life_wrong(l->x, "checkpoint %u: %s, and nothing was wrong", v, t_errname(rc));
}

static void do_checkpoint(struct life *l, const struct op *op)
{
    struct world *x = l->x;
    unsigned v = op->a;
    struct ref_version *rv = version_of(l, v);
    uint32_t bytes = op->b < 8 ? 8 : op->b > l->room ? l->room : op->b;
    bool existed = rv->now.n > 0, spared = rv->opened || rv->droppable;
    unsigned gen = ref_begin(&x->ref, v, bytes);
    ref_fill(l->buf, bytes, gen);
    T_OK(varve_protect(l->h, 0, l->buf, bytes));
    int rc = op->kind == OP_POLL ? varve_checkpoint_for(l->h, v, 0) : varve_checkpoint(l->h, v);
    memset(l->buf, 0xee, bytes);
    life_note(x, " generation %u: %s", gen, t_errname(rc));
    /* A put that timed out may have been committing its file: a kill may come before the
     * removal. */
    if (rc && rc != -ETIMEDOUT)
        ref_failed(&x->ref, v, gen);
    else if (rc == 0)
        ref_written(&x->ref, v, gen);
    if (op->kind == OP_POLL && rc == -ETIMEDOUT)
        return;
    /* A version found by an opening may have been left unfinished by an earlier life, or precede
     * the resumed one. A version that retention may have removed need not exist. */
    check_checkpoint(l, v, rc, existed, spared || x->lives > 1 || l->resumed);
}

static void do_nodata(struct life *l, const struct op *op)
{
    varve_unprotect(l->h, 0);
    int rc = varve_checkpoint(l->h, op->a);
    life_note(l->x, " %s", t_errname(rc));
    if (rc == -ENODATA || excused(l, rc) || (rc == -EEXIST && version_of(l, op->a)->now.n > 0))
        return;
    life_wrong(l->x, "checkpoint %u without a region: %s", op->a, t_errname(rc));
}

static void do_discard(struct life *l, const struct op *op)
{
    struct ref_version *rv = version_of(l, op->a);
    bool may = rv->now.n > 0, must = may && !rv->now.missing && !rv->droppable;
    ref_discarding(&l->x->ref, op->a);
    int rc = varve_discard(l->h, op->a);
    life_note(l->x, " %s", t_errname(rc));
    if ((rc == 0 && may) || (rc == -ENOENT && !must)) {
        ref_discarded(&l->x->ref, op->a);
        return;
    }
    life_wrong(l->x, "discard %u: %s, but the reference has %s", op->a, t_errname(rc),
               ref_text(&rv->now));
}

/* ---- reading ---- */

/* Checks that the bytes of a region are those of a generation that the version may have. */
static unsigned check_bytes(struct life *l, unsigned v, const void *buf, size_t room)
{
    unsigned gen = ref_identify(&l->x->ref, buf, room);
    if (gen == 0 || !ref_has(&version_of(l, v)->now, gen))
        life_wrong(l->x, "version %u: wrong bytes, of generation %u; allowed: %s", v, gen,
                   ref_text(&version_of(l, v)->now));
    return gen;
}

/* The version named by the last error, if it is another one; otherwise 0. */
static unsigned blamed(struct life *l, int rc, unsigned v)
{
    struct varve_error e = {.error_size = sizeof(e)};
    return varve_last_error(l->ctx, &e) == 0 && e.err == rc ? (unsigned)e.version : v;
}

/* True if its folders cannot be opened: only then may a version be unreadable. */
static bool unreadable(struct life *l)
{
    return l->x->broken || atomic_load(&l->x->faults.gone) || atomic_load(&l->x->faults.once);
}

static void check_absence(struct life *l, unsigned v, int rc, const char *call)
{
    struct ref_version *rv = version_of(l, v);
    if (rc == -ENOENT && (rv->now.n == 0 || rv->now.missing || rv->droppable))
        return;
    life_wrong(l->x, "%s %u: %s, but the reference has %s", call, v, t_errname(rc),
               ref_text(&rv->now));
}

static void restore(struct life *l, unsigned v)
{
    struct ref_version *rv = version_of(l, v);
    int rc = 0;
    T_OK(varve_protect(l->h, 0, l->buf, l->room));
    for (int i = 0; i < TRIES; i++) {
        memset(l->buf, 0xdd, l->room);
        rc = varve_restore(l->h, v);
        life_note(l->x, " restore %u: %s", v, t_errname(rc));
        if (rc == 0 || rc == -ENOENT || !excused(l, rc))
            break;
        if (blamed(l, rc, v) != v)
            life_wrong(l->x, "restore %u: %s, for the trouble of version %u", v, t_errname(rc),
                       blamed(l, rc, v));
        if (unreadable(l))
            return;
    }
    if (rc == 0 && rv->now.n == 0)
        life_wrong(l->x, "restore %u: 0, but there is no such version", v);
    if (rc)
        check_absence(l, v, rc, "restore");
    else
        ref_seen_as(&l->x->ref, v, check_bytes(l, v, l->buf, l->room));
}

static void check_size(struct life *l, unsigned v)
{
    const struct ref_version *rv = version_of(l, v);
    size_t bytes = 0;
    if (rv->now.n == 1 && varve_region_size(l->h, v, 0, &bytes) == 0 &&
        bytes != l->x->ref.bytes[rv->now.gen[0]])
        life_wrong(l->x, "version %u has %zu bytes, but generation %u has %u", v, bytes,
                   rv->now.gen[0], l->x->ref.bytes[rv->now.gen[0]]);
}

static void do_latest(struct life *l)
{
    struct ref *r = &l->x->ref;
    uint64_t latest = 0;
    int rc = varve_latest(l->h, &latest);
    life_note(l->x, " %s, %llu", t_errname(rc), (unsigned long long)latest);
    if (rc && rc != -ENOENT)
        life_wrong(l->x, "varve_latest: %s", t_errname(rc));
    if (rc == 0 && (latest >= r->nversions || r->version[latest].now.n == 0))
        life_wrong(l->x, "varve_latest: %llu, which is not there", (unsigned long long)latest);
    for (unsigned v = 0; v < r->nversions; v++) {
        const struct ref_version *x = &r->version[v];
        bool safe = x->now.n == 1 && !x->next.missing && !x->node.missing && x->next.n == 1 &&
                    x->node.n == 1 && x->next.gen[0] == x->now.gen[0] &&
                    x->node.gen[0] == x->now.gen[0] && !x->droppable;
        if (safe && rc)
            life_wrong(l->x, "varve_latest: %s, but version %u is safe", t_errname(rc), v);
        if (safe && ref_is_newer(r, v, (unsigned)latest))
            life_wrong(l->x, "varve_latest: %u, but version %u is safe and newer", (unsigned)latest,
                       v);
    }
}

/* ---- waiting ---- */

static void do_wait(struct life *l, const struct op *op)
{
    struct world *x = l->x;
    unsigned v = op->a;
    bool local = op->b % 2 && x->w.near;
    enum varve_level level = local ? VARVE_LEVEL_LOCAL : (enum varve_level)x->w.level;
    int rc = 0;
    for (int i = 0; i < TRIES; i++) {
        rc = varve_wait(l->h, v, level, -1);
        life_note(x, " %s", t_errname(rc));
        if (rc == 0 || rc == -ENOENT || !excused(l, rc))
            break;
        if (faults_active(&x->faults) || x->broken || x->w.local_pages)
            return;
    }
    if (rc == 0 && version_of(l, v)->now.n == 0)
        life_wrong(x, "wait %u: 0, but there is no such version", v);
    if (rc)
        check_absence(l, v, rc, "wait");
    else
        ref_reached_at_least(&x->ref, v, !local || x->w.level == VARVE_LEVEL_LOCAL);
}

/* True if everything has reached the level. */
static bool flush(struct life *l)
{
    struct world *x = l->x;
    int rc = 0;
    for (unsigned i = 0; i < TRIES + REF_VERSIONS; i++) {
        rc = varve_flush(l->h, -1);
        life_note(x, " flush: %s", t_errname(rc));
        if (rc == 0)
            break;
        if (rc == -ENOENT || !excused(l, rc)) {
            if (x->w.local_pages && (rc == -ENOSPC || rc == -EFBIG))
                return false;
            life_wrong(x, "flush: %s, and nothing was wrong", t_errname(rc));
        }
        if (faults_active(&x->faults) || x->broken)
            return false;
    }
    if (rc && x->w.local_pages)
        return false;
    if (rc)
        life_wrong(x, "flush: %s, again and again, though nothing is wrong any more",
                   t_errname(rc));
    check_versions(l, false, !x->broken);
    ref_flushed(&x->ref);
    life_clean(x);
    return true;
}

/* ---- leases ---- */

static void do_acquire(struct life *l, const struct op *op)
{
    struct lease *s = NULL;
    bool lent = false;
    for (int i = 0; i < LEASES; i++) {
        if (!l->lease[i].used)
            s = &l->lease[i];
        lent |= l->lease[i].used && l->lease[i].version == op->a;
    }
    if (!s || lent)
        return;
    int rc = varve_acquire(l->h, op->a, 0, NULL, &s->ptr, &s->bytes);
    life_note(l->x, " %s", t_errname(rc));
    if (rc == 0) {
        s->gen = check_bytes(l, op->a, s->ptr, s->bytes);
        s->version = op->a;
        s->used = true;
        ref_seen_as(&l->x->ref, op->a, s->gen);
        return;
    }
    if (rc == -ENOENT)
        check_absence(l, op->a, rc, "acquire");
    else if (rc != -ENOSPC && rc != -EFBIG && !excused(l, rc))
        life_wrong(l->x, "acquire %u: %s", op->a, t_errname(rc));
}

static void release(struct life *l)
{
    for (int i = 0; i < LEASES; i++) {
        struct lease *s = &l->lease[i];
        if (!s->used)
            continue;
        s->used = false;
        if (ref_identify(&l->x->ref, s->ptr, s->bytes) != s->gen)
            life_wrong(l->x, "the lent bytes of version %u have changed", s->version);
        int rc = varve_release(l->h, s->version, 0, NULL);
        life_note(l->x, " release %u: %s", s->version, t_errname(rc));
        if (rc)
            life_wrong(l->x, "release %u: %s", s->version, t_errname(rc));
        return;
    }
}

static void do_reserve(struct life *l, const struct op *op)
{
    if (l->reserved.used)
        return;
    l->reserved.version = op->a;
    l->reserved.bytes = op->b < 8 ? 8 : op->b;
    int rc = varve_reserve_for(l->h, op->a, 0, l->reserved.bytes, NULL, 0, &l->reserved.ptr);
    life_note(l->x, " %s", t_errname(rc));
    l->reserved.used = rc == 0;
    if (rc == -ENOENT || (rc == -EEXIST && version_of(l, op->a)->now.n == 0))
        life_wrong(l->x, "reserve %u: %s", op->a, t_errname(rc));
}

static void do_commit(struct life *l)
{
    struct world *x = l->x;
    unsigned v = l->reserved.version;
    if (!l->reserved.used)
        return;
    bool existed = version_of(l, v)->now.n > 0;
    unsigned gen = ref_begin(&x->ref, v, l->reserved.bytes);
    ref_fill(l->reserved.ptr, l->reserved.bytes, gen);
    int rc = varve_commit(l->h, v, NULL);
    life_note(x, " version %u generation %u: %s", v, gen, t_errname(rc));
    if (rc)
        ref_failed(&x->ref, v, gen);
    else
        ref_written(&x->ref, v, gen);
    if (rc == 0 || varve_abort(l->h, v) == 0)
        l->reserved.used = false;
    if (rc && !excused(l, rc) && rc != -ENOSPC && rc != -EFBIG && !(rc == -EEXIST && existed))
        life_wrong(x, "commit %u: %s", v, t_errname(rc));
}

static void do_abort(struct life *l)
{
    if (!l->reserved.used)
        return;
    int rc = varve_abort(l->h, l->reserved.version);
    life_note(l->x, " version %u: %s", l->reserved.version, t_errname(rc));
    if (rc)
        life_wrong(l->x, "abort %u: %s", l->reserved.version, t_errname(rc));
    l->reserved.used = false;
}

/* ---- lives ---- */

static void give_back(struct life *l)
{
    do_abort(l);
    for (int i = 0; i < LEASES; i++)
        release(l);
}

static bool close_life(struct life *l)
{
    struct world *x = l->x;
    give_back(l);
    int rc = varve_close(l->ctx);
    life_note(x, " close: %s", t_errname(rc));
    if (rc == 0)
        ref_flushed(&x->ref);
    else if (!excused(l, rc) && !(x->w.local_pages && (rc == -ENOSPC || rc == -EFBIG)))
        life_wrong(x, "close: %s, and nothing was wrong", t_errname(rc));
    return rc == 0 && !x->broken;
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
        restore(l, op->a);
        check_size(l, op->a);
        break;
    case OP_WAIT:
        do_wait(l, op);
        break;
    case OP_FLUSH:
        flush(l);
        break;
    case OP_DISCARD:
        do_discard(l, op);
        break;
    case OP_LATEST:
        do_latest(l);
        break;
    case OP_RESUME:
        l->resumed |= varve_resume(l->h, op->a) == 0;
        break;
    case OP_HINT:
        (void)!varve_hint(l->h, op->a);
        break;
    case OP_UNHINT:
        varve_hint_clear(l->h);
        break;
    case OP_PREFETCH:
        varve_prefetch_start(l->h);
        break;
    case OP_ACQUIRE:
        do_acquire(l, op);
        break;
    case OP_RELEASE:
        release(l);
        break;
    case OP_RESERVE:
        do_reserve(l, op);
        break;
    case OP_COMMIT:
        do_commit(l);
        break;
    case OP_ABORT:
        do_abort(l);
        break;
    case OP_REOPEN:
        open_life(l, close_life(l));
        break;
    default:
        life_common(l->x, op);
    }
}

static void restore_all(struct life *l)
{
    for (unsigned v = 0; v < l->x->ref.nversions; v++)
        if (version_of(l, v)->now.n > 0)
            restore(l, v);
}

/* All faults are over: everything can be made safe, and is restored once more. */
static __attribute__((noreturn)) void finish(struct life *l)
{
    struct world *x = l->x;
    life_note(x, "   end:");
    faults_heal(&x->faults);
    give_back(l);
    flush(l);
    check_versions(l, false, false);
    restore_all(l);
    open_life(l, close_life(l));
    restore_all(l);
    if (flush(l) && !close_life(l))
        life_wrong(x, "close failed after a flush that did not");
    x->done = true;
    _exit(0);
}

void life_ckpt(struct world *x)
{
    struct vv_ckpt_hooks hooks = {.os = faults_os(&x->faults)};
    struct life life = {.x = x, .room = life_max_bytes(&x->w)}, *l = &life;
    vv_ckpt_set_hooks(&hooks);
    l->buf = malloc(l->room);
    T_CHECK(l->buf);
    open_life(l, false);
    if (x->lives % 2 == 0)
        restore_all(l);
    for (; x->at < x->w.nops; x->at++) {
        const struct op *op = &x->w.op[x->at];
        life_maybe_die(x);
        life_note(x, "%2u %s %u %u:", x->at, life_op_name[op->kind], op->a, op->b);
        do_op(l, op);
        check_versions(l, false, false);
        life_note(x, "\n");
    }
    life_maybe_die(x);
    finish(l);
}
