/* SPDX-License-Identifier: Apache-2.0 */
/* Several nodes in one process, over loopback, and the files that they serve. */
#ifndef TESTS_UNIT_DATASET_NODES_H
#define TESTS_UNIT_DATASET_NODES_H

#include "dataset/node.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "t.h"
#include "unit/dataset/settled.h"

#define NODES   4
#define MIB     (UINT64_C(1) << 20)
#define LIMIT_S 60 /* a test that waits longer has failed */

static const char token[] = "a token of this test";

struct job {
    struct vv_node *node[NODES];
    char addr[NODES][VV_MEMBER_ADDR_MAX + 1];
    char folder[NODES][512];
    char root[512];
    struct vv_node_opts opts; /* of all of them */
    const char *roots[1];
    unsigned nr, files;
};

/* ---- files ---- */

static inline void file_path(const struct job *j, unsigned i, char *buf, size_t size)
{
    snprintf(buf, size, "%s/f%u", j->root, i);
}

static inline size_t file_size(unsigned i)
{
    return i == 0 ? 0 : 1000 + 37 * (size_t)i;
}

/* Each eight bytes have a word of this file. */
static inline char *content(unsigned i, unsigned generation, size_t size)
{
    char word[16], *buf = malloc(size + 8);
    size_t have = 8;

    T_CHECK(buf);
    snprintf(word, sizeof(word), "%03u.%03u\n", i % 1000, generation % 1000);
    memcpy(buf, word, 8);
    for (; have < size; have *= 2)
        memcpy(buf + have, buf, VV_MIN(have, size + 8 - have));
    return buf;
}

static inline void write_file(const struct job *j, unsigned i, unsigned generation, size_t size)
{
    char path[600], *buf = content(i, generation, size);
    FILE *f;

    file_path(j, i, path, sizeof(path));
    f = fopen(path, "w");
    T_CHECK(f);
    T_EQ(fwrite(buf, 1, size, f), size);
    T_EQ(fclose(f), 0);
    free(buf);
}

static inline void check_fd(int fd, unsigned i, unsigned generation, size_t size)
{
    char *buf = malloc(size + 1), *want = content(i, generation, size);
    size_t have = 0;
    ssize_t n;

    T_CHECK(buf);
    while ((n = read(fd, buf + have, size + 1 - have)) > 0)
        have += (size_t)n;
    T_EQ(have, size);
    T_CHECK(memcmp(buf, want, size) == 0);
    free(buf);
    free(want);
}

static inline struct vv_server_ask ask_for(const char *path)
{
    return (struct vv_server_ask){.path = path, .deadline_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S};
}

static inline int read_at(struct job *j, unsigned node, unsigned i, unsigned generation,
                          size_t size)
{
    char path[600];
    struct vv_server_ask ask = ask_for(path);
    struct vv_shared_stat st;
    struct stat real;
    int fd, rc;

    file_path(j, i, path, sizeof(path));
    rc = get_settled(j->node[node], &ask, &fd, &st);
    if (rc < 0)
        return rc;
    T_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    check_fd(fd, i, generation, size);
    close(fd);
    if (stat(path, &real) == 0 && st.gen.inode == real.st_ino)
        T_CHECK(st.mode == real.st_mode && st.uid == real.st_uid && st.dev == real.st_dev &&
                st.gen.size == size);
    return 0;
}

static inline void read_all(struct job *j, unsigned node)
{
    for (unsigned i = 0; i < j->files; i++)
        T_OK(read_at(j, node, i, 0, file_size(i)));
}

/* ---- nodes ---- */

static inline struct vv_node_status *status(struct job *j, unsigned node)
{
    struct vv_node_status *s;

    T_OK(vv_node_status(j->node[node], &s));
    return s;
}

#define SUM(j, field)                               \
    ({                                              \
        uint64_t sum_ = 0;                          \
        for (unsigned k_ = 0; k_ < (j)->nr; k_++) { \
            struct vv_node_status *s_;              \
            if (!(j)->node[k_])                     \
                continue;                           \
            s_ = status(j, k_);                     \
            sum_ += s_->field;                      \
            free(s_);                               \
        }                                           \
        sum_;                                       \
    })

