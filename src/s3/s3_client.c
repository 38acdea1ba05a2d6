/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that carries out requests.
 *
 * A request is a call here. Each try is signed again and given to libcurl's multi interface. A try that failed
 * with an error that may be temporary is repeated after a pause, which doubles each time and is partly random, so
 * that ranks that were refused together do not return together. A body is the caller's memory until the request
 * has ended, so that it can be sent again.
 *
 * Possible failures: libcurl reports an answer that is shorter than announced; an answer with another range
 * than requested is refused here. Credentials that the store refuses are read again, and used if they have
 * changed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "s3/s3_private.h"

#if HAVE_LIBCURL
#include <curl/curl.h>

enum {
    TRIES = 6,
    TIMEOUT_MS = 30000,
    IDLE_HANDLES = 16,
    ERROR_BYTES = 1024,
    TRANSFER_BYTES = 512 << 10
};
#define PAUSE_NS      (50 * VV_NS_PER_MS)
#define PAUSE_MOST_NS (5 * VV_NS_PER_S)
#define TEXT_MOST     (UINT64_C(64) << 20) /* longest answer that is text */

/* ---- libcurl ---- */

#define CALLS(X)           \
    X(global_init)         \
    X(easy_init)           \
    X(easy_cleanup)        \
    X(easy_reset)          \
    X(easy_setopt)         \
    X(easy_getinfo)        \
    X(easy_strerror)       \
    X(slist_append)        \
    X(slist_free_all)      \
    X(multi_init)          \
    X(multi_cleanup)       \
    X(multi_setopt)        \
    X(multi_add_handle)    \
    X(multi_remove_handle) \
    X(multi_perform)       \
    X(multi_poll)          \
    X(multi_wakeup)        \
    X(multi_info_read)     \
    X(version_info)

static struct {
#define X(name) __typeof__(&curl_##name) name;
    CALLS(X)
#undef X
    char why[160]; /* why libcurl cannot be used; "": it can */
} curl;

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void load_curl(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *lib = NULL;
    for (size_t i = 0; !lib && i < VV_ARRAY_SIZE(names); i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        snprintf(curl.why, sizeof(curl.why), "libcurl.so.4 cannot be opened");
        return;
    }
    bool all = true;
#define X(name) all &= (*(void **)&curl.name = dlsym(lib, "curl_" #name)) != NULL;
    CALLS(X)
#undef X
    if (!all)
        snprintf(curl.why, sizeof(curl.why), "libcurl is older than 7.68");
    else if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        snprintf(curl.why, sizeof(curl.why), "libcurl cannot be initialised");
}

bool vv_s3_available(char *text, size_t text_bytes)
{
    pthread_once(&curl_once, load_curl);
    bool ok = curl.why[0] == '\0';
    if (text_bytes > 0)
        snprintf(text, text_bytes, "%s",
                 ok ? curl.version_info(CURLVERSION_NOW)->version : curl.why);
    return ok;
}

/* ---- calls ---- */

struct vvi_s3_call {
    struct vvi_s3_call *next; /* in its list */
    struct vv_s3_req *req;
    struct vv_s3 *s3;
    bool cancelled; /* Synchronization: s3->lock */
    /* Owner: the client's thread, all below. */
    CURL *easy;
    struct curl_slist *headers;
    unsigned tries;
    uint64_t due_ns;
    unsigned keys_turn; /* number of the credentials that signed the try */
    /* State of the current try. */
    size_t sent;
    struct vvi_text text; /* the answer, if the caller gave no memory */
    char error[ERROR_BYTES + 1];
    size_t nerror;
    uint64_t range_from;
    int64_t date_s;
    bool ranged, too_long;
};

struct vv_s3 {
    struct vv_s3_opts opts; /* immutable, down to multi; its texts are not used */
    struct vvi_s3_place place;
    const char *ca_bundle;
    CURLM *multi;
    pthread_t thread;
    bool has_thread;
    struct vv_mutex lock;
    struct vv_cond ended;
    /* Synchronization: lock. */
    struct vvi_s3_call *fresh;
    bool stopping, cancels;
    /* Owner: the thread. */
    struct vvi_s3_call *running, *paused;
    CURL *idle[IDLE_HANDLES];
    unsigned nidle;
    struct vvi_s3_keys keys;
    unsigned keys_turn;
    int64_t skew_s; /* the store's clock minus ours */
    uint64_t chance;
};

