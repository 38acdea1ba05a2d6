/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU files in kernels: opening, reading, writing and mapping files inside device code. The host's part
 * is <varve/gpufile.h>; a kernel links no library. The functions are declared when nvcc compiles, and in C
 * for the emulated device if VARVE_EMULATE is defined as 1 before this header; otherwise only the types
 * are.
 *
 * Groups. A group of threads, a block or a warp, opens a file together. All threads of the group make
 * every call on the file at once, with the same arguments, and get the same result. Each thread has its
 * own struct varve_gfile, and keeps it from opening to closing. Blocks that read by warps have a multiple
 * of 32 threads. When a call returns, the whole group may use the bytes. Calls do not wait for the group
 * before they begin: synchronize (__syncthreads, __syncwarp) before a call reads or writes a buffer that
 * other threads may still use or fill.
 *
 *     __global__ void sum(const __grid_constant__ struct varve_gfs fs, uint32_t id, ...)
 *     {
 *         struct varve_gfile f;
 *         if (varve_gopen(&fs, id, VARVE_GBLOCK, &f) == 0) {
 *             int64_t n = varve_gread(&f, blockIdx.x * CHUNK, buffer, CHUNK);
 *             ...
 *             varve_gclose(&f);
 *         }
 *     }
 *
 * Reading. Bytes come from the page cache on the GPU. Missing pages are filled from the file's mapping, if
 * the host has mapped it, or by a server of the library. For a group that reads sequentially, the next
 * bytes are requested before it needs them. varve_gmap returns a page of the cache itself, without a copy.
 *
 * Writing. varve_gwrite returns when a server has written the bytes to the file, so that every read that
 * begins later sees them; varve_gsync returns when they are on the disk. If two groups write the same
 * bytes at once, or one reads what another is writing, the result is the old or the new bytes. A write
 * that has failed with -ETIMEDOUT or -ENOTCONN may still be made, by a running server or one that is
 * started later, and then after other writes made since. Reads of its bytes return old or new ones until
 * the answer has come and was seen: by the group that wrote, when it next reads, maps or writes the file,
 * or by a group that opens a file with the same stream.
 *
 * Errors. Negative errno values: -EBADF no such file, -ERANGE an offset beyond the end, -ENODATA the
 * file has become shorter, -EMFILE more files open than streams, -ENOTCONN no servers, -ETIMEDOUT no
 * answer in time, -EBUSY no page became free in time for mapping because others are mapped, -EACCES not
 * opened for writing, -EFBIG a write beyond 2^63 - 1, -ENAMETOOLONG a path of 4096 bytes or more, and the
 * system's errors of open, read and write. No call waits longer than the `timeout_ms` of the file system
 * for each request that it makes. After -ETIMEDOUT, calls on that file that need a server fail with
 * -ETIMEDOUT at once until the answer has come.
 */
#ifndef VARVE_GPUFILE_DEVICE_H
#define VARVE_GPUFILE_DEVICE_H

#include <varve/detail/gpufile_request.h>

/* Which threads open a file together. */
enum varve_gscope { VARVE_GBLOCK, VARVE_GWARP };

#ifdef VARVE_D_CODE

enum { VARVE_G_CHUNK_PAGES = 64, VARVE_G_BLOCK_PAGE_SHIFT = 15, VARVE_G_FIRST_PAGES = 16 };

#define VARVE_G_NOWHERE UINT64_MAX

/* ---- groups ---- */

VARVE_D_FN struct varve_g_team varve_g_group(const struct varve_gfile *f)
{
    struct varve_g_team t;

    t.rank = f->rank;
    t.size = f->size;
    t.block = f->by_block;
    return t;
}

/* How a group divides pages into teams. The whole group is one team if it is a warp, if pages are large,
 * or with readahead of fixed size; otherwise each warp is a team. */
struct varve_g_share {
    struct varve_g_team team;
    uint32_t index, teams; /* team `index` takes pages index, index + teams, ... */
};

VARVE_D_FN struct varve_g_share varve_g_page_share(const struct varve_gfile *f)
{
    struct varve_g_share s = {varve_g_group(f), 0, 1};

    if (f->by_block && f->fs->page_shift < VARVE_G_BLOCK_PAGE_SHIFT &&
        f->fs->readahead != VARVE_G_FIXED && f->size % VARVE_D_WARP == 0) {
        s.index = varve_d_warp();
        s.teams = varve_d_warps();
        s.team.rank = varve_d_lane();
        s.team.size = VARVE_D_WARP;
        s.team.block = 0;
    }
    return s;
}

struct varve_g_found {
    uint64_t missing; /* one bit for each page */
    uint64_t failed;  /* an errno, not negative; 0: none */
};

/* Combines what the teams of the group have found. Also a barrier of the group. */
VARVE_D_FN struct varve_g_found varve_g_gather(const struct varve_gfile *f, uint32_t rank,
                                               struct varve_g_found mine)
{
    VARVE_D_SHARED(struct varve_g_found, all);

    if (!f->by_block) {
        varve_d_sync_warp();
        return mine;
    }
    varve_d_sync_block();
    if (f->rank == 0)
        all->missing = all->failed = 0;
    varve_d_sync_block();
    if (rank == 0 && mine.missing)
        varve_d_or64_dev(&all->missing, mine.missing);
    if (rank == 0 && mine.failed)
        varve_d_max64_dev(&all->failed, mine.failed);
    varve_d_sync_block();
    mine = *all;
    return mine;
}

struct varve_g_passed {
    struct varve_g_source src;
    int rc;
};

