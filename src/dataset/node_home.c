/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The duties of a node as the home of files: it records where they are.
 *
 * A file is in this node's cache, or a record names the node that keeps it: because this home placed it there (its own
 * share was full), or because that node reported that it has it. A placement is decided once, and stays as long as
 * its node is up. Reports of other nodes are collected again with every view. Each change of the nodes makes some node
 * the home of files that it has no records of. This new home asks all others which of its files they hold (HOLD).
 * Requests for files without a record wait for the answers, but only a moment; after that the new home has the file
 * fetched from the shared file system. When a node comes back with a full disk, the homes of its files ask it, and it
 * learns what was fetched in its absence.
 *
 * With several copies, the node that fetched a file from the shared file system has the next nodes in the file's order
 * of nodes take copies (KEEP). When a view changes which nodes these are, the home has the new ones take copies. With
 * one copy the home sends the names to the next node (WILL), so that this one can fetch the files that it inherits
 * before a program asks for them.
 *
 * The record that a home has placed a file on itself is kept only until the file is there. Both tables have a limit
 * (TABLE_MAX). Above it a clock hand removes entries that were neither requested nor sent again since it last passed
 * them. A file without a record is fetched by its home on request, and so is a file whose will was removed.
 *
 * Every request and answer carries the sender's load. It may be old; then a node gets somewhat more than its share.
 *
 * home.lock protects tables and loads; no other part is called under it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "dataset/node_private.h"

#define LOAD_NS       (10 * VV_NS_PER_S) /* validity of a reported load */
#define PULL_LIMIT_NS (2 * VV_NS_PER_S)
#define PULL_WAIT_NS  (1500 * VV_NS_PER_MS)
#define PULL_SOON_NS  (200 * VV_NS_PER_MS)
#define PULL_AGAIN_NS (30 * VV_NS_PER_MS)
#define PULL_BYTES    ((size_t)256 << 20)
#define KEEP_LIMIT_NS (60 * VV_NS_PER_S)
#define WILL_BYTES    32768
#define TABLE_MAX     (1u << 20)
#define STEP          8 /* chains that a clock hand passes for one new entry */

struct will {
    struct vvi_path path;
    uint64_t from;
    bool recent; /* received since the clock hand passed it */
};

static void free_entry(struct vvi_path *e)
{
    free(e);
}

void vvi_node_home_init(struct vv_node *n)
{
    vv_mutex_init(&n->home.lock, "home", VV_RANK_STORE);
    vv_cond_init(&n->home.pulled);
    n->home.pulled_epoch = UINT64_MAX;
    n->home.max = TABLE_MAX;
}

void vvi_node_home_fini(struct vv_node *n)
{
    vvi_paths_fini(&n->home.records, free_entry);
    vvi_paths_fini(&n->home.wills, free_entry);
    free(n->home.loads);
    vv_cond_fini(&n->home.pulled);
    vv_mutex_fini(&n->home.lock);
}

/* ---- loads ---- */

static struct load *find_load_locked(const struct vvi_home *h, uint64_t id)
{
    for (size_t i = 0; i < h->nr_loads; i++)
        if (h->loads[i].id == id)
            return &h->loads[i];
    return NULL;
}

void vvi_node_home_load(struct vv_node *n, uint64_t id, uint64_t bytes)
{
    struct vvi_home *h = &n->home;
    struct load *l;

    vv_mutex_lock(&h->lock);
    l = find_load_locked(h, id);
    if (!l) {
        struct load *more = realloc(h->loads, (h->nr_loads + 1) * sizeof(*more));

        if (more) {
            h->loads = more;
            l = &more[h->nr_loads++];
            l->id = id;
        }
    }
    if (l) {
        l->bytes = bytes;
        l->heard_ns = vv_now_ns();
    }
    vv_mutex_unlock(&h->lock);
}

uint64_t vvi_node_home_load_of(struct vv_node *n, uint64_t id)
{
    struct load *l;
    uint64_t bytes;

    vv_mutex_lock(&n->home.lock);
    l = find_load_locked(&n->home, id);
    bytes = l ? l->bytes : 0;
    vv_mutex_unlock(&n->home.lock);
    return bytes;
}

