/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of a remote folder: one thread that does everything there except reading for restores.
 *
 * It picks one small job after the other, the most urgent first:
 *   remove    a thread may be waiting for it
 *   space     a write waits for room on local disk (remote_space.c)
 *   mark      a version is stored: leave its marker, and look if it was the last one
 *   poll      a version is marked: is it complete by now?
 *   report    notify the engine of files that have reached the level
 *   sweep     remove files of earlier lives, once a version of this life has reached the level
 *   copy      the next few MiB of the current copy, or the next copy, in the order of writing
 *   repair    a bad copy
 * A copy is made in steps, so that a large version delays neither other jobs nor its own removal.
 *
 * Jobs run without the lock. They identify their version by number and generation and look it up again
 * afterwards, because it may have been removed. `busy` keeps its history.
 *
 * Polling: rank (version mod ranks) looks for all markers each time. The others look only for the
 * record, and for the markers if that takes long. So the load on the shared folder grows with the
 * number of ranks and not with its square, and any rank may die. Each rank looks for all markers
 * once when its own is durable, so that the last rank always finds all of them.
 *
 * An error is kept in the entry. It is reported once, and the job is tried again when a thread waits
 * for the version. Failed polls are repeated a few times first. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "store/remote/remote_private.h"
#include "trace/trace.h"

#define POLL_FIRST_NS (2 * VV_NS_PER_MS)
#define POLL_MOST_NS  VV_NS_PER_S
#define POLL_WAIT_NS  (10 * VV_NS_PER_MS) /* while a thread waits */
#define POLL_LATE_NS  (50 * VV_NS_PER_MS) /* while a thread has waited for PATIENCE_NS */
#define PATIENCE_NS   (200 * VV_NS_PER_MS)
enum { MISSES_MAX = 5 };

enum job_kind {
    JOB_NONE,
    JOB_REMOVE,
    JOB_SPACE,
    JOB_MARK,
    JOB_POLL,
    JOB_REPORT,
    JOB_SWEEP,
    JOB_COPY,
    JOB_STEP,
    JOB_REPAIR
};

struct job {
    enum job_kind kind;
    struct vv_remote_hist *hist;
    struct vvi_rentry entry;     /* MARK, POLL, COPY */
    struct vvi_rremove *removal; /* REMOVE */
    struct vvi_repair *repair;   /* REPAIR; owned */
};

/* ---- picking ---- */

static bool needs_nothing(const struct vv_remote_hist *h, const struct vvi_rentry *e)
{
    return e->err != 0 || e->removing || vvi_remote_reached(h, e);
}

/* Picks marks and polls; *due: time of the next poll. */
static bool pick_agreement_locked(struct vv_remote_hist *h, uint64_t now_ns, struct job *ret,
                                  uint64_t *due)
{
    while (h->low < h->n && needs_nothing(h, &h->entry[h->low]))
        h->low++;
    for (size_t i = h->low; i < h->n; i++) {
        const struct vvi_rentry *e = &h->entry[i];
        if (needs_nothing(h, e) || !e->stored)
            continue;
        if (!e->marked || now_ns >= e->poll_ns) {
            *ret = (struct job){.kind = e->marked ? JOB_POLL : JOB_MARK, .hist = h, .entry = *e};
            return true;
        }
        *due = VV_MIN(*due, e->poll_ns);
    }
    return false;
}

static bool pick_upkeep_locked(struct vv_remote_hist *h, struct job *ret)
{
    if (!h->report && !h->sweep)
        return false;
    *ret = (struct job){.kind = h->report ? JOB_REPORT : JOB_SWEEP, .hist = h};
    *(h->report ? &h->report : &h->sweep) = false;
    return true;
}

static bool pick_copy_locked(struct vv_remote_hist *h, struct job *ret)
{
    for (size_t i = h->low; i < h->n; i++) {
        const struct vvi_rentry *e = &h->entry[i];
        if (e->err != 0 || e->removing || e->stored)
            continue;
        *ret = (struct job){.kind = JOB_COPY, .hist = h, .entry = *e};
        return true;
    }
    if (!h->repairs)
        return false;
    *ret = (struct job){.kind = JOB_REPAIR, .hist = h, .repair = h->repairs};
    h->repairs = h->repairs->next;
    return true;
}