/* Passes the first thread's result to all threads. */
VARVE_D_FN int varve_g_broadcast_source(const struct varve_gfile *f, int rc,
                                        struct varve_g_source *src)
{
    struct varve_g_team t = varve_g_group(f);
    VARVE_D_SHARED(struct varve_g_passed, passed);

    if (f->by_block) {
        if (f->rank == 0) {
            passed->rc = rc;
            passed->src = *src;
        }
        varve_d_sync_block();
        rc = passed->rc;
        *src = passed->src;
        varve_d_sync_block();
        return rc;
    }
    rc = (int)(int64_t)varve_g_broadcast(&t, (uint64_t)(int64_t)rc);
    if (rc)
        return rc;
    src->ptr =
        (const unsigned char *)(uintptr_t)varve_g_broadcast(&t, (uint64_t)(uintptr_t)src->ptr);
    src->pages = varve_g_broadcast(&t, src->pages);
    src->clock = varve_g_broadcast(&t, src->clock);
    src->mapped = (uint32_t)varve_g_broadcast(&t, src->mapped);
    return 0;
}

/* ---- one page ---- */

enum { VARVE_G_DONE = 0, VARVE_G_MISSED = 1 };

/* Attempts to get a page through the cache while other groups keep evicting it, or filling it with outdated
 * bytes. After that the page bypasses the cache. */
enum { VARVE_G_TRIES = 16 };

/* Waits until a pinned frame has been filled, and returns it; -EAGAIN: its bytes are out of date; or
 * -ETIMEDOUT. One thread. */
VARVE_D_FN int64_t varve_g_settle(const struct varve_gfile *f, uint32_t frame)
{
    uint64_t start = 0;

    while ((varve_d_acquire32_dev(&f->fs->frames[frame].word) & VARVE_G_STATE) == VARVE_G_BUSY) {
        if (!start)
            start = varve_d_now_ns();
        else if (varve_g_is_late(f->fs, start, varve_d_now_ns())) {
            varve_g_unpin(f->fs, frame);
            return -ETIMEDOUT;
        }
        varve_d_pause(100);
    }
    if ((varve_d_load32_dev(&f->fs->frames[frame].word) & VARVE_G_STATE) == VARVE_G_FAILED) {
        varve_g_unpin(f->fs, frame);
        return -EAGAIN;
    }
    return frame;
}

/* Pins the page and returns its frame, as above; -ENOENT: it is not in the cache. `there`: its frame, if
 * that is pinned already. One thread. */
VARVE_D_FN int64_t varve_g_pin(const struct varve_gfile *f, uint64_t page, uint32_t there)
{
    if (there == VARVE_G_NONE)
        there = varve_g_find(f->fs, f->file, page);
    return there == VARVE_G_NONE ? -ENOENT : varve_g_settle(f, there);
}

/* Links a frame for the page and returns it. -EEXIST: another frame is linked for it, which is stored in
 * `ret_there` unless it is being evicted; -EBUSY: no frame is available. */
VARVE_D_FN int64_t varve_g_new_frame(const struct varve_gfile *f, uint64_t page,
                                     uint32_t *ret_there)
{
    uint32_t frame = varve_g_take(f->fs, f->stream);

    if (frame == VARVE_G_NONE)
        return -EBUSY;
    *ret_there = varve_g_link(f->fs, frame, f->file, page);
    return *ret_there == frame ? (int64_t)frame : -EEXIST;
}

VARVE_D_FN void varve_g_count(struct varve_gfile *f, const struct varve_g_source *src,
                              uint64_t bytes, int cached)
{
    f->misses++;
    if (src->mapped)
        f->mapped_bytes += bytes;
    else
        f->served_bytes += bytes;
    if (!cached)
        f->bypassed_bytes += bytes;
}

/* Copies the page's bytes to a frame, and [lo, hi) of them to dst as well, unless that is NULL. Returns the
 * number of bytes of the page. */
VARVE_D_FN uint32_t varve_g_fill_bytes(const struct varve_gfile *f, const struct varve_g_team *t,
                                       uint32_t frame, uint64_t page, uint32_t lo, uint32_t hi,
                                       unsigned char *dst, const unsigned char *from)
{
    const struct varve_gfs *fs = f->fs;
    unsigned char *data = fs->data + ((uint64_t)frame << fs->page_shift);
    uint64_t left = f->bytes - (page << fs->page_shift);
    uint32_t valid = left >> fs->page_shift ? 1u << fs->page_shift : (uint32_t)left;
    int both = dst && ((uintptr_t)dst | lo | hi) % 16 == 0;

    varve_g_pull(t->rank, t->size, data, both ? dst : NULL, lo / 16, hi / 16, from,
                 (valid + 15) / 16);
    varve_g_sync(t);
    if (dst && !both) {
        varve_g_copy(t, dst, data + lo, hi - lo);
        varve_g_sync(t);
    }
    return valid;
}

/* Fills a frame that is linked and BUSY, and copies bytes [lo, hi) of the page to dst. `keep`: the frame
 * stays pinned. */
VARVE_D_FN void varve_g_fill(struct varve_gfile *f, const struct varve_g_team *t, uint32_t frame,
                             uint64_t page, uint32_t lo, uint32_t hi, unsigned char *dst,
                             const struct varve_g_source *src, const unsigned char *from, int keep)
{
    const struct varve_gfs *fs = f->fs;
    uint32_t valid = varve_g_fill_bytes(f, t, frame, page, lo, hi, dst, from), end = VARVE_G_VALID;

    if (t->rank != 0)
        return;
    /* The bytes may have been requested before a write that has ended since. Then no other group may
     * use them, not even groups that have already found the page and wait. A write that ends after this
     * check finds the page, because it is linked. The same applies to the page at the end of the file
     * as this group sees it: other groups may have written more bytes in it since. */
    if (f->flags & VARVE_G_WRITABLE &&
        (valid < 1u << fs->page_shift || varve_g_written(f, page, src->clock))) {
        varve_g_forget(fs, f->file, page);
        end = VARVE_G_FAILED;
    }
    varve_d_add32_release_dev(&fs->frames[frame].word,
                              end - VARVE_G_BUSY - (keep ? 0 : VARVE_G_PIN));
    varve_g_count(f, src, valid, 1);
}

