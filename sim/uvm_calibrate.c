/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine itself does the steps, so that they are the same ones, made by the same threads; what
 * is arranged here is that each kind happens by itself:
 *
 *   all of it FIRST times, uncounted: whatever is done first takes longer
 *   written   ALONE versions while the flusher is held: new pages in fresh memory, copies in
 *   flushed   with no call meanwhile: steps down
 *   written   USED more while it is held: new pages in memory that others have left
 *   written   MET more, each when a step down has begun: how long a call waits for one
 *   fetched   by hints, steps up; and meanwhile MET restored, each when a step has begun
 *   restored  what else had been fetched: copies out
 *   restored  BACK without a hint: the call moves pages back itself
 *
 * The cache is larger than all of it and every version is restored once, so that nothing waits for
 * room. Calls that are to be alone come after a pause.
 */
#include "sim/uvm_calibrate.h"

#include <errno.h>
#include <stdio.h>

#include "sim/baseline_uvm.h"

enum { FIRST = 1, ALONE = 8, USED = 6, MET = 8, BACK = 6 };

_Static_assert(FIRST + ALONE + USED + MET == UVM_CALIBRATE_VERSIONS, "all that is written");
_Static_assert(FIRST + 2 * MET + BACK == UVM_CALIBRATE_VERSIONS, "and restored");

struct calibration {
    const struct uvm_calibrate_opts *o;
    struct shot_engine *e;
};

static int put(struct calibration *c, uint64_t version)
{
    return c->e->ops->checkpoint(c->e, version, c->o->buf, c->o->bytes);
}

static int get(struct calibration *c, uint64_t version)
{
    return c->e->ops->restore(c->e, version, c->o->buf, c->o->bytes);
}

static int paused(struct calibration *c, int (*call)(struct calibration *, uint64_t),
                  uint64_t begin, uint64_t end)
{
    int rc = 0;

    for (uint64_t v = begin; rc == 0 && v < end; v++) {
        rc = c->o->pause(c->o->arg);
        if (rc == 0)
            rc = call(c, v);
    }
    return rc;
}

static int do_first(struct calibration *c)
{
    int rc = 0;

    for (uint64_t v = 0; rc == 0 && v < FIRST; v++) {
        rc = put(c, v);
        if (rc == 0)
            rc = c->e->ops->flush(c->e);
        if (rc == 0)
            rc = get(c, v);
        if (rc == 0)
            rc = c->e->ops->flush(c->e);
    }
    shot_uvm_forget(c->e);
    return rc;
}

static int write_all(struct calibration *c)
{
    int rc;

    shot_uvm_hold(c->e, true);
    rc = paused(c, put, FIRST, FIRST + ALONE);
    shot_uvm_hold(c->e, false);
    if (rc == 0)
        rc = c->e->ops->flush(c->e);
    shot_uvm_hold(c->e, true);
    if (rc == 0)
        rc = paused(c, put, FIRST + ALONE, FIRST + ALONE + USED);
    shot_uvm_hold(c->e, false);
    for (uint64_t v = FIRST + ALONE + USED; rc == 0 && v < UVM_CALIBRATE_VERSIONS; v++) {
        (void)shot_uvm_await_step(c->e, false, v);
        rc = put(c, v);
    }
    return rc ? rc : c->e->ops->flush(c->e);
}

static int read_all(struct calibration *c)
{
    const uint64_t begin = FIRST, alone = begin + MET, back = alone + MET;
    int rc = 0;

    for (uint64_t v = begin; rc == 0 && v < back; v++)
        rc = c->e->ops->hint(c->e, v);
    if (rc == 0)
        rc = c->e->ops->start(c->e);
    for (uint64_t v = begin; rc == 0 && v < alone; v++) {
        (void)shot_uvm_await_step(c->e, true, v);
        rc = get(c, v);
    }
    /* The rest arrives. */
    while (rc == 0 && shot_uvm_await_step(c->e, true, back - 1))
        ;
    if (rc == 0)
        rc = paused(c, get, alone, back);
    return rc ? rc : paused(c, get, back, UVM_CALIBRATE_VERSIONS);
}

int uvm_calibrate(const struct uvm_calibrate_opts *opts, char *err, size_t err_size,
                  struct uvm_account *ret_costs)
{
    uint64_t bytes[UVM_CALIBRATE_VERSIONS];
    struct shot_sizes sizes = {.bytes = bytes,
                               .nr = UVM_CALIBRATE_VERSIONS,
                               .total_bytes = UVM_CALIBRATE_VERSIONS * opts->bytes,
                               .largest_bytes = opts->bytes};
    struct shot_baseline b = {.device = opts->device,
                              .sizes = &sizes,
                              .device_cache_bytes = sizes.total_bytes + opts->bytes,
                              .consume_once = true,
                              .uvm = opts->uvm};
    struct calibration c = {.o = opts};
    struct uvm_account costs;
    int rc, closed;

    for (size_t v = 0; v < UVM_CALIBRATE_VERSIONS; v++)
        bytes[v] = opts->bytes;
    rc = shot_engine_uvm(&b, err, err_size, &c.e);
    if (rc)
        return rc;
    rc = do_first(&c);
    if (rc == 0)
        rc = write_all(&c);
    if (rc == 0)
        rc = read_all(&c);
    if (rc)
        c.e->ops->explain(c.e, rc, err, err_size);
    shot_uvm_account(c.e, &costs);
    closed = shot_engine_close(c.e);
    if (rc == 0 && closed) {
        snprintf(err, err_size, "uvm: %s", varve_strerror(closed));
        rc = closed;
    }
    if (rc == 0)
        *ret_costs = costs;
    return rc;
}
