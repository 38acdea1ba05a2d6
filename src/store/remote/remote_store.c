/* SPDX-License-Identifier: Apache-2.0 */
/* The stores of an engine with a remote folder behind its local one.
 *
 * A wrapped store passes requests to the inner one, and watches:
 *   COMMIT  that succeeded: the version gets an entry before the commit is reported, and is copied to
 *           the shared folder.
 *   READ    of a version that only the shared folder has goes to the reader, a thread with a store on
 *           that folder. A read that the inner store could not serve, or served with wrong bytes, goes
 *           there too. If it succeeds, the local copy is repaired in the background and the caller
 *           sees no error; if not, the first error is returned.
 *   REMOVE  goes to the worker first, which removes the shared copy, and then to the inner store.
 * Requests that are away come back on a list, and the inner store is kicked to end its poll: the inner
 * store is used only on the mover's thread. */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "store/remote/remote_private.h"
#include "trace/trace.h"

#define READER_POLL_NS ((int64_t)1000000000)
#define READER_REST_NS VV_NS_PER_MS
enum { READER_MAX = 16 };

/* ---- returning requests ---- */

static void report_locked(struct vvi_rstore *s, struct vv_store_io *io)
{
    io->next = NULL;
    *s->done_tail = io;
    s->done_tail = &io->next;
}

void vvi_rstore_removed(struct vvi_rremove *removal, int status)
{
    struct vvi_rstore *s = removal->store;
    struct vv_remote *r = s->remote;
    vv_mutex_lock(&r->lock);
    struct vvi_rentry *e =
        vvi_remote_find(removal->hist, removal->io->key.version, removal->io->key.generation);
    /* The shared folder most likely never had the file: its error does not stop the local removal. */
    if (e && !e->stored && !removal->kept) {
        e->remove_err = status;
        status = e->local ? 0 : status;
    }
    if (status < 0) {
        removal->io->status = status;
        if (e && e->stored) {
            e->removing = false; /* the file still exists, and the engine gets the error */
            removal->hist->report = true;
            removal->hist->report_from = 0;
            vv_cond_signal(&r->work);
        }
        report_locked(s, removal->io);
        free(removal);
    } else {
        removal->next = s->resume;
        s->resume = removal;
    }
    s->away--;
    /* Under the lock: the store may be closed once none of its requests is away. */
    s->inner->ops->kick(s->inner);
    vv_mutex_unlock(&r->lock);
}

/* Neither folder has all chunks of the batch intact. Perhaps each chunk is intact in one of them. */
static void gather(struct vv_remote *r, struct vvi_rread *read, uint64_t from, uint64_t to)
{
    struct vv_remote_hist *h = read->hist;
    const struct vv_store_io *io = read->orig;
    struct vv_target *const both[2] = {h->here, h->there};
    const struct vv_ckfile_id id = {.version = io->key.version,
                                    .generation = io->key.generation,
                                    .run_id = read->run_id,
                                    .size = io->size,
                                    .rank = h->rank};
    uint64_t bad = from;
    if (!h->here)
        return;
    int rc = vvi_copy_gather(both, &id, from, to, io->mem, r->opts.store.page_bytes, &bad);
    if (rc == 0) {
        read->io.status = 0;
        read->both = true;
    } else if (rc == -EBADMSG) {
        read->local_status = rc;
        read->local_bad = (uint32_t)(bad / r->opts.store.page_bytes);
    }
}

static void trace_read(const struct vvi_rread *read, enum vv_trace_kind kind, uint64_t last)
{
    const struct vv_store_io *io = read->orig;
    vv_trace5(kind, VV_TRACE_ROUTE(VV_TRACE_HOP_R2F, VV_TRACE_TIER_REMOTE, VV_TRACE_TIER_FILE),
              read->hist->trace_history, io->key.version, io->chunk0, last);
}

/* The shared copy is bad too, in another place: each copy has chunks that the other lacks. */
static void lacks_locked(struct vv_remote_hist *h, const struct vvi_repair *repair)
{
    struct vvi_rentry *e = vvi_remote_find(h, repair->version, repair->generation);
    if (e && !h->part)
        e->lacking = true;
    vvi_remote_repair_locked(h, repair);
}

