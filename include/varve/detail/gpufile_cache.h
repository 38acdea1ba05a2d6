/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU files, internal: the page cache on the GPU. Included by varve/gpufile_device.h.
 *
 * A team handles one page at a time. It is a warp, or a whole block if pages are large. Its first thread
 * does the work of a single thread; all threads copy.
 *
 * Invariants. A frame that is linked into the table is BUSY or VALID, and its key does not change while
 * it is pinned. A group links a frame only when it has the bytes to fill it, so that a wait for a BUSY
 * frame is a wait for a copy, never for a server. Pages of a file that is not writable may be filled
 * before they are linked, which makes them VALID at once: a warp does this with one page for each lane.
 * One compare and swap evicts a frame; it fails if the frame is pinned. The lists of streams only say
 * which frames to try. A lookup takes no lock: links may change while it follows them. It then either pins
 * the right frame, which the key confirms, or finds nothing. A page that was not found is searched once
 * more under the bucket's lock before a frame is linked for it.
 */
#ifndef VARVE_GPUFILE_CACHE_H
#define VARVE_GPUFILE_CACHE_H

#include <varve/detail/device_dual.h>
#include <varve/detail/gpufile_layout.h>

#ifdef VARVE_D_CODE

#ifdef __CUDACC__
#define VARVE_G_UNROLL _Pragma("unroll")
#else
#define VARVE_G_UNROLL
#endif

/* ---- teams ---- */

struct varve_g_team {
    uint32_t rank, size;
    uint32_t block; /* 1: the whole block; 0: a warp */
};

VARVE_D_FN void varve_g_sync(const struct varve_g_team *t)
{
    if (t->block)
        varve_d_sync_block();
    else
        varve_d_sync_warp();
}

/* Returns on every thread the value that the first one passes. */
VARVE_D_FN uint64_t varve_g_broadcast(const struct varve_g_team *t, uint64_t v)
{
    VARVE_D_SHARED(uint64_t, slot);

    if (!t->block)
        return varve_d_shfl64_warp(v, 0);
    if (t->rank == 0)
        *slot = v;
    varve_d_sync_block();
    v = *slot;
    varve_d_sync_block();
    return v;
}

/* ---- copying ---- */

enum { VARVE_G_DEPTH = 8 }; /* loads of 16 bytes that a thread has in flight */

/* Copies n pieces of 16 bytes from src to a, and pieces [lo, hi) of them to the start of b as well; a or b
 * may be NULL. Called once for a page, and out of line, so that its registers do not burden the callers. */
VARVE_D_COLD void varve_g_pull(uint32_t rank, uint32_t size, unsigned char *a, unsigned char *b,
                               uint32_t lo, uint32_t hi, const unsigned char *src, uint32_t n)
{
    uint32_t i = rank, k;

    for (; i + (VARVE_G_DEPTH - 1) * size < n; i += VARVE_G_DEPTH * size) {
        varve_d_v16 v[VARVE_G_DEPTH];

        VARVE_G_UNROLL
        for (k = 0; k < VARVE_G_DEPTH; k++)
            v[k] = varve_d_load16(src + (size_t)16 * (i + k * size));
        if (a) {
            VARVE_G_UNROLL
            for (k = 0; k < VARVE_G_DEPTH; k++)
                varve_d_store16(a + (size_t)16 * (i + k * size), v[k]);
        }
        if (b) {
            VARVE_G_UNROLL
            for (k = 0; k < VARVE_G_DEPTH; k++)
                if (i + k * size >= lo && i + k * size < hi)
                    varve_d_store16(b + (size_t)16 * (i + k * size - lo), v[k]);
        }
    }
    for (; i < n; i += size) {
        varve_d_v16 v = varve_d_load16(src + (size_t)16 * i);

        if (a)
            varve_d_store16(a + (size_t)16 * i, v);
        if (b && i >= lo && i < hi)
            varve_d_store16(b + (size_t)16 * (i - lo), v);
    }
}

