/* SPDX-License-Identifier: Apache-2.0 */
/* Several nodes in one process, over loopback: every file from every node, each fetched from the shared file system
 * once, while nodes come and go. */
#include "nodes.h"

#include <pthread.h>
#include <stdatomic.h>

#include "dataset/gossip.h"

/* ---- tests ---- */

/* One node alone: files, their stat, their changes; paths that are not served. */
static void alone(void)
{
    char path[600], link[600], err[256], outside[600];
    struct vv_server_ask ask = ask_for(path);
    struct vv_node_opts o;
    struct vv_shared_stat st;
    struct job j;
    int fd;

    begin(&j, 1, 8);
    j.opts.revalidate_ns = 3600 * VV_NS_PER_S;
    o = j.opts;
    o.name = "one";
    o.folder = j.folder[0];
    o.roots = j.roots;
    o.nr_roots = 1;
    T_OK(vv_node_open(&o, err, sizeof(err), &j.node[0]));
    for (int round = 0; round < 3; round++)
        read_all(&j, 0);
    T_EQ(SUM(&j, owner.fetches), 8);
    T_EQ(SUM(&j, counters.opens), 24);
    file_path(&j, 1, path, sizeof(path));
    T_OK(vv_node_stat(j.node[0], &ask, &st));
    T_EQ(st.gen.size, file_size(1));
    /* Without waiting: only files that are here. */
    ask.now = true;
    T_OK(get_settled(j.node[0], &ask, &fd, &st));
    close(fd);
    write_file(&j, 9, 0, 100);
    file_path(&j, 9, path, sizeof(path));
    T_ERR(vv_node_get(j.node[0], &ask, &fd, &st), -EAGAIN);
    ask.now = false;
    T_OK(get_settled(j.node[0], &ask, &fd, &st));
    close(fd);
    /* Links. */
    snprintf(link, sizeof(link), "%s/link", j.root);
    T_EQ(symlink("f1", link), 0);
    ask.path = link;
    T_OK(get_settled(j.node[0], &ask, &fd, &st));
    check_fd(fd, 1, 0, file_size(1));
    close(fd);
    ask.nofollow = true;
    T_ERR(vv_node_get(j.node[0], &ask, &fd, &st), -ELOOP);
    ask.nofollow = false;
    /* Outside of the roots, missing, and not a file. */
    snprintf(outside, sizeof(outside), "%s/x", t_tmpdir());
    ask.path = outside;
    T_ERR(vv_node_get(j.node[0], &ask, &fd, &st), -EINVAL);
    ask.path = j.root;
    T_ERR(vv_node_get(j.node[0], &ask, &fd, &st), -EINVAL);
    snprintf(path, sizeof(path), "%s/none", j.root);
    ask.path = path;
    T_ERR(vv_node_get(j.node[0], &ask, &fd, &st), -ENOENT);
    T_ERR(vv_node_stat(j.node[0], &ask, &st), -ENOENT);
    /* Written to: the next open sees it. */
    write_file(&j, 2, 1, 5000);
    T_OK(read_at(&j, 0, 2, 0, file_size(2)));
    file_path(&j, 2, path, sizeof(path));
    T_OK(vv_node_invalidate(j.node[0], path, vv_now_ns() + VV_NS_PER_S));
    T_OK(read_at(&j, 0, 2, 1, 5000));
    end(&j);
}

/* Each file from each node, fetched once; the files are spread almost evenly. */
static void everywhere(void)
{
    uint64_t most = 0, all = 0;
    struct job j;

    begin(&j, NODES, 64);
    j.opts.revalidate_ns = 3600 * VV_NS_PER_S;
    start_all(&j);
    for (unsigned n = 0; n < NODES; n++)
        read_all(&j, n);
    T_EQ(SUM(&j, owner.fetches), 64);
    T_EQ(kept(&j), 64);
    T_EQ(SUM(&j, cache.files), 64 * NODES); /* all are everywhere: there is room */
    T_CHECK(SUM(&j, counters.remote) > 0);
    for (unsigned n = 0; n < NODES; n++) {
        struct vv_node_status *s = status(&j, n);
        uint64_t keeps = s->cache.used - s->cache.copy_bytes;

        T_CHECK(s->cache.files > s->cache.copies);
        most = keeps > most ? keeps : most;
        all += keeps;
        free(s);
    }
    t_note("fullest node: %.2f of the mean", (double)most * NODES / (double)all);
    T_CHECK(most * NODES < 2 * all);
    /* Again: from memory and disk, without transfers. */
    all = SUM(&j, counters.remote);
    for (unsigned n = 0; n < NODES; n++)
        read_all(&j, n);
    T_EQ(SUM(&j, counters.remote), all);
    T_EQ(SUM(&j, owner.fetches), 64);
    end(&j);
}

