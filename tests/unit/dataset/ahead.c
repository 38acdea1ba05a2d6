/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are brought before they are requested: to their homes, in the order of the job, and to the node whose
 * programs will read them, in that node's order. */
#include "nodes.h"

/* Brought before they are requested; in order, with less room than files. */
static void ahead(void)
{
    const char *paths[64];
    char text[64][600];
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S;
    struct job j;

    begin(&j, NODES, 64);
    for (unsigned i = 0; i < 64; i++) {
        file_path(&j, i, text[i], sizeof(text[i]));
        paths[i] = text[i];
    }
    start_all(&j);
    T_OK(vv_node_bring(j.node[2], paths, 64, VV_DATASET_UNKNOWN));
    while (SUM(&j, counters.ahead) < 64) { /* counted after the file has come */
        T_CHECK(vv_now_ns() < limit_ns);
        usleep(1000);
    }
    T_EQ(SUM(&j, cache.files), 64);
    T_EQ(SUM(&j, owner.fetches), 64);
    T_EQ(SUM(&j, counters.ahead), 64);
    read_all(&j, 1);
    T_EQ(SUM(&j, owner.fetches), 64);
    end(&j);

    /* One node with room for 16 of 64 files of two blocks: the next files to be read are there. */
    begin(&j, 1, 64);
    j.opts.dataset.capacity = 17 * 8192;
    for (unsigned i = 0; i < 64; i++) {
        write_file(&j, i, 0, 8000);
        file_path(&j, i, text[i], sizeof(text[i]));
    }
    start_all(&j);
    T_OK(vv_node_bring(j.node[0], paths, 64, 100));
    for (unsigned i = 0; i < 64; i++) {
        struct vv_server_ask ask = ask_for(text[i]);
        struct vv_shared_stat st;
        int fd, rc;

        /* With `now` no request fetches it: it comes by itself. */
        ask.now = true;
        while ((rc = vv_node_get(j.node[0], &ask, &fd, &st)) == -EAGAIN) {
            usleep(1000);
            T_CHECK(vv_now_ns() < limit_ns);
        }
        T_OK(rc);
        check_fd(fd, i, 0, 8000);
        close(fd);
    }
    /* Two files are fetched at once: the one that is wanted later may be evicted again. */
    T_CHECK(SUM(&j, owner.fetches) >= 64 && SUM(&j, owner.fetches) < 96);
    end(&j);
}

/* Room for 16 files below the low watermark. An order brings them all; it names file 0 twice, at
 * places 0 and `again`. A program reads file `reads`, unless that is negative, and then opens two
 * other files, for which files are evicted. */
static void expected_twice(unsigned again, int reads)
{
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S;
    struct vv_shared_stat st;
    struct vv_server_ask ask;
    const char *paths[17];
    char text[18][600];
    int others[2], fd;
    struct job j;

    begin(&j, 1, 18);
    j.opts.dataset.capacity = 18 * 8192;
    for (unsigned i = 0; i < 18; i++) {
        write_file(&j, i, 0, 8000);
        file_path(&j, i, text[i], sizeof(text[i]));
    }
    for (unsigned i = 0; i < 17; i++)
        paths[i] = i == again ? text[0] : text[i < again ? i : i - 1];
    start_all(&j);
    T_OK(vv_node_bring(j.node[0], paths, 17, 100));
    while (SUM(&j, counters.ahead) < 17) {
        T_CHECK(vv_now_ns() < limit_ns);
        usleep(1000);
    }
    T_EQ(SUM(&j, cache.files), 16);
    if (reads >= 0)
        T_OK(read_at(&j, 0, (unsigned)reads, 0, 8000));
    /* Open files stay. */
    for (unsigned i = 0; i < 2; i++) {
        ask = ask_for(text[16 + i]);
        T_OK(get_settled(j.node[0], &ask, &others[i], &st));
    }
    /* An evicted file does not come back while there is no room for it. */
    T_CHECK(SUM(&j, cache.evicted) > 0);
    T_EQ(SUM(&j, owner.fetches), 18);
    ask = ask_for(text[0]);
    ask.now = true;
    T_OK(get_settled(j.node[0], &ask, &fd, &st));
    check_fd(fd, 0, 0, 8000);
    close(fd);
    close(others[0]);
    close(others[1]);
    end(&j);
}

/* A file that an order names twice is kept for its first place; after that it is kept for its
 * second. */
static void ordered_twice(void)
{
    expected_twice(16, -1);
    expected_twice(8, 1);
}

#define BYTES  8000 /* of a file: two blocks */
#define BLOCKS 8192
#define ORDER  64 /* files of an order */
#define KEEPS  8  /* brought and not yet requested */

#define MISSED 3 /* files that no thread brings again */

static unsigned missed;

struct order {
    char text[2 * ORDER][600];
    const char *paths[2 * ORDER];
    unsigned file[2 * ORDER];
};

