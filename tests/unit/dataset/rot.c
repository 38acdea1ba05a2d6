/* SPDX-License-Identifier: Apache-2.0 */
/* Bits change on the disk of one node: no other node gets them, in whatever way a file travels, and the damaged copy is
 * dropped. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataset/node.h"
#include "unit/dataset/ds.h"
#include "unit/dataset/settled.h"

#define NODES   3
#define FILES   24
#define MIB     (UINT64_C(1) << 20)
#define LIMIT_S 60 /* a test that waits longer has failed */

static const char token[] = "a token of this test";

struct job {
    struct vv_node *node[NODES];
    char addr[NODES][VV_MEMBER_ADDR_MAX + 1];
    char folder[NODES][512];
    char root[512];
    struct vv_node_opts opts;
    unsigned nr, files;
    size_t size; /* of the first file; each has a few bytes more than the last */
};

/* ---- files ---- */

static size_t file_size(const struct job *j, unsigned i)
{
    return j->size + i;
}

static char *content(unsigned i, size_t size)
{
    struct t_rng r = {i + 77};
    char *buf = malloc(size + 8);

    T_CHECK(buf);
    for (size_t k = 0; k < size; k += 8) {
        uint64_t word = t_rng_u64(&r);

        memcpy(buf + k, &word, 8);
    }
    return buf;
}

static void write_files(const struct job *j)
{
    for (unsigned i = 0; i < j->files; i++) {
        char path[600], *buf = content(i, file_size(j, i));
        FILE *f;

        snprintf(path, sizeof(path), "%s/f%u", j->root, i);
        f = fopen(path, "w");
        T_CHECK(f);
        T_EQ(fwrite(buf, 1, file_size(j, i), f), file_size(j, i));
        T_EQ(fclose(f), 0);
        free(buf);
    }
}

static void read_all(struct job *j, unsigned node)
{
    for (unsigned i = 0; i < j->files; i++) {
        size_t size = file_size(j, i), have = 0;
        char path[600], *want = content(i, size), *buf = malloc(size + 1);
        struct vv_server_ask ask = {.path = path,
                                    .deadline_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S};
        struct vv_shared_stat st;
        ssize_t n;
        int fd;

        snprintf(path, sizeof(path), "%s/f%u", j->root, i);
        T_CHECK(buf);
        T_OK(get_settled(j->node[node], &ask, &fd, &st));
        while ((n = read(fd, buf + have, size + 1 - have)) > 0)
            have += (size_t)n;
        T_EQ(have, size);
        T_CHECK(memcmp(buf, want, size) == 0);
        close(fd);
        free(buf);
        free(want);
    }
}

/* Changes a bit of each content file of a node. Returns how many there are. */
static unsigned rot(const struct job *j, unsigned node)
{
    DIR *dir = opendir(j->folder[node]);
    unsigned nr = 0;

    T_CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[800];

        if (!strstr(e->d_name, ".data"))
            continue;
        snprintf(path, sizeof(path), "%s/%s", j->folder[node], e->d_name);
        ds_flip(path, nr++ % 2 ? 0 : -1);
    }
    closedir(dir);
    return nr;
}

/* ---- nodes ---- */

static struct vv_node_status *status(struct job *j, unsigned node)
{
    struct vv_node_status *s;

    T_OK(vv_node_status(j->node[node], &s));
    return s;
}

#define OF(j, k, field)                           \
    ({                                            \
        struct vv_node_status *s_ = status(j, k); \
        uint64_t value_ = s_->field;              \
        free(s_);                                 \
        value_;                                   \
    })

static unsigned running(const struct job *j)
{
    unsigned n = 0;

    for (unsigned i = 0; i < j->nr; i++)
        n += j->node[i] != NULL;
    return n;
}

static void wait_for_all(struct job *j)
{
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S;

    for (unsigned i = 0; i < j->nr; i++) {
        unsigned up = 0;

        while (j->node[i] && up != running(j)) {
            struct vv_node_status *s = status(j, i);

            up = 0;
            for (size_t k = 0; k < s->nr; k++)
                up += s->rows[k].member.state <= VV_MEMBER_SUSPECT;
            free(s);
            T_CHECK(vv_now_ns() < limit_ns);
            usleep(1000);
        }
    }
}

