/* SPDX-License-Identifier: Apache-2.0 */
/* Rebuilding files from parity, by all processes together.
 *
 *   layouts  every process sends the layouts of its parity to their members;
 *   parts    every member of a layout tells the others which parts it has: its file, its parity;
 *   rebuild  a process that lacks a file of a layout, and has not removed it according to its index, makes it from
 *            enough blocks of the others: of each version the highest generation that can be made. All take part in
 *            every round; a round is two exchanges: requests, and ranges.
 *
 * Ranges are verified when they are read, and a rebuilt file is verified with its own checksums before it gets its
 * name. If a member turns out to have a bad block, it is left out and others are used, if there are enough.
 *
 * Parity, and the file put aside with it, is removed when all members have removed their files, or when none has a
 * file to make the others from. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/partner/partner_private.h"

/* A layout of which some process has parity. */
struct known {
    struct vv_parity_layout l; /* `me` is the index of this process */
    bool has[2][VV_ERASURE_MAX], heard[VV_ERASURE_MAX];
    bool removed[VV_ERASURE_MAX]; /* members that have removed their file, or put it aside */
    bool tried, damaged;          /* damaged: this process's file exists, but cannot be used */
};

struct rebuild {
    struct vv_partner *p;
    struct vv_partner_hist *h;
    const uint64_t *version; /* NULL: all, at opening */
    uint64_t generation;     /* of the version: the file that this process needs; 0: none */
    struct known *known;
    size_t n;
    struct vv_wire_part *send, *receive;
    /* The file being made. */
    struct vv_parity_make make;
    struct vv_parity_out out;
    void *window;
    bool on;
    int status;
};

/* The parts of a layout that a member has. */
struct part {
    uint64_t sum;
    uint32_t file, parity, removed, spare;
};

/* A range that one process requests from another; bytes 0: none. */
struct want {
    uint64_t version, generation, offset, bytes;
    uint32_t member, spare;
};

/* ---- known layouts ---- */

static int know(struct rebuild *b, const struct vv_parity_layout *l, bool here)
{
    uint32_t rank = b->p->opts.wire.rank, me = 0;
    while (me < l->n && l->file[me].rank != rank)
        me++;
    if (me == l->n)
        return 0;
    for (size_t i = 0; i < b->n; i++)
        if (b->known[i].l.sum == l->sum && b->known[i].l.version == l->version) {
            b->known[i].has[1][me] |= here;
            return 0;
        }
    struct known *more =
        vv_is_pow2(b->n + 1) ? realloc(b->known, 2 * (b->n + 1) * sizeof(*more)) : b->known;
    if (!more)
        return -ENOMEM;
    b->known = more;
    b->known[b->n] = (struct known){.l = *l};
    b->known[b->n].l.me = me;
    b->known[b->n].has[1][me] = here;
    b->n++;
    return 0;
}

/* Reads the parity that is here. */
static int look_at_held(void *user, const struct vv_files_found *found)
{
    struct rebuild *b = user;
    struct vv_parity_layout l;
    struct vv_parity_in in;
    if (found->kind != VV_CKFILE_COMMITTED || found->status != 0 ||
        found->rank != b->p->opts.wire.rank || found->generation < VV_PARITY_SUM ||
        (b->version && found->version != *b->version))
        return 0;
    int rc = vv_parity_in_begin(&in, b->p->os, b->h->held_fd, b->p->opts.folder->direct, true,
                                found->rank, found->version, found->generation);
    if (rc < 0)
        return 0;
    rc = vv_parity_in_layout(&in, &l);
    vv_parity_in_end(&in);
    return rc == 0 ? know(b, &l, true) : 0; /* damaged parity counts as none */
}

/* Reads header and tables, because opening the history may have relied on the index. Opening may also have read the
 * data and found damage. */
static bool file_here(struct rebuild *b, struct known *k)
{
    const struct vv_files *f = b->h->files;
    uint64_t version = k->l.version, generation = k->l.file[k->l.me].generation;
    struct vv_parity_in in;
    if (b->version && generation == b->generation)
        return false;
    k->damaged = !b->version && vvi_files_state(f, version, generation) == VVI_FILES_BROKEN;
    if (k->damaged)
        return false;
    int rc = vv_parity_in_begin(&in, b->p->os, f->dirfd, f->folder->direct, true, f->rank, version,
                                generation);
    k->damaged = rc == -EBADMSG || rc == -EIO;
    if (rc == -ENOENT) {
        rc = vv_parity_in_begin(&in, b->p->os, b->h->held_fd, f->folder->direct, true, f->rank,
                                version, generation);
        k->removed[k->l.me] = rc == 0 || vvi_files_state(f, version, generation) == VVI_FILES_GONE;
    }
    if (rc == 0)
        vv_parity_in_end(&in);
    return rc == 0;
}

