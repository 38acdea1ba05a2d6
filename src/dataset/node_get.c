/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files for programs on this node.
 *
 * The order of attempts: a copy on this node's disk that is still valid; a file of another node in memory that is
 * still valid; the file's home, which has it, fetches it, or names the node that has it. A node that does not answer
 * is reported to membership, and the request is repeated once membership has decided: so no program reads the shared
 * file system for a file that another node is about to fetch. With several copies the next one is asked
 * meanwhile. If the file cannot be had within `patience`, or while this node is fenced, the caller reads the
 * shared file system.
 *
 * Files of an object store have no other way to programs. If the nodes cannot give one, this node fetches it itself,
 * and answers stat from its own listings.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataset/node_private.h"

#define PAUSE_NS    (5 * VV_NS_PER_MS)
#define GUESS_BYTES (UINT64_C(1) << 20) /* size of a file before it is known */

/* A request of a program that is under way. */
struct want {
    struct vv_node *n;
    const char *path; /* in the form that all nodes use */
    bool stat;
    uint64_t deadline_ns; /* of the program */
    uint64_t give_up_ns;  /* end of waiting for nodes that do not answer */
    uint64_t changes;     /* vv_owner_changes when a node was asked */
    bool ahead; /* no program has asked for it yet; one will, at this place of the order */
    uint64_t place;
    /* The result. */
    int fd;
    struct vv_shared_stat st;
};

/* Counts results of programs' requests. */
#define COUNT(w, name) VVI_COUNT_BY((w)->n, name, !(w)->ahead)

/* ---- answers ---- */

static int take_same(struct want *w, uint64_t peer, const struct vvi_get *g, struct vvi_got *got)
{
    struct vv_node *n = w->n;
    int rc;

    w->st = got->st;
    if (vv_owner_heard(n->owner, w->path, w->changes, &got->st, got->age_ns))
        vvi_node_memory_heard(n, w->path, &got->st, got->age_ns);
    if (w->stat)
        return 0;
    /* Kept from an earlier run: verifying it takes as long as reading it. */
    if (vvi_node_behind_wants(n, w->path, &g->gen)) {
        vvi_node_behind_add(n, peer, w->path, &got->st, got->age_ns);
        got->what = VVI_GOT_PASS;
        got->why = -EINPROGRESS;
        return 0;
    }
    rc = vvi_node_memory_get_gen(n, w->path, &g->gen, &w->fd);
    if (rc == 0) {
        COUNT(w, memory);
        return 0;
    }
    rc = vv_dataset_get(n->cache, w->path, &g->gen, &w->fd, NULL);
    if (rc == 0)
        COUNT(w, local);
    /* Removed meanwhile: ask again, without it. */
    return rc < 0 ? -EAGAIN : 0;
}

static void take_file(struct want *w, const struct vvi_got *got, int fd, int keep)
{
    struct vv_node *n = w->n;

    bool counts = vv_owner_heard(n->owner, w->path, w->changes, &got->st, got->age_ns);

    w->st = got->st;
    w->fd = fd;
    if (keep >= 0 && counts) {
        vvi_node_memory_put(n, w->path, keep, &got->st, got->age_ns,
                            w->ahead ? w->place : VV_DATASET_UNKNOWN);
        /* An invalidation is counted first and then removes the file: so one of the two threads sees the other. */
        if (vv_owner_changes(n->owner, w->path) != w->changes)
            vvi_node_memory_drop(n, w->path);
    }
    if (keep >= 0)
        close(keep);
    if (!w->stat)
        COUNT(w, remote);
}

/* ---- asking ---- */

/* Adds the generation that this node has, if only the file's home can confirm it. */
static void add_have(const struct want *w, struct vvi_get *g)
{
    struct vv_shared_stat st;
    struct vv_dataset_gen gen;
    bool verified;
    int fd, rc;

    if (w->stat)
        return;
    rc = vvi_node_memory_get(w->n, w->path, &fd, &st);
    if (rc == 0)
        close(fd);
    if (rc == 0 || rc == -ESTALE)
        g->gen = st.gen;
    else if (vv_dataset_peek(w->n->cache, w->path, &gen, &verified) == 0)
        g->gen = gen;
    else
        return;
    g->flags |= VVI_GET_HAVE;
}

