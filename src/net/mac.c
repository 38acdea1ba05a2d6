/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 and the keyed hash made from it. It is implemented here because it is needed only once per connection, for
 * a few hundred bytes, and no library that is present everywhere offers it. No state; any thread.
 */
#include "net/mac.h"

#include <string.h>

#include "base/assert.h"
#include "base/util.h"

enum { BLOCK = 64, MSG_MAX = 512 };

static const uint32_t round_keys[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void compress(uint32_t h[8], const uint8_t *p)
{
    uint32_t w[64], v[8];

    for (unsigned i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (unsigned i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) + w[i - 7] +
               (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof(v));
    for (unsigned i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t1 = v[7] + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & v[5]) ^ (~e & v[6])) +
                      round_keys[i] + w[i];
        uint32_t t2 =
            (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (unsigned i = 0; i < 8; i++)
        h[i] += v[i];
}

void vvi_net_sha256(const void *p, size_t n, uint8_t ret_hash[VVI_MAC_BYTES])
{
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *in = p;
    uint8_t tail[2 * BLOCK] = {0};
    size_t rest = n % BLOCK, tail_bytes = rest < BLOCK - 8 ? BLOCK : 2 * BLOCK;

    for (size_t i = 0; i + BLOCK <= n; i += BLOCK)
        compress(h, in + i);
    if (rest)
        memcpy(tail, in + n - rest, rest);
    tail[rest] = 0x80;
    for (unsigned i = 0; i < 8; i++)
        tail[tail_bytes - 1 - i] = (uint8_t)((uint64_t)n * 8 >> 8 * i);
    for (size_t i = 0; i < tail_bytes; i += BLOCK)
        compress(h, tail + i);
    for (unsigned i = 0; i < VVI_MAC_BYTES; i++)
        ret_hash[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

void vvi_net_mac(const void *key, size_t key_bytes, const void *msg, size_t msg_bytes,
                 uint8_t ret_mac[VVI_MAC_BYTES])
{
    uint8_t block[BLOCK] = {0}, inner[BLOCK + MSG_MAX], outer[BLOCK + VVI_MAC_BYTES];

    vv_assert(msg_bytes <= MSG_MAX);
    if (key_bytes > BLOCK)
        vvi_net_sha256(key, key_bytes, block);
    else
        memcpy(block, key, key_bytes);
    for (unsigned i = 0; i < BLOCK; i++) {
        inner[i] = block[i] ^ 0x36;
        outer[i] = block[i] ^ 0x5c;
    }
    memcpy(inner + BLOCK, msg, msg_bytes);
    vvi_net_sha256(inner, BLOCK + msg_bytes, outer + BLOCK);
    vvi_net_sha256(outer, sizeof(outer), ret_mac);
}

bool vvi_net_mac_equal(const uint8_t a[VVI_MAC_BYTES], const uint8_t b[VVI_MAC_BYTES])
{
    unsigned differs = 0;

    for (unsigned i = 0; i < VVI_MAC_BYTES; i++)
        differs |= a[i] ^ b[i];
    return differs == 0;
}
