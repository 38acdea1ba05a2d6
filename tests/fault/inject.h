/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing the Nth operation of the device and store tables.
 *
 * One struct t_inject counts the operations of all the devices and stores that use it, in the
 * order of calls, and fails those it is armed for. A test runs once unarmed to learn their number
 * (t_inject_seen), then once for each of them and each mode.
 *
 * Works with any backend, because it wraps the table. Only operations with a result are counted:
 * not close, stream_free, event_free, poll and kick.
 */
#ifndef T_FAULT_INJECT_H
#define T_FAULT_INJECT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"
#include "store/store.h"

enum t_inject_mode {
    T_INJECT_REFUSE, /* the call returns the error and does nothing */
    T_INJECT_REPORT, /* the copy or store request is accepted and not carried out; its event or poll
                        returns the error. Other operations fail as in REFUSE, because they have
                        no later report. */
};

struct t_inject {
    pthread_mutex_t lock;
    enum t_inject_mode mode;
    uint64_t nth;  /* number of the operation that fails; 0: not armed */
    int64_t count; /* how many in a row fail; negative: for ever */
    int err;
    uint32_t skip; /* device operations that are not counted, bits by enum vv_device_op */
    uint64_t seen;
    uint64_t failed;
    const char *first_failed; /* name of the first operation that was made to fail, or NULL */
};

void t_inject_init(struct t_inject *inj);
/* Call it after everything that uses it was closed. */
void t_inject_fini(struct t_inject *inj);

/* Fails the nth operation from now on (1: the next) and those after it, up to `count` (negative: for ever),
 * with `err` (negative errno). Restarts the counts. */
void t_inject_arm(struct t_inject *inj, enum t_inject_mode mode, uint64_t nth, int64_t count,
                  int err);
/* Fails nothing any more; counting goes on. */
void t_inject_disarm(struct t_inject *inj);
/* Does not count an operation of the device, and never fails it: for event_query, for example, whose number
 * depends on how often a caller polls. */
void t_inject_skip(struct t_inject *inj, enum vv_device_op op);

uint64_t t_inject_seen(struct t_inject *inj);
uint64_t t_inject_failed(struct t_inject *inj);
const char *t_inject_first_failed(struct t_inject *inj);

/* The device or store to use instead. Closing it closes the inner one. Streams and events belong to
 * the outer device; functions of one backend (vv_device_host_*) take the inner one. */
struct vv_device *t_inject_device(struct t_inject *inj, struct vv_device *inner);
struct vv_store *t_inject_store(struct t_inject *inj, struct vv_store *inner);

#endif
