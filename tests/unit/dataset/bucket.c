/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a store as files: listings, reads, objects that change, and a store that fails. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "dataset/shared_fs.h"
#include "s3/s3.h"
#include "t.h"
#include "t_s3.h"

#define LARGE (9000000u) /* more than one range, and not a multiple of a range */

static struct vv_shared *s;

static void open_source(uint64_t revalidate_ns)
{
    char err[200];

    T_OK(vv_shared_s3_new("s3://bucket/pre/fix", "/data", revalidate_ns, err, sizeof(err), &s));
}

static void close_source(void)
{
    vv_shared_free(s);
    (void)t_s3_admin("/_reset", "");
}

static void put(const char *key, const char *text)
{
    char page[200];

    snprintf(page, sizeof(page), "/_put/bucket/pre/fix/%s", key);
    (void)t_s3_admin(page, text);
}

/* "0000000 1000000 2..." of any length, put as an object through the store's own interface. */
static char *numbers(size_t bytes, unsigned first)
{
    char *text = malloc(bytes + 16);

    T_CHECK(text);
    for (size_t at = 0; at < bytes; at += 8)
        snprintf(text + at, 9, "%07zu ", (at / 8 + first) % 10000000);
    return text;
}

static void put_numbers(const char *key, size_t bytes, unsigned first)
{
    char *text = numbers(bytes, first);
    struct vv_s3_opts opts = {0};
    struct vv_s3 *s3;
    char err[200];

    T_OK(vv_s3_new(&opts, err, sizeof(err), &s3));
    T_OK(vv_s3_put(s3, "bucket", key, text, bytes));
    vv_s3_free(s3);
    free(text);
}

/* Reads all of a file in pieces. */
static int read_all(const char *path, size_t piece, char *buf, uint64_t *ret_bytes)
{
    struct vv_shared_stat st;
    uint64_t done = 0;
    intptr_t file;
    int rc = s->open(s, path, &file, &st);

    if (rc < 0)
        return rc;
    while (done < st.gen.size) {
        int64_t n = s->read(s, file, buf + done, VV_MIN(piece, st.gen.size - done), done);

        if (n <= 0) {
            s->close(s, file);
            return n < 0 ? (int)n : -EAGAIN;
        }
        done += (uint64_t)n;
    }
    s->close(s, file);
    *ret_bytes = done;
    return 0;
}

/* Number of requests sent for a key; "": of all listings. */
static unsigned long sent(const char *key)
{
    char name[200];
    const char *at;

    snprintf(name, sizeof(name), "\"%s%s\": ", key[0] ? "pre/fix/" : "", key);
    at = strstr(t_s3_admin("/_sent", ""), name);
    return at ? strtoul(at + strlen(name), NULL, 10) : 0;
}

struct names {
    char text[1000];
    bool folder;
};

static int take_name(void *user, const char *name, const struct vv_shared_stat *st)
{
    struct names *n = user;

    strcat(n->text, name);
    strcat(n->text, S_ISDIR(st->mode) ? "/ " : " ");
    return 0;
}

static const char *list(const char *path)
{
    static struct names n;

    n.text[0] = '\0';
    T_OK(s->list(s, path, take_name, &n));
    return n.text;
}

/* ---- listings ---- */

