/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node: it connects the parts, and keeps the view of the nodes.
 *
 * Membership (gossip.h) reports which nodes are up. From that a *view* with a placement map is made. It is immutable,
 * and a thread keeps one view for the whole of a request. A new view takes effect before any other work on the change
 * begins. Then the keeper, a thread of its own, asks the other nodes which files they hold whose home is now this node
 * (node_home.c). It starts again when the view changes once more.
 *
 * Closing: first the net is stopped, which ends all calls that wait for other nodes; then the queues, the keeper and
 * the threads that bring files ahead; then their data is freed.
 *
 * Locks: each part has a lock of its own. None is held while another part is called, or across a call of the cache, the
 * owner, the net or the shared file system.
 */
#include "dataset/node.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "dataset/node_private.h"

#define PATIENCE_NS (4 * VV_NS_PER_S)
#define WORKERS     32
#define AHEAD       4
#define MIB_SHIFT   20
#define NAMED_MAX   8
#define FENCE_MAX   (60 * VV_NS_PER_S)
#define NAMED_BYTES (NAMED_MAX * (VV_MEMBER_NAME_MAX + 2) + 48)

bool vvi_same_gen(const struct vv_dataset_gen *a, const struct vv_dataset_gen *b)
{
    return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
           a->inode == b->inode;
}

uint64_t vvi_node_load(struct vv_node *n)
{
    return vv_dataset_load(n->cache);
}

/* ---- views ---- */

static void view_free(struct vvi_view *v)
{
    vv_place_free(v->place);
    free(v->up);
    free(v->rows);
    free(v);
}

struct vvi_view *vvi_node_view_get(struct vv_node *n)
{
    struct vvi_view *v;

    vv_mutex_lock(&n->lock);
    v = n->view;
    atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    vv_mutex_unlock(&n->lock);
    return v;
}

void vvi_node_view_put(struct vvi_view *v)
{
    /* Release: this thread's reads come before the end of its reference. Acquire: all other threads' reads do too. */
    if (v && atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) == 1)
        view_free(v);
}

uint32_t vvi_node_view_find(const struct vvi_view *v, uint64_t id)
{
    for (uint32_t i = 0; i < v->nr; i++)
        if (v->rows[i].info.id == id)
            return i;
    return VV_PLACE_NONE;
}

uint32_t vvi_node_view_home(const struct vv_node *n, const struct vvi_view *v, const char *path)
{
    return vv_place_owner(v->place, vv_place_key(path, strlen(path)),
                          n->opts.mode == VV_NODE_REDIRECT ? NULL : v->up);
}

bool vvi_node_view_wait(struct vv_node *n, uint64_t epoch, uint64_t until_ns)
{
    bool other;
    int rc = 0;

    vv_mutex_lock(&n->lock);
    while (n->view->epoch == epoch && !n->stop && rc == 0)
        rc = vv_cond_wait_until(&n->changed, &n->lock, until_ns);
    other = n->view->epoch != epoch;
    vv_mutex_unlock(&n->lock);
    return other;
}

static int place_rows(const struct vv_node *n, struct vvi_view *v)
{
    struct vv_place_opts opts = n->opts.place;
    struct vv_place_node *nodes = calloc(v->nr, sizeof(*nodes));
    int rc;

    if (!nodes)
        return -ENOMEM;
    opts.ring_unit = 1;
    for (uint32_t i = 0; i < v->nr; i++) {
        uint64_t weight = v->rows[i].info.weight >> MIB_SHIFT;

        /* The points of a ring must not depend on the other nodes, and so not on a mean weight. */
        if (opts.scheme == VV_PLACE_RING || opts.scheme == VV_PLACE_MOD || weight == 0)
            weight = 1;
        nodes[i] = (struct vv_place_node){v->rows[i].info.id, weight};
    }
    rc = vv_place_new(&opts, nodes, v->nr, &v->place);
    free(nodes);
    return rc;
}

