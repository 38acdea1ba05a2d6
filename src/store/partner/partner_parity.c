/* SPDX-License-Identifier: Apache-2.0 */
/* Parity behind the commits: applies the rules (parity_rules.h) to each version, carries out their orders, and
 * exchanges messages.
 *
 *     HAVE     ->      to all of the set: a file is committed here
 *     GIVE     ->      for each window of its parity, to each member whose segment is needed
 *              <- PIECE    the range, verified when it was read
 *     MADE     ->      to all: the parity is committed; UNMADE: it is not
 *     GONE     ->      to all: the file was removed, and there is no other of its version
 *
 * Each process makes one parity at a time. If a version is overwritten, the new file is announced when the one
 * announced before is safe, has failed, or is removed, or when other members have written the version more often. So
 * processes that overwrite without waiting come to announce files of one run, although each may have skipped others.
 *
 * Invariant: a member that has sent MADE keeps that parity and its own file of that layout until a later layout is
 * safe, or vv_parity_relies says that no member relies on it. The engine does not know this: a file that it removes
 * too early is put aside, in the folder of the parity.
 *
 * Rules are changed with `lock` held, files and messages with `step`. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/budget.h"
#include "store/partner/partner_private.h"

/* ---- versions ---- */

static struct vvi_pver *find_locked(const struct vv_partner_hist *h, uint64_t version)
{
    for (size_t i = h->nver; i-- > 0;)
        if (h->ver[i]->rules.version == version)
            return h->ver[i];
    return NULL;
}

static struct vvi_pver *get_locked(struct vv_partner_hist *h, uint64_t version)
{
    struct vv_partner *p = h->partner;
    struct vvi_pver *v = find_locked(h, version), **more;
    if (v)
        return v;
    v = calloc(1, sizeof(*v));
    more = vv_is_pow2(h->nver + 1) ? realloc(h->ver, 2 * (h->nver + 1) * sizeof(*more)) : h->ver;
    if (more)
        h->ver = more;
    if (!v || !more) {
        free(v);
        return NULL;
    }
    vv_parity_init(&v->rules, version, p->n, p->k, p->me, p->member);
    return h->ver[h->nver++] = v;
}

static void free_ver(struct vvi_pver *v)
{
    free(v->kept);
    free(v);
}

void vvi_parity_forget(struct vv_partner_hist *h)
{
    for (size_t i = 0; i < h->nver; i++)
        free_ver(h->ver[i]);
    free(h->ver);
    h->ver = NULL;
    h->nver = 0;
}

/* Frees a version that no member has any more. */
static void forget_locked(struct vv_partner_hist *h, struct vvi_pver *v)
{
    for (uint32_t i = 0; i < v->rules.n; i++)
        if (v->rules.file[i].generation != 0)
            return;
    if (v->nkept > 0 || v->look)
        return;
    for (size_t i = 0; i < h->nver; i++)
        if (h->ver[i] == v)
            h->ver[i] = h->ver[--h->nver];
    free_ver(v);
}

/* The highest edition that any member has announced. */
static uint32_t furthest(const struct vvi_pver *v)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < v->rules.n; i++)
        if (v->rules.file[i].generation != 0)
            most = VV_MAX(most, v->edition[i]);
    return most;
}

/* The next file of this process to announce: the next one in the order of writing that others have not skipped; if
 * there is none, the last. */
static struct vvi_pentry *next_file_locked(struct vv_partner_hist *h, const struct vvi_pver *v)
{
    uint64_t now = v->rules.file[v->rules.me].generation;
    struct vvi_pentry *e = NULL;
    for (size_t i = h->n; i-- > 0;) {
        if (h->entry[i].version != v->rules.version || h->entry[i].err != 0 || h->entry[i].lone ||
            h->entry[i].generation <= now || (now != 0 && h->entry[i].edition < furthest(v)))
            continue;
        e = &h->entry[i];
        if (now == 0)
            break;
    }
    return e;
}

/* ---- orders of the rules ---- */

