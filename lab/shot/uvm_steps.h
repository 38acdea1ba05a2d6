/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the baseline with managed memory spends its time on: steps of a few kinds, counted and timed.
 * The same steps are timed before a shot (lab/shot/uvm_calibrate.h), and what the shot's calls ought to
 * take is what was counted in it times what such a step cost then.
 */
#ifndef VARVE_SIM_UVM_STEPS_H
#define VARVE_SIM_UVM_STEPS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Who makes a step. The application's are part of its blocked time. */
enum uvm_who { UVM_PUT, UVM_GET, UVM_THREADS, UVM_WHO_NR };

/* What of the threads' doing the first call of the driver in a checkpoint or restore finds under way.
 * Steps in both directions at once count as down, the slower one; advice is given alone. */
enum uvm_met {
    UVM_MET_NONE,
    UVM_MET_DOWN,
    UVM_MET_UP,
    UVM_MET_ADVICE_DOWN,
    UVM_MET_ADVICE_UP,
    UVM_MET_ADVICE_GONE,
    UVM_MET_NR
};

enum uvm_kind {
    UVM_REST,   /* of a call: locks, waking the threads */
    UVM_ROOM,   /* waiting for room; bytes: of the flusher's steps and advice that it took */
    UVM_ARRIVE, /* waiting for a version that is on its way; bytes: the same of the prefetcher's */
    /* The threads' advice, about a version that is to be moved or is not needed any more. */
    UVM_ADVICE_DOWN,
    UVM_ADVICE_UP,
    UVM_ADVICE_GONE,
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

/* So many of each kind are kept one by one; of more, every second, every fourth and so on. */
#define UVM_SAMPLES 64

struct uvm_sample {
    uint64_t ns;
    uint64_t age_ns; /* so long before had what was met begun */
};

struct uvm_step {
    uint64_t count, bytes, ns;
    uint64_t advised_bytes; /* of a wait for a thread: what its advice was about, besides */
    uint32_t kept, every;   /* samples, and of how many one is one; 0: none is yet */
    struct uvm_sample sample[UVM_SAMPLES];
};

struct uvm_account {
    struct uvm_step s[UVM_WHO_NR][UVM_KIND_NR];
};

void uvm_account_add(struct uvm_account *a, enum uvm_who who, unsigned kind, uint64_t bytes,
                     struct uvm_sample sample);

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