/* ---- exchanges ---- */

/* Sends to each member of each layout the record that `put` writes; ranks that no longer run get nothing. */
static int send_to_members(struct rebuild *b, size_t (*put)(const struct known *k, void *to),
                           int status)
{
    uint32_t ranks = b->p->opts.wire.ranks, rank = b->p->opts.wire.rank;
    memset(b->send, 0, ranks * sizeof(*b->send));
    memset(b->receive, 0, ranks * sizeof(*b->receive));
    for (int pass = 0; pass < 2 && status == 0; pass++) {
        for (size_t i = 0; i < b->n; i++)
            for (uint32_t m = 0; m < b->known[i].l.n; m++) {
                uint32_t r = b->known[i].l.file[m].rank;
                if (r >= ranks || r == rank)
                    continue;
                b->send[r].bytes += put(
                    &b->known[i], pass == 0 ? NULL : (char *)b->send[r].data + b->send[r].bytes);
            }
        for (uint32_t r = 0; r < ranks && pass == 0; r++) {
            b->send[r].data = b->send[r].bytes > 0 ? calloc(1, b->send[r].bytes) : NULL;
            if (b->send[r].bytes > 0 && !b->send[r].data)
                status = -ENOMEM;
            b->send[r].bytes = 0;
        }
    }
    int rc = vvi_partner_all(b->p, status);
    if (rc == 0)
        rc = vvi_partner_exchange(b->p, b->send, b->receive);
    vvi_parts_free(b->send, ranks);
    return rc;
}

static size_t put_layout(const struct known *k, void *to)
{
    size_t bytes = k->has[1][k->l.me] ? vv_parity_layout_bytes(&k->l) : 0;
    if (to && bytes > 0)
        memcpy(to, &k->l, bytes);
    return bytes;
}

static int hear_layouts(struct rebuild *b)
{
    int status = 0;
    for (uint32_t r = 0; r < b->p->opts.wire.ranks; r++) {
        const char *at = b->receive[r].data;
        size_t left = b->receive[r].bytes, n;
        for (; status == 0 && left > 0; at += n, left -= n) {
            struct vv_parity_layout l = {0};
            memcpy(&l, at, VV_MIN(left, sizeof(l)));
            if (!vv_parity_layout_ok(&l, left))
                break;
            n = vv_parity_layout_bytes(&l);
            memset((char *)&l + n, 0, sizeof(l) - n);
            status = know(b, &l, false);
        }
    }
    return status;
}

static size_t put_part(const struct known *k, void *to)
{
    struct part part = {k->l.sum, k->has[0][k->l.me], k->has[1][k->l.me], k->removed[k->l.me], 0};
    if (to)
        memcpy(to, &part, sizeof(part));
    return sizeof(part);
}

static void hear_parts(struct rebuild *b)
{
    for (uint32_t r = 0; r < b->p->opts.wire.ranks; r++) {
        const struct part *part = b->receive[r].data;
        for (size_t i = 0; i < b->receive[r].bytes / sizeof(*part); i++)
            for (size_t k = 0; k < b->n; k++)
                for (uint32_t m = 0; m < b->known[k].l.n && b->known[k].l.sum == part[i].sum; m++)
                    if (b->known[k].l.file[m].rank == r) {
                        b->known[k].heard[m] = true;
                        b->known[k].has[0][m] = part[i].file != 0;
                        b->known[k].has[1][m] = part[i].parity != 0;
                        b->known[k].removed[m] = part[i].removed != 0;
                    }
    }
}

static int meet(struct rebuild *b)
{
    uint32_t ranks = b->p->opts.wire.ranks;
    char path[4096 + sizeof(VV_PARITY_FOLDER)];
    snprintf(path, sizeof(path), "%s/%s", b->p->opts.folder->path, VV_PARITY_FOLDER);
    int status = vv_files_scan(b->p->os, path, b->h->files->history, look_at_held, b);
    if (status == -ENOENT)
        status = 0;
    int rc = send_to_members(b, put_layout, status);
    if (rc < 0)
        return rc;
    status = hear_layouts(b);
    vvi_parts_free(b->receive, ranks);
    for (size_t i = 0; i < b->n; i++) {
        struct known *k = &b->known[i];
        k->heard[k->l.me] = true;
        k->has[0][k->l.me] = file_here(b, k);
    }
    rc = send_to_members(b, put_part, status);
    if (rc < 0)
        return rc;
    hear_parts(b);
    vvi_parts_free(b->receive, ranks);
    return 0;
}

/* ---- one file ---- */