static void unlink_call(struct vvi_s3_call **list, const struct vvi_s3_call *c)
{
    while (*list != c)
        list = &(*list)->next;
    *list = c->next;
}

/* Removes the handle from libcurl's multi interface. */
static void end_try(struct vvi_s3_call *c)
{
    struct vv_s3 *s3 = c->s3;
    if (!c->easy)
        return;
    curl.multi_remove_handle(s3->multi, c->easy);
    curl.slist_free_all(c->headers);
    c->headers = NULL;
    if (s3->nidle < IDLE_HANDLES) {
        curl.easy_reset(c->easy);
        s3->idle[s3->nidle++] = c->easy;
    } else {
        curl.easy_cleanup(c->easy);
    }
    c->easy = NULL;
}

/* The call is in no list. Afterwards the request belongs to its caller again. */
static void end_call(struct vvi_s3_call *c, int rc)
{
    struct vv_s3 *s3 = c->s3;
    struct vv_s3_req *req = c->req;
    void (*done)(struct vv_s3_req *) = req->done;
    end_try(c);
    if (rc == 0 && !req->buf) {
        req->buf = c->text.s;
        c->text.s = NULL;
    }
    free(c->text.s);
    req->rc = rc;
    vv_mutex_lock(&s3->lock);
    req->call = NULL;
    vv_cond_broadcast(&s3->ended);
    vv_mutex_unlock(&s3->lock);
    free(c);
    if (done)
        done(req);
}

/* ---- what libcurl calls ---- */

static size_t on_read(char *buf, size_t size, size_t n, void *user)
{
    struct vvi_s3_call *c = user;
    size_t bytes = VV_MIN(size * n, c->req->body_bytes - c->sent);
    memcpy(buf, (const char *)c->req->body + c->sent, bytes);
    c->sent += bytes;
    return bytes;
}

static int on_seek(void *user, curl_off_t offset, int origin)
{
    struct vvi_s3_call *c = user;
    if (origin != SEEK_SET || offset < 0 || (size_t)offset > c->req->body_bytes)
        return CURL_SEEKFUNC_CANTSEEK;
    c->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static size_t on_write(char *bytes, size_t size, size_t n, void *user)
{
    struct vvi_s3_call *c = user;
    struct vv_s3_req *req = c->req;
    size_t all = size * n;
    if (req->status >= 300) {
        size_t take = VV_MIN(all, (size_t)ERROR_BYTES - c->nerror);
        memcpy(c->error + c->nerror, bytes, take);
        c->nerror += take;
        return all;
    }
    c->too_long = req->got + all > (req->buf ? req->room : TEXT_MOST);
    if (c->too_long)
        return 0;
    if (req->buf)
        memcpy(req->buf + req->got, bytes, all);
    else
        vvi_text_bytes(&c->text, bytes, all);
    req->got += all;
    return c->text.failed ? 0 : all;
}

/* Copies the value of the header `name`, without surrounding space, into `ret`. */
static bool header_is(const char *line, size_t n, const char *name, char *ret, size_t room)
{
    size_t len = strlen(name);
    if (n <= len || line[len] != ':' || strncasecmp(line, name, len) != 0)
        return false;
    const char *s = line + len + 1, *end = line + n;
    while (s < end && (*s == ' ' || *s == '\t'))
        s++;
    while (end > s && (unsigned char)end[-1] <= ' ')
        end--;
    size_t bytes = VV_MIN((size_t)(end - s), room - 1);
    memcpy(ret, s, bytes);
    ret[bytes] = '\0';
    return true;
}

static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    struct vvi_s3_call *c = user;
    struct vv_s3_req *req = c->req;
    char text[VV_S3_ETAG_MAX];
    unsigned long long from, to, total;
    n *= size;
    if (n > 9 && strncmp(line, "HTTP/", 5) == 0) {
        const char *space = memchr(line, ' ', n);
        req->status = space ? atoi(space) : 0;
    } else if (header_is(line, n, "ETag", text, sizeof(text))) {
        memcpy(req->etag, text, sizeof(text));
    } else if (header_is(line, n, "Last-Modified", text, sizeof(text))) {
        req->modified_s = vvi_s3_time(text);
    } else if (header_is(line, n, "Date", text, sizeof(text))) {
        c->date_s = vvi_s3_time(text);
    } else if (header_is(line, n, "Content-Length", text, sizeof(text))) {
        if (!c->ranged)
            req->object_bytes = strtoull(text, NULL, 10);
    } else if (header_is(line, n, "Content-Range", text, sizeof(text))) {
        c->ranged = sscanf(text, "bytes %llu-%llu/%llu", &from, &to, &total) == 3;
        if (c->ranged) {
            c->range_from = from;
            req->object_bytes = total;
        }
    }
    return n;
}

