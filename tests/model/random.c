/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random workloads on the core, against a plain model.
 *
 * The model of a history is the list of its versions in the order of writing. A put that ends well
 * appends, a discard or a restore that consumes removes, retention removes the oldest, reopening
 * keeps the committed versions. After every operation the core must report the same list
 * (vv_core_each, vv_core_latest), every result must be one that the model allows, no invariant may
 * be broken and no wrong byte read (model/drive). Tiers may grow meanwhile, or stop growing before
 * they reach their full size. In the end all failures stop, and then every version can be restored
 * and, on files, made durable.
 *
 * A workload is a text: one line of configuration, then one operation a line, in numbers that are
 * taken modulo the number of choices, so that every operation is valid whatever the core does in
 * between. A workload that fails is shortened as far as possible and written to model-failure.txt
 * in the working folder. If it is kept under tests/model/failures/, every run of this test runs it
 * again.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "model/drive.h"
#include "t.h"

enum {
    MAX_OPS = 4000,
    MAX_HISTS = 2,
    MAX_CALLS = 3,
    MAX_LENDS = 3,
    MAX_VERSIONS = 64,
    VERSIONS = 12
};

struct op {
    char kind;
    unsigned a, b, c, d;
};

struct workload {
    char tiers[16];
    unsigned policy, transit, slots, batch, step_ns, shared;
    struct {
        unsigned once, keep, durable, order;
    } hist[MAX_HISTS];
    struct op op[MAX_OPS];
    unsigned nops;
};

struct model_hist {
    uint64_t version[MAX_VERSIONS]; /* oldest first */
    unsigned n, excess;             /* excess: versions that retention may remove at any time */
    uint32_t id;                    /* the core's */
};

struct world {
    const struct workload *w;
    struct drive d;
    struct model_hist hist[MAX_HISTS];
    struct {
        struct drive_call call;
        bool busy, gone; /* gone: its version was discarded before it was written */
        char kind;
        unsigned hist;
    } call[MAX_CALLS];
    struct drive_lend lend[MAX_LENDS];
    bool leasing[MAX_LENDS]; /* a call is under way for it */
    bool failed;             /* an order was made to fail */
    bool lost;               /* one on a stream was: the data that it was to save may be gone */
    bool shrunk;             /* a tier stopped growing: all of it may be lent */
    bool writing[MAX_HISTS][VERSIONS];
    bool ordered[MAX_HISTS][VERSIONS]; /* callers may name it while it is being written */
    uint64_t accepted;                 /* puts and adoptions: each must be released once */
    unsigned at;
};

static void wrong(const struct world *x, const char *text, long long a, long long b)
{
    t_fail(__FILE__, __LINE__, "operation %u (%c %u %u %u %u): %s (%lld, %lld)", x->at,
           x->w->op[x->at].kind, x->w->op[x->at].a, x->w->op[x->at].b, x->w->op[x->at].c,
           x->w->op[x->at].d, text, a, b);
}

