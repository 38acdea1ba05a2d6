/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the commands that read a folder of checkpoints. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "store/files/ckfile.h"
#include "store/remote/group.h"
#include "store/target/target.h"

/* The folder: the argument of --local, or else the first of the other arguments, or else VARVE_LOCAL, or else
 * VARVE_REMOTE. Names of histories have no '/' and no leading dot, so an argument with one of these is a folder;
 * any other argument is a folder only if neither variable is set. `first` is moved behind a folder that was taken.
 * NULL: there is none, and a message was printed. */
const char *files_folder(const char *command, const char *option, int argc, char *const *argv,
                         int *first);

bool files_is_folder(const char *path);

/* True if one of the two variables names a folder. */
bool files_folder_known(void);

/* The files of a history in a folder, or of the folder itself if history is NULL; a negative errno. */
int files_open(const char *folder, const char *history, struct vv_target **ret_target);

/* "2026-11-15 04:55:39" in UTC. Returns buf. */
char *files_time(uint64_t ns, char *buf, size_t size);

/* Prints a line on standard error that overwrites itself, on a terminal only. Total 0: clears it. */
void files_progress(const char *what, uint64_t done, uint64_t total);

/* A whole unsigned number and nothing else. */
bool files_number(const char *text, uint64_t *ret_value);

/* The group of the last history; zeroed at first. */
struct files_levels {
    struct vv_group group;
    char history[VV_CKFILE_HISTORY_MAX + 1];
    struct vv_target *at;
};

/* The level of an undamaged file in `folder`: "local", "remote" or "complete". */
const char *files_level(struct files_levels *l, const char *folder, const struct vv_files_found *f);
void files_levels_fini(struct files_levels *l);

/* Prints why a folder or history could not be read, and what may have been meant. Returns CLI_FAILED. */
int files_complain(const char *command, const char *folder, const char *history, int rc);

/* Called if nothing was found. If the folder is that of one history, prints so and returns CLI_FAILED; otherwise
 * returns CLI_OK. */
int files_check_empty(const char *command, const char *folder);

#endif