static struct job pick_locked(struct vv_remote *r, uint64_t now_ns, uint64_t *due)
{
    struct job job = {.kind = JOB_NONE};
    *due = VV_NEVER_NS;
    if (r->removals) {
        job = (struct job){.kind = JOB_REMOVE, .hist = r->removals->hist, .removal = r->removals};
        r->removals = r->removals->next;
        if (!r->removals)
            r->removals_tail = &r->removals;
        return job;
    }
    if (r->space_due) {
        r->space_due = false;
        job.kind = JOB_SPACE;
        return job;
    }
    for (struct vv_remote_hist *h = r->hists; h; h = h->next)
        if (!h->stopped &&
            (pick_agreement_locked(h, now_ns, &job, due) || pick_upkeep_locked(h, &job)))
            return job;
    if (r->active.on && r->active.hist->stopped)
        return (struct job){.kind = JOB_STEP, .hist = r->active.hist};
    if (now_ns < r->free_ns) {
        *due = VV_MIN(*due, r->free_ns);
        return job;
    }
    if (r->active.on)
        return (struct job){.kind = JOB_STEP, .hist = r->active.hist};
    for (struct vv_remote_hist *h = r->hists; h; h = h->next)
        if (!h->stopped && pick_copy_locked(h, &job))
            return job;
    return job;
}

/* ---- results ---- */

void vvi_remote_reached_locked(struct vv_remote_hist *h, const struct vvi_rentry *e)
{
    h->report = true;
    h->report_from = VV_MIN(h->report_from, (size_t)(e - h->entry));
    h->sweep |= h->nleft > 0 && e->generation >= h->first_generation;
    vv_trace(VV_TRACE_REMOTE, h->trace_history, e->version, e->file.file_bytes, e->complete);
}

/* Stores the changes that a job has made to an entry. */
static void enter(const struct job *job, const struct vvi_rentry *now, int err)
{
    struct vv_remote_hist *h = job->hist;
    vv_mutex_lock(&h->remote->lock);
    struct vvi_rentry *e = vvi_remote_find(h, now->version, now->generation);
    if (e) {
        bool before = vvi_remote_reached(h, e);
        e->file = now->file;
        e->run_id = now->run_id;
        e->stored = now->stored;
        e->marked = now->marked;
        e->complete = now->complete;
        e->marked_ns = now->marked_ns;
        e->misses = now->misses;
        e->rest_ns = now->rest_ns;
        e->poll_ns = now->poll_ns;
        e->err = vv_store_error(err);
        e->doubtful |= err != 0;
        e->err_reported = false;
        h->low = VV_MIN(h->low, (size_t)(e - h->entry));
        if (!before && vvi_remote_reached(h, e))
            vvi_remote_reached_locked(h, e);
        vv_cond_broadcast(&h->remote->changed);
        vvi_space_wake_locked(h->remote);
    }
    vv_mutex_unlock(&h->remote->lock);
}

/* ---- copying ---- */

/* A copy keeps its history busy between its steps too. */
static void active_end(struct vv_remote *r)
{
    vvi_copy_end(&r->active.copy);
    r->active.on = false;
    vv_mutex_lock(&r->lock);
    r->active.hist->busy--;
    vv_cond_broadcast(&r->idle);
    vv_mutex_unlock(&r->lock);
}

static int copy_begin(struct vv_remote_hist *h, uint64_t version, uint64_t generation,
                      bool to_local)
{
    struct vv_remote *r = h->remote;
    char name[VV_CKFILE_NAME_MAX];
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, r->opts.rank, version, generation);
    int rc = vvi_copy_begin(&r->active.copy, to_local ? h->there : h->here,
                            to_local ? h->here : h->there, name);
    if (rc < 0)
        return rc;
    r->active.on = true;
    r->active.to_local = to_local;
    r->active.hist = h;
    r->active.version = version;
    r->active.generation = generation;
    vv_mutex_lock(&r->lock);
    h->busy++;
    vv_mutex_unlock(&r->lock);
    return 0;
}