struct reader {
    struct job *j;
    unsigned node, file;
    pthread_t thread;
};

static void *read_one(void *arg)
{
    struct reader *r = arg;

    T_OK(read_at(r->j, r->node, r->file, 0, file_size(r->file)));
    return NULL;
}

/* Many requests at once, on all nodes: it is fetched once. */
static void together(void)
{
    struct reader r[4 * NODES];
    uint64_t views;
    struct job j;

    begin(&j, NODES, 8);
    start_all(&j);
    wait_until_quiet(&j);
    views = SUM(&j, counters.views);
    for (unsigned i = 0; i < 4 * NODES; i++) {
        r[i] = (struct reader){.j = &j, .node = i % NODES, .file = 5};
        T_EQ(pthread_create(&r[i].thread, NULL, read_one, &r[i]), 0);
    }
    for (unsigned i = 0; i < 4 * NODES; i++)
        pthread_join(r[i].thread, NULL);
    /* If a node was taken for gone meanwhile, another home may have fetched it too. */
    if (SUM(&j, counters.views) == views)
        T_EQ(SUM(&j, owner.fetches), 1);
    else
        t_note("the view has changed meanwhile");
    end(&j);
}

/* A node goes: each of its files is fetched at most once more, whichever node asks; it comes back with its files, and
 * nothing is fetched. */
static void one_goes(void)
{
    uint64_t lost, before;
    struct job j;

    begin(&j, NODES, 48);
    start_all(&j);
    read_all(&j, 1);
    T_EQ(SUM(&j, owner.fetches), 48);
    {
        struct vv_node_status *s = status(&j, 0);

        lost = s->cache.files;
        before = 48 - s->owner.fetches;
        free(s);
    }
    stop(&j, 0);
    wait_for_all(&j);
    for (unsigned n = 1; n < NODES; n++)
        read_all(&j, n);
    wait_until_quiet(&j);
    /* Node 1 has fetched the files that it inherited. */
    T_CHECK(SUM(&j, owner.fetches) >= before && SUM(&j, owner.fetches) <= before + lost);
    T_EQ(kept(&j), 48 + SUM(&j, counters.copied)); /* by homes that found them on another node */
    start(&j, 0);
    wait_for_all(&j);
    before = SUM(&j, owner.fetches);
    for (unsigned n = 0; n < NODES; n++)
        read_all(&j, n);
    T_EQ(SUM(&j, owner.fetches), before);
    /* And with an empty disk: the others have everything. */
    stop(&j, 0);
    wait_for_all(&j);
    wait_until_quiet(&j);
    snprintf(j.folder[0], sizeof(j.folder[0]), "%s", t_tmpdir());
    start(&j, 0);
    wait_for_all(&j);
    before = SUM(&j, owner.fetches);
    for (unsigned n = 0; n < NODES; n++)
        read_all(&j, n);
    T_EQ(SUM(&j, owner.fetches), before);
    end(&j);
}

/* Two copies of each file are on different nodes, and the loss of one node costs no fetch, again and again. */
static void two_copies(void)
{
    uint64_t before;
    struct job j;

    begin(&j, NODES, 40);
    j.opts.replicas = 2;
    j.opts.revalidate_ns = 3600 * VV_NS_PER_S;
    start_all(&j);
    read_all(&j, 0);
    wait_for_copies(&j, 80);
    T_EQ(SUM(&j, owner.fetches), 40);
    T_EQ(kept(&j), 80);
    for (unsigned n = 0; n + 2 < NODES; n++) {
        struct vv_node_status *s = status(&j, n);

        before = SUM(&j, owner.fetches) - s->owner.fetches;
        free(s);
        stop(&j, n);
        wait_for_all(&j);
        read_all(&j, NODES - 1);
        read_all(&j, NODES - 2);
        wait_for_copies(&j, 80);
        T_EQ(SUM(&j, owner.fetches), before);
    }
    end(&j);
}

