/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answering requests of other nodes, and of this one, which uses the same calls.
 *
 * A request has two steps. The first asks for what can be answered at once. Its deadline is adaptive and short, because
 * a healthy node answers at once. If something has to be fetched or checked first, the answer is -EINPROGRESS. The
 * second step (FETCH) waits until the sender's deadline; it ends earlier only if membership finds the node dead. So a
 * slow shared file system is never taken for a dead node.
 *
 * Requests arrive on the net's thread and are put in queues there. That thread itself answers the first step of a
 * request if the file is here and small, no other request waits, and either the bytes are in memory or the answer is
 * -EINPROGRESS: this saves waking up two threads.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "dataset/node_private.h"

#define RETRY_NS     (5 * VV_NS_PER_MS)
#define LIST_WAIT_NS (200 * VV_NS_PER_MS)
#define AT_ONCE      (UINT64_C(256) << 10) /* most bytes that the net's thread sends itself */

/* ---- a file ---- */

static int pass(struct vvi_got *got, int why)
{
    got->what = VVI_GOT_PASS;
    got->why = why;
    return 0;
}

/* Completes the answer for a file that was found. Without bytes if the sender has this generation. */
static int give(const struct vvi_get *g, int fd, struct vvi_got *got, int *ret_fd)
{
    if ((g->flags & VVI_GET_HAVE) && vvi_same_gen(&g->gen, &got->st.gen)) {
        got->what = VVI_GOT_SAME;
        if (fd >= 0)
            close(fd);
        return 0;
    }
    got->what = VVI_GOT_FILE;
    if (fd >= 0)
        *ret_fd = fd;
    return 0;
}

/* Waits for a copy that may be on its way from another node; the owner does not know of these copies. */
static int get_waiting(struct vv_node *n, const char *path, uint64_t deadline_ns, int *ret_fd,
                       struct vv_shared_stat *ret_stat)
{
    int rc;

    for (;;) {
        rc = vv_owner_get(n->owner, path, deadline_ns, ret_fd, ret_stat);
        if (rc != -EALREADY || vv_now_ns() + RETRY_NS >= deadline_ns || atomic_load(&n->closing))
            return rc;
        vv_sleep_until_ns(vv_now_ns() + RETRY_NS);
    }
}

/* Starts to bring a large file while the program reads the shared file system. Returns the error for it. */
static int bring_behind(struct vv_node *n, const char *path)
{
    struct vv_shared_stat st = {0};
    uint64_t age_ns;

    if (vv_owner_recall(n->owner, path, &st, &age_ns) == 0 && n->opts.dataset.max_file &&
        st.gen.size > n->opts.dataset.max_file)
        return -EFBIG;
    vvi_node_behind_add(n, n->id, path, &st, 0);
    return -EINPROGRESS;
}

static int serve_here(struct vv_node *n, const struct vvi_get *g, uint64_t deadline_ns,
                      struct vvi_got *got, int *ret_fd)
{
    struct vv_shared_stat known;
    struct vv_dataset_gen gen;
    bool verified;
    int fd = -1, rc;

    if ((g->flags & VVI_GET_ONLY) && vv_dataset_peek(n->cache, g->path, &gen, &verified) < 0)
        return -ENOENT;
    if (g->flags & VVI_GET_STAT)
        rc = vv_owner_stat(n->owner, g->path, deadline_ns, &got->st);
    else
        rc = get_waiting(n, g->path, deadline_ns, &fd, &got->st);
    if (rc == -EINPROGRESS)
        rc = bring_behind(n, g->path);
    if (rc < 0) {
        vvi_node_home_decided(n, g->path);
        return pass(got, rc);
    }
    /* It was invalidated while it was fetched: earlier requests may have it, but no node may keep it. */
    if (vv_owner_recall(n->owner, g->path, &known, &got->age_ns) < 0)
        got->age_ns = VV_OWNER_TOO_OLD;
    if (!(g->flags & VVI_GET_STAT))
        vvi_node_ahead_used(n, g->path);
    return give(g, fd, got, ret_fd);
}

