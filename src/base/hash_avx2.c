/* SPDX-License-Identifier: Apache-2.0 */
/* vv_hash64 for x86 processors with AVX2, which hash twice as fast with it. The build compiles only this file
 * with the AVX2 flag, if the compiler has one, so nothing else may be in it. */
#include "base/hash_private.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#ifdef __AVX2__
const bool vvi_hash64_is_avx2 = true;
#else
const bool vvi_hash64_is_avx2 = false;
#endif

uint64_t vvi_hash64_avx2(const void *p, size_t n)
{
    return XXH3_64bits(p, n);
}