/* ---- records ---- */

static void forget_locked(struct vv_node *n, struct vvi_record *r)
{
    n->home.nr_elsewhere -= r->holder != n->id;
    vvi_paths_remove(&n->home.records, &r->path);
    free(r);
}

static void pass_record(void *user, struct vvi_path *e)
{
    struct vvi_record *r = (struct vvi_record *)e;

    if (r->asked || r->fetching)
        r->asked = false;
    else
        forget_locked(user, r);
}

static struct vvi_record *record_locked(struct vv_node *n, const char *path, uint64_t holder,
                                        bool placed)
{
    struct vvi_home *h = &n->home;
    struct vvi_record *r = calloc(1, sizeof(*r));

    if (h->records.table.n >= h->max)
        h->record_hand = vvi_paths_step(&h->records, h->record_hand, STEP, pass_record, n);
    if (!r || vvi_paths_add(&n->home.records, path, &r->path) < 0) {
        free(r);
        return NULL;
    }
    r->holder = holder;
    r->placed = placed;
    r->asked = true;
    n->home.nr_elsewhere += holder != n->id;
    return r;
}

void vvi_node_home_forget(struct vv_node *n, const char *path)
{
    struct vvi_record *r;

    vv_mutex_lock(&n->home.lock);
    r = vvi_paths_find(&n->home.records, path);
    if (r)
        forget_locked(n, r);
    vv_mutex_unlock(&n->home.lock);
}

void vvi_node_home_decided(struct vv_node *n, const char *path)
{
    struct vvi_record *r;

    vv_mutex_lock(&n->home.lock);
    r = vvi_paths_find(&n->home.records, path);
    if (r && r->holder == n->id && !r->fetching)
        forget_locked(n, r);
    vv_mutex_unlock(&n->home.lock);
}

uint64_t vvi_node_home_known(struct vv_node *n, const char *path)
{
    struct vvi_record *r;
    uint64_t id;

    vv_mutex_lock(&n->home.lock);
    r = vvi_paths_find(&n->home.records, path);
    id = r ? r->holder : 0;
    vv_mutex_unlock(&n->home.lock);
    return id;
}

/* ---- where a file is ---- */

/* 1: recorded at *ret_id, which is up. Removes an invalid record. */
static int look_up(struct vv_node *n, const struct vvi_view *v, const char *path, uint64_t not_at,
                   uint64_t *ret_id)
{
    struct vv_dataset_gen gen;
    struct vvi_record *r;
    bool verified;
    int found = 0;

    if (vv_dataset_keeps(n->cache, path)) {
        *ret_id = n->id;
        return 1;
    }
    vv_mutex_lock(&n->home.lock);
    r = vvi_paths_find(&n->home.records, path);
    if (r && (r->holder == not_at || !vvi_node_view_up(v, vvi_node_view_find(v, r->holder)))) {
        forget_locked(n, r);
        r = NULL;
    }
    if (r) {
        r->asked = true;
        *ret_id = r->holder;
        found = 1;
    }
    vv_mutex_unlock(&n->home.lock);
    /* Otherwise this node may have a copy of a file that no other node is known to keep. */
    if (!found && vv_dataset_peek(n->cache, path, &gen, &verified) == 0) {
        *ret_id = n->id;
        found = 1;
    }
    return found;
}

/* The last view in which all nodes had reported; NULL: none. */
static struct vvi_view *get_settled(struct vv_node *n)
{
    struct vvi_view *v;

    vv_mutex_lock(&n->lock);
    v = n->settled;
    if (v)
        atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    vv_mutex_unlock(&n->lock);
    return v;
}

static void set_settled(struct vv_node *n, struct vvi_view *v)
{
    struct vvi_view *old;

    atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    vv_mutex_lock(&n->lock);
    old = n->settled;
    n->settled = v;
    vv_mutex_unlock(&n->lock);
    vvi_node_view_put(old);
}

