/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon of one node, for tests of the preloaded library: only an owner of files behind a server.
 *   one_node SOCKET CACHE ROOT [revalidate=MS] [capacity=BYTES] [max=BYTES] [slow=MS] [index=SLOTS]
 * Prints "ready" when it is, and its figures when it ends (SIGTERM) or on request (SIGUSR1). Files with "slowly" in
 * their names take slow=MS to open.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataset/owner.h"
#include "dataset/server.h"

static struct vv_owner *owner;
static uint64_t slow_ns;

static int get(const struct vv_server_ask *ask, int *ret_fd, struct vv_server_stat *ret_stat)
{
    struct vv_shared_stat st;
    int fd, rc;

    if (strstr(ask->path, "slowly")) {
        if (ask->now)
            return -EAGAIN;
        vv_sleep_until_ns(vv_now_ns() + slow_ns);
    }
    rc = ask->now ? vv_owner_get_now(owner, ask->path, &fd, &st, NULL)
                  : vv_owner_get(owner, ask->path, ask->deadline_ns, &fd, &st);
    if (rc == 0 && ask->nofollow && !st.direct) {
        close(fd);
        rc = -ELOOP;
    }
    if (rc < 0)
        return rc;
    vv_shared_stat_to_wire(&st, ret_stat);
    *ret_fd = fd;
    return 0;
}

static int do_open(void *user, const struct vv_server_ask *ask, int *ret_fd,
                   struct vv_server_stat *ret_stat)
{
    (void)user;
    return get(ask, ret_fd, ret_stat);
}

static int do_stat(void *user, const struct vv_server_ask *ask, struct vv_server_stat *ret_stat,
                   bool *ret_readable)
{
    int fd, rc = get(ask, &fd, ret_stat);

    (void)user;
    if (rc == 0)
        close(fd);
    *ret_readable = rc == 0;
    return rc;
}

static int do_invalidate(void *user, const struct vv_server_ask *ask)
{
    (void)user;
    if (ask->now)
        return -EAGAIN;
    vv_owner_change(
        owner,
        &(struct vv_owner_change){
            .path = ask->path, .inode = ask->inode, .tree = ask->tree, .begins = ask->begins},
        NULL, NULL);
    return 0;
}

static void do_show(void *user, const char *path)
{
    (void)user;
    if (!strstr(path, "slowly"))
        vv_owner_show(owner, path, path, 0);
}

static uint64_t setting(char **args, const char *key, uint64_t otherwise)
{
    size_t n = strlen(key);

    for (; *args; args++)
        if (strncmp(*args, key, n) == 0 && (*args)[n] == '=')
            return strtoull(*args + n + 1, NULL, 10);
    return otherwise;
}

static void tell(struct vv_server *server, struct vv_dataset *cache)
{
    struct vv_dataset_stats c;
    struct vv_owner_stats o;
    struct vv_server_stats s;

    vv_server_stats(server, &s);
    vv_owner_stats(owner, &o);
    vv_dataset_stats(cache, &c);
    printf("clients=%llu accepted=%llu broken=%llu opens=%llu stats=%llu writes=%llu declined=%llu "
           "fetches=%llu looks=%llu files=%llu waiting=%llu damaged=%llu direct=%llu\n",
           (unsigned long long)s.clients, (unsigned long long)s.accepted,
           (unsigned long long)s.broken, (unsigned long long)s.opens, (unsigned long long)s.stats,
           (unsigned long long)s.writes, (unsigned long long)s.declined,
           (unsigned long long)o.fetches, (unsigned long long)o.looks, (unsigned long long)c.files,
           (unsigned long long)c.waiting, (unsigned long long)c.damaged,
           (unsigned long long)c.direct);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const struct vv_server_ops ops = {
        .open = do_open, .stat = do_stat, .invalidate = do_invalidate};
    const char *roots[1];
    struct vv_server_opts server_opts = {
        .roots = roots, .nr_roots = 1, .ops = &ops, .show = do_show};
    struct vv_dataset_opts opts = {0};
    struct vv_owner_opts owner_opts = {0};
    struct vv_index *index = NULL;
    struct vv_dataset *cache;
    struct vv_shared *shared;
    struct vv_server *server;
    sigset_t signals;
    char err[200];
    int sig = 0;

    if (argc < 4)
        return 2;
    server_opts.socket_path = argv[1];
    roots[0] = argv[3];
    slow_ns = setting(argv, "slow", 1000) * VV_NS_PER_MS;
    opts.capacity = setting(argv, "capacity", UINT64_C(1) << 30);
    opts.max_file = setting(argv, "max", 0);
    owner_opts.revalidate_ns = setting(argv, "revalidate", 0) * VV_NS_PER_MS;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (setting(argv, "index", 0) &&
        vv_index_new(argv[2], (uint32_t)setting(argv, "index", 0), &index) < 0)
        return 1;
    opts.index = server_opts.index = index;
    if (vv_dataset_open(argv[2], &opts, err, sizeof(err), &cache) < 0 ||
        vv_shared_new(roots, 1, &shared) < 0)
        return 1;
    owner_opts.cache = cache;
    owner_opts.shared = shared;
    if (vv_owner_new(&owner_opts, &owner) < 0 ||
        vv_server_open(&server_opts, err, sizeof(err), &server) < 0) {
        fprintf(stderr, "%s\n", err);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    while (sig != SIGTERM) {
        if (sigwait(&signals, &sig) != 0)
            return 1;
        tell(server, cache);
    }
    vv_server_close(server);
    vv_owner_free(owner);
    vv_shared_free(shared);
    vv_dataset_close(cache);
    vv_index_free(index);
    return 0;
}