static void read_done(struct vv_remote *r, struct vvi_rread *read)
{
    struct vvi_rstore *s = read->store;
    struct vv_store_io *io = read->orig;
    uint64_t page = r->opts.store.page_bytes;
    uint64_t from = io->chunk0 * page, to = VV_MIN(from + io->nchunks * page, io->size);
    trace_read(read, VV_TRACE_COPY_END, (uint64_t)(int64_t)read->io.status);
    if (read->local_status < 0 && read->io.status < 0)
        gather(r, read, from, to);
    bool healed = read->local_status < 0 && read->io.status == 0;
    io->status = read->io.status;
    io->bad_chunk = read->io.bad_chunk;
    if (read->local_status < 0 && !healed) {
        io->status = read->local_status;
        io->bad_chunk = read->local_bad;
    }
    if (read->io.status == 0)
        atomic_fetch_add_explicit(&r->read_bytes, to - from, memory_order_relaxed);
    if (healed)
        vv_trace5(VV_TRACE_HEAL, read->hist->trace_history, io->key.version, from, to, 0);
    vv_mutex_lock(&r->lock);
    if (healed) {
        struct vvi_repair repair = {
            .version = io->key.version, .generation = io->key.generation, .from = from, .to = to};
        atomic_fetch_add_explicit(&r->healed_chunks, io->nchunks, memory_order_relaxed);
        vvi_remote_repair_locked(read->hist, &repair);
        repair.to_remote = true;
        if (read->both)
            lacks_locked(read->hist, &repair);
    }
    read->hist->busy--;
    vv_cond_broadcast(&r->idle);
    report_locked(s, io);
    s->away--;
    s->inner->ops->kick(s->inner);
    vv_mutex_unlock(&r->lock);
    free(read);
}

/* ---- the reader ---- */

static struct vvi_rread *take_reads_locked(struct vv_remote *r)
{
    struct vvi_rread *list = r->reads;
    r->reads = NULL;
    r->reads_tail = &r->reads;
    return list;
}

void *vvi_remote_reader(void *arg)
{
    struct vv_remote *r = arg;
    struct vv_store *store = r->read_store;
    struct vv_store_io *done[READER_MAX];
    unsigned inflight = 0;
    vv_trace_thread("remote reader");
    vv_mutex_lock(&r->lock);
    for (;;) {
        struct vvi_rread *next, *list = take_reads_locked(r);
        if (!list && inflight == 0) {
            if (r->stopping)
                break;
            vv_cond_wait(&r->reads_come, &r->lock);
            continue;
        }
        r->reader_polls = true;
        vv_mutex_unlock(&r->lock);
        for (; list; list = next) {
            next = list->next;
            vv_budget_book_restore(r->budget, list->io.nchunks * (uint64_t)r->opts.store.page_bytes,
                                   r->opts.bytes_per_s, vv_now_ns());
            trace_read(list, VV_TRACE_COPY_START,
                       list->io.nchunks * (uint64_t)r->opts.store.page_bytes);
            int rc = store->ops->submit(store, &list->io);
            if (rc == 0) {
                inflight++;
                continue;
            }
            list->io.status = rc;
            read_done(r, list);
        }
        int n = inflight == 0 ? 0 : store->ops->poll(store, done, READER_MAX, READER_POLL_NS);
        if (n < 0 && n != -ETIMEDOUT)
            vv_sleep_until_ns(vv_now_ns() + READER_REST_NS);
        for (int i = 0; i < n; i++, inflight--)
            read_done(r, done[i]->user);
        vv_mutex_lock(&r->lock);
        r->reader_polls = false;
    }
    vv_mutex_unlock(&r->lock);
    return NULL;
}

/* False: the shared folder cannot serve it. */
static bool read_there(struct vvi_rstore *s, struct vv_store_io *io, int local_status)
{
    struct vv_remote *r = s->remote;
    struct vv_remote_hist *h = io->key.history->remote;
    struct vvi_rread *read = malloc(sizeof(*read));
    if (!read)
        return false;
    *read = (struct vvi_rread){.store = s,
                               .io = *io,
                               .orig = io,
                               .hist = h,
                               .local_status = local_status,
                               .local_bad = io->bad_chunk};
    read->io.key.history = h->files;
    read->io.user = read;
    read->io.status = 0;
    vv_mutex_lock(&r->lock);
    const struct vvi_rentry *e = vvi_remote_find(h, io->key.version, io->key.generation);
    bool there = e && e->stored && (local_status < 0 || !e->local);
    bool kick = false;
    if (there) {
        read->run_id = e->run_id;
        *r->reads_tail = read;
        r->reads_tail = &read->next;
        h->busy++;
        s->away++;
        kick = r->reader_polls;
        vv_cond_signal(&r->reads_come);
    }
    vv_mutex_unlock(&r->lock);
    if (kick)
        r->read_store->ops->kick(r->read_store);
    if (!there)
        free(read);
    return there;
}

/* ---- the wrapper ---- */