/*
 * Copies bytes [lo, hi) of a page to dst, unless that is NULL. `from`: source of the page if it is not in
 * the cache; NULL: the windows known to the device are searched, and the result is MISSED if it is not in
 * them. `ret_frame`, unless NULL, gets the page's frame, which stays pinned. Called by all threads of the
 * team. Returns DONE, MISSED or a negative errno; -EAGAIN, with `ret_frame` only: every attempt lost a race
 * with another group.
 */
VARVE_D_FN int varve_g_page(struct varve_gfile *f, const struct varve_g_team *t, uint64_t page,
                            uint32_t lo, uint32_t hi, unsigned char *dst,
                            const struct varve_g_source *src, const unsigned char *from,
                            uint32_t *ret_frame)
{
    const struct varve_gfs *fs = f->fs;
    uint32_t there = VARVE_G_NONE, tries = 0;
    uint64_t pages;
    int64_t frame = 0;

    for (;;) {
        if (t->rank == 0)
            frame = varve_g_pin(f, page, there);
        frame = (int64_t)varve_g_broadcast(t, (uint64_t)frame);
        if (frame >= 0) {
            if (dst)
                varve_g_copy(t, dst, fs->data + ((uint64_t)frame << fs->page_shift) + lo, hi - lo);
            varve_g_sync(t);
            if (t->rank == 0) {
                f->hits++;
                if (!ret_frame)
                    varve_g_unpin(fs, (uint32_t)frame);
            }
            break;
        }
        there = VARVE_G_NONE;
        if (frame == -EAGAIN && tries++ < VARVE_G_TRIES)
            continue;
        if (frame != -ENOENT && frame != -EAGAIN)
            return (int)frame;
        if (!from) {
            /* Only one thread looks: a second one might see the window appear a moment later. */
            if (t->rank == 0)
                from = varve_g_mapped(f, page, 0, &pages);
            from =
                (const unsigned char *)(uintptr_t)varve_g_broadcast(t, (uint64_t)(uintptr_t)from);
            if (!from)
                return VARVE_G_MISSED;
        }
        if (t->rank == 0)
            frame = (f->pass_by || tries > VARVE_G_TRIES) && !ret_frame
                        ? -EBUSY
                        : varve_g_new_frame(f, page, &there);
        frame = (int64_t)varve_g_broadcast(t, (uint64_t)frame);
        if (frame >= 0) {
            varve_g_fill(f, t, (uint32_t)frame, page, lo, hi, dst, src, from, ret_frame != NULL);
            break;
        }
        if (frame == -EBUSY) {
            if (ret_frame)
                return -EBUSY;
            varve_g_copy(t, dst, from + lo, hi - lo);
            if (t->rank == 0)
                varve_g_count(f, src, hi - lo, 0);
            break;
        }
        if (tries++ > VARVE_G_TRIES && ret_frame) {
            if (t->rank == 0 && there != VARVE_G_NONE)
                varve_g_unpin(fs, there);
            return -EAGAIN;
        }
    }
    if (ret_frame)
        *ret_frame = (uint32_t)frame;
    return VARVE_G_DONE;
}

/* ---- reading ---- */

/* A piece of a read: at most 64 pages. */
struct varve_g_piece {
    uint64_t off, bytes, first; /* first: page */
    unsigned char *dst;
};

/* Pins and returns a frame that was VALID and had the key of the page. The caller has to check the key again
 * after the next varve_d_acquire_all_dev: it may have changed before the pin. One lane. */
VARVE_D_FN uint32_t varve_g_find_early(const struct varve_gfs *fs, uint32_t file, uint64_t page)
{
    uint32_t f =
        varve_d_load32_dev(&fs->buckets[varve_g_hash(file, page) & (fs->n_buckets - 1)].head);
    int steps;

    for (steps = 0; f != VARVE_G_NONE && steps < 64; steps++) {
        struct varve_g_frame *fr = &fs->frames[f];

        if (varve_g_is(fr, file, page)) {
            if ((varve_d_add32_early_dev(&fr->word, VARVE_G_PIN) & VARVE_G_STATE) == VARVE_G_VALID)
                return f;
            varve_g_unpin(fs, f);
            return VARVE_G_NONE;
        }
        f = varve_d_load32_dev(&fr->next);
    }
    return VARVE_G_NONE;
}

/* Offset of page i in the piece, and the bytes of the page that are wanted. */
VARVE_D_FN void varve_g_piece_part(const struct varve_gfile *f, const struct varve_g_piece *p,
                                   uint32_t i, uint32_t *ret_lo, uint32_t *ret_hi,
                                   unsigned char **ret_dst)
{
    uint32_t shift = f->fs->page_shift;
    uint64_t at = (p->first + i) << shift, end = p->off + p->bytes - at;

    *ret_lo = i ? 0 : (uint32_t)(p->off - at);
    *ret_hi = end >> shift ? 1u << shift : (uint32_t)end;
    *ret_dst = p->dst + (at + *ret_lo - p->off);
}

/* Copies those of a warp's pages (index, index + teams, ..., below n) that are in the cache. Each lane looks
 * up one page, all lanes copy, and two fences serve all pages. Returns one bit for each page that was
 * there. */
