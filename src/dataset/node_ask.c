/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking other nodes. A call waits in slices, so that it ends soon after membership has given the node up,
 * and not only at its deadline.
 *
 * A file comes in pieces. The answer brings the first one; the others, of the same generation, are requested several
 * at a time. It is stored in the cache of this node, as a copy, if there is free room, otherwise in a memory file. A
 * file larger than `memory_file` is always stored in the cache, where it evicts other files: in memory, all of it would
 * stay there for as long as a program has it open.
 *
 * With the bytes comes the checksum that was taken when the file was fetched from the shared file system. Bytes that
 * do not match it are discarded. The sender is asked to verify its copy, and drops it if it is damaged.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "dataset/node_private.h"

#define SLICE_NS (20 * VV_NS_PER_MS)
#define PIECES   4 /* requested at a time */
#define RETRY_US 5000

bool vvi_node_ask_is_silence(int rc)
{
    return rc == -ETIMEDOUT || rc == -ECONNRESET || rc == -ECONNREFUSED || rc == -EHOSTUNREACH ||
           rc == -ENOTCONN || rc == -EACCES || rc == -EBADMSG;
}

static bool is_up(struct vv_node *n, uint64_t peer)
{
    struct vvi_view *v = vvi_node_view_get(n);
    uint32_t node = vvi_node_view_find(v, peer);
    bool up = node != VV_PLACE_NONE && vvi_node_view_up(v, node);

    vvi_node_view_put(v);
    return up;
}

int vvi_node_ask_wait(struct vv_node *n, uint64_t peer, struct vv_net_call *call,
                      struct vv_net_answer *ret_answer)
{
    int rc;

    do {
        rc = vv_net_wait(call, vv_now_ns() + SLICE_NS, ret_answer);
        if (rc == -EAGAIN && (atomic_load(&n->closing) || !is_up(n, peer)))
            rc = -ECONNRESET;
    } while (rc == -EAGAIN);
    if (rc == -ETIMEDOUT)
        vv_gossip_silent(n->gossip, peer);
    return rc;
}

static int start(struct vv_node *n, const struct vv_net_ask *ask, struct vv_net_call **ret_call)
{
    int rc = n->net ? vv_net_start(n->net, ask, ret_call) : -ENOTCONN;

    return rc == -EAGAIN ? -EBUSY : rc == -ENOENT ? -ENOTCONN : rc;
}

/* One request with its answer, which is valid until *ret_call ends. */
static int ask_once(struct vv_node *n, const struct vv_net_ask *ask, struct vv_net_call **ret_call,
                    struct vv_net_answer *ret_answer)
{
    struct vv_net_call *call;
    int rc = start(n, ask, &call);

    if (rc < 0)
        return rc;
    rc = vvi_node_ask_wait(n, ask->peer, call, ret_answer);
    if (rc < 0) {
        vv_net_end(call);
        return rc;
    }
    *ret_call = call;
    return 0;
}

static uint64_t epoch_of(struct vv_node *n)
{
    struct vvi_view *v = vvi_node_view_get(n);
    uint64_t epoch = v->epoch;

    vvi_node_view_put(v);
    return epoch;
}

int vvi_node_ask_short(struct vv_node *n, uint64_t peer, uint16_t type, const void *body,
                       size_t bytes, uint64_t deadline_ns)
{
    struct vv_net_ask ask = VV_NET_ASK_INIT;
    struct vv_net_answer answer;
    struct vv_net_call *call = NULL;
    int rc;

    ask.peer = peer;
    ask.type = type;
    ask.body = body;
    ask.body_bytes = bytes;
    ask.deadline_ns = deadline_ns;
    for (;;) {
        uint64_t epoch = epoch_of(n);

        rc = ask_once(n, &ask, &call, &answer);
        /* The other node has a newer view. Wait for ours to change. */
        if (rc != -ESTALE || vv_now_ns() >= deadline_ns || atomic_load(&n->closing))
            break;
        (void)vvi_node_view_wait(n, epoch, VV_MIN(deadline_ns, vv_now_ns() + SLICE_NS));
    }
    if (rc < 0)
        return rc;
    rc = answer.status;
    vv_net_end(call);
    return rc;
}

/* ---- pieces ---- */