static void names(void)
{
    struct vv_shared_stat st, other;

    put("a", "one");
    put("b/c", "two!");
    put("b/d/e", "three");
    put("b-", "before the slash");
    put("f", "shadowed by a folder");
    put("f/g", "four");
    put("f/", "an object that stands for the folder");
    put("h//i", "no path leads here");
    put("j/../k", "nor to this one");
    put("l/", "an empty folder");
    open_source(0);
    T_STREQ(list("/data"), "a b/ b- f/ h/ j/ l/ ");
    T_STREQ(list("/data/b"), "c d/ ");
    T_STREQ(list("/data/f"), "g ");
    T_STREQ(list("/data/l"), "");
    T_STREQ(list("/data/h"), "");
    T_OK(s->look(s, "/data/b/c", &st));
    T_EQ(st.gen.size, 4);
    T_EQ(st.mode, S_IFREG | 0444);
    T_EQ(st.whole, 1);
    T_CHECK(st.dev != 0 && st.gen.inode != 0 && st.gen.mtime_ns != 0);
    T_OK(s->look(s, "/data/a", &other));
    T_CHECK(other.gen.inode != st.gen.inode && other.dev == st.dev);
    T_ERR(s->look(s, "/data", &st), -EISDIR);
    T_ERR(s->look(s, "/data/b", &st), -EISDIR);
    T_ERR(s->look(s, "/data/f", &st), -EISDIR);
    T_ERR(s->look(s, "/data/none", &st), -ENOENT);
    T_ERR(s->look(s, "/data/none/below", &st), -ENOENT);
    T_ERR(s->look(s, "/data/a/below", &st), -ENOENT);
    T_ERR(s->look(s, "/database", &st), -EACCES);
    T_ERR(s->list(s, "/data/a", take_name, &st), -ENOTDIR);
    T_ERR(s->list(s, "/data/none", take_name, &st), -ENOENT);
    T_CHECK(s->sole(s, "/data/a"));
    close_source();
}

/* Names come in pages, and a stat of each costs no request. */
static void many(void)
{
    struct vv_shared_stat st;
    char name[40];

    for (int i = 0; i < 1100; i++) {
        snprintf(name, sizeof(name), "many/%04d", i);
        put(name, "x");
    }
    (void)t_s3_admin("/_reset", "");
    open_source(0);
    for (int i = 0; i < 1100; i++) {
        snprintf(name, sizeof(name), "/data/many/%04d", i);
        T_OK(s->look(s, name, &st));
    }
    T_EQ(t_s3_requests(NULL), 2);
    /* A missing name may be new; it is looked for once a second at most. */
    put("many/new", "y");
    while (s->look(s, "/data/many/new", &st) < 0)
        vv_sleep_until_ns(vv_now_ns() + 10 * VV_NS_PER_MS);
    T_CHECK(t_s3_requests("GET") >= 4);
    T_EQ(t_s3_requests("GET") % 2, 0);
    close_source();
}

/* A listing is valid for a while, and the age of its information is known. */
static void ages(void)
{
    struct vv_shared_stat st, later;

    put("age", "young");
    open_source(300 * VV_NS_PER_MS);
    T_OK(s->look(s, "/data/age", &st));
    vv_sleep_until_ns(vv_now_ns() + 20 * VV_NS_PER_MS);
    T_OK(s->look(s, "/data/age", &later));
    T_CHECK(later.age_ns >= 20 * VV_NS_PER_MS);
    put("age", "older");
    for (;;) {
        T_OK(s->look(s, "/data/age", &later));
        if (later.gen.inode != st.gen.inode)
            break;
        T_EQ(later.gen.size, 5);
        T_CHECK(later.age_ns < 300 * VV_NS_PER_MS + 10 * VV_NS_PER_S);
        vv_sleep_until_ns(vv_now_ns() + 10 * VV_NS_PER_MS);
    }
    T_EQ(later.gen.mtime_ns, st.gen.mtime_ns);
    close_source();
}

/* ---- reading ---- */

static char buf[LARGE + 1000];

static void reads(void)
{
    char *text = numbers(LARGE, 0);
    struct vv_shared_stat st;
    uint64_t bytes;
    intptr_t file;

    put_numbers("pre/fix/large", LARGE, 0);
    put("empty", "");
    open_source(0);
    (void)t_s3_admin("/_reset", "");
    T_OK(read_all("/data/large", 100000, buf, &bytes));
    T_EQ(bytes, LARGE);
    T_CHECK(memcmp(buf, text, LARGE) == 0);
    T_EQ(sent("large"), LARGE);
    T_OK(read_all("/data/empty", 10, buf, &bytes));
    T_EQ(bytes, 0);
    /* Reads anywhere, and behind the end. */
    T_OK(s->open(s, "/data/large", &file, &st));
    T_EQ(s->read(s, file, buf, 16, LARGE - 8), 8);
    T_CHECK(memcmp(buf, text + LARGE - 8, 8) == 0);
    T_EQ(s->read(s, file, buf, 16, LARGE), 0);
    T_EQ(s->read(s, file, buf, 16, 5000000), 16);
    T_CHECK(memcmp(buf, text + 5000000, 16) == 0);
    T_EQ(s->read(s, file, buf, 16, 8), 16);
    T_CHECK(memcmp(buf, text + 8, 16) == 0);
    T_OK(s->look_again(s, file, &st));
    s->close(s, file);
    /* The file is closed while ranges are under way. */
    T_OK(s->open(s, "/data/large", &file, &st));
    T_EQ(s->read(s, file, buf, 16, 0), 16);
    s->close(s, file);
    T_ERR(s->open(s, "/data/none", &file, &st), -ENOENT);
    T_ERR(s->open(s, "/data", &file, &st), -EISDIR);
    close_source();
    free(text);
}