/* ---- a try ---- */

static const char *method_name(enum vv_s3_method method)
{
    static const char *const names[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};
    return names[method];
}

/* Sorted by name, as signatures require. */
static void add_query(struct vvi_text *t, const struct vv_s3_req *req)
{
    bool used[VV_S3_PARAMS_MAX] = {false};
    for (unsigned k = 0; k < req->nquery; k++) {
        unsigned best = VV_S3_PARAMS_MAX;
        for (unsigned i = 0; i < req->nquery; i++)
            if (!used[i] &&
                (best == VV_S3_PARAMS_MAX || strcmp(req->query[i].name, req->query[best].name) < 0))
                best = i;
        used[best] = true;
        vvi_text_add(t, "%s", k == 0 ? "" : "&");
        vvi_text_encoded(t, req->query[best].name, false);
        vvi_text_add(t, "=");
        vvi_text_encoded(t, req->query[best].value, false);
    }
}

static void add_header(struct vvi_s3_call *c, bool *failed, const char *name, const char *value)
{
    char *line = NULL;
    struct curl_slist *more =
        asprintf(&line, "%s%s", name, value) < 0 ? NULL : curl.slist_append(c->headers, line);
    *failed |= !more;
    if (more)
        c->headers = more;
    if (line)
        explicit_bzero(line, strlen(line));
    free(line);
}

static void add_range(struct vvi_s3_call *c, bool *failed)
{
    const struct vv_s3_req *req = c->req;
    char text[64];
    if (req->method != VV_S3_GET || req->bytes == 0)
        return;
    if (req->from == VV_S3_SUFFIX)
        snprintf(text, sizeof(text), "bytes=-%llu", (unsigned long long)req->bytes);
    else
        snprintf(text, sizeof(text), "bytes=%llu-%llu", (unsigned long long)req->from,
                 (unsigned long long)(req->from + req->bytes - 1));
    add_header(c, failed, "Range: ", text);
}

/* URL and headers. */
static int address(struct vvi_s3_call *c)
{
    struct vv_s3 *s3 = c->s3;
    const struct vv_s3_req *req = c->req;
    const struct vvi_s3_place *place = &s3->place;
    struct vvi_text path = {0}, query = {0}, url = {0};
    struct vvi_s3_signed sign;
    char host[sizeof(place->host) + 64];
    snprintf(host, sizeof(host), "%s%s%s", place->path_style ? "" : req->bucket,
             place->path_style ? "" : ".", place->host);
    vvi_text_add(&path, "/%s%s", place->path_style ? req->bucket : "",
                 place->path_style ? "/" : "");
    vvi_text_encoded(&path, req->key ? req->key : "", true);
    vvi_text_add(&query, "%s", "");
    add_query(&query, req);
    vvi_text_add(&url, "%s://%s", place->scheme, host);
    bool failed = path.failed || query.failed || url.failed;
    if (!failed)
        vvi_text_add(&url, "%s%s%s", path.s, query.n > 0 ? "?" : "", query.s);
    int rc = failed || url.failed ? -ENOMEM : 0;
    const struct vvi_s3_to_sign what = {
        method_name(req->method), host, path.s, query.s, place->region, req->body, req->body_bytes,
        time(NULL) + s3->skew_s};
    if (rc == 0)
        rc = vvi_s3_sign(&what, &s3->keys, &sign);
    if (rc == 0) {
        add_header(c, &failed, "Host: ", host);
        add_header(c, &failed, "x-amz-date: ", sign.date);
        add_header(c, &failed, "x-amz-content-sha256: ", sign.hash);
        if (s3->keys.token[0] != '\0')
            add_header(c, &failed, "x-amz-security-token: ", s3->keys.token);
        add_header(c, &failed, "Authorization: ", sign.auth);
        add_header(c, &failed, "Expect:", "");
        add_header(c, &failed, "Content-Type: ", "application/octet-stream");
        add_range(c, &failed);
        rc = failed || curl.easy_setopt(c->easy, CURLOPT_URL, url.s) != CURLE_OK ? -ENOMEM : 0;
    }
    free(path.s);
    free(query.s);
    free(url.s);
    return rc;
}