VARVE_D_FN uint64_t varve_g_piece_hits(struct varve_gfile *f, const struct varve_g_share *s,
                                       const struct varve_g_piece *p, uint32_t n)
{
    const struct varve_gfs *fs = f->fs;
    struct varve_g_team t = s->team;
    uint32_t index = s->index, teams = s->teams;
    uint64_t found = 0;
    uint32_t base, mask, j, frame, lo, hi;
    unsigned char *dst;

    for (base = index; base < n; base += VARVE_D_WARP * teams) {
        uint32_t mine = base + t.rank * teams;

        frame = mine < n ? varve_g_find_early(fs, f->file, p->first + mine) : VARVE_G_NONE;
        if (!varve_d_ballot_warp(frame != VARVE_G_NONE))
            continue;
        varve_d_acquire_all_dev();
        if (frame != VARVE_G_NONE && !varve_g_is(&fs->frames[frame], f->file, p->first + mine)) {
            varve_g_unpin(fs, frame);
            frame = VARVE_G_NONE;
        }
        mask = varve_d_ballot_warp(frame != VARVE_G_NONE);
        varve_d_sync_warp();
        for (j = 0; j < VARVE_D_WARP && mask >> j; j++) {
            uint32_t one;

            if (!(mask >> j & 1))
                continue;
            one = varve_d_shfl32_warp(frame, j);
            varve_g_piece_part(f, p, base + j * teams, &lo, &hi, &dst);
            varve_g_copy(&t, dst, fs->data + ((uint64_t)one << fs->page_shift) + lo, hi - lo);
            found |= UINT64_C(1) << (base + j * teams);
            f->hits += t.rank == 0;
        }
        varve_d_sync_warp();
        varve_d_release_all_dev();
        if (frame != VARVE_G_NONE)
            varve_d_add32_late_dev(&fs->frames[frame].word, (uint32_t) - (int32_t)VARVE_G_PIN);
    }
    return found;
}

/* True if warps may take frames for many pages at once, fill them and then link them: the file is not
 * writable, and every stream has frames for all pages of a piece. */
VARVE_D_FN int varve_g_fills_many(const struct varve_gfile *f, const struct varve_g_team *t)
{
    return !t->block && !f->fs->replace && !(f->flags & VARVE_G_WRITABLE) &&
           (uint64_t)f->fs->n_streams * VARVE_G_CHUNK_PAGES <= f->fs->n_frames;
}

/* Address of page i of the piece; `first` is the first page of the source. If the source has no address, the
 * page's mapping, as far as the device has it; or NULL. */
VARVE_D_FN const unsigned char *varve_g_piece_from(const struct varve_gfile *f,
                                                   const struct varve_g_piece *p, uint32_t i,
                                                   uint32_t first, const struct varve_g_source *src)
{
    uint64_t pages;

    return src->ptr ? src->ptr + ((uint64_t)(i - first) << f->fs->page_shift)
                    : varve_g_mapped(f, p->first + i, 0, &pages);
}

/* Copies page i of the piece into a frame that is FREE, or NONE, and to the caller. Called by a warp. */
VARVE_D_FN void varve_g_piece_fill(struct varve_gfile *f, const struct varve_g_team *t,
                                   const struct varve_g_piece *p, uint32_t i, uint32_t frame,
                                   const struct varve_g_source *src, const unsigned char *from)
{
    unsigned char *dst;
    uint32_t lo, hi, bytes;

    varve_g_piece_part(f, p, i, &lo, &hi, &dst);
    if (frame != VARVE_G_NONE) {
        bytes = varve_g_fill_bytes(f, t, frame, p->first + i, lo, hi, dst, from);
    } else {
        bytes = hi - lo;
        varve_g_copy(t, dst, from + lo, bytes);
    }
    if (t->rank == 0)
        varve_g_count(f, src, bytes, frame != VARVE_G_NONE);
}

/* Fills the wanted pages of a warp in [first, end), which were not in the cache. Each lane takes a frame, all
 * lanes copy, each lane links one frame, so that the warp waits once and not for each page. Two groups that
 * want a page at the same time may both fetch it. Returns one bit for each page that had a source. */
VARVE_D_FN uint64_t varve_g_piece_many(struct varve_gfile *f, const struct varve_g_share *s,
                                       const struct varve_g_piece *p, uint32_t first, uint32_t end,
                                       uint64_t wanted, const struct varve_g_source *src)
{
    uint32_t base, mask, j, frame = VARVE_G_NONE;
    uint64_t filled = 0;

    for (base = first + s->index; base < end; base += VARVE_D_WARP * s->teams) {
        uint32_t mine = base + s->team.rank * s->teams;
        const unsigned char *from = NULL;

        if (mine < end && wanted >> mine & 1)
            from = varve_g_piece_from(f, p, mine, first, src);
        mask = varve_d_ballot_warp(from != NULL);
        if (mask && !f->pass_by)
            frame = varve_g_take_warp(f->fs, f->stream, from != NULL);
        for (j = 0; j < VARVE_D_WARP && mask >> j; j++) {
            uint32_t i = base + j * s->teams;

            if (!(mask >> j & 1))
                continue;
            varve_g_piece_fill(f, &s->team, p, i, varve_d_shfl32_warp(frame, j), src,
                               (const unsigned char *)(uintptr_t)varve_d_shfl64_warp(
                                   (uint64_t)(uintptr_t)from, j));
            filled |= UINT64_C(1) << i;
        }
        if (mask && !f->pass_by)
            varve_g_link_warp(f->fs, frame, f->file, p->first + mine);
    }
    return filled;
}