/* Takes ownership of the rows. */
static int view_new(const struct vv_node *n, uint64_t epoch, bool fenced,
                    struct vv_member_row *rows, size_t nr, struct vvi_view **ret_view)
{
    struct vvi_view *v = calloc(1, sizeof(*v));
    int rc = v ? 0 : -ENOMEM;

    if (!v) {
        free(rows);
        return -ENOMEM;
    }
    atomic_init(&v->refs, 1);
    v->epoch = epoch;
    v->fenced = fenced;
    v->nr = (uint32_t)nr;
    v->rows = rows;
    v->up = calloc(vv_place_set_words(v->nr), sizeof(*v->up));
    v->self = vvi_node_view_find(v, n->id);
    if (!v->up)
        rc = -ENOMEM;
    if (rc == 0)
        rc = place_rows(n, v);
    if (rc < 0) {
        view_free(v);
        return rc;
    }
    for (uint32_t i = 0; i < v->nr; i++)
        if (rows[i].state == VV_MEMBER_ALIVE || rows[i].state == VV_MEMBER_SUSPECT)
            vv_place_set_add(v->up, i);
    *ret_view = v;
    return 0;
}

/* True if files have the same homes in both views. */
static bool same_nodes(const struct vvi_view *a, const struct vvi_view *b)
{
    return a->nr == b->nr && memcmp(a->up, b->up, vv_place_set_words(a->nr) * 8) == 0 &&
           a->fenced == b->fenced && a->epoch == b->epoch;
}

/* Replaces the view in any case, so that status shows the latest suspicions. Work starts only if homes have changed. */
static void set_view(struct vv_node *n, struct vvi_view *v)
{
    struct vvi_view *old;

    vv_mutex_lock(&n->lock);
    old = n->view;
    n->view = v;
    if (!old || !same_nodes(old, v)) {
        n->settle = true;
        vv_cond_broadcast(&n->changed);
        VVI_COUNT(n, views);
        /* Direct opens by clients are forbidden in the same cases. */
        if (n->opts.dataset.index)
            vv_index_enable(n->opts.dataset.index, !v->fenced && !atomic_load(&n->draining));
    }
    vv_mutex_unlock(&n->lock);
    vvi_node_view_put(old);
    vv_mutex_lock(&n->home.lock);
    vv_cond_broadcast(&n->home.pulled);
    vv_mutex_unlock(&n->home.lock);
}

static bool was_up(const struct vvi_view *old, uint64_t id)
{
    uint32_t i = old ? vvi_node_view_find(old, id) : VV_PLACE_NONE;

    return i != VV_PLACE_NONE && vvi_node_view_up(old, i);
}

/* Names the first few nodes that came, or went. */
static void name_some(const struct vvi_view *old, const struct vvi_view *v, bool come, char *buf,
                      size_t size)
{
    size_t at = 0;
    unsigned nr = 0;

    buf[0] = '\0';
    for (uint32_t i = 0; i < v->nr; i++) {
        if (vvi_node_view_up(v, i) != come || was_up(old, v->rows[i].info.id) == come ||
            i == v->self)
            continue;
        if (nr++ < NAMED_MAX)
            at += (size_t)snprintf(buf + at, size - at, "%s%s",
                                   nr == 1 ? (come ? "; up: " : "; lost: ") : ", ",
                                   v->rows[i].info.name);
    }
    if (nr > NAMED_MAX)
        snprintf(buf + at, size - at, " and %u more", nr - NAMED_MAX);
}

static void tell_view(const struct vvi_view *old, const struct vvi_view *v)
{
    char came[NAMED_BYTES], went[NAMED_BYTES];
    const char *fence = "";
    uint32_t up = 0;

    for (uint32_t i = 0; i < v->nr; i++)
        up += vvi_node_view_up(v, i);
    name_some(old, v, true, came, sizeof(came));
    name_some(old, v, false, went, sizeof(went));
    if (v->fenced)
        fence = "; this one is cut off from most: its programs read the shared file system";
    else if (old && old->fenced && came[0] == '\0')
        fence = "; this one goes on without the others";
    vv_log(VV_LOG_INFO, "epoch %llu: %u of %u nodes are up%s%s%s", (unsigned long long)v->epoch, up,
           v->nr, came, went, fence);
}

