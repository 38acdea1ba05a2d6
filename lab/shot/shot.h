/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One shot: an application writes K checkpoints, computing before each, and then reads them back.
 * This header has the options that `varve bench shot` and `varve sim shot` share, the sizes of the
 * checkpoints, the script of operations that one process performs, and the bound of a script.
 */
#ifndef LAB_SHOT_SHOT_H
#define LAB_SHOT_SHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/util.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/report/bound.h"

enum shot_order { SHOT_ORDER_SEQ, SHOT_ORDER_REV, SHOT_ORDER_IRR, SHOT_ORDER_BINOMIAL };
enum shot_hints {
    SHOT_HINTS_NONE,
    SHOT_HINTS_ONE,     /* each get, at the beginning of the iteration before it */
    SHOT_HINTS_ALL,     /* every get, in order, before anything else             */
    SHOT_HINTS_LATE,    /* each get, just before it                              */
    SHOT_HINTS_PARTIAL, /* the first tenth of all                                */
    SHOT_HINTS_SWAPPED, /* all, but two of them change places                    */
    SHOT_HINTS_WRONG    /* all, in the reverse of the order of the gets          */
};
enum shot_consume { SHOT_CONSUME_ONCE, SHOT_CONSUME_KEEP };
/* The engine of the calls: the library, or one of the baselines (lab/shot/shot_engine.h). */
enum shot_engine_kind {
    SHOT_ENGINE_VARVE,
    SHOT_ENGINE_UVM,
    SHOT_ENGINE_ONDEMAND,
    SHOT_ENGINE_FILE
};
enum shot_calls { SHOT_CALLS_BLOCKING, SHOT_CALLS_ON };
enum shot_computing { SHOT_COMPUTING_SLEEP, SHOT_COMPUTING_GPU };

/* The last two are no movers: both directions of the device link, and of the disk, together. */
enum shot_hop {
    SHOT_HOP_D2D,
    SHOT_HOP_H2H, /* the first copy where there is no device */
    SHOT_HOP_D2H,
    SHOT_HOP_H2D,
    SHOT_HOP_H2F,
    SHOT_HOP_F2H,
    SHOT_HOP_F2R,
    SHOT_HOP_R2F,
    SHOT_HOP_LINK,
    SHOT_HOP_DISK,
    SHOT_HOP_NR
};

/* A capacity in bytes, or as a share of the most that one process has to keep at one time: of the whole history,
 * unless the order is binomial. */
struct shot_cap {
    uint64_t bytes;
    double share; /* > 0: instead of bytes */
};

/* Texts point into the arguments that were parsed, or are constants. */
struct shot_opts {
    bool json;
    bool barrier;
    bool no_bound; /* measure no bandwidths, compute no bound */
    bool lp;       /* simulated scripts: a second bound by a linear program */
    bool at_once;  /* begin while the host cache is still being made ready */
    bool wait;
    uint32_t ckpts;
    uint32_t procs;
    uint32_t slots; /* binomial: states stored at once */
    uint64_t size_bytes;
    const char *sizes; /* FILE.csv[:column], or a list such as 128M,512M; NULL: all of size_bytes */
    double scale;
    uint64_t seed;
    uint64_t interval_ns;
    double load;    /* > 0: instead of interval_ns; see shot_interval_ns */
    int order;      /* enum shot_order        */
    int hints;      /* enum shot_hints        */
    int consume;    /* enum shot_consume      */
    int engine;     /* enum shot_engine_kind  */
    int compute;    /* enum shot_computing    */
    int calls;      /* enum shot_calls        */
    int device;     /* enum varve_device_kind */
    int level;      /* enum varve_level       */
    int local_io;   /* enum varve_local_io    */
    int local_sync; /* enum varve_local_sync */
    int policy;     /* enum varve_policy_kind */
    struct shot_cap device_cache;
    struct shot_cap host_cache;
    struct shot_cap local_cache; /* 0: no limit */
    const char *local;           /* folder; NULL: a temporary one; "none": no disk tier */
    const char *csv;             /* file for the figures of every call, or NULL */
    const char *trace;           /* file for what happened when, or NULL */
    const char *cores; /* processors that the processes are bound to, in turn; NULL: not bound */
    const char *uvm;   /* for shot_uvm_opts_parse (lab/shot/shot_managed.h), or NULL */
    uint64_t page_bytes;
    uint64_t rate[SHOT_HOP_NR]; /* bytes per second; 0: not throttled */
    /* Simulated: how long a transfer occupies its hop besides the time of its bytes. */
    uint64_t latency_ns[SHOT_HOP_NR];
};

void shot_opts_init(struct shot_opts *opts);

/* Reads the command line over the defaults, as opts_parse does: -1, or an exit status. `command` is the text
 * before the options, such as "varve bench shot". */
VV_WARN_UNUSED int shot_opts_parse(const char *command, int argc, char **argv,
                                   struct shot_opts *ret_opts);

/* The same in steps, for a command that has more options: it names shot_options in the field `also` of its own,
 * and its structure begins with this one. */
struct shot_args {
    struct shot_opts o;
    int wait; /* -1: not given, as o.consume and o.compute */
    bool given_size, given_sizes, given_order, given_interval, given_load;
};

extern const struct opts shot_options;
/* The options of the machine, the library and the report, not of the workload. */
extern const struct opts shot_machine_options;

void shot_args_init(struct shot_args *args);
/* Fills in defaults that depend on other options. -EINVAL: `err` names the options that exclude each other, in one
 * line. */
VV_WARN_UNUSED int shot_args_settle(struct shot_args *args, char *err, size_t err_size);

