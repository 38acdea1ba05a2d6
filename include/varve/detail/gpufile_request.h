/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU files, internal: requests to servers, and readahead. Included by varve/gpufile_device.h.
 *
 * Only the first thread of the group that has the file open runs these functions; it passes results to the
 * others. A stream has two windows of staging memory, of eight parts each. A part has at most one request
 * in flight: its memory belongs to the server from the time the request is sent until its answer is
 * seen. When a group stops waiting for an answer, the part is `stuck`: it is not used until the answer
 * has come. Until then the group sends no request and does not wait, so that a kernel does not wait again for
 * each of its requests when servers hang.
 */
#ifndef VARVE_GPUFILE_REQUEST_H
#define VARVE_GPUFILE_REQUEST_H

#include <errno.h>

#include <varve/detail/gpufile_cache.h>

/* Bytes [off, off + bytes) of the file, requested in parts. */
struct varve_g_window {
    uint64_t off;
    uint64_t clock; /* of writes, at the time of the request */
    uint64_t known; /* size of the file as known at that time */
    uint32_t bytes; /* 0: empty */
    uint32_t asked; /* bits of parts in flight */
    uint32_t error; /* a part has failed: negative errno, as in its answer */
};

/* An open file of one group of threads. Each thread has one, and passes it to calls; only the first thread
 * uses the windows and the state of readahead. */
struct varve_gfile {
    const struct varve_gfs *fs;
    uint64_t bytes;   /* size of the file, as last seen */
    uint64_t windows; /* first of its mapped windows, plus 1 */
    uint32_t file, stream, flags;
    uint32_t by_block;
    uint32_t rank, size; /* of this thread in the group, and its threads */

    uint64_t next;  /* end of the last read; VARVE_G_NOWHERE: nothing was read */
    uint32_t run;   /* number of reads that continued the previous one */
    uint32_t ahead; /* bytes of the last window requested */
    uint32_t advice, pass_by;
    uint32_t last; /* the window used last */
    uint32_t maps; /* number of mappings so far, as last seen */
    int32_t late;  /* an answer did not come: the reason, a negative errno; or 0 */
    struct varve_g_window window[2];

    /* Figures, reported at closing. */
    uint64_t hits, misses, mapped_bytes, served_bytes, bypassed_bytes, requests, requested_bytes,
        waits_ns;
};

enum varve_gadvice {
    VARVE_GADV_NORMAL,
    VARVE_GADV_SEQUENTIAL, /* windows as large as they get, from the start */
    VARVE_GADV_RANDOM,     /* no readahead */
    VARVE_GADV_NOREUSE,    /* bytes go to the caller and not to the cache */
    VARVE_GADV_WILLNEED,   /* request the first of these bytes now */
    VARVE_GADV_DONTNEED    /* these pages may be evicted */
};

#ifdef VARVE_D_CODE

VARVE_D_FN uint64_t *varve_g_mailbox(const struct varve_gfile *f, uint32_t part)
{
    return &f->fs->mailboxes[(size_t)f->stream * VARVE_G_PARTS + part];
}

VARVE_D_FN unsigned char *varve_g_stage(const struct varve_gfile *f, uint32_t window)
{
    return f->fs->staging + ((size_t)f->stream * 2 + window) * f->fs->readahead_bytes;
}

/* True if a window of this size is kept in page_staging. */
VARVE_D_FN int varve_g_one_page(const struct varve_gfs *fs, uint32_t bytes)
{
    return fs->page_staging && bytes >> fs->page_shift <= 1;
}

/* Address of the bytes of a window. */
VARVE_D_FN const unsigned char *varve_g_window_at(const struct varve_gfile *f, uint32_t w)
{
    const struct varve_gfs *fs = f->fs;

    if (varve_g_one_page(fs, f->window[w].bytes))
        return fs->page_staging + (((size_t)f->stream * 2 + w) << fs->page_shift);
    return varve_g_stage(f, w);
}

/* True if a wait that began at `start` has timed out. A clock that was set back does not count as late. */
VARVE_D_FN int varve_g_is_late(const struct varve_gfs *fs, uint64_t start, uint64_t now)
{
    return (int64_t)(now - start) > (int64_t)fs->timeout_ns;
}