/* With redirect, exactly the files of a node that is gone are left to the caller. */
static void redirect(void)
{
    unsigned left = 0;
    uint64_t before, here;
    struct job j;

    begin(&j, NODES, 48);
    j.opts.mode = VV_NODE_REDIRECT;
    start_all(&j);
    read_all(&j, 1);
    {
        struct vv_node_status *s = status(&j, 0);

        here = s->cache.files;
        before = 48 - s->owner.fetches;
        free(s);
    }
    stop(&j, 0);
    wait_for_all(&j);
    for (unsigned i = 0; i < 48; i++) {
        int rc = read_at(&j, 2, i, 0, file_size(i));

        T_CHECK(rc == 0 || rc == -ENOTCONN);
        left += rc < 0;
    }
    T_EQ(left, here);
    T_EQ(SUM(&j, owner.fetches), before);
    T_EQ(SUM(&j, counters.passed_redirect), left);
    start(&j, 0);
    wait_for_all(&j);
    read_all(&j, 2);
    T_EQ(SUM(&j, owner.fetches), before);
    end(&j);
}

/* A program on one node writes to a file: programs on all others see it. Changes without a report are seen after the
 * interval. */
static void changed(void)
{
    char path[600];
    struct job j;

    begin(&j, NODES, 8);
    j.opts.revalidate_ns = 3600 * VV_NS_PER_S;
    j.opts.replicas = 2;
    start_all(&j);
    for (unsigned n = 0; n < NODES; n++)
        read_all(&j, n);
    for (unsigned i = 1; i < 8; i++) {
        write_file(&j, i, 1, 777 + i);
        file_path(&j, i, path, sizeof(path));
        T_OK(vv_node_invalidate(j.node[i % NODES], path, vv_now_ns() + LIMIT_S * VV_NS_PER_S));
        for (unsigned n = 0; n < NODES; n++)
            T_OK(read_at(&j, n, i, 1, 777 + i));
    }
    end(&j);
    begin(&j, NODES, 8);
    j.opts.revalidate_ns = 1;
    start_all(&j);
    for (unsigned g = 0; g < 3; g++)
        for (unsigned i = 1; i < 8; i++) {
            write_file(&j, i, g, 100 + g);
            for (unsigned n = 0; n < NODES; n++)
                T_OK(read_at(&j, n, i, g, 100 + g));
        }
    end(&j);
}

#define LOOKED_AT (UINT64_C(1) << 20)

struct looker {
    struct job *j;
    unsigned node;
    _Atomic bool *done;
    pthread_t thread;
};

/* Reads file 1 again and again: any generation, but whole. The size shows which. */
static void *look_on(void *arg)
{
    struct looker *l = arg;
    char path[600];

    file_path(l->j, 1, path, sizeof(path));
    while (!atomic_load(l->done)) {
        struct vv_server_ask ask = ask_for(path);
        struct vv_shared_stat st;
        int fd;

        /* Dropped between the fetch and the hand-out: the program has to read the shared file system. */
        if (vv_node_get(l->j->node[l->node], &ask, &fd, &st) < 0)
            continue;
        check_fd(fd, 1, (unsigned)(st.gen.size - LOOKED_AT), st.gen.size);
        close(fd);
        usleep(1000);
    }
    return NULL;
}

static void replace(const struct job *j, unsigned i, unsigned generation, size_t size)
{
    char from[600], to[600];

    write_file(j, i + 1000, generation, size); /* has the same words in it */
    file_path(j, i + 1000, from, sizeof(from));
    file_path(j, i, to, sizeof(to));
    T_EQ(rename(from, to), 0);
}

/* A file is changed while all nodes read it: no node keeps a transfer that was under way. So an open after the report,
 * at any node, gets the new content. */