/* The options that differ from the defaults, as one line that shot_opts_parse reads back to the same values. */
void shot_opts_print(FILE *f, const struct shot_opts *opts);
/* The same without the workload. */
void shot_opts_print_machine(FILE *f, const struct shot_opts *opts);
/* Those options alone, the defaults too: other commands have others. */
void shot_opts_print_named(FILE *f, const struct shot_opts *opts, const char *const *names,
                           size_t nr);
/* The machine's, as lines of a script: "set device-cache 64M". */
void shot_opts_print_set(FILE *f, const struct shot_opts *opts);
/* The same as one JSON object; `machine`: without the workload. */
void shot_opts_print_json(struct json *j, const char *key, const struct shot_opts *opts,
                          bool machine);

/* The throttled movers as the library's option `rate` takes them: "d2d=4000000000,h2f=40000000".
 * -ENOSPC when it does not fit. */
VV_WARN_UNUSED int shot_opts_rates(const struct shot_opts *opts, char *buf, size_t size);

const char *shot_hop_name(enum shot_hop hop);

/* True if the application's data is on a device, real or emulated. */
bool shot_has_device(const struct shot_opts *opts);
/* True if there is a bound: for the library's caches, and calls that return when they are done. */
bool shot_has_bound(const struct shot_opts *opts);

/* The bytes of a capacity: shares are cut to whole pages, at least one. Pass the script's peak_live_bytes as
 * history_bytes. */
uint64_t shot_cap_bytes(const struct shot_cap *cap, uint64_t history_bytes, uint64_t page_bytes);

struct shot_sizes {
    uint64_t *bytes; /* of version i */
    size_t nr;
    uint64_t total_bytes;
    uint64_t largest_bytes;
};

/* One size for each of opts->ckpts versions. -EINVAL and the errors of opening the file, with a
 * line of text in `err`; -ENOMEM. */
VV_WARN_UNUSED int shot_sizes_init(const struct shot_opts *opts, char *err, size_t err_size,
                                   struct shot_sizes *ret_sizes);
void shot_sizes_fini(struct shot_sizes *sizes);
/* How many sizes the option lists: 1 unless it is a list. */
size_t shot_sizes_listed(const char *spec);

/* The compute time before each call: as given, or such that the mean size over the interval is `load` times
 * disk_bps, the speed of the disk for one process. -EINVAL if that is needed and 0. */
VV_WARN_UNUSED int shot_interval_ns(const struct shot_opts *opts, const struct shot_sizes *sizes,
                                    double disk_bps, uint64_t *ret_interval_ns);

enum shot_op_kind {
    SHOT_COMPUTE,    /* ns                                                             */
    SHOT_BARRIER,    /* until every process has come here                              */
    SHOT_HINT,       /* version                                                        */
    SHOT_PUT,        /* version, bytes                                                 */
    SHOT_WAIT_FLUSH, /* until every version is on the lowest tier of its level         */
    SHOT_START,      /* prefetching may begin                                          */
    SHOT_GET,        /* version, bytes; with consume once the version is discarded     */
    SHOT_DISCARD     /* version                                                        */
};

struct shot_op {
    enum shot_op_kind kind;
    uint64_t version;
    uint64_t bytes;
    uint64_t ns;
    uint32_t hist;
    uint32_t line; /* of a text; 0: none */
    bool once;     /* SHOT_GET: the version is discarded */
};

/* The operations of one thread. */
struct shot_script {
    struct shot_op *ops;
    size_t nr_ops;
    size_t cap_ops;
    size_t nr_puts;
    size_t nr_gets;
    uint64_t put_bytes;
    uint64_t get_bytes;
    uint64_t largest_bytes;
    uint64_t peak_live_bytes; /* the most that has to be kept at one time */
    bool foreign;             /* it reads versions that another thread wrote */
};

/* The operations of process `rank`. Ranks differ in the permutation of an irregular order. -ENOMEM, -EINVAL. */
VV_WARN_UNUSED int shot_script_init(const struct shot_opts *opts, const struct shot_sizes *sizes,
                                    uint64_t interval_ns, uint32_t rank,
                                    struct shot_script *ret_script);
void shot_script_fini(struct shot_script *script);

/* The properties of the machine that the bound needs. A rate of 0 means no limit. */
struct shot_machine {
    bool has_device;
    bool has_disk;
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint64_t staging_bytes;   /* what the hop to the disk holds besides, in buffers of its own  */
    double rate[SHOT_HOP_NR]; /* link: 0 means both directions added; disk: 0 means the larger  */
};

/* The bound of one process. gaps_ns[n] is the time between the end of call n - 1 and the start of call n, counting
 * puts and gets from 0, as measured; NULL: the compute time of the script. A bound is valid for a run only with
 * measured gaps, because sleeps and barriers last longer than requested. Errors: those of bound_compute. */
VV_WARN_UNUSED int shot_bound(const struct shot_script *script, const struct shot_machine *machine,
                              const uint64_t *gaps_ns, struct bound_result *ret_bound);

/* One of several streams that share a machine, as measured. */
struct shot_stream {
    const struct shot_script *script;
    const uint64_t *gaps_ns; /* before each call */
    const double *put_blocked_s, *get_blocked_s;
};

/* The bounds of all of them together, one for each, of schedules under which their calls return in the order in which
 * they did. Errors: those of bound_compute. */
VV_WARN_UNUSED int shot_bound_streams(const struct shot_stream *streams, uint32_t nr,
                                      const struct shot_machine *machine,
                                      struct bound_result *ret_bounds);

#endif