/* Invalidates pages after a write: their clocks advance, so that bytes requested before are outdated, and the
 * pages are removed from the cache's table. First thread. */
VARVE_D_COLD void varve_g_touch(const struct varve_gfs *fs, uint32_t file, uint64_t off,
                                uint64_t bytes)
{
    uint64_t page, last = (off + bytes - 1) >> fs->page_shift;
    uint64_t now = varve_d_add64_dev(&fs->shared->clock, 1) + 1;

    for (page = off >> fs->page_shift; page <= last; page++) {
        varve_d_max64_dev(&fs->versions[varve_g_hash(file, page) & (VARVE_G_VERSIONS - 1)], now);
        varve_g_forget(fs, file, page);
    }
}

/* True if no answer to this part is outstanding. */
VARVE_D_COLD int varve_g_part_idle(const struct varve_gfile *f, uint32_t part)
{
    struct varve_g_stream *s = &f->fs->streams[f->stream];
    uint64_t v;

    if (!(s->stuck >> part & 1))
        return 1;
    v = varve_d_acquire64_sys(varve_g_mailbox(f, part));
    if (VARVE_G_ANSWER_NUMBER(v) != s->number[part])
        return 0;
    s->stuck &= ~(1u << part);
    /* A write that had timed out has been made, and others may have read its pages before. */
    if (part == 0 && s->late_bytes) {
        varve_g_touch(f->fs, s->late_file, s->late_off, s->late_bytes);
        if ((int32_t)(uint32_t)v == (int32_t)s->late_bytes)
            varve_d_max64_dev(&f->fs->grown[s->late_file], s->late_off + s->late_bytes);
        s->late_bytes = 0;
    }
    return 1;
}

/* Waits until the ring has room for the ticket: the request one lap earlier was answered, or at least
 * read. */
VARVE_D_FN int varve_g_wait_room(const struct varve_gfs *fs, uint64_t ticket)
{
    uint32_t at = (uint32_t)ticket & (fs->n_ring - 1);
    uint64_t laps = ticket / fs->n_ring, start = varve_d_now_ns();

    while (varve_d_acquire64_dev(&fs->ring_done[at]) < laps &&
           varve_d_acquire64_sys(&fs->ring[at].read) < laps) {
        if (varve_g_is_late(fs, start, varve_d_now_ns()))
            return -ETIMEDOUT;
        varve_d_pause(500);
    }
    return 0;
}

/* Returns 0 if a request may be sent, or a negative errno. A group that found no servers checks again for
 * servers, and a group that has timed out checks for its outstanding answers; other groups check neither. */
VARVE_D_COLD int varve_g_ready(struct varve_gfile *f)
{
    uint32_t part;

    if (f->late == -ENOTCONN && varve_d_acquire64_sys(&f->fs->host->servers) == 0)
        return -ENOTCONN;
    for (part = 0; f->late == -ETIMEDOUT && part < VARVE_G_PARTS; part++)
        if (!varve_g_part_idle(f, part))
            return -ETIMEDOUT;
    f->late = 0;
    return 0;
}

/* Waits for an outstanding answer to this part: servers that were started again also answer older requests.
 * Returns 0 or a negative errno. */
VARVE_D_COLD int varve_g_part_wait(const struct varve_gfile *f, uint32_t part)
{
    uint64_t start = varve_d_now_ns();

    while (!varve_g_part_idle(f, part)) {
        if (varve_g_is_late(f->fs, start, varve_d_now_ns()))
            return -ETIMEDOUT;
        if (varve_d_acquire64_sys(&f->fs->host->servers) == 0)
            return -ENOTCONN;
        varve_d_pause(1000);
    }
    return 0;
}

/* Draws a ticket, and waits until its entry may be written. */
VARVE_D_FN int varve_g_draw(const struct varve_gfs *fs, uint64_t *ret_ticket)
{
    uint64_t ticket = varve_d_add64_dev(&fs->shared->ticket, 1);

    if (varve_g_wait_room(fs, ticket) != 0) {
        /* Tell the server that waits for this ticket that no request will come. */
        varve_d_store64_sys(&fs->ring[(uint32_t)ticket & (fs->n_ring - 1)].skip,
                            ticket / fs->n_ring + 1);
        return -ETIMEDOUT;
    }
    *ret_ticket = ticket;
    return 0;
}