/* Waits for copies, which are made after the originals were read. */
static void wait_for_files(struct job *j, uint64_t files)
{
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S, have = 0;

    while (have < files) {
        have = 0;
        for (unsigned i = 0; i < j->nr; i++)
            have += j->node[i] ? OF(j, i, cache.files) : 0;
        T_CHECK(vv_now_ns() < limit_ns);
        usleep(1000);
    }
}

static void start(struct job *j, unsigned i)
{
    struct vv_member_info peers[NODES] = {0};
    const char *roots[1] = {j->root};
    struct vv_node_opts o = j->opts;
    char name[16], err[512];

    snprintf(name, sizeof(name), "node%u", i);
    o.name = name;
    o.folder = j->folder[i];
    o.listen = "127.0.0.1:0";
    o.token = token;
    o.token_bytes = sizeof(token);
    o.roots = roots;
    o.nr_roots = 1;
    o.peers = peers;
    for (unsigned k = 0; k < i; k++) {
        snprintf(peers[o.nr_peers].name, sizeof(peers[0].name), "node%u", k);
        snprintf(peers[o.nr_peers++].addr, sizeof(peers[0].addr), "%s", j->addr[k]);
    }
    if (vv_node_open(&o, err, sizeof(err), &j->node[i]) < 0)
        t_fail(__FILE__, __LINE__, "node %u: %s", i, err);
    snprintf(j->addr[i], sizeof(j->addr[i]), "%s", vv_node_addr(j->node[i]));
}

static void begin(struct job *j, unsigned nr, unsigned files, size_t size)
{
    *j = (struct job){.nr = nr, .files = files, .size = size};
    snprintf(j->root, sizeof(j->root), "%s", t_tmpdir());
    j->opts = (struct vv_node_opts){
        .dataset = {.capacity = 256 * MIB},
        .mode = VV_NODE_RECACHE,
        .place = {.scheme = VV_PLACE_HRW},
        .memory_file = 4 * MIB,
        .patience_ns = 20 * VV_NS_PER_S,
        .period_ns = VV_NS_PER_S, /* a busy node must not look dead */
        .revalidate_ns = 3600 * VV_NS_PER_S,
    };
    for (unsigned i = 0; i < nr; i++)
        snprintf(j->folder[i], sizeof(j->folder[i]), "%s", t_tmpdir());
    write_files(j);
}

static void start_all(struct job *j)
{
    for (unsigned i = 0; i < j->nr; i++)
        start(j, i);
    wait_for_all(j);
}

static void stop(struct job *j, unsigned i)
{
    vv_node_close(j->node[i]);
    j->node[i] = NULL;
}

static void end(struct job *j)
{
    for (unsigned i = 0; i < j->nr; i++)
        stop(j, i);
}

/* Leaves no room for copies of files of other nodes: they are sent for each open. */
static void keep_no_copies(struct job *j, uint64_t capacity)
{
    j->opts.dataset.capacity = capacity;
    j->opts.dataset.low_pct = 1;
}

/* ---- tests ---- */

/* Read over the network: every byte is right, and each damaged copy is found, counted and fetched again. */
static void received(struct job *j)
{
    uint64_t fetches;
    unsigned rotten;

    start_all(j);
    read_all(j, 1);
    fetches = OF(j, 0, owner.fetches);
    rotten = rot(j, 0);
    T_CHECK(rotten > 0);
    T_EQ(fetches, rotten);
    read_all(j, 1);
    T_EQ(OF(j, 1, counters.rejected), rotten);
    T_EQ(OF(j, 0, cache.damaged), rotten);
    T_EQ(OF(j, 0, owner.fetches), 2 * rotten);
    T_EQ(OF(j, 1, counters.passed_late) + OF(j, 1, counters.passed_error), 0);
    read_all(j, 0);
    read_all(j, 1);
    T_EQ(OF(j, 0, cache.damaged), rotten);
    end(j);
}

static void into_memory(void)
{
    struct job j;

    begin(&j, 2, FILES, 5000);
    keep_no_copies(&j, 512 * DS_KIB);
    received(&j);
}

/* Files of more than one piece. */
static void in_pieces(void)
{
    struct job j;

    begin(&j, 2, 12, 17 * MIB);
    j.opts.memory_file = 32 * MIB;
    keep_no_copies(&j, 256 * MIB);
    received(&j);
}

