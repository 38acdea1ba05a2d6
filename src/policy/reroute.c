/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/reroute.h"

/* Rates of fewer bytes than this are not evidence yet. */
#define EVIDENCE_BYTES (UINT64_C(1) << 20)

/* A layer is skipped if its rate is below this share of the next layer's rate. It is used again when
 * its rate reaches that of the next layer: two layers of the same speed do not alternate. */
#define SKIP_BELOW 0.8

/* A probe takes longer than a write to the next layer, so probes become rarer: at first the layer may
 * recover soon, after half a minute that is less likely. */
#define WAIT_FIRST_NS (UINT64_C(1) * 1000000000)
#define WAIT_MOST_NS  (UINT64_C(32) * 1000000000)

bool vv_reroute_skips(const struct vv_reroute *r, uint64_t now_ns)
{
    return r->skipped && (r->probing || now_ns < r->probe_ns);
}

void vv_reroute_begins(struct vv_reroute *r)
{
    if (!r->skipped || r->probing)
        return;
    r->probing = true;
    r->probes++;
}

static void consider(struct vv_reroute *r, double own, double next, uint64_t now_ns)
{
    if (r->skipped || own <= 0 || next <= 0 || r->own_bytes < EVIDENCE_BYTES ||
        r->next_bytes < EVIDENCE_BYTES || own >= next * SKIP_BELOW)
        return;
    r->skipped = true;
    r->probing = false;
    r->skips++;
    r->wait_ns = WAIT_FIRST_NS;
    r->probe_ns = now_ns + r->wait_ns;
}

bool vv_reroute_own(struct vv_reroute *r, uint64_t bytes, double bytes_per_s, double own,
                    double next, uint64_t now_ns)
{
    if (bytes_per_s > 0)
        r->own_bytes += bytes;
    if (!r->skipped) {
        consider(r, own, next, now_ns);
        return false;
    }
    if (!r->probing)
        return false; /* begun before it was skipped */
    r->probing = false;
    if (bytes_per_s > 0 && bytes_per_s >= next) {
        r->skipped = false;
        r->own_bytes = 0;
        return true;
    }
    r->probe_ns = now_ns + r->wait_ns;
    r->wait_ns = 2 * r->wait_ns < WAIT_MOST_NS ? 2 * r->wait_ns : WAIT_MOST_NS;
    return false;
}

void vv_reroute_next(struct vv_reroute *r, uint64_t bytes, double own, double next, uint64_t now_ns)
{
    r->next_bytes += bytes;
    consider(r, own, next, now_ns);
}