/* Answers as the file's home. 1: the file is on this node. */
static int serve_home(struct vv_node *n, const struct vvi_get *g, uint64_t deadline_ns,
                      struct vvi_got *got)
{
    bool waits = g->flags & VVI_GET_FETCH;
    struct vvi_view *v = vvi_node_view_get(n);
    bool ours = vvi_node_view_home(n, v, g->path) == v->self, fenced = v->fenced;
    uint64_t at = n->id;
    int rc;

    vvi_node_view_put(v);
    if (fenced)
        return pass(got, -ENOTCONN);
    if (!ours)
        return -EAGAIN;
    rc = vvi_node_home_where(n, g->path, g->not_at, !(g->flags & VVI_GET_STAT),
                             waits ? deadline_ns : 0, &at);
    if (rc == -EINPROGRESS)
        return rc;
    if (rc < 0 && rc != -EAGAIN)
        return pass(got, rc);
    if (rc < 0 || at == n->id)
        return 1;
    got->what = VVI_GOT_AT;
    got->at = at;
    if (!(g->flags & VVI_GET_STAT))
        vvi_node_home_fetch(n, g->path, at, false);
    return 0;
}

/* A file that this node was asked for becomes kept: as its home, unless another node keeps it, or because its home
 * asks. */
static void keep_asked(struct vv_node *n, const struct vvi_get *g)
{
    uint64_t at;

    if (vv_dataset_keeps(n->cache, g->path))
        return;
    at = g->flags & VVI_GET_HOME ? vvi_node_home_known(n, g->path) : 0;
    if (at == 0 || at == n->id)
        vv_dataset_own(n->cache, g->path);
}

int vvi_node_serve(struct vv_node *n, const struct vvi_get *g, uint64_t deadline_ns,
                   struct vvi_got *ret_got, int *ret_fd)
{
    struct vvi_got got = {.load = vvi_node_load(n)};
    int fd = -1, rc;

    if (g->flags & VVI_GET_EXACT) {
        rc = vv_dataset_get(n->cache, g->path, &g->gen, &fd, NULL);
        got.st.gen = g->gen;
        got.what = VVI_GOT_FILE;
        if (rc == 0)
            *ret_fd = fd;
    } else if (atomic_load(&n->draining)) {
        rc = pass(&got, -ENOTCONN);
    } else if (vvi_node_behind_is(n, g->path)) {
        rc = pass(&got, -EINPROGRESS);
    } else if ((g->flags & VVI_GET_STAT)
                   ? vv_owner_stat_now(n->owner, g->path, &got.st, &got.age_ns) == 0
                   : vv_owner_get_now(n->owner, g->path, &fd, &got.st, &got.age_ns) == 0) {
        if (!(g->flags & VVI_GET_STAT))
            vvi_node_ahead_used(n, g->path);
        rc = give(g, fd, &got, ret_fd);
    } else {
        rc = g->flags & VVI_GET_HOME ? serve_home(n, g, deadline_ns, &got) : 1;
        if (rc == 1)
            rc = g->flags & VVI_GET_FETCH ? serve_here(n, g, deadline_ns, &got, ret_fd)
                                          : -EINPROGRESS;
    }
    if (rc == 0 && !(g->flags & VVI_GET_EXACT) &&
        (got.what == VVI_GOT_FILE || got.what == VVI_GOT_SAME))
        keep_asked(n, g);
    if (rc == 0)
        *ret_got = got;
    return rc;
}

static void answer(struct vv_net_req *req, int status)
{
    struct vv_net_reply reply = {.status = status, .fd = -1};

    (void)vv_net_respond(req, &reply);
}

/* Sends the file and closes its descriptor. in_memory: its bytes are in memory, without waiting for a disk. */
static void reply_got(struct vv_node *n, struct vv_net_req *req, const struct vvi_get *g,
                      struct vvi_got *got, int fd, bool in_memory)
{
    uint8_t body[256];
    struct vvi_pack p = {.buf = body, .max = sizeof(body)};
    struct vv_net_reply reply = {.fd = -1};
    uint64_t size = got->st.gen.size;
    int rc;

