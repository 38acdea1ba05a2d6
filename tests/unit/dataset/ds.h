/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the dataset cache: files whose bytes follow from path and generation. */
#ifndef DS_H
#define DS_H

#include "dataset/dataset.h"
#include "t.h"

#define DS_KIB UINT64_C(1024)

/* The n-th generation of a path, of this size. */
struct vv_dataset_gen ds_gen(unsigned n, uint64_t size);

struct vv_dataset *ds_open(const char *folder, uint64_t capacity, const struct vv_os *os);

/* Stores a file. Returns the result of begin, write or commit. */
int ds_put_want(struct vv_dataset *d, const struct vv_dataset_want *want);
int ds_put(struct vv_dataset *d, const char *path, unsigned n, uint64_t size);

/* True if a descriptor has exactly the bytes of this generation. */
bool ds_is(int fd, const char *path, const struct vv_dataset_gen *gen);

/* Gets a file and compares every byte. Returns the result of get. */
int ds_check(struct vv_dataset *d, const char *path);

/* Bytes of content files in a folder, in blocks; ret_files: their number. */
uint64_t ds_on_disk(const char *folder, unsigned *ret_files);

/* The path of the only content file of this size in a folder; lives until the next call. */
const char *ds_file_of(const char *folder, uint64_t size);

/* Changes one bit, `at` bytes from the beginning, or from the end if negative. */
void ds_flip(const char *file, long at);

struct vv_dataset_stats ds_stats(struct vv_dataset *d);

#endif