/* The rest of a file, from `next` on. The caller stores it. */
struct rest {
    struct vv_node *n;
    uint64_t peer;
    const char *path;
    struct vv_dataset_gen gen;
    uint64_t changes; /* vv_owner_changes before the request */
    uint64_t next;    /* offset of the next request */
    bool has_sum;     /* `sum` is known */
    uint64_t sum;     /* of the file, when it was fetched from the shared file system */
    struct vv_net_call *call[PIECES];
    unsigned first, nr; /* a ring of calls under way */
};

static int ask_piece(struct rest *r)
{
    uint8_t body[VVI_PEER_BODY_MAX];
    struct vvi_pack p = {.buf = body, .max = sizeof(body)};
    struct vvi_get g = {.flags = VVI_GET_EXACT,
                        .load = vvi_node_load(r->n),
                        .offset = r->next,
                        .gen = r->gen,
                        .path = r->path};
    struct vv_net_ask ask = VV_NET_ASK_INIT;
    int rc;

    vvi_wire_put_get(&p, &g);
    ask.peer = r->peer;
    ask.type = VVI_PEER_GET;
    ask.body = body;
    ask.body_bytes = p.at;
    ask.flags = VV_NET_NO_SUM; /* the checksum of the file is compared */
    /* Each piece has its own deadline, with time for the pieces requested before it: so the time for the whole file
     * grows with its size. */
    ask.deadline_ns = vv_now_ns() + PIECES * r->n->opts.patience_ns;
    ask.data_max = (size_t)VV_MIN(VVI_NODE_PIECE, r->gen.size - r->next);
    rc = vv_net_start(r->n->net, &ask, &r->call[(r->first + r->nr) % PIECES]);
    if (rc < 0)
        return rc == -EAGAIN ? -EBUSY : rc;
    r->nr++;
    r->next += ask.data_max;
    return 0;
}

/* Every piece comes with the checksum of the whole file. All must be equal. */
static int take_sum(struct rest *r, const struct vv_net_answer *a)
{
    struct vvi_pack p = {.buf = (uint8_t *)(uintptr_t)a->body, .max = a->body_bytes};
    struct vvi_got got;

    vvi_wire_take_got(&p, &got);
    if (p.bad)
        return -EBADMSG;
    if (r->has_sum && r->sum != got.sum)
        return -ESTALE;
    r->has_sum = true;
    r->sum = got.sum;
    return 0;
}

/* The bytes received differ from those once fetched from the shared file system. The sender verifies its copy before it
 * is asked again, and drops it if it is damaged. */
static int reject(struct rest *r)
{
    uint8_t body[VVI_PEER_BODY_MAX];
    struct vvi_pack p = {.buf = body, .max = sizeof(body)};

    VVI_COUNT(r->n, rejected);
    vv_log(VV_LOG_WARNING, "%s, as another node has sent it, is damaged: it is asked for again",
           r->path);
    vvi_wire_put_gen(&p, &r->gen);
    vvi_wire_put_path(&p, r->path);
    (void)vvi_node_ask_short(r->n, r->peer, VVI_PEER_CHECK, body, p.at,
                             vv_now_ns() + r->n->opts.patience_ns);
    return -EAGAIN;
}

/* Receives all pieces from r->next on, in order. */
static int receive_rest(struct rest *r, int (*put)(void *to, const void *data, size_t bytes),
                        void *to)
{
    uint64_t done = r->next;
    int rc = 0;

    while (rc == 0 && done < r->gen.size) {
        struct vv_net_answer a;
        uint64_t want = VV_MIN(VVI_NODE_PIECE, r->gen.size - done);

        while (rc == 0 && r->nr < PIECES && r->next < r->gen.size) {
            rc = ask_piece(r);
            /* The answer to an earlier request makes room for more. */
            if (rc == -EBUSY && r->nr > 0) {
                rc = 0;
                break;
            }
        }
        if (rc == 0)
            rc = vvi_node_ask_wait(r->n, r->peer, r->call[r->first], &a);
        if (rc == 0 && a.status < 0)
            rc = a.status;
        if (rc == 0 && a.data_bytes != want)
            rc = -EBADMSG;
        if (rc == 0)
            rc = take_sum(r, &a);
        if (rc == 0)
            rc = put(to, a.data, a.data_bytes);
        if (r->nr > 0) {
            vv_net_end(r->call[r->first]);
            r->first = (r->first + 1) % PIECES;
            r->nr--;
        }
        done += want;
    }
    for (; r->nr > 0; r->nr--, r->first = (r->first + 1) % PIECES)
        vv_net_end(r->call[r->first]);
    return rc;
}