static bool wanted(const struct rebuild *b, const struct known *k)
{
    uint64_t generation = k->l.file[k->l.me].generation;
    if (k->tried || k->has[0][k->l.me])
        return false;
    if (b->version)
        return generation == b->generation;
    enum vvi_files_state state = vvi_files_state(b->h->files, k->l.version, generation);
    return k->damaged || state == VVI_FILES_NONE || state == VVI_FILES_BROKEN;
}

/* The highest generation that can be tried, of any version. */
static struct known *next_want(struct rebuild *b)
{
    struct known *best = NULL;
    for (size_t i = 0; i < b->n; i++) {
        struct known *k = &b->known[i];
        if (wanted(b, k) &&
            (!best || (k->l.version == best->l.version &&
                       k->l.file[k->l.me].generation > best->l.file[best->l.me].generation)))
            best = k;
    }
    return best;
}

static void begin(struct rebuild *b, struct known *k, int out_fd)
{
    k->tried = true;
    b->on = true;
    vv_parity_make_init(&b->make, &k->l, false);
    memcpy(b->make.has, k->has, sizeof(b->make.has));
    b->status =
        vv_parity_out_begin(&b->out, b->p->os, out_fd, b->p->opts.folder->direct, &k->l, false);
    b->window = NULL;
    if (b->status == 0 && posix_memalign(&b->window, VV_STORE_ALIGN, b->make.window) != 0)
        b->status = -ENOMEM;
}

static void end(struct rebuild *b)
{
    vv_parity_make_fini(&b->make);
    vv_parity_out_end(&b->out);
    free(b->window);
    b->window = NULL;
    b->on = false;
}

/* Fills in the requests for the next window, by process. */
static void ask(struct rebuild *b, struct want *want)
{
    struct vv_parity_range r;
    int rc = 0;
    while (b->on && b->status == 0 && (rc = vv_parity_make_next(&b->make, &r)) == 0) {
        uint32_t rank = b->make.layout.file[r.member].rank;
        want[rank] = (struct want){.version = b->make.layout.version,
                                   .generation = r.generation,
                                   .offset = r.offset,
                                   .bytes = r.bytes,
                                   .member = r.member};
        b->send[rank] = (struct vv_wire_part){&want[rank], sizeof(want[rank])};
    }
    if (b->on && b->status == 0 && rc < 0 && rc != -EAGAIN)
        b->status = rc;
}

static void give(struct rebuild *b, uint32_t to, const struct want *w)
{
    struct vv_partner *p = b->p;
    void *mem = NULL;
    vv_mutex_lock(&p->step);
    int rc = vvi_parity_serve(p, b->h->files, b->h->held_fd, w->version, w->generation, w->offset,
                              w->bytes, &mem);
    vv_mutex_unlock(&p->step);
    b->send[to] =
        rc == 0 ? (struct vv_wire_part){mem, VVI_PART_LEAD + w->bytes} : (struct vv_wire_part){0};
}

static void take(struct rebuild *b, uint32_t from, const struct want *w, struct vv_wire_part *in)
{
    if (w->bytes == 0)
        return;
    if (in->bytes != VVI_PART_LEAD + w->bytes)
        vv_parity_make_without(&b->make, w->member, w->generation >= VV_PARITY_SUM);
    else if (vv_parity_make_take(&b->make, w->member, w->offset, in->data, w->bytes))
        *in = (struct vv_wire_part){0};
    (void)from;
}

static void write_window(struct rebuild *b)
{
    uint64_t at, bytes;
    if (b->status < 0 || !vv_parity_make_ready(&b->make))
        return;
    b->status = vv_parity_make_window(&b->make, VVI_PART_LEAD, b->window, &at, &bytes);
    if (b->status == 0)
        b->status = vv_parity_out_write(&b->out, b->window, at, bytes);
}

static int one_round(struct rebuild *b, struct want *want)
{
    uint32_t ranks = b->p->opts.wire.ranks;
    memset(b->send, 0, ranks * sizeof(*b->send));
    memset(b->receive, 0, ranks * sizeof(*b->receive));
    memset(want, 0, ranks * sizeof(*want));
    ask(b, want);
    int rc = vvi_partner_exchange(b->p, b->send, b->receive);
    if (rc < 0)
        return rc;
    for (uint32_t r = 0; r < ranks; r++) {
        struct want asked = {0};
        if (b->receive[r].bytes == sizeof(asked))
            memcpy(&asked, b->receive[r].data, sizeof(asked));
        b->send[r] = (struct vv_wire_part){0};
        if (asked.bytes > 0)
            give(b, r, &asked);
    }
    vvi_parts_free(b->receive, ranks);
    memset(b->receive, 0, ranks * sizeof(*b->receive));
    rc = vvi_partner_exchange(b->p, b->send, b->receive);
    vvi_parts_free(b->send, ranks);
    for (uint32_t r = 0; rc == 0 && b->on && r < ranks; r++)
        take(b, r, &want[r], &b->receive[r]);
    if (rc == 0)
        vvi_parts_free(b->receive, ranks);
    if (rc == 0 && b->on)
        write_window(b);
    return rc;
}

