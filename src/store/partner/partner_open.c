/* SPDX-License-Identifier: Apache-2.0 */
/* Partner copies: opening a history, collectively.
 *
 *   offer   every process sends the owners of the files that it keeps the list of these files;
 *   fetch   an owner fetches what it lacks: a version that it does not have, has only in a lower generation,
 *           or whose file cannot be used. A version that it has removed, according to its index, it
 *           does not fetch;
 *   push    versions that the partner lacks go there: at once if no thread would send them later;
 *   drop    copies that are not needed are dropped: removed by their owner, replaced by a higher generation, or
 *           kept by a process that was the partner in another arrangement, once the present partner has them;
 *   number  new files get generations above all that any process here has seen, and above those of any
 *           earlier second: a node that is away may have used others.
 *
 * Runs are not compared here: files have their run id, and the processes agree on a version of one run afterwards
 * (varve_latest_mpi).
 *
 * All processes do all of this, in this order. After each step every process knows if all have succeeded. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "store/partner/partner_private.h"
#include "store/remote/ckcopy.h"
#include "store/target/folder/target_folder.h"

/* A file that one process keeps for another. */
struct offer {
    uint64_t version, generation;
    uint32_t owner, keeper;
    uint32_t home; /* it is not among copies: its owner ran there */
    uint32_t gone; /* set by the owner: its index has a removal of it */
};

struct offers {
    struct offer *v;
    size_t n, room;
};

struct opening {
    struct vv_partner *p;
    struct vv_files *files;
    const char *history;
    int held_fd;
    uint64_t top_generation; /* of the files that are kept here */
    struct offers kept;      /* here, for others */
    struct offers mine;      /* elsewhere, for this process */
    bool fetched;
};