/* Asks another node in two steps, or this one in one. 0: an answer; if it is the file, it has been taken. */
static int ask_node(struct want *w, uint64_t id, struct vvi_get *g, struct vvi_got *ret_got)
{
    struct vv_node *n = w->n;
    int fd = -1, keep = -1, rc;

    g->load = vvi_node_load(n);
    if (id == n->id) {
        g->flags |= VVI_GET_FETCH;
        rc = vvi_node_serve(n, g, w->deadline_ns, ret_got, &w->fd);
        if (rc == 0 && ret_got->what == VVI_GOT_FILE) {
            w->st = ret_got->st;
            if (!w->stat)
                COUNT(w, local);
        }
        return rc;
    }
    w->changes = vv_owner_changes(n->owner, w->path);
    add_have(w, g);
    rc = vvi_node_ask(n, id, g, vv_now_ns() + vv_net_patience_ns(n->net, id, GUESS_BYTES), ret_got,
                      &fd, &keep);
    if (rc == -EINPROGRESS) {
        g->flags |= VVI_GET_FETCH;
        rc = vvi_node_ask(n, id, g, w->deadline_ns, ret_got, &fd, &keep);
    }
    if (rc == 0 && ret_got->what == VVI_GOT_SAME)
        rc = take_same(w, id, g, ret_got);
    else if (rc == 0 && ret_got->what == VVI_GOT_FILE)
        take_file(w, ret_got, fd, keep);
    return rc;
}

static int pass_why(const struct want *w, int why)
{
    if (why == -EFBIG)
        COUNT(w, passed_large);
    else if (why == -ENOSPC)
        COUNT(w, passed_full);
    else if (why == -ETIMEDOUT)
        COUNT(w, passed_late);
    else if (why == -EINPROGRESS)
        COUNT(w, passed_behind);
    else if (why == -ENOTCONN)
        COUNT(w, passed_fenced);
    else if (why == -EAGAIN || why == -ETXTBSY)
        COUNT(w, passed_changing);
    else if (why == -ENOENT || why == -ENOTDIR || why == -EISDIR)
        COUNT(w, passed_missing);
    else if (why == -EACCES || why == -EPERM || why == -ELOOP)
        COUNT(w, passed_denied);
    else
        COUNT(w, passed_error);
    return why;
}

/* 1: done; 0: not yet; negative: the caller reads the shared file system. */
static int take(struct want *w, const struct vvi_got *got)
{
    if (got->what == VVI_GOT_PASS)
        return pass_why(w, got->why < 0 ? got->why : -EIO);
    return got->what != VVI_GOT_AT;
}

/* Asks the home, and the node that it names. 1, 0, negative as above; *ret_rc: the reason for 0. */
static int try_home(struct want *w, uint64_t home, int *ret_rc)
{
    struct vvi_get g = {.flags = VVI_GET_HOME | (w->stat ? VVI_GET_STAT : 0), .path = w->path};
    struct vvi_got got;
    int rc = 0;

    for (int i = 0; i < 2; i++) {
        struct vvi_get held = {.flags = w->stat ? VVI_GET_STAT : 0, .path = w->path};
        uint32_t flags = g.flags;

        rc = ask_node(w, home, &g, &got);
        g.flags = flags;
        if (rc < 0)
            break;
        if (got.what != VVI_GOT_AT)
            return take(w, &got);
        g.not_at = got.at;
        VVI_COUNT(w->n, hops);
        rc = ask_node(w, got.at, &held, &got);
        if (rc < 0)
            break;
        /* The node leaves, or is cut off: the home has to find another place. A node that is only silent may have the
         * file, and another place would fetch it a second time: so membership decides. */
        if (got.what != VVI_GOT_PASS || got.why != -ENOTCONN)
            return take(w, &got);
        rc = -EAGAIN;
    }
    *ret_rc = rc;
    return 0;
}

/* With replicas, asks the next nodes in order, which may have a copy. Returns as try_home does. */
static int try_others(struct want *w, const struct vvi_view *v, uint64_t home)
{
    uint32_t nodes[VV_PLACE_REPLICAS_MAX], nr;
    struct vvi_got got;

    nr = vv_place_owners(v->place, vv_place_key(w->path, strlen(w->path)), v->up,
                         w->n->opts.replicas, nodes);
    for (uint32_t i = 0; i < nr; i++) {
        struct vvi_get g = {.flags = VVI_GET_ONLY | (w->stat ? VVI_GET_STAT : 0), .path = w->path};
        uint64_t id = v->rows[nodes[i]].info.id;

        if (id == home || ask_node(w, id, &g, &got) < 0 || got.what == VVI_GOT_PASS)
            continue;
        VVI_COUNT(w->n, second);
        return 1;
    }
    return 0;
}

