/* SPDX-License-Identifier: Apache-2.0 */
/* Partner copies: contexts, the state of every version, and waiting.
 *
 * Each version that is committed in the local folder has an entry: the state of its copy at the partner, or the
 * error. Entries are ordered by generation, the order of writing, in which they are copied, one at a time
 * (partner_step.c).
 *
 * Which thread does the work. If the wire may be called from any thread, one of ours steps. Otherwise threads of the
 * application step inside their calls, if the wire allows the thread; nothing happens between calls. A process that
 * has all that it waited for could then leave, into a barrier for example, and the process whose copies it keeps
 * would get no answer. So a waiting process stays until its predecessors have waited for the same version too (DONE),
 * or their time has passed.
 *
 * Invariants:
 *   - an entry counts as copied when the partner has reported that the file is committed there;
 *   - a copy is dropped only with its file, which the engine removes after a `report` of copies that replace it, or
 *     when the version is discarded. Copies of a lower generation left by an earlier life (`left`) have no file: they
 *     are dropped when the copy of the higher one is reported;
 *   - no process waits for another longer than the timeout, counted in time during which it was attending. If a
 *     process has not answered by then, all copies meant for it fail at once, so that a queue of versions does not
 *     wait for each in turn;
 *   - a failure is kept in the entry: reported to threads that wait for the version, and tried again when one waits
 *     again or the partner answers again.
 *
 * Locks: `step` for everything that messages cause, files included; `lock` for entries, never held
 * across a system call or a call of the wire. */
#include "store/partner/partner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "store/partner/partner_private.h"
#include "trace/trace.h"

#define BACKOFF_MIN_NS  (20 * VV_NS_PER_US)
#define BACKOFF_BUSY_NS (200 * VV_NS_PER_US)
#define BACKOFF_MAX_NS  (2 * VV_NS_PER_MS)
enum { ATTEND_STEPS = 64 };

/* ---- contexts ---- */

static uint64_t longer_backoff(uint64_t backoff_ns, uint64_t most_ns)
{
    return backoff_ns == 0 ? BACKOFF_MIN_NS : VV_MIN(2 * backoff_ns, most_ns);
}

static void *work(void *arg)
{
    struct vv_partner *p = arg;
    uint64_t backoff_ns = 0;
    vv_trace_thread("partner");
    vv_mutex_lock(&p->lock);
    while (!p->stopping) {
        vv_mutex_unlock(&p->lock);
        vv_mutex_lock(&p->step);
        bool did = vvi_partner_step(p), busy = p->out.on || p->in || p->making.on;
        vv_mutex_unlock(&p->step);
        vvi_partner_report(p);
        backoff_ns = did ? 0 : longer_backoff(backoff_ns, busy ? BACKOFF_BUSY_NS : BACKOFF_MAX_NS);
        vv_mutex_lock(&p->lock);
        if (backoff_ns > 0 && !p->stopping)
            (void)!vv_cond_wait_until(&p->work, &p->lock, vv_now_ns() + backoff_ns);
    }
    vv_mutex_unlock(&p->lock);
    return NULL;
}

int vv_partner_new(const struct vv_partner_opts *opts, char *err, size_t err_bytes,
                   struct vv_partner **ret_partner)
{
    struct vv_partner *p = calloc(1, sizeof(*p));
    if (!p) {
        /* Releases the others, which wait in the same collective call in vvi_partner_meet. */
        uint64_t most;
        int sent = opts->wire.most(opts->wire.arg, ENOMEM, &most);
        (void)sent;
        return vvi_error(-ENOMEM, err, err_bytes, "out of memory");
    }
    p->opts = *opts;
    p->os = opts->folder ? opts->folder->opts.os : vv_os_posix();
    p->top_fd = p->serving.file.fd = p->making.out.fd = -1;
    p->k = opts->parity;
    p->notes_tail = &p->notes;
    p->seen_ns = vv_now_ns();
    p->next_id = vv_files_draw_id();
    vv_mutex_init(&p->step, "partner step", VV_RANK_PARTNER);
    vv_mutex_init(&p->lock, "partner", VV_RANK_STORE);
    vv_cond_init(&p->changed);
    vv_cond_init(&p->work);
    if (p->opts.status == 0)
        p->opts.status = vvi_held_open(p);
    int rc = vvi_partner_meet(p, err, err_bytes);
    if (rc == 0)
        vvi_held_count(p);
    if (rc == 0 && opts->wire.threads) {
        rc = vv_thread_start(&p->thread, work, p);
        p->has_thread = rc == 0;
        if (rc < 0)
            vvi_error(rc, err, err_bytes, "cannot start a thread for partner copies: %s",
                      strerror(-rc));
        int all = vvi_partner_all(p, rc);
        if (all < 0 && rc == 0)
            vvi_error(all, err, err_bytes, "partner copies: another process failed: %s",
                      strerror(-all));
        rc = all;
    }
    if (rc < 0) {
        vv_partner_free(p);
        return rc;
    }
    *ret_partner = p;
    return 0;
}