static int put_fill(void *to, const void *data, size_t bytes)
{
    return vv_dataset_write(to, data, bytes);
}

struct sink {
    int fd;
    struct vv_hash_stream *hash;
};

static int put_sink(void *to, const void *data, size_t bytes)
{
    const char *from = data;
    struct sink *s = to;

    vv_hash_stream_add(s->hash, data, bytes);
    while (bytes > 0) {
        ssize_t n = write(s->fd, from, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        from += n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* ---- into the cache ---- */

/* How a file of another node is stored. */
enum taking {
    TO_KEEP,    /* this node keeps it from now on */
    FREE_ROOM,  /* a copy, only in free room */
    LITTLE_USE, /* a copy; evicts files that are not known to be wanted */
};

/* True if the file that was received is still the current one, as far as this node has records. */
static bool is_unchanged(struct rest *r)
{
    struct vv_shared_stat known;
    uint64_t age_ns;

    return vv_owner_changes(r->n->owner, r->path) == r->changes &&
           vv_owner_recall(r->n->owner, r->path, &known, &age_ns) == 0 &&
           vvi_same_gen(&known.gen, &r->gen);
}

/* Reports to the owner the state of a file that was received. -ESTALE: the file was changed during the transfer, and
 * the copy is dropped, because if the change left the file's times alone, its home would take the copy for the same
 * file. The thread that handles a change counts it first and then drops the copy: so either this thread sees the count,
 * or that thread finds the copy. While the owner doubts reports, nothing is kept; the caller gets a descriptor of the
 * file before it is dropped. */
static int settle(struct rest *r, const struct vv_shared_stat *st, uint64_t age_ns, enum taking how,
                  int *ret_fd)
{
    bool counts = vv_owner_heard(r->n->owner, r->path, r->changes, st, age_ns);
    int rc = -ESTALE;

    /* A file that this node is asked to keep may have been checked long ago. */
    if (how == TO_KEEP)
        counts = vv_owner_changes(r->n->owner, r->path) == r->changes;
    if (counts)
        return 0;
    if (ret_fd && is_unchanged(r))
        rc = vv_dataset_get(r->n->cache, r->path, &r->gen, ret_fd, NULL);
    (void)vv_dataset_drop(r->n->cache, r->path);
    return rc;
}

/* `data`: the first bytes, if they are here already. ret_fd: may be NULL; set if the file is not kept (settle). */
static int copy_in(struct rest *r, const void *data, size_t bytes, const struct vv_shared_stat *st,
                   uint64_t age_ns, enum taking how, int *ret_fd)
{
    struct vv_dataset_want want = {r->path, r->gen, VV_DATASET_UNKNOWN, how == LITTLE_USE,
                                   how != TO_KEEP};
    uint64_t begun_ns = vv_now_ns();
    struct vv_dataset_fill *fill;
    int rc = vv_dataset_begin(r->n->cache, &want, &fill);

    if (rc == -EEXIST) {
        if (how == TO_KEEP)
            vv_dataset_own(r->n->cache, r->path);
        (void)vv_owner_heard(r->n->owner, r->path, r->changes, st, age_ns);
        return 0;
    }
    if (rc < 0)
        return rc;
    rc = bytes > 0 ? vv_dataset_write(fill, data, bytes) : 0;
    r->next = bytes;
    if (rc == 0)
        rc = receive_rest(r, put_fill, fill);
    if (rc < 0) {
        vv_dataset_abort(fill);
        return rc;
    }
    rc = vv_dataset_commit(fill, r->has_sum ? &r->sum : NULL);
    if (rc == -EBADMSG)
        return reject(r);
    if (rc == 0 && how != TO_KEEP)
        VVI_COUNT_BY(r->n, remote_bytes, r->gen.size);
    /* The check is older by the time that the transfer took. */
    if (rc == 0)
        rc = settle(r, st, age_ns + (vv_now_ns() - begun_ns), how, ret_fd);
    return rc;
}

int vvi_node_ask_copy(struct vv_node *n, uint64_t peer, const char *path, uint64_t changes,
                      const struct vv_shared_stat *st, uint64_t age_ns)
{
    struct rest r = {.n = n, .peer = peer, .path = path, .gen = st->gen, .changes = changes};
    uint64_t until_ns = vv_now_ns() + n->opts.patience_ns;
    int rc;

    /* A program of this node may be receiving a copy that need not be kept. */
    do
        rc = n->net ? copy_in(&r, NULL, 0, st, age_ns, TO_KEEP, NULL) : -ENOTCONN;
    while (rc == -EALREADY && vv_now_ns() < until_ns && !atomic_load(&n->closing) &&
           usleep(RETRY_US) == 0);
    if (rc == 0)
        VVI_COUNT(n, copied);
    return rc;
}

/* Returns a descriptor of a stored copy. */
static int open_copy(struct rest *r, int *ret_fd)
{
    int rc = vv_dataset_get(r->n->cache, r->path, &r->gen, ret_fd, NULL);

    /* The damage is on this node's disk, not on the sender's. */
    return rc == -EBADMSG ? -ENOENT : rc;
}

/* Stores a copy and returns a descriptor of it. `data`: as above. */
static int spare(struct rest *r, const void *data, size_t bytes, const struct vv_shared_stat *st,
                 uint64_t age_ns, enum taking how, int *ret_fd)
{
    int rc;

    *ret_fd = -1;
    rc = copy_in(r, data, bytes, st, age_ns, how, ret_fd);
    return rc < 0 || *ret_fd >= 0 ? rc : open_copy(r, ret_fd);
}

int vvi_node_ask_spare(struct vv_node *n, uint64_t peer, const char *path,
                       const struct vv_shared_stat *st, uint64_t age_ns)
{
    struct rest r = {.n = n,
                     .peer = peer,
                     .path = path,
                     .gen = st->gen,
                     .changes = vv_owner_changes(n->owner, path)};
    int fd, rc;

    rc = n->net ? copy_in(&r, NULL, 0, st, age_ns, LITTLE_USE, NULL) : -ENOTCONN;
    if (rc == 0)
        rc = open_copy(&r, &fd);
    if (rc == 0)
        close(fd);
    return rc;
}

/* ---- into memory ---- */

static int into_memory(struct rest *r, const void *data, size_t bytes,
                       const struct vv_shared_stat *st, int *ret_fd, int *ret_keep)
{
    char name[VV_SERVER_MEMORY_NAME];
    struct vv_server_stat mark;
    struct sink sink;
    int rc;

    vv_shared_stat_to_wire(st, &mark);
    mark.dev = mark.dev ? mark.dev : vvi_node_dev(r->n, r->path);
    vv_server_memory_name(&mark, name);
    sink.hash = vv_hash_stream_new();
    if (!sink.hash)
        return -ENOMEM;
    sink.fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (sink.fd < 0) {
        rc = -errno;
        goto free_hash;
    }
    /* Programs that get this descriptor see this mode as the file's. */
    (void)fchmod(sink.fd, 0600);
    rc = put_sink(&sink, data, bytes);
    r->next = bytes;
    if (rc == 0)
        rc = receive_rest(r, put_sink, &sink);
    if (rc == 0 && vv_hash_stream_value(sink.hash) != r->sum)
        rc = reject(r);
    if (rc == 0)
        rc = vvi_node_memory_seal(sink.fd, ret_fd);
    if (rc < 0)
        close(sink.fd);
    else
        *ret_keep = sink.fd;
free_hash:
    vv_hash_stream_free(sink.hash);
    return rc;
}

static int receive(struct vv_node *n, const struct vvi_get *g, struct rest *r,
                   const struct vv_net_answer *a, const struct vvi_got *got, int *ret_fd,
                   int *ret_keep)
{
    bool small;
    int rc;

    r->gen = got->st.gen;
    r->path = g->path;
    r->has_sum = true;
    r->sum = got->sum;
    small = r->gen.size <= n->opts.memory_file;
    /* If the sender treats it as large, it comes without bytes. */
    if (a->data_bytes != VV_MIN(r->gen.size, VVI_NODE_PIECE) && a->data_bytes != 0)
        return -EBADMSG;
    *ret_keep = -1;
    rc = spare(r, a->data, a->data_bytes, &got->st, got->age_ns, small ? FREE_ROOM : LITTLE_USE,
               ret_fd);
    /* If there was no room, or the file was evicted at once, receive it into memory. Not after damage (-EAGAIN): the
     * sender verifies its copy first. */
    if (rc < 0 && rc != -EAGAIN && small && !vvi_node_ask_is_silence(rc))
        rc = into_memory(r, a->data, a->data_bytes, &got->st, ret_fd, ret_keep);
    if (rc == 0 && *ret_keep >= 0)
        VVI_COUNT_BY(n, remote_bytes, r->gen.size);
    return rc;
}

/* Sends the request of *a with these flags, for the first time or again. */
static int start_get(struct vv_node *n, struct vvi_asked *a, uint32_t flags)
{
    uint8_t body[VVI_PEER_BODY_MAX];
    struct vvi_pack p = {.buf = body, .max = sizeof(body)};
    struct vv_net_ask ask = VV_NET_ASK_INIT;

    vvi_wire_put_get(&p, a->g);
    ask.peer = a->peer;
    ask.type = VVI_PEER_GET;
    ask.body = body;
    ask.body_bytes = p.at;
    ask.deadline_ns = a->deadline_ns;
    ask.data_max = a->g->flags & VVI_GET_STAT ? 0 : (size_t)VVI_NODE_PIECE;
    ask.flags = VV_NET_NO_SUM | flags; /* the checksum of the file is compared */
    return start(n, &ask, &a->call);
}

int vvi_node_ask_start(struct vv_node *n, uint64_t peer, const struct vvi_get *g,
                       uint64_t deadline_ns, struct vvi_asked *ret_asked)
{
    struct vvi_asked a = {.peer = peer,
                          .g = g,
                          .deadline_ns = deadline_ns,
                          .changes = vv_owner_changes(n->owner, g->path),
                          .said_ns = vv_now_ns()};
    int rc = start_get(n, &a, VV_NET_DIRECT);

    if (rc == 0)
        *ret_asked = a;
    return rc;
}

int vvi_node_ask_finish(struct vv_node *n, struct vvi_asked *asked, struct vvi_got *ret_got,
                        int *ret_fd, int *ret_keep)
{
    const struct vvi_get *g = asked->g;
    struct rest r = {.n = n, .peer = asked->peer, .changes = asked->changes};
    struct vv_net_answer a;
    struct vvi_got got;
    int rc = vvi_node_ask_wait(n, asked->peer, asked->call, &a);

    /* Perhaps only that connection failed. */
    if (rc == -ECONNRESET && is_up(n, asked->peer) && !atomic_load(&n->closing)) {
        vv_net_end(asked->call);
        rc = start_get(n, asked, 0);
        if (rc < 0)
            return rc;
        rc = vvi_node_ask_wait(n, asked->peer, asked->call, &a);
    }
    if (rc == 0)
        rc = a.status <= 0 ? a.status : -EBADMSG;
    if (rc == 0) {
        struct vvi_pack p = {.buf = (uint8_t *)(uintptr_t)a.body, .max = a.body_bytes};

        vvi_wire_take_got(&p, &got);
        rc = p.bad ? -EBADMSG : 0;
    }
    if (rc == 0)
        vvi_node_home_load(n, asked->peer, got.load);
    if (rc == 0 && got.what == VVI_GOT_FILE && !(g->flags & VVI_GET_STAT)) {
        if (vvi_node_behind_wants(n, g->path, &got.st.gen)) {
            vvi_node_behind_add(n, asked->peer, g->path, &got.st,
                                got.age_ns + (vv_now_ns() - asked->said_ns));
            got.what = VVI_GOT_PASS;
            got.why = -EINPROGRESS;
        } else {
            rc = receive(n, g, &r, &a, &got, ret_fd, ret_keep);
        }
    }
    vv_net_end(asked->call);
    if (rc < 0)
        return rc;
    /* The time of the answer is unknown here, so assume the time of the request. If the file had to be fetched first,
     * its check is younger than that; then its home is asked once more than needed. */
    got.age_ns += vv_now_ns() - asked->said_ns;
    *ret_got = got;
    return 0;
}

int vvi_node_ask(struct vv_node *n, uint64_t peer, const struct vvi_get *g, uint64_t deadline_ns,
                 struct vvi_got *ret_got, int *ret_fd, int *ret_keep)
{
    struct vvi_asked asked;
    int rc = vvi_node_ask_start(n, peer, g, deadline_ns, &asked);

    return rc < 0 ? rc : vvi_node_ask_finish(n, &asked, ret_got, ret_fd, ret_keep);
}
