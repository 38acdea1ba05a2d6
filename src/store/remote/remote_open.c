/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a history with a local and a shared folder: which files count.
 *
 * With group records, they alone decide. A record names one run and, for this rank, one generation: the file of that
 * name and run is the version, in either folder. All other files are left over from lives that did not complete them,
 * and invisible. Concurrent steps of other ranks do not change that: a record of an earlier life is written only if
 * all its markers exist, by the first rank that looks, and no rank continues an unfinished version of an earlier life.
 *
 * Otherwise the highest generation of a version counts, in either folder: generations grow from life to life. A local
 * file that never came to the shared folder is outdated if a later life on another node has written to the shared
 * folder since: it is not taken. Otherwise it is the newest file, and is copied to the shared folder now. That copy
 * may fail while a later version arrives there: therefore the life file of the local folder records up to which
 * generation lives have used this folder. Lower generations are taken too; the engine decides when they go.
 *
 * A damaged file is repaired if the other folder has a good copy. If there is none, and the file has the highest
 * generation or a record names it, the version is listed as damaged: older bytes must not come back in its place.
 *
 * Everything here runs on the thread that opens or closes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "store/remote/remote_private.h"

struct opening {
    struct vv_remote_hist *hist;
    struct vvi_rfound *v; /* both folders, by version and generation; one for each pair */
    size_t n, room;
    struct vvi_rdamage *bad; /* of the shared folder first, nbad_remote of them */
    size_t nbad, bad_room, nbad_remote;
    bool local; /* which folder is being listed */
    size_t used;
    char *err;
    size_t err_bytes;
};

static int grow(void **array, size_t n, size_t *room, size_t bytes)
{
    if (n < *room)
        return 0;
    size_t more = VV_MAX(2 * *room, (size_t)64);
    void *p = realloc(*array, more * bytes);
    if (!p)
        return -ENOMEM;
    *array = p;
    *room = more;
    return 0;
}

/* ---- listing ---- */

static int take_file(void *user, const struct vv_files_entry *e)
{
    struct opening *o = user;
    int rc = grow((void **)&o->v, o->n, &o->room, sizeof(*o->v));
    if (rc < 0)
        return rc;
    struct vvi_rfound f = {.e = *e, .local = o->local, .remote = !o->local};
    f.regions = malloc(e->nregions * sizeof(*f.regions) + 1);
    if (!f.regions)
        return -ENOMEM;
    if (e->nregions > 0)
        memcpy(f.regions, e->regions, e->nregions * sizeof(*f.regions));
    f.e.regions = f.regions;
    o->v[o->n++] = f;
    return 0;
}

static int take_damage(void *user, const struct vv_files_damage *d)
{
    struct opening *o = user;
    int rc = grow((void **)&o->bad, o->nbad, &o->bad_room, sizeof(*o->bad));
    if (rc < 0 || d->status == -ENOENT)
        return rc;
    struct vvi_rdamage bad = {d->version, d->generation, d->status, strdup(d->what)};
    if (!bad.what)
        return -ENOMEM;
    o->bad[o->nbad++] = bad;
    return 0;
}

static int compare_found(const void *a, const void *b)
{
    const struct vvi_rfound *x = a, *y = b;
    if (x->e.version != y->e.version)
        return x->e.version < y->e.version ? -1 : 1;
    if (x->e.generation != y->e.generation)
        return x->e.generation < y->e.generation ? -1 : 1;
    return (int)y->remote - (int)x->remote; /* the shared one first */
}

/* Joins the copies of one file. A local file of the same name with another run id cannot be a copy: the shared
 * file counts. */
static void join_copies(struct opening *o)
{
    size_t kept = 0;
    for (size_t i = 0; i < o->n; i++) {
        struct vvi_rfound *f = &o->v[i], *last = kept > 0 ? &o->v[kept - 1] : NULL;
        if (last && last->e.version == f->e.version && last->e.generation == f->e.generation) {
            last->local |= f->local && f->e.run_id == last->e.run_id;
            free(f->regions);
        } else {
            o->v[kept++] = *f;
        }
    }
    o->n = kept;
}

