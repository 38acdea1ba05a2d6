/* SPDX-License-Identifier: Apache-2.0 */
/* varve verify --repair: two folders that hold copies of the same checkpoints. */
#ifndef CLI_REPAIR_H
#define CLI_REPAIR_H

#include <stdint.h>

struct repair_result {
    uint64_t repaired, unrepaired; /* damaged files that were repaired, and those that were not */
};

/* Checks every checkpoint file of one history, or of all (NULL), in both folders, and replaces a damaged one by
 * the other folder's copy if that is good. Calls `tell` for every damaged file; `why` is NULL if it was repaired.
 * 0, or a negative errno if a folder cannot be read. */
int repair_folders(const char *local, const char *remote, const char *history,
                   void (*tell)(void *user, const char *folder, const char *path, const char *why),
                   void *user, struct repair_result *ret_result);

#endif