/* True if this node was not the file's home in the last settled view: others may hold it without a record here. */
static bool is_new_home(struct vv_node *n, const struct vvi_view *v, const char *path)
{
    struct vvi_view *settled = get_settled(n);
    bool is_new = v->nr > 1;

    if (settled && settled->nr > 1)
        is_new = vvi_node_view_home(n, settled, path) != settled->self;
    vvi_node_view_put(settled);
    return is_new;
}

static void wait_for_reports(struct vv_node *n, const struct vvi_view *v, uint64_t deadline_ns)
{
    /* With several copies, this home usually has one already: wait only a short time. */
    uint64_t wait_ns = n->opts.replicas > 1 ? PULL_SOON_NS : PULL_WAIT_NS;
    uint64_t until_ns = VV_MIN(deadline_ns, vv_now_ns() + wait_ns);
    int rc = 0;

    vv_mutex_lock(&n->home.lock);
    while (n->home.pulled_epoch != v->epoch && rc == 0 && !atomic_load(&n->closing))
        rc = vv_cond_wait_until(&n->home.pulled, &n->home.lock, until_ns);
    vv_mutex_unlock(&n->home.lock);
}

static bool have_all_reported(struct vv_node *n, const struct vvi_view *v)
{
    bool all;

    vv_mutex_lock(&n->home.lock);
    all = n->home.pulled_epoch == v->epoch;
    vv_mutex_unlock(&n->home.lock);
    return all;
}

/* The load of a node. Without a recent report it is assumed to be as full as this one: it may be full, and a file away
 * from its home costs one more request each time. */
static uint64_t load_locked(const struct vv_node *n, const struct vvi_view *v, uint32_t node,
                            uint64_t own)
{
    struct load *l = find_load_locked(&n->home, v->rows[node].info.id);

    if (node == v->self)
        return own;
    if (l && vv_now_ns() - l->heard_ns < LOAD_NS)
        return l->bytes;
    return (uint64_t)((unsigned __int128)own * v->rows[node].info.weight /
                      v->rows[v->self].info.weight);
}

/* Chooses a node for a file of this size that no node has. */
static uint32_t place_locked(struct vv_node *n, const struct vvi_view *v, const char *path,
                             uint64_t own, uint64_t bytes)
{
    uint64_t *load = calloc(v->nr, sizeof(*load));
    struct vv_place_loads loads = {
        .bytes = load, .expected = n->opts.expected, .weight = vv_place_weight(v->place, v->up)};
    uint32_t at = v->self;

    if (!load)
        return at;
    for (uint32_t i = 0; i < v->nr; i++) {
        load[i] = load_locked(n, v, i, own);
        loads.total += vvi_node_view_up(v, i) ? load[i] : 0;
    }
    at =
        vv_place_bounded(v->place, vv_place_key(path, strlen(path)), v->self, v->up, &loads, bytes);
    free(load);
    return at == VV_PLACE_NONE ? v->self : at;
}

/* Decides once: a second thread finds the record. */
static int decide_place(struct vv_node *n, const struct vvi_view *v, const char *path,
                        uint64_t not_at, uint64_t deadline_ns, uint64_t *ret_id)
{
    uint64_t own = vvi_node_load(n);
    struct vv_shared_stat st;
    struct vvi_record *r;
    uint32_t at = v->self;
    int rc;

    *ret_id = n->id;
    if (n->opts.place.scheme != VV_PLACE_HRW_BOUNDED || n->opts.mode != VV_NODE_RECACHE ||
        v->nr == 1)
        return 0;
    if (deadline_ns == 0)
        return -EINPROGRESS;
    rc = vv_owner_stat(n->owner, path, deadline_ns, &st);
    if (rc < 0)
        return rc;
    if (n->opts.dataset.max_file && st.gen.size > n->opts.dataset.max_file)
        return -EFBIG;
    vv_mutex_lock(&n->home.lock);
    r = vvi_paths_find(&n->home.records, path);
    if (!r) {
        at = place_locked(n, v, path, own, st.gen.size);
        if (v->rows[at].info.id == not_at)
            at = v->self;
        r = record_locked(n, path, v->rows[at].info.id, true);
        if (at != v->self) {
            struct load *l = find_load_locked(&n->home, v->rows[at].info.id);

            /* Counts until the node reports its load itself. */
            if (l)
                l->bytes += st.gen.size;
            VVI_COUNT(n, placed);
        }
    }
    *ret_id = r ? r->holder : n->id;
    vv_mutex_unlock(&n->home.lock);
    return 0;
}