/* Copies bytes of any alignment, in the widest words that both sides allow. */
VARVE_D_COLD void varve_g_copy_any(uint32_t rank, uint32_t size, unsigned char *dst,
                                   const unsigned char *src, uint64_t bytes)
{
    uint64_t apart = (uint64_t)(uintptr_t)dst ^ (uint64_t)(uintptr_t)src, head, i;

    if (apart % 16 == 0) {
        head = (16 - (uint64_t)(uintptr_t)dst % 16) % 16;
        if (head > bytes)
            head = bytes;
        for (i = rank; i < head; i += size)
            dst[i] = src[i];
        varve_g_pull(rank, size, dst + head, NULL, 0, 0, src + head,
                     (uint32_t)((bytes - head) / 16));
        for (i = head + (bytes - head) / 16 * 16 + rank; i < bytes; i += size)
            dst[i] = src[i];
    } else if ((apart | (uint64_t)(uintptr_t)dst) % 4 == 0) {
        for (i = rank; i < bytes / 4; i += size)
            ((uint32_t *)dst)[i] = ((const uint32_t *)src)[i];
        for (i = bytes / 4 * 4 + rank; i < bytes; i += size)
            dst[i] = src[i];
    } else {
        for (i = rank; i < bytes; i += size)
            dst[i] = src[i];
    }
}

VARVE_D_FN void varve_g_copy(const struct varve_g_team *t, unsigned char *dst,
                             const unsigned char *src, uint64_t bytes)
{
    if (((uintptr_t)dst | (uintptr_t)src | bytes) % 16 == 0)
        varve_g_pull(t->rank, t->size, dst, NULL, 0, 0, src, (uint32_t)(bytes / 16));
    else
        varve_g_copy_any(t->rank, t->size, dst, src, bytes);
}

/* Copies from the caller's memory, which may be block memory, to memory that the processor reads. */
VARVE_D_COLD void varve_g_push(uint32_t rank, uint32_t size, unsigned char *dst,
                               const unsigned char *src, uint64_t bytes)
{
    uint64_t i, n = ((uintptr_t)dst | (uintptr_t)src) % 16 == 0 ? bytes / 16 : 0;

    for (i = rank; i < n; i += size)
        varve_d_store16(dst + 16 * i, *(const varve_d_v16 *)(src + 16 * i));
    for (i = 16 * n + rank; i < bytes; i += size)
        dst[i] = src[i];
}

/* ---- the table ---- */

/* The file enters both halves: a product carries upwards only, and the lowest bits of the hash, which tables
 * use, come from bits 17 and 32 upwards. */
VARVE_D_FN uint32_t varve_g_hash(uint32_t file, uint64_t page)
{
    uint64_t h = (page ^ ((uint64_t)file << 32 | file)) * UINT64_C(0x9e3779b97f4a7c15);

    return (uint32_t)(h >> 32 ^ h >> 17);
}

VARVE_D_FN int varve_g_try_lock(uint32_t *lock)
{
    return varve_d_cas32_acquire_dev(lock, 0, 1) == 0;
}

/* Called by one thread of a warp. Lanes that lock at the same time must try, and vote on trying again: a lane
 * that waited here for another lane could block that lane for ever. */
VARVE_D_FN void varve_g_lock(uint32_t *lock)
{
    while (!varve_g_try_lock(lock))
        varve_d_pause(40);
}

VARVE_D_FN void varve_g_unlock(uint32_t *lock)
{
    varve_d_release32_dev(lock, 0);
}

VARVE_D_FN int varve_g_is(const struct varve_g_frame *fr, uint32_t file, uint64_t page)
{
    return varve_d_load64_dev(&fr->page) == page && varve_d_load32_dev(&fr->file) == file;
}

VARVE_D_FN void varve_g_unpin(const struct varve_gfs *fs, uint32_t frame)
{
    varve_d_add32_release_dev(&fs->frames[frame].word, (uint32_t) - (int32_t)VARVE_G_PIN);
}