/* The local file is removed, or cannot be removed and still takes its space. */
static void removed(struct vvi_rstore *s, struct vv_store_io *io)
{
    struct vv_remote *r = s->remote;
    struct vv_remote_hist *h = io->key.history->remote;
    vv_mutex_lock(&r->lock);
    struct vvi_rentry *e = vvi_remote_find(h, io->key.version, io->key.generation);
    if (e && io->status == 0) {
        r->used -= e->local_bytes;
        e->local_bytes = 0;
        e->local = false;
    }
    /* After a failure the engine repeats the removal; until then the file counts as before. */
    if (e && io->status < 0) {
        e->stuck = true;
        e->remove_err = io->status;
    } else if (e && e->remove_err < 0) {
        io->status = e->remove_err;
    } else {
        vvi_remote_erase(h, io->key.version, io->key.generation);
    }
    vvi_space_removed_locked(h, io->key.version, io->key.generation, io->status == 0);
    vv_cond_broadcast(&r->changed);
    vv_mutex_unlock(&r->lock);
}

/* The local part of a removal, after that in the shared folder. */
static int remove_local(struct vvi_rstore *s, struct vv_store_io *io)
{
    int rc = s->inner->ops->submit(s->inner, io);
    if (rc < 0) {
        io->status = rc;
        removed(s, io);
    }
    return rc;
}

static int remove_start(struct vvi_rstore *s, struct vv_store_io *io)
{
    struct vv_remote *r = s->remote;
    struct vv_remote_hist *h = io->key.history->remote;
    vv_mutex_lock(&r->lock);
    struct vvi_rentry *e = vvi_remote_find(h, io->key.version, io->key.generation);
    /* A file of this life that was never committed is only in the local folder. */
    bool known = e || io->key.generation < h->first_generation;
    vv_mutex_unlock(&r->lock);
    if (!known)
        return remove_local(s, io);
    struct vvi_rremove *removal = malloc(sizeof(*removal));
    if (!removal)
        return -ENOMEM;
    *removal = (struct vvi_rremove){.store = s, .io = io, .hist = h};
    vv_mutex_lock(&r->lock);
    e = vvi_remote_find(h, io->key.version, io->key.generation);
    if (e) {
        e->removing = true;
        e->stuck = false;
        e->remove_err = 0;
    }
    r->alone = false;
    *r->removals_tail = removal;
    r->removals_tail = &removal->next;
    s->away++;
    vv_cond_signal(&r->work);
    vv_cond_broadcast(&r->changed);
    vv_mutex_unlock(&r->lock);
    return 0;
}

static void commit_failed(struct vvi_rstore *s, const struct vv_store_io *io)
{
    vv_mutex_lock(&s->remote->lock);
    io->key.history->remote->ncommits--;
    vv_mutex_unlock(&s->remote->lock);
}

/* Reserves the entry first: without one the version would be committed, and never copied to the shared
 * folder. */
static int commit_start(struct vvi_rstore *s, struct vv_store_io *io)
{
    struct vv_remote_hist *h = io->key.history->remote;
    vv_mutex_lock(&s->remote->lock);
    int rc = vvi_remote_reserve(h, h->ncommits + 1);
    h->ncommits += rc == 0;
    vv_mutex_unlock(&s->remote->lock);
    if (rc < 0)
        return rc;
    rc = s->inner->ops->submit(s->inner, io);
    if (rc < 0)
        commit_failed(s, io);
    return rc;
}

static int rstore_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct vvi_rstore *s = (struct vvi_rstore *)store;
    if (!io->key.history || !io->key.history->remote)
        return s->inner->ops->submit(s->inner, io);
    if (io->op == VV_STORE_REMOVE)
        return remove_start(s, io);
    if (io->op == VV_STORE_READ && !s->remote->opts.direct && read_there(s, io, 0))
        return 0;
    /* A direct commit to the shared folder must be of the rank's current life. */
    if (io->op == VV_STORE_COMMIT && s->remote->opts.direct) {
        int rc = vv_group_alive(&io->key.history->remote->group);
        if (rc < 0)
            return rc;
    }
    bool writes = io->op == VV_STORE_WRITE || io->op == VV_STORE_SALVAGE;
    if ((writes || io->op == VV_STORE_COMMIT) && s->remote->opts.local_bytes) {
        int rc;
        if (!vvi_space_admit(s, io, &rc))
            return rc;
    }
    if (io->op == VV_STORE_COMMIT)
        return commit_start(s, io);
    return s->inner->ops->submit(s->inner, io);
}

/* The version is durable in the engine's folder: the worker takes over. */
static void committed(struct vvi_rstore *s, const struct vv_store_io *io)
{
    struct vv_remote *r = s->remote;
    struct vv_remote_hist *h = io->key.history->remote;
    struct vvi_rentry e = {.version = io->key.version,
                           .generation = io->key.generation,
                           .run_id = vv_files_run_id(io->key.history, io->edition),
                           .local = !r->opts.direct,
                           .stored = r->opts.direct};
    vv_mutex_lock(&r->lock);
    if (r->opts.local_bytes != 0)
        e.local_bytes = vvi_space_committed_locked(
            h, e.version, e.generation,
            vv_files_bytes(io->size, io->meta->nregions, r->opts.store.page_bytes));
    h->ncommits--;
    struct vvi_rentry *added = vvi_remote_add(h, &e);
    vv_assert(added); /* commit_start made room for it */
    if (vvi_remote_reached(h, added))
        vvi_remote_reached_locked(h, added);
    vvi_remote_wake_locked(h, (size_t)(added - h->entry));
    vv_cond_broadcast(&r->changed);
    vv_mutex_unlock(&r->lock);
}

