/* SPDX-License-Identifier: Apache-2.0 */
/* Erasure codes: see erasure.h. ISA-L does the arithmetic if it was built in; exclusive or works without. */
#include "store/parity/erasure.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"

#ifdef HAVE_ISAL
#include <isa-l.h>
#endif

bool vv_erasure_any(void)
{
#ifdef HAVE_ISAL
    return true;
#else
    return false;
#endif
}

uint64_t vv_erasure_segment(uint64_t longest, uint32_t m, uint64_t chunk)
{
    uint64_t least = vv_align_up((longest + m - 1) / m, 4096);
    return least < 16 * chunk ? least : vv_align_up(least, chunk);
}

#ifdef HAVE_ISAL
/* One row of coefficients, which gives `want` as a sum of the blocks `have`. */
static int coefficients(uint32_t n, uint32_t m, const uint32_t *have, uint32_t want, uint8_t *ret)
{
    uint8_t all[VV_ERASURE_MAX * VV_ERASURE_MAX], some[VV_ERASURE_MAX * VV_ERASURE_MAX],
        inverse[VV_ERASURE_MAX * VV_ERASURE_MAX];
    gf_gen_cauchy1_matrix(all, (int)n, (int)m);
    for (uint32_t i = 0; i < m; i++)
        memcpy(some + (size_t)i * m, all + (size_t)have[i] * m, m);
    if (gf_invert_matrix(some, inverse, (int)m) != 0)
        return -EINVAL;
    for (uint32_t j = 0; j < m; j++) {
        ret[j] = 0;
        for (uint32_t i = 0; i < m; i++)
            ret[j] ^= gf_mul(all[(size_t)want * m + i], inverse[(size_t)i * m + j]);
    }
    return 0;
}
#endif

int vv_erasure_solve(uint32_t n, uint32_t k, const uint32_t *have, uint32_t want,
                     struct vv_erasure *ret_erasure)
{
    uint32_t m = n - k;
    uint64_t seen = 0;
    if (k == 0 || k >= n || n > VV_ERASURE_MAX || want >= n)
        return -EINVAL;
    for (uint32_t i = 0; i < m; i++) {
        if (have[i] >= n || have[i] == want || (seen >> have[i] & 1) != 0)
            return -EINVAL;
        seen |= UINT64_C(1) << have[i];
    }
    ret_erasure->m = m;
    ret_erasure->plain = k == 1;
    if (k == 1)
        return 0;
#ifdef HAVE_ISAL
    uint8_t row[VV_ERASURE_MAX];
    int rc = coefficients(n, m, have, want, row);
    if (rc == 0)
        ec_init_tables((int)m, 1, row, ret_erasure->table);
    return rc;
#else
    return -ENOTSUP;
#endif
}

#ifdef HAVE_ISAL
/* ISA-L's exclusive or takes at least three blocks. */
static void sum(const void *const *have, uint32_t n, void *dst, size_t bytes)
{
    void *block[VV_ERASURE_MAX + 1];
    memcpy(block, have, n * sizeof(*have));
    block[n] = dst;
    int rc = n > 1 ? xor_gen((int)n + 1, (int)bytes, block) : 1;
    if (n == 1)
        memcpy(dst, have[0], bytes);
    else
        vv_assert(rc == 0);
}
#else
static void sum(const void *const *have, uint32_t n, void *dst, size_t bytes)
{
    uint64_t *to = dst;
    memcpy(dst, have[0], bytes);
    for (uint32_t i = 1; i < n; i++) {
        const uint64_t *from = have[i];
        for (size_t w = 0; w < bytes / sizeof(*to); w++)
            to[w] ^= from[w];
    }
}
#endif

void vv_erasure_make(const struct vv_erasure *e, const void *const *have, void *dst, size_t bytes)
{
    const void *some[VV_ERASURE_MAX];
    uint32_t n = 0;
    vv_assert(bytes % 64 == 0);
#ifdef HAVE_ISAL
    _Alignas(32) uint8_t table[32 * VV_ERASURE_MAX];
    const uint8_t *rows = e->table;
#endif
    for (uint32_t i = 0; i < e->m; i++) {
        if (!have[i])
            continue;
#ifdef HAVE_ISAL
        if (!e->plain)
            memcpy(table + (size_t)32 * n, e->table + (size_t)32 * i, 32);
#endif
        some[n++] = have[i];
    }
    if (n == 0) {
        memset(dst, 0, bytes);
        return;
    }
    if (e->plain) {
        sum(some, n, dst, bytes);
        return;
    }
#ifdef HAVE_ISAL
    if (n < e->m)
        rows = table;
    uint8_t *to = dst;
    ec_encode_data((int)bytes, (int)n, 1, (uint8_t *)(uintptr_t)rows, (uint8_t **)(uintptr_t)some,
                   &to);
#endif
}