/* Two nodes with little more room than their files take. Files of the other home go through memory. */
static void begin_orders(struct job *j, struct order *o, unsigned files)
{
    missed = 0;
    begin(j, 2, files);
    j->opts.dataset.capacity = (uint64_t)files * 3 / 4 * BLOCKS;
    j->opts.place.scheme = VV_PLACE_HRW_BOUNDED;
    j->opts.memory = 2 * KEEPS * BLOCKS;
    j->opts.revalidate_ns = 3600 * VV_NS_PER_S;
    for (unsigned i = 0; i < files; i++) {
        o->file[i] = i / ORDER * ORDER + i * 29 % ORDER;
        write_file(j, i, 0, BYTES);
        file_path(j, o->file[i], o->text[i], sizeof(o->text[i]));
        o->paths[i] = o->text[i];
    }
    start_all(j);
    /* All are at their homes, and old enough to be copied. */
    T_OK(vv_node_bring(j->node[0], o->paths, files, VV_DATASET_UNKNOWN));
    wait_for_copies(j, files);
}

/* Waits for the file at one place, which comes by itself: no program requests it before. A copy on disk may have
 * evicted another copy, which happens to one in 64. */
static void expect(struct job *j, const struct order *o, unsigned i)
{
    struct vv_server_ask ask = ask_for(o->paths[i]);
    uint64_t limit_ns = vv_now_ns() + 5 * VV_NS_PER_S;
    struct vv_node_status *s;
    struct vv_shared_stat st;
    int fd, rc;

    ask.now = true;
    while ((rc = vv_node_get(j->node[0], &ask, &fd, &st)) == -EAGAIN && vv_now_ns() < limit_ns)
        usleep(1000);
    if (rc == -EAGAIN) {
        T_CHECK(missed++ < MISSED);
        ask.now = false;
        rc = vv_node_get(j->node[0], &ask, &fd, &st);
    }
    T_OK(rc);
    check_fd(fd, o->file[i], 0, BYTES);
    close(fd);
    s = status(j, 0);
    T_CHECK(s->memory_bytes <= j->opts.memory);
    free(s);
}

/* The order of one node, twice: each file is there before it is requested, and no program waits for another node. */
static void to_this_node(void)
{
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S;
    static struct order o;
    struct vv_node_status *s;
    struct job j;

    begin_orders(&j, &o, ORDER);
    for (unsigned round = 0; round < 2; round++) {
        T_OK(vv_node_bring_here(j.node[0], o.paths, ORDER, 100 + round * ORDER));
        for (unsigned i = 0; i < ORDER; i++)
            expect(&j, &o, i);
    }
    s = status(&j, 0);
    /* Entries whose place has passed are dropped when a thread looks for the next one. */
    while (s->waiting > 0 && vv_now_ns() < limit_ns) {
        usleep(1000);
        free(s);
        s = status(&j, 0);
    }
    T_EQ(s->counters.opens, 2 * ORDER);
    T_EQ(s->counters.local + s->counters.memory, 2 * ORDER);
    T_CHECK(s->counters.memory > ORDER / 4);
    T_CHECK(s->counters.remote <= missed);
    T_EQ(s->waiting, 0);
    /* No file was brought and then dropped before a program requested it. */
    T_CHECK(s->counters.remote_bytes < 2 * ORDER * BYTES);
    free(s);
    T_EQ(SUM(&j, owner.fetches), ORDER);
    end(&j);
}

/* Files that were brought and that no program wants are evicted for files that one wants. */
static void given_up(void)
{
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S;
    static struct order o;
    uint64_t files = 0;
    struct job j;

    begin_orders(&j, &o, 2 * ORDER);
    T_OK(vv_node_bring_here(j.node[0], o.paths, 2 * ORDER, 100));
    while (files < KEEPS) {
        struct vv_node_status *s = status(&j, 0);

        files = s->memory_files;
        free(s);
        T_CHECK(vv_now_ns() < limit_ns);
        usleep(1000);
    }
    /* The order passes the first half. */
    T_OK(read_at(&j, 0, o.file[ORDER], 0, BYTES));
    for (unsigned i = ORDER + 1; i < 2 * ORDER; i++)
        expect(&j, &o, i);
    end(&j);
}

/* Without memory, files of other nodes cannot be kept until they are requested. */
static void no_memory(void)
{
    static struct order o;
    struct job j;

    begin_orders(&j, &o, ORDER);
    j.opts.memory = 0;
    stop(&j, 0);
    start(&j, 0);
    T_ERR(vv_node_bring_here(j.node[0], o.paths, ORDER, 100), -ENOSPC);
    end(&j);
}

int main(void)
{
    T_RUN(ahead);
    T_RUN(ordered_twice);
    T_RUN(to_this_node);
    T_RUN(given_up);
    T_RUN(no_memory);
    return t_done();
}
