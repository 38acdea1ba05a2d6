/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of several requests: listings in pages, and uploads in parts.
 *
 * Answers are XML with a few fixed elements, which are found by their tags, in order. Names are percent-encoded
 * if the store supports that (encoding-type), because XML cannot hold every byte. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/s3_private.h"

enum { KEY_MAX = 1024 * 3 + 1 };

/* ---- XML ---- */

/* Decodes one character of XML text and advances. */
static char decode(const char **at, const char *end)
{
    static const struct {
        const char *name;
        char c;
    } named[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    size_t left = (size_t)(end - *at);
    for (size_t i = 0; **at == '&' && i < VV_ARRAY_SIZE(named); i++) {
        size_t n = strlen(named[i].name);
        if (n <= left && memcmp(*at, named[i].name, n) == 0) {
            *at += n;
            return named[i].c;
        }
    }
    if (left > 3 && (*at)[0] == '&' && (*at)[1] == '#') {
        char *stop;
        long code = (*at)[2] == 'x' ? strtol(*at + 3, &stop, 16) : strtol(*at + 2, &stop, 10);
        if (stop < end && *stop == ';' && code > 0 && code < 128) {
            *at = stop + 1;
            return (char)code;
        }
    }
    return *(*at)++;
}

/* Finds the text between <tag> and </tag>. */
static bool find_element(const char *at, const char *end, const char *tag, const char **ret_text,
                         const char **ret_text_end)
{
    char open[48], close[48];
    int n = snprintf(open, sizeof(open), "<%s>", tag);
    int m = snprintf(close, sizeof(close), "</%s>", tag);
    const char *text = at < end ? memmem(at, (size_t)(end - at), open, (size_t)n) : NULL;
    if (!text)
        return false;
    text += n;
    const char *stop = memmem(text, (size_t)(end - text), close, (size_t)m);
    if (!stop)
        return false;
    *ret_text = text;
    *ret_text_end = stop;
    return true;
}

const char *vvi_xml_text(const char *at, const char *end, const char *tag, char *ret, size_t room)
{
    const char *text, *stop;
    size_t n = 0;
    if (!find_element(at, end, tag, &text, &stop))
        return NULL;
    while (text < stop && n + 1 < room)
        ret[n++] = decode(&text, stop);
    ret[n] = '\0';
    return text < stop ? NULL : stop;
}

int64_t vvi_s3_time(const char *text)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!end) {
        tm = (struct tm){0};
        end = strptime(text, "%a, %d %b %Y %H:%M:%S", &tm);
    }
    return end ? (int64_t)timegm(&tm) : 0;
}

/* False: the text contains a NUL. */
static bool percent_decode(char *s)
{
    char *to = s;
    unsigned code;
    for (; *s != '\0'; s++)
        if (*s == '%' && isxdigit((unsigned char)s[1]) && isxdigit((unsigned char)s[2]) &&
            sscanf(s + 1, "%2x", &code) == 1) {
            if (code == 0)
                return false;
            *to++ = (char)code;
            s += 2;
        } else {
            *to++ = *s == '+' ? ' ' : *s;
        }
    *to = '\0';
    return true;
}

/* ---- objects ---- */

int vv_s3_put(struct vv_s3 *s3, const char *bucket, const char *key, const void *body, size_t bytes)
{
    char none[1024];
    struct vv_s3_req req = {.method = VV_S3_PUT,
                            .bucket = bucket,
                            .key = key,
                            .body = body,
                            .body_bytes = bytes,
                            .buf = none,
                            .room = sizeof(none)};
    return vv_s3_perform(s3, &req);
}

int vv_s3_delete(struct vv_s3 *s3, const char *bucket, const char *key)
{
    char none[1024];
    struct vv_s3_req req = {
        .method = VV_S3_DELETE, .bucket = bucket, .key = key, .buf = none, .room = sizeof(none)};
    int rc = vv_s3_perform(s3, &req);
    return rc == -ENOENT ? 0 : rc;
}

/* ---- listings ---- */

struct page {
    const char *text, *end;
    const char *prefix; /* what was requested */
    bool encoded;
    int (*visit)(void *user, const struct vv_s3_entry *entry);
    void *user;
};