static int list_folders(struct opening *o)
{
    struct vv_remote_hist *h = o->hist;
    int rc = vv_files_list(h->files, take_file, o);
    if (rc == 0)
        rc = vv_files_list_damaged(h->files, take_damage, o);
    o->nbad_remote = o->nbad;
    o->local = true;
    if (rc == 0 && h->local)
        rc = vv_files_list(h->local, take_file, o);
    if (rc == 0 && h->local && !h->part)
        rc = vv_files_list_damaged(h->local, take_damage, o);
    if (rc == 0 && o->n > 1)
        qsort(o->v, o->n, sizeof(*o->v), compare_found);
    if (rc == 0)
        join_copies(o);
    return rc;
}

static struct vvi_rfound *find_file(struct opening *o, uint64_t version, uint64_t generation)
{
    size_t lo = 0, hi = o->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct vv_files_entry *e = &o->v[mid].e;
        if (e->version < version || (e->version == version && e->generation < generation))
            lo = mid + 1;
        else
            hi = mid;
    }
    bool there = lo < o->n && o->v[lo].e.version == version && o->v[lo].e.generation == generation;
    return there ? &o->v[lo] : NULL;
}

/* The damaged file of that name, or NULL. `ret_remote`: it is in the shared folder. */
static struct vvi_rdamage *find_damage(const struct opening *o, uint64_t version,
                                       uint64_t generation, bool *ret_remote)
{
    for (size_t i = 0; i < o->nbad; i++)
        if (o->bad[i].version == version && o->bad[i].generation == generation) {
            *ret_remote = i < o->nbad_remote;
            return &o->bad[i];
        }
    return NULL;
}

/* Bytes for which a local file counts against the limit of local disk; 0: there is no file or no limit. */
static uint64_t local_bytes(const struct vv_remote_hist *h, const struct vvi_rfound *f)
{
    struct vv_target_file *file;
    char name[VV_CKFILE_NAME_MAX];
    uint64_t bytes = 0;
    if (!f->local || !h->here || h->part || h->remote->opts.local_bytes == 0)
        return 0;
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, f->e.rank, f->e.version, f->e.generation);
    if (h->here->ops->open(h->here, name, VV_TARGET_READ, &file) == 0) {
        bytes = file->bytes;
        vv_target_end(file);
    }
    return VV_MAX(bytes, (uint64_t)1);
}

/* ---- which files count ---- */

