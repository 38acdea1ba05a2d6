/* SPDX-License-Identifier: Apache-2.0 */
#include "core/hash.h"

/* Inlined from the header rather than called in the library: the compiler then sees our own target
 * flags. */
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t vv_hash64(const void *p, size_t n)
{
    return XXH3_64bits(p, n);
}

struct vv_hash_stream {
    XXH3_state_t state;
};

struct vv_hash_stream *vv_hash_stream_new(void)
{
    struct vv_hash_stream *s = (struct vv_hash_stream *)XXH3_createState();

    if (s)
        XXH3_64bits_reset(&s->state);
    return s;
}

void vv_hash_stream_free(struct vv_hash_stream *s)
{
    if (s)
        XXH3_freeState(&s->state);
}

void vv_hash_stream_add(struct vv_hash_stream *s, const void *p, size_t n)
{
    XXH3_64bits_update(&s->state, p, n);
}

uint64_t vv_hash_stream_value(const struct vv_hash_stream *s)
{
    return XXH3_64bits_digest(&s->state);
}