static void run_copy(const struct job *job)
{
    struct vvi_rentry e = job->entry;
    int rc = copy_begin(job->hist, e.version, e.generation, false);
    if (rc < 0)
        enter(job, &e, rc);
}

/* Adds a copied file to the index of its folder. */
static void index_add(struct vv_files *files, const struct vv_ckfile_info *info)
{
    struct vv_files_entry entry = {
        .version = info->id.version,
        .generation = info->id.generation,
        .size = info->id.size,
        .run_id = info->id.run_id,
        .commit_time_ns = info->commit_time_ns,
        .file_bytes = vv_ckfile_bytes(info->id.size, info->nchunks, info->nregions),
        .rank = info->id.rank,
        .nregions = info->nregions,
        .regions = info->regions};
    vvi_index_add(&files->index, VVI_RECORD_COMMIT, &entry);
    vvi_index_flush(&files->index);
}

/* Records that the shared copy is intact again: the local one may be removed. */
static void repaired(struct vv_remote_hist *h, uint64_t version, uint64_t generation)
{
    vv_mutex_lock(&h->remote->lock);
    struct vvi_rentry *e = vvi_remote_find(h, version, generation);
    if (e)
        e->lacking = false;
    vvi_space_wake_locked(h->remote);
    vv_mutex_unlock(&h->remote->lock);
}

/* A file is about to be stored in the shared folder before an older one on local disk, whose copy has failed. They
 * may be of different lives, or editions. Without this record the next opening would attribute the newer one to
 * another node, and take the older one for outdated. */
static int note_known(struct vv_remote_hist *h, uint64_t generation)
{
    struct vv_remote *r = h->remote;
    struct vv_group local;
    bool passes = false;
    if (h->known || r->opts.complete)
        return 0;
    vv_mutex_lock(&r->lock);
    for (size_t i = 0; i < h->n && h->entry[i].generation < generation; i++)
        passes |= !h->entry[i].stored;
    vv_mutex_unlock(&r->lock);
    if (!passes)
        return 0;
    int rc = vv_group_open(h->here, h->local->history, h->local->rank, 1, true, &local);
    if (rc < 0)
        return rc;
    rc = vv_group_write_range(&local, h->run_id, h->known_first,
                              h->first_generation + VV_GROUP_LIFE_GENERATIONS);
    h->known = rc == 0;
    vv_group_close(&local);
    return rc;
}

static void copied(struct vv_remote *r, struct vvi_rentry *e, int rc)
{
    struct job job = {.hist = r->active.hist};
    struct vv_remote_hist *h = job.hist;
    const struct vv_ckfile_info *info = &r->active.copy.info;
    struct vv_group_file file;
    if (rc == 0 && !r->active.to_local)
        rc = note_known(h, r->active.generation);
    if (rc == 0)
        rc = vvi_copy_commit(&r->active.copy, r->active.to_local ? NULL : &h->group, &file);
    if (rc == 0) {
        index_add(r->active.to_local ? h->local : h->files, info);
        e->file = file;
        e->run_id = info->id.run_id;
    }
    if (rc == 0 && r->active.to_local) {
        atomic_fetch_add_explicit(&r->repaired_chunks, info->nchunks, memory_order_relaxed);
        vv_mutex_lock(&r->lock);
        struct vvi_rentry *there = vvi_remote_find(h, e->version, e->generation);
        if (there)
            there->local = true;
        vv_mutex_unlock(&r->lock);
    }
    if (rc == 0 && !r->active.to_local)
        repaired(h, e->version, e->generation);
    bool enters = !r->active.to_local && !e->stored;
    e->stored |= rc == 0;
    active_end(r);
    if (enters)
        enter(&job, e, rc);
}

/* Time at which the step after one of this many bytes may begin, by the node's budget and by this process's
 * own pace, which is for experiments. */
static uint64_t pace(struct vv_remote *r, uint64_t bytes)
{
    uint64_t now_ns = vv_now_ns(), own = r->opts.pace_bytes_per_s;
    uint64_t at = vv_budget_book_flush(r->budget, bytes, r->opts.bytes_per_s, now_ns);
    if (r->opts.bytes_per_s != 0)
        at += (uint64_t)((double)bytes / (double)r->opts.bytes_per_s * 1e9);
    return own == 0 ? at : VV_MAX(at, now_ns + (uint64_t)((double)bytes / (double)own * 1e9));
}

