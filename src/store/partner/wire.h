/* SPDX-License-Identifier: Apache-2.0 */
/* How the processes of a job talk to each other: a table that whoever knows a way fills in (MPI, in
 * libvarve-mpi; queues in memory, in tests). The public face of it is varve/transport.h.
 *
 * Messages from one process to another arrive in the order of sending. Without `threads` all calls
 * are made by threads of the application inside of its own calls, one at a time. */
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
    bool threads; /* a thread of the library may call, beside the application's */
    void *arg;
    /* Without `threads`: may the calling thread do so? NULL: any may. */
    int (*may_call)(void *arg);
    /* Takes the message, which free() ends, whatever the result; does not wait. */
    int (*send)(void *arg, uint32_t to, void *message, size_t bytes);
    /* The next message, the caller's to free(), aligned to 4096 bytes. -EAGAIN: none is there. */
    int (*receive)(void *arg, uint32_t *ret_from, void **ret_message, size_t *ret_bytes);
    /* Collective. out[i] goes to process i, ret_in[i] came from there and is the caller's to
     * free(). */
    int (*exchange)(void *arg, const struct vv_wire_part *out, struct vv_wire_part *ret_in);
    /* Collective: the greatest of all values. */
    int (*most)(void *arg, uint64_t value, uint64_t *ret_most);
};

#endif