static void set_method(struct vvi_s3_call *c)
{
    const struct vv_s3_req *req = c->req;
    CURL *easy = c->easy;
    switch (req->method) {
    case VV_S3_GET:
        break;
    case VV_S3_HEAD:
        curl.easy_setopt(easy, CURLOPT_NOBODY, 1L);
        break;
    case VV_S3_PUT:
        curl.easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        curl.easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)req->body_bytes);
        break;
    case VV_S3_POST:
        curl.easy_setopt(easy, CURLOPT_POST, 1L);
        curl.easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body_bytes);
        curl.easy_setopt(easy, CURLOPT_POSTFIELDS, req->body_bytes == 0 ? "" : req->body);
        break;
    case VV_S3_DELETE:
        curl.easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "DELETE");
        break;
    }
}

static void set_options(struct vvi_s3_call *c)
{
    const struct vv_s3 *s3 = c->s3;
    CURL *easy = c->easy;
    curl.easy_setopt(easy, CURLOPT_PRIVATE, c);
    curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    /* HTTP/1.1, one connection per request: multiplexed requests would share one connection's window. */
    curl.easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl.easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)s3->opts.timeout_ms);
    curl.easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl.easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)vv_div_up(s3->opts.timeout_ms, 1000));
    curl.easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)TRANSFER_BYTES);
    curl.easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)TRANSFER_BYTES);
    curl.easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
    curl.easy_setopt(easy, CURLOPT_READDATA, c);
    curl.easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
    curl.easy_setopt(easy, CURLOPT_SEEKDATA, c);
    curl.easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
    curl.easy_setopt(easy, CURLOPT_WRITEDATA, c);
    curl.easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl.easy_setopt(easy, CURLOPT_HEADERDATA, c);
    curl.easy_setopt(easy, CURLOPT_HTTPHEADER, c->headers);
    if (s3->ca_bundle)
        curl.easy_setopt(easy, CURLOPT_CAINFO, s3->ca_bundle);
    set_method(c);
}

/* Begins a try; on failure the call has ended. */
static void try_call(struct vvi_s3_call *c)
{
    struct vv_s3 *s3 = c->s3;
    struct vv_s3_req *req = c->req;
    c->tries++;
    c->sent = req->got = c->nerror = c->text.n = 0;
    c->ranged = c->too_long = false;
    c->date_s = 0;
    c->keys_turn = s3->keys_turn;
    req->status = 0;
    req->object_bytes = 0;
    req->modified_s = 0;
    req->etag[0] = req->why[0] = '\0';
    c->easy = s3->nidle > 0 ? s3->idle[--s3->nidle] : curl.easy_init();
    int rc = c->easy ? address(c) : -ENOMEM;
    if (rc == 0) {
        set_options(c);
        rc = curl.multi_add_handle(s3->multi, c->easy) == CURLM_OK ? 0 : -ENOMEM;
    }
    if (rc < 0) {
        end_call(c, rc);
        return;
    }
    c->next = s3->running;
    s3->running = c;
}

/* ---- how a try ended ---- */

struct verdict {
    int rc;
    bool again;
};

static struct verdict of_curl(const struct vvi_s3_call *c, CURLcode code)
{
    snprintf(c->req->why, sizeof(c->req->why), "%s", curl.easy_strerror(code));
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
        return (struct verdict){-ETIMEDOUT, true};
    case CURLE_COULDNT_CONNECT:
        return (struct verdict){-ECONNREFUSED, true};
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return (struct verdict){-EHOSTUNREACH, true};
    case CURLE_OUT_OF_MEMORY:
        return (struct verdict){-ENOMEM, false};
    case CURLE_PEER_FAILED_VERIFICATION:
        return (struct verdict){-EACCES, false};
    case CURLE_WRITE_ERROR:
        if (c->too_long)
            snprintf(c->req->why, sizeof(c->req->why), "the answer is longer than requested");
        return (struct verdict){c->too_long ? -EIO : -ENOMEM, false};
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
        return (struct verdict){-EINVAL, false};
    default:
        return (struct verdict){-EIO, true};
    }
}