int vvi_node_home_where(struct vv_node *n, const char *path, uint64_t not_at, bool decide,
                        uint64_t deadline_ns, uint64_t *ret_id)
{
    struct vvi_view *v = vvi_node_view_get(n);
    int rc = 0;

    if (!look_up(n, v, path, not_at, ret_id)) {
        if (!have_all_reported(n, v) && is_new_home(n, v, path)) {
            if (deadline_ns == 0) {
                vvi_node_view_put(v);
                return -EINPROGRESS;
            }
            wait_for_reports(n, v, deadline_ns);
        }
        if (!look_up(n, v, path, not_at, ret_id))
            rc = decide ? decide_place(n, v, path, not_at, deadline_ns, ret_id) : -EAGAIN;
    }
    vvi_node_view_put(v);
    return rc;
}

/* ---- copies ---- */

/* Another node has a file of this home that was not placed there: take a copy. */
static void fetch_job(struct vv_node *n, struct vvi_job *job, bool stopping)
{
    struct vvi_get g = {.flags = VVI_GET_ONLY | VVI_GET_FETCH | VVI_GET_STAT,
                        .load = vvi_node_load(n)};
    uint64_t changes = vv_owner_changes(n->owner, job->path);
    struct vvi_record *r;
    struct vvi_got got;
    int fd, keep;

    g.path = job->path;
    if (!stopping &&
        vvi_node_ask(n, job->peer, &g, vv_now_ns() + n->opts.patience_ns, &got, &fd, &keep) == 0 &&
        got.what == VVI_GOT_FILE)
        (void)vvi_node_ask_copy(n, job->peer, job->path, changes, &got.st, got.age_ns);
    vv_mutex_lock(&n->home.lock);
    r = vvi_paths_find(&n->home.records, job->path);
    if (r)
        r->fetching = false;
    vv_mutex_unlock(&n->home.lock);
    free(job);
}

void vvi_node_home_fetch(struct vv_node *n, const char *path, uint64_t from, bool placed)
{
    struct vvi_record *r;
    struct vvi_job *job;
    bool want;

    vv_mutex_lock(&n->home.lock);
    r = vvi_paths_find(&n->home.records, path);
    want = r && (placed || !r->placed) && !r->fetching;
    if (want)
        r->fetching = true;
    vv_mutex_unlock(&n->home.lock);
    job = want ? vvi_node_job_new(path) : NULL;
    if (!job)
        return;
    job->fn = fetch_job;
    job->peer = from;
    if (vvi_node_queue_push(n, VVI_QUEUE_COPY, job) < 0)
        fetch_job(n, job, true);
}

/* Has another node take a copy of a file of this one. */
static void keep_job(struct vv_node *n, struct vvi_job *job, bool stopping)
{
    uint8_t body[VVI_PEER_BODY_MAX];
    struct vvi_pack p = {.buf = body, .max = sizeof(body)};

    if (!stopping) {
        /* The job may have waited in the queue for long. */
        vvi_wire_put(&p, vv_now_ns() - job->looked_ns, 8);
        vvi_wire_put_stat(&p, &job->st);
        vvi_wire_put_path(&p, job->path);
        (void)vvi_node_ask_short(n, job->peer, VVI_PEER_KEEP, body, p.at,
                                 vv_now_ns() + KEEP_LIMIT_NS);
    }
    free(job);
}