/* Small enough that a step at the given rate does not occupy the medium for long. */
static uint64_t step_bytes(const struct vv_remote *r)
{
    enum { STEP_BYTES = 4 << 20, STEPS_PER_S = 8 };
    uint64_t rate = r->opts.bytes_per_s;
    return rate == 0 ? STEP_BYTES : VV_MIN((uint64_t)STEP_BYTES, rate / STEPS_PER_S);
}

static void trace_step(const struct vv_remote *r, uint64_t start_ns, uint64_t chunk, uint64_t bytes)
{
    const struct vv_remote_hist *h = r->active.hist;
    uint64_t route =
        r->active.to_local
            ? VV_TRACE_ROUTE(VV_TRACE_HOP_R2F, VV_TRACE_TIER_REMOTE, VV_TRACE_TIER_FILE)
            : VV_TRACE_ROUTE(VV_TRACE_HOP_F2R, VV_TRACE_TIER_FILE, VV_TRACE_TIER_REMOTE);
    const uint64_t start[VV_TRACE_ARGS] = {route, h->trace_history, r->active.version, chunk,
                                           bytes};
    vv_trace_at(start_ns, VV_TRACE_COPY_START, start);
    vv_trace5(VV_TRACE_COPY_END, route, h->trace_history, r->active.version, chunk, 0);
}

static void run_step(const struct job *job)
{
    struct vv_remote *r = job->hist->remote;
    struct vv_remote_hist *h = r->active.hist;
    uint64_t moved = 0;
    vv_mutex_lock(&r->lock);
    struct vvi_rentry *found = vvi_remote_find(h, r->active.version, r->active.generation);
    bool gone = !found || found->removing || h->stopped;
    struct vvi_rentry e = gone ? (struct vvi_rentry){0} : *found;
    vv_mutex_unlock(&r->lock);
    if (gone) {
        active_end(r);
        return;
    }
    uint64_t now_ns = vv_now_ns(), yield_ns = 0;
    if (!r->yielded) {
        yield_ns = vv_budget_yield_until(r->budget, now_ns);
        if (yield_ns == 0 && r->opts.disk)
            yield_ns = vv_budget_yield_until(r->opts.disk, now_ns);
    }
    r->yielded = yield_ns != 0;
    if (r->yielded) {
        r->free_ns = yield_ns;
        return;
    }
    uint64_t start_ns = vv_now_ns(), chunk = r->active.copy.at / r->opts.store.page_bytes;
    int rc = vvi_copy_step(&r->active.copy, step_bytes(r), &moved);
    if (rc == 0 && moved > 0) {
        trace_step(r, start_ns, chunk, moved);
        if (!r->active.to_local)
            atomic_fetch_add_explicit(&r->written_bytes, moved, memory_order_relaxed);
        r->free_ns = pace(r, moved);
    }
    if (rc < 0 || moved == 0)
        copied(r, &e, rc);
}

/* ---- agreement ---- */

static uint64_t next_rest_ns(const struct vv_remote_hist *h, const struct vvi_rentry *e,
                             uint64_t now_ns)
{
    uint64_t most = h->waiters == 0                       ? POLL_MOST_NS
                    : now_ns - e->marked_ns > PATIENCE_NS ? POLL_LATE_NS
                                                          : POLL_WAIT_NS;
    return VV_MIN(VV_MAX(2 * e->rest_ns, POLL_FIRST_NS), most);
}

/* Waiting has taken long, and our own marker is missing: the folder was removed, or a later life has
 * begun. The version will never be complete. */
static bool is_hopeless(const struct vv_remote_hist *h, const struct vvi_rentry *e)
{
    struct vv_group_marker marker;
    return vv_now_ns() - e->marked_ns > PATIENCE_NS &&
           vv_group_read_marker(&h->group, e->version, e->run_id, h->group.rank, &marker) ==
               -ENOENT;
}

/* True if a later generation of the entry's version has reached the level. The entry's commit was then only slow,
 * which is not an error. */
