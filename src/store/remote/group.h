/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement of the ranks of a job through a shared folder: markers, group records, lives. The layouts are
 * specified in docs/format/group.md; change both together.
 *
 * All files are in the place `group` of a history in a target. Each is committed and contains a checksum, so that a
 * reader gets it whole or refuses it. A life of a rank writes under one temporary name of its own, so only one thread
 * for each rank and history may write. Reading takes no lock. */
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

/* One rank's file of a version. */
struct vv_group_file {
    uint64_t generation;
    uint64_t file_bytes;
    uint64_t tail_sum; /* in its footer: it covers the tables, and so every byte of the data */
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
    uint32_t ranks; /* at level remote; 0: level complete, or a local folder */
    uint32_t zero;
    uint64_t sum;
};
_Static_assert(sizeof(struct vv_group_life) == 64, "on disk");

/* A version that is complete: the file of each rank, all of one run. */
struct vv_group_record {
    uint64_t version, run_id;
    uint32_t ranks;
    struct vv_group_file *file; /* by rank; owned */
};

/* The group folder of one history, as one rank uses it. */
struct vv_group {
    struct vv_target *at;      /* owned; NULL: not open */
    struct vv_target *history; /* the checkpoint files */
    uint32_t rank, ranks;
    uint64_t history_sum;
    uint64_t life_run; /* run id of this life; 0: none has begun here */
    uint32_t gone;     /* number of `gone` files that may have to be deleted */
    bool no_records;   /* level remote: lives carry the number of ranks */
};

/* Opens the place below that of the history; if `create`, creates it and makes its listings fresh. ranks 0: not
 * known. -ENOENT: it does not exist. The target must outlive it. */
VV_WARN_UNUSED int vv_group_open(struct vv_target *target, const char *history, uint32_t rank,
                                 uint32_t ranks, bool create, struct vv_group *ret_group);
/* Accepts a group that was never opened, if `at` is NULL. */
void vv_group_close(struct vv_group *group);

void vv_group_record_fini(struct vv_group_record *record);

/* -ENOENT: not found; -EBADMSG: damaged. */
VV_WARN_UNUSED int vv_group_read_record(const struct vv_group *group, uint64_t version,
                                        uint64_t run_id, struct vv_group_record *ret_record);
VV_WARN_UNUSED int vv_group_read_marker(const struct vv_group *group, uint64_t version,
                                        uint64_t run_id, uint32_t rank,
                                        struct vv_group_marker *ret_marker);
VV_WARN_UNUSED int vv_group_read_life(const struct vv_group *group, struct vv_group_life *ret_life);

/* -ECANCELED: another life of this rank has begun after this one, which must not touch the folder any
 * more. */
VV_WARN_UNUSED int vv_group_alive(const struct vv_group *group);

/* Durable when these return 0. -ECANCELED: see vv_group_alive; also below. */
VV_WARN_UNUSED int vv_group_write_marker(const struct vv_group *group, uint64_t version,
                                         uint64_t run_id, const struct vv_group_file *file);
VV_WARN_UNUSED int vv_group_write_life(struct vv_group *group, uint64_t run_id,
                                       uint64_t first_generation);
/* The life file of a local folder: this run has found files of the generations [first, next) there. */
VV_WARN_UNUSED int vv_group_write_range(const struct vv_group *group, uint64_t run_id,
                                        uint64_t first_generation, uint64_t next_generation);
/* Call it before the file of this rank is removed. Deletes its marker, and the record if it names that
 * file, and makes sure that none is written again. run_id 0: not known, because the file is damaged. 0
 * also if neither existed. */
VV_WARN_UNUSED int vv_group_retract(struct vv_group *group, uint64_t version, uint64_t run_id,
                                    uint64_t generation);
/* Deletes files of this rank's retractions that are no longer needed. */
void vv_group_tidy(struct vv_group *group);
/* Deletes this rank's marker, not durably: the record has the same information. */
void vv_group_drop_marker(const struct vv_group *group, uint64_t version, uint64_t run_id);

/*
 * Finds out if the version is complete in this run. If there is no record and `sweep` is set, looks for the markers
 * of all ranks, and writes the record if all exist.
 *   0         yes
 *   -EAGAIN   not yet
 *   -ECANCELED   the version is complete in a later run
 *   -ERANGE   the markers are of another number of ranks
 */
VV_WARN_UNUSED int vv_group_complete(const struct vv_group *group, uint64_t version,
                                     uint64_t run_id, bool sweep);

enum vv_group_scan {
    VV_GROUP_LOOK,   /* reads the existing records */
    VV_GROUP_DEDUCE, /* and deduces those that VV_GROUP_WRITE would write; writes nothing */
    /* First writes the records of versions that have the markers of all ranks, rewrites damaged records from the
     * files, and removes outdated ones. */
    VV_GROUP_WRITE
};
/* Calls visit for the newest record of every complete version, in order of version, until it returns non-zero,
 * and returns that. If a record is damaged, `error` is set and `file` is missing. */
int vv_group_scan(struct vv_group *group, enum vv_group_scan how,
                  int (*visit)(void *user, const struct vv_group_record *record, int error),
                  void *user);

/* ---- checking ---- */

struct vv_group_problem {
    uint64_t version; /* 0 for a life */
    const char *file; /* its name in the group folder */
    const char *what;
    bool repaired;
};

struct vv_group_check {
    bool repair;             /* repairs what it can; -EBUSY: a program has the history open */
    struct vv_target *other; /* the history's place with copies of its files; NULL: none */
    void (*report)(void *user, const struct vv_group_problem *problem);
    void *user;
};

struct vv_group_check_result {
    uint64_t records, markers, problems, repaired;
};

/* Checks every record, marker and life of a history, and that the files they name exist, without opening the
 * history. -ENOENT: it has no group folder, so it was never in a shared folder. */
VV_WARN_UNUSED int vv_group_check(struct vv_target *target, const char *history,
                                  const struct vv_group_check *opts,
                                  struct vv_group_check_result *ret_result);

#endif
