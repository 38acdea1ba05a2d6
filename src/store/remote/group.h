/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a job tell each other through a shared folder: markers, group records, lives.
 * The layouts are specified in docs/format/group.md; the two change together.
 *
 * All of it lies in the place `group` of a history in a target. Every file is committed there, and holds a
 * checksum, so that what is read is whole or refused. A life of a rank writes under one temporary name of its own: one thread at a time for each
 * rank and history. Reading takes no lock. */
#ifndef VV_STORE_GROUP_H
#define VV_STORE_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "store/target/target.h"

#define VV_GROUP_FOLDER       "group"
#define VV_GROUP_FORMAT       1u
#define VV_GROUP_MARKER_MAGIC "VARVEMK\n"
#define VV_GROUP_RECORD_MAGIC "VARVEGR\n"
#define VV_GROUP_LIFE_MAGIC   "VARVELF\n"
/* Generations that one life of a history may use. */
#define VV_GROUP_LIFE_GENERATIONS (UINT64_C(1) << 32)
#define VV_GROUP_RANKS_MAX        (UINT32_C(1) << 24)

/* The file that one rank has of a version. */
struct vv_group_file {
    uint64_t generation;
    uint64_t file_bytes;
    uint64_t tail_sum; /* of its footer: it covers the tables, and so every byte of the data */
};
_Static_assert(sizeof(struct vv_group_file) == 24, "on disk");

struct vv_group_marker {
    char magic[8];
    uint32_t format;
    uint32_t rank;
    uint32_t ranks;
    uint32_t reserved;
    uint64_t version;
    uint64_t run_id;
    uint64_t history_sum; /* of the history's name */
    struct vv_group_file file;
    uint64_t zero[6];
    uint64_t sum; /* of everything before it */
};
_Static_assert(sizeof(struct vv_group_marker) == 128, "on disk");

/* Followed by one struct vv_group_file for each rank, and the checksum of all that. */
struct vv_group_header {
    char magic[8];
    uint32_t format;
    uint32_t ranks;
    uint64_t version;
    uint64_t run_id;
    uint64_t history_sum;
    uint64_t zero[3];
};
_Static_assert(sizeof(struct vv_group_header) == 64, "on disk");

struct vv_group_life {
    char magic[8];
    uint32_t format;
    uint32_t rank;
    uint64_t run_id;
    uint64_t first_generation;
    uint64_t next_generation; /* the first that a later life may use */
    uint64_t history_sum;
    uint64_t zero;
    uint64_t sum;
};
_Static_assert(sizeof(struct vv_group_life) == 64, "on disk");

/* A version that is complete: which file each rank has of it, all of one run. */
struct vv_group_record {
    uint64_t version, run_id;
    uint32_t ranks;
    struct vv_group_file *file; /* by rank; owned */
};

/* The group folder of one history, as one rank sees it. */
struct vv_group {
    struct vv_target *at;      /* owned; NULL: not open */
    struct vv_target *history; /* the checkpoint files */
    uint32_t rank, ranks;
    uint64_t history_sum;
    uint64_t life_run; /* of the life that this is; 0: none has begun here */
    uint32_t gone;     /* files of that kind that may have to be cleared away */
};

/* Opens the place below that of the history, creating it, and making sure of fresh listings, if asked
 * to. ranks 0: not known. -ENOENT: not there. The target stays open as long. */
VV_WARN_UNUSED int vv_group_open(struct vv_target *target, const char *history, uint32_t rank,
                                 uint32_t ranks, bool create, struct vv_group *ret_group);
/* Accepts one that was never opened, if `at` is NULL. */
void vv_group_close(struct vv_group *group);

void vv_group_record_fini(struct vv_group_record *record);

/* -ENOENT: there is none; -EBADMSG: damaged. */
VV_WARN_UNUSED int vv_group_read_record(const struct vv_group *group, uint64_t version,
                                        uint64_t run_id, struct vv_group_record *ret_record);