static int add_damage(struct vv_remote_hist *h, uint64_t version, uint64_t generation, int status,
                      const char *what)
{
    struct vvi_rdamage *more = realloc(h->damaged, (h->ndamaged + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    h->damaged = more;
    struct vvi_rdamage d = {version, generation, status, strdup(what)};
    if (!d.what)
        return -ENOMEM;
    h->damaged[h->ndamaged++] = d;
    return 0;
}

/* Takes a file as the version. */
static int adopt(struct opening *o, struct vvi_rfound *f, bool complete)
{
    struct vv_remote_hist *h = o->hist;
    bool in_remote = false;
    const struct vvi_rdamage *bad = find_damage(o, f->e.version, f->e.generation, &in_remote);
    struct vvi_rentry e = {.version = f->e.version,
                           .generation = f->e.generation,
                           .run_id = f->e.run_id,
                           .local = f->local,
                           .local_bytes = local_bytes(h, f),
                           .stored = f->remote || complete,
                           .marked = complete,
                           .complete = complete};
    /* If the shared file is damaged or missing, the local one repairs it. */
    struct vvi_repair repair = {.version = e.version, .generation = e.generation};
    repair.to_remote = complete && !f->remote && !h->part;
    e.lacking = repair.to_remote;
    bool repairs = repair.to_remote || (bad && !in_remote && f->remote);
    e.reported = vvi_remote_reached(h, &e);
    f->used = true;
    o->used++;
    vv_mutex_lock(&h->remote->lock);
    bool fits = vvi_remote_add(h, &e);
    h->remote->used += fits ? e.local_bytes : 0;
    if (fits && repairs)
        vvi_remote_repair_locked(h, &repair);
    vv_mutex_unlock(&h->remote->lock);
    return fits ? 0 : -ENOMEM;
}

/* ---- with group records ---- */

/* Looks for a file that a record names and the listing lacks: it may exist all the same. */
static int look_for_file(struct opening *o, uint64_t version, uint64_t generation)
{
    struct vv_remote_hist *h = o->hist;
    struct vv_target_file *file;
    char name[VV_CKFILE_NAME_MAX];
    struct vv_ckfile_info info;
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, h->rank, version, generation);
    if (h->there->ops->open(h->there, name, VV_TARGET_READ, &file) < 0)
        return 0;
    int rc = vv_ckfile_read_from(file, true, NULL, 0, &info);
    vv_target_end(file);
    if (rc < 0)
        return rc == -ENOMEM ? rc : 0;
    struct vv_files_entry e = {.version = version,
                               .generation = generation,
                               .size = info.id.size,
                               .run_id = info.id.run_id,
                               .commit_time_ns = info.commit_time_ns,
                               .rank = info.id.rank,
                               .nregions = info.nregions,
                               .regions = info.regions};
    o->local = false;
    rc = take_file(o, &e);
    vv_ckfile_info_fini(&info);
    qsort(o->v, o->n, sizeof(*o->v), compare_found);
    return rc;
}

static int other_ranks(const struct opening *o, uint64_t version, uint32_t ranks)
{
    const struct vv_remote_opts *opts = &o->hist->remote->opts;
    return vvi_error(-EINVAL, o->err, o->err_bytes,
                     "version %" PRIu64 " in %.60s was written by %" PRIu32
                     " ranks, and this run has %" PRIu32
                     ": run as many, read its parts (varve_part_open), or remove the history "
                     "(varve rm, varve_history_remove)",
                     version, opts->path, ranks, opts->ranks);
}

static int take_record(void *user, const struct vv_group_record *record, int error)
{
    struct opening *o = user;
    struct vv_remote_hist *h = o->hist;
    char what[160];
    if (error != 0) {
        snprintf(what, sizeof(what), "its group record cannot be read: %s", strerror(-error));
        return add_damage(h, record->version, 0, error, what);
    }
    if (h->part && record->ranks <= h->rank)
        return 0; /* this rank has no file of it */
    if (record->ranks != h->remote->opts.ranks && !h->part)
        return other_ranks(o, record->version, record->ranks);
    uint64_t generation = record->file[h->rank].generation;
    struct vvi_rfound *f = find_file(o, record->version, generation);
    bool in_remote;
    const struct vvi_rdamage *bad = find_damage(o, record->version, generation, &in_remote);
    if (!f && !bad) {
        int rc = look_for_file(o, record->version, generation);
        if (rc < 0)
            return rc;
        f = find_file(o, record->version, generation);
    }
    if (f && f->e.run_id == record->run_id)
        return adopt(o, f, true);
    snprintf(what, sizeof(what), "in the shared folder: %s", bad ? bad->what : "it is missing");
    return add_damage(h, record->version, generation, bad ? bad->status : -EBADMSG, what);
}

static bool is_known(const struct vv_remote_hist *h, uint64_t version)
{
    bool known = false;
    for (size_t i = 0; i < h->ndamaged && !known; i++)
        known = h->damaged[i].version == version;
    for (size_t i = 0; i < h->n && !known; i++)
        known = h->entry[i].version == version;
    return known;
}

/* A file may also have a record that the listing lacks. */
static int look_for_records(struct opening *o)
{
    struct vv_remote_hist *h = o->hist;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->n; i++) {
        struct vv_group_record record;
        const struct vv_files_entry *e = &o->v[i].e;
        if (o->v[i].used || is_known(h, e->version) ||
            vv_group_read_record(&h->group, e->version, e->run_id, &record) < 0)
            continue;
        rc = take_record(o, &record, 0);
        vv_group_record_fini(&record);
    }
    return rc;
}