/* True if a retry may help; for example, a file that does not fit now does not fit later either. */
static bool may_change(int rc)
{
    return vvi_node_ask_is_silence(rc) || rc == -EAGAIN || rc == -ESTALE || rc == -EBUSY ||
           rc == -EALREADY || rc == -EINPROGRESS || rc == -ENOENT || rc == -ESHUTDOWN;
}

/* One round. 1: done; 0: try again, with *ret_rc; negative: the caller reads the shared file system. */
static int try_once(struct want *w, const struct vvi_view *v, int *ret_rc)
{
    struct vv_node *n = w->n;
    uint32_t home = vvi_node_view_home(n, v, w->path);
    uint64_t id;
    int done;

    if (atomic_load(&n->draining)) {
        COUNT(w, passed_leaving);
        return -ENOTCONN;
    }
    if (v->fenced || home == VV_PLACE_NONE) {
        COUNT(w, passed_fenced);
        return -ENOTCONN;
    }
    if (!vvi_node_view_up(v, home)) {
        COUNT(w, passed_redirect);
        return -ENOTCONN;
    }
    id = v->rows[home].info.id;
    done = try_home(w, id, ret_rc);
    if (done == 0 && n->opts.replicas > 1 && vvi_node_ask_is_silence(*ret_rc))
        done = try_others(w, v, id);
    if (done == 0 && !may_change(*ret_rc))
        return pass_why(w, *ret_rc);
    return done;
}

/* Waits before a retry. False: the time is over. */
static bool wait_for_better(struct want *w, uint64_t epoch, int rc)
{
    uint64_t now_ns = vv_now_ns();

    if (now_ns >= w->give_up_ns || atomic_load(&w->n->closing))
        return false;
    VVI_COUNT(w->n, retried);
    /* For a silent node, wait until membership decides. Other reasons may be over in a moment. */
    if (vvi_node_ask_is_silence(rc))
        (void)vvi_node_view_wait(w->n, epoch, VV_MIN(w->give_up_ns, now_ns + 20 * PAUSE_NS));
    else
        (void)vvi_node_view_wait(w->n, epoch, VV_MIN(w->give_up_ns, now_ns + PAUSE_NS));
    return true;
}

static int find(struct want *w)
{
    for (;;) {
        struct vvi_view *v = vvi_node_view_get(w->n);
        uint64_t epoch = v->epoch;
        int rc = 0, done = try_once(w, v, &rc);

        vvi_node_view_put(v);
        if (done)
            return done < 0 ? done : 0;
        if (!wait_for_better(w, epoch, rc)) {
            COUNT(w, passed_late);
            return -ETIMEDOUT;
        }
    }
}

/* ---- answers without waiting ---- */

/* Looks only at this node. 0: found; -EAGAIN: it would have to wait. */
static int find_now(struct want *w)
{
    struct vv_node *n = w->n;
    struct vvi_view *v = vvi_node_view_get(n);
    bool off = v->fenced || atomic_load(&n->draining);

    vvi_node_view_put(v);
    if (off)
        return -EAGAIN;
    if (w->stat)
        return vv_owner_stat_now(n->owner, w->path, &w->st, NULL);
    if (vv_owner_get_now(n->owner, w->path, &w->fd, &w->st, NULL) == 0) {
        vvi_node_ahead_used(n, w->path);
        COUNT(w, local);
        return 0;
    }
    if (vvi_node_memory_get(n, w->path, &w->fd, &w->st) == 0) {
        COUNT(w, memory);
        return 0;
    }
    return -EAGAIN;
}

/* If several programs ask for the same file of another node at once, it is transferred once. */
static int find_together(struct want *w)
{
    uint64_t home;
    int rc;

    if (vvi_node_behind_is(w->n, w->path))
        return pass_why(w, -EINPROGRESS);
    if (w->stat || vv_node_home(w->n, w->path, &home) < 0 || home == w->n->id)
        return find(w);
    while (!vvi_node_memory_fly(w->n, w->path, w->deadline_ns)) {
        if (find_now(w) == 0)
            return 0;
        if (vv_now_ns() >= w->deadline_ns)
            return pass_why(w, -ETIMEDOUT);
    }
    rc = find(w);
    vvi_node_memory_land(w->n, w->path);
    return rc;
}