static void written_while_read(void)
{
    struct looker l[NODES];
    _Atomic bool done = false;
    unsigned rounds = (unsigned)t_cases(25, 2000);
    char path[600];
    struct job j;

    begin(&j, NODES, 2);
    j.opts.revalidate_ns = 3600 * VV_NS_PER_S;
    j.opts.period_ns = 3 * VV_NS_PER_S;
    write_file(&j, 1, 0, LOOKED_AT);
    start_all(&j);
    file_path(&j, 1, path, sizeof(path));
    for (unsigned i = 0; i < NODES; i++) {
        l[i] = (struct looker){.j = &j, .node = i, .done = &done};
        T_EQ(pthread_create(&l[i].thread, NULL, look_on, &l[i]), 0);
    }
    for (unsigned g = 1; g <= rounds; g++) {
        replace(&j, 1, g, LOOKED_AT + g);
        T_OK(vv_node_invalidate(j.node[g % NODES], path, vv_now_ns() + LIMIT_S * VV_NS_PER_S));
        for (unsigned n = 0; n < NODES; n++)
            T_OK(read_at(&j, (g + n) % NODES, 1, g, LOOKED_AT + g));
    }
    atomic_store(&done, true);
    for (unsigned i = 0; i < NODES; i++)
        pthread_join(l[i].thread, NULL);
    end(&j);
}

/* While a program on one node changes a file, no node hands it out; nor the files below a folder that was
 * moved. */
static void being_changed(void)
{
    struct vv_owner_change c = {.inode = 1, .begins = true};
    char path[600], folder[600], below[700];
    struct vv_shared_stat st;
    struct vv_server_ask ask;
    struct job j;
    int fd;

    begin(&j, NODES, 2);
    j.opts.revalidate_ns = 3600 * VV_NS_PER_S;
    snprintf(folder, sizeof(folder), "%s/folder", j.root);
    snprintf(below, sizeof(below), "%s/f", folder);
    T_EQ(mkdir(folder, 0755), 0);
    T_EQ(symlink("../f1", below), 0);
    start_all(&j);
    file_path(&j, 1, path, sizeof(path));
    for (unsigned n = 0; n < NODES; n++)
        read_all(&j, n);
    c.path = path;
    T_OK(vv_node_change(j.node[0], &c, vv_now_ns() + LIMIT_S * VV_NS_PER_S));
    ask = ask_for(path);
    for (unsigned n = 0; n < NODES; n++) {
        T_ERR(vv_node_get(j.node[n], &ask, &fd, &st), -ETXTBSY);
        T_ERR(vv_node_stat(j.node[n], &ask, &st), -ETXTBSY);
    }
    T_EQ(SUM(&j, counters.passed_error), 0);
    write_file(&j, 1, 1, 777);
    c.begins = false;
    T_OK(vv_node_change(j.node[0], &c, vv_now_ns() + LIMIT_S * VV_NS_PER_S));
    for (unsigned n = 0; n < NODES; n++)
        T_OK(read_at(&j, n, 1, 1, 777));
    ask = ask_for(below);
    for (unsigned n = 0; n < NODES; n++) {
        T_OK(get_settled(j.node[n], &ask, &fd, &st));
        close(fd);
    }
    T_EQ(unlink(below), 0);
    c = (struct vv_owner_change){.path = folder, .tree = true};
    T_OK(vv_node_change(j.node[1], &c, vv_now_ns() + LIMIT_S * VV_NS_PER_S));
    ask = ask_for(below);
    for (unsigned n = 0; n < NODES; n++) {
        T_ERR(vv_node_get(j.node[n], &ask, &fd, &st), -ENOENT);
    }
    end(&j);
}

static uint64_t remote_bytes(struct job *j)
{
    return SUM(j, counters.remote_bytes);
}

/* There is room for all: from the second epoch on no file is transferred. Changes are seen on all nodes: at once
 * after a report, or after the interval. */