static bool passed(struct vv_remote_hist *h, const struct vvi_rentry *e)
{
    vv_mutex_lock(&h->remote->lock);
    bool yes = vvi_remote_passed_locked(h, e);
    vv_mutex_unlock(&h->remote->lock);
    return yes;
}

static void look(const struct job *job, struct vvi_rentry *e, bool sweep)
{
    struct vv_remote_hist *h = job->hist;
    int rc = vv_group_complete(&h->group, e->version, e->run_id, sweep);
    if (rc == -EAGAIN && is_hopeless(h, e)) {
        rc = vv_group_alive(&h->group);
        enter(job, e, rc < 0 ? rc : -ENOENT);
        return;
    }
    if (rc == -ECANCELED && passed(h, e))
        rc = -EAGAIN;
    e->complete = rc == 0;
    if (e->complete)
        vv_group_drop_marker(&h->group, e->version, e->run_id);
    e->misses = rc < 0 && rc != -EAGAIN ? e->misses + 1 : 0;
    bool ends = rc == -ECANCELED || rc == -ERANGE || e->misses >= MISSES_MAX;
    vv_mutex_lock(&h->remote->lock);
    uint64_t now_ns = vv_now_ns();
    e->rest_ns = next_rest_ns(h, e, now_ns);
    vv_mutex_unlock(&h->remote->lock);
    e->poll_ns = now_ns + e->rest_ns;
    enter(job, e, ends ? rc : 0);
}

static void run_mark(const struct job *job)
{
    struct vv_remote_hist *h = job->hist;
    struct vv_remote *r = h->remote;
    struct vvi_rentry e = job->entry;
    char name[VV_CKFILE_NAME_MAX];
    int rc = 0;
    if (e.file.file_bytes == 0) {
        vv_ckfile_name(name, VV_CKFILE_COMMITTED, r->opts.rank, e.version, e.generation);
        rc = vvi_copy_identify(h->there, name, &e.run_id, &e.file);
    }
    if (rc == 0)
        rc = vv_group_write_marker(&h->group, e.version, e.run_id, &e.file);
    if (rc < 0) {
        enter(job, &e, rc);
        return;
    }
    e.marked = true;
    e.marked_ns = vv_now_ns();
    look(job, &e, true);
}

static void run_poll(const struct job *job)
{
    struct vvi_rentry e = job->entry;
    const struct vv_remote_opts *opts = &job->hist->remote->opts;
    bool first = e.version % opts->ranks == opts->rank;
    look(job, &e, first || vv_now_ns() - e.marked_ns > PATIENCE_NS);
}

/* ---- removals ---- */

/* Removes a version from the shared folder: marker and record, then the file. In a direct folder the
 * inner store removes the file. */
static int remove_shared(struct vv_remote_hist *h, uint64_t version, uint64_t generation,
                         uint64_t run_id, bool file)
{
    struct vv_remote *r = h->remote;
    char name[VV_CKFILE_NAME_MAX];
    int rc = h->records ? vv_group_retract(&h->group, version, run_id, generation)
                        : vv_group_alive(&h->group);
    if (rc < 0 || !file)
        return rc;
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, r->opts.rank, version, generation);
    rc = vv_target_remove(h->there, name);
    /* Sync even if the file did not exist: an earlier try may have deleted it and failed here. */
    if (rc == 0)
        rc = h->there->ops->sync(h->there);
    if (rc == -ENOENT)
        rc = 0; /* the folder was removed with the file */
    if (rc == 0) {
        struct vv_files_entry gone = {.version = version, .generation = generation};
        vvi_index_add(&h->files->index, VVI_RECORD_REMOVE, &gone);
        vvi_index_flush(&h->files->index);
    }
    return rc;
}

static bool take_left(struct vv_remote_hist *h, uint64_t version, struct vvi_rleft *ret)
{
    bool any = false;
    vv_mutex_lock(&h->remote->lock);
    for (size_t i = 0; i < h->nleft && !any; i++) {
        any = h->left[i].version == version;
        if (any) {
            *ret = h->left[i];
            h->left[i] = h->left[--h->nleft];
        }
    }
    vv_mutex_unlock(&h->remote->lock);
    return any;
}