static void say_locked(struct vv_partner_hist *h, const struct vvi_pver *v, uint32_t kind,
                       uint64_t generation, uint64_t sum)
{
    const struct vv_parity_version *r = &v->rules;
    const struct vv_parity_file *f = &r->file[r->me];
    struct vvi_part_msg msg = {.kind = kind,
                               .status = kind == VVI_PART_UNMADE ? r->status : 0,
                               .history = h->sum,
                               .version = r->version,
                               .generation = generation,
                               .say = {.sum = sum,
                                       .relied = r->safe_sum,
                                       .total = vv_parity_total(r),
                                       .run_id = f->run_id,
                                       .bytes = f->bytes,
                                       .chunk_bytes = f->chunk_bytes,
                                       .edition = v->edition[r->me]}};
    vvi_partner_note_locked(h->partner, &msg);
}

static void look_locked(struct vv_partner_hist *h, struct vvi_pver *v)
{
    h->looks += !v->look;
    v->look = true;
    vv_cond_signal(&h->partner->work);
}

/* Sets the result of an entry, which is reported even if `low` has passed it. */
static void copied_locked(struct vv_partner_hist *h, struct vvi_pentry *e, int status)
{
    vvi_partner_copied_locked(h->partner, e, status);
    h->low = VV_MIN(h->low, (size_t)(e - h->entry));
}

/* Marks parity that is no longer needed. */
static void sweep_locked(struct vv_partner_hist *h, struct vvi_pver *v, bool safe)
{
    const struct vv_parity_version *r = &v->rules;
    bool any = false;
    for (uint32_t i = 0; i < r->n; i++)
        any = any || r->file[i].generation != 0;
    for (size_t i = 0; i < h->n && !any; i++)
        any = h->entry[i].version == r->version;
    for (uint32_t i = 0; i < v->nkept; i++) {
        struct vvi_pkept *k = &v->kept[i];
        if (k->goes || (k->sum == r->sum && r->sum != 0))
            continue;
        bool needed = k->old ? any : k->sum == r->safe_sum || vv_parity_relies(r, k->sum, k->total);
        if (needed && !safe)
            continue;
        k->goes = true;
        h->goes++;
        vv_cond_signal(&h->partner->work);
    }
}

static void carry_out_locked(struct vv_partner_hist *h, struct vvi_pver *v, unsigned orders)
{
    struct vv_partner *p = h->partner;
    struct vv_parity_version *r = &v->rules;
    v->since_ns = 0;
    p->due = p->due || r->state == VV_PARITY_DUE;
    if (orders & VV_PARITY_TELL_MADE)
        say_locked(h, v, VVI_PART_MADE, 0, r->sum);
    if (orders & VV_PARITY_TELL_FAILED)
        say_locked(h, v, VVI_PART_UNMADE, 0, r->sum);
    if (orders & VV_PARITY_TELL_AGAIN)
        say_locked(h, v, VVI_PART_AGAIN, 0, r->sum);
    if (orders & VV_PARITY_REPORT) {
        struct vvi_pentry *e = vvi_partner_find_locked(h, r->version, r->file[r->me].generation);
        bool safe = r->state == VV_PARITY_SAFE;
        if (e && !(safe && e->copied))
            copied_locked(h, e, safe ? 0 : r->status < 0 ? r->status : -EIO);
        if (e)
            e->lone = false;
        if (e && safe)
            atomic_fetch_add_explicit(&p->sent, 1, memory_order_relaxed);
        v->late = false;
        look_locked(h, v);
    }
    sweep_locked(h, v, (orders & VV_PARITY_DROP_OLD) != 0);
    vv_cond_signal(&p->work);
    vv_cond_broadcast(&p->changed);
}

/* ---- events of this process ---- */

void vvi_parity_committed_locked(struct vv_partner_hist *h, uint64_t version)
{
    struct vvi_pver *v = get_locked(h, version);
    if (v)
        look_locked(h, v);
    else
        atomic_fetch_add_explicit(&h->partner->errors, 1, memory_order_relaxed);
}

void vvi_parity_again_locked(struct vv_partner_hist *h, uint64_t version)
{
    struct vvi_pver *v = find_locked(h, version);
    if (!v)
        return;
    v->late = false;
    carry_out_locked(h, v, vv_parity_again(&v->rules, 0));
    look_locked(h, v);
}