/* Sends one request. The part must be idle. Returns 0 or -ETIMEDOUT. */
VARVE_D_COLD int varve_g_send(struct varve_gfile *f, uint32_t op, uint32_t part, uint64_t offset,
                              uint32_t bytes)
{
    const struct varve_gfs *fs = f->fs;
    struct varve_g_stream *s = &fs->streams[f->stream];
    uint64_t ticket = 0, lap;
    uint32_t at = f->stream * VARVE_G_PARTS + part;

    if (fs->queue == VARVE_G_TICKETS) {
        if (varve_g_draw(fs, &ticket) != 0)
            return -ETIMEDOUT;
        at = (uint32_t)ticket & (fs->n_ring - 1);
    }
    s->number[part]++;
    s->ticket[part] = ticket;
    if (fs->queue == VARVE_G_TICKETS)
        lap = ticket / fs->n_ring % 2 ? 0 : VARVE_G_LAP_BIT;
    else
        lap = s->number[part] % 2 ? VARVE_G_LAP_BIT : 0;
    /* Pairs with the server's acquire: the group's reads and writes of this part happen before the server
     * touches it. */
    varve_d_release64x2_sys(fs->ring[at].half,
                            lap | (uint64_t)op << 60 | (uint64_t)f->stream << 46 |
                                (uint64_t)part << 42 | (uint64_t)s->number[part] << 34 |
                                (uint64_t)f->file << 22 | (offset & 0x3fffff),
                            lap | offset >> 22 << 22 | bytes);
    f->requests++;
    f->requested_bytes += bytes;
    return 0;
}

/* Back-off: the pause before polling again, after having waited for `waited`. Polls cross the link, and
 * compete with the bytes that the group waits for. So the pause grows with the time waited and with the
 * number of active streams. With up to a few hundred streams the first poll comes at once, and the pause
 * is a quarter of the time waited. With thousands, which wait longer anyway, the pause is at least 8 ns and
 * at most 20 ns for each active stream. */
VARVE_D_FN unsigned varve_g_rest(uint64_t waited, unsigned active)
{
    uint64_t least = active > 256 ? 8 * active : 100, most = active > 800 ? 20 * active : 16000;
    uint64_t rest = waited < 400 ? least : waited / 4;

    return (unsigned)(rest < least ? least : rest > most ? most : rest);
}

/* True if the answer of a part has come; *ret: its bytes, or a negative errno. The bytes arrive before the
 * answer. */
VARVE_D_FN int varve_g_answered(struct varve_gfile *f, uint32_t part, int *ret)
{
    const struct varve_gfs *fs = f->fs;
    struct varve_g_stream *s = &fs->streams[f->stream];
    uint64_t v = varve_d_acquire64_sys(varve_g_mailbox(f, part));

    if (VARVE_G_ANSWER_NUMBER(v) != s->number[part])
        return 0;
    f->maps = VARVE_G_ANSWER_MAPS(v);
    if (fs->queue == VARVE_G_TICKETS)
        varve_d_release64_dev(&fs->ring_done[s->ticket[part] & (fs->n_ring - 1)],
                              s->ticket[part] / fs->n_ring + 1);
    *ret = (int)(int32_t)(uint32_t)v;
    return 1;
}

/* Waits for the answer of a part. Returns its bytes, or a negative errno; after -ETIMEDOUT and -ENOTCONN the
 * part is stuck. A handle that has timed out before only checks once. */
