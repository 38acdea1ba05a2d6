/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a program waits that computes, writes records and reads them back, from bandwidths and
 * capacities alone: the performance model of Alturkestani et al. (MLBS), equation (3),
 *
 *     speed-up = t_reference / max(t_kernel + t_memcopy, t_io),
 *
 * with t_io of layers that have capacities. t_reference is the time of the same program with blocking
 * I/O on one layer.
 *
 * Bytes that do not fit the layers above some line have to cross it, and they cross it no faster than
 * all layers below it take them together. t_io of a phase is the longest of these times:
 *
 *     max over k of (bytes - host - capacity of the first k layers) / (rates of the other layers)
 *
 * Writing and reading back are two phases, each with its own maximum. What this leaves out: latencies,
 * the first record (nothing can be read ahead of it) and how computing is spread over a phase. The
 * bound of cli/report/bound.h has the last of these, but for one disk; the simulator has all of them.
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
    double write_kernel_s, read_kernel_s; /* computing in each of the phases, in all */
    bool reads;                           /* the records are read back */
    double copy_bytes_per_s;              /* to and from host memory; 0: takes no time */
    uint64_t host_bytes;                  /* of host memory that hold records */
    unsigned nlayers;                     /* below it, fast to slow */
    struct vv_model_layer layer[VV_MODEL_LAYERS];
    struct vv_model_layer reference; /* blocking I/O that it is compared with; capacity unused */
};

struct vv_model_phase {
    double kernel_s, copy_s, io_s;
    double wall_s;    /* max(kernel_s + copy_s, io_s) */
    double blocked_s; /* wall_s - kernel_s */
    int binding;      /* the fastest layer that holds it up; -1: none, the I/O hides */
};

struct vv_model_answer {
    struct vv_model_phase write, read;
    double wall_s, blocked_s;
    double reference_s, speedup;
    bool hides; /* the I/O of both phases hides behind computing and copying */
    bool fits;  /* the layers hold all records; false: no such run, the rest is not set */
};

/* Equation (3) alone. */
double vv_model_speedup(double reference_s, double kernel_s, double copy_s, double io_s);

/* Rates of 0 count as none: a layer that takes nothing. */
struct vv_model_answer vv_model_ask(const struct vv_model *m);

#endif