/* True if a known node is back, or this node is back among the others: reports of changes may have been lost. A node
 * that was out of reach for a moment hears that it was suspected or dead, and refutes that with a new life or
 * refutation. */
static bool has_healed(const struct vvi_view *old, const struct vvi_view *v)
{
    bool healed = old && old->fenced && !v->fenced;

    for (uint32_t i = 0; old && i < v->nr && !healed; i++) {
        const struct vv_member_row *row = &v->rows[i];
        uint32_t was = vvi_node_view_find(old, row->info.id);

        /* Life 0: it is on a list, and was never reached. */
        healed = was != VV_PLACE_NONE && old->rows[was].life != 0 && vvi_node_view_up(v, i) &&
                 (!vvi_node_view_up(old, was) || row->life != old->rows[was].life ||
                  row->refutation != old->rows[was].refutation);
    }
    return healed;
}

/* Has all files checked again: with revalidate 0 nothing else causes a check. */
static void doubt_all(struct vv_node *n)
{
    vv_owner_doubt(n->owner);
    vvi_node_memory_drop_all(n);
}

/* Called on the thread of the gossip. */
static void members_changed(void *user)
{
    struct vv_node *n = user;
    struct vv_gossip_view *g;
    struct vv_member_row *rows;
    struct vvi_view *v, *old;

    if (vv_gossip_view(n->gossip, &g) < 0)
        return;
    rows = calloc(g->nr ? g->nr : 1, sizeof(*rows));
    if (rows) {
        size_t nr = 0;

        for (size_t i = 0; i < g->nr; i++)
            if (g->rows[i].state != VV_MEMBER_FORGOTTEN)
                rows[nr++] = g->rows[i];
        if (view_new(n, g->epoch, g->fenced, rows, nr, &v) == 0) {
            old = vvi_node_view_get(n);
            if (!same_nodes(old, v))
                tell_view(old, v);
            if (n->opts.revalidate_ns == 0 && has_healed(old, v))
                doubt_all(n);
            vvi_node_view_put(old);
            set_view(n, v);
        }
    }
    free(g);
}

static int alone(struct vv_node *n)
{
    struct vv_member_row *row = calloc(1, sizeof(*row));
    struct vvi_view *v;
    int rc;

    if (!row)
        return -ENOMEM;
    row->info.id = n->id;
    row->info.weight = n->opts.dataset.capacity;
    snprintf(row->info.name, sizeof(row->info.name), "%s", n->name);
    row->state = VV_MEMBER_ALIVE;
    rc = view_new(n, 0, false, row, 1, &v);
    if (rc == 0)
        set_view(n, v);
    return rc;
}

static void *keep(void *arg)
{
    struct vv_node *n = arg;

    for (;;) {
        vv_mutex_lock(&n->lock);
        while (!n->settle && !n->stop)
            vv_cond_wait(&n->changed, &n->lock);
        n->settle = false;
        if (n->stop) {
            vv_mutex_unlock(&n->lock);
            return NULL;
        }
        vv_mutex_unlock(&n->lock);
        vvi_node_home_settle(n);
    }
}

/* ---- paths ---- */

static bool is_below(const char *path, const char *root)
{
    size_t n = strlen(root);

    return strncmp(path, root, n) == 0 && (root[n - 1] == '/' || path[n] == '/');
}

bool vvi_node_is_sole(const struct vv_node *n, const char *path)
{
    return n->shared->sole && n->shared->sole(n->shared, path);
}

