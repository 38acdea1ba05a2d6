/* SPDX-License-Identifier: Apache-2.0 */
/* Partner copies: files that all processes move together.
 *
 * When a history is opened, files go back to processes that lack them and, if no thread does it later, to partners
 * that lack them. Every process takes part in every round, even with nothing to send or receive, so that no process
 * waits for one that does something else. A round is one exchange: one piece of each file in transfer. Rounds go on
 * until no process has anything left.
 *
 * A file that cannot be read or written is given up by itself; only an error of the wire fails a move. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/partner/partner_private.h"

/* A file being sent to another process. */
struct outgoing {
    bool on, begun; /* on: END was not sent yet */
    int status;
    struct vvi_outfile file;
};

/* A file being received. */
struct incoming {
    bool on, stored;
    int status;
    uint64_t replaced_bytes;
    struct vvi_infile file;
};

struct move {
    struct vv_partner *p;
    uint32_t ranks;
    int dirfd;            /* destination of own files; -1: they are others', in their folder */
    struct outgoing *out; /* by rank, as all below */
    struct incoming *in;
    struct vv_wire_part *send, *receive;
};

static int move_init(struct move *m, struct vv_partner *p, int dirfd)
{
    uint32_t n = p->opts.wire.ranks;
    *m = (struct move){.p = p, .ranks = n, .dirfd = dirfd};
    m->out = calloc(n, sizeof(*m->out));
    m->in = calloc(n, sizeof(*m->in));
    m->send = calloc(n, sizeof(*m->send));
    m->receive = calloc(n, sizeof(*m->receive));
    /* Begins only if all processes have the memory. */
    return vvi_partner_all(p, m->out && m->in && m->send && m->receive ? 0 : -ENOMEM);
}

static void move_fini(struct move *m)
{
    for (uint32_t i = 0; i < m->ranks; i++) {
        if (m->out)
            vvi_outfile_end(&m->out[i].file);
        if (m->in && m->in[i].on)
            vvi_infile_end(&m->in[i].file);
    }
    free(m->out);
    free(m->in);
    free(m->send);
    free(m->receive);
}

/* ---- one round ---- */

static void next_piece(struct outgoing *o, struct vv_wire_part *part)
{
    struct vvi_part_msg msg = {.kind = o->begun ? VVI_PART_DATA : VVI_PART_TABLES};
    int rc = o->status;
    if (rc == 0 && !o->begun)
        rc = vvi_outfile_tables(&o->file, VVI_PART_LEAD, &part->data, &part->bytes);
    else if (rc == 0)
        rc = vvi_outfile_next(&o->file, VVI_PART_LEAD, &part->data, &part->bytes, &msg.offset);
    o->begun = true;
    if (rc < 0) {
        msg = (struct vvi_part_msg){.kind = VVI_PART_END, .status = rc == -ENODATA ? 0 : rc};
        o->on = false;
        part->bytes = sizeof(msg);
        part->data = malloc(sizeof(msg));
        if (!part->data)
            part->bytes = 0; /* the receiver gives up an incomplete file */
    }
    if (part->bytes > 0)
        memcpy(part->data, &msg, sizeof(msg));
}

static int begin_file(struct move *m, uint32_t from, struct incoming *in, const char *tables,
                      size_t bytes)
{
    struct vv_partner *p = m->p;
    if (m->dirfd >= 0)
        return vvi_infile_begin(&in->file, p->os, m->dirfd, p->opts.folder->direct, tables, bytes);
    vv_mutex_lock(&p->step);
    int rc = vvi_partner_begin_in(p, from, tables, bytes, &in->file, &in->replaced_bytes);
    vv_mutex_unlock(&p->step);
    return rc;
}

static void end_file(struct move *m, struct incoming *in, int status)
{
    int rc = in->status < 0 ? in->status : status;
    if (!in->on)
        return;
    if (rc == 0)
        rc = vvi_infile_commit(&in->file);
    in->stored = rc == 0;
    in->status = rc;
    if (in->stored && m->dirfd < 0) {
        atomic_fetch_add_explicit(&m->p->held_bytes, in->file.file_bytes - in->replaced_bytes,
                                  memory_order_relaxed);
        atomic_fetch_add_explicit(&m->p->received, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&m->p->received_bytes, in->file.info.id.size,
                                  memory_order_relaxed);
    }
    vvi_infile_end(&in->file);
    in->on = false;
}

static void take_piece(struct move *m, uint32_t from, const struct vv_wire_part *part)
{
    struct incoming *in = &m->in[from];
    const struct vvi_part_msg *msg = part->data;
    if (part->bytes < sizeof(*msg))
        return;
    if (msg->kind == VVI_PART_END) {
        end_file(m, in, msg->status);
        return;
    }
    if (part->bytes <= VVI_PART_LEAD || in->status < 0)
        return;
    const char *data = (const char *)part->data + VVI_PART_LEAD;
    size_t bytes = part->bytes - VVI_PART_LEAD;
    if (msg->kind == VVI_PART_TABLES) {
        in->status = begin_file(m, from, in, data, bytes);
        in->on = in->status == 0;
    } else if (in->on) {
        in->status = vvi_infile_data(&in->file, msg->offset, data, bytes);
    }
}

