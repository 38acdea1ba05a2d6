/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The performance model's (policy/model.h) expectation of the run so far, and the actual result.
 *
 * The model's application computes, writes, computes, and later reads. The time between two calls is computing time
 * of the second one; the time inside a call is waiting. Bandwidths are measured: over the first 64 MiB of each hop,
 * "at the start", and recently, "while running". The reference is the same computation with blocking I/O on the
 * slowest layer, at the bandwidth measured there. So the comparison needs no transfer of its own, and there is no
 * result before data has gone to the slowest layer.
 *
 * The model does not cover overlapping calls of several threads: then there is no result.
 *
 * Threads: calls of the application add to independent relaxed counters; a reader may see part of a call.
 */
#include <string.h>

#include "base/clock.h"
#include "ckpt/ckpt_private.h"
#include "policy/model.h"

uint64_t vvi_call_ended(struct varve_ctx *ctx, enum vvi_call_kind kind, uint64_t start_ns)
{
    struct vvi_calls *c = &ctx->times;
    uint64_t end_ns = vv_now_ns(), took_ns = end_ns - start_ns;
    uint64_t last_ns = atomic_load_explicit(&c->last_end_ns, memory_order_relaxed);
    if (last_ns > start_ns)
        atomic_store_explicit(&c->overlap, true, memory_order_relaxed);
    else if (last_ns > 0)
        atomic_fetch_add_explicit(&c->compute_ns[kind], start_ns - last_ns, memory_order_relaxed);
    atomic_store_explicit(&c->last_end_ns, end_ns, memory_order_relaxed);
    switch (kind) {
    case VVI_CALL_WRITE:
        ctx->checkpoint_blocked_ns += took_ns;
        break;
    case VVI_CALL_READ:
        ctx->restore_blocked_ns += took_ns;
        break;
    default:
        atomic_fetch_add_explicit(&c->wait_ns, took_ns, memory_order_relaxed);
    }
    return took_ns;
}

struct figures {
    double copy, write[VV_LAYERS], read[VV_LAYERS];
    uint64_t capacity[VV_LAYERS];
    unsigned nlayers;
};

static void take_figures(const struct varve_ctx *ctx, const struct vv_core_stats *c, bool start,
                         struct figures *f)
{
    const uint64_t *rate = start ? c->start_rate : c->rate;
    *f = (struct figures){.copy = (double)rate[ctx->device ? VV_HOP_D2D : VV_HOP_H2H],
                          .write = {(double)rate[VV_HOP_H2F]},
                          .read = {(double)rate[VV_HOP_F2H]},
                          .nlayers = 1};
    if (!ctx->layers)
        return;
    struct vv_layers_stats l;
    vv_layers_get_stats(ctx->layers, &l);
    f->nlayers = VV_LAYERS;
    for (int i = 0; i < VV_LAYERS; i++) {
        f->write[i] = start ? l.start_write_bytes_per_s[i] : l.write_bytes_per_s[i];
        f->read[i] = start ? l.start_read_bytes_per_s[i] : l.read_bytes_per_s[i];
        f->capacity[i] = i + 1 < VV_LAYERS ? l.capacity_bytes[i] : 0;
    }
}

/* One phase in the terms of the model. */
static struct vv_model model_of(const struct figures *f, uint64_t host_bytes, uint64_t bytes,
                                uint64_t calls, double kernel_s)
{
    struct vv_model m = {.record_bytes = calls ? bytes / calls : 0,
                         .records = calls,
                         .write_kernel_s = kernel_s,
                         .read_kernel_s = kernel_s,
                         .reads = true,
                         .copy_bytes_per_s = f->copy,
                         .host_bytes = host_bytes,
                         .nlayers = f->nlayers};
    for (unsigned i = 0; i < f->nlayers; i++)
        m.layer[i] = (struct vv_model_layer){
            .write_bytes_per_s = f->write[i],
            /* Before anything was read there, assume the write bandwidth. */
            .read_bytes_per_s = f->read[i] > 0 ? f->read[i] : f->write[i],
            .capacity_bytes = f->capacity[i]};
    m.reference = m.layer[f->nlayers - 1];
    return m;
}

struct phases {
    double write_s, read_s; /* computing time */
    uint64_t host_bytes, nr_puts, nr_gets, put_bytes, get_bytes;
};

/* Returns the model's speed-up, its waiting time, and the time of the reference; 0: not known. */
static double ask(const struct figures *f, const struct phases *p, double *ret_blocked_s,
                  double *ret_reference_s)
{
    struct vv_model w = model_of(f, p->host_bytes, p->put_bytes, p->nr_puts, p->write_s);
    struct vv_model r = model_of(f, p->host_bytes, p->get_bytes, p->nr_gets, p->read_s);
    *ret_blocked_s = *ret_reference_s = 0;
    if (w.reference.write_bytes_per_s <= 0 || p->nr_puts == 0)
        return 0;
    struct vv_model_answer put = vv_model_ask(&w), get = vv_model_ask(&r);
    if (!put.fits || !get.fits)
        return 0;
    double wall_s = put.write.wall_s + get.read.wall_s;
    *ret_blocked_s = put.write.blocked_s + get.read.blocked_s;
    *ret_reference_s = p->write_s + p->read_s +
                       (double)p->put_bytes / w.reference.write_bytes_per_s +
                       (double)p->get_bytes / r.reference.read_bytes_per_s;
    return wall_s > 0 ? *ret_reference_s / wall_s : 0;
}

void vvi_expect(const struct varve_ctx *ctx, const struct vv_core_stats *c,
                struct vvi_expected *ret)
{
    const struct vvi_calls *t = &ctx->times;
    struct phases p = {
        /* Waits follow writes. */
        .write_s = (double)(t->compute_ns[VVI_CALL_WRITE] + t->compute_ns[VVI_CALL_WAIT]) * 1e-9,
        .read_s = (double)t->compute_ns[VVI_CALL_READ] * 1e-9,
        .nr_puts = c->puts,
        .nr_gets = c->gets,
        .put_bytes = ctx->checkpoint_bytes,
        .get_bytes = ctx->restore_bytes,
    };
    struct figures now, start;
    double reference_s, ignored;
    *ret = (struct vvi_expected){0};
    if (t->overlap || !ctx->write_store)
        return;
    for (unsigned i = 0; i < vv_engine_tiers(ctx->engine); i++) {
        enum vv_tier_kind kind = vv_engine_tier_kind(ctx->engine, i);
        if (kind == VV_TIER_DEVICE || kind == VV_TIER_HOST)
            p.host_bytes += c->tier_pages[i] * ctx->opts.page_bytes;
    }
    take_figures(ctx, c, false, &now);
    take_figures(ctx, c, true, &start);
    double blocked_s;
    double expected = ask(&now, &p, &blocked_s, &reference_s);
    if (expected <= 0)
        return;
    double wall_s =
        p.write_s + p.read_s +
        (double)(ctx->checkpoint_blocked_ns + ctx->restore_blocked_ns + t->wait_ns) * 1e-9;
    ret->speedup = expected;
    ret->blocked_ns = (uint64_t)(blocked_s * 1e9);
    ret->actual = wall_s > 0 ? reference_s / wall_s : 0;
    ret->speedup_start = ask(&start, &p, &ignored, &reference_s);
}