/* The device of a file that another node has checked: that of its root. */
uint64_t vvi_node_dev(const struct vv_node *n, const char *path)
{
    for (size_t i = 0; i < n->nr_roots; i++) {
        const char *root = n->roots[i].resolved;
        size_t length = strlen(root);

        /* The root "/" ends in a slash, others are followed by one. */
        if (strncmp(path, root, length) == 0 &&
            (root[length - 1] == '/' || path[length] == '/' || path[length] == '\0'))
            return n->roots[i].dev;
    }
    return 0;
}

/* True if the error is about the other nodes, and not about the file or the store. */
static bool is_of_nodes(struct want *w, int rc)
{
    uint64_t home;

    if (rc == -ENOTCONN)
        return true;
    if (vv_node_home(w->n, w->path, &home) == 0 && home == w->n->id)
        return false;
    return rc == -ENOSPC || (may_change(rc) && rc != -ENOENT && rc != -EACCES);
}

/* Gets a file of an object store. With `now` it does not wait: -EAGAIN. */
static int find_sole(struct want *w, bool now)
{
    struct vv_node *n = w->n;
    int rc;

    if (w->stat)
        return now ? -EAGAIN : vv_owner_stat(n->owner, w->path, w->deadline_ns, &w->st);
    rc = now ? -EAGAIN : find_together(w);
    if (now || rc == 0 || !is_of_nodes(w, rc))
        return rc;
    rc = vv_owner_get(n->owner, w->path, w->deadline_ns, &w->fd, &w->st);
    if (rc == 0)
        COUNT(w, local);
    return rc == -EAGAIN ? -EBUSY : rc;
}

static int answer(struct vv_node *n, const struct vv_server_ask *ask, bool stat, int *ret_fd,
                  struct vv_shared_stat *ret_stat)
{
    char path[VV_DATASET_PATH_MAX + 1];
    uint64_t now_ns = vv_now_ns();
    struct want w = {.n = n,
                     .path = path,
                     .stat = stat,
                     .deadline_ns = ask->deadline_ns,
                     .give_up_ns = VV_MIN(ask->deadline_ns, now_ns + n->opts.patience_ns),
                     .fd = -1};
    int rc = vvi_node_path(n, ask->path, path);
    bool waited;

    if (rc < 0)
        return rc;
    rc = find_now(&w);
    waited = rc == -EAGAIN && !ask->now;
    if (rc == -EAGAIN && vvi_node_is_sole(n, path))
        rc = find_sole(&w, ask->now);
    else if (waited)
        rc = find_together(&w);
    if (rc == 0 && ask->nofollow && !w.st.direct) {
        if (w.fd >= 0)
            close(w.fd);
        VVI_COUNT(n, passed_link);
        return -ELOOP;
    }
    if (rc < 0)
        return rc;
    if (w.st.dev == 0)
        w.st.dev = vvi_node_dev(n, path);
    *ret_stat = w.st;
    if (stat) {
        VVI_COUNT(n, stats);
    } else {
        *ret_fd = w.fd;
        VVI_COUNT(n, opens);
        vvi_node_ahead_opened(n, path, waited);
    }
    return 0;
}

/* ---- before they are asked for ---- */

/* A file on its way. Its path is in the table of flights, so that a program that asks for the file waits for this
 * transfer. */
struct coming {
    struct want w;
    struct vvi_get g;
    struct vvi_asked asked;
    bool flies, started;
};

static void start_ahead(struct coming *c, const struct vvi_view *v)
{
    struct vv_node *n = c->w.n;
    uint32_t home = vvi_node_view_home(n, v, c->w.path);
    struct vv_dataset_gen gen;
    bool verified;

    if (vv_dataset_peek(n->cache, c->w.path, &gen, &verified) == 0 ||
        vvi_node_memory_awaits(n, c->w.path, c->w.place) || vvi_node_memory_flies(n, c->w.path) ||
        !vvi_node_memory_fly(n, c->w.path, c->w.deadline_ns))
        return;
    c->flies = true;
    if (home == VV_PLACE_NONE || home == v->self || !vvi_node_view_up(v, home))
        return;
    c->w.changes = vv_owner_changes(n->owner, c->w.path);
    c->g = (struct vvi_get){.flags = VVI_GET_HOME, .load = vvi_node_load(n), .path = c->w.path};
    c->started = vvi_node_ask_start(
                     n, v->rows[home].info.id, &c->g,
                     vv_now_ns() + vv_net_patience_ns(n->net, v->rows[home].info.id, GUESS_BYTES),
                     &c->asked) == 0;
}