/* Makes at most one file for each process. */
static int one_file(struct rebuild *b, struct want *want, bool *ret_got)
{
    uint64_t any = 1;
    int rc = 0;
    while (rc == 0 && any != 0) {
        rc = one_round(b, want);
        bool busy = b->on && b->status == 0 && !vv_parity_make_over(&b->make);
        if (rc == 0)
            rc = vvi_partner_most(b->p, busy, &any);
    }
    if (b->on && rc == 0 && b->status == 0)
        b->status = vv_parity_out_commit(&b->out, b->h->files->history);
    *ret_got = b->on && rc == 0 && b->status == 0;
    end(b);
    return rc;
}

static int rebuild_all(struct rebuild *b, struct want *want, int out_fd, bool *ret_got)
{
    for (;;) {
        struct known *k = next_want(b);
        uint64_t any = 0;
        bool got = false;
        int rc = vvi_partner_most(b->p, k != NULL, &any);
        if (rc < 0 || any == 0)
            return rc;
        if (k)
            begin(b, k, out_fd);
        rc = one_file(b, want, &got);
        if (rc < 0)
            return rc;
        if (!got)
            continue;
        *ret_got = true;
        for (size_t i = 0; i < b->n; i++) /* lower generations are not needed */
            b->known[i].tried |= b->known[i].l.version == k->l.version;
        atomic_fetch_add_explicit(&b->p->recovered, !b->version, memory_order_relaxed);
    }
}

/* ---- parity that is kept ---- */

/* True if every member has removed its file, or none has one, not even put aside, to make the others from. */
static bool orphan(const struct known *k)
{
    bool removed = true, some = false;
    for (uint32_t i = 0; i < k->l.n; i++) {
        if (!k->heard[i])
            return false;
        removed = removed && k->removed[i];
        some = some || k->has[0][i];
    }
    return removed || (!some && 2 * k->l.k < k->l.n); /* otherwise parity alone suffices */
}

/* True if the file of the parity was put beside it. That file is then kept, or removed, with it. */
static bool aside(struct rebuild *b, const struct known *k, bool keep)
{
    const struct vv_os *os = b->p->os;
    char name[VV_CKFILE_NAME_MAX];
    uint64_t bytes;
    vv_ckfile_name(name, VV_CKFILE_COMMITTED, b->p->opts.wire.rank, k->l.version,
                   k->l.file[k->l.me].generation);
    return keep ? os->stat(os, b->h->held_fd, name, &bytes) == 0
                : os->unlinkat(os, b->h->held_fd, name) == 0;
}

static int keep_all(struct rebuild *b)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < b->n; i++) {
        struct known *k = &b->known[i];
        struct vv_ckfile_id id = {
            .rank = b->p->opts.wire.rank, .version = k->l.version, .generation = k->l.sum};
        if (!k->has[1][k->l.me])
            continue;
        if (!orphan(k)) {
            rc = vvi_parity_found(b->h, &k->l, aside(b, k, true));
            continue;
        }
        (void)aside(b, k, false);
        vv_mutex_lock(&b->p->step);
        int gone = vvi_held_drop(b->p, b->h->files->history, &id);
        vv_mutex_unlock(&b->p->step);
        (void)gone; /* tried again at the next opening */
    }
    return rc;
}

int vvi_parity_rebuild(struct vv_partner_hist *h, const uint64_t *version, uint64_t generation,
                       int out_fd, bool *ret_got)
{
    struct vv_partner *p = h->partner;
    uint32_t ranks = p->opts.wire.ranks;
    struct rebuild b = {.p = p, .h = h, .version = version, .generation = generation, .out.fd = -1};
    struct want *want = calloc(ranks, sizeof(*want));
    b.send = calloc(ranks, sizeof(*b.send));
    b.receive = calloc(ranks, sizeof(*b.receive));
    *ret_got = false;
    int rc = vvi_partner_all(p, want && b.send && b.receive ? 0 : -ENOMEM);
    if (rc == 0)
        rc = meet(&b);
    if (rc == 0)
        rc = rebuild_all(&b, want, out_fd, ret_got);
    if (rc == 0 && !version)
        rc = vvi_partner_all(p, keep_all(&b));
    free(b.known);
    free(b.send);
    free(b.receive);
    free(want);
    return rc;
}
