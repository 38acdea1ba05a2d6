/* SPDX-License-Identifier: Apache-2.0 */
/* Files that belong to the running program. They are found from the program's folder, so a build tree works as it
 * is, and an installed tree can be moved. */
#ifndef CLI_COMMON_BESIDE_H
#define CLI_COMMON_BESIDE_H

#include <stdbool.h>
#include <stddef.h>

/* Finds the first of `places`, paths from the folder of the running program, that access(2) allows with `mode`.
 * False: there is none, or the path does not fit. */
bool beside_find(const char *const *places, size_t nr, int mode, char *ret_path, size_t bytes);

#endif