    /* The checksum is never computed from the bytes now on disk: otherwise damaged bytes would get a matching
     * checksum. */
    if (fd >= 0 && vv_dataset_sum(n->cache, g->path, &got->st.gen, &got->sum) < 0) {
        close(fd);
        answer(req, -ESTALE); /* dropped meanwhile */
        return;
    }
    vvi_wire_put_got(&p, got);
    reply.body = body;
    reply.body_bytes = p.at;
    /* Send no bytes of a large file: no program waits for it, and a node asks for its pieces later. */
    if (fd >= 0 && g->offset < size &&
        ((g->flags & VVI_GET_EXACT) || n->opts.direct_above == 0 || size <= n->opts.direct_above)) {
        reply.fd = fd;
        reply.in_memory = in_memory;
        reply.offset = g->offset;
        reply.data_bytes =
            VV_MIN(size - g->offset, VV_MIN(VVI_NODE_PIECE, vv_net_req_data_max(req)));
    }
    rc = vv_net_respond(req, &reply);
    if (rc == 0 && fd >= 0) {
        VVI_COUNT_BY(n, served, g->offset == 0);
        VVI_COUNT_BY(n, served_bytes, reply.data_bytes);
    }
    if (fd >= 0)
        close(fd);
}

static void answer_get(struct vv_node *n, struct vv_net_req *req, const struct vvi_get *g)
{
    struct vvi_got got;
    int fd = -1, rc = vvi_node_serve(n, g, vv_net_req_deadline_ns(req), &got, &fd);

    if (rc < 0)
        answer(req, rc);
    else
        reply_got(n, req, g, &got, fd, false);
}

static void do_get(struct vv_node *n, struct vvi_job *job, bool stopping)
{
    struct vvi_pack p = {.buf = (uint8_t *)(uintptr_t)job->body, .max = job->body_bytes};
    char path[VV_DATASET_PATH_MAX + 1];
    struct vvi_get g;

    vvi_wire_take_get(&p, &g, path);
    if (stopping || p.bad)
        answer(job->req, stopping ? -ESHUTDOWN : -EBADMSG);
    else
        answer_get(n, job->req, &g);
    free(job);
}

/* True if the bytes of a small file seem to be in memory, judging by its first and last page. */
static bool is_in_memory(int fd, uint64_t size)
{
    char byte;
    struct iovec iov = {&byte, 1};

    return size == 0 || (preadv2(fd, &iov, 1, 0, RWF_NOWAIT) == 1 &&
                         preadv2(fd, &iov, 1, (off_t)size - 1, RWF_NOWAIT) == 1);
}

/* Answers the first step of a request at once. False: it needs a thread that may wait for the disk. */
static bool get_at_once(struct vv_node *n, struct vv_net_req *req, const struct vvi_get *g)
{
    struct vv_dataset_gen gen;
    struct vvi_got got;
    bool verified;
    int fd = -1, rc;

    if ((g->flags & ~(uint32_t)(VVI_GET_HOME | VVI_GET_HAVE)) ||
        vvi_node_queue_waits(n, VVI_QUEUE_FAST) ||
        vv_dataset_peek(n->cache, g->path, &gen, &verified) < 0 || !verified || gen.size > AT_ONCE)
        return false;
    rc = vvi_node_serve(n, g, 0, &got, &fd);
    if (rc == -EINPROGRESS) {
        answer(req, rc);
        return true;
    }
    if (rc < 0)
        return false;
    if (fd >= 0 && !is_in_memory(fd, got.st.gen.size)) {
        close(fd);
        return false;
    }
    reply_got(n, req, g, &got, fd, true);
    return true;
}

/* True if the node that asks has a newer view of the members. This node may have been out of reach, and have missed
 * changes of files; with revalidate 0 it would never check them again. */
static bool is_behind(struct vv_node *n, uint64_t epoch)
{
    struct vvi_view *v = vvi_node_view_get(n);
    bool behind = n->opts.revalidate_ns == 0 && epoch > v->epoch;

    vvi_node_view_put(v);
    return behind;
}