/* Pins and returns the frame of a page, BUSY or VALID. VARVE_G_NONE may be wrong, if links changed or the
 * chain is long: varve_g_link then finds the frame. One thread. */
VARVE_D_FN uint32_t varve_g_find(const struct varve_gfs *fs, uint32_t file, uint64_t page)
{
    uint32_t f =
        varve_d_load32_dev(&fs->buckets[varve_g_hash(file, page) & (fs->n_buckets - 1)].head);
    int steps;

    for (steps = 0; f != VARVE_G_NONE && steps < 64; steps++) {
        struct varve_g_frame *fr = &fs->frames[f];

        if (varve_g_is(fr, file, page)) {
            uint32_t old = varve_d_add32_acquire_dev(&fr->word, VARVE_G_PIN);

            /* Check the key again: the frame may have been reused before it was pinned. */
            if ((old & VARVE_G_STATE) != VARVE_G_FREE && varve_g_is(fr, file, page))
                return f;
            varve_g_unpin(fs, f);
        }
        f = varve_d_load32_dev(&fr->next);
    }
    return VARVE_G_NONE;
}

/* Takes a frame out of its chain, if it is in one. The bucket is locked. */
VARVE_D_FN void varve_g_unlink_locked(const struct varve_gfs *fs, struct varve_g_bucket *b,
                                      uint32_t frame)
{
    struct varve_g_frame *fr = &fs->frames[frame];
    uint32_t *at = &b->head, f;

    if (!fr->linked)
        return;
    while ((f = varve_d_load32_dev(at)) != frame)
        at = &fs->frames[f].next;
    varve_d_store32_dev(at, varve_d_load32_dev(&fr->next));
    fr->linked = 0;
    /* Pairs with the acquire in varve_g_bucket_of, which takes no lock for a frame without a key: a thread
     * that sees no key may link the frame elsewhere. */
    varve_d_release32_dev(&fr->file, VARVE_G_NONE);
}

/* Claims a frame that is not pinned. True: it is now FREE, and may still have a key. */
VARVE_D_FN int varve_g_claim(const struct varve_gfs *fs, uint32_t frame)
{
    uint32_t *at = &fs->frames[frame].word;
    uint32_t word = varve_d_cas32_acquire_dev(at, VARVE_G_VALID, VARVE_G_FREE);

    return word == VARVE_G_VALID ||
           (word == VARVE_G_FAILED &&
            varve_d_cas32_acquire_dev(at, VARVE_G_FAILED, VARVE_G_FREE) == VARVE_G_FAILED);
}

/* The bucket for the key of a claimed frame; NULL: it has no key. */
VARVE_D_FN struct varve_g_bucket *varve_g_bucket_of(const struct varve_gfs *fs, uint32_t frame)
{
    struct varve_g_frame *fr = &fs->frames[frame];
    uint32_t file = varve_d_acquire32_dev(&fr->file);

    if (file == VARVE_G_NONE)
        return NULL;
    return &fs->buckets[varve_g_hash(file, varve_d_load64_dev(&fr->page)) & (fs->n_buckets - 1)];
}

/* Removes the key of a claimed frame. One thread. */
VARVE_D_COLD void varve_g_clear(const struct varve_gfs *fs, uint32_t frame)
{
    struct varve_g_bucket *b = varve_g_bucket_of(fs, frame);

    if (!b)
        return;
    varve_g_lock(&b->lock);
    varve_g_unlink_locked(fs, b, frame);
    varve_g_unlock(&b->lock);
}

/* The frame of a page, not pinned, or VARVE_G_NONE. The bucket is locked. */
VARVE_D_FN uint32_t varve_g_find_locked(const struct varve_gfs *fs, const struct varve_g_bucket *b,
                                        uint32_t file, uint64_t page)
{
    uint32_t f = varve_d_load32_dev(&b->head);

    while (f != VARVE_G_NONE && !varve_g_is(&fs->frames[f], file, page))
        f = varve_d_load32_dev(&fs->frames[f].next);
    return f;
}

