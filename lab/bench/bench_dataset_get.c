/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a descriptor of a cached file, compared with a plain open: bench_dataset_get FOLDER. One JSON
 * object. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
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
    return samples_median(ns, ROUNDS);
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

static const struct opt options[] = {{OPT_TEXT, .arg = "FOLDER", .help = "for files and cache"}};

static const struct opts command = {
    .command = "bench_dataset_get",
    .usage = "FOLDER",
    .about = "Measures opening files that the dataset cache has.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    const char *root;
    struct json figures = json_begin(stdout, JSON_SPACED);
    struct vv_dataset_opts opts = {.capacity = (uint64_t)1 << 30};
    struct vv_owner_opts owner_opts = {0};
    struct vv_shared *shared = NULL;
    static struct bench b;
    char folder[4000], err[256] = "";
    double open_ns;
    int rc = 1, status = opts_parse(&command, argc, argv, &root, NULL);

    if (status >= 0)
        return status;
    snprintf(folder, sizeof(folder), "%s/cache", root);
    if (make_files(&b, root) < 0 || vv_shared_new(&root, 1, &shared) < 0 ||
        vv_dataset_open(folder, &opts, err, sizeof(err), &b.cache) < 0) {
        fprintf(stderr, "bench_dataset_get: %s %s\n", root, err);
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