#define EXPECT(cond, a, b)                                   \
    do {                                                     \
        if (!(cond))                                         \
            wrong(x, #cond, (long long)(a), (long long)(b)); \
    } while (0)

/* ---- what the model allows ---- */

static int find(const struct model_hist *h, uint64_t version)
{
    for (unsigned i = 0; i < h->n; i++)
        if (h->version[i] == version)
            return (int)i;
    return -1;
}

static void forget(struct model_hist *h, uint64_t version)
{
    int i = find(h, version);

    if (i < 0)
        return;
    h->n--;
    memmove(&h->version[i], &h->version[i + 1], (h->n - (unsigned)i) * sizeof(h->version[0]));
}

static bool on_files(const struct world *x)
{
    return x->d.cfg.tier[x->d.cfg.ntiers - 1].kind == VV_TIER_FILES;
}

static bool bounded(const struct world *x)
{
    return !on_files(x) || x->d.cfg.tier[x->d.cfg.ntiers - 1].capacity_bytes > 0;
}

static void check_put_result(struct world *x, unsigned k)
{
    int status = x->call[k].call.req.status;
    unsigned h = x->call[k].hist, keep;
    uint64_t v = x->call[k].call.version;

    if (x->call[k].gone) {
        EXPECT(status == 0 || status == -ECANCELED || x->failed || bounded(x), status, v);
        return;
    }
    x->writing[h][v] = x->ordered[h][v] = false;
    if (status == 0) {
        EXPECT(x->hist[h].n < MAX_VERSIONS && find(&x->hist[h], v) < 0, v, x->hist[h].n);
        x->hist[h].version[x->hist[h].n++] = v;
        keep = x->w->hist[h].keep;
        if (keep && x->hist[h].n > keep)
            x->hist[h].excess = VV_MAX(x->hist[h].excess, x->hist[h].n - keep);
        return;
    }
    EXPECT(x->failed || status == -ECANCELED || (x->shrunk && status == -ENOSPC) ||
               (bounded(x) && (status == -ENOSPC || status == -EFBIG)),
           status, v);
}

static void check_get_result(struct world *x, unsigned k)
{
    int status = x->call[k].call.req.status;
    struct model_hist *h = &x->hist[x->call[k].hist];
    uint64_t v = x->call[k].call.version;

    if (status == 0 && x->w->hist[x->call[k].hist].once) {
        struct vv_object_info info = {0};
        /* It may have been discarded and written again meanwhile: the new one exists. */
        if (vv_core_lookup(x->d.core, h->id, v, &info) < 0)
            forget(h, v);
        EXPECT(info.generation != x->call[k].call.generation, v, info.generation);
    }
    EXPECT(status == 0 || status == -ENOENT || status == -ECANCELED || x->failed, status, v);
}

static void check_wait_result(struct world *x, unsigned k)
{
    int status = x->call[k].call.req.status;
    const struct model_hist *h = &x->hist[x->call[k].hist];
    struct vv_object_info info;

    EXPECT(status == 0 || status == -ENOENT || status == -ECANCELED || x->failed ||
               (bounded(x) && status == -ENOSPC),
           status, 0);
    if (status == 0 && x->call[k].kind == 'W' &&
        vv_core_lookup(x->d.core, h->id, x->call[k].call.version, &info) == 0)
        EXPECT(info.durable || x->w->hist[x->call[k].hist].once || x->failed, info.version, 0);
}

static void check_lease_result(struct world *x, unsigned k)
{
    int status = x->call[k].call.req.status;

    x->leasing[x->call[k].call.lend - x->lend] = false;
    EXPECT(status == 0 || status == -ENOSPC || status == -ECANCELED, status, 0);
}

/* Calls that have ended, in the order in which they did. */
static void settle_calls(struct world *x)
{
    for (;;) {
        int next = -1;
        for (int k = 0; k < MAX_CALLS; k++)
            if (x->call[k].busy && !x->call[k].call.pending &&
                (next < 0 || x->call[k].call.seq < x->call[next].call.seq))
                next = k;
        if (next < 0)
            return;
        x->call[next].busy = false;
        if (x->call[next].kind == 'L')
            check_lease_result(x, (unsigned)next);
        else if (x->call[next].kind == 'P')
            check_put_result(x, (unsigned)next);
        else if (x->call[next].kind == 'G')
            check_get_result(x, (unsigned)next);
        else
            check_wait_result(x, (unsigned)next);
    }
}

struct listing {
    uint64_t version[MAX_VERSIONS];
    bool durable[MAX_VERSIONS];
    uint64_t size[MAX_VERSIONS], generation[MAX_VERSIONS];
    unsigned n;
};

static void list_one(void *arg, const struct vv_object_info *info)
{
    struct listing *l = arg;

    T_CHECK(l->n < MAX_VERSIONS);
    l->durable[l->n] = info->durable;
    l->size[l->n] = info->size;
    l->generation[l->n] = info->generation;
    l->version[l->n++] = info->version;
}

/* Retention may have removed the oldest of those in excess, and a stream that failed any
 * version. */
static void apply_retention(struct world *x, unsigned i, const struct listing *l)
{
    struct model_hist *h = &x->hist[i];

    for (unsigned k = 0; k < h->n && (h->excess || x->lost);) {
        bool there = false;
        for (unsigned j = 0; j < l->n; j++)
            there |= l->version[j] == h->version[k];
        if (there) {
            k++;
        } else {
            forget(h, h->version[k]);
            h->excess -= h->excess > 0;
        }
    }
}

static void compare(struct world *x)
{
    struct vv_core_stats stats;

    for (unsigned i = 0; i < MAX_HISTS; i++) {
        struct model_hist *h = &x->hist[i];
        struct listing l = {0};
        uint64_t latest = 0;
        int rc = vv_core_latest(x->d.core, h->id, &latest), newest = -1;
        vv_core_each(x->d.core, h->id, list_one, &l);
        apply_retention(x, i, &l);
        EXPECT(l.n == h->n, l.n, h->n);
        for (unsigned k = 0; k < l.n; k++) {
            EXPECT(l.version[k] == h->version[k], l.version[k], h->version[k]);
            if (l.durable[k] || !x->w->hist[i].durable)
                newest = (int)k;
        }
        EXPECT(rc == (newest < 0 ? -ENOENT : 0), rc, newest);
        EXPECT(rc < 0 || latest == l.version[newest], latest, newest);
        if (x->w->hist[i].keep && !x->w->hist[i].durable)
            EXPECT(h->n <= x->w->hist[i].keep, h->n, x->w->hist[i].keep);
    }
    vv_core_get_stats(x->d.core, &stats);
    if (on_files(x) && bounded(x))
        EXPECT(stats.files_bytes <= x->d.cfg.tier[x->d.cfg.ntiers - 1].capacity_bytes,
               stats.files_bytes, 0);
    EXPECT(stats.inflight_orders == x->d.norders, stats.inflight_orders, x->d.norders);
    if (x->d.wrong[0])
        t_fail(__FILE__, __LINE__, "operation %u: %s", x->at, x->d.wrong);
    for (unsigned k = 0; k < MAX_CALLS; k++)
        EXPECT(!x->call[k].busy || x->d.norders > 0 || drive_growing(&x->d), k, 0);
}

/* ---- operations ---- */

static uint32_t open_history(struct world *x, unsigned h)
{
    struct vv_core_hist_cfg cfg = {
        .consume_once = x->w->hist[h].once,
        .keep = x->w->hist[h].keep,
        .level = x->w->hist[h].durable ? VV_CORE_DURABLE : VV_CORE_CACHED,
        .order = (enum vv_restore_order)(x->w->hist[h].order % 3),
    };

    return drive_history_with(&x->d, &cfg);
}

static void do_put(struct world *x, const struct op *op)
{
    unsigned k = op->a % MAX_CALLS, h = op->b % MAX_HISTS;
    uint64_t v = op->c % VERSIONS;
    bool ordered = strchr("pzb", op->kind);
    int rc;

    if (x->call[k].busy)
        return;
    x->call[k].kind = 'P';
    x->call[k].gone = false;
    x->call[k].hist = h;
    x->d.ordered = ordered;
    x->d.stream = op->kind == 'b' ? 1 + op->d % 2 : 0;
    rc = drive_put(&x->d, &x->call[k].call, x->hist[h].id, v,
                   op->kind == 'Z' || op->kind == 'z' ? 0 : 1 + op->d);
    x->d.ordered = false;
    x->d.stream = 0;
    if (find(&x->hist[h], v) >= 0 || x->writing[h][v]) {
        EXPECT(rc == -EEXIST, rc, v);
        return;
    }
    x->accepted += rc == 0;
    EXPECT(rc == 0 || (bounded(x) && (rc == -EFBIG || rc == -ENOSPC)), rc, v);
    x->call[k].busy = x->writing[h][v] = rc == 0;
    x->ordered[h][v] = rc == 0 && ordered;
}

/* Lends pages of a version, or empty ones. */
static void do_lend(struct world *x, const struct op *op)
{
    unsigned k = op->a % MAX_CALLS, h = op->b % MAX_HISTS, l = op->d % MAX_LENDS;
    uint64_t v = op->c % VERSIONS;
    int rc;

    if (x->lend[l].used || x->leasing[l])
        return;
    if (op->kind == 'I' || op->kind == 'i') {
        rc = drive_lend(&x->d, &x->lend[l], x->hist[h].id, v, op->a % 2,
                        op->kind == 'I' ? 1 + op->d % 3 : 0);
        EXPECT(rc == 0 || rc == -EAGAIN || rc == -ENOSPC || rc == -ENOENT || rc == -EINVAL, rc, v);
        EXPECT(rc == -ENOENT || find(&x->hist[h], v) >= 0, rc, v);
        return;
    }
    if (x->call[k].busy)
        return;
    x->call[k].kind = 'L';
    x->call[k].hist = h;
    rc = drive_lease(&x->d, &x->call[k].call, &x->lend[l], x->hist[h].id, 1 + op->c % 3);
    EXPECT(rc == 0 || rc == -ENOSPC, rc, op->c);
    x->call[k].busy = x->leasing[l] = rc == 0;
}

/* Makes a version of leases: of two if there are two and the policy allows it. */
static void do_put_lent(struct world *x, const struct op *op)
{
    unsigned k = op->a % MAX_CALLS, h = op->b % MAX_HISTS, l = op->d % MAX_LENDS;
    uint64_t v = op->c % VERSIONS, size;
    struct drive_lend *lends[2] = {&x->lend[l], &x->lend[(l + 1) % MAX_LENDS]};
    size_t n = 1;
    int rc;

    if (x->call[k].busy || !lends[0]->used || !lends[0]->lend.lease)
        return;
    size = (uint64_t)lends[0]->lend.npages * x->d.cfg.page_bytes;
    if (x->d.cfg.policy == VV_POLICY_NEXT && op->d % 2 && lends[1]->used && lends[1]->lend.lease) {
        size += (uint64_t)lends[1]->lend.npages * x->d.cfg.page_bytes;
        n = 2;
    }
    x->call[k].kind = 'P';
    x->call[k].gone = false;
    x->call[k].hist = h;
    x->d.ordered = op->d % 3 > 0;
    rc = drive_put_lent(&x->d, &x->call[k].call, lends, n, x->hist[h].id, v, size - op->d % 100);
    bool ordered = x->d.ordered;
    x->d.ordered = false;
    if (find(&x->hist[h], v) >= 0 || x->writing[h][v]) {
        EXPECT(rc == -EEXIST, rc, v);
        return;
    }
    x->accepted += rc == 0;
    EXPECT(rc == 0 || (bounded(x) && (rc == -EFBIG || rc == -ENOSPC || rc == -EAGAIN)), rc, v);
    x->call[k].busy = x->writing[h][v] = rc == 0;
    x->ordered[h][v] = rc == 0 && ordered;
}

/* Makes a lease of a version, in exchange for one or for nothing. */
static void do_swap(struct world *x, const struct op *op)
{
    unsigned h = op->b % MAX_HISTS, l = op->d % MAX_LENDS, o = (l + 1) % MAX_LENDS;
    uint64_t v = op->c % VERSIONS;
    struct drive_lend *old = &x->lend[o];
    bool once = x->w->hist[h].once, there = find(&x->hist[h], v) >= 0;
    int rc;

    if (x->lend[l].used || x->leasing[l])
        return;
    if (x->leasing[o] || !old->used || !old->lend.lease || op->a % 2)
        old = NULL;
    rc = drive_swap(&x->d, old, &x->lend[l], x->hist[h].id, v);
    EXPECT(rc == 0 || rc == -EAGAIN || rc == -ENOSPC || rc == -ENOENT, rc, v);
    EXPECT((rc == -ENOENT) == !there, rc, v);
    if (rc == 0 && once)
        forget(&x->hist[h], v);
}

static void do_discard(struct world *x, unsigned h, uint64_t v)
{
    int rc = drive_discard(&x->d, x->hist[h].id, v);

    EXPECT(rc == (find(&x->hist[h], v) >= 0 || x->ordered[h][v] ? 0 : -ENOENT), rc, v);
    if (rc == 0)
        forget(&x->hist[h], v);
    if (!x->ordered[h][v])
        return;
    for (unsigned k = 0; k < MAX_CALLS; k++)
        if (x->call[k].busy && x->call[k].kind == 'P' && x->call[k].hist == h &&
            x->call[k].call.version == v && !x->call[k].gone)
            x->call[k].gone = true;
    x->writing[h][v] = x->ordered[h][v] = false;
}

static void do_call(struct world *x, const struct op *op)
{
    unsigned k = op->a % MAX_CALLS, h = op->b % MAX_HISTS;
    uint64_t v = op->c % VERSIONS;
    bool there = find(&x->hist[h], v) >= 0;
    int rc;

    if (x->call[k].busy)
        return;
    x->call[k].kind = op->kind;
    x->call[k].hist = h;
    if (strchr("Ggr", op->kind)) {
        x->call[k].kind = 'G';
        x->d.ordered = op->kind != 'G';
        x->d.stream = op->kind == 'r' ? 1 + op->d % 2 : 0;
        rc = drive_get(&x->d, &x->call[k].call, x->hist[h].id, v);
        x->d.ordered = false;
        x->d.stream = 0;
        EXPECT(rc == (there ? 0 : -ENOENT) || (op->kind == 'r' && rc == 0 && x->ordered[h][v]), rc,
               v);
    } else if (op->kind == 'W') {
        rc = drive_wait(&x->d, &x->call[k].call, x->hist[h].id, v, VV_CORE_DURABLE);
        there |= x->ordered[h][v];
        EXPECT(rc == (!there ? -ENOENT : on_files(x) ? 0 : -EINVAL), rc, v);
    } else {
        rc = drive_wait_all(&x->d, &x->call[k].call, x->hist[h].id);
        EXPECT(rc == 0, rc, v);
    }
    x->call[k].busy = rc == 0;
}

static void finish_all(struct world *x)
{
    drive_run(&x->d);
    settle_calls(x);
    compare(x);
}

/* Closes a history and opens it again: only committed versions exist. */
static void do_reopen(struct world *x, unsigned h)
{
    struct model_hist *m = &x->hist[h];
    struct listing l = {0};

    finish_all(x);
    if (!on_files(x))
        return;
    vv_core_each(x->d.core, m->id, list_one, &l);
    vv_core_history_drop(x->d.core, m->id, x->d.now_ns);
    for (unsigned i = 0; i < x->d.nfiles; i++) {
        struct drive_file *f = &x->d.file[i];
        if (!f->used || f->hist != m->id)
            continue;
        f->used = false; /* opening removes those under temporary names */
        if (!f->committed)
            continue;
        /* The names of files contain their generations. */
        for (unsigned k = 0; k < l.n; k++)
            if (l.version[k] == f->version)
                l.generation[k] = f->generation;
    }
    m->id = open_history(x, h);
    m->n = 0;
    for (unsigned k = 0; k < l.n; k++)
        if (l.durable[k]) {
            int rc = drive_adopt(&x->d, m->id, l.version[k], l.generation[k], l.size[k]);
            EXPECT(rc == 0, rc, l.version[k]);
            x->accepted++;
            m->version[m->n++] = l.version[k];
        }
    /* Removals of uncommitted files. */
    drive_hint_clear(&x->d, m->id);
}

/* The `n`th order or the first one behind it that may end; -1: none. */
static int may_end(const struct world *x, unsigned n)
{
    for (unsigned i = 0; i < x->d.norders; i++) {
        unsigned at = (n + i) % x->d.norders;
        if (drive_may_end(&x->d, at))
            return (int)at;
    }
    return -1;
}

static void do_op(struct world *x, const struct op *op)
{
    unsigned h = op->b % MAX_HISTS;
    uint64_t v = op->c % VERSIONS;
    int next;

    switch (op->kind) {
    case 'P':
    case 'p':
    case 'Z':
    case 'z':
    case 'b':
        do_put(x, op);
        break;
    case 'I':
    case 'i':
    case 'L':
        do_lend(x, op);
        break;
    case 'Q':
        do_put_lent(x, op);
        break;
    case 'V':
        do_swap(x, op);
        break;
    case 'T':
        if (x->lend[op->d % MAX_LENDS].used && x->lend[op->d % MAX_LENDS].lend.lease)
            drive_trim(&x->d, &x->lend[op->d % MAX_LENDS],
                       1 + op->a % x->lend[op->d % MAX_LENDS].lend.npages);
        break;
    case 'U':
        if (x->lend[op->d % MAX_LENDS].used)
            drive_unlend(&x->d, &x->lend[op->d % MAX_LENDS]);
        break;
    case 'G':
    case 'g':
    case 'r':
    case 'W':
    case 'A':
        do_call(x, op);
        break;
    case 'H':
        T_OK(drive_hint(&x->d, x->hist[h].id, v));
        break;
    case 'C':
        drive_hint_clear(&x->d, x->hist[h].id);
        break;
    case 'S':
        drive_start(&x->d, x->hist[h].id);
        break;
    case 'D':
        do_discard(x, h, v);
        break;
    case 'X':
        if (x->call[op->a % MAX_CALLS].busy)
            drive_cancel(&x->d, &x->call[op->a % MAX_CALLS].call, -ECANCELED);
        break;
    case 'R':
        do_reopen(x, h);
        break;
    case 'E':
        if ((next = may_end(x, op->a)) >= 0)
            drive_end(&x->d, (unsigned)next, 0);
        break;
    case 'M':
        drive_grow(&x->d, op->a % x->d.cfg.ntiers);
        break;
    case 'N':
        x->shrunk = true;
        drive_grow_stop(&x->d, op->a % x->d.cfg.ntiers);
        break;
    case 'F':
        next = may_end(x, op->a);
        if (next >= 0) {
            x->failed = true;
            x->lost |= x->d.order[next]->family > 0;
            drive_end(&x->d, (unsigned)next, op->b % 2 ? -EIO : -ENOSPC);
        }
        break;
    }
    settle_calls(x);
}

/* ---- a whole run ---- */

/* Nothing fails any more: every version of the model exists. */
static void check_end(struct world *x)
{
    struct drive_call call;
    uint64_t version;
    int tier;

    finish_all(x);
    for (unsigned l = 0; l < MAX_LENDS; l++)
        if (x->lend[l].used)
            drive_unlend(&x->d, &x->lend[l]);
    finish_all(x);
    for (unsigned h = 0; h < MAX_HISTS; h++) {
        struct model_hist m = x->hist[h];
        vv_core_take_error(x->d.core, m.id, &version, &tier);
        for (unsigned i = 0; i < m.n; i++) {
            struct vv_object_info info;
            int there = vv_core_lookup(x->d.core, m.id, m.version[i], &info);
            /* A version too large for memory is lost with its file. */
            EXPECT(there == 0 || x->w->hist[h].keep || (x->failed && on_files(x)), there,
                   m.version[i]);
            if (there < 0)
                continue;
            if (on_files(x)) {
                T_OK(drive_wait(&x->d, &call, m.id, m.version[i], VV_CORE_DURABLE));
                int rc = drive_finish(&x->d, &call);
                EXPECT(rc == 0 || (x->w->hist[h].keep && rc == -ENOENT), rc, m.version[i]);
                if (rc != 0)
                    continue;
            }
            int rc = drive_get(&x->d, &call, m.id, m.version[i]);
            if (rc == 0)
                rc = drive_finish(&x->d, &call);
            EXPECT(rc == 0 || (x->w->hist[h].keep && rc == -ENOENT), rc, m.version[i]);
        }
    }
    drive_run(&x->d);
    if (x->d.wrong[0])
        t_fail(__FILE__, __LINE__, "%s", x->d.wrong);
}

static bool trace;

static void run_workload(const struct workload *w)
{
    static struct world world;
    struct world *x = &world;
    struct vv_core_cfg cfg;

    memset(x, 0, sizeof(*x));
    x->w = w;
    drive_cfg(&cfg, w->tiers, (enum vv_policy)(w->policy % VV_POLICY_COUNT));
    cfg.check = true;
    cfg.transit_pages = 1 + w->transit % 4;
    cfg.disk_shared = w->shared % 2;
    for (int h = 0; h < VV_HOP_COUNT; h++) {
        cfg.slots[h] = 1 + w->slots % 3;
        cfg.batch_pages[h] = 1 + w->batch % 4;
    }
    drive_init(&x->d, &cfg);
    x->d.step_ns = w->step_ns;
    x->d.trace = trace;
    for (unsigned h = 0; h < MAX_HISTS; h++)
        x->hist[h].id = open_history(x, h);
    compare(x);
    for (x->at = 0; x->at < w->nops; x->at++) {
        const struct op *op = &w->op[x->at];
        if (trace)
            fprintf(stderr, "%c %u %u %u %u\n", op->kind, op->a, op->b, op->c, op->d);
        do_op(x, &w->op[x->at]);
        compare(x);
    }
    x->at = w->nops ? w->nops - 1 : 0;
    check_end(x);
    drive_fini(&x->d);
    EXPECT(x->d.nreleased == x->accepted, x->d.nreleased, x->accepted);
}

/* ---- workloads as text ---- */

static void write_workload(const struct workload *w, const char *path)
{
    FILE *f = fopen(path, "w");

    T_CHECK(f);
    fprintf(f, "%s %u %u %u %u %u %u", w->tiers, w->policy, w->transit, w->slots, w->batch,
            w->step_ns, w->shared);
    for (unsigned h = 0; h < MAX_HISTS; h++)
        fprintf(f, " %u %u %u", w->hist[h].once | w->hist[h].order << 1, w->hist[h].keep,
                w->hist[h].durable);
    fprintf(f, "\n");
    for (unsigned i = 0; i < w->nops; i++)
        fprintf(f, "%c %u %u %u %u\n", w->op[i].kind, w->op[i].a, w->op[i].b, w->op[i].c,
                w->op[i].d);
    T_EQ(fclose(f), 0);
}

static void read_workload(struct workload *w, const char *path)
{
    FILE *f = fopen(path, "r");

    T_CHECK(f);
    memset(w, 0, sizeof(*w));
    T_EQ(fscanf(f, "%15s %u %u %u %u %u %u", w->tiers, &w->policy, &w->transit, &w->slots,
                &w->batch, &w->step_ns, &w->shared),
         7);
    for (unsigned h = 0; h < MAX_HISTS; h++) {
        unsigned once;
        T_EQ(fscanf(f, "%u %u %u", &once, &w->hist[h].keep, &w->hist[h].durable), 3);
        w->hist[h].once = once & 1;
        w->hist[h].order = once >> 1;
    }
    while (w->nops < MAX_OPS) {
        struct op *op = &w->op[w->nops];
        if (fscanf(f, " %c %u %u %u %u", &op->kind, &op->a, &op->b, &op->c, &op->d) != 5)
            break;
        w->nops++;
    }
    fclose(f);
}

static void draw_workload(struct workload *w, uint64_t seed)
{
    static const char *const tiers[] = {
        "D2H3F",   "D4H4S16", "H2F",     "H4",     "D3H5",  "H0F",    "D2H0F",
        "D1H1S6",  "H3F9",    "D6H12F",  "H2S9",   "D1H1F", "D2H4F",  "D2h4F",
        "D2h4S12", "h5F",     "h5",      "D6h12F", "d2h4F", "D2H3F+", "D4H4S16+",
        "D2H0F+",  "D1H1S6+", "D6H12F+", "D2h4F+", "h6F+",  "h6+",    "h6S9+",
    };
    static const char plain[] = "PPPPPPPZGGGGGGGGGHHHHHHHHSSDDDDWWAAXXCC",
                      more[] = "PPPPppZzGGGGggHHHHSSDDDDWWAAXXCCIIIiLLLLQQQQVVVVVVTTUUUUUU",
                      ahead[] = "PPPZbbbbbbbbGGGrrrrrrrrHHHHHHHSSDDDWWAACC",
                      ahead_more[] = "PPZbbbbbbbbGGGrrrrrrrrHHHHHHHSSDDDWWAACCXXIIiLLQQVVVTUUUUUU";
    struct t_rng r = {seed};
    /* Half of them with streams and lending, half with streams that are planned ahead. */
    const char *const all[] = {plain, more, ahead, ahead_more}, *kinds = all[seed % 4];
    bool runs_ahead = strchr(kinds, 'b');
    size_t nkinds = strlen(kinds);
    unsigned fail = (unsigned)t_rng_below(&r, 3) ? 0 : 30;

    memset(w, 0, sizeof(*w));
    do {
        strcpy(w->tiers, tiers[t_rng_below(&r, VV_ARRAY_SIZE(tiers))]);
    } while (runs_ahead && !strchr("Dd", *w->tiers));
    if (t_rng_below(&r, 3) == 0)
        strcat(w->tiers, "*");
    char *files = strchr(w->tiers, 'F');
    if (files && t_rng_below(&r, 2))
        *files = 'W';
    w->policy = VV_POLICY_NEXT;
    if (!runs_ahead && t_rng_below(&r, 2))
        w->policy = (unsigned)t_rng_below(&r, VV_POLICY_COUNT);
    w->transit = (unsigned)t_rng_below(&r, 4);
    w->slots = (unsigned)t_rng_below(&r, 3);
    w->batch = (unsigned)t_rng_below(&r, 4);
    w->step_ns = t_rng_below(&r, 2) ? 1000 : 0;
    w->shared = (unsigned)t_rng_below(&r, 2);
    for (unsigned h = 0; h < MAX_HISTS; h++) {
        w->hist[h].once = !runs_ahead && t_rng_below(&r, 4) == 0;
        w->hist[h].keep = t_rng_below(&r, 4) == 0 ? 1 + (unsigned)t_rng_below(&r, 3) : 0;
        w->hist[h].durable = files && t_rng_below(&r, 2);
        w->hist[h].order = t_rng_below(&r, 3) ? 0 : 1 + (unsigned)t_rng_below(&r, 2);
    }
    w->nops = 100 + (unsigned)t_rng_below(&r, 300);
    bool grows = strpbrk(w->tiers, "dh") != NULL;
    for (unsigned i = 0; i < w->nops; i++) {
        struct op *op = &w->op[i];
        op->kind = t_rng_below(&r, 10) < 6 ? 'E' : kinds[t_rng_below(&r, nkinds)];
        if (op->kind == 'E' && fail && t_rng_below(&r, fail) == 0)
            op->kind = 'F';
        if (t_rng_below(&r, 150) == 0)
            op->kind = 'R';
        if (grows && t_rng_below(&r, 12) == 0)
            op->kind = t_rng_below(&r, 20) ? 'M' : 'N';
        op->a = (unsigned)t_rng_below(&r, 12);
        op->b = (unsigned)t_rng_below(&r, 4) ? 0 : 1;
        op->c = (unsigned)t_rng_below(&r, VERSIONS);
        op->d = (unsigned)t_rng_below(&r, 6 * DRIVE_PAGE);
    }
}

/* ---- failures ---- */

/* True if it fails, in a process of its own and without output. */
static bool fails(const struct workload *w)
{
    int status = 0;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    T_CHECK(pid >= 0);
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        alarm(20);
        run_workload(w);
        _exit(0);
    }
    T_EQ(waitpid(pid, &status, 0), pid);
    return status != 0;
}