int vvi_node_path(const struct vv_node *n, const char *path, char *ret_path)
{
    for (size_t i = 0; i < n->nr_roots; i++) {
        const struct vvi_root *r = &n->roots[i];
        const char *rest = path;
        int length;

        if (is_below(path, r->resolved) || (r->sole && strcmp(path, r->resolved) == 0))
            length = snprintf(ret_path, VV_DATASET_PATH_MAX + 1, "%s", path);
        else if (is_below(path, r->given)) {
            rest = path + strlen(r->given);
            length = snprintf(ret_path, VV_DATASET_PATH_MAX + 1, "%s%s", r->resolved, rest);
        } else
            continue;
        if (length > (int)VV_DATASET_PATH_MAX)
            return -ENAMETOOLONG;
        if (!r->sole)
            return 0;
        /* An object store has no links, so each file can have one name. */
        vv_root_clean(ret_path);
        if (is_below(ret_path, r->resolved) || strcmp(ret_path, r->resolved) == 0)
            return 0;
        if (strcmp(ret_path, "/") != 0 && !is_below(r->resolved, ret_path))
            return -EINVAL;
        /* A path above the root has the root's text as its beginning, as "/" has. */
        snprintf(ret_path, VV_DATASET_PATH_MAX + 1, "%s", r->resolved);
        return 0;
    }
    return -EINVAL;
}

static int open_folder(struct vvi_root *r, char *err, size_t err_bytes)
{
    struct stat st;

    r->resolved = realpath(r->given, NULL);
    if (!r->resolved || stat(r->resolved, &st) < 0) {
        int rc = -errno;

        snprintf(err, err_bytes, "roots: %s: %s", r->given, strerror(-rc));
        return rc;
    }
    if (!S_ISDIR(st.st_mode)) {
        snprintf(err, err_bytes, "roots: %s is not a folder", r->given);
        return -ENOTDIR;
    }
    r->dev = (uint64_t)st.st_dev;
    return 0;
}

static int open_roots(struct vv_node *n, char *err, size_t err_bytes)
{
    int rc = 0;

    n->roots = calloc(n->opts.nr_roots, sizeof(*n->roots));
    if (!n->roots) {
        snprintf(err, err_bytes, "roots: %s", strerror(ENOMEM));
        return -ENOMEM;
    }
    for (size_t i = 0; i < n->opts.nr_roots && rc == 0; i++) {
        struct vvi_root *r = &n->roots[n->nr_roots];
        struct vv_root root;

        rc = vv_root_parse(n->opts.roots[i], &root, err, err_bytes);
        if (rc < 0)
            break;
        n->nr_roots++;
        r->given = root.path;
        root.path = NULL;
        r->sole = root.url != NULL;
        if (r->sole) {
            r->dev = vv_root_dev(&root);
            r->resolved = strdup(r->given);
            rc = r->resolved ? 0 : -ENOMEM;
        } else {
            rc = open_folder(r, err, err_bytes);
        }
        vv_root_fini(&root);
    }
    return rc;
}

/* ---- opening and closing ---- */

static void net_peer(void *user, uint64_t peer, enum vv_net_change change, int err)
{
    struct vv_node *n = user;

    (void)err;
    vv_gossip_peer(n->gossip, peer, change);
}

static void net_epoch(void *user, uint64_t from, uint64_t epoch)
{
    struct vv_node *n = user;

    (void)epoch;
    vv_gossip_epoch(n->gossip, from);
}

static void net_message(void *user, const struct vv_net_msg *m)
{
    struct vv_node *n = user;

    if (m->type == VV_GOSSIP_TYPE)
        vv_gossip_message(n->gossip, m);
    else
        vvi_node_serve_message(n, m);
}

/* Distinguishes this life of the node from earlier ones. */
static uint32_t life(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint32_t)ts.tv_sec;
}

