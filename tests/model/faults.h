/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of the two folders that the library model gives the library, "near" and "far": an OS table
 * over that of fault_os.h which distinguishes them, and whose state survives the process.
 */
#ifndef TESTS_MODEL_FAULTS_H
#define TESTS_MODEL_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "store/os.h"

enum { FAULTS_NEAR = 1, FAULTS_FAR = 2 };
/* FAULTS_FOLDER: the sync of a folder. */
enum faults_once {
    FAULTS_FSYNC = 1,
    FAULTS_RENAME,
    FAULTS_UNLINK,
    FAULTS_OPEN,
    FAULTS_FOLDER,
    FAULTS_ONCE_KINDS
};

/* Synchronization: atomics; the library's threads read and count, the test changes them. */
struct faults {
    atomic_uint full;    /* bits of folders: writes give -ENOSPC */
    atomic_uint gone;    /* bits of folders: nothing in them can be opened, named or listed */
    atomic_uint once;    /* enum faults_once: the next such call fails with -EIO */
    atomic_uint once_at; /* bits of the folders concerned */
    atomic_long kill_in; /* greater than 0: the process is killed within so many further calls */
    atomic_uint hits;    /* calls that failed */
};

/* The table; `f` is used until the process ends. */
const struct vv_os *faults_os(struct faults *f);
/* Everything works again. */
void faults_heal(struct faults *f);
bool faults_active(struct faults *f);

#endif