static bool is_one_of(const char *code, const char *const *list)
{
    while (*list && strcmp(code, *list) != 0)
        list++;
    return *list;
}

/* The store refuses the signature; try again if the credentials have changed meanwhile. */
static bool have_other_keys(const struct vvi_s3_call *c)
{
    struct vv_s3 *s3 = c->s3;
    struct vvi_s3_keys keys = {0};
    if (c->keys_turn != s3->keys_turn)
        return true;
    bool other =
        vvi_s3_keys_read(&keys, NULL, 0) == 0 && memcmp(&keys, &s3->keys, sizeof(keys)) != 0;
    if (other) {
        s3->keys = keys;
        s3->keys_turn++;
    }
    explicit_bzero(&keys, sizeof(keys));
    return other;
}

static struct verdict of_refusal(const struct vvi_s3_call *c)
{
    static const char *const passing[] = {"SlowDown",           "RequestTimeout",   "InternalError",
                                          "ServiceUnavailable", "OperationAborted", NULL};
    static const char *const full[] = {"QuotaExceeded", "EntityTooLarge", NULL};
    struct vv_s3_req *req = c->req;
    int status = req->status;
    char code[64] = "";
    (void)vvi_xml_text(c->error, c->error + c->nerror, "Code", code, sizeof(code));
    for (char *s = code; *s != '\0'; s++)
        if (*s < ' ' || *s > '~')
            *s = '?';
    snprintf(req->why, sizeof(req->why), "HTTP status %d%s%s", status, code[0] ? " " : "", code);
    if (status == 404)
        return (struct verdict){-ENOENT, false};
    if (status == 416)
        return (struct verdict){-ENODATA, false};
    if (status == 412 || status == 409)
        return (struct verdict){-EEXIST, is_one_of(code, passing)};
    if (is_one_of(code, full) || status == 413 || status == 507)
        return (struct verdict){-ENOSPC, false};
    if (status == 403 && strcmp(code, "RequestTimeTooSkewed") == 0 && c->date_s != 0) {
        int64_t skew_s = c->date_s - (int64_t)time(NULL);
        bool moved = llabs(skew_s - c->s3->skew_s) > 60;
        c->s3->skew_s = skew_s;
        return (struct verdict){-EACCES, moved};
    }
    if (status == 401 || status == 403 || strcmp(code, "ExpiredToken") == 0 ||
        strcmp(code, "InvalidToken") == 0)
        return (struct verdict){-EACCES, have_other_keys(c)};
    bool again = (status >= 500 && status != 501) || status == 429 || status == 408;
    return (struct verdict){-EIO, again || is_one_of(code, passing)};
}

/* Checks if an answer of 2xx has a possible length and the range that was requested. */
static struct verdict of_answer(const struct vvi_s3_call *c)
{
    struct vv_s3_req *req = c->req;
    if ((req->method == VV_S3_GET || req->method == VV_S3_HEAD) && req->object_bytes > INT64_MAX) {
        snprintf(req->why, sizeof(req->why), "the answer has an impossible length");
        return (struct verdict){-EIO, false};
    }
    if (req->method != VV_S3_GET || req->bytes == 0)
        return (struct verdict){0, false};
    /* Stores without ranges send the whole object. That is fine if the range is in it. */
    uint64_t from = c->ranged ? c->range_from : 0, want = from;
    if (req->from != VV_S3_SUFFIX)
        want = req->from;
    else if (c->ranged)
        want = req->object_bytes - VV_MIN(req->bytes, req->object_bytes);
    uint64_t end = VV_MIN(want + req->bytes, req->object_bytes);
    if (from == want && from + req->got == end)
        return (struct verdict){0, false};
    snprintf(req->why, sizeof(req->why), "the answer has another range than requested");
    return (struct verdict){-EIO, false};
}

static uint64_t pause_ns(struct vv_s3 *s3, unsigned tries)
{
    uint64_t most = VV_MIN(PAUSE_NS << VV_MIN(tries, 10u), PAUSE_MOST_NS);
    s3->chance = s3->chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return most / 2 + (s3->chance >> 33) % (most / 2);
}