/* A version of an earlier life is removed together with its other files. The other files go first: otherwise an
 * interrupted removal would leave older bytes as the version. Not called for files that this life began and gave
 * up. */
static int remove_left(struct vv_remote_hist *h, uint64_t version)
{
    struct vv_remote *r = h->remote;
    struct vvi_rleft left;
    int rc = 0;
    while (rc == 0 && take_left(h, version, &left)) {
        char name[VV_CKFILE_NAME_MAX];
        vv_ckfile_name(name, VV_CKFILE_COMMITTED, r->opts.rank, left.version, left.generation);
        if (left.remote)
            rc = remove_shared(h, left.version, left.generation, left.run_id, true);
        if (rc == 0 && left.local && h->here)
            rc = vv_target_remove(h->here, name);
        if (rc == 0 && left.local && h->here)
            rc = h->here->ops->sync(h->here);
        rc = rc == -ENOENT ? 0 : rc;
        vv_mutex_lock(&r->lock);
        if (rc < 0) {
            h->left[h->nleft++] = left; /* take_left made room for it */
        } else {
            r->used -= left.local_bytes;
            vvi_space_wake_locked(r);
        }
        vv_mutex_unlock(&r->lock);
    }
    return rc;
}

static void run_remove(const struct job *job)
{
    struct vv_remote_hist *h = job->hist;
    struct vv_remote *r = h->remote;
    const struct vv_store_key *key = &job->removal->io->key;
    if (r->active.on && r->active.hist == h && r->active.version == key->version &&
        r->active.generation == key->generation)
        active_end(r);
    vv_mutex_lock(&r->lock);
    const struct vvi_rentry *e = vvi_remote_find(h, key->version, key->generation);
    uint64_t run_id = e ? e->run_id : 0; /* of a damaged file it is not known */
    bool reached_there = !e || e->stored || e->doubtful;
    vv_mutex_unlock(&r->lock);
    int rc = key->generation < h->first_generation ? remove_left(h, key->version) : 0;
    job->removal->kept = rc < 0;
    if (rc == 0 && reached_there)
        rc = remove_shared(h, key->version, key->generation, run_id, !r->opts.direct);
    vvi_rstore_removed(job->removal, rc);
}

/* The first entry from `*at` on of which the engine must be notified. */
static bool find_unreported_locked(const struct vv_remote_hist *h, size_t *at,
                                   struct vvi_rentry *ret)
{
    for (; *at < h->n; ++*at) {
        const struct vvi_rentry *e = &h->entry[*at];
        if (e->reported || e->removing || !vvi_remote_reached(h, e))
            continue;
        *ret = *e;
        return true;
    }
    return false;
}

/* The engine may remove entries when it is notified, so the search goes on at this entry, or at the first one if
 * this entry was removed. */
static void run_report(const struct job *job)
{
    struct vv_remote_hist *h = job->hist;
    struct vvi_rentry e;
    vv_mutex_lock(&h->remote->lock);
    size_t at = h->report_from;
    h->report_from = h->n;
    while (find_unreported_locked(h, &at, &e)) {
        vv_mutex_unlock(&h->remote->lock);
        h->opts.reached(h->opts.arg, e.version, e.generation);
        vv_mutex_lock(&h->remote->lock);
        struct vvi_rentry *now = vvi_remote_find(h, e.version, e.generation);
        if (now)
            now->reported = true;
        at = now ? (size_t)(now - h->entry) : 0;
    }
    vv_cond_broadcast(&h->remote->changed);
    vv_mutex_unlock(&h->remote->lock);
}

/* Removes files of earlier lives. A file that cannot be removed is found again at the next opening. */
static void run_sweep(const struct job *job)
{
    struct vv_remote_hist *h = job->hist;
    struct vv_remote *r = h->remote;
    for (;;) {
        char name[VV_CKFILE_NAME_MAX];
        struct vvi_rleft left = {0};
        vv_mutex_lock(&r->lock);
        bool any = h->nleft > 0 && !h->stopped;
        if (any)
            left = h->left[--h->nleft];
        vv_mutex_unlock(&r->lock);
        if (!any)
            return;
        vv_ckfile_name(name, VV_CKFILE_COMMITTED, r->opts.rank, left.version, left.generation);
        if (left.remote && remove_shared(h, left.version, left.generation, left.run_id, true) < 0)
            left.local = false; /* the local file is removed only after its shared copy */
        if (left.local && h->here)
            (void)vv_target_remove(h->here, name);
        vv_mutex_lock(&r->lock);
        r->used -= left.local_bytes;
        vvi_space_wake_locked(r);
        vv_mutex_unlock(&r->lock);
    }
}