/* A file that was read in order keeps no buffers, however long it is. */
static void buffers(void)
{
    static char piece[1 << 20];
    struct vv_shared_stat st;
    uint64_t done = 0;
    intptr_t file;
    size_t before;
    int64_t n;

    put_numbers("pre/fix/long", 6 * LARGE, 0);
    open_source(0);
    T_OK(s->open(s, "/data/long", &file, &st));
    before = mallinfo2().uordblks + mallinfo2().hblkhd;
    while ((n = s->read(s, file, piece, sizeof(piece), done)) > 0)
        done += (uint64_t)n;
    T_EQ(done, 6 * LARGE);
    T_CHECK(mallinfo2().uordblks + mallinfo2().hblkhd < before + (8u << 20));
    s->close(s, file);
    close_source();
}

static void *read_one(void *arg)
{
    char *mine = malloc(LARGE);
    uint64_t bytes;

    (void)arg;
    T_CHECK(mine);
    T_OK(read_all("/data/common", 1 << 20, mine, &bytes));
    T_EQ(bytes, LARGE);
    T_CHECK(memcmp(mine, "0000000 0000001 ", 16) == 0);
    free(mine);
    return NULL;
}

/* Several threads list a folder once, and their files share the available ranges. */
static void together(void)
{
    struct vv_shared_stat st;
    pthread_t thread[12];
    unsigned long listing;

    put_numbers("pre/fix/common", LARGE, 0);
    open_source(0);
    T_OK(s->look(s, "/data/common", &st));
    listing = sent("");
    close_source();
    open_source(0);
    for (size_t i = 0; i < VV_ARRAY_SIZE(thread); i++)
        T_EQ(pthread_create(&thread[i], NULL, read_one, NULL), 0);
    for (size_t i = 0; i < VV_ARRAY_SIZE(thread); i++)
        pthread_join(thread[i], NULL);
    T_EQ(sent("common"), LARGE * VV_ARRAY_SIZE(thread));
    T_EQ(sent(""), listing);
    close_source();
}

/* ---- changes ---- */

/* The object is replaced by one of the same length after the first piece was read. */
static void replaced(void)
{
    struct vv_shared_stat st, now;
    uint64_t bytes;
    intptr_t file;
    int64_t n;

    put_numbers("pre/fix/changing", LARGE, 0);
    open_source(0);
    /* At least one range waits until the object is replaced. */
    t_s3_fault("{\"what\": \"hold\", \"method\": \"GET\", \"match\": \"changing bytes=8388608\", "
               "\"skip\": 1, \"count\": 1}");
    T_OK(s->open(s, "/data/changing", &file, &st));
    T_EQ(s->read(s, file, buf, 8, 8388608), 8); /* the last range, alone */
    T_EQ(s->read(s, file, buf, 8, 4194304),
         8); /* the one before it, and the last one again: held */
    T_CHECK(memcmp(buf, "0524288 ", 8) == 0);
    put_numbers("pre/fix/changing", LARGE, 5);
    (void)t_s3_admin("/_release", "");
    n = s->read(s, file, buf, 1 << 23, 4194304 + 8);
    T_EQ(n, 4194304 - 8);
    T_ERR(s->read(s, file, buf, 1 << 20, 8388608), -EAGAIN);
    s->close(s, file);
    /* Files never change with revalidate 0, but this one has. */
    T_OK(s->look(s, "/data/changing", &now));
    T_CHECK(now.gen.inode != st.gen.inode);
    T_OK(read_all("/data/changing", 1 << 20, buf, &bytes));
    T_CHECK(memcmp(buf, "0000005 ", 8) == 0);
    /* Shorter, longer, gone: before its bytes are requested. */
    put_numbers("pre/fix/changing", 4000, 5);
    T_ERR(read_all("/data/changing", 1 << 20, buf, &bytes), -EAGAIN);
    T_OK(read_all("/data/changing", 1 << 20, buf, &bytes));
    T_EQ(bytes, 4000);
    put_numbers("pre/fix/changing", 8000, 5);
    T_ERR(read_all("/data/changing", 1 << 20, buf, &bytes), -EAGAIN);
    T_OK(s->look(s, "/data/changing", &st));
    T_EQ(st.gen.size, 8000);
    (void)t_s3_admin("/_drop/bucket/pre/fix/changing", "");
    T_OK(s->open(s, "/data/changing", &file, &st));
    T_ERR(s->read(s, file, buf, 16, 0), -ENOENT);
    s->close(s, file);
    T_ERR(s->look(s, "/data/changing", &st), -ENOENT);
    close_source();
}

