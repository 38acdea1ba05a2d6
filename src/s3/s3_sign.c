/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures, version 4 (AWS4-HMAC-SHA256), as the stores document them.
 *
 * Computed here and not by libcurl, whose older versions neither sort queries nor take session tokens. The
 * signature covers the host, the date, the hash of the body and the session token. For bodies above SMALL_BODY the
 * hash is UNSIGNED-PAYLOAD: their contents have checksums of their own. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/s3_private.h"

enum { SMALL_BODY = 64 << 10 };

/* ---- SHA-256 (FIPS 180-4) ---- */

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t ror(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void sha256_block(struct vvi_sha256 *s, const unsigned char *p)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    memcpy(v, s->state, sizeof(v));
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = ror(v[4], 6) ^ ror(v[4], 11) ^ ror(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + K[i] + w[i];
        uint32_t s0 = ror(v[0], 2) ^ ror(v[0], 13) ^ ror(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        s->state[i] += v[i];
}

void vvi_sha256_init(struct vvi_sha256 *s)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->state, first, sizeof(first));
    s->bytes = 0;
}

void vvi_sha256_add(struct vvi_sha256 *s, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    while (n > 0) {
        size_t have = s->bytes % sizeof(s->block), take = VV_MIN(n, sizeof(s->block) - have);
        memcpy(s->block + have, p, take);
        s->bytes += take;
        p += take;
        n -= take;
        if (have + take == sizeof(s->block))
            sha256_block(s, s->block);
    }
}

void vvi_sha256_end(struct vvi_sha256 *s, unsigned char ret[VVI_SHA256_BYTES])
{
    uint64_t bits = s->bytes * 8;
    unsigned char pad[72] = {0x80};
    size_t have = s->bytes % 64, n = (have < 56 ? 56 : 120) - have;
    for (int i = 0; i < 8; i++)
        pad[n + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    vvi_sha256_add(s, pad, n + 8);
    for (int i = 0; i < VVI_SHA256_BYTES; i++)
        ret[i] = (unsigned char)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

static void to_hex(const unsigned char *bytes, char ret[VVI_SHA256_HEX])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < VVI_SHA256_BYTES; i++) {
        ret[2 * i] = digits[bytes[i] >> 4];
        ret[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret[2 * VVI_SHA256_BYTES] = '\0';
}

void vvi_sha256_hex(const void *bytes, size_t n, char ret[VVI_SHA256_HEX])
{
    struct vvi_sha256 s;
    unsigned char sum[VVI_SHA256_BYTES];
    vvi_sha256_init(&s);
    vvi_sha256_add(&s, bytes, n);
    vvi_sha256_end(&s, sum);
    to_hex(sum, ret);
}

void vvi_hmac_sha256(const void *key, size_t key_bytes, const void *bytes, size_t n,
                     unsigned char ret[VVI_SHA256_BYTES])
{
    struct vvi_sha256 s;
    unsigned char block[64] = {0}, pad[64];
    if (key_bytes > sizeof(block)) {
        vvi_sha256_init(&s);
        vvi_sha256_add(&s, key, key_bytes);
        vvi_sha256_end(&s, block);
    } else {
        memcpy(block, key, key_bytes);
    }
    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] = block[i] ^ 0x36;
    vvi_sha256_init(&s);
    vvi_sha256_add(&s, pad, sizeof(pad));
    vvi_sha256_add(&s, bytes, n);
    vvi_sha256_end(&s, ret);
    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] = block[i] ^ 0x5c;
    vvi_sha256_init(&s);
    vvi_sha256_add(&s, pad, sizeof(pad));
    vvi_sha256_add(&s, ret, VVI_SHA256_BYTES);
    vvi_sha256_end(&s, ret);
}

/* ---- text ---- */