static void copies_stay(void)
{
    uint64_t travelled;
    char path[600];
    struct job j;

    begin(&j, NODES, 40);
    j.opts.revalidate_ns = 3600 * VV_NS_PER_S;
    j.opts.memory = 0;
    start_all(&j);
    for (unsigned n = 0; n < NODES; n++)
        read_all(&j, n);
    T_EQ(SUM(&j, cache.files), 40 * NODES);
    T_EQ(SUM(&j, cache.copies), 40 * (NODES - 1));
    T_EQ(SUM(&j, cache.used), SUM(&j, cache.copy_bytes) * NODES / (NODES - 1));
    travelled = remote_bytes(&j);
    for (unsigned n = 0; n < NODES; n++)
        read_all(&j, n);
    T_EQ(remote_bytes(&j), travelled);
    for (unsigned i = 1; i < 40; i += 3) {
        write_file(&j, i, 1, 500 + i);
        file_path(&j, i, path, sizeof(path));
        T_OK(vv_node_invalidate(j.node[i % NODES], path, vv_now_ns() + LIMIT_S * VV_NS_PER_S));
        for (unsigned n = 0; n < NODES; n++)
            T_OK(read_at(&j, n, i, 1, 500 + i));
    }
    end(&j);
    /* A node that has to check gets the confirmation of a copy in a few bytes. */
    begin(&j, NODES, 20);
    j.opts.revalidate_ns = 1;
    j.opts.memory = 0;
    start_all(&j);
    for (unsigned n = 0; n < NODES; n++)
        read_all(&j, n);
    travelled = remote_bytes(&j);
    for (unsigned n = 0; n < NODES; n++)
        read_all(&j, n);
    T_EQ(remote_bytes(&j), travelled);
    for (unsigned g = 1; g < 4; g++) {
        for (unsigned i = 1; i < 20; i++)
            write_file(&j, i, g, 300 + g);
        for (unsigned n = 0; n < NODES; n++)
            for (unsigned i = 1; i < 20; i++)
                T_OK(read_at(&j, n, i, g, 300 + g));
    }
    T_EQ(SUM(&j, cache.files), 20 * NODES);
    end(&j);
}

/* A reported change drops copies on all nodes: by another name of the file, and by a folder above it. */
static void copies_obey(void)
{
    struct vv_owner_change c = {0};
    char path[3][700], folder[600];
    struct vv_shared_stat got;
    struct job j;
    int fd;

    begin(&j, NODES, 2);
    j.opts.revalidate_ns = 3600 * VV_NS_PER_S;
    snprintf(folder, sizeof(folder), "%s/folder", j.root);
    T_EQ(mkdir(folder, 0755), 0);
    snprintf(path[1], sizeof(path[1]), "%s/f", folder);
    file_path(&j, 0, path[0], sizeof(path[0]));
    T_EQ(link(path[0], path[1]), 0);
    snprintf(path[2], sizeof(path[2]), "%s/other", j.root);
    file_path(&j, 1, path[0], sizeof(path[0]));
    T_EQ(link(path[0], path[2]), 0);
    start_all(&j);
    for (unsigned i = 0; i < 3 * NODES; i++) {
        struct vv_server_ask ask = {.path = path[i % 3],
                                    .deadline_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S};

        T_OK(get_settled(j.node[i / 3], &ask, &fd, &got));
        close(fd);
    }
    T_EQ(SUM(&j, cache.files), 3 * NODES);
    c = (struct vv_owner_change){.path = path[2], .inode = got.gen.inode};
    T_OK(vv_node_change(j.node[1], &c, vv_now_ns() + LIMIT_S * VV_NS_PER_S));
    T_EQ(SUM(&j, cache.files), NODES);
    T_EQ(SUM(&j, cache.copies), NODES - 1);
    c = (struct vv_owner_change){.path = folder, .tree = true};
    T_OK(vv_node_change(j.node[0], &c, vv_now_ns() + LIMIT_S * VV_NS_PER_S));
    T_EQ(SUM(&j, cache.files), 0);
    end(&j);
}

/* A node goes and comes back with copies in its manifest, which are valid if the files are. A node that leaves gives
 * away its own files, and no copies. */