/* ---- failures ---- */

static void failures(void)
{
    static const struct {
        const char *what;
        bool passes;
    } faults[] = {
        {"500", true},       {"503", true},       {"\"cut\"", true},  {"\"reset\"", true},
        {"\"slow\"", true},  {"\"stall\"", true}, {"\"lost\"", true}, {"\"short\"", false},
        {"\"long\"", false}, {"403", false},
    };
    char *text = numbers(LARGE, 0);
    uint64_t bytes;
    char json[200];

    for (size_t i = 0; i < VV_ARRAY_SIZE(faults); i++) {
        int rc;

        open_source(0);
        snprintf(json, sizeof(json),
                 "{\"what\": %s, \"match\": \"large\", \"skip\": 1, \"count\": 1}", faults[i].what);
        t_s3_fault(json);
        memset(buf, 0, LARGE);
        rc = read_all("/data/large", 1 << 20, buf, &bytes);
        T_CHECK(faults[i].passes ? rc == 0 : rc < 0 && rc != -EAGAIN);
        T_CHECK(rc < 0 || memcmp(buf, text, LARGE) == 0);
        /* The next read finds the new object. */
        T_OK(read_all("/data/large", 1 << 20, buf, &bytes));
        T_CHECK(memcmp(buf, text, LARGE) == 0);
        close_source();
    }
    /* A range that is answered with the whole object is refused. */
    open_source(0);
    t_s3_fault("{\"what\": \"whole\", \"match\": \"large\", \"count\": 1}");
    T_ERR(read_all("/data/large", 1 << 20, buf, &bytes), -EIO);
    close_source();
    free(text);
}

/* If a listing fails, the caller gets an error, and the next call tries again. */
static void no_listing(void)
{
    struct vv_shared_stat st;

    open_source(0);
    t_s3_fault("{\"what\": 403, \"match\": \"list-type\", \"count\": 1}");
    T_ERR(s->look(s, "/data/large", &st), -EACCES);
    T_OK(s->look(s, "/data/large", &st));
    close_source();
    open_source(0);
    t_s3_fault("{\"what\": \"cut\", \"match\": \"list-type\", \"count\": 2}");
    T_OK(s->look(s, "/data/large", &st));
    T_EQ(st.gen.size, LARGE);
    close_source();
}

/* Credentials that expire while the job runs are read again. */
static void expired(void)
{
    uint64_t bytes;

    open_source(0);
    T_OK(read_all("/data/large", 1 << 20, buf, &bytes));
    (void)t_s3_admin("/_keys", "newid newsecret");
    T_ERR(read_all("/data/large", 1 << 20, buf, &bytes), -EACCES);
    setenv("AWS_ACCESS_KEY_ID", "newid", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "newsecret", 1);
    T_OK(read_all("/data/large", 1 << 20, buf, &bytes));
    close_source();
    (void)t_s3_admin("/_keys", "testid testsecret");
    setenv("AWS_ACCESS_KEY_ID", "testid", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "testsecret", 1);
}

/* ---- roots ---- */