/* The address for other nodes. A missing port becomes the port of the net. NULL: the address that it listens on. */
static const char *advertised(struct vv_node *n, char *buf, size_t size)
{
    const char *given = n->opts.advertise, *last = given ? strrchr(given, ':') : NULL;
    const char *port = strrchr(vv_net_addr(n->net), ':');

    if (!given || !*given)
        return NULL;
    /* "host:7000" and "[fe80::1]:7000" have a port; "host", "fe80::1" and "[fe80::1]" have none. */
    if (last && (last == strchr(given, ':') || last[-1] == ']'))
        return given;
    snprintf(buf, size, last && given[0] != '[' ? "[%s]%s" : "%s%s", given, port ? port : ":0");
    return buf;
}

static int open_net(struct vv_node *n, char *err, size_t err_bytes)
{
    struct vv_gossip_opts gossip = {.user = n, .changed = members_changed};
    struct vv_net_opts net = {
        .transport = n->opts.transport,
        .listen = n->opts.listen,
        .self = n->id,
        .token = n->opts.token,
        .token_bytes = n->opts.token_bytes,
        .events = {n, vvi_node_serve_request, net_message, net_peer, net_epoch},
    };
    const char *addr = NULL;
    int rc;

    gossip.member.self.id = n->id;
    gossip.member.self.weight = n->opts.dataset.capacity;
    snprintf(gossip.member.self.name, sizeof(gossip.member.self.name), "%s", n->name);
    gossip.member.life = life();
    gossip.member.seed = vv_now_ns() ^ n->id;
    gossip.member.period_ns = n->opts.period_ns;
    /* Unless `revalidate` is 0 or above FENCE_MAX, every check from before the link broke has expired when the fence
     * ends: so each file is checked again before it is handed out. */
    gossip.member.fence_ns = VV_MIN(n->opts.revalidate_ns, FENCE_MAX);
    rc = vv_gossip_new(&gossip, &n->gossip);
    if (rc == 0)
        rc = vv_net_open(&net, err, err_bytes, &n->net);
    if (rc == 0) {
        addr = advertised(n, n->addr, sizeof(n->addr));
        if (addr != n->addr)
            snprintf(n->addr, sizeof(n->addr), "%s", addr ? addr : vv_net_addr(n->net));
        rc = vv_gossip_start(n->gossip, n->net, n->addr);
    }
    for (size_t i = 0; i < n->opts.nr_peers && rc == 0; i++)
        rc = vv_node_add(n, &n->opts.peers[i]);
    return rc;
}

int vv_node_add(struct vv_node *n, const struct vv_member_info *info)
{
    struct vv_member_info peer = *info;
    int rc;

    peer.id = vv_place_node_id(peer.name);
    if (peer.id == n->id)
        return strcmp(peer.name, n->name) == 0 ? 0 : -EEXIST;
    if (!n->gossip)
        return -ENOTCONN;
    if (peer.weight == 0)
        peer.weight = n->opts.dataset.capacity;
    rc = vv_gossip_add(n->gossip, &peer);
    return rc == -EEXIST ? 0 : rc;
}

int vv_node_forget(struct vv_node *n, const char *name)
{
    uint64_t id = vv_place_node_id(name);

    if (id == n->id)
        return -EINVAL;
    return n->gossip ? vv_gossip_forget(n->gossip, id) : -ENOENT;
}

static int open_parts(struct vv_node *n, char *err, size_t err_bytes)
{
    struct vv_owner_opts owner = {.revalidate_ns = n->opts.revalidate_ns,
                                  .wait_max = n->opts.direct_above,
                                  .brought = vvi_node_home_brought,
                                  .user = n};
    int rc = open_roots(n, err, err_bytes);

    if (rc < 0)
        return rc;
    rc = vv_shared_roots_new(n->opts.roots, n->opts.nr_roots, n->opts.revalidate_ns, err, err_bytes,
                             &n->shared);
    if (rc < 0)
        return rc;
    n->opts.dataset.evicted = vvi_node_ahead_again;
    n->opts.dataset.passed = vvi_node_ahead_passed;
    n->opts.dataset.user = n;
    rc = vv_dataset_open(n->opts.folder, &n->opts.dataset, err, err_bytes, &n->cache);
    if (rc < 0)
        return rc;
    owner.cache = n->cache;
    owner.shared = n->shared;
    rc = vv_owner_new(&owner, &n->owner);
    if (rc == 0)
        rc = alone(n);
    if (rc == 0)
        rc = vvi_node_ahead_start(&n->ahead);
    if (rc == 0 && n->opts.listen)
        rc = open_net(n, err, err_bytes);
    if (rc == 0 && n->net)
        rc = vvi_node_ahead_start(&n->mine);
    if (rc == 0)
        rc = vv_thread_start(&n->keeper, keep, n);
    n->has_keeper = rc == 0;
    return rc;
}