/* Versions that another number of ranks wrote at level remote have no records, and would be swept as left over. */
static int check_life(const struct opening *o)
{
    const struct vv_remote_hist *h = o->hist;
    struct vv_group_life last;
    if (h->part || vv_group_read_life(&h->group, &last) < 0 || last.ranks == 0 ||
        last.ranks == h->remote->opts.ranks)
        return 0;
    for (size_t i = 0; i < o->n; i++)
        if (o->v[i].remote && !o->v[i].used)
            return other_ranks(o, o->v[i].e.version, last.ranks);
    return 0;
}

static int take_complete(struct opening *o)
{
    struct vv_remote_hist *h = o->hist;
    if (!h->group.at)
        return 0; /* part of a history that never had this level */
    int rc = vv_group_scan(&h->group, h->part ? VV_GROUP_DEDUCE : VV_GROUP_WRITE, take_record, o);
    if (rc == 0)
        rc = look_for_records(o);
    return rc < 0 ? rc : check_life(o);
}

/* ---- without group records ---- */

/* The highest generations in the shared folder: of any run, and of all runs except `run_id`. */
struct newest {
    uint64_t generation, run_id, other;
    struct vv_group_life known; /* from the local folder */
    bool part;                  /* files that are only in the local folder do not count */
};

/* Reads the life file of the local folder; zero: there is none. */
static int read_known(const struct vv_remote_hist *h, struct vv_group_life *ret)
{
    struct vv_group local;
    if (!h->here)
        return 0;
    int rc = vv_group_open(h->here, h->local->history, h->local->rank, 1, false, &local);
    if (rc == 0) {
        rc = vv_group_read_life(&local, ret);
        vv_group_close(&local);
    }
    return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
}

static struct newest newest_of(const struct opening *o)
{
    struct newest top = {.part = o->hist->part};
    for (size_t i = 0; i < o->n; i++) {
        const struct vv_files_entry *e = &o->v[i].e;
        if (o->v[i].remote && e->generation >= top.generation) {
            top.generation = e->generation;
            top.run_id = e->run_id;
        }
    }
    for (size_t i = 0; i < o->n; i++) {
        const struct vv_files_entry *e = &o->v[i].e;
        if (o->v[i].remote && e->run_id != top.run_id)
            top.other = VV_MAX(top.other, e->generation);
    }
    return top;
}

static bool out_of_date(const struct vvi_rfound *f, const struct newest *top)
{
    uint64_t later = f->e.run_id != top->run_id ? top->generation : top->other;
    if (f->remote)
        return false;
    if (top->part)
        return true; /* it has not reached the level */
    return f->e.generation < top->known.first_generation ||
           (later > f->e.generation && later >= top->known.next_generation);
}

/* The highest damaged generation of a version; NULL: none. */
static const struct vvi_rdamage *worst_of(const struct opening *o, uint64_t version)
{
    const struct vvi_rdamage *worst = NULL;
    for (size_t i = 0; i < o->nbad; i++)
        if (o->bad[i].version == version && (!worst || o->bad[i].generation > worst->generation))
            worst = &o->bad[i];
    return worst;
}

static int compare_ranks(void *user, const struct vv_group_record *record, int error)
{
    const struct opening *o = user;
    o->hist->records = true;
    return error != 0 || record->ranks == o->hist->remote->opts.ranks
               ? 0
               : other_ranks(o, record->version, record->ranks);
}

