/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by group.c (files, one version), group_scan.c (a whole folder) and group_check.c. */
#ifndef VV_STORE_GROUP_PRIVATE_H
#define VV_STORE_GROUP_PRIVATE_H

#include "store/remote/group.h"

enum { VVI_GROUP_NAME_MAX = 80 };

enum vvi_group_kind {
    VVI_GROUP_OTHER, /* to be ignored */
    VVI_GROUP_MARKER,
    VVI_GROUP_RECORD,
    VVI_GROUP_GONE,
    VVI_GROUP_TEMP
};

/* A parsed name of the group folder. `version` and `run_id` are 0 if it has none. */
struct vvi_group_name {
    enum vvi_group_kind kind;
    uint64_t version, run_id;
    uint32_t rank; /* 0 for a record */
};

void vvi_group_format(const struct vvi_group_name *n, char name[VVI_GROUP_NAME_MAX]);
struct vvi_group_name vvi_group_parse(const char *name);

/* Reads the markers of all ranks, which give the record of that version and run. -EAGAIN: not all exist. */
struct vvi_group_list;
VV_WARN_UNUSED int vvi_group_gather(const struct vv_group *group, const struct vvi_group_list *list,
                                    uint64_t version, uint64_t run_id,
                                    struct vv_group_record *ret_record);
/* Writes a record again from the files of its run. -EBADMSG: not every rank has one. */
VV_WARN_UNUSED int vvi_group_rebuild(const struct vv_group *group, uint64_t version,
                                     uint64_t run_id);
VV_WARN_UNUSED int vvi_group_write_record(const struct vv_group *group,
                                          const struct vv_group_record *record);
/* Returns 0 also if the file does not exist. */
int vvi_group_unlink(const struct vv_group *group, enum vvi_group_kind kind, uint64_t version,
                     uint64_t run_id, uint32_t rank);

/* All valid names of a folder, by version, run, kind and rank. */
struct vvi_group_list {
    struct vvi_group_name *v; /* owned */
    size_t n, room;
};

VV_WARN_UNUSED int vvi_group_list(const struct vv_group *group, struct vvi_group_list *ret_list);
/* The names of one version and run: [*ret_first, *ret_end). */
void vvi_group_find(const struct vvi_group_list *list, uint64_t version, uint64_t run_id,
                    size_t *ret_first, size_t *ret_end);
/* Number of names of a kind. */
size_t vvi_group_count(const struct vvi_group_list *list, enum vvi_group_kind kind,
                       uint64_t version, uint64_t run_id);

#endif