int vv_node_open(const struct vv_node_opts *opts, char *err, size_t err_bytes,
                 struct vv_node **ret_node)
{
    struct vv_node *n;
    int rc;

    if (err_bytes)
        err[0] = '\0';
    if (strlen(opts->name) == 0 || strlen(opts->name) > VV_MEMBER_NAME_MAX || opts->nr_roots == 0 ||
        opts->replicas > VV_PLACE_REPLICAS_MAX) {
        snprintf(err, err_bytes, "a node needs a name of at most %u characters, and a root",
                 VV_MEMBER_NAME_MAX);
        return -EINVAL;
    }
    n = calloc(1, sizeof(*n));
    if (!n)
        return -ENOMEM;
    n->opts = *opts;
    n->opts.replicas = VV_MAX(opts->replicas, 1u);
    n->opts.patience_ns = opts->patience_ns ? opts->patience_ns : PATIENCE_NS;
    n->opts.workers = opts->workers ? opts->workers : WORKERS;
    n->opts.ahead = opts->ahead ? opts->ahead : AHEAD;
    snprintf(n->name, sizeof(n->name), "%s", opts->name);
    n->id = vv_place_node_id(n->name);
    vv_mutex_init(&n->lock, "node", VV_RANK_STORE);
    vv_cond_init(&n->changed);
    vvi_node_home_init(n);
    vvi_node_memory_init(n);
    vvi_node_behind_init(n);
    (void)vvi_node_queue_start(n);
    vvi_node_ahead_init(n, &n->ahead);
    vvi_node_ahead_init(n, &n->mine);
    rc = open_parts(n, err, err_bytes);
    if (rc < 0) {
        if (err_bytes && !err[0])
            snprintf(err, err_bytes, "%s", strerror(-rc));
        vv_node_close(n);
        return rc;
    }
    *ret_node = n;
    return 0;
}

void vv_node_hurry(struct vv_node *n)
{
    atomic_store(&n->closing, true);
}

void vv_node_close(struct vv_node *n)
{
    if (!n)
        return;
    vv_node_hurry(n);
    vv_mutex_lock(&n->lock);
    n->stop = true;
    vv_cond_broadcast(&n->changed);
    vv_mutex_unlock(&n->lock);
    vv_mutex_lock(&n->home.lock);
    vv_cond_broadcast(&n->home.pulled);
    vv_mutex_unlock(&n->home.lock);
    if (n->gossip && !n->left)
        vv_gossip_stop(n->gossip, true);
    if (n->net)
        vv_net_stop(n->net);
    if (n->has_keeper)
        pthread_join(n->keeper, NULL);
    vv_owner_stop(n->owner);
    vvi_node_ahead_stop(&n->ahead);
    vvi_node_ahead_stop(&n->mine);
    vvi_node_queue_stop(n);
    vv_gossip_free(n->gossip);
    vv_net_free(n->net);
    vv_owner_free(n->owner);
    vv_dataset_close(n->cache);
    vv_shared_free(n->shared);
    vvi_node_home_fini(n);
    vvi_node_memory_fini(n);
    vvi_node_behind_fini(n);
    vvi_node_ahead_fini(&n->ahead);
    vvi_node_ahead_fini(&n->mine);
    vvi_node_view_put(n->settled);
    vvi_node_view_put(n->view);
    for (size_t i = 0; i < n->nr_roots; i++) {
        free(n->roots[i].given);
        free(n->roots[i].resolved);
    }
    free(n->roots);
    vv_cond_fini(&n->changed);
    vv_mutex_fini(&n->lock);
    free(n);
}