static int offers_add(struct offers *o, const struct offer *offer)
{
    if (o->n == o->room) {
        size_t room = VV_MAX(2 * o->room, (size_t)64);
        struct offer *more = realloc(o->v, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        o->v = more;
        o->room = room;
    }
    o->v[o->n++] = *offer;
    return 0;
}

/* By version; then the highest generation first; then our partner before others. */
static int compare_offers(const void *a, const void *b)
{
    const struct offer *x = a, *y = b;
    if (x->version != y->version)
        return x->version < y->version ? -1 : 1;
    if (x->generation != y->generation)
        return x->generation > y->generation ? -1 : 1;
    if (x->keeper != y->keeper)
        return x->keeper < y->keeper ? -1 : 1;
    return (int)x->home - (int)y->home;
}

/* ---- offer ---- */

static int offer_it(struct opening *o, const struct vv_files_found *found, bool home)
{
    if (found->generation < VV_PARITY_SUM)
        o->top_generation = VV_MAX(o->top_generation, found->generation);
    if (found->status != 0 || found->rank >= o->p->opts.wire.ranks)
        return 0;
    struct offer offer = {.version = found->version,
                          .generation = found->generation,
                          .owner = found->rank,
                          .keeper = o->p->opts.wire.rank,
                          .home = home};
    return offers_add(&o->kept, &offer);
}

static int look_at_left(void *user, const struct vv_files_found *found)
{
    struct opening *o = user;
    if (found->kind == VV_CKFILE_TEMP || !vvi_left_mine(o->p, found->rank))
        return 0;
    return offer_it(o, found, true);
}

static int look_at_held(void *user, const struct vv_files_found *found)
{
    struct opening *o = user;
    const char *name = strrchr(found->path, '/');
    if (!vvi_held_mine(o->p, found->rank))
        return 0;
    if (found->kind == VV_CKFILE_TEMP) {
        /* An unfinished copy. No process sends to this history before it is open. */
        int rc = o->p->os->unlinkat(o->p->os, o->held_fd, name ? name + 1 : found->path);
        return rc == -ENOENT ? 0 : rc;
    }
    return offer_it(o, found, false);
}

static int list_held(struct opening *o)
{
    char path[4096 + sizeof(VV_PARTNER_FOLDER)];
    struct vv_partner *p = o->p;
    snprintf(path, sizeof(path), "%s/%s", p->opts.folder->path, vvi_held_name(p));
    vv_mutex_lock(&p->step);
    int rc = vvi_held_folder(p, o->history, &o->held_fd);
    vv_mutex_unlock(&p->step);
    if (rc == 0)
        rc = vv_files_scan(p->os, path, o->history, look_at_held, o);
    return rc == 0 ? vv_files_scan(p->os, p->opts.folder->path, o->history, look_at_left, o) : rc;
}

/* Sends the list to the owners, or to the keepers, each its part. If any process has an error (its status,
 * or out of memory), all fail with it. */
static int send_lists(struct vv_partner *p, int status, const struct offers *list, bool to_owner,
                      struct vv_wire_part *ret_in)
{
    uint32_t ranks = p->opts.wire.ranks;
    struct vv_wire_part *out = calloc(ranks, sizeof(*out));
    struct offer *sorted = calloc(list->n + 1, sizeof(*sorted));
    uint32_t *count = calloc(ranks, sizeof(*count));
    if (status == 0 && (!out || !sorted || !count))
        status = -ENOMEM;
    int rc = vvi_partner_all(p, status);
    if (rc == 0) {
        size_t at = 0;
        for (size_t i = 0; i < list->n; i++)
            count[to_owner ? list->v[i].owner : list->v[i].keeper]++;
        for (uint32_t r = 0; r < ranks; r++) {
            out[r] = (struct vv_wire_part){sorted + at, count[r] * sizeof(*sorted)};
            at += count[r];
            count[r] = 0;
        }
        for (size_t i = 0; i < list->n; i++) {
            uint32_t r = to_owner ? list->v[i].owner : list->v[i].keeper;
            ((struct offer *)out[r].data)[count[r]++] = list->v[i];
        }
        rc = vvi_partner_exchange(p, out, ret_in);
    }
    free(count);
    free(sorted);
    free(out);
    return rc;
}

static int take_offers(struct opening *o, const struct vv_wire_part *in)
{
    struct vv_partner *p = o->p;
    int rc = 0;
    for (uint32_t r = 0; rc == 0 && r < p->opts.wire.ranks; r++) {
        const struct offer *v = in[r].data;
        for (size_t i = 0; rc == 0 && i < in[r].bytes / sizeof(*v); i++) {
            struct offer offer = v[i];
            offer.keeper = r == p->to ? 0 : r + 1; /* the partner comes first */
            if (offer.generation < VV_PARITY_SUM)
                o->top_generation = VV_MAX(o->top_generation, offer.generation);
            /* Looked up now, because the index drops removals when it is rewritten. */
            offer.gone =
                vvi_files_state(o->files, offer.version, offer.generation) == VVI_FILES_GONE;
            rc = offers_add(&o->mine, &offer);
        }
    }
    if (o->mine.n > 1)
        qsort(o->mine.v, o->mine.n, sizeof(*o->mine.v), compare_offers);
    for (size_t i = 0; i < o->mine.n; i++)
        o->mine.v[i].keeper = o->mine.v[i].keeper == 0 ? p->to : o->mine.v[i].keeper - 1;
    return rc;
}

static int hear_offers(struct opening *o)
{
    struct vv_partner *p = o->p;
    uint32_t ranks = p->opts.wire.ranks;
    struct vv_wire_part *in = calloc(ranks, sizeof(*in));
    int rc = send_lists(p, in ? 0 : -ENOMEM, &o->kept, true, in);
    if (rc == 0) {
        int status = take_offers(o, in);
        vvi_parts_free(in, ranks);
        rc = vvi_partner_all(p, status);
    }
    free(in);
    return rc;
}

/* ---- fetch ---- */

static bool lacks(const struct opening *o, const struct offer *offer)
{
    enum vvi_files_state state = vvi_files_state(o->files, offer->version, offer->generation);
    return !offer->gone && (state == VVI_FILES_NONE || state == VVI_FILES_BROKEN);
}

/* The next offer to try, from *at on: the highest generation of each version, from a process that has it
 * intact. */
static const struct offer *next_want(const struct opening *o, size_t *at, bool got)
{
    const struct offers *m = &o->mine;
    if (*at > 0) {
        /* If the last one has come, skip its version. If not, try other keepers of that generation, but
         * no lower one. */
        const struct offer *last = &m->v[*at - 1];
        while (*at < m->n && m->v[*at].version == last->version &&
               (got || m->v[*at].generation < last->generation))
            ++*at;
    }
    while (*at < m->n) {
        const struct offer *offer = &m->v[(*at)++];
        if (lacks(o, offer))
            return offer;
        while (*at < m->n && m->v[*at].version == offer->version)
            ++*at; /* this generation exists here, or was removed: skip lower ones */
    }
    return NULL;
}

static int fetch_all(struct opening *o)
{
    struct vv_partner *p = o->p;
    size_t at = 0;
    bool got = false;
    for (;;) {
        const struct offer *offer = next_want(o, &at, got);
        uint64_t any = 0;
        int rc = vvi_partner_most(p, offer != NULL, &any);
        if (rc < 0 || any == 0)
            return rc;
        struct vvi_pmove want = {0};
        if (offer)
            want = (struct vvi_pmove){.id = {.rank = p->opts.wire.rank,
                                             .version = offer->version,
                                             .generation = offer->generation},
                                      .peer = offer->keeper,
                                      .home = offer->home};
        rc = vvi_partner_fetch(p, o->history, offer ? &want : NULL, o->files->dirfd,
                               o->files->dirfd, &got);
        if (rc < 0)
            return rc;
        if (got) {
            o->fetched = true;
            atomic_fetch_add_explicit(&p->recovered, 1, memory_order_relaxed);
        }
    }
}

/* With parity: fetches files that this process has left elsewhere, all generations, and the parity there. */

/* True if the file is here as well, and not known to be damaged. */
static bool here(const struct opening *o, const struct offer *offer)
{
    const struct vv_files *f = o->files;
    struct vv_parity_in in;
    if (offer->home && vvi_files_state(f, offer->version, offer->generation) == VVI_FILES_BROKEN)
        return false;
    int rc =
        vv_parity_in_begin(&in, o->p->os, offer->home ? f->dirfd : o->held_fd, f->folder->direct,
                           true, f->rank, offer->version, offer->generation);
    if (rc == 0)
        vv_parity_in_end(&in);
    return rc == 0;
}

static int fetch_left(struct opening *o)
{
    struct vv_partner *p = o->p;
    uint32_t me = p->opts.wire.rank;
    size_t at = 0;
    for (;;) {
        const struct offer *offer = NULL;
        for (; at < o->mine.n && !offer; at++)
            if (o->mine.v[at].keeper != me && !o->mine.v[at].gone && !here(o, &o->mine.v[at]))
                offer = &o->mine.v[at];
        struct vvi_pmove want = {0};
        uint64_t any = 0;
        bool got;
        int rc = vvi_partner_most(p, offer != NULL, &any);
        if (rc < 0 || any == 0)
            return rc;
        if (offer)
            want = (struct vvi_pmove){
                .id = {.rank = me, .version = offer->version, .generation = offer->generation},
                .peer = offer->keeper,
                .home = offer->home};
        rc = vvi_partner_fetch(p, o->history, offer ? &want : NULL, o->files->dirfd,
                               want.home ? o->files->dirfd : o->held_fd, &got);
        if (rc < 0)
            return rc;
        o->fetched = o->fetched || (got && want.home);
        if (got && want.home)
            atomic_fetch_add_explicit(&p->recovered, 1, memory_order_relaxed);
    }
}

/* ---- push ---- */

static bool partner_has(const struct opening *o, const struct vv_files_entry *e)
{
    for (size_t i = 0; i < o->mine.n; i++)
        if (o->mine.v[i].version == e->version && o->mine.v[i].generation == e->generation &&
            o->mine.v[i].keeper == o->p->to && !o->mine.v[i].home)
            return true;
    return false;
}

static int enter_found(struct opening *o, struct vv_partner_hist *h)
{
    for (size_t i = 0; i < o->files->nfound; i++) {
        const struct vv_files_entry *e = &o->files->found[i].entry;
        bool copied = partner_has(o, e);
        struct vvi_pentry entry = {.version = e->version,
                                   .generation = e->generation,
                                   .copied = copied,
                                   .reported = copied};
        int rc = vvi_partner_add_locked(h, &entry); /* no other thread uses it yet */
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* With parity: of each version, the last generation that all of the set have, written in the same run, is announced.
 * The others are lone. */

struct having {
    uint64_t version, run_id;
};

static void mark_lone(struct opening *o, struct vv_partner_hist *h, const struct vv_wire_part *in)
{
    struct vv_partner *p = o->p;
    vv_mutex_lock(&p->lock);
    for (size_t i = 0; i < o->files->nfound; i++) {
        const struct vv_files_entry *f = &o->files->found[i].entry;
        struct vvi_pentry *e = vvi_partner_find_locked(h, f->version, f->generation);
        for (uint32_t m = 0; m < p->nfrom && e && !e->lone; m++) {
            const struct having *v = in[p->from[m]].data;
            size_t n = in[p->from[m]].bytes / sizeof(*v), j = 0;
            while (j < n && (v[j].version != f->version || v[j].run_id != f->run_id))
                j++;
            e->lone = e->reported = j == n;
        }
    }
    for (size_t i = 0; i < h->n; i++)
        for (size_t j = i + 1; j < h->n && !h->entry[i].lone; j++)
            h->entry[i].lone = h->entry[i].reported =
                h->entry[j].version == h->entry[i].version && !h->entry[j].lone;
    vv_mutex_unlock(&p->lock);
}

static int compare_found(struct opening *o, struct vv_partner_hist *h)
{
    struct vv_partner *p = o->p;
    uint32_t ranks = p->opts.wire.ranks;
    size_t n = o->files->nfound;
    struct having *mine = calloc(n + 1, sizeof(*mine));
    struct vv_wire_part *out = calloc(2 * (size_t)ranks, sizeof(*out));
    int rc = vvi_partner_all(p, mine && out ? 0 : -ENOMEM);
    if (rc == 0) {
        for (size_t i = 0; i < n; i++)
            mine[i] =
                (struct having){o->files->found[i].entry.version, o->files->found[i].entry.run_id};
        for (uint32_t m = 0; m < p->nfrom && n > 0; m++)
            out[p->from[m]] = (struct vv_wire_part){mine, n * sizeof(*mine)};
        rc = vvi_partner_exchange(p, out, out + ranks);
    }
    if (rc == 0) {
        mark_lone(o, h, out + ranks);
        vvi_parts_free(out + ranks, ranks);
    }
    free(out);
    free(mine);
    return rc;
}

static int push_all(struct opening *o, struct vv_partner_hist *h)
{
    struct vv_partner *p = o->p;
    for (size_t at = 0;; at++) {
        while (at < h->n && h->entry[at].copied)
            at++;
        struct vvi_pentry *e = at < h->n ? &h->entry[at] : NULL;
        uint64_t any = 0;
        int rc = vvi_partner_most(p, e != NULL, &any);
        if (rc < 0 || any == 0)
            return rc;
        struct vvi_pmove give = {0};
        bool stored;
        if (e)
            give = (struct vvi_pmove){.id = {.rank = p->opts.wire.rank,
                                             .version = e->version,
                                             .generation = e->generation},
                                      .peer = p->to};
        rc = vvi_partner_push(p, o->history, e ? &give : NULL, o->files->dirfd, &stored);
        if (rc < 0)
            return rc;
        if (e) {
            vv_mutex_lock(&p->lock);
            vvi_partner_copied_locked(p, e, stored ? 0 : -EIO);
            vv_mutex_unlock(&p->lock);
        }
    }
}

/* ---- drop ---- */

static bool superfluous(const struct opening *o, const struct vv_partner_hist *h,
                        const struct offer *offer)
{
    if (o->p->k > 0)
        return offer->keeper != o->p->opts.wire.rank && (offer->gone || here(o, offer));
    for (size_t i = 0; i < h->n; i++) {
        const struct vvi_pentry *e = &h->entry[i];
        if (e->version != offer->version)
            continue;
        if (e->generation > offer->generation)
            return e->copied; /* otherwise it is the only copy there: see leave_old */
        if (e->generation == offer->generation)
            return (offer->keeper != o->p->to || offer->home) && e->copied;
    }
    return offer->gone != 0;
}

static void drop_kept(struct opening *o, uint32_t owner, const struct vv_wire_part *in)
{
    struct vv_partner *p = o->p;
    const struct offer *v = in->data;
    vv_mutex_lock(&p->step);
    for (size_t i = 0; i < in->bytes / sizeof(*v); i++) {
        struct vv_ckfile_id id = {
            .rank = owner, .version = v[i].version, .generation = v[i].generation};
        char name[VV_CKFILE_NAME_MAX];
        vv_ckfile_name(name, VV_CKFILE_COMMITTED, id.rank, id.version, id.generation);
        int rc = v[i].home ? p->os->unlinkat(p->os, o->files->dirfd, name)
                           : vvi_held_drop(p, o->history, &id);
        (void)rc; /* tried again at the next opening */
    }
    vv_mutex_unlock(&p->step);
}

static int drop_all(struct opening *o, const struct vv_partner_hist *h)
{
    struct vv_partner *p = o->p;
    uint32_t ranks = p->opts.wire.ranks;
    struct vv_wire_part *in = calloc(ranks, sizeof(*in));
    struct offers list = {0};
    int rc = in ? 0 : -ENOMEM;
    for (size_t i = 0; rc == 0 && i < o->mine.n; i++)
        if (superfluous(o, h, &o->mine.v[i]))
            rc = offers_add(&list, &o->mine.v[i]);
    rc = send_lists(p, rc, &list, false, in);
    if (rc == 0) {
        for (uint32_t r = 0; r < ranks; r++)
            drop_kept(o, r, &in[r]);
        vvi_parts_free(in, ranks);
    }
    free(list.v);
    free(in);
    return rc;
}

static bool is_left(const struct opening *o, const struct vv_partner_hist *h,
                    const struct offer *offer)
{
    if (offer->keeper != o->p->to || offer->home)
        return false;
    for (size_t i = 0; i < h->n; i++)
        if (h->entry[i].version == offer->version && h->entry[i].generation > offer->generation)
            return !h->entry[i].copied;
    return false;
}

/* Notes copies of overwritten versions, which stay until the new ones have copies. Without memory they stay
 * until the history is opened again. */
static void leave_old(const struct opening *o, struct vv_partner_hist *h)
{
    h->left = calloc(o->mine.n + 1, sizeof(*h->left));
    for (size_t i = 0; h->left && i < o->mine.n; i++)
        if (is_left(o, h, &o->mine.v[i]))
            h->left[h->nleft++] = (struct vvi_pleft){o->mine.v[i].version, o->mine.v[i].generation};
}

/* ---- the whole opening ---- */

enum { GENERATIONS_BITS = 24 }; /* generations per second */

static int agree_generation(struct opening *o, uint64_t *ret_first)
{
    uint64_t first = VV_MAX(vv_files_first_generation(o->files), o->top_generation + 1), most;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    first = VV_MAX(first, (uint64_t)now.tv_sec << GENERATIONS_BITS);
    int rc = vvi_partner_most(o->p, first, &most);
    if (rc == 0)
        *ret_first = most;
    return rc;
}

/* Checks that all processes open the same history, and that each has opened it. */
static int begin(struct opening *o, int status, char *err, size_t err_bytes)
{
    struct vv_partner *p = o->p;
    uint64_t sum = vv_hash64(o->history, strlen(o->history)), most, least;
    if (status == 0) {
        status = list_held(o);
        if (status < 0)
            vvi_error(status, err, err_bytes, "copies of others in %s/%s: %s", p->opts.folder->path,
                      vvi_held_name(p), strerror(-status));
    }
    int rc = vvi_partner_most(p, sum, &most);
    if (rc == 0)
        rc = vvi_partner_most(p, ~sum, &least);
    if (rc < 0)
        return rc;
    if (most != ~least)
        return vvi_error(
            -EINVAL, err, err_bytes,
            "with partner copies, all processes must open the same histories in the same "
            "order; another one opens a history other than %s",
            o->history);
    rc = vvi_partner_all(p, status);
    if (rc < 0 && status == 0)
        vvi_error(rc, err, err_bytes, "history %s: another process failed: %s", o->history,
                  strerror(-rc));
    return rc < 0 ? rc : hear_offers(o);
}

static int recover(struct opening *o, struct vv_partner_hist *h, char *err, size_t err_bytes)
{
    bool parity = o->p->k > 0;
    int rc = parity ? fetch_left(o) : fetch_all(o), status = 0;
    if (rc < 0)
        return rc;
    if (parity) {
        bool got = false;
        if (o->fetched)
            status = vvi_files_again(o->files, err, err_bytes);
        rc = vvi_partner_all(o->p, status);
        if (rc == 0)
            rc = vvi_parity_rebuild(h, NULL, 0, o->files->dirfd, &got);
        if (rc < 0)
            return rc;
        o->fetched = got;
    }
    if (o->fetched)
        status = vvi_files_again(o->files, err, err_bytes);
    if (status == 0)
        status = enter_found(o, h);
    rc = vvi_partner_all(o->p, status);
    if (rc == 0 && !o->p->opts.wire.threads && !parity)
        rc = push_all(o, h);
    if (rc == 0 && parity)
        rc = compare_found(o, h);
    if (rc == 0)
        rc = drop_all(o, h);
    return rc == 0 ? agree_generation(o, &h->first_generation) : rc;
}

int vv_partner_open(struct vv_partner *p, const char *history, struct vv_files *files, int status,
                    char *err, size_t err_bytes, struct vv_partner_hist **ret_hist)
{
    struct opening o = {.p = p, .files = files, .history = history, .held_fd = -1};
    struct vv_partner_hist *h = calloc(1, sizeof(*h));
    if (!h && status == 0)
        status = vvi_error(-ENOMEM, err, err_bytes, "out of memory");
    int rc = begin(&o, status, err, err_bytes);
    if (rc == 0) {
        *h = (struct vv_partner_hist){.partner = p,
                                      .files = files,
                                      .held_fd = o.held_fd,
                                      .sum = vv_hash64(history, strlen(history))};
        rc = recover(&o, h, err, err_bytes);
    }
    if (rc == 0) {
        files->partner = h;
        if (p->k == 0)
            leave_old(&o, h);
        vv_mutex_lock(&p->lock);
        h->next = p->hists;
        p->hists = h;
        vv_cond_signal(&p->work);
        vv_mutex_unlock(&p->lock);
    }
    free(o.kept.v);
    free(o.mine.v);
    if (rc < 0) {
        if (files) { /* the descriptor's number may be reused for another folder */
            vv_mutex_lock(&p->step);
            vvi_parity_stop_serving(p, files);
            vv_mutex_unlock(&p->step);
        }
        vvi_partner_forget(h);
        return rc;
    }
    *ret_hist = h;
    return 0;
}

/* ---- repair ---- */

/* Repairs the local file from a good copy, which is in the folder of others' files meanwhile, under our name. */
static int put_right(struct vv_partner_hist *h, int held_fd, const struct vv_ckfile_id *id)
{
    struct vv_partner *p = h->partner;
    struct vv_target_folder held, own;
    char name[VV_CKFILE_NAME_MAX];
    uint64_t repaired = 0;
    vv_target_folder_init(&held, p->os, held_fd);
    vv_target_folder_init(&own, p->os, h->files->dirfd);
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, id->rank, id->version, id->generation);
    int rc = vvi_copy_repair(&held.base, &own.base, name, 0, UINT64_MAX, &repaired);
    if (rc < 0) /* more than chunks is wrong: copy the whole file */
        rc = vv_ckfile_copy(&held.base, &own.base, name);
    atomic_fetch_add_explicit(&p->repaired_chunks, repaired, memory_order_relaxed);
    int gone = p->os->unlinkat(p->os, held_fd, name);
    return rc < 0 ? rc : gone == -ENOENT ? 0 : gone;
}

int vv_partner_repair(struct vv_partner_hist *h, uint64_t version, bool needed)
{
    struct vv_partner *p = h->partner;
    struct vvi_pmove want = {.peer = p->to};
    bool got = false;
    int held_fd = -1, status = 0;
    vv_mutex_lock(&p->step);
    if (needed)
        status = vvi_held_folder(p, h->files->history, &held_fd);
    vv_mutex_unlock(&p->step);
    vv_mutex_lock(&p->lock);
    const struct vvi_pentry *e = NULL;
    for (size_t i = h->n; i-- > 0 && !e;)
        if (h->entry[i].version == version)
            e = &h->entry[i];
    if (needed && status == 0 && !e)
        status = -ENOENT;
    bool wanted = needed && status == 0;
    if (wanted)
        want.id = (struct vv_ckfile_id){
            .rank = h->files->rank, .version = version, .generation = e->generation};
    vv_mutex_unlock(&p->lock);
    int rc = p->k > 0
                 ? vvi_parity_rebuild(h, &version, wanted ? want.id.generation : 0, held_fd, &got)
                 : vvi_partner_fetch(p, h->files->history, wanted ? &want : NULL, h->files->dirfd,
                                     held_fd, &got);
    if (rc < 0)
        return rc;
    if (wanted)
        status = got ? put_right(h, held_fd, &want.id) : -EBADMSG;
    return status;
}
