/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of parity: see parity_rules.h. */
#include "store/parity/parity_rules.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define TO(state) (1u << VV_PARITY_##state)

/* From every state LONE or DUE may follow, when files are added or removed. */
static const unsigned may_become[VV_PARITY_STATE_COUNT] = {
    [VV_PARITY_LONE] = TO(DUE) | TO(MADE) | TO(SAFE),
    [VV_PARITY_DUE] = TO(LONE) | TO(BUSY) | TO(MADE) | TO(SAFE) | TO(FAILED),
    [VV_PARITY_BUSY] = TO(LONE) | TO(DUE) | TO(MADE) | TO(SAFE) | TO(FAILED),
    [VV_PARITY_MADE] = TO(LONE) | TO(DUE) | TO(SAFE) | TO(FAILED),
    [VV_PARITY_SAFE] = TO(LONE) | TO(DUE) | TO(MADE),
    [VV_PARITY_FAILED] = TO(LONE) | TO(DUE) | TO(MADE) | TO(SAFE),
};

static void set_state(struct vv_parity_version *v, enum vv_parity_state state)
{
    if (v->state == state)
        return;
    vv_assert((may_become[v->state] >> state & 1) != 0);
    v->state = state;
}

uint64_t vv_parity_sum(uint64_t version, uint32_t n, uint32_t k, const struct vv_parity_file *file)
{
    uint64_t word[3 + 4 * VV_ERASURE_MAX] = {version, n, k};
    for (uint32_t i = 0; i < n; i++) {
        const struct vv_parity_file *f = &file[i];
        uint64_t *w = word + 3 + (size_t)4 * i;
        w[0] = (uint64_t)f->rank << 32 | f->chunk_bytes;
        w[1] = f->generation;
        w[2] = f->run_id;
        w[3] = f->bytes;
    }
    uint64_t sum = vv_hash64(word, (3 + (size_t)4 * n) * sizeof(word[0]));
    return (sum >> 2) | VV_PARITY_SUM;
}

void vv_parity_init(struct vv_parity_version *v, uint64_t version, uint32_t n, uint32_t k,
                    uint32_t me, const uint32_t *ranks)
{
    *v = (struct vv_parity_version){.version = version, .n = n, .k = k, .me = me};
    for (uint32_t i = 0; i < n; i++)
        v->file[i].rank = ranks[i];
}

static bool complete(const struct vv_parity_version *v)
{
    for (uint32_t i = 0; i < v->n; i++)
        if (v->file[i].generation == 0 || v->file[i].run_id != v->file[0].run_id)
            return false;
    return true;
}

static bool all_made(const struct vv_parity_version *v)
{
    uint64_t total = vv_parity_total(v);
    for (uint32_t i = 0; i < v->n; i++)
        if (v->made[i] != v->sum || v->made_total[i] < total)
            return false;
    return true;
}

/* Sets the state that follows from files and parity, unless this layout has failed or is being made. */
static unsigned settle(struct vv_parity_version *v)
{
    enum vv_parity_state before = v->state;
    uint64_t sum = complete(v) ? vv_parity_sum(v->version, v->n, v->k, v->file) : 0;
    unsigned orders = 0;
    bool other = sum != v->sum;
    v->sum = sum;
    if (other) /* our parity for it is looked for again */
        v->made[v->me] = 0;
    if (other && before == VV_PARITY_BUSY)
        orders |= VV_PARITY_CANCEL;
    if (sum == 0) {
        set_state(v, VV_PARITY_LONE);
    } else if (all_made(v)) {
        if (before != VV_PARITY_SAFE || other)
            orders |= VV_PARITY_REPORT | VV_PARITY_DROP_OLD;
        set_state(v, VV_PARITY_SAFE);
        v->safe_sum = sum;
    } else if (other || before == VV_PARITY_LONE) {
        set_state(v, VV_PARITY_DUE);
        orders |= VV_PARITY_START;
    }
    return orders;
}

unsigned vv_parity_have(struct vv_parity_version *v, uint32_t member,
                        const struct vv_parity_file *file)
{
    struct vv_parity_file *f = &v->file[member];
    if (file->generation < f->generation)
        return 0;
    uint32_t rank = f->rank;
    *f = *file;
    f->rank = rank;
    v->high[member] = VV_MAX(v->high[member], file->generation);
    return settle(v);
}

