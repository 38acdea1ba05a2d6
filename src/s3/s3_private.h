/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the client: s3_client.c (the thread), s3_sign.c (signatures), s3_account.c
 * (credentials, endpoint), s3_ops.c (operations of several requests). */
#ifndef VV_S3_PRIVATE_H
#define VV_S3_PRIVATE_H

#include <time.h>

#include "s3/s3.h"

/* ---- s3_account.c ---- */

enum { VVI_S3_TOKEN_MAX = 4096 };

struct vvi_s3_keys {
    char id[160], secret[160], token[VVI_S3_TOKEN_MAX];
};

/* From the environment, or from files. -EACCES: none found; err says which places were searched. */
int vvi_s3_keys_read(struct vvi_s3_keys *ret_keys, char *err, size_t err_bytes);

struct vvi_s3_place {
    char scheme[8], host[256], region[64]; /* host with its port */
    bool path_style;
};

int vvi_s3_place_find(const struct vv_s3_opts *opts, char *err, size_t err_bytes,
                      struct vvi_s3_place *ret_place);

/* ---- s3_sign.c ---- */

enum { VVI_SHA256_BYTES = 32, VVI_SHA256_HEX = 65 };

struct vvi_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
};

void vvi_sha256_init(struct vvi_sha256 *s);
void vvi_sha256_add(struct vvi_sha256 *s, const void *bytes, size_t n);
void vvi_sha256_end(struct vvi_sha256 *s, unsigned char ret[VVI_SHA256_BYTES]);
void vvi_sha256_hex(const void *bytes, size_t n, char ret[VVI_SHA256_HEX]);
void vvi_hmac_sha256(const void *key, size_t key_bytes, const void *bytes, size_t n,
                     unsigned char ret[VVI_SHA256_BYTES]);

/* Text that grows; after an allocation failure it stays failed. */
struct vvi_text {
    char *s; /* owned */
    size_t n, room;
    bool failed;
};

void vvi_text_add(struct vvi_text *t, const char *fmt, ...) VV_PRINTF(2, 3);
void vvi_text_bytes(struct vvi_text *t, const char *bytes, size_t n);
/* Percent-encoded as signatures require. `slash`: slashes are kept. */
void vvi_text_encoded(struct vvi_text *t, const char *s, bool slash);

/* The headers that carry the signature. */
struct vvi_s3_signed {
    char date[24], hash[VVI_SHA256_HEX], auth[768];
};

struct vvi_s3_to_sign {
    const char *method, *host, *path, *query; /* path and query as they are sent */
    const char *region;
    const void *body;
    size_t body_bytes;
    time_t now;
};

int vvi_s3_sign(const struct vvi_s3_to_sign *what, const struct vvi_s3_keys *keys,
                struct vvi_s3_signed *ret_signed);

/* ---- s3_ops.c ---- */

/* Decodes the text of the first <tag> at or behind `at` into `ret`; NULL: none before `end`, or it does not fit.
 * Returns the end of the element. */
const char *vvi_xml_text(const char *at, const char *end, const char *tag, char *ret, size_t room);
/* Parses "2026-11-19T01:43:55.000Z", or the form of HTTP headers. 0: neither. */
int64_t vvi_s3_time(const char *text);

#endif
