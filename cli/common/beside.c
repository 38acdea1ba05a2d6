/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common/beside.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool beside_find(const char *const *places, size_t nr, int mode, char *ret_path, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", ret_path, bytes - 1);
    char *slash;

    if (n <= 0)
        return false;
    ret_path[n] = '\0';
    slash = strrchr(ret_path, '/');
    for (size_t i = 0; slash && i < nr; i++) {
        size_t room = bytes - (size_t)(slash + 1 - ret_path);

        if ((size_t)snprintf(slash + 1, room, "%s", places[i]) < room &&
            access(ret_path, mode) == 0)
            return true;
    }
    return false;
}