void vvi_text_bytes(struct vvi_text *t, const char *bytes, size_t n)
{
    if (t->n + n + 1 > t->room) {
        size_t room = VV_MAX(2 * t->room, vv_align_up(t->n + n + 1, 256));
        char *more = t->failed ? NULL : realloc(t->s, room);
        t->failed = !more;
        if (t->failed)
            return;
        t->s = more;
        t->room = room;
    }
    memcpy(t->s + t->n, bytes, n);
    t->n += n;
    t->s[t->n] = '\0';
}

void vvi_text_add(struct vvi_text *t, const char *fmt, ...)
{
    char *s;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&s, fmt, args);
    va_end(args);
    if (n < 0) {
        t->failed = true;
        return;
    }
    vvi_text_bytes(t, s, (size_t)n);
    free(s);
}

void vvi_text_encoded(struct vvi_text *t, const char *s, bool slash)
{
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && slash);
        if (plain)
            vvi_text_bytes(t, s, 1);
        else
            vvi_text_add(t, "%%%02X", c);
    }
}

/* ---- requests ---- */

static void derive_key(const struct vvi_s3_keys *keys, const char *day, const char *region,
                       unsigned char ret[VVI_SHA256_BYTES])
{
    char first[sizeof(keys->secret) + 8];
    int n = snprintf(first, sizeof(first), "AWS4%s", keys->secret);
    vvi_hmac_sha256(first, (size_t)n, day, 8, ret);
    vvi_hmac_sha256(ret, VVI_SHA256_BYTES, region, strlen(region), ret);
    vvi_hmac_sha256(ret, VVI_SHA256_BYTES, "s3", 2, ret);
    vvi_hmac_sha256(ret, VVI_SHA256_BYTES, "aws4_request", 12, ret);
    explicit_bzero(first, sizeof(first));
}

int vvi_s3_sign(const struct vvi_s3_to_sign *w, const struct vvi_s3_keys *keys,
                struct vvi_s3_signed *ret)
{
    const char *token_name = keys->token[0] != '\0' ? ";x-amz-security-token" : "";
    struct vvi_text text = {0};
    struct tm tm;
    unsigned char key[VVI_SHA256_BYTES], sum[VVI_SHA256_BYTES];
    char hex[VVI_SHA256_HEX], scope[128];
    gmtime_r(&w->now, &tm);
    strftime(ret->date, sizeof(ret->date), "%Y%m%dT%H%M%SZ", &tm);
    if (w->body_bytes <= SMALL_BODY)
        vvi_sha256_hex(w->body_bytes == 0 ? "" : w->body, w->body_bytes, ret->hash);
    else
        snprintf(ret->hash, sizeof(ret->hash), "UNSIGNED-PAYLOAD");
    vvi_text_add(&text, "%s\n%s\n%s\nhost:%s\nx-amz-content-sha256:%s\nx-amz-date:%s\n", w->method,
                 w->path, w->query, w->host, ret->hash, ret->date);
    if (keys->token[0] != '\0')
        vvi_text_add(&text, "x-amz-security-token:%s\n", keys->token);
    vvi_text_add(&text, "\nhost;x-amz-content-sha256;x-amz-date%s\n%s", token_name, ret->hash);
    if (text.failed) {
        free(text.s);
        return -ENOMEM;
    }
    vvi_sha256_hex(text.s, text.n, hex);
    text.n = 0;
    snprintf(scope, sizeof(scope), "%.8s/%s/s3/aws4_request", ret->date, w->region);
    vvi_text_add(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", ret->date, scope, hex);
    bool failed = text.failed;
    if (!failed) {
        derive_key(keys, ret->date, w->region, key);
        vvi_hmac_sha256(key, sizeof(key), text.s, text.n, sum);
        to_hex(sum, hex);
        snprintf(ret->auth, sizeof(ret->auth),
                 "AWS4-HMAC-SHA256 Credential=%s/%s, "
                 "SignedHeaders=host;x-amz-content-sha256;x-amz-date%s, Signature=%s",
                 keys->id, scope, token_name, hex);
        explicit_bzero(key, sizeof(key));
    }
    free(text.s);
    return failed ? -ENOMEM : 0;
}
