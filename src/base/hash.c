/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include "base/hash_private.h"

/* Inline the header instead of calling the xxHash library, so that our target flags apply. */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Shorter inputs gain nothing from wider registers. */
#define WIDE_MIN_BYTES 4096u

static bool wide(void)
{
#if defined(__x86_64__)
    return vvi_hash64_is_avx2 && __builtin_cpu_supports("avx2");
#else
    return false;
#endif
}

uint64_t vv_hash64(const void *p, size_t n)
{
    return n >= WIDE_MIN_BYTES && wide() ? vvi_hash64_avx2(p, n) : XXH3_64bits(p, n);
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