static void tried(struct vvi_s3_call *c, CURLcode code)
{
    struct vv_s3 *s3 = c->s3;
    struct verdict v = code != CURLE_OK        ? of_curl(c, code)
                       : c->req->status == 0   ? (struct verdict){-EIO, true}
                       : c->req->status >= 300 ? of_refusal(c)
                                               : of_answer(c);
    unlink_call(&s3->running, c);
    if (!v.again || c->tries >= s3->opts.tries) {
        end_call(c, v.rc);
        return;
    }
    end_try(c);
    c->due_ns = vv_now_ns() + pause_ns(s3, c->tries);
    c->next = s3->paused;
    s3->paused = c;
}

/* ---- the thread ---- */

static void start_fresh(struct vv_s3 *s3)
{
    vv_mutex_lock(&s3->lock);
    struct vvi_s3_call *c = s3->fresh, *next, *first = NULL;
    s3->fresh = NULL;
    vv_mutex_unlock(&s3->lock);
    for (; c; c = next) { /* in the order of arrival */
        next = c->next;
        c->next = first;
        first = c;
    }
    for (c = first; c; c = next) {
        next = c->next;
        try_call(c);
    }
}

/* Takes the calls of a list that were cancelled or, with `due_ns`, are due. */
static struct vvi_s3_call *take(struct vv_s3 *s3, struct vvi_s3_call **list, uint64_t due_ns)
{
    struct vvi_s3_call *taken = NULL;
    vv_mutex_lock(&s3->lock);
    while (*list) {
        struct vvi_s3_call *c = *list;
        if (due_ns != 0 ? c->due_ns > due_ns : !c->cancelled) {
            list = &c->next;
            continue;
        }
        *list = c->next;
        c->next = taken;
        taken = c;
    }
    vv_mutex_unlock(&s3->lock);
    return taken;
}

static void cancel_all(struct vvi_s3_call *c)
{
    for (struct vvi_s3_call *next; c; c = next) {
        next = c->next;
        snprintf(c->req->why, sizeof(c->req->why), "cancelled");
        end_call(c, -ECANCELED);
    }
}

static int wait_ms(const struct vv_s3 *s3)
{
    uint64_t now_ns = vv_now_ns(), due_ns = now_ns + 60 * VV_NS_PER_S;
    for (const struct vvi_s3_call *c = s3->paused; c; c = c->next)
        due_ns = VV_MIN(due_ns, VV_MAX(c->due_ns, now_ns));
    return (int)vv_div_up(due_ns - now_ns, VV_NS_PER_MS);
}

static bool is_stopping(struct vv_s3 *s3, bool *ret_cancels)
{
    vv_mutex_lock(&s3->lock);
    bool stopping = s3->stopping;
    *ret_cancels = s3->cancels;
    s3->cancels = false;
    vv_mutex_unlock(&s3->lock);
    return stopping;
}

static void *client_thread(void *arg)
{
    struct vv_s3 *s3 = arg;
    bool cancels;
    while (!is_stopping(s3, &cancels)) {
        CURLMsg *msg;
        int n = 0;
        start_fresh(s3);
        if (cancels) {
            cancel_all(take(s3, &s3->running, 0));
            cancel_all(take(s3, &s3->paused, 0));
        }
        for (struct vvi_s3_call *c = take(s3, &s3->paused, vv_now_ns()), *next; c; c = next) {
            next = c->next;
            try_call(c);
        }
        curl.multi_perform(s3->multi, &n);
        while ((msg = curl.multi_info_read(s3->multi, &n))) {
            struct vvi_s3_call *c = NULL;
            if (msg->msg != CURLMSG_DONE)
                continue;
            CURLcode code = msg->data.result;
            curl.easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&c);
            tried(c, code);
        }
        curl.multi_poll(s3->multi, NULL, 0, wait_ms(s3), NULL);
    }
    return NULL;
}

/* ---- for callers ---- */

void vv_s3_start(struct vv_s3 *s3, struct vv_s3_req *req)
{
    struct vvi_s3_call *c = calloc(1, sizeof(*c));
    req->rc = -ENOMEM;
    req->call = c;
    if (!c) {
        if (req->done)
            req->done(req);
        return;
    }
    c->req = req;
    c->s3 = s3;
    vv_mutex_lock(&s3->lock);
    c->next = s3->fresh;
    s3->fresh = c;
    vv_mutex_unlock(&s3->lock);
    curl.multi_wakeup(s3->multi);
}