static inline unsigned running(const struct job *j)
{
    unsigned n = 0;

    for (unsigned i = 0; i < j->nr; i++)
        n += j->node[i] != NULL;
    return n;
}

/* Waits until all nodes see all as up. */
static inline void wait_for_all(struct job *j)
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

/* Files that nodes keep, without copies of files that others keep. */
static inline uint64_t kept(struct job *j)
{
    return SUM(j, cache.files) - SUM(j, cache.copies);
}

/* Waits until nothing is under way: no copies, no fetches. */
static inline void wait_until_quiet(struct job *j)
{
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S, last = 0, now = 1;

    while (now != last) {
        last = now;
        usleep(t_sanitized() ? 600000 : 200000);
        now = SUM(j, counters.copied) + SUM(j, counters.ahead) + SUM(j, waiting) + kept(j);
        T_CHECK(vv_now_ns() < limit_ns);
    }
}

/* Waits for copies: threads make them after the originals were read, and may have to queue. */
static inline void wait_for_copies(struct job *j, uint64_t files)
{
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S;

    while (kept(j) < files) {
        T_CHECK(vv_now_ns() < limit_ns);
        usleep(1000);
    }
    wait_until_quiet(j);
}

static inline void start(struct job *j, unsigned i)
{
    struct vv_member_info peers[NODES] = {0};
    struct vv_node_opts o = j->opts;
    char name[16], err[512];

    snprintf(name, sizeof(name), "node%u", i);
    o.name = name;
    o.folder = j->folder[i];
    o.listen = j->addr[i][0] ? j->addr[i] : "127.0.0.1:0";
    o.token = token;
    o.token_bytes = sizeof(token);
    o.roots = j->roots;
    o.nr_roots = 1;
    o.peers = peers;
    for (unsigned k = 0; k < j->nr; k++) {
        if (k == i || !j->node[k])
            continue;
        snprintf(peers[o.nr_peers].name, sizeof(peers[0].name), "node%u", k);
        snprintf(peers[o.nr_peers++].addr, sizeof(peers[0].addr), "%s", j->addr[k]);
    }
    if (vv_node_open(&o, err, sizeof(err), &j->node[i]) < 0)
        t_fail(__FILE__, __LINE__, "node %u: %s", i, err);
    snprintf(j->addr[i], sizeof(j->addr[i]), "%s", vv_node_addr(j->node[i]));
}

static inline void stop(struct job *j, unsigned i)
{
    vv_node_close(j->node[i]);
    j->node[i] = NULL;
}

static inline void begin(struct job *j, unsigned nr, unsigned files)
{
    *j = (struct job){.nr = nr, .files = files};
    snprintf(j->root, sizeof(j->root), "%s", t_tmpdir());
    j->roots[0] = j->root;
    j->opts = (struct vv_node_opts){
        .dataset = {.capacity = 256 * MIB},
        .mode = VV_NODE_RECACHE,
        .place = {.scheme = VV_PLACE_HRW_BOUNDED},
        .memory = 16 * MIB,
        .memory_file = 4 * MIB,
        .patience_ns = 20 * VV_NS_PER_S,
        .period_ns =
            VV_NS_PER_S, /* nodes announce that they leave; a busy one must not look gone */
    };
    for (unsigned i = 0; i < nr; i++)
        snprintf(j->folder[i], sizeof(j->folder[i]), "%s", t_tmpdir());
    for (unsigned i = 0; i < files; i++)
        write_file(j, i, 0, file_size(i));
}

static inline void start_all(struct job *j)
{
    for (unsigned i = 0; i < j->nr; i++)
        start(j, i);
    wait_for_all(j);
}

static inline void end(struct job *j)
{
    for (unsigned i = 0; i < j->nr; i++)
        stop(j, i);
}

#endif