static void copies_of_former_lives(void)
{
    uint64_t travelled, fetched;
    struct vv_node_status *s;
    struct job j;

    begin(&j, 3, 30);
    j.opts.revalidate_ns = 1; /* every node checks, and asks the node that has checked */
    j.opts.memory = 0;
    start_all(&j);
    read_all(&j, 0);
    read_all(&j, 1);
    stop(&j, 1);
    wait_for_all(&j);
    write_file(&j, 7, 1, 4000);
    start(&j, 1);
    wait_for_all(&j);
    wait_until_quiet(&j);
    s = status(&j, 1);
    T_CHECK(s->cache.copies > 0);
    free(s);
    travelled = remote_bytes(&j);
    fetched = SUM(&j, owner.fetches);
    for (unsigned i = 0; i < 30; i++)
        if (i != 7)
            T_OK(read_at(&j, 1, i, 0, file_size(i)));
    T_EQ(remote_bytes(&j), travelled);
    T_EQ(SUM(&j, owner.fetches), fetched);
    T_OK(read_at(&j, 1, 7, 1, 4000));
    s = status(&j, 1);
    T_EQ(vv_node_drain(j.node[1], vv_now_ns() + LIMIT_S * VV_NS_PER_S),
         s->cache.files - s->cache.copies);
    free(s);
    stop(&j, 1);
    stop(&j, 2);
    wait_for_all(&j);
    /* Node 0 has copies of all files, even when it is alone. */
    fetched = SUM(&j, owner.fetches);
    for (unsigned i = 0; i < 30; i++)
        if (i != 7)
            T_OK(read_at(&j, 0, i, 0, file_size(i)));
    wait_until_quiet(&j);
    T_EQ(SUM(&j, owner.fetches), fetched);
    end(&j);
}

/* Less room than files: files stay on the nodes that keep them, however many pass through, and no node exceeds its
 * capacity. */
static void copies_without_room(void)
{
    struct job j;

    begin(&j, 2, 24);
    j.opts.dataset.capacity = 16 * 8192;
    j.opts.memory = 0;
    j.opts.memory_file = 4 * MIB;
    for (unsigned i = 0; i < 24; i++)
        write_file(&j, i, 0, 8000);
    start_all(&j);
    for (unsigned round = 0; round < 4; round++)
        for (unsigned n = 0; n < 2; n++)
            for (unsigned i = 0; i < 24; i++) {
                T_OK(read_at(&j, n, i, 0, 8000));
                for (unsigned k = 0; k < 2; k++) {
                    struct vv_node_status *s = status(&j, k);

                    T_CHECK(s->cache.used <= 16 * 8192);
                    free(s);
                }
            }
    T_EQ(SUM(&j, owner.fetches), 24);
    T_EQ(kept(&j), 24);
    end(&j);
}

/* Reads a large file again and again until it is handed out. */
static void read_large(struct job *j, unsigned node, unsigned i, size_t size)
{
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S;
    int rc;

    while ((rc = read_at(j, node, i, 0, size)) == -EINPROGRESS) {
        T_CHECK(vv_now_ns() < limit_ns);
        usleep(2000);
    }
    T_OK(rc);
}

/* The index of a file's home, with two nodes. */
static unsigned home_of(struct job *j, unsigned i)
{
    char path[600];
    uint64_t home;

    file_path(j, i, path, sizeof(path));
    T_OK(vv_node_home(j->node[0], path, &home));
    return home == vv_place_node_id("node1");
}

/* No program waits for a large file: it reads the shared file system, while the file is brought to its home and to each
 * node that wants it; after that it is handed out. The same for a file that was verified only in an earlier run. */
static void large_files(void)
{
    const size_t size = 33 * MIB;
    struct job j;

    begin(&j, 2, 0);
    j.opts.direct_above = 8 * MIB;
    for (unsigned i = 0; i < 3; i++)
        write_file(&j, i, 0, size);
    write_file(&j, 3, 0, 8 * MIB);
    start_all(&j);
    for (unsigned i = 0; i < 3; i++)
        for (unsigned n = 0; n < 2; n++)
            read_large(&j, n, i, size);
    T_EQ(SUM(&j, counters.behind), 6);
    T_CHECK(SUM(&j, counters.passed_behind) >= 6);
    T_EQ(SUM(&j, owner.fetches), 3);
    T_EQ(remote_bytes(&j), 3 * size);
    T_OK(read_at(&j, 0, 3, 0, 8 * MIB));
    T_OK(read_at(&j, 1, 3, 0, 8 * MIB));
    T_EQ(SUM(&j, counters.behind), 6);
    end(&j);
    start_all(&j);
    /* The home comes first: a request of the other node would start the verification of its copy, which might end. */
    for (unsigned i = 0; i < 3; i++) {
        unsigned home = home_of(&j, i);

        T_ERR(read_at(&j, home, i, 0, size), -EINPROGRESS);
        T_ERR(read_at(&j, 1 - home, i, 0, size), -EINPROGRESS);
    }
    for (unsigned i = 0; i < 3; i++)
        for (unsigned n = 0; n < 2; n++)
            read_large(&j, n, i, size);
    T_EQ(SUM(&j, owner.fetches), 0);
    T_EQ(remote_bytes(&j), 0);
    end(&j);
}