VARVE_D_COLD int varve_g_wait(struct varve_gfile *f, uint32_t part)
{
    const struct varve_gfs *fs = f->fs;
    struct varve_g_stream *s = &fs->streams[f->stream];
    uint64_t start = varve_d_now_ns(), now = start;
    unsigned spins = 0, active = varve_d_load32_dev(&fs->shared->active);
    int rc = f->late, got = 0;

    while (VARVE_G_ANSWER_NUMBER(varve_d_load64_sys(varve_g_mailbox(f, part))) != s->number[part]) {
        /* The mailbox was checked once more after the error: servers answer before they stop. */
        if (rc) {
            s->stuck |= 1u << part;
            f->late = rc;
            return rc;
        }
        now = varve_d_now_ns();
        if ((int64_t)(now - start) < 0)
            now = start;
        if (varve_g_is_late(fs, start, now))
            rc = -ETIMEDOUT;
        else if (++spins % 32 == 0 && varve_d_acquire64_sys(&fs->host->servers) == 0)
            rc = -ENOTCONN;
        else
            varve_d_pause(varve_g_rest(now - start, active));
    }
    f->waits_ns += now - start;
    (void)varve_g_answered(f, part, &got); /* read the word again, with acquire */
    return got;
}

/* ---- windows ---- */

/* Waits for the parts in flight that have any of bytes [lo, hi) of the window. With `once`, only checks them,
 * and returns 1 if one has not arrived. Returns 0 or a negative errno. */
VARVE_D_COLD int varve_g_window_wait(struct varve_gfile *f, uint32_t w, uint32_t lo, uint32_t hi,
                                     int once)
{
    struct varve_g_window *win = &f->window[w];
    uint32_t part, split = f->fs->split_bytes;

    for (part = lo / split; part * split < hi; part++) {
        uint64_t off = win->off + (uint64_t)part * split, want;
        int got;

        if (!(win->asked >> part & 1))
            continue;
        if (!once)
            got = varve_g_wait(f, 8 * w + part);
        else if (!varve_g_answered(f, 8 * w + part, &got))
            return 1;
        win->asked &= ~(1u << part);
        want = win->bytes - part * split < split ? win->bytes - part * split : split;
        if (off + want > win->known)
            want = win->known > off ? win->known - off : 0;
        if (got >= 0 && (uint64_t)got < want)
            got = -ENODATA; /* the file has become shorter */
        if (got < 0 && !win->error)
            win->error = (uint32_t)got;
    }
    return (int)(int32_t)win->error;
}

/* Empties a window, so that its memory may be reused. If an answer does not come, its part becomes stuck. */
VARVE_D_COLD void varve_g_window_drop(struct varve_gfile *f, uint32_t w)
{
    (void)varve_g_window_wait(f, w, 0, f->window[w].bytes, 0);
    f->window[w].bytes = f->window[w].asked = f->window[w].error = 0;
}

/* Requests [off, off + bytes) into window w, which is empty. */
VARVE_D_COLD int varve_g_window_ask(struct varve_gfile *f, uint32_t w, uint64_t off, uint32_t bytes)
{
    struct varve_g_window *win = &f->window[w];
    uint32_t part, split = f->fs->split_bytes,
                   op = varve_g_one_page(f->fs, bytes) ? VARVE_G_READ_PAGE : VARVE_G_READ;
    int rc = varve_g_ready(f);

    for (part = 0; rc == 0 && part * split < bytes; part++)
        rc = varve_g_part_wait(f, 8 * w + part);
    if (rc)
        return rc;
    win->off = off;
    win->bytes = bytes;
    win->known = f->bytes;
    win->asked = win->error = 0;
    /* Read the clock before sending the requests: a later write must make their bytes outdated. */
    win->clock = varve_d_acquire64_dev(&f->fs->shared->clock);
    for (part = 0; rc == 0 && part * split < bytes; part++) {
        uint32_t n = bytes - part * split < split ? bytes - part * split : split;

        rc = varve_g_send(f, op, 8 * w + part, off + (uint64_t)part * split, n);
        if (rc == 0)
            win->asked |= 1u << part;
    }
    if (rc)
        varve_g_window_drop(f, w);
    return rc;
}

/* ---- sources of pages ---- */

/* Device address of a mapped page, and the number of pages that are mapped contiguously from there; NULL:
 * not mapped. `look`: also check the table in host memory, if windows were mapped since the last check. */
