/* SPDX-License-Identifier: Apache-2.0 */
/* With revalidate 0, while a node doubts reports: a file of another node that is too large for memory is served as it
 * comes, and is not kept; nor is one that is brought while programs read the shared file system. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataset/node_private.h"
#include "t.h"
#include "unit/dataset/settled.h"

#define NODES   2
#define FILES   16
#define BYTES   20000
#define LIMIT_S 60 /* a test that waits longer has failed */

static const char token[] = "a token of this test";
static char root[512];
static struct vv_node *node[NODES];

static void start(unsigned i, uint64_t direct_above)
{
    struct vv_member_info peers[NODES] = {0};
    const char *roots[1] = {root};
    struct vv_node_opts o = {.dataset = {.capacity = 64 << 20},
                             .folder = t_tmpdir(),
                             .listen = "127.0.0.1:0",
                             .token = token,
                             .token_bytes = sizeof(token),
                             .roots = roots,
                             .nr_roots = 1,
                             .mode = VV_NODE_RECACHE,
                             .place = {.scheme = VV_PLACE_HRW},
                             .memory_file = 1000,
                             .direct_above = direct_above,
                             .patience_ns = 60 * VV_NS_PER_S,
                             .period_ns = VV_NS_PER_S,
                             .peers = peers,
                             .nr_peers = i};
    char name[16], err[512];

    snprintf(name, sizeof(name), "node%u", i);
    o.name = name;
    for (unsigned k = 0; k < i; k++) {
        snprintf(peers[k].name, sizeof(peers[k].name), "node%u", k);
        snprintf(peers[k].addr, sizeof(peers[k].addr), "%s", vv_node_addr(node[k]));
    }
    if (vv_node_open(&o, err, sizeof(err), &node[i]) < 0)
        t_fail(__FILE__, __LINE__, "node %u: %s", i, err);
}

static void wait_for_both(unsigned i)
{
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S;
    unsigned up = 0;

    while (up < NODES) {
        struct vv_node_status *s;

        T_OK(vv_node_status(node[i], &s));
        up = 0;
        for (size_t k = 0; k < s->nr; k++)
            up += s->rows[k].member.state <= VV_MEMBER_SUSPECT;
        free(s);
        T_CHECK(vv_now_ns() < limit_ns);
        usleep(1000);
    }
}

static void read_all(struct vv_node *n)
{
    for (unsigned i = 0; i < FILES; i++) {
        char path[600], buf[BYTES + 1];
        struct vv_server_ask ask = {.path = path,
                                    .deadline_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S};
        struct vv_shared_stat st;
        int fd;

        snprintf(path, sizeof(path), "%s/f%u", root, i);
        T_OK(get_settled(n, &ask, &fd, &st));
        T_EQ(read(fd, buf, sizeof(buf)), BYTES);
        for (size_t k = 0; k < BYTES; k++)
            T_EQ((uint8_t)buf[k], i);
        close(fd);
    }
}

static void write_files(void)
{
    snprintf(root, sizeof(root), "%s", t_tmpdir());
    for (unsigned i = 0; i < FILES; i++) {
        char path[600], buf[BYTES];
        FILE *f;

        snprintf(path, sizeof(path), "%s/f%u", root, i);
        memset(buf, (int)i, sizeof(buf));
        f = fopen(path, "w");
        T_CHECK(f && fwrite(buf, 1, sizeof(buf), f) == sizeof(buf) && fclose(f) == 0);
    }
}

/* Files that a node keeps, and bytes that it has got from others. */
static uint64_t files_of(unsigned i, uint64_t *ret_bytes)
{
    struct vv_node_status *s;
    uint64_t files;

    T_OK(vv_node_status(node[i], &s));
    files = s->cache.files;
    *ret_bytes = s->counters.remote_bytes;
    free(s);
    return files;
}

static void start_both(uint64_t direct_above)
{
    write_files();
    for (unsigned i = 0; i < NODES; i++)
        start(i, direct_above);
    for (unsigned i = 0; i < NODES; i++)
        wait_for_both(i);
}

static void served_and_not_kept(void)
{
    uint64_t own, files, bytes, doubted_ns;

    start_both(0);
    read_all(node[0]);
    own = files_of(1, &bytes); /* those of which it is the home */
    T_CHECK(own < FILES);
    T_EQ(bytes, 0);
    doubted_ns = vv_now_ns();
    vv_owner_doubt(node[1]->owner);
    read_all(node[1]);
    files = files_of(1, &bytes);
    /* Each is sent once; on a busy machine an answer may come too late. */
    T_CHECK(bytes >= (FILES - own) * BYTES && bytes <= 4 * (FILES - own) * BYTES);
    /* After that time it trusts reports again. */
    if (vv_now_ns() - doubted_ns < VV_OWNER_DOUBT_NS / 2)
        T_EQ(files, own);
    for (unsigned i = 0; i < NODES; i++)
        vv_node_close(node[i]);
}

/* Requests a file until `done` returns true. */
static void ask_until(struct vv_node *n, unsigned file, bool (*done)(int rc))
{
    char path[600];
    struct vv_server_ask ask = {.path = path};
    struct vv_shared_stat st;
    int fd, rc;

    snprintf(path, sizeof(path), "%s/f%u", root, file);
    do {
        ask.deadline_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S;
        rc = vv_node_get(n, &ask, &fd, &st);
        T_CHECK(rc == 0 || rc == -EAGAIN || rc == -EINPROGRESS);
        if (rc == 0)
            close(fd);
    } while (!done(rc) && usleep(1000) == 0);
}

static bool is_here(int rc)
{
    return rc == 0;
}

static bool is_settled(int rc)
{
    return rc != -EAGAIN;
}

static uint64_t behind_of(unsigned i)
{
    struct vv_node_status *s;
    uint64_t behind;

    T_OK(vv_node_status(node[i], &s));
    behind = s->counters.behind;
    free(s);
    return behind;
}

static void await_brought(struct vv_node *n, unsigned file)
{
    char given[600], path[VV_DATASET_PATH_MAX + 1];

    snprintf(given, sizeof(given), "%s/f%u", root, file);
    T_OK(vvi_node_path(n, given, path));
    while (vvi_node_behind_is(n, path))
        usleep(1000);
}

/* A large file that was dropped on arrival is not counted as brought. */
static void brought_and_not_kept(void)
{
    uint64_t own, files, behind, brought, bytes, doubted_ns;

    start_both(BYTES / 2);
    for (unsigned i = 0; i < FILES; i++)
        ask_until(node[0], i, is_here);
    own = files_of(1, &bytes);
    T_CHECK(own < FILES);
    behind = behind_of(1);
    doubted_ns = vv_now_ns();
    vv_owner_doubt(node[1]->owner);
    for (unsigned i = 0; i < FILES; i++) {
        ask_until(node[1], i, is_settled);
        await_brought(node[1], i);
    }
    brought = behind_of(1) - behind;
    files = files_of(1, &bytes);
    T_CHECK(bytes >= (FILES - own) * BYTES);
    /* After that time it trusts reports again. */
    if (vv_now_ns() - doubted_ns < VV_OWNER_DOUBT_NS / 2) {
        T_EQ(files, own);
        T_EQ(brought, 0);
    }
    for (unsigned i = 0; i < NODES; i++)
        vv_node_close(node[i]);
}

int main(void)
{
    T_RUN(served_and_not_kept);
    T_RUN(brought_and_not_kept);
    return t_done();
}