/* Visits the elements <tag> of a page, in order, each with a key. */
static int visit_elements(const struct page *p, const char *tag, const char *key_tag,
                          bool is_prefix)
{
    const char *at = p->text, *from, *to;
    char *key = malloc(KEY_MAX);
    char number[32], etag[VV_S3_ETAG_MAX], when[48], id[VV_S3_UPLOAD_ID_MAX];
    int rc = key ? 0 : -ENOMEM;
    while (rc == 0 && find_element(at, p->end, tag, &from, &to)) {
        struct vv_s3_entry e = {.key = key, .is_prefix = is_prefix, .etag = etag, .upload_id = id};
        number[0] = etag[0] = when[0] = id[0] = '\0';
        at = to;
        if (!vvi_xml_text(from, to, key_tag, key, KEY_MAX)) {
            rc = -EIO;
            break;
        }
        (void)vvi_xml_text(from, to, "Size", number, sizeof(number));
        (void)vvi_xml_text(from, to, "ETag", etag, sizeof(etag));
        (void)vvi_xml_text(from, to, "UploadId", id, sizeof(id));
        if (!vvi_xml_text(from, to, "LastModified", when, sizeof(when)))
            (void)vvi_xml_text(from, to, "Initiated", when, sizeof(when));
        /* Cut off, it would be the name of another object. */
        if (p->encoded && !percent_decode(key))
            continue;
        if (strncmp(key, p->prefix, strlen(p->prefix)) != 0)
            continue; /* callers skip the prefix */
        e.bytes = strtoull(number, NULL, 10);
        e.modified_s = vvi_s3_time(when);
        rc = p->visit(p->user, &e);
    }
    free(key);
    return rc;
}

static bool tag_is(const struct page *p, const char *tag, const char *value)
{
    char text[16];
    return vvi_xml_text(p->text, p->end, tag, text, sizeof(text)) && strcmp(text, value) == 0;
}

static struct page page_of(const struct vv_s3_req *req, const char *prefix,
                           int (*visit)(void *user, const struct vv_s3_entry *entry), void *user)
{
    struct page p = {
        .text = req->buf ? req->buf : "", .prefix = prefix, .visit = visit, .user = user};
    p.end = p.text + req->got;
    p.encoded = tag_is(&p, "EncodingType", "url");
    return p;
}

int vv_s3_list(struct vv_s3 *s3, const char *bucket, const char *prefix, bool flat,
               int (*visit)(void *user, const struct vv_s3_entry *entry), void *user)
{
    char token[2048] = "";
    bool more = true;
    int rc = 0;
    while (rc == 0 && more) {
        struct vv_s3_req req = {.method = VV_S3_GET,
                                .bucket = bucket,
                                .query = {{"list-type", "2"},
                                          {"max-keys", "1000"},
                                          {"encoding-type", "url"},
                                          {"prefix", prefix}},
                                .nquery = 4};
        if (!flat)
            req.query[req.nquery++] = (struct vv_s3_param){"delimiter", "/"};
        if (token[0] != '\0')
            req.query[req.nquery++] = (struct vv_s3_param){"continuation-token", token};
        rc = vv_s3_perform(s3, &req);
        struct page p = page_of(&req, prefix, visit, user);
        if (rc == 0)
            rc = visit_elements(&p, "Contents", "Key", false);
        if (rc == 0 && !flat)
            rc = visit_elements(&p, "CommonPrefixes", "Prefix", true);
        more = tag_is(&p, "IsTruncated", "true");
        if (rc == 0 && more &&
            !vvi_xml_text(p.text, p.end, "NextContinuationToken", token, sizeof(token)))
            rc = -EIO;
        free(req.buf);
    }
    return rc;
}

int vv_s3_list_uploads(struct vv_s3 *s3, const char *bucket, const char *prefix,
                       int (*visit)(void *user, const struct vv_s3_entry *entry), void *user)
{
    char key[KEY_MAX] = "", id[VV_S3_UPLOAD_ID_MAX] = "";
    bool more = true;
    int rc = 0;
    while (rc == 0 && more) {
        struct vv_s3_req req = {
            .method = VV_S3_GET,
            .bucket = bucket,
            .query = {{"uploads", ""}, {"encoding-type", "url"}, {"prefix", prefix}},
            .nquery = 3};
        if (key[0] != '\0')
            req.query[req.nquery++] = (struct vv_s3_param){"key-marker", key};
        if (id[0] != '\0')
            req.query[req.nquery++] = (struct vv_s3_param){"upload-id-marker", id};
        rc = vv_s3_perform(s3, &req);
        struct page p = page_of(&req, prefix, visit, user);
        if (rc == 0)
            rc = visit_elements(&p, "Upload", "Key", false);
        more = tag_is(&p, "IsTruncated", "true");
        if (rc == 0 && more &&
            (!vvi_xml_text(p.text, p.end, "NextKeyMarker", key, sizeof(key)) ||
             !vvi_xml_text(p.text, p.end, "NextUploadIdMarker", id, sizeof(id))))
            rc = -EIO;
        if (p.encoded && !percent_decode(key))
            rc = -EIO;
        free(req.buf);
    }
    return rc;
}

