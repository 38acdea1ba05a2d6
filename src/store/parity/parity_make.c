/* SPDX-License-Identifier: Apache-2.0 */
/* Making what one process of a set has lost: see parity_make.h. */
#include "store/parity/parity_make.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static void lengths(const struct vv_parity_layout *l, uint64_t *ret_longest, uint32_t *ret_chunk)
{
    *ret_longest = 0;
    *ret_chunk = 4096;
    for (uint32_t i = 0; i < l->n; i++) {
        *ret_longest = VV_MAX(*ret_longest, l->file[i].bytes);
        *ret_chunk = VV_MAX(*ret_chunk, l->file[i].chunk_bytes);
    }
}

static uint64_t segment(const struct vv_parity_layout *l)
{
    uint64_t longest;
    uint32_t chunk;
    lengths(l, &longest, &chunk);
    return vv_erasure_segment(longest, l->n - l->k, chunk);
}

void vv_parity_layout_fill(struct vv_parity_layout *l, const struct vv_parity_version *v)
{
    *l = (struct vv_parity_layout){.magic = VV_PARITY_MAGIC,
                                   .format = 1,
                                   .n = v->n,
                                   .k = v->k,
                                   .me = v->me,
                                   .version = v->version,
                                   .sum = v->sum};
    memcpy(l->file, v->file, v->n * sizeof(v->file[0]));
    l->segment = segment(l);
}

bool vv_parity_layout_ok(const struct vv_parity_layout *l, size_t bytes)
{
    if (bytes < offsetof(struct vv_parity_layout, file) ||
        memcmp(l->magic, VV_PARITY_MAGIC, sizeof(l->magic)) != 0 || l->format != 1 ||
        l->n > VV_ERASURE_MAX || l->k == 0 || l->k >= l->n || l->me >= l->n ||
        bytes < vv_parity_layout_bytes(l) ||
        vv_parity_sum(l->version, l->n, l->k, l->file) != l->sum)
        return false;
    for (uint32_t i = 0; i < l->n; i++)
        if (!vv_is_pow2(l->file[i].chunk_bytes) || l->file[i].chunk_bytes < 4096 ||
            l->file[i].bytes == 0 || l->file[i].bytes % 4096 != 0 ||
            l->file[i].bytes > INT64_MAX / 4 / VV_ERASURE_MAX || l->file[i].generation == 0 ||
            l->file[i].generation >= VV_PARITY_SUM ||
            (i > 0 && l->file[i].rank <= l->file[i - 1].rank))
            return false;
    return l->segment == segment(l);
}

uint32_t vv_parity_layout_chunk(const struct vv_parity_layout *l)
{
    uint64_t longest, most = l->segment & (~l->segment + 1);
    uint32_t chunk;
    lengths(l, &longest, &chunk);
    return (uint32_t)VV_MIN(most, (uint64_t)chunk);
}

void vv_parity_make_init(struct vv_parity_make *m, const struct vv_parity_layout *l, bool parity)
{
    uint32_t chunk;
    uint64_t longest;
    *m = (struct vv_parity_make){.layout = *l, .first = parity ? l->n - l->k : 0};
    lengths(l, &longest, &chunk);
    m->window = VV_MAX(VV_PARITY_WINDOW, (uint64_t)chunk);
    m->total = parity ? l->k * l->segment : l->file[l->me].bytes;
}

/* Drops all ranges of the window. */
static void forget(struct vv_parity_make *m)
{
    for (uint32_t i = 0; i < VV_ERASURE_MAX; i++)
        free(m->source[i].memory);
    memset(m->source, 0, sizeof(m->source));
    m->bytes = 0;
}

void vv_parity_make_fini(struct vv_parity_make *m)
{
    forget(m);
}