/* Copies the wanted pages of this thread's team in [first, end) from the cache, or from the source through
 * the cache. Out of line, because hits do not need it. */
VARVE_D_COLD struct varve_g_found varve_g_piece_pages(struct varve_gfile *f,
                                                      const struct varve_g_piece *p, uint32_t first,
                                                      uint32_t end, uint64_t wanted,
                                                      const struct varve_g_source *src)
{
    struct varve_g_share s = varve_g_page_share(f);
    int many = varve_g_fills_many(f, &s.team), rc;
    uint64_t filled = many ? varve_g_piece_many(f, &s, p, first, end, wanted, src) : 0;
    struct varve_g_found found = {0, 0};
    unsigned char *dst;
    uint32_t i, lo, hi;

    for (i = first + s.index; i < end; i += s.teams) {
        if (!((wanted & ~filled) >> i & 1))
            continue;
        rc = VARVE_G_MISSED;
        if (!many) {
            varve_g_piece_part(f, p, i, &lo, &hi, &dst);
            rc = varve_g_page(f, &s.team, p->first + i, lo, hi, dst, src,
                              src->ptr ? varve_g_piece_from(f, p, i, first, src) : NULL, NULL);
        }
        if (rc == VARVE_G_MISSED)
            found.missing |= UINT64_C(1) << i;
        else if (rc < 0)
            found.failed = (uint64_t)-rc;
    }
    return found;
}

/* Gets the pages that are neither in the cache nor mapped, as far as the device knows, from the host, one
 * run after another. */
VARVE_D_COLD int varve_g_piece_missing(struct varve_gfile *f, const struct varve_g_piece *p,
                                       uint64_t missing)
{
    struct varve_g_source src = {0, 0, 0, 0};
    struct varve_g_found found;
    uint32_t first, last;
    int rc = 0;

    while (missing) {
        for (first = 0; !(missing >> first & 1); first++)
            ;
        for (last = first; missing >> last > 1; last++)
            ;
        if (f->rank == 0)
            rc = varve_g_get(f, p->first + first, last - first + 1, &src);
        rc = varve_g_broadcast_source(f, rc, &src);
        if (rc)
            return rc;
        if (f->rank == 0 && !src.mapped)
            varve_g_ahead(f);
        if (src.pages > last - first + 1)
            src.pages = last - first + 1;
        found = varve_g_piece_pages(f, p, first, first + (uint32_t)src.pages, missing, &src);
        /* All threads must have finished reading the window before the first one requests the next. */
        found = varve_g_gather(f, varve_g_page_share(f).team.rank, found);
        if (found.failed)
            return -(int)found.failed;
        missing &= ~(((src.pages > 63 ? 0 : UINT64_C(1) << src.pages) - 1) << first);
    }
    return 0;
}

VARVE_D_FN int varve_g_piece_read(struct varve_gfile *f, const struct varve_g_piece *p)
{
    uint32_t n = (uint32_t)(((p->off + p->bytes - 1) >> f->fs->page_shift) - p->first + 1);
    struct varve_g_share s = varve_g_page_share(f);
    struct varve_g_source src = {0, 0, 0, 1};
    struct varve_g_found found = {0, 0};
    uint64_t hits = 0, all = 0;
    uint32_t i;

    for (i = s.index; i < n; i += s.teams)
        all |= UINT64_C(1) << i;
    if (!s.team.block)
        hits = varve_g_piece_hits(f, &s, p, n);
    if (hits != all)
        found = varve_g_piece_pages(f, p, 0, n, ~hits, &src);
    found = varve_g_gather(f, s.team.rank, found);
    if (found.failed)
        return -(int)found.failed;
    return found.missing ? varve_g_piece_missing(f, p, found.missing) : 0;
}

/* Decides if this read continues the previous one, and updates readahead. The first read of a handle counts
 * as sequential if it is at the start of the file, or large: a group that reads much at once mostly
 * continues, and all groups of a kernel begin at the same time, when the link is idle. */
VARVE_D_FN void varve_g_follow(struct varve_gfile *f, uint64_t off, uint64_t bytes)
{
    if (off == f->next || (f->next == VARVE_G_NOWHERE &&
                           (off == 0 || bytes >> f->fs->page_shift >= VARVE_G_FIRST_PAGES))) {
        f->run++;
    } else {
        f->run = 0;
        f->ahead = 0;
    }
    f->next = off + bytes;
    f->pass_by = f->advice == VARVE_GADV_NOREUSE ||
                 (f->fs->bypass == 0 && f->run && f->bytes > f->fs->cache_bytes);
}

/* Updates the view of a file that kernels write: its length. If a write of this group that timed out has been
 * made meanwhile, its pages are removed from the cache. */
VARVE_D_FN void varve_g_renew(struct varve_gfile *f)
{
    struct varve_g_team t = varve_g_group(f);

    if (f->rank == 0)
        (void)varve_g_part_idle(f, 0);
    f->bytes = varve_g_broadcast(&t, varve_d_acquire64_dev(&f->fs->grown[f->file]));
}

/*
 * Reads up to `bytes` at `off` of the file into dst, which is memory of the device or of the block.
 * Returns the count of bytes, which is smaller only at the end of the file; or a negative errno, and then
 * the content of dst is undefined.
 */