/* Files in one piece, in several, in memory, on disk, and too large. */
static void sizes(void)
{
    static const size_t size[] = {0, 1, 4 * MIB, 4 * MIB + 1, 16 * MIB, 40 * MIB + 5, 49 * MIB};
    struct job j;
    uint64_t home;
    char path[600];

    begin(&j, 2, 0);
    j.opts.dataset.max_file = 48 * MIB;
    j.opts.memory_file = 17 * MIB;
    j.opts.memory = 64 * MIB;
    start_all(&j);
    for (unsigned i = 0; i < VV_ARRAY_SIZE(size); i++) {
        write_file(&j, i, 0, size[i]);
        file_path(&j, i, path, sizeof(path));
        for (unsigned n = 0; n < 4; n++)
            T_ERR(read_at(&j, n % 2, i, 0, size[i]), size[i] > 48 * MIB ? -EFBIG : 0);
        T_OK(vv_node_home(j.node[0], path, &home));
    }
    T_EQ(SUM(&j, counters.passed_large), 4);
    T_EQ(SUM(&j, owner.fetches), VV_ARRAY_SIZE(size) - 1);
    end(&j);
}

/* A node leaves regularly, and gives its files away first. */
static void drained(void)
{
    struct vv_node_status *s;
    uint64_t before;
    struct job j;

    begin(&j, NODES, 40);
    start_all(&j);
    read_all(&j, 3);
    s = status(&j, 0);
    before = SUM(&j, owner.fetches) - s->owner.fetches;
    T_EQ(vv_node_drain(j.node[0], vv_now_ns() + LIMIT_S * VV_NS_PER_S), s->cache.files);
    T_EQ(vv_node_drain(j.node[0], vv_now_ns()), -EALREADY);
    T_ERR(read_at(&j, 0, 1, 0, file_size(1)), -ENOTCONN);
    free(s);
    stop(&j, 0);
    wait_for_all(&j);
    for (unsigned n = 1; n < NODES; n++)
        read_all(&j, n);
    wait_until_quiet(&j);
    T_EQ(SUM(&j, owner.fetches), before);
    end(&j);
}

/* After vv_node_hurry no more files are given away, even with time left. */
static void hurried(void)
{
    struct vv_node_status *s;
    struct job j;

    begin(&j, 2, 20);
    start_all(&j);
    read_all(&j, 0);
    s = status(&j, 0);
    T_CHECK(s->cache.files > 0);
    free(s);
    vv_node_hurry(j.node[0]);
    T_EQ(vv_node_drain(j.node[0], VV_NEVER_NS), 0);
    stop(&j, 0);
    wait_for_all(&j);
    read_all(&j, 1);
    end(&j);
}

/* A peer that sends what the test chooses, and ignores messages of the node. */
struct fake_peer {
    struct vv_net *net;
    struct vv_member *member;
    struct vv_member_info info;
};

#define LONG_NS (1000 * VV_NS_PER_S) /* longer than the test */

static void fake_peer_open(struct fake_peer *p, const char *name)
{
    struct vv_net_opts net = {
        .listen = "127.0.0.1:0", .token = token, .token_bytes = sizeof(token)};
    struct vv_member_opts member = {.life = 5, .period_ns = LONG_NS};
    char err[256];

    *p = (struct fake_peer){.info = {.id = vv_place_node_id(name), .weight = MIB}};
    snprintf(p->info.name, sizeof(p->info.name), "%s", name);
    net.self = p->info.id;
    if (vv_net_open(&net, err, sizeof(err), &p->net) < 0)
        t_fail(__FILE__, __LINE__, "%s: %s", name, err);
    snprintf(p->info.addr, sizeof(p->info.addr), "%s", vv_net_addr(p->net));
    member.self = p->info;
    T_OK(vv_member_new(&member, 0, &p->member));
}