const char *vv_node_addr(const struct vv_node *n)
{
    return n->addr;
}

int vv_node_home(struct vv_node *n, const char *path, uint64_t *ret_id)
{
    struct vvi_view *v = vvi_node_view_get(n);
    char whole[VV_DATASET_PATH_MAX + 1];
    int rc = vvi_node_path(n, path, whole);
    uint32_t home = rc < 0 ? VV_PLACE_NONE : vvi_node_view_home(n, v, whole);

    if (home == VV_PLACE_NONE)
        rc = rc < 0 ? rc : -ENOENT;
    else
        *ret_id = v->rows[home].info.id;
    vvi_node_view_put(v);
    return rc;
}

bool vv_node_serves(const struct vv_node *n, const char *path)
{
    char whole[VV_DATASET_PATH_MAX + 1];

    return vvi_node_path(n, path, whole) == 0;
}

int vv_node_scrub(struct vv_node *n, uint64_t bytes, bool *ret_around)
{
    return vv_dataset_scrub(n->cache, bytes, ret_around);
}

/* A view is made only when homes change. The status also shows members that became suspect, or no longer are. */
static void take_suspects(struct vv_node *n, struct vv_node_status *s)
{
    struct vv_gossip_view *g;

    if (!n->gossip || vv_gossip_view(n->gossip, &g) < 0)
        return;
    /* Both are in the order of numbers. The view does not have nodes that came since. */
    for (size_t i = 0, k = 0; i < s->nr && k < g->nr; k++) {
        enum vv_member_state *state = &s->rows[i].member.state;

        if (g->rows[k].info.id != s->rows[i].member.info.id)
            continue;
        if (*state <= VV_MEMBER_SUSPECT && g->rows[k].state <= VV_MEMBER_SUSPECT)
            *state = g->rows[k].state;
        i++;
    }
    free(g);
}

int vv_node_status(struct vv_node *n, struct vv_node_status **ret_status)
{
    struct vvi_view *v = vvi_node_view_get(n);
    struct vv_node_status *s = calloc(1, sizeof(*s) + v->nr * sizeof(s->rows[0]));

    if (!s) {
        vvi_node_view_put(v);
        return -ENOMEM;
    }
    s->epoch = v->epoch;
    s->fenced = v->fenced;
    s->draining = atomic_load(&n->draining);
    s->waiting = vvi_node_ahead_waiting(&n->ahead) + vvi_node_ahead_waiting(&n->mine);
    vv_mutex_lock(&n->memory.lock);
    s->memory_files = n->memory.used.nr + n->memory.ahead.nr;
    s->memory_bytes = n->memory.used.bytes + n->memory.ahead.bytes;
    vv_mutex_unlock(&n->memory.lock);
    vv_mutex_lock(&n->home.lock);
    s->elsewhere = n->home.nr_elsewhere;
    vv_mutex_unlock(&n->home.lock);
#define X(name, help) s->counters.name = atomic_load_explicit(&n->count.name, memory_order_relaxed);
    VV_NODE_COUNTERS(X)
#undef X
    vv_dataset_stats(n->cache, &s->cache);
    s->counters.opens += s->cache.direct;
    s->counters.local += s->cache.direct;
    vv_owner_stats(n->owner, &s->owner);
    if (n->net)
        vv_net_stats(n->net, &s->net);
    s->nr = v->nr;
    for (uint32_t i = 0; i < v->nr; i++) {
        s->rows[i].member = v->rows[i];
        s->rows[i].self = i == v->self;
        s->rows[i].load =
            i == v->self ? vvi_node_load(n) : vvi_node_home_load_of(n, v->rows[i].info.id);
    }
    take_suspects(n, s);
    vvi_node_view_put(v);
    *ret_status = s;
    return 0;
}