VARVE_D_FN int64_t varve_gread(struct varve_gfile *f, uint64_t off, void *dst, uint64_t bytes)
{
    uint64_t done, page = UINT64_C(1) << f->fs->page_shift;
    struct varve_g_piece p;
    int rc;

    if (f->flags & VARVE_G_WRITABLE)
        varve_g_renew(f);
    if (off > f->bytes)
        return -ERANGE;
    if (bytes > f->bytes - off)
        bytes = f->bytes - off;
    varve_g_follow(f, off, bytes);
    for (done = 0; done < bytes; done += p.bytes) {
        p.off = off + done;
        p.first = p.off >> f->fs->page_shift;
        p.bytes = (p.first + VARVE_G_CHUNK_PAGES) * page - p.off;
        if (p.bytes > bytes - done)
            p.bytes = bytes - done;
        p.dst = (unsigned char *)dst + done;
        rc = varve_g_piece_read(f, &p);
        if (rc)
            return rc;
    }
    return (int64_t)bytes;
}

/*
 * Maps the page of the cache that has byte `off`: `ret_ptr` points to that byte, and `ret_bytes` bytes of
 * the page can be read from there. The page stays in place until varve_gunmap. Returns 0 or a negative
 * errno. One open file can map all pages of the cache, except those that other open files have mapped, and
 * up to 32 more for each of those files.
 */
VARVE_D_FN int varve_gmap(struct varve_gfile *f, uint64_t off, const void **ret_ptr,
                          uint64_t *ret_bytes)
{
    const struct varve_gfs *fs = f->fs;
    uint64_t page = off >> fs->page_shift, start = 0, left;
    uint32_t frame = 0, lo = (uint32_t)(off - (page << fs->page_shift));
    struct varve_g_team t = varve_g_group(f);
    struct varve_g_source src = {0, 0, 0, 1};
    int rc;

    if (f->flags & VARVE_G_WRITABLE)
        varve_g_renew(f);
    if (off >= f->bytes)
        return -ERANGE;
    left = f->bytes - off;
    varve_g_follow(f, off, left < (1u << fs->page_shift) - lo ? left : (1u << fs->page_shift) - lo);
    rc = varve_g_page(f, &t, page, 0, 0, NULL, &src, NULL, &frame);
    while (rc == VARVE_G_MISSED || rc == -EAGAIN || rc == -EBUSY) {
        if (f->rank == 0) {
            if (!start)
                start = varve_d_now_ns();
            rc = varve_g_is_late(fs, start, varve_d_now_ns()) ? -EBUSY
                                                              : varve_g_get(f, page, 1, &src);
        }
        rc = varve_g_broadcast_source(f, rc, &src);
        if (rc == -EBUSY)
            return rc;
        if (rc == 0 && f->rank == 0 && !src.mapped)
            varve_g_ahead(f);
        if (rc == 0)
            rc = varve_g_page(f, &t, page, 0, 0, NULL, &src, src.ptr, &frame);
        if (rc == -EBUSY) {
            if (f->rank == 0)
                varve_g_take_more(fs, f->stream);
            varve_d_pause(1000);
        }
    }
    if (rc)
        return rc;
    *ret_ptr = fs->data + ((uint64_t)frame << fs->page_shift) + lo;
    *ret_bytes = left < (1u << fs->page_shift) - lo ? left : (1u << fs->page_shift) - lo;
    return 0;
}

/* Gives a page of varve_gmap back. `ptr`: anywhere in the page. */
VARVE_D_FN void varve_gunmap(struct varve_gfile *f, const void *ptr)
{
    struct varve_g_team t = varve_g_group(f);

    varve_g_sync(&t);
    if (f->rank == 0)
        varve_g_unpin(f->fs, (uint32_t)((uint64_t)((const unsigned char *)ptr - f->fs->data) >>
                                        f->fs->page_shift));
}

/* ---- requests of other kinds ---- */

/* Frees a window, sends one request in its part 0 and returns the answer. First thread. */
VARVE_D_COLD int varve_g_call(struct varve_gfile *f, uint32_t op, uint64_t off, uint32_t bytes)
{
    int rc = varve_g_ready(f);

    if (rc == 0)
        rc = varve_g_part_wait(f, 0);
    if (rc == 0)
        rc = varve_g_send(f, op, 0, off, bytes);
    return rc ? rc : varve_g_wait(f, 0);
}

/* Records that the write sent in part 0 may be made later: the thread that sees its answer then invalidates
 * its pages. */
VARVE_D_FN void varve_g_late_write(const struct varve_gfile *f, uint64_t off, uint32_t bytes)
{
    struct varve_g_stream *s = &f->fs->streams[f->stream];

    s->late_off = off;
    s->late_bytes = bytes;
    s->late_file = f->file;
}

/* Writes `bytes` from src to the file, which was registered for writing. Returns the count of bytes, or a
 * negative errno. After an error part of them may have been written, and after -ETIMEDOUT and -ENOTCONN may
 * still be written later. */
VARVE_D_COLD int64_t varve_gwrite(struct varve_gfile *f, uint64_t off, const void *src,
                                  uint64_t bytes)
{
    struct varve_g_team t = varve_g_group(f);
    uint64_t done, n;
    int64_t rc = 0;

    if (!(f->flags & VARVE_G_WRITABLE))
        return -EACCES;
    if (off + bytes < off || off + bytes > UINT64_C(0x7fffffffffffffff))
        return -EFBIG;
    for (done = 0; done < bytes; done += n) {
        n = bytes - done < f->fs->split_bytes ? bytes - done : f->fs->split_bytes;
        if (f->rank == 0) {
            varve_g_window_drop(f, 0);
            rc = varve_g_ready(f);
            if (rc == 0)
                rc = varve_g_part_wait(f, 0);
        }
        rc = (int64_t)varve_g_broadcast(&t, (uint64_t)rc);
        if (rc)
            return rc;
        varve_g_push(t.rank, t.size, varve_g_stage(f, 0), (const unsigned char *)src + done, n);
        varve_g_sync(&t);
        if (f->rank == 0) {
            rc = varve_g_call(f, VARVE_G_WRITE, off + done, (uint32_t)n);
            /* Invalidate even after an error: some bytes may have been written. */
            varve_g_touch(f->fs, f->file, off + done, n);
            if (f->fs->streams[f->stream].stuck & 1)
                varve_g_late_write(f, off + done, (uint32_t)n);
            if (rc >= 0 && (uint64_t)rc < n)
                rc = -EIO;
            if (rc >= 0)
                varve_d_max64_dev(&f->fs->grown[f->file], off + done + n);
        }
        rc = (int64_t)varve_g_broadcast(&t, (uint64_t)rc);
        if (rc < 0)
            return rc;
    }
    return (int64_t)bytes;
}

