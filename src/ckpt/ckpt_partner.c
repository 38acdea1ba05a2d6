/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partner copies: their use by a context and a history (store/partner/partner.h), and the program's transport
 * (varve/transport.h).
 *
 * Collective calls are made even after an earlier failure in this process, because the other processes wait. If one
 * process fails, all fail.
 *
 * Threads: if the transport does not allow calls of the library's threads, only threads of the application use it,
 * inside checkpoint, wait, flush and the calls that open and close.
 */
#include <errno.h>
#include <string.h>

#include <varve/transport.h>

#include "base/clock.h"
#include "base/error.h"
#include "ckpt/ckpt_private.h"

_Static_assert(sizeof(struct varve_part) == sizeof(struct vv_wire_part) &&
                   offsetof(struct varve_part, bytes) == offsetof(struct vv_wire_part, bytes),
               "the same");

/* ---- the transport, adapted for the tier ---- */

static int wire_may_call(void *arg)
{
    const struct varve_transport *t = arg;
    return !t->may_call || t->may_call(t->arg);
}

static int wire_send(void *arg, uint32_t to, void *message, size_t bytes)
{
    const struct varve_transport *t = arg;
    return t->send(t->arg, (int32_t)to, message, bytes);
}

static int wire_receive(void *arg, uint32_t *ret_from, void **ret_message, size_t *ret_bytes)
{
    const struct varve_transport *t = arg;
    int32_t from = -1;
    int rc = t->receive(t->arg, &from, ret_message, ret_bytes);
    if (rc == 0)
        *ret_from = (uint32_t)from;
    return rc;
}

static int wire_exchange(void *arg, const struct vv_wire_part *out, struct vv_wire_part *ret_in)
{
    const struct varve_transport *t = arg;
    return t->exchange(t->arg, (const struct varve_part *)out, (struct varve_part *)ret_in);
}

static int wire_most(void *arg, uint64_t value, uint64_t *ret_most)
{
    const struct varve_transport *t = arg;
    return t->most(t->arg, value, ret_most);
}

bool vvi_transport_ok(const struct varve_transport *t)
{
    return t->transport_size == sizeof(*t) && t->ranks > 0 && t->rank >= 0 && t->rank < t->ranks &&
           t->send && t->receive && t->exchange && t->most;
}

/* ---- contexts ---- */

int vvi_partner_context(struct varve_ctx *ctx, int status, char *err, size_t err_bytes)
{
    const struct varve_opts *o = &ctx->opts;
    struct vv_partner_opts p = {
        .wire = {.rank = (uint32_t)ctx->transport.rank,
                 .ranks = (uint32_t)ctx->transport.ranks,
                 .threads = ctx->transport.threads != 0,
                 .arg = &ctx->transport,
                 .may_call = wire_may_call,
                 .send = wire_send,
                 .receive = wire_receive,
                 .exchange = wire_exchange,
                 .most = wire_most},
        .folder = ctx->folder,
        .node = o->node,
        .run_id = o->run_id,
        .timeout_ns = (uint64_t)VV_MAX(o->partner_timeout_ms, 1) * VV_NS_PER_MS,
        .cache_bytes = o->local_cache,
        .set = (uint32_t)o->parity_set,
        .disk = ctx->disk,
        .status = status,
    };
    if (status == 0)
        status = vvi_opts_parity(o, &p.parity);
    return vv_partner_new(&p, err, err_bytes, &ctx->partner);
}

/* ---- histories ---- */

int vvi_partner_history(struct varve_history *h, int status, char *err, size_t err_bytes)
{
    return vv_partner_open(h->ctx->partner, h->name, h->files, status, err, err_bytes, &h->partner);
}

/* The engine decides which generations and versions are removed, here and therefore at the partner. */
static void report(void *arg, uint64_t version, uint64_t generation, int status)
{
    struct varve_history *h = arg;
    (status == 0 ? vv_engine_reached : vv_engine_missed)(h->ctx->engine, h->hist, version,
                                                         generation);
}

void vvi_partner_start(struct varve_history *h)
{
    vv_partner_start(h->partner, report, h);
}

int vvi_partner_refuse(struct varve_ctx *ctx, const char *name, int rc)
{
    struct vv_partner_hist *none;
    char err[8];
    if (ctx->partner) {
        int all =
            vv_partner_open(ctx->partner, name ? name : "", NULL, rc, err, sizeof(err), &none);
        (void)all;
    }
    return rc;
}

int varve_history_repair(struct varve_history *h, uint64_t version, int needed)
{
    struct vvi_where here = {"history_repair", version, -1, -1};
    char what[64];
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    /* -ENOTSUP is not recorded: the caller keeps the record of the failure that it tried to repair. */
    rc = h->partner ? vv_partner_repair(h->partner, version, needed != 0) : -ENOTSUP;
    if (rc && h->partner)
        vvi_fail(h->ctx, &here, rc, "version %llu: %s could not be repaired: %s",
                 (unsigned long long)version, vv_partner_what(h->ctx->partner, what),
                 vv_strerror(rc));
    vvi_history_leave(h);
    return rc;
}

/* ---- waiting ---- */

static int fail(struct varve_history *h, const char *operation, uint64_t version, int rc)
{
    struct vvi_where here = {operation, version, -1, -1};
    unsigned long long v = version;
    char what[64];
    vv_partner_what(h->ctx->partner, what);
    if (rc == -EPERM)
        return vvi_fail(h->ctx, &here, rc,
                        "version %llu: %s needs MPI: call from a thread that may use it", v, what);
    return vvi_fail(h->ctx, &here, rc, "version %llu is on local disk, but %s is not safe: %s", v,
                    what, rc == -ETIMEDOUT ? "no answer before the timeout" : vvi_flush_reason(rc));
}

void vvi_partner_attend(struct varve_ctx *ctx)
{
    if (ctx->partner)
        vv_partner_attend(ctx->partner);
}

void vvi_partner_give_up(struct varve_history *h, uint64_t version, int rc)
{
    if (h->partner && rc && rc != -ETIMEDOUT && rc != -EAGAIN)
        vv_partner_give_up(h->partner, version, rc);
}

int vvi_partner_wait(struct varve_history *h, uint64_t version, uint64_t deadline_ns)
{
    int rc = h->partner ? vv_partner_wait(h->partner, version, deadline_ns) : 0;
    if (rc == -ENOENT)
        return vvi_history_say(h, "wait", version, rc);
    return rc ? fail(h, "wait", version, rc) : 0;
}

int vvi_partner_flush(struct varve_history *h, uint64_t deadline_ns)
{
    uint64_t version = 0;
    if (!h->partner)
        return 0;
    int rc = vv_partner_flush(h->partner, deadline_ns, &version);
    if (rc)
        fail(h, "flush", version, rc);
    else if ((rc = vv_engine_wait_all(h->ctx->engine, h->hist, deadline_ns)) != 0)
        vvi_fail_flush_all(h,
                           rc); /* the wait covers removals, which are passed on to the partner */
    vv_partner_linger(h->partner, false, deadline_ns);
    return rc;
}