static void fake_peer_close(struct fake_peer *p)
{
    vv_net_free(p->net);
    vv_member_free(p->member);
}

/* Sends its messages to the node, and to another fake peer unless that is NULL. */
static void send_all(struct fake_peer *p, uint64_t node, struct fake_peer *other)
{
    struct vv_member_out out;

    while (vv_member_next_out(p->member, &out)) {
        if (out.to == node)
            T_OK(vv_net_send(p->net, node, VV_GOSSIP_TYPE, out.msg, out.bytes));
        else if (other && out.to == other->info.id)
            T_OK(vv_member_receive(other->member, 0, out.msg, out.bytes));
    }
}

static void wait_for_state(struct job *j, uint64_t id, enum vv_member_state state)
{
    uint64_t limit_ns = vv_now_ns() + LIMIT_S * VV_NS_PER_S;
    bool is = false;

    while (!is) {
        struct vv_node_status *s = status(j, 0);

        for (size_t k = 0; k < s->nr; k++)
            is = is || (s->rows[k].member.info.id == id && s->rows[k].member.state == state);
        free(s);
        T_CHECK(is || vv_now_ns() < limit_ns);
        usleep(1000);
    }
}

/* The status shows a suspicion and its end, although homes do not change. */
static void suspected(void)
{
    struct vv_member_info node = {.name = "node0", .weight = MIB};
    struct fake_peer a, b;
    struct job j;

    begin(&j, 1, 0);
    j.opts.period_ns = LONG_NS;
    start(&j, 0);
    node.id = vv_place_node_id(node.name);
    snprintf(node.addr, sizeof(node.addr), "%s", j.addr[0]);
    fake_peer_open(&a, "a");
    fake_peer_open(&b, "b");
    T_OK(vv_net_peer_set(a.net, node.id, node.addr, 0));
    T_OK(vv_net_peer_set(b.net, node.id, node.addr, 0));
    T_OK(vv_member_add(a.member, 0, &b.info));
    T_OK(vv_member_add(a.member, 0, &node));
    T_OK(vv_member_add(b.member, 0, &node));
    send_all(&a, node.id, &b);
    send_all(&b, node.id, &a);
    wait_for_state(&j, a.info.id, VV_MEMBER_ALIVE);
    wait_for_state(&j, b.info.id, VV_MEMBER_ALIVE);
    /* The member that reports the suspicion then leaves, which makes a new view. */
    vv_member_evidence(b.member, 0, a.info.id, VV_MEMBER_BROKEN);
    send_all(&b, node.id, &a);
    wait_for_state(&j, a.info.id, VV_MEMBER_SUSPECT);
    vv_member_leave(b.member, 0);
    send_all(&b, node.id, NULL);
    wait_for_state(&j, b.info.id, VV_MEMBER_GONE);
    wait_for_state(&j, a.info.id, VV_MEMBER_SUSPECT);
    /* It refutes the suspicion, which makes none. */
    send_all(&a, node.id, NULL);
    wait_for_state(&j, a.info.id, VV_MEMBER_ALIVE);
    fake_peer_close(&a);
    fake_peer_close(&b);
    end(&j);
}

int main(void)
{
    T_RUN(alone);
    T_RUN(suspected);
    T_RUN(everywhere);
    T_RUN(together);
    T_RUN(one_goes);
    T_RUN(two_copies);
    T_RUN(redirect);
    T_RUN(changed);
    T_RUN(written_while_read);
    T_RUN(being_changed);
    T_RUN(sizes);
    T_RUN(copies_stay);
    T_RUN(copies_obey);
    T_RUN(copies_of_former_lives);
    T_RUN(copies_without_room);
    T_RUN(large_files);
    T_RUN(drained);
    T_RUN(hurried);
    return t_done();
}