/* Returns when all bytes written to the file so far, by any group, are on the disk. */
VARVE_D_COLD int varve_gsync(struct varve_gfile *f)
{
    struct varve_g_team t = varve_g_group(f);
    int rc = 0;

    varve_g_sync(&t);
    if (f->rank == 0) {
        varve_g_window_drop(f, 0);
        rc = varve_g_call(f, VARVE_G_SYNC, 0, 0);
    }
    return (int)(int64_t)varve_g_broadcast(&t, (uint64_t)(int64_t)rc);
}

/* Declares how the file, or bytes of it, will be used: enum varve_gadvice. Advice never changes results.
 * Returns 0 or -EINVAL. */
VARVE_D_COLD int varve_gadvise(struct varve_gfile *f, int advice, uint64_t off, uint64_t bytes)
{
    struct varve_g_team t = varve_g_group(f);
    uint64_t page, shift = f->fs->page_shift, none;

    if (advice < VARVE_GADV_NORMAL || advice > VARVE_GADV_DONTNEED)
        return -EINVAL;
    if (advice <= VARVE_GADV_NOREUSE) {
        f->advice = (uint32_t)advice;
        f->pass_by = advice == VARVE_GADV_NOREUSE;
        return 0;
    }
    varve_g_sync(&t);
    if (f->rank != 0 || off >= f->bytes || bytes == 0)
        return 0;
    if (bytes > f->bytes - off)
        bytes = f->bytes - off;
    if (advice == VARVE_GADV_DONTNEED) {
        for (page = off >> shift; page <= (off + bytes - 1) >> shift; page++)
            varve_g_forget(f->fs, f->file, page);
    } else if (!varve_g_mapped(f, off >> shift, 1, &none) && !varve_g_in_window(f, 0, off) &&
               !varve_g_in_window(f, 1, off)) {
        off = off >> shift << shift;
        page = (bytes + (UINT64_C(1) << shift) - 1) >> shift << shift;
        varve_g_window_drop(f, !f->last);
        (void)varve_g_window_ask(
            f, !f->last, off,
            (uint32_t)(page < f->fs->readahead_bytes ? page : f->fs->readahead_bytes));
    }
    return 0;
}

/* ---- opening and closing ---- */

/* A stream that is not in use and has no answers outstanding. First thread. */
VARVE_D_COLD int varve_g_take_stream(struct varve_gfile *f, uint32_t from)
{
    const struct varve_gfs *fs = f->fs;
    uint32_t i, part;

    for (i = 0; i < fs->n_streams; i++) {
        struct varve_g_stream *s = &fs->streams[(from + i) % fs->n_streams];

        if (varve_d_load32_dev(&s->taken) || varve_d_cas32_dev(&s->taken, 0, 1) != 0)
            continue;
        f->stream = (from + i) % fs->n_streams;
        for (part = 0; part < VARVE_G_PARTS && varve_g_part_idle(f, part); part++)
            ;
        if (part == VARVE_G_PARTS) {
            varve_d_add32_dev(&fs->shared->active, 1);
            return 0;
        }
        varve_d_release32_dev(&s->taken, 0);
    }
    return -EMFILE;
}

VARVE_D_FN void varve_g_give_stream(struct varve_gfile *f)
{
    varve_d_add32_dev(&f->fs->shared->active, (uint32_t)-1);
    varve_d_release32_dev(&f->fs->streams[f->stream].taken, 0);
}

/* Looks the file up in the host's table. First thread. */
VARVE_D_COLD int varve_g_look(struct varve_gfile *f)
{
    const struct varve_g_file *info = &f->fs->files[f->file];
    uint64_t word;

    if (f->file >= f->fs->n_files)
        return -EBADF;
    word = varve_d_acquire64_sys(&info->word);
    if (!(word & VARVE_G_FILE_OPEN))
        return -EBADF;
    f->flags = (uint32_t)word;
    f->bytes = varve_d_load64_sys(&info->bytes);
    f->windows = varve_d_load64_sys(&info->windows);
    f->maps = (uint32_t)varve_d_acquire64_sys(&f->fs->host->maps);
    if (f->flags & VARVE_G_WRITABLE) {
        varve_d_max64_dev(&f->fs->grown[f->file], f->bytes);
        f->bytes = varve_d_load64_dev(&f->fs->grown[f->file]);
    }
    return 0;
}

VARVE_D_FN void varve_g_start(const struct varve_gfs *fs, enum varve_gscope scope,
                              struct varve_gfile *f)
{
    f->fs = fs;
    f->by_block = scope == VARVE_GBLOCK;
    f->rank = f->by_block ? varve_d_thread() : varve_d_lane();
    f->size = f->by_block ? varve_d_threads() : VARVE_D_WARP;
    f->bytes = f->windows = 0;
    f->next = VARVE_G_NOWHERE;
    f->file = f->stream = f->flags = 0;
    f->run = f->ahead = f->advice = f->pass_by = f->last = f->maps = 0;
    f->late = 0;
    f->window[0].bytes = f->window[0].asked = f->window[0].error = 0;
    f->window[1] = f->window[0];
    f->hits = f->misses = f->mapped_bytes = f->served_bytes = f->bypassed_bytes = 0;
    f->requests = f->requested_bytes = f->waits_ns = 0;
}

