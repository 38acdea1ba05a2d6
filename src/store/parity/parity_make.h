/* SPDX-License-Identifier: Apache-2.0 */
/* Making what one process of a set lacks, its parity or its file, from what the others send. No I/O.
 *
 * A file's string is the file from the end of its header on, and then the header: so the data begins with
 * the string. The blocks that are made follow one after the other: the process's parity, or its segments. They are made in
 * windows; for each, ranges of other members' strings or parity are asked for, of which vv_parity_make_next tells. */
#ifndef VV_STORE_PARITY_MAKE_H
#define VV_STORE_PARITY_MAKE_H

#include "store/parity/parity_rules.h"

#define VV_PARITY_MAGIC  "VARVEPY1"
#define VV_PARITY_WINDOW ((uint64_t)1 << 20)

/* What parity is of: the last 4 KiB of data of a parity file. docs/format/parity.md. */
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
/* `bytes` of it, which may end behind the last member. */
bool vv_parity_layout_ok(const struct vv_parity_layout *l, size_t bytes);
static inline size_t vv_parity_layout_bytes(const struct vv_parity_layout *l)
{
    return offsetof(struct vv_parity_layout, file) + l->n * sizeof(l->file[0]);
}
/* Of the parity file's data. */
static inline uint64_t vv_parity_layout_size(const struct vv_parity_layout *l)
{
    return l->k * l->segment + sizeof(*l);
}
/* Unit of its checksums: divides a segment. */
uint32_t vv_parity_layout_chunk(const struct vv_parity_layout *l);

/* A range of another member's. */
struct vv_parity_range {
    uint32_t member;
    bool parity; /* of its parity, not its string */
    uint64_t generation, offset, bytes;
};

struct vv_parity_make {
    struct vv_parity_layout layout;
    uint32_t first; /* the first block that is made: 0, or those of parity */
    uint64_t total, at, bytes,
        window;                  /* to be made; made; in this window, 0: none begun; the longest */
    bool has[2][VV_ERASURE_MAX]; /* members that have their file, their parity */
    struct vv_erasure how;
    uint32_t have[VV_ERASURE_MAX]; /* blocks that the window is made of */
    struct {
        struct vv_parity_range range; /* bytes 0: zeros */
        bool asked;
        void *memory; /* for free(); its data is behind `lead` bytes */
    } source[VV_ERASURE_MAX];
};

/* has[0], has[1]: set by the caller afterwards. */
void vv_parity_make_init(struct vv_parity_make *m, const struct vv_parity_layout *layout,
                         bool parity);
/* A range to be asked for. -EAGAIN: all were; -ENODATA: too little is left of the others' to make it of. */
VV_WARN_UNUSED int vv_parity_make_next(struct vv_parity_make *m, struct vv_parity_range *ret_range);
/* It has come, in memory for free() behind `lead` bytes; is it one that was asked for? Memory is taken then. */
bool vv_parity_make_take(struct vv_parity_make *m, uint32_t member, uint64_t offset, void *memory,
                         size_t bytes);
/* A member has not got what was asked for. */
void vv_parity_make_without(struct vv_parity_make *m, uint32_t member, bool parity);
/* Has all of the window come? */
bool vv_parity_make_ready(const struct vv_parity_make *m);
/* Makes it then, in `dst`, of m->window bytes, and goes on. *ret_bytes: how many at *ret_at. */
VV_WARN_UNUSED int vv_parity_make_window(struct vv_parity_make *m, size_t lead, void *dst,
                                         uint64_t *ret_at, uint64_t *ret_bytes);
static inline bool vv_parity_make_over(const struct vv_parity_make *m)
{
    return m->at == m->total;
}
void vv_parity_make_fini(struct vv_parity_make *m);

#endif
