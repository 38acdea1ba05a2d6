/* SPDX-License-Identifier: Apache-2.0 */
/* A client of object stores that speak S3: signed requests over libcurl, many at a time.
 *
 * One thread of the client carries out all requests. It repeats a request after an error that may be temporary
 * (5xx, 429, connections that fail or are cut off, answers that stop), with growing pauses and a limited number
 * of times. If the store says that credentials have expired, they are read again.
 *
 * The first client opens libcurl. Credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
 * AWS_SESSION_TOKEN, or from the files of AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE (~/.aws), profile
 * AWS_PROFILE. They appear in no message, and the secret key in no header that libcurl sends.
 *
 * Errors: -ENOENT: no such object or bucket; -EACCES: refused; -ENODATA: the range begins behind the end;
 * -ENOSPC; -EIO: refused for another reason, or an invalid answer; -ETIMEDOUT, -ECONNREFUSED,
 * -EHOSTUNREACH; -ECANCELED.
 *
 * Threads: any. */
#ifndef VV_S3_H
#define VV_S3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"

struct vv_s3;

enum vv_s3_path_style { VV_S3_PATH_AUTO, VV_S3_PATH_ON, VV_S3_PATH_OFF };

struct vv_s3_opts {
    /* "http://host:9000"; "" or NULL: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the config file, Amazon's. */
    const char *endpoint;
    const char *region; /* "" or NULL: AWS_REGION, AWS_DEFAULT_REGION, the config file, us-east-1 */
    /* The bucket is part of the path; auto: unless the endpoint is Amazon's. */
    enum vv_s3_path_style path;
    unsigned tries;      /* per request; 0: 6 */
    unsigned timeout_ms; /* to connect, and between bytes in either direction; 0: 30 s */
};

/* True if the text is the address of an object store. */
static inline bool vv_s3_is_url(const char *text)
{
    return text[0] == 's' && text[1] == '3' && text[2] == ':' && text[3] == '/' && text[4] == '/';
}

/* The address for a message: one with an '@' may hold credentials. */
static inline const char *vv_s3_url_shown(const char *url)
{
    return strchr(url, '@') ? "s3:// (not shown, as it has an '@')" : url;
}

/* True if this build supports libcurl and it can be loaded. The text is its version, or the reason why not. */
bool vv_s3_available(char *text, size_t text_bytes);

/* Splits "s3://bucket/some/prefix": the prefix without slashes at its ends, "" if there is none. The
 * caller frees both texts. -EINVAL. */
VV_WARN_UNUSED int vv_s3_url_parse(const char *url, char **ret_bucket, char **ret_prefix);

VV_WARN_UNUSED int vv_s3_new(const struct vv_s3_opts *opts, char *err, size_t err_bytes,
                             struct vv_s3 **ret_s3);
/* Call it when all requests have ended. Accepts NULL. */
void vv_s3_free(struct vv_s3 *s3);

/* ---- single requests ---- */

enum vv_s3_method { VV_S3_GET, VV_S3_HEAD, VV_S3_PUT, VV_S3_POST, VV_S3_DELETE };
enum { VV_S3_PARAMS_MAX = 8, VV_S3_ETAG_MAX = 96 };
#define VV_S3_SUFFIX UINT64_MAX

struct vv_s3_param {
    const char *name, *value;
};

struct vv_s3_req {
    /* Set by the caller, zero otherwise. Everything pointed to must stay until the request has ended. */
    enum vv_s3_method method;
    const char *bucket, *key; /* key NULL: the bucket itself */
    struct vv_s3_param query[VV_S3_PARAMS_MAX];
    unsigned nquery;
    const void *body;
    size_t body_bytes;
    /* For GET: a range; from VV_S3_SUFFIX: the last `bytes`; bytes 0: the whole object. */
    uint64_t from, bytes;
    void *buf;   /* for the answer. NULL: allocated, with a 0 behind it; the caller frees it */
    size_t room; /* of buf */
    /* Called on the client's thread when the request has ended, with no lock held; the client does not touch
     * the request afterwards. NULL: use vv_s3_wait. */
    void (*done)(struct vv_s3_req *req);
    void *user;

