/* SPDX-License-Identifier: Apache-2.0 */
/* Partner copies: one step of sending, receiving and storing.
 *
 * A copy from here to the partner:
 *
 *     TABLES  ->          header and tables of the file
 *             <-  ACK     the file is begun under its temporary name
 *     DATA    ->          pieces in order, at most a few without an answer
 *             <-  ACK     each
 *             <-  STORED  after the last: the file is committed; or FAILED at any time
 *
 * Each copy has a number; an answer with another number is about an abandoned copy, and is ignored. A receiver has at
 * most one file from each process: a new one ends the old one. Both sides give up when nothing has come for the
 * timeout. Nothing here waits.
 *
 * DROP removes a file, even one that is being received. DONE: see partner.c.
 *
 * Everything here runs with `step` held. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/budget.h"
#include "store/partner/partner_private.h"

#define TICK_MOST_NS (100 * VV_NS_PER_MS)
enum { RECEIVE_MAX = 16 };

/* ---- sending ---- */

int vvi_partner_send(struct vv_partner *p, uint32_t to, void *mem, size_t bytes,
                     const struct vvi_part_msg *msg)
{
    const struct vv_wire *w = &p->opts.wire;
    struct vvi_part_msg *m = mem;
    if (!mem) {
        m = calloc(1, sizeof(*m));
        bytes = sizeof(*m);
        if (!m)
            return -ENOMEM;
    }
    *m = *msg;
    memcpy(m->magic, VVI_PART_MAGIC, sizeof(m->magic));
    m->run_id = p->opts.run_id;
    return w->send(w->arg, to, m, bytes);
}

/* If an answer cannot be sent, the other side gets none, and gives up. */
static void answer(struct vv_partner *p, uint32_t to, enum vvi_part_kind kind, uint64_t id,
                   int status)
{
    struct vvi_part_msg msg = {.kind = kind, .status = status, .transfer = id};
    int rc = vvi_partner_send(p, to, NULL, 0, &msg);
    (void)rc;
}

static bool send_notes(struct vv_partner *p)
{
    vv_mutex_lock(&p->lock);
    struct vvi_pnote *list = p->notes;
    p->notes = NULL;
    p->notes_tail = &p->notes;
    vv_mutex_unlock(&p->lock);
    bool any = list;
    for (struct vvi_pnote *next; list; list = next) {
        next = list->next;
        for (uint32_t i = 0; i < p->npeers; i++) {
            int rc = vvi_partner_send(p, p->peer[i], NULL, 0, &list->msg);
            (void)rc; /* a surplus file stays until the history is opened again */
        }
        free(list);
    }
    return any;
}

/* ---- the current copy ---- */

/* status < 0: it has failed. */
static void end_out(struct vv_partner *p, int status)
{
    struct vvi_pout *o = &p->out;
    if (!o->on)
        return;
    if (status == 0) {
        atomic_fetch_add_explicit(&p->sent, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&p->sent_bytes, o->file.info.id.size, memory_order_relaxed);
    }
    vv_mutex_lock(&p->lock);
    struct vvi_pentry *e = vvi_partner_find_locked(o->hist, o->version, o->generation);
    if (e)
        vvi_partner_copied_locked(p, e, status);
    vv_cond_broadcast(&p->changed);
    vv_mutex_unlock(&p->lock);
    vvi_outfile_end(&o->file);
    *o = (struct vvi_pout){.file.fd = -1};
}

void vvi_partner_stop_out(struct vv_partner *p, const struct vv_partner_hist *hist)
{
    if (!p->out.on || (hist && p->out.hist != hist))
        return;
    vvi_outfile_end(&p->out.file);
    p->out = (struct vvi_pout){.file.fd = -1};
}

/* The partner does not answer: all copies fail now, not one timeout after the other. */
static void give_up_all(struct vv_partner *p, int status)
{
    end_out(p, status);
    vv_mutex_lock(&p->lock);
    for (struct vv_partner_hist *h = p->hists; h; h = h->next)
        for (size_t i = 0; i < h->n; i++)
            if (!h->entry[i].copied && h->entry[i].err == 0)
                h->entry[i].err = status;
    p->silent = true;
    p->news = true;
    vv_cond_broadcast(&p->changed);
    vv_mutex_unlock(&p->lock);
}