static void cleaned(const char *path, const char *want)
{
    char text[100];

    strcpy(text, path);
    vv_root_clean(text);
    T_STREQ(text, want);
}

static void roots(void)
{
    char list[] = "/a:s3://bucket/x/y=/b::s3://other=/c/:/d";
    char *at = list, err[200];
    struct vv_root r;

    T_OK(vv_root_parse(vv_root_next(&at), &r, err, sizeof(err)));
    T_STREQ(r.path, "/a");
    T_CHECK(!r.url);
    vv_root_fini(&r);
    T_OK(vv_root_parse(vv_root_next(&at), &r, err, sizeof(err)));
    T_STREQ(r.path, "/b");
    T_STREQ(r.url, "s3://bucket/x/y");
    T_CHECK(vv_root_dev(&r) != 0);
    vv_root_fini(&r);
    T_STREQ(vv_root_next(&at), "");
    T_OK(vv_root_parse(vv_root_next(&at), &r, err, sizeof(err)));
    T_STREQ(r.path, "/c");
    T_STREQ(r.url, "s3://other");
    vv_root_fini(&r);
    T_STREQ(vv_root_next(&at), "/d");
    T_CHECK(vv_root_next(&at) == NULL);
    T_ERR(vv_root_parse("s3://bucket", &r, err, sizeof(err)), -EINVAL);
    T_ERR(vv_root_parse("s3://bucket=x", &r, err, sizeof(err)), -EINVAL);
    T_ERR(vv_root_parse("s3://bucket=/", &r, err, sizeof(err)), -EINVAL);
    T_ERR(vv_root_parse("x", &r, err, sizeof(err)), -EINVAL);
    cleaned("/a/./b//c/", "/a/b/c");
    cleaned("/a/../b", "/b");
    cleaned("/../..", "/");
    cleaned("/a/b/../../..//c/.", "/c");
    cleaned("/..a/b..", "/..a/b..");
}

/* Folders and addresses side by side: each path goes to the backend of its root. */
static void several(void)
{
    const char *list[2] = {t_tmpdir(), "s3://bucket/pre/fix=/data"};
    char err[200], path[4200];
    struct vv_shared_stat st;
    intptr_t file;
    FILE *f;

    snprintf(path, sizeof(path), "%s/file", list[0]);
    f = fopen(path, "w");
    T_CHECK(f && fputs("here", f) >= 0 && fclose(f) == 0);
    T_OK(vv_shared_roots_new(list, 2, 0, err, sizeof(err), &s));
    T_OK(s->look(s, path, &st));
    T_CHECK(!st.whole && !s->sole(s, path) && s->sole(s, "/data/a"));
    T_OK(s->open(s, path, &file, &st));
    T_EQ(s->read(s, file, buf, 10, 0), 4);
    T_OK(s->look_again(s, file, &st));
    s->close(s, file);
    T_OK(s->open(s, "/data/a", &file, &st));
    T_EQ(s->read(s, file, buf, 10, 0), 3);
    T_CHECK(memcmp(buf, "one", 3) == 0 && st.whole);
    s->close(s, file);
    T_ERR(s->list(s, list[0], take_name, NULL), -ENOTSUP);
    close_source();
    /* An object store alone. */
    T_OK(vv_shared_roots_new(list + 1, 1, 0, err, sizeof(err), &s));
    T_OK(s->look(s, "/data/a", &st));
    T_ERR(s->look(s, path, &st), -EACCES);
    close_source();
    T_OK(vv_shared_roots_new(list, 1, 0, err, sizeof(err), &s));
    T_CHECK(!s->sole);
    close_source();
    list[1] = "s3://bucket/without";
    T_ERR(vv_shared_roots_new(list, 2, 0, err, sizeof(err), &s), -EINVAL);
}

int main(void)
{
    T_RUN(roots);
    t_s3_start();
    if (t_s3_real())
        T_SKIP("a real store has no counts and no faults");
    T_RUN(names);
    T_RUN(many);
    T_RUN(ages);
    T_RUN(reads);
    T_RUN(buffers);
    T_RUN(together);
    T_RUN(replaced);
    T_RUN(failures);
    T_RUN(no_listing);
    T_RUN(expired);
    T_RUN(several);
    return t_done();
}
