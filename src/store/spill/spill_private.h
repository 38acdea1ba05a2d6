/* SPDX-License-Identifier: Apache-2.0 */
/* Between spill.c and spill_record.c: a spill that has a file for each record. */
#ifndef VV_STORE_SPILL_PRIVATE_H
#define VV_STORE_SPILL_PRIVATE_H

#include "store/store_private.h"

struct vvi_records;
struct vvi_record; /* one record with its file */

/* Removes files that killed processes left in the folder. -EOPNOTSUPP: the file system cannot punch holes. */
VV_WARN_UNUSED int vvi_records_new(const struct vv_store_opts *opts, int dirfd, bool direct,
                                   uint32_t pages, struct vvi_records **ret_records);
/* Removes all files. Accepts NULL. */
void vvi_records_free(struct vvi_records *records);

/* Assigns the pages to the chunks of the request. The record's file stays open until it is unpinned. */
VV_WARN_UNUSED int vvi_records_write(struct vvi_records *records, const struct vv_store_io *io,
                                     struct vvi_record **ret_record);
/* -EINVAL: these pages do not belong to these chunks. */
VV_WARN_UNUSED int vvi_records_read(struct vvi_records *records, const struct vv_store_io *io,
                                    struct vvi_record **ret_record);
void vvi_records_unpin(struct vvi_records *records, struct vvi_record *record);
int vvi_record_fd(const struct vvi_record *record);

#endif