VARVE_D_FN const unsigned char *varve_g_mapped(const struct varve_gfile *f, uint64_t page, int look,
                                               uint64_t *ret_pages)
{
    const struct varve_gfs *fs = f->fs;
    uint64_t off = page << fs->page_shift, at, base;

    if (!f->windows)
        return NULL;
    at = f->windows - 1 + (off >> fs->window_shift);
    base = varve_d_load64_dev(&fs->windows[at]);
    if (look && (!base || (base % 2 && base >> 1 != f->maps))) {
        base = varve_d_load64_sys(&fs->host_windows[at]);
        if (!base)
            base = (uint64_t)f->maps << 1 | 1;
        varve_d_store64_dev(&fs->windows[at], base);
    }
    if (!base || base % 2)
        return NULL;
    off &= (UINT64_C(1) << fs->window_shift) - 1;
    *ret_pages = ((UINT64_C(1) << fs->window_shift) - off) >> fs->page_shift;
    return (const unsigned char *)(uintptr_t)(base + off);
}

/* True if a page may have been written after `clock`. */
VARVE_D_FN int varve_g_written(const struct varve_gfile *f, uint64_t page, uint64_t clock)
{
    return varve_d_acquire64_dev(
               &f->fs->versions[varve_g_hash(f->file, page) & (VARVE_G_VERSIONS - 1)]) > clock;
}

VARVE_D_FN int varve_g_in_window(const struct varve_gfile *f, uint32_t w, uint64_t off)
{
    const struct varve_g_window *win = &f->window[w];

    return win->bytes && off >= win->off && off - win->off < win->bytes;
}

/* Size of a window at `off`, with `need` bytes of it wanted now. */
VARVE_D_FN uint32_t varve_g_window_bytes(const struct varve_gfile *f, uint64_t off, uint32_t need)
{
    const struct varve_gfs *fs = f->fs;
    uint32_t page = 1u << fs->page_shift;
    uint64_t bytes = need, left = ((f->bytes - off + page - 1) >> fs->page_shift) << fs->page_shift;

    if (fs->readahead == VARVE_G_FIXED && f->advice != VARVE_GADV_RANDOM)
        bytes = fs->readahead_bytes;
    else if (fs->readahead == VARVE_G_ADAPTIVE && f->advice == VARVE_GADV_SEQUENTIAL)
        bytes = fs->readahead_bytes;
    else if (fs->readahead == VARVE_G_ADAPTIVE && f->advice != VARVE_GADV_RANDOM && f->run)
        bytes = 2 * (uint64_t)(f->ahead > need ? f->ahead : need);
    if (bytes > fs->readahead_bytes)
        bytes = fs->readahead_bytes;
    return (uint32_t)(bytes < left ? bytes : left);
}

/* While a group reads sequentially, requests the window after the current one before it is needed. A failure
 * is reported when the window is needed. If there is nothing to wait for, the other threads copy meanwhile. */
VARVE_D_COLD void varve_g_ahead(struct varve_gfile *f)
{
    uint32_t w = f->last, bytes;
    uint64_t off = f->window[w].off + f->window[w].bytes;

    if (!f->window[w].bytes || f->fs->readahead != VARVE_G_ADAPTIVE ||
        f->advice == VARVE_GADV_RANDOM || (!f->run && f->advice != VARVE_GADV_SEQUENTIAL) ||
        off >= f->bytes || varve_g_in_window(f, !w, off))
        return;
    bytes = varve_g_window_bytes(f, off, 1u << f->fs->page_shift);
    varve_g_window_drop(f, !w);
    if (varve_g_window_ask(f, !w, off, bytes) == 0)
        f->ahead = bytes;
}

/* The number of pages from `page` on that may be used. A page is not used if it was written after the window
 * was requested; nor is the page at the end of the file at that time, if the file has grown since: the rest of
 * that page may be a hole that no write has touched. */
VARVE_D_FN uint64_t varve_g_fresh(const struct varve_gfile *f, uint32_t w, uint64_t page,
                                  uint64_t n)
{
    uint64_t i, whole = f->window[w].known >> f->fs->page_shift;

    if (!(f->flags & VARVE_G_WRITABLE))
        return n;
    if (f->bytes > f->window[w].known && page + n > whole)
        n = page < whole ? whole - page : 0;
    for (i = 0; i < n && !varve_g_written(f, page + i, f->window[w].clock); i++)
        ;
    return i;
}