/* Takes the answer. False: its home does not have the file yet. */
static bool finish_ahead(struct coming *c)
{
    struct vvi_got got;
    int fd = -1, keep = -1;
    int rc = c->started ? vvi_node_ask_finish(c->w.n, &c->asked, &got, &fd, &keep) : -EAGAIN;

    if (rc == 0 && got.what == VVI_GOT_FILE)
        take_file(&c->w, &got, fd, keep);
    if (c->w.fd >= 0)
        close(c->w.fd);
    if (c->flies)
        vvi_node_memory_land(c->w.n, c->w.path);
    return c->w.fd >= 0;
}

/* Sends the request as for a program; it may take long. */
static bool find_ahead(struct coming *c)
{
    bool here = find_together(&c->w) == 0;

    if (here)
        close(c->w.fd);
    return here;
}

int vvi_node_get_ahead(struct vv_node *n, unsigned nr, const char *const *paths,
                       const uint64_t *places)
{
    uint64_t until_ns = vv_now_ns() + n->opts.patience_ns;
    struct vvi_view *v = vvi_node_view_get(n);
    struct coming coming[VVI_NODE_TOGETHER];
    bool off = v->fenced || atomic_load(&n->draining);
    int here = 0;

    for (unsigned i = 0; i < nr && !off; i++) {
        coming[i] = (struct coming){.w = {.n = n,
                                          .path = paths[i],
                                          .deadline_ns = until_ns,
                                          .give_up_ns = until_ns,
                                          .ahead = true,
                                          .place = places[i],
                                          .fd = -1}};
        start_ahead(&coming[i], v);
    }
    vvi_node_view_put(v);
    for (unsigned i = 0; i < nr && !off; i++) {
        bool done = finish_ahead(&coming[i]);

        here += done;
        coming[i].flies = coming[i].flies && !done;
    }
    /* Only now wait for files that their homes have to fetch first: a program that wants one of the other files must
     * not wait for these. */
    for (unsigned i = 0; i < nr && !off; i++)
        here += coming[i].flies && find_ahead(&coming[i]);
    return off ? -ENOTCONN : here;
}

int vv_node_get(struct vv_node *n, const struct vv_server_ask *ask, int *ret_fd,
                struct vv_shared_stat *ret_stat)
{
    return answer(n, ask, false, ret_fd, ret_stat);
}

int vv_node_stat(struct vv_node *n, const struct vv_server_ask *ask,
                 struct vv_shared_stat *ret_stat)
{
    return answer(n, ask, true, NULL, ret_stat);
}

/* ---- writing ---- */

/* Sends the change to all other nodes at once, and waits for all; any may have a copy. */
static int drop_everywhere(struct vv_node *n, const struct vvi_view *v,
                           const struct vv_owner_change *c, uint64_t deadline_ns)
{
    struct vv_net_call **call = calloc(v->nr, sizeof(struct vv_net_call *));
    uint8_t body[VVI_PEER_BODY_MAX];
    struct vvi_pack p = {.buf = body, .max = sizeof(body)};
    uint64_t limit_ns = VV_MIN(deadline_ns, vv_now_ns() + n->opts.patience_ns / 4);
    int rc = call ? 0 : -ENOMEM;

    vvi_wire_put_path(&p, c->path);
    vvi_wire_put(&p, (c->tree ? VVI_DROP_TREE : 0) | (c->begins ? VVI_DROP_BEGINS : 0), 1);
    vvi_wire_put(&p, c->inode, 8);
    for (uint32_t i = 0; i < v->nr && call; i++) {
        struct vv_net_ask ask = VV_NET_ASK_INIT;

        if (i == v->self || !vvi_node_view_up(v, i))
            continue;
        ask.peer = v->rows[i].info.id;
        ask.type = VVI_PEER_DROP;
        ask.flags = VV_NET_ANY_EPOCH;
        ask.body = body;
        ask.body_bytes = p.at;
        ask.deadline_ns = limit_ns;
        if (vv_net_start(n->net, &ask, &call[i]) < 0) {
            call[i] = NULL;
            rc = -ETIMEDOUT;
        }
    }
    for (uint32_t i = 0; i < v->nr && call; i++) {
        struct vv_net_answer a;

        if (call[i] && (vv_net_wait(call[i], limit_ns + VV_NS_PER_S, &a) < 0 || a.status < 0))
            rc = -ETIMEDOUT;
        vv_net_end(call[i]);
    }
    free(call);
    return rc;
}