/* Handles a request that the inner store reports; false: it goes elsewhere now. */
static bool inspect(struct vvi_rstore *s, struct vv_store_io *io)
{
    if (!io->key.history || !io->key.history->remote)
        return true;
    if (io->op == VV_STORE_COMMIT && io->status == 0)
        committed(s, io);
    else if (io->op == VV_STORE_COMMIT)
        commit_failed(s, io);
    if (io->op == VV_STORE_REMOVE)
        removed(s, io);
    if (io->op != VV_STORE_READ || io->status == 0 || io->status == -ENOMEM ||
        s->remote->opts.direct)
        return true;
    return !read_there(s, io, io->status);
}

/* Submits held writes again, or fails them. */
static void try_held_locked(struct vvi_rstore *s)
{
    struct vv_remote *r = s->remote;
    struct vv_store_io *io = s->held, *next;
    int status = s->retry_status;
    s->held = NULL;
    s->held_tail = &s->held;
    atomic_store_explicit(&s->nheld, 0, memory_order_relaxed);
    s->retry = false;
    for (; io; io = next) {
        next = io->next;
        int rc = status;
        if (rc == 0) {
            vv_mutex_unlock(&r->lock);
            rc = s->base.ops->submit(&s->base, io);
            vv_mutex_lock(&r->lock);
        }
        if (rc < 0) {
            io->status = rc;
            report_locked(s, io);
        }
    }
}

/* Continues removals whose shared part is done, and takes finished requests. */
static int take_done(struct vvi_rstore *s, struct vv_store_io **ret_done, size_t max)
{
    struct vv_remote *r = s->remote;
    int n = 0;
    vv_mutex_lock(&r->lock);
    while (s->resume) {
        struct vvi_rremove *removal = s->resume;
        s->resume = removal->next;
        vv_mutex_unlock(&r->lock);
        int rc = remove_local(s, removal->io);
        vv_mutex_lock(&r->lock);
        if (rc < 0)
            report_locked(s, removal->io);
        free(removal);
    }
    if (s->retry)
        try_held_locked(s);
    for (; s->done && (size_t)n < max; n++) {
        ret_done[n] = s->done;
        s->done = s->done->next;
        if (!s->done)
            s->done_tail = &s->done;
    }
    vv_mutex_unlock(&r->lock);
    return n;
}

static int rstore_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                       int64_t timeout_ns)
{
    struct vvi_rstore *s = (struct vvi_rstore *)store;
    int n = take_done(s, ret_done, max), kept = 0;
    if (n > 0)
        return n;
    n = s->inner->ops->poll(s->inner, ret_done, max, timeout_ns);
    for (int i = 0; i < n; i++)
        if (inspect(s, ret_done[i]))
            ret_done[kept++] = ret_done[i];
    return n < 0 ? n : kept;
}

static void rstore_kick(struct vv_store *store)
{
    struct vvi_rstore *s = (struct vvi_rstore *)store;
    s->inner->ops->kick(s->inner);
}

static void rstore_close(struct vv_store *store)
{
    struct vvi_rstore *s = (struct vvi_rstore *)store;
    struct vv_remote *r = s->remote;
    vv_mutex_lock(&r->lock);
    vv_assert(s->away == 0 && !s->held);
    for (struct vvi_rstore **at = &r->stores; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    vv_mutex_unlock(&r->lock);
    s->inner->ops->close(s->inner);
    free(s);
}

int vv_remote_store(struct vv_remote *r, struct vv_store *inner, struct vv_store **ret_store)
{
    static const struct vv_store_ops ops = {.name = "remote",
                                            .close = rstore_close,
                                            .submit = rstore_submit,
                                            .poll = rstore_poll,
                                            .kick = rstore_kick,
                                            .alone = vvi_space_alone};
    struct vvi_rstore *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->base.ops = &ops;
    s->base.held = r->opts.local_bytes ? &s->nheld : NULL;
    s->remote = r;
    s->inner = inner;
    s->done_tail = &s->done;
    s->held_tail = &s->held;
    vv_mutex_lock(&r->lock);
    s->next = r->stores;
    r->stores = s;
    vv_mutex_unlock(&r->lock);
    *ret_store = &s->base;
    return 0;
}