VV_WARN_UNUSED int vv_group_read_marker(const struct vv_group *group, uint64_t version,
                                        uint64_t run_id, uint32_t rank,
                                        struct vv_group_marker *ret_marker);
VV_WARN_UNUSED int vv_group_read_life(const struct vv_group *group, struct vv_group_life *ret_life);

/* -ECANCELED: another life of this rank has begun since this one did. Whoever has been overtaken so must
 * not touch the folder any more. */
VV_WARN_UNUSED int vv_group_alive(const struct vv_group *group);

/* When these return 0, what they wrote survives. -ECANCELED: see vv_group_alive; also below. */
VV_WARN_UNUSED int vv_group_write_marker(const struct vv_group *group, uint64_t version,
                                         uint64_t run_id, const struct vv_group_file *file);
VV_WARN_UNUSED int vv_group_write_life(struct vv_group *group, uint64_t run_id,
                                       uint64_t first_generation);
/* The life file of a local folder: this run has found the files there of the generations [first, next). */
VV_WARN_UNUSED int vv_group_write_range(const struct vv_group *group, uint64_t run_id,
                                        uint64_t first_generation, uint64_t next_generation);
/* The file of this rank is going to be removed: takes its marker away, and the record if it names
 * that file, and sees to it that none comes back. run_id 0: not known, as the file is damaged. 0 also if
 * neither was there. */
VV_WARN_UNUSED int vv_group_retract(struct vv_group *group, uint64_t version, uint64_t run_id,
                                    uint64_t generation);
/* Clears away what this rank's retractions have left and nobody needs any more. */
void vv_group_tidy(struct vv_group *group);
/* Takes this rank's marker away, without making that last: the record says all that it said. */
void vv_group_drop_marker(const struct vv_group *group, uint64_t version, uint64_t run_id);

/*
 * Is the version complete in this run? If the record is not there and `sweep` is set, looks for the
 * markers of all ranks and writes the record once they are there.
 *   0         yes
 *   -EAGAIN   not yet
 *   -ECANCELED   the version is complete in a run that came later
 *   -ERANGE   the markers are those of another number of ranks
 */
VV_WARN_UNUSED int vv_group_complete(const struct vv_group *group, uint64_t version,
                                     uint64_t run_id, bool sweep);

enum vv_group_scan {
    VV_GROUP_LOOK,   /* at the records that are there */
    VV_GROUP_DEDUCE, /* and at those that VV_GROUP_WRITE would write; writes nothing */
    /* First writes the records of versions that have the markers of all ranks, and those that are damaged and
     * can be told from the files, and removes what is out of date. */
    VV_GROUP_WRITE
};
/* Calls visit for the newest record of every version that is complete, in order of version, until it
 * returns non-zero, and returns that. Where a record is damaged `error` is set, and there are no files. */
int vv_group_scan(struct vv_group *group, enum vv_group_scan how,
                  int (*visit)(void *user, const struct vv_group_record *record, int error),
                  void *user);

/* ---- checking ---- */

struct vv_group_problem {
    uint64_t version; /* 0 of a life */
    const char *file; /* its name in the group folder */
    const char *what;
    bool repaired;
};

struct vv_group_check {
    bool repair;             /* puts right what can be; -EBUSY: a program has the history open */
    struct vv_target *other; /* the history where there are copies of its files; NULL: nowhere */
    void (*report)(void *user, const struct vv_group_problem *problem);
    void *user;
};

struct vv_group_check_result {
    uint64_t records, markers, problems, repaired;
};

/* Looks at every record, marker and life of a history, and whether the files are there that they speak of,
 * without opening the history. -ENOENT: it has no group folder, that is, was never in a shared folder. */
VV_WARN_UNUSED int vv_group_check(struct vv_target *target, const char *history,
                                  const struct vv_group_check *opts,
                                  struct vv_group_check_result *ret_result);

#endif