/* A job of another number of ranks has completed versions: retention and overwriting would take this rank's part. */
static int check_records(struct opening *o)
{
    struct vv_remote_hist *h = o->hist;
    return h->part ? 0 : vv_group_scan(&h->group, VV_GROUP_DEDUCE, compare_ranks, o);
}

static int take_highest(struct opening *o)
{
    struct newest top = newest_of(o);
    int rc = check_records(o);
    if (rc == 0)
        rc = read_known(o->hist, &top.known);
    o->hist->known_first = top.known.first_generation;
    for (size_t i = 0; i < o->n; i++)
        if (out_of_date(&o->v[i], &top))
            o->hist->known_first = VV_MAX(o->hist->known_first, o->v[i].e.generation + 1);
    for (size_t first = 0, next; rc == 0 && first < o->n; first = next) {
        const struct vvi_rdamage *worst = worst_of(o, o->v[first].e.version);
        for (next = first; next < o->n && o->v[next].e.version == o->v[first].e.version;)
            next++;
        size_t best = next;
        while (best > first && out_of_date(&o->v[best - 1], &top))
            best--;
        if (best == first || (worst && worst->generation > o->v[best - 1].e.generation))
            continue;
        /* Lower generations are removed when the highest has reached the level, or with the version. */
        for (size_t i = first; rc == 0 && i < best; i++)
            if (!out_of_date(&o->v[i], &top) && (i + 1 == best || !top.part))
                rc = adopt(o, &o->v[i], false);
    }
    for (size_t i = 0; rc == 0 && i < o->nbad; i++) {
        const struct vvi_rdamage *bad = &o->bad[i];
        struct vv_remote_hist *h = o->hist;
        bool listed = false;
        for (size_t k = 0; k < h->ndamaged; k++)
            listed |= h->damaged[k].version == bad->version;
        for (size_t k = 0; k < h->n; k++)
            listed |= h->entry[k].version == bad->version;
        if (!listed && bad == worst_of(o, bad->version))
            rc = add_damage(h, bad->version, bad->generation, bad->status, bad->what);
    }
    return rc;
}

/* ---- the rest ---- */

static bool is_damaged(const struct vv_remote_hist *h, uint64_t version)
{
    for (size_t i = 0; i < h->ndamaged; i++)
        if (h->damaged[i].version == version)
            return true;
    return false;
}

/* True if a later generation of its version was taken. */
static bool is_passed(const struct opening *o, size_t i)
{
    for (size_t k = i + 1; k < o->n && o->v[k].e.version == o->v[i].e.version; k++)
        if (o->v[k].used)
            return true;
    return false;
}

/* Files not taken are to be swept; taken ones are to be listed. If a version's record cannot be read, the version was
 * complete, and the record may be read or rewritten later: its files stay until it is discarded. A file whose version
 * was taken in a later generation loses its marker now: after that one is removed, the marker would lead to a
 * record. */
static int settle(struct opening *o)
{
    struct vv_remote_hist *h = o->hist;
    h->found = calloc(o->used + 1, sizeof(*h->found));
    h->left = calloc(o->n + 1, sizeof(*h->left));
    if (!h->found || !h->left)
        return -ENOMEM;
    for (size_t i = 0; i < o->n; i++) {
        struct vvi_rfound *f = &o->v[i];
        if (f->used) {
            h->found[h->nfound++] = *f;
            f->regions = NULL;
        } else if (!h->part && (!h->remote->opts.complete || !is_damaged(h, f->e.version))) {
            if (h->remote->opts.complete && is_passed(o, i))
                vv_group_drop_marker(&h->group, f->e.version, f->e.run_id);
            struct vvi_rleft left = {.version = f->e.version,
                                     .generation = f->e.generation,
                                     .run_id = f->e.run_id,
                                     .local_bytes = local_bytes(h, f),
                                     .local = f->local,
                                     .remote = f->remote};
            h->left[h->nleft++] = left;
            vv_mutex_lock(&h->remote->lock);
            h->remote->used += left.local_bytes;
            vv_mutex_unlock(&h->remote->lock);
        }
    }
    return 0;
}