static int push_keep(struct vv_node *n, uint64_t peer, const char *path,
                     const struct vv_shared_stat *st, uint64_t age_ns)
{
    struct vvi_job *job = vvi_node_job_new(path);
    int rc;

    if (!job)
        return -ENOMEM;
    job->fn = keep_job;
    job->peer = peer;
    job->st = *st;
    job->looked_ns = vv_now_ns() - age_ns;
    rc = vvi_node_queue_push(n, VVI_QUEUE_BACK, job);
    if (rc < 0)
        free(job);
    return rc;
}

/* ---- wills ---- */

/* The message for one node. */
struct batch {
    uint64_t to;
    struct vvi_pack p;
    uint8_t buf[WILL_BYTES];
};

static void send_batch(struct vv_node *n, struct batch *l)
{
    if (l->p.at > 0)
        (void)vv_net_send(n->net, l->to, VVI_PEER_WILL, l->buf, l->p.at);
    l->p = (struct vvi_pack){.buf = l->buf, .max = sizeof(l->buf)};
}

static void add_will(struct vv_node *n, struct batch *l, const char *path)
{
    if (l->p.max - l->p.at < strlen(path) + 2)
        send_batch(n, l);
    vvi_wire_put_path(&l->p, path);
}

static void pass_will(void *user, struct vvi_path *e)
{
    struct vvi_paths *wills = user;
    struct will *w = (struct will *)e;

    if (w->recent) {
        w->recent = false;
        return;
    }
    vvi_paths_remove(wills, e);
    free(w);
}

static void will_locked(struct vv_node *n, const char *path, uint64_t from)
{
    struct vvi_home *h = &n->home;
    struct will *w = vvi_paths_find(&h->wills, path);

    if (!w) {
        if (h->wills.table.n >= h->max)
            h->will_hand = vvi_paths_step(&h->wills, h->will_hand, STEP, pass_will, &h->wills);
        w = calloc(1, sizeof(*w));
        if (!w || vvi_paths_add(&h->wills, path, &w->path) < 0) {
            free(w);
            return;
        }
    }
    w->from = from;
    w->recent = true;
}

void vvi_node_home_will(struct vv_node *n, uint64_t from, const void *body, size_t bytes)
{
    struct vvi_pack p = {.buf = (uint8_t *)(uintptr_t)body, .max = bytes};
    char path[VV_DATASET_PATH_MAX + 1];

    while (!p.bad && p.at < p.max) {
        vvi_wire_take_path(&p, path);
        if (p.bad)
            return;
        vv_mutex_lock(&n->home.lock);
        will_locked(n, path, from);
        vv_mutex_unlock(&n->home.lock);
    }
}

void vvi_node_home_brought(void *user, const char *path, const struct vv_shared_stat *st)
{
    struct vv_node *n = user;
    uint32_t nodes[VV_PLACE_REPLICAS_MAX], nr, given = 0;
    unsigned copies = n->opts.replicas;
    struct vv_shared_stat known;
    uint64_t age_ns;
    struct vvi_view *v;

    if (!n->net)
        return;
    vvi_node_home_decided(n, path);
    /* It was changed while it was read: no node may keep it. */
    if (vv_owner_recall(n->owner, path, &known, &age_ns) < 0)
        return;
    v = vvi_node_view_get(n);
    nr = vv_place_owners(v->place, vv_place_key(path, strlen(path)), v->up,
                         VV_MIN(copies + 1, VV_PLACE_REPLICAS_MAX), nodes);
    for (uint32_t i = 0; i < nr && copies > 1 && given < copies - 1; i++) {
        if (nodes[i] == v->self)
            continue;
        given++;
        (void)push_keep(n, v->rows[nodes[i]].info.id, path, st, age_ns);
    }
    if (copies == 1 && nr > 1 && nodes[0] == v->self && n->opts.mode == VV_NODE_RECACHE &&
        !n->opts.lazy) {
        uint8_t body[VVI_PEER_BODY_MAX];
        struct vvi_pack p = {.buf = body, .max = sizeof(body)};

        vvi_wire_put_path(&p, path);
        (void)vv_net_send(n->net, v->rows[nodes[1]].info.id, VVI_PEER_WILL, body, p.at);
    }
    vvi_node_view_put(v);
}

