/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time that a program waits that computes, writes records and reads them back, from bandwidths
 * and capacities alone: the performance model of Alturkestani et al. (MLBS), equation (3),
 *
 *     speed-up = t_reference / max(t_kernel + t_memcopy, t_io),
 *
 * with t_io for layers that have capacities. t_reference is the time of the same program with
 * blocking I/O on one layer.
 *
 * Bytes that do not fit the layers above some line have to cross it, at most at the sum of the
 * rates of the layers below it. t_io of a phase is the longest of these times:
 *
 *     max over k of (bytes - host - capacity of the first k layers) / (rates of the other layers)
 *
 * Writing and reading back are two phases, each with its own maximum. Not modelled: latencies, the
 * first record (nothing can be read ahead of it) and how computing is spread over a phase. The
 * bound of cli/report/bound.h models the last of these, but for one disk; the simulator models all
 * of them.
 */
#ifndef VV_POLICY_MODEL_H
#define VV_POLICY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum { VV_MODEL_LAYERS = 4 };

struct vv_model_layer {
    double write_bytes_per_s, read_bytes_per_s;
    uint64_t capacity_bytes; /* 0: no limit */
};

struct vv_model {
    uint64_t record_bytes, records;
    double write_kernel_s, read_kernel_s; /* computing in each of the phases, in total */
    bool reads;                           /* the records are read back */
    double copy_bytes_per_s;              /* to and from host memory; 0: takes no time */
    uint64_t host_bytes;                  /* of host memory that hold records */
    unsigned nlayers;                     /* below it, fast to slow */
    struct vv_model_layer layer[VV_MODEL_LAYERS];
    struct vv_model_layer reference; /* blocking I/O to compare with; capacity unused */
};

struct vv_model_phase {
    double kernel_s, copy_s, io_s;
    double wall_s;    /* max(kernel_s + copy_s, io_s) */
    double blocked_s; /* wall_s - kernel_s */
    int binding;      /* the fastest layer that limits the phase; -1: none, the I/O is hidden */
};

struct vv_model_answer {
    struct vv_model_phase write, read;
    double wall_s, blocked_s;
    double reference_s, speedup;
    bool hides; /* the I/O of both phases is hidden behind computing and copying */
    bool fits;  /* the layers hold all records; false: there is no such run, the rest is not set */
};

/* Equation (3) alone. */
double vv_model_speedup(double reference_s, double kernel_s, double copy_s, double io_s);

/* A layer with a rate of 0 takes nothing. */
struct vv_model_answer vv_model_ask(const struct vv_model *m);

#endif