/* ---- uploads ---- */

int vv_s3_upload_begin(struct vv_s3 *s3, const char *bucket, const char *key,
                       char ret_id[VV_S3_UPLOAD_ID_MAX])
{
    struct vv_s3_req req = {.method = VV_S3_POST,
                            .bucket = bucket,
                            .key = key,
                            .query = {{"uploads", ""}},
                            .nquery = 1};
    int rc = vv_s3_perform(s3, &req);
    if (rc == 0 && (!req.buf || !vvi_xml_text(req.buf, req.buf + req.got, "UploadId", ret_id,
                                              VV_S3_UPLOAD_ID_MAX)))
        rc = -EIO;
    free(req.buf);
    return rc;
}

void vv_s3_upload_part(struct vv_s3_req *req, const char *bucket, const char *key, const char *id,
                       const char *number, const void *body, size_t bytes)
{
    *req = (struct vv_s3_req){.method = VV_S3_PUT,
                              .bucket = bucket,
                              .key = key,
                              .query = {{"partNumber", number}, {"uploadId", id}},
                              .nquery = 2,
                              .body = body,
                              .body_bytes = bytes};
}

/* The object that has a key, or why there is none. */
struct state {
    int rc;
    uint64_t bytes;
    char etag[VV_S3_ETAG_MAX];
};

static struct state look_at_object(struct vv_s3 *s3, const char *bucket, const char *key)
{
    struct vv_s3_req req = {.method = VV_S3_HEAD, .bucket = bucket, .key = key};
    struct state state = {.rc = vv_s3_perform(s3, &req), .bytes = req.object_bytes};
    memcpy(state.etag, req.etag, sizeof(state.etag));
    free(req.buf);
    return state;
}

/* True if the key has got an object of that length since `before`. An object that was there already, as when a
 * damaged one is replaced, must have another ETag: its length is the same. */
static bool has_new_object(struct vv_s3 *s3, const char *bucket, const char *key, uint64_t bytes,
                           const struct state *before)
{
    if (before->rc != 0 && before->rc != -ENOENT)
        return false;
    struct state now = look_at_object(s3, bucket, key);
    return now.rc == 0 && now.bytes == bytes &&
           (before->rc == -ENOENT || strcmp(now.etag, before->etag) != 0);
}

int vv_s3_upload_commit(struct vv_s3 *s3, const char *bucket, const char *key, const char *id,
                        char (*etags)[VV_S3_ETAG_MAX], unsigned nparts, uint64_t bytes)
{
    struct vvi_text text = {0};
    vvi_text_add(&text, "<CompleteMultipartUpload>");
    for (unsigned i = 0; i < nparts; i++)
        vvi_text_add(&text, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", i + 1,
                     etags[i]);
    vvi_text_add(&text, "</CompleteMultipartUpload>");
    struct vv_s3_req req = {.method = VV_S3_POST,
                            .bucket = bucket,
                            .key = key,
                            .query = {{"uploadId", id}},
                            .nquery = 1,
                            .body = text.s,
                            .body_bytes = text.n};
    struct state before = look_at_object(s3, bucket, key);
    int rc = text.failed ? -ENOMEM : vv_s3_perform(s3, &req);
    /* The store sends status 200 before it has joined the parts; the text has the result. */
    if (rc == 0 && (!req.buf || !memmem(req.buf, req.got, "CompleteMultipartUploadResult", 29)))
        rc = -EIO;
    /* In a retry after a lost answer the upload no longer exists, but the object does. */
    if ((rc == -ENOENT || rc == -EIO || rc == -ETIMEDOUT) &&
        has_new_object(s3, bucket, key, bytes, &before))
        rc = 0;
    free(req.buf);
    free(text.s);
    return rc == -ENOENT ? -EIO : rc;
}

int vv_s3_upload_abort(struct vv_s3 *s3, const char *bucket, const char *key, const char *id)
{
    struct vv_s3_req req = {.method = VV_S3_DELETE,
                            .bucket = bucket,
                            .key = key,
                            .query = {{"uploadId", id}},
                            .nquery = 1};
    int rc = vv_s3_perform(s3, &req);
    free(req.buf);
    return rc == -ENOENT ? 0 : rc;
}