static void shorten(struct workload *w)
{
    static struct workload less;

    for (unsigned n = w->nops / 2; n > 0; n /= 2)
        for (unsigned at = 0; at + n <= w->nops;) {
            less = *w;
            memmove(&less.op[at], &less.op[at + n], (w->nops - at - n) * sizeof(less.op[0]));
            less.nops -= n;
            if (fails(&less))
                *w = less;
            else
                at += n;
        }
}

static void run_seed(uint64_t seed)
{
    static struct workload w;

    draw_workload(&w, seed);
    if (!fails(&w))
        return;
    shorten(&w);
    write_workload(&w, "model-failure.txt");
    t_note("seed %llu fails: %u operations are left in model-failure.txt; keep it in "
           "tests/model/failures/",
           (unsigned long long)seed, w.nops);
    run_workload(&w);
    t_fail(__FILE__, __LINE__, "failed in a process of its own only");
}

static void former_failures(void)
{
    static struct workload w;
    const char *source = getenv("SOURCE_DIR");
    char path[512];
    struct dirent *e;
    unsigned n = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/tests/model/failures", source ? source : ".");
    dir = opendir(path);
    if (!dir) {
        t_note("no folder %s: set SOURCE_DIR", path);
        return;
    }
    while ((e = readdir(dir))) {
        if (!strstr(e->d_name, ".txt"))
            continue;
        snprintf(path, sizeof(path), "%s/tests/model/failures/%s", source ? source : ".",
                 e->d_name);
        t_note("%s", e->d_name);
        read_workload(&w, path);
        run_workload(&w);
        n++;
    }
    closedir(dir);
    t_note("%u former failures run again", n);
}

static void random_workloads(void)
{
    uint64_t first = t_seed(), n = t_cases(500, 50000);

    t_note("seeds %llu to %llu", (unsigned long long)first, (unsigned long long)(first + n - 1));
    for (uint64_t i = 0; i < n; i++)
        run_seed(first + i);
}

/* With the name of a workload: runs it and prints each step. */
int main(int argc, char **argv)
{
    static struct workload w;

    if (argc > 1) {
        trace = true;
        read_workload(&w, argv[1]);
        run_workload(&w);
        return 0;
    }
    T_RUN(former_failures);
    T_RUN(random_workloads);
    return t_done();
}