/* True: it is answered. False: it belongs in a queue; the second step of a request in one whose jobs may wait. */
static bool take_get(struct vv_node *n, struct vv_net_req *req, const struct vv_net_msg *m,
                     enum vvi_queue_kind *ret_queue)
{
    struct vvi_pack p = {.buf = (uint8_t *)(uintptr_t)m->body, .max = m->body_bytes};
    char path[VV_DATASET_PATH_MAX + 1];
    struct vvi_get g;

    vvi_wire_take_get(&p, &g, path);
    if (p.bad || is_behind(n, m->epoch)) {
        answer(req, p.bad ? -EBADMSG : -EAGAIN);
        return true;
    }
    vvi_node_home_load(n, m->from, g.load);
    *ret_queue = g.flags & VVI_GET_FETCH ? VVI_QUEUE_SLOW : VVI_QUEUE_FAST;
    return get_at_once(n, req, &g);
}

/* ---- the other questions ---- */

static void do_drop(struct vv_node *n, struct vvi_job *job, bool stopping)
{
    struct vvi_pack p = {.buf = (uint8_t *)(uintptr_t)job->body, .max = job->body_bytes};
    char path[VV_DATASET_PATH_MAX + 1];
    struct vv_owner_change c = {.path = path};

    vvi_wire_take_path(&p, path);
    if (p.at < p.max) {
        uint64_t flags = vvi_wire_take(&p, 1);

        c.tree = (flags & VVI_DROP_TREE) != 0;
        c.begins = (flags & VVI_DROP_BEGINS) != 0;
        c.inode = vvi_wire_take(&p, 8);
    }
    if (!stopping && !p.bad)
        vvi_node_drop(n, &c);
    answer(job->req, stopping ? -ESHUTDOWN : p.bad ? -EBADMSG : 0);
    free(job);
}

struct listing {
    struct vv_node *n;
    struct vvi_view *v;
    uint32_t home;
    uint8_t *buf;
    size_t at, room, max;
    int rc;
};

static int list_one(void *user, const struct vv_dataset_entry *e)
{
    struct listing *l = user;
    struct vvi_pack p;

    if (e->copy || vvi_node_view_home(l->n, l->v, e->path) != l->home)
        return 0;
    if (l->room - l->at < strlen(e->path) + 2) {
        size_t room = VV_MAX(2 * l->room, (size_t)65536);
        uint8_t *more = realloc(l->buf, room);

        if (!more) {
            l->rc = -ENOMEM;
            return 1;
        }
        l->buf = more;
        l->room = room;
    }
    p = (struct vvi_pack){.buf = l->buf, .at = l->at, .max = l->room};
    vvi_wire_put_path(&p, e->path);
    if (p.at > l->max) /* the rest is found on request, by fetching it again */
        return 1;
    l->at = p.at;
    return 0;
}

static void do_hold(struct vv_node *n, struct vvi_job *job, bool stopping)
{
    struct listing l = {.n = n, .v = vvi_node_view_get(n), .max = vv_net_req_data_max(job->req)};
    struct vv_net_reply reply = {.fd = -1};

    /* The node that asks may have a newer view: then files have other homes than here. */
    if (!stopping && l.v->epoch != job->epoch &&
        vvi_node_view_wait(n, l.v->epoch, vv_now_ns() + LIST_WAIT_NS)) {
        vvi_node_view_put(l.v);
        l.v = vvi_node_view_get(n);
    }
    l.home = vvi_node_view_find(l.v, job->peer);
    if (stopping)
        l.rc = -ESHUTDOWN;
    else if (l.home == VV_PLACE_NONE)
        l.rc = -EAGAIN;
    else if (vv_dataset_list(n->cache, list_one, &l) < 0)
        l.rc = -ENOMEM;
    reply.status = l.rc;
    if (l.rc == 0) {
        reply.data = l.buf;
        reply.data_bytes = l.at;
    }
    (void)vv_net_respond(job->req, &reply);
    vvi_node_view_put(l.v);
    free(l.buf);
    free(job);
}

