/* SPDX-License-Identifier: Apache-2.0 */
/* For files that a test has just written: they are not kept if reading them takes long, as on a busy machine. */
#ifndef TESTS_UNIT_DATASET_SETTLED_H
#define TESTS_UNIT_DATASET_SETTLED_H

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataset/node.h"

/* vv_node_get, repeated while the file is too young. */
static inline int get_settled(struct vv_node *n, const struct vv_server_ask *ask, int *ret_fd,
                              struct vv_shared_stat *ret_stat)
{
    int rc;

    while ((rc = vv_node_get(n, ask, ret_fd, ret_stat)) == -EAGAIN &&
           vv_now_ns() < ask->deadline_ns)
        usleep(20000);
    return rc;
}

#endif