/* Sets the key of a FREE frame to the page, and puts it into the chain. The bucket is locked. */
VARVE_D_FN void varve_g_link_locked(const struct varve_gfs *fs, struct varve_g_bucket *b,
                                    uint32_t frame, uint32_t file, uint64_t page)
{
    struct varve_g_frame *fr = &fs->frames[frame];

    varve_d_store64_dev(&fr->page, page);
    varve_d_store32_dev(&fr->file, file);
    fr->linked = 1;
    varve_d_store32_dev(&fr->next, varve_d_load32_dev(&b->head));
}

/* Links a FREE frame for the page, BUSY and pinned, and returns it. If another frame is already linked, that
 * one is pinned and returned, BUSY or VALID; or VARVE_G_NONE if it is just being evicted. In both of these
 * cases the given frame becomes VALID and is not linked. One thread. */
VARVE_D_COLD uint32_t varve_g_link(const struct varve_gfs *fs, uint32_t frame, uint32_t file,
                                   uint64_t page)
{
    struct varve_g_bucket *b = &fs->buckets[varve_g_hash(file, page) & (fs->n_buckets - 1)];
    struct varve_g_frame *fr = &fs->frames[frame];
    uint32_t f;

    varve_g_lock(&b->lock);
    f = varve_g_find_locked(fs, b, file, page);
    if (f == VARVE_G_NONE) {
        varve_g_link_locked(fs, b, frame, file, page);
        /* Pairs with the pin in varve_g_find: a thread that sees it BUSY sees its key. */
        varve_d_add32_release_dev(&fr->word, VARVE_G_BUSY + VARVE_G_PIN);
        varve_d_store32_dev(&b->head, frame);
        varve_g_unlock(&b->lock);
        return frame;
    }
    /* The thread that claimed it needs the bucket's lock to unlink it, so its key is valid here. */
    if ((varve_d_add32_acquire_dev(&fs->frames[f].word, VARVE_G_PIN) & VARVE_G_STATE) ==
        VARVE_G_FREE) {
        varve_g_unpin(fs, f);
        f = VARVE_G_NONE;
    }
    varve_g_unlock(&b->lock);
    varve_d_add32_release_dev(&fr->word, VARVE_G_VALID);
    return f;
}

/* Links FREE frames, one of each lane or VARVE_G_NONE, that already have the bytes of their pages: VALID, not
 * pinned. If another frame is already linked for a page, the frame becomes VALID and is not linked. Called by
 * all lanes. */
VARVE_D_COLD void varve_g_link_warp(const struct varve_gfs *fs, uint32_t frame, uint32_t file,
                                    uint64_t page)
{
    struct varve_g_bucket *b = &fs->buckets[varve_g_hash(file, page) & (fs->n_buckets - 1)];
    int left = frame != VARVE_G_NONE;

    do {
        if (left && varve_g_try_lock(&b->lock)) {
            if (varve_g_find_locked(fs, b, file, page) == VARVE_G_NONE) {
                varve_g_link_locked(fs, b, frame, file, page);
                varve_d_store32_dev(&b->head, frame);
            }
            /* Pairs with the pin in varve_g_find, and with the next lock of the bucket: a thread that sees
             * the frame VALID sees its key and its bytes. Until then it is FREE, and skipped. */
            varve_d_release_all_dev();
            varve_d_add32_late_dev(&fs->frames[frame].word, VARVE_G_VALID);
            varve_d_store32_late_dev(&b->lock, 0);
            left = 0;
        }
    } while (varve_d_ballot_warp(left));
}

