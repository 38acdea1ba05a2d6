/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of another node. Two nodes over loopback in one process; programs of one node open files that the other
 * keeps, in its page cache. One JSON object: the cost of a file of 100 KiB and the speed of files of 4 MiB,
 * received in memory, received on disk, opened again from memory; and of plain reads of the same files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
#include "dataset/node.h"

#define FILES  32
#define ROUNDS 7
#define SMALL  (100u << 10)
#define LARGE  (4u << 20)
#define WAIT_S 30

static const char token[] = "token of a benchmark";

struct bench {
    struct vv_node *node[2];
    char root[3000];
    enum vv_net_transport transport;
    const char *folder;
    char *buf; /* LARGE bytes */
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_dataset_node: %s: %s\n", what, why);
    exit(1);
}

static void make_file(const struct bench *b, const char *kind, unsigned i, size_t bytes)
{
    char path[4000];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s-%u", b->root, kind, i);
    f = fopen(path, "w");
    if (!f || fwrite(b->buf, 1, bytes, f) != bytes || fclose(f) != 0)
        die(path, "cannot be written");
}

static unsigned up(struct vv_node *n)
{
    struct vv_node_status *s;
    unsigned nr = 0;

    if (vv_node_status(n, &s) < 0)
        die("status", "out of memory");
    for (size_t i = 0; i < s->nr; i++)
        nr += s->rows[i].member.state == VV_MEMBER_ALIVE;
    free(s);
    return nr;
}

static void start(struct bench *b, const char *folder, uint64_t memory, uint64_t memory_file)
{
    struct vv_member_info first = {0};
    const char *root = b->root;

    for (unsigned i = 0; i < 2; i++) {
        char cache[4000], err[512];
        struct vv_node_opts o = {
            .name = i ? "b" : "a",
            .listen = "127.0.0.1:0",
            .transport = b->transport,
            .token = token,
            .token_bytes = sizeof(token),
            .peers = &first,
            .nr_peers = i,
            .folder = cache,
            .dataset = {.capacity = (uint64_t)1 << 30},
            .roots = &root,
            .nr_roots = 1,
            .mode = VV_NODE_RECACHE,
            .place = {.scheme = VV_PLACE_HRW},
            .memory = memory,
            .memory_file = memory_file,
        };

        snprintf(cache, sizeof(cache), "%s/cache-%u", folder, i);
        if (vv_node_open(&o, err, sizeof(err), &b->node[i]) < 0)
            die("node", err);
        snprintf(first.name, sizeof(first.name), "a");
        snprintf(first.addr, sizeof(first.addr), "%s", vv_node_addr(b->node[i]));
    }
    for (int i = 0; i < WAIT_S * 1000 && (up(b->node[0]) < 2 || up(b->node[1]) < 2); i++)
        usleep(1000);
}

static void stop(struct bench *b)
{
    vv_node_close(b->node[1]);
    vv_node_close(b->node[0]);
}

/* True if the first node keeps it. */
static bool is_there(struct bench *b, const char *path)
{
    uint64_t home;

    return vv_node_home(b->node[1], path, &home) == 0 && home == vv_place_node_id("a");
}

/* Opens the files of a kind that the other node has, reads them if requested, and closes them. Seconds for each. */
static double visit(struct bench *b, const char *kind, bool plain, bool reads)
{
    uint64_t start_ns = vv_now_ns();
    unsigned nr = 0;

    for (unsigned i = 0; i < FILES; i++) {
        char path[4000];
        struct vv_server_ask ask = {.path = path, .deadline_ns = start_ns + WAIT_S * VV_NS_PER_S};
        struct vv_shared_stat st;
        int fd, rc = 0;

        snprintf(path, sizeof(path), "%s/%s-%u", b->root, kind, i);
        if (!is_there(b, path))
            continue;
        if (plain)
            fd = open(path, O_RDONLY | O_CLOEXEC);
        else
            rc = vv_node_get(b->node[1], &ask, &fd, &st);
        if (rc < 0 || fd < 0)
            die(path, strerror(rc < 0 ? -rc : errno));
        while (reads && (rc = (int)read(fd, b->buf, LARGE)) > 0)
            ;
        close(fd);
        nr++;
    }
    return (double)(vv_now_ns() - start_ns) * 1e-9 / (nr ? nr : 1);
}

static double median(struct bench *b, const char *kind, bool plain, bool reads)
{
    double s[ROUNDS];

    (void)visit(b, kind, plain, reads); /* fetches them, at first */
    for (int i = 0; i < ROUNDS; i++)
        s[i] = visit(b, kind, plain, reads);
    return samples_median(s, ROUNDS);
}

static int set_transport(const char *value, void *options)
{
    return vv_net_transport_parse(value, &((struct bench *)options)->transport);
}

static const struct opt options[] = {
    {OPT_TEXT, .arg = "FOLDER", .at = offsetof(struct bench, folder), .help = "for all files"},
    {OPT_SET, .arg = "tcp|ucx", .optional = true, .set = set_transport, .help = "(tcp)"},
};

static const struct opts command = {
    .command = "bench_dataset_node",
    .usage = "FOLDER [tcp|ucx]",
    .about = "Measures opening files that another node keeps.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    struct json out = json_begin(stdout, JSON_SPACED);
    struct bench b = {.transport = VV_NET_TCP};
    double small, large, read_large, disk, kept, plain;
    int status = opts_parse(&command, argc, argv, &b, NULL);

    if (status >= 0)
        return status;
    snprintf(b.root, sizeof(b.root), "%s/data", b.folder);
    b.buf = calloc(1, LARGE);
    if (!b.buf || (mkdir(b.root, 0700) < 0 && errno != EEXIST))
        die(b.root, strerror(errno));
    for (unsigned i = 0; i < FILES; i++) {
        make_file(&b, "small", i, SMALL);
        make_file(&b, "large", i, LARGE);
    }
    start(&b, b.folder, 0, LARGE); /* nothing is kept */
    plain = median(&b, "large", true, true);
    small = median(&b, "small", false, false);
    large = median(&b, "large", false, false);
    read_large = median(&b, "large", false, true);
    stop(&b);
    start(&b, b.folder, (uint64_t)FILES * LARGE * 2, LARGE);
    kept = median(&b, "large", false, false);
    stop(&b);
    start(&b, b.folder, 0, 0); /* on disk: the first time they travel, and then never */
    disk = visit(&b, "large", false, false);
    stop(&b);
    json_object(&out, NULL);
    json_text(&out, "transport", vv_net_transport_name(b.transport));
    json_number(&out, "open_100k_us", "%.1f", small * 1e6);
    json_number(&out, "open_4m_mb_s", "%.0f", LARGE / large * 1e-6);
    json_number(&out, "open_and_read_4m_mb_s", "%.0f", LARGE / read_large * 1e-6);
    json_number(&out, "to_disk_4m_mb_s", "%.0f", LARGE / disk * 1e-6);
    json_number(&out, "kept_open_us", "%.1f", kept * 1e6);
    json_number(&out, "plain_read_4m_mb_s", "%.0f", LARGE / plain * 1e-6);
    json_close(&out);
    json_end(&out);
    free(b.buf);
    return 0;
}