/* ---- repairs ---- */

void vvi_remote_repair_locked(struct vv_remote_hist *h, const struct vvi_repair *repair)
{
    struct vvi_repair **at = &h->repairs;
    if (h->part)
        return;
    for (; *at; at = &(*at)->next)
        if ((*at)->version == repair->version && (*at)->generation == repair->generation &&
            (*at)->from == repair->from && (*at)->to == repair->to &&
            (*at)->to_remote == repair->to_remote)
            return;
    *at = malloc(sizeof(**at));
    if (!*at)
        return;
    **at = *repair;
    (*at)->next = NULL;
    vv_cond_signal(&h->remote->work);
}

static void run_repair(const struct job *job)
{
    struct vv_remote_hist *h = job->hist;
    struct vv_remote *r = h->remote;
    const struct vvi_repair *p = job->repair;
    char name[VV_CKFILE_NAME_MAX];
    uint64_t repaired = 0;
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, r->opts.rank, p->version, p->generation);
    struct vv_target *good = p->to_remote ? h->here : h->there;
    struct vv_target *bad = p->to_remote ? h->there : h->here;
    int rc = -EBADMSG;
    if (p->to > 0)
        rc = vvi_copy_repair(good, bad, name, p->from, p->to, &repaired);
    atomic_fetch_add_explicit(&r->repaired_chunks, repaired, memory_order_relaxed);
    /* The bad copy has other faults than wrong chunks, so the whole file is copied. With a limit on local disk, a
     * removed local copy is not restored. */
    vv_mutex_lock(&r->lock);
    const struct vvi_rentry *e = vvi_remote_find(h, p->version, p->generation);
    bool room = e && (p->to_remote || r->opts.local_bytes == 0 || e->local_bytes > 0);
    vv_mutex_unlock(&r->lock);
    if (rc < 0 && room)
        rc = copy_begin(h, p->version, p->generation, !p->to_remote);
    vv_trace5(VV_TRACE_HEAL, h->trace_history, p->version, p->from, p->to, (uint64_t)(int64_t)rc);
    free(job->repair);
}

/* ---- the thread ---- */

static void run(const struct job *job)
{
    switch (job->kind) {
    case JOB_REMOVE:
        run_remove(job);
        break;
    case JOB_SPACE: /* it concerns all histories: the worker's loop does it */
        break;
    case JOB_MARK:
        run_mark(job);
        break;
    case JOB_POLL:
        run_poll(job);
        break;
    case JOB_REPORT:
        run_report(job);
        break;
    case JOB_SWEEP:
        run_sweep(job);
        break;
    case JOB_COPY:
        run_copy(job);
        break;
    case JOB_STEP:
        run_step(job);
        break;
    case JOB_REPAIR:
        run_repair(job);
        break;
    case JOB_NONE:
        break;
    }
}

void *vvi_remote_worker(void *arg)
{
    struct vv_remote *r = arg;
    vv_trace_thread("remote");
    vv_mutex_lock(&r->lock);
    for (;;) {
        uint64_t due;
        struct job job = pick_locked(r, vv_now_ns(), &due);
        if (job.kind == JOB_NONE) {
            if (r->stopping)
                break;
            vv_cond_wait_until(&r->work, &r->lock, due);
            continue;
        }
        if (job.kind == JOB_SPACE) {
            vv_mutex_unlock(&r->lock);
            vvi_space_make(r);
            vv_mutex_lock(&r->lock);
            continue;
        }
        job.hist->busy++;
        vv_mutex_unlock(&r->lock);
        run(&job);
        vv_mutex_lock(&r->lock);
        job.hist->busy--;
        vv_cond_broadcast(&r->idle);
    }
    vv_mutex_unlock(&r->lock);
    return NULL;
}