/* The partner answers again: copies that failed because it did not are tried again. */
static void heard_of_partner(struct vv_partner *p)
{
    vv_mutex_lock(&p->lock);
    for (struct vv_partner_hist *h = p->silent ? p->hists : NULL; h; h = h->next) {
        for (size_t i = 0; i < h->n; i++)
            if (h->entry[i].err == -ETIMEDOUT)
                vvi_partner_again_locked(h, &h->entry[i]);
    }
    p->silent = false;
    vv_mutex_unlock(&p->lock);
}

static bool next_out(struct vv_partner *p)
{
    struct vvi_pout *o = &p->out;
    vv_mutex_lock(&p->lock);
    for (struct vv_partner_hist *h = p->hists; h && !o->on; h = h->next) {
        while (h->low < h->n && h->entry[h->low].reported)
            h->low++;
        size_t at = h->low;
        while (at < h->n && (h->entry[at].copied || h->entry[at].err != 0))
            at++;
        if (at < h->n)
            *o = (struct vvi_pout){.on = true,
                                   .hist = h,
                                   .version = h->entry[at].version,
                                   .generation = h->entry[at].generation,
                                   .id = ++p->next_id,
                                   .last_ns = p->clock_ns,
                                   .file.fd = -1};
    }
    vv_mutex_unlock(&p->lock);
    return o->on;
}

static int begin_out(struct vv_partner *p)
{
    struct vvi_pout *o = &p->out;
    const struct vv_files *files = o->hist->files;
    struct vv_ckfile_id id = {
        .rank = files->rank, .version = o->version, .generation = o->generation};
    struct vvi_part_msg msg = {.kind = VVI_PART_TABLES, .transfer = o->id};
    void *mem;
    size_t bytes;
    int rc = vvi_outfile_begin(&o->file, p->os, files->dirfd, files->folder->direct, &id);
    if (rc == 0)
        rc = vvi_outfile_tables(&o->file, VVI_PART_LEAD, &mem, &bytes);
    if (rc == 0)
        rc = vvi_partner_send(p, p->to, mem, bytes, &msg);
    o->unacked = 1;
    return rc;
}

static int piece_out(struct vv_partner *p)
{
    struct vvi_pout *o = &p->out;
    struct vvi_part_msg msg = {.kind = VVI_PART_DATA, .transfer = o->id};
    void *mem;
    size_t bytes;
    int rc = vvi_outfile_next(&o->file, VVI_PART_LEAD, &mem, &bytes, &msg.offset);
    if (rc == 0)
        rc = vvi_partner_send(p, p->to, mem, bytes, &msg);
    if (rc == 0)
        o->unacked++;
    return rc;
}

/* True if the file was removed meanwhile: its DROP is among the notes, or was sent. */
static bool out_is_gone(struct vv_partner *p)
{
    vv_mutex_lock(&p->lock);
    bool gone = !vvi_partner_find_locked(p->out.hist, p->out.version, p->out.generation);
    vv_mutex_unlock(&p->lock);
    return gone;
}

static bool step_out(struct vv_partner *p)
{
    struct vvi_pout *o = &p->out;
    if (!o->on) {
        if (!next_out(p))
            return false;
        int rc = begin_out(p);
        if (rc < 0)
            end_out(p, rc);
        return true;
    }
    if (out_is_gone(p)) {
        end_out(p, -ECANCELED);
        return true;
    }
    if (p->clock_ns - o->last_ns >= p->opts.timeout_ns) {
        give_up_all(p, -ETIMEDOUT);
        return true;
    }
    if (!o->started || o->unacked >= VVI_PART_WINDOW || vvi_outfile_over(&o->file))
        return false;
    /* Flushes yield to restores of other processes, once for each piece. */
    uint64_t now_ns = vv_now_ns();
    if (o->due_ns == 0 && p->opts.disk)
        o->due_ns = vv_budget_yield_until(p->opts.disk, now_ns);
    if (o->due_ns > now_ns)
        return false;
    o->due_ns = 0;
    int rc = piece_out(p);
    if (rc < 0)
        end_out(p, rc);
    return true;
}

