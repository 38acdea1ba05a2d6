/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine itself does the steps, so that they are the same ones, made by the same threads; what
 * is arranged here is that each kind happens by itself:
 *
 *   all of it FIRST times, uncounted: whatever is done first takes longer
 *   written   ALONE versions while the flusher is held: new pages in fresh memory, copies in
 *   flushed   with no call meanwhile: advice and steps down
 *   written   USED more while it is held: new pages in memory that others have left
 *   written   MET more, each when a step down has begun, and MET more, each when advice has: how long
 *             a call waits for one
 *   fetched   by hints, advice and steps up; and meanwhile BACK restored, each when a step has begun,
 *             and BACK more, each when advice has
 *   restored  what else had been fetched: BACK when nothing is under way, copies out, and after each
 *             of those another when the advice on what is gone has begun
 *   restored  BACK without a hint: the call moves pages back itself
 *
 * The cache is larger than all of it and every version is restored once, so that nothing waits for
 * room. Calls that are to be alone come after a pause.
 */
#include "lab/shot/uvm_calibrate.h"

#include <errno.h>
#include <stdio.h>

#include "lab/shot/baseline_uvm.h"

enum { FIRST = 1, ALONE = 8, USED = 6, MET = 8, BACK = 6 };

_Static_assert(FIRST + ALONE + USED + 2 * MET == UVM_CALIBRATE_VERSIONS, "all that is written");
_Static_assert(FIRST + 5 * BACK == UVM_CALIBRATE_VERSIONS, "and restored");

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
                  uint64_t version)
{
    int rc = c->o->pause(c->o->arg);

    return rc ? rc : call(c, version);
}

/* Each when such a thing has begun. */
static int met(struct calibration *c, int (*call)(struct calibration *, uint64_t),
               enum uvm_met what, uint64_t begin, uint64_t end)
{
    int rc = 0;

    for (uint64_t v = begin; rc == 0 && v < end; v++) {
        (void)shot_uvm_await(c->e, what, v);
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

static int write_held(struct calibration *c, uint64_t begin, uint64_t end)
{
    int rc = 0;

    shot_uvm_hold(c->e, true);
    for (uint64_t v = begin; rc == 0 && v < end; v++)
        rc = paused(c, put, v);
    shot_uvm_hold(c->e, false);
    return rc;
}

static int write_all(struct calibration *c)
{
    const uint64_t used = FIRST + ALONE, step = used + USED, advice = step + MET;
    int rc = write_held(c, FIRST, used);

    if (rc == 0)
        rc = c->e->ops->flush(c->e);
    if (rc == 0)
        rc = write_held(c, used, step);
    if (rc == 0)
        rc = met(c, put, UVM_MET_DOWN, step, advice);
    if (rc == 0)
        rc = met(c, put, UVM_MET_ADVICE_DOWN, advice, advice + MET);
    return rc ? rc : c->e->ops->flush(c->e);
}

/* By hints. The rest of what was hinted at has arrived in the end. */
static int fetch(struct calibration *c, uint64_t begin, uint64_t end)
{
    int rc = 0;

    for (uint64_t v = begin; rc == 0 && v < end; v++)
        rc = c->e->ops->hint(c->e, v);
    if (rc == 0)
        rc = c->e->ops->start(c->e);
    if (rc == 0)
        rc = met(c, get, UVM_MET_UP, begin, begin + BACK);
    if (rc == 0)
        rc = met(c, get, UVM_MET_ADVICE_UP, begin + BACK, begin + 2 * BACK);
    while (rc == 0 && shot_uvm_await(c->e, UVM_MET_UP, end - 1))
        ;
    return rc;
}

static int read_all(struct calibration *c)
{
    const uint64_t alone = FIRST + 2 * BACK, back = alone + 2 * BACK;
    int rc = fetch(c, FIRST, back);

    for (uint64_t v = alone; rc == 0 && v < UVM_CALIBRATE_VERSIONS; v++) {
        rc = c->e->ops->flush(c->e); /* the advice on the one before */
        shot_uvm_hold(c->e, v < back);
        if (rc == 0)
            rc = paused(c, get, v);
        if (rc == 0 && v < back) {
            rc = met(c, get, UVM_MET_ADVICE_GONE, v + 1, v + 2);
            v++;
        }
    }
    shot_uvm_hold(c->e, false);
    return rc;
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