int vv_s3_wait(struct vv_s3 *s3, struct vv_s3_req *req)
{
    vv_mutex_lock(&s3->lock);
    while (req->call)
        vv_cond_wait(&s3->ended, &s3->lock);
    vv_mutex_unlock(&s3->lock);
    return req->rc;
}

void vv_s3_cancel(struct vv_s3 *s3, struct vv_s3_req *req)
{
    vv_mutex_lock(&s3->lock);
    if (req->call) {
        req->call->cancelled = true;
        s3->cancels = true;
    }
    vv_mutex_unlock(&s3->lock);
    curl.multi_wakeup(s3->multi);
}

static int client_init(struct vv_s3 *s3, char *err, size_t err_bytes)
{
    int rc = vvi_s3_place_find(&s3->opts, err, err_bytes, &s3->place);
    if (rc == 0)
        rc = vvi_s3_keys_read(&s3->keys, err, err_bytes);
    if (rc < 0)
        return rc;
    s3->multi = curl.multi_init();
    rc = s3->multi ? vv_thread_start(&s3->thread, client_thread, s3) : -ENOMEM;
    s3->has_thread = rc == 0;
    if (rc < 0 && err_bytes > 0)
        snprintf(err, err_bytes, "cannot start the thread of the S3 client: %s", strerror(-rc));
    return rc;
}

int vv_s3_new(const struct vv_s3_opts *opts, char *err, size_t err_bytes, struct vv_s3 **ret_s3)
{
    char why[160];
    if (!vv_s3_available(why, sizeof(why))) {
        if (err_bytes > 0)
            snprintf(err, err_bytes, "S3 is not available: %s", why);
        return -EOPNOTSUPP;
    }
    struct vv_s3 *s3 = calloc(1, sizeof(*s3));
    if (!s3)
        return -ENOMEM;
    s3->opts = *opts;
    s3->opts.tries = opts->tries == 0 ? TRIES : opts->tries;
    s3->opts.timeout_ms = opts->timeout_ms == 0 ? TIMEOUT_MS : opts->timeout_ms;
    s3->ca_bundle = getenv("AWS_CA_BUNDLE");
    s3->chance = vv_now_ns();
    vv_mutex_init(&s3->lock, "s3", VV_RANK_NET);
    vv_cond_init(&s3->ended);
    int rc = client_init(s3, err, err_bytes);
    s3->opts.endpoint = s3->opts.region = NULL;
    if (rc < 0) {
        vv_s3_free(s3);
        return rc;
    }
    *ret_s3 = s3;
    return 0;
}

void vv_s3_free(struct vv_s3 *s3)
{
    if (!s3)
        return;
    if (s3->has_thread) {
        vv_mutex_lock(&s3->lock);
        s3->stopping = true;
        vv_mutex_unlock(&s3->lock);
        curl.multi_wakeup(s3->multi);
        pthread_join(s3->thread, NULL);
        vv_assert(!s3->fresh && !s3->running && !s3->paused);
    }
    while (s3->nidle > 0)
        curl.easy_cleanup(s3->idle[--s3->nidle]);
    if (s3->multi)
        curl.multi_cleanup(s3->multi);
    explicit_bzero(&s3->keys, sizeof(s3->keys));
    vv_cond_fini(&s3->ended);
    vv_mutex_fini(&s3->lock);
    free(s3);
}

#else /* built without libcurl's headers: no client exists */

bool vv_s3_available(char *text, size_t text_bytes)
{
    if (text_bytes > 0)
        snprintf(text, text_bytes, "this Varve was built without libcurl");
    return false;
}

int vv_s3_new(const struct vv_s3_opts *opts, char *err, size_t err_bytes, struct vv_s3 **ret_s3)
{
    (void)opts;
    (void)ret_s3;
    if (err_bytes > 0)
        snprintf(err, err_bytes, "S3 is not available: this Varve was built without libcurl");
    return -EOPNOTSUPP;
}

void vv_s3_start(struct vv_s3 *s3, struct vv_s3_req *req)
{
    (void)s3;
    (void)req;
}

int vv_s3_wait(struct vv_s3 *s3, struct vv_s3_req *req)
{
    (void)s3;
    (void)req;
    return -EOPNOTSUPP;
}

void vv_s3_cancel(struct vv_s3 *s3, struct vv_s3_req *req)
{
    (void)s3;
    (void)req;
}

void vv_s3_free(struct vv_s3 *s3)
{
    (void)s3;
}

#endif