static void on_answer(struct vv_partner *p, uint32_t from, const struct vvi_part_msg *m)
{
    struct vvi_pout *o = &p->out;
    if (!o->on || from != p->to || m->transfer != o->id)
        return;
    o->last_ns = p->clock_ns;
    if (m->kind == VVI_PART_ACK) {
        o->started = true;
        o->unacked -= o->unacked > 0;
    } else {
        end_out(p, m->kind == VVI_PART_STORED ? 0 : m->status < 0 ? m->status : -EIO);
    }
}

/* ---- copies being received ---- */

static struct vvi_pin **find_in(struct vv_partner *p, uint32_t from)
{
    struct vvi_pin **at = &p->in;
    while (*at && (*at)->from != from)
        at = &(*at)->next;
    return at;
}

static void end_in(struct vvi_pin **at)
{
    struct vvi_pin *in = *at;
    if (!in)
        return;
    *at = in->next;
    vvi_infile_end(&in->file);
    free(in);
}

static void fail_in(struct vv_partner *p, struct vvi_pin **at, int status)
{
    answer(p, (*at)->from, VVI_PART_FAILED, (*at)->id, status);
    end_in(at);
}

/* All pieces have come. */
static void store_in(struct vv_partner *p, struct vvi_pin **at)
{
    struct vvi_pin *in = *at;
    int rc = vvi_infile_commit(&in->file);
    if (rc < 0) {
        fail_in(p, at, rc);
        return;
    }
    atomic_fetch_add_explicit(&p->held_bytes, in->file.file_bytes - in->replaced_bytes,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&p->received, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->received_bytes, in->file.info.id.size, memory_order_relaxed);
    answer(p, in->from, VVI_PART_STORED, in->id, 0);
    end_in(at);
}

int vvi_partner_begin_in(struct vv_partner *p, uint32_t from, const void *tables, size_t bytes,
                         struct vvi_infile *ret_file, uint64_t *ret_replaced_bytes)
{
    struct vv_ckfile_id id;
    char history[VV_CKFILE_HISTORY_MAX + 1];
    uint64_t file_bytes, replaced;
    int dirfd, rc = vvi_piece_about(tables, bytes, &id, history, &file_bytes);
    if (rc == 0 && id.rank != from)
        rc = -EBADMSG;
    if (rc == 0)
        rc = vvi_held_folder(p, history, &dirfd);
    if (rc < 0)
        return rc;
    replaced = vvi_held_file_bytes(p, dirfd, &id);
    uint64_t held = atomic_load_explicit(&p->held_bytes, memory_order_relaxed) - replaced;
    for (const struct vvi_pin *in = p->in; in; in = in->next)
        held += in->file.file_bytes; /* not complete yet */
    if (!vvi_held_fits(p, held + file_bytes))
        return -ENOSPC;
    rc = vvi_infile_begin(ret_file, p->os, dirfd, p->opts.folder->direct, tables, bytes);
    if (rc == 0)
        *ret_replaced_bytes = replaced;
    return rc;
}

static void on_tables(struct vv_partner *p, uint32_t from, const struct vvi_part_msg *m,
                      size_t bytes)
{
    struct vvi_pin **at = find_in(p, from), *in = calloc(1, sizeof(*in));
    end_in(at);
    if (!in) {
        answer(p, from, VVI_PART_FAILED, m->transfer, -ENOMEM);
        return;
    }
    *in = (struct vvi_pin){
        .next = p->in, .from = from, .id = m->transfer, .last_ns = p->clock_ns, .file.fd = -1};
    p->in = in;
    int rc = vvi_partner_begin_in(p, from, (const char *)m + VVI_PART_LEAD, bytes - VVI_PART_LEAD,
                                  &in->file, &in->replaced_bytes);
    if (rc < 0)
        fail_in(p, &p->in, rc);
    else if (vvi_infile_over(&in->file))
        store_in(p, &p->in);
    else
        answer(p, from, VVI_PART_ACK, m->transfer, 0);
}