unsigned vv_parity_gone(struct vv_parity_version *v, uint32_t member, uint64_t generation)
{
    if (v->file[member].generation == generation)
        v->file[member] = (struct vv_parity_file){.rank = v->file[member].rank};
    return settle(v);
}

unsigned vv_parity_made(struct vv_parity_version *v, uint32_t member, uint64_t sum, uint64_t total)
{
    v->made[member] = sum;
    v->made_total[member] = total;
    return settle(v);
}

unsigned vv_parity_failed(struct vv_parity_version *v, uint32_t member, uint64_t sum, int status)
{
    if (sum != v->sum || sum == 0 || v->state == VV_PARITY_SAFE || v->state == VV_PARITY_FAILED)
        return 0;
    unsigned orders = VV_PARITY_REPORT;
    if (v->made[member] == sum)
        v->made[member] = 0;
    if (v->state == VV_PARITY_BUSY)
        orders |= VV_PARITY_CANCEL;
    set_state(v, VV_PARITY_FAILED);
    v->status = status;
    return orders;
}

unsigned vv_parity_again(struct vv_parity_version *v, uint64_t sum)
{
    unsigned orders = sum == 0 ? VV_PARITY_TELL_AGAIN : 0;
    if (v->state != VV_PARITY_FAILED || (sum != 0 && sum != v->sum))
        return 0;
    v->status = 0;
    if (v->made[v->me] == v->sum) {
        set_state(v, VV_PARITY_MADE);
        return orders | VV_PARITY_TELL_MADE | settle(v);
    }
    set_state(v, VV_PARITY_DUE);
    return orders | VV_PARITY_START;
}

void vv_parity_begin(struct vv_parity_version *v)
{
    set_state(v, VV_PARITY_BUSY);
}

unsigned vv_parity_done(struct vv_parity_version *v, int status)
{
    vv_assert(v->state == VV_PARITY_BUSY);
    if (status < 0)
        return (vv_parity_failed(v, v->me, v->sum, status) & ~(unsigned)VV_PARITY_CANCEL) |
               VV_PARITY_TELL_FAILED;
    v->made[v->me] = v->sum;
    v->made_total[v->me] = vv_parity_total(v);
    set_state(v, VV_PARITY_MADE);
    return VV_PARITY_TELL_MADE | settle(v);
}

uint64_t vv_parity_total(const struct vv_parity_version *v)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < v->n; i++)
        total += v->high[i];
    return total;
}

void vv_parity_heard(struct vv_parity_version *v, uint32_t member, uint64_t relied, uint64_t total)
{
    v->relied[member] = relied;
    v->total[member] = total;
}

bool vv_parity_relies(const struct vv_parity_version *v, uint64_t sum, uint64_t total)
{
    for (uint32_t i = 0; i < v->n; i++)
        if (i != v->me &&
            (v->relied[i] == sum || (v->file[i].generation != 0 && v->total[i] <= total)))
            return true;
    return false;
}

bool vv_parity_is_safe(const struct vv_parity_version *v)
{
    return v->state == VV_PARITY_SAFE;
}

/* ---- sets ---- */

int vv_parity_sets(uint32_t count, const uint32_t *domain, uint32_t size, uint32_t k,
                   uint32_t *work, uint32_t *ret_set, uint32_t *ret_sets)
{
    uint32_t *of = work, most = 0, sets, at = 0;
    memset(of, 0, ((size_t)count + 1) * sizeof(*of));
    for (uint32_t i = 0; i < count; i++) {
        of[domain[i]]++;
        most = VV_MAX(most, of[domain[i]]);
    }
    sets = VV_MAX(most, (count + size - 1) / size);
    while (sets > most && count / sets < k + 1)
        sets--; /* larger sets than requested, rather than none */
    *ret_sets = sets;
    bool fits = sets > 0 && count / sets >= k + 1 && (count + sets - 1) / sets <= VV_ERASURE_MAX;
    /* Deal domain by domain: no domain has more processes than there are sets, so no set gets two of one. */
    for (uint32_t d = 0; fits && d < count; d++) {
        uint32_t first = at;
        at += of[d];
        of[d] = first;
    }
    for (uint32_t i = 0; fits && i < count; i++)
        ret_set[i] = of[domain[i]]++ % sets;
    return fits ? 0 : -EINVAL;
}
