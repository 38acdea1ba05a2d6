/* SPDX-License-Identifier: Apache-2.0 */
/* Partner copies: choosing partners.
 *
 * Processes with the same node name are on one node (failure domain). By default the name is the boot id of the
 * machine's kernel, so that neither equal host names of two machines nor containers on one mislead; without it, the
 * host's name. Nodes are in the order of their lowest ranks. The partner of the i-th process of a node is the i-th of
 * the next node, or, if that has only n < i + 1 processes, its (i mod n)-th. Every process has all names and computes
 * the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "store/partner/partner_private.h"

/* ---- collective calls ---- */

/* Without threads the wire takes one call at a time. */
static void wire_enter(struct vv_partner *p)
{
    if (!p->opts.wire.threads)
        vv_mutex_lock(&p->step);
}

static void wire_leave(struct vv_partner *p)
{
    if (!p->opts.wire.threads)
        vv_mutex_unlock(&p->step);
}

int vvi_partner_most(struct vv_partner *p, uint64_t value, uint64_t *ret_most)
{
    wire_enter(p);
    int rc = p->opts.wire.most(p->opts.wire.arg, value, ret_most);
    wire_leave(p);
    return rc;
}

int vvi_partner_exchange(struct vv_partner *p, const struct vv_wire_part *out,
                         struct vv_wire_part *ret_in)
{
    wire_enter(p);
    int rc = p->opts.wire.exchange(p->opts.wire.arg, out, ret_in);
    wire_leave(p);
    return rc;
}

int vvi_partner_all(struct vv_partner *p, int status)
{
    uint64_t most = 0;
    int rc = vvi_partner_most(p, status < 0 ? (uint64_t) - (int64_t)status : 0, &most);
    return rc < 0 ? rc : -(int)most;
}

void vvi_parts_free(struct vv_wire_part *parts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(parts[i].data);
}

/* ---- nodes ---- */

static uint64_t text_hash(const char *text)
{
    return vv_hash64(text, strlen(text));
}

static uint64_t machine_id(void)
{
    char text[256] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0)
        close(fd);
    if (n <= 0 && gethostname(text, sizeof(text) - 1) != 0)
        text[0] = 0;
    return text_hash(text);
}

static void introduce(const struct vv_partner *p, struct vvi_phello *me)
{
    struct stat st;
    uint64_t machine = machine_id();
    *me = (struct vvi_phello){
        .node = p->opts.node[0] != 0 ? text_hash(p->opts.node) : machine,
        .machine = machine,
        .run_id = p->opts.run_id,
        .kind = (uint64_t)p->opts.parity << 32 | p->opts.set,
        .status = p->opts.status,
    };
    if (p->opts.folder && fstat(p->opts.folder->dirfd, &st) == 0) {
        me->device = st.st_dev;
        me->inode = st.st_ino;
    }
}

bool vvi_same_folder(const struct vvi_phello *a, const struct vvi_phello *b)
{
    return a->machine == b->machine && a->device == b->device && a->inode == b->inode;
}

/* The nodes in the order of their lowest ranks, and the processes' places on them. */
struct nodes {
    uint32_t n;
    uint32_t *lowest;       /* by node: its lowest rank */
    uint32_t *count;        /* by node */
    uint32_t *member;       /* ranks, node after node */
    uint32_t *begin;        /* by node: where its members begin */
    uint32_t *node, *place; /* by rank */
};

static void count_nodes(const struct vv_partner *p, struct nodes *s)
{
    for (uint32_t i = 0; i < p->opts.wire.ranks; i++) {
        /* Most often it is the node of the rank before. */
        uint32_t node = i > 0 ? s->node[i - 1] : 0;
        if (i == 0 || p->hello[i].node != p->hello[i - 1].node)
            for (node = 0; node < s->n && p->hello[s->lowest[node]].node != p->hello[i].node;)
                node++;
        if (node == s->n)
            s->lowest[s->n++] = i;
        s->node[i] = node;
        s->place[i] = s->count[node]++;
    }
}