VARVE_D_FN int varve_g_broadcast_open(struct varve_gfile *f, int rc)
{
    struct varve_g_team t = varve_g_group(f);

    rc = (int)(int64_t)varve_g_broadcast(&t, (uint64_t)(int64_t)rc);
    if (rc)
        return rc;
    f->file = (uint32_t)varve_g_broadcast(&t, f->file);
    f->stream = (uint32_t)varve_g_broadcast(&t, f->stream);
    f->flags = (uint32_t)varve_g_broadcast(&t, f->flags);
    f->bytes = varve_g_broadcast(&t, f->bytes);
    f->windows = varve_g_broadcast(&t, f->windows);
    return 0;
}

VARVE_D_FN uint32_t varve_g_place(enum varve_gscope scope)
{
    return scope == VARVE_GBLOCK ? varve_d_block()
                                 : varve_d_block() * varve_d_warps() + varve_d_warp();
}

/* Opens a file that the host has registered. Returns 0 or a negative errno. */
VARVE_D_COLD int varve_gopen(const struct varve_gfs *fs, uint32_t id, enum varve_gscope scope,
                             struct varve_gfile *f)
{
    int rc = 0;

    varve_g_start(fs, scope, f);
    if (f->rank == 0) {
        f->file = id;
        if (varve_d_load64_sys(&fs->host->servers) == 0)
            f->late = -ENOTCONN;
        rc = varve_g_look(f);
        if (rc == 0)
            rc = varve_g_take_stream(f, varve_g_place(scope));
    }
    return varve_g_broadcast_open(f, rc);
}

/* Opens a file by its path, like varve_gpufs_register on the host: `flags` are the same, without MAP. The file
 * stays registered after it is closed, until the host unregisters it. A file for reading whose size has
 * changed since it was last opened gets another number, and the number of registered files is limited by the
 * option `files`. To follow a growing file, register it on the host for each kernel, and unregister its old
 * number. Returns 0 or a negative errno; -EMFILE: `files` are registered, or no stream is left. */
VARVE_D_COLD int varve_gopen_path(const struct varve_gfs *fs, const char *path, int flags,
                                  enum varve_gscope scope, struct varve_gfile *f)
{
    uint32_t n;
    int rc = 0;

    varve_g_start(fs, scope, f);
    if (f->rank == 0) {
        for (n = 0; n < VARVE_G_PATH_MAX && path[n]; n++)
            ;
        if (varve_d_load64_sys(&fs->host->servers) == 0)
            f->late = -ENOTCONN;
        rc = n == VARVE_G_PATH_MAX ? -ENAMETOOLONG : varve_g_take_stream(f, varve_g_place(scope));
        if (rc == 0) {
            unsigned char *to = varve_g_stage(f, 0);
            uint32_t i;

            for (i = 0; i <= n; i++)
                to[i] = (unsigned char)path[i];
            rc = varve_g_call(f, VARVE_G_OPEN, (uint64_t)(uint32_t)flags, n + 1);
            if (rc >= 0) {
                f->file = (uint32_t)rc;
                rc = varve_g_look(f);
            }
            if (rc)
                varve_g_give_stream(f);
        }
    }
    return varve_g_broadcast_open(f, rc);
}

/* The size of the file, as last seen by this group. */
VARVE_D_FN uint64_t varve_gsize(const struct varve_gfile *f)
{
    return f->bytes;
}

/* Closes a file; it is closed with every result. Returns 0; -ENODATA: the file has become shorter since it was
 * mapped, so that bytes that were read may be out of date; -ETIMEDOUT or another error: no server could check
 * this; -EBADF: the host has unregistered the file. Without servers the result is 0, and the host gets the
 * error when it unregisters the file. */
VARVE_D_COLD int varve_gclose(struct varve_gfile *f)
{
    struct varve_g_stream *s = &f->fs->streams[f->stream];
    struct varve_g_team t = varve_g_group(f);
    int rc = 0;

    varve_g_sync(&t);
    if (f->hits + f->misses + f->requests) {
        varve_d_add64_dev(&s->hits, f->hits);
        varve_d_add64_dev(&s->misses, f->misses);
        varve_d_add64_dev(&s->mapped_bytes, f->mapped_bytes);
        varve_d_add64_dev(&s->served_bytes, f->served_bytes);
        varve_d_add64_dev(&s->bypassed_bytes, f->bypassed_bytes);
        varve_d_add64_dev(&s->requests, f->requests);
        varve_d_add64_dev(&s->requested_bytes, f->requested_bytes);
        varve_d_add64_dev(&s->waits_ns, f->waits_ns);
    }
    varve_g_sync(&t);
    if (f->rank == 0) {
        varve_g_window_drop(f, 0);
        varve_g_window_drop(f, 1);
        if (f->windows && !f->late) {
            rc = varve_g_call(f, VARVE_G_STAT, 0, 0);
            /* Mapped files need no servers; without them the host detects the change when it closes the file. */
            if (rc == -ENOTCONN)
                rc = 0;
        }
        varve_g_give_stream(f);
    }
    return (int)(int64_t)varve_g_broadcast(&t, (uint64_t)(int64_t)rc);
}

#endif

#endif