/* ---- a new view ---- */

static bool is_current(struct vv_node *n, const struct vvi_view *v)
{
    bool current;

    vv_mutex_lock(&n->lock);
    current = n->view->epoch == v->epoch && !n->stop;
    vv_mutex_unlock(&n->lock);
    return current;
}

struct sift {
    struct vv_node *n;
    const struct vvi_view *v;
};

/* Removes records of files whose home is another node now, or whose node is not up. In the second case this node
 * inherits the file. home.lock is held. */
static void sift_record(void *user, struct vvi_path *e)
{
    struct sift *s = user;
    struct vvi_record *r = (struct vvi_record *)e;
    bool ours = vvi_node_view_home(s->n, s->v, e->path) == s->v->self;

    if (ours && vvi_node_view_up(s->v, vvi_node_view_find(s->v, r->holder)))
        return;
    if (ours && !s->n->opts.lazy)
        will_locked(s->n, e->path, r->holder);
    forget_locked(s->n, r);
}

/* Records the files that a node has reported. */
static void take_holdings(struct vv_node *n, const struct vvi_view *v, uint64_t peer,
                          const void *data, size_t bytes)
{
    struct vvi_pack p = {.buf = (uint8_t *)(uintptr_t)data, .max = bytes};
    char path[VV_DATASET_PATH_MAX + 1];

    while (p.at < p.max) {
        vvi_wire_take_path(&p, path);
        if (p.bad)
            return;
        if (vvi_node_view_home(n, v, path) != v->self)
            continue;
        vv_mutex_lock(&n->home.lock);
        if (!vvi_paths_find(&n->home.records, path))
            (void)record_locked(n, path, peer, false);
        vv_mutex_unlock(&n->home.lock);
    }
}

/* Asks all nodes that have not answered yet. Returns the number that still have not. */
static uint32_t pull_round(struct vv_node *n, const struct vvi_view *v, bool *done)
{
    struct vv_net_call **call = calloc(v->nr, sizeof(struct vv_net_call *));
    uint64_t limit_ns = vv_now_ns() + PULL_LIMIT_NS;
    uint32_t left = 0;

    for (uint32_t i = 0; i < v->nr && call; i++) {
        struct vv_net_ask ask = VV_NET_ASK_INIT;

        if (done[i])
            continue;
        ask.peer = v->rows[i].info.id;
        ask.type = VVI_PEER_HOLD;
        ask.deadline_ns = limit_ns;
        ask.data_max = PULL_BYTES;
        if (vv_net_start(n->net, &ask, &call[i]) < 0)
            call[i] = NULL;
    }
    for (uint32_t i = 0; i < v->nr && call; i++) {
        struct vv_net_answer a;
        int rc = -EAGAIN;

        while (call[i] && rc == -EAGAIN && is_current(n, v))
            rc = vv_net_wait(call[i], vv_now_ns() + 20 * VV_NS_PER_MS, &a);
        if (rc == 0 && a.status == 0) {
            take_holdings(n, v, v->rows[i].info.id, a.data, a.data_bytes);
            done[i] = true;
        }
        vv_net_end(call[i]);
        left += !done[i];
    }
    free(call);
    return call ? left : v->nr;
}

static void set_pulled(struct vv_node *n, const struct vvi_view *v)
{
    vv_mutex_lock(&n->home.lock);
    n->home.pulled_epoch = v->epoch;
    vv_cond_broadcast(&n->home.pulled);
    vv_mutex_unlock(&n->home.lock);
}