/* Pages found by varve_g_get. */
struct varve_g_source {
    const unsigned char *ptr; /* of the first page */
    uint64_t pages;           /* from there on, one at least */
    uint64_t clock;
    uint32_t mapped;
};

/* Finds the window with page `page` of the file, or requests one. Waits for the `want` pages from there, and
 * returns how many of them it has. `alone`: request only that page. Returns 0 or a negative errno, after which
 * the window is empty.
 *
 * A window requested here has all bytes written before the caller's read began, so the caller may use all of
 * it, even pages written since. Of an older window only pages that were not written since may be used;
 * -EAGAIN: there are none, and the next call requests them again. In both cases varve_g_fill keeps pages
 * written since out of the cache. */
VARVE_D_COLD int varve_g_window_get(struct varve_gfile *f, uint64_t page, uint64_t want, int alone,
                                    uint32_t *ret_w, uint64_t *ret_pages)
{
    const struct varve_gfs *fs = f->fs;
    uint64_t off = page << fs->page_shift, most = fs->readahead_bytes >> fs->page_shift, left;
    uint32_t w, lo, hi, bytes, asked;
    int rc;

    w = alone ? 2 : varve_g_in_window(f, 0, off) ? 0 : varve_g_in_window(f, 1, off) ? 1 : 2;
    if (w < 2 && (f->window[w].error || !varve_g_fresh(f, w, page, 1))) {
        varve_g_window_drop(f, w);
        w = 2;
    }
    asked = w == 2;
    if (asked) {
        /* The window without requests in flight, if there is one, else the older one. */
        w = f->window[!f->last].asked && !f->window[f->last].asked ? f->last : !f->last;
        varve_g_window_drop(f, w);
        bytes =
            varve_g_window_bytes(f, off, (uint32_t)(want < most ? want : most) << fs->page_shift);
        if (alone)
            bytes = 1u << fs->page_shift;
        rc = varve_g_window_ask(f, w, off, bytes);
        if (rc)
            return rc;
        f->ahead = bytes;
    }
    f->last = w;
    lo = (uint32_t)(off - f->window[w].off);
    left = (f->window[w].bytes - lo) >> fs->page_shift;
    if (left > want)
        left = want;
    hi = lo + ((uint32_t)left << fs->page_shift);
    rc = asked ? 1 : varve_g_window_wait(f, w, lo, hi, 1);
    if (rc > 0) {
        if (!alone)
            varve_g_ahead(f);
        rc = varve_g_window_wait(f, w, lo, hi, 0);
    }
    if (rc)
        varve_g_window_drop(f, w);
    else if (!asked)
        left = varve_g_fresh(f, w, page, left);
    *ret_w = w;
    *ret_pages = left;
    return rc || left ? rc : -EAGAIN;
}

/* Gets pages from `page` on, `want` of them wanted now, from a mapping or a server; there may be fewer, but at
 * least one. Returns 0 or a negative errno. Waits. The caller passes the result to the other threads, then
 * calls varve_g_ahead. */
VARVE_D_COLD int varve_g_get(struct varve_gfile *f, uint64_t page, uint64_t want,
                             struct varve_g_source *ret)
{
    const struct varve_gfs *fs = f->fs;
    uint32_t w = 0;
    int rc;

    ret->ptr = varve_g_mapped(f, page, 1, &ret->pages);
    ret->mapped = ret->ptr != NULL;
    ret->clock = 0;
    if (ret->ptr)
        return 0;
    rc = varve_g_window_get(f, page, want, 0, &w, &ret->pages);
    if (rc == -EAGAIN)
        rc = varve_g_window_get(f, page, want, 0, &w, &ret->pages);
    /* The error may belong to other pages of the same request. */
    if (rc && rc != -ETIMEDOUT && rc != -ENOTCONN)
        rc = varve_g_window_get(f, page, 1, 1, &w, &ret->pages);
    if (rc)
        return rc;
    ret->ptr = varve_g_window_at(f, w) + ((page << fs->page_shift) - f->window[w].off);
    ret->clock = f->window[w].clock;
    return 0;
}

#endif

#endif