static int one_round(struct move *m, bool *ret_more)
{
    bool busy = false;
    uint64_t most = 0;
    for (uint32_t i = 0; i < m->ranks; i++) {
        m->send[i] = m->receive[i] = (struct vv_wire_part){0};
        if (m->out[i].on)
            next_piece(&m->out[i], &m->send[i]);
        busy = busy || m->out[i].on;
    }
    int rc = vvi_partner_exchange(m->p, m->send, m->receive);
    vvi_parts_free(m->send, m->ranks);
    for (uint32_t i = 0; rc == 0 && i < m->ranks; i++)
        take_piece(m, i, &m->receive[i]);
    if (rc == 0)
        vvi_parts_free(m->receive, m->ranks);
    if (rc == 0)
        rc = vvi_partner_most(m->p, busy, &most);
    *ret_more = most != 0;
    return rc;
}

static int all_rounds(struct move *m)
{
    uint64_t any = 0;
    bool more = false;
    int rc;
    for (uint32_t i = 0; i < m->ranks; i++)
        more = more || m->out[i].on;
    rc = vvi_partner_most(m->p, more, &any);
    more = any != 0;
    while (rc == 0 && more)
        rc = one_round(m, &more);
    return rc;
}

static void begin_out(struct move *m, uint32_t to, int dirfd, const struct vv_ckfile_id *id)
{
    struct vv_partner *p = m->p;
    struct outgoing *o = &m->out[to];
    o->on = true;
    o->status = vvi_outfile_begin(&o->file, p->os, dirfd, p->opts.folder->direct, id);
}

/* ---- fetch and push ---- */

/* Exchanges which process wants which file, and opens the files that others want. */
static int hear_wants(struct move *m, const char *history, const struct vvi_pmove *want,
                      int home_fd)
{
    struct vv_partner *p = m->p;
    struct vvi_pmove w = {0};
    int dirfd = -1;
    if (want) {
        w = *want;
        m->send[want->peer] = (struct vv_wire_part){&w, sizeof(w)};
    }
    int rc = vvi_partner_exchange(p, m->send, m->receive);
    if (rc < 0)
        return rc;
    vv_mutex_lock(&p->step);
    int status = vvi_held_folder(p, history, &dirfd);
    vv_mutex_unlock(&p->step);
    for (uint32_t i = 0; i < m->ranks; i++) {
        if (m->receive[i].bytes != sizeof(w))
            continue;
        memcpy(&w, m->receive[i].data, sizeof(w));
        if (status == 0)
            begin_out(m, i, w.home ? home_fd : dirfd, &w.id);
        else
            m->out[i] = (struct outgoing){.on = true, .status = status, .file.fd = -1};
    }
    vvi_parts_free(m->receive, m->ranks);
    return 0;
}

int vvi_partner_fetch(struct vv_partner *p, const char *history, const struct vvi_pmove *want,
                      int home_fd, int dirfd, bool *ret_got)
{
    struct move m;
    int rc = move_init(&m, p, dirfd);
    if (rc == 0)
        rc = hear_wants(&m, history, want, home_fd);
    if (rc == 0)
        rc = all_rounds(&m);
    *ret_got = rc == 0 && want && m.in[want->peer].stored;
    move_fini(&m);
    return rc;
}

int vvi_partner_push(struct vv_partner *p, const char *history, const struct vvi_pmove *give,
                     int dirfd, bool *ret_stored)
{
    struct move m;
    static const char stored[1] = {1};
    (void)history; /* the file's header has it */
    *ret_stored = false;
    int rc = move_init(&m, p, -1);
    if (rc == 0 && give)
        begin_out(&m, give->peer, dirfd, &give->id);
    if (rc == 0)
        rc = all_rounds(&m);
    for (uint32_t i = 0; rc == 0 && i < m.ranks; i++) {
        m.send[i] = m.receive[i] = (struct vv_wire_part){0};
        if (m.in[i].stored)
            m.send[i] = (struct vv_wire_part){(void *)(uintptr_t)stored, sizeof(stored)};
    }
    if (rc == 0)
        rc = vvi_partner_exchange(p, m.send, m.receive);
    if (rc == 0) {
        *ret_stored = give && m.receive[give->peer].bytes == sizeof(stored);
        if (*ret_stored) {
            uint64_t bytes = m.out[give->peer].file.info.id.size;
            atomic_fetch_add_explicit(&p->sent, 1, memory_order_relaxed);
            atomic_fetch_add_explicit(&p->sent_bytes, bytes, memory_order_relaxed);
        }
        vvi_parts_free(m.receive, m.ranks);
    }
    move_fini(&m);
    return rc;
}