/* Removes the page from the table; threads that have it pinned keep it. One thread. */
VARVE_D_COLD void varve_g_forget(const struct varve_gfs *fs, uint32_t file, uint64_t page)
{
    struct varve_g_bucket *b = &fs->buckets[varve_g_hash(file, page) & (fs->n_buckets - 1)];
    uint32_t f;

    varve_g_lock(&b->lock);
    f = varve_g_find_locked(fs, b, file, page);
    if (f != VARVE_G_NONE)
        varve_g_unlink_locked(fs, b, f);
    varve_g_unlock(&b->lock);
}

/* ---- frames to fill ----
 * Frames come in extents, which belong to streams. A stream takes unused extents while there are any, and
 * then reuses its own in a circle, the least recently taken frame first. A stream that has less than its
 * share takes extents from streams that have more, or that are not in use. */

/* Takes the least recently used extent of another stream. The caller holds its own stream's lock, and only
 * tries the locks of others. */
VARVE_D_COLD uint32_t varve_g_steal(const struct varve_gfs *fs, uint32_t me, uint32_t share)
{
    uint32_t i, e, cur, have, at = varve_g_hash(me, varve_d_now_ns());

    for (i = 0; i < 16 || (share <= 1 && i < 4 * fs->n_streams); i++) {
        uint32_t v = (at + i) % fs->n_streams;
        struct varve_g_stream *s = &fs->streams[v];
        uint32_t least = varve_d_load32_dev(&s->taken) ? (share > 1 ? share : 1) : 0;

        if (v == me || varve_d_load32_dev(&s->extents) <= least ||
            varve_d_cas32_dev(&s->lock, 0, 1) != 0)
            continue;
        e = VARVE_G_NONE;
        have = varve_d_load32_dev(&s->extents);
        if (have > least) {
            cur = (uint32_t)(varve_d_load64_dev(&s->cursor) >> 32);
            e = fs->extent_next[cur];
            if (e == cur)
                varve_d_store64_dev(&s->cursor, (uint64_t)VARVE_G_NONE << 32);
            else
                fs->extent_next[cur] = fs->extent_next[e];
            varve_d_store32_dev(&s->extents, have - 1);
        }
        varve_g_unlock(&s->lock);
        if (e != VARVE_G_NONE)
            return e;
    }
    return VARVE_G_NONE;
}

/* Inserts an extent after `cur`, the extent in use, if the stream has one. The stream is locked. */
VARVE_D_FN void varve_g_add_extent(const struct varve_gfs *fs, struct varve_g_stream *s,
                                   uint32_t cur, uint32_t e)
{
    uint32_t have = varve_d_load32_dev(&s->extents);

    if (have) {
        fs->extent_next[e] = fs->extent_next[cur];
        fs->extent_next[cur] = e;
    } else {
        fs->extent_next[e] = e;
    }
    varve_d_store32_dev(&s->extents, have + 1);
}

/* The extent after `cur` in the stream. The stream is locked. */
VARVE_D_COLD uint32_t varve_g_next_extent(const struct varve_gfs *fs, uint32_t me, uint32_t cur)
{
    struct varve_g_stream *s = &fs->streams[me];
    uint32_t active = varve_d_load32_dev(&fs->shared->active), e = VARVE_G_NONE;
    uint32_t have = varve_d_load32_dev(&s->extents), share = fs->n_extents / (active ? active : 1);

    if (varve_d_load32_dev(&fs->shared->extents) < fs->n_extents) {
        e = varve_d_add32_dev(&fs->shared->extents, 1);
        if (e >= fs->n_extents)
            e = VARVE_G_NONE;
    }
    if (e == VARVE_G_NONE && have < share)
        e = varve_g_steal(fs, me, have ? share : 0);
    if (e == VARVE_G_NONE)
        return have ? fs->extent_next[cur] : VARVE_G_NONE;
    varve_g_add_extent(fs, s, cur, e);
    return e;
}

/* For a stream whose frames are all pinned: takes an extent beyond its share, any of another stream except its
 * last one. */