/* The bytes of a member that a source of the window needs. Behind the end of a string are zeros. */
static struct vv_parity_range range_of(const struct vv_parity_make *m, uint32_t block,
                                       uint32_t member, uint64_t in_block)
{
    const struct vv_parity_layout *l = &m->layout;
    uint32_t data = l->n - l->k;
    bool parity = block >= data;
    struct vv_parity_range r = {.member = member,
                                .parity = parity,
                                .generation = parity ? l->sum : l->file[member].generation,
                                .offset = (parity ? block - data : block) * l->segment + in_block,
                                .bytes = m->bytes};
    uint64_t end = parity ? l->k * l->segment : l->file[member].bytes;
    if (r.offset >= end)
        r.bytes = 0;
    else
        r.bytes = VV_MIN(r.bytes, end - r.offset);
    return r;
}

/* Chooses the blocks from which the next window is made. */
static int plan(struct vv_parity_make *m)
{
    const struct vv_parity_layout *l = &m->layout;
    uint32_t data = l->n - l->k, want = m->first + (uint32_t)(m->at / l->segment);
    uint32_t stripe = vv_erasure_stripe(l->n, l->me, want), n = 0;
    uint64_t in_block = m->at % l->segment;
    m->bytes = VV_MIN(VV_MIN(m->window, l->segment - in_block), m->total - m->at);
    for (uint32_t b = 0; b < l->n && n < data; b++) {
        uint32_t member = vv_erasure_member(l->n, stripe, b);
        if (b != want && m->has[b >= data][member]) {
            m->source[n].range = range_of(m, b, member, in_block);
            m->have[n++] = b;
        }
    }
    if (n < data) {
        m->bytes = 0;
        return -ENODATA;
    }
    return vv_erasure_solve(l->n, l->k, m->have, want, &m->how);
}

int vv_parity_make_next(struct vv_parity_make *m, struct vv_parity_range *ret_range)
{
    int rc = m->bytes == 0 && !vv_parity_make_over(m) ? plan(m) : 0;
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; m->bytes > 0 && i < m->layout.n - m->layout.k; i++) {
        if (m->source[i].asked || m->source[i].range.bytes == 0)
            continue;
        m->source[i].asked = true;
        *ret_range = m->source[i].range;
        return 0;
    }
    return -EAGAIN;
}

bool vv_parity_make_take(struct vv_parity_make *m, uint32_t member, uint64_t offset, void *memory,
                         size_t bytes)
{
    for (uint32_t i = 0; m->bytes > 0 && i < m->layout.n - m->layout.k; i++) {
        const struct vv_parity_range *r = &m->source[i].range;
        if (!m->source[i].asked || m->source[i].memory || r->member != member ||
            r->offset != offset || r->bytes != bytes)
            continue;
        m->source[i].memory = memory;
        return true;
    }
    return false;
}

void vv_parity_make_without(struct vv_parity_make *m, uint32_t member, bool parity)
{
    m->has[parity][member] = false;
    forget(m);
}

/* Fills a source that ends within the window with zeros. */
static void *filled(void *memory, size_t lead, uint64_t have, uint64_t want)
{
    char *more = NULL;
    if (have == want)
        return memory;
    if (posix_memalign((void **)&more, 4096, lead + want) == 0) {
        memcpy(more + lead, (char *)memory + lead, have);
        memset(more + lead + have, 0, want - have);
    }
    free(memory);
    return more;
}

bool vv_parity_make_ready(const struct vv_parity_make *m)
{
    for (uint32_t i = 0; i < m->layout.n - m->layout.k; i++)
        if (m->source[i].range.bytes > 0 && !m->source[i].memory)
            return false;
    return m->bytes > 0;
}

int vv_parity_make_window(struct vv_parity_make *m, size_t lead, void *dst, uint64_t *ret_at,
                          uint64_t *ret_bytes)
{
    const void *from[VV_ERASURE_MAX];
    uint32_t n = m->layout.n - m->layout.k;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t have = m->source[i].range.bytes;
        from[i] = NULL;
        if (have == 0)
            continue;
        m->source[i].memory = filled(m->source[i].memory, lead, have, m->bytes);
        if (!m->source[i].memory)
            return -ENOMEM;
        m->source[i].range.bytes = m->bytes;
        from[i] = (const char *)m->source[i].memory + lead;
    }
    vv_erasure_make(&m->how, from, dst, m->bytes);
    *ret_at = m->at;
    *ret_bytes = m->bytes;
    m->at += m->bytes;
    forget(m);
    return 0;
}