static void on_data(struct vv_partner *p, uint32_t from, const struct vvi_part_msg *m, size_t bytes)
{
    struct vvi_pin **at = find_in(p, from);
    if (!*at || (*at)->id != m->transfer)
        return;
    (*at)->last_ns = p->clock_ns;
    int rc = vvi_infile_data(&(*at)->file, m->offset, (const char *)m + VVI_PART_LEAD,
                             bytes - VVI_PART_LEAD);
    if (rc < 0)
        fail_in(p, at, rc);
    else if (vvi_infile_over(&(*at)->file))
        store_in(p, at);
    else
        answer(p, from, VVI_PART_ACK, m->transfer, 0);
}

static void on_drop(struct vv_partner *p, uint32_t from, const struct vvi_part_msg *m)
{
    struct vv_ckfile_id id = {.rank = from, .version = m->version, .generation = m->generation};
    struct vvi_pin **at = find_in(p, from);
    if (!memchr(m->name, 0, VV_CKFILE_HISTORY_MAX + 1) || !vv_files_name_ok(m->name))
        return;
    if (*at && (*at)->file.info.id.version == m->version &&
        (*at)->file.info.id.generation == m->generation &&
        strcmp((*at)->file.info.history, m->name) == 0)
        end_in(at);
    int rc = vvi_held_drop(p, m->name, &id);
    (void)rc; /* it is dropped when the history is opened again */
}

static void on_done(struct vv_partner *p, uint32_t from, const struct vvi_part_msg *m)
{
    uint32_t who = 0;
    while (who < p->nfrom && p->from[who] != from)
        who++;
    if (who == p->nfrom)
        return;
    vv_mutex_lock(&p->lock);
    vvi_partner_mark_locked(p, who, m->history, m->whole != 0, m->version);
    vv_mutex_unlock(&p->lock);
}

/* Ends a file whose sender has stopped sending. */
static bool expire_in(struct vv_partner *p)
{
    for (struct vvi_pin **at = &p->in; *at; at = &(*at)->next) {
        if (p->clock_ns - (*at)->last_ns < p->opts.timeout_ns)
            continue;
        end_in(at);
        return true;
    }
    return false;
}

/* ---- one step ---- */

static bool ours(const struct vv_partner *p, const struct vvi_part_msg *m, size_t bytes)
{
    return bytes >= sizeof(*m) && memcmp(m->magic, VVI_PART_MAGIC, sizeof(m->magic)) == 0 &&
           m->run_id == p->opts.run_id;
}

static void on_message(struct vv_partner *p, uint32_t from, const struct vvi_part_msg *m,
                       size_t bytes)
{
    if (from == p->to)
        heard_of_partner(p);
    switch (m->kind) {
    case VVI_PART_TABLES:
    case VVI_PART_DATA:
        if (bytes <= VVI_PART_LEAD)
            return;
        (m->kind == VVI_PART_DATA ? on_data : on_tables)(p, from, m, bytes);
        return;
    case VVI_PART_ACK:
    case VVI_PART_STORED:
    case VVI_PART_FAILED:
        on_answer(p, from, m);
        return;
    case VVI_PART_DROP:
        on_drop(p, from, m);
        return;
    case VVI_PART_DONE:
        on_done(p, from, m);
        return;
    default:
        return;
    }
}

bool vvi_partner_step(struct vv_partner *p)
{
    const struct vv_wire *w = &p->opts.wire;
    uint64_t now_ns = vv_now_ns(), ticked_ns = now_ns - p->seen_ns;
    bool did = false;
    p->clock_ns += VV_MIN(ticked_ns, TICK_MOST_NS);
    p->seen_ns = now_ns;
    for (int i = 0; i < RECEIVE_MAX; i++) {
        uint32_t from;
        void *message;
        size_t bytes;
        int rc = w->receive(w->arg, &from, &message, &bytes);
        if (rc == -EAGAIN)
            break;
        if (rc < 0) {
            give_up_all(p, rc);
            break;
        }
        bool kept = false;
        if (ours(p, message, bytes) && p->k > 0)
            kept = vvi_parity_message(p, from, message, bytes);
        if (ours(p, message, bytes) &&
            (p->k == 0 || ((struct vvi_part_msg *)message)->kind == VVI_PART_DONE))
            on_message(p, from, message, bytes);
        if (!kept)
            free(message);
        did = true;
    }
    did |= send_notes(p);
    did |= p->k > 0 ? vvi_parity_step(p) : step_out(p);
    did |= expire_in(p);
    return did;
}