/* The set of this process, if all processes have the same settings and such sets exist. */
static void choose_set(struct vv_partner *p, const uint32_t *node, uint32_t *work, uint32_t *set_of)
{
    uint32_t ranks = p->opts.wire.ranks, me = p->opts.wire.rank, sets;
    bool possible =
        vv_parity_sets(ranks, node, VV_MAX(p->opts.set, p->k + 1), p->k, work, set_of, &sets) == 0;
    p->to = me;
    for (uint32_t i = 0; i < ranks; i++) {
        p->partner_of[i] = i;
        if (!possible || set_of[i] != set_of[me])
            continue;
        if (i == me)
            p->me = p->n;
        else
            p->from[p->nfrom++] = i;
        p->member[p->n++] = i;
    }
    p->peer = p->from;
    p->npeers = p->nfrom;
}

/* Chooses the partner of every rank. */
static void arrange(struct vv_partner *p, uint32_t *mem)
{
    uint32_t ranks = p->opts.wire.ranks, me = p->opts.wire.rank, at = 0;
    struct nodes s = {.lowest = mem,
                      .count = mem + ranks,
                      .member = mem + 2 * (size_t)ranks,
                      .begin = mem + 3 * (size_t)ranks,
                      .node = mem + 4 * (size_t)ranks,
                      .place = mem + 5 * (size_t)ranks};
    count_nodes(p, &s);
    for (uint32_t i = 0; i < s.n; i++) {
        s.begin[i] = at;
        at += s.count[i];
    }
    for (uint32_t i = 0; i < ranks; i++)
        s.member[s.begin[s.node[i]] + s.place[i]] = i;
    if (p->k > 0)
        choose_set(p, s.node, mem + 6 * (size_t)ranks, s.lowest);
    for (uint32_t i = 0; i < ranks; i++) {
        uint32_t next = (s.node[i] + 1) % s.n;
        if (p->k == 0)
            p->partner_of[i] = s.member[s.begin[next] + s.place[i] % s.count[next]];
        if (p->k == 0 && p->partner_of[i] == me)
            p->from[p->nfrom++] = i;
        if (vvi_same_folder(&p->hello[i], &p->hello[me])) {
            p->share += i < me;
            p->sharers++;
        }
    }
    p->to = p->partner_of[me];
    if (p->k == 0) {
        p->peer = &p->to;
        p->npeers = 1;
    }
}

/* ---- meeting ---- */

static int look_at_set(const struct vv_partner *p, char *err, size_t err_bytes)
{
    if (p->n == 0)
        return vvi_error(-EINVAL, err, err_bytes,
                         "parity: the %u processes cannot be divided into sets of %u to %u with "
                         "no node twice in a set: there are too few nodes; set `node` to define "
                         "the failure domains",
                         (unsigned)p->opts.wire.ranks, (unsigned)p->k + 1,
                         (unsigned)VV_ERASURE_MAX);
    for (uint32_t i = 0; i < p->opts.wire.ranks; i++) {
        if (p->hello[i].run_id != p->hello[0].run_id)
            return vvi_error(-EINVAL, err, err_bytes, "parity: processes have different runs");
        for (uint32_t j = 0; j < i; j++)
            if (p->hello[i].node != p->hello[j].node && vvi_same_folder(&p->hello[i], &p->hello[j]))
                return vvi_error(-EINVAL, err, err_bytes,
                                 "parity: processes %u and %u have different node names (`node`), "
                                 "but the same folder `local`",
                                 (unsigned)j, (unsigned)i);
    }
    return 0;
}

