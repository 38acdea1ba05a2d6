/* SPDX-License-Identifier: Apache-2.0 */
/* The client of object stores: signatures, requests, listings, uploads, and its behaviour when a store fails. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "s3/s3_private.h"
#include "t.h"
#include "t_s3.h"

#define BUCKET "bucket"

static struct vv_s3 *client;

static void hex_of(const unsigned char sum[32], char *hex)
{
    for (int i = 0; i < 32; i++)
        sprintf(hex + 2 * i, "%02x", sum[i]);
}

/* Vectors of FIPS 180-4 and RFC 4231; and texts of all lengths around a block, added at once and byte by byte. */
static void hashes(void)
{
    char hex[65], long_key[131];
    unsigned char sum[32], one[32];
    vvi_sha256_hex("abc", 3, hex);
    T_STREQ(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    vvi_sha256_hex("", 0, hex);
    T_STREQ(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    vvi_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, sum);
    hex_of(sum, hex);
    T_STREQ(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(long_key, 0xaa, sizeof(long_key));
    vvi_hmac_sha256(long_key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
                    sum);
    hex_of(sum, hex);
    T_STREQ(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    for (size_t n = 0; n < sizeof(long_key); n++) {
        struct vvi_sha256 s;
        vvi_sha256_init(&s);
        vvi_sha256_add(&s, long_key, n);
        vvi_sha256_end(&s, sum);
        vvi_sha256_init(&s);
        for (size_t i = 0; i < n; i++)
            vvi_sha256_add(&s, long_key + i, 1);
        vvi_sha256_end(&s, one);
        T_CHECK(memcmp(sum, one, sizeof(sum)) == 0);
    }
}

static void addresses(void)
{
    char *bucket, *prefix;
    T_OK(vv_s3_url_parse("s3://some-bucket/a/b/", &bucket, &prefix));
    T_STREQ(bucket, "some-bucket");
    T_STREQ(prefix, "a/b");
    free(bucket);
    free(prefix);
    T_OK(vv_s3_url_parse("s3://some.bucket", &bucket, &prefix));
    T_STREQ(prefix, "");
    free(bucket);
    free(prefix);
    T_ERR(vv_s3_url_parse("s3://", &bucket, &prefix), -EINVAL);
    T_ERR(vv_s3_url_parse("s3://a b c/d", &bucket, &prefix), -EINVAL);
    T_ERR(vv_s3_url_parse("/some/folder", &bucket, &prefix), -EINVAL);
}

/* Credentials of a profile, including a long token; the environment has precedence. */
static void credentials(void)
{
    struct vvi_s3_keys keys;
    char path[512], token[2000], err[256] = "";
    memset(token, 't', sizeof(token) - 1);
    token[sizeof(token) - 1] = '\0';
    snprintf(path, sizeof(path), "%s/credentials", t_tmpdir());
    FILE *f = fopen(path, "w");
    fprintf(
        f,
        "# a comment\n[default]\naws_access_key_id = one\naws_secret_access_key=two\n\n[ other ]\n"
        "aws_access_key_id=three\n  aws_secret_access_key = fo=ur  \naws_session_token = %s\n",
        token);
    fclose(f);
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    unsetenv("AWS_ACCESS_KEY_ID");
    T_OK(vvi_s3_keys_read(&keys, err, sizeof(err)));
    T_STREQ(keys.id, "one");
    T_STREQ(keys.secret, "two");
    T_STREQ(keys.token, "");
    setenv("AWS_PROFILE", "other", 1);
    T_OK(vvi_s3_keys_read(&keys, err, sizeof(err)));
    T_STREQ(keys.secret, "fo=ur");
    T_STREQ(keys.token, token);
    setenv("AWS_PROFILE", "none", 1);
    T_ERR(vvi_s3_keys_read(&keys, err, sizeof(err)), -EACCES);
    T_CHECK(strstr(err, "AWS_ACCESS_KEY_ID"));
    setenv("AWS_ACCESS_KEY_ID", "testid", 1);
    T_OK(vvi_s3_keys_read(&keys, err, sizeof(err)));
    T_STREQ(keys.secret, "testsecret");
    unsetenv("AWS_PROFILE");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
}

static void reset(void)
{
    (void)t_s3_admin("/_reset", "");
}

static int get(const char *key, void *buf, size_t room, uint64_t from, uint64_t bytes,
               struct vv_s3_req *ret)
{
    *ret = (struct vv_s3_req){
        .bucket = BUCKET, .key = key, .buf = buf, .room = room, .from = from, .bytes = bytes};
    return vv_s3_perform(client, ret);
}

static void objects(void)
{
    static const char *const names[] = {
        "plain", "a folder/with spaces", "p+l%us", "x=1&y=2", "\xc3\xa4ther", "~.-_", "d//e"};
    char buf[16];
    struct vv_s3_req req;
    for (size_t i = 0; i < VV_ARRAY_SIZE(names); i++) {
        T_OK(vv_s3_put(client, BUCKET, names[i], "0123456789", 10));
        T_OK(get(names[i], buf, sizeof(buf), 0, 0, &req));
        T_EQ(req.got, 10);
        T_EQ(req.object_bytes, 10);
        T_OK(get(names[i], buf, sizeof(buf), 3, 4, &req));
        T_EQ(req.got, 4);
        T_EQ(req.object_bytes, 10);
        T_CHECK(memcmp(buf, "3456", 4) == 0);
        T_EQ(req.modified_s, 1700000000);
    }
    T_OK(get("plain", buf, sizeof(buf), VV_S3_SUFFIX, 3, &req));
    T_CHECK(req.got == 3 && memcmp(buf, "789", 3) == 0);
    T_OK(get("plain", buf, sizeof(buf), VV_S3_SUFFIX, 100, &req));
    T_EQ(req.got, 10);
    T_OK(get("plain", buf, sizeof(buf), 8, 100, &req));
    T_EQ(req.got, 2);
    T_ERR(get("plain", buf, sizeof(buf), 10, 1, &req), -ENODATA);
    T_ERR(get("missing", buf, sizeof(buf), 0, 0, &req), -ENOENT);
    T_STREQ(req.why, "HTTP status 404 NoSuchKey");
    T_ERR(get("plain", buf, 5, 0, 0, &req), -EIO); /* longer than the buffer */
    T_OK(vv_s3_put(client, BUCKET, "empty", NULL, 0));
    T_OK(get("empty", buf, sizeof(buf), 0, 0, &req));
    T_EQ(req.got, 0);
    T_OK(vv_s3_delete(client, BUCKET, "empty"));
    T_OK(vv_s3_delete(client, BUCKET, "empty"));
    for (size_t i = 0; i < VV_ARRAY_SIZE(names); i++)
        T_OK(vv_s3_delete(client, BUCKET, names[i]));
}

struct seen {
    unsigned n, prefixes;
    uint64_t bytes;
    char last[256];
};

static int see(void *user, const struct vv_s3_entry *e)
{
    struct seen *seen = user;
    seen->prefixes += e->is_prefix;
    seen->n++;
    seen->bytes += e->bytes;
    snprintf(seen->last, sizeof(seen->last), "%s", e->key);
    return 0;
}

static void listings(void)
{
    struct seen seen = {0};
    char key[64];
    for (int i = 0; i < 2050; i += 50) {
        snprintf(key, sizeof(key), "l/x%04d & <%%2f>", i);
        T_OK(vv_s3_put(client, BUCKET, key, "12345", 5));
    }
    T_OK(vv_s3_put(client, BUCKET, "l/below/it", "1", 1));
    T_OK(vv_s3_list(client, BUCKET, "l/", false, see, &seen));
    T_EQ(seen.n, 42);
    T_EQ(seen.prefixes, 1);
    T_EQ(seen.bytes, 41 * 5);
    T_OK(vv_s3_list(client, BUCKET, "l/x", true, see, &seen));
    T_STREQ(seen.last, "l/x2000 & <%2f>");
    seen = (struct seen){0};
    T_OK(vv_s3_list(client, BUCKET, "nothing", true, see, &seen));
    T_EQ(seen.n, 0);
    t_s3_fault("{\"what\": \"every\"}");
    T_OK(vv_s3_list(client, BUCKET, "l/a longer prefix than some keys", true, see, &seen));
    T_EQ(seen.n, 0);
}

/* 2,500 keys in pages of 1,000. */
static void long_listings(void)
{
    struct seen seen = {0};
    enum { N = 2500, AT_ONCE = 50 };
    static struct vv_s3_req req[AT_ONCE];
    static char key[AT_ONCE][32];
    for (int i = 0; i < N; i++) {
        struct vv_s3_req *r = &req[i % AT_ONCE];
        if (i >= AT_ONCE) {
            T_OK(vv_s3_wait(client, r));
            free(r->buf);
        }
        snprintf(key[i % AT_ONCE], sizeof(key[0]), "long/%05d", i);
        *r = (struct vv_s3_req){.method = VV_S3_PUT, .bucket = BUCKET, .key = key[i % AT_ONCE]};
        vv_s3_start(client, r);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        T_OK(vv_s3_wait(client, &req[i]));
        free(req[i].buf);
    }
    reset();
    T_OK(vv_s3_list(client, BUCKET, "long/", true, see, &seen));
    T_EQ(seen.n, N);
    T_EQ(t_s3_requests("GET"), 3);
    T_STREQ(seen.last, "long/02499");
}

static int abort_upload(void *user, const struct vv_s3_entry *e)
{
    ++*(unsigned *)user;
    return vv_s3_upload_abort(client, BUCKET, e->key, e->upload_id);
}

/* An upload under the key of an object of the same length. A completion that failed leaves that object, and must
 * not be taken for one whose answer was lost. */
static void replaced(const char *bytes, size_t part, char *back)
{
    static const char *const faults[] = {"\"late-error\"", "503", "\"lost\""};
    char id[VV_S3_UPLOAD_ID_MAX], etags[1][VV_S3_ETAG_MAX], json[128];
    char *old = calloc(1, part);
    for (size_t i = 0; i < VV_ARRAY_SIZE(faults); i++) {
        struct vv_s3_req req;
        bool lost = i == 2;
        T_OK(vv_s3_put(client, BUCKET, "up/again", old, part));
        T_OK(vv_s3_upload_begin(client, BUCKET, "up/again", id));
        vv_s3_upload_part(&req, BUCKET, "up/again", id, "1", bytes, part);
        T_OK(vv_s3_perform(client, &req));
        memcpy(etags[0], req.etag, sizeof(etags[0]));
        free(req.buf);
        snprintf(json, sizeof(json), "{\"what\": %s, \"method\": \"POST\", \"count\": %d}",
                 faults[i], lost ? 1 : 1000);
        t_s3_fault(json);
        int rc = vv_s3_upload_commit(client, BUCKET, "up/again", id, etags, 1, part);
        T_EQ(rc, lost ? 0 : -EIO);
        reset();
        T_OK(get("up/again", back, part, 0, 0, &req));
        T_CHECK(memcmp(back, lost ? bytes : old, part) == 0);
        T_EQ(vv_s3_upload_abort(client, BUCKET, "up/again", id), 0);
    }
    free(old);
}

static void uploads(void)
{
    enum { PARTS = 3 };
    size_t part = 5 << 20, last = 1000;
    char *bytes = malloc(PARTS * part), id[VV_S3_UPLOAD_ID_MAX], etags[PARTS][VV_S3_ETAG_MAX];
    static const char *const numbers[] = {"1", "2", "3"};
    struct vv_s3_req req[PARTS];
    struct t_rng rng = {t_seed()};
    unsigned n = 0;
    for (size_t i = 0; i < PARTS * part / 8; i++)
        ((uint64_t *)bytes)[i] = t_rng_u64(&rng);
    T_OK(vv_s3_upload_begin(client, BUCKET, "up/one", id));
    for (int i = 0; i < PARTS; i++) {
        vv_s3_upload_part(&req[i], BUCKET, "up/one", id, numbers[i], bytes + (size_t)i * part,
                          i == 2 ? last : part);
        vv_s3_start(client, &req[i]);
    }
    for (int i = 0; i < PARTS; i++) {
        T_OK(vv_s3_wait(client, &req[i]));
        memcpy(etags[i], req[i].etag, sizeof(etags[i]));
        free(req[i].buf);
    }
    uint64_t total = 2 * part + last;
    char *back = malloc(total);
    struct vv_s3_req r;
    T_ERR(get("up/one", back, total, 0, 0, &r), -ENOENT);
    /* The answer to the commit is lost: the object exists, the upload does not. */
    t_s3_fault("{\"what\": \"lost\", \"method\": \"POST\"}");
    T_OK(vv_s3_upload_commit(client, BUCKET, "up/one", id, etags, PARTS, total));
    T_OK(get("up/one", back, total, 0, 0, &r));
    T_CHECK(memcmp(back, bytes, total) == 0);
    /* Status 200 with an error in the text. */
    T_OK(vv_s3_upload_begin(client, BUCKET, "up/two", id));
    t_s3_fault("{\"what\": \"late-error\", \"method\": \"POST\"}");
    T_ERR(vv_s3_upload_commit(client, BUCKET, "up/two", id, etags, 0, total), -EIO);
    T_EQ(vv_s3_upload_abort(client, BUCKET, "up/two", id), 0);
    replaced(bytes, part, back);
    T_OK(vv_s3_upload_begin(client, BUCKET, "up/two", id));
    for (int i = 0; i < 4; i++)
        T_OK(vv_s3_upload_begin(client, BUCKET, "up/three", id));
    T_OK(vv_s3_list_uploads(client, BUCKET, "up/", abort_upload, &n));
    T_EQ(n, 5);
    T_STREQ(t_s3_admin("/_uploads", ""), "");
    free(bytes);
    free(back);
}

/* Faults that pass when the request is repeated. */
static void passing_faults(void)
{
    static const char *const faults[] = {"500",       "503",      "429",       "\"cut\"",
                                         "\"reset\"", "\"slow\"", "\"stall\"", "\"lost\""};
    char json[128], body[1000], back[1000];
    struct vv_s3_req req;
    memset(body, 'b', sizeof(body));
    for (size_t i = 0; i < VV_ARRAY_SIZE(faults); i++) {
        reset();
        snprintf(json, sizeof(json), "{\"what\": %s, \"count\": %d}", faults[i],
                 strcmp(faults[i], "\"stall\"") == 0 ? 1 : 3);
        memset(body, 'a' + (int)i, sizeof(body));
        t_s3_fault(json);
        T_OK(vv_s3_put(client, BUCKET, "faulty", body, sizeof(body)));
        reset();
        t_s3_fault(json);
        T_OK(get("faulty", back, sizeof(back), 0, 0, &req));
        T_EQ(req.got, sizeof(back));
        T_CHECK(memcmp(body, back, sizeof(body)) == 0);
    }
    reset();
}

/* A limited number of tries. */
static void lasting_faults(void)
{
    char back[16];
    struct vv_s3_req req;
    reset();
    t_s3_fault("{\"what\": 503, \"count\": 1000}");
    T_ERR(get("faulty", back, sizeof(back), 0, 0, &req), -EIO);
    T_STREQ(req.why, "HTTP status 503 SlowDown");
    T_EQ(t_s3_requests(NULL), 5);
    reset();
    t_s3_fault("{\"what\": 400, \"count\": 1000}");
    T_ERR(get("faulty", back, sizeof(back), 0, 0, &req), -EIO);
    T_EQ(t_s3_requests(NULL), 1);
    reset();
    /* A store without ranges: correct if the whole object was requested. */
    T_OK(vv_s3_put(client, BUCKET, "faulty", "0123456789", 10));
    t_s3_fault("{\"what\": \"whole\", \"count\": 1000}");
    T_OK(get("faulty", back, 10, 0, 10, &req));
    T_ERR(get("faulty", back, sizeof(back), 2, 5, &req), -EIO);
    reset();
    /* Lengths that would overflow in the caller. */
    t_s3_fault("{\"what\": \"huge\"}");
    T_ERR(get("faulty", back, sizeof(back), VV_S3_SUFFIX, sizeof(back), &req), -EIO);
    T_STREQ(req.why, "the answer has an impossible length");
    reset();
}

/* Refused credentials are read again, and appear in no message. */
static void rotated_credentials(void)
{
    char back[16], path[512];
    struct vv_s3_req req;
    T_OK(vv_s3_put(client, BUCKET, "rotated", "1", 1));
    (void)t_s3_admin("/_keys", "newid newsecret newtoken");
    T_ERR(get("rotated", back, sizeof(back), 0, 0, &req), -EACCES);
    T_CHECK(!strstr(req.why, "test") && !strstr(req.why, "newid"));
    snprintf(path, sizeof(path), "%s/rotated", t_tmpdir());
    FILE *f = fopen(path, "w");
    fprintf(f, "[default]\naws_access_key_id=newid\naws_secret_access_key=newsecret\naws_session_"
               "token=newtoken\n");
    fclose(f);
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    unsetenv("AWS_ACCESS_KEY_ID");
    T_OK(get("rotated", back, sizeof(back), 0, 0, &req));
    t_s3_fault("{\"what\": \"expired\"}");
    T_ERR(get("rotated", back, sizeof(back), 0, 0, &req), -EACCES);
    T_STREQ(req.why, "HTTP status 400 ExpiredToken");
    setenv("AWS_ACCESS_KEY_ID", "testid", 1);
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    (void)t_s3_admin("/_keys", "testid testsecret");
    T_OK(get("rotated", back, sizeof(back), 0, 0, &req));
}

static void cancelled(void)
{
    char back[16];
    reset();
    t_s3_fault("{\"what\": \"stall\", \"count\": 1000}");
    struct vv_s3_req req = {.bucket = BUCKET, .key = "rotated", .buf = back, .room = sizeof(back)};
    vv_s3_start(client, &req);
    vv_s3_cancel(client, &req);
    T_ERR(vv_s3_wait(client, &req), -ECANCELED);
    vv_s3_cancel(client, &req);
    reset();
}

static void unreachable(void)
{
    const struct vv_s3_opts opts = {
        .endpoint = "http://127.0.0.1:1", .tries = 2, .timeout_ms = 1000};
    struct vv_s3 *s3;
    char err[256];
    T_OK(vv_s3_new(&opts, err, sizeof(err), &s3));
    T_ERR(vv_s3_put(s3, BUCKET, "key", "1", 1), -ECONNREFUSED);
    vv_s3_free(s3);
    const struct vv_s3_opts bad = {.endpoint = "ftp://host"};
    T_ERR(vv_s3_new(&bad, err, sizeof(err), &s3), -EINVAL);
    const struct vv_s3_opts user = {.endpoint = "http://name:password@host"};
    T_ERR(vv_s3_new(&user, err, sizeof(err), &s3), -EINVAL);
    T_CHECK(!strstr(err, "password"));
}

int main(void)
{
    char err[256] = "";
    T_RUN(hashes);
    T_RUN(addresses);
    t_s3_start();
    const struct vv_s3_opts opts = {.tries = 5, .timeout_ms = 1000};
    T_RUN(credentials);
    T_OK(vv_s3_new(&opts, err, sizeof(err), &client));
    T_RUN(objects);
    T_RUN(listings);
    T_RUN(long_listings);
    T_RUN(uploads);
    T_RUN(passing_faults);
    T_RUN(lasting_faults);
    T_RUN(rotated_credentials);
    T_RUN(cancelled);
    T_RUN(unreachable);
    vv_s3_free(client);
    return t_done();
}