static void drop_one(void *user, const char *path)
{
    vvi_node_memory_drop(user, path);
    vvi_node_home_forget(user, path);
}

void vvi_node_drop(struct vv_node *n, const struct vv_owner_change *c)
{
    vv_owner_change(n->owner, c, drop_one, n);
}

int vv_node_change(struct vv_node *n, const struct vv_owner_change *c, uint64_t deadline_ns)
{
    char path[VV_DATASET_PATH_MAX + 1];
    int rc = vvi_node_path(n, c->path, path);
    struct vv_owner_change here = *c;
    struct vvi_view *v;

    if (rc < 0)
        return rc;
    here.path = path;
    vvi_node_drop(n, &here);
    if (!c->begins)
        VVI_COUNT(n, invalidated);
    v = vvi_node_view_get(n);
    if (n->net)
        rc = drop_everywhere(n, v, &here, deadline_ns);
    vvi_node_view_put(v);
    return rc;
}

int vv_node_invalidate(struct vv_node *n, const char *path, uint64_t deadline_ns)
{
    return vv_node_change(n, &(struct vv_owner_change){.path = path}, deadline_ns);
}

/* ---- the server ---- */

static int door_open(void *user, const struct vv_server_ask *ask, int *ret_fd,
                     struct vv_server_stat *ret_stat)
{
    struct vv_shared_stat st;
    int rc = vv_node_get(user, ask, ret_fd, &st);

    if (rc == 0)
        vv_shared_stat_to_wire(&st, ret_stat);
    return rc;
}

static bool in_group(uint32_t gid)
{
    gid_t groups[256];
    int nr = getgroups((int)VV_ARRAY_SIZE(groups), groups);

    if (gid == getegid())
        return true;
    for (int i = 0; i < nr; i++)
        if (groups[i] == gid)
            return true;
    return false;
}

/* Checks the mode bits only. Access control lists are left to the shared file system. */
static bool is_readable(const struct vv_shared_stat *st)
{
    if (geteuid() == 0)
        return true;
    if (st->uid == geteuid())
        return st->mode & S_IRUSR;
    return st->mode & (in_group(st->gid) ? S_IRGRP : S_IROTH);
}

static int door_stat(void *user, const struct vv_server_ask *ask, struct vv_server_stat *ret_stat,
                     bool *ret_readable)
{
    struct vv_shared_stat st;
    int rc = vv_node_stat(user, ask, &st);

    if (rc == -EISDIR)
        return vvi_node_folder_stat(user, ask->path, ret_stat, ret_readable);
    if (rc < 0)
        return rc;
    vv_shared_stat_to_wire(&st, ret_stat);
    *ret_readable = is_readable(&st);
    return 0;
}

static int door_invalidate(void *user, const struct vv_server_ask *ask)
{
    /* The other nodes are asked, which takes time. */
    if (ask->now)
        return -EAGAIN;
    return vv_node_change(
        user,
        &(struct vv_owner_change){
            .path = ask->path, .inode = ask->inode, .tree = ask->tree, .begins = ask->begins},
        ask->deadline_ns);
}

static int door_list(void *user, const struct vv_server_ask *ask, int *ret_fd,
                     struct vv_server_stat *ret_stat)
{
    return ask->now ? -EAGAIN : vv_node_list(user, ask, ret_fd, ret_stat);
}

const struct vv_server_ops vv_node_server_ops = {door_open, door_stat, door_invalidate, door_list};

void vv_node_show(void *user, const char *given)
{
    char path[VV_DATASET_PATH_MAX + 1];
    struct vv_node *n = user;

    if (vvi_node_path(n, given, path) == 0)
        vv_owner_show(n->owner, path, given, vvi_node_dev(n, path));
}