static struct vvi_opened *opened_before(struct vv_remote *r, uint64_t name_sum)
{
    struct vvi_opened *fresh = calloc(1, sizeof(*fresh));
    vv_mutex_lock(&r->lock);
    struct vvi_opened *o = r->opened;
    while (o && o->name_sum != name_sum)
        o = o->next;
    if (!o && fresh) {
        o = fresh;
        fresh = NULL;
        o->name_sum = name_sum;
        o->next = r->opened;
        r->opened = o;
    }
    vv_mutex_unlock(&r->lock);
    free(fresh);
    return o;
}

/* Every opening is a life of its own: unfinished work of the life before is not continued, so its markers must not be
 * taken for this one's. All ranks open a history the same number of times, so only successful openings are counted:
 * the number of failed tries differs between ranks (-EBUSY, for example, while an old process ends), and must not give
 * them different lives. */
static int choose_life(struct vv_remote_hist *h, const char *history)
{
    struct vv_remote *r = h->remote;
    uint64_t seed[3] = {r->run_id, vv_hash64(history, strlen(history)), 0};
    h->opened = opened_before(r, seed[1]);
    if (!h->opened)
        return -ENOMEM;
    vv_mutex_lock(&r->lock);
    seed[2] = h->opened->times;
    vv_mutex_unlock(&r->lock);
    h->run_id = seed[2] == 0 ? r->run_id : vv_hash64(seed, sizeof(seed));
    return 0;
}

/* The life file names only the last life. Markers left by an earlier life with the same id would be taken for this
 * one's; and where there is a marker there is the file. */
static bool wrote_before(const struct vv_remote_hist *h)
{
    for (size_t i = 0; i < h->nfound; i++)
        if (h->found[i].e.run_id == h->run_id)
            return true;
    for (size_t i = 0; i < h->nleft; i++)
        if (h->left[i].run_id == h->run_id)
            return true;
    return false;
}

static int begin_life(struct vv_remote_hist *h, const char *history, char *err, size_t err_bytes)
{
    struct vv_group_life last = {0};
    int rc = vv_group_read_life(&h->group, &last);
    if (rc == -ENOENT || rc == -EBADMSG)
        rc = 0; /* without it, the listing is used */
    if (rc < 0)
        return vvi_error(rc, err, err_bytes, "cannot read the life file of history %s: %s", history,
                         strerror(-rc));
    vv_mutex_lock(&h->remote->lock);
    bool ours = h->opened->begun; /* a try of this context has failed before it wrote anything */
    vv_mutex_unlock(&h->remote->lock);
    if ((last.run_id == h->run_id && !ours) || wrote_before(h))
        return vvi_error(-EINVAL, err, err_bytes,
                         "run %016" PRIx64 " has written history %s before: every start of a job "
                         "needs a run id of its own",
                         h->run_id, history);
    uint64_t first = VV_MAX(vv_files_first_generation(h->files), last.next_generation);
    if (h->local)
        first = VV_MAX(first, vv_files_first_generation(h->local));
    h->first_generation = VV_MAX(first, (uint64_t)1);
    vv_mutex_lock(&h->remote->lock);
    h->opened->begun = true;
    vv_mutex_unlock(&h->remote->lock);
    rc = vv_group_write_life(&h->group, h->run_id, h->first_generation);
    if (rc < 0)
        return vvi_error(rc, err, err_bytes, "cannot write the life file of history %s: %s",
                         history, strerror(-rc));
    vvi_files_sweep(h->files); /* not before: if the opening is refused, another life goes on */
    return 0;
}

