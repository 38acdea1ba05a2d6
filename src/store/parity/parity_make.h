/* SPDX-License-Identifier: Apache-2.0 */
/* Makes what one process of a set has lost, its parity or its file, from data that the others send. No I/O.
 *
 * The string of a file is the file from the end of its header on, followed by the header: so it begins with the data.
 * The blocks are made one after the other: the process's parity, or its segments. This is done in windows; for each,
 * vv_parity_make_next names the ranges of other members' strings or parity that are needed. */
#ifndef VV_STORE_PARITY_MAKE_H
#define VV_STORE_PARITY_MAKE_H

#include "store/parity/parity_rules.h"

#define VV_PARITY_MAGIC  "VARVEPY1"
#define VV_PARITY_WINDOW ((uint64_t)1 << 20)

/* The files that a parity file is made from: the last 4 KiB of its data. docs/format/parity.md. */
struct vv_parity_layout {
    char magic[8];
    uint32_t format, n, k, me;
    uint64_t version, sum, segment, zero;
    struct vv_parity_file file[VV_ERASURE_MAX];
    uint8_t fill[4096 - 56 - 32 * VV_ERASURE_MAX];
};
_Static_assert(sizeof(struct vv_parity_file) == 32, "on disk");
_Static_assert(sizeof(struct vv_parity_layout) == 4096, "on disk");

void vv_parity_layout_fill(struct vv_parity_layout *l, const struct vv_parity_version *v);
/* Checks `bytes` of it, which may end behind the last member. */
bool vv_parity_layout_ok(const struct vv_parity_layout *l, size_t bytes);
static inline size_t vv_parity_layout_bytes(const struct vv_parity_layout *l)
{
    return offsetof(struct vv_parity_layout, file) + l->n * sizeof(l->file[0]);
}
/* Size of the parity file's data. */
static inline uint64_t vv_parity_layout_size(const struct vv_parity_layout *l)
{
    return l->k * l->segment + sizeof(*l);
}
/* Unit of its checksums: divides a segment. */
uint32_t vv_parity_layout_chunk(const struct vv_parity_layout *l);

/* A range of another member's string or parity. */
struct vv_parity_range {
    uint32_t member;
    bool parity; /* of its parity, not of its string */
    uint64_t generation, offset, bytes;
};

struct vv_parity_make {
    struct vv_parity_layout layout;
    uint32_t first; /* number of the first block: 0, or the first of parity */
    /* Bytes to make; bytes made; bytes of this window (0: none begun); longest window. */
    uint64_t total, at, bytes, window;
    bool has[2][VV_ERASURE_MAX]; /* members that have their file, their parity */
    struct vv_erasure how;
    uint32_t have[VV_ERASURE_MAX]; /* blocks from which the window is made */
    struct {
        struct vv_parity_range range; /* bytes 0: zeros */
        bool asked;
        void *memory; /* for free(); its data begins after `lead` bytes */
    } source[VV_ERASURE_MAX];
};

/* The caller sets has[0] and has[1] afterwards. */
void vv_parity_make_init(struct vv_parity_make *m, const struct vv_parity_layout *layout,
                         bool parity);
/* The next range to request. -EAGAIN: all were requested; -ENODATA: the others have too little left. */
VV_WARN_UNUSED int vv_parity_make_next(struct vv_parity_make *m, struct vv_parity_range *ret_range);
/* Takes a range that has come, in memory for free() after `lead` bytes. False: it was not requested, and the
 * memory stays the caller's. */
bool vv_parity_make_take(struct vv_parity_make *m, uint32_t member, uint64_t offset, void *memory,
                         size_t bytes);
/* A member does not have the range that was requested. */
void vv_parity_make_without(struct vv_parity_make *m, uint32_t member, bool parity);
/* True if all ranges of the window have come. */
bool vv_parity_make_ready(const struct vv_parity_make *m);
/* Then makes the window in `dst`, of m->window bytes, and advances. It is *ret_bytes long, at *ret_at. */
VV_WARN_UNUSED int vv_parity_make_window(struct vv_parity_make *m, size_t lead, void *dst,
                                         uint64_t *ret_at, uint64_t *ret_bytes);
static inline bool vv_parity_make_over(const struct vv_parity_make *m)
{
    return m->at == m->total;
}
void vv_parity_make_fini(struct vv_parity_make *m);

#endif