static void pull(struct vv_node *n, const struct vvi_view *v)
{
    uint64_t until_ns = vv_now_ns() + PULL_LIMIT_NS;
    bool *done = calloc(v->nr, sizeof(*done));
    uint32_t left = 1;

    for (uint32_t i = 0; i < v->nr && done; i++)
        done[i] = i == v->self || !vvi_node_view_up(v, i);
    /* A node that just came, or has a newer view, answers in a moment. */
    while (done && left > 0 && vv_now_ns() < until_ns && is_current(n, v)) {
        left = pull_round(n, v, done);
        if (left > 0)
            (void)vvi_node_view_wait(n, v->epoch, vv_now_ns() + PULL_AGAIN_NS);
    }
    if (is_current(n, v))
        set_pulled(n, v);
    if (left > 0 && is_current(n, v))
        vv_log(VV_LOG_WARNING, "%u nodes have not reported the files that they hold", left);
    free(done);
}

/* Distributes copies, or wills, of the files of this home. */
struct spread {
    struct vv_node *n;
    const struct vvi_view *v, *former;
    struct batch *batches;
};

static bool is_new_heir(const struct spread *s, uint64_t key, uint32_t heir)
{
    uint32_t nodes[VV_PLACE_REPLICAS_MAX], nr;

    if (!s->former || s->former->nr <= 1)
        return true;
    nr = vv_place_owners(s->former->place, key, s->former->up, VV_MAX(s->n->opts.replicas, 2u),
                         nodes);
    for (uint32_t i = 0; i < nr; i++)
        if (s->former->rows[nodes[i]].info.id == s->v->rows[heir].info.id)
            return false;
    return true;
}

/* Has other nodes take the missing copies. The home records only one of the copies on other nodes, so it may ask a node
 * that has the file already. That node answers so, and nothing is copied. */
static int spread_copies(struct spread *s, const struct vv_dataset_entry *e, const uint32_t *nodes,
                         uint32_t nr)
{
    struct vv_node *n = s->n;
    uint32_t elsewhere = vvi_node_view_find(s->v, vvi_node_home_known(n, e->path)), others = 0;
    struct vv_shared_stat st;
    uint64_t age_ns = 0;

    if (elsewhere == s->v->self || !vvi_node_view_up(s->v, elsewhere))
        elsewhere = VV_PLACE_NONE;
    others = elsewhere != VV_PLACE_NONE;
    if (others >= n->opts.replicas - 1)
        return 0;
    if ((vv_owner_recall(n->owner, e->path, &st, &age_ns) < 0 &&
         vv_owner_stat(n->owner, e->path, vv_now_ns() + n->opts.patience_ns, &st) < 0) ||
        !vvi_same_gen(&st.gen, &e->gen))
        return 0; /* it has changed: the new generation is distributed when it is fetched */
    for (uint32_t i = 1; i < nr && others < n->opts.replicas - 1; i++) {
        if (nodes[i] == elsewhere)
            continue;
        others++;
        while (push_keep(n, s->v->rows[nodes[i]].info.id, e->path, &st, age_ns) == -EBUSY)
            if (vvi_node_view_wait(n, s->v->epoch, vv_now_ns() + 20 * VV_NS_PER_MS))
                return 1;
    }
    return 0;
}

static int spread_one(void *user, const struct vv_dataset_entry *e)
{
    struct spread *s = user;
    uint64_t key = vv_place_key(e->path, strlen(e->path));
    uint32_t nodes[VV_PLACE_REPLICAS_MAX], nr;

    nr = vv_place_owners(s->v->place, key, s->v->up, VV_MAX(s->n->opts.replicas, 2u), nodes);
    if (!is_current(s->n, s->v))
        return 1;
    if (nr < 2 || nodes[0] != s->v->self)
        return 0;
    if (s->n->opts.replicas > 1)
        return spread_copies(s, e, nodes, nr);
    if (is_new_heir(s, key, nodes[1]))
        add_will(s->n, &s->batches[nodes[1]], e->path);
    return 0;
}