    /* Results. */
    int rc;
    int status;                /* HTTP's; 0: no answer */
    size_t got;                /* bytes in buf */
    uint64_t object_bytes;     /* for GET and HEAD, also of a range: the object's length */
    int64_t modified_s;        /* seconds since 1970; 0: not in the answer */
    char etag[VV_S3_ETAG_MAX]; /* with its quotes */
    char why[160];             /* reason of a failure, without secrets and names */

    struct vvi_s3_call *call; /* private */
};

void vv_s3_start(struct vv_s3 *s3, struct vv_s3_req *req);
/* Waits until a request without `done` has ended; returns its rc. */
int vv_s3_wait(struct vv_s3 *s3, struct vv_s3_req *req);
/* Ends a request soon, with -ECANCELED unless it has ended otherwise. No effect if it has ended. */
void vv_s3_cancel(struct vv_s3 *s3, struct vv_s3_req *req);

static inline int vv_s3_perform(struct vv_s3 *s3, struct vv_s3_req *req)
{
    vv_s3_start(s3, req);
    return vv_s3_wait(s3, req);
}

/* ---- objects ---- */

VV_WARN_UNUSED int vv_s3_put(struct vv_s3 *s3, const char *bucket, const char *key,
                             const void *body, size_t bytes);
/* Returns 0 also if the object did not exist. */
VV_WARN_UNUSED int vv_s3_delete(struct vv_s3 *s3, const char *bucket, const char *key);

struct vv_s3_entry {
    const char *key; /* also of an upload; of a common prefix, with its slash */
    const char *etag;
    const char *upload_id; /* of uploads */
    uint64_t bytes;
    int64_t modified_s; /* of an upload: when it began */
    bool is_prefix;
};

/* Calls visit for every key that begins with the prefix, in the store's order, until visit returns
 * non-zero; returns that value. `flat`: includes keys with a slash behind the prefix; otherwise that slash
 * ends a common prefix. 1,000 keys per request. */
VV_WARN_UNUSED int vv_s3_list(struct vv_s3 *s3, const char *bucket, const char *prefix, bool flat,
                              int (*visit)(void *user, const struct vv_s3_entry *entry),
                              void *user);

/* ---- uploads in parts ---- */

enum { VV_S3_UPLOAD_ID_MAX = 1024 };
#define VV_S3_PART_MIN  (UINT64_C(5) << 20) /* except for the last part */
#define VV_S3_PARTS_MAX 10000u

VV_WARN_UNUSED int vv_s3_upload_begin(struct vv_s3 *s3, const char *bucket, const char *key,
                                      char ret_id[VV_S3_UPLOAD_ID_MAX]);
/* Fills in a request that uploads a part; numbers count from 1. `number` must stay, like the rest. */
void vv_s3_upload_part(struct vv_s3_req *req, const char *bucket, const char *key, const char *id,
                       const char *number, const void *body, size_t bytes);
/* Creates the object from all parts, or not at all. If an answer is lost, the repeated request may fail
 * because the upload has ended already: an object of `bytes` bytes under the key then counts as success,
 * unless it has the ETag that the key had before. */
VV_WARN_UNUSED int vv_s3_upload_commit(struct vv_s3 *s3, const char *bucket, const char *key,
                                       const char *id, char (*etags)[VV_S3_ETAG_MAX],
                                       unsigned nparts, uint64_t bytes);
int vv_s3_upload_abort(struct vv_s3 *s3, const char *bucket, const char *key, const char *id);
/* Lists uploads that have begun and not ended. */
VV_WARN_UNUSED int vv_s3_list_uploads(struct vv_s3 *s3, const char *bucket, const char *prefix,
                                      int (*visit)(void *user, const struct vv_s3_entry *entry),
                                      void *user);

#endif