/* Received on the disk of the reader, which keeps no damaged file. */
static void onto_disk(uint64_t memory_file)
{
    uint64_t rotten;
    struct job j;

    begin(&j, 2, FILES, 5000);
    j.opts.memory_file = memory_file;
    start_all(&j);
    read_all(&j, 0);
    rotten = rot(&j, 0);
    rotten -= OF(
        &j, 1,
        owner
            .fetches); /* copies of files of node 1, which other nodes do not request from node 0 */
    T_CHECK(rotten > 0);
    read_all(&j, 1);
    T_EQ(OF(&j, 1, counters.rejected), rotten);
    T_EQ(OF(&j, 0, cache.damaged), rotten);
    T_EQ(OF(&j, 1, cache.files), FILES);
    read_all(&j, 1);
    T_EQ(OF(&j, 1, counters.rejected), rotten);
    end(&j);
}

static void large_onto_disk(void)
{
    onto_disk(1000);
}

static void copies_onto_disk(void)
{
    onto_disk(4 * MIB);
}

/* A node whose disk is full of damage leaves: it gives no damaged file away. */
static void drained(void)
{
    uint64_t rejected = 0;
    unsigned rotten;
    struct job j;

    begin(&j, NODES, FILES, 5000);
    keep_no_copies(&j, 512 * DS_KIB);
    start_all(&j);
    read_all(&j, 1);
    rotten = rot(&j, 0);
    T_CHECK(rotten > 0);
    T_EQ(vv_node_drain(j.node[0], vv_now_ns() + LIMIT_S * VV_NS_PER_S), 0);
    T_EQ(OF(&j, 0, cache.damaged), rotten);
    T_EQ(OF(&j, 0, cache.files), 0);
    for (unsigned i = 1; i < NODES; i++)
        rejected += OF(&j, i, counters.rejected);
    T_EQ(rejected, rotten);
    stop(&j, 0);
    wait_for_all(&j);
    for (unsigned i = 1; i < NODES; i++)
        read_all(&j, i);
    end(&j);
}

/* Copies are replaced because a node is gone, from a disk full of damage. */
static void copied(void)
{
    unsigned rotten;
    struct job j;

    begin(&j, NODES, FILES, 5000);
    keep_no_copies(&j, 512 * DS_KIB);
    j.opts.replicas = 2;
    start_all(&j);
    read_all(&j, 1);
    wait_for_files(&j, UINT64_C(2) * FILES);
    rotten = rot(&j, 0);
    T_CHECK(rotten > 0);
    stop(&j, 2);
    wait_for_all(&j);
    read_all(&j, 1);
    /* Node 1 has one of each in the end: its own, or fetched again. */
    for (uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S; OF(&j, 1, cache.files) < FILES;) {
        read_all(&j, 1);
        T_CHECK(vv_now_ns() < limit_ns);
        usleep(1000);
    }
    T_CHECK(OF(&j, 0, cache.damaged) > 0 && OF(&j, 0, cache.damaged) <= rotten);
    stop(&j, 0);
    wait_for_all(&j);
    read_all(&j, 1);
    T_EQ(OF(&j, 1, cache.damaged), 0);
    end(&j);
}

/* A report of damage drops a file only if it is damaged. */
static void checked(void)
{
    struct vv_dataset *d = ds_open(t_tmpdir(), 64 * DS_KIB, NULL);
    struct vv_dataset_gen gen = ds_gen(1, 3000), other = ds_gen(2, 3000);
    uint64_t sum = 0;

    T_OK(ds_put(d, "/a", 1, 3000));
    T_OK(vv_dataset_check(d, "/a", &gen));
    T_ERR(vv_dataset_check(d, "/a", &other), -ESTALE);
    T_ERR(vv_dataset_check(d, "/b", &gen), -ENOENT);
    T_ERR(vv_dataset_sum(d, "/a", &other, &sum), -ESTALE);
    T_ERR(vv_dataset_sum(d, "/b", &gen, &sum), -ENOENT);
    T_EQ(sum, 0);
    T_OK(vv_dataset_sum(d, "/a", &gen, &sum));
    T_CHECK(sum != 0);
    T_OK(ds_check(d, "/a"));
    T_EQ(ds_stats(d).damaged, 0);
    vv_dataset_close(d);
}

int main(void)
{
    T_RUN(into_memory);
    T_RUN(in_pieces);
    T_RUN(large_onto_disk);
    T_RUN(copies_onto_disk);
    T_RUN(drained);
    T_RUN(copied);
    T_RUN(checked);
    return t_done();
}