static void do_keep(struct vv_node *n, struct vvi_job *job, bool stopping)
{
    struct vvi_pack p = {.buf = (uint8_t *)(uintptr_t)job->body, .max = job->body_bytes};
    char path[VV_DATASET_PATH_MAX + 1];
    struct vv_shared_stat st;
    uint64_t age_ns = vvi_wire_take(&p, 8);
    int rc;

    vvi_wire_take_stat(&p, &st);
    vvi_wire_take_path(&p, path);
    if (stopping || p.bad)
        rc = stopping ? -ESHUTDOWN : -EBADMSG;
    else
        rc = vvi_node_ask_copy(n, job->peer, path, vv_owner_changes(n->owner, path), &st, age_ns);
    answer(job->req, rc);
    free(job);
}

/* Another node got bytes that do not match their checksum. Its report is checked by reading the disk. */
static void do_check(struct vv_node *n, struct vvi_job *job, bool stopping)
{
    struct vvi_pack p = {.buf = (uint8_t *)(uintptr_t)job->body, .max = job->body_bytes};
    char path[VV_DATASET_PATH_MAX + 1];
    struct vv_dataset_gen gen;
    int rc;

    vvi_wire_take_gen(&p, &gen);
    vvi_wire_take_path(&p, path);
    if (stopping || p.bad || p.at != p.max)
        rc = stopping ? -ESHUTDOWN : -EBADMSG;
    else
        rc = vv_dataset_check(n->cache, path, &gen);
    answer(job->req, rc);
    free(job);
}

static void do_bring(struct vv_node *n, struct vvi_job *job, bool stopping)
{
    struct vvi_pack p = {.buf = (uint8_t *)(uintptr_t)job->body, .max = job->body_bytes};
    char path[VV_DATASET_PATH_MAX + 1];
    int rc = stopping ? -ESHUTDOWN : 0;

    while (rc == 0 && p.at < p.max) {
        uint64_t place = vvi_wire_take(&p, 8), here = vvi_wire_take(&p, 1);

        vvi_wire_take_path(&p, path);
        rc = p.bad || here > 1 ? -EBADMSG : vvi_node_ahead_add(&n->ahead, path, place, here);
    }
    answer(job->req, rc);
    free(job);
}

void vvi_node_serve_request(void *user, struct vv_net_req *req, const struct vv_net_msg *m)
{
    static const struct {
        uint16_t type;
        enum vvi_queue_kind queue;
        void (*fn)(struct vv_node *n, struct vvi_job *job, bool stopping);
    } kinds[] = {
        {VVI_PEER_GET, VVI_QUEUE_FAST, do_get},     {VVI_PEER_DROP, VVI_QUEUE_FAST, do_drop},
        {VVI_PEER_HOLD, VVI_QUEUE_LIST, do_hold},   {VVI_PEER_KEEP, VVI_QUEUE_COPY, do_keep},
        {VVI_PEER_BRING, VVI_QUEUE_FAST, do_bring}, {VVI_PEER_CHECK, VVI_QUEUE_LIST, do_check},
    };
    struct vv_node *n = user;
    enum vvi_queue_kind queue = VVI_QUEUE_FAST;
    struct vvi_job *job = NULL;

    if (m->type == VVI_PEER_GET && take_get(n, req, m, &queue))
        return;
    for (size_t i = 0; i < VV_ARRAY_SIZE(kinds); i++) {
        if (kinds[i].type != m->type)
            continue;
        job = vvi_node_job_new("");
        if (!job)
            break;
        job->fn = kinds[i].fn;
        job->req = req;
        job->peer = m->from;
        job->type = m->type;
        job->body = m->body;
        job->body_bytes = m->body_bytes;
        job->epoch = m->epoch;
        queue = m->type == VVI_PEER_GET ? queue : kinds[i].queue;
        if (vvi_node_queue_push(n, queue, job) == 0)
            return;
        break;
    }
    free(job);
    answer(req, job ? -EBUSY : -ENOTSUP);
}

void vvi_node_serve_message(void *user, const struct vv_net_msg *m)
{
    if (m->type == VVI_PEER_WILL)
        vvi_node_home_will(user, m->from, m->body, m->body_bytes);
}