VARVE_D_COLD void varve_g_take_more(const struct varve_gfs *fs, uint32_t me)
{
    struct varve_g_stream *s = &fs->streams[me];
    uint32_t cur, e;

    if (fs->replace)
        return;
    varve_g_lock(&s->lock);
    cur = (uint32_t)(varve_d_load64_dev(&s->cursor) >> 32);
    e = varve_g_steal(fs, me, 1);
    if (e != VARVE_G_NONE) {
        varve_g_add_extent(fs, s, cur, e);
        varve_d_store64_dev(&s->cursor, (uint64_t)e << 32);
    }
    varve_g_unlock(&s->lock);
}

/* Claims and returns a frame of the stream. VARVE_G_NONE: all that were tried are pinned. Any lanes at once. */
VARVE_D_FN uint32_t varve_g_take_own(const struct varve_gfs *fs, uint32_t stream)
{
    struct varve_g_stream *s = &fs->streams[stream];
    uint32_t tries = 0, waits = 0, limit = 4 * fs->extent_frames + 16;

    while (tries++ < limit && waits < 100000) {
        uint64_t c = varve_d_add64_dev(&s->cursor, 1);
        uint32_t extent = (uint32_t)(c >> 32), at = (uint32_t)c;

        if (extent != VARVE_G_NONE && at < fs->extent_frames) {
            if (varve_g_claim(fs, extent * fs->extent_frames + at))
                return extent * fs->extent_frames + at;
            continue;
        }
        if (varve_d_cas32_dev(&s->lock, 0, 1) != 0) {
            varve_d_pause(100); /* another warp of the block is about to take an extent */
            waits++;
            tries--;
            continue;
        }
        c = varve_d_load64_dev(&s->cursor);
        extent = (uint32_t)(c >> 32);
        if (extent == VARVE_G_NONE || (uint32_t)c >= fs->extent_frames) {
            extent = varve_g_next_extent(fs, stream, extent);
            varve_d_store64_dev(&s->cursor, (uint64_t)extent << 32);
        }
        varve_g_unlock(&s->lock);
    }
    return VARVE_G_NONE;
}

/* The same with one queue of all frames, under one lock. */
VARVE_D_FN uint32_t varve_g_take_global(const struct varve_gfs *fs)
{
    uint32_t f = VARVE_G_NONE, tries;

    varve_g_lock(&fs->shared->queue_lock);
    for (tries = 0; tries < 64 && f == VARVE_G_NONE; tries++) {
        uint32_t at = fs->shared->queue_next;

        fs->shared->queue_next = at + 1 == fs->n_frames ? 0 : at + 1;
        if (varve_g_claim(fs, at))
            f = at;
    }
    if (f != VARVE_G_NONE)
        varve_g_clear(fs, f);
    varve_g_unlock(&fs->shared->queue_lock);
    return f;
}

/* Returns a FREE frame without a key, or VARVE_G_NONE. One thread. */
VARVE_D_COLD uint32_t varve_g_take(const struct varve_gfs *fs, uint32_t stream)
{
    uint32_t frame;

    if (fs->replace)
        return varve_g_take_global(fs);
    frame = varve_g_take_own(fs, stream);
    if (frame != VARVE_G_NONE)
        varve_g_clear(fs, frame);
    return frame;
}

/* The same for each lane with `want`. Called by all lanes; each stream has its own queue. */
VARVE_D_COLD uint32_t varve_g_take_warp(const struct varve_gfs *fs, uint32_t stream, int want)
{
    uint32_t frame = want ? varve_g_take_own(fs, stream) : VARVE_G_NONE;
    struct varve_g_bucket *b = frame != VARVE_G_NONE ? varve_g_bucket_of(fs, frame) : NULL;

    while (varve_d_ballot_warp(b != NULL)) {
        if (b && varve_g_try_lock(&b->lock)) {
            varve_g_unlink_locked(fs, b, frame);
            varve_g_unlock(&b->lock);
            b = NULL;
        }
    }
    return frame;
}

#endif

#endif
