/* SPDX-License-Identifier: Apache-2.0 */
/* The library as the engine of a shot: its calls, one to one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "lab/shot/shot_engine.h"

struct varve_engine {
    struct shot_engine base;
    struct shot_varve v;
};

static struct varve_engine *of(struct shot_engine *e)
{
    return (struct varve_engine *)e;
}

static int hint(struct shot_engine *e, uint64_t version)
{
    return varve_hint(of(e)->v.history, version);
}

static int start(struct shot_engine *e)
{
    return varve_prefetch_start(of(e)->v.history);
}

static int prepare(struct shot_engine *e, void *buf, size_t bytes)
{
    return varve_protect(of(e)->v.history, 0, buf, bytes);
}

static int checkpoint(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    (void)buf;
    (void)bytes;
    if (of(e)->v.on_stream)
        return varve_checkpoint_on(of(e)->v.history, version, of(e)->v.stream);
    return varve_checkpoint(of(e)->v.history, version);
}

static int restore(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    (void)buf;
    (void)bytes;
    if (of(e)->v.on_stream)
        return varve_restore_on(of(e)->v.history, version, of(e)->v.stream);
    return varve_restore(of(e)->v.history, version);
}

static int flush(struct shot_engine *e)
{
    return varve_flush(of(e)->v.history, -1);
}

static int discard(struct shot_engine *e, uint64_t version)
{
    return varve_discard(of(e)->v.history, version);
}

static void sample(struct shot_engine *e, struct shot_sample *ret_sample)
{
    struct varve_stats stats = {.stats_size = sizeof(stats)};
    struct shot_sample s = {0};

    if (varve_stats(of(e)->v.ctx, &stats) == 0) {
        uint32_t tiers = VV_MIN(stats.tiers - of(e)->v.has_disk, (uint32_t)VARVE_TIERS_MAX);

        s.distance = stats.last_restore_distance;
        for (uint32_t t = 0; t < tiers; t++) {
            s.used_bytes += stats.tier_used_bytes[t];
            s.cache_bytes += stats.tier_bytes[t];
        }
        if (tiers > 0) {
            s.first_bytes = stats.tier_bytes[0];
            s.first_used_byte_s = stats.tier_used_byte_s[0];
            s.time_ns = stats.used_until_ns;
        }
        s.moved_down_bytes = stats.moved_bytes[VARVE_HOP_D2H];
        s.moved_up_bytes = stats.moved_bytes[VARVE_HOP_H2D];
        s.restores = stats.restores;
        s.ready = stats.restore_hits;
        s.rate[SHOT_HOP_D2D] = (double)stats.rate[VARVE_HOP_D2D];
        s.rate[SHOT_HOP_H2H] = (double)stats.rate[VARVE_HOP_H2H];
        s.rate[SHOT_HOP_H2F] = (double)stats.rate[VARVE_HOP_H2F];
        s.rate[SHOT_HOP_F2H] = (double)stats.rate[VARVE_HOP_F2H];
    }
    *ret_sample = s;
}

static void explain(struct shot_engine *e, int rc, char *buf, size_t size)
{
    struct varve_error error = {.error_size = sizeof(error)};

    if (varve_last_error(of(e)->v.ctx, &error) == 0 && error.err == rc && error.text[0])
        snprintf(buf, size, "%s", error.text);
    else
        snprintf(buf, size, "%s", varve_strerror(rc));
}

static int close_engine(struct shot_engine *e)
{
    int rc = varve_history_close(of(e)->v.history);
    int ctx_rc = of(e)->v.shares ? 0 : varve_close(of(e)->v.ctx);

    free(e);
    return rc ? rc : ctx_rc;
}

static const struct shot_engine_ops ops = {
    .hint = hint,
    .start = start,
    .prepare = prepare,
    .checkpoint = checkpoint,
    .restore = restore,
    .flush = flush,
    .discard = discard,
    .sample = sample,
    .explain = explain,
    .close = close_engine,
};

int shot_engine_varve(const struct shot_varve *v, struct shot_engine **ret_engine)
{
    struct varve_engine *e = calloc(1, sizeof(*e));

    if (!e) {
        varve_history_close(v->history);
        if (!v->shares)
            varve_close(v->ctx);
        return -ENOMEM;
    }
    *e = (struct varve_engine){.base.ops = &ops, .v = *v};
    *ret_engine = &e->base;
    return 0;
}