void vv_partner_free(struct vv_partner *p)
{
    if (!p)
        return;
    vv_mutex_lock(&p->lock);
    vv_assert(!p->hists);
    p->stopping = true;
    vv_cond_signal(&p->work);
    vv_mutex_unlock(&p->lock);
    if (p->has_thread)
        pthread_join(p->thread, NULL);
    vvi_partner_stop_out(p, NULL);
    vvi_parity_stop(p, NULL);
    vvi_held_fini(p);
    for (struct vvi_pnote *n = p->notes, *next; n; n = next) {
        next = n->next;
        free(n);
    }
    free(p->mark);
    free(p->heard_ns);
    free(p->member);
    free(p->from);
    free(p->partner_of);
    free(p->hello);
    vv_cond_fini(&p->work);
    vv_cond_fini(&p->changed);
    vv_mutex_fini(&p->lock);
    vv_mutex_fini(&p->step);
    free(p);
}

bool vv_partner_parity(const struct vv_partner *p)
{
    return p->k > 0;
}

const char *vv_partner_what(const struct vv_partner *p, char text[64])
{
    if (p->k > 0)
        snprintf(text, 64, "its parity");
    else
        snprintf(text, 64, "its copy at rank %u", (unsigned)p->to);
    return text;
}

/* Half; with parity, all but the share of parity, minus a little for rounding. */
uint64_t vv_partner_own_bytes(const struct vv_partner *p)
{
    uint64_t all = p->opts.cache_bytes;
    return p->k == 0 ? all / 2 : all / p->n * (p->n - p->k) / 16 * 15;
}

void vv_partner_get_stats(struct vv_partner *p, struct vv_partner_stats *ret_stats)
{
    *ret_stats = (struct vv_partner_stats){
        .sent = atomic_load_explicit(&p->sent, memory_order_relaxed),
        .received = atomic_load_explicit(&p->received, memory_order_relaxed),
        .pending = atomic_load_explicit(&p->pending, memory_order_relaxed),
        .sent_bytes = atomic_load_explicit(&p->sent_bytes, memory_order_relaxed),
        .received_bytes = atomic_load_explicit(&p->received_bytes, memory_order_relaxed),
        .held_bytes = atomic_load_explicit(&p->held_bytes, memory_order_relaxed),
        .errors = atomic_load_explicit(&p->errors, memory_order_relaxed),
        .recovered = atomic_load_explicit(&p->recovered, memory_order_relaxed),
        .repaired_chunks = atomic_load_explicit(&p->repaired_chunks, memory_order_relaxed),
    };
}

/* ---- entries ---- */

struct vvi_pentry *vvi_partner_find_locked(struct vv_partner_hist *h, uint64_t version,
                                           uint64_t generation)
{
    for (size_t i = h->n; i-- > 0;)
        if (h->entry[i].version == version && h->entry[i].generation == generation)
            return &h->entry[i];
    return NULL;
}

