/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint file: layout and names, and reading and checking a file without a lock. The layout is
 * specified in docs/format/checkpoint-file.md; change both together. */
#ifndef VV_STORE_CKFILE_H
#define VV_STORE_CKFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "store/os.h"
#include "store/store.h"
#include "store/target/target.h"

#define VV_CKFILE_FORMAT       1u
#define VV_CKFILE_HEADER_BYTES 4096u
#define VV_CKFILE_HISTORY_MAX  200u
#define VV_CKFILE_HEADER_MAGIC "VARVECK\n"
#define VV_CKFILE_FOOTER_MAGIC "VARVEFT\n"
#define VV_CKFILE_NAME_MAX     96u

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the formats are little endian");

struct vv_ckfile_header {
    char magic[8];
    uint32_t format;
    uint32_t header_bytes;
    uint64_t version;
    uint64_t generation;
    uint64_t run_id;
    uint64_t size;
    uint32_t rank;
    uint32_t chunk_bytes;
    uint32_t nchunks;
    uint32_t reserved;
    char history[256];
    uint8_t zero[3768];
    uint64_t sum; /* of everything before it */
};
_Static_assert(sizeof(struct vv_ckfile_header) == VV_CKFILE_HEADER_BYTES, "on disk");
_Static_assert(offsetof(struct vv_ckfile_header, sum) == VV_CKFILE_HEADER_BYTES - 8, "on disk");

struct vv_ckfile_footer {
    char magic[8];
    uint32_t format;
    uint32_t rank;
    uint64_t version;
    uint64_t generation;
    uint64_t run_id;
    uint64_t size;
    uint32_t chunk_bytes;
    uint32_t nchunks;
    uint32_t nregions;
    uint32_t reserved;
    uint64_t commit_time_ns; /* CLOCK_REALTIME */
    uint64_t tail_bytes;     /* from the end of the data to the end of the file */
    uint64_t header_sum;
    uint64_t unsynced_boot; /* vv_os_boot at the commit, if it was not synced; 0: it was synced */
    uint64_t zero[3];
    uint64_t tail_sum; /* of the tail up to here */
};
_Static_assert(sizeof(struct vv_ckfile_footer) == 128, "on disk");
_Static_assert(offsetof(struct vv_ckfile_footer, tail_sum) == 120, "on disk");
_Static_assert(sizeof(struct vv_store_region) == 16, "on disk");

/* Identity and layout of a file. */
struct vv_ckfile_id {
    uint64_t version, generation, run_id, size;
    uint32_t rank, chunk_bytes;
};

/* ---- layout ---- */

static inline uint64_t vv_ckfile_tail_offset(uint64_t size)
{
    return VV_CKFILE_HEADER_BYTES + vv_align_up(size, VV_STORE_ALIGN);
}

static inline uint64_t vv_ckfile_tail_bytes(uint32_t nchunks, uint32_t nregions)
{
    return vv_align_up((uint64_t)nregions * sizeof(struct vv_store_region) +
                           (uint64_t)nchunks * sizeof(uint64_t) + sizeof(struct vv_ckfile_footer),
                       VV_STORE_ALIGN);
}

/* Length of the file. */
static inline uint64_t vv_ckfile_bytes(uint64_t size, uint32_t nchunks, uint32_t nregions)
{
    return vv_ckfile_tail_offset(size) + vv_ckfile_tail_bytes(nchunks, nregions);
}

/* Reported for a name that is not a regular file. */
#define VV_CKFILE_NOT_REGULAR "not a regular file: a folder, FIFO, socket or device has its name"

void vv_ckfile_header_fill(struct vv_ckfile_header *header, const struct vv_ckfile_id *id,
                           const char *history);
/* tail: vv_ckfile_tail_bytes() of memory. */
void vv_ckfile_tail_fill(void *tail, const struct vv_ckfile_id *id,
                         const struct vv_store_meta *meta, const uint64_t *sums,
                         uint64_t header_sum, uint64_t commit_time_ns, uint64_t unsynced_boot);

/* ---- names ---- */

enum vv_ckfile_kind { VV_CKFILE_COMMITTED, VV_CKFILE_TEMP };

void vv_ckfile_name(char name[VV_CKFILE_NAME_MAX], enum vv_ckfile_kind kind, uint32_t rank,
                    uint64_t version, uint64_t generation);
/* False: not the name of a checkpoint file in the exact form that vv_ckfile_name writes. */
bool vv_ckfile_parse_name(const char *name, enum vv_ckfile_kind *ret_kind, uint32_t *ret_rank,
                          uint64_t *ret_version, uint64_t *ret_generation);

/* ---- reading ---- */

struct vv_ckfile_info {
    struct vv_ckfile_id id;
    uint32_t nchunks, nregions;
    uint64_t commit_time_ns;
    uint64_t unsynced_boot;
    char history[256];               /* if the header was read; "" otherwise */
    struct vv_store_region *regions; /* owned */
    uint64_t *sums;                  /* owned; per chunk */
};

void vv_ckfile_info_fini(struct vv_ckfile_info *info);

/* Reads and checks the tail of an open file (and the header, if with_header), not the data. fd may be
 * open for direct I/O. -EBADMSG: the file is incomplete or damaged; err says how. */
VV_WARN_UNUSED int vv_ckfile_read(const struct vv_os *os, int fd, bool with_header, char *err,
                                  size_t err_bytes, struct vv_ckfile_info *ret_info);
/* The same for a target's file. */
VV_WARN_UNUSED int vv_ckfile_read_from(struct vv_target_file *file, bool with_header, char *err,
                                       size_t err_bytes, struct vv_ckfile_info *ret_info);

/* True if n bytes of data from byte `at` on, where a chunk begins, match the checksums of their chunks. */
bool vv_ckfile_chunks_ok(const struct vv_ckfile_info *info, const char *mem, uint64_t at,
                         uint64_t n);

/* One fault of a file. */
struct vv_ckfile_problem {
    uint64_t version; /* from the file's name if the contents do not tell it */
    int64_t region;   /* id; -1: not in one region */
    int64_t chunk;    /* -1: not in one chunk */
    const char *what;
};

/* Reads a whole file and reports its faults, as far as they can be found. 0: none; -EBADMSG: at least
 * one was reported; any other error: the file could not be read. A damaged chunk is reported once for
 * every region that has bytes in it. ret_info, if not NULL, is filled on 0. */
VV_WARN_UNUSED int vv_ckfile_verify(struct vv_target *target, const char *path,
                                    void (*report)(void *user, const struct vv_ckfile_problem *p),
                                    void *user, struct vv_ckfile_info *ret_info);

/* ---- a folder, without a lock ---- */

struct vv_files_found {
    const char *history;
    const char *path; /* relative to the folder */
    enum vv_ckfile_kind kind;
    uint32_t rank;
    uint64_t version, generation, file_bytes;
    int status;                        /* result of reading tail and header: 0, -EBADMSG, ... */
    const char *error;                 /* description, if status is not 0 */
    const struct vv_ckfile_info *info; /* if status is 0 */
};

/* place: as for vv_target_open. Calls visit for every checkpoint file of one history, or of all (NULL), in order of
 * history, rank and version, until it returns non-zero, and returns that. It reads the present state; a file that is
 * removed meanwhile is left out. -ENOENT: no such folder or history. */
int vv_files_scan(const struct vv_os *os, const char *place, const char *history,
                  int (*visit)(void *user, const struct vv_files_found *found), void *user);

/* True if vv_files_open accepts the name. */
bool vv_files_name_ok(const char *history);

#endif
