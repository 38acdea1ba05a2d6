/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the processes of a job: a table that the transport fills in (MPI, in libvarve-mpi; queues in
 * memory, in tests). Its public interface is varve/transport.h.
 *
 * Messages from one process to another arrive in the order of sending. Without `threads`, only threads of the
 * application call it, inside calls of the library, one at a time. */
#ifndef VV_STORE_WIRE_H
#define VV_STORE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vv_wire_part {
    void *data;
    size_t bytes;
};

struct vv_wire {
    uint32_t rank, ranks;
    bool threads; /* a thread of the library may call, besides the application's */
    void *arg;
    /* Without `threads`: non-zero if the calling thread may use the wire. NULL: any may. */
    int (*may_call)(void *arg);
    /* Takes over the message and frees it with free(), whatever the result; does not wait. */
    int (*send)(void *arg, uint32_t to, void *message, size_t bytes);
    /* The next message, which the caller frees, aligned to 4096 bytes. -EAGAIN: none. */
    int (*receive)(void *arg, uint32_t *ret_from, void **ret_message, size_t *ret_bytes);
    /* Collective. out[i] goes to process i; ret_in[i] came from process i, and the caller frees it. */
    int (*exchange)(void *arg, const struct vv_wire_part *out, struct vv_wire_part *ret_in);
    /* Collective: the largest of all values. */
    int (*most)(void *arg, uint64_t value, uint64_t *ret_most);
};

#endif
