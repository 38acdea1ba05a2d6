/* SPDX-License-Identifier: Apache-2.0 */
/* Versions to an object store and back, against curl moving the same bytes to the same store.
 *
 *   bench_s3 [--mib N] [--rounds N] [--min RATIO] s3://BUCKET/PREFIX
 *
 * The store is that of AWS_ENDPOINT_URL, with the credentials of the environment. Each round puts and gets an
 * object with the target, in pieces of 4 MiB as copies are made, and then with the program curl, one PUT and one
 * GET; for curl the time that curl itself reports counts, without the start of the program. Ratios are of the
 * medians. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
#include "store/os.h"
#include "store/target/target.h"

enum { PIECE = 4 << 20, ROUNDS_MAX = 64 };

struct bench {
    uint32_t mib, rounds;
    double min_ratio;
    const char *url;
    struct vv_target *at;
    char *data, *back;
    size_t bytes;
    char file[64];
};

static void check(const char *what, int rc)
{
    if (rc == 0)
        return;
    fprintf(stderr, "bench_s3: %s: %s\n", what, strerror(-rc));
    exit(2);
}

static double put(struct bench *b)
{
    struct vv_target_file *f;
    uint64_t start_ns = vv_now_ns();
    check("create", b->at->ops->create(b->at, "varve", "varve.tmp", b->bytes, &f));
    for (size_t at = 0; at < b->bytes; at += PIECE)
        check("put", f->ops->put(f, b->data + at, VV_MIN((size_t)PIECE, b->bytes - at), at));
    check("settle", f->ops->settle(f));
    check("commit", f->ops->commit(f));
    vv_target_end(f);
    return (double)(vv_now_ns() - start_ns) / 1e9;
}

static double get(struct bench *b)
{
    struct vv_target_file *f;
    uint64_t start_ns = vv_now_ns();
    check("open", b->at->ops->open(b->at, "varve", VV_TARGET_STREAM, &f));
    for (size_t at = 0; at < b->bytes; at += PIECE)
        check("get", f->ops->get(f, b->back + at, VV_MIN((size_t)PIECE, b->bytes - at), at));
    double s = (double)(vv_now_ns() - start_ns) / 1e9;
    vv_target_end(f);
    if (memcmp(b->data, b->back, b->bytes) != 0)
        check("what came back is something else", -EBADMSG);
    return s;
}

/* The credentials go to curl by its standard input, not by its command line. */
static double by_curl(const struct bench *b, bool upload)
{
    char command[4096], answer[64] = "";
    const char *region = getenv("AWS_REGION");
    snprintf(command, sizeof(command),
             "printf 'user = \"%%s:%%s\"\\n' \"$AWS_ACCESS_KEY_ID\" \"$AWS_SECRET_ACCESS_KEY\" | "
             "curl -sf -K - --aws-sigv4 aws:amz:%s:s3 -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "
             "-H Expect: -w '%%{time_total}' %s '%s' '%s/%s/curl'",
             region ? region : "us-east-1", upload ? "-o /dev/null -T" : "-o", b->file,
             getenv("AWS_ENDPOINT_URL"), b->url + 5);
    FILE *p = popen(command, "r");
    if (!p || !fgets(answer, sizeof(answer), p) || pclose(p) != 0)
        check("curl", -EIO);
    return atof(answer);
}

#define AT(field) offsetof(struct bench, field)

static const struct opt options[] = {
    {OPT_TEXT, .arg = "s3://BUCKET/PREFIX", .at = AT(url),
     .help = "where objects varve and curl are written"},
    {OPT_U32, .name = "mib", .arg = "N", .at = AT(mib), .least = 1,
     .help = "size of an object (64)"},
    {OPT_U32, .name = "rounds", .arg = "N", .at = AT(rounds), .least = 1, .most = ROUNDS_MAX,
     .help = "how often (7)"},
    {OPT_REAL, .name = "min", .arg = "RATIO", .at = AT(min_ratio), .low = 0, .high = 10,
     .help = "exit 1 below this share of curl's speed"},
};

static const struct opts command = {
    .command = "bench_s3",
    .usage = "[OPTION]... s3://BUCKET/PREFIX",
    .about = "Compares puts and gets of the store's target with those of the program curl.",
    OPT_LIST(options),
};

/* The object that both write and read. */
static void make(struct bench *b)
{
    char err[256] = "";
    b->bytes = (size_t)b->mib << 20;
    b->data = malloc(b->bytes);
    b->back = malloc(b->bytes);
    if (!b->data || !b->back)
        check("memory", -ENOMEM);
    for (size_t i = 0; i < b->bytes; i++)
        b->data[i] = (char)(i * 2654435761u >> 13);
    snprintf(b->file, sizeof(b->file), "/tmp/bench_s3.%ld", (long)getpid());
    FILE *f = fopen(b->file, "w");
    if (!f || fwrite(b->data, b->bytes, 1, f) != 1 || fclose(f) != 0)
        check(b->file, -EIO);
    int rc = vv_target_open(vv_os_posix(), b->url, err, sizeof(err), &b->at);
    if (rc < 0)
        fprintf(stderr, "bench_s3: %s\n", err);
    check(b->url, rc);
}

int main(int argc, char **argv)
{
    struct bench b = {.mib = 64, .rounds = 7};
    double ours[2][ROUNDS_MAX], theirs[2][ROUNDS_MAX];
    int status = opts_parse(&command, argc, argv, &b, NULL);
    bool met = true;
    if (status >= 0)
        return status;
    make(&b);
    for (uint32_t r = 0; r < b.rounds; r++) {
        ours[0][r] = put(&b);
        theirs[0][r] = by_curl(&b, true);
        ours[1][r] = get(&b);
        theirs[1][r] = by_curl(&b, false);
    }
    for (int i = 0; i < 2; i++) {
        double a = samples_median(ours[i], b.rounds), c = samples_median(theirs[i], b.rounds);
        printf("%s: %.0f MB/s, curl %.0f MB/s, ratio %.2f\n", i == 0 ? "put" : "get",
               (double)b.bytes / a / 1e6, (double)b.bytes / c / 1e6, c / a);
        met &= b.min_ratio == 0 || c / a >= b.min_ratio;
    }
    vv_target_close(b.at);
    unlink(b.file);
    free(b.data);
    free(b.back);
    return met ? 0 : 1;
}