int vvi_partner_add_locked(struct vv_partner_hist *h, const struct vvi_pentry *entry)
{
    if (h->n == h->room) {
        size_t room = VV_MAX(2 * h->room, (size_t)64);
        struct vvi_pentry *more = realloc(h->entry, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        h->entry = more;
        h->room = room;
    }
    size_t at = h->n;
    while (at > 0 && h->entry[at - 1].generation > entry->generation)
        at--;
    memmove(h->entry + at + 1, h->entry + at, (h->n - at) * sizeof(*h->entry));
    h->entry[at] = *entry;
    h->n++;
    atomic_fetch_add_explicit(&h->partner->pending, !entry->copied, memory_order_relaxed);
    h->low = VV_MIN(h->low, at);
    return 0;
}

void vvi_partner_copied_locked(struct vv_partner *p, struct vvi_pentry *e, int status)
{
    bool copied = status == 0;
    atomic_fetch_add_explicit(&p->pending, (uint64_t)e->copied - (uint64_t)copied,
                              memory_order_relaxed);
    e->copied = copied;
    e->err = status;
    e->reported = false;
    p->news = true;
    if (status < 0)
        atomic_fetch_add_explicit(&p->errors, 1, memory_order_relaxed);
}

void vvi_partner_committed(struct vv_partner_hist *h, uint64_t version, uint64_t generation,
                           uint32_t edition)
{
    struct vv_partner *p = h->partner;
    struct vvi_pentry e = {
        .version = version, .generation = generation, .edition = VV_MAX(edition, 1u), .here = true};
    vv_mutex_lock(&p->lock);
    /* Without memory there is no copy; a thread that waits for it gets an error. */
    if (vvi_partner_add_locked(h, &e) < 0)
        atomic_fetch_add_explicit(&p->errors, 1, memory_order_relaxed);
    else if (p->k > 0)
        vvi_parity_committed_locked(h, version);
    vv_cond_signal(&p->work);
    vv_mutex_unlock(&p->lock);
}

void vvi_partner_note_locked(struct vv_partner *p, const struct vvi_part_msg *msg)
{
    struct vvi_pnote *note = malloc(sizeof(*note));
    if (!note) /* a surplus file stays, or a thread waits until its time has passed */
        return;
    *note = (struct vvi_pnote){.msg = *msg};
    *p->notes_tail = note;
    p->notes_tail = &note->next;
    vv_cond_signal(&p->work);
}

void vvi_partner_drop_locked(struct vv_partner_hist *h, uint64_t version, uint64_t generation)
{
    struct vvi_part_msg msg = {
        .kind = VVI_PART_DROP, .history = h->sum, .version = version, .generation = generation};
    memcpy(msg.name, h->files->history, strlen(h->files->history) + 1);
    vvi_partner_note_locked(h->partner, &msg);
}

void vvi_partner_drop_left_locked(struct vv_partner_hist *h, uint64_t version, uint64_t generation)
{
    size_t n = 0;
    for (size_t i = 0; i < h->nleft; i++)
        if (h->left[i].version == version && h->left[i].generation < generation)
            vvi_partner_drop_locked(h, version, h->left[i].generation);
        else
            h->left[n++] = h->left[i];
    h->nleft = n;
}

void vvi_partner_removed(struct vv_partner_hist *h, uint64_t version, uint64_t generation)
{
    struct vv_partner *p = h->partner;
    vv_mutex_lock(&p->lock);
    struct vvi_pentry *e = vvi_partner_find_locked(h, version, generation);
    if (e) {
        size_t at = (size_t)(e - h->entry);
        atomic_fetch_sub_explicit(&p->pending, !e->copied, memory_order_relaxed);
        h->n--;
        memmove(e, e + 1, (h->n - at) * sizeof(*e));
        h->low -= at < h->low;
        if (p->k == 0) {
            vvi_partner_drop_left_locked(h, version, generation);
            vvi_partner_drop_locked(h, version, generation);
        }
        vv_cond_broadcast(&p->changed);
    }
    vv_mutex_unlock(&p->lock);
}

/* The version's last generation. */
static struct vvi_pentry *current_locked(struct vv_partner_hist *h, uint64_t version)
{
    for (size_t i = h->n; i-- > 0;)
        if (h->entry[i].version == version)
            return &h->entry[i];
    return NULL;
}

void vvi_partner_again_locked(struct vv_partner_hist *h, struct vvi_pentry *e)
{
    if (e->err == 0)
        return;
    e->err = 0;
    e->reported = false;
    h->low = VV_MIN(h->low, (size_t)(e - h->entry));
    if (h->partner->k > 0)
        vvi_parity_again_locked(h, e->version);
}

/* ---- reports ---- */

/* The first entry with a copy or an error that was not reported; NULL: none. */
static struct vv_partner_hist *unreported_locked(struct vv_partner *p, struct vvi_pentry *ret)
{
    for (struct vv_partner_hist *h = p->hists; h; h = h->next)
        for (size_t i = h->low; i < h->n && h->report; i++) {
            const struct vvi_pentry *e = &h->entry[i];
            if (e->reported || (!e->copied && e->err == 0))
                continue;
            *ret = *e;
            return h;
        }
    return NULL;
}

/* Two threads may report the same entry: the second time changes nothing. */
void vvi_partner_report(struct vv_partner *p)
{
    struct vv_partner_hist *h;
    struct vvi_pentry e;
    vv_mutex_lock(&p->lock);
    while (p->news && (h = unreported_locked(p, &e))) {
        vv_partner_report_fn *report = h->report;
        h->reporting++;
        vv_mutex_unlock(&p->lock);
        report(h->report_arg, e.version, e.generation, e.err);
        vv_mutex_lock(&p->lock);
        h->reporting--;
        struct vvi_pentry *now = vvi_partner_find_locked(h, e.version, e.generation);
        if (now && now->copied == e.copied && now->err == e.err)
            now->reported = true;
        if (e.copied)
            vvi_partner_drop_left_locked(h, e.version, e.generation);
        vv_cond_broadcast(&p->changed);
    }
    p->news = false;
    vv_mutex_unlock(&p->lock);
}

void vv_partner_start(struct vv_partner_hist *h, vv_partner_report_fn *report, void *arg)
{
    struct vv_partner *p = h->partner;
    vv_mutex_lock(&p->lock);
    h->report = report;
    h->report_arg = arg;
    for (size_t i = 0; i < h->n && p->k > 0; i++)
        vvi_parity_committed_locked(h, h->entry[i].version);
    p->news = true;
    vv_cond_signal(&p->work);
    vv_mutex_unlock(&p->lock);
}

void vv_partner_stop(struct vv_partner_hist *h)
{
    struct vv_partner *p = h->partner;
    vv_mutex_lock(&p->lock);
    h->report = NULL;
    while (h->reporting > 0)
        (void)!vv_cond_wait_until(&p->changed, &p->lock, VV_NEVER_NS);
    vv_mutex_unlock(&p->lock);
}

/* ---- marks: which process has waited for which version ---- */

static struct vvi_pmark *mark_find_locked(struct vv_partner *p, uint32_t who, uint64_t history,
                                          bool whole, uint64_t version)
{
    for (size_t i = p->nmarks; i-- > 0;) {
        struct vvi_pmark *m = &p->mark[i];
        if (m->who == who && m->history == history && m->whole == whole && m->version == version)
            return m;
    }
    return NULL;
}

void vvi_partner_mark_locked(struct vv_partner *p, uint32_t who, uint64_t history, bool whole,
                             uint64_t version)
{
    struct vvi_pmark *m = mark_find_locked(p, who, history, whole, version);
    if (!m && p->nmarks == p->marks_room) {
        size_t room = VV_MAX(2 * p->marks_room, (size_t)64);
        struct vvi_pmark *more = realloc(p->mark, room * sizeof(*more));
        if (!more)
            return;
        p->mark = more;
        p->marks_room = room;
    }
    if (!m) {
        m = &p->mark[p->nmarks++];
        *m = (struct vvi_pmark){.history = history, .version = version, .who = who, .whole = whole};
    }
    m->count++;
    vv_cond_broadcast(&p->changed);
}

/* Subtracts `less` from a count; a mark at 0 is deleted. */
static void mark_less_locked(struct vv_partner *p, struct vvi_pmark *m, uint64_t less)
{
    m->count -= less;
    if (m->count == 0)
        *m = p->mark[--p->nmarks];
}

/* If all predecessors have waited for it as often as this process, deletes these marks and returns true. */
static bool all_done_locked(struct vv_partner *p, uint64_t history, bool whole, uint64_t version)
{
    const struct vvi_pmark *own = mark_find_locked(p, p->nfrom, history, whole, version);
    uint64_t count = own ? own->count : 0;
    for (uint32_t i = 0; i < p->nfrom; i++) {
        const struct vvi_pmark *m = mark_find_locked(p, i, history, whole, version);
        if (!m || m->count < count)
            return false;
    }
    for (uint32_t i = 0; count > 0 && i <= p->nfrom; i++)
        mark_less_locked(p, mark_find_locked(p, i, history, whole, version), count);
    return true;
}

/* ---- waiting ---- */

static bool may_call(const struct vv_partner *p)
{
    const struct vv_wire *w = &p->opts.wire;
    return w->threads || !w->may_call || w->may_call(w->arg);
}

void vv_partner_attend(struct vv_partner *p)
{
    if (p->has_thread || !may_call(p))
        return;
    vv_mutex_lock(&p->step);
    for (int i = 0; i < ATTEND_STEPS && vvi_partner_step(p); i++)
        ;
    vv_mutex_unlock(&p->step);
    vvi_partner_report(p);
}

/* Makes some progress. -ETIMEDOUT: the deadline has passed. Lock held before and after. */
static int more_locked(struct vv_partner *p, uint64_t deadline_ns, uint64_t *backoff_ns)
{
    if (p->has_thread)
        return vv_cond_wait_until(&p->changed, &p->lock, deadline_ns);
    vv_mutex_unlock(&p->lock);
    int rc = may_call(p) ? 0 : -EPERM;
    if (rc == 0) {
        vv_mutex_lock(&p->step);
        bool did = vvi_partner_step(p);
        vv_mutex_unlock(&p->step);
        uint64_t now_ns = vv_now_ns();
        *backoff_ns = did ? 0 : longer_backoff(*backoff_ns, BACKOFF_BUSY_NS);
        if (now_ns >= deadline_ns)
            rc = -ETIMEDOUT;
        else if (*backoff_ns > 0)
            vv_sleep_until_ns(VV_MIN(now_ns + *backoff_ns, deadline_ns));
    }
    vvi_partner_report(p);
    vv_mutex_lock(&p->lock);
    return rc;
}

/* This process has what it needs. It stays until the processes whose copies it keeps have too. */
static void linger_locked(struct vv_partner *p, uint64_t history, bool whole, uint64_t version,
                          uint64_t deadline_ns)
{
    struct vvi_part_msg msg = {
        .kind = VVI_PART_DONE, .history = history, .version = version, .whole = whole};
    uint64_t limit_ns = VV_MIN(deadline_ns, vv_now_ns() + p->opts.timeout_ns), backoff_ns = 0;
    int rc = 0;
    vvi_partner_note_locked(p, &msg);
    vvi_partner_mark_locked(p, p->nfrom, history, whole, version);
    if (!may_call(p))
        return;
    /* DONE must be sent before this process leaves, even if it has nothing to wait for. */
    vv_mutex_unlock(&p->lock);
    vv_mutex_lock(&p->step);
    (void)vvi_partner_step(p);
    vv_mutex_unlock(&p->step);
    vvi_partner_report(p);
    vv_mutex_lock(&p->lock);
    bool done;
    while (!(done = all_done_locked(p, history, whole, version)) && rc == 0)
        rc = more_locked(p, limit_ns, &backoff_ns);
    /* A predecessor that has not come by now is not waited for next time because of this wait. */
    struct vvi_pmark *own = mark_find_locked(p, p->nfrom, history, whole, version);
    if (!done && own)
        mark_less_locked(p, own, 1);
}

void vv_partner_give_up(struct vv_partner_hist *h, uint64_t version, int status)
{
    struct vv_partner *p = h->partner;
    struct vvi_part_msg msg = {.kind = VVI_PART_DONE, .history = h->sum, .version = version};
    if (p->k > 0)
        vvi_parity_unwritten(h, version, UINT32_MAX, status);
    if (p->has_thread)
        return;
    vv_mutex_lock(&p->lock);
    vvi_partner_note_locked(p, &msg);
    vv_mutex_unlock(&p->lock);
    vv_partner_attend(p);
}

int vv_partner_wait(struct vv_partner_hist *h, uint64_t version, uint64_t deadline_ns)
{
    struct vv_partner *p = h->partner;
    uint64_t backoff_ns = 0;
    int rc = 0;
    vv_mutex_lock(&p->lock);
    struct vvi_pentry *e = current_locked(h, version);
    if (e) {
        vvi_partner_again_locked(h, e);
        vv_cond_signal(&p->work);
    }
    while (rc == 0 && (e = current_locked(h, version)) && !e->reported)
        rc = more_locked(p, deadline_ns, &backoff_ns);
    e = current_locked(h, version);
    bool over = !e || e->reported;
    if (over)
        rc = !e ? -ENOENT : e->lone ? -ENODATA : e->err;
    if (over && e && e->here && !e->done && !p->has_thread) {
        e->done = true;
        linger_locked(p, h->sum, false, version, deadline_ns);
    }
    vv_mutex_unlock(&p->lock);
    return rc;
}

/* Index of the first entry that has neither a copy nor an error; n: none. */
static size_t first_open_locked(const struct vv_partner_hist *h)
{
    size_t i = h->low;
    while (i < h->n && h->entry[i].reported)
        i++;
    return i;
}

int vv_partner_flush(struct vv_partner_hist *h, uint64_t deadline_ns, uint64_t *ret_version)
{
    struct vv_partner *p = h->partner;
    uint64_t backoff_ns = 0;
    int rc = 0;
    size_t open;
    vv_mutex_lock(&p->lock);
    for (size_t i = 0; i < h->n; i++)
        vvi_partner_again_locked(h, &h->entry[i]);
    vv_cond_signal(&p->work);
    while (rc == 0 && (open = first_open_locked(h)) < h->n)
        rc = more_locked(p, deadline_ns, &backoff_ns);
    open = first_open_locked(h);
    if (open < h->n)
        *ret_version = h->entry[open].version;
    else
        rc = 0;
    for (size_t i = 0; i < h->n && rc == 0; i++) {
        if (h->entry[i].err == 0)
            continue;
        rc = h->entry[i].err;
        *ret_version = h->entry[i].version;
    }
    vv_mutex_unlock(&p->lock);
    return rc;
}

void vv_partner_linger(struct vv_partner_hist *h, bool last, uint64_t deadline_ns)
{
    struct vv_partner *p = h->partner;
    if (!last && p->has_thread)
        return;
    vv_mutex_lock(&p->lock);
    linger_locked(p, h->sum, true, 0, deadline_ns);
    vv_mutex_unlock(&p->lock);
}

/* ---- histories ---- */

uint64_t vv_partner_first_generation(const struct vv_partner_hist *h)
{
    return h->first_generation;
}

bool vv_partner_has_copy(struct vv_partner_hist *h, uint64_t version, uint64_t generation)
{
    vv_mutex_lock(&h->partner->lock);
    const struct vvi_pentry *e = vvi_partner_find_locked(h, version, generation);
    bool copied = e && e->copied;
    vv_mutex_unlock(&h->partner->lock);
    return copied;
}

int vv_partner_agree(struct vv_partner *p, int status)
{
    return vvi_partner_all(p, status);
}

void vvi_partner_forget(struct vv_partner_hist *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n; i++)
        atomic_fetch_sub_explicit(&h->partner->pending, !h->entry[i].copied, memory_order_relaxed);
    vvi_parity_forget(h);
    free(h->entry);
    free(h->left);
    free(h);
}

void vv_partner_close(struct vv_partner_hist *h)
{
    if (!h)
        return;
    struct vv_partner *p = h->partner;
    vv_partner_stop(h);
    vv_mutex_lock(&p->step);
    vvi_partner_stop_out(p, h);
    vvi_parity_stop(p, h);
    vv_mutex_lock(&p->lock);
    for (struct vv_partner_hist **at = &p->hists; *at; at = &(*at)->next) {
        if (*at != h)
            continue;
        *at = h->next;
        break;
    }
    vv_mutex_unlock(&p->lock);
    vv_mutex_unlock(&p->step);
    h->files->partner = NULL;
    vvi_partner_forget(h);
}