static void lack_locked(struct vv_partner_hist *h, uint64_t version, uint32_t edition, int status)
{
    struct vvi_part_msg msg = {.kind = VVI_PART_LACK,
                               .status = status,
                               .history = h->sum,
                               .version = version,
                               .say.edition = VV_MAX(edition, 1u)};
    vvi_partner_note_locked(h->partner, &msg);
}

void vvi_parity_unwritten(struct vv_partner_hist *h, uint64_t version, uint32_t edition, int status)
{
    vv_mutex_lock(&h->partner->lock);
    lack_locked(h, version, edition, status);
    vv_mutex_unlock(&h->partner->lock);
}

static bool aside_locked(struct vvi_pver *v, uint64_t generation)
{
    bool aside = false;
    for (uint32_t i = 0; i < v->nkept; i++) {
        struct vvi_pkept *k = &v->kept[i];
        if (k->generation != generation || k->goes)
            continue;
        k->aside = true;
        aside = true;
    }
    return aside;
}

int vvi_parity_removing(struct vv_partner_hist *h, uint64_t version, uint64_t generation)
{
    struct vv_partner *p = h->partner;
    const struct vv_os *os = p->os;
    char name[VV_CKFILE_NAME_MAX], to[2 * VV_CKFILE_NAME_MAX + VV_CKFILE_HISTORY_MAX];
    uint64_t bytes;
    bool aside = false, older;
    vvi_partner_removed(h, version, generation);
    vv_mutex_lock(&p->lock);
    struct vvi_pver *v = find_locked(h, version);
    if (v && v->rules.file[p->me].generation == generation) {
        bool other = false, higher = false;
        for (size_t i = 0; i < h->n; i++) {
            other = other || h->entry[i].version == version;
            higher =
                higher || (h->entry[i].version == version && h->entry[i].generation > generation);
        }
        uint64_t safe = v->rules.state == VV_PARITY_SAFE ? v->rules.sum : 0;
        unsigned orders = vv_parity_gone(&v->rules, p->me, generation);
        if (!other)
            v->rules.safe_sum = 0;
        if (!higher) /* a higher one is announced instead */
            say_locked(h, v, VVI_PART_GONE, generation, safe);
        carry_out_locked(h, v, orders);
        look_locked(h, v);
    }
    if (v) {
        sweep_locked(h, v, false);
        aside = aside_locked(v, generation);
    }
    vv_mutex_unlock(&p->lock);
    if (!aside)
        return 0;
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, h->files->rank, version, generation);
    snprintf(to, sizeof(to), "../%s/%s/%s", VV_PARITY_FOLDER, h->files->history, name);
    const struct vv_store_key key = {h->files, version, generation};
    /* As for every removal: while an older file of the version stays, this one stays. */
    int rc = vvi_obj_remove_older(h->files, &key, &older);
    if (rc == 0)
        rc = os->rename(os, h->files->dirfd, name, to, true);
    /* The file is missing if an earlier attempt has moved it. Or the folder of the parity is. */
    if (rc == -ENOENT && os->stat(os, h->files->dirfd, name, &bytes) == -ENOENT)
        rc = 0;
    if (rc == 0) {
        atomic_store(&h->files->removal_unsynced, true); /* the inner store finds no file */
        rc = os->fsync(os, h->held_fd);
    }
    vv_mutex_lock(&p->lock); /* it may have become superfluous meanwhile */
    v = find_locked(h, version);
    aside = v && aside_locked(v, generation);
    vv_mutex_unlock(&p->lock);
    if (rc == 0 && !aside) {
        rc = os->unlinkat(os, h->held_fd, name);
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

static int keep_locked(struct vvi_pver *v, const struct vvi_pkept *kept)
{
    struct vvi_pkept *more = realloc(v->kept, (v->nkept + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    v->kept = more;
    v->kept[v->nkept++] = *kept;
    return 0;
}

int vvi_parity_found(struct vv_partner_hist *h, const struct vv_parity_layout *l, bool aside)
{
    struct vvi_pkept kept = {.sum = l->sum,
                             .total = UINT64_MAX,
                             .generation = l->file[l->me].generation,
                             .old = true,
                             .aside = aside};
    vv_mutex_lock(&h->partner->lock);
    struct vvi_pver *v = get_locked(h, l->version);
    int rc = v ? keep_locked(v, &kept) : -ENOMEM;
    vv_mutex_unlock(&h->partner->lock);
    return rc;
}

/* ---- steps ---- */

/* Reads the identity of a file, and announces the file to the others. */
static void announce(struct vv_partner *p, struct vv_partner_hist *h, uint64_t version,
                     uint64_t generation)
{
    const struct vv_files *files = h->files;
    struct vv_parity_file file = {.generation = generation};
    struct vv_parity_in in;
    int rc = vv_parity_in_begin(&in, p->os, files->dirfd, files->folder->direct, false, files->rank,
                                version, generation);
    if (rc == 0) {
        file.run_id = in.info.id.run_id;
        file.bytes = in.bytes;
        file.chunk_bytes = in.info.id.chunk_bytes;
        vv_parity_in_end(&in);
    }
    vv_mutex_lock(&p->lock);
    struct vvi_pver *v = find_locked(h, version);
    struct vvi_pentry *e = vvi_partner_find_locked(h, version, generation);
    if (v && e && rc < 0) {
        copied_locked(h, e, rc);
        lack_locked(h, version, e->edition, rc);
        vv_cond_broadcast(&p->changed);
    }
    if (v && e && rc == 0) {
        v->edition[p->me] = e->edition;
        unsigned orders = vv_parity_have(&v->rules, p->me, &file);
        v->late = false;
        say_locked(h, v, VVI_PART_HAVE, generation, v->rules.sum);
        carry_out_locked(h, v, orders);
    }
    vv_mutex_unlock(&p->lock);
}

/* True if another file may be announced now. */
static bool settled(const struct vvi_pver *v)
{
    const struct vv_parity_version *r = &v->rules;
    uint64_t now = r->file[r->me].generation;
    return now == 0 || r->state == VV_PARITY_SAFE || r->state == VV_PARITY_FAILED || v->late ||
           (r->state == VV_PARITY_LONE && v->edition[r->me] < furthest(v));
}

static bool step_look(struct vv_partner *p)
{
    struct vv_partner_hist *h = NULL;
    uint64_t version = 0, generation = 0;
    vv_mutex_lock(&p->lock);
    for (h = p->hists; h; h = h->next)
        if (h->looks > 0 && h->report)
            break;
    if (!h) {
        vv_mutex_unlock(&p->lock);
        return false;
    }
    h->looks = 0;
    for (size_t i = 0; i < h->nver; i++)
        h->looks += h->ver[i]->look;
    for (size_t i = 0; i < h->nver; i++) {
        struct vvi_pver *v = h->ver[i];
        if (!v->look)
            continue;
        v->look = false;
        h->looks--;
        struct vvi_pentry *e = settled(v) ? next_file_locked(h, v) : NULL;
        if (e) {
            version = e->version;
            generation = e->generation;
        } else {
            forget_locked(h, v);
        }
        break;
    }
    vv_mutex_unlock(&p->lock);
    if (generation != 0)
        announce(p, h, version, generation);
    return true;
}

/* Removes a parity that is not needed, and the file that was put aside with it. */
static bool step_drop(struct vv_partner *p)
{
    struct vvi_pkept gone = {0};
    uint64_t version = 0;
    struct vv_partner_hist *h;
    bool shared = false;
    vv_mutex_lock(&p->lock);
    for (h = p->hists; h && h->goes == 0;)
        h = h->next;
    for (size_t i = 0; h && i < h->nver && gone.sum == 0; i++) {
        struct vvi_pver *v = h->ver[i];
        for (uint32_t k = 0; k < v->nkept && gone.sum == 0; k++) {
            if (!v->kept[k].goes)
                continue;
            gone = v->kept[k];
            version = v->rules.version;
            v->kept[k] = v->kept[--v->nkept];
        }
        for (uint32_t k = 0; gone.sum != 0 && k < v->nkept; k++)
            shared = shared || v->kept[k].generation == gone.generation;
        if (gone.sum != 0)
            look_locked(h, v);
    }
    if (h)
        h->goes = gone.sum != 0 ? h->goes - 1 : 0;
    vv_mutex_unlock(&p->lock);
    if (gone.sum == 0)
        return false;
    struct vv_ckfile_id id = {
        .rank = h->files->rank, .version = version, .generation = gone.generation};
    int rc = 0;
    /* The file first: an opening finds it by its parity. */
    if (gone.aside && !shared)
        rc = vvi_held_drop(p, h->files->history, &id);
    id.generation = gone.sum;
    if (rc == 0)
        rc = vvi_held_drop(p, h->files->history, &id);
    (void)rc; /* it is found when the history is opened again */
    return true;
}

/* ---- making ---- */

static void end_making(struct vv_partner *p)
{
    vv_parity_make_fini(&p->making.make);
    vv_parity_out_end(&p->making.out);
    p->making = (struct vvi_pmaking){.out.fd = -1};
}

/* The version whose parity is being made; NULL: it is no longer needed. */
static struct vvi_pver *wanted_locked(struct vv_partner *p)
{
    const struct vvi_pmaking *m = &p->making;
    struct vvi_pver *v = find_locked(m->hist, m->version);
    return v && v->rules.state == VV_PARITY_BUSY && v->rules.sum == m->make.layout.sum ? v : NULL;
}

static void finish_making(struct vv_partner *p, int status)
{
    struct vvi_pmaking *m = &p->making;
    const struct vv_parity_layout *l = &m->make.layout;
    if (status == 0)
        status = vv_parity_out_commit(&m->out, m->hist->files->history);
    if (status == 0) {
        atomic_fetch_add_explicit(&p->held_bytes, m->out.bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&p->received, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&p->received_bytes, l->k * l->segment, memory_order_relaxed);
    }
    vv_mutex_lock(&p->lock);
    struct vvi_pver *v = wanted_locked(p), *any = find_locked(m->hist, m->version);
    struct vvi_pkept kept = {.sum = l->sum, .generation = l->file[l->me].generation};
    if (status == 0 && any) {
        kept.total = vv_parity_total(&any->rules);
        status = keep_locked(any, &kept);
    }
    if (v && status == 0 && !vvi_partner_find_locked(m->hist, m->version, kept.generation))
        status = -ECANCELED; /* the file was removed */
    if (v)
        carry_out_locked(m->hist, v, vv_parity_done(&v->rules, status));
    else if (any)
        sweep_locked(m->hist, any, false);
    vv_mutex_unlock(&p->lock);
    end_making(p);
}

/* Begins the first parity that is due. */
static bool begin_making(struct vv_partner *p)
{
    struct vvi_pmaking *m = &p->making;
    vv_mutex_lock(&p->lock);
    for (struct vv_partner_hist *h = p->due ? p->hists : NULL; h && !m->on; h = h->next)
        for (size_t i = 0; i < h->nver && !m->on; i++) {
            struct vvi_pver *v = h->ver[i];
            bool kept = false;
            if (v->rules.state != VV_PARITY_DUE)
                continue;
            for (uint32_t k = 0; k < v->nkept; k++)
                if (v->kept[k].sum == v->rules.sum) {
                    kept = true;
                    h->goes -= v->kept[k].goes;
                    v->kept[k].goes = false;
                    v->kept[k].old = false;
                    v->kept[k].total = vv_parity_total(&v->rules);
                }
            vv_parity_begin(&v->rules);
            if (kept) { /* made by an earlier life */
                carry_out_locked(h, v, vv_parity_done(&v->rules, 0));
                continue;
            }
            struct vv_parity_layout l;
            vv_parity_layout_fill(&l, &v->rules);
            if (!vv_parity_layout_ok(&l, sizeof(l))) { /* no opening would accept it */
                carry_out_locked(h, v, vv_parity_done(&v->rules, -EPROTO));
                continue;
            }
            *m = (struct vvi_pmaking){.on = true,
                                      .hist = h,
                                      .version = v->rules.version,
                                      .id = ++p->next_id,
                                      .last_ns = p->clock_ns,
                                      .out.fd = -1};
            vv_parity_make_init(&m->make, &l, true);
            for (uint32_t j = 0; j < l.n; j++)
                m->make.has[0][j] = true;
        }
    p->due = m->on;
    vv_mutex_unlock(&p->lock);
    return m->on;
}

/* Requests the ranges of the next window. */
static int ask(struct vv_partner *p)
{
    struct vvi_pmaking *m = &p->making;
    struct vv_parity_range r;
    int rc;
    while ((rc = vv_parity_make_next(&m->make, &r)) == 0) {
        struct vvi_part_msg msg = {.kind = VVI_PART_GIVE,
                                   .transfer = m->id,
                                   .history = m->hist->sum,
                                   .version = m->version,
                                   .generation = r.generation,
                                   .offset = r.offset,
                                   .say.bytes = r.bytes};
        m->last_ns = p->clock_ns;
        rc = vvi_partner_send(p, p->member[r.member], NULL, 0, &msg);
        if (rc < 0)
            return rc;
    }
    return rc == -EAGAIN ? 0 : rc;
}

static int write_window(struct vv_partner *p, bool *ret_did)
{
    struct vvi_pmaking *m = &p->making;
    uint64_t at, bytes;
    void *mem;
    *ret_did = vv_parity_make_ready(&m->make);
    if (!*ret_did)
        return 0;
    if (posix_memalign(&mem, VV_STORE_ALIGN, m->make.window) != 0)
        return -ENOMEM;
    int rc = vv_parity_make_window(&m->make, VVI_PART_LEAD, mem, &at, &bytes);
    if (rc == 0)
        rc = vv_parity_out_write(&m->out, mem, at, bytes);
    free(mem);
    return rc;
}

static bool step_make(struct vv_partner *p)
{
    struct vvi_pmaking *m = &p->making;
    bool did = false;
    int rc = 0;
    if (!m->on && !begin_making(p))
        return false;
    vv_mutex_lock(&p->lock);
    bool wanted = wanted_locked(p);
    vv_mutex_unlock(&p->lock);
    if (!wanted) {
        end_making(p);
        return true;
    }
    if (!m->begun) {
        m->begun = did = true;
        rc = vv_parity_out_begin(&m->out, p->os, m->hist->held_fd, p->opts.folder->direct,
                                 &m->make.layout, true);
        uint64_t held = atomic_load_explicit(&p->held_bytes, memory_order_relaxed);
        if (rc == 0 && !vvi_held_fits(p, held + m->out.bytes))
            rc = -ENOSPC;
    }
    /* Making parity yields to restores of other processes, once for each window. */
    uint64_t now_ns = vv_now_ns();
    if (m->make.bytes == 0 && m->due_ns == 0 && p->opts.disk)
        m->due_ns = vv_budget_yield_until(p->opts.disk, now_ns);
    if (rc == 0 && m->due_ns > now_ns)
        return did;
    if (rc == 0)
        rc = ask(p);
    if (rc == 0) {
        bool made = false;
        rc = write_window(p, &made);
        did = did || made;
        if (made)
            m->due_ns = 0;
    }
    if (rc == 0 && p->clock_ns - m->last_ns >= p->opts.timeout_ns)
        rc = -ETIMEDOUT;
    if (rc < 0 || vv_parity_make_over(&m->make)) {
        finish_making(p, rc);
        did = true;
    }
    return did;
}

/* ---- waiting for others ---- */

static bool silent(const struct vv_partner *p, const struct vv_parity_version *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (i != r->me && r->made[i] != r->sum &&
            p->clock_ns - VV_MIN(p->heard_ns[i], p->clock_ns) >= p->opts.timeout_ns)
            return true;
    return false;
}

/* The error of a member that could not write a file to match ours; 0: none. */
static int lacking(const struct vvi_pver *v)
{
    for (uint32_t i = 0; i < v->rules.n; i++)
        if (v->rules.state == VV_PARITY_LONE && v->lack[i].status != 0 &&
            v->lack[i].edition >= v->edition[v->rules.me] &&
            v->rules.file[v->rules.me].generation != 0)
            return v->lack[i].status;
    return 0;
}

/* Fails the first version that has waited for others longer than the timeout. */
static bool step_expire(struct vv_partner *p)
{
    bool did = false;
    vv_mutex_lock(&p->lock);
    for (struct vv_partner_hist *h = p->hists; h; h = h->next) {
        while (h->low < h->n && h->entry[h->low].reported)
            h->low++;
        size_t at = h->low;
        while (at < h->n && (h->entry[at].copied || h->entry[at].err != 0))
            at++;
        struct vvi_pver *v = at < h->n ? find_locked(h, h->entry[at].version) : NULL;
        if (!v || !h->report)
            continue;
        if (v->since_ns == 0)
            v->since_ns = p->clock_ns + 1;
        int status = lacking(v);
        if (status == 0 && (p->clock_ns < v->since_ns + p->opts.timeout_ns ||
                            !(v->rules.state == VV_PARITY_LONE ||
                              (v->rules.state == VV_PARITY_MADE && silent(p, &v->rules)))))
            continue;
        copied_locked(h, &h->entry[at], status < 0 ? status : -ETIMEDOUT);
        v->late = true;
        look_locked(h, v);
        vv_cond_broadcast(&p->changed);
        did = true;
    }
    vv_mutex_unlock(&p->lock);
    return did;
}

/* ---- messages ---- */

static struct vv_partner_hist *hist_of(struct vv_partner *p, uint64_t sum)
{
    vv_mutex_lock(&p->lock);
    struct vv_partner_hist *h = p->hists;
    while (h && h->sum != sum)
        h = h->next;
    vv_mutex_unlock(&p->lock);
    return h;
}

int vvi_parity_serve(struct vv_partner *p, const struct vv_files *files, int held_fd,
                     uint64_t version, uint64_t generation, uint64_t at, uint64_t bytes,
                     void **ret_mem)
{
    struct vvi_pserving *s = &p->serving;
    bool direct = files->folder->direct;
    int rc = 0;
    if (s->file.fd < 0 || s->home_fd != files->dirfd || s->version != version ||
        s->generation != generation) {
        vv_parity_in_end(&s->file);
        *s = (struct vvi_pserving){files->dirfd, version, generation, {.fd = -1}};
        rc = generation >= VV_PARITY_SUM
                 ? -ENOENT
                 : vv_parity_in_begin(&s->file, p->os, files->dirfd, direct, true, files->rank,
                                      version, generation);
        if (rc == -ENOENT) /* parity, or a file that was put aside */
            rc = vv_parity_in_begin(&s->file, p->os, held_fd, direct, true, files->rank, version,
                                    generation);
    }
    if (rc == 0)
        rc = vv_parity_in_read(&s->file, at, bytes, VVI_PART_LEAD, ret_mem);
    if (rc < 0)
        vv_parity_in_end(&s->file);
    else
        atomic_fetch_add_explicit(&p->sent_bytes, bytes, memory_order_relaxed);
    return rc;
}

void vvi_parity_stop_serving(struct vv_partner *p, const struct vv_files *files)
{
    if (!files || p->serving.home_fd == files->dirfd)
        vv_parity_in_end(&p->serving.file);
}

static void on_give(struct vv_partner *p, uint32_t from, const struct vvi_part_msg *m)
{
    struct vv_partner_hist *h = hist_of(p, m->history);
    void *mem = NULL;
    int rc = h ? vvi_parity_serve(p, h->files, h->held_fd, m->version, m->generation, m->offset,
                                  m->say.bytes, &mem)
               : -ENOENT;
    struct vvi_part_msg answer = {
        .kind = VVI_PART_PIECE, .status = rc, .transfer = m->transfer, .offset = m->offset};
    rc = vvi_partner_send(p, from, mem, mem ? VVI_PART_LEAD + m->say.bytes : 0, &answer);
    (void)rc; /* without an answer the other side gives up */
}

static bool on_piece(struct vv_partner *p, uint32_t member, struct vvi_part_msg *m, size_t bytes)
{
    struct vvi_pmaking *making = &p->making;
    if (!making->on || m->transfer != making->id)
        return false;
    making->last_ns = p->clock_ns;
    if (m->status < 0) {
        finish_making(p, m->status);
        return false;
    }
    return bytes > VVI_PART_LEAD &&
           vv_parity_make_take(&making->make, member, m->offset, m, bytes - VVI_PART_LEAD);
}

static void on_said(struct vv_partner *p, uint32_t member, const struct vvi_part_msg *m)
{
    struct vv_partner_hist *h = hist_of(p, m->history);
    const struct vv_parity_file file = {.generation = m->generation,
                                        .run_id = m->say.run_id,
                                        .bytes = m->say.bytes,
                                        .chunk_bytes = m->say.chunk_bytes};
    if (!h)
        return;
    vv_mutex_lock(&p->lock);
    struct vvi_pver *v = m->kind == VVI_PART_HAVE || m->kind == VVI_PART_LACK
                             ? get_locked(h, m->version)
                             : find_locked(h, m->version);
    if (v && m->kind == VVI_PART_LACK) {
        v->lack[member].status = m->status;
        v->lack[member].edition = m->say.edition;
    } else if (v) {
        struct vv_parity_version *r = &v->rules;
        if (m->kind == VVI_PART_HAVE) {
            v->edition[member] = m->say.edition;
            v->lack[member].status = 0;
        }
        /* The sender removes a file that was safe: so all parity was made, even if MADE has not come here. */
        for (uint32_t i = 0; m->kind == VVI_PART_GONE && r->state == VV_PARITY_MADE &&
                             m->say.sum == r->sum && i < r->n;
             i++)
            carry_out_locked(h, v, vv_parity_made(r, i, r->sum, vv_parity_total(r)));
        unsigned orders =
            m->kind == VVI_PART_HAVE     ? vv_parity_have(r, member, &file)
            : m->kind == VVI_PART_GONE   ? vv_parity_gone(r, member, m->generation)
            : m->kind == VVI_PART_MADE   ? vv_parity_made(r, member, m->say.sum, m->say.total)
            : m->kind == VVI_PART_UNMADE ? vv_parity_failed(r, member, m->say.sum, m->status)
                                         : vv_parity_again(r, m->say.sum);
        vv_parity_heard(r, member, m->say.relied, m->say.total);
        carry_out_locked(h, v, orders);
        if (m->kind == VVI_PART_GONE || m->kind == VVI_PART_HAVE)
            look_locked(h, v);
    }
    vv_mutex_unlock(&p->lock);
}

bool vvi_parity_message(struct vv_partner *p, uint32_t from, struct vvi_part_msg *m, size_t bytes)
{
    uint32_t member = 0;
    while (member < p->n && p->member[member] != from)
        member++;
    if (member == p->n || member == p->me)
        return false;
    p->heard_ns[member] = p->clock_ns;
    switch (m->kind) {
    case VVI_PART_HAVE:
    case VVI_PART_GONE:
    case VVI_PART_MADE:
    case VVI_PART_UNMADE:
    case VVI_PART_AGAIN:
    case VVI_PART_LACK:
        on_said(p, member, m);
        return false;
    case VVI_PART_GIVE:
        on_give(p, from, m);
        return false;
    case VVI_PART_PIECE:
        return on_piece(p, member, m, bytes);
    default:
        return false;
    }
}

bool vvi_parity_step(struct vv_partner *p)
{
    bool did = step_look(p);
    did |= step_drop(p);
    did |= step_make(p);
    did |= step_expire(p);
    return did;
}

void vvi_parity_stop(struct vv_partner *p, const struct vv_partner_hist *hist)
{
    if (p->making.on && (!hist || p->making.hist == hist))
        end_making(p);
    while (hist && step_drop(p)) /* do not leave decided removals for the next opening */
        ;
    vvi_parity_stop_serving(p, hist ? hist->files : NULL);
}
