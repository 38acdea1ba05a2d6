/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the baseline with managed memory spends its time on: steps of a few kinds, counted and timed.
 * The same steps are timed before a shot (sim/uvm_calibrate.h), and what the shot's calls ought to
 * take is what was counted in it times what such a step cost then.
 */
#ifndef VARVE_SIM_UVM_STEPS_H
#define VARVE_SIM_UVM_STEPS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Who makes a step. The application's are part of its blocked time. */
enum uvm_who { UVM_PUT, UVM_GET, UVM_THREADS, UVM_WHO_NR };

/* Other calls of the driver wait while a thread moves memory: what the first call of the driver in a
 * checkpoint or restore finds. Both directions at once count as down, the slower one. */
enum uvm_met { UVM_MET_NONE, UVM_MET_DOWN, UVM_MET_UP, UVM_MET_NR };

enum uvm_kind {
    UVM_REST,   /* of a call: locks, waking the threads */
    UVM_ROOM,   /* waiting for room; bytes: of the flusher's steps that it took */
    UVM_ARRIVE, /* waiting for a version that is on its way; bytes: the same of the prefetcher's */
    /* These three by what they met: kind + enum uvm_met. */
    UVM_ADVISE,
    UVM_COPY_IN = UVM_ADVISE + UVM_MET_NR,     /* on the device */
    UVM_COPY_OUT = UVM_COPY_IN + UVM_MET_NR,   /* on the device */
    UVM_COPY_HOST = UVM_COPY_OUT + UVM_MET_NR, /* out of pages in host memory */
    /* To the device: pages without contents, with contents in host memory, or there already. Fresh:
     * more of the device is in use afterwards than ever before; used: others have left it. */
    UVM_NEW_FRESH,
    UVM_NEW_USED,
    UVM_BACK_FRESH,
    UVM_BACK_USED,
    UVM_STAY,
    /* To the host: pages that have a place there already, or not. */
    UVM_DOWN_FIRST,
    UVM_DOWN_AGAIN,
    UVM_KIND_NR
};

struct uvm_step {
    uint64_t count, bytes, ns;
    double ns2; /* sum of the squares */
};

struct uvm_account {
    struct uvm_step s[UVM_WHO_NR][UVM_KIND_NR];
};

static inline void uvm_account_add(struct uvm_account *a, enum uvm_who who, unsigned kind,
                                   uint64_t bytes, uint64_t ns)
{
    struct uvm_step *s = &a->s[who][kind];

    s->count++;
    s->bytes += bytes;
    s->ns += ns;
    s->ns2 += (double)ns * (double)ns;
}

/* What the steps of one kind in `counted` ought to take by the costs in `costs`; false: no step of
 * that kind, or of one that is like it, has a cost. No steps take no time. */
bool uvm_expected_ns(const struct uvm_account *costs, const struct uvm_account *counted,
                     enum uvm_who who, unsigned kind, double *ret_ns);

/* All steps of one kind of call. A step without a cost counts as nothing: its row has none. */
double uvm_expected_call_s(const struct uvm_account *costs, const struct uvm_account *counted,
                           enum uvm_who who);

/* A row for each kind of step that was counted. */
void uvm_steps_print(FILE *f, const struct uvm_account *costs, const struct uvm_account *counted);
/* The same as a JSON array. */
void uvm_steps_print_json(FILE *f, const struct uvm_account *costs,
                          const struct uvm_account *counted);

#endif