static void spread(struct vv_node *n, const struct vvi_view *v, const struct vvi_view *former)
{
    struct spread s = {n, v, former, calloc(v->nr, sizeof(struct batch))};

    if (!s.batches)
        return;
    for (uint32_t i = 0; i < v->nr; i++) {
        s.batches[i].to = v->rows[i].info.id;
        s.batches[i].p = (struct vvi_pack){.buf = s.batches[i].buf, .max = WILL_BYTES};
    }
    (void)vv_dataset_list(n->cache, spread_one, &s);
    for (uint32_t i = 0; i < v->nr; i++)
        send_batch(n, &s.batches[i]);
    free(s.batches);
}

/* Collects the files that this node has inherited. home.lock is held. */
struct inherited {
    struct vv_node *n;
    const struct vvi_view *v;
    char **paths;
    size_t nr, room;
};

static void collect(struct inherited *s, const char *path)
{
    if (s->nr == s->room) {
        size_t room = VV_MAX(2 * s->room, (size_t)64);
        char **more = realloc(s->paths, room * sizeof(*more));

        if (!more)
            return;
        s->paths = more;
        s->room = room;
    }
    s->paths[s->nr] = strdup(path);
    s->nr += s->paths[s->nr] != NULL;
}

static void inherit_one(void *user, struct vvi_path *e)
{
    struct inherited *s = user;
    struct will *w = (struct will *)e;

    if (vvi_node_view_up(s->v, vvi_node_view_find(s->v, w->from)) ||
        vvi_node_view_home(s->n, s->v, e->path) != s->v->self)
        return;
    if (!vvi_paths_find(&s->n->home.records, e->path))
        collect(s, e->path);
    vvi_paths_remove(&s->n->home.wills, e);
    free(w);
}

static void collect_record(void *user, struct vvi_path *e)
{
    struct inherited *s = user;

    if (((struct vvi_record *)e)->holder != s->n->id)
        collect(s, e->path);
}

/* With several copies, the home must have one: fetches files that only another node has. */
static void gather(struct vv_node *n, const struct vvi_view *v)
{
    struct inherited s = {.n = n, .v = v};

    vv_mutex_lock(&n->home.lock);
    vvi_paths_each(&n->home.records, collect_record, &s);
    vv_mutex_unlock(&n->home.lock);
    for (size_t i = 0; i < s.nr; i++) {
        uint64_t from = vvi_node_home_known(n, s.paths[i]);

        if (from && !vv_dataset_keeps(n->cache, s.paths[i]))
            vvi_node_home_fetch(n, s.paths[i], from, true);
        free(s.paths[i]);
    }
    free(s.paths);
}

static void inherit(struct vv_node *n, const struct vvi_view *v)
{
    struct inherited s = {.n = n, .v = v};

    vv_mutex_lock(&n->home.lock);
    vvi_paths_each(&n->home.wills, inherit_one, &s);
    vv_mutex_unlock(&n->home.lock);
    for (size_t i = 0; i < s.nr; i++) {
        (void)vvi_node_ahead_add(&n->ahead, s.paths[i], VV_DATASET_UNKNOWN, false);
        free(s.paths[i]);
    }
    if (s.nr > 0)
        vv_log(VV_LOG_INFO, "fetching %zu files of nodes that are gone", s.nr);
    free(s.paths);
}

void vvi_node_home_settle(struct vv_node *n)
{
    struct vvi_view *v = vvi_node_view_get(n), *former = get_settled(n);
    struct sift sift = {n, v};

    vv_mutex_lock(&n->home.lock);
    vvi_paths_each(&n->home.records, sift_record, &sift);
    vv_mutex_unlock(&n->home.lock);
    if (v->nr == 1)
        set_pulled(n, v);
    else if (!v->fenced)
        pull(n, v);
    if (n->net && !v->fenced && n->opts.mode == VV_NODE_RECACHE && is_current(n, v)) {
        if (n->opts.replicas > 1 || !n->opts.lazy)
            spread(n, v, former);
        if (n->opts.replicas > 1 && is_current(n, v))
            gather(n, v);
        if (!n->opts.lazy && is_current(n, v))
            inherit(n, v);
    }
    if (is_current(n, v))
        set_settled(n, v);
    vvi_node_view_put(former);
    vvi_node_view_put(v);
}
