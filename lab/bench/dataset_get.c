/* SPDX-License-Identifier: Apache-2.0 */
/* What a descriptor of a cached file costs beside a plain open: bench_dataset_get FOLDER. One JSON
 * object. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common/json.h"
#include "dataset/owner.h"

#define FILES  64
#define BYTES  (100u << 10)
#define ROUNDS 7
#define CALLS  20000

struct bench {
    struct vv_dataset *cache;
    struct vv_owner *owner;
    char path[FILES][4096];
};

static int plain(struct bench *b, unsigned i)
{
    return open(b->path[i], O_RDONLY | O_CLOEXEC);
}

static int cached(struct bench *b, unsigned i)
{
    int fd;

    return vv_dataset_get(b->cache, b->path[i], NULL, &fd, NULL) < 0 ? -1 : fd;
}

static int owned(struct bench *b, unsigned i)
{
    int fd;

    return vv_owner_get(b->owner, b->path[i], VV_NEVER_NS, &fd, NULL) < 0 ? -1 : fd;
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, c = *(const double *)y;

    return a < c ? -1 : a > c;
}

static double median_ns(struct bench *b, int (*get)(struct bench *b, unsigned i))
{
    double ns[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        uint64_t start = vv_now_ns();

        for (unsigned i = 0; i < CALLS; i++) {
            int fd = get(b, i % FILES);

            if (fd < 0)
                exit(1);
            close(fd);
        }
        ns[r] = (double)(vv_now_ns() - start) / CALLS;
    }
    qsort(ns, ROUNDS, sizeof(ns[0]), by_value);
    return ns[ROUNDS / 2];
}

static int make_files(struct bench *b, const char *folder)
{
    static char bytes[BYTES];

    for (unsigned i = 0; i < FILES; i++) {
        FILE *f;

        snprintf(b->path[i], sizeof(b->path[i]), "%s/file-%u", folder, i);
        f = fopen(b->path[i], "w");
        if (!f || fwrite(bytes, 1, BYTES, f) != BYTES || fclose(f) != 0)
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct json figures = json_begin(stdout, JSON_SPACED);
    struct vv_dataset_opts opts = {.capacity = (uint64_t)1 << 30};
    struct vv_owner_opts owner_opts = {0};
    struct vv_shared *shared = NULL;
    static struct bench b;
    char folder[4000], err[256] = "";
    double open_ns;
    int rc = 1;

    if (argc != 2) {
        fprintf(stderr, "usage: bench_dataset_get FOLDER\n");
        return 2;
    }
    snprintf(folder, sizeof(folder), "%s/cache", argv[1]);
    if (make_files(&b, argv[1]) < 0 ||
        vv_shared_new((const char *const *)&argv[1], 1, &shared) < 0 ||
        vv_dataset_open(folder, &opts, err, sizeof(err), &b.cache) < 0) {
        fprintf(stderr, "bench_dataset_get: %s %s\n", argv[1], err);
        goto out;
    }
    owner_opts = (struct vv_owner_opts){.cache = b.cache, .shared = shared};
    if (vv_owner_new(&owner_opts, &b.owner) < 0)
        goto out;
    (void)median_ns(&b, owned); /* brings them */
    open_ns = median_ns(&b, plain);
    json_object(&figures, NULL);
    json_number(&figures, "plain_open_ns", "%.0f", open_ns);
    json_number(&figures, "cache_get_ns", "%.0f", median_ns(&b, cached));
    json_number(&figures, "owner_get_ns", "%.0f", median_ns(&b, owned));
    json_close(&figures);
    json_end(&figures);
    rc = 0;
out:
    vv_owner_free(b.owner);
    vv_dataset_close(b.cache);
    vv_shared_free(shared);
    return rc;
}