static int find_versions(struct vv_remote_hist *h, char *err, size_t err_bytes)
{
    struct opening o = {.hist = h, .err = err, .err_bytes = err_bytes};
    int rc = list_folders(&o);
    if (rc == 0)
        rc = h->remote->opts.complete ? take_complete(&o) : take_highest(&o);
    if (rc == 0)
        rc = settle(&o);
    for (size_t i = 0; i < o.n; i++)
        free(o.v[i].regions);
    for (size_t i = 0; i < o.nbad; i++)
        free(o.bad[i].what);
    free(o.v);
    free(o.bad);
    if (rc < 0 && err_bytes > 0 && err[0] == '\0')
        vvi_error(rc, err, err_bytes, "cannot read what is in %s: %s", h->remote->opts.path,
                  strerror(-rc));
    return rc;
}

static struct vv_target *place_of(struct vv_remote_hist *h, int i, const struct vv_files *files)
{
    struct vv_target_folder *place = &h->place[i];
    if (files->folder->target || !files->at)
        return files->at;
    vv_target_folder_init(place, files->folder->opts.os, files->dirfd);
    place->direct = files->folder->direct;
    place->aio = h->remote->aio;
    return &place->base;
}

int vv_remote_open(struct vv_remote *r, const char *history, struct vv_files *local,
                   const struct vv_remote_hist_opts *opts, char *err, size_t err_bytes,
                   struct vv_remote_hist **ret_hist)
{
    struct vv_remote_hist *h = calloc(1, sizeof(*h));
    if (!h)
        return vvi_error(-ENOMEM, err, err_bytes, "out of memory");
    h->remote = r;
    h->rank = r->opts.rank;
    h->opts = *opts;
    h->local = local;
    h->stopped = true; /* until vv_remote_start */
    int rc = choose_life(h, history);
    if (rc < 0) {
        free(h);
        return vvi_error(rc, err, err_bytes, "out of memory");
    }
    struct vv_files_opts files = {.run_id = h->run_id,
                                  .all_generations = true,
                                  .shared = true,
                                  /* At level complete the records have the number. */
                                  .ranks = r->opts.complete ? 0 : r->opts.ranks};
    rc = vv_files_open(r->folder, history, r->opts.rank, &files, err, err_bytes, &h->files);
    if (rc == 0) {
        if (local)
            h->here = place_of(h, 0, local);
        h->there = place_of(h, 1, h->files);
        rc = vv_group_open(h->there, history, r->opts.rank, r->opts.ranks, true, &h->group);
        h->group.no_records = !r->opts.complete;
        h->records = r->opts.complete;
        if (rc < 0)
            vvi_error(rc, err, err_bytes, "cannot open %s/%s/" VV_GROUP_FOLDER ": %s", r->opts.path,
                      history, strerror(-rc));
    }
    if (rc == 0)
        rc = find_versions(h, err, err_bytes);
    if (rc == 0)
        rc = begin_life(h, history, err, err_bytes);
    if (rc < 0) {
        vv_remote_close(h);
        return rc;
    }
    (local ? local : h->files)->remote = h;
    if (local)
        local->run_id = h->run_id;
    vv_mutex_lock(&r->lock);
    h->next = r->hists;
    r->hists = h;
    vv_mutex_unlock(&r->lock);
    *ret_hist = h;
    return 0;
}