/* Checks data that all processes have, so that all decide the same. */
static int look_at_all(const struct vv_partner *p, char *err, size_t err_bytes)
{
    const struct vvi_phello *hello = p->hello;
    int64_t status = 0;
    bool one_node = true;
    for (uint32_t i = 0; i < p->opts.wire.ranks; i++) {
        status = VV_MIN(status, hello[i].status);
        one_node = one_node && hello[i].node == hello[0].node;
    }
    if (status < 0)
        return p->opts.status < 0 ? (int)status
                                  : vvi_error((int)status, err, err_bytes,
                                              "partner copies: another process failed: %s",
                                              strerror((int)-status));
    for (uint32_t i = 0; i < p->opts.wire.ranks; i++)
        if (hello[i].kind != hello[0].kind)
            return vvi_error(-EINVAL, err, err_bytes,
                             "parity: process %u has other settings than process 0: `parity` and "
                             "`parity_set` must be the same on all",
                             (unsigned)i);
    if (p->k > 0)
        return look_at_set(p, err, err_bytes);
    if (one_node)
        return vvi_error(-EINVAL, err, err_bytes,
                         "partner: all %u processes are on one node, so none can keep copies on "
                         "another; set `node` to define the failure domains",
                         (unsigned)p->opts.wire.ranks);
    for (uint32_t i = 0; i < p->opts.wire.ranks; i++) {
        uint32_t to = p->partner_of[i];
        if (hello[i].run_id != hello[0].run_id)
            return vvi_error(-EINVAL, err, err_bytes, "partner: processes have different runs");
        if (vvi_same_folder(&hello[i], &hello[to]))
            return vvi_error(-EINVAL, err, err_bytes,
                             "partner: processes %u and %u have different node names (`node`), "
                             "but the same folder `local`",
                             (unsigned)i, (unsigned)to);
    }
    return 0;
}

static int hear_all(struct vv_partner *p, struct vv_wire_part *parts)
{
    uint32_t ranks = p->opts.wire.ranks;
    struct vvi_phello me;
    introduce(p, &me);
    for (uint32_t i = 0; i < ranks; i++)
        parts[i] = (struct vv_wire_part){&me, sizeof(me)};
    int rc = vvi_partner_exchange(p, parts, parts + ranks);
    for (uint32_t i = 0; rc == 0 && i < ranks; i++) {
        if (parts[ranks + i].bytes == sizeof(me))
            memcpy(&p->hello[i], parts[ranks + i].data, sizeof(me));
        else
            rc = -EPROTO;
    }
    vvi_parts_free(parts + ranks, ranks);
    return rc;
}

/* First allocates all memory, and finds out if all processes could: no process waits for one that has
 * given up. */
int vvi_partner_meet(struct vv_partner *p, char *err, size_t err_bytes)
{
    size_t ranks = p->opts.wire.ranks;
    struct vv_wire_part *parts = calloc(2 * ranks, sizeof(*parts));
    uint32_t *mem = calloc(7 * ranks + 1, sizeof(*mem));
    p->hello = calloc(ranks, sizeof(*p->hello));
    p->partner_of = calloc(ranks, sizeof(*p->partner_of));
    p->from = calloc(ranks, sizeof(*p->from));
    p->member = calloc(ranks, sizeof(*p->member));
    p->heard_ns = calloc(ranks, sizeof(*p->heard_ns));
    bool all_there =
        parts && mem && p->hello && p->partner_of && p->from && p->member && p->heard_ns;
    int rc = vvi_partner_all(p, all_there ? 0 : -ENOMEM);
    if (rc == -ENOMEM)
        vvi_error(rc, err, err_bytes,
                  all_there ? "another process is out of memory" : "out of memory");
    else if (rc == 0 && (rc = hear_all(p, parts)) == 0)
        arrange(p, mem);
    free(parts);
    free(mem);
    if (rc < 0)
        return rc == -ENOMEM ? rc
                             : vvi_error(rc, err, err_bytes,
                                         "partner copies: the processes cannot be reached: %s",
                                         strerror(-rc));
    return look_at_all(p, err, err_bytes);
}