int vv_remote_open_part(struct vv_remote *r, const char *history, uint32_t rank, uint32_t ranks,
                        struct vv_files *local, char *err, size_t err_bytes,
                        struct vv_remote_hist **ret_hist)
{
    static const struct vv_files_opts files = {.shared = true, .read_only = true};
    struct vv_remote_hist *h = calloc(1, sizeof(*h));
    if (!h)
        return vvi_error(-ENOMEM, err, err_bytes, "out of memory");
    h->remote = r;
    h->rank = rank;
    h->local = local;
    h->part = h->stopped = true;
    int rc = vv_files_open(r->folder, history, rank, &files, err, err_bytes, &h->files);
    if (rc == 0 && !h->files->at)
        rc = vvi_error(-ENOENT, err, err_bytes, "there is no history %s in %s", history,
                       r->opts.path);
    if (rc == 0) {
        h->here = local ? place_of(h, 0, local) : NULL;
        h->there = place_of(h, 1, h->files);
        rc = vv_group_open(h->there, history, rank, ranks, false, &h->group);
        if (rc < 0 && rc != -ENOENT)
            vvi_error(rc, err, err_bytes, "cannot open %s/%s/" VV_GROUP_FOLDER ": %s", r->opts.path,
                      history, strerror(-rc));
        rc = rc == -ENOENT ? 0 : rc;
    }
    if (rc == 0)
        rc = find_versions(h, err, err_bytes);
    if (rc < 0) {
        vv_remote_close(h);
        return rc;
    }
    (local ? local : h->files)->remote = h;
    *ret_hist = h;
    return 0;
}

void vv_remote_start(struct vv_remote_hist *h, uint64_t trace_history)
{
    vv_mutex_lock(&h->remote->lock);
    h->trace_history = trace_history;
    if (!h->part) {
        h->stopped = false;
        h->opened->times++;
        h->opened->begun = false;
        vv_cond_signal(&h->remote->work);
    }
    vv_mutex_unlock(&h->remote->lock);
}

void vv_remote_stop(struct vv_remote_hist *h)
{
    struct vv_remote *r = h->remote;
    vv_mutex_lock(&r->lock);
    h->stopped = true;
    vvi_space_wake_locked(r);
    vv_cond_signal(&r->work);
    while (h->busy > 0)
        vv_cond_wait(&r->idle, &r->lock);
    vv_mutex_unlock(&r->lock);
}

void vv_remote_close(struct vv_remote_hist *h)
{
    if (!h)
        return;
    struct vv_remote *r = h->remote;
    vv_remote_stop(h);
    vv_mutex_lock(&r->lock);
    for (struct vv_remote_hist **at = &r->hists; *at; at = &(*at)->next)
        if (*at == h) {
            *at = h->next;
            break;
        }
    vvi_space_forget_locked(h);
    vv_mutex_unlock(&r->lock);
    if (h->local)
        h->local->remote = NULL;
    /* The index belongs to the later life then. */
    if (h->files && vvi_index_unsaved(&h->files->index) &&
        (h->group.life_run == 0 || vv_group_alive(&h->group) < 0))
        vvi_index_leave(&h->files->index);
    vv_group_close(&h->group);
    vv_files_close(h->files);
    for (struct vvi_repair *p = h->repairs, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    for (size_t i = 0; i < h->nfound; i++)
        free(h->found[i].regions);
    for (size_t i = 0; i < h->ndamaged; i++)
        free(h->damaged[i].what);
    free(h->found);
    free(h->damaged);
    free(h->left);
    free(h->entry);
    free(h);
}

struct vv_files *vv_remote_files(struct vv_remote_hist *h)
{
    return h->files;
}

uint64_t vv_remote_first_generation(const struct vv_remote_hist *h)
{
    return h->first_generation;
}

uint64_t vv_remote_run_id(const struct vv_remote_hist *h)
{
    return h->run_id;
}

int vv_remote_list(struct vv_remote_hist *h,
                   int (*visit)(void *user, const struct vv_files_entry *e), void *user)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < h->nfound; i++)
        rc = visit(user, &h->found[i].e);
    for (size_t i = 0; i < h->nfound; i++)
        free(h->found[i].regions);
    free(h->found);
    h->found = NULL;
    h->nfound = 0;
    return rc;
}

int vv_remote_list_damaged(const struct vv_remote_hist *h,
                           int (*visit)(void *user, const struct vv_files_damage *d), void *user)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < h->ndamaged; i++) {
        const struct vvi_rdamage *bad = &h->damaged[i];
        struct vv_files_damage d = {bad->version, bad->generation, bad->status, bad->what};
        rc = visit(user, &d);
    }
    return rc;
}
